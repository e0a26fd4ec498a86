"""One split of a dataset: columns of sentences and labels, and what was left out of its file."""

__all__ = ["KINDS", "SPLITS", "Dataset"]

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from .label_checks import check_texts, plain_column

KINDS = ("sentiment", "paraphrase", "similarity", "nli", "text")
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Dataset:
    """Hold one split of a dataset, column by column, in file order. A column of pandas, numpy or torch becomes a list.

    Raises ValueError for an unknown kind, columns of unequal length, or a sentence that is no text.
    """

    name: str  # "sst", "quora", ...
    split: str  # "train", "dev" or "test"
    kind: str  # one of KINDS
    sentences: list[str]  # N texts without surrounding blanks
    sentences2: list[str] | None = None  # N partners, in pair tasks
    labels: list | None = None  # N numbers: int class, float score; None: unlabelled
    ids: list[str] | None = None  # N ids; None: "0", "1", ...
    classes: tuple[str, ...] | None = None  # names of the classes; None: labels are scores
    scale: tuple[float, float] | None = None  # lowest and highest score
    sentences3: list[str] | None = None  # N partners that do not fit, in triplets
    subsets: list[str] | None = None  # N names of subsets, in STS12 to STS16
    # ("file:line", reason) of rows left out
    skipped: list[tuple[str, str]] = field(default_factory=list)
    # N makers of the labels; None: people. Others are for training only
    sources: list[str | None] | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"expected a kind of {KINDS}, got {self.kind!r}")
        for name, column in self._columns().items():
            object.__setattr__(self, name, plain_column(column))
        check_texts(self)
        if self.ids is None:
            object.__setattr__(self, "ids", [str(i) for i in range(len(self))])
        for name, column in self._columns().items():
            if len(column) != len(self):
                raise ValueError(f"expected {len(self)} {name}, got {len(column)}")

    def _columns(self) -> dict[str, list]:
        names = ("sentences", "sentences2", "sentences3", "labels", "ids", "subsets", "sources")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def __len__(self) -> int:
        return len(self.sentences)

    def subset(self, rows: Iterable[int]) -> "Dataset":
        """Keep some rows, in the order given; repeats are allowed."""
        rows = [int(i) for i in rows]
        return replace(self, **{name: [c[i] for i in rows] for name, c in self._columns().items()})

    def draw(self, rows: int, generator: torch.Generator) -> "Dataset":
        """Keep `rows` rows at random, none twice; all of them if there are fewer."""
        return self.subset(torch.randperm(len(self), generator=generator)[:rows])
