"""Reading sentences from an iterator in windows that fit in memory, with checks and a progress bar."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from itertools import islice

from .files import quoted


def _check_kind(sentences) -> None:
    """Raise ValueError for what holds no sentences in an order."""
    kind = type(sentences).__name__
    if isinstance(sentences, (str, bytes)):  # its letters are no sentences
        raise ValueError(f"expected a list of str, got one {kind}")
    if isinstance(sentences, (set, frozenset)):
        raise ValueError(
            f"expected a list of str, got a {kind}, which has no order: nobody could say which row belongs to which sentence"
        )
    # such as a slice of a datasets.Dataset: its keys would be read
    if isinstance(sentences, Mapping):
        names = list(sentences)
        hint = f", such as rows[{quoted(names[0], 50)}]" if names else ""
        raise ValueError(
            f"expected a list of str, got a {kind} with the keys {quoted(names)}: "
            f"pass its column of sentences{hint}"
        )
    # of pandas: who walks through it gets the names of its columns
    if hasattr(sentences, "columns"):
        raise ValueError(
            f"expected a list of str, got a {kind}: of a table name the column of sentences"
        )
    try:
        iter(sentences)
    except TypeError:
        raise ValueError(f"expected a list of str, got {kind}: {quoted(sentences)}") from None


def has_surrogate(text: str) -> bool:
    """Tell half of a character, which JSON can write and UTF-8 cannot hold."""
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def check_sentences(sentences: Iterable[str], start: int = 0) -> list[str]:
    """Give a list of str; `start` counts the sentences before this window. Raises ValueError for
    what is no list, and naming the first item that is no valid text.
    """
    _check_kind(sentences)
    sentences = list(sentences)
    for i, text in enumerate(sentences):
        if not isinstance(text, str):
            raise ValueError(
                f"expected a str for sentence {start + i}, got {type(text).__name__}: {quoted(text)}"
            )
        if has_surrogate(text):
            raise ValueError(
                f"expected valid Unicode for sentence {start + i}, got a lone surrogate: {quoted(text)}"
            )
    return sentences


def return_memory() -> None:
    """Hand freed memory back to the system.

    glibc keeps it, in holes that the batches of the next window do not fit into: after 80,000
    sentences they were once larger than everything that was in use. Other C libraries have no such
    call, and no such need.
    """
    with suppress(AttributeError, OSError, TypeError):  # no such function; no such library; Windows
        ctypes.CDLL(None).malloc_trim(0)


def windows(
    sentences: Iterable[str], window: int | None, progress: bool, device
) -> Iterator[tuple[list[str], object]]:
    """Yield up to `window` checked sentences at a time, with the bar that counts them; None: 4096,
    or 32768 if `device` is a GPU, which waits between windows.

    Raises ValueError for a window of none.
    """
    from tqdm.auto import tqdm

    if window is None:
        window = 4096 if device.type == "cpu" else 32768
    if window < 1:
        raise ValueError(f"expected a window of at least 1 sentence, got {window}")
    _check_kind(sentences)
    total = len(sentences) if isinstance(sentences, Sized) else None
    with tqdm(total=total, unit="sentence", disable=not progress) as bar:
        supply, start = iter(sentences), 0
        while texts := list(islice(supply, window)):
            check_sentences(texts, start)
            if start:
                return_memory()
            yield texts, bar
            start += len(texts)
