"""The first cell of each chapter installs minbert in Colab, or says in a sentence what to do; no text names a public address."""

import re
import subprocess
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from minbert.course.workspace import where_minbert_is

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted((ROOT / "nbs").glob("[1-5a]*/*.ipynb"))
TEXTS = {".py", ".ipynb", ".md", ".ini", ".toml", ".yml", ".cff"}


def first_cell(path: Path) -> str:
    """Give the first code cell of a notebook."""
    return next(
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    )


CELL = first_cell(ROOT / "nbs" / "1_bert/02_attention.ipynb")


def test_no_text_names_a_public_address():
    """There is none yet. CONTRIBUTING.md ("Publishing") tells what to change when there is."""
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    ours = re.compile(
        r"https?://[\w.-]+/[\w.-]+/minbert\b|minbert\.github\.io|colab\.research\.google\.com/github/(?!OWNER/)[\w-]+/\w+"
    )
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in files
        if Path(name).suffix in TEXTS and not name.startswith("tests/") and (ROOT / name).is_file()
    }
    assert len(texts) > 150
    assert not {name: found for name, text in texts.items() if (found := ours.findall(text))}


def test_every_chapter_begins_with_the_same_cell():
    """Only packages at the end of the line that installs may differ, such as smart-pytorch."""
    others = {
        path.name: cell
        for path in CHAPTERS
        if re.sub(r"(fastcore anywidget).*", r"\1", cell := first_cell(path)) != CELL
    }
    assert len(CHAPTERS) > 20 and others == {}, (
        f"copy the first code cell of 02_attention into {', '.join(others)}"
    )


def executed(cell: str, before: str, folder: Path) -> str:
    """Run a cell as Jupyter does; give the name of the error it ends with and what it says."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(s) for s in (before, cell, "print('went on')")]
    )
    client = NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    try:
        client.execute()
    except CellExecutionError as error:
        return f"{error.ename}: {error.evalue}"
    return str(notebook.cells[-1].outputs)


HIDDEN = "import sys\nsys.modules['minbert'] = None   # as if it were not installed"


def test_a_first_cell_whose_installation_failed_stops_with_a_sentence(tmp_path):
    said = executed(CELL, HIDDEN, tmp_path)
    assert (
        said.startswith("SystemExit: This chapter needs minbert") and "No module named" not in said
    )
    assert "went on" in executed(CELL, "pass", tmp_path)


def test_in_colab_the_wheel_beside_the_chapter_is_installed(tmp_path):
    """A shell of Colab's name, whose %pip writes down what it was asked for."""
    colab = (
        "shell = get_ipython()\ntype(shell).__str__ = lambda self: '<google.colab._shell.Shell>'\n"
        "def pip(line):\n    open('asked', 'w').write(line)\n"
        "shell.register_magic_function(pip, 'line', 'pip')"
    )
    # Without the wheel there is one message, and none of pip's.
    assert executed(CELL, f"{colab}\n{HIDDEN}", tmp_path).startswith(
        "SystemExit: This chapter needs minbert"
    )
    assert not (tmp_path / "asked").exists()
    (tmp_path / "minbert-0.3.0-py3-none-any.whl").touch()
    assert "went on" in executed(CELL, colab, tmp_path)
    assert (
        tmp_path / "asked"
    ).read_text().strip() == 'install -q "minbert-0.3.0-py3-none-any.whl[train]" fastcore anywidget'
    assert executed(CELL, f"{colab}\n{HIDDEN}", tmp_path).startswith(
        "SystemExit: This chapter needs minbert"
    )


def test_a_workspace_names_the_address_or_the_wheel():
    there = "https://github.com/somebody/minbert"
    assert (
        "git+" + there in where_minbert_is(there)["install"]
        and there in where_minbert_is(there)["course"]
    )
    assert ".whl[notebooks]" in where_minbert_is("")["install"] and "http" not in "".join(
        where_minbert_is("").values()
    )
