"""Reading STS12 to STS16: for each year a folder of pairs of files, sentences in one and scores in the
other.
"""

from pathlib import Path

from ..core.files import quoted
from .formats import STS_GOLD, YEARS, parse_label, read_lines


def places(folder: Path, path: str) -> list[Path]:
    """List where a file may lie: under its whole path, or its last parts; plain or .gz.

    SentEval uses one file name for several datasets, so there the last folder is part of the name.
    """
    parts = Path(path).parts
    starts = range(len(parts) - (parts[0] == "senteval"))
    return [folder.joinpath(*parts[i:-1], parts[-1] + end) for i in starts for end in ("", ".gz")]


def year_files(name: str, folder: Path) -> list[Path]:
    """List the sentence files of a year; the one folder that holds them may answer to two paths."""
    folders = [place.parent for place in places(folder, YEARS[name] + "/x")]
    return next((files for f in folders if (files := sorted(f.glob("STS.input.*.txt")))), [])


def read_subset(
    # STS.input.X.txt; STS.gs.X.txt stands beside it
    path: Path,
    # (first, second, score, id, "X") of each scored pair; ("file:line", reason)
) -> tuple[list[tuple], list[tuple[str, str]]]:
    """Read the pairs of a subset that somebody scored, and list the others. Raises ValueError
    naming file and line.
    """
    subset = path.name[len("STS.input.") : -len(".txt")]
    gold = path.with_name(path.name.replace("input", "gs", 1))
    # their scores would be pooled, and a mean over subsets would silently become another figure
    if subset == "all":
        raise ValueError(
            f"{path}: expected a file for each subset, got all pairs in one, as older versions downloaded them: "
            "`minbert data --download` of this year replaces it"
        )
    lines, marks = read_lines(path), read_lines(gold)
    if len(lines) != len(marks):
        raise ValueError(f"{gold}: expected {len(lines)} lines as in {path.name}, got {len(marks)}")
    pairs, skipped = [], []
    for n, (line, mark) in enumerate(zip(lines, marks), 1):
        if not mark.strip():
            skipped.append((f"{gold}:{n}", "no score"))
            continue
        first, second = _two_sentences(line, f"{path}:{n}")
        try:
            score = parse_label(mark, STS_GOLD)
        except ValueError as error:
            raise ValueError(f"{gold}:{n}: {error}") from None
        pairs.append((first, second, score, f"{subset}-{n}", subset))
    return pairs, skipped


def _two_sentences(line: str, where: str) -> list[str]:
    cells = [cell.strip() for cell in line.split("\t")]
    # 2016 was also published with two sources a line
    if len(cells) not in (2, 4) or not all(cells[:2]):
        raise ValueError(
            f"{where}: expected two sentences and a tab between them, got {quoted(line, 50)}"
        )
    return cells[:2]
