"""Evaluation on semantic textual similarity (STS): Spearman correlation of cosines and similarity
scores on the seven public sets, and word overlap as a baseline. Chapter 14 explains the protocol.
"""

__all__ = [
    "STS_TASKS",
    "aggregate_spearman",
    "unique_sentences",
    "gold_labels",
    "load_sts",
    "score_sts",
    "evaluate_sts",
    "sts_table",
    "word_overlap",
    "sts_by_pooling",
]

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .core.devices import to_device
from .core.eval_mode import evaluating
from .core.finite_checks import check_finite
from .data import Dataset, available, load_dataset
from .encoder import BertModel
from .encoding.forward import encode_batch
from .metrics import as_vectors, spearman
from .sentence import POOLINGS, SentenceEncoder, pool, safe_cosine
from .tokens import encode_ids, load_tokenizer, token_batches


def aggregate_spearman(
    scores,  # (N,) similarities
    labels,  # (N,) similarity scores
    groups: Sequence,  # N subset names
    aggregate: str = "all",  # "all" | "mean" | "wmean"
) -> float:  # in [-1, 1]; NaN with a warning if a correlation it needs is undefined
    """Turn the subsets of one STS year into one Spearman correlation.

    all: one correlation over all pairs. mean: of the subsets. wmean: weighted by subset size.
    Paper: Reimers and Gurevych (2019) use all; Conneau and Kiela (2018) mean, with Pearson;
    Li et al. (2020) wmean.
    Raises ValueError for another `aggregate`, unequal lengths or NaN.
    """
    if aggregate not in ("all", "mean", "wmean"):
        raise ValueError(f"expected aggregate 'all', 'mean' or 'wmean', got {aggregate!r}")
    x, y = as_vectors(scores, labels)
    if len(groups) != len(x):
        raise ValueError(f"expected {len(x)} groups, got {len(groups)}")
    if aggregate == "all":
        return spearman(x, y)
    names, inverse, sizes = np.unique(
        np.asarray([*groups], dtype=str), return_inverse=True, return_counts=True
    )
    values = [spearman(x[inverse == g], y[inverse == g]) for g in range(len(names))]
    return float(np.average(values, weights=sizes if aggregate == "wmean" else None))


def unique_sentences(
    datasets: dict[str, Dataset],  # pair datasets by name
) -> tuple[
    list[str], dict[str, Tensor]
]:  # U different sentences; name -> (2, N) int64 rows of them
    """List every different sentence once, and say for each pair which two rows it needs.

    Raises ValueError if a dataset holds no pairs.
    """
    row, pairs = {}, {}
    for name, data in datasets.items():
        if data.sentences2 is None:
            raise ValueError(f"expected sentence pairs in {name}, got single sentences")
        first = [row.setdefault(sentence, len(row)) for sentence in data.sentences]
        second = [row.setdefault(sentence, len(row)) for sentence in data.sentences2]
        pairs[name] = torch.tensor([first, second], dtype=torch.int64)
    return list(row), pairs


def gold_labels(
    dataset: Dataset,
) -> list:  # N numbers
    """Return the labels to measure against; ValueError if there are none, or a machine made some of them."""
    if dataset.labels is None:
        raise ValueError(f"expected labels in {dataset.name} {dataset.split}, got none")
    if machines := sorted({source for source in dataset.sources or () if source}):
        raise ValueError(
            f"expected labels made by people in {dataset.name} {dataset.split}, got some by "
            f"{', '.join(machines)}: train on them, do not measure on them"
        )
    return dataset.labels


STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


def load_sts(
    folder: str
    | Path
    | None = None,  # data folder; None: the embedded data, which have `similarity` and a grammar's `stsb`
    tasks: Sequence[str] = STS_TASKS,  # which sets
    split: str = "test",  # one of data.SPLITS
) -> dict[str, Dataset]:  # in the order of `tasks`
    """Load sets of scored pairs.

    Raises ValueError for a bare str or no name at all, and naming every set that is missing or cannot be read.
    """
    if isinstance(tasks, str) or not tasks:
        raise ValueError(f"expected a tuple of names as tasks, at least one, got {tasks!r}")
    found, missing = {}, {}
    for task in tasks:
        try:
            found[task] = load_dataset(task, split, folder)
            gold_labels(found[task])
        except ValueError as error:
            missing[task] = str(error)
    if missing:
        why = "; ".join(f"{task} ({error})" for task, error in missing.items())
        raise ValueError(
            f"expected {', '.join(tasks)} in {folder or 'the embedded data'}, "
            f"got no {why}. Name the sets you have with tasks=."
        )
    return found


