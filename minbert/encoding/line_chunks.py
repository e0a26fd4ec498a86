"""Dividing text files that are larger than memory into chunks of a fixed number of lines."""

from __future__ import annotations

__all__ = ["LINE_LIMIT", "Part", "TextReader", "cut_parts", "text_files"]

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ..core.files import check_regular
from ..datasets.formats import cut_lines

# bytes; a longer line is no sentence, and a small .gz can hold one that fills the memory
LINE_LIMIT = 2**24


class Part(NamedTuple):
    """Where a part of the text begins, and what is in it."""

    file: int  # its first line is in this file, counted from 0
    offset: int  # [bytes] of the unpacked text before it
    line: int  # its number in the file, from 1
    rows: int  # lines; a part may go on in the next files
    checksum: str  # BLAKE2b of them, 32 hexadecimal digits


def text_files(
    # files, and folders that hold .txt and .txt.gz files at any depth
    places: Iterable[str | Path],
    # files in the order given, those of a folder sorted by their paths
) -> list[Path]:
    """Find the files of a text. Raises ValueError naming the place if one is missing, no regular
    file, or a folder without any.
    """
    files = []
    for place in map(Path, places):
        found = (
            sorted(p for p in place.rglob("*.txt*") if p.name.endswith((".txt", ".txt.gz")))
            if place.is_dir()
            else [place]
        )
        if not found:
            raise ValueError(f"{place}: expected .txt or .txt.gz files, found none")
        files += found
    for file in files:
        check_regular(file)
    return files


class TextReader:
    """The lines of several files as if they were one; it goes on from where it is, or begins at a
    part.

    Lines are those of `formats.read_lines`, blank ones included, without white space at their ends.
    A plain file is entered anywhere at once. A .gz must be unpacked from its beginning; whoever
    reads parts in their order unpacks it once.
    """

    def __init__(self, files: Sequence[Path]):
        self.files, self.file, self.line, self._stream = list(files), 0, 1, None

    def __enter__(self) -> TextReader:
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def seek(self, part: Part) -> None:
        """Go to where a part begins. Raises ValueError naming a file that cannot be read so far."""
        if part.file != self.file:
            self._close()
        self.file, self.line = part.file, part.line
        self._try(lambda: self._opened().seek(part.offset))

    def read(self, rows: int) -> tuple[list[str], Part | None]:
        """Read that many lines, or the fewer that are left: None after the last.

        Raises ValueError naming file and line for what is not text (`formats.cut_lines`), an empty
        file, or a line beyond `LINE_LIMIT`.
        """
        sentences, total, start = [], blake2b(digest_size=16), None
        while len(sentences) < rows and self.file < len(self.files):
            place = self.file, self._opened().tell(), self.line
            raw = self._raw(rows - len(sentences))
            if not raw:
                self._next()
                continue
            start = start or place
            sentences += [line.strip() for line in cut_lines(raw, self.files[self.file], self.line)]
            self.line = place[2] + raw.count(b"\n") + (not raw.endswith(b"\n"))
            total.update(raw)
        return sentences, start and Part(*start, len(sentences), total.hexdigest())

    def read_part(self, part: Part) -> list[str]:
        """Read the lines of a part. Raises ValueError naming file and line if they are not those
        that were there when the text was cut.
        """
        self.seek(part)
        where = f"{self.files[part.file]}:{part.line}"
        sentences, found = self.read(part.rows)
        if found != part:
            raise ValueError(
                f"{where}: expected the {part.rows:,} lines that were here when the parts were cut, got others: the text has changed"
            )
        return sentences

    def _raw(self, rows):
        """Read that many lines of the file at hand as bytes; none at its end."""
        limited = iter(partial(self._opened().readline, LINE_LIMIT + 1), b"")
        lines = self._try(lambda: list(islice(limited, rows)))
        for number, line in (
            enumerate(lines, self.line) if max(map(len, lines), default=0) > LINE_LIMIT else ()
        ):
            if len(line) > LINE_LIMIT:
                raise ValueError(
                    f"{self.files[self.file]}:{number}: expected lines of at most {LINE_LIMIT:,} bytes, got a longer one"
                )
        return b"".join(lines)

    def _opened(self):
        """Give the open file at hand."""
        if self._stream is None:
            file = self.files[self.file]
            check_regular(file)
            # closed by `_next`, with the file behind it
            self._stream = (
                gzip.open(file, "rb")  # noqa: SIM115
                if file.suffix == ".gz"
                else open(file, "rb", 2**20)  # noqa: SIM115
            )
        return self._stream

    def _next(self):
        """Leave a file behind."""
        if self.line == 1:
            raise ValueError(f"{self.files[self.file]}: expected text, got an empty file")
        self._close()
        self.file, self.line = self.file + 1, 1

    def _close(self):
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _try(self, action):
        """Name the file where it cannot be read: cut short, not packed as its name says, or on a
        disk that fails.
        """
        try:
            return action()
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{self.files[self.file]}: expected a readable file, got: {error}"
            ) from error


def cut_parts(
    files: Sequence[Path],  # of `text_files`
    rows: int,  # lines a part; the last one has what is left
) -> Iterator[Part]:
    """Read a text through once, a part at a time, and say where each begins; whatever is no text is
    found here. Raises ValueError as `TextReader.read` does.
    """
    if rows < 1:
        raise ValueError(f"expected at least 1 line a part, got {rows}")
    with TextReader(files) as reader:
        while (part := reader.read(rows)[1]) is not None:
            yield part
