"""SimCSE's loss, two heads and PCGrad, the report of Dao, Mehta and Tian: sections 4.3 and 4.4,
tables 1 to 4, figures 4 to 6, and controls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch.nn.functional as F
from torch import Tensor

from ..conflicts import GradVac, conflict_summary
from ..contrastive import simcse_loss
from ..core.device_step import DeviceStep
from ..core.devices import choose_device
from ..core.fused_adamw import FusedAdamW
from ..data import Dataset, TaskBatch, task_batches
from ..heads import ConcatDiff, CosineHead, LinearHead, MultitaskBert, PairLinear, multitask_loss
from ..losses import Head
from ..metrics import accuracy
from ..optim import parameter_groups
from ..pcgrad import PCGrad
from ..sampling import TaskSampler, seeded
from ..sentence import SentenceEncoder
from ..training import steps, sum_losses
from .finetune_stages import (
    KEYS,
    TASKS,
    answered,
    fine_tune,
    heads_from,
    loss_ends,
    phase,
    pooled_base,
    told,
    with_mean,
)
from .published import published
from .recipe import cell, claim, not_run, recipe, row
from .run import Answers, Run, labelled

PAPER, OVERALL = "dao-mehta-tian", "overall"
SST, QUORA, STS = (KEYS[task] for task in TASKS)
CFIMDB = "CFIMDB dev acc"
NEEDS = {task: (f"{task}/train", f"{task}/dev") for task in (*TASKS, "cfimdb")}
ALL = NEEDS["sst"] + NEEDS["quora"] + NEEDS["sts"]

BASE = {
    "vectors": "output of the pooler, as in the course's skeleton (the paper names none); below the paper's scale the mean, for models without a trained pooler",
    "batch": "8 (section 4.3) where the scale has no steps of its own",
    "rate": "1e-5; 1e-3 frozen (section 4.3)",
    "epochs": "10 (section 4.3)",
    "dropout of the layers": ".1, BERT's own; .01 at micro: the embedded model was trained without",
    "warm-up and decay": "over .1 of the steps, then to 0: ours, BERT's",
    "weight decay": "0: ours, the paper names none",
    "clipping": "gradient at most 1 long: ours, BERT's",
    "dropout before a head": ".3 (section 4.3)",
}
BEST_DEV = {
    "checkpoint": "best on dev, the model before the first step included: not printed; the course's code keeps the best",
    "looks at dev": "at the end of each epoch, as the course's code; "
    "below the paper's scale after every 125 steps, or every quarter of a shorter run",
}
CONTRAST = {
    **BASE,
    "temperature": ".05 (section 4.3)",
    "weight of the contrast": "1: not printed; we add the two losses",
    "mask": "on the sentence vectors, another one for each view",
    "negatives": "the other sentences of the batch; of a pair those in the same place",
}
PAIR = {**BASE, "loss": "log cost for paraphrase, squared error for grades (section 4.3)"}
JOINT = {
    **CONTRAST,
    "loss": "sum of the three (equation 4)",
    "heads": "SST linear with contrast and a mask of .8, Quora concatenation, STS cosine (table 2)",
    "rows": "one batch of each task a step; SST and STS drawn again until half of Quora is seen (section 4.3)",
    "model": 'that of the last step: "end results"',
}
MASK = (
    "where the mask of the dropout grid falls is our reading: on the sentence vectors, as the course's skeleton has it; control/dropout-layers-* put it in all layers",
)
COSINE = "the paper gives its cosines no scale: 10 cos - 8 for paraphrase, 5 cos for grades at the start, both learned"


def start(run: Run, dropout: float | None = None) -> SentenceEncoder:
    """Load BERT with dropout in its layers: that of the scale, or another."""
    return run.noisy(pooled_base(run), dropout)


def rows(run: Run) -> int:
    """Rows of a task in a step: the paper's where its epochs are run, else the scale's."""
    return 8 if run.scale.task_steps is None else run.scale.batch


# Losses and heads


@dataclass(frozen=True)
class Contrast:
    """The usual loss of every task, and SimCSE's beside those of some."""

    masks: dict[str, float]  # task -> dropout on its sentence vectors
    # the rows of a batch are each other's wrong answers: a batch in parts asks less
    whole = True

    def passes(self, task: str) -> tuple[float, float]:
        """Of the encoder, and those of them that wait for the backward pass, over those of the
        plain loss: two views.
        """
        return (2.0, 2.0) if task in self.masks else (1.0, 1.0)

    def __call__(self, model: MultitaskBert, batch: dict[str, TaskBatch]) -> dict[str, Tensor]:
        return {
            task: contrasted(model, task, part, self.masks[task])
            if task in self.masks
            else multitask_loss(model, {task: part})[task]
            for task, part in batch.items()
        }


