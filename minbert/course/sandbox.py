"""The sandbox: package copies without the answers, isolated worker processes, and validation of
what they return.

An answer runs with a copy of the package in which its exercise is a stub, and known mistakes and
variants are missing, because each of them shows the reference. The worker runs in bubblewrap, whose
namespaces leave no network, no other process, and of the disk only Python and one folder. Results
are read as numbers in files: links are not followed, and names, shapes and kinds are compared
before values.
"""

__all__ = [
    "ABSENT",
    "INSTALL",
    "BUBBLEWRAP",
    "WEAK",
    "ONE_AT_A_TIME",
    "without_answers",
    "copy_package",
    "stubbed_package",
    "stub_module",
    "Limits",
    "installed_copies",
    "Reply",
    "Sandbox",
    "read_outcomes",
    "SandboxRun",
    "JobRunner",
    "remove_tree",
    "cases_of",
]

import ast
import errno
import json
import os
import select
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load

from .check_runner import Outcome
from .exercises import SECONDS, Exercise, cases
from .isolation import landlock_version
from .isolation_worker import unpack, write_tree
from .source_tools import PACKAGE, module_text, parse, replace, source_of, stub

# of the course: what runs an answer
_KEPT = {
    "__init__",
    "source_tools",
    "side_effects",
    "call_recording",
    "check_runner",
    "isolation",
    "isolation_worker",
}


def _wanted(file: Path) -> bool:
    """Does an answer need this file of ours?"""
    floor = file.relative_to(PACKAGE).parts[0]
    return floor not in ("cli", "explorers", "assets", "__main__.py", "_modidx.py") and (
        floor != "course" or file.stem in _KEPT
    )


