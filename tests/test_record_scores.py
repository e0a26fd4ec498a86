"""Intervals, verdicts and headline claims of the record."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from minbert.data import Dataset
from minbert.papers import CLAIMS, PAPERS, RECIPES, as_json, totals
from minbert.papers import report as reports
from minbert.papers import scores as scores_module
from minbert.papers.finetune_stages import KEYS
from minbert.papers.headline_claims import HEADLINE_CLAIMS, claims_table
from minbert.papers.recipe import Claim
from minbert.papers.record import shipped_records
from minbert.papers.report import NOT_COMPARED, Report, printed_gain
from minbert.papers.scores import Scores, bounds
from minbert.papers.scoring import sample_scores
from minbert.significance import DIRECTIONS, SCORES, VERDICTS, draw_scores, interval

ROOT = Path(__file__).resolve().parent.parent
N = 60


def labels_of(metric: str, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Labels in the form that a metric takes, and predictions with ties."""
    random = np.random.default_rng(3)
    gold = random.integers(0, 2 if metric == "auc" else 5, n).astype(float)
    predictions = np.round(gold + random.normal(size=n), 0 if metric == "accuracy" else 1)
    groups = np.minimum(random.integers(0, 40, n), 2)  # two of the subsets are nearly empty
    return np.stack([gold, groups], 1) if metric == "wmean" else gold, predictions


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("constant", (False, True))
def test_scores_of_samples_are_those_of_chapter_40(metric, constant):
    """Same seed, same samples, same values, undefined ones included."""
    gold, predictions = labels_of(metric)
    predictions = np.full(N, 2.0) if constant else predictions
    expected = draw_scores([predictions], gold, SCORES[metric], 300, 5).draws[:, 0]
    np.testing.assert_allclose(
        sample_scores(predictions, gold, metric, 300, 5), expected, rtol=0, atol=1e-12
    )
    assert np.isnan(expected).all() == (constant and metric in ("pearson", "spearman", "wmean"))


def test_nearly_equal_predictions_are_no_constant():
    gold, predictions = labels_of("pearson")
    near = 1e6 + 1e-4 * predictions
    expected = draw_scores([near], gold, SCORES["pearson"], 100, 5).draws[:, 0]
    np.testing.assert_allclose(
        sample_scores(near, gold, "pearson", 100, 5), expected, rtol=0, atol=1e-6
    )


@pytest.fixture
def labels(monkeypatch):
    """Three data sets of the same labels."""
    data = Dataset("d", "dev", "similarity", ["x"] * N, ["y"] * N, list(labels_of("pearson")[0]))
    monkeypatch.setattr(scores_module, "labelled", lambda *_: data)
    return np.array(data.labels)


def taken(answers, dataset="sts/dev", metric="pearson", examples=None, value=None):
    value = SCORES[metric](answers, labels_of("pearson")[0]) if value is None else value
    return {
        "dataset": dataset,
        "metric": metric,
        "value": value,
        "examples": examples,
        "answers": list(answers),
    }


def run(seed=1, device="cpu", deterministic=False, **measured):
    return {"seed": seed, "device": device, "deterministic": deterministic, "measured": measured}


def noisy(gold, seed, size=1.0):
    return gold + size * np.random.default_rng(seed).normal(size=len(gold))


def three_tasks(gold, seed, size):
    parts = {
        key: taken(noisy(gold, 10 * seed + i, size), f"task{i}/dev")
        for i, key in enumerate(KEYS.values())
    }
    mean = float(np.mean([part["value"] for part in parts.values()]))
    return parts | {"average": {"value": mean}}


def test_a_mean_of_tasks_has_the_samples_of_its_parts(labels):
    results = {"some": [run(seed, **three_tasks(labels, seed, 1.0)) for seed in (1, 2)]}
    scores = Scores(results, None, 400)
    found = scores.scored("some", "average", (1, 2))
    parts = [scores.scored("some", key, (1, 2)) for key in KEYS.values()]
    np.testing.assert_allclose(found.draws, np.mean([p.draws for p in parts], 0))
    np.testing.assert_allclose(found.by_seed, np.mean([p.by_seed for p in parts], 0))
    each = np.mean([p.draws.std(0) for p in parts])
    assert 0.4 * each < found.draws.std(0).mean() < 0.8 * each  # about 1 / sqrt(3)
    assert bounds(found) == interval(found) and bounds(found).low < bounds(found).high
    results["some"][0]["measured"]["average"]["value"] += 0.1  # a mean of something else
    plain = Scores(results, None, 400).scored("some", "average", (1,))
    assert (plain.draws == plain.by_seed).all() and math.isnan(bounds(plain).low)


