"""The list of all exercises, the `check` that a learner calls, and `strength`, which tests the
checks themselves.

Facts about an exercise are marked in its chapter; its cases and known mistakes stand in
`minbert.exercise_cases`. Every known mistake is an edit of the reference and must be rejected and named;
every right variant must pass. `check` limits the search for a known mistake to one second of
processor time, because a learner waits for it; a grader takes the time that the search needs, so
that its verdict does not depend on the machine.
"""

__all__ = [
    "STILL_THERE",
    "FACTS",
    "EXERCISES",
    "SECONDS",
    "NAMING",
    "Exercise",
    "exercise",
    "in_chapter",
    "wrong_definition",
    "right_definition",
    "build",
    "reference",
    "cases",
    "expected_outcomes",
    "expected_facts",
    "KnownMistake",
    "mistaken",
    "borrow",
    "is_borrowed",
    "verdict",
    "CheckFailed",
    "check",
    "Strength",
    "strength",
    "shortfalls",
    "strength_table",
]

import atexit
import inspect
import json
import math
import os
import re
import time
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

import torch

from .check_runner import (
    REFUSAL,
    Case,
    NamedMistake,
    Outcome,
    Trial,
    isolate_exercise,
    make_cases,
    new_generator,
    repeated,
    run_case,
)
from .compare import compare
from .feedback import Verdict, judge
from .source_tools import (
    PACKAGE,
    edited,
    guarded,
    guards,
    module_text,
    planted,
    program,
    source_of,
    stub,
)


class Exercise(NamedTuple):
    """One function or method that a learner writes."""

    name: str  # such as "attention.scores"
    notebook: str  # chapter, without ending
    module: str  # that the chapter exports
    target: str  # "function" or "Class.method"
    points: int
    minutes: int  # that it takes, roughly
    optional: bool  # nothing later needs it
    trial: Trial
    mistakes: tuple[NamedMistake, ...]
    variants: tuple[str, ...]  # other right definitions of the target; guards left out
    refusals: tuple[str, ...]  # wrong input that must be refused: the last cases of the trial
    # the mistake to be found in the program that a learner gets; None: there is a function to write
    planted: NamedMistake | None = None

    @property
    def definition(self) -> str:
        """Source of the reference."""
        return source_of(module_text(self.module), self.target)

    @property
    def given(self) -> str:
        """Source of the wrong program that a learner gets; empty if there is a function to write."""
        return planted(self.definition, self.planted.changes) if self.planted else ""

    def told(self, mistake: NamedMistake) -> str:
        """Say what a check says of a mistake: where it was planted, its sentence would be the
        answer.
        """
        return STILL_THERE if mistake == self.planted else mistake.says

    def perform(self, implementation, seed: int) -> list[Outcome]:
        """Run an implementation of the target on all cases."""
        return [self.attempt(implementation, seed, i) for i in range(len(cases(self.name, seed)))]

    def attempt(self, implementation, seed: int, i: int) -> Outcome:
        """Run an implementation of the target on one case; what comes back may be raw (see
        `taken`).
        """
        return run_case(
            self.trial,
            implementation,
            cases(self.name, seed)[i],
            seed,
            self.target.partition(".")[2],
        )

    def taken(self, outcome: Outcome, seed: int, i: int) -> Outcome:
        """Take the statistics of a raw outcome, wherever it was made."""
        return repeated(
            self.trial,
            reference(self),
            cases(self.name, seed)[i],
            outcome,
            seed,
            self.target.partition(".")[2],
        )


STILL_THERE = "it stood in the program that you were given. Read line by line what is computed, and compare it with the task."


FACTS = PACKAGE / "assets" / "course" / "exercises.json"


