"""Figures: a colour palette with fixed meanings, and functions for curves, histograms, heatmaps,
scatter plots and spectra.

In lines, bars and points, grey is an untrained model, blue a baseline, orange the method of the
chapter, and black a number printed in a paper. The colours also differ in lightness, by at least
0.12, so that they can be told apart in greyscale. matplotlib is imported inside the functions, so
that a program that only encodes sentences never loads it.
"""

__all__ = [
    "PALETTE",
    "LINES",
    "EXTRA",
    "NARROW",
    "styles",
    "as_array",
    "compact",
    "panel",
    "panels",
    "curves",
    "histogram",
    "cosine_histogram",
    "heatmap",
    "cloud",
    "spectrum",
]

from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle

import numpy as np

PALETTE = {
    "untrained": "#ababab",  # grey: random weights
    "baseline": "#1f5fa8",  # blue: somebody else's model, or the simple method
    "ours": "#e8730c",  # orange: what the chapter builds
    "paper": "#222222",  # black: a number printed in a paper
}
LINES = {"untrained": ":", "baseline": "--", "ours": "-", "paper": "-."}
EXTRA = [  # (colour, line style) of series without a fixed meaning, in order of use
    ("#2a9d6f", "-"),
    ("#8e5bb5", "--"),
    ("#49b3c9", "-."),
    ("#d6629c", ":"),
    ("#7a5230", (0, (7, 1))),
    ("#9aa02c", (0, (1, 1))),
]


def styles(
    labels,  # iterable of str, one per series, in drawing order
) -> list[dict]:  # one {"color", "linestyle"} per label
    """Give each label of one picture a colour by its meaning and a line style of its own."""
    spare, found = cycle(EXTRA), []
    used: Counter[str | None] = Counter()
    for label in labels:
        words = str(label).lower().replace(",", " ").replace(":", " ").split()
        meaning = words[0] if words else None
        if meaning in PALETTE:
            own = LINES[meaning]
            lines = [own] + [line for _, line in EXTRA if line != own]
            colour, line = PALETTE[meaning], lines[used[meaning] % len(lines)]
        else:
            colour, line = next(spare)
        used[meaning] += 1
        found.append({"color": colour, "linestyle": line})
    return found


def as_array(
    values,  # list, array or tensor of numbers, any device
    ndim: int,  # expected number of axes
    name: str,  # what to call it in an error
    finite=True,  # refuse NaN and infinity
) -> np.ndarray:  # float64, `ndim` axes, not empty
    """Turn anything with numbers into a float64 array.

    Raises ValueError for text, another number of axes, nothing at all, or (if `finite`) NaN.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"expected numbers in {name}, got {type(values).__name__}") from None
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"expected {ndim} filled axes in {name}, got shape {array.shape}")
    if finite and not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ValueError(f"expected finite numbers in {name}, got {bad} NaN or infinite")
    return array


NARROW = 4.2  # inches: the width of a picture on a phone
_narrow = ContextVar("narrow", default=None)  # None: no hand waits for the picture


@contextmanager
def compact(
    narrow=False,  # panels one above the other
):
    """Draw quickly, with fixed margins, whatever is drawn inside."""
    token = _narrow.set(bool(narrow))
    try:
        yield
    finally:
        _narrow.reset(token)


def _margins(rows, columns, size):
    """Leave room for labels and numbers, given in inches, whatever the figure's size."""
    left, right, bottom, top, across, between = 0.68, 0.15, 0.52, 0.36, 0.75, 0.95
    width = (size[0] - left - right - across * (columns - 1)) / columns
    height = (size[1] - bottom - top - between * (rows - 1)) / rows
    return {
        "left": left / size[0],
        "right": 1 - right / size[0],
        "bottom": bottom / size[1],
        "top": 1 - top / size[1],
        "wspace": across / width,
        "hspace": between / height,
    }


