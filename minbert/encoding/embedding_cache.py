"""A cache of sentence embeddings, so that each sentence is encoded once."""

from __future__ import annotations

__all__ = ["Remembered"]

import torch
from torch import Tensor

from ..core.text_windows import check_sentences


class Remembered:
    """Ask an encoder for each sentence once; the second time the answer comes from memory."""

    def __init__(
        self,
        encoder,  # with .encode(list of str); its weights should not change any more
    ):
        # sentence -> its row in the table
        self.encoder, self.known, self.table = encoder, {}, torch.empty(0, dtype=torch.float32)

    def encode(
        self,
        sentences: list[str],  # N >= 1
    ) -> Tensor:  # (N, D) float32 on the CPU
        """Encode what is new, look up the rest. Raises ValueError for what is no list of texts, and
        unless the encoder gives a vector for each sentence.
        """
        sentences = check_sentences(sentences)
        if new := [text for text in dict.fromkeys(sentences) if text not in self.known]:
            x = torch.as_tensor(self.encoder.encode(new)).detach().cpu().float()
            if x.ndim != 2 or len(x) != len(new):
                raise ValueError(
                    f"expected {len(new)} vectors of {len(new)} sentences, got shape {tuple(x.shape)}"
                )
            self.table = torch.cat([self.table, x])  # what is empty joins any width
            self.known |= {text: len(self.known) + i for i, text in enumerate(new)}
        return self.table[[self.known[text] for text in sentences]]
