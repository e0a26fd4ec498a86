"""Reading the user's text: one sentence in each line, or a table with columns for sentences and
scores.
"""

from __future__ import annotations

__all__ = [
    "ROLES",
    "read_text",
    "text_columns",
    "usual_columns",
    "read_named",
    "one_column",
    "read_graded",
    "too_long",
    "is_table",
    "check_lines",
    "check_gaps",
    "whole_table",
    "renamed",
    "cut_table",
    "sentence_column",
    "finite_number",
    "is_number",
]

import gzip
import io
import json
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from minbert.cli.retrieval_eval import plain
from minbert.core.files import check_regular, parse_json, quoted, read_whole
from minbert.core.text_windows import has_surrogate
from minbert.data import Dataset
from minbert.datasets.formats import (
    Format,
    check_header_once,
    parse_label,
    read_lines,
    read_rows,
    separator_hint,
)
from minbert.tokens import encode_ids

# what the files of a task call their columns
ROLES = {"sentence", "text", "sentence1", "sentence2", "label", "score"}
# any finite number
_GRADED = Format(("sentence1", "sentence2", "grade"), ("sentence1", "sentence2"), "grade")


def read_text(
    # .txt: a sentence a line; .tsv, .csv (commas or semicolons): the first line names the columns;
    # .jsonl: an object a line. Each also as .gz; .parquet
    path: str | Path,
    # which of a table, in this order; None: all, which must be 1 to 3
    columns: list[str] | None = None,
    # sentences; with a second column partners that mean the same, with a third sentences that do
    # not
) -> Dataset:
    """Read text to learn from. Blank lines are no rows.

    Raises ValueError naming file and line for another kind of file, columns that are not there,
    more than three, a first line that holds sentences instead of names or is separated by other
    signs, a column of numbers alone, or a cell that is no sentence; and, where nobody said which of
    several columns are meant, for one of single words alone, such as ids, dates or names of
    classes. Of three columns, the negatives must differ from the other two, because the loss would
    push a sentence away from itself.
    """
    path = Path(path)
    names, rows = cut_table(path, bool(columns))
    asked, columns = bool(columns), list(columns or names)
    if not 1 <= len(set(columns)) == len(columns) <= 3 or not {*columns} <= {*names}:
        raise ValueError(
            f"{path}: expected 1 to 3 columns of {quoted(names)}, each once, got {quoted(columns)}"
            + ("" if asked else ": --columns says which")
        )
    places = [names.index(name) for name in columns]
    texts = [sentence_column(path, rows, names, i) for i in places]
    for column, text in zip(columns, texts if len(texts) > 1 and not asked else []):
        if not any(len(sentence.split()) > 1 for sentence in text):
            raise ValueError(
                f"{path}: expected sentences in column {column!r}, got single words alone, such as {quoted(text[0])}: --columns says which to take"
            )
    if equal := equal_negatives(texts):
        lines = [rows[row][0] for row in equal]
        raise ValueError(
            f"{path}:{lines[0]}: {EQUAL_NEGATIVE}, got {quoted(texts[2][equal[0]])} again: "
            f"delete {len(lines):,} such row(s), on the lines {quoted(lines)}"
        )
    name = path.name if len(names) == 1 else f"{path.name} [{', '.join(columns)}]"
    return Dataset(
        name, "train", "text", *texts[:1], **dict(zip(("sentences2", "sentences3"), texts[1:]))
    )


EQUAL_NEGATIVE = "expected a negative that differs from its anchor and from its positive"


def equal_negatives(
    columns: list[list[str] | None],  # anchors, positives, negatives; fewer have no negatives
) -> list[int]:  # numbers of rows, from 0
    """Find the rows whose negative is equal to its anchor or to its positive; case and blanks do
    not count.
    """
    triplets = zip(*columns) if len(columns) == 3 and all(columns) else ()
    return [
        row
        for row, (*others, negative) in enumerate(triplets)
        if plain(negative) in map(plain, others)
    ]


def text_columns(names: list[str], pair: bool) -> list[str]:
    """Say which columns hold the sentences where nobody named them."""
    return (
        ["sentence1", "sentence2"]
        if pair
        else ["text"]
        if "text" in names and "sentence" not in names
        else ["sentence"]
    )


