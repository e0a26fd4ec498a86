"""Gathering tensors from all processes, with gradients for the rows of the own process."""

from __future__ import annotations

__all__ = ["across_processes", "gather_views"]

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class _Gather(torch.autograd.Function):
    """Collect rows from all processes; the gradient of our own rows comes back.

    Every process computes the same loss of the same rows, and the loop takes the mean of their
    gradients where the sum is meant: so we multiply by the number of processes.
    """

    @staticmethod
    def forward(ctx, rows, accelerator):
        ctx.place, ctx.world = accelerator.process_index, accelerator.num_processes
        return accelerator.gather(rows)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(ctx.world)[ctx.place] * ctx.world, None


def gather_views(
    views: Sequence[Tensor],  # V of (B, E), as many rows on every process
    accelerator,  # accelerate.Accelerator
) -> tuple[Tensor, ...]:  # V of (P B, E), in the same order on every process
    """Collect the vectors of all processes, so that each sentence has P B - 1 negatives.

    A loss of them, averaged over processes, has the gradient of the whole batch.
    Raises ValueError if the processes hold unequal numbers of rows.
    """
    sizes = accelerator.gather(torch.tensor([len(views[0])], device=views[0].device)).tolist()
    if len(set(sizes)) > 1:
        raise ValueError(f"expected as many rows on every process, got {sizes}")
    return tuple(_Gather.apply(view.contiguous(), accelerator) for view in views)


def across_processes(
    loss: Callable,  # (a, b, [hard=], groups=) -> (), as `simcse_loss`
    accelerator,  # accelerate.Accelerator
) -> Callable:  # the same arguments
    """Make a loss of the sentences of one process into a loss of those of all processes.

    Train with the same accelerator: the gradient is meant to be averaged over its processes.
    """
    if accelerator is None or accelerator.num_processes == 1:
        return loss

    def loss_of_all(a, b, groups=None, **hard):
        gathered = gather_views([a, b, *hard.values()], accelerator)
        hard = dict(zip(hard, gathered[2:]))
        groups = None if groups is None else accelerator.gather(groups)
        return loss(gathered[0], gathered[1], **hard, groups=groups)

    return loss_of_all
