"""SMART as a penalty for `fit`: the search of chapter 23 for any batch of a multitask model.

`SmartPenalty` perturbs the word vectors or the sentence vectors of a task, in one of three variants:
"paper" (Jiang et al.), "rescale" (the public code) and "printed" (Wu and Zhao). It repeats the
dropout of the clean pass, keeps its own random numbers, and can be saved and resumed.
"""

__all__ = [
    "AttackSettings",
    "sentence_norms",
    "Attack",
    "SmartStats",
    "frozen",
    "smart_loss",
    "TokenInput",
    "token_input",
    "SmartPenalty",
]

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .core.devices import sync_free_value, to_device
from .core.eval_mode import compiled
from .core.rng_state import SavesSkips, generator_on
from .data import TaskBatch
from .encoding.packing import Packing
from .heads import MultitaskBert, join_batches
from .losses import wide
from .regularized import Clean, output_distance, replay


@dataclass(frozen=True)
class AttackSettings:
    """The constants of a search. None: the constant of the source.

    Raises ValueError for an unknown variant, another p, steps not whole or < 0, or a size that is negative, infinite, or 0 (but noise and step size may be 0).
    """

    variant: str = "paper"  # "rescale" (public code), "printed" (Wu and Zhao, algorithm 1)
    steps: int = 1  # K, gradient steps; 0: noise only
    epsilon: float | None = None  # "paper": radius of the ball; others: added to a norm. 0.01; 1e-5
    step_size: float | None = None  # eta. "paper": 100 epsilon; others: 1e-3
    noise: float | None = None  # sigma, spread of the first step. "paper": epsilon; others: 1e-5
    p: float = math.inf  # order of the norm, or 2
    size: float = 1.0  # "rescale", "printed": norm of a rescaled step, times nearly 1

    def __post_init__(self):
        whole = isinstance(self.steps, int) and self.steps >= 0
        if (
            self.variant not in ("paper", "rescale", "printed")
            or self.p not in (2, math.inf)
            or not whole
        ):
            raise ValueError(
                "expected variant 'paper', 'rescale' or 'printed', p of 2 or infinity and whole steps >= 0, "
                f"got {self.variant!r}, {self.p} and {self.steps}"
            )
        paper = self.variant == "paper"
        self._fill("epsilon", 0.01 if paper else 1e-5)
        self._fill("step_size", 100 * self.epsilon if paper else 1e-3)
        self._fill("noise", self.epsilon if paper else 1e-5)
        sizes = (self.epsilon, self.step_size, self.noise, self.size)
        if not all(0 <= s < math.inf for s in sizes) or not (self.epsilon > 0 and self.size > 0):
            raise ValueError(
                f"expected positive sizes, all finite, noise and step size perhaps 0, got {sizes}"
            )

    def _fill(self, name, value):
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    @property
    def moves(self) -> int:  # 0 or more
        """Steps before the loss: "printed" takes it before the last."""
        return max(0, self.steps - 1) if self.variant == "printed" else self.steps


def sentence_norms(
    x: Tensor,  # (..., D)
    p: float,  # 2 or math.inf
    rows: Tensor,  # (...) int64 in [0, number of vectors): the sentence of each
) -> Tensor:  # (..., 1)
    """Give the p-norm of all vectors of a sentence together, beside each of them."""
    flat = rows.flatten()
    if p == math.inf:
        own = x.abs().amax(-1).flatten()
        total = torch.zeros_like(own).scatter_reduce(0, flat, own, "amax")
    else:
        own = x.square().sum(-1).flatten()
        total = torch.zeros_like(own).index_add(0, flat, own).sqrt()
    return total[rows][..., None]


@dataclass(frozen=True)
class Attack(AttackSettings):
    """How to look for the small change that moves the answer most: `AttackSettings` that can take a step."""

    def move(
        self,
        delta: Tensor,  # (..., D), the change so far
        gradient: Tensor,  # (..., D), of the distance
        rows: Tensor,  # (...) int64, the sentence of each vector
    ) -> Tensor:  # (..., D)
        """Take one step.

        "paper": d <- P(d + eta g/|g|), norms over a sentence, P the nearest point with |d| <= epsilon
        others:  d <- size (d + eta g) / (|d + eta g| + epsilon), norms over one vector
        Paper: Jiang et al. (2020), algorithm 1; Wu and Zhao (CS224N report), algorithm 1.
        """
        if self.variant != "paper":
            moved = delta + self.step_size * gradient
            return (
                self.size
                * moved
                / (torch.linalg.vector_norm(moved, self.p, -1, keepdim=True) + self.epsilon)
            )
        tiny = torch.finfo(gradient.dtype).tiny
        gradient = gradient / sentence_norms(gradient, math.inf, rows).clamp(
            min=tiny
        )  # squares of 1e-30 would be 0
        moved = delta + self.step_size * gradient / sentence_norms(gradient, self.p, rows).clamp(
            min=tiny
        )
        if self.p == math.inf:
            return moved.clamp(-self.epsilon, self.epsilon)
        return moved * (self.epsilon / sentence_norms(moved, self.p, rows).clamp(min=self.epsilon))


