"""The machinery of recipes: what is stored is whole, found again, and never mixed with results of
other settings.
"""

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import minbert.papers.result_store
from minbert.cli import reproduction
from minbert.cli.commands import app, main
from minbert.core.devices import GpuInfo
from minbert.data import Dataset
from minbert.heads import LinearHead, MultitaskBert
from minbert.metrics import accuracy
from minbert.papers import (
    CLAIMS,
    NOT_RUN,
    PAPERS,
    RECIPES,
    SCALES,
    Answers,
    Run,
    add_results,
    as_json,
    chosen,
    dao,
    find_result,
    make_report,
    markdown,
    perform,
    published,
    result_file,
    results_table,
    run_in_notebook,
    scoring,
    stored,
    unfinished,
)
from minbert.papers import recipe as recipes
from minbert.papers import report as reports
from minbert.papers import scores as scores_module
from minbert.papers.cost import LAUNCH, SHAPES, SPEED, cost_of, shapes_of, work_of
from minbert.papers.finetune_stages import divisible, fine_tune, heads_from, passes, phase
from minbert.papers.report import expected
from minbert.papers.result_store import missing_data
from minbert.papers.run import Work, labelled
from minbert.papers.scale import agreed
from minbert.papers.scores import Scores, bounds, constant
from minbert.papers.unsupervised_stages import contrast, wiki
from minbert.pcgrad import PCGrad
from minbert.regularized import regularized_loss
from minbert.significance import Scored, printed_interval
from minbert.smart_penalty import SmartPenalty
from minbert.training import sum_losses

TOY = replace(
    SCALES["micro"],
    seeds=(1, 2),
    view_batch=4,
    view_steps=3,
    flow_steps=3,
    rows={"sst": 2, "quora": 2, "sts": 2},
    tune_steps=3,
    batch=2,
    task_steps=3,
    head_steps=3,
    most_train=40,
    most_dev=30,
)


@pytest.fixture
def shelf(monkeypatch):
    """An empty shelf of recipes."""
    for name in ("RECIPES", "NOT_RUN"):
        monkeypatch.setattr(recipes, name, {})
    monkeypatch.setattr(recipes, "CLAIMS", [])
    monkeypatch.setattr(reports, "RECIPES", recipes.RECIPES)
    monkeypatch.setattr(reports, "CLAIMS", recipes.CLAIMS)
    monkeypatch.setattr(reports, "NOT_RUN", recipes.NOT_RUN)
    return recipes


def put(shelf, name="hu/minbert", right=1.0, **options):
    """Register a recipe whose answers to SST are right with some probability."""

    def make(run):
        gold = torch.tensor(run.dataset("sst", "dev").labels)
        wrong = (
            torch.rand(len(gold), generator=torch.Generator().manual_seed(run.seed)) > right
        ).long()
        return {
            "SST-5 dev acc": Answers(
                run.part("sst", "dev"), "accuracy", ((gold + wrong) % 5).tolist()
            ),
            "length": 3.0 + run.seed,
        }

    options = {"needs": ("sst/dev",), "settings": {"rate": "1e-5 (section 5.3)"}} | options
    return shelf.recipe(
        name,
        shelf.cell(
            "T1",
            {"hu/minbert": "MinBERT", "hu/bert-cf": "BERT-CF"}[name],
            "SST-5 dev acc",
            "SST-5 dev acc",
        ),
        **options,
    )(make)


def test_every_published_row_has_a_recipe_or_a_reason():
    there = {(r.paper, *c[:3]) for r in RECIPES.values() for c in r.cells}
    left = [key for key in published() if key not in there and key[:3] not in NOT_RUN]
    assert not left, left


def test_claims_name_measurements_of_two_recipes():
    for c in CLAIMS:
        assert {c.better, c.worse} <= set(RECIPES) and c.better != c.worse, c


def test_papers_and_figures():
    assert {key[0] for key in published()} == set(PAPERS) and len(published()) == 412
    assert published()["hu", "T1", "BERT-CF", "unsup STS dev spearman"].value == 0.760
    assert published()["li", "T5", "+ SN", "Spearman"].value == 0.5546


@pytest.mark.parametrize(
    "options, message",
    (
        ({"name": "hu/minbert"}, "expected a new name"),
        ({"name": "nobody/row"}, "begins with hu"),
        ({"places": ("T9", "MinBERT")}, "expected a published row of hu, got T9 'MinBERT'"),
    ),
)
def test_a_recipe_must_be_new_and_its_cells_printed(shelf, options, message):
    put(shelf)
    with pytest.raises(ValueError, match=message):
        shelf.recipe(
            options.get("name", "hu/other"),
            shelf.row(*options.get("places", ("T1", "MinBERT"))),
            needs=(),
            settings={},
        )(lambda run: {})


def test_a_setting_of_one_stage_does_not_overwrite_that_of_another(shelf):
    with pytest.raises(
        ValueError,
        match="expected one value of the setting 'rate', got '1e-4' and '3e-4': name the stage in front",
    ):
        shelf.recipe("hu/other", needs=(), settings=({"rate": "1e-4"}, {"rate": "3e-4"}))
    shelf.recipe(
        "hu/other",
        needs=(),
        settings=({"contrast: rate": "1e-4", "batch": "16"}, {"flow: rate": "3e-4", "batch": "16"}),
    )(lambda run: {})
    assert shelf.RECIPES["hu/other"].settings == {
        "contrast: rate": "1e-4",
        "flow: rate": "3e-4",
        "batch": "16",
    }


def test_each_stage_of_a_row_tells_its_rate():
    told = {
        name: {
            key: value for key, value in RECIPES[name].settings.items() if key.endswith(": rate")
        }
        for name in ("hu/bert-cf", "hu/mirror-flow", "foley-cox-wendt/final")
    }

    def first(name):
        return {key: value.split(";")[0] for key, value in told[name].items()}

    assert first("hu/bert-cf") == {
        "contrast: rate": "1e-4",
        "joint: rate": "3e-4",
        "tuning: rate": "1e-5",
    }
    assert first("hu/mirror-flow") == {"contrast: rate": "1e-4", "flow: rate": "3e-4"}
    assert all(
        "of 3e-06, 1e-05, 3e-05, 0.0001, 0.0003, 0.001 with seed 0"
        in told["hu/bert-cf"][f"{stage}: rate"]
        for stage in ("contrast", "joint")
    )
    assert (
        "ranking: rate" in told["foley-cox-wendt/final"]
        and "rate" in RECIPES["foley-cox-wendt/final"].settings
    )


