"""Run tests and chapters as other processors would: with other instruction sets and numbers of
threads.

    python scripts/processors.py                  # every numeric test file and every chapter under every setting
    python scripts/processors.py --short          # the core of them under the two settings that differ most
    python scripts/processors.py --keep FOLDER    # go on where a run with the same FOLDER stopped

A comparison fails when it uses its whole tolerance; one that uses more than a third is near, and
another processor may break it. The full form exits with 1 for both, the short form for what fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THIRD = 1 / 3
# a tolerance below this share of the numbers compared is about rounding; a wider one about a sample
# or a model
ROUNDING = 1e-4
CHOSEN = ("OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
SETTINGS = {
    f"{name}, {threads} thread{'s' * (threads > 1)}": {"OMP_NUM_THREADS": str(threads), **settings}
    for name, most, settings in (
        ("as it is", 3, {}),
        ("ATen default", 3, {"ATEN_CPU_CAPABILITY": "default"}),
        ("ATen avx2", 2, {"ATEN_CPU_CAPABILITY": "avx2"}),
        ("oneDNN avx2", 2, {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    )
    for threads in range(1, most + 1)
}
SHORT = ("ATen default, 2 threads", "ATen avx2, 1 thread")
CORE = [
    f"tests/test_{name}.py" for name in ("attention", "training", "negatives", "optim", "simcse")
] + ["nbs/3_embeddings/18_negatives.ipynb"]
COMPARES = re.compile(r"assert_close|allclose|isclose|approx\(|assert [^\n]* [<>] ")
# About commands, files, pages and graders: what these compare does not depend on the processor.
COMMANDS = re.compile(
    r"tests/test_(first_cell|extras|assemble|attacks|browser|cli|commands|damage|editions|exercises|fairness|grading|learner|processors|repository|space|update|words|workspace)"
    r"|nbs/(instructor_guide|index)"
)


def numeric() -> list[str]:
    """Give the test files in which numbers are compared, and all chapters."""
    tests = [
        path for path in sorted(ROOT.glob("tests/test_*.py")) if COMPARES.search(path.read_text())
    ]
    names = [
        path.relative_to(ROOT).as_posix()
        for path in [
            *tests,
            *sorted(
                path
                for path in ROOT.glob("nbs/**/*.ipynb")
                if ".ipynb_checkpoints" not in path.parts
            ),
        ]
    ]
    return [name for name in names if not COMMANDS.match(name)]


def result_of(folder: Path, file: str) -> Path:
    return folder / (file.replace("/", "_") + ".json")


def run(setting: str, files: list[str], kept: Path) -> list[dict]:
    """Give the files' results under one setting; only what has none yet is run."""
    folder = kept.resolve() / re.sub(r"\W+", "_", setting)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [file for file in files if not result_of(folder, file).exists()]
    if missing:
        env = {name: value for name, value in os.environ.items() if name not in CHOSEN}
        env |= {
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "agg",
            "OMP_WAIT_POLICY": "passive",
        } | SETTINGS[setting]
        with open(folder / "log", "a") as log:
            subprocess.run(
                [sys.executable, str(ROOT / "scripts/recorder.py"), str(folder), *missing],
                cwd=ROOT,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    crashed = {"passed": False, "close": {}, "over": {}, "order": {}, "seconds": 0.0}
    return [
        json.loads(path.read_text())
        if (path := result_of(folder, file)).exists()
        else crashed | {"file": file}
        for file in files
    ]


def near_tolerance(results: dict[str, list[dict]]) -> list[tuple[float, str]]:
    """Find the comparisons that use more than a third of a tolerance.

    Where the tolerance is wide, for a sample or a model, only those whose share moves from setting
    to setting: a sample drawn from a seed may lie anywhere inside its bounds, as long as it lies
    there on every processor.
    """
    seen = defaultdict(list)
    for setting, files in results.items():
        for file in files:
            for line, used in file["close"].items():
                seen[file["file"], line].append(
                    (used["share"], used["relative"], used["test"], setting)
                )
    found = []
    for (file, line), shares in seen.items():
        share, relative, test, setting = max(shares)
        if share > THIRD and (relative < ROUNDING or share - min(shares)[0] > 0.01):
            found.append((share, f"{file}: {line} {test} under {setting}"))
    return found


def near_orders(results: dict[str, list[dict]]) -> list[tuple[float, str]]:
    """Find each `assert a < b` whose a and b move, from setting to setting, by more than what parts
    them.
    """
    seen = defaultdict(list)
    for files in results.values():
        for file in files:
            for line, distances in file["order"].items():
                seen[file["file"], line].append(distances)
    found = []
    for (file, line), runs in seen.items():
        for distances in zip(*runs) if len({len(run) for run in runs}) == 1 else ():
            least, moved = min(distances), max(distances) - min(distances)
            if moved > least:
                found.append(
                    (
                        moved / least if least else float("inf"),
                        f"{file}: {line} (a and b are {least:.3g} apart, and move by {moved:.3g})",
                    )
                )
                break
    return found


def report(results: dict[str, list[dict]]) -> tuple[list, list]:
    """Print a table of the settings, then what failed and what is near; give the last two."""
    near = sorted(near_tolerance(results) + near_orders(results), reverse=True)
    failed = [
        (setting, file)
        for setting, files in results.items()
        for file in files
        if not file["passed"]
    ]
    print(
        f"{'setting':26}{'files':>6}{'failed':>8}{'comparing lines':>17}{'worst share of a tolerance for rounding':>41}{'seconds':>9}"
    )
    for setting, files in results.items():
        shares = [
            used["share"]
            for file in files
            for used in file["close"].values()
            if used["relative"] < ROUNDING
        ]
        lines = sum(len(file["close"]) + len(file["order"]) for file in files)
        print(
            f"{setting:26}{len(files):6}{sum(not f['passed'] for f in files):8}{lines:17}{max(shares, default=0):41.3f}{sum(f['seconds'] for f in files):9.0f}"
        )
    for setting, file in failed:
        print(f"FAILED under {setting}: {file['file']}")
        for line, used in file["over"].items():
            print(f"    {used['share']:.2f} of the tolerance: {line} {used['test']}")
    for share, where in near:
        print(f"near: {share:.2f} {where}")
    return failed, near


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="the core under the two settings that differ most"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the results and the logs; what lies there is not run again",
    )
    parser.add_argument(
        "--setting", action="append", choices=SETTINGS, help="only this one (may be repeated)"
    )
    parser.add_argument("files", nargs="*", help="test files and chapters instead of all")
    args = parser.parse_args()
    settings = args.setting or (SHORT if args.short else list(SETTINGS))
    files = args.files or (CORE if args.short else numeric())
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(2 if args.short else 1) as pool,
    ):
        done = dict(
            zip(
                settings,
                pool.map(lambda setting: run(setting, files, args.keep or Path(folder)), settings),
            )
        )
        failed, near = report(done)
        for setting in {setting for setting, _ in failed} if not args.keep else ():
            print(
                f"--- {setting}\n"
                + (Path(folder) / re.sub(r"\W+", "_", setting) / "log").read_text()
            )
    return bool(failed or (near and not args.short))


if __name__ == "__main__":
    sys.exit(main())
