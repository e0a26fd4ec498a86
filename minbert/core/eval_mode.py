"""Running a module in eval mode for the length of a block, and recognizing a compiled module."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

from torch import nn

_changing = Lock()
# part -> how many blocks hold it in eval mode, and its own mode
_held: WeakKeyDictionary = WeakKeyDictionary()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode, and each part back into its own mode afterwards, even after an
    error. Of several threads the last one puts a part back.
    """
    parts = list(module.modules())
    with _changing:
        for part in parts:
            _held.setdefault(part, [0, part.training])[0] += 1
    try:
        module.eval()
        yield
    finally:
        with _changing:
            for part in parts:
                _let_go(part)


def _let_go(part):
    """End one block's hold on a part."""
    _held[part][0] -= 1
    if not _held[part][0]:
        part.training = _held.pop(part)[1]


def compiled(module: nn.Module) -> bool:
    """Tell whether torch.compile has had the module or a part of it: it has plans of its own."""
    return any(
        part._compiled_call_impl is not None or hasattr(part, "_orig_mod")
        for part in module.modules()
    )


def compile_parts(parts: Iterable[nn.Module]) -> None:
    """Hand modules of one kind to torch.compile, with open sizes: one program serves them all."""
    for part in parts:
        part.compile(dynamic=True)
