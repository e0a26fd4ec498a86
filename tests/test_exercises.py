"""The checks themselves are checked: every known mistake rejected and named, every right variant
accepted, nothing given away.
"""

import ast
import builtins
import dis
import math
import re
import types
from importlib import import_module

import pytest
import torch
from solving import solve

from minbert.course import exercises, feedback
from minbert.course.check_runner import AGAIN, Outcome, Trial, repeated
from minbert.course.exercises import (
    EXERCISES,
    CheckFailed,
    KnownMistake,
    borrow,
    build,
    check,
    expected_outcomes,
    mistaken,
    reference,
    right_definition,
    shortfalls,
    strength,
    strength_table,
    verdict,
    wrong_definition,
)
from minbert.course.feedback import NAMED, _given, judge
from minbert.course.grading import grade
from minbert.course.grading_queue import picture_of
from minbert.course.isolation_worker import pack, read_tree, unpack, write_tree
from minbert.course.sandbox import cases_of, without_answers
from minbert.course.source_tools import guards, module_text, pieces
from minbert.course.workspace import new_workspace, packaged_editions
from minbert.exercise_cases.input_validation import REFUSALS, refuses, with_refusals

SUBJECTS = {
    "attention",
    "layer",
    "embedding",
    "adamw",
    "infonce",
    "mirror",
    "margin",
    "flow",
    "smart",
    "proximal",
    "ranking",
    "pcgrad",
}
SEED = 20261122  # one that nobody practises with; `minbert course strength` tries three
measured = {}


@pytest.mark.parametrize("name", EXERCISES)
def test_every_known_mistake_still_fits_its_reference(name):
    """A reference that was rewritten leaves edits behind that find nothing; whether checks catch
    the mistakes is a longer test.
    """
    task = EXERCISES[name]
    for definition in [wrong_definition(task, m) for m in task.mistakes] + [
        right_definition(task, v) for v in task.variants
    ]:
        ast.parse(definition)
    assert len(task.mistakes) >= 3 and len(task.variants) >= 2


@pytest.mark.long
@pytest.mark.parametrize("name", EXERCISES)
def test_a_check_tells_right_from_wrong(name):
    row = measured[name] = strength(EXERCISES[name], seeds=(SEED,))
    assert not row.trouble
    assert row.mistakes >= 3 and row.variants >= 2


@pytest.mark.long
def test_the_table_falls_short_nowhere():
    rows = [
        measured[name] if name in measured else strength(task, (SEED,))
        for name, task in EXERCISES.items()
    ]
    assert not shortfalls(rows), "\n" + strength_table(rows)
    assert {row.subject for row in rows} - {""} == SUBJECTS
    assert len(rows) >= 40


def test_what_answers_are_held_against_is_run_once(monkeypatch, name="pretrain.mask"):
    """The second wrong answer costs the statistics of its own cases; those of the reference and of
    the known mistakes are there.
    """
    task, taken = EXERCISES[name], []
    others = [task.perform(build(task, wrong_definition(task, m)), 7) for m in task.mistakes[:2]]
    alone = [verdict(name, answer, 7) for answer in others]
    monkeypatch.setattr(
        exercises,
        "repeated",
        lambda *arguments, **more: taken.append(arguments[3]) or repeated(*arguments, **more),
    )
    monkeypatch.setattr(KnownMistake, "__call__", lambda *_: pytest.fail("ran again"))
    for answer, before in zip(others, alone):
        taken.clear()
        assert verdict(name, answer, 7) == before and not before.passed
        assert (
            taken
            and len(taken) <= len(answer)
            and all(any(one is own for own in answer) for one in taken)
        )


def test_shortfalls_are_found():
    row = strength(EXERCISES["attention.scores"], (11711,))
    for changed, owed in (
        (row._replace(mistakes=2, rejected=2, named=2), "mistakes, of 3"),
        (row._replace(variants=1, accepted=1), "variants, of 2"),
        (row._replace(rejected=row.rejected - 1), "rejected"),
        (row._replace(accepted=row.accepted - 1), "accepted"),
        (row._replace(reference=False), "reference"),
        (row._replace(stub=False), "stub"),
        (row._replace(named=0), "of 95 %"),
        (row._replace(mistakes=7, rejected=7, named=7), "7 mistakes of 8"),
    ):
        assert any(owed in line for line in shortfalls([changed])), owed
    assert shortfalls([row]) == []


