"""What the Axes hold: labels, line data, bin heights, colours; and what is refused."""

import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb

from minbert.core.figures import (
    EXTRA,
    LINES,
    PALETTE,
    as_array,
    cloud,
    cosine_histogram,
    curves,
    heatmap,
    histogram,
    panel,
    panels,
    spectrum,
    styles,
)


@pytest.fixture(autouse=True)
def close_all():
    yield
    plt.close("all")


def drawings(ax=None):
    return [
        lambda ax=ax: panel("x [s]", "y [m]", ax=ax),
        lambda ax=ax: curves({"ours": ([0, 1], [2, 3])}, "x [s]", "y [m]", ax=ax),
        lambda ax=ax: histogram({"ours": [1, 2, 3]}, "x [s]", ax=ax),
        lambda ax=ax: cosine_histogram({"ours": [0.1, 0.2]}, ax=ax),
        lambda ax=ax: heatmap(np.eye(2), ax=ax),
        lambda ax=ax: cloud(np.eye(2), ax=ax),
        lambda ax=ax: spectrum({"ours": [1, 2]}, ax=ax),
    ]


# --- palette and styles


def test_colours_mean_what_the_book_says():
    r, g, b = to_rgb(PALETTE["untrained"])
    assert r == g == b
    r, g, b = to_rgb(PALETTE["baseline"])
    assert b > g > r
    r, g, b = to_rgb(PALETTE["ours"])
    assert r > g > b and r > 0.8


def test_meanings_differ_in_grey_and_in_line():
    luma = sorted(np.dot([0.299, 0.587, 0.114], to_rgb(c)) for c in PALETTE.values())
    assert np.diff(luma).min() > 0.12
    assert PALETTE.keys() == LINES.keys() and len(set(LINES.values())) == len(LINES)
    assert not set(PALETTE.values()) & {colour for colour, _ in EXTRA}


@pytest.mark.parametrize("label", ["ours", "Ours", "ours, layer 3", "ours: flow", "ours (again)"])
def test_first_word_decides(label):
    assert styles([label])[0] == {"color": PALETTE["ours"], "linestyle": LINES["ours"]}


@pytest.mark.parametrize("label", ["oursler", "not ours", "", "7", 7])
def test_other_labels_get_no_fixed_colour(label):
    assert styles([label])[0]["color"] not in PALETTE.values()


def test_equal_meanings_share_colour_not_line():
    found = styles(["ours", "ours, 2", "ours, 3", "baseline", "baseline, 2", "x"])
    assert [s["color"] for s in found[:5]] == [PALETTE["ours"]] * 3 + [PALETTE["baseline"]] * 2
    assert len({(s["color"], str(s["linestyle"])) for s in found}) == 6


def test_more_series_than_styles_still_draw():
    assert len(styles(map(str, range(20)))) == 20


# --- arrays


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2], np.int8),
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True),
    ],
)
def test_as_array_takes_anything_with_numbers(values):
    array = as_array(values, 1, "x")
    assert array.dtype == np.float64 and array.tolist() == [1, 2]


@pytest.mark.parametrize(
    "values, words",
    [
        ([], "filled"),
        ([[1]], "filled axes in loss, got shape"),
        (3.0, "shape ()"),
        ("abc", "numbers in loss"),
        ([1, np.nan], "1 NaN"),
        ([1, np.inf, -np.inf], "2 NaN"),
        ([[1], [1, 2]], "numbers in loss"),
    ],
)
def test_as_array_refuses(values, words):
    with pytest.raises(ValueError) as e:
        as_array(values, 1, "loss")
    assert words in str(e.value)


# --- every drawing


@pytest.mark.parametrize("n", range(7))
def test_draws_on_the_given_axes_or_a_new_figure(n):
    before = plt.get_fignums()
    (ax,) = panels(1)
    assert drawings(ax)[n]() is ax
    assert len(plt.get_fignums()) == len(before) + 1  # no further figure was opened
    other = drawings()[n]()
    assert other is not ax and other.figure is not ax.figure


@pytest.mark.parametrize("n", range(7))
def test_both_axes_are_labelled(n):
    ax = drawings()[n]()
    assert ax.get_xlabel() and ax.get_ylabel()


