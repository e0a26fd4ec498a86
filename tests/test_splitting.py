"""One table becomes the files of a task: who is held out, what stays together, and what is refused."""

import json
import random
from collections import Counter

import pytest
from terminal import run

from minbert.cli import dataset_split as module
from minbert.cli.custom_tasks import load_own
from minbert.cli.dataset_split import (
    Labelled,
    counted,
    read_labelled,
    share_out,
    task_name,
    write_splits,
)
from minbert.data import SPLITS
from minbert.datasets.formats import read_rows

SHARES = {"dev": 0.1, "test": 0.1}


def table(path, header, rows):
    """Write a table by hand, so that what reads it is not what wrote it."""

    def quote(cell):
        return '"' + str(cell).replace('"', '""') + '"'

    path.write_text(
        "".join(",".join(map(quote, row)) + "\n" for row in [header, *rows]), encoding="utf-8"
    )
    return path


def parts(groups, classes, shares=SHARES, seed=1):
    """Split rows numbered 0, 1, ... -> {split: rows}."""
    places = share_out(groups, classes, shares, seed)
    assert len(places) == len(groups)
    return {split: [i for i, place in enumerate(places) if place == split] for split in SPLITS}


# --- who is held out


def test_every_class_has_its_share_in_each_file():
    classes = ["often"] * 500 + ["seldom"] * 50 + ["rare"] * 10
    random.Random(0).shuffle(classes)
    found = {
        split: Counter(classes[i] for i in rows)
        for split, rows in parts(range(560), classes).items()
    }
    for name, n in Counter(classes).items():
        assert abs(found["dev"][name] - n / 10) <= 1 and abs(found["test"][name] - n / 10) <= 1
    assert [sum(found[split].values()) for split in SPLITS] == [448, 56, 56]


@pytest.mark.parametrize(
    "shares", [{"dev": 0.25}, {"dev": 0.05, "test": 0.3}, {"dev": 0.4, "test": 0.5}]
)
def test_the_shares_are_those_asked_for(shares):
    found = parts(range(1000), [f"{i % 7}" for i in range(1000)], shares)
    for split in ("dev", "test"):
        assert abs(len(found[split]) - 1000 * shares.get(split, 0)) <= 2


def test_classes_of_few_rows_give_their_share_together():
    # a hundred, of four rows each: a tenth of one is less than a row
    classes = [f"{i // 4}" for i in range(400)]
    found = parts(range(400), classes)
    assert abs(len(found["dev"]) - 40) <= 1 and abs(len(found["test"]) - 40) <= 1
    assert {classes[i] for i in found["train"]} == {*classes}


def test_groups_stay_together_and_large_ones_are_learned_from():
    random_ = random.Random(3)
    groups = [0] * 300 + [random_.randrange(1, 400) for _ in range(700)]
    random_.shuffle(groups)
    # drawn among the last, a large group would leave too few to make up for it
    for seed in range(60):
        found = parts(groups, ["a"] * 1000, seed=seed)
        where = [{groups[i] for i in rows} for rows in found.values()]
        assert not where[0] & where[1] and not where[0] & where[2] and not where[1] & where[2]
        assert 0 in where[0] and all(abs(len(found[split]) - 100) <= 2 for split in ("dev", "test"))


def test_what_is_held_out_is_drawn():
    draws = [parts(range(300), ["a", "b", "c"] * 100, seed=seed)["dev"] for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1] and len({tuple(rows) for rows in draws}) == 3
    often = Counter(
        row for seed in range(200) for row in parts(range(30), ["a"] * 30, seed=seed)["dev"]
    )
    # 20 each; one that is never drawn, or always, is no draw
    assert sum(often.values()) == 600 and max(often.values()) < 60 and len(often) == 30


def test_a_class_that_lies_beside_another_in_every_group_is_learned_from():
    for seed in range(40):
        groups, classes = [*range(20), 5], ["a"] * 20 + ["b"]  # the text of row 5 has both answers
        assert 20 in parts(groups, classes, seed=seed)["train"]