def contrasted(
    model: MultitaskBert,
    task: str,
    part: TaskBatch,
    mask: float,  # dropout on the vectors, in [0, 1)
) -> Tensor:  # () of the task's cost plus the contrast, mean over the columns of a pair
    """Pass each sentence twice, mask each vector anew; the first views are answered, and must find
    the second ones.

    Paper: Dao, Mehta and Tian, equations 2 and 3; the mean over the batch, where they print the
    sum.
    """
    columns = [c for c in (part.first, part.second) if c is not None]
    views = [[F.dropout(x, mask) for x in model.vectors(column, column)] for column in columns]
    answer = model.heads[task].loss(model.score(task, *(first for first, _ in views)), part.labels)
    contrast = sum(simcse_loss(first, second, 0.05) for first, second in views) / len(views)
    return (answer + contrast) * part.weight


def rounded(model: MultitaskBert, batch: dict[str, TaskBatch]) -> dict[str, Tensor]:
    """The usual losses where grades are classes: 2.6 is a 3."""
    return multitask_loss(
        model, {task: replace(part, labels=part.labels.round()) for task, part in batch.items()}
    )


GOAL = {"quora": "paraphrase", "sts": "similarity"}


def concatenation(task: str, width: int) -> Head:
    """W (u, v, |u - v|), the classification objective of section 3.2."""
    return ConcatDiff(width, goal=GOAL[task], dropout=0.3)


def cosine(task: str, width: int) -> Head:
    """A cosine with scale and shift."""
    return (
        CosineHead("paraphrase", 10.0, -8.0) if task == "quora" else CosineHead("similarity", 5.0)
    )


def three(width: int) -> dict[str, Head]:
    """The heads of table 2; the mask of SST is the contrast's."""
    return {
        "sst": LinearHead(width, 5, dropout=0.0),
        "quora": concatenation("quora", width),
        "sts": cosine("sts", width),
    }


def untrained(width: int) -> dict[str, Head]:
    """The heads of the leaderboard baseline: the two for pairs keep the weights that they were
    drawn with.
    """
    return {
        "sst": LinearHead(width, 5, dropout=0.3),
        "quora": PairLinear(width, "paraphrase"),
        "sts": PairLinear(width, "similarity"),
    }


# Section 4.4 and figure 5: baselines


def baseline(run: Run, task: str, mode: str) -> dict[str, Answers]:
    """One linear layer on BERT, alone or with BERT. Reviews of CFIMDB are cut at 128 tokens at
    micro.
    """
    encoder = start(run)
    if task == "cfimdb" and run.scale.base is None:
        encoder.max_length = 128
    model = heads_from(
        run,
        encoder,
        lambda width: {task: LinearHead(width, 5 if task == "sst" else 2, dropout=0.3)},
    )
    model = fine_tune(
        run, model, phase(run, task, mode=mode), rows=8 if task == "cfimdb" else rows(run)
    )
    return answered(run, model, {task: SST if task == "sst" else CFIMDB})


def _baseline(task: str, mode: str, printed: str):
    name, key = ("SST baseline", SST) if task == "sst" else ("CFIMDB baseline", CFIMDB)
    recipe(
        f"{PAPER}/{task}-{mode}",
        cell("S4.4", name, printed, key),
        needs=NEEDS[task],
        settings=BASE | BEST_DEV,
        differs="at micro 128 tokens of a review" if task == "cfimdb" else "",
    )(lambda run: baseline(run, task, mode))


for _task in ("sst", "cfimdb"):
    _baseline(_task, "frozen", "pretrain dev acc")
    _baseline(_task, "full", "finetune dev acc")


def leaderboard(run: Run) -> MultitaskBert:
    """Only the layer for SST is trained."""
    return run.model(
        "dao/leaderboard",
        lambda: fine_tune(
            run,
            heads_from(run, start(run), untrained),
            phase(run, "sst", mode="frozen"),
            rows=rows(run),
        ),
    )


@recipe(
    f"{PAPER}/leaderboard",
    row(
        "S4.4",
        "Leaderboard baseline",
        SST_dev_acc=SST,
        paraphrase_dev_acc=QUORA,
        STS_dev_pearson=STS,
        overall=OVERALL,
    ),
    cell("T1", "Sentiment Analysis", "baseline", SST),
    cell("T1", "Paraphrase Detection", "baseline", QUORA),
    cell("T1", "Semantic Textual Similarity", "baseline", STS),
    needs=ALL,
    settings={
        **BASE,
        **BEST_DEV,
        "heads of pairs": 'linear on (u, v), never trained: the paper has "a random classifier"',
    },
)
def leaderboard_scores(run: Run) -> dict:
    return with_mean(run, leaderboard(run), OVERALL)


