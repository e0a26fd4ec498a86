"""One setting holds the repository's address; links, installation lines and first cells follow from
it, there and back.
"""

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from minbert.course.workspace import where_minbert_is

ROOT = Path(__file__).resolve().parent.parent
THERE = "https://github.com/somebody/minbert"
TEXTS = {".py", ".ipynb", ".md", ".ini", ".toml"}
CELL = nbformat.read(ROOT / "nbs" / "1_bert/02_attention.ipynb", as_version=4).cells[1].source


def written_address() -> str:
    settings = ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    return settings["DEFAULT"]["address"].strip()


def test_nothing_points_to_an_address_that_the_settings_do_not_name():
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    ours = re.compile(
        r"https?://[\w.-]+/[\w.-]+/minbert\b|minbert\.github\.io|colab\.research\.google\.com/github/[\w-]+/\w+"
    )
    known = {
        written_address(),
        *ours.findall(
            f"https://colab.research.google.com/github/{written_address().removeprefix('https://github.com/')}"
        ),
    }
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in files
        if Path(name).suffix in TEXTS and not name.startswith("tests/")
    }
    assert len(texts) > 150
    assert not {
        name: found for name, text in texts.items() if (found := set(ours.findall(text)) - known)
    }


@pytest.fixture
def copy(tmp_path):
    for name in ("nbs", "scripts", "settings.ini"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    return tmp_path


def set_address(copy: Path, address: str) -> subprocess.CompletedProcess:
    settings = copy / "settings.ini"
    settings.write_text(
        re.sub(r"^address =.*$", f"address = {address}".rstrip(), settings.read_text(), flags=re.M)
    )
    return subprocess.run(
        [sys.executable, copy / "scripts" / "address.py"], capture_output=True, text=True
    )


def texts(copy: Path) -> dict[str, str]:
    nbs = copy / "nbs"
    return {
        file.relative_to(nbs).as_posix(): file.read_text(encoding="utf-8")
        for file in nbs.rglob("*.ipynb")
        if ".ipynb_checkpoints" not in file.parts
    }


def test_the_address_comes_and_goes(copy):
    set_address(copy, "")
    before = texts(copy)
    assert set_address(copy, THERE).returncode == 0
    there = texts(copy)
    chapters = [name for name in there if "/" in name]
    assert len(chapters) > 60
    for name in chapters:
        first = next(
            c for c in nbformat.reads(there[name], as_version=4).cells if c.cell_type == "code"
        )
        assert (
            f'%pip install -q "git+{THERE}"' in first.source and "minbert-*.whl" not in first.source
        )
        assert before[name] != there[name]
    index = there["index.ipynb"]
    assert f"minbert[dev] @ git+{THERE}" in index and "no public address" not in index
    linked = re.findall(
        r"\[Colab\]\(https://colab.research.google.com/github/somebody/minbert/blob/main/nbs/([\w/]+\.ipynb)\)",
        index,
    )
    assert set(linked) <= set(chapters) and len(linked) > 50
    assert set_address(copy, "").returncode == 0
    assert texts(copy) == before


def test_colab_is_linked_only_where_it_can_open_the_chapters(copy):
    assert set_address(copy, "https://git.example.org/somebody/minbert").returncode == 0
    index = texts(copy)["index.ipynb"]
    assert "colab.research" not in index and "git+https://git.example.org/somebody/minbert" in index


@pytest.mark.parametrize(
    "address",
    [
        "somebody/minbert",
        "http://github.com/somebody/minbert",
        "https://github.com/somebody",
        "https://github.com/a/b c",
    ],
)
def test_what_cannot_be_cloned_from_is_refused(copy, address):
    before = texts(copy)
    run = set_address(copy, address)
    assert run.returncode != 0 and "expected an address" in run.stderr and texts(copy) == before


def test_export_is_in_step():
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "address.py", "--check"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


def test_the_checker_tells_what_is_missing(copy):
    def run():
        return subprocess.run(
            [sys.executable, ROOT / "scripts" / "publish_check.py", "nowhere"],
            capture_output=True,
            text=True,
        )

    found = run()
    assert found.returncode == 1 and "MISSING" in found.stdout and "got 'nowhere'" in found.stdout
    assert "there is no address to ask" in found.stdout


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
    if not written_address():  # without the wheel there is one message, and none of pip's
        assert executed(CELL, f"{colab}\n{HIDDEN}", tmp_path).startswith(
            "SystemExit: This chapter needs minbert"
        )
        assert not (tmp_path / "asked").exists()
        (tmp_path / "minbert-0.0.1-py3-none-any.whl").touch()
    assert "went on" in executed(CELL, colab, tmp_path)
    wanted = f'"git+{written_address()}"' if written_address() else "minbert-*.whl"
    assert (tmp_path / "asked").read_text().strip() == f"install -q {wanted}"
    assert executed(CELL, f"{colab}\n{HIDDEN}", tmp_path).startswith(
        "SystemExit: This chapter needs minbert"
    )


def test_a_workspace_names_the_address_or_the_wheel():
    assert (
        "git+" + THERE in where_minbert_is(THERE)["install"]
        and THERE in where_minbert_is(THERE)["course"]
    )
    assert ".whl[dev]" in where_minbert_is("")["install"] and "http" not in "".join(
        where_minbert_is("").values()
    )
