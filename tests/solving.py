"""A learner who knows everything: the reference bodies, put into a workspace. For tests only."""

import re
from collections.abc import Iterable
from pathlib import Path

from minbert.course.exercises import EXERCISES
from minbert.course.learner_notebooks import marks, read_learner_notebook, written
from minbert.course.source_tools import replace


def solve(
    folder: Path, exercises: Iterable[str] | None = None, bodies: dict[str, str] | None = None
) -> list[str]:
    """Write reference definitions, or the ones of `bodies`, into the notebooks of a workspace; None
    solves all. Give the names.
    """
    wanted = set(EXERCISES if exercises is None else exercises)
    unknown, done = wanted - set(EXERCISES), []
    if unknown:
        raise ValueError(f"expected names of exercises, got {sorted(unknown)}")
    for file in sorted(
        {Path(folder) / "nbs" / f"{EXERCISES[name].notebook}.ipynb" for name in wanted}
    ):
        notebook = read_learner_notebook(file)
        for cell in (c for c in notebook.cells if c.cell_type == "code"):
            for mark in marks(cell.source):
                if mark.name in wanted:
                    definition = (bodies or {}).get(mark.name) or EXERCISES[mark.name].definition
                    cell.source = replace(cell.source, mark.target, definition)
                    done.append(mark.name)
        file.write_text(written(notebook), encoding="utf-8")
    if missing := wanted - set(done):
        raise ValueError(f"expected the cells of {sorted(missing)} in {folder}, found none")
    return done


def borrow_all(folder: Path, exercises: Iterable[str] | None = None) -> int:
    """Take the first sign off every line that borrows an exercise, as a learner who skips them;
    None: all. Give how many.
    """
    count = 0
    targets = "|".join(
        re.escape(f'borrow("{name}")') for name in (EXERCISES if exercises is None else exercises)
    )
    for file in sorted((Path(folder) / "nbs").rglob("[!.]*.ipynb")):
        notebook = read_learner_notebook(file)
        for cell in (c for c in notebook.cells if c.id.startswith("check-")):
            cell.source, found = re.subn(
                rf"^# (?=from minbert\.course import borrow;.*(?:{targets}))",
                "",
                cell.source,
                flags=re.M,
            )
            count += found
        file.write_text(written(notebook), encoding="utf-8")
    return count


def cut(folder: Path) -> int:
    """End every chapter that has exercises behind its last check; give how many cells are gone."""
    gone = 0
    for file in sorted((Path(folder) / "nbs").rglob("[!.]*.ipynb")):
        notebook = read_learner_notebook(file)
        if checks := [i for i, cell in enumerate(notebook.cells) if cell.id.startswith("check-")]:
            gone += len(notebook.cells) - checks[-1] - 1
            notebook.cells = notebook.cells[: checks[-1] + 1]
            file.write_text(written(notebook), encoding="utf-8")
    return gone
