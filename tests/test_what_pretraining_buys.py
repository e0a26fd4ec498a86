"""scripts/what_pretraining_buys.py holds encoders of different age against each other and against a
bag of words.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert.data import load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.metrics import pearson
from minbert.sentence import SentenceEncoder
from minbert.tokens import load_tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import what_pretraining_buys as script  # noqa: E402

SEEDS = (1, 2)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """One narrow encoder and the folder of everything that was measured about it."""
    folder, out = (tmp_path_factory.mktemp(name) for name in ("model", "out"))
    torch.manual_seed(0)
    tokenizer = load_tokenizer()
    SentenceEncoder(BertModel(BertConfig(len(tokenizer), 32, 1, 2, 64)), tokenizer).save_pretrained(
        folder
    )
    jobs, loaded = script.jobs_of({"3": str(folder)}, None, 40, SEEDS), []
    with pytest.MonkeyPatch.context() as patch:
        load = SentenceEncoder.from_pretrained
        patch.setattr(
            SentenceEncoder,
            "from_pretrained",
            lambda *which, **more: loaded.append(which) or load(*which, **more),
        )
        for job in jobs:
            script.work(job, out)
    assert loaded == [(str(folder),)], (
        "an encoder is loaded once, for all rates, penalties and seeds"
    )
    before = load(folder, device="cpu").model.state_dict()
    assert all(
        torch.equal(x, before[name])
        for name, x in script.stored(str(folder)).model.state_dict().items()
    ), "what one job learns, no other starts from"
    return jobs, out


def test_everything_is_measured_once(small, tmp_path):
    jobs, out = small
    assert len(jobs) == len(set(job.name for job in jobs)) == 2 * (3 + 3 + 1) + 3
    assert script.unfinished(jobs, out) == [] and script.unfinished(jobs, tmp_path) == jobs
    assert not list(out.glob(".draft*"))


def test_single_tasks_can_be_asked_for():
    def names(*chosen, data=None):
        return [job.name for job in script.jobs_of({"3": ""}, data, None, SEEDS, chosen)]

    assert names("sentiment") == [
        "0-tuned-sentiment",
        "3-tuned-sentiment",
        "0-probe-sentiment",
        "3-probe-sentiment",
        "bag-words-sentiment",
    ]
    assert {name.split("-")[2] for name in names("stsb", "similarity", data="folder")} == {
        "stsb",
        "similarity",
    }
    assert {
        job.data
        for job in script.jobs_of({"3": ""}, "folder", None, SEEDS, ("stsb", "similarity"))
        if job.task == "similarity"
    } == {None}


@pytest.mark.parametrize(
    "stored, shown",
    [("summary", "what-pretraining-buys"), ("larger", "what-pretraining-buys-larger")],
)
def test_the_chapter_shows_what_is_stored(stored, shown):
    assert (ROOT / f"results/what-pretraining-buys/{stored}.json").read_bytes() == (
        ROOT / f"minbert/assets/results/{shown}.json"
    ).read_bytes()


def test_a_result_of_other_settings_is_refused(small):
    jobs, out = small
    with pytest.raises(ValueError, match="expected a result of"):
        script.unfinished([script.Job(**{**vars(jobs[0]), "seeds": (1, 3)})], out)


def test_answers_are_stored_for_every_row_of_dev_and_every_seed(small):
    _, out = small
    dev = script.split(script.Job("3", "", "tuned", "inference", None, 40, SEEDS), "dev")
    for name, seeds in (("3-tuned", 2), ("3-probe", 1), ("0-probe", 2), ("bag-words", 1)):
        stored = json.loads((out / f"{name}-inference.json").read_text())
        assert stored["gold"] == dev.labels and np.shape(stored["answers"][name.split("-")[1]]) == (
            seeds,
            40,
        )
    drawn = json.loads((out / "0-cosine-similarity.json").read_text())["answers"]["cosine"]
    assert drawn[0] != drawn[1], "untrained weights are drawn once a seed"


def test_the_summary_is_complete_and_its_differences_add_up(small, tmp_path):
    rows = script.summary(small[1], 100)
    found = {(r["task"], r["measure"], r["tokens"]): r for r in rows}
    learned = [(t, m, n) for t in script.OPEN_TASKS for m in ("tuned", "probe") for n in (0, 3)]
    cosine = [("similarity", m, n) for m in ("cosine", "whitened") for n in (0, 3)]
    assert set(found) == {
        *learned,
        *cosine,
        *((t, "words", None) for t in script.OPEN_TASKS),
        ("similarity", "words by rank", None),
    }
    for r in rows:
        assert r["interval"][0] <= r["value"] <= r["interval"][1]
    for task, measure, n in [*learned, *cosine]:
        r = found[task, measure, n]
        line = "words by rank" if measure in ("cosine", "whitened") else "words"
        assert r["over words"][0] == pytest.approx(r["value"] - found[task, line, None]["value"])
        assert ("over untrained" in r) == (n > 0)
        if n:
            assert r["over untrained"][0] == pytest.approx(
                r["value"] - found[task, measure, 0]["value"]
            )
    assert len(script.table(rows).splitlines()) == len(rows) + 2
    script.figure(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_stored_summary_follows_from_the_stored_answers(tmp_path):
    folder = ROOT / "results/what-pretraining-buys"
    for file in folder.glob("*-*-similarity.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    stored = [
        row
        for row in json.loads((folder / "summary.json").read_text())
        if row["task"] == "similarity"
    ]
    for row, old in zip(script.summary(tmp_path), stored, strict=True):
        assert row.keys() == old.keys()
        for name, value in old.items():
            assert row[name] == (
                pytest.approx(value) if isinstance(value, (float, list)) else value
            ), (row["measure"], row["tokens"], name)


def test_equal_answers_have_no_correlation_and_do_not_stop_the_table():
    scores = script.score([[1.0] * 9], range(9), pearson, 10)
    assert np.isnan(scores.value) and np.isnan(script.interval(scores)[:3]).all()


def test_the_choice_sees_two_parts_of_train_that_share_no_row():
    train, seen = load_dataset("similarity").subset(range(50)), []

    def answers(candidate, rest, held):
        seen.append((rest.ids, held.ids))
        return np.array(held.labels) + candidate * np.arange(len(held)) ** 2

    assert script.choose((5.0, 0.0, -5.0), answers, train) == 0.0
    for rest, held in seen:
        assert len(held) == 10 and sorted(rest + held) == sorted(train.ids)


@pytest.mark.parametrize("text", ["x=there", "0=there", "-2=there", "nan=there", "there"])
def test_an_encoder_is_named_by_its_tokens(text):
    with pytest.raises(Exception, match="expected MILLION_TOKENS=FOLDER"):
        script.encoder_argument(text)
    assert script.encoder_argument("10.0=a=b") == ("10", "a=b")
