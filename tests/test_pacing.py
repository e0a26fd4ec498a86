"""scripts/pacing.py counts what a reader sees, and no chapter asks for more than it allows."""

import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import pacing  # noqa: E402

CHAPTERS = sorted((ROOT / "nbs").glob("[1-5a]*/[0-9][0-9]_*.ipynb"))


def test_chapters_are_found():
    assert len(CHAPTERS) == 33


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_a_chapter_takes_ninety_minutes_at_most(chapter):
    found = pacing.pace(chapter)
    assert 0 < found.minutes <= pacing.HOURS
    assert max(found.lines) <= pacing.LONGEST


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_a_chapter_states_its_time(chapter):
    text = chapter.read_text(encoding="utf-8")
    assert text == pacing.with_minutes(text), "run: python scripts/pacing.py --plans"


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
    assert found.lines == [2, 4] and found.effort == (4, [2, 0], 15)  # an exercise has its minutes
    assert found.minutes == pytest.approx(4 / 200 + 2 / 4 + 15)


def test_the_course_plans_state_the_hours_of_the_chapters():
    stated = pacing.PLANS.read_text(encoding="utf-8")
    assert stated == pacing.plans_with_hours(), "run: python scripts/pacing.py --plans"
    assert stated.count(" h) |") > 30


def test_hours_are_written_behind_lists_of_chapters_only():
    text = "| 01 | x |\n## Ways through the book\n| 1 | 00, 02 to 04 | 02 (9.9 h) | 03, x |\n"
    minutes = {"00": 30.0, "02": 60.0, "03": 60.0, "04": 45.0}
    assert pacing.with_hours(text, minutes) == (
        "| 01 | x |\n## Ways through the book\n| 1 | 00, 02 to 04 (3.2 h) | 02 (1.0 h) | 03, x |\n"
    )
    with pytest.raises(ValueError, match="got 05 in '04 to 05'"):
        pacing.chapters_of("04 to 05", list(minutes))
