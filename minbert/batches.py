"""Batches of pairs for training with in-batch negatives: no two pairs of a batch belong to one
cluster of duplicates. Chapter 18 explains why.
"""

__all__ = ["no_duplicate_batches", "pair_batches"]

from collections.abc import Iterator, Sequence
from itertools import count

import torch
from torch import Tensor

from .core.devices import drawing_device
from .core.text_windows import check_sentences
from .negatives import clusters
from .sampling import seeded
from .simcse import ViewBatch
from .tokens import encode_ids, pad_ids


def _by_group(groups, generator):
    """Sort rows by group, the groups and their rows in random order, and number the rows of each
    group from 0."""
    _, which, size = groups.cpu().unique(return_inverse=True, return_counts=True)
    device = drawing_device(generator)
    shuffled = torch.randperm(len(groups), generator=generator, device=device).cpu()
    place = torch.randperm(
        len(size), generator=generator, device=device
    ).cpu()  # of each group in the order
    order = shuffled[place[which[shuffled]].argsort(stable=True)]
    size = size[place.argsort()]  # in the new order
    start = (size.cumsum(0) - size).repeat_interleave(size)  # where the group of each row begins
    return order, torch.arange(len(order)) - start


def no_duplicate_batches(
    groups: Tensor,  # (N,) int, the cluster of each row
    batch_size: int,  # B
    generator: torch.Generator | None = None,  # None: torch's own
    # (n, B) int64 rows of each batch; (N - n B,) rows left out, all others occur once
) -> tuple[Tensor, Tensor]:
    """Divide an epoch into as many full batches as possible, none with two rows of one group.

    n is the largest number with sum_c min(s_c, n) >= n B, for groups of s_c rows. The rows are
    sorted by group and distributed like cards, so that a group of at most n rows never meets itself
    in a batch. The rows that are left out, the batch of each row and the order are random.
    Raises ValueError for no rows, a batch below 1 row, or fewer groups than a batch holds rows.
    """
    _check_batch(groups, batch_size)
    order, rank = _by_group(groups, generator)
    n, former = len(groups) // max(1, batch_size), None
    while n != former:  # falls to the largest n that fits
        n, former = int((rank < n).sum()) // max(1, batch_size), n
    kept = order[rank < n]
    batches = kept[: n * batch_size].view(batch_size, n).T  # batch j gets rows j, j + n, j + 2n
    batches = batches[
        torch.randperm(n, generator=generator, device=drawing_device(generator)).cpu()
    ]
    return batches, torch.cat([order[rank >= n], kept[n * batch_size :]])


def _check_batch(groups, batch_size):
    """Raise ValueError unless the groups are (N,) and a batch without two rows of one group can be filled."""
    if groups.ndim != 1 or not len(groups):
        raise ValueError(f"expected groups of shape (N,), got {tuple(groups.shape)}")
    if not 1 <= batch_size <= len(groups.unique()):
        raise ValueError(
            f"expected at least 1 row a batch, and as many groups, got {batch_size} and {len(groups.unique())} groups"
        )


def _epoch(groups, batch_size, unique, generator):
    """Give the rows of all batches of an epoch, (n, m)."""
    if unique:
        return no_duplicate_batches(groups, batch_size, generator)[0]
    n = len(groups) // batch_size
    if n < 1:
        raise ValueError(f"expected at least {batch_size} rows, got {len(groups)}")
    return torch.randperm(len(groups), generator=generator)[: n * batch_size].view(n, batch_size)


def pair_batches(
    columns: Sequence[list[str]],  # 2: anchors and positives; 3: with hard negatives
    tokenizer,  # from `load_tokenizer`
    batch_size: int = 64,  # B, of all processes together
    epochs: int | None = None,  # None: without end. Foley-Cox and Wendt (CS224N report): 2
    max_length: int = 64,  # [tokens]; longer sentences are cut
    seed: int = 11711,  # course default
    start: int = 0,  # batches to skip, after a resume
    unique: bool = True,  # False: random batches, which may contain duplicates
    groups: Tensor | None = None,  # (N,) int; None: `clusters` of the first two columns
    process_index: int = 0,  # which part of each batch to yield
    num_processes: int = 1,  # a divisor of `batch_size`
) -> Iterator[ViewBatch]:  # two views or three, of B / num_processes rows
    """Yield batches of pairs for `view_loss(multiple_negatives_loss)`; the groups of a batch are clusters.

    Every row occurs at most once an epoch; a batch is a function of the seed and its number.
    Raises ValueError for columns that do not fit or hold what is no text, too few groups, a start
    below 0, or a batch that cannot be shared.
    """
    _check_columns(columns, groups, batch_size, process_index, num_processes)
    if start < 0:
        raise ValueError(f"expected a start of 0 or more batches, got {start}")
    columns = [check_sentences(column) for column in columns]
    groups = clusters(*columns[:2]) if groups is None else groups
    ids = [encode_ids(tokenizer, column, max_length) for column in columns]
    for epoch in count() if epochs is None else range(epochs):
        batches = _epoch(groups, batch_size, unique, seeded(seed, "pairs", epoch))
        for rows in batches[start:]:
            rows = rows[process_index::num_processes]
            tokens = pad_ids(
                [column[i] for column in ids for i in rows.tolist()], tokenizer.pad_token_id
            )
            yield ViewBatch(tokens, groups[rows])
        start = max(0, start - len(batches))


def _check_columns(columns, groups, batch_size, process_index, num_processes):
    """Raise ValueError unless all columns, and the groups, are of one length, and a batch can be shared."""
    lengths = [len(column) for column in columns] + ([] if groups is None else [len(groups)])
    if (
        len(columns) not in (2, 3)
        or len(set(lengths)) != 1
        or batch_size < 1
        or batch_size % num_processes
        or not 0 <= process_index < num_processes
    ):
        raise ValueError(
            f"expected 2 or 3 columns of one length, and a batch to share among {num_processes} processes, "
            f"got lengths {lengths}, batches of {batch_size} and process {process_index}"
        )
