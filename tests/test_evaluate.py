"""Models, files and diagnostics, with models whose answers are known."""

import math
import os
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import minbert.evaluate as evaluate
from minbert.data import Dataset, load_dataset
from minbert.evaluate import (
    Predicted,
    drop_linear,
    evaluate_tasks,
    metric_of,
    overall,
    read_predictions,
    results_table,
    swap_symmetry,
    task_baseline,
    worst_mistakes,
    write_predictions,
)
from minbert.heads import LinearPlusCosine, MultitaskBert, PairLinear, default_heads
from minbert.metrics import accuracy, pearson
from minbert.sentence import SentenceEncoder

SST = Dataset(
    "sst",
    "dev",
    "sentiment",
    ["good", "bad", "fine", "poor"],
    labels=[4, 0, 3, 1],
    ids=["a1", "b2", "c3", "d4"],
    classes=tuple("01234"),
)
QUORA = Dataset(
    "quora",
    "dev",
    "paraphrase",
    ["p", "q", "r"],
    ["pp", "qq", "rr"],
    [1, 0, 0],
    ["x", "y", "z"],
    ("different", "duplicate"),
)
STS = Dataset(
    "stsb",
    "test",
    "similarity",
    ["a b", "a b", "a b"],
    ["a b", "a c", "c d"],
    [5.0, 2.5, 0.5],
    scale=(0, 5),
)
INFERENCE = Dataset(
    "inference",
    "dev",
    "nli",
    ["p", "q", "r"],
    ["pp", "qq", "rr"],
    [0, 2, 1],
    ["n1", "n2", "n3"],
    ("entailment", "neutral", "contradiction"),
)
SETS = {"sst": SST, "quora": QUORA, "stsb": STS}


