"""A flow under the hands: how it bends a plane, block by block, while it learns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ..core.figures import EXTRA, PALETTE, panel, panels
from ..core.finite_checks import check_finite
from ..data import load_dataset
from ..flow import Flow, train_flow
from ..sentence import SentenceEncoder
from .base import Explorer, choice, colour_scale, point, slider

__all__ = [
    "FlowExplorer",
    "Lesson",
    "banana",
    "rings",
    "sentence_plane",
    "gaussian_bits",
    "blocks_of",
    "forward_blocks",
    "back_blocks",
]

REACH = 4.0  # the panels show [-4, 4] in both directions
STEPS, EVERY, DEPTH = 600, 20, 8  # of the training: optimizer steps, between two snapshots, blocks


def banana(n: int = 1600, seed: int = 0) -> Tensor:  # (n, 2)
    """Draw the tilted banana of the chapter."""
    x, noise = torch.randn(2, n, generator=torch.Generator().manual_seed(seed))
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    return torch.stack([x, x**2 / 2 + noise / 3], dim=1) @ torch.tensor([[c, s], [-s, c]])


def rings(n: int = 1600, seed: int = 0) -> Tensor:  # (n, 2), inner and outer in turn
    """Draw two rings, of radius 1 and 2.5, each .12 wide."""
    g = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(n, generator=g)
    radius = torch.tensor([1.0, 2.5]).repeat(n)[:n] + 0.12 * torch.randn(n, generator=g)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def sentence_plane(n: int = 1200, encoder=None) -> Tensor:  # (n, 2)
    """Put vectors of real sentences into the plane of their two longest directions."""
    pairs = load_dataset("stsb", "train")
    texts = list(dict.fromkeys(pairs.sentences + pairs.sentences2))[:n]
    x = (encoder or SentenceEncoder.from_pretrained(device="cpu")).encode(texts).float()
    x = x - x.mean(0)
    return x @ torch.linalg.svd(x, full_matrices=False).Vh[:2].T


def gaussian_bits(train: Tensor, test: Tensor) -> float:  # (N, D), (M, D)
    """Score held-out rows under the Gaussian with the mean and covariance of others: mean -log p,
    bits per dimension.
    """
    train, test = train.double(), test.double()
    fitted = torch.distributions.MultivariateNormal(train.mean(0), torch.cov(train.T, correction=0))
    return (-fitted.log_prob(test).mean() / (train.shape[1] * math.log(2))).item()


def blocks_of(flow: Flow) -> list[list]:  # of width 2: one level
    """Cut the parts of a flow into blocks of norm, mixing and coupling."""
    parts = list(flow.levels[0])
    return [parts[start : start + 3] for start in range(0, len(parts), 3)]


@torch.no_grad()
def forward_blocks(
    flow: Flow,
    x: Tensor,
    count: int,
    # count + 1 places (N, 2), log|det| (N,)
) -> tuple[list[Tensor], Tensor]:
    """Send points through the first `count` blocks; keep where they are after each."""
    places, log_det = [x], x.new_zeros(len(x))
    for block in blocks_of(flow)[:count]:
        for part in block:
            x, change = part(x)
            log_det = log_det + change
        places.append(x)
    return places, log_det


@torch.no_grad()
def back_blocks(
    flow: Flow,
    z: Tensor,
    count: int,
    # count + 1 places (N, 2), log|det| (N,) of the way back
) -> tuple[list[Tensor], Tensor]:
    """Undo the last `count` blocks; keep where the points are after each."""
    places = [z]
    undone = blocks_of(flow)[::-1][:count]
    for block in undone:
        for part in reversed(block):
            z = part.inverse(z)
        places.append(z)
    log_det = z.new_zeros(len(z))
    # what forward gains, the way back loses
    for part in (part for block in undone[::-1] for part in block):
        z, change = part(z)
        log_det = log_det - change
    return places, log_det


@dataclass
class Lesson:
    """A cloud, a flow that learns it, and what the flow was on the way."""

    train: Tensor  # (N, 2)
    test: Tensor  # (M, 2), held out
    flow: Flow
    training: Iterator  # a step of the optimizer for each item
    left: int  # rounds of `EVERY` steps
    gaussian: float  # held-out, bits per dimension
    snapshots: list[dict] = field(default_factory=list)  # state dicts, one every `EVERY` steps
    bits: list[float] = field(default_factory=list)  # held-out, of each snapshot

    def __post_init__(self):
        self._shown = deepcopy(self.flow)
        self._keep()

    @torch.no_grad()
    def _keep(self):
        self.snapshots.append(deepcopy(self.flow.state_dict()))
        self._shown.load_state_dict(self.snapshots[-1])
        self.bits.append(self._shown.eval().nll(self.test).mean().item())

    @torch.enable_grad()  # whoever asks may not want gradients
    def go_on(self) -> None:
        """Train for the next round."""
        self.left -= 1
        list(islice(self.training, EVERY))
        self._keep()

    def reached(self, training: int) -> int:
        """Say which snapshot shows the flow after so many steps: the last one if it has not come so
        far.
        """
        return min(training // EVERY, len(self.snapshots) - 1)

    def at(self, training: int) -> Flow:  # in eval mode; the next call changes it
        """Show the flow as it was after so many steps."""
        self._shown.load_state_dict(self.snapshots[self.reached(training)])
        return self._shown


def _scaled(points):
    x = points - points.mean(0)
    return x / x.square().mean().sqrt()  # one factor for both directions: the shape stays


def _lesson(points, flow=None):
    if flow is None:
        points = _scaled(points)
    held = torch.randperm(len(points), generator=torch.Generator().manual_seed(1)) % 4 == 0
    train, test = points[~held], points[held]
    if flow is not None:  # it has learned already
        return Lesson(train, test, flow, iter(()), 0, gaussian_bits(train, test))
    flow = Flow(
        2, DEPTH, mixing="lu", coupling="affine", generator=torch.Generator().manual_seed(0)
    ).initialize(train)
    return Lesson(
        train,
        test,
        flow,
        train_flow(flow, train, lr=3e-3, batch_size=256, steps=STEPS),
        STEPS // EVERY,
        gaussian_bits(train, test),
    )


class FlowExplorer(Explorer):
    """Watch a flow bend a plane: forward, back, block by block, after any number of training steps.

    Controls: the data, training step, direction, blocks, and a point to drag. The flow of a data
    set is trained when the set is first chosen, for some seconds, before one's eyes, and
    remembered. Own points are moved to mean 0 and mean square 1, unless a flow comes with them.
    Raises ValueError for points that are not (N, 2) with N >= 40, NaN, and a flow of another width
    or one that has not started from data.
    """

    title = "A flow bends the plane"

    def __init__(
        self,
        points=None,  # (N, 2) of your own, or None; they become the data set "yours"
        flow: Flow | None = None,  # a trained Flow(2) for them; else one is trained
        encoder=None,  # for the real sentences; None: the model in the package
    ):
        self._sources = {"banana": banana(), "rings": rings()}
        if points is not None:
            points = check_finite(torch.as_tensor(points).detach().cpu().float(), "points")
            if points.ndim != 2 or points.shape[1] != 2 or len(points) < 40:
                raise ValueError(
                    f"expected points (N, 2) with N >= 40, got shape {tuple(points.shape)}"
                )
            self._sources = {"yours": points} | ({} if flow else self._sources)
        if flow is not None:
            if points is None or flow.width != 2 or not flow.initialized:
                raise ValueError(
                    f"expected points and a flow of width 2 that has started from data, got width {flow.width}"
                )
            flow = deepcopy(flow).cpu().float().eval()
        else:
            self._sources["sentences"] = sentence_plane(encoder=encoder)
        self._given, self._lessons = flow, {}
        self.depth = len(blocks_of(flow)) if flow else DEPTH

    def lesson(self, data: str) -> Lesson:
        """Train the flow of a data set, once."""
        self._prepare(None, data)
        return self._lessons[data]

    def _prepare(self, rounds, data, **_):
        if data not in self._lessons:
            self._lessons[data] = _lesson(self._sources[data], self._given)
        lesson = self._lessons[data]
        for _ in range(lesson.left if rounds is None else min(rounds, lesson.left)):
            lesson.go_on()
        return lesson.left == 0

    def _controls(self):
        made = [
            choice(
                "data",
                next(iter(self._sources)),
                self._sources,
                help="The cloud that the flow learns; the flow of one that is new learns for some seconds, and the picture follows.",
            )
        ]
        if self._given is None:
            made.append(
                slider(
                    "training",
                    STEPS,
                    0,
                    STEPS,
                    EVERY,
                    label="training [steps]",
                    help="Optimizer steps so far; the curve at the right falls below the Gaussian's line.",
                )
            )
        return made + [
            choice(
                "direction",
                "forward",
                ["forward", "back"],
                help="Forward bends data into a Gaussian cloud, back bends Gaussian draws into data.",
            ),
            slider(
                "blocks",
                self.depth,
                0,
                self.depth,
                1,
                help="How many blocks of norm, mixing and coupling are done (forward) or undone (back).",
            ),
            point(
                "point",
                (1.0, 1.0),
                low=(-REACH, -REACH),
                high=(REACH, REACH),
                help="Drag the star at the left; at the right its way through the blocks.",
            ),
        ]

    def _moved(self, data, training, direction, blocks, point):
        """Compute all that is drawn and told."""
        lesson = self._lessons[data]
        flow, way = lesson.at(training), forward_blocks if direction == "forward" else back_blocks
        start = (
            lesson.test
            if direction == "forward"
            else torch.randn(len(lesson.test), 2, generator=torch.Generator().manual_seed(2))
        )
        places, _ = way(flow, torch.cat([torch.tensor([point]), start]), blocks)
        return lesson, flow, way, start, [x[0].tolist() for x in places], places[-1][1:]

    def _draw(self, data, direction, blocks, point, training=STEPS):
        lesson, flow, way, start, path, end = self._moved(data, training, direction, blocks, point)
        first, second, third = panels(3, (13.5, 4.3))
        forward = direction == "forward"
        names = [
            ("data; colour: log|det| [nats]", f"after {blocks} of {self.depth} blocks"),
            (
                "Gaussian draws; colour: log|det| [nats]",
                f"after {blocks} of {self.depth} blocks undone",
            ),
        ][not forward]
        for ax, name in zip((first, second), names):
            panel("first number", "second number", name, ax=ax).grid(False)
            ax.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        _colour(first, way, flow, blocks)
        _grid(first, second, way, flow, blocks)
        left = start[:, 0] < 0
        for ax, x in ((first, start), (second, end)):
            for rows, (colour, _), marker, side in zip(
                (left, ~left), EXTRA, "o^", ("left", "right")
            ):
                ax.scatter(
                    *x[rows].T,
                    s=9,
                    color=colour,
                    marker=marker,
                    linewidths=0,
                    label=f"began {side}",
                    zorder=3,
                )
        first.plot(
            *point, "*", color=PALETTE["paper"], markersize=14, markeredgecolor="white", zorder=5
        )
        second.plot(
            *np.array(path).T, ".-", color=PALETTE["paper"], linewidth=1, markersize=4, zorder=4
        )
        second.plot(
            *path[-1], "*", color=PALETTE["paper"], markersize=14, markeredgecolor="white", zorder=5
        )
        second.legend(frameon=True, fontsize=8, loc="upper right", markerscale=1.6)
        _likelihood(third, lesson, lesson.reached(training))
        return first.figure

    def _describe(self, data, direction, blocks, point, training=STEPS):
        lesson, flow, way, _, path, _ = self._moved(data, training, direction, blocks, point)
        log_det = way(flow, torch.tensor([point]), blocks)[1].item()
        reached, done = lesson.reached(training), "done" if direction == "forward" else "undone"
        bits = lesson.bits[reached]
        state = (
            "given"
            if self._given
            else f"after {reached * EVERY} steps" + ", still learning" * (lesson.left > 0)
        )
        return (
            f"{data}, flow {state}, {direction}, {blocks} of {self.depth} blocks {done}. The star ({point[0]:.2f}, {point[1]:.2f}) comes to "
            f"({path[-1][0]:.2f}, {path[-1][1]:.2f}), log|det| {log_det:.2f} nats. Held-out points: the flow needs {bits:.3f} bits per dimension, "
            f"a Gaussian {lesson.gaussian:.3f}."
        )


def _colour(ax, way, flow, blocks, side=40):
    """Paint log|det| of the way that starts at each place of the left panel."""
    line = torch.linspace(-REACH, REACH, side)
    ys, xs = torch.meshgrid(line, line, indexing="ij")
    values = (
        way(flow, torch.stack([xs, ys], -1).flatten(0, 1), blocks)[1].reshape(side, side).numpy()
    )
    values = values.clip(-4, 4)  # far from the data the way back leads to numbers that overflow
    image = ax.imshow(
        values,
        origin="lower",
        extent=(-REACH, REACH, -REACH, REACH),
        cmap="RdBu_r",
        vmin=-4,
        vmax=4,
        alpha=0.65,
        aspect="auto",
    )
    colour_scale(image, (-4, -2, 0, 2, 4), ["≤−4", "−2", "0", "2", "≥4"])


def _grid(first, second, way, flow, blocks, lines=17, fine=49):
    """Draw straight lines at the left, and what becomes of them at the right."""
    from matplotlib.collections import LineCollection

    at, along = torch.linspace(-REACH, REACH, lines), torch.linspace(-REACH, REACH, fine)
    upright = torch.stack([at[:, None].expand(lines, fine), along.expand(lines, fine)], -1)
    straight = torch.cat([upright, upright.flip(-1)])  # (2 lines, fine, 2)
    bent = way(flow, straight.flatten(0, 1), blocks)[0][-1].reshape(straight.shape)
    for ax, x in ((first, straight), (second, bent)):
        ax.add_collection(
            LineCollection(x.numpy(), colors=PALETTE["untrained"], linewidths=0.7, zorder=2),
            autolim=False,
        )


def _likelihood(ax, lesson, place):
    panel("training [steps]", "−log p [bits / dimension]", "held-out points", ax=ax)
    steps = np.arange(len(lesson.bits)) * EVERY
    ax.plot(
        steps,
        lesson.bits,
        color=PALETTE["ours"],
        marker="o" if len(steps) == 1 else None,
        label="ours: flow",
    )
    ax.axhline(
        lesson.gaussian, color=PALETTE["baseline"], linestyle="--", label="baseline: Gaussian"
    )
    ax.plot(steps[place], lesson.bits[place], "o", color=PALETTE["ours"], markersize=8)
    low, high = min(*lesson.bits, lesson.gaussian), max(*lesson.bits, lesson.gaussian)
    ax.set_xlim(-0.05 * steps[-1], 1.05 * max(steps[-1], EVERY * (len(steps) - 1 + lesson.left), 1))
    ax.set_ylim(low - 0.08 * (high - low + 0.1), high + 0.35 * (high - low + 0.1))
    ax.legend(frameon=False, fontsize=8, loc="upper right")
