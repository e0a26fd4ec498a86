"""Fairness: an accident elsewhere in a chapter, or in the class folder, costs nobody a right answer
or a row.
"""

import csv
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output
from submissions import make

from minbert.course.answer_extraction import (
    LARGEST_CELL,
    LARGEST_CODE,
    answer,
    plain_python,
    read_cells,
    read_notebook,
    single,
)
from minbert.course.exercises import EXERCISES, exercise
from minbert.course.grading import (
    GradeReport,
    Result,
    find_submissions,
    grade,
    plan,
    read_submission,
)
from minbert.course.reports import (
    csv_table,
    page,
    safe_name,
    scores,
    write_gradescope,
    write_pages,
    write_whole,
)
from minbert.course.sandbox import Limits
from minbert.course.source_tools import guards

TASK = exercise("attention.bias")
CHAPTER = f"{TASK.notebook}.ipynb"
PART = Path(CHAPTER).parts[0]
HEAD = "def padding_bias(attention_mask, key):\n" + "\n".join(guards(TASK.definition)) + "\n"
FULL = HEAD + "    return ((1 - attention_mask.to(key)) * -1e4)[:, None, None, :]\n"


def using(number: str) -> str:
    return FULL.replace("-1e4", number)


# name -> (cells before the answer, what becomes of the answer's cell, the answer)
ACCIDENTS = {
    "an argument twice": (["def bad(a, a): return a"], None, FULL),
    "a global argument": (["def g(x):\n    global x"], None, FULL),
    "a nonlocal of nothing": (["def h():\n    nonlocal q"], None, FULL),
    "a bound loop variable": (["x = [i := 0 for i in range(3)]"], None, FULL),
    "a return at top level": (["return 3"], None, FULL),
    "await": (["z = await foo()"], None, FULL),
    "a chain of elifs": (["if a: pass\n" + "elif a: pass\n" * 3000], None, FULL),
    "modulo": ([], None, FULL.replace(HEAD, HEAD + "    x = (7\n         % 10)\n")),
    "modulo and a magic": (
        [],
        lambda s: "%matplotlib inline\n" + s + "\n!ls (\n",
        FULL.replace(HEAD, HEAD + "    x = (7\n         % 10)\n"),
    ),
    "%%time": ([], lambda s: "%%time\n" + s, FULL),
    "%%capture and %%time": ([], lambda s: "%%capture out\n%%time\n%matplotlib inline\n" + s, FULL),
    "a question": ([], lambda s: s + "\npadding_bias?\n?padding_bias\npadding_bias??", FULL),
    "a shell's answer": (
        [],
        lambda s: s + "\nfiles = !ls\nx = %timeit -o 3\n!echo \\\n  on two lines",
        FULL,
    ),
    "from math import *": (
        ["from math import *", "from nowhere import *"],
        None,
        using("-pow(10, floor(4.5))"),
    ),
    "a helper in try": (
        ["try:\n    import foo\nexcept ImportError:\n    def helper(): return -1e4"],
        None,
        using("helper()"),
    ),
    "a helper in if": (
        ["if True:\n    def helper(): return -1e4\nelse:\n    helper = None"],
        None,
        using("helper()"),
    ),
    "a number in with": (["with torch.no_grad():\n    CONST = -1e4"], None, using("CONST")),
    "a filled table": (
        ["TABLE = {}\nfor i in range(3):\n    TABLE[i] = -1e4"],
        None,
        using("TABLE[1]"),
    ),
    "a filled list": (
        ["TABLE = []\nfor i in range(3):\n    TABLE.append(-1e4)", "TABLE[0] = -7"],
        None,
        using("TABLE[1]"),
    ),
    "a changed number": (["CONST = 1\nCONST *= -1e4"], None, using("CONST")),
    "a function that sounds like a change": (
        [
            "#| export\nimport torch as th\nth.add(nowhere, 3)\nfor i in range(3):\n    th.add(i, nowhere)"
        ],
        None,
        using("-th.tensor(1e4)"),
    ),
    "a number in a crowd": (['"""A\ntext."""; CONST = -1e4; print(CONST)'], None, using("CONST")),
    "a stub of a helper": (
        ["def helper():\n    pass", "def helper():\n    return -1e4"],
        None,
        using("helper()"),
    ),
    "future annotations": (
        [],
        lambda s: "from __future__ import annotations\n" + s,
        FULL.replace("key)", "key: Optional[nowhere.Tensor])", 1),
    ),
    "a BOM in the cell": ([], lambda s: "\ufeff" + s, FULL),
    "letters of another width": (
        [],
        lambda s: s.replace("def padding_bias", "def ｐadding_bias"),
        FULL,
    ),
    "a helper in two spellings": (
        ["def ﬁx(x):\n    return x * λ", "λ = -1e4"],
        None,
        using("fix(1)"),
    ),
    "hundreds of appends": (
        ["TABLE = []\n" + "TABLE.append(-1e4)\n" * 900],
        None,
        using("TABLE[899]"),
    ),
    "files of its own": (
        [],
        None,
        FULL.replace(
            HEAD,
            HEAD
            + "    import os, shutil, tempfile\n    from pathlib import Path\n    with tempfile.TemporaryDirectory() as d:\n        Path(d, 'a').mkdir()\n"
            "        file = Path(d, 'a', 'note.txt')\n        file.write_text('x')\n        file.rename(file.with_suffix('.md'))\n        os.listdir(d), os.path.exists(file), shutil.rmtree(Path(d, 'a'))\n"
            "    Path('b').mkdir(exist_ok=True), Path('b', 'x').touch(), Path('b', 'x').unlink(), Path('b').rmdir()\n",
        ),
    ),
    "tensors in files": (
        ["import numpy as np, torch as th\nfrom safetensors.torch import load_file, save_file"],
        None,
        FULL.replace(
            HEAD,
            HEAD
            + "    save_file({'x': key.contiguous()}, 'x.safetensors'); th.save(key, 'x.pt'); np.save('x.npy', key.detach().float().numpy())\n"
            "    load_file('x.safetensors'), th.load('x.pt'), np.load('x.npy')\n",
        ),
    ),
    "other libraries": (
        [
            "import pandas as pd\nfrom sklearn.metrics import f1_score\nimport scipy.special as special\nimport matplotlib.pyplot as plt"
        ],
        None,
        using("(pd.Series([-1e4]).iloc[0] * f1_score([1, 0], [1, 0]) * special.expit(0.0) * 2)"),
    ),
    "a library that may be missing": (
        [
            "try:\n    import pyarrow, zmq, cffi, readline, sqlite3\nexcept ImportError:\n    pyarrow = None"
        ],
        None,
        using("(-1e4 if pyarrow is None else -1e4)"),
    ),
    "helpers of every kind": (
        [
            "from dataclasses import dataclass\nfrom enum import Enum\nfrom functools import lru_cache\nfrom typing import NamedTuple",
            "@dataclass\nclass A:\n    x: float = -1e4",
            "class B(NamedTuple):\n    a: A",
            "class C(Enum):\n    d = 1",
            "@lru_cache\ndef deep(n): return B(A()).a.x if not n else deep(n - 1)",
        ],
        None,
        using("(deep(200) * C.d.value)"),
    ),
    "talk": (
        [],
        None,
        FULL.replace(
            HEAD,
            HEAD
            + "    import logging, warnings, sys, inspect, time, signal\n    warnings.warn('careful'); logging.getLogger().warning('x')\n    print('x' * 10**6); print('x', file=sys.stderr)\n"
            "    inspect.signature(padding_bias), inspect.stack()[0], time.sleep(0.05), sys.setrecursionlimit(5000)\n",
        ),
    ),
    "text that runs": ([], None, using("eval('-1e4') * {'x': 1}[[exec('y = 3'), 'x'][1]]")),
    "seeds and settings": (
        ["import random, torch as th\nth.set_printoptions(precision=3)"],
        None,
        FULL.replace(
            HEAD,
            HEAD
            + "    import random\n    random.seed(3); th.set_num_threads(1); th.set_grad_enabled(True)\n",
        ),
    ),
    "looks for a file": (
        [],
        None,
        FULL.replace(
            HEAD,
            HEAD
            + "    import os\n    from pathlib import Path\n    for place in ('data', '/content/drive', Path.home(), '..'):\n        try: os.listdir(place)\n        except OSError: pass\n    os.getcwd(), os.environ.get('HOME'), Path('x').resolve()\n",
        ),
    ),
    "a name of Python's": (
        ["def list_(x): return x\nmax_ = -1e4\nisinstance_ = isinstance"],
        None,
        using("list_(max_ if isinstance_(3, int) else 0)"),
    ),
    "ctypes above": (
        ["import ctypes, multiprocessing, threading, subprocess, socket, sqlite3"],
        lambda s: "import ctypes, sqlite3\n" + s,
        FULL,
    ),
    "a comment as long as a book": (
        ["# " + "x" * 90_000],
        lambda s: s.replace("#| export", "#| export\n# " + "y" * 20_000, 1),
        FULL,
    ),
    "half a character in a text": (
        [],
        None,
        FULL.replace(HEAD, HEAD + "    str('\\ud800'), '🙂'\n"),
    ),
    "line ends of Windows": ([], lambda s: s.replace("\n", "\r\n"), FULL),
}


