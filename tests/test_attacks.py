"""Attacks: each is a fail of its exercise alone, and leaves everything as it was."""

import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from textwrap import indent

import psutil
import pytest
import torch
from submissions import ATTACKS, attack, make

from minbert.course import sandbox
from minbert.course.check_runner import Outcome
from minbert.course.exercises import exercise
from minbert.course.grading import grade
from minbert.course.grading_queue import batch
from minbert.course.isolation_worker import _watch, write_tree
from minbert.course.sandbox import JobRunner, Limits, Reply, Sandbox, SandboxRun
from minbert.course.source_tools import module_text, replace

VICTIM, NEIGHBOUR = exercise("attention.scores"), exercise("attention.split")
SHORT = Limits(wall=4.0, cpu=2)  # seconds; many of them only wait


def mark(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let whatever is started from here on, and whatever that starts, bear a folder's name in its
    environment.
    """
    patch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(folder)]))


def bearing(folder: Path) -> list[str]:
    """List the processes that bear the name of a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # gone, or not ours
            if str(folder) in process.environ().get("PATH", ""):
                found.append(" ".join(process.cmdline()))
    return found


def left_of(folder: Path, expected: list[str] | None = None) -> list[str]:
    """Those that stay. Whoever was killed may need a moment to be gone, and who has just begun may
    have no environment yet.
    """
    for _ in range(50):
        if bearing(folder) == (expected or []):
            break
        time.sleep(0.1)
    return bearing(folder)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """One submission an attack: the attack in one exercise, the reference in another."""
    folder = tmp_path_factory.mktemp("class") / "submissions"
    folder.mkdir()
    (folder / ".keep").write_text("keep me")
    poison = f"import os\nprint('passed')\nos.remove({str(folder / '.keep')!r})\nos._exit(0)"
    for kind in ATTACKS:
        make(
            folder / kind,
            {VICTIM.name: attack(kind, VICTIM, folder), NEIGHBOUR.name: NEIGHBOUR.definition},
            poison,
            VICTIM.notebook,
        )
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        mark(folder, patch)
        # most of them only wait
        reports, level = grade(
            [folder], seed=5, limits=SHORT, only=[VICTIM.name, NEIGHBOUR.name], jobs=4
        )
    return {r.name: r for r in reports}, before, folder, level


@pytest.mark.long
@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_fails_that_exercise_alone(attacked, kind):
    reports, _, _, _ = attacked
    results = reports[kind].results
    assert results[VICTIM.name].status == "failed", results[VICTIM.name]
    assert results[NEIGHBOUR.name].status == "passed", results[NEIGHBOUR.name].reason
    assert reports[kind].points == NEIGHBOUR.points


@pytest.mark.long
def test_attacks_leave_the_disk_as_it_was(attacked):
    _, before, folder, _ = attacked
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before


@pytest.mark.long
def test_no_attack_leaves_a_process(attacked):
    assert left_of(attacked[2]) == []


def test_a_process_that_stays_would_be_seen(tmp_path, monkeypatch):
    mark(tmp_path, monkeypatch)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert left_of(tmp_path, ["sleep 60"]) == ["sleep 60"]
        finally:
            process.kill()
    assert left_of(tmp_path) == []


@pytest.mark.long
def test_a_thief_is_flagged_and_gets_nothing(attacked):
    stolen = attacked[0]["reference"].results[VICTIM.name]
    assert "left out here; write your own" in stolen.reason


def test_every_copy_of_the_package_is_hidden(tmp_path, monkeypatch):
    """A second copy, on a path of Python's own or among what is installed, holds the same answers."""
    monkeypatch.setattr(sandbox.sys, "prefix", str(tmp_path / "venv"))
    for place in ("path", "venv/lib/python3.11/site-packages"):
        (tmp_path / place / "minbert").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "path")
    assert {str(sandbox.PACKAGE), *(str(p) for p in tmp_path.rglob("minbert"))} <= set(
        Sandbox(tmp_path).hidden
    )


