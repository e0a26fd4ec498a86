"""Grade a class of generated submissions: `python benchmarks/bench_grading.py 200 -j 2`.

Prints minutes, the largest memory of all processes together, how many scores differ from what each
submission was built to deserve, and whether a second run over the same results changes a byte of
the table.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from submissions import make_all  # noqa: E402

from minbert.course.exercises import EXERCISES  # noqa: E402


def shared_memory(pids: list[str]) -> float:
    """Memory of processes in GB; what forks share counts once (proportional set size)."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(
                next(line for line in text.split("\n") if line.startswith("Pss:")).split()[1]
            )
        except (OSError, StopIteration):
            pass
    return total / 2**20


def watch(root: int, peak: list[float], stop: threading.Event) -> None:
    """Keep the largest memory of a process and all below it."""
    while not stop.wait(1.0):
        lines = subprocess.run(
            ["ps", "-eo", "pid,ppid"], capture_output=True, text=True
        ).stdout.split("\n")[1:]
        parents = dict(line.split() for line in lines if line.split())
        family = {str(root)}
        while more := {p for p, q in parents.items() if q in family} - family:
            family |= more
        peak[0] = max(peak[0], shared_memory(list(family)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        deserved = make_all(folder / "class", options.count)
        command = [
            sys.executable,
            "-m",
            "minbert",
            "grade",
            str(folder / "class"),
            "--csv",
            str(folder / "grades.csv"),
            "--html",
            str(folder / "pages"),
            "--seed",
            "2026",
            "-j",
            str(options.jobs),
        ]
        start, peak, stop = time.time(), [0.0], threading.Event()
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=watch, args=(run.pid, peak, stop), daemon=True).start()
        print(run.communicate()[0])
        stop.set()
        minutes = (time.time() - start) / 60
        table = (folder / "grades.csv").read_bytes()
        rows = list(csv.DictReader(table.decode("utf-8").splitlines()))
        wrong = [
            (
                row["submission"],
                name,
                deserved[row["submission"]][name],
                row[f"{name} status"],
                row[f"{name} reason"],
            )
            for row in rows
            for name in EXERCISES
            if row[f"{name} status"] != deserved[row["submission"]][name]
        ]
        for line in wrong[:20]:
            print(*line)
        print(
            f"{len(rows)} submissions, {len(EXERCISES)} exercises: {minutes:.1f} min, at most {peak[0]:.2f} GB, {len(wrong)} results not as deserved"
        )
        start = time.time()
        subprocess.run(command, capture_output=True, check=True)
        print(
            f"again: {time.time() - start:.0f} s, table {'the same' if table == (folder / 'grades.csv').read_bytes() else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
