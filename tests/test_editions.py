"""The learner's edition: valid, without answers, with a check and help for each exercise, and
enough to solve it.
"""

import ast
import re
import sys
from configparser import ConfigParser
from functools import lru_cache
from importlib.metadata import packages_distributions
from types import SimpleNamespace

import nbformat
import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minbert.course.exercises import (
    EXERCISES,
    STILL_THERE,
    build,
    check,
    expected_outcomes,
    verdict,
)
from minbert.course.learner_notebooks import (
    all_editions,
    awaited,
    chapter_box,
    directives,
    help_text,
    leaks,
    learners_edition,
    marks,
    marks_of,
    minutes_of,
    plain,
    read_learner_notebook,
    split_checks,
    stubbed,
    unguessed,
    written,
)
from minbert.course.predictions import guessed
from minbert.course.source_tools import (
    FIND,
    PACKAGE,
    find,
    is_stub,
    load,
    module_text,
    replace,
    same_program,
    source_of,
    stub,
)

EDITIONS = sorted((PACKAGE / "assets" / "course" / "nbs").rglob("*.ipynb"))
CHAPTERS = PACKAGE.parent / "nbs"
PLANTED = {name: task.planted.changes for name, task in EXERCISES.items() if task.planted}
MODULES = sorted({e.module for e in EXERCISES.values()})


def given(name, hints=("Look.",)):
    return SimpleNamespace(name=name, planted=None, trial=SimpleNamespace(hints=hints))


def test_the_chapters_of_the_book_are_there():
    names = [f"{file.parent.name}/{file.name}" for file in EDITIONS]
    assert (
        names[0] == "1_bert/00_hello.ipynb"
        and names[-1] == "appendix/32_synthetic.ipynb"
        and len(names) >= 30
    )
    assert {f"{e.notebook}.ipynb" for e in EXERCISES.values()} <= set(names)


@pytest.mark.parametrize("file", EDITIONS, ids=lambda f: f.stem)
def test_an_edition_is_valid_and_its_outputs_tell_of_no_check_and_no_guess(file):
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert not [
        c.id
        for c in code
        if c.execution_count
        or c.outputs
        and ("guessed(" in c.source or "check(" in c.source or marks(c.source))
    ]
    assert not re.search(
        r"\w+\.\w+: passed", "".join("".join(o.get("text", "")) for c in code for o in c.outputs)
    )

    def pictures(made):
        return sum(
            "image/png" in o.get("data", {})
            for c in made.cells
            if c.cell_type == "code"
            for o in c.outputs
        )

    complete = read_learner_notebook(CHAPTERS / file.parent.name / file.name)
    for i in awaited(complete.cells):  # these pictures are for whoever has guessed
        complete.cells[i].outputs = []
    assert pictures(notebook) == pictures(complete)
    assert (
        notebook.cells[0].source.startswith("# ")
        and notebook.cells[1].id == "chapter-box"
        and "**About" in notebook.cells[1].source
    )


@pytest.mark.parametrize("file", EDITIONS, ids=lambda f: f.stem)
def test_nothing_but_the_answers_is_gone(file):
    complete, learners = (
        read_learner_notebook(CHAPTERS / file.parent.name / file.name),
        read_learner_notebook(file),
    )
    theirs = {cell.id: cell.source for cell in learners.cells}
    for cell in complete.cells:
        kept = (
            split_checks(cell.source, {m.name for m in marks_of(complete)})[0]
            if cell.cell_type == "code"
            else cell.source
        )
        if kept.strip():
            expected = unguessed(stubbed(kept, PLANTED)) if cell.cell_type == "code" else kept
            assert theirs[cell.id] == expected


# reads the metadata of everything that is installed
distributions = lru_cache(packages_distributions)


def imported(cell):
    """Name the packages that a cell imports, its own modules aside."""
    nodes = list(ast.walk(ast.parse(TransformerManager().transform_cell(cell.source))))
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names] + [
        n.module for n in nodes if isinstance(n, ast.ImportFrom)
    ]
    return {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"minbert"}


