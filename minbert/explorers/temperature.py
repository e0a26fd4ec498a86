"""The temperature under the hand: one batch of pairs, its cosines, their softmax, and whom the
gradient pushes; with repeated sentences marked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.figures import PALETTE, curves, heatmap, panel, panels
from ..core.finite_checks import check_finite
from ..data import Dataset, load_dataset
from ..encoding.embedding_cache import Remembered
from ..negatives import clusters, hide_duplicates, score_matrix
from ..sentence import SentenceEncoder, unit
from .base import Explorer, choice, colour_scale, pick, plain_ticks, slider, switch

__all__ = ["TemperatureExplorer", "Push", "push", "entailed_pairs", "deal"]

BATCHES, TEMPERATURES = 20, np.geomspace(0.01, 1, 25)  # batches to choose from; of the curves


@dataclass(frozen=True)
class Push:
    """What one batch asks of its vectors."""

    cosines: Tensor  # (m, m) float64, each caption with each partner
    shares: Tensor  # (m, m), softmax of a row; 0 for what is left out
    losses: Tensor  # (m,) nats; the loss of the batch is their mean
    on_cosines: Tensor  # (m, m) gradient of the batch's loss, nats per unit of cosine
    anchors: Tensor  # (m, D) gradient of the batch's loss on the vectors of the captions
    partners: Tensor  # (m, D) and of the partners


def push(
    u: Tensor,  # (m, D) captions
    v: Tensor,  # (m, D) their partners
    temperature: float,  # tau, above 0
    # (m,) int; rows of one group are left out of each other's choices
    groups: Tensor | None = None,
) -> Push:
    """Compute a batch's loss of multiple negatives and its exact gradient, in closed form.

    dL/dS_ij = (P_ij - [i = j]) / (m tau),   dL/du_i = (1 - a_i a_i^T) sum_j dL/dS_ij p_j / |u_i|,
    a and p of length 1 Paper: Wang and Liu (2021), section 3.2: the push on a wrong answer is its
    share over the temperature.
    """
    u, v = u.double(), v.double()
    a, p, cosines = unit(u), unit(v), score_matrix(u, v)
    logits = hide_duplicates(cosines / temperature, groups)
    shares = logits.softmax(1)
    on_cosines = (shares - torch.eye(len(u)).to(shares)) / (temperature * len(u))
    return Push(
        cosines,
        shares,
        logits.logsumexp(1) - logits.diagonal(),
        on_cosines,
        _through_length(on_cosines @ p, a, u),
        _through_length(on_cosines.T @ a, p, v),
    )


def _through_length(slope, direction, x):
    """Send a gradient on unit vectors back to the vectors: only what turns them is left."""
    across = slope - (slope * direction).sum(1, keepdim=True) * direction
    length = x.norm(dim=1, keepdim=True)
    return torch.where(length > 0, across / length.clamp(min=1e-300), 0.0)


def entailed_pairs() -> list[tuple[str, str]]:
    """Pick the pairs of `inference` train in which the second sentence follows from the first."""
    data = load_dataset("inference", "train")
    return [
        (a, b)
        for a, b, label in zip(data.sentences, data.sentences2, data.labels)
        if data.classes[label] == "entailment"
    ]


def deal(
    groups: Tensor,  # (N,) int, of all pairs
    size: int,  # m, rows of a batch
    number: int,  # which batch, from 1
    # m different rows; first up to a third of the batch from one group, then others at random
) -> list[int]:
    """Deal a batch that holds repeated sentences, if there are any: the groups with more than one
    row take turns.
    """
    counts = torch.bincount(groups)
    repeated = counts.argsort(descending=True, stable=True)
    repeated = repeated[counts[repeated] > 1].tolist()
    twins = (
        (groups == repeated[(number - 1) % len(repeated)])
        .nonzero()[:, 0]
        .tolist()[: max(2, size // 3)]
        if repeated
        else []
    )
    others = torch.randperm(len(groups), generator=torch.Generator().manual_seed(number)).tolist()
    return (twins + [row for row in others if row not in twins])[:size]


class TemperatureExplorer(Explorer):
    """Move the temperature of a contrastive loss, and watch its softmax, its gradient, and what
    repeated sentences do to them.

    Controls: view, temperature, batch, whether repeated sentences are left out, and a cell to
    click. Each batch holds two or more pairs of one group, if the pairs have any. Raises ValueError
    for fewer than `size` pairs, a size not in [3, 24], groups of another length, or NaN.
    """

    title = "The temperature of a batch"

    def __init__(
        self,
        encoder=None,  # with .encode(list of str); None: the model in the package
        # a Dataset of pairs or a list of (sentence, partner); None: `entailed_pairs()`
        pairs=None,
        size: int = 12,  # m, pairs of a batch
        # (N,) int, equal for pairs that mean the same (graded alike); None: pairs that share a
        # sentence
        groups=None,
    ):
        pairs = entailed_pairs() if pairs is None else pairs
        if isinstance(pairs, Dataset):
            if pairs.sentences2 is None:
                raise ValueError(
                    f"expected pairs of sentences, got single ones of kind {pairs.kind}"
                )
            pairs = zip(pairs.sentences, pairs.sentences2)
        self.first, self.second = (
            (list(column) for column in zip(*pairs)) if (pairs := list(pairs)) else ([], [])
        )
        if not 3 <= size <= 24 or len(self.first) < size:
            raise ValueError(
                f"expected a size in [3, 24] and as many pairs at least, got {size} and {len(self.first)} pairs"
            )
        self.groups = (
            clusters(self.first, self.second) if groups is None else torch.as_tensor(groups).long()
        )
        if self.groups.shape != (len(self.first),):
            raise ValueError(
                f"expected groups of shape {(len(self.first),)}, got {tuple(self.groups.shape)}"
            )
        self.groups = self.groups.unique(return_inverse=True)[1]
        self._encoder, self.size, self._pushed = (
            Remembered(encoder or SentenceEncoder.from_pretrained(device="cpu")),
            size,
            {},
        )
        # now, so that no move waits
        self._encoder.encode(
            [
                texts[i]
                for batch in range(1, BATCHES + 1)
                for i in self.rows(batch)
                for texts in (self.first, self.second)
            ]
        )

    def rows(self, batch: int) -> list[int]:
        """Say which pairs a batch holds."""
        return deal(self.groups, self.size, batch)

    def push(self, batch: int, temperature: float, leave_out: bool) -> Push:
        """Compute a batch; each is computed once."""
        if (key := (batch, temperature, leave_out)) not in self._pushed:
            rows = self.rows(batch)
            u, v = self._encoder.encode(
                [texts[i] for texts in (self.first, self.second) for i in rows]
            ).split(self.size)
            self._pushed[key] = push(
                check_finite(u, "captions"),
                check_finite(v, "partners"),
                temperature,
                self.groups[rows] if leave_out else None,
            )
        return self._pushed[key]

    def twins(self, batch: int) -> Tensor:  # (m, m) bool
        """Mark the cells whose row and column are two pairs of one group."""
        groups = self.groups[self.rows(batch)]
        return (groups[:, None] == groups) & ~torch.eye(len(groups), dtype=torch.bool)

    def _controls(self):
        return [
            choice(
                "view",
                "one temperature",
                ["one temperature", "all temperatures"],
                help="The batch at one temperature, or its loss and gradient over all of them.",
            ),
            slider(
                "temperature",
                0.05,
                0.01,
                1.0,
                0.01,
                help="What the cosines are divided by before the softmax, no unit; the chapter's scale of 20 is a temperature of 0.05.",
            ),
            slider(
                "batch",
                2,
                1,
                BATCHES,
                1,
                help=f"Which {self.size} pairs; each batch holds pairs that repeat a sentence, if there are any.",
            ),
            switch(
                "leave_out",
                label="leave repeats out",
                help="Take pairs that repeat a sentence out of each other's wrong answers.",
            ),
            pick(
                "cell",
                label="Click a cell to read its caption and partner, or move with the arrow keys",
            ),
        ]

    def _idle(self, view, **_):
        return ["cell"] if view == "all temperatures" else []

    def _cell(self, cell):  # -> (row, column) or None
        if cell is None:
            return None
        row, column = (min(self.size - 1, max(0, round(part))) for part in (cell[2], cell[1]))
        return (row, column) if cell[0] < 2 else (row, row)

    def _draw(self, view, temperature, batch, leave_out, cell):
        if view == "all temperatures":
            return self._over_temperatures(temperature, batch, leave_out)
        found = self.push(batch, temperature, leave_out)
        twins = self.twins(batch)
        chosen = self._cell(cell)
        left, middle, right = panels(3, (13.5, 4.6))
        heatmap(
            found.cosines,
            None,
            None,
            left,
            "partner",
            "caption",
            "cosine (□ own partner, × repeat)",
            "",
            (-1, 1),
        )
        heatmap(
            found.shares,
            None,
            None,
            middle,
            "partner",
            "caption",
            f"share: softmax at temperature {temperature:g}",
            "",
            (0, 1),
        )
        beside = left.get_subplotspec().get_gridspec().ncols > 1
        for ax, ticks in ((left, (-1, 0, 1)), (middle, (0, 0.5, 1))):
            # a number takes time, and the left ones serve both
            _mark(ax, twins, chosen, numbered=ax is left or not beside)
            colour_scale(ax.images[0], ticks)
        self._bars(right, found, twins, temperature, batch, chosen)
        return left.figure

    def _bars(self, ax, found, twins, temperature, batch, chosen):
        """Draw how hard each caption pulls its partner, and which part of the push goes to repeats
        of it.
        """
        panel("pull = push [nats / cosine]", "caption", "gradient of each pair", ax).grid(
            axis="y", visible=False
        )
        rows, (strangers, repeats) = np.arange(self.size), _pushes(found, twins, temperature)
        ax.barh(rows, strangers, color=PALETTE["baseline"], alpha=0.45, label="pushed: others")
        ax.barh(
            rows,
            repeats,
            left=strangers,
            color=PALETTE["ours"],
            alpha=0.6,
            hatch="///",
            edgecolor="white",
            linewidth=0,
            label="pushed: repeats",
        )
        turns = _turns(found, self._lengths(batch))
        ax.scatter(
            turns,
            rows + 0.33,
            marker="D",
            color=PALETTE["paper"],
            s=13,
            zorder=3,
            label="turns the caption [nats / rad]",
        )
        reach = _nice(max((strangers + repeats).max(), turns.max(), 1e-9))
        for row, pair in enumerate(self.rows(batch)):
            ax.text(
                0.01 * reach,
                row - 0.08,
                self.first[pair][:46],
                fontsize=7,
                va="center",
                clip_on=True,
                fontweight="bold" if chosen and row == chosen[0] else "normal",
            )
        ax.set(xlim=(0, reach), ylim=(self.size - 0.5, -0.5 - 0.22 * self.size))
        ax.set_yticks(
            rows[:: _every(self.size)], [str(i + 1) for i in rows[:: _every(self.size)]], fontsize=8
        )
        ax.legend(
            frameon=False,
            fontsize=7,
            loc="upper left",
            ncols=2,
            borderpad=0,
            labelspacing=0.2,
            columnspacing=1,
        )

    def _lengths(self, batch):
        return self._encoder.encode([self.first[i] for i in self.rows(batch)]).double().norm(dim=1)

    def _over_temperatures(self, temperature, batch, leave_out):
        twins = self.twins(batch)
        both = [[self.push(batch, float(t), out) for t in TEMPERATURES] for out in (False, True)]
        first, second, third = panels(3, (13.5, 4.3))
        curves(
            {
                "repeats are wrong": (TEMPERATURES, [f.losses.mean() for f in both[0]]),
                "repeats left out": (TEMPERATURES, [f.losses.mean() for f in both[1]]),
                "chance, ln m": math.log(self.size),
            },
            "temperature",
            "loss [nats]",
            first,
            "the loss",
            "x",
        )
        used = both[leave_out]
        curves(
            {
                f"to {name}": (TEMPERATURES, 100 * np.array([share(f, twins) for f in used]))
                for name, share in _SHARES.items()
            },
            "temperature",
            "share of the push [%]",
            second,
            "who is pushed",
            "x",
        )
        second.set_ylim(-3, 105)
        lengths = self._lengths(batch)
        curves(
            {
                "mean over the captions": (TEMPERATURES, [_turns(f, lengths).mean() for f in used]),
                "largest": (TEMPERATURES, [_turns(f, lengths).max() for f in used]),
            },
            "temperature",
            "gradient [nats / radian]",
            third,
            "on a caption's vector",
            "xy",
        )
        plain_ticks(third.yaxis, [1, 10, 100])
        for ax in (first, second, third):
            plain_ticks(ax.xaxis, [0.01, 0.1, 1])
            ax.axvline(temperature, color="#777777", linestyle=":", linewidth=1)
        return first.figure

    def _spots(self, view, temperature, batch, leave_out, cell):
        if view == "all temperatures":
            return []
        found = self.push(batch, temperature, leave_out)
        return [
            (
                place,
                j - 0.5,
                j + 0.5,
                i - 0.5,
                i + 0.5,
                f"{i + 1} with {j + 1}: {name} {values[i][j]:.2f}",
            )
            for place, (name, values) in enumerate(
                (("cosine", found.cosines.tolist()), ("share", found.shares.tolist()))
            )
            for i in range(self.size)
            for j in range(self.size)
        ]

    def _describe(self, view, temperature, batch, leave_out, cell):
        found = self.push(batch, temperature, leave_out)
        twins = self.twins(batch)
        rows = self.rows(batch)
        told = [
            f"Temperature {temperature:g}, {self.size} pairs: loss {found.losses.mean():.3f} nats (chance {math.log(self.size):.3f}). Of the push on wrong answers "
            + ", ".join(
                f"{share(found, twins):.0%} goes to {name}" for name, share in _SHARES.items()
            )
            + "."
        ]
        if twins.any():
            marked = [i for i in range(self.size) if twins[i].any()]
            told.append(
                f"Pairs that repeat a sentence, {'left out' if leave_out else 'counted as wrong'}: "
                + "; ".join(f"{i + 1} “{self.second[rows[i]]}”" for i in marked)
                + "."
            )
        if (chosen := self._cell(cell)) and view == "one temperature":
            i, j = chosen
            kind = (
                "its own partner" if i == j else "a repeat" if twins[i, j] else "another's partner"
            )
            told.append(
                f"Caption {i + 1} “{self.first[rows[i]]}” with partner {j + 1} “{self.second[rows[j]]}” ({kind}): cosine {found.cosines[i, j]:.2f}, "
                f"share {found.shares[i, j]:.3f}, gradient {self.size * found.on_cosines[i, j]:+.2f} nats / cosine."
            )
        return "\n".join(told)


def _pushes(found, twins, temperature):  # -> (m,), (m,) of numpy
    """Split each row's push on wrong answers: on strangers, and on repeats. Their sum is the pull
    on the own partner.
    """
    wrong = (found.shares - torch.diag(found.shares.diagonal())) / temperature
    repeats = (wrong * twins).sum(1)
    return (wrong.sum(1) - repeats).numpy(), repeats.numpy()


def _turns(found, lengths):  # -> (m,) of numpy
    """Say how fast each caption's own loss falls when its vector turns, nats a radian."""
    return (len(lengths) * found.anchors.norm(dim=1) * lengths).numpy()


