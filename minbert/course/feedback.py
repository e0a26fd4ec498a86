"""Feedback for a failed check: what differs, where, and which known mistake gives the same values.

A known mistake is run on the failing case with the fewest calls, and on the others only if it
agrees there. One that agrees everywhere is named. One that agrees in that case, is right wherever
the learner is right, and has no rival is reported as possible, unless the program keeps something
between calls. Two that fit equally well are not reported.
"""

__all__ = ["Known", "NAMED", "Verdict", "match_mistake", "judge"]

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .check_runner import AGAIN, NOTHING, Case, Outcome, Trial
from .compare import Difference, compare, compare_draws
from .diagnosis import diagnose, remembered
from .side_effects import BEHIND, BESIDE


class Verdict(NamedTuple):
    """What a check found."""

    passed: bool
    message: str  # for the learner
    # the sentence of the known mistake, if one gives the same numbers
    mistake: str | None = None
    difference: Difference | None = None  # the first one
    told: str | None = None  # what the numbers have in common with the right ones


def _window(x: Tensor, place: tuple[int, ...]) -> str:
    """Write the numbers around one place: its row, up to six of them."""
    if x.ndim == 0:
        return f"{x.item():.6g}"
    row = x[place[:-1]] if place else x.flatten()
    start = max(0, min((place[-1] if place else 0) - 2, len(row) - 6))
    numbers = [
        f"{v:.4g}" if x.is_floating_point() else str(v) for v in row[start : start + 6].tolist()
    ]
    return ("... " if start else "") + "  ".join(numbers) + (" ..." if start + 6 < len(row) else "")


def _given(inputs: dict, most: int = 110) -> str:
    """Write the inputs of a case, up to so many characters: shapes of tensors with their dtype
    unless it is float64, and short settings.
    """
    line = ""
    for name, x in inputs.items():
        if isinstance(x, Tensor):
            words = f"{name} {tuple(x.shape)}" + (
                "" if x.dtype == torch.float64 else f" {x.dtype}".replace("torch.", "")
            )
        elif name != "seed" and (
            x is None or isinstance(x, (bool, int, float)) or isinstance(x, str) and len(x) <= 40
        ):
            words = f"{name} {x:.4g}" if isinstance(x, float) else f"{name} {x!r}"
        else:
            continue
        if len(line) + len(words) > most:
            return f"{line}, ..."
        line += (", " if line else "") + words
    return line


def _tell(name: str, d: Difference, where: str | None, inputs: dict) -> str:
    lines = [
        f'{name}: not yet. Case "{d.label}"'
        + (f", {d.output}" if d.output else "")
        + f": {d.problem}"
    ]
    if where:
        lines.append(f"  in {where}")
    if given := _given(inputs):
        lines.append(f"  given     {given}")
    if (
        d.expected is not None
        and d.got is not None
        and d.expected.shape == d.got.shape
        and d.expected.numel()
    ):
        lines += [
            f"  expected  {_window(d.expected, d.place)}",
            f"  got       {_window(d.got, d.place)}",
        ]
        if d.place and len(d.place) > 1:
            lines[-2] += f"   (row {list(d.place[:-1])} of shape {list(d.expected.shape)})"
    return "\n".join(lines)


# a sentence, and what that wrong program makes of a case
Known = tuple[str, Callable[[int], Outcome]]
# what stands before the sentence, once it is sure
NAMED = "These are the numbers of a known mistake: "


def match_mistake(
    trial: Trial,
    expected: list[Outcome],
    got: list[Outcome],
    failing: list[int],  # numbers of the cases that differ, in order; some
    known: Iterable[Known],
    # processor time of this process, in seconds, at which no further mistake is tried
    until: float = math.inf,
) -> tuple[str | None, bool]:  # sentence, and whether it is sure
    """Look for the known mistake that gives these numbers; None if two of those that were tried fit
    equally well.

    A mistake is tried on the failing case with the fewest calls, then where the learner is right,
    and then on the other failing cases.
    """
    order = sorted(range(len(got)), key=lambda i: (_calls(expected[i]), i))
    bad = set(failing)
    first = next(i for i in order if i in bad)
    right = [i for i in order if i not in bad]
    wrong = [i for i in order if i in bad]
    count = {}
    for says, run in known:
        if time.process_time() > until:
            break

        def fits(i):
            return compare(trial, run(i), got[i]) is None and _draws(run(i)) == _draws(got[i])

        # wrong where the learner is right: another mistake
        if fits(first) and all(map(fits, right)):
            count[says] = sum(map(fits, wrong))
    whole = [says for says, n in count.items() if n == len(wrong)]
    if whole:
        return (whole[0], True) if len(whole) == 1 else (None, False)
    best = [says for says, n in count.items() if n == max(count.values()) and 2 * n >= len(failing)]
    return (
        (best[0], False)
        if len(best) == 1 and _telling(expected[first], got[first])
        else (None, False)
    )


def _draws(outcome: Outcome) -> bool | None:
    """Tell whether any call used the generator that it was given; None if nothing is known."""
    used = (outcome.outputs or {}).get(BEHIND.format("a draw from the generator given"))
    return None if used is None else bool(used.any())


