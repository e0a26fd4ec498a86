"""Model folders in Hugging Face's layout: reading and checking configurations and tensors, and
writing folders.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..core.atomic_dir import atomic_write_dir
from ..core.files import quoted, read_json
from ..core.safetensors_io import check_numbers, save_tensors


def check_settings(
    values: Mapping[str, object], defaults: Mapping[str, object], may_be_zero: tuple[str, ...] = ()
) -> None:
    """Refuse what is no size and no share: a setting with a whole default is whole and positive,
    every other lies in [0, 1).

    Raises ValueError naming the setting.
    """
    for name, value in values.items():
        if isinstance(defaults[name], int):
            least = 0 if name in may_be_zero else 1
            wanted, good = f"a whole number >= {least}", isinstance(value, int) and value >= least
        else:
            wanted, good = "a number in [0, 1)", isinstance(value, (int, float)) and 0 <= value < 1
        if not good:
            raise ValueError(f"expected {name} {wanted}, got {quoted(value)}")


def read_settings(file: str | Path, fixed: Mapping[str, object]) -> dict:
    """Read a json object without its nulls. Raises ValueError if it is none, or asks for other
    values than the `fixed` ones.
    """
    raw = read_json(file)
    for key, wanted in fixed.items():
        if raw.get(key, wanted) != wanted:
            raise ValueError(f"{file}: expected {key} {wanted!r}, got {quoted(raw[key])}")
    return {key: value for key, value in raw.items() if value is not None}


def check_sizes(sizes: Mapping[str, float], found: Mapping[str, Tensor], layers: str) -> None:
    """Refuse sizes that no file with these tensors can have, before anything of such sizes is
    built. `layers` names the number of layers. Raises ValueError naming the size.
    """
    numbers = sum(tensor.numel() for tensor in found.values())
    for name, value in sizes.items():
        most = len(found) if name == layers else numbers
        if value > most:
            raise ValueError(
                f"expected {name} of at most {most}, as the weights allow, got {quoted(value)} in config.json"
            )


def fitted(
    found: Mapping[str, Tensor],  # key -> tensor, of a file
    wanted: Mapping[str, Tensor],  # name -> tensor of the shape that a model needs
    name_of: Callable[[str], str | None],  # key -> name; None: not for the model
    key_of: Callable[[str], str],  # name -> key, for messages
    # names that a file may leave out, all of them or none
    may_lack: frozenset[str] = frozenset(),
) -> dict[str, Tensor]:  # name -> float32 copy
    """Rename the tensors of a file and check them against a model's. Raises ValueError naming the
    first that does not fit.
    """
    state = {}
    for key, tensor in found.items():
        if (name := name_of(key)) is None:
            continue
        if name not in wanted or name in state:
            raise ValueError(
                f"expected no tensor {quoted(key)}: it comes twice or goes beyond config.json"
            )
        shapes = tuple(wanted[name].shape), tuple(tensor.shape)
        if shapes[0] != shapes[1] or not tensor.is_floating_point():
            raise ValueError(
                f"expected {key!r} as floats {shapes[0]}, got {tensor.dtype} {shapes[1]}"
            )
        # a copy: the file may be mapped, not read
        state[name] = tensor.to(torch.float32, copy=True)
    missing = [name for name in wanted if name not in state]
    if missing and set(missing) != may_lack:
        raise ValueError(
            f"expected tensors {quoted([key_of(name) for name in missing])}, found none of that name"
        )
    check_numbers({key_of(name): tensor for name, tensor in state.items()}, "the weights")
    return state


# those that transformers and sentence-transformers load
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def write_model(
    folder: str | Path,  # made if missing
    tensors: Mapping[str, Tensor],  # float, on any device
    config: str,  # json
    dtype: torch.dtype,  # one of DTYPES
) -> None:
    """Write model.safetensors and config.json, each put in place when it is complete.

    Raises ValueError, and leaves the folder as it was, for another dtype, naming the tensor for
    numbers that are not finite in it, and if the folder is a file.
    """
    if dtype not in DTYPES:
        raise ValueError(f"expected a dtype among {', '.join(map(str, DTYPES))}, got {dtype!r}")
    stored = {name: x.detach().to("cpu", dtype).contiguous() for name, x in tensors.items()}
    check_numbers(stored, f"{folder}, in {dtype}")
    with atomic_write_dir(folder) as draft:
        save_tensors(draft / "model.safetensors", stored, {"format": "pt"})
        (draft / "config.json").write_text(config, encoding="utf-8")
