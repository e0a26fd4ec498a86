"""Chapter 16, losses: against loops and sentence-transformers, in values and gradients."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveLoss,
    MultipleNegativesRankingLoss,
)
from torch.testing import assert_close
from toys import equal, vectors

from minbert.contrastive import contrastive_loss, mirror_loss, simcse_loss, span_lengths, span_mask


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_simcse_is_multiple_negatives_ranking(given, n, temperature):
    a, b = vectors(n, seed=n)
    theirs = MultipleNegativesRankingLoss(given, scale=1 / temperature)([{"e": a}, {"e": b}], None)
    equal(simcse_loss(a, b, temperature), theirs, (a, b))
    a, b, h = vectors(n, count=3, seed=n)
    theirs = MultipleNegativesRankingLoss(given, scale=1 / temperature)(
        [{"e": a}, {"e": b}, {"e": h}], None
    )
    equal(simcse_loss(a, b, temperature, hard=h), theirs, (a, b, h))


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("temperature", [0.04, 0.5])
def test_mirror_is_the_joint_form_of_ranking(given, n, temperature):
    a, b = vectors(n, seed=n)
    judge = MultipleNegativesRankingLoss(
        given,
        scale=1 / temperature,
        directions=("query_to_doc", "query_to_query"),
        partition_mode="joint",
    )
    equal(mirror_loss(a, b, temperature), judge([{"e": a}, {"e": b}], None), (a, b))
    both = (judge([{"e": a}, {"e": b}], None) + judge([{"e": b}, {"e": a}], None)) / 2
    equal(mirror_loss(a, b, temperature, symmetric=True), both, (a, b))


def test_symmetric_mirror_is_nt_xent_over_all_anchors():
    """Mirror-BERT's released form: 2B anchors, each with one positive and 2B - 2 negatives."""
    from pytorch_metric_learning.losses import NTXentLoss

    a, b = vectors(7)
    # it adds a tiny constant inside the logarithm, which shows at low temperature
    labels = torch.arange(7).repeat(2)
    equal(
        mirror_loss(a, b, 0.5, symmetric=True),
        NTXentLoss(temperature=0.5)(torch.cat([a, b]), labels),
        (a, b),
        rtol=1e-5,
        atol=1e-7,
    )
    x = F.normalize(torch.cat([a, b]), dim=1)
    logits = (x @ x.T / 0.04).masked_fill(torch.eye(14, dtype=torch.bool), -math.inf)
    equal(
        mirror_loss(a, b, symmetric=True), F.cross_entropy(logits, torch.arange(14).roll(7)), (a, b)
    )


