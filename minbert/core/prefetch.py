"""Prefetching: while a GPU works on a batch, a thread reads the next one and copies it to the
device. A resumed run sees the same batches.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from .devices import map_tensors, to_device


class Ahead:
    """Read a supply one batch ahead of its user, for a GPU; on a CPU, which has nothing to do
    meanwhile, one after the other.

    The supply is read in a thread of its own: what it draws has to come from generators of its own.
    `reader` is what knows how far the supply is read (a sampler): `state_dict` gives its state when
    the batch was made that was handed out last, so that a checkpoint forgets what is ahead.
    """

    def __init__(
        self,
        device: torch.device,  # where batches are used
        reader=None,  # with state_dict and load_state_dict; None: nobody goes on from here
    ):
        self.device, self.reader, self._state = device, reader, None

    def state_dict(self) -> dict:
        """Give the reader's state after the batch handed out last."""
        return self.reader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: dict) -> None:
        """Let the reader go on where `state_dict` stood; before `over`."""
        self.reader.load_state_dict(state)
        self._state = None

    def over(
        self,
        batches: Iterable,  # see `map_tensors`
    ) -> Iterator:  # the same batches in the same order; on a GPU, if they are for one
        """Yield the batches. An error of the supply comes when its batch would; who stops early
        leaves the reader where he stood.
        """
        if self.device.type == "cpu":
            yield from batches
            return
        lane, supply = _Lane(self.device), iter(batches)
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(self._read, supply, lane)
            try:
                while (found := coming.result()) is not None:
                    coming = thread.submit(self._read, supply, lane)
                    sent, self._state = found
                    yield lane.hand_over(*sent)
            finally:
                thread.shutdown(wait=True)
                if self._state is not None:
                    self.load_state_dict(self._state)

    def _read(self, supply, lane):
        """Make the next batch, send it, and note where the reader stands; None at the end."""
        for batch in supply:
            return lane.send(batch), None if self.reader is None else self.reader.state_dict()
        return None


class _Lane:
    """A queue of copies beside the queue of work."""

    def __init__(self, device):
        self.device, self.stream = device, torch.cuda.Stream(device)

    def send(self, batch):
        """Start the copies; give the batch, and the mark behind them."""
        with torch.cuda.stream(self.stream):
            moved, there = to_device(batch, self.device), torch.cuda.Event()
            there.record()
        return moved, there

    def hand_over(self, moved, there):
        """Let the work that follows wait for the copies, not the CPU; and keep the memory until
        that work is done.
        """
        work = torch.cuda.current_stream(self.device)
        work.wait_event(there)
        map_tensors(
            lambda x: x.record_stream(work) if isinstance(x, Tensor) and x.is_cuda else None, moved
        )
        return moved
