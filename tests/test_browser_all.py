"""All explorers in JupyterLab 4, and in JupyterLab 3 and Notebook 6 with the widgets of Colab: each
control is moved, and the picture has to follow.

What moves is read from the page, so a new control is moved too. The old programs are installed into
a folder that is thrown away (half a minute, with an index of packages at hand). Run by
MINBERT_BROWSER=/usr/bin/chromium pytest -m browser tests/test_browser_all.py; MINBERT_SHOTS names a
folder for screenshots and contact sheets.
"""

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from test_browser import LAB, OPTIONS, Frontend, Shown, contact_sheet, move, opened, run_all, shots  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.long]

OLD = ["jupyterlab==3.6.8", "notebook==6.5.7", "ipywidgets==7.7.1", "jupyterlab-widgets<2"]
NOTEBOOK = Frontend(
    "notebook",
    [*OPTIONS, "--NotebookApp.token=", "--NotebookApp.password="],
    "notebooks/{}",
    "() => { const book = window.Jupyter?.notebook; return book?.kernel?.info_reply?.status === 'ok' && !book.kernel_busy && book._fully_loaded && 'jupyter.widget' in book.kernel.comm_manager.targets; }",
    # its widgets ask an old kernel for a list that only newer ones have, are refused, and ask
    # again: what runs before both answers came is shown by none
    """async () => { const book = window.Jupyter.notebook, cells = book.get_cells().filter(c => c.cell_type === 'code');
        const asked = () => new Promise(done => book.kernel.comm_info('jupyter.widget', done));
        for (let time = 0; time < 3; time++) await asked();
        book.execute_all_cells();
        while (cells.some(c => !(c.input_prompt_number > 0)) || book.kernel_busy) await new Promise(done => setTimeout(done, 100));
        return cells.flatMap(c => c.output_area.outputs).filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue); }""",
    "() => new Promise(done => window.Jupyter.notebook.kernel.kill(done, done))",
)
FRONTENDS = {
    "JupyterLab 4": (LAB, False),
    "JupyterLab 3": (LAB, True),
    "Notebook 6": (NOTEBOOK, True),
}
MAKES = {  # title -> what makes it
    "Cosines by grade": "CosineExplorer({'before': before, 'after': after}, pairs)",
    "The cloud of sentence vectors": "AnisotropyExplorer({'before': before, 'after': after}, pairs)",
    "What a token attends to": "AttentionExplorer()",
    "Guesses of a hidden word": "MaskedWordExplorer({'untrained': 'untrained', 'embedded': None})",
    "A flow bends the plane": "FlowExplorer()",
    "Gradients in conflict": "ConflictExplorer()",
    "The temperature of a batch": "TemperatureExplorer()",
    "Small steps that move an answer": "SmoothnessExplorer()",
}
FIRST = """from minbert.data import load_dataset
from minbert.sentence import SentenceEncoder
from minbert.explorers.attention import AttentionExplorer
from minbert.explorers.conflict import ConflictExplorer
from minbert.explorers.flow import FlowExplorer
from minbert.explorers.masked_word import MaskedWordExplorer
from minbert.explorers.smoothness import SmoothnessExplorer
from minbert.explorers.temperature import TemperatureExplorer
from minbert.explorers.embedding_explorers import AnisotropyExplorer, CosineExplorer
pairs = load_dataset("similarity", "dev")
before, after = SentenceEncoder.from_pretrained(device="cpu"), SentenceEncoder.from_pretrained("embedded-sentences", device="cpu")
import ipywidgets
print(ipywidgets.__version__)"""


@pytest.fixture(scope="module")
def old_python(tmp_path_factory) -> str:
    """Python of an environment with old programs; all else is that of this environment."""
    folder = tmp_path_factory.mktemp("old")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", *OLD, f"anywidget=={version('anywidget')}"],
        check=True,
    )
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # comes last: what is old hides what is new
    (Path(place) / "all_else.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.release if old else ())
        for name, (_, old) in FRONTENDS.items()
    ],
)
def page(request, tmp_path_factory):
    """A notebook with all explorers, run from top to bottom; afterwards neither page nor kernel had
    an error.
    """
    frontend, old = FRONTENDS[request.param]
    python = request.getfixturevalue("old_python") if old else sys.executable
    folder = tmp_path_factory.mktemp("all")
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(
        new_notebook(
            cells=[new_code_cell(source) for source in (FIRST, *MAKES.values())],
            metadata={"kernelspec": spec},
        ),
        folder / "all.ipynb",
    )
    with opened(folder, "all.ipynb", frontend, python) as page:
        page.name = request.param
        assert run_all(page, frontend) == []
        first = page.locator(":is(.jp-OutputArea-output, .output_area)").first.inner_text()
        assert first.strip() == ("7.7.1" if old else version("ipywidgets"))
        yield page
        assert page.problems == []


