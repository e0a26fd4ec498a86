"""Published splits and subsets, found again in public copies that lack them."""

import hashlib
import importlib.util
import os
import random
import re
from pathlib import Path

import pytest

from minbert.data import download, load_dataset
from minbert.datasets import splits
from minbert.datasets.formats import YEARS, read_rows
from minbert.datasets.splits import pair_key, split_table, with_subsets

SCRIPT = Path(__file__).parents[1] / "scripts" / "published_splits.py"
DATA = os.environ.get("MINBERT_DATA")
# the files of Stanford's default final project, github.com/gpoesia/minbert-default-final-project
COURSE = {
    "train": "15d12efc2d656fffb1d61ac1f08ec4227f43925fd16f420c037cbd063699c21b",
    "dev": "ce3cad6f16062586ac7ba462c28b010a9be10c530fd5074165860d7b7ab4e93d",
    "test-student": "dee455745b72e9ca3ff74e7c056bd73e34bad5b8d5641045a2c1e7e131866f47",
}
with_data = pytest.mark.skipif(not DATA, reason="MINBERT_DATA names no data folder")


def hub(**parts):
    """Play the hub: split -> rows of (sentence1, sentence2, score)."""
    return lambda home, part, split: [
        dict(zip(("sentence1", "sentence2", "score"), row)) for row in parts[split]
    ]


