"""The demo's mechanisms: what it compares with, what it draws, and that dev chooses nothing."""

import json
import math

import numpy as np
import pytest
import torch

from minbert.baselines import BagOfWords
from minbert.cli import demo
from minbert.cli.demo import (
    Comparison,
    compare,
    demo_table,
    fine_tune,
    middle_row,
    outer_thirds,
    pair_cosines,
    word_order,
)
from minbert.data import Dataset, load_dataset
from minbert.heads import MultitaskBert
from minbert.metrics import Interval, accuracy, paired_bootstrap, pearson


def reviews(split: str, texts: str, labels: list[int]) -> Dataset:
    return Dataset(
        "sentiment", split, "sentiment", texts.split(), labels=labels, classes=("bad", "good")
    )


TRAIN = reviews("train", "bad bad bad good good", [0, 0, 0, 1, 1])
DEV = reviews("dev", "good good good bad awful", [1, 1, 1, 0, 0])


def test_a_task_is_compared_with_what_learned_from_train_alone():
    after = [1, 1, 1, 0, 1]
    row = compare(TRAIN, DEV, [0, 1, 0, 1, 0], after)
    # always 0, the majority of train and not of dev; the bag says 0 to an unknown word
    assert row[:4] == ("accuracy", 0.4, 1.0, 0.4)
    assert row.after == paired_bootstrap(accuracy, after, DEV.labels)
    assert row.gain == paired_bootstrap(
        accuracy, after, DEV.labels, BagOfWords().fit(TRAIN).predict(DEV)
    )
    assert row.gain.value == pytest.approx(-0.2) and row.gain.low <= -0.2 <= row.gain.high


def test_grades_are_correlated_and_no_constant_is():
    train, dev = (load_dataset("similarity", split).subset(range(60)) for split in ("train", "dev"))
    answers = np.array(dev.labels) + np.arange(60) % 7
    row = compare(train, dev, answers[::-1], answers)
    assert row.metric == "Pearson" and np.isnan(row.constant)
    assert row.bag == pytest.approx(
        np.corrcoef(BagOfWords().fit(train).predict(dev), dev.labels)[0, 1]
    )
    assert row.before == pearson(answers[::-1], dev.labels) and row.after.value == pearson(
        answers, dev.labels
    )
    assert row.gain.value == pytest.approx(row.after.value - row.bag)


def test_answers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected one prediction per label, got 4 and 5"):
        compare(TRAIN, DEV, [0] * 5, [0] * 4)


def test_the_table_keeps_every_number_in_its_column():
    rows = {
        "sentiment": Comparison(
            "accuracy", 0.1, 0.2, 0.3, Interval(0.4, 0.35, 0.45), Interval(0.2, -0.15, 0.25)
        ),
        "similarity": Comparison(
            "Pearson", np.nan, 0.7, 0.5, Interval(0.8, 0.75, 0.85), Interval(0.1, 0.05, 0.15)
        ),
    }
    head, *lines, scope = demo_table(rows).splitlines()
    assert scope.startswith("intervals: 95 %, examples only")
    assert [line.split() for line in lines] == [
        "sentiment accuracy 0.100 0.200 0.300 0.400 0.350 to 0.450 +0.200 (-0.150 to +0.250)".split(),
        "similarity Pearson none 0.700 0.500 0.800 0.750 to 0.850 +0.100 (+0.050 to +0.150)".split(),
    ]
    for title, number in (
        ("constant", "0.100"),
        ("bag of words", "0.200"),
        ("before", "0.300"),
        ("  after ", "0.400"),
    ):
        assert head.index(title) + len(title.rstrip()) == lines[0].index(number) + 5
    assert head.index("95 %") == lines[0].index("0.350") and head.rindex("after") == lines[0].index(
        "+0.200"
    )


