"""`minbert contrast`: contrastive training on the user's pairs, triplets or single sentences, with
resuming.
"""

from __future__ import annotations

__all__ = ["ContrastConfig", "usual_contrast_rate", "check_rows", "prepared", "train_on_text"]

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from minbert.batches import pair_batches
from minbert.cli.retrieval_eval import plain
from minbert.cli.table_reader import EQUAL_NEGATIVE, equal_negatives
from minbert.contrastive import simcse_loss
from minbert.core.all_gather import across_processes
from minbert.core.checkpoint import seed_everything
from minbert.core.config_checks import check_positive, check_rates
from minbert.core.device_step import DeviceStep
from minbert.core.devices import LossScale, check_device, half_type, new_accelerator
from minbert.core.dropout import set_dropout
from minbert.core.files import quoted
from minbert.core.fused_adamw import FusedAdamW
from minbert.core.graceful_stop import Stopped, stop_requests
from minbert.core.prefetch import Ahead
from minbert.core.run_dir import RunFolder, open_run
from minbert.data import Dataset
from minbert.datasets.label_checks import sentences_of
from minbert.encoding.dense_layers import Dense, maps_of, sequential
from minbert.encoding.run_fingerprint import encoder_fingerprint, rows_checksum
from minbert.negatives import clusters, multiple_negatives_loss
from minbert.optim import parameter_groups
from minbert.sentence import SentenceEncoder
from minbert.simcse import ViewBatch, ViewModel, view_batches, view_loss
from minbert.training import Record, steps, warmup_decay
from minbert.whitening import Whiten


@dataclass(frozen=True)
class ContrastConfig:
    """What a run needs to know beside its text. Raises ValueError for a number that makes no sense."""

    steps: int  # optimizer steps
    lr: float  # highest rate
    # rows a step, all processes together: each is a wrong answer of the others
    batch_size: int = 64
    warmup: float = 0.1  # share of the steps on the way up; then straight down to 0
    weight_decay: float = 0.01  # BERT release
    precision: str = "fp32"  # or "bf16"
    save_every: int = 200  # steps between two checkpoints
    # put a whitening (chapter 15), fitted on all rows, behind the trained encoder
    whiten: bool = False
    seed: int = 11711  # course default

    def __post_init__(self):
        check_positive(self, "steps", "batch_size", "save_every")
        check_rates(self, "lr", "weight_decay")


def usual_contrast_rate(
    width: int,  # of the encoder's layers
) -> float:  # highest learning rate
    """Give a rate to begin with: 3e-5 for BERT-base (Gao et al., 2021, appendix A), more for a
    small encoder, as its chapters do.
    """
    return 3e-4 if width <= 256 else 1e-4 if width <= 384 else 3e-5


def prepared(
    encoder: SentenceEncoder,  # its dropout is changed in place
    rows: Dataset,  # one column or more; labels are not looked at
    # in [0, 1); None: that of its config, for single sentences at least .01
    dropout: float | None,
) -> SentenceEncoder:  # the same
    """Make two views of one sentence differ. Raises ValueError for single sentences without
    dropout.
    """
    share = encoder.model.config.hidden_dropout_prob if dropout is None else dropout
    if rows.sentences2 is None:
        share = max(share, 0.01) if dropout is None else share
        if share == 0:
            raise ValueError(
                "expected a dropout above 0 for single sentences, got 0: both views of each would be the same"
            )
    set_dropout(encoder, share)
    return encoder


def batches_of(
    rows: Dataset,  # one, two or three columns
    encoder: SentenceEncoder,
    config: ContrastConfig,
    world,  # accelerate.Accelerator
) -> Iterator[ViewBatch]:  # without end
    """Draw batches: pairs and triplets as they are, no two rows of one cluster; single sentences
    beside themselves.
    """
    columns = [column for column in (rows.sentences, rows.sentences2, rows.sentences3) if column]
    draw = view_batches if len(columns) == 1 else pair_batches
    return draw(
        columns,
        encoder.tokenizer,
        config.batch_size,
        max_length=encoder.max_length,
        seed=config.seed,
        process_index=world.process_index,
        num_processes=world.num_processes,
    )


def whiten(
    encoder: SentenceEncoder,  # changed in place
    rows: Dataset,  # its sentences and their partners are fitted on
) -> None:
    """Put a whitening of these sentences behind what the encoder does so far, as a Dense that
    sentence-transformers has, too.
    """
    fitted = Whiten(encoder.width).fit(encoder.encode(sentences_of(rows)))
    encoder.transform = sequential(
        [*maps_of(encoder.transform), Dense.of(fitted).to(encoder.device)]
    )


