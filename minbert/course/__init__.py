"""For learners `check` and `guessed`, for instructors `grade`: exercises, judging, workspaces and
grading. A name loads what it needs when it is asked for.
"""

from importlib import import_module

_HOMES = {
    "EXERCISES": "exercises",
    "borrow": "exercises",
    "check": "exercises",
    "guessed": "predictions",
    "new_workspace": "workspace",
    "update_workspace": "workspace_update",
    "grade": "grading",
}
__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
