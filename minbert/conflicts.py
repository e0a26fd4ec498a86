"""Measured gradient conflicts, and GradVac as a `backward` for training: what chapter 25 uses beside PCGrad.

`conflict_summary` counts the conflicts in the records of a run, `draw_conflicts` draws them, and
`GradVac` keeps one target cosine for each pair of tasks. Its step is `vaccine_weights` of chapter 25.
"""

__all__ = ["PairConflict", "conflict_summary", "draw_conflicts", "vaccine_weights", "GradVac"]

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .core.rng_state import SavesTargets
from .core.task_gradients import Surgery
from .pcgrad import PCGrad, vaccine_weights


def _cosines(records):
    """Line up the cosines of each pair over all records; NaN where there is none."""
    records = list(records)
    pairs = sorted({pair for record in records for pair in record.cosines})
    return {
        pair: torch.tensor(
            [record.cosines.get(pair, math.nan) for record in records], dtype=torch.float64
        )
        for pair in pairs
    }


class PairConflict(NamedTuple):
    """How often and how strongly the gradients of two tasks conflict."""

    steps: int  # in which both had a gradient
    share: float  # of these steps in conflict, 0 to 1
    cosine: float  # mean over these steps
    conflict: float  # mean over the steps in conflict; NaN without any


def conflict_summary(
    records: Iterable[Surgery],  # `PCGrad.records`, or a part of it
) -> dict[tuple[str, str], PairConflict]:  # pair of tasks, in alphabetical order
    """Count for each pair of tasks how often and how strongly their gradients conflict.

    A step counts for a pair only if both had a gradient: the pair is there, and not NaN.
    """
    summary = {}
    for pair, cosines in _cosines(records).items():
        cosines = cosines[~cosines.isnan()]
        below = cosines[cosines < 0]
        share = (cosines < 0).double().mean().item()
        summary[pair] = PairConflict(
            len(cosines), share, cosines.mean().item(), below.mean().item()
        )
    return summary


def draw_conflicts(
    records: Iterable[Surgery],  # `PCGrad.records`, or a part of it
    window: int = 10,  # calls in a mean
    ax=None,  # Axes or None
):  # Axes; one line a pair of tasks
    """Draw the cosine of each pair of tasks over training, as a moving mean.

    Raises ValueError if there are fewer records than the window is long.
    """
    from .core.figures import curves

    records = list(records)
    if not 1 <= window <= len(records):
        raise ValueError(f"expected a window of 1 to {len(records)} records, got {window}")
    lines = {}
    for pair, cosines in _cosines(records).items():
        means = cosines.unfold(0, window, 1).nanmean(1)
        lines[" and ".join(pair)] = (range(window, len(records) + 1), means)
    label = f"cosine of the gradients,\nmean of {window} step{'s' * (window > 1)}"
    ax = curves(lines, "step", label, ax)
    ax.axhline(0, color="black", linewidth=0.8)
    return ax


class GradVac(SavesTargets, PCGrad):
    """Raise the cosine of two gradients to the mean that this pair of tasks has had so far.

    Paper: Wang et al. (2021), algorithm 1. Everything else is as in PCGrad.
    Raises ValueError for a beta outside [0, 1], an unknown update or another reduction.
    """

    def __init__(
        self,
        parameters: nn.Module | Iterable[Tensor],  # the model, or its parameters
        beta: float = 0.01,  # share of the newest cosine in the next target
        # or "violations": only targets that were missed move, as in the fork that Dao, Mehta and
        # Tian used
        update: str = "all",
        seed: int = 11711,  # of the orders, the same on every process; course default
        reduction: str = "sum",  # or "mean" over tasks, for shared weights
        accelerator=None,  # accelerate.Accelerator, to share the work among processes
    ):
        if not 0 <= beta <= 1 or update not in ("all", "violations"):
            raise ValueError(
                "expected beta in [0, 1] and update 'all' or 'violations', "
                f"got {beta} and {update!r}"
            )
        super().__init__(parameters, seed, reduction, accelerator)
        self.beta, self.update = beta, update
        # task -> other task -> wanted cosine
        self.targets: dict[str, dict[str, float]] = defaultdict(dict)

    def weigh(self, gram: Tensor, tasks: tuple[str, ...]) -> Tensor:  # (T, T) -> (T,), float64
        """Choose the step, as a combination of the gradients, and move the targets."""
        targets = torch.zeros(len(tasks), len(tasks), dtype=torch.float64)
        for i, a in enumerate(tasks):
            for j, b in enumerate(tasks):
                targets[i, j] = self.targets[a].get(b, 0.0)
        weights, moved = vaccine_weights(gram, targets, self.beta, self.update, self.generator)
        for i, a in enumerate(tasks):
            for j, b in enumerate(tasks):
                if i != j:
                    self.targets[a][b] = moved[i, j].item()
        return weights