def actions(explorer: Shown, done: set):
    """Give (name, label, action) of each control that shows and was not moved yet; which ones show
    may change with each move.
    """
    while True:
        rows = {
            row.get_attribute("data-name"): row
            for row in explorer.box.locator(".mb-row:not(.mb-idle)").all()
        }
        left = [name for name in rows if name not in done and name != "view"]
        if not left:
            break
        done.add(left[0])
        yield left[0], lambda row=rows[left[0]]: moved(explorer.page, row)
    for knob in explorer.box.locator(".mb-handle:visible").all():
        name = knob.get_attribute("aria-label")
        if name not in done:
            done.add(name)
            yield name, lambda: explorer.drag(name, -40, 25)
    if explorer.box.locator(".mb-stage[role=application]").count() and "pick" not in done:
        done.add("pick")
        yield "pick", lambda: explorer.click(0.15, 0.5)


def moved(page, row):
    """Move a control by hand, whatever its kind: to an end, to the next choice, to other words."""
    row.scroll_into_view_if_needed()
    if row.locator(".mb-words").count():
        return row.locator("button[aria-pressed=false]").nth(1).click()
    knob = row.locator("input, select").first
    kind = knob.evaluate("knob => knob.type")
    if kind == "range":
        low = knob.evaluate("knob => knob.value === knob.min")
        knob.focus()
        page.keyboard.press("End" if low else "Home")
    elif kind == "select-one":
        knob.select_option(
            index=knob.evaluate("knob => (knob.selectedIndex + 1) % knob.options.length")
        )
    elif kind == "checkbox":
        knob.click()
    else:  # letters that mean something to a notebook: a new cell, delete a cell
        words = [
            "A mad dog adds mud to the bed and a cat nods at it.",
            "Add a bad cab to the tab and nod at the dad in it.",
        ]
        text = words[knob.input_value() == words[0]]
        knob.click()
        page.keyboard.press("Control+A")
        page.keyboard.type(text)


@pytest.mark.parametrize(
    "everywhere",
    [
        pytest.param(False, id="once"),
        pytest.param(True, marks=pytest.mark.release, id="in every view"),
    ],
)
@pytest.mark.parametrize("title", MAKES)
def test_every_control(page, shots, title, everywhere):  # noqa: F811
    """Every view is shown, every control moves: in one view, and before a release in each. What a
    view draws is the kernel's work, and tested there.
    """
    if everywhere and page.name != "JupyterLab 4":
        pytest.skip("in the old ones each control moves in one view")
    explorer = Shown(page, title)
    explorer.ready()
    name = re.sub(r"\W+", "_", f"{page.name} {title}{' everywhere' * everywhere}")
    views, done = explorer.box.locator("[data-name=view] option").all_inner_texts() or [None], set()
    for view in views:
        if view != views[0]:
            move(explorer, shots, f"{name}_{view}", lambda: explorer.choose("view", view))
        if everywhere:
            done.clear()
        for control, action in actions(explorer, done):
            move(explorer, shots, f"{name}_{view}_{control}", action)
        print(page.name, title, view, sorted(done))
    assert page.locator(".mb-refused").count() == 0 and page.problems == []


@pytest.mark.parametrize("title", MAKES)
def test_a_contact_sheet_of_each_explorer(page, shots, title):  # noqa: F811
    """One picture with three widths, light and dark, to look at; nothing is wider than its page.
    After the moves above, so not as it first stood.
    """
    if page.name != "JupyterLab 4":
        pytest.skip("no command for its theme; what it shows is in the screenshots of the moves")
    explorer, seen = Shown(page, title), []
    for theme in ("Light", "Dark"):
        page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })",
            f"JupyterLab {theme}",
        )
        page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light",
            arg=str(theme == "Light").lower(),
        )
        for width in (1280, 800, 390):
            # so high that all of it is drawn
            page.set_viewport_size({"width": width, "height": 1600})
            explorer.box.scroll_into_view_if_needed()  # what is far away is not laid out
            page.wait_for_function(
                """box => { const image = box.querySelector('.mb-stage img'), upright = image.naturalHeight > 0.9 * image.naturalWidth;   // panels in a row only where letters can be read
                return box.dataset.width == box.clientWidth && image.clientWidth > 0.59 * image.naturalWidth && (upright || box.clientWidth >= 560) && (!upright || box.clientWidth < 900); }""",
                arg=explorer.box.element_handle(),
            )
            explorer.box.locator("input, select, button").first.focus()  # its explanation opens
            page.wait_for_timeout(300)
            wide = explorer.box.evaluate(
                "box => box.scrollWidth <= box.clientWidth + 1 ? [] : [...box.querySelectorAll('*')].filter(x => x.scrollWidth > x.clientWidth + 1).map(x => `${x.tagName}.${x.className}: ${x.scrollWidth} in ${x.clientWidth}`)"
            )
            assert wide == [], f"{width}: wider than the page: {wide}"
            seen.append(explorer.box.screenshot())
    contact_sheet(seen, 3, shots / f"{re.sub(r'[^A-Za-z]+', '_', title)}_sheet.png")
    assert page.problems == []
