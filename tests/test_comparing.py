"""When two results agree: tolerances by dtype, and what is compared before the numbers."""

import math

import torch

from minbert.course.check_runner import AUTOCAST, Case, Outcome, Trial, make_cases, run_all
from minbert.course.compare import compare
from minbert.course.feedback import judge
from minbert.course.source_tools import edited


def average_cases(generator):
    return [
        Case(
            "three words, two pads",
            {
                "words": torch.rand(5, generator=generator, dtype=torch.float64),
                "mask": torch.tensor([1, 1, 1, 0, 0]),
            },
        ),
        Case(
            "no pads",
            {
                "words": torch.rand(3, generator=generator, dtype=torch.float64),
                "mask": torch.ones(3),
            },
        ),
    ]


average_trial = Trial(
    average_cases,
    lambda f, inputs: {"average": f(**inputs)},
    ("How many words are there, without pads?",),
)


def average(words, mask):
    return (words * mask).sum() / mask.sum()


def averages_in_place(words, mask):
    return words.mul_(mask).sum() / mask.sum()


def crashes(words, mask):
    return words / mask[:2]


def test_right_programs_agree_and_each_wrong_one_is_said_to_differ():
    def first_difference(f):
        pairs = zip(run_all(average_trial, average), run_all(average_trial, f))
        return next((d for d in (compare(average_trial, *pair) for pair in pairs) if d), None)

    assert first_difference(average) is None
    infinite, number = (Outcome("", {"x": torch.tensor(v)}) for v in (-math.inf, 3.0))
    assert compare(average_trial, infinite, number) and not compare(
        average_trial, infinite, infinite
    )
    assert (
        first_difference(
            lambda words, mask: torch.einsum("t,t->", words, mask.to(words)) / mask.sum()
        )
        is None
    )
    for wrong in (
        averages_in_place,
        crashes,
        lambda words, mask: (words * mask).sum(0, keepdim=True),
        lambda words, mask: words.mean(),
        lambda words, mask: average(words, mask) * math.nan,
        lambda words, mask: average(words, mask).long(),
    ):
        assert first_difference(wrong).problem


def test_the_tolerance_follows_the_dtype_of_the_reference():
    third, coarse = torch.tensor([1 / 3, 10.0]), torch.tensor([1 / 3, 10.0]).bfloat16()

    def said(a, b, way=""):
        return compare(average_trial, Outcome("", {"x": a}, way=way), Outcome("", {"x": b}))

    assert said(third, coarse) and not said(coarse, coarse.clone()) and said(coarse, coarse * 1.01)
    # who computes in double is not held to it
    assert not said(third, third.double() * 1.00001) and said(third.double(), third * 1.00001)
    assert (
        said(third, third * 1.0005)
        and not said(third, third * 1.0005, AUTOCAST)
        and said(third, third * 1.005, AUTOCAST)
    )


def test_a_known_mistake_is_named_by_the_numbers_it_gives():
    right = "def average(words, mask):\n    return (words * mask).sum() / mask.sum()"
    mistakes = [
        ("/ mask.sum()", "/ len(mask)", "The pads are counted in the length."),
        ("(words * mask).sum()", "words.sum()", "The pads are added up with the words."),
    ]
    known = []
    for old, new, says in mistakes:
        names = {}
        exec(edited(right, [(old, new)]), names)
        known.append((says, run_all(average_trial, names["average"]).__getitem__))

    def verdict(f):
        return judge(
            "average",
            average_trial,
            run_all(average_trial, average),
            run_all(average_trial, f),
            known,
            make_cases(average_trial, 11711),
        )

    assert verdict(lambda words, mask: torch.dot(words, mask.to(words)) / mask.sum()).passed
    pads_counted = verdict(lambda words, mask: torch.dot(words, mask.to(words)) / words.numel())
    assert pads_counted.mistake == "The pads are counted in the length."
