"""What a check sees beside the numbers of one call, and what it says: each kind of mistake in a
program of its own.
"""

import functools
import random
import re
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mutants import all_mutants
from torch.testing import assert_close

from minbert import attention
from minbert.course.call_recording import CallRecording, stand_in
from minbert.course.check_runner import (
    REFUSAL,
    _changes,
    fixed,
    isolate_exercise,
    probe,
    probed,
    with_gradients,
)
from minbert.course.compare import compare
from minbert.course.diagnosis import relation
from minbert.course.exercises import (
    EXERCISES,
    build,
    cases,
    exercise,
    expected_facts,
    expected_outcomes,
    mistaken,
    reference,
    right_definition,
    verdict,
    wrong_definition,
)
from minbert.course.isolation_worker import pack, read_tree, write_tree
from minbert.course.side_effects import SideEffectRecorder, _wide, watched
from minbert.exercise_cases.attention import _WRONG_THREE


def own(name: str, text: str, seed: int = 20261122):
    task = exercise(name)
    return verdict(name, task.perform(build(task, text), seed), seed)


CACHE = """
def padding_bias(attention_mask, key, kept={}):
    if attention_mask.shape not in kept:
        kept[attention_mask.shape] = (1 - attention_mask.to(key)) * MASK_VALUE
    return kept[attention_mask.shape].to(key)[:, None, None, :]
"""
MEAN = """
def masked_mean(hidden_states, attention_mask):
    {before}
    mask = attention_mask.to(hidden_states)[..., None]
    return {result}
"""
RIGHT = "(hidden_states * mask).sum(1) / mask.sum(1).clamp_min(1)"


def mean(before: str = "pass", result: str = RIGHT):
    return own("sentence.mean", MEAN.format(before=before, result=result))


@pytest.mark.parametrize(
    "before, result, said",
    [
        ("torch.manual_seed(0)", RIGHT, "sets the seed"),
        ("pass", f"2 * ({RIGHT})", "2 times what it should be"),
        ("pass", f"-({RIGHT})", "The sign is wrong"),
        (
            "pass",
            f"({RIGHT}).detach()",
            "Wrong: the gradient of hidden_states. The values themselves are right.",
        ),
        ("pass", f"({RIGHT}).flip(0)", "The order is reversed along axis 0"),
        (
            "pass",
            f"torch.where(torch.arange(len(mask)).eq(0)[:, None], {RIGHT}, 0)",
            "all but the first are wrong",
        ),
        ("hidden_states *= 1.0", RIGHT, "Work on a copy"),
        (
            "pass",
            "None",
            "your code gave back None\n  given     hidden_states (4, 6, 5), attention_mask (4, 6) int64\nHint: Does every way through your code end in `return`?",
        ),
    ],
    ids=lambda x: x[:30],
)
def test_a_wrong_mean_is_told_apart(before, result, said):
    found = mean(before, result)
    assert not found.passed and said in found.message and not found.mistake, found.message


STEP = """
def adamw_step(p, g, m, v, t, lr, betas, eps, weight_decay):
    m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    {squares}
    p.sub_(lr * math.sqrt(1 - betas[1]**t) / (1 - betas[0]**t) * m / (v.sqrt() + eps))
    p.sub_(lr * weight_decay * p)
"""


def test_what_should_have_changed_in_place_is_said():
    """A new tensor under the name of the old one: who is told to work on a copy looks in the wrong
    place.
    """
    found = own("optim.update", STEP.format(squares="v = betas[1] * v + (1 - betas[1]) * g * g"))
    assert (
        "input v afterwards: your code left it as it was" in found.message
        and "Hint: This is to change in place" in found.message
    ), found.message
    changed = own(
        "optim.update",
        STEP.format(squares="v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1]); g.mul_(2)"),
    )
    assert (
        "your code changed its input" in changed.message and "in place:" not in changed.message
    ), changed.message


@pytest.mark.parametrize(
    "head", ["hidden_states, mask", "hidden_states", "hidden_states, attention_mask, axis"]
)
def test_an_argument_with_another_name_is_said(head):
    said = "Hint: Are the arguments still those of the stub, by name and in order?"
    assert (
        said
        in own(
            "sentence.mean", f"def masked_mean({head}):\n    return hidden_states.mean(1)"
        ).message
    )
    # another TypeError
    assert said not in mean(result="hidden_states + 'x'").message