@pytest.mark.parametrize("margin", [0.5, 0.9])
def test_margin_loss_is_that_of_sentence_transformers(given, margin):
    u, v = vectors(40)
    labels = torch.arange(40) % 2
    theirs = ContrastiveLoss(given, margin=margin)([{"e": u}, {"e": v}], labels)
    equal(contrastive_loss(u, v, labels, margin), theirs, (u, v))
    assert_close(
        contrastive_loss(u, v, labels.bool(), margin),
        contrastive_loss(u, v, labels.double(), margin),
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b, h: simcse_loss(a, b),
        lambda a, b, h: simcse_loss(a, b, hard=h),
        lambda a, b, h: mirror_loss(a, b),
        lambda a, b, h: mirror_loss(a, b, symmetric=True),
    ],
)
def test_autocast_changes_nothing(loss):
    """A cosine rounded to bfloat16 is off by .004, and by .1 after division by the temperature."""
    inputs = vectors(12, d=32, count=3, dtype=torch.float32)
    plain = loss(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss(*inputs)
    used = [
        x
        for x, g in zip(
            inputs, torch.autograd.grad(plain, inputs, allow_unused=True, retain_graph=True)
        )
        if g is not None
    ]
    equal(rounded, plain, used, rtol=1e-5, atol=1e-7)


def test_hard_negatives_stand_beside_groups():
    """Doubles are no wrong answers, but everybody's hard negative is."""
    a, b, h = vectors(5, count=3)
    groups = torch.tensor([1, 2, 1, 3, 2])
    a1, b1, h1 = (F.normalize(x, dim=1) for x in (a, b, h))
    rows = []
    for i in range(5):
        kept = [j for j in range(5) if j == i or groups[j] != groups[i]]
        scores = torch.cat([a1[i] @ b1[kept].T, a1[i] @ h1.T]) / 0.05
        rows.append(scores.logsumexp(0) - a1[i] @ b1[i] / 0.05)
    equal(simcse_loss(a, b, hard=h, groups=groups), torch.stack(rows).mean(), (a, b, h))


def test_one_row_with_a_hard_negative_is_no_empty_question(recwarn):
    a, b, h = vectors(1, count=3)
    assert simcse_loss(a, b, hard=h) > 0 and not recwarn.list


def test_groups_take_doubles_out_of_the_negatives():
    a, b = vectors(6)
    groups = torch.tensor([3, 3, 7, 9, 3, 9])
    cosine = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.05
    rows = []
    for i in range(6):
        kept = [j for j in range(6) if j == i or groups[j] != groups[i]]
        rows.append(cosine[i, kept].logsumexp(0) - cosine[i, i])
    equal(simcse_loss(a, b, groups=groups), torch.stack(rows).mean(), (a, b))
    assert_close(simcse_loss(a, b, groups=torch.arange(6)), simcse_loss(a, b))
    # all alike: nothing to ask
    assert simcse_loss(a, b, groups=torch.zeros(6, dtype=torch.long)) == 0


@pytest.mark.parametrize("symmetric", [False, True])
def test_mirror_excuses_doubles_in_both_blocks(symmetric):
    a, b = vectors(6)
    groups = torch.tensor([3, 3, 7, 9, 3, 9])

    def side(a, b):
        a, b, rows = F.normalize(a, dim=1), F.normalize(b, dim=1), []
        for i in range(6):
            others = [j for j in range(6) if groups[j] != groups[i]]
            scores = torch.cat([(a[i] @ b[i])[None], a[i] @ b[others].T, a[i] @ a[others].T]) / 0.04
            rows.append(scores.logsumexp(0) - scores[0])
        return torch.stack(rows).mean()

    expected = (side(a, b) + side(b, a)) / 2 if symmetric else side(a, b)
    equal(mirror_loss(a, b, symmetric=symmetric, groups=groups), expected, (a, b))
    with pytest.raises(ValueError, match="groups of shape"):
        mirror_loss(a, b, groups=groups[:2])


# Runs of hidden tokens

SHARES = {
    False: [0.3, 0.21, 0.147, 0.1029, 0.2401],
    True: [x / (1 - 0.7**5) for x in (0.3, 0.21, 0.147, 0.1029, 0.07203)],
}


@pytest.mark.parametrize("renormalize", [False, True])
def test_lengths_follow_the_cut_geometric_law(renormalize):
    from scipy.stats import chisquare

    drawn = span_lengths(
        100_000, renormalize=renormalize, generator=torch.Generator().manual_seed(1)
    )
    assert drawn.dtype == torch.int64 and drawn.min() == 1 and drawn.max() == 5
    expected = torch.tensor(SHARES[renormalize]).double()
    assert (
        chisquare(
            torch.bincount(drawn, minlength=6)[1:], expected / expected.sum() * len(drawn)
        ).pvalue
        > 1e-3
    )
    assert (span_lengths(50, p=1.0) == 1).all() and (span_lengths(50, cap=1) == 1).all()
    assert (span_lengths(50, p=1e-9) == 5).all()


def sentences(counts, width=12, special=(2, 3)):
    """Rows of [CLS] word... [SEP] padding, with words 10, 11, ...; and what may not be hidden."""
    ids = torch.zeros(len(counts), width, dtype=torch.int64)
    fixed = torch.ones(len(counts), width, dtype=torch.int64)
    for row, n in enumerate(counts):
        ids[row, : n + 2] = torch.tensor([special[0], *range(10, 10 + n), special[1]])
        fixed[row, 1 : n + 1] = 0
    return ids, fixed


@pytest.mark.parametrize("cap", [1, 3, 5, 20])
def test_one_run_of_words_is_hidden(cap):
    counts = [n for n in range(11) for _ in range(200)]
    ids, fixed = sentences(counts)
    before = ids.clone()
    masked = span_mask(ids, fixed, 4, cap=cap, generator=torch.Generator().manual_seed(cap))
    assert torch.equal(ids, before)  # a new tensor
    hidden = masked != ids
    assert (masked[hidden] == 4).all() and not (hidden & fixed.bool()).any()
    for n, row in zip(counts, hidden):
        places = row.nonzero().flatten().tolist()
        assert 1 <= len(places) <= min(cap, n - 1) if n > 1 else not places
        assert places == list(range(places[0], places[0] + len(places))) if places else True


def test_every_place_is_as_likely():
    from scipy.stats import chisquare

    ids, fixed = sentences([6] * 30_000)
    hidden = span_mask(ids, fixed, 4, p=0.5, cap=3, generator=torch.Generator().manual_seed(0)) == 4
    length, first = hidden.sum(1), hidden.long().argmax(1)
    for n in (1, 2, 3):
        begins = torch.bincount(first[length == n] - 1, minlength=6)
        assert (begins[7 - n :] == 0).all() and chisquare(begins[: 7 - n]).pvalue > 1e-3


@pytest.mark.parametrize(
    "settings, p, cap, renormalize",
    [
        ({}, 0.3, 5, False),
        (dict(p=0.6), 0.6, 5, False),
        (dict(renormalize=True), 0.3, 5, True),
        (dict(p=0.5, cap=3), 0.5, 3, False),
    ],
)
def test_runs_have_the_lengths_they_were_asked_for(settings, p, cap, renormalize):
    from scipy.stats import chisquare

    ids, fixed = sentences([10] * 20_000)
    found = (
        span_mask(ids, fixed, 4, generator=torch.Generator().manual_seed(0), **settings) == 4
    ).sum(1)
    law = torch.tensor([p * (1 - p) ** k for k in range(cap)]).double()
    law[-1] += 0 if renormalize else 1 - law.sum()
    assert (
        chisquare(torch.bincount(found, minlength=cap + 1)[1:], law / law.sum() * len(ids)).pvalue
        > 1e-3
    )


def test_words_with_a_special_token_between_them_are_one_run():
    ids = torch.tensor([[2, 10, 11, 3, 12, 13, 3]])
    fixed = torch.tensor([[1, 0, 0, 1, 0, 0, 1]])
    for seed in range(50):
        masked = span_mask(ids, fixed, 4, p=0.1, generator=torch.Generator().manual_seed(seed))
        places = [p - (p > 3) for p in (masked == 4).nonzero()[:, 1].tolist()]
        assert masked[0, 3] == 3 and places == list(range(places[0], places[0] + len(places)))


def test_one_mask_for_the_whole_run():
    ids, fixed = sentences([9] * 300)
    g = torch.Generator
    long = span_mask(ids, fixed, 4, generator=g().manual_seed(3))
    short = span_mask(ids, fixed, 4, generator=g().manual_seed(3), single_mask=True, pad_id=77)
    for a, b in zip(long.tolist(), short.tolist()):
        run = a.count(4)
        first = a.index(4)
        assert b == a[: first + 1] + a[first + run :] + [77] * (run - 1)


def test_same_seed_same_runs_and_no_run():
    ids, fixed = sentences([5, 8, 2, 9])

    def draw(seed):
        return span_mask(ids, fixed, 4, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1)) and any(
        not torch.equal(draw(1), draw(seed)) for seed in range(2, 6)
    )
    off = span_mask(ids, fixed, 4, cap=0)
    assert torch.equal(off, ids) and off is not ids
    assert torch.equal(
        span_mask(ids, fixed.bool(), 4, generator=torch.Generator().manual_seed(1)), draw(1)
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(p=0.0), "p in"),
        (dict(p=1.5), "p in"),
        (dict(cap=-1), "cap of at least 1"),
        (dict(special_mask=torch.zeros(2, 3)), "special_mask"),
    ],
)
def test_bad_runs(change, message):
    ids, fixed = sentences([5, 8])
    with pytest.raises(ValueError, match=message):
        span_mask(**{"input_ids": ids, "special_mask": fixed, "mask_id": 4, **change})


