"""Isolation of a process: resource limits, an audit hook that refuses events, and Landlock rules of
the kernel.

Each has gaps, so a process gets all three. The hook sees what Python opens and explains a refusal;
Landlock also holds compiled code. The hook runs in the process that it guards. It is therefore one
function whose needs are constants of its code, so that a stranger cannot change a helper or a
global that it relies on. Ways out that raise no audit event are closed beforehand.
"""

__all__ = ["limit", "guard", "close_doors", "drop_rights", "landlock_version", "landlock"]

import ast
import ctypes
import inspect
import os
import shutil
import struct
import sys
import types
import warnings
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


_FORBIDDEN = (
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
    "signal.pthread_kill",
    "gc.",
    "urllib.",
    "ftplib.",
    "http.",
    "smtplib.",
    "webbrowser.",
    "sys.addaudithook",
    "sys.settrace",
    "sys.setprofile",
    "sys.remote_exec",
    "mmap.",
    "syslog.",
    "fcntl.",
    "resource.",
    "code.__new__",
    "sqlite3.",
    # a second interpreter has hooks of its own: none
    "cpython.PyInterpreterState_New",
    # a second thread or a link could change what a path means after it was looked at
    "_thread.start",
    "os.link",
    "os.symlink",
)
_WRITES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
    "os.setxattr",
    "os.removexattr",
    "os.chflags",
    "os.lockf",
    "os.mkfifo",
    "os.mknod",
)
_LOOKS = ("os.listdir", "os.scandir", "os.chdir")  # os.walk and glob look through these

# Modules of Python with functions that read, write, start or stop something and raise no audit
# event.
_DOORS = frozenset(
    "posix _signal _posixsubprocess _ctypes ctypes _cffi_backend _interpreters _xxsubinterpreters _interpchannels _xxinterpchannels "
    "_interpqueues _testcapi _testinternalcapi _testlimitedcapi _testbuffer _testmultiphase _sqlite3 _dbm _gdbm readline _posixshmem "
    "_multiprocessing _curses _curses_panel _tkinter _testclinic _testexternalinspection _remote_debugging".split()
)
# Packages whose compiled parts an answer may load; others may hold a second `open`.
_COMPILED = "torch numpy scipy sklearn pandas matplotlib contourpy kiwisolver PIL safetensors tokenizers regex yaml".split()


def _inside(path: str, roots: list[str]) -> int:
    """Give the length of the longest root that a path lies in; -1 for none."""
    return max(
        (len(r) for r in roots if path == r or path.startswith(r.rstrip("/") + "/")), default=-1
    )


def _hook(event, args):
    """Look at one audit event. By the time it runs, names in capitals are constants: see `_sealed`."""
    if event == "open":
        asked = ((args[0], WRITABLE if args[2] & CHANGES else BOTH),)
    elif event == "import":
        name, file = TEXT(args[0]).rpartition(".")[2], args[1]
        compiled = file and TEXT(file)
        if name in DOORS or compiled and compiled.rpartition("/")[2].partition(".")[0] in DOORS:
            # again, with what was taken out
            raise IMPORT_ERROR(f"an exercise may not import {name}")
        # or a compiled module of their own
        asked = ((compiled, LIBRARIES),) if compiled else ()
    elif event.startswith(WRITES):
        if event in OF_OPEN_FILES and TYPE(args[0]) is INT:
            raise PERMISSION_ERROR(f"an exercise may not {event} an open file")
        asked = [
            (path, WRITABLE)
            for path in args
            if not (path is None or TYPE(path) is INT or TYPE(path) is TUPLE)
        ]
    elif event.startswith(LOOKS):
        asked = (
            (args[0] if args and args[0] is not None and TYPE(args[0]) is not INT else ".", BOTH),
        )
    elif event == "ctypes.call_function" and TYPE(args[0]) is INT and args[0] == CAST:
        # safetensors casts a pointer, and Python 3.14 tells of that as well
        return
    elif event.startswith(FORBIDDEN):
        try:
            WRITE(TELL, event.encode() + b"\n")
        except OS_ERROR:
            pass
        raise PERMISSION_ERROR(f"an exercise may not use {event}")
    else:
        return
    told = event.startswith(WRITES)
    for path, roots in asked:
        if event == "open" and TYPE(path) is INT:
            # a file that is open already
            continue
        try:
            # the text itself, whatever a subclass says it is
            path = TEXT(path)
        except TYPE_ERROR:
            # bytes; anything else is refused here
            path = DECODE(path, "utf-8", "surrogateescape")
        whole, parts, links = (
            "",
            (path if path.startswith("/") else GETCWD() + "/" + path).split("/"),
            0,
        )
        # where the kernel would go: the real path
        while parts and links < 99:
            part = parts.pop(0)
            if part == "..":
                whole = whole.rpartition("/")[0]
            elif part not in NOTHING:
                try:
                    target = READLINK(f"{whole}/{part}")
                except OS_ERROR:
                    whole = f"{whole}/{part}"
                else:
                    parts[:0], links = target.split("/"), links + 1
                    whole = "" if target.startswith("/") else whole
        best = hidden = odd = 0
        for root in roots:
            if (whole == root or whole.startswith(f"{root}/")) and LEN(root) > best:
                best = LEN(root)
        # in any case of letters: some disks see no difference
        for root in HIDDEN:
            if (whole.casefold() == root or whole.casefold().startswith(f"{root}/")) and LEN(
                root
            ) > hidden:
                hidden = LEN(root)
            # the folder in which it lies
            told = told or root.startswith(f"{whole.casefold()}/")
        if event == "open":
            try:
                # a device, or a folder: a second place to count a path from
                odd = STAT(whole).st_mode & KIND != FILE
            except OS_ERROR:
                pass
        if (best <= hidden or odd or parts) and not (event == "open" and whole in ALWAYS):
            if told or hidden and event != "import":
                try:
                    WRITE(TELL, event.encode() + b"\n")
                except OS_ERROR:
                    # nobody listens, or the pipe is full
                    pass
            raise (IMPORT_ERROR if event == "import" else PERMISSION_ERROR)(
                f"an exercise may not {event} {path}"
            )


