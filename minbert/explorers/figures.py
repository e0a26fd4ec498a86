"""Figures of a sentence space: cosines by range of grades, and the vectors in the space of their
first singular directions.

The mean is not removed before the singular directions are computed, so turning the vectors changes
no length and no angle, and removing the first k directions is leaving out the first k columns.
IsoScore needs only the covariance, and uniformity uses a fixed sample of 1,000 sentences, so that
both are fast enough for a slider.
"""

__all__ = [
    "BINS",
    "grade_bands",
    "cosine_share",
    "occupied",
    "band_rows",
    "draw_cosine_bands",
    "Turned",
    "turn",
    "Shape",
    "measure",
    "draw_anisotropy",
    "shape_table",
]

import warnings
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.figures import EXTRA, PALETTE, as_array, panel, panels, spectrum, styles
from ..core.finite_checks import check_finite
from ..geometry import gram, mean_cosine, uniformity
from ..metrics import as_vectors, spearman
from ..sentence import safe_cosine


def grade_bands(
    grades,  # (N,) numbers
    edges: tuple[float, float],  # (low, high), low <= high
    # label -> (N,) bool: high, low and middle band, each pair in one of them
) -> dict[str, np.ndarray]:
    """Sort pairs into three bands by their gold grade; a band may be empty.

    Raises ValueError for edges in the wrong order, NaN, or no grades.
    """
    (low, high), grades = edges, as_array(grades, 1, "grades")
    if not low <= high:
        raise ValueError(f"expected edges (low, high) with low <= high, got {low} and {high}")
    top, bottom = grades >= high, (grades < low)
    return {
        f"grade ≥ {high:g}": top,
        f"grade < {low:g}": bottom,
        f"{low:g} to {high:g}": ~(top | bottom),
    }


BINS = 50  # bars over [-1, 1], each .04 wide


