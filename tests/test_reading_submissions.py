"""Reading: cells as Jupyter reads them, one damaged cell costs itself alone, and everybody in a
platform's download has a row.
"""

import ast
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minbert.course import grading
from minbert.course.answer_extraction import (
    LARGEST_CELL,
    answer,
    plain_python,
    read_cells,
    read_notebook,
)
from minbert.course.exercises import exercise
from minbert.course.grading import Submission, find_submissions, grade, plan, read_submission
from minbert.course.reports import csv_table, page, scores

TASK = exercise("attention.bias")
FULL = TASK.definition
CHAPTER = f"{Path(TASK.notebook).name}.ipynb"
ADD = "def add(a, b):\n    return a + b\n"


def prompted(text: str, first: str, more: str) -> str:
    return "\n".join(
        (more if i else first) + line for i, line in enumerate(text.rstrip("\n").split("\n"))
    )


AS_JUPYTER = {
    "a common indent": "    def add(a, b):\n        return a + b",
    "empty lines and an indent": "\n\n  def add(a, b):\n      return a + b",
    "prompts of Python": prompted(ADD, ">>> ", "... "),
    "prompts of IPython": prompted(ADD, "In [1]: ", "   ...: "),
    "prompts below a magic": "%%time\n" + prompted(ADD, ">>> ", "... "),
    "a magic of IPython": "%%capture out\n%%timeit -n 1\n" + ADD,
    "a magic of another package": "%%wandb\n#| export\n" + ADD,
    "a magic with options": "%%px --local\n    " + ADD.replace("\n", "\n    "),
    "line magics and shell commands": "%matplotlib inline\nfiles = !ls\n"
    + ADD
    + "!ls (\nadd?\nx = %timeit -o 3",
    "a magic inside": ADD.replace("    return", "    %time 3\n    return"),
    "calls without brackets": "/len x\n,len a\n;len a\n" + ADD,
    "await": "x = await nothing()\n" + ADD,
}


