"""Graceful stopping: the first SIGINT or SIGTERM is noted, and the run finishes its step, saves and
stops.

By default Python raises KeyboardInterrupt in the middle of a step, with half of the weights
updated, and SIGTERM ends the process without a word.
"""

__all__ = ["Stopped", "StopRequest", "stop_requests"]

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(KeyboardInterrupt):
    """A run was asked to stop, has saved, and has stopped."""

    def __init__(
        self,
        step: int,  # steps that are done and saved
        number: int = signal.SIGINT,  # the signal that asked
    ):
        super().__init__(f"stopped at step {step}; resume=True goes on")
        self.step, self.number = step, number


class StopRequest:
    """Remembers the signal that asked to stop."""

    number: int | None = None  # None: nobody has asked

    def anywhere(
        self,
        world,
        # accelerate.Accelerator -> the signal that any of its processes noted; 0: none
    ) -> int:
        """Ask all processes: they stop after the same step, or they would wait for one another."""
        number = self.number or 0
        if world.num_processes > 1:
            import torch  # the command line needs `Stopped` and no torch

            number = int(world.gather(torch.tensor([number], device=world.device)).max())
        return number


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the first SIGINT or SIGTERM instead of dying of it; a second one acts as it did before.

    Only the main thread can hear signals; in another one nothing is ever noted.
    """
    request = StopRequest()
    earlier: dict = {}  # number of a signal -> its handler before

    def give_back():
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def note(number, frame):
        request.number = number
        give_back()

    if threading.current_thread() is threading.main_thread():
        earlier.update(
            {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        )
    try:
        yield request
    finally:
        give_back()
