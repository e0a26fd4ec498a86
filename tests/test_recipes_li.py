"""Li et al. (2020) and the controls: every printed figure has a recipe, and what a recipe stores is
what the sets say.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from minbert.data import Dataset, load_dataset
from minbert.metrics import spearman
from minbert.papers import baselines, li, sts_suite
from minbert.papers.published import published
from minbert.papers.recipe import CLAIMS, NOT_RUN, RECIPES
from minbert.papers.report import printed_gain
from minbert.papers.result_store import perform
from minbert.papers.run import Run, labelled
from minbert.papers.scale import SCALES
from minbert.sentence import SentenceEncoder
from minbert.sts import aggregate_spearman, evaluate_sts
from minbert.tokens import encode_ids

YEARS = {
    "STS12": ("one", "two"),
    "STS13": ("one",),
    "STS14": ("one",),
    "STS15": ("one",),
    "STS16": ("one",),
}


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_pairs(folder, rows):
    """Write pairs of the grammar as STS-B, SICK-R, the course's STS and five years; STS12 also
    holds the dev pairs of STS-B.
    """
    deal, parts = iter(rows), {}
    for split, sick in (("train", "train"), ("dev", "trial"), ("test", "test_annotated")):
        parts[split], other, course = ([next(deal) for _ in range(10)] for _ in range(3))
        write(
            folder / f"senteval/STS/STSBenchmark/sts-{split}.csv",
            *(f"g\tf\t1\t{i}\t{y}\t{a}\t{b}" for i, (a, b, y) in enumerate(parts[split])),
        )
        write(
            folder / f"senteval/SICK/SICK_{sick}.txt",
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
            *(f"{i}\t{a}\t{b}\t{1 + y * 0.8}\tNEUTRAL" for i, (a, b, y) in enumerate(other)),
        )
        write(
            folder / f"cs224n/sts-{split}.csv",
            "\tid\tsentence1\tsentence2\tsimilarity",
            *(f"{i}\t{split}{i}\t{a}\t{b}\t{y}" for i, (a, b, y) in enumerate(course)),
        )
    for year, subsets in YEARS.items():
        for name in subsets:
            pairs = [next(deal) for _ in range(9)] + (parts["dev"] if name == "two" else [])
            write(
                folder / f"senteval/STS/{year}-en-test/STS.input.{name}.txt",
                *(f"{b}\t{a}" for a, b, _ in pairs),
            )
            write(
                folder / f"senteval/STS/{year}-en-test/STS.gs.{name}.txt",
                *(str(y) for *_, y in pairs),
            )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder of a few rows a set."""
    home = tmp_path_factory.mktemp("data")
    sample = load_dataset("stsb", "train")
    rows = list(dict.fromkeys((a, b) for a, b in zip(sample.sentences, sample.sentences2)))
    write_pairs(home, [(a, b, (7 * i) % 11 / 2.2) for i, (a, b) in enumerate(rows)])
    captions = load_dataset("inference", "dev")
    table = [
        "gold_label\tsentence1\tsentence2",
        *(
            f"{captions.classes[y]}\t{a}\t{b}"
            for a, b, y in zip(captions.sentences[:9], captions.sentences2, captions.labels)
        ),
    ]
    for split in ("train-sample", "dev-matched"):
        write(home / f"nli/mnli-{split}.tsv", *table)
    write(
        home / "nli/qnli-dev.tsv",
        "index\tquestion\tsentence\tlabel",
        *(f"{i}\t{a}\t{b}\t{'not_' * (i % 2)}entailment" for i, (a, b) in enumerate(rows[:8])),
    )
    write(home / li.COUNTS, "the 90", "girl 50", "zzzz 20", "blue 9")
    return str(home)


@pytest.fixture
def run(folder, tmp_path):
    toy = replace(
        SCALES["micro"],
        flow_steps=3,
        task_steps=2,
        most_train=24,
        most_dev=8,
        most_text=40,
        precision="fp32",
        seeds=(1, 2),
    )
    return Run(toy, 1, folder, tmp_path)


def test_every_printed_figure_has_a_recipe_or_a_reason():
    run_at = {cell[:3] for r in RECIPES.values() if r.paper == "li" for cell in r.cells}
    printed = [p for p in published().values() if p.paper == "li"]
    assert len(printed) > 200
    assert [
        p for p in printed if (p[1:4] in run_at) == ((p.paper, p.table, p.row) in NOT_RUN)
    ] == []
    assert {
        name for c in CLAIMS for name in (c.better, c.worse) if name.startswith(("li/", "control/"))
    } <= {*RECIPES}


