"""Isolation of a process: limits, audit hook and Landlock, each tried from inside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import minbert
from minbert.course.isolation import _parts, landlock_version

PACKAGE = str(Path(minbert.__file__).parent.parent)
HOOKED = """
import sys; sys.path.insert(0, {package!r})
from minbert.course.isolation import guard, limit
import ctypes, os, socket, subprocess
limit(60, 2**28, 2**20)
guard([sys.prefix, sys.base_prefix, {package!r}], [{folder!r}], [{hidden!r}])
def tried(f):
    try: return f() or "done"
    except Exception as error: return f"{{type(error).__name__}}"
open({folder!r} + "/mine", "w").write("x")
print(tried(lambda: open({hidden!r} + "/secret").read()), tried(lambda: open("/etc/passwd").read()), tried(lambda: os.remove({hidden!r} + "/secret")),
      tried(lambda: os.listdir({hidden!r})), tried(lambda: subprocess.run(["ls"])), tried(socket.socket), tried(os.fork), tried(lambda: os.kill(1, 0)),
      tried(lambda: __import__("ctypes").CDLL(None)), tried(lambda: os.system("ls")), tried(lambda: os.symlink({hidden!r}, {folder!r} + "/link")), tried(lambda: os.open(sys.prefix, 0)),
      tried(lambda: sys.audit("ctypes.call_function", ctypes._cast_addr + 1, ())), tried(lambda: sys.audit("sys.remote_exec", 1, "")))
import builtins, posixpath
class Liar(str):
    def __getitem__(self, i): return {folder!r}[i]
    def startswith(self, *_): return True
def changed(holder, name, value):
    before = getattr(holder, name)
    setattr(holder, name, value)
    try: return tried(lambda: open({hidden!r} + "/secret").read())
    finally: setattr(holder, name, before)
def frames():
    try: open({hidden!r} + "/secret")
    except OSError as error: frame = error.__traceback__.tb_next.tb_frame
    return "constants" if not frame.f_globals and "allowed" not in frame.f_locals else "open to change"
print(tried(lambda: open(Liar({hidden!r} + "/secret")).read()), changed(builtins, "isinstance", lambda *_: True), changed(posixpath, "abspath", lambda p: {folder!r}),
      tried(lambda: __import__("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters") and None), frames())
print(tried(lambda: bytearray(2**30)), tried(lambda: open({folder!r} + "/big", "w").write("x" * 2**21) and None))
print(tried(lambda: sys.audit("ctypes.call_function", ctypes._cast_addr, ())), tried(lambda: ctypes.cast(0, ctypes.c_void_p)))
"""
LOCKED = """
import sys; sys.path.insert(0, {package!r})
import os, signal, torch
from minbert.course.isolation import guard, landlock
def tried(f):
    try: return f() and "done"
    except Exception as error: return type(error).__name__
def all_of_it():
    print(tried(lambda: torch.from_file({hidden!r} + "/secret", size=2, dtype=torch.uint8).tolist()), tried(lambda: torch.save(1, {hidden!r} + "/new") or 1),
          tried(lambda: torch.save(1, "new") or 1), tried(lambda: os.mknod("pipe", 0o10600) or 1),
          tried(lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGCONT) or 1))
os.chdir({folder!r})
readable = [sys.prefix, sys.base_prefix, {top!r}, *(p for p in sys.path if "site-packages" in p)]
(guard if {hook} else landlock)(readable, [{folder!r}], [{hidden!r}])
all_of_it()
"""


def test_what_a_guarded_process_tries_is_refused_and_what_it_needs_goes_on(tmp_path):
    work, secret = tmp_path / "work", tmp_path / "secrets"
    work.mkdir(), secret.mkdir(), (secret / "secret").write_text("42")
    program = HOOKED.format(package=PACKAGE, folder=str(work), hidden=str(secret))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    refused, tricked, limited, needed = run.stdout.split("\n")[:4]
    assert set(refused.split()) == {"PermissionError"}
    assert tricked.split() == ["PermissionError"] * 3 + ["ImportError", "constants"]
    assert limited.split() == ["MemoryError", "OSError"]
    assert needed.split() == ["done"] * 2
    assert (secret / "secret").read_text() == "42"


@pytest.mark.skipif(
    landlock_version() < 6, reason="this kernel has no Landlock that also refuses signals"
)
def test_the_kernel_holds_compiled_code_as_well(tmp_path):
    work, secret = tmp_path / "work", tmp_path / "secrets"
    work.mkdir(), secret.mkdir(), (secret / "secret").write_text("42")
    program = LOCKED.format(
        package=PACKAGE, top=str(tmp_path), folder=str(work), hidden=str(secret), hook=False
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == [
        "RuntimeError",
        "RuntimeError",
        "done",
        "PermissionError",
        "PermissionError",
    ], run.stderr[-500:]


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
