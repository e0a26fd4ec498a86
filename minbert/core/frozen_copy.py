"""A frozen copy of a model that can hold several sets of earlier weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class ParameterCopies:
    """A frozen copy of a model in eval mode, made once, which can use one of several sets of
    parameters.

    Buffers and parameters that are not trained are shared with the model; only the trained
    parameters are stored again, once per set. The first set holds the parameters of the model, and
    the others are uninitialized memory.
    """

    def __init__(
        self,
        model: nn.Module,
        sets: int,  # number of sets of parameters
    ):
        self.source = model
        self.names, self.trained = zip(
            *((n, p) for n, p in model.named_parameters() if p.requires_grad)
        )
        shared: list = [p for p in model.parameters() if not p.requires_grad]
        shared += model.buffers()
        shared += [part.tokenizer for part in model.modules() if hasattr(part, "tokenizer")]
        self.model = copy.deepcopy(model, {id(x): x for x in shared}).eval()
        # biases and layer norms: every step changes some of them
        small = [p for p in self.trained if p.numel() <= 2**14]
        self.marks = small or list(self.trained)
        self.own = [p.requires_grad_(False) for p in self.model.parameters() if p.requires_grad]
        self.sets = [[p.data for p in self.own]] + [
            [torch.empty_like(p) for p in self.own] for _ in range(sets - 1)
        ]

    def fits(self, model: nn.Module) -> bool:
        """Tell whether the model still trains the parameters that are copied, on the same device."""
        learned = [p for p in model.parameters() if p.requires_grad]
        return (
            model is self.source
            and len(learned) == len(self.trained)
            and all(p is q for p, q in zip(learned, self.trained))
            and all(
                p.device == q.device and p.dtype == q.dtype for p, q in zip(learned, self.sets[0])
            )
        )

    @torch.no_grad()
    def fingerprint(self) -> Tensor:  # (number of small parameters,)
        """Compute the norms of all small parameters, which change with every step; torch's own
        version counter misses fused optimizers.

        In float32 or wider, since a norm in bf16 would miss a step. A step that changes none of
        these parameters is not noticed.
        """
        return torch.stack(
            torch._foreach_norm([p if p.dtype == torch.float64 else p.float() for p in self.marks])
        )

    def follow(self) -> None:
        """Take over the modes of the model, so that dropout is active in the same modules."""
        for ours, theirs in zip(self.model.modules(), self.source.modules()):
            ours.training = theirs.training

    @torch.no_grad()
    def store(
        self,
        number: int,  # of a set
    ) -> None:
        """Copy the trained parameters of the model into one of the sets."""
        torch._foreach_copy_(self.sets[number], self.trained)

    def use(
        self,
        number: int,  # of a set
    ) -> None:
        """Point the parameters of the copy to one of the sets; no value is copied."""
        for p, weights in zip(self.own, self.sets[number]):
            p.data = weights

    def saved(self) -> list[dict[str, Tensor]]:  # a set each: name -> weight
        """Copy all sets."""
        return [{name: w.clone() for name, w in zip(self.names, weights)} for weights in self.sets]

    @torch.no_grad()
    def filled(
        self,
        sets: list[dict[str, Tensor]],  # from `saved`
    ) -> bool:  # False, and nothing done, if other weights are trained now
        """Fill the sets from saved ones."""
        if set(sets[0]) != set(self.names):
            return False
        for weights, old in zip(self.sets, sets, strict=True):
            for name, w in zip(self.names, weights):
                w.copy_(old[name])
        return True


class SavesCopies:
    """Saving and resuming of an object that has `step`, `copies` (`ParameterCopies` or None) and
    `_identity()`, its settings.
    """

    step = -1  # index of the current optimizer step; the first is 0
    copies: ParameterCopies | None = None
    _seen: Any = None
    _saved: dict | None = None

    def _identity(self) -> dict:
        raise NotImplementedError

    def state_dict(self) -> dict:  # numbers and tensors
        """Collect what a resumed run needs to have the same copies; call it between two steps."""
        if self._saved is not None:
            return self._saved
        return {
            "identity": self._identity(),
            "step": self.step,
            "sets": [] if self.copies is None else self.copies.saved(),
        }

    def load_state_dict(
        self,
        state: dict,  # from `state_dict`
    ) -> None:
        """Continue with the copies of a saved run, from the next `begin` on.

        Raises ValueError if the settings of the saved run were different.
        """
        if state["identity"] != self._identity():
            raise ValueError(
                f"state of other settings: expected {self._identity()}, got {state['identity']}"
            )
        self.copies, self._saved, self.step = None, state if state["sets"] else None, state["step"]

    def _restore(self) -> int:
        """Fill new copies from a saved state and return its step; -1, a new start, without a state or
        if other parameters are trained now.
        """
        saved, self._saved = self._saved, None
        if saved is None or self.copies is None:
            return -1
        return saved["step"] if self.copies.filled(saved["sets"]) else -1
