"""Metrics against scipy, scikit-learn, closed forms and themselves."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn import metrics as sk

from minbert.evaluate import confusion_matrix
from minbert.metrics import (
    accuracy,
    as_classes,
    as_vector,
    auc,
    average_ranks,
    majority_baseline,
    paired_bootstrap,
    pearson,
    spearman,
)

settings.register_profile("quiet", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("quiet")
tied = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=40)


def drawn(seed, n=50, levels=None):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(2, n)) if levels is None else rng.integers(0, levels, (2, n)).astype(float)
    )


# ---- oracles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 200])
@pytest.mark.parametrize("levels", [None, 3, 10])
def test_correlations_equal_scipy(n, levels):
    for seed in range(5):
        x, y = drawn(seed, n, levels)
        if len(set(x)) < 2 or len(set(y)) < 2:
            continue
        assert_allclose(pearson(x, y), scipy.stats.pearsonr(x, y).statistic, atol=1e-12)
        assert_allclose(spearman(x, y), scipy.stats.spearmanr(x, y).statistic, atol=1e-12)


@given(st.lists(st.integers(-4, 4), max_size=30))
def test_ranks_equal_scipy(values):
    assert_allclose(average_ranks(values), scipy.stats.rankdata(values))


def test_ranks_treat_minus_zero_as_zero():
    assert average_ranks([0.0, -0.0, 1.0]).tolist() == [1.5, 1.5, 3]


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auc_equals_sklearn_and_mann_whitney(rows):
    x, y = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=int)
    if len(set(y)) < 2:
        return
    assert_allclose(auc(x, y), sk.roc_auc_score(y, x))
    u = scipy.stats.mannwhitneyu(x[y == 1], x[y == 0]).statistic
    assert_allclose(auc(x, y), u / ((y == 1).sum() * (y == 0).sum()))


def test_accuracy_and_confusion_equal_sklearn():
    for seed in range(5):
        x, y = drawn(seed, 80, 4)
        assert_allclose(accuracy(x, y), sk.accuracy_score(y, x))
        ours = confusion_matrix(x, y, 4)
        assert ours.tolist() == sk.confusion_matrix(y, x, labels=range(4)).tolist()
        assert ours.dtype == np.int64
    assert confusion_matrix([0, 2], [0, 0], 5).shape == (5, 5)
    assert confusion_matrix([1], [0], 2).tolist() == [[0, 1], [0, 0]]  # row: truth


# ---- closed forms and properties --------------------------------------------------------------


def test_by_hand():
    assert_allclose(pearson([1, 2, 3, 4], [1, 3, 2, 4]), 0.8)
    assert_allclose(spearman([10, 20, 30, 40], [1, 3, 3, 4]), 4.5 / math.sqrt(22.5))
    assert_allclose(auc([0.9, 0.8, 0.8, 0.3, 0.1], [1, 1, 0, 1, 0]), 0.75)
    assert auc([5, 5, 5], [0, 1, 1]) == 0.5
    assert accuracy([1, 2, 3, 3], [1, 2, 3, 4]) == 0.75


@given(tied)
def test_spearman_sees_only_the_order(rows):
    x, y = np.array(rows, dtype=float).T
    if len(set(x)) < 2 or len(set(y)) < 2:
        return
    assert_allclose(spearman(np.exp(x), y**3), spearman(x, y), atol=1e-12)
    assert_allclose(spearman(y, x), spearman(x, y), atol=1e-12)
    assert_allclose(spearman(-x, y), -spearman(x, y), atol=1e-12)
    assert abs(spearman(x, y)) <= 1 and abs(pearson(x, y)) <= 1
    assert_allclose(pearson(2 * x + 5, y), pearson(x, y), atol=1e-12)


def test_pearson_survives_extreme_scales_and_offsets():
    x, y = drawn(0)
    expected = pearson(x, y)
    assert_allclose(pearson(x * 1e-200, y * 1e250), expected)
    assert_allclose(pearson(x + 1e6, y), expected, atol=1e-8)
    x = np.array([0.6, 0.4, 0.0])
    assert pearson(x, 0.1 - 3 * x) == -1  # never -1.0000000000000002


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.asarray,
        torch.tensor,
        lambda v: torch.tensor(v, dtype=torch.bfloat16, requires_grad=True),
        lambda v: torch.tensor(v, dtype=torch.float16),
    ],
)
def test_every_container_is_accepted(kind):
    x, y = [1.0, 2.0, 4.0, 3.0], [1.0, 0.0, 1.0, 1.0]
    for metric in (accuracy, pearson, spearman, auc):
        assert metric(kind(x), kind(y)) == metric(x, y)
        assert type(metric(kind(x), kind(y))) is float


def test_inputs_stay_as_they_were():
    x, y = torch.tensor([3.0, 1.0, 2.0]), np.array([1.0, 0.0, 1.0])
    for metric in (accuracy, pearson, spearman, auc):
        metric(x, y)
    assert x.tolist() == [3, 1, 2] and y.tolist() == [1, 0, 1]


# ---- no answer, bad input ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric, x, y, word",
    [
        (pearson, [3, 3, 3], [1, 2, 3], "predictions are all 3"),
        (pearson, [1, 2, 3], [4, 4, 4], "labels are all 4"),
        (spearman, [3, 3, 3], [1, 2, 3], "predictions are all 3"),
        (spearman, [1, 2, 3], [4, 4, 4], "labels are all 4"),
        (pearson, [0.1] * 3, [0.1] * 3, "predictions are all 0.1 and the labels are all 0.1"),
        (pearson, [1], [2], "items is 1"),
        (spearman, [], [], "items is 0"),
        (auc, [0.1, 0.2], [1, 1], "0 negatives"),
        (auc, [0.1, 0.2], [0, 0], "0 positives"),
        (accuracy, [], [], "no items"),
    ],
)
def test_undefined_is_nan_and_says_why(metric, x, y, word):
    with pytest.warns(RuntimeWarning, match=word):
        assert math.isnan(metric(x, y))


@pytest.mark.parametrize("metric", [accuracy, pearson, spearman, auc])
def test_bad_input_is_refused(metric):
    with pytest.raises(ValueError, match="got 3 and 2"):
        metric([1, 0, 1], [1, 0])
    with pytest.raises(ValueError, match="finite predictions, got nan at position 1"):
        metric([1, math.nan, 0], [1, 0, 1])
    with pytest.raises(ValueError, match="finite labels, got inf at position 2"):
        metric([1, 0, 0], [1, 0, math.inf])
    with pytest.raises(ValueError, match=r"shape \(N,\), got \(2, 1\)"):
        metric(torch.ones(2, 1), [1, 0])
    with pytest.raises(ValueError, match="expected numbers as predictions, got: .*'good'"):
        metric(["good", "bad"], [1, 0])


def test_auc_refuses_other_labels():
    with pytest.raises(ValueError, match="0 or 1, got -1"):
        auc([1, 2], [-1, 1])


def test_classes_are_checked():
    with pytest.raises(ValueError, match="whole numbers in labels, got 0.5"):
        as_classes([0, 0.5], "labels")
    for x, y in (([0, 3], [0, 1]), ([0, 1], [-1, 1])):
        with pytest.raises(ValueError, match=r"in 0..2, got"):
            confusion_matrix(x, y, 3)
    with pytest.raises(ValueError, match="got 2 and 1"):
        confusion_matrix([0, 1], [0], 2)
    assert as_vector(torch.tensor([1, 2]), "x").dtype == np.float64


# ---- baselines --------------------------------------------------------------------------------


def test_course_constants():
    """The numbers that METRICS must print beside every accuracy: the course's dev files."""
    sst = np.repeat([0, 1, 2, 3, 4], [139, 289, 229, 279, 165])
    assert majority_baseline(sst) == (1, 289 / 1101)
    train = np.repeat([0, 1, 2, 3, 4], [1092, 2218, 1624, 2322, 1288])
    assert majority_baseline(sst, train) == (3, 279 / 1101)
    assert accuracy(np.full(1101, 1), sst) == 289 / 1101


