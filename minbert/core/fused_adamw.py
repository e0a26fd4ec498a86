"""AdamW for long runs: the update of the chapter on AdamW in one pass over memory.

The lesson's `minbert.optim.AdamW` reads and writes every parameter in six operations. PyTorch has
a kernel that does all of them at once, but for the textbook form of the update. Our form follows
from it by a change of three numbers. With c = sqrt(1 - b2^t),

    alpha_t m / (sqrt(v) + eps)  =  lr / (1 - b1^t)  *  m / (sqrt(v) / c + eps / c),

so the kernel gets eps / c. The kernel decays before the step, and we decay after it:

    (p - lr d) (1 - lr wd)  =  p (1 - lr wd)  -  lr (1 - lr wd) d,

so the kernel gets the learning rate lr (1 - lr wd) and the decay wd / (1 - lr wd).
tests/test_optim.py compares both optimizers.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from minbert.core.optimizer import Optimizer, check_gradients, check_group

__all__ = ["FusedAdamW", "fused_step", "foreach_step"]


class FusedAdamW(Optimizer):
    """Adam with decoupled weight decay: the same updates and the same state as
    `minbert.optim.AdamW`, but faster.

    Differs: gradients are checked before anything changes. Raises ValueError for settings out of
    range and for a sparse or non-finite gradient.
    """

    def __init__(
        self,
        params: Iterable,  # tensors, or groups as `parameter_groups` gives them
        lr: float = 1e-3,  # learning rate
        betas: tuple[float, float] = (0.9, 0.999),  # decay of the averages m and v, in [0, 1)
        eps: float = 1e-6,  # added to the root of v
        weight_decay: float = 0.0,  # fraction of a parameter that a step removes, times lr
        correct_bias: bool = True,  # whether to correct the averages for their start at 0
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            check_group(group)

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch declares one signature with and one without
        self,
        closure: Callable | None = None,  # computes the loss again; rarely needed
    ) -> Tensor | float | None:  # result of the closure
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        check_gradients(self.param_groups)
        for group in self.param_groups:
            options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            for (t, _, _, fused), params in self._buckets(group).items():
                grads = [p.grad for p in params]
                means = [self.state[p]["exp_avg"] for p in params]
                squares = [self.state[p]["exp_avg_sq"] for p in params]
                update = fused_step if fused else foreach_step
                update(params, grads, means, squares, t, **options)
        return loss

    def _buckets(self, group):
        """Sort parameters into lists that one call can update; advance their step counts."""
        buckets = defaultdict(list)
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
            t = state["step"] if group["correct_bias"] else math.inf
            buckets[t, p.device, p.dtype, self._can_fuse(p, group)].append(p)
        return buckets

    @staticmethod
    def _can_fuse(p, group):
        """Tell whether the kernel may be used: it reads memory in order, so parameter and gradient
        must both be stored row by row.
        """
        stored_by_row = p.is_contiguous() and p.grad.is_contiguous()
        loses_everything = group["lr"] * group["weight_decay"] == 1
        return stored_by_row and not loses_everything and p.device.type in ("cpu", "cuda")


def fused_step(
    params: list[Tensor],  # parameters, changed in place
    grads: list[Tensor],  # their gradients
    means: list[Tensor],  # averages m, changed in place
    squares: list[Tensor],  # averages v, changed in place
    t: float,  # number of the step, 1 for the first; math.inf: no bias correction
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Update parameters with PyTorch's fused kernel, as the module's docstring derives."""
    keep = 1 - lr * weight_decay
    step = torch.full((), float(t), device=params[0].device)
    torch._fused_adamw_(
        params,
        grads,
        means,
        squares,
        [],
        [step] * len(params),
        lr=lr * keep,
        beta1=betas[0],
        beta2=betas[1],
        eps=eps / math.sqrt(1 - betas[1] ** t),
        weight_decay=weight_decay / keep,
        amsgrad=False,
        maximize=False,
    )


def foreach_step(
    params: list[Tensor],  # parameters, changed in place
    grads: list[Tensor],  # their gradients
    means: list[Tensor],  # averages m, changed in place
    squares: list[Tensor],  # averages v, changed in place
    t: float,  # number of the step, 1 for the first; math.inf: no bias correction
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Update parameters of any device and memory layout, each operation for all of them at once."""
    beta1, beta2 = betas
    step_size = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
    torch._foreach_mul_(means, beta1)
    torch._foreach_add_(means, grads, alpha=1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, eps)
    torch._foreach_addcdiv_(params, means, roots, -step_size)
    if weight_decay:
        torch._foreach_mul_(params, 1 - lr * weight_decay)
