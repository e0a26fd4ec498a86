"""Training steps on any device, in any precision, by one process or several.

`minbert.training.steps` takes its steps with the lesson's `one_step`. A `DeviceStep` can be passed to it
instead; it computes the same losses, gradients and updates, and differs in how it runs them:

- The batch is sent to the device of the model, and matrix products can run in bfloat16 or float16.
  In float16 the losses are scaled, and a step whose gradient overflows is repeated with a smaller
  scale (Micikevicius et al. 2018).
- On a GPU the CPU waits once in a step, for the norm of the gradient. The losses are read last,
  when they have arrived.
- Several processes start from the weights of the first and average their gradients. The mean over
  the processes is the gradient of the whole batch if each process multiplies its mean loss by
  processes * own rows / all rows, because (1/N) sum L = (1/P) sum_p (P n_p / N) mean_p.

tests/test_training.py compares both ways.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from minbert.core.devices import (
    AsyncScalar,
    LossScale,
    autocast,
    fast_kernels,
    half_type,
    to_device,
    without_waiting,
)
from minbert.core.finite_checks import NotFinite, updated_parameters

__all__ = ["DeviceStep", "losses_on_device", "clip_by_global_norm", "average_gradients"]


class DeviceStep:
    """Takes a training step, as `minbert.training.one_step` does, on any device and in any precision."""

    def __init__(
        self,
        accelerator=None,  # accelerate.Accelerator, to share the work among processes
        precision: str = "fp32",  # of matrix products: fp32, bf16 or, on a GPU, fp16
        scale: LossScale | None = None,  # of float16 products; a resumed run brings its own
    ):
        several = accelerator is not None and accelerator.num_processes > 1
        self.accelerator = accelerator if several else None
        self.precision = precision
        self.scale = LossScale() if scale is None else scale
        self.weights_are_shared = not several

    def __call__(
        self,
        model: nn.Module,
        batches: list,  # those of this step, at least one
        loss_fn: Callable,  # (model, batch) -> dict of task -> () losses, or one () loss
        optimizer: torch.optim.Optimizer,
        backward: Callable,  # losses -> adds their gradients to `.grad`
        max_grad_norm: float | None = None,  # None: gradients are not clipped
    ) -> tuple[dict[str, float], float]:  # loss of each task, and norm before clipping
        """Take one step. Raises NotFinite for a loss or gradient that is not finite, before any
        parameter changes.
        """
        device = device_of(model)
        parameters = updated_parameters(model, optimizer)
        if not self.weights_are_shared:
            _copy_weights(parameters.values())
            self.weights_are_shared = True
        settings = (model, batches, loss_fn, optimizer, parameters, device, max_grad_norm)
        with without_waiting(), fast_kernels(device):
            if half_type(device, self.precision) == torch.float16:
                return self._scaled_step(backward, *settings)
            return self._step(backward, *settings)

    def _step(
        self, backward, model, batches, loss_fn, optimizer, parameters, device, max_grad_norm
    ):
        """Take one step; on a GPU, read the losses as late as possible."""
        optimizer.zero_grad(set_to_none=True)
        seen = []
        try:
            for batch in batches:
                losses = losses_on_device(model, batch, loss_fn, self.precision)
                seen.append((list(losses), AsyncScalar(self._stacked(losses))))
                if device.type == "cpu":
                    _named_values(*seen[-1])  # a bad loss is rejected before the backward pass
                backward({name: loss / len(batches) for name, loss in losses.items()})
            if self.accelerator is not None:
                average_gradients(parameters.values(), self.accelerator)
            norm = clip_by_global_norm(parameters, max_grad_norm)
        except NotFinite:
            _mean_values(seen)  # a bad loss says more than the gradient that it spoils
            raise
        total = _mean_values(seen)
        optimizer.step()
        return total, norm

    def _scaled_step(self, backward, *settings):
        """Take one step with scaled losses; repeat it with a smaller scale if it overflows."""
        parameters = list(settings[4].values())
        while True:
            try:
                done = self._step(self.scale.around(backward, parameters), *settings)
            except NotFinite:
                if not self.scale.overflowed():
                    raise
            else:
                self.scale.passed()
                return done

    def _stacked(self, losses):
        """Stack the losses, averaged over the processes: (tasks,)."""
        values = torch.stack([loss.detach() for loss in losses.values()])
        if self.accelerator is None:
            return values
        return self.accelerator.reduce(values, reduction="mean")


def device_of(model: nn.Module) -> torch.device:
    """Find where a model is; one without parameters is on the CPU."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def losses_on_device(
    model: nn.Module,
    batch,  # whatever `loss_fn` takes
    loss_fn: Callable,  # (model, batch) -> dict of task -> () losses, or one () loss
    precision: str = "fp32",  # of matrix products: fp32, bf16 or, on a GPU, fp16
) -> dict[str, Tensor]:  # task -> () float32 or wider; a single loss is called "loss"
    """Send a batch to the model and compute its losses.

    Raises ValueError for a loss that is not one number, and for an unknown precision.
    """
    device = device_of(model)
    with autocast(device, precision):
        losses = loss_fn(model, to_device(batch, device))
    losses = losses if isinstance(losses, dict) else {"loss": losses}
    for name, loss in losses.items():
        if not isinstance(loss, Tensor) or loss.ndim:
            got = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"expected one number as the loss of {name!r}, got {got}")
    return {k: v.to(torch.promote_types(v.dtype, torch.float32)) for k, v in losses.items()}