def test_rows_say_where_they_leave_their_report():
    """Read off the code: what decides a checkpoint, what a head reads, and which formula is used."""
    differs = {name: recipe.differs for name, recipe in RECIPES.items()}
    assert {name for name in differs if "heads read F(x)" in differs[name]} == {
        "hu/flow",
        "hu/bert-cf",
        "hu/test",
        "hu/example-answers",
    }
    assert all(
        "Wang and Isola" in differs[name] for name in differs if name.startswith("hu/spread-")
    )
    assert "the course's file says 0" in differs["hu/example-answers"]
    assert all(
        "the contrast keeps its last weights" in differs[name]
        for name, recipe in RECIPES.items()
        if "checkpoint of the contrast" in recipe.settings
    )
    assert all(
        "clipping" in recipe.settings
        for recipe in RECIPES.values()
        if recipe.paper in ("hu", "wu-zhao", "dao-mehta-tian") and "rate" in str(recipe.settings)
    )


def test_what_was_fitted_on_text_of_the_test_set_says_so_in_its_name():
    assert {
        name
        for name, recipe in RECIPES.items()
        if "dev and test" in recipe.settings.get("text", "")
    } == {name for name in RECIPES if name.endswith("-target")}


def test_expected_intervals_go_by_the_rows_that_the_paper_asked():
    def find(name, measured):
        return next((RECIPES[name], c) for c in RECIPES[name].cells if c.measured == measured)

    for name, measured, value, rows, metric in (
        ("foley-cox-wendt/test", "SST test acc", 0.499, 2210, "accuracy"),
        ("hu/test", "STS test pearson", 0.853, 1725, "pearson"),
        ("dao-mehta-tian/cfimdb-full", "CFIMDB dev acc", 0.971, 245, "accuracy"),
        ("li/edits-bert", "vs gold", 0.593, 1500, "spearman"),
    ):
        there = expected(*find(name, measured))
        assert there == pytest.approx(printed_interval(there.value, rows, metric)) and (
            name == "li/edits-bert" or there.value == value
        )
    # printed of the test set
    assert math.isnan(expected(*find("foley-cox-wendt/final", "Quora dev acc")).low)
    mean = expected(*find("wu-zhao/baseline", "average"))
    parts = [
        expected(*find("wu-zhao/baseline", key))
        for key in ("SST dev acc", "Quora dev acc", "STS dev pearson")
    ]
    assert mean.value == 0.451 and mean.low == pytest.approx(
        0.451 - math.sqrt(sum((p.value - p.low) ** 2 for p in parts)) / 3
    )
    board = [
        expected(*find("dao-mehta-tian/leaderboard", key))
        for key in ("SST dev acc", "Quora dev acc", "STS dev pearson", "overall")
    ]
    # each once, though two tables have them
    assert board[3].high == pytest.approx(
        board[3].value + math.sqrt(sum((p.high - p.value) ** 2 for p in board[:3])) / 3
    )
    # it is the gold itself
    assert expected(*find("li/edits-gold", "vs gold"))[:3] == pytest.approx(
        (1.0, math.nan, math.nan), nan_ok=True
    )
    without = {
        c.measured
        for r in RECIPES.values()
        for c in r.cells
        if math.isnan(expected(r, c).low) and not r.examples
    }
    assert not without & {"average", "overall", "mean", "median"} and "sd" in without


def test_what_a_scale_lacks_has_a_reason_and_a_command(tmp_path):
    record = as_json(make_report(tmp_path, None, "micro"), "micro")
    named = {(x["table"], x["row"]): x["why"] for x in record["not run"]}
    lacking = [(r.name, c) for r in RECIPES.values() if "micro" not in r.scales for c in r.cells]
    assert len(lacking) > 60 and all(
        f"`minbert reproduce {name} --scale paper --data FOLDER`" in named[c.table, c.row]
        for name, c in lacking
    )
    assert "- Not run: T8, BERT-NLI-large: its model is there at the scale paper alone" in markdown(
        record
    )
    assert "| T5 | + SN (target) |" in markdown(record) and "(target) (target)" not in markdown(
        record
    )
    with pytest.raises(ValueError, match="li/large: expected --scale paper, got micro"):
        chosen(["li/large"], "micro")


def test_a_named_recipe_is_shown_whole(tmp_path):
    said = CliRunner().invoke(app, ["reproduce", "--list", "hu/bert-cf", "--out", str(tmp_path)])
    assert said.exit_code == 0 and all(
        f"  {key}: {value}\n" in said.output
        for key, value in RECIPES["hu/bert-cf"].settings.items()
    )
    low, high = printed_interval(0.525, 1101, "accuracy")[1:3]
    assert (
        f"T1 BERT-CF, SST-5 dev acc: printed 0.525, {low:.3f} to {high:.3f} expected from the rows alone; share of right answers, 1,101 rows in print"
        in said.output
    )
    assert (
        "GPU minutes" in said.output
        and "encoder at scale micro: the embedded one" in said.output
        and RECIPES["hu/bert-cf"].differs in said.output
    )
    said = CliRunner().invoke(
        app, ["reproduce", "--list", "li/large-seeds", "--scale", "paper", "--out", str(tmp_path)]
    )
    assert "encoder at scale paper: bert-large-uncased" in said.output


def test_what_is_stored_is_not_run_again_and_other_settings_are_refused(shelf, tmp_path):
    put(shelf)
    recipe = shelf.RECIPES["hu/minbert"]
    assert [seed for _, seed in unfinished([recipe], TOY, tmp_path)] == [1, 2]
    perform(recipe, Run(TOY, 1, None, tmp_path))
    assert [seed for _, seed in unfinished([recipe], TOY, tmp_path)] == [2]
    result = find_result(tmp_path, "hu/minbert", 1, "micro")
    assert {
        "recipe",
        "seed",
        "settings",
        "versions",
        "seconds",
        "processor_seconds",
        "measured",
        "curve",
        "rows",
    } <= set(result)
    assert (
        "labels" not in json.dumps(result)
        and len(result["measured"]["SST-5 dev acc"]["answers"]) == 30
    )
    with pytest.raises(
        ValueError,
        match=r"hu\.parquet: hu/minbert, seed 1: expected a result with scale .*, got .*: use another folder",
    ):
        unfinished([recipe], replace(TOY, lr=1.0), tmp_path)
    shelf.RECIPES["hu/minbert"] = replace(recipe, settings={"rate": "2e-5"})
    with pytest.raises(ValueError, match="expected a result with recipe .*2e-5.*1e-5"):
        unfinished([shelf.RECIPES["hu/minbert"]], TOY, tmp_path)


def test_a_recipe_begins_with_its_seed_and_its_answers_keep_four_digits(shelf, tmp_path):
    shelf.recipe("hu/other", needs=(), settings={})(
        lambda run: {
            "drawn": torch.rand(()).item(),
            "x": Answers("sst/dev/2", "spearman", [0.12344, 2.0]),
        }
    )

    def measured(seed):
        return perform(shelf.RECIPES["hu/other"], Run(TOY, seed, None, tmp_path))["measured"]

    first, again, other = (measured(seed)["drawn"] for seed in (1, 1, 2))
    assert first == again != other and measured(1)["x"]["answers"] == [0.1234, 2.0]


