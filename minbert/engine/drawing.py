"""Saving what the next random draws depend on."""
from __future__ import annotations

__all__ = ["SavesGenerator"]


class SavesGenerator:
    """Saving for what draws from `self.generator`, a `torch.Generator` on the CPU."""

    def state_dict(self) -> dict:  # a tree of tensors, numbers and strings
        """Return the kind and what the next draws depend on."""
        return {"kind": type(self).__name__, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:  # from `state_dict`
        """Go on where `state_dict` stood; raise ValueError for the state of another kind."""
        if state.get("kind") != type(self).__name__:
            raise ValueError(f"expected a state of {type(self).__name__}, got one of {state.get('kind')}")
        self.generator.set_state(state["generator"])
