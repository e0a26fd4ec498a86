"""The grading queue: sandboxes that try many answers in parallel, and a file of results that an
interrupted batch resumes from.

Starting a sandbox takes seconds, most of them for torch, so each is started once and used again.
Answers that share a machine share its caches, so an answer that runs out of time beside others is
tried again alone at the end, and only that result is stored.
"""

__all__ = ["picture_of", "attempts", "judged", "write_whole", "ResultStore", "Batch", "batch"]

import compileall
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

from ..core.atomic_dir import clear_leftovers, held_folder
from ..core.checkpoint import replace_file
from .exercises import EXERCISES, verdict
from .feedback import Verdict
from .sandbox import (
    ONE_AT_A_TIME,
    JobRunner,
    Limits,
    Sandbox,
    SandboxRun,
    copy_package,
    remove_tree,
    stubbed_package,
)
from .source_tools import module_text


def picture_of(found: Verdict, largest: int = 24) -> dict | None:
    """Cut matrices out of the failing case: the last two axes, at the worst place."""
    d = found.difference
    if (
        d is None
        or d.expected is None
        or d.got is None
        or d.got.is_complex()
        or d.expected.shape != d.got.shape
        or d.expected.ndim < 2
    ):
        return None
    a, b = (
        x[d.place[:-2]] if len(d.place) == x.ndim else x.flatten(0, -3)[0] if x.ndim > 2 else x
        for x in (d.expected, d.got)
    )

    def cut(x):
        return [[float(v) for v in row] for row in x[:largest, :largest].tolist()]

    return {"case": d.label, "output": d.output, "expected": cut(a), "got": cut(b)}


def attempts(*runs: SandboxRun) -> dict:
    """Give what runs tried that no exercise needs, as it is filed; nothing if they tried nothing."""
    found = sorted({event for run in runs if run.reply for event in run.reply.attempts})
    return {"attempts": found} if found else {}


def judged(name: str, run: SandboxRun, seed: int) -> dict:
    """Turn a run into what is filed: passed, reason, picture."""
    if run.trouble:
        return {
            "passed": False,
            "ended": False,
            "reason": f"{name}: {run.trouble}",
            "picture": None,
        }
    try:
        with ONE_AT_A_TIME:
            found = verdict(name, run.outcomes, seed)
        picture = None if found.passed else picture_of(found)
    except Exception as error:  # a result that cannot even be compared
        return {
            "passed": False,
            "ended": True,
            "reason": f"{name}: no numbers to compare: {type(error).__name__}",
            "picture": None,
        }
    return {"passed": found.passed, "ended": True, "reason": found.message, "picture": picture}


def write_whole(file: Path, text: str) -> None:
    """Put a text in place in one move, so that nobody ever sees half of it."""
    # names of files may be no Unicode
    replace_file(
        file,
        lambda part: part.write_text(text, encoding="utf-8", errors="backslashreplace", newline=""),
    )


class ResultStore:
    """Results on disk, one JSON line each, by fingerprint; a line cut short by an interruption or a
    full disk is forgotten.
    """

    def __init__(self, file: Path):
        self.file, self.rows, self._lock, self._unwritten = file, {}, threading.Lock(), []
        clear_leftovers(file.parent)
        old = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        for line in old.split("\n"):
            try:
                row = json.loads(line)
                self.rows[row["key"]] = row
            except (ValueError, KeyError, TypeError):
                pass
        text = "".join(json.dumps(row) + "\n" for row in self.rows.values())
        if text != old or not file.exists():
            write_whole(file, text)

    def add(self, key: str, row: dict, keep: bool = True) -> None:
        """File a result; one that is not to be kept is forgotten with this object."""
        with self._lock:
            self.rows[key] = row
            self._unwritten += [json.dumps({"key": key, **row}) + "\n"] * keep
            try:
                with self.file.open("a", encoding="utf-8") as stream:
                    stream.write("".join(self._unwritten))
                self._unwritten = []
            except OSError:
                # of a full disk: all of them with the next, after half a line maybe
                self._unwritten = ["\n", *(line for line in self._unwritten if line != "\n")]


