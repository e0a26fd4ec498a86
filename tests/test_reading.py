"""scripts/run_notebooks.py sees a cell that prints other words than those stored below it, and lets
numbers differ.

It reports each chapter as soon as it ends, and no chapter inherits memory or state from another.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
# what it is about -> (source, the text stored below it, None for nothing; whether that is what it
# prints)
CELLS = {
    "another number": (
        "print('loss -0.25, 3 steps', object())",
        "loss 1.5e-07, 12 steps <object object at 0x7f>",
        True,
    ),
    "another word": ("print('loss 0.25')", "cost 0.25", False),
    "a line more": ("print('one')\nprint('two')", "one", False),
    "a line less": ("print('one')", "one\ntwo", False),
    "other names in a result": ("{'a': 1}", "{'b': 1}", False),
    "printed before a semicolon": ("print('one');", "two", False),
    "a result behind a semicolon": ("'one';", None, True),
    "a bar of progress": ("import sys; print('50%', file=sys.stderr)", None, True),
    "nothing stored": ("'one'", None, False),
    "a cell that is not run": ("#| eval: false\nprint('one')", "two", True),
    "a word that chance decides": (
        "import os, pathlib\nfile = pathlib.Path('seen')\nprint('two' if file.exists() else 'one'); file.touch()",
        "two",
        True,
    ),
    "a word of a long training": (
        "print('one')  # words may differ on another processor",
        "two",
        True,
    ),
    "another number of cases": ("print('passed, 24 cases')", "passed, 23 cases", False),
    "a digest": ("print('0f8a' * 16)", "1b9d" * 16, True),
    "a line less behind a cell left out": ("print('one')", "one\ntwo", True),
    "another word behind a cell left out": ("print('one')", "two", False),
}


def chapter(path: Path, source: str, text: str | None) -> None:
    first = "#| slow\nx = 1" if "left out" in path.stem else "x = 1"
    outputs = [] if text is None else [new_output("stream", text=text)]
    nbformat.write(
        new_notebook(cells=[new_code_cell(first), new_code_cell(source, outputs=outputs)]), path
    )


def project(folder: Path) -> Path:
    """Make a project without chapters that has the script."""
    for name in ("nbs", "scripts"):
        (folder / name).mkdir()
    for name in (
        "scripts/run_notebooks.py",
        "scripts/reading.py",
        "scripts/stored.py",
        "settings.ini",
        "pyproject.toml",
    ):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> str:
    """What the script says of a chapter for each of the cells."""
    folder = project(tmp_path_factory.mktemp("project"))
    for name, (source, text, _) in CELLS.items():
        chapter(folder / "nbs" / f"{name}.ipynb", source, text)
    done = subprocess.run(
        [sys.executable, "scripts/run_notebooks.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == sum(not same for _, _, same in CELLS.values()), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", CELLS)
def test_stored_words_are_those_that_the_cell_prints(told, name):
    failed = told.rpartition("failed: ")[2].strip().split(", ")
    assert (f"{name}.ipynb" in failed) != CELLS[name][2]
    assert (f"{name}.ipynb, cell 1, " in told) != CELLS[name][2]


WAITING = """import pathlib, time
for _ in range(1200):
    if pathlib.Path("go").exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError("expected the file go, which is written once the other chapter is reported")"""


def test_a_chapter_is_reported_as_soon_as_it_ends(tmp_path):
    folder = project(tmp_path)
    chapter(folder / "nbs" / "b_waits.ipynb", WAITING, None)
    chapter(folder / "nbs" / "a_ends.ipynb", "x = 1", None)
    script = subprocess.Popen(
        [sys.executable, "scripts/run_notebooks.py"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        first = script.stdout.readline()
        (folder / "nbs" / "go").touch()
        rest, _ = script.communicate(timeout=120)
    finally:
        script.kill()
    assert re.fullmatch(r"\[1/2\] a_ends\.ipynb: \d+ s, \d+\.\d GB\n", first)
    assert (
        "[2/2] b_waits.ipynb: " in rest
        and rest.endswith("Success: 2 chapters.\n")
        and script.returncode == 0
    )


def test_a_chapter_that_was_run_in_jupyter_is_called_so(tmp_path):
    folder = project(tmp_path)
    cell = new_code_cell(
        "print('one')", execution_count=3, outputs=[new_output("stream", text="two")]
    )
    nbformat.write(new_notebook(cells=[new_code_cell("x = 1"), cell]), folder / "nbs" / "run.ipynb")
    chapter(folder / "nbs" / "other.ipynb", "print('one')", "two")
    done = subprocess.run(
        [sys.executable, "scripts/run_notebooks.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (
        "nbs/run.ipynb was run in Jupyter" in done.stdout
        and "git restore nbs/run.ipynb" in done.stdout
        and done.returncode == 2
    )
    assert "nbs/other.ipynb was run" not in done.stdout


def test_a_chapter_inherits_nothing_and_one_that_is_killed_is_named(tmp_path):
    """Five chapters on two workers: with a process for several chapters, one would find what
    another left behind.
    """
    folder = project(tmp_path)
    for name in "abcd":
        source = "import os\nassert 'LEFT' not in os.environ, 'inherited'\nos.environ['LEFT'] = '1'\nlarge = bytearray(400_000_000)"
        chapter(folder / "nbs" / f"{name}.ipynb", source, None)
    chapter(
        folder / "nbs" / "killed.ipynb",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        None,
    )
    done = subprocess.run(
        [sys.executable, "scripts/run_notebooks.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1 and done.stdout.endswith("failed: killed.ipynb\n"), done.stdout
    assert "killed.ipynb: expected a report, but its process was stopped by SIGKILL" in done.stdout
    memory = re.findall(r"\[\d/5\] [a-d]\.ipynb: \d+ s, (\d+\.\d) GB", done.stdout)
    assert len(memory) == 4 and all(0.4 <= float(size) < 0.9 for size in memory)
