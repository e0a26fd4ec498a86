"""Packing a batch: two layouts of sentences of unequal length, padded, and real tokens end to end.

Linear layers, normalizations, activation functions and dropout treat each token separately. They
can therefore run on one list of the N real tokens of a batch, without any work on padding. Only
attention has to know where a sentence ends: sentences of equal length form a small batch, which
needs neither padding nor a mask. For example, the lengths 3, 1, 3 give a list of 7 tokens that begins
with the one of row 1, and two groups, one sentence of length 1 and two of length 3. In batches of 32
sentences in random order, two thirds of a padded batch can be padding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..core.devices import sync_free_value, to_device, with_cpu_copy, without_waiting


def check_batch(
    input_ids: Tensor,  # what should be (B, T)
    attention_mask: Tensor | None,  # what should be of the same shape
    longest: int,  # positions there are
    allow_empty: bool = False,  # accept rows of padding only
) -> Tensor:  # (B, T) the mask, all ones if None
    """Give the mask. Raises ValueError for bad shapes, long sentences, and rows without a real
    token.
    """
    mask = (
        torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
    )
    if input_ids.ndim != 2 or mask.shape != input_ids.shape:
        raise ValueError(
            f"expected ids and mask of one shape (B, T), got {tuple(input_ids.shape)} and {tuple(mask.shape)}"
        )
    if input_ids.shape[1] > longest:
        raise ValueError(f"expected at most {longest} tokens, got {input_ids.shape[1]}")
    empty = (
        []
        if (seen := sync_free_value(mask)) is None
        else (seen.sum(1) == 0).nonzero().flatten().tolist()
    )
    if empty and not allow_empty:
        raise ValueError(f"expected a real token in each row, got only padding in rows {empty}")
    return mask


def padding_share(attention_mask: Tensor | None) -> float | None:  # (B, T) 1 = real token
    """Give the share of padding in a batch on a GPU, if that can be had without waiting; None:
    nobody knows, or it does not matter.

    A GPU has faster attention for batches without a mask. On a CPU a mask costs next to nothing.
    """
    if (
        attention_mask is None
        or attention_mask.device.type == "cpu"
        or torch.compiler.is_compiling()
    ):
        return None
    with without_waiting():
        seen = sync_free_value(attention_mask)
    return (
        None if seen is None or not seen.numel() else 1 - seen.count_nonzero().item() / seen.numel()
    )


class Padded:
    """Leave a padded batch as it is; what looks across tokens gets the mask, or None if all tokens
    are real.
    """

    positions = None  # column t is place t

    def __init__(self, attention_mask: Tensor | None):  # (B, T) 1 = real; None: all real
        self.mask = None if padding_share(attention_mask) == 0 else attention_mask

    def pack(self, padded: Tensor) -> Tensor:  # (B, T, ...)
        return padded

    def unpack(self, laid: Tensor) -> Tensor:  # (B, T, ...)
        return laid

    def inside(self, function: Callable, *laid: Tensor, whole: Callable | None = None) -> Tensor:
        """Apply `function(*tensors, mask)` to the whole batch."""
        return function(*laid, self.mask)


class Packing:
    """Lay the real tokens of a padded batch end to end, shortest sentence first.

    N = sum of the mask. What treats tokens alone runs on (N, D); what looks across them on groups
    of equal length.
    """

    def __init__(self, attention_mask: Tensor):  # (B, T) int; holes and empty rows are fine
        # to count on a GPU is to wait
        mask = attention_mask if (seen := sync_free_value(attention_mask)) is None else seen
        self.mask, self.shape, lengths = attention_mask, mask.shape, mask.sum(1)  # (B, T), (B,)
        order = lengths.argsort(stable=True)
        rows, places = mask[order].nonzero(as_tuple=True)  # (N,), (N,)
        cells = order[rows] * self.shape[1] + places  # (N,) in the flattened batch
        sizes, counts = lengths[order].unique_consecutive(return_counts=True)
        starts = torch.cat(
            [lengths.new_zeros(1), lengths[order][lengths[order] > 0].cumsum(0)]
        ).int()
        self.positions, self.cells, self.starts = to_device(
            (places, cells, starts), attention_mask.device
        )
        self.groups = [(n, T) for n, T in zip(counts.tolist(), sizes.tolist()) if T]

    def pack(self, padded: Tensor) -> Tensor:
        """Keep real tokens only: (B, T, ...) -> (N, ...). Ids that were sent keep their original:
        who checks them need not wait.
        """
        return with_cpu_copy(lambda x, cells: x.flatten(0, 1)[cells], padded, self.cells)

    def unpack(self, laid: Tensor) -> Tensor:
        """Put each token back into its cell: (N, D) -> (B, T, D), zeros at padding."""
        cells = laid.new_zeros(self.shape.numel(), laid.shape[-1])
        return cells.index_copy(0, self.cells, laid).unflatten(0, self.shape)

    def inside(self, function: Callable, *laid: Tensor, whole: Callable | None = None) -> Tensor:
        """Apply `function(*tensors, None)` to n sentences of length T at a time: tensors (N, D) ->
        (n, T, D) each -> (N, D).

        Or `whole(*tensors, starts, longest)`, if there is one, to all of them at once: sentence i
        lies in [starts[i], starts[i + 1]).
        """
        if not self.groups:
            return laid[0]
        if whole is not None:
            return whole(*laid, self.starts, self.groups[-1][1])
        sizes = [n * T for n, T in self.groups]
        parts = zip(self.groups, *(x.split(sizes) for x in laid))
        return torch.cat(
            [
                function(*(x.unflatten(0, shape) for x in tensors), None).flatten(0, 1)
                for shape, *tensors in parts
            ]
        )
