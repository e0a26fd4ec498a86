"""Seven public sets of graded pairs that nothing is trained on, and the text that a correction of
the vectors may see.
"""

from __future__ import annotations

__all__ = [
    "SETS",
    "DEV",
    "NEEDS",
    "Cached",
    "Through",
    "keep",
    "text_of",
    "nli_of",
    "nli_text",
    "on_target",
    "on_nli",
    "ranks",
    "by_cosine",
    "seven",
]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..baselines import words
from ..data import Dataset, available, load_dataset
from ..datasets.label_checks import sentences_of
from ..encoding.dense_layers import apply_dense
from ..encoding.embedding_cache import Remembered
from ..encoding.run_fingerprint import rows_checksum
from ..metrics import average_ranks
from ..sampling import seeded
from ..sentence import SentenceEncoder
from ..sts import aggregate_spearman
from .run import Answers, Run, labelled
from .unsupervised_stages import cosines

# name in the tables -> data set
SETS = {
    "STS-B": "stsb",
    "SICK-R": "sickr",
    **{f"STS-{year}": f"sts{year}" for year in range(12, 17)},
}
DEV = "unsup STS dev spearman"  # on the course's dev set
NEEDS = (
    *(f"{task}/{split}" for task in ("stsb", "sickr") for split in ("train", "dev", "test")),
    *(f"sts{year}/test" for year in range(12, 17)),
    "sts/train",
    "sts/dev",
)


class Encoder(Protocol):
    """Anything that gives one vector a sentence."""

    def encode(self, sentences: list[str]) -> Tensor: ...


class Cached(Remembered):
    """An encoder that remembers, however many sets hold a sentence; its name is that of what is
    fitted on its vectors.
    """

    def __init__(self, encoder: SentenceEncoder, name: str = "encoder"):
        super().__init__(encoder)
        self.width, self.name = encoder.width, name


@dataclass(frozen=True)
class Through:
    """An encoder, and a map behind it: a calibration or a flow."""

    encoder: Encoder
    transform: nn.Module

    @torch.no_grad()
    def encode(self, sentences: list[str]) -> Tensor:  # (N, K) float32
        """Encode, and move the vectors."""
        return apply_dense(self.encoder.encode(sentences), self.transform)


# the last four: recipes come back to an encoder, and the text of seven sets is long
_KEPT: dict[tuple, Cached] = {}


def keep(run: Run, name: str, encoder: SentenceEncoder) -> Cached:
    """Give an encoder the vectors that it made in an earlier recipe, if that was the same encoder
    of the same run.
    """
    key = (str(run.out), run.data, run.scale.name, run.seed, name)
    _KEPT[key] = _KEPT.pop(key, None) or Cached(encoder, name)  # the last used stands last
    while len(_KEPT) > 4:
        del _KEPT[next(iter(_KEPT))]
    return _KEPT[key]


def text_of(run: Run, task: str) -> list[str]:
    """List the sentences of a set, all splits that are there, as often as they stand there; no
    label is read.
    """
    text = [
        s
        for split in available(run.data).get(task, ())
        for s in sentences_of(labelled(f"{task}/{split}", run.data))
    ]
    return run.read_text(f"text of {task}", text)


def nli_sets(run: Run) -> list[Dataset]:  # one or two
    """Read the train splits of SNLI and MNLI that are there, and note their checksums; captions of
    the package stand for a missing SNLI.
    """
    there = [name for name, splits in available(run.data).items() if "train" in splits]
    names = ("snli" if "snli" in there else "inference", *(["mnli"] if "mnli" in there else []))
    found = [load_dataset(name, "train", run.data) for name in names]
    run.examples |= {f"{data.name}/train": rows_checksum(data) for data in found}
    return found


WHOLE = {"snli": 549_367, "mnli": 392_702}  # labelled train rows, as published