def test_equal_scores_of_two_seeds_are_no_certainty(labels):
    """Two seeds that score the same by chance; equal predictions of two rows are no chance."""
    one, other = noisy(labels, 1), noisy(labels, 2)
    results = {
        "a": [run(1, x=taken(one)), run(2, x=taken(one))],
        "b": [run(1, x=taken(one)), run(2, x=taken(one))],
        "c": [run(1, x=taken(other)), run(2, x=taken(other))],
    }
    pair = Scores(results, None, 200).pair("a", "b", "x")
    assert bounds(pair.better, pair.worse)[:3] == (0.0, 0.0, 0.0)
    pair = Scores(results, None, 200).pair("a", "c", "x")
    assert bounds(pair.better, pair.worse).low < bounds(pair.better, pair.worse).high


def judge(results, printed=0.2):
    return reports._judge(Claim("it helps", "a", "b", "x", printed), Scores(results, None, 200))


def both(labels, **devices):
    """Two rows, one clearly above the other, each seed on the machine that is given for it."""
    return {
        name: [
            run(seed, device, x=taken(noisy(labels, seed, size)))
            for seed, device in enumerate(devices[name], 1)
        ]
        for name, size in (("a", 0.2), ("b", 3.0))
    }


def test_rows_of_different_hardware_are_not_compared(labels):
    found = judge(both(labels, a=["cuda"] * 3, b=["cpu"] * 2))
    assert found.verdict == "not comparable: different hardware" and found.gain is None
    same = judge(both(labels, a=["cpu"] * 3, b=["cpu"] * 3))
    assert same.verdict == "reproduced" and same.seeds == 3 and same.device == "cpu"
    mixed = judge(both(labels, a=["cuda", "cpu", "cpu"], b=["cuda", "cpu", "cpu"]))
    assert mixed.seeds == 2 and mixed.device == "cpu"  # the kind with more common seeds, alone
    apart = both(labels, a=["cpu"], b=["cuda", "cpu"])
    assert judge(apart).verdict == "not comparable: no common seed"
    assert judge({"a": apart["a"]}).verdict == "not run"
    assert {judge(apart).verdict, found.verdict} < set(NOT_COMPARED)


def test_a_cell_shows_the_seeds_of_one_kind_of_machine(labels):
    results = both(labels, a=["cuda", "cpu", "cpu"], b=["cpu"])
    device, runs = Scores(results, None, 50).usual_runs("a", "x")
    assert device == "cpu" and set(runs) == {2, 3}
    assert Scores(results, None, 50).usual_runs("a", "nothing") == (None, {})


def test_a_deterministic_row_is_compared_with_every_seed(labels):
    fixed = {"b": [run(1, deterministic=True, x=taken(noisy(labels, 9, 3.0)))]}
    results = both(labels, a=["cpu"] * 3, b=[]) | fixed
    found = judge(results)
    assert found.seeds == 3 and found.verdict == "reproduced"
    thrice = results | {"b": [run(seed, x=fixed["b"][0]["measured"]["x"]) for seed in (1, 2, 3)]}
    assert found.gain[:3] == pytest.approx(judge(thrice).gain[:3])
    results["a"] = [run(1, deterministic=True, x=taken(noisy(labels, 1, 0.2)))]
    alone = judge(results)  # nothing depends on a seed: the interval over examples is complete
    assert alone.seeds == 0 and alone.verdict == "reproduced" and alone.gain.low > 0
    results["a"][0]["deterministic"] = False
    assert judge(results).verdict == "inconclusive" and judge(results).seeds == 1


def test_other_examples_are_refused(labels):
    names = {
        "a": [run(1, x=taken(labels, examples="12ab"))],
        "b": [run(1, x=taken(labels, examples="34cd"))],
    }
    with pytest.raises(
        ValueError,
        match="a and b, x: expected predictions for the same examples, got 12ab and 34cd",
    ):
        judge(names)
    short = {"a": [run(1, x=taken(labels) | {"answers": [1.0]})]}
    with pytest.raises(
        ValueError, match=r"sts/dev: expected 1 examples, one for each stored prediction, got 60"
    ):
        Scores(short, None, 9).scored("a", "x", (1,))


