"""Kinds of wrong programs that a check must reject in any exercise: each is right but for one
situation that few people try.
"""

import functools

import pytest
import torch
from torch import Tensor

from minbert.course.check_runner import DERIVED, SMALL, new_generator
from minbert.course.diagnosis import relation
from minbert.course.exercises import (
    EXERCISES,
    build,
    cases,
    exercise,
    expected_outcomes,
    reference,
    right_definition,
    verdict,
)
from minbert.course.side_effects import DTYPES, dtype_problem, leaves, shorter

SEED = 20261122


def judged(name: str, program):
    return verdict(name, exercise(name).perform(program, SEED), SEED)


def edited(name: str, *pairs: tuple[str, str]):
    """Judge the reference with some of its text replaced."""
    text = exercise(name).definition
    for old, new in pairs:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return judged(name, build(exercise(name), text))


def tensors(tree) -> list[Tensor]:
    return [x for x in leaves(tree) if isinstance(x, Tensor)]


def wrong_result(result):
    """Change every number of a result."""
    if isinstance(result, Tensor):
        return (
            ~result
            if result.dtype == torch.bool
            else result * 1.5 + 0.25
            if result.is_floating_point()
            else result + 1
        )
    if isinstance(result, float):
        return result + 1
    if isinstance(result, dict):
        return {name: wrong_result(x) for name, x in result.items()}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(wrong_result, result))
    return type(result)(map(wrong_result, result)) if isinstance(result, (list, tuple)) else result


def wrong_when(name: str, condition):
    """Make the reference wrong where a condition on its arguments holds."""
    ours, (head, _, method) = reference(exercise(name)), exercise(name).target.partition(".")
    function = getattr(ours, method) if method else ours

    @functools.wraps(function)
    def wrong(*args, **kwargs):
        result = function(*args, **kwargs)
        return wrong_result(result) if condition(tensors((args, kwargs))) else result

    return type(head, (ours,), {method: wrong}) if method else wrong


def rows_as_many_as_columns(given):
    return any(x.ndim >= 2 and x.shape[-1] == x.shape[-2] > 1 for x in given)


def longer_than_16(given):
    return any(size > 16 for x in given for size in x.shape)


def small(given):
    return any(x.is_floating_point() and x.numel() > 1 and 0 < x.abs().max() < 0.01 for x in given)


MATRICES = [
    "attention.maps",
    "attention.scores",
    "attention.merge",
    "sentence.mean",
    "sentence.unit",
    "losses.classes",
    "heads.linear",
    "heads.pair",
    "heads.difference",
    "heads.cosine",
    "geometry.alignment",
    "geometry.isoscore",
    "contrastive.margin",
    "contrastive.infonce",
    "contrastive.mirror",
    "bijections.linear",
    "bijections.shift",
    "bijections.affine",
    "flow.through",
    "flow.inverse",
    "flow.nll",
    "flow.bertcf",
    "smoothness.kl",
    "smoothness.ball",
    "bregman.charge",
    "smart.length",
    "smart.step",
    "negatives.scores",
    "negatives.loss",
    "attention.attend",
    "attention.forward",
    "attention.project",
    "encoder.add_norm",
    "encoder.layer",
    "encoder.pooler",
    "pretrain.loss",
]


@pytest.mark.parametrize("name", MATRICES)
def test_a_program_that_is_wrong_where_two_sizes_are_equal_is_rejected(name):
    assert not judged(name, wrong_when(name, rows_as_many_as_columns)).passed


@pytest.mark.parametrize(
    "name",
    [
        *MATRICES,
        "attention.split",
        "embedding.forward",
        "pretrain.special",
        "losses.paraphrase",
        "losses.clipped_pairs",
        "negatives.duplicates",
        "negatives.collision",
    ],
)
def test_a_program_that_is_wrong_for_long_input_is_rejected(name):
    assert not judged(name, wrong_when(name, longer_than_16)).passed


