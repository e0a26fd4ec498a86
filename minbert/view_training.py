"""Batches of views, and the training loop around them. Chapter 17 explains the method."""

from __future__ import annotations

__all__ = ["ViewBatch", "view_batches", "train_views"]

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .core.batch_indices import check_columns, draw_batches
from .core.device_step import DeviceStep
from .core.fused_adamw import FusedAdamW
from .core.prefetch import Ahead
from .datasets.label_checks import plain_column
from .optim import parameter_groups
from .pretrain import special_positions
from .tokens import TokenBatch, encode_ids, pad_ids
from .training import Record, steps, warmup_decay


class ViewBatch(NamedTuple):
    """V views of B sentences: all first views, then all second views, and so on."""

    tokens: TokenBatch  # (V B, T)
    groups: Tensor  # (B,) int64, equal for equal first views
    labels: Tensor | None = None  # (B,), for a loss that needs labels

    @property
    def views(self) -> int:
        """The number of views V."""
        return len(self.tokens.input_ids) // len(self.groups)

    def to(self, device: torch.device | str) -> ViewBatch:
        """Move every tensor to `device`."""
        labels = None if self.labels is None else self.labels.to(device)
        return ViewBatch(self.tokens.to(device), self.groups.to(device), labels)


def _corrupted(ids, mask, tokenizer, corrupt, generator):
    """Give ids and attention mask of a changed view. Padding at the end of a row is not attended to,
    so a view may become shorter.
    """
    special = special_positions(ids, mask, tokenizer.all_special_ids)
    changed = corrupt(ids, special, generator=generator)
    if changed.shape != special.shape:
        raise ValueError(
            f"corrupt: expected ids of shape {tuple(special.shape)}, got {tuple(changed.shape)}"
        )
    # true up to the last token that is not padding
    real = (changed != tokenizer.pad_token_id).flip(1).cumsum(1).flip(1) > 0
    return changed, mask & real


def _make_batch(columns, tokenizer, corrupt, generator):
    """Pad all views to one width, and change the second if asked to."""
    groups = torch.tensor([hash(tuple(row)) for row in columns[0]])  # the same on every process
    views = columns * 2 if len(columns) == 1 else columns
    ids, mask = pad_ids([row for view in views for row in view], tokenizer.pad_token_id)
    if corrupt is not None:
        second = slice(len(groups), 2 * len(groups))
        ids[second], mask[second] = _corrupted(
            ids[second], mask[second], tokenizer, corrupt, generator
        )
    return ViewBatch(TokenBatch(ids, mask), groups)


def view_batches(
    # 1: each sentence is its own second view; 2: pairs; 3: pairs with hard negatives
    columns: Sequence[list[str]],
    tokenizer,  # from `load_tokenizer`
    batch_size: int = 64,  # B, of all processes together; SimCSE
    # (ids, special_mask, generator=) -> ids of the second view, as `span_mask`; a row that gets
    # shorter ends in the tokenizer's pad_token_id
    corrupt: Callable | None = None,
    labels: Sequence | None = None,  # N labels
    epochs: int | None = None,  # None: without end
    max_length: int = 64,  # [tokens]; longer sentences are truncated. SimCSE: 32
    # sort this many batches at a time, so that the rows of a batch have similar lengths; None: no
    pool: int | None = None,
    seed: int = 11711,  # of the order and the corruption; course default
    process_index: int = 0,  # which part of each batch belongs to this process
    num_processes: int = 1,  # they divide `batch_size`
) -> Iterator[ViewBatch]:
    """Draw batches without replacement, in a new order in each epoch. Rows that do not fill a batch
    are left out.

    Raises ValueError for columns of unequal length or more than three, fewer rows than a batch
    holds, a batch below 2 rows or not divided by the processes, a pool below 1, or a process that
    does not exist.
    """
    labels = plain_column(labels)
    check_columns(columns, labels, batch_size, pool, process_index, num_processes)
    ids = [encode_ids(tokenizer, column, max_length) for column in columns]
    order = torch.Generator().manual_seed(seed)  # the same on every process
    noise = torch.Generator().manual_seed(seed + 1_000_003 * (process_index + 1))  # another on each
    for _ in count() if epochs is None else range(epochs):
        for batch in draw_batches(ids[0], batch_size, pool, order):
            rows = batch[process_index::num_processes].tolist()
            y = None if labels is None else torch.tensor([labels[i] for i in rows])
            drawn = [[column[i] for i in rows] for column in ids]
            yield _make_batch(drawn, tokenizer, corrupt, noise)._replace(labels=y)


def train_views(
    model: nn.Module,  # a `ViewModel`, or anything `loss_fn` takes
    batches: Iterable,  # at least `total_steps`
    loss_fn: Callable,  # (model, batch) -> loss, as `view_loss` makes
    total_steps: int,  # optimizer steps
    lr: float = 3e-5,  # highest learning rate; SimCSE, unsupervised, for BERT-base
    warmup: float = 0.1,  # fraction of the steps
    weight_decay: float = 0.01,  # BERT release
    precision: str = "fp32",  # or "bf16"
    accelerator=None,  # accelerate.Accelerator
    # (name, parameter) -> does it decay? None: matrices do
    decays: Callable[[str, Tensor], bool] | None = None,
) -> Iterator[Record]:
    """Train with AdamW, linear warm-up and decay to 0, and gradients clipped to norm 1: one record a
    step.

    Paper: Gao et al. (2021), appendix A. Differs: warm-up, which a small model needs.
    Raises ValueError for less than one step, or batches that end too early.
    """
    if total_steps < 1:
        raise ValueError(f"expected at least 1 step, got {total_steps}")
    which = {} if decays is None else {"decays": decays}
    optimizer = FusedAdamW(parameter_groups(model, weight_decay, lr, **which), lr=lr)

    def schedule(step):
        return warmup_decay(step, total_steps, round(warmup * total_steps))

    ahead = Ahead(next(model.parameters()).device).over(islice(batches, total_steps))
    step = DeviceStep(accelerator, precision)
    done = 0
    model.train()
    for record in steps(
        model, ahead, loss_fn, optimizer, schedule=schedule, max_grad_norm=1.0, take_step=step
    ):
        done += 1
        yield record
    model.eval()
    if done < total_steps:
        raise ValueError(
            f"expected {total_steps} batches, got {done}: the learning rate is planned for all"
        )
