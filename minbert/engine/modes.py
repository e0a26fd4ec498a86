"""How a module runs: for a while in eval mode, and then as it was; or by what torch.compile made of it."""
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode, and each part back into its own mode afterwards, even after an error."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def compiled(module: nn.Module) -> bool:
    """Tell whether torch.compile has had the module or a part of it: it has plans of its own."""
    return any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in module.modules())


def compile_parts(parts: Iterable[nn.Module]) -> None:
    """Hand modules of one kind to torch.compile, with open sizes: one program serves them all."""
    for part in parts:
        part.compile(dynamic=True)
