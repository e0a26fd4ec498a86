"""Compile the library that tells torch of a CUDA device. It imports no torch: the library has to be
there first.
"""

import importlib.util
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def build(folder: str, compiler: str) -> Path:
    """Give the library, made in `folder`; a RuntimeError says what the compiler said."""
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    made = Path(folder) / "guard.so"
    include = torch_folder / "include"
    command = [
        compiler,
        "-std=c++20",
        "-O0",
        "-fPIC",
        "-shared",
        str(HERE / "guard.cpp"),
        f"-I{include}",
        f"-I{include / 'torch/csrc/api/include'}",
        f"-L{torch_folder / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
        "-o",
        str(made),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return made
