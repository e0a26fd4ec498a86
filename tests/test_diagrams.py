"""The diagrams in the notebooks are those that scripts/diagrams.py draws, and can be read on a phone and without colour."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import diagrams  # noqa: E402

NOTEBOOKS = sorted((ROOT / "nbs").rglob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_notebook_shows_its_diagrams_as_the_script_draws_them(file):
    notebook = json.loads(file.read_text(encoding="utf-8"))
    assert not diagrams.attach(notebook), "run scripts/diagrams.py"


def test_every_diagram_is_shown():
    text = "".join(file.read_text(encoding="utf-8") for file in NOTEBOOKS)
    assert set(diagrams.SHOWN.findall(text)) == set(diagrams.DIAGRAMS)


def test_a_changed_diagram_is_found():
    name = next(iter(diagrams.DIAGRAMS))
    cell = {"cell_type": "markdown", "source": [f"![drawing](attachment:{name}.svg)"]}
    notebook = {"cells": [cell]}
    assert diagrams.attach(notebook) and not diagrams.attach(notebook)
    cell["attachments"][f"{name}.svg"]["image/svg+xml"] = "b2xk"
    assert diagrams.attach(notebook)


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_legible(name):
    svg = ET.fromstring(diagrams.DIAGRAMS[name]().svg())
    words = [x for x in svg.iter() if x.tag.endswith("}text")]
    width = float(svg.get("width"))
    assert svg.find("{*}title").text and svg.find("{*}desc").text, (
        "expected a title and a description"
    )
    assert min(float(x.get("font-size")) for x in words) * 390 / width >= 9.5, (
        "too small on a phone"
    )
    for x in words:
        # A character is about 0.55 of the font size wide.
        half = 0.275 * float(x.get("font-size")) * len(x.text or "")
        reach = {"start": (0, 2 * half), "middle": (half, half), "end": (2 * half, 0)}[
            x.get("text-anchor")
        ]
        assert float(x.get("x")) - reach[0] >= 0 and float(x.get("x")) + reach[1] <= width, x.text
    colours = set(re.findall(r'class="([\w-]+)"', diagrams.DIAGRAMS[name]().svg()))
    assert {c for c in colours if not c.startswith("s-")} <= set(diagrams.PALETTE)
