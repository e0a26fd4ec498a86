"""An exercise left for later: the chapter goes on with what is borrowed, and nobody wins a point by
it.
"""

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from solving import borrow_all, solve
from submissions import make
from test_workspace import run

from minbert.course.exercises import EXERCISES, borrow, exercise, in_chapter
from minbert.course.grading import grade
from minbert.course.source_tools import replace
from minbert.course.workspace import new_workspace

BIAS, PROJECT, SPLIT = (
    exercise("attention.bias"),
    exercise("attention.project"),
    exercise("attention.split"),
)

# name -> (definition in the place of the stub, or None; cells behind it; what attention.bias
# deserves)
TRICKS = {
    "left": (
        None,
        ["from minbert.course import borrow; padding_bias = borrow('attention.bias')"],
        "borrowed",
    ),
    "inside": (
        "def padding_bias(attention_mask, key):\n    from minbert.course import borrow\n    return borrow('attention.bias')(attention_mask, key)\n",
        [],
        "failed",
    ),
    "from exercises": (
        "def padding_bias(attention_mask, key):\n    from minbert.course.exercises import borrow\n    return borrow('attention.bias')(attention_mask, key)\n",
        [],
        "failed",
    ),
    "by a helper": (
        "def padding_bias(attention_mask, key):\n    return helper(attention_mask, key)\n",
        ["from minbert.course import borrow\nhelper = borrow('attention.bias')"],
        "failed",
    ),
    "under another exercise": (
        "def padding_bias(attention_mask, key):\n    return helper(attention_mask, key)\n",
        [
            "from minbert.course import borrow\nhelper = borrow('attention.maps').__globals__['padding_bias']"
        ],
        "failed",
    ),
    "unwritten again": (
        None,
        [
            "from minbert.course import borrow; padding_bias = borrow('attention.bias')\nfrom minbert.attention import padding_bias"
        ],
        "borrowed",
    ),
    "and then written": (
        BIAS.definition,
        ["from minbert.course import borrow; padding_bias = borrow('attention.bias')"],
        "passed",
    ),
    "another's": (
        None,
        ["from minbert.course import borrow; padding_bias = borrow('attention.maps')"],
        "not attempted",
    ),
    "a method": (
        None,
        ["from minbert.course import borrow; SelfAttention.project = borrow('attention.project')"],
        "not attempted",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    room = tmp_path_factory.mktemp("class")
    for name, (definition, cells, _) in TRICKS.items():
        make(room / name, {BIAS.name: definition, SPLIT.name: SPLIT.definition})
        file = room / name / "nbs" / f"{BIAS.notebook}.ipynb"
        notebook = nbformat.read(file, 4)
        notebook.cells += [new_code_cell(cell) for cell in cells]
        nbformat.write(notebook, file)
    return {r.name: r for r in grade([room], seed=7, only=in_chapter("02_"), jobs=2)[0]}


@pytest.mark.long
@pytest.mark.parametrize("name", TRICKS)
def test_what_is_borrowed_is_worth_nothing(graded, name):
    result = graded[name].results[BIAS.name]
    assert result.status == TRICKS[name][2], result
    assert result.points == (BIAS.points if result.status == "passed" else 0)
    assert (
        graded[name].results[SPLIT.name].status == "passed"
        and graded[name].points == SPLIT.points + result.points
    )
    assert graded[name].integrated <= graded[name].points
    assert graded[name].results[PROJECT.name].status == (
        "borrowed" if name == "a method" else "not attempted"
    )


@pytest.mark.long
def test_a_chapter_goes_on_and_the_package_keeps_the_stub(tmp_path):
    mine = new_workspace(tmp_path / "my-bert")
    assert borrow_all(mine) == len(EXERCISES)
    solve(mine, [SPLIT.name])
    file = mine / "nbs" / f"{BIAS.notebook}.ipynb"
    notebook = nbformat.read(file, 4)
    for cell in notebook.cells:
        if cell.id == "check-attention-split":
            cell.source = "# " + cell.source
        # in an exported cell it goes along
        if "#| exercise attention.merge" in cell.source:
            cell.source = replace(
                cell.source,
                "merge_heads",
                "from minbert.course import borrow; merge_heads = borrow('attention.merge')",
            )
    nbformat.write(notebook, file)
    status, said = run(mine, "nbdev_test", "--file_re", "attention")
    assert status == 0 and "Success." in said, said
    assert run(mine, "nbdev_export")[0] == 0
    code = (
        "import torch; from mybert.attention import merge_heads, padding_bias, split_heads; print(merge_heads(split_heads(torch.ones(3, 4), 2)).shape)\n"
        "try: padding_bias(torch.ones(1, 2), torch.ones(1, 1, 2, 2))\nexcept NotImplementedError as error: print(error)"
    )
    status, said = run(mine, sys.executable, "-c", code)
    assert status == 0 and "torch.Size([3, 4])" in said and "exercise attention.bias" in said, said
    status, said = run(
        mine, sys.executable, "-m", "minbert", "course", "status", "--chapter", "02_"
    )
    lines = {
        line.split()[0]: line.split()[1:]
        for line in said.split("\n")
        if line.startswith("attention.")
    }
    assert lines[SPLIT.name][0] == "passed" and all(
        words[0] == "borrowed" and words[1] == "0"
        for name, words in lines.items()
        if name != SPLIT.name
    ), said
    assert f"{SPLIT.points} of " in said.strip().split("\n")[-1]


def test_names_that_nobody_knows():
    with pytest.raises(ValueError, match="attention.bias"):
        borrow("atention.bias")