def score_sts(
    vectors: Tensor,  # (U, D) float, one row per sentence of `unique_sentences`
    pairs: dict[str, Tensor],  # name -> (2, N) rows
    datasets: dict[str, Dataset],  # name -> scored pairs
    aggregate: str = "all",  # how subsets are added up, see `aggregate_spearman`
) -> dict[str, float]:  # Spearman by name, then "average": their plain mean
    """Correlate the cosines of sentence vectors with similarity scores of annotators.

    Raises ValueError for vectors with NaN, or a dataset without labels.
    """
    check_finite(vectors, "sentence vectors")
    scores = {}
    for name, (i, j) in pairs.items():
        data = datasets[name]
        cosine = safe_cosine(vectors[i], vectors[j])  # (N,)
        groups = data.subsets or [name] * len(data)
        scores[name] = aggregate_spearman(cosine, gold_labels(data), groups, aggregate)
    scores["average"] = float(np.mean(list(scores.values())))
    return scores


def evaluate_sts(
    encoder: SentenceEncoder,  # anything with .encode(list of str) -> (N, D) float tensor
    folder: str | Path | None = None,  # data folder; None: the embedded data
    aggregate: str = "all",  # "all" | "mean" | "wmean"
    tasks: Sequence[str] = STS_TASKS,  # which sets
    split: str = "test",  # one of data.SPLITS
) -> dict[str, float]:  # Spearman by task, then "average": their plain mean
    """Measure an encoder on semantic similarity, without any training.

    Each different sentence of all sets is encoded once.
    Paper: Gao et al. (2021), appendix B.
    Differs: SentEval itself trains a regressor on STS-B and SICK-R; here every set uses the cosine.
    Raises ValueError naming the sets that are missing.
    """
    datasets = load_sts(folder, tasks, split)
    sentences, pairs = unique_sentences(datasets)
    return score_sts(encoder.encode(sentences), pairs, datasets, aggregate)


def sts_table(
    encoder: SentenceEncoder,  # as in `evaluate_sts`
    folder: str | Path | None = None,  # data folder; None: the embedded data
    tasks: Sequence[str]
    | None = None,  # None: every similarity set of the folder that has the split; of the package, the open captions
    split: str = "test",  # one of data.SPLITS
    aggregate: str = "all",  # "all" | "mean" | "wmean"
) -> str:  # one line a set, and their average
    """Score an encoder on sets of scored pairs, and say over how many sets the average goes.

    Raises ValueError if the folder has none of the sets.
    """
    there = available(folder)
    known = STS_TASKS if folder else ("similarity",)
    tasks = tuple(dict.fromkeys(tasks or [name for name in known if split in there.get(name, ())]))
    if not tasks:
        raise ValueError(
            f"expected a {split} split of {', '.join(known)} in {folder or 'the embedded data'}, found none"
        )
    lines = [
        f"{name:10s} {score:.4f}"
        for name, score in evaluate_sts(encoder, folder, aggregate, tasks, split).items()
    ]
    return "\n".join([*lines[:-1], f"{lines[-1]}  of {len(tasks)}"])


def word_overlap(
    first: Sequence[str],  # N sentences
    second: Sequence[str],  # N sentences
) -> np.ndarray:  # (N,) float64 in [0, 1]; 0 if neither has a word
    """Divide the number of words two sentences share by the number of words in either.

    Raises ValueError if the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"expected pairs, got {len(first)} and {len(second)} sentences")
    overlaps = np.zeros(len(first))
    for n, (a, b) in enumerate(zip(first, second)):
        words = set(re.findall(r"\w+", a.lower()))
        others = set(re.findall(r"\w+", b.lower()))
        overlaps[n] = len(words & others) / max(len(words | others), 1)
    return overlaps


@torch.no_grad()
def sts_by_pooling(
    name_or_folder: str | Path | BertModel | None,  # None: the embedded model
    dataset: Dataset,  # scored pairs, labelled
    tokenizer=None,  # None: the one in the folder
) -> dict[str, float]:  # pooling -> Spearman of cosine and similarity score, in [-1, 1]
    """Rank scored pairs by the cosine of their vectors, once for each pooling, in eval mode.

    Raises ValueError if a bare model comes without its tokenizer.
    """
    model = name_or_folder
    if isinstance(model, BertModel) and tokenizer is None:
        raise ValueError("expected a tokenizer together with a BertModel, got None")
    if not isinstance(model, BertModel):
        model = BertModel.from_pretrained(name_or_folder)
    ids = encode_ids(
        tokenizer or load_tokenizer(name_or_folder),
        [*dataset.sentences, *dataset.sentences2],
        min(512, model.config.max_position_embeddings),
    )
    vectors = {how: torch.empty(len(ids), model.config.hidden_size) for how in POOLINGS}
    with evaluating(model):
        for rows, batch in token_batches(ids, pad_id=model.config.pad_token_id):
            batch = to_device(batch, model.pooler_dense.weight.device)
            out = encode_batch(
                model, *batch, output_hidden_states=True, packed=False
            )  # serves all poolings
            for how in POOLINGS:
                vectors[how][rows] = pool(
                    out.hidden_states, batch.attention_mask, how, out.pooler_output
                ).cpu()
    return {how: spearman(safe_cosine(*v.chunk(2)), dataset.labels) for how, v in vectors.items()}
