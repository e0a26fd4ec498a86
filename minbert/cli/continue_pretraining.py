"""Continued pretraining: a model goes on with masked language modelling on one's own text
(Gururangan et al., 2020).

The vocabulary of the model is kept, because a new one would assign other words to the rows of its
embedding table. The sizes are those of the model, and the learning rate is lower than from random
weights. A checksum of the model lets an interrupted run resume with the same weights only.
"""

__all__ = ["lay_words", "beginning", "FurtherConfig", "further", "plan"]

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ..core.atomic_dir import atomic_write_dir
from ..core.run_dir import locked
from ..core.safetensors_io import tensor_checksum
from ..encoder import BertModel
from ..encoding.tokenizer_files import special_token_ids
from ..encoding.transformer_folder import model_folder
from ..pretrain import HEAD, MlmHead, load_mlm
from ..tokens import load_tokenizer, resolve_folder
from .export_fill_mask import published_head, write_words
from .pretraining import PretrainConfig, prepare


def lay_words(
    name_or_folder: str | Path | None,  # of the model, as in `resolve_folder`
    folder: str | Path,  # the run's folder
) -> None:
    """Give a run the vocabulary of the model that reads on.

    Raises ValueError if the run has other words, or its folder holds a model, and leaves both as
    they are; and, before anything is written, for a tokenizer that lacks a special token.
    """
    place, tokenizer = Path(folder) / "model", load_tokenizer(name_or_folder)
    special_token_ids(tokenizer)
    with locked(folder):
        if (place / "vocab.txt").exists() or (place / "config.json").exists():
            if load_tokenizer(place).get_vocab() != tokenizer.get_vocab():
                raise ValueError(
                    f"{place}: expected the words of {name_or_folder or 'the embedded model'}, got others: something else began there"
                )
            return
        with atomic_write_dir(place) as draft:
            write_words(tokenizer, draft)


def beginning(
    # of the model, as in `resolve_folder`; None: the embedded one
    name_or_folder: str | Path | None = None,
    seed: int = 11711,  # of a head that has to be drawn
    # "bert" and "head", in float32 and eval mode: no dropout, as in `PretrainConfig`; where the head is
    # from
) -> tuple[nn.ModuleDict, str]:
    """Load an encoder and the best head that there is for it. Raises ValueError as `load_mlm` and
    `published_head` do.
    """
    folder = model_folder(resolve_folder(name_or_folder))
    if (folder / HEAD).exists():
        bert, head = load_mlm(folder)
    else:
        bert = BertModel.from_pretrained(folder)
        head = published_head(folder, bert.config)
    origin = "its own"
    if head is None:
        torch.manual_seed(seed)
        head, origin = MlmHead(bert.config), "drawn at random"
    return nn.ModuleDict({"bert": bert, "head": head}).eval(), origin


@dataclass(frozen=True)
class FurtherConfig(PretrainConfig):
    """Schedule of a run that begins with a model; a quarter of the usual learning rates."""

    lr: float = 5e-4  # AdamW's
    matrix_lr: float = 0.0025  # Muon's
    warmup_steps: int = 20
    decay_share: float = 0.8  # share of the run over which the rate falls to 0
    weights: str = ""  # checksum of the model that reads on


def further(
    model: nn.ModuleDict,  # as `beginning` gives it
    **settings,  # of FurtherConfig
) -> FurtherConfig:
    """Say how a model reads on: its own sizes, and the settings."""
    config = model["bert"].config
    sizes = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
    )
    return FurtherConfig(
        **{name: getattr(config, name) for name in sizes},
        weights=tensor_checksum(model.state_dict()),
        **settings,
    )


def plan(
    corpus: str | Path,  # folder of text, as in chapter 28
    folder: str | Path,  # the run's folder
    name_or_folder: str | Path | None = None,  # of the model that reads on; None: the embedded one
    # over the text, unless `total_steps` is among the settings
    passes: float = 4,
    **settings,  # of FurtherConfig
    # the run, the model that begins it, where its head is from
) -> tuple[FurtherConfig, nn.ModuleDict, str]:
    """Make a run ready that begins with a model. Raises ValueError as `beginning`, `lay_words` and
    `prepare` do, and for text longer than the model reads.
    """
    model, head_from = beginning(name_or_folder)
    lay_words(name_or_folder, folder)
    config = further(model, **settings)
    with locked(folder):
        lengths = prepare(corpus, folder, config)[1].lengths
    if lengths.max() > (most := model["bert"].config.max_position_embeddings):
        raise ValueError(
            f"{corpus}: expected sequences of at most {most} tokens, as the model reads them, got one of {lengths.max()}"
        )
    if "total_steps" not in settings:
        config = replace(
            config, total_steps=math.ceil(passes * int(lengths.sum()) / config.tokens_per_step)
        )
    return config, model, head_from