class SmartStats(NamedTuple):
    """What an inner search did."""

    start: Tensor  # (..., D), the first noise
    delta: Tensor  # (..., D), the change in the loss, without graph
    skipped: bool  # a gradient was not finite: no penalty


@contextmanager
def frozen(
    weights: Iterable[nn.Parameter],
) -> Iterator[None]:  # those without a gradient stay as they are
    """Let the weights have no gradient inside the block: a backward pass to the input is then half the work."""
    moving = [w for w in weights if w.requires_grad]
    for w in moving:
        w.requires_grad_(False)
    try:
        yield
    finally:
        for w in moving:
            w.requires_grad_(True)


def _noise(embeds, spread, generator):
    device = generator.device if generator is not None else embeds.device
    draw = torch.randn(embeds.shape, generator=generator, device=device, dtype=embeds.dtype)
    return spread * draw.to(embeds.device)


def _slope(f, delta):
    """Gradient of f at delta, and of nothing else; where nobody may look at it (a step on a GPU), 0 stands for one that is not finite."""
    with torch.enable_grad():
        delta = delta.detach().requires_grad_()
        slope = torch.autograd.grad(f(delta), delta)[0]
    return (
        slope
        if sync_free_value(slope) is not None
        else torch.where(slope.isfinite().all(), slope, 0.0)
    )


def _broken(gradient):
    """Tell whether a gradient is not finite, if one may look."""
    return sync_free_value(gradient) is not None and not gradient.isfinite().all()