# Table 1: each task alone


def alone(
    run: Run,
    task: str,
    make: Callable[[int], Head],
    loss_fn: Callable | None = None,
    dropout: float | None = None,
) -> MultitaskBert:
    """Train one task from BERT on, and give the model that was best on its dev set."""
    model = heads_from(run, start(run, dropout), lambda width: {task: make(width)})
    return fine_tune(run, model, phase(run, task), rows=rows(run), loss_fn=loss_fn)


def masked(run: Run, mask: float) -> MultitaskBert:
    """SST with contrast, for one dropout of figure 4."""
    return run.model(
        f"dao/sst-{mask:.1f}",
        lambda: alone(
            run, "sst", lambda width: LinearHead(width, 5, dropout=0.0), Contrast({"sst": mask})
        ),
    )


def paired(run: Run, task: str, how: str, mask: float = 0.3) -> MultitaskBert:
    """A task of pairs: by concatenation, by cosine, or by cosine and contrast."""
    make = partial(concatenation if how == "concatenation" else cosine, task)
    name = f"dao/{task}-{how}" + (f"-{mask:.1f}" if how == "contrastive" else "")
    return run.model(
        name,
        lambda: alone(run, task, make, Contrast({task: mask}) if how == "contrastive" else None),
    )


TABLE_1 = {"quora": "Paraphrase Detection", "sts": "Semantic Textual Similarity"}
CL_HEAD = "the paper names no head for pairs under contrast: the cosine, so that the row differs from the cosine's in the contrast alone"


def _single(task: str, how: str):
    settings = BEST_DEV | (
        {**CONTRAST, "mask": ".3 (section 4.3, for STS)"} if how == "contrastive" else PAIR
    )
    differs = {"concatenation": "", "cosine": COSINE, "contrastive": f"{CL_HEAD}; {COSINE}"}[how]
    recipe(
        f"{PAPER}/{task}-{how}",
        cell("T1", TABLE_1[task], how, KEYS[task]),
        needs=NEEDS[task],
        settings=settings,
        differs=differs,
    )(lambda run: answered(run, paired(run, task, how), {task: KEYS[task]}))


for _task in TABLE_1:
    for _how in ("concatenation", "cosine", "contrastive"):
        _single(_task, _how)


def _more_mask(mask: float):
    recipe(
        f"{PAPER}/sts-contrastive-{mask:.1f}",
        needs=NEEDS["sts"],
        settings={
            **CONTRAST,
            **BEST_DEV,
            "mask": f'{mask:.1f}: "as we increased the dropout" (section 4.3)',
        },
        differs=f"{CL_HEAD}; {COSINE}",
    )(lambda run: answered(run, paired(run, "sts", "contrastive", mask), {"sts": STS}))


for _mask in (0.5, 0.8):
    _more_mask(_mask)


@recipe(
    f"{PAPER}/quora-squared",
    needs=NEEDS["quora"],
    settings={
        **PAIR,
        **BEST_DEV,
        "loss": "squared distance of probability and label (section 4.3: tried, worse)",
    },
)
def squared(run: Run) -> dict:
    return answered(
        run,
        alone(run, "quora", lambda width: ConcatDiff(width, goal="paraphrase_mse", dropout=0.3)),
        {"quora": QUORA},
    )


@recipe(
    f"{PAPER}/sts-classes",
    needs=NEEDS["sts"],
    settings={
        **PAIR,
        **BEST_DEV,
        "loss": "cross-entropy (section 4.3: tried, worse)",
        "classes": "6, grades rounded: ours",
    },
)
def classes(run: Run) -> dict:
    return answered(
        run,
        alone(run, "sts", lambda width: ConcatDiff(width, 6, "classes", 0.3), rounded),
        {"sts": STS},
    )


# Section 4.3 and figure 4: dropout


GRID = [round(0.1 * i, 1) for i in range(10)]


def _dropout(mask: float):
    places = (cell("T1", "Sentiment Analysis", "contrastive", SST),) if mask == 0.8 else ()
    recipe(
        f"{PAPER}/dropout-{mask:.1f}",
        *places,
        needs=NEEDS["sst"],
        settings={**CONTRAST, **BEST_DEV, "mask": f"{mask:.1f} (figure 4)"},
        differs=MASK[0],
    )(lambda run: answered(run, masked(run, mask), {"sst": SST}))


for _mask in GRID:
    _dropout(_mask)


