"""The supervised losses, clipped cosine losses among them: against torch, sentence-transformers and
closed forms, values and gradients.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from minbert.datasets.label_checks import check_labels, check_vectors
from minbert.losses import (
    GOALS,
    ClippedCosineHead,
    Head,
    classes_loss,
    clipped_paraphrase_loss,
    clipped_similarity_loss,
    paraphrase_loss,
    paraphrase_mse_loss,
    predicted_binary,
    predicted_class,
    predicted_score,
    signed_labels,
    similarity_loss,
    wide,
    zero_gradient_fraction,
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
    assert predicted_binary(torch.tensor([-0.1, 0.0, -0.0, 0.1, 1e-30])).tolist() == [0, 0, 0, 1, 1]
    assert predicted_class(torch.tensor([[0, 2, 1.0], [3, 3, 3]])).tolist() == [1, 0]
    graded = predicted_score(torch.tensor([-3, 0.3, 4.9, 5.1]).bfloat16())
    assert graded.dtype == torch.float32 and graded.min() == 0 and graded.max() == 5
    assert predicted_binary(torch.zeros(1)).shape == predicted_score(torch.zeros(1)).shape == (1,)


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
        "paraphrase": (paraphrase_loss, predicted_binary),
        "paraphrase_mse": (paraphrase_mse_loss, predicted_binary),
        "similarity": (similarity_loss, predicted_score),
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


# ---- clipped cosines


def test_signed_labels():
    for dtype in (torch.bool, torch.int64, torch.uint8, torch.float32):
        assert signed_labels(torch.tensor([1, 0, 1]).to(dtype)).tolist() == [1, -1, 1]
    assert signed_labels(torch.tensor([-1, 1])).tolist() == [-1, 1]
    assert signed_labels(torch.tensor([1, 1])).tolist() == [1, 1]
    assert signed_labels(torch.tensor([0, 0])).tolist() == [-1, -1]
    for wrong in ([0, -1], [0.5], [2], [math.nan]):
        with pytest.raises(ValueError, match="-1 and 1"):
            signed_labels(torch.tensor(wrong))


@pytest.mark.parametrize("threshold", [-0.3, 0.0, 0.4, 0.7])
@pytest.mark.parametrize("form", ["signed", "zero_one"])
def test_unclipped_positives_give_torchs_cosine_embedding_loss(threshold, form):
    u, v = draws(2, 40, 3).requires_grad_().unbind()
    y = torch.tensor([1.0, -1] * 20)
    labels = y if form == "signed" else (y > 0).long()
    ours = clipped_paraphrase_loss(
        F.cosine_similarity(u, v), labels, threshold, clip_positives=False
    )
    theirs = F.cosine_embedding_loss(u, v, y, margin=threshold)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours, (u, v)), torch.autograd.grad(theirs, (u, v)))


@pytest.mark.parametrize("B", [1, 2, 50])
def test_clipped_positives_give_the_printed_formula(B):
    c = (
        2 * torch.rand(B, generator=torch.Generator().manual_seed(B), dtype=torch.float64) - 1
    ).requires_grad_()
    labels = torch.randint(2, (B,), generator=torch.Generator().manual_seed(1))
    y = c.clamp(min=0.7)
    costs = [(1 - a) if label else (a - 0.7) for a, label in zip(y, labels)]
    expected = sum(costs) / B
    ours = clipped_paraphrase_loss(c, labels)
    assert_close(ours, expected)
    (slope,) = torch.autograd.grad(ours, c)
    assert_close(slope, torch.where(c > 0.7, torch.where(labels == 1, -1.0, 1.0).double(), 0.0) / B)
    cut = c.detach().clamp(min=0.7)  # a head cuts first: the same cost
    assert_close(clipped_paraphrase_loss(cut, labels), ours.detach())


def test_a_positive_pair_below_the_threshold_has_a_gradient_only_if_it_is_not_clipped():
    for clip_positives in (True, False):
        for rule, label in ((clipped_paraphrase_loss, 1), (clipped_similarity_loss, 5)):
            c = torch.tensor([-0.2], requires_grad=True)
            (slope,) = torch.autograd.grad(
                rule(c, torch.tensor([label]), threshold=0.3, clip_positives=clip_positives), c
            )
            assert (slope == 0).all() == clip_positives, rule
            assert slope <= 0


@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_clipped_similarity_loss(threshold):
    c = (
        2 * torch.rand(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 1
    ).requires_grad_()
    labels = torch.arange(30).double() % 6
    target = threshold + (1 - threshold) * labels / 5
    expected = ((torch.maximum(c, torch.tensor(threshold)) - target) ** 2).mean()
    ours = clipped_similarity_loss(c, labels, threshold)
    assert_close(ours, expected)
    assert_close(torch.autograd.grad(ours, c), torch.autograd.grad(expected, c))
    opened = clipped_similarity_loss(c, labels, threshold, clip_positives=False)
    errors = [
        (x - t) ** 2 if label > 0 else (max(x, threshold) - t) ** 2
        for x, t, label in zip(c.tolist(), target.tolist(), labels)
    ]
    assert_close(opened.item(), float(sum(errors) / 30))
    zero = torch.autograd.grad(opened, c)[0][(labels == 0) & (c < threshold)]
    assert len(zero) and (zero == 0).all()  # different enough stays different enough


def test_clipped_losses_are_float32_under_half_precision():
    c = torch.tensor([0.9, 0.4]).bfloat16()
    assert clipped_paraphrase_loss(c, torch.tensor([1, 0])).dtype == torch.float32
    assert clipped_similarity_loss(c, torch.tensor([1, 0])).dtype == torch.float32


def test_zero_gradient_fraction_counts_positive_pairs():
    c = torch.tensor([0.9, 0.7, 0.2, 0.2, 0.8])
    assert zero_gradient_fraction(c, torch.tensor([1, 1, 1, 0, 1])).item() == 0.5
    assert zero_gradient_fraction(c, torch.tensor([1, 1, 1, -1, 1])).item() == 0.5
    assert zero_gradient_fraction(
        c, torch.tensor([5, 4.2, 0.1, 0, 0]), threshold=0.2
    ).item() == pytest.approx(1 / 3)
    assert zero_gradient_fraction(c.clamp(min=0.7), torch.tensor([1, 1, 1, 0, 1])).item() == 0.5
    assert torch.isnan(zero_gradient_fraction(c, torch.zeros(5)))
    assert not zero_gradient_fraction(c.requires_grad_(), torch.ones(5)).requires_grad


def test_predicted_scores_invert_the_targets():
    scores = torch.linspace(0, 5, 11, dtype=torch.float64)
    for threshold in (0.0, 0.3, 0.7):
        head = ClippedCosineHead(2, "similarity", threshold=threshold)
        assert_close(head.predict(threshold + (1 - threshold) * scores / 5), scores)
    head = ClippedCosineHead(2, "similarity", threshold=0.5)
    assert head.predict(torch.tensor([-1.0, 1.001])).tolist() == [0, 5]


@pytest.mark.parametrize("B", [1, 4])
def test_head_is_a_projected_cosine(B):
    u, v = draws(2, B, 6).unbind()
    for clip_positives in (True, False):
        head = ClippedCosineHead(
            6, threshold=0.1, clip_positives=clip_positives, project=5
        ).double()
        P = head.linear.weight
        cosine = F.cosine_similarity(u @ P.T, v @ P.T)
        expected = cosine.clamp(min=0.1) if clip_positives else cosine
        out = head(u, v)
        assert out.shape == (B,)
        assert_close(out, expected)
        assert_close(out, head(v, u))
        assert_close(head(3 * u, v / 7), out)
        assert [name for name, _ in head.named_parameters()] == ["linear.weight"]  # no bias


def test_head_defaults_are_the_reports():
    head, graded = ClippedCosineHead(6), ClippedCosineHead(6, "similarity")
    assert (head.threshold, graded.threshold, head.clip_positives) == (0.7, 0, True)
    assert head.project == 768 and head.linear.weight.shape == (768, 6)
    assert head.predict(torch.tensor([0.7, 0.84, 0.86, 1.0])).tolist() == [0, 0, 1, 1]
    # the middle is a yes
    assert ClippedCosineHead(6, threshold=0.5).predict(torch.tensor([0.74, 0.75])).tolist() == [
        0,
        1,
    ]
    assert_close(graded.predict(torch.tensor([-0.4, 0.0, 0.3, 1.0])), torch.tensor([0, 0, 1.5, 5]))
    assert_close(
        ClippedCosineHead(6, "similarity", threshold=0.5).predict(torch.tensor([0.75])),
        torch.tensor([2.5]),
    )


@pytest.mark.parametrize("goal, labels", [("paraphrase", [1, 0, 1]), ("similarity", [4.0, 0, 2])])
@pytest.mark.parametrize("clip_positives", [True, False])
def test_head_loss_uses_its_threshold(goal, labels, clip_positives):
    head = ClippedCosineHead(6, goal, threshold=0.6, clip_positives=clip_positives)
    c, y = torch.tensor([0.3, 0.9, 0.8]), torch.tensor(labels)
    rule = clipped_paraphrase_loss if goal == "paraphrase" else clipped_similarity_loss
    assert_close(head.loss(c, y), rule(c, y, 0.6, clip_positives))


def test_bad_input_of_clipped_losses():
    for kwargs, word in (
        ({"goal": "classes"}, "classes"),
        ({"goal": "paraphrase_mse"}, "paraphrase_mse"),
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": -1.1}, "threshold"),
    ):
        with pytest.raises(ValueError, match=word):
            ClippedCosineHead(6, **kwargs)
    with pytest.raises(ValueError, match=r"\(B, D\)"):
        ClippedCosineHead(6)(torch.zeros(1, 6), torch.zeros(2, 6))
    for rule in (clipped_paraphrase_loss, clipped_similarity_loss):
        with pytest.raises(ValueError, match="nan"):
            rule(torch.zeros(2), torch.tensor([0, math.nan]))
        with pytest.raises(ValueError, match="labels of shape"):
            rule(torch.zeros(2), torch.tensor([[0], [1]]))


def test_a_zero_vector_passes_no_gradient():
    head = ClippedCosineHead(4, threshold=-1.0, project=3)
    u = torch.zeros(1, 4, requires_grad=True)
    head(u, torch.ones(1, 4)).sum().backward()
    assert (u.grad == 0).all()