def test_every_chapter_has_exercises():
    """All that teach a method of their own: the others read data, score, or put together what
    earlier ones made.
    """
    without = {
        "hello",
        "data",
        "synthetic",
        "bertcf_results",
        "ablations",
        "replication",
    }
    book = {name.removesuffix(".ipynb") for name in packaged_editions()}
    assert {task.notebook for task in EXERCISES.values()} == {
        name for name in book if name.rpartition("/")[2].partition("_")[2] not in without
    }


@pytest.mark.parametrize("name", EXERCISES)
def test_feedback_never_holds_the_solution(name):
    """No line of the reference's body stands in a hint, a sentence, or a message."""
    task = EXERCISES[name]
    body = [line.split("#")[0].strip() for line in task.definition.split('"""')[-1].split("\n")]
    secrets = [
        line
        for line in body
        if len(line) > 30 and not line.startswith(("raise", "if ", "for ", '"', 'f"', "return"))
    ]
    said = [*(m.says for m in task.mistakes), *(o.label for o in expected_outcomes(name, SEED))]
    everywhere = range(len(expected_outcomes(name, SEED)))
    messages = [
        verdict(name, list(map(m, everywhere)), SEED).message for m in mistaken(name, SEED)[:2]
    ]
    assert not [
        (secret, text) for secret in secrets for text in [*said, *messages] if secret in text
    ]
    assert len(task.trial.hints) == 3 and len(set(task.trial.hints)) == 3


