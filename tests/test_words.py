"""What a task does not ask for, no later cell demands: solved by the words alone every chapter runs
to its end; half in other words and half borrowed, to its last check.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from solving import borrow_all, cut, solve

import minbert
from minbert.course.exercises import EXERCISES, right_definition
from minbert.course.grading import grade
from minbert.course.workspace import new_workspace

pytestmark = [pytest.mark.long, pytest.mark.release]
CHAPTERS = sorted({Path(task.notebook).name for task in EXERCISES.values()})
ENV = {k: v for k, v in os.environ.items() if k not in ("IN_TEST", "MINBERT_DATA")}
ENV |= {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "agg",
    "PYTHONPATH": str(Path(minbert.__file__).parent.parent),
}


def run_chapters(folder: Path) -> None:
    """Run the chapters of a workspace that have exercises, as a learner does; the others are the
    same in every workspace.
    """
    command = [
        str(Path(sys.executable).parent / "nbdev_test"),
        "--file_re",
        f"^({'|'.join(CHAPTERS)})\\.ipynb$",
        "--n_workers",
        "2",
        "--timing",
    ]
    ran = subprocess.Popen(
        command,
        cwd=folder,
        env=ENV,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said = ran.communicate(timeout=2400)[0]
    finally:
        if ran.poll() is None:
            os.killpg(ran.pid, signal.SIGKILL)  # its workers too: they would compute on without it
    assert ran.returncode == 0 and "Success." in said, said[-5000:]
    assert (
        sorted(line.partition(".ipynb: ")[0] for line in said.split("\n") if ".ipynb: " in line)
        == CHAPTERS
    )


def solved(folder: Path, number: int, names) -> Path:
    """A workspace in which some exercises are written as their `number`-th right variant, in other
    styles than ours and below the guards that the stubs give.
    """
    mine = new_workspace(folder / "my-bert")
    solve(
        mine,
        names,
        {
            name: right_definition(EXERCISES[name], EXERCISES[name].variants[number])
            for name in names
        },
    )
    return mine


def test_a_workspace_solved_by_the_words_of_the_tasks_alone_is_green(tmp_path):
    """All checks, and all cells behind them."""
    mine = solved(tmp_path, 0, list(EXERCISES))
    run_chapters(mine)
    report = grade([mine], seed=3)[0][0]
    assert {name: r.reason for name, r in report.results.items() if r.status != "passed"} == {}


@pytest.mark.parametrize("first", [0, 1])
def test_a_workspace_half_solved_in_other_words_and_half_borrowed_is_green(tmp_path, first):
    """Every exercise both ways. What stands behind the last check runs above, and with the
    reference where the book itself is run: a third and a fourth time would cost a quarter of an
    hour.
    """
    own, lent = list(EXERCISES)[first::2], list(EXERCISES)[1 - first :: 2]
    mine = solved(tmp_path, 1, own)
    assert borrow_all(mine, lent) == len(lent)
    assert cut(mine) > 100
    run_chapters(mine)
    report = grade([mine], seed=3)[0][0]
    assert {name: r.status for name, r in report.results.items()} == {
        name: "passed" if name in own else "borrowed" for name in EXERCISES
    }
    assert report.points == sum(EXERCISES[name].points for name in own)


def test_a_workspace_in_which_everything_is_borrowed_gives_no_point(tmp_path):
    mine = new_workspace(tmp_path / "my-bert")
    assert borrow_all(mine) == len(EXERCISES)
    report = grade([mine], seed=3)[0][0]
    assert {r.status for r in report.results.values()} == {
        "borrowed"
    } and report.points == report.integrated == 0
