"""Devices and precision: choosing a device, copying batches to it, reading results without
synchronizing, half precision and loss scaling.

A GPU works through a queue, and the CPU waits only when it reads a number that is not computed yet.
The helpers for values that were sent (`sync_free_value`, `with_cpu_copy`, `AsyncScalar`) therefore keep a CPU copy,
or read a value later. A Mac's GPU ("mps") is never chosen: it has no float64, which several
chapters need, and its random state cannot be saved and restored as CUDA's can.
tests/test_cuda_rules.py checks these rules with a simulated GPU, which counts how often the CPU
would have waited.
"""

__all__ = [
    "PRECISIONS",
    "choose_device",
    "usable_device",
    "new_accelerator",
    "leave_process_group",
    "check_device",
    "meta_init",
    "drawing_device",
    "without_waiting",
    "sync_free_value",
    "with_cpu_copy",
    "AsyncScalar",
    "map_tensors",
    "to_device",
    "imitates_bf16",
    "half_type",
    "autocast",
    "fast_kernels",
    "GpuInfo",
    "find_card",
    "product_speed",
    "LossScale",
]

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def choose_device() -> torch.device:  # a CUDA GPU if there is one, else the CPU; never a Mac's GPU
    """Choose where models run when nobody says otherwise: on the first GPU, or where `accelerate
    launch` started several processes, each on one of its own.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = os.environ.get("LOCAL_RANK", "")  # of this process, among those of this machine
    return (
        torch.device("cuda", int(place) % torch.cuda.device_count())
        if place.isdecimal()
        else torch.device("cuda")
    )


def usable_device(
    name: str | torch.device | None = None,  # None: as `choose_device` says
) -> torch.device:
    """Find a device. Raises ValueError for one that this torch, or this machine, has not."""
    wanted = name or choose_device()
    try:
        return torch.empty(0, device=wanted).device
    except (AssertionError, RuntimeError) as error:
        raise ValueError(
            f"expected a device that is here, such as cpu, got {str(wanted)!r}: {str(error).splitlines()[0]}"
        ) from None


def new_accelerator(
    **options,  # further arguments of accelerate.Accelerator
):  # -> accelerate.Accelerator
    """Make an Accelerator for the device that `choose_device` names: left alone it would take a
    Mac's GPU.
    """
    from accelerate import Accelerator

    return Accelerator(cpu=choose_device().type == "cpu", **options)


def leave_process_group() -> None:
    """End the process group that an Accelerator began, once every process has arrived here; one
    process alone has none. torch 2.13 may abort a process at its exit otherwise: "terminate called
    without an active exception", seen with gloo on a busy machine.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def check_device(
    device: torch.device,
) -> torch.device:  # the same
    """Return `device`, or raise ValueError for a Mac's GPU, which lacks float64 and a random state
    that can be replayed.
    """
    if device.type == "mps":
        raise ValueError(
            "expected the CPU or a CUDA GPU, got mps, which lacks float64: make the accelerator with minbert.core.devices.new_accelerator()"
        )
    return device


