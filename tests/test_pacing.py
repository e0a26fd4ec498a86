"""scripts/pacing.py counts what a reader sees, and no chapter asks for more than it allows."""

import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import pacing  # noqa: E402

CHAPTERS = sorted((ROOT / "nbs").glob("[1-5]_*/[0-9][0-9]_*.ipynb"))


def test_chapters_are_found():
    assert len(CHAPTERS) == 36


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_a_chapter_takes_ninety_minutes_at_most(chapter):
    found = pacing.pace(chapter)
    assert 0 < found.minutes <= pacing.HOURS and max(found.lines) <= pacing.LONGEST


def test_what_is_hidden_costs_nothing_and_the_rest_does(tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell("one two three, don't"),
        nbformat.v4.new_code_cell("#| hide\n" + "x = 1\n" * 50),
        nbformat.v4.new_code_cell("a = 1\n\nb = 2"),
        nbformat.v4.new_code_cell(
            "#| export\n#| exercise training.clip points=2 minutes=15 target=f\ndef f():\n    return 1"
        ),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "00_x.ipynb")
    found = pacing.pace(tmp_path / "00_x.ipynb")
    assert (found.words, found.lines, found.exercises) == (4, [2, 4], 15)
    assert found.minutes == pytest.approx(4 / pacing.READING + 6 / pacing.LINES + 15)