def tensors_in(tree) -> list[torch.Tensor]:
    """List the tensors of nested dicts, lists and tuples."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    parts = (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    )
    return [x for part in parts for x in tensors_in(part)]


def test_the_sandbox_gets_the_strides_that_a_check_gets(tmp_path):
    """`x.view(...)` fails on some strides: a check rejected what `minbert grade` and `course
    status` accepted, or named a mistake that they did not.
    """
    count = 0
    for task in EXERCISES.values():
        cases = cases_of(task, SEED)
        write_tree(cases, tmp_path / "cases", strides=True)
        for given, read in zip(
            tensors_in(cases), tensors_in(read_tree(tmp_path / "cases")), strict=True
        ):
            assert given.is_contiguous() == read.is_contiguous() and torch.equal(
                given.isnan(), read.isnan()
            ), task.name
            assert given.is_contiguous() or given.stride() == read.stride(), task.name
            torch.testing.assert_close(read, given, rtol=0, atol=0, equal_nan=True)
            count += not given.is_contiguous()
    assert count > 20


def test_strides_that_a_stranger_wrote_are_refused():
    """They could ask for any amount of memory."""
    tensors = {}
    tree = pack({"x": torch.zeros(3, 2).t()}, tensors, strides=True)
    assert "strided" in repr(tree)
    with pytest.raises(KeyError):
        unpack(tree, tensors)


@pytest.mark.parametrize("name", ["attention.split"])
def test_a_check_and_the_status_say_the_same_of_an_answer(name, tmp_path):
    task = EXERCISES[name]
    wrong = wrong_definition(task, task.mistakes[0])
    folder = new_workspace(tmp_path / "work")
    solve(folder, [name], {name: wrong})
    [report] = grade([folder], jobs=1, seed=SEED, only=[name])[0]
    with pytest.raises(AssertionError) as failed:
        check(name, build(task, wrong), SEED)
    assert report.results[name].reason == failed.value.verdict.message
    assert (
        task.mistakes[0].says in report.results[name].reason
        and "Perhaps" not in report.results[name].reason
    )


@pytest.mark.parametrize("name", EXERCISES)
def test_inputs_travel_to_the_sandbox(name):
    for seed in (1, 2):
        for case in EXERCISES[name].trial.cases(torch.Generator().manual_seed(seed)):
            tensors = {}
            back = unpack(pack(case.inputs, tensors), tensors)
            assert list(back) == list(case.inputs)


def test_cases_follow_the_seed():
    """Another seed draws other inputs, so that nobody can learn the answers by heart; the same seed
    draws the same.
    """

    def numbers(task, seed):
        tensors = {}
        cases = task.trial.cases(torch.Generator().manual_seed(seed))
        return repr([pack(c.inputs, tensors) for c in cases]) + "".join(
            repr(t.flatten().tolist()) for t in tensors.values()
        )

    fixed = [name for name, task in EXERCISES.items() if numbers(task, 1) == numbers(task, 2)]
    assert not [name for name, task in EXERCISES.items() if numbers(task, 3) != numbers(task, 3)]
    assert not fixed, fixed


@pytest.mark.parametrize(
    "module", sorted({task.trial.run.__module__.rpartition(".")[2] for task in EXERCISES.values()})
)
def test_a_room_gets_trials_without_answers(module):
    """What the sandbox sees of a chapter of trials still runs, and holds no mistake and no variant."""
    text = without_answers(module_text(f"exercise_cases.{module}"))
    names = {n for piece in pieces(text) for n in piece.names}
    assert not {n for n in names if n.lower().startswith("_wrong")} and "TRIALS" in names
    own = {}
    exec(compile(text.replace("from .", "from minbert."), module, "exec"), own)
    assert own["TRIALS"] and own.get("MISTAKES", {}) == {} and own.get("VARIANTS", {}) == {}
    for name in own["TRIALS"]:
        for variant in EXERCISES[name].variants:
            assert variant not in text


def names_used(code):
    """Global names that a piece of code reads, those of its inner functions included."""
    yield from (
        i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from names_used(inner)


@pytest.mark.parametrize(
    "module", sorted({task.trial.run.__module__.rpartition(".")[2] for task in EXERCISES.values()})
)
def test_a_trial_finds_every_name_that_it_uses(module):
    """A name that is missing on a way that only wrong answers take would be said to be the
    learner's.
    """
    known = {**vars(import_module(f"minbert.exercise_cases.{module}")), **vars(builtins)}
    used = set(names_used(compile(module_text(f"exercise_cases.{module}"), module, "exec")))
    assert len(used) > 10 and not used - known.keys() - {"__name__"}


def test_a_group_with_an_empty_rate_is_told_by_its_numbers(name="optim.groups"):
    task = EXERCISES[name]
    (empty,) = [m for m in task.mistakes if "lr=None" in m.says]
    found = verdict(name, task.perform(build(task, wrong_definition(task, empty)), SEED), SEED)
    assert found.mistake == empty.says and "NameError" not in found.message


def test_a_method_exercise_stands_alone():
    """A target is no __init__ and calls no super(): the check puts it into another class."""
    for task in EXERCISES.values():
        assert not task.target.endswith("__init__") and "super()" not in task.definition, task.name


def test_a_check_prints_one_line_or_says_why(capsys):
    task = EXERCISES["attention.split"]
    check(task.name, reference(task))
    assert re.fullmatch(r"attention\.split: passed, \d+ cases\n", capsys.readouterr().out)
    wrong = build(task, wrong_definition(task, task.mistakes[0]))
    with pytest.raises(CheckFailed, match="known mistake") as caught:
        check(task.name, wrong)
    assert caught.value.verdict.mistake == task.mistakes[0].says and isinstance(
        caught.value, AssertionError
    )
    with pytest.raises(ValueError, match="attention.split"):
        check("attention.spilt", wrong)


def test_no_module_runs_an_exercise_at_import():
    """A stub raises; at the top level of a module it would make every later import fail."""
    for module in {task.module for task in EXERCISES.values()}:
        targets = {task.target for task in EXERCISES.values() if task.module == module}
        for node in ast.parse(module_text(module)).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)):
                called = {
                    n.func.id
                    for n in ast.walk(node)
                    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
                }
                assert not called & targets, (module, called & targets)


def test_every_promise_of_a_value_error_is_a_case():
    assert not [
        name
        for name, task in EXERCISES.items()
        if ("Raises" in task.definition or guards(task.definition)) and not task.refusals
    ]
    assert set(REFUSALS) <= set(EXERCISES)
    for name, table in REFUSALS.items():
        assert EXERCISES[name].refusals == tuple(r.label for r in table) and len(
            {r.label for r in table}
        ) == len(table)


def accepted(task, definition):
    """Wrong input that a program does not refuse."""
    implementation = build(task, definition)
    return [r.label for r in REFUSALS[task.name] if not refuses(r, implementation)]


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_promised_is_refused_and_each_guard_is_asked_for(name):
    task = EXERCISES[name]
    right = [task.definition, *(right_definition(task, v) for v in task.variants)]
    assert [accepted(task, d) for d in right] == [[]] * len(right)
    given = guards(task.definition)
    # left out, some right program accepts what it refused
    for guard in (g for g in given if "raise " in g or re.search(r"\b_?check|as_vectors", g)):
        assert any(accepted(task, d.replace(guard + "\n", "", 1)) for d in right), guard
    for definition in [v for v in task.variants if given and accepted(task, v)][:1]:
        found = verdict(name, task.perform(build(task, definition), SEED), SEED)
        assert not found.passed and found.message.startswith(
            f"{name}: not yet. Wrong input must end in a ValueError (the docstring asks for it; the stub may have the lines, below it)"
        )
        assert all(label in found.mistake for label in accepted(task, definition))


def test_another_error_or_an_answer_is_no_refusal():
    trial = with_refusals("sentence.mean", EXERCISES["attention.merge"].trial)
    case = trial.cases(torch.Generator())[-1]
    assert case.label == "refuses a mask of one column"
    for mean, refused in (
        (lambda u, v: u, False),
        (lambda u, v: 1 / 0, False),
        (lambda u, v: int("x"), True),
        (reference(EXERCISES["sentence.mean"]), True),
    ):
        assert bool(trial.run(mean, case.inputs)["refused"]) is refused


def test_who_refuses_everything_or_leaves_the_last_cases_out_does_not_pass():
    task = EXERCISES["attention.split"]
    outcomes = expected_outcomes(task.name, SEED)
    assert verdict(task.name, outcomes, SEED).passed
    for some in (
        outcomes[:-1],
        outcomes[: -len(task.refusals)],
        outcomes + outcomes[-1:],
        outcomes[-1:],
        [],
    ):
        assert not verdict(task.name, some, SEED).passed
    wrong = build(task, "def split_heads(x, heads):\n    raise ValueError")
    assert not verdict(task.name, task.perform(wrong, SEED), SEED).passed


@pytest.mark.parametrize("name", EXERCISES)
def test_what_is_borrowed_works_and_passes_nothing(name, capsys):
    task = EXERCISES[name]
    ours, (head, _, method) = reference(task), task.target.partition(".")
    lent = borrow(name)
    mine = type(head, (ours,), {method: lent}) if method else lent
    capsys.readouterr()
    check(name, mine)
    assert capsys.readouterr().out == f"{name}: borrowed, 0 of {task.points} points\n"
    # the reference itself is not marked
    assert not hasattr(vars(ours)[method] if method else ours, "borrowed")
    got, expected = task.perform(mine, SEED), expected_outcomes(name, SEED)
    assert [o.error for o in got] == [o.error for o in expected]


def test_a_failing_check_says_what_went_in():
    """A failing check says what went into the case that failed: shapes, dtypes that are not the
    usual one, settings.
    """

    def message(name, wrong):
        return verdict(name, EXERCISES[name].perform(wrong, SEED), SEED).message

    shown = {
        line.split(maxsplit=1)[1]
        for line in message(
            "contrastive.margin", lambda u, v, labels, margin=0.5: u.sum() * 0
        ).split("\n")
        if line.startswith("  given ")
    }
    assert shown == {"u (8, 5), v (8, 5), labels (8,) int64"}
    assert "  given     x (11,), y (11,)\n" in message("metrics.pearson", lambda x, y: 3.0)
    # where nothing comes back, the sizes say most
    fails = message("losses.classes", lambda logits, labels: logits[:, 9])
    assert fails.index("IndexError") < fails.index("  given     logits (7, 5), labels (7,) int64")
    late = message(
        "contrastive.margin",
        lambda u, v, labels, margin=0.5: reference(EXERCISES["contrastive.margin"])(
            u, v, labels, 0.5
        ),
    )
    # of the case that fails, not of the first
    assert "  given     u (8, 5), v (8, 5), labels (8,), margin 1\n" in late
    assert len(_given({f"setting_{i}": i for i in range(40)})) < 120 and _given(
        {f"setting_{i}": i for i in range(40)}
    ).endswith(", ...")
    # neither a wall of text, nor what no answer is given
    assert (
        _given({"text": "long " * 40, "seed": 5, "rows": [1, 2], "x": torch.zeros(2, 3)})
        == "x (2, 3) float32"
    )


def outcomes(*found):
    """What came of each case: numbers, results by name, or an error."""

    def as_dict(x):
        return x if isinstance(x, dict) else {"average": torch.as_tensor(x, dtype=torch.float64)}

    return [
        Outcome(f"case {i}", None, x) if isinstance(x, str) else Outcome(f"case {i}", as_dict(x))
        for i, x in enumerate(found)
    ]


def judged(expected, got, **known):
    """Judge made-up numbers; `known` are mistakes and what each makes of all cases."""
    trial = Trial(lambda generator: [], lambda f, inputs: {}, ("How many words are there?",))
    return judge(
        "average",
        trial,
        outcomes(*expected),
        outcomes(*got),
        [(says, outcomes(*numbers).__getitem__) for says, numbers in known.items()],
    )


@pytest.mark.parametrize(
    "known, says",
    [
        ({"pads": (0.4, 0.25, 0.3, 0.6, 1)}, NAMED + "pads"),
        ({"pads": (0.4, 0.25, 0.3, 0.6, 1), "length": (0.4, 0.25, 0.3, 0.6, 1)}, "Hint: "),
        # of three wrong numbers two, or one
        ({"pads": (0.4, 0.25, 0.3, 0.9, 1)}, "Perhaps: pads"),
        ({"length": (0.4, 0.25, 0.9, 0.9, 1)}, "Hint: "),
        # wrong where the learner is right; not in the first
        ({"pads": (0.4, 0.9, 0.3, 0.6, 1)}, "Hint: "),
        ({"pads": (0.9, 0.25, 0.3, 0.6, 1)}, "Hint: "),
        ({"length": (0.4, 0.25, 0.9, 0.6, 1), "pads": (0.4, 0.25, 0.3, 0.9, 1)}, "Hint: "),
        ({"length": (0.4, 0.9, 0.3, 0.6, 1), "pads": (0.4, 0.25, 0.3, 0.9, 1)}, "Perhaps: pads"),
    ],
)
def test_a_mistake_is_named_where_all_numbers_are_its_and_suspected_where_most_are(known, says):
    found = judged((0.5, 0.25, 0.125, 0.7, 1), (0.4, 0.25, 0.3, 0.6, 1), **known)
    assert not found.passed and found.message.split("\n")[-1].startswith(says)
    assert found.mistake == ("pads" if says.startswith(NAMED) else None)


def test_of_several_suspected_mistakes_the_one_with_most_numbers_is_told():
    right, got = (0.5, 0.25, 0.125, 0.7), (0.4, 0.2, 0.3, 0.6)
    found = judged(right, got, length=(0.4, 0.2, 0.9, 0.9), pads=(0.4, 0.2, 0.3, 0.9))
    assert found.message.endswith("Perhaps: pads") and found.mistake is None
    assert "Hint: " in judged((0.5, 0.25), (0, 0), pads=(0, 1)).message  # zeros have many causes
    # and so has NaN
    assert "Hint: " in judged((0.5, 0.25), (math.nan, math.nan), pads=(math.nan, 1)).message
    # half of the wrong numbers
    assert judged((0.5, 0.25), (0.4, 0.2), pads=(0.4, 0.9)).message.endswith("Perhaps: pads")


def test_the_search_for_a_mistake_ends_when_its_processor_time_is_spent(monkeypatch):
    clock, tried = [0.0], []
    monkeypatch.setattr(feedback.time, "process_time", lambda: clock[0])

    def mistaken_by(n):
        def run(i):
            tried.append(n)
            clock[0] += 1.0
            return outcomes(float(n))[i]

        return run

    trial = Trial(lambda generator: [], lambda f, inputs: {}, ("How many words are there?",))
    known = [(f"mistake {n}", mistaken_by(n)) for n in range(9)]
    found = judge("average", trial, outcomes(0.5), outcomes(8.0), known, seconds=2.5)
    assert tried == [0, 1, 2] and found.mistake is None and "Hint: " in found.message
    assert judge("average", trial, outcomes(0.5), outcomes(8.0), known).mistake == "mistake 8"
    assert (
        judge("average", trial, outcomes(0.5), outcomes(1.0), known, seconds=2.5).mistake
        == "mistake 1"
    )


def test_a_mistake_is_looked_for_where_it_costs_least():
    """The number of calls tells what a case costs; a mistake that does not fit the cheapest failing
    case is not run on the others.
    """

    def called(n, x):
        return {
            "average": torch.tensor(x),
            "left behind: a seed": torch.zeros(n, dtype=torch.bool),
        }

    right = (called(100, 0.5), called(1, 0.25), called(1, 0.5))
    got = (called(100, 0.4), called(1, 0.2), called(1, 0.5))
    ran = []

    def run(i):
        return ran.append(i) or outcomes(called(100, 0.4), called(1, 0.3), called(1, 0.5))[i]

    judge(
        "average",
        Trial(lambda generator: [], lambda f, inputs: {}, ("",)),
        outcomes(*right),
        outcomes(*got),
        [("pads", run)],
    )
    assert ran == [1]


def test_mistakes_that_look_like_the_answer_are_tried_first():
    task = EXERCISES["attention.split"]
    looks = {
        m.says: exercises._likeness(m, wrong_definition(task, task.mistakes[3]))
        for m in task.mistakes
    }
    assert looks[task.mistakes[3].says] == max(looks.values()) == 1.0 > min(looks.values())
    assert {exercises._likeness(m, "") for m in task.mistakes} == {0.0}


def test_a_check_computes_with_one_thread_and_gives_the_others_back(monkeypatch):
    threads, seen = torch.get_num_threads(), []
    monkeypatch.setattr(
        exercises, "verdict", lambda *_: seen.append(torch.get_num_threads()) or verdict(*_)
    )
    try:
        torch.set_num_threads(2)
        check("attention.split", reference(EXERCISES["attention.split"]))
        assert seen == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "kind",
    [
        "NameError: name 'maths' is not defined",
        "UnboundLocalError: x",
        "ModuleNotFoundError: No module named 'x'",
    ],
)
def test_a_name_that_does_not_exist_is_said_and_nothing_else(kind):
    """No hint, no numbers and no known mistake: what is wrong is the name."""
    trial = Trial(lambda generator: [], lambda f, inputs: {}, ("How many words are there?",))
    crash = Outcome("case 0", None, kind, "line 2: maths.sqrt(5)")
    found = judge(
        "average", trial, outcomes(1), [crash], [("pads", lambda i: pytest.fail("nobody asked"))]
    )
    assert (
        found.message == f'average: not yet. Case "case 0": {kind}\n  in line 2: maths.sqrt(5)'
        and not found.passed
    )


def test_a_message_says_what_failed_and_then_what_passed():
    right = {
        "output": torch.ones(3),
        "finite at a row of padding": True,
        "dtype as promised": True,
        "left behind: a seed": torch.tensor([False]),
    }

    def as_tensors(d):
        return {name: torch.as_tensor(x) for name, x in d.items()}

    found = judged(
        (as_tensors(right),), (as_tensors(right | {"finite at a row of padding": False}),)
    )
    assert (
        '\nFailed: "finite at a row of padding" (should be true). Passed: "output", "dtype as promised".'
        in found.message
    )
    some = judged((0.5, 0.25, 0.125, 0.7, 1), (0.4, 0.25, 0.125, 0.7, 1))
    assert '1 of 5 cases fails: "case 0". The other 4 pass.' in some.message


def test_a_message_shows_the_first_case_that_differs_around_its_worst_number():
    right = torch.arange(18.0).reshape(2, 9)
    middle, end = right.clone(), right.clone()
    middle[1, 4], end[0, 8] = 14, 9
    lines = judged((1, right, right), (1, middle, end)).message.split("\n")
    assert lines[0] == 'average: not yet. Case "case 1", average: largest difference 1 at [1, 4]'
    assert lines[1:3] == [
        "  expected  ... 11  12  13  14  15  16 ...   (row [1] of shape [2, 9])",
        "  got       ... 11  12  14  14  15  16 ...",
    ]
    assert "  got       ... 3  4  5  6  7  9\n" in judged((right,), (end,)).message
    twice = judged((right,), (2 * right,))
    assert twice.told and f"\n{twice.told}\n" in twice.message
    trial = Trial(lambda generator: [], lambda f, inputs: {}, ("",))
    crash = Outcome("case 0", None, "IndexError: 5", "line 2: x[5]")
    assert "\n  in line 2: x[5]\n" in judge("average", trial, outcomes(1), [crash], []).message


def test_the_picture_is_cut_out_where_the_worst_number_is():
    right = torch.zeros(2, 3, 4, 30)
    wrong = right.clone()
    wrong[1, 2, 3, 0] = 5
    found = picture_of(judged(({"maps": right},), ({"maps": wrong},)))
    assert (
        found["got"] == wrong[1, 2, :, :24].tolist()
        and found["expected"] == right[0, 0, :, :24].tolist()
    )


BOTH = {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}


@pytest.mark.parametrize(
    "expected, got",
    [
        (0.5, math.nan),
        (math.nan, 0.5),
        (math.inf, 0.5),
        (-math.inf, math.inf),
        ("ValueError: a", "TypeError: b"),
        ("ValueError: a", 0.5),
        (BOTH, {"a": BOTH["a"]}),
        ({"a": BOTH["a"]}, BOTH),
    ],
    ids=str,
)
def test_what_is_no_number_another_error_or_another_set_of_outputs_never_passes(expected, got):
    assert judged((expected,), (expected,)).passed and not judged((expected,), (got,)).passed


def test_cases_are_counted_once_and_a_draw_that_nobody_asked_for_fails():
    def drew(yes):
        return {"average": torch.tensor(1.0), "left behind: a draw": torch.tensor(yes)}

    assert judged((1, 1), (1, 1)).message == "average: passed, 2 cases"
    trial, plain = Trial(lambda generator: [], lambda f, inputs: {}, ("",)), outcomes(1, 1, 1)
    assert (
        judge("average", trial, [*plain[:2], plain[2]._replace(way=AGAIN)], plain, []).message
        == "average: passed, 2 cases"
    )
    assert (
        judged((1, 1), (1,)).message == "average: only 1 of 2 cases came back"
        and 'Case "case 0"' in judged((1, 1), (2,)).message
    )
    assert (
        judged((drew(False), 1), (drew(False), 1)).passed
        and not judged((drew(False), 1), (drew(True), 1)).passed
    )


@pytest.mark.parametrize(
    "error, hint",
    [
        (
            "TypeError: f() got an unexpected keyword argument 'x'",
            "Are the arguments still those of the stub",
        ),
        ("TypeError: words; your code gave back None", "Does every way through your code end"),
        (
            "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
            "it stands under `torch.no_grad()`",
        ),
        ("RuntimeError: modified by an inplace operation", "Work on a copy"),
        ("ValueError: odd", "How many words are there?"),
    ],
)
def test_an_error_gets_the_hint_that_fits(error, hint):
    assert hint in judged((1,), (error,)).message.split("\n")[-1]


def test_what_came_in_is_told_from_what_comes_out():
    changed = {"average": torch.tensor(1.0), "input words afterwards": torch.tensor([1.0, 2.0])}
    touched = judged((1,), (changed | {"average": torch.tensor(1.0, dtype=torch.float64)},))
    left = judged((changed,), ({"average": changed["average"]},))
    assert (
        "Hint: Work on a copy" in touched.message
        and touched.message.count("your code changed its input") == 1
    )
    assert (
        "your code left it as it was" in left.message
        and "Hint: This is to change in place" in left.message
    )
