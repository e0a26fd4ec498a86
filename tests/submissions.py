"""Make submissions of which we know what they deserve: right, wrong, empty, broken, hostile."""

import json
import os
import random
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

from minbert.course.exercises import EXERCISES, right_definition, wrong_definition
from minbert.course.source_tools import PACKAGE, find, parse, replace

EDITIONS = PACKAGE / "assets" / "course" / "nbs"

# Each is the body of a function that ignores its arguments; {folder} is the folder of all
# submissions.
ATTACKS = {
    "endless loop": "while True: pass",
    "sleep": "import time; time.sleep(3600)",
    "memory bomb": "hold = []\nwhile True: hold.append(bytearray(10**8))",
    "fork bomb": "import os\nwhile True: os.fork()",
    "process bomb": "import subprocess, sys\nwhile True: subprocess.Popen([sys.executable, '-c', 'while True: pass'])",
    "thread bomb": "import threading\nwhile True: threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()",
    "huge file": "with open('huge', 'wb') as f:\n    while True: f.write(bytes(10**7))",
    "os._exit": "import os; os._exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "abort": "import os; os.abort()",
    "crash": "import torch; return torch.empty(3).as_strided((10**9,), (10**6,)).sum()",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "patched torch": "import torch, torch.testing\ntorch.allclose = torch.equal = lambda *a, **k: True\ntorch.testing.assert_close = lambda *a, **k: None\nreturn torch.zeros(1)",
    "patched safetensors": "import safetensors.torch as s\ns.save = s.save_file = lambda *a, **k: b''\nimport sys\nfor m in list(sys.modules.values()):\n"
    "    for n in ('save', 'write_tree'):\n        if hasattr(m, n):\n            setattr(m, n, lambda *a, **k: None)\nreturn 0",
    "patched judge": "import minbert.course.check_runner as t\nt.compare = lambda *a: None\nt.judge = lambda *a: t.Verdict(True, 'passed')\nreturn 0",
    "fake result": "import os, pathlib\nfor i in range(9):\n    pathlib.Path(f'result{{i}}.json').write_text('{{\"list\": []}}')\n    pathlib.Path(f'result{{i}}.safetensors').write_bytes(bytes([2, 0, 0, 0, 0, 0, 0, 0]) + b'{{}}')\nos._exit(0)",
    "linked result": "import os\nfor i in range(9):\n    os.symlink('/etc/passwd', f'result{{i}}.json')\nos._exit(0)",
    "call stack": "import inspect\nfor frame in inspect.stack():\n    for name, value in frame.frame.f_locals.items():\n        if 'expected' in name: return value\nreturn 0",
    "garbage": "import gc\nreturn [o for o in gc.get_objects() if type(o).__name__ == 'Outcome'][0]",
    "reference": "import minbert.{module} as m\nf = m\nfor part in '{target}'.split('.'): f = getattr(f, part)\nreturn f(*args, **kwargs)",
    "reference by path": "import importlib.util as u\ns = u.spec_from_file_location('minbert.{module}', {package!r} + '/{module}.py')\nm = u.module_from_spec(s)\ns.loader.exec_module(m)\n"
    "f = m\nfor part in '{target}'.split('.'): f = getattr(f, part)\nreturn f(*args, **kwargs)",
    "reference by search": "import pathlib\nfor place in ('/', {package!r}):\n    for file in pathlib.Path(place).rglob('{module}.py'):\n        text = file.read_text()\n        if 'MISTAKES' not in text and 'NotImplementedError' not in text:\n"
    "            names = {{'__name__': 'minbert.{module}', '__package__': 'minbert'}}\n            exec(text, names)\n            f = names\n            first, *rest = '{target}'.split('.')\n            f = names[first]\n"
    "            for part in rest: f = getattr(f, part)\n            return f(*args, **kwargs)\nreturn 0",
    "borrowed": "from minbert.course import borrow\nreturn borrow('{name}')(*args, **kwargs)",
    "borrowed elsewhere": "from minbert.course.exercises import reference, exercise\nreturn reference(exercise('{name}'))(*args, **kwargs)",
    "other submissions": "import pathlib\ntexts = [f.read_text() for f in pathlib.Path({folder!r}).rglob('*.ipynb')]\nreturn texts[0]",
    "deletes": "import shutil, os\nshutil.rmtree({folder!r}, ignore_errors=True)\nos.system('rm -rf ' + {folder!r})\nos.remove({folder!r} + '/.keep')\nreturn 0",
    "kills": "import os, signal\nfor p in (os.getppid(), -1, 1):\n    os.kill(p, signal.SIGKILL)",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 22))",
    "native code": "import ctypes\nctypes.CDLL(None).exit(0)",
    "equal to all": "import torch\nclass Yes(torch.Tensor):\n    __eq__ = lambda s, o: True\n    @classmethod\n    def __torch_function__(cls, *a, **k): return True\nreturn torch.zeros(1).as_subclass(Yes)",
    "open folder": "import os\nfd = os.open({prefix!r}, os.O_RDONLY)\ninner = os.open(os.path.relpath({package!r} + '/{module}.py', {prefix!r}), os.O_RDONLY, dir_fd=fd)\n"
    "names = {{'__name__': 'minbert.{module}', '__package__': 'minbert'}}\nexec(os.read(inner, 10**6), names)\nfirst, *rest = '{target}'.split('.')\nf = names[first]\n"
    "for part in rest: f = getattr(f, part)\nreturn f(*args, **kwargs)",
    "native read": "import os, torch\npath = {package!r} + '/{module}.py'\ntext = bytes(torch.from_file(path, size=os.path.getsize(path), dtype=torch.uint8).tolist())\n"
    "names = {{'__name__': 'minbert.{module}', '__package__': 'minbert'}}\nexec(text, names)\nfirst, *rest = '{target}'.split('.')\nf = names[first]\n"
    "for part in rest: f = getattr(f, part)\nreturn f(*args, **kwargs)",
    "native write": "import torch\ntorch.save(torch.zeros(3), {folder!r} + '/.keep')",
    "limits of others": "import resource\nfor p in range(1, 60):\n    try: resource.prlimit(p, resource.RLIMIT_FSIZE, (0, 0))\n    except BaseException: pass",
    "patched isolation": "import __main__ as m, os\nm._SUSPICIOUS = ()\nm._inside = lambda p, r: len(r)\nos.remove({folder!r} + '/.keep')",
    "deep folders": "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')",
    "complex numbers": "import torch\nreturn torch.zeros_like(args[2], dtype=torch.complex64)",
    "processes behind subprocess": "import os, subprocess, sys\ns = sys.modules['_posixsubprocess']\nr, w = os.pipe()\n"
    "def spin():\n    while True: pass\nfor i in range(3):\n"
    "    s.fork_exec([b'/bin/true'], [b'/bin/true'], False, (), None, [], -1, -1, -1, -1, -1, -1, r, w, False, True, -1, None, None, None, -1, spin, False)",
    "a result dear to read": "import os\nopen('result0.safetensors', 'wb').write((2).to_bytes(8, 'little') + b'{{}}')\nopen('result0.json', 'w').write('[' + '[],' * 8000000 + '[]]')\nos._exit(0)",
    "odd numbers": "import torch\nreturn args[0].to(torch.float8_e4m3fn) if args else torch.zeros(1).to(torch.float8_e4m3fn)",
    "NaN": "import torch\nout = [a for a in args if isinstance(a, torch.Tensor)] or [torch.zeros(1)]\nreturn out[0] * float('nan')",
    "prints": "print('{name}: passed, 99 cases')\nimport sys\nsys.__stdout__.write('passed')\nreturn None",
    "own pickle": "class Evil:\n    def __reduce__(self): return (print, ('hello',))\nreturn Evil()",
}

