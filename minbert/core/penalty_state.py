"""Saving and loading the state of an object that consists of parts."""

from __future__ import annotations

__all__ = ["SavesParts"]

from collections.abc import Sequence


class SavesParts:
    """Saving for what keeps its parts in `self.penalties`, a sequence; the state of each stands
    under its position.
    """

    penalties: Sequence

    def state_dict(self) -> dict:  # position of a penalty -> its state
        """Collect the state of the penalties that have one, for a checkpoint."""
        return {
            str(i): p.state_dict() for i, p in enumerate(self.penalties) if hasattr(p, "state_dict")
        }

    def load_state_dict(self, state: dict) -> None:  # of `state_dict`, with the same penalties
        """Give the penalties their state back; ValueError unless it fits the penalties at hand."""
        wanted = {str(i): p for i, p in enumerate(self.penalties) if hasattr(p, "load_state_dict")}
        if set(wanted) != set(state):
            raise ValueError(
                f"expected the state of penalties {sorted(wanted)}, got {sorted(state)}"
            )
        for i, penalty in wanted.items():
            penalty.load_state_dict(state[i])
