"""What a pooling can use: all the hidden states it reads, and a mask that fits them."""
from collections.abc import Mapping

from torch import Tensor


def check_states(
    hidden_states: tuple[Tensor, ...],     # (B, T, D) each
    attention_mask: Tensor,                # (B, T)
    how: str,                              # name of the pooling
    pooler_output: Tensor | None,          # (B, D), for "pooler"
    poolings: Mapping[str, tuple],         # name -> the states it reads
) -> None:
    """Raise ValueError for an unknown name, a missing input, or a mask of another shape."""
    if how not in poolings:
        raise ValueError(f"expected a pooling among {', '.join(poolings)}, got {how!r}")
    if isinstance(hidden_states, Tensor):
        raise ValueError("expected a tuple of (B, T, D) hidden states, got one tensor: pass (tensor,) if it is the last layer")
    if len(hidden_states) < min(2, max(1, len(poolings[how]))):
        raise ValueError(f"expected all hidden states for pooling {how!r}, got {len(hidden_states)}: call the model with output_hidden_states=True")
    if how == "pooler" and pooler_output is None:
        raise ValueError("expected pooler_output for pooling 'pooler', got None")
    if attention_mask.shape != hidden_states[-1].shape[:2]:
        raise ValueError(f"expected a mask of shape {tuple(hidden_states[-1].shape[:2])}, got {tuple(attention_mask.shape)}")