def test_a_result_is_whole_or_not_there_and_other_files_are_none(shelf, tmp_path, monkeypatch):
    shelf.recipe("hu/other", needs=(), settings={})(lambda run: {"x": 1.0})
    (tmp_path / "report.json").write_text("{}")  # as --store may have put it there

    def full(table, file, **options):
        Path(file).write_bytes(b"PAR1")
        raise OSError("no room")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no room"):
        patch.setattr(results_table.pq, "write_table", full)
        perform(shelf.RECIPES["hu/other"], Run(TOY, 1, None, tmp_path))
    assert stored(tmp_path) == {} and not list(tmp_path.glob("*.parquet"))
    for seed in (10, 2):
        perform(shelf.RECIPES["hu/other"], Run(TOY, seed, None, tmp_path))
    assert [result["seed"] for result in stored(tmp_path)["hu/other"]] == [2, 10]
    with pytest.raises(
        ValueError, match="expected a result with differs here, got : use another folder"
    ):
        unfinished(
            [replace(shelf.RECIPES["hu/other"], differs="here")], replace(TOY, seeds=(2,)), tmp_path
        )


def test_a_recipe_that_fails_or_lacks_data_leaves_nothing(shelf, tmp_path):
    shelf.recipe("hu/broken", needs=(), settings={})(lambda run: {"x": float("nan")})
    with pytest.raises(ValueError, match="hu/broken, seed 1, x: expected finite numbers"):
        perform(shelf.RECIPES["hu/broken"], Run(TOY, 1, None, tmp_path))
    put(shelf, needs=("sickr/test",))
    with pytest.raises(ValueError, match="hu/minbert: sickr test: expected one of these files"):
        perform(shelf.RECIPES["hu/minbert"], Run(TOY, 1, None, tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_stage_is_trained_once_and_gives_the_same_weights(tmp_path):
    made = []

    def make():
        made.append(1)
        run.curve.append({"stage": "x", "step": 0, "loss": 1.0})
        return run.base()

    run = Run(TOY, 1, None, tmp_path)
    first, second = run.encoder("a/b", make), run.encoder("a/b", make)
    other = Run(TOY, 2, None, tmp_path)
    other.encoder("a/b", make)
    # the second seed trains its own; the log of a stage comes back with it
    assert len(made) == 2 and len(run.curve) == 3
    assert all(
        torch.equal(p, q) for p, q in zip(first.state_dict().values(), second.state_dict().values())
    )


def test_a_stage_that_was_cut_off_is_trained_again(tmp_path):
    run = Run(TOY, 1, None, tmp_path)
    run.encoder("a", run.base)
    (tmp_path / "stages" / "a-1" / "stage.json").unlink()
    made = []
    run.encoder("a", lambda: made.append(1) or run.base())
    assert made


def test_draws_are_the_same_for_every_run(tmp_path):
    one, two = Run(TOY, 1, None, tmp_path), Run(TOY, 2, None, tmp_path)
    assert (
        one.part("sst", "dev") == "sst/dev/30"
        and one.dataset("sst", "dev").ids == two.dataset("sst", "dev").ids
    )
    assert one.dataset("sst", "dev").ids != labelled("sst/dev", None).ids[:30]
    assert replace(one, scale=replace(TOY, most_dev=10**6)).part("sst", "dev") == "sst/dev"


def test_a_report_scores_answers_and_judges_claims(shelf, tmp_path):
    put(shelf, right=0.5), put(shelf, "hu/bert-cf", right=0.95)
    shelf.claim("it helps", "hu/bert-cf", "hu/minbert", "SST-5 dev acc")
    shelf.claim("it harms", "hu/minbert", "hu/bert-cf", "SST-5 dev acc")
    for recipe in shelf.RECIPES.values():
        for seed in TOY.seeds:
            perform(recipe, Run(TOY, seed, None, tmp_path))
    report = make_report(tmp_path, None, "micro", 200)
    gold = labelled("sst/dev/30", None).labels
    by_hand = np.mean(
        [
            accuracy(r["measured"]["SST-5 dev acc"]["answers"], gold)
            for r in stored(tmp_path)["hu/minbert"]
        ]
    )
    line = next(x for x in report.lines if x.recipe == "hu/minbert")
    assert (
        line.measured.value == pytest.approx(by_hand)
        and line.measured.low < by_hand < line.measured.high
        and line.seeds == 2
    )
    assert line.printed.value == 0.512 and line.printed.low == pytest.approx(0.4825, abs=0.001)
    helps, harms = report.judged
    assert helps.verdict == "reproduced" and helps.printed == pytest.approx(0.525 - 0.512)
    # in print it harms, too
    assert harms.verdict == "reproduced" and harms.printed == pytest.approx(0.512 - 0.525)
    plain = json.loads(json.dumps(as_json(report, "micro"), allow_nan=False))
    assert "| it helps | `hu/bert-cf` over `hu/minbert`, SST-5 dev acc | +0.013 |" in markdown(
        plain
    )
    assert plain["claims"][0]["gain"][1] > 0 and plain["cells"][0]["seeds"] == 2


def test_rows_that_learned_nothing_tell_nothing(shelf, tmp_path):
    """Both give one answer to everything: the difference is surely 0, and below any printed gain,
    and yet no verdict.
    """
    put(shelf), put(shelf, "hu/bert-cf")
    for name, recipe in list(shelf.RECIPES.items()):
        shelf.RECIPES[name] = replace(
            recipe,
            make=lambda run: {
                "SST-5 dev acc": Answers(run.part("sst", "dev"), "accuracy", [1] * 30)
            },
        )
        perform(shelf.RECIPES[name], Run(TOY, 1, None, tmp_path))
    shelf.claim("it helps", "hu/bert-cf", "hu/minbert", "SST-5 dev acc")
    (judged,) = make_report(tmp_path, None, "micro", 100).judged
    assert judged.verdict == "inconclusive" and not judged.learned
    assert "neither row learned" in markdown(
        as_json(make_report(tmp_path, None, "micro", 100), "micro")
    )


def change(folder, edit):
    """Store the results of a folder again with something changed."""
    results = [result for found in stored(folder).values() for result in found]
    for result in results:
        edit(result)
    add_results(folder, results)


def test_a_number_has_the_luck_of_its_seeds(shelf, tmp_path):
    put(shelf)
    shelf.RECIPES["hu/minbert"] = replace(
        shelf.RECIPES["hu/minbert"],
        cells=(recipes.Cell("T1", "MinBERT", "SST-5 dev acc", "length"),),
    )
    perform(shelf.RECIPES["hu/minbert"], Run(TOY, 1, None, tmp_path))
    # of one seed nothing is known, and a claim about it cannot be told
    alone = make_report(tmp_path, None, "micro", 50)
    assert alone.lines[0].measured.value == 4.0 and np.isnan(alone.lines[0].measured.low)
    assert as_json(alone, "micro")["cells"][0]["measured"] == [4.0, None, None]
    perform(shelf.RECIPES["hu/minbert"], Run(TOY, 2, None, tmp_path))
    # Student's law with one degree of freedom
    half = 12.706 * np.std([4, 5], ddof=1) / math.sqrt(2)
    assert make_report(tmp_path, None, "micro", 500).lines[0].measured[:3] == pytest.approx(
        (4.5, 4.5 - half, 4.5 + half), abs=1e-3
    )


def test_of_an_example_each_seed_tells_its_answer(shelf, tmp_path):
    """Two seeds that say 4 and 5 do not say 4.5."""
    put(shelf)
    shelf.RECIPES["hu/minbert"] = replace(
        shelf.RECIPES["hu/minbert"],
        cells=(recipes.Cell("T1", "MinBERT", "SST-5 dev acc", "length"),),
        examples=True,
    )

    def told():
        return markdown(as_json(make_report(tmp_path, None, "micro", 50), "micro"))

    perform(shelf.RECIPES["hu/minbert"], Run(TOY, 1, None, tmp_path))
    assert "| 4.000 | 1 |" in told()
    perform(shelf.RECIPES["hu/minbert"], Run(TOY, 2, None, tmp_path))
    assert (
        as_json(make_report(tmp_path, None, "micro", 50), "micro")["cells"][0]["answers"]
        == [4.0, 5.0]
        and "| 4.000, 5.000 | 2 |" in told()
    )
    change(tmp_path, lambda result: result["measured"]["length"].update(value=4.0))
    assert "| 4.000 | 2 |" in told()  # once, where they agree
    assert {name for name, recipe in RECIPES.items() if recipe.examples} == {
        name for name in RECIPES if "example" in name
    }


def test_plain_numbers_are_compared_seed_by_seed_and_equal_ones_tell_nothing():
    def plain(*values):
        return Scored(np.array(values), np.tile(values, (50, 1)).astype(float))

    one, other = plain(0.71, 0.52, 0.63), plain(0.61, 0.43, 0.52)
    difference = bounds(one, other)
    # each alone is far less sure
    assert (
        difference.value == pytest.approx(0.1)
        and 0 < difference.low < difference.high
        and bounds(one).low < 0.4 < bounds(one).high
    )
    for pair in ((plain(0.7, 0.7), None), (plain(0.7, 0.7), plain(0.1, 0.1)), (plain(0.7), None)):
        assert np.isnan(bounds(*pair).low) and np.isnan(bounds(*pair).high)


def taken(answers, metric="accuracy", value=0.5):
    return {
        "dataset": "d",
        "metric": metric,
        "value": value,
        "examples": None,
        "answers": list(answers),
    }


def run_of(seed, device="cpu", deterministic=False, **measured):
    return {"seed": seed, "device": device, "deterministic": deterministic, "measured": measured}


def test_a_row_has_learned_if_its_interval_is_above_the_best_constant_answer(monkeypatch):
    for module in (scores_module, scoring):
        monkeypatch.setattr(
            module,
            "labelled",
            lambda *_: Dataset("d", "dev", "sentiment", ["x"] * 20, labels=[1] * 12 + [0] * 8),
        )
    assert [
        constant(taken([], metric), None) for metric in ("accuracy", "auc", "pearson", "spearman")
    ] == [0.6, 0.5, 0, 0]
    # 18, 20 and 12 of 20
    rows = {"most": [1] * 14 + [0] * 6, "all": [1] * 12 + [0] * 8, "common": [1] * 20}
    # 14 of 20 is above .6, as it may be by chance
    rows |= {"some": [1] * 12 + [0] * 2 + [1] * 6, "same": [1] * 20}
    scores = Scores(
        {name: [run_of(1, x=taken(answers), y={"value": 0.0})] for name, answers in rows.items()},
        None,
        200,
    )

    def learned(one, other, key="x"):
        return scores.learned(scores.pair(one, other, key), one, key)

    assert (
        learned("common", "most")
        and learned("most", "common")
        and not learned("common", "same")
        and not learned("some", "common")
    )
    assert learned("common", "same", "y")  # of a plain number nothing is known


def test_whether_a_row_learned_is_a_question_to_the_runs_that_are_compared(monkeypatch):
    """More seeds on another kind of machine, at which the row learned nothing or something, do not
    count.
    """
    for module in (scores_module, scoring):
        monkeypatch.setattr(
            module,
            "labelled",
            lambda *_: Dataset("d", "dev", "sentiment", ["x"] * 20, labels=[1] * 12 + [0] * 8),
        )
    good, bad = (
        {"dataset": "d", "metric": "accuracy", "value": 0.5, "answers": answers}
        for answers in ([1] * 12 + [0] * 8, [1] * 20)
    )
    for ours, theirs, learned in ((good, bad, True), (bad, good, False)):
        rows = {
            "one": [
                run_of(1, "cuda", x=ours),
                *(run_of(seed, "cpu", x=theirs) for seed in (2, 3, 4)),
            ],
            "other": [run_of(1, "cuda", x=bad)],
        }
        scores = Scores(rows, None, 200)
        assert (
            scores.usual_runs("one", "x")[0] == "cpu"
            and scores.pair("one", "other", "x").device == "cuda"
        )
        assert scores.learned(scores.pair("one", "other", "x"), "one", "x") is learned


def test_one_row_that_learned_is_enough_to_judge(shelf, tmp_path):
    put(shelf), put(shelf, "hu/bert-cf")
    bad = replace(
        shelf.RECIPES["hu/bert-cf"],
        make=lambda run: {"SST-5 dev acc": Answers(run.part("sst", "dev"), "accuracy", [1] * 30)},
    )
    shelf.RECIPES["hu/bert-cf"] = bad
    shelf.claim("it helps", "hu/bert-cf", "hu/minbert", "SST-5 dev acc", published=0.0)
    for recipe in shelf.RECIPES.values():
        for seed in TOY.seeds:
            perform(recipe, Run(TOY, seed, None, tmp_path))
    report = make_report(tmp_path, None, "micro", 100)
    (judged,) = report.judged
    # the gain that the claim gives, not that of two cells
    assert judged.learned and judged.verdict == "reversed" and judged.printed == 0
    assert "SST-5 dev acc | +0.000 | -" in markdown(as_json(report, "micro"))


def test_a_report_is_on_one_scale_alone(shelf, tmp_path):
    put(shelf)
    for seed in (1, 2):
        result = perform(shelf.RECIPES["hu/minbert"], Run(TOY, seed, None, tmp_path))
    result["settings"]["scale"]["name"] = "minilm"
    add_results(tmp_path, [result])
    assert [
        make_report(tmp_path, None, scale, 20).lines[0].seeds for scale in ("micro", "minilm")
    ] == [2, 1]
    with pytest.raises(TypeError, match="scale"):
        make_report(tmp_path, None)


def test_a_run_aside_has_a_record_of_its_own(tmp_path):
    run = Run(TOY, 1, None, tmp_path)
    (
        run.note("x", rate=1.0),
        run.read_text("wiki", ["a"]),
        run.texts.update(wiki=1),
        run.curve.append({"step": 0}),
    )
    before = json.dumps(run.record())
    aside = run.aside(seed=2)
    assert (
        aside.record() == Run(TOY, 2, None, tmp_path).record()
        and aside.out == run.out
        and aside.seed == 2
    )
    (
        aside.note("y"),
        aside.read_text("other", ["b"]),
        aside.texts.update(other=1),
        aside.curve.append({"step": 1}),
    )
    assert json.dumps(run.record()) == before


def test_costs_are_means_over_seeds(shelf, tmp_path):
    put(shelf)
    for seed in TOY.seeds:
        perform(shelf.RECIPES["hu/minbert"], Run(TOY, seed, None, tmp_path))
    spent = [r["processor_seconds"] for r in stored(tmp_path)["hu/minbert"]]
    change(
        tmp_path,
        lambda result: result.update(processor_seconds=spent[0] + 10 * (result["seed"] == 2)),
    )
    costs = make_report(tmp_path, None, "micro", 20).costs["hu/minbert"]
    assert costs["processor seconds"] == pytest.approx(spent[0] + 5) and costs["seeds"] == 2


def test_not_run_is_said(shelf, tmp_path):
    put(shelf)
    shelf.claim("alone", "hu/minbert", "hu/minbert", "nothing")
    report = make_report(tmp_path, None, "micro")
    assert (
        report.lines[0].measured is None
        and report.judged[0].verdict == "not run"
        and "not run" in markdown(as_json(report, "micro"))
    )


def asked(*words):
    said = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    return said.exit_code, said.output + str(said.exception or "")


def test_list_and_report_show_the_record_of_the_package_in_any_folder(tmp_path):
    code, said = asked("--list", "--out", tmp_path)
    line = next(line for line in said.splitlines() if line.startswith("hu/minbert "))
    assert code == 0 and "0 of 3 here, 3 in the record" in line
    code, said = asked("report", "--out", tmp_path)
    assert (
        code == 0
        and f"{tmp_path / 'micro'} holds no results: this is the record that comes with minbert"
        in said
    )
    assert "| T1 | BERT-CF | unsup STS dev spearman | 0.760" in said and not list(
        tmp_path.iterdir()
    )
    code, said = asked("report", "--scale", "small", "--out", tmp_path)
    assert (
        code
        and f"{tmp_path / 'small'}: expected results" in said
        and "the record has micro and minilm" in said
    )
    code, said = asked("report", "--out", tmp_path, "--store", tmp_path / "r.json")
    assert code and "found none to write to" in said and not (tmp_path / "r.json").exists()
    code, said = asked("hu/nothing", "--out", tmp_path)
    assert code and "expected a recipe, got 'hu/nothing'" in said


def test_a_report_on_results_of_ones_own_says_nothing_of_the_record(tmp_path):
    run = Run(replace(TOY, seeds=(1,)), 1, None, tmp_path / "micro")
    perform(RECIPES["control/course"], run)
    # not the paper's "10 epochs" at 1e-5
    (stage,) = find_result(tmp_path / "micro", "control/course", 1, "micro")["ran"]
    assert (
        stage["steps"] == TOY.task_steps
        and stage["batch"] == TOY.batch
        and stage["rate"] == TOY.lr != 1e-5
    )
    code, said = asked("report", "--out", tmp_path, "--store", tmp_path / "r.json")
    assert code == 0 and "holds no results" not in said
    assert list(json.loads((tmp_path / "r.json").read_text())["costs"]) == ["control/course"]
    assert (
        "control/course                       1 of 3 here" in asked("--list", "--out", tmp_path)[1]
    )


def killed_or_done(name, scale, seed, *_):
    """Stand in for a recipe; one of them is killed, as by a machine without memory."""
    if name == "li/base":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{name} {seed}"


def test_a_failure_stops_nothing_else(tmp_path):
    """The sets that these want are not in the package; the outcome of each says why."""
    small = replace(TOY, seeds=(1,))
    outcomes = list(
        reproduction.run_recipes(
            chosen(["li/base", "control/sif-target"], "micro"), small, None, tmp_path, jobs=2
        )
    )
    assert [state for state, _ in outcomes] == ["failed", "failed"] and all(
        "expected one of these files" in line for _, line in outcomes
    )
    assert not list(tmp_path.glob("*.parquet"))


def test_a_process_that_is_killed_takes_no_other_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "_one", killed_or_done)
    monkeypatch.setattr("minbert.papers.missing_data", lambda *asked: "")
    outcomes = list(
        reproduction.run_recipes(
            chosen(["li/base", "control/untrained"], "micro"),
            replace(TOY, seeds=(1, 2)),
            None,
            tmp_path,
        )
    )
    assert (
        sorted(outcomes)
        == [("done", f"control/untrained {seed}") for seed in (1, 2)]
        + [("failed", f"li/base, seed 1: {line}") for line in [outcomes[0][1].partition(": ")[2]]]
        and "terminated" in outcomes[0][1]
    )


def test_missing_data_are_reported_once_and_before_anything_starts(tmp_path, monkeypatch):
    """Without data, each row with each seed used to start a process before it failed."""
    recipes, read = chosen(["hu/*"], "micro"), []

    def started(name, *rest):
        return pytest.fail(f"{name} was started although its data are missing")

    monkeypatch.setattr(reproduction, "_started", started)
    load = minbert.papers.result_store.load_dataset
    monkeypatch.setattr(
        "minbert.papers.result_store.load_dataset",
        lambda *asked: read.append(asked) or load(*asked),
    )
    outcomes = list(
        reproduction.run_recipes(
            recipes, replace(TOY, seeds=(1, 2)), str(tmp_path), tmp_path / "out"
        )
    )
    assert [(state, line.partition(": ")[0]) for state, line in outcomes] == [
        ("failed", recipe.name) for recipe in recipes
    ]
    assert (
        all("expected one of these files" in line for _, line in outcomes)
        and not (tmp_path / "out").exists()
    )
    assert len(read) == len(set(read)) < len(recipes)


def test_a_recipe_whose_data_are_there_runs_beside_one_that_lacks_them(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "minbert.papers.missing_data",
        lambda recipe, *rest: "no data" if recipe.name == "li/base" else "",
    )
    monkeypatch.setattr(reproduction, "_one", killed_or_done)
    outcomes = list(
        reproduction.run_recipes(
            chosen(["li/base", "control/sif-target"], "micro"),
            replace(TOY, seeds=(1,)),
            None,
            tmp_path,
        )
    )
    assert outcomes == [("failed", "no data"), ("done", "control/sif-target 1")]


def test_failures_alone_do_not_speak_of_others(tmp_path):
    said = CliRunner().invoke(
        app,
        [
            "reproduce",
            "li/base",
            "--data",
            str(tmp_path),
            "--out",
            str(tmp_path / "out"),
            "--seeds",
            "1",
        ],
    )
    assert (
        said.exit_code == 1
        and "1 of the recipes failed" in said.output
        and "the others" not in said.output
    )
    places = (
        next(line for line in said.output.splitlines() if "expected one of these files" in line)
        .rpartition("none: ")[2]
        .split(", ")
    )
    assert len(places) == len(set(places))


def test_jobs_that_share_stages_wait_for_one_another():
    a, b = RECIPES["hu/mirror"], RECIPES["hu/joint"]
    todo = [(a, 1), (b, 1), (b, 2)]
    assert reproduction._next(todo, set()) == (a, 1) and reproduction._next(todo, {("hu", 1)}) == (
        b,
        2,
    )
    assert reproduction._next(todo, {("hu", 1), ("hu", 2)}) is None


def test_work_is_counted_without_training():
    """Steps as the scale has them, and each operation once: 3 times a forward pass where gradients
    flow.
    """
    works = work_of(RECIPES["hu/minbert"], replace(TOY, tune_steps=1000), None)
    tuning = next(w for w in works if w.steps == 1000)
    assert tuning.rows == 2 + 2 * 2 + 2 * 2 and tuning.backward
    config = SHAPES["bert-base-uncased"]
    large = Work("x", 10, 10_000, 100, True)
    by_hand = 10 * 10_000 * 100 * 12 * (24 * 768**2 + 4 * 100 * 768) * 3 / SPEED / 60
    assert cost_of([large], config).minutes == pytest.approx(by_hand)
    assert cost_of([large._replace(backward=False)], config).minutes == pytest.approx(by_hand / 3)
    assert cost_of([large], config, speed=SPEED / 2).minutes == pytest.approx(2 * by_hand)
    assert cost_of([Work("x", 10, 1, 1, True)], config).minutes == pytest.approx(
        10 * 12 * LAUNCH / 60
    )
    assert cost_of([], config).memory == pytest.approx(16 * (12 * 12 * 768**2 + 30522 * 768) / 1e9)


def test_a_large_encoder_is_counted_without_being_there():
    """Three seeds of a recipe are three runs made from one; each must count, and none may load
    bert-large.
    """
    recipe = next(r for name, r in RECIPES.items() if name.startswith("hu/minbert"))
    many = replace(
        recipe, make=lambda run: [recipe.make(replace(run, seed=seed)) for seed in (1, 2)]
    )
    size = replace(TOY, base="no/such-model", large="no/such-larger-model", tune_steps=1000)
    assert len(work_of(many, size, None)) == 2 * len(work_of(recipe, size, None)) > 0
    asked = replace(recipe, make=lambda run: replace(run, seed=2).base("cls", large=True))
    assert work_of(asked, size, None) == []


def test_a_large_row_is_priced_as_large():
    size = replace(TOY, base="bert-base-uncased", large="bert-large-uncased")

    def both(large):
        return work_of(
            replace(
                RECIPES["hu/minbert"],
                make=lambda run: (run.base(large=large), run.counts("x", 10, 10_000, 100)),
            ),
            size,
            None,
        )

    base, large = (cost_of(both(large), *shapes_of(size)) for large in (False, True))
    assert large.minutes > 3 * base.minutes and large.memory > 2 * base.memory


def test_the_embedded_model_is_priced_by_its_own_sizes():
    assert (
        shapes_of(TOY)[0].hidden_size == 256
        and shapes_of(replace(TOY, base="bert-base-uncased"))[0].hidden_size == 768
    )


def test_penalties_cost_their_passes():
    """A proximal penalty is a forward pass of three; a search on words another pass and a gradient of its
    input; one on vectors runs no encoder.
    """
    minutes = {
        name: sum(
            w.steps * w.rows * w.passes
            for w in work_of(RECIPES[f"foley-cox-wendt/{name}"], TOY, None)
            if w.backward
        )
        for name in ("plain", "bppo")
    }
    assert minutes["bppo"] == pytest.approx(4 / 3 * minutes["plain"])
    assert passes(regularized_loss(SmartPenalty(1.0, "tokens")), "sst") == (
        pytest.approx(8 / 3),
        2.0,
    )
    assert (
        passes(regularized_loss(SmartPenalty(5.0, "vectors")), "sst")
        == passes(None, "sst")
        == (1.0, 1.0)
    )
    assert passes(dao.Contrast({"sst": 0.8}), "sst") == (2.0, 2.0) and passes(
        dao.Contrast({"sst": 0.8}), "sts"
    ) == (1.0, 1.0)


def test_a_row_over_seeds_is_run_once(tmp_path):
    recipe = RECIPES["li/large-seeds"]
    assert unfinished([recipe, RECIPES["li/base-flow-nli"]], TOY, tmp_path) == [
        (recipe, 1),
        *((RECIPES["li/base-flow-nli"], seed) for seed in (1, 2)),
    ]
    # deterministic
    assert unfinished([RECIPES["li/base"]], TOY, tmp_path) == [(RECIPES["li/base"], 1)]
    assert "0 of 1 here" in reproduction.listing([recipe], tmp_path, TOY)


def test_a_number_of_seeds_may_stand_before_the_names(monkeypatch, tmp_path):
    """--seeds takes one number, so that a name may follow it."""
    asked = []
    monkeypatch.setattr(
        reproduction,
        "listing",
        lambda recipes, folder, size, *rest: (
            asked.append(([r.name for r in recipes], size.seeds)) or ""
        ),
    )
    for number in (2, 5):
        with pytest.raises(SystemExit):
            main(
                ["reproduce", "--seeds", str(number), "hu/mirror", "--list", "--out", str(tmp_path)]
            )
    assert asked == [(["hu/mirror"], (1, 2)), (["hu/mirror"], (1, 2, 3, 4, 5))]


def test_papers_sets_are_never_replaced_by_those_of_the_package(tmp_path, monkeypatch, capsys):
    """Rows written by a grammar stand for the sets at micro alone; a score on them beside a paper's
    would mean nothing.
    """
    monkeypatch.setattr(run_in_notebook, "choose_device", lambda: torch.device("cuda"))
    for recipe in RECIPES.values():
        assert all(
            "expected a folder of data sets at scale" in missing_data(recipe, SCALES[scale], None)
            for scale in recipe.scales
            if scale != "micro"
        )
    assert (
        run_in_notebook.reproduce_here("control/course", out=tmp_path) is None
        and "`minbert data sst quora sts --data FOLDER --download`" in capsys.readouterr().out
    )
    with pytest.raises(
        ValueError, match="control/course: expected a folder of data sets at scale small"
    ):
        perform(RECIPES["control/course"], Run(replace(TOY, name="small"), 1, None, tmp_path))
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_text_that_was_used_is_told(tmp_path, monkeypatch):
    """A sample of Wikipedia may stand for the million; a result says which it was, also when its
    encoder was trained before.
    """
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "wiki1m-simcse-sample.txt").write_text(
        "".join(f"the {i} sentences have six words\n" for i in range(7)), encoding="utf-8"
    )
    run = Run(TOY, 1, str(tmp_path), tmp_path / "out")
    for _ in range(2):
        run.encoder("x", lambda: wiki(run) and run.base())
        assert run.texts == {"corpus/wiki1m-simcse-sample.txt": 7}
        run = Run(TOY, 1, str(tmp_path), tmp_path / "out")
    work_of(
        replace(RECIPES["hu/mirror"], make=lambda run: contrast(run, run.base(), None)),
        TOY,
        None,
        texts := {},
    )
    assert texts == {"sentences of the package": 6863}