def _calls(outcome: Outcome) -> int:
    """Count the calls of the implementation in a case: what a case costs, on every machine alike."""
    return max(
        (
            x.numel()
            for name, x in (outcome.outputs or {}).items()
            if name.startswith(BEHIND.format(""))
        ),
        default=0,
    )


def _telling(expected: Outcome, got: Outcome) -> bool:
    """Are there fractions other than 0 and NaN that differ? An error, a truth value or a shape may
    have many causes.
    """
    pairs = (
        [(a, got.outputs.get(name)) for name, a in (expected.outputs or {}).items()]
        if got.outputs
        else []
    )
    return any(
        b is not None
        and a.shape == b.shape
        and b.is_floating_point()
        and bool(((a != b) & b.isfinite() & (b != 0)).any())
        for a, b in pairs
    )


_FITTING = {
    "input": "Work on a copy: `x = x + 1` makes a new tensor, `x += 1` and everything that ends in `_` write into the old one.",
    "a seed": "Draw from the generator that is given, or from torch's own as it stands; who calls decides about seeds.",
    "a draw": "`generator=generator` hands on what was given; None means torch's own generator.",
    "a draw from the generator given": "`generator=generator` belongs into every call that draws.",
    BESIDE: "`generator=generator` belongs into every call that draws.",
    "a graph": "`.detach()`, or a block under `torch.no_grad()`, cuts the result loose.",
    "a mode": "Note `module.training` before, and put it back afterwards.",
    "a frozen or thawed weight": "Note `requires_grad` before, and put it back afterwards.",
    "gradients on or off": "`with torch.no_grad():` ends with its block.",
    "a default dtype": "Give a dtype to the tensors that need it.",
    "numpy's errors": "`with np.errstate(...):` ends with its block.",
    "a filter of warnings": "`with warnings.catch_warnings():` ends with its block.",
}


_LEFT = "This is to change in place: `x += 1`, `x[...] = 1` and everything that ends in `_` write into what came in; `x = x + 1` makes a new tensor."
_ARGUMENTS = ("unexpected keyword argument", "positional argument")
# the error says it all
_MISSPELT = ("NameError: ", "UnboundLocalError: ", "ImportError: ", "ModuleNotFoundError: ")


def _fitting_hint(trial: Trial, found: Difference) -> str:
    if found.output.startswith("input ") and found.got is None:
        return _LEFT
    if found.problem.startswith("TypeError") and any(
        words in found.problem for words in _ARGUMENTS
    ):
        return "Are the arguments still those of the stub, by name and in order? Whoever calls may name them."
    if found.problem.endswith(NOTHING):
        return "Does every way through your code end in `return`?"
    if "leaf Variable" in found.problem:
        return f"{_FITTING['input']} Where a task asks for a change in place, it stands under `torch.no_grad()`."
    written = any(word in found.problem for word in ("in-place operation", "inplace operation"))
    kind = (
        "input"
        if found.output.startswith("input ") or written
        else found.output.removeprefix("left behind: ")
    )
    return _FITTING.get(kind, trial.hints[0])


def judge(
    name: str,  # of the exercise
    trial: Trial,
    expected: list[Outcome],  # of the reference
    got: list[Outcome],  # of the learner
    known: Iterable[Known],  # only run after a failure
    # to say what was put in, and for the diagnosis; if they are at hand
    cases: Sequence[Case] = (),
    seconds: float = math.inf,  # of processor time for known mistakes
) -> Verdict:
    """Decide, and say why. The message never holds the solution."""
    differences = {
        i: d for i, (a, b) in enumerate(zip(expected, got)) if (d := compare(trial, a, b))
    }
    drawn = compare_draws(expected, got)
    if len(got) < len(expected) and not differences:
        return Verdict(False, f"{name}: only {len(got)} of {len(expected)} cases came back")
    if not differences and not drawn:
        return Verdict(True, f"{name}: passed, {sum(o.way != AGAIN for o in expected)} cases")
    failing = list(differences) or [0]
    found, where = (
        (differences[failing[0]], got[failing[0]].where) if differences else (drawn, None)
    )
    if found.problem.startswith(_MISSPELT):
        return Verdict(False, "\n".join(_tell(name, found, where, {}).split("\n")[:2]), None, found)
    says, sure = match_mistake(
        trial, expected[: len(got)], got, failing, known, time.process_time() + seconds
    )
    exact = found.output.startswith(("input ", "left behind"))  # the problem says it all
    says = says if sure or not (exact or remembered(expected, got[: failing[0] + 1])) else None
    told = found.problem if exact else diagnose(trial, cases, expected[: len(got)], got, failing)
    comment = (
        f"{NAMED}{says}"
        if sure
        else f"Perhaps: {says}"
        if says
        else f"Hint: {_fitting_hint(trial, found)}"
    )
    inputs = cases[failing[0]].inputs if cases else {}
    lines = [_tell(name, found, where, inputs), *([told] if told and not exact else []), comment]
    return Verdict(False, "\n".join(lines), says if sure else None, found, told)
