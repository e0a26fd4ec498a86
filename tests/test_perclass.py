"""What is said of each class: counted by hand, for rare ones, for those that nobody has, and for
those that nobody answers.
"""

import re

import numpy as np
import pytest
import torch
from sklearn.metrics import classification_report, f1_score
from terminal import run
from test_own_tasks import GRADED, tiny, write

from minbert.cli.class_report import class_table, class_tables, macro_f1, with_names
from minbert.cli.labelled_model import LabelledModel, OutputLabels
from minbert.data import Dataset
from minbert.evaluate import TaskResult, evaluate_tasks
from minbert.heads import LinearHead, LinearPlusCosine


def cells(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_precision_recall_and_f1_by_hand():
    labels, told = [0] * 6 + [1] * 3 + [2], [0, 0, 0, 0, 1, 2] + [1, 1, 0] + [0]
    rows = [
        cells(line)
        for line in class_table("thing", ("a", "b", "c"), told, labels).splitlines()[2:5]
    ]
    # 4 of 6 found; of 6 answers 4 are so
    assert rows == [
        ["a", "6", "6", "0.667", "0.667", "0.667", "b (1)"],
        ["b", "3", "3", "0.667", "0.667", "0.667", "a (1)"],
        ["c", "1", "1", "0.000", "0.000", "0.000", "a (1)"],
    ]
    assert macro_f1(told, labels) == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)


def test_a_class_without_rows_or_without_answers():
    """What cannot be said is a dash, not a nought; the mean is over classes that are there."""
    lines = class_table(
        "thing", ("never", "told", "missed"), [1, 1, 1], torch.tensor([1, 1, 2])
    ).splitlines()
    assert [cells(line)[1:6] for line in lines[2:5]] == [
        ["0", "0", "-", "-", "-"],
        ["2", "3", "0.667", "1.000", "0.800"],
        ["1", "0", "-", "0.000", "0.000"],
    ]
    assert [cells(line)[6] for line in lines[2:5]] == ["-", "-", "told (1)"]
    # (.8 + 0) / 2, for nobody has or says "never"
    assert "macro F1 0.400" in lines[-1]


def test_the_whole_table_against_a_report_of_scikit_learn():
    generator = np.random.default_rng(5)
    labels = generator.choice(4, 300, p=[0.7, 0.2, 0.08, 0.02])
    told = np.where(generator.random(300) < 0.6, labels, generator.integers(0, 4, 300))
    lines = class_table("t", tuple("abcd"), told, labels).splitlines()
    report = classification_report(labels, told, output_dict=True)
    for number, line in enumerate(lines[2:6]):
        right = report[str(number)]
        assert cells(line)[1:6] == [
            f"{right['support']:.0f}",
            str((told == number).sum()),
            *(f"{right[k]:.3f}" for k in ("precision", "recall", "f1-score")),
        ]
        wrong = [(told[labels == number] == c).sum() if c != number else 0 for c in range(4)]
        assert cells(line)[6] == f"{'abcd'[int(np.argmax(wrong))]} ({max(wrong)})"
    for _ in range(20):
        one, two = generator.integers(0, 5, (2, 12))
        assert macro_f1(one, two) == pytest.approx(
            f1_score(two, one, average="macro", zero_division=0)
        )
    value, low, high = (
        float(x.strip("(),"))
        for x in re.search(r"macro F1 (\S+) \(95 % interval (\S+) to (\S+)", lines[-1]).groups()
    )
    assert value == pytest.approx(report["macro avg"]["f1-score"], abs=6e-4) and low < value < high
    # other draws; their ends wander a little
    draws = [macro_f1(told[i], labels[i]) for i in generator.integers(0, 300, (400, 300))]
    assert np.allclose([low, high], np.quantile(draws, [0.025, 0.975]), atol=0.03)


def test_rows_are_whole_where_no_answer_is_right():
    lines = class_table("thing", ("a", "b"), [1, 1, 0], [0, 0, 1]).splitlines()
    assert [cells(line)[1:3] for line in lines[2:4]] == [["2", "1"], ["1", "2"]]


