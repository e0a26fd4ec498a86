"""Reading and writing small files safely: size limits, regular files only, strict JSON, and file
names that stay inside a folder.

A file from elsewhere may be a folder, a pipe that never ends, or far too large. Every function here
raises ValueError with the name of the file. JSON is stricter than Python's own reader, which keeps
the last of two equal keys and raises RecursionError for deep nesting.
"""

__all__ = [
    "JSON_LIMIT",
    "quoted",
    "check_regular",
    "read_whole",
    "parse_json",
    "read_json",
    "read_json_if_there",
    "check_fields",
    "flush",
    "write_json",
    "inside",
]

import json
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any


def quoted(
    value,  # anything with a repr
    longest: int = 200,  # characters
) -> str:  # at most `longest` characters
    """Write a value for a message: its repr, and where that is too long its beginning."""
    text = repr(value[:longest] if isinstance(value, (str, bytes)) else value)
    whole = len(text) <= longest and not (isinstance(value, (str, bytes)) and len(value) > longest)
    return text if whole else text[: longest - 3] + "..."


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_regular(
    file: str | Path,
    limit: int | None = None,  # bytes; None: any size
) -> int:  # its size in bytes
    """Make sure that a file can be read to its end.

    Raises ValueError with the file's name if it is missing, no regular file, or larger than
    `limit`.
    """
    try:
        found = os.stat(file)
    except FileNotFoundError:
        raise ValueError(f"{file}: expected a file, got none") from None
    except (OSError, ValueError) as error:  # no permission; a name with a NUL, or too long
        raise ValueError(f"{file}: expected a readable file, got: {error}") from None
    for is_kind, name in _KINDS:
        if is_kind(found.st_mode):
            raise ValueError(f"{file}: expected a readable file, got {name}")
    if limit is not None and found.st_size > limit:
        raise ValueError(f"{file}: expected at most {limit:,} bytes, got {found.st_size:,}")
    return found.st_size


def read_whole(
    file: str | Path,
    limit: int | None = None,  # bytes; None: any size
) -> bytes:
    """Read a regular file. Raises ValueError as `check_regular` does, and if the system cannot read
    it.
    """
    size = check_regular(file, limit)
    try:
        with open(file, "rb") as stream:
            # the second is empty unless it grows, or lies in /proc, where sizes say 0
            data = stream.read(size) + stream.read(2**16)
    except OSError as error:
        raise ValueError(f"{file}: expected a readable file, got: {error.strerror}") from error
    except MemoryError:
        raise ValueError(
            f"{file}: expected a file that fits into memory, got {os.stat(file).st_size:,} bytes"
        ) from None
    return data


JSON_LIMIT = 2**24  # bytes; the largest index of a model's shards that we know has 2**20


def parse_json(
    text: str | bytes,  # utf-8
    where: str | Path,  # what to call it in a message
    kind: type[dict] | type[list] = dict,
) -> Any:  # of this kind
    """Read JSON. Raises ValueError if it is broken, too deep, names a key twice, or is of another
    kind.
    """
    try:
        value = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text, object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected JSON, got: {str(error)[:200]}") from None
    if not isinstance(value, kind):
        names: dict[type, str] = {dict: "an object", list: "a list"}
        raise ValueError(
            f"{where}: expected {names[kind]} in JSON, got {names.get(type(value), quoted(value))}"
        )
    return value


def _once(pairs):
    """Make a dict of a JSON object, whose keys should differ."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"the key {quoted(next(key for key in keys if keys.count(key) > 1))} twice"
        )
    return values


def read_json(
    file: str | Path,  # a regular file, utf-8
    kind: type[dict] | type[list] = dict,
    limit: int = JSON_LIMIT,  # bytes
) -> Any:  # of this kind
    """Read a JSON file, in the one way that all chapters use.

    Raises ValueError with the file's name if it is missing, no regular file, too large, broken, too
    deep, or of another kind.
    """
    return parse_json(read_whole(file, limit), file, kind)


def read_json_if_there(
    file: str | Path,  # as in `read_json`
    kind: type[dict] | type[list] = dict,
    limit: int = JSON_LIMIT,  # bytes
) -> Any:  # of this kind; empty where nothing has this name
    """Read settings that may be missing. Raises ValueError as `read_json` for anything else that
    stands there, a link to nothing too.
    """
    return read_json(file, kind, limit) if os.path.lexists(file) else kind()


def check_fields(
    values: dict,  # from a file
    where: str | Path,  # what to call it in a message
    **kinds: type | tuple,  # name -> its type, or several
) -> dict:  # `values`
    """Make sure that an object from a file has these fields, each of its type. Raises ValueError
    naming the first that is not so.
    """
    for name, kind in kinds.items():
        kinds_of = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds_of)
        if name not in values:
            raise ValueError(f"{where}: expected {name!r}, a {wanted}, found none")
        if type(values[name]) not in kinds_of:  # True is no number here
            raise ValueError(
                f"{where}: expected {name!r} to be a {wanted}, got {quoted(values[name])}"
            )
    return values


def flush(path: Path) -> None:
    """Force a file, or the names in a folder, out of the caches onto the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(
    file: str | Path,  # its folder is made if missing
    values: dict | list,  # numbers, strings, lists, dicts
) -> None:
    """Write a JSON file, indented."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf8")


def inside(
    folder: str | Path,  # below which the file must lie
    name: str,  # from a file: "1_Pooling", "heads/sst"; "" is the folder
    where: str | Path,  # the file that holds the name
) -> Path:
    """Join a folder and a name found in a file. Raises ValueError if the name is no text or leads
    out of the folder.
    """
    paths = (PurePosixPath(name), PureWindowsPath(name)) if isinstance(name, str) else ()
    if not paths or "\0" in name or any(path.anchor or ".." in path.parts for path in paths):
        raise ValueError(
            f"{where}: expected the name of a file below its folder, got {quoted(name)}"
        )
    return Path(folder) / name
