"""A row of a table as something that can be run."""

from __future__ import annotations

__all__ = [
    "Cell",
    "Recipe",
    "Claim",
    "RECIPES",
    "CLAIMS",
    "NOT_RUN",
    "EVERY",
    "recipe",
    "claim",
    "not_run",
    "row",
    "cell",
    "cells_of",
    "settings_of_stages",
    "chosen",
]

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from .published import PAPERS, published
from .scale import Scale


class Cell(NamedTuple):
    """A place in a paper's table, and which of a recipe's measurements belongs there."""

    table: str
    row: str
    metric: str
    measured: str  # key of the measurement


@dataclass(frozen=True)
class Recipe:
    """How to get the figures of a row, and how that differs from the paper."""

    name: str  # "hu/mirror": paper and row
    make: Callable  # (Run) -> {name: Answers or float}
    cells: tuple[Cell, ...]  # none: a control, or a row that the paper lacks
    needs: tuple[str, ...]  # "sst/dev": files without which nothing starts
    settings: dict[str, str]  # hyper-parameter -> value and its source
    differs: str  # from the paper, whatever the scale
    scales: tuple[str, ...]  # at which it can be run
    # a measurement is the answer to one sentence: seeds are told one by one, their mean is nobody's
    # answer
    examples: bool
    over_seeds: bool = False  # one run trains with every seed of the scale
    # measurement -> figure of a like model, and whose
    references: dict[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def deterministic(self) -> bool:
        """Tell whether no seed changes anything: nothing is trained, and nothing drawn from the
        seed.
        """
        return self.name in DETERMINISTIC

    def seeds(self, scale: Scale) -> tuple[int, ...]:
        """List the seeds of its runs."""
        return scale.seeds[:1] if self.over_seeds or self.deterministic else scale.seeds


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper that two rows can test: `better` is above `worse` in `measured`."""

    text: str
    better: str  # name of a recipe
    worse: str
    measured: str
    # the gain in print; None: two cells give it, or the paper has none
    published: float | None = None


EVERY = ("micro", "minilm", "small", "paper")  # scales
RECIPES: dict[str, Recipe] = {}
CLAIMS: list[Claim] = []
NOT_RUN: dict[tuple[str, str, str], str] = {}  # (paper, table, row) -> why nothing can be run
DETERMINISTIC = frozenset(
    {  # recipes that give the same numbers with every seed: each is run once
        "hu/spread-minbert",
        "li/base",
        "li/base-cls",
        "li/base-last2avg",
        "li/base-natsv-1-target",
        "li/base-natsv-10-target",
        "li/base-sn-natsv-1-target",
        "li/base-sn-natsv-6-target",
        "li/base-sn-target",
        "li/edits-bert",
        "li/edits-gold",
        "li/words-0",
        "li/words-100",
        "li/words-500",
        "li/words-5000",
        "control/idf-overlap-target",
        "control/last-two",
        "control/last-two-sn-target",
        "control/last-two-whitened-target",
        "control/mean-whitened-target",
        "control/shared-words",
        "control/sif-target",
        "control/sn-natsv-6-target",
        "control/sn-target",
        "control/whiten-nli",
        "control/whiten-target",
    }
)


def row(table: str, name: str, **measured: str) -> tuple[tuple[str, str, str | None, dict], ...]:
    """Name a whole row: every metric is measured under its own name, or under the one given for it
    (spaces as underscores).
    """
    return ((table, name, None, {key.replace("_", " "): value for key, value in measured.items()}),)


def cell(
    table: str, name: str, metric: str, measured: str
) -> tuple[tuple[str, str, str | None, dict], ...]:
    """Name one cell, and the measurement that belongs there."""
    return ((table, name, metric, {metric: measured}),)


def cells_of(paper: str, places: tuple) -> tuple[Cell, ...]:
    """Look places up among the published figures. Raises ValueError for one that was never printed."""
    found = []
    for table, name, metric, renamed in places:
        here = [
            p
            for p in published().values()
            if p[:3] == (paper, table, name) and metric in (None, p.metric)
        ]
        if not here:
            raise ValueError(
                f"expected a published row of {paper}, got {table} {name!r} {metric or ''}"
            )
        found += [Cell(table, name, p.metric, renamed.get(p.metric, p.metric)) for p in here]
    return tuple(found)


def settings_of_stages(*stages: dict[str, str]) -> dict[str, str]:
    """Join the settings of the stages of a recipe. Raises ValueError where two give one name
    different values: one of them would be lost.
    """
    joined: dict[str, str] = {}
    for stage in stages:
        for key, value in stage.items():
            if joined.setdefault(key, value) != value:
                raise ValueError(
                    f"expected one value of the setting {key!r}, got {joined[key]!r} and {value!r}: name the stage in front, as in 'contrast: rate'"
                )
    return joined


def recipe(
    name: str,
    *places: tuple,
    needs: tuple[str, ...],
    settings: dict[str, str] | tuple[dict[str, str], ...],
    differs: str = "",
    scales: tuple[str, ...] = EVERY,
    examples: bool = False,
    over_seeds: bool = False,
    references: dict[str, tuple[float, str]] | None = None,
) -> Callable:
    """Register a function (Run) -> measurements as the way to some cells; settings of several
    stages are given as several dicts.

    Raises ValueError for a name twice, cells that were never printed, or a setting that two stages
    give different values.
    """
    if name in RECIPES or name.partition("/")[0] not in (*PAPERS, "control"):
        raise ValueError(
            f"expected a new name that begins with {', '.join(PAPERS)} or control, got {name!r}"
        )

    known = settings_of_stages(*((settings,) if isinstance(settings, dict) else settings))

    def register(make: Callable) -> Callable:
        RECIPES[name] = Recipe(
            name,
            make,
            cells_of(name.partition("/")[0], sum(places, ())),
            needs,
            known,
            differs,
            scales,
            examples,
            over_seeds,
            references or {},
        )
        return make

    return register


def claim(
    text: str, better: str, worse: str, measured: str, published: float | None = None
) -> None:
    """Register a sentence to be tested."""
    CLAIMS.append(Claim(text, better, worse, measured, published))


def not_run(paper: str, table: str, *rows: str, why: str, figures: bool = True) -> None:
    """Say of published rows why there is no recipe; with `figures=False` of experiments without a
    printed figure.

    Raises ValueError for a row that was never printed.
    """
    for name in rows:
        if figures:
            cells_of(paper, row(table, name))
        NOT_RUN[paper, table, name] = why


def chosen(
    patterns: list[str],  # names, or with * and ?; none: all
    scale: str,  # a key of `SCALES`
) -> list[Recipe]:  # in the order of the papers
    """Choose recipes. Raises ValueError for a pattern that fits none, or if all that fit are there
    at other scales alone.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in RECIPES):
            raise ValueError(
                f"expected a recipe, got {pattern!r}; `minbert reproduce --list` has the names"
            )
    fit = [
        r for r in RECIPES.values() if not patterns or any(fnmatchcase(r.name, p) for p in patterns)
    ]
    if fit and not any(scale in r.scales for r in fit):
        raise ValueError(
            f"{', '.join(r.name for r in fit)}: expected --scale {' or '.join(dict.fromkeys(s for r in fit for s in r.scales))}, got {scale}"
        )
    return [r for r in fit if scale in r.scales]