def _collect() -> dict[str, Exercise]:
    """Join the facts of the chapters with the trials, in the order of the book."""
    found = [
        import_module(f"minbert.exercise_cases.{file.stem}")
        for file in sorted((PACKAGE / "exercise_cases").glob("[a-z]*.py"))
    ]
    trials, mistakes, variants, places = (
        {name: value for m in found for name, value in getattr(m, table, {}).items()}
        for table in ("TRIALS", "MISTAKES", "VARIANTS", "PLANTED")
    )
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    refusals = import_module("minbert.exercise_cases.input_validation")
    return {
        fact["name"]: Exercise(
            **fact,
            trial=refusals.with_refusals(fact["name"], _with_promise(trials[fact["name"]], fact)),
            refusals=tuple(r.label for r in refusals.REFUSALS.get(fact["name"], ())),
            mistakes=tuple(mistakes.get(fact["name"], ())),
            variants=tuple(variants.get(fact["name"], ())),
            planted=_planted(places.get(fact["name"]), mistakes.get(fact["name"], ())),
        )
        for fact in facts
        if fact["name"] in trials
    }


def _with_promise(trial: Trial, fact: dict) -> Trial:
    """Note which dtype the docstring of the target promises for its result, where it does."""
    definition = source_of(module_text(fact["module"]), fact["target"])
    returns = (
        next((line for line in definition.split("\n") if ") ->" in line), "")
        .partition("#")[2]
        .rpartition("->")[2]
    )
    if "float32 or wider" in returns:
        return trial._replace(promise="float32 or wider")
    exact = re.search(r"float(32|64)|int64|\bbool\b|dtype", returns)
    return trial._replace(promise="as the reference") if exact and not trial.promise else trial


def _planted(begins: str | None, mistakes: Iterable[NamedMistake]) -> NamedMistake | None:
    """Find the one mistake whose sentence begins so."""
    if begins is None:
        return None
    [found] = [mistake for mistake in mistakes if mistake.says.startswith(begins)]
    return found


EXERCISES = _collect()


def exercise(name: str) -> Exercise:
    """Look an exercise up. Raises ValueError that suggests the nearest names."""
    if name not in EXERCISES:
        near = get_close_matches(name, EXERCISES, 3, 0.4)
        raise ValueError(
            f"expected the name of an exercise, got {name!r}"
            + (f"; did you mean {' or '.join(near)}?" if near else "")
        )
    return EXERCISES[name]


def in_chapter(part: str | None) -> list[str]:
    """Name the exercises of all chapters whose name holds `part`; None: all. Raises ValueError if
    there are none.
    """
    found = [name for name, task in EXERCISES.items() if part is None or part in task.notebook]
    if not found:
        raise ValueError(f"expected part of the name of a chapter with exercises, got {part!r}")
    return found


def wrong_definition(
    task: Exercise,
    mistake: NamedMistake,
) -> str:  # source of the target
    """Make the mistake in the reference. Raises ValueError if an edit does not apply."""
    try:
        return edited(task.definition, mistake.changes)
    except ValueError as error:
        raise ValueError(f"{task.name}, mistake {mistake.says!r}: {error}") from error


def right_definition(
    task: Exercise,
    variant: str,  # one of its variants
) -> str:  # source of the target
    """Write a variant as a learner would, below the guards that the stub gives."""
    return guarded(variant.strip("\n"), task.definition)


def build(
    task: Exercise,
    definition: str,  # source of the target
):  # function or class
    """Put a definition of the target in the place of the reference."""
    return program(task.module, task.target, definition)


def reference(task: Exercise):  # function or class, as the installed package has it
    """Give what a learner is compared with."""
    return getattr(import_module(f"minbert.{task.module}"), task.target.partition(".")[0])


@lru_cache(maxsize=64)
def cases(name: str, seed: int) -> list[Case]:
    """Draw the cases of an exercise, once for each seed, and make further ones of the first."""
    task = exercise(name)
    found = make_cases(task.trial, seed)
    return found + _derived_cases(task, found[0], seed)


def _derived_cases(task: Exercise, first: Case, seed: int) -> list[Case]:
    """Make cases of one, and keep those with which the reference has no trouble: no error, and
    finite numbers where there were some.
    """
    made = [
        case
        for way in (() if task.trial.replay else task.trial.derive)
        if (case := new_generator(first, way)) is not None
    ]
    found = [
        run_case(task.trial, reference(task), case, seed, task.target.partition(".")[2])
        for case in made
    ]

    def finite(o):
        return o.outputs is not None and all(x.isfinite().all() for x in o.outputs.values())

    return [case for case, outcome in zip(made, found) if finite(outcome)]


@lru_cache(maxsize=512)
def expected_outcomes(name: str, seed: int) -> list[Outcome]:
    """Run the reference, once for each seed."""
    task = exercise(name)
    return task.perform(reference(task), seed)


