"""What pays at a desk: pretrain by several recipes, each for the same processor time, and compare what they guess.

    python scripts/compare_pretraining.py CORPUS --out FOLDER [--only NAME ...] [--minutes 20]
    python scripts/compare_pretraining.py CORPUS --out FOLDER --table

A recipe differs from the base in one thing. Its number of steps follows from the seconds that its step costs, measured
beside the base's in turn, so that another program on the machine cannot favour one; then it runs in one thread. Each
leaves FOLDER/NAME.json: recipe, seconds a step, tokens, and at every tenth of the way the rate, the training loss and
what it guesses of held-out words. A recipe whose file is there is not run again.
"""
import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

from minbert.corpus import Corpus, budget_batches, build_corpus
from minbert.data import read_lines
from minbert.encoder import BertConfig, BertModel
from minbert.loop import steps
from minbert.muon import muon
from minbert.optim import AdamW, parameter_groups, warmup_decay
from minbert.pretrain import MlmBatch, MlmHead, mask_tokens, masked_accuracy, mlm_loss, special_positions
from minbert.tokens import load_tokenizer, pad_ids

SEED = 11711


@dataclass(frozen=True)
class Recipe:
    """One way to pretrain; the defaults are the base that the others leave in one point."""

    optimizer: str = "muon"       # of the layers' matrices; AdamW moves the rest
    matrix_lr: float = 0.02       # Muon's
    lr: float = 2e-3              # AdamW's
    mask_rate: float = 0.30
    last_mask_rate: float = 0.30  # the rate moves there in a straight line
    tokens: int = 4096            # a step
    text: str = "single"          # sentences, or "packed": neighbours joined to 128
    stretch: int = 2048           # sequences sorted by length before batches are cut
    shape: str = "trapezoid"      # of the rate, or "cosine"
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
    if recipe.optimizer == "adamw":
        return AdamW(parameter_groups(model, weight_decay=0.01), lr=recipe.lr)
    return muon(model, recipe.matrix_lr, recipe.lr, weight_decay=0.01)


def batches_of(corpus: Corpus, ids: dict[str, int], vocab_size: int, recipe: Recipe, total: int) -> Iterator[MlmBatch]:
    """Corrupted batches; the mask rate moves with the step."""
    generator = torch.Generator()
    for step, chosen in enumerate(budget_batches(corpus.lengths, recipe.tokens, SEED, stretch=recipe.stretch)):
        batch = pad_ids(corpus.sequences(chosen), ids["[PAD]"])
        generator.manual_seed(SEED * 1_000_003 + step)
        rate = recipe.mask_rate + (recipe.last_mask_rate - recipe.mask_rate) * min(1, step / total)
        special = special_positions(*batch, [ids["[CLS]"], ids["[SEP]"]])
        yield MlmBatch(*_corrupt(batch, special, ids["[MASK]"], vocab_size, rate, generator))


def _corrupt(batch, special, mask_id, vocab_size, rate, generator):
    corrupted, labels = mask_tokens(batch.input_ids, special, mask_id, vocab_size, rate, generator)
    return corrupted, batch.attention_mask, labels


def factor(recipe: Recipe, total: int):
    """Share of the peak rate at a step: up in a twentieth, down in a straight line at the end or along a cosine."""
    warmup = max(1, total // 20)
    if recipe.shape == "trapezoid":
        return lambda step: warmup_decay(step, total, warmup, int(0.4 * total))
    return lambda step: min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * min(1, step / total)))


