"""Recorded calls: what an answer returned is stored call by call, and a check that needs statistics
is repeated on the recording.

If the process of the answer counted by itself, it could report the right share without drawing a
single number.
"""

__all__ = ["CallRecording", "stand_in"]

import torch
from torch import Tensor

from .side_effects import leaves


class CallRecording:
    """What the calls of an implementation gave back, as named tensors."""

    def __init__(self):
        self.tensors, self.count = {}, 0

    def record(self, given: list[Tensor], before: list[Tensor], result, moved: list[bool]) -> None:
        """Note one call: its result, which generators it moved (torch's own first), what it wrote
        into its arguments.

        Raises TypeError if the result is no tensor, number, or list or tuple of them.
        """
        name, self.count = f"call {self.count}", self.count + 1
        for i, x in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            if not isinstance(x, (Tensor, bool, int, float)):
                raise TypeError(f"expected a tensor back, got {type(x).__name__}")
            part = f"{name} part {i}" if isinstance(result, (list, tuple)) else name
            same = [
                k
                for k, g in enumerate(given)
                if x is g
                or isinstance(x, Tensor)
                and x.numel()
                and x.data_ptr() == g.data_ptr()
                and x.shape == g.shape
            ]
            self.tensors[part] = torch.as_tensor(x).detach().clone()
            self.tensors[f"{part} is argument"] = torch.tensor(same[0] if same else -1)
            self.tensors[f"{part} has a graph"] = torch.tensor(
                isinstance(x, Tensor) and x.requires_grad
            )
        self.tensors[f"{name} moved"] = torch.tensor(moved)
        for k, (old, new) in enumerate(zip(before, given)):
            if not torch.equal(old.nan_to_num(), new.detach().nan_to_num()):
                self.tensors[f"{name} wrote {k}"] = new.detach().clone()


def stand_in(
    implementation,  # function, or class that holds the method
    method: str,  # "" for a function
    tape: dict[str, Tensor],  # from `Tape.tensors`
):  # the same, but giving back what the tape holds
    """Make an implementation that repeats recorded results. Raises ValueError where the tape ends
    too early.
    """
    count = iter(range(10**6))

    def again(*args, **kwargs):
        name = f"call {next(count)}"
        if f"{name} moved" not in tape:
            raise ValueError(f"{name}: no result")
        held = list(leaves((args, kwargs)))
        given = [x for x in held if isinstance(x, Tensor)]
        generators = [torch.default_generator, *(x for x in held if isinstance(x, torch.Generator))]
        for g, moved in zip(generators, tape[f"{name} moved"].tolist()):
            if moved:
                torch.rand(1, generator=g)
        for k, x in enumerate(given):
            if f"{name} wrote {k}" in tape:
                x.data.copy_(tape[f"{name} wrote {k}"])
        parts = (
            [part for part in (f"{name} part {i}" for i in range(len(tape))) if part in tape]
            if name not in tape
            else [name]
        )
        results = [_restored(tape, part, given) for part in parts]
        return results[0] if name in tape else tuple(results)

    return (
        type(implementation)(implementation.__name__, (implementation,), {method: again})
        if method
        else again
    )


def _restored(tape: dict[str, Tensor], part: str, given: list[Tensor]) -> Tensor:
    k = int(tape[f"{part} is argument"])
    if 0 <= k < len(given):
        return given[k]
    x = tape[part].clone()
    return x.requires_grad_(bool(tape[f"{part} has a graph"])) if x.is_floating_point() else x
