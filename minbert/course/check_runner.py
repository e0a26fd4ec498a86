"""Running an exercise's cases: an implementation is called on fresh seeded inputs, and its outputs,
gradients and side effects are collected.

Torch is set as in a new process for each run, so that the settings of a session do not change the
result. Some cases are repeated at the end after a call with other numbers of the same shapes, which
shows what a function keeps between calls. Dropout is replaced by a fixed pattern that differs from
place to place (`probed`), so that dropout in the wrong place shows in the numbers. Known mistakes
are found by the values they give, not by their text.
"""

__all__ = [
    "AGAIN",
    "AUTOCAST",
    "REFUSAL",
    "DERIVED",
    "ALIKE",
    "SQUARE",
    "ROWS",
    "COLUMNS",
    "SMALL",
    "CHANGED",
    "NOTHING",
    "Case",
    "NamedMistake",
    "Trial",
    "mistake",
    "Outcome",
    "default_torch_state",
    "run_case",
    "repeated",
    "make_cases",
    "new_generator",
    "run_all",
    "probe",
    "probed",
    "with_gradients",
    "halves",
    "autocast",
    "fixed",
    "fill",
    "Descent",
    "isolate_exercise",
]

import copy
import math
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from .call_recording import CallRecording, stand_in
from .side_effects import (
    SideEffectRecorder,
    changed_tensors,
    leaves,
    seeded,
    spare_the_compiler,
    watched,
)


class Case(NamedTuple):
    """One set of inputs."""

    label: str  # what is special about it, such as "one token"
    inputs: dict[str, Any]  # tensors, numbers, strings, None, and lists or dicts of them
    way: str = ""  # how to call: plainly, or one of the three below


# after a call with other numbers; under torch.autocast to bfloat16; with wrong input
AGAIN, AUTOCAST, REFUSAL = "again", "autocast", "refusal"


DERIVED = ALIKE, SQUARE, ROWS, COLUMNS, SMALL = (
    "all sizes alike",
    "as many tokens as dimensions",
    "forty rows",
    "forty columns",
    "a thousandth of the numbers",
)


class NamedMistake(NamedTuple):
    """A wrong program: the reference with something changed."""

    # (old, new), each found exactly once in the reference of the target
    changes: tuple[tuple[str, str], ...]
    says: str  # the sentence a learner reads


class Trial(NamedTuple):
    """How to tell a right implementation from a wrong one."""

    cases: Callable[[torch.Generator], list[Case]]
    # (implementation, inputs of a case) -> what to compare
    run: Callable[[Any, dict], dict[str, Tensor]]
    # from a nudge to nearly the answer; the first is shown by a failing check
    hints: tuple[str, ...]
    subject: str = ""  # one of the twelve that need eight mistakes, or ""
    rtol: float = 1e-6  # of float64 results; float32 gets at least 1e-4
    atol: float = 1e-8  # of float64 results; float32 gets at least 1e-5
    forbidden: tuple[str, ...] = ()  # short-cuts that a grader flags, such as "torch.optim.AdamW"
    # statistics: the run is repeated by the judge on what the calls gave back
    replay: bool = False
    again: bool = True  # try some cases once more, after a call with other numbers
    # dtype of the results: "as the reference", "float32 or wider", or "" for none
    promise: str = ""
    derive: tuple[str, ...] = DERIVED  # which cases are made from the others, see `new_generator`


def mistake(
    *texts: str,  # old, new, old, new, ..., and last the sentence
) -> NamedMistake:
    """Write a mistake as edits and a sentence. Raises ValueError for an old text without a new one."""
    *edits, says = texts
    if not edits or len(edits) % 2:
        raise ValueError(f"expected pairs of old and new and one sentence, got {len(texts)} texts")
    return NamedMistake(tuple(zip(edits[::2], edits[1::2])), says)


class Outcome(NamedTuple):
    """What an implementation made of one case."""

    label: str  # of the case
    outputs: dict[str, Tensor] | None  # None if it failed
    error: str | None = None  # such as "RuntimeError: shapes do not fit"
    where: str | None = None  # the line of the implementation that failed
    way: str = ""  # of the case


CHANGED = "input {} afterwards"
NOTHING = "; your code gave back None"


@contextmanager
def default_torch_state(autocast: bool = False) -> Iterator[None]:  # on the CPU, to bfloat16
    """Run a block with torch as a new process has it, whatever a session has set; what it had set
    comes back.

    "bf16" is bfloat16 in it on every processor, also on one that is slow at that and would compute
    in float32.
    """
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", torch.bfloat16, autocast),
            patch("minbert.core.devices.imitates_bf16", return_value=False),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)


def _tensors(inputs: dict) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}


