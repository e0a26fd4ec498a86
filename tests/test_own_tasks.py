"""Labels of one's own: what is read, which head learns it, what is saved with the model, and what
it answers.
"""

import csv
import gzip
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from scipy.special import expit, softmax
from sentence_transformers import SentenceTransformer
from terminal import run

from minbert.cli import labelled_model as module
from minbert.cli.commands import usual_tasks
from minbert.cli.custom_tasks import answers_of, build_heads, load_own, misnamed, own_tasks
from minbert.cli.dev_report import against_words, scale_notes, seen_in_training
from minbert.cli.labelled_model import (
    LabelledModel,
    OutputLabels,
    answer_columns,
    with_labels,
    write_answers,
)
from minbert.cli.table_reader import read_named, text_columns, whole_table
from minbert.core.run_dir import read_log
from minbert.data import Dataset, load_dataset
from minbert.encoder import BertConfig, BertModel
from minbert.heads import ConcatDiff, CosineHead, LinearHead, LinearPlusCosine, MultitaskBert
from minbert.sentence import SentenceEncoder
from minbert.tokens import load_tokenizer

CLASSES = [
    ("the lamp is red", "lamp"),
    ("a river of stone", "river"),
    ("one more lamp", "lamp"),
    ("rivers run", "river"),
    ("a dog, no lamp", "dog"),
    ("dogs run", "dog"),
]
GRADED = [("a b", "a c", 0.5), ("d e", "f g", 0), ("h", "h", 1), ("i", "j k", 0.25)]


def write(path, header, rows):
    """Write a table as its ending says."""
    if path.suffix == ".parquet":
        pd.DataFrame(list(rows), columns=header).to_parquet(path)
        return path
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps(dict(zip(header, row))) + "\n" for row in rows)
        else:
            csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",").writerows(
                [header, *rows]
            )
    return path


