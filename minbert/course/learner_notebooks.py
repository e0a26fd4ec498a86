"""The learner's notebooks, made from the complete chapters: exercises become stubs, checks move up,
hints are added.

Nobody edits the learner's edition, so the two cannot diverge. A check is placed before the worked
examples, because a notebook stops at the first cell that fails, and an `assert` says only that
something is wrong where a check says what. Outputs that could give a prediction away are removed,
but the kind of answer that is asked for stays.
"""

__all__ = [
    "BOOK",
    "READING",
    "LINES",
    "Mark",
    "Effort",
    "effort_of",
    "directives",
    "marks",
    "exported_module",
    "read_learner_notebook",
    "facts",
    "stubbed",
    "leaks",
    "split_checks",
    "minutes_of",
    "marks_of",
    "plural",
    "chapter_box",
    "plain",
    "folded",
    "help_text",
    "borrowing",
    "unguessed",
    "awaited",
    "shown_outputs",
    "learners_edition",
    "all_editions",
    "written",
]

import ast
import copy
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .source_tools import find, parse, planted, replace, source_of, stub


class Mark(NamedTuple):
    """What a directive says about an exercise."""

    name: str  # such as "attention.scores"
    points: int
    minutes: int
    target: str  # "function" or "Class.method"
    optional: bool = False  # nothing later needs it, and the time of a chapter does not count it


_DIRECTIVE = re.compile(r"^#\|\s*(\w+):?[ \t]*(.*)$")


def directives(
    source: str,  # of a cell
) -> list[tuple[str, str]]:  # (name, rest of the line), in order; several may share a name
    """Read the directives above the first line of code, where nbdev looks for them too."""
    found = []
    for line in source.split("\n"):
        if match := _DIRECTIVE.match(line):
            found.append((match[1], match[2].strip()))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def marks(
    source: str,  # of a cell
) -> list[Mark]:
    """Read the exercises of a cell. Raises ValueError for a directive that lacks something."""
    found = []
    for _, rest in (d for d in directives(source) if d[0] == "exercise"):
        name, *settings = rest.split()
        values = dict(s.split("=", 1) for s in settings if "=" in s)
        if (
            set(values) != {"points", "minutes", "target"}
            or not values["points"].isdigit()
            or not values["minutes"].isdigit()
        ):
            raise ValueError(
                f"expected '#| exercise NAME points=N minutes=N target=NAME', got {rest!r}"
            )
        found.append(
            Mark(
                name,
                int(values["points"]),
                int(values["minutes"]),
                values["target"],
                "optional" in settings,
            )
        )
    return found


def exported_module(
    notebook: Any,  # NotebookNode
) -> str | None:  # such as "attention"
    """Name the module that a notebook exports."""
    for cell in notebook.cells:
        for name, rest in directives(cell.source) if cell.cell_type == "code" else ():
            if name == "default_exp":
                return rest
    return None


def read_learner_notebook(file: Path) -> Any:  # NotebookNode
    """Read a notebook, of whatever version, as one of version 4. Raises ValueError if the file is
    none.
    """
    import nbformat

    try:
        notebook = nbformat.reads(file.read_text(encoding="utf-8-sig"), as_version=4)
        for cell in notebook.cells:
            cell.source, cell.cell_type = cell.source.replace("\r\n", "\n"), cell.cell_type
    except Exception as error:  # json, nbformat and attribute errors of many classes
        raise ValueError(
            f"expected a notebook in {file.name}, got {type(error).__name__}: {error}"
        ) from error
    return notebook


# parts and chapters; the other folders hold what the book stands on, and what stands on it
BOOK = "[1-5a]*/[0-9][0-9]_*.ipynb"  # five parts and the appendix


