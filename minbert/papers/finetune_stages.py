"""Stages and questions that recipes share once labels teach: heads, phases, dev sets."""

from __future__ import annotations

__all__ = [
    "TASKS",
    "KEYS",
    "pooled_base",
    "heads_from",
    "fine_tune",
    "phase",
    "divisible",
    "passes",
    "loss_ends",
    "answered",
    "with_mean",
    "rows_with",
    "example",
    "told",
]

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import fmean

import torch

from ..bregman import BregmanProximal
from ..data import Dataset
from ..evaluate import evaluate_tasks
from ..finetune import FitResult, Phase, TrainConfig, fit, phase_sampler
from ..heads import MultitaskBert, multitask_loss
from ..sentence import SentenceEncoder
from ..significance import SCORES
from ..smart_penalty import SmartPenalty
from ..training import sum_losses
from .run import EVERY, Answers, Run, labelled, look_every

TASKS = ("sst", "quora", "sts")  # the three of the course
TOKENS = 20  # of a sentence of these sets, about
METRIC = {"sst": "accuracy", "quora": "accuracy", "sts": "pearson", "cfimdb": "accuracy"}


def pooled_base(run: Run) -> SentenceEncoder:
    """Load the encoder for papers that read the pooler. Below the paper's scale it gives the mean:
    the small encoders have no trained pooler.
    """
    return run.base("pooler" if run.scale.name == "paper" else "mean")


def heads_from(run: Run, encoder: SentenceEncoder, make: Callable) -> MultitaskBert:
    """Put fresh heads on an encoder; `make(width)` gives them, drawn from the run's seed."""
    torch.manual_seed(run.seed)
    return MultitaskBert(encoder, make(encoder.width)).to(encoder.device)


def phase(
    run: Run,
    *tasks: str,
    mode: str = "full",
    strategy: str = "joint",
    epochs: int = 10,
    lr: float | None = None,
    steps: int | None = None,
) -> Phase:
    """A stretch of training at the run's scale: its steps where it has some, else the paper's
    epochs.
    """
    s = run.scale
    usual = (s.task_steps if mode == "full" else s.head_steps) if steps is None else steps
    return Phase(
        tasks,
        strategy,
        epochs if usual is None else 1,
        usual,
        mode,
        lr or (s.lr if mode == "full" else s.head_lr),
    )


def fine_tune(
    run: Run,
    model: MultitaskBert,
    *phases: Phase,
    rows: int | dict[str, int] | None = None,
    weights: dict[str, float] | None = None,
    weight_decay: float = 0.0,
    watch: tuple[str, ...] = (),
    loss_fn: Callable | None = None,
    backward: Callable = sum_losses,
    sources: dict | None = None,
    best: bool = True,
    **settings,
) -> MultitaskBert:
    """Train through phases and give the model that was best on the dev sets of `watch` (none: of
    the tasks trained), or the last one.

    The model of the start is a candidate. The run notes the values of each phase, and at which
    steps dev was scored with what mean.
    Dev is scored after every `look_every` steps, at the end of each epoch where a phase has no
    steps of its own, or as `eval_every` says.
    """
    tasks = tuple(dict.fromkeys(task for p in phases for task in p.tasks))
    train, dev = (
        {t: run.dataset(t, split) for t in names}
        for names, split in ((tasks, "train"), (tuple(dict.fromkeys((*watch, *tasks))), "dev"))
    )

    def sets_of(p):
        return train if p.source is None else sources[p.source]

    rows, pieces = rows or run.scale.batch, run.pieces if divisible(loss_fn, backward) else 1
    if best and all(p.steps for p in phases):
        settings = {"eval_every": look_every(min(p.steps for p in phases))} | settings
    config = TrainConfig(
        tasks,
        batch_size=_cut(rows, pieces),
        accumulate=pieces,
        loss_weights=weights,
        weight_decay=weight_decay,
        precision=run.scale.precision,
        seed=run.seed,
        phases=phases,
        **settings,
    )
    if run.counted is not None:
        return _count(run, model, sets_of, config, loss_fn, backward)
    if run.watch:
        loss_fn, config = (
            _watched(run, loss_fn or partial(multitask_loss, weights=weights), pieces),
            replace(config, loss_weights=None),
        )
    start = _Start(model, dev) if best else None
    with tempfile.TemporaryDirectory(prefix="minbert-") as folder:
        result = fit(
            model,
            train,
            dev,
            config,
            folder,
            progress=bool(run.watch),
            loss_fn=loss_fn,
            backward=backward,
            sources=sources,
        )
        run.curve += [
            _point(line) for line in result.log if "dev" in line or line["step"] % EVERY == 0
        ]
        _note(run, config, rows, sets_of, result, start)
        if best and result.best > start.mean:
            return MultitaskBert.from_pretrained(result.folder / "model")
        return start.restored(model) if best else model.eval()


