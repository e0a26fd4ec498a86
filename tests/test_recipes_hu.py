"""Recipes of Hu, and what all recipes share: evaluations on dev, the learning-rate search, and the
values that ran.
"""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.bertcf import start_joint
from minbert.bijections import InvertibleLinear
from minbert.contrastive import mirror_loss
from minbert.core.finite_checks import NotFinite
from minbert.core.module_io import load_module, save_module
from minbert.data import TaskBatch
from minbert.flow import bertcf_loss
from minbert.heads import LinearHead, LinearPlusCosine, multitask_loss
from minbert.papers import (
    NOT_RUN,
    RECIPES,
    SCALES,
    Run,
    hu,
    perform,
    published,
    unsupervised_stages,
    wu_zhao,
)
from minbert.papers import run as runs
from minbert.papers.cost import work_of
from minbert.papers.finetune_stages import fine_tune, heads_from, phase
from minbert.papers.recipe import CLAIMS
from minbert.papers.run import LOOK, SEARCH_SEED, look_every, searched_rate
from minbert.papers.scale import RATES, weights_checksum
from minbert.sentence import SentenceEncoder
from minbert.simcse import view_batches
from minbert.tokens import embedded_folder, tokenize
from minbert.training import Record

TOY = replace(
    SCALES["micro"],
    seeds=(1, 2),
    view_batch=4,
    view_steps=2,
    flow_steps=2,
    rows={"sst": 2, "quora": 2, "sts": 2},
    tune_steps=2,
    batch=2,
    task_steps=2,
    head_steps=2,
    most_train=24,
    most_dev=16,
    most_text=280,
    precision="fp32",
)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(TOY, 1, None, tmp_path)


def test_every_printed_row_has_a_recipe_or_a_reason():
    cells = {(c.table, c.row) for r in RECIPES.values() if r.paper == "hu" for c in r.cells}
    assert {p[1:3] for p in published() if p[0] == "hu"} <= cells | {
        key[1:] for key in NOT_RUN if key[0] == "hu"
    }
    assert all(name in RECIPES for c in CLAIMS if "hu" in c.better for name in (c.better, c.worse))


@pytest.mark.parametrize(
    "steps, every", ((10_000, LOOK), (500, LOOK), (499, 124), (240, 60), (3, 1))
)
def test_dev_is_scored_every_125_steps_or_every_quarter(steps, every):
    assert look_every(steps) == every and LOOK == 125


def pushed(model: nn.Linear, steps: int):
    """Train so that each step adds 1 to the weight."""
    for step in range(steps):
        with torch.no_grad():
            model.weight += 1
        yield Record(step, 0.0, {}, 0.0, 0.0)


@pytest.mark.parametrize("peak, kept", ((-1, 0), (260, 250), (1000, 600)))
def test_the_best_weights_come_back_those_of_the_start_included(run, peak, kept):
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)

    def score():
        return -abs(model.weight.item() - peak)

    unsupervised_stages.best_on_dev(run, "x", pushed(model, 600), model, score, 600, rate=0.1)
    assert model.weight.item() == kept
    (note,) = run.ran
    assert (
        note["looks"] == [0, 125, 250, 375, 500, 600]
        and note["kept"] == kept
        and note["rate"] == 0.1
    )
    assert note["dev"] == [-abs(done - peak) for done in note["looks"]]


def test_fine_tuning_that_harms_gives_the_model_of_the_start(run):
    model = heads_from(
        run,
        run.base(),
        lambda width: {"sst": LinearHead(width, 5), "sts": LinearPlusCosine(width, "similarity")},
    )
    with torch.no_grad():  # the cosine alone: a fair start that a far too high rate destroys
        model.heads["sts"].linear.weight.zero_()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = fine_tune(run, model, phase(run, "sts", lr=5.0))
    assert found.state_dict().keys() == before.keys() and all(
        torch.equal(x, before[name]) for name, x in found.state_dict().items()
    )
    (note,) = run.ran
    assert (
        note["looks"] == [0, 1, 2] and note["kept"] == 0 and note["dev"][0] == max(note["dev"]) > 0
    )
    assert (note["stage"], note["batch"], note["steps"], note["rate"]) == ("sts", 2, 2, 5.0)
    assert not found.training and all(p.requires_grad for p in found.encoder.parameters())