class Told:
    """Predict what it was told to, and remember the questions."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def predict(self, task, dataset):
        self.asked.append(dataset)
        return torch.tensor(self.answers[task])


GOOD = dict(sst=[4, 0, 3, 2], quora=[1, 1, 0], stsb=[4.5, 2.0, 1.0])


# ---- one table --------------------------------------------------------------------------------


def test_results():
    got = evaluate_tasks(Told(**GOOD), SETS, resamples=200)
    assert list(got) == ["sst", "quora", "stsb"]
    assert [r.metric for r in got.values()] == ["accuracy", "accuracy", "Pearson"]
    assert [r.n for r in got.values()] == [4, 3, 3]
    assert_allclose(
        [r.value for r in got.values()], [0.75, 2 / 3, pearson(GOOD["stsb"], STS.labels)]
    )
    assert_allclose(
        [r.baseline for r in got.values()], [0.25, 2 / 3, pearson([1, 1 / 3, 0], STS.labels)]
    )
    assert [r.baseline_name for r in got.values()] == ["always 0", "always 0", "word overlap"]
    assert all(r.low <= r.value <= r.high for r in got.values())
    assert_allclose(overall(got), np.mean([r.value for r in got.values()]))
    again = evaluate_tasks(Told(**GOOD), {"stsb": STS}, resamples=200)
    assert again["stsb"] == got["stsb"]  # a task's interval does not depend on the others
    table = results_table(got).splitlines()
    assert len(table) == 5 and "| sst | accuracy | 0.750 |" in table[2] and "| 4 |" in table[2]
    assert {line.count("|") for line in table} == {7}


def test_results_refuse():
    with pytest.raises(ValueError, match="labels in sst"):
        evaluate_tasks(Told(**GOOD), {"sst": replace(SST, labels=None)})
    with pytest.raises(ValueError, match="nan"):
        evaluate_tasks(Told(stsb=[1.0, math.nan, 2.0]), {"stsb": STS})
    with pytest.raises(ValueError, match="got 3 and 4"):
        evaluate_tasks(Told(sst=[1, 2, 3]), {"sst": SST})
    with pytest.raises(ValueError, match="'text'"):
        metric_of(Dataset("t", "train", "text", ["a"]))


def test_a_constant_model_gets_nan_not_zero():
    with pytest.warns(RuntimeWarning):
        got = evaluate_tasks(Told(stsb=[2.0, 2.0, 2.0]), {"stsb": STS})["stsb"]
    assert math.isnan(got.value) and math.isnan(got.low) and got.baseline > 0


def test_metrics_of_all_kinds():
    nli = Dataset("snli", "dev", "nli", ["a"], ["b"], [2], classes=("e", "n", "c"))
    assert metric_of(nli) == ("accuracy", accuracy) and metric_of(STS) == ("Pearson", pearson)
    assert task_baseline(nli) == ("always 2", 1.0)


def test_names_of_earlier_chapters_are_here():
    for name in (
        "accuracy",
        "pearson",
        "spearman",
        "auc",
        "evaluate_sts",
        "mean_cosine",
        "alignment",
        "uniformity",
        "confusion_matrix",
        "majority_baseline",
        "paired_bootstrap",
    ):
        assert name in evaluate.__all__ and callable(getattr(evaluate, name))


# ---- worst mistakes ---------------------------------------------------------------------------


def test_worst_mistakes():
    got = worst_mistakes(SST, [0, 0, 4, 4])
    assert [(m.id, m.gold, m.predicted, m.error) for m in got] == [
        ("a1", 4, 0, 4),
        ("d4", 1, 4, 3),
        ("c3", 3, 4, 1),
    ]
    assert got[0].first == "good" and got[0].second is None
    assert worst_mistakes(SST, SST.labels) == []
    assert len(worst_mistakes(SST, [0, 0, 4, 4], count=2)) == 2
    [only] = worst_mistakes(QUORA, [0.9, 0.8, 0.1], count=1)
    assert (only.id, only.first, only.second) == ("y", "q", "qq") and only.error == 0.8
    ties = worst_mistakes(SST, [3, 1, 2, 0])
    assert [m.id for m in ties] == ["a1", "b2", "c3", "d4"]  # file order
    with pytest.raises(ValueError, match="got 2 and 4"):
        worst_mistakes(SST, [1, 2])
    with pytest.raises(ValueError, match="labels"):
        worst_mistakes(replace(SST, labels=None), [1, 2, 3, 4])


# ---- prediction files -------------------------------------------------------------------------


def test_files_have_the_courses_bytes(tmp_path):
    files = write_predictions(Told(**GOOD), SETS, tmp_path / "new" / "folder")
    assert [f.name for f in files] == [
        "sst-dev-output.csv",
        "para-dev-output.csv",
        "sts-test-output.csv",
    ]
    assert files[0].read_bytes() == (
        b"id \t Predicted_Sentiment \na1 , 4 \nb2 , 0 \nc3 , 3 \nd4 , 2 \n"
    )
    assert (
        files[1].read_bytes() == b"id \t Predicted_Is_Paraphrase \nx , 1.0 \ny , 1.0 \nz , 0.0 \n"
    )
    assert files[2].read_bytes() == b"id \t Predicted_Similiary \n0 , 4.5 \n1 , 2.0 \n2 , 1.0 \n"
    assert sorted(p.name for p in files[0].parent.iterdir()) == sorted(f.name for f in files)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o666 & ~mask
    for file, (task, data) in zip(files, SETS.items()):
        assert read_predictions(file, data).tolist() == GOOD[task]


def test_labels_are_not_needed_and_splits_have_names(tmp_path):
    blind = replace(SST, split="test", labels=None)
    [file] = write_predictions(Told(**GOOD), {"sst": blind}, tmp_path)
    assert file.name == "sst-test-output.csv"
    assert read_predictions(file, blind).tolist() == GOOD["sst"]
    # both go by the course's name
    with pytest.raises(ValueError, match="sts-test-output.csv for two of"):
        write_predictions(
            Told(**{**GOOD, "sts": GOOD["stsb"]}),
            {"sts": SETS["stsb"], "stsb": SETS["stsb"]},
            tmp_path / "two",
        )
    assert not (tmp_path / "two").exists()
    [file] = write_predictions(Told(cfimdb=[1, 0, 1, 1]), {"cfimdb": SST}, tmp_path)
    assert file.name == "cfimdb-dev-output.csv"


def test_reading_restores_the_order_of_the_dataset(tmp_path):
    [file] = write_predictions(Told(**GOOD), {"sst": SST}, tmp_path)
    assert read_predictions(file, SST.subset([2, 0, 3, 1])).tolist() == [3, 4, 2, 0]


def test_full_precision_survives(tmp_path):
    values = [1 / 3, 1e-17, 4.999999999999999]
    [file] = write_predictions(
        Told(stsb=torch.tensor(values, dtype=torch.float64).tolist()), {"stsb": STS}, tmp_path
    )
    model = Told()
    model.predict = lambda task, data: torch.tensor(values, dtype=torch.float64)
    [file] = write_predictions(model, {"stsb": STS}, tmp_path)
    assert read_predictions(file, STS).tolist() == values


def test_all_or_nothing(tmp_path):
    write_predictions(Told(**GOOD), SETS, tmp_path)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    worse = GOOD | {"sst": [0, 0, 0, 0], "stsb": [1.0, math.nan, 1.0]}
    with pytest.raises(ValueError, match="nan"):
        write_predictions(Told(**worse), SETS, tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    write_predictions(Told(**GOOD), SETS, tmp_path)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    real = type(tmp_path).write_text

    def fails(self, text, *args, **kwargs):
        real(self, text[:20], *args, **kwargs)
        if "para" in self.name:
            raise OSError("no space left")

    monkeypatch.setattr(type(tmp_path), "write_text", fails)
    with pytest.raises(OSError, match="no space"):
        write_predictions(Told(**GOOD | {"sst": [0, 0, 0, 0]}), SETS, tmp_path)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "data, answers, word",
    [
        (replace(SST, ids=["a", "b", "a", "c"]), [1, 2, 3, 4], "'a' again"),
        (SST, [1.0, 2.5, 3.0, 4.0], "whole numbers"),
        (SST, [1, 2, 3], "expected 4 predictions, got 3"),
        (Dataset("sst", "dev", "text", ["a"], ids=["a"]), [1], "'text'"),
        (replace(INFERENCE, ids=["n1", "n2", "n1"]), [0, 1, 2], "'n1' again"),
        (INFERENCE, [0, 1.5, 2], "whole numbers"),
        (INFERENCE, [0, 1], "expected 3 predictions, got 2"),
    ],
)
def test_writing_refuses(tmp_path, data, answers, word):
    with pytest.raises(ValueError, match=word):
        write_predictions(Told(sst=answers), {"sst": data}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "old, new, word",
    [
        ("Predicted_Sentiment", "Predicted_Similiary", ":1: expected header"),
        ("id \t", "", ":1: expected header"),
        ("b2 , 0 \n", "", r"1 missing \['b2'\], 0 foreign"),
        ("b2 , 0", "b9 , 0", r"1 missing \['b2'\], 1 foreign \['b9'\]"),
        ("b2 , 0", "a1 , 0", ":3: expected a new"),
        ("b2 , 0", "b2 0", ":3: expected a new"),
        ("b2 , 0", "b2 , ", ":3: expected a class 0..4, got ''"),
        ("b2 , 0", "b2 , nan", ":3: expected a class 0..4, got 'nan'"),
        ("b2 , 0", "b2 , 5", ":3: expected a class 0..4, got '5'"),
        ("b2 , 0", "b2 , -1", ":3: expected a class 0..4, got '-1'"),
        ("b2 , 0", "b2 , 1.5", ":3: expected a class 0..4, got '1.5'"),
        ("d4 , 2 \n", "d4", ":5: expected a new"),
        ("c3 , 3 \n", "\nc3 , 3 \n", ":4: expected a new"),
    ],
)
def test_reading_refuses(tmp_path, old, new, word):
    [file] = write_predictions(Told(**GOOD), {"sst": SST}, tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=word) as error:
        read_predictions(file, SST)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    "old, new, word",
    [
        ("Predicted_Inference", "Predicted_Sentiment", ":1: expected header"),
        ("n2 , 2 \n", "", r"1 missing \['n2'\], 0 foreign"),
        ("n2 , 2 \n", "n2 , 2 \nn2 , 2 \n", ":4: expected a new"),
        ("n2 , 2", "n2 , 3", r":3: expected a class 0\.\.2, got '3'"),
        ("n2 , 2", "n2 , neutral", r":3: expected a class 0\.\.2, got 'neutral'"),
        ("n2 , 2", "n2 , 0.5", r":3: expected a class 0\.\.2, got '0.5'"),
    ],
)
def test_reading_inference_refuses(tmp_path, old, new, word):
    [file] = write_predictions(Told(inference=[0, 2, 2]), {"inference": INFERENCE}, tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=word) as error:
        read_predictions(file, INFERENCE)
    assert str(file) in str(error.value)


def test_inference_is_written_in_whole_classes_and_read_back(tmp_path):
    told = Told(inference=[0.0, 2.0, 2.0])  # a head may answer in floats
    [file] = write_predictions(told, {"inference": INFERENCE}, tmp_path)
    assert file.name == "inference-dev-output.csv"
    assert file.read_bytes() == b"id \t Predicted_Inference \nn1 , 0 \nn2 , 2 \nn3 , 2 \n"
    back = read_predictions(file, INFERENCE)
    assert back.tolist() == [0, 2, 2]
    assert (
        accuracy(back, INFERENCE.labels)
        == evaluate_tasks(told, {"inference": INFERENCE}, 0)["inference"].value
        == 2 / 3
    )


def test_every_kind_with_a_metric_has_a_file():
    assert set(evaluate.COLUMNS) == set(evaluate.METRICS)


def test_files_of_the_open_tasks_give_the_scores_again(tmp_path, encoder):
    tasks = ("sentiment", "inference", "similarity")
    torch.manual_seed(0)
    model = MultitaskBert(encoder, default_heads(encoder.width, tasks))
    dev = {
        task: load_dataset(task, "dev").draw(40, torch.Generator().manual_seed(0)) for task in tasks
    }
    scores = evaluate_tasks(model, dev, resamples=0)
    for file, (task, data) in zip(write_predictions(model, dev, tmp_path), dev.items()):
        assert metric_of(data)[1](read_predictions(file, data), data.labels) == pytest.approx(
            scores[task].value, abs=1e-12
        )


def test_reading_refuses_odd_files(tmp_path):
    file = tmp_path / "sst-dev-output.csv"
    for content, word in (
        (b"", "empty"),
        (b"id \t Predicted_Sentiment \na\xff , 1 \n", ":2: expected UTF-8"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=word):
            read_predictions(file, SST)
    with pytest.raises(ValueError, match="got none"):
        read_predictions(tmp_path / "nowhere.csv", SST)
    file.write_text("id \t Predicted_Similiary \n0 , inf \n1 , 2 \n2 , 1 \n")
    with pytest.raises(ValueError, match=":2: expected a finite number, got 'inf'"):
        read_predictions(file, STS)


def test_an_id_may_hold_a_comma(tmp_path):
    data = replace(SST, ids=["a, b", "c", "d", "e,"])
    [file] = write_predictions(Told(**GOOD), {"sst": data}, tmp_path)
    assert read_predictions(file, data).tolist() == GOOD["sst"]


# ---- diagnostics ------------------------------------------------------------------------------


class FirstIsShorter:
    def predict(self, task, data):
        return [float(len(a) < len(b)) for a, b in zip(data.sentences, data.sentences2)]


def test_swap_symmetry():
    assert_allclose(swap_symmetry(FirstIsShorter(), "quora", QUORA), 1 / 3 - 2 / 3)
    told = Told(stsb=[4.5, 2.0, 1.0])
    assert swap_symmetry(told, "stsb", STS) == 0
    normal, swapped = told.asked
    assert (swapped.sentences, swapped.sentences2) == (normal.sentences2, normal.sentences)
    assert swapped.labels == normal.labels and STS.sentences == ["a b"] * 3
    with pytest.raises(ValueError, match="pairs in sst"):
        swap_symmetry(told, "sst", SST)


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder.from_pretrained(device="cpu")


def test_swap_symmetry_of_real_heads(encoder):
    pairs = load_dataset("stsb", "dev").subset(range(60))
    torch.manual_seed(0)
    linear = PairLinear(encoder.width, "similarity")
    cosine = LinearPlusCosine(encoder.width, "similarity")
    torch.nn.init.zeros_(cosine.linear.weight)
    torch.nn.init.constant_(linear.linear.bias, 2.5)  # the middle of the scale
    assert abs(swap_symmetry(MultitaskBert(encoder, {"stsb": linear}), "stsb", pairs)) > 1e-3
    assert abs(swap_symmetry(MultitaskBert(encoder, {"stsb": cosine}), "stsb", pairs)) < 1e-6


def test_drop_linear(encoder):
    pairs = load_dataset("stsb", "dev").subset(range(60))
    torch.manual_seed(0)
    head = LinearPlusCosine(encoder.width, "similarity")
    torch.nn.init.constant_(head.linear.bias, -1.5)  # 5 cos - 1.5 stays on the scale
    model = MultitaskBert(encoder, {"stsb": head})
    encoder.model.embedding.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [p.requires_grad for p in model.parameters()]
    full, dropped, change = drop_linear(model, "stsb", pairs)
    assert full == pearson(model.predict("stsb", pairs), pairs.labels)
    u, v = encoder.encode(pairs.sentences), encoder.encode(pairs.sentences2)
    cosine = torch.nn.functional.cosine_similarity(u, v)
    alone = (5 * cosine + head.linear.bias.detach()).clamp(0, 5)  # bias and cosine are kept
    assert_allclose(dropped, pearson(alone, pairs.labels), atol=1e-5)
    assert change == dropped - full and abs(change) > 1e-3
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert flags == [p.requires_grad for p in model.parameters()] and model.heads["stsb"] is head
    encoder.requires_grad_(True)


def test_drop_linear_keeps_the_bias(encoder):
    """With the weights gone the bias alone decides between always yes and always no."""
    data = QUORA.subset([0, 1, 2])
    for bias, share in ((9.0, 1 / 3), (-9.0, 2 / 3)):
        head = LinearPlusCosine(encoder.width)
        head.linear.bias.data.fill_(bias)
        assert_allclose(
            drop_linear(MultitaskBert(encoder, {"quora": head}), "quora", data).dropped, share
        )


def test_drop_linear_refuses(encoder):
    model = MultitaskBert(encoder, {"stsb": PairLinear(encoder.width, "similarity")})
    for task, got in (("stsb", "PairLinear"), ("quora", "NoneType")):
        with pytest.raises(ValueError, match=f"LinearPlusCosine.*got {got}"):
            drop_linear(model, task, STS)


def test_predicted_asks_the_model_once_and_answers_as_it_did():
    class Model:
        asked = []

        def predict(self, task, data):
            self.asked.append(task)
            return torch.arange(len(data)) % 2

    datasets = {
        "a": load_dataset("sentiment", "dev").subset(range(6)),
        "b": load_dataset("sentiment", "dev").subset(range(3)),
    }
    told = Predicted(Model(), datasets)
    for task in ("a", "b", "a"):
        torch.testing.assert_close(
            told.predict(task, datasets[task]), torch.arange(len(datasets[task])) % 2
        )
    assert Model.asked == ["a", "b"]
