"""Published splits and subsets that public copies lack, stored as checksums of the pairs.

These are facts about the rows, not their text.
"""

from __future__ import annotations

__all__ = ["SPLITS_OF", "pair_key", "course_splits", "sick_splits", "with_subsets"]

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from ..core.files import quoted
from .formats import read_rows

SPLITS_OF = Path(
    str(resources.files("minbert") / "assets" / "splits")
)  # written by scripts/published_splits.py


SICK_TEST = 4_927  # pairs of its test set


class CourseRow(NamedTuple):
    """Where a row of STS-B stands in the course's files."""

    split: str
    index: int  # number of the row in STS-B: train, dev, test
    id: str
    key: str


def pair_key(
    first: str,
    second: str,
    score: float | None = None,  # tells apart pairs of one text
) -> str:  # 10 hexadecimal digits
    """Give the checksum of a pair; case, blanks and punctuation, in which copies differ, do not
    count.
    """
    bare = [re.sub(r"\W+", "", text.lower()) for text in (first, second)]
    parts = bare if score is None else [*bare, f"{score:.3f}"]
    return hashlib.sha256("\t".join(parts).encode()).hexdigest()[:10]


@cache
def split_table(name: str) -> list[list[str]]:  # rows below the header
    """Read one of the stored tables."""
    return [cells for _, cells in read_rows(SPLITS_OF / f"{name}.tsv.gz")[1:]]


def course_splits(
    rows: Iterable[list],  # (sentence1, sentence2, score) of STS-B: train, dev, test
) -> dict[
    str, list[list]
]:  # split -> (index, id, sentence1, sentence2, score) in the course's order
    """Cut STS-B as the course does. Raises ValueError for a missing pair, or one too many."""
    known = [
        CourseRow(split, int(index), name, key) for split, index, name, key in split_table("sts")
    ]
    found = _found(rows, lambda row: pair_key(*row[:2]))
    chosen = {
        row.index: _taken(found, row.key, f"row {row.index} of STS-B")
        for row in sorted(known, key=lambda row: row.index)
    }
    _check_none_left(found, "STS-B")
    splits: dict[str, list[list]] = defaultdict(list)
    for row in known:
        splits[row.split].append([row.index, row.id, *chosen[row.index]])
    return splits


def sick_splits(
    rows: Iterable[list],  # (sentence1, sentence2, score) of all of SICK
) -> dict[str, list[list]]:  # split -> the same
    """Cut SICK as SemEval 2014 does: 4,500 pairs for training, 500 for dev, the rest for the test.

    Raises ValueError if a pair is missing, or the rest has another size than published.
    """
    found, splits = _found(rows, lambda row: pair_key(*row)), {"train": [], "dev": []}
    for split, key in split_table("sick"):
        splits[split].append(_taken(found, key, f"a {split} pair of SICK"))
    rest = {id(row) for left in found.values() for row in left}
    ordered = [row for row in rows if id(row) in rest]
    if len(ordered) != SICK_TEST:
        raise ValueError(f"expected {SICK_TEST:,} test pairs of SICK, got {len(ordered):,}")
    return splits | {"test": ordered}


def with_subsets(
    name: str,  # "sts12"
    rows: list[list],  # (sentence1, sentence2, score)
) -> list[list]:  # (sentence1, sentence2, score, subset)
    """Say of each pair of a year to which subset it belongs.

    A pair whose text differs a little takes the subset of its neighbours, if both have the same
    one. Raises ValueError for a pair that stays unknown, and for subsets of another size than
    published.
    """
    of_year = [(key, subset) for year, subset, key in split_table("years") if year == name]
    subset_of, sizes = dict(of_year), defaultdict(int)
    for _, subset in of_year:
        sizes[subset] += 1
    found = [subset_of.get(pair_key(*row[:2])) for row in rows]
    for i, subset in enumerate(found):
        if subset is None:
            found[i] = _between(found, i)
        if found[i] is None:
            raise ValueError(
                f"{name}: expected a published pair, got {quoted(rows[i], 80)} at row {i}"
            )
    for subset, size in sizes.items():
        if found.count(subset) != size:
            raise ValueError(
                f"{name}: expected {size:,} pairs of {subset}, got {found.count(subset):,}"
            )
    return [[*row, subset] for row, subset in zip(rows, found)]


def _between(found, i):
    """Give the subset of the nearest known neighbours, None where they differ."""
    after = next((subset for subset in found[i + 1 :] if subset is not None), None)
    before = found[i - 1] if i else after
    return before if after in (before, None) else None


def _found(rows: Iterable[list], key: Callable[[list], str]) -> dict[str, deque]:
    """Group rows by key, in their order."""
    found: dict[str, deque] = defaultdict(deque)
    for row in rows:
        found[key(row)].append(row)
    return found


def _taken(found, key, what):
    """Take the next row of a key. Raises ValueError if there is none."""
    if not found[key]:
        raise ValueError(f"expected {what} (checksum {key}), got no pair with this text")
    return found[key].popleft()


def _check_none_left(found, what):
    left = [row for rows in found.values() for row in rows]
    if left:
        raise ValueError(
            f"expected the published pairs of {what}, got {len(left):,} more, "
            f"such as {quoted(left[0], 80)}"
        )
