"""Running a chapter in Jupyter, which stores its outputs, leaves no riddle: every test that fails
then says what to do.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stored import how_to_restore, notebooks_that_were_run, was_run

ROOT = Path(__file__).resolve().parent.parent
# its explorer stored a picture, and 48 minutes later a test said `assert 5 == 6`
CHAPTER = "3_embeddings/16_contrastive.ipynb"


def run_in_jupyter(file: Path) -> None:
    """Do to a notebook what Run All with autosave does: number the cells, and store one more
    output.
    """
    notebook = json.loads(file.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, 1):
        cell["execution_count"] = number
    output = next(cell["outputs"][0] for cell in code if cell["outputs"])
    code[-1]["outputs"] = [*code[-1]["outputs"], output]
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@pytest.fixture
def clone(tmp_path) -> Path:
    """A copy of what the scripts read, with a chapter that was run."""
    for name in ("nbs", "scripts"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints")
        )
    assert notebooks_that_were_run(tmp_path) == []
    run_in_jupyter(tmp_path / "nbs" / CHAPTER)
    return tmp_path


def test_a_notebook_that_was_run_is_found_and_the_way_back_named(clone):
    assert notebooks_that_were_run(clone) == [clone / "nbs" / CHAPTER]
    told = how_to_restore([clone / "nbs" / CHAPTER], clone)
    assert (
        told.startswith(f"nbs/{CHAPTER} was run in Jupyter")
        and f"`git restore nbs/{CHAPTER}`" in told
    )


def test_what_is_no_notebook_was_not_run(tmp_path):
    for i, text in enumerate(("", "{}", "[]", "{")):
        (tmp_path / f"{i}.ipynb").write_text(text)
        assert not was_run(tmp_path / f"{i}.ipynb")


@pytest.mark.parametrize(
    "script, options",
    [("build_course.py", ()), ("build_course.py", ("--check",)), ("build_readme.py", ())],
)
def test_outputs_of_a_run_reach_neither_the_learners_edition_nor_the_readme(clone, script, options):
    run_in_jupyter(clone / "nbs" / "index.ipynb")
    files = sorted(file for file in clone.rglob("*") if file.is_file())
    done = subprocess.run(
        [sys.executable, clone / "scripts" / script, *options],
        capture_output=True,
        text=True,
        cwd=clone,
    )
    assert done.returncode == 1 and "git restore nbs/index.ipynb" in done.stdout, done.stderr
    assert (
        sorted(
            file for file in clone.rglob("*") if file.is_file() and "__pycache__" not in file.parts
        )
        == files
    )


@pytest.mark.parametrize("touched", [True, False])
def test_a_test_that_fails_says_which_notebook_was_run(clone, touched):
    (clone / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", clone / "tests")
    (clone / "tests" / "test_pictures.py").write_text(
        "def test_pictures():\n    assert 5 == 6\n\n\ndef test_fine():\n    pass\n"
    )
    if not touched:
        shutil.copy(ROOT / "nbs" / CHAPTER, clone / "nbs" / CHAPTER)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests"], capture_output=True, text=True, cwd=clone
    )
    assert "1 failed, 1 passed" in done.stdout and "assert 5 == 6" in done.stdout
    assert (f"`git restore nbs/{CHAPTER}`" in done.stdout) is touched
