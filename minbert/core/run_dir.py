"""The folder of a training run: its log, its best model, its checkpoint, and a lock that lets one
process at a time use it.

A log line is written as soon as its step is done, so a killed run leaves lines newer than its
checkpoint, and the last one may be cut off. A folder cannot be replaced in one step. The best model
is therefore written beside the old one, the old one is renamed, and the new one takes its name; a
run that was killed between the two renames puts the old one back when it resumes.
"""

__all__ = [
    "read_log",
    "write_log",
    "save_best",
    "clean_partial_save",
    "locked",
    "RunFolder",
    "open_run",
]

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .checkpoint import (
    CHECKPOINT,
    load_checkpoint,
    random_state,
    read_checkpoint,
    replace_file,
    save_checkpoint,
)
from .files import check_fields, check_regular, flush, parse_json, read_whole
from .locks import file_lock


def read_log(
    folder: str | Path,  # the run's folder
    before: float = math.inf,  # leave out this step and later ones
) -> list[dict]:  # one a line: a step has "loss", an evaluation has "dev"
    """Read a run's log; a last line that was cut off is left out.

    Raises ValueError naming file and line if another line is damaged.
    """
    file = Path(folder) / "log.jsonl"
    lines = read_whole(file).split(b"\n")[:-1] if os.path.lexists(file) else []
    entries = [
        check_fields(parse_json(line, f"{file}:{n}"), f"{file}:{n}", step=int)
        for n, line in enumerate(lines, 1)
    ]
    return [entry for entry in entries if entry["step"] < before]


def write_log(
    folder: str | Path,  # exists
    entries: list[dict],  # one a line; each has "step"
    mode: str = "a",  # "a": add lines; "w": put a new log in place of the old one
) -> None:
    """Write lines of a run's log."""
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    file = Path(folder) / "log.jsonl"
    if mode == "w":
        replace_file(file, lambda part: part.write_text(text, encoding="utf8"))
    else:
        with open(file, "a", encoding="utf8") as handle:
            handle.write(text)


_NEW, _OLD = ".model.minbert-new", ".model.minbert-old"  # names that nobody else gives


def save_best(
    model,  # with save_pretrained(folder)
    folder: str | Path,  # the run's folder
) -> None:
    """Save the model as <folder>/model, complete or not at all."""
    new, place, old = (Path(folder) / name for name in (_NEW, "model", _OLD))
    clean_partial_save(folder)
    try:
        model.save_pretrained(new)
    except Exception:  # a full disk; who is killed leaves it to `clean_partial_save`
        shutil.rmtree(new, ignore_errors=True)
        raise
    if place.exists():
        os.replace(place, old)
    os.replace(new, place)
    flush(Path(folder))
    shutil.rmtree(old, ignore_errors=True)