def test_a_cell_says_what_is_missing(capsys):
    assert torch.cuda.is_available() or run_in_notebook.reproduce_here("hu/mirror") is None
    assert (
        torch.cuda.is_available()
        or "minbert reproduce hu/mirror --scale paper" in capsys.readouterr().out
    )


@pytest.fixture
def card(monkeypatch):
    """A machine that lacks nothing, with a card of 16 GB."""
    monkeypatch.setattr(run_in_notebook, "lacking", lambda *_: "")
    monkeypatch.setattr(run_in_notebook, "half_type", lambda *_: None)
    monkeypatch.setattr(run_in_notebook, "product_speed", lambda *_: 25e12)
    monkeypatch.setattr(run_in_notebook, "find_card", lambda _: GpuInfo("Tesla T4", 16.0, 15.0))
    return monkeypatch


def test_a_cell_tells_costs_trains_in_sight_and_compares(tmp_path, card, capsys):
    result = run_in_notebook.reproduce_here(
        "hu/mirror", out=tmp_path, scale=replace(TOY, seeds=(1,), precision="fp32")
    )
    said = capsys.readouterr().out
    assert (
        "at 1.0e+13 operations a second" in said
        and "GB of 15.0 GB free" in said
        and "temperature: .04" in said
        and "0.736   0.703 to 0.766" in said
    )
    assert result_file(tmp_path / "micro", "hu/mirror").is_file() and {
        p["stage"] for p in result["curve"]
    } == {"contrast", "tasks"}


