"""Run nbdev's test of every chapter, two at a time, each in a process of its own, which gives its
memory back.

A line appears as soon as a chapter ends: how long it took and how much memory it needed. The
chapters with the highest numbers come first, because they take longest. What a cell prints must be
what is stored below it, numbers left aside: another processor rounds differently, and clocks
differ. A cell that prints something else is run twice, because a few cells show what chance
decides.

    python scripts/run_notebooks.py                # all
    python scripts/run_notebooks.py 31 proximal    # those whose file name holds one of these words
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from stored import how_to_restore, was_run

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3600  # seconds: a chapter that hangs must not hold up the tests for ever
# One torch thread a chapter: two chapters with two threads each were five times slower.
ENVIRONMENT = dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", MPLBACKEND="agg")


class Result(NamedTuple):
    """What became of one chapter."""

    passed: bool
    stale: dict[str, str]  # number of a cell -> lines that differ from those stored
    seconds: float
    memory: float  # GB, the largest resident size of its process
    said: str  # what it wrote to the terminal, such as a traceback


def chapters(words: list[str]) -> list[Path]:
    """List the notebooks whose file name holds one of the words; none: all. Raises SystemExit if
    there are none.
    """
    nbs = ROOT / "nbs"
    visible = (
        path
        for path in nbs.rglob("*.ipynb")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(nbs).parts)
    )
    found = sorted(
        (p for p in visible if not words or any(w in p.name for w in words)), reverse=True
    )
    if not found:
        named = f" named {' or '.join(words)}" if words else ""
        raise SystemExit(f"expected chapters in {nbs}{named}, found none")
    return found


def run(chapter: Path) -> Result:
    """Run one chapter in a new process and wait for it."""
    with tempfile.TemporaryDirectory() as folder:
        report, said = Path(folder) / "report.json", Path(folder) / "said.txt"
        start = time.monotonic()
        with said.open("w", encoding="utf-8") as output:
            command = [
                sys.executable,
                str(ROOT / "scripts" / "reading.py"),
                str(chapter),
                str(report),
            ]
            process = subprocess.Popen(
                command,
                cwd=ROOT / "nbs",
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            status = wait(process)
        seconds, text = time.monotonic() - start, said.read_text(encoding="utf-8", errors="replace")
        found = json.loads(report.read_text()) if report.is_file() else {}
    if not found:
        text += f"{chapter.name}: expected a report, but its process {ended(status)}\n"
    return Result(
        bool(found.get("passed")), found.get("stale", {}), seconds, found.get("memory", 0.0), text
    )


def wait(process: subprocess.Popen) -> int:
    """Give the exit status of a process, and stop it when it has run for too long."""
    try:
        return process.wait(LIMIT)
    except BaseException as error:
        process.kill()
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return process.returncode
        raise


def ended(status: int) -> str:
    """Say how a process ended that wrote no report."""
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    return f"was stopped by {name}" + (
        " (out of memory, or past the time limit?)" if name == "SIGKILL" else ""
    )


def run_all(files: list[Path]) -> dict[Path, Result]:
    """Run chapters two at a time, and print a line for each one as it ends."""
    results = {}
    with ThreadPoolExecutor(2) as pool:
        waiting = {pool.submit(run, file): file for file in files}
        for done in as_completed(waiting):
            file, result = waiting[done], done.result()
            results[file] = result
            good = (
                ""
                if result.passed and not result.stale
                else "  not passed"
                if not result.passed
                else "  prints other words"
            )
            print(
                f"[{len(results)}/{len(files)}] {file.name}: {result.seconds:.0f} s, {result.memory:.1f} GB{good}",
                flush=True,
            )
            if not result.passed:
                print(result.said, flush=True)
    return results


def run_again(results: dict[Path, Result]) -> dict[Path, dict[str, str]]:
    """Run chapters with other words once more, and keep the cells that differ from what is stored
    both times.
    """
    first = {file: result.stale for file, result in results.items() if result.stale}
    if not first:
        return {}
    again = run_all(list(first))
    return {
        file: {
            number: lines
            for number, lines in cells.items()
            if number in again[file].stale or not again[file].passed
        }
        for file, cells in first.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("words", nargs="*", help="only chapters whose file name holds one of these")
    files, start = chapters(parser.parse_args().words), time.monotonic()
    results = run_all(files)
    stale = run_again(results)
    if touched := [file for file in stale if was_run(file)]:
        print(how_to_restore(touched, ROOT))
    for file, cells in stale.items():
        for number, lines in cells.items():
            print(f"{file.name}, cell {number}, - stored, + printed:\n{lines}")
    failed = [file.name for file in files if not results[file].passed or stale.get(file)]
    largest = sorted((result.memory for result in results.values()), reverse=True)[:2]
    print(
        f"{time.monotonic() - start:.0f} s, at most {sum(largest):.1f} GB for two chapters at once"
    )
    print(f"failed: {', '.join(failed)}" if failed else f"Success: {len(files)} chapters.")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
