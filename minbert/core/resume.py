"""Resuming a run: its checkpoint, if there is one, and the log that belongs to it."""

from pathlib import Path

from torch import nn

from .checkpoint import CHECKPOINT, load_checkpoint


def resume_run(
    folder: str | Path, model: nn.Module, optimizer, total_steps: int, settings: dict
) -> tuple[int, list, list]:
    """Load the checkpoint in `folder`, if there is one: steps done, rows of the log, losses that
    wait for the next row.

    Raises ValueError if it has done more than `total_steps`, or with other settings than these; a
    checkpoint without any is taken as it is.
    """
    if not (Path(folder) / CHECKPOINT).exists():
        return 0, [], []
    saved = load_checkpoint(folder, model, optimizer)
    if saved["step"] > total_steps:
        raise ValueError(
            f"{folder}: expected a run of at most {total_steps} steps, got one that has done {saved['step']}"
        )
    for name, before in saved["extra"].get("settings", {}).items():
        if settings.get(name) != before:
            raise ValueError(
                f"{folder}: expected {name} {before}, with which the run there began, got {settings.get(name)}"
            )
    return saved["step"], saved["extra"]["rows"], saved["extra"].get("losses", [])
