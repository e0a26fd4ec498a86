"""The head that predicts masked tokens, as published BERTs store it (among the weights, under other
names): read, and written for transformers' fill-mask.
"""

from __future__ import annotations

__all__ = ["published_head", "write_words", "write_fill_mask"]

import json
from pathlib import Path

import torch

from minbert.core.atomic_dir import atomic_write_dir
from minbert.core.files import parse_json
from minbert.core.safetensors_io import load_tensors
from minbert.encoder import BertConfig
from minbert.encoding.bert_weights import hugging_face_name
from minbert.encoding.hf_weights import fitted, write_model
from minbert.pretrain import MlmHead, load_mlm
from minbert.tokens import load_tokenizer

_PUBLISHED = {
    "transform_dense.weight": "transform.dense.weight",
    "transform_dense.bias": "transform.dense.bias",
    "transform_norm.weight": "transform.LayerNorm.weight",
    "transform_norm.bias": "transform.LayerNorm.bias",
    "bias": "bias",
}
_OURS = {f"cls.predictions.{theirs}": ours for ours, theirs in _PUBLISHED.items()}


def _published_name(key):
    """Translate a name of a published head, the old gamma and beta included; None: not of a head."""
    return _OURS.get(
        key.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        )
    )


def published_head(
    folder: str | Path,  # in Hugging Face's layout
    config: BertConfig,
) -> MlmHead | None:  # None: the folder has none
    """Read the head of a published BERT. Raises ValueError naming folder and tensor if it does not
    fit.
    """
    found = {key: tensor for key, tensor in load_tensors(folder).items() if _published_name(key)}
    if not found:
        return None
    head = MlmHead(config)
    try:
        head.load_state_dict(
            fitted(
                found,
                head.state_dict(),
                _published_name,
                lambda name: f"cls.predictions.{_PUBLISHED[name]}",
            )
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return head


def write_words(
    tokenizer,  # of transformers
    folder: Path,  # there already
) -> None:
    """Write the files of a tokenizer, and vocab.txt for whoever reads that one alone: a word a
    line, in the order of the ids.
    """
    tokenizer.save_pretrained(folder)
    words = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words), encoding="utf-8")


def write_fill_mask(
    # with a head beside the encoder, as `pretrain` leaves it; None: the embedded model
    name_or_folder: str | Path | None,
    folder: str | Path,  # made if missing; may hold nothing
) -> None:
    """Write encoder, head and words as one `BertForMaskedLM` of transformers in float32; all of it,
    or nothing. It has no pooler, as theirs has none.

    Raises ValueError if the folder holds something, as `load_mlm` and `write_model`.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"expected a new or empty folder for the model, got {folder}")
    (bert, head), tokenizer = load_mlm(name_or_folder), load_tokenizer(name_or_folder)
    tensors = {
        f"bert.{hugging_face_name(name)}": x
        for name, x in bert.state_dict().items()
        if not name.startswith("pooler_dense.")
    }
    # the decoder's table is that of the words
    tensors |= {f"cls.predictions.{_PUBLISHED[name]}": x for name, x in head.state_dict().items()}
    config = parse_json(bert.config.to_json(), "config") | {
        "architectures": ["BertForMaskedLM"],
        "tie_word_embeddings": True,
    }
    with atomic_write_dir(folder) as draft:
        write_model(draft, tensors, json.dumps(config, indent=2), torch.float32)
        write_words(tokenizer, draft)