@pytest.mark.parametrize("file", EDITIONS, ids=lambda f: f.stem)
def test_in_colab_a_chapter_needs_only_what_its_first_cell_installs(file):
    settings = ConfigParser()
    settings.read(PACKAGE.parent / "settings.ini")
    cells = [c for c in read_learner_notebook(file).cells if c.cell_type == "code"]
    [extra] = re.findall(r"%pip install -q \S+\[train\]\"(.*)", cells[0].source)

    def same(name):
        return re.split(r"[<>=]", name)[0].lower().replace("_", "-")

    lists = [settings["DEFAULT"]["requirements"], settings["DEFAULT"]["train_requirements"], extra]
    there = {same(name) for name in " ".join(lists).split()} | {"ipython"}  # Colab is IPython
    provided = distributions()
    missing = {
        name
        for cell in cells[1:]
        for name in imported(cell)
        if not there & {same(d) for d in provided.get(name, [name])}
    }
    assert not missing


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_is_a_stub_with_its_check_and_its_help_below(name):
    task = EXERCISES[name]
    cells = read_learner_notebook(
        PACKAGE / "assets" / "course" / "nbs" / f"{task.notebook}.ipynb"
    ).cells
    [i] = [
        i
        for i, c in enumerate(cells)
        if c.cell_type == "code" and name in [m.name for m in marks(c.source)]
    ]
    definition = source_of(cells[i].source, task.target)
    if task.planted:
        assert (
            FIND in definition
            and same_program(definition, task.given)
            and not same_program(definition, task.definition)
        )
    else:
        assert is_stub(definition) and f"exercise {name}" in definition
    assert ast.get_docstring(ast.parse(definition).body[0]) == ast.get_docstring(
        ast.parse(task.definition).body[0]
    )
    below = {c.id: c.source for c in cells[i + 1 :]}
    between = [
        c.id for c in cells[i + 1 : [c.id for c in cells].index(f"check-{name.replace('.', '-')}")]
    ]
    others = [c for c in cells if c.id in between and not c.id.startswith(("check-", "help-"))]
    # nothing that could fail comes between, but code that is needed
    assert not others or others[-1].source.startswith("#| export")
    slug = name.replace(".", "-")
    assert f'check("{name}", {task.target.partition(".")[0]})' in below[f"check-{slug}"]
    assert all(plain(hint) in below[f"help-{slug}"] for hint in task.trial.hints)
    assert below[f"help-{slug}"].count("<details>") == len(task.trial.hints)


@pytest.mark.parametrize("file", EDITIONS, ids=lambda f: f.stem)
def test_no_mistake_is_listed_before_it_is_made(file):
    """A check names it; the chapter would take the search away."""
    text = "\n".join(cell.source for cell in read_learner_notebook(file).cells)
    says = [
        m.says
        for task in EXERCISES.values()
        if task.notebook.endswith(f"/{file.stem}")
        for m in task.mistakes
    ]
    assert [sentence for sentence in says if plain(sentence) in text or sentence in text] == []


@pytest.mark.parametrize("name", EXERCISES)
def test_no_line_of_the_answer_is_left_in_the_cell_and_the_answer_fits_back_in(name):
    task = EXERCISES[name]
    cells = read_learner_notebook(CHAPTERS / f"{task.notebook}.ipynb").cells
    [complete] = [
        c.source
        for c in cells
        if c.cell_type == "code" and name in [m.name for m in marks(c.source)]
    ]
    # looking at the input is no answer
    assert [line for line in leaks(complete) if "check_" not in line] == []
    back = stubbed(complete)
    for mark in marks(complete):
        back = replace(back, mark.target, source_of(complete, mark.target))
    assert back == complete


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_stubs_can_be_imported(module):
    text = module_text(module)
    for task in (e for e in EXERCISES.values() if e.module == module):
        text = replace(text, task.target, stub(task.definition, f"exercise {task.name}"))
    assert load(text, module)


