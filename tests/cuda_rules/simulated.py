"""A GPU that is none: tensors that say cuda:0, compute on the CPU, refuse what CUDA refuses, and
note what would make the CPU wait.

Rules: operands on one device (a number without axes may come from the CPU); a generator draws on
its own device only; a CPU tensor cannot be indexed by one on the GPU; no NumPy. Noted as "wait":
reading a value, a shape that depends on values, a copy back. Noted as "copy" or "blocking copy":
what goes to the GPU, from pinned memory without waiting or not. Operations are counted, too: each
is at least one kernel. It shows no speed and no memory.
"""

import collections
import contextlib
import ctypes
import importlib.util
import os
import sys
import threading
from pathlib import Path


def _install(library: str) -> None:
    """Register the device; before torch is imported, so that both see the same symbols."""
    folder = Path(importlib.util.find_spec("torch").origin).parent / "lib"
    for name in ("libgomp*", "libc10.so", "libtorch_cpu.so"):
        for file in folder.glob(name):
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    guard = ctypes.CDLL(library)
    import torch  # noqa: F401

    guard.install()


_install(os.environ["CUDA_RULES_GUARD"])

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten  # noqa: E402

CUDA = torch.device("cuda", 0)
_CUDA_SEED = 1 << 61  # a bit in the seed tells a generator of the GPU
_Generator = torch.Generator
EVENTS = []  # (kind, operation, where)
LAUNCHED = collections.Counter()  # operation -> how often it was put into the queue
_pinned = set()  # addresses
_late = []  # (tensor on the CPU, numbers): copies back that nobody has waited for yet


class DeviceError(RuntimeError):
    """What CUDA would refuse."""


