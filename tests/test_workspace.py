"""A learner's path: a new workspace, a failing check, a mistake that is named, an answer, a
package.
"""

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import nbformat
import pytest
from solving import solve

import minbert
from minbert.course import workspace
from minbert.course.exercises import EXERCISES, wrong_definition
from minbert.course.workspace import (
    BASE,
    new_workspace,
    package_name,
    packaged_editions,
    workspace_files,
    workspace_state,
)

ROOT = Path(minbert.__file__).parent.parent
ENV = {k: v for k, v in os.environ.items() if k not in ("IN_TEST", "MINBERT_DATA")}
ENV |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}


def run(folder, *command):
    """Run a command of the environment in a folder; give its status and everything it said."""
    if command[0].startswith("nbdev"):
        command = (str(Path(sys.executable).parent / command[0]), *command[1:])
    ran = subprocess.run(
        command,
        cwd=folder,
        env=ENV,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    return ran.returncode, ran.stdout


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> Path:
    return new_workspace(tmp_path_factory.mktemp("far") / "my-bert")


@pytest.mark.long
def test_the_learners_path(mine):
    """Untouched, with a known mistake, solved; then export, import and install."""
    status, said = run(mine, "nbdev_export")
    assert status == 0, said
    exported = {f.stem for f in (mine / "mybert").glob("*.py")}
    assert {"attention", "encoder", "optim"} <= exported and not (mine / "minbert").exists()
    # the installed one, not ours
    assert "from minbert.attention import" in (mine / "mybert" / "encoder.py").read_text()

    status, said = run(mine, "nbdev_test", "--file_re", "attention")
    first, *_ = tasks = [e for e in EXERCISES.values() if e.module == "attention"]
    assert status and f"{first.name}: not written yet" in said and "Success." not in said

    task = EXERCISES["attention.scores"]
    solve(mine, [e.name for e in tasks], {task.name: wrong_definition(task, task.mistakes[0])})
    status, said = run(mine, "nbdev_test", "--file_re", "attention")
    # bias and maps, which come before
    assert status and task.mistakes[0].says in said and said.endswith("\n4 checks passed\n")

    solve(mine, [task.name])
    status, said = run(mine, "nbdev_test", "--file_re", "attention")
    assert status == 0 and said.endswith(f"Success.\n{len(tasks)} checks passed\n"), said
    status, said = run(mine, "nbdev_export")
    assert status == 0, said
    assert "NotImplementedError" not in (mine / "mybert" / "attention.py").read_text()


def test_the_learners_package_can_be_installed_before_anything_is_solved(tmp_path):
    mine = new_workspace(tmp_path / "other", "ourbert")
    assert run(mine, "nbdev_export")[0] == 0
    status, said = run(
        mine,
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
        ".",
    )
    assert status == 0, said
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import ourbert.attention, ourbert.sampling; print(ourbert.__file__)"
    status, said = run(tmp_path, sys.executable, "-c", code)
    assert status == 0 and str(tmp_path / "site") in said, said


def test_every_file_is_there_and_says_what_it_should(mine):
    cp = ConfigParser(delimiters=["="])
    cp.read(mine / "settings.ini", encoding="utf-8")
    settings = cp["DEFAULT"]
    assert (
        settings["lib_name"] == settings["lib_path"] == "mybert"
        and settings["requirements"] == "minbert"
    )
    assert settings["tst_flags"] == "slow gpu" and settings["update_pyproject"] == "False"
    assert "[project]" not in (mine / "pyproject.toml").read_text()
    text = (mine / "README.md").read_text()
    for word in (
        "jupyter lab",
        "nbdev_export",
        "nbdev_test --file_re attention",
        "Success.",
        "minbert course status",
        "nbs/1_bert/02_attention.ipynb",
    ):
        assert word in text, word
    assert "{" not in text and text.count("](nbs/") == len(packaged_editions())
    assert (
        f"{len(EXERCISES)} exercise" in text
        and f"{sum(e.points for e in EXERCISES.values())} point" in text
    )
    assert workspace_state(mine) == {"package": "mybert", "minbert": minbert.__version__}
    assert not list(mine.rglob(".draft*")) and not list(mine.parent.glob(".draft*"))


def test_the_base_is_what_was_handed_out(mine):
    for name, text in packaged_editions().items():
        nbformat.validate(nbformat.reads(text, as_version=4))
        assert (mine / BASE / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "folder, package, expected",
    [
        ("my-bert", None, "mybert"),
        ("My Bert 2", None, "mybert2"),
        ("a_b", None, "a_b"),
        ("x", "y", "y"),
    ],
)
def test_names(folder, package, expected):
    assert package_name(folder, package) == expected


@pytest.mark.parametrize(
    "name",
    [
        "minbert",
        "MinBert",
        "torch",
        "nbs",
        "json",
        "class",
        "None",
        "2bert",
        "a-b",
        "a.b",
        "",
        "../x",
        "naïve",
    ],
)
def test_names_that_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="expected a package name"):
        new_workspace(tmp_path / "x", name)
    assert not list(tmp_path.iterdir())


def test_folders_that_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("x")
    for name in ("full", "file"):
        with pytest.raises(ValueError, match="new or an empty folder"):
            new_workspace(tmp_path / name)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "years" and len(
        list((tmp_path / "full").iterdir())
    ) == 1


def test_an_empty_folder_and_a_deep_one_are_filled(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    assert (new_workspace(tmp_path / "empty") / "nbs").is_dir()
    assert (new_workspace(tmp_path / "a" / "b" / "deep") / "deep" / "__init__.py").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert new_workspace(".").name == "here" and Path("here/__init__.py").is_file()


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("after", [0, 20])
def test_nothing_stays_after_an_error(tmp_path, monkeypatch, after, existed):
    if existed:
        (tmp_path / "my-bert").mkdir()
    real, count = os.replace, iter(range(10**6))

    def full_disk(*args):
        if next(count) >= after:
            raise OSError("No space left on device")
        real(*args)

    monkeypatch.setattr("minbert.core.atomic_dir.os.replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        new_workspace(tmp_path / "my-bert")
    assert list(tmp_path.rglob("*")) == ([tmp_path / "my-bert"] if existed else [])


def test_a_package_without_chapters_says_so(monkeypatch):
    monkeypatch.setattr(workspace, "packaged_editions", dict)
    with pytest.raises(ValueError, match="expected the chapters"):
        workspace_files("mybert")


def test_a_folder_that_is_no_workspace_says_so(tmp_path):
    for text in (None, "{", "{}", "[]"):
        if text is not None:
            (tmp_path / ".minbert").mkdir(exist_ok=True)
            (tmp_path / ".minbert" / "workspace.json").write_text(text)
        with pytest.raises(ValueError, match="minbert course new"):
            workspace_state(tmp_path)


def test_the_page_and_the_chapters_name_the_same_minutes():
    """The box at the head of a chapter and the table of the workspace are made from two editions of
    it.
    """
    page = workspace_files("mybert")["README.md"]
    in_page = dict(re.findall(r"\(nbs/(\S+)\) \| (\d+) \|", page))
    in_box = {
        name: re.search(r"About (\d+) minutes", text)[1]
        for name, text in packaged_editions().items()
    }
    assert len(in_page) > 30 and in_page == in_box