def test_a_class_of_one_row_is_learned_from():
    for before in range(1, 40):  # somewhere among these its turn to be held out would come
        assert before in parts(range(before + 21), ["a"] * before + ["b"] + ["c"] * 20)["train"]


@pytest.mark.parametrize(
    "shares",
    [
        {"dev": 0},
        {"dev": 0.1, "test": 0.9},
        {"dev": 0.6, "test": 0.6},
        {"dev": -0.1},
        {"dev": 1},
        {"dev": float("nan")},
    ],
)
def test_shares_that_leave_nothing_are_refused(shares):
    with pytest.raises(
        ValueError, match="expected shares above 0 that leave something to learn from"
    ):
        share_out(range(100), ["a"] * 100, shares, 1)


def test_too_few_rows_are_refused():
    with pytest.raises(
        ValueError,
        match="expected rows to hold out for dev and test, got 3 rows: too few for these shares",
    ):
        share_out(range(3), ["a"] * 3, SHARES, 1)
    with pytest.raises(ValueError, match="got 50 rows of which 50 hang together"):
        share_out([0] * 50, ["a"] * 50, SHARES, 1)


# --- what is read

REVIEWS = [
    (i, f"The {word} number {i}.", kind)
    for i in range(30)
    for word, kind in (("dog", "animal"), ("oak", "tree"))
]


def test_a_table_is_read_by_its_roles(tmp_path):
    file = table(
        tmp_path / "all.csv",
        ("id", "what", "label", "kind"),
        [(i, text, "x", kind) for i, text, kind in REVIEWS],
    )
    rows = read_labelled(file, ["what"], "kind", None)
    assert rows.texts == {"sentence": [text for _, text, _ in REVIEWS]} and rows.answer == {
        "label": [kind for *_, kind in REVIEWS]
    }
    assert rows.others == {"id": [str(i) for i, *_ in REVIEWS], "given_label": ["x"] * 60}
    assert [*read_labelled(file, ["what"], "kind", None).others] == ["id", "given_label"]
    assert len({*rows.groups}) == 60 and rows.contradicted == 0


def test_case_and_blanks_make_no_other_sentence():
    rows = Labelled(
        {"sentence": ["A  dog", "a dog", "A dog!", "A dog"]}, {"label": ["x", "y", "x", "y"]}, {}
    )
    a, b, c, d = rows.groups
    assert a == b == d != c
    assert rows.contradicted == 0
    assert rows._replace(texts={"sentence": ["a", "b", "a", "b"]}).contradicted == 0
    assert rows._replace(texts={"sentence": ["a", "a", "b", "b"]}).contradicted == 2


def test_pairs_hang_together_by_chains():
    rows = Labelled(
        {"sentence1": ["a", "b", "d", "e"], "sentence2": ["b", "c", "e", "f"]},
        {"score": ["1", "2", "3", "4"]},
        {},
    )
    one, two, three, four = rows.groups
    assert one == two != three == four
    assert rows.classes == [""] * 4
    assert (
        rows._replace(
            texts={"sentence1": ["a", "a"], "sentence2": ["b", "c"]}, answer={"score": ["1", "2"]}
        ).contradicted
        == 0
    )


