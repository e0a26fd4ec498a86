"""Grading does not depend on how busy a machine is; what was tried beside the exercise is flagged;
the list of a class can be read.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from submissions import ATTACKS, attack, make

from minbert.course import exercises, grading, isolation_worker
from minbert.course import grading_queue as batches
from minbert.course.answer_extraction import read_cells
from minbert.course.check_runner import Outcome
from minbert.course.exercises import EXERCISES, SECONDS, check, exercise, reference
from minbert.course.grading import GradeReport, Result, Submission, grade, plan
from minbert.course.grading_queue import Batch, ResultStore
from minbert.course.isolation_worker import _attempts, _queued, _watch
from minbert.course.reports import csv_table, index, page
from minbert.course.sandbox import JobRunner, Limits, Reply, SandboxRun

TASK, OTHER = exercise("attention.scores"), exercise("attention.split")
LATE, SPENT = SandboxRun([], Reply(True, 9, 32.0)), SandboxRun([], Reply(False, 24, 8.0))
CRASHED, FULL, WRONG = (
    SandboxRun([], Reply(False, 11, 0.1)),
    SandboxRun([], Reply(True, 9, 1.0, True)),
    SandboxRun([Outcome("a", None, "no")], Reply(False, 0, 0.1)),
)


# Time


def watched(command: str, folder: Path, **limits) -> dict:
    """What a worker says of a process, once it is over."""
    job = {"wall": 60.0, "cpu": 60, "space": 2**22, "folder": str(folder), "tasks": []} | limits
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, start_new_session=True)
    told, process.returncode = _watch(process.pid, job), 0  # waited for already
    return told


def test_waiting_for_a_processor_makes_nobody_late(tmp_path, monkeypatch):
    start = time.monotonic()
    # others have all the processors all the time
    monkeypatch.setattr(isolation_worker, "_queued", lambda pid: time.monotonic() - start)
    told = watched("sleep 1; exit 3", tmp_path, wall=0.3)
    assert (told["late"], told["status"]) == (False, 3 << 8)
    monkeypatch.setattr(isolation_worker, "_queued", lambda pid: 0.0)
    assert watched("sleep 60", tmp_path, wall=0.3)["late"]


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"),
    reason="the kernel does not count how long a process waits",
)
def test_the_time_without_a_processor_is_counted():
    code = "import os, time\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile time.process_time() < 1: pass\nprint(flush=True)\ninput()"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for process in both:
            process.stdout.readline()
        # of one processor, one waits while the other has its second
        assert max(_queued(process.pid) for process in both) > 0.4
    finally:
        for process in both:
            process.communicate(b"\n")
    assert _queued(both[0].pid) == 0.0  # gone


def test_who_ran_out_of_time_is_told_from_who_crashed():
    assert LATE.out_of_time and SPENT.out_of_time
    assert not any(
        run.out_of_time
        for run in (
            CRASHED,
            FULL,
            WRONG,
            SandboxRun([Outcome("a", None, "no")], Reply(True, 9, 32.0)),
        )
    )


class Tries:
    """In the place of a desk: what becomes of each answer, one try after the other."""

    def __init__(self, *runs):
        self.left = list(runs)

    def __call__(self, desk, task):
        return SimpleNamespace(try_text=lambda text: self.left.pop(0))


@pytest.mark.parametrize("first", [LATE, SPENT])
def test_who_runs_out_of_time_beside_others_is_tried_again_with_the_machine_to_itself(
    tmp_path, monkeypatch, first
):
    """The second try counts, and the first is not filed: a batch that is killed in between starts
    that answer anew.
    """
    todo = {TASK.name: {"one": ""}, OTHER.name: {"two": ""}}
    for second, ended in ((WRONG, True), (first, False)):
        lanes = []
        on = Batch(tmp_path, tmp_path, ResultStore(tmp_path / f"{ended}.jsonl"), jobs=2)
        ticks = []
        monkeypatch.setattr(on, "_sandbox", lambda: None)
        monkeypatch.setattr(
            JobRunner,
            "at",
            lambda desk, task, tries=Tries(first, first, second, second): tries(desk, task),  # noqa: B008
        )
        pool = batches.ThreadPoolExecutor
        monkeypatch.setattr(
            batches,
            "ThreadPoolExecutor",
            lambda jobs, pool=pool: lanes.append((jobs, len(on.ledger.rows))) or pool(jobs),
        )
        on.alone(todo, ticks.append)
        monkeypatch.setattr(batches, "ThreadPoolExecutor", pool)
        assert lanes == [(2, 0), (1, 0)] and ticks == [1, 1]
        assert [row["ended"] for row in on.ledger.rows.values()] == [ended, ended]


@pytest.mark.parametrize(
    "jobs, todo",
    [
        (1, {TASK.name: {"one": ""}, OTHER.name: {"two": ""}}),
        (2, {TASK.name: {"one": "", "two": ""}}),
    ],
)
def test_who_runs_out_of_time_alone_is_not_tried_again(tmp_path, monkeypatch, jobs, todo):
    on = Batch(tmp_path, tmp_path, ResultStore(tmp_path / "results.jsonl"), jobs=jobs)
    monkeypatch.setattr(on, "_sandbox", lambda: None)
    tries = Tries(LATE, SPENT)
    monkeypatch.setattr(JobRunner, "at", lambda desk, task: tries(desk, task))
    on.alone(todo, lambda n: None)
    assert ["stopped: t" in row["reason"] for row in on.ledger.rows.values()] == [True, True]


def test_a_check_says_when_a_right_answer_is_too_slow_to_be_graded(monkeypatch, capsys):
    assert Limits().cpu == SECONDS
    for used in (SECONDS + 1.25, SECONDS - 1):
        clock = iter([100.0, 100.0 + used])
        monkeypatch.setattr(
            exercises,
            "time",
            SimpleNamespace(process_time=lambda: next(clock), perf_counter=time.perf_counter),
        )
        check(TASK.name, reference(TASK))
        said = capsys.readouterr().out
        assert "passed" in said and (
            f"needed {used:.1f} seconds of processor, and grading stops an answer after {SECONDS}"
            in said
        ) == (used > SECONDS)


# Flags

HANDED_IN = {
    "os._exit": "import os; os._exit(0)",
    "sys._getframe": "import sys\nwhile sys._getframe(): pass",
    "inspect.stack": "import inspect as i\nreturn i.stack()",
    "minbert.course": "import minbert.course.check_runner as t\nreturn t.judge",
    "gc.get_objects": "from gc import get_objects\nreturn get_objects()",
    "torch.allclose = ..., which changes a library": "import torch\ntorch.allclose = lambda *a: True",
    "builtins": "import builtins as b\nsetattr(b, 'len', print)",
}


@pytest.mark.parametrize("flag", HANDED_IN)
def test_what_no_exercise_needs_is_flagged(flag):
    body = HANDED_IN[flag].replace("\n", "\n    ")

    def handed_in(*cells):
        return plan(Submission("ada", {TASK.module: read_cells(cells)}, {}), TASK).flags

    assert handed_in(f"def {TASK.target}(*args):\n    {body}\n    return 0") == (flag,)
    assert handed_in(
        f"def helper():\n    {body}", f"def {TASK.target}(*args):\n    return helper()"
    ) == (flag,)
    # not used
    assert handed_in(f"def helper():\n    {body}", f"def {TASK.target}(*args):\n    return 0") == ()


def test_no_right_answer_is_flagged_for_it():
    for task in EXERCISES.values():
        for text in (
            task.definition,
            *(exercises.right_definition(task, variant) for variant in task.variants),
        ):
            flags = plan(
                Submission(
                    "ada",
                    {task.module: read_cells([f"import torch, math\nimport numpy as np\n{text}"])},
                    {},
                ),
                task,
            ).flags
            assert set(flags) <= {grading.PASTED, *task.trial.forbidden}, (task.name, flags)


def test_only_names_of_events_are_taken_from_the_pipe():
    heard, tell = os.pipe()
    os.set_blocking(heard, False)
    assert _attempts(heard) == []
    os.write(
        tell,
        b"os.kill\nopen\nos.kill\n<script>\nnone of ours\n\xff\xfe\nsocket.connect\n"
        + b"x."
        + b"y" * 99
        + b"\nos.re",
    )
    assert _attempts(heard) == ["open", "os.kill", "os.re", "socket.connect"]
    for end in (heard, tell):
        os.close(end)


def test_attempts_and_the_reference_are_in_every_report():
    said = f"NotImplementedError: {grading.ABSENT.format(TASK.name)}"
    ledger = SimpleNamespace(
        rows={
            "a": {"passed": False, "reason": said, "picture": None, "attempts": ["os.kill"]},
            "whole": {"passed": [], "attempts": ["os.kill"]},
        }
    )
    plans = {TASK.name: grading.GradingPlan("written")}
    assert grading._doubtful(plans, "whole", ledger) == [TASK.name]
    report = grading._report(Submission("ada", {}, {}), plans, {TASK.name: "a"}, None, ledger)
    assert report.results[TASK.name].flags == (
        "os.kill, which no exercise needs",
        f"minbert's own {TASK.name}",
    )
    assert (
        "os.kill, which no exercise needs" in csv_table([report])
        and "uses os.kill, which no exercise needs" in index([report])
        and "uses os.kill, which no exercise needs" in page(report)
    )


def test_who_passes_together_and_was_attempts_something_is_tried_alone():
    rows = {"whole": {"passed": [TASK.name, OTHER.name], "ended": True}}
    plans = {name: grading.GradingPlan("written") for name in (TASK.name, OTHER.name)}
    assert grading._doubtful(plans, "whole", SimpleNamespace(rows=rows)) == []
    rows["whole"]["attempts"] = ["os.system"]
    assert grading._doubtful(plans, "whole", SimpleNamespace(rows=rows)) == [TASK.name, OTHER.name]


@pytest.mark.long
def test_attempts_are_flagged_and_cost_the_neighbour_nothing(tmp_path):
    """Also one that goes on and answers rightly: it has its points and its flag."""
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / ".keep").write_text("keep me")
    kinds = {
        "a class equal to all": "os.remove",
        "a text that lies": "open",
        "kills": "os.kill",
        "network": "socket.",
        "reference by path": "open",
    }
    assert set(kinds) < set(ATTACKS)
    for kind in kinds:
        make(
            folder / kind,
            {TASK.name: attack(kind, TASK, folder), OTHER.name: OTHER.definition},
            only=TASK.notebook,
        )
    tries = "    getattr(__import__('o' + 's'), 'sys' + 'tem')('true')\n"
    first, _, last = TASK.definition.rpartition("    weights = F")
    make(
        folder / "quiet",
        {TASK.name: f"{first}{tries}    weights = F{last}", OTHER.name: OTHER.definition},
        only=TASK.notebook,
    )
    reports = {
        r.name: r.results
        for r in grade(
            [folder], seed=5, limits=Limits(wall=4.0, cpu=4), only=[TASK.name, OTHER.name], jobs=2
        )[0]
    }
    assert all(
        any(flag.startswith(event) for flag in reports[kind][TASK.name].flags)
        for kind, event in kinds.items()
    ), reports
    assert reports["quiet"][TASK.name].status == "passed" and reports["quiet"][TASK.name].flags == (
        "os.system, which no exercise needs",
    )
    assert not any(results[OTHER.name].flags for results in reports.values())


# The list


def test_columns_carry_the_numbers_of_the_chapters_and_fit_a_narrow_page():
    report = GradeReport(
        "Ann Lee_4321",
        {name: Result("passed", task.points) for name, task in EXERCISES.items()},
        0,
        (),
    )
    shown = index([report])
    chapters = list(
        dict.fromkeys(Path(task.notebook).name.partition("_")[0] for task in EXERCISES.values())
    )
    assert (
        re.findall(r"<th>(\d+)</th>", shown) == chapters
        and len(set(chapters)) == len(chapters) > 20
    )
    assert [
        f'.wide td:nth-child({i})::before{{content:"{number} "}}' in shown
        for i, number in enumerate(chapters, 6)
    ] == [True] * len(chapters)
    assert ">Ann Lee_<wbr>4321</a>" in shown and "<h1>Ann Lee_<wbr>4321</h1>" in page(report)


@pytest.mark.long
def test_a_busy_answer_has_its_points_however_many_others_compute(tmp_path):
    """Three seconds of processor of six, with four times as many processes as processors: by the
    clock, they take longer than the four that who sleeps would have.
    """
    task = exercise("attention.bias")
    lines, last = task.definition.rstrip("\n").rsplit("\n", 1)
    busy = "    import time\n    if not spent:\n        spent.append(1)\n        end = time.process_time() + 3\n        while time.process_time() < end: pass"
    (tmp_path / "class" / "ann").mkdir(parents=True)
    nbformat.write(
        new_notebook(
            cells=[
                new_code_cell("import torch\nspent = []"),
                new_code_cell(f"{lines}\n{busy}\n{last}"),
            ]
        ),
        tmp_path / "class" / "ann" / "02_attention.ipynb",
    )
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        (report,) = grade(
            [tmp_path / "class"], seed=3, only=[task.name], limits=Limits(wall=4.0, cpu=6), jobs=1
        )[0]
    finally:
        for process in others:
            process.kill()
            process.wait()
    assert report.results[task.name].status == "passed", report.results[task.name]
