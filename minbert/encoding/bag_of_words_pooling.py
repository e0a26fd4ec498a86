"""Pooling that joins random features of the word embeddings and the mean of the hidden states, in
modules that sentence-transformers has.
"""

from __future__ import annotations

__all__ = ["WordsBeside"]

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ..core.files import read_json
from .dense_layers import Dense, check_widths
from .module_files import write_layers, write_pooling
from .pooling_spec import check_states


class WordsBeside(nn.Module):
    """Pool twice: whitened random features of the word embeddings, and the mean of the last layer.

    u = [ c unit(W mean_t relu(A e_t) + b) ; mean_t h_t ]   with e the embedding layer, h the last
    one

    Words that are near in the embedding layer are apart behind A and relu, and a mean over many of
    them still tells which they were (Rahimi and Recht, 2007, for random features). Whoever makes it
    fits W and b, see scripts/words_beside.py; who trains the encoder further trains A, W and b as
    well, and c stays. Raises ValueError for an odd K + D, or a c that is not positive and finite.
    """

    # in a folder's settings; the hidden states that it reads
    name, layers = "words_beside", (0, -1)

    def __init__(self, width: int, features: int, length: float = 1.0):  # D, K, c > 0
        super().__init__()
        if (width + features) % 2 or not 0 < length < float("inf"):
            raise ValueError(
                f"expected an even number of columns together and a positive length, got {width} + {features} and {length}"
            )
        self.tokens, self.words = (
            Dense(width, features, bias=False, activation="ReLU"),
            Dense(features, features),
        )
        self.register_buffer("length", torch.tensor(float(length)))

    width = property(lambda self: self.tokens.width, doc="Numbers a token's vector has, D.")
    out_features = property(
        lambda self: self.words.out_features + self.tokens.width, doc="Numbers a vector has, K + D."
    )

    def forward(
        self,
        hidden_states: tuple[Tensor, ...],
        attention_mask: Tensor,
        # (B, T, D) each, (B, T) -> (B, K + D), zeros where a row has no token
    ) -> Tensor:
        """Pool the embedding layer, which comes first, and the last one. Raises ValueError as
        `check_states`.
        """
        check_states(hidden_states, attention_mask, self.name, None, {self.name: self.layers})
        words = self.words(self.features(hidden_states, attention_mask))
        words = (
            normalize(words.to(torch.promote_types(words.dtype, torch.float32)), dim=-1)
            * self.length
        )
        both = torch.cat(
            [words.to(hidden_states[-1].dtype), _mean(hidden_states[-1], attention_mask)], -1
        )
        return both.masked_fill(attention_mask.sum(1, keepdim=True) == 0, 0)

    def features(
        self,
        hidden_states: tuple[Tensor, ...],
        attention_mask: Tensor,
        # (B, K): mean_t relu(A e_t), what W and b are fitted on
    ) -> Tensor:
        """Pool the random features alone."""
        return _mean(self.tokens(hidden_states[0]), attention_mask)

    def write(
        self,
        folder: str | Path,
        model: nn.Module,
        # (module of sentence-transformers, folder) of each step
    ) -> list[tuple[str, str]]:
        """Write the steps for a folder. Theirs have no second pooling, but their "cls" takes what
        an earlier step left under that name.

        They say a vector is as long as this pooling's width times its modes, so half of K + D
        stands there; nothing is computed with it.
        """
        folder, K, D = Path(folder), self.words.out_features, self.tokens.width
        write_layers(folder / "words_layer", model, (0,))
        self.tokens.save(folder / "words_tokens", **_TOKENS)
        write_pooling(folder / "words_pooling", K, "mean_tokens")
        self.words.save(folder / "words_map")
        self._stretch().save(folder / "words_length", **_LENGTH)
        write_layers(folder / "last_layer", model, (-1,))
        write_pooling(folder / "1_Pooling", (K + D) // 2, "cls_token", "mean_tokens")
        return _STEPS

    def _stretch(self) -> Dense:
        with torch.device("meta"):  # saving draws no random numbers
            stretch = Dense(self.words.out_features, self.words.out_features, bias=False)
        stretch.linear.weight = nn.Parameter(
            torch.eye(self.words.out_features, dtype=self.words.linear.weight.dtype, device="cpu")
            * self.length.item()
        )
        return stretch

    @classmethod
    def load(cls, folder: str | Path) -> WordsBeside:  # on the CPU, float32, in eval mode
        """Read what `write` left: the three steps with weights. Raises ValueError naming the file
        for other steps, weights that do not fit each other, and as `Dense.load`.
        """
        folder = Path(folder)
        _check_steps(folder / "modules.json")
        tokens = Dense.load(folder / "words_tokens", **_TOKENS)
        words = Dense.load(folder / "words_map")
        scale = Dense.load(folder / "words_length", **_LENGTH)
        stretch = scale.linear.weight
        bare = scale.linear.bias is None and type(scale.activation) is nn.Identity
        check_widths([words], tokens.out_features, folder / "words_map")
        length = stretch[0, 0].item()
        if (
            not bare
            or words.out_features != words.width
            or stretch.shape != (words.width, words.width)
            or not torch.equal(stretch, length * torch.eye(words.width))
            or length <= 0
        ):
            raise ValueError(
                f"{folder / 'words_length'}: expected one positive number on the diagonal of {words.width} by {words.width}, zeros beside it, and no more"
            )
        with torch.device("meta"):
            beside = cls(tokens.width, words.width)
        beside.tokens, beside.words, beside.length = tokens, words, torch.tensor(length)
        return beside.eval()


_STEPS = [
    ("WeightedLayerPooling", "words_layer"),
    ("Dense", "words_tokens"),
    ("Pooling", "words_pooling"),
    ("Dense", "words_map"),
    ("Normalize", "words_unit"),
    ("Dense", "words_length"),
    ("WeightedLayerPooling", "last_layer"),
    ("Pooling", "1_Pooling"),
]
_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
_LENGTH = {"module_input_name": "sentence_embedding", "module_output_name": "cls_token_embeddings"}


def _check_steps(file: Path) -> None:
    steps = [
        (str(step.get("type")).rpartition(".")[-1], step.get("path"))
        for step in read_json(file, list)
        if isinstance(step, dict)
    ]
    if steps[1 : len(_STEPS) + 1] != _STEPS:
        raise ValueError(
            f"{file}: expected the steps of a WordsBeside, got others. If another library saved this folder again, only that one reads all of it: name a pooling yourself to use the model alone"
        )


def _mean(
    hidden_states: Tensor,
    attention_mask: Tensor,
    # (B, T, D), (B, T) -> (B, D); what stands at padding does not count
) -> Tensor:
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    kept = hidden_states.masked_fill(attention_mask[..., None] == 0, 0)
    return (kept.sum(1, dtype=wide) / attention_mask.sum(1, keepdim=True).clamp(min=1)).to(
        hidden_states.dtype
    )