def tiny(seed=0) -> SentenceEncoder:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(load_tokenizer()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return SentenceEncoder(BertModel(config), load_tokenizer())


@pytest.fixture
def mine(tmp_path):
    """A folder with a task of classes and one of scores, and an encoder beside it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "dev"):
        write(folder / f"thing-{split}.csv", ("sentence", "label"), CLASSES)
        write(folder / f"alike-{split}.jsonl", ("sentence1", "sentence2", "score"), GRADED)
    tiny().save_pretrained(tmp_path / "tiny")
    return folder


def test_text_does_for_sentence_where_there_is_none(tmp_path):
    rows = [(text, name, "other") for text, name in CLASSES]
    write(tmp_path / "t-train.csv", ("text", "label", "x"), rows)
    write(
        tmp_path / "t-dev.csv",
        ("x", "label", "sentence", "text"),
        [("y", name, text, "not this") for text, name in CLASSES],
    )
    for split in ("train", "dev"):
        assert load_own("t", split, tmp_path).sentences == [text for text, _ in CLASSES]
    assert (
        read_named(tmp_path / "t-train.csv", None).sentences
        == read_named(tmp_path / "t-dev.csv", None).sentences
        == [text for text, _ in CLASSES]
    )
    assert read_named(tmp_path / "t-dev.csv", ["text"]).sentences == ["not this"] * 6
    assert text_columns(["text", "sentence1"], True) == ["sentence1", "sentence2"]
    with pytest.raises(
        ValueError,
        match=r"u.csv: expected a column sentence, or text, got \['Text', 'id'\]: --columns says which to take",
    ):
        read_named(write(tmp_path / "u.csv", ("Text", "id"), [("a b", 1)]), None)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
def test_a_file_of_any_kind_becomes_rows_and_classes(tmp_path, ending):
    write(
        tmp_path / f"thing-train.{ending}",
        ("number", "label", "sentence"),
        [(i, name, text) for i, (text, name) in enumerate(CLASSES)],
    )
    data = load_own("thing", "train", tmp_path)
    assert (data.name, data.split, data.kind, data.classes, data.scale) == (
        "thing",
        "train",
        "sentiment",
        ("dog", "lamp", "river"),
        None,
    )
    assert data.sentences == [text for text, _ in CLASSES] and data.sentences2 is None
    assert [data.classes[i] for i in data.labels] == [name for _, name in CLASSES]
    # no line is spent on the names of the columns
    named = "jsonl" in ending or ending == "parquet"
    assert data.ids == [str(line) for line in range(1 + (not named), 7 + (not named))]


def test_pairs_have_classes_or_scores(tmp_path):
    write(
        tmp_path / "same-train.csv",
        ("sentence1", "sentence2", "label"),
        [("a", "b", "no"), ("c", "d", "yes")] * 2,
    )
    write(tmp_path / "alike-train.csv", ("sentence1", "sentence2", "score"), GRADED)
    same, alike = (load_own(task, "train", tmp_path) for task in ("same", "alike"))
    assert (same.kind, same.classes, same.labels) == ("nli", ("no", "yes"), [0, 1, 0, 1])
    assert (alike.kind, alike.classes, alike.scale, alike.labels) == (
        "similarity",
        None,
        (0, 5),
        [2.5, 0, 5, 1.25],
    )
    assert alike.sentences2 == ["a c", "f g", "h", "j k"]


@pytest.mark.parametrize(
    "scores, scale",
    [
        ((0, 0.3, 0.9), (0, 1)),
        ((0, 1), (0, 1)),
        ((1, 4, 3), (0, 5)),
        ((0, 1.01), (0, 5)),
        ((1, 7, 3), (1, 7)),
        ((-1, 1), (-1, 1)),
        ((-3, -2), (-3, -2)),
        ((0, 100), (0, 100)),
    ],
)
def test_a_scale_is_chosen_by_the_train_file(tmp_path, scores, scale):
    write(
        tmp_path / "alike-train.csv",
        ("sentence1", "sentence2", "score"),
        [("a", "b", x) for x in scores],
    )
    # its own are not asked
    write(
        tmp_path / "alike-dev.csv",
        ("sentence1", "sentence2", "score"),
        [("a", "b", 0.5), ("c", "d", 2)],
    )
    names, data = answers_of(tmp_path, "alike"), load_own("alike", "dev", tmp_path)
    assert names == OutputLabels(scale=scale)
    low, high = scale
    assert data.labels == pytest.approx(
        [5 * (0.5 - low) / (high - low), 5 * (2 - low) / (high - low)]
    )
    assert [names.shrunk(x) for x in data.labels] == pytest.approx([0.5, 2])
    # the lines of the file, by which an answer is looked up
    assert data.ids == ["2", "3"]


def test_numbers_as_classes_stand_in_their_order(tmp_path):
    write(
        tmp_path / "n-train.csv",
        ("sentence", "label"),
        [(f"text {i}", x) for i, x in enumerate(["10", "9", "-1", "10", "9", "-1"])],
    )
    write(
        tmp_path / "w-train.csv",
        ("sentence", "label"),
        [(f"text {i}", x) for i, x in enumerate(["10", "9", "x", "10", "9", "x"])],
    )
    write(
        tmp_path / "j-train.jsonl",
        ("sentence", "label"),
        [(f"text {i}", x) for i, x in enumerate([True, False, True, 2, 2, 2])],
    )
    assert answers_of(tmp_path, "n").classes == ("-1", "9", "10")
    assert answers_of(tmp_path, "w").classes == ("10", "9", "x")
    assert answers_of(tmp_path, "j").classes == ("2", "False", "True")


def test_numbers_of_one_value_are_classes_in_one_order(tmp_path):
    """01 and 1 are two names; in which order a set has them is drawn anew in every process, and
    each would train another head.
    """
    names = ["0", "00", "+01", "+1", "0001", "001", "01", "1"]
    write(
        tmp_path / "n-train.csv",
        ("sentence", "label"),
        [(f"text {i}", name) for i, name in enumerate(names * 2)],
    )
    assert answers_of(tmp_path, "n").classes == (*names,)


def test_classes_are_those_of_the_train_file_or_of_a_model(mine):
    write(mine / "thing-dev.csv", ("sentence", "label"), [("rivers", "river"), ("a lamp", "lamp")])
    assert load_own("thing", "dev", mine).labels == [2, 1]
    assert load_own("thing", "dev", mine, OutputLabels(("river", "lamp"))).labels == [0, 1]


def test_a_test_file_may_lack_answers_and_no_other(mine):
    write(mine / "thing-test.csv", ("sentence",), [("a lamp",), ("a river",)])
    assert load_own("thing", "test", mine).labels is None
    write(mine / "thing-dev.csv", ("sentence",), [("a lamp",)])
    with pytest.raises(
        ValueError,
        match=r"thing-dev\.csv: expected a column 'label', as the train file has, got \['sentence'\]",
    ):
        load_own("thing", "dev", mine)
    write(mine / "thing-test.csv", ("sentence1", "sentence2", "score"), GRADED)
    with pytest.raises(ValueError, match=r"thing-test\.csv: expected a column 'label'"):
        load_own("thing", "test", mine)


@pytest.mark.parametrize(
    "header, rows, complaint",
    [
        (
            ("body", "label"),
            [("a", "x"), ("b", "y")],
            r"t-train.csv: expected columns sentence \(or text\) and label, or .*, got \['body', 'label'\]",
        ),
        (
            ("sentence", "kind"),
            [("a", "x"), ("b", "y")],
            r"t-train.csv: expected columns .*, got \['sentence', 'kind'\]",
        ),
        (("sentence", "score"), [("a", 1), ("b", 2)], r"t-train.csv: expected columns"),
        (("sentence1", "label"), [("a", "x"), ("b", "y")], r"t-train.csv: expected columns"),
        (
            ("sentence1", "sentence2", "label", "score"),
            [("a", "b", "x", 1), ("c", "d", "y", 2)],
            r"t-train.csv: expected columns",
        ),
        (
            ("sentence", "label"),
            [("a", "x"), ("b", "x")],
            r"t-train.csv: expected two or more different classes, got \('x',\)",
        ),
        (
            ("sentence", "label"),
            [("a", "x"), ("b", " ")],
            r"t-train.csv:3: expected the name of a class in column 'label', got ' '",
        ),
        (
            ("sentence", "label"),
            [(f"a{i}", f"{i}") for i in range(9)],
            r"expected labels that come again, got 9 different ones in 9 rows: numbers to learn are called score, of a pair$",
        ),
        (
            ("sentence", "label"),
            [(f"a{i}", f"{i - 4}.5e1") for i in range(9)],
            r"got 9 different ones in 9 rows: numbers to learn are called score, of a pair$",
        ),
        (
            ("sentence", "label"),
            [(f"a{i}", f"class {i}") for i in range(9)],
            r"got 9 different ones in 9 rows: a class is learned from several rows$",
        ),
        (
            ("sentence", "label"),
            [("", "x"), ("b", "y")],
            r"t-train.csv:2: expected a sentence in column 'sentence', got ''",
        ),
        (
            ("sentence", "label"),
            [("a", "x"), ("sentence", "label"), ("b", "y"), ("c", "y")],
            r"t-train.csv:3: expected a row, got the names of the columns again",
        ),
        (
            ("sentence1", "sentence2", "score"),
            [("a", "b", "x"), ("c", "d", 1)],
            r"t-train.csv:2: expected a grade that is a finite number, got 'x'",
        ),
        (
            ("sentence1", "sentence2", "score"),
            [("a", "b", "nan"), ("c", "d", 1)],
            r"t-train.csv:2: expected a grade that is a finite number, got 'nan'",
        ),
        (
            ("sentence1", "sentence2", "score"),
            [("a", "b", 1), ("c", "d", 1)],
            r"t-train.csv: expected scores that differ, got 1 in every row: nothing can be learned from them",
        ),
    ],
)
def test_what_cannot_be_learned_is_named(tmp_path, header, rows, complaint):
    write(tmp_path / "t-train.csv", header, rows)
    with pytest.raises(ValueError, match=complaint):
        load_own("t", "train", tmp_path)


def test_dev_scores_that_are_all_alike_are_refused(tmp_path):
    write(tmp_path / "t-train.csv", ("sentence1", "sentence2", "score"), GRADED)
    write(tmp_path / "t-dev.csv", ("sentence1", "sentence2", "score"), GRADED[:1] * 2)
    with pytest.raises(ValueError, match=r"t-dev\.csv: expected scores that differ"):
        load_own("t", "dev", tmp_path)


@pytest.mark.parametrize(
    "split, told", [("train", ""), ("dev", r"thing-dev\.csv:3"), ("test", r"thing-test\.csv:3")]
)
def test_a_row_of_empty_cells_is_refused_where_answers_are_written_by_row(mine, split, told):
    write(mine / f"thing-{split}.csv", ("sentence", "label"), [CLASSES[0], ("", ""), *CLASSES[1:]])
    if not told:
        assert len(load_own("thing", split, mine)) == len(CLASSES)  # to learn from, it is no row
        return
    with pytest.raises(
        ValueError, match=f"{told}: expected a text in each row, got a row of empty cells"
    ):
        load_own("thing", split, mine)


def test_an_unlabelled_column_with_an_empty_cell_is_refused(mine):
    (mine / "thing-test.csv").write_text('sentence\na lamp\n""\na dog\n')
    with pytest.raises(ValueError, match=r"thing-test\.csv:3: expected a text in each row"):
        load_own("thing", "test", mine)


@pytest.mark.parametrize(
    "train, dev, told",
    [
        ((0, 0.9), (0, 5), "0 to 0.9 in the train file and from 0 to 5 in the dev file"),
        ((0, 5), (0, 1), "0 to 5 in the train file and from 0 to 1"),
        ((0, 5), (0.2, 4.1), ""),
        ((0, 1), (0, 1), ""),
        ((1, 10), (1.5, 9), ""),
        ((1, 10), (1, 10.5), ""),
        ((1, 10), (0, 100), "1 to 10 in the train file and from 0 to 100"),
        ((-1, 1), (0, 1), ""),
        ((0, 100), (0, 1), "0 to 100 in the train file and from 0 to 1"),
        ((1, 5), (-1, 1), "1 to 5 in the train file and from -1 to 1"),
    ],
)
def test_dev_scores_on_another_scale_get_a_note(tmp_path, train, dev, told):
    for split, (low, high) in (("train", train), ("dev", dev)):
        write(
            tmp_path / f"t-{split}.csv",
            ("sentence1", "sentence2", "score"),
            [("a", "b", low), ("c", "d", (low + high) / 2), ("e", "f", high)],
        )
    sets = [{"t": load_own("t", split, tmp_path)} for split in ("train", "dev")]
    notes = list(scale_notes(*sets, {"t": answers_of(tmp_path, "t")}))
    assert len(notes) == bool(told) and told in "".join(notes)


def test_training_tells_of_two_scales(mine, capsys, monkeypatch):
    monkeypatch.chdir(mine.parent)
    write(
        mine / "alike-dev.csv",
        ("sentence1", "sentence2", "score"),
        [(a, b, 5 * score) for a, b, score in GRADED],
    )
    (mine / "alike-dev.jsonl").unlink()
    for line in ("train --data mine --tasks alike --model tiny --steps 1 --batch-size 2",):
        assert (
            "note: the scores of alike reach from 0 to 1 in the train file and from 0 to 5 in the dev file"
            in run(capsys, line)[1]
        )


def test_a_label_that_training_has_not_seen_is_named_by_its_line(mine):
    write(mine / "thing-dev.csv", ("sentence", "label"), [("a lamp", "lamp"), ("a cat", "cat")])
    with pytest.raises(
        ValueError,
        match=r"thing-dev\.csv:3: expected a label of the train file, \('dog', 'lamp', 'river'\), got 'cat'",
    ):
        load_own("thing", "dev", mine)


@pytest.mark.parametrize(
    "train, dev, classes, found",
    [
        (["1", "0", "1.0", "0.0"], ["1.0", "0"], ("0", "1"), [1, 0]),
        (["1.0", "2.00", "1.0", "2.00"], ["1", "2"], ("1", "2"), [0, 1]),
        (["-1", "1", "-1.0", "10"] * 2, ["10", "-1.0"], ("-1", "1", "10"), [2, 0]),
        (["1.0", "1.1"] * 2, ["1.1", "1.0"], ("1.0", "1.1"), [1, 0]),
    ],
)
def test_a_whole_number_is_one_class_however_it_is_written(tmp_path, train, dev, classes, found):
    """pandas writes a column of whole numbers with .0 where one is missing; versions such as 1.0
    beside 1.1 keep their names.
    """
    for split, labels in (("train", train), ("dev", dev)):
        write(
            tmp_path / f"t-{split}.csv",
            ("sentence", "label"),
            [(f"text {i}", label) for i, label in enumerate(labels)],
        )
    assert answers_of(tmp_path, "t").classes == classes
    assert load_own("t", "dev", tmp_path).labels == found


def test_a_json_label_may_be_a_float_that_is_whole(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"t-{split}.jsonl").write_text(
            "".join(
                json.dumps({"sentence": f"text {i}", "label": i % 2 + 0.0}) + "\n" for i in range(4)
            )
        )
    assert answers_of(tmp_path, "t").classes == ("0", "1") and load_own(
        "t", "dev", tmp_path
    ).labels == [0, 1, 0, 1]


@pytest.mark.parametrize("value", [None, 1.5, ["x"], {"x": 1}])
def test_a_json_label_is_a_word_or_a_whole_number(tmp_path, value):
    write(tmp_path / "t-train.jsonl", ("sentence", "label"), [("a", "x"), ("b", value)])
    with pytest.raises(ValueError, match=r"t-train\.jsonl:2: expected the name of a class"):
        load_own("t", "train", tmp_path)


def test_rows_that_training_reads_are_counted():
    def data(*columns):
        return Dataset("x", "dev", "text", *map(list, columns))

    assert seen_in_training(data("abc"), data("bcdb")) == 3
    # both sentences of a pair, in this order
    assert seen_in_training(data("abc", "xyz"), data("aab", "xyy")) == 2
    assert seen_in_training(data("ab"), data("cd")) == 0
    # case and blanks make no other sentence, as in a split
    assert seen_in_training(data(["A  dog."]), data(["a dog.", "a dog"])) == 1


def test_the_bag_of_words_is_the_line_to_beat(tmp_path):
    """The bag learns what one word tells; a model that always answers the same is behind it by what
    it misses.
    """
    write(
        tmp_path / "t-train.csv",
        ("sentence", "label"),
        [(f"{word} {i % 7}", word) for i in range(40) for word in ("red", "blue")],
    )
    write(
        tmp_path / "t-dev.csv",
        ("sentence", "label"),
        [(f"{i} {word}", word) for i in range(30) for word in ("red", "red", "blue")],
    )
    train, dev = (load_own("t", split, tmp_path) for split in ("train", "dev"))
    # red
    always = type("Always", (), {"predict": lambda self, task, data: torch.ones(len(data))})()
    told = against_words(always, "t", train, dev)
    assert told.startswith(
        "t: a bag of words that learned from the same rows has 1.000; the model minus the bag -0.333 (95 % interval -0.4"
    )
    assert "learned from 10 of these rows has" in against_words(always, "t", train, dev, most=10)
    write(tmp_path / "s-train.csv", ("sentence", "label"), [("?!", "a"), ("!", "b")] * 2)
    signs = load_own("s", "train", tmp_path)
    assert against_words(always, "s", signs, signs).startswith(
        "s: no bag of words to compare with: "
    )
    # all pairs share all their words
    graded = Dataset(
        "g",
        "dev",
        "similarity",
        ["a dog", "a cat", "a cow"],
        ["a dog", "a cat", "a cow"],
        [1.0, 2.0, 3.0],
    )
    assert (
        against_words(always, "g", graded, graded)
        == "g: no bag of words to compare with: it gives all dev rows the same answer"
    )


def test_of_many_rows_the_bag_learns_from_some_that_are_drawn():
    always = type("Always", (), {"predict": lambda self, task, data: torch.ones(len(data))})()

    def rows(*texts):
        return Dataset(
            "u", "dev", "sentiment", [*texts], labels=[1] * 40 + [0] * 40, classes=("blue", "red")
        )

    def scored(data, most):
        return float(against_words(always, "u", data, data, most).split(" has ")[1][:5])

    # the first ten are all red
    assert (
        scored(rows(*[f"red {i}" for i in range(40)], *[f"blue {i}" for i in range(40)]), 10) == 1
    )
    alone = rows(*[f"n{i}" for i in range(80)])
    # of seventy of them it knows nothing
    assert scored(alone, 80) == 1 and scored(alone, 10) < 0.8


def test_only_files_of_ones_own_are_found(tmp_path):
    assert own_tasks(None) == own_tasks(tmp_path / "nowhere") == {}
    for name in (
        "thing-train.csv",
        "thing-dev.tsv.gz",
        "thing-dev.txt",
        "quora-train.csv",
        "ids-sst-train.csv",
        "sts12-test.csv",
        "2nd-train.csv",
        "a b-train.csv",
        "x-all.csv",
    ):
        (tmp_path / name).touch()
    assert own_tasks(tmp_path) == {
        "thing": {"train": tmp_path / "thing-train.csv", "dev": tmp_path / "thing-dev.tsv.gz"}
    }
    # as they are told, and not as a folder has them
    assert [*own_tasks(tmp_path)["thing"]] == ["train", "dev"]
    (tmp_path / "thing-train.jsonl").touch()
    with pytest.raises(
        ValueError,
        match=r"thing-train\.jsonl: expected one file of thing train, got thing-train\.csv beside it",
    ):
        own_tasks(tmp_path)
    with pytest.raises(ValueError, match=r"expected other-train\.csv"):
        answers_of(tmp_path / "nowhere", "other")


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("tickets_train.csv", "train.csv"),
        ("Tickets-train.csv", "train.csv"),
        ("tickets-train.CSV.gz", "train.csv.gz"),
        ("tickets-val.tsv", "dev.tsv"),
        ("tickets.validation.jsonl", "dev.jsonl"),
        ("tickets test.csv", "test.csv"),
    ],
)
def test_a_file_that_was_called_otherwise_is_named_with_the_name_it_needs(
    tmp_path, capsys, name, wanted
):
    (tmp_path / name).write_text("sentence,label\na,x\nb,y\n")
    for other in (
        "tickets-train.csv",
        "ticketstub-train.csv",
        "mytickets_train.csv",
        "sst_train.csv",
        "tickets_notes.csv",
        "tickets_train.txt",
    ):
        (tmp_path / other).write_text("sentence,label\na,x\nb,y\n")
    assert misnamed(tmp_path, "tickets") == {tmp_path / name: f"tickets-{wanted}"}
    assert (
        misnamed(tmp_path, "sst")
        == misnamed(None, "tickets")
        == misnamed(tmp_path / "nowhere", "tickets")
        == {}
    )
    _, err = run(capsys, f"train --data {tmp_path} --tasks tickets --out {tmp_path / 'run'}", 1)
    assert (
        err
        == f"minbert: {tmp_path / name}: expected it to be called tickets-{wanted}, if it is meant\n"
        and not (tmp_path / "run").exists()
    )


def test_the_rows_of_the_package_are_not_taken_for_ones_own(tmp_path, capsys, monkeypatch):
    write(tmp_path / "sentiment-train.csv", ("sentence", "label"), CLASSES)
    for command in (
        f"train --data {tmp_path} --tasks sentiment --out {tmp_path}/run",
        f"data --data {tmp_path}",
    ):
        assert (
            "sentiment-train.csv: expected another name than sentiment, which the package's own rows have: my_sentiment-train.csv would do"
            in run(capsys, command, status=1)[1]
        )
    assert not (tmp_path / "run").exists()


def test_which_tasks_are_meant_without_a_word(mine, tmp_path):
    assert usual_tasks(None, mine) == ("alike", "thing")
    assert usual_tasks(["thing"], mine) == ("thing",)
    assert usual_tasks(None, None) == ("sentiment", "inference", "similarity")
    write(mine / "sts-train.csv", ("x",), [("y",)])
    assert usual_tasks(None, mine) == usual_tasks(None, tmp_path) == ("sst", "quora", "stsb")


def test_each_task_gets_the_head_of_its_kind(mine):
    write(
        mine / "same-train.csv",
        ("sentence1", "sentence2", "label"),
        [("a", "b", "no"), ("c", "d", "yes")] * 2,
    )
    sets = {task: load_own(task, "train", mine) for task in ("thing", "alike", "same")} | {
        "quora": load_dataset("quora"),
        "inference": load_dataset("inference"),
    }
    heads = build_heads(16, sets)
    assert list(heads) == ["thing", "alike", "same", "quora", "inference"]
    assert [type(head) for head in heads.values()] == [
        LinearHead,
        LinearPlusCosine,
        ConcatDiff,
        CosineHead,
        ConcatDiff,
    ]
    assert [heads[task].classes for task in ("thing", "same", "inference")] == [3, 2, 3]


def named(**heads) -> LabelledModel:
    model = LabelledModel(tiny(), heads)
    model.own = {
        "thing": OutputLabels(("dog", "lamp", "river")),
        "alike": OutputLabels(scale=(-1.0, 1.0)),
    }
    return model.eval()


def test_names_are_saved_with_the_model_and_all_readers_load_it(tmp_path):
    model = named(
        thing=LinearHead(16, 3), alike=LinearPlusCosine(16, "similarity"), quora=CosineHead()
    )
    model.save_pretrained(tmp_path)
    again = LabelledModel.from_pretrained(tmp_path)
    assert again.own == model.own
    assert again.answers("thing").classes == ("dog", "lamp", "river") and again.answers(
        "quora"
    ).classes == ("different", "duplicate")
    with pytest.raises((RuntimeError, ValueError), match="nowhere"):
        LabelledModel.from_pretrained(tmp_path, "nowhere")  # the device that was asked for
    plain = MultitaskBert.from_pretrained(tmp_path)
    data = Dataset("x", "test", "text", ["a lamp", "a dog"])
    assert torch.equal(
        plain.predict("thing", data, raw=True), model.predict("thing", data, raw=True)
    )
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(["a lamp"])
    assert np.allclose(theirs, model.encoder.cpu().encode(["a lamp"]).numpy(), rtol=0, atol=1e-5)
    (tmp_path / "answers.json").write_text(
        (tmp_path / "answers.json").read_text().replace("dog", "cat")
    )
    with pytest.raises(ValueError, match=r"answers\.json as it was saved, got another"):
        LabelledModel.from_pretrained(tmp_path)


def test_a_model_with_names_keeps_its_mode(tmp_path):
    model = LabelledModel(tiny(), {"thing": LinearHead(16, 3)}, "frozen")
    model.own = {"thing": OutputLabels(("dog", "lamp", "river"))}
    model.save_pretrained(tmp_path)
    assert LabelledModel.from_pretrained(tmp_path).mode == "frozen"


def test_a_model_of_known_tasks_needs_no_names(tmp_path):
    MultitaskBert(
        tiny(), {"sentiment": LinearHead(16, 2), "odd": LinearHead(16, 2)}
    ).save_pretrained(tmp_path)
    model = LabelledModel.from_pretrained(tmp_path)
    assert model.own == {} and model.answers("sentiment").classes == ("negative", "positive")
    with pytest.raises(ValueError, match="expected names of the answers of 'odd'"):
        model.answers("odd")
    with pytest.raises(ValueError, match="expected a task among"):
        model.answers("thing")


@pytest.mark.parametrize(
    "values",
    [
        3,
        {"classes": ["a", "b"]},
        {"classes": ["a"], "scale": None},
        {"classes": ["a", 1], "scale": None},
        {"classes": None, "scale": None},
        {"classes": ["a", "a"], "scale": None},
        {"classes": ["a", "b", "b"], "scale": None},
        {"classes": None, "scale": [1, 0]},
        {"classes": None, "scale": [0, "1"]},
        {"classes": None, "scale": [0]},
        {"classes": None, "scale": []},
        {"classes": [], "scale": None},
        {"classes": None, "scale": [0, math.inf]},
        {"classes": None, "scale": [-1e308, 1e308]},
        {"classes": ["a", "b"], "scale": [0, 1]},
        {"classes": None, "scale": [0, math.nan]},
    ],
)
def test_names_that_make_no_sense_are_refused(tmp_path, values):
    with pytest.raises(ValueError, match="answers.json, thing"):
        module._parsed("thing", values, tmp_path / "answers.json")


def test_ends_of_a_scale_that_are_refused_are_told_in_their_order():
    with pytest.raises(
        ValueError, match="expected scores that differ by a finite number, got 5 to 1$"
    ):
        OutputLabels(scale=(5.0, 1.0))


def test_answers_have_the_words_and_the_scale_of_the_labels():
    model = named(
        thing=LinearHead(16, 3),
        alike=LinearPlusCosine(16, "similarity"),
        quora=CosineHead("paraphrase", 10.0, -8.0),
    )
    single = Dataset("x", "test", "text", [text for text, _ in CLASSES])
    pairs = Dataset("x", "test", "text", [a for a, _, _ in GRADED], [b for _, b, _ in GRADED])
    logits = model.predict("thing", single, raw=True).double().numpy()
    told = answer_columns(model, "thing", single)
    assert told["label"] == [("dog", "lamp", "river")[i] for i in logits.argmax(1)]
    assert told["probability"] == pytest.approx(softmax(logits, 1).max(1).tolist(), rel=1e-12)
    told = answer_columns(model, "quora", pairs)
    yes = expit(model.predict("quora", pairs, raw=True).double().numpy())
    assert told["label"] == ["duplicate" if p > 0.5 else "different" for p in yes] and {
        *told["label"]
    } == {"duplicate", "different"}
    assert told["probability"] == pytest.approx(np.maximum(yes, 1 - yes).tolist(), rel=1e-12)
    grades = model.predict("alike", pairs).double().numpy()  # 0 to 5
    assert answer_columns(model, "alike", pairs) == {
        "score": pytest.approx((grades / 5 * 2 - 1).tolist())
    }


def test_a_table_of_answers_is_whole_or_not_there(tmp_path):
    model = named(thing=LinearHead(16, 3))
    rows = Dataset("x", "test", "text", ["a lamp, red", 'a "dog"'])
    for name, mark in (("a.csv", ","), ("a.tsv", "\t")):
        write_answers(model, "thing", rows, tmp_path / name)
        with open(tmp_path / name, newline="") as file:
            header, *found = csv.reader(file, delimiter=mark)
        assert (
            header == ["sentence", "label", "probability"]
            and [row[0] for row in found] == rows.sentences
        )
        assert [float(row[2]) for row in found] == pytest.approx(
            answer_columns(model, "thing", rows)["probability"], rel=1e-5
        )
    with pytest.raises(ValueError, match="expected a file called .csv or .tsv"):
        write_answers(model, "thing", rows, tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match="expected one sentence for task 'thing', got two"):
        write_answers(
            model, "thing", Dataset("x", "test", "text", ["a"], ["b"]), tmp_path / "b.csv"
        )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "a.tsv"]


def test_a_bar_is_drawn_for_who_asks(tmp_path, capsys):
    model, rows = named(thing=LinearHead(16, 3)), Dataset("x", "test", "text", ["a lamp", "a dog"])
    for asked in (False, True):
        write_answers(model, "thing", rows, tmp_path / "a.csv", progress=asked)
        assert ("2/2" in capsys.readouterr().err) == asked


@pytest.mark.parametrize(
    "place, complaint",
    [
        ("folder.csv", "folder.csv: expected a file or nothing, got a folder"),
        ("file.txt/a.csv", "expected a folder to save in, got the file"),
    ],
)
def test_a_place_that_takes_no_table_is_told_before_the_model_is_asked(
    tmp_path, monkeypatch, place, complaint
):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file.txt").write_text("a\n")
    monkeypatch.setattr(module, "answer_columns", lambda *_: pytest.fail("hours of answers"))
    with pytest.raises(ValueError, match=complaint):
        write_answers(
            named(thing=LinearHead(16, 3)),
            "thing",
            Dataset("x", "test", "text", ["a"]),
            tmp_path / place,
        )


def test_train_evaluate_predict(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, _ = run(capsys, "data --data mine")
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["alike", "train", "4"],
        ["alike", "dev", "4"],
        ["thing", "train", "6"],
        ["thing", "dev", "6"],
    ]
    out, err = run(capsys, "train --data mine --model tiny --steps 2 --batch-size 4 --out run")
    assert "| alike | Pearson |" in out and "| thing | accuracy |" in out
    assert "note: 6 of 6 dev rows of thing are in its train file, too" in err
    assert LabelledModel.from_pretrained("run/model").own == {
        "alike": OutputLabels(scale=(0, 1)),
        "thing": OutputLabels(("dog", "lamp", "river")),
    }
    assert "thing: a bag of words that learned from the same rows has " in out
    table = out[: out.index("alike: a bag of words")]
    assert run(capsys, "evaluate run/model --data mine")[0] == table
    write(tmp_path / "new.csv", ("number", "sentence"), [(1, "a lamp"), (2, "a dog, or two")])
    run(capsys, "predict run/model new.csv --task thing --out new-answers.csv")
    with open("new-answers.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["sentence"] for row in found] == ["a lamp", "a dog, or two"] and {
        row["label"] for row in found
    } <= {"dog", "lamp", "river"}
    # what a row had comes back
    assert [*found[0]] == ["number", "sentence", "label", "probability"] and [
        row["number"] for row in found
    ] == ["1", "2"]
    write(tmp_path / "pairs.tsv", ("left", "right", "x"), [("a", "b", 1), ("c d", "e", 2)])
    run(capsys, "predict run/model pairs.tsv --task alike --columns left right --out pairs.csv")
    with open("pairs.csv", newline="") as file:
        header, *found = csv.reader(file)
    assert (
        header == ["left", "right", "x", "score"]
        and all(0 <= float(row[3]) <= 1 for row in found)
        and [row[:3] for row in found] == [["a", "b", "1"], ["c d", "e", "2"]]
    )
    write(
        tmp_path / "told.csv",
        ("label", "sentence", "given_label", "given_given_label"),
        [("river", "a lamp", "x", "z"), ("dog", "a dog", "y", "z")],
    )
    run(capsys, "predict run/model told.csv --task thing --out told-answers.csv")
    with open("told-answers.csv", newline="") as file:
        header, *found = csv.reader(file)
    # none takes the place of another
    assert header == [
        "given_given_given_label",
        "sentence",
        "given_label",
        "given_given_label",
        "label",
        "probability",
    ]
    assert [row[:4] for row in found] == [["river", "a lamp", "x", "z"], ["dog", "a dog", "y", "z"]]


def test_own_tasks_train_beside_others(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = run(
        capsys,
        "train --data mine --tasks thing similarity --model tiny --steps 1 --batch-size 4 --out run",
    )
    assert (
        "| thing |" in out
        and "| similarity |" in out
        and "its train rows are those of the package" in err
    )


def test_written_predictions_have_the_words_and_the_scale_of_the_labels(
    mine, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = named(
        alike=LinearPlusCosine(16, "similarity"),
        thing=LinearHead(16, 3),
        similarity=LinearPlusCosine(16, "similarity"),
    )
    model.save_pretrained("run/model")
    before = (mine / "thing-dev.csv").read_bytes()
    out, _ = run(capsys, "evaluate run/model --data mine --predictions mine")
    assert {line for line in out.splitlines() if line.startswith("written")} == {
        f"written: mine/{task}-dev-output.csv" for task in ("similarity", "alike", "thing")
    }
    tables = {}
    for task in ("thing", "alike"):
        with open(mine / f"{task}-dev-output.csv", newline="") as file:
            tables[task] = list(csv.DictReader(file))
    data = {task: load_own(task, "dev", mine, model.own[task]) for task in tables}
    assert [*tables["thing"][0]] == ["sentence", "given_label", "label", "probability"] and [
        *tables["alike"][0]
    ] == ["sentence1", "sentence2", "given_score", "score"]
    # so that mistakes can be listed
    assert [row["given_label"] for row in tables["thing"]] == [name for _, name in CLASSES]
    assert [float(row["given_score"]) for row in tables["alike"]] == [score for *_, score in GRADED]
    assert [row["label"] for row in tables["thing"]] == answer_columns(
        model, "thing", data["thing"]
    )["label"]
    assert [float(row["score"]) for row in tables["alike"]] == pytest.approx(
        answer_columns(model, "alike", data["alike"])["score"], rel=1e-4
    )
    assert (mine / "thing-dev.csv").read_bytes() == before


def test_scores_that_were_given_come_back_with_their_digits():
    """As far as a float of the head has them."""
    model = named(alike=LinearPlusCosine(16, "similarity"))  # -1 to 1
    given = [-0.98765, 0.123456, 0.5]
    rows = Dataset(
        "x",
        "dev",
        "similarity",
        ["a"] * 3,
        ["b"] * 3,
        [model.own["alike"].stretched(score) for score in given],
    )
    assert with_labels(model, "alike", rows)["score"] == [f"{score:g}" for score in given]


def test_a_model_answers_for_a_list_or_a_column():
    model = named(alike=LinearPlusCosine(16, "similarity"), thing=LinearHead(16, 3))
    texts, others = [text for text, _ in CLASSES], [text for text, _ in CLASSES[::-1]]
    expected = answer_columns(model, "thing", Dataset("x", "dev", "text", texts))
    assert (
        model.answer("thing", texts)
        == model.answer("thing", pd.Series(texts, index=range(9, 3, -1)))
        == expected
    )
    assert model.answer("alike", texts, others) == answer_columns(
        model, "alike", Dataset("x", "dev", "text", texts, others)
    )
    for wrong, message in (
        (("alike", texts), "two|second|partner|pair"),
        (("thing", "one text"), "got one str"),
        (("alike", texts, "one text"), "got one str"),
        (("thing", pd.DataFrame({"sentence": texts})), "got a DataFrame"),
    ):
        with pytest.raises(ValueError, match=message):
            model.answer(*wrong)


def test_answers_do_not_replace_the_file_they_answer(mine, tmp_path, capsys, monkeypatch):
    """Its other columns would be lost."""
    monkeypatch.chdir(tmp_path)
    named(thing=LinearHead(16, 3)).save_pretrained("model")
    file = write(tmp_path / "new.csv", ("number", "sentence"), [(1, "a lamp"), (2, "a dog")])
    (tmp_path / "link.csv").symlink_to(file)
    before = file.read_bytes()
    for out in ("new.csv", "model/../new.csv", "link.csv"):
        assert (
            "expected another file for the answers than new.csv"
            in run(capsys, f"predict model new.csv --out {out}", status=1)[1]
        )
        assert file.read_bytes() == before


def test_a_resumed_run_is_the_same_and_keeps_its_names(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = (
        "train --data mine --tasks thing --model tiny --steps 4 --save-every 2 --batch-size 4 --out"
    )
    run(capsys, f"{line} whole")
    from minbert.core import run_dir

    saves, save = [], run_dir.RunFolder.save
    monkeypatch.setattr(
        run_dir.RunFolder,
        "save",
        lambda self, step, *rest: (
            save(self, step, *rest)
            or saves.append(step)
            or (step == 2 and (_ for _ in ()).throw(KeyboardInterrupt))
        ),
    )
    run(capsys, f"{line} cut", status=130)
    monkeypatch.setattr(run_dir.RunFolder, "save", save)
    run(capsys, f"{line} cut --resume")
    a, b = (LabelledModel.from_pretrained(f"{name}/model") for name in ("whole", "cut"))
    assert saves[-1] == 2 and a.own == b.own and len(read_log("cut")) == len(read_log("whole"))
    assert all(torch.equal(x, b.state_dict()[name]) for name, x in a.state_dict().items())
    write(
        mine / "thing-train.csv",
        ("sentence", "label"),
        [*CLASSES, ("a cat", "cat"), ("cats", "cat")],
    )
    assert "train rows of thing" in run(capsys, f"{line} cut --resume", status=1)[1]


@pytest.mark.parametrize(
    "line, complaint",
    [
        (
            "train --data mine --tasks other --model tiny",
            "expected train and dev files of other in mine, found only those of alike, thing",
        ),
        (
            "train --data mine --tasks my-things --model tiny",
            "expected names of tasks with blanks between them, of letters, digits and _, and none that PyTorch takes, got 'my-things'",
        ),
        (
            "train --data mine --tasks training --model tiny",
            "none that PyTorch takes, got 'training'",
        ),
        ("train --data mine --tasks keys --model tiny", "none that PyTorch takes, got 'keys'"),
        ("data --data run", "or NAME-train.csv (NAME has letters, digits and _), found none"),
        ("predict run/model new.txt", "expected --task, one of alike, thing"),
        (
            "predict run/model new.txt --task other",
            "expected a task among alike, thing, got 'other'",
        ),
        (
            "predict run/model new.txt --task alike",
            "expected two sentences for task 'alike', got one",
        ),
        (
            "predict run/model three.csv --task alike --columns left right wrong",
            "expected one column of sentences or two, got three in three.csv",
        ),
        (
            "predict run/model pairs.csv --task thing --columns left right",
            "expected one sentence for task 'thing', got two",
        ),
        (
            "predict run/model pairs.csv --task thing",
            "pairs.csv: expected a column sentence, or text, got ['left', 'right']: --columns says which to take",
        ),
        (
            "predict run/model pairs.csv --task alike",
            "pairs.csv: expected columns sentence1 and sentence2, got ['left', 'right']: --columns says which to take",
        ),
        (
            "predict run/model new.txt --task thing --out answers.json",
            "expected a file called .csv or .tsv for the answers, got answers.json",
        ),
        ("predict tiny new.txt", "minbert: expected a model folder written by train, got 'tiny'\n"),
        (
            "predict run new.txt",
            "expected a model folder written by train, got 'run': its folder model is one",
        ),
        (
            "evaluate tiny --data mine",
            "expected a model folder written by train, got 'tiny'; --sts scores any encoder",
        ),
        ("evaluate run/model", "expected --data FOLDER with alike-dev.csv, got none"),
        (
            "evaluate run/model --data tiny",
            "tiny: expected alike-dev.csv (or .tsv, .jsonl, .parquet), found none",
        ),
    ],
)
def test_complaints_name_what_is_wanted(mine, tmp_path, capsys, monkeypatch, line, complaint):
    monkeypatch.chdir(tmp_path)
    model = named(alike=LinearPlusCosine(16, "similarity"), thing=LinearHead(16, 3))
    model.save_pretrained("run/model")
    (tmp_path / "new.txt").write_text("a lamp\n")
    write(tmp_path / "pairs.csv", ("left", "right"), [("a", "b")])
    write(tmp_path / "three.csv", ("left", "right", "wrong"), [("a", "b", "c")])
    before = sorted(file.name for file in tmp_path.iterdir())
    assert complaint in run(capsys, line, status=1)[1]
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_parquet_is_read_as_other_tables(tmp_path):
    """Numbers stay numbers, categories their names, what is missing is missing; an index, a date
    and a list come back as text.
    """
    frame = pd.DataFrame(
        {
            "text": [f"row {i} of it" for i in range(4)],
            "label": [1, 0, 1, 0],
            "kind": pd.Categorical(["a", "b", "a", "b"]),
            "at": pd.to_datetime(["2026-01-02"] * 4),
            "tags": [["x", "é"]] * 4,
            "left": ["z", None, "", "y"],
        },
        index=[7, 8, 9, 10],
    )
    frame.to_parquet(tmp_path / "t.parquet")
    data = read_named(tmp_path / "t.parquet", None)
    assert data.sentences == [f"row {i} of it" for i in range(4)]
    table = whole_table(tmp_path / "t.parquet")
    assert (
        table["kind"] == ["a", "b", "a", "b"]
        and table["label"] == ["1", "0", "1", "0"]
        and table["left"] == ["z", "", "", "y"]
    )
    assert json.loads(table["tags"][0]) == ["x", "é"] and "2026-01-02" in table["at"][0]
    frame[["text", "label"]].to_parquet(tmp_path / "mine-train.parquet", index=False)
    frame[["text", "label"]].to_parquet(tmp_path / "mine-dev.parquet", index=False)
    assert load_own("mine", "dev", tmp_path).labels == [1, 0, 1, 0] and load_own(
        "mine", "dev", tmp_path
    ).classes == ("0", "1")
    frame.assign(text=["a b", "c d", None, "e f"]).to_parquet(tmp_path / "u.parquet", index=False)
    with pytest.raises(
        ValueError, match="u.parquet:3: expected a sentence in column 'text', got None"
    ):
        read_named(tmp_path / "u.parquet", None)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda data: b"PAR1" + data[9:], "expected a readable Parquet file"),
        (lambda data: data[:-30], "expected a readable Parquet file"),
        (lambda data: b"text,label\na b,1\n", "expected a readable Parquet file"),
        (lambda data: b"", "expected"),
    ],
)
def test_a_damaged_parquet_names_its_file(tmp_path, spoil, words):
    file = write(
        tmp_path / "t.parquet", ("text", "label"), [(f"one more {i}", i % 2) for i in range(50)]
    )
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ValueError, match=f"^{file}: {words}"):
        read_named(file, None)
    write(file, ("text", "label"), [])
    with pytest.raises(ValueError, match=f"^{file}: expected rows below the names"):
        read_named(file, None)
    parquet.write_table(pa.table([["a b"], ["c d"]], names=["text", "text"]), file)
    with pytest.raises(ValueError, match=f"^{file}: expected different names of columns"):
        read_named(file, None)


def test_a_damaged_gz_is_said_when_it_is_read(tmp_path):
    file = write(
        tmp_path / "t.csv.gz", ("text", "label"), [(f"one more {i}", i % 2) for i in range(50)]
    )
    for data in (file.read_bytes()[:40], b"text,label\n", b""):
        file.write_bytes(data)
        with pytest.raises(ValueError, match=f"^{file}: expected"):
            read_named(file, None)
    (tmp_path / "s.csv").write_bytes(
        b"\xef\xbb\xbftext;label\n" + "é ü;1\nb c;0\n".encode("latin-1")
    )
    with pytest.raises(ValueError, match="s.csv:2: expected UTF-8 text"):
        read_named(tmp_path / "s.csv", None)
