"""Penalties beside the losses of several tasks: the clean forward pass that they share, its random
state, and the sum of loss and penalties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from .core.finite_checks import check_finite
from .core.penalty_state import SavesParts
from .data import TaskBatch
from .heads import MultitaskBert
from .smoothness import output_distance, symmetric_kl

__all__ = [
    "Clean",
    "RegularizedLoss",
    "clean_pass",
    "output_distance",
    "random_state",
    "regularized_loss",
    "replay",
    "symmetric_kl",
]


def random_state(device: torch.device) -> dict[str, Tensor]:  # of the model -> state by device
    """Return the state of torch's global generators, from which dropout draws."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cpu":
        return state
    return {**state, str(device): torch.cuda.get_rng_state(device)}


@contextmanager
def replay(states: dict[str, Tensor]) -> Iterator[None]:  # of `random_state`
    """Repeat the dropout masks inside the block; afterwards restore the state as it was before."""
    with torch.random.fork_rng([name for name in states if name != "cpu"]):
        for name, state in states.items():
            if name == "cpu":
                torch.set_rng_state(state)
            else:
                torch.cuda.set_rng_state(state, name)
        yield


class Clean(NamedTuple):
    """The clean forward pass of one task, computed once and shared by all penalties."""

    vectors: tuple[Tensor, ...]  # (B, D) each, one or two, with graph
    outputs: Tensor  # (B,) or (B, C) of the head, with graph
    random_state: dict[str, Tensor]  # state of torch's global generators before this pass
    head_random_state: dict[str, Tensor]  # the same between encoder and head


def clean_pass(
    model: MultitaskBert,
    task: str,
    part: TaskBatch,  # its labels are not used
) -> Clean:
    """Run the clean forward pass of one task, and keep what penalties need of it."""
    model.head(task, part.second is not None)
    before = random_state(model.encoder.device)
    vectors = model.vectors(part.first, part.second)
    between = random_state(model.encoder.device)
    return Clean(vectors, model.score(task, *vectors), before, between)


class RegularizedLoss(SavesParts):
    """Add penalties to the losses of `multitask_loss`: a `loss_fn` for `training.steps`.

    L_t = batch weight * weight_t * (mean loss of task t + sum of the penalties of task t)
    The weight of a task scales its penalties together with its loss, so that the ratio of the two,
    and with it the meaning of a penalty's own weight, is the same for every task weight.
    A penalty with `begin(model)` is told when a step begins. After a call, `last` holds for each
    task the mean loss and every penalty, unweighted by task or batch.
    """

    def __init__(
        self,
        *penalties: Callable,  # (model, task, part, clean) -> (), times its own weight
        weights: dict[str, float] | None = None,  # factor of each task's loss and penalties
    ):
        self.penalties, self.weights = penalties, weights or {}
        self.last: dict[str, tuple[Tensor, ...]] = {}

    def __call__(
        self,
        model: MultitaskBert,  # or a wrapper that keeps it in `.module`; it is not called
        batch: dict[str, TaskBatch],  # task -> its batch of this step
    ) -> dict[str, Tensor]:  # task -> () float32 or wider
        """Compute the loss of each task; ValueError as `multitask_loss`, or for a penalty that is
        not finite.
        """
        owner, self.last = getattr(model, "module", model), {}
        for task in self.weights:
            owner.head(task)
        for penalty in self.penalties:
            if hasattr(penalty, "begin"):
                penalty.begin(owner)
        return {task: self._task_loss(owner, task, part) for task, part in batch.items()}

    def _task_loss(self, model, task, part):
        if part.labels is None:
            raise ValueError(f"expected labels for task {task!r}, got none: a test split?")
        clean = clean_pass(model, task, part)
        loss = model.head(task).loss(clean.outputs, part.labels)
        terms = [check_finite(loss, f"loss of {task}")]
        for penalty in self.penalties:
            name = type(penalty).__name__
            terms.append(check_finite(penalty(model, task, part, clean), f"{name} of {task}"))
        self.last[task] = tuple(x.detach() for x in terms)
        return sum(terms[1:], terms[0]) * part.weight * self.weights.get(task, 1.0)


regularized_loss = RegularizedLoss  # reads like multitask_loss where it is used
