"""The files that make a folder readable for sentence-transformers: modules.json and one folder for
each step after the transformer.

| pooling | steps in sentence-transformers after the transformer |
|---|---|
| cls, mean, max | `Pooling` |
| pooler | `Pooling` (cls), then `Dense` with tanh |
| average of two layers | `WeightedLayerPooling` with weights 0 and 1, then `Pooling` (mean) |
| mean_padded | none: a class is named that the library does not know, so that it refuses instead of computing other vectors |
"""

__all__ = [
    "write_modules",
    "write_pooling",
    "write_layers",
    "read_modules",
    "read_steps",
    "pooling_modes",
    "TransformModule",
]

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from ..core.files import check_fields, inside, quoted, read_json, read_json_if_there, write_json
from ..core.module_io import load_module, save_module
from ..core.safetensors_io import save_tensors
from .dense_layers import Dense, apply_dense
from .transformer_folder import model_folder


def write_modules(
    folder: str | Path,  # holds the saved transformer already
    model: nn.Module,  # its `BertModel`
    pooling: str | nn.Module,  # a pooling of chapter 08, or a module that writes its own steps
    layers: Sequence[int],  # the hidden states it reads; two of them are averaged
    max_length: int,  # [tokens] longer sentences are cut
    extra: Sequence[tuple] = (),  # more steps: (class path, folder), written by the caller
) -> None:
    """Write what SentenceTransformer(folder) reads beside the model: its steps and their files."""
    folder = Path(folder)
    steps = [("Transformer", "")]
    if pooling == "mean_padded":
        steps.append(("minbert.sentence.mean_padded", "1_Pooling"))
    elif isinstance(pooling, nn.Module):
        steps += pooling.write(folder, model)
    else:
        if len(layers) == 2:
            write_layers(folder / "1_WeightedLayerPooling", model, layers)
            steps.append(("WeightedLayerPooling", "1_WeightedLayerPooling"))
        mode = {"cls": "cls_token", "pooler": "cls_token", "max": "max_tokens"}.get(
            pooling, "mean_tokens"
        )
        write_pooling(folder / "1_Pooling", model.config.hidden_size, mode)
        steps.append(("Pooling", "1_Pooling"))
        if pooling == "pooler":
            _write_pooler(folder / "2_Dense", model)
            steps.append(("Dense", "2_Dense"))
    write_json(
        folder / "modules.json",
        [
            {
                "idx": i,
                "name": str(i),
                "path": path,
                "type": kind if "." in kind else f"sentence_transformers.models.{kind}",
            }
            for i, (kind, path) in enumerate([*steps, *extra])
        ],
    )
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False}
    )
    if len(layers) == 2:  # they hand out inner layers only if the model's own config says so
        config = read_json(folder / "config.json") | {"output_hidden_states": True}
        write_json(folder / "config.json", config)


def write_pooling(
    folder: str | Path,  # of the step
    width: int,  # of a token's vector
    *modes: str,  # cls_token, mean_tokens, max_tokens; several stand side by side
) -> None:
    """Write a Pooling of sentence-transformers."""
    write_json(
        Path(folder) / "config.json",
        {"word_embedding_dimension": width}
        | {
            f"pooling_mode_{name}": name in modes
            for name in ("cls_token", "mean_tokens", "max_tokens")
        },
    )


def write_layers(
    folder: str | Path,  # of the step
    model: nn.Module,  # its `BertModel`
    layers: Sequence[int],  # hidden states, 0 the embedding; one, or two that are averaged
) -> None:
    """Write a WeightedLayerPooling of sentence-transformers."""
    D, L = model.config.hidden_size, model.config.num_hidden_layers
    write_json(
        Path(folder) / "config.json",
        {"word_embedding_dimension": D, "layer_start": 0, "num_hidden_layers": L},
    )
    weights = torch.zeros(L + 1)
    for layer in layers:
        weights[layer] += 1.0  # one layer may be named twice: first and last of a single one
    save_tensors(Path(folder) / "model.safetensors", {"layer_weights": weights})