def _marked(function) -> types.CodeType:
    """Compile a function with texts in the places of its names in capitals."""

    class Marks(ast.NodeTransformer):
        def visit_Name(self, node):
            return (
                ast.copy_location(ast.Constant(f"\0{node.id}"), node) if node.id.isupper() else node
            )

    with warnings.catch_warnings():
        # "str is not callable": it will be none
        warnings.simplefilter("ignore")
        module = compile(Marks().visit(ast.parse(inspect.getsource(function))), "<hook>", "exec")
    return next(c for c in module.co_consts if isinstance(c, types.CodeType))


def _sealed(code: types.CodeType, values: dict) -> types.CodeType:
    """Put values in the places of the marks, so that there is no variable left that somebody could
    change.

    A traceback gives its reader the frame of a hook, and with it whatever can be reached from
    there: globals, builtins, closures.
    """
    constants = (
        _sealed(c, values)
        if isinstance(c, types.CodeType)
        else values[c[1:]]
        if isinstance(c, str) and c[:1] == "\0"
        else c
        for c in code.co_consts
    )
    return code.replace(co_consts=tuple(constants))


_HOOK = _marked(_hook)


def guard(
    readable: list[str],  # folders
    writable: list[str],  # folders
    hidden: list[str],  # folders; of nested ones, the innermost counts
    tell: int = -1,  # open pipe that takes the names of events no exercise needs
) -> None:
    """Refuse everything but arithmetic and reading the libraries, for the rest of this process's
    life.
    """
    readable, writable, hidden = (
        tuple(os.path.realpath(r) for r in rs) for rs in (readable, writable, hidden)
    )
    compiled = [
        os.path.join(p, name)
        for p in sys.path
        for name in [*_COMPILED, "lib-dynload", *(f"{n}.libs" for n in _COMPILED)]
    ]
    libraries = tuple(
        {
            os.path.realpath(p)
            for p in [*compiled, *(p for p in sys.path if p.endswith("lib-dynload"))]
            if os.path.isdir(p)
        }
    )
    values = dict(
        WRITABLE=writable,
        BOTH=readable + writable,
        LIBRARIES=libraries,
        HIDDEN=tuple(h.casefold() for h in hidden),
        DOORS=_DOORS,
        WRITES=_WRITES,
        LOOKS=_LOOKS,
        FORBIDDEN=_FORBIDDEN,
        CHANGES=os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND,
        OF_OPEN_FILES=("os.chmod", "os.chown", "os.utime"),
        INT=int,
        TUPLE=tuple,
        NOTHING=("", "."),
        ALWAYS=("/dev/null", "/dev/urandom"),
        KIND=0o170000,
        FILE=0o100000,
        TEXT=str.__str__,
        DECODE=bytes.decode,
        TYPE=type,
        LEN=len,
        READLINK=os.readlink,
        GETCWD=os.getcwd,
        STAT=os.stat,
        CAST=ctypes._cast_addr,
        WRITE=os.write,
        TELL=tell,
        IMPORT_ERROR=ImportError,
        PERMISSION_ERROR=PermissionError,
        OS_ERROR=OSError,
        TYPE_ERROR=TypeError,
    )
    sys.addaudithook(types.FunctionType(_sealed(_HOOK, values), {}))


def close_doors() -> None:
    """Take away what no audit event tells of: native functions by address, fresh copies of built-in
    modules, signals to others.
    """
    for name in sys.builtin_module_names:
        if name not in _DOORS:
            __import__(name)  # what is loaded now needs no door later
    for holder in map(
        sys.modules.get, ("signal", "os", "_signal", "posix", "_posixsubprocess", "subprocess")
    ):
        for name in (
            "pidfd_send_signal",
            "pidfd_open",
            "setpriority",
            "sched_setaffinity",
            "sched_setscheduler",
            "fork_exec",
            "_fork_exec",
            "unshare",
            "setns",
        ):
            vars(holder).pop(name, None) if holder else None
    for name in [n for n in _DOORS if "interp" in n and n in sys.modules]:
        # in Python 3.14 `concurrent.futures` has opened one
        vars(sys.modules[name]).clear()
    vars(sys.modules["_imp"]).pop("create_builtin", None)
    # to delete a tree, it would open folders, which the hook refuses
    shutil._use_fd_functions, shutil._rmtree_impl = False, shutil._rmtree_unsafe
    # safetensors casts with it; nobody calls an address
    for module in (sys.modules["ctypes"], sys.modules["_ctypes"]):
        for name in [
            n
            for n in vars(module)
            if n.startswith(("mem", "_mem", "call_", "dl", "pythonapi"))
            or "FUNC" in n.upper()
            or "DLL" in n.upper()
        ]:
            delattr(module, name)


def drop_rights() -> None:
    """Give up what the root of a machine or a namespace may do, and the way to new rights; end with
    the parent. Linux only.
    """
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)  # no new privileges
        libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))  # no capabilities
        libc.prctl(1, 9, 0, 0, 0)  # killed when the parent is


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
