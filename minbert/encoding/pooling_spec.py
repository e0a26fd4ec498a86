"""What a pooling reads and returns: hidden states, number of tokens, width."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn


class Longest:
    """How many tokens of a sentence an encoder reads, with [CLS] and [SEP]: what it is told, and no
    more than its model has positions.

    Raises ValueError for fewer than 3.
    """

    def __get__(self, encoder, owner=None) -> int:
        return self if encoder is None else encoder._longest

    def __set__(self, encoder, tokens: int) -> None:
        if not isinstance(tokens, int) or tokens < 3:
            raise ValueError(
                f"expected max_length >= 3 for [CLS], a piece and [SEP], got {tokens!r}"
            )
        encoder._longest = min(tokens, encoder.model.config.max_position_embeddings)


def check_states(
    hidden_states: tuple[Tensor, ...],  # (B, T, D) each
    attention_mask: Tensor,  # (B, T)
    how: str,  # name of the pooling
    pooler_output: Tensor | None,  # (B, D), for "pooler"
    poolings: Mapping[str, tuple],  # name -> the states it reads
) -> None:
    """Raise ValueError for an unknown name, a missing input, or a mask of another shape."""
    check_pooling(how, poolings)
    if isinstance(hidden_states, Tensor):
        raise ValueError(
            "expected a tuple of (B, T, D) hidden states, got one tensor: pass (tensor,) if it is the last layer"
        )
    if len(hidden_states) < min(2, max(1, len(poolings[how]))):
        raise ValueError(
            f"expected all hidden states for pooling {how!r}, got {len(hidden_states)}: call the model with output_hidden_states=True"
        )
    if how == "pooler" and pooler_output is None:
        raise ValueError("expected pooler_output for pooling 'pooler', got None")
    if attention_mask.shape != hidden_states[-1].shape[:2]:
        raise ValueError(
            f"expected a mask of shape {tuple(hidden_states[-1].shape[:2])}, got {tuple(attention_mask.shape)}"
        )


def layers_read(pooling: str | nn.Module, poolings: Mapping[str, tuple]) -> tuple:
    """Say which hidden states a pooling reads."""
    return pooling.layers if isinstance(pooling, nn.Module) else poolings[pooling]


def pooling_name(pooling: str | nn.Module) -> str:
    """Name a pooling."""
    return pooling.name if isinstance(pooling, nn.Module) else pooling


def check_pooling(pooling: str | nn.Module, poolings: Mapping[str, tuple]) -> None:
    """Raise ValueError for an unknown name, or a module that does not say what it reads (`layers`)
    and how long its vectors are (`out_features`).
    """
    if isinstance(pooling, nn.Module):
        if not (hasattr(pooling, "layers") and hasattr(pooling, "out_features")):
            raise ValueError(
                f"expected a pooling with layers and out_features, got {type(pooling).__name__}"
            )
    elif pooling not in poolings:
        raise ValueError(f"expected a pooling among {', '.join(poolings)}, got {pooling!r}")


def pooled_width(pooling: str | nn.Module, width: int, where: str | Path = "pooling") -> int:
    """Give the length of a pooled vector. Raises ValueError naming `where` for a pooling that is
    made for another model.
    """
    if not isinstance(pooling, nn.Module):
        return width
    if (made := getattr(pooling, "width", width)) != width:
        raise ValueError(
            f"{where}: expected a pooling of vectors of width {width}, got one for {made}"
        )
    return pooling.out_features