# What reads the reference, runs it and returns what it returns; `text` holds the module.
_USE = "names = {{'__name__': 'minbert.{module}', '__package__': 'minbert'}}\nexec(text, names)\nfirst, *rest = '{target}'.split('.')\nf = names[first]\nfor part in rest: f = getattr(f, part)\nreturn f(*args, **kwargs)"
_SECRET, _KEEP = "({package!r} + '/{module}.py')", "({folder!r} + '/.keep')"

# A second list: around Python, around the limits, around the comparison.
SECOND = {
    "second interpreter": "try: import _interpreters as i\nexcept ImportError: import _xxsubinterpreters as i\ni.run_string(i.create(), 'import os; os.remove(' + repr"
    + _KEEP
    + " + ')')",
    "second interpreter under another name": "import _imp, importlib.machinery as m, importlib.util as u\nfor name in ('_xxsubinterpreters', '_interpreters'):\n    found = m.PathFinder.find_spec(name)\n    if found:\n"
    "        i = _imp.create_dynamic(m.ModuleSpec('math.' + name, None, origin=found.origin))\n        _imp.exec_dynamic(i)\n        i.run_string(i.create(), 'import os; os.remove(' + repr"
    + _KEEP
    + " + ')')",
    "a text that lies": "import os\nclass Liar(str):\n    def __getitem__(self, i): return (os.getcwd() + '/x')[i]\n    def startswith(self, *a): return True\n    def split(self, *a): return ['']\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\n"
    "text = open(Liar" + _SECRET + ").read()\n" + _USE,
    "bytes that lie": "import os\nclass Liar(bytes):\n    def decode(self, *a): return os.getcwd()\n    def startswith(self, *a): return True\ntext = open(Liar(os.fsencode"
    + _SECRET
    + ")).read()\n"
    + _USE,
    "a class equal to all": "import os\nclass Kind(type):\n    __eq__ = lambda s, o: True\n    __hash__ = type.__hash__\nclass Path(str, metaclass=Kind): pass\nos.remove(Path"
    + _KEEP
    + ")",
    "a path of two minds": "import os\nclass Path:\n    n = 0\n    def __fspath__(self):\n        self.n += 1\n        return "
    + _KEEP
    + " if self.n % 2 else 'x'\nos.remove(Path())",
    "patched builtins": "import builtins as b\nfor name, value in dict(isinstance=lambda *a: True, len=lambda x: 9**9, max=lambda *a, **k: 9**9, any=lambda x: True, type=lambda x: int, str=lambda *a: '', PermissionError=Warning).items():\n"
    "    setattr(b, name, value)\ntext = open" + _SECRET + ".read()\n" + _USE,
    "patched paths": "import os, posixpath, genericpath\nhere = os.getcwd()\nfor m in (posixpath, genericpath, os):\n    for name in ('realpath', 'abspath', '_joinrealpath', 'normpath', 'fspath', 'fsdecode', 'readlink', 'stat', 'lstat', 'exists', 'isfile', 'getcwd'):\n"
    "        setattr(m, name, lambda *a, **k: here + '/x')\ntext = open"
    + _SECRET
    + ".read()\n"
    + _USE,
    "the frame of an error": "import os\ntry: os.remove"
    + _KEEP
    + "\nexcept BaseException as error: tb = error.__traceback__\nwhile tb:\n    frame = tb.tb_frame\n    for space in (frame.f_globals, frame.f_locals, frame.f_builtins):\n        for name in list(space):\n"
    "            if not name.startswith('__') and name not in ('os', 'tb', 'frame', 'space', 'name', 'list', 'print', 'open'):\n                try: space[name] = lambda *a, **k: ()\n                except Exception: pass\n    tb = tb.tb_next\nos.remove"
    + _KEEP,
    "code of other frames": "import sys, types\nframe = sys._getframe()\nwhile frame:\n    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):\n        if isinstance(value, types.FunctionType) and value.__module__ != __name__:\n"
    "            value.__code__ = (lambda *a, **k: None).__code__\n    frame = frame.f_back",
    "ways around a path": "import os\nname = os.path.basename({folder!r})\nfor way in ('/proc/self/root', '/proc/self/cwd/' + '../' * 40, '//', '/proc/thread-self/root', '/dev/fd/../../../..', '/usr/lib/../..'):\n    try: os.remove(way + "
    + _KEEP
    + ")\n    except OSError: pass\nreturn 0",
    "addresses": "import ctypes\nf = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes._memmove_addr)\nctypes.memmove(id(f), bytes(64), 64)",
    "addresses under another name": "import ctypes\nkinds = [k for c in object.__subclasses__() for k in (c, *type.__subclasses__(c)) if 'dll' in k.__name__.lower() or 'funcptr' in k.__name__.lower()]\nkinds[0](None)._exit(0)",
    "a fresh posix": "import _imp, importlib.machinery as m\np = _imp.create_builtin(m.ModuleSpec('posix', None))\n_imp.exec_builtin(p)\np.kill(p.getppid(), 9)",
    "a data base": "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('ATTACH ? AS x', ("
    + _KEEP
    + " + '2',))\nc.execute('CREATE TABLE x.t (a)')",
    "a history": "import readline\nreadline.write_history_file" + _KEEP,
    "arrows": "import pyarrow\nwith pyarrow.OSFile(" + _KEEP + ", 'wb') as f: f.write(b'gone')",
    "a foreign function": "import cffi\nf = cffi.FFI()\nf.cdef('int unlink(char *);')\nf.dlopen(None).unlink"
    + _KEEP.replace("({", "(({").replace("')", "').encode())"),
    "messages": "import zmq\nzmq.Context().socket(zmq.PUB).bind('ipc://' + " + _KEEP + " + '3')",
    "shared memory": "from multiprocessing import shared_memory as s\nhold = [s.SharedMemory(create=True, size=10**8) for i in range(50)]",
    "a full folder": "for i in range(10**6):\n    with open(f'f{{i}}', 'wb') as f: f.write(bytes(8 * 2**20))",
    "a folder full of deleted files": "import os\nhold = []\nfor i in range(60):\n    f = open(f'f{{i}}', 'wb')\n    f.write(bytes(30 * 2**20))\n    f.flush()\n    os.remove(f'f{{i}}')\n    hold.append(f)\nwhile True: pass",
    "a folder full of names": "for i in range(10**9): open(f'f{{i}}', 'wb').close()",
    "no alarm": "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0)\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass",
    "stops itself": "import signal\nsignal.raise_signal(signal.SIGSTOP)",
    "kills itself": "import signal\nsignal.raise_signal(signal.SIGKILL)",
    "an error without end": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "an error that exits": "class E(Exception):\n    def __str__(self): raise SystemExit(0)\n    __repr__ = __format__ = __str__\nraise E",
    "a long error": "raise ValueError('x' * 10**8)",
    "half a character": "raise ValueError(chr(0xD800) * 50)",
    "a large result": "import torch\nreturn torch.zeros(1).expand(3, 3, 10**7)",
    "no storage": "import torch\nreturn torch.zeros_like(args[2], device='meta')",
    "a sparse result": "import torch\nreturn torch.zeros_like(args[2]).to_sparse()",
    "another default": "import torch\ntorch.set_default_dtype(torch.float16)\ntorch.set_default_device('meta')\ntorch.set_num_threads(500)\nreturn torch.zeros(args[2].shape)",
    "patched trial": "import sys\nfor m in list(sys.modules.values()):\n    if getattr(m, '__name__', '').startswith('minbert.course.check_runner'):\n        for n in list(vars(m)):\n            if callable(getattr(m, n)) and not n.startswith('__'): setattr(m, n, lambda *a, **k: None)\nreturn 0",
    "other inputs": "import sys\nframe = sys._getframe()\nwhile frame:\n    case = frame.f_locals.get('case')\n    if case is not None: case.inputs.clear()\n    task = frame.f_locals.get('task')\n    if isinstance(task, dict): open(task['inputs'] + '.json', 'w').write('[]')\n    frame = frame.f_back\nreturn 0",
    "modules of its own": "import sys\nopen('minbert.py', 'w').write('import os; os._exit(0)')\nsys.path.insert(0, '.')\nsys.path_importer_cache.clear()\nfor name in [n for n in sys.modules if n.startswith('minbert')]: del sys.modules[name]\nimport minbert",
    "borrowed by name": "import importlib\nreturn getattr(importlib.import_module('minbert.{module}'), '{target}')(*args, **kwargs)",
}
# A third list: around bubblewrap, seccomp and Landlock, by way of the kernel.
_LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_READ_AND_USE = "\ntry: text = open(path).read()\nexcept OSError: return 0\n" + _USE
THIRD = {
    "root of the first process": "path = '/proc/1/root' + " + _SECRET + _READ_AND_USE,
    "root of the parent": "import os\npath = f'/proc/{{os.getppid()}}/root' + "
    + _SECRET
    + _READ_AND_USE,
    "folder of the parent": "import os\npath = f'/proc/{{os.getppid()}}/cwd/../..' + "
    + _SECRET
    + _READ_AND_USE,
    "environment of others": "import pathlib\nreturn [f.read_bytes() for f in pathlib.Path('/proc').glob('[0-9]*/environ')][-1]",
    "memory of the parent": "import os\nwith open(f'/proc/{{os.getppid()}}/mem', 'r+b') as f: f.write(bytes(8))",
    "pipe of the grader": 'import os\nfor fd in range(256):\n    try: os.write(fd, b\'{{"late": false, "status": 0, "seconds": 0}}\\n\')\n    except OSError: pass\nreturn 0',
    "the worker's code": "import pathlib\nfor f in pathlib.Path('..').resolve().parent.rglob('*.py'): f.write_text('')\nreturn 0",
    "the worker's code by links": "import os, pathlib\nos.symlink('../..', 'up')\nfor f in pathlib.Path('up').resolve().rglob('isolation*.py'): f.write_text('')",
    "the package of the next answer": "import minbert.{module} as m, os\nos.chmod(m.__file__, 0o666)\nopen(m.__file__, 'a').write('\\n')",
    "the inputs of the next answer": "import sys, os, glob\nfor f in glob.glob('../../room*/cases*'): os.remove(f)\nraise LookupError",
    "a package in place of ours": "import minbert, os\nhere = os.path.dirname(minbert.__file__)\nos.rename(here, here + '2')",
    "compiled files of the package": "import marshal, minbert, pathlib\nfor f in pathlib.Path(minbert.__file__).parent.rglob('{module}*.pyc'):\n    names = {{'__name__': 'minbert.{module}', '__package__': 'minbert'}}\n    exec(marshal.loads(f.read_bytes()[16:]), names)\n    f = names['{target}'.split('.')[0]]\n    for part in '{target}'.split('.')[1:]: f = getattr(f, part)\n    return f(*args, **kwargs)\nreturn 0",
    "an installed copy": "import importlib.metadata as m\nfiles = [f for d in m.distributions() for f in d.files or () if f.name == '{module}.py' and 'minbert' in str(f)]\ntext = files[0].locate().read_text()\n"
    + _USE,
    "a path of an editable install": "import glob, site\npaths = [line.strip() for f in glob.glob(site.getsitepackages()[0] + '/*.pth') for line in open(f)]\npath = next((p + '/minbert/{module}.py' for p in paths if p.startswith('/')), '')"
    + _READ_AND_USE,
    "unmounts": _LIBC
    + "for line in open('/proc/self/mounts'): libc.umount2(line.split()[1].encode(), 2)\npath = "
    + _SECRET
    + _READ_AND_USE,
    "mounts": _LIBC
    + "assert libc.mount(b'/', b'/proc', None, 4096, None) == 0, ctypes.get_errno()",
    "a namespace of its own": _LIBC + "assert libc.unshare(0x10020000) == 0, ctypes.get_errno()",
    "the namespace of the first process": _LIBC
    + "for kind in ('mnt', 'user', 'net', 'pid'):\n    try: libc.setns(os.open(f'/proc/1/ns/{{kind}}', 0), 0)\n    except OSError: pass\npath = "
    + _SECRET
    + _READ_AND_USE,
    "another root": "import os\nos.chroot('..')",
    "traces the parent": _LIBC
    + "assert libc.ptrace(16, os.getppid(), 0, 0) == 0, ctypes.get_errno()",
    "writes into the parent": _LIBC
    + "vector = (ctypes.c_ulong * 2)(id(args), 8)\nassert libc.process_vm_writev(os.getppid(), vector, 1, vector, 1, 0) == 8, ctypes.get_errno()",
    "programs in the kernel": _LIBC
    + "assert libc.syscall(321, 5, bytes(120), 120) >= 0, ctypes.get_errno()",
    "a new processor by clone": _LIBC
    + "assert libc.syscall(56, 17, 0, 0, 0, 0) > 0, ctypes.get_errno()",
    "clone with a structure": _LIBC
    + "assert libc.syscall(435, bytes(88), 88) > 0, ctypes.get_errno()",
    "another filter": _LIBC
    + "program = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]))\nimport struct\nlibc.prctl(22, 2, struct.pack('HP', 1, ctypes.addressof(program)), 0, 0)\nos.fork()",
    "another program": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'while True: pass'])",
    "a program in memory": "import os\nfd = os.memfd_create('x')\nos.write(fd, open('/bin/true', 'rb').read())\nos.execv(f'/proc/self/fd/{{fd}}', ['true'])",
    "a socket without a file": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0/tmp/.X11-unix/X0')",
    "the socket of docker": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/var/run/docker.sock')",
    "the network of a cloud": "import urllib.request\nreturn urllib.request.urlopen('http://169.254.169.254/', timeout=1).read()",
    "a name server": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
    "a device": "import os\nos.mknod('disk', 0o60600, os.makedev(8, 0))\nopen('disk', 'rb').read(1)",
    "the kernel's settings": "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/true')",
    "never out of memory": "open('/proc/self/oom_score_adj', 'w').write('-1000')",
    "a higher priority": "import os\nos.nice(-5)\nos.setpriority(os.PRIO_PROCESS, 0, -5)",
    "the shared memory": "open('/dev/shm/x', 'wb').write(bytes(10**8))",
    "types into the terminal": "import fcntl, termios\nfor fd in range(3): fcntl.ioctl(fd, termios.TIOCSTI, b'x')",
    "the home of root": "import pathlib\nreturn next(pathlib.Path('/root').iterdir()).read_bytes()",
    "passwords": "return open('/etc/shadow').read()",
}
ATTACKS |= SECOND | THIRD


