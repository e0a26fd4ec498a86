"""Multitask fine-tuning as a product: `fit` trains through the phases of a run, evaluates, keeps the
best model, and resumes after an interruption. Chapter 13 teaches the loop and the sampling.
"""

__all__ = [
    "SCHEDULES",
    "Phase",
    "TrainConfig",
    "FitResult",
    "default_learning_rate",
    "phase_sampler",
    "Stage",
    "begin_phase",
    "phase_records",
    "fit",
    "Record",
    "steps",
    "sum_losses",
    "save_checkpoint",
    "load_checkpoint",
    "read_log",
]

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .core.checkpoint import load_checkpoint, save_checkpoint, seed_everything
from .core.device_step import DeviceStep
from .core.devices import LossScale, check_device, new_accelerator
from .core.fused_adamw import FusedAdamW
from .core.graceful_stop import stop_requests
from .core.prefetch import Ahead
from .core.run_dir import RunFolder, open_run, read_log
from .data import Dataset, task_batches
from .datasets.label_checks import check_dev_set
from .encoding.training_run import (
    SCHEDULES,
    FitResult,
    Phase,
    RunContext,
    RunState,
    TrainConfig,
    adapt_to_device,
    check_run,
    default_learning_rate,
    keep_record,
    precision_of,
    progress_bar,
    run_identity,
    save_run,
    stop_if_asked,
)
from .evaluate import evaluate_tasks
from .heads import MultitaskBert, multitask_loss
from .optim import parameter_groups
from .sampling import TaskSampler
from .sts import gold_labels
from .training import Record, steps, sum_losses, warmup_decay


