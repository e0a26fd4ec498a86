"""Several optimizers that are used and saved as one, for example Muon for matrices and AdamW for
the other parameters.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from minbert.core.optimizer import closure_loss

__all__ = ["CombinedOptimizer"]


class CombinedOptimizer:
    """Use several optimizers as one in `minbert.training.steps` and in a checkpoint.

    An optimizer saves the state of a parameter under its position. Here the positions are counted
    over all optimizers, in their order. Raises ValueError for a parameter that two of them have.
    """

    def __init__(
        self,
        *parts: torch.optim.Optimizer,  # no parameter in two of them
    ):
        owned = [p for part in parts for group in part.param_groups for p in group["params"]]
        if len({id(p) for p in owned}) != len(owned):
            raise ValueError("expected every parameter in one optimizer, got one in two")
        self.parts = parts

    @property
    def param_groups(self) -> list[dict]:
        """Return the parameter groups of all optimizers, in order."""
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, dict]:
        """Return the state of every parameter."""
        return {p: kept for part in self.parts for p, kept in part.state.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self, closure: Callable | None = None) -> Tensor | float | None:
        """Let each optimizer take its step; return the closure's loss, or None."""
        loss = closure_loss(closure)
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(
        self,
        saved: dict,  # {"state": {position: ...}, "param_groups": [...]}, counted over all
    ) -> None:
        """Give each optimizer its part of a state that was saved for all of them."""
        groups, first = list(saved["param_groups"]), 0
        for part in self.parts:
            own, groups = groups[: len(part.param_groups)], groups[len(part.param_groups) :]
            last = first + sum(len(group["params"]) for group in own)
            state = {i - first: kept for i, kept in saved["state"].items() if first <= i < last}
            own = [{**group, "params": [i - first for i in group["params"]]} for group in own]
            part.load_state_dict({"state": state, "param_groups": own})
            first = last
