"""Chapter 15, first half: calibrations against numpy, scikit-learn and their definitions."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch.testing import assert_close

from minbert.core.module_io import load_module, save_module
from minbert.metrics import spearman
from minbert.sentence import SentenceEncoder, safe_cosine
from minbert.whitening import (
    Calibration,
    NullTop,
    Standardize,
    StandardizeNullTop,
    Whiten,
    score_top,
)

KINDS = {
    "standardize": lambda d: Standardize(d),
    "null": lambda d: NullTop(d, 2),
    "raw": lambda d: NullTop(d, 1, center=False),
    "both": lambda d: StandardizeNullTop(d, 2),
    "whiten": lambda d: Whiten(d),
    "whiten 3": lambda d: Whiten(d, k=3, floor=1e-3),
}


def cloud(n, d, seed=0):
    g = torch.Generator().manual_seed(seed)
    mixed = torch.randn(n, d, generator=g, dtype=torch.float64) @ torch.randn(
        d, d, generator=g, dtype=torch.float64
    )
    return mixed + 5 * torch.randn(d, generator=g, dtype=torch.float64)


def double(kind, d):
    return KINDS[kind](d).double()


@pytest.mark.parametrize("n, d", [(9, 4), (50, 7), (400, 33)])
def test_standardize_is_that_of_scikit_learn(n, d):
    x, y = cloud(n, d), cloud(5, d, 1)
    assert_close(
        double("standardize", d).fit(x)(y),
        torch.from_numpy(StandardScaler().fit(x.numpy()).transform(y.numpy())),
    )


@pytest.mark.parametrize("n, d", [(50, 7), (400, 33)])
def test_whiten_is_that_of_scikit_learn_up_to_signs(n, d):
    x, y = cloud(n, d), cloud(5, d, 1)
    for k in (1, 3, d):
        theirs = PCA(whiten=True, n_components=k).fit(x.numpy()).transform(y.numpy()) * math.sqrt(
            n / (n - 1)
        )
        ours = Whiten(d, k=k, floor=1e-12).double().fit(x)(y)
        assert ours.shape == (5, k)
        assert_close(ours.abs(), torch.from_numpy(np.abs(theirs)), rtol=1e-7, atol=1e-7)
    white = Whiten(d, floor=1e-12).double().fit(x)(x)
    assert_close(white.T @ white / n, torch.eye(d, dtype=torch.float64))
    assert_close(white.mean(0), torch.zeros(d, dtype=torch.float64))


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 7])
def test_null_top_is_the_projection_of_the_svd(center, k):
    x, y = cloud(60, 7), cloud(5, 7, 1)
    mean = x.mean(0) * center
    v = np.linalg.svd((x - mean).numpy(), full_matrices=False)[2][:k]
    expected = (y - mean).numpy() - (y - mean).numpy() @ v.T @ v
    got = NullTop(7, k, center).double().fit(x)(y)
    assert_close(got, torch.from_numpy(expected))
    assert np.linalg.matrix_rank(got.numpy(), tol=1e-8) <= 7 - k


def test_standardize_and_null_top_is_one_after_the_other():
    x, y = cloud(60, 7), cloud(5, 7, 1)
    first = Standardize(7).double().fit(x)
    second = NullTop(7, 3).double().fit(first(x))
    assert_close(StandardizeNullTop(7, 3).double().fit(x)(y), second(first(y)))


def test_the_floor_holds_small_directions_down():
    x = cloud(300, 5)
    x[:, 4] = 1e-6 * x[:, 4]  # a direction with hardly any spread
    spreads = Whiten(5, floor=1e-4).double().fit(x)(x).std(0, correction=0)
    assert_close(spreads[:4], torch.ones(4, dtype=torch.float64), rtol=0.2, atol=0)
    assert spreads[4] < 1e-2
    # a share of the largest, whatever the unit
    far = Whiten(5, floor=1e-4).double().fit(1e4 * x)(1e4 * x)
    assert_close(far.std(0, correction=0), spreads)
    few = Whiten(33).double().fit(cloud(10, 33))  # fewer sentences than columns
    assert few(cloud(10, 33)).isfinite().all() and few(cloud(10, 33)).abs().max() < 1e4


@pytest.mark.parametrize("kind", KINDS)
def test_fitting_leaves_its_input_alone_and_returns_itself(kind):
    x = cloud(40, 6).float().requires_grad_()
    before, f = x.detach().clone(), KINDS[kind](6)
    assert torch.equal(f(x)[:, :3], x[:, :3])  # unfitted: the identity, cut to the width asked for
    assert (
        f.fit(x) is f
        and torch.equal(x, before)
        and not f.mean.requires_grad
        and f.matrix.dtype == torch.float32
    )
    again = KINDS[kind](6).fit(x)
    assert torch.equal(f.matrix, again.matrix)
    f(x).sum().backward()  # a head or a loss behind it can learn
    assert x.grad is not None and f(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_the_sentences_does_not_count_and_the_cosine_forgets_size(kind):
    x, y = cloud(40, 6), cloud(9, 6, 1)
    f, shuffled = double(kind, 6).fit(x), double(kind, 6).fit(x.flip(0))
    cosine = safe_cosine(f(y[:4]), f(y[4:8]))
    assert_close(safe_cosine(shuffled(y[:4]), shuffled(y[4:8])), cosine)
    scaled = double(kind, 6).fit(7 * x)
    assert_close(safe_cosine(scaled(7 * y[:4]), scaled(7 * y[4:8])), cosine)


def test_constant_columns_and_rows():
    x = torch.cat([cloud(40, 3).float(), torch.full((40, 1), 0.1), torch.zeros(40, 1)], dim=1)
    for kind in KINDS:
        z = KINDS[kind](5).fit(x)(x)
        assert z.isfinite().all(), kind
    assert (Standardize(5).fit(x)(x)[:, 3:] == 0).all()
    for n in (40, 43, 999):  # sums of 1/3 are rounded, each count in its own way
        for value in (1 / 3, 1e6 / 7, -1e-9 / 3):
            column = torch.full((n, 1), value, dtype=torch.float64)
            y = torch.cat([cloud(n, 3), column], dim=1)
            assert (Standardize(4).double().fit(y)(y)[:, 3] == 0).all(), (n, value)
            with pytest.raises(ValueError, match="equal ones"):
                Standardize(2).double().fit(column.expand(-1, 2))
    # nothing left: cosine 0
    assert safe_cosine(NullTop(5, 5).fit(x)(x[:2]).mul(0), x[:2]).eq(0).all()


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.ones(1, 4), "at least 2 vectors of width 4"),
        (torch.ones(5, 3), "width 4"),
        (torch.ones(4), "width 4"),
        (torch.full((5, 4), 0.1), "differ, got 5 equal ones"),
        (torch.tensor([[1.0, math.nan, 0, 0]] * 3), "finite vectors"),
    ],
)
@pytest.mark.parametrize("kind", [Standardize, NullTop, Whiten, StandardizeNullTop])
def test_what_cannot_be_fitted_is_refused_and_changes_nothing(kind, x, message):
    f = kind(4).fit(cloud(20, 4))
    before = {name: w.clone() for name, w in f.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        f.fit(x)
    assert all(torch.equal(before[name], w) for name, w in f.state_dict().items())


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: NullTop(4, 5), r"\[0, 4\], got 5"),
        (lambda: NullTop(4, -1), "got -1"),
        (lambda: StandardizeNullTop(4, 5), "got 5"),
        (lambda: Whiten(4, k=5), "got 5"),
        (lambda: Whiten(4, k=0), "got 0"),
        (lambda: Whiten(4, floor=0), r"\(0, 1\], got None and 0"),
        (lambda: Whiten(4, floor=2), "got None and 2"),
    ],
)
def test_settings_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind, tmp_path):
    x = cloud(40, 6).float()
    f = KINDS[kind](6).fit(x)
    save_module(f, tmp_path)
    again = load_module(tmp_path)
    assert (
        type(again) is type(f)
        and again.init_kwargs() == f.init_kwargs()
        and isinstance(again, Calibration)
    )
    assert torch.equal(again(x), f(x))
    for name in ("k", "center", "floor", "out_features"):
        assert getattr(again, name, None) == getattr(f, name, None), name


def test_behind_an_encoder(tmp_path):
    from sentence_transformers import SentenceTransformer

    texts = ["A dog barks.", "The market fell.", "He sings a song.", "", "Oil became cheaper."]
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    encoder.transform = Whiten(256, k=3).fit(encoder.encode(texts))
    vectors = encoder.encode(texts)
    assert vectors.shape == (5, 3) and encoder.width == 3
    encoder.save_pretrained(tmp_path)
    assert_close(SentenceEncoder.from_pretrained(tmp_path, device="cpu").encode(texts), vectors)
    theirs = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True).encode(
        texts, convert_to_tensor=True
    )
    assert_close(theirs, vectors, rtol=1e-4, atol=1e-4)


def test_score_top_fits_on_x_and_scores_the_pairs():
    x, u, v = cloud(60, 6), cloud(20, 6, 1), cloud(20, 6, 2)
    grades = iter(range(20))  # an iterable is enough
    scores = score_top(NullTop, x, u, v, grades, ks=(1, 4))
    assert list(scores) == [1, 4]
    for k, score in scores.items():
        f = NullTop(6, k).fit(x)
        assert score == pytest.approx(spearman(safe_cosine(f(u), f(v)), range(20)), abs=1e-6)
