"""Pretraining as a program: the settings of a run, batches made ahead by other processes, a
vocabulary and a tokenized corpus on disk, checkpoints, and resuming after an interruption.

What is trained, and by which loss, is the subject of chapter 07.
"""

__all__ = [
    "PretrainConfig",
    "MlmBatch",
    "chosen_positions",
    "MlmSteps",
    "mlm_batches",
    "step_indices",
    "packed_mlm_loss",
    "prepare",
    "WORKERS",
    "pretrain",
]

import copy
import os
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..center import center, mean_state
from ..core.atomic_dir import atomic_write_dir
from ..core.checkpoint import CHECKPOINT, save_checkpoint, seed_everything
from ..core.combined_optimizer import CombinedOptimizer
from ..core.config_checks import check_positive
from ..core.device_step import DeviceStep
from ..core.devices import choose_device
from ..core.files import write_json
from ..core.fused_adamw import FusedAdamW
from ..core.graceful_stop import Stopped, stop_requests
from ..core.resume import resume_run
from ..core.run_dir import clean_partial_save, locked, write_log
from ..corpus import Corpus, budget_batches, build_corpus, train_wordpiece
from ..corpus_cache import CORPUS, load_corpus, save_corpus, text_checksum
from ..encoder import BertConfig, BertModel
from ..encoding.forward import encode_batch
from ..encoding.tokenizer_files import special_token_ids
from ..muon import muon
from ..optim import parameter_groups
from ..pretrain import MlmHead, mask_tokens, masked_accuracy, save_mlm, special_positions
from ..tokens import load_tokenizer, pad_ids
from ..training import steps, warmup_decay


@dataclass(frozen=True)
class PretrainConfig:
    """Hold sizes and schedule of a pretraining run; the defaults follow results/pretraining/recipes.

    Raises ValueError for a count below 1, and for a mask rate that is no probability.
    """

    vocab_size: int = 8000  # pieces; two fifths of the weights at width 256
    hidden_size: int = 256  # D
    num_hidden_layers: int = 4  # L
    num_attention_heads: int = 4  # H, so 64 wide each, as in Google's BERTs
    intermediate_size: int = 1024  # 4 D, as in every published BERT
    total_steps: int = 4200  # optimizer steps
    tokens_per_step: int = 4096  # real tokens
    lr: float = 2e-3  # AdamW's, for tables, norms and biases
    # Muon's, for the matrices of layers and head, see chapter 29; 0: AdamW updates them as well
    matrix_lr: float = 0.01
    warmup_steps: int = 100
    decay_share: float = 0.4  # fraction of the run in which the learning rate decays to 0
    weight_decay: float = 0.01  # BERT, appendix A.2
    mask_rate: float = 0.30  # BERT, section 3.1, has 0.15
    alike: int = 16  # batches whose sequences are sorted by length together, see chapter 28
    precision: str = "bf16"  # where the device has it; or "fp32"
    seed: int = 11711
    save_every: int = 500  # steps between checkpoints and held-out measurements

    def __post_init__(self):
        check_positive(self, "total_steps", "tokens_per_step", "alike", "save_every")
        if not 0 <= self.mask_rate <= 1:
            raise ValueError(f"expected mask_rate in [0, 1], got {self.mask_rate}")

    def bert(self) -> BertConfig:
        """Give the sizes of the encoder, without dropout: the masks differ in every epoch, and an
        encoder pretrained without dropout is worse with it later.
        """
        return BertConfig(
            self.vocab_size,
            self.hidden_size,
            self.num_hidden_layers,
            self.num_attention_heads,
            self.intermediate_size,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer | CombinedOptimizer:
        """Make the optimizer of a model with these learning rates."""
        if self.matrix_lr:
            return muon(model, self.matrix_lr, self.lr, self.weight_decay)
        return FusedAdamW(parameter_groups(model, self.weight_decay), lr=self.lr)

    def rate(self, step: int) -> float:
        """Give the factor of the peak learning rate at a step, in [0, 1]."""
        return warmup_decay(
            step, self.total_steps, self.warmup_steps, int(self.total_steps * self.decay_share)
        )


class MlmBatch(NamedTuple):
    """Hold the tensors of one step."""

    input_ids: Tensor  # (B, T) int64, corrupted
    attention_mask: Tensor  # (B, T) int64
    labels: Tensor  # (B, T) int64, -100 where nothing is predicted
    places: Tensor  # (n,) int64, see `chosen_positions`


def chosen_positions(
    labels: Tensor,  # (B, T) int64, -100 where nothing is predicted
) -> Tensor:  # (n,) int64 in [0, B T), where the label is not -100
    """List the chosen positions of a batch laid out as one row."""
    return (labels.flatten() != -100).nonzero().squeeze(1)


class MlmSteps(torch.utils.data.Dataset):
    """Make the batch of any step on demand: (step, indices of sequences) -> MlmBatch. The mask
    depends on seed and step only, so a resumed run sees the same batches as an uninterrupted one.
    """

    def __init__(self, corpus: Corpus, special_ids: dict[str, int], config: PretrainConfig):
        self.corpus, self.ids, self.config = corpus, special_ids, config

    def __getitem__(self, item: tuple[int, np.ndarray]) -> MlmBatch:
        step, chosen = item
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
        batch = pad_ids(self.corpus.sequences(chosen), self.ids["[PAD]"])
        special = special_positions(*batch, [self.ids["[CLS]"], self.ids["[SEP]"]])
        corrupted, labels = mask_tokens(
            batch.input_ids,
            special,
            self.ids["[MASK]"],
            self.config.vocab_size,
            self.config.mask_rate,
            generator,
        )
        return MlmBatch(corrupted, batch.attention_mask, labels, chosen_positions(labels))


def mlm_batches(
    corpus: Corpus,
    special_ids: dict[str, int],  # ids of [PAD], [CLS], [SEP] and [MASK]
    config: PretrainConfig,
    start: int = 0,  # steps already done
    workers: int = 0,  # processes that prepare batches ahead; the batches are the same
) -> Iterator[MlmBatch]:
    """Yield corrupted batches for ever; a step has the same one wherever the stream starts."""
    numbered = enumerate(step_indices(corpus.lengths, config, start), start)
    yield from torch.utils.data.DataLoader(
        MlmSteps(corpus, special_ids, config),
        batch_size=None,
        sampler=numbered,
        num_workers=workers,
        generator=torch.Generator(),  # so that the global generator is not used
    )


def step_indices(
    lengths: np.ndarray,  # (N,) tokens in each sequence
    config: PretrainConfig,
    start: int = 0,  # steps already done
) -> Iterator[np.ndarray]:
    """Yield the sequences of each step, for ever."""
    stretch = max(1, round(config.alike * config.tokens_per_step / lengths.mean()))
    return budget_batches(lengths, config.tokens_per_step, config.seed, start, stretch)


def packed_mlm_loss(
    model: nn.ModuleDict,  # "bert" and "head"
    batch: MlmBatch,
    packed: bool = True,  # no work on padding
) -> Tensor:  # () float32, in nats
    """Compute what `mlm_loss` of chapter 07 computes, without work on padding, and without waiting
    for the GPU to count the chosen positions.
    """
    bert, head = model["bert"], model["head"]
    encoded = encode_batch(bert, batch.input_ids, batch.attention_mask, packed=packed)
    states = encoded.last_hidden_state.flatten(0, 1)[batch.places]
    logits = head(states, bert.embedding.word_embedding.weight).float()
    labels = batch.labels.flatten()[batch.places]
    return F.cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)


