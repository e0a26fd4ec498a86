"""Chapter 12, losses: against loops and sentence-transformers, in values and gradients."""
import math

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import ContrastiveLoss, MultipleNegativesRankingLoss
from torch.testing import assert_close

from minbert.contrastive import contrastive_loss, mirror_loss, simcse_loss


def views(n, d=6, count=2, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=g, dtype=dtype).requires_grad_() for _ in range(count)]


def equal(ours, theirs, inputs, **close):
    assert_close(ours, theirs, **close)
    assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs), **close)


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_simcse_is_multiple_negatives_ranking(given, n, temperature):
    a, b = views(n, seed=n)
    theirs = MultipleNegativesRankingLoss(given, scale=1 / temperature)([{"e": a}, {"e": b}], None)
    equal(simcse_loss(a, b, temperature), theirs, (a, b))
    a, b, h = views(n, count=3, seed=n)
    theirs = MultipleNegativesRankingLoss(given, scale=1 / temperature)([{"e": a}, {"e": b}, {"e": h}], None)
    equal(simcse_loss(a, b, temperature, hard=h), theirs, (a, b, h))


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.04, 0.5])
def test_mirror_is_the_joint_form_of_ranking(given, n, temperature):
    a, b = views(n, seed=n)
    judge = MultipleNegativesRankingLoss(given, scale=1 / temperature, directions=("query_to_doc", "query_to_query"),
                                         partition_mode="joint")
    equal(mirror_loss(a, b, temperature), judge([{"e": a}, {"e": b}], None), (a, b))
    both = (judge([{"e": a}, {"e": b}], None) + judge([{"e": b}, {"e": a}], None)) / 2
    equal(mirror_loss(a, b, temperature, symmetric=True), both, (a, b))


def test_symmetric_mirror_is_nt_xent_over_all_anchors():
    """Mirror-BERT's released form: 2B anchors, each with one positive and 2B - 2 negatives."""
    a, b = views(7)
    x = F.normalize(torch.cat([a, b]), dim=1)
    logits = (x @ x.T / 0.1).masked_fill(torch.eye(14, dtype=torch.bool), -math.inf)
    expected = F.cross_entropy(logits, torch.arange(14).roll(7))
    equal(mirror_loss(a, b, 0.1, symmetric=True), expected, (a, b))


@pytest.mark.parametrize("margin", [0.5, 0.9])
def test_margin_loss_is_that_of_sentence_transformers(given, margin):
    u, v = views(40)
    labels = torch.arange(40) % 2
    theirs = ContrastiveLoss(given, margin=margin)([{"e": u}, {"e": v}], labels)
    equal(contrastive_loss(u, v, labels, margin), theirs, (u, v))
    assert_close(contrastive_loss(u, v, labels.bool(), margin), contrastive_loss(u, v, labels.double(), margin))


def test_groups_take_doubles_out_of_the_negatives():
    a, b = views(6)
    groups = torch.tensor([3, 3, 7, 9, 3, 9])
    cosine = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.05
    rows = []
    for i in range(6):
        kept = [j for j in range(6) if j == i or groups[j] != groups[i]]
        rows.append(cosine[i, kept].logsumexp(0) - cosine[i, i])
    equal(simcse_loss(a, b, groups=groups), torch.stack(rows).mean(), (a, b))
    assert_close(simcse_loss(a, b, groups=torch.arange(6)), simcse_loss(a, b))
    assert simcse_loss(a, b, groups=torch.zeros(6, dtype=torch.long)) == 0  # all alike: nothing to ask


@pytest.mark.parametrize("loss", [simcse_loss, mirror_loss, lambda a, b: mirror_loss(a, b, symmetric=True)])
def test_what_does_not_matter(loss):
    a, b = views(8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    assert_close(loss(a[order], b[order]), loss(a, b))
    assert_close(loss(3 * a, b / 7), loss(a, b))
    half = loss(a.detach().bfloat16(), b.detach().bfloat16())
    assert half.dtype == torch.float32 and abs(half - loss(a, b)) < 0.2


@pytest.mark.parametrize("loss", [simcse_loss, mirror_loss])
def test_batches_that_teach_nothing_are_named(loss):
    a, b = views(1)
    with pytest.warns(RuntimeWarning, match="batch of one"):
        value = loss(a, b)
    assert value == 0 and all((g == 0).all() for g in torch.autograd.grad(value, (a, b)))
    a, _ = views(4)
    with pytest.warns(RuntimeWarning, match="dropout"):
        loss(a, a.clone())
    zero = torch.zeros(3, 4, requires_grad=True)
    value = loss(zero, torch.eye(3, 4))
    assert value.isfinite() and torch.autograd.grad(value, zero)[0].eq(0).all()  # a zero vector: cosine 0, no gradient


@pytest.mark.parametrize("make, message", [
    (lambda a, b: simcse_loss(a, b[:3]), r"one shape \(B, D\), got \(4, 6\), \(3, 6\)"), (lambda a, b: simcse_loss(a[0], b[0]), "one shape"),
    (lambda a, b: simcse_loss(a, b, hard=a[:2]), r"\(2, 6\)"), (lambda a, b: simcse_loss(a[:0], b[:0]), "one shape"),
    (lambda a, b: simcse_loss(a, b, groups=torch.zeros(3)), r"groups of shape \(4,\), got \(3,\)"),
    (lambda a, b: simcse_loss(a, b, groups=torch.zeros(4, 1)), r"got \(4, 1\)"),
    (lambda a, b: simcse_loss(a, b, 0), "temperature above 0, got 0"), (lambda a, b: mirror_loss(a, b, -1), "temperature"),
    (lambda a, b: mirror_loss(a, b[:, :2]), "one shape"), (lambda a, b: contrastive_loss(a, b[:3], torch.ones(4)), "equal shapes"),
    (lambda a, b: contrastive_loss(a, b, torch.ones(4), margin=0), "margin"), (lambda a, b: contrastive_loss(a, b, torch.ones(3)), "labels"),
    (lambda a, b: contrastive_loss(a, b, torch.full((4,), 0.5)), "labels 0 and 1"),
    (lambda a, b: contrastive_loss(a, b, torch.tensor([0, 1, 2, 1])), "2")])
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(*views(4))
