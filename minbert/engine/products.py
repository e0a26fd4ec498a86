"""Products with weights that do not change for a while: each weight is laid out once for the processor; it knows nothing of what they make up."""
from __future__ import annotations

__all__ = ["ENCODING_PRECISIONS", "laid_out"]

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .devices import PRECISIONS, autocast

ENCODING_PRECISIONS = (*PRECISIONS, "int8")  # int8: linear maps alone, on a CPU that multiplies bytes
_ROWS = 512  # of an int8 product at a time: its sums of 4 bytes stay in the processor's cache


class _Packed:
    """x W^T + b, with W in the order in which oneDNN reads it. torch's own float32 products go to another library, which is slower."""

    def __init__(self, weight, dtype):
        self.dtype, self.weight = dtype, torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))

    def __call__(self, x, bias):
        bias = None if bias is None else bias.to(self.dtype)
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, bias, "none", [], "")


class _Bytes:
    """x W^T + b, with rows of x and of W in 8 bits: each divided by its largest magnitude / 127 and rounded; sums in 32 bits are exact.

    Paper: Yao et al. (2022), section 4.2: a scale a token and a scale an output.
    """

    def __init__(self, weight):
        rounded, scales = _rounded(weight)
        self.weight, self.scales = rounded.T, scales.T  # (D, E), (1, E)

    def __call__(self, x, bias):
        rows = x.flatten(0, -2)
        made = x.new_empty(len(rows), self.weight.shape[1])
        for part, out in zip(rows.split(_ROWS), made.split(_ROWS)):
            rounded, scales = _rounded(part)
            torch.mul(torch._int_mm(rounded, self.weight), self.scales, out=out).mul_(scales)
            if bias is not None:
                out += bias
        return made.unflatten(0, x.shape[:-1])


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:  # (N, D) float -> (N, D) int8, (N, 1) float
    """Give every row as bytes in [-127, 127], and what one step is worth."""
    scales = x.abs().amax(-1, keepdim=True).clamp_(min=torch.finfo(x.dtype).tiny * 127) / 127
    return (x / scales).round_().to(torch.int8), scales


class _Products(TorchFunctionMode):
    """Inside the block, a linear map by one of `weights`, or by several of them side by side, takes the form that was made first."""

    def __init__(self, weights: Iterable[nn.Parameter], form: Callable):
        super().__init__()
        self.known, self.form = {id(w): w for w in weights}, form
        self.joined, self.forms = {}, {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.linear and len(args) == 3 and id(args[1]) in self.known:
            return self._multiply(*args)
        if function is torch.cat and len(args) == 1 and not kwargs and all(id(x) in self.known for x in args[0]):
            return self._join(args[0])
        return function(*args, **(kwargs or {}))

    def _multiply(self, x, weight, bias):
        if id(weight) not in self.forms:
            self.forms[id(weight)] = self.form(weight)
        return self.forms[id(weight)](x, bias)

    def _join(self, parts):
        """Queries, keys and values come from one product with three weights: it is joined once."""
        names = tuple(map(id, parts))
        if names not in self.joined:
            whole = self.joined[names] = torch.cat(parts)
            self.known[id(whole)] = whole
        return self.joined[names]


@contextmanager
def laid_out(
    model: nn.Module,  # what runs inside the block, without gradient; its weights are not to be changed there
    precision: str,    # one of ENCODING_PRECISIONS
    tokens: int,       # rows that will be multiplied: with fewer than 512, laying out costs more than it saves
) -> Iterator[None]:
    """Run a model with its linear maps in a precision; on a CPU by weights that are laid out once.

    Raises ValueError for an unknown precision, and for one that the processor has no instructions for.
    """
    device = next(model.parameters()).device
    if precision not in ENCODING_PRECISIONS:
        raise ValueError(f"expected precision {', '.join(map(repr, ENCODING_PRECISIONS))}, got {precision!r}")
    if precision == "int8" and not (device.type == "cpu" and _multiplies_bytes()):
        raise ValueError(f"expected a CPU with AVX-512 VNNI for precision 'int8', got {device.type} without: use 'bf16'")
    with autocast(device, "fp32" if precision == "int8" else precision):
        with _products(model, precision) if _pays(model, device, precision, tokens) else nullcontext():
            yield


def _products(model, precision):
    form = _Bytes if precision == "int8" else partial(_Packed, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    return _Products([w for w in model.parameters() if w.dtype == torch.float32], form)


def _pays(model, device, precision, tokens):
    """Tell whether to lay weights out: never on a GPU, nor for a compiled model, which has plans of its own."""
    compiled = any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in model.modules())
    here = device.type == "cpu" and torch.backends.mkldnn.is_available() and not compiled
    if precision == "int8" and not here:
        raise ValueError("expected a model that is not compiled, and torch with oneDNN, for precision 'int8'")
    return here and (tokens >= 512 or precision == "int8")


def _multiplies_bytes() -> bool:
    """Tell whether products of 8-bit numbers have instructions of their own."""
    return getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
