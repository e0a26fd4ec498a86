"""Intervals over rows and seeds, against laws that are known; and what a verdict may not do."""

import math

import numpy as np
import pytest
from scipy import stats

from minbert.metrics import accuracy, spearman
from minbert.significance import (
    DIRECTIONS,
    SCORES,
    VERDICTS,
    Interval,
    Scored,
    draw_scores,
    grouped_spearman,
    interval,
    printed_interval,
    verdict,
)

random = np.random.default_rng(0)
GOLD = random.integers(0, 2, 400)
GOOD, BAD = (np.where(random.random((3, 400)) < p, GOLD, 1 - GOLD) for p in (0.8, 0.7))


def test_rows_alone_follow_the_binomial_law():
    x = draw_scores(GOOD[:1], GOLD, accuracy, 4000)
    deviation = math.sqrt(x.value * (1 - x.value) / 400)
    assert abs(x.draws.std() - deviation) < 4 * deviation / math.sqrt(8000)
    i = interval(x)
    assert (
        abs((i.high - i.low) / 2 - 1.96 * deviation) < 0.15 * deviation and i.low < i.value < i.high
    )


def constant_draws(*by_seed, samples=500):
    """Scores of seeds that no other examples would change."""
    values = np.array(by_seed)
    return Scored(values, np.repeat(values[None], samples, 0))


def test_one_seed_has_the_percentile_interval_over_examples_and_says_so():
    one = draw_scores(GOOD[:1], GOLD, accuracy)
    found = interval(one)
    assert (
        found[1:3] == pytest.approx(np.quantile(one.draws, [0.025, 0.975]))
        and found.scope == "examples only"
    )
    three = interval(draw_scores(GOOD, GOLD, accuracy))
    assert three.seeds == 3 and three.scope == "examples and 3 seeds"


def test_seeds_widen_an_interval():
    """One seed, against three whose scores lie apart."""
    spread = np.concatenate([GOOD[:1], BAD[:1], GOOD[1:2]])
    one = interval(draw_scores(GOOD[:1], GOLD, accuracy))
    three = interval(draw_scores(spread, GOLD, accuracy))
    assert three.high - three.low > one.high - one.low


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("values", [(0.1, 0.2), (0.1, 0.2, 0.6), (0.3, 0.5, 0.1, 0.8, 0.2)])
def test_variance_across_seeds_alone_gives_students_interval(values, level):
    theirs = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
    assert interval(constant_draws(*values), level=level)[:3] == pytest.approx(
        (np.mean(values), *theirs)
    )


def test_the_standard_error_has_both_parts_and_the_degrees_of_freedom_lie_between():
    values = np.array([0.70, 0.74, 0.69])
    examples = np.random.default_rng(1).normal(scale=0.03, size=(2000, 1))
    found = interval(Scored(values, values + examples))
    a, b = examples.var(ddof=1), values.var(ddof=1) / 3
    df = 2 / (b / (a + b)) ** 0.6
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(a + b))
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_what_seeds_owe_to_the_examples_is_not_counted_twice():
    """Ten seeds that agree on average and differ in every example: their variance is all there is."""
    random = np.random.default_rng(2)
    values = random.normal(scale=0.02, size=10)
    found = interval(Scored(values, values + random.normal(scale=0.02, size=(4000, 10))))
    half = stats.t.ppf(0.975, 9) * values.std(ddof=1) / math.sqrt(10)
    assert found.high - found.value == pytest.approx(half, rel=0.05)


def test_two_seeds_with_equal_scores_by_chance_have_an_interval():
    """Right on as many examples, but on others: no variance across seeds, and a negative
    covariance.
    """
    predictions = np.array([[1] * 15 + [0] * 15, [0] * 10 + [1] * 15 + [0] * 5])
    found = interval(draw_scores(predictions, [1] * 30, accuracy))
    assert found.low < 0.5 < found.high and found.seeds == 2
    spread = np.random.default_rng(1).normal(size=(500, 3)) * [1, -1, 0.5] + np.array([0.7] * 3)
    assert (
        interval(Scored(np.array([0.7] * 3), spread - spread.mean(1, keepdims=True) / 3)).low < 0.69
    )


def test_the_same_rows_for_both_make_a_difference_narrow():
    """Predictions that agree but for few examples: the paired interval is far narrower than that of
    two independent samples.
    """
    almost = GOOD[:1].copy()
    almost[0, :8] = 1 - almost[0, :8]
    a, b = draw_scores(GOOD[:1], GOLD, accuracy), draw_scores(almost, GOLD, accuracy)
    other = draw_scores(almost, GOLD, accuracy, seed=5)
    paired, apart = interval(a, b), interval(a, other)
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)
    assert paired.value == pytest.approx(a.value - b.value)
    assert interval(b, a).low == pytest.approx(-paired.high) and interval(
        b, a
    ).high == pytest.approx(-paired.low)


def test_seeds_are_compared_in_pairs():
    better, worse = constant_draws(0.2, 0.5, 0.8), constant_draws(0.1, 0.4, 0.7)
    # the same seed by seed, whatever the seed
    assert interval(better, worse)[:3] == pytest.approx((0.1, 0.1, 0.1))
    with pytest.raises(ValueError, match="the same seeds for both methods, got 3 and 2"):
        interval(better, constant_draws(0.1, 0.4))
    with pytest.raises(ValueError, match="the same number of bootstrap samples, got 500 and 400"):
        interval(better, constant_draws(0.1, 0.4, 0.7, samples=400))


