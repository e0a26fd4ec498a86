"""What came out, beside what was printed: a table a paper, and a verdict a sentence."""
from __future__ import annotations

__all__ = ["Report", "expected", "gold_of", "printed_alone", "printed_on", "make_report", "as_json", "markdown"]

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from ..claims import SCORES, VERDICTS, Interval, Scored, draw_scores, interval, printed_interval, verdict
from ..data import Dataset
from ..metrics import majority_baseline
from .published import PAPERS, published
from .recipe import CLAIMS, NOT_RUN, RECIPES, Cell, Claim, Recipe
from .run import labelled
from .store import stored

MEASURED_ON = {   # measurement -> metric and rows of the set that the papers used
    **dict.fromkeys(("SST dev acc", "SST-5 dev acc"), ("accuracy", 1101)), **dict.fromkeys(("QQP dev acc", "Quora dev acc"), ("accuracy", 20212)),
    "STS dev pearson": ("pearson", 863), "unsup STS dev spearman": ("spearman", 863), "STS-B": ("spearman", 1379), "SICK-R": ("spearman", 4927),
    "STS-12": ("wmean", 3108), "STS-13": ("wmean", 1500), "STS-14": ("wmean", 3750), "STS-15": ("wmean", 3000), "STS-16": ("wmean", 1186), "AUC": ("auc", 5463),
    "SST test acc": ("accuracy", 2210), "STS test pearson": ("pearson", 1725), "CFIMDB dev acc": ("accuracy", 245),
    "vs gold": ("spearman", 1500), "vs edit distance": ("spearman", 1500)}
ELSEWHERE = {   # paper, table, metric in print -> the same, where the paper asked other rows than we do, or a name says too little
    ("foley-cox-wendt", "S7", "paraphrase test acc"): None,   # the course's test set of Quora, of which we have no file
    **dict.fromkeys((("li", "T8", "mean"), ("li", "T8", "median")), ("spearman", 1379))}   # seeds share the rows of STS-B
MEANS = ("average", "overall")   # of the three tasks' figures in the same table


class Line(NamedTuple):
    """One cell of a paper's table."""

    paper: str
    table: str
    row: str
    metric: str
    recipe: str
    printed: Interval           # NaN at the ends where the number of rows is not known
    measured: Interval | None   # None: not run
    seeds: int
    differs: str
    answers: tuple[float, ...] = ()   # of examples: what each seed says


class Judged(NamedTuple):
    """A sentence of a paper, and what our rows say."""

    claim: Claim
    printed: float | None
    gain: Interval | None       # None: one of the rows is missing
    seeds: int
    verdict: str
    learned: bool = True        # False: neither row is above the best constant answer, and nothing can be told


@dataclass(frozen=True)
class Report:
    """All that is stored, as numbers."""

    lines: list[Line]
    judged: list[Judged]
    costs: dict[str, dict]      # recipe -> seconds of processor, GPU memory, hardware; means over seeds


def gold_of(data: Dataset, metric: str) -> np.ndarray:
    labels = np.array(data.labels, float)
    if metric != "wmean":
        return labels
    groups = np.unique(data.subsets or [data.name] * len(data), return_inverse=True)[1]
    return np.stack([labels, groups], 1)


def score(taken: list[dict], data: str | None, resamples: int) -> Scored:  # one measurement a seed
    """Score a measurement of a recipe over its seeds."""
    if "value" in taken[0]:   # one number a seed: only seeds can be drawn, and of one seed nothing is known
        values = np.array([t["value"] for t in taken])
        return Scored(float(values.mean()), np.repeat(values[None], resamples, 0))
    gold = gold_of(labelled(taken[0]["dataset"], data), taken[0]["metric"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)   # equal answers to all rows: no correlation, NaN
        return draw_scores([t["answers"] for t in taken], gold, SCORES[taken[0]["metric"]], resamples)


def bounds(one: Scored, other: Scored | None = None) -> Interval:   # where other is given, of the same seeds
    """Give the interval of chapter 40. Plain numbers have no rows to draw: Student's law of their seeds, or of the differences seed by seed.

    Draws from two or three numbers would be far too sure. Where no seed changes anything, as where there is one alone, the ends are NaN.
    """
    drawn = [scored.draws for scored in (one, other) if scored is not None]
    if not all((draws == draws[0]).all() for draws in drawn):
        return interval(one, other)
    seeds, value = drawn[0][0] - (drawn[1][0] if other is not None else 0), one.value - (other.value if other is not None else 0)
    if np.allclose(seeds, seeds[0], rtol=1e-9, atol=1e-12):
        return Interval(value, math.nan, math.nan)
    half = stats.t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) / math.sqrt(len(seeds))
    return Interval(value, value - half, value + half)


