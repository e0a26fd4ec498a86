"""Run nbdev's test of every chapter, two at a time, the last ones first: they are the long ones, and none shall be alone at the end.

What a cell prints must be what stands stored below it, numbers left aside: another processor rounds otherwise, and clocks differ.
A cell that prints something else is asked twice, for a few show what chance decides.

    python scripts/run_notebooks.py                # all
    python scripts/run_notebooks.py 31 proximal    # those whose file name holds one of these words
"""
import argparse
import faulthandler
import os
import sys
from functools import partial
from pathlib import Path

# One torch thread a worker: two workers with two threads each were five times slower. Set before anything imports torch.
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", MPLBACKEND="agg")

from fastcore.parallel import parallel  # noqa: E402
from nbdev.config import get_config  # noqa: E402
from reading import tried  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only chapters whose file name holds one of these")
    words = parser.parse_args().words
    faulthandler.dump_traceback_later(3600, exit=True)  # a chapter that hangs must not hold up the tests for ever; all of them took 16 minutes on a slow machine
    os.chdir(ROOT / "nbs")
    chapters = sorted((path for path in Path.cwd().rglob("*.ipynb") if not any(part.startswith(("_", ".")) for part in path.relative_to(Path.cwd()).parts)), reverse=True)
    chapters = [path for path in chapters if not words or any(word in path.name for word in words)]
    if not chapters:
        raise SystemExit(f"expected chapters in {Path.cwd()}{' named ' + ' or '.join(words) if words else ''}, found none")
    run = partial(parallel, tried, skip_flags=get_config().tst_flags.split(), basepath=ROOT, n_workers=2, pause=0.01)
    passed, seconds, stale = zip(*run(chapters))
    stale = {path: cells for path, cells in zip(chapters, stale) if cells}
    for path, (whole, _, again) in zip(stale, run([*stale]) if stale else ()):
        stale[path] = {number: lines for number, lines in stale[path].items() if number in again or not whole}
    for path, time in sorted(zip(chapters, seconds), key=lambda pair: -pair[1]):
        print(f"{path.name}: {time:.0f} s")
    for path, cells in stale.items():
        for number, lines in cells.items():
            print(f"{path.name}, cell {number}, - stored, + printed:\n{lines}")
    failed = [path.name for path, good in zip(chapters, passed) if not good or stale.get(path)]
    print(f"failed: {', '.join(failed)}" if failed else f"Success: {len(chapters)} chapters.")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