@pytest.mark.parametrize("chapter", sorted({e.notebook for e in EXERCISES.values()}))
def test_each_check_passes_where_it_stands(chapter, capsys):
    """Everything the reference bodies need is above the check: solved in order, a chapter runs
    through.
    """
    names, passed = {"__name__": chapter, "check": check}, []
    for cell in read_learner_notebook(
        PACKAGE / "assets" / "course" / "nbs" / f"{chapter}.ipynb"
    ).cells:
        source = cell.source
        if cell.cell_type == "code" and any(
            name.startswith("export") for name, _ in directives(source)
        ):
            for mark in marks(source):
                source = replace(source, mark.target, EXERCISES[mark.name].definition)
            exec(source, names)
        elif cell.id.startswith("check-"):
            exec(source, names)
            passed.append(capsys.readouterr().out.split(":")[0])
    assert sorted(passed) == sorted(e.name for e in EXERCISES.values() if e.notebook == chapter)


TWO = '''#| export
#| exercise a.f points=1 minutes=5 target=f
#| exercise a.g points=2 minutes=5 target=C.g

LIMIT = 3


def f(x):
    """Double.

    Twice as much.
    """
    y = x + x   # the answer
    return y


class C:
    size = 1

    @staticmethod
    def g(
        x,      # a number
        y=LIMIT,  # another
    ):
        """Add."""
        total = x + y
        return total

    def h(self):
        return f(self.size)
'''


def test_several_exercises_in_a_cell_and_a_method():
    source = stubbed(TWO)
    assert [m.name for m in marks(source)] == ["a.f", "a.g"]
    assert "the answer" not in source and "total" not in source
    assert (
        "y=LIMIT,  # another" in source
        and "@staticmethod" in source
        and "return f(self.size)" in source
    )
    names = {}
    exec(source, names)
    for call, message in (
        (lambda: names["f"](1), "exercise a.f"),
        (lambda: names["C"].g(1), "exercise a.g"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()
    assert find(ast.parse(source), "C.h") is not None


def test_a_check_stays_below_the_helpers_it_needs():
    helper = new_code_cell("#| exporti\ndef _helper(): ...", id="helper")
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A\n\n> B."),
            new_code_cell(TWO, id="two"),
            new_code_cell("1 + 1", id="sum"),
            helper,
            new_code_cell("2 + 2", id="more"),
            new_code_cell("check('a.f', f)\nassert f(2) == 4", id="last"),
        ]
    )
    made = learners_edition(notebook, {"a.f": given("a.f"), "a.g": given("a.g")})
    assert [c.id for c in made.cells[2:]] == [
        "two",
        "sum",
        "helper",
        "check-a-f",
        "help-a-f",
        "check-a-g",
        "help-a-g",
        "more",
        "last",
    ]
    assert made.cells[-1].source == "assert f(2) == 4"


def test_checks_of_one_cell_go_to_their_exercises():
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A\n\n> B."),
            new_code_cell(TWO),
            new_markdown_cell("Then"),
            new_code_cell("assert f(1) == 2\ncheck('a.g', C)\n\ncheck('a.f', f)  # now"),
            new_code_cell('check("b.other", f)'),
        ]
    )
    made = learners_edition(notebook, {"a.f": given("a.f"), "a.g": given("a.g")})
    assert [c.id for c in made.cells[2:7]] == [
        notebook.cells[1].id,
        "check-a-f",
        "help-a-f",
        "check-a-g",
        "help-a-g",
    ]
    lines = [made.cells[i].source.split("\n") for i in (3, 5)]
    assert [line[1] for line in lines] == ["check('a.f', f)  # now", "check('a.g', C)"]
    assert [line[0][2:].partition("  ")[0] for line in lines] == [
        f"from minbert.course import borrow; {t}"
        for t in ('f = borrow("a.f")', 'C.g = borrow("a.g")')
    ]
    assert [c.source for c in made.cells[7:]] == ["Then", "assert f(1) == 2", 'check("b.other", f)']
    assert written(made) == written(
        learners_edition(notebook, {"a.f": given("a.f"), "a.g": given("a.g")})
    )


def test_a_check_alone_in_its_cell_leaves_no_empty_cell_and_a_missing_one_is_added():
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A\n\n> B."),
            new_code_cell(TWO),
            new_code_cell("check('a.g', C)"),
        ]
    )
    made = learners_edition(notebook, {"a.f": given("a.f"), "a.g": given("a.g")})
    assert len(made.cells) == 7
    assert made.cells[3].source.endswith('\nfrom minbert.course import check\n\ncheck("a.f", f)')


