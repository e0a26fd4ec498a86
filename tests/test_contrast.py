"""Contrast on text of one's own: what is read, what is held out, how it is measured, and a run that
goes on after any stop.
"""

import csv
import gzip
import inspect
import json
import math
import os
import random
import re
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from terminal import run
from torch import nn
from torch.testing import assert_close

from minbert.batches import pair_batches
from minbert.cli import contrast as module
from minbert.cli.contrast import ContrastConfig, prepared, train_on_text, usual_contrast_rate
from minbert.cli.retrieval_eval import (
    Comparison,
    compare_on,
    cosines,
    held_out,
    learned_from,
    partner_ranks,
    shared_words,
)
from minbert.cli.table_reader import is_table, read_graded, read_named, read_text, whole_table
from minbert.core.checkpoint import CHECKPOINT
from minbert.core.devices import LossScale
from minbert.core.graceful_stop import Stopped
from minbert.core.run_dir import read_log
from minbert.data import Dataset
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.dense_layers import Dense
from minbert.negatives import clusters, multiple_negatives_loss
from minbert.sentence import SentenceEncoder
from minbert.simcse import ViewModel, train_views, view_batches, view_loss
from minbert.tokens import load_tokenizer

WORDS = "river stone lamp cloud bread horse piano winter garden engine window letter forest market silver doctor".split()


