"""Every mutant of an exercise is rejected by its check."""

import ast

import pytest
from mutants import all_mutants

from minbert.course.compare import compare
from minbert.course.exercises import EXERCISES, build, expected_facts, verdict, wrong_definition

SEED = 20261122
MUTANTS = all_mutants()


def rejected(task, mutant) -> bool:
    """Run cases until one differs; a mutant that differs in none is judged as a whole."""
    wrong = build(task, wrong_definition(task, mutant))
    for i, expected in enumerate(expected_facts(task.name, SEED)):
        outcome = task.taken(task.attempt(wrong, SEED, i), SEED, i)
        if compare(task.trial, expected, outcome) is not None:
            return True
    return not verdict(task.name, task.perform(wrong, SEED), SEED).passed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_still_fits_its_reference(name):
    task = EXERCISES[name]
    definitions = [wrong_definition(task, mutant) for mutant in MUTANTS[name]]
    for definition in definitions:
        ast.parse(definition)
    assert definitions and len(set(definitions)) == len(definitions)


def test_no_mutant_is_a_named_mistake():
    for name, mutants in MUTANTS.items():
        named = {mistake.changes for mistake in EXERCISES[name].mistakes}
        assert not [mutant.says for mutant in mutants if mutant.changes in named], name


@pytest.mark.parametrize("name", ["attention.scores", "optim.update", "sentence.unit", "flow.nll"])
def test_mutants_of_a_sample_are_rejected(name):
    passed = [m.says for m in MUTANTS[name] if not rejected(EXERCISES[name], m)]
    assert passed == []


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_all_mutants_are_rejected(name):
    passed = [m.says for m in MUTANTS[name] if not rejected(EXERCISES[name], m)]
    assert passed == []
