"""Chapter 24: which parameters the previous iterate has at each step, the gradient of the penalty, and what a
resumed run needs.
"""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.bregman import BregmanProximal
from minbert.core.device_step import DeviceStep
from minbert.core.fused_adamw import FusedAdamW
from minbert.data import TaskBatch, load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.finetune import Phase, TrainConfig, fit
from minbert.heads import CosineHead, LinearHead, MultitaskBert, PairLinear
from minbert.losses import ClippedCosineHead
from minbert.optim import AdamW
from minbert.previous_iterate import PREVIOUS
from minbert.regularized import clean_pass, output_distance, regularized_loss
from minbert.sentence import SentenceEncoder
from minbert.tokens import TokenBatch, load_tokenizer
from minbert.training import steps

TOKENIZER = load_tokenizer()
TASKS = ("sst", "quora", "stsb")


def build(dropout=0.0, mode="full", seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    heads = {
        "sst": LinearHead(8, 5, dropout),
        "quora": CosineHead("paraphrase", 10.0, -8.0),
        "stsb": PairLinear(8, "similarity", dropout),
    }
    return (
        MultitaskBert(SentenceEncoder(BertModel(config), TOKENIZER), heads, mode).to(dtype).train()
    )


def tokens(b, seed, t=7):
    g = torch.Generator().manual_seed(seed)
    mask = (torch.arange(t) < torch.randint(2, t + 1, (b, 1), generator=g)).long()
    return TokenBatch(torch.randint(5, TOKENIZER.vocab_size, (b, t), generator=g) * mask, mask)


def batch(seed=0, b=4, tasks=TASKS):
    g = torch.Generator().manual_seed(seed)
    labels = {
        "sst": torch.randint(5, (b,), generator=g),
        "quora": torch.randint(2, (b,), generator=g),
        "stsb": 5 * torch.rand(b, generator=g),
    }
    return {
        t: TaskBatch(t, tokens(b, seed), None if t == "sst" else tokens(b, seed + 100), labels[t])
        for t in tasks
    }


def train(model, penalties=(), count=3, lr=1e-2, accumulate=1, seed=0, optimizer=None, **more):
    optimizer = optimizer or AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    data = [batch(seed + i) for i in range(count)]
    return list(
        steps(model, data, regularized_loss(*penalties), optimizer, accumulate=accumulate, **more)
    )


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def value(penalty, model, part=None, task="sst"):
    part = part or batch(50)[task]
    return penalty(model, task, part, clean_pass(model, task, part))


class Dial(nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(values or (0.0,)))

    def turn(self, v):
        with torch.no_grad():
            self.w.fill_(v)


def seen(penalty, path, dial=None, twice=True):
    dial, found = dial or Dial(), []
    for v in path:
        dial.turn(v)
        for _ in range(1 + twice):
            penalty.begin(dial)
        found.append(penalty.copies.model.w.item())
    return found


PATH = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]


# ---- which weights


