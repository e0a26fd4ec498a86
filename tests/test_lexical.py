"""Chapter 14: frequency bands and edit distance, against brute force and rapidfuzz."""

import math
import random

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from rapidfuzz.distance import Levenshtein
from scipy.stats import spearmanr

from minbert.lexical import BANDS, edit_bias, edit_distance, frequency_table, nearest, rank_words


def table(rows, width, seed=0):
    return torch.randn(
        rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def test_words_by_rank():
    vocab = {"[PAD]": 0, "the": 1, "##ing": 2, "cat": 3, "seven": 4, "a": 5, "rare": 6}
    lines = ["a 90", "the 80", "seven 70", "##ing 60", "dog 50", "", "cat 40", "the 3"]
    # a piece is no word, even if the list names it
    assert rank_words(vocab, iter(lines)) == [5, 1, 3]
    assert rank_words(vocab, lines, skip=frozenset({"cat"})) == [5, 1, 4]
    assert rank_words(vocab, []) == []


@pytest.mark.parametrize("k", [1, 3, 29])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_neighbours_are_those_of_brute_force(k, chunk):
    x, ids = table(30, 5), [7, 0, 29, 7]
    x[8] = x[7]  # a twin is a neighbour, at distance 0
    distances, dots = torch.cdist(x, x), x @ x.T
    for d, sign in ((distances, 1), (dots, -1)):
        d.fill_diagonal_(sign * math.inf)
    assert_allclose(
        nearest(x, ids, k, chunk=chunk), distances[ids].sort(dim=1).values[:, :k], atol=1e-6
    )
    assert_allclose(
        nearest(x, ids, k, "dot", chunk), dots[ids].sort(dim=1, descending=True).values[:, :k]
    )


@pytest.mark.parametrize("k, by", [(0, "distance"), (30, "distance"), (3, "cosine")])
def test_neighbours_that_do_not_exist(k, by):
    with pytest.raises(ValueError, match="expected k in"):
        nearest(table(30, 5), [0], k, by)


def test_the_table_of_bands():
    x, ranked = table(60, 4), random.Random(0).sample(range(60), 40)
    got = frequency_table(x, ranked, ((0, 10), (10, 35), (35, 500), (500, 900)), ks=(2, 5))
    # an empty band is left out
    assert [(b.first, b.words) for b in got] == [(0, 10), (10, 25), (35, 5)]
    for b in got:
        ids = ranked[b.first : b.first + b.words]
        assert b.norm == pytest.approx(x[ids].norm(dim=1).mean().item())
        for k in (2, 5):
            assert b.distance[k] == pytest.approx(nearest(x, ids, k).mean().item())
            assert b.dot[k] == pytest.approx(nearest(x, ids, k, "dot").mean().item())
    assert BANDS[0] == (0, 100) and all(a[1] == b[0] for a, b in zip(BANDS, BANDS[1:]))


def test_edit_distance_is_that_of_rapidfuzz():
    rng = random.Random(1)
    for _ in range(400):
        a, b = ("".join(rng.choices("abc é", k=rng.randrange(9))) for _ in range(2))
        assert edit_distance(a, b) == edit_distance(b, a) == Levenshtein.distance(a, b)
        assert edit_distance(a.split(), b.split()) == Levenshtein.distance(a.split(), b.split())


def test_edit_bias_is_two_correlations():
    rng = np.random.default_rng(0)
    distances, cosine = rng.integers(0, 20, 200), rng.normal(size=200)
    cosine -= 0.1 * distances
    got = edit_bias(list(cosine), list(distances), limit=6)
    few = distances <= 6
    assert got.pairs == few.sum()
    assert_allclose(
        got[:2],
        [spearmanr(cosine, distances).statistic, spearmanr(cosine[few], distances[few]).statistic],
    )
    with pytest.raises(ValueError, match="as many distances"):
        edit_bias([1.0, 2.0], [1])
    with pytest.raises(ValueError):
        edit_bias([1.0, math.nan], [1, 2])
    with pytest.warns(RuntimeWarning, match="undefined"):
        assert math.isnan(edit_bias([1.0, 2.0, 3.0], [9, 8, 7]).near)
