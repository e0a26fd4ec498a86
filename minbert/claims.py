"""Two scores, two seeds, two thousand sentences: which sentence of a paper still stands?"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from minbert.metrics import accuracy, auc, pearson, spearman
from minbert.sts import aggregate_spearman


class Scored(NamedTuple):
    """A score, and what it would have been on other rows."""

    value: float        # mean over seeds, on the rows as they are
    draws: np.ndarray   # (R, S) scores on R draws of the rows, one column a seed


def draw_scores(
    answers,              # (S, N) numbers: of S seeds to N rows
    gold,                 # (N,) labels; (N, 2) for a metric that wants two columns
    metric: Callable,     # (answers, gold) -> score
    resamples: int = 1000,
    seed: int = 11711,    # of the draws: equal for all that answer the same rows
) -> Scored:
    """Score every seed on rows drawn with replacement, the same rows for all seeds and all that are compared.

    Raises ValueError for answers that do not fit the labels.
    """
    x, y, random = np.asarray(answers, float), np.asarray(gold, float), np.random.default_rng(seed)
    if x.ndim != 2 or not len(x) or x.shape[1] != len(y):
        raise ValueError(f"expected answers of shape (seeds, {len(y)}), got {x.shape}")
    drawn = (random.integers(len(y), size=len(y)) for _ in range(resamples))
    return Scored(float(np.mean([metric(s, y) for s in x])), np.array([[metric(s[rows], y[rows]) for s in x] for rows in drawn]))


class Interval(NamedTuple):
    """A number, and where it may lie."""

    value: float
    low: float
    high: float


def _with_seeds(draws, pick):
    """Mean over as many seeds, drawn with replacement, once a draw of rows: (R,)."""
    return np.take_along_axis(draws, pick, 1).mean(1)


def interval(
    one: Scored,
    other: Scored | None = None,   # on the same rows; then the difference
    level: float = 0.95,
    seed: int = 11711,
) -> Interval:
    """Give the middle 95 % of a mean score, or of the difference of two, over rows and seeds together.

    Where both have the same number of seeds these are drawn in pairs: seed 1 of both saw the same order of the data.
    """
    random = np.random.default_rng(seed + 1)
    pick = random.integers(one.draws.shape[1], size=one.draws.shape)
    means, value = _with_seeds(one.draws, pick), one.value
    if other is not None:
        paired = other.draws.shape == one.draws.shape
        theirs = pick if paired else random.integers(other.draws.shape[1], size=other.draws.shape)
        means, value = means - _with_seeds(other.draws, theirs), value - other.value
    if np.isnan(means).all():
        return Interval(value, math.nan, math.nan)
    low, high = np.nanquantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def printed_interval(
    value: float,    # what a paper printed
    n: int,          # rows that it was measured on
    metric: str,     # "accuracy" or "auc": a share; "pearson", "spearman": a correlation
) -> Interval:
    """Give the interval that a printed figure would have had from its rows alone; seeds come on top.

    A share: Wilson (1927). A correlation: Fisher's z = artanh r with deviation 1 / sqrt(n - 3), for ranks 1.03 / sqrt(n - 3)
    (Fieller, Hartley and Pearson, 1957).
    Raises ValueError for fewer than 4 rows.
    """
    if n < 4:
        raise ValueError(f"expected at least 4 rows, got {n}")
    z = 1.96
    if metric in ("accuracy", "auc"):
        middle, half = value + z * z / (2 * n), z * math.sqrt(value * (1 - value) / n + z * z / (4 * n * n))
        return Interval(value, (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    half = z * (1.03 if metric in ("spearman", "wmean") else 1) / math.sqrt(n - 3)
    centre = math.atanh(max(-0.999999, min(0.999999, value)))
    return Interval(value, math.tanh(centre - half), math.tanh(centre + half))


VERDICTS = ("holds", "does not hold", "cannot be told at this size")


def verdict(
    gain: Interval,                  # of the row that is said to be better over the other
    printed: float | None = None,    # gain in the paper; None: it names none
) -> str:                            # one of VERDICTS
    """Judge a sentence of the form "A is better than B".

    It holds if the whole interval is above zero. It does not hold if the interval is not above zero and leaves out the printed gain, or,
    where none was printed, lies below zero. Else zero and the printed gain are both inside: this many rows and seeds cannot tell.
    """
    if gain.low > 0:
        return VERDICTS[0]
    return VERDICTS[1] if gain.high < (printed if printed is not None and printed > 0 else 0) else VERDICTS[2]


def grouped_spearman(
    scores,   # (N,) similarities
    gold,     # (N, 2) grade, and number of the subset
) -> float:
    """Mean of the subsets' Spearman correlations, weighted by their sizes (Li et al.)."""
    return aggregate_spearman(scores, gold[:, 0], gold[:, 1].astype(int), "wmean")


SCORES = {"accuracy": accuracy, "pearson": pearson, "spearman": spearman, "auc": auc, "wmean": grouped_spearman}