@pytest.mark.parametrize("lag", range(5))
def test_lag_is_a_number_of_steps(lag):
    assert seen(BregmanProximal(lag=lag), PATH) == [PATH[max(0, i - lag)] for i in range(len(PATH))]


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_epoch_renews_every_so_often(every):
    assert seen(BregmanProximal(previous="epoch", every=every), PATH) == [
        PATH[i // every * every] for i in range(len(PATH))
    ]


@pytest.mark.parametrize("beta, late, switch", [(0.5, 0.9, None), (0.99, 0.999, 3), (0.0, 0.5, 2)])
def test_moving_average_equals_the_sum(beta, late, switch):
    mean, expected = PATH[0], [PATH[0]]
    for i, v in list(enumerate(PATH))[1:]:
        b = late if switch is not None and i >= switch else beta
        mean = b * mean + (1 - b) * v
        expected.append(mean)
    dial = Dial().double()  # a mean of means: in single precision the rounding would show
    assert_close(
        seen(BregmanProximal(previous="ema", beta=beta, late_beta=late, switch=switch), PATH, dial),
        expected,
    )


def test_defaults_are_those_of_smart():
    p = BregmanProximal()
    assert (p.weight, p.previous, p.lag, p.beta, p.late_beta, p.switch, p.dropout) == (
        1.0,
        "step",
        1,
        0.99,
        0.999,
        None,
        "off",
    )


def test_once_per_batch_is_lag_zero():
    assert (
        seen(BregmanProximal(previous="once_per_batch", lag=3), PATH)
        == PATH
        == seen(BregmanProximal(lag=0), PATH)
    )
    assert set(PREVIOUS) == {"step", "epoch", "ema", "once_per_batch"}


@pytest.mark.parametrize("optimizer_class", [AdamW, FusedAdamW])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("kind", ["step", "ema", "epoch"])
def test_steps_are_counted_once_with_any_optimizer(optimizer_class, accumulate, kind):
    model = build()
    penalty = BregmanProximal(1.0, kind, every=2 if kind == "epoch" else None)
    optimizer = optimizer_class(model.parameters(), lr=1e-3)
    train(model, [penalty], 4 * accumulate, accumulate=accumulate, optimizer=optimizer)
    assert penalty.step == 3


def test_history_of_a_real_run():
    model, penalty, history, held = build(), BregmanProximal(lag=2), [], []
    loss_fn = regularized_loss(penalty)

    def spy(m, b):
        history.append(weights(m))
        out = loss_fn(m, b)
        held.append([p.clone() for p in penalty.copies.model.parameters()])
        return out

    list(steps(model, [batch(i) for i in range(6)], spy, AdamW(model.parameters(), lr=1e-2)))
    for i, found in enumerate(held):
        assert all(torch.equal(a, b) for a, b in zip(found, history[max(0, i - 2)], strict=True))
        assert i < 3 or not all(torch.equal(a, b) for a, b in zip(found, history[i], strict=True))


def test_a_step_of_one_head_only_is_noticed():
    model, penalty = build(mode="frozen"), BregmanProximal()
    optimizer = AdamW(model.heads.parameters(), lr=1e-3)
    for task in TASKS:
        before = penalty.step
        list(steps(model, [batch(3, tasks=(task,))], regularized_loss(penalty), optimizer))
        penalty.begin(model)
        assert penalty.step == before + 1 if before >= 0 else penalty.step == 1
    assert penalty.step == 3


def test_large_weights_alone_are_watched_too():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(20_000))

    model, penalty = Wide(), BregmanProximal()
    for v in (1.0, 2.0, 3.0):
        with torch.no_grad():
            model.w.fill_(v)
        penalty.begin(model)
    assert penalty.step == 2 and penalty.copies.model.w[0] == 2


# ---- value and gradient


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "kind",
    [dict(lag=1), dict(lag=3), dict(previous="ema", beta=0.7), dict(previous="epoch", every=10)],
)
def test_equals_a_deep_copy_in_value_and_gradient(task, kind):
    model, penalty = build(), BregmanProximal(2.5, **kind)
    copies = []
    for i in range(4):
        penalty.begin(model)
        copies.append(copy.deepcopy(model).eval())
        if i < 3:
            train(model, count=1, seed=i)
    if "beta" in kind:
        old = copies[0]
        for new in copies[1:]:
            for p, q in zip(old.parameters(), new.parameters()):
                p.data.mul_(0.7).add_(q.data, alpha=0.3)
    else:
        old = copies[0] if "every" in kind else copies[max(0, 3 - kind["lag"])]
    part = batch(9)[task]
    clean = clean_pass(model, task, part)
    ours = penalty(model, task, part, clean)
    with torch.no_grad():
        target = old(task, part.first, part.second)
    theirs = 2.5 * output_distance(model.heads[task].goal)(clean.outputs, target).mean()
    moved = list(model.parameters())
    assert ours > 0
    assert_close(ours, theirs)
    assert_close(
        torch.autograd.grad(ours, moved, allow_unused=True, retain_graph=True),
        torch.autograd.grad(theirs, moved, allow_unused=True),
    )


@pytest.mark.parametrize("task", TASKS)
def test_no_gradient_where_model_and_previous_iterate_agree(task):
    model, penalty = build(), BregmanProximal(1e6, "once_per_batch")
    train(model, [penalty], 3)
    penalty.begin(model)
    part = batch(9)[task]
    loss = value(penalty, model, part, task)
    assert loss.item() < 1e-4
    assert all(
        g is None or g.abs().max() < 1e-2
        for g in torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    )