@pytest.mark.parametrize(
    "loss", [simcse_loss, mirror_loss, lambda a, b: mirror_loss(a, b, symmetric=True)]
)
def test_what_does_not_matter(loss):
    a, b = vectors(8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    assert_close(loss(a[order], b[order]), loss(a, b))
    assert_close(loss(3 * a, b / 7), loss(a, b))
    half = loss(a.detach().bfloat16(), b.detach().bfloat16())
    assert half.dtype == torch.float32 and abs(half - loss(a, b)) < 0.2


@pytest.mark.parametrize("loss", [simcse_loss, mirror_loss])
def test_batches_that_teach_nothing_are_named(loss):
    a, b = vectors(1)
    with pytest.warns(RuntimeWarning, match="batch of one"):
        value = loss(a, b)
    assert value == 0 and all((g == 0).all() for g in torch.autograd.grad(value, (a, b)))
    a, _ = vectors(4)
    with pytest.warns(RuntimeWarning, match="dropout"):
        loss(a, a.clone())
    zero = torch.zeros(3, 4, requires_grad=True)
    value = loss(zero, torch.eye(3, 4))
    # a zero vector: cosine 0, no gradient
    assert value.isfinite() and torch.autograd.grad(value, zero)[0].eq(0).all()


def spoilt(x):
    """Put one infinity among finite numbers."""
    return x.detach().index_put((torch.tensor(2), torch.tensor(3)), x.new_tensor(torch.inf))


def loss_of(loss, bad, *views):
    """Compare two matrices of which number `bad` is spoilt."""
    return loss(
        *(spoilt(x) if i == bad else x for i, x in enumerate(views)),
        *([torch.ones(4)] if loss is contrastive_loss else []),
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda a, b: simcse_loss(a, b[:3]), r"one shape \(B, D\), got \(4, 6\), \(3, 6\)"),
        (lambda a, b: simcse_loss(a[0], b[0]), "one shape"),
        (lambda a, b: simcse_loss(a, b, hard=a[:2]), r"\(2, 6\)"),
        (lambda a, b: simcse_loss(a[:0], b[:0]), "one shape"),
        (
            lambda a, b: simcse_loss(a, b, groups=torch.zeros(3)),
            r"groups of shape \(4,\), got \(3,\)",
        ),
        (lambda a, b: simcse_loss(a, b, groups=torch.zeros(4, 1)), r"got \(4, 1\)"),
        (lambda a, b: simcse_loss(a, b, 0), "temperature above 0, got 0"),
        (lambda a, b: mirror_loss(a, b, -1), "temperature"),
        (lambda a, b: mirror_loss(a, b[:, :2]), "one shape"),
        (lambda a, b: contrastive_loss(a, b[:3], torch.ones(4)), "equal shapes"),
        (lambda a, b: contrastive_loss(a, b, torch.ones(4), margin=0), "margin"),
        (lambda a, b: contrastive_loss(a, b, torch.ones(3)), "labels"),
        (lambda a, b: contrastive_loss(a, b, torch.full((4,), 0.5)), "labels 0 and 1"),
        (lambda a, b: contrastive_loss(a, b, torch.tensor([0, 1, 2, 1])), "2"),
        *(
            (partial(loss_of, loss, bad), f"finite numbers in {name}, got 1 of 24 .* at \\[2, 3\\]")
            for loss, names in ((simcse_loss, "ab"), (mirror_loss, "ab"), (contrastive_loss, "uv"))
            for bad, name in enumerate(names)
        ),
        (lambda a, b: simcse_loss(a, b, hard=spoilt(b)), "finite numbers in hard"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(*vectors(4))