def searching(run: Run, best: float):
    """Stand in for a stage: its score is highest at one rate."""
    trained = []

    def prepare(trial):
        def train(rate):
            trained.append((trial.seed, rate))
            trial.note("x", dev=[0.1, -abs(math.log(rate / best))])

        return train

    return prepare, trained


def test_a_rate_is_searched_once_on_a_grid_with_a_seed_that_is_not_reported(run):
    prepare, trained = searching(run, 3e-5)
    assert (
        searched_rate(run, "a/b", prepare, 0.5) == RATES[0]
    )  # the start is the best of all but .1: equal scores, the first
    trained.clear()
    prepare, trained = searching(run, 3e-5)

    def shifted(trial):
        return lambda rate: (
            prepare(trial)(rate),
            trial.ran[-1].update(dev=[5 + trial.ran[-1]["dev"][1]]),
        )

    for seed in (1, 2):
        other = replace(run, seed=seed, ran=[])
        assert searched_rate(other, "a/c", shifted, 0.5) == 3e-5
        (note,) = other.ran
        assert (
            note["stage"] == "a/c: learning-rate search"
            and note["rates"] == list(RATES)
            and note["rate"] == 3e-5
        )
        assert len(note["dev"]) == len(RATES) and max(note["dev"]) == note["dev"][2] == 5.0
    assert trained == [
        (SEARCH_SEED, rate) for rate in RATES
    ]  # the second seed reads what the first found
    assert all(SEARCH_SEED not in scale.seeds for scale in SCALES.values())
    with pytest.raises(ValueError, match=r"search-a-c\.json: expected a search with "):
        searched_rate(replace(run, scale=replace(TOY, batch=3)), "a/c", prepare, 0.5)


def test_the_scale_of_the_papers_uses_their_rate(run):
    assert searched_rate(replace(run, scale=SCALES["paper"]), "a/b", lambda _: 1 / 0, 3e-4) == 3e-4


def test_a_search_that_fails_leaves_nothing(run):
    with pytest.raises(ZeroDivisionError):
        searched_rate(run, "a/b", lambda _: 1 / 0, 0.1)
    assert not list((run.out / "stages").iterdir())


def diverging(run: Run, bad: dict[float, Exception]):
    """Stand in for a stage that fails at some rates and scores -.5 at the others."""

    def prepare(trial):
        def train(rate):
            if rate in bad:
                raise bad[rate]
            trial.note("x", dev=[-0.5])

        return train

    return prepare


def test_a_rate_at_which_training_diverges_is_recorded_and_the_search_goes_on(run):
    bad = {RATES[0]: NotFinite("loss 0"), RATES[5]: ValueError("expected finite numbers, got NaN")}
    assert searched_rate(run, "a/b", diverging(run, bad), 0.5) == RATES[1]
    assert run.ran[0]["dev"] == [-1.0, -0.5, -0.5, -0.5, -0.5, -1.0]
    assert run.ran[0]["failed"] == {"3e-06": "loss 0", "0.001": "expected finite numbers, got NaN"}
    with pytest.raises(ValueError, match="a/c: expected a learning rate at which .* at 0.001: x$"):
        searched_rate(run, "a/c", diverging(run, dict.fromkeys(RATES, NotFinite("x"))), 0.5)
    assert not (run.out / "stages" / "search-a-c.json").exists()
    with pytest.raises(ZeroDivisionError):  # an error of the code is no diverging rate
        searched_rate(run, "a/d", diverging(run, {RATES[0]: ZeroDivisionError()}), 0.5)


@pytest.fixture
def joint():
    """A flow behind the embedded encoder, and a batch in which one sentence is there twice."""
    encoder = SentenceEncoder.from_pretrained(None)
    text = [
        "a cat sat on the mat",
        "two dogs ran away",
        "a cat sat on the mat",
        "nobody saw the train",
    ]
    model = start_joint(
        encoder, [f"{s} {i}" for i in range(20) for s in text], levels=2, mixing="dense", seed=1
    ).eval()
    return model, next(view_batches([text], encoder.tokenizer, 4, seed=1))


