"""The demo: fine-tune the embedded model on the open data, and show a table and a figure of the
scores before and after.

Each score stands beside three others: a constant, a bag of words trained on the same rows, and the
same model before training. Dev is scored once, at the end, because keeping the best of several
evaluations would bias the score upwards. Both answers of a comparison are resampled on the same
rows, so that an easy draw helps neither.
"""

__all__ = [
    "Comparison",
    "compare",
    "demo_table",
    "fine_tune",
    "word_order",
    "tune_and_compare",
    "pair_cosines",
    "outer_thirds",
    "middle_row",
    "demo_figure",
]

import copy
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..baselines import BagOfWords
from ..data import Dataset, load_dataset
from ..evaluate import metric_of
from ..finetune import TrainConfig, fit
from ..heads import MultitaskBert
from ..metrics import Interval, majority_baseline, paired_bootstrap
from ..sentence import SentenceEncoder, safe_cosine
from ..sts import gold_labels
from .custom_tasks import build_heads


class Comparison(NamedTuple):
    """One task's score on dev beside what it must beat."""

    metric: str  # "accuracy" or "Pearson"
    # always the most frequent class of train; NaN for grades: a constant has no correlation
    # (chapter 12)
    constant: float
    bag: float  # a bag of words that learned from the same rows
    before: float  # the model, its heads untrained
    after: Interval  # the model, trained, with its 95 % interval
    gain: Interval  # after - bag, both on the same drawn rows


def compare(
    train: Dataset,  # what the model learned from
    dev: Dataset,  # labelled
    before: Iterable[float],  # (N,) answers of the model to dev, its heads untrained
    after: Iterable[float],  # (N,) the same, trained
) -> Comparison:
    """Score a model before and after training beside a constant and a bag of words, which learn
    from train as it did.

    Raises ValueError for a dataset without labels, or answers that do not fit dev.
    """
    (name, metric), labels = metric_of(dev), gold_labels(dev)
    bag = BagOfWords().fit(train).predict(dev)
    constant = majority_baseline(labels, train.labels)[1] if dev.classes else math.nan
    return Comparison(
        name,
        constant,
        metric(bag, labels),
        metric(before, labels),
        paired_bootstrap(metric, after, labels),
        paired_bootstrap(metric, after, labels, bag),
    )


def demo_table(
    rows: dict[str, Comparison],  # by task
) -> str:
    """Lay out the demo's results, one line a task."""
    lines = [
        f"{'dev':12s} {'metric':9s} {'constant':>8s} {'bag of words':>13s} {'before':>7s} {'after':>7s}  {'95 % interval':14s}  after - bag of words"
    ]
    for task, (metric, constant, bag, before, after, gain) in rows.items():
        lines.append(
            f"{task:12s} {metric:9s} {'none' if math.isnan(constant) else f'{constant:.3f}':>8s} {bag:13.3f} {before:7.3f} {after.value:7.3f}  {after.low:.3f} to {after.high:.3f}"
            f"  {gain.value:+.3f}  ({gain.low:+.3f} to {gain.high:+.3f})"
        )
    lines.append("intervals: 95 %, examples only; another seed would change the scores as well")
    return "\n".join(lines)


def fine_tune(
    train_sets: dict[str, Dataset],  # task -> rows to learn from
    dev_sets: dict[str, Dataset],  # task -> rows for the log
    # gets model, log and checkpoint; an earlier run in it is replaced
    folder: Path,
    epochs: int = 1,  # passes over every task
    seed: int = 11711,  # course default
    progress: bool = False,  # draw a bar
) -> tuple[MultitaskBert, MultitaskBert]:  # before and after
    """Train the embedded model on all tasks at once. A step has 32 rows of the longest task and as
    large a share of each other one.

    The heads are new and learn faster than the encoder. Squared errors of grades have gradients
    more than ten times as long as a class's, so they count a tenth. These settings were chosen on
    rows of train; dev is scored once, after the last step: it chooses nothing.
    """
    torch.manual_seed(seed)
    encoder = SentenceEncoder.from_pretrained()
    model = MultitaskBert(encoder, build_heads(encoder.width, train_sets))
    before = copy.deepcopy(model).eval()
    steps = math.ceil(max(map(len, train_sets.values())) / 32)
    grades = {task: 0.1 for task, data in train_sets.items() if not data.classes}
    config = TrainConfig(
        tuple(train_sets),
        steps=epochs * steps,
        lr=4e-4,
        head_lr=4e-3,
        loss_weights=grades,
        seed=seed,
        batch_size={task: math.ceil(len(data) / steps) for task, data in train_sets.items()},
    )
    fit(model, train_sets, dev_sets, config, folder, progress=progress)
    return before, MultitaskBert.from_pretrained(folder / "model")