def test_lag_zero_changes_no_bit_and_lag_one_does():
    plain, none, some = build(), build(), build()
    train(plain, (), 4)
    train(none, [BregmanProximal(100.0, "once_per_batch")], 4)
    train(some, [BregmanProximal(1.0)], 4)

    def same(a, b):
        return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))

    assert same(plain, none) and not same(plain, some)


def test_the_first_step_has_no_penalty():
    a, b = build(), build()
    train(a, (), 1)
    train(b, [BregmanProximal(5.0)], 1)
    assert_close(weights(a), weights(b))


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 7.0])
def test_closed_form_of_a_linear_model(mu):
    model = build(mode="frozen", dtype=torch.float64).eval()
    head, part = model.heads["stsb"].linear, batch(1, b=40)["stsb"]
    with torch.no_grad():
        X = torch.cat([*model.vectors(part.first, part.second), torch.ones(40, 1)], 1)
        best = torch.linalg.lstsq(X, part.labels.double()[:, None], driver="gelsd").solution[:, 0]
        start = torch.cat([head.weight[0], head.bias])
    penalty = BregmanProximal(mu, "epoch", every=1000)
    penalty.begin(model)
    there = (best + mu * start) / (1 + mu)
    with torch.no_grad():
        head.weight[0], head.bias[0] = there[:-1], there[-1]
    loss = regularized_loss(penalty)(model, {"stsb": part})["stsb"]
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(head.parameters()))])
    assert gradient.norm() < 1e-8
    assert_close(
        loss.item(),
        ((X @ there - part.labels) ** 2).mean().item()
        + mu * ((X @ (there - start)) ** 2).mean().item(),
    )


def test_descent_reaches_the_closed_form():
    model = build(mode="frozen", dtype=torch.float64).eval()
    part = batch(1, b=12)["stsb"]
    with torch.no_grad():
        before = model("stsb", part.first, part.second)
        X = torch.cat([*model.vectors(part.first, part.second), torch.ones(12, 1)], 1)
        best = (
            X @ torch.linalg.lstsq(X, part.labels.double()[:, None], driver="gelsd").solution[:, 0]
        )
    loss_fn = regularized_loss(BregmanProximal(3.0, "epoch", every=10**6))
    optimizer = torch.optim.LBFGS(
        model.heads["stsb"].parameters(),
        lr=1.0,
        max_iter=300,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = loss_fn(model, {"stsb": part})["stsb"]
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        assert_close(
            model("stsb", part.first, part.second),
            before + (best - before) / 4,
            rtol=1e-3,
            atol=1e-3,
        )


def test_weight_scales_and_zero_is_nothing():
    model = build()
    penalties = [BregmanProximal(w) for w in (1.0, 4.0, 0.0)]
    for p in penalties:
        p.begin(model)
    train(model, count=1)
    for p in penalties:
        p.begin(model)
    one, four, zero = (value(p, model) for p in penalties)
    assert_close(four, 4 * one)
    assert zero == 0 < one


# ---- dropout


@pytest.mark.parametrize("mode", ["full", "frozen"])
@pytest.mark.parametrize("task", TASKS)
def test_same_dropout_means_same_answers_at_lag_zero(mode, task):
    # a frozen encoder's vectors are shared, and a cosine drops nothing
    dropout_in_play = (mode, task) != ("frozen", "quora")
    model = build(0.3, mode)
    same, off = BregmanProximal(lag=0, dropout="same"), BregmanProximal(lag=0)
    assert value(same, model, task=task) == 0
    assert (value(off, model, task=task) > 0) == dropout_in_play


def test_no_penalty_touches_the_dice():
    model = build(0.3)
    for penalty in (BregmanProximal(dropout="same"), BregmanProximal()):
        penalty.begin(model)
        part = batch(1)["stsb"]
        clean = clean_pass(model, "stsb", part)
        before = torch.get_rng_state()
        penalty(model, "stsb", part, clean)
        assert torch.equal(torch.get_rng_state(), before)


def test_same_dropout_equals_a_copy_with_the_same_draws():
    model, penalty = build(0.3), BregmanProximal(dropout="same")
    penalty.begin(model)
    old = copy.deepcopy(model)
    train(model, count=1)
    penalty.begin(model)
    part = batch(4)["stsb"]
    torch.manual_seed(77)
    clean = clean_pass(model, "stsb", part)
    torch.manual_seed(77)
    target = old("stsb", part.first, part.second).detach()
    assert_close(penalty(model, "stsb", part, clean), (clean.outputs - target).square().mean())
    model.eval()
    assert_close(
        value(penalty, model, part, "stsb"),
        (model("stsb", part.first, part.second) - old.eval()("stsb", part.first, part.second))
        .square()
        .mean(),
    )


def test_the_copy_is_in_eval_mode_and_the_model_stays_in_its_own():
    model, penalty = build(0.5), BregmanProximal()
    model.encoder.eval()
    penalty.begin(model)
    value(penalty, model)
    assert not any(m.training for m in penalty.copies.model.modules())
    assert model.training and not model.encoder.training


# ---- what is copied, and what is not


def test_the_copy_shares_what_is_not_trained():
    model, penalty = build(mode="frozen"), BregmanProximal(lag=2)
    penalty.begin(model)
    copies = penalty.copies
    assert all(
        p is q for p, q in zip(copies.model.encoder.parameters(), model.encoder.parameters())
    )
    assert not any(
        p is q for p, q in zip(copies.model.heads.parameters(), model.heads.parameters())
    )
    assert copies.model.encoder.tokenizer is TOKENIZER
    assert len(copies.sets) == 3 and all(
        len(s) == sum(1 for _ in model.heads.parameters()) for s in copies.sets
    )


def test_buffers_are_the_models_own():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))
            self.register_buffer("shift", torch.zeros(1))

    model, penalty = Shifted(), BregmanProximal()
    penalty.begin(model)
    model.shift.fill_(3)
    assert penalty.copies.model.shift == 3


