"""A cache for tokenized corpora: saves and loads a `Corpus`, with a checksum of the text that it was
made from.
"""

import hashlib
from pathlib import Path

import torch

from minbert.core.checkpoint import replace_file
from minbert.core.safetensors_io import read_checked, save_checked
from minbert.corpus import Corpus, corpus_files

__all__ = ["CORPUS", "text_checksum", "save_corpus", "load_corpus"]

CORPUS = "corpus.safetensors"  # its name inside a run's folder


def text_checksum(
    folder: str | Path,  # the corpus
) -> str:  # 64 hexadecimal digits, which depend on the names and the bytes of the files
    """Compute a checksum of the text in a corpus."""
    digest = hashlib.sha256()
    for path in corpus_files(folder):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def save_corpus(
    corpus: Corpus,
    folder: str | Path,  # the run's folder
    text: str = "",  # checksum of the text that the corpus was made from
) -> Path:  # the file written
    """Save the sequences for the next start; no incomplete file is left if this fails."""
    arrays = {name: torch.from_numpy(array) for name, array in corpus._asdict().items()}
    return replace_file(Path(folder) / CORPUS, lambda part: save_checked(part, arrays, text))


def load_corpus(
    folder: str | Path,  # the run's folder
    text: str = "",  # checksum of the text that it should be made from; "": any
) -> Corpus:
    """Read what `save_corpus` wrote. Raises ValueError with the file if it is missing, damaged, or
    made from other text.
    """
    file = Path(folder) / CORPUS
    try:
        arrays, known = read_checked(file)
        if set(arrays) != set(Corpus._fields):
            raise ValueError(f"{file}: expected a corpus, got other tensors")
    except ValueError as error:
        raise ValueError(
            f"{error}; it only saves time: delete it, and the next start makes it anew from the text"
        ) from None
    if text and known and known != text:
        raise ValueError(
            f"{file}: expected the text that this run began with, got other files or other lines: take another folder for the run, or put the old text back"
        )
    return Corpus(**{name: array.numpy() for name, array in arrays.items()})