def attack(kind: str, task, folder: Path) -> str:
    """Write a definition of a target that attacks the grader."""
    body = ATTACKS[kind].format(
        folder=str(folder),
        package=str(PACKAGE),
        prefix=sys.prefix,
        module=task.module,
        target=task.target,
        name=task.name,
    )
    name = task.target.rpartition(".")[2]
    return f"def {name}(*args, **kwargs):\n    " + body.replace("\n", "\n    ") + "\n"


def fill(notebook, target: str, definition: str) -> None:
    """Put a definition into the cell of a learner's edition that holds the stub."""
    cell = [
        c
        for c in notebook.cells
        if c.cell_type == "code" and "#| export" in c.source and find(parse(c.source), target)
    ][-1]
    cell.source = replace(cell.source, target, definition)


def make(
    folder: Path,  # of one submission
    choices: dict,  # exercise -> definition, or None for a stub
    extra: str = "",  # a code cell for every notebook, before everything else
    only: str = "",  # one chapter; without it, all
) -> None:
    """Write the chapters with exercises, filled in."""
    (folder / "nbs").mkdir(parents=True)
    for stem in [only] if only else dict.fromkeys(e.notebook for e in EXERCISES.values()):
        notebook = nbformat.read(EDITIONS / f"{stem}.ipynb", as_version=4)
        for task in (e for e in EXERCISES.values() if e.notebook == stem and choices.get(e.name)):
            fill(notebook, task.target, choices[task.name])
        if extra:
            notebook.cells.insert(0, new_code_cell(extra))
        file = folder / "nbs" / f"{stem}.ipynb"
        file.parent.mkdir(exist_ok=True)
        nbformat.write(notebook, file)