@recipe(
    f"{PAPER}/dropout-grid",
    row("S4.3", "SimCSE dropout grid best", dropout="best dropout", SST_dev_acc=SST),
    needs=NEEDS["sst"],
    settings={
        **CONTRAST,
        **BEST_DEV,
        "mask": "in steps of .1 (section 4.3), 0 to .9 (figure 4), the best on dev",
    },
    differs=f"{MASK[0]}; the best of ten on dev is reported on dev, as in the paper",
)
def dropout_grid(run: Run) -> dict:
    labels = run.dataset("sst", "dev").labels
    found = {mask: answered(run, masked(run, mask), {"sst": SST})[SST] for mask in GRID}
    scores = {mask: accuracy(answers.values, labels) for mask, answers in found.items()}
    best = max(GRID, key=scores.get)
    return {SST: found[best], "best dropout": best} | {
        f"SST dev acc at {mask:.1f}": score for mask, score in scores.items()
    }


# Tables 2 and 3, figure 6: one model for all


def share_steps(run: Run, share: float = 0.5) -> int | None:
    """Steps of a joint run that sees a share of Quora: as many as the scale has for half of it,
    more for more.
    """
    return (
        None if run.scale.task_steps is None else max(1, round(run.scale.task_steps * share / 0.5))
    )


def plain(model: MultitaskBert) -> Callable:
    """The sum of the losses, no surgery."""
    return sum_losses


def together(
    run: Run,
    name: str,
    backward: Callable,
    tasks: tuple[str, ...] = TASKS,
    share: float = 0.5,
    **phases,
) -> MultitaskBert:
    """Train the tasks of a row in one model; `backward(model)` makes the gradient of their losses."""
    return run.own(f"dao/{name}", lambda: _join(run, backward, tasks, share, phases))


def _join(run, backward, tasks, share, phases):
    model = heads_from(
        run,
        start(run),
        lambda width: {task: head for task, head in three(width).items() if task in tasks},
    )
    stretch = phase(run, *tasks, **{"steps": share_steps(run, share), **phases})
    return fine_tune(
        run,
        model,
        stretch,
        rows=rows(run),
        loss_fn=Contrast({"sst": 0.8}),
        backward=backward(model),
        best=False,
        resample="up",
        quora_fraction=share,
    )


@recipe(
    f"{PAPER}/sequential",
    cell("T2", "Sentiment Analysis (CL)", "sequential", SST),
    cell("T2", "Paraphrase Detection (C)", "sequential", QUORA),
    cell("T2", "Semantic Textual Similarity (CS)", "sequential", STS),
    cell("T2", "Overall", "sequential", OVERALL),
    needs=ALL,
    settings={
        **JOINT,
        "loss": "one task at a time",
        "rows": "SST, then Quora, then STS (table 2), all of each",
    },
    differs=COSINE,
)
def sequential(run: Run) -> dict:
    phases = [phase(run, task) for task in TASKS]

    def make():
        return fine_tune(
            run,
            heads_from(run, start(run), three),
            *phases,
            rows=rows(run),
            loss_fn=Contrast({"sst": 0.8}),
            best=False,
        )

    return with_mean(run, run.own("dao/sequential", make), OVERALL)


ROUND = "the paper says round robin and writes the sum of the losses: the sum, with one batch of each task a step"


@recipe(
    f"{PAPER}/multitask",
    cell("T2", "Sentiment Analysis (CL)", "multitask round robin", SST),
    cell("T2", "Paraphrase Detection (C)", "multitask round robin", QUORA),
    cell("T2", "Semantic Textual Similarity (CS)", "multitask round robin", STS),
    cell("T2", "Overall", "multitask round robin", OVERALL),
    needs=ALL,
    settings={
        **JOINT,
        "gradients": "PCGrad, summed (section 3.2)",
        "figure 6": "the losses of the training are kept with the result",
    },
    differs=f"{ROUND}; {COSINE}",
)
def multitask(run: Run) -> dict:
    made = []

    def surgery(model: MultitaskBert) -> PCGrad:
        made.append(PCGrad(model))
        return made[0]

    model = together(run, "multitask", surgery)
    # figure 6
    return (
        with_mean(run, model, OVERALL)
        | dict(zip(("train loss at first", "train loss at last"), loss_ends(run)))
        | {
            # a kept model is not trained again
            f"share of steps in conflict, {a} and {b}": pair.share
            for (a, b), pair in (conflict_summary(made[0].records) if made else {}).items()
        }
    )