def test_magics_and_checks_that_are_no_statements_stay():
    for source in (
        "%time check('a', f)",
        "!ls\ncheck('a', f)",
        "if x:\n    check('a', f)",
        "result = check('a', f)",
        "check(name, f)",
        "check('a', f, 3)",
        "module.check('a', f)",
    ):
        assert split_checks(source, {"a"}) == (source, {})


def test_the_box_counts_words_and_minutes():
    words = new_markdown_cell("word " * 1000)
    assert minutes_of(new_notebook(cells=[words])) == 5
    more = [new_markdown_cell("word " * 3000)]
    # 3000 / 200, and 10 minutes of exercises, whose lines are not counted
    assert minutes_of(new_notebook(cells=more + [new_code_cell(TWO)])) == 25
    assert minutes_of(new_notebook(cells=more + [new_code_cell("x = 1\n" * 40)])) == 25
    folded = new_code_cell("#| hide_input\n" + "x = 1\n" * 40)
    assert minutes_of(new_notebook(cells=more + [folded])) == 15
    longer = TWO.replace("minutes=5", "minutes=60", 1)
    assert (
        minutes_of(new_notebook(cells=[new_code_cell(longer)]))
        - minutes_of(
            new_notebook(cells=[new_code_cell(longer.replace("target=f", "target=f optional"))])
        )
        == 60
    )
    assert minutes_of(new_notebook(cells=[new_code_cell("#| hide\n" + 600 * "x\n")])) == 5
    assert minutes_of(new_notebook(cells=[])) == 5
    box = chapter_box(new_notebook(cells=[new_code_cell(TWO)]))
    assert "2 exercises, 3 points" in box and "| `a.g` | write `C.g` | 2 | 5 |" in box
    assert "No exercise" in chapter_box(new_notebook(cells=[words]))


def test_help_folds_everything_and_markdown_reads_no_signs():
    text = help_text(given("a.f", ("a * b", "c", "x < y costs $3 and 4$")))
    assert (
        text.count("<summary>") == 3 and r"a \* b" in text and r"x &lt; y costs \$3 and 4\$" in text
    )
    assert plain("`a * b < c` and `__x__`") == "`a * b < c` and `__x__`"


def test_directives_end_at_the_first_line_of_code():
    assert directives("#| export\n# note\n\n#|hide\nx = 1\n#| late") == [
        ("export", ""),
        ("hide", ""),
    ]


def test_a_file_that_is_no_notebook_says_its_name(tmp_path):
    for i, text in enumerate(
        (
            "",
            "{}",
            "[1]",
            "<<<<<<< HEAD",
            '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [3]}',
        )
    ):
        (tmp_path / f"{i}.ipynb").write_text(text)
        with pytest.raises(ValueError, match=f"{i}.ipynb"):
            read_learner_notebook(tmp_path / f"{i}.ipynb")


# ---- predict, then run; find the mistake


GUESS = "#| predict a.width\nrows = 3\nguess = rows * 4   # reference"


def test_a_guess_is_taken_out_and_what_follows_shows_no_output():
    shown = new_code_cell(
        "guessed(guess, 12)",
        outputs=[nbformat.v4.new_output("stream", text="you guessed 12, it is 12: right\n")],
    )
    made = learners_edition(
        new_notebook(cells=[new_markdown_cell("# A\n\n> B."), new_code_cell(GUESS), shown]), {}
    )
    assert (
        made.cells[2].source
        == "#| predict a.width\nrows = 3\nguess = None   # your guess, a number, before you run the next cell"
    )
    assert made.cells[3].source == "guessed(guess, 12)" and made.cells[3].outputs == []
    assert unguessed("guess = 4") == "guess = 4"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("97 / 131", "a number"),
        ("-1", "a number"),
        ("round(math.log(6), 2)", "a number"),
        ("True", "True or False"),
        ("'up'", "a text"),
        ("[1, 48]", "a list of numbers"),
        ("[-1, 2 / 3]", "a list of numbers"),
        ("['reverse']", "a list of texts"),
    ],
)
def test_a_guess_says_what_kind_of_answer_is_asked_for(answer, kind):
    assert (
        unguessed(f"#| predict a.b\nguess = {answer}")
        == f"#| predict a.b\nguess = None   # your guess, {kind}, before you run the next cell"
    )