def panel(
    xlabel: str,  # quantity and unit, as in "time [s]"
    ylabel: str,  # quantity and unit
    title: str | None = None,  # above the panel
    ax=None,  # Axes to draw on; None makes a new figure
    size: tuple[float, float] | None = None,  # (width, height) of a new figure, inches
):  # matplotlib Axes
    """Prepare one labelled panel; draw on what it returns.

    Raises ValueError if an axis has no label.
    """
    if not (xlabel and ylabel):
        raise ValueError(f"expected a label on both axes, got {xlabel!r} and {ylabel!r}")
    if ax is None:
        (ax,) = panels(1, size)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        # where it would go anyway: to look for ticks above takes .01 s a panel
        ax.set_title(title, fontsize=10, y=None if _narrow.get() is None else 1.0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    if _narrow.get() is not None:
        ax.locator_params(nbins=4)  # a number and its mark take .001 s
    return ax


def panels(
    count: int,  # how many panels side by side
    size: tuple[float, float] | None = None,  # (width, height) of the whole figure, inches
    share=False,  # same scale on both axes everywhere
) -> list:  # `count` empty Axes, left to right; pass each as `ax=`
    """Open one figure with `count` empty panels in a row; inside `compact(narrow=True)` one above
    the other. Raises ValueError for a count below 1.
    """
    import matplotlib.pyplot as plt

    if count < 1:
        raise ValueError(f"expected at least 1 panel, got {count}")
    size = size or (min(5.2 * count, 3.6 * count + 1.6), 3.2)
    if _narrow.get() is None:
        _, axes = plt.subplots(
            1, count, figsize=size, sharex=share, sharey=share, squeeze=False, layout="constrained"
        )
        return list(axes[0])
    rows, columns, size = (count, 1, (NARROW, 2.9 * count)) if _narrow.get() else (1, count, size)
    _, axes = plt.subplots(
        rows,
        columns,
        figsize=size,
        sharex=share,
        sharey=share,
        squeeze=False,
        gridspec_kw=_margins(rows, columns, size),
    )
    return list(axes.flat)


def curves(
    series: dict,  # label -> (x (N,), y (N,)), or label -> one number for a level line
    xlabel: str,  # quantity and unit
    ylabel: str,  # quantity and unit
    ax=None,  # Axes or None
    title: str | None = None,  # above the panel
    log: str = "",  # "x", "y" or "xy": logarithmic axes
):  # Axes; one line per label, in order
    """Draw y over x, one line per label.

    Raises ValueError without series, or if x and y differ in length.
    """
    data = {}
    for label, pair in _filled(series).items():
        if getattr(pair, "ndim", 0 if np.isscalar(pair) else 1) == 0:
            data[label] = as_array([pair], 1, label)
            continue
        if len(pair) != 2:
            raise ValueError(f"expected (x, y) for {label!r}, got {len(pair)} parts")
        x, y = (
            as_array(part, 1, f"{axis} of {label!r}", finite=False)
            for axis, part in zip("xy", pair)
        )
        if len(x) != len(y):
            raise ValueError(f"expected equal lengths for {label!r}, got {len(x)} and {len(y)}")
        data[label] = (x, y)
    ax = panel(xlabel, ylabel, title, ax)
    for (label, line), style in zip(data.items(), styles(data)):
        if isinstance(line, tuple):
            ax.plot(*line, label=label, marker="o" if len(line[0]) == 1 else None, **style)
        else:
            ax.axhline(line[0], label=label, linewidth=1, **style)
    for axis in log:
        ax.set(**{f"{axis}scale": "log"})
    counted = [line[0] for line in data.values() if isinstance(line, tuple)]
    # steps, layers, rows: there is no half of one
    if counted and all((x == np.round(x)).all() for x in counted):
        _without_halves(ax.xaxis.get_major_locator())
    ax.legend(frameon=False, fontsize=8)
    return ax


def _without_halves(locator):
    """Let an axis place its ticks at whole numbers; one with ticks of its own, or logarithmic ones,
    keeps them.
    """
    from matplotlib.ticker import MaxNLocator

    if isinstance(locator, MaxNLocator):
        locator.set_params(integer=True)


def _filled(groups):
    if not isinstance(groups, dict) or not groups:
        raise ValueError(f"expected a dict of at least one label, got {groups!r}"[:200])
    return groups


def histogram(
    groups: dict,  # label -> (N,) numbers
    xlabel: str,  # quantity and unit
    ax=None,  # Axes or None
    bins=50,  # number of bins, or the (bins + 1,) edges
    limits: tuple[float, float] | None = None,  # (low, high); None: the range of all groups
    title: str | None = None,  # above the panel
    thing="values",  # what is counted, for the y label
):  # Axes; one outline per label, heights in percent of the group
    """Draw the distribution of each group over common bins; the legend states each mean.

    Raises ValueError without groups, or if numbers lie outside `limits`.
    """
    from seaborn import histplot

    arrays = {label: as_array(x, 1, repr(label)) for label, x in _filled(groups).items()}
    everything = np.concatenate(list(arrays.values()))
    edges = np.histogram_bin_edges(everything, bins, limits)
    outside = int(((everything < edges[0]) | (everything > edges[-1])).sum())
    if outside:
        raise ValueError(f"expected values in [{edges[0]:g}, {edges[-1]:g}], got {outside} outside")
    ax = panel(xlabel, f"share of {thing} [%]", title, ax)
    highest = ax.get_ylim()[1]  # of the panels before, if they share their axis
    for (label, x), style in zip(arrays.items(), styles(arrays)):
        mean = f"{x.mean():.2f}" if abs(x.mean()) < 10 else f"{x.mean():.1f}"
        histplot(
            x=x,
            bins=edges,
            stat="percent",
            element="step",
            alpha=0.25,
            linewidth=1.5,
            label=f"{label}, mean {mean}",
            ax=ax,
            **style,
        )
        percent = 100 * np.histogram(x, edges)[0].max() / len(x)
        highest = max(highest, percent * (1.06 + 0.09 * len(arrays)))  # room for the legend
    ax.set_ylim(0, highest)
    if ax.get_ylim()[1] > 100:
        # the room above is the legend's: no share is more than all
        ax.set_yticks(range(0, 101, 20))
    ax.legend(frameon=False, fontsize=8)
    return ax


def cosine_histogram(
    groups: dict,  # label -> (N,) cosines in [-1, 1]
    ax=None,  # Axes or None
    bins: int = 50,  # bins over [-1, 1]
    title: str | None = None,  # above the panel
    # of the axis; None: the quarters of [-1, 1] that are occupied
    limits: tuple[float, float] | None = None,
):  # Axes; one outline per label, heights in percent of the group
    """Draw the distribution of cosines between pairs, in bins over [-1, 1].

    Give `limits` where panels stand side by side: what is compared shares an axis.
    Raises ValueError if a cosine lies outside [-1, 1] by more than rounding (1e-4).
    """
    rounded = {}
    for label, x in _filled(groups).items():
        x = as_array(x, 1, repr(label))
        rounded[label] = np.where(np.abs(x) <= 1 + 1e-4, x.clip(-1, 1), x)
    ax = histogram(rounded, "cosine", ax, bins, (-1, 1), title, thing="pairs")
    everything = np.concatenate(list(rounded.values()))
    low, high = limits or (np.floor(4 * everything.min()) / 4, np.ceil(4 * everything.max()) / 4)
    ax.set_xlim(low, max(high, low + 0.25))
    return ax


def heatmap(
    values,  # (R, C) numbers; NaN leaves a cell blank
    rows=None,  # R row names, or None for numbers
    columns=None,  # C column names, or None for numbers
    ax=None,  # Axes or None
    xlabel: str = "column",  # quantity and unit
    ylabel: str = "row",  # quantity and unit
    title: str | None = None,  # above the panel
    value: str = "value",  # quantity and unit of the colour bar; "" leaves the bar out
    limits: tuple[float, float] | None = None,  # (low, high) of the colours
    write: str | None = None,  # format such as ".2f": write the number into each cell
):  # Axes; `.images[0]` holds the array
    """Draw a matrix, row 0 at the top.

    Raises ValueError if `values` is not a matrix or names do not match its shape.
    """
    array = as_array(values, 2, "values", finite=False)
    for names, count, which in zip((rows, columns), array.shape, ("row", "column")):
        if names is not None and len(names) != count:
            raise ValueError(f"expected {count} {which} names, got {len(names)}")
    low, high = limits or _colour_limits(array)
    ax = panel(xlabel, ylabel, title, ax)
    ax.grid(False)
    image = ax.imshow(
        array, cmap="RdBu_r" if low < 0 < high else "Blues", vmin=low, vmax=high, aspect="auto"
    )
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.yaxis.get_major_locator().set_params(integer=True)
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows, fontsize=8)
    if columns is not None:
        upright = max(len(str(name)) for name in columns) > 2
        ax.set_xticks(range(len(columns)), columns, fontsize=8, rotation=90 if upright else 0)
    if value:
        ax.figure.colorbar(image, ax=ax, label=value)
    if write is not None:
        _write_cells(ax, array, write)
    return ax


