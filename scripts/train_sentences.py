"""The second model: sentence vectors from a pretrained encoder, by contrast, without one grade.

    python scripts/train_sentences.py PRETRAINED DATA --out FOLDER [--only NAME ...] [--jobs 4]
    python scripts/train_sentences.py PRETRAINED DATA --out FOLDER --table

Each variant trains on inference triplets (an entailed sentence is the right answer, a contradicted
one the hardest wrong one), some beside or after neighbouring sentences of articles and two dropout
views of single sentences. What equals a sentence of an evaluation set, or shares ten words in a row
with one, is left out first. The weights of the variants that are best on STS-B dev are also
averaged, and the best one gets its words beside it, so that they count as well (see
words_beside.py). What has the highest Spearman on STS-B dev wins: a choice, made on dev alone; test
sets are scored for all and choose nothing. Leaves FOLDER/variants/NAME/ (model and result.json; a
variant whose result is there is not run again), FOLDER/results.json (all variants, controls,
intervals, neighbours) and FOLDER/sentences, the winner with its card. --table writes the last two
again.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from scipy.stats import rankdata
from words_beside import FEATURES, words_beside

from minbert.baselines import idf_overlap, idf_weights, words
from minbert.batches import pair_batches
from minbert.core.devices import choose_device
from minbert.core.dropout import set_dropout
from minbert.data import load_dataset, read_lines
from minbert.encoder import BertModel
from minbert.encoding.pooling_spec import pooling_name
from minbert.negatives import multiple_negatives_loss
from minbert.sentence import SentenceEncoder, safe_cosine
from minbert.simcse import Projection, ViewModel, train_views, view_batches, view_loss
from minbert.sts import STS_TASKS, load_sts, unique_sentences, word_overlap
from minbert.tokens import load_tokenizer
from minbert.whitening import Whiten

SEED = 11711
# name -> columns of text; of neighbours the last column is the number of their article
Sources = dict[str, list]


@dataclass(frozen=True)
class Variant:
    """One way to train; the defaults are the base that the others leave in a point or two."""

    steps: int = 420  # on triplets, and what stands beside them
    batch: int = 256  # of each source
    lr: float = 5e-4
    dropout: float = 0.1
    scale: float = 20.0  # 1 / temperature
    symmetric: bool = False  # a positive must find its anchor, too
    views: float = 0.0  # weight of two dropout views of single sentences
    neighbours: float = 0.0  # weight of neighbouring sentences
    before: int = 0  # steps on neighbours and views before the triplets come
    before_lr: float = 5e-4
    projection: bool = False  # between vectors and loss, dropped afterwards
    seed: int = SEED


BASE = Variant()
LONG = replace(BASE, before=800, symmetric=True)
VARIANTS = {
    "base": BASE,
    "rate 2e-4": replace(BASE, lr=2e-4),
    "rate 1e-3": replace(BASE, lr=1e-3),
    "batch 512": replace(BASE, batch=512),
    "symmetric": replace(BASE, symmetric=True),
    "twice as long": replace(BASE, steps=840),
    "dropout 0": replace(BASE, dropout=0.0),
    "dropout .2": replace(BASE, dropout=0.2),
    "projection": replace(BASE, projection=True),
    "views beside": replace(BASE, views=0.2),
    "neighbours beside": replace(BASE, neighbours=0.2),
    "both beside": replace(BASE, views=0.1, neighbours=0.2, symmetric=True),
    "neighbours before": replace(BASE, before=800),
    "before, symmetric": LONG,
    "before, batch 512": replace(LONG, batch=512),
    "before, beside": replace(LONG, neighbours=0.2, views=0.1),
    "before, beside, long": replace(LONG, neighbours=0.2, views=0.1, steps=840, before=1600),
    "before, rate 2e-4": replace(LONG, lr=2e-4),
}

# how much the cosine of words counts, beside 1 for the cosine of the means
SHARES = (0.5, 0.8, 1.1)
# training pools by the mean of the last layer
POOLED = ("mean", "last2avg", "first_last_avg", "emb_last_avg")

EVERYDAY = [
    "A man is playing a guitar.",
    "Someone plays music on a guitar.",
    "The dog runs across the field.",
    "A puppy is running through the grass.",
    "Shares fell sharply on Monday.",
    "The stock market dropped this week.",
    "I would like a cup of coffee.",
    "Could I have some tea, please?",
    "The train to London is late.",
    "Our bus arrives half an hour late.",
    "She is cutting an onion in the kitchen.",
    "A woman chops vegetables.",
    "It will rain all day tomorrow.",
    "The weather forecast says it will be wet.",
]
PARTNERS = [i ^ 1 for i in range(len(EVERYDAY))]  # each stands beside its own


# --- text


def marks(sentence: str, run: int = 10) -> set[tuple[str, ...]]:
    """Give what a sentence is recognised by: its words, and every ten of them in a row."""
    found = tuple(words(sentence))
    return {found} | {found[i : i + run] for i in range(len(found) - run + 1)}


def without(
    columns: list[list],
    forbidden: set,
    # what is left, and how many rows went
) -> tuple[list[list], int]:
    """Drop every row that has a sentence of an evaluation set, or ten words in a row of one."""
    kept = [
        row
        for row in zip(*columns)
        if not any(marks(text) & forbidden for text in row if isinstance(text, str))
    ]
    return [list(column) for column in zip(*kept)], len(columns[0]) - len(kept)


def triplets(data: Path) -> list[list[str]]:
    """Join the triplets with pairs of the MNLI sample, a contradicted sentence of any premise as
    the wrong answer.
    """
    ready, mnli = load_dataset("triplets", "train", data), load_dataset("mnli", "train", data)

    def of(name):
        return [
            (a, b)
            for a, b, y in zip(mnli.sentences, mnli.sentences2, mnli.labels)
            if mnli.classes[y] == name
        ]

    more = [(a, b, wrong) for (a, b), (_, wrong) in zip(of("entailment"), of("contradiction"))]
    return [
        list(column)
        for column in zip(*zip(ready.sentences, ready.sentences2, ready.sentences3), *more)
    ]


def neighbours(files: list[Path]) -> list[list]:
    """Cut articles, which end in blank lines, into pairs of sentences that follow each other."""
    pairs, article = [], 0
    for file in files:
        for part in "\n".join(read_lines(file)).split("\n\n"):
            lines = part.strip().split("\n")
            pairs += [(a, b, article) for a, b in zip(lines[::2], lines[1::2])]
            article += 1
    return [list(column) for column in zip(*pairs)]


def sentences(files: list[Path]) -> list[str]:
    """Read single sentences, an even share of each file."""
    found = [read_lines(file) for file in files]
    return [line for lines in found for line in lines[:60_000] if len(line.split()) > 3]


def gather(data: Path) -> tuple[Sources, dict]:  # sources, and rows and what was left out of each
    """Read all sources, without anything that an evaluation set has."""
    corpus = data / "corpus"
    evaluation = [*load_sts(data).values(), load_dataset("stsb", "dev", data)]
    forbidden = set().union(*(marks(s) for d in evaluation for s in (*d.sentences, *d.sentences2)))
    forbidden -= {mark for mark in forbidden if len(mark) < 3}  # two words are nobody's
    raw = {
        "nli": triplets(data),
        "neighbours": neighbours(sorted((corpus / "docs").glob("*.txt.gz"))[:2]),
        "views": [
            sentences([corpus / "tatoeba-sentences.txt", corpus / "wikipedia-sentences-00.txt.gz"])
        ],
    }
    left = {name: without(columns, forbidden) for name, columns in raw.items()}
    return (
        {name: columns for name, (columns, _) in left.items()},
        {
            name: {"rows": len(columns[0]), "left out": gone}
            for name, (columns, gone) in left.items()
        },
    )


def write_sources(data: Path, out: Path) -> None:
    """Leave the text for the processes that train, and for the card what was taken and left out."""
    for name, found in zip(("sources.json", "text.json"), gather(data)):
        (out / name).write_text(json.dumps(found))


# --- training


def supplies(
    sources: Sources, tokenizer, variant: Variant, names: list[str], stage: str
) -> Iterator[dict]:
    """Draw a batch of each source a step."""
    seed = f"{variant.seed}/{stage}"
    batch = partial(
        pair_batches, tokenizer=tokenizer, batch_size=variant.batch, max_length=48, seed=seed
    )
    made = {
        "nli": lambda: batch(sources["nli"]),
        "neighbours": lambda: batch(
            sources["neighbours"][:2], groups=torch.tensor(sources["neighbours"][2]), unique=False
        ),
        "views": lambda: view_batches(
            sources["views"], tokenizer, variant.batch, max_length=48, seed=variant.seed
        ),
    }
    for drawn in zip(*(made[name]() for name in names)):
        yield dict(zip(names, drawn))


def loss_of(variant: Variant, weights: dict[str, float]):  # (model, batch) -> name -> ()
    """Weigh the contrast of every source."""
    part = view_loss(
        partial(multiple_negatives_loss, scale=variant.scale, symmetric=variant.symmetric)
    )
    return lambda model, batch: {name: weights[name] * part(model, batch[name]) for name in batch}


def stages(
    variant: Variant,
    # name, weights, steps, rate
) -> Iterator[tuple[str, dict[str, float], int, float]]:
    """Say what is learned, in order."""
    if variant.before:
        yield "before", {"neighbours": 1.0, "views": 0.5}, variant.before, variant.before_lr
    beside = {"nli": 1.0, "neighbours": variant.neighbours, "views": variant.views}
    yield (
        "triplets",
        {name: weight for name, weight in beside.items() if weight},
        variant.steps,
        variant.lr,
    )


def train(
    encoder: SentenceEncoder, variant: Variant, sources: Sources, precision: str
) -> dict[str, float]:
    """Train an encoder in place; give the last loss of every stage, a mean of twenty."""
    torch.manual_seed(variant.seed)
    set_dropout(encoder, variant.dropout)
    head = Projection(encoder.width).to(encoder.device) if variant.projection else None
    model, losses = ViewModel(encoder, head), {}
    for stage, weights, total, lr in stages(variant):
        batches = supplies(sources, encoder.tokenizer, variant, list(weights), stage)
        seen = [
            r.loss
            for r in train_views(
                model, batches, loss_of(variant, weights), total, lr=lr, precision=precision
            )
        ]
        losses[stage] = float(np.mean(seen[-20:]))
    return losses


def save(encoder: SentenceEncoder, folder: Path) -> None:
    """Write an encoder in half precision."""
    if not isinstance(encoder.pooling, str):
        encoder.pooling.half()
    encoder.save_pretrained(folder, torch.float16)


def work(name: str, variant: Variant, pretrained: Path, data: Path, out: Path) -> dict:
    """Train one variant, and measure it as it is saved."""
    begin = time.perf_counter()
    sources = json.loads((out / "sources.json").read_text())
    encoder = SentenceEncoder.from_pretrained(pretrained, pooling="mean")
    encoder.max_length = 128
    losses = train(encoder, variant, sources, "bf16" if encoder.device.type == "cuda" else "fp32")
    seconds, folder = time.perf_counter() - begin, out / "variants" / name
    save(encoder, folder)
    used = sorted(set().union(*(weights for _, weights, _, _ in stages(variant))))
    return note(
        folder,
        {
            "name": name,
            "variant": asdict(variant),
            "sources": used,
            "losses": losses,
            "seconds": round(seconds, 1),
        },
        data,
    )


def note(folder: Path, result: dict, data: Path) -> dict:
    """Measure what was saved, and write all that is known of it beside it."""
    result = {**result, **measure(folder, data)}
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def finished(out: Path) -> list[dict]:
    """Read the results there are, best on dev first."""
    return sorted(
        (json.loads(file.read_text()) for file in (out / "variants").glob("*/result.json")),
        key=lambda row: -row["dev"],
    )


def average(most: int, data: Path, out: Path) -> dict:
    """Average the weights of the `most` variants that are best on dev: they start from one place,
    and end near each other.

    Paper: Wortsman et al. (2022), the uniform soup, of the best instead of all.
    """
    rows = [row for row in finished(out) if not {"mean of", "words"} & set(row["variant"])][:most]
    encoders = [SentenceEncoder.from_pretrained(out / "variants" / row["name"]) for row in rows]
    states = [encoder.model.state_dict() for encoder in encoders]
    encoders[0].model.load_state_dict(
        {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    )
    name = f"mean of the {len(rows)} best"
    save(encoders[0], out / "variants" / name)
    return note(
        out / "variants" / name,
        {
            "name": name,
            "variant": {"mean of": ", ".join(row["name"] for row in rows)},
            "losses": {},
            "sources": sorted(set().union(*(row["sources"] for row in rows))),
            "seconds": sum(row["seconds"] for row in rows),
        },
        data,
    )


def with_words(shares: tuple[float, ...], data: Path, out: Path) -> list[dict]:
    """Put words beside the best variant that has none."""
    row, begin = (
        next(row for row in finished(out) if "words" not in row["variant"]),
        time.perf_counter(),
    )
    encoder, rows = SentenceEncoder.from_pretrained(out / "variants" / row["name"]), []
    for share, made in zip(
        shares, words_beside(encoder, load_dataset("sentences", "train").sentences, shares)
    ):
        name = f"{row['name']}, words {share}"
        save(made, out / "variants" / name)
        seconds = round(row["seconds"] + time.perf_counter() - begin, 1)
        rows.append(
            note(
                out / "variants" / name,
                {
                    **row,
                    "name": name,
                    "variant": {**row["variant"], "words": share},
                    "seconds": seconds,
                },
                data,
            )
        )
        begin = time.perf_counter()
    return rows


# --- measuring


def cosines(encoder, data: Path) -> dict[str, np.ndarray]:  # set -> (N,)
    """Give the cosine of every pair of dev and of the seven test sets."""
    sets = evaluation_sets(data)
    texts, pairs = unique_sentences(sets)
    vectors = encoder.encode(texts)
    return {name: safe_cosine(vectors[i], vectors[j]).numpy() for name, (i, j) in pairs.items()}


def evaluation_sets(data: Path) -> dict:
    """Load STS-B dev, which chooses, and the seven test sets, which choose nothing."""
    return {"dev": load_dataset("stsb", "dev", data), **load_sts(data)}


def spearmans(scores: np.ndarray, grades: np.ndarray) -> np.ndarray:  # (R,) of (R, N) and (R, N)
    """Correlate row by row, as `minbert.metrics.spearman` does one."""
    x, y = (rankdata(v, axis=1) for v in (scores, grades))
    x, y = (v - v.mean(1, keepdims=True) for v in (x, y))
    return (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))


def measure(folder: Path, data: Path) -> dict:
    """Score a saved encoder on every set; the average is that of the seven."""
    found = cosines(SentenceEncoder.from_pretrained(folder), data)
    return scored(found, {name: d.labels for name, d in evaluation_sets(data).items()})


def readings(
    encoder: SentenceEncoder,
    data: Path,
    # pooling -> scores, and the mean cosine of strangers
) -> dict[str, dict]:
    """Score the same weights as other layers show them. A stranger is the second sentence of the
    next pair of dev.
    """
    grades = {name: d.labels for name, d in evaluation_sets(data).items()}
    dev = load_dataset("stsb", "dev", data)
    rows = {}
    for how in POOLED:
        read = SentenceEncoder(encoder.model, encoder.tokenizer, how, max_length=encoder.max_length)
        strangers = safe_cosine(read.encode(dev.sentences), read.encode(dev.sentences2).roll(-1, 0))
        rows[how] = {**scored(cosines(read, data), grades), "strangers": strangers.mean().item()}
    return rows


def scored(found: dict[str, np.ndarray], grades: dict[str, list]) -> dict:
    """Turn scores of pairs into Spearman correlations: dev, each test set, their average."""
    values = {
        name: float(spearmans(x[None], np.asarray(grades[name])[None])[0])
        for name, x in found.items()
    }
    tests = {name: values[name] for name in STS_TASKS}
    return {
        "dev": values["dev"],
        "test": {**tests, "average": float(np.mean(list(tests.values())))},
    }


def controls(
    pretrained: Path,
    data: Path,
    # control -> set -> (N,)
) -> dict[str, dict[str, np.ndarray]]:
    """Score the pairs by what needs no training on sentences; what is fitted is fitted on the open
    sentences.
    """
    open_sentences, sets = load_dataset("sentences", "train").sentences, evaluation_sets(data)
    weights = idf_weights(open_sentences)
    plain = SentenceEncoder.from_pretrained(pretrained, pooling="mean")
    torch.manual_seed(SEED)
    untrained = (
        SentenceEncoder(BertModel(plain.model.config), load_tokenizer(pretrained))
        .to(choose_device())
        .eval()
    )
    found = {
        "shared words": {k: word_overlap(d.sentences, d.sentences2) for k, d in sets.items()},
        "shared words, weighted by idf": {
            k: idf_overlap(d.sentences, d.sentences2, weights) for k, d in sets.items()
        },
        "pretrained": cosines(plain, data),
    }
    for name, encoder in (("untrained, whitened", untrained), ("pretrained, whitened", plain)):
        encoder.transform = (
            Whiten(encoder.width).fit(encoder.encode(open_sentences)).to(encoder.device)
        )
        found[name] = cosines(encoder, data)
    return found


def draws(
    found: dict[str, np.ndarray], grades: dict[str, list], resamples: int
) -> dict[str, np.ndarray]:
    """Score other draws of the pairs, the same for whoever is scored; each set is drawn apart."""
    result = {}
    for name in STS_TASKS:
        y, x = np.asarray(grades[name]), found[name]
        rows = np.random.default_rng([SEED, STS_TASKS.index(name)]).integers(
            len(y), size=(resamples, len(y))
        )
        result[name] = np.concatenate(
            [spearmans(x[part], y[part]) for part in np.array_split(rows, max(1, resamples // 100))]
        )
    result["average"] = np.mean([result[name] for name in STS_TASKS], axis=0)
    return result


def compare(winner: dict, others: dict[str, dict], grades: dict[str, list], resamples: int) -> dict:
    """Give value, difference to the winner, and its 95 % interval, for each control and set."""
    best, ours, table = scored(winner, grades)["test"], draws(winner, grades, resamples), {}
    for name, found in others.items():
        values, theirs = scored(found, grades), draws(found, grades, resamples)
        gaps = {k: np.quantile(ours[k] - theirs[k], [0.025, 0.975]).tolist() for k in best}
        table[name] = {
            **values,
            "difference": {k: [best[k] - values["test"][k], *gaps[k]] for k in best},
        }
    return table


def everyday(encoder: SentenceEncoder) -> list[dict]:
    """Find the nearest of a handful of everyday sentences, each of which has its partner among
    them.
    """
    vectors = encoder.encode(EVERYDAY)
    near = safe_cosine(vectors[:, None], vectors[None]).fill_diagonal_(-1)
    return [
        {
            "sentence": text,
            "nearest": EVERYDAY[int(row.argmax())],
            "cosine": float(row.max()),
            "right": int(row.argmax()) == PARTNERS[i],
        }
        for i, (text, row) in enumerate(zip(EVERYDAY, near))
    ]


# --- the card

CARD = """---
language: en
license: cc-by-sa-4.0
library_name: sentence-transformers
pipeline_tag: sentence-similarity
---