def topics(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Pairs whose two sentences share their rare words, and a third that shares one of them with
    neither.
    """
    draw = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        a, b, c = draw.choice(WORDS, 3, replace=False)
        rows.append(
            (f"the {a} and the {b} of {i}", f"{b}, {a}: number {i}", f"a {c} without number {i}")
        )
    return rows


def dataset(rows, columns=2, labels=None) -> Dataset:
    names = ("sentences", "sentences2", "sentences3")[:columns]
    return Dataset("t", "train", "text", **dict(zip(names, map(list, zip(*rows)))), labels=labels)


def tiny(dropout: float = 0.0, seed: int = 0) -> SentenceEncoder:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(load_tokenizer()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return SentenceEncoder(BertModel(config), load_tokenizer())


# --- what is read


def written(folder: Path, name: str, text: str) -> Path:
    (gzip.open if name.endswith(".gz") else open)(folder / name, "wt", encoding="utf8").write(text)
    return folder / name


ROWS = [('say "hi", you', "a\u2028b", "x"), ("two", "drei", "née")]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_table_gives_the_cells_that_a_library_wrote(tmp_path, kind, packed):
    name = tmp_path / f"t.{kind}{packed}"
    with (gzip.open if packed else open)(name, "wt", encoding="utf8", newline="") as file:
        if kind == "jsonl":
            file.writelines(json.dumps(dict(zip("abc", row))) + "\n" for row in ROWS)
        else:
            csv.writer(file, delimiter={"csv": ",", "tsv": "\t"}[kind]).writerows(
                [("a", "b", "c"), *ROWS]
            )
    read = read_text(name, ["a", "b", "c"])
    assert list(zip(read.sentences, read.sentences2, read.sentences3)) == ROWS
    chosen = read_text(name, ["c", "a"])
    assert (chosen.sentences, chosen.sentences2, chosen.sentences3) == (
        ["x", "née"],
        ['say "hi", you', "two"],
        None,
    )
    assert read_text(name, ["b"]).sentences2 is None


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_table_as_a_spreadsheet_writes_it(tmp_path, ends):
    """Semicolons where numbers have decimal commas, a byte-order mark, rows of separators alone."""
    path = tmp_path / "t.csv"
    path.write_bytes(
        "\ufeff".encode()
        + ends.join(
            [
                "a;b",
                "one, two;three; four".replace("; ", ";"),
                '"say; hi";"a ""b"" c"',
                ";",
                "  ; ",
                "five six;seven",
                "",
            ]
        )
        .replace("three;four", '"three;four"')
        .encode()
    )
    read = read_text(path, ["a", "b"])
    assert list(zip(read.sentences, read.sentences2)) == [
        ("one, two", "three;four"),
        ("say; hi", 'a "b" c'),
        ("five six", "seven"),
    ]
    assert whole_table(path) == {
        "a": ["one, two", "say; hi", "five six"],
        "b": ["three;four", 'a "b" c', "seven"],
    }
    few = written(tmp_path, "few.csv", "a,b; c\nx y,z; w\n;,v w\n")  # no fewer commas
    assert read_text(few, ["a", "b; c"]).sentences == ["x y", ";"]
    grades = written(tmp_path, "g.csv", "sentence1;sentence2;score\na b;c d;1,5\ne f;g h;2\n")
    with pytest.raises(
        ValueError,
        match="g.csv:2: expected a grade that is a finite number, got '1,5': write it with a decimal point",
    ):
        read_graded(grades)
    with pytest.raises(
        ValueError, match="none.csv: expected rows below the names of the columns, got none"
    ):
        read_text(written(tmp_path, "none.csv", "a,b\n,\n , \n"))


def test_a_packed_table_of_semicolons_is_cut_at_them_however_long_its_names_are(tmp_path):
    name = "x" * 100  # a name has three words at most, of any length, and no blanks around it
    for file in ("t.csv", "t.csv.gz"):
        read = read_text(
            written(tmp_path, file, f"{name}; what they say ;c\na, b;c, d;e, f\n"),
            ["what they say", name],
        )
        assert (read.sentences, read.sentences2) == (["c, d"], ["a, b"])


@pytest.mark.parametrize(
    "header, first, odd",
    [
        ("ticket,question,answer", "T-17", "ticket"),
        ("question,answer,category", "", "category"),
        ("day,question", "2024-05-01", "day"),
    ],
)
def test_nobody_learns_from_ids_and_names_of_classes_unasked(tmp_path, header, first, odd):
    names = header.split(",")
    cells = {
        "ticket": "T-17",
        "question": "how do I pay?",
        "answer": "by card, or in cash",
        "category": "billing",
        "day": "2024-05-01",
    }
    path = tmp_path / "faq.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *[[cells[name] for name in names]] * 3])
    with pytest.raises(
        ValueError,
        match=f"expected sentences in column '{odd}', got single words alone, such as '{cells[odd]}': --columns says which to take",
    ):
        read_text(path)
    assert read_text(path, names).sentences2 == [cells[names[1]]] * 3  # who names them means them
    # a single word may stand among sentences
    some = written(tmp_path, "some.csv", "question,answer\nhow do I pay?,cash\nhelp,by card\n")
    assert (read_text(some).sentences, read_text(some).sentences2) == (
        ["how do I pay?", "help"],
        ["cash", "by card"],
    )
    words = written(tmp_path, "words.csv", "word\ndog\nlamp\n")
    assert read_text(words).sentences == ["dog", "lamp"]  # one column is what there is


def test_a_whole_table_is_handed_on_as_text(tmp_path):
    path = written(
        tmp_path,
        "t.jsonl",
        '{"id": 7, "s": "ä b", "tags": ["x", 1], "ok": true}\n{"id": 8.5, "s": "c", "more": null}\n',
    )
    assert whole_table(path) == {
        "id": ["7", "8.5"],
        "s": ["ä b", "c"],
        "tags": ['["x", 1]', ""],
        "ok": ["true", ""],
        "more": ["", ""],
    }
    assert is_table(tmp_path / "DATA.CSV") and is_table(tmp_path / "a.Tsv.gz")
    assert read_text(written(tmp_path, "DATA.CSV", "a,b\nx,y\n"), ["b"]).sentences == ["y"]
    assert [
        is_table(tmp_path / name)
        for name in ("a.csv", "a.tsv.gz", "a.jsonl", "a.txt", "a.txt.gz", "a.md", "csv")
    ] == [True] * 3 + [False] * 4


def test_columns_without_name_or_cell_at_the_right_are_left_out(tmp_path):
    # as a spreadsheet writes them
    assert whole_table(written(tmp_path, "t.csv", "a,b,,\nx,y,,\nz,w,,\n")) == {
        "a": ["x", "z"],
        "b": ["y", "w"],
    }
    assert whole_table(written(tmp_path, "u.csv", "a,b,,\nx,y,,\nz,w,c,\n")) == {
        "a": ["x", "z"],
        "b": ["y", "w"],
        "": ["", "c"],
    }
    with pytest.raises(ValueError, match="v.csv:2: expected 2 cells"):
        whole_table(written(tmp_path, "v.csv", "a,b,,\nx,y,\n"))


def test_columns_that_were_not_chosen_may_be_uneven(tmp_path):
    path = written(tmp_path, "t.jsonl", '{"a": "x", "b": "y", "note": "z"}\n{"b": "w", "a": "v"}\n')
    read = read_text(path, ["a", "b"])
    assert (read.name, read.sentences, read.sentences2) == (
        "t.jsonl [a, b]",
        ["x", "v"],
        ["y", "w"],
    )
    with pytest.raises(
        ValueError, match="t.jsonl:2: expected a sentence in column 'note', got None"
    ):
        read_text(path)
    # a column that only a later row has is not passed over
    later = written(tmp_path, "u.jsonl", '{"a": "x"}\n{"a": "y", "b": "z"}\n')
    with pytest.raises(ValueError, match="u.jsonl:1: expected a sentence in column 'b', got None"):
        read_text(later)


def test_a_name_as_long_as_a_sentence_is_one_where_somebody_says_so(tmp_path):
    path = written(tmp_path, "t.csv", "What do you want to know?,b\nx y,z w\n")
    assert read_text(path, ["What do you want to know?"]).sentences == ["x y"]
    # `text` is a name, so the first line has names
    beside = written(tmp_path, "u.csv", "What do you want to know?,text\nx y,z w\n")
    assert read_named(beside, None).sentences == ["z w"] and whole_table(path) == {
        "What do you want to know?": ["x y"],
        "b": ["z w"],
    }


@pytest.mark.parametrize(
    "text, gap",
    [
        ("text,n\na b,1\n,\nc d,2\n", 3),
        ("text;n\na b;1\n ; \n;\nc d;2\n", 3),
        ("text,n\n,\na b,1\n", 2),
        (",\ntext,n\na b,1\n", None),
        ("text,n\na b,1\n,\n,,\n", None),
        ("text,n\na b,1\n\nc d,2\n", None),
        ('text\na b\n""\nc d\n', 3),
        ('text\na b\n""\n', 3),
        ('text\n""\na b\n', 2),
        ('text\na b\n" "\nc d\n', 3),
        ("text\na b\n\nc d\n", 3),
        ("text\na b\n  \nc d\n", 3),
        ("text\na b\n\n\n", None),
        ('"text"\n"a\n\nb"\n', "none"),
        ("\ntext\na b\n", None),
    ],
)
def test_where_rows_are_counted_a_row_of_empty_cells_is_refused(tmp_path, text, gap):
    """Row n of the answers is row n of the table; what a spreadsheet leaves at the end is no row. A
    blank line is an empty cell in a table of one column alone.
    """
    path = written(tmp_path, "t.csv", text)
    if gap == "none":  # the blank line belongs to a text
        assert read_named(path, ["text"]).sentences == ["a\n\nb"]
        return
    if gap:
        with pytest.raises(
            ValueError, match=f"t.csv:{gap}: expected a text in each row, got a row of empty cells"
        ):
            read_named(path, ["text"])
    else:
        assert read_named(path, ["text"]).sentences == ["a b", "c d"][: text.count(" ")]
    assert "a b" in read_text(path, ["text"]).sentences  # to learn from, it is no row


def test_cells_that_are_no_text_become_what_a_table_would_show(tmp_path):
    pd.DataFrame(
        {
            "text": ["a"],
            "day": [pd.Timestamp("2024-01-02")],
            "list": [["a", "é"]],
            "yes": [True],
            "n": [1.5],
        }
    ).to_parquet(tmp_path / "t.parquet")
    assert {name: cells[0] for name, cells in whole_table(tmp_path / "t.parquet").items()} == {
        "text": "a",
        "day": "2024-01-02 00:00:00",
        "list": '["a", "é"]',
        "yes": "true",
        "n": "1.5",
    }


def test_lines_are_sentences_and_blank_ones_are_none(tmp_path):
    for name in ("t.txt", "t.txt.gz"):
        assert read_text(written(tmp_path, name, "\ufeffone \n\n  \ntwo\r\n")).sentences == [
            "one",
            "two",
        ]


@pytest.mark.parametrize(
    "name, text, complaint",
    [
        ("t.tsv", "a\tb\nx\ty\nx\n", "t.tsv:3: expected 2 cells"),
        ("t.tsv", "a\tb\nx\t \n", "t.tsv:2: expected a sentence in column 'b', got ' '"),
        ("t.tsv", "a\tb\tc\td\nx\ty\tz\tw\n", "t.tsv: expected 1 to 3 columns"),
        (
            "t.tsv",
            "a\ta\nx\ty\n",
            "t.tsv:1: expected a first line of different names of columns, got 'a' more than once",
        ),
        (
            "t.csv",
            "a,,,b\nx,,,y\n",
            "t.csv:1: expected a first line of different names of columns, got '' more than once: delete the columns without a name",
        ),
        (
            "t.csv",
            "How do I cook rice?,How is rice cooked?\nx,y\n",
            "t.csv:1: expected a first line of names of columns, got ['How do I cook rice?', 'How is rice cooked?']: a sentence? If these are names, --columns",
        ),
        (
            "t.csv",
            "sep=,\na,b\nx,y\n",
            "t.csv:1: expected names of columns, got 'sep=', which only a spreadsheet reads: delete this line",
        ),
        ("t.csv", "a|b\nx|y\n", "separated by bars?"),
        (
            "t.tsv",
            "\ufeffa;b\r\nx;y\r\n",
            "t.tsv:1: expected names of columns in the tab dialect, got 'a;b': separated by semicolons?",
        ),
        ("t.csv", "a\tb\nx\ty\n", "separated by tabs?"),
        ("t.tsv", "a,b\nx,y\n", "separated by commas?"),
        ("t.csv", "a,b\n", "t.csv: expected rows below the names"),
        ("t.csv", 'a,b\n"x,y\n', "t.csv:2: expected matching CSV quotes"),
        (
            "t.jsonl",
            '{"a": "x"}\n{"b": "x"}\n',
            "t.jsonl:2: expected a sentence in column 'a', got None",
        ),
        ("t.jsonl", '{"a": "x"}\n\n["x"]\n', "t.jsonl:3: expected an object"),
        (
            "t.jsonl",
            '{"i": 1, "a": "x"}\n{"i": 2, "a": "y"}\n',
            "t.jsonl: expected sentences in column 'i', got numbers alone",
        ),
        (
            "t.jsonl",
            '{"a": "x"}\n{"a": null}\n',
            "t.jsonl:2: expected a sentence in column 'a', got None",
        ),
        ("t.jsonl", '{"a": "x"\n', "t.jsonl:1: expected JSON"),
        (
            "t.jsonl",
            '{"a": "x"}\n{"a": "bad \\ud83d half"}\n',
            r"t.jsonl:2: expected valid Unicode in column 'a', got a lone surrogate: 'bad \ud83d half'",
        ),
        # it would be handed on
        (
            "t.jsonl",
            '{"a": "x"}\n\n{"a": "y", "note": "\\udc00"}\n',
            "t.jsonl:3: expected valid Unicode in column 'note'",
        ),
        ("t.jsonl", '{"a\\ud83d": "x"}\n', "t.jsonl:1: expected valid Unicode in column"),
        ("t.json", "[]", "t.json: expected a file called .txt, .tsv, .csv or .jsonl"),
        ("t.txt", "\n\n", "t.txt: expected text, got an empty file"),
        ("none.txt", None, "none.txt: expected a file, got none"),
    ],
)
def test_what_is_no_text_is_refused_by_line(tmp_path, name, text, complaint):
    path = tmp_path / name if text is None else written(tmp_path, name, text)
    with pytest.raises(ValueError) as refused:
        read_text(path)
    assert complaint in str(refused.value) and str(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("t.csv", "a,b\nx y,z w\na,b\nc,d\n", 3),
        ("t.csv", "a,b\nx y,z w\nB, A\n", 3),
        ("t.tsv", "a\tb\t\nx\ty\t\na\tb\t\n", 3),
        ("t.csv", "text\none\ntext\n", 3),
        ("t.jsonl", '{"a": "x", "b": "y"}\n{"a": "a", "b": "b"}\n', 2),
    ],
)
def test_names_of_columns_among_the_rows_are_refused(tmp_path, name, text, line):
    """Two tables that were joined have two first lines."""
    path = written(tmp_path, name, text)
    for read in (read_text, whole_table):
        with pytest.raises(
            ValueError, match=f"{name}:{line}: expected a row, got the names of the columns again"
        ):
            read(path)


def test_a_row_that_shares_a_cell_with_the_names_is_a_row(tmp_path):
    assert read_text(written(tmp_path, "t.csv", "text,b\ntext,text\na f,b c\n")).sentences == [
        "text",
        "a f",
    ]


@pytest.mark.parametrize("negative", ["how to pay", "by CARD ", "  How to  pay"])
def test_a_negative_that_is_its_anchor_or_its_positive_is_refused_by_line(tmp_path, negative):
    path = written(
        tmp_path,
        "t.csv",
        f"q,a,n\nwhere is it,over there,not here\nhow to pay,by card,{negative}\nx y,z,X Y\n",
    )
    with pytest.raises(
        ValueError,
        match=r"t.csv:3: expected a negative that differs from its anchor and from its positive, got .* again: delete 2 such row\(s\), on the lines \[3, 4\]",
    ):
        read_text(path)
    rows = Dataset(
        "t",
        "train",
        "text",
        ["where is it", "how to pay"],
        ["over there", "by card"],
        sentences3=["not here", negative],
    )
    with pytest.raises(ValueError, match="t: expected a negative that differs .* at row 1"):
        module.check_rows(rows, 2)
    read_text(path, ["q", "a"])  # who does not take the column is not told of it


def test_a_negative_may_be_the_positive_of_another_row():
    module.check_rows(
        Dataset("t", "train", "text", ["a", "b"], ["c", "d"], sentences3=["d", "c"]), 2
    )


def test_equal_lines_cannot_be_told_apart():
    lines = Dataset("t", "train", "text", ["hello there"] * 7 + ["Hello  there", "good bye"])
    module.check_rows(lines, 2)
    with pytest.raises(
        ValueError, match="t: expected at least 3 rows that differ, as many as a batch holds, got 2"
    ):
        module.check_rows(lines, 3)
    pairs = Dataset("t", "train", "text", ["a b", "c d", "e"], ["A  b", "c d", "e"])
    with pytest.raises(
        ValueError,
        match="t: expected pairs of different sentences, got each sentence beside itself",
    ):
        module.check_rows(pairs, 2)
    # some may be
    module.check_rows(Dataset("t", "train", "text", ["a b", "c d"], ["a b", "c"]), 2)


def test_columns_that_are_not_there_or_come_twice_are_refused(tmp_path):
    path = written(tmp_path, "t.csv", "a,b\nx,y\n")
    for columns in (["a", "c"], ["a", "a"]):
        with pytest.raises(ValueError, match="expected 1 to 3 columns of"):
            read_text(path, columns)


def test_grades_are_finite_numbers_on_any_scale(tmp_path):
    graded = read_graded(written(tmp_path, "g.tsv", "a\tb\ty\nx\ty\t-7.5\nz\tw\t1e2\n"))
    assert (graded.sentences, graded.sentences2, graded.labels) == (
        ["x", "z"],
        ["y", "w"],
        [-7.5, 100.0],
    )
    assert read_graded(
        written(
            tmp_path, "g.jsonl", '{"a": "x", "b": "y", "y": 3}\n{"a": "x", "b": "z", "y": 1.5}\n'
        )
    ).labels == [3, 1.5]
    for grade in ("nan", "inf", "", "good", "1_0"):
        with pytest.raises(
            ValueError, match=f"bad.csv:3: expected a grade that is a finite number, got '{grade}'$"
        ):
            read_graded(written(tmp_path, "bad.csv", f"a,b,y\nx,y,1\nz,w,{grade}\n"))
    with pytest.raises(ValueError, match="bad.jsonl:1: expected a grade"):
        read_graded(written(tmp_path, "bad.jsonl", '{"a": "x", "b": "y", "y": true}\n'))
    with pytest.raises(ValueError, match="alike.csv: expected grades that differ, got 3 alone"):
        read_graded(written(tmp_path, "alike.csv", "a,b,y\nx,y,3\nz,w,3.0\n"))
    named = read_graded(
        written(tmp_path, "named.csv", "id,score,sentence2,sentence1\n7,2,y,x\n8,3,w,z\n")
    )
    assert (named.sentences, named.sentences2, named.labels) == (["x", "z"], ["y", "w"], [2, 3])
    with pytest.raises(
        ValueError,
        match=r"expected columns sentence1, sentence2 and score, or three others in this order, got \['a', 'b'\]",
    ):
        read_graded(written(tmp_path, "two.csv", "a,b\nx,y\n"))


# --- what is held out


def test_no_chain_of_sentences_leads_from_what_is_measured_to_what_is_learned():
    rows = topics(200)
    # chains of three pairs, case and blanks aside
    rows += [(rows[i][1], f"{rows[i + 20][0].upper()}  ", "z") for i in range(20)]
    pairs = dataset(rows, 3)
    learned, measured = held_out(pairs, 6, seed=1)
    both = Dataset(
        "b",
        "train",
        "text",
        learned.sentences + measured.sentences,
        learned.sentences2 + measured.sentences2,
    )
    groups = clusters(both.sentences, both.sentences2).tolist()
    there, here = groups[: len(learned)], groups[len(learned) :]
    assert len(measured) == 6 == len(set(here)) and not set(here) & set(there)
    given = set(zip(pairs.sentences, pairs.sentences2, pairs.sentences3))
    for kept in (learned, measured):
        assert set(zip(kept.sentences, kept.sentences2, kept.sentences3)) <= given
    whole = clusters(pairs.sentences, pairs.sentences2).tolist()
    gone = {whole[pairs.sentences.index(s)] for s in measured.sentences}
    assert len(learned) == sum(group not in gone for group in whole)  # nothing else is lost
    assert (
        held_out(pairs, 6, seed=1)[1].sentences
        == measured.sentences
        != held_out(pairs, 6, seed=2)[1].sentences
    )


def test_a_tenth_at_most_is_held_out_and_no_pair_alone():
    pairs = dataset(topics(50))
    # who is alone is the nearest
    assert [len(held_out(pairs, most, 0)[1]) for most in (0, 1, 2, 3, 1000)] == [0, 0, 2, 3, 5]
    assert [len(part) for part in held_out(dataset(topics(19)), 1000, 0)] == [19, 0]
    one = dataset([("a", "b")] * 30)  # one cluster
    assert [len(part) for part in held_out(one, 1000, 0)] == [30, 0]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_held_out_costs_a_tenth_of_the_rows_at_most(seed):
    rows = (
        topics(100)
        + [("what?", f"yes {i}") for i in range(60)]
        + [row for row in topics(103)[100:] for _ in range(7)]
    )
    learned, measured = held_out(dataset(rows), 1000, seed)  # clusters of 1, of 60 and of 7
    assert len(learned) >= 181 - 18 and len(measured) > 5 and "what?" not in measured.sentences


@pytest.mark.parametrize("seed", range(8))
def test_what_is_held_out_is_no_wrong_answer_either(seed):
    rows = [
        (a, b, f" {(topics(200)[i + 50][i % 2]).upper()}" if i < 100 else "nothing known")
        for i, (a, b, _) in enumerate(topics(200))
    ]
    # wrong in a hundred rows: to hold it out would cost them
    rows += [("who knows", "Nothing  known", c) for *_, c in topics(1)]
    learned, measured = held_out(dataset(rows, 3), 1000, seed)

    def plain(column):
        return {" ".join(text.casefold().split()) for text in column}

    assert not plain(learned.sentences3) & plain(measured.sentences + measured.sentences2)
    assert len(measured) > 5 and len(learned) >= 201 - 20


def test_graded_pairs_that_are_learned_from_are_counted():
    rows = dataset([("a", "b"), ("B ", "c"), ("d", "e")])
    graded = dataset(
        [("C", "a"), ("e", "d"), ("a", "d"), ("x", "y"), ("a", "y")], labels=[1, 2, 3, 4, 5]
    )
    assert (
        learned_from(graded, rows) == 2 and learned_from(graded, dataset([("a",), ("b",)], 1)) == 0
    )
    # case as `clusters` takes it
    assert (
        learned_from(dataset([("STRASSE", "weg")], labels=[1]), dataset([("straße", "Weg")])) == 1
    )


# --- how it is measured


def test_ranks_are_those_of_a_loop_and_who_is_as_near_stands_before():
    scores = np.random.default_rng(0).integers(0, 4, (30, 30)).astype(float)
    by_hand = [
        1 + sum(scores[i, j] >= scores[i, i] for j in range(30) if j != i) for i in range(30)
    ]
    assert partner_ranks(scores).tolist() == by_hand and len(set(by_hand)) > 10
    assert partner_ranks(np.zeros((3, 3))).tolist() == [3, 3, 3]  # all alike: nothing was found


def test_words_count_as_in_scikit_learn():
    text = ["the dog barks", "the cat", "a dog and a cat"]
    counted = TfidfVectorizer(token_pattern=r"\w+").fit(text)
    first, second = ["the dog", "nothing known"], ["a cat", "The DOG!", "barks"]
    assert_close(
        shared_words(text)(first, second),
        (counted.transform(first) @ counted.transform(second).T).toarray(),
    )
    signs = ["\N{DOG FACE} \N{CAT FACE}", "\N{CAT FACE}", "!"]  # no words at all
    assert (shared_words(signs)(signs, signs) > 0).tolist() == [
        [True, True, False],
        [True, True, False],
        [False, False, True],
    ]


def test_shared_words_are_counted_in_every_column_of_both():
    text, graded = dataset(topics(40), 3), dataset(topics(30, 1), labels=list(range(30)))
    _, found = compare_on(text, graded, 4, 0)
    whole = Comparison(found.partners, graded)
    whole.add(
        "shared words",
        shared_words(text.sentences + text.sentences2 + graded.sentences + graded.sentences2),
    )
    assert len(found.partners) == 4 and len(whole.found) == 3
    for title, ways in whole.found.items():
        assert_close(found.found[title]["shared words"], ways["shared words"], rtol=0, atol=0)


def test_a_table_says_what_was_found_on_the_same_pairs():
    pairs = dataset(topics(20))
    grades = dataset(topics(300, 1), labels=list(np.random.default_rng(3).random(300)))
    noise = np.random.default_rng(4)

    def half(a, b):
        return (
            np.eye(len(a))[:, : len(b)] * (np.arange(len(a)) % 2)[:, None]
            + noise.random((len(a), len(b))) * 0.1
        )

    def flat(a, b):
        return noise.random((len(a), len(b)))

    found = Comparison(pairs, grades)
    ranks, graded = [], []
    for name, way in (("one", flat), ("two", half)):
        noise = np.random.default_rng(5)
        found.add(name, way)
        noise = np.random.default_rng(5)
        ranks.append(partner_ranks(way(pairs.sentences, pairs.sentences2)))
        blocks = [
            way(grades.sentences[i : i + 128], grades.sentences2[i : i + 128]).diagonal()
            for i in (0, 128, 256)
        ]
        graded.append(spearmanr(np.concatenate(blocks), grades.labels).statistic)
    lines = [line.strip("| ").split(" | ") for line in found.table().splitlines()]
    assert lines[0] == [
        "20 pairs held out, 300 pairs graded; 95 % intervals, examples only",
        "partner is nearest",
        "mean reciprocal rank",
        "Spearman of score and grade",
    ]
    values = [[float(cell.split()[0]) for cell in line[1:]] for line in lines[2:]]
    expected = [[(r == 1).mean(), (1 / r).mean(), g] for r, g in zip(ranks, graded)]
    expected.append([b - a for a, b in zip(*expected)])
    assert_close(np.array(values), np.array(expected), atol=5.1e-4, rtol=0)
    assert [line[0] for line in lines[2:]] == ["one", "two", "two minus one"] and lines[-1][
        1
    ].startswith("+")
    for cell in (cell for line in lines[2:] for cell in line[1:]):
        value, low, high = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", cell).groups())
        assert low <= value <= high, cell


def test_either_kind_of_pairs_is_enough_and_none_is_nothing():
    pairs = dataset(topics(20))

    def way(a, b):
        return np.random.default_rng(0).random((len(a), len(b)))

    for found, title in (
        (Comparison(pairs, None), "partner is nearest"),
        (Comparison(None, dataset(topics(20), labels=list(range(20)))), "Spearman"),
    ):
        found.add("one", way)
        found.add("two", way)
        assert (
            found
            and title in found.table().splitlines()[0]
            and "+0.000 (+0.000 to +0.000)" in found.table()
        )
    assert not Comparison(None, None)
    # one cluster: no pair of it can be held out
    nobody = held_out(dataset([("a", "b")] * 30), 9, 0)[1]
    found = Comparison(nobody, dataset(topics(20), labels=list(range(20))))
    found.add("one", way)
    found.add("two", way)
    assert found.table().startswith(
        "| 20 pairs graded; 95 % intervals, examples only | Spearman of score and grade |\n"
    )


def test_cosines_are_those_of_the_encoder_as_it_is_when_asked():
    encoder, text = tiny(), ["a dog", "the cat sat", "rain"]
    way = cosines(encoder)
    for _ in range(2):
        vectors = nn.functional.normalize(encoder.encode(text).double(), dim=1)
        assert_close(
            way(text, text[:2]), (vectors @ vectors[:2].T).float().numpy(), atol=1e-6, rtol=0
        )
        nn.init.normal_(encoder.model.bert_layers[0].attention_dense.weight)


# --- the run


def weights(encoder) -> dict:
    return {name: value.clone() for name, value in encoder.model.state_dict().items()}


def same(a, b) -> bool:
    return all(map(torch.equal, a.values(), b.values()))


CONFIG = ContrastConfig(6, 1e-2, batch_size=8, save_every=4)


@pytest.mark.parametrize(
    "columns, config",
    [
        (1, CONFIG),
        (2, CONFIG),
        (3, CONFIG),
        (2, replace(CONFIG, precision="bf16")),
        (2, replace(CONFIG, warmup=0.5, weight_decay=0.3)),
        (2, replace(CONFIG, seed=3)),
        (1, replace(CONFIG, seed=3)),
    ],
)
def test_the_steps_are_those_of_the_chapters(tmp_path, columns, config):
    rows = dataset(topics(40), columns)
    encoder, chapters = (prepared(tiny(0.1), rows, None) for _ in range(2))
    encoder.max_length = chapters.max_length = 6  # shorter than the sentences
    train_on_text(encoder.eval(), rows, config, tmp_path)  # as a loaded one is
    torch.manual_seed(config.seed)
    text = [rows.sentences, rows.sentences2, rows.sentences3][:columns]
    if columns == 1:
        batches = view_batches(text, chapters.tokenizer, 8, max_length=6, seed=config.seed)
        loss = view_loss()
    else:
        batches = pair_batches(text, chapters.tokenizer, 8, max_length=6, seed=config.seed)
        loss = view_loss(multiple_negatives_loss)
    how = dict(warmup=config.warmup, weight_decay=config.weight_decay, precision=config.precision)
    losses = [
        record.loss for record in train_views(ViewModel(chapters), batches, loss, 6, lr=1e-2, **how)
    ]
    assert same(weights(encoder), weights(chapters)) and not same(
        weights(encoder), weights(tiny(0.1))
    )
    assert [entry["loss"] for entry in read_log(tmp_path)] == losses
    kept = SentenceEncoder.from_pretrained(tmp_path / "model", device="cpu")
    assert same(weights(kept), weights(encoder)) and not encoder.training


def test_equal_runs_write_equal_checkpoints_to_the_byte(tmp_path):
    rows, found = dataset(topics(40), 1), []
    for number in (1, 2):
        encoder = prepared(tiny(0.1), rows, None)
        random.seed(number), np.random.seed(number), torch.manual_seed(number)
        train_on_text(encoder, rows, CONFIG, tmp_path / str(number))
        found.append((tmp_path / str(number) / CHECKPOINT).read_bytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("at", [2, 4, 6])
def test_a_run_that_was_stopped_ends_in_the_same_weights(tmp_path, columns, at, monkeypatch):
    rows = dataset(topics(40), columns)
    whole = prepared(tiny(0.1), rows, None)
    train_on_text(whole, rows, CONFIG, tmp_path / "whole")
    save, steps = module._Run.keep, []

    def keep(run, record, request):
        steps.append(record.step)
        if len(steps) == at:
            request.number = signal.SIGTERM
        save(run, record, request)

    monkeypatch.setattr(module._Run, "keep", keep)
    stopped = prepared(tiny(0.1), rows, None)
    if at < 6:
        with pytest.raises(Stopped, match=f"^stopped at step {at}; resume=True goes on$") as stop:
            train_on_text(stopped, rows, CONFIG, tmp_path / "parts")
        assert (stop.value.step, stop.value.number) == (at, signal.SIGTERM) and not (
            tmp_path / "parts/model"
        ).exists()
    else:  # at the end there is nothing to stop
        train_on_text(stopped, rows, CONFIG, tmp_path / "parts")
    again = prepared(tiny(0.1), rows, None)
    torch.rand(7)
    train_on_text(again, rows, CONFIG, tmp_path / "parts", resume=True)
    assert same(weights(again), weights(whole)) and steps == list(range(6))
    assert read_log(tmp_path / "parts") == read_log(tmp_path / "whole")


def test_a_run_begun_anew_leaves_no_checkpoint_of_the_run_before(tmp_path, monkeypatch):
    """Killed before its first, it would be resumed with the steps of the other."""
    train_on_text(tiny(), dataset(topics(40)), CONFIG, tmp_path)

    def dies(run, record, request):
        raise OSError("power cut")

    monkeypatch.setattr(module._Run, "keep", dies)
    with pytest.raises(OSError, match="power cut"):
        train_on_text(tiny(), dataset(topics(40)), CONFIG, tmp_path)
    assert not (tmp_path / CHECKPOINT).exists() and read_log(tmp_path) == []


def test_checkpoints_come_as_often_as_asked_and_at_the_end(tmp_path, monkeypatch):
    saved, save = [], module.RunFolder.save
    monkeypatch.setattr(
        module.RunFolder,
        "save",
        lambda run, step, *rest: (saved.append(step), save(run, step, *rest)),
    )
    train_on_text(tiny(), dataset(topics(40)), replace(CONFIG, steps=5, save_every=2), tmp_path)
    assert saved == [2, 4, 5]


def test_a_run_goes_on_with_the_same_text_and_settings_only(tmp_path):
    rows = dataset(topics(40))
    train_on_text(tiny(), rows, CONFIG, tmp_path)
    shorter = tiny()
    shorter.max_length = 9
    for encoder in (shorter, prepared(tiny(), rows, 0.2)):
        with pytest.raises(ValueError, match="expected a run with (max_length|dropout)="):
            train_on_text(encoder, rows, CONFIG, tmp_path, resume=True)
    for text, config in (
        (dataset(topics(40, 1)), CONFIG),
        (rows, ContrastConfig(6, 1e-3, batch_size=8, save_every=4)),
    ):
        with pytest.raises(ValueError, match="expected a run with"):
            train_on_text(tiny(), text, config, tmp_path, resume=True)


def test_a_rate_and_a_dropout_fit_the_encoder():
    assert [usual_contrast_rate(width) for width in (128, 256, 384, 768)] == [
        3e-4,
        3e-4,
        1e-4,
        3e-5,
    ]
    single, pairs = dataset(topics(9), 1), dataset(topics(9), 2)

    def share(encoder):
        return {part.p for part in encoder.modules() if isinstance(part, nn.Dropout)}

    cases = [
        (0.0, single, None, 0.01),
        (0.1, single, None, 0.1),
        (0.0, pairs, None, 0.0),
        (0.1, pairs, 0.0, 0.0),
        (0.0, single, 0.3, 0.3),
    ]
    for own, rows, asked, expected in cases:
        assert share(prepared(tiny(own), rows, asked)) == {expected}
    with pytest.raises(ValueError, match="both views of each would be the same"):
        prepared(tiny(0.1), single, 0.0)
    for bad in (
        dict(steps=0),
        dict(lr=-1.0),
        dict(lr=math.nan),
        dict(batch_size=0),
        dict(save_every=0),
        dict(weight_decay=-0.1),
    ):
        with pytest.raises(ValueError, match=f"expected .*{[*bad][0]} of at least"):
            ContrastConfig(**{"steps": 1, "lr": 1.0, **bad})


def test_what_nobody_sets_is_as_in_the_chapters():
    ours, theirs = ContrastConfig(1, 1.0), inspect.signature(train_views).parameters
    for name in ("warmup", "weight_decay", "precision"):
        assert getattr(ours, name) == theirs[name].default, name


@pytest.mark.parametrize("columns", [1, 2])
def test_a_batch_may_hold_all_rows(tmp_path, columns):
    rows = dataset([(f"{word} here", f"there {word}") for word in WORDS[:8]], columns)
    train_on_text(prepared(tiny(), rows, None), rows, replace(CONFIG, steps=2), tmp_path)
    with pytest.raises(ValueError, match="expected at least 9 rows"):
        train_on_text(tiny(), rows, replace(CONFIG, batch_size=9), tmp_path / "more")


def test_a_bar_is_drawn_for_who_asks_and_begins_where_the_run_does(tmp_path, capsys):
    rows = dataset(topics(40))
    train_on_text(tiny(), rows, CONFIG, tmp_path)
    assert capsys.readouterr().err == ""
    # nothing is left to do
    train_on_text(tiny(), rows, CONFIG, tmp_path, resume=True, progress=True)
    assert "6/6" in capsys.readouterr().err


def test_whitened_vectors_are_white_and_another_library_has_the_same(tmp_path):
    rows = dataset(topics(200))
    encoder = tiny()
    train_on_text(encoder, rows, ContrastConfig(3, 1e-3, batch_size=8, whiten=True), tmp_path)
    kept = SentenceEncoder.from_pretrained(tmp_path / "model", device="cpu")
    text = rows.sentences + rows.sentences2
    vectors = kept.encode(text)
    spread = torch.linalg.eigvalsh(torch.cov(vectors.T.double(), correction=0))
    # what comes from a LayerNorm has one direction less
    assert_close(spread, torch.tensor([0.0] + [1.0] * 15).double(), atol=1e-3, rtol=0)
    assert_close(vectors.mean(0), torch.zeros(16), atol=1e-3, rtol=0)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(
        text[:20], convert_to_tensor=True
    )
    plain = SentenceEncoder.from_pretrained(tmp_path / "model", pooling="mean", device="cpu")
    plain.transform = None
    # what a rounding of the vectors becomes
    most = (
        torch.linalg.matrix_norm(kept.transform.linear.weight, 2)
        * plain.encode(text).norm(dim=1).max()
    )
    assert_close(
        vectors[:20], theirs, atol=16 * torch.finfo(torch.float32).eps * most.item(), rtol=0
    )


def test_a_whitening_stands_behind_what_is_there(tmp_path):
    rows, encoder = dataset(topics(60)), tiny()
    encoder.transform = Dense(16, 5)
    train_on_text(encoder, rows, replace(CONFIG, whiten=True), tmp_path)
    vectors = SentenceEncoder.from_pretrained(tmp_path / "model", device="cpu").encode(
        rows.sentences + rows.sentences2
    )
    assert_close(
        torch.cov(vectors.T.double(), correction=0), torch.eye(5).double(), atol=1e-3, rtol=0
    )


TOGETHER = """
import json, os, signal, sys
from pathlib import Path
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from minbert.cli import contrast as module
from minbert.cli.contrast import ContrastConfig, train_on_text
from minbert.core.graceful_stop import Stopped
from test_contrast import dataset, tiny, topics, weights

world, folder = Accelerator(cpu=True), Path(sys.argv[1])
rows, config, found, seeds, keep = dataset(topics(40)), ContrastConfig(5, 1e-2, batch_size=8), [], [], module._Run.keep

def ask(run, record, request):
    seeds[:] = gather_object([torch.initial_seed()])
    if record.step == 2 and not found and world.process_index == world.num_processes - 1:
        os.kill(os.getpid(), signal.SIGTERM)   # one hears it, all stop
    keep(run, record, request)

module._Run.keep = ask
for resume in (False, True):
    encoder = tiny(seed=world.process_index)   # all start from the weights of the first
    try:
        train_on_text(encoder, rows, config, folder, resume)
    except Stopped as stop:
        found.append(stop.step)
    world.wait_for_everyone()
if world.is_main_process:
    (folder / "found.json").write_text(json.dumps([found, seeds]))
    torch.save(weights(encoder), folder / "weights.pt")
"""


@pytest.mark.long
def test_two_processes_learn_what_one_learns_and_stop_together(in_processes, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    in_processes(TOGETHER, tmp_path)
    one, two = (
        torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("one", "two")
    )
    found = [json.loads((tmp_path / name / "found.json").read_text()) for name in ("one", "two")]
    assert found == [[[3], [11711]], [[3], [11711, 11712]]]  # each draws its own dropout
    start = weights(tiny())
    moved = max((one[name] - start[name]).abs().max() for name in one)
    assert moved > 1e-3 and max((one[name] - two[name]).abs().max() for name in one) < 1e-2 * moved


# --- the command


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a model, pairs, sentences and grades; it is the one where commands are typed."""
    tiny().save_pretrained(tmp_path / "tiny")
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [("id", "q", "a"), *((i, *row[:2]) for i, row in enumerate(topics(120)))]
        )
    (tmp_path / "text.txt").write_text("".join(row[0] + "\n" for row in topics(40)))
    with open(tmp_path / "graded.tsv", "w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(
            [("a", "b", "y"), *((*row[:2], i % 5) for i, row in enumerate(topics(30, 2)))]
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_learns_and_says_by_how_much(here, capsys):
    line = "contrast pairs.csv --columns q a --model tiny --out run --batch-size 16 --epochs 2 --lr 1e-2 --dev graded.tsv"
    out, err = run(capsys, line)
    table = (here / "run/dev.md").read_text()
    assert "note:" not in err
    assert (
        out == f"{table}model: run/model\n"
        and "pairs.csv [q, a]: 108 of 120 rows to learn from, 12 steps" in err
    )
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert [row[0] for row in rows[2:]] == ["shared words", "before", "after", "after minus before"]
    partners = held_out(read_text(here / "pairs.csv", ["q", "a"]), 1000, 11711)[1]
    again = Comparison(partners, read_graded(here / "graded.tsv"))
    for name, folder in (("before", "tiny"), ("after", "run/model")):
        again.add(name, cosines(SentenceEncoder.from_pretrained(folder, device="cpu")))
    assert table.splitlines()[3:] == again.table().splitlines()[2:]
    assert "expected an empty folder, got a run in run" in run(capsys, line, 1)[1]
    for other, name in (
        ("--seed 1", "seed"),
        ("--dropout 0.2", "dropout"),
        ("--model run/model", "weights to begin with"),
        ("--pooling max", "pooling"),
        ("--max-length 9", "max_length"),
    ):
        assert f"expected a run with {name}=" in run(capsys, f"{line} --resume {other}", 1)[1]
    assert run(capsys, line + " --resume")[0] == out
    assert (
        run(capsys, line + " --overwrite --steps 2")[0] != out and len(read_log(here / "run")) == 2
    )


def test_single_sentences_are_not_measured_without_grades(here, capsys):
    out, err = run(capsys, "contrast text.txt --model tiny --out run --batch-size 8")
    assert (
        "nothing was measured: single sentences have no partners" in out
        and "40 of 40 rows to learn from, 5 steps" in err
    )
    assert (
        SentenceEncoder.from_pretrained("run/model", device="cpu").encode(["a"])
        != tiny().encode(["a"])
    ).any()
    out, _ = run(
        capsys,
        "contrast text.txt --model tiny --out again --batch-size 8 --dev graded.tsv --whiten",
    )
    assert "Spearman of score and grade" in out and "partner" not in out
    assert SentenceEncoder.from_pretrained("again/model", device="cpu").transform is not None


def test_what_is_typed_reaches_the_run(here, capsys, monkeypatch):
    runs = []
    monkeypatch.setattr(
        module,
        "train_on_text",
        lambda encoder, rows, config, out, *rest: (
            runs.append((encoder, rows, config)),
            out.mkdir(),
        ),
    )
    line = "contrast pairs.csv --columns a q --model tiny --out run --batch-size 9 --epochs 3 --heldout 4 --save-every 7 --seed 5 --dropout 0.25 --bf16 --whiten --lr 0.5 --pooling max --max-length 9"
    out, _ = run(capsys, line)
    ((encoder, rows, config),) = runs
    assert (encoder.pooling, encoder.max_length) == ("max", 9)
    assert config == ContrastConfig(
        3 * (116 // 9), 0.5, 9, precision="bf16", save_every=7, whiten=True, seed=5
    )
    assert (
        "4 pairs held out" in out
        and rows.sentences == held_out(read_text(here / "pairs.csv", ["a", "q"]), 4, 5)[0].sentences
    )
    assert {part.p for part in encoder.modules() if isinstance(part, nn.Dropout)} == {0.25}


@pytest.mark.parametrize("option, length_1", [("", True), ("--whiten", False)])
def test_a_folder_that_ends_in_normalize_does_so_afterwards(here, capsys, option, length_1):
    SentenceEncoder.from_pretrained("tiny", normalize=True).save_pretrained("theirs")
    (here / "theirs" / "minbert_sentence.json").unlink()  # now another library's
    run(
        capsys,
        f"contrast pairs.csv --columns q a --model theirs --out run --batch-size 16 --steps 1 {option}",
    )
    norms = (
        SentenceEncoder.from_pretrained("run/model", device="cpu")
        .encode(["a dog", "rain"])
        .norm(dim=1)
    )
    assert torch.allclose(norms, torch.ones(2), atol=1e-6) == length_1


def test_graded_pairs_that_are_learned_from_are_told(here, capsys):
    with open(here / "same.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [("a", "b", "y"), *((*row[:2], i) for i, row in enumerate(topics(20) + topics(20, 3)))]
        )
    _, err = run(
        capsys,
        "contrast pairs.csv --columns q a --heldout 0 --model tiny --out run --batch-size 8 --steps 1 --dev same.csv",
    )
    assert "note: 20 of 40 pairs of same.csv are learned from" in err


def test_words_that_only_one_pair_has_are_shared(here, capsys):
    written(
        here, "names.tsv", "q\ta\n" + "".join(f"who is n{i}\tn{i}, a person\n" for i in range(40))
    )
    out, _ = run(capsys, "contrast names.tsv --model tiny --out run --batch-size 8")
    assert "| shared words | 1.000 " in out
    # words that the text has not
    written(
        here,
        "dev.tsv",
        "a\tb\ty\n" + "".join(f"n{i}\tn{i + i % 2}\t{1 - i % 2}\n" for i in range(40)),
    )
    assert (
        "| shared words | 1.000 "
        in run(
            capsys,
            "contrast text.txt --model tiny --out two --batch-size 8 --steps 1 --dev dev.tsv",
        )[0]
    )


def test_pairs_too_few_to_hold_any_out_are_not_called_single(here, capsys):
    for more, why in (("", "120 rows, --heldout 0: no two pairs"), (" --lr 0", "no two pairs")):
        out, _ = run(
            capsys,
            f"contrast pairs.csv --columns q a --heldout 0 --model tiny --out run{len(more)} --batch-size 8 --steps 2{more}",
        )
        assert why in out and "single" not in out
    assert [entry["lr"] for entry in read_log("run7")] == [0, 0]


def test_a_whitening_by_few_sentences_is_told(here, capsys):
    (here / "few.txt").write_text("".join(row[0] + "\n" for row in topics(15)))
    few, enough = (
        run(
            capsys,
            f"contrast {name}.txt --model tiny --out {name} --batch-size 8 --steps 1 --whiten",
        )[1]
        for name in ("few", "text")
    )
    assert (
        "note: --whiten learns 16 directions from 15 sentences: vectors of other text may become worse\n"
        in few
        and "note" not in enough
    )


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("pairs.csv", "expected sentences in column 'id', got numbers alone"),
        ("graded.tsv", "expected sentences in column 'y', got numbers alone"),
        ("pairs.csv --columns q x", "expected 1 to 3 columns"),
        (
            "text.txt --batch-size 64",
            "text.txt: expected at least 64 rows, as many as a batch holds, got 40: --batch-size takes fewer",
        ),
        # the rows are counted first
        ("text.txt --model ./none", "text.txt: expected at least 64 rows"),
        (
            "pairs.csv --columns q a --batch-size 200",
            "expected at least 200 rows of which no two share a sentence, by any chain of partners, as many as a batch holds, got 108",
        ),
        ("text.txt --batch-size 8 --lr -1", "expected a finite lr of at least 0"),
        ("text.txt --batch-size 8 --dropout 0", "both views of each would be the same"),
        ("text.txt --batch-size 8 --dropout 1", "expected a dropout in [0, 1)"),
        ("text.txt --dev pairs.csv", "expected sentences in column 'id', got numbers alone"),
        ("none.txt", "none.txt: expected a file, got none"),
        ("text.txt --resume --overwrite", "got both"),
        ("text.txt --out text.txt", "expected a folder for the run, got the file text.txt"),
    ],
)
def test_the_command_refuses_in_one_line_and_leaves_no_model(here, capsys, line, complaint):
    _, err = run(capsys, f"contrast --model tiny --out run {line}", 1)
    assert complaint in err and not (here / "run/model").exists()


def test_the_scale_of_float16_losses_belongs_to_the_run(tmp_path, monkeypatch):
    """Where a card only imitates bfloat16, losses are scaled; what the scale has learned goes into
    the checkpoint and comes back.
    """
    seen, real = [], module.steps

    def steps(*positional, take_step, **named):
        seen.append(take_step.scale.state_dict())
        take_step.scale.overflowed()
        yield from real(*positional, **named)

    monkeypatch.setattr(
        module,
        "half_type",
        lambda device, precision: torch.float16 if precision == "bf16" else None,
    )
    monkeypatch.setattr(module, "steps", steps)
    rows, config = dataset(topics(40)), ContrastConfig(2, 1e-3, batch_size=8, precision="bf16")
    for resume in (False, True):
        train_on_text(tiny(), rows, config, tmp_path, resume)
    first, second = seen
    assert first == LossScale().state_dict() != second