def constant(taken: dict, data: str | None) -> float:
    """What the best constant answer scores: the share of the commonest class, one half of an area, no correlation; minus infinity for a plain number."""
    if "value" in taken:
        return -math.inf
    if taken["metric"] != "accuracy":
        return 0.5 if taken["metric"] == "auc" else 0.0
    return majority_baseline(labelled(taken["dataset"], data).labels)[1]


class Scores:
    """Scores of what is stored, each computed once."""

    def __init__(self, results: dict[str, list[dict]], data: str | None, resamples: int):
        self.results, self.data, self.resamples, self.known = results, data, resamples, {}

    def taken(self, recipe: str, key: str) -> dict[int, dict]:
        """Give what a recipe measured under a name, seed by seed."""
        return {r["seed"]: r["measured"][key] for r in self.results.get(recipe, []) if key in r["measured"]}

    def __call__(self, recipe: str, key: str, seeds: tuple[int, ...] | None = None) -> Scored | None:
        """Score a measurement over some seeds, or all; None if it was not taken."""
        taken = self.taken(recipe, key)
        chosen = tuple(seed for seed in taken if seeds is None or seed in seeds)
        if (recipe, key, chosen) not in self.known:
            self.known[recipe, key, chosen] = score([taken[seed] for seed in chosen], self.data, self.resamples) if chosen else None
        return self.known[recipe, key, chosen]

    def both(self, one: str, other: str, key: str) -> tuple[Scored, Scored] | None:
        """Score two recipes over the seeds that both have; None if there is none. Raises ValueError if they answered different rows."""
        first, second = self.taken(one, key), self.taken(other, key)
        sets = {t.get("dataset") for t in (*first.values(), *second.values())}
        if len(sets) > 1:
            raise ValueError(f"{one} and {other}, {key}: expected answers to the same rows, got {' and '.join(map(str, sorted(sets, key=str)))}")
        shared = tuple(sorted({*first} & {*second}))
        return (self(one, key, shared), self(other, key, shared)) if shared else None

    def learned(self, recipe: str, key: str) -> bool:
        """Tell whether a row is above the best constant answer, by its interval."""
        taken = next(iter(self.taken(recipe, key).values()))
        return not bounds(self(recipe, key)).low <= constant(taken, self.data)


def printed_alone(value: float, measured: str) -> Interval:
    """The interval that a printed figure has from the rows on which its measurement is taken in the papers, where these are known."""
    return _from_rows(value, MEASURED_ON.get(measured))


def _from_rows(value: float, on: tuple[str, int] | None) -> Interval:
    return printed_interval(value, on[1], on[0]) if on and abs(value) < 1 else Interval(value, math.nan, math.nan)


def printed_on(recipe: Recipe, cell: Cell) -> tuple[str, int] | None:
    """Tell on what a cell was measured in print: metric and number of rows; None where that is not known, or one sentence was asked."""
    return ELSEWHERE.get((recipe.paper, cell.table, cell.metric), MEASURED_ON.get(cell.measured))


def expected(recipe: Recipe, cell: Cell) -> Interval:
    """Give a printed figure and the interval that it has from its rows alone, NaN at the ends where nothing is known of these.

    A mean of independent figures: half widths add as squares, above and below (Zou and Donner, 2008).
    """
    value = published()[recipe.paper, *cell[:3]].value
    if cell.measured not in MEANS:
        return _from_rows(value, printed_on(recipe, cell))
    parts = np.array([expected(recipe, other) for other in recipe.cells if other.table == cell.table and other.measured not in MEANS])
    half = np.sqrt(((parts - parts[:, :1]) ** 2).sum(0)) / len(parts)
    return Interval(value, value - float(half[1]), value + float(half[2]))


def _line(recipe: Recipe, cell: Cell, scores: Scores) -> Line:
    found, results = scores(recipe.name, cell.measured), scores.results.get(recipe.name, [])
    answers = tuple(taken["value"] for taken in scores.taken(recipe.name, cell.measured).values()) if recipe.examples else ()
    return Line(recipe.paper, *cell[:3], recipe.name, expected(recipe, cell), found and bounds(found), len(results), recipe.differs, answers)


def printed_gain(claim: Claim) -> float | None:
    """Look up the gain in print: two cells of one table and metric."""
    if claim.published is not None:
        return claim.published
    places = [{(c.table, c.metric): published()[RECIPES[name].paper, *c[:3]].value for c in RECIPES[name].cells if c.measured == claim.measured}
              for name in (claim.better, claim.worse)]
    shared = [place for place in places[0] if place in places[1]]
    return places[0][shared[0]] - places[1][shared[0]] if shared else None


def _judge(claim: Claim, scores: Scores) -> Judged:
    found, printed = scores.both(claim.better, claim.worse, claim.measured), printed_gain(claim)
    if found is None:
        return Judged(claim, printed, None, 0, "not run")
    gain, seeds = bounds(*found), found[0].draws.shape[1]
    asked = [name for name in (claim.better, claim.worse) if scores.learned(name, claim.measured)]
    return Judged(claim, printed, gain, seeds, verdict(gain, printed) if asked else VERDICTS[2], bool(asked))