def test_the_joint_loss_is_the_printed_one(joint):
    """The likelihood in nats is D ln 2 times that in bits; equal sentences are negatives of each
    other.
    """
    model, batch = joint
    found, (a, b) = unsupervised_stages.joint_in_nats(model, batch), model(batch)
    bits = bertcf_loss(model.flow, a, b, a, groups=batch.groups)
    assert_close(found["flow"], bits["flow"] * model.flow.width * math.log(2), rtol=1e-5, atol=1e-3)
    assert_close(found["mirror"], 0.3 * mirror_loss(model.flow(a)[0], model.flow(b)[0], 0.04))
    assert (
        found["mirror"] > bits["mirror"] + 0.1
    )  # a repeated sentence cannot be told from its copy: about ln 2 for two of four rows, times .3


def test_the_likelihood_never_reaches_the_encoder(joint):
    model, batch = joint
    model.encoder.requires_grad_(True)
    model.frozen = False
    unsupervised_stages.joint_in_nats(model, batch)["flow"].backward()
    assert all(p.grad is None for p in model.encoder.parameters()) and any(
        p.grad is not None for p in model.flow.parameters()
    )


def test_losses_are_weighted_and_similarity_alone_has_dropout(run):
    model = heads_from(run, run.noisy(run.base(), 0.0), hu.heads)
    model.heads["sst"].drop.p = 0.0

    def some(*texts):
        return tokenize(model.encoder.tokenizer, list(texts))

    batch = {
        "sst": TaskBatch("sst", some("a fine film", "bad"), None, torch.tensor([4, 0])),
        "quora": TaskBatch(
            "quora", some("who is he", "why"), some("who was he", "when"), torch.tensor([1, 0])
        ),
        "sts": TaskBatch(
            "sts",
            some("a cat sits", "two dogs"),
            some("a cat sat", "a train"),
            torch.tensor([4.0, 1.0]),
        ),
    }

    def plain():
        return multitask_loss(model, batch, hu.LOSS_WEIGHTS)

    assert hu.LOSS_WEIGHTS == {"sst": 5, "quora": 20, "sts": 1}
    model.eval()
    assert_close(hu.weighted_losses(model, batch), plain(), rtol=1e-5, atol=1e-6)
    model.train()
    found, expected = hu.weighted_losses(model, batch), plain()
    assert_close(
        [found[t] for t in ("sst", "quora")],
        [expected[t] for t in ("sst", "quora")],
        rtol=1e-5,
        atol=1e-6,
    )
    assert abs(found["sts"] - expected["sts"]) > 1e-4
    assert all(model.heads[task].clip_positives for task in ("quora", "sts"))


def test_a_result_has_the_values_that_ran_and_checksums_of_what_was_read(run, monkeypatch):
    """What a recipe's settings call 16, 1e-4 and 10,000 steps ran as the scale has it; a stored
    stage brings its values back.
    """
    monkeypatch.setattr(runs, "RATES", (1e-5, 1e-2))
    result = perform(RECIPES["hu/bert-cf"], run)
    stages = [note["stage"] for note in result["ran"]]
    assert sorted(stages) == [
        "contrast",
        "hu/joint-5: learning-rate search",
        "hu/mirror-5: learning-rate search",
        "joint flow",
        "sst quora sts",
    ]
    ran = {note["stage"]: note for note in result["ran"]}
    assert (
        ran["contrast"]["rate"] == ran["hu/mirror-5: learning-rate search"]["rate"]
        and ran["joint flow"]["rate"] == ran["hu/joint-5: learning-rate search"]["rate"]
    )
    assert (ran["contrast"]["batch"], ran["contrast"]["steps"], ran["contrast"]["dropout"]) == (
        4,
        2,
        0.1,
    )
    assert (
        ran["sst quora sts"]["batch"],
        ran["sst quora sts"]["steps"],
        ran["sst quora sts"]["rate"],
    ) == (TOY.rows, 2, TOY.lr)
    assert all(
        note["looks"] == [0, 1, 2] for note in result["ran"] if "search" not in note["stage"]
    )
    assert {"sts/dev/16", "sst/train/24", "quora/dev/16", "sentences of the package"} <= {
        *result["rows"]
    }
    assert [p for p in result["curve"] if p["stage"] == "contrast" and p["step"] == 0] == [
        result["curve"][0]
    ]  # nothing of the search
    again = perform(RECIPES["hu/bert-cf"], replace(run, curve=[], ran=[], examples={}, texts={}))
    assert {json.dumps(note, sort_keys=True) for note in again["ran"]} == {
        json.dumps(note, sort_keys=True) for note in result["ran"]
    }
    assert result["rows"] == again["rows"] and result["measured"] == again["measured"]
    flow = SentenceEncoder.from_pretrained(run.out / "stages" / "hu-joint-5-1").transform
    assert any(isinstance(part, InvertibleLinear) for part in flow.modules())
    fresh = work_of(RECIPES["hu/bert-cf"], TOY, None)
    assert {"contrast", "joint flow"} <= {w.stage for w in fresh}
    assert not {"contrast", "joint flow"} & {
        w.stage for w in work_of(RECIPES["hu/bert-cf"], TOY, None, stored=run)
    }  # those are there