def test_a_write_into_what_a_gradient_needs_gets_the_hint_for_it():
    found = own(
        "sentence.mean",
        MEAN.format(
            before="hidden_states = hidden_states.exp(); y = hidden_states.square(); hidden_states[:, 0] = 0",
            result="(y * mask).sum(1)",
        ),
    )
    assert "inplace operation" in found.message and "Work on a copy" in found.message, found.message


def merge(after: str = "pass", result: str = "x.transpose(-3, -2).flatten(-2)"):
    return own(
        "attention.merge", f"def merge_heads(x):\n    y = {result}\n    {after}\n    return y"
    )


def settings():
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        np.geterr(),
        list(filter(_wide, warnings.filters)),
        str(np.random.get_state()),
        random.getstate(),
        torch.initial_seed(),
    )


@pytest.mark.parametrize(
    "after, said",
    [
        ("torch.set_grad_enabled(False)", "switches gradients on or off"),
        ("torch.set_default_dtype(torch.float64)", "torch's default dtype"),
        ("import numpy; numpy.seterr(all='ignore')", "what numpy does about errors"),
        ("import warnings; warnings.simplefilter('ignore')", "filters warnings"),
        ("torch.seed()", "sets the seed"),
        ("torch.set_rng_state(torch.Generator().manual_seed(3).get_state())", "sets the seed"),
        ("torch.default_generator.manual_seed(0)", "sets the seed"),
    ],
)
def test_what_a_call_leaves_behind_is_said_and_put_back(after, said):
    assert merge().passed  # and torch has imported all it wants
    old, found = settings(), merge(after)
    assert not found.passed and said in found.message, found.message
    assert settings() == old


@pytest.mark.parametrize(
    "after", ["import numpy; numpy.random.rand()", "import random; random.seed(3); random.random()"]
)
def test_generators_that_nobody_uses_are_put_back_and_cost_nothing(after):
    assert merge().passed
    old = settings()
    assert merge(after).passed and settings() == old


def test_a_state_that_was_taken_may_be_put_back():
    assert merge("state = torch.get_rng_state(); torch.rand(1); torch.set_rng_state(state)").passed
    assert not merge("torch.rand(1)").passed


@pytest.mark.parametrize(
    "session",
    [
        lambda: torch.set_grad_enabled(False),
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.set_default_dtype(torch.float64),
    ],
    ids=["gradients off", "inference mode", "autocast", "float64"],
)
def test_a_session_with_other_settings_gets_the_same_verdicts(session):
    for cached in (cases, expected_outcomes, expected_facts, mistaken):
        cached.cache_clear()
    try:
        with session() or torch.no_grad():
            assert (
                merge().passed
                and "gradient of x"
                in merge(result="x.detach().transpose(-3, -2).flatten(-2)").message
            )
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    assert merge().passed


def test_whatever_can_be_called_is_watched():
    """A callable object, a cache above a function, a static method: each draws, and nobody should."""

    class Odd:
        def __call__(self, x):
            return attention.merge_heads(torch.rand(1) * 0 + x)

    for name, odd in (
        ("attention.merge", Odd()),
        ("attention.merge", functools.lru_cache(Odd().__call__)),
    ):
        task = exercise(name)
        assert (
            "draws from torch's global generator" in verdict(name, task.perform(odd, 1), 1).message
        )
    task, right = exercise("attention.project"), attention.SelfAttention.project
    fine = type(
        "SelfAttention", (attention.SelfAttention,), {"project": functools.partialmethod(right)}
    )
    odd = type(
        "SelfAttention",
        (attention.SelfAttention,),
        {"project": functools.partialmethod(lambda self, x: (torch.rand(1), right(self, x))[1])},
    )
    assert verdict(task.name, task.perform(fine, 1), 1).passed
    assert (
        "draws from torch's global generator" in verdict(task.name, task.perform(odd, 1), 1).message
    )


