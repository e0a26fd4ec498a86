"""Chapter 23 and its penalty for `fit`: three searches for the worst small change, on words and on
sentence vectors.
"""

import copy
import math

import pytest
import torch
from smart_pytorch import SMARTLoss, sym_kl_loss
from torch import nn
from torch.testing import assert_close
from toys import batch_of, dice, run, small_bert, tokens

from minbert.core.device_step import losses_on_device
from minbert.data import TaskBatch
from minbert.encoder import BertModel
from minbert.heads import (
    ConcatDiff,
    CosineHead,
    LinearHead,
    LinearPlusCosine,
    MultitaskBert,
    PairLinear,
)
from minbert.losses import GOALS
from minbert.optim import AdamW
from minbert.regularized import clean_pass, output_distance, regularized_loss, replay, symmetric_kl
from minbert.sentence import SentenceEncoder, UnitLength
from minbert.smart import smart
from minbert.smart_penalty import Attack, SmartPenalty, frozen, smart_loss, token_input
from minbert.smoothness import linear_maximum
from minbert.training import compute_losses, steps

INF = math.inf
f64 = torch.float64
TASKS = ("sst", "stsb", "quora", "nli")


def make_model(dropout=0.1, pooling="mean", transform=None, head_input="flow"):
    torch.manual_seed(0)
    heads = {
        "sst": LinearHead(16, 5),
        "stsb": LinearPlusCosine(16, "similarity"),
        "quora": CosineHead(),
        "nli": ConcatDiff(16, 3, "classes"),
    }
    model = MultitaskBert(
        SentenceEncoder(BertModel(small_bert(dropout)), None, pooling, transform),
        heads,
        head_input=head_input,
    )
    return model.train()


def make_net(outputs=3, width=6):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, 9), nn.Tanh(), nn.Linear(9, outputs)).to(f64)


# --- one step


def naive_move(attack, delta, gradient, rows):
    """Loops over sentences and vectors."""
    out = torch.zeros_like(delta)

    def norm(x):
        return x.abs().max() if attack.p == INF else x.square().sum().sqrt()

    for r in set(rows.tolist()):
        mine = rows == r
        d, g = delta[mine], gradient[mine]
        if attack.variant == "paper":
            moved = d + attack.step_size * g / norm(g) if norm(g) > 0 else d
            if attack.p == INF:
                moved = moved.clamp(-attack.epsilon, attack.epsilon)
            elif norm(moved) > attack.epsilon:
                moved = moved * attack.epsilon / norm(moved)
        else:
            moved = d + attack.step_size * g
            moved = attack.size * torch.stack([v / (norm(v) + attack.epsilon) for v in moved])
        out[mine] = moved
    return out


@pytest.mark.parametrize("variant", ["paper", "rescale", "printed"])
@pytest.mark.parametrize("p", [2, INF])
@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_a_step_is_the_formula(variant, p, scale):
    rows = torch.tensor([0, 2, 1, 0, 2, 2, 3])
    delta = torch.randn(7, 5, generator=dice(), dtype=f64)
    gradient = scale * torch.randn(7, 5, generator=dice(1), dtype=f64)
    gradient[6] = 0  # sentence 3 feels nothing
    for attack in (Attack(variant, 1, 0.7, 0.3, 0.1, p, 2.5), Attack(variant, 1, 9.0, 0.3, 0.1, p)):
        assert_close(attack.move(delta, gradient, rows), naive_move(attack, delta, gradient, rows))


@pytest.mark.parametrize("variant", ["paper", "rescale", "printed"])
@pytest.mark.parametrize("p", [2, INF])
def test_nothing_moves_from_zero_without_a_gradient(variant, p):
    zero, rows = torch.zeros(3, 4), torch.arange(3)
    assert (Attack(variant, p=p).move(zero, zero, rows) == 0).all()
    # its square is not a float32
    one_sided = torch.zeros(3, 4).index_fill(0, torch.tensor(1), 3e-30)
    moved = Attack("paper", 1, 9.0, 0.5, p=p).move(zero, one_sided, rows)
    assert_close(moved[1], torch.full((4,), 0.5 if p == INF else 0.25))
    assert (moved[[0, 2]] == 0).all()


