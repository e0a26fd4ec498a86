"""Checkpoints of training runs: weights, optimizer state, position of the data reader and random
states, in one file.

A resumed run ends in exactly the same weights as an uninterrupted one, which can be tested with
`==`. All four parts are needed for that, and they lie in one file because only a single file can be
replaced atomically: with weights and optimizer state in two files, a process that is killed between
the two renames would leave new weights beside old moments. The format is safetensors, which cannot
run code when it is read. Tensors are stored in its body, everything else as JSON in its header,
with a checksum over both. Optimizer state is stored by parameter name, because torch numbers
parameters in the order in which an optimizer was given them.
"""

__all__ = [
    "CHECKPOINT",
    "check_place",
    "replace_file",
    "seed_everything",
    "random_state",
    "set_random_state",
    "save_checkpoint",
    "read_checkpoint",
    "load_checkpoint",
]

import json
import os
import random
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .atomic_dir import DRAFT, held_folder
from .files import check_fields, flush, parse_json
from .safetensors_io import check_tensors, read_checked, save_checked


@contextmanager
def _named(file):
    """Let an error of the system name a file: a disk that is full does not say where."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # else it is a sentence of a library
            error.filename = error.filename or str(file)
        raise


def check_place(
    file: Path,  # for a file that is to be written
) -> None:
    """Raise ValueError if a folder, a device or a pipe has the name: whoever may write anywhere
    would put a file in the place of /dev/null.
    """
    if file.exists() and not file.is_file():
        raise ValueError(
            f"{file}: expected a file or nothing, got {'a folder' if file.is_dir() else 'a device or a pipe'}"
        )


def replace_file(
    file: str | Path,  # where the finished file shall be; its folder is made if missing
    write,  # function of one path: writes the whole file there
) -> Path:  # `file`
    """Write a file completely in a draft folder beside it, then put it in place in one indivisible
    act.

    A process killed at any moment leaves the old file or the new one, and its draft, which the next
    call in the same folder deletes; a failed write leaves none. Of two writers at once, the later
    to end wins. Raises ValueError, before anything is written, as `check_place`, and OSError naming
    a file for a full disk.
    """
    file = Path(file)
    check_place(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with held_folder(file.parent, DRAFT) as draft:
        part = draft / file.name
        with _named(file):
            write(part)
            flush(part)
        os.replace(part, file)
    flush(file.parent)
    return file


def _detach(tree, tensors, prefix):
    """Copy `tree` with each tensor moved to `tensors` and replaced by {"tensor": its key}."""
    if isinstance(tree, Tensor):
        if prefix in tensors:
            raise ValueError(
                f"expected one tensor called {prefix}, got two: dots in keys read like levels"
            )
        tensors[prefix] = tree.detach().cpu().contiguous()
        return {"tensor": prefix}
    if isinstance(tree, dict):
        if set(tree) == {"tensor"}:
            raise ValueError(
                f"{prefix}: expected other keys than 'tensor' alone, which is how a tensor is noted"
            )
        if len({str(k) for k in tree}) < len(tree):
            raise ValueError(
                f"{prefix}: expected keys that differ as text, got {', '.join(map(repr, tree))}"
            )
        return {str(k): _detach(v, tensors, f"{prefix}.{k}") for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_detach(v, tensors, f"{prefix}.{i}") for i, v in enumerate(tree)]
    return tree


def _attach(tree, tensors):
    """Undo `_detach`; tuples come back as lists, keys as strings."""
    if isinstance(tree, dict):
        if set(tree) == {"tensor"}:
            return tensors[tree["tensor"]]
        return {k: _attach(v, tensors) for k, v in tree.items()}
    return [_attach(v, tensors) for v in tree] if isinstance(tree, list) else tree


def seed_everything(
    seed: int,  # any whole number that torch takes
) -> None:
    """Seed every global random number generator: python, numpy, torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # the largest that NumPy takes is 2**32 - 1
    torch.manual_seed(seed)