def _names(node: ast.stmt) -> set[str]:
    """Names of the variables that a statement writes to, `MISTAKES["x"] = ...` included."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return {
        t.value.id
        if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)
        else getattr(t, "id", "")
        for t in targets
    }


def without_answers(
    text: str,  # of a module with trials
) -> str:
    """Take mistakes, variants and what only serves them out of a module."""
    lines, dropped = text.split("\n"), set()
    for node in parse(text).body:
        names = _names(node)
        if names and all(
            n in ("MISTAKES", "VARIANTS") or n.lower().startswith("_wrong") for n in names
        ):
            dropped |= set(range(node.lineno, node.end_lineno + 1))
    return "\n".join("" if i in dropped else line for i, line in enumerate(lines, 1))


def copy_package(
    folder: Path,  # new
) -> Path:  # folder / "minbert"
    """Copy what a room needs of our package: no answers, no course, no cache."""
    package = folder / "minbert"
    package.mkdir(parents=True)
    for file in filter(_wanted, PACKAGE.rglob("*.py")):
        text, place = file.read_text(encoding="utf-8"), package / file.relative_to(PACKAGE)
        place.parent.mkdir(exist_ok=True)
        place.write_text(
            without_answers(text) if place.parent.name == "exercise_cases" else text,
            encoding="utf-8",
        )
    shutil.copytree(PACKAGE / "assets", package / "assets", ignore=shutil.ignore_patterns("course"))
    for file in (f for f in package.rglob("*") if f.is_file()):
        file.chmod(0o444)
    return package


def stubbed_package(
    base: Path,  # a folder of `copy_package`
    folder: Path,  # new
    modules: dict[str, str],  # module -> its other text
) -> Path:  # the folder, to be put on the path
    """Make another copy with some modules written anew; it shares no file with any other."""

    def replaced(place: str, names: list[str]) -> list[str]:
        # a module of exercise cases may have the same name
        ours = Path(place) in (base / "minbert", base / "minbert" / "__pycache__")
        return [
            name
            for name in names
            if ours and name.endswith((".py", ".pyc")) and name.partition(".")[0] in modules
        ]

    shutil.copytree(base / "minbert", folder / "minbert", ignore=replaced)
    for module, text in modules.items():
        (folder / "minbert" / f"{module}.py").write_text(text, encoding="utf-8")
    return folder


ABSENT = "this asks minbert for its own {}, which is left out here; write your own"


def stub_module(task: Exercise) -> str:
    """Write the module of an exercise with a stub in the place of the reference, which says so to
    whoever calls it.
    """
    text = module_text(task.module)
    return replace(text, task.target, stub(source_of(text, task.target), ABSENT.format(task.name)))


@dataclass(frozen=True)
class Limits:
    """What one answer may use."""

    # seconds, without those in which others had the processors: only who waits for something else
    # is late
    wall: float = 4.0 * SECONDS
    cpu: int = SECONDS  # seconds of processor; an honest check takes well under 2
    memory: int = 768 * 2**20  # bytes beyond what torch takes
    file_size: int = 32 * 2**20  # bytes
    space: int = 96 * 2**20  # bytes on disk, of all files together


INSTALL = (
    "install bubblewrap (Debian, Ubuntu, Fedora, Arch: the package `bubblewrap`), or grade in a Linux "
    "container or virtual machine that has it; with --allow-weak, answers run with the rights of your "
    "user, and can read and change what you can"
)
_LIMITS = ["Landlock"] * bool(landlock_version()) + ["resource limits"]
BUBBLEWRAP = ", ".join(["bubblewrap", *_LIMITS])
WEAK = ", ".join(["no isolation (--allow-weak)", *_LIMITS])


def _below(path: str, folders: list[str]) -> bool:
    """Does a path lie in one of some folders?"""
    real = map(os.path.realpath, folders)
    return any(path == f or path.startswith(f.rstrip("/") + "/") for f in real)


def _bubblewrap(
    program: str,  # path of bwrap
    hidden: list[str],  # folders, empty for the worker
    place: str,  # folder of the worker's own, readable
    jobs: str,  # folder in it, writable
) -> list[str]:  # to be put in front of a command
    """Write the bubblewrap command: no network, no other process, and of the disk only Python, its
    libraries and one folder.

    The worker may make namespaces of its own, so that each answer is alone among its processes; an
    answer loses this right before it starts.
    """
    read = [sys.prefix, sys.base_prefix, "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]
    read += ["/etc/alternatives", "/sys/devices/system/cpu"]
    read += [p for p in sys.path if "site-packages" in p or "dist-packages" in p]
    # what lies in another comes later, so that the outer one does not cover it
    read = sorted({p for p in read if os.path.exists(p)}, key=len)
    command = [program, "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    command += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for path in read:
        command += ["--ro-bind", path, path]
    covered = []
    for path in sorted(hidden, key=len):
        if os.path.isdir(path) and _below(path, read) and not _below(path, covered):
            command += ["--tmpfs", path, "--remount-ro", path]
            covered.append(path)
    command += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", place, place]
    return [*command, "--bind", jobs, jobs, "--chdir", place]


def installed_copies() -> list[Path]:
    """List our package, and every other copy of it that Python here could import: an answer may
    read what is installed.
    """
    installed = [Path(site.getusersitepackages())] + [
        p
        for root in (sys.prefix, sys.base_prefix, "/usr", "/usr/local")
        for p in Path(root).glob("lib*/python3*/*-packages")
    ]
    return [
        PACKAGE,
        *(
            p / PACKAGE.name
            for p in [*map(Path, sys.path), *installed]
            if (p / PACKAGE.name).is_dir()
        ),
    ]


class Reply(NamedTuple):
    """How a job ended."""

    late: bool  # killed at the limit
    status: int  # as `os.wait` gives it; -1 if the whole room was lost
    seconds: float
    full: bool = False  # killed because it had filled its space
    memory: int = 0  # MB that it might have
    attempts: tuple[str, ...] = ()  # audit events that no exercise needs


class Sandbox:
    """Run jobs in an isolated worker; a context manager. One job at a time."""

    def __init__(
        self,
        folder: Path,  # where workers lie
        hidden: Iterable[Path] = (),  # folders that no answer may see
        limits: Limits = Limits(),
    ):
        self.limits, self.process = limits, None
        self.hidden = sorted({str(Path(h).resolve()) for h in (*hidden, *installed_copies())})
        self.level, self._isolated = "not started", True
        # what the worker sees: a package of two modules that knows of no other, rooms, and jobs
        self.folder = Path(tempfile.mkdtemp(prefix="worker", dir=folder)).resolve()
        self.jobs = self.folder / "jobs"
        self.jobs.mkdir()
        (self.folder / "worker").mkdir()
        for module in ("isolation", "isolation_worker"):
            (self.folder / "worker" / f"{module}.py").write_text(
                module_text(f"course.{module}"), encoding="utf-8"
            )
        self.log = self.folder.with_suffix(".log")

    def start(self, probe, weak: bool = False) -> "Sandbox":
        """Start a worker in bubblewrap; with `weak`, one without isolation where that fails. Raises
        OSError if `probe(self)` is true in neither, with what to install.
        """
        for self.level, self._isolated in [(BUBBLEWRAP, True), (WEAK, False)][: 1 + weak]:
            with suppress(OSError):
                self._launch()
                if probe(self):
                    return self
            self.close()
        said = self.log.read_text(errors="replace")[-500:].strip() if self.log.exists() else ""
        raise OSError(
            f"expected a worker that runs the reference in isolation, found none: {INSTALL}\n{said}"
        )

    def _launch(self) -> None:
        self.close()
        command = [sys.executable, "-B", "-m", "worker.isolation_worker", "--serve"]
        if self._isolated:
            if not (program := shutil.which("bwrap")):
                raise OSError("bubblewrap is not installed")
            seen = _bubblewrap(program, self.hidden, str(self.folder), str(self.jobs))
            command = [*seen, *command]
        environment = {
            k: v
            for k, v in os.environ.items()
            if k in ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=environment | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._line(120)

    def _line(self, seconds: float) -> dict:
        """Read one line of JSON. Raises OSError if none comes in time."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise OSError("the worker does not answer")
        try:
            return json.loads(self.process.stdout.readline())
        except ValueError as error:
            raise OSError("the worker is gone") from error

    def run(self, job: dict) -> Reply:
        """Send a job, and wait longer than it may take. A worker that dies is started again."""
        job = {
            **vars(self.limits),
            "landlock": bool(landlock_version()),
            "hidden": self.hidden,
            **job,
        }
        try:
            if self.process is None or self.process.poll() is not None:
                self._launch()
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
            reply = self._line(20 * job["wall"] + 60)  # a job may have to wait for a processor
            return Reply(
                reply["late"],
                reply["status"],
                reply["seconds"],
                reply.get("full", False),
                job["memory"] >> 20,
                tuple(reply.get("attempts", ())),
            )
        except (OSError, KeyError):
            self.close()
            return Reply(False, -1, 0.0)

    def close(self) -> None:
        """Kill the worker and all it started."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, 9)
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                with suppress(OSError):  # what nobody read is lost
                    stream.close()
            self.process = None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.close()
        remove_tree(self.folder)
        self.log.unlink(missing_ok=True)


# bytes of JSON: names and numbers of results, not the results; more only costs the parent time
_MOST = 2**19


def read_outcomes(
    file: Path,  # without ending
    largest: int,  # bytes
) -> list[Outcome]:  # as the child wrote them, or none
    """Read a stranger's results; anything odd is no result."""
    try:
        texts = {}
        for ending in (".json", ".safetensors"):
            fd = os.open(file.with_suffix(ending), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as stream:
                if not os.path.isfile(stream.fileno()) or os.fstat(fd).st_size > largest:
                    return []
                texts[ending] = stream.read(largest)
        if (
            len(texts[".json"]) > _MOST
            or int.from_bytes(texts[".safetensors"][:8], "little") > _MOST
        ):
            return []
        found = unpack(json.loads(texts[".json"]), load(texts[".safetensors"]))
        return [_checked(*o) for o in found]
    except Exception:  # whatever a stranger's bytes can provoke
        return []


def _checked(label, outputs, error, where, way="") -> Outcome:
    """Make sure that an outcome is made of text and tensors."""

    # half a character is none
    def text(x):
        return None if x is None else str(x)[:500].encode("utf-8", "backslashreplace").decode()

    if outputs is not None:
        outputs = {str(k)[:200]: v for k, v in outputs.items() if isinstance(v, torch.Tensor)}
    return Outcome(
        str(label)[:200],
        outputs,
        None if outputs is not None else text(error) or "no result",
        text(where),
        text(way),
    )


class SandboxRun(NamedTuple):
    """One answer, tried."""

    outcomes: list[Outcome]  # empty if nothing came back
    reply: Reply

    @property
    def no_space(self) -> bool:
        """Tell whether the disk was full, for which an answer may not be to blame."""
        return not self.outcomes and self.reply.status == errno.ENOSPC << 8

    @property
    def doubtful(self) -> bool:
        """Tell whether a second try may end otherwise: no space, the worker gone, or a kill that
        was not ours, as on a machine short of memory.
        """
        killed = self.reply.status & 0x7F == 9 and not (self.reply.late or self.reply.full)
        return self.no_space or not self.outcomes and (self.reply.status == -1 or killed)

    @property
    def out_of_time(self) -> bool:
        """Tell whether an answer was stopped for its time, which another answer at work may have
        cost it.
        """
        return (
            not self.outcomes
            and not self.reply.full
            and (self.reply.late or self.reply.status & 0x7F == signal.SIGXCPU)
        )

    @property
    def trouble(self) -> str | None:
        """Say in words why nothing came back."""
        if self.outcomes:
            return None
        if self.reply.full:
            return "stopped: filled its space on the disk"
        if self.reply.late:
            return "stopped: took too long"
        if self.no_space:
            return "could not be tried: no space left on the disk"
        by = self.reply.status & 0x7F
        much = f" (maybe more than {self.reply.memory} MB of memory)"
        words = {
            24: "stopped: too many seconds of processor",
            9: f"stopped: killed{much}",
            11: f"crashed{much}",
            6: f"aborted{much}",
        }
        return words.get(by, "ended without a result")


class JobRunner:
    """Lay out one exercise after another for a sandbox: its room, its inputs, its results."""

    def __init__(self, sandbox: Sandbox, base: Path, seed: int):
        self.sandbox, self.base, self.seed = sandbox, base, seed
        self.task, self.room = None, None

    def open(self, task: Exercise) -> "JobRunner":
        """Prepare the room of an exercise: a package without its reference, and the inputs of all
        cases.
        """
        self.shut()
        self.room = Path(tempfile.mkdtemp(prefix="room", dir=self.sandbox.folder))
        self.room.chmod(0o755)
        stubbed_package(self.base, self.room / "package", {task.module: stub_module(task)})
        write_tree(cases_of(task, self.seed), self.room / "cases", strides=True)
        self.task = task
        return self

    def at(self, task: Exercise) -> "JobRunner":
        """Open an exercise unless it is open."""
        return self if self.task is task else self.open(task)

    def shut(self) -> None:
        """Throw the room away."""
        if self.room:
            shutil.rmtree(self.room, ignore_errors=True)
        self.task = self.room = None

    def try_text(self, text: str) -> SandboxRun:
        """Run a module with an answer in it."""
        task = self.task
        return self.run({task.name: task}, {task.name: text}, self.room / "package", True)[
            task.name
        ]

    def run(
        self,
        tasks: dict[str, Exercise],
        texts: dict[str, str | None],
        package: Path,
        preload: bool,
        each: float = 0,
    ) -> dict[str, SandboxRun]:
        """Run one job: several exercises in one process, `each` with so many seconds, and a text of
        its own or the package's.
        """
        folder = Path(tempfile.mkdtemp(prefix="job", dir=self.sandbox.jobs))
        try:
            jobs = [
                self._task(folder, i, task, texts[name])
                for i, (name, task) in enumerate(tasks.items())
            ]
            folder.chmod(0o777)
            reply = self.sandbox.run(
                {
                    "package": str(package),
                    "folder": str(folder),
                    "tasks": jobs,
                    "preload": preload,
                    "each": each,
                }
            )
            largest = self.sandbox.limits.file_size
            return {
                name: SandboxRun(read_outcomes(Path(job["outputs"]), largest), reply)
                for name, job in zip(tasks, jobs)
            }
        finally:
            remove_tree(folder)

    def _task(self, folder: Path, i: int, task: Exercise, text: str | None) -> dict:
        given = folder / f"given{i}"
        given.mkdir()
        if text is not None:
            (given / "answer.py").write_text(text, encoding="utf-8")
        source = self.room / "cases" if self.room and self.task is task else None
        if source is None:
            write_tree(cases_of(task, self.seed), given / "cases", strides=True)
            source = given / "cases"
        return {
            "exercise": task.name,
            "trials": task.trial.run.__module__.rpartition(".")[2],
            "module": task.module,
            "target": task.target,
            "seed": self.seed,
            "text": str(given / "answer.py") if text is not None else None,
            "inputs": str(source),
            "outputs": str(folder / f"result{i}"),
        }


def remove_tree(folder: Path) -> None:
    """Delete a folder that strangers wrote to, whatever is in it: rights taken away, folders
    thousands deep.
    """
    try:
        shutil.rmtree(folder)
    except Exception:  # a RecursionError, too
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf", "--"]):
            subprocess.run([*command, str(folder)], stderr=subprocess.DEVNULL)


# trials use torch's global random state, and put a probe in the place of dropout
ONE_AT_A_TIME = threading.RLock()


def cases_of(task: Exercise, seed: int) -> list[tuple]:
    """Draw the cases of an exercise, as tuples."""
    with ONE_AT_A_TIME:
        return [tuple(case) for case in cases(task.name, seed)]
