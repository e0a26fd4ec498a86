"""The encoder."""
import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.attention import SelfAttention
from minbert.embedding import BertEmbedding

__all__ = ["BertConfig", "BertLayer", "BertOutput", "BertModel", "Packing"]


@dataclass(frozen=True)
class BertConfig:
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0


class BertLayer(nn.Module):
    """h1 = LN(h + Drop(W_o attn(h))); h2 = LN(h1 + Drop(W_2 gelu(W_1 h1)))."""

    def __init__(self, config: BertConfig):
        super().__init__()
        D, eps = config.hidden_size, config.layer_norm_eps
        self.self_attention = SelfAttention(D, config.num_attention_heads, config.attention_probs_dropout_prob)
        self.attention_dense = nn.Linear(D, D)
        self.attention_layer_norm = nn.LayerNorm(D, eps=eps)
        self.interm_dense = nn.Linear(D, config.intermediate_size)
        self.out_dense = nn.Linear(config.intermediate_size, D)
        self.out_layer_norm = nn.LayerNorm(D, eps=eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def add_norm(self, residual: Tensor, sublayer: Tensor, norm: nn.LayerNorm) -> Tensor:
        return norm(residual + self.dropout(sublayer))

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, packing: "Packing | None" = None) -> Tensor:
        q, k, v = self.self_attention.project(hidden_states)
        if packing is None:
            mixed = self.self_attention.attend(q, k, v, attention_mask)
        else:
            mixed = packing.attend(self.self_attention, q, k, v)
        h = self.add_norm(hidden_states, self.attention_dense(mixed), self.attention_layer_norm)
        inner = F.gelu(self.interm_dense(h))
        return self.add_norm(h, self.out_dense(inner), self.out_layer_norm)


class Packing:
    """Where each real token of a padded batch lies when the sentences are laid end to end, shortest first."""

    def __init__(self, attention_mask: Tensor):
        self.shape = attention_mask.shape
        lengths = attention_mask.sum(1)
        order = torch.argsort(lengths, stable=True)
        rows, cols = attention_mask[order].nonzero(as_tuple=True)
        self.flat = order[rows] * self.shape[1] + cols  # (N,) position in the padded batch, row by row
        self.positions = cols
        sizes, counts = torch.unique_consecutive(lengths[order], return_counts=True)
        self.groups = [(T, n) for T, n in zip(sizes.tolist(), counts.tolist()) if T]

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, ...) -> (N, ...) real tokens only."""
        return padded.flatten(0, 1)[self.flat]

    def unpack(self, packed: Tensor) -> Tensor:
        """(N, D) -> (B, T, D), zeros at padding."""
        B, T = self.shape
        padded = packed.new_zeros(B * T, packed.shape[-1])
        return padded.index_copy(0, self.flat, packed).unflatten(0, (B, T))

    def attend(self, attention: SelfAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention inside each sentence; sentences of one length go together, so no mask is needed."""
        sizes = [T * n for T, n in self.groups]
        parts = []
        for (T, n), *qkv in zip(self.groups, *(x.split(sizes) for x in (q, k, v))):
            parts.append(attention.attend(*(x.unflatten(0, (n, T)) for x in qkv)).flatten(0, 1))
        return torch.cat(parts)


class BertOutput(NamedTuple):
    last_hidden_state: Tensor
    pooler_output: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class BertModel(nn.Module):
    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = config
        self.embedding = BertEmbedding(config.vocab_size, config.hidden_size, config.max_position_embeddings,
                                       config.type_vocab_size, config.layer_norm_eps, config.hidden_dropout_prob, config.pad_token_id)
        self.bert_layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))
        self.pooler_dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.apply(self._init)

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, output_hidden_states=False, packed=False):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        packing = Packing(mask) if packed else None
        if packed:
            segments = None if token_type_ids is None else packing.pack(token_type_ids)
            h = self.embedding(packing.pack(input_ids), packing.positions, segments)
        else:
            h = self.embedding(input_ids, token_type_ids=token_type_ids)
        states = [h]
        for layer in self.bert_layers:
            h = layer(h, mask, packing)
            states.append(h)
        if packed:
            states = [packing.unpack(s) for s in (states if output_hidden_states else states[-1:])]
        pooled = torch.tanh(self.pooler_dense(states[-1][:, 0]))
        return BertOutput(states[-1], pooled, tuple(states) if output_hidden_states else None)
