"""A last linear map for a sentence encoder: its cosines learn from the model and from the words at once.

A mean of contexts knows that a guitar is an instrument, and blurs which words were there. Counting words knows only those. The map
is fitted so that its cosines follow a mixture of both, on sentences that nobody graded; the model itself stays as it is:

    cos(A u + b, A v + b)  ->  (1 - share) cos(model) + share cos(tf-idf of word pieces)

u, v are means of the word embeddings and the last layer, where words are still to be seen.
"""
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from minbert.engine.maps import Dense
from minbert.sentence import SentenceEncoder, unit
from minbert.tokens import encode_ids

READ = "emb_last_avg"          # the pooling that the map stands behind
STEPS, LR = 3000, 2e-3
TOGETHER, MOST = 150, 25_000   # groups of related sentences a batch, and in all


def related(sources: dict[str, list], seed: int) -> list[tuple[str, ...]]:
    """Draw groups of related sentences: triplets of inference, and neighbours."""
    groups = [*zip(*sources["nli"]), *zip(*sources["neighbours"][:2])]
    return [groups[i] for i in np.random.default_rng(seed).permutation(len(groups))[:MOST]]


def word_vectors(tokenizer, texts: list[str], max_length: int):   # (N, pieces) sparse float32, rows of length 1
    """Count word pieces, each weighted by how rare it is among the texts."""
    pieces = [[str(i) for i in ids[1:-1]] for ids in encode_ids(tokenizer, texts, max_length)]
    return TfidfVectorizer(analyzer=lambda row: row, dtype=np.float32).fit_transform(pieces)


def apart(numbers: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:   # (N,) numbers of groups -> two (N, N) bool
    """Say which pairs are related, and which are strangers."""
    same = torch.as_tensor(numbers[:, None] == numbers[None])
    return same & ~torch.eye(len(same), dtype=torch.bool), ~same


def fit_map(
    seen: torch.Tensor,     # (N, D) float32, what the map is given
    model: torch.Tensor,    # (N, D) float32, what the model makes of the same sentences
    words,                  # (N, pieces) sparse, as `word_vectors` gives them
    numbers: np.ndarray,    # (N,) which group a row belongs to, ascending
    share: float,           # of the words, in [0, 1]
    steps: int,
    seed: int = 0,
) -> Dense:
    """Fit the map by Adam on squared differences of cosines; all related pairs count as much as all strangers."""
    torch.manual_seed(seed)
    dice, starts = np.random.default_rng(seed), np.flatnonzero(np.diff(numbers, prepend=-1))
    model, mean, spread = unit(model), seen.mean(0), seen.std(0).mean()
    dense = Dense(seen.shape[1], seen.shape[1])
    torch.nn.init.orthogonal_(dense.linear.weight)
    optimizer = torch.optim.Adam(dense.parameters(), lr=LR)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.01, steps)
    for _ in range(steps):
        first = dice.integers(max(1, len(starts) - TOGETHER + 1))
        rows = slice(starts[first], starts[first + TOGETHER] if first + TOGETHER < len(starts) else None)
        taught = (1 - share) * model[rows] @ model[rows].T + share * torch.from_numpy((words[rows] @ words[rows].T).toarray())
        vectors = unit(dense((seen[rows] - mean) / spread))
        missed = (vectors @ vectors.T - taught).square()
        optimizer.zero_grad()
        sum(missed[pairs].mean() for pairs in apart(numbers[rows])).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():   # from here on the map takes vectors as they come
        dense.linear.weight /= spread
        dense.linear.bias -= dense.linear.weight @ mean
    return dense.eval()


def with_maps(encoder: SentenceEncoder, sources: dict[str, list], shares: Iterable[float], seed: int = 0) -> Iterator[SentenceEncoder]:
    """Give the encoder with a map behind it, one for each share; its own weights are not touched."""
    groups = related(sources, seed)
    texts, numbers = [text for group in groups for text in group], np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    bare = SentenceEncoder(encoder.model, encoder.tokenizer, READ, max_length=encoder.max_length)
    seen, model, words = bare.encode(texts), encoder.encode(texts), word_vectors(encoder.tokenizer, texts, encoder.max_length)
    for share in shares:
        dense = fit_map(seen, model, words, numbers, share, STEPS, seed).to(encoder.device)
        yield SentenceEncoder(encoder.model, encoder.tokenizer, READ, dense, encoder.max_length)
