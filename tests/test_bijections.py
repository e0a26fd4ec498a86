"""Chapter 19: norm, permutation, matrix and coupling against normflows, autograd and their
definitions.
"""

import math
import warnings

import normflows
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from minbert.bijections import (
    ActNorm,
    AdditiveCoupling,
    AffineCoupling,
    Bijection,
    CouplingNet,
    InvertibleLinear,
    Permutation,
    check_rows,
)

KINDS = {
    "norm": lambda d, g: ActNorm(d),
    "reverse": lambda d, g: Permutation(d),
    "swap": lambda d, g: Permutation(d, "swap"),
    "random": lambda d, g: Permutation(d, "random", g),
    "dense": lambda d, g: InvertibleLinear(d, "dense", g),
    "lu": lambda d, g: InvertibleLinear(d, "lu", g),
    "additive": lambda d, g: AdditiveCoupling(d, 8, g),
    "affine": lambda d, g: AffineCoupling(d, 8, g),
}


def rows(n, d, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(n, d, generator=g, dtype=dtype) + torch.arange(d)


def shaken(module, seed=0, by=0.1):
    """Move every weight away from its special start."""
    g = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.data.add_(by * torch.randn(weight.shape, generator=g, dtype=weight.dtype))
    return module


def make(kind, d, seed=0):
    g = torch.Generator().manual_seed(seed)
    return shaken(KINDS[kind](d, g).double().initialize(rows(100, d)), seed)


# ---------------------------------------------------------------- every bijection


@pytest.mark.parametrize("d", [2, 3, 8, 13])
@pytest.mark.parametrize("kind", KINDS)
def test_log_det_is_that_of_all_derivatives(kind, d):
    part, x = make(kind, d), rows(3, d, 1)
    y, log_det = part(x)
    assert y.shape == (3, d) and log_det.shape == (3,)
    for i in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda a: part(a[None])[0][0], x[i])
        assert_close(log_det[i], torch.linalg.slogdet(jacobian).logabsdet, rtol=0, atol=1e-8)


