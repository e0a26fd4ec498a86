"""Folders of sentence encoders, ours and sentence-transformers': which pooling, which length, which map. Names of poolings come from the caller."""
import os
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from .files import check_fields, quoted, read_json, write_json
from .saving import load_module, read_modules, save_module, write_modules


def saved_settings(folder: Path, pooling: str | None, poolings: Mapping[str, tuple]) -> dict:   # pooling, max_length, transform
    """Collect what a folder says; our own file counts first, and a pooling that is asked for counts more. Raises ValueError for what we do not have."""
    ours, transform, length = folder / "minbert_sentence.json", None, None
    if os.path.lexists(ours):
        config = check_fields(read_json(ours), ours, pooling=str, max_length=int, transform=bool)
        pooling, length = pooling or config["pooling"], config["max_length"]
        transform = load_module(folder / "3_Transform") if config["transform"] else None
    elif os.path.lexists(folder / "modules.json"):
        pooling, length = read_modules(folder, pooling)
    if pooling not in (None, *poolings) or length is not None and length < 3:
        raise ValueError(f"{folder}: expected a pooling among {', '.join(poolings)} and 3 tokens or more, got {quoted(pooling)} and {length}")
    return {"pooling": pooling or "mean", "max_length": length or 512, "transform": transform}


def write_settings(
    draft: Path,                    # folder that holds model and tokenizer already
    model: nn.Module,               # with a config
    pooling: str,
    layers: tuple,                  # of the hidden states that the pooling reads
    max_length: int,                # [tokens]
    transform: nn.Module | None,    # a map of the vectors
    kind: str | None = None,        # the module of sentence-transformers that does the same; None: ours
) -> None:
    """Write a folder's modules for sentence-transformers, and our own settings beside them."""
    extra = []
    if transform is not None:
        save_module(transform, draft / "3_Transform")
        extra = [(kind or "minbert.engine.saving.TransformModule", "3_Transform")]
    write_modules(draft, model, pooling, layers, max_length, extra)
    write_json(draft / "minbert_sentence.json", {"pooling": pooling, "max_length": max_length, "transform": bool(extra)})