@pytest.mark.parametrize(
    "kind, sets",
    [
        (dict(lag=1), 2),
        (dict(lag=0), 1),
        (dict(lag=4), 5),
        (dict(previous="ema"), 1),
        (dict(previous="epoch", every=3), 1),
        (dict(previous="once_per_batch"), 1),
    ],
)
def test_nothing_is_allocated_after_the_first_step(kind, sets):
    model, penalty = build(), BregmanProximal(**kind)
    penalty.begin(model)
    places = [[w.data_ptr() for w in s] for s in penalty.copies.sets]
    assert len(places) == sets and len({x for s in places for x in s}) == sets * len(places[0])
    assert not {p.data_ptr() for p in model.parameters()} & {x for s in places for x in s}
    copies = penalty.copies
    for i in range(7):
        train(model, [penalty], 1, seed=i)
        assert (
            penalty.copies is copies and [[w.data_ptr() for w in s] for s in copies.sets] == places
        )
        assert {p.data_ptr() for p in copies.model.parameters()} in [set(s) for s in places]


def test_the_copy_is_not_trained_and_is_no_part_of_the_model():
    model, penalty = build(), BregmanProximal()
    names = set(model.state_dict())
    train(model, [penalty], 3)
    assert set(model.state_dict()) == names
    assert all(not p.requires_grad and p.grad is None for p in penalty.copies.model.parameters())
    assert all(p.requires_grad for p in model.parameters())


def test_training_other_weights_starts_anew():
    model, penalty = build(mode="frozen"), BregmanProximal()
    train(model, [penalty], 3)
    assert penalty.step == 2
    model.set_mode("full")
    penalty.begin(model)
    assert penalty.step == 0 and value(penalty, model.eval()) == 0
    other = build(seed=1)
    penalty.begin(other)
    assert penalty.step == 0 and value(penalty, other.eval()) == 0
    model.double()
    penalty.begin(model)
    assert value(penalty, model.eval()).dtype == torch.float64


def test_works_through_a_wrapper_and_without_begin():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    model, penalty = build(), BregmanProximal()
    assert value(penalty, model) == 0  # begins by itself
    train(model, count=1)
    penalty.begin(Wrapper(model))
    assert value(penalty, model) > 0 and penalty.step == 1


# ---- precision


def test_a_bf16_copy_is_near_and_the_loss_is_wide():
    model = build()
    penalties = BregmanProximal(), BregmanProximal(dtype=torch.bfloat16)
    for p in penalties:
        p.begin(model)
    train(model, count=3, lr=3e-2)
    for p in penalties:
        p.begin(model)
    answers = []
    for p in penalties:
        p.copies.model.encoder.model.bert_layers[0].out_dense.register_forward_hook(
            lambda layer, given, answer: answers.append(answer.dtype)
        )
    exact, narrow = (value(p, model) for p in penalties)
    assert (
        answers == [torch.float32, torch.bfloat16] and exact.dtype == narrow.dtype == torch.float32
    )
    assert_close(narrow, exact, rtol=0.2, atol=1e-3)
    assert penalties[1].copies.sets[0][0].dtype == torch.float32


