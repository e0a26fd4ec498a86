"""How often an interval from a few seeds contains the true score: simulations in which the truth is
known.

    python tests/test_coverage.py    # the whole table, with the intervals that were tried and left
"""

import math
from functools import cache

import numpy as np
import pytest

from minbert.metrics import accuracy, auc, spearman
from minbert.significance import Scored, draw_scores, interval

SEEDS = (2, 3, 5, 10)
RATIOS = (0.1, 1.0, 10.0, 100.0)  # variance across seeds over variance of the examples
LOWEST, HIGHEST = 0.93, 0.98


def monte_carlo_error(n: int) -> float:
    """Give two standard errors of a coverage near 95 % that is counted in n simulations."""
    return 2 * math.sqrt(0.95 * 0.05 / n)


def simulate_scores(seeds, ratio, own_share, replicates, random, samples=200):
    """Draw experiments whose scores are normal, with a true score of 0.

    The variance of the examples that all seeds share is 1, and that across seeds is `ratio`. Of the
    latter, `own_share` depends on the examples: on others, one seed gains and another loses.
    """
    own, rest = math.sqrt(ratio * own_share), math.sqrt(ratio * (1 - own_share))
    for _ in range(replicates):
        by_seed = (
            random.normal() + own * random.normal(size=seeds) + rest * random.normal(size=seeds)
        )
        draws = (
            by_seed + random.normal(size=(samples, 1)) + own * random.normal(size=(samples, seeds))
        )
        yield Scored(by_seed, draws)


@pytest.mark.parametrize("own_share", [0.0, 0.5])
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_interval_contains_the_true_score_as_often_as_it_states(seeds, ratio, own_share):
    replicates = 2000
    random = np.random.default_rng([seeds, int(10 * ratio), int(10 * own_share)])
    found = [
        interval(scored) for scored in simulate_scores(seeds, ratio, own_share, replicates, random)
    ]
    covered = np.mean([i.low <= 0 <= i.high for i in found])
    error = monte_carlo_error(replicates)
    assert LOWEST - error <= covered <= HIGHEST + error


# Metrics that are not means. A model's prediction for an example is the label plus noise, part of
# it
# shared by all seeds; a seed is as good as its own noise is small.

EXAMPLES = 150


def weighted_ranks(values, counts):
    """Rank values that occur several times, as in a bootstrap sample: (R, N) counts -> (R, N) mean
    ranks.
    """
    order = np.argsort(values)
    sorted_counts = counts[:, order]
    last = sorted_counts.cumsum(1)
    ranks = np.empty_like(last, dtype=float)
    ranks[:, order] = last - (sorted_counts - 1) / 2
    return ranks


def weighted_spearman(predictions, labels, counts):
    x, y = weighted_ranks(predictions, counts), weighted_ranks(labels, counts)
    n = counts.sum(1, keepdims=True)
    x, y = x - (counts * x).sum(1, keepdims=True) / n, y - (counts * y).sum(1, keepdims=True) / n
    return (counts * x * y).sum(1) / np.sqrt((counts * x * x).sum(1) * (counts * y * y).sum(1))


def weighted_auc(predictions, labels, counts):
    ranks, positive = weighted_ranks(predictions, counts), labels > 0
    p = counts[:, positive].sum(1)
    n = counts[:, ~positive].sum(1)
    return ((counts * ranks)[:, positive].sum(1) - p * (p + 1) / 2) / (p * n)


def weighted_accuracy(predictions, labels, counts):
    right = (predictions > 0) == (labels > 0)
    return (counts * right).sum(1) / counts.sum(1)


METRICS = {
    "accuracy": (weighted_accuracy, lambda x, y: accuracy(x > 0, y > 0)),
    "Spearman": (weighted_spearman, spearman),
    "AUC": (weighted_auc, lambda x, y: auc(x, y > 0)),
}


def predictions_of(labels, noise, random, own_share=0.3):
    """Give predictions of several seeds, each with its own amount of noise: (S, N)."""
    shared = random.normal(size=labels.shape) * math.sqrt(1 - own_share)
    own = random.normal(size=(len(noise), *labels.shape)) * math.sqrt(own_share)
    return labels + np.asarray(noise)[:, None] * (shared + own)


