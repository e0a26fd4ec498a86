"""One result beside what was printed for it, and beside the rows that a claim compares it with."""

from __future__ import annotations

__all__ = ["value_of", "in_print", "beside", "neighbours", "compared"]

import math
from pathlib import Path

from ..significance import Interval
from .recipe import CLAIMS, Recipe
from .report import expected, printed_alone
from .result_store import stored


def value_of(taken: dict) -> float:
    """Give the score of a stored measurement; NaN where it is undefined."""
    return math.nan if taken["value"] is None else taken["value"]


def in_print(recipe: Recipe, key: str) -> list[tuple[str, Interval]]:
    """List what a measurement should come to, and who says so: the cells of the paper, or a figure
    of a like model.
    """
    cells = [(f"{c.table} {c.row}", expected(recipe, c)) for c in recipe.cells if c.measured == key]
    like = [(source, figure) for name, (figure, source) in recipe.references.items() if name == key]
    return cells + [(source, printed_alone(figure, key)) for source, figure in like]


def beside(recipe: Recipe, result: dict) -> str:
    """Write every measurement, and beside it each printed figure with the interval that this has
    from its rows.
    """
    lines = [f"{'':38}{'here':>8}{'printed':>9}   expected from the rows alone"]
    for key, taken in result["measured"].items():
        start, *more = [
            f"{i.value:9.3f}   {_span(i):16}   {source}" for source, i in in_print(recipe, key)
        ] or [""]
        lines += [f"{key:38}{value_of(taken):8.3f}{start}", *(f"{'':46}{line}" for line in more)]
    return "\n".join(lines)


def _span(i: Interval) -> str:
    return "" if math.isnan(i.low) else f"{i.low:.3f} to {i.high:.3f}"


def neighbours(recipe: Recipe) -> list[str]:
    """Name the rows that a claim compares this one with."""
    pairs = [{c.better, c.worse} for c in CLAIMS if recipe.name in (c.better, c.worse)]
    return list(dict.fromkeys(name for pair in pairs for name in pair if name != recipe.name))


def compared(recipe: Recipe, result: dict, out: Path) -> str:
    """Compare the result with its neighbours of the same seed, sizes and kind of machine.

    If none is stored, say which to run.
    """
    names = neighbours(recipe)
    there = stored(out, result["settings"]["scale"]["name"])
    found = [r for name in names for r in there.get(name, []) if r["seed"] == result["seed"]]
    same = [
        other
        for other in found
        if other["device"] == result["device"]
        and all(other["settings"][key] == result["settings"][key] for key in ("scale", "base"))
    ]
    lines = [_differences(result, other) for other in same]
    return "\n".join(
        lines
        or [
            f"To compare: reproduce_here({name!r}, ...) stores that row beside this one."
            for name in names[:1]
        ]
    )


def _differences(result: dict, other: dict) -> str:
    """Compare what both measured on the same rows."""
    theirs, lines = other["measured"], [f"{other['recipe']}, the same seed:"]
    for key, taken in result["measured"].items():
        if key in theirs and taken.get("dataset") == theirs[key].get("dataset"):
            value = value_of(theirs[key])
            lines.append(f"   {key:35}{value:8.3f}   here {value_of(taken) - value:+.3f}")
    return "\n".join(lines)
