"""Rows from a machine: they are what they claim to be, say who made them, and are kept away from
measurements.
"""

import gzip
from collections import Counter

import pytest

from minbert.data import Dataset, load_dataset
from minbert.evaluate import evaluate_tasks, worst_mistakes
from minbert.sts import gold_labels, score_sts
from minbert.synthetic import grammar_dataset, mix_datasets, read_labelled

TASKS = ("sst", "quora", "stsb")


@pytest.mark.parametrize("task", (*TASKS, "sentiment", "similarity"))
def test_grammar_makes_rows_of_the_task(task):
    real = load_dataset(task, "train")
    made = grammar_dataset(real, 60, seed=5)
    assert (
        len(made) == 60
        and made.split == "train"
        and (made.kind, made.classes, made.scale) == (real.kind, real.classes, real.scale)
    )
    assert (
        set(made.sources) == {"grammar of minbert.datasets.grammar_data, seed 5"}
        and len(set(made.ids)) == 60
    )
    assert (made.sentences2 is None) == (real.sentences2 is None)
    assert {type(label) for label in made.labels} <= {type(label) for label in real.labels} | {
        int,
        float,
    }
    low, high = (0, len(real.classes) - 1) if real.classes else real.scale
    assert low <= min(made.labels) < max(made.labels) <= high


@pytest.mark.parametrize("task", TASKS)
def test_grammar_is_a_function_of_its_seed(task):
    real = load_dataset(task, "train")

    def make(seed):
        return grammar_dataset(real, 30, seed)

    assert make(1) == make(1)
    assert make(1).sentences != make(2).sentences


@pytest.mark.parametrize("task", TASKS)
def test_grammar_leaves_out_what_it_is_told_to(task):
    """With the seed of the embedded sample the grammar says its sentences again, unless they are
    excluded.
    """
    real, dev = load_dataset(task, "train"), load_dataset(task, "dev")

    def texts(d):
        return {*d.sentences, *(d.sentences2 or [])}

    seed = 11711 + TASKS.index(task)
    assert texts(grammar_dataset(real, 1000, seed)) & texts(dev)
    assert not texts(grammar_dataset(real, 1000, seed, exclude=[dev])) & texts(dev)


def test_sentiment_is_balanced():
    made = grammar_dataset(load_dataset("sst"), 103)
    assert sorted(Counter(made.labels).values()) == [19, 21, 21, 21, 21]
    assert sorted(Counter(grammar_dataset(load_dataset("sentiment"), 103).labels).values()) == [
        51,
        52,
    ]


def test_two_classes_are_the_sides_of_five():
    """No neutral sentence is taken, and both degrees of praise are 1."""
    five = grammar_dataset(load_dataset("sst"), 4000, seed=3)
    degrees = dict(zip(five.sentences, five.labels))
    two = grammar_dataset(load_dataset("sentiment"), 1500, seed=3)
    met = [
        (degrees[text], label) for text, label in zip(two.sentences, two.labels) if text in degrees
    ]
    assert {degree for degree, _ in met} == {0, 1, 3, 4}
    assert all(label == (degree > 2) for degree, label in met)


@pytest.mark.parametrize(
    "like, rows",
    [
        (Dataset("x", "train", "nli", ["a"], ["b"], [0], classes=("no", "yes")), 5),
        (Dataset("x", "train", "sentiment", ["a"], labels=[0], classes=("no", "so", "yes")), 5),
        (load_dataset("sst"), 0),
    ],
)
def test_grammar_refuses_what_it_cannot_make(like, rows):
    with pytest.raises(ValueError, match="expected sentiment in 2 or 5 classes"):
        grammar_dataset(like, rows)


class Guess:
    """A model that is always right."""

    def predict(self, task, data):
        return data.labels


def test_no_measurement_takes_a_machines_labels():
    real = load_dataset("stsb", "train").subset(range(60))
    made = grammar_dataset(real, 50)
    for data in (made, mix_datasets(real, made), made.subset([0])):
        for measure in (
            gold_labels,
            lambda d: evaluate_tasks(Guess(), {"stsb": d}, resamples=0),
            lambda d: worst_mistakes(d, d.labels),
        ):
            with pytest.raises(
                ValueError,
                match="labels made by people.*grammar of minbert.datasets.grammar_data, seed 1",
            ):
                measure(data)
    assert gold_labels(mix_datasets(real, made).subset(range(len(real)))) == real.labels