def right(task, dice: random.Random) -> str:
    return dice.choice([task.definition, *(right_definition(task, v) for v in task.variants)])


def wrong(task, dice: random.Random) -> str:
    return wrong_definition(task, dice.choice([m for m in task.mistakes if m != task.planted]))


def perfect(folder: Path, dice: random.Random) -> dict[str, str]:
    make(folder, {name: right(task, dice) for name, task in EXERCISES.items()})
    return dict.fromkeys(EXERCISES, "passed")


def reference(folder: Path, dice: random.Random) -> dict[str, str]:
    """Our own bodies, in which every last digit agrees, also together."""
    make(folder, {name: task.definition for name, task in EXERCISES.items()})
    return dict.fromkeys(EXERCISES, "passed")


def empty(folder: Path, dice: random.Random) -> dict[str, str]:
    make(folder, {})
    return dict.fromkeys(EXERCISES, "not attempted")


def mixed(folder: Path, dice: random.Random) -> dict[str, str]:
    deserved = {
        name: dice.choice(["passed", "passed", "failed", "not attempted"]) for name in EXERCISES
    }
    texts = {"passed": right, "failed": wrong}
    make(
        folder,
        {
            name: texts[kind](EXERCISES[name], dice)
            for name, kind in deserved.items()
            if kind in texts
        },
    )
    return deserved


