"""Space: one answer that fills a disk costs itself alone, and a full disk costs nobody a result for
good.
"""

import collections
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from submissions import attack, make

from minbert.core.atomic_dir import DRAFT, clear_leftovers, held_folder
from minbert.course import grading_queue as batches
from minbert.course.check_runner import Outcome
from minbert.course.exercises import exercise
from minbert.course.grading_queue import Batch, ResultStore, batch, write_whole
from minbert.course.isolation_worker import _taken
from minbert.course.sandbox import (
    JobRunner,
    Limits,
    Reply,
    SandboxRun,
    cases_of,
    copy_package,
    stub_module,
    stubbed_package,
)
from minbert.course.source_tools import module_text
from minbert.course.workspace import BASE, new_workspace
from minbert.course.workspace_update import update_workspace

FIRST, SECOND = exercise("attention.split"), exercise("attention.merge")
RIGHT = {
    task.name: {f"{task.name} {i}": module_text("attention") for i in range(2)}
    for task in (FIRST, SECOND)
}


class Disk:
    """A sandbox in which some attempts meet a full disk."""

    def __init__(self, desk, errors):
        self.desk, self.errors = desk, errors

    def __call__(self, this, task):
        error = self.errors.pop(0) if self.errors else None
        if isinstance(error, OSError):
            raise error
        this.task = task
        this.try_text = lambda text: error or self.desk
        return this


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
CHILD_WITHOUT = SandboxRun([], Reply(False, errno.ENOSPC << 8, 0.1))


@pytest.mark.parametrize(
    "errors, kept",
    [
        ([NO_SPACE], 4),
        ([CHILD_WITHOUT], 4),
        ([NO_SPACE, NO_SPACE], 3),
        ([CHILD_WITHOUT, CHILD_WITHOUT], 3),
        ([NO_SPACE, CHILD_WITHOUT], 3),
    ],
)
def test_a_full_disk_costs_one_exercise_and_not_for_good(tmp_path, monkeypatch, errors, kept):
    """Tried twice; if it fails again, the row has the reason, the batch goes on, and the next batch
    tries that answer again.
    """
    late = SandboxRun([], Reply(True, 9, 1.0))
    monkeypatch.setattr(
        JobRunner,
        "at",
        (lambda disk: lambda this, task: disk(this, task))(Disk(late, list(errors))),
    )
    with batch(tmp_path / "results.jsonl", jobs=1) as on:
        monkeypatch.setattr(on, "_sandbox", lambda: None)
        on.alone(RIGHT, lambda n: None)
        assert len(on.ledger.rows) == 4
        reasons = [row["reason"] for row in on.ledger.rows.values()]
    assert len(ResultStore(tmp_path / "results.jsonl").rows) == kept
    assert sum("o space left" in reason for reason in reasons) == 4 - kept


WORKER_GONE, KILLED = SandboxRun([], Reply(False, -1, 0.0)), SandboxRun([], Reply(False, 9, 0.1))


@pytest.mark.parametrize("first", [WORKER_GONE, KILLED])
def test_an_answer_whose_process_was_killed_has_a_second_try(tmp_path, monkeypatch, first):
    """The second one counts, whatever it says, and is kept."""
    late = SandboxRun([], Reply(True, 9, 1.0))
    for errors, reasons in (
        ([first], ["too long"] * 4),
        ([first, first], [first.trouble, *["too long"] * 3]),
    ):
        monkeypatch.setattr(
            JobRunner,
            "at",
            (lambda disk: lambda this, task: disk(this, task))(Disk(late, list(errors))),
        )
        on = small_batch(tmp_path / first.trouble[:5] / str(len(errors)), jobs=1)
        monkeypatch.setattr(on, "_sandbox", lambda: None)
        on.alone(RIGHT, lambda n: None)
        assert all(
            said in row["reason"]
            for said, row in zip(reasons, on.ledger.rows.values(), strict=True)
        )
        assert len(ResultStore(on.ledger.file).rows) == 4


@pytest.mark.parametrize(
    "reply",
    [
        Reply(True, 9, 32.0),
        Reply(False, 9, 1.0, True),
        Reply(False, 24, 8.0),
        Reply(False, 11, 0.1),
        Reply(False, 0, 0.1),
        Reply(False, 256, 0.1),
    ],
)
def test_what_an_answer_did_itself_is_tried_once(reply):
    assert (
        not SandboxRun([], reply).doubtful
        and not SandboxRun([Outcome("a", {}, None)], Reply(False, -1, 0.0)).doubtful
    )


