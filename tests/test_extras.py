"""What `pip install minbert` brings is enough to encode; what an extra brings is named where it is missing."""

import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from minbert.core.extras import EXTRAS, needs, what_to_install

ROOT = Path(__file__).resolve().parent.parent
NAMES = {
    "sklearn": "scikit-learn",
    "IPython": "ipython",
    "traitlets": "anywidget",
}  # import name -> distribution; traitlets comes with anywidget
WITHOUT = """
import sys


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def without_extras(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Run a program in a process where no package of an extra can be imported."""
    script = WITHOUT.format(missing=set(EXTRAS)) + code
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Run a command of minbert there."""
    return without_extras("from minbert.__main__ import main\nmain()", folder, *words)


def settings() -> dict[str, set[str]]:
    """Read the names of the packages in each list of settings.ini."""
    found = ConfigParser(delimiters=["="])
    found.read(ROOT / "settings.ini", encoding="utf-8")
    lists = {name: text for name, text in found["DEFAULT"].items() if name.endswith("requirements")}
    return {
        name: {re.split("[<>=]", word)[0] for word in text.split()} for name, text in lists.items()
    }


def test_every_package_that_can_be_missing_is_in_the_extra_that_the_message_names():
    lists = settings()
    for package, extra in EXTRAS.items():
        assert NAMES.get(package, package) in lists[f"{extra}_requirements"], package
        assert NAMES.get(package, package) not in lists["requirements"], package


def test_dev_is_all_of_them(tmp_path):
    code = "import json, setuptools\nsetuptools.setup = lambda **words: print(json.dumps(words))\nexec(open('setup.py').read())"
    run = subprocess.run(
        [sys.executable, "-c", f"__file__ = 'setup.py'\n{code}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = json.loads(run.stdout)
    extras = {name: set(found) for name, found in words["extras_require"].items()}
    assert set(extras) == {"train", "notebooks", "test", "docs", "dev"}
    assert extras["train"] < extras["notebooks"] and extras["dev"] == set().union(*extras.values())
    assert all(
        re.search("[<>=]", requirement)
        for requirement in [*words["install_requires"], *extras["train"]]
    ), "a library without a lower bound"


def test_sentences_are_encoded_without_any_extra(tmp_path):
    code = (
        "from minbert.sentence import SentenceEncoder\n"
        "print([*SentenceEncoder.from_pretrained('embedded-sentences').encode(['A dog.', 'A cat.']).shape])"
    )
    run = without_extras(code, tmp_path)
    assert run.stdout.strip() == "[2, 768]", run.stderr


def test_the_command_encodes_without_any_extra(tmp_path):
    (tmp_path / "sentences.txt").write_text("A dog.\nA cat.\n")
    run = typed(tmp_path, "encode", "embedded-sentences", "sentences.txt", "--out", "vectors.npy")
    assert run.returncode == 0 and (tmp_path / "vectors.npy").is_file(), run.stderr


@pytest.mark.parametrize(
    "words, extra",
    [
        (["demo"], "train"),
        (["reproduce", "claims"], "train"),
        (["course", "new", "mine"], "notebooks"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value,
)
def test_a_command_names_the_extra_that_it_lacks(tmp_path, words, extra):
    run = typed(tmp_path, *words)
    assert run.returncode == 1 and run.stderr.count("\n") == 1, run.stderr
    assert re.fullmatch(
        rf'minbert: expected the package \w+, which is not installed: pip install "minbert\[{extra}\]" brings it\n',
        run.stderr,
    )


def test_an_import_says_which_extra_it_lacks(tmp_path):
    run = without_extras("import minbert.significance", tmp_path)
    assert (
        'ModuleNotFoundError: expected the package scipy, which is not installed: pip install "minbert[train]" brings it'
        in run.stderr
    )


def test_what_no_extra_brings_is_reported_as_python_does():
    assert what_to_install(ModuleNotFoundError("No module named 'nowhere'", name="nowhere")) is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"), needs("train"):
        import nowhere  # noqa: F401