def clip_by_global_norm(
    parameters: dict[str, Tensor],  # name -> parameter; those without `.grad` are skipped
    max_norm: float | None = None,  # None: measure only
) -> float:  # norm of the gradient before clipping
    """Measure and clip as `minbert.training.clip_gradients` does, with one operation for all
    parameters.
    """
    grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    if not grads:
        return 0.0
    norms = torch.stack([g.float() for g in torch._foreach_norm(list(grads.values()))])
    total = torch.linalg.vector_norm(norms).item()
    if not math.isfinite(total):
        bad = next((name for name, n in zip(grads, norms.tolist()) if not math.isfinite(n)), "all")
        raise NotFinite(f"expected a finite gradient, got norm {total}; first in {bad}")
    if max_norm is not None and total > max_norm:
        torch._foreach_mul_(list(grads.values()), max_norm / total)
    return total


def average_gradients(
    parameters: Iterable[Tensor],  # the same ones in the same order on every process
    accelerator,  # accelerate.Accelerator
) -> None:
    """Replace every `.grad` by its mean over the processes, in one message.

    A parameter without a gradient counts as zero. It stays without one if no process has one, so
    that an optimizer skips it; for this purpose the message begins with one flag per parameter.
    """
    parameters = list(parameters)
    flags = torch.tensor([float(p.grad is not None) for p in parameters])
    grads = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    flat = torch.cat([flags.to(grads[0]), *grads])  # flags, then all gradients
    flat = accelerator.reduce(flat, reduction="mean")
    used, *parts = flat.split([len(parameters), *map(len, grads)])
    for p, flag, part in zip(parameters, used.tolist(), parts):
        p.grad = part.view_as(p) if flag else None


@torch.no_grad()
def _copy_weights(parameters):
    """Give every process the weights of the first."""
    from accelerate.utils import broadcast

    for p in parameters:
        p.copy_(broadcast(p.detach().clone()))


def _named_values(names, arriving):
    """Read the losses of one batch. Raises NotFinite for one that is not finite."""
    values = dict(zip(names, arriving.read().tolist()))
    for name, value in values.items():
        if not math.isfinite(value):
            raise NotFinite(f"expected a finite loss for task {name!r}, got {value}")
    return values


def _mean_values(seen):
    """Average the losses over the batches of a step."""
    total = {}
    for names, arriving in seen:
        for name, value in _named_values(names, arriving).items():
            total[name] = total.get(name, 0.0) + value / len(seen)
    return total