def test_lists_and_dicts_of_the_caller_are_looked_at():
    old = {"a": [torch.ones(2), {"b": 1}], "c": "text", "d": [1, 2]}
    new = {"a": [torch.zeros(2), {"b": 2}], "c": "text", "d": [1]}
    assert [name for name, _ in _changes(old, new)] == ["a[0]", "a[1]['b']", "d"] and not list(
        _changes(old, old)
    )


def test_another_order_is_told_from_digits_that_are_lost():
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert "single precision" in relation(x, x.float().double(), {})
    assert "another order" in relation(x, x[[3, 0, 2, 4, 1]], {})
    counts = [
        torch.tensor(rows, dtype=torch.float64)
        for rows in ([0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 1, 1, 2, 2])
    ]
    assert "order" not in (relation(*counts, {}) or "")  # the same numbers, not as often


@pytest.mark.parametrize(
    "a, b",
    (
        ([1e7, 1, 2], [2e7, -5, 9]),
        ([1e7, 1, 2], [-1e7, 1, 2]),
        ([[1e7, 1], [-1e7, 2], [3e7, 0]], [[-1e7, 9], [1e7, -4], [3e7, 5]]),
    ),
)
def test_small_numbers_beside_large_ones_count(a, b):
    assert (
        relation(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), {})
        is None
    )


def test_what_is_kept_between_calls_is_found():
    found = own("attention.bias", CACHE)
    assert not found.passed and "kept between calls, or attention_mask is not used" in found.told, (
        found.message
    )


def test_a_second_call_finds_what_one_call_cannot():
    """Weights that are put together once are right until they change."""
    task = exercise("attention.project")
    once = """parts = (self.query, self.key, self.value)
    if getattr(self, "kept", None) is None:
        self.kept = torch.cat([part.weight for part in parts])
    bias = torch.cat([part.bias for part in parts])
    return F.linear(hidden_states, self.kept, bias).chunk(3, dim=-1)"""
    definition = task.definition.replace(_WRONG_THREE, once)
    assert definition != task.definition
    wrong = build(task, definition)
    outcomes = task.perform(wrong, 1)
    found = verdict(task.name, outcomes, 1)
    assert (
        not found.passed
        and "right at the first call" in found.message.lower()
        or "backward through the graph" in found.message
    ), found.message


def test_a_check_moves_no_generator_of_a_device(monkeypatch):
    """`fork_rng(devices=[])` brings back the CPU's alone; where CUDA sleeps, torch.manual_seed
    queues a call, with its traceback, for ever.
    """
    moved = []
    for device in (torch.cuda, torch.mps, torch.xpu, torch.mtia):
        for name in ("manual_seed", "manual_seed_all"):
            monkeypatch.setattr(device, name, moved.append, raising=False)
    before = torch.get_rng_state()
    assert own("sentence.mean", exercise("sentence.mean").definition).passed
    assert moved == [] and torch.equal(torch.get_rng_state(), before)


CLIP = """
def clip_gradients(parameters, max_norm=None):
    grads = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    total = math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))
    if {bad}:
        raise {error}
    for g in grads.values() if max_norm is not None and total > max_norm else ():
        g.mul_(max_norm / total)
    return {total}
"""


def clip(
    bad="not math.isfinite(total)",
    error="NotFinite(next(name for name, g in grads.items() if not g.isfinite().all()))",
    total="total",
):
    for what, now in (("bad", bad), ("error", error), ("total", total)):
        yield "{" + what + "}", now


@pytest.mark.parametrize(
    "name, text, changes, says",
    [
        ("training.clip", CLIP, clip(), ""),
        (
            "training.clip",
            CLIP,
            clip(error='NotFinite("not finite")'),
            "The error does not name the parameter.",
        ),
        ("training.clip", CLIP, clip(bad="math.isnan(total)"), "Only NaN is rejected."),
        (
            "training.clip",
            CLIP,
            clip(total="torch.tensor(total)"),
            "The norm is returned as a tensor.",
        ),
        (
            "corpus.cut",
            exercise("corpus.cut").variants[0],
            [("np.array(batch)", "batch")],
            "The batches are lists.",
        ),
    ],
)
def test_what_learners_write_in_their_own_way_is_told_what_is_wrong(name, text, changes, says):
    for what, now in changes:
        text = text.replace(what, now)
    found = own(name, text)
    assert found.passed if not says else says in found.message, found.message