_OURS = tuple(
    f"{os.path.dirname(os.path.abspath(module.__file__))}{os.sep}"
    for module in (os, torch, sys.modules["minbert"])
)


def _last_line(error: BaseException) -> str | None:
    """Quote the last line of the traceback that lies outside of torch, minbert, and what is
    installed.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if (
            frame.line
            and not frame.filename.startswith(_OURS)
            and "site-packages" not in frame.filename
        ):
            return f"line {frame.lineno}: {frame.line}"
    return None


def run_case(
    trial: Trial,
    implementation,  # function or class
    case: Case,
    seed: int = 0,  # of the global generators of torch, NumPy and Python
    method: str = "",  # name of the method to watch; "" for a function
) -> Outcome:
    """Run an implementation on one case. Errors are results; only what is no Exception passes
    through.
    """
    tape = CallRecording() if trial.replay and case.way != REFUSAL else None
    witness = SideEffectRecorder(tape)
    seen = watched(implementation, method, witness, case.way == AGAIN)
    spare_the_compiler()
    with seeded(seed + (case.way == AGAIN)), default_torch_state(case.way == AUTOCAST):
        inputs = copy.deepcopy(case.inputs)
        handed = dict(inputs)  # a run may take something out of `inputs`
        try:
            outputs = trial.run(seen, inputs)
            outputs = (
                tape.tensors
                if tape
                else {name: _as_tensor(value) for name, value in outputs.items()}
            )
        except Exception as error:
            nothing = NOTHING if witness.none and "NoneType" in str(error) else ""
            return Outcome(
                case.label,
                None,
                f"{type(error).__name__}: {error}{nothing}",
                _last_line(error),
                case.way,
            )
    changed = {CHANGED.format(name): value for name, value in _changes(case.inputs, handed)}
    return Outcome(case.label, {**outputs, **changed, **witness.outputs()}, way=case.way)


def _as_tensor(value) -> Tensor:
    """A Python number keeps all its digits."""
    return (
        torch.tensor(value, dtype=torch.float64)
        if isinstance(value, float)
        else torch.as_tensor(value).detach()
    )


def _changes(old, new, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Give name and value of what is another than before, in lists and dicts too; of what is no
    tensor, a mere True.
    """
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        if not _same_bits(old, new):
            yield name, new.detach()
    elif isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _changes(old[key], new[key], f"{name}[{key!r}]" if name else key)
    elif isinstance(old, (list, tuple)) and type(old) is type(new) and len(old) == len(new):
        for i, pair in enumerate(zip(old, new)):
            yield from _changes(*pair, f"{name}[{i}]")
    elif isinstance(old, (Tensor, dict, list, tuple)) or (old is not new and old != new):
        yield name, torch.tensor(True)


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))
    )


def repeated(
    trial: Trial,
    implementation,  # the reference
    case: Case,
    outcome: Outcome,  # of any implementation
    seed: int = 0,
    method: str = "",
    largest: int = 10**7,  # numbers on the tape
) -> Outcome:
    """Repeat the run on what the calls gave back, where a trial asks for statistics; else the
    outcome as it is.
    """
    if not trial.replay or case.way == REFUSAL or outcome.outputs is None:
        return outcome
    tape = {name: x for name, x in outcome.outputs.items() if name.startswith("call ")}
    rest = {name: x for name, x in outcome.outputs.items() if name not in tape}
    if sum(x.numel() for x in tape.values()) > largest:
        return outcome._replace(
            outputs=None, error=f"ValueError: expected at most {largest} numbers"
        )
    found = run_case(
        trial._replace(replay=False),
        stand_in(implementation, method, tape),
        case._replace(way=""),
        seed + (case.way == AGAIN),
        method,
    )
    if found.outputs is None:
        return outcome._replace(outputs=None, error=found.error)
    own = {name: x for name, x in found.outputs.items() if not name.startswith("left behind")}
    return outcome._replace(outputs={**own, **rest})


def make_cases(trial: Trial, seed: int) -> list[Case]:
    """Draw all cases; the first two and the largest come once more, to be tried after a call with
    other numbers.
    """
    with default_torch_state():
        cases = trial.cases(torch.Generator().manual_seed(seed))
    plain = [i for i, case in enumerate(cases) if not case.way]

    def size(i):
        return sum(x.numel() for x in _tensors(cases[i].inputs).values())

    chosen = sorted({*plain[:2], *sorted(plain, key=size)[-1:]}) if trial.again else []
    return cases + [
        cases[i]._replace(label=f"{cases[i].label}, {AGAIN}", way=AGAIN) for i in chosen
    ]


