"""Isolation of a process from within: limits, no new processes, Landlock, and the report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import minbert
from minbert.course.isolation import _parts, landlock_version

PACKAGE = str(Path(minbert.__file__).parent.parent)
START = f"import sys; sys.path.insert(0, {PACKAGE!r})\n"
TRIED = """
def tried(f):
    try: return f() and "done"
    except Exception as error: return type(error).__name__
"""
LOCKED = (
    START
    + TRIED
    + """
import os, signal, torch
from minbert.course.isolation import landlock
os.chdir({folder!r})
readable = [sys.prefix, sys.base_prefix, {top!r}, *(p for p in sys.path if "site-packages" in p)]
landlock(readable, [{folder!r}], [{hidden!r}])
print(tried(lambda: torch.from_file({hidden!r} + "/secret", size=2, dtype=torch.uint8).tolist()),
      tried(lambda: torch.save(1, {hidden!r} + "/new") or 1), tried(lambda: torch.save(1, "new") or 1),
      tried(lambda: os.mknod("pipe", 0o10600) or 1),
      tried(lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGCONT) or 1))
"""
)


def said(program: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-500:]
    return run.stdout.split()


def test_limits_hold_memory_and_files(tmp_path):
    program = f"""
from minbert.course.isolation import limit
limit(60, 2**28, 2**20)
big = {str(tmp_path / "big")!r}
print(tried(lambda: bytearray(2**27)), tried(lambda: bytearray(2**30)),
      tried(lambda: open(big, "w").write("x" * 2**21)))
"""
    assert said(START + TRIED + program) == ["done", "MemoryError", "OSError"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seccomp is part of Linux")
def test_the_kernel_refuses_processes_and_threads_but_nothing_else():
    """Also to the root of the machine, for whom the limit on the number of processes does not hold."""
    program = """
import os, subprocess, threading
from minbert.course.isolation import drop_rights, forbid_processes
before = os.fork()
if not before: os._exit(0)
os.waitpid(before, 0)
drop_rights(); forbid_processes()
print(tried(os.fork), tried(lambda: subprocess.run(["true"])), tried(lambda: os.system("true") == 0),
      tried(lambda: threading.Thread(target=print).start()), tried(lambda: os.listdir("/")))
"""
    assert said(START + TRIED + program) == [
        "PermissionError",
        "PermissionError",
        "False",
        "RuntimeError",
        "done",
    ]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="privileges of Linux")
def test_privileges_are_dropped():
    program = """
from minbert.course.isolation import drop_rights
drop_rights()
lines = dict(line.split(":") for line in open("/proc/self/status"))
print(int(lines["CapEff"], 16), int(lines["CapPrm"], 16), lines["NoNewPrivs"])
"""
    assert said(START + program) == ["0", "0", "1"]


def test_suspicious_events_are_reported_and_others_not(tmp_path):
    secret = tmp_path / "secrets"
    secret.mkdir(), (secret / "secret").write_text("42"), (tmp_path / "own").mkdir()
    program = f"""
import ctypes, os, socket, torch
from minbert.course.isolation import report_attempts
heard, tell = os.pipe()
report_attempts(tell, {str(tmp_path / "own")!r}, [{str(secret)!r}])
torch.ones(2, requires_grad=True).sum().backward()
ctypes.cast(0, ctypes.c_void_p)
open({__file__!r}).read()
os.chdir({str(tmp_path / "own")!r})
os.mkdir("mine"), os.rename("mine", "yours"), os.rmdir("yours"), os.listdir(".")
open({str(secret)!r} + "/secret").read()
os.listdir({str(tmp_path)!r})
os.remove({str(secret)!r} + "/secret")
try: os.kill(2**22 + 1, 0)
except OSError: pass
socket.socket().close()
print(*os.read(heard, 1000).decode().split())
"""
    assert said(START + program) == [
        "open",
        "os.listdir",
        "os.remove",
        "os.kill",
        "socket.__new__",
    ]


@pytest.mark.skipif(
    landlock_version() < 6, reason="this kernel has no Landlock that also refuses signals"
)
def test_landlock_holds_compiled_code_as_well(tmp_path):
    work, secret = tmp_path / "work", tmp_path / "secrets"
    work.mkdir(), secret.mkdir(), (secret / "secret").write_text("42")
    program = LOCKED.format(top=str(tmp_path), folder=str(work), hidden=str(secret))
    assert said(program) == [
        "RuntimeError",
        "RuntimeError",
        "done",
        "PermissionError",
        "PermissionError",
    ]


def test_what_is_hidden_is_left_out_by_allowing_its_neighbours(tmp_path):
    top = os.path.realpath(tmp_path)  # as in an environment: lib64 is a link to lib
    for name in ("lib/ours/course", "lib/torch", "bin"):
        Path(top, name).mkdir(parents=True)
    (
        Path(top, "lib64").symlink_to("lib"),
        Path(top, "lib/shortcut").symlink_to("ours/course"),
        Path(top, "lib/up").symlink_to(".."),
    )

    def parts(*hidden):
        return sorted(p.removeprefix(top) for p in _parts(top, [f"{top}/{h}" for h in hidden]))

    assert parts("lib/ours") == ["/bin", "/lib/torch"]
    assert parts("elsewhere") == ["/bin", "/lib"]
    # inside what is hidden: the innermost counts
    assert _parts(top, [os.path.dirname(top)]) == [top]