def test_a_hidden_folder_may_lie_in_another(tmp_path):
    """Where the outer one is covered first, the inner one is not found."""
    (tmp_path / "place").mkdir()
    (tmp_path / "class" / "work").mkdir(parents=True)
    for hidden in (["class"], ["class", "class/work"], ["class/work", "class"]):
        with Sandbox(tmp_path / "place", [tmp_path / name for name in hidden]) as made:
            assert made.start(lambda _: True).level == sandbox.BUBBLEWRAP


def test_without_isolation_grading_refuses_and_says_what_to_install(tmp_path, monkeypatch):
    """Unless the instructor allows it; then the report says that nothing isolated the answers."""
    make(tmp_path / "ada", {NEIGHBOUR.name: NEIGHBOUR.definition}, only=NEIGHBOUR.notebook)
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    settings = {"seed": 5, "limits": SHORT, "only": [NEIGHBOUR.name], "jobs": 1}
    with pytest.raises(OSError, match="install bubblewrap .*--allow-weak"):
        grade([tmp_path], **settings)
    (report,), level = grade([tmp_path], **settings, allow_weak=True)
    assert level == sandbox.WEAK and "no isolation" in level
    assert report.points == NEIGHBOUR.points


def test_with_bubblewrap_weak_isolation_is_not_used(tmp_path):
    with Sandbox(tmp_path) as made:
        assert made.start(lambda _: True, weak=True).level == sandbox.BUBBLEWRAP


def test_the_weakest_worker_gets_none_of_the_graders_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    with Sandbox(tmp_path) as sandbox:
        sandbox._isolated = False
        sandbox._launch()
        assert (
            {"PATH", "OMP_NUM_THREADS"}
            <= {*psutil.Process(sandbox.process.pid).environ()}
            <= {
                "PATH",
                "LANG",
                "LC_CTYPE",
                "LD_LIBRARY_PATH",
                "VIRTUAL_ENV",
                "OMP_NUM_THREADS",
                "MKL_NUM_THREADS",
            }
        )


def linked(file, tmp_path):
    file.symlink_to(file.rename(tmp_path / "elsewhere"))


def piped(file, _):
    file.unlink()
    os.mkfifo(file)


def foldered(file, _):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("ending", [".json", ".safetensors"])
@pytest.mark.parametrize(
    "odd",
    [
        linked,
        piped,
        foldered,
        lambda file, _: os.truncate(file, 2**20 + 1),
        lambda file, _: os.truncate(file, 7),
        lambda file, _: file.unlink(),
    ],
    ids=["link", "pipe", "folder", "large", "cut", "gone"],
)
def test_a_result_that_is_no_plain_file_of_a_usual_size_is_none(tmp_path, ending, odd):
    """A pipe would keep the grader waiting for ever, and a link would hand over what only the
    grader may read.
    """
    write_tree([tuple(Outcome("a", {"x": torch.ones(2)}, None))], tmp_path / "result")
    (found,) = sandbox.read_outcomes(tmp_path / "result", 2**20)
    assert found.label == "a" and found.outputs["x"].tolist() == [1.0, 1.0]
    odd((tmp_path / "result").with_suffix(ending), tmp_path)
    assert sandbox.read_outcomes(tmp_path / "result", 2**20) == []


@pytest.mark.parametrize(
    "ending, first",
    [
        (".json", b"[" + b" " * sandbox._MOST),
        (".safetensors", (sandbox._MOST + 1).to_bytes(8, "little")),
    ],
)
def test_a_result_with_more_names_than_numbers_is_not_parsed(tmp_path, monkeypatch, ending, first):
    write_tree([tuple(Outcome("a", None, "no"))], tmp_path / "result")
    (tmp_path / "result").with_suffix(ending).write_bytes(first + b"]")
    monkeypatch.setattr(sandbox, "load", lambda _: pytest.fail("parsed"))
    monkeypatch.setattr(sandbox.json, "loads", lambda _: pytest.fail("parsed"))
    assert sandbox.read_outcomes(tmp_path / "result", 2**30) == []