def test_baseline_edges():
    assert majority_baseline([2, 2, 1, 1]) == (1, 0.5)  # a tie: the smaller class
    assert majority_baseline([0, 0], train_labels=[1]) == (1, 0.0)  # never seen in dev
    with pytest.raises(ValueError, match="at least one label"):
        majority_baseline([])
    with pytest.raises(ValueError, match="at least one label"):
        majority_baseline([1], train_labels=[])


# ---- bootstrap --------------------------------------------------------------------------------


def test_interval_of_an_accuracy_is_the_binomial_one():
    y = np.zeros(1101)
    x = np.r_[np.zeros(550), np.ones(551)]
    got = paired_bootstrap(accuracy, x, y, resamples=2000)
    half = 1.96 * math.sqrt(0.25 / 1101)
    # of 2,000 draws the outermost 2.5 % begin within 3 % (a standard error) of their place, on a
    # grid of 1/1101, 3 % of it too; seeded whole numbers
    assert_allclose([got.value - got.low, got.high - got.value], half, rtol=0.08)
    assert got.value == accuracy(x, y) and got.undefined == 0
    narrow = paired_bootstrap(accuracy, x, y, resamples=2000, level=0.68)
    assert_allclose(narrow.high - narrow.low, 2 * 0.9945 * math.sqrt(0.25 / 1101), rtol=0.1)


