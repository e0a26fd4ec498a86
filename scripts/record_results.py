"""Put new results of `minbert reproduce` into results/recipes, and rebuild the shipped record."""

import argparse
from pathlib import Path

from minbert.core.files import write_json
from minbert.papers import add_results, as_json, make_report, stored
from minbert.papers.record import RECORDED

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "recipes"
RECORD = ROOT / "minbert" / "assets" / "results"


def record(folders: list[Path], data: str, scales: list[str]) -> None:
    """Add the runs in some folders to the stored ones, and write a record for each scale."""
    for folder in folders:
        if not (found := stored(folder)):
            raise SystemExit(f"{folder}: expected results of `minbert reproduce`, found none")
        add_results(RESULTS, [result for results in found.values() for result in results])
        print(f"{folder}: {sum(map(len, found.values()))} runs of {len(found)} recipes added")
    for scale in scales:
        report = make_report(RESULTS, data, scale)
        write_json(RECORD / f"recipes-{scale}.json", as_json(report, scale))
        print(f"{RECORD / f'recipes-{scale}.json'} written")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="such as reproduced/micro")
    parser.add_argument("--data", required=True, help="folder of data sets")
    parser.add_argument("--scale", action="append", choices=RECORDED, dest="scales")
    asked = parser.parse_args()
    record(asked.folders, asked.data, asked.scales or list(RECORDED))
