"""An update loses nothing: random edits of a learner against random changes of a release."""

import ast
import copy
import os
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell
from solving import solve

from minbert.course import workspace_update
from minbert.course.cell_merge import (
    Merged,
    definition_in,
    merged_cell,
    merged_definition,
    merged_lines,
)
from minbert.course.exercises import EXERCISES
from minbert.course.learner_notebooks import learners_edition, marks, read_learner_notebook, written
from minbert.course.source_tools import parse, source_of
from minbert.course.workspace import BASE, new_workspace, packaged_editions
from minbert.course.workspace_update import (
    HIDDEN,
    merged_cells,
    merged_notebook,
    partners,
    update_workspace,
)

EXAMPLES = int(os.environ.get("MINBERT_EXAMPLES", "60"))

MADE = new_notebook(
    cells=[
        new_markdown_cell("# Circles\n\n> Round.", id="title"),
        new_code_cell("#| default_exp circles", id="exp"),
        new_code_cell("#| export\nimport math\nfrom typing import NamedTuple", id="imports"),
        new_markdown_cell("What is round?", id="q"),
        new_code_cell(
            '''#| export
#| exercise circles.double points=1 minutes=5 target=double
#| exercise circles.half points=1 minutes=5 target=half
LIMIT = 3


def double(
    x: float,   # a number
) -> float:     # twice as much
    """Double a number.

    2 x
    """
    return x + x


def half(x, by=2):
    """Halve."""
    return x / by
''',
            id="pair",
        ),
        new_code_cell('assert double(2) == 4\ncheck("circles.double", double)', id="sums"),
        new_markdown_cell("Now the circle itself.", id="m"),
        new_code_cell(
            '''#| export
#| exercise circles.area points=2 minutes=5 target=Circle.area
class Circle:
    """Round."""

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        """Pi times the radius, squared."""
        return math.pi * self.radius ** 2

    def bigger(self):
        return Circle(double(self.radius))
''',
            id="circle",
        ),
        new_code_cell('check("circles.area", Circle)', id="check"),
        new_code_cell("for r in range(3):\n    print(r, Circle(r).area())", id="loop"),
        new_markdown_cell("## Next\n\n- Draw it.\n- Square it.", id="next"),
    ]
)


class Help:
    """Help for any exercise."""

    def __init__(self, name):
        self.name, self.trial, self.mistakes, self.hints, self.planted = (
            name,
            self,
            (),
            ("Look.",),
            None,
        )


EDITION = learners_edition(
    MADE, {n: Help(n) for n in ("circles.double", "circles.half", "circles.area")}
)
REAL = nbformat.reads(packaged_editions()["1_bert/02_attention.ipynb"], as_version=4)
TODO = "raise NotImplementedError"


# ---------------------------------------------------------------- what a learner does, and what a
# release does


def stubs(cells):
    """List the lines to be replaced by answers."""
    return [
        (c, i)
        for c in cells
        if c.cell_type == "code"
        for i, line in enumerate(c.source.split("\n"))
        if TODO in line
    ]


def set_line(cell, i, *new):
    lines = cell.source.split("\n")
    lines[i : i + 1] = [lines[i][: len(lines[i]) - len(lines[i].lstrip())] + line for line in new]
    cell.source = "\n".join(lines)


def insert_above_code(cell, line):
    """Put a line below the directives."""
    lines = cell.source.split("\n")
    at = next((i for i, old in enumerate(lines) if not old.startswith("#")), len(lines))
    cell.source = "\n".join([*lines[:at], line, *lines[at:]])


def learner(cells, kind, i, j, n):
    """Do one thing to a notebook; every line written is new: it holds the number n."""
    if not cells:
        kind = "add"
    at, cell = i % max(1, len(cells)), cells[i % len(cells)] if cells else None
    code = [c for c in cells if c.cell_type == "code"]
    if kind == "add":
        cells.insert(
            i % (len(cells) + 1),
            [
                new_code_cell(f"mine_{n} = {n}\nprint(mine_{n})"),
                new_markdown_cell(f"I think {n}"),
                new_raw_cell(f"raw {n}"),
            ][j % 3],
        )
    elif kind == "answer" and stubs(cells):
        where, line = stubs(cells)[j % len(stubs(cells))]
        set_line(where, line, f"# answer {n}", f"answer_{n} = {n}", f"return answer_{n}")
    elif kind == "move":
        cells.insert(j % len(cells), cells.pop(at))
    elif kind == "delete":
        cells.pop(at)
    elif kind == "copy":
        twin = copy.deepcopy(cell)
        if j % 3:
            twin["id"] = f"copy-{n}"
        cells.insert(j % (len(cells) + 1), twin)
    elif kind == "split":
        lines = cell.source.split("\n")
        cut = j % len(lines)
        twin = copy.deepcopy(cell)
        cell.source, twin.source, twin["id"] = (
            "\n".join(lines[:cut]),
            "\n".join(lines[cut:]),
            f"split-{n}",
        )
        cells.insert(at + 1, twin)
    elif kind == "join" and at + 1 < len(cells):
        cell.source += "\n" + cells.pop(at + 1).source
    elif kind == "helper" and code:
        insert_above_code(code[j % len(code)], f"def helper_{n}(x):\n    return x + {n}\n")
    elif kind == "import" and code:
        insert_above_code(code[j % len(code)], f"import math as math_{n}")
    elif kind == "edit":
        set_line(cell, j % len(cell.source.split("\n")), f"edited_{n} = {n}")
    elif kind == "append":
        cell.source += f"\nappended_{n} = {n}"
    elif kind == "broken" and code:
        code[j % len(code)].source += f"\ndef broken_{n}(:"
    elif kind == "magic" and code:
        code[j % len(code)].source = f"%time magic_{n}\n" + code[j % len(code)].source
    elif kind == "wipe ids":
        for c in cells:
            c.pop("id", None)
    elif kind == "new ids":
        for k, c in enumerate(cells):
            c["id"] = f"new-{n}-{k}"
    elif kind == "type":
        cells[at] = (new_markdown_cell if cell.cell_type == "code" else new_code_cell)(
            cell.source + f"\ntyped_{n} = {n}", id=cell.get("id") or f"type-{n}"
        )
    elif kind == "run" and code:
        code[j % len(code)]["outputs"] = [nbformat.v4.new_output("stream", text=f"{n}\n")]


