"""The bigram-shift task: were two adjacent words of a sentence swapped?

Paper: Conneau et al. (2018), task BShift, where each sentence occurs once.
Differs: each sentence occurs in both forms, so that the words alone cannot tell the classes apart.
"""

import hashlib
import re
from typing import NamedTuple

DERIVED = ("bigram_shift",)  # datasets without a file; the name of a head cannot have a hyphen
CLASSES = ("original", "swapped")
SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}  # of the sentences
MOST_WORDS = 20  # longer sentences are left out (28 in the paper): an epoch takes about a minute

# A word stands between white space, apart from punctuation behind it: no part of U.S. or "so".
_WORD = re.compile(r"(?<!\S)[^\W_]+(?:['’-][^\W_]+)*(?=[.,;:!?]*(?:\s|$))")


class SwappedPair(NamedTuple):
    """A sentence and the same sentence with two adjacent words swapped."""

    original: str
    swapped: str
    line: int  # index of the sentence in the list that it was taken from


def normalized(
    text: str,  # a sentence
) -> str:  # its words in their order, in lower case, without punctuation
    """Reduce a sentence to its words, so that repetitions are recognized."""
    return " ".join(re.findall(r"\w+", text.lower()))


def possible_swaps(
    text: str,  # a sentence
) -> list[str]:  # the sentence once for each swap, from left to right
    """Swap each two adjacent, different words that nothing but a space separates.

    A word must precede both: a capital letter would reveal that the first word was moved.
    """
    words = list(_WORD.finditer(text))
    found = []
    for before, left, right in zip(words, words[1:], words[2:]):
        gaps = text[before.end() : left.start()], text[left.end() : right.start()]
        if gaps == (" ", " ") and left[0].lower() != right[0].lower():
            found.append(f"{text[: left.start()]}{right[0]} {left[0]}{text[right.end() :]}")
    return found


def _fraction(purpose: str, text: str) -> float:
    """Draw a number in [0, 1) that depends on the text alone."""
    digest = hashlib.sha256(f"bigram-shift {purpose}: {text}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def split_of(
    key: str,  # from `normalized`
) -> str:  # "train", "dev" or "test"
    """Assign a sentence to a split, whatever other sentences there are."""
    drawn = _fraction("split", key)
    if drawn < SHARES["train"]:
        return "train"
    return "dev" if drawn < SHARES["train"] + SHARES["dev"] else "test"


def swapped_pairs(
    sentences: list[str],  # may repeat
    split: str,  # "train", "dev" or "test"
) -> list[SwappedPair]:  # in the order of the sentences
    """Give each sentence of a split beside a copy in which two adjacent words are swapped.

    No text occurs twice in any split, capitals and punctuation aside: a repeated sentence is used
    once, and a swap that produces another sentence, or another swap's result, is not taken.
    """
    lines = {}
    for line, text in enumerate(sentences):
        lines.setdefault(normalized(text), line)
    taken, pairs = set(lines), []
    for key, line in lines.items():
        text = sentences[line]
        found = possible_swaps(text) if len(text.split()) <= MOST_WORDS else []
        swaps = [swap for swap in found if normalized(swap) not in taken]
        if not swaps:
            continue
        swapped = swaps[int(_fraction("swap", key) * len(swaps))]
        taken.add(normalized(swapped))
        if split_of(key) == split:
            pairs.append(SwappedPair(text, swapped, line))
    return pairs