def usual_columns(path: Path, names: list[str], pair: bool) -> list[str]:
    """Find the sentences of a table where nobody named their columns. Raises ValueError, with the
    option that helps, if they are not there.
    """
    columns = text_columns(names, pair)
    if not {*columns} <= {*names}:
        raise ValueError(
            f"{path}: expected {'columns sentence1 and sentence2' if pair else 'a column sentence, or text'}, got {quoted(names)}: --columns says which to take"
        )
    return columns


def read_named(
    path: Path,  # text or table, as in `read_text`
    # of a table; None: sentence or text, of pairs sentence1 and sentence2
    columns: list[str] | None,
    pair: bool = False,  # two columns are wanted
) -> Dataset:
    """Read the sentences of a file whose other columns do not matter, a row each. Raises ValueError
    as `read_text`, and for a row of empty cells among the others.
    """
    check_gaps(path)
    return read_text(
        path,
        usual_columns(path, cut_table(path)[0], pair)
        if not columns and is_table(path)
        else columns,
    )


def one_column(
    path: Path,  # a table
    columns: list[str] | None,  # one name; None: sentence, or text
) -> list[str]:  # a text a row
    """Read one column of a table. Raises ValueError as `read_text`, and for several."""
    if columns and len(columns) > 1:
        raise ValueError(f"expected one column, got {quoted(columns)}")
    return read_named(path, columns).sentences


_PAIR = ["sentence1", "sentence2", "score"]


def read_graded(
    # a table as in `read_text`, with columns sentence1, sentence2 and score, or with three whatever
    # their names
    path: str | Path,
) -> Dataset:  # two columns of sentences, and how alike people found them
    """Read pairs with grades, on any scale. Raises ValueError as `read_text` does, for a grade that
    is no finite number, and for grades all alike.
    """
    path = Path(path)
    names, rows = cut_table(path, True)  # three, whatever they are called
    columns = _PAIR if {*_PAIR} <= {*names} else names
    if len(columns) != 3:
        raise ValueError(
            f"{path}: expected columns sentence1, sentence2 and score, or three others in this order, got {quoted(names)}"
        )
    *sentences, grade = map(names.index, columns)
    first, second = (sentence_column(path, rows, names, i) for i in sentences)
    grades = [finite_number(path, line, cells[grade]) for line, cells in rows]
    if len({*grades}) < 2:
        raise ValueError(
            f"{path}: expected grades that differ, got {grades[0]:g} alone: nothing can be ranked by them"
        )
    return Dataset(path.name, "dev", "similarity", first, second, grades)


def too_long(
    encoder,  # SentenceEncoder
    texts: list[str],  # that the encoder is to read
) -> str:  # a note; "" where all is read
    """Count the texts of which a model reads the beginning only."""
    most = encoder.max_length
    # a piece has a byte at least
    long = [text for text in texts if len(text.encode(errors="replace")) > most - 2]
    cut = (
        sum(len(ids) > most for ids in encode_ids(encoder.tokenizer, long, most + 1)) if long else 0
    )
    return (
        f"note: {cut:,} of {len(texts):,} texts are longer than the {most} tokens that the model reads: the rest of them is not read"
        if cut
        else ""
    )


def is_table(path: Path) -> bool:
    """Tell by its name whether a file is cut into columns."""
    return _ending(path) in (".tsv", ".csv", ".jsonl", ".parquet")


