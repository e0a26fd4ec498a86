"""Linear layers with 8-bit integer weights."""

from __future__ import annotations

__all__ = ["IntegerProduct", "exact_integers"]

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

# float32 has no fractions beyond 2^23: added to a small number, it leaves that number, rounded, in
# the lowest bits
ROUNDER = 1.5 * 2.0**23
AT_A_TIME = 2**16  # numbers between two steps of work on them: so many stay near the processor


def in_steps(
    x: Tensor,  # (N, K) float32
    low: float,  # its lowest number
    high: float,  # its highest
    # q uint8 of the same shape, step, zero: x is about step * (q - zero)
) -> tuple[Tensor, float, int]:
    """Cut the range of a tensor, 0 included, into 254 steps, the whole tensor alike.

    254 of 255, and a zero rounded up: so the ends, rounded, never leave uint8, where they would
    come in again at the other end.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / 254 or 1.0
    zero = math.ceil(-low / step)
    cut = torch.empty(x.shape, dtype=torch.uint8)
    rows = max(1, AT_A_TIME // x.shape[-1])
    base = torch.tensor(ROUNDER + zero)
    for part, place in zip(x.split(rows), cut.split(rows)):
        place.copy_(torch.add(base, part, alpha=1 / step).view(torch.int32))
    return cut, step, zero


def wins_a_bit(
    weight: Tensor,  # (M, K)
    gain: Tensor,  # (K,) of a layer norm
    shift: Tensor,  # (K,)
) -> bool:
    """Tell whether z, with x = gain z + shift, halves the error of x in 8 bits or better: then a
    few loud columns hide the rest of x.

    The error goes with the range of the columns, at four standard deviations, times the length of
    the weights they meet.
    """
    if not gain.abs().min() > 1e-3 * gain.abs().max():
        return False  # what comes through such a column cannot be read back from x
    ends = torch.cat([shift + 4 * gain.abs(), shift - 4 * gain.abs()])
    return bool((ends.max() - ends.min()) * weight.norm() > 2 * 8 * (weight * gain).norm())


class IntegerProduct:
    """x W^T + b for float32 x in integers: W in steps of its own for each row, x in steps of one
    size for all of it, found anew each time.

    Where x comes from a layer norm with a few loud columns, it is undone for the product: its gain
    goes into W and its shift into b. Differs from dynamic quantization as libraries have it by that
    alone.
    """

    def __init__(
        self,
        weight: Tensor,  # (M, K) float32, left alone
        bias: Tensor | None,  # (M,) float32
        # gain and shift (K,) of the layer norm that x comes from
        norm: tuple[Tensor, Tensor] | None = None,
    ):
        self.undo, bias = None, weight.new_zeros(len(weight)) if bias is None else bias
        if norm is not None and wins_a_bit(weight, *norm):
            gain, shift = norm
            self.undo, weight, bias = (
                (-shift / gain, 1 / gain),
                weight * gain,
                bias + F.linear(shift, weight),
            )
        self.bias, self.rows = bias, len(weight)
        self.steps = weight.abs().amax(1).clamp_min(torch.finfo(weight.dtype).tiny) / 127
        self.zeros = torch.zeros(self.rows, dtype=torch.int32)
        self.weight = torch.ops.onednn.qlinear_prepack(
            (weight / self.steps[:, None]).round().to(torch.int8), [1024, weight.shape[1]]
        )

    def __call__(self, x: Tensor) -> Tensor:  # (..., K) -> (..., M), both float32
        """Give the product. Where a number of x is not finite, none of the product is."""
        rows = (
            x.flatten(0, -2)
            if self.undo is None
            else torch.addcmul(self.undo[0], x.flatten(0, -2), self.undo[1])
        )
        ends = [float(end) for end in torch.aminmax(rows)]
        if not all(map(math.isfinite, ends)):
            return x.new_full((*x.shape[:-1], self.rows), math.nan)
        cut, step, zero = in_steps(rows, *ends)
        whole = torch.ops.onednn.qlinear_pointwise(
            cut,
            step,
            zero,
            self.weight,
            self.steps,
            self.zeros,
            self.bias,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return whole.unflatten(0, x.shape[:-1])


@cache
def exact_integers() -> bool:
    """Tell whether this processor adds products of 8-bit integers fast and without overflow; older
    ones stop at 2^15 for two neighbours.
    """
    if not (
        getattr(torch.cpu, "_is_vnni_supported", bool)()
        and hasattr(torch.ops.onednn, "qlinear_pointwise")
    ):
        return False
    ones = torch.ones(64, 64)
    return bool((IntegerProduct(ones, ones[0])(ones) - 65).abs().max() < 1)
