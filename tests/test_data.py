"""Every dataset in every layout, read from small files written here; what is refused or skipped;
download; batches.
"""

import gzip
import json
import math
import os
import re
from importlib import resources
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from minbert.data import (
    Dataset,
    TaskBatch,
    available,
    download,
    label_tensor,
    load_dataset,
    read_sentences,
    read_table,
    task_batches,
)
from minbert.datasets.formats import SOURCES, YEARS, Format
from minbert.datasets.hub_datasets import HUB
from minbert.sampling import TaskSampler
from minbert.tokens import encode_ids, load_tokenizer

FIVE = ("negative", "somewhat negative", "neutral", "somewhat positive", "positive")
TWO = ("negative", "positive")
THREE = ("entailment", "neutral", "contradiction")
QUOTED = '"Is ""it"" so?"'  # in the course's files quotes are CSV quotes, elsewhere they are text

SENTIMENT = (
    '\tid\tsentence\tsentiment\n0\tf1\t It \'s `` fun \'\' .\t{0}\n7\tf2\t"A ""film"" ."\t{1}\n'
)
SENTIMENT_ROWS = (["It 's `` fun '' .", 'A "film" .'], None)
STUDENT = "0\t\tid\tsentence\n1\t0.0\tf1\t Effective but too-tepid biopic\n2\t1.0\tf2\t Fine .\n"
STUDENT_ROWS = (["Effective but too-tepid biopic", "Fine ."], None)
COURSE = (
    "\tid\tsentence1\tsentence2\t{}\n290564\tp1\t"
    + QUOTED
    + "\t Why not?\t{}\n5\tp2\tWho?\tWhat is caf\u00e9?\t{}\n"
)
COURSE_ROWS = (['Is "it" so?', "Who?"], ["Why not?", "What is caf\u00e9?"])
COURSE_STUDENT = "\tid\tsentence1\tsentence2\n735\tp1\tA band.\tThe band.\n1\tp2\tB\tC\n"
COURSE_STUDENT_ROWS = (["A band.", "B"], ["The band.", "C"])
STSB = 'main-captions\tMSRvid\t2012test\t0000\t5.000\t" a man .\ta " man .\n'
STSB_LONG = (
    STSB
    + "main-news\theadlines\t2016\t0281\t0.5\tUS court\tHigh court\tMonitor (http://x)\tMonitor\n"
)
STSB_LONG_ROWS = (['" a man .', "US court"], ['a " man .', "High court"])
SICK = 'pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n4\tA "boy\tNo boy\t3.6\tCONTRADICTION\n9\tC\tD\t1\tNEUTRAL\n'
SICK_ROWS = (['A "boy', "C"], ["No boy", "D"])
MRPC = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t702876\t702977\tHe said " no .\tHe " said .\n0\t1\t2\tA\tB\n'
MRPC_ROWS = (['He said " no .', "A"], ['He " said .', "B"])
NLI = 'gold_label\tsentence1\tsentence2\nneutral\tTwo "women.\tSisters.\ncontradiction\tA\tB\nentailment\tC\tD\n'
NLI_ROWS = (['Two "women.', "A", "C"], ["Sisters.", "B", "D"])
QNLI = 'index\tquestion\tsentence\tlabel\n0\tWhat "came?\tIt came.\tentailment\n8\tWhy?\tNo.\tnot_entailment\n'
QNLI_ROWS = (['What "came?', "Why?"], ["It came.", "No."])
SST5 = '2 in " his first stab , 3 times\n0 bad .\n'
SST5_ROWS = (['in " his first stab , 3 times', "bad ."], None)
STUDENT_IDS, LINES = ["p1", "p2"], ["1", "2"]