def hand_in(folder, before=(), change=None, definition=FULL):
    make(folder, {TASK.name: definition})
    file = folder / "nbs" / CHAPTER
    notebook = nbformat.read(file, 4)
    place = [
        i
        for i, c in enumerate(notebook.cells)
        if c.cell_type == "code" and "def padding_bias" in c.source and "export" in c.source
    ][-1]
    if change:
        notebook.cells[place].source = change(notebook.cells[place].source)
    notebook.cells[place:place] = [new_code_cell(s) for s in before]
    for other in (folder / "nbs").rglob("*.ipynb"):
        other.unlink()
    nbformat.write(notebook, file)
    return file


@pytest.mark.long
def test_accidents_cost_nothing(tmp_path):
    room = tmp_path / "class"
    for i, accident in enumerate(ACCIDENTS.values()):
        hand_in(room / f"{i:02d}", *accident)
    file = hand_in(room / "99")
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # a BOM in the file
    reports, _ = grade([room], seed=5, only=[TASK.name], jobs=1)
    assert len(reports) == len(ACCIDENTS) + 1
    wrong = {
        (*ACCIDENTS, "a BOM in the file")[i]: r.results[TASK.name]
        for i, r in enumerate(reports)
        if r.results[TASK.name].status != "passed"
    }
    assert not wrong
    flagged = {
        (*ACCIDENTS, "a BOM in the file")[i]
        for i, r in enumerate(reports)
        if r.results[TASK.name].flags
    }
    # it reads the call stack, which nobody needs
    assert flagged == {"talk"}


