"""How far a small step moves an answer: a slice through a sentence's vector with the ball of the
search, and the words that SMART moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..core.figures import EXTRA, PALETTE, curves, heatmap, panel, panels
from ..data import TaskBatch, load_dataset
from ..encoding.embedding_cache import Remembered
from ..heads import LinearHead, MultitaskBert
from ..losses import Head
from ..optim import AdamW
from ..regularized import output_distance
from ..sentence import SentenceEncoder
from ..smart_penalty import Attack, smart_loss, token_input
from ..smoothness import ball_points, into_ball, sampled_smoothness, steepest, worst_shifts
from ..tokens import TokenBatch, tokenize
from .base import Explorer, choice, colour_scale, name_cells, plain_ticks, slider, text

__all__ = [
    "SmoothnessExplorer",
    "Climb",
    "Words",
    "slice_basis",
    "climb",
    "best_point",
    "attack_words",
]

# random points, steps of the ascent, tokens of a sentence in the view of words
POINTS, STEPS, LONGEST = 1000, 10, 10
WIDTHS = [2, 4, 8, 16, 32, 64, 128, 256, 768]  # of the curve
SEARCHES = ["noise", "rescale", "paper, ∞", "paper, 2"]


@lru_cache(64)
def _unit_points(width, draw):
    """Draw POINTS places at distance 1, the same ones for every sentence."""
    return ball_points(POINTS, width, generator=torch.Generator().manual_seed(1000 * draw + width))


def slice_basis(
    head: Head,  # of one sentence
    x: Tensor,  # (D,) a sentence's vector
    towards: Tensor,  # (D,) another vector: the second direction leads to it
    # (D, D) rows at right angles, of length 1: the first is where the answer moves most, the first
    # two are the slice
) -> Tensor:
    """Span a space whose first direction is the steepest one at x; the rest are random."""
    near = 1e-2 * ball_points(1, len(x), generator=torch.Generator().manual_seed(0))[0]
    first = climb(_answer(head, x, torch.eye(len(x))), near, 1e-2, STEPS).best
    rows = torch.cat(
        [
            torch.stack([first, towards - x]),
            torch.randn(len(x) - 2, len(x), generator=torch.Generator().manual_seed(1)),
        ]
    )
    q, r = torch.linalg.qr(rows.double().T)
    return (q * r.diagonal().sign()).T.float()


def _answer(
    head,
    x,
    rows,
    # rows (k, D) -> function of (n, w) coordinates; those beyond k reach nothing
):
    """Look at a head in the coordinates of a space round x."""
    return lambda c: head(x + c[:, : len(rows)] @ rows)


@dataclass(frozen=True)
class Climb:
    """The way of a projected ascent."""

    path: Tensor  # (steps + 1, w)
    moves: Tensor  # (steps + 1,) of the answer there

    @property
    def best(self) -> Tensor:  # (w,)
        """Give the place where the answer moved most."""
        return self.path[self.moves.argmax()]


def climb(
    answer: Callable,  # (n, w) coordinates -> outputs of a head
    start: Tensor,  # (w,) inside the ball
    radius: float,  # of the ball
    steps: int = STEPS,  # of the ascent
    stride: float = 4.0,  # of a step, in radii; chapter 22 takes 4
    distance: Callable | None = None,  # None: for classes
) -> Climb:
    """Follow the gradient of the answer's move, come back into the ball, repeat: the loop of
    chapter 22, with its way.

    Paper: Jiang et al. (2020), equation 2, by projected ascent.
    """
    distance = distance or output_distance("classes")
    path, moves, place = [], [], start[None].detach()
    clean = answer(torch.zeros_like(place)).detach()
    for _ in range(steps + 1):
        place = place.detach().requires_grad_()
        with torch.enable_grad():
            value = distance(answer(place), clean)
            (slope,) = torch.autograd.grad(value.sum(), place)
        path.append(place.detach()[0])
        moves.append(value.detach()[0])
        place = into_ball(place.detach() + stride * radius * steepest(slope, 2), radius, 2)
    return Climb(torch.stack(path), torch.stack(moves))


@torch.no_grad()
def best_point(
    head: Head,  # of one sentence
    x: Tensor,  # (D,)
    rows: Tensor,  # (k, D) of the basis, k = min(width, D)
    points: Tensor,  # (n, width)
) -> tuple[Tensor, float]:  # (width,) the point that moves the answer most, and its move
    """Try all points, with `worst_shifts` of chapter 22."""
    shifts, distance = points[:, : len(rows)] @ rows, output_distance(head)
    (found,) = worst_shifts(head, (x[None],), (shifts,), distance)
    place = (shifts - found).square().sum(1).argmin()
    return points[place], distance(head(x[None] + found), head(x[None])).item()


@dataclass(frozen=True)
class Words:
    """What four changes of one size do to the words of a sentence."""

    steps: int  # K
    deltas: Tensor  # (4, T, D) the changes
    tokens: list[str]  # T
    # (T, 4) squared length of a word's change, in shares of an even distribution: their mean is 1
    lengths: np.ndarray
    alone: np.ndarray  # (T, 4) move of the answer [nats] if only this word is changed
    together: list[float]  # 4 moves, all words changed
    cosines: list[float]  # 4, mean cosine of a word's change with the noise it started from


def attack_words(
    model: MultitaskBert,  # in eval mode
    task: str,  # one of its tasks with one sentence
    sentence: str,  # its first LONGEST tokens are changed
    steps: int = 1,  # K
    size: float = 0.01,  # largest coordinate of a word's change
    # what fewer steps of the same size found, to go on from; None: from the noise
    before: Words | None = None,
) -> Words:
    """Search with `smart_loss` (chapter 23) round the words of a sentence, and try each word's
    change alone.

    "noise": a random corner of the box |d| <= size. "rescale": public code, scaled to that size.
    "paper, ∞": the corner, nearly, that algorithm 1 of Jiang et al. (2020) finds. "paper, 2": the
    same with the 2-norm of that corner for the sentence, shared out as the gradient wants. Raises
    ValueError for an empty sentence, or for fewer steps than `before` has.
    """
    if before and before.steps > steps:
        raise ValueError(
            f"expected at least the {before.steps} steps that were taken before, got {steps}"
        )
    if not sentence.strip():
        raise ValueError("expected a sentence, got an empty line")
    batch = tokenize(model.encoder.tokenizer, [sentence], LONGEST)
    T = batch.input_ids.shape[1]
    opened, distance = token_input(model, TaskBatch(task, batch)), output_distance(model.head(task))

    def fn(e):
        return model.score(task, *opened.encode(e))

    embeds = opened.embeds.detach()
    with torch.no_grad():
        clean = fn(embeds)
    noise = torch.randn(embeds.shape, generator=torch.Generator().manual_seed(0))
    whole = size * math.sqrt(embeds.numel())  # 2-norm of a corner
    left = steps - (before.steps if before else 0)
    attacks = [
        Attack("rescale", left, size=size),
        Attack("paper", left, epsilon=size),
        Attack("paper", left, epsilon=whole, p=2),
    ]
    starts = (
        before.deltas[1:] if before else noise * torch.tensor([1e-5, size, size])[:, None, None]
    )
    with torch.no_grad():  # the searches make their own graphs
        found = [
            smart_loss(
                embeds,
                fn,
                clean,
                distance,
                attack,
                start=start,
                rows=opened.rows,
                weights=model.parameters(),
            )[1].delta
            for attack, start in zip(attacks, starts)
        ]
    deltas = torch.stack([size * noise.sign(), *found])  # (4, T, D), as in SEARCHES
    copies = TokenBatch(*(part.expand(4 * (T + 1), -1) for part in batch))
    # (4, T, T, D): copy t changes word t
    alone = torch.eye(T).bool()[None, :, :, None] * deltas[:, None]
    changed = embeds + torch.cat([alone, deltas[:, None]], 1).flatten(0, 1)  # (4 (T + 1), T, D)
    with torch.no_grad():
        outputs = model.score(
            task, *token_input(model, TaskBatch(task, copies)).encode(changed.flatten(0, 1))
        )
        moves = distance(outputs, clean.expand_as(outputs)).unflatten(0, (4, T + 1))
    squares = deltas.square().sum(-1)
    return Words(
        steps,
        deltas,
        model.encoder.tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist()),
        (T * squares / squares.sum(1, keepdim=True)).T.numpy(),
        moves[:, :-1].T.numpy(),
        moves[:, -1].tolist(),
        torch.cosine_similarity(deltas.double(), noise.double(), dim=-1).mean(1).tolist(),
    )


@torch.enable_grad()  # whoever asks may not want gradients
def _train(x, y, classes, weight=0.0, epochs=40):
    """Train a linear head on vectors, with or without the penalty of chapter 22."""
    with torch.random.fork_rng(devices=[]):  # whoever looks keeps his own draws
        torch.manual_seed(0)
        head, g = LinearHead(x.shape[1], classes, dropout=0.0), torch.Generator().manual_seed(0)
    optimizer = AdamW(head.parameters(), lr=1e-2)
    for rows in (r for _ in range(epochs) for r in torch.randperm(len(x), generator=g).split(100)):
        loss = head.loss(head(x[rows]), y[rows])
        if weight:
            loss = loss + weight * sampled_smoothness(
                head, (x[rows],), 0.25, search="pgd", steps=3, generator=g
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.zero_grad()
    return head.eval()


class SmoothnessExplorer(Explorer):
    """See which small steps move an answer: random ones and climbed ones in a space of any width,
    and changed words.

    Views: a slice through a sentence's vector; with an encoder of this package, the words. Without
    heads two are trained on reviews, the second with the penalty of chapter 22. Raises ValueError
    for heads that are not of one sentence and of classes, or of another width.
    """

    title = "Small steps that move an answer"

    def __init__(
        self,
        encoder=None,  # with .encode(list of str); None: the model in the package
        # a head of classes (B, D) -> (B, C), or a dict of them by name; None: two are trained
        heads=None,
        classes=None,  # names of the classes
        sentence="Won't ever go here again.",  # to begin with
    ):
        encoder = encoder or SentenceEncoder.from_pretrained(device="cpu")
        self._encoder, self.sentence = Remembered(encoder), sentence
        reviews = load_dataset("sentiment", "train").draw(800, torch.Generator().manual_seed(0))
        # where the second direction of a slice may lead
        self._others = self._encoder.encode(reviews.sentences)
        if heads is None:
            y, classes = torch.tensor(reviews.labels), classes or reviews.classes
            self.heads = {
                name: _train(self._others, y, len(classes), weight)
                for name, weight in (("plain", 0.0), ("penalty, weight 0.1", 0.1))
            }
        else:
            self.heads = {
                name: deepcopy(head).cpu().float().eval()
                for name, head in (heads if isinstance(heads, dict) else {"yours": heads}).items()
            }
        for name, head in self.heads.items() if heads is not None else ():
            if (
                getattr(head, "goal", None) != "classes"
                or head.pair
                or getattr(head, "width", self._others.shape[1]) != self._others.shape[1]
            ):
                raise ValueError(
                    f"expected a head of classes for single vectors of width {self._others.shape[1]} as {name}, got {type(head).__name__}"
                )
        with torch.no_grad():
            count = next(iter(self.heads.values()))(self._others[:1]).shape[1]
        self.classes = [str(name) for name in classes or range(count)]
        if len(self.classes) != count:
            raise ValueError(f"expected {count} names of classes, got {len(self.classes)}")
        self._models = {}
        # of its own: whether its weights have gradients is changed
        if isinstance(encoder, SentenceEncoder):
            own = deepcopy(encoder).cpu()
            self._models = {
                name: MultitaskBert(own, {"task": head}).eval() for name, head in self.heads.items()
            }
        self._known = {}
        if self._models and sentence.strip():
            # now: the first search takes thrice as long as those after it
            self.words(next(iter(self.heads)), sentence, 1, 0.01)

    def _once(self, make, *key):
        """Compute what was asked for once, and remember a few hundred answers."""
        key = make.__name__, *key
        if key not in self._known:
            if len(self._known) > 400:
                self._known.clear()
            self._known[key] = make(*key[1:])
        return self._known[key]

    def vector(self, sentence: str) -> Tensor:  # (D,)
        """Encode a line. Raises ValueError if it is empty."""
        if not sentence.strip():
            raise ValueError("expected a sentence, got an empty line")
        return self._encoder.encode([sentence])[0]

    def basis(self, head: str, sentence: str) -> Tensor:  # (D, D)
        """Span the slice of a sentence: the steepest direction, and the way to the nearest review
        that the head answers otherwise.
        """
        return self._once(self._basis, head, sentence)

    def _basis(self, head, sentence):
        x, f = self.vector(sentence), self.heads[head]
        with torch.no_grad():
            others = self._others[f(self._others).argmax(1) != f(x[None]).argmax(1)]
        others = others if len(others) else self._others
        return slice_basis(f, x, others[(others - x).square().sum(1).argmin()])

    def worst(
        self,
        head: str,
        sentence: str,
        radius: float,
        # in the D coordinates of `basis`
    ) -> Climb:
        """Climb from the steepest direction: what random points are compared with."""
        return self._once(self._worst, head, sentence, radius)

    def _worst(self, head, sentence, radius):
        rows, x = self.basis(head, sentence), self.vector(sentence)
        starts = radius * torch.eye(len(x))[0] * torch.tensor([[1.0], [-1.0]])
        return max(
            (climb(_answer(self.heads[head], x, rows), start, radius) for start in starts),
            key=lambda found: found.moves.max(),
        )

    def share(
        self,
        head: str,
        sentence: str,
        radius: float,
        width: int,
        draw: int = 2,
        # in [0, 1], (width,)
    ) -> tuple[float, Tensor]:
        """Say which share of the worst move the best of POINTS random points finds in a space of
        some width, and where.
        """
        return self._once(self._share, head, sentence, radius, width, draw)

    def _share(self, head, sentence, radius, width, draw):
        rows = self.basis(head, sentence)[:width]
        place, move = best_point(
            self.heads[head], self.vector(sentence), rows, radius * _unit_points(width, draw)
        )
        return move / max(self.worst(head, sentence, radius).moves.max().item(), move, 1e-30), place

    def words(self, head: str, sentence: str, steps: int, size: float) -> Words:
        """Change the words of a sentence."""
        return self._once(self._changed, head, sentence, steps, size)

    def _changed(self, head, sentence, steps, size):
        # one step more is quick
        return attack_words(
            self._models[head],
            "task",
            sentence,
            steps,
            size,
            self._searched(head, sentence, steps - 1, size),
        )

    def _searched(self, head, sentence, steps, size):  # -> Words or None
        """Look up the search that has come farthest, up to so many steps."""
        known = (
            self._known.get(("_changed", head, sentence, k, size)) for k in range(steps, -1, -1)
        )
        return next((found for found in known if found), None)

    def _prepare(
        self,
        rounds,
        view,
        head,
        sentence,
        steps=1,
        size=0.01,
        **_,
        # a round is a step of the search
    ):
        if view == "slice":
            return True
        found = self._searched(head, sentence, steps, size)
        taken = (
            steps
            if rounds is None
            else min(steps, found.steps + rounds if found else max(rounds, 1))
        )
        return self.words(head, sentence, taken, size).steps == steps

    def _controls(self):
        made = [
            choice(
                "view",
                "slice",
                ["slice"] + ["words"] * bool(self._models),
                help="A slice through the vector of the sentence, or its words.",
            ),
            choice(
                "head",
                next(iter(self.heads)),
                self.heads,
                help="Whose answer is moved. The penalty charged for the worst step while the head was trained.",
            ),
            text(
                "sentence",
                self.sentence,
                help=f"The centre of the ball, or the words that are changed (the first {LONGEST} tokens).",
            ),
            slider(
                "width",
                16,
                2,
                768,
                1,
                help="Dimensions of the space in which random points are drawn; the slice is its first two. Numbers beyond the vector's own reach no answer.",
            ),
            slider(
                "radius",
                0.25,
                0.05,
                1.0,
                0.05,
                help="Radius of the ball, in the unit of the sentence vectors (their length is about 2).",
            ),
            slider(
                "stride",
                0.5,
                0.1,
                4.0,
                0.1,
                label="step [radii]",
                help="Length of a step of the climb, in radii; the chapter takes 4.",
            ),
            slider(
                "draw",
                2,
                1,
                20,
                1,
                help="Which random points, and where the climb begins; about half of the starts end on the lower of two tops.",
            ),
        ]
        return made + [
            slider(
                "steps",
                1,
                0,
                4,
                1,
                label="steps K",
                help="Gradient steps of the search for a change of the words.",
            ),
            slider(
                "size",
                0.01,
                0.002,
                0.05,
                0.002,
                help="Largest change of a coordinate of a word vector; these have a spread of about 0.13.",
            ),
        ] * bool(self._models)

    def _idle(self, view, **_):
        mine = {"slice": {"width", "radius", "stride", "draw"}, "words": {"steps", "size"}}
        return sorted((self.controls.keys() & set().union(*mine.values())) - mine[view])

    def _draw(self, view, **settings):
        return self._slice(**settings) if view == "slice" else self._heat(**settings)

    def _path(self, head, sentence, width, radius, stride, draw):
        rows, x = self.basis(head, sentence)[:width], self.vector(sentence)
        start = (
            radius * ball_points(1, width, generator=torch.Generator().manual_seed(100 + draw))[0]
        )
        return climb(_answer(self.heads[head], x, rows), start, radius, STEPS, stride)

    def _climbed(self, path, head, sentence, radius):  # in [0, 1], of the worst step found
        return min(
            1.0,
            (
                path.moves.max() / self.worst(head, sentence, radius).moves.max().clamp(min=1e-30)
            ).item(),
        )

    def _slice(self, head, sentence, width, radius, stride, draw, **_):
        left, right = panels(2, (12.5, 4.6))
        reach = max(0.4, 1.3 * radius)
        _regions(
            left,
            self.heads[head],
            self.vector(sentence),
            self.basis(head, sentence)[:2],
            reach,
            self.classes,
        )
        points = radius * _unit_points(width, draw)
        path = self._path(head, sentence, width, radius, stride, draw)
        share, best = self.share(head, sentence, radius, width, draw)
        turn = np.linspace(0, 2 * np.pi, 100)
        left.plot(
            radius * np.cos(turn),
            radius * np.sin(turn),
            color=PALETTE["paper"],
            linewidth=1,
            linestyle="--",
        )
        left.plot(
            *points[:, :2].T.numpy(),
            ".",
            color=PALETTE["baseline"],
            markersize=2.5,
            alpha=0.6,
            label=f"{POINTS:,} random points",
        )
        left.plot(
            *best[:2].numpy(),
            "s",
            color=PALETTE["baseline"],
            markersize=8,
            markeredgecolor="white",
            label="the best of them",
        )
        left.plot(
            *path.path[:, :2].T.numpy(),
            "D-",
            color=PALETTE["ours"],
            markersize=4,
            linewidth=1.5,
            label=f"a climb, {STEPS} steps",
        )
        left.plot(
            *path.best[:2].numpy(),
            "*",
            color=PALETTE["ours"],
            markersize=15,
            markeredgecolor="white",
            label="its best",
        )
        left.plot(0, 0, "+", color=PALETTE["paper"], markersize=12, label="the sentence")
        left.set(aspect="equal", anchor="W")
        left.legend(
            frameon=False,
            fontsize=7,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.02),
            borderaxespad=0,
            handlelength=1.2,
            labelspacing=0.9,
        )
        found = [100 * self.share(head, sentence, radius, w, draw)[0] for w in WIDTHS]
        curves(
            {
                f"baseline: best of {POINTS:,}": (WIDTHS, found),
                "formula 2 ln n / width": (
                    WIDTHS,
                    [min(100, 200 * math.log(POINTS) / w) for w in WIDTHS],
                ),
                "the worst step found": 100.0,
            },
            "width [dimensions]",
            "share of the worst step [%]",
            right,
            "what random points and a climb (★) find",
            "xy",
        )
        right.plot(
            width,
            100 * share,
            "s",
            color=PALETTE["baseline"],
            markersize=9,
            markeredgecolor="white",
            zorder=5,
        )
        right.plot(
            width,
            100 * self._climbed(path, head, sentence, radius),
            "*",
            color=PALETTE["ours"],
            markersize=15,
            markeredgecolor="white",
            zorder=5,
        )
        right.axvline(width, color="#777777", linestyle=":", linewidth=1)
        plain_ticks(right.xaxis, [2, 8, 32, 128, 768])
        plain_ticks(right.yaxis, [1, 10, 100])
        right.set(ylim=(0.2, 150), xlim=(1.7, 900))
        return left.figure

    def _heat(self, head, sentence, steps, size, **_):
        found = self._searched(head, sentence, steps, size)
        left, middle, right = panels(3, (13.5, 5.0))
        narrow = left.get_subplotspec().get_gridspec().ncols == 1
        for ax, values, title, limits in (
            (left, found.lengths, "size of a change (1 = even)", (0, 3)),
            (middle, found.alone, "move, one word [nats]", (0, max(found.alone.max(), 1e-9))),
        ):
            heatmap(values, None, None, ax, "search", "word", title, "", limits)
            name_cells(ax, SEARCHES, found.tokens if ax is left or narrow else ())
            if ax is middle and not narrow:
                # the words stand at the left already, and each takes time to draw
                ax.set_yticks([])
            colour_scale(
                ax.images[0], *(([0, 1, 2, 3], ["0", "1", "2", "≥ 3"]) if ax is left else (limits,))
            )
        panel("search", "move [nats]", "move, all words", right).grid(axis="x", visible=False)
        colours = [PALETTE["untrained"], PALETTE["baseline"], PALETTE["ours"], EXTRA[1][0]]
        right.bar(
            range(4),
            np.maximum(found.together, 1e-7),
            color=colours,
            hatch=["", "//", "..", "xx"],
            edgecolor="white",
            linewidth=0,
        )
        name_cells(right, SEARCHES)
        right.set(yscale="log", ylim=(1e-7, 100))
        plain_ticks(right.yaxis, [1e-6, 0.001, 1], ["1e-6", ".001", "1"])
        return left.figure

    def _spots(self, view, head, sentence, steps=1, size=0.01, **_):
        if view == "slice":
            return []
        found = self._searched(head, sentence, steps, size)
        return [
            (
                place,
                j - 0.5,
                j + 0.5,
                i - 0.5,
                i + 0.5,
                f"{token}, {search}: {name} {values[i, j]:.2g}{unit_}",
            )
            for place, (name, values, unit_) in enumerate(
                (("size", found.lengths, ""), ("alone", found.alone, " nats"))
            )
            for i, token in enumerate(found.tokens)
            for j, search in enumerate(SEARCHES)
        ]

    def _describe(self, view, head, sentence, width, radius, stride, draw, steps=1, size=0.01):
        with torch.no_grad():
            says = self.heads[head](self.vector(sentence)[None]).softmax(1)[0]
        top = says.argmax().item()
        told = f"“{sentence}”, head {head}: {self.classes[top]} with {says[top]:.2f}. "
        if view == "words":
            found = self._searched(head, sentence, steps, size)
            moved = ", ".join(
                f"{search} {move:.2g}" for search, move in zip(SEARCHES, found.together)
            )
            return told + (
                f"All words changed by {size:g} a coordinate, K = {found.steps}{f' of {steps}, still searching' * (found.steps < steps)}: the answer moves by {moved} nats. Alone, the word that moves it most: "
                + ", ".join(
                    f"{search} “{found.tokens[i]}”"
                    for search, i in zip(SEARCHES, found.alone.argmax(0))
                )
                + "."
            )
        worst, (share, _) = (
            self.worst(head, sentence, radius),
            self.share(head, sentence, radius, width, draw),
        )
        path = self._path(head, sentence, width, radius, stride, draw)
        with torch.no_grad():
            after = _answer(self.heads[head], self.vector(sentence), self.basis(head, sentence))(
                worst.best[None]
            ).softmax(1)[0, top]
        return told + (
            f"The worst step of length {radius:g} leaves {after:.2f} and moves the answer by {worst.moves.max():.3g} nats. In {width} dimensions the best of {POINTS:,} "
            f"random points finds {share:.1%} of that, a climb of {STEPS} steps {self._climbed(path, head, sentence, radius):.1%}."
        )


@torch.no_grad()
def _regions(ax, head, x, axes, reach, classes, side=60):
    """Paint which class a head answers in a plane, and how far the answer has moved from that at
    the middle.
    """
    line = torch.linspace(-reach, reach, side)
    ys, xs = torch.meshgrid(line, line, indexing="ij")
    outputs = head(x + torch.stack([xs, ys], -1).flatten(0, 1) @ axes)
    answers = outputs.argmax(1).reshape(side, side).numpy()
    panel(
        "along the worst step", "towards another answer", "classes; lines of equal move [nats]", ax
    ).grid(False)
    from matplotlib.colors import ListedColormap

    tints = ["#dbe7f5", "#fbe3cd", "#d8efe6", "#e9dcf2", "#dbeef3", "#f6dfe9", "#e7ddd2", "#eef0cf"]
    ax.imshow(
        answers % len(tints),
        origin="lower",
        extent=(-reach, reach, -reach, reach),
        cmap=ListedColormap(tints),
        vmin=-0.5,
        vmax=len(tints) - 0.5,
        aspect="auto",
    )
    for c in np.unique(answers):
        inside = answers == c
        row, column = np.argwhere(inside)[
            ((np.argwhere(inside) - np.argwhere(inside).mean(0)) ** 2).sum(1).argmin()
        ]
        ax.text(
            line[column],
            -0.93 * reach if len(classes) == 2 else line[row],
            classes[c],
            ha="center",
            fontsize=9,
            style="italic",
        )
        if 0 < inside.sum() < inside.size:
            ax.contour(xs, ys, inside.astype(float), levels=[0.5], colors="#444444", linewidths=1.2)
    moves = (
        output_distance(head)(outputs, head(x[None]).expand_as(outputs)).reshape(side, side).numpy()
    )
    levels = [level for level in (0.01, 0.1, 0.5, 1, 2, 4) if moves.min() < level < moves.max()]
    if levels:
        ax.clabel(
            ax.contour(xs, ys, moves, levels=levels, colors="#8a8a8a", linewidths=0.6),
            fontsize=7,
            fmt="%g",
        )
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach))