def facts(
    folder: Path,  # with the chapters of the complete edition
    # name, notebook, module, target, points, minutes, optional; in the order of the book
) -> list[dict]:
    """Collect all exercises. Raises ValueError for a name used twice, or a target that its cell
    does not define.
    """
    found = []
    for file in sorted(folder.glob(BOOK)):
        notebook = read_learner_notebook(file)
        module = exported_module(notebook)
        for cell in (c for c in notebook.cells if c.cell_type == "code"):
            for mark in marks(cell.source):
                if find(ast.parse(cell.source), mark.target) is None:
                    raise ValueError(
                        f"{file.name}: expected {mark.target} in the cell of {mark.name}, found none"
                    )
                if mark.name in {f["name"] for f in found}:
                    raise ValueError(
                        f"{file.name}: expected another name than {mark.name}, which is taken"
                    )
                found.append(
                    {
                        "name": mark.name,
                        "notebook": file.relative_to(folder).with_suffix("").as_posix(),
                        "module": module,
                        "target": mark.target,
                        "points": mark.points,
                        "minutes": mark.minutes,
                        "optional": mark.optional,
                    }
                )
    return found


def stubbed(
    source: str,  # of a cell, complete edition
    # exercise -> the changes that plant its mistake, where one is to be found
    mistakes: Mapping[str, Any] = {},
    # the same with the body of each exercise replaced by `raise NotImplementedError("exercise
    # NAME")`, or with the mistake in it
) -> str:
    """Take the answers out of a cell."""
    for mark in marks(source):
        whole = source_of(source, mark.target)
        left = (
            planted(whole, mistakes[mark.name])
            if mark.name in mistakes
            else stub(whole, f"exercise {mark.name}")
        )
        source = replace(source, mark.target, left)
    return source


def leaks(
    source: str,  # of a cell, complete edition
    # characters; shorter lines, such as `return x`, may stand anywhere, and so may `for ...:`
    length: int = 25,
) -> list[str]:  # lines of an answer that its stub still shows
    """Find what is left of the answers in the stubbed cell."""
    left, found = {line.strip() for line in stubbed(source).split("\n")}, []
    for mark in marks(source):
        whole = source_of(source, mark.target)
        given = {line.strip() for line in stub(whole, "").split("\n")}
        body = [line.strip() for line in whole.split("\n")]
        found += [
            line
            for line in body
            if len(line) > length and line[-1] != ":" and line not in given and line in left
        ]
    return found


def _called(node: ast.stmt) -> str | None:
    """Name the exercise of a line `check("name", ...)`, or None if the line is something else."""
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "check"
        and len(call.args) == 2
    ):
        return call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    return None


def split_checks(
    source: str,  # of a cell
    names: Container[str],  # of the exercises whose checks are wanted
) -> tuple[str, dict[str, str]]:  # the rest of the cell; exercise -> its line `check(...)`
    """Take the checks of some exercises out of a cell."""
    if "check(" not in source or re.search(r"^\s*[%!]", source, re.M):
        return source, {}
    found = {name: node for node in ast.parse(source).body if (name := _called(node)) in names}
    lines = source.split("\n")
    checks = {
        name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for name, node in found.items()
    }
    gone = {i for node in found.values() for i in range(node.lineno - 1, node.end_lineno)}
    return "\n".join(line for i, line in enumerate(lines) if i not in gone).strip("\n"), checks


# words of prose, and lines of code, that a careful reader takes in a minute
READING, LINES = 200, 4


class Effort(NamedTuple):
    """What a chapter asks of a reader."""

    words: int  # of prose
    lines: list[int]  # of code, for each visible cell; 0 for a required exercise
    exercises: int  # minutes that the required exercises state

    @property
    def minutes(self) -> float:
        """Estimate the time of a first careful reading, with the required exercises."""
        return self.words / READING + sum(self.lines) / LINES + self.exercises


def effort_of(
    notebook: Any,  # NotebookNode
) -> Effort:
    """Count the words, the lines of code that a reader sees, and the minutes of the exercises. The
    lines of a required exercise are not counted beside its minutes.
    """
    words = sum(
        len(re.findall(r"\w[\w'-]*", cell.source))
        for cell in notebook.cells
        if cell.cell_type == "markdown"
    )
    lines = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.strip() and not _unseen(cell):
            required = any(not mark.optional for mark in marks(cell.source))
            code = [line for line in cell.source.split("\n") if line.strip()]
            lines.append(0 if required else len(code))
    exercises = sum(mark.minutes for mark in marks_of(notebook) if not mark.optional)
    return Effort(words, lines, exercises)


def minutes_of(
    notebook: Any,  # NotebookNode
) -> int:  # a multiple of 5
    """Round the estimated time of a chapter."""
    return max(5, 5 * round(effort_of(notebook).minutes / 5))