def test_a_method_without_seeds_is_compared_with_every_seed():
    bag = draw_scores(BAD[:1], GOLD, accuracy, deterministic=True)
    found = interval(draw_scores(GOOD, GOLD, accuracy), bag)
    turned = interval(bag, draw_scores(GOOD, GOLD, accuracy))
    assert found.seeds == turned.seeds == 3
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert interval(bag, bag).seeds == 0  # no seeds, so examples are all there is
    assert (
        verdict(interval(draw_scores([GOLD], GOLD, accuracy, deterministic=True), bag)) == "higher"
    )


def test_undefined_scores_are_left_out_and_all_of_them_are_nan():
    draws = np.full((100, 1), math.nan)
    assert math.isnan(interval(Scored(np.array([math.nan]), draws)).low)
    draws[:99] = 0.3
    # one sample was left out
    assert interval(Scored(np.array([0.3]), draws)) == pytest.approx((0.3, 0.3, 0.3, 1, 1))


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_a_level_is_a_probability(level):
    with pytest.raises(ValueError, match="level between 0 and 1"):
        interval(constant_draws(0.1, 0.2), level=level)


@pytest.mark.parametrize("wrong", (GOLD, GOOD[:, :10], np.zeros((0, 400))))
def test_answers_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expected predictions of shape \(seeds, 400\)"):
        draw_scores(wrong, GOLD, accuracy)


def test_no_draw_tells_nothing():
    with pytest.raises(ValueError, match="at least 1 bootstrap sample, got 0"):
        draw_scores(GOOD, GOLD, accuracy, 0)


@pytest.mark.parametrize("right, n", ((5, 10), (0, 20), (20, 20), (578, 1101)))
def test_a_printed_share_has_wilsons_interval(right, n):
    theirs = stats.binomtest(right, n).proportion_ci(method="wilson")
    mine = printed_interval(right / n, n, "accuracy")
    assert mine[1:3] == pytest.approx((theirs.low, theirs.high), abs=1e-4)


def test_a_printed_correlation_has_fishers_interval():
    x = random.normal(size=80)
    y = x + random.normal(size=80)
    r = stats.pearsonr(x, y)
    theirs = r.confidence_interval()
    assert printed_interval(r.statistic, 80, "pearson")[1:3] == pytest.approx(
        (theirs.low, theirs.high), abs=1e-4
    )
    ranks, plain = printed_interval(0.5, 80, "spearman"), printed_interval(0.5, 80, "pearson")
    assert math.atanh(ranks.high) - math.atanh(0.5) == pytest.approx(
        1.03 * (math.atanh(plain.high) - math.atanh(0.5))
    )
    with pytest.raises(ValueError, match="at least 4 examples, got 3"):
        printed_interval(0.5, 3, "pearson")
    # a figure times 100 has no interval
    for value, metric in ((58.2, "spearman"), (0.5, "f1"), (math.nan, "accuracy")):
        with pytest.raises(ValueError, match="of at most 1, and its metric"):
            printed_interval(value, 80, metric)


@pytest.mark.parametrize(
    "low, high, printed, says",
    (
        # ours exceeds it
        (0.001, 0.2, 0.1, "reproduced"),
        (0.001, 0.2, 0.2, "reproduced"),
        (0.3, 0.4, 0.1, "reproduced"),
        (0.001, 0.2, 0.5, "same sign, smaller"),
        (-0.2, -0.001, -0.5, "same sign, smaller"),
        (-0.2, -0.1, -0.15, "reproduced"),
        (-0.4, -0.3, -0.15, "reproduced"),
        (-0.2, -0.1, 0.1, "reversed"),
        (0.1, 0.2, -0.1, "reversed"),
        (-0.1, 0.2, 0.1, "inconclusive"),
        (-0.1, 0.2, 0.5, "inconclusive"),
        (0, 0.1, 0.05, "inconclusive"),
        (-0.005, 0.003, 0.1, "inconclusive"),
        (-0.01, 0.02, 0, "null agrees"),
        (0.005, 0.015, 0, "null agrees"),
        (-0.03, 0.01, 0, "inconclusive"),
        (0.021, 0.05, 0, "reversed"),
        (-0.05, -0.021, 0, "reversed"),
        (math.nan, math.nan, 0.1, "inconclusive"),
        (math.nan, math.nan, 0, "inconclusive"),
        (0.001, 0.2, None, "higher"),
        (-0.2, -0.001, None, "lower"),
        (-0.01, 0.01, None, "no difference"),
        (-0.1, 0.1, None, "inconclusive"),
    ),
)
def test_verdicts(low, high, printed, says):
    assert verdict(Interval(0, low, high, seeds=2), printed) == says
    assert says in (DIRECTIONS if printed is None else VERDICTS)
    # one seed supports no claim
    assert verdict(Interval(0, low, high, seeds=1), printed) == "inconclusive"


def test_the_margin_of_a_null_is_stated_beforehand():
    gain = Interval(0, -0.04, 0.04, seeds=5)
    assert (verdict(gain, 0), verdict(gain, 0, margin=0.05)) == ("inconclusive", "null agrees")


def test_subsets_count_by_their_size():
    x, y, group = random.normal(size=90), random.normal(size=90), np.repeat([0, 1], [30, 60])
    by_hand = (30 * spearman(x[:30], y[:30]) + 60 * spearman(x[30:], y[30:])) / 90
    assert grouped_spearman(x, np.stack([y, group], 1)) == pytest.approx(by_hand)
    assert SCORES["wmean"] is grouped_spearman