def test_constants_of_the_sources():
    paper, public, course = Attack("paper", epsilon=1e-5), Attack("rescale"), Attack("printed", 3)
    assert (paper.epsilon, paper.step_size, paper.noise) == (1e-5, 1e-3, 1e-5)
    assert (public.epsilon, public.step_size, public.noise, public.size) == (1e-5, 1e-3, 1e-5, 1.0)
    assert [Attack("printed", k).moves for k in (0, 1, 2, 5)] == [0, 0, 1, 4]
    assert [Attack("paper", k).moves for k in (0, 1, 5)] == [0, 1, 5] and course.moves == 2
    assert (
        Attack("paper", noise=0.0).noise == 0.0
        and Attack("rescale", step_size=0.0).step_size == 0.0
    )


@pytest.mark.parametrize(
    "kw",
    [
        {"variant": "mt-dnn"},
        {"p": 1},
        {"steps": -1},
        {"steps": 1.5},
        {"steps": math.nan},
        {"p": math.nan},
    ],
)
def test_bad_attacks_are_refused(kw):
    with pytest.raises(
        ValueError, match="expected variant 'paper', 'rescale' or 'printed', p of 2"
    ):
        Attack(**kw)


@pytest.mark.parametrize(
    "kw",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"noise": -0.1},
        {"step_size": -1.0},
        {"size": 0.0},
        {"epsilon": math.nan},
        {"noise": math.nan},
        {"step_size": math.nan},
        {"size": math.nan},
        {"epsilon": INF},
        {"noise": INF},
        {"step_size": INF},
        {"size": INF},
    ],
)
def test_bad_sizes_are_refused(kw):
    with pytest.raises(ValueError, match="expected positive sizes"):
        Attack(**kw)


# --- the charge on plain tensors


@pytest.mark.parametrize("shape", [(6, 6), (1, 6), (4, 5, 6)])
@pytest.mark.parametrize("K", [0, 1, 2, 5])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_rescale_is_the_package(shape, K, epsilon):
    net = make_net()
    fn = net if len(shape) == 2 else lambda x: net(x.mean(1))
    x = torch.randn(shape, generator=dice(2), dtype=f64).requires_grad_()
    torch.manual_seed(4)
    theirs = SMARTLoss(fn, sym_kl_loss, num_steps=K, epsilon=epsilon, noise_var=1e-5)(x, fn(x))
    torch.manual_seed(4)
    start = 1e-5 * torch.randn_like(x)
    ours, stats = smart_loss(
        x,
        fn,
        fn(x),
        output_distance("classes", "detached"),
        Attack("rescale", K, epsilon),
        reduction="sum",
        start=start,
    )
    # the package subtracts nearly equal sums of numbers near 1
    cancels = 4 * fn(x).numel() * torch.finfo(f64).eps
    assert_close(ours, theirs, rtol=1e-6, atol=cancels)
    inputs = (x, *net.parameters())
    assert_close(
        torch.autograd.grad(ours, inputs),
        torch.autograd.grad(theirs, inputs),
        rtol=1e-5,
        atol=1e-12,
    )
    assert torch.equal(stats.start, start) and not stats.skipped
    torch.manual_seed(4)
    mean, _ = smart_loss(x, fn, fn(x), symmetric_kl, Attack("rescale", 0, epsilon), start=start)
    assert_close(mean, symmetric_kl(fn(x + start), fn(x)).mean())


def test_the_package_with_another_norm_step_and_noise():
    net = make_net()
    x = torch.randn(5, 6, generator=dice(2), dtype=f64).requires_grad_()

    def two(d):
        return torch.linalg.vector_norm(d, dim=-1, keepdim=True)

    torch.manual_seed(4)
    theirs = SMARTLoss(
        net, sym_kl_loss, norm_fn=two, num_steps=3, step_size=0.7, epsilon=0.2, noise_var=0.1
    )(x, net(x))
    torch.manual_seed(4)
    start = 0.1 * torch.randn_like(x)
    ours, _ = smart_loss(
        x,
        net,
        net(x),
        output_distance("classes", "detached"),
        Attack("rescale", 3, 0.2, 0.7, p=2),
        reduction="sum",
        start=start,
    )
    assert_close(ours, theirs)