def test_nothing_is_shown_or_saved(monkeypatch, tmp_path):
    def forbidden(*_, **__):
        raise AssertionError("a drawing function called show or savefig")

    monkeypatch.setattr(plt, "show", forbidden)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", forbidden)
    monkeypatch.chdir(tmp_path)
    for draw in drawings():
        draw()
    assert not list(tmp_path.iterdir())


def test_settings_of_the_caller_stay():
    before = dict(matplotlib.rcParams)
    for draw in drawings():
        draw()
    assert dict(matplotlib.rcParams) == before


def test_import_loads_neither_matplotlib_nor_torch():
    code = (
        "import sys, minbert.core.figures;"
        "assert not {'matplotlib', 'torch', 'seaborn'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_histograms_leave_room_for_the_legend_also_on_shared_axes():
    tall, flat = {"a": np.zeros(9), "b": np.ones(9)}, {"a": np.arange(50.0), "b": np.arange(50.0)}
    for order in ((tall, flat), (flat, tall)):
        axes = panels(2, share=True)
        for ax, groups in zip(axes, order):
            histogram(groups, "x", ax=ax, limits=(0, 50))
        # 100 % and the legend's two lines
        assert axes[0].get_ylim() == axes[1].get_ylim() == (0, pytest.approx(124))
        # no share is more than all
        assert max(axes[0].get_yticks()) == max(axes[1].get_yticks()) == 100


# --- one by one


def test_panel_labels_title_size():
    ax = panel("step", "loss [nats]", "a title", size=(4, 2))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("step", "loss [nats]", "a title")
    assert tuple(ax.figure.get_size_inches()) == (4, 2)
    assert not ax.spines["top"].get_visible() and ax.spines["left"].get_visible()


@pytest.mark.parametrize("labels", [("", "y"), ("x", ""), (None, "y")])
def test_panel_wants_both_labels(labels):
    with pytest.raises(ValueError, match="both axes"):
        panel(*labels)


def test_panels_in_a_row():
    a, b, c = panels(3, share=True)
    assert a.figure is b.figure is c.figure
    assert a.get_position().x0 < b.get_position().x0 < c.get_position().x0
    a.set_xlim(0, 9)
    assert c.get_xlim() == (0, 9)
    with pytest.raises(ValueError, match="at least 1"):
        panels(0)


def test_curves_hold_the_data_in_order():
    ax = curves(
        {
            "baseline": ([1, 2, 3], torch.tensor([3.0, 2.0, 1.0])),
            "ours": (range(2), [5, 6]),
            "paper": 0.5,
        },
        "step",
        "loss",
    )
    assert [line.get_label() for line in ax.lines] == ["baseline", "ours", "paper"]
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 3] and ax.lines[0].get_ydata().tolist() == [
        3,
        2,
        1,
    ]
    assert ax.lines[1].get_xdata().tolist() == [0, 1] and ax.lines[1].get_ydata().tolist() == [5, 6]
    assert list(ax.lines[2].get_ydata()) == [0.5, 0.5]
    assert [to_hex(line.get_color()) for line in ax.lines] == [
        PALETTE[k] for k in ("baseline", "ours", "paper")
    ]
    assert [line.get_linestyle() for line in ax.lines] == ["--", "-", "-."]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["baseline", "ours", "paper"]


@pytest.mark.parametrize("x, halves", [(range(6), False), ([0, 1.5, 4], True), ([0, 0.2, 1], True)])
def test_what_is_counted_has_no_halves(x, halves):
    ax = curves({"ours": (x, range(len(x))), "baseline": 1}, "layer", "y")
    assert (ax.get_xticks() % 1 != 0).any() == halves
    # an axis that does not count from tick to tick
    curves({"ours": ([1, 10], [1, 10])}, "x", "y", ax=panels(1)[0], log="x")
    shared = panels(1)[0]
    shared.set_xscale("log")
    assert curves({"ours": ([1, 10], [1, 10])}, "x", "y", ax=shared).get_xscale() == "log"
    named = panels(1)[0]
    named.set_xticks([0, 0.5], ["a", "b"])  # a picture that names its ticks itself
    assert curves({"ours": ([0, 1], [1, 10])}, "x", "y", ax=named).get_xticks().tolist() == [0, 0.5]


