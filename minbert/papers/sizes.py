"""How many rows the published data sets have: a data folder with fewer holds a sample."""

from __future__ import annotations

__all__ = ["PUBLISHED_ROWS", "smaller_sets"]

from collections.abc import Iterable, Iterator

from ..data import load_dataset
from .recipe import Recipe
from .scale import Scale

PUBLISHED_ROWS = {  # at least; the course's Quora is a part of GLUE's
    "sst/train": 8_544,
    "sst/dev": 1_101,
    "sst5/test": 2_210,
    "cfimdb/train": 1_707,
    "cfimdb/dev": 245,
    "quora/train": 283_000,
    "quora/dev": 20_000,
    "sts/train": 6_040,
    "sts/dev": 863,
    "sts/test": 1_725,
    "stsb/train": 5_749,
    "stsb/dev": 1_500,
    "stsb/test": 1_379,
    "sickr/train": 4_500,
    "sickr/dev": 500,
    "sickr/test": 4_927,
    "sts12/test": 3_108,
    "sts13/test": 1_500,
    "sts14/test": 3_750,
    "sts15/test": 3_000,
    "sts16/test": 1_186,
    "mnli/train": 392_702,
    "mnli/dev": 9_815,
    "qnli/dev": 5_463,
    "duplicates/train": 149_000,
}


def smaller_sets(recipes: Iterable[Recipe], scale: Scale, data: str | None) -> Iterator[str]:
    """Describe each set that has fewer rows than were published, where the scale uses whole sets.

    A set that cannot be read is left to `missing_data`.
    """
    if data is None or scale.most_train is not None:
        return
    for need in dict.fromkeys(need for recipe in recipes for need in recipe.needs):
        try:
            found = load_dataset(*need.split("/"), data)
        except ValueError:
            continue
        rows, published = len(found) + len(found.skipped), PUBLISHED_ROWS[need]
        if rows < published:
            yield (
                f"{need} in {data} is a sample of {rows:,} rows; "
                f"the published set has {published:,} or more"
            )