def random_state() -> dict:  # a tree of numbers and uint8 tensors
    """Read the state of every global random number generator: python, numpy, torch, each GPU."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "python": random.getstate(),
        "numpy": [kind, keys.tolist(), position, has_gauss, gauss],
        "torch": torch.get_rng_state(),
        "cuda": on_gpu,
    }


def set_random_state(
    state: dict,  # from `random_state`, possibly through JSON (lists where tuples were)
) -> None:
    """Put every global random number generator back where `random_state` found it."""
    version, inner, gauss = state["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def _parameter_names(model, optimizer):
    """Name every parameter of every group; those outside `model` by their position."""
    known = {id(p): name for name, p in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [known.get(id(p), f"parameter {i}") for i, p in enumerate(parameters)], parameters


def _optimizer_tree(model, optimizer):
    """{"state": {name: {m, v, ...}}, "groups": [{names, settings}]}."""
    names, parameters = _parameter_names(model, optimizer)
    state = {n: dict(optimizer.state[p]) for n, p in zip(names, parameters) if p in optimizer.state}
    groups, left = [], list(names)
    for group in optimizer.param_groups:
        own, left = left[: len(group["params"])], left[len(group["params"]) :]
        settings = {k: v for k, v in group.items() if k != "params"}
        groups.append({"parameters": own, "settings": settings})
    return {"state": state, "groups": groups}


def _optimizer_state(file, tree, model, optimizer):
    """Turn the tree back into what `optimizer.load_state_dict` takes, checking names and shapes."""
    names, parameters = _parameter_names(model, optimizer)
    saved = [name for group in tree["groups"] for name in group["parameters"]]
    sizes = [len(group["parameters"]) for group in tree["groups"]]
    if saved != names or sizes != [len(group["params"]) for group in optimizer.param_groups]:
        odd = sorted(set(saved) ^ set(names)) or "the same ones, grouped or ordered otherwise"
        raise ValueError(
            f"{file}: expected an optimizer over {len(names)} parameters, "
            f"got one over {len(saved)}; different: {odd}"
        )
    for name, p in zip(names, parameters):
        for key, value in tree["state"].get(name, {}).items():
            if isinstance(value, Tensor) and value.ndim and value.shape != p.shape:
                raise ValueError(
                    f"{file}: expected optimizer tensor {name}.{key} of shape "
                    f"{tuple(p.shape)}, got {tuple(value.shape)}"
                )
    state = {i: tree["state"][n] for i, n in enumerate(names) if n in tree["state"]}
    groups, positions = [], iter(range(len(names)))
    for group, now in zip(tree["groups"], optimizer.param_groups):
        settings = {
            k: tuple(v) if isinstance(now.get(k), tuple) else v  # JSON has no tuples
            for k, v in group["settings"].items()
        }
        groups.append({**settings, "params": [next(positions) for _ in group["parameters"]]})
    return {"state": state, "param_groups": groups}


CHECKPOINT = "checkpoint.safetensors"  # its name inside a run's folder


def save_checkpoint(
    folder: str | Path,  # the run's folder
    model: nn.Module,
    optimizer=None,  # torch.optim.Optimizer or None
    sampler=None,  # anything with state_dict(): where the reader stands
    step: int = 0,  # optimizer steps done so far
    extra=None,  # further tree for JSON: best score, settings, ...
    random_states: list | None = None,  # one `random_state()` per process; None: this one's
) -> Path:  # the file written, always <folder>/checkpoint.safetensors
    """Write everything a run remembers into one file that is either the old one or the new one.

    The body holds all tensors, the header all numbers as JSON and a checksum over both. No pickle
    anywhere. Raises ValueError if a number cannot be written as JSON, or keys of `extra` could not
    be told apart again.
    """
    tensors: dict = {}
    tree = {"step": step, "extra": extra, "random": random_states or [random_state()]}
    tree["model"] = model.state_dict()
    tree["optimizer"] = None if optimizer is None else _optimizer_tree(model, optimizer)
    tree["sampler"] = None if sampler is None else sampler.state_dict()
    notes = {key: _detach(value, tensors, key) for key, value in tree.items()}
    try:
        text = json.dumps(notes)
    except TypeError as error:
        raise ValueError(
            f"expected tensors, numbers and strings in a checkpoint: {error}"
        ) from None
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # tied weights: two copies
    return replace_file(Path(folder) / CHECKPOINT, lambda part: save_checked(part, tensors, text))


def read_checkpoint(
    folder: str | Path,  # the run's folder
) -> dict:  # step, extra, random, model, optimizer, sampler
    """Read a checkpoint into memory without touching any model.

    Raises ValueError naming the file (and the tensor) if it is missing, cut short, not ours, or not
    as it was saved.
    """
    file = Path(folder) / CHECKPOINT
    tensors, text = read_checked(file)
    saved = _attach(parse_json(text, file), tensors)
    return check_fields(saved, file, step=int, model=dict, random=list)


def load_checkpoint(
    folder: str | Path,  # the run's folder
    model: nn.Module,  # gets the weights
    optimizer=None,  # gets its averages and counters, unless None
    sampler=None,  # anything with load_state_dict(), or None
    process: int = 0,  # whose random state to take
    processes: int = 1,  # how many share the run; must be as many as when it was saved
) -> dict:  # {"step": int, "extra": tree}
    """Bring back a run: weights, optimizer, reader and random state. Everything is checked first.

    Raises ValueError naming file and tensor; then nothing has been changed.
    """
    file, saved = Path(folder) / CHECKPOINT, read_checkpoint(folder)
    check_tensors(file, saved["model"], model.state_dict())
    for name, wanted in (("optimizer", optimizer), ("sampler", sampler)):
        if wanted is not None and saved[name] is None:
            raise ValueError(f"{file}: expected the state of the {name}, found none")
    if processes != len(saved["random"]):
        raise ValueError(
            f"{file}: expected a run of {processes} processes, got one of {len(saved['random'])}"
        )
    if optimizer is not None:
        state = _optimizer_state(file, saved["optimizer"], model, optimizer)
    if sampler is not None:
        sampler.load_state_dict(saved["sampler"])
    if optimizer is not None:
        optimizer.load_state_dict(state)
    model.load_state_dict(saved["model"])
    set_random_state(saved["random"][process])
    return {"step": saved["step"], "extra": saved["extra"]}