def test_seed_takes_the_loss_before_its_last_step():
    net = make_net()
    x, start = torch.randn(2, 5, 6, generator=dice(2), dtype=f64)
    for K in (1, 2, 4):
        early, _ = smart_loss(
            x, net, net(x), symmetric_kl, Attack("printed", K), start=1e-5 * start
        )
        late, _ = smart_loss(
            x, net, net(x), symmetric_kl, Attack("rescale", K - 1), start=1e-5 * start
        )
        assert torch.equal(early, late)


@pytest.mark.parametrize("p", [2, INF])
def test_paper_is_projected_ascent_written_out(p):
    """Algorithm 1 in loops, each sentence its own norm, with the gradients of the charge."""
    net, epsilon, eta = make_net(), 0.3, 0.2
    rows = torch.tensor([0, 1, 0, 2, 2, 2])

    def fn(x):
        return net(torch.zeros(3, 6, dtype=f64).index_add(0, rows, x))

    x = torch.randn(6, 6, generator=dice(2), dtype=f64).requires_grad_()
    start = 0.1 * torch.randn(6, 6, generator=dice(3), dtype=f64)
    attack = Attack("paper", 3, epsilon, eta, p=p)
    ours, stats = smart_loss(x, fn, fn(x), symmetric_kl, attack, rows, start=start)
    delta = start
    for _ in range(3):
        d = delta.clone().requires_grad_()
        (g,) = torch.autograd.grad(
            symmetric_kl(fn(x.detach() + d), fn(x.detach()).detach()).sum(), d
        )
        delta = naive_move(attack, delta, g, rows)
    assert_close(stats.delta, delta)
    expected = symmetric_kl(fn(x + delta), fn(x)).mean()
    assert_close(ours, expected)
    inputs = (x, *net.parameters())
    assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(expected, inputs))


@pytest.mark.parametrize("p", [2, INF])
@pytest.mark.parametrize("goal", ["similarity", "paraphrase"])
def test_paper_finds_the_maximum_of_a_linear_head(p, goal):
    torch.manual_seed(0)
    head = PairLinear(5, goal).to(f64).eval()
    u, v = torch.randn(2, 7, 5, dtype=f64)
    x = torch.cat([u, v])

    def fn(x):
        return head(*x.split(7))

    found, _ = smart_loss(
        x, fn, fn(x), output_distance(goal), Attack("paper", 3, 1e-3, p=p), generator=dice()
    )
    assert_close(found, linear_maximum(head, (u, v), 1e-3, p).mean(), rtol=2e-3, atol=0)


@pytest.mark.parametrize("variant", ["paper", "rescale", "printed"])
def test_masked_vectors_stay(variant):
    net = make_net()
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])

    def fn(x):
        return net(x.sum(1))  # would feel the pads

    x = torch.randn(2, 3, 6, generator=dice(2), dtype=f64)
    for K in (0, 2):
        _, stats = smart_loss(
            x, fn, fn(x), symmetric_kl, Attack(variant, K, 0.1), mask=mask, generator=dice()
        )
        assert (stats.delta[mask == 0] == 0).all() and (stats.delta[mask == 1] != 0).any(-1).all()


def test_a_sentence_of_three_axes_has_one_norm():
    net = make_net()
    x = torch.randn(3, 4, 6, generator=dice(2), dtype=f64)

    def fn(x):
        return net(x.mean(1))

    start = 0.01 * torch.randn(3, 4, 6, generator=dice(3), dtype=f64)
    attack = Attack("paper", 1, 10.0, 0.5, p=2)
    _, padded = smart_loss(x, fn, fn(x), symmetric_kl, attack, start=start)

    def flat(y):
        return fn(y.view(3, 4, 6))

    _, listed = smart_loss(
        x.flatten(0, 1),
        flat,
        fn(x),
        symmetric_kl,
        attack,
        torch.arange(12) // 4,
        start=start.flatten(0, 1),
    )
    assert_close(padded.delta.flatten(0, 1), listed.delta)
    assert_close((padded.delta - start).flatten(1).norm(dim=1), torch.full((3,), 0.5, dtype=f64))


