"""Grading: scores are what was deserved, an interruption changes nothing."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from submissions import KINDS, make, make_all
from typer.testing import CliRunner

from minbert.cli.commands import app
from minbert.course import grading
from minbert.course.answer_extraction import read_cells
from minbert.course.exercises import EXERCISES, exercise, in_chapter, right_definition
from minbert.course.grading import (
    LARGEST_ZIP,
    MOST_NOTEBOOKS,
    PASTED,
    SEED,
    Submission,
    find_submissions,
    grade,
    plan,
    read_submission,
)
from minbert.course.grading_queue import ResultStore
from minbert.course.reports import (
    csv_table,
    gradescope,
    page,
    refuse_to_replace,
    write_gradescope,
    write_pages,
)
from minbert.course.sandbox import Limits

VICTIM = exercise("attention.scores")
GRADED = in_chapter("22_smoothness")


@pytest.fixture(scope="module")
def classroom(tmp_path_factory):
    folder = tmp_path_factory.mktemp("room") / "class"
    return folder, make_all(folder, len(KINDS), kinds=list(KINDS))


@pytest.mark.long
def test_scores_are_what_was_deserved(classroom, tmp_path):
    """Killed in the middle and started again, the table is the one that a batch in one go writes."""
    folder, deserved = classroom
    command = [
        sys.executable,
        "-m",
        "minbert",
        "grade",
        str(folder),
        "--seed",
        "77",
        "--seconds",
        "4",
        "--chapter",
        "22_smoothness",
        "--csv",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(
        [*command, str(tmp_path / "a.csv")],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ledger = tmp_path / "a.csv.work" / "results.jsonl"
    while first.poll() is None and (not ledger.exists() or ledger.read_bytes().count(b"\n") < 8):
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "a.csv").exists()
    done = [json.loads(line)["key"] for line in ledger.read_text().splitlines()[:8]]
    with ledger.open("a") as stream:
        stream.write('{"key": "cut short by the')
    subprocess.run(
        [
            *command,
            str(tmp_path / "a.csv"),
            "--html",
            str(tmp_path / "pages"),
            "--gradescope",
            str(tmp_path / "scope"),
        ],
        env=environment,
        check=True,
        capture_output=True,
    )
    keys = [json.loads(line)["key"] for line in ledger.read_text().splitlines()]
    assert len(keys) == len(set(keys)) and keys[:8] == done  # nothing was run twice
    rows = {
        row["submission"]: row
        for row in csv.DictReader((tmp_path / "a.csv").open(encoding="utf-8"))
    }
    assert set(rows) == set(deserved)
    wrong = [
        (who, name, row[f"{name} status"], deserved[who][name], row[f"{name} reason"])
        for who, row in rows.items()
        for name in GRADED
        if row[f"{name} status"] != deserved[who][name]
    ]
    assert not wrong
    for who, row in rows.items():
        points = sum(EXERCISES[name].points for name in GRADED if deserved[who][name] == "passed")
        required = sum(
            EXERCISES[name].points
            for name in GRADED
            if deserved[who][name] == "passed" and not EXERCISES[name].optional
        )
        assert (
            int(row["points"]) == points
            and int(row["integrated"]) <= points
            and int(row["required"]) == required
        )
        assert (
            json.loads((tmp_path / "scope" / who / "results.json").read_text())["score"] == points
        )
        assert f"<b>{points} of" in (tmp_path / "pages" / f"{who}.html").read_text(encoding="utf-8")
    total = sum(EXERCISES[name].points for name in GRADED)
    assert [int(row["integrated"]) for who, row in rows.items() if who.endswith("reference")] == [
        total
    ]
    # Variants of one exercise may draw dice in another order than the reference of the next
    # expects: most.
    assert [
        int(row["integrated"]) > 0.6 * total for who, row in rows.items() if who.endswith("perfect")
    ] == [True]


def test_the_same_answers_again_cost_nothing(tmp_path):
    """A finished batch, graded again, runs nothing; a batch with another seed runs all."""
    make(tmp_path / "class" / "one", {VICTIM.name: VICTIM.definition})
    arguments = dict(only=[VICTIM.name], work=tmp_path / "work")
    first, held = grade([tmp_path / "class"], seed=1, **arguments)
    again, idle = grade([tmp_path / "class"], seed=1, **arguments)
    assert first == again and idle == "nothing had to run" and held != idle
    assert len(ResultStore(tmp_path / "work" / "results.jsonl").rows) == 2
    _, other = grade([tmp_path / "class"], seed=2, **arguments)
    assert other != "nothing had to run"


@pytest.fixture
def tried(monkeypatch):
    """What `grade` would try, and what it hides; nothing runs: an answer that holds "while 1" never
    ends, and every other passes.
    """
    seen = SimpleNamespace(whole=[], alone=[], hidden=[])

    @contextmanager
    def batch(results, hidden, **settings):
        ledger = ResultStore(results)

        def together(todo, tick):
            for key, (modules, names) in todo.items():
                ends = "while 1:" not in "".join(modules.values())
                seen.whole.append(key)
                ledger.add(key, {"passed": names if ends else [], "ended": ends})

        def alone(todo, tick):
            for key, text in (one for texts in todo.values() for one in texts.items()):
                ends = "while 1:" not in text
                seen.alone.append(key)
                ledger.add(key, {"passed": ends, "ended": ends, "reason": "", "picture": None})

        seen.hidden = hidden
        yield SimpleNamespace(ledger=ledger, together=together, alone=alone, level="bubblewrap")

    monkeypatch.setattr(grading, "batch", batch)
    return seen


def test_other_limits_or_another_edition_are_tried_anew(tmp_path, tried, monkeypatch):
    """Who is late with two seconds may pass with eight; who passed an older check may fail a newer
    one.
    """
    chapter(VICTIM, VICTIM.definition, tmp_path / "02_attention.ipynb")

    def again(**settings):
        return grade(
            [tmp_path / "02_attention.ipynb"],
            tmp_path / "work",
            seed=1,
            only=[VICTIM.name],
            **settings,
        )

    for settings, runs in (
        ({}, 1),
        ({}, 1),
        ({"limits": Limits(cpu=2)}, 2),
        ({"limits": Limits(memory=2**27)}, 3),
    ):
        again(**settings)
        assert len(tried.whole) == runs
    monkeypatch.setattr(grading, "edition", lambda: "another")
    again()
    assert len(tried.whole) == 4


def test_no_answer_sees_a_submission_or_the_results(tmp_path, tried):
    for who in ("ada", "bob"):
        chapter(VICTIM, VICTIM.definition, tmp_path / "class" / who / "02_attention.ipynb")
    chapter(VICTIM, VICTIM.definition, tmp_path / "late" / "cy.ipynb")
    grade(
        [tmp_path / "class", tmp_path / "late" / "cy.ipynb"],
        tmp_path / "work",
        seed=1,
        only=[VICTIM.name],
    )
    assert {*tried.hidden} == {
        tmp_path / "class" / "ada",
        tmp_path / "class" / "bob",
        tmp_path / "late",
        tmp_path / "work",
    }


def test_a_link_uncovers_nobody(tmp_path, tried):
    """It is not read, so what it points to, such as everything, is not hidden in the place of all
    others.
    """
    chapter(VICTIM, VICTIM.definition, tmp_path / "class" / "ada" / "02_attention.ipynb")
    (tmp_path / "class" / "eve").symlink_to("/")
    grade([tmp_path / "class"], tmp_path / "work", seed=1, only=[VICTIM.name])
    assert {*tried.hidden} == {tmp_path / "class" / "ada", tmp_path / "work"}


def test_a_drawn_seed_goes_with_its_batch(tmp_path, tried):
    chapter(VICTIM, VICTIM.definition, tmp_path / "02_attention.ipynb")
    for runs in (1, 2):
        grade([tmp_path / "02_attention.ipynb"], tmp_path / "work", only=[VICTIM.name])
        assert len({*tried.whole}) == runs and not (tmp_path / "work" / SEED).exists()


def test_a_seed_that_is_given_leaves_the_batchs_own_until_its_table_is_written(tmp_path, tried):
    """`minbert grade` draws it before and throws it away at the end; killed in between, it must go
    on with the same.
    """
    chapter(VICTIM, VICTIM.definition, tmp_path / "02_attention.ipynb")
    seed = grading.drawn_seed(tmp_path / "work")
    grade([tmp_path / "02_attention.ipynb"], tmp_path / "work", seed=seed, only=[VICTIM.name])
    assert grading.drawn_seed(tmp_path / "work") == seed and (tmp_path / "work" / SEED).exists()


def test_more_exercises_on_the_same_results_count_together_too(tmp_path, tried):
    """One chapter first, then all: the texts are the same, and what they were tried for is not."""
    other = exercise("attention.split")
    make(
        tmp_path / "class" / "one",
        {task.name: task.definition for task in (VICTIM, other)},
        only=VICTIM.notebook,
    )
    for tasks in ([VICTIM], [VICTIM, other]):
        (report,) = grade(
            [tmp_path / "class"], tmp_path / "work", seed=1, only=[task.name for task in tasks]
        )[0]
        assert report.integrated == report.points == sum(task.points for task in tasks)


def test_an_answer_that_never_ends_costs_itself_alone_and_together(tmp_path, tried):
    other = exercise("attention.split")
    endless = VICTIM.definition.replace("    weights = F", "    while 1: pass\n    weights = F")
    make(
        tmp_path / "class" / "one",
        {VICTIM.name: endless, other.name: other.definition},
        only=VICTIM.notebook,
    )
    (report,) = grade(
        [tmp_path / "class"], tmp_path / "work", seed=1, only=[VICTIM.name, other.name]
    )[0]
    assert {name: r.points for name, r in report.results.items()} == {
        VICTIM.name: 0,
        other.name: other.points,
    }
    assert report.integrated == other.points and len(tried.whole) == 2 and len(tried.alone) == 2


def test_submissions_are_found_in_every_form(tmp_path):
    make(tmp_path / "class" / "ada", {})
    (tmp_path / "class" / "bob").mkdir()
    (tmp_path / "class" / "bob" / "02_attention.ipynb").write_bytes(
        (tmp_path / "class" / "ada" / "nbs" / "1_bert" / "02_attention.ipynb").read_bytes()
    )
    (tmp_path / "class" / "cy.ipynb").write_text("no notebook")
    (tmp_path / "class" / "dan").symlink_to("/etc")
    (tmp_path / "class" / "eve.txt").write_text("I could not")
    (tmp_path / "class" / ".DS_Store").write_bytes(b"of a file browser")  # hidden, and nobody's
    found = find_submissions([tmp_path / "class"])
    assert list(found) == ["ada", "bob", "cy.ipynb", "dan", "eve.txt"]
    assert list(find_submissions([tmp_path / "class" / "bob"])) == ["bob"]
    read = {name: read_submission(name, path) for name, path in found.items()}
    assert "attention" in read["ada"].notebooks and list(read["bob"].notebooks) == ["attention"]
    assert "expected a notebook" in read["cy.ipynb"].problems[""]
    assert "symbolic link" in read["dan"].problems[""] and ".txt" in read["eve.txt"].problems[""]
    assert plan(read["cy.ipynb"], VICTIM).status == "broken"
    with pytest.raises(ValueError, match="there is nothing"):
        find_submissions([tmp_path / "nowhere"])


def test_every_chapter_of_a_workspace_is_read_down_to_a_depth_and_no_deeper(tmp_path):
    # with `nbs` and a part of the book, as deep as anybody looks
    place = tmp_path / "ada" / "my" / "own" / "work" / "x"
    make(place, {})
    assert {*read_submission("ada", tmp_path / "ada").notebooks} == {
        task.module for task in EXERCISES.values()
    }
    place.rename(tmp_path / "x")
    (place / "y").mkdir(parents=True)
    (tmp_path / "x").rename(place / "y" / "x")
    assert not read_submission("ada", tmp_path / "ada").notebooks


def test_who_borrows_and_then_writes_has_written():
    """The line that borrows may be forgotten above an answer."""

    def status(*cells):
        return plan(Submission("ada", {VICTIM.module: read_cells(cells)}, {}), VICTIM).status

    line = f'{VICTIM.target} = borrow("{VICTIM.name}")'
    todo = f"def {VICTIM.target}(query, key, value, mask=None, dropout_p=0.0):\n    raise NotImplementedError('exercise {VICTIM.name}')"
    assert [status(todo), status(todo, line), status(line), status(VICTIM.definition, line)] == [
        "not attempted",
        "borrowed",
        "borrowed",
        "written",
    ]


def test_a_renamed_notebook_is_known_by_its_module(tmp_path):
    make(tmp_path / "ada", {VICTIM.name: VICTIM.definition})
    files = list((tmp_path / "ada" / "nbs").rglob("*.ipynb"))
    for file in files:
        file.rename(file.with_name("copy of " + file.name)) if VICTIM.notebook.endswith(
            file.stem
        ) else file.unlink()
    assert plan(read_submission("ada", tmp_path / "ada"), VICTIM).status == "written"


def test_reports_hold_no_markup_of_a_learner(tmp_path):
    """What a learner can put into a report: the name, an error's text, an output's name."""
    evil = "<script>alert(1)</script>"
    definition = VICTIM.definition.replace(
        "    weights = F", f"    raise ValueError({evil!r})\n    weights = F"
    )
    make(tmp_path / "class" / ("=1+1 " + "x" * 90), {VICTIM.name: definition})
    reports, level = grade([tmp_path / "class"], seed=1, only=[VICTIM.name])
    assert evil in reports[0].results[VICTIM.name].reason
    assert evil not in page(reports[0], level)
    write_pages(reports, tmp_path / "pages", level)
    write_gradescope(reports, tmp_path / "scope")
    assert evil in gradescope(reports[0])["tests"][0]["output"]
    row = next(csv.DictReader(csv_table(reports).splitlines()))
    assert row["submission"].startswith("'=1+1") and "\n" not in row[f"{VICTIM.name} reason"]


@pytest.mark.parametrize("kind", KINDS)
def test_generated_submissions_differ(tmp_path, kind):
    """The generator that the batch relies on really makes what it says."""
    deserved = KINDS[kind](tmp_path / "one", random.Random(3))
    wanted = {
        "perfect": {"passed"},
        "reference": {"passed"},
        "empty": {"not attempted"},
        "mixed": {"passed", "failed", "not attempted"},
        "broken": {"passed", "broken", "not attempted"},
        "hostile": {"passed", "failed"},
    }[kind]
    assert set(deserved.values()) == wanted
    read = read_submission("one", Path(tmp_path, "one"))
    statuses = {name: plan(read, exercise(name)).status for name in deserved}
    assert all(
        (statuses[name] == "written") == (status in ("passed", "failed"))
        for name, status in deserved.items()
    )


@pytest.mark.long
def test_two_errors_that_cancel_are_two_errors(tmp_path):
    """Ranks from 0 and an AUC that subtracts P too little agree with each other, and with nobody
    else.
    """
    ranks, auc = exercise("metrics.ranks"), exercise("metrics.auc")
    from_zero = ranks.definition.replace(
        "return (last - (counts - 1) / 2)[group]", "return (last - (counts - 1) / 2)[group] - 1"
    )
    too_little = auc.definition.replace("P * (P + 1) / 2) / (P * Q)", "P * (P - 1) / 2) / (P * Q)")
    assert from_zero != ranks.definition and too_little != auc.definition
    make(tmp_path / "class" / "one", {ranks.name: from_zero, auc.name: too_little})
    report = grade([tmp_path / "class"], seed=2026, only=[ranks.name, auc.name])[0][0]
    assert {name: r.status for name, r in report.results.items()} == {
        ranks.name: "failed",
        auc.name: "failed",
    }
    assert report.points == report.integrated == 0


def test_text_to_the_left_of_a_method_stops_nobody(tmp_path):
    """A comment or a text that stands further left than its method is Python like any other."""
    task = exercise("attention.forward")
    careless = (
        'def forward(self, hidden_states, attention_mask=None):\n    """A text\nto the left."""\n'
        "    return self.attend(*self.project(hidden_states), attention_mask)\n"
    )
    make(tmp_path / "class" / "one", {task.name: careless})
    notebook = tmp_path / "class" / "one" / "nbs" / "1_bert" / "02_attention.ipynb"
    text = notebook.read_text(encoding="utf-8")
    assert "    to the left." in text
    notebook.write_text(text.replace("    to the left.", "to the left."), encoding="utf-8")
    report = grade([tmp_path / "class"], seed=1, only=[task.name])[0][0]
    assert report.results[task.name].status == "passed", report.results[task.name]


def test_submissions_of_one_name_all_get_a_row(tmp_path):
    for place in ("a/x", "b/x", "c/a/x"):
        make(tmp_path / place, {})
    assert len(find_submissions([tmp_path / "a", tmp_path / "b", tmp_path / "c" / "a"])) == 3


def test_one_person_in_two_folders_is_two_submissions(tmp_path):
    for task in ("first", "second"):
        (tmp_path / task).mkdir()
        (tmp_path / task / "doejane_4321_98765_02_attention.ipynb").write_text("{}")
    assert len(find_submissions([tmp_path / "first", tmp_path / "second"])) == 2


def test_of_one_persons_files_a_notebook_goes_before_a_zip_and_a_newer_zip_before_an_older_one(
    tmp_path,
):
    chapter(VICTIM, "", tmp_path / "empty.ipynb")
    text = (tmp_path / "empty.ipynb").read_text(encoding="utf-8")

    def cell(says):
        return text.replace(
            '"cells": [',
            '"cells": ['
            + json.dumps(
                {
                    "cell_type": "code",
                    "source": f"# {says}",
                    "metadata": {},
                    "outputs": [],
                    "execution_count": None,
                }
            )
            + ",",
            1,
        )

    stem = Path(VICTIM.notebook).name
    old, new = (
        packed(tmp_path / f"doejane_4321_{number}_mine.zip", {f"{stem}.ipynb": cell(says)})
        for number, says in ((99999, "old"), (100001, "new"))
    )
    read = read_submission("jane", (old, new))
    assert "# new" in read.notebooks[
        VICTIM.module
    ].cells and "99999_mine.zip: another copy of this chapter, not read" in str(read.problems)
    (tmp_path / f"doejane_4321_98765_{stem}.ipynb").write_text(cell("alone"), encoding="utf-8")
    read = read_submission("jane", (old, new, tmp_path / f"doejane_4321_98765_{stem}.ipynb"))
    assert "# alone" in read.notebooks[VICTIM.module].cells and len(read.problems) == 2


def test_files_that_a_platform_says_are_one_persons_are_one_submission(tmp_path):
    """Canvas: name, LATE, number of the person, number of the file, what it was called, which time
    it was handed in. Moodle has a word of its own.
    """
    other = next(EXERCISES[name] for name in GRADED if EXERCISES[name].notebook != VICTIM.notebook)
    places, stem = tmp_path / "class", Path(VICTIM.notebook).name
    places.mkdir()
    chapter(VICTIM, VICTIM.definition, places / f"doejane_LATE_4321_98765_{stem}-2.ipynb")
    chapter(other, other.definition, places / "doejane_4321_98766_my other one.ipynb")
    (places / "doejane_4321_98767_letter.pdf").write_text("I was late")
    # another of that name
    chapter(VICTIM, VICTIM.definition, places / f"doejane_77_98768_{stem}.ipynb")
    chapter(other, other.definition, places / "half.ipynb")
    packed(
        places / "roe_55_98769_my-bert.zip",
        {
            f"x/{Path(other.notebook).name}.ipynb": (places / "half.ipynb").read_text(
                encoding="utf-8"
            ),
            f"x/{stem}.ipynb": "no notebook",
        },
    )
    (places / f"roe_55_98770_{stem}.ipynb").write_bytes(
        (places / f"doejane_77_98768_{stem}.ipynb").read_bytes()
    )
    (places / f"poe_66_98771_{stem}-1.ipynb").write_text("no notebook")
    (places / "poe_66_98772_notes.txt").write_text("")
    (places / "mute_88_98773_a.pdf").write_text("")
    (places / "mute_88_98774_b.pdf").write_text("")
    # no such names: each its own
    chapter(VICTIM, VICTIM.definition, places / "hw_2024_1_ada.ipynb")
    chapter(VICTIM, VICTIM.definition, places / "hw_2024_2_bob.ipynb")
    assert not (places / "made").exists()
    chapter(VICTIM, VICTIM.definition, places / f"Ann Lee_31_assignsubmission_file_{stem}.ipynb")
    chapter(other, other.definition, places / "Ann Lee_31_assignsubmission_file_b.ipynb")
    alone = ["half.ipynb", "hw_2024_1_ada.ipynb", "hw_2024_2_bob.ipynb"]
    reports = {r.name: r for r in grade([places], seed=1, only=[VICTIM.name, other.name])[0]}
    assert sorted(reports) == sorted(
        [*alone, "Ann Lee_31", "doejane_4321", "doejane_77", "mute_88", "poe_66", "roe_55"]
    )
    told = {
        name: [r.results[task.name].status for task in (VICTIM, other)]
        for name, r in reports.items()
    }
    assert told["doejane_4321"] == told["Ann Lee_31"] == ["passed", "passed"] and told[
        "doejane_77"
    ] == ["passed", "not attempted"]
    assert told["roe_55"] == ["passed", "passed"] and "roe_55_98769_my-bert.zip" in str(
        reports["roe_55"].problems
    )
    assert told["poe_66"] == ["broken", "not attempted"]
    assert told["mute_88"] == [
        "broken",
        "broken",
    ] and "got mute_88_98773_a.pdf, mute_88_98774_b.pdf" in str(reports["mute_88"].problems)
    everyone = packed(
        tmp_path / "all.zip", {f"download/{f.name}": "{}" for f in places.glob("doejane*.ipynb")}
    )
    assert (
        "files of 2 people: unpack it, and grade the folder"
        in read_submission("all", everyone).problems[""]
    )
    mine = packed(
        tmp_path / "mine.zip",
        {f"{folder}/doejane_4321_98765_{stem}.ipynb": "{}" for folder in ("a", "b")},
    )
    # one person's, in two folders
    assert "people" not in str(read_submission("mine", mine).problems)
    half = {
        number: f"doejane{late}_4321_{number}_{stem}.ipynb"
        for number, late in ((99999, ""), (100001, "_LATE"))
    }
    (tmp_path / "twice").mkdir()
    for number, file in half.items():
        chapter(VICTIM, f"# {number}\n{VICTIM.definition}", tmp_path / "twice" / file)
    (again,) = find_submissions([tmp_path / "twice"]).values()
    # what was handed in last
    assert "# 100001" in str(read_submission("jane", again).notebooks[VICTIM.module].cells)
    read = read_submission(
        "jane",
        (
            places / f"doejane_LATE_4321_98765_{stem}-2.ipynb",
            places / f"doejane_77_98768_{stem}.ipynb",
        ),
    )
    # both are shown, one is read
    assert list(read.notebooks) == [VICTIM.module] and "another copy" in str(read.problems)


def test_what_somebody_typed_into_moodle_is_no_submission_of_its_own(tmp_path):
    """One person is one row, with one-digit numbers too: a second row of 0 points could replace the
    first in a gradebook.
    """
    stem, flat, folders = Path(VICTIM.notebook).name, tmp_path / "flat", tmp_path / "folders"
    for who in ("Ann Lee_7", "Bob Roe_31"):
        for file in (f"file_{stem}.ipynb", "file_b.ipynb", "onlinetext_onlinetext.html"):
            flat.mkdir(exist_ok=True)
            (flat / f"{who}_assignsubmission_{file}").write_text("{}")
        for file in (f"file_/{stem}.ipynb", "onlinetext_/onlinetext.html"):
            (folders / f"{who}_assignsubmission_{file}").parent.mkdir(parents=True)
            (folders / f"{who}_assignsubmission_{file}").write_text("{}")
    assert [*find_submissions([flat])] == ["Ann Lee_7", "Bob Roe_31"]
    assert [*find_submissions([folders])] == [
        "Ann Lee_7_assignsubmission_file_",
        "Bob Roe_31_assignsubmission_file_",
    ]
    # who only typed has a row, too
    (folders / "Cy Poe_8_assignsubmission_onlinetext_").mkdir()
    assert len(find_submissions([folders])) == 3


def chapter(task, definition, file):
    """One chapter with one answer, in a file of any name."""
    make(file.parent / "made", {task.name: definition}, only=task.notebook)
    (file.parent / "made" / "nbs" / f"{task.notebook}.ipynb").rename(file)
    shutil.rmtree(file.parent / "made")


def test_a_copy_beside_a_chapter_is_named_and_not_read(tmp_path):
    chapter(VICTIM, VICTIM.definition, tmp_path / "02_attention.ipynb")
    for name in ("02_attention-Copy1.ipynb", "02_attention (1).ipynb"):
        chapter(VICTIM, "", tmp_path / name)
    read = read_submission("ada", tmp_path)
    assert plan(read, VICTIM).status == "written"
    assert [why for why in read.problems.values()] == [
        f"{name}: another copy of this chapter, not read"
        for name in ("02_attention (1).ipynb", "02_attention-Copy1.ipynb")
    ]


def test_of_two_copies_at_one_depth_the_one_in_nbs_is_read(tmp_path):
    chapter(VICTIM, "", tmp_path / "1_bert" / "02_attention.ipynb")
    chapter(VICTIM, VICTIM.definition, tmp_path / "nbs" / "1_bert" / "02_attention.ipynb")
    assert plan(read_submission("ada", tmp_path), VICTIM).status == "written"


def test_a_stray_notebook_or_one_folder_more_hides_no_workspace(tmp_path):
    chapter(
        VICTIM,
        VICTIM.definition,
        tmp_path / "stray" / "my-bert-main" / "my-bert" / "nbs" / "1_bert" / "02_attention.ipynb",
    )
    (tmp_path / "stray" / "Untitled.ipynb").write_text('{"cells": []}')
    assert plan(read_submission("stray", tmp_path / "stray"), VICTIM).status == "written"
    chapter(exercise("metrics.auc"), "", tmp_path / "stray" / "12_evaluation.ipynb")
    assert (
        "my-bert-main/my-bert/nbs/1_bert/02_attention.ipynb: deeper than other chapters, not read"
        in str(read_submission("stray", tmp_path / "stray").problems)
    )
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "Untitled.ipynb").write_text('{"cells": []}')
    nothing = read_submission("none", tmp_path / "none")
    assert [*nothing.problems.values()] == ["no chapter found; saw: Untitled.ipynb"] and plan(
        nothing, VICTIM
    ).status == "not attempted"


def test_a_folder_with_chapters_is_one_persons(tmp_path):
    chapter(VICTIM, VICTIM.definition, tmp_path / "one" / "02_attention.ipynb")
    for name in ("01 plan", "notes"):
        (tmp_path / "one" / f"{name}.ipynb").write_text('{"cells": []}')
    chapter(VICTIM, "", tmp_path / "one" / "old" / "02_attention.ipynb")
    assert list(find_submissions([tmp_path / "one"])) == ["one"]
    for name in ("ada", "bob"):
        chapter(VICTIM, "", tmp_path / "class" / f"{name}.ipynb")
    assert list(find_submissions([tmp_path / "class"])) == ["ada.ipynb", "bob.ipynb"]


def test_an_unreadable_scratch_notebook_is_no_reason_for_missing_chapters(tmp_path):
    chapter(VICTIM, VICTIM.definition, tmp_path / "02_attention.ipynb")
    (tmp_path / "scratch.ipynb").write_text("no notebook")
    read = read_submission("ada", tmp_path)
    missing = plan(read, exercise("metrics.auc"))
    assert (missing.status, missing.reason) == (
        "not attempted",
        "no chapter 2_finetuning/12_evaluation",
    ) and "scratch.ipynb" in read.problems


def test_names_are_never_empty_and_tell_two_apart(tmp_path, monkeypatch):
    for place in ("a/ada", "b/ada"):
        chapter(VICTIM, "", tmp_path / place / "02_attention.ipynb")
    monkeypatch.chdir(tmp_path / "a" / "ada")
    assert list(find_submissions(["."])) == ["ada"]
    monkeypatch.chdir(tmp_path)
    assert (
        set(find_submissions(["a", "b"])) == set(find_submissions(["b", "a"])) == {"a/ada", "b/ada"}
    )


def test_an_empty_class_is_an_error_and_an_empty_submission_a_row(tmp_path):
    (tmp_path / "class" / "ada").mkdir(parents=True)
    assert list(find_submissions([tmp_path / "class"])) == ["ada"]
    with pytest.raises(ValueError, match="empty"):
        find_submissions([tmp_path / "class" / "ada"])


def test_the_text_of_the_reference_is_flagged_and_a_short_or_own_one_is_not():
    def handed_in(task, text):
        return plan(Submission("ada", {task.module: read_cells([text])}, {}), task).flags

    long, other = (
        exercise("training.clip"),
        "# my own\n" + exercise("training.clip").definition.replace('"""', '"""Mine. ', 1),
    )
    assert handed_in(long, long.definition) == handed_in(long, other) == (PASTED,)
    assert not any(
        PASTED in handed_in(long, right_definition(long, variant)) for variant in long.variants
    )
    found = [task for task in EXERCISES.values() if task.planted]
    five = exercise("tokens.pad")
    assert found and not any(handed_in(task, task.definition) for task in (VICTIM, five, *found))
    pearson = exercise("metrics.pearson")
    assert handed_in(
        pearson,
        f"from scipy import stats\ndef {pearson.target}(a, b):\n    return stats.pearsonr(a, b)[0]",
    ) == ("scipy.stats.pearsonr",)
    assert handed_in(
        pearson,
        f"import numpy as np\ndef {pearson.target}(a, b):\n    return np.corrcoef(a, b)[0, 1]",
    ) == ("numpy.corrcoef",)
    assert handed_in(
        pearson,
        f"from scipy import stats\ndef helper(a, b):\n    return stats.pearsonr(a, b)[0]\ndef {pearson.target}(a, b):\n    return helper(a, b)",
    ) == ("scipy.stats.pearsonr",)
    behind = "import torch\nclass AdamW(torch.optim.Optimizer):\n    def step(self, closure=None):\n        return self.other()\n    def other(self):\n        return torch.optim.AdamW(self.params).step()"
    assert handed_in(exercise("optim.adamw"), behind) == ("torch.optim.AdamW",)


def test_what_a_grader_wrote_among_the_submissions_is_none(tmp_path, monkeypatch):
    """`minbert grade .` writes its table and its results into the folder it reads."""
    make(tmp_path / "ada", {VICTIM.name: VICTIM.definition}, only=VICTIM.notebook)
    monkeypatch.chdir(tmp_path)
    command = [
        "grade",
        ".",
        "--html",
        "pages",
        "--gradescope",
        "scope",
        "--chapter",
        "02_attention",
        "--seconds",
        "4",
    ]
    for _ in range(2):
        run = CliRunner().invoke(app, command)
        assert run.exit_code == 0, run.output
        with open("grades.csv", encoding="utf-8") as table:
            assert [row["submission"] for row in csv.DictReader(table)] == ["ada"]
    assert {*find_submissions(["."])} == {
        "ada",
        "grades.csv",
        "grades.csv.txt",
        "grades.csv.work",
        "pages",
        "scope",
    }
    # it holds a chapter
    assert [
        *find_submissions(
            ["."], ["grades.csv", "grades.csv.txt", "grades.csv.work", "pages", "scope", "ada"]
        )
    ] == ["ada"]
    with pytest.raises(ValueError, match="empty"):
        find_submissions(["pages"], ["pages"])


def packed(file, texts):
    """A zip with these texts in it: name -> text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in texts.items():
            z.writestr(name, text)
    return file