@pytest.mark.long
def test_time_is_counted_by_the_processor(tmp_path):
    """Who waits longer than the seconds of processor is not late, and who computes for ever ends by
    them long before the wall's clock: a busy machine costs nobody points.
    """
    hand_in(
        tmp_path / "class" / "waits",
        (),
        None,
        FULL.replace(
            HEAD, HEAD + "    import time\n    if not waited: waited.append(time.sleep(2.5))\n"
        ).replace("def ", "waited = []\ndef ", 1),
    )
    hand_in(
        tmp_path / "class" / "computes",
        (),
        None,
        FULL.replace(HEAD, HEAD + "    while True: pass\n"),
    )
    computes, waits = grade(
        [tmp_path / "class"], seed=5, limits=Limits(wall=300, cpu=2), only=[TASK.name], jobs=1
    )[0]
    assert waits.results[TASK.name].status == "passed", waits.results[TASK.name]
    assert waits.integrated == TASK.points and not computes.integrated
    assert "too many seconds of processor" in computes.results[TASK.name].reason
    assert Limits().wall > 3 * Limits().cpu


def test_an_impossible_cell_costs_its_own_answer():
    notebook = read_cells([HEAD + "    def bad(a, a): return a\n", "x = 1"])
    found = answer(notebook, "padding_bias")
    assert (
        found.status == "broken"
        and "duplicate argument" in found.reason
        and len(notebook.cells) == 1
    )


