"""Bag-of-words baselines: IDF-weighted word overlap of two sentences, and TF-IDF with logistic
regression. Chapter 12 explains them.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import partial

import numpy as np

from minbert.core.extras import needs
from minbert.data import Dataset

__all__ = ["words", "idf_weights", "idf_overlap", "BagOfWords"]


def words(
    text: str,  # a sentence
) -> list[str]:  # in lower case, without punctuation
    """Split a sentence into words."""
    return re.findall(r"\w+", text.lower())


def idf_weights(
    sentences: Iterable[str],  # N of them, of the training set
) -> dict[str, float]:  # word -> weight, at least 1; the key "" has the weight of unknown words
    """Compute the inverse document frequency of each word.

    idf(w) = 1 + ln((1 + N) / (1 + number of sentences with w))
    Paper: Sparck Jones (1972). Differs: smoothed as in scikit-learn.
    Raises ValueError if there is no sentence.
    """
    bags = [set(words(sentence)) for sentence in sentences]
    if not bags:
        raise ValueError("expected at least one sentence to count words in, got none")
    counts = Counter(word for bag in bags for word in bag)
    counts[""] = 0
    return {word: 1 + np.log((1 + len(bags)) / (1 + count)) for word, count in counts.items()}


def idf_overlap(
    first: Iterable[str],  # N sentences
    second: Iterable[str],  # N sentences
    weights: dict[str, float],  # from `idf_weights`
) -> np.ndarray:  # (N,) float64 in [0, 1]; 0 if neither has a word
    """Divide the weight of the words in both sentences by the weight of the words in either.

    Raises ValueError if the numbers of sentences differ.
    """

    def total(bag):
        # fsum: the result must not depend on the order of a set
        return math.fsum(weights.get(word, weights[""]) for word in bag)

    overlaps = []
    for one, two in zip(first, second, strict=True):
        one, two = set(words(one)), set(words(two))
        overlaps.append(total(one & two) / max(total(one | two), 1e-9))
    return np.array(overlaps)


def _features(single, second, weights, dataset):
    """Build the (N, features) matrix of the linear model."""
    from scipy import sparse

    if dataset.sentences2 is None:
        return single.transform(dataset.sentences)
    overlap = idf_overlap(dataset.sentences, dataset.sentences2, weights)[:, None]
    if dataset.classes is None:
        return overlap
    one, two = single.transform(dataset.sentences), single.transform(dataset.sentences2)
    shared, new = two.multiply(one), two - two.multiply(one > 0)
    return sparse.hstack([second.transform(dataset.sentences2), new, shared, 5 * overlap]).tocsr()


class BagOfWords:
    """Predict classes or similarity scores from the words of a sentence, without their order.

    Single sentences: TF-IDF of the words, logistic regression. Pairs with classes: the words and
    adjacent words of the second sentence, those of its words that the first lacks, the shared words,
    and `idf_overlap`. Pairs with similarity scores: linear regression on `idf_overlap`.
    """

    def fit(
        self,
        train: Dataset,  # labelled
    ) -> "BagOfWords":  # self
        """Fit a labelled training set. Raises ValueError if it has no labels."""
        with needs("train"):
            from sklearn.feature_extraction.text import TfidfVectorizer
            from sklearn.linear_model import LinearRegression, LogisticRegression

        if train.labels is None:
            raise ValueError(f"{train.name}: expected labels to learn from, got none")
        bag = partial(TfidfVectorizer, token_pattern=r"\w+", sublinear_tf=True)
        self.weights = idf_weights([*train.sentences, *(train.sentences2 or [])])
        self.single = bag().fit([*train.sentences, *(train.sentences2 or [])])
        self.second = bag(ngram_range=(1, 2)).fit(train.sentences2 or train.sentences)
        self.range = min(train.labels), max(train.labels)
        self.model = LogisticRegression(max_iter=3000) if train.classes else LinearRegression()
        self.model.fit(_features(self.single, self.second, self.weights, train), train.labels)
        return self

    def predict(
        self,
        dataset: Dataset,  # of the same kind; its labels are not used
    ) -> np.ndarray:  # (N,) classes, or scores within the range of the training set
        """Predict every example."""
        return np.clip(
            self.model.predict(_features(self.single, self.second, self.weights, dataset)),
            *self.range,
        )