def _quora_share(name: str, share: float):
    settings = {
        **JOINT,
        "rows": f"{share:.1f} of Quora (section 4.3), drawn anew each epoch",
        "steps": "in proportion to the share, as an epoch is",
        "gradients": "PCGrad, summed",
    }
    recipe(f"{PAPER}/multitask-{name}", needs=ALL, settings=settings, differs=f"{ROUND}; {COSINE}")(
        lambda run: with_mean(run, together(run, f"multitask-{name}", PCGrad, share=share), OVERALL)
    )


for _name, _share in (("tenth", 0.1), ("fifth", 0.2), ("whole", 1.0)):  # half: multitask itself
    _quora_share(_name, _share)

TABLE_3 = {"sst": "Sentiment Analysis", "quora": "Paraphrase Detection (C)", "sts": "STS (CS)"}
COLUMN = {"sst": "without L_sst", "quora": "without L_p", "sts": "without L_sts"}


def _without(removed: str):
    kept = tuple(task for task in TASKS if task != removed)
    places = [cell("T3", TABLE_3[task], COLUMN[removed], KEYS[task]) for task in kept]
    recipe(
        f"{PAPER}/without-{removed}",
        *places,
        needs=ALL,
        settings={**JOINT, "loss": "the sum of the other two", "gradients": "PCGrad, summed"},
        differs=f"{ROUND}; {COSINE}",
    )(
        lambda run: answered(
            run,
            together(run, f"without-{removed}", PCGrad, kept),
            {task: KEYS[task] for task in kept},
        )
    )


for _task in TASKS:
    _without(_task)


# Table 4: three rows, all from the train sets


# ids in the course's files
EXAMPLES = {
    "sst": "792eb1bcbfc68200921fe37d8",
    "quora": "70eaaf2b039aa2f228c303f38",
    "sts": "299789f0509ba3ef1d808b166",
}


def example(run: Run, task: str) -> Dataset:
    """Find the row of table 4. Raises ValueError where the train set is not the course's."""
    data = labelled(f"{task}/train", run.data)
    if EXAMPLES[task] not in data.ids:
        raise ValueError(
            f"{task} train: expected the row {EXAMPLES[task]} of the course's file, got {len(data)} others"
        )
    return data.subset([data.ids.index(EXAMPLES[task])])


def said(run: Run, task: str, **models: MultitaskBert) -> dict[str, float]:
    """Label of an example, and what each model says: class, probability or grade."""
    data = example(run, task)
    answers = {"gold": data.labels[0]}
    for name, model in models.items():
        # the baseline is printed as an answer
        answers[name] = (
            model.predict(task, data).item() if name == "baseline" else told(model, task, data)
        )
    return {f"{task} {name}": float(x) for name, x in answers.items()}


@recipe(
    f"{PAPER}/examples",
    row("T4", "Extreme Ops", gold="sst gold", baseline="sst baseline", CL="sst CL"),
    row(
        "T4",
        "UK CS university pair",
        gold="quora gold",
        baseline="quora baseline",
        concat="quora concat",
        CL="quora CL",
    ),
    row(
        "T4",
        "Aleppo pair",
        gold="sts gold",
        baseline="sts baseline",
        cosine="sts cosine",
        CL="sts CL",
    ),
    examples=True,
    needs=ALL,
    settings={
        **BEST_DEV,
        "models": "those of table 1",
        "rows": "all three stand in the train sets of the course",
    },
    differs=f"one row tells nothing of a method; {CL_HEAD}; {COSINE}",
)
def examples(run: Run) -> dict:
    base = leaderboard(run)
    return (
        said(run, "sst", baseline=base, CL=masked(run, 0.8))
        | said(
            run,
            "quora",
            baseline=base,
            concat=paired(run, "quora", "concatenation"),
            CL=paired(run, "quora", "contrastive"),
        )
        | said(
            run,
            "sts",
            baseline=base,
            cosine=paired(run, "sts", "cosine"),
            CL=paired(run, "sts", "contrastive"),
        )
    )


# Section 4.3: times, as ratios


def clock() -> float:
    """Seconds: of the processor, which others cannot take; with a GPU, of the wall."""
    return time.perf_counter() if choose_device().type == "cuda" else time.process_time()


def step_seconds(
    run: Run, tasks: tuple[str, ...], mode: str = "full", backward: Callable = plain
) -> float:
    """Time a step of training: the median of twelve, without the first two."""
    model = heads_from(run, start(run), three)
    model.set_mode(mode)
    sets = {task: run.dataset(task, "train") for task in tasks}
    sampler = TaskSampler(
        {task: len(data) for task, data in sets.items()},
        rows(run),
        "joint",
        steps=12,
        seed=run.seed,
    )
    optimizer, times = FusedAdamW(parameter_groups(model, 0.0, 1e-5), lr=1e-5), [clock()]
    batches = task_batches(sets, model.encoder.tokenizer, sampler, model.encoder.max_length)
    for _ in steps(
        model.train(),
        batches,
        Contrast({"sst": 0.8}),
        optimizer,
        backward(model),
        take_step=DeviceStep(precision=run.scale.precision),
    ):
        times.append(clock())
    return median(b - a for a, b in list(zip(times, times[1:]))[2:])


