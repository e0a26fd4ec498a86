"""Contrastive pretraining and SMART, the report of Wu and Zhao: tables 1 and 2, section 5, and controls that it lacks."""
from __future__ import annotations

import math
from functools import partial

import torch

from ..contrastive import contrastive_loss
from ..data import Dataset, TaskBatch
from ..evaluate import drop_linear, metric_of, swap_symmetry
from ..heads import CosineHead, LinearHead, LinearPlusCosine, MultitaskBert, PairLinear
from ..metrics import accuracy, pearson
from ..mixing import seeded
from ..regularized import clean_pass, output_distance, regularized_loss
from ..smart import Attack, SmartPenalty, smart_loss, token_input
from ..smoothness import ball_points, sampled_smoothness
from ..tokens import encode_ids, pad_ids
from ..train import Phase
from .recipe import cell, claim, recipe, row
from .run import Run, labelled
from .tasks import KEYS, TASKS, answered, fine_tune, heads_from, phase
from .testsets import TEST_DIFFERS, TEST_NEEDS, on_test

NEEDS = tuple(f"{task}/{split}" for task in TASKS for split in ("train", "dev"))
AVERAGE = "average"
TUNE = {"vector": "the pooler's, of [CLS] (section 3.1)", "head": "linear; for pairs linear and 1 or 5 cosine (section 3.2.1)",
        "dropout of heads": ".3 SST, .1 pairs: the report has none; the course's and BERT's", "batch": "32", "rate": "1e-5, heads on a frozen encoder 1e-3",
        "epochs": "10, the best on the task's own dev set (section 4.3)", "rate over time": "up for a tenth, then down to 0: the report has none; BERT's"}
HADSELL = {"margin": ".5 (section 3.2.2)", "checkpoint of the contrast": "the last: the report names none"}
SMART = {"lambda": "5", "eta": "1e-3", "epsilon": "1e-5", "sigma": "1e-5 (section 3.2.3)", "steps of the search": "1: the report has none; SMART's",
         "change": "of sentence vectors (algorithm 1)"}
ORDER = "the change is rescaled before its cost, as in the code that the report names (as printed, one step leaves noise of 1e-5)"


def heads(width: int) -> dict:
    """The heads of figure 1."""
    return {"sst": LinearHead(width, 5, dropout=0.3), "quora": LinearPlusCosine(width, "paraphrase"), "sts": LinearPlusCosine(width, "similarity")}


def penalized(run: Run, variant: str = "rescale", **settings) -> dict:
    """Charge 5 times what a search around the sentence vectors finds."""
    return {"loss_fn": regularized_loss(SmartPenalty(5.0, "vectors", variant, seed=run.seed, **settings))}


KINDS = {  # how the encoder is trained on a task; all but the first two are our controls
    "plain": lambda run: {},
    "smart": penalized,
    "printed": partial(penalized, variant="seed"),                           # algorithm 1 as it stands
    "noise": partial(penalized, step_size=0.0),                              # the same change without its gradient
    "adversary": partial(penalized, variant="paper", steps=3, epsilon=0.05), # a search that stays in its ball
    "decay": lambda run: {"weight_decay": 0.1},
}


