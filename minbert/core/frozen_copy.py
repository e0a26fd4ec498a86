"""A frozen copy of a model that can hold several sets of earlier weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class TwinWeights:
    """A frozen copy of a model in eval mode, made once, which can wear one of several sets of
    weights.

    What is not trained, and all buffers, are the model's own; only trained weights exist again,
    once a set. The first set holds the model's weights, the others nothing yet.
    """

    def __init__(
        self,
        model: nn.Module,
        sets: int,  # of weights
    ):
        self.source = model
        self.names, self.learned = zip(
            *((n, p) for n, p in model.named_parameters() if p.requires_grad)
        )
        shared = [p for p in model.parameters() if not p.requires_grad] + list(model.buffers())
        shared += [part.tokenizer for part in model.modules() if hasattr(part, "tokenizer")]
        self.model = copy.deepcopy(model, {id(x): x for x in shared}).eval()
        # biases and norms: every step moves some
        small = [p for p in self.learned if p.numel() <= 2**14]
        self.marks = small or list(self.learned)
        self.own = [p.requires_grad_(False) for p in self.model.parameters() if p.requires_grad]
        self.sets = [[p.data for p in self.own]] + [
            [torch.empty_like(p) for p in self.own] for _ in range(sets - 1)
        ]

    def fits(self, model: nn.Module) -> bool:
        """Tell whether the model still trains the weights we copy, where we keep them."""
        learned = [p for p in model.parameters() if p.requires_grad]
        return (
            model is self.source
            and len(learned) == len(self.learned)
            and all(p is q for p, q in zip(learned, self.learned))
            and all(
                p.device == q.device and p.dtype == q.dtype for p, q in zip(learned, self.sets[0])
            )
        )

    @torch.no_grad()
    def fingerprint(self) -> Tensor:  # (small weights,)
        """Give the lengths of all small weights, which change with every step; torch's own counter
        misses fused optimizers.

        In float32 or wider: a length in bf16 would miss a step. A step that moves none of these
        weights is not seen.
        """
        return torch.stack(
            torch._foreach_norm([p if p.dtype == torch.float64 else p.float() for p in self.marks])
        )

    def follow(self) -> None:
        """Drop out where the model does."""
        for ours, theirs in zip(self.model.modules(), self.source.modules()):
            ours.training = theirs.training

    def wear(
        self,
        number: int,  # of a set
    ) -> None:
        """Point the copy's weights to one of the sets; nothing moves."""
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


class SavesTwin:
    """Saving for what has `step`, `_twin`, a `TwinWeights` or None, and `_identity()`, which says
    what kind it is.
    """

    step = -1  # optimizer steps seen; the first is 0
    _twin = _seen = _saved = None

    def state_dict(self) -> dict:  # numbers and tensors
        """Give what a resumed run needs to have the same teacher; take it between two steps."""
        if self._saved is not None:
            return self._saved
        return {
            "identity": self._identity(),
            "step": self.step,
            "sets": [] if self._twin is None else self._twin.saved(),
        }

    def load_state_dict(
        self,
        state: dict,  # from `state_dict`
    ) -> None:
        """Continue with the teacher of a saved run, from the next `begin` on.

        Raises ValueError if it was another kind of teacher.
        """
        if state["identity"] != self._identity():
            raise ValueError(
                f"state of another teacher: expected {self._identity()}, got {state['identity']}"
            )
        self._twin, self._saved, self.step = None, state if state["sets"] else None, state["step"]

    def _restore(self) -> int:
        """Fill a new twin from a saved state, and give its step; -1, a new start, without one or if
        other weights are trained now.
        """
        saved, self._saved = self._saved, None
        return saved["step"] if saved is not None and self._twin.filled(saved["sets"]) else -1
