"""What a recipe costs on a GPU, worked out before anything is trained."""
from __future__ import annotations

__all__ = ["Cost", "work_of", "cost_of", "layer_flops", "LAUNCH", "SPEED", "SHAPES"]

from pathlib import Path
from typing import NamedTuple

import torch

from ..encoder import BertConfig
from ..sentence import SentenceEncoder
from .recipe import Recipe
from .run import Run, Work
from .scale import Scale

SPEED = 125e12   # operations a second: 40 % of what an A100 promises in bfloat16 (312e12)
LAUNCH = 0.002   # s a layer and step, forward and backward: a card that is asked for little waits for the program
SHAPES = {"bert-base-uncased": BertConfig(), "bert-large-uncased": BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
          **dict.fromkeys(("nreimers/MiniLM-L6-H384-uncased", "sentence-transformers/all-MiniLM-L6-v2"), BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536))}


class Cost(NamedTuple):
    """Of one seed."""

    minutes: float   # of a GPU at `SPEED`
    memory: float    # GB


def layer_flops(width: int, tokens: int) -> float:
    """Operations of one layer on one token, forward: 24 D^2 for the matrices, 4 T D for attention."""
    return 24 * width**2 + 4 * tokens * width


class _Counting(Run):
    """A run whose encoders, of any size, are the embedded one."""

    def base(self, pooling: str = "mean", large: bool = False) -> SentenceEncoder:
        torch.manual_seed(self.seed)
        return SentenceEncoder.from_pretrained(pooling=pooling)


def work_of(recipe: Recipe, scale: Scale, data: str | None) -> list[Work]:
    """Walk through a recipe without training. The encoder stands in for that of the scale: only sizes of steps are looked at."""
    run = _Counting(scale, scale.seeds[0], data, Path("unused"), counted=[])
    recipe.make(run)
    return run.counted


def cost_of(works: list[Work], config: BertConfig) -> Cost:
    """Add up the seconds of all steps, none shorter than its launches, and find the largest step.

    Memory: 16 bytes a weight (weight, gradient, two moments), and T B D (34 + 5 H T / D) bytes a layer of what waits for the backward
    pass in half precision (Korthikanti et al., 2022, equation 1).
    """
    D, L, H = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    passes = lambda w: 3 if w.backward else 1   # a backward pass costs two forward ones
    seconds = sum(w.steps * L * max(w.rows * w.tokens * layer_flops(D, w.tokens) * passes(w) / SPEED, LAUNCH * passes(w) / 3) for w in works)
    weights = 12 * L * D * D + config.vocab_size * D
    kept = max((w.rows * w.tokens * D * L * (34 + 5 * H * w.tokens / D) for w in works if w.backward), default=0.0)
    return Cost(seconds / 60, (16 * weights + kept) / 1e9)
