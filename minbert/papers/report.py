"""What came out, beside what was printed: a table for each paper, and a verdict for each claim."""

from __future__ import annotations

__all__ = [
    "NOT_COMPARED",
    "Report",
    "expected",
    "printed_alone",
    "printed_on",
    "make_report",
    "as_json",
    "markdown",
    "totals",
]

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..significance import DIRECTIONS, VERDICTS, Interval, printed_interval, verdict
from .published import PAPERS, published
from .recipe import CLAIMS, NOT_RUN, RECIPES, Cell, Claim, Recipe
from .result_store import is_current, stored
from .scores import Scores, bounds
from .scoring import SAMPLES

NOT_COMPARED = (
    "not run",
    "not comparable: different hardware",  # in the place of a verdict
    "not comparable: no common seed",
)
MEASURED_ON = {  # measurement -> metric and rows of the set that the papers used
    **dict.fromkeys(("SST dev acc", "SST-5 dev acc"), ("accuracy", 1101)),
    **dict.fromkeys(("QQP dev acc", "Quora dev acc"), ("accuracy", 20212)),
    "STS dev pearson": ("pearson", 863),
    "unsup STS dev spearman": ("spearman", 863),
    "STS-B": ("spearman", 1379),
    "SICK-R": ("spearman", 4927),
    "STS-12": ("wmean", 3108),
    "STS-13": ("wmean", 1500),
    "STS-14": ("wmean", 3750),
    "STS-15": ("wmean", 3000),
    "STS-16": ("wmean", 1186),
    "AUC": ("auc", 5463),
    "SST test acc": ("accuracy", 2210),
    "STS test pearson": ("pearson", 1725),
    "CFIMDB dev acc": ("accuracy", 245),
    "vs gold": ("spearman", 1500),
    "vs edit distance": ("spearman", 1500),
}
# paper, table, metric in print -> the same, where the paper asked other rows than we do, or a name
# says too little
ELSEWHERE = {
    # the course's test set of Quora, of which we have no file
    ("foley-cox-wendt", "S7", "paraphrase test acc"): None,
    # seeds share the rows of STS-B
    **dict.fromkeys((("li", "T8", "mean"), ("li", "T8", "median")), ("spearman", 1379)),
}
MEANS = ("average", "overall")  # of the three tasks' figures in the same table


class Line(NamedTuple):
    """One cell of a paper's table."""

    paper: str
    table: str
    row: str
    metric: str
    recipe: str
    printed: Interval  # NaN at the ends where the number of rows is not known
    measured: Interval | None  # None: not run
    seeds: int
    differs: str
    answers: tuple[float, ...] = ()  # of examples: what each seed says
    device: str | None = None  # kind of machine on which these seeds ran
    outdated: bool = False  # the recipe has been changed since


class Judged(NamedTuple):
    """A claim of a paper, and what our rows say."""

    claim: Claim
    printed: float | None
    gain: Interval | None  # None: one of the rows is missing, or they cannot be compared
    seeds: int  # 0: both rows are deterministic, or nothing was compared
    verdict: str  # of VERDICTS where a difference was printed, else of DIRECTIONS
    learned: bool = True  # False: neither row is above the best constant prediction
    device: str | None = None  # kind of machine on which both rows ran
    outdated: bool = False  # the recipe of one of the rows has been changed since


@dataclass(frozen=True)
class Report:
    """All that is stored, as numbers."""

    lines: list[Line]
    judged: list[Judged]
    # recipe -> seconds of processor, GPU memory, hardware; means over seeds
    costs: dict[str, dict]


def printed_alone(value: float, measured: str) -> Interval:
    """The interval that a printed figure has from the rows on which its measurement is taken in the
    papers, where these are known.
    """
    return _from_rows(value, MEASURED_ON.get(measured))


def _from_rows(value: float, on: tuple[str, int] | None) -> Interval:
    return (
        printed_interval(value, on[1], on[0])
        if on and abs(value) < 1
        else Interval(value, math.nan, math.nan)
    )


def printed_on(recipe: Recipe, cell: Cell) -> tuple[str, int] | None:
    """Tell on what a cell was measured in print: metric and number of rows; None where that is not
    known, or one sentence was asked.
    """
    return ELSEWHERE.get((recipe.paper, cell.table, cell.metric), MEASURED_ON.get(cell.measured))


def expected(recipe: Recipe, cell: Cell) -> Interval:
    """Give a printed figure and the interval that it has from its rows alone, NaN at the ends where
    nothing is known of these.

    A mean of independent figures: half widths add as squares, above and below (Zou and Donner,
    2008).
    """
    value = published()[(recipe.paper, *cell[:3])].value
    if cell.measured not in MEANS:
        return _from_rows(value, printed_on(recipe, cell))
    parts = np.array(
        [
            expected(recipe, other)
            for other in recipe.cells
            if other.table == cell.table and other.measured not in MEANS
        ]
    )
    half = np.sqrt(((parts - parts[:, :1]) ** 2).sum(0)) / len(parts)
    return Interval(value, value - float(half[1]), value + float(half[2]))