def test_plain_bert_is_what_the_book_measures(run):
    stored = perform(RECIPES["li/base"], run)["measured"]
    encoder = SentenceEncoder.from_pretrained(None)
    expected = evaluate_sts(encoder, run.data, "wmean")
    for key, task in sts_suite.SETS.items():
        data = labelled(stored[key]["dataset"], run.data)
        assert stored[key]["metric"] == ("wmean" if data.subsets else "spearman")
        got = aggregate_spearman(
            stored[key]["answers"], data.labels, data.subsets or [0] * len(data), "wmean"
        )
        assert got == pytest.approx(expected[task], abs=1e-9)
    assert stored["average"]["value"] == pytest.approx(expected["average"], abs=1e-9)
    assert stored[sts_suite.DEV]["dataset"] == "sts/dev/8"


def test_pairs_of_the_dev_set_are_left_out_in_either_order(run, monkeypatch):
    data, dev = labelled("sts12/test", run.data), labelled("stsb/dev", run.data)
    known = {frozenset(pair) for pair in zip(dev.sentences, dev.sentences2)}
    wrong = [
        -y if frozenset(pair) in known else y
        for *pair, y in zip(data.sentences, data.sentences2, data.labels)
    ]
    assert sum(w < 0 for w in wrong) >= 8
    assert sts_suite.unseen(run, "sts12", wrong) == pytest.approx(1)
    assert aggregate_spearman(wrong, data.labels, data.subsets, "wmean") < 1
    turned = data.subset(range(len(data) - 1, -1, -1))  # those of the dev set come first
    monkeypatch.setattr(
        sts_suite,
        "labelled",
        lambda key, folder: turned if key == "sts12/test" else labelled(key, folder),
    )
    assert sts_suite.unseen(run, "sts12", wrong[::-1]) == pytest.approx(1)


def test_answers_are_kept_as_ranks_for_cosines_near_one_lose_their_order_with_their_digits(run):
    found = sts_suite.seven(run, lambda task, data: [0.9999 + 1e-9 * i for i in range(len(data))])
    assert found["STS-B"].values == list(range(1, 11)) and found[sts_suite.DEV].values == list(
        range(1, 9)
    )


def test_natural_language_inference_is_that_of_the_folder_where_it_is_there(run, monkeypatch):
    monkeypatch.setattr(
        sts_suite,
        "load_dataset",
        lambda name, split, data: Dataset(name, split, "nli", ["a"], ["b"], [0]),
    )
    for there, names in (
        ({"snli": ("train",), "inference": ("train",), "mnli": ("train", "dev")}, ("snli", "mnli")),
        ({"snli": ("dev",), "mnli": ("dev",)}, ("inference",)),
    ):
        monkeypatch.setattr(sts_suite, "available", lambda data: there)
        assert [(data.name, data.split) for data in sts_suite.nli_sets(run)] == [
            (name, "train") for name in names
        ]
        assert {f"{name}/train" for name in names} <= {*run.examples}


def test_a_correction_reads_the_text_of_its_own_set_once(run):
    read = []
    spy = type(
        "Spy", (), {"width": 2, "encode": lambda self, s: read.extend(s) or torch.randn(len(s), 2)}
    )()
    cached, fitted = sts_suite.Cached(spy), []
    look = sts_suite.on_target(run, cached, lambda text: fitted.append(text) or torch.nn.Identity())
    look("stsb").encode(labelled("stsb/test", run.data).sentences)
    parts = [load_dataset("stsb", split, run.data) for split in ("train", "dev", "test")]
    assert fitted == [[s for d in parts for s in (*d.sentences, *d.sentences2)]]
    cached.encode(fitted[0])
    assert len(read) == len(set(read)) == len(set(fitted[0]))
    look("sts12")
    assert fitted[1] == sts_suite.text_of(run, "sts12") != fitted[0]


