"""Gradients of several tasks: one backward pass for each task, and one row for each in a flat
buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .devices import to_device
from .finite_checks import NotFinite

__all__ = ["TaskRows", "Surgery", "gram_matrix", "check_gradients", "check_reduction"]


def check_reduction(reduction: str) -> None:
    """Raise ValueError for another reduction than "sum" and "mean"."""
    if reduction not in ("sum", "mean"):
        raise ValueError(f"expected reduction 'sum' or 'mean', got {reduction!r}")


def _check_squares(squares: Tensor, tasks: Sequence) -> None:
    """Raise NotFinite for the first task whose squared length is not finite.

    nan < 0 is false, so that no later test would notice it.
    """
    for task, square in zip(tasks, squares.tolist()):
        if not math.isfinite(square):
            raise NotFinite(
                f"expected a finite gradient of task {task!r}, got squared length {square} "
                "(float32 holds squares of lengths up to 1.8e19)"
            )


def _wide(grads):
    return grads.to(torch.promote_types(grads.dtype, torch.float32))


def check_gradients(grads: Tensor) -> None:  # (T, P) float
    """Raise ValueError for gradients of another shape or dtype, and NotFinite, a ValueError, for a
    gradient that is not finite, or its square.
    """
    if grads.ndim != 2 or not len(grads) or not grads.is_floating_point():
        raise ValueError(f"expected (T, P) float gradients, got {tuple(grads.shape)} {grads.dtype}")
    _check_squares(_wide(grads.detach()).square().sum(1), range(len(grads)))


def gram_matrix(
    pieces: Iterable[Tensor],  # (T, p) each, stretches of the gradients; half precision is widened
) -> Tensor:  # (T, T), float32 or wider; () without pieces
    """Add up the inner products of the gradients."""
    products = ((wide @ wide.T) for wide in map(_wide, pieces))
    return sum(products, torch.tensor(0.0))


class Surgery(NamedTuple):
    """What one call of PCGrad or GradVac saw and did, on the weights that two tasks or more share."""

    tasks: tuple[str, ...]  # in the order of the losses
    lengths: tuple[float, ...]  # of each task's gradient, before
    cosines: dict[tuple[str, str], float]  # pair -> cosine before; NaN where a gradient is zero
    weights: tuple[float, ...]  # times which each gradient went into the step

    @classmethod
    def from_gram(cls, tasks: Sequence[str], gram: Tensor, weights: Tensor) -> Surgery:
        """Read lengths and cosines off the inner products (T, T)."""
        lengths = gram.diagonal().clamp(min=0).sqrt()
        cosines = (gram / lengths / lengths[:, None]).clamp(-1, 1).tolist()
        pairs = {}
        for i, j in combinations(range(len(tasks)), 2):
            first, second = sorted((tasks[i], tasks[j]))
            pairs[first, second] = cosines[i][j]
        return cls(tuple(tasks), tuple(lengths.tolist()), pairs, tuple(weights.tolist()))


class TaskRows:
    """The gradients of several tasks on the same parameters, (T, P).

    `fill` runs the backwards, `shared` gives the stretches that two tasks or more use, `mix` puts a
    combination of these into row 0, and `hand_out` leaves views of the rows in `.grad`, added to
    what was there: the next `fill` writes over them. Weights that one task alone uses get its plain
    gradient; weights that none uses keep `.grad` as it was. With many processes each row is
    averaged first.
    """

    def __init__(
        self,
        parameters: nn.Module | Iterable[Tensor],  # a model, or its parameters
        # accelerate.Accelerator, to share the work among processes
        accelerator=None,
    ):
        found = parameters.parameters() if isinstance(parameters, nn.Module) else parameters
        self.parameters, self.accelerator = list(dict.fromkeys(found)), accelerator
        self.buffer = torch.empty(0)

    def fill(
        self,
        losses: dict[str, Tensor],  # task -> () with graph; graphs may have parts in common
    ) -> None:
        """Run one backward a task. Raises ValueError if no loss has a graph, or the parameters
        differ in dtype or device.
        """
        if not any(loss.requires_grad for loss in losses.values()):
            raise ValueError(f"expected a loss with a graph, got none among {list(losses)}")
        self.params = [p for p in self.parameters if p.requires_grad]
        # may lie in the buffer
        self.earlier = [None if p.grad is None else p.grad.clone() for p in self.params]
        self.rows = self._rows(len(losses))  # (T, P)
        self.used = _backward_rows(losses, self.params, self.rows)  # parameter -> tasks
        if self.accelerator is not None and self.accelerator.num_processes > 1:
            self.used = _average_rows(self.rows, self.used, self.accelerator)
        self.spans = _shared_spans(self.params, self.used)

    def _rows(self, tasks):
        """Give T rows as long as all parameters together; keep the memory from call to call."""
        params, kinds = self.params, {(p.dtype, p.device) for p in self.params}
        if len(kinds) != 1:
            raise ValueError(
                f"expected parameters of one dtype on one device, got {sorted(map(str, kinds))}"
            )
        size = sum(p.numel() for p in params)
        if (
            self.buffer.numel() < tasks * size
            or (self.buffer.dtype, self.buffer.device) not in kinds
        ):
            self.buffer = torch.empty(tasks * size, dtype=params[0].dtype, device=params[0].device)
        return self.buffer[: tasks * size].view(tasks, size)

    def shared(self) -> Iterator[Tensor]:  # (T, p) views of the rows
        """Cut the stretches that two tasks or more use into pieces that fit a cache; a GPU wants
        few and large ones.
        """
        for start, stop in self.spans:
            yield from self.rows[:, start:stop].split(
                1 << (16 if self.rows.device.type == "cpu" else 24), dim=1
            )

    @torch.no_grad()
    def gram(
        self,
        tasks: Sequence[str],  # T names, for the error
    ) -> Tensor:  # (T, T) float64 on the CPU
        """Compute the inner products on the shared stretches, zeros without any.

        Raises NotFinite, a ValueError, naming the first task whose gradient is not finite.
        """
        gram = gram_matrix(self.shared()).cpu().double().expand(len(tasks), len(tasks))
        _check_squares(gram.diagonal(), tasks)
        return gram

    def mix(
        self,
        weights: Tensor,  # (T,) how often each task's gradient counts
    ) -> None:
        """Put the mixture of the shared stretches into row 0."""
        weights = to_device(weights.to(self.rows.dtype), self.rows.device)
        for block in self.shared():
            block[0] = weights @ block

    def hand_out(self) -> None:
        """Let each `.grad` be a view of the row that holds it; add what was there before."""
        for p, (start, stop), before in zip(self.params, _places(self.params), self.earlier):
            p.grad = before
            if self.used[p]:
                row = self.rows[
                    min(self.used[p]) if len(self.used[p]) == 1 else 0, start:stop
                ].view_as(p)
                p.grad = row if before is None else row.add_(before)
        self.earlier = []


def _places(params):
    """Give each parameter its place [start, stop) in a row."""
    start = 0
    for p in params:
        yield start, start + p.numel()
        start += p.numel()


def _backward_rows(losses, params, rows):
    """Run one backward a task, each gradient into its row at once; return for each parameter the
    tasks that use it.
    """
    places, used, task = dict(zip(params, _places(params))), {p: set() for p in params}, 0

    def move(p):
        row = rows[task, slice(*places[p])].view_as(p)
        (row.add_ if task in used[p] else row.copy_)(p.grad)  # in pieces if a part is checkpointed
        used[p].add(task)
        p.grad = None

    for p in params:
        p.grad = None
    keep = _share_graph(losses.values())
    hooks = [p.register_post_accumulate_grad_hook(move) for p in params]
    try:
        for task, loss in enumerate(losses.values()):
            if loss.requires_grad:
                loss.backward(retain_graph=keep and task < len(losses) - 1)
    finally:
        for hook in hooks:
            hook.remove()
    for p, tasks in used.items():
        for task in set(range(len(rows))) - tasks:
            rows[task, slice(*places[p])] = 0
    return used


def _share_graph(losses):
    """Tell whether a node is reached from two losses; a graph kept for nothing would hold on to its
    activations.
    """
    seen = set()
    for loss in losses:
        mine, todo = set(), [loss.grad_fn]
        while todo:
            node = todo.pop()
            # a parameter's node has no next
            if node is not None and node.next_functions and node not in mine:
                mine.add(node)
                todo += [parent for parent, _ in node.next_functions]
        if seen & mine:
            return True
        seen |= mine
    return False


def _shared_spans(params, used):
    """Find the stretches [start, stop) of a row that two tasks or more use, neighbours merged."""
    spans = []
    for p, (start, stop) in zip(params, _places(params)):
        if len(used[p]) < 2:
            continue
        if spans and spans[-1][1] == start:
            start, _ = spans.pop()
        spans.append((start, stop))
    return spans


def _average_rows(rows, used, accelerator):
    """Average every row over the processes; a weight that a task uses on one counts as used on all."""
    flags = torch.tensor(
        [[float(task in tasks) for tasks in used.values()] for task in range(len(rows))]
    )
    for row in rows:  # one at a time: the message is copied
        row.copy_(accelerator.reduce(row, reduction="mean"))
    flags = accelerator.reduce(flags.to(rows.device), reduction="mean")
    return {p: set(column.nonzero()[:, 0].tolist()) for p, column in zip(used, flags.T)}