def test_a_zip_is_read_like_the_folder_that_was_packed(tmp_path):
    make(tmp_path / "made", {VICTIM.name: VICTIM.definition}, only=VICTIM.notebook)
    text = (tmp_path / "made" / "nbs" / f"{VICTIM.notebook}.ipynb").read_text(encoding="utf-8")
    inside = {
        f"my-bert/nbs/{VICTIM.notebook}.ipynb": text,
        f"__MACOSX/my-bert/nbs/{VICTIM.notebook}.ipynb": "x",
        "my-bert/model.bin": "0" * 10**6,
    }
    packed(tmp_path / "class" / "ada.zip", inside)
    packed(tmp_path / "class" / "Bob_assignsubmission_file" / "my-bert.ZIP", inside)
    assert list(find_submissions([tmp_path / "class"])) == ["Bob_assignsubmission_file", "ada.zip"]
    for name, path in find_submissions([tmp_path / "class"]).items():
        read = read_submission(name, path)
        assert plan(read, VICTIM).status == "written" and not read.problems
    reports, _ = grade([tmp_path / "class"], seed=1, only=[VICTIM.name])
    assert [(r.name, r.points) for r in reports] == [
        ("Bob_assignsubmission_file", VICTIM.points),
        ("ada.zip", VICTIM.points),
    ]