def nothing_in(folder) -> bool:
    return not [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def tables(monkeypatch):
    """Stored tables of a few rows."""
    found = {}
    monkeypatch.setattr(splits, "split_table", found.__getitem__)
    return found


# --- what is stored


def test_as_many_rows_are_stored_as_were_published():
    def count(rows, place):
        return {
            value: sum(row[place] == value for row in rows)
            for value in {row[place] for row in rows}
        }

    assert count(split_table("sts"), 0) == {"train": 6040, "dev": 863, "test": 1725}
    assert sorted(int(index) for _, index, *_ in split_table("sts")) == list(range(8628))
    assert count(split_table("sick"), 0) == {"train": 4500, "dev": 500}
    assert count(split_table("years"), 0) == {
        "sts12": 3108,
        "sts13": 1500,
        "sts14": 3750,
        "sts15": 3000,
        "sts16": 1186,
    }
    assert len({(year, subset) for year, subset, _ in split_table("years")}) == 5 + 3 + 6 + 5 + 5


def test_no_text_is_stored():
    names = {"train", "dev", "test", *YEARS, *(subset for _, subset, _ in split_table("years"))}
    for name in ("sts", "sick", "years"):
        assert all(
            cell in names or re.fullmatch("[0-9]{1,4}|[0-9a-f]{10}|[0-9a-f]{25}", cell)
            for row in split_table(name)
            for cell in row
        )


def test_a_checksum_leaves_case_blanks_and_punctuation_out():
    assert (
        pair_key("A  dog's bone.", "It is!")
        == pair_key("a dog ' s bone .", "it is")
        != pair_key("It is!", "A dog's bone.")
    )
    assert pair_key("a b", "c") == pair_key("ab", "c") != pair_key("a", "bc")
    assert (
        pair_key("a", "b", 3)
        == pair_key("a", "b", 3.0)
        == pair_key("a", "b", 3.0000000001)
        != pair_key("a", "b", 3.1)
    )


# --- the course's STS

ROWS = [
    ("A man sings.", "A man is singing.", 4.5),
    ("One", "Two\tthree", 0),
    ("a man sings", "A man is singing", 3.25),
    ("Four.", '"Five".', 1.0),
    ("Six", "Seven", 2.0),
]


def course_table(order):
    """Split, index, id, checksum: rows in the course's order."""
    return [[split, str(i), f"id{i}", pair_key(*ROWS[i][:2])] for split, i in order]


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_course_splits_are_made_of_sts_b(tmp_path, tables, shuffle):
    tables["sts"] = course_table([("train", 3), ("train", 2), ("dev", 0), ("test", 4), ("test", 1)])
    parts = {"train": ROWS[:2], "validation": ROWS[2:3], "test": ROWS[3:]}
    if shuffle:  # pairs of one text keep their order
        parts = {"train": [ROWS[4], ROWS[0]], "validation": [ROWS[3], ROWS[2]], "test": [ROWS[1]]}
    paths = download("sts", tmp_path, hub(**parts))
    assert [path.name for path in paths] == ["sts-train.csv", "sts-dev.csv", "sts-test-student.csv"]
    train, dev, test = (load_dataset("sts", split, tmp_path) for split in ("train", "dev", "test"))
    assert (train.sentences, train.sentences2, train.labels, train.ids) == (
        ["Four.", "a man sings"],
        ['"Five".', "A man is singing"],
        [1.0, 3.25],
        ["id3", "id2"],
    )
    assert (dev.sentences, dev.labels) == (["A man sings."], [4.5])
    assert (test.sentences, test.labels, test.ids) == (
        ["Six", "One"],
        None,
        ["id4", "id1"],
    )  # the course gives no scores here
    assert "4.5" not in paths[2].read_text() and paths[2].read_text().startswith(
        "\tid\tsentence1\tsentence2\n4\t"
    )


@pytest.mark.parametrize(
    "rows, message",
    [
        (
            ROWS[:3] + ROWS[4:],
            r"row 3 of STS-B \(checksum [0-9a-f]{10}\), got no pair with this text",
        ),
        (ROWS + [("new", "pair", 1.0)], "got 1 more, such as"),
        (ROWS[1:], "row 2 of STS-B"),
        (ROWS[:4] + [("Six", None, 2.0)], "expected two sentences and a score at row 4"),
        (ROWS[:4] + [("Six", "Seven", None)], "at row 4"),
        (ROWS[:4] + [("Six", "Seven", 9.0)], "from 0 to 5"),
    ],
)
def test_other_pairs_than_the_published_ones_are_refused(tmp_path, tables, rows, message):
    tables["sts"] = course_table(
        [("train", 3), ("train", 2), ("train", 4), ("dev", 0), ("test", 1)]
    )
    with pytest.raises(ValueError, match=message):
        download("sts", tmp_path, hub(train=rows, validation=[], test=[]))
    assert nothing_in(tmp_path)


# --- SICK


def test_sick_is_cut_into_its_three_splits(tmp_path, tables, monkeypatch):
    rows = [
        ("a b", "c", 1.0),
        ("A b.", "c", 3.415),
        ("d", "e", 5.0),
        ("f", "g", 2.0),
        ("a b", "c", 4.0),
    ]
    tables["sick"] = [
        ["train", pair_key("f", "g", 2)],
        ["train", pair_key("a b", "c", 3.415)],
        ["dev", pair_key("d", "e", 5)],
    ]
    monkeypatch.setattr(splits, "SICK_TEST", 2)
    download("sickr", tmp_path, hub(test=rows))
    read = {split: load_dataset("sickr", split, tmp_path) for split in ("train", "dev", "test")}
    assert {split: found.labels for split, found in read.items()} == {
        "train": [2.0, 3.415],
        "dev": [5.0],
        "test": [1.0, 4.0],
    }
    assert read["train"].sentences == ["f", "A b."]  # the text is that of the public copy
    for wrong, message in (
        (rows[1:], "expected 2 test pairs of SICK, got 1"),
        (rows[:3], "expected a train pair of SICK"),
    ):
        with pytest.raises(ValueError, match=f"mteb/sickr-sts: {message}"):
            download("sickr", tmp_path / "new", hub(test=wrong))
        assert nothing_in(tmp_path / "new")


# --- the years

PAIRS = {
    "b": [("b 0", "x", 1.0), ("b 1", "x", 2.0), ("b 2", "x", 3.0)],
    "a": [("a 0", "x", 4.0), ("a 1", "x", 5.0)],
}


@pytest.fixture
def year(tables):
    tables["years"] = [
        ["sts13", subset, pair_key(*row[:2])] for subset, rows in PAIRS.items() for row in rows
    ] + [["sts12", "c", pair_key("b 0", "x")]]
    return [*PAIRS["b"], *PAIRS["a"]]


def test_a_year_keeps_its_subsets(tmp_path, year):
    folder = tmp_path / YEARS["sts13"]
    folder.mkdir(parents=True)
    for kind in ("input", "gs"):
        (folder / f"STS.{kind}.all.txt").write_text("old\tfile\n")
    with pytest.raises(
        ValueError,
        match=r"STS\.input\.all\.txt: expected a file for each subset, got all pairs in one",
    ):
        load_dataset("sts13", "test", tmp_path)
    mixed = [year[i] for i in (3, 0, 4, 1, 2)]
    assert sorted(path.name for path in download("sts13", tmp_path, hub(test=mixed))) == [
        "STS.gs.a.txt",
        "STS.gs.b.txt",
        "STS.input.a.txt",
        "STS.input.b.txt",
    ]
    found = load_dataset("sts13", "test", tmp_path)
    assert found.subsets == ["a", "a", "b", "b", "b"] and found.labels == [
        4.0,
        5.0,
        1.0,
        2.0,
        3.0,
    ]  # and the old files are gone


def test_a_pair_with_another_text_takes_the_subset_of_its_neighbours(year):
    def subsets(rows):
        return [row[-1] for row in with_subsets("sts13", rows)]

    other = ("b one", "x", 2.0)
    assert subsets([year[0], other, *year[2:]]) == ["b", "b", "b", "a", "a"]
    assert (
        subsets([other, *year[1:]])
        == subsets([*year[:4], ("a one", "x", 5.0)])
        == ["b", "b", "b", "a", "a"]
    )
    with pytest.raises(
        ValueError, match="sts13: expected a published pair, got .* at row 2"
    ):  # b before, a behind
        with_subsets("sts13", [*year[:2], other, *year[3:]])
    with pytest.raises(ValueError, match="sts13: expected a published pair"):
        with_subsets("sts13", [other] * 5)


@pytest.mark.parametrize(
    "rows, message",
    [
        (lambda year: year[1:], "expected 3 pairs of b, got 2"),
        (lambda year: [*year, year[-1]], "expected 2 pairs of a, got 3"),
    ],
)
def test_subsets_of_another_size_are_refused(tmp_path, year, rows, message):
    with pytest.raises(ValueError, match=message):
        download("sts13", tmp_path, hub(test=rows(year)))
    assert nothing_in(tmp_path)


# --- on the real data


def rows_of(name, split):
    data = load_dataset(name, split, DATA)
    return list(zip(data.sentences, data.sentences2, data.labels or [0.0] * len(data)))


@with_data
def test_the_course_files_come_out_byte_for_byte(tmp_path):
    """Some test pairs of STS-B are missing in the data folder; their text stands in the course's
    own file, without a score.
    """

    def cut(path, dialect):
        return [
            cells for _, cells in read_rows(Path(DATA, path), dialect)
        ]  # with the blanks around a sentence

    words = {"train": "train", "dev": "validation", "test": "test"}
    parts = {
        word: [
            (*row[5:7], float(row[4]))
            for row in cut(f"senteval/STS/STSBenchmark-cased/sts-{split}.csv", "raw")
        ]
        for split, word in words.items()
    }
    here = {(a, b) for rows in parts.values() for a, b, _ in rows}
    course = sorted(cut("cs224n/sts-test-student.csv", "tab")[1:], key=lambda row: int(row[0]))
    parts["test"] += [(a, b, 0.0) for _, _, a, b in course if (a, b) not in here]
    download("sts", tmp_path, hub(**parts))
    for word, checksum in COURSE.items():
        assert (
            hashlib.sha256((tmp_path / f"cs224n/sts-{word}.csv").read_bytes()).hexdigest()
            == checksum
        )


@with_data
def test_sick_and_the_years_come_out_as_they_were_published(tmp_path, monkeypatch):
    parts = {split: rows_of("sickr", split) for split in ("train", "dev", "test")}
    monkeypatch.setattr(splits, "SICK_TEST", len(parts["test"]))  # some are missing there, too
    mixed = sum(parts.values(), [])
    random.Random(3).shuffle(mixed)
    download("sickr", tmp_path, hub(test=mixed))
    for split, rows in parts.items():
        found = load_dataset("sickr", split, tmp_path)
        assert sorted(zip(found.sentences, found.sentences2, found.labels)) == sorted(rows)
    for name in YEARS:
        data = load_dataset(name, "test", DATA)
        rows = list(zip(data.sentences, data.sentences2, data.labels))
        download(name, tmp_path, hub(test=rows))
        found = load_dataset(name, "test", tmp_path)
        assert (found.sentences, found.labels, found.subsets) == (
            data.sentences,
            data.labels,
            data.subsets,
        )


@with_data
def test_the_stored_tables_are_those_of_the_script():
    spec = importlib.util.spec_from_file_location("published_splits", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert [list(row) for row in script.course_rows(DATA)] == split_table("sts")
    assert [list(row) for row in script.sick_rows(DATA)] == split_table("sick")
    assert [list(row) for row in script.year_rows(DATA)] == split_table("years")