class Run:
    """A model on its way by a recipe."""

    def __init__(self, recipe: Recipe, corpus: Corpus, tokenizer, total: int):
        torch.manual_seed(SEED)
        config = BertConfig(len(tokenizer), recipe.width, recipe.layers, recipe.width // 64, 4 * recipe.width,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.model = nn.ModuleDict({"bert": BertModel(config), "head": MlmHead(config)})
        ids = {t: tokenizer.convert_tokens_to_ids(t) for t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
        self.records = steps(self.model, batches_of(corpus, ids, len(tokenizer), recipe, total),
                             lambda m, batch: mlm_loss(m["bert"], m["head"], *batch), optimizer_of(self.model, recipe),
                             schedule=factor(recipe, total), max_grad_norm=1.0, precision="bf16")


def corpora(folder: Path, out: Path, tokenizer) -> dict[str, Corpus]:
    """Both ways to cut the text, tokenised once: neighbours joined where a file has articles, or every sentence alone."""
    found = {}
    for text, limit in (("single", 0), ("packed", 126)):
        cache = out / f"corpus-{text}.npz"
        if not cache.exists():
            data = build_corpus(folder, tokenizer.backend_tokenizer, SEED, short=limit, long=limit)
            with (out / "part").open("wb") as part:
                np.savez(part, ids=data.ids, offsets=data.offsets)
            (out / "part").rename(cache)
        with np.load(cache) as saved:
            found[text] = Corpus(saved["ids"], saved["offsets"])
    return found


def work(recipe: Recipe) -> tuple:
    """What the cost of a step depends on; recipes that share it share their seconds."""
    rate = recipe.mask_rate + recipe.last_mask_rate
    return recipe.optimizer, rate, recipe.tokens, recipe.text, recipe.stretch, recipe.layers, recipe.width


def seconds_a_step(names: list[str], texts: dict[str, Corpus], tokenizer, rounds: int = 7) -> dict[str, float]:
    """Median processor seconds of each recipe's step, taken in turn; the same for recipes that do the same work."""
    runs = {name: Run(RECIPES[name], texts[RECIPES[name].text], tokenizer, 1000) for name in names}
    times = {work(RECIPES[name]): [] for name in names}
    for turn in range(rounds + 2):
        for name, run in runs.items():
            begin = time.process_time()
            next(run.records)
            if turn > 1:
                times[work(RECIPES[name])].append(time.process_time() - begin)
    return {name: statistics.median(times[work(RECIPES[name])]) for name in names}


def compare(name: str, texts, tokenizer, total: int, seconds: float, heldout: list[str], out: Path) -> None:
    """Run one recipe to its end and write its file."""
    recipe = RECIPES[name]
    run, curve, losses, begin = Run(recipe, texts[recipe.text], tokenizer, total), [], [], time.process_time()
    for record in islice(run.records, total):
        losses.append(record.loss)
        done = record.step + 1
        if done % max(1, total // 10) == 0 and done != total:
            right, loss = masked_accuracy(*run.model.values(), heldout[:1500], tokenizer)
            curve.append({"step": done, "tokens": done * recipe.tokens, "train_loss": statistics.mean(losses),
                          "accuracy": right, "heldout_loss": loss})
            losses = []
            print(name, json.dumps(curve[-1]), f"{time.process_time() - begin:.0f} s", flush=True)
    right, loss = masked_accuracy(*run.model.values(), heldout, tokenizer)
    result = {"recipe": asdict(recipe), "seconds_a_step": seconds, "steps": total, "tokens": total * recipe.tokens,
              "parameters": sum(p.numel() for p in run.model.parameters()), "accuracy": right, "heldout_loss": loss,
              "curve": curve, "processor_seconds": time.process_time() - begin}
    (out / f"{name}.part").write_text(json.dumps(result, indent=1) + "\n")
    (out / f"{name}.part").rename(out / f"{name}.json")
    print(name, f"{right:.4f} {loss:.4f}", flush=True)


def table(out: Path) -> str:
    """The results as Markdown, best first."""
    rows = sorted(((p.stem, json.loads(p.read_text())) for p in out.glob("*.json") if p.stem != "seconds"),
                  key=lambda r: -r[1]["accuracy"])
    head = "| recipe | s a step | steps | million tokens | held-out words | held-out loss [nats] |\n|---|---|---|---|---|---|\n"
    return head + "".join(f"| {name} | {r['seconds_a_step']:.2f} | {r['steps']:,} | {r['tokens'] / 1e6:.2f} | "
                          f"{r['accuracy']:.1%} | {r['heldout_loss']:.2f} |\n" for name, r in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        return print(table(args.out))
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(None)
    texts = corpora(args.corpus, args.out, tokenizer)
    heldout = list(read_lines(args.corpus / "heldout" / "wikipedia-heldout.txt"))
    prices = args.out / "seconds.json"
    if not prices.exists():
        prices.write_text(json.dumps(seconds_a_step(list(RECIPES), texts, tokenizer), indent=1) + "\n")
    seconds = json.loads(prices.read_text())
    for name in args.only:
        if not (args.out / f"{name}.json").exists():
            total = round(60 * args.minutes / seconds[name])
            compare(name, texts, tokenizer, total, seconds[name], heldout, args.out)


if __name__ == "__main__":
    main()