# (dataset, split) -> kind, path in the shared layout, text, (sentences, sentences2), labels, ids,
# classes or scale
EXAMPLES = {
    ("sst", "train"): (
        "sentiment",
        "cs224n/ids-sst-train.csv",
        SENTIMENT.format(4, 0),
        SENTIMENT_ROWS,
        [4, 0],
        ["f1", "f2"],
        FIVE,
    ),
    ("sst", "dev"): (
        "sentiment",
        "cs224n/ids-sst-dev.csv",
        SENTIMENT.format(1, 2),
        SENTIMENT_ROWS,
        [1, 2],
        ["f1", "f2"],
        FIVE,
    ),
    ("sst", "test"): (
        "sentiment",
        "cs224n/ids-sst-test-student.csv",
        STUDENT,
        STUDENT_ROWS,
        None,
        ["f1", "f2"],
        FIVE,
    ),
    ("cfimdb", "train"): (
        "sentiment",
        "cs224n/ids-cfimdb-train.csv",
        SENTIMENT.format(1, 0),
        SENTIMENT_ROWS,
        [1, 0],
        ["f1", "f2"],
        TWO,
    ),
    ("cfimdb", "dev"): (
        "sentiment",
        "cs224n/ids-cfimdb-dev.csv",
        SENTIMENT.format(0, 0),
        SENTIMENT_ROWS,
        [0, 0],
        ["f1", "f2"],
        TWO,
    ),
    ("cfimdb", "test"): (
        "sentiment",
        "cs224n/ids-cfimdb-test-student.csv",
        STUDENT,
        STUDENT_ROWS,
        None,
        ["f1", "f2"],
        TWO,
    ),
    ("quora", "train"): (
        "paraphrase",
        "cs224n/quora-train.csv",
        COURSE.format("is_duplicate", "1.0", "0.0"),
        COURSE_ROWS,
        [1, 0],
        STUDENT_IDS,
        ("different", "duplicate"),
    ),
    ("quora", "dev"): (
        "paraphrase",
        "cs224n/quora-dev.csv",
        COURSE.format("is_duplicate", "0.0", "1.0"),
        COURSE_ROWS,
        [0, 1],
        STUDENT_IDS,
        ("different", "duplicate"),
    ),
    ("quora", "test"): (
        "paraphrase",
        "cs224n/quora-test-student.csv",
        COURSE_STUDENT,
        COURSE_STUDENT_ROWS,
        None,
        STUDENT_IDS,
        ("different", "duplicate"),
    ),
    ("sts", "train"): (
        "similarity",
        "cs224n/sts-train.csv",
        COURSE.format("similarity", "3.231", "0.0"),
        COURSE_ROWS,
        [3.231, 0.0],
        STUDENT_IDS,
        (0, 5),
    ),
    ("sts", "dev"): (
        "similarity",
        "cs224n/sts-dev.csv",
        COURSE.format("similarity", "5", "1.0"),
        COURSE_ROWS,
        [5.0, 1.0],
        STUDENT_IDS,
        (0, 5),
    ),
    ("sts", "test"): (
        "similarity",
        "cs224n/sts-test-student.csv",
        COURSE_STUDENT,
        COURSE_STUDENT_ROWS,
        None,
        STUDENT_IDS,
        (0, 5),
    ),
    **{
        ("stsb", split): (
            "similarity",
            f"senteval/STS/STSBenchmark/sts-{split}.csv",
            STSB_LONG,
            STSB_LONG_ROWS,
            [5.0, 0.5],
            LINES,
            (0, 5),
        )
        for split in ("train", "dev", "test")
    },
    **{
        ("stsb-cased", split): (
            "similarity",
            f"senteval/STS/STSBenchmark-cased/sts-{split}.csv",
            STSB_LONG,
            STSB_LONG_ROWS,
            [5.0, 0.5],
            LINES,
            (0, 5),
        )
        for split in ("train", "dev", "test")
    },
    **{
        ("sickr", split): (
            "similarity",
            f"senteval/SICK/SICK_{word}.txt",
            SICK,
            SICK_ROWS,
            [3.6, 1.0],
            ["4", "9"],
            (1, 5),
        )
        for split, word in (("train", "train"), ("dev", "trial"), ("test", "test_annotated"))
    },
    **{
        ("mrpc", split): (
            "paraphrase",
            f"senteval/MRPC/msr_paraphrase_{split}.txt",
            MRPC,
            MRPC_ROWS,
            [1, 0],
            ["2", "3"],
            ("different", "paraphrase"),
        )
        for split in ("train", "dev", "test")
    },
    **{
        ("sst5", split): (
            "sentiment",
            f"senteval/SST/fine/sentiment-{split}",
            SST5,
            SST5_ROWS,
            [2, 0],
            LINES,
            FIVE,
        )
        for split in ("train", "dev", "test")
    },
    **{
        ("qnli", split): (
            "nli",
            f"nli/qnli-{split}.tsv",
            QNLI,
            QNLI_ROWS,
            [0, 1],
            ["0", "8"],
            ("entailment", "not_entailment"),
        )
        for split in ("train", "dev")
    },
    **{
        ("snli", split): (
            "nli",
            f"nli/snli-{split}.tsv",
            NLI,
            NLI_ROWS,
            [1, 2, 0],
            ["2", "3", "4"],
            THREE,
        )
        for split in ("train", "dev", "test")
    },
    ("mnli", "train"): (
        "nli",
        "nli/mnli-train-sample.tsv",
        NLI,
        NLI_ROWS,
        [1, 2, 0],
        ["2", "3", "4"],
        THREE,
    ),
    ("mnli", "dev"): (
        "nli",
        "nli/mnli-dev-matched.tsv",
        NLI,
        NLI_ROWS,
        [1, 2, 0],
        ["2", "3", "4"],
        THREE,
    ),
    ("triplets", "train"): (
        "nli",
        "nli/nli-triplets.csv",
        'sent0,sent1,hard_neg\n"A man, he sits.",He sits.,"He ""runs""."\nX,Y,Z\n',
        (["A man, he sits.", "X"], ["He sits.", "Y"]),
        None,
        ["2", "3"],
        None,
    ),
    ("duplicates", "train"): (
        "paraphrase",
        "paraphrase/qqp-duplicates.tsv",
        'sentence1\tsentence2\nHow "does?\tHow do?\nA\tB\n',
        (['How "does?', "A"], ["How do?", "B"]),
        None,
        ["2", "3"],
        None,
    ),
}
OPEN_PAIRS = "split\tsource\tsentence1\tsentence2\tsimilarity\n" + "".join(
    f'{split}\timages\tA "{split}.\tNo {split}.\t{grade}\n'
    for split, grade in (("train", 4.4), ("dev", 0), ("test", 5))
)
OPEN_NLI = "split\tlabel\tsentence1\tsentence2\n" + "".join(
    f'{split}\t{label}\tA "{split}.\tNo {split}.\n'
    for split, label in zip(("test", "train", "dev"), THREE)
)
OPEN_ONE = "split\tsource\tsentence\tsentiment\n" + "".join(
    f'{split}\tyelp\tA "{split}.\t{label}\n'
    for split, label in (("dev", 1), ("test", 0), ("train", 1))
)
for line, split in enumerate(("train", "dev", "test"), 2):
    pair = ([f'A "{split}.'], [f"No {split}."])
    EXAMPLES |= {
        ("similarity", split): (
            "similarity",
            "open/similarity.tsv",
            OPEN_PAIRS,
            pair,
            [{"train": 4.4, "dev": 0.0, "test": 5.0}[split]],
            [str(line)],
            (0, 5),
        ),
        ("inference", split): (
            "nli",
            "open/inference.tsv",
            OPEN_NLI,
            pair,
            [(line - 1) % 3],
            [str(2 + (line - 1) % 3)],
            THREE,
        ),
        ("sentiment", split): (
            "sentiment",
            "open/sentiment.tsv",
            OPEN_ONE,
            (pair[0], None),
            [int(split != "test")],
            [str(2 + (line - 3) % 3)],
            TWO,
        ),
    }
EXAMPLES["sentences", "train"] = (
    "text",
    "open/sentences.tsv",
    'source\tsentence\ntatoeba\tA "b.\nwikipedia\tC.\n',
    (['A "b.', "C."], None),
    None,
    ["2", "3"],
    None,
)
EXAMPLES["documents", "train"] = (
    "text",
    "open/documents.tsv",
    'article\tsentence\nRome\tA "b.\nRome\tC.\n',
    (['A "b.', "C."], None),
    None,
    ["Rome", "Rome"],
    None,
)
EXPECTED = {  # the splits that exist, written down once more so that a forgotten one is noticed
    **dict.fromkeys(
        ("sst", "cfimdb", "quora", "sts", "stsb", "stsb-cased", "sickr", "sst5", "snli"),
        {"train", "dev", "test"},
    ),
    **dict.fromkeys(("sentiment", "similarity", "inference"), {"train", "dev", "test"}),
    "sentences": {"train"},
    "documents": {"train"},
    "mrpc": {"train", "dev", "test"},
    "qnli": {"train", "dev"},
    "mnli": {"train", "dev"},
    "triplets": {"train"},
    "duplicates": {"train"},
}
MARK = b"\xef\xbb\xbf"
SAVED = {
    "plain": lambda b: b,
    "CRLF": lambda b: b.replace(b"\n", b"\r\n"),
    "mark": lambda b: MARK + b,
    "not ended": lambda b: b[:-1],
    "gz": lambda b: gzip.compress(b, mtime=0),
    "gz CRLF mark": lambda b: gzip.compress(MARK + b.replace(b"\n", b"\r\n"), mtime=0),
}


def put(folder: Path, path: str, content: str | bytes) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def short(path: str) -> str:
    """The path in a flat folder. SentEval uses one name for several datasets, so there the last
    folder stays.
    """
    parts = Path(path).parts
    return "/".join(parts[-2:]) if parts[0] == "senteval" else parts[-1]


# --- every dataset


@pytest.mark.parametrize("saved", SAVED)
@pytest.mark.parametrize("place", ["shared", "flat"])
@pytest.mark.parametrize("name, split", EXAMPLES, ids="-".join)
def test_every_split_in_every_layout(tmp_path, name, split, place, saved):
    kind, path, text, (first, second), labels, ids, meaning = EXAMPLES[name, split]
    path = (path if place == "shared" else short(path)) + ".gz" * saved.startswith("gz")
    put(tmp_path, path, SAVED[saved](text.encode()))
    got = load_dataset(name, split, tmp_path)
    assert (got.name, got.split, got.kind, got.skipped) == (name, split, kind, [])
    assert (got.sentences, got.sentences2, got.labels, got.ids) == (first, second, labels, ids)
    assert labels is None or [type(y) for y in got.labels] == [type(y) for y in labels]
    assert meaning == (got.scale if got.classes is None else got.classes) and (
        got.classes is None or got.scale is None
    )
    assert got.sentences3 == (['He "runs".', "Z"] if name == "triplets" else None)
    assert len(got) == len(first) and got.subsets is None
    assert load_dataset(name, split, str(tmp_path)) == got


def test_no_dataset_and_no_split_is_forgotten():
    assert {name for name, _ in EXAMPLES} == set(SOURCES) == set(EXPECTED)
    assert set(YEARS) == {"sts12", "sts13", "sts14", "sts15", "sts16"}
    for name, splits in EXPECTED.items():
        assert {
            s for s in ("train", "dev", "test") if any(source.file(s) for source in SOURCES[name])
        } == splits
        assert {split for other, split in EXAMPLES if other == name} == splits