def test_only_the_charge_moves_the_weights():
    """The clean answer is constant in the search, attached in the charge; no gradient is left
    behind.
    """
    net = make_net()
    x = torch.randn(5, 6, generator=dice(2), dtype=f64).requires_grad_()
    clean = net(x)
    seen = []

    def distance(p, q):
        return seen.append(
            (q.requires_grad, [w.requires_grad for w in net.parameters()])
        ) or symmetric_kl(p, q)

    loss, stats = smart_loss(
        x, net, clean, distance, Attack("paper", 2), weights=net.parameters(), generator=dice()
    )
    assert seen == [(False, [False] * 4), (False, [False] * 4), (True, [True] * 4)]
    assert x.grad is None and all(w.grad is None for w in net.parameters())
    assert not stats.delta.requires_grad
    same, _ = smart_loss(x, net, net(x), symmetric_kl, Attack("paper", 2), generator=dice())
    assert_close(loss, same)


def test_frozen_leaves_modes_as_they_were():
    net = make_net()
    net[0].bias.requires_grad_(False)
    modes = [w.requires_grad for w in net.parameters()]
    with pytest.raises(KeyError), frozen(net.parameters()):
        assert not any(w.requires_grad for w in net.parameters())
        raise KeyError
    assert [w.requires_grad for w in net.parameters()] == modes == [True, False, True, True]


def test_no_noise_without_steps_costs_nothing():
    net = make_net()
    x = torch.randn(5, 6, generator=dice(2), dtype=f64).requires_grad_()
    loss, stats = smart_loss(x, net, net(x), symmetric_kl, Attack("paper", 0, noise=0.0))
    assert loss == 0 and (stats.delta == 0).all()
    assert_close(torch.autograd.grad(loss, x)[0], torch.zeros(5, 6, dtype=f64), rtol=0, atol=1e-12)
    loss, stats = smart_loss(
        x, net, net(x), symmetric_kl, Attack("paper", 0, 0.05), generator=dice(1)
    )
    assert_close(stats.delta, 0.05 * torch.randn(5, 6, generator=dice(1), dtype=f64))
    assert_close(loss, symmetric_kl(net(x + stats.delta), net(x)).mean())


def test_zero_gradient_keeps_the_noise():
    def flat(x):
        return 0 * x.sum(-1, keepdim=True) + torch.zeros(3, dtype=x.dtype)

    x, start = torch.randn(2, 4, 6, generator=dice(), dtype=f64)
    _, stats = smart_loss(x, flat, flat(x), symmetric_kl, Attack("paper", 3, 100.0), start=start)
    assert torch.equal(stats.delta, start)


@pytest.mark.parametrize("bad", [math.nan, INF])
def test_a_gradient_that_is_not_finite_costs_nothing(bad):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return torch.full_like(g, bad)

    x = torch.randn(4, 3, generator=dice()).requires_grad_()
    loss, stats = smart_loss(
        x, Broken.apply, x * 1, symmetric_kl, Attack("paper", 2), generator=dice()
    )
    assert stats.skipped and loss == 0 and not loss.requires_grad and loss.shape == ()


def test_it_measures_without_a_graph_too():
    net = make_net()
    x = torch.randn(4, 6, generator=dice(), dtype=f64)
    with torch.no_grad():
        quiet, _ = smart_loss(x, net, net(x), symmetric_kl, Attack("paper", 2), generator=dice())
    loud, _ = smart_loss(x, net, net(x), symmetric_kl, Attack("paper", 2), generator=dice())
    assert not quiet.requires_grad and loud.requires_grad
    assert_close(quiet, loud.detach())
    with pytest.raises(ValueError, match="'mean' or 'sum', got 'max'"):
        smart_loss(x, net, net(x), symmetric_kl, reduction="max")