@pytest.mark.parametrize(
    "reply, says",
    [
        (Reply(True, 9, 32.0), "took too long"),
        (Reply(True, 9, 32.0, True), "filled its space"),
        (Reply(False, 28 << 8, 0.1), "no space left"),
        (Reply(False, 24, 8.0), "too many seconds"),
        (Reply(False, 9, 0.1, False, 64), "killed (maybe more than 64 MB"),
        (Reply(False, 11, 0.1, False, 64), "crashed (maybe"),
        (Reply(False, 128 | 11, 0.1), "crashed"),
        (Reply(False, 1 << 8, 0.1), "ended without a result"),
        (Reply(False, 0, 0.1), "ended without a result"),
        (Reply(False, -1, 0.0), "ended without a result"),
    ],
)
def test_why_nothing_came_back_is_said(reply, says):
    assert (
        says in SandboxRun([], reply).trouble
        and SandboxRun([Outcome("a", None, "no")], reply).trouble is None
    )


def watched(command, folder, **limits):
    """What a worker says of a process, once it is over."""
    job = {"wall": 60.0, "cpu": 60, "space": 2**22, "folder": str(folder), "tasks": []} | limits
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, start_new_session=True)
    told, process.returncode = _watch(process.pid, job), 0  # waited for already
    return told


def test_a_worker_tells_the_late_the_full_and_the_ended_apart(tmp_path):
    kinds = {
        "sleep 60": (True, False, 9),
        "exit 3": (False, False, 3 << 8),
        "kill -11 $$": (False, False, 11),
        "head -c 9000000 /dev/zero > x; sleep 60": (True, True, 9),
    }
    for command, expected in kinds.items():
        told = watched(command, tmp_path, **({"wall": 0.5} if command == "sleep 60" else {}))
        assert (told["late"], told["full"], told["status"]) == expected, command


def test_whom_the_kernel_kills_for_its_seconds_is_told_so(tmp_path):
    """The first process of a namespace gets no signal from its own limit but the kill."""
    assert watched("exit 3", tmp_path, cpu=0)["status"] == 3 << 8
    assert (
        watched("kill -9 $$", tmp_path)["status"] == 9
        and watched("kill -9 $$", tmp_path, cpu=0)["status"] == 24
    )


@pytest.mark.long
def test_a_crash_may_be_a_lack_of_memory(attacked):
    assert (
        SandboxRun([], Reply(False, 6, 0.1, memory=64)).trouble
        == "aborted (maybe more than 64 MB of memory)"
    )
    # aborted; the first process of a namespace crashes
    assert (
        attacked[0]["abort"]
        .results[VICTIM.name]
        .reason.endswith("ed (maybe more than 768 MB of memory)")
    )


def test_a_notebook_may_lie_beside_the_graders_own_folders(tmp_path, monkeypatch):
    """What is hidden may hold what is needed: the folder of a notebook that is handed in is also
    where temporary files go.
    """
    make(tmp_path / "one", {NEIGHBOUR.name: NEIGHBOUR.definition})
    notebook = (tmp_path / "one" / "nbs" / f"{NEIGHBOUR.notebook}.ipynb").rename(
        tmp_path / f"{Path(NEIGHBOUR.notebook).name}.ipynb"
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = grade([notebook], seed=5, limits=SHORT, only=[NEIGHBOUR.name], jobs=1)[0][0]
    assert report.points == NEIGHBOUR.points


@pytest.mark.long
def test_a_swallowed_alarm_does_not_hold_up_the_others(tmp_path):
    """Several answers share a process: each has its seconds, and one that catches even the alarm
    ends the process long before its last limit.
    """
    body = "while True:\n    try:\n        for i in range(10**12): i += 1\n    except BaseException: pass"
    text = replace(
        module_text(VICTIM.module),
        VICTIM.target,
        f"def {VICTIM.target}(*x, **y):\n" + indent(body, "    "),
    )
    with batch(limits=Limits(wall=600, cpu=600), jobs=1) as on:
        desk = JobRunner(on._sandbox(), on.base, 1).open(NEIGHBOUR)
        runs = desk.run(
            {t.name: t for t in (NEIGHBOUR, VICTIM)},
            {NEIGHBOUR.name: module_text(NEIGHBOUR.module), VICTIM.name: text},
            desk.room / "package",
            True,
            0.5,
        )
    assert runs[NEIGHBOUR.name].outcomes and not runs[VICTIM.name].outcomes
    assert runs[VICTIM.name].reply.late and runs[VICTIM.name].reply.seconds < 60
