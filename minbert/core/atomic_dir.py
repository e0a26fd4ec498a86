"""Atomic folder writes: files are written in a draft folder beside their place and moved when all
of them are complete.

A draft is locked by its process, and the lock ends with the process, so that the next save can
delete the drafts of processes that were killed.
"""

__all__ = ["DRAFT", "clear_leftovers", "held_folder", "atomic_write_dir"]

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .files import flush

DRAFT = ".draft-minbert-"  # a folder of somebody else is not called so


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a folder of our own for as long as this process lives; None if another has it, or this
    system locks no folders.
    """
    try:
        import fcntl

        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, AttributeError, OSError):
        return None
    with suppress(OSError):
        if os.fstat(number).st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return number
    os.close(number)
    return None


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def clear_leftovers(
    where: str | Path,  # the folder that holds them
    prefix: str = DRAFT,  # of their names
    delete: Callable[[Path], None] = _delete,  # how one is deleted
) -> None:
    """Delete the folders of `held_folder` whose owners were killed."""
    # as `tempfile.mkdtemp` ends names
    for left in Path(where).glob(glob.escape(prefix) + "[a-z0-9_]" * 8):
        if (lock := _lock(left, wait=False)) is not None:
            delete(left)
            os.close(lock)


@contextmanager
def held_folder(
    where: str | Path,  # a folder that exists
    prefix: str,  # of the name
    delete: Callable[[Path], None] = _delete,  # how it is deleted
) -> Iterator[Path]:  # an empty folder with a name that nobody can guess
    """Give a folder for as long as the block lasts; those of this prefix whose owners were killed
    are deleted now.
    """
    clear_leftovers(where, prefix, delete)
    lock, folder = None, Path(where, "-")
    while not folder.exists():  # somebody may take it for a leftover before it is locked
        if lock is not None:
            os.close(lock)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        lock = _lock(folder, wait=True)
    try:
        yield folder
    finally:
        delete(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def atomic_write_dir(
    folder: str | Path,  # made if missing; its other files are left alone
) -> Iterator[Path]:  # an empty folder to write in
    """Give a draft folder; move its files into `folder` once the block has ended well.

    If one of them cannot be moved, all is put back as it was. Who is killed between two moves
    leaves files of both. Raises ValueError if `folder` is a file.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"expected a folder to save in, got the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with held_folder(folder, DRAFT) as draft:
        yield draft
        files = sorted(f for f in draft.rglob("*") if f.is_file())
        mode = _usual_mode(draft)
        for file in files:
            file.chmod(mode)
            flush(file)
        _move(files, draft, folder)
        flush(folder)


def _second_name(file, other):
    """Let a file be found under another name as well; where the disk has no such names, as a copy."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


def _move(files, draft, folder):
    """Move files from one folder into the other, all or none."""
    before, moved = Path(tempfile.mkdtemp(dir=draft)), []
    try:
        for number, file in enumerate(files):
            target, old = folder / file.relative_to(draft), before / str(number)
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                _second_name(target, old)
            os.replace(file, target)
            moved.append((target, old))
    except BaseException:
        for target, old in reversed(moved):
            os.replace(old, target) if old.exists() else target.unlink()
        raise


def _usual_mode(folder):
    """Ask what a new file may be read by: safetensors lets nobody but the owner read its files."""
    probe = folder / ".probe"
    probe.touch()
    return probe.stat().st_mode
