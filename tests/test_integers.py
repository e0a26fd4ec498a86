"""Products of 8-bit integers: as near as their steps allow, whatever the range, and a norm that is
undone where it hides most of its input.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from minbert.encoding.int8_linear import (
    AT_A_TIME,
    IntegerProduct,
    exact_integers,
    in_steps,
    wins_a_bit,
)

# not asked of `exact_integers`: a product that is wrong would skip its tests
HERE = torch.cpu._is_vnni_supported() and "ONEDNN_MAX_CPU_ISA" not in os.environ
needs_integers = pytest.mark.skipif(
    not HERE,
    reason="this processor, or oneDNN as it is set, has no VNNI: tests/test_products.py shows that it is refused",
)


@needs_integers
def test_they_are_to_be_had_here():
    assert exact_integers()


def drawn(*shape, seed=0, spread=1.0, centre=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * spread + centre


@pytest.mark.parametrize("centre", [-300.0, -3.0, -0.1, 0.0, 0.1, 3.0, 300.0])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1.0, 40.0])
def test_every_number_is_within_half_a_step(spread, centre):
    """At the ends as well: 255 and a half would come in again as 0. More rows than are worked on at
    a time.
    """
    for seed in range(20):
        x = drawn(2 * AT_A_TIME // 40 + 3, 40, seed=seed, spread=spread, centre=centre)
        cut, step, zero = in_steps(x, x.min().item(), x.max().item())
        assert cut.dtype == torch.uint8 and cut.shape == x.shape and 0 <= zero <= 255
        range_with_0 = max(x.max().item(), 0) - min(x.min().item(), 0)
        assert step == pytest.approx(range_with_0 / 254) or range_with_0 == 0
        assert ((step * (cut.double() - zero) - x).abs() <= 0.501 * step).all()


@needs_integers
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (1, 1)])
def test_a_product_is_as_near_as_its_steps_allow(shape, norm):
    """|error| <= sum over k of |x| s_w / 2 + |w| s_x / 2 + s_w s_x / 4, with s the two steps: for every number of the product."""
    K, M = 96, 64
    weight, bias, z = drawn(M, K, seed=1), drawn(M, seed=2), drawn(*shape, K, seed=3)
    gain, shift = torch.ones(K), torch.zeros(K)
    if norm:
        gain[5], shift[9] = -40.0, 30.0
    x = z * gain + shift
    product = IntegerProduct(weight, bias, (gain, shift) if norm else None)
    assert (product.undo is not None) == norm
    seen, met = (z, weight * gain) if norm else (x, weight)
    s_x = (max(seen.max().item(), 0) - min(seen.min().item(), 0)) / 254
    s_w = met.abs().amax(1).double() / 127
    bound = (
        seen.double().abs().sum(-1, keepdim=True) * s_w / 2
        + met.double().abs().sum(1) * s_x / 2
        + K * s_w * s_x / 4
    )
    exact = F.linear(x.double(), weight.double(), bias.double())
    found = product(x)
    assert found.dtype == torch.float32 and found.shape == (*shape, M)
    error = (found - exact).abs()
    assert (error <= 1.01 * bound + 1e-5 * exact.abs().max()).all()
    assert error.pow(2).mean().sqrt() < 0.05 * exact.std(), (
        "the bound is for the worst case; by and large two percent"
    )


@needs_integers
def test_loud_columns_hide_nothing():
    """One column of forty times the rest: undone, the others are seen; left in, they lose most of
    their digits.
    """
    K = 128
    weight = drawn(32, K, seed=1)
    z = drawn(200, K, seed=2)
    gain = torch.ones(K)
    shift = torch.zeros(K)
    weight[:, 7] /= 40  # as trained models have it: what is loud is read softly
    gain[7] = 40.0
    x, exact = z * gain, F.linear(z * gain, weight)
    error = {
        undone: (
            IntegerProduct(weight, torch.zeros(32), (gain, shift) if undone else None)(x) - exact
        )
        .square()
        .mean()
        .sqrt()
        .item()
        for undone in (False, True)
    }
    assert error[True] < error[False] / 5


def test_a_norm_is_undone_only_where_that_wins_a_bit():
    weight, even = drawn(16, 32, seed=1), torch.ones(32)
    assert not wins_a_bit(weight, even, torch.zeros(32))
    loud = even.clone()
    loud[3] = 1.9
    assert not wins_a_bit(weight, loud, torch.zeros(32)), "less than a bit"
    loud[3] = 20.0
    assert wins_a_bit(weight, loud, torch.zeros(32))
    assert not wins_a_bit(weight * (loud > 1), loud, torch.zeros(32)), (
        "where the loud column alone is heard, nothing is hidden"
    )
    assert wins_a_bit(weight, even, loud), "a shift widens the range, too"
    loud[4] = 0.0
    assert not wins_a_bit(weight, loud, torch.zeros(32)), (
        "nothing can be read back through a gain of 0"
    )


@needs_integers
def test_the_largest_numbers_are_exact():
    """They stand at the ends of both ranges, and what is beyond an end is lost."""
    for sign in (1.0, -1.0):
        assert_close(
            IntegerProduct(sign * torch.eye(16), torch.zeros(16))(torch.eye(16)),
            sign * torch.eye(16),
            rtol=0,
            atol=1e-6,
        )


@needs_integers
def test_what_is_not_finite_stays_so_and_zeros_are_fine():
    weight, bias, x = drawn(8, 16), drawn(8, seed=1), drawn(5, 16, seed=2)
    product = IntegerProduct(weight, bias)
    for odd in (float("nan"), float("inf")):
        x[2, 3] = odd
        assert product(x).isnan().all()
    assert torch.equal(product(torch.zeros(2, 16)), bias.expand(2, 8))
    assert torch.equal(
        IntegerProduct(weight, None)(torch.ones(2, 16)),
        IntegerProduct(weight, torch.zeros(8))(torch.ones(2, 16)),
    )
    assert torch.equal(
        IntegerProduct(torch.zeros(8, 16), bias)(torch.ones(2, 16)), bias.expand(2, 8)
    )
