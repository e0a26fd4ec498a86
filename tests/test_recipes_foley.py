"""The report of Foley-Cox and Wendt as recipes: nothing printed is left out, and some of them run,
at a size for a test.
"""

from dataclasses import replace

import pytest
import torch

from minbert.papers import NOT_RUN, RECIPES, SCALES, Answers, Run, foley, published
from minbert.papers.recipe import CLAIMS

ME = "foley-cox-wendt"
MINE = {name: r for name, r in RECIPES.items() if r.paper == ME}
TOY = replace(
    SCALES["micro"],
    view_steps=2,
    view_batch=16,
    tune_steps=3,
    task_steps=2,
    head_steps=1,
    batch=4,
    most_train=120,
    most_dev=40,
    most_text=50,
    precision="fp32",
)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(TOY, 1, None, tmp_path)


def test_every_printed_figure_has_a_recipe():
    cells = {(c.table, c.row, c.metric) for r in MINE.values() for c in r.cells}
    assert {p[1:4] for p in published().values() if p.paper == ME and p[:3] not in NOT_RUN} == cells


def test_claims_name_recipes_of_this_paper():
    mine = [c for c in CLAIMS if c.better.startswith(ME)]
    assert len(mine) > 30 and {name for c in mine for name in (c.better, c.worse)} <= MINE.keys()
    assert len({(c.text, c.measured) for c in mine}) == len(mine)


def test_the_grid_of_sair_is_whole_and_no_two_recipes_are_alike():
    grid = {
        (r.settings["lambda"], r.settings["n"], r.settings["epsilon"].split()[0])
        for name, r in MINE.items()
        if "grid of" in r.settings.get("epsilon", "")
    }
    assert grid == {
        (w, n, e) for w in ("0.1", "1", "10") for n in ("100", "1000") for e in ("1e-05", "0.0001")
    }
    # the examples and the test rows are asked of the final model
    assert len({str(sorted(r.settings.items())) for r in MINE.values()}) == len(MINE) - 2


def test_a_fine_tuned_row_measures_what_its_cells_want(run):
    recipe = MINE[f"{ME}/final"]
    measured = recipe.make(run)
    assert {c.measured for c in recipe.cells} <= measured.keys()
    assert all(
        isinstance(measured[c.measured], Answers) and len(measured[c.measured].values) == 40
        for c in recipe.cells
    )
    assert {p["stage"] for p in run.curve} >= {"ranking", "tasks"} and any(
        "dev" in p for p in run.curve
    )
    assert measured["SST train - dev"] == pytest.approx(
        measured["SST train acc"] - _share(run, measured["SST dev acc"]), abs=1e-12
    )


def _share(run, answers):
    gold = run.dataset("sst", "dev").labels
    return sum(a == y for a, y in zip(answers.values, gold)) / len(gold)


def test_ranking_changes_the_encoder_and_is_kept(run):
    before = foley.pooled_base(run).encode(["a cat", "two dogs"])
    after = foley.ranked(run, 1).encode(["a cat", "two dogs"])
    assert not torch.allclose(before, after, atol=1e-4)
    assert torch.equal(after, foley.ranked(run, 1).encode(["a cat", "two dogs"]))


def test_machine_rows_say_so_and_share_nothing_with_dev(run):
    made = foley.machine_rows(run)
    assert (
        len(made) == 50
        and set(made.sources) == {"bag of words over a third of sst/train"}
        and made.split == "train"
    )
    assert set(made.labels) <= set(range(5)) and not set(made.sentences) & set(
        run.dataset("sst", "dev").sentences
    )
    both = foley.sources(run)["both"]["sst"]
    assert len(both) == 50 + 120 and both.sources.count(None) == 120


def test_the_machine_sees_a_third(run, monkeypatch):
    seen = []
    monkeypatch.setattr(foley.BagOfWords, "fit", lambda self, train: seen.append(train) or self)
    foley.labeller(run)
    assert len(seen[0]) == 40 and set(seen[0].ids) <= set(run.dataset("sst", "train").ids)


def test_the_first_phase_is_the_machines(run):
    assert foley.first_five(run, "machine").source == "machine" and foley.first_five(
        run, "machine"
    ).tasks == ("sst",)
    measured = MINE[f"{ME}/synthetic-only"].make(run)
    assert measured.keys() == {"SST dev acc"}


def test_a_copy_each_step_remembers_the_weights_of_the_step_before(run):
    model = foley.heads_from(run, foley.pooled_base(run), foley.heads)
    penalty = foley.CopyEachStep()
    weight = model.heads["sst"].linear.bias
    for value in (1.0, 2.0, 3.0):
        with torch.no_grad():
            weight.fill_(value)
        penalty.begin(model)
    assert penalty.old.heads["sst"].linear.bias[0] == 2.0


def test_one_row_is_found_by_words(run):
    dev = run.dataset("sts", "dev")
    words = dev.sentences[3].lower(), dev.sentences2[3].lower()
    assert foley.find(dev, *words).ids == [dev.ids[3]]
    with pytest.raises(ValueError, match="no such words"):
        foley.find(dev, "no such words")