def score_once(metric, predictions, labels):
    return METRICS[metric][0](predictions, labels, np.ones((1, len(labels))))[0]


@cache
def population(metric):
    """Tabulate the score on very many examples for each amount of noise, and its deviation on
    EXAMPLES.
    """
    random = np.random.default_rng(5)
    noises = np.linspace(0.2, 2.2, 41)
    labels = random.normal(size=100_000)
    whole = [
        score_once(metric, predictions_of(labels, [noise], random)[0], labels) for noise in noises
    ]
    small = [
        score_once(metric, predictions_of(y, [1.2], random)[0], y)
        for y in random.normal(size=(2000, EXAMPLES))
    ]
    return noises, np.array(whole), float(np.std(small))


def simulate_metric(metric, seeds, ratio, replicates, random, samples=200):
    """Draw experiments with real predictions; yield the scores and the true mean over all seeds."""
    noises, whole, deviation = population(metric)
    slope = np.gradient(np.poly1d(np.polyfit(noises, whole, 3))(noises), noises)
    spread = math.sqrt(ratio) * deviation / abs(np.interp(1.2, noises, slope))
    spread = min(spread, 0.5)  # no more: the noise of a seed stays between the ends of the table

    def quality(size):
        return 1.2 + spread * random.uniform(-math.sqrt(3), math.sqrt(3), size)

    truth = float(np.interp(quality(200_000), noises, whole).mean())
    weighted = METRICS[metric][0]
    for _ in range(replicates):
        labels = random.normal(size=EXAMPLES)
        predictions = predictions_of(labels, quality(seeds), random)
        counts = random.multinomial(EXAMPLES, np.full(EXAMPLES, 1 / EXAMPLES), size=samples)
        by_seed = np.array([score_once(metric, p, labels) for p in predictions])
        draws = np.stack([weighted(p, labels, counts) for p in predictions], 1)
        yield Scored(by_seed, draws), truth


@pytest.mark.parametrize("metric", METRICS)
def test_weighted_scores_are_those_of_the_repeated_examples(metric):
    random = np.random.default_rng(3)
    labels = random.normal(size=40)
    predictions = predictions_of(labels, [1.0, 1.5], random)
    sample = random.integers(40, size=40)
    counts = np.bincount(sample, minlength=40)[None]
    weighted, plain = METRICS[metric]
    for p in predictions:
        assert weighted(p, labels, counts)[0] == pytest.approx(plain(p[sample], labels[sample]))
    drawn = draw_scores(predictions, labels, plain, 3)
    assert drawn.by_seed == pytest.approx([score_once(metric, p, labels) for p in predictions])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("ratio", RATIOS[:3])
@pytest.mark.parametrize("seeds", SEEDS)
def test_the_coverage_holds_for_metrics_that_are_not_means(metric, seeds, ratio):
    replicates = 400
    random = np.random.default_rng([seeds, int(10 * ratio), len(metric)])
    covered = np.mean(
        [
            found.low <= truth <= found.high
            for found, truth in (
                (interval(scored), truth)
                for scored, truth in simulate_metric(metric, seeds, ratio, replicates, random)
            )
        ]
    )
    error = monte_carlo_error(replicates)
    assert LOWEST - error <= covered <= HIGHEST + error


def percentile(scored, random):
    """The interval of the second edition: quantiles of means over drawn examples and drawn seeds."""
    pick = random.integers(scored.draws.shape[1], size=scored.draws.shape)
    return np.quantile(np.take_along_axis(scored.draws, pick, 1).mean(1), [0.025, 0.975])


def main():
    random = np.random.default_rng(1)
    print(
        "coverage of 95 % intervals in 4,000 simulations\nseeds  ratio  percentile bootstrap  this package"
    )
    for seeds in SEEDS:
        for ratio in RATIOS:
            ours, old = [], []
            for scored in simulate_scores(seeds, ratio, 0.0, 4000, random):
                found, (low, high) = interval(scored), percentile(scored, random)
                ours.append(found.low <= 0 <= found.high)
                old.append(low <= 0 <= high)
            print(f"{seeds:5}  {ratio:5}  {np.mean(old):20.3f}  {np.mean(ours):12.3f}")


if __name__ == "__main__":
    main()
