"""Write minbert/assets/course/ from nbs/: the facts about all exercises, and the learner's edition;
`--check` only compares.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from stored import how_to_restore, notebooks_that_were_run

from minbert.course.learner_notebooks import all_editions, facts, written

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "minbert" / "assets" / "course"


def build() -> Iterator[tuple[str, str]]:
    """Make every file of the folder: name, text. The facts come first: the hints are looked up with
    them.
    """
    rows = ",\n ".join(json.dumps(fact) for fact in facts(ROOT / "nbs"))
    yield "exercises.json", f"[{rows}]\n"
    from minbert.course.exercises import EXERCISES

    for name, notebook in all_editions(ROOT / "nbs", EXERCISES).items():
        yield f"nbs/{name}", written(notebook)


def main() -> int:
    if touched := notebooks_that_were_run(ROOT):
        print(how_to_restore(touched, ROOT))
        return 1
    only_compare, stale, names = "--check" in sys.argv, [], set()
    for name, text in build():
        path = FOLDER / name
        names.add(path)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if only_compare and name == "exercises.json":
            break  # the rest is made with the help of this file
        if not only_compare:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    else:
        for path in sorted(set(FOLDER.rglob("*.*")) - names):  # chapters that are gone
            stale.append(path.name)
            only_compare or path.unlink()
    if only_compare:
        for name in stale:
            print(f"minbert/assets/course/{name} does not match nbs/: run `make export`")
    return bool(stale) if only_compare else 0


if __name__ == "__main__":
    sys.exit(main())
