"""AdamW prototype."""
import math
import torch
from torch import Tensor

__all__ = ["AdamW", "warmup_decay"]


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, correct_bias=correct_bias))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            for p in ps:
                if p not in self.state:
                    self.state[p] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            if not ps:
                continue
            st = [self.state[p] for p in ps]
            steps = [s["step"] for s in st]
            torch._foreach_add_(steps, 1)
            t = steps[0].item()
            b1, b2 = group["betas"]
            torch._fused_adamw_(ps, [p.grad for p in ps], [s["exp_avg"] for s in st], [s["exp_avg_sq"] for s in st], [], steps,
                                lr=group["lr"], beta1=b1, beta2=b2, weight_decay=0.0, eps=group["eps"] / math.sqrt(1 - b2**t), amsgrad=False, maximize=False)
            if group["weight_decay"]:
                torch._foreach_mul_(ps, 1 - group["lr"] * group["weight_decay"])


def warmup_decay(step, total, warmup=0, decay=None):
    """Factor of the peak rate: linear up over `warmup` steps, flat, linear down to 0 over the last `decay` steps."""
    decay = total - warmup if decay is None else decay
    up = min(1.0, (step + 1) / warmup) if warmup else 1.0
    down = min(1.0, (total - step) / decay) if decay else 1.0
    return max(0.0, min(up, down))
