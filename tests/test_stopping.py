"""Stopping: a signal is noted, the step is finished, and a second signal acts at once."""

import os
import signal
import threading

import pytest

from minbert.core.graceful_stop import Stopped, stop_requests


def test_a_signal_stops_a_run_after_its_step():
    def loop(steps, at):  # a run that is asked to stop in the middle of a step
        with stop_requests() as request:
            for step in range(steps):
                if step == at:
                    os.kill(os.getpid(), signal.SIGTERM)
                if request.number:
                    raise Stopped(step + 1, request.number)
        return steps

    assert loop(5, at=None) == 5
    try:
        loop(5, at=3)
    except Stopped as stopped:
        assert (stopped.step, stopped.number) == (4, signal.SIGTERM)


def test_a_second_signal_interrupts_and_the_old_handlers_return():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with stop_requests() as request:
        os.kill(os.getpid(), signal.SIGINT)
        assert request.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt) as caught:
            os.kill(os.getpid(), signal.SIGINT)
        assert not isinstance(caught.value, Stopped)
    signal.signal(signal.SIGINT, before[0])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before

    heard = []

    def elsewhere():
        with stop_requests() as request:
            heard.append(request.number)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert heard == [None]