# Sentence vectors from a small BERT, trained without a grade

The encoder of minbert, {layers} layers, {width} wide, trained further by contrast: each sentence of a batch picks out
the one that it entails. Pooling `{pooling}`, {numbers} numbers a sentence, half precision. Variant "{name}" of {count}, the best of them by Spearman on
STS-B dev ({dev:.3f}); no grade entered training, and no test set chose anything.

| setting | value |
|---|---|
{settings}

## Text

- {nli[rows]:,} triplets: premise, entailed, contradicted sentence, from the training parts of SNLI (Bowman et al., 2015; CC BY-SA 4.0) and
  MNLI (Williams et al., 2018; mostly the OANC licence), as selected by Gao et al. (2021); {nli[left out]:,} more were left out.
- {neighbours[rows]:,} pairs of neighbouring sentences, English Wikipedia (2015; CC BY-SA 3.0); {neighbours[left out]:,} more were left out.
- {views[rows]:,} single sentences, Tatoeba (CC BY 2.0 FR) and English Wikipedia (CC BY-SA 3.0); {views[left out]:,} more were left out.

{used} Left out is what equals a sentence of three words or more of STS12 to 16, STS-B dev and test or SICK test, or shares ten words in a row with one.
{about_words}
## Scores

Spearman of cosine and grade, all pairs of a set together. In brackets: this model minus the control, 95 % interval of {resamples:,} paired
bootstraps over the pairs; the sets are drawn apart, though STS-B shares pairs with the years.

