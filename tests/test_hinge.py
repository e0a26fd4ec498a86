"""The hinge of the BERT-CF report: closed forms, torch's cosine embedding loss, dead pairs."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from minbert.hinge import (
    HingeCosine,
    dead_fraction,
    hinge_height,
    hinge_paraphrase_loss,
    hinge_similarity_loss,
    signed_labels,
)


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_signed_labels():
    for dtype in (torch.bool, torch.int64, torch.uint8, torch.float32):
        assert signed_labels(torch.tensor([1, 0, 1]).to(dtype)).tolist() == [1, -1, 1]
    assert signed_labels(torch.tensor([-1, 1])).tolist() == [-1, 1]
    assert signed_labels(torch.tensor([1, 1])).tolist() == [1, 1]
    assert signed_labels(torch.tensor([0, 0])).tolist() == [-1, -1]
    for wrong in ([0, -1], [0.5], [2], [math.nan]):
        with pytest.raises(ValueError, match="-1 and 1"):
            signed_labels(torch.tensor(wrong))


@pytest.mark.parametrize("floor", [-0.3, 0.0, 0.4, 0.7])
@pytest.mark.parametrize("form", ["signed", "zero_one"])
def test_open_form_is_torchs_cosine_embedding_loss(floor, form):
    u, v = vectors(2, 40, 3).requires_grad_().unbind()
    y = torch.tensor([1.0, -1] * 20)
    labels = y if form == "signed" else (y > 0).long()
    ours = hinge_paraphrase_loss(F.cosine_similarity(u, v), labels, floor, "open_positive")
    theirs = F.cosine_embedding_loss(u, v, y, margin=floor)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours, (u, v)), torch.autograd.grad(theirs, (u, v)))


@pytest.mark.parametrize("B", [1, 2, 50])
def test_paper_form_is_the_printed_formula(B):
    c = (
        2 * torch.rand(B, generator=torch.Generator().manual_seed(B), dtype=torch.float64) - 1
    ).requires_grad_()
    labels = torch.randint(2, (B,), generator=torch.Generator().manual_seed(1))
    y = c.clamp(min=0.7)
    costs = [(1 - a) if label else (a - 0.7) for a, label in zip(y, labels)]
    expected = sum(costs) / B
    ours = hinge_paraphrase_loss(c, labels)
    assert_close(ours, expected)
    (slope,) = torch.autograd.grad(ours, c)
    assert_close(slope, torch.where(c > 0.7, torch.where(labels == 1, -1.0, 1.0).double(), 0.0) / B)
    cut = c.detach().clamp(min=0.7)  # a head cuts first: the same cost
    assert_close(hinge_paraphrase_loss(cut, labels), ours.detach())


def test_a_positive_pair_below_the_floor_is_dead_only_on_paper():
    for hinge, dead in (("paper", True), ("open_positive", False)):
        for rule, label in ((hinge_paraphrase_loss, 1), (hinge_similarity_loss, 5)):
            c = torch.tensor([-0.2], requires_grad=True)
            (slope,) = torch.autograd.grad(
                rule(c, torch.tensor([label]), floor=0.3, hinge=hinge), c
            )
            assert (slope == 0).all() == dead, (hinge, rule)
            assert slope <= 0


@pytest.mark.parametrize("floor", [0.0, 0.4])
def test_similarity_form(floor):
    c = (
        2 * torch.rand(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 1
    ).requires_grad_()
    labels = torch.arange(30).double() % 6
    target = floor + (1 - floor) * labels / 5
    expected = ((torch.maximum(c, torch.tensor(floor)) - target) ** 2).mean()
    ours = hinge_similarity_loss(c, labels, floor)
    assert_close(ours, expected)
    assert_close(torch.autograd.grad(ours, c), torch.autograd.grad(expected, c))
    opened = hinge_similarity_loss(c, labels, floor, "open_positive")
    errors = [
        (x - t) ** 2 if label > 0 else (max(x, floor) - t) ** 2
        for x, t, label in zip(c.tolist(), target.tolist(), labels)
    ]
    assert_close(opened.item(), float(sum(errors) / 30))
    zero = torch.autograd.grad(opened, c)[0][(labels == 0) & (c < floor)]
    assert len(zero) and (zero == 0).all()  # different enough stays different enough


def test_float32_under_half_precision():
    c = torch.tensor([0.9, 0.4]).bfloat16()
    assert hinge_paraphrase_loss(c, torch.tensor([1, 0])).dtype == torch.float32
    assert hinge_similarity_loss(c, torch.tensor([1, 0])).dtype == torch.float32


def test_dead_fraction_counts_pairs_that_should_rise():
    c = torch.tensor([0.9, 0.7, 0.2, 0.2, 0.8])
    assert dead_fraction(c, torch.tensor([1, 1, 1, 0, 1])).item() == 0.5
    assert dead_fraction(c, torch.tensor([1, 1, 1, -1, 1])).item() == 0.5
    assert dead_fraction(c, torch.tensor([5, 4.2, 0.1, 0, 0]), floor=0.2).item() == pytest.approx(
        1 / 3
    )
    assert dead_fraction(c.clamp(min=0.7), torch.tensor([1, 1, 1, 0, 1])).item() == 0.5
    assert torch.isnan(dead_fraction(c, torch.zeros(5)))
    assert not dead_fraction(c.requires_grad_(), torch.ones(5)).requires_grad


def test_height_undoes_the_target():
    grades = torch.linspace(0, 5, 11, dtype=torch.float64)
    for floor in (0.0, 0.3, 0.7):
        assert_close(5 * hinge_height(floor + (1 - floor) * grades / 5, floor), grades)
    assert hinge_height(torch.tensor([-1.0, 1.001]), 0.5).tolist() == [0, 1]


@pytest.mark.parametrize("B", [1, 4])
def test_head_is_a_projected_cosine(B):
    u, v = vectors(2, B, 6).unbind()
    for hinge in ("paper", "open_positive"):
        head = HingeCosine(6, floor=0.1, hinge=hinge, project=5).double()
        P = head.linear.weight
        cosine = F.cosine_similarity(u @ P.T, v @ P.T)
        expected = cosine.clamp(min=0.1) if hinge == "paper" else cosine
        out = head(u, v)
        assert out.shape == (B,)
        assert_close(out, expected)
        assert_close(out, head(v, u))
        assert_close(head(3 * u, v / 7), out)
        assert [name for name, _ in head.named_parameters()] == ["linear.weight"]  # no bias


def test_head_defaults_are_the_reports():
    head, graded = HingeCosine(6), HingeCosine(6, "similarity")
    assert (head.floor, graded.floor, head.project, head.hinge, head.linear.weight.shape) == (
        0.7,
        0,
        768,
        "paper",
        (768, 6),
    )
    assert head.predict(torch.tensor([0.7, 0.84, 0.86, 1.0])).tolist() == [0, 0, 1, 1]
    # the middle is a yes
    assert HingeCosine(6, floor=0.5).predict(torch.tensor([0.74, 0.75])).tolist() == [0, 1]
    assert_close(graded.predict(torch.tensor([-0.4, 0.0, 0.3, 1.0])), torch.tensor([0, 0, 1.5, 5]))
    assert_close(
        HingeCosine(6, "similarity", floor=0.5).predict(torch.tensor([0.75])), torch.tensor([2.5])
    )


@pytest.mark.parametrize("goal, labels", [("paraphrase", [1, 0, 1]), ("similarity", [4.0, 0, 2])])
@pytest.mark.parametrize("hinge", ["paper", "open_positive"])
def test_head_loss_uses_its_floor_and_reports_the_dead(goal, labels, hinge):
    head = HingeCosine(6, goal, floor=0.6, hinge=hinge)
    c, y = torch.tensor([0.3, 0.9, 0.8]), torch.tensor(labels)
    rule = hinge_paraphrase_loss if goal == "paraphrase" else hinge_similarity_loss
    assert head.last_dead is None
    assert_close(head.loss(c, y), rule(c, y, 0.6, hinge))
    assert head.last_dead.item() == (0.5 if hinge == "paper" else 0)


def test_bad_input():
    for kwargs, word in (
        ({"goal": "classes"}, "classes"),
        ({"goal": "paraphrase_mse"}, "paraphrase_mse"),
        ({"hinge": "open"}, "open"),
        ({"floor": 1.0}, "floor"),
        ({"floor": -1.1}, "floor"),
    ):
        with pytest.raises(ValueError, match=word):
            HingeCosine(6, **kwargs)
    with pytest.raises(ValueError, match=r"\(B, D\)"):
        HingeCosine(6)(torch.zeros(1, 6), torch.zeros(2, 6))
    for rule in (hinge_paraphrase_loss, hinge_similarity_loss):
        with pytest.raises(ValueError, match="open_positive"):
            rule(torch.zeros(2), torch.tensor([0, 1]), hinge="closed")
        with pytest.raises(ValueError, match="nan"):
            rule(torch.zeros(2), torch.tensor([0, math.nan]))
        with pytest.raises(ValueError, match="labels of shape"):
            rule(torch.zeros(2), torch.tensor([[0], [1]]))


def test_a_zero_vector_passes_no_gradient():
    head = HingeCosine(4, floor=-1.0, project=3)
    u = torch.zeros(1, 4, requires_grad=True)
    head(u, torch.ones(1, 4)).sum().backward()
    assert (u.grad == 0).all()
