"""Write minbert/assets/splits: which pair belongs to which published split or subset, as checksums.

    python scripts/published_splits.py DATA

DATA holds cs224n/sts-*.csv, senteval/SICK and senteval/STS as published. No sentence is written.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from minbert.data import load_dataset
from minbert.datasets.formats import SOURCES, YEARS, read_rows
from minbert.datasets.splits import SPLITS_OF, pair_key


def course_rows(data: str) -> list[tuple]:
    """List split, index, id and checksum of every row of the course's STS files, in their order."""
    rows = []
    for split in ("train", "dev", "test"):
        path = Path(data) / SOURCES["sts"][0].file(split)
        rows += [
            (split, cells[0], cells[1], pair_key(*cells[2:4]))
            for _, cells in read_rows(path, "tab")[1:]
        ]
    return rows


def sick_rows(data: str) -> list[tuple]:
    """List split and checksum of the train and dev pairs of SICK; all others are for the test."""
    rows = []
    for split in ("train", "dev"):
        pairs = load_dataset("sickr", split, data)
        rows += [
            (split, pair_key(*row)) for row in zip(pairs.sentences, pairs.sentences2, pairs.labels)
        ]
    return rows


def year_rows(data: str) -> list[tuple]:
    """List year, subset and checksum of every scored pair of STS12 to STS16."""
    rows = []
    for name in YEARS:
        pairs = load_dataset(name, "test", data)
        rows += [
            (name, subset, pair_key(a, b))
            for subset, a, b in zip(pairs.subsets, pairs.sentences, pairs.sentences2)
        ]
    return rows


def tables(data: str) -> dict[str, bytes]:  # file name -> content
    """Make all tables."""
    made = {
        "sts": [("split", "index", "id", "key"), *course_rows(data)],
        "sick": [("split", "key"), *sick_rows(data)],
        "years": [("year", "subset", "key"), *year_rows(data)],
    }
    lines = {name: "".join("\t".join(row) + "\n" for row in rows) for name, rows in made.items()}
    return {f"{name}.tsv.gz": gzip.compress(text.encode(), mtime=0) for name, text in lines.items()}


def main(data: str) -> None:
    SPLITS_OF.mkdir(exist_ok=True)
    for name, content in tables(data).items():
        (SPLITS_OF / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