def test_totals_are_told_for_each_paper_and_never_pooled():
    judged = [
        reports.Judged(Claim("x", better, "control/untrained", "y"), printed, None, 0, label)
        for better, printed, label in (
            ("hu/mirror", 0.1, "reproduced"),
            ("hu/mirror", 0.1, "reversed"),
            ("li/base", 0.2, "reproduced"),
            ("li/base", None, "higher"),
        )
    ]
    lines = totals(as_json(Report([], judged, {}), "micro"))
    cut = lines.index("")

    def row(part, paper):
        return [line.split(" | ")[1:] for line in part if PAPERS[paper] in line]

    assert row(lines[:cut], "hu") == [["2", "1", "0", "1", "0", "0", "0", "0", "0 |"]]
    assert row(lines[:cut], "li")[0][:2] == ["1", "1"] and row(lines[cut:], "li")[0][:2] == [
        "1",
        "1",
    ]
    assert not row(lines[cut:], "hu")


@pytest.mark.parametrize("scale", shipped_records())
def test_the_shipped_record_has_the_verdicts_of_its_intervals(scale):
    """Labels follow from the stored numbers; nothing is judged across kinds of machine."""
    record = shipped_records()[scale]
    devices = pd.concat(
        [
            pd.read_parquet(f, columns=["scale", "recipe", "device"])
            for f in (ROOT / "results" / "recipes").glob("*.parquet")
        ]
    )
    devices = devices[devices.scale == scale].groupby("recipe").device.agg(set)
    for c in record["claims"]:
        labels = VERDICTS if c["printed"] is not None else DIRECTIONS
        assert c["verdict"] in (*labels, *NOT_COMPARED), c
        if c["gain"] is None:
            continue
        assert c["device"] in devices[c["better"]] & devices[c["worse"]], c
        value, low, high = c["gain"]
        assert low is None or low <= value <= high, c
        if low is None or c["seeds"] == 1 or not c["learned"]:
            assert c["verdict"] == "inconclusive", c
        elif c["printed"]:
            sides = np.sign([low, high]) * np.sign(c["printed"])
            name = {(1, 1): ("reproduced", "same sign, smaller"), (-1, -1): ("reversed",)}
            assert c["verdict"] in name.get(tuple(sides), ("inconclusive",)) or 0 in sides, c
    apart = [c for c in record["claims"] if c["verdict"] == NOT_COMPARED[1]]
    assert all(not devices[c["better"]] & devices[c["worse"]] for c in apart)


def test_who_changes_a_shipped_record_changes_a_copy():
    shipped_records()["micro"]["claims"].clear()
    assert shipped_records()["micro"]["claims"]


def test_the_shipped_record_has_the_values_of_the_stored_runs():
    """Means of stored values, recomputed without the report."""
    frames = [
        pd.read_parquet(f, columns=["scale", "recipe", "device", "measurement", "value"])
        for f in (ROOT / "results" / "recipes").glob("*.parquet")
    ]
    rows = pd.concat(frames).set_index(["scale", "recipe", "measurement"]).sort_index()
    for scale, record in shipped_records().items():
        for c in record["cells"]:
            found = RECIPES[c["recipe"]]
            key = next(
                x.measured for x in found.cells if x[:3] == (c["table"], c["row"], c["metric"])
            )
            if c["measured"] and c["measured"][0] is not None:
                mean = rows.loc[(scale, c["recipe"], key)].value.mean()
                assert c["measured"][0] == pytest.approx(mean, abs=6e-5), c


def test_headline_claims_are_claims_of_the_record():
    known = {(c.better, c.worse, c.measured): c for c in CLAIMS}
    papers = Counter(h.paper for h in HEADLINE_CLAIMS)
    assert set(papers) == {*PAPERS, "control"} and 20 <= sum(papers[p] for p in PAPERS) <= 25
    for headline in HEADLINE_CLAIMS:
        assert headline[2:5] in known and headline.better in RECIPES and headline.worse in RECIPES
        printed = printed_gain(known[headline[2:5]])
        assert (printed is None) == bool(headline.note), headline