def test_an_answer_that_counts_for_nothing_says_why():
    stub = HEAD + "    raise NotImplementedError('exercise attention.bias')\n"
    for cell, says in (
        ("def padding_bias(mask, scores:\n    return 0", "SyntaxError"),
        ("padding_bias = mine", "assigned, not defined: write `def padding_bias`"),
        (
            "if True:\n    def padding_bias(mask, scores): return 0",
            "`padding_bias` is defined inside another statement",
        ),
        (
            "try:\n    def padding_bias(mask, scores): return 0\nfinally:\n    pass",
            "write it at the left edge",
        ),
        ("def other():\n    def padding_bias(mask, scores): return 0", "not written yet"),
        ("x = padding_bias(", "not written yet"),
        ("padding_bias(1)", "not written yet"),
    ):
        found = answer(read_cells([stub, cell]), "padding_bias")
        assert says in found.reason and found.status == (
            "broken" if says == "SyntaxError" else "stub"
        )
    # a person is told the line, and reads it
    half = answer(read_cells([HEAD + "    x = max(1,\n    return x\n"]), "padding_bias")
    assert half.status == "broken" and re.search(
        r"never closed, line \d+ of it: x = max\(1,$", half.reason
    )
    assert re.search(
        r"argument 'a' in function definition$",
        answer(read_cells(["def padding_bias(a, a):\n    return a"]), "padding_bias").reason,
    )
    assert (
        "`SelfAttention` is defined inside"
        in answer(
            read_cells(["if True:\n    class SelfAttention:\n        def attend(self): pass"]),
            "SelfAttention.attend",
        ).reason
    )
    assert (
        "def attend"
        in answer(read_cells(["SelfAttention.attend = better"]), "SelfAttention.attend").reason
    )
    assert (
        answer(
            read_cells([stub, "class Other:\n    def padding_bias(:"]), "Mine.padding_bias"
        ).status
        == "missing"
    )


def test_the_last_definition_counts_and_an_exported_one_before_it():
    """Behind an answer, somebody tries another in a scratch cell: what goes into the package is
    what was meant.
    """

    def cell(number, head=""):
        return head + using(number)

    def said(*cells):
        return re.search(r"\* (-\d)", answer(read_cells(cells), "padding_bias").definition)[1]

    assert (
        said(cell("-1"), cell("-2")) == "-2"
        and said(cell("-1", "#| export\n"), cell("-2", "#| export\n")) == "-2"
    )
    assert said(cell("-1", "#| hide\n#| export\n"), cell("-2")) == "-1"


def test_an_exported_helper_counts_before_a_later_one_that_is_not():
    def helper(number):
        return f"def helper():\n    return {number}"

    notebook = read_cells(
        ["#| export\n" + helper("-1e4"), helper("-7"), "#| export\n" + using("helper()")]
    )
    text = single(notebook, TASK, answer(notebook, TASK.target))
    assert text.rindex("return -1e4") > text.find("return -7")


def test_what_is_python_stays_as_it_is():
    for text in (
        "x = (7\n   % 3)",
        's = """\n%d items\n!\nwhat?\n"""',
        "def f(a,\n  b): return (a\n  % b)",
        "print(f'{x=!r}')",
    ):
        assert plain_python(text) == text
        assert plain_python("%time 3\n" + text).endswith("\n" + text)
    assert plain_python("%%bash\nls") == "# %%bash\n# ls"


def test_no_text_takes_for_ever():
    """Twice as long a text takes about twice as long: at these lengths, squares would take minutes."""
    for text in (
        "\n" * 150_000 + "(",
        " " * 150_000 + "x?(",
        '""" \\' * 30_000,
        "?\n" * 20_000,
        "%%time\n" * 20_000,
        "!a \\\n" * 20_000,
        "'" * 99_999,
        "=" * 150_000,
    ):
        notebook = read_cells([text])
        assert answer(notebook, "padding_bias").status == "missing"