def test_no_guess_where_the_learner_is_right_and_the_mistake_is_not():
    """A mistake that fails elsewhere too is another one."""
    for name in ("attention.maps", "sentence.mean"):
        for one in mistaken(name, 3):
            task = exercise(name)
            right = task.perform(build(task, task.definition), 3)
            wrong = task.perform(build(task, wrong_definition(task, one.mistake)), 3)
            bad = [
                i
                for i, (a, b) in enumerate(zip(right, wrong))
                if a.outputs
                and b.outputs
                and not all(
                    torch.equal(a.outputs[k].nan_to_num(), b.outputs[k].nan_to_num())
                    if a.outputs[k].shape == b.outputs.get(k, a.outputs[k]).shape and k in b.outputs
                    else False
                    for k in a.outputs
                )
            ]
            if len(bad) < 3:
                continue
            # wrong in one case only
            mixed = [wrong[i] if i == bad[0] else right[i] for i in range(len(right))]
            found = verdict(name, mixed, 3)
            assert (
                found.passed
                or found.mistake != one.mistake.says
                and f"Perhaps: {one.mistake.says}" not in found.message
            )


@pytest.mark.long
@pytest.mark.parametrize(
    "name, says",
    [
        ("contrastive.mirror", "Under autocast"),
        ("contrastive.infonce", "Under autocast"),
        ("embedding.forward", "moved so that the smallest is 0"),
        ("bijections.solve", "in their own precision"),
        ("losses.paraphrase", "exactly 0 or 1"),
        ("geometry.isoscore", "mean of the squares less"),
        ("contrastive.margin", "computed in half"),
        ("contrastive.mirror", "computed in half"),
        ("contrastive.infonce", "computed in half"),
    ],
)
def test_what_is_told_by_one_case_alone_shows_with_any_seed(name, says):
    """A grader draws its seed; each of these passed with some, the rounded cosines with one in
    eight.
    """
    task = exercise(name)
    wrong = build(
        task, next(wrong_definition(task, m) for m in all_mutants()[name] if says in m.says)
    )

    def shows(seed, i):
        return compare(
            task.trial, task.attempt(reference(task), seed, i), task.attempt(wrong, seed, i)
        )

    assert [
        seed
        for seed in range(100, 130)
        if not any(shows(seed, i) for i in range(len(cases(name, seed))))
    ] == []


def test_known_mistakes_run_only_as_far_as_needed():
    task = exercise("attention.maps")
    mistaken.cache_clear()
    own(
        task.name, "def attention_maps(query, key, mask=None):\n    return query @ key.mT * 0.123\n"
    )
    runs = [len(m.outcomes) for m in mistaken(task.name, 20261122)]
    assert set(runs) == {1}


@pytest.mark.parametrize(
    "name",
    [
        "metrics.spearman",
        "metrics.auc",
        "geometry.mean_cosine",
        "geometry.alignment",
        "geometry.uniformity",
        "geometry.isoscore",
    ],
)
def test_nan_without_the_warning_that_the_task_promises_is_told_apart(name):
    task = exercise(name)
    silent = next(
        m for m in task.mistakes if m.says.startswith("NaN is returned without a warning")
    )
    found = verdict(name, task.perform(build(task, wrong_definition(task, silent)), 4), 4)
    assert (
        not found.passed
        and "NaN without a warning" in found.message
        and found.mistake == silent.says
    ), found.message


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, task in EXERCISES.items() if task.trial.replay])
def test_right_programs_that_draw_otherwise_pass_with_every_seed(name):
    """A grader draws its seed: shares of too few draws refused a right program with one seed in
    thirty.
    """
    task = exercise(name)
    programs = [build(task, right_definition(task, text)) for text in task.variants]
    assert [
        (seed, i)
        for seed in range(100, 124)
        for i, program in enumerate(programs)
        if not verdict(name, task.perform(program, seed), seed).passed
    ] == []