@pytest.mark.parametrize(
    "header, options, words",
    [
        (
            ("what", "kind"),
            (None, "kind", None),
            r"all.csv: expected a column sentence, or text, got \['what', 'kind'\]: --columns says which",
        ),
        (
            ("sentence", "kind"),
            (["sentence", "sentence"], "kind", None),
            "one column of sentences or two",
        ),
        (("sentence", "kind"), (None, None, None), r"among \['kind'\], got neither"),
        (("sentence", "kind"), (None, "colour", None), r"got \['colour'\]"),
        (("sentence", "kind"), (None, "sentence", None), r"among \['kind'\], got \['sentence'\]"),
        (
            ("sentence", "kind"),
            (None, "kind", "kind"),
            "expected --label for a class or --score for a number, got both",
        ),
        (
            ("sentence", "kind"),
            (None, None, "kind"),
            "expected two columns of sentences where a score is learned, got 'sentence' alone",
        ),
        (
            ("sentence", "kind"),
            (["kind"], "sentence", None),
            "all.csv: expected labels that come again",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, header, options, words):
    file = table(tmp_path / "all.csv", header, [(f"The dog {i}.", "one dog") for i in range(9)])
    with pytest.raises(ValueError, match=words):
        read_labelled(file, *options)


def test_a_table_with_both_a_label_and_a_score_is_asked_about(tmp_path):
    file = table(
        tmp_path / "all.csv",
        ("sentence1", "sentence2", "label", "score"),
        [(f"a {i}", f"b {i}", "yn"[i % 2], i / 9) for i in range(9)],
    )
    with pytest.raises(
        ValueError,
        match=r"--label\) or one of numbers \(--score\) among \['label', 'score'\], got \['label', 'score'\]",
    ):
        read_labelled(file, None, None, None)
    assert [*read_labelled(file, None, None, "score").answer] == ["score"] and [
        *read_labelled(file, None, "label", None).others
    ] == ["given_score"]


@pytest.mark.parametrize(
    "answer, role, words",
    [
        ("", "label", r"all.csv:3: expected the name of a class in column 'kind', got ''"),
        ("high", "score", r"all.csv:3: expected a grade that is a finite number, got 'high'"),
    ],
)
def test_a_cell_that_is_no_answer_is_named(tmp_path, answer, role, words):
    file = table(
        tmp_path / "all.csv",
        ("sentence1", "sentence2", "kind"),
        [("a b", "c", 1), ("d e", "f", answer), ("g h", "i", 1)],
    )
    with pytest.raises(ValueError, match=words):
        read_labelled(
            file, None, "kind" if role == "label" else None, "kind" if role == "score" else None
        )


def test_text_without_columns_is_no_table(tmp_path):
    (tmp_path / "all.txt").write_text("one\ntwo\n")
    with pytest.raises(
        ValueError, match=r"all.txt: expected a table \(.csv, .tsv, .jsonl, .parquet\)"
    ):
        read_labelled(tmp_path / "all.txt", None, None, None)


@pytest.mark.parametrize(
    "file, name, expected",
    [
        ("tickets.csv", None, "tickets"),
        ("my tickets-2024.jsonl.gz", None, "my_tickets_2024"),
        ("Größe.tsv", None, "Größe"),
        ("2024.csv", "tickets", "tickets"),
    ],
)
def test_a_task_is_called_as_its_file(tmp_path, file, name, expected):
    assert task_name(tmp_path / file, name, tmp_path / "nowhere") == expected


@pytest.mark.parametrize(
    "file, name",
    [
        ("2024.csv", None),
        ("a.csv", "my-task"),
        ("sst.csv", None),
        ("inference.csv", None),
        ("sts12.csv", None),
        ("a.csv", "x/y"),
        ("items.csv", None),
        ("a.csv", "x²"),
    ],
)
def test_names_that_no_task_may_have_are_refused(tmp_path, file, name):
    with pytest.raises(ValueError, match="--task gives another"):
        task_name(tmp_path / file, name, tmp_path)


@pytest.mark.parametrize("old", ["tickets-dev.jsonl", "tickets-train.csv.gz"])
def test_an_old_split_is_never_mixed_with_a_new_one(tmp_path, old):
    (tmp_path / old).write_text("x")
    (tmp_path / "other-train.csv").write_text("x")
    with pytest.raises(ValueError, match="without files of tickets, got .*" + old):
        task_name(tmp_path / "tickets.csv", None, tmp_path)
    assert task_name(tmp_path / "more.csv", None, tmp_path) == "more"


# --- what is written


def written(folder, task):
    """Cut the files back -> {split: (header, rows)}."""
    cut = {
        split: [cells for _, cells in read_rows(folder / f"{task}-{split}.csv", "comma")]
        for split in SPLITS
        if (folder / f"{task}-{split}.csv").exists()
    }
    return {split: (header, rows) for split, (header, *rows) in cut.items()}


def test_every_row_is_in_one_file_with_all_it_had(tmp_path):
    rows = [
        (f"{i}", f'He said "{i}", twice;\tso what', "yn"[i % 2], f"ünï {i}") for i in range(100)
    ]
    file = table(tmp_path / "talk.csv", ("id", "sentence", "label", "who"), rows)
    read = read_labelled(file, None, None, None)
    places = share_out(read.groups, read.classes, SHARES, 4)
    files = write_splits(read, places, tmp_path / "out", "talk")
    assert [path.name for path in files] == ["talk-train.csv", "talk-dev.csv", "talk-test.csv"]
    found = written(tmp_path / "out", "talk")
    assert {tuple(header) for header, _ in found.values()} == {("sentence", "label", "id", "who")}
    for split, (_, cells) in found.items():  # in the order of the table
        assert cells == [
            [text, kind, i, who]
            for (i, text, kind, who), place in zip(rows, places)
            if place == split
        ]
    assert sum(len(cells) for _, cells in found.values()) == 100
    for split in SPLITS:
        assert load_own("talk", split, tmp_path / "out").classes == ("n", "y")


def test_graded_pairs_and_other_kinds_of_labels_are_learned_from_what_was_written(tmp_path):
    lines = [
        {"one": f"a {i}", "two": f"b {i}", "grade": i % 5, "same": i % 2 == 0} for i in range(50)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, options in (
        ("graded", (None, "grade")),
        ("judged", ("same", None)),
        ("numbered", ("grade", None)),
    ):
        rows = read_labelled(tmp_path / "pairs.jsonl", ["one", "two"], *options)
        write_splits(
            rows, share_out(rows.groups, rows.classes, {"dev": 0.2}, 1), tmp_path / "out", name
        )
    sets = {
        name: [load_own(name, split, tmp_path / "out") for split in ("train", "dev")]
        for name in ("graded", "judged", "numbered")
    }
    assert [len(data) for data in sets["graded"]] == [40, 10] and not (
        tmp_path / "out" / "graded-test.csv"
    ).exists()
    assert sets["judged"][0].classes == ("False", "True") and sets["numbered"][0].classes == (
        "0",
        "1",
        "2",
        "3",
        "4",
    )
    (tmp_path / "fine.csv").write_text("sentence1,sentence2,score\na,b,0.123456789\nc,d,2\n")
    # no digit is lost
    assert read_labelled(tmp_path / "fine.csv", None, None, None).answer == {
        "score": ["0.123456789", "2.0"]
    }
    for data in sets["graded"]:
        numbers = [int(text.split()[1]) for text in data.sentences]
        assert data.labels == pytest.approx([i % 5 for i in numbers]) and data.sentences2 == [
            f"b {i}" for i in numbers
        ]


def test_all_files_or_none(tmp_path, monkeypatch):
    read = Labelled({"sentence": [f"{i} x" for i in range(40)]}, {"label": ["y", "n"] * 20}, {})
    plain, calls = module.write_rows, []

    def failing(path, *rest):
        calls.append(path)
        if len(calls) == 2:
            raise OSError("no room")
        plain(path, *rest)

    monkeypatch.setattr(module, "write_rows", failing)
    with pytest.raises(OSError, match="no room"):
        write_splits(read, share_out(read.groups, read.classes, SHARES, 1), tmp_path, "x")
    assert len(calls) == 2 and not [*tmp_path.iterdir()]


def test_what_training_would_refuse_is_not_written(tmp_path):
    few = Labelled(
        {"sentence": [f"{i} x" for i in range(38)]}, {"label": [f"{i % 19}" for i in range(38)]}, {}
    )
    with pytest.raises(
        ValueError,
        match=r"few-train\.csv: expected labels that come again, got 19 different ones in 30 rows",
    ):
        write_splits(few, ["train"] * 30 + ["dev"] * 8, tmp_path, "few")
    alike = Labelled(
        {"sentence1": [f"{i} x" for i in range(10)], "sentence2": ["y"] * 10},
        {"score": ["1.0"] * 9 + ["2.0"]},
        {},
    )
    with pytest.raises(ValueError, match=r"alike-train\.csv: expected scores that differ"):
        write_splits(alike, ["train"] * 8 + ["dev"] * 2, tmp_path, "alike")
    with pytest.raises(ValueError, match=r"alike-dev\.csv: expected scores that differ"):
        write_splits(alike, ["dev"] + ["train"] * 9, tmp_path, "alike")
    assert not [*tmp_path.iterdir()]


def test_the_table_counts_classes_the_frequent_ones_first():
    rows = Labelled({"sentence": [*"abcdef"]}, {"label": [*"xyyzzz"]}, {})
    places = ["train", "train", "dev", "train", "dev", "train"]
    assert counted(rows, places).splitlines() == [
        "| label | train | dev |",
        "| --- | --- | --- |",
        "| z | 2 | 1 |",
        "| y | 1 | 1 |",
        "| x | 1 | 0 |",
        "| all rows | 4 | 2 |",
    ]
    assert counted(rows, places, 1).splitlines()[2:] == [
        "| z | 2 | 1 |",
        "| 2 more | 2 | 1 |",
        "| all rows | 4 | 2 |",
    ]
    graded = Labelled({"sentence1": [*"ab"], "sentence2": [*"cd"]}, {"score": ["1", "2"]}, {})
    assert counted(graded, ["train", "dev"]).splitlines() == [
        "| score | train | dev |",
        "| --- | --- | --- |",
        "| all rows | 1 | 1 |",
    ]


def test_the_command_cuts_and_says_what_comes_next(tmp_path, capsys):
    file = table(
        tmp_path / "my-reviews.csv",
        ("id", "text", "site"),
        [*REVIEWS, (99, REVIEWS[0][1], "tree")],
    )
    data = tmp_path / "data"
    out, err = run(capsys, f"split {file} --label site --out {data} --seed 3")
    assert (
        "| all rows | 49 | 6 | 6 |" in out
        and f"next: minbert train --data {data} --tasks my_reviews\n" in out
    )
    assert err == "note: texts with more than one answer: 1\n"
    texts = [{row[0] for row in rows} for _, rows in written(data, "my_reviews").values()]
    assert [len(found) for found in texts] == [48, 6, 6] and len(set.union(*texts)) == 60
    _, err = run(capsys, f"split {file} --label site --out {data}", 1)
    assert "rows of an old split" in err and "--task" in err
    run(
        capsys,
        f"split --columns text --label site --out {data} --task two --test 0 --dev .2 {file}",
    )
    assert {split: len(rows) for split, (_, rows) in written(data, "two").items()} == {
        "train": 49,
        "dev": 12,
    }


def test_a_class_with_a_bar_keeps_the_table_whole():
    rows = Labelled({"sentence": ["a", "b"]}, {"label": ["x|y", "z"]}, {})
    assert counted(rows, ["train", "dev"]).splitlines()[2:4] == [
        "| x\\|y | 1 | 0 |",
        "| z | 0 | 1 |",
    ]


def test_one_and_one_point_nought_are_one_class(tmp_path):
    """Excel writes either; training takes them as one, and so do the shares and the table."""

    def table(rows):
        return "\n".join(["sentence,label", *(f"row {i},{name}" for i, name in enumerate(rows))])

    (tmp_path / "t.csv").write_text(table(["1.0", "1"] * 10 + ["0"] * 20))
    rows = read_labelled(tmp_path / "t.csv", None, None, None)
    assert rows.classes == ["1"] * 20 + ["0"] * 20 and rows.contradicted == 0
    (tmp_path / "u.csv").write_text(table(["1.0", "1", "1.1"] * 6))  # versions, not numbers
    assert {*read_labelled(tmp_path / "u.csv", None, None, None).classes} == {"1.0", "1", "1.1"}
