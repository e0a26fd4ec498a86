"""Sentence vectors that also know which words were there: a second pooling beside the mean of the
last layer.

A mean of contexts knows that a guitar is an instrument, and blurs which words stood in the
sentence. The embedding layer still has them, but a mean over it does not tell near words apart.
Behind random directions and a ReLU they are further apart; whitening the mean of that, as chapter
15 does, gives rare words their weight. Nothing is trained, no grade is read: `WordsBeside` is
fitted in closed form on sentences that everybody has, the ones that the whitened controls are
fitted on.
"""

from copy import deepcopy

import torch
from torch import Tensor

from minbert.encoder import BertModel
from minbert.encoding.bag_of_words_pooling import WordsBeside
from minbert.encoding.dense_layers import Dense
from minbert.sentence import SentenceEncoder
from minbert.whitening import Whiten

FEATURES = 512
# positions that are looked at, and how many of the directions in which they differ are left out
PLACES, DIRECTIONS = 64, 16


def of_words(model: BertModel) -> Tensor:  # (D, D) float32
    """Project a token's vector onto what depends little on its place, within the first PLACES of a
    sentence.
    """
    layer = model.embedding
    places = (layer.pos_embedding.weight * layer.embed_layer_norm.weight)[:PLACES].detach().cpu()
    # orthonormal rows, the largest first
    directions = torch.linalg.svd(places - places.mean(0))[2][:DIRECTIONS]
    return torch.eye(len(directions.T)) - directions.T @ directions


def pooled_alone(
    encoder: SentenceEncoder,
    pooling,
    sentences: list[str],
    # (N, numbers)
) -> Tensor:
    """Encode with another pooling, and no map."""
    return SentenceEncoder(
        encoder.model, encoder.tokenizer, pooling, max_length=encoder.max_length
    ).encode(sentences)


class Features(torch.nn.Module):
    """Pool the random features alone."""

    layers = WordsBeside.layers

    def __init__(self, beside: WordsBeside):
        super().__init__()
        self.beside, self.out_features = beside, beside.words.width

    def forward(self, hidden_states, attention_mask):  # (B, T, D) each, (B, T) -> (B, K)
        """Give what the whitening is fitted on."""
        return self.beside.features(hidden_states, attention_mask)


def words_beside(
    encoder: SentenceEncoder, sentences: list[str], shares: list[float], seed: int = 0
) -> list[SentenceEncoder]:
    """Give the encoder with the words beside it, one for each share: how much the cosine of words
    counts, beside 1 for the encoder's own mean.

    The weights of the model are not touched.
    """
    D, found = encoder.model.config.hidden_size, []
    beside = WordsBeside(D, FEATURES).to(encoder.device)
    draw = torch.randn(FEATURES, D, generator=torch.Generator().manual_seed(seed)) / D**0.5
    with torch.no_grad():
        beside.tokens.linear.weight.copy_(draw @ of_words(encoder.model))
    features = pooled_alone(encoder, Features(beside), sentences)
    last = pooled_alone(encoder, "mean", sentences)
    white = Dense.of(Whiten(FEATURES).fit(features))
    for share in shares:
        made = WordsBeside(D, FEATURES, share**0.5 * last.norm(dim=1).mean().item())
        made.tokens, made.words = deepcopy(beside.tokens).cpu(), deepcopy(white)
        found.append(
            SentenceEncoder(
                encoder.model,
                encoder.tokenizer,
                made.to(encoder.device),
                max_length=encoder.max_length,
            )
        )
    return found
