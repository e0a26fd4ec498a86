"""Everything about one recipe on a page: what is set and why, what is measured, and what was
printed.
"""

from __future__ import annotations

__all__ = ["card"]

import math

from .recipe import Cell, Recipe
from .report import expected, printed_on
from .scale import Scale

HOW = {
    "accuracy": "share of right answers",
    "auc": "area under the curve of right over false alarms",
    "pearson": "Pearson correlation of all rows at once",
    "spearman": "Spearman correlation of all rows at once",
    "wmean": "Spearman correlation of each subset, their mean weighted by rows",
}


def encoder_of(recipe: Recipe, scale: Scale) -> str:
    """Name the encoder that a scale begins with; recipes of the paper's scale alone are those of
    the large model.
    """
    return (scale.large if recipe.scales == ("paper",) else scale.base) or "the embedded one"


def _cell(recipe: Recipe, cell: Cell) -> str:
    """A place in a table: figure, interval, and how and on how many rows it was measured."""
    value, low, high = expected(recipe, cell)[:3]
    on = printed_on(recipe, cell)
    span = "" if math.isnan(low) else f", {low:.3f} to {high:.3f} expected from the rows alone"
    how = f"; {HOW[on[0]]}, {on[1]:,} rows in print" if on else ""
    return f"  {cell.table} {cell.row}, {cell.metric}: printed {value:.3f}{span}{how}; measured as {cell.measured!r}"


def card(recipe: Recipe, scale: Scale) -> str:
    """Write settings with their sources, what differs from the paper, encoder, files and figures of
    a recipe at a scale.
    """
    cells = [_cell(recipe, cell) for cell in recipe.cells] or ["  none: no paper has this row"]
    settings = [f"  {name}: {value}" for name, value in recipe.settings.items()]
    return "\n".join(
        [
            f"encoder at scale {scale.name}: {encoder_of(recipe, scale)}",
            f"scales: {', '.join(recipe.scales)}",
            "settings, those of the paper where it has some:",
            *settings,
            f"differs from the paper in: {recipe.differs or 'nothing known'}",
            f"files: {', '.join(dict.fromkeys(recipe.needs)) or 'none'}",
            "figures:",
            *cells,
        ]
    )
