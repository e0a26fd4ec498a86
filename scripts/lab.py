"""Open JupyterLab at a workspace with exercises to solve, made at the first start; `make lab` runs
this script.

The workspace is the folder lab/, which git ignores: whatever is run or solved there leaves the
notebooks of nbs/ as they are. Its first page is that of the book. The links to chapters lead to
those of the workspace, and one link leads to the book in nbs/, where the exercises are solved.
Further arguments go to JupyterLab, for example `python scripts/lab.py --no-browser`.
"""

import json
import os
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "lab"
BOOK = "../../nbs"  # as seen from the first page of the workspace
FIRST = (
    f"> The chapters below are unsolved: functions are missing and predictions are open. "
    f"[The same page in the book]({BOOK}/index.ipynb) leads to the solved chapters."
)


def linked(source: str, own: set[str]) -> str:
    """Let links to chapters lead to those of the workspace, and all others to the book."""

    def target(found: re.Match) -> str:
        place = found[1]
        return found[0] if place in own else f"]({posixpath.normpath(posixpath.join(BOOK, place))}"

    return re.sub(r"\]\((?!https?:|#)([^)#]+)", target, source)


def page_of_the_workspace(book: Path, own: set[str]) -> dict:
    """Make the first page of the workspace from that of the book: its texts alone, so that nothing
    has to be run.
    """
    notebook = json.loads((book / "index.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    for cell in cells:
        cell["source"] = linked("".join(cell["source"]), own).splitlines(keepends=True)
    title = "".join(cells[0]["source"])
    cells[0]["source"] = f"{title}\n\n{FIRST}".splitlines(keepends=True)
    return notebook | {"cells": cells}


def prepare(root: Path, folder: str = FOLDER) -> Path:
    """Make the workspace below `root` unless it is there, and give its folder."""
    from minbert.course.workspace import new_workspace, packaged_editions

    place = root / folder
    if not (place / ".minbert").is_dir():
        new_workspace(place, "mybert")
    page = place / "nbs" / "index.ipynb"
    if not page.exists():
        made = page_of_the_workspace(root / "nbs", set(packaged_editions()))
        page.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return place


def layout(root: Path, folder: str = FOLDER) -> Path:
    """Write how JupyterLab looks at the first start, the list of files folded; give the folder of
    its layouts.
    """
    layouts = root / ".venv" / "layouts"
    file = layouts / "default-37a8.jupyterlab-workspace"
    if not file.exists():
        text = (ROOT / "scripts" / "lab.jupyterlab-workspace").read_text(encoding="utf-8")
        layouts.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("index.ipynb", f"{folder}/nbs/index.ipynb"), encoding="utf-8")
    return layouts


def command(root: Path, layouts: Path, more: list[str], folder: str = FOLDER) -> list[str]:
    """Put together what starts JupyterLab. Root has to say that it may, which containers ask for."""
    allowed = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.workspaces_dir={layouts}",
        f"--LabApp.default_url=/lab/tree/{folder}/nbs/index.ipynb",
        *allowed,
        *more,
    ]


def main() -> None:
    prepare(ROOT)
    words = command(ROOT, layout(ROOT), sys.argv[1:])
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