def test_a_cell_shows_what_is_stored_and_does_not_train_again(tmp_path, card, capsys):
    first = run_in_notebook.reproduce_here("control/course", out=tmp_path, scale=TOY)
    card.setattr(run_in_notebook, "perform", lambda *_: 1 / 0)
    capsys.readouterr()
    assert run_in_notebook.reproduce_here("control/course", out=tmp_path, scale=TOY) == first
    said = capsys.readouterr().out
    assert "is stored already" in said and "0.515   0.485 to 0.544" in said and "10 seeds" in said
    with pytest.raises(ValueError, match="use another folder"):
        run_in_notebook.reproduce_here("control/course", out=tmp_path, scale=replace(TOY, lr=1.0))


def test_a_cell_without_printed_cells_tells_all_and_its_neighbour(tmp_path, card, capsys):
    """Nothing is printed for BPPO: every measurement is told, the paper's own model is the
    reference, and the plain row the neighbour.
    """
    run_in_notebook.reproduce_here("foley-cox-wendt/bppo", out=tmp_path, scale=TOY)
    said = capsys.readouterr().out
    assert "reproduce_here('foley-cox-wendt/plain'" in said and "S7 final model" in said
    run_in_notebook.reproduce_here("foley-cox-wendt/plain", out=tmp_path, scale=TOY)
    capsys.readouterr()
    result = run_in_notebook.reproduce_here("foley-cox-wendt/bppo", out=tmp_path, scale=TOY)
    table, _, other = capsys.readouterr().out.partition("foley-cox-wendt/plain, the same seed:")
    assert all(key in table and key in other for key in result["measured"]) and other.count(
        "here "
    ) == len(result["measured"])