def _learn_words(corpus, model, config):
    """Train a vocabulary and write it, only once: ties are broken differently the next time, and the
    weights would no longer fit the tokens.
    """
    words = train_wordpiece(corpus, config.vocab_size)
    with atomic_write_dir(model) as draft:  # moves its files in the order of their names
        words.save_model(str(draft))
        words.save(str(draft / "tokenizer.json"))
        write_json(
            draft / "tokenizer_config.json",
            dict(tokenizer_class="BertTokenizer", do_lower_case=True, model_max_length=512),
        )


def prepare(
    corpus: str | Path,  # folder of text
    folder: str | Path,  # the run's folder
    config: PretrainConfig,
):  # -> (transformers tokenizer, Corpus)
    """Train the vocabulary and tokenize the corpus, or load both from an earlier start, for which the
    text is no longer needed.

    Raises ValueError naming the file if one of them is damaged or the text has changed since, the
    folder if it contains the model of something else, or a tokenizer that lacks a special token.
    """
    model, cache = Path(folder) / "model", Path(folder) / CORPUS
    text = "" if os.path.lexists(cache) and not os.path.lexists(corpus) else text_checksum(corpus)
    if os.path.lexists(model / "config.json") and not os.path.lexists(cache):
        raise ValueError(
            f"{folder}: expected an empty folder, or {CORPUS} of the run that is to go on, got a model alone"
        )
    if not any(map(os.path.lexists, (model / "vocab.txt", cache, Path(folder) / CHECKPOINT))):
        _learn_words(corpus, model, config)
    tokenizer = load_tokenizer(model)
    special_token_ids(tokenizer)  # refuses one that lacks a special token
    if not os.path.lexists(cache):
        rust = tokenizer.backend_tokenizer
        rust.no_truncation()  # tokenizer.json may say where to cut, and up to which length to pad
        rust.no_padding()
        save_corpus(
            build_corpus(corpus, rust, config.seed, (tokenizer.cls_token, tokenizer.sep_token)),
            folder,
            text,
        )
    return tokenizer, load_corpus(folder, text)


