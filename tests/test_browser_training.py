"""The explorers of the temperature and of smoothness in a real JupyterLab with a real browser:
every control is moved, and every picture has to follow.

Run by MINBERT_BROWSER=/usr/bin/chromium pytest -m browser tests/test_browser_training.py;
MINBERT_SHOTS names a folder for screenshots.
"""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from test_browser import Shown, move, opened, run_all, shots  # noqa: F401

pytestmark = pytest.mark.browser

CELLS = [
    "from minbert.explorers.smoothness import SmoothnessExplorer\nfrom minbert.explorers.temperature import TemperatureExplorer",
    "TemperatureExplorer()",
    "SmoothnessExplorer()",
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A notebook with both, run from top to bottom, without an error in a cell or on the page."""
    folder = tmp_path_factory.mktemp("lab")
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        new_notebook(
            cells=[new_code_cell(source) for source in CELLS], metadata={"kernelspec": spec}
        ),
        folder / "both.ipynb",
    )
    with opened(folder, "both.ipynb") as page:
        assert run_all(page) == []
        yield page


def all_views(explorer, shots, name):  # noqa: F811
    """Keep what a wide page and a phone show, light and dark; the panels of a phone stand one above
    the other.
    """
    page, ratios = explorer.page, {}
    for theme in ("Light", "Dark"):
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            f"JupyterLab {theme}",
        )
        page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light",
            arg="true" if theme == "Light" else "false",
        )
        for width in (1280, 390):
            before = explorer.picture()
            page.set_viewport_size({"width": width, "height": 950})
            explorer.settled(before) if width == 390 or ratios else None
            explorer.box.scroll_into_view_if_needed()
            explorer.box.screenshot(path=shots / f"{name}_{width}_{theme.lower()}.png")
            ratios[width, theme] = explorer.image.evaluate(
                "image => image.naturalWidth / image.naturalHeight"
            )
            assert explorer.box.evaluate("box => box.scrollWidth <= box.clientWidth + 1"), (
                f"{name} at {width}: wider than its page"
            )
        assert (explorer.image.evaluate("image => getComputedStyle(image).filter") == "none") == (
            theme == "Light"
        )
    before = explorer.picture()
    page.set_viewport_size({"width": 1250, "height": 950})
    # else the next move would find the wide picture in the place of its own
    explorer.settled(before)
    page.evaluate(
        "() => window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })"
    )
    assert all(ratio > 1 if width == 1280 else ratio < 1 for (width, _), ratio in ratios.items()), (
        ratios
    )


def words_for_all(explorer):
    """Each control has a name and says what it is; the picture has words."""
    for row in explorer.box.locator(".mb-row").all():
        control = row.locator("input, select").first
        assert control.evaluate(
            "c => c.labels.length && c.labels[0].textContent && document.getElementById(c.getAttribute('aria-describedby')).textContent.length > 10"
        )
    assert explorer.text() and explorer.text()[:40] in explorer.image.get_attribute("alt")


def test_every_control_of_the_temperature_explorer(page, shots):  # noqa: F811
    explorer = Shown(page, "The temperature of a batch")
    explorer.ready()
    assert explorer.box.locator(".mb-row").count() == 4
    words_for_all(explorer)
    move(explorer, shots, "temperature_up", lambda: explorer.press("temperature", "ArrowRight", 5))
    assert explorer.text().startswith("Temperature 0.1,")
    move(explorer, shots, "temperature_batch", lambda: explorer.press("batch", "ArrowRight"))
    move(
        explorer, shots, "temperature_repeats", lambda: explorer.press("leave repeats out", "Space")
    )
    assert "left out" in explorer.text()
    move(explorer, shots, "temperature_clicked", lambda: explorer.click(0.15, 0.5))
    assert "Caption" in explorer.text()
    move(
        explorer,
        shots,
        "temperature_arrows",
        lambda: (
            explorer.box.locator(".mb-stage").focus(),
            [page.keyboard.press("ArrowRight") for _ in range(8)],
        ),
    )
    move(explorer, shots, "temperature_all", lambda: explorer.choose("view", "all temperatures"))
    move(explorer, shots, "temperature_one", lambda: explorer.choose("view", "one temperature"))
    all_views(explorer, shots, "temperature")
    assert page.problems == []


def test_every_control_of_the_smoothness_explorer(page, shots):  # noqa: F811
    explorer = Shown(page, "Small steps that move an answer")
    explorer.ready()
    assert explorer.box.locator(".mb-row").count() == 9
    explorer.shows_rows(7)
    words_for_all(explorer)
    move(explorer, shots, "smoothness_width", lambda: explorer.press("width", "End"))
    assert "In 768 dimensions" in explorer.text()
    move(explorer, shots, "smoothness_narrow", lambda: explorer.press("width", "Home"))
    move(explorer, shots, "smoothness_radius", lambda: explorer.press("radius", "ArrowRight", 3))
    move(
        explorer, shots, "smoothness_step", lambda: explorer.press("step [radii]", "ArrowRight", 10)
    )
    move(explorer, shots, "smoothness_draw", lambda: explorer.press("draw", "ArrowRight"))
    move(explorer, shots, "smoothness_head", lambda: explorer.choose("head", "penalty, weight 0.1"))
    move(
        explorer,
        shots,
        "smoothness_sentence",
        lambda: explorer.type("sentence", "Works as described."),
    )
    assert "Works as described." in explorer.text()
    all_views(explorer, shots, "smoothness")
    move(explorer, shots, "smoothness_words", lambda: explorer.choose("view", "words"))
    explorer.shows_rows(5)
    move(explorer, shots, "smoothness_steps", lambda: explorer.press("steps K", "ArrowRight"))
    move(explorer, shots, "smoothness_size", lambda: explorer.press("size", "ArrowRight", 3))
    all_views(explorer, shots, "words")
    assert page.problems == []
