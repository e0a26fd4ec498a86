"""Recipes of Dao, Mehta and Tian: every printed cell has one, and the smallest runs give what they
say.
"""

from dataclasses import replace
from statistics import mean

import pytest
import torch
from torch.testing import assert_close

from minbert.contrastive import simcse_loss
from minbert.data import TaskBatch
from minbert.heads import LinearHead, multitask_loss
from minbert.metrics import accuracy, pearson
from minbert.papers import dao
from minbert.papers.finetune_stages import heads_from
from minbert.papers.published import published
from minbert.papers.recipe import CLAIMS, NOT_RUN, RECIPES
from minbert.papers.result_store import perform
from minbert.papers.run import Answers, Run, labelled
from minbert.papers.scale import SCALES
from minbert.tokens import tokenize

TOY = replace(SCALES["micro"], task_steps=2, head_steps=2, batch=4, most_dev=24, most_train=40)
SENTENCES = ["a fine film", "the plot is thin", "nothing works", "we laughed"]


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(TOY, 1, None, tmp_path)


def test_every_printed_cell_is_covered_once():
    covered = [(r.paper, *c[:3]) for r in RECIPES.values() for c in r.cells if r.paper == dao.PAPER]
    assert len(covered) == len(set(covered))
    assert {
        p[:4] for p in published().values() if p.paper == dao.PAPER and p[:3] not in NOT_RUN
    } == set(covered)


def test_claims_name_recipes_and_gaps_are_those_in_print():
    mine = [c for c in CLAIMS if c.better.startswith(dao.PAPER)]
    assert mine and all(c.better in RECIPES and c.worse in RECIPES for c in mine)
    gaps = {c.text: c.published for c in mine}
    assert gaps["Together beats one after the other in sentiment"] == 0.176  # .510 - .334
    assert gaps["Paraphrase: concatenation beats cosine"] == 0.149  # .780 - .631


def test_contrast_is_added_to_the_cost_of_the_answers(run):
    encoder = dao.start(run, 0.0)
    model = heads_from(run, encoder, lambda width: {"sst": LinearHead(width, 5, dropout=0.0)})
    part = TaskBatch(
        "sst", tokenize(encoder.tokenizer, SENTENCES), None, torch.tensor([0, 1, 2, 3])
    )
    (vectors,) = model.vectors(part.first)
    with pytest.warns(RuntimeWarning):  # no dropout: two equal views
        found = dao.contrasted(model, "sst", part, 0.0)
        contrast = simcse_loss(vectors, vectors, 0.05)
    assert contrast > 1e-4
    # another width of the batch
    assert_close(
        found, multitask_loss(model, {"sst": part})["sst"] + contrast, rtol=1e-4, atol=1e-5
    )


def test_losses_of_equal_size_have_the_gradients_of_their_logarithms():
    x, y = (torch.tensor(v, requires_grad=True) for v in (4.0, 0.5))
    dao.scaled(dao.plain)(None)({"a": x**2, "b": 3 * y})
    assert_close(torch.stack([x.grad, y.grad]), torch.tensor([2 / 4.0, 1 / 0.5]))


def test_joint_run_gives_answers_scores_and_ends_of_the_loss(run):
    measured = dao.multitask(run)
    scores = [
        measure(measured[key].values, labelled(measured[key].dataset, None).labels)
        for key, measure in ((dao.SST, accuracy), (dao.QUORA, accuracy), (dao.STS, pearson))
    ]
    assert measured[dao.OVERALL] == pytest.approx(mean(scores))
    assert all(len(a.values) == TOY.most_dev for a in measured.values() if isinstance(a, Answers))
    assert measured["train loss at first"] > 0
    assert all(
        0 <= measured[f"share of steps in conflict, {pair}"] <= 1
        for pair in ("quora and sst", "quora and sts", "sst and sts")
    )


def test_a_dev_score_without_correlation_can_be_stored(run):
    with pytest.warns(RuntimeWarning):
        result = perform(RECIPES["dao-mehta-tian/sts-classes"], run)
    assert [point["dev"] for point in result["curve"] if "dev" in point][-1] == {"sts": None}
    assert result["ran"][0]["looks"] == [0, 1, 2] and result["ran"][0]["dev"][-1] == -1.0


def test_examples_are_looked_for_by_their_row():
    with pytest.raises(ValueError, match=dao.EXAMPLES["sst"]):
        dao.example(Run(TOY, 1, None, None), "sst")