@pytest.mark.parametrize(
    "name",
    (
        "foley-cox-wendt/bppo",
        "foley-cox-wendt/synthetic-only",
        "wu-zhao/sst-smart",
        "dao-mehta-tian/multitask",
    ),
)
def test_a_cell_keeps_its_trained_model(name, tmp_path):
    """The model that answered is kept, and answers the same when it is loaded; without `keep` only
    what recipes share is.
    """
    run = Run(TOY, 1, None, tmp_path, keep=True)
    result = perform(RECIPES[name], run)
    answers = next(
        value
        for key, value in result["measured"].items()
        if key.startswith("SST") and "answers" in value
    )
    model = MultitaskBert.from_pretrained(run.kept[-1])
    assert model.predict("sst", run.dataset("sst", "dev")).tolist() == answers["answers"]


def test_models_of_a_single_row_are_not_kept_unasked(tmp_path):
    for keep in (False, True):
        run = Run(TOY, 1, None, tmp_path, keep=keep)
        run.own(
            "a/b", lambda: heads_from(run, run.base(), lambda width: {"sst": LinearHead(width, 5)})
        )
        assert (
            run.kept == [tmp_path / "stages" / "a-b-1"] * keep
            and (tmp_path / "stages").exists() == keep
        )


def test_a_card_with_little_memory_takes_a_step_in_pieces_or_is_refused(tmp_path, card, capsys):
    size = replace(TOY, batch=8)
    works = work_of(RECIPES["control/course"], replace(TOY, batch=8), None)
    whole, cut = (cost_of(works, *shapes_of(size), pieces=n).memory for n in (1, 4))
    card.setattr(
        run_in_notebook,
        "find_card",
        lambda _: GpuInfo("small", 1.0, (cut + 1e-6) / run_in_notebook.ROOM),
    )
    run_in_notebook.reproduce_here("control/course", out=tmp_path, scale=size)
    assert "in 4 pieces" in capsys.readouterr().out and cut < whole
    card.setattr(run_in_notebook, "find_card", lambda _: GpuInfo("tiny", 0.02, 0.01))
    assert (
        run_in_notebook.reproduce_here("control/course", out=tmp_path, scale=size, seed=2) is None
    )
    said = capsys.readouterr().out
    assert (
        "control/course does not fit" in said
        and "tiny has 0.0 of 0.0 GB free" in said
        and "take a card with 1 GB" in said
    )


