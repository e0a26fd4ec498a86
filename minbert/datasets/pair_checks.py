"""Checks of what the contrastive losses receive: pairs with labels, and views with groups."""

__all__ = ["check_pairs", "check_views"]

import warnings

import torch
from torch import Tensor

from ..core.devices import sync_free_value
from ..core.finite_checks import check_finite
from .label_checks import check_labels


def check_pairs(
    u: Tensor,  # (B, D) float
    v: Tensor,  # (B, D) float
    labels: Tensor,  # (B,) of any dtype, 1 similar, 0 dissimilar
    margin: float,
) -> Tensor:  # (B,) float, the labels
    """Return the labels as floats, or raise ValueError for pairs that cannot be compared."""
    if u.shape != v.shape or not 0 < margin <= 2:
        raise ValueError(
            f"expected equal shapes and a margin in (0, 2], got {tuple(u.shape)}, "
            f"{tuple(v.shape)} and {margin}"
        )
    check_finite(u, "u")
    check_finite(v, "v")
    y = check_labels(u[..., 0], labels, 0, 1)
    seen = sync_free_value(y)
    if seen is not None and not ((seen == 0) | (seen == 1)).all():
        raise ValueError(f"expected labels 0 and 1, got {sorted(set(labels.tolist()))[:5]}")
    return y


def check_views(
    a: Tensor,  # (B, D) float
    b: Tensor,  # (B, D) float
    temperature: float,
    hard: Tensor | None = None,  # (B, D) float
    groups: Tensor | None = None,  # (B,) int
) -> None:
    """Raise ValueError for views that cannot be compared, and warn of those without a gradient."""
    if (
        a.ndim != 2
        or a.shape != b.shape
        or (hard is not None and hard.shape != a.shape)
        or not len(a)
    ):
        shapes = ", ".join(str(tuple(x.shape)) for x in (a, b, hard) if x is not None)
        raise ValueError(f"expected views of one shape (B, D), got {shapes}")
    if not temperature > 0:
        raise ValueError(f"expected a temperature above 0, got {temperature}")
    if groups is not None and groups.shape != a.shape[:1]:
        raise ValueError(
            f"expected groups of shape {tuple(a.shape[:1])}, got {tuple(groups.shape)}"
        )
    for name, x in (("a", a), ("b", b), ("hard", hard)):
        if x is not None:
            check_finite(x, name)
    if len(a) == 1 and hard is None:
        warnings.warn(
            "a batch of one has no negatives: the loss is 0", RuntimeWarning, stacklevel=3
        )
    elif sync_free_value(a) is not None and torch.equal(a, b):
        warnings.warn(
            "both views are equal: is the encoder in train mode, with dropout?",
            RuntimeWarning,
            stacklevel=3,
        )