def small_batch(folder, **settings):
    """One without the copy of the package, where nothing is to run."""
    return Batch(folder, folder / "package", ResultStore(folder / "results.jsonl"), **settings)


@pytest.mark.parametrize("answers", [1, 8, 9, 40, 200])
def test_every_answer_of_a_class_is_tried_however_many(tmp_path, monkeypatch, answers):
    """They are dealt out in parts; what falls between two parts would be nobody's."""
    late = SandboxRun([], Reply(True, 9, 1.0))
    todo = {FIRST.name: {f"{i}": "" for i in range(answers)}, SECOND.name: {"other": ""}}
    monkeypatch.setattr(
        JobRunner, "at", (lambda disk: lambda this, task: disk(this, task))(Disk(late, []))
    )
    on, ticks = small_batch(tmp_path, jobs=2), []
    monkeypatch.setattr(on, "_sandbox", lambda: None)
    on.alone(todo, ticks.append)
    assert set(on.ledger.rows) == {*todo[FIRST.name], "other"} and sum(ticks) == answers + 1


def test_a_whole_submission_that_finds_no_place_is_tried_alone_within_the_usual_limits(tmp_path):
    """Its row is not kept, for the next batch may have more space; and nobody after it has more
    time than an answer may take.
    """
    on = small_batch(tmp_path)
    there = SimpleNamespace(folder=tmp_path / "gone", limits=Limits(cpu=2))
    on.limits, on.idle = there.limits, [there]
    on.together({"one": ({}, [FIRST.name])}, lambda n: None)
    assert (
        on.ledger.rows["one"] == {"passed": [], "ended": False}
        and not ResultStore(tmp_path / "results.jsonl").rows
    )
    assert there.limits == Limits(cpu=2)


@pytest.mark.parametrize(
    "second, ended",
    [
        (SandboxRun([Outcome("a", {}, None)], Reply(False, 0, 0.1)), True),
        (SandboxRun([], Reply(True, 9, 9.0)), False),
    ],
)
def test_a_whole_submission_has_ended_when_every_answer_has(tmp_path, monkeypatch, second, ended):
    """Else it is tried once more, without those that ended the process for all."""
    first = SandboxRun([Outcome("a", {}, None)], Reply(False, 0, 0.1))
    monkeypatch.setattr(batches, "stubbed_package", lambda base, folder, modules: folder)
    monkeypatch.setattr(JobRunner, "run", lambda *_: {FIRST.name: first, SECOND.name: second})
    on = small_batch(tmp_path)
    on.idle = [SimpleNamespace(folder=tmp_path, limits=Limits())]
    on.together({"one": ({}, [FIRST.name, SECOND.name])}, lambda n: None)
    assert ResultStore(tmp_path / "results.jsonl").rows["one"] == {
        "key": "one",
        "passed": [],
        "ended": ended,
    }


def test_what_came_to_nothing_has_not_ended_and_what_cannot_be_compared_has():
    # a shape without numbers
    task, bare = exercise("attention.scores"), lambda x: torch.zeros_like(x, device="meta")
    odd = SandboxRun(
        [
            Outcome(label, {"output": bare(inputs.get("value", torch.zeros(1)))}, None, way=way)
            for label, inputs, way in cases_of(task, 1)
        ],
        None,
    )
    assert not batches.judged(task.name, WORKER_GONE, 1)["ended"]
    assert (found := batches.judged(task.name, odd, 1))[
        "ended"
    ] and "no numbers to compare" in found["reason"]


def test_a_ledger_on_a_full_disk_forgets_nothing(tmp_path, monkeypatch):
    ledger = ResultStore(tmp_path / "results.jsonl")
    ledger.add("a", {"passed": True})
    real = type(ledger.file).open

    def full(self, *args, **kwargs):
        stream = real(self, *args, **kwargs)
        stream.write('{"key": "b", "pas')
        stream.close()
        raise NO_SPACE

    monkeypatch.setattr(type(ledger.file), "open", full)
    ledger.add("b", {"passed": True})
    ledger.add("c", {"passed": False})
    monkeypatch.setattr(type(ledger.file), "open", real)
    ledger.add("d", {"passed": True})
    assert list(ResultStore(ledger.file).rows) == ["a", "b", "c", "d"]
    assert [json.loads(line)["key"] for line in ledger.file.read_text().splitlines()] == [
        "a",
        "b",
        "c",
        "d",
    ]


