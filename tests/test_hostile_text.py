"""Hostile text: what the parent reads is read in a time that grows with its length, and within
limits that say so.
"""

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from minbert.course import answer_extraction, grading, source_tools
from minbert.course.answer_extraction import (
    LARGEST_CODE,
    MOST_CELLS,
    answer,
    read_cells,
    read_notebook,
    single,
)
from minbert.course.exercises import EXERCISES, exercise
from minbert.course.grading import Submission, plan
from minbert.course.source_tools import Piece, needed, pieces

TASK = exercise("attention.bias")
HEAD = "def padding_bias(attention_mask, key):\n"


def steps(function) -> int:
    """Count the bytecodes that our own modules run in a call."""
    files, count = {m.__file__ for m in (source_tools, answer_extraction, grading)}, 0

    def local(frame, event, arg):
        nonlocal count
        count += event == "opcode"
        return local

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


TEXTS = {
    "appends": lambda n: "x = []\n" + "x.append(1)\n" * n,
    "items": lambda n: "x = {}\n" + "x[1] = 1\n" * n,
    "sums": lambda n: "x = 0\n" + "x += 1\n" * n,
    "one name, again and again": lambda n: "x = 1\n" * n,
    "many names at once": lambda n: (
        ", ".join(f"a{i}" for i in range(n))
        + " = "
        + ", ".join(f"b{i}" for i in range(n))
        + "\nx = "
        + " + ".join(f"a{i}" for i in range(n))
        + "\n"
        + "".join(f"b{i} = 1\n" for i in range(n))
    ),
    "a chain": lambda n: "x = a0\n" + "".join(f"a{i} = a{i + 1}\n" for i in range(n)),
    "helpers": lambda n: "def x(): pass\n" * n,
    "a name in try": lambda n: "import x\n" + "try: import x\nexcept E: x = 1\n" * n,
    "dots": lambda n: "def x(): return " + "a." * n + "b\n",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_steps_grow_with_the_length(kind):
    """Four times the text takes about four times the steps; what is quadratic takes sixteen."""

    def work(n):
        notebook = read_cells([TEXTS[kind](n), HEAD + "    return x"])
        pieces.cache_clear()
        return lambda: plan(Submission("one", {TASK.module: notebook}, {}), TASK)

    # caches of our own texts
    plan(Submission("one", {TASK.module: read_cells([HEAD + "    return 1"])}, {}), TASK)
    small = 60
    # Python 3.14 misses some steps of a function that is followed for the first time
    steps(work(2))
    few, many = steps(work(small)), steps(work(4 * small))
    base = steps(work(1))
    assert many - base <= 6 * (few - base), (base, few, many)


def test_what_is_needed_is_what_was_needed():
    """The quick way gives the pieces of the plain one: for each name, all before it that count."""

    def plainly(start, known):
        places = {}
        for i, piece in enumerate(known):
            for name in piece.names:
                before = places.get(name, [])
                if name not in piece.partly:
                    places[name] = [i]
                elif not any("import " in known[j].text for j in before):
                    places[name] = [*before, i]
        done, todo, wanted = set(), list(start), set()
        while todo:
            if (name := todo.pop()) not in done and name in places:
                done.add(name)
                wanted.update(places[name])
                todo.extend(use for i in places[name] for use in known[i].uses)
        return [known[i] for i in sorted(wanted)]

    names, texts, state = "abcdef", ("import x", "x"), 7
    for _ in range(300):
        known = []
        for i in range(12):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            own = frozenset(n for j, n in enumerate(names) if state >> j & 9 == 9) or frozenset("a")
            uses = frozenset(n for j, n in enumerate(names) if state >> j + 8 & 5 == 5)
            known.append(
                Piece(
                    own,
                    uses,
                    f"{texts[state >> 20 & 1]} {i}",
                    own if state >> 21 & 1 else frozenset(),
                )
            )
        assert needed(["a", "b"], known) == plainly(["a", "b"], known)


@pytest.mark.parametrize(
    "cells, says",
    [
        ([f"x = {i}" for i in range(MOST_CELLS + 1)], f"at most {MOST_CELLS} cells"),
        (
            ["# " + "x" * 80_000] * (LARGEST_CODE // 80_000 + 1),
            f"at most {LARGEST_CODE} characters of code",
        ),
    ],
)
def test_too_much_is_refused_with_a_number(tmp_path, cells, says):
    file = tmp_path / "02_attention.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(c) for c in cells]), file)
    with pytest.raises(ValueError, match=says):
        read_notebook(file)


N = 90_000
DEEP = {
    "sums": "x = " + "1+" * (N // 2) + "1",
    "minus": "-" * N + "1",
    "not": "not " * (N // 4) + "1",
    "dots": "x = " + "a." * (N // 2) + "b",
    "brackets": "x = y" + "[0]" * (N // 3),
    "calls": "x = y" + "()" * (N // 2),
    "powers": "1**" * (N // 3) + "1",
    "unions": "x: " + "a|" * (N // 2) + "b",
    "lambdas": "x = " + "lambda:" * (N // 8) + "1",
    "decorators": "@a\n" * (N // 3) + "def f(): pass",
    "elifs": "if a: pass\n" + "elif a: pass\n" * (N // 13),
    "comparisons": "1<" * (N // 2) + "1",
    "choices": "x = " + "1 if 1 else " * (N // 13) + "1",
    "parentheses": "(" * 200,
    "no text": "x = 1\0",
    "digits": "x = " + "9" * N,
    "semicolons": "a=1;" * (N // 40),
    "walls of ifs": "".join(" " * i + "if 1:\n" for i in range(95)) + " " * 95 + "pass",
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_text_costs_its_own_cell(kind):
    notebook = read_cells([DEEP[kind], HEAD + "    return 1"])
    assert plan(Submission("one", {TASK.module: notebook}, {}), TASK).status == "written"


@pytest.mark.parametrize(
    "spelled", ["ｐadding_bias", "𝓹adding_bias", "padding＿bias", "padding_biaſ"]
)
def test_a_name_is_what_python_takes_it_for(spelled):
    """Letters of other widths are those letters (NFKC); what is no Python is still the answer to
    its exercise.
    """
    notebook = read_cells(
        [
            f"def {spelled}(attention_mask, key):\n    return helper(key)",
            "def ｈelper(x):\n    return x",
        ]
    )
    found = answer(notebook, TASK.target)
    assert found.status == "written" and "elper(x)" in single(notebook, TASK, found)
    assert answer(read_cells([f"def {spelled}(:"]), TASK.target).status == "broken"
    method = EXERCISES["attention.forward"].target
    head, _, name = method.partition(".")
    assert (
        answer(
            read_cells(
                [
                    f"class {head.replace('S', 'Ｓ')}:\n    def {name.replace('f', 'ｆ')}(self): return 1"
                ]
            ),
            method,
        ).status
        == "written"
    )