class Batch:
    """Sandboxes, each started once, and the ledger that results go into."""

    def __init__(
        self,
        folder: Path,  # where rooms and jobs lie
        base: Path,  # holds a copy of the package
        ledger: ResultStore,
        hidden: Iterable[Path] = (),  # folders no answer may see
        limits: Limits = Limits(),
        jobs: int = 2,  # sandboxes at once
        seed: int = 11711,
        weak: bool = False,  # may answers run where no isolation is available?
    ):
        self.weak = weak
        self.folder, self.base, self.ledger, self.hidden = folder, base, ledger, list(hidden)
        self.limits, self.jobs, self.seed = limits, jobs, seed
        self.idle, self.started = [], []

    @property
    def level(self) -> str:
        """Say how strangers' code was held."""
        return self.started[0].level if self.started else "nothing had to run"

    def _probe(self, sandbox: Sandbox) -> bool:
        """Does a reference pass in this sandbox?"""
        task = next(iter(EXERCISES.values()))
        desk = JobRunner(sandbox, self.base, 1).open(task)
        run = desk.try_text(module_text(task.module))
        desk.shut()
        return bool(run.outcomes) and judged(task.name, run, 1)["passed"]

    def _sandbox(self) -> Sandbox:
        with ONE_AT_A_TIME:
            if self.idle:
                return self.idle.pop()
            sandbox = Sandbox(self.folder, self.hidden, self.limits).start(self._probe, self.weak)
            self.started.append(sandbox)
            return sandbox

    def _lanes(
        self, todo: Iterable, work: Callable[[Sandbox, object], None], jobs: int | None = None
    ) -> None:
        """Let several threads, each with a sandbox, work through a queue; the first error stops
        all.
        """
        queue = Queue()
        for item in todo:
            queue.put(item)

        def lane():
            sandbox = self._sandbox()
            while True:
                try:
                    work(sandbox, queue.get_nowait())
                except Empty:
                    return self.idle.append(sandbox)

        jobs = jobs or self.jobs
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for done in as_completed(
                    [pool.submit(lane) for _ in range(min(jobs, queue.qsize()))]
                ):
                    done.result()
            finally:
                queue.queue.clear()

    def _file(self, key: str, name: str, attempt: Callable[[], SandboxRun], quiet: bool) -> bool:
        """Try an answer and file what became of it; false, and nothing is filed, if it ran out of
        time while others were at work.

        What another may have done to it is tried a second time; after a full disk, again by the
        next batch.
        """
        for last in (False, True):
            try:
                run = attempt()
                if run.out_of_time and not quiet:
                    return False
                if last or not run.doubtful:
                    self.ledger.add(
                        key, judged(name, run, self.seed) | attempts(run), not run.no_space
                    )
                    return True
            except OSError as error:
                if last:
                    self.ledger.add(
                        key,
                        {
                            "passed": False,
                            "ended": False,
                            "reason": f"{name}: could not be tried: {error.strerror or error}",
                            "picture": None,
                        },
                        False,
                    )
        return True

    def alone(self, todo: dict[str, dict[str, str]], tick: Callable[[int], None]) -> None:
        """Try answers among references: exercise -> fingerprint -> text. Who runs out of time
        beside others is tried again with the machine to itself.
        """
        again: dict[str, list[str]] = {}

        def work(sandbox: Sandbox, part: tuple[str, list[str], bool]) -> None:
            name, keys, quiet = part
            desk = JobRunner(sandbox, self.base, self.seed)
            try:
                for key in keys:
                    if self._file(
                        key, name, lambda: desk.at(EXERCISES[name]).try_text(todo[name][key]), quiet
                    ):
                        tick(1)
                    else:
                        again.setdefault(name, []).append(key)
            finally:
                desk.shut()

        # a room is worth several answers, but no lane shall wait for another
        most = max(8, sum(map(len, todo.values())) // (4 * self.jobs))
        parts = [
            (name, list(todo[name])[i : i + most])
            for name in todo
            for i in range(0, len(todo[name]), most)
        ]
        quiet = min(self.jobs, len(parts)) < 2
        self._lanes([(*part, quiet) for part in parts], work)
        self._lanes([(name, keys, True) for name, keys in again.items()], work, 1)

    def together(
        self, todo: dict[str, tuple[dict[str, str], list[str]]], tick: Callable[[int], None]
    ) -> None:
        """Try whole submissions: fingerprint -> (module -> text, names of exercises). Whoever takes
        too long is tried alone later.
        """

        def work(sandbox: Sandbox, key: str) -> None:
            modules, names = todo[key]
            sandbox.limits = replace(self.limits, wall=90.0, cpu=90)
            folder = None
            try:
                folder = Path(tempfile.mkdtemp(prefix="whole", dir=sandbox.folder))
                folder.chmod(0o755)
                package = stubbed_package(self.base, folder / "package", modules)
                runs = JobRunner(sandbox, self.base, self.seed).run(
                    {n: EXERCISES[n] for n in names},
                    dict.fromkeys(names),
                    package,
                    False,
                    min(3.0, self.limits.cpu),
                )
                self.ledger.add(
                    key,
                    {
                        "passed": [
                            n
                            for n, run in runs.items()
                            if run.outcomes and judged(n, run, self.seed)["passed"]
                        ],
                        "ended": all(run.outcomes for run in runs.values()),
                    }
                    | attempts(*runs.values()),
                )
            except OSError:  # then all of it alone
                self.ledger.add(key, {"passed": [], "ended": False}, False)
            finally:
                sandbox.limits = self.limits
                if folder:
                    remove_tree(folder)
            tick(1)

        self._lanes(todo, work)


@contextmanager
def batch(
    results: Path | None = None,  # file of the ledger; None: nothing is kept
    hidden: Iterable[Path] = (),  # folders no answer may see
    **settings,  # limits, jobs, seed
) -> Iterator[Batch]:
    """Open a batch in a temporary folder that everybody may enter, and leave nothing behind; what a
    killed batch left goes now.

    The copy with the references lies in another, which nobody may enter and no sandbox sees.
    """
    place = Path(tempfile.gettempdir())
    with (
        held_folder(place, "minbert-grading-", remove_tree) as folder,
        held_folder(place, "minbert-base-", remove_tree) as base,
    ):
        folder.chmod(0o711)
        compileall.compile_dir(copy_package(base / "package"), quiet=1)
        made = Batch(
            folder,
            base / "package",
            ResultStore(results or folder / "results.jsonl"),
            [*hidden, base],
            **settings,
        )
        try:
            yield made
        finally:
            for sandbox in made.started:
                sandbox.close()
