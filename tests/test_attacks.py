"""Attacks: each is a fail of its exercise alone, and leaves everything as it was."""
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from textwrap import indent

import psutil
import pytest
from submissions import ATTACKS, SECOND, attack, make

from minbert.course import sandbox
from minbert.course.batch import batch
from minbert.course.exercises import exercise
from minbert.course.grading import grade
from minbert.course.programs import module_text, replace
from minbert.course.sandbox import Desk, Limits, Reply, Run, Sandbox

VICTIM, NEIGHBOUR = exercise("attention.scores"), exercise("attention.split")
SHORT = Limits(wall=4.0, cpu=2)   # seconds; many of them only wait


def mark(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let whatever is started from here on, and whatever that starts, bear a folder's name in its environment."""
    patch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(folder)]))


def bearing(folder: Path) -> list[str]:
    """List the processes that bear the name of a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):   # gone, or not ours
            if str(folder) in process.environ().get("PATH", ""):
                found.append(" ".join(process.cmdline()))
    return found


def left_of(folder: Path, expected: list[str] | None = None) -> list[str]:
    """Those that stay. Whoever was killed may need a moment to be gone, and who has just begun may have no environment yet."""
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
        make(folder / kind, {VICTIM.name: attack(kind, VICTIM, folder), NEIGHBOUR.name: NEIGHBOUR.definition}, poison, VICTIM.notebook)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.MonkeyPatch.context() as patch:
        mark(folder, patch)
        reports, level = grade([folder], seed=5, limits=SHORT, only=[VICTIM.name, NEIGHBOUR.name], jobs=4)   # most of them only wait
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
    assert {str(sandbox.PACKAGE), *(str(p) for p in tmp_path.rglob("minbert"))} <= set(Sandbox(tmp_path).hidden)


@pytest.mark.long
def test_a_crash_may_be_a_lack_of_memory(attacked):
    assert Run([], Reply(False, 6, 0.1, memory=64)).trouble == "aborted (maybe more than 64 MB of memory)"
    assert attacked[0]["abort"].results[VICTIM.name].reason.endswith("ed (maybe more than 768 MB of memory)")   # aborted; the first process of a namespace crashes


@pytest.mark.long
@pytest.mark.parametrize("level", [level for level in sandbox._levels() if not level[1]], ids=lambda level: level[0])
def test_the_weakest_walls_hold_too(level, tmp_path, monkeypatch):
    """On a machine without namespaces the hook and the limits must be enough; what compiled code does, Landlock refuses where there is one."""
    monkeypatch.setattr(sandbox, "_levels", lambda: [level])
    folder = tmp_path / "submissions"
    folder.mkdir()
    (folder / ".keep").write_text("keep me")
    kinds = [*SECOND, "deletes", "open folder", "thread bomb", "reference by path", "reference by search", "other submissions", "network", "native code", "kills", "os._exit", "fork bomb", "limits of others", "switches the hook off", "deep folders", "complex numbers"]
    kinds += ["native read", "native write"] * level[3]
    for kind in kinds:
        make(folder / kind, {VICTIM.name: attack(kind, VICTIM, folder), NEIGHBOUR.name: NEIGHBOUR.definition}, only=VICTIM.notebook)
    mark(folder, monkeypatch)
    reports, held = grade([folder], seed=5, limits=SHORT, only=[VICTIM.name, NEIGHBOUR.name], jobs=1)
    assert held == level[0] and "no namespaces" in held
    assert [(r.name, r.results[VICTIM.name].status, r.results[NEIGHBOUR.name].status) for r in reports] == [(k, "failed", "passed") for k in sorted(kinds)]
    assert (folder / ".keep").read_text() == "keep me" and left_of(folder) == []


def test_a_notebook_may_lie_beside_the_graders_own_folders(tmp_path, monkeypatch):
    """What is hidden may hold what is needed: the folder of a notebook that is handed in is also where temporary files go."""
    make(tmp_path / "one", {NEIGHBOUR.name: NEIGHBOUR.definition})
    notebook = (tmp_path / "one" / "nbs" / f"{NEIGHBOUR.notebook}.ipynb").rename(tmp_path / f"{Path(NEIGHBOUR.notebook).name}.ipynb")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = grade([notebook], seed=5, limits=SHORT, only=[NEIGHBOUR.name], jobs=1)[0][0]
    assert report.points == NEIGHBOUR.points


@pytest.mark.long
def test_a_swallowed_alarm_does_not_hold_up_the_others(tmp_path):
    """Several answers share a process: each has its seconds, and one that catches even the alarm ends the process long before its last limit."""
    body = "while True:\n    try:\n        for i in range(10**12): i += 1\n    except BaseException: pass"
    text = replace(module_text(VICTIM.module), VICTIM.target, f"def {VICTIM.target}(*x, **y):\n" + indent(body, "    "))
    with batch(limits=Limits(wall=600, cpu=600), jobs=1) as on:
        desk = Desk(on._sandbox(), on.base, 1).open(NEIGHBOUR)
        runs = desk.run({t.name: t for t in (NEIGHBOUR, VICTIM)}, {NEIGHBOUR.name: module_text(NEIGHBOUR.module), VICTIM.name: text}, desk.room / "package", True, 0.5)
    assert runs[NEIGHBOUR.name].outcomes and not runs[VICTIM.name].outcomes
    assert runs[VICTIM.name].reply.late and runs[VICTIM.name].reply.seconds < 60


def test_what_torch_decorates_makes_no_code_behind_the_walls():
    """An honest chapter has `@torch.no_grad()`; what torch itself does about it must not be what the walls forbid."""
    code = ("import sys, torch\nfrom minbert.course.worker import serve\n"
            "class Asks:\n"
            "    def __iter__(self):\n"
            "        sys.addaudithook(lambda event, _: event == 'code.__new__' and heard.append(event))\n"
            "        for wrapped in (torch.no_grad(), torch.inference_mode()):\n"
            "            print(wrapped(lambda: torch.is_grad_enabled())())\n"
            "            list(wrapped(steps)())\n"
            "        return iter(())\n"
            "def steps():\n    yield\n"
            "heard = []\nserve(Asks(), sys.stdout)\nprint(heard)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[1:] == ["False", "False", "[]"]
