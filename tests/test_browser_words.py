"""The explorers of attention and of hidden words in a real JupyterLab with a real browser: every
control is moved, and every picture has to follow.

A file of its own: one browser must be closed before the next is opened in a process. Run by
MINBERT_BROWSER=/usr/bin/chromium pytest -m browser tests/test_browser_words.py; MINBERT_SHOTS names
a folder for screenshots.
"""

import pytest
from test_browser import Shown, move, opened, run_all, shots  # noqa: F401

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def words_page(tmp_path_factory):
    """The explorers of attention and of hidden words, each in a cell of its own, as in chapters 02
    and 10.
    """
    import nbformat

    folder = tmp_path_factory.mktemp("words")
    cells = [
        "from minbert.explorers.attention import AttentionExplorer\nAttentionExplorer()",
        "from minbert.explorers.masked_word import MaskedWordExplorer\nMaskedWordExplorer({'untrained': 'untrained', 'embedded': None})",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    # else JupyterLab asks
    notebook.metadata["kernelspec"] = {
        "display_name": "python3",
        "language": "python",
        "name": "python3",
    }
    nbformat.write(notebook, folder / "words.ipynb")
    with opened(folder, "words.ipynb") as page:
        assert run_all(page) == []
        yield page


def test_every_control_of_the_attention_explorer(words_page, shots):
    explorer = Shown(words_page, "What a token attends to")
    explorer.ready()
    assert explorer.box.locator(".mb-row:not(.mb-idle)").count() == 4  # and two handles
    move(explorer, shots, "attention_query", lambda: explorer.drag("query", 60, 30))
    move(explorer, shots, "attention_key", lambda: explorer.press("key of river", "ArrowUp", 8))
    # to 0
    move(
        explorer,
        shots,
        "attention_factor",
        lambda: explorer.press("factor of the scores", "ArrowLeft", 4),
    )
    move(
        explorer,
        shots,
        "attention_hidden",
        lambda: explorer.box.get_by_role("button", name="money", exact=True).click(),
    )
    assert "money 0.00 (hidden)" in explorer.text()
    assert (
        explorer.box.get_by_role("button", name="money", exact=True).get_attribute("aria-pressed")
        == "true"
    )
    move(
        explorer,
        shots,
        "attention_mask",
        lambda: explorer.press("mask: log10 of −constant", "Home"),
    )
    assert "money 0.16 (hidden)" in explorer.text()  # e^-1 / (2 + e^-1)
    move(
        explorer,
        shots,
        "attention_formula",
        lambda: explorer.press("factor of the scores", "ArrowRight", 4),
    )
    move(explorer, shots, "attention_sentence", lambda: explorer.choose("view", "a sentence"))
    assert explorer.box.get_by_role("group", name="hide tokens").get_by_role("button").count() == 12
    move(explorer, shots, "attention_layer", lambda: explorer.press("layer", "ArrowRight"))
    move(explorer, shots, "attention_head", lambda: explorer.press("head", "ArrowRight"))
    rose = explorer.box.get_by_role("button", name="rose", exact=True)
    move(
        explorer,
        shots,
        "attention_piece",
        lambda: (rose.focus(), words_page.keyboard.press("Space")),
    )
    assert "Hidden: the, rose." in explorer.text()  # money stood at the second place
    move(
        explorer,
        shots,
        "attention_text",
        lambda: explorer.type("sentence", "The bank raised its rates."),
    )
    assert explorer.box.get_by_role("button", name="raised", exact=True).count() == 1
    explorer.image.hover(position={"x": 130, "y": 60})
    assert ", key " in explorer.box.locator(".mb-tip").inner_text()
    assert words_page.problems == []


def test_every_control_of_the_explorer_of_hidden_words(words_page, shots):
    explorer = Shown(words_page, "Guesses of a hidden word")
    explorer.ready()
    explorer.box.scroll_into_view_if_needed()
    assert explorer.box.locator(".mb-row:not(.mb-idle)").count() == 2
    move(
        explorer,
        shots,
        "masked_second",
        lambda: explorer.box.get_by_role("button", name="river", exact=True).click(),
    )
    assert "the [MASK] flows into the [MASK]" in explorer.text()
    move(explorer, shots, "masked_gap", lambda: explorer.press("which gap", "ArrowRight"))
    assert "Hidden: “sea”" in explorer.text()
    move(
        explorer,
        shots,
        "masked_text",
        lambda: explorer.type("sentence", "A river runs into the lake and the old harbour."),
    )
    assert words_page.problems == []


def test_both_in_a_dark_and_in_a_narrow_page(words_page, shots):
    explorers = [
        Shown(words_page, name) for name in ("What a token attends to", "Guesses of a hidden word")
    ]
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        words_page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
        )
        words_page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light",
            arg=str(theme == "JupyterLab Light").lower(),
        )
        for width in (1280, 390):
            words_page.set_viewport_size({"width": width, "height": 1100})
            for number, explorer in enumerate(explorers):
                explorer.box.scroll_into_view_if_needed()
                words_page.wait_for_function(
                    """box => { const image = box.querySelector('.mb-stage img'), upright = image.naturalHeight > 0.9 * image.naturalWidth;
                    return box.dataset.width == box.clientWidth && box.dataset.number === box.dataset.asked && upright === (box.clientWidth < 560); }""",
                    arg=explorer.box.element_handle(),
                )
                words_page.screenshot(
                    path=shots / f"words_{number}_{theme.split()[1].lower()}_{width}.png"
                )
                assert explorer.box.evaluate("box => box.scrollWidth <= box.clientWidth + 1"), (
                    f"{width}: wider than the page"
                )
                turned = explorer.image.evaluate("image => getComputedStyle(image).filter")
                assert ("invert" in turned) == (theme == "JupyterLab Dark")
    assert words_page.problems == []
