"""Products with weights that do not change for a while: each is laid out once for the processor. It knows nothing of what they make up."""
from __future__ import annotations

__all__ = ["laid_out"]

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .devices import autocast, half_type

FEW = 512  # tokens; with fewer, laying out takes longer than it saves


class _Packed:
    """x W^T + b, with W in the order in which oneDNN reads it. torch's own float32 products go to MKL, which is slower on some processors."""

    def __init__(self, weight: Tensor, dtype: torch.dtype):
        self.dtype, self.weight = dtype, torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))

    def __call__(self, x, bias):
        bias = None if bias is None else bias.to(self.dtype)
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, bias, "none", [], "")


class _Products(TorchFunctionMode):
    """Inside the block, a linear map by one of `weights`, or by several of them joined, takes the form that was made first."""

    def __init__(self, weights: Iterable[nn.Parameter], dtype: torch.dtype):
        super().__init__()
        self.known, self.dtype = {id(w): w for w in weights}, dtype  # kept, so that no other tensor gets the same id
        self.joined, self.forms = {}, {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.linear and len(args) == 3 and id(args[1]) in self.known:
            return self._multiply(*args)
        if function is torch.cat and len(args) == 1 and not kwargs and all(id(x) in self.known for x in args[0]):
            return self._join(args[0])
        return function(*args, **(kwargs or {}))

    def _multiply(self, x, weight, bias):
        if id(weight) not in self.forms:
            self.forms[id(weight)] = _Packed(weight, self.dtype)
        return self.forms[id(weight)](x, bias)

    def _join(self, parts):
        """Queries, keys and values come from one product with three weights: join them once."""
        names = tuple(map(id, parts))
        if names not in self.joined:
            whole = self.joined[names] = torch.cat(parts)
            self.known[id(whole)] = whole
        return self.joined[names]


@contextmanager
def laid_out(
    model: nn.Module,  # runs inside the block, without gradient; its weights are not to be changed there
    precision: str,    # one of `devices.PRECISIONS`
    tokens: int,       # rows that its linear maps will see
) -> Iterator[None]:
    """Run a model in a precision; on a CPU its float32 weights are laid out once. Raises ValueError as `half_type` does."""
    device = next(model.parameters()).device
    dtype = half_type(device, precision) or torch.float32
    weights = [w for w in model.parameters() if w.dtype == torch.float32]
    pays = device.type == "cpu" and tokens >= FEW and _served(dtype) and not _compiled(model)
    with autocast(device, precision), _Products(weights, dtype) if pays else nullcontext():
        yield


def _served(dtype):
    """Tell whether oneDNN takes the place of another library, and has products in that precision on this processor."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):   # without MKL, torch asks oneDNN by itself
        return False
    return dtype == torch.float32 or dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _compiled(model):
    """Tell whether torch.compile has had a part of the model: it has plans of its own."""
    return any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in model.modules())
