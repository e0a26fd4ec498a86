"""Scores of stored predictions: on the examples as they are, and on bootstrap samples of them.

`draw_scores` of chapter 27 calls a metric once for each sample. Here all samples of a metric are
scored together, from how often each example was drawn; the values are the same.
"""

from __future__ import annotations

__all__ = ["SAMPLES", "gold_of", "score_of", "sample_counts", "sample_scores"]

import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..data import Dataset
from ..significance import SCORES
from .run import labelled

SAMPLES = 2000  # bootstrap samples behind every interval
CHUNK = 50  # samples that are scored at once: small enough for the cache of a processor


def gold_of(data: Dataset, metric: str) -> np.ndarray:  # (N,) labels; (N, 2) with subsets
    """Give the labels in the form that a metric takes: "wmean" needs the subset of each example."""
    labels = np.array(data.labels, float)
    if metric != "wmean":
        return labels
    groups = np.unique(data.subsets or [data.name] * len(data), return_inverse=True)[1]
    return np.stack([labels, groups], 1)


def score_of(dataset: str, metric: str, predictions, data: str | None) -> float | None:
    """Score predictions on their examples; None where the score is undefined.

    Raises ValueError naming the data set if the number of predictions is not that of its examples.
    """
    gold = gold_of(labelled(dataset, data), metric)
    if len(gold) != len(predictions):
        raise ValueError(
            f"{dataset}: expected {len(gold)} predictions, one for each example, "
            f"got {len(predictions)}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # constant predictions: no correlation
        value = SCORES[metric](np.asarray(predictions, float), gold)
    return None if np.isnan(value) else float(value)


@lru_cache(maxsize=16)
def sample_counts(
    size: int,  # N examples
    samples: int,  # R
    seed: int,
) -> np.ndarray:  # (R, N) uint16: how often each example is in a sample
    """Draw bootstrap samples as `claims.draw_scores` does, and count their examples."""
    random = np.random.default_rng(seed)
    drawn = (random.integers(size, size=size) for _ in range(samples))
    return np.array([np.bincount(rows, minlength=size) for rows in drawn], np.uint16)


def sample_scores(
    predictions,  # (N,) of one seed
    gold: np.ndarray,  # as `gold_of` gives it
    metric: str,  # a key of `claims.SCORES`
    samples: int,  # R
    seed: int,
) -> np.ndarray:  # (R,) scores, NaN where a sample leaves them undefined
    """Score bootstrap samples of the examples."""
    counts, x = sample_counts(len(gold), samples, seed), np.asarray(predictions, float)
    parts = [counts[i : i + CHUNK].astype(float) for i in range(0, samples, CHUNK)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([_METRICS[metric](x, gold, part) for part in parts])


def _accuracy(x, y, counts):
    """Fraction of correct predictions: (R,)."""
    return counts @ (x == y) / len(x)


def _pearson(x, y, counts):
    """Correlation from weighted sums: (R,). Vectors are centred first, for the sake of rounding."""
    size = len(x)
    x, y = _scaled(x), _scaled(y)
    sum_x, sum_y = counts @ x, counts @ y
    variance_x, variance_y = (counts @ v**2 - s**2 / size for v, s in ((x, sum_x), (y, sum_y)))
    constant = (variance_x < 1e-12) | (variance_y < 1e-12)
    value = (counts @ (x * y) - sum_x * sum_y / size) / np.sqrt(variance_x * variance_y)
    return np.where(constant, np.nan, value)


def _scaled(x):
    """Centre a vector, and divide it by its largest value."""
    x = x - x.mean()
    return x / (np.abs(x).max() or 1.0)


def _ranks(x, counts):
    """Average rank of each example within each sample: (R, N)."""
    order = np.argsort(x, kind="stable")
    is_sorted = bool((np.diff(order) > 0).all())
    first = np.r_[True, np.diff(x[order]) != 0]  # of its group of equal values
    sizes = counts if is_sorted else np.take(counts, order, axis=1)
    if not first.all():
        sizes = np.add.reduceat(sizes, np.flatnonzero(first), axis=1)
    ranks = np.cumsum(sizes, 1) - (sizes - 1) / 2
    if is_sorted and first.all():
        return ranks
    group = np.empty(len(x), int)
    group[order] = np.cumsum(first) - 1
    return np.take(ranks, group, axis=1)


def _spearman(x, y, counts):
    """Correlation of the ranks within each sample: (R,). Sorted predictions need no look-up."""
    order = np.argsort(x, kind="stable")
    x, y, counts = x[order], y[order], np.take(counts, order, axis=1)
    middle = (counts.sum(1, keepdims=True) + 1) / 2
    x, y = _ranks(x, counts) - middle, _ranks(y, counts) - middle
    weighted = counts * x
    variance_x, covariance = (np.einsum("rn,rn->r", weighted, other) for other in (x, y))
    variance_y = np.einsum("rn,rn,rn->r", counts, y, y)
    return covariance / np.sqrt(variance_x * variance_y)  # 0 / 0 is NaN: constant ranks


def _auc(x, y, counts):
    """Area under the ROC curve from the ranks of the positive examples: (R,)."""
    positive = (y > 0).astype(float)
    ranks = np.einsum("rn,rn,n->r", counts, _ranks(x, counts), positive)
    number = counts @ positive
    return (ranks - number * (number + 1) / 2) / (number * (len(x) - number))


def _wmean(x, gold, counts):
    """Spearman correlation of each subset, averaged with its size in the sample: (R,)."""
    total = np.zeros(len(counts))
    for group in np.unique(gold[:, 1]):
        rows = gold[:, 1] == group
        size = counts[:, rows].sum(1)
        value = _spearman(x[rows], gold[rows, 0], counts[:, rows])
        total += np.where(size > 0, size * value, 0.0)
    return total / len(x)


_METRICS: dict[str, Callable] = {
    "accuracy": _accuracy,
    "pearson": _pearson,
    "auc": _auc,
    "spearman": _spearman,
    "wmean": _wmean,
}