def _line(recipe: Recipe, cell: Cell, scores: Scores, outdated: set[str]) -> Line:
    device, runs = scores.usual_runs(recipe.name, cell.measured)
    found = scores.scored(recipe.name, cell.measured, runs)
    answers = tuple(taken["value"] for taken in runs.values()) if recipe.examples else ()
    return Line(
        recipe.paper,
        *cell[:3],
        recipe.name,
        expected(recipe, cell),
        found and bounds(found),
        len(runs),
        recipe.differs,
        answers,
        device,
        recipe.name in outdated,
    )


def printed_gain(claim: Claim) -> float | None:
    """Look up the gain in print: two cells of one table and metric."""
    if claim.published is not None:
        return claim.published
    places = [
        {
            (c.table, c.metric): published()[(RECIPES[name].paper, *c[:3])].value
            for c in RECIPES[name].cells
            if c.measured == claim.measured
        }
        for name in (claim.better, claim.worse)
    ]
    shared = [place for place in places[0] if place in places[1]]
    return places[0][shared[0]] - places[1][shared[0]] if shared else None


def _judge(claim: Claim, scores: Scores, outdated: set[str] = frozenset()) -> Judged:
    """Compare two rows on the seeds and the kind of machine that they have in common."""
    printed = printed_gain(claim)
    pair = scores.pair(claim.better, claim.worse, claim.measured)
    if pair is None:
        return Judged(claim, printed, None, 0, _why_unpaired(claim, scores))
    gain = bounds(pair.better, pair.worse)
    learned = scores.learned(pair, claim.better, claim.measured)
    judged = verdict(gain, printed) if learned else "inconclusive"
    outdated = not outdated.isdisjoint((claim.better, claim.worse))
    return Judged(claim, printed, gain, gain.seeds, judged, learned, pair.device, outdated)


def _why_unpaired(claim: Claim, scores: Scores) -> str:
    """Say in the place of a verdict why two rows are not compared."""
    first, second = (scores.runs(name, claim.measured) for name in (claim.better, claim.worse))
    if not (first and second):
        return NOT_COMPARED[0]
    return NOT_COMPARED[2 if first.keys() & second.keys() else 1]


def make_report(out: str | Path, data: str | None, scale: str, samples: int = SAMPLES) -> Report:
    """Score the results of one scale in a folder against the labels in a data folder."""
    scores = Scores(stored(Path(out), scale), data, samples)
    outdated = {
        name
        for name, results in scores.results.items()
        if name in RECIPES and not all(is_current(result, RECIPES[name]) for result in results)
    }
    lines = [
        _line(recipe, cell, scores, outdated)
        for recipe in RECIPES.values()
        for cell in recipe.cells
    ]
    costs = {name: _cost(results) for name, results in scores.results.items()}
    return Report(lines, [_judge(claim, scores, outdated) for claim in CLAIMS], costs)


def _cost(results: list[dict]) -> dict:
    """Average the costs of a recipe over its seeds."""
    seconds = float(np.mean([r["processor_seconds"] for r in results]))
    return {
        "seeds": len(results),
        "processor seconds": seconds,
        "GPU MB": results[0]["gpu_mb"],
        "hardware": results[0]["versions"]["hardware"],
    }


def _three(i: Interval | None) -> list | None:
    return i and [None if math.isnan(x) else round(x, 4) for x in i[:3]]


def _out_of_reach(scale: str) -> list[dict]:
    """Say of rows that this scale lacks why, and give the command of the one that has them."""
    left = [(c, r) for r in RECIPES.values() if scale not in r.scales for c in r.cells]

    def why(r):
        return f"its model is there at the scale {r.scales[-1]} alone: `minbert reproduce {r.name} --scale {r.scales[-1]} --data FOLDER` on a GPU"

    rows = {(r.paper, c.table, c.row): why(r) for c, r in left}
    return [
        {"paper": p, "table": t, "row": name, "why": reason}
        for (p, t, name), reason in rows.items()
    ]


def as_json(report: Report, scale: str) -> dict:
    """Give the report as plain values, which the site, chapter 27 and the commands show."""
    cells = [
        {
            "paper": x.paper,
            "table": x.table,
            "row": x.row,
            "metric": x.metric,
            "recipe": x.recipe,
            "printed": _three(x.printed),
            "measured": _three(x.measured),
            "seeds": x.seeds,
            "device": x.device,
            "outdated": x.outdated,
            "differs": x.differs,
            **({"answers": [round(a, 4) for a in x.answers]} if x.answers else {}),
        }
        for x in report.lines
    ]
    claims = [
        {
            "paper": RECIPES[j.claim.better].paper,
            "text": j.claim.text,
            "better": j.claim.better,
            "worse": j.claim.worse,
            "measured": j.claim.measured,
            "printed": None if j.printed is None else round(j.printed, 4),
            "gain": _three(j.gain),
            "seeds": j.seeds,
            "device": j.device,
            "outdated": j.outdated,
            "verdict": j.verdict,
            "learned": j.learned,
        }
        for j in report.judged
    ]
    left = [{"paper": p, "table": t, "row": r, "why": why} for (p, t, r), why in NOT_RUN.items()]
    return {
        "scale": scale,
        "cells": cells,
        "claims": claims,
        "costs": report.costs,
        "not run": left + _out_of_reach(scale),
    }


