"""Write minbert/assets/course/ from nbs/: the facts about all exercises; `--check` only compares."""
import json
import sys
from pathlib import Path

from minbert.editions import facts

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "minbert" / "assets" / "course"


def build() -> dict[str, str]:
    """Make every file of the folder: name -> text."""
    rows = ",\n ".join(json.dumps(fact) for fact in facts(ROOT / "nbs"))
    return {"exercises.json": f"[{rows}]\n"}


def main() -> int:
    stale = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = build()
    for name, text in made.items():
        path = FOLDER / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{path.name} does not match nbs/: run `make export`")
        else:
            path.write_text(text, encoding="utf-8")
    return stale if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