def test_a_hostile_zip_is_a_row_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place, name = tmp_path / "class", f"{Path(VICTIM.notebook).name}.ipynb"
    packed(place / "climbs.zip", {f"../../{name}": "{}", f"{tmp_path}/absolute.ipynb": "{}"})
    packed(place / "empty.zip", {})
    packed(place / "bomb.zip", {name: "0" * (LARGEST_ZIP + 1)})
    (place / "none.zip").write_text("I could not")
    locked = packed(place / "locked.zip", {name: "{}"})
    locked.write_bytes(
        locked.read_bytes()
        .replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01")
        .replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")
    )
    with zipfile.ZipFile(place / "link.zip", "w") as z:
        link = zipfile.ZipInfo(name)
        link.external_attr = 0o120777 << 16
        z.writestr(link, "/etc/passwd")
    os.truncate(packed(place / "large.zip", {name: "{}"}), LARGEST_ZIP + 1)
    for kind in ("one", "two"):
        packed(place / "several" / f"{kind}.zip", {name: "{}"})
    before = {p for p in tmp_path.rglob("*")}
    told = {
        who: [*read_submission(who, path).problems.values()][0]
        for who, path in find_submissions([place]).items()
    }
    assert {p for p in tmp_path.rglob("*")} == before
    wanted = {
        "climbs.zip": "expected a notebook",
        "empty.zip": "no chapter found; saw: nothing",
        "bomb.zip": "notebooks of 100 MB",
        "none.zip": "expected a zip of notebooks, got BadZipFile",
        "locked.zip": "encrypted",
        "link.zip": "expected a notebook",
        "large.zip": "hand in `nbs` alone",
        "several": "saw: one.zip, two.zip",
    }
    assert told.keys() == wanted.keys() and all(
        part in told[who] for who, part in wanted.items()
    ), told