def _to_repeats(found, twins):
    wrong = found.on_cosines.clamp(min=0)
    return ((wrong * twins).sum() / wrong.sum().clamp(min=1e-300)).item()


def _to_hardest(found, twins):
    wrong = found.on_cosines.clamp(min=0) * ~twins
    return (wrong.amax(1).sum() / found.on_cosines.clamp(min=0).sum().clamp(min=1e-300)).item()


_SHARES = {"repeats": _to_repeats, "the nearest other": _to_hardest}


def _mark(ax, twins, chosen, numbered):
    """Frame the right answers, cross out the repeats, ring what somebody chose; each on a white
    edge, for dark cells.
    """
    own, (ys, xs), side = range(len(twins)), twins.nonzero().T.numpy(), 58 * 12 / len(twins)
    for colour, wider in (("white", 1.6), (PALETTE["paper"], 0)):
        ax.scatter(
            own,
            own,
            s=side,
            marker="s",
            facecolors="none",
            edgecolors=colour,
            linewidths=1.2 + wider,
        )
        ax.scatter(xs, ys, s=0.7 * side, marker="x", color=colour, linewidths=1.5 + wider)
    if chosen:
        ax.scatter(
            chosen[1],
            chosen[0],
            s=4 * side,
            marker="o",
            facecolors="none",
            edgecolors=PALETTE["ours"],
            linewidths=2.5,
        )
    places = range(0, len(twins), _every(len(twins)))
    for axis, shown in ((ax.xaxis, True), (ax.yaxis, numbered)):
        axis.set_ticks(
            places if shown else [], [str(i + 1) for i in places] if shown else [], fontsize=8
        )
    ax.set(xlim=(-0.5, len(twins) - 0.5), ylim=(len(twins) - 0.5, -0.5))


def _every(size):
    """Number some rows, not all: a tick costs milliseconds."""
    return 1 if size < 7 else 2 if size < 13 else 3


def _nice(value):  # -> a round number above it
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        power * step
        for step in (1, 1.2, 1.6, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
        if power * step >= value * 1.02
    )
