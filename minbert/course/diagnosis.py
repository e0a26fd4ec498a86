"""Describing how a wrong result differs from the right one: by a factor, a sign, a permutation, in
some rows, or in a gradient.

No list of known mistakes is complete. These descriptions need none, and they are never a wrong
guess, because they state what the numbers have in common. Relations are tried in a fixed order, and
the first that holds for all numbers is reported.
"""

__all__ = ["relation", "place", "remembered", "diagnose"]

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .check_runner import AGAIN, Case, Outcome, Trial
from .compare import compare, wrong_places
from .side_effects import BEHIND, KEPT, leaves


def _near(a: Tensor, b: Tensor) -> bool:
    """Do they agree to six digits, each number by itself? What is a thousandth of the largest one,
    or less, may have lost some.
    """
    return bool(((a - b).abs() <= _slack(a, a)).all())


def _slack(a: Tensor, whole: Tensor) -> Tensor:
    """How far a number may be off: six digits of it, nine of the largest of the whole."""
    return 1e-6 * a.abs() + 1e-9 * whole.abs().max().clamp_min(1e-300)


def _sizes(inputs: dict) -> dict[int, str]:
    """Name the sizes of the inputs."""
    found = {}
    for name, x in inputs.items():
        for axis, size in enumerate(x.shape if isinstance(x, Tensor) else ()):
            found.setdefault(size, f"the size of axis {axis} of {name}")
    return {size: words for size, words in found.items() if size > 1}


def _factor(a: Tensor, b: Tensor, inputs: dict) -> str | None:
    """A number that all are multiplied by. Of a single number only a telling one counts."""
    if not a.any():
        return None
    c = (b.flatten()[a.abs().argmax()] / a.flatten()[a.abs().argmax()]).item()
    # beyond that lies memory that nobody has written
    if not 1e-30 < abs(c) < 1e30 or abs(c - 1) < 1e-6 or not _near(a * c, b):
        return None
    if abs(c + 1) < 1e-6:
        return "the sign is wrong, of every number"
    for size, words in _sizes(inputs).items():
        roots = (
            ()
            if math.isqrt(size) ** 2 == size
            else ((size**0.5, f"the root of {size}"), (size**-0.5, f"1 / the root of {size}"))
        )
        for power, what in ((size, f"{size}"), (1 / size, f"1/{size}"), *roots):
            if abs(c / power - 1) < 1e-6:
                return f"every number is {what} times what it should be, and {size} is {words}"
        surely = size > 8 or (a != 0).sum() > 1  # 4/3 of a single number may have other causes
        for less, more in ((size - 1, size), (size, size - 1)):
            if surely and any(abs(c / (more / less) ** power - 1) < 1e-6 for power in (0.5, 1)):
                return f"every number is {c:.6g} times what it should be, as if N - 1 and N were mixed up, where N = {size} is {words}"
    telling = any(abs(c * n / m - 1) < 1e-6 for n in (1, 2, 3, 4) for m in (1, 2, 3, 4))
    return (
        f"every number is {c:.6g} times what it should be"
        if (a != 0).sum() > 1 or telling
        else None
    )


