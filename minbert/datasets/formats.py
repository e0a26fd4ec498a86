"""File formats of data sets: how lines become cells (tab, comma, raw text, ...), how labels are
parsed, and the table of known sources.

The dialect belongs to the data set, because nothing in a file says whether a quotation mark is a
character or CSV quoting. Read with the wrong dialect, a file loses rows without an error: a reader
with default quoting loses 175 rows of the open sentiment data. Every complaint names file and line.
A new data set is a line in the table `SOURCES`, not a new reader.
"""

__all__ = [
    "DIALECTS",
    "TEXT_LIMIT",
    "SST",
    "NLI",
    "STS_TEXT",
    "STS_GOLD",
    "SOURCES",
    "OPEN",
    "YEARS",
    "Format",
    "read_lines",
    "cut_lines",
    "separator_hint",
    "read_rows",
    "locate_columns",
    "check_header_once",
    "parse_label",
    "write_rows",
    "Source",
]

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from ..core.atomic_dir import atomic_write_dir
from ..core.files import quoted, read_whole

DIALECTS = ("raw", "tab", "comma", "semicolon", "space")


@dataclass(frozen=True)
class Format:
    """Say how one kind of file is cut into columns, and what the columns mean.

    Raises ValueError for an unknown dialect or a role that is no column.
    """

    columns: tuple[str, ...]  # names; the order counts only in files without a header
    text: tuple[str, ...]  # which of them are sentences: one, two, or three
    # which of them is the label; a file with "test-student" in its name may lack it, as the
    # course's do
    label: str | None = None
    # which of them is the id; None, or not in the file: the line number
    id: str | None = None
    # raw: tabs, a quote is a quote; tab, comma, semicolon: with CSV quoting; space: the first blank
    dialect: str = "raw"
    header: bool = True  # the first line holds the names
    classes: tuple[str, ...] | None = None  # names of the labels 0, 1, ...; None: labels are scores
    words: bool = False  # labels are written as names, not as numbers
    scale: tuple[float, float] | None = None  # lowest and highest score; None: any finite number
    # numbers of cells that a row may have; (): one for each column
    widths: tuple[int, ...] = ()
    # a row without label or sentence is skipped and reported, not refused
    lenient: bool = False
    # which of them says train, dev or test, where one file holds all three
    split: str | None = None

    def __post_init__(self):
        if self.dialect not in DIALECTS:
            raise ValueError(f"expected a dialect of {DIALECTS}, got {self.dialect!r}")
        roles = {*self.text, self.label, self.id, self.split} - {None}
        if not self.text or not roles <= set(self.columns):
            raise ValueError(
                f"expected text, label, id and split among {self.columns}, got {sorted(roles)}"
            )


TEXT_LIMIT = 2**32  # bytes; a text is read whole


def read_lines(
    path: str | Path,  # a text file, plain or .gz
) -> list[str]:  # lines without their ends; line n of the file is item n - 1
    """Read UTF-8 lines, with or without a byte-order mark, with LF or CRLF ends.

    Raises ValueError naming the file, and the line where one is to blame, if it is missing, no
    regular file, empty, cut short, not UTF-8, or holds a NUL or a carriage return inside a line.
    """
    path = Path(path)
    data = read_whole(path, TEXT_LIMIT)
    lines = cut_lines(_unpacked(path, data) if path.suffix == ".gz" else data, path)
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path}: expected text, got an empty file")
    return lines


def cut_lines(
    data: bytes,  # whole lines of a file; the last one may lack its end
    path: str | Path,  # for the message
    first: int = 1,  # number of the first of them
) -> list[str]:  # lines without their ends
    """Cut bytes into lines. Raises ValueError as `read_lines` does where a line is to blame."""
    try:
        text = data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        bad, line = error.object[error.start], error.object[: error.start].count(b"\n") + first
        raise ValueError(
            f"{path}:{line}: expected UTF-8 text, got the byte 0x{bad:02x}: save it as UTF-8 (Excel: CSV UTF-8)"
        ) from None
    if odd := re.search(r"\0|\r(?!\n|\Z)", text):
        line = text.count("\n", 0, odd.start()) + first
        name = {"\0": "a NUL", "\r": "a carriage return inside a line"}[odd[0]]
        raise ValueError(
            f"{path}:{line}: expected lines of text that end in LF or CRLF, got {name}"
        )
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _unpacked(path, data):
    """Unpack the bytes of a .gz file; text becomes a few times longer, not two hundred times."""
    most = max(2**28, 200 * len(data))  # bytes
    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: expected a readable file, got: {error}") from error
    if len(text) > most:
        raise ValueError(f"{path}: expected at most {most:,} bytes of text, got more")
    return text