class _NoDraws(TorchFunctionMode):
    """Leave every tensor as it is that torch.nn.init would fill."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


@contextmanager
def meta_init() -> Iterator[None]:
    """Make modules that have shapes and no numbers: load weights into them with `assign=True`."""
    with torch.device("meta"), _NoDraws():
        yield


def drawing_device(
    generator: torch.Generator | None,  # None: torch's own of the device at hand
    # where the numbers are wanted; None: where torch puts new tensors
    device: torch.device | None = None,
) -> torch.device | None:
    """Say where to draw: where the generator lives; without one, where the numbers are wanted."""
    return device if generator is None else generator.device


# how many blocks of `without_waiting` are open; in all threads, since backward passes have their
# own
_silent = 0


@contextmanager
def without_waiting() -> Iterator[None]:
    """Inside the block `sync_free_value` gives nothing that the CPU would have to wait for."""
    global _silent
    _silent += 1
    try:
        yield
    finally:
        _silent -= 1


def sync_free_value(
    x: Tensor,  # any tensor
) -> Tensor | None:  # the same numbers, to be looked at; None: looking would make the CPU wait
    """Give `x` itself on a CPU; elsewhere the original that was sent there, else `x` in ordinary
    use and None `without_waiting`.

    None inside torch.compile, too, where looking at values would split the graph.
    """
    if torch.compiler.is_compiling():
        return None
    if x.device.type == "cpu":
        return x
    original = getattr(x, "_original", None)
    return original if original is not None or _silent else x


def with_cpu_copy(
    f: Callable,  # of one or more tensors -> a tensor
    *tensors: Tensor,
) -> Tensor:  # f(*tensors), with an original if all of `tensors` have one
    """Compute on the device, and once more on the CPU for those who want to look."""
    result, originals = f(*tensors), [getattr(x, "_original", None) for x in tensors]
    if all(x is not None for x in originals):
        result._original = f(*originals)
    return result


class AsyncScalar:
    """A few numbers on their way to the CPU; nobody waits for them before they are read."""

    def __init__(
        self,
        x: Tensor,  # small, on any device, without graph
    ):
        self.numbers, self.there = x, None
        if x.device.type == "cuda":
            self.numbers = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(
                x, non_blocking=True
            )
            self.there = torch.cuda.Event()
            self.there.record()

    def read(self) -> Tensor:  # on the CPU if it came from there or from a GPU
        """Give the numbers; wait only if they are not there yet."""
        if self.there is not None:
            self.there.synchronize()
        return self.numbers


_ALIGNMENT = 16  # bytes; a view of another dtype must begin at a multiple of its size


def map_tensors(
    f: Callable,  # tensor -> tensor
    # tensors in nested dicts, lists, tuples and dataclasses; anything with `.to` counts as a tensor
    batch,
):  # the same structure
    """Apply a function to every tensor of a batch; leave the rest alone."""
    if isinstance(batch, dict):
        return {key: map_tensors(f, value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [map_tensors(f, value) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        return replace(
            batch,
            **{
                part.name: map_tensors(f, getattr(batch, part.name))
                for part in fields(batch)
                if part.init
            },
        )
    return f(batch) if hasattr(batch, "to") else batch


def to_device(
    batch,  # as in `map_tensors`
    device: torch.device | str,  # where it shall be
):  # the same structure there
    """Move a batch; to a GPU in one pinned copy that nobody waits for, with the originals kept for
    `sync_free_value`.

    Change neither the originals nor what was sent in place.
    """
    device = torch.device(device)
    plain: list[Tensor] = []

    def collect(x):
        if _is_plain(x):
            plain.append(x)
        return x

    if device.type == "cuda":
        map_tensors(collect, batch)
    moved = {id(x): there for x, there in zip(plain, _one_copy(plain, device))} if plain else {}
    return map_tensors(lambda x: moved[id(x)] if id(x) in moved else x.to(device), batch)


def _is_plain(x):
    """Tell whether a tensor is nothing but numbers on the CPU, which can be laid end to end with
    others.
    """
    return (
        isinstance(x, Tensor)
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and not x.requires_grad
    )


def _one_copy(tensors, device):
    """Lay tensors end to end, copy them, and give a view of each."""
    starts, total = [], 0
    for x in tensors:
        starts.append(total)
        total += -(-x.nbytes // _ALIGNMENT) * _ALIGNMENT

    def part(flat, x, start):
        return flat[start : start + x.nbytes].view(x.dtype).view(x.shape)

    packed = torch.empty(total, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for x, start in zip(tensors, starts):
        part(packed, x, start).copy_(x)
    flat = packed.to(device, non_blocking=True)
    for x, start in zip(tensors, starts):
        there = part(flat, x, start)
        there._original = x
        yield there


PRECISIONS = ("fp32", "bf16", "fp16")


def imitates_bf16(device: torch.device) -> bool:
    """Tell whether a device has no products of bfloat16 matrices, so that torch would imitate them,
    slowly.
    """
    if device.type == "cuda":
        return not torch.cuda.is_bf16_supported(including_emulation=False)
    return not (
        torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def half_type(
    device: torch.device,
    precision: str,  # one of PRECISIONS
) -> torch.dtype | None:  # of matrix products; None: float32
    """Choose the dtype of matrix products. Where "bf16" is only imitated, a GPU takes float16 and a
    CPU stays with float32.

    Raises ValueError for an unknown precision, and for fp16 on a CPU.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"expected precision 'fp32', 'bf16' or 'fp16', got {precision!r}")
    if precision == "fp16" and device.type != "cuda":
        raise ValueError(f"expected a CUDA GPU for precision 'fp16', got {device.type}: use 'bf16'")
    if precision == "bf16" and imitates_bf16(device):
        return torch.float16 if device.type == "cuda" else None
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def autocast(
    device: torch.device,
    precision: str,  # one of PRECISIONS
) -> torch.autocast:
    """Give the context in which matrix products have a precision; "fp32" switches an outer one off."""
    dtype = half_type(device, precision)
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