@lru_cache(maxsize=512)
def expected_facts(name: str, seed: int) -> list[Outcome]:
    """Take the statistics of the reference, once for each seed, however many answers are held
    against them.
    """
    task = exercise(name)
    return [task.taken(outcome, seed, i) for i, outcome in enumerate(expected_outcomes(name, seed))]


class KnownMistake:
    """A known mistake at work, run case by case and only as far as somebody asks."""

    def __init__(self, task: Exercise, mistake: NamedMistake, seed: int):
        self.task, self.mistake, self.seed, self.outcomes, self.facts, self.made = (
            task,
            mistake,
            seed,
            {},
            {},
            None,
        )

    def __call__(self, i: int) -> Outcome:
        """Give what the wrong program makes of case `i`."""
        if i not in self.outcomes:
            self.made = self.made or build(self.task, wrong_definition(self.task, self.mistake))
            self.outcomes[i] = self.task.attempt(self.made, self.seed, i)
        return self.outcomes[i]

    def taken(self, i: int) -> Outcome:
        """Give its statistics in case `i`, which every answer that fails asks for."""
        if i not in self.facts:
            self.facts[i] = self.task.taken(self(i), self.seed, i)
        return self.facts[i]


@lru_cache(maxsize=512)
def mistaken(name: str, seed: int) -> list[KnownMistake]:
    """Give every known mistake, once for each seed."""
    task = exercise(name)
    return [KnownMistake(task, m, seed) for m in task.mistakes]


def borrow(
    name: str,  # of an exercise
):  # its function or method, to be put in the place of one's own
    """Take the reference instead of an answer, so that a chapter goes on; it gives no points.

    padding_bias = borrow("attention.bias"), and for a method SelfAttention.project =
    borrow("attention.project")
    """
    task = exercise(name)
    ours, (_, _, method) = reference(task), task.target.partition(".")
    function = vars(ours)[method] if method else ours
    made = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__, made.__doc__ = function.__kwdefaults__, function.__doc__
    made.borrowed = name
    print(f"{name}: borrowed, 0 of {task.points} points")
    return made


def is_borrowed(name: str, function) -> bool:
    """Tell whether a function comes from `borrow`."""
    return getattr(function, "borrowed", None) == name


def verdict(
    name: str,  # of an exercise
    outcomes: list[Outcome],  # of an implementation, from `Exercise.perform`
    seed: int = 11711,  # the same as there
    seconds: float = math.inf,  # of processor time for naming the mistake
    # of the implementation: known mistakes that look like it are tried first
    source: str = "",
) -> Verdict:
    """Judge outcomes, wherever they were made."""
    task, expected = exercise(name), expected_outcomes(name, seed)
    own = [i for i, o in enumerate(expected) if o.way != REFUSAL]  # cases of the trial itself
    theirs = [task.taken(outcomes[i], seed, i) for i in own if i < len(outcomes)]

    errors = {o.error for o in theirs}
    if errors and all(e and e.startswith(f"NotImplementedError: exercise {name}") for e in errors):
        return Verdict(False, f"{name}: not written yet. {task.trial.hints[0]}")
    if len(outcomes) != len(expected):
        return Verdict(False, f"{name}: {len(outcomes)} of {len(expected)} cases came back")
    facts = expected_facts(name, seed)
    tried = sorted(mistaken(name, seed), key=lambda m: -_likeness(m.mistake, source))
    known = [(task.told(m.mistake), lambda i, m=m: m.taken(own[i])) for m in tried]
    found = judge(
        name,
        task.trial,
        [facts[i] for i in own],
        theirs,
        known,
        [cases(name, seed)[i] for i in own],
        seconds,
    )
    if not found.passed:
        return found
    refusals = [(a, b) for a, b in zip(expected, outcomes) if a.way == REFUSAL]
    accepted = [label for label, pair in zip(task.refusals, refusals) if compare(task.trial, *pair)]
    return _unrefused(task, accepted) if accepted else found


