"""Checksums of the files of a folder, so that a folder mixed from two saves is noticed."""

import os
from collections.abc import Mapping
from pathlib import Path

from .files import check_regular, inside
from .safetensors_io import check_file, file_checksum


def folder_checksums(
    folder: Path,
    pattern: str = "*",
    # name below the folder -> checksum
) -> dict[str, str]:
    """Compute the checksum of every file in a folder, or of those whose name fits."""
    return {
        f.relative_to(folder).as_posix(): file_checksum(f)
        for f in sorted(folder.rglob(pattern))
        if f.is_file()
    }


def check_folder(
    folder: Path, checksums: Mapping[str, str], where: Path, may_lack: bool = False, hint: str = ""
) -> None:
    """Raise ValueError naming the first file that is not as it was saved; `where` holds the
    checksums. Files may be missing if `may_lack` says so.
    """
    for name, checksum in checksums.items():
        path = inside(folder, name, where)
        if may_lack and not os.path.lexists(path):
            continue
        # bytes; before reading without end
        check_file(path) if path.suffix == ".safetensors" else check_regular(path, 2**27)
        if file_checksum(path) != checksum:
            raise ValueError(
                f"expected {path} as it was saved, got another: cut short, or mixed from two saves{hint}"
            )