@pytest.mark.parametrize(
    "name, split",
    [
        ("qnli", "test"),
        ("mnli", "test"),
        ("triplets", "dev"),
        ("triplets", "test"),
        ("duplicates", "dev"),
        ("sts12", "train"),
        ("sts16", "dev"),
    ],
)
def test_a_split_that_does_not_exist_is_refused(tmp_path, name, split):
    with pytest.raises(ValueError, match=f"{name}: there is no {split} split"):
        load_dataset(name, split, tmp_path)


@pytest.mark.parametrize("place", ["senteval/STS/", "STS/", ""])
@pytest.mark.parametrize("saved", ["plain", "CRLF", "mark", "not ended"])
@pytest.mark.parametrize("name", YEARS)
def test_every_year_with_pairs_that_were_never_scored(tmp_path, name, place, saved):
    folder, save = f"{place}STS{name[3:]}-en-test/STS.", SAVED[saved]
    put(tmp_path, folder + "input.surprise.OnWN.txt", save(b'a " b\tc\nd\te\textra\nf\tg\n'))
    put(tmp_path, folder + "gs.surprise.OnWN.txt", save(b"5\n\n0.25\n"))
    put(tmp_path, folder + "input.MSRpar.txt", save(b"never\tscored\nx \t y\n"))
    put(tmp_path, folder + "gs.MSRpar.txt", save(b"\n5.00\n"))
    got = load_dataset(name, "test", tmp_path)
    assert (got.name, got.split, got.kind, got.scale, got.classes) == (
        name,
        "test",
        "similarity",
        (0, 5),
        None,
    )
    assert (got.sentences, got.sentences2, got.labels) == (
        ["x", 'a " b', "f"],
        ["y", "c", "g"],
        [5.0, 5.0, 0.25],
    )
    assert got.ids == ["MSRpar-2", "surprise.OnWN-1", "surprise.OnWN-3"]
    assert got.subsets == ["MSRpar", "surprise.OnWN", "surprise.OnWN"]
    assert [(Path(where).name, why) for where, why in got.skipped] == [
        ("STS.gs.MSRpar.txt:1", "no score"),
        ("STS.gs.surprise.OnWN.txt:2", "no score"),
    ]


YEAR = {"input": "a\tb\nc\td\n", "gs": "1.0\n2.0\n"}


@pytest.mark.parametrize(
    "files, message",
    [
        (dict(gs="1.0\n"), r"STS\.gs\.X\.txt: expected 2 lines as in STS\.input\.X\.txt, got 1"),
        (dict(gs=None), r"STS\.gs\.X\.txt: expected a file, got none"),
        (dict(gs="1.0\n5.1\n"), r"STS\.gs\.X\.txt:2: expected a number from 0 to 5, got '5\.1'"),
        (dict(gs="nan\n1\n"), r"STS\.gs\.X\.txt:1: expected a number"),
        (
            dict(input="a\tb\nc d\n"),
            r"STS\.input\.X\.txt:2: expected two sentences and a tab between them, got 'c d'",
        ),
        (dict(input="a\tb\nc\t \n"), r"STS\.input\.X\.txt:2: expected two sentences"),
        (dict(input=None), r"sts14: expected files .*STS\.input\.\*\.txt, got none"),
        (dict(input=""), r"STS\.input\.X\.txt: expected text, got an empty file"),
        (dict(gs="\n\n"), r"STS\.gs\.X\.txt: expected text, got an empty file"),
        (dict(input=b"a\tb\nc\xff\td\n"), r"STS\.input\.X\.txt:2: expected UTF-8"),
    ],
    ids=str,
)
def test_a_broken_year_is_refused(tmp_path, files, message):
    for part, text in {**YEAR, **files}.items():
        if text is not None:
            put(tmp_path, f"STS14-en-test/STS.{part}.X.txt", text)
    with pytest.raises(ValueError, match=message):
        load_dataset("sts14", "test", tmp_path)


def test_a_bare_course_folder_has_stsb_under_the_name_of_sts(tmp_path):
    put(tmp_path, "sts-dev.csv", COURSE.format("similarity", "5", "1.0"))
    assert (
        load_dataset("stsb", "dev", tmp_path).labels
        == load_dataset("sts", "dev", tmp_path).labels
        == [5.0, 1.0]
    )
    # once it is there, STS-B is itself, and sts what it was
    put(tmp_path, "STSBenchmark/sts-dev.csv", STSB)
    assert load_dataset("stsb", "dev", tmp_path).sentences2 == ['a " man .']
    assert load_dataset("sts", "dev", tmp_path).labels == [5.0, 1.0]


def test_the_file_of_the_whole_path_comes_first_and_plain_before_packed(tmp_path):
    for i, path in reversed(
        list(
            enumerate(
                (
                    "cs224n/ids-sst-dev.csv",
                    "cs224n/ids-sst-dev.csv.gz",
                    "ids-sst-dev.csv",
                    "ids-sst-dev.csv.gz",
                )
            )
        )
    ):
        text = f"\tid\tsentence\tsentiment\n0\tx\tFine.\t{i}\n".encode()
        put(tmp_path, path, gzip.compress(text, mtime=0) if path.endswith("gz") else text)
        assert load_dataset("sst", "dev", tmp_path).labels == [i]


def test_a_labelled_test_file_is_read_where_there_is_no_unlabelled_one(tmp_path):
    put(tmp_path, "ids-sst-test.csv", SENTIMENT.format(4, 0))
    assert load_dataset("sst", "test", tmp_path).labels == [4, 0]
    put(tmp_path, "ids-sst-test-student.csv", STUDENT)
    assert load_dataset("sst", "test", tmp_path).labels is None


def test_columns_are_found_by_name(tmp_path):
    put(tmp_path, "quora-dev.csv", "is_duplicate\tsentence2\textra\tid\tsentence1\n1\tb\t?\tq\ta\n")
    got = load_dataset("quora", "dev", tmp_path)
    assert (got.sentences, got.sentences2, got.labels, got.ids) == (["a"], ["b"], [1], ["q"])


def test_blank_lines_and_blanks_around_cells_do_not_count(tmp_path):
    put(
        tmp_path,
        "snli-dev.tsv",
        "gold_label\tsentence1\tsentence2\n\n neutral \t a  b \t c\t\n\t\t\n".replace(
            "c\t\n", "c\n"
        ),
    )
    got = load_dataset("snli", "dev", tmp_path)
    assert (got.sentences, got.sentences2, got.labels, got.ids) == (["a  b"], ["c"], [1], ["3"])
    # blank lines are no rows
    assert got.skipped == [
        (f"{tmp_path / 'snli-dev.tsv'}:4", "expected a row, got separators alone")
    ]


def test_rows_of_separators_are_skipped_and_told_of_whatever_the_format(tmp_path):
    own = Format(("text", "y"), ("text",), "y", dialect="comma", classes=TWO)
    path = put(tmp_path, "own.csv", 'text,y\ngood,1\n,\n"",""\n\nbad,0\n')
    got = read_table(path, own)
    assert (got.sentences, got.ids, [where for where, _ in got.skipped]) == (
        ["good", "bad"],
        ["2", "6"],
        [f"{path}:3", f"{path}:4"],
    )