def _ending(path):
    """Give the end of a file's name, without that of the packing; DATA.CSV is a table, too."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


# what is often meant, and holds no sentence a line
_NO_TEXT = (
    ".json",
    ".xlsx",
    ".xls",
    ".ods",
    ".docx",
    ".odt",
    ".pdf",
    ".html",
    ".xml",
    ".zip",
    ".npy",
)


def check_lines(path: Path) -> None:
    """Raise ValueError for a file whose lines are no sentences, as its name says."""
    if (ending := _ending(path)) in _NO_TEXT:
        raise ValueError(
            f"{path}: expected sentences, one a line, or a table (.csv, .tsv, .jsonl, .parquet), got {ending}"
        )


def whole_table(
    path: Path,  # a table
) -> dict[str, list[str]]:  # column -> its cells as text, "" for one that a JSON row lacks
    """Read all columns, also those that are no sentences. Raises ValueError as `cut_table`."""
    names, rows = cut_table(path, True)

    # a date is no text in JSON
    def as_json(cell):
        return (
            json.dumps(cell, ensure_ascii=False, default=str)
            if isinstance(cell, (list, dict, bool, int, float))
            else str(cell)
        )

    def as_text(cell):
        return "" if cell is None else as_json(cell)

    return {name: [as_text(cells[i]) for _, cells in rows] for i, name in enumerate(names)}


def renamed(
    table: dict[str, list],  # column -> its cells
    taken: Collection[str],  # names that others need
) -> dict[str, list]:  # the same columns in the same order
    """Call a column whose name is taken `given_...`."""
    result = dict(table)
    for name in table.keys() & {*taken}:
        new = f"given_{name}"
        while new in table:
            new = f"given_{new}"
        result = {new if old == name else old: column for old, column in result.items()}
    return result


def cut_table(
    path: Path,  # .txt, .tsv, .csv, .jsonl, each also as .gz; .parquet
    # somebody knows the names of its columns; then one of them may be as long as a sentence
    named: bool = False,
    # names of columns; (line, cells) of every row, a cell that a JSON row lacks is None
) -> tuple[list[str], list[tuple[int, list]]]:
    """Cut a file into rows, by the end of its name; a row of blank cells is none. Raises ValueError
    naming file and line.
    """
    ending = _ending(path)
    if ending == ".txt":
        return ["sentence"], [
            (n, [line]) for n, line in enumerate(read_lines(path), 1) if line.strip()
        ]
    if ending == ".jsonl":
        return _objects(path)
    if ending == ".parquet":
        return _parquet_rows(path)
    if ending not in (".tsv", ".csv"):
        raise ValueError(
            f"{path}: expected a file called .txt, .tsv, .csv or .jsonl, or one of these packed as .gz, or .parquet"
        )
    dialect = _dialect(path)
    (first, names), *rows = [
        (line, cells)
        for line, cells in read_rows(path, dialect)
        if any(cell.strip() for cell in cells)
    ]
    # else its pairs would be learned as single sentences
    if len(names) == 1 and (hint := separator_hint(names[0], dialect)):
        raise ValueError(
            f"{path}:{first}: expected names of columns in the {dialect} dialect, got {quoted(names[0])}{hint}"
        )
    if names[0].startswith("sep="):
        raise ValueError(
            f"{path}:{first}: expected names of columns, got {quoted(names[0])}, which only a spreadsheet reads: delete this line"
        )
    names, rows = _without_empty_ends([name.strip() for name in names], rows)
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise ValueError(
            f"{path}:{first}: expected a first line of different names of columns, got {quoted(twice)} more than once"
            + ("" if twice else ": delete the columns without a name, or name them")
        )
    if not named and not {*names} & ROLES and any(len(name.split()) > 3 for name in names):
        raise ValueError(
            f"{path}:{first}: expected a first line of names of columns, got {quoted(names)}: a sentence? If these are names, --columns says which to take"
        )
    return names, _checked(path, rows, names)


def _without_empty_ends(names, rows):
    """Leave out columns at the right that have neither a name nor a cell: spreadsheets write them."""
    width = len(names)
    while (
        len(names) > 1
        and not names[-1]
        and not any(len(cells) == width and cells[len(names) - 1].strip() for _, cells in rows)
    ):
        names = names[:-1]
    return names, [
        (line, cells[: len(names)] if len(cells) == width else cells) for line, cells in rows
    ]


def check_gaps(
    path: Path,  # text or table
) -> None:
    """Raise ValueError naming file and line for a row of empty cells between others: row n of the
    answers would not belong to row n of the table.

    A blank line counts in a table of one column only, where it may be an empty cell. What a
    spreadsheet leaves below the last row does not count.
    """
    table = _ending(path) in (".tsv", ".csv")
    gap, width = None, 0
    for line, cells in read_rows(path, _dialect(path), blank=True) if table else ():
        filled = any(cell.strip() for cell in cells)
        if width == 1 and cells and not filled:  # "" is an empty cell wherever it stands
            raise _gap_error(path, line)
        if filled and gap:
            raise _gap_error(path, gap)
        if not filled and (width == 1 or width and len(cells) > 1):
            gap = gap or line
        width = width or (len(cells) if filled else 0)


def _gap_error(path, line):
    return ValueError(
        f"{path}:{line}: expected a text in each row, got a row of empty cells: delete it, or fill it"
    )


def _dialect(path):
    """Look at the first line of a .csv: a spreadsheet writes semicolons where its numbers have
    decimal commas.
    """
    if _ending(path) == ".tsv":
        return "tab"
    check_regular(path)
    first = ""
    with (
        suppress(OSError, EOFError, zlib.error),
        (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file,
    ):
        # what is wrong with the file is said when all of it is read
        first = file.readline(2**20).decode("utf-8", errors="replace")
    return "semicolon" if first.count(";") > first.count(",") else "comma"


def _objects(path):
    """Cut lines of JSON; a column is what any line names."""
    found = [
        (n, parse_json(line, f"{path}:{n}"))
        for n, line in enumerate(read_lines(path), 1)
        if line.strip()
    ]
    for line, row in found:
        _check_unicode(path, line, row)
    names = list(dict.fromkeys(name for _, row in found for name in row))
    # who chooses columns may have others that not every row has
    rows = [(line, [row.get(name) for name in names]) for line, row in found]
    check_header_once(path, rows, names)
    return names, rows


def _check_unicode(path, line, row):
    """Refuse half a character, which an escape such as \\ud83d alone is, in the names and the texts
    of a row: no file and no tokenizer takes it.
    """
    for name, value in row.items():
        for text in (name, value):
            if isinstance(text, str) and has_surrogate(text):
                raise ValueError(
                    f"{path}:{line}: expected valid Unicode in column {quoted(name)}, got a lone surrogate: {quoted(text)}"
                )


def _parquet_rows(path):
    """Read a Parquet file, as the datasets of the hub are; its rows count from 1."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    data = read_whole(path)
    try:
        table = ParquetFile(io.BytesIO(data)).read()
        rows = [
            (n, list(cells))
            for n, cells in enumerate(zip(*(column.to_pylist() for column in table.columns)), 1)
        ]
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise ValueError(
            f"{path}: expected a readable Parquet file, got: {str(error)[:200]}"
        ) from error
    if len({*table.column_names}) < table.num_columns:
        raise ValueError(
            f"{path}: expected different names of columns, got {quoted(table.column_names)}"
        )
    return table.column_names, _checked(path, rows, table.column_names)