@pytest.mark.parametrize(
    "name",
    [
        "attention.maps",
        "attention.scores",
        "sentence.unit",
        "losses.classes",
        "heads.pair",
        "geometry.alignment",
        "contrastive.margin",
        "contrastive.infonce",
        "bijections.linear",
        "flow.through",
        "smoothness.kl",
        "smart.length",
        "smart.step",
        "negatives.scores",
        "negatives.loss",
        "pcgrad.project",
    ],
)
def test_a_program_that_is_wrong_for_small_numbers_is_rejected(name):
    assert not judged(name, wrong_when(name, small)).passed


@pytest.mark.parametrize(
    "name",
    [
        "attention.maps",
        "attention.merge",
        "attention.forward",
        "encoder.add_norm",
        "encoder.layer",
        "encoder.pooler",
        "sentence.mean",
        "sentence.unit",
        "losses.classes",
        "heads.linear",
        "heads.cosine",
        "geometry.isoscore",
        "contrastive.infonce",
        "bijections.linear",
        "flow.through",
        "smoothness.kl",
        "smart.step",
        "negatives.scores",
        "negatives.loss",
        "pcgrad.project",
        "muon.orthogonalize",
    ],
)
def test_an_input_that_is_overwritten_where_gradients_are_off_is_found(name):
    """Autograd refuses such a write in training, so it shows in use only."""
    ours, (head, _, method) = reference(exercise(name)), exercise(name).target.partition(".")
    function = getattr(ours, method) if method else ours

    @functools.wraps(function)
    def writes(*args, **kwargs):
        result = function(*args, **kwargs)
        if not torch.is_grad_enabled():
            for x in tensors((args, kwargs)):
                x.mul_(1.001) if x.is_floating_point() and x is not result else None
        return result

    found = judged(name, type(head, (ours,), {method: writes}) if method else writes)
    assert not found.passed and (
        "changes a tensor that it was given" in found.message
        or "changed its input" in found.message
        or "gradients off" in found.message
    ), found.message


def test_an_input_that_is_taken_out_of_the_case_is_watched_as_well():
    """A run may pop what it hands over by another name; a write into it shows all the same."""
    found = edited("smart.step", ("return ", "delta += 0.25\n    return "))
    assert not found.passed and "changed its input" in found.message, found.message