def smart_loss(
    embeds: Tensor,  # (..., D) float with graph: (B, D) sentences, (N, D) or (B, T, D) tokens
    fn: Callable,  # changed embeds -> outputs (B,) or (B, C); repeat the dropout of `clean` in it
    clean: Tensor,  # outputs at `embeds`, with graph
    distance: Callable,  # of `output_distance`
    attack: Attack = Attack(),  # how to look for the change
    rows: Tensor
    | None = None,  # (...) int64, the sentence of each vector; None: its place on the first axis
    mask: Tensor | None = None,  # (...) 1 = may change; None: all
    weights: Iterable[nn.Parameter] = (),  # of `fn`, left out of the inner gradients
    reduction: str = "mean",  # over the batch; "sum" in smart-pytorch
    generator: torch.Generator | None = None,  # of the first noise; None: torch's own
    start: Tensor | None = None,  # (..., D) first noise; None: drawn
) -> tuple[Tensor, SmartStats]:  # () float32 or wider
    """Measure the answer's move under the worst small change of the input.

    R = 1/B sum_i distance(f(x_i + d_i), f(x_i)),   d_i by `attack` from d ~ N(0, sigma^2)
    Paper: Jiang et al. (2020), equation 2. The clean answer is constant in the search, not in R.
    Where an inner gradient is not finite, R is 0 without graph, and the stats say so. In a training step on a GPU nobody looks: the noise stays.
    Raises ValueError for another reduction.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"expected reduction 'mean' or 'sum', got {reduction!r}")
    if rows is None:
        rows = torch.arange(len(embeds), device=embeds.device).view(-1, *[1] * (embeds.ndim - 2))
        rows = rows.expand(embeds.shape[:-1])
    keep = 1 if mask is None else mask[..., None].to(embeds.dtype)

    def total(outputs, aim):
        return getattr(distance(outputs, aim), reduction)()

    delta = start = keep * (_noise(embeds, attack.noise, generator) if start is None else start)
    with frozen(weights):
        for _ in range(attack.moves):
            gradient = keep * _slope(
                lambda d: total(fn(embeds.detach() + d), clean.detach()), delta
            )
            if _broken(gradient):
                return wide(clean.new_zeros(())), SmartStats(start, delta, True)
            delta = attack.move(delta, gradient, rows)
    return total(fn(embeds + delta), clean), SmartStats(start, delta, False)


class TokenInput(NamedTuple):
    """The word vectors of a batch, and the way from them to sentence vectors."""

    embeds: (
        Tensor  # (N, D) word vectors of the real tokens, with graph; no position or segment in them
    )
    rows: Tensor  # (N,) int64 in [0, B), or in [0, 2B) for pairs: the sentence of each
    encode: (
        Callable  # (N, D) -> sentence vectors (B, D), one or two; always with a graph to its input
    )


def token_input(model: MultitaskBert, part: TaskBatch) -> TokenInput:
    """Open a batch between the table of word vectors and the rest of the model, packed or padded.

    Raises ValueError for a compiled model: one compiled as a whole ignores hooks, so nothing would move and nothing would be charged.
    """
    if compiled(model.encoder):
        raise ValueError(
            "expected a model that is not compiled, got a compiled one: it would not see changed words"
        )
    batch, embedding = part.first, model.encoder.model.embedding.word_embedding
    if part.second is not None:
        batch = join_batches(part.first, part.second, model.encoder.model.config.pad_token_id)
    batch = to_device(batch, model.encoder.device)
    packing = Packing(batch.attention_mask)

    def encode(x: Tensor) -> tuple[Tensor, ...]:
        def put(module, ids, out):
            x_ = x.to(out.dtype)
            return (
                x_
                if out.ndim == 2
                else out.flatten(0, 1).index_copy(0, packing.cells, x_).view_as(out)
            )

        hook = embedding.register_forward_hook(put)
        try:
            return model.source().embed(batch).split(len(part))
        finally:
            hook.remove()

    return TokenInput(
        embedding(packing.pack(batch.input_ids)), packing.cells // batch.input_ids.shape[1], encode
    )


def _open_tokens(model, task, part, clean):
    embeds, rows, encode = token_input(model, part)

    def fn(x):
        with replay(clean.random_state):
            return model.score(task, *encode(x))

    return embeds, rows, fn, list(model.parameters())


def _open_vectors(model, task, part, clean):
    head = model.head(task)

    def fn(x):
        with replay(clean.head_random_state):
            return model.score(task, *x.split(len(part)))

    return (
        torch.cat(clean.vectors).to(next(head.parameters()).dtype),
        None,
        fn,
        list(head.parameters()),
    )


_OPENINGS = {"tokens": _open_tokens, "vectors": _open_vectors}


class SmartPenalty(SavesSkips):
    """Adversarial smoothness of a task, as a penalty for `regularized_loss`.

    Paper: Jiang et al. (2020), section 3.1. "vectors", "rescale", weight 5: Wu and Zhao (CS224N report).
    `skipped` counts batches without penalty, for a gradient that was not finite; `last` is what the search did.
    Raises ValueError for settings that mean nothing.
    """

    def __init__(
        self,
        weight: float = 1.0,  # lambda; 1, 3 or 5 in the paper
        level: str = "tokens",  # what changes: word vectors; "vectors": sentence vectors, only the head is run
        variant: str = "paper",  # this and the next six: see `Attack`
        steps: int = 1,
        epsilon: float | None = None,
        step_size: float | None = None,
        noise: float | None = None,
        p: float = math.inf,
        size: float = 1.0,
        target: str = "clean",  # move away from the clean answer; "labels": from the right one
        grad: str = "full",  # of `symmetric_kl`
        seed: int = 11711,  # course code
    ):
        self.attack = Attack(variant, steps, epsilon, step_size, noise, p, size)
        self.weight, self.level, self.target, self.grad = weight, level, target, grad
        if level not in _OPENINGS or target not in ("clean", "labels"):
            raise ValueError(
                f"expected level 'tokens' or 'vectors', target 'clean' or 'labels', got {level!r} and {target!r}"
            )
        if not 0 <= weight < math.inf or grad not in ("full", "detached"):
            raise ValueError(
                f"expected a weight of at least 0 and grad 'full' or 'detached', got {weight} and {grad!r}"
            )
        self.generator, self.skipped, self.last = torch.Generator().manual_seed(seed), 0, None

    def __call__(
        self, model: MultitaskBert, task: str, part: TaskBatch, clean: Clean
    ) -> Tensor:  # ()
        """Search around the batch, and return what is found, times the weight."""
        embeds, rows, fn, weights = _OPENINGS[self.level](model, task, part, clean)
        head = model.head(task)
        aim, distance = clean.outputs, output_distance(head, self.grad)
        if self.target == "labels":
            aim, distance = to_device(part.labels, embeds.device), head.loss
        generator = generator_on(self.generator, embeds.device)
        loss, self.last = smart_loss(
            embeds, fn, aim, distance, self.attack, rows, None, weights, "mean", generator
        )
        self.skipped += self.last.skipped
        return self.weight * loss