def learn(run: Run, model: MultitaskBert, task: str, kind: str = "plain", mode: str = "full") -> MultitaskBert:
    """Train on one task, and keep what is best on its dev set."""
    plan = phase(run, task, mode=mode)
    every = max(1, plan.steps // 4) if plan.steps else None
    return fine_tune(run, model, plan, eval_every=every, **KINDS[kind](run))


def hadsell(model: MultitaskBert, batch: dict[str, TaskBatch]) -> dict[str, torch.Tensor]:
    """Ask the vectors of a pair to be near or far, instead of the head."""
    return {task: contrastive_loss(*model.vectors(part.first, part.second), part.labels) * part.weight for task, part in batch.items()}


def stretch(run: Run, model: MultitaskBert, word: str) -> MultitaskBert:
    """Do one part of a plan: "contrast", a task, or a task and a kind as "sst+smart"."""
    if word == "contrast":
        return fine_tune(run, model, phase(run, "quora"), loss_fn=hadsell, best=False)
    task, _, kind = word.partition("+")
    return learn(run, model, task, kind or "plain")


def trained(run: Run, plan: tuple[str, ...]) -> MultitaskBert:
    """Train the encoder through a plan, one set after the other; plans that begin alike share their first part."""
    if not plan:
        return heads_from(run, run.base("pooler"), heads)

    def make() -> MultitaskBert:
        model = trained(run, plan[:1] if len(plan) > 1 else ())
        for word in plan[1:] or plan:
            model = stretch(run, model, word)
        return model
    return run.model("wu/" + "-".join(plan), make)


def with_heads(run: Run, model: MultitaskBert, tasks: tuple[str, ...]) -> MultitaskBert:
    """Train heads while the encoder stays, one after the other."""
    for task in tasks:
        model = learn(run, model, task, mode="frozen")
    return model


def scored(run: Run, model: MultitaskBert) -> dict:
    """Ask the three dev sets, and average the three scores as the report does."""
    found = answered(run, model)
    scores = [{"accuracy": accuracy, "pearson": pearson}[a.metric](a.values, labelled(a.dataset, run.data).labels) for a in found.values()]
    return found | {AVERAGE: sum(0.0 if math.isnan(s) else s for s in scores) / len(scores)}


ALL = ("sst", "quora", "sts")
SMOOTH = tuple(f"{task}+smart" for task in ALL)
ROWS = {  # name -> row of table 1, what moves the encoder, which heads are trained afterwards
    "baseline": ("Pretrain (baseline)", (), ALL),
    "sst": ("Finetune on SST", ("sst",), ("quora", "sts")),
    "quora": ("Finetune on Quora", ("quora",), ("sst", "sts")),
    "sts": ("Finetune on STS", ("sts",), ("sst", "quora")),
    "all": ("Finetune on all three", ALL, ()),
    "contrast": ("Pretrain with contrastive loss", ("contrast",), ALL),
    "contrast-all": ("Pretrain with contrastive loss then finetune on all three", ("contrast", *ALL), ()),
    "sst-smart": ("Finetune on SST + SMART", ("sst+smart",), ("quora", "sts")),
    "quora-smart": ("Finetune on Quora + SMART", ("quora+smart",), ("sst", "sts")),
    "sts-smart": ("Finetune on STS + SMART", ("sts+smart",), ("sst", "quora")),
}


def _row_of(name: str):
    printed, plan, tasks = ROWS[name]
    settings = TUNE | (HADSELL if "contrast" in plan else {}) | (SMART if "smart" in name else {})
    recipe(f"wu-zhao/{name}", row("T1", printed), needs=NEEDS, settings=settings, differs=ORDER if "smart" in name else "")(
        lambda run: scored(run, with_heads(run, trained(run, plan), tasks)))


for _name in ROWS:
    _row_of(_name)


FINAL = {**TUNE, **HADSELL, **SMART, "order": "contrast, SST, Quora, STS, then the heads of SST and Quora (section 4.4)"}


def final(run: Run) -> MultitaskBert:
    """The model of the last two rows, of table 2 and of section 5."""
    return run.model("wu/final", lambda: with_heads(run, trained(run, ("contrast", *SMOOTH)), ("sst", "quora")))


@recipe("wu-zhao/final", row("T1", "Pretrain with contrastive loss then finetune on all 3 + SMART"), needs=NEEDS, settings=FINAL, differs=ORDER)
def final_dev(run: Run) -> dict:
    return scored(run, final(run))


@recipe("wu-zhao/test", cell("T1", "Final result on test set", "SST dev acc", "SST test acc"),
        cell("T1", "Final result on test set", "STS dev pearson", "STS test pearson"), needs=(*NEEDS, *TEST_NEEDS), settings=FINAL, differs=f"{ORDER}; {TEST_DIFFERS}")
def final_test(run: Run) -> dict:
    return on_test(run, final(run))


@recipe("wu-zhao/swap", row("S5", "swap sentences", Quora_accuracy_drop="swap Quora drop"), needs=NEEDS, settings=FINAL, differs=ORDER)
def swap(run: Run) -> dict:
    model = final(run)
    return {f"swap {name} drop": swap_symmetry(model, task, run.dataset(task, "dev")) for task, name in (("quora", "Quora"), ("sts", "STS"))}


@recipe("wu-zhao/drop-linear", row("S5", "drop linear, keep bias", Quora_accuracy_drop="linear Quora drop", STS_pearson_drop="linear STS drop"), needs=NEEDS,
        settings=FINAL, differs=ORDER)
def drop(run: Run) -> dict:
    model = final(run)
    return {f"linear {name} drop": -drop_linear(model, task, run.dataset(task, "dev")).change for task, name in (("quora", "Quora"), ("sts", "STS"))}


EXAMPLES = {  # row of table 2 -> dev set, and words that no other row of it has together
    "SST Success": ("sst", "deep", "meaningful film"), "SST Failure": ("sst", "glorious failure", "solaris"),
    "Quora Success": ("quora", "ceramic", "armor"), "Quora Failure": ("quora", "pronunciation", "roll"),
    "STS Success": ("sts", "small black dog", "is in the grass"), "STS Failure": ("sts", "slowly", "seems to work"),
}


def example(task: str, words: tuple[str, ...], data: str | None) -> Dataset:  # one row
    """Find a row of a whole dev set by some words. Raises ValueError unless there is one."""
    dev = labelled(f"{task}/dev", data)
    texts = [" ".join(t).lower() for t in zip(dev.sentences, dev.sentences2 or dev.sentences)]
    rows = [i for i, text in enumerate(texts) if all(word in text for word in words)]
    if len(rows) != 1:
        raise ValueError(f"{task}/dev: expected one row with the words {', '.join(words)}, got {len(rows)}")
    return dev.subset(rows)


def told(model: MultitaskBert, task: str, data: Dataset) -> float:
    """Say what table 2 prints: a class, the probability of a yes, or a grade."""
    return model.predict(task, data, raw=True).sigmoid().item() if task == "quora" else model.predict(task, data).item()


@recipe("wu-zhao/examples", *(row("T2", name, gold=f"{name} gold", prediction=f"{name} prediction") for name in EXAMPLES), needs=NEEDS, settings=FINAL, differs=ORDER)
def examples(run: Run) -> dict:
    found, model = {name: example(task, words, run.data) for name, (task, *words) in EXAMPLES.items()}, final(run)
    return {f"{name} {what}": value for name, data in found.items()
            for what, value in (("gold", data.labels[0]), ("prediction", told(model, EXAMPLES[name][0], data)))}
