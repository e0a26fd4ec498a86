"""Saving and loading: atomic folder writes, modules without pickle, and folders in the layout of
sentence-transformers.

Files are written in a draft folder beside their place and moved when all of them are complete. A
draft is locked by its process, and the lock ends with the process, so that the next save can delete
the drafts of processes that were killed. A saved module is three things: the path of its class, the
arguments that build an empty copy, and its tensors, with a checksum over all three. Only classes
defined in minbert are accepted, because a class path that may name anything would be as dangerous
as a pickle.

| pooling | steps in sentence-transformers after the transformer |
|---|---|
| cls, mean, max | `Pooling` |
| pooler | `Pooling` (cls), then `Dense` with tanh |
| average of two layers | `WeightedLayerPooling` with weights 0 and 1, then `Pooling` (mean) |
| mean_padded | none: a class is named that the library does not know, so that it refuses instead of computing other vectors |
"""

__all__ = [
    "DRAFT",
    "clear_leftovers",
    "held_folder",
    "replacing",
    "saved_name",
    "save_module",
    "load_module",
    "write_modules",
    "write_pooling",
    "write_layers",
    "read_modules",
    "read_steps",
    "pooling_modes",
    "TransformModule",
]

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import torch
from torch import nn

from .devices import shapes_only
from .files import check_fields, flush, inside, quoted, read_json, read_json_if_there, write_json
from .maps import Dense, moved
from .modelfolders import model_folder
from .tensorfiles import check_numbers, read_tensors, save_tensors, tensor_checksum

DRAFT = ".draft-minbert-"  # a folder of somebody else is not called so


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a folder of our own for as long as this process lives; None if another has it, or this
    system locks no folders.
    """
    try:
        import fcntl

        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, AttributeError, OSError):
        return None
    with suppress(OSError):
        if os.fstat(number).st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return number
    os.close(number)


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def clear_leftovers(
    where: str | Path,  # the folder that holds them
    prefix: str = DRAFT,  # of their names
    delete: Callable[[Path], None] = _delete,  # how one is deleted
) -> None:
    """Delete the folders of `held_folder` whose owners were killed."""
    # as `tempfile.mkdtemp` ends names
    for left in Path(where).glob(glob.escape(prefix) + "[a-z0-9_]" * 8):
        if (lock := _lock(left, wait=False)) is not None:
            delete(left)
            os.close(lock)


@contextmanager
def held_folder(
    where: str | Path,  # a folder that exists
    prefix: str,  # of the name
    delete: Callable[[Path], None] = _delete,  # how it is deleted
) -> Iterator[Path]:  # an empty folder with a name that nobody can guess
    """Give a folder for as long as the block lasts; those of this prefix whose owners were killed
    are deleted now.
    """
    clear_leftovers(where, prefix, delete)
    lock, folder = None, Path(where, "-")
    while not folder.exists():  # somebody may take it for a leftover before it is locked
        if lock is not None:
            os.close(lock)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        lock = _lock(folder, wait=True)
    try:
        yield folder
    finally:
        delete(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def replacing(
    folder: str | Path,  # made if missing; its other files are left alone
) -> Iterator[Path]:  # an empty folder to write in
    """Give a draft folder; move its files into `folder` once the block has ended well.

    If one of them cannot be moved, all is put back as it was. Who is killed between two moves
    leaves files of both. Raises ValueError if `folder` is a file.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"expected a folder to save in, got the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with held_folder(folder, DRAFT) as draft:
        yield draft
        files = sorted(f for f in draft.rglob("*") if f.is_file())
        mode = _usual_mode(draft)
        for file in files:
            file.chmod(mode)
            flush(file)
        _move(files, draft, folder)
        flush(folder)


