"""A learner's workspace: a folder with the chapters as stubs, and a package of the learner's own
that they export to.

Chapters import earlier ones from the installed minbert, so a function that is not written yet
breaks no later chapter. The chapters are written twice, once to work in and once as handed out,
because an update has to know what the learner changed.
"""

__all__ = [
    "RESERVED",
    "SETTINGS",
    "SETUP",
    "PYPROJECT",
    "IGNORED",
    "README",
    "HIDDEN",
    "BASE",
    "STATE",
    "package_name",
    "readme",
    "where_minbert_is",
    "packaged_editions",
    "workspace_files",
    "state_text",
    "new_workspace",
    "workspace_state",
    "workspace_of",
]

import json
import keyword
import re
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import minbert

from .._modidx import d as index
from ..core.atomic_dir import atomic_write_dir, clear_leftovers
from .learner_notebooks import marks_of, minutes_of, plural

RESERVED = frozenset(
    "minbert torch transformers tokenizers safetensors accelerate datasets typer tqdm numpy scipy sklearn matplotlib "
    "seaborn nbdev fastcore execnb nbformat jupyter ipykernel ipywidgets pytest nbs tests build dist".split()
)


def package_name(
    folder: str | Path,  # such as "courses/my-bert"
    package: str | None = None,  # a name to use instead of the folder's
) -> str:  # such as "mybert"
    """Name the learner's package. Raises ValueError for what Python could not import, or would mix
    up with something else.
    """
    name = re.sub(r"\W", "", Path(folder).resolve().name).lower() if package is None else package
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name):
        raise ValueError(
            f"expected a package name of letters, digits and underscores that Python can import, got {name!r}"
        )
    if name.lower() in RESERVED or name in sys.stdlib_module_names:
        raise ValueError(
            f"expected a package name of your own, got {name!r}, which is another package's"
        )
    return name


SETTINGS = """[DEFAULT]
repo = {package}
lib_name = {package}
version = 0.0.1
min_python = 3.10
license = apache2
black_formatting = False

doc_path = _docs
lib_path = {package}
nbs_path = nbs
recursive = True
tst_flags = slow gpu
put_version_in_init = True
update_pyproject = False

branch = main
custom_sidebar = False
doc_host =
doc_baseurl = /%(repo)s
git_url =
title = %(lib_name)s
readme_nb = index.ipynb
clear_all = False
clean_ids = True
jupyter_hooks = False
allowed_cell_metadata_keys = tags

audience = Education
author = A learner
author_email =
copyright = 2026 onwards, %(author)s
description = BERT, built by hand with minbert
keywords = bert nbdev
language = English
status = 3
user =

requirements = minbert
dev_requirements =
console_scripts =
"""


SETUP = '''"""Everything but code lives in settings.ini."""
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

here = Path(__file__).parent
cp = ConfigParser(delimiters=["="])
cp.read(here / "settings.ini", encoding="utf-8")
cfg = cp["DEFAULT"]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    packages=find_packages(include=[cfg["lib_path"], cfg["lib_path"] + ".*"]),
    python_requires=">=" + cfg["min_python"],
    install_requires=cfg["requirements"].split(),
    zip_safe=False,
)
'''

PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"
"""

IGNORED = (
    "\n".join(
        "__pycache__/ *.pyc .venv/ .ipynb_checkpoints/ *.egg-info/ build/ dist/ _proc/ /runs/ /data/".split()
    )
    + "\n"
)


README = """# {package}

My own BERT, built by hand with the course {course}.

## Four commands

```sh
jupyter lab nbs                      # read a chapter, write the bodies, run the checks
nbdev_export                         # what you wrote becomes {package}/*.py
nbdev_test --file_re attention       # a chapter passes when all its checks do: it prints Success.
minbert course status                # every exercise, with its points and what is wrong with it
```

They need minbert with its tools for developers: {install}. Jupyter alone is enough to read, write and check.

## How to work

A function whose body says `raise NotImplementedError("exercise ...")` is yours to write; where a body says that one thing in it is wrong, find it. A line `guess = None` waits for your guess. Run its cell, then the check below it. A check prints which case failed, the numbers it expected and
got, and, if it knows the mistake, what you did wrong. Below it are hints, folded away, from a nudge to nearly the answer.

The lines below "given" only refuse wrong input. They are not part of the task: leave them where they are, and write below them.

To leave an exercise for later, take the first `#` off the line above its check: it borrows the solution, so that the rest of the chapter runs. What is borrowed gives no points, and `{package}` keeps
the stub. When you come back, write your answer and put the `#` back.

Everything from earlier chapters is imported from the installed `minbert`, so you may begin anywhere and skip what you like.
Add cells, helpers and imports wherever they help. Keep the names of the functions: they are how your answers are found.

Where somebody grades your work, hand in the folder `nbs`, or a zip of it.

An exercise gives all of its points when its check passes, and none before. What you write in one exercise does not change the points of another; only a syntax error does, for all exercises of its cell.
Nothing later needs an exercise called optional. Its points count; its time is not in the minutes of its chapter.

`minbert course update` brings the chapters of a newer minbert and keeps everything you wrote. `minbert course assemble` trains a model with your parts in it.

## Chapters

About {hours} hours, {exercises}, {points}.

| Chapter | Minutes | Exercises | Points |
|---|---|---|---|
{rows}

