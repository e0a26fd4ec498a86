"""Locks between processes: a lock on an open file, which ends with the process that holds it."""

__all__ = ["LockTimeout", "file_lock"]

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout


class LockTimeout(ValueError):
    """Another process holds the lock."""


@contextmanager
def file_lock(
    file: str | Path,  # created for the lock and deleted after it; its folder exists
    wanted: str,  # begins the message, such as "run: expected no other run in this folder"
    # False where the file system has no locks that end with their process: then nothing is locked
) -> Iterator[bool]:
    """Hold a lock as long as the block runs.

    On a network disk that supports locks, such as NFS, the lock is valid on all machines, and the
    server frees the locks of a machine that is gone. Raises LockTimeout if another process, or
    another block of this one, has it.
    """
    file, lock = Path(file), _acquired(Path(file), wanted)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            with suppress(PermissionError):  # Windows deletes no open file
                # While the lock is ours; filelock 4.1 refuses a lock on a file that is gone.
                file.unlink(missing_ok=True)
            lock.release()


def _acquired(file: Path, wanted: str) -> FileLock | None:
    """Lock a file, and write the number of our process into it; None where there are no locks."""
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        owner = ""
        with suppress(OSError):
            owner = file.read_text(encoding="ascii", errors="replace")[:20]
        message = f"{wanted}, but process {owner or 'unknown'} is at work there"
        raise LockTimeout(message) from None
    except (NotImplementedError, OSError):  # some network disks
        return None
    if isinstance(lock, SoftFileLock):  # a fallback that would survive a killed process
        lock.release()
        return None
    with suppress(OSError):
        file.write_text(str(os.getpid()), encoding="ascii")
    return lock