@pytest.mark.parametrize(
    "name, pairs, says",
    [
        (
            "training.clip",
            [("max_norm / total)", "max_norm / (total + 1e-6))")],
            "A small constant is added to the norm",
        ),
        (
            "negatives.scores",
            [
                (
                    "return a @ b.T",
                    "return b @ a.T if len(a) == len(b) and score == 'cosine' else a @ b.T",
                )
            ],
            "The last two axes have changed places",
        ),
        (
            "negatives.scores",
            [
                (
                    "return a @ b.T",
                    "return b @ a.T if len(a) == len(b) and score == 'dot' else a @ b.T",
                )
            ],
            "dot, as many anchors as candidates",
        ),
        (
            "muon.orthogonalize",
            [("x = x / x.norm()", "x = x.double() / x.norm()")],
            "the dtype of the result is float64, where the docstring promises float32",
        ),
        (
            "attention.scores",
            [
                (
                    "key, mask)",
                    "key, None if mask is None or not mask.all(0).any() else mask)",
                )
            ],
            "no place is real in all sentences",
        ),
        (
            "attention.scores",
            [
                (
                    "return weights @ value",
                    "weights = weights.tril() if mask is None and query.shape[-2] > 8 else weights\n"
                    "    return weights @ value",
                )
            ],
            "40 tokens without a mask",
        ),
        (
            "negatives.loss",
            [
                (
                    "score_matrix(anchors, positives, score)",
                    'score_matrix(F.normalize(wide(anchors), dim=-1), F.normalize(wide(positives), dim=-1), "dot") if score == "cosine" '
                    "else score_matrix(anchors, positives, score)",
                )
            ],
            "a vector of zeros, its gradient",
        ),
        (
            "smart.step",
            [("size.clamp(min=torch.finfo(size.dtype).tiny)", "size.clamp(min=1e-12)")],
            "gradients of 1e-30",
        ),
        (
            "pcgrad.weights",
            [("inner < 0 and", "inner < -0.01 * (gram[i, i] * gram[j, j]).sqrt() and")],
            "one part in 500",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_passed_before_is_rejected_and_told(name, pairs, says):
    found = edited(name, *pairs)
    assert not found.passed and says in found.message, found.message


def test_a_table_that_is_kept_from_the_first_call_is_found():
    """The same object is called with shorter sentences first."""
    ours = reference(exercise("embedding.forward"))

    def forward(self, input_ids, position_ids=None, token_type_ids=None):
        if position_ids is None:
            if not hasattr(self, "kept"):
                self.kept = torch.arange(input_ids.shape[-1])
            position_ids = self.kept
        return ours.forward(self, input_ids, position_ids, token_type_ids)

    found = judged("embedding.forward", type(ours.__name__, (ours,), {"forward": forward}))
    assert not found.passed and "second" in found.message or "kept" in found.message, found.message


@pytest.mark.parametrize(
    "name, pairs",
    [
        (
            "pretrain.mask",
            [
                (
                    "random_ids = torch.randint(vocab_size, shape, generator=generator, device=device)",
                    "random_ids = torch.randint(vocab_size, shape, device=device)",
                )
            ],
        ),
        (
            "pretrain.mask",
            [
                (
                    "treatment = torch.rand(shape, generator=generator, device=device)",
                    "treatment = torch.rand(shape, device=device)",
                )
            ],
        ),
    ],
)
def test_one_draw_without_the_generator_is_told_apart_from_none_with_it(name, pairs):
    found = edited(name, *pairs)
    assert (
        not found.passed
        and "although a generator was given" in found.message
        and "not used" not in found.message
    ), found.message


def test_a_group_number_in_another_order_is_no_reversal(name="negatives.clusters"):
    found = edited(
        name,
        (
            "    number = {}\n    for a, _ in rows:\n        number.setdefault(root(a), len(number))\n    return torch.tensor([number[root(a)] for a, _ in rows], dtype=torch.int64)",
            "    names = sorted({root(a) for a, _ in rows})\n    return torch.tensor([names.index(root(a)) for a, _ in rows], dtype=torch.int64)",
        ),
    )
    assert (
        not found.passed
        and "numbers themselves are others" in found.message
        and "reversed" not in found.message
    ), found.message


OF_ANY_DTYPE = [name for name, task in EXERCISES.items() if "of any dtype" in task.definition]


@pytest.mark.parametrize("name", OF_ANY_DTYPE)
def test_a_dtype_in_which_0_minus_1_is_255_is_tried_where_any_is_promised(name):
    assert not judged(
        name, wrong_when(name, lambda given: any(x.dtype == torch.uint8 for x in given))
    ).passed


@pytest.mark.parametrize(
    "name, pairs",
    [
        (
            "losses.signs",
            [
                (
                    "y = labels.float()",
                    "y = (2 * labels - 1 if labels.min() == 0 else labels).float()",
                )
            ],
        ),
    ],
)
def test_a_situation_that_few_people_try_is_among_the_cases(name, pairs):
    """Labels in unsigned bytes."""
    assert not edited(name, *pairs).passed


KEPT = "A call changes something that the next call finds again"


def test_what_is_kept_in_a_default_argument_or_in_the_class_is_told():
    """The numbers of an earlier call fit known mistakes by accident, so none of them is suspected."""
    found = edited(
        "tokens.pieces",
        ("    longest: int = 100,", "    longest: int = 100,\n    found: list = [],"),
        ("found, start = [], 0", "start = 0"),
    )
    assert KEPT in found.message and "Perhaps" not in found.message, found.message
    ours = reference(exercise("bijections.unshuffle"))

    def inverse(self, y):
        if not hasattr(ours, "back"):
            ours.back = self.order.argsort()
        return y[:, ours.back]

    try:
        found = judged("bijections.unshuffle", type(ours.__name__, (ours,), {"inverse": inverse}))
    finally:
        del ours.back
    assert KEPT in found.message and "Perhaps" not in found.message, found.message


def test_a_right_program_may_keep_something(name="attention.split"):
    seen = []

    def split(x, heads, calls=[]):  # noqa: B006
        calls.append(heads)
        seen.append(len(calls))
        return reference(exercise(name))(x, heads)

    assert judged(name, split).passed and seen[-1] > 2


def test_a_tensor_that_should_have_changed_and_did_not_is_told(name="bregman.average"):
    found = judged(name, lambda average, parameters, beta: None)
    assert "unchanged" in found.message, found.message


def test_n_and_n_minus_1_are_told_apart_from_other_factors():
    x, rows = torch.arange(1, 12, dtype=torch.float64), {"x": torch.zeros(11)}
    for factor in (11 / 10, 10 / 11, (11 / 10) ** 0.5, (10 / 11) ** 0.5):
        for right in (x, x[3]):
            assert "N - 1 and N were mixed up, where N = 11 is the size of axis 0 of x" in relation(
                right, factor * right, rows
            )
    assert "N - 1" not in relation(x, 1.2 * x, rows) and "N - 1" not in relation(
        x[3], x[3] * 4 / 3, {"x": torch.zeros(4)}
    )
    # what stood in fresh memory
    assert relation(x, x * 1e-320, {}) is None or "times" not in relation(x, x * 1e-320, {})


def test_a_setting_that_is_ignored_is_mentioned(name="pcgrad.project"):
    found = edited(name, ("weights = weights / len(grads)", "pass"))
    assert "All cases fail in which reduction is 'mean', and no other case does" in found.message, (
        found.message
    )


def test_promised_dtypes_are_compared_with_the_promise():
    def codes(*numbers):
        return torch.tensor(numbers, dtype=torch.int64)

    half, single, double = 0, 2, 3
    assert (
        dtype_problem("as the reference", codes(single), codes(double))
        == "the dtype of the result is float64, where the docstring promises float32"
    )
    assert dtype_problem("as the reference", codes(single, half), codes(single, half)) is None
    assert dtype_problem("float32 or wider", codes(single), codes(double)) is None
    assert "promises float32 or wider" in dtype_problem(
        "float32 or wider", codes(single), codes(half)
    )
    assert (
        dtype_problem("float32 or wider", codes(single), torch.tensor([True]))
        == "expected numbers of dtypes"
        == dtype_problem("as the reference", codes(single), codes(99))
    )
    assert (
        exercise("sentence.unit").trial.promise == "float32 or wider"
        and exercise("whitening.both").trial.promise == "as the reference"
        and not exercise("heads.linear").trial.promise
    )
    assert all(
        f"left behind: {DTYPES}" in o.outputs
        for o in expected_outcomes("sentence.unit", SEED)
        if o.outputs and o.way != "refusal"
    )


def test_a_shorter_call_has_one_place_less_in_all_that_belongs_together():
    x, mask, ids = torch.rand(3, 5, 2), torch.ones(3, 5), torch.arange(5)
    (a, m, i), more = shorter(((x, mask, ids), {"n": 7, "other": torch.rand(4)}), 1)
    assert (
        a.shape == (3, 4, 2)
        and m.shape == (3, 4)
        and i.shape == (4,)
        and more["n"] == 7
        and more["other"].shape == (4,)
    )
    assert shorter(((x, mask), {}), 0)[0][1].shape == (2, 5)
    assert torch.equal(shorter((torch.ones(1, 2),), 0)[0], torch.ones(1, 2))


def test_cases_are_made_of_the_first_one_where_the_reference_allows_it():
    labels = {case.label.rpartition(", ")[2] for case in cases("sentence.mean", SEED)}
    assert labels >= {"all sizes alike", "forty rows", "forty columns", SMALL}
    # statistics need their own numbers
    assert not {case.label.rpartition(", ")[2] for case in cases("pretrain.mask", SEED)} & set(
        DERIVED
    )
    # nothing to change in it
    assert all(
        new_generator(case, way) is None
        for case in cases("sampling.shares", SEED)[:2]
        for way in DERIVED
    )
    for name in ("sentence.mean", "losses.classes", "negatives.loss"):
        assert not [o.error for o in expected_outcomes(name, SEED) if o.error]


@pytest.mark.parametrize(
    "name",
    [
        "sentence.mean",
        "attention.scores",
        "negatives.loss",
        "training.clip",
        "bregman.charge",
        "muon.orthogonalize",
    ],
)
def test_right_programs_still_pass(name):
    task = exercise(name)
    assert [
        judged(name, build(task, right_definition(task, text))).passed for text in task.variants
    ] == [True] * len(task.variants)