def _colour_limits(array):
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        raise ValueError(f"expected at least one finite number in values, got none of {array.size}")
    low, high = finite.min(), finite.max()
    if low < 0 < high:
        high = max(-low, high)
        low = -high
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _write_cells(ax, array, form):
    image = ax.images[0]
    for (r, c), number in np.ndenumerate(array):
        if not np.isfinite(number):
            continue
        dark = np.dot([0.3, 0.59, 0.11], image.cmap(image.norm(number))[:3]) < 0.5
        ax.text(
            c,
            r,
            format(number, form),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
        )


def cloud(
    points,  # (N, 2) numbers, or a dict label -> (N, 2)
    labels=None,  # N group names, at most 10 different; not with a dict
    ax=None,  # Axes or None
    xlabel: str = "first direction",  # quantity and unit
    ylabel: str = "second direction",  # quantity and unit
    title: str | None = None,  # above the panel
    texts=None,  # N strings to write beside the points, or None; not with a dict
):  # Axes; one collection of points per group
    """Scatter points in the plane, one colour and marker per group.

    Raises ValueError for points that are not (N, 2), or labels or texts of another length.
    """
    groups = points if isinstance(points, dict) else _group(points, labels)
    if isinstance(points, dict) and not (labels is None and texts is None):
        raise ValueError("expected a dict of points, or points with labels or texts, got both")
    arrays = {label: as_array(x, 2, repr(label)) for label, x in _filled(groups).items()}
    for label, x in arrays.items():
        if x.shape[1] != 2:
            raise ValueError(f"expected (N, 2) points for {label!r}, got shape {x.shape}")
    if texts is not None and len(texts) != len(points):
        raise ValueError(f"expected {len(points)} texts, got {len(texts)}")
    ax = panel(xlabel, ylabel, title, ax)
    for (label, x), style, marker in zip(arrays.items(), styles(arrays), cycle("osD^vPX*<>")):
        ax.scatter(
            *x.T, s=18, alpha=0.7, linewidths=0, color=style["color"], marker=marker, label=label
        )
    for text, (x, y) in zip(texts or [], as_array(points, 2, "points") if texts else []):
        ax.annotate(text, (x, y), xytext=(3, 3), textcoords="offset points", fontsize=8)
    ax.set_aspect("equal", adjustable="datalim")  # else a stretched cloud would look round
    if isinstance(points, dict) or labels is not None:
        ax.legend(frameon=False, fontsize=8)
    return ax