@pytest.mark.parametrize("d", [2, 3, 8, 13])
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, d):
    part, x = make(kind, d), rows(5, d, 1)
    y = part(x)[0]
    assert_close(part.inverse(y), x, rtol=0, atol=1e-9)
    assert_close(part(part.inverse(x))[0], x, rtol=0, atol=1e-9)
    assert kind == "random" or not torch.allclose(y, x)
    assert_close(part(x[2:3])[0], y[2:3])  # no row looks at another
    assert (
        part(x[:0])[0].shape == (0, d)
        and part(x[:0])[1].shape == (0,)
        and part.inverse(x[:0]).shape == (0, d)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_image_stretch_and_inverse(kind):
    part, x = make(kind, 5), rows(3, 5, 1).requires_grad_()
    weights = [w for w in part.parameters()]

    def both(*_):
        return part(x)[0].square().sum() + 0.7 * part(x)[1].sum()

    if weights:
        grads = torch.autograd.grad(both(), weights, allow_unused=True)
        for w, grad in zip(weights, grads):
            w_flat, h = w.data.view(-1), 1e-6
            for i in range(0, len(w_flat), max(1, len(w_flat) // 5)):
                w_flat[i] += h
                up = both().item()
                w_flat[i] -= 2 * h
                down = both().item()
                w_flat[i] += h
                assert grad.reshape(-1)[i].item() == pytest.approx(
                    (up - down) / (2 * h), rel=1e-4, abs=1e-5
                )
    assert torch.autograd.gradcheck(part.inverse, (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_dict_says_everything(kind):
    part, x = make(kind, 6), rows(4, 6, 1)
    fresh = KINDS[kind](6, torch.Generator().manual_seed(99)).double().eval()
    fresh.load_state_dict(part.state_dict())
    assert torch.equal(fresh(x)[0], part(x)[0]) and torch.equal(fresh.inverse(x), part.inverse(x))


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_decides_and_torch_is_left_alone(kind):
    before = torch.get_rng_state()
    one, two = make(kind, 7, 3), make(kind, 7, 3)
    assert all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values())
    )
    assert torch.equal(torch.get_rng_state(), before)
    if kind in ("random", "dense", "lu", "additive", "affine"):
        other = KINDS[kind](7, torch.Generator().manual_seed(4)).state_dict()
        same = KINDS[kind](7, torch.Generator().manual_seed(3)).state_dict()
        assert any(not torch.equal(other[name], same[name]) for name in same)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_are_refused(kind):
    part = make(kind, 4)
    for bad in (rows(3, 5), rows(3, 3), torch.zeros(4), torch.zeros(2, 3, 4)):
        for door in (part, part.inverse):
            with pytest.raises(ValueError, match=r"\(N, 4\)"):
                door(bad.double())
        with pytest.raises(ValueError, match=r"expected batch of shape \(N, 4\)"):
            part.initialize(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_needs_rows_that_differ(kind):
    part = KINDS[kind](4, None)
    state = {name: w.clone() for name, w in part.state_dict().items()}
    for bad, message in (
        (torch.ones(1, 4), "one row has no spread"),
        (torch.ones(0, 4), "got 0"),
        (torch.ones(9, 4), "got 9 equal ones"),
        (torch.full((9, 4), math.nan), "finite numbers in batch"),
    ):
        with pytest.raises(ValueError, match=message):
            part.initialize(bad)
    assert all(torch.equal(state[name], w) for name, w in part.state_dict().items())
    with pytest.warns(RuntimeWarning, match="got 63") as seen:
        assert part.initialize(rows(63, 4).float()) is part
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KINDS[kind](4, None).double().initialize(rows(64, 4))


def test_check_rows_names_the_tensor():
    x = torch.zeros(2, 3)
    assert check_rows(x, 3) is x
    with pytest.raises(ValueError, match=r"expected latent of shape \(N, 4\), got \(2, 3\)"):
        check_rows(x, 4, "latent")
    with pytest.raises(ValueError, match="at least 2, got 1"):
        Bijection(1, least=2)


# ---------------------------------------------------------------- norm


def test_actnorm_starts_as_the_standardization_of_its_batch():
    x = rows(100, 6)
    z, log_det = (norm := ActNorm(6).double().initialize(x))(x)
    std = x.std(0, correction=0)
    assert_close(z, (x - x.mean(0)) / (std + 1e-6))
    assert_close(log_det, -(std + 1e-6).log().sum().expand(100))
    assert_close(norm.logs.data, -(std + 1e-6).log() / 3)  # s = 3 logs
    assert_close(norm.shift.data, -x.mean(0))


@pytest.mark.parametrize("d", [3, 8])
def test_actnorm_is_that_of_normflows(d):
    x = rows(80, d, 1)
    theirs = normflows.flows.ActNorm(d).double()
    start, _ = theirs.inverse(x)
    # they divide by n - 1
    assert_close(
        start * math.sqrt(80 / 79), ActNorm(d).double().initialize(x)(x)[0], rtol=1e-5, atol=1e-5
    )
    ours = shaken(ActNorm(d).double().initialize(x))
    theirs.s.data, theirs.t.data = -3 * ours.logs.data[None], -ours.shift.data[None]
    y, log_det = ours(x)
    their_y, their_log_det = theirs.inverse(x)  # data -> latent is their inverse
    assert_close(y, their_y)
    assert_close(log_det, their_log_det.expand(80))
    assert_close(ours.inverse(y), theirs(y)[0])
    g = rows(80, d, 2)
    grad = torch.autograd.grad((y * g).sum() + 3 * log_det.sum(), (ours.shift, ours.logs))
    theirs_grad = torch.autograd.grad(
        (their_y * g).sum() + 3 * 80 * their_log_det.sum(), (theirs.t, theirs.s)
    )
    assert_close(grad[0], -theirs_grad[0][0])
    assert_close(grad[1], -3 * theirs_grad[1][0])


def test_columns_that_hardly_vary_are_held_down():
    x = torch.cat(
        [
            rows(200, 5).float(),
            torch.full((200, 1), 0.1),
            torch.zeros(200, 1),
            1e-5 * rows(200, 1).float(),
        ],
        dim=1,
    )
    norm = ActNorm(8).initialize(x)
    scale = (3 * norm.logs.data).exp()
    median = x[:, [0, 1, 2, 3, 4, 7]].double().std(0, correction=0).median()
    assert_close(scale[5:].double(), (1 / (median + 1e-6)).expand(3), rtol=1e-4, atol=0)
    assert_close(norm(x)[0][:, 5:7], torch.zeros(200, 2), rtol=0, atol=1e-4)
    wider = ActNorm(8, floor=0.1).initialize(x)
    assert_close((3 * wider.logs.data).exp()[5].double(), 1 / (median + 1e-6), rtol=1e-4, atol=0)
    assert_close(wider.logs[:5], norm.logs[:5])
    # the median of all columns would be 0
    mostly = torch.cat([rows(200, 1).float(), torch.full((200, 4), 0.7)], dim=1)
    assert (3 * ActNorm(5).initialize(mostly).logs.data).exp().max() < 1e3
    far = ActNorm(8).initialize(1e3 * x)  # a share of the median, whatever the unit
    assert_close((3 * far.logs.data).exp() * 1e3, scale, rtol=1e-2, atol=0)


@pytest.mark.parametrize("spread", [0.0, 1e-32, 1e-9, 1e-4])
def test_a_dead_column_is_not_stretched_again_by_every_norm(spread):
    """MiniLM has a column that varies by 1e-32: with a floor in its place nine norms made 1e28 of
    it, and the gradient's length overflowed.
    """
    from minbert.flow import Flow

    x = rows(256, 16).float()
    x[:, 3] = spread * x[:, 3]
    flow = Flow(16, 3, 3, generator=torch.Generator().manual_seed(0)).initialize(x)
    assert torch.autograd.functional.jacobian(lambda u: flow(u)[0].sum(0), x[:4]).abs().max() < 1e4
    flow.nll(x).mean().backward()
    assert all(
        p.grad.isfinite().all() and p.grad.norm() < 1e6
        for p in flow.parameters()
        if p.grad is not None
    )


def test_only_the_first_train_batch_starts_a_norm():
    norm, x = ActNorm(4), rows(100, 4).float()
    with pytest.raises(ValueError, match=r"call initialize\(batch\) first"):
        norm.eval()(x)
    with pytest.raises(ValueError, match=r"call initialize\(batch\) first"):
        norm.train().inverse(x)
    assert not norm.initialized
    z, _ = norm.train()(x)
    assert norm.initialized and z.requires_grad
    assert_close(z.mean(0), torch.zeros(4), rtol=0, atol=1e-5)
    kept = norm.shift.clone()
    norm(x + 5)
    assert torch.equal(norm.shift, kept)  # the second batch changes nothing
    norm.initialize(x + 5)
    assert_close(norm.shift.data, kept.data - 5)  # asked to, it starts over
    copy = ActNorm(4).eval()
    copy.load_state_dict(norm.state_dict())
    assert torch.equal(copy(x)[0], norm(x)[0])
    assert copy(x[:1])[0].shape == (1, 4)  # one row is fine once started


def test_a_batch_that_needs_a_gradient_does_not_keep_its_graph():
    x = rows(100, 4).float().requires_grad_()
    norm = ActNorm(4).initialize(x)
    assert norm.shift.is_leaf and norm.shift.requires_grad and x.grad is None
    norm(x)[0].sum().backward()
    assert x.grad is not None


# ---------------------------------------------------------------- mixing


@pytest.mark.parametrize("d", [2, 5, 8])
def test_permutations(d):
    x = rows(3, d)
    assert torch.equal(Permutation(d)(x)[0], x.flip(1))
    theirs = normflows.flows.Permute(d, "swap")
    assert torch.equal(Permutation(d, "swap")(x)[0], theirs(x)[0])
    assert torch.equal(Permutation(d, "swap").inverse(x), theirs.inverse(x)[0])
    theirs = normflows.flows.Permute(d)
    ours = Permutation(d, "random", torch.Generator().manual_seed(1))
    theirs.perm.copy_(ours.order)
    theirs.inv_perm.copy_(ours.order.argsort())
    assert torch.equal(ours(x)[0], theirs(x)[0]) and torch.equal(
        ours.inverse(x), theirs.inverse(x)[0]
    )
    assert sorted(ours.order.tolist()) == list(range(d))
    assert (ours(x)[1] == 0).all()
    with pytest.raises(ValueError, match="'shuffle'"):
        Permutation(d, "shuffle")


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize("d", [3, 8])
@pytest.mark.parametrize("form", ["dense", "lu"])
def test_linear_is_that_of_normflows(form, d):
    ours, x = make(form, d), rows(20, d, 1)
    theirs = normflows.flows.InvertibleAffine(d, use_lu=form == "lu").double()
    if form == "dense":
        theirs.W.data = ours.weight.data.clone()
        pairs = [(ours.weight, theirs.W)]
    else:
        ours.sign[1] = -1
        theirs.P.copy_(torch.eye(d)[:, ours.order])
        theirs.sign_S.copy_(ours.sign)
        theirs.L.data, theirs.U.data = ours.triangles.data.clone(), ours.triangles.data.clone()
        theirs.log_S.data = ours.log_s.data.clone()
        pairs = [(ours.log_s, theirs.log_S)]
    y, log_det = ours(x)
    their_y, their_log_det = theirs.inverse(x)
    assert_close(y, their_y)
    assert_close(log_det, their_log_det.expand(20))
    assert_close(ours.inverse(x), theirs(x)[0])
    g = rows(20, d, 2)
    loss, their_loss = (y * g).sum() + 3 * log_det.sum(), (their_y * g).sum() + 60 * their_log_det
    for w, v in pairs:
        assert_close(
            torch.autograd.grad(loss, w, retain_graph=True),
            torch.autograd.grad(their_loss, v, retain_graph=True),
        )
    if form == "lu":
        (grad,) = torch.autograd.grad(loss, ours.triangles)
        lower, upper = torch.autograd.grad(their_loss, (theirs.L, theirs.U))
        assert_close(grad, lower.tril(-1) + upper.triu(1))


def test_how_a_matrix_starts():
    g = torch.Generator().manual_seed(0)
    dense = InvertibleLinear(40, "dense", g)
    assert_close(dense.weight @ dense.weight.T, torch.eye(40), rtol=0, atol=1e-5)
    assert_close(dense(rows(2, 40).float())[1], torch.zeros(2), rtol=0, atol=1e-5)
    lu, x = InvertibleLinear(40, "lu", g), rows(2, 40).float()
    y, log_det = lu(x)
    assert_close(y, x[:, lu.order])
    assert (log_det == 0).all() and not torch.equal(lu.order, torch.arange(40))
    with pytest.raises(ValueError, match="'qr'"):
        InvertibleLinear(4, "qr")


def test_an_ill_conditioned_matrix_is_still_undone_in_single_precision():
    dense = InvertibleLinear(60, "dense", torch.Generator().manual_seed(0))
    with torch.no_grad():
        U, s, V = torch.linalg.svd(dense.weight)
        dense.weight.copy_(U @ torch.diag(torch.logspace(0, -2, 60)) @ V)
    x = rows(20, 60).float() / 10
    assert_close(dense.inverse(dense(x)[0]), x, rtol=0, atol=1e-3)
    assert dense.inverse(x).dtype == torch.float32


# ---------------------------------------------------------------- coupling


class Interleaved(nn.Module):
    """Hand our m to normflows, which wants shift and scale in turn and adds the shift after."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        t, r = self.net(x).chunk(2, dim=1)
        return torch.stack([-t, r], dim=2).flatten(1)


@pytest.mark.parametrize("d", [2, 5, 8])
def test_affine_coupling_is_that_of_normflows(d):
    ours, x = make("affine", d), rows(20, d, 1)
    theirs = normflows.flows.AffineCoupling(Interleaved(ours.net), scale_map="sigmoid")

    def halves(u):
        return [u[:, : d // 2], u[:, d // 2 :]]

    y, log_det = ours(x)
    their_y, their_log_det = theirs.inverse(halves(x))
    assert_close(y, torch.cat(their_y, 1))
    assert_close(log_det, their_log_det)
    assert_close(ours.inverse(y), torch.cat(theirs(halves(y))[0], 1))
    g = rows(20, d, 2)
    weights = list(ours.parameters())
    grads = torch.autograd.grad((y * g).sum() + 3 * log_det.sum(), weights)
    their_grads = torch.autograd.grad(
        (torch.cat(their_y, 1) * g).sum() + 3 * their_log_det.sum(), weights
    )
    assert_close(grads, their_grads)


def test_additive_coupling_is_that_of_normflows():
    ours, x = make("additive", 7), rows(20, 7, 1)
    theirs = normflows.flows.AffineCoupling(ours.net, scale=False)
    y, log_det = ours(x)
    assert_close(y, torch.cat(theirs([x[:, :3], x[:, 3:]])[0], 1))
    assert (log_det == 0).all()
    assert torch.equal(y[:, :3], x[:, :3])  # floor(7 / 2) columns stay


def test_a_fresh_coupling_does_nothing_or_shrinks():
    x = rows(100, 6)
    additive, affine = (
        kind(6, generator=None).double().initialize(x)
        for kind in (AdditiveCoupling, AffineCoupling)
    )
    assert torch.equal(additive(x)[0], x)
    sigma = 1 / (1 + math.exp(-2))
    assert_close(affine(x)[0][:, 3:], sigma * x[:, 3:])
    assert_close(affine(x)[1], torch.full((100,), 3 * math.log(sigma), dtype=torch.float64))
    assert math.log(sigma) == pytest.approx(-0.127, abs=5e-4)


def test_the_net_by_its_definition():
    x = rows(100, 4)
    net = CouplingNet(4, 6, hidden=5, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        net._fit(x)
    assert torch.equal(net(x), torch.zeros(100, 6, dtype=torch.float64))
    h = (x @ net.first - (x @ net.first).mean(0)) / ((x @ net.first).std(0, correction=0) + 1e-6)
    assert_close(net.norms[0](x @ net.first)[0], h)
    k = h.relu() @ net.second
    k = (k - k.mean(0)) / (k.std(0, correction=0) + 1e-6)
    g = torch.Generator().manual_seed(1)
    for weight in (net.last, net.bias, net.scale):
        weight.data.copy_(torch.randn(weight.shape, generator=g, dtype=torch.float64))
    assert_close(net(x), (k.relu() @ net.last + net.bias) * (3 * net.scale).exp())
    assert net.first.shape == (4, 5) and 0.02 < net.first.std() < 0.09
    wide = CouplingNet(400, 2, generator=torch.Generator().manual_seed(0))
    assert wide.first.std().item() == pytest.approx(0.05, rel=0.05) and wide.second.shape == (
        32,
        32,
    )


@pytest.mark.parametrize("kind", [AdditiveCoupling, AffineCoupling])
def test_the_norms_inside_start_from_the_half_that_stays(kind):
    x = rows(100, 7)
    part = kind(7, generator=torch.Generator().manual_seed(0)).double().initialize(x)
    inside = part.net.norms[0](x[:, :3] @ part.net.first)[0]
    assert_close(inside.mean(0), torch.zeros(32, dtype=torch.float64), rtol=0, atol=1e-8)
    assert_close(
        inside.std(0, correction=0), torch.ones(32, dtype=torch.float64), rtol=0, atol=1e-3
    )


def test_a_half_that_never_varies_is_no_reason_to_explode():
    x = torch.cat([torch.full((100, 3), 0.3), rows(100, 3).float()], dim=1)
    part = AdditiveCoupling(6, generator=torch.Generator().manual_seed(0)).initialize(x)
    part.net.last.data.fill_(1.0)
    near = x.clone()
    near[:, :3] += 0.01
    assert part(near)[0].isfinite().all() and part(near)[0].abs().max() < 100


@pytest.mark.parametrize("kind", [AdditiveCoupling, AffineCoupling])
def test_a_coupling_needs_two_columns(kind):
    with pytest.raises(ValueError, match="at least 2, got 1"):
        kind(1)
    assert kind(2).kept == 1


def test_norm_and_matrix_reach_the_gaussian_of_maximum_likelihood():
    g = torch.Generator().manual_seed(0)
    x = (
        torch.randn(300, 3, generator=g, dtype=torch.float64)
        @ torch.randn(3, 3, generator=g, dtype=torch.float64)
        + 1
    )
    norm, mix = ActNorm(3).double().initialize(x), InvertibleLinear(3, "dense", g).double()
    weights = [*norm.parameters(), *mix.parameters()]
    best = torch.optim.LBFGS(
        weights,
        lr=0.5,
        max_iter=300,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def nll(u):
        y, first = norm(u)
        z, second = mix(y)
        return z.square().sum(1) / 2 + 1.5 * math.log(2 * math.pi) - first - second

    def closure():
        best.zero_grad()
        (loss := nll(x).mean()).backward()
        return loss

    best.step(closure)
    gauss = torch.distributions.MultivariateNormal(x.mean(0), torch.cov(x.T, correction=0))
    fresh = torch.randn(20, 3, generator=g, dtype=torch.float64) * 3
    assert_close(nll(fresh), -gauss.log_prob(fresh), rtol=1e-5, atol=1e-5)