def make_report(out: str | Path, data: str | None, resamples: int = 400) -> Report:
    """Score everything in a folder of results against the labels in a data folder."""
    scores = Scores(stored(Path(out)), data, resamples)
    lines = [_line(recipe, cell, scores) for recipe in RECIPES.values() for cell in recipe.cells]
    costs = {name: {"processor seconds": float(np.mean([r["processor_seconds"] for r in rs])), "GPU MB": rs[0]["gpu_mb"], "hardware": rs[0]["versions"]["hardware"]}
             for name, rs in scores.results.items()}
    return Report(lines, [_judge(claim, scores) for claim in CLAIMS], costs)


def _three(i: Interval | None) -> list | None:
    return i and [None if math.isnan(x) else round(x, 4) for x in i[:3]]


def _out_of_reach(scale: str) -> list[dict]:
    """Say of rows that this scale lacks why, and give the command of the one that has them."""
    left = [(c, r) for r in RECIPES.values() if scale not in r.scales for c in r.cells]
    why = lambda r: f"its model is there at the scale {r.scales[-1]} alone: `minbert reproduce {r.name} --scale {r.scales[-1]} --data FOLDER` on a GPU"
    rows = {(r.paper, c.table, c.row): why(r) for c, r in left}
    return [{"paper": p, "table": t, "row": name, "why": reason} for (p, t, name), reason in rows.items()]


def as_json(report: Report, scale: str) -> dict:
    """The report as plain values: what the site and chapter 40 show."""
    cells = [{"paper": x.paper, "table": x.table, "row": x.row, "metric": x.metric, "recipe": x.recipe, "printed": _three(x.printed),
              "measured": _three(x.measured), "seeds": x.seeds, "differs": x.differs,
              **({"answers": [round(a, 4) for a in x.answers]} if x.answers else {})} for x in report.lines]
    claims = [{"paper": RECIPES[j.claim.better].paper, "text": j.claim.text, "better": j.claim.better, "worse": j.claim.worse, "measured": j.claim.measured,
               "printed": None if j.printed is None else round(j.printed, 4), "gain": _three(j.gain), "seeds": j.seeds, "verdict": j.verdict, "learned": j.learned} for j in report.judged]
    return {"scale": scale, "cells": cells, "claims": claims, "costs": report.costs,
            "not run": [{"paper": p, "table": t, "row": r, "why": why} for (p, t, r), why in NOT_RUN.items()] + _out_of_reach(scale)}


def _text(three: list | None) -> str:
    if three is None:
        return "not run"
    value, low, high = three
    return f"{value:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")


def _measured(c: dict) -> str:
    """A score with its interval; of an example what each seed says, once where they agree."""
    answers = c.get("answers", [])
    return ", ".join(f"{a:.3f}" for a in (answers if len({*answers}) > 1 else answers[:1])) or _text(c["measured"])


def _row(c: dict) -> str:
    """The printed name of a row; of one that saw text of the test set, with a word that says so."""
    return c["row"] + " (target)" * (c["recipe"].endswith("-target") and "target" not in c["row"])


def _cell_line(c: dict) -> str:
    return f"| {c['table']} | {_row(c)} | {c['metric']} | {_text(c['printed'])} | {_measured(c)} | {c['seeds'] or ''} | {c['differs']} |"


def _claim_line(c: dict) -> str:
    printed = "" if c["printed"] is None else f"{c['printed']:+.3f}"
    return f"| {c['text']} | `{c['better']}` over `{c['worse']}`, {c['measured']} | {printed} | {_text(c['gain'])} | {c['seeds'] or ''} | {c['verdict']}{'' if c['learned'] else ': neither row learned'} |"


def _section(title: str, key: str, record: dict) -> list[str]:
    """One paper, or the controls: cells, sentences, and what was not run."""
    cells, claims, left = ([x for x in record[name] if x["paper"] == key] for name in ("cells", "claims", "not run"))
    out = [f"## {title}", ""]
    if cells:
        out += ["| table | row | metric | printed (rows alone) | measured (rows and seeds) | seeds | differs from the paper in |", "|---|---|---|---|---|---|---|", *map(_cell_line, cells), ""]
    if claims:
        out += ["| sentence | rows and measurement | printed gain | measured gain | seeds | verdict |", "|---|---|---|---|---|---|", *map(_claim_line, claims), ""]
    return out + [f"- Not run: {x['table']}, {x['row']}: {x['why']}." for x in left] + [""] * bool(left)


def markdown(
    record: dict,   # from `as_json`
) -> str:
    """The report as tables, a section a paper."""
    return "\n".join(line for key, title in (PAPERS | {"control": "Controls: rows that no paper has"}).items() for line in _section(title, key, record))
