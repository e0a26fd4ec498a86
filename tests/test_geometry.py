"""Geometry of a vector cloud against the loops over all pairs."""

import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose

from minbert.geometry import (
    alignment,
    effective_rank,
    gram,
    isoscore,
    mean_cosine,
    partition_isotropy,
    singular_spectrum,
    uniformity,
    uniformity_labelled,
)


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
    assert_allclose(
        alignment(x, y), sum(2 - 2 * cosine(a, b) for a, b in zip(x, y)) / n, atol=1e-12
    )


def test_equal_to_the_authors_code():
    x, y = (F.normalize(cloud(60, 16, s), dim=1) for s in (1, 2))
    assert_allclose(uniformity(x), torch.pdist(x).pow(2).mul(-2).exp().mean().log().item())
    assert_allclose(alignment(x, y), (x - y).norm(dim=1).pow(2).mean().item())


def test_reference_values():
    directions = cloud(3000, 768, shift=0, dtype=torch.float32)
    assert_allclose(uniformity(directions), -3.990, atol=2e-3)
    assert_allclose(mean_cosine(directions), 0, atol=1e-3)
    point = torch.ones(700, 8)
    assert_allclose(
        [uniformity(point), mean_cosine(point), alignment(point, 3 * point)], [0, 1, 0], atol=1e-6
    )
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


@pytest.mark.parametrize("scale", [1e-24, 1e20])
def test_uniformity_of_lengths_whose_squares_single_precision_cannot_hold(scale):
    assert_allclose(uniformity(scale * torch.eye(3)), -4.0)


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


# --- spectrum, IsoScore, partition isotropy


def iso_by_steps(x):
    """The seven steps of Rudman et al. (2022), algorithm 1, as printed."""
    n = x.shape[1]
    # 1 to 3: PCA, covariance, its diagonal
    values = np.linalg.eigvalsh(np.cov(np.asarray(x, dtype=float), rowvar=False))
    hat = np.sqrt(n) * values / np.linalg.norm(values)  # 4: normalise
    # 5: isotropy defect
    defect = np.linalg.norm(hat - 1) / np.sqrt(2 * (n - np.sqrt(n)))
    # 6: share of dimensions used
    used = (n - defect**2 * (n - np.sqrt(n))) ** 2 / n**2
    return (n * used - 1) / (n - 1)  # 7: rescale


@pytest.mark.parametrize("n, d", [(5, 2), (40, 7), (7, 20), (300, 33)])
def test_isoscore_is_the_papers_algorithm(n, d):
    x = cloud(n, d, seed=d, shift=3) * torch.arange(1.0, d + 1, dtype=torch.float64)
    assert_allclose(isoscore(x), iso_by_steps(x), atol=1e-10)
    assert_allclose(isoscore(5 * x - 7), isoscore(x), atol=1e-9)
    rotation = torch.linalg.qr(cloud(d, d, seed=1))[0]
    assert_allclose(isoscore(x @ rotation), isoscore(x), atol=1e-9)


@pytest.mark.parametrize("n, d", [(5, 2), (40, 7), (7, 20), (300, 33)])
@pytest.mark.parametrize("center", [True, False])
def test_spectrum_is_that_of_the_svd(n, d, center):
    x = cloud(n, d, seed=n, shift=2)
    values = np.linalg.svd((x - x.mean(0) * center).numpy(), compute_uv=False)
    values = np.concatenate([values, np.zeros(max(d - n, 0))])
    assert_allclose(singular_spectrum(x, center), values / values[0], atol=1e-7)
    p = values[values > 1e-7 * values[0]] / values.sum()
    assert_allclose(effective_rank(x, center), math.exp(-(p * np.log(p)).sum()), rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_partition_isotropy_is_the_loop_over_axes(chunk):
    x = cloud(60, 5, shift=0.3)
    _, axes = np.linalg.eigh((x.T @ x).numpy())
    z = [np.exp(sign * x.numpy() @ axes[:, k]).sum() for k in range(5) for sign in (1, -1)]
    assert_allclose(partition_isotropy(x, chunk), min(z) / max(z))
    # no overflow: logarithms throughout
    assert 0 <= partition_isotropy(1e4 * x) < 1e-300
    ring = torch.stack([torch.arange(8) * math.pi / 4, torch.zeros(8)], 1)
    ring = torch.stack([ring[:, 0].cos(), ring[:, 0].sin()], 1)
    assert_allclose(partition_isotropy(ring), 1, rtol=1e-3)


def test_gram_needs_no_copy_and_no_order():
    x = cloud(1000, 4, shift=100, dtype=torch.float32)
    exact = x.double() - x.double().mean(0)
    for chunk in (1, 64, 1000, 8192):
        assert_allclose(gram(x, chunk=chunk), exact.T @ exact, rtol=1e-9)
        assert_allclose(gram(x, False, chunk), x.double().T @ x.double(), rtol=1e-12)
    assert gram(x).dtype == torch.float64 and torch.equal(
        x, cloud(1000, 4, shift=100, dtype=torch.float32)
    )


def test_labelled_uniformity_and_its_bound():
    u, v = cloud(30, 6), cloud(30, 6, 1)
    distances = (F.normalize(u, dim=1) - F.normalize(v, dim=1)).square().sum(1)
    for t in (0.5, 2.0):
        assert_allclose(uniformity_labelled(u, v, t), math.log((-t * distances).exp().mean()))
    assert uniformity_labelled(u, v) >= math.log(0.5) - 2 * alignment(u[:15], v[:15])
    with pytest.raises(ValueError, match="t > 0"):
        uniformity_labelled(u, v, 0)
    with pytest.raises(ValueError, match="equal shapes"):
        uniformity_labelled(u, v[1:])


@pytest.mark.parametrize("n, d", [(50, 3), (300, 20), (40, 64)])
def test_isoscore_of_the_authors_package(n, d):
    from IsoScore.IsoScore import IsoScore

    x = torch.randn(
        n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64
    ) * torch.arange(1, d + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it copies a tensor into a tensor
        theirs = IsoScore(x)
    assert_allclose(isoscore(x), theirs, atol=1e-6)  # it counts D in single precision


@pytest.mark.parametrize(
    "f", [isoscore, effective_rank, partition_isotropy, lambda x: singular_spectrum(x)[0].item()]
)
def test_clouds_without_a_shape(f):
    with pytest.raises(ValueError, match="finite vectors"):
        f(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ValueError, match=r"\(N, D\)"):
        f(torch.ones(3))
    with pytest.warns(RuntimeWarning, match="undefined"):
        assert math.isnan(f(torch.zeros(0, 3)))
    if f is not partition_isotropy:
        with pytest.warns(RuntimeWarning, match="all alike"):
            assert math.isnan(f(torch.full((4, 3), 0.5)))
        for rows in (3, 7, 33):  # their mean is not them to the last bit
            with pytest.warns(RuntimeWarning, match="all alike"):
                assert math.isnan(f(cloud(1, 8).expand(rows, 8)))


def test_isoscore_of_one_column_is_undefined():
    with pytest.warns(RuntimeWarning, match="width 1"):
        assert math.isnan(isoscore(torch.arange(5.0)[:, None]))