def write(path, text):
    (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf8").write(text)
    return path


@pytest.mark.parametrize(
    "name, blank",
    [("a.csv", ","), ("a.tsv", "\t"), ("a.csv.gz", ","), ("a.tsv.gz", "\t"), ("A.TSV", "\t")],
)
def test_tables_of_both_kinds(tmp_path, name, blank):
    rows = [
        ["note", "sentence2", "sentence1", "score"],
        ["x", "B", '"A, a"', "2.5"],
        ["y", "D", "C", "5"],
    ]
    file = write(tmp_path / name, "\n".join(blank.join(row) for row in rows))
    data = read_labelled(file, load_dataset("stsb"), "me", label="score")
    assert (data.sentences, data.sentences2, data.labels) == (["A, a", "C"], ["B", "D"], [2.5, 5.0])
    assert (
        data.sources == ["me", "me"]
        and data.ids == [f"{name}:2", f"{name}:3"]
        and data.split == "train"
    )


def test_rows_of_the_exam_are_left_out_and_listed(tmp_path):
    dev = load_dataset("stsb", "dev")
    shouted = "  ".join(dev.sentences2[3].upper().split())
    file = write(
        tmp_path / "a.csv",
        f'sentence1,sentence2,label\nA.,B.,1\n"{shouted}",C.,2\nD.,"{dev.sentences[0]}",3\n',
    )
    data = read_labelled(file, load_dataset("stsb"), "me", exclude=[dev])
    assert (data.sentences, data.ids, data.sources) == (["A."], ["a.csv:2"], ["me"])
    assert data.skipped == [
        (f"{file}:3", "occurs in an excluded set"),
        (f"{file}:4", "occurs in an excluded set"),
    ]
    assert len(read_labelled(file, load_dataset("stsb"), "me")) == 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("sentence,label\ngood,5\n", r"a.csv:2: expected a whole number from 0 to 4, got '5'"),
        ("sentence,label\ngood,3\nfine,2.5\n", r"a.csv:3: expected a whole number"),
        ("sentence,label\n ,3\n", r"a.csv:2: expected text in 'sentence'"),
        ("sentence,label\ngood,\n", r"a.csv:2: expected a label"),
        ("sentence,label\ngood\n", r"a.csv:2: expected 2 cells"),
        (
            "sentence,grade\ngood,3\n",
            r"a.csv:1: expected columns \['sentence', 'label'\], got \['sentence', 'grade'\]",
        ),
        ('sentence,label\n"good,3\n', r"a.csv:2: expected matching CSV quotes"),
        ("sentence,label\n", r"a.csv: expected at least one row"),
    ],
)
def test_bad_tables_are_refused_with_file_and_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_labelled(write(tmp_path / "a.csv", text), load_dataset("sst"), "me")


def test_bad_calls_are_refused(tmp_path):
    file = write(tmp_path / "a.csv", "sentence,label\ngood,3\n")
    for kwargs in (dict(source=""), dict(source="me", text=("sentence", "sentence"))):
        with pytest.raises(ValueError, match="expected a source and 1 text columns"):
            read_labelled(file, load_dataset("sst"), **kwargs)


def test_a_mixture_keeps_every_column():
    real = load_dataset("quora", "train").subset(range(4))
    made = grammar_dataset(real, 3)
    both = mix_datasets(real, made, made)
    assert len(both) == 10 and both.sources == [None] * 4 + made.sources * 2
    for name in ("sentences", "sentences2", "labels", "ids"):
        assert getattr(both, name) == getattr(real, name) + getattr(made, name) * 2
    assert mix_datasets(real).labels == real.labels


@pytest.mark.parametrize(
    "other",
    [
        load_dataset("stsb"),
        Dataset(
            "quora",
            "train",
            "paraphrase",
            ["a"],
            ["b"],
            None,
            classes=load_dataset("quora").classes,
        ),
        load_dataset("quora", "dev"),
        Dataset("sst", "train", "sentiment", ["a"], labels=[1], classes=("no", "yes")),
    ],
)
def test_a_mixture_is_of_one_task(other):
    for parts in ((load_dataset("quora"), other), (other, load_dataset("quora"))):
        with pytest.raises(ValueError, match="expected labelled training sets of one task"):
            mix_datasets(*parts)


def test_scores_of_similarity_sets_ask_too():
    made = grammar_dataset(load_dataset("stsb"), 10)
    import torch

    with pytest.raises(ValueError, match="made by people"):
        score_sts(torch.randn(2, 4), {"stsb": torch.zeros(2, 10, dtype=torch.long)}, {"stsb": made})
