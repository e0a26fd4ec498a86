"""What every optimizer is made of, without torch's compiler, whose loading takes a second of every run."""
import torch

__all__ = ["Optimizer"]


class Optimizer(torch.optim.Optimizer):
    """torch's base class of optimizers.

    Differs: torch keeps four of its methods out of compiled code, and loads its compiler to do so, compiled or not. Here they are plain.
    """


for _name in ("state_dict", "load_state_dict", "zero_grad", "add_param_group"):
    _method = getattr(torch.optim.Optimizer, _name)
    setattr(Optimizer, _name, getattr(_method, "__wrapped__", _method))