def test_a_stage_without_the_values_that_ran_is_refused(run):
    run.encoder("a", run.base)
    note = run.out / "stages" / "a-1" / "stage.json"
    note.write_text(
        json.dumps(
            {key: value for key, value in json.loads(note.read_text()).items() if key != "ran"}
        )
    )
    with pytest.raises(
        ValueError,
        match=r"stages.a-1: expected a stage with .*, got one without the values that ran",
    ):
        run.encoder("a", run.base)


def test_wikipedia_keeps_its_repeated_sentences_and_no_sample_stands_for_it_at_the_scale_of_the_papers(
    run, tmp_path
):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "wiki1m-simcse-sample.txt").write_text(
        "one sentence that has six words\n" * 2 + "too short a line\n", encoding="utf-8"
    )
    found = unsupervised_stages.wiki(one := replace(run, data=str(tmp_path)))
    assert (
        found == ["one sentence that has six words"] * 2
        and one.texts == {"corpus/wiki1m-simcse-sample.txt": 2}
        and {*one.texts} <= {*one.examples}
    )
    with pytest.raises(
        ValueError, match="expected wiki1m_for_simcse.txt in .* at scale paper, got none"
    ):
        unsupervised_stages.wiki(replace(one, scale=SCALES["paper"]))


def test_a_model_is_told_by_its_weights_whatever_their_file(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pytorch_model.bin").write_bytes(b"weights")
    assert (
        weights_checksum(str(tmp_path / "one"))
        == weights_checksum(str(tmp_path / "two"))
        != str(tmp_path / "one")
    )
    shutil.copy(Path(embedded_folder()) / "model.safetensors", tmp_path / "one")
    assert weights_checksum(str(tmp_path / "one")) == weights_checksum(None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match="empty: expected model.safetensors or pytorch_model.bin, got neither"
    ):
        weights_checksum(str(tmp_path / "empty"))


def test_a_cosine_as_an_input_has_a_trained_weight(tmp_path):
    head, (u, v) = (
        LinearPlusCosine(4, "similarity", learned=True, dropout=0.0),
        torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)),
    )
    head(u, v).sum().backward()
    assert_close(head.cosine_weight.grad, torch.cosine_similarity(u, v).sum())
    with torch.no_grad():
        head.cosine_weight.fill_(0.25)
    save_module(head, tmp_path)
    again = load_module(tmp_path)
    assert again.learned and again.cosine_weight.item() == 0.25
    assert_close(again(u, v), head(u, v))
    assert [name for name, _ in LinearPlusCosine(4).named_parameters()] == [
        "linear.weight",
        "linear.bias",
    ]


def test_labels_as_the_target_of_the_penalty_differ_in_the_target_alone(run):
    plain, labels = (
        wu_zhao.KINDS[kind](run)["loss_fn"].penalties[0] for kind in ("smart", "labels")
    )
    assert (
        (plain.target, labels.target) == ("clean", "labels")
        and plain.attack == labels.attack
        and plain.weight == labels.weight == 5.0
    )


def test_half_of_quora_is_one_fixed_half(run, monkeypatch):
    seen = []
    monkeypatch.setattr(
        wu_zhao,
        "fine_tune",
        lambda run, model, phase, sources: seen.append(sources[phase.source]["quora"].ids) or model,
    )
    for seed in (1, 2):
        wu_zhao.half_of_quora(replace(run, seed=seed))
    assert seen[0] == seen[1] and len(seen[0]) == 12 == len({*seen[0]})
