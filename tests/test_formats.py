"""Lines, cells and labels against counting and the csv module; what is refused, and with which file
and line.
"""

import csv
import gzip
import io
import random
import re
from pathlib import Path

import pandas as pd
import pytest

from minbert.datasets.formats import (
    DIALECTS,
    SOURCES,
    Format,
    check_header_once,
    cut_lines,
    locate_columns,
    parse_label,
    read_lines,
    read_rows,
    write_rows,
)

MARK = b"\xef\xbb\xbf"
SCORES = Format(("score", "first", "second"), ("first", "second"), "score", scale=(0, 5))
BINARY = Format(("text", "y"), ("text",), "y", classes=("different", "duplicate"))
WORDS = Format(("text", "y"), ("text",), "y", classes=("entailment", "neutral"), words=True)


def save(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# --- lines


@pytest.mark.parametrize("mark", [b"", MARK], ids=["no mark", "mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "not ended"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_lines_are_the_same_however_the_file_was_saved(tmp_path, mark, end, last, packed):
    lines = ["header", "", "caf\u00e9 \u4e2d", "tab\there", " blanks ", "\ufeffinner mark"]
    data = mark + end.join(line.encode() for line in lines) + end * last
    path = save(
        tmp_path / ("f.txt.gz" if packed else "f.txt"),
        gzip.compress(data, mtime=0) if packed else data,
    )
    assert read_lines(path) == read_lines(str(path)) == lines


@pytest.mark.parametrize("rare", "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e".split(" "))
def test_only_a_line_feed_ends_a_line(tmp_path, rare):
    assert read_lines(save(tmp_path / "f", f"one{rare}line\nsecond\n")) == [
        f"one{rare}line",
        "second",
    ]


def test_blank_last_lines_are_kept_because_a_second_file_may_count_them(tmp_path):
    assert read_lines(save(tmp_path / "f", "4.5\n\n\n")) == ["4.5", "", ""]


def test_several_gzip_members_are_one_file(tmp_path):
    assert read_lines(
        save(tmp_path / "f.gz", gzip.compress(b"a\nb", mtime=0) + gzip.compress(b"c\n", mtime=0))
    ) == ["a", "bc"]


BROKEN = {
    "latin-1": (
        "f.txt",
        b"fine\ncaf\xe9 au lait\nfine\n",
        r"f\.txt:2: expected UTF-8 text, got the byte 0xe9",
    ),
    "latin-1, CRLF": (
        "f.txt",
        b"a\r\nb\r\n\xff\r\n",
        r"f\.txt:3: expected UTF-8 text, got the byte 0xff",
    ),
    "latin-1 in gz": (
        "f.gz",
        gzip.compress(b"a\n\nb\n\xe9", mtime=0),
        r"f\.gz:4: expected UTF-8 text, got the byte 0xe9",
    ),
    "UTF-16": ("f.txt", "hello".encode("utf-16"), r"f\.txt:1: expected UTF-8 text"),
    "a character cut in two": (
        "f.txt",
        "one\ncaf\u00e9".encode()[:-1],
        r"f\.txt:2: expected UTF-8 text, got the byte 0xc3",
    ),
    "no bytes": ("f.txt", b"", r"f\.txt: expected text, got an empty file"),
    "only a mark": ("f.txt", MARK, r"f\.txt: expected text, got an empty file"),
    "only blanks": ("f.txt", b" \t\r\n\n", r"f\.txt: expected text, got an empty file"),
    "no bytes, packed": (
        "f.gz",
        gzip.compress(b"", mtime=0),
        r"f\.gz: expected text, got an empty file",
    ),
    "not packed": ("f.gz", b"plain text\n", r"f\.gz: expected a readable file"),
    "damaged inside": (
        "f.gz",
        gzip.compress(b"a b c\n" * 99, mtime=0)[:-8] + b"\0" * 8,
        r"f\.gz: expected a readable file",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_by_name_and_line(tmp_path, case):
    name, data, message = BROKEN[case]
    path = save(tmp_path / name, data)
    for read in (read_lines, read_rows):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(str(path)) and not isinstance(
            caught.value, UnicodeError
        )


def test_a_gzip_file_cut_anywhere_is_refused(tmp_path):
    whole = gzip.compress("".join(f"sentence {i}\n" for i in range(40)).encode(), mtime=0)
    assert len(read_lines(save(tmp_path / "f.gz", whole))) == 40
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"f\.gz: expected (a readable file|text)"):
            read_lines(save(tmp_path / "f.gz", whole[:cut]))


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"none\.txt: expected a file, got none"):
        read_lines(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="expected a readable file"):
        read_lines(tmp_path)


# --- cells


def test_raw_cells_keep_every_quote_and_every_row(tmp_path):
    lines = ['1\t"Stop\tsaid he', 'a""b\t"x"\t', "", "\t\t", "2\t'\t\"", "  ", "last\tone\ttwo"]
    rows = read_rows(save(tmp_path / "f", "\n".join(lines) + "\n"))
    assert rows == [
        (1, ["1", '"Stop', "said he"]),
        (2, ['a""b', '"x"', ""]),
        (4, ["", "", ""]),
        (5, ["2", "'", '"']),
        (7, ["last", "one", "two"]),
    ]


def test_the_space_dialect_cuts_at_the_first_blank_only(tmp_path):
    rows = read_rows(save(tmp_path / "f", '3 "one" two  three\tfour\n\n0 x\nalone\n'), "space")
    assert rows == [(1, ["3", '"one" two  three\tfour']), (3, ["0", "x"]), (4, ["alone"])]


def reads_like_rows(row: list[str], delimiter: str) -> bool:
    """Whether the row, its quotes taken away, falls into lines of as many cells as it has: what two
    stray quotes could have joined.
    """
    return any(
        "\n" in cell
        and all(
            len(line.split(delimiter)) == len(row)
            for line in delimiter.join([*("x" * k), cell, *("x" * (len(row) - 1 - k))]).split("\n")
        )
        for k, cell in enumerate(row)
    )


@pytest.mark.parametrize("dialect, delimiter", [("tab", "\t"), ("comma", ",")])
def test_quoted_cells_are_those_of_the_csv_module(tmp_path, dialect, delimiter):
    rng = random.Random(3)
    other = {"\t": ",", ",": "\t"}[delimiter]

    def cell():
        return (
            "".join(
                rng.choice('ab"\n ;\u00e9' + other + delimiter) for _ in range(rng.randrange(6))
            )
            + "."
        )

    table = [
        row
        for row in ([cell() for _ in range(3)] for _ in range(3000))
        if not reads_like_rows(row, delimiter)
    ]
    assert sum(delimiter in cell and "\n" in cell for row in table for cell in row) > 500
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(table)
    rows = read_rows(save(tmp_path / "f", stream.getvalue()), dialect)
    assert [cells for _, cells in rows] == table
    start = 1  # a row starts after all line breaks of the rows before it
    for (line, _), cells in zip(rows, table):
        assert line == start
        start += 1 + sum(cell.count("\n") for cell in cells)


@pytest.mark.parametrize(
    "dialect, blank",
    [
        ("tab", " \t\t "),
        ("comma", " , ,"),
        ("tab", '""\t" "'),
        ("raw", " \t"),
        ("comma", '""'),
        ("tab", '" "'),
    ],
)
def test_rows_of_separators_are_rows_and_blank_lines_are_none(tmp_path, dialect, blank):
    rows = read_rows(save(tmp_path / "f", f"a\n{blank}\n\n  \nb\n"), dialect)
    assert [n for n, _ in rows] == [1, 2, 5] and not "".join(rows[1][1]).strip()
    with pytest.raises(ValueError, match="expected (rows of cells|text), got"):
        read_rows(save(tmp_path / "f", f"{blank}\n"), dialect)


@pytest.mark.parametrize("dialect", ["comma", "tab", "semicolon"])
def test_an_empty_cell_of_one_column_comes_back(tmp_path, dialect):
    """What is written, here and by pandas, is read as as many rows; blank lines are given to who
    asks.
    """
    texts = ["one", "", "two", "", ""]
    write_rows(
        tmp_path / "f",
        Format(("text",), ("text",), dialect=dialect),
        [{"text": text} for text in texts],
    )
    assert [cells for _, cells in read_rows(tmp_path / "f", dialect)] == [
        ["text"],
        *([text] for text in texts),
    ]
    pd.DataFrame({"text": [text or None for text in texts]}).to_csv(tmp_path / "g", index=False)
    assert read_rows(tmp_path / "g", dialect) == [
        (n, [text]) for n, text in enumerate(["text", *texts], 1)
    ]
    save(tmp_path / "h", 'a\n\n  \n"x\n\ny"\n""\n')
    assert read_rows(tmp_path / "h", dialect, blank=True) == [
        (1, ["a"]),
        (2, []),
        (3, []),
        (4, ["x\n\ny"]),
        (7, [""]),
    ]


def test_a_cell_may_be_as_long_as_it_likes(tmp_path):
    before = csv.field_size_limit()
    ((_, cells),) = read_rows(save(tmp_path / "f", '"' + "x " * 70_000 + '",1\n'), "comma")
    assert (len(cells[0]), csv.field_size_limit()) == (140_000, before)


def test_what_two_stray_quotes_would_have_joined_is_refused_with_what_to_do(tmp_path):
    path = save(tmp_path / "f.csv", 'text,label\n"Hello, world\nsecond line",1\n')
    with pytest.raises(
        ValueError,
        match=r"f\.csv:2: .*got: a cell whose lines, down to line 3, .*write it on one line",
    ):
        read_rows(path, "comma")


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world,\nsecond line",
        "Hello\nsecond, line",
        "one,\ntwo\nthree",
        "one, two\nthree, four",
        "a\nb",
    ],
)
def test_other_texts_of_several_lines_are_texts(tmp_path, text):
    path = save(tmp_path / "f.csv", f'text,label\n"{text}",1\nb,2\n')
    assert read_rows(path, "comma")[1:] == [(2, [text, "1"]), (3 + text.count("\n"), ["b", "2"])]


@pytest.mark.parametrize("dialect, delimiter", [("tab", "\t"), ("comma", ",")])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_two_stray_quotes_never_lose_a_row_in_silence(tmp_path, dialect, delimiter, width):
    """Every place for the first quote, every place for the second: refused, or a row of another
    width, or no row less.
    """
    table = [[f"{row}{column}" for column in range(width)] for row in range(4)]
    begins, ends = ([(r, c) for r in range(4) for c in range(width)] for _ in range(2))
    for first in begins:
        for last in (place for place in ends if place > first):
            cells = [
                [
                    '"' * ((r, c) == first) + text + '"' * ((r, c) == last)
                    for c, text in enumerate(row)
                ]
                for r, row in enumerate(table)
            ]
            path = save(tmp_path / "f", "".join(delimiter.join(row) + "\n" for row in cells))
            try:
                rows = read_rows(path, dialect)
            except ValueError:
                continue
            assert len(rows) == 4 or any(len(found) != width for _, found in rows), (first, last)


@pytest.mark.parametrize(
    "text, line",
    [
        ('1\tx\n2\t"never closed\n3\ty\n', 2),
        ('1\tx\n\n\n2\t"closed" early\n', 4),
        ('"a\nb"\tx\n"c', 3),
    ],
)
def test_quotes_that_do_not_match_are_refused_by_line(tmp_path, text, line):
    path = save(tmp_path / "f.csv", text)
    with pytest.raises(ValueError, match=rf"f\.csv:{line}: expected matching CSV quotes"):
        read_rows(path, "tab")
    with pytest.raises(ValueError, match="a cell that begins with one ends with one") as told:
        read_rows(path, "tab")
    assert "\t" not in str(told.value)
    # in raw text they are text
    assert len(read_rows(path, "raw")) == sum(1 for row in text.split("\n") if row.strip())


# --- labels


@pytest.mark.parametrize(
    "text, form, value",
    [
        ("0.0", BINARY, 0),
        ("1", BINARY, 1),
        (" 1.0 ", BINARY, 1),
        ("5", SCORES, 5.0),
        ("5.00", SCORES, 5.0),
        ("0", SCORES, 0.0),
        ("3.231", SCORES, 3.231),
        ("1e-1", SCORES, 0.1),
        ("neutral", WORDS, 1),
        (" Entailment ", WORDS, 0),
    ],
)
def test_labels(text, form, value):
    got = parse_label(text, form)
    assert got == value and type(got) is type(value)


def test_the_case_of_words_does_not_count_on_either_side():
    capital = Format(("text", "y"), ("text",), "y", classes=("Negative", "Positive"), words=True)
    assert [parse_label(text, capital) for text in ("Positive", "negative", "POSITIVE")] == [
        1,
        0,
        1,
    ]


@pytest.mark.parametrize(
    "text",
    ["5.001", "-0.1", "nan", "NaN", "-nan", "inf", "-inf", "", " ", "good", "1,5", "0x1", "1 2"],
)
def test_a_score_outside_its_scale_is_refused(text):
    with pytest.raises(ValueError, match=f"expected a number from 0 to 5, got {text.strip()!r}"):
        parse_label(text, SCORES)


@pytest.mark.parametrize("text", ["2", "0.5", "-1", "-0.5", "1.5", "nan", "inf", "", "duplicate"])
def test_a_label_that_is_no_class_is_refused(text):
    with pytest.raises(ValueError, match=f"expected a whole number from 0 to 1, got {text!r}"):
        parse_label(text, BINARY)


@pytest.mark.parametrize("text", ["contradiction", "-", "", "0", "entail"])
def test_a_word_that_is_no_class_is_refused(text):
    with pytest.raises(
        ValueError, match=rf"expected a label of \('entailment', 'neutral'\), got {text!r}"
    ):
        parse_label(text, WORDS)


def test_a_score_without_a_scale_must_still_be_finite():
    free = Format(("x", "y"), ("x",), "y")
    assert parse_label("-1e6", free) == -1e6
    for text in ("nan", "inf", "1e999"):
        with pytest.raises(ValueError, match="expected a number from -inf to inf"):
            parse_label(text, free)


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(dialect="tsv"), "expected a dialect of .*'raw'.*, got 'tsv'"),
        (dict(text=()), "expected text, label, id and split among"),
        (dict(text=("c",)), r"among \('a', 'b'\), got \['c'\]"),
        (dict(label="c"), r"got \['a', 'c'\]"),
        (dict(id="c"), r"got \['a', 'c'\]"),
        (dict(split="c"), r"got \['a', 'c'\]"),
    ],
)
def test_a_format_that_makes_no_sense_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Format(**{"columns": ("a", "b"), "text": ("a",), **kwargs})