def word_order(
    split: str,  # "train", "dev" or "test"
) -> Dataset:  # both forms of each sentence, one after the other
    """Load `bigram-shift` for the demo: one sentence in four of train, and every sentence of dev
    and test.
    """
    data, every = load_dataset("bigram_shift", split), 4 if split == "train" else 1
    return data.subset(row for row in range(len(data)) if row // 2 % every == 0)


def tune_and_compare(
    train_sets: dict[str, Dataset],  # task -> examples to learn from
    dev_sets: dict[str, Dataset],  # task -> examples to score
    folder: Path,  # see `fine_tune`
    epochs: int,
    seed: int,
    # before and after; task -> its row of the table
) -> tuple[tuple[MultitaskBert, MultitaskBert], dict[str, Comparison]]:
    """Fine-tune the embedded model, and score it before and after on each task."""
    models = fine_tune(train_sets, dev_sets, folder, epochs, seed, progress=True)
    rows = {}
    for task, dev in dev_sets.items():
        before, after = (model.predict(task, dev) for model in models)
        rows[task] = compare(train_sets[task], dev, before, after)
    return models, rows


def pair_cosines(
    model: MultitaskBert,
    dataset: Dataset,  # N pairs
) -> np.ndarray:  # (N,) in [-1, 1]
    """Compare the two sentences of every pair by the encoder alone."""
    return safe_cosine(
        *(model.encoder.encode(side) for side in (dataset.sentences, dataset.sentences2))
    ).numpy()


def outer_thirds(
    grades,  # (N,) numbers
    # rows of the lowest and of the highest third, those on the border too
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs that people held for least and for most alike."""
    low, high = np.quantile(grades, [1 / 3, 2 / 3])
    return np.flatnonzero(np.asarray(grades) <= low), np.flatnonzero(np.asarray(grades) >= high)


def middle_row(
    cosines: np.ndarray,  # (N,)
    rows: np.ndarray,  # some of the N
) -> int:  # one of them
    """Find the row whose cosine is in the middle of those of all the rows."""
    return int(rows[np.argsort(cosines[rows], kind="stable")[len(rows) // 2]])


def demo_figure(
    cosines: dict[str, np.ndarray],  # name -> (N,) cosines of the pairs, before and after
    dataset: Dataset,  # N graded pairs
    path: Path | None = None,  # .png to save it in
) -> None:
    """Draw the cosines of the outer thirds of the grades, one panel a model; mark and write out one
    real pair of each third.
    """
    from minbert.core.figures import cosine_histogram, panels

    lowest, highest = outer_thirds(gold_labels(dataset))
    # in this order: high grades have one colour in all chapters, low ones another
    groups = {"highest third of the grades": highest, "lowest third": lowest}
    typical = {
        mark: middle_row(next(iter(cosines.values())), rows)
        for mark, rows in zip("AB", (lowest, highest))
    }
    # the panels share them: none may cut the pairs of another
    limits = np.floor(4 * min(values.min() for values in cosines.values())) / 4, 1
    axes = panels(len(cosines), (5.2 * len(cosines), 3.9), share=True)
    for ax, (name, values) in zip(axes, cosines.items()):
        cosine_histogram(
            {label: values[rows] for label, rows in groups.items()},
            ax=ax,
            title=name,
            limits=limits,
        )
        for (mark, row), side in zip(typical.items(), ("right", "left")):
            ax.annotate(
                f"{mark} {values[row]:.2f}",
                (values[row], 0),
                (0, 42),
                textcoords="offset points",
                ha=side,
                arrowprops={"arrowstyle": "->"},
                # the outlines run behind these words
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
            )
    lines = [
        f"{mark}, grade {dataset.labels[row]:g}: {dataset.sentences[row]} | {dataset.sentences2[row]}"
        for mark, row in typical.items()
    ]
    axes[0].figure.supxlabel("\n".join(lines), fontsize="small", x=0.02, ha="left")
    if path:
        axes[0].figure.savefig(path, dpi=150, bbox_inches="tight")