def _likeness(mistake: NamedMistake, source: str) -> float:
    """Give the share of the words that a mistake puts in which stand in a source, too."""

    def words(text):
        return set(re.findall(r"\w+|[^\w\s]+", text))

    put_in = set().union(*(words(new) - words(old) for old, new in mistake.changes))
    return len(put_in & words(source)) / len(put_in) if put_in else 0.0


def _unrefused(task: Exercise, accepted: list[str]) -> Verdict:
    """Say what should have been refused, and where the lines for it are."""
    where = "the docstring asks for it" + (
        "; the stub may have the lines, below it" if guards(task.definition) else ""
    )
    says = f"Wrong input must end in a ValueError ({where}): {'; '.join(accepted)}."
    return Verdict(False, f"{task.name}: not yet. {says}", says)


class CheckFailed(AssertionError):
    """A check that did not pass; `verdict` holds what it found."""

    def __init__(self, found: Verdict):
        super().__init__("\n" + found.message)
        self.verdict = found

    def _render_traceback_(
        self,
        # IPython asks for it: our own lines of code would only be in the way
    ) -> list[str]:
        return self.verdict.message.split("\n")


SECONDS = 8  # of processor, after which grading stops an answer


def _slow(used: float) -> str:  # seconds of processor
    """Say that a right answer needs more time than it has where it is graded."""
    return (
        ""
        if used <= SECONDS
        else (
            f"\nIt needed {used:.1f} seconds of processor, and grading stops an answer after {SECONDS}: "
            "look for a loop that an operation on whole tensors can replace."
        )
    )


NAMING = 1.0  # seconds of processor time in which a check looks for the known mistake


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: on the few numbers of a case, several wait for each other, on a busy
    machine for seconds.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _source(implementation, method: str) -> str:
    """Read what a learner wrote, where Python finds it."""
    try:
        return inspect.getsource(
            inspect.getattr_static(implementation, method) if method else implementation
        )
    except (OSError, TypeError, AttributeError):
        return ""


def check(
    name: str,  # of an exercise
    implementation,  # the function, or the class that holds the method
    seed: int = 11711,  # of the cases
) -> None:
    """Compare an implementation with the reference; print one line, or raise AssertionError with a
    diagnosis. A second line says if a right answer is too slow to be graded.

    Every other exercise is taken from the reference, so what is not written yet elsewhere does no
    harm. Raises ValueError for an unknown name or something that cannot be what was asked for.
    """
    task = exercise(name)
    ours = reference(task)
    head, _, method = task.target.partition(".")
    if method and not isinstance(implementation, type) and callable(implementation):
        implementation = type(head, (ours,), {method: implementation})
    if not callable(implementation) or isinstance(implementation, type) != isinstance(ours, type):
        raise ValueError(
            f"{name}: expected {'the class' if isinstance(ours, type) else 'the function'} {head}, got {implementation!r}"
        )
    if is_borrowed(name, getattr(implementation, method) if method else implementation):
        print(f"{name}: borrowed, 0 of {task.points} points")
        return
    others = [e.target for e in EXERCISES.values() if e.module == task.module and e.name != name]
    single = isolate_exercise(
        implementation, task.target, import_module(f"minbert.{task.module}"), others
    )
    with _one_thread():
        cases(name, seed)  # made before the clock starts
        start = time.process_time()
        outcomes = task.perform(single, seed)
        used = time.process_time() - start
        found = verdict(name, outcomes, seed, NAMING, _source(implementation, method))
    if not found.passed:
        raise CheckFailed(found)
    _count(name)
    print(found.message + _slow(used))


_PASSED = set()  # names of the exercises whose checks passed in this process


def _count(name: str) -> None:
    """Count a passed check; `nbdev_test`, which shows no output of a cell, ends with the number."""
    if not _PASSED and os.environ.get("IN_TEST"):  # nbdev_test sets it
        atexit.register(lambda: print(f"{len(_PASSED)} check{'s' * (len(_PASSED) != 1)} passed"))
    _PASSED.add(name)


class Strength(NamedTuple):
    """What one check can tell apart."""

    name: str
    subject: str
    mistakes: int
    rejected: int  # with every seed
    named: int  # with every seed, by its own sentence
    variants: int
    accepted: int  # with every seed
    reference: bool  # accepted with every seed, without an error
    stub: bool  # rejected
    seconds: float  # of one check, the slowest
    trouble: tuple[str, ...] = ()  # what went wrong


