"""The base class of the optimizers: PyTorch's, without loading its compiler, and with checks of
settings and gradients.
"""

import math

import torch

from minbert.core.devices import sync_free_value

__all__ = ["Optimizer", "closure_loss", "check_group", "check_gradients"]


class Optimizer(torch.optim.Optimizer):
    """torch's base class of optimizers.

    Differs: torch keeps four of its methods out of compiled code, and loads its compiler to do so,
    compiled or not. Here they are plain.
    """


for _name in ("state_dict", "load_state_dict", "zero_grad", "add_param_group"):
    _method = getattr(torch.optim.Optimizer, _name)
    setattr(Optimizer, _name, getattr(_method, "__wrapped__", _method))


def closure_loss(closure):
    """Compute the loss again with `closure`, as torch's optimizers allow; None without one."""
    if closure is not None:
        with torch.enable_grad():
            return closure()


def check_group(group):
    """Raise ValueError for settings that cannot be meant; those that an optimizer does not have are
    passed over.
    """
    for name in ("lr", "eps", "weight_decay"):
        if not 0 <= group.get(name, 0) < math.inf:
            raise ValueError(f"expected {name} >= 0, got {group[name]}")
    betas = group.get("betas", (0, 0))
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"expected two betas in [0, 1), got {betas}")
    if not 0 <= group.get("momentum", 0) < 1:
        raise ValueError(f"expected momentum in [0, 1), got {group['momentum']}")


def check_gradients(groups):
    """Raise ValueError for a sparse or non-finite gradient, naming group and parameter."""
    where = [
        (i, j, p.grad)
        for i, group in enumerate(groups)
        for j, p in enumerate(group["params"])
        if p.grad is not None
    ]
    for i, j, grad in where:
        if grad.is_sparse:
            place = _place(groups, i, j)
            raise ValueError(f"expected dense gradients, got a sparse one at {place}")
    if not where:
        return
    if sync_free_value(where[0][2]) is None:  # in a training step on a GPU the loop has looked
        return
    norms = torch._foreach_norm([grad for _, _, grad in where])
    norms = torch.stack([n.to(norms[0].device, torch.float32) for n in norms])
    if torch.isfinite(norms).all():
        return
    for i, j, grad in where:  # a norm may overflow where no number does: look again
        if not torch.isfinite(grad).all():
            value = grad[~torch.isfinite(grad)][0].item()
            raise ValueError(f"expected finite gradients, got {value} at {_place(groups, i, j)}")


def _place(groups, i, j):
    """Say where a parameter is, by name if the group knows names."""
    group = groups[i]
    name = group["names"][j] + ", " if "names" in group else ""
    return f"{name}parameter {j} of group {i}, shape {tuple(group['params'][j].shape)}"