def test_a_step_in_pieces_is_the_same_step(tmp_path):
    """Gradients of four parts add up to that of the whole, and a bar still counts steps; batches
    whose rows are compared stay whole.
    """
    size, weights = replace(TOY, batch=8, precision="fp32", task_steps=3), {}
    for pieces in (1, 4):
        seen = []
        run = Run(
            size,
            1,
            None,
            tmp_path,
            pieces=pieces,
            watch=lambda stage, step, loss: seen.append(step),
        )
        model = heads_from(
            run,
            run.noisy(run.base(), 0.0),
            lambda width: {"sst": LinearHead(width, 5, dropout=0.0)},
        )
        weights[pieces] = (
            fine_tune(run, model, phase(run, "sst"), best=False).heads["sst"].state_dict()
        )
        assert seen == [0, 1, 2]
    for whole, cut in zip(weights[1].values(), weights[4].values()):
        torch.testing.assert_close(whole, cut, rtol=1e-3, atol=1e-5)
    assert (
        divisible(None, sum_losses)
        and not divisible(dao.Contrast({}), sum_losses)
        and not divisible(None, PCGrad)
    )


def test_every_cell_for_a_gpu_says_what_it_does():
    """A cell that wants a GPU goes through `reproduce_here`, which says what is missing, and stores
    and shows what came out.
    """
    root = Path(__file__).resolve().parent.parent
    for file in (root / "nbs").rglob("*.ipynb"):
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            assert not source.startswith("#| gpu") or "reproduce_here(" in source, (
                file.name,
                cell["id"],
            )