LEARNER = (
    "add",
    "answer",
    "answer",
    "answer",
    "move",
    "delete",
    "copy",
    "split",
    "join",
    "helper",
    "import",
    "edit",
    "append",
    "broken",
    "magic",
    "wipe ids",
    "new ids",
    "type",
    "run",
)


def release(cells, kind, i, j, n):
    """Change one thing in the edition."""
    at, cell = i % len(cells), cells[i % len(cells)]
    targets = [(c, m) for c in cells if c.cell_type == "code" for m in marks(c.source)]
    if kind == "add":
        cells.insert(
            i % len(cells) + 1,
            [
                new_code_cell(f"release_{n} = {n}", id=f"rel-{n}"),
                new_markdown_cell(f"News {n}", id=f"rel-{n}"),
            ][j % 2],
        )
    elif kind == "text":
        set_line(cell, j % len(cell.source.split("\n")), f"# release {n}") if not marks(
            cell.source
        ) else insert_above_code(cell, f"GIVEN_{n} = {n}")
    elif kind == "text, new id":
        cell.source += f"\n# release {n}"
        cell["id"] = f"rel-{n}"
    elif kind == "remove" and len(cells) > 2:
        cells.pop(at)
    elif kind == "swap" and at + 1 < len(cells):
        cells[at], cells[at + 1] = cells[at + 1], cells[at]
    elif targets:
        where, mark = targets[j % len(targets)]
        name = mark.target.rpartition(".")[2]
        if kind == "signature":
            where.source = where.source.replace(f"def {name}(", f"def {name}(new_{n}, ", 1)
        elif kind == "docstring":
            where.source = where.source.replace('    """', f'    """Release {n}. ', 1)
        elif kind == "rename exercise":
            where.source = where.source.replace(mark.name, f"{mark.name}{n}")
        elif kind == "rename target" and where.source.count(name) < 4:
            where.source = where.source.replace(name, f"{name}_{n}")
        elif kind == "no exercise":
            cells.remove(where)


RELEASE = (
    "add",
    "text",
    "text",
    "text, new id",
    "remove",
    "swap",
    "signature",
    "docstring",
    "docstring",
    "rename exercise",
    "rename target",
    "no exercise",
)


def done(edition, what, steps, first=1000):
    notebook = copy.deepcopy(edition)
    for n, (kind, i, j) in enumerate(steps, first):
        what(notebook.cells, kind, i, j, n)
    return notebook


def steps(kinds, most):
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.integers(0, 99), st.integers(0, 99)), max_size=most
    )


def lines_of(notebook):
    return {line.strip() for c in notebook.cells for line in c.source.split("\n") if line.strip()}


def bare(notebook):
    return [(c.get("id"), c.cell_type, c.source) for c in notebook.cells]


# ---------------------------------------------------------------- the properties


def holds(base, mine, theirs):
    before = copy.deepcopy((base, mine, theirs))
    result = merged_notebook(base, mine, theirs)
    assert (base, mine, theirs) == before, "an argument was changed"
    nbformat.validate(nbformat.reads(written(result), as_version=4))
    ids = [c.id for c in result.cells]
    assert len(ids) == len(set(ids))
    # nothing the learner wrote is lost
    everything = "\n".join(c.source for c in result.cells)
    lost = [line for line in lines_of(mine) - lines_of(base) if line not in everything]
    assert not lost, lost
    # everything given is there, in the order of the release
    given_ids = [c.id for c in theirs.cells]
    assert [i for i in ids if i in set(given_ids)] == given_ids
    handed_out = {(c.cell_type, c.source) for c in base.cells}
    for cell in theirs.cells:
        now = result.cells[ids.index(cell.id)]
        if (cell.cell_type, cell.source) not in handed_out and not marks(cell.source):
            assert (now.cell_type, now.source) == (cell.cell_type, cell.source)
    assert merged_notebook(theirs, result, theirs) == result  # again: nothing changes
    # again, after an interruption: nothing is lost
    resumed = "\n".join(c.source for c in merged_notebook(base, result, theirs).cells)
    assert not [line for line in lines_of(mine) - lines_of(base) if line not in resumed]
    return result


quiet = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[p for p in Phase if p is not Phase.shrink or "MINBERT_NOSHRINK" not in os.environ],
    derandomize="MINBERT_EXAMPLES" not in os.environ,
)


@quiet
@given(steps(LEARNER, 8), steps(RELEASE, 5))
def test_nothing_is_lost_in_a_made_up_chapter(learners, releases):
    holds(EDITION, done(EDITION, learner, learners), done(EDITION, release, releases))