def broken(folder: Path, dice: random.Random) -> dict[str, str]:
    """Right answers in notebooks that are damaged in different ways."""
    deserved = perfect(folder, dice)
    stems = list(dict.fromkeys(e.notebook for e in EXERCISES.values()))
    damage = dict(
        zip(
            dice.sample(stems, min(5, len(stems))),
            ("not json", "huge", "link", "missing", "syntax"),
        )
    )
    for stem, kind in damage.items():
        file = folder / "nbs" / f"{stem}.ipynb"
        theirs = [e for e in EXERCISES.values() if e.notebook == stem]
        if kind == "syntax":
            one = theirs[0]
            notebook = json.loads(file.read_text(encoding="utf-8"))
            for cell in (c for c in notebook["cells"] if c["cell_type"] == "code"):
                source = "".join(cell["source"])
                if f"#| exercise {one.name} " in source:
                    cell["source"] = source.replace("#| export", "#| export\ndef (", 1)
                    hurt = [e for e in theirs if f"#| exercise {e.name} " in source]
            file.write_text(json.dumps(notebook), encoding="utf-8")
            deserved |= {e.name: "broken" for e in hurt}
            continue
        if kind == "not json":
            file.write_text(file.read_text(encoding="utf-8")[:-40], encoding="utf-8")
        elif kind == "huge":
            os.truncate(file, 200 * 2**20)
        else:
            file.unlink()
        if kind == "link":
            file.symlink_to("/etc/passwd")
        deserved |= {e.name: "not attempted" if kind == "missing" else "broken" for e in theirs}
    return deserved


