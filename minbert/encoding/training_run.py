"""What `minbert.finetune.fit` needs beside the training loop: the settings of a run, its checks, its
records and checkpoints, and the way it stops.
"""

__all__ = [
    "SCHEDULES",
    "Phase",
    "TrainConfig",
    "FitResult",
    "RunState",
    "RunContext",
    "default_learning_rate",
    "check_run",
    "precision_of",
    "compile_layers",
    "adapt_to_device",
    "run_identity",
    "evaluates",
    "keep_record",
    "save_run",
    "stop_if_asked",
    "progress_bar",
]

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..core.batch_sampling import SAMPLING_STRATEGIES
from ..core.config_checks import check_choices, check_names, check_positive, check_rates
from ..core.devices import PRECISIONS, LossScale, half_type
from ..core.eval_mode import compile_parts
from ..core.graceful_stop import Stopped
from ..core.module_io import saved_name
from ..core.run_dir import RunFolder
from ..datasets.label_checks import check_train_set
from .dense_layers import Dense, maps_of
from .run_fingerprint import encoder_fingerprint, rows_checksum
from .sentence_transformers_folder import check_kept

SCHEDULES = ("sequential", *SAMPLING_STRATEGIES)


@dataclass(frozen=True)
class Phase:
    """One stretch of a run, with its tasks, its sampling strategy and its learning rate."""

    tasks: tuple[str, ...]  # in the order of round_robin
    strategy: str = "joint"  # one of SAMPLING_STRATEGIES
    epochs: int = 1  # see `minbert.sampling.epoch_steps`
    steps: int | None = None  # optimizer steps of the phase; None: as many as the epochs need
    mode: str = "full"  # "frozen": only the heads are trained
    lr: float = 1e-5  # highest learning rate; CS224N default of full fine-tuning
    head_lr: float | None = None  # learning rate of the heads; None: `lr`
    source: str | None = None  # which of the `sources` of `fit` is trained on; None: the train sets


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run. The defaults fine-tune a published BERT.

    Raises ValueError for a setting out of range.
    """

    # the open datasets, which are part of the package
    tasks: tuple[str, ...] = ("sentiment", "inference", "similarity")
    schedule: str = "joint"  # one of SCHEDULES
    epochs: int = 1  # sequential: of each task
    steps: int | None = None  # optimizer steps (sequential: of each task); None: by epochs
    # examples of a task in a step, all processes together (BERT-CF report: 32, quora 96)
    batch_size: int | dict[str, int] = 32
    loss_weights: dict[str, float] | None = None  # None: 1 each. BERT-CF report: 5, 20 and 1
    mode: str = "full"  # "frozen": only the heads are trained
    lr: float | None = None  # None: 1e-5 full, 1e-3 frozen (CS224N defaults)
    head_lr: float | None = None  # learning rate of the heads in full mode; None: as the rest
    warmup: float = 0.1  # fraction of the steps in which the learning rate rises (BERT release)
    decay: bool = True  # then linearly to 0 (BERT release); False: constant
    weight_decay: float = 0.0  # Foley-Cox and Wendt (5.3.2): best of their grid. BERT release: 0.01
    max_grad_norm: float | None = 1.0  # BERT release
    precision: str = "fp32"  # or "bf16", where the device has it; "fp16" on a GPU
    compile: bool = False  # torch.compile for each layer, on a GPU only
    seed: int = 11711  # CS224N default
    eval_every: int | None = None  # steps between evaluations; None: at the end of each epoch
    save_every: int | None = None  # steps between checkpoints; None: at each evaluation
    quora_fraction: float = 1.0  # fraction of Quora used in an epoch, drawn again each time
    resample: str | None = None  # "up" or "truncate": make the tasks equally long
    accumulate: int = 1  # batches in a step
    # batches sorted by length together; None: 16 on a GPU, which computes padding, else 1
    length_bucket: int | None = None
    phases: tuple[Phase, ...] = ()  # the phases of the run, instead of `schedule`, `steps`, `mode`

    def __post_init__(self):
        check_choices(self, schedule=SCHEDULES, precision=PRECISIONS)
        check_positive(
            self, "eval_every", "save_every", "batch_size", "accumulate", "length_bucket"
        )
        check_rates(self, "weight_decay", "max_grad_norm", "warmup", "quora_fraction")
        for part in (self, *self.phases):
            check_names(part, "tasks")
            check_choices(part, mode=("full", "frozen"))
            check_positive(part, "epochs", "steps")
            check_rates(part, "lr", "head_lr")
        if not (0 <= self.warmup <= 1 and 0 < self.quora_fraction <= 1):
            raise ValueError(
                f"expected warmup in [0, 1] and quora_fraction in (0, 1], "
                f"got {self.warmup} and {self.quora_fraction}"
            )

    def plan(self) -> tuple[Phase, ...]:  # in order
        """List the phases of the run."""
        if self.phases:
            return tuple(self.phases)
        lr = {"full": 1e-5, "frozen": 1e-3}[self.mode] if self.lr is None else self.lr
        rest = (self.epochs, self.steps, self.mode, lr, self.head_lr)
        if self.schedule == "sequential":
            return tuple(Phase((task,), "joint", *rest) for task in self.tasks)
        return (Phase(tuple(self.tasks), self.schedule, *rest),)


def default_learning_rate(
    width: int,  # D of the encoder
) -> float:
    """Choose a learning rate for full fine-tuning: 5e-4 up to D = 256, 1e-4 up to 384, else 1e-5."""
    if width <= 256:
        return 5e-4
    return 1e-4 if width <= 384 else 1e-5


@dataclass
class RunState:
    """The position of a run, which is part of its checkpoint."""

    phase: int = 0  # number of the phase
    first: int = 0  # step at which the phase began
    best: float | None = None  # highest mean of the dev scores
    best_step: int | None = None  # step after which it was measured


@dataclass(frozen=True)
class FitResult:
    """The results of a run."""

    folder: Path  # contains model/, log.jsonl and the checkpoint
    log: list[dict]  # every line of the log, also from before an interruption
    best: float  # highest mean of the dev scores
    best_step: int  # step after which it was measured


class RunContext(NamedTuple):
    """What all steps of a run share."""

    model: Any  # MultitaskBert
    dev_sets: dict  # task -> dev split
    config: TrainConfig
    files: RunFolder
    at: RunState
    evaluate: Callable  # (model, datasets, resamples=0) -> task -> result with `.value`


def check_run(model, config: TrainConfig, sources, dev_sets, loss_fn, backward) -> None:
    """Refuse a run that lacks datasets or labels, or would ignore a setting. Raises ValueError."""
    for name, sets in {"train_sets": sources[None], "dev_sets": dev_sets}.items():
        if not isinstance(sets, Mapping):
            raise ValueError(
                f"expected a dict from task to Dataset as {name}, got {type(sets).__name__}"
            )
    for phase in config.plan():
        _check_phase(phase, model, sources, dev_sets, loss_fn is None)
    check_kept(model.encoder.pooling)
    for part in (*model.heads.values(), *maps_of(model.encoder.transform)):
        if type(part) is not Dense:  # a subclass would be saved as a class of the user
            saved_name(part)  # what cannot be saved is refused before it is trained
    if isinstance(config.batch_size, dict):
        trained = {task for phase in config.plan() for task in phase.tasks}
        if unknown := {*config.batch_size} - trained:
            raise ValueError(
                "expected batch sizes of tasks that are trained, got one of "
                f"{', '.join(sorted(unknown))}"
            )
    if config.loss_weights and loss_fn is not None:
        raise ValueError(
            f"expected no loss_weights beside a loss_fn of your own, got {config.loss_weights}"
        )
    rows = getattr(backward, "rows", None)  # PCGrad and GradVac store the gradients of tasks there
    alone = hasattr(rows, "accelerator") and rows.accelerator is None
    if alone and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            f"expected {type(backward).__name__}(..., accelerator=...) with several processes, got "
            "None: each would operate on its own part of the batch"
        )


def _check_phase(phase, model, sources, dev_sets, usual_loss):
    """Check that the datasets of a phase are there, and that its heads accept their labels."""
    if phase.source not in sources:
        raise ValueError(
            f"expected a source among {sorted(filter(None, sources))}, got {phase.source!r}"
        )
    for kind, sets in (("train", sources[phase.source]), ("dev", dev_sets)):
        missing = [task for task in phase.tasks if task not in sets]
        if missing:
            raise ValueError(f"expected a {kind} set for {missing}, got {sorted(sets)}")
    for task in phase.tasks:
        rows = sources[phase.source][task]
        pair = rows.sentences2 is not None if usual_loss else None
        check_train_set(task, rows, model.head(task, pair), usual_loss)


def precision_of(config: TrainConfig, world) -> str:
    """Give the precision of products: `accelerate launch --mixed_precision` counts before `config`."""
    launched = world.mixed_precision
    return config.precision if launched in (None, "no") else launched


def compile_layers(model, device: torch.device) -> None:
    """Compile each layer: one program serves all layers and all shapes of batches."""
    if device.type == "cpu":
        raise ValueError(
            "expected a GPU for compile=True, got a CPU: packed batches have too many "
            "shapes, and each would be compiled anew"
        )
    # not the whole model: what depends on lengths would not be traced, and full batches get a mask
    compile_parts(model.encoder.model.bert_layers)


def adapt_to_device(model, config: TrainConfig, world) -> tuple[TrainConfig, LossScale | None]:
    """Decide what depends on the device: batches by length, the scale of float16, compilation."""
    if config.compile:
        compile_layers(model, world.device)
    half = half_type(world.device, precision_of(config, world))
    scale = LossScale() if half == torch.float16 else None
    bucket = config.length_bucket or (16 if world.device.type == "cuda" else 1)
    return replace(config, length_bucket=bucket), scale


def run_identity(model, config: TrainConfig, sources, dev_sets) -> dict:
    """List what must be the same when a run resumes: settings, encoder, tokenizer and examples."""
    found = asdict(config) | encoder_fingerprint(model.encoder)
    for phase in config.plan():
        for task in phase.tasks:
            name = f"{phase.source or 'train'} rows of {task}"
            found[name] = rows_checksum(sources[phase.source][task])
    return found | {f"dev rows of {task}": rows_checksum(rows) for task, rows in dev_sets.items()}


def evaluates(stage, done: int, every: int | None) -> bool:
    """Tell whether dev is evaluated after `done` steps: every so many, or at the end of each epoch,
    and always at the end of a phase.
    """
    if done == stage.end:
        return True
    if every:
        return done % every == 0
    epoch = -(-(stage.end - stage.first) // stage.phase.epochs)
    return (done - stage.first) % epoch == 0


def keep_record(run: RunContext, stage, record) -> None:
    """Log a step; evaluate, keep the best model and save a checkpoint where it is time."""
    done = record.step + 1
    run.files.write([{**record._asdict(), "phase": run.at.phase}])
    if evaluates(stage, done, run.config.eval_every):
        _score(run, done)
    if _saves(run, stage, done):
        save_run(run, stage, done)


def _score(run, done):
    """Evaluate on dev, log the scores, and keep the model if their mean is the best so far."""
    if run.files.world.is_main_process:
        results = run.evaluate(run.model, run.dev_sets, resamples=0)
        scores = {task: result.value for task, result in results.items()}
        # a correlation of constant predictions is undefined: any other model is better
        mean = sum(-1.0 if math.isnan(s) else s for s in scores.values()) / len(scores)
        run.files.write([{"step": done - 1, "dev": scores, "mean": mean}])
        if run.at.best is None or mean > run.at.best:
            run.at.best, run.at.best_step = mean, done - 1
            run.files.keep(run.model)
    run.files.world.wait_for_everyone()


def _saves(run, stage, done):
    every = run.config.save_every
    return evaluates(stage, done, run.config.eval_every) or bool(every) and done % every == 0


def save_run(run: RunContext, stage, done: int) -> None:
    """Write a checkpoint."""
    run.files.save(done, run.model, stage.optimizer, stage.ahead, asdict(run.at))


def stop_if_asked(run: RunContext, stage, request, done: int) -> None:
    """Save and stop if a signal reached any process, and steps are left."""
    number = request.anywhere(run.files.world)
    if number and (run.at.phase, done) != (len(run.config.plan()) - 1, stage.end):
        if not _saves(run, stage, done):
            save_run(run, stage, done)
        raise Stopped(done, number)


def progress_bar(total: int, done: int | None, show: bool):
    """Make a bar of all steps of the run, including those done before an interruption."""
    from tqdm.auto import tqdm

    return tqdm(total=total, initial=done or 0, unit="step", disable=not show)
