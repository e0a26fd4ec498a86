"""The explorers of sentence embeddings in a real JupyterLab with a real browser: every control is
moved, and every picture has to follow.

Run by MINBERT_BROWSER=/usr/bin/chromium pytest -m browser tests/test_browser.py (.ci/run sets it);
MINBERT_SHOTS names a folder for screenshots.
"""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120  # [s] for anything the browser waits for

pytestmark = pytest.mark.browser


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Frontend(NamedTuple):
    """A program that shows notebooks, and what a page says about it."""

    program: str  # python -m this
    options: list[str]
    address: str  # of a notebook, below the server's own
    ready: str  # JavaScript -> true when the kernel is idle
    run: str  # JavaScript that runs cells until one fails -> the errors shown
    end: str  # JavaScript that ends the kernel


OPTIONS = ["--no-browser", "--ip=127.0.0.1", "--allow-root"]
LAB = Frontend(
    "jupyterlab",
    [
        *OPTIONS,
        "--IdentityProvider.token=",
        "--ServerApp.password=",
        "--ServerApp.root_dir=.",
        "--expose-app-in-browser",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ],
    "lab/workspaces/t/tree/{}?reset",
    "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
    """async () => { const app = window.jupyterapp;
        await app.commands.execute('notebook:run-all-cells');
        const cells = app.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code');
        const outs = cells.flatMap(c => c.model.outputs.toJSON());
        return outs.filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue); }""",
    "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()",
)


@contextlib.contextmanager
def lab(folder: Path, frontend: Frontend = LAB, python: str = sys.executable):
    """Serve `folder`: settings, workspaces and kernels' files all in a place of their own."""
    own, port = folder / ".own", free_port()
    quiet = (
        own / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    )
    quiet.parent.mkdir(parents=True)
    quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    places = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_CONFIG_DIR": "config",
        "IPYTHONDIR": "ipython",
        "JUPYTER_RUNTIME_DIR": "runtime",
    }
    # the embedded sample
    env = {
        k: v for k, v in os.environ.items() if k not in ("IN_TEST", "MPLBACKEND", "MINBERT_DATA")
    }
    env |= {k: str(own / v) for k, v in places.items()} | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
    }
    log = own / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [python, "-m", frontend.program, *frontend.options, f"--port={port}"],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(10 * PATIENCE):
            try:
                urllib.request.urlopen(f"{base}/api/status", timeout=1)
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
        else:
            raise AssertionError(log.read_text())
        yield base
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Shown:
    """One explorer on the page: its controls and its picture."""

    def __init__(self, page, name: str):
        self.page = page
        self.box = page.locator(
            f":is(.jp-OutputArea-output, .output_area) .mb-explorer[aria-label='{name}']"
        ).first
        self.image = self.box.locator(".mb-stage img")

    def ready(self):
        """Wait for the first picture, and until the page shows it: JupyterLab may hide a cell that
        is not in view.
        """
        self.box.locator("xpath=self::*[@data-number!='0']").wait_for(state="attached")
        self.box.scroll_into_view_if_needed()
        self.image.wait_for()

    def shows_rows(self, number: int):
        """Wait until so many rows of controls can be seen: a count taken at once may fall into a
        moment in which the page lays itself anew.
        """
        from playwright.sync_api import expect

        expect(self.box.locator(".mb-row:visible")).to_have_count(number, timeout=PATIENCE * 1000)

    def picture(self) -> str:
        """Fingerprint of the picture, from its bytes."""
        return self.image.evaluate("""async image => {
            const bytes = await (await fetch(image.src)).arrayBuffer();   // a picture a poll would be too much for the wire
            return [...new Uint8Array(await crypto.subtle.digest("SHA-1", bytes))].join(); }""")

    def settled(self, before: str) -> str:
        """Wait for another picture than `before`, and then until the last move is answered, all
        work behind it is done and it stays the same for half a second.
        """
        end, last, since = time.time() + PATIENCE, before, time.time()
        while time.time() < end:
            now = self.picture()
            if now != last:
                last, since = now, time.time()
            if (
                last != before
                and time.time() - since > 0.5
                and self.box.evaluate(
                    "box => box.dataset.ready === 'true' && box.dataset.number === box.dataset.asked"
                )
            ):
                return last
            time.sleep(0.05)
        return last

    def named(self, label: str):
        """The control that a screen reader calls so."""
        return self.box.get_by_label(label, exact=True)

    def press(self, label: str, key: str, times: int = 1):
        knob = self.named(label)
        knob.scroll_into_view_if_needed()
        knob.focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def type(self, label: str, text: str):
        self.named(label).fill(text)

    def choose(self, label: str, option: str):
        self.named(label).select_option(label=option)

    def drag(self, label: str, right: int, down: int):
        """Take a handle and pull it some pixels."""
        knob = self.named(label)
        knob.scroll_into_view_if_needed()
        box = knob.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        for part in (0.3, 0.6, 1):
            self.page.mouse.move(x + part * right, y + part * down)
        self.page.mouse.up()

    def click(self, across: float, down: float):
        """Click the picture at a share of its width and height."""
        self.image.scroll_into_view_if_needed()
        box = self.image.bounding_box()
        self.page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])

    def text(self) -> str:
        return self.box.locator(".mb-text").inner_text()