def test_interval_equals_scipys():
    x, y = drawn(3, 80)
    y = y + x
    ours = paired_bootstrap(pearson, x, y, resamples=3000)
    theirs = scipy.stats.bootstrap(
        (x, y),
        lambda a, b: np.corrcoef(a, b)[0, 1],
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=3000,
        random_state=0,
    ).confidence_interval
    # standard error of either side .003 (the 2.5 % of 3,000 draws), so .004 of the difference: five
    assert_allclose([ours.low, ours.high], theirs, atol=0.02)


def test_coverage():
    """About 95 of 100 intervals hold the true accuracy .7."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        x = (rng.random(150) < 0.7).astype(float)
        low, high = paired_bootstrap(accuracy, x, np.ones(150), resamples=200)[1:3]
        inside += low <= 0.7 <= high
    assert 178 <= inside <= 198


def test_difference_is_paired():
    rng = np.random.default_rng(1)
    y = np.ones(400)
    a = (rng.random(400) < 0.6).astype(float)
    b = a.copy()
    b[np.flatnonzero(a == 0)[:12]] = 1
    difference = paired_bootstrap(accuracy, b, y, other=a)
    single = paired_bootstrap(accuracy, a, y)
    assert_allclose(difference.value, 12 / 400)
    assert 0 < difference.low < difference.value < difference.high
    assert difference.high - difference.low < 0.5 * (single.high - single.low)
    back = paired_bootstrap(accuracy, a, y, other=b)
    assert_allclose([back.low, back.high], [-difference.high, -difference.low], atol=1e-12)
    assert paired_bootstrap(spearman, a, b, other=a)[:3] == (0, 0, 0)


def test_seeds_and_global_random_state():
    x, y = drawn(0)
    seeded = [
        paired_bootstrap(pearson, x, y, resamples=50, generator=torch.Generator().manual_seed(s))
        for s in (1, 1, 2)
    ]
    assert seeded[0] == seeded[1] != seeded[2]
    assert paired_bootstrap(pearson, x, y) == paired_bootstrap(
        pearson, x, y, resamples=1000, generator=torch.Generator().manual_seed(11711)
    )
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert paired_bootstrap(pearson, x, y, resamples=20) == paired_bootstrap(
        pearson, x, y, resamples=20
    )
    assert torch.equal(before, torch.get_rng_state())


def test_bootstrap_counts_undefined_draws_quietly():
    x, y = [0.1, 0.9, 0.3, 0.4], [0, 1, 0, 0]  # a third of the draws hold no positive
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = paired_bootstrap(auc, x, y, resamples=300)
    assert got.value == got.low == got.high == 1 and 60 < got.undefined < 130
    with pytest.warns(RuntimeWarning):
        none = paired_bootstrap(pearson, [1, 1, 1], [1, 2, 3])
    assert all(map(math.isnan, none[:3])) and none.undefined == 1000
    asked = []
    paired_bootstrap(lambda *_: asked.append(1) or math.nan, [1, 2], [1, 2])
    assert len(asked) == 1  # what is undefined on all items is not drawn a thousand times


@pytest.mark.parametrize(
    "wrong", [{"resamples": -1}, {"level": 0.0}, {"level": 1.0}, {"level": 95}]
)
def test_bootstrap_refuses(wrong):
    with pytest.raises(ValueError, match="resamples >= 0 and 0 < level < 1"):
        paired_bootstrap(accuracy, [1], [1], **wrong)


def test_no_resamples_gives_the_value_alone():
    got = paired_bootstrap(accuracy, [1, 0], [1, 1], resamples=0)
    assert got.value == 0.5 and math.isnan(got.low) and math.isnan(got.high) and got.undefined == 0


def test_bootstrap_checks_the_other_model():
    with pytest.raises(ValueError, match="got 1 and 2"):
        paired_bootstrap(accuracy, [1, 0], [1, 1], other=[1])
    with pytest.raises(ValueError, match="nan"):
        paired_bootstrap(accuracy, [1, 0], [1, 1], other=[1, math.nan])
