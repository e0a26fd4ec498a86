"""Files of tensors: validated safetensors headers, finite values, expected names and shapes,
sharded folders, checksums.

The header says what to expect before a single number is read. The safetensors library checks files
as well, but its errors have types of their own and do not name the file. Pickled weights are read
with `weights_only=True`, so that no code in them is run. Metadata is sorted after writing, because
the library writes it in a random order, and equal contents shall give equal files.
"""

__all__ = [
    "HEADER_LIMIT",
    "check_file",
    "read_tensors",
    "check_numbers",
    "check_tensors",
    "load_tensors",
    "file_checksum",
    "tensor_checksum",
    "save_tensors",
    "save_checked",
    "read_checked",
]

import hashlib
import json
import os
import re
from math import prod
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor

from .files import check_fields, check_regular, inside, parse_json, quoted, read_json

HEADER_LIMIT = 100_000_000  # bytes; the format's own limit
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
}


def check_file(
    file: str | Path,  # a safetensors file
) -> dict:  # its header: name -> {"dtype", "shape", "data_offsets"}, and "__metadata__"
    """Read the header of a safetensors file and compare what it promises with the file's size.

    Raises ValueError naming the file, and the first tensor that is cut off or cannot be.
    """
    size = check_regular(file)
    with open(file, "rb") as handle:
        body = 8 + int.from_bytes(handle.read(8), "little")  # where the header ends
        text = handle.read(body - 8) if 8 < body <= min(size, 8 + HEADER_LIMIT) else b""
    if not text:
        raise ValueError(
            f"{file}: expected a safetensors file, got {_pointer(file) or f'{size} bytes without a whole header'}"
        )
    header = parse_json(text, file)
    _check_metadata(file, header.get("__metadata__", {}))
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name, entry in entries.items():
        _check_entry(file, name, entry)
    _check_places(file, entries, body, size)
    return header


def _pointer(file):
    """Name what a clone leaves in the place of weights where Git LFS is not installed; an empty
    text for any other file.
    """
    with open(file, "rb") as handle:
        found = handle.read(40).startswith(b"version https://git-lfs.github.com/")
    return "a pointer of Git LFS: `git lfs pull` fetches the weights" if found else ""


def _check_metadata(file, notes):
    if not isinstance(notes, dict) or not all(isinstance(text, str) for text in notes.values()):
        raise ValueError(f"{file}: expected texts as metadata, got {quoted(notes)}")


def _check_entry(file, name, entry):
    """A tensor needs a known type, a shape of whole numbers, and as many bytes as both say."""

    def whole(xs, n=None):
        return (
            isinstance(xs, list)
            and n in (None, len(xs))
            and all(type(x) is int and 0 <= x < 2**63 for x in xs)
        )

    good = (
        isinstance(entry, dict)
        and isinstance(entry.get("dtype"), str)
        and entry["dtype"] in _BITS
        and whole(entry.get("shape"))
        and whole(entry.get("data_offsets"), 2)
    )
    if not good:
        raise ValueError(
            f"{file}: expected dtype, shape and data_offsets of tensor {quoted(name)}, got {quoted(entry)}"
        )
    first, end = entry["data_offsets"]
    if (
        len(entry["shape"]) > 16
        or 8 * (end - first) != prod(entry["shape"]) * _BITS[entry["dtype"]]
    ):
        raise ValueError(
            f"{file}: expected tensor {quoted(name)} of shape {quoted(tuple(entry['shape']))} and type {entry['dtype']} "
            f"to fill its place, got {end - first} bytes"
        )


def _check_places(file, entries, body, size):
    """Tensors must follow one another without a gap, from the end of the header to the end of the
    file.
    """
    place = 0
    for name in sorted(entries, key=lambda name: entries[name]["data_offsets"]):
        first, end = entries[name]["data_offsets"]
        if first != place:
            raise ValueError(
                f"{file}: expected tensor {quoted(name)} to begin at byte {place}, got {first}"
            )
        if body + end > size:
            last = max(entry["data_offsets"][1] for entry in entries.values())
            raise ValueError(
                f"{file}: cut short at tensor {quoted(name)}: expected {body + last} bytes, got {size}"
            )
        place = end
    if body + place != size:
        raise ValueError(f"{file}: expected {body + place} bytes, got {size}")


def read_tensors(
    file: str | Path,  # a safetensors file
) -> dict[str, Tensor]:  # on the CPU
    """Read all tensors of a file. Raises ValueError with the file's name if it is broken in any
    way.
    """
    from safetensors.torch import load_file

    check_file(file)
    try:
        return load_file(file)
    except Exception as error:  # the library has kinds of its own
        raise ValueError(f"{file}: expected a safetensors file, got: {str(error)[:200]}") from error


def check_numbers(
    tensors: dict[str, Tensor],  # by name
    where: str | Path,  # what to call them in a message
) -> dict[str, Tensor]:  # `tensors`
    """Make sure that weights are finite. Raises ValueError naming the first tensor that holds NaN
    or infinity.
    """
    for name, tensor in tensors.items():
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        if bad:
            raise ValueError(
                f"{where}: expected finite numbers in tensor {quoted(name)}, got {bad} of {tensor.numel()} that are NaN or infinite"
            )
    return tensors