def new_generator(
    case: Case,
    way: str,  # one of DERIVED
) -> Case | None:  # None: it would be the same
    """Make another case of one: sizes that are alike, where rows and columns can be confused, long
    ones, and small numbers.

    Nobody knows whether an exercise allows it: see `exercises.cases`, which asks the reference.
    """
    tensors = [x for x in leaves(case.inputs) if isinstance(x, Tensor) and x.ndim]
    sizes = {size for x in tensors for size in x.shape}
    change = {
        SQUARE: _squared(tensors),
        ALIKE: _cropped(min((size for size in sizes if size > 1), default=1)),
        SMALL: _smaller,
        ROWS: _tiled(tensors, 0),
        COLUMNS: _tiled(tensors, 1),
    }[way]
    inputs = changed_tensors(change, case.inputs)
    same = all(
        a.shape == b.shape and torch.equal(a, b)
        for a, b in zip(tensors, (x for x in leaves(inputs) if isinstance(x, Tensor) and x.ndim))
    )
    return None if same else case._replace(label=f"{case.label}, {way}", inputs=inputs)


def _cropped(size: int) -> Callable[[Tensor], Tensor]:
    """Make a function that cuts every axis to so many places."""
    return lambda x: x[tuple(slice(0, size) for _ in x.shape)].clone()


