"""Chapter 05: both AdamW optimizers, the one of the lesson and the fused one, against closed forms,
a naive loop and torch.optim; groups by their definition.
"""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.core.fused_adamw import FusedAdamW
from minbert.encoder import BertConfig, BertModel
from minbert.optim import AdamW, parameter_groups

# written down to 12 digits: half of the last one may be missing
GOLDEN = [0.987440518080, 0.985694674171, 0.983232977367]
BOTH = pytest.mark.parametrize("optimizer_class", [AdamW, FusedAdamW])


def run(optimizer_class, grads, dtype=torch.float64, **options):
    p = torch.ones(1, dtype=dtype, requires_grad=True)
    optimizer, trace = optimizer_class([p], **options), []
    for g in grads:
        p.grad = None if g is None else torch.tensor([g], dtype=dtype)
        optimizer.step()
        trace.append(p.item())
    return trace


def naive(
    params,
    grads_by_step,
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-6,
    weight_decay=0.0,
    correct_bias=True,
):
    """The course's update, one tensor and one operation at a time."""
    b1, b2 = betas
    params, state = [p.detach().clone() for p in params], {}
    for grads in grads_by_step:
        for i, g in enumerate(grads):
            if g is None:
                continue
            t, m, v = state.get(i, (0, torch.zeros_like(g), torch.zeros_like(g)))
            t, m, v = t + 1, b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            alpha = lr * math.sqrt(1 - b2**t) / (1 - b1**t) if correct_bias else lr
            params[i] = params[i] - alpha * m / (v.sqrt() + eps)
            params[i] = params[i] - lr * weight_decay * params[i]
            state[i] = t, m, v
    return params, state


def problem(seed, dtype, steps=15, missing=0.0):
    g = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (5,), (), (2, 3, 2), (0,), (1,)]
    params = [torch.randn(s, generator=g, dtype=dtype) for s in shapes]
    params.append(torch.randn(4, 3, generator=g, dtype=dtype).t())  # crosswise
    params.append(torch.randn(6, 3, generator=g, dtype=dtype)[::2])  # with gaps
    grads = [
        [
            None
            if torch.rand((), generator=g) < missing
            else 10.0 ** -(i % 6) * torch.randn(p.shape, generator=g, dtype=dtype)
            for i, p in enumerate(params)
        ]
        for _ in range(steps)
    ]
    return params, grads


def apply(optimizer, params, grads_by_step):
    for grads in grads_by_step:
        for p, g in zip(params, grads):
            p.grad = None if g is None else g.clone()
        optimizer.step()


# ---------------------------------------------------------------- the update


@BOTH
def test_golden_values(optimizer_class):
    assert_close(
        run(optimizer_class, [1e-4, -2e-4, 0.0], lr=0.01, weight_decay=0.5),
        GOLDEN,
        rtol=0,
        atol=2e-12,
    )
    theirs = run(torch.optim.AdamW, [1e-4, -2e-4, 0.0], lr=0.01, weight_decay=0.5, eps=1e-6)
    assert_close(theirs, [0.985099009901, 0.983811544653, 0.981700723122], rtol=0, atol=2e-12)