@pytest.mark.parametrize("packed", [False, True])
def test_plain_sentences(tmp_path, packed):
    text = "\n One. \r\n\nTwo.\tand a half\n"
    path = put(
        tmp_path,
        "corpus/docs.txt" + ".gz" * packed,
        gzip.compress(text.encode(), mtime=0) if packed else text,
    )
    got = load_dataset("corpus/" + path.name, "dev", tmp_path)
    assert (got.name, got.split, got.kind) == ("corpus/" + path.name, "dev", "text")
    assert (got.sentences, got.ids) == (["One.", "Two.\tand a half"], ["2", "4"])
    assert (got.sentences2, got.labels, label_tensor(got)) == (None, None, None)
    assert got.skipped == [(f"{path}:1", "blank line"), (f"{path}:3", "blank line")]
    assert (
        read_sentences(path).name == path.name and read_sentences(path).sentences == got.sentences
    )
    put(tmp_path, "empty.txt", "\n\n")
    with pytest.raises(ValueError, match=r"empty\.txt: expected text, got an empty file"):
        load_dataset("empty.txt", "train", tmp_path)


def test_what_a_folder_holds_is_seen_without_reading(tmp_path):
    assert available(tmp_path) == {} and available(tmp_path / "nowhere") == {}
    put(tmp_path, "cs224n/sts-dev.csv", b"\xff")  # not even readable
    put(tmp_path, "quora-train.csv.gz", b"")
    put(tmp_path, "STS/STS13-en-test/STS.input.FNWN.txt", "a\tb\n")
    put(tmp_path, "nli/mnli-dev-matched.tsv", "")
    put(tmp_path, "nli/mnli-train-sample.tsv", "")
    # loading it will say that it is a folder
    (tmp_path / "ids-sst-dev.csv").mkdir()
    assert available(str(tmp_path)) == {
        "sst": ["dev"],
        "quora": ["train"],
        "sts": ["dev"],
        "stsb": ["dev"],
        "mnli": ["train", "dev"],
        "sts13": ["test"],
    }
    whole = dict.fromkeys(
        ("sentiment", "similarity", "inference", "sst", "quora", "sts", "stsb"),
        ["train", "dev", "test"],
    )
    assert available() == whole | {
        "sentences": ["train"],
        "documents": ["train"],
        "bigram_shift": ["train", "dev", "test"],
    }


# --- the open data in the package


def test_the_package_holds_the_rows_that_its_notice_states():
    """The table of NOTICE.md: counts of every file and every file in it."""
    notice = Path(str(resources.files("minbert") / "assets/open/NOTICE.md"))
    rows = dict(re.findall(r"^\| `(\S+)` \| ([\d,]+(?: / [\d,]+)*) \|", notice.read_text(), re.M))
    assert {*rows, notice.name} == {path.name for path in notice.parent.iterdir()}
    for file, counts in rows.items():
        name = file.partition(".")[0]
        splits = ("train", "dev", "test") if "/" in counts else ("train",)
        assert [f"{len(load_dataset(name, split)):,}" for split in splits] == counts.split(" / ")


@pytest.mark.parametrize("name", ["sentiment", "similarity", "inference"])
def test_no_row_of_the_open_data_is_in_two_splits(name):
    """One pair of STS-B's captions is, in the original too: published so, and so kept."""
    splits = [load_dataset(name, split) for split in ("train", "dev", "test")]
    keys = [
        {
            frozenset(text.lower() for text in row)
            for row in zip(d.sentences, d.sentences2 or d.sentences)
        }
        for d in splits
    ]
    assert sum(len(a & b) for a, b in combinations(keys, 2)) == (name == "similarity")
    if name == "inference":
        assert not set(splits[0].sentences) & set(splits[1].sentences) | set(
            splits[0].sentences
        ) & set(splits[2].sentences)


def test_open_data_are_there_whatever_the_folder_and_a_folder_comes_first(tmp_path):
    assert load_dataset("sentiment", "dev", tmp_path) == load_dataset("sentiment", "dev")
    put(tmp_path, "open/sentiment.tsv", OPEN_ONE)
    assert load_dataset("sentiment", "dev", tmp_path).sentences == ['A "dev.']
    assert available(tmp_path) == {"sentiment": ["train", "dev", "test"]}


def test_a_row_of_no_known_split_and_a_split_without_rows_are_refused(tmp_path):
    file = put(tmp_path, "open/sentiment.tsv", OPEN_ONE + "valid\tyelp\tGood.\t1\n")
    with pytest.raises(ValueError, match=rf"{file}:5: expected a split of .*'test'.*, got 'valid'"):
        load_dataset("sentiment", "train", tmp_path)
    put(
        tmp_path,
        "open/sentiment.tsv",
        "".join(line for line in OPEN_ONE.splitlines(True) if not line.startswith("dev")),
    )
    with pytest.raises(ValueError, match=rf"{file}: expected at least one row of dev, got none"):
        load_dataset("sentiment", "dev", tmp_path)


# --- the larger sets, where somebody has them

# rows of a data folder that holds back a fifth of STS-B test, SICK-R test and Quora dev: (train,
# dev, test)
ROWS = {
    "sst": (8544, 1101, 2210),
    "cfimdb": (1707, 245, 488),
    "quora": (31376, 16169, None),
    "sts": (6040, 863, 1725),
    "stsb": (5749, 1500, 1103),
    "stsb-cased": (5749, 1500, 1103),
    "sickr": (4500, 500, 3942),
    "mrpc": (4076, None, 1725),
    "sst5": (8544, 1101, 2210),
    "qnli": (None, 5463, None),
    "snli": (None, 9842, 9824),
    "mnli": (9881, 9815, None),
    "triplets": (27552, None, None),
    "duplicates": (67754, None, None),
    "sts12": (None, None, 3108),
    "sts13": (None, None, 1500),
    "sts14": (None, None, 3750),
    "sts15": (None, None, 3000),
    "sts16": (None, None, 1186),
}
GAPS = {("quora", "dev"): 2, ("sts15", "test"): 5500, ("sts16", "test"): 7997}


@pytest.mark.skipif("MINBERT_DATA" not in os.environ, reason="MINBERT_DATA names no data folder")
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_larger_sets(name):
    for split, rows in zip(("train", "dev", "test"), ROWS[name]):
        if rows is not None:
            got = load_dataset(name, split, os.environ["MINBERT_DATA"])
            assert (len(got), len(got.skipped)) == (rows, GAPS.get((name, split), 0))


# --- refused

