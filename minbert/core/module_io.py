"""Saving and loading modules without pickle.

A saved module is three things: the path of its class, the arguments that build an empty copy, and
its tensors, with a checksum over all three. Only classes defined in minbert are accepted, because a
class path that may name anything would be as dangerous as a pickle.
"""

__all__ = ["saved_name", "save_module", "load_module"]

import json
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from torch import nn

from .devices import meta_init
from .files import check_fields, quoted, read_json, write_json
from .safetensors_io import check_numbers, read_tensors, save_tensors, tensor_checksum


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
    kwargs: dict = getattr(module, "init_kwargs", dict)()
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
        with meta_init():
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
        "; `Dense.of` in minbert.encoding.dense_layers takes an affine map"
        if where == "save_module"
        else ""
    )
    raise ValueError(f"{where}: expected a class defined in minbert, got {quoted(name)}{hint}")
