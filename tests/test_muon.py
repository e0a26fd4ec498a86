"""Muon and AdamW as one: each moves its own weights as alone, in the loop and out of a checkpoint."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert import muon as chapter
from minbert.core.checkpoint import load_checkpoint, save_checkpoint
from minbert.core.combined_optimizer import CombinedOptimizer
from minbert.encoder import BertConfig, BertModel
from minbert.muon import Muon, muon, orthogonalize
from minbert.optim import AdamW, parameter_groups
from minbert.pretrain import MlmHead
from minbert.training import steps


def small():
    torch.manual_seed(3)
    config = BertConfig(40, 16, 2, 2, 32, 0.0, 0.0, 24)
    return nn.ModuleDict({"bert": BertModel(config), "head": MlmHead(config)})


def loss(model, seed):
    ids = torch.randint(0, 40, (4, 7), generator=torch.Generator().manual_seed(seed))
    hidden = model["bert"](ids, torch.ones_like(ids)).last_hidden_state
    return nn.functional.cross_entropy(
        model["head"](hidden, model["bert"].embedding.word_embedding.weight).flatten(0, 1),
        ids.flatten(),
    )


def moved(model, optimizer, seeds):
    for _ in steps(model, seeds, loss, optimizer, schedule=lambda step: 1 / (step + 1)):
        pass
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_matrices_of_layers_and_head_are_muons_and_every_weight_has_one_owner():
    model = small()
    rest, ours = (
        ({n for g in part.param_groups for n in g["names"]}) for part in muon(model).parts
    )
    names = {name for name, p in model.named_parameters()}
    assert ours | rest == names and not ours & rest
    assert ours == {
        n for n in names if n.endswith((".weight",)) and "norm" not in n and "embedding" not in n
    }


def polynomial_by_svd(grad, ns_coefficients=(3.4445, -4.7750, 2.0315), ns_steps=5, eps=1e-7):
    """What torch's optimizer asks of a gradient, in the place of its products in bf16: written out,
    in double precision.
    """
    a, b, c = ns_coefficients
    u, s, v = torch.linalg.svd(grad.double(), full_matrices=False)
    s = s / grad.double().square().sum().sqrt().clamp_min(eps)
    for _ in range(ns_steps):
        s = a * s + b * s**3 + c * s**5
    return (u @ torch.diag(s) @ v).to(grad.dtype)


@pytest.fixture
def in_single_precision(monkeypatch):
    """A processor without products of bf16, and torch's optimizer without them."""
    monkeypatch.setattr(chapter, "imitates_bf16", lambda device: True)
    monkeypatch.setattr(torch.optim._muon, "_zeropower_via_newtonschulz", polynomial_by_svd)


def test_each_part_moves_as_it_would_alone(in_single_precision):
    """Written out: torch.optim.Muon over one list, our AdamW over the other, stepped one after the
    other.
    """
    together, apart = small(), small()
    got = moved(together, muon(together, matrix_lr=0.03, lr=1e-3, weight_decay=0.02), range(4))
    names = dict(apart.named_parameters())
    matrices = [p for n, p in names.items() if p.ndim == 2 and "embedding" not in n]
    tables = [p for n, p in names.items() if p.ndim == 2 and "embedding" in n]
    flat = [p for p in names.values() if p.ndim < 2]
    one = torch.optim.Muon(matrices, lr=0.03, weight_decay=0.02)
    two = AdamW(
        [{"params": tables, "weight_decay": 0.02}, {"params": flat, "weight_decay": 0.0}], lr=1e-3
    )
    for step in range(4):
        for optimizer, lr in ((one, 0.03), (two, 1e-3)):
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = lr / (step + 1)
        loss(apart, step).backward()
        one.step()
        two.step()
    before = dict(small().named_parameters())
    for name, p in apart.named_parameters():
        assert_close(
            got[name], p.detach(), rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}"
        )
    for name in (
        "bert.embedding.word_embedding.weight",
        "bert.bert_layers.0.out_dense.weight",
        "head.bias",
    ):
        assert not torch.equal(got[name], before[name])


def gradients(shape, dtype=torch.float32):
    return [
        torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        for seed in range(4)
    ]


def walked(optimizer, weight, grads):
    for grad in grads:
        weight.grad = grad.clone()
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (5, 5), (1, 4)])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_a_matrix_goes_where_torchs_optimizer_takes_it(in_single_precision, shape, momentum):
    start = torch.ones(shape, dtype=torch.float64)
    one, two = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    got = walked(
        Muon([one], lr=0.1, weight_decay=0.3, momentum=momentum),
        one,
        gradients(shape, torch.float64),
    )
    want = walked(
        torch.optim.Muon([two], lr=0.1, weight_decay=0.3, momentum=momentum),
        two,
        gradients(shape, torch.float64),
    )
    assert_close(got, want)


@pytest.mark.parametrize("imitates", [True, False])
def test_products_are_in_bf16_only_where_the_device_has_them(monkeypatch, imitates):
    asked = []
    monkeypatch.setattr(chapter, "imitates_bf16", lambda device: imitates)
    monkeypatch.setattr(
        chapter, "orthogonalize", lambda x: asked.append(x.dtype) or orthogonalize(x)
    )
    weight = nn.Parameter(torch.zeros(6, 4))
    walked(Muon([weight], lr=1.0, weight_decay=0.0), weight, gradients((6, 4)))
    assert (
        asked == 4 * [torch.float32 if imitates else torch.bfloat16]
        and weight.dtype == torch.float32
    )


