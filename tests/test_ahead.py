"""Batches made one ahead: same ones, same order, and a reader that seems to stand where its user
stands. The GPU's part is played in test_cuda_rules.py.
"""

import threading

import pytest
import torch

from minbert.core import prefetch
from minbert.core.prefetch import Ahead


class Counter:
    """A reader that can go on: batch k is k."""

    def __init__(self, end=6, bad=None):
        self.at, self.end, self.bad = 0, end, bad

    def __iter__(self):
        while self.at < self.end:
            self.at += 1
            if self.at - 1 == self.bad:
                raise ValueError(f"batch {self.bad} is bad")
            yield torch.tensor([self.at - 1])

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Lane:
    """Copies that take no time."""

    def __init__(self, device):
        self.order = []

    def send(self, batch):
        return batch, "mark"

    def hand_over(self, moved, there):
        assert there == "mark"
        return moved


@pytest.fixture
def far(monkeypatch):
    """A device that wants batches made prefetch, without copies."""
    monkeypatch.setattr(prefetch, "_Lane", Lane)
    return torch.device("cuda")


def numbers(batches):
    return [batch.item() for batch in batches]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_same_batches_in_the_same_order(far, place):
    reader = Counter()
    assert numbers(Ahead(torch.device(place), reader).over(reader)) == [0, 1, 2, 3, 4, 5]
    assert numbers(Ahead(torch.device(place)).over(iter([]))) == []


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_state_is_that_of_the_batch_handed_out_last(far, place, stop):
    reader = Counter()
    supply = Ahead(torch.device(place), reader)
    seen, states = [], []
    for batch in supply.over(reader):
        seen.append(batch.item())
        states.append(supply.state_dict())
        if len(seen) == stop:
            break
    assert states == [{"at": k + 1} for k in range(stop)]
    other = Counter()
    again = Ahead(torch.device(place), other)
    again.load_state_dict(states[-1])
    assert seen + numbers(again.over(other)) == [0, 1, 2, 3, 4, 5]


def test_who_stops_early_leaves_the_reader_where_he_stood(far):
    reader = Counter()
    supply = Ahead(far, reader)
    run = supply.over(reader)
    assert [next(run).item(), next(run).item()] == [0, 1]
    run.close()
    assert reader.at == 2 and supply.state_dict() == {"at": 2}
    assert numbers(supply.over(reader)) == [2, 3, 4, 5] and reader.at == 6


def test_the_next_batch_is_made_while_this_one_is_used_and_no_more_than_one(far):
    reader, made = Counter(), threading.Semaphore(0)
    supply = (made.release() or batch for batch in reader)
    run = Ahead(far).over(supply)
    next(run)
    assert all(made.acquire(timeout=30) for _ in range(2))  # this one and the next
    assert not made.acquire(timeout=0.2)
    run.close()


def test_nothing_is_made_before_somebody_asks(far):
    reader = Counter()
    run = Ahead(far, reader).over(reader)
    assert reader.at == 0
    next(run), run.close()


def test_an_error_comes_when_its_batch_would_and_names_what_was_wrong(far):
    reader = Counter(bad=3)
    supply, seen = Ahead(far, reader), []
    with pytest.raises(ValueError, match="batch 3 is bad"):
        for batch in supply.over(reader):
            seen.append(batch.item())
    assert seen == [0, 1, 2] and supply.state_dict() == {"at": 3}


def test_no_thread_stays(far):
    before = threading.active_count()
    reader = Counter()
    run = Ahead(far, reader).over(reader)
    next(run), run.close()
    assert threading.active_count() == before
