"""How a chapter is paced: lines a code cell, words between them, outputs, minutes.

    python scripts/pacing.py              # a row a chapter, and the book as a whole
    python scripts/pacing.py nbs/1_bert   # one part
    python scripts/pacing.py --plans      # write the hours into docs/chapters.md, the minutes into the chapters

Only cells that a reader sees count: hidden ones, and those that install, do not. A line is one that
is not blank; cells of an exported module count like others. Minutes are an estimate of what a first
careful reading costs: 200 words or 4 lines of code a minute, and what the exercises say that are
not optional, whose own lines are not counted (minbert.course.learner_notebooks).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

import nbformat
import numpy as np

from minbert.course.learner_notebooks import Effort, effort_of, minutes_of

ROOT = Path(__file__).resolve().parent.parent
LONGEST, HOURS = 45, 90  # lines of a cell, minutes of a chapter: what a reader can hold
HIDDEN = re.compile(r"^#\|\s*(hide|default_exp|eval:\s*false)", re.M)


class Pace(NamedTuple):
    """One chapter, or several."""

    name: str
    lines: list[int]  # of each visible code cell
    shown: int  # visible code cells with an output
    effort: Effort

    @property
    def minutes(self) -> float:
        """What reading and exercises take."""
        return self.effort.minutes

    def __str__(self) -> str:
        cells = max(1, len(self.lines))
        middle, ninth = median(self.lines or [0]), np.quantile(self.lines or [0], 0.9)
        return f"{self.name:32}{cells:6}{middle:8.0f}{ninth:8.0f}{max(self.lines or [0]):8}{self.effort.words / cells:8.0f}{self.shown / cells:8.0%}{self.minutes:9.0f}"


def pace(file: Path) -> Pace:
    """Measure one notebook."""
    notebook = nbformat.read(file, as_version=4)
    seen = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.strip() and not HIDDEN.search(cell.source)
    ]
    lines = [sum(bool(line.strip()) for line in cell.source.split("\n")) for cell in seen]
    shown = sum(bool(cell.get("outputs")) for cell in seen)
    return Pace(file.stem, lines, shown, effort_of(notebook))


def together(paces: list[Pace]) -> Pace:
    """Add chapters up."""
    return Pace(
        "all",
        [n for p in paces for n in p.lines],
        sum(p.shown for p in paces),
        Effort(
            sum(p.effort.words for p in paces),
            [n for p in paces for n in p.effort.lines],
            sum(p.effort.exercises for p in paces),
        ),
    )


PLANS = ROOT / "docs/chapters.md"
TIME = re.compile(r"(\| \*\*Time\*\* \| about )\d+(?= minutes)")
CHAPTERS = r"\d\d(?:(?:, | to )\d\d)*"
PLAN = re.compile(rf"(?<=.\| )({CHAPTERS})(?: \(\d+\.\d h\))?(?= \|)")  # a cell behind the first


def chapters_of(plan: str, known: list[str]) -> list[str]:
    """Read a list such as "00, 07 to 10". Raises ValueError for a chapter that is not there."""
    chosen = []
    for piece in plan.split(", "):
        first, _, last = piece.partition(" to ")
        if unknown := {first, last or first} - set(known):
            raise ValueError(f"expected numbers of chapters, got {min(unknown)} in {plan!r}")
        chosen += [number for number in known if first <= number <= (last or first)]
    return chosen


def with_hours(text: str, minutes: dict[str, float]) -> str:
    """Write behind each list of chapters in a table how many hours they take; `minutes` maps a
    chapter's number to its minutes.
    """
    introduction, heading, plans = text.partition("## Ways through the book")

    def timed(cell: re.Match) -> str:
        hours = sum(minutes[number] for number in chapters_of(cell[1], list(minutes))) / 60
        return f"{cell[1]} ({hours:.1f} h)"

    return introduction + heading + PLAN.sub(timed, plans)


def plans_with_hours() -> str:
    """Return docs/chapters.md with the hours of today's chapters."""
    files = sorted((ROOT / "nbs").glob("[1-5a]*/[0-9][0-9]_*.ipynb"))
    minutes = {file.stem[:2]: pace(file).minutes for file in files}
    return with_hours(PLANS.read_text(encoding="utf-8"), minutes)


def with_minutes(text: str) -> str:
    """Write the time of a chapter, rounded to 5 minutes, into the text of its notebook."""
    minutes = minutes_of(nbformat.reads(text, as_version=4))
    return TIME.sub(rf"\g<1>{minutes}", text)


def main() -> None:
    if sys.argv[1:] == ["--plans"]:
        for file in sorted((ROOT / "nbs").glob("[1-5a]*/[0-9][0-9]_*.ipynb")):
            file.write_text(with_minutes(file.read_text(encoding="utf-8")), encoding="utf-8")
        PLANS.write_text(plans_with_hours(), encoding="utf-8")
        return
    places = [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "nbs").glob("[1-5a]*"))
    files = [
        file
        for place in places
        for file in (sorted(place.glob("*.ipynb")) if place.is_dir() else [place])
    ]
    paces = [pace(file) for file in files]
    print(
        f"{'chapter':32}{'cells':>6}{'median':>8}{'ninth':>8}{'longest':>8}{'words':>8}{'output':>8}{'minutes':>9}"
    )
    print(*paces, together(paces), sep="\n")
    long = [f"{p.name} ({n} lines)" for p in paces for n in p.lines if n > LONGEST]
    print(f"cells above {LONGEST} lines: {len(long)}{': ' if long else ''}{', '.join(long)}")
    print(
        f"chapters above {HOURS} minutes: {', '.join(p.name for p in paces if p.minutes > HOURS) or 'none'}"
    )


if __name__ == "__main__":
    main()
