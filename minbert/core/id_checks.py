"""Checks of token ids before a model receives them."""

import torch
from torch import Tensor

from .devices import sync_free_value


def check_ids(
    ids: Tensor,  # any shape, int32 or int64
    size: int,  # number of rows of the table that the ids index
    what: str,  # what to call them in an error
) -> None:
    """Make sure that every id has a row in its table.

    Without this check, PyTorch says "index out of range in self" on a CPU and names neither the id
    nor its place. On a GPU an assertion fails some time later, after which the process cannot use
    the GPU again. The check is skipped for ids that `sync_free_value` does not show: inside torch.compile,
    and on a GPU where looking would make the CPU wait.

    Raises ValueError for another dtype, and for an id outside [0, size); the error names the first
    one and its place.
    """
    if ids.dtype not in (torch.int64, torch.int32):  # what an embedding table accepts
        raise ValueError(f"expected {what} as int64 or int32, got {ids.dtype}")
    known = sync_free_value(ids)
    if known is None or known.numel() == 0:
        return
    low, high = torch.stack(known.aminmax()).tolist()
    if low < 0 or high >= size:
        place = tuple(((ids < 0) | (ids >= size)).nonzero()[0].tolist())
        raise ValueError(f"expected {what} in [0, {size}), got {ids[place].item()} at {place}")
