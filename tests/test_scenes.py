"""`minbert.explorers.figures`: bands, blurred histograms and turned clouds against scipy, numpy and
the chapters they come from.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d
from scipy.stats import norm, spearmanr
from torch.testing import assert_close

from minbert.core.figures import compact
from minbert.explorers.figures import (
    Shape,
    cosine_share,
    draw_anisotropy,
    draw_cosine_bands,
    grade_bands,
    measure,
    occupied,
    shape_table,
    turn,
)
from minbert.geometry import isoscore, mean_cosine, uniformity
from minbert.metrics import spearman
from minbert.sentence import safe_cosine
from minbert.whitening import NullTop, Whiten


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def blob(n, d, seed=0):
    g = torch.Generator().manual_seed(seed)
    mixed = torch.randn(n, d, generator=g) * torch.linspace(3, 0.5, d)
    return mixed @ torch.linalg.qr(torch.randn(d, d, generator=g)).Q + 2 * torch.randn(
        d, generator=g
    )


def test_every_pair_is_in_one_band():
    grades = np.random.default_rng(0).integers(0, 21, 500) / 4
    for low, high in [(2, 4), (2.5, 2.5), (0, 5), (-1, 7), (5, 5), (0.25, 4.75)]:
        bands = grade_bands(grades, (low, high))
        high_band, low_band, middle = bands.values()
        assert (sum(mask.astype(int) for mask in bands.values()) == 1).all()
        assert (high_band == (grades >= high)).all() and (
            low_band == ((grades < low) & (grades < high))
        ).all()
        assert (
            list(bands) == [f"grade ≥ {high:g}", f"grade < {low:g}", f"{low:g} to {high:g}"]
            and middle.dtype == bool
        )


@pytest.mark.parametrize(
    "edges, grades, message",
    [
        ((4, 2), [1.0], "low <= high"),
        ((math.nan, 2), [1.0], "low <= high"),
        ((1, 2), [math.nan], "finite"),
        ((1, 2), [], "filled"),
    ],
)
def test_bad_bands_are_refused(edges, grades, message):
    with pytest.raises(ValueError, match=message):
        grade_bands(grades, edges)


@pytest.mark.parametrize("smoothing", [0, 0.005, 0.03, 0.2, 3.0])
@pytest.mark.parametrize("low, high", [(-1, 1), (0.9, 1), (-1, -0.95), (0.3, 0.3)])
def test_shares_add_up(smoothing, low, high):
    cosine = np.random.default_rng(0).uniform(low, high, 321)
    share, edges = cosine_share(cosine, smoothing)
    assert (share >= 0).all() and edges[0] == -1 and edges[-1] == 1 and len(edges) == len(share) + 1
    assert (share * np.diff(edges)).sum() / 0.04 == pytest.approx(100)


def test_bars_are_a_histogram_and_the_blur_is_that_of_scipy():
    cosine = np.random.default_rng(0).uniform(-1, 1, 1000)
    np.testing.assert_allclose(cosine_share(cosine)[0], np.histogram(cosine, 50, (-1, 1))[0] / 10)
    for width in (0.02, 0.1, 0.2):
        fine = np.histogram(cosine, 400, (-1, 1))[0] / 10 * 8
        # reflects at the edge of the last bin
        theirs = gaussian_filter1d(fine, width / 0.005, mode="reflect", truncate=8)
        np.testing.assert_allclose(cosine_share(cosine, width)[0], theirs, rtol=1e-3, atol=1e-3)
    share, edges = cosine_share([0.0025, 0.0025], 0.05)
    middle = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(share, 4 * norm.pdf(middle, 0.0025, 0.05), rtol=1e-3, atol=1e-9)


def test_shares_of_rounded_empty_and_wrong_cosines():
    assert cosine_share([1 + 5e-5, -1 - 5e-5])[0][[0, -1]].tolist() == [50, 50]
    assert not cosine_share([])[0].any() and not cosine_share([], 0.1)[0].any()
    for bad, smoothing, message in [
        ([1.1], 0, r"\[-1, 1\]"),
        ([math.nan], 0, "finite"),
        ([0.5], -0.1, ">= 0"),
        ([0.5], math.nan, ">= 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            cosine_share(bad, smoothing)


def test_the_numbers_in_the_legend_are_those_of_scipy():
    rng = np.random.default_rng(1)
    grades = rng.integers(0, 6, 200).astype(float)
    cosine = (0.1 * grades + rng.normal(0, 0.2, 200)).clip(-1, 1)
    ax = draw_cosine_bands(torch.tensor(cosine), grades, (2, 4), 0.05, mark=0.25, title="mine")
    texts = [text.get_text() for text in ax.texts]
    bands = (grades < 2, (grades >= 2) & (grades < 4), grades >= 4)
    for text, mask in zip(texts, bands):
        assert text.endswith(
            f": {mask.sum()} pairs, mean {cosine[mask].mean():.2f}, ρ {spearmanr(cosine[mask], grades[mask])[0]:.2f}"
        )
    assert texts[3].strip() == f"your pair: 0.25, above {100 * (cosine < 0.25).mean():.0f} % of all"
    assert (
        ax.get_title()
        == f"mine: Spearman {spearmanr(cosine, grades)[0]:.3f}, mean cosine {cosine.mean():.2f}"
    )
    assert [*ax.lines[-1].get_xdata()] == [0.25, 0.25]
    shares = [cosine_share(cosine[mask], 0.05)[0] for mask in bands]
    for row, (line, share) in enumerate(zip(ax.lines, shares)):  # ridges on one scale
        np.testing.assert_allclose(
            line.get_ydata() - row, 0.62 * share / max(map(max, shares)), atol=1e-12
        )
    dots = ax.collections[-1].get_offsets()
    np.testing.assert_allclose(dots[:, 0], cosine)
    for row, mask in enumerate(bands):
        assert ((row - 0.27 < dots[mask, 1]) & (dots[mask, 1] < row - 0.05)).all()
    zero, top = ax.get_yticks()[:2]
    assert zero == 0 and float(ax.get_yticklabels()[1].get_text()) == pytest.approx(
        top / 0.62 * max(map(max, shares))
    )
    assert len(draw_cosine_bands(cosine, grades).lines) == 3  # nothing marked


def test_bars_are_drawn_from_edge_to_edge():
    ax = draw_cosine_bands([0.5, 0.5, -0.99], [5, 5, 0])
    x, y = ax.lines[2].get_data()
    assert x[0] == -1 and x[-1] == 1 and y.max() == pytest.approx(2.62)
    np.testing.assert_allclose(x[np.flatnonzero(y > 2)], [0.48, 0.52], atol=1e-9)


def test_the_axis_shows_what_is_occupied_and_a_pair_can_be_ringed():
    assert draw_cosine_bands([0.3, 0.5, 0.6], [5, 3, 0]).get_xlim() == (0.25, 0.625)
    assert draw_cosine_bands([0.3, 0.5, 0.6], [5, 3, 0], mark=-0.2).get_xlim() == (-0.25, 0.625)
    assert draw_cosine_bands([0.3, 0.5, 0.6], [5, 3, 0], limits=(0, 1)).get_xlim() == (0, 1)
    assert occupied([1.0, -1.0]) == (-1, 1) and occupied([0.5]) == (0.375, 0.625)
    ax = draw_cosine_bands([0.3, 0.5, 0.6], [5, 3, 0], chosen=1)
    dots, ring = (part.get_offsets() for part in ax.collections[-2:])
    np.testing.assert_allclose(ring, dots[1:2])


def test_a_band_that_is_empty_or_constant_is_drawn_without_a_warning(recwarn):
    ax = draw_cosine_bands([0.1, 0.2, 0.3], [5, 5, 0], (0, 5), 0.05)
    texts = [text.get_text() for text in ax.texts]
    assert texts == [
        "grade < 0: 0 pairs",
        "0 to 5: 1 pairs, mean 0.30, ρ –",
        "grade ≥ 5: 2 pairs, mean 0.15, ρ –",
    ]
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_bad_pairs_are_refused():
    for cosine, grades, message in [
        ([0.1], [1, 2], "one prediction per label"),
        ([math.nan, 0], [1, 2], "finite"),
        ([2, 0], [1, 2], r"\[-1, 1\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            draw_cosine_bands(cosine, grades)


@pytest.mark.parametrize("n, d", [(7, 3), (50, 8), (400, 33), (6, 20)])
def test_a_turned_cloud_is_that_of_numpy(n, d):
    x = blob(n, d)
    turned = turn(x)
    S = np.linalg.svd(x.double().numpy(), compute_uv=False)
    np.testing.assert_allclose(turned.values[: len(S)], S, rtol=1e-5, atol=1e-5)
    assert_close(turned.y @ turned.y.T, x @ x.T, rtol=1e-4, atol=1e-3)  # lengths and angles
    assert_close(turned.y.double().pow(2).sum(0).sqrt(), turned.values, rtol=1e-4, atol=1e-4)
    centred = x.double() - x.double().mean(0)
    assert_close(turned.covariance.diagonal().sum(), centred.square().sum() / n)
    assert (turned.y.double().pow(3).sum(0) > -1e-4).all()


@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_leaving_out_k_directions_equals_numpy_and_chapter_13(k):
    x = blob(90, 12)
    rows = torch.arange(0, 90, 2)
    left = turn(x, rows).y[:, k:]
    V = np.linalg.svd(x[rows].double().numpy(), full_matrices=False)[2][:k]
    theirs = x.double().numpy() @ (np.eye(12) - V.T @ V)
    np.testing.assert_allclose(left @ left.T, theirs @ theirs.T, rtol=1e-4, atol=1e-3)
    null = NullTop(12, k, center=False).fit(x[rows])(x)
    assert_close(left @ left.T, null @ null.T, rtol=1e-4, atol=1e-3)


def test_directions_of_equal_length_keep_their_order():
    x = blob(300, 16).double()
    white = Whiten(16).double().fit(x)(x)
    for k in (1, 5):
        assert_close(turn(white).y[:, k:].abs(), white[:, k:].float().abs())
    signs = turn(
        torch.tensor([[0, 2.0, 0], [0, -2, 0], [2, 0, 0], [-2, 0, 0], [0, 0, 3], [0, 0, -3]])
    )
    assert signs.values.tolist() == pytest.approx([18**0.5, 8**0.5, 8**0.5])
    assert_close(signs.y[4].abs(), torch.tensor([3.0, 0, 0]))
    assert_close(signs.y[2].abs(), torch.tensor([0.0, 2, 0]))


def test_the_axis_of_a_cone_points_to_the_cone():
    for seed in range(5):
        assert turn(blob(60, 5, seed) + 20).y[:, 0].mean() > 0


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_four_numbers_are_those_of_their_chapters(k):
    x, grades = blob(80, 10), np.random.default_rng(0).integers(0, 6, 40).astype(float)
    rows, sample = torch.arange(5, 80), torch.arange(7, 60)
    V = np.linalg.svd(x[rows].double().numpy(), full_matrices=False)[2][:k]
    left = torch.from_numpy(x.double().numpy() @ (np.eye(10) - V.T @ V))
    got = measure(turn(x, rows), k, grades, rows, sample)
    expected = Shape(
        spearman(safe_cosine(left[:40], left[40:]), grades),
        mean_cosine(left[rows]),
        uniformity(left[sample]),
        isoscore(left[rows]),
    )
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_bad_clouds_are_refused():
    for bad in (torch.full((4, 3), math.nan), torch.ones(4)):
        with pytest.raises(ValueError, match="finite|shape"):
            turn(bad)
    outside = torch.randn(6, 3)
    outside[5, 1] = math.nan
    with pytest.raises(ValueError, match="finite numbers in vectors"):
        turn(outside, torch.arange(4))
    cloud, rows = turn(torch.randn(8, 3)), torch.arange(8)
    for grades, k in ((range(3), 0), (range(4), 3), (range(4), -1)):
        with pytest.raises(ValueError, match=r"rows and k in \[0, 3\)"):
            measure(cloud, k, list(grades), rows, rows)
    for points in (np.zeros((4, 2)), np.zeros(3), np.full((4, 3), math.nan)):
        with pytest.raises(ValueError, match="points|axes|finite"):
            draw_anisotropy({"a": points}, {"a": [1.0]}, {})
    with pytest.raises(ValueError, match="at least one label"):
        draw_anisotropy({}, {"a": [1.0]}, {})


def test_the_picture_of_a_cloud_shows_what_it_was_given():
    points = {"near": np.random.default_rng(0).normal(size=(30, 3)), "far": np.array([[4.0, 5, 6]])}
    shapes = {
        "before": Shape(0.1234, -0.00001, -3.2, 0.5),
        "now, top 3 removed": Shape(0.7, 0.2, -1.0, 0.9),
    }
    figure = draw_anisotropy(
        points,
        {"before": [4.0, 2, 1], "now, top 3 removed": [1.0, 1]},
        shapes,
        azimuth=30,
        elevation=-10,
        first=4,
    )
    flat, decay, body = figure.axes
    assert (flat.get_xlabel(), flat.get_ylabel()) == ("direction 4", "direction 5")
    assert (body.get_xlabel(), body.get_ylabel(), body.get_zlabel()) == (
        "direction 4",
        "direction 5",
        "direction 6",
    )
    assert (body.azim, body.elev) == (30, -10)
    for points2, scatter in zip(points.values(), flat.collections):
        np.testing.assert_allclose(scatter.get_offsets(), points2[:, :2])
    for points3, scatter in zip(points.values(), body.collections):
        np.testing.assert_allclose(np.transpose(scatter._offsets3d), points3)
    spans = [np.ptp(getattr(body, f"get_{axis}lim")()) for axis in "xyz"]
    assert spans == pytest.approx([spans[0]] * 3)  # one scale
    assert [text.get_text() for text in decay.get_legend().get_texts()] == list(shapes)
    np.testing.assert_allclose(decay.lines[0].get_ydata(), [1, 0.5, 0.25])
    assert [ax.get_title() for ax in (flat, body, decay)] == [
        "mean cosine 0.20, uniformity -1.00",
        "IsoScore 0.900",
        "Spearman 0.700",
    ]
    assert shape_table(shapes).split("\n") == [
        "before: Spearman 0.123, mean cosine 0.000, uniformity -3.200, IsoScore 0.500",
        "now, top 3 removed: Spearman 0.700, mean cosine 0.200, uniformity -1.000, IsoScore 0.900",
    ]
    with compact(narrow=True):
        flat, decay, body = draw_anisotropy(points, {"before": [4.0, 2, 1]}, {}).axes
    # on a phone one above the other
    assert flat.get_position().y0 > body.get_position().y0 > decay.get_position().y0