def test_in_bf16_it_goes_torchs_way_to_the_digits_that_bf16_has(monkeypatch):
    monkeypatch.setattr(chapter, "imitates_bf16", lambda device: False)
    one, two = nn.Parameter(torch.zeros(24, 16)), nn.Parameter(torch.zeros(24, 16))
    got = walked(Muon([one], lr=1.0, weight_decay=0.0), one, gradients((24, 16)))
    want = walked(torch.optim.Muon([two], lr=1.0, weight_decay=0.0), two, gradients((24, 16)))
    # five times three products of numbers with 8 bits
    assert (got - want).norm() < 8 * 2**-8 * want.norm()


def test_a_run_that_torchs_optimizer_began_goes_on(in_single_precision):
    """Checkpoints written before the package had a class of its own name the same things."""
    one, two = nn.Parameter(torch.ones(4, 6)), nn.Parameter(torch.ones(4, 6))
    theirs = torch.optim.Muon([one], lr=0.1, weight_decay=0.3)
    ours = Muon([two], lr=0.5, weight_decay=0.0)
    walked(theirs, one, gradients((4, 6))[:2])
    two.data.copy_(one.data)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert_close(
        walked(ours, two, gradients((4, 6))[2:]),
        walked(theirs, one, gradients((4, 6))[2:]),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_bad_gradient_moves_nothing_and_a_missing_one_is_passed_over():
    good, bad, none = (nn.Parameter(torch.ones(2, 3)) for _ in range(3))
    good.grad, bad.grad = torch.ones(2, 3), torch.full((2, 3), float("nan"))
    optimizer = Muon([good, bad, none])
    with pytest.raises(ValueError, match="finite gradients, got nan at parameter 1 of group 0"):
        optimizer.step()
    assert torch.equal(good, torch.ones(2, 3)) and not optimizer.state
    bad.grad = None
    optimizer.step()
    assert (
        not torch.equal(good, torch.ones(2, 3))
        and torch.equal(none, bad)
        and list(optimizer.state) == [good]
    )


def test_a_run_that_was_saved_and_loaded_ends_in_the_same_bits(tmp_path):
    straight, first, second = small(), small(), small()
    want = moved(straight, muon(straight), range(6))
    half = muon(first)
    moved(first, half, range(3))
    save_checkpoint(tmp_path, first, half, step=3)
    again = muon(second)
    load_checkpoint(tmp_path, second, again)
    for _ in steps(second, range(3, 6), loss, again, schedule=lambda step: 1 / (step + 1), start=3):
        pass
    assert all(torch.equal(want[name], p) for name, p in second.named_parameters())


def test_a_checkpoint_of_one_optimizer_is_not_taken_for_two(tmp_path):
    model = small()
    alone = AdamW(parameter_groups(model), lr=1e-3)
    moved(model, alone, range(1))
    save_checkpoint(tmp_path, model, alone, step=1)
    with pytest.raises(ValueError, match="expected an optimizer over"):
        load_checkpoint(tmp_path, model, muon(model))


def test_what_makes_no_sense_is_refused():
    weight = nn.Parameter(torch.ones(2, 2))
    with pytest.raises(ValueError, match="one in two"):
        CombinedOptimizer(torch.optim.SGD([weight], lr=1.0), torch.optim.SGD([weight], lr=1.0))
    with pytest.raises(ValueError, match="none for Muon"):
        muon(nn.LayerNorm(4))
    with pytest.raises(ValueError, match="none for AdamW"):
        muon(nn.Linear(4, 4, bias=False))
    with pytest.raises(ValueError, match=r"expected matrices, got a weight of shape \(3,\)"):
        Muon([torch.ones(2, 2, requires_grad=True), torch.ones(3, requires_grad=True)])


@pytest.mark.parametrize(
    "setting",
    [
        {"lr": -0.1},
        {"lr": float("nan")},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"momentum": -0.5},
    ],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"expected {next(iter(setting))} "):
        Muon([nn.Parameter(torch.ones(2, 2))], **setting)


def test_a_closure_runs_with_gradients_for_muon_alone():
    weight = nn.Parameter(torch.ones(2, 3))

    def closure():
        value = weight.square().sum()
        value.backward()
        return value

    assert Muon([weight]).step(closure).item() == 6.0 and not torch.equal(weight, torch.ones(2, 3))


def test_a_closure_is_asked_once_and_its_loss_comes_back():
    model, calls = small(), []

    def closure():
        calls.append(1)
        value = loss(model, 0)
        value.backward()
        return value

    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert muon(model).step(closure).item() == pytest.approx(loss_of(before)) and calls == [1]
    assert not torch.equal(
        before["head.transform_dense.weight"], model["head"].transform_dense.weight
    )


def loss_of(weights):
    model = small()
    model.load_state_dict(weights)
    return loss(model, 0).item()


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (1, 7), (7, 1)])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_stretches_go_through_the_polynomial_and_directions_stay(shape, times):
    matrix = torch.randn(
        shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))
    )
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / matrix.square().sum().sqrt()
    for _ in range(times):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    assert_close(orthogonalize(matrix, times), u @ torch.diag(s) @ v)


def test_zeros_stay_zeros():
    assert_close(orthogonalize(torch.zeros(3, 2)), torch.zeros(3, 2))
