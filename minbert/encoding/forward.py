"""The forward pass of a taught encoder, run fast: `encode_batch` gives the values and gradients of
`BertModel.forward` without work on padding and with fused attention.

Nothing of a chapter is imported: models come from outside. A layer runs its own `forward`; only its
self-attention is replaced, and only if it is the one of chapter 02. A model, a layer or an
attention that does something else (a subclass, a hook, a method of its own) is called as it is.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.eval_mode import compiled
from ..core.id_checks import check_ids
from . import varlen_attention
from .packing import Packing, Padded, check_batch, padding_share

__all__ = [
    "Encoded",
    "FastModel",
    "encode_batch",
    "only_taught_code",
    "packing_pays",
    "with_attention",
]

_MASK_VALUE = -1e4  # of chapter 02; finite in float16 too


class Encoded(NamedTuple):
    """What `encode_batch` returns; the fields are those of `BertOutput`."""

    last_hidden_state: Tensor  # (B, T, D) float; zeros at padding where the batch ran packed
    pooler_output: Tensor  # (B, D) float in (-1, 1); zeros for a row without real tokens
    hidden_states: tuple[Tensor, ...] | None = None  # L + 1 of (B, T, D); 0 is the embedding


def encode_batch(
    model: nn.Module,  # a BertModel
    input_ids: Tensor,  # (B, T) int64 in [0, V)
    attention_mask: Tensor | None = None,  # (B, T) 1 = real, 0 = padding; None: all real
    token_type_ids: Tensor | None = None,  # (B, T) int64 segments; None: all 0
    output_hidden_states: bool = False,  # also return the embedding and the output of each layer
    packed: bool | None = None,  # compute real tokens only; None: as `packing_pays` says
    allow_empty: bool = False,  # accept rows of padding only; their pooler output is zero
) -> Encoded:
    """Encode a batch. At real tokens the result is that of `model(...)`.

    Raises ValueError as `check_batch` and `check_ids`, and for segments of another shape than the
    ids.
    """
    mask = check_batch(input_ids, attention_mask, model.config.max_position_embeddings, allow_empty)
    check_ids(input_ids, model.config.vocab_size, "input_ids")
    if token_type_ids is not None and token_type_ids.shape != input_ids.shape:
        raise ValueError(
            f"expected token_type_ids of shape {tuple(input_ids.shape)}, "
            f"got {tuple(token_type_ids.shape)}"
        )
    if _taught_only or not _runs_as_taught(model, "BertModel"):
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        if output_hidden_states:
            more["output_hidden_states"] = True
        out = model(input_ids, mask, **more)
        return out._replace(pooler_output=_pooled(out, mask)) if allow_empty else out
    if packed is None:
        packed = packing_pays(model, mask)
    layout = Packing(mask) if packed else Padded(mask)
    segments = None if token_type_ids is None else layout.pack(token_type_ids)
    hidden_states = model.embedding(layout.pack(input_ids), layout.positions, segments)
    states = [layout.unpack(hidden_states)] if output_hidden_states else []
    for layer in model.bert_layers:
        hidden_states = _run_layer(layer, hidden_states, layout)
        if output_hidden_states:
            states.append(layout.unpack(hidden_states))
    last = states[-1] if states else layout.unpack(hidden_states)
    out = Encoded(last, model.pooler(last), tuple(states) if states else None)
    return out._replace(pooler_output=_pooled(out, mask))


def _pooled(out, mask):
    """Give the pooler output, with zeros for rows that have no real token."""
    return out.pooler_output.masked_fill(~mask.any(1, keepdim=True), 0.0)


class FastModel:
    """Stand in for a model where code calls one: the call goes to `encode_batch`, and every
    attribute is the model's.
    """

    def __init__(
        self,
        model: nn.Module,  # a BertModel
        packed: bool | None = None,  # as in `encode_batch`
    ):
        self.model, self.packed = model, packed

    def __call__(self, *inputs, **named) -> Encoded:
        return encode_batch(self.model, *inputs, packed=self.packed, **named)

    def __getattr__(self, name):
        return getattr(self.model, name)


_taught_only = 0  # how many blocks of `only_taught_code` are open


@contextmanager
def only_taught_code() -> Iterator[None]:
    """Inside the block `encode_batch` calls each model's own forward, so that the code of the
    chapters is what runs.
    """
    global _taught_only
    _taught_only += 1
    try:
        yield
    finally:
        _taught_only -= 1


def packing_pays(
    model: nn.Module,  # a BertModel
    attention_mask: Tensor,  # (B, T) 1 = real
) -> bool:
    """Tell whether to compute real tokens only: on a CPU always; on a GPU where one call attends in
    all sentences and a quarter of the batch is padding.
    """
    device = attention_mask.device
    if device.type == "cpu":
        return True
    attention, share = model.bert_layers[0].self_attention, padding_share(attention_mask)
    dtype = attention.query.weight.dtype
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    pays = share is not None and share >= 0.25 and _has_kernel(attention, device, dtype)
    # torch.compile would make a program for each set of lengths
    return pays and not compiled(model)


# Layers --------------------------------------------------------------------------------------


def with_attention(
    layer: nn.Module,  # a BertLayer
    attention: nn.Module,  # called with the hidden states and what the layer gets as its mask
) -> nn.Module:
    """Give a layer that shares all weights with `layer` and attends by another module."""
    twin = copy.copy(layer)
    twin.__dict__["_modules"] = {**layer._modules, "self_attention": attention}
    return twin


def _run_layer(layer, hidden_states, layout):
    """Run a layer on hidden states that are laid out: (B, T, D) or (N, D)."""
    twin = with_attention(layer, _LaidOutAttention(layer.self_attention))
    run = _call if layer._compiled_call_impl is None else _compiled_call()
    return run(twin, hidden_states, layout)


def _call(layer, hidden_states, layout):
    return layer(hidden_states, layout)


@cache
def _compiled_call():
    """Make the program that serves all layers that were handed to torch.compile."""
    return torch.compile(_call, dynamic=True)


def _runs_as_taught(module, name):
    """Tell whether calling a module runs the forward of the class of this name, and nothing else."""
    hooks = (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
    return (
        _is(module.forward, f"{name}.forward") and not hooks and module._compiled_call_impl is None
    )


# Attention -----------------------------------------------------------------------------------


class _LaidOutAttention(nn.Module):
    """Stand in for a self-attention: it gets the layout of the batch in the place of the mask."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.attention = attention

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute query, key and value (..., D) by one product with the three weights joined."""
        attention = self.attention
        if not _is(attention.project, "SelfAttention.project"):
            return attention.project(hidden_states)
        parts = (attention.query, attention.key, attention.value)
        weight = torch.cat([part.weight for part in parts])  # (3D, D)
        bias = torch.cat([part.bias for part in parts])  # (3D,)
        return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: Padded | Packing) -> Tensor:
        """Let the tokens of each sentence attend to one another, however the batch is laid out."""
        attention = self.attention
        return layout.inside(
            partial(_attend, attention), query, key, value, whole=_all_at_once(attention, query)
        )

    def forward(self, hidden_states: Tensor, layout: Padded | Packing) -> Tensor:
        if not _runs_as_taught(self.attention, "SelfAttention"):
            return layout.pack(self.attention(layout.unpack(hidden_states), layout.mask))
        return self.attend(*self.project(hidden_states), layout)


def _is(method: Callable, name: str) -> bool:
    """Tell whether a method is the one that a chapter of this package wrote under this name. A
    learner's class may have the same name, in a module or notebook of its own.
    """
    home = getattr(method, "__module__", None) or ""
    same_package = home.partition(".")[0] == __name__.partition(".")[0]
    return same_package and getattr(method, "__qualname__", "") == name


def _attend(attention, query, key, value, mask):
    """Attend in sentences of one length (n, T, D): fused, or as the module itself does it where that
    is faster, or something else.
    """
    if not _fusible(attention) or (mask is None and _map_is_faster(attention, query)):
        return attention.attend(query, key, value, mask)
    heads = (attention.heads, -1)
    q, k, v = (x.unflatten(-1, heads).transpose(1, 2) for x in (query, key, value))  # (n, H, T, K)
    bias = None if mask is None else ((1 - mask.to(k)) * _MASK_VALUE)[:, None, None, :]
    dropout_p = attention.dropout if attention.training else 0.0
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)
    return out.transpose(1, 2).flatten(2)  # (n, T, D)


def _fusible(attention):
    """Tell whether a module attends as in chapter 02, so that a fused kernel gives the same."""
    return _is(attention.attend, "SelfAttention.attend")


def _map_is_faster(attention, query):
    """On its way back in bfloat16 on a CPU, torch's fused attention is slower than the explicit
    products of chapter 02 (benchmarks/bench_attention.py), as long as the map is not large: H T
    numbers a token, at most the 4 D of the feed-forward network.
    """
    slow = query.dtype == torch.bfloat16 and query.device.type == "cpu" and query.requires_grad
    return slow and attention.heads * query.shape[1] <= 4 * query.shape[2]


def _all_at_once(attention, query):
    """Give what attends in all sentences by one call, where that can be had; else None."""
    if not _has_kernel(attention, query.device, query.dtype):
        return None
    return partial(varlen_attention.attend, heads=attention.heads)


def _has_kernel(attention, device, dtype):
    """Tell whether a GPU has one call for all sentences; it knows no dropout."""
    drops = attention.training and attention.dropout > 0
    width = attention.query.out_features // attention.heads
    fits = device.type == "cuda" and not drops and _fusible(attention)
    return fits and varlen_attention.serves(device, dtype, width)
