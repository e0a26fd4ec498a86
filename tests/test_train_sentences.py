"""scripts/train_sentences.py trains the second model from text alone, chooses on dev, and holds it
against controls.
"""

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from minbert.attention import SelfAttention
from minbert.data import load_dataset
from minbert.datasets.formats import YEARS
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.bag_of_words_pooling import WordsBeside
from minbert.metrics import spearman
from minbert.negatives import multiple_negatives_loss
from minbert.sentence import SentenceEncoder
from minbert.sts import STS_TASKS, evaluate_sts
from minbert.tokens import load_tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import train_sentences as script  # noqa: E402
import words_beside as words_module  # noqa: E402

WHO, DOES, WHERE = (
    "man woman child dog".split(),
    "runs sleeps sings waits".split(),
    "park house street field garden".split(),
)


def line(i):
    return f"A {WHO[i % 4]} {DOES[i // 4 % 4]} in the {WHERE[i % 5]} number {i}."


def write(folder, name, lines):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder in which every file holds a few lines; evaluation has the numbers from 500."""
    folder = tmp_path_factory.mktemp("data")
    pairs = [(line(500 + i), line(500 + 7 * i % 30), f"{i % 6}.0") for i in range(30)]
    for path in YEARS.values():
        write(folder, f"{path}/STS.input.x.txt", [f"{a}\t{b}" for a, b, _ in pairs])
        write(folder, f"{path}/STS.gs.x.txt", [y for *_, y in pairs])
    for split in ("dev", "test"):
        write(
            folder,
            f"senteval/STS/STSBenchmark/sts-{split}.csv",
            [f"main\tx\t2012\t{i}\t{y}\t{a}\t{b}" for i, (a, b, y) in enumerate(pairs)],
        )
    write(
        folder,
        "senteval/SICK/SICK_test_annotated.txt",
        ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        + [f"{i}\t{a}\t{b}\t{1 + float(y) / 2}\tNEUTRAL" for i, (a, b, y) in enumerate(pairs)],
    )
    write(
        folder,
        "nli/nli-triplets.csv",
        ["sent0,sent1,hard_neg", f"{line(500)},{line(2)},{line(3)}"]
        + [f"{line(i)},{line(i + 1)},{line(i + 2)}" for i in range(20)],
    )
    write(
        folder,
        "nli/mnli-train-sample.tsv",
        ["gold_label\tsentence1\tsentence2"]
        + [
            f"{y}\t{line(100 + i)}\t{line(130 + i)}"
            for i in range(8)
            for y in ("entailment", "neutral", "contradiction")
        ],
    )
    for i in range(3):
        write(
            folder,
            f"corpus/docs/wikipedia-docs-0{i}.txt.gz",
            [*map(line, range(200, 209)), "", *map(line, range(210, 218))],
        )
    write(
        folder,
        "corpus/tatoeba-sentences.txt",
        [*map(line, range(300, 315)), "Too short a.", line(501)],
    )
    write(folder, "corpus/wikipedia-sentences-00.txt.gz", map(line, range(320, 335)))
    return folder


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("pretrained"), load_tokenizer()
    BertModel(BertConfig(len(tokenizer), 16, 1, 2, 32)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


VARIANTS = {
    "plain": script.Variant(steps=3, batch=8),
    "all": script.Variant(
        steps=2,
        batch=8,
        views=0.1,
        neighbours=0.2,
        before=2,
        projection=True,
        symmetric=True,
        dropout=0.0,
    ),
}


@pytest.fixture(scope="module")
def out(data, pretrained, tmp_path_factory):
    """Run three variants, two at a time; the third cannot be trained."""
    folder = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_module, "DIRECTIONS", 4)  # of 16 numbers
        patch.setattr(script, "VARIANTS", {**VARIANTS, "broken": script.Variant(batch=1000)})
        with pytest.raises(SystemExit, match="failed.*: broken$"):
            script.main(
                [
                    str(pretrained),
                    str(data),
                    "--out",
                    str(folder),
                    "--jobs",
                    "2",
                    "--only",
                    *script.VARIANTS,
                ]
            )
    return folder


# --- text


def test_sources_hold_nothing_of_an_evaluation_set(data):
    sources, counts = script.gather(data)
    assert counts == {
        "nli": {"rows": 28, "left out": 1},
        "neighbours": {"rows": 16, "left out": 0},
        "views": {"rows": 30, "left out": 1},
    }
    assert sources["neighbours"][2] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert (sources["neighbours"][0][1], sources["neighbours"][1][1]) == (line(202), line(203))
    assert not {text for columns in sources.values() for column in columns for text in column} & {
        line(500),
        line(501),
    }


def test_mnli_gives_what_is_entailed_and_what_is_contradicted(data):
    first, second, wrong = script.triplets(data)
    assert len(first) == 21 + 8
    assert (first[-1], second[-1], wrong[-1]) == (line(107), line(137), line(137))


@pytest.mark.parametrize(
    "text, gone",
    [
        ("a man RUNS home", 1),
        ("Yesterday a man runs home", 0),
        ("one two three four five six seven eight nine ten", 1),
        ("one two three four five six seven eight nine eleven", 0),
    ],
)
def test_equal_sentences_and_ten_words_in_a_row_are_found(text, gone):
    forbidden = script.marks("A man runs home.") | script.marks(
        "zero one two three four five six seven eight nine ten"
    )
    kept, left_out = script.without([[text, "another sentence"], [1, 2]], forbidden)
    assert (left_out, len(kept[0])) == (gone, 2 - gone)


# --- training


def test_dropout_reaches_every_layer(pretrained):
    encoder = SentenceEncoder.from_pretrained(pretrained)
    ids = torch.tensor([[2, 50, 60, 70, 3]])
    script.set_dropout(encoder.train(), 0.0)
    torch.testing.assert_close(encoder(ids, ids.sign()), encoder.eval()(ids, ids.sign()))
    script.set_dropout(encoder.train(), 0.5)
    assert all(p.dropout == 0.5 for p in encoder.modules() if isinstance(p, SelfAttention))
    assert not torch.equal(encoder(ids, ids.sign()), encoder(ids, ids.sign()))


def test_each_stage_learns_from_what_it_names():
    assert list(script.stages(script.BASE)) == [("triplets", {"nli": 1.0}, 420, 5e-4)]
    assert list(script.stages(VARIANTS["all"])) == [
        ("before", {"neighbours": 1.0, "views": 0.5}, 2, 5e-4),
        ("triplets", {"nli": 1.0, "neighbours": 0.2, "views": 0.1}, 2, 5e-4),
    ]


def test_batches_and_losses_of_every_source(data, pretrained):
    sources, variant = script.gather(data)[0], replace(VARIANTS["all"], scale=10.0)
    encoder = SentenceEncoder.from_pretrained(pretrained)
    batch = next(
        script.supplies(sources, encoder.tokenizer, variant, ["nli", "neighbours", "views"], "x")
    )
    assert {name: part.views for name, part in batch.items()} == {
        "nli": 3,
        "neighbours": 2,
        "views": 2,
    }
    weights = {"nli": 1.0, "neighbours": 0.5, "views": 0.25}
    losses = script.loss_of(variant, weights)(script.ViewModel(encoder), batch)
    model = script.ViewModel(encoder)
    a, b, hard = model(batch["nli"])
    expected = multiple_negatives_loss(a, b, 10.0, batch["nli"].groups, symmetric=True, hard=hard)
    torch.testing.assert_close(losses["nli"], expected)
    a, b = model(batch["neighbours"])
    torch.testing.assert_close(
        losses["neighbours"],
        multiple_negatives_loss(a, b, 10.0, batch["neighbours"].groups, symmetric=True) / 2,
    )


def test_named_variants_differ_and_can_be_run():
    assert 12 <= len(script.VARIANTS) == len(set(script.VARIANTS.values())) <= 20
    assert all(
        0 <= v.dropout < 1 and v.batch % 2 == 0 and v.steps for v in script.VARIANTS.values()
    )


def test_what_fails_is_not_in_the_table(out):
    results = json.loads((out / "results.json").read_text())
    assert {*VARIANTS, "mean of the 2 best"} == {
        name for name in results["variants"] if ", words " not in name
    } and not (out / "sources.json").exists()


def test_the_mean_is_of_the_weights_of_the_best(out):
    row = json.loads((out / "variants/mean of the 2 best/result.json").read_text())
    assert set(row["variant"]["mean of"].split(", ")) == set(VARIANTS) and row["sources"] == [
        "neighbours",
        "nli",
        "views",
    ]

    def load(name):
        return SentenceEncoder.from_pretrained(out / "variants" / name).model.state_dict()

    a, b, mean = map(load, [*VARIANTS, row["name"]])
    assert any(not torch.equal(a[key], b[key]) for key in a)
    for key in mean:
        # saved in half precision
        torch.testing.assert_close(mean[key], (a[key] + b[key]) / 2, atol=1e-3, rtol=1e-3)


# --- the words beside it


def test_words_stand_beside_the_best_without_them_and_leave_it_as_it_was(out):
    rows = [json.loads(file.read_text()) for file in (out / "variants").glob("*/result.json")]
    best = max((row for row in rows if "words" not in row["variant"]), key=lambda row: row["dev"])
    beside = {row["variant"]["words"]: row for row in rows if "words" in row["variant"]}
    assert tuple(sorted(beside)) == script.SHARES
    for share, row in beside.items():
        assert row["name"] == f"{best['name']}, words {share}" and row["seconds"] >= best["seconds"]
        encoder, plain = (
            SentenceEncoder.from_pretrained(out / "variants" / name)
            for name in (row["name"], best["name"])
        )
        assert isinstance(encoder.pooling, WordsBeside) and encoder.transform is None
        assert all(
            torch.equal(a, b)
            for a, b in zip(encoder.model.state_dict().values(), plain.model.state_dict().values())
        )


def open_sentences(count):
    return load_dataset("sentences", "train").sentences[:count]


@pytest.fixture(scope="module")
def made():
    """Put the words beside the embedded model, whose places and words are learned."""
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    return encoder, words_module.words_beside(encoder, open_sentences(1500), [0.2, 0.8])


def test_the_cosine_of_words_counts_as_much_as_is_said(made):
    encoder, found = made
    texts = open_sentences(1500)
    last, half = encoder.encode(texts[:200]), words_module.FEATURES
    for share, beside in zip((0.2, 0.8), found):
        vectors = beside.encode(texts[:200])
        torch.testing.assert_close(vectors[:, half:], last, atol=1e-5, rtol=1e-5)
        ratio = vectors[:, :half].square().sum(1) / encoder.encode(texts).norm(dim=1).mean() ** 2
        torch.testing.assert_close(ratio, torch.full((200,), share), atol=1e-4, rtol=1e-4)


def test_the_features_are_whitened_and_do_not_know_their_place(made):
    encoder, found = made
    pooling, texts = found[0].pooling, open_sentences(1500)
    features = words_module.pooled_alone(encoder, words_module.Features(pooling), texts)
    with torch.no_grad():
        white = pooling.words(features).double()
    eigenvalues = torch.linalg.eigvalsh(torch.cov(white.T))
    torch.testing.assert_close(
        eigenvalues, torch.ones(len(eigenvalues), dtype=torch.float64), atol=0.02, rtol=0
    )
    places = (
        encoder.model.embedding.pos_embedding.weight[:64]
        * encoder.model.embedding.embed_layer_norm.weight
    )
    places = (places - places.mean(0)).detach()
    seen = (places @ words_module.of_words(encoder.model)).norm() / places.norm()
    assert (
        seen < 0.3
        and torch.linalg.matrix_rank(words_module.of_words(encoder.model))
        == encoder.width - words_module.DIRECTIONS
    )
    torch.testing.assert_close(
        pooling.tokens.linear.weight @ words_module.of_words(encoder.model),
        pooling.tokens.linear.weight,
        atol=1e-5,
        rtol=1e-4,
    )


def test_words_beside_tell_which_words_were_there(made):
    """A sentence with one word changed is nearer than one of the same length with all words
    changed; the mean of the last layer may say otherwise.
    """
    pairs = [
        (
            "The old captain sold his boat in spring.",
            "The old captain sold his boat in autumn.",
            "My young neighbour paints her garden every Sunday.",
        )
    ]
    for text, near, far in pairs:
        x, a, b = made[1][1].encode([text, near, far])[:, : words_module.FEATURES]
        assert torch.cosine_similarity(x, a, 0) > 0.5 > 0.3 > torch.cosine_similarity(x, b, 0)


# --- measuring


def test_scores_are_those_of_the_package(out, data):
    results = json.loads((out / "results.json").read_text())
    encoder = SentenceEncoder.from_pretrained(out / "sentences")
    expected = evaluate_sts(encoder, data)
    assert results["variants"][results["winner"]]["test"] == pytest.approx(expected, abs=1e-6)
    assert results["variants"][results["winner"]]["dev"] == pytest.approx(
        evaluate_sts(encoder, data, tasks=("stsb",), split="dev")["stsb"], abs=1e-6
    )
    assert results["pairs"] == dict.fromkeys(("dev", *STS_TASKS), 30)


def test_other_layers_are_read_from_the_same_weights(out, data):
    results = json.loads((out / "results.json").read_text())
    for how in ("mean", "last2avg"):
        encoder = SentenceEncoder.from_pretrained(out / "sentences", pooling=how)
        row = results["readings"][how]
        assert row["test"] == pytest.approx(evaluate_sts(encoder, data), abs=1e-6)
        dev = load_dataset("stsb", "dev", data)
        first = encoder.encode(dev.sentences)
        second = encoder.encode(dev.sentences2[1:] + dev.sentences2[:1])
        assert row["strangers"] == pytest.approx(
            torch.cosine_similarity(first, second).mean().item(), abs=1e-5
        )
    plain = results["winner"].split(", words ")[0]
    assert results["readings"]["mean"]["test"] == results["variants"][plain]["test"]


def test_dev_alone_chooses(out, data, pretrained, tmp_path):
    (tmp_path / "text.json").write_bytes((out / "text.json").read_bytes())
    for name, dev, test in (("first", 0.1, 0.9), ("second", 0.2, 0.1)):
        folder = tmp_path / "variants" / name
        script.save(SentenceEncoder.from_pretrained(out / "sentences"), folder)
        row = json.loads((out / "variants/plain/result.json").read_text()) | {
            "name": name,
            "dev": dev,
            "test": dict.fromkeys((*STS_TASKS, "average"), test),
        }
        (folder / "result.json").write_text(json.dumps(row))
    assert script.conclude(pretrained, data, tmp_path, resamples=20)["winner"] == "second"


def test_row_by_row_is_spearman():
    rng = np.random.default_rng(0)
    x, y = rng.integers(6, size=(2, 4, 40)).astype(float)
    np.testing.assert_allclose(
        script.spearmans(x, y), [spearman(a, b) for a, b in zip(x, y)], atol=1e-12
    )


def test_intervals_belong_to_paired_draws():
    rng = np.random.default_rng(0)
    grades = {name: rng.normal(size=60) for name in ("dev", *STS_TASKS)}
    good = {name: y + 0.3 * rng.normal(size=60) for name, y in grades.items()}
    noise = {name: rng.normal(size=60) for name in grades}
    table = script.compare(good, {"itself": good, "noise": noise}, grades, 200)
    assert all(gap == [0, 0, 0] for gap in table["itself"]["difference"].values())
    for gap, low, high in table["noise"]["difference"].values():
        assert 0 < low < gap < high
    narrow = table["noise"]["difference"]["average"]
    assert narrow[2] - narrow[1] < min(
        table["noise"]["difference"][k][2] - table["noise"]["difference"][k][1] for k in STS_TASKS
    )


# --- what is left behind


def test_everyday_sentences_stand_beside_their_partners():
    class Perfect:
        def encode(self, texts):
            return torch.eye(len(texts) // 2).repeat_interleave(2, 0)

    assert all(row["right"] for row in script.everyday(Perfect())) and len(script.EVERYDAY) % 2 == 0


def test_every_variant_loads_here_and_in_sentence_transformers(out):
    texts = ["A man sleeps.", "Nobody is at home today, said the dog."]
    for folder in (
        out / "sentences",
        *(path.parent for path in (out / "variants").glob("*/result.json")),
    ):
        ours = SentenceEncoder.from_pretrained(folder)
        theirs = SentenceTransformer(
            str(folder), device="cpu", model_kwargs={"dtype": torch.float32}
        ).encode(texts, convert_to_tensor=True)
        torch.testing.assert_close(ours.encode(texts), theirs, atol=1e-4, rtol=1e-4)
        size = sum(p.numel() for p in ours.model.parameters())
        assert (folder / "model.safetensors").stat().st_size < 2.2 * size


def test_the_card_holds_the_numbers_of_the_results(out):
    results = json.loads((out / "results.json").read_text())
    card = (out / "sentences/README.md").read_text()
    assert set(results["controls"]) == {
        "shared words",
        "shared words, weighted by idf",
        "pretrained",
        "untrained, whitened",
        "pretrained, whitened",
    }
    for name, row in results["controls"].items():
        cells = next(text for text in card.split("\n") if text.startswith(f"| {name} |")).split(
            "|"
        )[2:-1]
        assert [float(cell.split()[0]) for cell in cells] == [
            round(row["test"][k], 3) for k in (*STS_TASKS, "average")
        ]
    for how, row in results["readings"].items():
        cells = next(text for text in card.split("\n") if text.startswith(f"| {how} |")).split("|")[
            2:-1
        ]
        expected = row["dev"], row["test"]["stsb"], row["test"]["sickr"], row["test"]["average"]
        assert [float(cell) for cell in cells] == [
            *(round(x, 3) for x in expected),
            round(row["strangers"], 2),
        ]
    assert "SNLI" in card and "CC BY-SA 4.0" in card and "Tatoeba" in card and "{" not in card


def test_finished_variants_are_not_run_again(out, data, pretrained, monkeypatch, capsys):
    monkeypatch.setattr(script, "VARIANTS", VARIANTS)
    monkeypatch.setattr(script, "run", lambda *_: pytest.fail("ran again"))
    monkeypatch.setattr(
        script, "conclude", lambda *_: json.loads((out / "results.json").read_text())
    )
    script.main([str(pretrained), str(data), "--out", str(out), "--only", *VARIANTS])
    assert "winner: " in capsys.readouterr().out
