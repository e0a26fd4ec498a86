"""Locks between processes: a lock on an open file, which ends with the process that holds it."""

from __future__ import annotations

__all__ = ["LockTimeout", "file_lock"]

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class LockTimeout(ValueError):
    """Another process holds the lock."""


@contextmanager
def file_lock(
    file: str | Path,  # made for the lock, gone after it; its folder exists
    wanted: str,  # begins the message, such as "run: expected no other run in this folder"
    # False where the system or the disk knows no such locks: then nothing is held
) -> Iterator[bool]:
    """Hold a lock as long as the block runs.

    On a network disk that passes locks on, as NFS does, it counts on all machines; the server frees
    the locks of a machine that is gone. Raises LockTimeout if another process, or another block of this
    one, has it.
    """
    handle = _lock(Path(file), wanted)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            Path(file).unlink(missing_ok=True)  # while it is ours
            os.close(handle)


def _lock(file, wanted):
    """Open and lock a file; None where there are no locks."""
    while fcntl is not None:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 20).decode("ascii", "replace")
            os.close(handle)
            raise LockTimeout(
                f"{wanted}, but process {owner or 'unknown'} is at work there"
            ) from None
        except OSError:  # some network disks
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                os.truncate(handle, 0)
                os.write(handle, str(os.getpid()).encode("ascii"))
                return handle
        os.close(handle)  # the owner before us took the file away after we had opened it: once more