@pytest.mark.long
def test_nobody_can_foretell_what_a_process_has_to_hand_over():
    """What a worker writes differs from seed to seed in every exercise; statistics that do not are
    taken from it later.
    """

    def handed_over(task, seed):
        outcomes = [o for o in expected_outcomes(task.name, seed) if o.way != REFUSAL]
        return [
            sorted((name, x.tolist()) for name, x in (o.outputs or {}).items()) for o in outcomes
        ]

    assert not [
        name
        for name, task in EXERCISES.items()
        if repr(handed_over(task, 1)) == repr(handed_over(task, 2))
    ]


@pytest.mark.parametrize("name", [name for name, task in EXERCISES.items() if task.trial.replay])
def test_statistics_written_by_hand_are_no_result(name):
    """Who writes the right facts into the result file, instead of what was drawn, has drawn
    nothing.
    """
    drawn, facts, much = expected_outcomes(name, 5), expected_facts(name, 5), torch.zeros(10**7 + 1)
    assert verdict(name, drawn, 5).passed
    assert not verdict(name, facts, 5).passed
    assert not verdict(
        name,
        [o._replace(outputs={**o.outputs, "call 0": much}) if o.outputs else o for o in drawn],
        5,
    ).passed


def taped(function, *args):
    """What one call hands over to whoever judges."""
    tape = CallRecording()
    watched(function, "", SideEffectRecorder(tape))(*args)
    return tape.tensors


def test_a_repeated_call_gives_back_what_came_and_what_was_put_in():
    """What was an argument is the argument of now; a part of one is none."""
    x, y = torch.arange(6.0).view(2, 3), torch.ones(3)
    again = stand_in(max, "", taped(lambda x, y: [y, x[0], 7, x.detach()], x, y))
    other, own = torch.zeros(2, 3), torch.zeros(3)
    first, part, number, last = again(other, own)
    assert first is own and last is other and torch.equal(part, x[0]) and number.item() == 7
    # one result is no tuple of one
    assert torch.equal(stand_in(max, "", taped(torch.neg, x))(other), -x)


def test_a_repeated_call_writes_what_was_written_and_nothing_else():
    nan = torch.tensor([float("nan"), 1.0])
    tape = taped(lambda x, y: x.mul_(2), torch.ones(2), nan)
    x, y = torch.full((2,), 7.0), torch.zeros(2)
    assert stand_in(max, "", tape)(x, y) is x
    assert x.tolist() == [2.0, 2.0] and y.tolist() == [0.0, 0.0]


def test_a_repeated_call_moves_the_generators_that_moved_and_no_other():
    first, second = torch.Generator(), torch.Generator()
    again = stand_in(max, "", taped(lambda g, h: torch.rand(3, generator=h), first, second))
    before = [g.get_state() for g in (torch.default_generator, first, second)]
    again(first, second)
    assert [
        torch.equal(old, g.get_state())
        for old, g in zip(before, (torch.default_generator, first, second))
    ] == [True, True, False]


def test_a_repeated_result_has_a_graph_where_the_first_one_had():
    x = torch.ones(2, requires_grad=True)
    again = stand_in(max, "", taped(lambda x: (x * 2, x.detach() * 3, x.long()), x))
    assert [part.requires_grad for part in again(torch.ones(2))] == [True, False, False]


def test_a_tape_that_gives_whole_numbers_a_graph_stops_nothing():
    tape = taped(lambda: torch.arange(2)) | {"call 0 has a graph": torch.tensor(True)}
    assert stand_in(max, "", tape)().tolist() == [0, 1]


def test_a_tape_that_names_an_argument_that_nobody_gave_stops_nothing():
    tape = taped(torch.neg, torch.ones(2))
    for number in (-1, 1, 9):
        assert stand_in(max, "", tape | {"call 0 is argument": torch.tensor(number)})(
            torch.zeros(2)
        ).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("result", ["text", None, {"a": 1}, [torch.ones(1), "text"]])
def test_what_is_no_number_is_not_taped(result):
    with pytest.raises(TypeError, match="expected a tensor back"):
        taped(lambda: result)


