"""Checks for NaN and infinity that name the tensor and the place."""

import torch
from torch import Tensor

from .devices import sync_free_value

__all__ = ["NotFinite", "check_finite"]


class NotFinite(ValueError):
    """A number that has to be one is NaN or infinite: training has diverged, or its input was bad."""


def check_finite(
    tensor: Tensor,  # any shape, float
    name: str,  # what to call it in the message
) -> Tensor:  # the same tensor
    """Return `tensor`, or raise if it holds NaN or infinity.

    What `sync_free_value` does not show is taken as it is: the loop looks at losses and gradients itself.
    Raises NotFinite, a ValueError, with the name, the count and the first position.
    """
    if (seen := sync_free_value(tensor)) is None:
        return tensor
    bad = ~torch.isfinite(seen)
    if bad.any():
        where, value = bad.nonzero()[0].tolist(), seen[bad][0].item()
        raise NotFinite(
            f"expected finite numbers in {name}, got {int(bad.sum())} of "
            f"{tensor.numel()} that are not; the first is {value} at {where}"
        )
    return tensor
