"""Released BERT models: their configuration files, the names of their tensors, loading and saving.

The classes of the model and of its configuration come from the caller.
"""

__all__ = [
    "check_bert_config",
    "read_bert_config",
    "bert_config_json",
    "hugging_face_name",
    "minbert_name",
    "load_bert",
    "save_bert",
]

import json
import re
import warnings
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import nn

from ..core.devices import meta_init
from ..core.safetensors_io import load_tensors
from .hf_weights import check_settings, check_sizes, fitted, read_settings, write_model
from .transformer_folder import model_folder

# what the taught model computes; a config.json that asks for something else is refused
ARCHITECTURE = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def check_bert_config(
    config,  # a dataclass with the fields of BertConfig
) -> None:
    """Raise ValueError for a value that cannot be a size or a probability."""
    defaults = {field.name: field.default for field in fields(config)}
    check_settings(asdict(config), defaults, may_be_zero=("pad_token_id",))
    D, H = config.hidden_size, config.num_attention_heads
    if D % H:
        raise ValueError(f"expected num_attention_heads to divide hidden_size {D}, got {H}")
    if config.pad_token_id >= config.vocab_size:
        raise ValueError(
            f"expected pad_token_id below {config.vocab_size}, got {config.pad_token_id}"
        )


def read_bert_config(
    config_class: type,  # BertConfig
    file: str | Path,  # a Hugging Face config.json
):  # a `config_class`
    """Read the sizes of a model. Raises ValueError, with the file, for another architecture."""
    raw = read_settings(file, ARCHITECTURE)
    known = {field.name: raw[field.name] for field in fields(config_class) if field.name in raw}
    try:
        return config_class(**known)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def bert_config_json(
    config,  # a BertConfig
) -> str:  # a config.json that `transformers` reads
    """Write the sizes of a model in Hugging Face's format; weights are float32 in memory."""
    head = {"architectures": ["BertModel"], "dtype": "float32"}
    return json.dumps({**head, **ARCHITECTURE, **asdict(config)}, indent=2) + "\n"


# minbert's module: Hugging Face's; {} stands for the number of a layer
_MODULES = {
    "embedding.word_embedding": "embeddings.word_embeddings",
    "embedding.pos_embedding": "embeddings.position_embeddings",
    "embedding.tk_type_embedding": "embeddings.token_type_embeddings",
    "embedding.embed_layer_norm": "embeddings.LayerNorm",
    "bert_layers.{}.self_attention.query": "encoder.layer.{}.attention.self.query",
    "bert_layers.{}.self_attention.key": "encoder.layer.{}.attention.self.key",
    "bert_layers.{}.self_attention.value": "encoder.layer.{}.attention.self.value",
    "bert_layers.{}.attention_dense": "encoder.layer.{}.attention.output.dense",
    "bert_layers.{}.attention_layer_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "bert_layers.{}.interm_dense": "encoder.layer.{}.intermediate.dense",
    "bert_layers.{}.out_dense": "encoder.layer.{}.output.dense",
    "bert_layers.{}.out_layer_norm": "encoder.layer.{}.output.LayerNorm",
    "pooler_dense": "pooler.dense",
}
# buffers and task heads
_SKIPPED = r"(bert\.)?embeddings\.(position_ids|token_type_ids)|(cls|classifier|qa_outputs)\..+"


def _rename(name, table):
    """Translate the name of a weight or bias by a table of modules. Raises ValueError for a name
    that no left side fits.
    """
    for left, right in table.items():
        pattern = re.escape(left).replace(r"\{\}", r"(0|[1-9][0-9]*)") + r"\.(weight|bias)"
        if found := re.fullmatch(pattern, name):
            *layer, kind = found.groups()
            return f"{right.format(*layer)}.{kind}"
    raise ValueError(f"expected the name of a tensor of BERT, got {name!r}")


def hugging_face_name(
    name: str,  # of a parameter of BertModel
) -> str:
    """Translate a name of minbert to Hugging Face's. Raises ValueError for an unknown name."""
    return _rename(name, _MODULES)


def minbert_name(
    key: str,  # of a tensor in a released file
) -> str | None:
    """Translate a name of Hugging Face to minbert's; None for task heads and buffers.

    The prefix `bert.` and the older names gamma and beta are accepted. Raises ValueError for any
    other name.
    """
    if re.fullmatch(_SKIPPED, key):
        return None
    key = key.removeprefix("bert.")
    key = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", key)
    key = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", key)
    return _rename(key, {theirs: ours for ours, theirs in _MODULES.items()})


_POOLER = frozenset({"pooler_dense.weight", "pooler_dense.bias"})


def load_bert(
    model_class: type,  # BertModel
    config_class: type,  # BertConfig
    folder: str | Path,  # in Hugging Face's layout
) -> nn.Module:  # a `model_class`, float32, on the CPU, in eval mode
    """Load a model from a folder.

    A missing pooler is randomly initialized, always with the same seed, with a warning. Raises
    ValueError that names the file and the tensor if anything else does not fit.
    """
    folder = model_folder(folder)
    config = read_bert_config(config_class, folder / "config.json")
    found = load_tensors(folder)
    try:
        check_sizes(asdict(config), found, layers="num_hidden_layers")
        with meta_init():  # no time is spent on initial weights that are replaced at once
            model = model_class(config)
        state = fitted(found, model.state_dict(), minbert_name, hugging_face_name, may_lack=_POOLER)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if not set(state) >= _POOLER:
        warnings.warn(f"{folder} has no pooler: its weights are drawn at random", stacklevel=3)
        D, generator = config.hidden_size, torch.Generator().manual_seed(0)
        weight = config.initializer_range * torch.randn(D, D, generator=generator)
        state |= {"pooler_dense.weight": weight, "pooler_dense.bias": torch.zeros(D)}
    model.load_state_dict(state, assign=True)
    return model.eval()


def save_bert(
    model: nn.Module,  # a BertModel
    folder: str | Path,  # created if missing
    dtype: torch.dtype = torch.float32,  # of the stored tensors
) -> None:
    """Write config.json and model.safetensors, which `transformers.AutoModel` loads.

    Raises ValueError as `write_model`.
    """
    tensors = {hugging_face_name(name): tensor for name, tensor in model.state_dict().items()}
    write_model(folder, tensors, bert_config_json(model.config), dtype)
