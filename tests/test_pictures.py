"""The words on the pictures of all explorers: none covers another, none leaves the frame, none lies
under a handle; wide and for a phone.
"""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.contour import ContourSet
from matplotlib.text import Text
from test_browser_all import FIRST, MAKES

from minbert.explorers.attention import AttentionExplorer
from minbert.explorers.conflict import ConflictExplorer

# pixels from its middle to its rim, shown on a picture of this share of its size
HANDLE, SMALLEST = 13, 0.55


def drawn(figure) -> FigureCanvasAgg:
    """Draw a figure anew, since a shown one has lost its canvas."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def out_of_view(figure) -> set:
    """Find the numbers of ticks that are not drawn, and what a contour writes on its own lines."""
    found = {text for contours in figure.findobj(ContourSet) for text in contours.labelTexts}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not low - 1e-6 * (high - low) <= tick.get_loc() <= high + 1e-6 * (high - low):
                    found |= {tick.label1, tick.label2}
    return found


def words_on(
    figure,
    # of (words, box in pixels); without panels in space, whose slanting words have boxes that are
    # too large
) -> list:
    """Say where the words of a picture are."""
    renderer, hidden = drawn(figure).get_renderer(), out_of_view(figure)
    hidden |= {text for axes in figure.axes if axes.name == "3d" for text in axes.findobj(Text)}
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]


def collisions(figure) -> list[str]:
    """Name words that leave the picture or cover other words, by more than a pixel."""
    words, width, height = words_on(figure), figure.bbox.width, figure.bbox.height
    left = [
        name
        for name, box in words
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
    covered = [
        f"{a} / {b}"
        for (a, x), (b, y) in combinations(words, 2)
        if min(x.x1, y.x1) - max(x.x0, y.x0) > 1 and min(x.y1, y.y1) - max(x.y0, y.y0) > 1
    ]
    return left + covered


@pytest.fixture(scope="module")
def names() -> dict:
    """What the cells of the browser tests need to make explorers."""
    found = {}
    exec(FIRST, found)
    return found


@pytest.mark.long
@pytest.mark.parametrize("title", MAKES)
def test_words_have_room(names, title):
    explorer = eval(MAKES[title], names)
    views = explorer.controls["view"].bounds["choices"] if "view" in explorer.controls else [None]
    for view in views:
        for narrow in (False, True):
            settings = {"view": view} if view else {}
            assert collisions(explorer.figure(narrow, **settings)) == [], (
                f"{view}, {'for a phone' if narrow else 'wide'}"
            )


def under(figure, name: str, place) -> bool:
    """Say whether a handle at a place of the first panel would cover some of a name there."""
    renderer, panel = drawn(figure).get_renderer(), figure.axes[0]
    (box,) = [text.get_window_extent(renderer) for text in panel.texts if text.get_text() == name]
    middle = panel.transData.transform(place)
    nearest = np.clip(middle, [box.x0, box.y0], [box.x1, box.y1])
    return max(abs(nearest - middle)) < HANDLE / SMALLEST - 1  # handles are disks or squares


@pytest.mark.parametrize("place", [(2.5, 0.2), (-1.0, -1.0), (3.0, 3.0), (0.1, 2.9), (2.9, 0.0)])
def test_a_handle_leaves_the_name_of_a_key(place):
    figure = AttentionExplorer().figure(key=place, query=(-0.9, 1.0))
    assert not under(figure, "river", place)


@pytest.mark.parametrize("place", [(2.0, 0.4), (-1.2, 1.4), (0.0, -2.9), (0.3, 0.0)])
def test_a_handle_leaves_the_name_of_a_gradient(place):
    assert not under(ConflictExplorer().figure(first=place), "g1", place)