@pytest.mark.usefixtures("bf16")
def test_a_slow_average_moves_in_spite_of_bf16():
    penalty, dial = BregmanProximal(previous="ema", beta=0.999, dtype=torch.bfloat16), Dial()
    last = seen(penalty, [1.0] + [2 + 1e-5 * i for i in range(693)], dial)[-1]
    assert_close(last, 1.5, atol=0.01, rtol=0)


@pytest.mark.parametrize(
    "kind", [{}, dict(previous="ema"), dict(dropout="same"), dict(dtype=torch.bfloat16)]
)
def test_runs_under_autocast_with_accumulation(kind):
    model, penalty = build(0.1), BregmanProximal(**kind)
    records = train(model, [penalty], 6, accumulate=2, take_step=DeviceStep(precision="bf16"))
    assert len(records) == 3 and penalty.step == 2 and all(math.isfinite(r.loss) for r in records)


def test_small_steps_of_bf16_weights_are_seen():
    """300 weights of 1: one of them moves by a digit, which no length in bf16 shows."""
    dial, penalty = Dial(*[1.0] * 300).bfloat16(), BregmanProximal()
    for step in range(4):
        penalty.begin(dial)
        assert penalty.step == step
        with torch.no_grad():
            dial.w[step] += 2**-7


def test_a_compiled_model_needs_dropout_off():
    model = build(0.1)
    model.encoder.model.compile(backend="eager")
    with pytest.raises(ValueError, match="not compiled for dropout 'same', got a compiled one"):
        BregmanProximal(dropout="same").begin(model)
    penalty = BregmanProximal()
    penalty.begin(model)
    assert penalty.copies.model.encoder.model._compiled_call_impl is None


def test_a_cut_cosine_is_no_logit():
    torch.manual_seed(0)
    model = MultitaskBert(
        build().encoder, {"quora": ClippedCosineHead(8, threshold=-0.5, project=4)}
    )
    penalty = BregmanProximal()
    penalty.begin(model)
    with torch.no_grad():
        model.heads["quora"].linear.weight.mul_(torch.linspace(1, 2, 8))
    penalty.begin(model)
    part = batch(3)["quora"]
    clean = clean_pass(model, "quora", part)
    was = penalty.copies.model("quora", part.first, part.second)
    found = penalty(model, "quora", part, clean)
    assert found > 0
    assert_close(found, (clean.outputs - was).square().mean())


def test_single_rows_and_half_outputs():
    model, penalty = build(), BregmanProximal()
    penalty.begin(model)
    train(model, count=1)
    penalty.begin(model)
    for task in TASKS:
        part = batch(2, b=1)[task]
        clean = clean_pass(model, task, part)
        wide = penalty(model, task, part, clean)
        half = penalty(model, task, part, clean._replace(outputs=clean.outputs.bfloat16()))
        assert wide.shape == () and half.dtype == torch.float32 and wide >= 0


# ---- resuming

STOPS = (0, 1, 2, 5)


@pytest.fixture(
    scope="module",
    params=[
        dict(lag=1),
        dict(lag=3),
        dict(previous="ema", beta=0.8, late_beta=0.5, switch=4),
        dict(previous="epoch", every=3),
    ],
    ids=str,
)
def whole_run(request):
    """Seven steps with a proximal penalty, and what a run that is cut at each of STOPS would find."""
    whole, penalty, files = build(), BregmanProximal(2.0, **request.param), {}
    optimizer = AdamW(whole.parameters(), lr=1e-2)
    for i in range(7):
        if i in STOPS:
            files[i] = io.BytesIO()
            torch.save(
                {
                    "model": whole.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "penalty": penalty.state_dict(),
                },
                files[i],
            )
        train(whole, [penalty], 1, seed=i, optimizer=optimizer)
    assert penalty.step == 6
    return request.param, whole, files