class Simulated(torch.Tensor):
    """A tensor on the GPU; `inner` holds its numbers."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=CUDA,
            requires_grad=requires_grad,
        )

    def __init__(self, inner, requires_grad=False):
        self.inner = inner

    def tolist(self):
        _note("wait", "tolist")
        return self.inner.tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )

    __array__ = numpy

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            twin = Simulated(self.inner.clone(), self.requires_grad)
            memo[id(self)] = (
                torch.nn.Parameter(twin, self.requires_grad)
                if isinstance(self, torch.nn.Parameter)
                else twin
            )
        return memo[id(self)]

    def __repr__(self):
        return f"Simulated({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


_MIXED = {"copy_", "_to_copy", "_foreach_copy_", "lift_fresh", "set_"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_STRICT = {"cat", "stack", "equal", "mm", "bmm", "addmm"}  # not even a number may come from the CPU
_FREE = {
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "detach",
    "detach_",
    "alias",
    "lift_fresh",
    "set_",
    "_local_scalar_dense",
    # they compute nothing; views compute nothing, either
    "_unsafe_view",
    "record_stream",
    "resize_",
}
_WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "unique_consecutive",
    "_unique2",
    "unique_dim",
    "masked_select",
    "equal",
    "is_nonzero",
    "_linalg_eigh",
    "_linalg_slogdet",
    "linalg_solve_ex",
    "linalg_lu_factor_ex",
    "repeat_interleave",
    "bincount",
}


def _where():
    """Name the nearest line of the package, or of the scenario."""
    frame = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.parent.name == "minbert" or file.name == "scenarios.py":
            return f"{file.name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def _note(kind, operation):
    EVENTS.append((kind, operation, _where()))
    if kind == "wait":  # for all that is in the queue
        while _late:
            there, numbers = _late.pop()
            there.copy_(numbers)


def _copy_late(there, x):
    """Queue a copy back into pinned memory; until somebody waits, NaN stands there."""
    _note("copy back", "copy_")
    if there.is_floating_point():
        there.fill_(float("nan"))
    _late.append((there, x.inner.clone()))
    return there


class _Event:
    """A mark in the queue."""

    def record(self, stream=None):
        self.waiting = list(_late)

    def synchronize(self):
        if any(mine is other for mine in self.waiting for other in _late):
            _note("wait", "event")


class _Stream:
    """Another queue; here there is no time in which it could run."""

    def __init__(self, device=None):
        pass

    def wait_event(self, event):
        pass

    def record_event(self):
        return _Event()


def _is_cuda(device):
    return device is not None and torch.device(device).type == "cuda"


def _check_index(name, args, there, idx):
    if not there and any(isinstance(i, Simulated) for i in idx):
        raise DeviceError(
            f"indices should be either on cpu or on the same device as the indexed tensor (cpu) [{_where()}]"
        )
    for i in idx if there else ():
        if not isinstance(i, Simulated):
            _note("blocking copy", name)
        elif i.dtype in (torch.bool, torch.uint8):
            _note("wait", f"{name} by a mask")
    if (
        name.startswith(("index_put", "_index_put"))
        and there != isinstance(args[2], Simulated)
        and args[2].dim()
    ):
        raise DeviceError(
            f"{name}: tensor on {args[0].device}, values on {args[2].device} [{_where()}]"
        )


def _check_devices(func, name, here):
    bad = [x for x in here if x.dim() or name in _STRICT]
    if bad and not (name.startswith("_foreach") and not any(x.dim() for x in bad)):
        raise DeviceError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu: "
            f"{func} with a CPU tensor of shape {tuple(bad[0].shape)} [{_where()}]"
        )


def _check_generators(func, generators, on_cuda):
    for generator in generators:
        if bool(generator.initial_seed() & _CUDA_SEED) != on_cuda:
            wanted, found = ("cuda", "cpu") if on_cuda else ("cpu", "cuda")
            raise DeviceError(
                f"Expected a '{wanted}' device type for generator but found '{found}': {func} [{_where()}]"
            )


def _note_copies(name, args, kwargs, there, to_cuda, to_cpu):
    if name == "_to_copy" and there and to_cpu:
        _note("wait", "copy back")
    if name == "copy_" and isinstance(args[0], Simulated) != isinstance(args[1], Simulated):
        _note("wait" if isinstance(args[1], Simulated) else "blocking copy", name)
    if name == "_to_copy" and to_cuda and not there:
        address = args[0].untyped_storage().data_ptr()
        _note(
            "copy" if kwargs.get("non_blocking") and address in _pinned else "blocking copy", name
        )


def _run(func, args, kwargs):
    """Check the rules, note what waits, and compute on the CPU."""
    name = func._schema.name.split("::")[1]
    flat, spec = tree_flatten((args, kwargs))
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    there, here = (
        [x for x in tensors if isinstance(x, Simulated) is side] for side in (True, False)
    )
    device = kwargs.get("device")
    to_cuda, to_cpu = _is_cuda(device), device is not None and torch.device(device).type == "cpu"
    on_cuda = to_cuda or bool(there) and not to_cpu
    if name in _INDEXING:
        _check_index(
            name, args, isinstance(args[0], Simulated), [i for i in args[1] if i is not None]
        )
    elif there and here and name not in _MIXED:
        _check_devices(func, name, here)
    _check_generators(func, [x for x in flat if isinstance(x, _Generator)], on_cuda)
    if there and name in _WAITING:
        _note("wait", name)
    if (
        name == "copy_"
        and there
        and not isinstance(args[0], Simulated)
        and args[0].untyped_storage().data_ptr() in _pinned
        and (*args, kwargs.get("non_blocking", False))[2]
    ):
        return _copy_late(args[0], args[1])
    _note_copies(name, args, kwargs, there, to_cuda, to_cpu)
    if on_cuda and not func.is_view and name not in _FREE:
        LAUNCHED[name] += 1
    return _compute(
        func, name, flat, spec, tensors, on_cuda and name != "_local_scalar_dense", to_cpu
    )


def _compute(func, name, flat, spec, tensors, on_cuda, to_cpu):
    plain = [
        x.inner
        if isinstance(x, Simulated)
        else torch.device("cpu")
        if isinstance(x, torch.device) and x.type == "cuda"
        else x
        for x in flat
    ]
    args, kwargs = tree_unflatten(plain, spec)
    pinned = kwargs.get("pin_memory")
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = False
    out = func(*args, **kwargs)
    if pinned:
        _pinned.add(out.untyped_storage().data_ptr())
    first = flat[0] if flat else None
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
    tensors_both = isinstance(out, torch.Tensor) and isinstance(first, torch.Tensor)
    if writes and (not func._schema.returns or tensors_both):
        return first if func._schema.returns else out
    if name == "_to_copy" and to_cpu:
        return (
            out.clone() if any(out is x.inner for x in tensors if isinstance(x, Simulated)) else out
        )
    known = {id(x.inner): x for x in tensors if isinstance(x, Simulated)}

    def wrap(x):
        return known.get(id(x)) if id(x) in known else Simulated(x) if on_cuda else x

    return tree_map(
        lambda x: wrap(x) if isinstance(x, torch.Tensor) and not isinstance(x, Simulated) else x,
        out,
    )


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


_plain_run = threading.Thread.run


def _run_with_rules(thread):
    with _Mode():
        _plain_run(thread)


class _AnyGenerator(_Generator):
    """torch.Generator for either device; it draws on the CPU in both cases."""

    def __new__(cls, device="cpu"):
        made = _Generator.__new__(cls, "cpu")
        made.there = _is_cuda(device)
        return made.manual_seed(0)

    def __init__(self, device="cpu"):
        pass

    def manual_seed(self, seed):
        _Generator.manual_seed(self, seed % _CUDA_SEED | (_CUDA_SEED if self.there else 0))
        return self

    @property
    def device(self):
        return CUDA if self.there else torch.device("cpu")


def _tensor(real):
    def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
        made = real(data, dtype=dtype)
        made = made.to("cuda") if _is_cuda(device) else made
        return made.requires_grad_(requires_grad) if requires_grad else made

    return tensor


@contextlib.contextmanager
def gpu(native_bf16: bool = True):
    """Inside the block there is a GPU. `native_bf16`: whether it knows bfloat16."""
    import torch.cuda.amp.common

    def state():
        return torch.zeros(16, dtype=torch.uint8)

    changes = [
        (torch.cuda, "_lazy_init", lambda: None),
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "is_initialized", lambda: True),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "current_device", lambda: 0),
        (torch.cuda, "set_device", lambda d: None),
        (torch.cuda, "get_device_name", lambda d=None: "a played GPU"),
        (torch.cuda, "max_memory_allocated", lambda d=None: 0),
        (torch.cuda, "mem_get_info", lambda d=None: (15e9, 16e9)),
        (torch.cuda, "memory_reserved", lambda d=None: 0),
        (torch.cuda, "memory_allocated", lambda d=None: 0),
        (torch.cuda, "synchronize", lambda *a: None),
        (torch.cuda, "Event", _Event),
        (torch.cuda, "Stream", _Stream),
        (torch.cuda, "current_stream", lambda *a: _Stream()),
        (torch.cuda, "stream", lambda s: contextlib.nullcontext()),
        (torch.cuda, "get_device_capability", lambda d=None: (8, 0) if native_bf16 else (7, 5)),
        (Simulated, "record_stream", lambda self, s: None),
        (threading.Thread, "run", _run_with_rules),
        (torch.cuda, "_is_in_bad_fork", lambda: False),
        (torch.cuda, "get_rng_state", lambda d=None: torch.get_rng_state()),
        (torch.cuda, "set_rng_state", lambda s, d=None: None),
        (torch.cuda, "get_rng_state_all", lambda: [state()]),
        (torch.cuda, "set_rng_state_all", lambda s: None),
        (torch.cuda, "manual_seed", lambda s: None),
        (torch.cuda, "manual_seed_all", lambda s: None),
        (
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation=True: native_bf16 or including_emulation,
        ),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch, "tensor", _tensor(torch.tensor)),
        (torch, "Generator", _AnyGenerator),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for change in changes:
        setattr(*change)
    # a module keeps its parameters, as on a real GPU
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with _Mode():
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        for change in before:
            setattr(*change)


def launched() -> int:
    """Count the operations put into the queue so far, and forget them. A list of tensors that one
    call works on counts once.
    """
    found = LAUNCHED.total()
    LAUNCHED.clear()
    return found


def counted() -> dict[str, int]:
    """Count the events so far by kind, and forget them."""
    found = collections.Counter(kind for kind, _, _ in EVENTS)
    EVENTS.clear()
    return dict(found)