@contextmanager
def fast_kernels(device: torch.device) -> Iterator[None]:
    """Inside the block a GPU rounds the factors of fp32 products to TF32, and plans no attention.
    On a CPU nothing changes.

    cuDNN's attention is planned anew for every shape (18 ms a call when measured on an H100), and
    batches of sentences keep changing theirs.
    """
    if device.type != "cuda":
        yield
        return
    cuda = torch.backends.cuda
    name, fast = (
        ("fp32_precision", "tf32")
        if hasattr(cuda.matmul, "fp32_precision")
        else ("allow_tf32", True)
    )
    before = getattr(cuda.matmul, name), cuda.cudnn_sdp_enabled()
    setattr(cuda.matmul, name, fast)
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        setattr(cuda.matmul, name, before[0])
        cuda.enable_cudnn_sdp(before[1])


class GpuInfo(NamedTuple):
    """A GPU, as it tells of itself."""

    name: str
    memory: float  # GB
    free: float  # GB of it that a model can have now


def find_card(device: torch.device) -> GpuInfo | None:  # None: not a GPU
    """Ask the card of a device; what torch has set aside there counts as free."""
    if device.type != "cuda":
        return None
    free, memory = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return GpuInfo(torch.cuda.get_device_name(device), memory / 1e9, (free + unused) / 1e9)


def product_speed(
    device: torch.device,
    precision: str,  # one of PRECISIONS
    width: int = 4096,  # of the square matrices
    rounds: int = 8,  # the first warms up, the best of the others counts
) -> float:  # operations a second
    """Measure how fast a device multiplies matrices in a precision. Raises ValueError as
    `half_type`.
    """
    # equal numbers would cost a card less power, and look faster
    draw = torch.Generator(device).manual_seed(0)
    a = torch.rand(width, width, device=device, generator=draw).to(
        half_type(device, precision) or torch.float32
    )
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times = []
    with fast_kernels(device):
        for _ in range(rounds):
            wait()
            start = time.perf_counter()
            a @ a
            wait()
            times.append(time.perf_counter() - start)
    return 2 * width**3 / min(times[1:])


class LossScale:
    """Keep small gradients of float16 products from becoming 0: a factor for the losses, taken out
    of the gradients again.

    Paper: Micikevicius et al. (2018), section 3.2. Differs: a step that overflows is taken again,
    not left out.
    """

    def __init__(
        self,
        factor: float = 2.0**16,  # at the start, a power of two; torch's GradScaler
        patience: int = 2000,  # good steps before it is doubled; torch's GradScaler
    ):
        self.factor, self.patience, self.good = factor, patience, 0

    def around(
        self,
        backward: Callable,  # losses -> adds their gradient to `.grad`
        parameters: list[nn.Parameter],  # those that `backward` reaches
    ) -> Callable:  # the same, through scaled losses
        """Scale the losses on the way in, and the gradients back on the way out."""

        def scaled(losses):
            self._multiply(parameters, self.factor)  # what earlier batches left there
            backward({name: loss * self.factor for name, loss in losses.items()})
            self._multiply(parameters, 1 / self.factor)

        return scaled

    def _multiply(self, parameters, factor):
        if grads := [p.grad for p in parameters if p.grad is not None]:
            torch._foreach_mul_(grads, factor)

    def passed(self) -> None:
        """Count a good step."""
        self.good += 1
        if self.good >= self.patience:
            self.factor, self.good = 2 * self.factor, 0

    def overflowed(self) -> bool:  # whether it is worth another try
        """Halve the factor; below 1 the fault is not the factor's."""
        self.factor, self.good = self.factor / 2, 0
        return self.factor >= 1

    def state_dict(self) -> dict:  # numbers
        """Give what a resumed run needs."""
        return {"factor": self.factor, "good": self.good}

    def load_state_dict(self, state: dict) -> None:  # of `state_dict`
        """Go on with the factor of a saved run."""
        self.factor, self.good = state["factor"], state["good"]
