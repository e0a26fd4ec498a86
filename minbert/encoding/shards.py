"""Encoding text that is larger than memory: parts that any number of processes write, and a reader
that returns them in order.

A folder holds a manifest and the parts. The manifest is written first: where each part of the text
begins and what is in it, which model makes the vectors and with which settings. A part is one
safetensors file that appears when it is whole; whoever writes it holds its lock. So no process
needs to know another: those of one `accelerate launch`, of other machines with the same disk, and
those started tomorrow to finish what was left all do the same, namely take the next part that is
neither there nor locked.
"""

from __future__ import annotations

__all__ = [
    "DTYPES",
    "MANIFEST",
    "Encoded",
    "Shards",
    "encode_shards",
    "encoder_settings",
    "read_shards",
]

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .. import __version__
from ..core.checkpoint import replace_file
from ..core.files import check_fields, parse_json, quoted, read_whole
from ..core.locks import LockTimeout, file_lock
from ..core.safetensors_io import (
    check_file,
    read_checked,
    read_tensors,
    save_checked,
    tensor_checksum,
)
from .line_chunks import Part, TextReader, cut_parts
from .run_fingerprint import encoder_fingerprint

MANIFEST = "manifest.json"
FORMAT = "minbert vectors in parts, 1"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_IN_FILES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_PART = [int, int, int, int, str]  # types of a Part
PAUSE = 1.0  # seconds between two looks at what others are writing


class Encoded(NamedTuple):
    """A part that this process has written."""

    part: int
    sentences: int
    seconds: float


class Shards:
    """A folder of parts, as its manifest describes it. Raises ValueError naming the manifest if
    there is none, or it is not ours.
    """

    def __init__(self, folder: str | Path):
        self.folder, self.manifest = Path(folder), Path(folder) / MANIFEST
        text = read_whole(self.manifest)
        said = check_fields(
            parse_json(text, self.manifest),
            self.manifest,
            format=str,
            settings=dict,
            text=list,
            parts=list,
        )
        if said["format"] != FORMAT:
            raise ValueError(f"{self.manifest}: expected {FORMAT!r}, got {quoted(said['format'])}")
        if odd := [
            part
            for part in said["parts"]
            if not isinstance(part, list) or [type(x) for x in part] != _PART
        ]:
            raise ValueError(
                f"{self.manifest}: expected file, offset, line, rows and checksum of each part, got {quoted(odd[0])}"
            )
        self.settings = check_fields(
            said["settings"], self.manifest, width=int, dtype=str, part_size=int
        )
        self.text, self.parts = said["text"], [Part(*part) for part in said["parts"]]
        self.name = hashlib.sha256(text).hexdigest()[:32]  # each part bears it

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)  # sentences

    def file(self, i: int) -> Path:
        """Name the file of a part."""
        return self.folder / f"part-{i:05d}.safetensors"

    def missing(self) -> list[int]:
        """Number the parts that are not there yet. Raises ValueError naming a file that stands
        where a part belongs and is none of this text.
        """
        there = [i for i in range(len(self.parts)) if os.path.lexists(self.file(i))]
        for i in there:
            self._check(i)
        return sorted({*range(len(self.parts))} - {*there})

    def check(self) -> None:
        """Raise ValueError naming the first file that is missing, cut short, or of another text, or
        a part beyond the last one.
        """
        if gone := self.missing():
            raise ValueError(
                f"{self.file(gone[0])}: expected {len(self.parts):,} parts, {len(gone):,} are missing: the same `minbert encode` once more writes them"
            )
        expected = {self.file(i).name for i in range(len(self.parts))}
        if strange := sorted(
            file.name
            for file in self.folder.glob("part-*.safetensors")
            if file.name not in expected
        ):
            raise ValueError(
                f"{self.folder / strange[0]}: expected {len(self.parts):,} parts from 0 on, got one more"
            )

    def read(self, i: int, verify: bool = True) -> Tensor:
        """Give the vectors (n, D) of a part: row k is sentence `i * settings["part_size"] + k`.

        Without `verify` the file is mapped: only the rows that are looked at are read, and their
        checksum is not compared. Raises ValueError naming the file if it is missing, cut short,
        damaged, or not of this text.
        """
        self._check(i)
        return (read_checked(self.file(i))[0] if verify else read_tensors(self.file(i)))["vectors"]

    def write(self, i: int, vectors: Tensor) -> None:
        """Write a part; it appears when it is whole. Raises ValueError for numbers that are not
        finite in its precision, OSError for a full disk.
        """
        part, file = self.parts[i], self.file(i)
        if vectors.shape != (part.rows, self.settings["width"]):
            raise ValueError(
                f"{file}: expected {part.rows} vectors of width {self.settings['width']}, got {tuple(vectors.shape)}"
            )
        narrow = vectors.to(DTYPES[self.settings["dtype"]])
        if not (finite := torch.isfinite(narrow).all(1)).all():
            row = i * self.settings["part_size"] + finite.long().argmin().item() + 1
            raise ValueError(
                f"{file}: expected finite numbers in {self.settings['dtype']}, got NaN or infinity in the vector of sentence {row:,}: "
                "are the model's weights damaged, or its numbers too large for this precision?"
            )

        def write(draft):
            save_checked(draft, {"vectors": narrow}, json.dumps(self._label(i)))
            # safetensors lets nobody but the owner read; others may be meant to
            draft.chmod(self.manifest.stat().st_mode)

        replace_file(file, write)

    def _label(self, i):
        return {"run": self.name, "part": i}

    def _check(self, i):
        """Look at the head of a part: is it whole, and ours?"""
        file, header = self.file(i), check_file(self.file(i))
        said = header.pop("__metadata__", {}).get("minbert", "{}")
        if parse_json(said, file) != self._label(i):
            raise ValueError(
                f"{file}: expected part {i} of {self.manifest}, got a file from elsewhere ({quoted(said)})"
            )
        shape = [self.parts[i].rows, self.settings["width"]]
        dtype = _IN_FILES[self.settings["dtype"]]
        if [(name, entry["shape"], entry["dtype"]) for name, entry in header.items()] != [
            ("vectors", shape, dtype)
        ]:
            raise ValueError(
                f"{file}: expected vectors of shape {tuple(shape)} in {dtype}, got {quoted(header)}"
            )