_DELIMITERS = {"raw": "\t", "tab": "\t", "comma": ",", "semicolon": ";", "space": " "}


def separator_hint(header, dialect):
    """Guess what separates the names in the first line of a table, where the delimiter of the
    dialect is not in it.
    """
    found = [
        name
        for mark, name in ((",", "commas"), (";", "semicolons"), ("\t", "tabs"), ("|", "bars"))
        if mark in header
    ]
    return f": separated by {found[0]}?" if found and _DELIMITERS[dialect] not in header else ""


def read_rows(
    path: str | Path,  # plain or .gz
    dialect: str = "raw",  # one of DIALECTS
    blank: bool = False,  # keep blank lines, too, as rows without cells
    # (line number from 1, cells) of every line or row that is not blank; of separators alone, too
) -> list[tuple[int, list[str]]]:
    """Cut the lines of a file into cells.

    Raises ValueError naming file and line if CSV quotes do not match or enclose what reads like the
    ends of two rows, or if there is no row.
    """
    lines = read_lines(path)
    if dialect in ("raw", "space"):
        separator, cuts = ("\t", -1) if dialect == "raw" else (" ", 1)
        rows = [
            (n, line.split(separator, cuts) if line.strip() or "\t" in line else [])
            for n, line in enumerate(lines, 1)
        ]
    else:
        rows = _quoted_rows(path, lines, dialect)
    if not any(cell.strip() for _, cells in rows for cell in cells):
        raise ValueError(f"{path}: expected rows of cells, got none")
    return rows if blank else [(n, cells) for n, cells in rows if cells]


def _swallowed(cells, delimiter):
    """Tell whether a row may be several, of which two stray quotes made one: the lines of one of
    its cells are cut as rows of its width would be.
    """
    last = len(cells) - 1
    for place, cell in enumerate(cells):
        found = [line.count(delimiter) for line in cell.split("\n")]
        if last and len(found) > 1 and found == [last - place, *[last] * (len(found) - 2), place]:
            return True
    return False


def _quoted_rows(path, lines, dialect):
    """Cut lines into cells with CSV quoting."""
    delimiter = _DELIMITERS[dialect]
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    # 131,072 characters otherwise, in the whole process
    rows, start, limit = [], 1, csv.field_size_limit(2**31 - 1)
    try:
        for cells in reader:
            if _swallowed(cells, delimiter):
                raise csv.Error(
                    f"a cell whose lines, down to line {reader.line_num}, have as many delimiters as rows between two "
                    "stray quotes would have: if it is one text, write it on one line"
                )
            # A line of blanks is empty, but not "", which is the empty cell of a single column.
            empty = len(cells) < 2 and not lines[start - 1].strip()
            rows.append((start, [] if empty else cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}:{start}: expected matching CSV quotes (a cell that begins with one ends with one; inside they are doubled), "
            f"got: {str(error).replace(chr(9), 'tab')}{separator_hint(lines[0], dialect)}"
        ) from None
    finally:
        csv.field_size_limit(limit)
    return rows


def locate_columns(
    path: Path,  # for the message
    names: list[str],  # of the header, from left to right
    form: Format,
) -> dict[str, int]:  # name -> position, of the columns that have a role in `form`
    """Find the columns of a table. Raises ValueError if a needed one is missing, or any comes
    twice.
    """
    optional = "test-student" in path.name
    wanted = [
        *form.text,
        *([form.label] if form.label and not optional else []),
        *([form.split] if form.split else []),
    ]
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise ValueError(f"{path}:1: expected each column once, got {quoted(twice[0])} again")
    if not {*wanted} <= {*names}:
        hint = separator_hint(names[0], form.dialect) if len(names) == 1 else ""
        raise ValueError(
            f"{path}:1: expected columns {wanted} in the {form.dialect} dialect, got {quoted(names)}{hint}"
        )
    return {
        name: i
        for i, name in enumerate(names)
        if name in (*form.text, form.label, form.id, form.split)
    }


def check_header_once(
    path: str | Path,  # for the message
    rows: list[tuple[int, list]],  # (line, cells) below the header
    names: list[str],  # of the columns
) -> None:
    """Raise ValueError with file and line for a row that repeats the names, in any order or case."""
    header = {name.strip().casefold() for name in names}
    for line, cells in rows:
        if len(cells) == len(names) and {str(cell).strip().casefold() for cell in cells} == header:
            raise ValueError(
                f"{path}:{line}: expected a row, got the names of the columns again, "
                f"{quoted(names)}: were two tables joined? Delete this line, "
                "or rename the columns if it is a row"
            )


