"""Exercise cases of chapter 28: batches of equal token counts."""

import numpy as np
import torch

from minbert.course.check_runner import Case, Trial, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- corpus.cut
#
# Totals that meet the budget exactly, in the middle and at the end; a remainder; a sequence
# longer than the budget; an order that contains only some sequences, and an empty one; a budget
# that is never reached. Compared are the indices, the sizes of the batches, and their tokens.


def cut_cases(generator):
    def n(low, high, size):
        return torch.randint(low, high, (size,), generator=generator)

    def order(size, of=None):
        return torch.randperm(of or size, generator=generator)[:size]

    plain, long = n(3, 40, 60), n(3, 9, 20)
    long[torch.randperm(20, generator=generator)[:4]] = 50

    def case(label, order, lengths, budget):
        return Case(label, {"order": order, "lengths": lengths, "budget": budget})

    return [
        case("sixty sequences, a budget of 100", order(60), plain, 100),
        case("some of sixty sequences", order(25, 60), plain, 90),
        case("totals that meet the budget exactly", order(12), torch.full((12,), 5), 15),
        case("a rest of two", order(14), torch.full((14,), 5), 20),
        case("sequences longer than the budget", order(20), long, 30),
        case("every sequence a batch", order(9), n(7, 12, 9), 7),
        case("one batch that takes all", order(8), torch.full((8,), 4), 32),
        case("a budget that is not reached", order(5), n(1, 4, 5), 99),
        case("an empty order", order(0, 5), n(1, 4, 5), 3),
        case("a budget of one token", order(6), n(1, 5, 6), 1),
    ]


def run_cut(cut, inputs):
    order, lengths = inputs["order"].numpy(), inputs["lengths"].numpy()
    found = cut(order, lengths, inputs["budget"])
    if not isinstance(found, list) or not all(
        isinstance(batch, np.ndarray) and batch.dtype.kind in "iu" for batch in found
    ):
        return {"a list of arrays of whole numbers": False}
    batches = [torch.from_numpy(batch.astype(np.int64)) for batch in found]
    if any(batch.ndim != 1 for batch in batches):
        return {"batches of one axis": torch.tensor(False)}
    if any(
        len(batch) and not 0 <= int(batch.min()) <= int(batch.max()) < len(lengths)
        for batch in batches
    ):
        return {"indices of sequences that do not exist": torch.tensor(True)}
    return {
        "a list of arrays of whole numbers": True,
        "sequences in each batch": torch.tensor(
            [len(batch) for batch in batches], dtype=torch.int64
        ),
        "tokens in each batch": torch.tensor(
            [int(lengths[batch.numpy()].sum()) for batch in batches], dtype=torch.int64
        ),
        "indices": torch.cat([torch.zeros(0, dtype=torch.int64), *batches]),
    }


TRIALS["corpus.cut"] = Trial(
    cut_cases,
    run_cut,
    hints=(
        "How many tokens has a batch when it closes, and from where does the next one count?",
        (
            "Take the lengths in the given order. With a running total: the batch closes at the "
            "first sequence whose total is at least that of the last cut "
            "plus the budget."
        ),
        (
            "A loop will do: add the index to the batch and its length to the total; once the "
            "total is at least the budget, keep the batch and begin a new one "
            "from nothing. What is open at the end is dropped."
        ),
    ),
)


_WRONG_LAST = "last = np.searchsorted(ends, before + budget) + 1"
_WRONG_KEEP = "batches.append(order[first:last])"
_WRONG_NEXT = "first, before = last, ends[last - 1]"

MISTAKES["corpus.cut"] = [
    mistake(
        _WRONG_LAST,
        'last = np.searchsorted(ends, before + budget, side="right") + 1',
        "A batch that reaches the budget exactly is not closed (off by one).",
    ),
    mistake(
        _WRONG_LAST,
        'last = max(first + 1, np.searchsorted(ends, before + budget, side="right"))',
        "A batch is closed before it would exceed the budget. The sequence that reaches the "
        "budget still belongs to it.",
    ),
    mistake(
        "return batches",
        "return batches + ([order[first:]] if first < len(order) else [])",
        "The rest at the end is returned as a batch although it does not reach the budget.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(np.arange(first, last))",
        "The batches contain positions in `order`. They should contain the indices stored there.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(order[first:last + 1])",
        "The first sequence of the next batch is included too (off by one).",
    ),
    mistake(
        _WRONG_LAST,
        "last = first + budget",
        "The budget is used as a number of sequences. It counts tokens.",
    ),
    mistake(
        _WRONG_LAST,
        "last = next((k for k in range(first + 1, len(order) + 1) if (k - first) * "
        "lengths[order[first:k]].max() >= budget), len(order) + 1)",
        "Padding is counted. Only real tokens count here.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(order[first:last].tolist())",
        "The batches are lists. Arrays are expected: use `np.array`.",
    ),
]

VARIANTS["corpus.cut"] = [
    """
def cut_batches(order, lengths, budget):
    batches, batch, total = [], [], 0
    for i in order:
        batch.append(i)
        total += lengths[i]
        if total >= budget:
            batches.append(np.array(batch))
            batch, total = [], 0
    return batches
""",
    """
def cut_batches(order, lengths, budget):
    cuts, total = [0], 0
    for place, length in enumerate(lengths[order].tolist(), 1):
        total += length
        if total >= budget:
            cuts.append(place)
            total = 0
    return [order[a:b] for a, b in zip(cuts, cuts[1:])]
""",
    """
def cut_batches(order, lengths, budget):
    found, rest = [], order
    while lengths[rest].sum() >= budget:
        size = int((np.cumsum(lengths[rest]) < budget).sum()) + 1
        found.append(rest[:size])
        rest = rest[size:]
    return found
""",
]