def test_a_ledger_reads_what_it_can_and_writes_each_line_once(tmp_path):
    ledger = ResultStore(tmp_path / "results.jsonl")
    for key in "abc":
        ledger.add(key, {"passed": True})
    assert len(ledger.file.read_text().splitlines()) == 3
    with ledger.file.open("ab") as stream:
        # of a damaged disk, and of somebody else
        stream.write(b'7\n{}\n\xff\xfe\n{"key": "a", "passed": false}\n')
    assert {key: row["passed"] for key, row in ResultStore(ledger.file).rows.items()} == {
        "a": False,
        "b": True,
        "c": True,
    }


@pytest.mark.parametrize("where, step", [(Path, "write_text"), (os, "replace")])
def test_a_full_disk_leaves_the_table_that_was_there(tmp_path, monkeypatch, where, step):
    table = tmp_path / "grades.csv"
    write_whole(table, "ada,3\n")

    def full(place, *_, **__):
        Path(place).open("w").close()  # cut short
        raise NO_SPACE

    monkeypatch.setattr(where, step, full)
    with pytest.raises(OSError, match="space"):
        write_whole(table, "ada,3\nbob,3\n")
    assert table.read_text() == "ada,3\n" and [*tmp_path.iterdir()] == [table]


def test_bytes_are_counted_where_they_lie(tmp_path):
    """Files, names, folders, and what is deleted and still open."""
    pid, empty = os.getpid(), _taken(str(tmp_path), os.getpid(), 2**40)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(bytes(2**20))
    (tmp_path / "link").symlink_to("/")
    assert 2**20 <= _taken(str(tmp_path), pid, 2**40) - empty < 2**20 + 10 * 4096
    assert 0 <= _taken(str(tmp_path), pid, 4096) - 4096 < 2**21  # and no longer than needed
    with open(tmp_path / "gone", "wb") as stream:
        stream.write(bytes(2**20))
        stream.flush()
        os.remove(tmp_path / "gone")
        if os.path.isdir(f"/proc/{pid}/fd"):
            assert _taken(str(tmp_path), pid, 2**40) - empty >= 2 * 2**20


SMALL = """
import sys
from minbert.course.grading import grade
reports, _ = grade([sys.argv[1]], seed=5, only=["attention.split", "attention.merge"], jobs=1)
for r in reports:
    print(r.name, *(result.status for result in r.results.values()))
"""


