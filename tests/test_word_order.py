"""The bigram-shift task: its construction, what its labels can be predicted from, and the script
that compares models on it.
"""

import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from minbert.baselines import BagOfWords
from minbert.data import SPLITS, available, load_dataset
from minbert.datasets.bigram_shift import MOST_WORDS, normalized, possible_swaps, swapped_pairs
from minbert.metrics import accuracy
from minbert.significance import interval

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import word_order as script  # noqa: E402


@pytest.fixture(scope="module")
def task():
    return {split: load_dataset("bigram-shift", split) for split in SPLITS}


def pairs_of(dataset):
    return list(zip(dataset.sentences[::2], dataset.sentences[1::2]))


# --- single sentences


def test_each_two_adjacent_words_are_swapped_once_and_the_first_word_stays():
    assert possible_swaps("Tom wants to try it.") == [
        "Tom to wants try it.",
        "Tom wants try to it.",
        "Tom wants to it try.",
    ]
    assert possible_swaps("Tom wants it.") == ["Tom it wants."]
    assert possible_swaps("Stop it!") == possible_swaps("Stop!") == possible_swaps("") == []


@pytest.mark.parametrize(
    "text, moved",
    [
        (
            "I see, you know, what is meant.",
            ["is meant"],
        ),  # not across a comma; a word precedes both
        # equal words change nothing
        ("He said very very much.", ["said very", "very much"]),
        ("He said The the much.", ["said The", "the much"]),  # nor do capitals
        # no part of an abbreviation
        ("We saw the U.S. army there.", ["saw the"]),
        ('He read "the little prince" twice.', []),  # nor a quotation
        ("You don't know half-baked ideas?", ["don't know", "know half-baked", "half-baked ideas"]),
        ("We met at 5 o'clock sharp", ["met at", "at 5", "5 o'clock", "o'clock sharp"]),
        # one space, or they are not adjacent
        ("We saw  two spaces here", ["two spaces", "spaces here"][1:]),
    ],
    ids=lambda value: None if isinstance(value, list) else value,
)
def test_words_are_swapped_only_where_a_single_space_separates_them(text, moved):
    swaps = [" ".join(reversed(pair.split(" "))).join(text.split(pair, 1)) for pair in moved]
    assert possible_swaps(text) == swaps


# --- the whole set


