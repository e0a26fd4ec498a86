"""The worker process that runs learners' code: it imports torch once, and forks an isolated child
for each answer.

Starting Python and torch takes about two seconds, a fork a few milliseconds. Inputs and outputs
travel as safetensors and JSON, because unpickling runs code; expected values stay with the parent.
Processor time is limited by the kernel. For an answer that sleeps, the time that it waited for a
processor is subtracted from the clock, so that the limit does not depend on how busy the machine
is.
"""

__all__ = ["PATIENCE", "pack", "unpack", "write_tree", "read_tree", "run_task", "TooLate", "serve"]

import ctypes
import errno
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from .isolation import drop_rights, forbid_processes, landlock, limit, report_attempts


def pack(tree, tensors: dict[str, torch.Tensor], strides: bool = False):
    """Turn nested dicts, lists, tuples, numbers and tensors into JSON; tensors go into `tensors`
    and leave their name. Raises ValueError for anything else.

    With `strides`, a tensor that is not contiguous leaves its strides as well, because
    `x.view(...)` fails for some of them.
    """
    if isinstance(tree, torch.Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = tree.detach().contiguous().clone()
        return (
            {"strided": [name, tree.stride()]}
            if strides and not tree.is_contiguous()
            else {"tensor": name}
        )
    if isinstance(tree, dict):
        return {
            "dict": [
                [pack(k, tensors, strides), pack(v, tensors, strides)] for k, v in tree.items()
            ]
        }
    if isinstance(tree, (list, tuple)):
        return {
            "tuple" if isinstance(tree, tuple) else "list": [
                pack(v, tensors, strides) for v in tree
            ]
        }
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise ValueError(f"expected tensors, numbers, text, lists and dicts, got {type(tree).__name__}")


def unpack(tree, tensors: dict[str, torch.Tensor], strides: bool = False):
    """Undo `pack`. Raises KeyError, ValueError or TypeError for what `pack` never wrote.

    Without `strides`, strides are refused as well: those that a stranger wrote could ask for any
    amount of memory.
    """
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "strided" and strides:
        contiguous = tensors[value[0]]
        return torch.empty_strided(contiguous.shape, value[1], dtype=contiguous.dtype).copy_(
            contiguous
        )
    if kind == "dict":
        return {unpack(k, tensors, strides): unpack(v, tensors, strides) for k, v in value}
    return {"list": list, "tuple": tuple}[kind](unpack(v, tensors, strides) for v in value)


def write_tree(tree, file: Path, strides: bool = False) -> None:
    """Write `file`.json and `file`.safetensors, for `read_tree` also with the strides of the
    tensors.
    """
    tensors = {}
    text = json.dumps(pack(tree, tensors, strides))
    file.with_suffix(".safetensors").write_bytes(save(tensors))
    file.with_suffix(".json").write_text(text, encoding="utf-8")


def read_tree(file: Path):
    """Read what `write_tree` wrote. Only for files of our own: a stranger's are read by the parent,
    with more care.
    """
    return unpack(
        json.loads(file.with_suffix(".json").read_text(encoding="utf-8")),
        load_file(file.with_suffix(".safetensors")),
        strides=True,
    )


def _outcome(trial, implementation, case, seed, method):
    """Like `run_case`, but nothing gets out: sys.exit is a result too."""
    from minbert.course.check_runner import Outcome, run_case

    try:
        return run_case(trial, implementation, case, seed, method)
    except TooLate:
        raise
    except BaseException as error:
        return Outcome(case.label, None, f"{type(error).__name__}: {error}")


def run_task(
    # exercise, trials (module), module, target, text (file) or None, inputs, outputs (files), seed
    task: dict,
    write=write_tree,
) -> None:
    """Load a learner's module and try one exercise; write a list of outcomes as tuples."""
    from importlib import import_module

    from minbert.course.check_runner import Case, Outcome
    from minbert.course.source_tools import load, resolve

    cases = [Case(*row) for row in read_tree(Path(task["inputs"]))]
    try:
        module = (
            load(Path(task["text"]).read_text(encoding="utf-8"), task["module"])
            if task["text"]
            else import_module(f"minbert.{task['module']}")
        )
        implementation = resolve(module, task["target"])
        trial = import_module("minbert.exercise_cases.input_validation").with_refusals(
            task["exercise"],
            import_module(f"minbert.exercise_cases.{task['trials']}").TRIALS[task["exercise"]],
        )
        method = task["target"].partition(".")[2]
        outcomes = [_outcome(trial, implementation, case, task["seed"], method) for case in cases]
    except TooLate:
        raise
    except BaseException as error:
        outcomes = [Outcome(case.label, None, f"{type(error).__name__}: {error}") for case in cases]
    write([tuple(o) for o in outcomes], Path(task["outputs"]))


_TELL = 3  # the number of the open pipe into which a child reports suspicious events


def _become_small(job: dict, tell: int) -> None:
    """Everything that a child gives up before it meets a stranger's code."""
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(
        HOME=job["folder"],
        TMPDIR=job["folder"],
        OMP_NUM_THREADS="1",
        HF_HUB_OFFLINE="1",
        MPLBACKEND="agg",
    )
    tempfile.tempdir = job["folder"]
    limit(job["cpu"], job["memory"], job["file_size"])
    drop_rights()
    readable = [
        sys.prefix,
        sys.base_prefix,
        "/usr/lib",
        "/usr/share",
        "/usr/local/lib",
        "/lib",
        "/proc/cpuinfo",
        "/sys/devices/system/cpu",
        *[p for p in sys.path if "site-packages" in p or "dist-packages" in p],
        job["package"],
        *[os.path.dirname(task["inputs"]) for task in job["tasks"]],
    ]
    if job["landlock"]:
        landlock(
            [*readable, "/lib64", "/etc/ld.so.cache", "/dev/urandom"],
            [job["folder"], os.devnull],
            job["hidden"],
        )
    # until here, errors go to the sandbox's log
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.dup2(tell, _TELL)
    os.closerange(_TELL + 1, 256)
    forbid_processes()
    report_attempts(_TELL, job["folder"], job["hidden"])


PATIENCE = 4  # seconds by the clock for a second of processor, for who waits for something else


class TooLate(BaseException):
    """One of several answers took its time; no `except Exception` of theirs shall catch it."""


def _in_time(task: dict, seconds: float) -> None:
    """Run a task, and leave it without a result after so many seconds of processor (0: no limit but
    the process's own); `_watch` rings for who only waits.
    """

    def ring(*_):
        raise TooLate

    signal.signal(signal.SIGALRM, ring)
    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        run_task(task)
    except TooLate:
        Path(f"{task['outputs']}.late").touch()  # for whoever watches: we went on
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _apart() -> None:
    """Let the next child see no process but its own, and take all it starts along when it ends,
    where the system allows that.
    """
    if os.path.exists("/proc/self/ns/pid"):
        with open("/proc/self/ns/pid") as own:
            # of processes; a second `unshare` works from our own only
            ctypes.CDLL(None).setns(own.fileno(), 0x20000000)
            ctypes.CDLL(None).unshare(0x20000000)


def _child(job: dict, tell: int) -> None:
    os.setsid()
    gc.disable()
    code = 1
    try:
        _become_small(job, tell)
        if not job["preload"]:
            sys.path.insert(0, job["package"])
        for task in job["tasks"]:
            _in_time(task, job.get("each", 0))
        code = 0
    except BaseException as error:
        code = errno.ENOSPC if isinstance(error, OSError) and error.errno == errno.ENOSPC else 1
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _taken(folder: str, pid: int, enough: int) -> int:
    """Count the bytes on disk of a job, also of files that are deleted and still open; an entry
    counts as a page. Stops at more than enough.
    """
    total, todo = 0, [folder, f"/proc/{pid}/fd"]
    while todo and total <= enough:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    deleted = entry.path.startswith("/proc/")
                    info = entry.stat(follow_symlinks=deleted)
                    if not deleted or not info.st_nlink:
                        total += 4096 + 512 * info.st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    if total > enough:
                        break
        except OSError as error:
            # gone already, or not ours to see; or so deep that nobody could say what is in it
            total += (enough + 1) * (error.errno == errno.ENAMETOOLONG)
    return total


def _queued(pid: int) -> float:
    """Give the seconds for which a process was ready to run while others had the processors; 0
    where the system does not count them (not Linux).
    """
    try:
        with open(f"/proc/{pid}/schedstat") as counts:
            return int(counts.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


_EVENT = re.compile(r"[a-z_]+(\.\w+)+|open")


def _attempts(pipe: int) -> list[str]:
    """Name the events that were reported through a pipe; an answer can write there too, so only what
    looks like events, and few, are taken.
    """
    with suppress(BlockingIOError):
        lines = os.read(pipe, 2**16).decode(errors="replace").split("\n")
        return sorted({line for line in lines if len(line) < 40 and _EVENT.fullmatch(line)})[:5]
    return []


def _watch(pid: int, job: dict) -> dict:
    """Wait for a child, kill what is left of it and its group, and say how it ended.

    It is late after `wall` seconds, or when one of several answers has swallowed its alarm and
    holds up the others. The time for which it had to wait for a processor is left out, so that a
    busy machine makes nobody late. It is ended too when it has filled its space.
    """

    def own() -> float:
        return time.monotonic() - start - _queued(pid)

    def full() -> bool:
        return _taken(job["folder"], pid, job["space"]) > job["space"]

    signs = [f"{task['outputs']}{ending}" for task in job["tasks"] for ending in (".json", ".late")]
    start, each = time.monotonic(), job.get("each", 0)
    patience = (PATIENCE + 1) * each + 1 if each else job["wall"]
    last, pause, seen, rung = 0.0, 0.001, 0, -1
    while (
        not (ended := os.wait4(pid, os.WNOHANG))[0]
        and (now := own()) < job["wall"]
        and now - last < patience
        and not full()
    ):
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
        if each and (there := sum(map(os.path.exists, signs))) != seen:
            seen, last = there, own()
        elif each and rung != seen and now - last > PATIENCE * each:
            os.kill(pid, signal.SIGALRM)  # once for each answer
            rung = seen
    late, much = not ended[0], full()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0) if late else ended
    # the kernel counts them in two ways
    if (
        status == signal.SIGKILL
        and not late
        and not much
        and used.ru_utime + used.ru_stime > 0.9 * job["cpu"]
    ):
        # the first process of a namespace gets no other signal from its own limit than the kill
        status = signal.SIGXCPU
    return {"late": late, "full": much, "status": status, "seconds": time.monotonic() - start}


def _room(package: str, tasks: list[dict], preload: bool, requests, replies) -> None:
    """Import a package and serve jobs until the pipe closes."""
    if preload:
        sys.path.insert(0, package)
        for module in {f"minbert.exercise_cases.{task['trials']}" for task in tasks} | {
            "minbert.course.check_runner",
            "minbert.exercise_cases.input_validation",
            "minbert.course.source_tools",
        }:
            __import__(module)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page of the parent
    for line in requests:
        job = json.loads(line)
        _apart()
        heard, tell = os.pipe()
        os.set_blocking(heard, False)
        os.set_blocking(tell, False)
        pid = os.fork()
        if pid == 0:
            _child(job, tell)
        os.close(tell)
        told = _watch(pid, job)
        replies.write(json.dumps(told | {"attempts": _attempts(heard)}) + "\n")
        replies.flush()
        os.close(heard)
    os._exit(0)


class _Room:
    """A forked process with a package in it, seen from outside."""

    def __init__(self, job: dict):
        self.package = job["package"]
        (mine, theirs), (answers, back) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(theirs), os.close(answers)
            try:
                _room(
                    job["package"],
                    job["tasks"],
                    job["preload"],
                    os.fdopen(mine),
                    os.fdopen(back, "w"),
                )
            finally:
                os._exit(1)
        os.close(mine), os.close(back)
        self.requests, self.replies = os.fdopen(theirs, "w"), os.fdopen(answers)

    def ask(self, job: dict) -> dict:
        try:
            self.requests.write(json.dumps(job) + "\n")
            self.requests.flush()
            return json.loads(self.replies.readline())
        except (OSError, ValueError):
            return {"late": False, "status": -1, "seconds": 0.0, "lost": True}

    def close(self) -> None:
        for stream in (self.requests, self.replies):
            with suppress(OSError):
                stream.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def serve(requests, replies) -> None:
    """Answer jobs, one JSON line each, until there are no more."""
    torch.set_num_threads(1)
    __import__("torch._dynamo")  # the first step of an optimizer needs it
    replies.write(json.dumps({"ready": os.getpid()}) + "\n")
    replies.flush()
    room = None
    for line in requests:
        job = json.loads(line)
        if room is None or room.package != job["package"]:
            if room:
                room.close()
            room = _Room(job)
        reply = room.ask(job)
        if reply.get("lost"):
            room.close()
            room = None
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    if room:
        room.close()


if __name__ == "__main__" and "--serve" in sys.argv:
    serve(sys.stdin, os.fdopen(os.dup(1), "w"))
