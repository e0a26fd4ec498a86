"""What pays at a desk: pretrain by several recipes, each for the same processor time, and compare
what they guess.

    python scripts/compare_pretraining.py CORPUS --out FOLDER [--only NAME ...] [--minutes 20] [--seed N] [--jobs N]
    python scripts/compare_pretraining.py CORPUS --out FOLDER --table [--store FILE]

A recipe differs from the base in one thing. Its number of steps follows from the seconds that its
step costs on one processor thread, measured beside the base's in turn, so that another program on
the machine cannot favour one (FOLDER/seconds.json). How good a model is after so many steps does
not depend on what computes them: with a GPU all runs go there, N at a time, without one they go one
by one in one thread. Each leaves FOLDER/NAME-SEED.json: recipe, seconds a step, tokens, and at
every tenth of the way the training loss and what it guesses of held-out words. A recipe whose file
is there is not run again.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn

from minbert.cli.pretraining import MlmBatch, PretrainConfig, chosen_positions, packed_mlm_loss
from minbert.core.device_step import DeviceStep
from minbert.core.devices import choose_device
from minbert.corpus import Corpus, budget_batches, build_corpus
from minbert.corpus_cache import load_corpus, save_corpus
from minbert.data import read_lines
from minbert.encoder import BertConfig, BertModel
from minbert.pretrain import MlmHead, mask_tokens, masked_accuracy, special_positions
from minbert.tokens import load_tokenizer, pad_ids
from minbert.training import steps, warmup_decay

SEED = 11711


@dataclass(frozen=True)
class Recipe:
    """One way to pretrain; the defaults are the base that the others leave in one point."""

    optimizer: str = "muon"  # of the layers' matrices; AdamW moves the rest
    matrix_lr: float = 0.02  # Muon's
    lr: float = 2e-3  # AdamW's
    mask_rate: float = 0.30
    last_mask_rate: float = 0.30  # the rate moves there in a straight line
    tokens: int = 4096  # a step
    # sentences; "packed": neighbours joined to 128; "long": one in ten to 512; "some": sentences,
    # one in a hundred to 512
    text: str = "single"
    stretch: int = 2048  # sequences sorted by length before batches are cut
    shape: str = "trapezoid"  # of the rate, or "cosine"
    layers: int = 4
    width: int = 256


BASE = Recipe()
RECIPES = {
    "base": BASE,
    "first edition": replace(BASE, optimizer="adamw", lr=1e-3, mask_rate=0.15, last_mask_rate=0.15),
    "mask .15": replace(BASE, mask_rate=0.15, last_mask_rate=0.15),
    "mask .40 to .15": replace(BASE, mask_rate=0.40, last_mask_rate=0.15),
    "8,192 tokens": replace(BASE, tokens=8192),
    "packed": replace(BASE, text="packed"),
    "packed, some to 512": replace(BASE, text="long"),
    "one in 100 to 512": replace(BASE, text="some"),
    "6 x 256": replace(BASE, layers=6),
    "mixed lengths": replace(BASE, stretch=1),
    "cosine": replace(BASE, shape="cosine"),
    "Muon .01": replace(BASE, matrix_lr=0.01),
    "16,384 tokens": replace(BASE, tokens=16384),
    "4 x 320": replace(BASE, width=320),
    "AdamW, mask .30": replace(BASE, optimizer="adamw", lr=1e-3),
    "Muon .03": replace(BASE, matrix_lr=0.03),
}


def optimizer_of(model: nn.Module, recipe: Recipe):
    """AdamW for all, or Muon for the matrices and AdamW for the rest."""
    return PretrainConfig(
        lr=recipe.lr, matrix_lr=recipe.matrix_lr if recipe.optimizer == "muon" else 0
    ).optimizer(model)


def batches_of(
    corpus: Corpus, ids: dict[str, int], vocab_size: int, recipe: Recipe, total: int, seed: int
) -> Iterator[MlmBatch]:
    """Corrupted batches; the mask rate moves with the step."""
    generator = torch.Generator()
    for step, chosen in enumerate(
        budget_batches(corpus.lengths, recipe.tokens, seed, stretch=recipe.stretch)
    ):
        batch = pad_ids(corpus.sequences(chosen), ids["[PAD]"])
        generator.manual_seed(seed * 1_000_003 + step)
        rate = recipe.mask_rate + (recipe.last_mask_rate - recipe.mask_rate) * min(1, step / total)
        special = special_positions(*batch, [ids["[CLS]"], ids["[SEP]"]])
        yield MlmBatch(*_corrupt(batch, special, ids["[MASK]"], vocab_size, rate, generator))


def _corrupt(batch, special, mask_id, vocab_size, rate, generator):
    corrupted, labels = mask_tokens(batch.input_ids, special, mask_id, vocab_size, rate, generator)
    return corrupted, batch.attention_mask, labels, chosen_positions(labels)


def factor(recipe: Recipe, total: int):
    """Share of the peak rate at a step: up in a twentieth, down in a straight line at the end or
    along a cosine.
    """
    warmup = max(1, total // 20)
    if recipe.shape == "trapezoid":
        return lambda step: warmup_decay(step, total, warmup, int(0.4 * total))
    return lambda step: min(
        (step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * min(1, step / total))
    )


class Run:
    """A model on its way by a recipe."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        tokenizer,
        total: int,
        seed: int = SEED,
        device: str = "cpu",
    ):
        torch.manual_seed(seed)
        config = BertConfig(
            len(tokenizer),
            recipe.width,
            recipe.layers,
            recipe.width // 64,
            4 * recipe.width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.model = nn.ModuleDict({"bert": BertModel(config), "head": MlmHead(config)}).to(device)
        ids = {t: tokenizer.convert_tokens_to_ids(t) for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
        self.records = steps(
            self.model,
            batches_of(corpus, ids, len(tokenizer), recipe, total, seed),
            partial(packed_mlm_loss, packed=device == "cpu"),
            optimizer_of(self.model, recipe),
            schedule=factor(recipe, total),
            max_grad_norm=1.0,
            take_step=DeviceStep(precision="bf16"),
        )


# arguments of build_corpus
TEXTS = {
    "single": {"long_share": 0},
    "packed": {"short": 126, "long": 126},
    "long": {"short": 126, "long_share": 0.1},
    "some": {},
}


def corpora(folder: Path, out: Path, tokenizer, wanted: set[str]) -> dict[str, Corpus]:
    """The ways to cut the text, each tokenised once: every sentence alone, or neighbours joined
    where a file has articles.
    """
    for text in wanted:
        cache = out / f"corpus-{text}"
        if not cache.exists():
            cache.with_suffix(".part").mkdir(exist_ok=True)
            save_corpus(
                build_corpus(folder, tokenizer.backend_tokenizer, SEED, **TEXTS[text]),
                cache.with_suffix(".part"),
            )
            cache.with_suffix(".part").rename(cache)
    return {text: load_corpus(out / f"corpus-{text}") for text in wanted}


def work(recipe: Recipe) -> tuple:
    """What the cost of a step depends on; recipes that share it share their seconds."""
    # nearly the same share hidden costs the same
    rate = round(recipe.mask_rate + recipe.last_mask_rate, 1)
    return (
        recipe.optimizer,
        rate,
        recipe.tokens,
        recipe.text,
        recipe.stretch,
        recipe.layers,
        recipe.width,
    )


def seconds_a_step(
    names: list[str], texts: dict[str, Corpus], tokenizer, rounds: int = 7
) -> dict[str, float]:
    """Median processor seconds of each recipe's step, taken in turn; the same for recipes that do
    the same work.
    """
    runs = {name: Run(RECIPES[name], texts[RECIPES[name].text], tokenizer, 1000) for name in names}
    times = {work(RECIPES[name]): [] for name in names}
    for turn in range(rounds + 2):
        for name, run in runs.items():
            begin = time.process_time()
            next(run.records)
            if turn > 1:
                times[work(RECIPES[name])].append(time.process_time() - begin)
    return {name: statistics.median(times[work(RECIPES[name])]) for name in names}


def compare(name: str, seed: int, args: argparse.Namespace) -> str:
    """Run one recipe to its end and write its file; return a line about it."""
    torch.set_num_threads(1)
    recipe, tokenizer, device = RECIPES[name], load_tokenizer(None), choose_device().type
    seconds = json.loads((args.out / "seconds.json").read_text())[name]
    heldout = list(read_lines(args.corpus / "heldout" / "wikipedia-heldout.txt"))
    total = max(1, round(60 * args.minutes / seconds))
    texts = corpora(args.corpus, args.out, tokenizer, {recipe.text})
    run = Run(recipe, texts[recipe.text], tokenizer, total, seed, device)
    curve = []
    losses = []
    begin = time.monotonic()
    for record in islice(run.records, total):
        losses.append(record.loss)
        if (done := record.step + 1) % max(1, total // 10) == 0 and done != total:
            curve.append(_point(run, heldout[:1500], tokenizer, done, recipe, losses))
            losses = []
            print(name, json.dumps(curve[-1]), f"{time.monotonic() - begin:.0f} s", flush=True)
    curve.append(_point(run, heldout, tokenizer, total, recipe, losses or [record.loss]))
    result = {
        "recipe": asdict(recipe),
        "seed": seed,
        "device": device,
        "seconds_a_step": seconds,
        "steps": total,
        "tokens": total * recipe.tokens,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "accuracy": curve[-1]["accuracy"],
        "heldout_loss": curve[-1]["heldout_loss"],
        "heldout_sentences": len(heldout),
        "curve": curve,
    }
    part = args.out / f"{name}-{seed}.part"
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.rename(part.with_suffix(".json"))
    return f"{name}: {result['accuracy']:.4f} of held-out words, {result['heldout_loss']:.4f} nats, {time.monotonic() - begin:.0f} s"


def _point(run, heldout, tokenizer, done, recipe, losses):
    """What a run knows now."""
    right, loss = masked_accuracy(*run.model.values(), heldout, tokenizer)
    return {
        "step": done,
        "tokens": done * recipe.tokens,
        "train_loss": statistics.mean(losses),
        "accuracy": right,
        "heldout_loss": loss,
    }


def results(out: Path) -> dict[str, list[dict]]:
    """What was stored, by recipe, one a seed; the recipes best first."""
    found = {}
    for path in sorted(out.glob("*-*.json")):
        found.setdefault(path.stem.rpartition("-")[0], []).append(json.loads(path.read_text()))
    return dict(
        sorted(found.items(), key=lambda item: -statistics.mean(r["accuracy"] for r in item[1]))
    )


def table(out: Path) -> str:
    """The results as Markdown, best first; of several seeds the mean and, behind it, the range."""
    rows = "| recipe | s a step | steps | million tokens | seeds | held-out words | range | held-out loss [nats] |\n|---|---|---|---|---|---|---|---|\n"
    for name, runs in results(out).items():
        first, right = runs[0], [r["accuracy"] for r in runs]
        rows += (
            f"| {name} | {first['seconds_a_step']:.2f} | {first['steps']:,} | {first['tokens'] / 1e6:.2f} | {len(runs)} | {statistics.mean(right):.1%} | "
            f"{min(right):.1%} to {max(right):.1%} | {statistics.mean(r['heldout_loss'] for r in runs):.2f} |\n"
        )
    return rows


def store(out: Path, file: Path) -> None:
    """Put what chapter 07 shows of all results into one file: recipe, price, scores, and the way
    there.
    """
    rows = [
        {
            "name": name,
            **{
                k: run[k]
                for k in ("seed", "seconds_a_step", "steps", "tokens", "accuracy", "heldout_loss")
            },
            "curve": [[p["tokens"], round(p["accuracy"], 4)] for p in run["curve"]],
        }
        for name, runs in results(out).items()
        for run in runs
    ]
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def measure(args: argparse.Namespace) -> None:
    """Price every recipe's step, if that was not done in this folder."""
    torch.set_num_threads(1)
    prices, tokenizer = args.out / "seconds.json", load_tokenizer(None)
    # before several runs want them
    corpora(args.corpus, args.out, tokenizer, {RECIPES[name].text for name in args.only})
    if not prices.exists():
        prices.write_text(
            json.dumps(
                seconds_a_step(
                    list(RECIPES), corpora(args.corpus, args.out, tokenizer, set(TEXTS)), tokenizer
                ),
                indent=1,
            )
            + "\n"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument(
        "--minutes", type=float, default=20, help="of one processor thread, for each recipe"
    )
    parser.add_argument("--seed", type=int, nargs="+", default=[SEED])
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time; more than one only on a GPU"
    )
    parser.add_argument("--table", action="store_true")
    parser.add_argument(
        "--store",
        type=Path,
        help="with --table: also write one file of all results, as the package carries it",
    )
    args = parser.parse_args()
    if args.table:
        if args.store:
            store(args.out, args.store)
        return print(table(args.out))
    args.out.mkdir(parents=True, exist_ok=True)
    measure(args)
    todo = [
        (name, seed)
        for seed in args.seed
        for name in args.only
        if not (args.out / f"{name}-{seed}.json").exists()
    ]
    # a process each: a GPU's cannot be forked
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(compare, name, seed, args) for name, seed in todo]):
            print(future.result(), flush=True)


if __name__ == "__main__":
    main()