def test_a_watcher_draws_means(monkeypatch):
    watcher = run_in_notebook.Watcher(20, every=5)
    for step in range(12):
        watcher("x", step, torch.tensor(float(step)))
    assert watcher.points == [2.0, 7.0] and watcher.bar.n == 12
    watcher.bar.close()


def test_seeds_are_compared_with_themselves(shelf, tmp_path):
    """Two recipes of which one lacks a seed: the difference is over those that both have, seed 2 of
    the one never beside seed 3 of the other.
    """
    shelf.recipe("hu/minbert", needs=(), settings={})(lambda run: {"x": float(run.seed)})
    shelf.recipe("hu/bert-cf", needs=(), settings={})(lambda run: {"x": float(run.seed) + 1})
    shelf.claim("more", "hu/bert-cf", "hu/minbert", "x")
    for name, seeds in (("hu/minbert", (1, 3, 4)), ("hu/bert-cf", (1, 2, 4))):
        for seed in seeds:
            perform(shelf.RECIPES[name], Run(TOY, seed, None, tmp_path))
    (judged,) = make_report(tmp_path, None, "micro", 200).judged
    # no seed changes the difference
    assert (
        judged.gain.value == pytest.approx(1.0) and np.isnan(judged.gain.low) and judged.seeds == 2
    )


def test_answers_to_other_rows_are_not_compared(shelf, tmp_path):
    put(shelf), put(shelf, "hu/bert-cf")
    shelf.claim("it helps", "hu/bert-cf", "hu/minbert", "SST-5 dev acc")
    perform(shelf.RECIPES["hu/minbert"], Run(TOY, 1, None, tmp_path))
    perform(shelf.RECIPES["hu/bert-cf"], Run(replace(TOY, most_dev=20), 1, None, tmp_path))
    with pytest.raises(
        ValueError,
        match="hu/bert-cf and hu/minbert, SST-5 dev acc: expected predictions for the same examples, got sst/dev/20 and sst/dev/30",
    ):
        make_report(tmp_path, None, "micro", 50)


def test_a_stage_of_other_settings_is_refused(tmp_path):
    Run(TOY, 1, None, tmp_path).encoder("a", Run(TOY, 1, None, tmp_path).base)
    with pytest.raises(
        ValueError, match=r"stages.a-1: expected a stage with .*, got .*: use another folder"
    ):
        Run(replace(TOY, lr=1.0), 1, None, tmp_path).encoder("a", lambda: 1 / 0)


@pytest.mark.parametrize("scale", ("micro", "minilm"))
def test_the_record_is_that_of_the_stored_runs(scale):
    """What chapter 27 and the site show has a result for each recipe and seed, and leaves none out."""
    root = Path(__file__).resolve().parent.parent
    record = json.loads(
        (root / "minbert" / "assets" / "results" / f"recipes-{scale}.json").read_text(
            encoding="utf-8"
        )
    )
    kept = stored(root / "results" / "recipes", scale)
    mine = json.loads(json.dumps(agreed(SCALES[scale])["scale"]))
    assert record["scale"] == scale and kept
    assert {c["recipe"]: c["seeds"] for c in record["cells"]} == {
        c["recipe"]: len(kept.get(c["recipe"], [])) for c in record["cells"]
    }
    assert {name: cost["seeds"] for name, cost in record["costs"].items()} == {
        name: len(results) for name, results in kept.items()
    } and set(kept) <= set(RECIPES)
    current = {}
    for name, results in kept.items():
        settings = {
            "recipe": RECIPES[name].settings,
            "differs": RECIPES[name].differs,
            "scale": mine,
        }
        current[name] = all({k: r["settings"][k] for k in settings} == settings for r in results)
    assert all(c["outdated"] == (not current.get(c["recipe"], True)) for c in record["cells"])
    assert all(
        c["outdated"] == (not (current[c["better"]] and current[c["worse"]]))
        for c in record["claims"]
        if c["gain"]
    )
    # the same weights everywhere
    assert len({r["settings"]["base"] for results in kept.values() for r in results}) == 1
    assert {(c["better"], c["worse"], c["measured"]) for c in record["claims"]} == {
        (c.better, c.worse, c.measured) for c in CLAIMS
    }


def test_results_of_a_changed_recipe_are_marked(shelf, tmp_path):
    """What a recipe says of itself is that of today; a result that was made before says so."""
    put(shelf, right=0.5), put(shelf, "hu/bert-cf", right=0.95)
    shelf.claim("it helps", "hu/bert-cf", "hu/minbert", "SST-5 dev acc")
    for recipe in list(shelf.RECIPES.values()):
        for seed in TOY.seeds:
            perform(recipe, Run(SCALES["micro"], seed, None, tmp_path))

    def report():
        return as_json(make_report(tmp_path, None, "micro", 50), "micro")

    assert not any(x["outdated"] for x in (*report()["cells"], *report()["claims"]))
    assert "before the recipe was changed" not in markdown(report())
    shelf.RECIPES["hu/bert-cf"] = replace(shelf.RECIPES["hu/bert-cf"], settings={"rate": "2e-5"})
    assert {c["recipe"]: c["outdated"] for c in report()["cells"]} == {
        "hu/minbert": False,
        "hu/bert-cf": True,
    }
    assert (
        report()["claims"][0]["outdated"]
        and markdown(report()).count("(ran before the recipe was changed)") == 2
    )