def _checked(path, rows, names):
    """Refuse a table without rows, a row of another width, or one that repeats the names."""
    if not rows:
        raise ValueError(f"{path}: expected rows below the names of the columns, got none")
    for line, cells in rows:
        if len(cells) != len(names):
            raise ValueError(
                f"{path}:{line}: expected {len(names)} cells, as there are names, got {len(cells)}"
            )
    check_header_once(path, rows, names)
    return rows


def sentence_column(
    path: Path,  # for the message
    rows: list,  # of `cut_table`
    names: list[str],  # of the columns
    place: int,  # which of them
) -> list[str]:  # without surrounding blanks
    """Take a column as text. Raises ValueError naming file and line for numbers alone, or a cell
    that is no sentence.
    """
    column = [(line, cells[place]) for line, cells in rows]
    if all(is_number(cell) for _, cell in column):
        raise ValueError(
            f"{path}: expected sentences in column {names[place]!r}, got numbers alone: --columns says which to take"
        )
    for line, cell in column:
        if not isinstance(cell, str) or not cell.strip():
            raise ValueError(
                f"{path}:{line}: expected a sentence in column {names[place]!r}, got {quoted(cell)}"
            )
    return [cell.strip() for _, cell in column]


def is_number(cell):
    """Tell a number from a sentence."""
    try:
        float(cell)
    except (ValueError, TypeError):
        return False
    return True


def finite_number(path: Path, line: int, cell) -> float:
    """Take a cell as a grade. Raises ValueError naming file and line for anything but a finite
    number.
    """
    try:
        return parse_label(cell if isinstance(cell, str) else repr(cell), _GRADED)
    except ValueError:
        hint = ": write it with a decimal point" if isinstance(cell, str) and "," in cell else ""
        raise ValueError(
            f"{path}:{line}: expected a grade that is a finite number, got {quoted(cell)}{hint}"
        ) from None
