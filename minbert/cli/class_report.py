"""Precision, recall and F1 of each class, and their mean, the macro F1."""

from __future__ import annotations

__all__ = ["with_names", "macro_f1", "class_table", "class_tables"]

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from minbert.cli.custom_tasks import in_a_cell
from minbert.cli.labelled_model import LabelledModel
from minbert.data import Dataset
from minbert.evaluate import Predicted, TaskResult, confusion_matrix
from minbert.metrics import majority_baseline, paired_bootstrap


def with_names(
    results: dict[str, TaskResult],
    datasets: dict[str, Dataset],  # what they were measured on
    model: LabelledModel,
) -> dict[str, TaskResult]:
    """Let the baseline of a task of one's own say "always yelp" where the book's tables have a
    number.
    """
    named = {
        task: model.own[task].classes[majority_baseline(datasets[task].labels)[0]]
        for task in results
        if task in model.own and model.own[task].classes
    }
    return results | {
        task: replace(results[task], baseline_name=f"always {in_a_cell(name)}")
        for task, name in named.items()
    }


def macro_f1(
    predictions,  # (N,) classes
    labels,  # (N,) classes
) -> float:  # in [0, 1]
    """Average the F1 of all classes that are among the labels or predictions: a rare class counts
    as much as a frequent one.

    F1 = 2 right / (answers + rows). As scikit-learn's `f1_score`, which a bootstrap of 1,000 draws
    calls too slowly.
    """
    told, true = np.asarray(predictions, int), np.asarray(labels, int)

    def count(x):
        return np.bincount(x, minlength=max(told.max(), true.max()) + 1)

    both = count(told) + count(true)
    return float((2 * count(true[told == true])[both > 0] / both[both > 0]).mean())


def class_table(
    task: str,
    names: tuple[str, ...],  # of the classes 0, 1, ...
    predictions,  # (N,) numbers of classes
    labels,  # (N,) numbers of classes
    # Markdown: a row for each class, and the mean of their F1 with its 95 % interval
) -> str:
    """Say of each class how many of its rows were found, how much of what was called so is so, and
    what its rows were called most often instead. Raises ValueError for a number of no class.
    """
    told = confusion_matrix(predictions, labels, len(names))  # (C, C): of the class, called so
    rows, answers, right = told.sum(1), told.sum(0), told.diagonal()
    with np.errstate(invalid="ignore"):  # 0 of 0 is NaN: a class without rows, or without answers
        # (C, 3) precision, recall, F1
        shares = np.stack([right / answers, right / rows, 2 * right / (answers + rows)], 1)
    lines = [
        f"| {task} | rows | answers | precision | recall | F1 | most often taken for |",
        "|---|---|---|---|---|---|---|",
    ]
    for i, name in enumerate(names):
        cells = " | ".join("-" if np.isnan(x) else f"{x:.3f}" for x in shares[i])
        lines.append(
            f"| {in_a_cell(name)} | {rows[i]} | {answers[i]} | {cells} | {_taken_for(told[i], i, names)} |"
        )
    value, low, high = paired_bootstrap(macro_f1, predictions, labels)[:3]
    return "\n".join(
        [
            *lines,
            "",
            f"{task}: macro F1 {value:.3f} (95 % interval {low:.3f} to {high:.3f}, examples only), the mean over classes, whatever their size",
        ]
    )


def _taken_for(
    told: np.ndarray,
    right: int,
    names: tuple[str, ...],
    # told: (C,) answers to the rows of one class
) -> str:
    """Name the most frequent wrong answer, and how often it was given."""
    wrong = np.where(np.arange(len(told)) == right, 0, told)
    return f"{in_a_cell(names[wrong.argmax()])} ({wrong.max()})" if wrong.any() else "-"


def class_tables(
    model: Predicted | LabelledModel,  # what predicts
    datasets: dict[str, Dataset],  # task -> labelled rows
    names: LabelledModel,  # who knows what the answers are called
) -> Iterator[str]:  # a table for each task that has classes
    """Look into every task that has classes. Raises ValueError if none has."""
    found = {task: names.answers(task).classes for task in datasets}
    if not any(found.values()):
        raise ValueError(
            f"expected a task with classes for --classes, got scores: {', '.join(datasets)}"
        )
    for task, classes in found.items():
        if classes:
            yield class_table(
                task, classes, model.predict(task, datasets[task]), datasets[task].labels
            )