@pytest.mark.parametrize("stop", STOPS)
def test_a_resumed_run_has_the_same_copies(whole_run, stop):
    kind, whole, files = whole_run
    files[stop].seek(0)
    state = torch.load(files[stop], weights_only=True)
    again, fresh = build(seed=3), BregmanProximal(2.0, **kind)
    again.load_state_dict(state["model"])
    optimizer = AdamW(again.parameters(), lr=1e-2)
    optimizer.load_state_dict(state["optimizer"])
    fresh.load_state_dict(state["penalty"])
    assert fresh.state_dict()["step"] == state["penalty"]["step"]
    for i in range(stop, 7):
        train(again, [fresh], 1, seed=i, optimizer=optimizer)
    assert all(
        torch.equal(p, q) for p, q in zip(whole.parameters(), again.parameters(), strict=True)
    )
    assert fresh.step == 6


def test_a_loaded_state_can_be_saved_again_and_replaces_the_old_copies():
    model, first = build(), BregmanProximal(lag=2)
    train(model, [first], 4)
    state = copy.deepcopy(first.state_dict())
    second = BregmanProximal(lag=2)
    train(model, [second], 1)
    second.load_state_dict(state)
    again = second.state_dict()
    assert again["step"] == 3 and all(
        torch.equal(a[k], b[k]) for a, b in zip(again["sets"], state["sets"]) for k in b
    )
    train(model, count=1)
    for p in (first, second):
        p.begin(model)
    assert_close(value(first, model), value(second, model))


def test_regularized_loss_collects_the_state():
    model, penalty = build(), BregmanProximal()
    loss = regularized_loss(penalty)
    list(steps(model, [batch(0), batch(1)], loss, AdamW(model.parameters(), lr=1e-2)))
    fresh = BregmanProximal()
    regularized_loss(fresh).load_state_dict(loss.state_dict())
    assert fresh.step == 1


def test_states_of_other_settings_are_refused():
    model, penalty = build(), BregmanProximal()
    penalty.begin(model)
    state = penalty.state_dict()
    for other in (
        BregmanProximal(lag=2),
        BregmanProximal(previous="ema"),
        BregmanProximal(previous="epoch", every=2),
        BregmanProximal(beta=0.5),
    ):
        with pytest.raises(ValueError, match="other settings"):
            other.load_state_dict(state)


def test_a_state_of_other_trained_weights_starts_anew():
    """As a run that was not cut does where a phase trains other weights."""
    model, penalty = build(mode="frozen"), BregmanProximal(lag=2)
    train(model, [penalty], 3)
    fresh = BregmanProximal(lag=2)
    fresh.load_state_dict(penalty.state_dict())
    model.set_mode("full")
    for p in (penalty, fresh):
        p.begin(model)
        assert p.step == 0 and value(p, model) == 0
    train(model, count=1)
    for p in (penalty, fresh):
        p.begin(model)
        assert p.step == 1
    assert torch.equal(value(penalty, model), value(fresh, model)) and value(fresh, model) > 0


def test_a_saved_state_stays_as_it_was():
    model, penalty = build(), BregmanProximal()
    train(model, [penalty], 2)
    state = penalty.state_dict()
    before = copy.deepcopy(state["sets"])
    train(model, [penalty], 3, seed=5)
    assert all(
        torch.equal(a[n], b[n]) for a, b in zip(state["sets"], before, strict=True) for n in a
    )


PHASES = tuple(Phase(("sst", "stsb"), steps=3, mode=mode, lr=1e-2) for mode in ("frozen", "full"))


@pytest.mark.parametrize("trip", [3, 4, 5])
@pytest.mark.filterwarnings("ignore:Pearson is undefined", "ignore:.*one class")
def test_a_fit_cut_at_a_phase_boundary_resumes_to_the_same_bits(tmp_path, trip):
    """Step 4 is the first of the second phase, which trains more weights: its checkpoint holds a
    previous iterate of the first.
    """
    sets = {task: load_dataset(task, "train").subset(range(12)) for task in ("sst", "stsb")}

    def go(folder, trip=None, resume=False):
        model, count = build(), iter(range(1, 100))
        heads = {task: model.heads[task] for task in sets}
        model = MultitaskBert(model.encoder, heads)

        def backward(losses):
            if next(count) == trip:
                raise KeyboardInterrupt
            sum(losses.values()).backward()

        config = TrainConfig(("sst", "stsb"), phases=PHASES, batch_size=4, save_every=1)
        fit(
            model,
            sets,
            sets,
            config,
            folder,
            resume,
            loss_fn=regularized_loss(BregmanProximal(3.0, lag=2)),
            backward=backward,
        )
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    whole = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "cut", trip)
    assert torch.equal(go(tmp_path / "cut", resume=True), whole)