def test_there_are_enough_examples_and_each_split_is_balanced(task):
    assert len(task["train"]) >= 10_000 and min(len(data) for data in task.values()) >= 1000
    for split, data in task.items():
        assert (data.name, data.split, data.kind, data.classes) == (
            "bigram_shift",
            split,
            "sentiment",
            ("original", "swapped"),
        )
        assert (
            data.labels == [0, 1] * (len(data) // 2)
            and data.sentences2 is None
            and data.skipped == []
        )
        assert len(set(data.ids)) == len(data)


def test_every_original_is_an_open_sentence_and_its_copy_differs_by_one_swap(task):
    source = load_dataset("sentences")
    at = dict(zip(source.ids, source.sentences))
    for data in task.values():
        for (original, swapped), first, second in zip(
            pairs_of(data), data.ids[::2], data.ids[1::2], strict=True
        ):
            assert (
                at[first] == original
                and second == first + "-swapped"
                and len(original.split()) <= MOST_WORDS
            )
            words, moved = (re.findall(r"[\w'’-]+|[^\w\s]", text) for text in (original, swapped))
            changed = [i for i, (a, b) in enumerate(zip(words, moved, strict=True)) if a != b]
            assert len(changed) == 2 and changed[1] == changed[0] + 1 and changed[0] > 0
            assert [words[i] for i in changed] == [moved[i] for i in reversed(changed)]


def test_no_text_occurs_twice_in_any_split(task):
    """Nor do two that differ in capitals or punctuation alone; and no swap produces a sentence that
    somebody wrote.
    """
    found = {split: [normalized(text) for text in data.sentences] for split, data in task.items()}
    assert max(Counter(text for texts in found.values() for text in texts).values()) == 1
    assert not any(set(found[a]) & set(found[b]) for a, b in combinations(SPLITS, 2))
    written = {normalized(text) for text in load_dataset("sentences").sentences}
    assert not written & {text for texts in found.values() for text in texts[1::2]}


def test_the_construction_depends_on_the_sentences_alone(task):
    """Not on their order, a random state, or what other sentences there are, unless a swap produces
    one of them.
    """
    sentences = load_dataset("sentences").sentences
    pairs = {pair.original: pair.swapped for pair in swapped_pairs(sentences, "dev")}
    assert pairs == dict(pairs_of(task["dev"]))
    half = {pair.original: pair.swapped for pair in swapped_pairs(sentences[::-2], "dev")}
    assert 0.45 * len(pairs) < len(half) < 0.55 * len(pairs) and half.keys() <= pairs.keys()
    assert sum(pairs[text] == swapped for text, swapped in half.items()) >= 0.99 * len(half)


def test_repeated_sentences_and_swaps_that_meet_another_sentence_are_left_out():
    repeated = [
        "We know it is late.",
        "we know it is late",
        "We know is it late.",
        "We it know is late.",
        "We know it late is.",
    ]
    assert [pair for split in SPLITS for pair in swapped_pairs(repeated[:2], split)][0].line == 0
    results = [pair for split in SPLITS for pair in swapped_pairs(repeated, split)]
    texts = [normalized(text) for pair in results for text in pair[:2]]
    assert len(texts) == len(set(texts)) and all(pair.line != 1 for pair in results)
    assert not {normalized(text) for text in repeated} & {
        normalized(pair.swapped) for pair in results
    }


def test_two_sentences_never_become_the_same_by_their_swaps():
    """Each two of these have one swap in common: Number5 is test a."""
    sentences = [
        text for n in range(50) for text in (f"Number{n} is a test", f"Number{n} test is a")
    ]
    pairs = [pair for split in SPLITS for pair in swapped_pairs(sentences, split)]
    assert sorted(pair.original for pair in pairs) == sorted(sentences)
    assert len({pair.swapped for pair in pairs} | set(sentences)) == 200


def test_a_bag_of_words_is_at_chance_in_every_split_whatever_it_learned(task):
    bag = BagOfWords().fit(task["train"])
    for data in task.values():
        predictions = bag.predict(data)
        assert np.array_equal(predictions[::2], predictions[1::2])
        assert accuracy(predictions, data.labels) == 0.5


def test_neither_the_first_word_nor_the_length_reveals_a_swap(task):
    for data in task.values():
        for original, swapped in pairs_of(data):
            assert original.split()[0] == swapped.split()[0] and len(original) == len(swapped)


# --- where it is found


def test_the_task_is_constructed_from_the_sentences_of_a_folder_where_it_has_some(tmp_path, task):
    assert available()["bigram_shift"] == list(SPLITS) and "bigram_shift" not in available(tmp_path)
    assert (
        load_dataset("bigram-shift", "dev", tmp_path)
        == load_dataset("bigram_shift", "dev")
        == task["dev"]
    )
    lines = [f"me\tNumber {n} is one of the many numbers here." for n in range(60)]
    (tmp_path / "sentences.tsv").write_text(
        "source\tsentence\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    own = load_dataset("bigram-shift", "train", tmp_path)
    assert available(tmp_path) == {"sentences": ["train"], "bigram_shift": list(SPLITS)}
    assert 60 < len(own) < 120 and all(text.startswith("Number") for text in own.sentences)


def test_an_unknown_split_and_sentences_without_two_words_to_swap_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a split of .*'test'.*, got 'valid'"):
        load_dataset("bigram-shift", "valid")
    (tmp_path / "sentences.tsv").write_text("source\tsentence\nme\tStop it!\n", encoding="utf-8")
    with pytest.raises(
        ValueError,
        match="bigram_shift train: expected sentences with words to swap, got none among 1",
    ):
        load_dataset("bigram-shift", "train", tmp_path)


# --- what the programs make of it


def test_a_model_can_be_trained_scored_and_asked_under_the_name_of_the_task(tmp_path, capsys):
    """A head needs an identifier for a name; the tables call its classes what the dataset calls
    them.
    """
    from minbert.cli.commands import check_tasks, load_splits
    from minbert.cli.custom_tasks import build_heads, own_tasks
    from minbert.cli.dataset_split import task_name
    from minbert.cli.labelled_model import LabelledModel
    from minbert.sentence import SentenceEncoder

    assert check_tasks(["bigram_shift"], None) == ["bigram_shift"]
    sets = load_splits(["bigram_shift"], "dev", None)
    assert capsys.readouterr().err == ""  # no grammar wrote these examples
    encoder = SentenceEncoder.from_pretrained()
    model = LabelledModel(encoder, build_heads(encoder.width, sets))
    assert model.heads["bigram_shift"].classes == 2
    answer = model.answer("bigram_shift", ["Tom wants to it try."])
    assert answer["label"][0] in ("original", "swapped")
    with pytest.raises(
        ValueError,
        match="expected a task's name .* none that the package or PyTorch has, got 'bigram_shift'",
    ):
        task_name(tmp_path / "bigram_shift.csv", None, tmp_path)
    (tmp_path / "bigram_shift-train.csv").write_text("sentence,label\na,b\n", encoding="utf-8")
    with pytest.raises(ValueError, match="expected another name than bigram_shift"):
        own_tasks(tmp_path)


# --- the script


@pytest.fixture
def recorded(monkeypatch):
    """Replace training by a function that writes down what it was asked for and is right about
    every original.
    """
    calls = []

    def train(row, value, seed, search, folder):
        calls.append((row, value, seed, search))
        return [[104, 0.5 + value / 100], [415, 0.5]], np.zeros(len(script.splits()["test"]), int)

    monkeypatch.setattr(script, "method_of", lambda row: train)
    return calls


def test_runs_are_stored_one_by_one_and_never_done_twice(recorded, tmp_path):
    file, rows = tmp_path / "results.json", ["bag of bigrams", "embedded, frozen"]
    script.run_all(file, tmp_path / "work", rows)
    searched = [
        (row, value, script.SEARCH_SEED, True) for row in rows for value in script.CANDIDATES[row]
    ]
    final = [
        ("bag of bigrams", 10.0, 1, False),
        *(("embedded, frozen", 1e-2, seed, False) for seed in (1, 2, 3, 4, 5)),
    ]
    # the best on dev was chosen, and no seed twice
    assert sorted(recorded) == sorted([*searched, *final])
    stored = script.load_results(file)
    assert all(
        run["dev_accuracy"] == 0.5 + run["value"] / 100 and run["best"] == 104
        for run in stored["runs"]
    )
    stored["runs"].pop(3)
    script.save_results(file, stored)
    recorded.clear()
    script.run_all(file, tmp_path / "work", rows)
    assert len(recorded) == 1


def test_a_resumed_run_has_no_processor_time_and_is_left_out_of_the_mean(recorded, tmp_path):
    """The clock of the resumed process does not contain the time of the interrupted one."""
    (tmp_path / "embedded-frozen-2-0.01-False").mkdir()
    runs = [script.train_once("embedded, frozen", 1e-2, seed, False, tmp_path) for seed in (1, 2)]
    assert runs[0]["processor_seconds"] >= 0 and runs[1]["processor_seconds"] is None
    runs[0]["processor_seconds"] = 7.0
    assert script.mean_seconds(runs) == "7" and script.mean_seconds(runs[1:]) == "unknown"


def test_results_on_other_examples_are_refused(recorded, tmp_path):
    file = tmp_path / "results.json"
    script.save_results(file, {"examples": {"train": "0"}, "runs": []})
    with pytest.raises(ValueError, match=r"results\.json: expected results on the examples"):
        script.run_all(file, tmp_path, ["bag of words"])
    assert recorded == []


def test_an_interval_resamples_both_forms_of_a_sentence_together():
    """Predictions that ignore word order are correct on one form of each sentence: every sample has
    the same accuracy.
    """
    labels = [0, 1] * 50
    assert interval(script.score(["0" * 100, "1" * 100], labels))[:3] == (0.5, 0.5, 0.5)
    found = interval(script.score(["01" * 25 + "10" * 25] * 5, labels))
    # 50 coins: 0.5 +- 1.96 * 0.0707
    assert found.value == 0.5 and found.low == pytest.approx(0.36, abs=0.01)
    assert found.high == pytest.approx(0.64, abs=0.01) and found.seeds == 5


def test_an_interval_over_two_seeds_uses_student_t():
    """Every sample of sentences has the accuracies 1 and 0.5: s / sqrt(2) = 0.25, and t(1) =
    12.706.
    """
    found = interval(script.score(["01" * 50, "00" * 50], [0, 1] * 50))
    # t has 3 decimals
    assert found[:3] == pytest.approx((0.75, 0.75 - 12.706 * 0.25, 0.75 + 12.706 * 0.25), abs=1e-3)


def test_a_method_without_seeds_has_an_interval_over_sentences_alone():
    found = interval(script.score(["01" * 25 + "10" * 25], [0, 1] * 50, deterministic=True))
    # quantiles are multiples of 0.02
    assert found.seeds == 0 and found[1:3] == pytest.approx((0.36, 0.64), abs=0.03)


def test_what_is_stored_belongs_to_the_task_and_the_report_shows_it():
    stored = script.load_results(script.RESULTS)
    labels = script.splits()["test"].labels
    for run in stored["runs"]:
        assert run["value"] in script.CANDIDATES[run["row"]]
        if not run["search"]:
            assert run["test_accuracy"] == accuracy([int(x) for x in run["predictions"]], labels)
            assert run["value"] == script.chosen_value(stored, run["row"])
    assert script.table(stored, labels) in script.RESULTS.with_name("README.md").read_text(
        encoding="utf-8"
    )


def test_every_row_of_the_report_has_results_of_the_seeds_that_are_announced():
    stored = script.load_results(script.RESULTS)
    found = {
        row: [run["seed"] for run in script.find(stored, row, search=False)]
        for row in script.CANDIDATES
    }
    assert found == {
        row: [1] if row in script.SEEDLESS else list(script.SEEDS) for row in script.CANDIDATES
    }
    assert "seeds 1 to 5" in " ".join(script.__doc__.split()) and script.SEEDS == (1, 2, 3, 4, 5)
    assert "with seed 0;" in script.__doc__ and script.SEARCH_SEED == 0


def test_the_summary_in_the_package_is_that_of_the_stored_results():
    import json

    stored = script.load_results(script.RESULTS)
    assert json.loads(script.SUMMARY.read_text("utf-8")) == script.summary(
        stored, script.splits()["test"]
    )