def phase_sampler(
    phase: Phase,  # one of `TrainConfig.plan`
    sets: dict[str, Dataset],  # task -> train split
    config: TrainConfig,  # gives batch sizes, seed and fractions
    process: int = 0,  # number of this process
    processes: int = 1,  # how many share each step
) -> tuple[TaskSampler, int]:  # and the number of optimizer steps of the phase
    """Make the sampler of a phase."""
    sizes, batch_sizes = {task: len(sets[task]) for task in phase.tasks}, config.batch_size
    if isinstance(batch_sizes, dict):
        batch_sizes = {task: batch_sizes.get(task, 32) for task in phase.tasks}
    batches = None  # in an epoch
    if phase.steps:
        batches = -(-phase.steps * config.accumulate // phase.epochs)
    sampler = TaskSampler(
        sizes,
        batch_sizes,
        phase.strategy,
        phase.epochs,
        batches,
        config.seed,
        config.resample,
        {"quora": config.quora_fraction} if "quora" in phase.tasks else None,
        process,
        processes,
        config.length_bucket or 1,
    )
    return sampler, phase.steps or -(-len(sampler) // config.accumulate)


class Stage(NamedTuple):
    """A phase that is ready to run."""

    phase: Phase
    sampler: TaskSampler  # of its examples
    optimizer: FusedAdamW
    first: int  # number of its first step
    end: int  # number of its last step, plus 1
    ahead: Ahead  # reads the batches; stands for the sampler in a checkpoint


def begin_phase(
    model: MultitaskBert,  # is set to the mode of the phase
    phase: Phase,
    sets: dict[str, Dataset],  # task -> train split
    config: TrainConfig,
    first: int,  # number of its first step
    world,  # accelerate.Accelerator
) -> Stage:
    """Choose which parameters are trained; make a new optimizer and the sampler of the phase."""
    model.set_mode(phase.mode)
    groups = parameter_groups(model, config.weight_decay, phase.lr, phase.head_lr)
    optimizer = FusedAdamW(groups, lr=phase.lr)
    sampler, length = phase_sampler(phase, sets, config, world.process_index, world.num_processes)
    ahead = Ahead(model.encoder.device, sampler)
    return Stage(phase, sampler, optimizer, first, first + length, ahead)


def phase_records(
    model: MultitaskBert,
    stage: Stage,
    sets: dict[str, Dataset],  # task -> train split
    config: TrainConfig,
    step: int,  # the first one to take
    loss_fn: Callable,  # (model, batch) -> losses
    backward: Callable,  # losses -> gradients
    world,  # accelerate.Accelerator
    scale: LossScale | None = None,  # of float16 products
) -> Iterator[Record]:
    """Train the rest of a phase, one record for each step."""
    length = stage.end - stage.first
    warmup, decay_steps = round(config.warmup * length), None if config.decay else 0

    def schedule(s):
        return warmup_decay(s - stage.first, length, warmup, decay_steps)

    sets = {task: sets[task] for task in stage.phase.tasks}
    batches = task_batches(sets, model.encoder.tokenizer, stage.sampler, model.encoder.max_length)
    batches = stage.ahead.over(islice(batches, (stage.end - step) * config.accumulate))
    model.train()
    yield from steps(
        model,
        batches,
        loss_fn,
        stage.optimizer,
        backward,
        schedule,
        config.max_grad_norm,
        config.accumulate,
        step,
        DeviceStep(world, precision_of(config, world), scale),
    )


def _stages(run, sources):
    """Yield the phases that are left, each ready to run, and its next step; the phase in which the
    run stopped loads its checkpoint.
    """
    at, files = run.at, run.files
    for number, phase in list(enumerate(run.config.plan()))[at.phase :]:
        at.phase = number
        stage = begin_phase(
            run.model, phase, sources[phase.source], run.config, at.first, files.world
        )
        step = files.load(run.model, stage.optimizer, stage.ahead)
        if step is None and at.first == 0:
            save_run(run, stage, 0)
        yield stage, at.first if step is None else step
        at.first = stage.end


def fit(
    model: MultitaskBert,  # trained in place; ends with the parameters of the last step
    train_sets: dict[str, Dataset],  # task -> train split
    dev_sets: dict[str, Dataset],  # task -> dev split; the best model is chosen on these
    config: TrainConfig | None = None,  # None: the defaults
    # an earlier run in this folder is replaced, its model by the first new one
    folder: str | Path = "run",
    resume: bool = False,  # continue from the checkpoint in the folder, if there is one
    progress: bool = False,  # show a progress bar
    loss_fn: Callable | None = None,  # (model, batch) -> losses; None: `multitask_loss`
    backward: Callable = sum_losses,  # losses -> gradients
    accelerator=None,  # None: a new accelerate.Accelerator
    # name in a phase -> task -> examples to train on
    sources: dict[str, dict[str, Dataset]] | None = None,
) -> FitResult:
    """Train, evaluate, keep the best model and what a resumed run needs: it ends in the same weights
    wherever it was interrupted.

    Seeds the global generators of Python, NumPy and torch, so that equal runs write equal
    checkpoints. Only the first process writes. A `loss_fn` or `backward` with a state of its own is
    saved and resumed if it has `state_dict` and `load_state_dict`.
    Raises Stopped, a KeyboardInterrupt, after SIGINT or SIGTERM: the step is done and saved, and
    `resume` continues with the next one.
    Raises ValueError for another run in the folder; for datasets that are missing or no dict; for
    train sets without examples or with labels that the heads do not take; for dev sets without
    labels of people; for loss weights beside a `loss_fn`; and for a checkpoint that is damaged or
    belongs to other settings, examples or another encoder.
    """
    config, sources = config or TrainConfig(), {None: train_sets, **(sources or {})}
    check_run(model, config, sources, dev_sets, loss_fn, backward)
    for task, dev in dev_sets.items():
        gold_labels(dev)
        check_dev_set(task, dev, model.head(task, dev.sentences2 is not None))
    total = sum(phase_sampler(p, sources[p.source], config)[1] for p in config.plan())
    world = accelerator or new_accelerator()
    model.to(check_device(world.device))
    config, scale = adapt_to_device(model, config, world)
    identity = run_identity(model, config, sources, dev_sets)
    memory = {"loss_fn": loss_fn, "backward": backward, "scale": scale}
    files = RunFolder(folder, identity, memory, world)

    def losses(model, batch):
        if loss_fn is not None:
            return loss_fn(model, batch)
        return multitask_loss(model, batch, config.loss_weights)

    with stop_requests() as request, open_run(files, resume) as position:
        run = RunContext(model, dev_sets, config, files, RunState(**position), evaluate_tasks)
        seed_everything(config.seed + world.process_index)
        show = progress and world.is_main_process
        with progress_bar(total, files.step, show) as bar:
            for stage, step in _stages(run, sources):
                sets = sources[stage.phase.source]
                for record in phase_records(
                    model, stage, sets, config, step, losses, backward, world, scale
                ):
                    keep_record(run, stage, record)
                    bar.update()
                    best = "none" if run.at.best is None else f"{run.at.best:.3f}"
                    bar.set_postfix(loss=f"{record.loss:.3f}", best=best)
                    stop_if_asked(run, stage, request, record.step + 1)
    return FitResult(files.folder, read_log(files.folder), run.at.best, run.at.best_step)
