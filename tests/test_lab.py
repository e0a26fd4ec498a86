"""`make lab` opens a workspace whose exercises are unsolved, with the solved book one link away,
and touches no tracked file.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import lab  # noqa: E402


@pytest.fixture
def clone(tmp_path) -> Path:
    """What the first page of the workspace is made of, and what its links lead to."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(
        ROOT / "nbs", tmp_path / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints")
    )
    for name in (
        "minbert/assets/open/NOTICE.md",
        "minbert/assets/model/README.md",
        "minbert/assets/sentences/README.md",
        "CONTRIBUTING.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_chapters_are_unsolved_and_the_book_is_one_link_away(clone):
    place = lab.prepare(clone)
    notebook = json.loads((place / "nbs" / "index.ipynb").read_text(encoding="utf-8"))
    assert {cell["cell_type"] for cell in notebook["cells"]} == {"markdown"}
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not (place / "nbs" / link).exists()] == []
    assert "../../nbs/index.ipynb" in "".join(notebook["cells"][0]["source"])
    own = [link for link in links if not link.startswith("..")]
    assert "1_bert/02_attention.ipynb" in own and len(set(own)) == 33
    chapter = (place / "nbs" / "1_bert" / "02_attention.ipynb").read_text(encoding="utf-8")
    assert (
        "raise NotImplementedError('exercise attention.scores')" in chapter
        and "guess = None" in chapter
    )
    assert "NotImplementedError('exercise" not in (
        clone / "nbs" / "1_bert" / "02_attention.ipynb"
    ).read_text(encoding="utf-8")


def test_a_second_start_keeps_what_the_learner_wrote(clone):
    place = lab.prepare(clone)
    written = [place / "nbs" / "index.ipynb", place / "nbs" / "1_bert" / "01_tokens.ipynb"]
    for file in written:
        file.write_text("mine")
    layouts = lab.layout(clone)
    [shown] = layouts.iterdir()
    assert "lab/nbs/index.ipynb" in json.dumps(json.loads(shown.read_text()))
    shown.write_text("moved")
    lab.prepare(clone)
    lab.layout(clone)
    assert [file.read_text() for file in [*written, shown]] == ["mine", "mine", "moved"]


def test_git_ignores_the_workspace():
    ignored = subprocess.run(
        ["git", "check-ignore", "lab/nbs/1_bert/01_tokens.ipynb"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ignored.returncode == 0


@pytest.mark.parametrize("user, allowed", [(0, True), (1000, False)])
def test_root_may_start_it(monkeypatch, user, allowed):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ("--allow-root" in lab.command(ROOT, ROOT, [])) is allowed


def test_it_starts_and_serves_the_map_and_the_book(clone):
    """As `make lab` starts it, by whoever runs the tests; JupyterLab refuses root unless it is told
    otherwise.
    """
    lab.prepare(clone)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = lab.command(
        clone,
        lab.layout(clone),
        ["--no-browser", f"--ServerApp.port={port}", "--IdentityProvider.token="],
    )
    home = {
        name: str(clone / "home")
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    server = subprocess.Popen(
        words,
        cwd=clone,
        env=os.environ | home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        pages = ("lab/nbs/index.ipynb", "lab/nbs/1_bert/02_attention.ipynb", "nbs/index.ipynb")
        assert [
            answer(server, f"http://127.0.0.1:{port}/api/contents/{page}?content=0")
            for page in pages
        ] == [200] * 3
    finally:
        server.terminate()
        server.communicate()


def answer(server: subprocess.Popen, address: str) -> int:
    """Give the status of a page once the server is up. Raises AssertionError with its words if it
    ends before.
    """
    for _ in range(600):
        assert server.poll() is None, server.stdout.read()
        try:
            with urllib.request.urlopen(address, timeout=30) as page:
                return page.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{address}: expected an answer within two minutes")
