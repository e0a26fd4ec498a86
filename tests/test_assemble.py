"""A learner's parts in a model: every answer in its place, the same scores as the references, and
nothing of the learner's changed.
"""

import ast

import pytest
from solving import solve

from minbert.course import integration_run as module
from minbert.course.exercises import EXERCISES, wrong_definition
from minbert.course.grading import GradeReport, Result, read_submission
from minbert.course.integration_run import Assembled, assemble, called_parts, modules_with, trained
from minbert.course.source_tools import module_text, replace, source_of
from minbert.course.workspace import new_workspace


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = new_workspace(tmp_path_factory.mktemp("solved") / "my-bert")
    solve(folder)
    return folder


def snapshot(folder):
    return {
        str(f.relative_to(folder)): (f.read_bytes(), f.stat().st_mtime_ns)
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


@pytest.fixture(scope="module")
def report(solved):
    before = snapshot(solved)
    made = assemble(solved, steps=2, passed=list(EXERCISES), rows=60)
    assert snapshot(solved) == before
    return made


def test_reference_answers_make_the_reference_module(solved):
    texts = modules_with(read_submission("me", solved).notebooks, EXERCISES)
    assert set(texts) == {e.module for e in EXERCISES.values()}
    for task in EXERCISES.values():
        assert source_of(texts[task.module], task.target) == task.definition
    for name, text in texts.items():  # the same but for imports, which chapters write in full
        ours, theirs = (
            [ast.dump(n) for n in ast.parse(t).body if not isinstance(n, ast.ImportFrom)]
            for t in (module_text(name), text)
        )
        assert theirs == ours, name


def test_only_what_passed_is_put_in(solved, tmp_path):
    folder = new_workspace(tmp_path / "my-bert")
    wrong = {
        name: wrong_definition(EXERCISES[name], EXERCISES[name].mistakes[0])
        for name in ("attention.scores", "attention.split")
    }
    solve(folder, wrong, wrong)
    texts = modules_with(read_submission("me", folder).notebooks, ["attention.split"])
    assert source_of(texts["attention"], "split_heads") == wrong["attention.split"]
    assert (
        source_of(texts["attention"], "scaled_dot_product_attention")
        == EXERCISES["attention.scores"].definition
    )


def test_a_mended_copy_counts_and_the_given_mistake_does_not(tmp_path):
    """An exercise that hands out a mistake: who leaves it and writes the answer in a cell of its
    own has answered.
    """
    import nbformat

    name = next(n for n, task in EXERCISES.items() if task.given and "." not in task.target)
    folder = new_workspace(tmp_path / "my-bert")
    file = folder / "nbs" / f"{EXERCISES[name].notebook}.ipynb"
    notebook = nbformat.read(file, 4)
    notebook.cells.append(nbformat.v4.new_code_cell(EXERCISES[name].definition))
    nbformat.write(notebook, file)
    texts = modules_with(read_submission("me", folder).notebooks, [name])
    assert (
        source_of(texts[EXERCISES[name].module], EXERCISES[name].target)
        == EXERCISES[name].definition
    )


@pytest.mark.long
def test_all_references_give_the_reference_scores(report):
    assert report.agrees and report.difference < 1e-4 and report.steps == 2
    assert report.parts == tuple(EXERCISES) and report.left == {}
    assert set(report.metrics) == {"sentiment", "inference", "similarity"} and report.losses[
        0
    ] == pytest.approx(report.losses[1], abs=1e-9)


@pytest.mark.long
def test_the_training_calls_what_it_should(report):
    assert {
        "attention.scores",
        "attention.split",
        "encoder.layer",
        "training.step",
        "optim.adamw",
    } & set(EXERCISES) <= set(report.used)
    assert "pcgrad.project" not in report.used  # summed losses need no surgery


@pytest.mark.long
def test_the_report_can_be_read(report):
    text = str(report)
    assert (
        f"{len(EXERCISES)} of {len(EXERCISES)} parts are yours" in text
        and "below 1e-04" in text
        and "references" in text
    )
    assert all(name in text for name in (*EXERCISES, "sentiment", "inference", "similarity"))
    other = report._replace(metrics={"sst": (0.5, 0.5002)}, left={"a.b": "failed"})
    assert not other.agrees and "another" in str(other) and "a.b" in str(other)
    assert report._replace(metrics={"sst": (0.5, 0.50009)}).agrees and isinstance(other, Assembled)
    nan = float("nan")
    assert report._replace(metrics={"a": (0.5, 0.5), "b": (nan, nan)}).agrees
    assert not report._replace(metrics={"a": (0.5, 0.5), "b": (nan, 0.1)}).agrees


@pytest.mark.long
def test_a_training_that_stops_says_why():
    text = replace(
        module_text("encoder"),
        "BertLayer",
        'class BertLayer(nn.Module):\n    def __init__(self, *args):\n        raise KeyError("no such layer")',
    )
    with pytest.raises(ValueError, match="your parts to end well(.|\n)*no such layer"):
        trained({"encoder": text}, steps=1, seed=1)


def test_a_training_that_does_not_end_is_stopped(monkeypatch):
    started, start = [], module._start
    monkeypatch.setattr(
        module, "_start", lambda *arguments: started.append(start(*arguments)) or started[-1]
    )
    with pytest.raises(ValueError, match="your parts to end within 0 seconds"):
        trained({}, steps=10**6, seed=1, seconds=0.2)
    # neither it nor the one beside it runs on
    assert [run.poll() is None for run in started] == [False, False]


def test_an_answer_is_used_if_one_of_its_lines_ran():
    texts = {"attention": module_text("attention")}
    first = texts["attention"].split("\n").index("def split_heads(") + 1
    last = first + len(EXERCISES["attention.split"].definition.rstrip("\n").split("\n")) - 1
    for line, used in ((first, True), (last, True), (first - 1, False), (last + 1, False)):
        assert called_parts(texts, ["attention.split"], [("attention", line, "f")]) == (
            ("attention.split",) if used else ()
        )


def test_what_cannot_be_assembled(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="minbert course new"):
        assemble(tmp_path)
    folder = new_workspace(tmp_path / "my-bert")
    with pytest.raises(ValueError, match="at least 1 step"):
        assemble(folder, steps=0)
    nothing = GradeReport("me", {name: Result("not attempted") for name in EXERCISES}, 0, ())
    monkeypatch.setattr(module, "grade", lambda paths, **settings: ([nothing], "bubblewrap"))
    with pytest.raises(ValueError, match="minbert course status"):
        assemble(folder)


def test_the_checks_decide_what_is_put_in(solved, monkeypatch):
    results = {
        name: Result("failed" if name == "attention.scores" else "passed") for name in EXERCISES
    }
    seen = {}
    monkeypatch.setattr(
        module,
        "grade",
        lambda paths, **settings: ([GradeReport("me", results, 0, ())], "bubblewrap"),
    )
    monkeypatch.setattr(
        module,
        "trained",
        lambda texts, steps, seed, rows: (
            seen.update(texts)
            or (
                {"metrics": {"sst": 1.0}, "losses": [3.0, 2.0], "called": []},
                {"metrics": {"sst": 0.5}, "losses": [4.0, 2.5]},
            )
        ),
    )
    made = assemble(solved, steps=1)
    assert (
        made.left == {"attention.scores": "failed"}
        and "attention.scores" not in made.parts
        and len(made.parts) == len(EXERCISES) - 1
    )
    assert made.used == () and set(seen) >= {"attention"}
    # the learner's first; the last step's
    assert made.metrics == {"sst": (1.0, 0.5)} and made.losses == (2.0, 2.5)