class _Start:
    """Weights and mean dev score of a model before it is trained, as `fit` computes the mean."""

    def __init__(self, model: MultitaskBert, dev: dict[str, Dataset]):
        scores = [result.value for result in evaluate_tasks(model, dev, resamples=0).values()]
        self.mean = sum(-1.0 if math.isnan(s) else s for s in scores) / len(scores)
        self.weights = {name: x.detach().cpu().clone() for name, x in model.state_dict().items()}

    def restored(self, model: MultitaskBert) -> MultitaskBert:
        """Give the model its weights back."""
        model.load_state_dict(self.weights)
        model.set_mode("full")
        return model.eval()


def _note(
    run: Run,
    config: TrainConfig,
    rows: int | dict[str, int],
    sets_of: Callable,
    result: FitResult,
    start: _Start | None,
) -> None:
    """Note the values of each phase of a training, and the mean dev score of each evaluation."""
    for p in config.phases:
        run.note(
            " ".join(p.tasks),
            mode=p.mode,
            batch=rows,
            steps=phase_sampler(p, sets_of(p), config)[1],
            rate=p.lr,
            sampling=p.strategy,
            warmup=config.warmup,
            decay=config.decay,
            weight_decay=config.weight_decay,
        )
    looks = {0: start.mean} if start else {}
    looks |= {line["step"] + 1: line["mean"] for line in result.log if "dev" in line}
    run.ran[-1] |= {
        "looks": list(looks),
        "dev": list(looks.values()),
        "kept": max(looks, key=looks.get) if start else max(looks),
    }


def divisible(loss_fn: Callable | None, backward: Callable) -> bool:
    """Tell whether a step may be taken in parts: not where rows of a batch are compared with each
    other, nor where gradients of tasks are.
    """
    return backward is sum_losses and not getattr(loss_fn, "whole", False)


