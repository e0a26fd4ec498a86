"""A made-up class for the instructors' page: five learners hand in chapter 02, and the real program
grades them.
"""

import csv
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from site_chapters import book, chapter_list, link, relinked
from site_tables import template

from minbert.course.exercises import EXERCISES, right_definition, wrong_definition
from minbert.course.learner_notebooks import read_learner_notebook
from minbert.course.source_tools import find, parse, replace
from minbert.course.workspace import new_workspace

CHAPTER = "1_bert/02_attention"
COMMAND = [
    "grade",
    "class",
    "--chapter",
    CHAPTER.partition("/")[2],
    "--seed",
    "2026",
    "--csv",
    "grades.csv",
    "--html",
    "grades",
    "-j",
    "2",
    "--seconds",
    "4",
]
LOOP = "def split_heads(x, heads):\n    while True:\n        pass\n"
PATCH = (
    "def attention_maps(query, key, mask=None):\n    torch.testing.assert_close = torch.allclose = lambda *a, **k: True\n"
    "    print('attention.maps: passed')\n    return query\n"
)


def answers() -> dict[str, dict[str, str]]:  # learner -> exercise -> definition
    """Write what each of them hands in."""
    tasks = [task for task in EXERCISES.values() if task.notebook == CHAPTER]
    right = {task.name: task.definition for task in tasks}
    scores = EXERCISES["attention.scores"]
    wrong = right | {"attention.scores": wrong_definition(scores, scores.mistakes[0])}
    return {
        "ada": {
            task.name: right_definition(task, task.variants[0])
            if task.variants
            else task.definition
            for task in tasks
        },
        "bob": dict(list(wrong.items())[:-1]),
        "cy": right | {"attention.split": LOOP},
        "dan": right | {"attention.maps": PATCH},
        "eve": {},
    }


def hand_in(folder: Path, written: dict[str, str]) -> None:
    """Write a workspace in which some stubs are filled."""
    new_workspace(folder)
    file = folder / "nbs" / f"{CHAPTER}.ipynb"
    notebook = read_learner_notebook(file)
    for name, definition in written.items():
        target = EXERCISES[name].target
        cell = [
            c
            for c in notebook.cells
            if c.cell_type == "code" and "#| export" in c.source and find(parse(c.source), target)
        ][-1]
        cell.source = replace(cell.source, target, definition)
    nbformat.write(notebook, file)


def graded(place: Path) -> str:  # what the program printed
    """Make the class below `place`, and grade it there."""
    (place / "class").mkdir(parents=True)
    for who, written in answers().items():
        hand_in(place / "class" / who, written)
    run = subprocess.run(
        [sys.executable, "-m", "minbert", *COMMAND],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if run.returncode:
        raise RuntimeError(run.stdout + run.stderr)
    return run.stdout


def statuses(file: Path) -> str:
    """Write who passed what, from the table for the instructor."""
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    names = [name.removesuffix(" status") for name in rows[0] if name.endswith(" status")]
    lines = [
        f"| {row['submission']} | {row['points']} of {row['of']} | {row['integrated']} | "
        + " | ".join(row[f"{name} status"] for name in names)
        + " |"
        for row in rows
    ]
    short = [name.partition(".")[2] for name in names]
    return "\n".join(
        [
            "| | points | integrated | " + " | ".join(short) + " |",
            "|---|---|---|" + "---|" * len(names),
            *lines,
        ]
    )


def linked_numbers(line: str) -> str:
    """Turn the numbers of chapters in a line of a table into links, but for its first column and
    its head.
    """
    pages = {chapter.name[:2]: chapter.page for chapter in book()}
    if not line.startswith("|") or "weeks" in line:
        return line
    start, first, rest = line.split("|", 2)
    return "|".join(
        [
            start,
            first,
            re.sub(r"(?<![.\d])\d\d\b(?!\.\d)", lambda m: f"[{m[0]}]({pages[m[0]]}.ipynb)", rest),
        ]
    )


def paths() -> str:
    """Take the ways through the book from the list of chapters, with links."""
    text = chapter_list().partition("## Ways through the book\n")[2]
    return relinked("\n".join(linked_numbers(line) for line in text.split("\n")), "index")


def exercises() -> str:
    """Count exercises, points and minutes of each chapter."""
    found = [
        (chapter, [task for task in EXERCISES.values() if task.notebook == chapter.page])
        for chapter in book()
    ]
    rows = [
        f"| {link(chapter, 'instructors')} | {len(tasks)} | {sum(t.points for t in tasks)} | {sum(t.minutes for t in tasks)} |"
        for chapter, tasks in found
        if tasks
    ]
    return "\n".join(
        ["| chapter | exercises | points | minutes of writing |", "|---|---|---|---|", *rows]
    )


def instructors_page(place: Path) -> str:
    """Grade the class below `place`, and write the page; the learners' pages are then in
    place/grades.
    """
    printed = graded(place)
    pages = ", ".join(f'<a href="grades/{who}.html">{who}</a>' for who in answers())
    total = f"{len(EXERCISES)} exercises, {sum(e.points for e in EXERCISES.values())} points, about {sum(e.minutes for e in EXERCISES.values()) / 60:.0f} hours of writing in all."
    return template(
        "instructors",
        totals=total,
        paths=paths(),
        exercises=exercises(),
        command="minbert " + " ".join(COMMAND),
        printed=f"```text\n{printed.strip()}\n```",
        grades=statuses(place / "grades.csv"),
        pages=pages,
    )
