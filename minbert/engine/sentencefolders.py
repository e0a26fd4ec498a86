"""Folders of sentence encoders, ours and sentence-transformers': which pooling, which length, which map. Names of poolings come from the caller."""
import os
import re
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from .files import check_fields, inside, quoted, read_json, write_json
from .maps import Dense, maps_of
from .saving import load_module, read_modules, save_module, write_modules

_OURS = re.compile(r"\d+_(Dense|Transform)")   # the folders of maps; a pooling's own Dense is called 2_Dense, before the first of them
_FIRST = 3


def saved_settings(folder: Path, pooling: str | None, poolings: Mapping[str, tuple]) -> dict:   # pooling, max_length, transform
    """Collect what a folder says; our own file counts first. Who asks for another pooling gets that one, without the maps that belong to the folder's. Raises ValueError for what we do not have."""
    ours, transform, length = folder / "minbert_sentence.json", None, None
    if os.path.lexists(ours):
        config = check_fields(read_json(ours), ours, pooling=str, max_length=int, transform=bool)
        transform = read_maps(folder, _OURS) if config["transform"] and pooling in (None, config["pooling"]) else None
        pooling, length = pooling or config["pooling"], config["max_length"]
    elif os.path.lexists(folder / "modules.json"):
        transform = None if pooling else read_maps(folder)
        pooling, length = read_modules(folder, pooling)
    if pooling not in (None, *poolings) or length is not None and length < 3:
        raise ValueError(f"{folder}: expected a pooling among {', '.join(poolings)} and 3 tokens or more, got {quoted(pooling)} and {length}")
    return {"pooling": pooling or "mean", "max_length": length or 512, "transform": transform}


def read_maps(folder: Path, ours: re.Pattern | None = None) -> nn.Module | None:   # one map, several in a row, or none
    """Load the maps behind the pooling: of somebody else's folder each Dense, of ours all that we wrote."""
    maps, file = [], folder / "modules.json"
    for step in read_json(file, list):
        step = check_fields(step if isinstance(step, dict) else {}, file, type=str, path=str)
        where, dense = inside(folder, step["path"], file), step["type"].rpartition(".")[-1] == "Dense"
        if ours is None and dense or ours and ours.fullmatch(step["path"]) and int(step["path"].split("_")[0]) >= _FIRST:
            maps.append(Dense.load(where) if dense else load_module(where))
    return nn.Sequential(*maps) if len(maps) > 1 else maps[0] if maps else None


def write_settings(
    draft: Path,                    # folder that holds model and tokenizer already
    model: nn.Module,               # with a config
    pooling: str,
    layers: tuple,                  # of the hidden states that the pooling reads
    max_length: int,                # [tokens]
    transform: nn.Module | None,    # a map of the vectors, or several in an nn.Sequential
    theirs: Mapping[type, str],     # class -> the module of sentence-transformers that does the same, without files
) -> None:
    """Write a folder's modules for sentence-transformers, and our own settings beside them."""
    extra = []
    for number, part in enumerate(maps_of(transform), _FIRST):
        path = f"{number}_{'Dense' if isinstance(part, Dense) else 'Transform'}"
        part.save(draft / path) if isinstance(part, Dense) else save_module(part, draft / path)
        extra.append(("Dense" if isinstance(part, Dense) else theirs.get(type(part), "minbert.engine.saving.TransformModule"), path))
    write_modules(draft, model, pooling, layers, max_length, extra)
    write_json(draft / "minbert_sentence.json", {"pooling": pooling, "max_length": max_length, "transform": bool(extra)})
