"""Saving and restoring the states of random number generators."""

from __future__ import annotations

from collections import defaultdict

import torch

__all__ = ["SavesGenerator", "SavesSkips", "SavesTargets", "generator_on"]


def generator_on(
    generator: torch.Generator,  # on the CPU; only its state has to be kept in a checkpoint
    device: torch.device,
) -> torch.Generator:
    """Return a generator on `device`, seeded by one on the CPU."""
    if device.type == "cpu":
        return generator
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)


class SavesGenerator:
    """Saving for what draws from `self.generator`, a `torch.Generator` on the CPU."""

    generator: torch.Generator

    def state_dict(self) -> dict:  # a tree of tensors, numbers and strings
        """Return the kind and what the next draws depend on."""
        return {"kind": type(self).__name__, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:  # from `state_dict`
        """Go on where `state_dict` stood; raise ValueError for the state of another kind."""
        if state.get("kind") != type(self).__name__:
            raise ValueError(
                f"expected a state of {type(self).__name__}, got one of {state.get('kind')}"
            )
        self.generator.set_state(state["generator"])


class SavesSkips:
    """Saving for what draws from `self.generator` and counts in `self.skipped` the batches it left
    out.
    """

    generator: torch.Generator
    skipped: int

    def state_dict(self) -> dict:  # a tensor and a number
        """Return what the next draws depend on, and the count of skipped batches."""
        return {"generator": self.generator.get_state(), "skipped": self.skipped}

    def load_state_dict(self, state: dict) -> None:  # from `state_dict`
        """Go on drawing and counting where another run stopped."""
        self.generator.set_state(state["generator"])
        self.skipped = state["skipped"]


class SavesTargets(SavesGenerator):
    """Saving for what draws from `self.generator` and keeps `self.targets`, task -> other task ->
    number.
    """

    def state_dict(self) -> dict:  # a tree of tensors, numbers and strings
        """Return what the next draws and targets depend on."""
        return super().state_dict() | {
            "targets": {task: dict(row) for task, row in self.targets.items()}
        }

    def load_state_dict(self, state: dict) -> None:  # from `state_dict`
        """Go on where `state_dict` stood."""
        super().load_state_dict(state)
        self.targets = defaultdict(
            dict, {task: dict(row) for task, row in state["targets"].items()}
        )