def _cut(rows, pieces):
    """Divide the rows of a step."""

    def part(n):
        return max(1, n // pieces)

    return {task: part(n) for task, n in rows.items()} if isinstance(rows, dict) else part(rows)


def passes(loss_fn: Callable | None, task: str) -> tuple[float, float]:
    """How often a loss runs the encoder, a plain one being 1; and how many of these runs wait for
    the backward pass.

    A backward pass costs two forward ones, without the gradient of weights one. A proximal penalty is one
    forward pass. A search on word vectors is a forward pass
    and a gradient of its input each move, and the loss there a whole pass: 8/3 for one move. What
    looks at sentence vectors runs the head alone.
    """
    if hasattr(loss_fn, "passes"):
        return loss_fn.passes(task)
    penalties = getattr(loss_fn, "penalties", ())
    searches = [p for p in penalties if isinstance(p, SmartPenalty) and p.level == "tokens"]
    proximal = [p for p in penalties if isinstance(p, BregmanProximal)]
    return 1 + len(proximal) / 3 + sum(1 + 2 / 3 * p.attack.moves for p in searches), 1.0 + len(
        searches
    )


def _count(run, model, sets_of, config, loss_fn, backward):
    """Note the work of every phase; the passes are the mean over its rows."""
    for p in config.phases:
        sets = sets_of(p)
        steps = phase_sampler(p, sets, config)[1]
        rows = {
            t: config.batch_size.get(t, 32)
            if isinstance(config.batch_size, dict)
            else config.batch_size
            for t in p.tasks
        }
        sides = {t: 1 if sets[t].sentences2 is None else 2 for t in p.tasks}
        share = 1 if p.strategy == "joint" else 1 / len(p.tasks)
        sentences = sum(rows[t] * sides[t] for t in p.tasks)
        again, held = (
            sum(rows[t] * sides[t] * passes(loss_fn, t)[k] for t in p.tasks) / sentences
            for k in (0, 1)
        )
        run.curve.append(
            {"stage": "tasks", "step": 0, "loss": 0.0, "dev": dict.fromkeys(p.tasks, 0.0)}
        )
        run.counts(
            " ".join(p.tasks),
            steps,
            round(share * sentences),
            TOKENS if "cfimdb" not in p.tasks else 200,
            p.mode == "full",
            passes=again,
            held=held,
            parts=divisible(loss_fn, backward),
        )
    return model.eval()


def _watched(run, loss_fn, pieces):
    """Let somebody look at the losses of a step, of the first of its pieces; nobody waits for the
    device before they are drawn.
    """
    steps = count()

    def watched(model, batch):
        losses = loss_fn(model, batch)
        if (n := next(steps)) % pieces == 0:
            run.watch("tasks", n // pieces, sum(x.detach() for x in losses.values()))
        return losses

    return watched


def _point(line: dict) -> dict:
    """A line of the log as a point of the curve; answers that were all equal have no correlation,
    and JSON has no NaN.
    """
    kept = {k: line[k] for k in ("step", "loss") if k in line}
    dev = {
        task: None if math.isnan(score) else score for task, score in line.get("dev", {}).items()
    }
    return {"stage": "tasks", **kept, **({"dev": dev} if dev else {})}


def loss_ends(run: Run) -> tuple[float, float]:
    """Mean loss of fine-tuning over the first and the last tenth of its points on the curve; an
    error where it has none.
    """
    losses = [point["loss"] for point in run.curve if point["stage"] == "tasks" and "loss" in point]
    tenth = max(1, len(losses) // 10)
    return fmean(losses[:tenth]), fmean(losses[-tenth:])


KEYS = {"sst": "SST dev acc", "quora": "Quora dev acc", "sts": "STS dev pearson"}


def answered(run: Run, model: MultitaskBert, keys: dict[str, str] = KEYS) -> dict[str, Answers]:
    """Ask the dev sets: task -> name of the measurement. Where work is only counted, the labels
    stand in.
    """

    def say(task, data):
        return data.labels if run.counted is not None else model.predict(task, data).tolist()

    return {
        key: Answers(run.part(task, "dev"), METRIC[task], say(task, run.dataset(task, "dev")))
        for task, key in keys.items()
    }


def with_mean(run: Run, model: MultitaskBert, name: str) -> dict[str, Answers | float]:
    """Ask the three dev sets, and give under `name` the mean of their scores; answers that are all
    equal have correlation 0.
    """
    found = answered(run, model)
    scores = [
        SCORES[a.metric](a.values, labelled(a.dataset, run.data).labels) for a in found.values()
    ]
    return found | {name: sum(0.0 if math.isnan(s) else s for s in scores) / len(scores)}


def rows_with(data: Dataset, words: tuple[str, ...]) -> list[int]:
    """Number the rows whose text, in lower case, has all of these words."""
    texts = [
        " ".join(parts).lower()
        for parts in zip(data.sentences, data.sentences2 or [""] * len(data))
    ]
    return [i for i, text in enumerate(texts) if all(word in text for word in words)]


def example(task: str, words: tuple[str, ...], data: str | None) -> Dataset:  # one row
    """Find a row of a whole dev set by some words. Raises ValueError unless there is one."""
    dev = labelled(f"{task}/dev", data)
    rows = rows_with(dev, words)
    if len(rows) != 1:
        raise ValueError(
            f"{task}/dev: expected one row with the words {', '.join(words)}, got {len(rows)}"
        )
    return dev.subset(rows)


def told(model: MultitaskBert, task: str, row: Dataset) -> float:
    """Say what tables of examples print: a class, the probability of a yes, or a grade."""
    return (
        model.predict(task, row, raw=True).sigmoid()
        if task == "quora"
        else model.predict(task, row)
    ).item()