def _group(points, labels):
    points = as_array(points, 2, "points")
    if labels is None:
        return {"ours": points}
    labels = [x.item() if hasattr(x, "item") else x for x in labels]
    if len(labels) != len(points):
        raise ValueError(f"expected {len(points)} labels, got {len(labels)}")
    names = list(dict.fromkeys(labels))
    if len(names) > 10:
        raise ValueError(f"expected at most 10 different labels, got {len(names)}: try texts")
    return {name: points[[label == name for label in labels]] for name in names}


def spectrum(
    series: dict,  # label -> (K,) singular values, none negative, any order
    ax=None,  # Axes or None
    title: str | None = None,  # above the panel
):  # Axes; one line per label
    """Draw singular values over their rank, largest first and set to 1, on a logarithmic scale.

    Raises ValueError for a negative value, or if all are zero.
    """
    lines = {}
    for label, values in _filled(series).items():
        values = np.sort(as_array(values, 1, repr(label)))[::-1]
        if values[-1] < 0 or values[0] == 0:
            raise ValueError(
                f"expected values >= 0 and one > 0 for {label!r}, "
                f"got {values[-1]:g} to {values[0]:g}"
            )
        share = values / values[0]
        lines[label] = (np.arange(1, len(values) + 1), np.where(share > 0, share, np.nan))
    return curves(lines, "rank of the direction", "singular value / largest", ax, title, log="y")