def clean_partial_save(
    folder: str | Path,  # the run's folder
) -> None:
    """Clean up after a process that died in `save_best`.

    Raises ValueError if something else stands where the run's files belong.
    """
    new, place, old = (Path(folder) / name for name in (_NEW, "model", _OLD))
    for path in (new, place, old):
        # folders are exchanged by name: the link would go, and the disk behind it never be used
        if path.is_symlink():
            raise ValueError(
                f"{path}: expected a folder or nothing, got a link: let the whole folder of the run be a link instead"
            )
        if os.path.lexists(path) and not path.is_dir():
            raise ValueError(f"{path}: expected a folder or nothing, got a file")
    for path in (Path(folder) / "log.jsonl", Path(folder) / CHECKPOINT):
        if os.path.lexists(path):
            check_regular(path)
    if old.exists() and not place.exists():
        os.replace(old, place)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(
    folder: str | Path,  # made if missing
) -> Iterator[None]:
    """Keep a folder for this process as long as the block runs; the lock ends with the process.

    Where the system or the disk knows no such locks, the folder is not kept.
    Raises ValueError if another process has it.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with file_lock(Path(folder) / ".lock", f"{folder}: expected no other run in this folder"):
        yield


class RunFolder:
    """The files of one run: its log, its checkpoint, its best model. All processes hold one; the
    first writes.
    """

    def __init__(
        self,
        folder: str | Path,  # the run's folder, made by `open_run` if missing
        settings: dict[str, Any],  # of the run: it goes on with the same ones only
        # name -> what may have a memory, that is `state_dict` and `load_state_dict`
        parts: dict[str, Any],
        world,  # accelerate.Accelerator
    ):
        self.folder, self.world = Path(folder), world
        self.settings = json.loads(json.dumps(settings))  # as they look in a checkpoint
        self.parts = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
        # of the checkpoint that waits to be loaded
        self.step: int | None = None
        self.memories: dict[str, Any] = {}  # what it says about `parts`

    def write(self, entries: list[dict]) -> None:
        """Add lines to the log."""
        if self.world.is_main_process:
            write_log(self.folder, entries)

    def keep(self, model) -> None:
        """Make this the run's best model."""
        if self.world.is_main_process:
            save_best(model, self.folder)

    def save(self, step: int, model, optimizer, sampler, position: dict) -> None:
        """Write the checkpoint, with the random state of every process."""
        from accelerate.utils import gather_object

        states = gather_object([random_state()])
        if self.world.is_main_process:
            memories = {name: part.state_dict() for name, part in self.parts.items()}
            extra = {**position, "settings": self.settings, "memories": memories}
            save_checkpoint(self.folder, model, optimizer, sampler, step, extra, states)
        self.world.wait_for_everyone()

    def load(self, model, optimizer, sampler) -> int | None:  # steps done; None if nothing waits
        """Bring back the checkpoint that waits, once."""
        step, self.step = self.step, None
        if step is not None:
            load_checkpoint(
                self.folder,
                model,
                optimizer,
                sampler,
                self.world.process_index,
                self.world.num_processes,
            )
            for name, part in self.parts.items():
                part.load_state_dict(self.memories[name])
        return step


@contextmanager
def open_run(
    run: RunFolder,
    resume: bool,  # go on from the checkpoint, if there is one
) -> Iterator[dict]:  # where the run stands, as `save` was told; {} for a new one
    """Keep the folder for a run as long as the block lasts. An earlier model stays until the run
    publishes its first.

    Raises ValueError for another run in the folder, a checkpoint of another kind, or, with
    `resume`, a model without a checkpoint.
    """
    with locked(run.folder) if run.world.is_main_process else nullcontext():
        file = run.folder / CHECKPOINT
        position = _position(run, file) if resume else {}
        run.world.wait_for_everyone()
        if run.world.is_main_process:
            _clear(run, file)
        yield position


def _position(run, file):
    """Look at a checkpoint, and note that it waits."""
    if not os.path.lexists(file):
        if (run.folder / "model").exists():
            raise ValueError(
                f"{run.folder}: expected {CHECKPOINT} to go on from, got a model without one: resume=False begins anew and replaces it"
            )
        return {}
    saved = read_checkpoint(run.folder)
    extra = check_fields(
        saved["extra"] if isinstance(saved["extra"], dict) else {},
        file,
        settings=dict,
        phase=int,
        first=int,
    )
    theirs, memories = extra.pop("settings"), extra.pop("memories", {})
    for name, mine in run.settings.items():
        if mine != theirs.get(name, mine):  # an older version may not have noted it
            raise ValueError(
                f"{file}: expected a run with {name}={mine}, got one with {theirs[name]}: resume with the same settings"
            )
    if set(memories) != set(run.parts):
        raise ValueError(
            f"{file}: expected the memory of {sorted(run.parts)}, found that of {sorted(memories)}: resume with the same loss and backward"
        )
    run.step, run.memories = saved["step"], memories
    return extra


def _clear(run, file):
    """Leave what the run goes on from: its log and checkpoint up to there, or none."""
    clean_partial_save(run.folder)
    if run.step is None:
        file.unlink(missing_ok=True)
    write_log(run.folder, [] if run.step is None else read_log(run.folder, run.step), "w")