@BOTH
@pytest.mark.parametrize("g, first, average", [(1e-5, 0.240, 0.836), (1e-6, 0.031, 0.358)])
def test_small_gradients_take_small_first_steps(optimizer_class, g, first, average):
    """With one gradient again and again, step t is r / (r + eps), r = g sqrt(1 - b2^t), as a share
    of the rate.
    """
    trace = run(optimizer_class, [g] * 1000, lr=1e-3)
    roots = [g * math.sqrt(1 - 0.999**t) for t in range(1, 1001)]
    shares = [root / (root + 1e-6) for root in roots]
    for steps, written in ((1, first), (1000, average)):
        exact = sum(shares[:steps]) / steps
        rounding = 2**-53 / 1e-3  # of a weight near 1, in units of the rate; each step adds one
        assert round(exact, 3) == written and (
            1 - trace[steps - 1]
        ) / 1e-3 / steps == pytest.approx(exact, abs=4 * rounding)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(lr=0.1, weight_decay=0.3),
        dict(lr=0.05, betas=(0.5, 0.9), eps=1e-3),
        dict(betas=(0.0, 0.0)),
        dict(lr=0.0),
        dict(lr=0.02, weight_decay=0.1, correct_bias=False),
        dict(lr=0.1, weight_decay=10.0),
        dict(lr=0.2, weight_decay=7.0),  # lose all of it, or more
    ],
    ids=str,
)
def test_equals_the_naive_loop(optimizer_class, dtype, options):
    for seed in range(3):
        params, grads = problem(seed, dtype, missing=0.3)
        expected, state = naive(params, grads, **options)
        ours = [
            p.detach().clone(memory_format=torch.preserve_format).requires_grad_() for p in params
        ]
        ours[-1] = params[-1].requires_grad_()  # keep the gaps
        optimizer = optimizer_class(ours, **options)
        apply(optimizer, ours, grads)
        tight = {} if dtype == torch.float32 else dict(rtol=1e-11, atol=1e-12)
        for i, (p, q) in enumerate(zip(ours, expected)):
            assert_close(p.detach(), q, **tight)
            if i in state:
                t, m, v = state[i]
                assert optimizer.state[p]["step"] == t
                assert_close(optimizer.state[p]["exp_avg"], m, **tight)
                assert_close(optimizer.state[p]["exp_avg_sq"], v, **tight)
            else:
                assert p not in optimizer.state