def test_published_sizes():
    """768 coordinates, noise 1e-5: .96 of unit size with 1e-6 beside the norm, .77 with 1e-5; the
    direction is the noise's.
    """
    net = make_net(width=768)
    x = torch.randn(32, 768, generator=dice(), dtype=f64)
    for epsilon, size in ((1e-6, 0.97), (1e-5, 0.77)):
        _, stats = smart_loss(
            x, net, net(x), symmetric_kl, Attack("rescale", 1, epsilon), generator=dice(1)
        )
        assert abs(stats.delta.abs().amax(-1).mean() - size) < 0.015
        assert torch.cosine_similarity(stats.start, stats.delta).min() > 0.999999
    tiny, stats = smart_loss(x, net, net(x), symmetric_kl, Attack("printed", 1), generator=dice(1))
    assert tiny < 1e-8 and torch.equal(stats.start, stats.delta)


# --- words


@pytest.mark.parametrize("pooling", ["mean", "mean_padded", "emb_last_avg", "pooler"])
@pytest.mark.parametrize("task", ["sst", "stsb"])
def test_words_opened_and_closed_are_the_plain_pass(pooling, task):
    """mean_padded runs padded, the others packed; same dropout; gradients reach each real token."""
    model, part = make_model(pooling=pooling), batch_of(TASKS)[task]
    clean = clean_pass(model, task, part)
    embeds, rows, encode = token_input(model, part)
    lengths = part.first.attention_mask.sum(1).tolist() + (
        part.second.attention_mask.sum(1).tolist() if part.second else []
    )
    assert embeds.shape == (sum(lengths), 16) and torch.bincount(rows).tolist() == lengths
    with replay(clean.random_state):
        again = encode(embeds)
    for mine, other in zip(again, clean.vectors, strict=True):
        assert_close(mine, other, rtol=1e-5, atol=1e-6)
    table = model.encoder.model.embedding.word_embedding
    assert not table._forward_hooks
    model.eval()
    embeds, rows, encode = token_input(model, part)
    moved = encode(embeds + (rows == 2)[:, None] * torch.linspace(0, 1, 16))
    plain = model.vectors(part.first, part.second)
    changed = (moved[0] - plain[0]).abs().amax(1) > 1e-3
    assert changed.tolist() == [False, False, True, False]
    (slope,) = torch.autograd.grad(encode(embeds)[-1].square().sum(), embeds)
    felt = rows >= (4 if part.second else 0)
    assert torch.equal(slope.abs().amax(1) > 0, felt)


def test_word_vectors_pass_gradients_to_the_table():
    model, part = make_model().eval(), batch_of(TASKS)["stsb"]
    weight = torch.randn(4, 16)
    plain = (model.vectors(part.first, part.second)[1] * weight).sum()
    embeds, _, encode = token_input(model, part)
    opened = (encode(embeds)[1] * weight).sum()
    names, weights = zip(*model.encoder.model.named_parameters())
    for name, a, b in zip(
        names, *(torch.autograd.grad(loss, weights, allow_unused=True) for loss in (plain, opened))
    ):
        assert (a is None) == (b is None), name
        if a is not None:
            assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_hook_goes_when_the_model_fails():
    model, part = make_model(), batch_of(TASKS)["sst"]
    _, _, encode = token_input(model, part)
    with pytest.raises(RuntimeError):
        encode(torch.zeros(3, 16))
    assert not model.encoder.model.embedding.word_embedding._forward_hooks


# --- the penalty