def move(explorer: Shown, shots: Path, name: str, action) -> None:
    """Do something to a control, demand another picture, keep a screenshot."""
    before = explorer.picture()
    action()
    after = explorer.settled(before)
    explorer.box.scroll_into_view_if_needed()
    explorer.page.screenshot(path=shots / f"{name}.png")
    assert after != before, f"{name}: the picture did not change"


def contact_sheet(shots: list[bytes], columns: int, file: Path) -> None:
    """Paste screenshots into one picture to look at, row by row."""
    from PIL import Image

    pictures = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    across = [
        max(picture.width for picture in pictures[place::columns]) + 10 for place in range(columns)
    ]
    down = max(picture.height for picture in pictures) + 10
    sheet = Image.new("RGB", (sum(across), -(-len(pictures) // columns) * down), "#777777")
    for place, picture in enumerate(pictures):
        sheet.paste(picture, (sum(across[: place % columns]), place // columns * down))
    sheet.save(file)


@pytest.fixture(scope="module")
def shots(tmp_path_factory) -> Path:
    folder = Path(os.environ.get("MINBERT_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def opened(folder: Path, notebook: str, frontend: Frontend = LAB, python: str = sys.executable):
    """A notebook of `folder`, open in a browser, with an idle kernel."""
    from playwright.sync_api import sync_playwright

    with lab(folder, frontend, python) as base, sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=os.environ.get("MINBERT_BROWSER", "/usr/bin/chromium"), args=FLAGS
        )
        page = browser.new_page(viewport={"width": 1250, "height": 950})
        page.set_default_timeout(PATIENCE * 1000)
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(f"{base}/{frontend.address.format(notebook)}")
        page.wait_for_function(frontend.ready)
        page.evaluate(
            "() => { const shell = window.jupyterapp?.shell; if (shell && !shell.leftCollapsed) shell.collapseLeft(); }"
        )
        yield page
        page.evaluate(frontend.end)
        browser.close()


def run_all(page, frontend: Frontend = LAB) -> list[str]:
    """Run every cell until one fails; give the errors shown."""
    return page.evaluate(frontend.run)


FIRST = """from minbert.data import load_dataset
from minbert.encoder import BertModel
from minbert.explorers.embedding_explorers import AnisotropyExplorer, CosineExplorer
from minbert.sentence import SentenceEncoder
pairs = load_dataset("similarity", "dev")
before, after = SentenceEncoder.from_pretrained(device="cpu"), SentenceEncoder.from_pretrained("embedded-sentences", device="cpu")
models = {"before": before, "after": after, "untrained": SentenceEncoder(BertModel(before.model.config), before.tokenizer)}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A notebook with both explorers, run from top to bottom in a browser, without an error in a
    cell or on the page.
    """
    folder = tmp_path_factory.mktemp("lab")
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [
        new_code_cell(source)
        for source in (
            FIRST,
            "CosineExplorer({'before': before, 'after': after}, pairs)",
            "AnisotropyExplorer(models, pairs)",
        )
    ]
    nbformat.write(
        new_notebook(cells=cells, metadata={"kernelspec": spec}), folder / "widgets.ipynb"
    )
    with opened(folder, "widgets.ipynb") as page:
        assert run_all(page) == []
        yield page


def test_every_control_of_the_cosine_explorer(page, shots):
    explorer = Shown(page, "Cosines by grade")
    explorer.ready()
    assert explorer.box.locator(".mb-row").count() == 4
    assert page.locator(".mb-explorer").count() == 2, "each explorer is shown once"
    move(
        explorer,
        shots,
        "cosine_low_edge",
        lambda: explorer.press("band edges, low", "ArrowRight", 2),
    )
    move(
        explorer,
        shots,
        "cosine_high_edge",
        lambda: explorer.press("band edges, high", "ArrowLeft", 2),
    )
    move(explorer, shots, "cosine_smoothing", lambda: explorer.press("smoothing", "ArrowRight", 3))
    move(
        explorer,
        shots,
        "cosine_one_sentence",
        lambda: explorer.type("first sentence", "A cat sleeps."),
    )
    move(
        explorer,
        shots,
        "cosine_two_sentences",
        lambda: explorer.type("second sentence", "The cat is asleep."),
    )
    move(explorer, shots, "cosine_clicked", lambda: explorer.click(0.3, 0.5))
    assert "The ringed pair, grade" in explorer.text()
    move(
        explorer,
        shots,
        "cosine_arrows",
        lambda: (
            explorer.box.locator(".mb-stage").focus(),
            [page.keyboard.press("ArrowRight") for _ in range(4)],
        ),
    )
    assert page.problems == []


def test_every_control_of_the_anisotropy_explorer(page, shots):
    explorer = Shown(page, "The cloud of sentence vectors")
    explorer.ready()
    assert explorer.box.locator(".mb-row").count() == 6
    move(explorer, shots, "space_encoder", lambda: explorer.choose("encoder", "untrained"))
    move(explorer, shots, "space_k", lambda: explorer.press("remove top k", "ArrowRight", 3))
    move(explorer, shots, "space_azimuth", lambda: explorer.press("azimuth [°]", "ArrowRight", 4))
    move(
        explorer, shots, "space_elevation", lambda: explorer.press("elevation [°]", "ArrowLeft", 2)
    )
    move(explorer, shots, "space_state", lambda: explorer.choose("state", "whitened"))
    move(explorer, shots, "space_colours", lambda: explorer.choose("colours show", "grade"))
    assert "untrained, whitened, top 3 removed: Spearman" in explorer.text()
    assert page.problems == []