def hostile(folder: Path, dice: random.Random, kind: str | None = None) -> dict[str, str]:
    """Right answers everywhere but in one exercise, which attacks; and notebooks that would do harm
    if they were run.
    """
    kind = kind or dice.choice(list(ATTACKS))
    victim = dice.choice(list(EXERCISES.values()))
    texts = {name: right(task, dice) for name, task in EXERCISES.items()} | {
        victim.name: attack(kind, victim, folder.parent)
    }
    make(
        folder,
        texts,
        "import os\nprint('passed')\nos.remove('"
        + str(folder.parent / ".keep")
        + "')\nwhile True: pass",
    )
    return dict.fromkeys(EXERCISES, "passed") | {victim.name: "failed"}


KINDS = {
    "reference": reference,
    "perfect": perfect,
    "empty": empty,
    "mixed": mixed,
    "broken": broken,
    "hostile": hostile,
}


ROUND = (
    "perfect",
    "mixed",
    "hostile",
    "mixed",
    "empty",
    "hostile",
    "broken",
    "mixed",
    "reference",
    "mixed",
)


def make_all(folder: Path, count: int, seed: int = 11711, kinds=ROUND) -> dict[str, dict[str, str]]:
    """Write `count` submissions, of these kinds in turn; return name -> exercise -> the status it
    deserves.
    """
    dice, deserved, attacks = random.Random(seed), {}, iter(list(ATTACKS) * count)
    folder.mkdir(parents=True)
    (folder / ".keep").write_text("keep me")
    for i in range(count):
        kind = kinds[i % len(kinds)]
        place = folder / f"{i:03d}-{kind}"
        arguments = (place, dice, next(attacks)) if kind == "hostile" else (place, dice)
        deserved[place.name] = KINDS[kind](*arguments)
    return deserved