def test_dropout_in_another_place_shows_in_the_numbers():
    x = torch.ones(2, 3, dtype=torch.float64)
    with probed():
        assert_close(torch.nn.Dropout(0.1)(x), F.dropout(x, 0.1))
        assert_close(F.dropout(x, 0.1), x * probe(x, 0.1))
        assert_close(F.dropout(x, 0.1, training=False), x)
        F.dropout(written := x.clone(), 0.1, inplace=True)  # used for its effect
        assert_close(written, F.dropout(x, 0.1))
        F.dropout(written := x.clone(), 0.1, training=False, inplace=True)
        assert_close(written, x)
        before, after = F.dropout(x, 0.1) @ x.T, F.dropout(x @ x.T, 0.1)
    assert (before - after).abs().max() > 0.01  # the place shows
    q, k, v = fixed(torch.Generator().manual_seed(0), 3, 1, 2, 5, 4)
    fused = F.scaled_dot_product_attention(q, k, v)
    with probed():
        assert_close(F.scaled_dot_product_attention(q, k, v), fused)
        assert (F.scaled_dot_product_attention(q, k, v, dropout_p=0.1) - fused).abs().max() > 1e-3


def test_gradients_are_outputs_of_their_own():
    q, k = fixed(torch.Generator().manual_seed(0), 2, 1, 2, 5, 4)
    found = with_gradients(lambda a, b: a @ b, {"a": q[0, 0], "b": k[0, 0].mT}, "a", "b")
    assert_close(found["gradient of a"], probe(found["output"]) @ k[0, 0])
    assert list(found) == ["output", "gradient of a", "gradient of b"]


PROGRAM = """
def double(x): raise NotImplementedError
def four(x): return double(double(x))
class Circle:
    def area(self): raise NotImplementedError
    def edge(self): return double(self.area())
"""


def test_one_exercise_stands_alone_among_references():
    reference = types.SimpleNamespace(
        double=lambda x: 2 * x,
        Circle=type("Circle", (), {"area": lambda self: 1, "edge": lambda self: 2}),
    )
    names = {}
    exec(PROGRAM, names)
    assert isolate_exercise(names["four"], "four", reference, ["double"])(1) == 4
    assert (
        isolate_exercise(
            names["Circle"], "Circle.edge", reference, ["double", "Circle.area"]
        )().edge()
        == 2
    )
    with pytest.raises(NotImplementedError):
        isolate_exercise(
            names["Circle"], "Circle.area", reference, ["double", "Circle.edge"]
        )().area()
    # under a decorator
    assert isolate_exercise(torch.no_grad()(names["four"]), "four", reference, ["double"])(1) == 4


def test_a_recording_gives_back_what_was_drawn_and_then_no_more():
    def roll(n, generator=None):
        return torch.randint(1, 7, (n,), generator=generator)

    tape, generator = CallRecording(), torch.Generator().manual_seed(3)
    rolls = [roll(5, generator), roll(2, generator)]
    for r in rolls:
        tape.record([], [], r, [False, True])
    repeat = stand_in(roll, "", tape.tensors)
    assert [repeat(5, generator).tolist(), repeat(2, generator).tolist()] == [
        r.tolist() for r in rolls
    ]
    with pytest.raises(ValueError, match=re.escape("call 2: no result")):
        repeat(3)


def test_trees_of_tensors_and_json_travel_without_pickle():
    tree = {
        "q": torch.arange(6.0).view(2, 3).T,
        3: [None, True, 2.5, ("a", torch.tensor(1))],
        "nan": float("inf"),
    }
    with tempfile.TemporaryDirectory() as folder:
        write_tree(tree, Path(folder, "case"))
        back = read_tree(Path(folder, "case"))
    assert_close(back["q"], tree["q"])
    assert back[3][:3] + [back[3][3][0]] == [None, True, 2.5, "a"]
    with pytest.raises(ValueError, match=re.escape("builtin_function")):
        pack({"f": print}, {})


def test_a_relation_is_said_only_where_all_numbers_have_it():
    row = torch.tensor([[3.0, -1.0, 4.0], [1.5, 9.0, 2.0]], dtype=torch.float64)
    for wrong in (
        -row,
        row / 3,
        row * 1.25,
        row + 0.5,
        row.flip(0),
        row.roll(1, 1),
        row**2,
        row * 0,
        row * (3 / 2) ** 0.5,
    ):
        assert relation(row, wrong, {"words": row})
    assert relation(row, row.cos(), {}) is None
    # one number is always some multiple of another
    assert relation(torch.tensor(3.0), torch.tensor(4.7), {}) is None