def check_rows(
    rows: Dataset,  # one column or more
    batch_size: int,
) -> None:
    """Raise ValueError where a batch cannot be filled with different texts, or where the rows
    contradict the loss.
    """
    single = rows.sentences2 is None
    if single:
        found = len({*map(plain, rows.sentences)})
    else:
        _check_partners(rows)
        found = len(set(clusters(rows.sentences, rows.sentences2).tolist()))
    if found < batch_size:
        which = (
            " that differ" * (found < len(rows))
            if single
            else " of which no two share a sentence, by any chain of partners"
        )
        raise ValueError(
            f"{rows.name}: expected at least {batch_size} rows{which}, as many as a batch holds, got {found}: --batch-size takes fewer"
        )


def _check_partners(rows):
    """Refuse pairs that are all a text and itself, and a negative that is equal to its anchor or to
    its positive.
    """
    if rows.sentences and all(
        plain(a) == plain(b) for a, b in zip(rows.sentences, rows.sentences2)
    ):
        raise ValueError(
            f"{rows.name}: expected pairs of different sentences, got each sentence beside itself: "
            "one column trains on single sentences"
        )
    if equal := equal_negatives([rows.sentences, rows.sentences2, rows.sentences3]):
        negative = quoted(rows.sentences3[equal[0]])
        raise ValueError(f"{rows.name}: {EQUAL_NEGATIVE}, got {negative} again at row {equal[0]}")


class _Run:
    """A model, its optimizer, and the folder that remembers both."""

    def __init__(self, encoder, rows, config, folder, notes):
        check_rows(rows, config.batch_size)
        self.rows, self.config, self.world = rows, config, new_accelerator()
        self.model = ViewModel(encoder.to(check_device(self.world.device)))
        self.optimizer = FusedAdamW(
            parameter_groups(self.model, config.weight_decay, config.lr), lr=config.lr
        )
        dropout = max(
            (part.p for part in encoder.modules() if isinstance(part, nn.Dropout)), default=0.0
        )
        identity = (
            asdict(config)
            | encoder_fingerprint(encoder)
            | {"rows": rows_checksum(rows), "dropout": dropout}
            | (notes or {})
        )
        # its memory belongs to the run
        self.scale = (
            LossScale() if half_type(self.world.device, config.precision) == torch.float16 else None
        )
        self.files = RunFolder(folder, identity, {"scale": self.scale}, self.world)

    def records(self, done: int) -> Iterator[Record]:
        """Take the steps that are left."""
        config, single = self.config, self.rows.sentences2 is None
        loss = simcse_loss if single else multiple_negatives_loss
        loss = view_loss(across_processes(loss, self.world))
        drawn = batches_of(self.rows, self.model.encoder, config, self.world)
        batches = Ahead(self.world.device).over(islice(drawn, done, config.steps))
        schedule = partial(
            warmup_decay, total_steps=config.steps, warmup_steps=round(config.warmup * config.steps)
        )
        self.model.train()
        yield from steps(
            self.model,
            batches,
            loss,
            self.optimizer,
            schedule=schedule,
            max_grad_norm=1.0,
            start=done,
            take_step=DeviceStep(self.world, config.precision, self.scale),
        )
        self.model.eval()

    def keep(self, record: Record, request) -> None:
        """Log a step; save where it is time, and where somebody wants to stop."""
        done, number = record.step + 1, request.anywhere(self.world)
        self.files.write([record._asdict()])
        if number or done % self.config.save_every == 0 or done == self.config.steps:
            self.files.save(done, self.model, self.optimizer, None, {"phase": 0, "first": 0})
        if number and done < self.config.steps:
            raise Stopped(done, number)


def train_on_text(
    encoder: SentenceEncoder,  # trained in place
    rows: Dataset,  # text, as `owntext.read_text` gives it
    config: ContrastConfig,
    folder: str | Path,  # gets log, checkpoint and, at the end, model/
    resume: bool = False,  # go on from the folder's checkpoint, if there is one
    progress: bool = False,  # draw a bar
    notes: dict[str, str] | None = None,  # what else a resume must find again
) -> None:
    """Train by contrast with the other rows of a batch; same weights after any kill. Seeds the
    global generators of Python, NumPy and torch.

    Raises Stopped, a KeyboardInterrupt, after SIGINT or SIGTERM: the step is done and saved,
    `resume` goes on. Raises ValueError for another run in the folder, fewer rows than a batch
    wants, or a checkpoint that is broken, or of other settings, rows, reading, dropout or notes.
    """
    from tqdm.auto import tqdm

    run = _Run(encoder, rows, config, folder, notes)
    with stop_requests() as request, open_run(run.files, resume):
        seed_everything(config.seed + run.world.process_index)
        done = run.files.load(run.model, run.optimizer, None) or 0
        with tqdm(
            total=config.steps,
            initial=done,
            unit="step",
            disable=not (progress and run.world.is_main_process),
        ) as bar:
            for record in run.records(done):
                run.keep(record, request)
                bar.update()
                bar.set_postfix(loss=f"{record.loss:.3f}")
        if config.whiten:
            whiten(encoder, rows)
        run.files.keep(encoder)
