"""The controls of an explorer inside the frames of several programs, without a kernel: their words
can be read, dark pages have dark controls, and nothing is cut.

VS Code's frame is rebuilt from what its renderer of widgets does: class
`cell-output-ipywidget-background`, white in any theme, with black words or, of late, with those of
the theme.
"""

import json
import os

import pytest
from test_browser import FLAGS

from minbert.explorers.base import asset, choice, slider

pytestmark = pytest.mark.browser

# name -> attributes of the body, colours of the theme (words, page), whether it is dark
THEMES = {
    "VS Code dark": ('class="vscode-dark"', "#cccccc", "#1f1f1f", True),
    "VS Code dark, black words": ('class="vscode-dark"', "#cccccc", "#1f1f1f", True),
    "VS Code light": ('class="vscode-light"', "#3b3b3b", "#ffffff", False),
    "VS Code high contrast": ('class="vscode-high-contrast"', "#ffffff", "#000000", True),
    "VS Code high contrast light": (
        'class="vscode-high-contrast vscode-high-contrast-light"',
        "#292929",
        "#ffffff",
        False,
    ),
    "JupyterLab dark": ('data-jp-theme-light="false"', "#ffffff", "#111111", True),
    "JupyterLab light": ('data-jp-theme-light="true"', "#000000", "#ffffff", False),
}
FRAME = ".cell-output-ipywidget-background {{ background: white !important; color: {}; overflow: hidden; }}"
CONTROLS = [
    choice(
        "view",
        "a long name of a view",
        ["a long name of a view", "other"],
        help="Which of the views is drawn, said in many words that take much room.",
    ),
    slider("radius", 1, 0, 9, 1, help="Its radius."),
]
LIGHT = """([words, page]) => { const light = (colour) => colour.map((part) => part / 255).map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, k) => sum + c * [.2126, .7152, .0722][k], 0);
    const [a, b] = [light(words), light(page)].sort((x, y) => y - x); return (a + .05) / (b + .05); }"""  # contrast of two colours, as WCAG 2 defines it
COLOURS = """label => { const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    let place = label;
    while (parts(getComputedStyle(place).backgroundColor)[3] === 0) place = place.parentElement;
    return [parts(getComputedStyle(label).color).slice(0, 3), parts(getComputedStyle(place).backgroundColor).slice(0, 3)]; }"""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=os.environ.get("MINBERT_BROWSER", "/usr/bin/chromium"), args=FLAGS
        )
        yield browser
        browser.close()


def shown(browser, theme: str, width: int = 900):
    """A page with one explorer in the frame of a program."""
    attributes, words, back, _ = THEMES[theme]
    spec = {"title": "An explorer", "controls": [vars(control) for control in CONTROLS]}
    values = {control.name: control.default for control in CONTROLS}
    told = {
        "spec": spec,
        "values": values,
        "frames": [{"values": values, "source": "data:,", "places": [], "text": "What it shows."}],
    }
    frame = 'class="cell-output-ipywidget-background"' if "VS Code" in theme else ""
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.set_content(f"""<style>:root {{ --vscode-editor-foreground: {words}; }} body {{ color: {words}; background: {back}; margin: 0; }} {FRAME.format("black" if "black words" in theme else words)} {asset("explorer.css")}</style>
        <body {attributes}><div id="frame" {frame}></div></body><script type="module">{asset("explorer.js")}
        offline({json.dumps(told)}, document.querySelector("#frame"));</script>""")
    page.locator(".mb-explorer:not([data-number='0'])").wait_for()
    return page


@pytest.mark.parametrize("theme", THEMES)
def test_words_and_controls_follow_the_theme(browser, theme):
    page, dark = shown(browser, theme), THEMES[theme][3]
    for words in ("label", ".mb-text", "output"):
        colours = page.locator(f".mb-explorer {words}").first.evaluate(COLOURS)
        assert page.evaluate(LIGHT, colours) > 4.5, f"{words}: {colours}"
    knob = page.locator("input[type=range]")
    assert ("dark" in knob.evaluate("knob => getComputedStyle(knob).colorScheme")) == dark
    assert (
        page.locator("img").evaluate("image => getComputedStyle(image).filter") != "none"
    ) == dark
    assert page.problems == []
    page.close()


def test_a_frame_cuts_no_line_round_a_control(browser):
    page = shown(browser, "VS Code light", 340)
    page.locator("select").focus()
    frame, knob = page.locator("#frame").bounding_box(), page.locator("select").bounding_box()
    assert (
        knob["y"] - frame["y"] >= 5 and frame["x"] + frame["width"] - knob["x"] - knob["width"] >= 5
    )
    page.close()


def test_a_list_on_a_phone_takes_its_row(browser):
    page = shown(browser, "JupyterLab light", 275)
    row = page.locator(".mb-row").first.bounding_box()
    assert page.locator("select").bounding_box()["width"] > row["width"] / 2
    page.close()


def test_one_explanation_at_a_time(browser):
    page = shown(browser, "JupyterLab light")
    page.locator("select").focus()
    assert page.locator(".mb-help:visible").all_inner_texts() == [CONTROLS[0].help]
    page.locator("input[type=range]").hover()
    assert page.locator(".mb-help:visible").all_inner_texts() == [CONTROLS[1].help]
    page.close()