The chapters are those of minbert {version}, Apache License 2.0. What you write is yours.
"""


def readme(
    package: str,  # such as "mybert"
    chapters: dict[str, Any],  # file name -> NotebookNode
) -> str:  # markdown
    """Write the page a learner opens first."""
    found = {name: marks_of(notebook) for name, notebook in chapters.items()}
    rows = [
        f"| [{_title(notebook)}](nbs/{name}) | {_minutes(notebook)} | {len(found[name]) or ''} | "
        f"{sum(m.points for m in found[name]) or ''} |"
        for name, notebook in chapters.items()
    ]
    everything = [mark for marks in found.values() for mark in marks]
    return README.format(
        **where_minbert_is(),
        package=package,
        version=minbert.__version__,
        rows="\n".join(rows),
        hours=round(sum(map(_minutes, chapters.values())) / 60),
        exercises=plural(len(everything), "exercise"),
        points=plural(sum(m.points for m in everything), "point"),
    )


def where_minbert_is(
    # of minbert's repository; "" until it is published
    address: str = index["settings"]["git_url"],
) -> dict[str, str]:  # "course" and "install", in markdown
    """Tell where minbert can be had from: its address, or a wheel that somebody hands out while
    there is none.
    """
    if address:
        return {
            "course": f"[minbert]({address})",
            "install": f"`pip install 'minbert[notebooks] @ git+{address}'`",
        }
    return {
        "course": "minbert",
        "install": f"`pip install 'minbert-{minbert.__version__}-py3-none-any.whl[notebooks]'`, "
        "with the wheel that you were given or that `make wheel` builds in a clone of minbert",
    }


def _minutes(notebook: Any) -> int:
    """Read the minutes in the box of a chapter, which counted them before its answers were taken
    out.
    """
    box = next((cell.source for cell in notebook.cells if cell.get("id") == "chapter-box"), "")
    found = re.search(r"About (\d+) minutes", box)
    return int(found[1]) if found else minutes_of(notebook)


def _title(notebook: Any) -> str:
    """Read the first heading of a chapter."""
    return notebook.cells[0].source.split("\n")[0].lstrip("# ").strip()


# part and file name, such as "1_bert/02_attention.ipynb" -> text, in the order of the book
def packaged_editions() -> dict[str, str]:
    """Read the learner's chapters from the installed package."""
    parts = [
        part
        for part in (resources.files("minbert") / "assets" / "course" / "nbs").iterdir()
        if part.is_dir()
    ]
    found = {
        f"{part.name}/{file.name}": file.read_text(encoding="utf-8")
        for part in parts
        for file in part.iterdir()
        if file.name.endswith(".ipynb")
    }
    return dict(sorted(found.items()))


HIDDEN, BASE, STATE = ".minbert", ".minbert/base", ".minbert/workspace.json"


def workspace_files(
    package: str,  # such as "mybert"
) -> dict[str, str]:  # path within the workspace -> text
    """Make all files of a new workspace. Raises ValueError if this package has no chapters for
    learners.
    """
    import nbformat

    editions = packaged_editions()
    if not editions:
        raise ValueError(
            "expected the chapters for learners inside the installed minbert, found none"
        )
    chapters = {name: nbformat.reads(text, as_version=4) for name, text in editions.items()}
    files = {
        "settings.ini": SETTINGS.format(package=package),
        "setup.py": SETUP,
        "pyproject.toml": PYPROJECT,
        ".gitignore": IGNORED,
        "MANIFEST.in": "include settings.ini\ninclude README.md\n",
        "README.md": readme(package, chapters),
        f"{package}/__init__.py": '__version__ = "0.0.1"\n',
        STATE: state_text(package),
    }
    for name, text in editions.items():
        files[f"nbs/{name}"] = files[f"{BASE}/{name}"] = text
    return files


def state_text(package: str) -> str:
    """Write down what the workspace is and which release its chapters come from."""
    return json.dumps({"package": package, "minbert": minbert.__version__}, indent=1) + "\n"


def new_workspace(
    folder: str | Path,  # a new or an empty one, such as "my-bert"
    package: str | None = None,  # of the learner; None: the folder's name, such as "mybert"
) -> Path:  # the folder
    """Write a learner's workspace. Raises ValueError for a folder that is not empty or a name that
    is no good.
    """
    folder = Path(folder).absolute()
    name = package_name(folder, package)
    clear_leftovers(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"expected a new or an empty folder, got {folder}, which is {'not empty' if folder.is_dir() else 'a file'}"
        )
    files, existed = workspace_files(name), folder.exists()
    try:
        with atomic_write_dir(folder) as draft:
            for path, text in files.items():
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).write_text(text, encoding="utf-8")
    except BaseException:
        for path in sorted({Path(path).parts[0] for path in files}):
            shutil.rmtree(folder / path) if (folder / path).is_dir() else (folder / path).unlink(
                missing_ok=True
            )
        existed or shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def workspace_state(
    folder: str | Path,  # of a workspace
) -> dict[str, str]:  # "package", "minbert"
    """Read what a workspace says about itself. Raises ValueError if the folder is none."""
    try:
        state = json.loads((Path(folder) / STATE).read_text(encoding="utf-8"))
        return {key: str(state[key]) for key in ("package", "minbert")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"expected the folder of a workspace, made by `minbert course new`, got {folder}"
        ) from error


def workspace_of(
    folder: str | Path,  # a workspace, or a folder in one, such as its nbs
) -> Path:
    """Look upward for the workspace that a folder lies in. Raises ValueError if there is none."""
    place = Path(folder).resolve()
    for found in (place, *place.parents):
        if (found / STATE).is_file():
            return found
    raise ValueError(
        f"expected a workspace, made by `minbert course new`, or a folder in one, got {place}"
    )