@pytest.mark.long
def test_on_a_small_disk_the_batch_goes_on(tmp_path):
    """Half a tmpfs of 160 MB is what one answer may take at most; all others keep their points."""
    if (
        not shutil.which("unshare")
        or subprocess.run(
            ["unshare", "--mount", "--user", "--map-root-user", "true"], capture_output=True
        ).returncode
    ):
        pytest.fail("expected unshare, to make a small file system")
    for kind in ("a full folder", "a folder full of deleted files", "huge file"):
        make(
            tmp_path / "class" / kind.replace(" ", "_"),
            {FIRST.name: attack(kind, FIRST, tmp_path), SECOND.name: SECOND.definition},
            only=FIRST.notebook,
        )
    make(
        tmp_path / "class" / "right",
        {FIRST.name: FIRST.definition, SECOND.name: SECOND.definition},
        only=FIRST.notebook,
    )
    small = tmp_path / "small"
    small.mkdir()
    run = subprocess.run(
        [
            "unshare",
            "--mount",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            'mount -t tmpfs -o size=160m none "$0" && exec "$@"',
            str(small),
            sys.executable,
            "-c",
            SMALL,
            str(tmp_path / "class"),
        ],
        env=os.environ | {"TMPDIR": str(small), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    found = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert found == {
        "a_full_folder": "failed passed",
        "a_folder_full_of_deleted_files": "failed passed",
        "huge_file": "failed passed",
        "right": "passed passed",
    }, run.stderr[-2000:]


def test_leftovers_of_the_killed_are_swept_and_of_the_living_not(tmp_path):
    code = f"import os, sys\nfrom minbert.core.atomic_dir import held_folder\nwith held_folder({str(tmp_path)!r}, 'x-') as f:\n    (f / 'file').touch()\n    print(f, flush=True)\n    sys.stdin.read()"
    held = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    dead, living = (p.stdout.readline().strip() for p in held)
    held[0].kill()
    held[0].wait()
    (tmp_path / "x-linklink").symlink_to(tmp_path / "y-other")
    (tmp_path / "y-other").mkdir()
    with held_folder(tmp_path, "x-") as mine:
        assert not os.path.exists(dead) and os.path.exists(living) and mine.is_dir()
        assert (tmp_path / "y-other").is_dir() and (tmp_path / "x-linklink").is_symlink()
        clear_leftovers(tmp_path, "x-")
        assert mine.is_dir()
    held[1].communicate("")
    assert not os.path.exists(living) and not mine.exists()


def test_a_killed_update_leaves_nothing_behind(tmp_path):
    """Killed while it writes its drafts; the next update, and the next course, begin clean."""
    mine = new_workspace(tmp_path / "my-bert")
    killed = (
        f"import os, signal\nfrom minbert.course import workspace_update as update\nfrom minbert.core import atomic_dir\nfrom minbert.course.workspace import packaged_editions\n"
        f"atomic_dir._usual_mode = lambda f: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"new = {{n: t.replace('# ', '# New ', 1) for n, t in packaged_editions().items()}}\n"
        f"update.update_workspace({str(mine)!r}, new)"
    )
    assert subprocess.run([sys.executable, "-c", killed]).returncode == -9
    assert list(mine.rglob(f"{DRAFT}*"))
    (mine / BASE / f"{DRAFT}deaddead").mkdir()
    update_workspace(mine)
    assert not list(mine.rglob(f"{DRAFT}*"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{DRAFT}deaddead").mkdir()
    assert new_workspace(tmp_path / "other") == tmp_path / "other"


def test_rooms_share_no_file_and_the_base_is_closed(tmp_path):
    with batch(jobs=1, limits=Limits(cpu=5)) as on:
        desk = JobRunner(on._sandbox(), on.base, 1).open(FIRST)
        base = {f.stat().st_ino for f in on.base.rglob("*") if f.is_file()}
        room = [f.stat() for f in desk.room.rglob("*.py")]
        assert (
            len(base) > 50
            and not base & {s.st_ino for s in room}
            and all(s.st_nlink == 1 for s in room)
        )
        assert (
            on.base.parent.stat().st_mode & 0o077 == 0
            and on.base.parent in on.hidden
            and on.folder not in on.base.parents
        )
        assert all(not f.stat().st_mode & 0o222 for f in on.base.rglob("*.py"))
        # enter what you know by name; list and write nothing
        assert (
            on.folder.stat().st_mode & 0o777 == 0o711 and desk.room.stat().st_mode & 0o777 == 0o755
        )
        # a group's right comes with umask 002; another user is in no group of the grader's
        assert not any(place.stat().st_mode & 0o002 for place in desk.room.rglob("*"))


class Store(collections.deque):
    """A queue's store that tells when it is cleared."""

    def __init__(self, cleared):
        super().__init__()
        self.cleared = cleared

    def clear(self):
        super().clear()
        self.cleared.set()


def test_an_error_in_any_lane_empties_the_queue(tmp_path, monkeypatch):
    cleared, worked = threading.Event(), []

    class Watched(batches.Queue):
        def __init__(self):
            super().__init__()
            self.queue = Store(cleared)

    def work(sandbox, item):
        worked.append(item)
        if item == 1:
            raise OSError("the second lane fails")
        assert cleared.wait(60)  # the first lane is busy until somebody clears the queue

    monkeypatch.setattr(batches, "Queue", Watched)
    on = small_batch(tmp_path, jobs=2)
    monkeypatch.setattr(on, "_sandbox", object)
    with pytest.raises(OSError, match="second lane"):
        on._lanes(range(10), work)
    assert sorted(worked) == [0, 1]


def test_a_room_holds_neither_the_reference_nor_the_mistakes():
    task = exercise("attention.scores")
    secret = [
        line.strip() for line in task.definition.split("\n") if "weights = F.dropout(" in line
    ][0]
    with tempfile.TemporaryDirectory() as folder:
        base = copy_package(Path(folder, "base")).parent
        room = stubbed_package(base, Path(folder, "room"), {task.module: stub_module(task)})
        texts = [f.read_text(encoding="utf-8") for f in (room / "minbert").rglob("*.py")]
        assert not any(secret in t or "MISTAKES[" in t for t in texts)
        assert not (room / "minbert" / "assets" / "course").exists()
