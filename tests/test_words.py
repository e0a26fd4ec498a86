"""What a task does not ask for, no later cell demands: solved by the words alone, or borrowed, every chapter runs to its end."""
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from solving import borrow_all, solve

import minbert
from minbert.course.exercises import EXERCISES, right_definition
from minbert.course.grading import grade
from minbert.course.workspace import new_workspace

pytestmark = pytest.mark.long
CHAPTERS = "|".join(dict.fromkeys(task.notebook for task in EXERCISES.values()))
ENV = {k: v for k, v in os.environ.items() if k not in ("IN_TEST", "MINBERT_DATA")}
ENV |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(Path(minbert.__file__).parent.parent)}


def nbdev_test(folder: Path, pattern: str = CHAPTERS) -> tuple[int, str]:
    """Run the chapters of a workspace that have exercises, as a learner does; the others are the same in every workspace."""
    command = [str(Path(sys.executable).parent / "nbdev_test"), "--file_re", pattern, "--n_workers", "2"]
    ran = subprocess.Popen(command, cwd=folder, env=ENV, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said = ran.communicate(timeout=2400)[0]
        return ran.returncode, said
    finally:
        if ran.poll() is None:
            os.killpg(ran.pid, signal.SIGKILL)  # its workers too: they would compute on without it


@pytest.mark.parametrize("number", [0, 1])
def test_a_workspace_solved_by_the_words_of_the_tasks_alone_is_green(tmp_path, number):
    """Bodies in other styles than ours, below the guards that the stubs give: all checks, and all cells behind them."""
    mine = new_workspace(tmp_path / "my-bert")
    solve(mine, bodies={name: right_definition(task, task.variants[number]) for name, task in EXERCISES.items()})
    status, said = nbdev_test(mine)
    assert status == 0 and "Success." in said, said[-5000:]
    report = grade([mine], seed=3)[0][0]
    assert {name: r.reason for name, r in report.results.items() if r.status != "passed"} == {}


def test_a_workspace_in_which_everything_is_borrowed_is_green_and_gives_no_point(tmp_path):
    mine = new_workspace(tmp_path / "my-bert")
    assert borrow_all(mine) == len(EXERCISES)
    status, said = nbdev_test(mine)
    assert status == 0 and "Success." in said, said[-5000:]
    report = grade([mine], seed=3)[0][0]
    assert {r.status for r in report.results.values()} == {"borrowed"} and report.points == report.integrated == 0
