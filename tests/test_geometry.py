"""Geometry of a vector cloud against the loops over all pairs."""
import math

import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose

from minbert.geometry import alignment, mean_cosine, uniformity


def cloud(n, d, seed=0, shift=0.5, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype) + shift


def pairs(n):
    return [(i, j) for i in range(n) for j in range(i)]


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


@pytest.mark.parametrize("n, d", [(2, 1), (2, 5), (3, 2), (9, 7), (40, 3)])
def test_equal_to_loops(n, d):
    x = cloud(n, d, seed=n)
    cosines = [cosine(x[i], x[j]) for i, j in pairs(n)]
    assert_allclose(mean_cosine(x), sum(cosines) / len(cosines), atol=1e-12)
    for t in (0.5, 2.0, 5.0):
        terms = [math.exp(-t * (2 - 2 * c)) for c in cosines]
        for chunk in (1, 2, 8, 100):
            assert_allclose(uniformity(x, t, chunk), math.log(sum(terms) / len(terms)), atol=1e-10)
    y = cloud(n, d, seed=99)
    assert_allclose(alignment(x, y), sum(2 - 2 * cosine(a, b) for a, b in zip(x, y)) / n, atol=1e-12)


def test_equal_to_the_authors_code():
    x, y = (F.normalize(cloud(60, 16, s), dim=1) for s in (1, 2))
    assert_allclose(uniformity(x), torch.pdist(x).pow(2).mul(-2).exp().mean().log().item())
    assert_allclose(alignment(x, y), (x - y).norm(dim=1).pow(2).mean().item())


def test_reference_values():
    directions = cloud(3000, 768, shift=0, dtype=torch.float32)
    assert_allclose(uniformity(directions), -3.990, atol=2e-3)
    assert_allclose(mean_cosine(directions), 0, atol=1e-3)
    point = torch.ones(700, 8)
    assert_allclose([uniformity(point), mean_cosine(point), alignment(point, 3 * point)], [0, 1, 0], atol=1e-6)
    assert_allclose(uniformity(torch.tensor([[1.0, 0], [-2, 0]])), -8)  # opposite: distance 2
    assert_allclose(alignment(point, -point), 4)


def test_length_and_order_do_not_matter():
    x, y = cloud(50, 6), cloud(50, 6, 1)
    scale = torch.rand(50, 1, dtype=torch.float64) + 0.1
    order = torch.randperm(50)
    for f in (mean_cosine, uniformity):
        assert_allclose(f((x * scale)[order]), f(x), atol=1e-10)
    assert_allclose(alignment((x * scale)[order], y[order]), alignment(x, y))
    assert_allclose(mean_cosine(x * 1e-30), mean_cosine(x))  # tiny is not zero


def test_half_precision_is_summed_in_double():
    x = cloud(9000, 4, shift=2, dtype=torch.float32).bfloat16()
    unit = F.normalize(x.double(), dim=1)
    assert_allclose(mean_cosine(x), ((unit.sum(0) ** 2).sum() - 9000) / (9000 * 8999), rtol=1e-9)
    assert_allclose(uniformity(x[:500]), uniformity(x[:500].double()), atol=1e-4)


def test_chunks_cross_the_border_of_mean_cosine():
    x = cloud(8193, 2)
    unit = F.normalize(x, dim=1)
    assert_allclose(mean_cosine(x), ((unit.sum(0) ** 2).sum() - 8193) / (8193 * 8192))


def test_duplicates_raise_uniformity():
    x = cloud(100, 8, shift=0)
    assert uniformity(torch.cat([x, x])) > uniformity(x)


@pytest.mark.parametrize("f", [mean_cosine, uniformity])
def test_zero_rows_are_dropped_and_counted(f):
    x = cloud(6, 3)
    holes = torch.cat([x[:2], torch.zeros(2, 3), x[2:]])
    with pytest.warns(RuntimeWarning, match="dropped 2 zero vectors of 8"):
        assert_allclose(f(holes), f(x))
    for few in (torch.ones(1, 3), torch.ones(0, 3)):
        with pytest.warns(RuntimeWarning, match=f"{len(few)} vectors"):
            assert math.isnan(f(few))
    with pytest.warns(RuntimeWarning):
        assert math.isnan(f(torch.zeros(4, 3)))


@pytest.mark.parametrize("f", [mean_cosine, uniformity, lambda x: alignment(x, x)])
def test_bad_input_is_refused(f):
    with pytest.raises(ValueError, match="NaN or infinity"):
        f(torch.tensor([[1.0, math.nan], [1, 1]]))
    with pytest.raises(ValueError, match=r"\(N, D\), got shape \(4,\)"):
        f(torch.ones(4))


def test_alignment_edges():
    with pytest.raises(ValueError, match="equal shapes"):
        alignment(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.warns(RuntimeWarning, match="0 pairs"):
        assert math.isnan(alignment(torch.ones(0, 2), torch.ones(0, 2)))
    assert_allclose(alignment(torch.zeros(1, 2), torch.ones(1, 2)), 2)  # cosine 0


@pytest.mark.parametrize("t", [0, -1])
def test_uniformity_refuses_t(t):
    with pytest.raises(ValueError, match="t > 0"):
        uniformity(torch.eye(3), t)


def test_sharp_t_does_not_underflow():
    x = torch.eye(3, dtype=torch.float64)  # all distances sqrt(2)
    assert_allclose(uniformity(x, t=2000.0), -4000)


def test_inputs_stay_as_they_were():
    x = cloud(20, 4).requires_grad_()
    copy = x.detach().clone()
    for value in (mean_cosine(x), uniformity(x), alignment(x, x)):
        assert type(value) is float
    assert torch.equal(x.detach(), copy)