def test_no_output_between_a_guess_and_its_answer_gives_it_away():
    def shown(source):
        return new_code_cell(
            source, outputs=[nbformat.v4.new_output("stream", text=f"from {source}\n")]
        )

    cells = [
        new_markdown_cell("# A\n\n> B."),
        shown("before"),
        new_code_cell(GUESS),
        new_markdown_cell("As guessed(guess) says."),
        shown("answer"),
        shown("guessed(guess, 12)"),
        shown("after"),
    ]
    made = learners_edition(new_notebook(cells=cells), {})
    assert [c.source for c in made.cells if c.get("outputs")] == ["before", "after"]


def test_the_book_shows_no_answer_before_its_guess():
    for name, chapter in all_editions(CHAPTERS, EXERCISES).items():
        code = [c for c in chapter.cells if c.cell_type == "code"]
        for start in (
            i
            for i, c in enumerate(code)
            if any(kind == "predict" for kind, _ in directives(c.source))
        ):
            end = next(i for i, c in enumerate(code) if i > start and "guessed(" in c.source)
            assert not any(c.outputs for c in code[start : end + 1]), (name, code[start].source)


def guesses():
    """Every cell `#| predict` of the book with the next one that uses it: (chapter, name, cell)."""
    for file in sorted(CHAPTERS.glob("[1-5a]*/*.ipynb")):
        cells = [c for c in read_learner_notebook(file).cells if c.cell_type == "code"]
        for i, cell in enumerate(cells):
            for name in (rest for kind, rest in directives(cell.source) if kind == "predict"):
                yield (
                    file.stem,
                    name,
                    next((c for c in cells[i + 1 :] if "guessed(" in c.source), None),
                )


def test_there_are_ten_guesses_and_the_answers_are_right():
    found = list(guesses())
    assert len({name for _, name, _ in found}) == len(found) >= 10
    wrong = [
        name
        for _, name, cell in found
        if cell is None
        or ": right" not in "".join("".join(o.get("text", "")) for o in cell.outputs)
    ]
    assert wrong == []


def test_there_are_ten_mistakes_to_find_and_the_chapter_says_so():
    assert len(PLANTED) >= 10
    for name in PLANTED:
        text = "\n".join(
            c.source
            for c in read_learner_notebook(CHAPTERS / f"{EXERCISES[name].notebook}.ipynb").cells
            if c.cell_type == "markdown"
        )
        assert f"**Find the mistake** (`{name}`)" in text, name


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_runs_and_is_refused_without_its_name(name):
    task = EXERCISES[name]
    outcomes = task.perform(build(task, task.given), 11711)
    # it runs wherever the reference does
    assert not [
        a.error for a, b in zip(outcomes, expected_outcomes(name, 11711)) if a.error and not b.error
    ]
    found = verdict(name, outcomes)
    assert (
        not found.passed and task.planted.says not in found.message and STILL_THERE in found.message
    )


def test_guesses_of_all_kinds(capsys):
    cases = [
        ((torch.tensor([2, 4]), [2, 4]), "you guessed tensor([2, 4]), it is [2, 4]: right"),
        ((torch.tensor(0.2), 0.25, 0.1), "you guessed tensor(0.2000), it is 0.25: right"),
        ((None, 0.25), "no guess yet; it is 0.25"),
        ((0.2, 0.25), "you guessed 0.2, it is 0.25: surprised?"),
        ((0.2, 0.25, 0.1), "you guessed 0.2, it is 0.25: right"),
        (("Paris", " paris"), "right"),
        (([1, 2], [1, 2]), "right"),
        (([1, 2], [1, 2, 3]), "surprised"),
        (("Reverse", ["reverse"]), "right"),
        (("swap", ["reverse"]), "surprised"),
        (("a", ["a", "b"]), "surprised"),
        (([1], 1), "surprised"),
        ((True, False), "surprised"),
        ((float("nan"), 1.0, 9.0), "surprised"),
        (("a", 3), "surprised"),
    ]
    for given_, said in cases:
        guessed(*given_)
        assert said in capsys.readouterr().out
