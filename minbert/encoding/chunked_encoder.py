"""Encoding a training batch in chunks, so that only the sentence vectors stay in memory."""

from __future__ import annotations

__all__ = ["ChunkedEncoder"]

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class ChunkedEncoder(nn.Module):
    """Encode a few sentences at a time. The activations of a chunk are discarded, and computed again
    in the backward pass with the same dropout masks.

    Paper: Luyu Gao et al. (2021), "Scaling deep contrastive learning batch size under memory
    limited setup". Differs: the replay is that of `torch.utils.checkpoint`.
    Raises ValueError for a chunk below 1.
    """

    def __init__(
        self,
        encoder: nn.Module,  # (input_ids, attention_mask) -> (N, D)
        chunk: int,  # sentences whose activations are in memory at a time
    ):
        super().__init__()
        if chunk < 1:
            raise ValueError(f"expected a chunk of at least 1 sentence, got {chunk}")
        self.encoder, self.chunk = encoder, chunk

    def forward(
        self,
        input_ids: Tensor,  # (N, T) int64
        attention_mask: Tensor,  # (N, T), 1 for real tokens
    ) -> Tensor:  # (N, D)
        """Give the vectors of all sentences."""
        parts = zip(input_ids.split(self.chunk), attention_mask.split(self.chunk))
        return torch.cat([checkpoint(self.encoder, *part, use_reentrant=False) for part in parts])
