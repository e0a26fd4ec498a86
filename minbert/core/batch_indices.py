"""Dividing a random order of examples into batches, and checks of the columns that they come from."""

from __future__ import annotations

__all__ = ["check_columns", "draw_batches"]

import torch


def check_columns(columns, labels, batch_size, pool, process_index, num_processes):
    """Raise ValueError for columns that cannot be cut into batches."""
    if (
        not 1 <= len(columns) <= 3
        or (pool is not None and pool < 1)
        or not 0 <= process_index < num_processes
    ):
        raise ValueError(
            f"expected 1 to 3 columns, a pool of at least 1, and a process in [0, {num_processes}), "
            f"got {len(columns)}, {pool} and {process_index}"
        )
    lengths = [len(column) for column in (*columns, *([] if labels is None else [labels]))]
    if len(set(lengths)) != 1 or not 1 < batch_size <= lengths[0] or batch_size % num_processes:
        raise ValueError(
            f"expected columns of one length with at least {batch_size} rows, and 2 rows or more a batch, "
            f"a multiple of {num_processes}, got {lengths}"
        )


def draw_batches(ids, batch_size, pool, generator):
    """Cut a random order of rows into full batches; with `pool`, rows of a batch are about equally
    long.
    """
    batches = torch.randperm(len(ids), generator=generator)[
        : len(ids) // batch_size * batch_size
    ].split(batch_size)
    if pool is None:
        return batches
    near = []
    for start in range(0, len(batches), pool):
        rows = sorted(torch.cat(batches[start : start + pool]).tolist(), key=lambda i: len(ids[i]))
        near += torch.tensor(rows).split(batch_size)
    return [near[i] for i in torch.randperm(len(near), generator=generator).tolist()]
