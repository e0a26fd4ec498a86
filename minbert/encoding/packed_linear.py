"""Linear layers whose weights are laid out once for the processor."""

from __future__ import annotations

__all__ = ["prepacked_weights"]

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..core.devices import PRECISIONS, autocast, half_type
from ..core.eval_mode import compiled
from .int8_linear import IntegerProduct, exact_integers

FEW = 512  # tokens; with fewer, laying out takes longer than it saves


class _Packed:
    """x W^T + b, with W in the order in which oneDNN reads it. torch's own float32 products go to
    MKL, which is slower on some processors.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        weight: Tensor,
        bias: Tensor | None,
        norm: tuple[Tensor, Tensor] | None,
    ):
        self.dtype, self.weight = dtype, torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))
        self.bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            x.to(self.dtype), self.weight, self.bias, "none", [], ""
        )


class _Products(TorchFunctionMode):
    """Inside the block, a linear map by one of `weights`, or by several of them joined, takes the
    form that was made first.

    `form(weight, bias, norm)` makes one; norm: gain and shift of the layer norm whose result is
    multiplied, or None.
    """

    def __init__(self, weights: Iterable[nn.Parameter], form: Callable):
        super().__init__()
        # kept, so that no other tensor gets the same id
        self.known, self.form = {id(w): w for w in weights}, form
        self.joined, self.forms, self.normed = {}, {}, (None, ())

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.linear and len(args) == 3 and id(args[1]) in self.known:
            return self._multiply(*args)
        if (
            function is torch.cat
            and len(args) == 1
            and not kwargs
            and all(id(x) in self.known for x in args[0])
        ):
            return self._join(args[0])
        result = function(*args, **(kwargs or {}))
        if function is F.layer_norm:
            given = dict(zip(("input", "normalized_shape", "weight", "bias", "eps"), args)) | (
                kwargs or {}
            )
            self.normed = result, (given.get("weight"), given.get("bias"))
        return result

    def _multiply(self, x, weight, bias):
        result, norm = self.normed
        norm = norm if x is result and all(id(part) in self.known for part in norm) else None
        names = id(weight), norm and id(norm[0])
        if names not in self.forms:
            self.forms[names] = self.form(weight, bias, norm)
        return self.forms[names](x)

    def _join(self, parts):
        """Queries, keys and values come from one product with three weights: join them once."""
        names = tuple(map(id, parts))
        if names not in self.joined:
            whole = self.joined[names] = torch.cat(parts)
            self.known[id(whole)] = whole
        return self.joined[names]


@contextmanager
def prepacked_weights(
    # runs inside the block, without gradient; its weights are not to be changed there
    model: nn.Module,
    precision: str,  # one of `devices.PRECISIONS`, or "int8"
    tokens: int,  # rows that its linear maps will see
) -> Iterator[None]:
    """Run a model in a precision; on a CPU its float32 weights are laid out once.

    "int8" is for linear maps, on a CPU; all else, and everything where laying out does not pay,
    stays in float32. Raises ValueError as `half_type` does, and for "int8" on another device or a
    processor without VNNI.
    """
    device = next(model.parameters()).device
    form, around = _integers(device) if precision == "int8" else _floats(device, precision)
    weights = [w for w in model.parameters() if w.dtype == torch.float32]
    pays = device.type == "cpu" and tokens >= FEW and form is not None and not compiled(model)
    with autocast(device, around), _Products(weights, form) if pays else nullcontext():
        yield


def _integers(device):
    """Give the form of products in integers, and the precision of what is around them."""
    if device.type != "cpu" or not exact_integers():
        raise ValueError(
            f"precision 'int8': expected a CPU whose instructions add 8-bit products (VNNI), got {device.type if device.type != 'cpu' else 'one without'}; "
            "take 'fp32' or 'bf16'"
        )
    return IntegerProduct, "fp32"


def _floats(device, precision):
    """Give the form of products in a floating type, None where torch's own is as good, and the
    precision.
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"expected precision {', '.join(map(repr, PRECISIONS))} or 'int8', got {precision!r}"
        )
    dtype = half_type(device, precision) or torch.float32
    return partial(_Packed, dtype) if _served() else None, precision


def _served():
    """Tell whether oneDNN takes the place of another library: without MKL, torch asks it by itself."""
    return torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
