"""Isolation of a process from within: resource limits, the loss of all privileges, no new processes,
Landlock rules of the kernel, and a report of suspicious events.

They complement bubblewrap, in which the worker runs: the worker forks one child for each answer,
and only the child gives these rights up.
"""

__all__ = [
    "limit",
    "report_attempts",
    "drop_rights",
    "forbid_processes",
    "landlock_version",
    "landlock",
]

import ctypes
import errno
import os
import platform
import struct
import sys
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # Windows
    raise OSError(
        "answers are tried behind limits that Linux and macOS have; on Windows do it in WSL (the checks in a notebook run everywhere)"
    ) from None


def limit(
    cpu: int,  # seconds
    memory: int,  # bytes on top of what the process has now
    file_size: int,  # bytes
) -> None:
    """Lower this process's limits for good."""
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0])
        if Path("/proc/self/statm").exists()
        else 0
    )
    wanted = {
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_AS: pages * resource.getpagesize() + memory
        if pages
        else resource.RLIM_INFINITY,
    }
    for what, value in wanted.items():
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


# What no exercise needs: the reports name whoever tried it.
_SUSPICIOUS = (
    "socket.",
    "ctypes.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.kill",
    "pty.",
    "gc.",
    "urllib.",
    "ftplib.",
    "http.",
    "smtplib.",
    "webbrowser.",
    "signal.pthread_kill",
    "sys.addaudithook",
    "sys.settrace",
    "sys.setprofile",
    "resource.",
    "_thread.start",
)


# ... and these, if they concern files of others
_CHANGES = (
    "os.chmod",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
)
_LOOKS = ("open", "os.listdir", "os.scandir")


def report_attempts(
    pipe: int,  # takes one name of an event a line
    own: str,  # folder in which an answer may do what it likes
    hidden: list[str],  # folders: looking into them, or for them, is reported
) -> None:
    """Report what no exercise needs, for the flags of the instructor. Nothing is refused here, and
    an answer that tries can silence the report: isolation is the task of the operating system.
    """
    own, hidden = f"{os.path.realpath(own)}/", [f"{os.path.realpath(h)}/" for h in hidden]
    cast = ctypes._cast_addr  # safetensors casts a pointer, and Python 3.14 tells of that as well

    def is_suspicious(event: str, args: tuple) -> bool:
        paths = [f"{os.path.abspath(str.__str__(x))}/" for x in args if isinstance(x, str)]
        if event in _CHANGES:
            return not all(path.startswith(own) for path in paths)
        if event in _LOOKS:
            inside = any(path.startswith(h) for path in paths[:1] for h in hidden)
            above = event != "open" and any(h.startswith(path) for path in paths for h in hidden)
            return inside or above
        return event.startswith(_SUSPICIOUS) and args[:1] != (cast,)

    def hook(event: str, args: tuple) -> None:
        if is_suspicious(event, args):
            with suppress(OSError):  # nobody listens, or the pipe is full
                os.write(pipe, event.encode() + b"\n")

    sys.addaudithook(hook)


def drop_rights() -> None:
    """Give up what the root of a machine or a namespace may do, and the way to new rights; end with
    the parent. Linux only.
    """
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)  # no new privileges
        libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))  # no capabilities
        libc.prctl(1, 9, 0, 0, 0)  # killed when the parent is


# system calls that start a process or a thread, and the number of the architecture in linux/audit.h
_STARTS = {
    "x86_64": (0xC000003E, (56, 57, 58, 435)),  # clone, fork, vfork, clone3
    "aarch64": (0xC00000B7, (220, 435)),  # clone, clone3
}


def forbid_processes() -> None:
    """Let the kernel refuse new processes and threads, by a seccomp filter. Linux on the processors
    of `_STARTS` only.

    The limit on the number of processes is not enough: it does not hold for the root of a machine,
    also not in a namespace where root has another number. Needs `drop_rights` before.
    Raises OSError if the kernel does not take the filter.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in _STARTS:
        return
    architecture, calls = _STARTS[platform.machine()]
    n = len(calls)
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06  # instructions of the filter
    program = [
        (load, 0, 0, 4),
        (equal, 0, n + 3, architecture),
    ]  # another calling convention: refuse
    program += [(load, 0, 0, 0), (at_least, n + 1, 0, 0x40000000)]  # x32 numbers: refuse
    program += [(equal, n - i, 0, call) for i, call in enumerate(calls)]
    program += [(end, 0, 0, 0x7FFF0000), (end, 0, 0, 0x00050000 | errno.EPERM)]  # allow; refuse
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    whole = struct.pack("HP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, whole, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel refuses a seccomp filter")


# bits of linux/landlock.h
_READ, _LIST = 1 << 2, 1 << 3
# ... write, delete and make files and folders, truncate
_WRITE = _READ | _LIST | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14
_OF_FILES = 1 << 0 | 1 << 1 | _READ | 1 << 14 | 1 << 15


def landlock_version() -> int:
    """Say which version of Landlock the kernel speaks; 0 where it has none (not Linux, or before
    5.13).
    """
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


def _inside(path: str, roots: list[str]) -> int:
    """Give the length of the longest root that a path lies in; -1 for none."""
    return max(
        (len(r) for r in roots if path == r or path.startswith(r.rstrip("/") + "/")), default=-1
    )


def _parts(folder: str, hidden: list[str]) -> list[str]:
    """Name paths that hold everything in a folder but what is hidden in it, not even by way of a
    link.
    """
    found, seen, todo = [], set(), [folder]
    while todo:
        path = os.path.realpath(todo.pop())
        if path in seen or _inside(path, hidden) > _inside(path, [folder]):
            continue
        seen.add(path)
        if os.path.isdir(path) and any(h.startswith(path.rstrip("/") + "/") for h in hidden):
            todo += [os.path.join(path, name) for name in os.listdir(path)]
        else:
            found.append(path)
    return found


def landlock(
    readable: list[str],  # folders and files
    writable: list[str],  # folders and files
    hidden: list[str],  # folders
) -> None:
    """Let the kernel refuse all other files, for the rest of this process's life, and what else its
    version can.

    Raises OSError if it does not.
    """
    libc, version, real = ctypes.CDLL(None, use_errno=True), landlock_version(), os.path.realpath
    hidden = [real(h) for h in hidden]

    def call(number: int, *args) -> int:
        if (result := libc.syscall(number, *args)) < 0:
            raise OSError(ctypes.get_errno(), f"Landlock, call {number}")
        return result

    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    # files; TCP; signals and sockets
    handled = struct.pack("QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = call(444, handled, ctypes.c_size_t(len(handled)), 0)
    wanted = [(real(p), _LIST) for p in readable] + [
        (part, _READ) for p in readable for part in _parts(real(p), hidden)
    ]
    for path, rights in wanted + [(real(p), _WRITE) for p in writable]:
        if os.path.exists(path):
            fd = os.open(path, os.O_PATH)
            rights &= files if os.path.isdir(path) else files & _OF_FILES
            if rights:
                call(445, rules, 1, struct.pack("=Qi", rights, fd), 0)
            os.close(fd)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges: the condition for what follows
    call(446, rules, 0)
    os.close(rules)