def test_too_much_code_is_refused_and_pictures_are_not(tmp_path):
    long = read_cells(["#| export\n" + FULL + "# " + "x" * LARGEST_CELL, "y = 1"])
    assert len(long.cells) == 1 and str(LARGEST_CELL) in answer(long, "padding_bias").reason
    file = hand_in(tmp_path / "ada")
    notebook = nbformat.read(file, 4)
    notebook.cells.append(
        new_code_cell(
            "1", outputs=[new_output("display_data", {"image/png": "A" * 3 * LARGEST_CODE})]
        )
    )
    nbformat.write(notebook, file)
    assert answer(read_notebook(file), "padding_bias").status == "written"
    notebook.cells[-1] = new_code_cell("x")
    notebook.cells += [
        new_code_cell("# " + "x" * (LARGEST_CELL - 9))
        for _ in range(LARGEST_CODE // LARGEST_CELL + 1)
    ]
    nbformat.write(notebook, file)
    found = plan(read_submission("ada", tmp_path / "ada"), TASK)
    assert found.status == "broken" and "characters of code" in found.reason


@pytest.mark.parametrize("link", ["nbs", "a", f"nbs/{PART}", f"nbs/{CHAPTER}"])
def test_nobody_hands_in_through_a_link(tmp_path, link):
    file = hand_in(tmp_path / "ada")
    place = tmp_path / "eve" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(
        {"nbs": file.parent.parent, "a": file.parent.parent.parent, f"nbs/{PART}": file.parent}.get(
            link, file
        )
    )
    read = read_submission("eve", tmp_path / "eve")
    assert not read.notebooks and all("symbolic link" in why for why in read.problems.values())
    assert read.problems and plan(read, TASK).status == "broken"


@pytest.mark.parametrize("stray", ["nbs", PART, "settings.ini", Path(CHAPTER).name])
def test_one_stray_entry_hides_nobody(tmp_path, stray):
    for name in ("ada", "bob"):
        hand_in(tmp_path / "class" / name)
    shutil.copy(tmp_path / "class" / "ada" / "nbs" / CHAPTER, tmp_path / "class" / "cy.ipynb")
    if stray in ("nbs", PART):
        shutil.copytree(
            tmp_path / "class" / "ada" / ("nbs" if stray == "nbs" else f"nbs/{PART}"),
            tmp_path / "class" / stray,
        )
    else:
        (tmp_path / "class" / stray).write_text("{}")
    wanted = {"ada", "bob", "cy.ipynb"} | ({stray} - {"settings.ini"})
    assert set(find_submissions([tmp_path / "class"])) == wanted
    for name in ("ada", "bob"):
        (tmp_path / "class" / name / "settings.ini").write_text("")
        shutil.copy(
            tmp_path / "class" / name / "nbs" / CHAPTER, tmp_path / "class" / name / "scratch.ipynb"
        )
        assert list(find_submissions([tmp_path / "class" / name])) == [name]


def test_half_characters_stop_no_report(tmp_path):
    reports = [
        GradeReport(name, {TASK.name: Result("failed", 0, "ValueError: \ud800")}, 0, ("\udce9",))
        for name in ("jos\udce9", "ada")
    ]
    write_whole(tmp_path / "grades.csv", csv_table(reports))
    write_pages(reports, tmp_path / "pages")
    write_gradescope(reports, tmp_path / "scope")
    assert "\\ud800" in (tmp_path / "grades.csv").read_text(encoding="utf-8")
    assert "jos\\udce9" in (tmp_path / "pages" / "index.html").read_text(encoding="utf-8")
    found = json.loads(
        (tmp_path / "scope" / safe_name("ada") / "results.json").read_text(encoding="utf-8")
    )
    assert "\\ud800" in found["tests"][0]["output"] and str(found).encode()


def test_different_names_are_different_files():
    names = [
        "a b",
        "a_b",
        safe_name("a b"),
        safe_name(safe_name("a b")),
        "Index",
        "INDEX",
        "index",
        "ada",
        "Ada",
        "a/b",
        "x" * 80,
        "x" * 81,
        "ü",
        "Ü",
    ]
    files = [safe_name(name) for name in names]
    assert len(set(files)) == len(names) and "index" not in [f.casefold() for f in files]
    assert safe_name("Ada") == "Ada" and all(re.fullmatch(r"[\w.-]+", f) for f in files)


def test_optional_points_are_told_apart():
    names = [
        next(name for name, task in EXERCISES.items() if task.optional == optional)
        for optional in (False, True)
    ]
    both = GradeReport(
        "ada", {name: Result("passed", EXERCISES[name].points) for name in names}, 0, ()
    )
    a, b = (EXERCISES[name].points for name in names)
    assert scores([both]).startswith(
        f"ada  {a + b} of {a + b} points ({a} of {a} without the optional exercises), integrated 0"
    )
    assert scores([both._replace(results={names[0]: both.results[names[0]]})]).startswith(
        f"ada  {a} of {a} points, integrated 0"
    )
    row = next(csv.DictReader(csv_table([both]).splitlines()))
    assert (row["points"], row["required"], row["of required"]) == (
        str(a + b),
        str(a),
        str(a),
    ) and f"({a} of {a} without" in page(both)