def _unseen(cell: Any) -> bool:
    """Tell whether nobody reads a cell: it is hidden or folded, or installs."""
    return any(
        name in ("hide", "hide_input", "default_exp") or (name, rest) == ("eval", "false")
        for name, rest in directives(cell.source)
    )


def marks_of(
    notebook: Any,  # NotebookNode
) -> list[Mark]:
    """Read all exercises of a notebook."""
    return [
        mark for cell in notebook.cells if cell.cell_type == "code" for mark in marks(cell.source)
    ]


def plural(count: int, word: str) -> str:
    """Write "1 point", "2 points"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def chapter_box(
    notebook: Any,  # NotebookNode, complete edition
    find: Container[str] = (),  # exercises in which a mistake is to be found
) -> str:  # markdown
    """Say how long a chapter takes and list its exercises."""
    found = marks_of(notebook)
    if not found:
        return f"**About {minutes_of(notebook)} minutes** of reading. No exercise in this chapter."
    rows = [
        f"| `{m.name}` | {'find the mistake in' if m.name in find else 'write'} `{m.target}` | {m.points} | {m.minutes}{', optional' if m.optional else ''} |"
        for m in found
    ]
    total = f"{plural(len(found), 'exercise')}, {plural(sum(m.points for m in found), 'point')}"
    return "\n".join(
        [
            f"**About {minutes_of(notebook)} minutes**, with {total}.",
            "",
            "| Exercise | Task | Points | Minutes |",
            "|---|---|---|---|",
            *rows,
            "",
            "Where a body says `raise NotImplementedError`, write yours. Where it says that one thing is wrong, find it. Then run the check below it.",
        ]
    )


def plain(text: str) -> str:
    """Keep markdown and html from reading signs in a sentence; code between backticks stays as it
    is.
    """
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_$|])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def folded(title: str, text: str) -> str:
    """Fold a text away under a title, in markdown."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def help_text(
    exercise: Any,  # Exercise
) -> str:  # markdown
    """Write the hints of an exercise, each folded."""
    hints = [
        folded(f"Hint {i} of {len(exercise.trial.hints)}", plain(hint))
        for i, hint in enumerate(exercise.trial.hints, 1)
    ]
    return "\n".join([f"Help with `{exercise.name}`:", "", *hints])


def _cell(kind: str, name: str, source: str) -> Any:  # NotebookNode
    """Make a cell whose id follows from its name: the same release gives the same bytes."""
    from nbformat.v4 import new_code_cell, new_markdown_cell

    make = new_code_cell if kind == "code" else new_markdown_cell
    return make(source, id=re.sub(r"[^a-zA-Z0-9_-]", "-", name)[:64])


def borrowing(mark: Mark) -> str:
    """Write the line, out of use until its first sign is taken away, that borrows an exercise."""
    return f'# from minbert.course import borrow; {mark.target} = borrow("{mark.name}")   # without the first "#": go on, for no points'


def _check_and_help(mark: Mark, line: str | None, exercises: Mapping[str, Any]) -> list:
    """Give the check of an exercise a cell of its own, and its help another."""
    if mark.name not in exercises:
        raise ValueError(f"expected a trial for the exercise {mark.name}, found none")
    line = (
        line
        or f'from minbert.course import check\n\ncheck("{mark.name}", {mark.target.partition(".")[0]})'
    )
    return [
        _cell("code", f"check-{mark.name}", f"{borrowing(mark)}\n{line}"),
        _cell("markdown", f"help-{mark.name}", help_text(exercises[mark.name])),
    ]


def _place_checks(
    cells: list,  # of a complete edition; checks are taken out of them
    # exercise -> its line; number of a cell -> exercises whose check goes below it
) -> tuple[dict[str, str], dict[int, list[Mark]]]:
    """Move each check up over everything that is not exported: helpers further down may be needed."""
    home = {
        mark.name: (i, mark)
        for i, cell in enumerate(cells)
        if cell.cell_type == "code"
        for mark in marks(cell.source)
    }
    lines, places, exported = {}, {}, 0
    for i, cell in enumerate(cells):
        if cell.cell_type == "code":
            exported = (
                i
                if any(name.startswith("export") for name, _ in directives(cell.source))
                else exported
            )
            cell.source, found = split_checks(cell.source, home)
            lines |= found
            places |= {name: max(exported, home[name][0]) for name in found}
    below = {}
    for name, (_, mark) in home.items():
        # a check that nobody placed comes when everything is there
        below.setdefault(places.get(name, exported), []).append(mark)
    return lines, below


