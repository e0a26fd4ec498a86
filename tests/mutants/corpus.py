"""Mutants of `minbert.exercise_cases.corpus`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.corpus import _WRONG_KEEP, _WRONG_LAST, _WRONG_NEXT

MUTANTS = {}


_WRONG_ENDS = "np.cumsum(lengths[order])"


MUTANTS["corpus.cut"] = [
    mistake(
        _WRONG_LAST,
        'last = max(first + 1, np.searchsorted(ends, before + budget, side="right"))',
        "last > len(order)",
        "last >= len(order)",
        "No batch goes beyond the budget, as in chapter 01. Here the sequence that reaches it "
        "belongs to the batch.",
    ),
    mistake(
        _WRONG_ENDS,
        "np.cumsum(lengths[:len(order)])",
        "The lengths are read from the front of the table. They belong to the sequences that "
        "`order` names.",
    ),
    mistake(
        _WRONG_NEXT,
        "first, before = last, before + budget",
        "What a batch has beyond the budget is taken off the next one, so later batches fall "
        "short. Each counts from its own first sequence.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(order[first:last - 1])",
        "The sequence that reaches the budget is lost: it is in no batch.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(np.sort(order[first:last]))",
        "The indices of a batch are sorted; their order was given.",
    ),
    mistake(
        "last > len(order)",
        "last >= len(order)",
        "A batch that closes with the very last sequence is dropped. It is full.",
    ),
    mistake(
        _WRONG_NEXT,
        "first, before = last - 1, ends[last - 1]",
        "The last sequence of a batch begins the next one as well.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(order[first:last][::-1])",
        "The indices of a batch stand in reverse.",
    ),
    mistake("return batches", "return batches[:1]", "Only the first batch comes back."),
    mistake(
        _WRONG_LAST,
        "last = max(first, np.searchsorted(ends, before + budget)) + 1",
        _WRONG_NEXT,
        "first, before = last, before + budget",
        "The budget is taken off the total when a batch closes, and what is over stays in it. "
        "The next batch counts from nothing.",
    ),
    mistake(
        _WRONG_LAST,
        "last = max(first, np.searchsorted(ends, budget)) + 1",
        "The total goes on when a batch has closed, so every later sequence is a batch of its own.",
    ),
    mistake(
        _WRONG_KEEP,
        "batches.append(order[:last])",
        "A batch is not emptied when it closes, so each holds all those before it as well.",
    ),
]