def test_curves_keep_a_gap_and_show_a_single_point():
    ax = curves({"ours": ([1, 2, 3], [1, np.nan, 2]), "x": ([1], [1])}, "x", "y")
    assert np.isnan(ax.lines[0].get_ydata()[1])
    assert ax.lines[1].get_marker() == "o" and ax.lines[0].get_marker() in ("None", None, "")


@pytest.mark.parametrize(
    "log, scales", [("", ("linear", "linear")), ("y", ("linear", "log")), ("xy", ("log", "log"))]
)
def test_curves_log_axes(log, scales):
    ax = curves({"ours": ([1, 10], [1, 10])}, "x", "y", log=log)
    assert (ax.get_xscale(), ax.get_yscale()) == scales


@pytest.mark.parametrize(
    "series",
    [
        {},
        [],
        None,
        {"a": ([1], [1, 2])},
        {"a": ([1, 2], [[1, 2]])},
        {"a": [1, 2, 3]},
        {"a": ([], [])},
        {"a": np.nan},
        {"a": "ab"},
    ],
)
def test_curves_refuse(series):
    with pytest.raises(ValueError, match="expected"):
        curves(series, "x", "y")


def steps_of(outline):
    """Read the edges and the heights of a histogram from its outline, whose path goes along the
    axis and comes back along the steps.
    """
    corners = outline.get_paths()[0].vertices
    steps = corners[len(corners) // 2 + 1 : -1][::-1]
    return np.unique(corners[:, 0]), steps[:-1:2, 1]


def test_histogram_by_hand():
    ax = histogram({"baseline": [1, 1, 2, 4], "ours": [4, 4]}, "length [tokens]", bins=3)
    first, second = ax.collections
    for outline, expected in ((first, [50, 25, 25]), (second, [0, 0, 100])):
        edges, heights = steps_of(outline)
        assert edges.tolist() == [1, 2, 3, 4] and heights.tolist() == expected
    assert first.get_label() == "baseline, mean 2.00" and ax.get_ylabel() == "share of values [%]"
    assert (
        histogram({"ours": [1, 2]}, "x", bins=[0, 1.5, 3], thing="words").get_ylabel()
        == "share of words [%]"
    )


@pytest.mark.parametrize("bins", [1, 10, 50, 64])
def test_cosine_histogram_bins_and_shares(bins):
    cosines = np.random.default_rng(0).uniform(-1, 1, 1000)
    ax = cosine_histogram({"untrained": cosines, "ours": torch.tensor(cosines[:10])}, bins=bins)
    for outline, x in zip(ax.collections, (cosines, cosines[:10]), strict=True):
        edges, share = steps_of(outline)
        assert len(share) == bins and (edges[0], edges[-1]) == (-1, 1)
        counts = [((x >= a) & ((x < b) | (b == 1))).sum() for a, b in zip(edges, edges[1:])]
        np.testing.assert_allclose(share, 100 * np.array(counts) / len(x))
    assert to_hex(ax.collections[0].get_edgecolor()) == PALETTE["untrained"]


@pytest.mark.parametrize(
    "values, expected",
    [
        ([0.3, 0.7], (0.25, 0.75)),
        ([-0.01, 1.0], (-0.25, 1.0)),
        ([0.5, 0.5], (0.5, 0.75)),
        ([-1.0, 0.1], (-1.0, 0.25)),
    ],
)
def test_cosine_histogram_shows_what_is_occupied(values, expected):
    assert cosine_histogram({"ours": values}).get_xlim() == expected
    assert cosine_histogram({"ours": values}, limits=(-1, 1)).get_xlim() == (-1, 1)


def test_cosine_histogram_rounding_is_not_an_error():
    ax = cosine_histogram({"ours": [1 + 1e-6, -1 - 1e-6]}, bins=2)
    assert steps_of(ax.collections[0])[1].tolist() == [50, 50]


@pytest.mark.parametrize("bad", [[1.1], [-1.01, 0], [np.nan], [], [[0.1]]])
def test_cosine_histogram_refuses(bad):
    with pytest.raises(ValueError, match="expected"):
        cosine_histogram({"ours": bad})


def test_heatmap_holds_matrix_names_and_numbers():
    values = np.arange(6.0).reshape(2, 3)
    ax = heatmap(
        values,
        ["a", "b"],
        ["c", "d", "e"],
        xlabel="key",
        ylabel="query",
        value="weight",
        write=".1f",
    )
    np.testing.assert_array_equal(ax.images[0].get_array(), values)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["c", "d", "e"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
    assert {t.get_text(): t.get_position() for t in ax.texts}["5.0"] == (2, 1)  # row 1, column 2
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # row 0 at the top
    assert ax.figure.axes[-1].get_ylabel() == "weight"


@pytest.mark.parametrize(
    "values, limits",
    [
        ([[0, 2]], (0, 2)),
        ([[-3, -1]], (-3, -1)),
        ([[-3, 1]], (-3, 3)),
        ([[-1, 3]], (-3, 3)),
        ([[5, 5]], (4.5, 5.5)),
        ([[np.nan, 1, 2]], (1, 2)),
    ],
)
def test_heatmap_limits(values, limits):
    ax = heatmap(values, value="")  # a colour bar would widen equal limits by itself
    assert ax.images[0].get_clim() == limits
    assert (ax.images[0].get_cmap().name == "RdBu_r") == (limits[0] < 0 < limits[1])


def test_heatmap_given_limits_no_bar_and_blank_cells():
    ax = heatmap([[np.nan, 1.0]], limits=(0, 10), value="", write=".0f")
    assert ax.images[0].get_clim() == (0, 10) and len(ax.figure.axes) == 1
    assert [t.get_text() for t in ax.texts] == ["1"]


@pytest.mark.parametrize(
    "bad",
    [
        dict(values=[1, 2]),
        dict(values=np.ones((1, 2, 3))),
        dict(values=[[np.nan]]),
        dict(values=np.eye(2), rows=["a"]),
        dict(values=np.eye(2), columns="abc"),
        dict(values=np.ones((2, 3)), rows="abc", columns="ab"),
        dict(values=np.ones((0, 2))),
    ],
)
def test_heatmap_refuses(bad):
    with pytest.raises(ValueError, match="expected"):
        heatmap(**bad)


def test_cloud_groups_by_label():
    points = np.arange(8.0).reshape(4, 2)
    ax = cloud(points, labels=torch.tensor([1, 0, 1, 1]), texts=list("abcd"))
    assert [c.get_label() for c in ax.collections] == ["1", "0"]
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), points[[0, 2, 3]])
    np.testing.assert_array_equal(ax.collections[1].get_offsets(), points[[1]])
    assert [(t.get_text(), *t.xy) for t in ax.texts] == [(t, *p) for t, p in zip("abcd", points)]
    assert ax.get_aspect() == 1  # one unit is equally long on both axes


