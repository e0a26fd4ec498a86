"""Checks of sentences and labels: in a dataset before a model is trained on it, and in a batch beside
the outputs of a model.
"""

from __future__ import annotations

__all__ = [
    "plain_column",
    "sentences_of",
    "check_texts",
    "check_numbers",
    "check_train_set",
    "check_dev_set",
    "check_labels",
    "check_signs",
    "check_vectors",
]

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..core.devices import sync_free_value, to_device, with_cpu_copy
from ..core.files import quoted
from ..core.text_windows import check_sentences


def plain_column(column):
    """Make a list of a column of numpy, of torch or of pandas, whose row 0 may stand anywhere after
    a shuffle, and of a supply without a length. Others stay.

    Raises ValueError for a mapping, whose keys would be taken for the column.
    """
    if isinstance(column, Mapping):
        raise ValueError(
            f"expected a list as a column, got a {type(column).__name__} with the keys {quoted(list(column))}"
        )
    if hasattr(column, "tolist"):
        return column.tolist()
    return list(column) if isinstance(column, Iterator) else column


def sentences_of(rows) -> list[str]:  # of a data.Dataset
    """List the sentences of a table, and then their partners, where there are some."""
    return [*rows.sentences, *(rows.sentences2 or ())]


def check_texts(rows) -> None:  # data.Dataset
    """Raise ValueError naming table, column and row for a sentence that is no valid text."""
    for name in ("sentences", "sentences2", "sentences3"):
        column = getattr(rows, name)
        try:
            if name == "sentences" or column is not None:
                check_sentences(column)
        except ValueError as error:
            raise ValueError(f"{rows.name} {rows.split}, {name}: {error}") from None


def check_numbers(rows) -> None:  # data.Dataset with labels
    """Raise ValueError naming table and row for a label that is no finite number, or no whole one
    where there are classes.
    """
    wanted = "a whole number, that of a class," if rows.classes else "a finite number"
    for row, label in enumerate(rows.labels):
        if not _is_number(label, bool(rows.classes)):
            raise ValueError(
                f"{rows.name} {rows.split}: expected {wanted} as label at row {row}, got {quoted(label)}"
            )


def _is_number(label, whole):
    try:
        value = math.nan if isinstance(label, (str, bytes)) else float(label)
    except (TypeError, ValueError):
        return False
    return math.isfinite(value) and (not whole or value == int(value))


def check_train_set(
    task: str,  # for the message
    rows,  # data.Dataset
    head,  # losses.Head of the task
    # the head's own loss is what is trained; False: a loss that may not need labels, or takes
    # others
    usual: bool = True,
) -> None:
    """Raise ValueError naming task and row for what would stop the training: no rows, no labels, or
    labels that the loss does not take.
    """
    if not len(rows):
        raise ValueError(f"{task}: expected at least one row to train on, got none")
    try:
        if rows.labels is not None:
            check_numbers(rows)
        elif usual:
            raise ValueError(
                f"expected labels in {rows.name} {rows.split}, got none: a test split?"
            )
        if usual:
            _check_range(rows.labels, head)
    except ValueError as error:
        raise ValueError(f"train set of {task}: {error}") from None


def check_dev_set(
    task: str,  # for the message
    rows,  # data.Dataset with labels
    head,  # losses.Head of the task
) -> None:
    """Raise ValueError naming task and row for a label that the head can never answer: it would
    count as wrong at every step.
    """
    try:
        check_numbers(rows)
        if rows.kind != "similarity":  # which is measured by a correlation
            _check_range(rows.labels, head)
    except ValueError as error:
        raise ValueError(f"dev set of {task}: {error}") from None


def _check_range(labels, head):
    """Let the head's own loss look at all labels at once, beside outputs of zero."""
    width = getattr(head, "classes", None)
    if head.goal != "classes" or width:
        outputs = (
            torch.zeros(len(labels), width) if head.goal == "classes" else torch.zeros(len(labels))
        )
        head.loss(outputs, torch.tensor([float(label) for label in labels]))


def check_labels(
    outputs: Tensor,  # (B,) or (B, C) float, on any device
    labels: Tensor | None,  # (B,) of any dtype
    low: float,  # smallest valid label
    high: float,  # largest valid label
    axes: int = 1,  # number of axes that `outputs` must have
    whole: bool = False,  # refuse labels between two integers
) -> Tensor:  # (B,) float32 or wider, on the device of `outputs`
    """Convert the labels of a batch to floats. Raise ValueError for another shape, which could
    broadcast, an empty batch, NaN, or a label out of range.

    Labels on a GPU are looked at only if their values are known without waiting for it.
    """
    _check_shapes(outputs, labels, axes)
    dtype = torch.promote_types(outputs.dtype, torch.float32)
    labels = with_cpu_copy(lambda y: y.to(dtype), to_device(labels, outputs.device))
    seen = sync_free_value(labels)
    if seen is None:
        return labels
    bad = ~((seen >= low) & (seen <= high))  # NaN compares false, so it is bad too
    if bad.any():
        raise ValueError(
            f"expected labels in [{low:g}, {high:g}], got {seen[bad][0].item()} "
            f"at row {bad.nonzero()[0].item()}"
        )
    between = seen != seen.round()
    if whole and between.any():
        raise ValueError(f"expected whole classes, got {seen[between][0].item()}")
    return labels


def _check_shapes(outputs, labels, axes):
    """Raise ValueError unless each row of `outputs` has one label, and there is a row."""
    if outputs.ndim != axes or labels is None or labels.shape != outputs.shape[:1]:
        got = None if labels is None else tuple(labels.shape)
        raise ValueError(
            f"expected outputs of {axes} axes and labels of shape (B,) for the same B > 0, "
            f"got {tuple(outputs.shape)} and {got}"
        )
    if len(labels) == 0:
        raise ValueError("expected at least one row, got an empty batch")


def check_signs(
    labels: Tensor,  # (B,) of any dtype
) -> None:
    """Raise ValueError unless all labels are 0 or 1, or all of them -1 or 1."""
    seen = sync_free_value(labels)
    if seen is None:
        return
    if not (((seen == 0) | (seen == 1)).all() or (seen.abs() == 1).all()):
        found = sorted(set(seen.float().tolist()))[:5]
        raise ValueError(f"expected labels of 0 and 1, or of -1 and 1, got {found}")


def check_vectors(
    u: Tensor,  # (B, D) float
    v: Tensor | None = None,  # (B, D) float, the second sentences
) -> None:
    """Raise ValueError unless u is (B, D) and v, if given, has the same shape; others could
    broadcast.
    """
    if u.ndim != 2 or v is not None and v.shape != u.shape:
        second = "" if v is None else f" and {tuple(v.shape)}"
        raise ValueError(
            f"expected sentence vectors of one shape (B, D), got {tuple(u.shape)}{second}"
        )