def test_names_with_a_bar_stay_in_their_cell():
    table = class_table("t", ("a|\n b", "c"), [0, 1], [1, 1])
    assert "| a\\| b | 0 |" in table and "| a\\| b (1) |" in table


@pytest.fixture
def two_tasks():
    torch.manual_seed(0)
    model = LabelledModel(tiny(), {"thing": LinearHead(16, 2), "alike": LinearPlusCosine(16)})
    model.own = {"thing": OutputLabels(("dull", "sharp")), "alike": OutputLabels(scale=(0, 1))}
    rows = {
        "thing": Dataset(
            "thing",
            "dev",
            "sentiment",
            ["a b", "c", "d e"],
            labels=[1, 1, 0],
            classes=("dull", "sharp"),
        ),
        "alike": Dataset(
            "alike", "dev", "similarity", ["a", "b", "c"], ["d", "e", "f"], labels=[0.0, 2.5, 5.0]
        ),
    }
    return model, rows


def test_only_tasks_of_classes_have_tables(two_tasks):
    model, rows = two_tasks
    (table,) = class_tables(model, rows, model)
    assert (
        table.startswith("| thing | rows") and "| dull | 1 |" in table and "| sharp | 2 |" in table
    )
    with pytest.raises(
        ValueError, match="expected a task with classes for --classes, got scores: alike"
    ):
        list(class_tables(model, {"alike": rows["alike"]}, model))


def test_the_baseline_of_an_own_task_has_its_name(two_tasks):
    model, rows = two_tasks
    named = with_names(evaluate_tasks(model, rows), rows, model)
    assert named["thing"].baseline_name == "always sharp" and named[
        "thing"
    ].baseline == pytest.approx(2 / 3)
    assert named["alike"].baseline_name == "word overlap"
    book = {"sst": TaskResult("accuracy", 0.5, 3, 0, 1, 0.4, "always 3")}
    # the book's tables stay
    assert with_names(book, {}, model) == book


def test_evaluate_tells_of_classes(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "dev"):
        write(
            folder / f"thing-{split}.csv",
            ("sentence", "label"),
            [("one lamp", "on"), ("no lamp", "off"), ("a lamp", "on"), ("dark", "off")] * 2,
        )
        write(folder / f"alike-{split}.csv", ("sentence1", "sentence2", "score"), GRADED)
    tiny().save_pretrained(tmp_path / "tiny")
    out, _ = run(
        capsys,
        f"train --tasks thing alike --data {folder} --model {tmp_path / 'tiny'} --out {tmp_path / 'run'} --steps 2",
    )
    assert "(always off)" in out
    model = tmp_path / "run" / "model"
    assert "precision" not in run(capsys, f"evaluate {model} --data {folder}")[0]
    out, _ = run(capsys, f"evaluate {model} --data {folder} --classes")
    assert (
        "(always off)" in out
        and out.count("precision") == 1
        and "| off | 4 |" in out
        and "| on | 4 |" in out
        and "alike: macro" not in out
    )
    _, err = run(capsys, f"evaluate {model} --data {folder} --classes --tasks alike", 1)
    assert "expected a task with classes" in err
    (tmp_path / "taken").write_text("")
    _, err = run(capsys, f"evaluate {model} --data {folder} --predictions {tmp_path / 'taken'}", 1)
    assert f"expected a folder for --predictions, got the file {tmp_path / 'taken'}" in err
    write(folder / "thing-test.csv", ("sentence",), [("one lamp",)])
    _, err = run(
        capsys,
        f"evaluate {model} --data {folder} --tasks thing --split test --classes --predictions {tmp_path / 'new'}",
        1,
    )
    assert "test: expected labels" in err and not (tmp_path / "new").exists()
    _, err = run(capsys, "train --tasks thing", 1)
    assert "--data names a folder with files of your own" in err
    _, err = run(capsys, f"evaluate {model} --sts --classes", 1)
    assert "--classes without --sts" in err