def by_hand(model, task, part, level, attack, seed, target="clean", grad="full"):
    """The penalty of one task, from its parts; dropout as in the clean pass after the same seed."""
    head, state = model.heads[task], torch.get_rng_state()
    clean = clean_pass(model, task, part)

    def again(f):
        def inner(x):
            torch.set_rng_state(state)
            if level == "vectors":
                model.vectors(part.first, part.second)  # throws its dice
            return f(x)

        return inner

    if level == "tokens":
        embeds, rows, encode = token_input(model, part)
        fn = again(lambda x: model.score(task, *encode(x)))
    else:
        embeds, rows = torch.cat(clean.vectors), None
        fn = again(lambda x: model.score(task, *x.split(4)))
    aim, distance = clean.outputs, output_distance(head, grad)
    if target == "labels":
        aim, distance = part.labels, lambda p, y: head.loss(p, y)
    return smart_loss(embeds, fn, aim, distance, attack, rows, generator=dice(seed))[0]


@pytest.mark.parametrize("level", ["tokens", "vectors"])
@pytest.mark.parametrize("task", ["sst", "stsb", "quora", "nli"])
@pytest.mark.parametrize(
    "variant, p", [("paper", INF), ("paper", 2), ("rescale", INF), ("printed", 2)]
)
def test_penalty_is_its_parts_and_leaves_no_trace(level, task, variant, p):
    model, batch = make_model(), batch_of((task,))
    attack = Attack(variant, 2, 0.05, p=p)
    charge = SmartPenalty(3.0, level, variant, 2, 0.05, p=p, seed=6)
    ours, grads = run(model, regularized_loss(charge), batch)
    after = torch.rand(4)
    plain, _ = run(model, regularized_loss(), batch)
    assert torch.equal(torch.rand(4), after)  # training goes on as if nothing had been
    torch.manual_seed(3)
    extra = by_hand(model, task, batch[task], level, attack, 6)
    assert extra > 0
    assert_close(ours[task], plain[task] + 3 * extra)

    def slow(m, b):
        torch.manual_seed(3)
        loss = regularized_loss()(m, b)[task]
        torch.manual_seed(3)
        return {task: loss + 3 * by_hand(m, task, b[task], level, attack, 6)}

    _, expected = run(model, slow, batch)
    assert set(grads) == set(expected)
    for name in grads:
        assert_close(grads[name], expected[name], rtol=1e-3, atol=1e-5)
    assert charge.skipped == 0 and charge.last.delta.shape == charge.last.start.shape


@pytest.mark.parametrize("level", ["tokens", "vectors"])
def test_options_are_passed_on(level):
    model, batch = make_model(), batch_of(("nli",))
    torch.manual_seed(1)
    clean = clean_pass(model, "nli", batch["nli"])
    for target, grad, kw in (
        ("labels", "full", {}),
        ("clean", "detached", {}),
        ("clean", "full", {"size": 0.3, "step_size": 2.0, "noise": 0.02}),
    ):
        charge = SmartPenalty(
            2.0, level, "rescale", 2, 0.01, target=target, grad=grad, seed=5, **kw
        )
        found = charge(model, "nli", batch["nli"], clean)
        torch.manual_seed(1)
        expected = 2 * by_hand(
            model, "nli", batch["nli"], level, Attack("rescale", 2, 0.01, **kw), 5, target, grad
        )
        assert_close(found, expected)
        inputs = [model.heads["nli"].linear.weight]
        assert_close(
            torch.autograd.grad(found, inputs, retain_graph=True),
            torch.autograd.grad(expected, inputs),
        )


@pytest.mark.parametrize("level", ["tokens", "vectors"])
@pytest.mark.parametrize("head_input", ["flow", "encoder"])
def test_a_transform_is_part_of_the_function_or_not(level, head_input):
    model = make_model(0.0, transform=UnitLength(), head_input=head_input).eval()
    batch = batch_of(("sst",))
    charge = SmartPenalty(1.0, level, "paper", 1, 0.05)
    clean = clean_pass(model, "sst", batch["sst"])
    charge(model, "sst", batch["sst"], clean)
    opened = token_input(model, batch["sst"])
    assert_close(opened.encode(opened.embeds)[0], clean.vectors[0], rtol=1e-5, atol=1e-6)
    long = clean.vectors[0].norm(dim=1).mean() > 1.5
    assert long == (head_input == "encoder")