| | {heads} |
|---|{rule}|
| pairs | {sizes} |
| **this model** | {best} |
{rows}

All variants, as they scored:

| variant | dev | STS-B test | SICK-R test | average of seven | seconds |
|---|---|---|---|---|---|
{variants}

## Other layers

The same weights without the words, read by other poolings (`from_pretrained(..., pooling=NAME)`). Strangers are two sentences of different pairs of dev:
their mean cosine says how much of the scale is left for what is related.

| pooling | dev | STS-B test | SICK-R test | average of seven | strangers |
|---|---|---|---|---|---|
{readings}

## Neighbours

| sentence | nearest of {handful} | cosine |
|---|---|---|
{near}

Made by `python scripts/train_sentences.py PRETRAINED DATA --out FOLDER`.
"""


WORDS = """
## The words beside it

A mean of contexts knows what a sentence is about and blurs which words were there; the embedding layer does the opposite. Both stand in a
vector, one after the other: {features} numbers of words, then {width} of the last layer. The words: each token of the embedding layer goes through
{features} random directions (which see little of a token's place within the first 64, and more of it later) and a ReLU, the mean over the sentence
is whitened and scaled to one length, so that its cosine counts about {words} beside 1 for the last layer. The whitening is fitted on the 10,000 open sentences, as that of the controls is; nothing
of this is trained, and the encoder's own weights stayed as they were: `from_pretrained(..., pooling="mean")` reads them alone.
"""


def card(results: dict) -> str:
    """Write the card from the results, nothing by hand."""
    best, columns = results["variants"][results["winner"]], (*STS_TASKS, "average")
    words = best["variant"].get("words")

    def cell(gap):
        return "{:.3f} ({:+.3f} to {:+.3f})".format(*gap)

    of = {
        name: " | ".join(cell((row["test"][k], *row["difference"][k][1:])) for k in columns)
        for name, row in results["controls"].items()
    }
    return CARD.format(
        **results["text"],
        **results["shape"],
        name=best["name"],
        count=len(results["variants"]),
        dev=best["dev"],
        about_words=""
        if words is None
        else WORDS.format(words=words, features=FEATURES, **results["shape"]),
        settings="\n".join(f"| {k} | {v} |" for k, v in best["variant"].items()),
        used=f"Of these the winner uses {', '.join(best['sources'])}.",
        resamples=results["resamples"],
        heads=" | ".join(columns),
        rule="|".join("---" for _ in columns),
        sizes=" | ".join(f"{results['pairs'][k]:,}" for k in STS_TASKS) + " | ",
        best=" | ".join(f"**{best['test'][k]:.3f}**" for k in columns),
        rows="\n".join(f"| {name} | {text} |" for name, text in of.items()),
        variants="\n".join(
            "| {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.0f} |".format(
                name,
                v["dev"],
                v["test"]["stsb"],
                v["test"]["sickr"],
                v["test"]["average"],
                v["seconds"],
            )
            for name, v in results["variants"].items()
        ),
        readings="\n".join(
            "| {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.2f} |".format(
                how,
                v["dev"],
                v["test"]["stsb"],
                v["test"]["sickr"],
                v["test"]["average"],
                v["strangers"],
            )
            for how, v in results["readings"].items()
        ),
        handful=len(results["everyday"]),
        near="\n".join(
            "| {sentence} | {nearest} | {cosine:.2f} |".format(**row) for row in results["everyday"]
        ),
    )


def conclude(pretrained: Path, data: Path, out: Path, resamples: int = 1000) -> dict:
    """Choose the winner on dev, hold it against the controls, and save it with its card."""
    found = finished(out)
    winner = found[0]
    encoder = SentenceEncoder.from_pretrained(out / "variants" / winner["name"])
    sets = evaluation_sets(data)
    grades, config = {name: d.labels for name, d in sets.items()}, encoder.model.config
    results = {
        "winner": winner["name"],
        "variants": {row["name"]: row for row in found},
        "text": json.loads((out / "text.json").read_text()),
        "shape": {
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
            "numbers": encoder.width,
            "pooling": pooling_name(encoder.pooling),
        },
        "resamples": resamples,
        "pairs": {name: len(labels) for name, labels in grades.items()},
        "everyday": everyday(encoder),
        "readings": readings(encoder, data),
        "controls": compare(cosines(encoder, data), controls(pretrained, data), grades, resamples),
    }
    save(encoder, out / "sentences")
    (out / "sentences" / "README.md").write_text(card(results), encoding="utf-8")
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return results


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then conclude."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pretrained", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=1, help="variants at a time")
    parser.add_argument("--table", action="store_true", help="train nothing")
    given = parser.parse_args(arguments)
    (given.out / "variants").mkdir(parents=True, exist_ok=True)
    failed = []
    missing = [
        name for name in given.only if not (given.out / "variants" / name / "result.json").exists()
    ]
    complete = not missing and sum("words" in row["variant"] for row in finished(given.out)) >= len(
        SHARES
    )
    if not complete and not given.table:
        write_sources(given.data, given.out)
        failed = (
            run(missing, given.pretrained, given.data, given.out, given.jobs) if missing else []
        )
        for count in (3, 6):
            average(count, given.data, given.out)
        with_words(SHARES, given.data, given.out)
        (given.out / "sources.json").unlink()
    results = conclude(given.pretrained, given.data, given.out)
    print(json.dumps(results["controls"], indent=1))
    print(
        *(
            f"{row['sentence']:45s} {row['cosine']:.2f}  {row['nearest']}"
            for row in results["everyday"]
        ),
        sep="\n",
    )
    print(f"winner: {results['winner']}", results["variants"][results["winner"]])
    if failed:
        raise SystemExit(f"failed, and not in the table: {', '.join(failed)}")


def run(
    names: list[str],
    pretrained: Path,
    data: Path,
    out: Path,
    jobs: int,
    # those that failed
) -> list[str]:
    """Train variants, `jobs` at a time, each in a process of its own; one that fails leaves the
    others alone.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    # no long one alone at the end
    names = sorted(names, key=lambda name: -VARIANTS[name].before - VARIANTS[name].steps)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {
            name: pool.submit(work, name, VARIANTS[name], pretrained, data, out) for name in names
        }
        for name, future in waiting.items():
            print(
                f"{name:24s} {summary(future.result()) if future.exception() is None else repr(future.exception())}",
                flush=True,
            )
    return [name for name, future in waiting.items() if future.exception() is not None]


def summary(row: dict) -> str:
    """Put a result into one line."""
    return f"dev {row['dev']:.4f}  stsb {row['test']['stsb']:.4f}  average {row['test']['average']:.4f}  {row['seconds']:.0f} s"


if __name__ == "__main__":
    main()