@pytest.mark.parametrize(
    "better, worse, measured, printed",
    (
        ("hu/mirror", "hu/minbert", "unsup STS dev spearman", 0.222),
        ("hu/bert-cf", "hu/joint", "unsup STS dev spearman", 0.131),
        ("li/base-flow-target", "li/base-last2avg", "average", 0.059),
        ("li/edits-flow-target", "li/edits-bert", "vs edit distance", 0.225),
        ("li/base-mean-flow-target", "li/base-natsv-10-target", "STS-B", 0.052),
        ("wu-zhao/sts-smart", "wu-zhao/sts", "STS dev pearson", 0.087),
        ("wu-zhao/contrast-all", "wu-zhao/all", "average", 0.025),
        ("dao-mehta-tian/multitask", "dao-mehta-tian/sequential", "SST dev acc", 0.176),
        ("dao-mehta-tian/sts-cosine", "dao-mehta-tian/sts-concatenation", "STS dev pearson", 0.053),
        ("foley-cox-wendt/bppo-once", "foley-cox-wendt/plain", "SST dev acc", 0),
        ("foley-cox-wendt/final", "foley-cox-wendt/baseline", "STS dev pearson", 0.488),
    ),
)
def test_the_table_has_the_printed_differences(better, worse, measured, printed):
    claim = next(c for c in CLAIMS if (c.better, c.worse, c.measured) == (better, worse, measured))
    assert printed_gain(claim) == pytest.approx(printed, abs=6e-4)


def test_the_table_of_headline_claims_shows_printed_and_measured():
    records = shipped_records()
    assert claims_table() == claims_table(records)
    lines, _, footnote = claims_table().partition("\n\n")
    lines = lines.split("\n")
    assert len(lines) == 2 + len(HEADLINE_CLAIMS) and {line.count("|") for line in lines} == {8}
    mirror = claim_of(records["micro"], HEADLINE_CLAIMS[0])
    value, low, high = mirror["gain"]
    line = next(line for line in lines if "Mirror-BERT training raises" in line)
    measured = f"{value:+.3f} [{low:+.3f}, {high:+.3f}], 3 seeds"
    assert f"| +0.222 | {measured} | {mirror['verdict']}" in line
    assert '| "large boosts" |' in next(line for line in lines if "ranking raises STS" in line)
    marked = [
        claim_of(record, h)["outdated"] for record in records.values() for h in HEADLINE_CLAIMS
    ]
    assert sum(line.count("†") for line in lines) == sum(marked) and ("†" in footnote) == any(
        marked
    )


def claim_of(record: dict, headline) -> dict:
    """Find what a record says of a headline claim."""
    return next(
        c
        for c in record["claims"]
        if (c["better"], c["worse"], c["measured"]) == tuple(headline[2:5])
    )


def test_claims_on_unsupervised_sts_after_ranking_are_there():
    ranked = {
        c.better
        for c in CLAIMS
        if c.measured == "unsup STS dev spearman" and c.worse == "foley-cox-wendt/plain"
    }
    assert {"foley-cox-wendt/final", "foley-cox-wendt/rank-1"} <= ranked
    found = {
        (c["better"], c["worse"], c["measured"]): c for c in shipped_records()["micro"]["claims"]
    }
    gain = found["foley-cox-wendt/final", "foley-cox-wendt/plain", "unsup STS dev spearman"]["gain"]
    assert gain[0] == pytest.approx(0.035, abs=1e-3)


def test_scores_without_pairs_of_the_dev_set_are_sampled(monkeypatch):
    """Their predictions are stored as a part of those of the whole set."""
    gold, predictions = labels_of("wmean")
    data = Dataset(
        "sts12",
        "test",
        "similarity",
        ["x"] * N,
        ["y"] * N,
        list(gold[:, 0]),
        subsets=[str(g) for g in gold[:, 1]],
    )
    monkeypatch.setattr(scores_module, "labelled", lambda *_: data)
    monkeypatch.setattr(scores_module, "unseen_pairs", lambda *_: list(range(10, N)))
    value = SCORES["wmean"](predictions[10:], gold[10:])
    key = "STS-12 less STS-B dev"
    results = {
        "a": [
            run(
                1,
                **{
                    "STS-12": taken(predictions, "sts12/test", "wmean", value=0.0),
                    key: {"value": value},
                },
            )
        ]
    }
    found = Scores(results, None, 300).scored("a", key, (1,))
    assert found.by_seed.tolist() == [value] and bounds(found).low < value < bounds(found).high
    alone = Scores({"a": [run(1, **{key: {"value": value}})]}, None, 300).scored("a", key, (1,))
    assert math.isnan(bounds(alone).low)