@settings(quiet, max_examples=max(10, EXAMPLES // 4))
@given(steps(LEARNER, 12), steps(RELEASE, 6))
def test_nothing_is_lost_in_a_real_chapter(learners, releases):
    holds(REAL, done(REAL, learner, learners), done(REAL, release, releases))


@settings(quiet, max_examples=max(10, EXAMPLES // 2))
@given(steps(LEARNER, 6), steps(RELEASE, 3), steps(RELEASE, 3), steps(LEARNER, 4))
def test_nothing_is_lost_over_two_releases(learners, first, second, more):
    newer = done(EDITION, release, first)
    mine = done(holds(EDITION, done(EDITION, learner, learners), newer), learner, more, 2000)
    holds(newer, mine, done(newer, release, second, 2000))


@settings(quiet, max_examples=max(10, EXAMPLES // 2))
@given(steps(LEARNER, 6), steps(RELEASE, 3))
def test_nothing_is_lost_when_the_base_is(learners, releases):
    mine, theirs = done(EDITION, learner, learners), done(EDITION, release, releases)
    result = merged_notebook(None, mine, theirs)
    everything = "\n".join(c.source for c in result.cells)
    assert not [line for line in lines_of(mine) if line not in everything]
    assert bare(merged_notebook(theirs, result, theirs)) == bare(result)


@quiet
@given(
    st.lists(st.sampled_from("abcd"), max_size=6),
    st.lists(st.sampled_from("abcdx"), max_size=6),
    st.lists(st.sampled_from("abcdy"), max_size=6),
)
def test_lines_merge(base, mine, theirs):
    merged = merged_lines(base, mine, theirs)
    assert (
        merged_lines(base, mine, base) == mine
        and merged_lines(base, base, theirs) == theirs
        and merged_lines(base, mine, mine) == mine
    )
    if merged is not None:
        assert merged.count("x") == mine.count("x") and merged.count("y") == theirs.count("y")
        assert merged_lines(base, theirs, mine) is not None


@pytest.mark.parametrize(
    "base, mine, theirs, merged",
    [
        ("ab", "xb", "ay", "xy"),
        ("ab", "axb", "yb", "yxb"),
        ("", "x", "y", "yx"),
        ("a", "xa", "ya", "yxa"),
        ("ab", "x", "yb", None),
        ("a", "x", "y", None),
    ],
)
def test_neighbouring_lines_merge_and_the_same_line_does_not(base, mine, theirs, merged):
    """Where both insert, what the release wrote comes first."""
    assert merged_lines(base, mine, theirs) == (merged and [*merged])


# ---------------------------------------------------------------- what should happen in the plain
# cases


def changed(notebook, *edits):
    """Edit a copy of a notebook: (id, old, new)."""
    made = copy.deepcopy(notebook)
    for name, old, new in edits:
        [cell] = [c for c in made.cells if c.id == name]
        assert cell.source.count(old) == 1, (name, old)
        cell.source = cell.source.replace(old, new)
    return made


def cell(notebook, name):
    return next(c.source for c in notebook.cells if c.id == name)


def conflicts(notebook):
    return [c for c in notebook.cells if c.source.startswith("## Conflict")]


DOUBLE = "    raise NotImplementedError('exercise circles.double')"
AREA = "raise NotImplementedError('exercise circles.area')"
SOLVED = changed(
    EDITION,
    ("pair", DOUBLE, "    two = 2   # why not\n    return two * x"),
    ("circle", AREA, "return 3 * self.radius ** 2"),
)


def test_answers_go_under_the_new_docstring():
    theirs = changed(
        EDITION,
        ("pair", "Double a number.", "Give twice a number."),
        ("circle", "Pi times", "π times"),
        ("circle", "return Circle(double(self.radius))", "return Circle(2 * self.radius)"),
    )
    result = merged_notebook(EDITION, SOLVED, theirs)
    assert not conflicts(result) and len(result.cells) == len(theirs.cells)
    pair, circle = cell(result, "pair"), cell(result, "circle")
    assert (
        "Give twice a number." in pair
        and "Double a number." not in pair
        and "return two * x" in pair
    )
    assert (
        "π times" in circle
        and "return 3 * self.radius ** 2" in circle
        and "Circle(2 * self.radius)" in circle
    )
    assert "exercise circles.half'" in pair  # not solved: still a stub
    names = {}
    exec(pair, names)
    assert names["double"](4) == 8


def test_a_changed_signature_is_a_conflict_and_the_new_stub_stays():
    theirs = changed(
        EDITION,
        ("pair", "    x: float,   # a number", "    x: float,   # a number\n    times: int = 2,"),
    )
    result = merged_notebook(EDITION, SOLVED, theirs)
    [heading] = conflicts(result)
    below = result.cells[result.cells.index(heading) + 1]
    assert cell(result, "pair") == cell(theirs, "pair") and "`double`" in heading.source
    assert "#     return two * x" in below.source and not ast.parse(below.source).body
    assert result.cells.index(heading) == [c.id for c in result.cells].index("pair") + 1
    assert "return 3 * self.radius" in cell(result, "circle")


def test_an_annotation_or_a_comment_is_no_conflict():
    theirs = changed(EDITION, ("pair", "x: float,   # a number", "x: float | int,   # any number"))
    result = merged_notebook(EDITION, SOLVED, theirs)
    assert (
        not conflicts(result)
        and "x: float | int,   # any number" in cell(result, "pair")
        and "two * x" in cell(result, "pair")
    )


def test_helpers_and_imports_in_the_cell_stay_active():
    mine = changed(
        SOLVED,
        (
            "pair",
            "LIMIT = 3\n",
            "import os\n\nLIMIT = 3\n\n\ndef helper(x):\n    return os.name, x\n",
        ),
    )
    theirs = changed(
        EDITION,
        ("pair", "Double a number.", "Give twice a number."),
        ("pair", "LIMIT = 3", "LIMIT = 4"),
    )
    source = cell(merged_notebook(EDITION, mine, theirs), "pair")
    both = changed(EDITION, ("pair", "Double a number.", "Give twice a number."))
    kept = cell(merged_notebook(EDITION, mine, both), "pair")
    assert (
        "def helper(x):\n    return os.name, x" in kept
        and "import os\n" in kept
        and "Give twice" in kept
        and "return two * x" in kept
    )
    assert "LIMIT = 4" in source and "return two * x" in source


def test_an_answer_in_a_copy_counts_and_an_older_one_is_shown():
    mine = copy.deepcopy(SOLVED)
    mine.cells.append(
        new_code_cell(cell(SOLVED, "pair").replace("two * x", "x + x + 0"), id="again")
    )
    theirs = changed(EDITION, ("pair", "Double a number.", "Give twice a number."))
    result = merged_notebook(EDITION, mine, theirs)
    assert "return x + x + 0" in cell(result, "pair") and "return x + x + 0" in cell(
        result, "again"
    )
    [heading] = conflicts(result)
    assert "return two * x" in result.cells[result.cells.index(heading) + 1].source


def test_an_answer_that_moved_to_a_cell_of_its_own_comes_back():
    definition = source_of(cell(SOLVED, "pair"), "double")
    mine = copy.deepcopy(EDITION)
    mine.cells = [c for c in mine.cells if c.id != "pair"] + [
        new_code_cell("#| export\n" + definition, id="own")
    ]
    theirs = changed(EDITION, ("pair", "Halve.", "Divide."))
    result = merged_notebook(EDITION, mine, theirs)
    assert (
        "return two * x" in cell(result, "pair")
        and "Divide." in cell(result, "pair")
        and cell(result, "own") == "#| export\n" + definition
    )


def test_a_renamed_exercise_keeps_its_answer():
    theirs = copy.deepcopy(EDITION)
    for c in theirs.cells:
        c.source = c.source.replace("circles.double", "circles.twice")
    result = merged_notebook(EDITION, SOLVED, theirs)
    assert (
        not conflicts(result)
        and "#| exercise circles.twice" in cell(result, "pair")
        and "return two * x" in cell(result, "pair")
    )


# a release cuts the class in two, and one function gets a cell of its own
PARTS = copy.deepcopy(EDITION)
for _cell in PARTS.cells:
    if _cell.id == "circle":
        _cell.source = _cell.source.replace("target=Circle.area", "target=Round.area").replace(
            "class Circle:", "class Round:"
        )
PARTS.cells.append(new_code_cell("#| export\nclass Circle(Round):\n    pass", id="rest"))


def test_an_answer_goes_along_when_its_method_moves_to_another_class():
    result = merged_notebook(EDITION, SOLVED, PARTS)
    assert not conflicts(result)
    assert source_of(cell(result, "circle"), "Round.area").rstrip().endswith(
        "return 3 * self.radius ** 2"
    ) and "class Circle:" not in cell(result, "circle")
    assert (
        bare(merged_notebook(PARTS, result, PARTS))
        == bare(result)
        == bare(merged_notebook(EDITION, result, PARTS))
    )
    untouched = merged_notebook(EDITION, EDITION, PARTS)
    assert bare(untouched) == bare(PARTS)


def test_an_answer_goes_along_when_one_of_two_exercises_gets_its_own_cell_and_another_docstring():
    theirs, half = copy.deepcopy(EDITION), source_of(cell(EDITION, "pair"), "half")
    for c in theirs.cells:
        if c.id == "pair":
            c.source = (
                c.source.replace("#| exercise circles.half points=1 minutes=5 target=half\n", "")
                .replace(half, "")
                .rstrip()
                + "\n"
            )
    theirs.cells.append(
        new_code_cell(
            "#| export\n#| exercise circles.half points=1 minutes=5 target=half\n"
            + half.replace("Halve.", "Cut in two."),
            id="half",
        )
    )
    mine = changed(
        SOLVED, ("pair", "raise NotImplementedError('exercise circles.half')", "return x * .5")
    )
    result = merged_notebook(EDITION, mine, theirs)
    assert not conflicts(result)
    assert (
        "return x * .5" in cell(result, "half")
        and "Cut in two." in cell(result, "half")
        and "def half" not in cell(result, "pair")
        and "return two * x" in cell(result, "pair")
    )


def test_an_exercise_that_is_gone_leaves_a_conflict():
    theirs = copy.deepcopy(EDITION)
    theirs.cells = [c for c in theirs.cells if "circle" not in c.id]
    result = merged_notebook(EDITION, SOLVED, theirs)
    [heading] = conflicts(result)
    assert (
        "dropped" in heading.source
        and "# " + " " * 8 + "return 3 * self.radius ** 2"
        in result.cells[result.cells.index(heading) + 1].source
    )


def test_a_given_function_that_became_an_exercise_is_a_stub():
    older = changed(
        EDITION,
        ("circle", AREA, "return math.pi * self.radius ** 2"),
        ("circle", "#| exercise circles.area points=2 minutes=5 target=Circle.area\n", ""),
    )
    result = merged_notebook(older, older, EDITION)
    assert AREA in cell(result, "circle") and not conflicts(result)


def test_a_given_cell_that_both_changed_is_a_conflict_of_its_kind():
    mine = changed(
        EDITION,
        ("loop", "range(3)", "range(5)"),
        ("q", "What is round?", "What is a wheel?"),
        ("m", "itself", "alone"),
    )
    theirs = changed(
        EDITION, ("loop", "range(3)", "range(9)"), ("q", "What is round?", "What is square?")
    )
    result = merged_notebook(EDITION, mine, theirs)
    kinds = [result.cells[result.cells.index(c) + 1].cell_type for c in conflicts(result)]
    assert kinds == ["markdown", "code"] and cell(result, "m") == "Now the circle alone."
    assert cell(result, "loop") == cell(theirs, "loop") and "# for r in range(5):" in "\n".join(
        c.source for c in result.cells
    )


def test_a_guess_stays_when_the_release_only_rewords_what_it_asks_for():
    def cell(line):
        return new_code_cell(f"#| predict a.b\n{line}", id="guess")

    old, mine = cell("guess = None   # your guess"), cell("guess = 7")
    assert [
        c.source for c in merged_cells(old, mine, cell("guess = None   # your guess, a number"), {})
    ] == [mine.source]
    assert [
        c.source for c in merged_cells(old, old, cell("guess = None   # your guess, a number"), {})
    ] == ["#| predict a.b\nguess = None   # your guess, a number"]
    # another question: a conflict
    assert len(merged_cells(old, mine, cell("rows = 3\nguess = None   # your guess"), {})) == 3


def test_outputs_stay_with_a_cell_whose_text_stays():
    mine = copy.deepcopy(SOLVED)
    for c in mine.cells:
        if c.cell_type == "code":
            c.outputs, c.execution_count, c.metadata["mine"] = (
                [nbformat.v4.new_output("stream", text="hi\n")],
                3,
                True,
            )
    theirs = changed(EDITION, ("loop", "range(3)", "range(9)"), ("pair", "Halve.", "Divide."))
    result = {c.id: c for c in merged_notebook(EDITION, mine, theirs).cells}
    assert (
        result["circle"].outputs
        and result["circle"].metadata["mine"]
        and result["circle"].execution_count == 3
    )
    assert (
        not result["loop"].outputs
        and not result["pair"].outputs
        and result["pair"].execution_count is None
    )


def test_a_learners_own_cell_stays_behind_the_cell_it_stood_behind():
    mine, theirs = copy.deepcopy(EDITION), changed(EDITION, ("m", "circle itself", "circle"))
    theirs.cells.insert(0, new_markdown_cell("News", id="news"))
    for name in ("sums", "next"):
        at = [c.id for c in mine.cells].index(name) + 1
        mine.cells.insert(at, new_code_cell("mine", id=f"behind-{name}"))
    mine.cells.insert(0, new_markdown_cell("My notes", id="first"))
    ids = [c.id for c in merged_notebook(EDITION, mine, theirs).cells]
    assert ids[0] == "first" and all(
        ids[ids.index(name) + 1] == f"behind-{name}" for name in ("sums", "next")
    )


def test_a_learners_kernel_stays_and_what_the_release_says_of_itself_comes():
    mine, theirs = copy.deepcopy(EDITION), changed(EDITION, ("m", "circle itself", "circle"))
    mine.metadata, theirs.metadata = (
        {**own, "kernelspec": {"name": name, "display_name": name}}
        for own, name in (({"colab": {}}, "mine"), ({"news": 1}, "python3"))
    )
    assert merged_notebook(EDITION, mine, theirs).metadata == {
        "colab": {},
        "news": 1,
        "kernelspec": {"name": "mine", "display_name": "mine"},
    }


def test_cells_without_ids_and_with_new_ones_are_still_known():
    theirs = changed(EDITION, ("loop", "range(3)", "range(9)"), ("title", "Circles", "Rings"))
    for new_id in (lambda i: None, lambda i: f"other-{i}"):
        mine = copy.deepcopy(SOLVED)
        for i, c in enumerate(mine.cells):
            c.pop("id")
            if new_id(i):
                c["id"] = new_id(i)
        assert bare(merged_notebook(EDITION, mine, theirs)) == bare(
            merged_notebook(EDITION, SOLVED, theirs)
        )


def test_partners_are_unique():
    a, b = new_code_cell("x = 1", id="a"), new_code_cell("x = 1", id="b")
    twin = new_code_cell("x = 1", id="a")
    assert partners([a, twin, b], [a, b]) == {0: 0, 2: 1}
    assert partners([twin, twin, twin], [a, b]) == {0: 0, 1: 1}
    assert partners([], [a]) == partners([a], []) == {}


# ---------------------------------------------------------------- folders


@pytest.fixture
def mine(tmp_path) -> Path:
    return new_workspace(tmp_path / "my-bert")


def snapshot(folder):
    return {
        str(f.relative_to(folder)): (f.read_bytes(), f.stat().st_mtime_ns)
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


def newer(**texts):
    """Make a release in which the notebooks named so say something else: (old, new)."""
    editions = packaged_editions()
    for name, (old, new) in texts.items():
        name = next(n for n in editions if n.partition("/")[2].startswith(name.lstrip("n")))
        assert old in editions[name]
        editions[name] = editions[name].replace(old, new)
    return editions


BANK = ("The bank raised its rates", "The bank lowered its rates")


def test_nothing_new_changes_nothing(mine):
    before = snapshot(mine)
    report = update_workspace(mine)
    assert report.changed == () and report.backup is None and "Nothing to change" in str(report)
    assert snapshot(mine) == before and not (mine / HIDDEN / "backups").exists()


def test_a_workspace_is_brought_up_to_date_once(mine):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    notebook = read_learner_notebook(file)
    notebook.cells.insert(5, new_code_cell("river = 'bank'"))
    file.write_text(written(notebook), encoding="utf-8")
    old = file.read_bytes()
    (mine / "nbs" / "diary.ipynb").write_text(
        written(new_notebook(cells=[new_markdown_cell("Dear diary", id="d")]))
    )
    (mine / "nbs" / "1_bert/03_embedding.ipynb").unlink()
    report = update_workspace(mine, newer(n02_=BANK, n04_=("encoder", "Encoder")))
    assert (
        set(report.changed)
        == {"1_bert/02_attention.ipynb", "1_bert/03_embedding.ipynb", "1_bert/04_encoder.ipynb"}
        and not report.left
        and not report.conflicts
    )
    text = file.read_text(encoding="utf-8")
    assert BANK[1] in text and "river = 'bank'" in text
    assert (report.backup / "1_bert/02_attention.ipynb").read_bytes() == old
    assert (mine / BASE / "1_bert/02_attention.ipynb").read_text(encoding="utf-8") == newer(
        n02_=BANK
    )["1_bert/02_attention.ipynb"]
    once = snapshot(mine)
    again = update_workspace(mine, newer(n02_=BANK, n04_=("encoder", "Encoder")))
    assert again.changed == () and snapshot(mine) == once
    assert update_workspace(mine).backup.name == "0002"


def test_what_cannot_be_read_is_named_and_left_alone(mine):
    for name, text in (
        ("1_bert/02_attention.ipynb", "<<<<<<< HEAD\n{}"),
        (
            "1_bert/03_embedding.ipynb",
            '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        ),
    ):
        (mine / "nbs" / name).write_text(text)
    damaged = [
        (mine / "nbs" / n).read_bytes()
        for n in ("1_bert/02_attention.ipynb", "1_bert/03_embedding.ipynb")
    ]
    report = update_workspace(
        mine, newer(n02_=BANK, n03_=("embedding", "Embedding"), n04_=("encoder", "Encoder"))
    )
    assert report.changed == ("1_bert/04_encoder.ipynb",) and len(report.left) == 2
    assert "02_attention.ipynb" in report.left[0] and "03_embedding.ipynb" in report.left[1]
    assert [
        (mine / "nbs" / n).read_bytes()
        for n in ("1_bert/02_attention.ipynb", "1_bert/03_embedding.ipynb")
    ] == damaged
    # mended later, it can still be updated
    assert BANK[0] in (mine / BASE / "1_bert/02_attention.ipynb").read_text(encoding="utf-8")


def test_a_lost_or_damaged_base_loses_nothing(mine):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    notebook = read_learner_notebook(file)
    notebook.cells[7].source += "\n# my own line"
    file.write_text(written(notebook), encoding="utf-8")
    (mine / BASE / "1_bert/02_attention.ipynb").write_text("{")
    report = update_workspace(mine, newer(n02_=BANK))
    assert report.changed == ("1_bert/02_attention.ipynb",) and report.conflicts
    assert "# my own line" in file.read_text(encoding="utf-8") and BANK[1] in file.read_text(
        encoding="utf-8"
    )
    assert update_workspace(mine, newer(n02_=BANK)).changed == ()


@pytest.mark.parametrize("touched", [True, False])
def test_a_chapter_that_is_dropped_stays_if_somebody_wrote_in_it_and_a_new_one_arrives(
    mine, touched
):
    editions = packaged_editions()
    editions["1_bert/02z_news.ipynb"] = editions.pop("5_results/26_ablations.ipynb")
    file = mine / "nbs" / "5_results/26_ablations.ipynb"
    notebook = read_learner_notebook(file)
    notebook.cells[0].source += "\n\nMy thoughts" * touched
    notebook.cells[-1].metadata["tags"] = ["seen"]  # no writing
    file.write_text(written(notebook), encoding="utf-8")
    old = file.read_bytes()
    report = update_workspace(mine, editions)
    assert (
        report.changed == ("1_bert/02z_news.ipynb",)
        and (mine / "nbs" / "1_bert/02z_news.ipynb").is_file()
    )
    assert (
        file.is_file() == touched
        and any("5_results/26_ablations.ipynb" in why for why in report.left) == touched
    )
    assert touched or (report.backup / "5_results/26_ablations.ipynb").read_bytes() == old
    assert update_workspace(mine, editions).left == ()


def test_an_update_says_what_is_gone_and_what_was_left(mine):
    editions = packaged_editions()
    del editions["5_results/26_ablations.ipynb"]
    (mine / "nbs" / "1_bert/03_embedding.ipynb").write_text("{")
    editions["1_bert/03_embedding.ipynb"] += "\n"
    report = update_workspace(mine, editions)
    said = str(report)
    assert not report.changed and "Nothing to change" not in said and str(report.backup) in said
    for line in (
        "taken away: 5_results/26_ablations.ipynb",
        "left alone: ",
    ):
        assert f"\n{line}" in said
    again = str(update_workspace(mine, editions))
    assert (
        again.startswith("Nothing to change in the others")
        and "left alone: " in again
        and "None" not in again
    )


def test_nothing_is_written_when_the_disk_is_full(mine, monkeypatch):
    before = snapshot(mine)

    def full(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr(workspace_update.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        update_workspace(mine, newer(n02_=BANK))
    monkeypatch.undo()
    assert snapshot(mine) == before
    assert update_workspace(mine, newer(n02_=BANK)).changed == ("1_bert/02_attention.ipynb",)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_an_update_that_is_cut_short_after_any_write_is_done_by_the_next(mine, monkeypatch, writes):
    """What was handed out is written after the notebooks: it says that they have what it says."""
    real, written_to = workspace_update._write, []

    def cut_short(folder, texts):
        real(folder, texts)
        written_to.append(folder)
        if len(written_to) == writes:
            raise KeyboardInterrupt

    monkeypatch.setattr(workspace_update, "_write", cut_short)
    with pytest.raises(KeyboardInterrupt):
        update_workspace(mine, newer(n02_=BANK))
    monkeypatch.setattr(workspace_update, "_write", real)
    report = update_workspace(mine, newer(n02_=BANK))
    assert written_to[0] == mine / "nbs" and not report.conflicts
    assert BANK[1] in (mine / "nbs" / "1_bert/02_attention.ipynb").read_text(encoding="utf-8")


def test_an_invalid_cell_is_named_and_the_notebook_left_alone(mine):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    text = file.read_text(encoding="utf-8").replace(
        '"outputs": []', '"outputs": [{"output_type": "nonsense"}]', 1
    )
    file.write_text(text, encoding="utf-8")
    report = update_workspace(mine, newer(n02_=BANK))
    assert (
        report.changed == ()
        and "1_bert/02_attention.ipynb" in report.left[0]
        and file.read_text(encoding="utf-8") == text
    )


def test_the_real_exercises_survive_a_release_that_rewords_them(mine):
    solve(mine)
    editions = packaged_editions()
    for name in {f"{e.notebook}.ipynb" for e in EXERCISES.values()}:
        notebook = nbformat.reads(editions[name], as_version=4)
        for c in (c for c in notebook.cells if c.cell_type == "code" and marks(c.source)):
            c.source = re.sub(r'^( {4,8}""")(?=[A-Z])', r"\1New words. ", c.source, flags=re.M)
        editions[name] = written(notebook)
    report = update_workspace(mine, editions)
    assert (
        set(report.changed) == {f"{e.notebook}.ipynb" for e in EXERCISES.values()}
        and not report.conflicts
        and not report.left
    )
    for task in EXERCISES.values():
        cells = read_learner_notebook(mine / "nbs" / f"{task.notebook}.ipynb").cells
        [source] = [
            c.source
            for c in cells
            if c.cell_type == "code" and task.name in [m.name for m in marks(c.source)]
        ]
        now = source_of(source, task.target)
        assert "NotImplementedError" not in now and ("New words." in now or '"""' not in now)
        assert now.replace("New words. ", "") == task.definition


def test_a_text_is_parsed_once_however_many_exercises_ask(monkeypatch):
    mine, theirs = copy.deepcopy(REAL), copy.deepcopy(REAL)
    for c in (c for c in theirs.cells if c.cell_type == "code" and marks(c.source)):
        c.source = c.source.replace('"""', '"""New words. ', 1)
    parse.cache_clear()
    asked, whole = Counter(), ast.parse
    monkeypatch.setattr(
        ast,
        "parse",
        lambda text, *more, **options: asked.update([text]) or whole(text, *more, **options),
    )
    merged_notebook(REAL, mine, theirs)
    assert len(asked) > 20 and asked.most_common(1)[0][1] == 1


# ---------------------------------------------------------------- corners


def test_a_learners_line_in_the_docstring_stays_beside_the_releases():
    mine = changed(SOLVED, ("pair", "    2 x\n", "    2 x\n    My reminder: never 2 ** x.\n"))
    theirs = changed(EDITION, ("pair", "Double a number.", "Give twice a number."))
    source = cell(merged_notebook(EDITION, mine, theirs), "pair")
    assert (
        "Give twice a number." in source
        and "My reminder: never 2 ** x." in source
        and "return two * x" in source
    )


def test_a_changed_default_is_a_conflict():
    mine = changed(
        EDITION, ("pair", "raise NotImplementedError('exercise circles.half')", "return x / by")
    )
    theirs = changed(EDITION, ("pair", "def half(x, by=2):", "def half(x, by=4):"))
    result = merged_notebook(EDITION, mine, theirs)
    assert (
        len(conflicts(result)) == 1
        and "def half(x, by=4):" in cell(result, "pair")
        and "return x / by" not in cell(result, "pair")
    )


def test_what_nobody_has_written_yet_is_the_releases():
    """The lines below "given" belong to the stub, too."""
    before, now = (
        definition_in(
            f"def f(x):\n    if x < {least}:\n        raise ValueError(x)\n    raise NotImplementedError('exercise f')",
            "f",
        )
        for least in (0, 1)
    )
    assert merged_definition(before, before, now) == now.lines and before.lines != now.lines


def test_a_decorator_of_the_release_is_a_conflict():
    handed_out, mine = (
        definition_in(f"def f(x):\n    {body}", "f")
        for body in ("raise NotImplementedError('exercise f')", "return x")
    )
    theirs = definition_in(
        "@torch.no_grad()\ndef f(x):\n    raise NotImplementedError('exercise f')", "f"
    )
    assert merged_definition(handed_out, mine, theirs) is None


def test_a_mistake_as_it_was_handed_out_is_no_other_version_of_an_answer():
    """Where a mistake is to be found, what was given is a whole program, and it was not the learner
    who wrote it.
    """
    mark = "#| exercise f points=1 minutes=5 target=f\n"
    given, newer = (
        f'{mark}def f(x):\n    """{says}"""\n    return x + x + 1' for says in ("Double.", "Twice.")
    )
    answer = definition_in('def f(x):\n    """Double."""\n    return x + x', "f")
    assert merged_cell(given, given, newer, {"f": answer}) == Merged(
        f'{mark}def f(x):\n    """Twice."""\n    return x + x'
    )


def test_one_of_two_exercises_cut_out_of_its_cell_comes_back():
    pair = cell(SOLVED, "pair")
    half = source_of(pair, "half").replace(
        "raise NotImplementedError('exercise circles.half')", "return x / by"
    )
    mine = changed(SOLVED, ("pair", source_of(pair, "half").rstrip("\n"), ""))
    mine.cells.append(new_code_cell("#| export\n" + half, id="half"))
    theirs = changed(
        EDITION, ("pair", "Double a number.", "Give twice a number."), ("pair", "Halve.", "Divide.")
    )
    source = cell(merged_notebook(EDITION, mine, theirs), "pair")
    assert all(
        line in source
        for line in ("Give twice a number.", "return two * x", "Divide.", "return x / by")
    )


def test_an_update_cut_short_after_a_drop_adds_no_second_conflict():
    theirs = copy.deepcopy(EDITION)
    theirs.cells = [c for c in theirs.cells if c.id not in ("pair", "m")]
    result = merged_notebook(EDITION, SOLVED, theirs)
    assert len(conflicts(result)) == 1 and bare(merged_notebook(EDITION, result, theirs)) == bare(
        result
    )


def test_an_update_cut_short_shows_an_answer_in_a_cell_of_its_own_once():
    mine, theirs = copy.deepcopy(EDITION), changed(EDITION, ("pair", "x: float,", "new, x: float,"))
    mine.cells.append(new_code_cell("def double(x):\n    return 2 * x", id="own"))
    once = merged_notebook(EDITION, mine, theirs)
    assert len(conflicts(once)) == 1 and merged_notebook(EDITION, once, theirs).cells == once.cells


def test_an_edited_cell_without_its_id_is_known_by_likeness():
    mine = changed(EDITION, ("loop", "range(3)", "range(5)"), ("next", "Square it.", "Cube it."))
    for c in mine.cells:
        c.pop("id")
    theirs = changed(EDITION, ("title", "Circles", "Rings"))
    result = merged_notebook(EDITION, mine, theirs)
    assert [c.id for c in result.cells] == [c.id for c in theirs.cells]
    assert "range(5)" in cell(result, "loop") and "Cube it." in cell(result, "next")


def test_a_cell_that_moved_without_its_id_is_known_by_its_text_or_its_exercise():
    old = [c for c in copy.deepcopy(SOLVED).cells if c.id in ("pair", "q", "loop", "circle")]
    ours = copy.deepcopy(old)[::-1]
    for c in ours:
        c.pop("id")
    [pair] = [c for c in ours if "circles.double" in c.source]
    pair.source += "\n" * 3 + "x = 1\n" * 400  # no longer alike
    assert partners(ours, old) == {0: 3, 1: 2, 2: 1, 3: 0}


def test_a_deleted_cell_stays_away_until_its_chapter_changes(mine):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    notebook = read_learner_notebook(file)
    gone = notebook.cells.pop(9)
    file.write_text(written(notebook), encoding="utf-8")
    assert update_workspace(mine).changed == ()
    assert update_workspace(mine, newer(n02_=BANK)).changed == ("1_bert/02_attention.ipynb",)
    assert gone.id in [c.id for c in read_learner_notebook(file).cells]


@pytest.mark.parametrize(
    "saved",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\\n", "\\r\\n"),
        lambda text: text.replace("\n", "\r\n"),
    ],
    ids=["BOM", "cells", "file"],
)
def test_a_notebook_with_the_marks_and_line_ends_of_another_editor_is_updated(mine, saved):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    notebook = read_learner_notebook(file)
    notebook.cells.insert(5, new_code_cell("river = 'bank'\nriver"))
    file.write_bytes(saved(written(notebook)).encode())
    report = update_workspace(mine, newer(n02_=BANK))
    assert (
        report.changed == ("1_bert/02_attention.ipynb",)
        and not report.conflicts
        and not report.left
    )
    text = file.read_text(encoding="utf-8")
    assert BANK[1] in text and "river = 'bank'" in text


def test_a_notebook_of_an_older_format_is_updated(mine):
    file = mine / "nbs" / "1_bert/02_attention.ipynb"
    notebook = read_learner_notebook(file)
    notebook.nbformat_minor = 2
    for c in notebook.cells:
        c.pop("id")
    notebook.cells.append(new_markdown_cell("mine alone"))
    notebook.cells[-1].pop("id")
    file.write_text(written(notebook), encoding="utf-8")
    report = update_workspace(mine, newer(n02_=BANK))
    after = read_learner_notebook(file)
    assert (
        report.changed == ("1_bert/02_attention.ipynb",)
        and not report.left
        and not report.conflicts
        and after.nbformat_minor >= 5
    )
    assert after.cells[-1].source == "mine alone" and all(c.id for c in after.cells)


def test_an_update_cut_short_is_done_again_without_doubles():
    mine = changed(SOLVED, ("m", "itself", "alone"))
    mine.cells.insert(4, new_code_cell("mine = 1", id="mine"))
    theirs = changed(EDITION, ("m", "itself", "on its own"), ("title", "Circles", "Rings"))
    theirs.cells.insert(6, new_markdown_cell("News", id="news"))
    result = merged_notebook(EDITION, mine, theirs)
    assert len(conflicts(result)) == 1 and len(result.cells) == len(theirs.cells) + 3
    # the base was not written yet
    assert bare(merged_notebook(EDITION, result, theirs)) == bare(result)


def test_a_definition_has_a_head_that_is_given_and_a_body_that_is_the_learners():
    cell = '\ndef area(\n    r,   # radius\n    pi=3.14,\n):       # square\n    """Pi times the radius, squared."""\n    # one line\n    return pi * r ** 2\n'
    area = definition_in(cell, "area")
    assert area.head == tuple(cell.split("\n")[1:6]) and area.body == (
        "    # one line",
        "    return pi * r ** 2",
    )
    assert definition_in("def f(x): return x", "f")[:2] == ((), ("def f(x): return x",))
    assert (
        definition_in("def f(x: int): ...", "f").signature
        == definition_in("def f(x): ...", "f").signature
    )
    assert (
        definition_in("def f(x=1): ...", "f").signature
        != definition_in("def f(x=2): ...", "f").signature
    )
