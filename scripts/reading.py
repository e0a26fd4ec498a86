"""A chapter as nbdev tests it and as a reader sees it: each cell must print the words that stand
stored below it.

Numbers are left aside: another processor rounds otherwise, and clocks differ. A cell that trains a
model for thousands of steps says in a comment that its words may differ, too. `run_notebooks.py`
starts this script once for each chapter, as `python scripts/reading.py CHAPTER REPORT`.
"""

import json
import re
import resource
import sys
from difflib import unified_diff
from pathlib import Path

import nbdev.test
from execnb.shell import CaptureShell
from nbdev.config import get_config

ROOT = Path(__file__).resolve().parent.parent
MAY_DIFFER = "words may differ on another processor"
# how many cases a check has is no matter of rounding
NUMBER = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{32,}\b|[-+−]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?!\d* cases)"
)


def wording(outputs: list) -> list[str]:
    """Give the lines that a cell shows as text, # for numbers. Pictures have none, and a bar of
    progress is no result.
    """
    texts = [
        "".join(
            out["text"]
            if out["output_type"] == "stream"
            else out.get("data", {}).get("text/plain", "")
        )
        for out in outputs
        if out.get("name") != "stderr"
    ]
    lines = (
        " ".join(NUMBER.sub("#", line).split()) for text in texts for line in text.splitlines()
    )
    return [line for line in lines if line and not line.startswith("<Figure")]


class Reader(CaptureShell):
    """Run cells as nbdev does, and note where they print something else than what is stored."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.stale, self.partial = {}, False  # number of a cell -> lines
        self.long = {*get_config().tst_flags.split()}  # of cells that are left out

    def run_all(self, nb, preproc, **options):
        def skipped(cell):
            self.partial |= bool(self.long & (getattr(cell, "directives_", None) or {}).keys())
            return preproc(cell)

        super().run_all(nb, preproc=skipped, **options)

    def cell(self, cell, **options):
        stored, quiet = cell.get("outputs", []), cell.source.rstrip().endswith(";")
        # behind a semicolon execnb leaves out what was printed, too
        cell.source, cell.outputs = cell.source + "\n#", []
        super().cell(cell, **options)
        shown = [
            out for out in cell.outputs if not (quiet and out["output_type"] == "execute_result")
        ]
        lines = list(unified_diff(wording(stored), wording(shown), n=0, lineterm=""))[2:]
        if self.partial and not any(line[0] == "+" for line in lines):
            lines = []  # what the cells that are left out would have added
        if lines and not self.exc and MAY_DIFFER not in cell.source:
            self.stale[cell.idx_] = "\n".join(lines)


def peak_memory() -> float:
    """Give the largest resident size of this process and of the processes it waited for, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return (
        max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        * unit
        / 1e9
    )


def main() -> None:
    """Test a chapter, and write a report: whether it passed, and the cells whose stored words (-)
    differ from what they print (+).
    """
    chapter, report = map(Path, sys.argv[1:])
    shells = []
    nbdev.test.CaptureShell = lambda path: shells.append(Reader(path)) or shells[-1]
    passed, _ = nbdev.test.test_nb(
        chapter, skip_flags=get_config().tst_flags.split(), basepath=ROOT
    )
    stale = {number: lines for shell in shells for number, lines in shell.stale.items()}
    report.write_text(json.dumps({"passed": passed, "stale": stale, "memory": peak_memory()}))


if __name__ == "__main__":
    main()