def test_an_encoder_is_kept_under_its_name_and_run_and_the_last_four_stay(run, monkeypatch):
    monkeypatch.setattr(sts_suite, "_KEPT", {})
    kept = [
        sts_suite.keep(at, name, SimpleNamespace(width=2))
        for at in (run, replace(run, seed=2), replace(run, data=None))
        for name in "ab"
    ]
    assert len({*map(id, kept)}) == 6 and [cached.name for cached in kept] == [*"ab"] * 3
    assert sts_suite.keep(replace(run, seed=2), "a", None) is kept[2]
    for name in "cde":
        sts_suite.keep(run, name, SimpleNamespace(width=2))
    # asked for again in between: the last used stays longest
    assert sts_suite.keep(replace(run, seed=2), "a", None) is kept[2]
    assert (
        len(sts_suite._KEPT) == 4
        and sts_suite.keep(run, "a", SimpleNamespace(width=2)) is not kept[0]
    )


def test_all_seeds_read_the_same_share_of_the_text(run, monkeypatch):
    monkeypatch.setattr(sts_suite, "nli_sets", lambda asking: [labelled("mnli/train", asking.data)])
    found = [sts_suite.nli_text(replace(run, seed=seed), 0.5) for seed in (1, 2)]
    assert (
        found[0] == found[1] and len(found[0]) == 9 and found[0] != sts_suite.nli_text(run, 1.0)[9:]
    )
    assert sorted(sts_suite.nli_text(run, 1.0)) == sorted(
        s
        for column in (
            labelled("mnli/train", run.data).sentences,
            labelled("mnli/train", run.data).sentences2,
        )
        for s in column
    )


def test_a_flow_follows_its_row(run, monkeypatch):
    asked = []
    fit = li.fit_flow
    monkeypatch.setattr(
        li,
        "fit_flow",
        lambda r, e, text, **k: (
            asked.append((len(text), r.scale.flow_batch, k)) or fit(r, e, text, **k)
        ),
    )
    monkeypatch.setattr(sts_suite, "nli_sets", lambda asking: [labelled("mnli/train", asking.data)])
    look = li.flow_target(run, li.vectors(run))
    for task in ("stsb", "sickr", "sts12"):
        look(task)
    # both sides of each pair, each set by itself
    assert [size for size, *_ in asked] == [60, 60, 56]
    assert all(batch == 64 and k == {"levels": 2, "lr": 1e-3} for _, batch, k in asked)
    # 56 sentences: one step
    assert run.ran[-1] == {
        "stage": "flow",
        "batch": 64,
        "steps": 1,
        "rate": 1e-3,
        "kept": "the last",
    }
    printed = replace(run, scale=replace(run.scale, flow_lr=None, most_text=10**6))
    asked.clear()
    li.flow_nli(printed, li.vectors(printed))
    assert asked == [(round(0.15 * 18), 64, {"levels": 2, "lr": 2e-5, "steps": None})]


def test_answers_of_question_pairs_are_higher_for_entailment(run):
    stored = perform(RECIPES["li/base-qnli-last2avg"], run)["measured"]["AUC"]
    encoder = li.vectors(run, nli=True)
    cosines = li.cosines(encoder, labelled("qnli/dev", run.data))
    assert labelled("qnli/dev", run.data).classes[0] == "entailment"
    assert spearman(stored["answers"], cosines) == pytest.approx(-1)


def test_seeds_give_a_mean_and_a_median(run, monkeypatch):
    def moved(run, encoder):
        torch.nn.init.normal_(encoder.model.bert_layers[-1].attention_layer_norm.weight)
        return encoder

    monkeypatch.setattr(li, "siamese", moved)
    # no second size at this scale: the base model stands for it
    found = li.over_seeds(run, li.LAST2AVG, li.plain)
    test, scores = labelled("stsb/test", run.data), []
    for seed in (1, 2):
        encoder = SentenceEncoder.from_pretrained(
            run.out / "stages" / f"li-nli-large-{seed}", pooling="first_last_avg"
        )
        scores.append(spearman(li.cosines(encoder, test), test.labels))
    assert found["mean"] == pytest.approx(sum(scores) / 2) == found["median"]
    assert found["sd"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)


def test_removed_directions_are_counted_and_chosen_on_dev(run):
    found = li.calibrated(run, li.NullTop, 10)
    x = li.vectors(run, pooling="mean").encode(sts_suite.text_of(run, "stsb"))
    moved, test = li.NullTop(256, 10).fit(x), labelled("stsb/test", run.data)
    by_hand = li.cosines(sts_suite.Through(li.vectors(run, pooling="mean"), moved), test)
    assert spearman(found["STS-B"].values, by_hand) == pytest.approx(1)
    assert found["k chosen on dev"] in range(1, 21)


