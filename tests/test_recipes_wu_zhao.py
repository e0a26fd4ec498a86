"""Recipes of Wu and Zhao, and what of the course's test sets has labels."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from minbert.contrastive import contrastive_loss
from minbert.data import Dataset, load_dataset
from minbert.metrics import accuracy, pearson
from minbert.papers import finetune_stages, test_sets, wu_zhao
from minbert.papers.published import published
from minbert.papers.recipe import CLAIMS, RECIPES
from minbert.papers.result_store import perform
from minbert.papers.run import Answers, Run, labelled
from minbert.papers.scale import SCALES

TOY = replace(SCALES["micro"], most_dev=40, most_train=64, task_steps=2, head_steps=2, batch=8)


@pytest.fixture
def toy(tmp_path):
    return Run(TOY, 1, None, tmp_path)


@pytest.fixture(scope="module")
def sst():
    """A model with untrained heads, and two batches of SST's dev set."""
    run = Run(TOY, 1, None, None)
    model = wu_zhao.trained(run, ()).eval()
    return model, wu_zhao.parts(run, model, "sst", most=24, size=16)


def test_every_cell_of_the_report_has_a_recipe():
    cells = {
        (c.table, c.row, c.metric)
        for r in RECIPES.values()
        if r.paper == "wu-zhao"
        for c in r.cells
    }
    printed = {p[1:] for p in published() if p[0] == "wu-zhao"}
    # no labels
    assert printed - cells == {
        ("T1", "Final result on test set", "Quora dev acc"),
        ("T1", "Final result on test set", "average"),
    }


def test_claims_name_recipes_that_exist():
    mine = [c for c in CLAIMS if "wu-zhao" in c.better + c.worse]
    assert mine and all(name in RECIPES for c in mine for name in (c.better, c.worse))


def test_a_row_averages_its_three_scores(toy, sst):
    found = wu_zhao.with_mean(toy, sst[0], wu_zhao.AVERAGE)
    assert {*found} == {*wu_zhao.KEYS.values(), "average"} and len(
        found["SST dev acc"].values
    ) == 40
    scores = [
        metric(found[key].values, labelled(found[key].dataset, None).labels)
        for key, metric in zip(wu_zhao.KEYS.values(), (accuracy, accuracy, pearson))
    ]
    assert math.isclose(found["average"], sum(scores) / 3, rel_tol=1e-12)


def test_a_control_runs_from_end_to_end(toy):
    result = perform(RECIPES["control/wu-zhao-noise-sts"], toy)
    assert result["measured"]["STS dev pearson"]["dataset"] == "sts/dev/40" and result["curve"]


def test_plans_share_their_first_part_and_heads_leave_the_encoder_alone(toy, monkeypatch):
    # two steps may harm: the start is not to be kept
    monkeypatch.setattr(
        finetune_stages, "evaluate_tasks", lambda *_, **__: {"any": SimpleNamespace(value=-2.0)}
    )
    model = wu_zhao.trained(toy, ("contrast", "sts+smart"))
    assert {f.name for f in (toy.out / "stages").iterdir()} == {
        "wu-contrast-1",
        "wu-contrast-sts+smart-1",
    }
    fresh, old = wu_zhao.trained(toy, ()), wu_zhao.trained(toy, ("contrast",))

    def same(a, b):
        return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))

    assert not same(fresh.encoder, old.encoder) and not same(old.encoder, model.encoder)
    assert same(fresh.heads, old.heads)  # the contrast asks the vectors, not the heads
    before = [p.clone() for p in model.encoder.parameters()]
    head = model.heads["sst"].linear.weight.clone()
    after = wu_zhao.with_heads(toy, model, ("sst",))
    assert all(
        torch.equal(p, q) for p, q in zip(before, after.encoder.parameters())
    ) and not torch.equal(head, after.heads["sst"].linear.weight)


def test_contrast_is_hadsells(sst):
    model, _ = sst
    part = replace(
        wu_zhao.parts(Run(TOY, 1, None, None), model, "quora", most=8)[0],
        labels=torch.tensor([1, 0] * 4),
        weight=0.5,
    )
    found = wu_zhao.hadsell(model, {"quora": part})["quora"]
    torch.testing.assert_close(
        found, contrastive_loss(*model.vectors(part.first, part.second), part.labels) / 2
    )


