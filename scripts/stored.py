"""Find notebooks of the book whose stored outputs were replaced by running them in Jupyter, which
stores the new ones by itself.

The website, the learner's edition and many tests read the stored outputs. In JupyterLab, explorers
store pictures and widgets of their own beside them.
"""

import json
from collections.abc import Iterable
from pathlib import Path


def was_run(notebook: Path) -> bool:
    """Tell whether Jupyter has numbered a cell; the notebooks of the repository are stored without
    such numbers.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return False  # other checks say what is wrong with the file
    return any(isinstance(cell, dict) and cell.get("execution_count") is not None for cell in cells)


def notebooks_that_were_run(root: Path) -> list[Path]:
    """List the notebooks below nbs/ that Jupyter has run."""
    files = (root / "nbs").rglob("*.ipynb")
    return sorted(
        file for file in files if ".ipynb_checkpoints" not in file.parts and was_run(file)
    )


def how_to_restore(notebooks: Iterable[Path], root: Path) -> str:
    """Say in a line for each notebook that it was run, and which command brings the stored outputs
    back.
    """
    names = [file.relative_to(root).as_posix() for file in notebooks]
    return "\n".join(
        f"{name} was run in Jupyter, which replaced the outputs that belong to the book: `git restore {name}` brings them back "
        f"(to keep your own changes of its cells, `nbdev_clean --fname {name}` removes their numbers)"
        for name in names
    )
