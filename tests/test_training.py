"""The training loop against a loop by hand, torch's own tools and bad numbers, with the step of the
lesson and with a DeviceStep; then half precision and several processes, which only the latter has.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.core.device_step import (
    DeviceStep,
    average_gradients,
    clip_by_global_norm,
    losses_on_device,
)
from minbert.core.devices import LossScale
from minbert.optim import AdamW
from minbert.training import Record, clip_gradients, one_step, steps, sum_losses, warmup_decay

BOTH = pytest.mark.parametrize("take_step", [one_step, DeviceStep()], ids=["lesson", "device"])
CLIPS = pytest.mark.parametrize("clip", [clip_gradients, clip_by_global_norm])


def build(seed=0, dropout=0.1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))


def batches(n, rows=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [{"a": torch.randn(rows, 5, generator=generator)} for _ in range(n)]


def two(model, batch):
    out = model(batch["a"])
    return {"a": out[:, 0].square().mean(), "b": (out[:, 1] - 1).abs().mean()}


def weights(model):
    return copy.deepcopy(model.state_dict())


def same(model, saved):
    return all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


@BOTH
@pytest.mark.parametrize(
    "make",
    [
        lambda ps: AdamW(ps, lr=0.01, weight_decay=0.1),
        lambda ps: torch.optim.AdamW(ps, lr=0.01),
        lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    ],
)
@pytest.mark.parametrize("rows", [1, 6])
def test_same_bits_as_a_loop_by_hand(make, rows, take_step):
    by_hand = build()
    optimizer, history = make(by_hand.parameters()), []
    torch.manual_seed(3)  # dropout
    for batch in batches(12, rows):
        optimizer.zero_grad()
        losses = two(by_hand, batch)
        (losses["a"] + losses["b"]).backward()
        optimizer.step()
        history.append({name: loss.item() for name, loss in losses.items()})
    model = build()
    torch.manual_seed(3)
    run = steps(model, batches(12, rows), two, make(model.parameters()), take_step=take_step)
    records = list(run)
    assert same(model, by_hand.state_dict())
    assert [r.losses for r in records] == history
    assert [r.step for r in records] == list(range(12))
    assert all(r.loss == sum(r.losses.values()) for r in records)


def test_one_tensor_is_a_loss_and_start_counts_on():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    records = list(steps(model, batches(2), lambda m, b: m(b["a"]).mean(), optimizer, start=7))
    assert [r.step for r in records] == [7, 8]
    assert list(records[0].losses) == ["loss"] and records[0].lr == 0.5
    assert isinstance(records[0], Record) and list(steps(model, [], two, optimizer)) == []


def test_lazy_one_batch_a_record():
    taken = []

    def supply():
        for i, batch in enumerate(batches(5)):
            taken.append(i)
            yield batch

    model = build()
    loop = steps(model, supply(), two, torch.optim.SGD(model.parameters(), lr=0.1))
    assert taken == []
    next(loop)
    assert taken == [0]
    next(loop)
    assert taken == [0, 1]  # the sampler's position is that of the last record


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("task", ["a", "b"])
def test_bad_loss_names_task_and_step_and_changes_nothing(bad, task, take_step):
    model = build()
    optimizer = AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    calls = iter(range(10))

    def loss_fn(m, batch):
        losses = two(m, batch)
        return {**losses, task: losses[task] * bad} if next(calls) == 2 else losses

    loop = steps(model, batches(5), loss_fn, optimizer, start=40, take_step=take_step)
    next(loop), next(loop)
    before, state = weights(model), copy.deepcopy(optimizer.state_dict()["state"])
    with pytest.raises(ValueError, match=f"step 42: expected a finite loss for task '{task}'"):
        next(loop)
    assert same(model, before)
    assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)


@BOTH
def test_bad_gradient_names_the_parameter_and_changes_nothing(take_step):
    model = build()

    def backward(losses):
        sum_losses(losses)
        model[3].weight.grad[0, 0] = math.nan

    before = weights(model)
    with pytest.raises(ValueError, match="step 0: .*3.weight"):
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        next(steps(model, batches(1), two, optimizer, backward, take_step=take_step))
    assert same(model, before)


def test_errors_of_the_loss_function_say_the_step():
    def fails(model, batch):
        raise ValueError("no labels")

    model = build()
    with pytest.raises(ValueError, match="step 0: no labels"):
        next(steps(model, batches(1), fails, torch.optim.SGD(model.parameters(), lr=1)))


@pytest.mark.parametrize("result", [lambda out: out, lambda out: 1.0, lambda out: {"x": out}])
def test_a_loss_must_be_one_number(result):
    with pytest.raises(ValueError, match="expected one number"):
        losses_on_device(build(), batches(1)[0], lambda m, b: result(m(b["a"])))


def test_rates_follow_the_schedule_in_every_group_and_survive_a_new_loop():
    model = build()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 1.0}, {"params": model[3].parameters(), "lr": 4.0}]
    )
    seen = []
    for record in steps(model, batches(3), two, optimizer, schedule=lambda s: 1 / (s + 1)):
        seen.append((record.lr, optimizer.param_groups[1]["lr"]))
    assert_close(seen, [(1.0, 4.0), (0.5, 2.0), (1 / 3, 4 / 3)])
    [record] = steps(model, batches(1), two, optimizer, schedule=lambda s: 0.5)
    assert record.lr == 0.5  # half of the first rate, not of the last one


def test_without_a_schedule_rates_belong_to_whoever_sets_them():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    falling, seen = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), []
    for record in steps(model, batches(3), two, optimizer):
        seen.append(record.lr)
        falling.step()
    assert_close(seen, [0.1, 0.05, 0.025])


@CLIPS
@pytest.mark.parametrize("limit", [0.01, 0.5, 100.0])
def test_clipping_equals_torch(limit, clip):
    ours, theirs = build(dropout=0.0), build(dropout=0.0)
    for model in (ours, theirs):
        sum_losses(two(model, batches(1)[0]))
    norm = clip(dict(ours.named_parameters()), limit)
    assert_close(norm, nn.utils.clip_grad_norm_(theirs.parameters(), limit).item())
    for a, b in zip(ours.parameters(), theirs.parameters()):
        assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)  # torch divides by norm + 1e-6


@CLIPS
def test_clipping_passes_over_parameters_without_gradient(clip):
    a, b = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    assert clip({"a": a, "b": b}, 1.0) == 0
    a.grad = torch.tensor([2.0])
    assert clip({"a": a, "b": b}, 1.0) == 2 and a.grad.item() == 1 and b.grad is None


@CLIPS
def test_a_gradient_that_is_not_finite_is_named_and_nothing_changes(clip):
    a, b, c = (torch.zeros(2, requires_grad=True) for _ in range(3))
    a.grad, b.grad, c.grad = (
        torch.ones(2),
        torch.tensor([0.0, math.inf]),
        torch.full((2,), math.nan),
    )
    with pytest.raises(ValueError, match="finite gradient.*first in b"):
        clip({"a": a, "b": b, "c": c}, 0.1)
    assert a.grad.tolist() == [1, 1]


@BOTH
@pytest.mark.parametrize("pieces", [2, 3])
def test_accumulated_pieces_equal_the_whole_batch(pieces, take_step):
    """In double precision, so that nothing but rounding of 1e-16 may tell them apart."""
    whole, cut = build(dropout=0.0).double(), build(dropout=0.0).double()
    large = [{"a": batch["a"].double()} for batch in batches(4)]
    small = [{"a": part} for batch in large for part in batch["a"].chunk(pieces)]

    def make(m):
        return AdamW(m.parameters(), lr=0.05)

    a = list(steps(whole, large, two, make(whole), max_grad_norm=0.1))
    b = list(
        steps(cut, small, two, make(cut), max_grad_norm=0.1, accumulate=pieces, take_step=take_step)
    )
    assert len(b) == 4
    assert_close([r.loss for r in a], [r.loss for r in b])
    assert_close([r.grad_norm for r in a], [r.grad_norm for r in b])
    assert_close(weights(whole), weights(cut))


def test_accumulate_nothing_is_refused():
    model = build()
    with pytest.raises(ValueError, match="at least 1 batch"):
        next(steps(model, batches(1), two, AdamW(model.parameters()), accumulate=0))


@pytest.mark.usefixtures("bf16")
def test_bf16_products_fp32_losses_gradients_and_weights():
    model, seen = build(), []

    def loss_fn(m, batch):
        out = m(batch["a"])
        seen.append(out.dtype)
        return out.square().mean()  # a loss that forgot to leave bf16

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    [record] = steps(model, batches(1), loss_fn, optimizer, take_step=DeviceStep(precision="bf16"))
    assert seen == [torch.bfloat16]
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    assert losses_on_device(model, batches(1)[0], loss_fn, "bf16")["loss"].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):  # an outer one does not leak in
        losses_on_device(model, batches(1)[0], loss_fn)
    assert seen[-1] == torch.float32
    with pytest.raises(ValueError, match="'fp16'"):
        losses_on_device(model, batches(1)[0], loss_fn, "fp16")
    double = build().double()
    loss = losses_on_device(double, {"a": torch.ones(2, 5).double()}, loss_fn)["loss"]
    assert loss.dtype == torch.float64  # wider than fp32 stays as it is


def test_scaled_losses_take_the_same_step_and_one_that_overflows_is_taken_again(monkeypatch):
    """A factor is a power of two, so not a bit differs; plain SGD would show one that stays in the
    gradient.
    """
    plain = build(dropout=0.0)
    scaled = build(dropout=0.0)
    scale = LossScale(64.0, patience=2)
    scaled_step = DeviceStep(scale=scale)
    # products stay in float32, so that not a bit differs
    monkeypatch.setattr(
        "minbert.core.device_step.half_type", lambda device, precision: torch.float16
    )
    tried = []

    def backward(losses):
        # of two batches
        assert (
            losses["b"].item() == scale.factor * two(scaled, pair[len(tried) % 2])["b"].item() / 2
        )
        sum_losses(losses)
        tried.append(scale.factor)
        if scale.factor > most:  # as where float16 ends
            scaled[3].bias.grad[0] = math.inf

    for step, most in enumerate((16, 16, 32, 0.5)):
        pair = batches(2, seed=step)

        def take():
            optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
            return scaled_step(scaled, pair, two, optimizer, backward, 0.5)

        plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        if most < 1:  # then the fault is not the factor's
            with pytest.raises(ValueError, match="finite gradient.*first in 3.bias"):
                take()
        else:
            expected = DeviceStep._step  # one without a scale
            parameters = dict(plain.named_parameters())
            settings = (plain, pair, two, plain_optimizer, parameters, torch.device("cpu"), 0.5)
            assert take() == expected(DeviceStep(), sum_losses, *settings)
        assert same(scaled, plain.state_dict())
    # doubled after two good steps
    assert tried[::2] == tried[1::2] == [64, 32, 16, 16, 32, 32, 16, 8, 4, 2, 1]


@BOTH
def test_a_parameter_without_gradient_is_left_alone(take_step):
    """AdamW must neither decay nor count a head that no task used."""
    shared, idle = nn.Linear(5, 1), nn.Linear(5, 1)
    model = nn.ModuleList([shared, idle])
    before = weights(idle)
    optimizer = AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    run = steps(
        model,
        batches(3),
        lambda m, b: m[0](b["a"]).square().mean(),
        optimizer,
        take_step=take_step,
    )
    list(run)
    assert same(idle, before) and idle.weight not in optimizer.state


class Colleague:
    """Play an accelerator whose other process sends a fixed message."""

    num_processes = 2

    def __init__(self, message):
        self.message = message

    def reduce(self, tensor, reduction):
        assert reduction == "mean" and tensor.shape == self.message.shape
        return (tensor + self.message) / 2


def test_average_keeps_shapes_and_marks_unused_parameters():
    a, b, c = (torch.zeros(shape, requires_grad=True) for shape in ((2, 2), (1,), (3,)))
    a.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    message = torch.tensor([1.0, 1, 0, 3, 2, 1, 0, 8, 0, 0, 0])
    average_gradients(iter([a, b, c]), Colleague(message))
    assert a.grad.tolist() == [[2, 2], [2, 2]] and b.grad.tolist() == [4] and c.grad is None


# ---------------------------------------------------------------- learning rate schedule


@pytest.mark.parametrize("total, warmup", [(20, 5), (7, 1), (9, 8)])
def test_the_schedule_is_transformers_one_step_earlier_on_the_way_up(total, warmup):
    """Theirs gives the first step the rate 0; on the way down both are equal."""
    from transformers import get_linear_schedule_with_warmup

    def rates(make):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        scheduler, seen = make(optimizer), []
        for _ in range(total):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return seen

    ours = rates(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda i: warmup_decay(i, total, warmup))
    )
    theirs = rates(lambda o: get_linear_schedule_with_warmup(o, warmup, total))
    assert (
        theirs[0] == 0
        and ours[:warmup] == pytest.approx(theirs[1 : warmup + 1])
        and ours[warmup:] == pytest.approx(theirs[warmup:])
    )


def test_warmup_decay():
    assert [warmup_decay(i, 10, 2, 4) for i in range(11)] == [
        0.5,
        1,
        1,
        1,
        1,
        1,
        1,
        0.75,
        0.5,
        0.25,
        0,
    ]
    assert [warmup_decay(i, 4) for i in range(6)] == [1, 0.75, 0.5, 0.25, 0, 0]
    assert [warmup_decay(i, 6, 3) for i in range(6)] == pytest.approx(
        [1 / 3, 2 / 3, 1, 1, 2 / 3, 1 / 3]
    )
    assert [warmup_decay(i, 5, 0, 0) for i in range(8)] == [1.0] * 8
    assert [warmup_decay(i, 4, 4) for i in range(4)] == [0.25, 0.5, 0.75, 1]
    # rise and fall overlap: the lower one counts
    short = [warmup_decay(i, 4, 100, 100) for i in range(5)]
    assert short == pytest.approx([0.01, 0.02, 0.02, 0.01, 0])
    for bad in [(-1, 10), (0, 0), (0, 10, -1), (0, 10, 0, -1)]:
        with pytest.raises(ValueError, match="expected steps"):
            warmup_decay(*bad)