def strength(
    task: Exercise,
    seeds: Iterable[int] = (11711, 1, 2),  # of the cases
) -> Strength:
    """Try every mistake and every variant of one exercise."""
    seeds, trouble = tuple(seeds), []

    def passes(implementation, label: str, wanted: bool) -> list[Verdict]:
        return judged([task.perform(implementation, seed) for seed in seeds], label, wanted)

    def judged(outcomes: list[list[Outcome]], label: str, wanted: bool) -> list[Verdict]:
        found = [verdict(task.name, made, seed) for made, seed in zip(outcomes, seeds)]
        for seed, v in zip(seeds, found):
            if v.passed is not wanted:
                trouble.append(
                    f"{label}, seed {seed}: {'rejected: ' + v.message if wanted else 'accepted'}"
                )
        return found

    start = time.perf_counter()
    ours = all(v.passed for v in passes(reference(task), "reference", True))
    seconds = (time.perf_counter() - start) / len(seeds)
    errors = [o.error for seed in seeds for o in expected_outcomes(task.name, seed) if o.error]
    trouble += [f"reference fails: {error}" for error in errors]
    # what the naming needs runs once
    known = list(zip(*(mistaken(task.name, seed) for seed in seeds)))

    def whole(one, seed):
        return [one(i) for i in range(len(cases(task.name, seed)))]

    wrong = [
        (task.told(m), judged(list(map(whole, ones, seeds)), f"mistake {m.says!r}", False))
        for m, ones in zip(task.mistakes, known)
    ]
    for says, found in wrong:
        if others := {v.mistake for v in found if not v.passed} - {says}:
            trouble.append(f"mistake {says!r} is taken for {others}")
    fine = [
        passes(build(task, right_definition(task, v)), f"variant {i}", True)
        for i, v in enumerate(task.variants)
    ]
    empty = passes(build(task, stub(task.definition, f"exercise {task.name}")), "stub", False)
    return Strength(
        task.name,
        task.trial.subject,
        len(wrong),
        sum(not any(v.passed for v in f) for _, f in wrong),
        sum(all(v.mistake == says for v in f) for says, f in wrong),
        len(fine),
        sum(all(v.passed for v in f) for f in fine),
        ours and not errors,
        not any(v.passed for v in empty),
        seconds,
        tuple(trouble),
    )


def shortfalls(rows: list[Strength]) -> list[str]:
    """List what a set of checks owes: mistakes and variants enough, all rejected, nearly all named,
    nothing right refused.
    """
    owed = []
    for r in rows:
        lacking = {
            "mistakes, of 3": r.mistakes < 3,
            "variants, of 2": r.variants < 2,
            "rejected": r.rejected < r.mistakes,
            "accepted": r.accepted < r.variants,
            "reference": not r.reference,
            "stub": not r.stub,
        }
        owed += [f"{r.name}: {what}" for what, short in lacking.items() if short]
    for subject in sorted({r.subject for r in rows} - {""}):
        count = sum(r.mistakes for r in rows if r.subject == subject)
        owed += [f"{subject}: {count} mistakes of 8"] if count < 8 else []
    total = sum(r.mistakes for r in rows)
    named = sum(r.named for r in rows)
    return owed + ([f"{named} of {total} mistakes named, of 95 %"] if named < 0.95 * total else [])


def strength_table(rows: list[Strength]) -> str:
    """Write one line an exercise, and the sums."""
    lines = [
        f"{'exercise':<26}{'mistakes':>9}{'rejected':>9}{'named':>7}{'variants':>9}{'accepted':>9}{'seconds':>8}"
    ]
    lines += [
        f"{r.name:<26}{r.mistakes:>9}{r.rejected:>9}{r.named:>7}{r.variants:>9}{r.accepted:>9}{r.seconds:>8.2f}"
        for r in rows
    ]
    sums = [
        sum(getattr(r, c) for r in rows)
        for c in ("mistakes", "rejected", "named", "variants", "accepted")
    ]
    lines.append(
        f"{len(rows):<4} {'exercises':<21}"
        + "".join(f"{n:>{w}}" for n, w in zip(sums, (9, 9, 7, 9, 9)))
    )
    return "\n".join(lines)