# --- the way back


def nasty(dialect: str, n: int = 200) -> list[list[str]]:
    """Cells with everything the dialect can hold: quotes, and where there is quoting also tabs,
    commas, line breaks.
    """
    rng = random.Random(7)
    alphabet = "ab\",;'\u00e9\u2028\u4e2d\\ " + "\t" * (dialect not in ("raw", "space"))
    clean = (lambda s: s) if dialect not in ("raw", "space") else lambda s: " ".join(s.split())
    return [
        [str(i), clean("".join(rng.choice(alphabet) for _ in range(rng.randrange(9))) + "z")]
        for i in range(n)
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("header", [True, False])
def test_what_is_written_is_read_back(tmp_path, dialect, header):
    form, table = Format(("i", "s"), ("s",), dialect=dialect, header=header), nasty(dialect)
    path = tmp_path / "new" / "folder" / "f.csv"
    assert write_rows(path, form, ({"s": s, "i": i} for i, s in table)) is None
    assert [cells for _, cells in read_rows(path, dialect)] == [["i", "s"]] * header + table
    assert b"\r" not in path.read_bytes()


def test_a_score_comes_back_as_the_same_float_and_a_missing_column_is_empty(tmp_path):
    values = [0.1 + 0.2, 5.0, 3.231, 1 / 3, 4]
    write_rows(tmp_path / "f", SCORES, [{"score": x, "second": "b"} for x in values])
    rows = read_rows(tmp_path / "f")
    assert rows[0] == (1, ["score", "first", "second"])
    assert [parse_label(cells[0], SCORES) for _, cells in rows[1:]] == values
    assert {tuple(cells[1:]) for _, cells in rows[1:]} == {("", "b")}


def test_an_unknown_value_is_written_as_nothing_not_as_a_word(tmp_path):
    write_rows(tmp_path / "f", SCORES, [{"score": 1, "first": None, "second": "b"}])
    assert read_rows(tmp_path / "f")[1] == (2, ["1", "", "b"])


def test_raw_text_loses_tabs_and_line_breaks(tmp_path):
    write_rows(tmp_path / "f", SCORES, [{"score": 1, "first": "a\tb\r\nc", "second": ' "d" '}])
    assert read_rows(tmp_path / "f")[1] == (2, ["1", "a b c", '"d"'])


def broken_rows():
    yield {"score": 1, "first": "a", "second": "b"}
    raise KeyboardInterrupt


@pytest.mark.parametrize("dialect", ["raw", "tab"])
@pytest.mark.parametrize(
    "rows, error",
    [
        (broken_rows, KeyboardInterrupt),
        (lambda: [{"score": 1, "first": "a" * 99999}, {"first": "\ud800"}], ValueError),
    ],
    ids=["stopped", "no such character"],
)
def test_nothing_half_written_stays_behind(tmp_path, dialect, rows, error):
    form = Format(SCORES.columns, SCORES.text, "score", dialect=dialect)
    with pytest.raises(error):
        write_rows(tmp_path / "f", form, rows())
    assert list(tmp_path.iterdir()) == []
    save(tmp_path / "f", "what was there\n")
    with pytest.raises(error) as caught:
        write_rows(tmp_path / "f", form, rows())
    if error is ValueError:
        assert (
            str(caught.value)
            == f"{tmp_path / 'f'}: expected text that UTF-8 can hold, got '\\ud800'"
        )
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and (
        tmp_path / "f"
    ).read_text() == "what was there\n"


@pytest.mark.parametrize("moment", ["write", "move"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, moment):
    """The disk is full while the new file is written, or the process is stopped before it takes the
    old one's place.
    """
    path = save(tmp_path / "f", "what was there\n")

    def stop(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if moment == "move":
        monkeypatch.setattr("os.replace", stop)
        monkeypatch.setattr(Path, "replace", stop)
    else:
        real = io.open

        class Full:
            def __init__(self, file):
                self.file = file

            def __enter__(self):
                return self

            def __exit__(self, *rest):
                self.file.close()

            def write(self, text):
                self.file.write(text[: len(text) // 2])
                self.file.flush()
                stop()

            def writelines(self, lines):
                self.write("".join(lines))

            def __getattr__(self, name):
                return getattr(self.file, name)

        def fake(file, mode="r", *args, **kwargs):
            opened = real(file, mode, *args, **kwargs)
            return Full(opened) if "w" in mode else opened

        monkeypatch.setattr("builtins.open", fake)
        monkeypatch.setattr("io.open", fake)
    with pytest.raises(OSError, match="No space left"):
        write_rows(path, SCORES, [{"score": 1, "first": "a", "second": "b"}] * 9)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["f"] and path.read_text() == "what was there\n"


def test_columns_are_found_by_name_in_any_order_and_the_header_comes_once():
    faces = Format(("id", "text", "mood"), ("text",), "mood", "id", classes=("bad", "good"))
    with pytest.raises(ValueError, match=re.escape("a.tsv:1: expected columns ['text', 'mood']")):
        locate_columns(Path("a.tsv"), ["id", "text"], faces)
    with pytest.raises(ValueError, match=re.escape("separated by commas?")):
        locate_columns(Path("a.tsv"), ["id,text,mood"], faces)
    with pytest.raises(ValueError, match=re.escape("got 'text' again")):
        locate_columns(Path("a.tsv"), ["mood", "text", "text"], faces)
    with pytest.raises(
        ValueError, match=re.escape("a.tsv:3: expected a row, got the names of the columns again")
    ):
        check_header_once(
            "a.tsv", [(2, ["1", "fine", "0"]), (3, ["id", "text", "mood"])], ["id", "text", "mood"]
        )
    (
        locate_columns(Path("a.tsv"), ["mood", "page", "text"], faces),
        locate_columns(Path("a-test-student.tsv"), ["id", "text"], faces),
    )


def test_sources_name_the_file_of_each_split():
    assert [SOURCES["sickr"][0].file(split) for split in ("train", "dev")] == [
        "senteval/SICK/SICK_train.txt",
        "senteval/SICK/SICK_trial.txt",
    ]
    # its labels were never published
    assert SOURCES["mnli"][0].file("test") is None
    assert SOURCES["sst"][0].file("test") == "cs224n/ids-sst-test-student.csv"
    assert [parse_label(x, SOURCES["quora"][0].form) for x in ("0.0", "1.0")] == [0, 1]


def test_a_piece_of_a_file_is_refused_by_the_line_of_the_whole():
    with pytest.raises(ValueError, match="long.txt:9: expected UTF-8"):
        cut_lines(b"fine\ncaf\xe9\n", "long.txt", first=8)
