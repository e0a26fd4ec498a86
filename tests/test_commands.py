"""Commands of the course: where a learner stands does not matter, and an instructor sees scores,
seeds and reasons.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from submissions import attack, make
from typer.testing import CliRunner

from minbert import __version__
from minbert.cli.commands import app
from minbert.core.atomic_dir import DRAFT
from minbert.course import grading
from minbert.course.exercises import EXERCISES, exercise
from minbert.course.feedback import NAMED
from minbert.course.grading import LEARNERS_SEED, SEED, GradeReport, Result, drawn_seed, own_work
from minbert.course.reports import (
    INTEGRATED,
    csv_table,
    gradescope,
    index,
    matrix_svg,
    page,
    refuse_to_replace,
    safe_name,
    scores,
    write_gradescope,
    write_pages,
)
from minbert.course.workspace import new_workspace, workspace_of

TASK = exercise("attention.bias")


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return new_workspace(tmp_path_factory.mktemp("home") / "my-bert")


@pytest.fixture
def asked(monkeypatch):
    """What `status` asks the grader for, without running anything."""
    calls = []

    def grade(places, **settings):
        calls.append((places, settings))
        return [
            GradeReport("mine", {name: Result("not attempted") for name in settings["only"]}, 0, ())
        ], "nothing"

    monkeypatch.setattr(grading, "grade", grade)
    return calls


def test_the_next_line_can_be_pasted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "next: cd 'my bert'; pip" in CliRunner().invoke(app, ["course", "new", "my bert"]).output


def test_a_workspace_is_found_from_inside(mine, asked, monkeypatch):
    for place in (mine, mine / "nbs", mine / "mybert", mine / ".minbert" / "base"):
        assert workspace_of(place) == mine
        monkeypatch.chdir(place)
        run = CliRunner().invoke(app, ["course", "status"])
        assert run.exit_code == 0 and run.output.count("not attempted") == len(EXERCISES)
        assert asked[-1][0] == [mine] and asked[-1][1]["seed"] == LEARNERS_SEED
    CliRunner().invoke(app, ["course", "status", str(mine / "nbs" / f"{TASK.notebook}.ipynb")])
    assert {EXERCISES[name].notebook for name in asked[-1][1]["only"]} == {TASK.notebook}
    assert own_work(mine / "nbs" / "..")[0] == mine


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "assemble",
        "update",
        "status index.ipynb",
        "status nowhere",
        "status notes.txt",
        "status ..",
    ],
)
def test_outside_a_workspace_is_one_sentence(tmp_path, asked, monkeypatch, command):
    place = tmp_path / "class" / "empty"
    place.mkdir(parents=True)
    (place / "index.ipynb").write_text('{"cells": []}')
    (place / "notes.txt").write_text("")
    monkeypatch.chdir(place)
    run = CliRunner().invoke(app, ["course", *command.split()])
    said = run.output.strip()
    assert (
        run.exit_code == 1
        and said.startswith("minbert: expected ")
        and "\n" not in said
        and not asked
    )


def test_chapters_without_a_workspace_are_work_too(tmp_path):
    make(tmp_path / "one", {TASK.name: TASK.definition})
    assert own_work(tmp_path / "one") == (tmp_path / "one", list(EXERCISES))
    for place in (tmp_path / "one" / "nbs", (tmp_path / "one" / "nbs" / TASK.notebook).parent):
        assert own_work(place)[0] == place


def test_a_chapter_that_cannot_be_read_is_still_work(tmp_path):
    """Its exercises are named, and why they are broken is said."""
    file = tmp_path / "02_attention.ipynb"
    file.write_text("no notebook")
    assert own_work(file) == (
        file,
        [name for name, task in EXERCISES.items() if task.module == "attention"],
    )


def test_seeds_are_drawn_anew_and_kept_by_an_interrupted_batch(tmp_path, monkeypatch):
    assert len({drawn_seed() for _ in range(20)}) > 18
    first = drawn_seed(tmp_path)
    assert drawn_seed(tmp_path) == first and (tmp_path / SEED).read_text() == str(first)
    (tmp_path / SEED).write_text("half a nu")
    assert 0 <= drawn_seed(tmp_path) < 2**31
    draws, ends = iter([LEARNERS_SEED, LEARNERS_SEED, 5]), set()
    monkeypatch.setattr(grading.secrets, "randbelow", lambda end: ends.add(end) or next(draws))
    # from so many that nobody tries them all
    assert drawn_seed() == 5 and ends == {2**31}


def grade_command(folder, *options):
    return [
        sys.executable,
        "-m",
        "minbert",
        "grade",
        str(folder / "class"),
        "--csv",
        str(folder / "grades.csv"),
        "--chapter",
        "02_attention",
        "--seconds",
        "3",
        "-j",
        "1",
        *options,
    ]


@pytest.mark.long
def test_an_interrupted_batch_keeps_its_seed_and_leaves_nothing(tmp_path):
    """Killed in the middle: temporary folders stay, and the next start sweeps them; the seed goes
    on, until the table is written.
    """
    for who in ("ada", "bob", "cy"):
        make(tmp_path / "class" / who, {TASK.name: attack("sleep", TASK, tmp_path) + f"# {who}"})
    make(tmp_path / "class" / "dan", {TASK.name: TASK.definition})
    place = tmp_path / "tmp"
    place.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(place)}
    first = subprocess.Popen(
        grade_command(tmp_path),
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ledger = tmp_path / "grades.csv.work" / "results.jsonl"
    while first.poll() is None and not (ledger.exists() and ledger.read_bytes().count(b"\n")):
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    seed = (ledger.parent / SEED).read_text()
    left = {p.name for p in place.iterdir()}
    assert {name.rpartition("-")[0] for name in left} >= {"minbert-grading", "minbert-base"}
    done = ledger.read_text().splitlines()
    (ledger.parent / f"{DRAFT}deaddead").mkdir()
    again = subprocess.run(grade_command(tmp_path), env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert not list(place.iterdir())
    assert f"seed: {seed}\n" in again.stdout and not (ledger.parent / SEED).exists()
    assert ledger.read_text().splitlines()[: len(done)] == done and not list(
        ledger.parent.glob(".*")
    )
    assert (
        f"dan  {TASK.points} of" in again.stdout
        and f"4 submissions: {TASK.points} of" in again.stdout
    )
    refused = subprocess.run(
        grade_command(tmp_path, "--seed", str(LEARNERS_SEED)),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1 and "another seed" in refused.stderr


def some_reports():
    rest = {name: Result("not attempted", 0, "not written yet") for name in EXERCISES}
    right = Result("passed", TASK.points, "", ("torch.optim.AdamW<i>",))
    long = Result("failed", 0, "attention.scores: not yet. " + "expected " * 40 + "x" * 200)
    return [
        GradeReport("ada<b>", rest | {TASK.name: right}, 1, ()),
        GradeReport("bob", rest | {"attention.scores": long}, 0, ("02.ipynb: broken",)),
    ]


def test_pages_have_totals_flags_and_explanations():
    reports = some_reports()
    shown = index(reports)
    assert (
        INTEGRATED in shown
        and all(INTEGRATED in page(r) for r in reports)
        and INTEGRATED in gradescope(reports[0])["output"]
    )
    assert (
        "ada&lt;b&gt;: attention.bias uses torch.optim.AdamW&lt;i&gt;" in shown
        and "<b>:" not in shown
    )
    by_chapter = {}
    for task in EXERCISES.values():
        by_chapter[task.notebook] = by_chapter.get(task.notebook, 0) + task.points
    last = shown[shown.index("<td>of</td>") :].split("</tr>")[0]
    whole = sum(by_chapter.values())
    optional = sum(task.points for task in EXERCISES.values() if task.optional)
    assert [int(n) for n in last.replace("</td>", "").split("<td>")[2:] if n] == [
        whole,
        whole - optional,
        whole,
        *by_chapter.values(),
    ]
    assert (
        scores(reports).split("\n")[-1]
        == f"2 submissions: {TASK.points} of {2 * sum(by_chapter.values())} points"
    )
    assert scores(reports).split("\n")[0].endswith("integrated 1, 1 flagged")
    assert (
        json.dumps(gradescope(reports[1]))
        and page(reports[0]).count("<pre>not written yet</pre>") == len(EXERCISES) - 1
    )


def test_the_list_counts_the_mistakes_of_the_class():
    """A known mistake by its sentence, the most frequent first; what is only suspected is not
    counted, nor shown as markup.
    """

    def wrong(says, name=TASK.name):
        return {name: Result("failed", 0, f"{name}: not yet.\n{says}")}

    reports = [
        GradeReport(f"learner {i}", wrong(says), 0, ())
        for i, says in enumerate(
            [
                NAMED + "Pads are read.",
                NAMED + "<b>too large",
                "Perhaps: guessed.",
                NAMED + "Pads are read.",
            ]
        )
    ]
    shown = index(reports).partition("Known mistakes")[2]
    assert (
        f"<td>{TASK.name}: Pads are read.</td><td>2</td>" in shown
        and f"<td>{TASK.name}: &lt;b&gt;too large</td><td>1</td>" in shown
    )
    assert (
        shown.index("Pads") < shown.index("too large")
        and "guessed" not in shown
        and shown.count("<tr>") == 2
    )
    assert "Known mistakes" not in index(some_reports())


OPTIONAL = next(task for task in EXERCISES.values() if task.optional)


def two_reports():
    """Ada passed all; Bob failed one, borrowed the other, and nobody can read one of his notebooks."""
    flags = ("torch.optim.AdamW",)
    maps = {
        "case": "two pads",
        "output": "output",
        "expected": [[0.0, 1.0]],
        "got": [[-3.0, float("-inf")]],
    }
    passed = {
        task.name: Result("passed", task.points, f"{task.name}: passed, 6 cases")
        for task in (TASK, OPTIONAL)
    }
    failed = {
        TASK.name: Result("failed", 0, "not yet: " + "x" * 90, flags, maps),
        OPTIONAL.name: Result("borrowed", 0, "no points"),
    }
    return [GradeReport("ada", passed, 1, ()), GradeReport("bob", failed, 0, ("02.ipynb: broken",))]


def test_each_cell_of_the_table_is_what_its_column_says():
    ada, bob = csv.DictReader(csv_table(two_reports()).splitlines())
    total = TASK.points + OPTIONAL.points
    sums = {
        "points": total,
        "of": total,
        "required": TASK.points,
        "of required": TASK.points,
        "integrated": 1,
        "passed": 2,
    }
    assert [ada[name] for name in sums] == [f"{n}" for n in sums.values()]
    assert [bob[name] for name in sums] == ["0", f"{total}", "0", f"{TASK.points}", "0", "0"]
    # nothing is to be read where nothing is to be done
    assert ada[f"{TASK.name} reason"] == ""
    assert (
        bob["problems"] == "02.ipynb: broken" and bob["flags"] == f"{TASK.name}: torch.optim.AdamW"
    )
    assert (
        bob[f"{TASK.name} reason"] == "not yet: " + "x" * 90
        and bob[f"{OPTIONAL.name} status"] == "borrowed"
    )


@pytest.mark.parametrize("sign", "=+-@")
def test_no_name_is_a_formula(sign):
    assert (
        next(csv.DictReader(csv_table([GradeReport(f"{sign}1+1", {}, 0, ())]).splitlines()))[
            "submission"
        ]
        == f"'{sign}1+1"
    )


def test_a_page_names_points_flags_what_was_not_read_and_what_is_no_number():
    shown = page(two_reports()[1])
    assert (
        f"<td>0 of {TASK.points}</td>" in shown
        and f"<td>0 of {OPTIONAL.points}, optional</td>" in shown
    )
    assert (
        "<p class=broken>02.ipynb: broken</p>" in shown
        and "<div>uses torch.optim.AdamW</div>" in shown
    )
    colours = [cell.partition('"')[0] for cell in shown.split('fill="')[1:]]
    # the highest, the lowest of both maps, and -inf
    assert colours[1] == "#08306b" and colours[2:] == ["#f7fbff", "#000000"]
    assert "from -3 (pale) to 1 (dark)" in shown


def test_a_page_says_how_strangers_code_was_held():
    assert "bubblewrap &amp; limits" in page(two_reports()[0], "bubblewrap & limits")


def test_a_row_of_a_picture_is_a_row_of_the_matrix():
    squares = matrix_svg([[1.0, 2.0, 3.0]], 1.0, 3.0, "maps", side=10).split("<rect")[1:]
    assert [square.split(" width")[0] for square in squares] == [
        ' x="0" y="0"',
        ' x="10" y="0"',
        ' x="20" y="0"',
    ]


def test_a_picture_of_one_number_and_nan_stops_no_page():
    maps = {
        "case": "ones",
        "output": "output",
        "expected": [[1.0, 1.0]],
        "got": [[1.0, float("nan")]],
    }
    shown = page(GradeReport("ada", {TASK.name: Result("failed", 0, "not yet", (), maps)}, 0, ()))
    assert [cell.partition('"')[0] for cell in shown.split('fill="')[1:]] == ["#f7fbff"] * 3 + [
        "#000000"
    ]


def test_the_list_has_points_required_and_integrated_in_this_order_and_means_over_all():
    shown = index(two_reports())
    total, required = TASK.points + OPTIONAL.points, TASK.points
    assert f'<a href="ada.html">ada</a></td><td>{total}</td><td>{required}</td><td>1</td>' in shown
    assert f"<td>mean</td><td>{total / 2:.1f}</td><td>{required / 2:.1f}</td><td>0.5</td>" in shown
    # what is borrowed or failed is not passed
    assert shown.count("<td>1 of 2</td>") == 2
    lines = scores(two_reports()).split("\n")
    assert (
        lines[1].endswith("1 flagged, 1 notebooks not read")
        and lines[2] == f"2 submissions: {total} of {2 * total} points"
    )


def test_a_long_name_of_any_script_is_a_file(tmp_path):
    """A file's name has 255 bytes, of which three make one letter of Chinese: the folder of one
    learner must not stop the pages of all.
    """
    names = ["x" * 255, "中" * 85, "中" * 84, "𝓹" * 63, "../eve", "a/b"]
    reports = [GradeReport(name, {}, 0, ()) for name in names]
    write_pages(reports, tmp_path / "pages")
    write_gradescope(reports, tmp_path / "scope")
    assert len([*(tmp_path / "pages").iterdir()]) == len(names) + 1 and len(
        [*(tmp_path / "scope").iterdir()]
    ) == len(names)


def test_the_same_class_replaces_its_table_and_pages_whatever_it_is_called(tmp_path):
    names, table = ["=1+1", "a b", "中" * 85, "ada"], tmp_path / "grades.csv"
    table.write_text(csv_table([GradeReport(name, {}, 0, ()) for name in names]), encoding="utf-8")
    write_pages([GradeReport(name, {}, 0, ()) for name in names], tmp_path / "pages")
    refuse_to_replace(names, table, tmp_path / "pages")
    table.write_bytes("submission\nJosé\n".encode("cp1252"))  # saved again by a spreadsheet
    with pytest.raises(ValueError, match="with 1 others, such as Jos"):
        refuse_to_replace(names, table, None)


def test_a_table_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "grades.csv").write_text("name,grade\nada,3\n")
    with pytest.raises(ValueError, match="such as a line without a name: choose another --csv"):
        refuse_to_replace(["ada"], tmp_path / "grades.csv", None)


def test_a_name_that_is_the_file_of_another_gets_its_own():
    assert len({safe_name("a b"), safe_name(safe_name("a b")), safe_name("a_b")}) == 3


def test_no_cell_of_the_table_is_longer_than_anybody_reads():
    row = next(
        csv.DictReader(
            csv_table(
                [GradeReport("ada", {TASK.name: Result("failed", 0, "x " * 999)}, 0, ("y" * 999,))]
            ).splitlines()
        )
    )
    assert {len(row[name]) for name in (f"{TASK.name} reason", "problems")} == {400}


def test_gradescope_shows_each_answer_with_what_it_could_be_worth(tmp_path):
    told = gradescope(two_reports()[1])
    first, second = told["tests"]
    assert (first["score"], first["max_score"], first["status"], first["visibility"]) == (
        0,
        TASK.points,
        "failed",
        "visible",
    )
    assert (
        second["status"] == "failed"
        and second["output"] == "no points"
        and told["output"].endswith("\n02.ipynb: broken")
    )
    assert (
        gradescope(two_reports()[0])["score"] == TASK.points + OPTIONAL.points
        and gradescope(two_reports()[0])["tests"][0]["output"] == ""
    )
    # one alone: where Gradescope looks for it
    write_gradescope(two_reports()[:1], tmp_path)
    assert (
        json.loads((tmp_path / "results.json").read_text())["score"]
        == TASK.points + OPTIONAL.points
    )


def test_half_a_character_stops_no_terminal(mine, asked, monkeypatch):
    reports = [
        GradeReport(
            "jos\udce9", {TASK.name: Result("failed", 0, "ValueError: \ud800")}, 0, ("\udce9",)
        )
    ]
    scores(reports).encode()
    monkeypatch.setattr(grading, "grade", lambda *_, **__: (reports, ""))
    run = CliRunner().invoke(app, ["course", "status", str(mine)])
    assert run.exit_code == 0 and "\\ud800" in run.output


def test_a_name_can_neither_rewrite_a_terminal_nor_hide_behind_another():
    reports = [GradeReport(name, {}, 0, ()) for name in ("a\nb", "a b", "\x1b[2Jeve", "\u202egnp")]
    for text in (scores(reports), csv_table(reports), index(reports), *map(page, reports)):
        assert text.replace("\n", "").isprintable()
    for text in (scores(reports), csv_table(reports), index(reports)):
        assert "a\\nb" in text and "a b" in text and "\\x1b[2Jeve" in text and "\\u202egnp" in text


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """`minbert grade` on two submissions, without running anything."""
    monkeypatch.setattr(
        grading,
        "grade",
        lambda places, *_, **__: (
            [GradeReport(name, {}, 0, ()) for name in grading.find_submissions(places)],
            "bubblewrap",
        ),
    )
    for who in ("ada", "bob", "cy"):
        (tmp_path / who).mkdir()
        (tmp_path / who / "02_attention.ipynb").write_text("{}")

    def command(*people):
        folders = [str(tmp_path / who) for who in people]
        return CliRunner().invoke(
            app,
            [
                "grade",
                *folders,
                "--csv",
                str(tmp_path / "grades.csv"),
                "--html",
                str(tmp_path / "pages"),
                "--seconds",
                "3",
            ],
        )

    return command


def test_another_class_replaces_no_table_and_no_pages(graded, tmp_path, monkeypatch):
    assert graded("ada", "bob").exit_code == graded("ada", "bob", "cy").exit_code == 0
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(grading, "grade", None)  # it must not begin
    said = graded("ada", "cy").output
    assert "choose another --csv" in said and "such as bob" in said
    (tmp_path / "grades.csv").unlink()
    assert "choose another --html" in graded("ada", "cy").output
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == {
        f: b for f, b in before.items() if f.name != "grades.csv"
    }


@pytest.mark.parametrize("option", ["--html", "--gradescope", "--work"])
def test_a_file_in_the_place_of_a_folder_is_told_before_the_night_of_grading(
    graded, tmp_path, monkeypatch, option
):
    graded("ada")
    monkeypatch.setattr(grading, "grade", None)  # it must not begin
    (tmp_path / "taken").write_text("x")
    run = CliRunner().invoke(
        app,
        [
            "grade",
            str(tmp_path / "ada"),
            "--csv",
            str(tmp_path / "grades.csv"),
            option,
            str(tmp_path / "taken"),
        ],
    )
    assert run.exit_code == 1 and f"expected a folder for {option}, got the file" in run.output


def test_how_a_batch_was_graded_is_kept(graded, tmp_path):
    seed = next(line for line in graded("ada").output.split("\n") if line.startswith("seed: "))
    told = (tmp_path / "grades.csv.txt").read_text()
    shown = (tmp_path / "pages" / "index.html").read_text()
    for line in (
        seed,
        f"minbert: {__version__}",
        "date: 2",
        "held by: bubblewrap",
        "limits of an answer: 3 seconds of processor, 12 seconds, 768 MB of memory",
    ):
        assert line in told and line in shown
    # a learner could learn its cases by heart
    assert seed not in (tmp_path / "pages" / "ada.html").read_text()


def test_a_limit_of_no_memory_is_refused():
    assert CliRunner().invoke(app, ["grade", ".", "--memory", "0"]).exit_code == 2