@recipe(
    f"{PAPER}/times",
    needs=ALL,
    settings={
        **JOINT,
        "printed, full over frozen": "SST 122/63 s, Quora 2497/872 s, STS 156/127 s, all together 2.3/1.1 h an epoch (section 4.3)",
        "printed, baselines": "full over frozen SST 1202/306 s, CFIMDB 1234/334 s (section 4.3)",
        "printed, together over each alone": "2.3 h / (122 + 2497 + 156 s), with SST and STS drawn again",
        "measured": "median of ten steps",
        "clipping": "none: the clock alone is read",
    },
    differs="seconds a step, not an epoch: ours has a tenth of the paper's Quora; contrast on SST alone",
)
def times(run: Run) -> dict:
    full, frozen = (
        {task: step_seconds(run, (task,), mode) for task in TASKS} for mode in ("full", "frozen")
    )
    surgery = {mode: step_seconds(run, TASKS, mode, PCGrad) for mode in ("full", "frozen")}
    return {f"{task} full over frozen": full[task] / frozen[task] for task in TASKS} | {
        "together full over frozen": surgery["full"] / surgery["frozen"],
        "PCGrad over each alone": surgery["full"] / sum(full.values()),
        "PCGrad over plain sum": surgery["full"] / step_seconds(run, TASKS),
    }


# Controls that the paper lacks


