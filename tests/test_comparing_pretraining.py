"""scripts/compare_pretraining.py at a tiny size: prices become steps, runs become files, files
become a table.
"""

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import compare_pretraining as script  # noqa: E402

TINY = replace(script.BASE, tokens=128, layers=1, width=64, stretch=8)
RECIPES = {
    "tiny": TINY,
    "tiny AdamW": replace(TINY, optimizer="adamw", lr=1e-3),
    "tiny packed": replace(TINY, text="packed"),
    "tiny cosine": replace(TINY, shape="cosine"),
}


@pytest.fixture
def corpus(tmp_path):
    """Three hundred made sentences, half of them in articles, and twenty held out."""
    dice, folder = random.Random(0), tmp_path / "corpus"

    def line():
        return (
            " ".join(
                dice.choices(
                    "the a dog cat child sees hears likes old small house river".split(),
                    k=dice.randint(3, 12),
                )
            )
            + "."
        )

    for name, count in (
        ("plain.txt", 150),
        ("docs/articles.txt", 150),
        ("heldout/wikipedia-heldout.txt", 20),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(line() + "\n" + "\n" * (i % 10 == 9 and "docs" in name) for i in range(count))
        )
    return folder


@pytest.fixture
def start(monkeypatch, corpus, tmp_path):
    """Run the script's main with tiny recipes, in this process and on the CPU; one thread as it
    wants, and the threads as they were afterwards.
    """
    threads = torch.get_num_threads()
    monkeypatch.setattr(script, "RECIPES", RECIPES)
    monkeypatch.setattr(script, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(1))
    monkeypatch.setattr(script, "choose_device", lambda: torch.device("cpu"))

    def main(*words):
        monkeypatch.setattr(
            sys,
            "argv",
            ["compare_pretraining.py", str(corpus), "--out", str(tmp_path / "out"), *words],
        )
        script.main()
        return tmp_path / "out"

    yield main
    torch.set_num_threads(threads)


def priced(folder: Path, **seconds: float) -> None:
    """Say beforehand what a step costs, so that nothing depends on this machine."""
    folder.mkdir(exist_ok=True)
    (folder / "seconds.json").write_text(json.dumps({**dict.fromkeys(RECIPES, 0.1), **seconds}))


def test_a_run_leaves_what_is_promised(start, tmp_path):
    priced(tmp_path / "out", tiny=0.05)
    out = start("--only", "tiny", "--minutes", "0.02", "--seed", "3", "4")
    assert sorted(p.name for p in out.glob("*.json")) == [
        "seconds.json",
        "tiny-3.json",
        "tiny-4.json",
    ] and not list(out.glob(".draft*"))
    found = [json.loads((out / f"tiny-{seed}.json").read_text()) for seed in (3, 4)]
    for seed, one in zip((3, 4), found):
        # 1.2 s at 0.05 s
        assert (one["seed"], one["steps"], one["tokens"], one["seconds_a_step"], one["device"]) == (
            seed,
            24,
            24 * 128,
            0.05,
            "cpu",
        )
        assert one["recipe"] == vars(TINY) and one["heldout_sentences"] == 20
        assert [p["step"] for p in one["curve"]] == [*range(2, 24, 2), 24] and all(
            p["tokens"] == 128 * p["step"] for p in one["curve"]
        )
        assert (one["accuracy"], one["heldout_loss"]) == (
            one["curve"][-1]["accuracy"],
            one["curve"][-1]["heldout_loss"],
        )
        assert one["curve"][-1]["train_loss"] < one["curve"][0]["train_loss"]
    assert found[0]["curve"] != found[1]["curve"]


@pytest.mark.parametrize(
    "seconds, minutes, steps", [(0.1, 0.02, 12), (0.4, 0.02, 3), (0.1, 0.005, 3), (5, 0.02, 1)]
)
def test_steps_follow_from_the_price_of_one(start, tmp_path, seconds, minutes, steps):
    """And a recipe whose single step costs more than the time takes one."""
    priced(tmp_path / "out", tiny=seconds)
    out = start("--only", "tiny", "--minutes", str(minutes))
    assert json.loads((out / f"tiny-{script.SEED}.json").read_text())["steps"] == steps


