"""What a recipe costs on a GPU, worked out before anything is trained."""

from __future__ import annotations

__all__ = [
    "Cost",
    "work_of",
    "shapes_of",
    "cost_of",
    "pieces_for",
    "layer_flops",
    "LAUNCH",
    "SHARE",
    "SPEED",
    "SHAPES",
    "PIECES",
]

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from ..encoder import BertConfig
from ..encoding.transformer_folder import PACKAGED, resolve_folder
from ..sentence import SentenceEncoder
from .recipe import Recipe
from .run import Run, Work
from .scale import Scale

SHARE = 0.4  # of the rate of large matrix products that training reaches
# operations a second where no card is at hand: an A100's promise in bfloat16
SPEED = SHARE * 312e12
PIECES = (1, 2, 4, 8)  # in which a step may be taken
# s a layer and step, forward and backward: a card that is asked for little waits for the program
LAUNCH = 0.002
SHAPES = {
    "bert-base-uncased": BertConfig(),
    "bert-large-uncased": BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    **dict.fromkeys(
        ("nreimers/MiniLM-L6-H384-uncased", "sentence-transformers/all-MiniLM-L6-v2"),
        BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    ),
}


class Cost(NamedTuple):
    """Of one seed."""

    minutes: float  # of a GPU at the given rate
    memory: float  # GB


def layer_flops(width: int, tokens: int) -> float:
    """Operations of one layer on one token, forward: 24 D^2 for the matrices, 4 T D for attention."""
    return 24 * width**2 + 4 * tokens * width


@dataclass
class _Counting(Run):
    """A run whose encoders, of any size, are the embedded one. The size loaded last is the one at
    work: no recipe needs both at once.
    """

    loaded: dict[str, bool] = field(default_factory=dict)

    def base(self, pooling: str = "mean", large: bool = False) -> SentenceEncoder:
        torch.manual_seed(self.seed)
        self.loaded["large"] = large
        return SentenceEncoder.from_pretrained(pooling=pooling)

    def counts(self, *what, **more) -> bool:
        return super().counts(*what, **more, large=self.loaded.get("large", False))


def work_of(
    recipe: Recipe,
    scale: Scale,
    data: str | None,
    texts: dict[str, int] | None = None,
    stored: Run | None = None,
) -> list[Work]:
    """Walk through a recipe without training. The encoder stands in for that of the scale: only
    sizes of steps are looked at. `texts` gets what text would be read.

    Stages that are stored in the folder of the run `stored` are not counted: they are not trained
    again.
    """
    seed, out = (stored.seed, stored.out) if stored else (scale.seeds[0], Path("unused"))
    run = _Counting(
        scale,
        seed,
        data,
        out,
        counted=[],
        texts={} if texts is None else texts,
        keep=bool(stored and stored.keep),
    )
    recipe.make(run)
    return run.counted


def shape_of(name: str | None) -> BertConfig:
    """Give the sizes of an encoder without fetching it: of its folder, of a name in `SHAPES`, else
    BERT-base's.
    """
    if name is None or name in PACKAGED or Path(name).is_dir():
        return BertConfig.from_json(resolve_folder(name) / "config.json")
    return SHAPES.get(name, SHAPES["bert-base-uncased"])


def shapes_of(scale: Scale) -> tuple[BertConfig, BertConfig]:
    """Give both sizes of a scale."""
    return shape_of(scale.base), shape_of(scale.large) if scale.large else SHAPES[
        "bert-large-uncased"
    ]


def seconds_of(w: Work, config: BertConfig, speed: float) -> float:
    """Time a stage: a backward pass costs two forward ones, and no step is shorter than its
    launches.
    """
    passes = (3 if w.backward else 1) * w.passes
    flops = w.rows * w.tokens * layer_flops(config.hidden_size, w.tokens) * passes
    return w.steps * config.num_hidden_layers * max(flops / speed, LAUNCH * passes / 3)


def waiting(w: Work, config: BertConfig, pieces: int) -> float:
    """Bytes of a step that wait for the backward pass."""
    D, L, H = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    rows = w.rows * w.held / (pieces if w.parts else 1)
    return rows * w.tokens * D * L * (34 + 5 * H * w.tokens / D) if w.backward else 0.0


def cost_of(
    works: list[Work],
    base: BertConfig,
    large: BertConfig | None = None,
    speed: float = SPEED,
    pieces: int = 1,
) -> Cost:
    """Add up the seconds of all steps, and find the largest step.

    Memory: 16 bytes a weight (weight, gradient, two moments), and T B D (34 + 5 H T / D) bytes a
    layer of what waits for the backward pass in half precision (Korthikanti et al., 2022, equation
    1). The copies of a proximal penalty and what torch itself takes are left out.
    """

    def size(w):
        return large if w.large and large else base

    def weights(c):
        return 16 * (12 * c.num_hidden_layers * c.hidden_size**2 + c.vocab_size * c.hidden_size)

    return Cost(
        sum(seconds_of(w, size(w), speed) for w in works) / 60,
        max((weights(size(w)) + waiting(w, size(w), pieces) for w in works), default=weights(base))
        / 1e9,
    )


def pieces_for(works: list[Work], shapes: tuple[BertConfig, BertConfig], room: float) -> int | None:
    """Choose in how many pieces steps are taken so that the largest takes at most `room` [GB];
    None: it does not fit in any.
    """
    return next((n for n in PIECES if cost_of(works, *shapes, pieces=n).memory <= room), None)
