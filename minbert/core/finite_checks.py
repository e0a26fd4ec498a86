"""Checks for NaN and infinity that name the tensor and the place, and names for these errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .devices import sync_free_value

__all__ = ["NotFinite", "check_finite", "numbered_errors", "updated_parameters"]


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


@contextmanager
def numbered_errors(step: int) -> Iterator[None]:
    """Add the number of the step to the message of a NotFinite or another ValueError."""
    try:
        yield
    except NotFinite as error:
        raise NotFinite(f"step {step}: {error}") from error
    except ValueError as error:
        raise ValueError(f"step {step}: {error}") from error


def updated_parameters(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, Tensor]:  # name -> parameter; one outside the model is named by its position
    """Name the parameters that the optimizer updates."""
    names = {id(p): name for name, p in model.named_parameters()}
    updated = [p for group in optimizer.param_groups for p in group["params"]]
    return {names.get(id(p), f"parameter {i}"): p for i, p in enumerate(updated)}
