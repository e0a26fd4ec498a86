"""Random search for adversarial perturbations: points on a ball, the outputs of a task head at many
perturbed vectors, and the worst of these perturbations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .heads import CosineHead, LinearHead, LinearPlusCosine, PairLinear
from .losses import ClippedCosineHead, Head

__all__ = ["ball_points", "outputs_at", "worst_shifts"]


def ball_points(
    n: int,  # how many points
    width: int,  # D
    radius: float = 1.0,  # in units of the vectors
    p: float = 2.0,  # order of the norm, 1 or more; math.inf for the largest coordinate
    where: str = "surface",  # "volume": uniform in the ball
    generator: torch.Generator | None = None,  # None: torch's own
    device: torch.device | str = "cpu",  # without a generator; else the generator's
    dtype: torch.dtype = torch.float32,  # of the points
) -> Tensor:  # (n, D), p-norm `radius` each, or less inside
    """Draw random points on, or in, a ball of the p-norm.

    x = r y / |y|_p with y_i ~ exp(-|y_i|^p), times U^(1/D) for "volume"
    Paper: Barthe et al. (2005), theorem 1: uniform in the ball, cone measure on its surface.
    Raises ValueError for p < 1, a radius that is not positive and finite, or another `where`.
    """
    if not p >= 1 or not 0 < radius < math.inf or where not in ("surface", "volume"):
        raise ValueError(
            "expected p >= 1, radius > 0 and finite, where 'surface' or 'volume', "
            f"got {p}, {radius}, {where!r}"
        )
    device = device if generator is None else generator.device
    y = _exponential_power(torch.empty(n, width, dtype=dtype, device=device), p, generator)
    x = radius * y / torch.linalg.vector_norm(y, p, -1, keepdim=True)
    if where == "volume":
        share = torch.rand(n, 1, generator=generator, dtype=dtype, device=device)
        x = x * share ** (1 / width)
    return x


def _exponential_power(y, p, generator):
    """Fill y with draws of density exp(-|y|^p), up to a scale: normal for 2, uniform for infinity."""
    if p == 2:
        return y.normal_(generator=generator)
    if p == math.inf:
        return y.uniform_(-1, 1, generator=generator)
    shape = torch.full_like(y, 1 / p, dtype=torch.float64)
    size = torch._standard_gamma(shape, generator=generator) ** (1 / p)
    sign = torch.randint(0, 2, y.shape, generator=generator, device=y.device) * 2 - 1
    return (size * sign).to(y.dtype)


# Heads whose outputs at all n perturbed vectors follow from those at the vectors and at the
# perturbations: n C numbers for a linear layer, instead of the B n D of copies.
_WITHOUT_COPIES = (LinearHead, PairLinear, CosineHead, LinearPlusCosine, ClippedCosineHead)


def outputs_at(
    head: Head,  # in eval mode
    vectors: tuple[Tensor, ...],  # (B, D) each, one or two
    shifts: tuple[Tensor, ...],  # (n, D) each, as many
) -> Tensor:  # (B, n) or (B, n, C)
    """Compute the outputs of a head at every vector plus every shift.

    W (x + d) + b = (W x + b) + W d, and cosines from dot products; copies only for other heads.
    """
    if type(head) in (LinearHead, PairLinear):
        return head(*vectors)[:, None] + _linear_part(head, shifts)
    if type(head) is CosineHead:
        return head.scale * _cosines_at(*vectors, *shifts) + head.bias
    if type(head) is LinearPlusCosine:
        # (B, 1) + (n,)
        linear = head.linear(torch.cat(vectors, -1)) + _linear_part(head, shifts)
        return linear + head.cosine_weight * _cosines_at(*vectors, *shifts)
    if type(head) is ClippedCosineHead:
        cosine = _cosines_at(*(head.linear(x) for x in (*vectors, *shifts)))
        return cosine.clamp(min=head.threshold) if head.clip_positives else cosine
    moved = [(x[:, None] + d).flatten(0, 1) for x, d in zip(vectors, shifts)]  # (B n, D)
    return head(*moved).unflatten(0, (len(vectors[0]), len(shifts[0])))


def _linear_part(head, shifts):
    """W d of a linear layer, without its bias: (n, C), or (n,) for one output."""
    moved = sum(d @ w.T for d, w in zip(shifts, head.linear.weight.chunk(len(shifts), 1)))
    return moved[:, 0] if head.pair else moved


def _cosines_at(u, v, du, dv):
    """cos(u + du, v + dv), (B, n); in float64, because the terms nearly cancel."""
    u, v, du, dv = (x.double() for x in (u, v, du, dv))
    dot = (u * v).sum(-1, keepdim=True) + u @ dv.T + v @ du.T + (du * dv).sum(-1)
    return dot / (_squares_at(u, du) * _squares_at(v, dv)).clamp(min=1e-32).sqrt()


def _squares_at(x, d):
    """|x + d|^2 = |x|^2 + 2 x d + |d|^2, (B, n)."""
    return x.square().sum(-1, keepdim=True) + 2 * x @ d.T + d.square().sum(-1)


@torch.no_grad()
def worst_shifts(
    head: Head,  # in eval mode
    vectors: tuple[Tensor, ...],  # (B, D) each, one or two
    shifts: tuple[Tensor, ...],  # (n, D) each, as many; shared by all examples
    distance: Callable,  # two outputs -> one distance for each
    limit: int = 2**18,  # numbers in the outputs of a chunk, or in the copies of a vector
) -> tuple[Tensor, ...]:  # (B, D) each
    """For each example return the one of n shared shifts that changes its output most."""
    clean = head(*vectors)[:, None]  # (B, 1) or (B, 1, C)
    numbers = clean.numel() if type(head) in _WITHOUT_COPIES else vectors[0].numel()
    found = []
    for part in zip(*(d.split(max(1, limit // numbers)) for d in shifts)):
        moved = outputs_at(head, vectors, part)  # (B, k) or (B, k, C)
        found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))
    worst = torch.cat(found, 1).argmax(1)  # (B,)
    return tuple(d[worst] for d in shifts)
