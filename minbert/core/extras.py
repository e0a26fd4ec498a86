"""The extras of the installation, and an error message that names the extra of a missing package."""

from __future__ import annotations

__all__ = ["EXTRAS", "what_to_install", "needs"]

from collections.abc import Iterator
from contextlib import contextmanager

TRAIN = "scipy sklearn pandas pyarrow datasets matplotlib seaborn"
NOTEBOOKS = "nbformat IPython anywidget traitlets fastcore nbdev execnb"
EXTRAS = dict.fromkeys(TRAIN.split(), "train") | dict.fromkeys(NOTEBOOKS.split(), "notebooks")
"""Name under which a package is imported -> the extra of settings.ini that brings it."""


def what_to_install(
    error: ModuleNotFoundError,
) -> str | None:  # None: no extra has this package
    """Say in one sentence which extra brings the package that could not be imported."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    extra = EXTRAS[package]
    return f'expected the package {package}, which is not installed: pip install "minbert[{extra}]" brings it'


@contextmanager
def needs(
    extra: str,  # that the imports inside come from
) -> Iterator[None]:
    """Import optional packages. Raises ModuleNotFoundError with a sentence for one that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if EXTRAS.get(package) != extra:
            raise
        raise ModuleNotFoundError(what_to_install(error), name=error.name) from None