# float() takes 1_0 and other digits, too
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")


def parse_label(
    text: str,  # a cell
    form: Format,  # says which labels there are
) -> int | float:  # number of the class, or a finite score inside `form.scale`
    """Turn the text of a label into a number. Raises ValueError saying what was expected."""
    text = text.strip()
    if form.words:
        names = [name.lower() for name in form.classes]
        if text.lower() not in names:
            raise ValueError(f"expected a label of {form.classes}, got {quoted(text)}")
        return names.index(text.lower())
    low, high = (
        (0, len(form.classes) - 1) if form.classes else (form.scale or (-math.inf, math.inf))
    )
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(value) and low <= value <= high) or (
        form.classes and value != int(value)
    ):
        kind = "whole number" if form.classes else "number"
        raise ValueError(f"expected a {kind} from {low:g} to {high:g}, got {quoted(text)}")
    return int(value) if form.classes else value


def _write_table(file: TextIO, table: list[list[str]], dialect: str) -> None:
    if dialect not in ("raw", "space"):
        flat = ([re.sub(r"\r\n?|\n", " ", cell) for cell in row] for row in table)
        csv.writer(file, delimiter=_DELIMITERS[dialect], lineterminator="\n").writerows(flat)
        return
    file.writelines(
        _DELIMITERS[dialect].join(" ".join(cell.split()) for cell in row) + "\n" for row in table
    )


def write_rows(
    path: str | Path,  # its folder is made if missing
    form: Format,  # gives the columns, their order and the dialect
    rows: Iterable[dict],  # column name -> value; a column left out, or None, is empty
) -> None:
    """Write a file that `read_rows` cuts back into cells: the same ones in the CSV dialects, where
    a line break becomes a blank. In raw and space files each run of white space becomes one blank,
    and none stays at the ends.

    Raises ValueError naming the file if UTF-8 cannot hold the text. Whatever fails, the old file,
    or none, is left.
    """
    path = Path(path)
    table = [
        ["" if row.get(name) is None else str(row[name]) for name in form.columns] for row in rows
    ]
    if form.header:
        table.insert(0, list(form.columns))
    try:
        with (
            atomic_write_dir(path.parent) as draft,
            open(draft / path.name, "w", encoding="utf-8", newline="") as file,
        ):
            _write_table(file, table, form.dialect)
    except UnicodeEncodeError as error:
        bad = error.object[error.start]
        raise ValueError(f"{path}: expected text that UTF-8 can hold, got {bad!r}") from None


SST = ("negative", "somewhat negative", "neutral", "somewhat positive", "positive")
NLI = ("entailment", "neutral", "contradiction")
_ONE = Format(
    ("", "id", "sentence", "sentiment"), ("sentence",), "sentiment", "id", "tab", classes=SST
)
_CFIMDB = replace(_ONE, classes=("negative", "positive"))
_PAIR = Format(
    ("", "id", "sentence1", "sentence2", "similarity"),
    ("sentence1", "sentence2"),
    "similarity",
    "id",
    "tab",
    scale=(0, 5),
)
_QUORA = replace(
    _PAIR,
    columns=(*_PAIR.columns[:4], "is_duplicate"),
    label="is_duplicate",
    scale=None,
    classes=("different", "duplicate"),
    lenient=True,
)
_STSB = Format(
    ("genre", "file", "year", "line", "score", "sentence1", "sentence2"),
    ("sentence1", "sentence2"),
    "score",
    header=False,
    scale=(0, 5),
    widths=(7, 9),
)
_SICK = Format(
    ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"),
    ("sentence_A", "sentence_B"),
    "relatedness_score",
    "pair_ID",
    scale=(1, 5),
)
_MRPC = Format(
    ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    ("#1 String", "#2 String"),
    "Quality",
    classes=("different", "paraphrase"),
)
_NLI = Format(
    ("gold_label", "sentence1", "sentence2"),
    ("sentence1", "sentence2"),
    "gold_label",
    classes=NLI,
    words=True,
    lenient=True,
)
_QNLI = Format(
    ("index", "question", "sentence", "label"),
    ("question", "sentence"),
    "label",
    "index",
    classes=("entailment", "not_entailment"),
    words=True,
)
_SST5 = Format(
    ("label", "sentence"), ("sentence",), "label", dialect="space", header=False, classes=SST
)
_TRIPLETS = Format(("sent0", "sent1", "hard_neg"), ("sent0", "sent1", "hard_neg"), dialect="comma")
_DUPLICATES = Format(("sentence1", "sentence2"), ("sentence1", "sentence2"))
_OPEN_SENTIMENT = Format(
    ("split", "source", "sentence", "sentiment"),
    ("sentence",),
    "sentiment",
    split="split",
    classes=("negative", "positive"),
)
_OPEN_SIMILARITY = Format(
    ("split", "source", "sentence1", "sentence2", "similarity"),
    ("sentence1", "sentence2"),
    "similarity",
    split="split",
    scale=(0, 5),
)
_OPEN_INFERENCE = Format(
    ("split", "label", "sentence1", "sentence2"),
    ("sentence1", "sentence2"),
    "label",
    split="split",
    classes=NLI,
    words=True,
)
_OPEN_SENTENCES = Format(("source", "sentence"), ("sentence",))
_OPEN_DOCUMENTS = Format(("article", "sentence"), ("sentence",), id="article")
STS_TEXT = Format(("sentence1", "sentence2"), ("sentence1", "sentence2"), header=False)
STS_GOLD = Format(("score",), ("score",), header=False, scale=(0, 5))


