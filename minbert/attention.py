"""Scaled dot-product attention and multi-head self-attention."""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["MASK_VALUE", "scaled_dot_product_attention", "split_heads", "merge_heads", "SelfAttention"]

MASK_VALUE = -1e4  # course constant; finite, so an all-padding row stays free of NaN


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Cut the width into heads: (..., T, D) -> (..., H, T, D/H)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`: (..., H, T, K) -> (..., T, H*K)."""
    return x.transpose(-3, -2).flatten(-2)


def scaled_dot_product_attention(query, key, value, mask=None, dropout_p: float = 0.0) -> Tensor:
    """Mix values by how well keys answer queries; mask (B, T), 1 = real."""
    bias = None
    if mask is not None:
        bias = ((1 - mask) * MASK_VALUE).to(query.dtype)[:, None, None, :]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout_p)


class SelfAttention(nn.Module):
    """Multi-head self-attention without the output projection, which belongs to the layer."""

    def __init__(self, hidden_size: int, num_attention_heads: int, dropout: float = 0.1):
        super().__init__()
        if hidden_size % num_attention_heads:
            raise ValueError(f"expected hidden_size divisible by num_attention_heads, got {hidden_size} and {num_attention_heads}")
        self.heads, self.dropout = num_attention_heads, dropout
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One matrix product for queries, keys and values: (..., D) -> three (..., D)."""
        parts = (self.query, self.key, self.value)
        weight = torch.cat([p.weight for p in parts])  # (3D, D)
        bias = torch.cat([p.bias for p in parts])  # (3D,)
        return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention on projected vectors: three (B, T, D) -> (B, T, D)."""
        q, k, v = (split_heads(x, self.heads) for x in (query, key, value))
        dropout_p = self.dropout if self.training else 0.0
        return merge_heads(scaled_dot_product_attention(q, k, v, mask, dropout_p))

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.attend(*self.project(hidden_states), attention_mask)