def test_the_size_of_a_zip_is_the_sum_of_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "LARGEST_ZIP", 2**20)
    halves = {
        f"{i}/{Path(VICTIM.notebook).name}.ipynb": '{"cells": []}' + " " * 2**19 for i in range(2)
    }
    assert (
        "notebooks of 1 MB; at most 1 are read"
        in read_submission("two", packed(tmp_path / "two.zip", halves)).problems[""]
    )
    assert (
        VICTIM.module
        in read_submission(
            "one", packed(tmp_path / "one.zip", dict([*halves.items()][:1]))
        ).notebooks
    )


def test_a_zip_that_lies_about_its_size_is_not_read(tmp_path):
    text = '{"cells": []}' + " " * 2**20
    file = packed(tmp_path / "liar.zip", {f"{Path(VICTIM.notebook).name}.ipynb": text})
    told, size = file.read_bytes(), len(text).to_bytes(4, "little")
    # before the text, and in the list at the end
    assert told.count(size) == 2
    file.write_bytes(told.replace(size, (13).to_bytes(4, "little")))
    assert not (read := read_submission("liar", file)).notebooks and "CRC" in read.problems[""]


def test_a_zip_of_more_notebooks_than_anybody_writes_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "extract", None)
    read = read_submission(
        "many",
        packed(tmp_path / "many.zip", {f"{i}.ipynb": "{}" for i in range(MOST_NOTEBOOKS + 1)}),
    )
    assert f"{MOST_NOTEBOOKS + 1} notebooks; at most {MOST_NOTEBOOKS} are read" in read.problems[""]