@dataclass(frozen=True)
class Source:
    """Say where the files of a dataset lie in a data folder."""

    kind: str  # sentiment, paraphrase, similarity, nli or text
    form: Format
    path: str  # relative path; {} stands for the word of the split
    train: str | None = "train"  # word of each split in the path; None: there is no such split
    dev: str | None = "dev"
    test: str | None = "test"

    def file(self, split: str) -> str | None:
        """Return the path of a split, None if there is none."""
        word = getattr(self, split)
        return None if word is None else self.path.format(word)


def _course(kind: str, form: Format, stem: str) -> list[Source]:
    """The course's test files have no labels and "test-student" in their names."""
    path = f"cs224n/{stem}-{{}}.csv"
    return [Source(kind, form, path, test="test-student"), Source(kind, form, path)]


SOURCES: dict[str, list[Source]] = {  # the first file that exists is read
    "sentiment": [Source("sentiment", _OPEN_SENTIMENT, "open/sentiment.tsv")],
    "similarity": [Source("similarity", _OPEN_SIMILARITY, "open/similarity.tsv")],
    "inference": [Source("nli", _OPEN_INFERENCE, "open/inference.tsv")],
    "sentences": [Source("text", _OPEN_SENTENCES, "open/sentences.tsv", dev=None, test=None)],
    "documents": [Source("text", _OPEN_DOCUMENTS, "open/documents.tsv", dev=None, test=None)],
    "sst": _course("sentiment", _ONE, "ids-sst"),
    "cfimdb": _course("sentiment", _CFIMDB, "ids-cfimdb"),
    "quora": _course("paraphrase", _QUORA, "quora"),
    "sts": _course("similarity", _PAIR, "sts"),
    "stsb": [
        Source("similarity", _STSB, "senteval/STS/STSBenchmark/sts-{}.csv"),
        *_course("similarity", _PAIR, "sts"),
    ],
    "stsb-cased": [Source("similarity", _STSB, "senteval/STS/STSBenchmark-cased/sts-{}.csv")],
    "sickr": [
        Source("similarity", _SICK, "senteval/SICK/SICK_{}.txt", dev="trial", test="test_annotated")
    ],
    "mrpc": [Source("paraphrase", _MRPC, "senteval/MRPC/msr_paraphrase_{}.txt")],
    "sst5": [Source("sentiment", _SST5, "senteval/SST/fine/sentiment-{}")],
    "qnli": [Source("nli", _QNLI, "nli/qnli-{}.tsv", test=None)],
    "snli": [Source("nli", _NLI, "nli/snli-{}.tsv")],
    "mnli": [
        Source("nli", _NLI, "nli/mnli-{}.tsv", dev="dev-matched", test=None),
        Source("nli", _NLI, "nli/mnli-{}.tsv", train="train-sample", dev=None, test=None),
    ],
    "triplets": [Source("nli", _TRIPLETS, "nli/nli-triplets.csv", dev=None, test=None)],
    "duplicates": [
        Source("paraphrase", _DUPLICATES, "paraphrase/qqp-duplicates.tsv", dev=None, test=None)
    ],
}
# they come with the package; see assets/open/NOTICE.md
OPEN = ("sentiment", "similarity", "inference", "sentences", "documents")
# only test splits, two files per subset
YEARS = {f"sts{y}": f"senteval/STS/STS{y}-en-test" for y in range(12, 17)}
