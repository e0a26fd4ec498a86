"""Evaluate a model on several tasks: results with intervals and baselines, prediction files, the
worst mistakes, and two diagnostics for pair tasks. Chapter 12 explains the metrics and intervals.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from minbert.core.atomic_dir import atomic_write_dir
from minbert.core.files import quoted
from minbert.data import Dataset, read_lines
from minbert.geometry import alignment, isoscore, mean_cosine, uniformity
from minbert.heads import LinearPlusCosine, MultitaskBert
from minbert.metrics import (
    accuracy,
    as_classes,
    as_vector,
    as_vectors,
    auc,
    average_ranks,
    majority_baseline,
    paired_bootstrap,
    pearson,
    spearman,
)
from minbert.sts import evaluate_sts, gold_labels, word_overlap

__all__ = [
    "METRICS",
    "COLUMNS",
    "FILE_NAMES",
    "Mistake",
    "worst_mistakes",
    "metric_of",
    "task_baseline",
    "TaskResult",
    "overall",
    "results_table",
    "confusion_matrix",
    "evaluate_tasks",
    "write_predictions",
    "Predicted",
    "read_predictions",
    "swap_symmetry",
    "Dropped",
    "drop_linear",
    # from other modules
    "accuracy",
    "alignment",
    "auc",
    "average_ranks",
    "evaluate_sts",
    "isoscore",
    "majority_baseline",
    "mean_cosine",
    "paired_bootstrap",
    "pearson",
    "spearman",
    "uniformity",
    "word_overlap",
]


class Mistake(NamedTuple):
    """One wrongly predicted item."""

    id: str
    first: str  # the sentence
    second: str | None  # its partner in a pair task
    gold: float
    predicted: float
    error: float  # |predicted - gold|


def worst_mistakes(
    dataset: Dataset,  # labelled
    predictions,  # (N,) on the scale of the labels; probabilities rank binary mistakes
    count: int = 10,  # how many to return at most
) -> list[Mistake]:  # largest error first, file order among equals; nothing that was right
    """List the items a model got most wrong.

    Raises ValueError if the dataset has no labels, or the lengths differ.
    """
    x, y = as_vectors(predictions, gold_labels(dataset))
    error = np.abs(x - y)
    seconds = dataset.sentences2 or [None] * len(y)
    worst = [i for i in np.argsort(-error, kind="stable")[:count] if error[i] > 0]
    return [
        Mistake(
            dataset.ids[i],
            dataset.sentences[i],
            seconds[i],
            float(y[i]),
            float(x[i]),
            float(error[i]),
        )
        for i in worst
    ]


METRICS = {  # kind of dataset -> name and function of the course's metric
    "sentiment": ("accuracy", accuracy),
    "paraphrase": ("accuracy", accuracy),
    "nli": ("accuracy", accuracy),
    "similarity": ("Pearson", pearson),
}


def metric_of(
    dataset: Dataset,
) -> tuple[str, Callable]:  # name, function(predictions, labels)
    """Look up the metric of a dataset's kind.

    Raises ValueError for a kind without one.
    """
    if dataset.kind not in METRICS:
        raise ValueError(f"expected a dataset of kind {', '.join(METRICS)}, got {dataset.kind!r}")
    return METRICS[dataset.kind]


def task_baseline(
    dataset: Dataset,  # labelled
) -> tuple[str, float]:  # its name, its score
    """Score the best predictor without a model: the majority class, or word overlap for similarity."""
    if dataset.kind == "similarity":
        overlap = word_overlap(dataset.sentences, dataset.sentences2)
        return "word overlap", pearson(overlap, gold_labels(dataset))
    constant, value = majority_baseline(gold_labels(dataset))
    return f"always {constant}", value


@dataclass(frozen=True)
class TaskResult:
    """The score of one task, with its interval, number of examples and baseline."""

    metric: str  # "accuracy" or "Pearson"
    value: float  # score of the model
    n: int  # items it was measured on
    low: float  # lower end of the 95 % bootstrap interval
    high: float  # upper end
    baseline: float  # score without a model
    baseline_name: str  # which baseline: "always 1", "word overlap"


def overall(
    results: dict[str, TaskResult],
) -> float:
    """Return the plain mean of the tasks' scores, the "overall" of the course's leaderboard."""
    return float(np.mean([r.value for r in results.values()]))


def results_table(
    results: dict[str, TaskResult],
) -> str:  # Markdown
    """Write results as a table, one row per task."""
    rows = [
        "| task | metric | score | 95 % interval (examples only) | n | baseline |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {task} | {r.metric} | {r.value:.3f} | {r.low:.3f} to {r.high:.3f} | {r.n} "
        f"| {r.baseline:.3f} ({r.baseline_name}) |"
        for task, r in results.items()
    ]
    return "\n".join(rows)


def confusion_matrix(
    predictions,  # (N,) classes 0..C-1
    labels,  # (N,) classes 0..C-1
    classes: int,  # C
) -> np.ndarray:  # (C, C) int64; row: label, column: prediction
    """Count how often each label received each prediction.

    Raises ValueError for unequal lengths or a class outside 0..C-1.
    """
    as_vectors(predictions, labels)
    x, y = as_classes(predictions, "predictions"), as_classes(labels, "labels")
    for values, name in ((x, "predictions"), (y, "labels")):
        if len(values) and not 0 <= values.min() <= values.max() < classes:
            raise ValueError(
                f"expected {name} in 0..{classes - 1}, got {values.min()} to {values.max()}"
            )
    return np.bincount(y * classes + x, minlength=classes**2).reshape(classes, classes)


def evaluate_tasks(
    model: MultitaskBert,  # anything with .predict(task, dataset) on the scale of the labels
    datasets: dict[str, Dataset],  # task -> labelled dataset
    resamples: int = 1000,  # of the bootstrap; 0: scores alone, low and high are NaN
    generator: torch.Generator | None = None,  # of the bootstrap; None: seed 11711 for each task
) -> dict[str, TaskResult]:
    """Evaluate every task of a model, with interval and baseline.

    Raises ValueError for a dataset without labels, or predictions with NaN.
    """
    results = {}
    for task, data in datasets.items():
        (name, metric), labels = metric_of(data), gold_labels(data)
        value, low, high = paired_bootstrap(
            metric, model.predict(task, data), labels, resamples=resamples, generator=generator
        )[:3]
        baseline_name, baseline = task_baseline(data)
        results[task] = TaskResult(name, value, len(data), low, high, baseline, baseline_name)
    return results


COLUMNS = {  # kind of dataset -> second word of the header, spelled as in the course
    "sentiment": "Predicted_Sentiment",
    "paraphrase": "Predicted_Is_Paraphrase",
    "similarity": "Predicted_Similiary",
    "nli": "Predicted_Inference",  # not in the course
}
FILE_NAMES = {"quora": "para", "stsb": "sts"}  # task -> first word of the file name, if another


def _prediction_text(data: Dataset, predictions) -> str:
    values = as_vector(predictions, f"predictions of {data.name}")
    if len(values) != len(data.ids):
        raise ValueError(f"expected {len(data.ids)} predictions, got {len(values)}")
    if repeated := [i for i, count in Counter(data.ids).items() if count > 1]:
        raise ValueError(f"expected each id once in {data.name}, got {repeated[0]!r} again")
    if data.kind in ("sentiment", "nli"):
        values = as_classes(values, "predictions")  # the course writes 3, but 1.0 for paraphrases
    rows = "".join(f"{i} , {v} \n" for i, v in zip(data.ids, values.tolist()))
    return f"id \t {COLUMNS[data.kind]} \n{rows}"


def write_predictions(
    model: MultitaskBert,  # anything with .predict(task, dataset)
    datasets: dict[str, Dataset],  # task -> dataset of any split; labels are not needed
    folder: str | Path,  # where the files go; made if missing
) -> list[Path]:  # one file per task, such as folder/sst-dev-output.csv
    """Write the prediction files of the course; none if a prediction or a write fails.

    Raises ValueError for a kind without a file format, two tasks with the same file, repeated ids,
    NaN, or a wrong number of predictions.
    """
    texts = {}
    for task, data in datasets.items():
        if data.kind not in COLUMNS:
            raise ValueError(
                f"expected a kind of {', '.join(COLUMNS)} for {task}, got {data.kind!r}"
            )
        name = f"{FILE_NAMES.get(task, task)}-{data.split}-output.csv"
        if name in texts:
            raise ValueError(
                f"expected a file for each task, got {name} for two of {', '.join(datasets)}"
            )
        texts[name] = _prediction_text(data, model.predict(task, data))
    with atomic_write_dir(folder) as draft:
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
    return [Path(folder) / name for name in texts]


class Predicted:
    """Predict every dataset once, and replace the model, so that tables and files agree."""

    def __init__(
        self,
        model: MultitaskBert,  # anything with .predict(task, dataset)
        datasets: dict[str, Dataset],  # task -> dataset
    ):
        self.predictions = {task: model.predict(task, data) for task, data in datasets.items()}

    def predict(
        self, task: str, dataset: Dataset
    ) -> torch.Tensor:  # (N,) as predicted by the model
        """Return the predictions of a task."""
        return self.predictions[task]


def _prediction(text: str, dataset: Dataset, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    classes = len(dataset.classes) if dataset.classes else None
    if not math.isfinite(value) or (classes and value not in range(classes)):
        wanted = f"a class 0..{classes - 1}" if classes else "a finite number"
        raise ValueError(f"{where}: expected {wanted}, got {quoted(text)}")
    return value


def _check_ids(found: set, dataset: Dataset, file) -> None:
    if found != set(dataset.ids):
        lost, foreign = set(dataset.ids) - found, found - set(dataset.ids)
        raise ValueError(
            f"{file}: expected the {len(dataset)} ids of {dataset.name}, got "
            f"{len(lost)} missing {quoted(sorted(lost)[:1], 80)}, {len(foreign)} foreign"
            f" {quoted(sorted(foreign)[:1], 80)}"
        )


def read_predictions(
    file: str | Path,  # a file in the course's format
    dataset: Dataset,  # what was predicted; gives kind, ids and their order
) -> np.ndarray:  # (N,) float64 in the order of the dataset
    """Read a prediction file and check it against its dataset.

    Raises ValueError naming file and line for a wrong header, a malformed line, a value that
    cannot be (NaN, a class that does not exist), or ids that do not match the dataset's.
    """
    lines = read_lines(file)
    header = ["id", COLUMNS.get(dataset.kind, dataset.kind)]
    if lines[0].split() != header:
        raise ValueError(f"{file}:1: expected header {header}, got {quoted(lines[0])}")
    found = {}
    for number, line in enumerate(lines[1:], 2):
        key, comma, text = (part.strip() for part in line.rpartition(","))
        if not comma or key in found:
            raise ValueError(
                f"{file}:{number}: expected a new 'id , prediction', got {quoted(line)}"
            )
        found[key] = _prediction(text, dataset, f"{file}:{number}")
    _check_ids(set(found), dataset, file)
    return np.array([found[i] for i in dataset.ids])


def swap_symmetry(
    model: MultitaskBert,  # anything with .predict(task, dataset)
    task: str,  # a key of its heads
    dataset: Dataset,  # labelled pairs
) -> float:  # metric(first, second) - metric(second, first); 0 if order is ignored
    """Measure how much a score depends on the order of the two sentences.

    Paper: Wu and Zhao, section 5 (swapping costs .005 on Quora, nothing on STS).
    Raises ValueError if the dataset holds no pairs or no labels.
    """
    if dataset.sentences2 is None:
        raise ValueError(f"expected sentence pairs in {dataset.name}, got single sentences")
    swapped = replace(dataset, sentences=dataset.sentences2, sentences2=dataset.sentences)
    metric, labels = metric_of(dataset)[1], gold_labels(dataset)
    return metric(model.predict(task, dataset), labels) - metric(
        model.predict(task, swapped), labels
    )


class Dropped(NamedTuple):
    """A score with and without a part."""

    full: float  # with it
    dropped: float  # without it
    change: float  # dropped - full


def drop_linear(
    model: MultitaskBert,  # its head for `task` is a LinearPlusCosine
    task: str,  # a key of its heads
    dataset: Dataset,  # labelled pairs
) -> Dropped:
    """Set a head's linear weights to zero, keep bias and cosine, and score again.

    Paper: Wu and Zhao, section 5 (-.455 on Quora, -.007 on STS).
    Raises ValueError if the head is not a LinearPlusCosine.
    """
    head = model.heads[task] if task in model.heads else None  # noqa: SIM401  a ModuleDict has no get
    if not isinstance(head, LinearPlusCosine):
        raise ValueError(
            f"expected a LinearPlusCosine head for {task!r}, got {type(head).__name__}"
        )
    without = copy.deepcopy(model, {id(model.encoder): model.encoder})  # shares the encoder
    torch.nn.init.zeros_(without.heads[task].linear.weight)
    metric, labels = metric_of(dataset)[1], gold_labels(dataset)
    full, dropped = (metric(m.predict(task, dataset), labels) for m in (model, without))
    return Dropped(full, dropped, dropped - full)