def _write_pooler(folder, model):
    with torch.device("meta"):  # no weights of its own: saving draws no random numbers
        dense = Dense(model.config.hidden_size, model.config.hidden_size, activation="Tanh")
    dense.linear = model.pooler_dense
    dense.save(folder)


def read_modules(
    folder: str | Path,  # with a modules.json
    pooling: str | None = None,  # the reader's own choice; then other steps do not matter
) -> tuple[str, int | None]:  # pooling as they spell it, and max_length if they give one
    """Read the pooling and the length from a sentence-transformers folder.

    Raises ValueError for steps other than Transformer, Pooling, Dense, Normalize and a map of ours,
    or mixed poolings.
    """
    file = Path(folder) / "modules.json"
    length = _read_length(model_folder(folder) / "sentence_bert_config.json")
    if pooling is not None:
        return pooling, length
    for kind, path in read_steps(folder):
        if kind == "Pooling":
            modes = pooling_modes(inside(folder, path, file))
            pooling = modes[0] if len(modes) == 1 else modes
        elif kind not in ("Transformer", "Dense", "Normalize", "TransformModule"):
            learned = ", which may have learned there" if kind == "WeightedLayerPooling" else ""
            raise ValueError(
                f"expected Transformer, Pooling, Dense, Normalize in {file}, "
                f"got {quoted(kind)}{learned}: name a pooling yourself to leave it out"
            )
    if not isinstance(pooling, str):
        raise ValueError(f"expected one pooling in {file}, got {quoted(pooling)}")
    return pooling, length


def read_steps(folder: str | Path) -> list[tuple[str, str]]:  # (kind, where) of each
    """Read what a sentence-transformers folder does, step by step. Raises ValueError naming the
    file if it is no list of steps.
    """
    file = Path(folder) / "modules.json"
    steps = [
        check_fields(step if isinstance(step, dict) else {}, file, type=str, path=str)
        for step in read_json(file, list)
    ]
    return [(step["type"].rpartition(".")[-1], step["path"]) for step in steps]


def pooling_modes(folder: Path) -> list[str]:  # such as ["mean"]; several stand side by side
    """Read what a Pooling does, as older or newer releases of sentence-transformers write it."""
    config = read_json(folder / "config.json")
    if named := config.get("pooling_mode"):
        return list(named) if isinstance(named, (list, tuple)) else [named]
    return [
        re.sub("_tokens?$", "", key.removeprefix("pooling_mode_"))
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on
    ]


def _read_length(file):
    """Read the longest sentence [tokens], if the file is there and says it."""
    length = read_json_if_there(file).get("max_seq_length")
    if length is not None and (type(length) is not int or length < 3):
        raise ValueError(f"{file}: expected max_seq_length of 3 or more, got {quoted(length)}")
    return length


class TransformModule(nn.Module):
    """Our map inside a SentenceTransformer, which asks for trust_remote_code=True first."""

    def __init__(
        self,
        transform: nn.Module,  # (N, D) -> (N, K), or a tuple that starts with it
    ):
        super().__init__()
        self.transform = transform

    def forward(
        self,
        features: dict,  # what sentence-transformers passes along
    ) -> dict:  # the same with "sentence_embedding" (N, D) replaced
        """Apply the map to the pooled vectors."""
        return features | {
            "sentence_embedding": apply_dense(features["sentence_embedding"], self.transform)
        }

    @classmethod
    def load(
        cls,
        folder: str,  # the step's folder
    ) -> "TransformModule":
        """Load what `save_module` wrote."""
        return cls(load_module(folder))

    def save(
        self,
        folder: str,  # the step's folder
        *args,
        **kwargs,  # what else sentence-transformers says, such as safe_serialization
    ) -> None:
        """Write what `load` reads, when sentence-transformers saves a folder again."""
        save_module(self.transform, folder)