@BOTH
def test_equals_torch_with_a_moving_eps(optimizer_class):
    params, grads = problem(0, torch.float64, steps=50)
    ours = [p.clone().requires_grad_() for p in params]
    theirs = [p.clone().requires_grad_() for p in params]
    optimizer = optimizer_class(ours, lr=0.01, eps=1e-3)
    oracle = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.0, foreach=False)
    for t, step in enumerate(grads, 1):
        oracle.param_groups[0]["eps"] = 1e-3 / math.sqrt(1 - 0.999**t)
        apply(optimizer, ours, [step])
        apply(oracle, theirs, [step])
        assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_fused_kernel_is_used_where_it_may_be(monkeypatch):
    calls, real = [], torch._fused_adamw_
    monkeypatch.setattr(
        torch,
        "_fused_adamw_",
        lambda params, *a, **k: calls.append(len(params)) or real(params, *a, **k),
    )
    params, grads = problem(0, torch.float32)
    params = [p.requires_grad_() for p in params]
    apply(FusedAdamW(params), params, grads[:1])
    assert calls == [6]  # two are not stored row by row
    apply(AdamW(params), params, grads[:1])
    assert calls == [6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_optimizers_leave_the_same_parameters_and_the_same_state(dtype):
    """Several steps of two groups, some gradients missing; then each continues the other's state."""
    params, grads = problem(3, dtype, steps=12, missing=0.2)
    tight = {} if dtype == torch.float32 else dict(rtol=1e-11, atol=1e-12)
    both = []
    for kind in (AdamW, FusedAdamW):
        own = [p.clone().requires_grad_() for p in params]
        groups = [{"params": own[:3], "weight_decay": 0.2}, {"params": own[3:], "lr": 0.003}]
        both.append((own, kind(groups, lr=0.01)))
        apply(both[-1][1], own, grads[:8])
    (plain, one), (fused, other) = both
    assert_close(fused, plain, **tight)
    assert one.state_dict()["param_groups"] == other.state_dict()["param_groups"]
    saved = [copy.deepcopy(optimizer.state_dict()) for optimizer in (one, other)]
    one.load_state_dict(saved[1])
    other.load_state_dict(saved[0])
    apply(one, plain, grads[8:])
    apply(other, fused, grads[8:])
    assert_close(fused, plain, **tight)
    assert_close(
        other.state_dict()["state"],
        one.state_dict()["state"],
        **(tight or dict(atol=1e-6, rtol=1e-4)),
    )


@BOTH
def test_without_bias_correction_the_first_step_is_too_long(optimizer_class):
    (first,) = run(optimizer_class, [0.5], lr=0.1, correct_bias=False)
    assert (1 - first) / 0.1 == pytest.approx(3.16, abs=0.01)


# ---------------------------------------------------------------- what is left alone


@BOTH
def test_none_skips_and_zero_does_not(optimizer_class):
    assert run(optimizer_class, [None] * 3, lr=0.1, weight_decay=0.5) == [1.0] * 3
    assert_close(run(optimizer_class, [0.0, 0.0], lr=0.1, weight_decay=0.5), [0.95, 0.9025])
    moved = run(optimizer_class, [1.0, 0.0, 0.0], lr=0.1)
    assert moved[0] > moved[1] > moved[2]  # momentum
    assert_close(
        run(optimizer_class, [1.0, None, None, -0.5], lr=0.1)[-1],
        run(optimizer_class, [1.0, -0.5], lr=0.1)[-1],
    )


@BOTH
def test_counts_may_differ_inside_a_group(optimizer_class):
    p, q = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = optimizer_class([p, q], lr=0.1)
    for i in range(4):
        p.grad = torch.ones_like(p)
        q.grad = torch.ones_like(q) if i == 3 else None
        optimizer.step()
    assert (optimizer.state[p]["step"], optimizer.state[q]["step"]) == (4, 1)
    assert_close(q[0].item(), run(AdamW, [1.0], lr=0.1)[0])
    assert_close(p[0].item(), run(AdamW, [1.0] * 4, lr=0.1)[3])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_gradient_is_named_before_anything_moves(bad):
    params, grads = problem(0, torch.float32, steps=2)
    params = [p.requires_grad_() for p in params]
    optimizer = FusedAdamW([{"params": params[:3]}, {"params": params[3:], "names": list("abcde")}])
    apply(optimizer, params, grads[:1])
    before = copy.deepcopy((optimizer.state_dict(), params))
    for p, g in zip(params, grads[1]):
        p.grad = g.clone()
    params[6].grad[1, 2] = bad
    with pytest.raises(ValueError, match=rf"{bad} at d, parameter 3 of group 1, shape \(3, 4\)"):
        optimizer.step()
    assert_close(optimizer.state_dict()["state"], before[0]["state"], rtol=0, atol=0)
    assert_close(params, before[1], rtol=0, atol=0)


def test_huge_gradients_are_not_mistaken_for_infinite_ones():
    p = torch.ones(1000, requires_grad=True)
    p.grad = torch.full_like(p, 3e37)  # the norm overflows, no number does
    FusedAdamW([p], betas=(0.9, 0.999)).step()
    assert torch.isfinite(p).all()
    half = torch.ones(100, dtype=torch.float16, requires_grad=True)
    half.grad = torch.full_like(half, 60000.0)
    FusedAdamW([half]).step()
    assert torch.isfinite(half).all()


def test_refusals():
    p = torch.ones(3, requires_grad=True)
    for options, message in [
        (dict(lr=-1e-3), "lr >= 0, got -0.001"),
        (dict(lr=math.nan), "lr"),
        (dict(eps=-1.0), "eps"),
        (dict(weight_decay=-0.1), "weight_decay"),
        (dict(betas=(1.0, 0.9)), "betas"),
        (dict(betas=(0.9, -0.1)), "betas"),
        (dict(betas=(0.9,)), "two betas"),
    ]:
        with pytest.raises(ValueError, match=message):
            FusedAdamW([p], **options)
    with pytest.raises(ValueError, match="lr"):
        FusedAdamW([{"params": [p], "lr": -1.0}])
    p.grad = torch.zeros(3).to_sparse()
    with pytest.raises(ValueError, match="sparse one at parameter 0 of group 0"):
        FusedAdamW([p]).step()
    FusedAdamW([nn.Parameter(torch.ones(2))]).step()  # nothing to do is fine


# ---------------------------------------------------------------- long runs


@BOTH
def test_resuming_is_bit_for_bit(optimizer_class):
    params, grads = problem(1, torch.float32, steps=20, missing=0.2)
    options = dict(lr=0.01, weight_decay=0.1)
    whole = [p.clone().requires_grad_() for p in params]
    apply(optimizer_class(whole, **options), whole, grads)
    halves = [p.clone().requires_grad_() for p in params]
    first = optimizer_class(halves, **options)
    apply(first, halves, grads[:10])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = optimizer_class(halves, lr=7.0)
    second.load_state_dict(torch.load(file, weights_only=True))
    for p in halves:
        for key, value in first.state[p].items():
            assert torch.equal(torch.as_tensor(second.state[p][key]), torch.as_tensor(value))
    apply(second, halves, grads[10:])
    assert all(torch.equal(p, q) for p, q in zip(whole, halves))


@BOTH
def test_copies_closures_and_schedulers(optimizer_class):
    p = torch.ones(2, requires_grad=True)
    optimizer = optimizer_class([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2
    assert optimizer.step().__class__ is type(None)
    copied = copy.deepcopy(optimizer)
    assert copied.param_groups[0]["eps"] == 1e-6
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 0.5**i)
    seen = []
    for _ in range(4):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert_close(seen, [0.1, 0.05, 0.025, 0.0125])


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_half_precision_weights(optimizer_class, dtype):
    p = torch.ones(64, dtype=dtype, requires_grad=True)
    optimizer = optimizer_class([p], lr=0.125)
    for _ in range(4):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert p.dtype == optimizer.state[p]["exp_avg"].dtype == dtype
    assert_close(p, torch.full_like(p, 0.5), rtol=0, atol=0.02)


def test_works_with_accelerate():
    from accelerate import Accelerator

    torch.manual_seed(0)
    plain, model = nn.Linear(3, 2), nn.Linear(3, 2)
    model.load_state_dict(plain.state_dict())
    optimizer = AdamW(plain.parameters(), lr=0.1)
    accelerator = Accelerator(cpu=True)
    model, prepared = accelerator.prepare(model, AdamW(model.parameters(), lr=0.1))
    for _ in range(3):
        x = torch.randn(4, 3)
        for m, o, backward in [
            (plain, optimizer, torch.Tensor.backward),
            (model, prepared, accelerator.backward),
        ]:
            o.zero_grad()
            backward(m(x).square().mean())
            o.step()
    assert_close(list(model.parameters()), list(plain.parameters()))
    assert prepared.optimizer.state_dict()["state"][0]["step"] == 3


def test_it_learns():
    torch.manual_seed(0)
    target, x = torch.randn(8, 1), torch.randn(200, 8)
    layer = nn.Linear(8, 1)
    optimizer = AdamW(layer.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        (layer(x) - x @ target).square().mean().backward()
        optimizer.step()
    assert_close(layer.weight.detach().T, target, atol=1e-2, rtol=0)


# ---------------------------------------------------------------- groups


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = BertModel(
            BertConfig(
                vocab_size=20,
                hidden_size=8,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=12,
            )
        )
        self.heads = nn.ModuleDict({"sst": nn.Linear(8, 5), "stsb": nn.Linear(8, 1)})
        self.log_scale = nn.Parameter(torch.zeros(()))


def test_parameter_groups():
    model = Tasks()
    model.heads["stsb"].weight.requires_grad_(False)
    groups = parameter_groups(model, weight_decay=0.1, lr=1e-5, head_lr=1e-3)
    found = {
        name: (p, g["weight_decay"], g["lr"])
        for g in groups
        for name, p in zip(g["names"], g["params"])
    }
    expected = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert found.keys() == expected.keys()
    for name, (p, decay, lr) in found.items():
        assert p is expected[name]
        assert decay == (
            0.0 if name.endswith("bias") or "norm" in name or name == "log_scale" else 0.1
        ), name
        assert lr == (1e-3 if name.startswith("heads.") else 1e-5)
    optimizer = AdamW(groups, lr=9.0)
    assert {g["lr"] for g in optimizer.param_groups} == {1e-5, 1e-3}
    assert AdamW(parameter_groups(model), lr=9.0).param_groups[0]["lr"] == 9.0
    only = parameter_groups(model, decays=lambda name, p: name.endswith("word_embedding.weight"))
    assert [g["names"] for g in only if g["weight_decay"]] == [
        ["encoder.embedding.word_embedding.weight"]
    ]
    assert len(parameter_groups(model, weight_decay=0.0)) == 1
    wrapped = nn.Module()
    wrapped.module = model  # as data-parallel training wraps it
    assert {g.get("lr") for g in parameter_groups(wrapped, head_lr=1.0)} == {None, 1.0}
    assert parameter_groups(model.requires_grad_(False)) == []


def test_tied_weights_are_counted_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert sum(len(g["params"]) for g in parameter_groups(model)) == 3