ONE, QUORA, SNLI = (
    "\tid\tsentence\tsentiment\n",
    "\tid\tsentence1\tsentence2\tis_duplicate\n",
    "gold_label\tsentence1\tsentence2\n",
)
BAD = {
    "missing label column": (
        "sst",
        "ids-sst-dev.csv",
        "\tid\tsentence\n0\ta\tFine\n",
        r"csv:1: expected columns \['sentence', 'sentiment'\]",
    ),
    "missing sentence column": (
        "sst",
        "ids-sst-dev.csv",
        "\tid\tsentiment\n0\ta\t1\n",
        r"csv:1: expected columns .*got \['', 'id', 'sentiment'\]",
    ),
    "missing second sentence": (
        "quora",
        "quora-dev.csv",
        "\tid\tsentence1\tis_duplicate\n0\ta\tFine\t1\n",
        r"csv:1: expected columns .*'sentence2'",
    ),
    "missing in the test file": (
        "sst",
        "ids-sst-test-student.csv",
        "0\t\tid\ttext\n1\t0.0\ta\tFine\n",
        r"csv:1: expected columns \['sentence'\]",
    ),
    "no header": ("sts", "sts-dev.csv", "0\ta\tb\tc\t1.0\n", r"csv:1: expected columns"),
    "commas for tabs": (
        "sst",
        "ids-sst-dev.csv",
        ",id,sentence,sentiment\n0,a,Fine,1\n",
        r"csv:1: expected columns .*tab.*separated by commas\?",
    ),
    "commas for tabs, and quotes": (
        "sst",
        "ids-sst-dev.csv",
        'sentence,sentiment\nFine,1\n"Fine, really",1\n',
        r"csv:3: expected matching CSV quotes .*separated by commas\?",
    ),
    "quotes that do not match": (
        "sst",
        "ids-sst-dev.csv",
        ONE + '0\ta\t"Fine\t1\n',
        r"csv:2: expected matching CSV quotes .*end of data$",
    ),
    "tabs for commas": (
        "triplets",
        "nli-triplets.csv",
        "sent0\tsent1\thard_neg\na\tb\tc\n",
        r"csv:1: expected columns .* comma dialect.*separated by tabs\?",
    ),
    "semicolons": (
        "snli",
        "snli-dev.tsv",
        "gold_label;sentence1;sentence2\nneutral;a;b\n",
        r"tsv:1: expected columns .*separated by semicolons\?",
    ),
    "commas, no header": (
        "stsb-cased",
        "STSBenchmark-cased/sts-dev.csv",
        "main,MSRvid,2012,0,5.0,a,b\n",
        r"csv:1: expected 7 or 9 cells \(raw\), got 1",
    ),
    "no blank after the digit": (
        "sst5",
        "fine/sentiment-dev",
        "3 good\n2\tbad\n",
        r"sentiment-dev:2: expected 2 cells \(space\), got 1",
    ),
    "a cell too few": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t1\n1\tb\tFine\n",
        r"csv:3: expected 4 cells \(tab\), got 3",
    ),
    "a cell too many": (
        "snli",
        "snli-dev.tsv",
        SNLI + "neutral\ta\tb\tc\n",
        r"tsv:2: expected 3 cells \(raw\), got 4",
    ),
    "label above": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t4\n1\tb\tFine\t5\n",
        r"csv:3: expected a whole number from 0 to 4, got '5'",
    ),
    "label below": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t-1\n",
        r"csv:2: expected a whole number from 0 to 4, got '-1'",
    ),
    "half a label": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t1.5\n",
        r"csv:2: expected a whole number",
    ),
    "two classes only": (
        "cfimdb",
        "ids-cfimdb-dev.csv",
        ONE + "0\ta\tFine\t2\n",
        r"csv:2: expected a whole number from 0 to 1, got '2'",
    ),
    "NaN class": (
        "quora",
        "quora-dev.csv",
        QUORA + "0\ta\tb\tc\tnan\n",
        r"csv:2: expected a whole number from 0 to 1, got 'nan'",
    ),
    "NaN score": (
        "sts",
        "sts-dev.csv",
        "\tid\tsentence1\tsentence2\tsimilarity\n0\ta\tb\tc\tNaN\n",
        r"csv:2: expected a number from 0 to 5, got 'NaN'",
    ),
    "score above": (
        "stsb-cased",
        "STSBenchmark-cased/sts-dev.csv",
        STSB + STSB.replace("5.000", "5.001"),
        r"csv:2: expected a number from 0 to 5",
    ),
    "SICK starts at 1": (
        "sickr",
        "SICK/SICK_trial.txt",
        SICK.replace("\t1\t", "\t0.9\t"),
        r"trial\.txt:3: expected a number from 1 to 5, got '0\.9'",
    ),
    "a word for a number": (
        "sts",
        "sts-dev.csv",
        "\tid\tsentence1\tsentence2\tsimilarity\n0\ta\tb\tc\thigh\n",
        r"csv:2: expected a number .*'high'",
    ),
    "unknown word": (
        "snli",
        "snli-dev.tsv",
        SNLI + "neutral\ta\tb\nmaybe\ta\tb\n",
        r"tsv:3: expected a label of \('entailment'.*got 'maybe'",
    ),
    "no label": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t\n",
        r"csv:2: expected a label in 'sentiment', got nothing",
    ),
    "- is a label in SNLI only": (
        "qnli",
        "qnli-dev.tsv",
        "index\tquestion\tsentence\tlabel\n0\ta\tb\t-\n",
        r"tsv:2: expected a label of",
    ),
    "empty sentence": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\t \t1\n",
        r"csv:2: expected text in 'sentence', got nothing",
    ),
    "empty left side": (
        "sts",
        "sts-dev.csv",
        "\tid\tsentence1\tsentence2\tsimilarity\n0\ta\t\tc\t1\n",
        r"csv:2: expected text in 'sentence1', got nothing",
    ),
    "empty right side": (
        "stsb-cased",
        "STSBenchmark-cased/sts-dev.csv",
        STSB + "m\tM\t1\t2\t3.0\tb\t \n",
        r"csv:2: expected text in 'sentence2', got nothing",
    ),
    "empty negative": (
        "triplets",
        "nli-triplets.csv",
        "sent0,sent1,hard_neg\na,b,\n",
        r"csv:2: expected text in 'hard_neg', got nothing",
    ),
    "names again": (
        "triplets",
        "nli-triplets.csv",
        "sent0,sent1,hard_neg\na,b,c\nsent0,sent1,hard_neg\nd,e,f\n",
        r"csv:3: expected a row, got the names of the columns again",
    ),
    "names again, other dialect": (
        "duplicates",
        "paraphrase/qqp-duplicates.tsv",
        "sentence1\tsentence2\na\tb\nsentence1\tsentence2\n",
        r"tsv:3: expected a row, got the names",
    ),
    "names again, with a label": (
        "sst",
        "ids-sst-dev.csv",
        ONE + "0\ta\tFine\t1\n" + ONE,
        r"csv:3: expected a row, got the names",
    ),
    "empty file": ("sst", "ids-sst-dev.csv", "", r"csv: expected text, got an empty file"),
    "only a header": (
        "sst",
        "ids-sst-dev.csv",
        ONE,
        r"csv: expected at least one row, got none \(0 skipped\)",
    ),
    "only gaps": (
        "quora",
        "quora-dev.csv",
        QUORA + "0\ta\tb\tc\t\n1\ta\t\tc\t1\n",
        r"csv: expected at least one row, got none \(2 skipped\)",
    ),
    "not UTF-8": (
        "sst",
        "ids-sst-dev.csv",
        (ONE + "0\ta\tFine\t1\n1\tb\t").encode() + b"Caf\xe9\t1\n",
        r"csv:3: expected UTF-8 text, got the byte 0xe9",
    ),
    "open quote": (
        "sst",
        "ids-sst-dev.csv",
        ONE + '0\ta\tFine\t1\n1\tb\t"Fine\t1\n2\tc\tBad\t0\n',
        r"csv:3: expected matching CSV quotes",
    ),
    "cut gzip": (
        "sst",
        "ids-sst-dev.csv.gz",
        gzip.compress(SENTIMENT.format(1, 2).encode() * 20, mtime=0)[:-12],
        r"csv\.gz: expected a readable file",
    ),
    "not a gzip": (
        "sst",
        "ids-sst-dev.csv.gz",
        SENTIMENT.format(1, 2),
        r"csv\.gz: expected a readable file",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_file_and_line(tmp_path, case):
    name, path, text, message = BAD[case]
    file = put(tmp_path, path, text)
    split = "train" if name in ("triplets", "duplicates") else "test" if "test" in path else "dev"
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset(name, split, tmp_path)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize("name", ["sentences", "sentences2", "labels"])
def test_a_mapping_is_no_column(name):
    """A slice of a datasets.Dataset is one, and its keys are not the rows."""
    columns = {"sentences": ["a", "b"], "sentences2": ["c", "d"], "labels": [0.5, 1.0]}
    with pytest.raises(ValueError, match="expected a list as a column, got a dict with the keys "):
        Dataset("t", "train", "similarity", **columns | {name: dict.fromkeys(columns[name], 1)})


def test_an_unknown_name_or_split_or_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a dataset of .*'sst'.*'sts16'.*, got 'imdb'"):
        load_dataset("imdb", "train", tmp_path)
    for split in ("valid", "validation", "", None):
        with pytest.raises(ValueError, match=f"expected .*split.*got {split!r}"):
            load_dataset("sst", split, tmp_path)
    with pytest.raises(
        ValueError,
        match="sickr dev: expected one of these files .*got none: .*senteval/SICK/SICK_trial.txt",
    ) as caught:
        load_dataset("sickr", "dev", tmp_path)
    assert "SICK/SICK_trial.txt" in str(caught.value)
    with pytest.raises(ValueError, match="ids-sst-train.csv"):
        load_dataset("sst", "train", tmp_path / "nowhere")


def test_the_two_bad_rows_of_quora_are_counted_and_reported(tmp_path):
    file = put(
        tmp_path,
        "cs224n/quora-dev.csv",
        QUORA + '1\tk1\tWhy?\tHow?\t1.0\n65479\tad118c\tAny idea?\t"""Where can I?"\t\n'
        '2\tk2\tWho?\tWhat?\t0.0\n264614\t905434\t"""Given a set?"\t\t\n3\tk3\tIs it?\tIt is?\t1.0\n',
    )
    got = load_dataset("quora", "dev", tmp_path)
    assert (got.ids, got.labels, got.sentences) == (
        ["k1", "k2", "k3"],
        [1, 0, 1],
        ["Why?", "Who?", "Is it?"],
    )
    assert got.skipped == [
        (f"{file}:3", "expected a label in 'is_duplicate', got nothing"),
        (f"{file}:5", "expected a label in 'is_duplicate', got nothing"),
    ]
    put(tmp_path, "cs224n/quora-dev.csv", QUORA + "1\tk1\tWhy?\tHow?\t1.0\n2\tk2\tWho?\t \t0.0\n")
    assert load_dataset("quora", "dev", tmp_path).skipped == [
        (f"{file}:3", "expected text in 'sentence2', got nothing")
    ]


def test_pairs_without_a_majority_are_reported(tmp_path):
    file = put(tmp_path, "nli/snli-dev.tsv", SNLI + "-\ta\tb\nneutral\tc\td\nneutral\t\te\n")
    got = load_dataset("snli", "dev", tmp_path)
    assert (got.sentences, got.ids, [where for where, _ in got.skipped]) == (
        ["c"],
        ["3"],
        [f"{file}:2", f"{file}:4"],
    )


def test_a_table_of_ones_own(tmp_path):
    form = Format(("q", "a", "grade"), ("q", "a"), "grade", dialect="comma", scale=(0, 10))
    file = put(tmp_path, "own.csv", 'grade,a,q\n7.5,"Yes\nit is.",Is it?\n')
    got = read_table(file, form, "similarity")
    assert (got.name, got.split, got.kind) == ("own.csv", "train", "similarity")
    assert (got.sentences, got.sentences2, got.labels, got.ids) == (
        ["Is it?"],
        ["Yes it is."],
        [7.5],
        ["2"],
    )
    put(tmp_path, "own.csv", "a,q\nYes,Is it?\n")
    with pytest.raises(ValueError, match="own.csv:1: expected columns"):
        read_table(file, form, "similarity")


# --- the shape of a dataset


def shuffled(values):
    """Give a column of pandas after a shuffle: its row 0 is no longer called 0."""
    return pd.Series(values, index=range(len(values))[::-1])


@pytest.mark.parametrize(
    "column", [shuffled, np.array, tuple, iter], ids=["pandas", "numpy", "tuple", "iterator"]
)
def test_columns_of_other_libraries_keep_their_rows_together(column):
    texts, others, labels = ["a b", "c", "d e"], ["x", "y z", "w"], [0, 1, 2]
    data = Dataset(
        "own",
        "train",
        "nli",
        column(texts),
        column(others),
        column(labels),
        column(["r", "s", "t"]),
        ("n", "m", "y"),
    )
    assert len(data) == 3 and label_tensor(data).tolist() == labels
    for rows in ([2, 0], [1]):
        part = data.subset(rows)
        assert [*zip(part.sentences, part.sentences2, part.labels, part.ids)] == [
            (texts[i], others[i], labels[i], "rst"[i]) for i in rows
        ]
        assert not any(isinstance(label, np.generic) for label in part.labels)


def test_labels_of_torch_become_numbers():
    data = Dataset(
        "own", "train", "sentiment", ["a", "b"], labels=torch.tensor([1, 0]), classes=("n", "y")
    )
    assert data.labels == [1, 0] and label_tensor(data).tolist() == [1, 0]


@pytest.mark.parametrize(
    "given, said",
    [
        (None, "expected a list of str, got NoneType"),
        (3, "got int: 3"),
        ("a b", "got one str"),
        (np.array("a"), "got one str"),
        (pd.Series(["a", None]), "sentence 1, got"),
        (pd.DataFrame({"s": ["a"]}), "got a DataFrame"),
        (np.array([["a"]]), "sentence 0, got list"),
    ],
)
def test_what_is_no_column_of_texts_is_named(given, said):
    # no partners at all are none
    for columns in ([given], [["a", "b"], given])[: 1 if given is None else 2]:
        with pytest.raises(
            ValueError,
            match=re.escape(f"own train, sentences{'2' if len(columns) > 1 else ''}: ")
            + ".*"
            + re.escape(said),
        ):
            Dataset("own", "train", "text", *columns)


def test_a_subset_takes_every_column_along():
    whole = Dataset(
        "t",
        "dev",
        "nli",
        ["a", "b", "c"],
        ["x", "y", "z"],
        [0, 1, 2],
        ["i", "j", "k"],
        THREE,
        None,
        ["p", "q", "r"],
        ["s", "s", "u"],
        [("f:3", "why")],
    )
    part = whole.subset(torch.tensor([2, 0, 2]))
    assert part == Dataset(
        "t",
        "dev",
        "nli",
        ["c", "a", "c"],
        ["z", "x", "z"],
        [2, 0, 2],
        ["k", "i", "k"],
        THREE,
        None,
        ["r", "p", "r"],
        ["u", "s", "u"],
        [("f:3", "why")],
    )
    assert len(part) == 3 and whole.sentences == ["a", "b", "c"]
    bare = Dataset("t", "dev", "text", ["a", "b"])
    assert (
        bare.ids == ["0", "1"] and bare.subset([1]).ids == ["1"] and bare.subset([1]).labels is None
    )


def test_a_draw_is_a_seeded_sample_without_repeats():
    whole = Dataset(
        "t",
        "dev",
        "sentiment",
        list("abcdefghij"),
        labels=list(range(10)),
        classes=tuple("0123456789"),
    )
    dice = torch.Generator().manual_seed(5)
    first, second = whole.draw(4, dice), whole.draw(4, dice)
    assert first == whole.draw(4, torch.Generator().manual_seed(5)) and first.ids != second.ids
    assert len(set(first.sentences)) == 4 and all(
        whole.sentences[y] == x for x, y in zip(first.sentences, first.labels)
    )
    assert sorted(whole.draw(99, dice).sentences) == whole.sentences
    often = [0] * 10
    for _ in range(2000):
        for y in whole.draw(3, dice).labels:
            often[y] += 1
    assert min(often) > 500 and max(often) < 700  # 600 each, standard deviation 20


@pytest.mark.parametrize("bad", [math.nan, None, 7, "\ud800"])
def test_a_sentence_that_is_no_text_is_refused_by_its_row(bad):
    with pytest.raises(
        ValueError, match=r"x train, sentences: expected (a str|valid Unicode) for sentence 1, got"
    ):
        Dataset("x", "train", "text", ["a", bad])
    with pytest.raises(ValueError, match="x train, sentences2: expected .* for sentence 0"):
        Dataset("x", "train", "nli", ["a"], [bad])


@pytest.mark.parametrize("bad", [0.9, -0.5, math.nan, math.inf, None, "1"])
def test_a_label_that_is_no_class_is_refused_by_its_row(bad):
    with pytest.raises(
        ValueError,
        match="x train: expected a whole number, that of a class, as label at row 1, got",
    ):
        label_tensor(Dataset("x", "train", "sentiment", ["a", "b"], labels=[1.0, bad], classes=TWO))
    if not isinstance(bad, float) or not math.isfinite(bad):
        with pytest.raises(
            ValueError, match="x train: expected a finite number as label at row 0, got"
        ):
            label_tensor(Dataset("x", "train", "similarity", ["a"], ["b"], [bad], scale=(0, 5)))


@pytest.mark.parametrize("column", ["sentences2", "sentences3", "labels", "ids", "subsets"])
def test_columns_of_unequal_length_are_refused(column):
    with pytest.raises(ValueError, match=f"expected 2 {column}, got 1"):
        Dataset("t", "dev", "nli", ["a", "b"], **{column: ["x"]})


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="expected a kind of .*'sentiment'.*, got 'story'"):
        Dataset("t", "dev", "story", ["a"])