def test_edit_distance_falls_with_a_similarity_made_of_it(run):
    dev = labelled("stsb/dev", run.data)
    similarity = [
        -li.edit_distance(a.split(), b.split()) for a, b in zip(dev.sentences, dev.sentences2)
    ]
    found = li.edits(run, similarity)
    assert found["vs edit distance"] == pytest.approx(-1)
    places = [value for key, value in found.items() if key.startswith("mean place")]
    assert places == sorted(places, reverse=True) and len(places) > 1


def test_words_of_a_band_are_the_listed_ones(run):
    found = li.crowding(run, (0, 100))
    encoder = SentenceEncoder.from_pretrained(None)
    ids = [encoder.tokenizer.get_vocab()[word] for word in ("the", "girl", "blue")]
    assert found["words"] == 3
    assert found["Mean l2-norm"] == pytest.approx(
        encoder.model.embedding.word_embedding.weight[ids].norm(dim=1).mean().item()
    )
    with pytest.raises(ValueError, match="wordfreq"):
        li.crowding(replace(run, data=None), (0, 100))


def test_rare_words_weigh_more():
    encoder = SentenceEncoder.from_pretrained(None)
    rare = baselines.RareWords(encoder, ["the girl", "the the"], a=0.5)
    the, girl = (encode_ids(encoder.tokenizer, [word])[0][1] for word in ("the", "girl"))
    table = encoder.model.embedding.word_embedding.weight.detach()
    expected = (0.5 / (0.5 + 0.75) * table[the] + 0.5 / (0.5 + 0.25) * table[girl]) / 2
    torch.testing.assert_close(
        rare.encode(["", "the girl"]),
        torch.stack([torch.zeros_like(expected), expected]),
        rtol=1e-5,
        atol=1e-6,
    )


def test_controls_answer_to_the_same_keys(run):
    words = perform(RECIPES["control/shared-words"], run)["measured"]
    vectors = perform(RECIPES["control/untrained-whitened-target"], run)["measured"]
    assert (
        {*words}
        == {*vectors}
        == {
            *sts_suite.SETS,
            *(f"STS-{y} less STS-B dev" for y in range(12, 17)),
            sts_suite.DEV,
            "average",
        }
    )
    again = SentenceEncoder.from_pretrained(None)
    assert not torch.equal(baselines.untrained(run).encode(["a girl"]), again.encode(["a girl"]))


def test_the_flow_of_a_set_is_kept_where_it_is_asked_for(run):
    """The first look fits and keeps it; the second loads it, and gives the same vectors without
    fitting.
    """
    asked = replace(run, keep=True)
    first = li.flow_target(asked, li.vectors(asked))("stsb").encode(["a cat", "two dogs"])
    logged = len(asked.curve)
    found = li.vectors(asked)
    again = li.flow_target(asked, found)("stsb").encode(["a cat", "two dogs"])
    assert (
        torch.equal(first, again)
        and asked.kept[-1].name == "li-base-False-first_last_avg-flow-stsb-1"
        and (asked.kept[-1] / "model.safetensors").is_file()
    )
    # the log of the stage comes back; a training would have logged it, too
    assert len(asked.curve) == 2 * logged
    (asked.kept[-1] / "stage.json").unlink()
    # without `keep` the same, fitted anew
    assert (
        torch.equal(first, li.flow_target(run, found)("stsb").encode(["a cat", "two dogs"]))
        and not run.kept[2:]
    )


@pytest.mark.parametrize("nli, table", [("", "T2"), ("-nli", "T3")])
def test_a_sentence_is_about_the_papers_own_row_not_the_one_it_repeats(nli, table):
    """Their mean of the last layer is printed twice, here and as Reimers and Gurevych (2019) had
    measured it.
    """
    own = [
        published()["li", table, f"BERT base{nli.upper()}{suffix}", "STS-12"].value
        for suffix in ("-last2avg", "")
    ]
    claim = next(
        c
        for c in CLAIMS
        if (c.better, c.worse, c.measured) == (f"li/base{nli}-last2avg", f"li/base{nli}", "STS-12")
    )
    assert printed_gain(claim) == pytest.approx(own[0] - own[1])