def test_noise_differs_from_smart_in_the_gradient_alone(toy):
    smart, noise = (wu_zhao.KINDS[kind](toy)["loss_fn"].penalties[0] for kind in ("smart", "noise"))
    assert noise.attack == replace(smart.attack, step_size=0.0) and (smart.weight, smart.level) == (
        noise.weight,
        noise.level,
    ) == (5.0, "vectors")
    assert (
        smart.attack.variant,
        smart.attack.steps,
        smart.attack.step_size,
        smart.attack.epsilon,
        smart.attack.noise,
    ) == ("rescale", 1, 1e-3, 1e-5, 1e-5)


@pytest.mark.parametrize("level", ["vectors", "words"])
def test_attacks_stay_in_their_ball_and_a_search_beats_noise(sst, level):
    model, batches = sst

    def share(radius, steps):
        return torch.cat(
            [
                wu_zhao.attacked(
                    model, "sst", part, level, radius, steps, torch.Generator().manual_seed(0)
                )
                for part in batches
            ]
        )

    assert not share(1e-7, 3).any()
    wide = 0.3 if level == "vectors" else 0.1
    assert share(wide, 5).sum() > share(wide, 0).sum()


def test_an_example_is_one_row(toy):
    dev = load_dataset("sst", "dev")
    words = tuple(dev.sentences[3].lower().split())
    assert wu_zhao.example("sst", (" ".join(words),), None).ids == [dev.ids[3]]
    with pytest.raises(
        ValueError, match="expected one row with the words glorious, solaris, got 0"
    ):
        wu_zhao.example("sst", wu_zhao.EXAMPLES["SST Failure"][1:], None)


def test_grades_of_test_pairs_come_from_the_benchmark_without_what_was_trained_on():
    pairs, grades = test_sets.course_test_pairs(None)
    test, key = load_dataset("sts", "test"), lambda data: set(zip(data.sentences, data.sentences2))
    own = dict(zip(test.ids, test.labels))
    assert grades == [own[i] for i in pairs.ids] and 0 < len(pairs) <= len(test)
    assert not key(pairs) & (key(load_dataset("sts", "train")) | key(load_dataset("sts", "dev")))


def test_a_test_pair_has_its_first_grade_and_none_that_was_trained_or_chosen_on_is_asked(
    monkeypatch,
):
    files = {
        ("stsb", "train"): [("A dog.", "a cat", 1.0), ("a dog", "A CAT", 5.0)],
        ("stsb", "dev"): [("x", "y", 2.0)],
        ("stsb", "test"): [
            ("a dog", "a cat", 4.0),
            ("p", "q", 3.0),
            ("m", "n", 0.5),
            ("late", "r", 2.5),
        ],
        ("sts", "train"): [("P!", "q", 0.0)],
        ("sts", "dev"): [("m", "N", 0.0)],
        ("sts", "test"): [
            ("p", "q", 0.0),
            ("late", "R", 0.0),
            ("nobody", "knows", 0.0),
            ("X", "y", 0.0),
            ("m", "n", 0.0),
            ("A  DOG", "a-cat!", 0.0),
        ],
    }

    def load(task, split, folder):
        first, second, labels = map(list, zip(*files[task, split]))
        return Dataset(task, split, "similarity", first, second, labels)

    monkeypatch.setattr(test_sets, "load_dataset", load)
    pairs, grades = test_sets.course_test_pairs("somewhere")
    assert [*zip(pairs.sentences, pairs.sentences2)] == [
        ("late", "R"),
        ("X", "y"),
        ("A  DOG", "a-cat!"),
    ] and grades == [2.5, 2.0, 1.0]


def test_answers_on_test_say_which_rows_were_asked(toy, sst, monkeypatch):
    monkeypatch.setattr(
        Run, "dataset", lambda run, task, split: load_dataset("sst", "dev").subset(range(5))
    )
    monkeypatch.setattr(Run, "part", lambda run, task, split: f"{task}/{split}/5")
    found = test_sets.on_test(toy, sst[0])
    assert (
        isinstance(found["SST test acc"], Answers)
        and found["SST test acc"].dataset == "sst5/test/5"
        and -1 <= found["STS test pearson"] <= 1
    )