def read_shards(folder: str | Path, verify: bool = True) -> Iterator[Tensor]:
    """Yield the vectors (n, D) part by part, in the order of the sentences. Raises ValueError,
    before the first, as `Shards.check` does, and as `Shards.read` does.
    """
    shards = Shards(folder)
    shards.check()
    for i in range(len(shards.parts)):
        yield shards.read(i, verify)


def encoder_settings(
    encoder,  # sentence.SentenceEncoder
    precision: str,  # of the matrix products, as `products.laid_out` has it
    dtype: str,  # a key of DTYPES
) -> dict:  # name -> number or text
    """Say what the vectors depend on besides the text: checksums of weights and tokenizer, and
    settings. Raises ValueError for another dtype.
    """
    if dtype not in DTYPES:
        raise ValueError(f"expected dtype {', '.join(DTYPES)}, got {dtype!r}")
    return {
        "model": tensor_checksum({name: x.cpu() for name, x in encoder.state_dict().items()}),
        **encoder_fingerprint(encoder),
        "precision": precision,
        "width": encoder.width,
        "dtype": dtype,
    }


def encode_shards(
    encoder,  # sentence.SentenceEncoder
    files: Sequence[Path],  # of `textparts.text_files`
    folder: str | Path,  # of the parts, made if missing
    # sentences: seconds of a GPU, a minute of a processor, lost when a process is killed
    part_size: int = 100_000,
    # a key of DTYPES; the rounding of float16 is 1/2048 of a number at most
    dtype: str = "float16",
    precision: str = "fp32",  # of the matrix products
    # of this process: it begins with every part whose number is `rank` modulo `world`
    rank: int = 0,
    world: int = 1,  # processes started together
) -> Iterator[Encoded]:  # the parts that this process has written, as they are done
    """Write the parts that are missing, together with all others who do the same, and end when all
    are there.

    A blank line is an empty sentence. A part is lost with the process that was writing it, and
    taken over by the next that looks. On a disk without locks (`locks.held`) each process writes
    its own share alone, and what a dead one leaves waits for the next start. Raises ValueError
    naming file and line for what is no text, and naming what differs from the manifest: text,
    model, or setting.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    locks = _locks(folder)
    shards = _opened(
        folder,
        files,
        encoder_settings(encoder, precision, dtype) | {"part_size": part_size},
        locks or rank == 0,
    )
    left = sorted(
        (i for i in shards.missing() if locks or i % world == rank),
        key=lambda i: (i % world != rank, i),
    )
    with TextReader(files) as reader:
        while left:
            for i in left:
                start = time.perf_counter()
                if _turn(shards, i, encoder, reader, precision):
                    yield Encoded(i, shards.parts[i].rows, time.perf_counter() - start)
            left = [i for i in left if not shards.file(i).exists()]  # others are at work there
            time.sleep(PAUSE if left else 0)


def _turn(shards, i, encoder, reader, precision):
    """Write a part, unless it is there or somebody is writing it; tell whether it was written."""
    file = shards.file(i)
    try:
        with file_lock(file.with_suffix(".lock"), ""):
            if file.exists():  # asked behind the lock: nobody finishes it now
                return False
            sentences = reader.read_part(shards.parts[i])
            shards.write(i, torch.cat(list(encoder.encode_stream(sentences, precision=precision))))
    except LockTimeout:
        return False
    return True


def _locks(folder):
    """Tell whether the disk knows locks."""
    try:
        with file_lock(folder / "try.lock", "") as sure:
            return sure
    except LockTimeout:
        return True


def _opened(folder, files, settings, may_write):
    """Open a folder of parts; the first to come writes its manifest, the others wait for it."""
    manifest = folder / MANIFEST
    while not manifest.exists():
        try:
            with file_lock(folder / "manifest.lock", ""):
                if may_write and not manifest.exists():
                    text = _described(files, settings)
                    replace_file(manifest, lambda draft: draft.write_text(text, encoding="utf8"))
        except LockTimeout:
            pass
        time.sleep(0 if manifest.exists() else PAUSE)
    shards = Shards(folder)
    _compare_settings(shards, settings)
    _compare_text(shards, files)
    return shards


def _described(files, settings):
    """Cut the text, and write the manifest: a line for each part."""
    parts = ",\n".join(f"  {json.dumps(part)}" for part in cut_parts(files, settings["part_size"]))
    head = {
        "format": FORMAT,
        "versions": {"minbert": __version__, "torch": torch.__version__},
        "settings": settings,
        "text": _noted(files),
    }
    return (
        json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
        + f',\n "parts": [\n{parts}\n ]\n}}\n'
    )


def _noted(files):
    """Note names, sizes and times of change; not the folder, which may be mounted elsewhere."""
    found = [(file, file.stat()) for file in map(Path, files)]
    return [
        {"name": file.name, "bytes": stat.st_size, "changed": stat.st_mtime_ns}
        for file, stat in found
    ]


def _compare_settings(shards, settings):
    """Refuse another model, or another setting."""
    for name, given in settings.items():
        if (theirs := shards.settings.get(name)) != given:
            raise ValueError(
                f"{shards.manifest}: expected {name} {theirs}, as the parts in this folder have, got {given}: encode into another folder"
            )


def _compare_text(shards, files):
    """Refuse another text. Files of the same names and sizes that were touched or copied are read
    once more, as far as they are encoded.
    """
    now = _noted(files)
    for old, new in zip_longest(shards.text, now, fillvalue={}):
        theirs, given = ([note.get(key) for key in ("name", "bytes")] for note in (old, new))
        if theirs != given:
            raise ValueError(
                f"{shards.manifest}: expected the text {quoted(theirs)} (name and bytes), of which this folder has parts, got {quoted(given)}: "
                "encode into another folder"
            )
    if now != shards.text:
        gone = set(shards.missing())
        with TextReader(files) as reader:
            for part in (part for i, part in enumerate(shards.parts) if i not in gone):
                reader.read_part(part)
