"""The STS suite on folders and encoders small enough to know every number."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose

from minbert.data import Dataset
from minbert.sts import (
    STS_TASKS,
    aggregate_spearman,
    evaluate_sts,
    gold_labels,
    load_sts,
    score_sts,
    sts_table,
    unique_sentences,
    word_overlap,
)


class Letters:
    """Encode a sentence by its counts of a, b and c; remember what was asked."""

    def __init__(self):
        self.asked = []

    def encode(self, sentences):
        self.asked += sentences
        return torch.tensor([[s.count(c) + 0.1 for c in "abc"] for s in sentences])


def graded(first, second, labels, subsets=None, name="x"):
    return Dataset(name, "test", "similarity", first, second, labels, subsets=subsets)


def write_year(folder, year, subsets):
    home = folder / "senteval" / "STS" / f"STS{year}-en-test"
    home.mkdir(parents=True)
    for subset, rows in subsets.items():
        (home / f"STS.input.{subset}.txt").write_text("".join(f"{a}\t{b}\n" for a, b, _ in rows))
        (home / f"STS.gs.{subset}.txt").write_text("".join(f"{s}\n" for _, _, s in rows))


@pytest.fixture
def folder(tmp_path):
    write_year(
        tmp_path,
        12,
        {
            "one": [("a", "a", 5), ("a", "ab", 3), ("a", "b", 0)],
            "two": [("aa", "ab", 4), ("b", "c", 1), ("ccc", "cb", "")],
        },
    )
    write_year(tmp_path, 13, {"one": [("a", "b", 4), ("b", "b", 1), ("bc", "b", 2)]})
    return tmp_path


# ---- aggregation ------------------------------------------------------------------------------


def test_aggregates_equal_scipy_by_subset():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, (2, 90)).astype(float)
    groups = rng.choice(["a", "bb", "c"], 90, p=[0.2, 0.3, 0.5]).tolist()
    parts = {g: [i for i in range(90) if groups[i] == g] for g in set(groups)}
    rho = {g: scipy.stats.spearmanr(x[i], y[i]).statistic for g, i in parts.items()}
    assert_allclose(aggregate_spearman(x, y, groups), scipy.stats.spearmanr(x, y).statistic)
    assert_allclose(aggregate_spearman(x, y, groups, "mean"), sum(rho.values()) / 3)
    assert_allclose(
        aggregate_spearman(x, y, groups, "wmean"),
        sum(rho[g] * len(i) for g, i in parts.items()) / 90,
    )


def test_one_subset_makes_them_equal():
    x, y = np.random.default_rng(1).normal(size=(2, 30))
    values = [aggregate_spearman(x, y, ["g"] * 30, how) for how in ("all", "mean", "wmean")]
    assert_allclose(values, values[0])


def test_shifted_subsets_are_seen_by_all_only():
    """Each subset is in perfect order; only their heights differ."""
    gold = [0.0, 1, 2, 3, 0, 1, 2, 3, 4]
    lift = [0.0] * 4 + [9.0] * 5
    groups = ["low"] * 4 + ["high"] * 5
    scores = [g - h for g, h in zip(gold, lift)]
    assert aggregate_spearman(scores, gold, groups, "mean") == 1
    assert aggregate_spearman(scores, gold, groups, "wmean") == 1
    assert_allclose(
        aggregate_spearman(scores, gold, groups), scipy.stats.spearmanr(scores, gold).statistic
    )
    assert aggregate_spearman(scores, gold, groups) < 0.6


def test_aggregate_edges():
    with pytest.raises(ValueError, match="'all', 'mean' or 'wmean', got 'max'"):
        aggregate_spearman([1, 2], [1, 2], "ab", "max")
    with pytest.raises(ValueError, match="2 groups, got 1"):
        aggregate_spearman([1, 2], [1, 2], "a")
    with pytest.raises(ValueError, match="nan"):
        aggregate_spearman([1, math.nan], [1, 2], "ab")
    with pytest.warns(RuntimeWarning):  # a subset of one pair has no correlation
        assert math.isnan(aggregate_spearman([1, 2, 3], [1, 2, 3], "aab", "wmean"))
    assert aggregate_spearman([1, 2, 3], [1, 2, 3], "aab", "all") == 1


# ---- unique sentences -------------------------------------------------------------------------


def test_unique_sentences_rebuild_the_pairs():
    sets = {
        "x": graded(["p", "q", "p"], ["q", "p", "r"], [1, 2, 3]),
        "y": graded(["r", "s"], ["p", "s"], [0, 1]),
    }
    sentences, pairs = unique_sentences(sets)
    assert sorted(sentences) == ["p", "q", "r", "s"]
    for name, (i, j) in pairs.items():
        assert [sentences[k] for k in i] == sets[name].sentences
        assert [sentences[k] for k in j] == sets[name].sentences2
        assert i.dtype == torch.int64
    assert unique_sentences({}) == ([], {})
    with pytest.raises(ValueError, match="pairs in z"):
        unique_sentences({"z": Dataset("z", "test", "text", ["a"])})


def test_case_and_blanks_make_different_sentences():
    assert len(unique_sentences({"x": graded(["A dog"], ["a dog"], [1.0])})[0]) == 2


# ---- the suite --------------------------------------------------------------------------------


def test_suite_by_hand(folder):
    encoder = Letters()
    got = evaluate_sts(encoder, folder, tasks=("sts12", "sts13"))
    # the unscored pair is not encoded
    assert len(encoder.asked) == len(set(encoder.asked)) == 6
    expected = {}
    for year, rows in {
        "sts12": [("a", "a", 5), ("a", "ab", 3), ("a", "b", 0), ("aa", "ab", 4), ("b", "c", 1)],
        "sts13": [("a", "b", 4), ("b", "b", 1), ("bc", "b", 2)],
    }.items():
        u, v = (encoder.encode([r[side] for r in rows]) for side in (0, 1))
        cosine = torch.nn.functional.cosine_similarity(u, v)
        expected[year] = scipy.stats.spearmanr(cosine, [r[2] for r in rows]).statistic
    expected["average"] = (expected["sts12"] + expected["sts13"]) / 2
    assert list(got) == ["sts12", "sts13", "average"]
    for key, value in expected.items():
        assert_allclose(got[key], value)


def test_suite_aggregates(folder):
    """One subset of three pairs in perfect order, one of four in the reverse: no two ways of adding
    up agree.
    """
    rows = {
        "up": [("a", "a", 5), ("a", "ab", 4), ("a", "b", 3)],
        "down": [("c", "c", 0), ("c", "cb", 1), ("c", "cbb", 2), ("c", "b", 4.5)],
    }
    write_year(folder, 14, rows)
    got = {
        how: evaluate_sts(Letters(), folder, how, ("sts14",))["sts14"]
        for how in ("all", "mean", "wmean")
    }
    first, second, grades = zip(*rows["up"], *rows["down"])
    cosines = torch.nn.functional.cosine_similarity(
        Letters().encode(list(first)), Letters().encode(list(second))
    )
    assert_allclose(got["all"], scipy.stats.spearmanr(cosines, grades).statistic)
    assert_allclose([got["mean"], got["wmean"]], [0, (3 - 4) / 7], atol=1e-12)
    assert abs(got["all"]) > 0.01 and abs(got["all"] + 1 / 7) > 0.01


def test_missing_sets_are_all_named(folder):
    with pytest.raises(ValueError) as error:
        evaluate_sts(Letters(), folder)
    message = str(error.value)
    for task in set(STS_TASKS) - {"sts12", "sts13"}:
        assert f"{task} (" in message
    assert "sts12 (" not in message and "tasks=" in message


@pytest.mark.parametrize("tasks", ("sts12", (), []))
def test_tasks_are_several_names(folder, tasks):
    with pytest.raises(ValueError, match="expected a tuple of names as tasks"):
        evaluate_sts(Letters(), folder, tasks=tasks)


def test_a_set_without_labels_counts_as_missing(tmp_path):
    (tmp_path / "sts-test-student.csv").write_text(
        "\tid\tsentence1\tsentence2\n0\tx\ta dog\ta cat\n"
    )
    with pytest.raises(ValueError, match="stsb .*expected labels"):
        load_sts(tmp_path, ("stsb",))


def test_a_malformed_set_says_where(folder):
    (folder / "senteval/STS/STS12-en-test/STS.gs.one.txt").write_text("5\nseven\n0\n")
    with pytest.raises(ValueError, match=r"sts12 .*STS\.gs\.one\.txt:2"):
        evaluate_sts(Letters(), folder, tasks=("sts12",))


def test_vectors_with_nan_are_refused(folder):
    sets = load_sts(folder, ("sts13",))
    sentences, pairs = unique_sentences(sets)
    vectors = Letters().encode(sentences)
    vectors[0, 0] = math.nan
    with pytest.raises(ValueError, match="sentence vectors"):
        score_sts(vectors, pairs, sets)


def test_constant_encoder_has_no_score(folder):
    sets = load_sts(folder, ("sts12", "sts13"))
    sentences, pairs = unique_sentences(sets)
    with pytest.warns(RuntimeWarning):
        got = score_sts(torch.zeros(len(sentences), 3), pairs, sets)
    assert all(map(math.isnan, got.values()))


def test_embedded_sample():
    got = evaluate_sts(Letters(), tasks=("stsb",), split="dev")
    assert list(got) == ["stsb", "average"] and got["stsb"] == got["average"]


def test_a_table_counts_each_set_once_and_asks_people_where_no_folder_is_given(folder):
    lines = sts_table(Letters(), folder, ("sts12", "sts13", "sts12")).splitlines()
    assert [line.split()[0] for line in lines] == ["sts12", "sts13", "average"] and lines[
        -1
    ].endswith("  of 2")
    # a grammar wrote the package's stsb
    assert [line.split()[0] for line in sts_table(Letters(), split="dev").splitlines()] == [
        "similarity",
        "average",
    ]


# ---- word overlap -----------------------------------------------------------------------------


def test_word_overlap():
    assert_allclose(
        word_overlap(["A man sings.", "x", "", "a a b"], ["a man, singing", "y", "", "A b b"]),
        [0.5, 0, 0, 1],
    )
    first, second = ["one two three", "four"], ["two", "four five"]
    assert_allclose(word_overlap(first, second), word_overlap(second, first))
    with pytest.raises(ValueError, match="2 and 1"):
        word_overlap(first, ["x"])


def test_gold_labels():
    assert gold_labels(graded(["a"], ["b"], [2.0])) == [2.0]
    with pytest.raises(ValueError, match="labels in x test"):
        gold_labels(graded(["a"], ["b"], None))