@pytest.mark.parametrize("level", ["tokens", "vectors"])
def test_a_frozen_encoder_is_attacked_and_does_not_learn(level):
    model, batch = make_model(), batch_of(("sst", "stsb"))
    full = regularized_loss(SmartPenalty(2.0, level, steps=2))
    learned, _ = run(model, full, batch)
    model.set_mode("frozen")
    held = regularized_loss(SmartPenalty(2.0, level, steps=2))
    still, grads = run(model, held, batch)
    for task in batch:
        assert_close(still[task], learned[task])
    assert {name.split(".")[0] for name in grads} == {"heads"}
    assert not any(w.requires_grad for w in model.encoder.parameters())
    assert all(w.requires_grad for w in model.heads.parameters())


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("level", ["tokens", "vectors"])
def test_one_backward_a_task_and_bf16(level):
    """PCGrad goes backward once for each loss; under bf16 the penalty is float32 and near the full
    one.
    """
    model, batch = make_model().eval(), batch_of(TASKS)

    def make():
        return regularized_loss(SmartPenalty(1.0, level, epsilon=0.02))

    together = run(model, make(), batch)[1]
    model.zero_grad(set_to_none=True)
    for loss in make()(model, batch).values():
        loss.backward()
    for name, w in model.named_parameters():
        if w.grad is not None:
            assert_close(w.grad, together[name], rtol=1e-4, atol=1e-5)
    short_fn, full_fn = make(), make()
    short = losses_on_device(model, batch, short_fn, "bf16")
    compute_losses(model, batch, full_fn)
    for task in batch:
        assert short[task].dtype == torch.float32
        assert_close(short_fn.last[task][1].float(), full_fn.last[task][1], rtol=0.3, atol=0.02)
    model.zero_grad(set_to_none=True)
    sum(short.values()).backward()
    for name, w in model.named_parameters():
        assert (w.grad is None) == (name not in together), name


def test_broken_gradients_are_skipped_and_counted():
    model, batch = make_model(), batch_of(("sst",))
    model.encoder.model.embedding.embed_layer_norm.register_full_backward_pre_hook(
        lambda m, g: (g[0] * math.nan,)
    )
    charge = SmartPenalty(1.0, steps=1)
    loss_fn = regularized_loss(charge)
    plain = regularized_loss()
    torch.manual_seed(0)
    found = loss_fn(model, batch)["sst"]
    torch.manual_seed(0)
    assert torch.equal(found, plain(model, batch)["sst"])
    assert charge.skipped == 1 and charge.last.skipped
    loss_fn(model, batch)
    assert loss_fn.state_dict()["0"]["skipped"] == charge.skipped == 2


def test_a_resumed_run_draws_the_same_noise():
    model, batch = make_model(), batch_of(("sst",))
    first, second = regularized_loss(SmartPenalty(seed=1)), regularized_loss(SmartPenalty(seed=2))
    run(model, first, batch)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    a, b = run(model, first, batch)[0], run(model, second, batch)[0]
    assert torch.equal(a["sst"], b["sst"])
    other = run(model, first, batch)[0]
    assert not torch.equal(a["sst"], other["sst"])


@pytest.mark.parametrize("level", ["tokens", "vectors"])
def test_one_row_and_one_token(level):
    model = make_model()
    part = TaskBatch("stsb", tokens([1], 1), tokens([3], 2), torch.tensor([2.0]))
    loss = regularized_loss(SmartPenalty(1.0, level, steps=2))(model, {"stsb": part})["stsb"]
    loss.backward()
    assert loss.isfinite()


def test_the_search_beats_noise_and_training_withstands_it():
    model, batch = make_model(0.0).eval(), batch_of(("sst", "stsb"))

    def measure(**kw):
        loss_fn = regularized_loss(SmartPenalty(1.0, **kw))
        loss_fn(model, batch)
        return torch.stack([x[1] for x in loss_fn.last.values()])

    before = measure(epsilon=0.01, steps=3)
    assert (before > 20 * measure(variant="rescale", step_size=0.0, size=0.01)).all()
    assert (before >= 0.95 * measure(epsilon=0.01, steps=1)).all()
    list(
        steps(
            model,
            [batch] * 12,
            regularized_loss(SmartPenalty(20.0)),
            AdamW(model.parameters(), lr=3e-3),
        )
    )
    assert (measure(epsilon=0.01, steps=3) < 0.5 * before).all()


