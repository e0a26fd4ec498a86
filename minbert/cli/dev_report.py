"""Notes about dev examples: overlap with the training set, scales of scores, and the bag-of-words
baseline.
"""

from __future__ import annotations

__all__ = ["seen_in_training", "scale_notes", "against_words"]

from collections.abc import Iterator, Mapping

import torch

from minbert.baselines import BagOfWords
from minbert.cli.labelled_model import HIGH, LOW, OutputLabels
from minbert.cli.retrieval_eval import plain
from minbert.data import Dataset
from minbert.evaluate import metric_of
from minbert.heads import MultitaskBert
from minbert.metrics import paired_bootstrap


def seen_in_training(
    train: Dataset,  # what is learned from
    dev: Dataset,  # what is measured on
) -> int:  # rows of dev
    """Count the rows whose text training reads as well, label or no label: what they measure is no
    new text. Case and blanks do not count.
    """

    def texts(data):
        return [
            tuple(map(plain, row))
            for row in zip(data.sentences, *([data.sentences2] if data.sentences2 else []))
        ]

    known = {*texts(train)}
    return sum(text in known for text in texts(dev))


def scale_notes(
    train_sets: Mapping[str, Dataset],  # task -> train split
    dev_sets: Mapping[str, Dataset],  # the same tasks
    own: Mapping[str, OutputLabels],  # of the tasks that have a scale of their own
) -> Iterator[str]:
    """Say of which similarity tasks the train and dev scores seem to be on different scales."""
    usual = OutputLabels(scale=(LOW, HIGH))
    for task, train in train_sets.items():
        if train.kind == "similarity":
            yield from _scale_note(train, dev_sets[task], own.get(task, usual))


def _scale_note(train, dev, answers):
    """Compare the ranges of scores as a head learns them, LOW to HIGH.

    Dev scores are probably on another scale if they are a tenth beyond that of the train file, or
    if one range is less than a quarter of the other.
    """
    (low, high), (first, last) = ((min(data.labels), max(data.labels)) for data in (train, dev))
    beyond = max(LOW - first, last - HIGH) > (HIGH - LOW) / 10
    narrow = 4 * min(high - low, last - first) < max(high - low, last - first)
    if beyond or narrow:
        ranges = [f"{answers.shrunk(end):g}" for end in (low, high, first, last)]
        yield (
            f"note: the scores of {train.name} reach from {ranges[0]} to {ranges[1]} in the train file and from {ranges[2]} to "
            f"{ranges[3]} in the {dev.split} file: if these are two scales, the model answers on the first one"
        )


def against_words(
    model: MultitaskBert,
    task: str,
    train: Dataset,  # what the model learned from
    dev: Dataset,  # labelled
    most: int = 20000,  # rows that the bag learns from; more would cost it minutes
) -> str:  # a line
    """Hold a model against the bag of words of chapter 12, on the same rows of dev."""
    rows = train.draw(most, torch.Generator().manual_seed(11711))
    try:
        bag = BagOfWords().fit(rows).predict(dev)
    except ValueError as error:  # signs without a word
        return f"{task}: no bag of words to compare with: {error}"
    if dev.classes is None and len({*map(float, bag)}) < 2:  # no correlation
        return f"{task}: no bag of words to compare with: it gives all dev rows the same answer"
    value, low, high = paired_bootstrap(
        metric_of(dev)[1], model.predict(task, dev), dev.labels, bag
    )[:3]
    return (
        f"{task}: a bag of words that learned from {'the same' if len(rows) == len(train) else f'{most:,} of these'} rows has "
        f"{metric_of(dev)[1](bag, dev.labels):.3f}; the model minus the bag {value:+.3f} (95 % interval {low:+.3f} to {high:+.3f}, examples only)"
    )
