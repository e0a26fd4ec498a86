"""Intervals over rows and seeds, against laws that are known; and what a verdict may not do."""
import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from minbert.claims import SCORES, VERDICTS, Interval, Scored, draw_scores, grouped_spearman, interval, printed_interval, verdict
from minbert.metrics import accuracy, spearman

random = np.random.default_rng(0)
GOLD = random.integers(0, 2, 400)
GOOD, BAD = (np.where(random.random((3, 400)) < p, GOLD, 1 - GOLD) for p in (.8, .7))


def test_rows_alone_follow_the_binomial_law():
    x = draw_scores(GOOD[:1], GOLD, accuracy, 4000)
    deviation = math.sqrt(x.value * (1 - x.value) / 400)
    assert abs(x.draws.std() - deviation) < 4 * deviation / math.sqrt(8000)
    i = interval(x)
    assert abs((i.high - i.low) / 2 - 1.96 * deviation) < 0.15 * deviation and i.low < i.value < i.high


def test_seeds_widen_an_interval():
    """Rows drawn for one seed, against three whose scores lie apart."""
    spread = np.concatenate([GOOD[:1], BAD[:1], GOOD[1:2]])
    one, three = interval(draw_scores(GOOD[:1], GOLD, accuracy)), interval(draw_scores(spread, GOLD, accuracy))
    assert three.high - three.low > one.high - one.low


def test_seeds_alone_follow_the_bootstrap_of_three():
    values = np.array([0.1, 0.2, 0.6])
    i = interval(Scored(values.mean(), np.repeat(values[None], 20_000, 0)))
    assert (i.low, i.high) == pytest.approx((0.1, 0.6))   # each with 1/27 of the 27 ways to draw three seeds, more than 2.5 %
    middle = interval(Scored(values.mean(), np.repeat(values[None], 20_000, 0)), level=0.8)
    means = np.sort([np.mean(v) for v in product(values, repeat=3)])
    assert (middle.low, middle.high) == pytest.approx((means[2], means[-3]))


def test_the_same_rows_for_both_make_a_difference_narrow():
    """Answers that agree but in few rows: the paired interval is far narrower than the difference of two that know nothing of each other."""
    almost = GOOD[:1].copy()
    almost[0, :8] = 1 - almost[0, :8]
    a, b = draw_scores(GOOD[:1], GOLD, accuracy), draw_scores(almost, GOLD, accuracy)
    other = draw_scores(almost, GOLD, accuracy, seed=5)
    paired, apart = interval(a, b), interval(a, other)
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)
    assert paired.value == pytest.approx(a.value - b.value)
    assert interval(b, a).low == pytest.approx(-paired.high) and interval(b, a).high == pytest.approx(-paired.low)


def test_seeds_are_drawn_in_pairs_where_both_have_as_many():
    shift = Scored(0.5, np.repeat([[0.2, 0.5, 0.8]], 500, 0)), Scored(0.4, np.repeat([[0.1, 0.4, 0.7]], 500, 0))
    assert interval(*shift)[:3] == pytest.approx((0.1, 0.1, 0.1))
    fewer = Scored(0.4, np.repeat([[0.1, 0.7]], 500, 0))
    assert interval(shift[0], fewer).high - interval(shift[0], fewer).low > 0.5


def test_undefined_scores_are_left_out_and_all_of_them_are_nan():
    draws = np.full((100, 1), math.nan)
    assert math.isnan(interval(Scored(math.nan, draws)).low)
    draws[:99] = 0.3
    assert interval(Scored(0.3, draws)) == pytest.approx((0.3, 0.3, 0.3, 1))   # the last one is the number left out


@pytest.mark.parametrize("wrong", (GOLD, GOOD[:, :10], np.zeros((0, 400))))
def test_answers_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError, match=r"expected answers of shape \(seeds, 400\)"):
        draw_scores(wrong, GOLD, accuracy)


def test_no_draw_tells_nothing():
    with pytest.raises(ValueError, match="at least 1 draw, got 0"):
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
    assert printed_interval(r.statistic, 80, "pearson")[1:3] == pytest.approx((theirs.low, theirs.high), abs=1e-4)
    ranks, plain = printed_interval(.5, 80, "spearman"), printed_interval(.5, 80, "pearson")
    assert math.atanh(ranks.high) - math.atanh(.5) == pytest.approx(1.03 * (math.atanh(plain.high) - math.atanh(.5)))
    with pytest.raises(ValueError, match="at least 4 rows, got 3"):
        printed_interval(.5, 3, "pearson")
    for value, metric in ((58.2, "spearman"), (.5, "f1"), (math.nan, "accuracy")):   # a figure times 100 has no interval
        with pytest.raises(ValueError, match="of at most 1, and its metric"):
            printed_interval(value, 80, metric)


@pytest.mark.parametrize("low, high, printed, says", (
    (.001, .2, None, 0), (.001, .2, .5, 0), (-.1, .2, .3, 1), (-.1, .2, .2, 2), (-.1, .2, .1, 2), (-.1, .2, None, 2), (-.2, -.1, None, 1),
    (-.2, -.1, -.15, 1), (-.2, .1, -.15, 2), (0, .1, .2, 1), (math.nan, math.nan, .1, 2)))
def test_three_verdicts(low, high, printed, says):
    assert verdict(Interval(0, low, high), printed) == VERDICTS[says]


def test_subsets_count_by_their_size():
    x, y, group = random.normal(size=90), random.normal(size=90), np.repeat([0, 1], [30, 60])
    by_hand = (30 * spearman(x[:30], y[:30]) + 60 * spearman(x[30:], y[30:])) / 90
    assert grouped_spearman(x, np.stack([y, group], 1)) == pytest.approx(by_hand)
    assert SCORES["wmean"] is grouped_spearman
