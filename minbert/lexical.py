"""Surface properties of a similarity: how it depends on the frequency of words and on the edit
distance of two sentences. Chapter 14 uses the edit distance.
"""

__all__ = [
    "DIGITS",
    "BANDS",
    "rank_words",
    "nearest",
    "Band",
    "frequency_table",
    "edit_distance",
    "EditBias",
    "edit_bias",
]

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .metrics import spearman

DIGITS = frozenset("zero one two three four five six seven eight nine".split())


def rank_words(
    vocab: dict[str, int],  # piece -> id
    lines: Iterable[str],  # "word count", most frequent first
    skip: frozenset = DIGITS,  # words that the list counts in a way of its own
) -> list[int]:  # ids of the whole words of the list, most frequent first
    """Order the words of a vocabulary by a frequency list; pieces, specials and unlisted words are left out."""
    listed = dict.fromkeys(line.split(" ", 1)[0] for line in lines if line.strip())
    whole = {word: i for word, i in vocab.items() if not word.startswith(("##", "["))}
    return [whole[word] for word in listed if word in whole and word not in skip]


def nearest(
    table: Tensor,  # (V, D) float
    rows: Sequence[int],  # n ids to look from
    k: int,  # neighbours, 1 to V - 1
    by: str = "distance",  # or "dot": largest dot products
    chunk: int = 1024,  # rows at a time; memory is chunk * V floats
) -> Tensor:  # (n, k) float: distances, rising, or dot products, falling
    """Find the k nearest other rows of a table, for some of its rows.

    |a - b|^2 = |a|^2 + |b|^2 - 2 a b. Raises ValueError for k outside [1, V - 1] or another `by`.
    """
    if not 1 <= k < len(table) or by not in ("distance", "dot"):
        raise ValueError(
            f"expected k in [1, {len(table) - 1}] and by 'distance' or 'dot', got {k} and {by!r}"
        )
    rows, squares, found = torch.as_tensor(rows), table.square().sum(1), []
    for ids in rows.split(chunk):
        score = table[ids] @ table.T  # (b, V)
        if by == "distance":
            score = 2 * score - squares[ids, None] - squares  # minus the squared distance
        score[torch.arange(len(ids)), ids] = -torch.inf  # not oneself
        best = score.topk(k, dim=1).values
        found.append((-best).clamp_min(0).sqrt() if by == "distance" else best)
    return torch.cat(found)


BANDS = (
    (0, 100),
    (100, 500),
    (500, 5_000),
    (5_000, 10_000),
)  # ranks; the paper's last one is printed "[5K, 1K)"


class Band(NamedTuple):
    """What Table 1 of BERT-flow says of the words between two ranks."""

    first: int  # rank of the first word, from 0
    words: int  # how many there are
    norm: float  # mean length
    distance: dict[int, float]  # k -> mean distance to the k nearest
    dot: dict[int, float]  # k -> mean of the k largest dot products


def frequency_table(
    table: Tensor,  # (V, D) word vectors
    ranked: Sequence[int],  # ids, most frequent first
    bands: Sequence[tuple[int, int]] = BANDS,  # ranks (first, behind the last)
    ks: Sequence[int] = (3, 5, 7),  # numbers of neighbours; of the paper
) -> list[Band]:  # one a band that has words
    """Measure length and crowding of word vectors by the frequency of the word.

    Paper: Li et al. (2020), section 2.2 and table 1.
    Differs: neighbours for the dot products are those with the largest dot products; the paper does not say.
    Raises ValueError as `nearest` does for the largest of `ks`.
    """
    result = []
    for low, high in bands:
        ids = list(ranked[low:high])
        if not ids:
            continue
        near, alike = (nearest(table, ids, max(ks), by) for by in ("distance", "dot"))
        result.append(
            Band(
                low,
                len(ids),
                table[ids].norm(dim=1).mean().item(),
                {k: near[:, :k].mean().item() for k in ks},
                {k: alike[:, :k].mean().item() for k in ks},
            )
        )
    return result


def edit_distance(
    a: Sequence,  # a string, or a list of words
    b: Sequence,  # another of the same kind
) -> int:  # 0 for equal ones, at most the length of the longer
    """Count the insertions, deletions and replacements that turn `a` into `b`.

    d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i != b_j])
    Paper: Levenshtein (1966); used in Li et al. (2020), section 4.4, on words as the gold row of their table 6 tells.
    """
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
        before = row
    return before[-1]


class EditBias(NamedTuple):
    """How a similarity goes with the edit distance."""

    all: float  # Spearman over all pairs; negative: the more edits, the less similar
    near: float  # over pairs with few edits only
    pairs: int  # how many those are


def edit_bias(
    similarity,  # (N,) cosines, or similarity scores of annotators
    distances,  # (N,) edit distances
    limit: int = 4,  # what counts as few edits (Li et al.)
) -> EditBias:  # both correlations in [-1, 1]
    """Correlate a similarity with the edit distance, over all pairs and over the near ones.

    Paper: Li et al. (2020), section 4.4 and table 6. Undefined correlations are NaN, with a warning.
    Raises ValueError for unequal lengths or NaN.
    """
    similarity, distances = (np.asarray(z, dtype=float) for z in (similarity, distances))
    if similarity.shape != distances.shape:
        raise ValueError(
            f"expected as many distances as similarities, got {similarity.shape} and {distances.shape}"
        )
    few = distances <= limit
    return EditBias(
        spearman(similarity, distances), spearman(similarity[few], distances[few]), int(few.sum())
    )
