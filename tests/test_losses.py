"""The supervised losses: against torch, sentence-transformers and closed forms, values and
gradients.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from minbert.losses import (
    GOALS,
    Head,
    check_labels,
    check_vectors,
    classes_loss,
    paraphrase_loss,
    paraphrase_mse_loss,
    predicted_class,
    predicted_grade,
    predicted_yes,
    similarity_loss,
    wide,
)


def draws(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def same_value_and_gradient(ours, oracle, x):
    x, y = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = ours(x), oracle(y)
    assert a.shape == ()
    assert_close(a, b)
    assert_close(torch.autograd.grad(a, x)[0], torch.autograd.grad(b, y)[0])


@pytest.mark.parametrize("B, C", [(1, 2), (1, 5), (3, 2), (7, 5), (64, 3)])
def test_classes_loss_is_the_mean_of_minus_log_softmax(B, C):
    labels = torch.randint(C, (B,), generator=torch.Generator().manual_seed(B))

    def oracle(z):
        return -(z - z.exp().sum(1, keepdim=True).log())[torch.arange(B), labels].sum() / B

    same_value_and_gradient(lambda z: classes_loss(z, labels), oracle, 3 * draws(B, C))
    z = draws(B, C).requires_grad_()
    (grad,) = torch.autograd.grad(classes_loss(z, labels), z)
    assert_close(grad, (z.softmax(1) - F.one_hot(labels, C)).detach() / B)  # closed form


@pytest.mark.parametrize("B", [1, 2, 33])
def test_binary_losses(B):
    y = torch.randint(2, (B,), generator=torch.Generator().manual_seed(B)).double()
    p = torch.sigmoid
    same_value_and_gradient(
        lambda z: paraphrase_loss(z, y),
        lambda z: -(y * p(z).log() + (1 - y) * p(-z).log()).mean(),
        draws(B),
    )
    same_value_and_gradient(
        lambda z: paraphrase_mse_loss(z, y), lambda z: ((p(z) - y) ** 2).mean(), draws(B)
    )
    z = draws(B).requires_grad_()
    assert_close(torch.autograd.grad(paraphrase_loss(z, y), z)[0], (p(z) - y).detach() / B)


@pytest.mark.parametrize("B", [1, 2, 33])
def test_similarity_loss(B):
    y = 5 * torch.rand(B, generator=torch.Generator().manual_seed(B)).double()
    same_value_and_gradient(
        lambda s: similarity_loss(s, y), lambda s: ((s - y) ** 2).sum() / B, 3 * draws(B)
    )


def test_similarity_loss_is_their_cosine_similarity_loss(given):
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    from minbert.losses import similarity_loss

    u, v = draws(2, 9, 6, dtype=torch.float32).requires_grad_().unbind()
    y = torch.rand(9)
    theirs = CosineSimilarityLoss(given)([{"e": u}, {"e": v}], y)
    ours = similarity_loss(5 * F.cosine_similarity(u, v), 5 * y) / 25
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours, (u, v)), torch.autograd.grad(theirs, (u, v)))


@pytest.mark.parametrize(
    "loss, outputs",
    [
        (classes_loss, (4, 3)),
        (paraphrase_loss, (4,)),
        (paraphrase_mse_loss, (4,)),
        (similarity_loss, (4,)),
    ],
)
def test_every_label_dtype_gives_the_same_loss(loss, outputs):
    z, y = draws(*outputs, dtype=torch.float32), torch.tensor([0, 1, 1, 0])
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int32,
        torch.float16,
        torch.float32,
        torch.float64,
    ):
        assert_close(loss(z, y.to(dtype)), loss(z, y), rtol=0, atol=0)
    for dtype, out in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ):
        got = loss(z.to(dtype), y)
        assert got.dtype == out
        # not summed in half
        assert_close(got.double(), loss(z.to(dtype).double(), y), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "loss, outputs",
    [
        (classes_loss, (2, 3)),
        (paraphrase_loss, (2,)),
        (paraphrase_mse_loss, (2,)),
        (similarity_loss, (2,)),
    ],
)
def test_bad_labels_are_named(loss, outputs):
    z = torch.zeros(outputs)
    top = {classes_loss: 2, similarity_loss: 5}.get(loss, 1)
    loss(z, torch.tensor([0, top]))
    for wrong in (
        torch.tensor([0, top + 1]),
        torch.tensor([0.0, -0.1]),
        torch.tensor([0.0, math.nan]),
        torch.tensor([0.0, math.inf]),
    ):
        with pytest.raises(ValueError, match=rf"\[0, {top}\].*{wrong[1].item()}.*row 1"):
            loss(z, wrong)
    for wrong in (torch.tensor([0]), torch.tensor([[0], [1]]), None, torch.tensor(0)):
        with pytest.raises(ValueError, match="expected outputs of"):
            loss(z, wrong)
    with pytest.raises(ValueError, match="expected outputs of"):
        loss(z[..., None], torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="empty"):
        loss(z[:0], torch.tensor([]))


def test_a_class_between_two_is_refused():
    with pytest.raises(ValueError, match="whole classes, got 1.5"):
        classes_loss(torch.zeros(2, 3), torch.tensor([0.0, 1.5]))


def test_large_logits_stay_finite():
    for z in (-300.0, 300.0):
        x = torch.tensor([z], requires_grad=True)
        loss = paraphrase_loss(x, torch.tensor([1]))
        assert_close(loss.item(), max(0.0, -z))
        assert torch.isfinite(torch.autograd.grad(loss, x)[0]).all()
    assert_close(classes_loss(torch.tensor([[0.0, 500]]), torch.tensor([0])).item(), 500.0)


def test_answers():
    assert predicted_yes(torch.tensor([-0.1, 0.0, -0.0, 0.1, 1e-30])).tolist() == [0, 0, 0, 1, 1]
    assert predicted_class(torch.tensor([[0, 2, 1.0], [3, 3, 3]])).tolist() == [1, 0]
    graded = predicted_grade(torch.tensor([-3, 0.3, 4.9, 5.1]).bfloat16())
    assert graded.dtype == torch.float32 and graded.min() == 0 and graded.max() == 5
    assert predicted_yes(torch.zeros(1)).shape == predicted_grade(torch.zeros(1)).shape == (1,)


def test_wide():
    assert [
        wide(torch.zeros(1, dtype=d)).dtype
        for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    ] == [torch.float32] * 3 + [torch.float64]


def test_labels_come_back_as_floats_beside_the_outputs():
    y = torch.tensor([0, 3])
    got = check_labels(torch.zeros(2, dtype=torch.float64), y, 0, 5)
    assert got.dtype == torch.float64 and y.dtype == torch.int64


def test_goals_name_a_loss_and_an_answer():
    assert {
        "classes": (classes_loss, predicted_class),
        "paraphrase": (paraphrase_loss, predicted_yes),
        "paraphrase_mse": (paraphrase_mse_loss, predicted_yes),
        "similarity": (similarity_loss, predicted_grade),
    } == GOALS


def test_the_frame_of_heads():
    class Mine(Head):
        def __init__(self, width, goal="similarity"):
            super().__init__(goal)
            self.width = width

    head = Mine(7)
    assert head.pair and head.init_kwargs() == {"width": 7, "goal": "similarity"}
    assert head.loss(torch.tensor([1.0]), torch.tensor([3])).item() == 4
    assert Mine(1, "paraphrase").loss(torch.zeros(1), torch.ones(1)).item() == pytest.approx(
        math.log(2)
    )
    assert Mine(1, "paraphrase_mse").loss(torch.zeros(1), torch.ones(1)).item() == 0.25
    assert head.predict(torch.tensor([6.0])).item() == 5
    with pytest.raises(ValueError, match="'sentiment'"):
        Mine(7, "sentiment")


@pytest.mark.parametrize(
    "shapes", [[(3,)], [(2, 3, 4)], [(2, 3), (1, 3)], [(2, 3), (2, 4)], [(1, 3), (3,)]]
)
def test_vectors_of_another_shape_are_refused(shapes):
    with pytest.raises(ValueError, match=r"\(B, D\)"):
        check_vectors(*map(torch.zeros, shapes))