def _squared(tensors: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Make a function that brings the axis of tokens to the size of the last axis, (B, T, D) to (B,
    D, D), and a mask (B, T) along.
    """
    first = next((x for x in tensors if x.is_floating_point() and x.ndim == 3), None)
    if first is None or first.shape[1] > first.shape[2]:
        return lambda x: x.clone()
    long, size = _tiled(tensors, 1, first.shape[2]), first.shape[2]
    return lambda x: long(x)[:, :size] if x.ndim > 1 and x.shape[1] == first.shape[1] else x.clone()


def _smaller(x: Tensor) -> Tensor:
    """Make fractions smaller; whole numbers, which may be labels or a mask, stay."""
    return x * 1e-3 if x.is_floating_point() and not torch.equal(x, x.round()) else x.clone()


def _tiled(tensors: list[Tensor], axis: int, least: int = 40) -> Callable[[Tensor], Tensor]:
    """Make a function that repeats an axis up to so many places, of all tensors that have the size
    of the first one; fractions differ from copy to copy.
    """
    size = next((x.shape[axis] for x in tensors if x.ndim > axis), 0)

    def tile(x: Tensor) -> Tensor:
        if not size or x.ndim <= axis or x.shape[axis] != size or size > 20:
            return x.clone()
        times = [-(-least // size) if k == axis else 1 for k in range(x.ndim)]
        long = x.repeat(times)
        return (
            long * probe(long, 0.2)
            if x.is_floating_point() and not torch.equal(x, x.round())
            else long
        )

    return tile


def run_all(
    trial: Trial,
    implementation,  # function or class
    seed: int = 11711,  # of the cases; another seed draws other inputs
    method: str = "",  # name of the method to watch; "" for a function
) -> list[Outcome]:
    """Run an implementation on all cases."""
    return [run_case(trial, implementation, case, seed, method) for case in make_cases(trial, seed)]


def probe(
    x: Tensor,  # any shape
    strength: float = 0.5,
) -> Tensor:  # the same shape: different numbers around 1
    """A fixed pattern that no two neighbours share."""
    steps = torch.arange(x.numel(), dtype=torch.float64, device=x.device).view(x.shape)
    return (1 + strength * torch.sin(1.7 * steps + 0.3)).to(x.dtype)


def _dropout(input, p=0.5, training=True, inplace=False):
    if not training:
        return input
    return input.mul_(probe(input, p)) if inplace else input * probe(input, p)


def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """What the fused kernel computes, with the probe on the map."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype):
        raise RuntimeError(
            f"expected attn_mask.dtype to be bool or that of the query, {query.dtype}, got {attn_mask.dtype}"
        )
    if attn_mask is not None:
        scores = (
            scores.masked_fill(~attn_mask, -math.inf)
            if attn_mask.dtype == torch.bool
            else scores + attn_mask
        )
    return _dropout(scores.softmax(-1), dropout_p, dropout_p > 0) @ value


@contextmanager
def probed() -> Iterator[None]:
    """Put the probe in place of dropout, in whichever of torch's ways it is called."""
    with ExitStack() as stack:

        def torchs(input, p, train):
            return _dropout(input, p, train)  # the same by another name

        for holder, stand_in in ((F, _dropout), (torch, torchs)):
            stack.enter_context(patch.object(holder, "dropout", stand_in))
        stack.enter_context(patch.object(F, "scaled_dot_product_attention", _attention))
        yield


def with_gradients(
    f: Callable[..., Tensor],  # what to call
    inputs: dict[str, Any],  # its arguments; those named below must be float tensors
    *names: str,  # of the inputs to differentiate by
) -> dict[str, Tensor]:  # "output", and "gradient of <name>" for each
    """Call a function and pull its result back by weights that differ from place to place.

    A plain sum would miss much: the shares of a softmax add up to 1 whatever they are. Raises
    TypeError for what is no tensor.
    """
    plain = f(**inputs)  # sees the inputs themselves, so that writing into them shows
    leaves = {name: inputs[name].detach().clone().requires_grad_() for name in names}
    out = f(**{**inputs, **leaves})
    if not isinstance(out, Tensor):
        raise TypeError(f"expected a tensor back, got {type(out).__name__}")
    if not out.requires_grad:
        return {"output": plain} | {
            f"gradient of {name}": torch.zeros_like(leaf) for name, leaf in leaves.items()
        }
    found = torch.autograd.grad((out * probe(out)).sum(), list(leaves.values()), allow_unused=True)
    return {"output": plain} | {
        f"gradient of {name}": torch.zeros_like(leaf) if g is None else g
        for (name, leaf), g in zip(leaves.items(), found)
    }


def halves(
    case: Case,
    *names: str,  # of the float tensors among its inputs
) -> list[Case]:  # the same in bfloat16 and in float16
    """Give a case in half precision. What the reference then returns in float32 has to be right to
    float32's digits.
    """
    return [
        case._replace(
            label=f"{case.label}, {str(dtype).removeprefix('torch.')}",
            inputs=case.inputs | {n: case.inputs[n].to(dtype) for n in names},
        )
        for dtype in (torch.bfloat16, torch.float16)
    ]


def autocast(
    case: Case,
    *names: str,  # of the float tensors among its inputs
) -> Case:  # the same in single precision, under torch.autocast to bfloat16
    """Give a case as a training loop with mixed precision would call it."""
    return case._replace(
        label=f"{case.label}, under autocast",
        inputs=case.inputs | {n: case.inputs[n].float() for n in names},
        way=AUTOCAST,
    )


def fixed(
    generator: torch.Generator,
    *shape: int,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Draw standard normal numbers, in double precision if nothing else is said."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def fill(
    module: torch.nn.Module,
    seed: int = 0,
) -> torch.nn.Module:  # the same, in double precision
    """Give every weight of a module a number that depends on its name and place alone."""
    for name, weight in module.double().named_parameters():
        start = torch.Generator().manual_seed(seed + sum(map(ord, name)) * 1000 + weight.numel())
        with torch.no_grad():
            weight.copy_(
                torch.randn(weight.shape, generator=start, dtype=torch.float64)
                / max(weight.shape[-1], 1) ** 0.5
                + (1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0)
            )
    return module


class Descent(torch.optim.Optimizer):
    """Gradient descent with momentum, for trials that need any optimizer; a step of torch's own
    would import its compiler first, which takes seconds.
    """

    def __init__(self, params, lr: float = 0.1, momentum: float = 0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                kept = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.sub_(kept.mul_(group["momentum"]).add_(p.grad), alpha=group["lr"])


def _rebind(function, others: dict):
    """Give a function whose global names are the reference's where `others` has one, under its
    decorators too.
    """
    if not isinstance(function, types.FunctionType):
        return function
    cells = function.__closure__
    # a decorator keeps the function itself in a cell
    if cells and hasattr(function, "__wrapped__"):
        cells = tuple(
            types.CellType(_rebind(c.cell_contents, others))
            if isinstance(c.cell_contents, types.FunctionType)
            else c
            for c in cells
        )
    made = types.FunctionType(
        function.__code__,
        {**function.__globals__, **others},
        function.__name__,
        function.__defaults__,
        cells,
    )
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, dict(function.__dict__)
    return made


def isolate_exercise(
    implementation,  # function, or class that holds the method
    target: str,  # "function" or "Class.method"
    reference,  # our module
    others: Iterable[str],  # targets of the other exercises of that module
):  # the same, with the reference in the place of the others
    """Put the reference in the place of every exercise but one."""
    head = target.partition(".")[0]
    names = {o.partition(".")[0] for o in others if "." not in o}
    table = {name: getattr(reference, name) for name in names - {head}}
    if not isinstance(implementation, type):
        return _rebind(implementation, table)
    same = [o.partition(".")[2] for o in others if o.startswith(head + ".") and o != target]
    swapped = {name: vars(getattr(reference, head))[name] for name in same}
    bases = {kind.__name__ for kind in implementation.__mro__[1:]}
    inherited = {
        name: vars(getattr(reference, kind))[name]
        for kind, _, name in (o.partition(".") for o in others)
        if kind in bases and name not in vars(implementation)
    }
    own = {
        name: _rebind(value, table)
        for name, value in vars(implementation).items()
        if isinstance(value, types.FunctionType)
    }
    return type(implementation.__name__, (implementation,), inherited | own | swapped)