def totals(record: dict) -> list[str]:
    """Count verdicts: a table of the claims with a printed difference, and one of the others.

    Each paper has a line of its own, since the papers have unequal numbers of claims.
    """
    printed = [c for c in record["claims"] if c["printed"] is not None]
    others = [c for c in record["claims"] if c["printed"] is None]
    return [
        *_counts("claims with a printed difference", printed, VERDICTS),
        "",
        *_counts("claims without a printed difference", others, DIRECTIONS),
    ]


def _counts(title: str, claims: list[dict], labels: tuple[str, ...]) -> list[str]:
    labels = (*labels, *NOT_COMPARED)
    lines = [f"| {title} | all | {' | '.join(labels)} |", "|---|" + "---|" * (len(labels) + 1)]
    for paper in dict.fromkeys(c["paper"] for c in claims):
        found = Counter(c["verdict"] for c in claims if c["paper"] == paper)
        numbers = " | ".join(str(found[label]) for label in labels)
        lines.append(f"| {PAPERS.get(paper, 'Controls')} | {found.total()} | {numbers} |")
    return lines


def _text(three: list | None) -> str:
    if three is None:
        return "not run"
    value, low, high = three
    if value is None:
        return "undefined"
    return f"{value:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")


def _measured(c: dict) -> str:
    """A score with its interval; of an example what each seed says, once where they agree."""
    answers = c.get("answers", [])
    return ", ".join(
        f"{a:.3f}" for a in (answers if len({*answers}) > 1 else answers[:1])
    ) or _text(c["measured"])


def _row(c: dict) -> str:
    """The printed name of a row; of one that saw text of the test set, with a word that says so."""
    return c["row"] + " (target)" * (c["recipe"].endswith("-target") and "target" not in c["row"])


_RAN_BEFORE = " (ran before the recipe was changed)"


def _cell_line(c: dict) -> str:
    return f"| {c['table']} | {_row(c)} | {c['metric']} | {_text(c['printed'])} | {_measured(c)} | {c['seeds'] or ''} | {c['differs']}{_RAN_BEFORE * c['outdated']} |"


def _claim_line(c: dict) -> str:
    printed = "" if c["printed"] is None else f"{c['printed']:+.3f}"
    learned = "" if c["learned"] else ": neither row learned"
    seeds = c["seeds"] or ("deterministic" if c["gain"] else "")
    return (
        f"| {c['text']} | `{c['better']}` over `{c['worse']}`, {c['measured']} | {printed} "
        f"| {_text(c['gain'])} | {seeds} | {c['verdict']}{learned}{_RAN_BEFORE * c['outdated']} |"
    )


def _claim_lines(claims: list[dict]) -> list[str]:
    """A table of the claims with a printed difference, and one of those without: never pooled."""
    head = "| claim | rows and measurement | printed difference | ours | seeds | verdict |"
    out = []
    for found in (
        [c for c in claims if c["printed"] is not None],
        [c for c in claims if c["printed"] is None],
    ):
        if found:
            out += [head, "|---|---|---|---|---|---|", *map(_claim_line, found), ""]
        head = "| claim without a printed difference | rows and measurement | | ours | seeds | direction |"
    return out


def _section(title: str, key: str, record: dict) -> list[str]:
    """One paper, or the controls: cells, sentences, and what was not run."""
    cells, claims, left = (
        [x for x in record[name] if x["paper"] == key] for name in ("cells", "claims", "not run")
    )
    out = [f"## {title}", ""]
    if cells:
        out += [
            "| table | row | metric | printed (rows alone) | measured (rows and seeds) | seeds | differs from the paper in |",
            "|---|---|---|---|---|---|---|",
            *map(_cell_line, cells),
            "",
        ]
    out += _claim_lines(claims)
    return (
        out
        + [f"- Not run: {x['table']}, {x['row']}: {x['why']}." for x in left]
        + [""] * bool(left)
    )


def markdown(
    record: dict,  # from `as_json`
) -> str:
    """Write the report as tables, a section for each paper."""
    sections = PAPERS | {"control": "Controls: rows that no paper has"}
    lines = [line for key, title in sections.items() for line in _section(title, key, record)]
    return "\n".join(lines)