def test_a_link_to_a_zip_is_not_followed(tmp_path):
    packed(tmp_path / "theirs.zip", {f"{Path(VICTIM.notebook).name}.ipynb": '{"cells": []}'})
    (tmp_path / "eve.zip").symlink_to(tmp_path / "theirs.zip")
    read = read_submission("eve", tmp_path / "eve.zip")
    assert not read.notebooks and "symbolic link" in read.problems[""]


def test_damaged_zips_stop_nobody(tmp_path):
    dice = random.Random(5)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "one.zip", "w", method) as z:
            z.writestr("nbs/02_attention.ipynb", json.dumps({"cells": [], "text": "x" * 999}))
        whole = (tmp_path / "one.zip").read_bytes()
        assert list(read_submission("one", tmp_path / "one.zip").notebooks) == [VICTIM.module]
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(dice.randrange(1, 4)):
                damaged[dice.randrange(len(whole))] = dice.randrange(256)
            (tmp_path / "one.zip").write_bytes(damaged)
            assert isinstance(read_submission("one", tmp_path / "one.zip"), Submission)


@pytest.mark.parametrize(
    "line",
    [
        "def mine(self, hidden_states, attention_mask=None): pass\nSelfAttention.forward = mine",
        "from fastcore.basics import patch\n@patch\ndef forward(self: SelfAttention, hidden_states, attention_mask=None): pass",
    ],
)
def test_a_method_put_into_its_class_from_outside_is_told_where_it_belongs(line):
    """In the notebook the check sees it, the grader does not: "not written yet" would be no help."""
    task = exercise("attention.forward")
    stubbed = "class SelfAttention:\n    def forward(self, hidden_states, attention_mask=None):\n        raise NotImplementedError('exercise attention.forward')"
    found = plan(
        Submission(
            "ada", {task.module: read_cells(["#| export\n" + stubbed, "#| export\n" + line])}, {}
        ),
        task,
    )
    assert (found.status, found.reason) == (
        "not attempted",
        "assigned, not defined: write `def forward` in `class SelfAttention`",
    )


def test_grades_do_not_take_the_place_of_a_device():
    with pytest.raises(ValueError, match="expected a file or nothing, got a device or a pipe"):
        refuse_to_replace([], Path(os.devnull), None)