def nli_of(run: Run) -> tuple[list[Dataset], str]:
    """Read the NLI sets of a run, and give them a name that tells which of them is no published
    set.

    Raises ValueError at the paper's scale, where nothing may stand in for these.
    """
    sets, names = nli_sets(run), []
    for found in sets:
        whole = len(found) >= 0.99 * WHOLE.get(found.name, math.inf)
        names.append(
            found.name
            if whole
            else f"a sample of {found.name}"
            if found.name in WHOLE
            else "captions of the package in place of snli"
        )
        if not whole and run.scale.name == "paper" and run.data:
            task = found.name if found.name in WHOLE else "snli"
            raise ValueError(
                f"expected the {WHOLE[task]:,} train rows of {task} at scale paper, got {names[-1]}, {len(found):,} rows: "
                f"`minbert data {task} --data {run.data} --download` fetches it"
            )
    if run.scale.printed and run.data and "mnli" not in names:
        raise ValueError(
            f"expected the train splits of snli and mnli in {run.data} at scale {run.scale.name}, got {' and '.join(names)}"
        )
    return sets, " and ".join(names)


def nli_text(run: Run, share: float) -> list[str]:
    """Draw that share of the sentences of SNLI and MNLI, labels unseen; at most as many as the
    scale allows. The run notes which text it was.
    """
    sets, name = nli_of(run)
    text = [s for data in sets for s in sentences_of(data)]
    order = torch.randperm(len(text), generator=seeded("nli text")).tolist()
    drawn = [text[i] for i in order[: min(run.scale.most_text, max(2, round(share * len(text))))]]
    run.texts[name] = len(drawn)
    return drawn


def on_target(
    run: Run, vectors: Encoder, fit: Callable[[list[str]], nn.Module]
) -> Callable[[str], Encoder]:
    """Fit a map for each set on the sentences of that set."""
    return lambda task: Through(vectors, fit(text_of(run, task)))


def on_nli(
    run: Run, vectors: Encoder, fit: Callable[[list[str]], nn.Module], share: float = 1.0
) -> Callable[[str], Encoder]:
    """Fit one map for all sets on sentences of the NLI sets."""
    through = Through(vectors, fit(nli_text(run, share)))
    return lambda task: through


def ranks(values) -> list[float]:
    """Keep the order alone: all scores here are of order, and cosines near 1 would be equal once
    their digits are cut.
    """
    return average_ranks(values).tolist()


def by_cosine(look: Callable[[str], Encoder]) -> Callable[[str, Dataset], list[float]]:
    """Answer with cosines; `look(task)` gives the encoder for that set."""
    return lambda task, data: cosines(look(task), data)


def _pairs(data: Dataset) -> list[frozenset]:
    return [
        frozenset((" ".join(words(a)), " ".join(words(b))))
        for a, b in zip(data.sentences, data.sentences2)
    ]


def _wmean(data: Dataset, values) -> float:
    return aggregate_spearman(values, data.labels, data.subsets or [data.name] * len(data), "wmean")


def unseen(run: Run, task: str, values: list[float]) -> float:
    """Score the pairs of a year that are not in the dev set of STS-B, on which hyper-parameters
    were chosen.
    """
    rest = unseen_pairs(f"{task}/test", run.data)
    return _wmean(labelled(f"{task}/test", run.data).subset(rest), np.asarray(values)[rest])


def unseen_pairs(name: str, data: str | None) -> list[int]:
    """Number the pairs of a set, such as "sts12/test", that are not in the dev set of STS-B."""
    chosen_on = set(_pairs(labelled("stsb/dev", data)))
    return [i for i, pair in enumerate(_pairs(labelled(name, data))) if pair not in chosen_on]


def seven(run: Run, answer: Callable[[str, Dataset], list[float]]) -> dict[str, Answers | float]:
    """Answer to all pairs of all test sets, and to the course's dev set; "average" is the plain
    mean of the seven, as in the paper's text.
    """
    sets = {key: labelled(f"{task}/test", run.data) for key, task in SETS.items()}
    values = {key: ranks(answer(SETS[key], data)) for key, data in sets.items()}
    found = {
        key: Answers(f"{SETS[key]}/test", "wmean" if sets[key].subsets else "spearman", v)
        for key, v in values.items()
    }
    found |= {
        f"{key} less STS-B dev": unseen(run, SETS[key], v)
        for key, v in values.items()
        if sets[key].subsets
    }
    dev = Answers(
        run.part("sts", "dev"), "spearman", ranks(answer("sts", run.dataset("sts", "dev")))
    )
    return found | {
        DEV: dev,
        "average": float(np.mean([_wmean(sets[key], v) for key, v in values.items()])),
    }
