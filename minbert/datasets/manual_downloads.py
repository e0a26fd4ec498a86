"""Datasets that minbert does not download: where to get them, and how their files are recognized."""

from __future__ import annotations

__all__ = ["ELSEWHERE", "Elsewhere", "where_to_get", "not_as_published"]

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from .sts_years import places


class Elsewhere(NamedTuple):
    """Files with a public home from which minbert does not fetch them."""

    where: str  # the home, and which of its files
    files: dict[str, str | int]  # path in a data folder -> SHA-256, or the number of lines


ELSEWHERE = {
    "cfimdb": Elsewhere(
        "https://github.com/gpoesia, repository of the default final project of CS224N, folder data",
        {
            "cs224n/ids-cfimdb-train.csv": "140fc513045a966109faed46a5c7a898767b96714d71bcb9c15f659129fadcea",
            "cs224n/ids-cfimdb-dev.csv": "3087f571b66860fe5d035b5a018d08202ad3fd3720e4821c04b2acf6c7ded559",
            "cs224n/ids-cfimdb-test-student.csv": "7ae611548c9eac879e9ebb406cc9f8ae68ff12f78090e4965af5cbdfa06240f4",
        },
    ),
    "wiki1m": Elsewhere(
        "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse, file wiki1m_for_simcse.txt",
        {"wiki1m_for_simcse.txt": 1_000_000},
    ),
    "word counts": Elsewhere(
        "https://github.com/PrincetonML/SIF, file auxiliary_data/enwiki_vocab_min200.txt",
        {
            "wordfreq/enwiki-word-counts.txt": "472326d0b31161ecd316f10fdb548f4cd812b6ff0b7c030b6cc0cbaf5de8b7cd"
        },
    ),
}


def where_to_get(
    name: str,  # a key of ELSEWHERE, or another name
) -> str:  # "" for another name
    """Say where the files of a dataset are to be had, and under which names they are looked for."""
    if name not in ELSEWHERE:
        return ""
    where, files = ELSEWHERE[name]
    return f"{name} is to be had at {where}, to be saved as {', '.join(files)}"


def not_as_published(name: str, folder: str | Path) -> list[str]:
    """Describe the files of a dataset in a data folder that differ from the published ones."""
    found = []
    for path, wanted in ELSEWHERE[name].files.items():
        there = next((place for place in places(Path(folder), path) if place.is_file()), None)
        if there is not None and (complaint := _complaint(there, wanted)):
            found.append(f"{there}: not the published file: {complaint}")
    return found


def _complaint(file: Path, wanted: str | int) -> str:
    """Describe how a file differs; "" if it does not."""
    checksum, lines = hashlib.sha256(), 0
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
        while block := stream.read(2**20):
            checksum.update(block)
            lines += block.count(b"\n")
    if isinstance(wanted, str):
        return (
            ""
            if checksum.hexdigest() == wanted
            else f"expected SHA-256 {wanted[:12]}..., got {checksum.hexdigest()[:12]}..."
        )
    near = (
        abs(lines - wanted) <= wanted // 1000
    )  # an editor may have added or removed a few line ends
    return "" if near else f"expected {wanted:,} lines, got {lines:,}"