def _fresh(config):
    """Draw an encoder and its head."""
    torch.manual_seed(config.seed)
    return nn.ModuleDict({"bert": BertModel(config.bert()), "head": MlmHead(config.bert())})


def _save_centered(model, data, pad_id, folder):
    """Save a centered copy (chapter 30); the run continues with the model as it is."""
    bert, head = copy.deepcopy(model).values()
    shown = np.array_split(np.arange(min(2048, len(data.lengths))), 64)
    center(
        bert,
        head,
        mean_state(bert, (pad_ids(data.sequences(rows), pad_id) for rows in shown if len(rows))),
    )
    save_mlm(bert, head, folder)


def _row(record, losses, model, heldout, tokenizer):
    """Make a row of the log: the mean loss since the last row, and the held-out accuracy."""
    row = {"step": record.step + 1, "loss": sum(losses) / len(losses), "lr": record.lr}
    if heldout:
        row["accuracy"], row["heldout_loss"] = masked_accuracy(*model.values(), heldout, tokenizer)
    return row


# processes that prepare batches for a GPU, at most: making one takes as long as a step
WORKERS = 6


def pretrain(
    corpus: str | Path,  # folder of text, see corpus_files
    folder: str | Path,  # gets vocabulary, checkpoints, log.jsonl and, at the end, model/
    config: PretrainConfig = PretrainConfig(),
    heldout: list[str] | None = None,  # sentences for masked_accuracy; None: not measured
    # steps after which a copy of the model is saved in step-N/; later ones than the last are ignored
    keep: Container[int] = (),
    # trained in place, as minbert/cli/continue_pretraining.py loads it; None: one with random weights
    model: nn.ModuleDict | None = None,
) -> Iterator[dict]:  # one row per `save_every` steps: step, loss, lr, accuracy, ...
    """Pretrain a model; call again with the same folder to resume where the run stopped.

    On a GPU if there is one. Raises ValueError if the folder contains a run with other settings, one
    that has done more steps, or one that is still running; and Stopped, a KeyboardInterrupt, after
    SIGINT or SIGTERM, when the current step has been finished and saved.
    """
    with locked(folder), stop_requests() as request:
        clean_partial_save(folder)  # refuses what is no file of a run
        yield from _rows(corpus, Path(folder), config, heldout, keep, model, request)


def _rows(corpus, folder, config, heldout, keep, model, request):
    tokenizer, data = prepare(corpus, folder, config)
    seed_everything(config.seed)  # the checkpoint holds the states of all generators
    device, model = choose_device(), _fresh(config) if model is None else model
    model, optimizer = model.to(device), config.optimizer(model)
    settings = asdict(config)
    del settings["total_steps"], settings["save_every"]  # these may change when a run is resumed
    start, rows, losses = resume_run(folder, model, optimizer, config.total_steps, settings)
    write_log(folder, rows, "w")  # the checkpoint remembers the log: no row twice, none lost
    special_ids = special_token_ids(tokenizer)
    batches = mlm_batches(
        data,
        special_ids,
        config,
        start,
        0 if device.type == "cpu" else min(WORKERS, os.cpu_count() or 1),
    )

    def loss_fn(model, batch):
        return packed_mlm_loss(model, batch, packed=device.type == "cpu")

    for record in steps(
        model,
        islice(batches, config.total_steps - start),
        loss_fn,
        optimizer,
        schedule=config.rate,
        max_grad_norm=1.0,
        start=start,
        take_step=DeviceStep(precision=config.precision),
    ):
        losses.append(record.loss)
        done, last = record.step + 1, record.step + 1 == config.total_steps
        if done in keep:
            tokenizer.save_pretrained(folder / f"step-{done}")
            _save_centered(model, data, special_ids["[PAD]"], folder / f"step-{done}")
        if done % config.save_every == 0 or last:
            rows, losses = [*rows, _row(record, losses, model, heldout, tokenizer)], []
        stop = request.number is not None and not last
        if stop or not losses:
            save_checkpoint(
                folder,
                model,
                optimizer,
                step=done,
                extra={"rows": rows, "losses": losses, "settings": settings},
            )
            write_log(folder, rows, "w")
        if not losses:
            yield rows[-1]
        if stop:
            raise Stopped(done, request.number)
    _save_centered(model, data, special_ids["[PAD]"], folder / "model")
