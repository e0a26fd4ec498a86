"""Comparing the results of two programs: shape, kind and values up to rounding, and the side
effects of their calls.

The dtype of the reference decides the tolerance: one part in a million in double precision, one in
ten thousand in single precision, one in a thousand under autocast, and none in half precision,
whose results are computed in single precision and rounded once.
"""

__all__ = [
    "Difference",
    "tolerance",
    "wrong_places",
    "compare",
    "compare_draws",
]

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .check_runner import AUTOCAST, Outcome, Trial
from .side_effects import BEHIND, BESIDE, DRAW, DTYPES, behind, dtype_problem


class Difference(NamedTuple):
    """The first disagreement between an implementation and the reference."""

    label: str  # of the case
    output: str  # which result, "" for an error
    problem: str  # one line
    expected: Tensor | None = None
    got: Tensor | None = None
    largest: float = math.nan
    place: tuple[int, ...] = ()  # of the largest difference


def _kind(x: Tensor) -> str:
    return (
        "a truth value"
        if x.dtype == torch.bool
        else "a complex number"
        if x.is_complex()
        else "a fraction"
        if x.is_floating_point()
        else "a whole number"
    )


def tolerance(
    trial: Trial,
    expected: Tensor,
    way: str = "",  # of the case
) -> tuple[float, float]:  # relative, absolute
    """Say how far a result may lie from the expected one, which is no more exact than its dtype."""
    if way == AUTOCAST:
        return max(trial.rtol, 1e-3), max(trial.atol, 1e-4)
    if expected.dtype == torch.float64:
        return trial.rtol, trial.atol
    return max(trial.rtol, 1e-4), max(trial.atol, 1e-5)


def wrong_places(
    trial: Trial,
    expected: Tensor,
    got: Tensor,  # of the same shape
    way: str = "",  # of the case
) -> Tensor:  # truth values
    """Mark the numbers that are beyond the tolerance."""
    rtol, atol = tolerance(trial, expected, way)
    a, b = expected.to(torch.float64), got.to(torch.float64)
    both = (a == b) | (a.isnan() & b.isnan())
    return ~(both | (a.isfinite() & ((a - b).abs() <= atol + rtol * a.abs())))


def _far(trial, expected, got, way):
    """None, or the place of the largest difference beyond the tolerance."""
    if expected.dtype == got.dtype and torch.equal(expected, got):
        # most of what is compared: one look instead of ten operations
        return None, 0.0
    wrong = wrong_places(trial, expected, got, way)
    if not wrong.any():
        return None, 0.0
    gap = torch.where(
        wrong, torch.nan_to_num((expected.double() - got.double()).abs(), nan=math.inf), -1.0
    )
    # torch's imports SymPy
    place = np.unravel_index(int(gap.argmax()), gap.shape) if gap.ndim else ()
    return tuple(int(i) for i in place), float(gap.max())


def compare(
    trial: Trial,
    expected: Outcome,
    got: Outcome,
) -> Difference | None:  # None: they agree
    """Find the first output of a case that disagrees; what the calls left behind comes last."""
    if got.outputs is None or expected.outputs is None:
        same = got.error == expected.error
        return (
            None
            if same
            else Difference(got.label, "", got.error or f"expected {expected.error}, got no error")
        )
    for name, b in got.outputs.items():
        if name not in expected.outputs and not name.startswith(_BEHIND):
            return Difference(
                got.label,
                name,
                "your code changed its input"
                if name.startswith("input ")
                else "an output that nobody asked for",
                None,
                b,
            )
    # a draw that goes astray spoils all numbers
    for name, a in sorted(
        expected.outputs.items(), key=lambda pair: pair[0] != BEHIND.format(BESIDE)
    ):
        if (found := _compare_one(trial, expected, name, a, got.outputs.get(name))) is not None:
            return found
    return None


_BEHIND = BEHIND.format("")


def _compare_one(trial, expected, name, a, b):
    label, way = expected.label, expected.way
    if name == BEHIND.format(DRAW):
        return None  # see `compare_draws`
    if name == BEHIND.format(DTYPES):
        problem = dtype_problem(trial.promise, a, b) if trial.promise and b is not None else None
        return Difference(label, name, problem) if problem else None
    if name.startswith(_BEHIND):
        problem = behind(name.removeprefix(_BEHIND), a, b) if b is not None else None
        return Difference(label, name, problem) if problem else None
    if b is None:
        return Difference(
            label,
            name,
            "your code left it as it was" if name.startswith("input ") else "missing",
            a,
        )
    if a.shape != b.shape:
        return Difference(
            label, name, f"expected shape {tuple(a.shape)}, got {tuple(b.shape)}", a, b
        )
    if _kind(a) != _kind(b):
        return Difference(
            label, name, f"expected {_kind(a)} ({a.dtype}), got {_kind(b)} ({b.dtype})", a, b
        )
    place, largest = _far(trial, a, b, way)
    if place is None:
        return None
    strange = (
        " (NaN or infinity)"
        if b.is_floating_point() and not b.isfinite().all() and a.isfinite().all()
        else ""
    )
    return Difference(
        label,
        name,
        f"largest difference {largest:.3g}{strange}" + (f" at {list(place)}" if place else ""),
        a,
        b,
        largest,
        place,
    )


def compare_draws(
    expected: list[Outcome],
    got: list[Outcome],
) -> Difference | None:  # None: they agree
    """Compare whether torch's global generator was used in any case at all."""
    name = BEHIND.format(DRAW)

    def used(outcomes):
        return [o.outputs[name].any() for o in outcomes if o.outputs and name in o.outputs]

    ours, theirs = used(expected), used(got)
    problem = (
        behind(DRAW, torch.stack(ours).any(), torch.stack(theirs).any())
        if ours and theirs
        else None
    )
    return Difference("all of them", name, problem) if problem else None