def test_the_demo_learns_word_order_from_a_quarter_of_the_sentences_and_a_bag_of_words_cannot():
    train, dev = word_order("train"), word_order("dev")
    whole = load_dataset("bigram-shift")
    assert train.sentences[:4] == [*whole.sentences[:2], *whole.sentences[8:10]] and 4 * len(
        train
    ) - len(whole) in range(0, 8, 2)
    assert dev == load_dataset("bigram-shift", "dev")
    for data in (train, dev):
        assert data.labels == [0, 1] * (len(data) // 2)  # both forms of each sentence
    row = compare(train, dev, dev.labels, dev.labels)
    assert row[:3] == ("accuracy", 0.5, 0.5) and row.after.value == 1


@pytest.fixture
def few(monkeypatch):
    """Two tasks of 70 and 20 rows to learn from, few to answer."""
    sizes = {"sentiment": 70, "similarity": 20}
    return tuple(
        {task: load_dataset(task, split).subset(range(n)) for task, n in rows.items()}
        for split, rows in (("train", sizes), ("dev", dict.fromkeys(sizes, 12)))
    )


def test_every_row_is_learned_from_once_an_epoch_and_dev_chooses_nothing(
    few, tmp_path, monkeypatch
):
    """Three steps an epoch: 24 reviews and 7 pairs each, and a single evaluation, after the last."""
    seen, fit = [], demo.fit
    monkeypatch.setattr(demo, "fit", lambda *a, **k: seen.append(a[3]) or fit(*a, **k))
    before, after = fine_tune(*few, tmp_path / "run", epochs=2, seed=3)
    config = seen[0]
    assert config.batch_size == {"sentiment": 24, "similarity": 7} and (
        config.steps,
        config.seed,
    ) == (6, 3)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert sum("loss" in line for line in log) == 6 and len(log) == 7 and "loss" not in log[-1]
    kept = MultitaskBert.from_pretrained(tmp_path / "run" / "model").state_dict()
    torch.testing.assert_close(dict(after.state_dict()), dict(kept), rtol=0, atol=0)
    moved = [
        name for name, weight in before.state_dict().items() if not torch.equal(weight, kept[name])
    ]
    assert any("encoder" in name for name in moved) and any(
        "heads.sentiment" in name for name in moved
    )
    start = demo.SentenceEncoder.from_pretrained().model.state_dict()
    torch.testing.assert_close(dict(before.encoder.model.state_dict()), dict(start), rtol=0, atol=0)
    assert not before.training


class Angles:
    """Say in a sentence's vector what its text says."""

    @property
    def encoder(self):
        return self

    def encode(self, texts):
        angle = torch.tensor([float(text) for text in texts])
        return torch.stack([angle.cos(), angle.sin()], 1)


def test_the_outer_thirds_and_the_row_in_their_middle():
    low, high = outer_thirds([4.0, 0.0, 5.0, 1.0, 2.0, 3.0])
    assert low.tolist() == [1, 3] and high.tolist() == [0, 2]
    low, high = outer_thirds([0, 0, 0, 1, 1, 1])
    assert low.tolist() == [0, 1, 2] and high.tolist() == [3, 4, 5]  # on the border is in
    cosines = np.array([0.9, -1.0, 0.1, 0.5, 0.7])
    assert middle_row(cosines, np.array([0, 2, 3])) == 3
    assert middle_row(cosines, np.array([0, 3])) == 0 and middle_row(cosines, np.array([2])) == 2


def test_the_figure_parts_the_pairs_by_their_grades_and_writes_two_out(tmp_path, monkeypatch):
    import minbert.core.figures as figures

    shown, panels, draw, opened = [], figures.panels, figures.cosine_histogram, []
    monkeypatch.setattr(
        figures, "cosine_histogram", lambda groups, **k: shown.append(groups) or draw(groups, **k)
    )
    monkeypatch.setattr(figures, "panels", lambda *a, **k: opened.extend(panels(*a, **k)) or opened)
    cosines = [0.1, 0.3, 0.5, 0.6, 0.7, 0.9]
    pairs = Dataset(
        "similarity",
        "dev",
        "similarity",
        ["0"] * 6,
        [str(math.acos(c)) for c in cosines],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    )
    found = pair_cosines(Angles(), pairs)
    np.testing.assert_allclose(found, cosines, atol=1e-6)
    demo.demo_figure({"before": found, "after": found[::-1]}, pairs, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 1000
    for groups, values in zip(shown, (cosines, cosines[::-1]), strict=True):
        high, low = groups.values()
        # high grades have the first colour in every chapter
        assert "highest" in list(groups)[0] and "lowest" in list(groups)[1]
        np.testing.assert_allclose(low, values[:2], atol=1e-6)
        np.testing.assert_allclose(high, values[4:], atol=1e-6)
    marks = [[(text.get_text(), round(text.xy[0], 3)) for text in ax.texts] for ax in opened]
    # the same rows in both panels
    assert marks == [[("A 0.30", 0.3), ("B 0.90", 0.9)], [("A 0.70", 0.7), ("B 0.10", 0.1)]]
    text = opened[0].figure.get_supxlabel()
    assert text.splitlines() == [
        f"{mark}, grade {row}: 0 | {pairs.sentences2[row]}" for mark, row in (("A", 1), ("B", 5))
    ]


def test_panels_of_the_figure_cut_no_pair_of_another(monkeypatch):
    import minbert.core.figures as figures

    opened, panels = [], figures.panels
    monkeypatch.setattr(figures, "panels", lambda *a, **k: opened.extend(panels(*a, **k)) or opened)
    pairs = Dataset(
        "similarity", "dev", "similarity", ["0"] * 6, ["1"] * 6, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    )
    demo.demo_figure(
        {"before": np.linspace(-0.4, 0.9, 6), "after": np.linspace(0.6, 0.9, 6)}, pairs
    )
    assert all(ax.get_xlim() == (-0.5, 1) for ax in opened)
