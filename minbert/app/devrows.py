"""What the dev rows of one's own can tell: are they new text, and how far do words alone go on them?"""
from __future__ import annotations

__all__ = ["seen_in_training", "against_words"]

import torch

from minbert.app.partners import plain
from minbert.baselines import BagOfWords
from minbert.data import Dataset
from minbert.evaluate import metric_of
from minbert.heads import MultitaskBert
from minbert.metrics import paired_bootstrap


def seen_in_training(
    train: Dataset,   # what is learned from
    dev: Dataset,     # what is measured on
) -> int:             # rows of dev
    """Count the rows whose text training reads as well, label or no label: what they measure is no new text. Case and blanks do not count."""
    texts = lambda data: [tuple(map(plain, row)) for row in zip(data.sentences, *([data.sentences2] if data.sentences2 else []))]
    known = {*texts(train)}
    return sum(text in known for text in texts(dev))


def against_words(
    model: MultitaskBert,
    task: str,
    train: Dataset,     # what the model learned from
    dev: Dataset,       # labelled
    most: int = 20000,  # rows that the bag learns from; more would cost it minutes
) -> str:               # a line
    """Hold a model against the bag of words of chapter 19, on the same rows of dev."""
    rows = train.draw(most, torch.Generator().manual_seed(11711))
    try:
        bag = BagOfWords().fit(rows).predict(dev)
    except ValueError as error:   # signs without a word
        return f"{task}: no bag of words to compare with: {error}"
    if dev.classes is None and len({*map(float, bag)}) < 2:   # no correlation
        return f"{task}: no bag of words to compare with: it gives all dev rows the same answer"
    value, low, high = paired_bootstrap(metric_of(dev)[1], model.predict(task, dev), dev.labels, bag)[:3]
    return (f"{task}: a bag of words that learned from {'the same' if len(rows) == len(train) else f'{most:,} of these'} rows has "
            f"{metric_of(dev)[1](bag, dev.labels):.3f}; the model minus the bag {value:+.3f} (95 % interval {low:+.3f} to {high:+.3f}, examples only)")