def unguessed(
    source: str,  # of a cell
) -> str:  # the same; if it is a guess, with None in its place
    """Take the answer out of a cell `#| predict NAME`, whose last line assigns it."""
    if not any(name == "predict" for name, _ in directives(source)):
        return source
    last = parse(source).body[-1]
    return "\n".join(
        [
            *source.split("\n")[: last.lineno - 1],
            f"{ast.unparse(last.targets[0])} = None   # your guess, {_kind(last.value)}, before you run the next cell",
        ]
    )


def _kind(value):
    """Say what a guess looks like, and nothing of what it is."""
    if isinstance(value, ast.List):
        return (
            "a list of texts"
            if isinstance(getattr(value.elts[0], "value", 0), str)
            else "a list of numbers"
        )
    kinds = {bool: "True or False", str: "a text"}
    return kinds.get(type(getattr(value, "value", 0)), "a number")


_PASSED = re.compile(r"^[a-z_]+\.[a-z_]+: (passed|borrowed), .*\n?", re.M)  # what `check` prints


def awaited(
    cells: list,  # of a complete edition
) -> set[int]:  # numbers of cells
    """Find the cells whose outputs would answer a guess: from `#| predict NAME` to the cell that
    calls `guessed`.
    """
    found, guessing = set(), False
    for i, cell in enumerate(cells):
        if cell.cell_type == "code":
            guessing = guessing or any(name == "predict" for name, _ in directives(cell.source))
            found |= {i} if guessing else set()
            guessing = guessing and "guessed(" not in cell.source
    return found


def shown_outputs(
    cell: Any,  # code cell, complete edition
) -> list:  # outputs
    """Give what a learner sees below a cell that has not been run: nothing that tells of a check."""
    kept = copy.deepcopy(cell.get("outputs", []))
    for output in kept:
        if "text" in output:
            output["text"] = _PASSED.sub("", "".join(output["text"]))
    return [output for output in kept if output.get("text", True)]


def learners_edition(
    notebook: Any,  # NotebookNode, complete edition
    exercises: Mapping[str, Any],  # name -> Exercise
) -> Any:  # NotebookNode; the given one is not changed
    """Make what learners get: no answers, and below each exercise its check and hints.

    Outputs stay until the learner's own replace them; those of checks and of guesses go. Raises
    ValueError for an exercise that `exercises` lacks.
    """
    made, cells = copy.deepcopy(notebook), []
    lines, below = _place_checks(made.cells)
    mistakes = {name: task.planted.changes for name, task in exercises.items() if task.planted}
    secret = awaited(made.cells)
    for i, cell in enumerate(made.cells):
        if cell.cell_type == "code":
            outputs = [] if i in secret else shown_outputs(cell)
            cell.source, cell.outputs, cell.execution_count = (
                unguessed(stubbed(cell.source, mistakes)),
                outputs,
                None,
            )
        cells += [cell] if cell.source.strip() or cell.cell_type != "code" else []
        cells += (
            [_cell("markdown", "chapter-box", chapter_box(notebook, mistakes))] if i == 0 else []
        )
        cells += [
            c
            for mark in below.get(i, ())
            for c in _check_and_help(mark, lines.get(mark.name), exercises)
        ]
    made.cells = cells
    return made


def all_editions(
    folder: Path,  # with the chapters of the complete edition
    exercises: Mapping[str, Any],  # name -> Exercise
    # part and file name, such as "1_bert/02_attention.ipynb" -> NotebookNode, in the order of the
    # book
) -> dict[str, Any]:
    """Make the learner's edition of each chapter of the book."""
    chapters = sorted(folder.glob(BOOK))
    return {
        file.relative_to(folder).as_posix(): learners_edition(
            read_learner_notebook(file), exercises
        )
        for file in chapters
    }


def written(
    notebook: Any,  # NotebookNode
) -> str:  # what a file holds
    """Write a notebook as text, always in the same way."""
    import nbformat

    return nbformat.writes(notebook, indent=1) + "\n"
