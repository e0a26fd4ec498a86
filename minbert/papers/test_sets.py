"""The test rows of the two reports: what of the course's test sets has labels in other public
files.
"""

from __future__ import annotations

__all__ = ["TEST_NEEDS", "TEST_DIFFERS", "course_test_pairs", "on_test"]

import re

from ..data import Dataset, load_dataset
from ..heads import MultitaskBert
from ..metrics import pearson
from .run import Answers, Run

TEST_NEEDS = (
    "sst5/test",
    "sts/train",
    "sts/dev",
    "sts/test",
    "stsb/train",
    "stsb/dev",
    "stsb/test",
)
TEST_DIFFERS = (
    "SST: the same 2,210 sentences, in lower case; STS: those of the course's pairs that have a grade in STS-B and are in neither its train nor its "
    "dev set (1,433 of 1,725); no Quora, and so no average: its labels are not public"
)


def _pairs(data: Dataset) -> list[tuple[str, str]]:
    """Pairs without case, blanks and punctuation: STS-B is in lower case and cut into words, the
    course's file is not.
    """

    def bare(text):
        return re.sub(r"\W+", "", text.lower())

    return [(bare(a), bare(b)) for a, b in zip(data.sentences, data.sentences2)]


def course_test_pairs(
    data: str | None,
    # the pairs, and their grades in [0, 5]
) -> tuple[Dataset, list[float]]:
    """Find grades for the course's STS test pairs in STS-B, of which they are a part; pairs that
    the course trains or chooses on are left out.
    """
    grades = {}
    for split in ("train", "dev", "test"):
        part = load_dataset("stsb", split, data)
        for pair, grade in zip(_pairs(part), part.labels):
            grades.setdefault(pair, grade)  # a pair that is there twice has its first grade
    seen = {pair for split in ("train", "dev") for pair in _pairs(load_dataset("sts", split, data))}
    test = load_dataset("sts", "test", data)
    pairs = _pairs(test)
    rows = [i for i, pair in enumerate(pairs) if pair in grades and pair not in seen]
    return test.subset(rows), [grades[pairs[i]] for i in rows]


def on_test(run: Run, model: MultitaskBert) -> dict[str, Answers | float]:
    """Ask a tuned model with heads `sst` and `sts`. The grades are put together here, so that their
    correlation is a plain number.
    """
    pairs, grades = course_test_pairs(run.data)
    answers = model.predict("sst", run.dataset("sst5", "test")).tolist()
    return {
        "SST test acc": Answers(run.part("sst5", "test"), "accuracy", answers),
        "STS test pearson": pearson(model.predict("sts", pairs), grades),
    }