def _moved(a: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Places that numbers may have changed, one way after another."""
    if a.ndim >= 2 and a.shape[-1] == a.shape[-2]:
        yield "the last two axes have changed places", a.mT
    for axis in range(a.ndim):
        where = f" along axis {axis}" if a.ndim > 1 else ""
        yield f"the order is reversed{where}", a.flip(axis)
        for step, word in ((1, "late"), (-1, "early")):
            yield (
                f"every number comes one place too {word}{where}, round the end",
                a.roll(step, axis),
            )


def _permuted(a: Tensor, b: Tensor) -> bool:
    """Are the rows of one those of the other, in another order?"""
    if not 2 <= len(a) <= 64:
        return False

    def rows(x):
        return x.reshape(len(x), -1)

    def alike(x, y):
        return torch.stack(
            [((rows(y) - row).abs() <= _slack(row, a)).all(1).sum() for row in rows(x)]
        )

    return bool(
        not _near(a, b)
        and torch.equal(alike(a, b), alike(a, a))
        and torch.equal(alike(b, a), alike(b, b))
    )


def _renamed(a: Tensor, b: Tensor) -> bool:
    """Are equal whole numbers at the same places, and only the numbers are others?"""
    pairs = torch.stack([a.flatten(), b.flatten()], 1).unique(dim=0)
    return len(pairs) == len(a.unique()) == len(b.unique()) and 1 < len(pairs) < a.numel()


def relation(
    expected: Tensor,
    got: Tensor,  # of the same shape
    inputs: dict,  # of the case, to name sizes
) -> str | None:
    """Say what all numbers of a wrong result have in common with the right ones; None if nothing."""
    a, b = expected.double(), got.double()
    if not a.isfinite().all() or not b.isfinite().all() or not a.numel():
        return None
    if not b.any():
        return "every number is 0"
    whole = not expected.is_floating_point() and not got.is_floating_point()
    if whole and not torch.equal(a, b) and _renamed(a, b):
        return "equal numbers stand at the right places, but the numbers themselves are others: they are given in another order"
    if found := _factor(a, b, inputs):
        return found
    if a.numel() > 2 and _near((b - a).mean().expand_as(a), b - a):
        return (
            f"every number is {(b - a).mean():.6g} too much"
            if (b - a).mean() > 0
            else f"every number is {(a - b).mean():.6g} too little"
        )
    few = len(a.unique()) < 4  # so few numbers are easily reversed or moved by accident
    for words, moved in _moved(a) if a.numel() > 2 and not few and not _near(a, b) else ():
        if moved.shape == b.shape and _near(moved, b):
            return words
    if a.ndim and a.numel() > 2 and _permuted(a, b):
        return "the rows are right, but in another order"
    for words, f in (
        ("the square of", torch.square),
        ("the root of", torch.sqrt),
        ("the power e to the", torch.exp),
        ("the logarithm of", torch.log),
        ("1 divided by", torch.reciprocal),
    ):
        if (
            f(a).isfinite().all()
            and a.abs().max() > 1e-3
            and not _near(f(a), torch.ones_like(a))
            and _near(f(a), b)
        ):
            return f"every number is {words} what it should be"
    worst = ((a - b).abs().max() / a.abs().max()).item()
    if expected.dtype == torch.float64 and worst < 2e-6:
        return "the numbers agree to about seven digits of the largest: something on the way is done in single precision, or a small constant differs"
    return None


def _named(wrong: Tensor) -> str:
    """Say which places of an axis are wrong: (n,) truth values, some true."""
    places, n = wrong.nonzero().flatten().tolist(), len(wrong)
    if places == [0] or places == [n - 1]:
        return "only the first is wrong" if places == [0] else "only the last is wrong"
    if len(places) == n - 1 and not wrong[0] or len(places) == n - 1 and not wrong[-1]:
        return "all but the first are wrong" if not wrong[0] else "all but the last are wrong"
    return f"only {', '.join(map(str, places[:6]))}{' ...' if len(places) > 6 else ''} of 0 to {n - 1} are wrong"


def _by_mask(wrong: Tensor, mask: Tensor) -> str | None:
    """Compare the wrong places with a mask (B, T) of words and pads."""
    B, T = mask.shape
    words = mask.bool()
    padded, rows = ~words.all(1), wrong.flatten(1).any(1)
    axis = next((k for k in range(1, wrong.ndim) if wrong.shape[k] == T), None)
    if axis is not None and not words.all():
        at = wrong.movedim(axis, 1).flatten(2).any(2) if wrong.ndim > 2 else wrong
        if not (at & words).any():
            return "only at the pads"
        if torch.equal(at, words):
            return "everywhere but at the pads"
    if padded.any() and torch.equal(rows, padded) and not padded.all():
        return "only sentences with padding are wrong"
    return (
        "only sentences without padding are wrong"
        if padded.any() and torch.equal(rows, ~padded) and rows.any()
        else None
    )


def place(
    wrong: Tensor,  # truth values: where a result is wrong
    inputs: dict,  # of the case, to look for masks
) -> str | None:
    """Say which part of a result is wrong; None if all of it is, or no part that has a name."""
    if wrong.all() or not wrong.ndim:
        return None
    for name, mask in inputs.items():
        if (
            isinstance(mask, Tensor)
            and mask.ndim == 2
            and not mask.is_floating_point()
            and bool(((mask == 0) | (mask == 1)).all())
            and len(mask) == len(wrong)
            and (words := _by_mask(wrong, mask))
        ):
            rows = wrong.flatten(1).any(1) if wrong.ndim > 1 else wrong
            return f"{words} (by {name})" + (
                f"; along axis 0 {_named(rows)}" if not rows.all() else ""
            )
    if wrong.ndim >= 2 and wrong.shape[-1] == wrong.shape[-2]:
        eye = torch.eye(wrong.shape[-1], dtype=torch.bool).expand_as(wrong)
        if not (wrong & ~eye).any() or torch.equal(wrong, ~eye):
            return (
                "only the diagonal is wrong"
                if not (wrong & ~eye).any()
                else "all but the diagonal is wrong"
            )
    for axis in range(wrong.ndim):
        along = wrong.movedim(axis, 0).flatten(1).any(1) if wrong.ndim > 1 else wrong
        if not along.all():
            return f"along axis {axis} {_named(along)}"
    return f"{int(wrong.sum())} of {wrong.numel()} numbers are wrong" if wrong.sum() <= 3 else None


def _wrong_names(trial: Trial, a: Outcome, b: Outcome) -> list[str]:
    """Name the outputs of a case that differ."""

    def one(o, name):
        return o._replace(outputs={name: o.outputs[name]} if name in o.outputs else {})

    return [name for name in a.outputs if compare(trial, one(a, name), one(b, name))]


def _of_outputs(trial: Trial, a: Outcome, b: Outcome, inputs: dict) -> Iterator[str]:
    """Say what is wrong within one case."""
    wrong = _wrong_names(trial, a, b)
    if not wrong:
        return  # only an output that nobody asked for
    if values := [name for name in wrong if not _is_gradient(name)]:
        yield from _only(
            a,
            values,
            [
                name
                for name in a.outputs
                if not _is_gradient(name) and not name.startswith(_BEHIND) and name not in values
            ],
        )
    else:
        yield f"wrong: the {', the '.join(wrong)}. The values themselves are right"
        if lost := [name for name in wrong if name in b.outputs and not b.outputs[name].any()]:
            yield f"{'all of them are' if lost == wrong and len(lost) > 1 else 'the ' + ', the '.join(lost) + ' is'} 0: something on the way is detached, rounded, or done under no_grad"
            return
    yield from _of_one(trial, a.outputs[wrong[0]], b.outputs.get(wrong[0]), a.way, inputs)


_BEHIND = BEHIND.format("")


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient")


def _only(expected: Outcome, wrong: list[str], right: list[str]) -> Iterator[str]:
    """Say which of several outputs are wrong, then which are right; nothing if all are wrong."""
    should = {
        name: bool(x)
        for name, x in expected.outputs.items()
        if x.dtype == torch.bool and x.numel() == 1
    }
    # what is rightly false would read as if it were true
    right = [name for name in right if should.get(name, True)]
    if right:
        failed = [
            f'"{name}"' + (f" (should be {str(should[name]).lower()})" if name in should else "")
            for name in wrong
        ]
        passed = [f'"{name}"' for name in right]
        yield f"failed: {_listed(failed)}. Passed: {_listed(passed)}"


def _listed(words: list[str]) -> str:
    """Write the first four, and how many more there are."""
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def _of_one(trial: Trial, x: Tensor, y: Tensor | None, way: str, inputs: dict) -> Iterator[str]:
    """Say what is wrong with one output: `x` was expected, `y` is there, or nothing."""
    if y is None or x.is_complex() or y.is_complex():
        return
    if x.shape != y.shape:
        yield from _of_shapes(x, y)
    elif x.is_floating_point() != y.is_floating_point() or (x.dtype == torch.bool) != (
        y.dtype == torch.bool
    ):
        if torch.equal(x.double(), y.double()):
            yield f"the numbers are right, but they are {y.dtype} and not {x.dtype}"
    elif x.dtype != torch.bool:
        yield from _of_numbers(x, y, wrong_places(trial, x, y, way), inputs)


def _unchanged(y: Tensor, inputs: dict) -> str | None:
    """Name the input that has exactly these numbers, at least three different ones."""

    def same(x):
        return (
            isinstance(x, Tensor)
            and x.shape == y.shape
            and x.is_floating_point()
            and len(y.unique()) > 2
            and torch.equal(x.double(), y.double())
        )

    return next((name for name, value in inputs.items() if any(map(same, leaves(value)))), None)


def _of_numbers(x: Tensor, y: Tensor, wrong: Tensor, inputs: dict) -> Iterator[str]:
    """Say what the wrong numbers have in common, else where they are."""
    if y.is_floating_point() and (name := _unchanged(y, inputs)):
        yield f"these are the numbers of the input {name}, unchanged"
        return
    if (
        y.is_floating_point()
        and x.isfinite().all()
        and torch.equal(wrong, ~y.isfinite())
        and not wrong.all()
    ):
        yield f"all finite numbers are right, the others are NaN or infinity: {place(wrong, inputs) or 'here and there'}"
    elif words := relation(x, y, inputs):
        yield words
        if x.dtype != y.dtype:
            yield f"the result is {y.dtype}, expected {x.dtype}"
    elif words := place(wrong, inputs):
        yield words


def _of_shapes(x: Tensor, y: Tensor) -> Iterator[str]:
    if x.ndim >= 2 and y.shape == x.mT.shape and torch.allclose(y.double(), x.mT.double()):
        yield "the numbers are right, but the last two axes have changed places"
    elif x.numel() == y.numel() and torch.allclose(
        x.double().flatten(), y.double().flatten(), equal_nan=True
    ):
        yield "the numbers are right, and in order; the shape is not"
    elif (
        y.numel()
        and x.numel() == 1
        and x.is_floating_point()
        and torch.allclose(y.double().mean(), x.double().mean())
    ):
        yield "the numbers are right one by one; their mean is missing"
    elif (
        y.numel()
        and x.numel() == 1
        and x.is_floating_point()
        and torch.allclose(y.double().sum(), x.double().sum())
    ):
        yield "the numbers are right one by one; their sum is missing"


def _same(x, y) -> bool:
    """Are two inputs the same?"""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return (
            isinstance(x, Tensor)
            and isinstance(y, Tensor)
            and x.shape == y.shape
            and torch.equal(x, y)
        )
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and all(map(_same, x, y))
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_same(x[k], y[k]) for k in x)
    return x is y or bool(torch.as_tensor(x == y).all())


def _kept(
    trial: Trial, cases: list[Case], expected: list[Outcome], got: list[Outcome], i: int
) -> str | None:
    """Are these the numbers of an earlier case?"""
    for j in range(i):
        if (
            expected[j].outputs
            and got[i].outputs
            and compare(trial, expected[i], expected[j])
            and not compare(trial, expected[j], got[i])
        ):
            a, b = (cases[k].inputs if cases else {} for k in (i, j))
            other = [name for name in {**a, **b} if not _same(a.get(name), b.get(name))]
            apart = (
                ", ".join(other) if 0 < len(other) < len({**a, **b}) else "what tells the two apart"
            )
            return f'these are the numbers of the case "{expected[j].label}": either something is kept between calls, or {apart} is not used'
    return None


def _setting(cases: list[Case], bad: list[int], good: list[int]) -> str | None:
    """Name an argument that tells all failing cases from all passing ones."""

    def value(j: int, name: str) -> str:
        x = cases[j].inputs.get(name)
        return "" if x is None else repr(x) if isinstance(x, (bool, int, float, str)) else "given"

    for name in cases[bad[0]].inputs:
        seen = {value(j, name) for j in bad}
        if (
            len(seen) == 1
            and seen.isdisjoint({"", *(value(j, name) for j in good)})
            and name != "seed"
        ):
            [only] = seen
            return f"all cases fail in which {name} is {only}, and no other case does"
    return None


def remembered(expected: list[Outcome], got: list[Outcome]) -> bool:
    """Has a call of the learner changed something that outlives it, where no call of the reference
    does?
    """

    def changes(o):
        return o.outputs is not None and bool(
            o.outputs.get(BEHIND.format(KEPT), torch.tensor(False)).any()
        )

    return any(map(changes, got)) and not any(map(changes, expected))


def diagnose(
    trial: Trial,
    cases: list[Case],  # [] if the inputs are not at hand
    expected: list[Outcome],  # of the reference
    got: list[Outcome],  # of the learner, as many
    failing: list[int],  # numbers of the cases that differ, in order; some
) -> str | None:  # for the learner
    """Tell a wrong program apart without knowing it. Every sentence is true of its numbers."""
    i, plain = failing[0], [j for j, o in enumerate(expected) if o.way != AGAIN]
    found = []
    if expected[i].way == AGAIN:
        found.append(
            "right at the first call, wrong at the second, with other numbers in between: something is kept between calls"
        )
    elif kept := _kept(trial, cases, expected, got, i):
        found.append(kept)
    elif got[i].outputs is not None and expected[i].outputs is not None:
        found += _of_outputs(trial, expected[i], got[i], cases[i].inputs if cases else {})
    if expected[i].way != AGAIN and remembered(expected, got[: i + 1]):
        found.append(
            "a call changes something that the next call finds again: a default argument, an attribute of the function or of its class, or a name outside"
        )
    bad = [j for j in failing if j in plain]
    if bad and 2 * len(bad) <= len(plain):
        labels = ", ".join(f'"{expected[j].label}"' for j in bad[:4])
        right = len(plain) - len(bad)
        more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
        found.append(
            f"{len(bad)} of {len(plain)} cases {'fails' if len(bad) == 1 else 'fail'}: {labels}{more}. The other {'one passes' if right == 1 else f'{right} pass'}"
        )
        found += (
            [words]
            if cases
            and len(bad) > 1
            and (words := _setting(cases, bad, [j for j in plain if j not in bad]))
            else []
        )
    return ". ".join(text[0].upper() + text[1:] for text in found) + "." if found else None