def check_tensors(
    file: str | Path,  # what to call them in a message
    saved: dict[str, Tensor],  # from a file
    expected: dict[str, Tensor],  # only names, shapes and types count
) -> dict[str, Tensor]:  # `saved`
    """Compare names, shapes and types. Raises ValueError naming the first tensor that differs."""
    for name in [*expected, *saved]:
        if name not in saved:
            raise ValueError(
                f"{file}: expected tensor {name!r} of shape {tuple(expected[name].shape)}, found none"
            )
        if name not in expected:
            raise ValueError(
                f"{file}: expected no tensor {quoted(name)}, found one of shape {tuple(saved[name].shape)}"
            )
        have, want = saved[name], expected[name]
        if have.shape != want.shape or have.dtype != want.dtype:
            raise ValueError(
                f"{file}: expected tensor {name!r} of shape {tuple(want.shape)} and {want.dtype}, "
                f"got {tuple(have.shape)} and {have.dtype}"
            )
    return saved


def load_tensors(
    folder: str | Path,  # of a model
) -> dict[str, Tensor]:  # by the names in the files, in their precision
    """Read model.safetensors or pytorch_model.bin, whole or in parts that an index lists; no code
    in a pickled file is run.

    Raises ValueError naming the file if it is missing, cut short, no weight file, or if the index
    leads elsewhere.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        if os.path.lexists(Path(folder, name)):
            return _read_weights(Path(folder, name))
        if os.path.lexists(index := Path(folder, name + ".index.json")):
            names = check_fields(read_json(index), index, weight_map=dict)["weight_map"].values()
            parts = {inside(folder, part, index) for part in names}
            return {
                key: tensor for part in sorted(parts) for key, tensor in _read_weights(part).items()
            }
    raise ValueError(f"expected model.safetensors or pytorch_model.bin in {folder}, found neither")


def _read_weights(file):
    """Read one weight file of either kind."""
    if file.suffix == ".safetensors":
        return read_tensors(file)
    check_regular(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # pickles fail in many ways
        raise ValueError(
            f"{file}: expected a complete weight file, got: {_pointer(file) or _trouble(error)}"
        ) from error
    odd = (
        [key for key, x in found.items() if not isinstance(x, Tensor)]
        if isinstance(found, dict)
        else [type(found).__name__]
    )
    if odd:
        raise ValueError(
            f"{file}: expected tensors by their names, got something else: {quoted(odd[0])}"
        )
    return {key: tensor.detach() for key, tensor in found.items()}


def _trouble(error):
    """Say why torch refused a pickle; its own words advise to load it all the same."""
    if not isinstance(error, UnpicklingError):
        return str(error)[:200] or type(error).__name__
    found = re.search(r"[Uu]nsupported [^\n]{1,100}", str(error))
    return f"no pickle of tensors alone ({found[0] if found else 'damaged'}); nothing in it was run"


def file_checksum(
    file: str | Path,
) -> str:  # SHA-256, 64 hexadecimal digits
    """Compute the checksum of a file, piece by piece. Raises ValueError if it is no regular file."""
    check_regular(file)
    total = hashlib.sha256()
    with open(file, "rb") as stream:
        while piece := stream.read(2**20):
            total.update(piece)
    return total.hexdigest()


def tensor_checksum(
    tensors: dict[str, Tensor],  # on the CPU
    text: str = "",  # counts too
) -> str:  # SHA-256, 64 hexadecimal digits
    """Compute a checksum over a text and over names, types, shapes and bytes of tensors; their
    order does not count.
    """
    total = hashlib.sha256(text.encode("utf-8"))
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous()
        total.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        total.update(tensor.flatten().view(torch.uint8).numpy())
    return total.hexdigest()


def save_tensors(
    file: str | Path,
    tensors: dict[str, Tensor],  # on the CPU, contiguous
    notes: dict[str, str] | None = None,  # the file's metadata
) -> None:
    """Write a safetensors file, the same bytes for the same contents. Raises OSError naming it if
    the system refuses, for a full disk as for any other reason.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, file, notes)
    except SafetensorError as error:
        # the library says what the system said, but in a kind of its own and without the file
        if said := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(number := int(said[1]), os.strerror(number), str(file)) from error
        raise
    if notes and len(notes) > 1:
        _sort_notes(file)


def _sort_notes(file):
    """Bring the metadata of a file into alphabetical order, without changing its length."""
    with open(file, "r+b") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = parse_json(stream.read(size), file)
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = (
            json.dumps(header, separators=(",", ":"), ensure_ascii=False)
            .encode("utf-8")
            .ljust(size)
        )
        if len(text) != size:
            raise ValueError(
                f"{file}: expected a header of {size} bytes, as safetensors wrote it, got {len(text)} after sorting"
            )
        stream.seek(8)
        stream.write(text)


def save_checked(
    file: str | Path,
    tensors: dict[str, Tensor],  # on the CPU
    text: str = "",  # travels with them
) -> None:
    """Write tensors and a text, with a checksum over both. Raises OSError as `save_tensors`."""
    save_tensors(file, tensors, {"minbert": text, "sha256": tensor_checksum(tensors, text)})


def read_checked(
    file: str | Path,  # written by `save_checked`
) -> tuple[dict[str, Tensor], str]:  # what was saved
    """Read tensors and their text. Raises ValueError naming the file if it is missing, broken, not
    ours, or not as it was saved.
    """
    header, tensors = check_file(file).get("__metadata__", {}), read_tensors(file)
    if "minbert" not in header:
        raise ValueError(
            f"{file}: expected a file that this package wrote with a checksum, got other tensors"
        )
    if header.get("sha256") != tensor_checksum(tensors, header["minbert"]):
        raise ValueError(
            f"{file}: expected the bytes that were saved, got others: the file is damaged"
        )
    return tensors, header["minbert"]