def equal_size(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divide each loss by its own size, so that each is 1: the gradient is that of its logarithm."""
    return {task: loss / loss.detach().clamp_min(1e-6) for task, loss in losses.items()}


def scaled(surgery: Callable[[MultitaskBert], Callable]) -> Callable[[MultitaskBert], Callable]:
    """Scale the losses before their gradients are combined."""

    def make(model: MultitaskBert) -> Callable:
        combine = surgery(model)
        return lambda losses: combine(equal_size(losses))

    return make


BACKWARDS = {
    "sum": (plain, "the plain sum"),
    "scaled": (scaled(plain), "the sum of losses divided by their own size"),
    "scaled-pcgrad": (scaled(PCGrad), "PCGrad on losses divided by their own size"),
    "gradvac": (GradVac, "GradVac, rate of the targets .01 (Wang et al. 2020)"),
    "gradvac-violations": (
        partial(GradVac, update="violations"),
        "GradVac as in the port that the paper names: only targets that were missed move",
    ),
}


def _joint(name: str):
    backward, words = BACKWARDS[name]
    recipe(
        f"control/joint-{name}",
        needs=ALL,
        settings={**JOINT, "gradients": words},
        differs="not in the paper: table 2's multitask row with other gradients",
    )(lambda run: with_mean(run, together(run, f"joint-{name}", backward), OVERALL))


for _name in BACKWARDS:
    _joint(_name)


@recipe(
    "control/joint-round-robin",
    needs=ALL,
    settings={
        **JOINT,
        "rows": "one task a step, in turn; three times the steps",
        "gradients": "of one task: no surgery",
    },
    differs="not in the paper: round robin as the word says",
)
def round_robin(run: Run) -> dict:
    s = run.scale.task_steps
    return with_mean(
        run, together(run, "round-robin", plain, strategy="round_robin", steps=s and 3 * s), OVERALL
    )


@recipe(
    "control/multitask-same-tenth",
    needs=ALL,
    settings={
        **JOINT,
        "rows": "one tenth of Quora, always the same rows",
        "steps": "as with half of Quora",
        "gradients": "PCGrad, summed",
    },
    differs="not in the paper: fewer questions without a shorter training",
)
def same_tenth(run: Run) -> dict:
    sets = {task: run.dataset(task, "train") for task in TASKS}
    sets["quora"] = sets["quora"].draw(max(1, len(sets["quora"]) // 10), seeded("tenth", run.seed))
    model = heads_from(run, start(run), three)
    # the paper's ten epochs of one half
    length = share_steps(run) or 10 * -(-len(run.dataset("quora", "train")) // (2 * rows(run)))
    stretch = replace(phase(run, *TASKS, steps=length), source="tenth")
    return with_mean(
        run,
        fine_tune(
            run,
            model,
            stretch,
            rows=rows(run),
            loss_fn=Contrast({"sst": 0.8}),
            backward=PCGrad(model),
            best=False,
            sources={"tenth": sets},
        ),
        OVERALL,
    )


@recipe(
    "control/sst-dropout-alone",
    needs=NEEDS["sst"],
    settings={
        **BASE,
        **BEST_DEV,
        "dropout before a head": ".8, as the best of figure 4",
        "contrast": "none",
    },
    differs="not in the paper: figure 4's best dropout without the contrast",
)
def dropout_alone(run: Run) -> dict:
    return answered(
        run, alone(run, "sst", lambda width: LinearHead(width, 5, dropout=0.8)), {"sst": SST}
    )


def _layers(mask: float):
    recipe(
        f"control/dropout-layers-{mask:.1f}",
        needs=NEEDS["sst"],
        settings={**CONTRAST, **BEST_DEV, "mask": f"{mask:.1f}, also in all layers of the encoder"},
        differs="the other reading of figure 4: the dropout of every layer",
    )(
        lambda run: answered(
            run,
            alone(
                run,
                "sst",
                lambda width: LinearHead(width, 5, dropout=0.0),
                Contrast({"sst": mask}),
                mask,
            ),
            {"sst": SST},
        )
    )


for _mask in (0.3, 0.8):
    _layers(_mask)


@recipe(
    "control/quora-plain-cosine",
    needs=NEEDS["quora"],
    settings={**PAIR, **BEST_DEV, "head": "cos(u, v) without scale and shift"},
    differs="not in the paper: what a cosine without a scale can say, probabilities of .27 to .73",
)
def plain_cosine(run: Run) -> dict:
    return answered(
        run,
        alone(run, "quora", lambda width: CosineHead("paraphrase", 1.0, 0.0, False)),
        {"quora": QUORA},
    )


not_run(
    PAPER,
    "S4.3",
    "search over rates, dropout and batch sizes of the baseline",
    figures=False,
    why="the paper prints the values that were best, and neither the grid nor the other scores",
)
not_run(
    PAPER,
    "F6",
    "loss over epochs",
    figures=False,
    why="a curve without a figure: the losses are kept with the result of dao-mehta-tian/multitask",
)


# What the paper says of its rows


def _gap(*places: tuple[str, str, str]) -> float:
    """The difference of two printed cells: (table, row, metric) twice."""
    better, worse = (published()[(PAPER, *place)].value for place in places)
    return round(better - worse, 4)


T1, T2 = (
    {task: (table, name) for task, name in zip(TASKS, names)}
    for table, names in (
        ("T1", ("Sentiment Analysis", *TABLE_1.values())),
        (
            "T2",
            (
                "Sentiment Analysis (CL)",
                "Paraphrase Detection (C)",
                "Semantic Textual Similarity (CS)",
            ),
        ),
    )
)
BEST = {"sst": "dropout-0.8", "quora": "quora-concatenation", "sts": "sts-cosine"}  # of table 1
METRIC = {"sst": "contrastive", "quora": "concatenation", "sts": "cosine"}
JOINED = {task: (*T2[task], "multitask round robin") for task in TASKS} | {
    "all": ("T2", "Overall", "multitask round robin")
}
IN_ORDER = {task: (*place[:2], "sequential") for task, place in JOINED.items()}
KEY = {**KEYS, "all": OVERALL}
WORD = {
    "sst": "sentiment",
    "quora": "paraphrase",
    "sts": "similarity",
    "all": "the mean of the tasks",
}


def _says(text: str, better: str, worse: str, key: str, *places: tuple[str, str, str]) -> None:
    """Register a sentence on two rows; names without a slash are rows of this paper."""
    better, worse = (name if "/" in name else f"{PAPER}/{name}" for name in (better, worse))
    claim(text, better, worse, key, _gap(*places) if places else None)


_says(
    "Contrast beats the frozen baseline on sentiment",
    BEST["sst"],
    "leaderboard",
    SST,
    (*T1["sst"], "contrastive"),
    (*T1["sst"], "baseline"),
)
_says(
    "Contrast beats plain fine-tuning on sentiment (the paper compares with frozen BERT alone)",
    BEST["sst"],
    "sst-full",
    SST,
    (*T1["sst"], "contrastive"),
    ("S4.4", "SST baseline", "finetune dev acc"),
)
_says(
    "The contrast helps sentiment, not its dropout", BEST["sst"], "control/sst-dropout-alone", SST
)
_says(
    "Fine-tuning beats a frozen encoder on SST",
    "sst-full",
    "sst-frozen",
    SST,
    ("S4.4", "SST baseline", "finetune dev acc"),
    ("S4.4", "SST baseline", "pretrain dev acc"),
)
_says(
    "Fine-tuning beats a frozen encoder on CFIMDB",
    "cfimdb-full",
    "cfimdb-frozen",
    CFIMDB,
    ("S4.4", "CFIMDB baseline", "finetune dev acc"),
    ("S4.4", "CFIMDB baseline", "pretrain dev acc"),
)
_says("Accuracy rises with dropout until .8", BEST["sst"], "dropout-0.0", SST)
_says("Accuracy falls behind .8", BEST["sst"], "dropout-0.9", SST)
_says(
    "A dropout of .8 is meant for the vectors, not for all layers",
    BEST["sst"],
    "control/dropout-layers-0.8",
    SST,
)

for _task, _better, _worse in (
    ("quora", "concatenation", "cosine"),
    ("quora", "concatenation", "contrastive"),
    ("quora", "cosine", "contrastive"),
    ("sts", "cosine", "concatenation"),
    ("sts", "cosine", "contrastive"),
    ("sts", "concatenation", "contrastive"),
):
    _says(
        f"{WORD[_task].capitalize()}: {_better} beats {_worse}",
        f"{_task}-{_better}",
        f"{_task}-{_worse}",
        KEYS[_task],
        (*T1[_task], _better),
        (*T1[_task], _worse),
    )
_says(
    "Similarity: more dropout is worse under contrast",
    "sts-contrastive",
    "sts-contrastive-0.8",
    STS,
)
_says(
    "Paraphrase: the log cost beats the squared error",
    "quora-concatenation",
    "quora-squared",
    QUORA,
)
_says("Similarity: the squared error beats cross-entropy", "sts-concatenation", "sts-classes", STS)
_says("A cosine needs a scale", "quora-cosine", "control/quora-plain-cosine", QUORA)

for _task in ("sst", "sts", "all"):
    _says(
        f"Together beats one after the other in {WORD[_task]}",
        "multitask",
        "sequential",
        KEY[_task],
        JOINED[_task],
        IN_ORDER[_task],
    )
_says(
    "One after the other beats together in paraphrase",
    "sequential",
    "multitask",
    QUORA,
    IN_ORDER["quora"],
    JOINED["quora"],
)
_says(
    "Together beats the baseline in the mean of the tasks",
    "multitask",
    "leaderboard",
    OVERALL,
    JOINED["all"],
    ("S4.4", "Leaderboard baseline", "overall"),
)
for _task in TASKS:
    _says(
        f"A model of its own beats the shared one in {WORD[_task]}",
        BEST[_task],
        "multitask",
        KEYS[_task],
        (*T1[_task], METRIC[_task]),
        JOINED[_task],
    )
for _name in ("tenth", "fifth", "whole"):
    _says(f"Half of Quora beats a share of it: {_name}", "multitask", f"multitask-{_name}", OVERALL)
_says(
    "More questions help, not only more steps", "multitask", "control/multitask-same-tenth", OVERALL
)

for _removed in TASKS:
    for _task in TASKS:
        if _task != _removed:
            _says(
                f"Without the loss of {WORD[_removed]} {WORD[_task]} is worse",
                "multitask",
                f"without-{_removed}",
                KEYS[_task],
                JOINED[_task],
                ("T3", TABLE_3[_task], COLUMN[_removed]),
            )
_says(
    "Similarity misses paraphrase more than sentiment",
    "without-sst",
    "without-quora",
    STS,
    ("T3", TABLE_3["sts"], COLUMN["sst"]),
    ("T3", TABLE_3["sts"], COLUMN["quora"]),
)
_says(
    "Paraphrase misses similarity more than sentiment",
    "without-sst",
    "without-sts",
    QUORA,
    ("T3", TABLE_3["quora"], COLUMN["sst"]),
    ("T3", TABLE_3["quora"], COLUMN["sts"]),
)

for _task in ("all", *TASKS):
    _says(
        f"PCGrad beats the plain sum in {WORD[_task]}", "multitask", "control/joint-sum", KEY[_task]
    )
for _name, _words in (
    ("scaled", "the sum of scaled losses"),
    ("scaled-pcgrad", "PCGrad on scaled losses"),
    ("gradvac", "GradVac"),
    ("gradvac-violations", "GradVac as ported"),
    ("round-robin", "one task a step"),
):
    _says(
        f"PCGrad beats {_words} in the mean of the tasks",
        "multitask",
        f"control/joint-{_name}",
        OVERALL,
    )
_says(
    "Even the plain sum beats one after the other in the mean of the tasks",
    "control/joint-sum",
    "sequential",
    OVERALL,
)
