"""Evaluating sentence embeddings before and after training: retrieval of partners, correlation with
scores, and the lexical-overlap baseline.
"""

from __future__ import annotations

__all__ = [
    "Comparison",
    "compare_on",
    "held_out",
    "learned_from",
    "plain",
    "partner_ranks",
    "cosines",
    "shared_words",
]

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from minbert.baselines import words
from minbert.data import Dataset
from minbert.metrics import paired_bootstrap, spearman
from minbert.negatives import clusters, score_matrix

_SPEARMAN = "Spearman of score and grade"
# (n sentences, m sentences) -> (n, m) scores
Way = Callable[[Sequence[str], Sequence[str]], np.ndarray]


def held_out(
    pairs: Dataset,  # two columns or three
    most: int,  # pairs to measure on, at most
    seed: int,  # of the choice
) -> tuple[Dataset, Dataset]:  # to learn from; to measure on: none, or at least two
    """Take pairs out for measuring, one of a cluster: no chain of shared sentences leads from it to
    a pair that is learned from.

    Nor is its sentence a wrong one, in the third column, of what is learned from. All this costs at
    most a tenth of the rows: clusters that cost more than is left are learned from.
    """
    groups = clusters(pairs.sentences, pairs.sentences2).tolist()
    touched = _touched(pairs, groups)
    cost = Counter(group for row in touched for group in row)
    room, kept = len(pairs) // 10, set()
    for group in torch.randperm(
        max(groups) + 1, generator=torch.Generator().manual_seed(seed)
    ).tolist():
        if len(kept) < most and cost[group] <= room:
            kept.add(group)
            room -= cost[group]
    kept = kept if len(kept) > 1 else set()  # who is alone is always the nearest
    first = {group: row for row, group in reversed(list(enumerate(groups)))}
    return pairs.subset(row for row, found in enumerate(touched) if not found & kept), pairs.subset(
        sorted(first[group] for group in kept)
    )


def _touched(pairs, groups):
    """Give each row the clusters that its sentences are in: its own, and that of its third
    sentence, if this is a partner elsewhere.
    """
    where = _places(pairs, groups)
    return [
        {own, where.get(plain(text), own)}
        for own, text in zip(groups, pairs.sentences3 or pairs.sentences)
    ]


def plain(text: str) -> str:
    """Read a sentence as `clusters` does: case and blanks do not count."""
    return " ".join(text.casefold().split())


def _places(pairs, groups):
    """Say in which cluster each sentence is."""
    return {
        plain(text): group
        for column in (pairs.sentences, pairs.sentences2)
        for text, group in zip(column, groups)
    }


def learned_from(
    graded: Dataset,  # pairs to measure on
    rows: Dataset,  # what is learned from; single sentences tell nothing about pairs
) -> int:  # pairs
    """Count the graded pairs whose sentences the training calls partners, directly or by a chain:
    what they measure is no new text.
    """
    if rows.sentences2 is None:
        return 0
    where = _places(rows, clusters(rows.sentences, rows.sentences2).tolist())
    return sum(
        where.get(plain(a), -1) == where.get(plain(b), -2)
        for a, b in zip(graded.sentences, graded.sentences2)
    )


def cosines(encoder) -> Way:
    """Score by the vectors of an encoder as it is when it is asked."""
    return lambda first, second: score_matrix(encoder.encode(first), encoder.encode(second)).numpy()


def shared_words(text: Sequence[str]) -> Way:
    """Score by the words that two sentences share, weighted by how rare they are in a text
    (scikit-learn's TF-IDF).

    What is not in the text does not count. Where a sentence has no words, signs between blanks are
    taken for them.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(analyzer=lambda sentence: words(sentence) or sentence.split()).fit(
        text
    )
    return lambda first, second: (counted.transform(first) @ counted.transform(second).T).toarray()


def partner_ranks(
    scores: np.ndarray,  # (N, N), row i has its partner in column i
    # (N,) float64, 1 for the nearest; what is as near as the partner stands before it
) -> np.ndarray:
    """Count how many are at least as near as the partner."""
    return (scores >= scores.diagonal()[:, None]).sum(1).astype(float)


def _pair_by_pair(way, pairs):
    """Score each pair alone: the diagonal of all with all, a block of 128 at a time."""
    blocks = (slice(start, start + 128) for start in range(0, len(pairs), 128))
    return np.concatenate([way(pairs.sentences[b], pairs.sentences2[b]).diagonal() for b in blocks])


def _mean(found, _):
    return float(found.mean())


def compare_on(
    text: Dataset,  # one column, two or three
    graded: Dataset | None,  # pairs with labels
    most: int,  # as in `held_out`
    seed: int,  # as in `held_out`
) -> tuple[Dataset, Comparison]:  # rows to learn from; what is measured, the line to beat in it
    """Hold pairs out where there are some, and let shared words score them and the graded ones: a
    word counts that only one held-out pair has.
    """
    rows, partners = (text, None) if text.sentences2 is None else held_out(text, most, seed)
    comparison = Comparison(partners, graded)
    if comparison:
        columns = [
            column
            for part in (text, graded)
            if part
            for column in (part.sentences, part.sentences2)
            if column
        ]
        comparison.add("shared words", shared_words(sum(columns, [])))
    return rows, comparison


class Comparison:
    """What is found on the same pairs by several ways to score; the last two of them are held
    against each other.
    """

    def __init__(
        self,
        partners: Dataset | None,  # N pairs of which no two mean the same, from `held_out`
        graded: Dataset | None,  # pairs with labels
    ):
        self.partners, self.graded = partners, graded
        self.found: dict[str, dict[str, np.ndarray]] = {
            "partner is nearest": {},
            "mean reciprocal rank": {},
            _SPEARMAN: {},
        }

    def __bool__(self) -> bool:
        return bool(self.partners or self.graded)

    def add(self, name: str, way: Way) -> None:
        """Measure one more way."""
        nearest, rank, grade = self.found.values()
        if self.partners:
            ranks = partner_ranks(way(self.partners.sentences, self.partners.sentences2))
            nearest[name], rank[name] = (ranks == 1).astype(float), 1 / ranks
        if self.graded:
            grade[name] = _pair_by_pair(way, self.graded)

    def table(self) -> str:  # Markdown; one line a way, then the last minus the one before it
        """Write every figure with its interval, drawn over the pairs."""
        measured = {title: found for title, found in self.found.items() if found}
        *_, before, after = names = list(next(iter(measured.values())))
        rows = {name: [self._interval(title, name) for title in measured] for name in names}
        gaps = [self._interval(title, after, before) for title in measured]

        def cells(found, sign):
            return " | ".join(
                f"{v:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})" for v, low, high, *_ in found
            )

        lines = [
            f"| {self._sizes()}; 95 % intervals, examples only | " + " | ".join(measured) + " |",
            "|---" * (1 + len(measured)) + "|",
        ]
        lines += [f"| {name} | {cells(found, '')} |" for name, found in rows.items()]
        lines.append(f"| {after} minus {before} | {cells(gaps, '+')} |")
        return "\n".join(lines)

    def _sizes(self):
        """Say on how many pairs."""
        told = {"held out": self.partners, "graded": self.graded}
        return ", ".join(f"{len(pairs):,} pairs {how}" for how, pairs in told.items() if pairs)

    def _interval(self, title, name, other=None):
        """Bootstrap over pairs."""
        found, graded = self.found[title], title == _SPEARMAN
        labels = self.graded.labels if graded else np.zeros(len(self.partners))
        return paired_bootstrap(
            spearman if graded else _mean,
            found[name],
            labels,
            None if other is None else found[other],
        )
