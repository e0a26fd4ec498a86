"""Two ways to lay out sentences of unequal length: padded as they come, or real tokens end to end. Neither knows what is computed on them."""
from collections.abc import Callable

import torch
from torch import Tensor

from .devices import readable, send


def check_batch(
    input_ids: Tensor,  # what should be (B, T)
    attention_mask: Tensor | None,  # what should be of the same shape
    longest: int,  # positions there are
    allow_empty: bool = False,  # accept rows of padding only
) -> Tensor:  # (B, T) the mask, all ones if None
    """Give the mask. Raises ValueError for bad shapes, long sentences, and rows without a real token."""
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
    if input_ids.ndim != 2 or mask.shape != input_ids.shape:
        raise ValueError(f"expected ids and mask of one shape (B, T), got {tuple(input_ids.shape)} and {tuple(mask.shape)}")
    if input_ids.shape[1] > longest:
        raise ValueError(f"expected at most {longest} tokens, got {input_ids.shape[1]}")
    empty = [] if (seen := readable(mask)) is None else (seen.sum(1) == 0).nonzero().flatten().tolist()
    if empty and not allow_empty:
        raise ValueError(f"expected a real token in each row, got only padding in rows {empty}")
    return mask


class Padded:
    """Leave a padded batch as it is; what looks across tokens gets the mask."""

    positions = None  # column t is place t

    def __init__(self, attention_mask: Tensor | None):  # (B, T) 1 = real; None: all real
        self.mask = attention_mask

    def pack(self, padded: Tensor) -> Tensor:  # (B, T, ...)
        return padded

    def unpack(self, laid: Tensor) -> Tensor:  # (B, T, ...)
        return laid

    def inside(self, function: Callable, *laid: Tensor) -> Tensor:
        """Apply `function(*tensors, mask)` to the whole batch."""
        return function(*laid, self.mask)


class Packing:
    """Lay the real tokens of a padded batch end to end, shortest sentence first.

    N = sum of the mask. What treats tokens alone runs on (N, D); what looks across them on groups of equal length.
    """

    def __init__(self, attention_mask: Tensor):  # (B, T) int; holes and empty rows are fine
        mask = attention_mask if (seen := readable(attention_mask)) is None else seen  # to count on a GPU is to wait
        self.shape, lengths = mask.shape, mask.sum(1)  # (B, T), (B,)
        order = lengths.argsort(stable=True)
        rows, places = mask[order].nonzero(as_tuple=True)  # (N,), (N,)
        cells = order[rows] * self.shape[1] + places  # (N,) in the flattened batch
        self.positions, self.cells = send((places, cells), attention_mask.device)
        sizes, counts = lengths[order].unique_consecutive(return_counts=True)
        self.groups = [(n, T) for n, T in zip(counts.tolist(), sizes.tolist()) if T]

    def pack(self, padded: Tensor) -> Tensor:
        """Keep real tokens only: (B, T, ...) -> (N, ...)."""
        return padded.flatten(0, 1)[self.cells]

    def unpack(self, laid: Tensor) -> Tensor:
        """Put each token back into its cell: (N, D) -> (B, T, D), zeros at padding."""
        cells = laid.new_zeros(self.shape.numel(), laid.shape[-1])
        return cells.index_copy(0, self.cells, laid).unflatten(0, self.shape)

    def inside(self, function: Callable, *laid: Tensor) -> Tensor:
        """Apply `function(*tensors, None)` to n sentences of length T at a time: tensors (N, D) -> (n, T, D) each -> (N, D)."""
        if not self.groups:
            return laid[0]
        sizes = [n * T for n, T in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in laid))
        return torch.cat([function(*(x.unflatten(0, shape) for x in tensors), None).flatten(0, 1) for shape, *tensors in parts])