@pytest.mark.parametrize("kind", AS_JUPYTER)
def test_a_cell_is_read_as_jupyter_reads_it(kind):
    source = AS_JUPYTER[kind]
    # Jupyter takes it
    compile(
        TransformerManager().transform_cell(source), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    found = answer(read_cells([source]), "add")
    assert found.status == "written"
    assert "return a + b" in found.definition
    assert plain_python(source).count("\n") == source.count("\n")  # line numbers stay true


def test_what_python_takes_is_not_transformed():
    for text in ("x = (7\n   % 3)", 's = """\n>>> add(1, 2)\n%d items\n"""', "print('In [1]: x')"):
        assert plain_python(text) == text


@pytest.mark.parametrize(
    "magic", ["%%bash", "%%writefile add.py", "%%python3", "%%html", "%%!", "%%time\n%%bash"]
)
def test_a_definition_below_a_magic_that_runs_elsewhere_is_told_so(magic):
    found = answer(read_cells([f"{magic}\n{ADD}"]), "add")
    assert found.status == "missing"
    assert (
        found.reason
        == f"`def add` stands below `{magic.split()[0]}`, which does not define it in the notebook"
    )


def test_an_answer_in_a_markdown_cell_is_told_so(tmp_path):
    stub = (
        FULL.split('"""')[0]
        + '"""..."""\n    raise NotImplementedError("exercise attention.bias")\n'
    )
    cells = [new_code_cell(stub), new_markdown_cell("#| export\n" + FULL)]
    nbformat.write(new_notebook(cells=cells), tmp_path / CHAPTER)
    found = plan(read_submission("ada", tmp_path / CHAPTER), TASK)
    assert found.status == "not attempted"
    assert "`def padding_bias` stands in a cell that is no code, such as Markdown" in found.reason
    # as a chapter shows one
    cells[1] = new_markdown_cell(f"An example:\n```python\n{FULL}```")
    nbformat.write(new_notebook(cells=cells), tmp_path / CHAPTER)
    assert plan(read_submission("ada", tmp_path / CHAPTER), TASK).reason == "not written yet"


@pytest.mark.parametrize(
    "decorator, first",
    [
        ("@patch_to(SelfAttention)", "self"),
        ("@basics.patch_to((Other, SelfAttention))", "self"),
        ("@patch_to(cls=SelfAttention, as_prop=False)", "self"),
        ("@patch", "self: SelfAttention"),
        ("@patch()", "self: Other | SelfAttention"),
    ],
)
def test_a_patched_method_is_told_where_it_belongs(decorator, first):
    stub = "class SelfAttention:\n    def forward(self, x):\n        raise NotImplementedError('exercise attention.forward')"
    found = answer(
        read_cells([stub, f"{decorator}\ndef forward({first}, x):\n    return x"]),
        "SelfAttention.forward",
    )
    assert (found.status, found.reason) == (
        "stub",
        "assigned, not defined: write `def forward` in `class SelfAttention`",
    )
    assert (
        answer(
            read_cells([stub, "@patch_to(Other)\ndef forward(self, x):\n    return x"]),
            "SelfAttention.forward",
        ).reason
        == "not written yet"
    )


def written(place: Path, *odd) -> Path:
    """A chapter with one right answer as its second cell, and odd cells behind it."""
    cells = [
        {
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for source in ("import torch", FULL)
    ]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(
        json.dumps({"cells": [*cells, *odd], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        encoding="utf-8",
    )
    return place


DAMAGED = {
    "no source": ({"cell_type": "code"}, "cell 3 has no source"),
    "a source of nothing": ({"cell_type": "code", "source": None}, "cell 3 has no source"),
    "a number as source": ({"cell_type": "markdown", "source": 7}, "cell 3 has no source"),
    "numbers as lines": ({"cell_type": "code", "source": ["x\n", 7]}, "cell 3 has no source"),
    "no type": ({"source": "x"}, "cell 3 is no cell: it has no cell_type"),
    "no object": ("x = 1", "cell 3 is no cell: it has no cell_type"),
    "a type of its own": (
        {"cell_type": "unknown", "source": "x"},
        "cell 3 is not read as code: its type is 'unknown'",
    ),
    "no Python": (
        {"cell_type": "code", "source": "def helper(:"},
        "cell 3 cannot be used: SyntaxError: invalid syntax, line 1 of it: def helper(:",
    ),
    "a long cell": (
        {"cell_type": "code", "source": "#" * (LARGEST_CELL + 1)},
        f"cell 3 cannot be used: expected at most {LARGEST_CELL} characters, got {LARGEST_CELL + 1}",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_cell_costs_itself_alone_and_is_named(tmp_path, kind):
    cell, says = DAMAGED[kind]
    read = read_submission("ada", written(tmp_path / CHAPTER, cell))
    assert plan(read, TASK).status == "written"
    assert [*read.problems.values()] == [f"{CHAPTER}: {says}"]


def test_a_chapter_is_known_by_its_exercises_where_its_directive_is_lost(tmp_path):
    directive = {"cell_type": "unknown", "source": "#| default_exp attention"}
    assert [*read_submission("ada", written(tmp_path / "a.ipynb", directive)).notebooks] == [
        "attention"
    ]
    marked = {"cell_type": "code", "source": "#| export\n#| exercise attention.bias points=1"}
    assert [*read_submission("ada", written(tmp_path / "b.ipynb", marked)).notebooks] == [
        "attention"
    ]


def test_an_old_notebook_is_named(tmp_path):
    for old in (
        {"nbformat": 3, "worksheets": [{"cells": []}]},
        {"nbformat": 3, "cells": []},
        {"nbformat": 2, "worksheets": []},
    ):
        (tmp_path / CHAPTER).write_text(json.dumps(old))
        with pytest.raises(
            ValueError,
            match=rf"{CHAPTER}: expected a notebook of nbformat 4, got nbformat {old['nbformat']}",
        ):
            read_notebook(tmp_path / CHAPTER)
    for text in ("[]", "3", '"cells"', '{"cells": {}}', '{"cells": [1, 2]}', "[" * 100_000):
        (tmp_path / CHAPTER).write_text(text)
        with pytest.raises(ValueError, match="expected a notebook"):
            read_notebook(tmp_path / CHAPTER)


@pytest.mark.parametrize(
    "source, says",
    [
        ("def helper(:\n    pass", "SyntaxError: invalid syntax"),
        ("helper = (", "never closed"),
        (
            "def helper(x):\n    return x\n#" + "x" * LARGEST_CELL,
            f"expected at most {LARGEST_CELL} characters",
        ),
    ],
)
def test_a_helper_that_cannot_be_used_is_told_to_who_fails_for_it(source, says):
    uses = FULL.rstrip("\n").rpartition("\n")[0] + "\n    return helper(attention_mask)\n"

    def submission(*cells):
        return Submission("ada", {TASK.module: read_cells(cells)}, {})

    found = plan(submission("import torch", source, uses), TASK)
    assert (
        found.status == "written"
        and found.note.startswith("`helper` is defined in a cell that cannot be used: ")
        and says in found.note
    )
    # not needed
    assert not plan(submission("import torch", source, FULL), TASK).note
    # defined elsewhere
    assert not plan(submission(source, "def helper(x):\n    return x", uses), TASK).note
    for passed, reason in ((False, f"NameError\n{found.note}"), (True, "NameError")):
        ledger = SimpleNamespace(
            rows={"key": {"passed": passed, "reason": "NameError", "picture": None}}
        )
        report = grading._report(
            submission(source), {TASK.name: found}, {TASK.name: "key"}, None, ledger
        )
        assert report.results[TASK.name].reason == reason


def test_cells_that_cannot_be_used_are_in_every_report(tmp_path):
    read = read_submission("ada", written(tmp_path / CHAPTER, {"cell_type": "code"}))
    report = grading._report(read, {}, {}, None, SimpleNamespace(rows={}))
    assert f"{CHAPTER}: cell 3 has no source" in csv_table(
        [report]
    ) and f"{CHAPTER}: cell 3 has no source" in page(report)
    assert "1 cells not used" in scores([report]) and "not read" not in scores([report])


# kind of download -> (its files, the submissions in it); {} stands for the chapter
DOWNLOADS = {
    "Moodle": (
        [
            "Ann Lee_4321_assignsubmission_file_/{}",
            "Bob Ray_4322_assignsubmission_file_/nbs/1_bert/{}",
            "Bob Ray_4322_assignsubmission_onlinetext_/onlinetext.html",
        ],
        {"Ann Lee_4321_assignsubmission_file_", "Bob Ray_4322_assignsubmission_file_"},
    ),
    "Gradescope": (
        ["submission_1001/{}", "submission_1002/my-bert/nbs/1_bert/{}", "submission_metadata.yml"],
        {"submission_1001", "submission_1002"},
    ),
    "Brightspace": (
        [
            "12-345 - Ann Lee - Oct 1, 2026 1015 AM/{}",
            "13-345 - Bob Ray - Oct 1, 2026 1016 AM/{}",
            "index.html",
            "notes.txt",
        ],
        {"12-345 - Ann Lee - Oct 1, 2026 1015 AM", "13-345 - Bob Ray - Oct 1, 2026 1016 AM"},
    ),
    "Brightspace, in one folder": (
        [
            "12-345 - Ann Lee - Oct 1, 2026 1015 AM - {}",
            "13-345 - Bob Ray - Oct 1, 2026 1016 AM - {}",
            "index.html",
        ],
        {"Ann Lee_12-345", "Bob Ray_13-345"},
    ),
    "Blackboard": (
        [
            "HW 1_annlee_attempt_2026-10-01-10-15-00_{}",
            "HW 1_annlee_attempt_2026-10-01-10-15-00.txt",
            "HW 1_bob_attempt_2026-10-01-10-16-00_{}",
            "HW 1_bob_attempt_2026-10-01-10-16-00.txt",
        ],
        {"annlee", "bob"},
    ),
    "Canvas": (
        ["leeann_4321_987654_{}", "raybob_LATE_4322_987655_{}", "index.html"],
        {"leeann_4321", "raybob_4322"},
    ),
}


def downloaded(folder: Path, files: list[str]) -> Path:
    for name in files:
        place = folder / name.format(CHAPTER)
        if "{}" in name:
            written(place)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("of the platform")
    return folder


def zipped(folder: Path, file: Path) -> Path:
    with zipfile.ZipFile(file, "w") as packed:
        for one in sorted(folder.rglob("*")):
            packed.write(one, one.relative_to(folder))
    return file


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("kind", DOWNLOADS)
def test_everybody_in_a_download_has_a_row_and_a_platforms_own_file_none(tmp_path, kind, above):
    files, people = DOWNLOADS[kind]
    downloaded(tmp_path / "top" / "middle" / "export", files)
    found = find_submissions([tmp_path / "/".join(["top", "middle", "export"][: 3 - above])])
    assert set(found) == people
    assert all(
        plan(read_submission(name, place), TASK).status == "written"
        for name, place in found.items()
    )


def test_downloads_of_two_sections_are_everybodys(tmp_path):
    for section, who in (("a", "Ann Lee_4321"), ("b", "Bob Ray_4322")):
        downloaded(
            tmp_path / section,
            [f"{who}_assignsubmission_file_/{{}}", f"{who}9_assignsubmission_file_/{{}}"],
        )
    assert len(find_submissions([tmp_path])) == 4


@pytest.mark.parametrize("kind", DOWNLOADS)
def test_a_zip_of_many_people_is_refused_with_what_to_do(tmp_path, kind):
    files, people = DOWNLOADS[kind]
    file = zipped(downloaded(tmp_path / "export", files), tmp_path / "all.zip")
    read = read_submission("all.zip", file)
    assert (
        not read.notebooks
        and f"files of {len(people)} people: unpack it, and grade the folder" in read.problems[""]
    )
    assert "files of 2 people: unpack it" in plan(read, TASK).reason


def test_people_without_a_platforms_names_are_not_taken_for_one(tmp_path):
    folder = downloaded(tmp_path / "up" / "class", ["ann/{}", "bob/{}"])
    assert set(find_submissions([folder])) == {"ann", "bob"}
    file = zipped(folder, tmp_path / "class.zip")
    with pytest.raises(
        ValueError,
        match="class.zip with the same chapter in ann and bob: if these are people, unpack it, and grade the folder",
    ):
        find_submissions([file])
    with pytest.raises(
        ValueError,
        match="class with the same chapter in ann and bob: if these are people, grade .*class by itself",
    ):
        find_submissions([tmp_path / "up"])
    # somebody's folder beside it: then these may be copies
    downloaded(tmp_path / "up" / "cy", ["{}"])
    read = {
        name: read_submission(name, place)
        for name, place in find_submissions([tmp_path / "up"]).items()
    }
    assert set(read) == {"class", "cy"} and "another copy of this chapter" in str(
        read["class"].problems
    )
    downloaded(folder, ["dan/{}"])  # nobody has three
    assert (
        "the same chapter in 3 folders, such as ann and bob: grade the folder in which these lie"
        in read_submission("class", folder).problems[""]
    )


def test_one_persons_copies_are_one_persons(tmp_path):
    folder = downloaded(
        tmp_path / "class",
        ["ann/nbs/1_bert/{}", "ann/1_bert/{}", "ann/nbs/.ipynb_checkpoints/{}", "bob/{}"],
    )
    assert set(find_submissions([folder])) == {"ann", "bob"}
    assert plan(read_submission("ann", folder / "ann"), TASK).status == "written"
    assert set(find_submissions([zipped(folder / "ann", tmp_path / "ann.zip")])) == {"ann.zip"}


def test_a_name_in_capitals_is_a_notebook_too(tmp_path):
    written(tmp_path / "class" / "ann" / CHAPTER.upper())
    written(tmp_path / "class" / "bob" / CHAPTER.replace(".ipynb", ".IPYNB"))
    written(
        tmp_path / "class" / "cy.IPYNB", {"cell_type": "code", "source": "#| default_exp attention"}
    )
    zipped(tmp_path / "class" / "ann", tmp_path / "class" / "dan.ZIP")
    found = find_submissions([tmp_path / "class"])
    assert set(found) == {"ann", "bob", "cy.IPYNB", "dan.ZIP"}
    assert all(
        plan(read_submission(name, place), TASK).status == "written"
        for name, place in found.items()
    )


def test_a_zip_in_a_zip_is_named(tmp_path):
    (tmp_path / "inner").mkdir()
    zipped(downloaded(tmp_path / "ann", ["{}"]), tmp_path / "inner" / "ann.zip")
    file = zipped(tmp_path / "inner", tmp_path / "outer.zip")
    assert (
        "a zip in a zip, ann.zip: unpack outer.zip"
        in read_submission("outer.zip", file).problems[""]
    )


@pytest.mark.long
def test_answers_as_jupyter_takes_them_get_their_points(tmp_path):
    forms = {
        "indent": "    " + FULL.replace("\n", "\n    ").rstrip(),
        "prompts": prompted(FULL, ">>> ", "... "),
        "magic": "%%memit\n" + FULL,
    }
    for who, text in forms.items():
        (tmp_path / "class" / who).mkdir(parents=True)
        nbformat.write(
            new_notebook(cells=[new_code_cell("import torch"), new_code_cell(text)]),
            tmp_path / "class" / who / CHAPTER,
        )
    reports, _ = grade([tmp_path / "class"], seed=3, only=[TASK.name], jobs=1)
    assert [(r.name, r.points) for r in reports] == [(who, TASK.points) for who in sorted(forms)]
