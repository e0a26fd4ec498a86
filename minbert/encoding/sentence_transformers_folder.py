"""Folders of sentence encoders, ours and those of sentence-transformers: pooling, maximum length
and linear layers.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import nn

from ..core.files import check_fields, inside, quoted, read_json, read_json_if_there, write_json
from ..core.folder_checksums import check_folder, folder_checksums
from ..core.module_io import load_module, save_module
from .bag_of_words_pooling import WordsBeside
from .dense_layers import Dense, maps_of, sequential
from .module_files import pooling_modes, read_modules, read_steps, write_modules
from .pooling_spec import pooling_name
from .tokenizer_files import is_generic
from .transformer_folder import model_folder

# the folders of maps; a pooling's own Dense is called 2_Dense, before the first of them
_OURS = re.compile(r"(\d{1,4})_(Dense|Transform|Normalize)")
_FIRST = 3
_OUR_FILE, _THEIRS = "minbert_sentence.json", "config_sentence_transformers.json"


def saved_settings(
    folder: Path,
    pooling: str | None,
    poolings: Mapping[str, tuple],
    plain: Mapping[str, type],
    # pooling, max_length, transform
) -> dict:
    """Collect what a folder says; our own file counts first. Who asks for another pooling gets that
    one, without the maps that belong to the folder's. Raises ValueError for what we do not have.
    """
    if (folder / "model" / "config.json").exists() and not os.path.lexists(folder / "config.json"):
        raise ValueError(
            f"{folder}: expected the folder of a model, got that of a run: its folder model is one"
        )
    if pooling != WordsBeside.name:
        _check_pooling_name(folder, pooling, poolings)
    named, length, maps = _said(folder, pooling, plain)
    if not isinstance(named, WordsBeside):
        _check_pooling_name(folder, named, poolings)
    if length is not None and length < 3:
        raise ValueError(f"{folder}: expected a max_length of 3 tokens or more, got {length}")
    return {
        "pooling": named or "mean",
        "max_length": length or _usual_length(model_folder(folder)),
        "transform": sequential(maps),
    }


def _check_pooling_name(folder, name, poolings):
    if name not in (None, *poolings):
        raise ValueError(
            f"{folder}: expected a pooling among {', '.join(poolings)}, got {quoted(name)}"
        )


def _said(folder, asked, plain):
    """Give pooling, length and maps, None for what is left to the usual: as our file says, else
    theirs, else who asks.
    """
    if os.path.lexists(folder / _OUR_FILE):
        return _said_by_us(folder, asked, plain)
    if os.path.lexists(folder / "modules.json"):
        return _said_by_them(folder, asked, plain)
    if asked is None and os.path.lexists(folder / _THEIRS):
        raise ValueError(
            f"{folder}: expected modules.json beside {_THEIRS}, got none: a save that did not end? Name a pooling yourself to use the model alone"
        )
    return asked, None, []


def _said_by_us(folder, asked, plain):
    ours = folder / _OUR_FILE
    # of an older release: without files
    config = check_fields(
        {"files": {}} | read_json(ours),
        ours,
        pooling=str,
        max_length=int,
        transform=bool,
        files=dict,
    )
    # the hub's copy lacks some
    check_folder(
        folder,
        config["files"],
        ours,
        may_lack=True,
        hint=f". If another library saved this folder again, delete {ours.name}",
    )
    if asked not in (None, config["pooling"]):
        return asked, config["max_length"], []
    maps = read_maps(folder, plain, ours) if config["transform"] else []
    pooling = (
        WordsBeside.load(folder) if config["pooling"] == WordsBeside.name else config["pooling"]
    )
    said, there = config.get("theirs"), _their_settings(folder)
    if None not in (said, there) and said != there:  # of an older release: without
        raise ValueError(
            f"{folder / 'modules.json'}: expected steps and length as {ours.name} has them, {quoted(said)}, got {quoted(there)}: mixed from two saves? "
            f"If another library saved this folder again, delete {ours.name}"
        )
    if asked is None:
        _check_extras(folder)
    return pooling, config["max_length"], maps


def _their_settings(
    folder: Path,
    # [kind, or kind and modes, of each step, then tokens]; None where a part of the folder is not
    # there
) -> list | None:
    """Say what sentence-transformers does with a folder, whichever release wrote it."""
    if not os.path.lexists(model_folder(folder) / "sentence_bert_config.json"):
        return None

    def modes(path):
        return sorted(map(str, pooling_modes(inside(folder, path, folder / "modules.json"))))

    try:
        steps = [
            [kind, *modes(path)] if kind == "Pooling" else [kind]
            for kind, path in read_steps(folder)
        ]
        return [*steps, read_modules(folder, "mean")[1] or _usual_length(model_folder(folder))]
    except ValueError:
        return None


def _said_by_them(folder, asked, plain):
    named, length = read_modules(folder, asked)
    if asked is None:  # who chooses a pooling takes the model alone
        _check_extras(folder)
    return (
        named,
        length,
        read_maps(folder, plain) if asked in (None, _their_pooling(folder)) else [],
    )


def _their_pooling(folder: Path) -> str | None:
    """Ask for the pooling of somebody else's folder; None if it has one that we do not have, or
    other steps.
    """
    with suppress(ValueError):
        return read_modules(folder)[0]
    return None


def _check_extras(folder: Path) -> None:
    """Refuse what only sentence-transformers does: a text before each sentence, vectors that are
    cut after so many columns, small letters before a tokenizer that tells them from capitals.
    """
    file = folder / _THEIRS
    said = read_json_if_there(file)
    name, prompts = said.get("default_prompt_name"), said.get("prompts")
    if (cut := said.get("truncate_dim")) is not None:
        raise ValueError(
            f"{file}: expected vectors that are not cut, got truncate_dim {quoted(cut)}: name a pooling yourself, and cut them"
        )
    if name is not None and not (
        isinstance(prompts, dict) and isinstance(name, str) and prompts.get(name) == ""
    ):
        raise ValueError(
            f"{file}: expected no default prompt, got {quoted(name)}: name a pooling yourself, and put the prompt before each sentence"
        )
    place = model_folder(folder)
    file = place / "sentence_bert_config.json"
    if read_json_if_there(file).get("do_lower_case") and not _makes_small_letters(place):
        raise ValueError(
            f"{file}: expected a tokenizer that makes small letters, as do_lower_case says, got one that keeps capitals: "
            "name a pooling yourself, and lower-case each sentence"
        )


def _makes_small_letters(folder: Path) -> bool:
    """Ask as `load_tokenizer` does: of BERT's own tokenizer tokenizer_config.json, else
    tokenizer.json, else yes; of any other tokenizer.json alone.
    """
    # bytes
    settings, whole = (
        read_json_if_there(folder / name, limit=2**27)
        for name in ("tokenizer_config.json", "tokenizer.json")
    )
    if "do_lower_case" in settings and not is_generic(folder, settings):
        return bool(settings["do_lower_case"])
    return not whole or _lowers(whole.get("normalizer"))


def _lowers(normalizer) -> bool:  # of a tokenizer.json
    steps = normalizer if isinstance(normalizer, dict) else {}
    if steps.get("type") == "Sequence":
        return any(map(_lowers, steps.get("normalizers") or ()))
    return steps.get("type") == "Lowercase" or bool(
        steps.get("lowercase", steps.get("type") == "BertNormalizer")
    )


def _usual_length(place: Path) -> int:  # [tokens], as many as the model has positions at most
    """Ask the settings of the tokenizer, which transformers cuts by; "no limit" is a huge number
    there. Raises ValueError naming the file for less than 3.
    """
    file, config = place / "tokenizer_config.json", read_json_if_there(place / "config.json")
    settings = read_json_if_there(file)
    # the second is that of transformers before 3
    name = "model_max_length" if "model_max_length" in settings else "max_len"
    most, positions = settings.get(name), config.get("max_position_embeddings")
    if most is not None and (type(most) not in (int, float) or not most >= 3):
        raise ValueError(f"{file}: expected {name} of 3 or more, got {quoted(most)}")
    # BertConfig refuses what is no number
    positions = positions if type(positions) is int else 512
    return int(min(most or positions, positions))


def ends_scaled(folder: Path) -> bool:
    """Tell whether the last step of a folder, ours or sentence-transformers', gives vectors of
    length 1. Raises ValueError naming the file if it is no list of steps.
    """
    steps = read_json_if_there(folder / "modules.json", list)
    last = steps[-1] if steps and isinstance(steps[-1], dict) else {}
    return str(last.get("type")).rpartition(".")[-1] == "Normalize"


def read_maps(folder: Path, plain: Mapping[str, type], ours: Path | None = None) -> list[nn.Module]:
    """Load the maps behind the pooling, in their order: of somebody else's folder each Dense and
    each map of ours, of ours, which has the file `ours`, all that we wrote; `plain` as in
    `write_settings`.

    Raises ValueError for a map behind a Normalize, which we would leave out, and for a map of ours
    that is gone.
    """
    maps, file, scaled = [], folder / "modules.json", False
    for step in read_json(file, list):
        step = check_fields(step if isinstance(step, dict) else {}, file, type=str, path=str)
        where = inside(folder, step["path"], file)
        kind = step["type"].rpartition(".")[-1]
        written = _OURS.fullmatch(step["path"])
        wanted = (
            bool(written) and int(written[1]) >= _FIRST
            if ours
            else kind in ("Dense", "TransformModule")
        )
        if wanted:
            if scaled:
                raise ValueError(
                    f"{file}: expected no {kind} behind Normalize, got one in {quoted(step['path'])}"
                )
            maps.append(
                plain[kind]()
                if kind in plain
                else Dense.load(where)
                if kind == "Dense"
                else load_module(where)
            )
        scaled = scaled or not ours and kind == "Normalize"
    if ours and len(maps) != (count := read_json(ours).get("maps", max(1, len(maps)))):
        raise ValueError(
            f"{file}: expected {quoted(count)} maps, as {ours.name} says, got {len(maps)}. If another library saved this folder again, delete {ours.name}"
        )
    return maps


def check_kept(pooling: str | nn.Module) -> None:
    """Raise ValueError for a pooling that no folder can hold: loading it would run unknown code."""
    if isinstance(pooling, nn.Module) and type(pooling) is not WordsBeside:
        raise ValueError(
            f"expected a pooling that a folder can hold, a name or a WordsBeside, got {type(pooling).__name__}"
        )


def write_settings(
    draft: Path,  # folder that holds model and tokenizer already
    model: nn.Module,  # with a config
    pooling: str | nn.Module,  # a name, or a WordsBeside
    layers: tuple,  # of the hidden states that the pooling reads
    max_length: int,  # [tokens]
    transform: nn.Module | None,  # a map of the vectors, or several in an nn.Sequential
    # module of sentence-transformers -> a class that does the same; both without files: older
    # releases take none there
    plain: Mapping[str, type],
) -> None:
    """Write a folder's modules for sentence-transformers, and our own settings beside them, with
    checksums of the tensors that are there: a card may be edited, and a line end changed by git.
    """
    check_kept(pooling)
    extra, names = [], {Dense: "Dense"} | {cls: name for name, cls in plain.items()}
    for number, part in enumerate(maps_of(transform), _FIRST):
        name = names.get(type(part))
        path = f"{number}_{name or 'Transform'}"
        if name not in plain:
            part.save(draft / path) if name else save_module(part, draft / path)
        extra.append((name or "minbert.encoding.module_files.TransformModule", path))
    write_modules(draft, model, pooling, layers, max_length, extra)
    write_json(
        draft / _OUR_FILE,
        {
            "pooling": pooling_name(pooling),
            "max_length": max_length,
            "transform": bool(extra),
            "maps": len(extra),
            "files": folder_checksums(draft, "*.safetensors"),
            "theirs": _their_settings(draft),
        },
    )