def _second_name(file, other):
    """Let a file be found under another name as well; where the disk has no such names, as a copy."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


def _move(files, draft, folder):
    """Move files from one folder into the other, all or none."""
    before, moved = Path(tempfile.mkdtemp(dir=draft)), []
    try:
        for number, file in enumerate(files):
            target, old = folder / file.relative_to(draft), before / str(number)
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                _second_name(target, old)
            os.replace(file, target)
            moved.append((target, old))
    except BaseException:
        for target, old in reversed(moved):
            os.replace(old, target) if old.exists() else target.unlink()
        raise


def _usual_mode(folder):
    """Ask what a new file may be read by: safetensors lets nobody but the owner read its files."""
    probe = folder / ".probe"
    probe.touch()
    return probe.stat().st_mode


def saved_name(module: nn.Module) -> str:
    """Give the class path under which `save_module` keeps a module. Raises ValueError for a class
    from outside minbert: loading it would run unknown code.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    _module_class(name)
    return name


def save_module(
    module: nn.Module,  # of a class defined in minbert
    folder: str | Path,  # gets config.json and model.safetensors
) -> None:
    """Write a module as json and safetensors: class path, constructor arguments, tensors, and a
    checksum over all three.

    `module.init_kwargs()`, if there, gives the arguments that build an empty copy.
    Raises ValueError as `saved_name`.
    """
    name = saved_name(module)
    kwargs = module.init_kwargs() if hasattr(module, "init_kwargs") else {}
    state = {key: x.detach().cpu().clone().contiguous() for key, x in module.state_dict().items()}
    write_json(
        Path(folder) / "config.json",
        {"class": name, "init_kwargs": kwargs, "sha256": _module_checksum(name, kwargs, state)},
    )
    save_tensors(Path(folder) / "model.safetensors", state)


def load_module(
    folder: str | Path,  # written by `save_module`
) -> nn.Module:  # on the CPU, in eval mode
    """Build a saved module again.

    Raises ValueError naming the file for a class outside minbert, for tensors and arguments that
    are not those that were saved together, and for numbers that are NaN or infinite.
    """
    file, weights = Path(folder) / "config.json", Path(folder) / "model.safetensors"
    config = check_fields(read_json(file), file, **{"class": str, "init_kwargs": dict})
    name, kwargs = config["class"], config["init_kwargs"]
    cls, state = _module_class(name, file), read_tensors(weights)
    # before anything is built from numbers in a file
    if config.get("sha256") != _module_checksum(name, kwargs, state):
        raise ValueError(
            f"expected {weights} and config.json beside it as {name} was saved, got others: damaged, or mixed from two saves"
        )
    check_numbers(state, weights)
    try:
        # the arguments may ask for any size: nothing is set aside before the tensors fit
        with shapes_only():
            module = cls(**kwargs)
        wanted = module.state_dict()
        module.load_state_dict(
            {key: x.to(wanted.get(key, x).dtype, copy=True) for key, x in state.items()},
            assign=True,
        )
    except Exception as error:  # whatever the class refuses: it may have changed since
        raise ValueError(
            f"{file}: expected arguments and tensors of {name}, got: {str(error)[:200]}"
        ) from error
    return module.eval()


def _module_checksum(name, kwargs, state):
    return tensor_checksum(state, json.dumps([name, kwargs], sort_keys=True))


def _module_class(name, where="save_module"):
    """Import a class by its path, if minbert defines it."""
    module, _, cls = name.rpartition(".")
    if re.fullmatch(r"minbert\.\w+", module):
        with suppress(ImportError):
            found = getattr(import_module(module), cls, None)
            is_ours = getattr(found, "__module__", None) == module
            if is_ours and isinstance(found, type) and issubclass(found, nn.Module):
                return found
    hint = (
        "; `Dense.of` in minbert.engine.maps takes an affine map" if where == "save_module" else ""
    )
    raise ValueError(f"{where}: expected a class defined in minbert, got {quoted(name)}{hint}")


def write_modules(
    folder: str | Path,  # holds the saved transformer already
    model: nn.Module,  # its `BertModel`
    pooling: str | nn.Module,  # a pooling of chapter 11, or a module that writes its own steps
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
            "sentence_embedding": moved(features["sentence_embedding"], self.transform)
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