def cosine_share(
    cosine,  # (N,) numbers in [-1, 1]
    # standard deviation of the bell curve, in units of the cosine; 0: bars
    smoothing: float = 0.0,
    # heights (M,) in percent per bar's width, edges (M + 1,); zeros if N = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Count cosines over [-1, 1], in bars or blurred by a bell curve that is folded back at the
    ends.

    Raises ValueError for negative smoothing, NaN, or a cosine outside [-1, 1] by more than rounding
    (1e-4).
    """
    if not smoothing >= 0:
        raise ValueError(f"expected smoothing >= 0, got {smoothing}")
    fine = 8 if smoothing else 1  # bins inside each bar
    edges = np.linspace(-1, 1, BINS * fine + 1)
    if not len(cosine):
        return np.zeros(BINS * fine), edges
    cosine = as_array(cosine, 1, "cosines")
    if np.abs(cosine).max() > 1 + 1e-4:
        raise ValueError(f"expected cosines in [-1, 1], got {cosine.min():g} to {cosine.max():g}")
    share = 100 / len(cosine) * np.histogram(cosine.clip(-1, 1), edges)[0]
    if smoothing:
        at = (edges[1:] + edges[:-1]) / 2
        # itself and its mirror images
        shifts = [at[:, None] - image for image in (at, 2 - at, -2 - at)]
        bell = sum(np.exp(-0.5 * (shift / smoothing) ** 2) for shift in shifts)
        share = bell / bell.sum(0) @ share  # every cosine keeps a weight of 1
    return fine * share, edges


def _rho(cosine, grades):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty band is no mistake here: NaN
        return spearman(cosine, grades)


def occupied(
    *cosines,  # each (N,) cosines, or a number, or None
) -> tuple[float, float]:  # eighths of the scale, between -1 and 1
    """Find the part of the scale from -1 to 1 in which cosines lie; give it to panels that stand
    side by side.
    """
    values = np.concatenate([np.atleast_1d(part) for part in cosines if part is not None])
    low, high = np.floor(8 * values.min() - 1e-6) / 8, np.ceil(8 * values.max() + 1e-6) / 8
    return max(-1.0, low), min(1.0, high)


def band_rows(
    grades,  # (N,) numbers
    edges: tuple[float, float],  # of the bands
    # (N,) int: the ridge of each pair, 0 at the bottom; (N,) how deep below it its dot lies, .06 to
    # .26
) -> tuple[np.ndarray, np.ndarray]:
    """Place the dot of each pair: below its ridge, at a depth that only keeps dots apart."""
    high, low, _ = grade_bands(grades, edges).values()
    depth = 0.06 + 0.2 * (np.arange(len(high)) * 0.618034 % 1)
    return np.where(high, 2, np.where(low, 0, 1)), depth


def draw_cosine_bands(
    cosine,  # (N,) cosine of each pair
    grades,  # (N,) its gold grade
    edges: tuple[float, float] = (2.0, 4.0),  # of the bands
    smoothing: float = 0.0,  # see `cosine_share`; 0: bars
    mark: float | None = None,  # cosine of one more pair, or None
    title: str = "all pairs",  # above the panel, before the numbers
    ax=None,  # Axes or None
    limits: tuple[float, float] | None = None,  # of the axis; None: what is occupied
    chosen: int | None = None,  # a pair to ring, or None
    # Axes; the lines are the ridges from low to high, then the mark
):
    """Draw the distribution of cosines in each band of grades as a ridge, with the numbers that
    belong to it.

    Raises ValueError for unequal lengths, NaN, or what `grade_bands` and `cosine_share` refuse.
    """
    cosine, grades = as_vectors(cosine, grades)
    ax = panel(
        "cosine",
        "share of the band [% per 0.04]",
        f"{title}: Spearman {_rho(cosine, grades):.3f}, mean cosine {cosine.mean():.2f}",
        ax,
    )
    rows, depth = band_rows(grades, edges)
    high, low, middle = grade_bands(grades, edges)
    bands = [(label, rows == row) for row, label in enumerate((low, middle, high))]
    limits = limits or occupied(cosine, mark)
    _draw_ridges(ax, cosine, grades, bands, smoothing, limits)
    ax.scatter(
        cosine, rows - depth, s=7, linewidths=0, alpha=0.55, c=[_BANDS[row][0] for row in rows]
    )
    if chosen is not None:
        ax.scatter(
            cosine[chosen],
            rows[chosen] - depth[chosen],
            s=90,
            facecolors="none",
            edgecolors=PALETTE["paper"],
            linewidths=1.8,
        )
    if mark is not None:
        ax.axvline(mark, color=PALETTE["paper"], linewidth=1.5, linestyle="-.")
        # of the panel: words longer than half of it have room
        third = np.digitize(mark, np.linspace(*limits, 4)[1:-1])
        ax.text(
            mark,
            3.24,
            f" your pair: {mark:.2f}, above {100 * (cosine < mark).mean():.0f} % of all ",
            fontsize=8,
            ha=["left", "center", "right"][third],
            va="top",
            bbox=_GROUND,
        )
    # a line more for the words about the mark
    ax.set(xlim=limits, ylim=(-0.34, 3.02 if mark is None else 3.28))
    return ax


# low, middle, high grades: the colours and lines that they have in all chapters
_BANDS = [EXTRA[1], EXTRA[2], EXTRA[0]]
# behind words that a line runs through
_GROUND = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}


def _draw_ridges(ax, cosine, grades, bands, smoothing, limits):
    """Draw three curves, one above the other, on one scale; the tick above each baseline says how
    high it is.
    """
    shares = [cosine_share(cosine[mask], smoothing) for _, mask in bands]
    highest = max(share.max() for share, _ in shares)
    step = 10.0 ** np.floor(np.log10(highest)) * (
        5 if highest / 10.0 ** np.floor(np.log10(highest)) >= 5 else 1
    )
    for row, ((label, mask), (share, at), (colour, line)) in enumerate(zip(bands, shares, _BANDS)):
        # curve or bars
        at, share = (
            ((at[1:] + at[:-1]) / 2, share) if smoothing else (at.repeat(2)[1:-1], share.repeat(2))
        )
        height = row + 0.62 * share / highest
        ax.plot(at, height, color=colour, linestyle=line, linewidth=1.5)
        ax.fill_between(at, row, height, alpha=0.2, linewidth=0, color=colour)
        count, rho = int(mask.sum()), _rho(cosine[mask], grades[mask])
        text = f"{label}: {count} pairs" + (
            f", mean {cosine[mask].mean():.2f}, ρ {rho:.2f}" if count else ""
        )
        ax.text(
            limits[0] + 0.015 * (limits[1] - limits[0]),
            row + 0.66,
            text.replace("ρ nan", "ρ –"),
            fontsize=8,
            zorder=5,
            bbox=_GROUND,
        )
    ax.set_yticks(
        [row + part for row in range(3) for part in (0, 0.62 * step / highest)],
        ["0", f"{step:g}"] * 3,
        fontsize=8,
    )


class Turned(NamedTuple):
    """A cloud in its own singular directions, longest first."""

    y: Tensor  # (R, D) float32, coordinates
    values: Tensor  # (D,) float64, singular values, not centred
    covariance: Tensor  # (D, D) float64 of the centred cloud, in these directions


def turn(
    x: Tensor,  # (R, D) float
    rows=None,  # (U,) the rows that make up the cloud; None: all
) -> Turned:
    """Turn vectors to the singular directions of the cloud; lengths and cosines stay as they are.

    y = x V,   V from X = U S V^T, not centred, so the axis of the cone comes first Differs:
    directions equally long (all of a whitened cloud) keep their order; the longer tail has the
    positive sign. Raises ValueError if `x` is not (R, D) or holds NaN.
    """
    check_finite(x, "vectors")
    rows = slice(None) if rows is None else rows
    squares = gram(x[rows], center=False)
    # rounding turns nothing
    squares = torch.where(squares.abs() > 1e-6 * squares.diagonal().max(), squares, 0.0)
    if torch.equal(squares, squares.diag().diag()):
        order = (
            squares.diagonal()
            .div(squares.max())
            .round(decimals=5)
            .argsort(descending=True, stable=True)
        )
        axes = torch.eye(len(squares)).to(squares)[:, order]
    else:
        axes = torch.linalg.eigh(squares).eigenvectors.flip(1)
    y = x.double() @ axes
    y = torch.where(y[rows].pow(3).sum(0) < 0, -y, y)
    return Turned(y.float(), y[rows].square().sum(0).sqrt(), gram(y[rows]) / len(y[rows]))


class Shape(NamedTuple):
    """Four numbers about a cloud of sentence vectors."""

    spearman: float  # in [-1, 1], of cosine and grade
    mean_cosine: float  # in [-1, 1], over all different sentences
    uniformity: float  # in [-8, 0]
    isoscore: float  # in [0, 1]


def measure(
    cloud: Turned,  # of `turn`; 2N rows: the first sentences of all pairs, then the second
    k: int,  # directions to leave out, longest first; below D
    grades,  # (N,) gold grades
    rows: Tensor,  # (U,) the different sentences
    sample: Tensor,  # (M,) those of them to compute the uniformity of
) -> Shape:
    """Describe what remains of a cloud without its k longest directions.

    Raises ValueError if the cloud has not two rows a grade, or k is outside [0, D).
    """
    if len(cloud.y) != 2 * len(grades) or not 0 <= k < cloud.y.shape[1]:
        raise ValueError(
            f"expected {2 * len(grades)} rows and k in [0, {cloud.y.shape[1]}), got {len(cloud.y)} rows and k = {k}"
        )
    left, covariance = cloud.y[:, k:], cloud.covariance[k:, k:]
    # as in `isoscore`; a direction left out has variance 0
    ratio = covariance.trace() ** 2 / covariance.square().sum()
    cosine = safe_cosine(*left.split(len(grades)))  # (N,)
    return Shape(
        _rho(cosine, grades),
        mean_cosine(left[rows]),
        uniformity(left[sample]),
        ((ratio - 1) / (cloud.y.shape[1] - 1)).item(),
    )


# marker, filled: apart in grey, where squares and disks of this size are not
_SHAPES = ("o", True), ("x", True), ("^", False), ("s", True), ("D", False)


def _scatter(ax, groups, size, **more):
    """Draw each group in its colour and its shape."""
    for (label, points), style, (marker, filled) in zip(
        groups.items(), styles(groups), cycle(_SHAPES)
    ):
        colours = (
            {"color": style["color"]}
            if filled
            else {"facecolors": "none", "edgecolors": style["color"]}
        )
        ax.scatter(
            *points.T,
            s=size,
            marker=marker,
            alpha=0.75,
            linewidths=0 if filled and marker != "x" else 0.9,
            label=label,
            **colours,
            **more,
        )


def _draw_body(ax, groups, first):
    """Scatter points in space, with one scale along all three axes."""
    panel(f"direction {first}", f"direction {first + 1}", ax=ax).set_zlabel(
        f"direction {first + 2}"
    )
    _scatter(ax, groups, 8, depthshade=False)
    everything = np.concatenate([*groups.values(), np.zeros((1, 3))])
    low, high = everything.min(0), everything.max(0)
    middle, half = (low + high) / 2, (high - low).max() / 2
    ax.set(**{f"{axis}lim": (m - half, m + half) for axis, m in zip("xyz", middle)})
    ax.tick_params(labelsize=7, pad=0)
    ax.locator_params(nbins=3)
    # else the third label would run into the next panel
    alone = ax.get_subplotspec().get_gridspec().ncols == 1
    ax.set_box_aspect(None, zoom=1.1 if alone else 0.8)
    ax.zaxis.labelpad = -3


def draw_anisotropy(
    groups: dict,  # label -> (n, 3) points: the cloud in three directions
    spectra: dict,  # label -> (K,) singular values, before and (if it differs) now
    shapes: dict,  # label -> Shape
    azimuth: float = -60.0,  # [degrees] around the vertical axis
    elevation: float = 20.0,  # [degrees] above the horizon
    first: int = 1,  # number of the first direction
):  # matplotlib Figure
    """Draw a cloud flat and as a body, and its spectrum; the titles hold the numbers of the last
    shape.

    Raises ValueError for points that are not (n, 3), for none at all, or what `spectrum` refuses.
    """
    if not groups:
        raise ValueError("expected at least one label, got none")
    groups = {label: as_array(points, 2, repr(label)) for label, points in groups.items()}
    if bad := [f"{x.shape} for {label!r}" for label, x in groups.items() if x.shape[1] != 3]:
        raise ValueError(f"expected (n, 3) points, got shape {bad[0]}")
    flat, beside, decay = panels(3, (12, 4.2))
    place = beside.get_subplotspec()
    beside.remove()
    body = flat.figure.add_subplot(place, projection="3d", elev=elevation, azim=azimuth)
    _scatter(
        panel(f"direction {first}", f"direction {first + 1}", ax=flat),
        {label: x[:, :2] for label, x in groups.items()},
        18,
    )
    flat.set_aspect("equal", adjustable="datalim")  # else a stretched cloud would look round
    flat.legend(fontsize=8, handletextpad=0, framealpha=0.8, edgecolor="none")
    _draw_body(body, groups, first)
    for ax, origin in ((flat, (0, 0)), (body, (0, 0, 0))):
        ax.plot(
            *([place] for place in origin),
            "+",
            color=PALETTE["paper"],
            markersize=12,
            markeredgewidth=2,
        )
    spectrum(
        {
            f"{meaning} {label}": x
            for meaning, (label, x) in zip(("baseline", "ours"), spectra.items())
        },
        decay,
    )
    decay.legend(decay.lines, list(spectra), frameon=False, fontsize=8)
    decay.set_ylim(1e-3, 1.5)
    decay.minorticks_off()
    if shapes:
        now = [*shapes.values()][-1]
        titles = (
            f"mean cosine {round(now.mean_cosine, 2) + 0:.2f}, uniformity {now.uniformity:.2f}",
            f"IsoScore {now.isoscore:.3f}",
            f"Spearman {now.spearman:.3f}",
        )
        for ax, title in zip((flat, body, decay), titles):
            ax.set_title(title, fontsize=10)
    return flat.figure


def shape_table(
    shapes: dict,  # label -> Shape
) -> str:
    """Write the four numbers of each cloud in a row of its own."""
    lines = [
        f"{label}: Spearman {s[0]:.3f}, mean cosine {round(s[1], 3) + 0:.3f}, uniformity {s[2]:.3f}, IsoScore {s[3]:.3f}"
        for label, s in shapes.items()
    ]
    return "\n".join(lines)
