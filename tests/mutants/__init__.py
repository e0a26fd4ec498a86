"""Mutants: wrong programs that a check must reject and that need no name.

There is one module for each module of `minbert/exercise_cases`. A mutant is written like a named
mistake; its sentence says what is wrong.
"""

from importlib import import_module
from pathlib import Path

from minbert.course.check_runner import NamedMistake


def all_mutants() -> dict[str, list[NamedMistake]]:
    """Collect the mutants of all chapters: exercise -> mutants."""
    found = {}
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        found.update(import_module(f"mutants.{file.stem}").MUTANTS)
    return found