def test_what_is_there_is_not_run_again(start, tmp_path, monkeypatch):
    priced(tmp_path / "out")
    out = start("--only", "tiny", "--minutes", "0.002")
    file, ran, compare = out / f"tiny-{script.SEED}.json", [], script.compare
    before = (
        file.read_bytes(),
        file.stat().st_mtime_ns,
        {p: p.stat().st_mtime_ns for p in out.glob("corpus-*/*")},
    )
    monkeypatch.setattr(
        script,
        "compare",
        lambda name, seed, args: (ran.append((name, seed)), compare(name, seed, args))[1],
    )
    start("--only", "tiny", "tiny AdamW", "--minutes", "0.002")
    assert ran == [("tiny AdamW", script.SEED)]
    assert (
        file.read_bytes(),
        file.stat().st_mtime_ns,
        {p: p.stat().st_mtime_ns for p in out.glob("corpus-*/*")},
    ) == before


def test_every_way_to_cut_the_text_is_priced_and_like_work_costs_the_same(start):
    out = start("--only", "tiny packed", "--minutes", "0.0001")
    seconds = json.loads((out / "seconds.json").read_text())
    assert set(seconds) == set(RECIPES) and min(seconds.values()) > 0
    assert seconds["tiny"] == seconds["tiny cosine"] and len(set(seconds.values())) == 3
    assert {p.name for p in out.glob("corpus-*")} == {f"corpus-{text}" for text in script.TEXTS}


def test_recipes_of_one_price_differ_in_nothing_that_costs():
    work = {name: script.work(recipe) for name, recipe in script.RECIPES.items()}
    same = {name for name in work if work[name] == work["base"]} - {"base"}
    assert same == {"cosine", "Muon .01", "Muon .03", "mask .40 to .15"}
    assert all(recipe != script.BASE for name, recipe in script.RECIPES.items() if name != "base")


def test_the_table_sorts_by_the_mean_over_seeds_best_first(tmp_path):
    for name, seed, accuracy in (
        ("low", 1, 0.20),
        ("high", 1, 0.30),
        ("high", 2, 0.40),
        ("mask .15", 1, 0.33),
        ("mask .15", 2, 0.35),
    ):
        (tmp_path / f"{name}-{seed}.json").write_text(
            json.dumps(
                {
                    "seconds_a_step": 0.5,
                    "steps": 2400,
                    "tokens": 9_830_400,
                    "accuracy": accuracy,
                    "heldout_loss": 5 - seed,
                }
            )
        )
    (tmp_path / "seconds.json").write_text("{}")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in script.table(tmp_path).splitlines()[2:]
    ]
    assert [row[0] for row in rows] == ["high", "mask .15", "low"]
    assert rows[0] == ["high", "0.50", "2,400", "9.83", "2", "35.0%", "30.0% to 40.0%", "3.50"]


def test_the_rate_rises_in_a_twentieth_and_falls_straight_or_along_a_cosine():
    straight, cosine = (
        script.factor(replace(TINY, shape=shape), 200) for shape in ("trapezoid", "cosine")
    )
    for rate in (straight, cosine):
        shares = [rate(step) for step in range(200)]
        assert shares[:9] == pytest.approx([(i + 1) / 10 for i in range(9)])
        assert all(a >= b for a, b in zip(shares[10:], shares[11:])) and 0 < shares[-1] < 0.02
    assert [straight(step) for step in range(10, 120)] == [1] * 110
    assert (
        straight(160) == pytest.approx(0.5)
        and cosine(100) == pytest.approx(0.5)
        and cosine(50) == pytest.approx(0.5 + 0.125**0.5)
    )


@pytest.mark.parametrize("first, last", [(0.3, 0.3), (0.6, 0.1)])
def test_the_share_of_hidden_words_moves_in_a_straight_line(corpus, tmp_path, first, last):
    tokenizer = script.load_tokenizer(None)
    texts = script.corpora(corpus, tmp_path, tokenizer, {"single"})
    ids = {t: tokenizer.convert_tokens_to_ids(t) for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
    recipe, total = replace(TINY, mask_rate=first, last_mask_rate=last, tokens=1024), 4
    batches = script.batches_of(texts["single"], ids, len(tokenizer), recipe, total, 1)
    for step, (given, mask, labels, places) in zip(range(total + 2), batches):
        rate, words = first + (last - first) * min(1, step / total), int(mask.sum()) - 2 * len(mask)
        assert len(places) == (labels != -100).sum() and (labels.flatten()[places] != -100).all()
        assert abs((labels != -100).sum() / words - rate) < 4.5 * (rate * (1 - rate) / words) ** 0.5


def test_the_table_alone_runs_nothing(start, tmp_path, capsys, monkeypatch):
    priced(tmp_path / "out")
    monkeypatch.setattr(script, "measure", lambda args: pytest.fail("measured"))
    start("--table")
    assert capsys.readouterr().out.startswith("| recipe |")
