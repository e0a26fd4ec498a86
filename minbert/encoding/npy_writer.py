"""Writing sentence vectors to .npy: in windows, with the disk space reserved beforehand, complete
or not at all.

The array is not memory-mapped, because a full disk would then end the process with a bus error
instead of raising OSError.
"""

__all__ = ["reserve", "write_vectors", "encode_file"]

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ..core.checkpoint import replace_file
from ..datasets.formats import read_lines


def reserve(
    stream,  # a file open for writing
    size: int,  # bytes to come
) -> None:
    """Ask the disk for room. Raises OSError if there is too little; where the system cannot say,
    nothing happens.
    """
    stream.flush()
    try:
        os.posix_fallocate(stream.fileno(), stream.tell(), size)
    except AttributeError:  # macOS, Windows
        pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise


def _checked(file, shape, chunks):
    """Pass on rows that are finite, as many and as wide as the shape says."""
    done = 0
    for chunk in chunks:
        if chunk.shape[1:] != shape[1:] or done + len(chunk) > shape[0]:
            raise ValueError(
                f"{file}: expected {shape[0]} rows of {shape[1]} numbers, got {tuple(chunk.shape)} after {done} rows"
            )
        finite = torch.isfinite(chunk).all(1)
        if not finite.all():
            raise ValueError(
                f"{file}: expected finite numbers, got NaN or infinity in row {done + finite.long().argmin().item() + 1}: "
                "are the model's weights damaged?"
            )
        yield chunk
        done += len(chunk)
    if done < shape[0]:
        raise ValueError(f"{file}: expected {shape[0]} rows, got {done}")


def write_vectors(
    file: str | Path,  # .npy, (N, D) float32
    shape: tuple[int, int],  # N, D
    chunks,  # (n, D) float tensors on the CPU, N rows together
) -> Path:  # `file`
    """Write rows as they come; the file appears when it is whole.

    Raises ValueError for more or fewer numbers than the shape says, or, naming the row, for one
    that is NaN or infinite, and OSError for a full disk; then the old file, or none, is left.
    """

    def write(part):
        with open(part, "wb") as stream:
            np.lib.format.write_array_header_1_0(
                stream, {"descr": "<f4", "fortran_order": False, "shape": shape}
            )
            reserve(stream, 4 * shape[0] * shape[1])
            for chunk in _checked(file, shape, chunks):
                stream.write(np.ascontiguousarray(chunk.numpy(), "<f4").tobytes())

    return replace_file(file, write)


def encode_file(
    encoder,  # SentenceEncoder
    file: Path,  # one sentence a line, plain or .gz
    out: Path,  # .npy, (lines, D) float32
    precision: str = "fp32",  # of the matrix products, as `products.laid_out` has it
    progress: bool = False,  # draw a bar
    read: Callable[[Path], list[str]] = read_lines,  # another reader for another kind of file
) -> tuple[int, int]:  # shape of the array written
    """Encode every line of a file into a .npy; row n is line n, and a blank line is an empty
    sentence.

    Raises ValueError if `out` is the text itself, and as the reader and `write_vectors`.
    """
    lines = [line.strip() for line in read(file)]
    if out.exists() and out.samefile(file):
        raise ValueError(
            f"{out}: expected another file than the text, whose place the vectors would take"
        )
    shape = len(lines), encoder.width
    write_vectors(out, shape, encoder.encode_stream(lines, progress, precision=precision))
    return shape