# ---- bad input


@pytest.mark.parametrize(
    "bad",
    [
        dict(previous="yesterday"),
        dict(lag=-1),
        dict(lag=1.5),
        dict(weight=-1.0),
        dict(weight=math.nan),
        dict(weight=math.inf),
        dict(beta=1.0),
        dict(beta=-0.1),
        dict(late_beta=1.0),
        dict(previous="epoch"),
        dict(previous="epoch", every=0),
        dict(every=3),
        dict(dtype=torch.float16),
        dict(dropout="on"),
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(ValueError, match="expected"):
        BregmanProximal(**bad)


def test_outputs_that_are_not_finite_are_named():
    model, penalty = build(), BregmanProximal()
    with torch.no_grad():
        model.heads["sst"].linear.bias[0] = math.nan
    penalty.begin(model)
    with torch.no_grad():
        model.heads["sst"].linear.bias[0] = 0.0
    penalty.begin(model)
    with pytest.raises(ValueError, match="outputs of the previous iterate"):
        value(penalty, model)
    with pytest.raises(ValueError, match="task"):
        part = batch()["sst"]
        penalty(model, "nli", part, clean_pass(model, "sst", part))


# ---- two processes

SCRIPT = """
import sys
from pathlib import Path
import torch
from accelerate import Accelerator
from minbert.data import TaskBatch
from minbert.encoder import BertConfig, BertModel
from minbert.heads import LinearHead, MultitaskBert, PairLinear
from minbert.core.device_step import DeviceStep
from minbert.training import steps
from minbert.losses import ClippedCosineHead
from minbert.optim import AdamW
from minbert.bregman import BregmanProximal
from minbert.sentence import SentenceEncoder
from minbert.smart_penalty import SmartPenalty
from minbert.regularized import regularized_loss
from minbert.tokens import TokenBatch

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
rank, world = accelerator.process_index, accelerator.num_processes
torch.manual_seed(0)
config = BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                    max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
heads = {"sst": LinearHead(8, 5, 0.0), "stsb": PairLinear(8, "similarity", 0.0)}
model = MultitaskBert(SentenceEncoder(BertModel(config), None), heads).train()

def tokens(dice):
    return TokenBatch(torch.randint(5, 40, (6, 5), generator=dice)[rank::world], torch.ones(6, 5, dtype=torch.int64)[rank::world])

def batch(i):  # six rows for one process, three for each of two
    g = torch.Generator().manual_seed(i)
    grades = {"sst": torch.randint(5, (6,), generator=g)[rank::world], "stsb": 5 * torch.rand(6, generator=g)[rank::world]}
    return {task: TaskBatch(task, tokens(g), None if task == "sst" else tokens(g), y) for task, y in grades.items()}

# no noise: the attack starts from the clean words, away from the labels, the same in one process and in two
penalties = [SmartPenalty(0.5, noise=0.0, target="labels", epsilon=0.02, p=2), BregmanProximal(2.0, lag=2)]
loss = regularized_loss(*penalties)
list(steps(model, [batch(i) for i in range(5)], loss, AdamW(model.parameters(), lr=1e-2), take_step=DeviceStep(accelerator)))
found = [[x.item() for x in values] for values in loss.last.values()]
torch.save([[p.detach() for p in model.parameters()], found], Path(sys.argv[1]) / f"{rank}.pt")
accelerator.end_training()
"""


@pytest.mark.long
def test_two_processes_equal_one_with_the_whole_batch(tmp_path, in_processes):
    """SMART and a proximal penalty beside the loss of two tasks, dropout 0."""
    in_processes(SCRIPT, tmp_path)
    (one, whole), (two, first), (other, second) = (
        torch.load(tmp_path / f) for f in ("one/0.pt", "two/0.pt", "two/1.pt")
    )
    for p, q, r in zip(one, two, other, strict=True):
        assert torch.equal(q, r)
        assert_close(p, q, rtol=0, atol=1e-5)
    mean = (torch.tensor(first) + torch.tensor(second)) / 2
    assert (mean > 0).all()
    assert_close(mean, torch.tensor(whole), rtol=1e-3, atol=1e-5)