@pytest.mark.parametrize("kw", [{"level": "words"}, {"target": "teacher"}])
def test_bad_penalties_are_refused(kw):
    with pytest.raises(
        ValueError, match="expected level 'tokens' or 'vectors', target 'clean' or 'labels'"
    ):
        SmartPenalty(**kw)
    with pytest.raises(ValueError, match="variant"):
        SmartPenalty(variant="public")


@pytest.mark.parametrize(
    "kw", [{"weight": math.nan}, {"weight": -1.0}, {"weight": INF}, {"grad": "half"}]
)
def test_bad_weights_and_gradients_are_refused_at_once(kw):
    with pytest.raises(ValueError, match="weight of at least 0 and grad 'full' or 'detached'"):
        SmartPenalty(**kw)


@pytest.mark.parametrize("part", [lambda m: m.encoder.model, lambda m: m.encoder.model.embedding])
def test_a_compiled_model_is_refused_on_words_only(part):
    """Compiled code does not look for hooks: the words would not move, and nothing would be
    charged.
    """
    model, batch = make_model(), batch_of(("sst",))
    part(model).compile(backend="eager")
    with pytest.raises(ValueError, match="not compiled, got a compiled one"):
        token_input(model, batch["sst"])
    other = make_model()
    clean = clean_pass(other, "sst", batch["sst"])
    with pytest.raises(ValueError, match="not compiled"):
        SmartPenalty()(model, "sst", batch["sst"], clean)
    # only the head is run
    assert SmartPenalty(1.0, "vectors")(model, "sst", batch["sst"], clean) > 0


# --- the chapter


@pytest.mark.parametrize("K", [0, 1, 3])
@pytest.mark.parametrize("task", ["sst", "stsb", "quora"])
def test_the_taught_penalty_is_that_of_the_product(task, K):
    """`smart` on padded word vectors and `SmartPenalty` on packed ones, from the same noise: equal
    values, and equal gradients of every parameter.
    """
    model, part = make_model().eval(), batch_of((task,))[task]
    distance, settings = output_distance(model.heads[task]), {"epsilon": 0.03, "sigma": 0.02}

    def penalty():
        clean = clean_pass(model, task, part)
        charge = SmartPenalty(1.0, "tokens", "paper", K, 0.03, 0.5, 0.02, seed=6)
        return charge(model, task, part, clean), charge.last

    theirs, stats = penalty()
    embeds, rows, encode = token_input(model, part)
    # a sentence is one row of word vectors, (2 B, T, D) for pairs; padding has no effect
    longest = int(torch.bincount(rows).max())
    place = torch.tensor([int((rows[:i] == row).sum()) for i, row in enumerate(rows)])

    def padded(vectors):
        table = torch.zeros(int(rows.max()) + 1, longest, vectors.shape[-1])
        return table.index_put((rows, place), vectors)

    def f(x):
        return model.score(task, *encode(x[rows, place]))

    x = padded(embeds)
    clean = f(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda x: padded(stats.start) / 0.02)
        ours = smart(x, f, clean, distance, eta=0.5, K=K, **settings)
    assert_close(ours, theirs)
    weights = [w for w in model.parameters() if w.requires_grad]
    for mine, other in zip(
        torch.autograd.grad(ours, weights, allow_unused=True),
        torch.autograd.grad(theirs, weights, allow_unused=True),
    ):
        assert (mine is None) == (other is None)
        if mine is not None:
            assert_close(mine, other, rtol=1e-3, atol=1e-6)


def test_the_names_of_the_chapter():
    import minbert.smart as chapter

    assert set(chapter.__all__) == {
        "symmetric_kl",
        "largest_coordinate",
        "ascent_step",
        "find_perturbation",
        "smart",
    }
    assert chapter.symmetric_kl is symmetric_kl and set(GOALS) >= {"classes"}