def test_cloud_dict_colours_and_legend():
    ax = cloud({"untrained": np.zeros((1, 2)), "ours": np.ones((3, 2))})
    assert [to_hex(c.get_facecolor()[0]) for c in ax.collections] == [
        PALETTE["untrained"],
        PALETTE["ours"],
    ]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["untrained", "ours"]
    assert cloud(np.ones((3, 2))).get_legend() is None


@pytest.mark.parametrize(
    "bad",
    [
        dict(points=np.ones((3, 3))),
        dict(points=np.ones(3)),
        dict(points={}),
        dict(points={"a": np.ones((2, 1))}),
        dict(points=np.ones((3, 2)), labels=[1, 2]),
        dict(points=np.ones((3, 2)), texts=["a"]),
        dict(points={"a": np.ones((1, 2))}, labels=[1]),
        dict(points=np.ones((11, 2)), labels=range(11)),
        dict(points=[[np.nan, 1]]),
    ],
)
def test_cloud_refuses(bad):
    with pytest.raises(ValueError, match="expected"):
        cloud(**bad)


def test_spectrum_sorts_scales_and_hides_zeros():
    ax = spectrum({"ours": [2, 0, 4, 1], "baseline": torch.tensor([3.0])})
    y = ax.lines[0].get_ydata()
    np.testing.assert_allclose(y[:3], [1, 0.5, 0.25])
    assert np.isnan(y[3]) and ax.lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert ax.get_yscale() == "log" and ax.get_xscale() == "linear"


@pytest.mark.parametrize(
    "bad", [{}, {"ours": [1, -1]}, {"ours": [0, 0]}, {"ours": [[1]]}, {"ours": []}]
)
def test_spectrum_refuses(bad):
    with pytest.raises(ValueError, match="expected"):
        spectrum(bad)