# --- fetching


def hub_rows(name: str) -> tuple[list[dict], tuple]:
    """Rows as the hub has them, and what must be read back: sentences, sentences2, sentences3,
    labels.
    """
    columns = HUB[name][2]
    texts = [
        ['A\tdog "runs".', "Two\nlines, one."],
        ["It moves.", "caf\u00e9"],
        ["Third.", "Last."],
    ][: sum(c not in ("label", "score") for c in columns)]
    labels = [1, 0] if "label" in columns else [3.25, 1.0] if "score" in columns else None
    rows = [dict(zip(columns, row)) for row in zip(*texts, *([labels] if labels else []))]
    read = [['A dog "runs".', "Two lines, one."], *texts[1:]] + [None, None]
    if name in ("sst", "quora", "triplets"):
        read[0][0] = texts[0][0]  # CSV quoting holds a tab
    return rows, (read[0], read[1], read[2], labels)


# these: tests/test_splits.py
@pytest.mark.parametrize("name", [name for name in HUB if name not in ("sts", "sickr", *YEARS)])
def test_every_dataset_that_can_be_fetched_is_read_back(tmp_path, name):
    rows, (first, second, third, labels) = hub_rows(name)
    home, part, columns, splits = HUB[name]
    asked = []

    def source(where, which, split):
        asked.append((where, which, split))
        return [{**row, "idx": i} for i, row in enumerate(rows)]

    paths = download(name, tmp_path / "home", source)
    assert asked == [(home, part, word) for word in splits.values()] and "/" in home
    assert sorted(paths) == sorted(p for p in (tmp_path / "home").rglob("*") if p.is_file())
    for split in splits:
        got = load_dataset(name, split, tmp_path / "home")
        assert (got.sentences, got.sentences2, got.labels, got.skipped) == (
            first,
            second,
            labels,
            [],
        )
        assert got.sentences3 == third and got.name == name
        assert len(set(got.ids)) == 2


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """The real `datasets` library, with its cache in a folder of this test and no way to the hub."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return datasets


def test_a_folder_plays_the_hub(tmp_path, offline):
    for word, label in (("train", 0), ("validation", 2), ("test", 1)):
        rows = [
            {"premise": "A\tdog runs.", "hypothesis": 'It "moves".', "label": label},
            {"premise": "A", "hypothesis": "B", "label": -1},
        ]
        put(
            tmp_path,
            f"hub/stanfordnlp/snli/{word}.jsonl",
            "".join(json.dumps(row) + "\n" for row in rows),
        )
    paths = download("snli", tmp_path / "home", tmp_path / "hub")
    assert [str(p.relative_to(tmp_path / "home")) for p in paths] == [
        "nli/snli-train.tsv",
        "nli/snli-dev.tsv",
        "nli/snli-test.tsv",
    ]
    for split, label in (("train", 0), ("dev", 2), ("test", 1)):
        got = load_dataset("snli", split, tmp_path / "home")
        assert (got.sentences, got.sentences2, got.labels, len(got.skipped)) == (
            ["A dog runs."],
            ['It "moves".'],
            [label],
            1,
        )


def test_a_folder_with_a_part_and_a_gap_plays_the_hub(tmp_path, offline):
    """Quora lies in glue/qqp. A cell without text arrives as None, and must be skipped, not read as
    the word None.
    """
    for word in ("train", "validation"):
        put(
            tmp_path,
            f"hub/nyu-mll/glue/qqp/{word}.csv",
            "question1,question2,label,idx\nWhy?,How?,1,0\nWho?,,0,1\nIs it?,It is?,0,2\n",
        )
    download("quora", tmp_path / "home", str(tmp_path / "hub"))
    for split in ("train", "dev"):
        got = load_dataset("quora", split, tmp_path / "home")
        assert (got.sentences, got.labels, len(got.skipped)) == (["Why?", "Is it?"], [1, 0], 1)


def test_without_a_source_the_hub_is_asked_and_no_network_is_a_valueerror(
    tmp_path, monkeypatch, offline
):
    asked = []

    def no_network(*args, **kwargs):
        asked.append((args, kwargs))
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(offline, "load_dataset", no_network)
    with pytest.raises(
        ValueError, match="nyu-mll/glue: expected .*ConnectionError: Couldn't reach the Hub"
    ):
        download("mrpc", tmp_path / "home")
    assert asked == [(("nyu-mll/glue", "mrpc"), {"split": "train"})]
    assert list((tmp_path / "home").rglob("*")) == []
    monkeypatch.undo()
    with pytest.raises(ValueError, match="stanfordnlp/snli: expected"):
        download("snli", tmp_path / "home", tmp_path / "no such folder")


PAIR = {"sentence1": "a", "sentence2": "b", "score": 1.5}


def breaks_off(split):
    yield PAIR
    if split == "test":
        raise ConnectionError("no route to host")


def stopped(split):
    yield PAIR
    if split == "validation":
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "rows, error, message",
    [
        (breaks_off, ValueError, "mteb/stsbenchmark-sts: .*no route to host"),
        (stopped, KeyboardInterrupt, None),
        (lambda split: [{**PAIR, "score": 7.0}], ValueError, "from 0 to 5, got '7.0'"),
        (lambda split: [PAIR, {**PAIR, "sentence2": " "}], ValueError, "'sentence2'"),
        (lambda split: [PAIR, {**PAIR, "sentence1": None}], ValueError, "'sentence1'"),
        (lambda split: [PAIR, {**PAIR, "score": None}], ValueError, "label"),
        (lambda split: [{"sentence1": "a", "sentence2": "b"}], ValueError, "score"),
        (lambda split: [], ValueError, "expected"),
    ],
    ids=[
        "breaks off",
        "stopped",
        "score",
        "empty side",
        "None side",
        "None score",
        "no column",
        "no rows",
    ],
)
def test_whatever_goes_wrong_in_a_download_nothing_stays_behind(tmp_path, rows, error, message):
    home = tmp_path / "home"
    with pytest.raises(error, match=message):
        download("stsb", home, lambda where, part, split: rows(split))
    assert [p for p in tmp_path.rglob("*") if p.is_file() or p.name.startswith(".")] == []
    download("stsb", home, lambda where, part, split: [PAIR])
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    assert len(before) == 3
    with pytest.raises(error, match=message):
        download("stsb", home, lambda where, part, split: rows(split))
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before and not list(
        home.glob(".*")
    )


@pytest.mark.parametrize("label", [3, -2, 0.5, "neutral"])
def test_a_class_that_the_hub_should_not_have_is_refused(tmp_path, label):
    with pytest.raises(ValueError, match="stanfordnlp/snli|label"):
        download(
            "snli",
            tmp_path,
            lambda *_, split: [
                {"premise": "a", "hypothesis": "b", "label": 0},
                {"premise": "a", "hypothesis": "b", "label": label},
            ],
        )
    assert list(tmp_path.rglob("*")) == []


def test_a_pair_whose_label_the_hub_does_not_know_is_skipped_and_reported(tmp_path):
    rows = [{"premise": "a", "hypothesis": "b", "label": label} for label in (2, -1, None)]
    download("snli", tmp_path, lambda *_, split: rows)
    got = load_dataset("snli", "test", tmp_path)
    assert (got.labels, [where.rsplit(":", 1)[1] for where, _ in got.skipped]) == ([2], ["3", "4"])


def test_a_name_that_cannot_be_fetched_is_refused(tmp_path):
    for name in ("imdb", "cfimdb"):
        with pytest.raises(ValueError, match=f"expected one of .*'sst'.*, got {name!r}"):
            download(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- batches

TEXTS = [
    "The film.",
    "A much longer sentence about a film and its ending.",
    "Yes.",
    "It is not so bad, after all.",
    "No, it is.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


@pytest.fixture
def tasks():
    return {
        "sst": Dataset("sst", "train", "sentiment", TEXTS, labels=[0, 4, 2, 1, 3], classes=FIVE),
        "sts": Dataset(
            "sts", "train", "similarity", TEXTS[:3], TEXTS[2:], [0.5, 5.0, 3.25], scale=(0, 5)
        ),
        "text": Dataset("text", "train", "text", TEXTS[:4]),
    }


def test_labels_are_classes_or_scores(tasks):
    for name, expected in (
        ("sst", torch.tensor([0, 4, 2, 1, 3])),
        ("sts", torch.tensor([0.5, 5.0, 3.25])),
    ):
        got = label_tensor(tasks[name])
        assert got.dtype == expected.dtype and torch.equal(got, expected)
    assert label_tensor(Dataset("t", "dev", "similarity", ["a"], ["b"], [3])).dtype == torch.float32
    assert label_tensor(tasks["text"]) is None


def assert_rows(batch: TaskBatch, dataset: Dataset, rows: list[int], tokenizer, max_length=512):
    """The tokens of each row, padding after them, the labels beside them."""
    for tokens, column in ((batch.first, dataset.sentences), (batch.second, dataset.sentences2)):
        if column is None:
            assert tokens is None
            continue
        expected = encode_ids(tokenizer, [column[i] for i in rows], max_length)
        width = max(map(len, expected))
        assert tokens.input_ids.dtype == tokens.attention_mask.dtype == torch.int64
        assert tokens.input_ids.tolist() == [
            ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in expected
        ]
        assert tokens.attention_mask.tolist() == [
            [1] * len(ids) + [0] * (width - len(ids)) for ids in expected
        ]
    if dataset.labels is None:
        assert batch.labels is None
    else:
        assert (
            torch.equal(batch.labels, label_tensor(dataset)[rows])
            and batch.labels.dtype == label_tensor(dataset).dtype
        )
    assert len(batch) == len(rows)


@pytest.mark.parametrize("strategy", ["joint", "round_robin", "sqrt"])
@pytest.mark.parametrize("max_length", [512, 6])
def test_batches_hold_the_rows_of_the_sampler(tasks, tokenizer, strategy, max_length):
    options = dict(
        sizes={task: len(d) for task, d in tasks.items()},
        batch_sizes=2,
        strategy=strategy,
        epochs=2,
    )
    steps = list(task_batches(tasks, tokenizer, TaskSampler(**options), max_length))
    drawn = list(TaskSampler(**options))
    assert len(steps) == len(drawn) and all(
        list(step) == list(rows) for step, rows in zip(steps, drawn)
    )
    for step, rows in zip(steps, drawn):
        for task, batch in step.items():
            assert batch.task == task and batch.weight == 1.0
            assert_rows(batch, tasks[task], rows[task].tolist(), tokenizer, max_length)
            assert batch.first.input_ids.shape[1] <= max_length


def test_batches_carry_the_weight_of_their_process(tasks, tokenizer):
    sets = {"sst": tasks["sst"]}
    weights = [
        [
            step["sst"].weight
            for step in task_batches(
                sets, tokenizer, TaskSampler({"sst": 5}, 3, rank=rank, world=2)
            )
        ]
        for rank in (0, 1)
    ]
    # batches of three and two rows, for two processes
    assert_close(weights, [[4 / 3, 1.0], [2 / 3, 1.0]])


def test_batches_continue_with_the_sampler(tasks, tokenizer):
    sets = {"sst": tasks["sst"], "sts": tasks["sts"]}

    def make():
        return TaskSampler({"sst": 5, "sts": 3}, 2, "uniform", epochs=3)

    whole = list(task_batches(sets, tokenizer, make()))
    first, second = make(), make()
    for _, _ in zip(range(4), task_batches(sets, tokenizer, first)):
        pass
    second.load_state_dict(first.state_dict())
    rest = list(task_batches(sets, tokenizer, second))
    assert len(rest) == len(whole) - 4
    for a, b in zip(rest, whole[4:]):
        assert list(a) == list(b) and all(
            torch.equal(a[t].first.input_ids, b[t].first.input_ids)
            and torch.equal(a[t].labels, b[t].labels)
            for t in a
        )


def test_a_batch_moves_whole(tasks, tokenizer):
    sizes = {task: len(d) for task, d in tasks.items()}
    for task, batch in next(
        iter(task_batches(tasks, tokenizer, TaskSampler(sizes, 2, "joint", world=2)))
    ).items():
        moved = batch.to("meta")
        assert isinstance(moved, TaskBatch) and (moved.task, moved.weight, len(moved)) == (
            task,
            batch.weight,
            len(batch),
        )
        for a, b in ((batch.first, moved.first), (batch.second, moved.second)):
            assert (a is None) == (b is None)
            assert a is None or (
                b.input_ids.device.type == b.attention_mask.device.type == "meta"
                and a.input_ids.device.type == "cpu"
            )
        assert (batch.labels is None) == (moved.labels is None)
        assert batch.labels is None or (
            moved.labels.device.type == "meta" and moved.labels.dtype == batch.labels.dtype
        )


@pytest.mark.parametrize("sizes", [{"sst": 4}, {"sst": 5, "sts": 3}, {"quora": 5}])
def test_a_sampler_over_other_rows_is_refused(tasks, tokenizer, sizes):
    with pytest.raises(ValueError, match=r"expected a sampler over \{'sst': 5\}, got"):
        next(iter(task_batches({"sst": tasks["sst"]}, tokenizer, TaskSampler(sizes))))
