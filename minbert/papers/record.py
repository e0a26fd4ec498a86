"""The record of replication in the package: what `report` made of the stored results."""

from __future__ import annotations

__all__ = ["RECORDED", "shipped_record", "shipped_records", "recorded_seeds"]

from functools import cache
from importlib import resources

from ..core.files import parse_json

RECORDED = ("micro", "minilm")  # scales with a record


@cache
def _text(scale: str) -> str:
    folder = resources.files("minbert") / "assets" / "results"
    return (folder / f"recipes-{scale}.json").read_text(encoding="utf-8")


def shipped_record(scale: str) -> dict:
    """Read the record of a scale, in the form of `report.as_json`: a new copy on each call."""
    return parse_json(_text(scale), f"recipes-{scale}.json")


def shipped_records() -> dict[str, dict]:  # scale -> record
    """Read the records of all scales that have one."""
    return {scale: shipped_record(scale) for scale in RECORDED}


def recorded_seeds(scale: str) -> dict[str, int]:  # recipe -> number of seeds in the record
    """Count the runs behind each recipe of a record; empty for a scale without one."""
    if scale not in RECORDED:
        return {}
    return {name: cost["seeds"] for name, cost in shipped_record(scale)["costs"].items()}
