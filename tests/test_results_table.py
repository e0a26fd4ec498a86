"""Results as Parquet: nothing is lost, whatever happens, and pandas can read it."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minbert.papers import RECIPES, add_results, read_results, result_file
from minbert.papers import results_table as table
from minbert.papers.scoring import score_of

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "results" / "recipes"


def result(recipe="hu/mirror", seed=1, scale="micro", **measured) -> dict:
    measured = measured or {
        "SST dev acc": {
            "dataset": "sst/dev",
            "metric": "accuracy",
            "value": 0.5,
            "examples": "ab12",
            "answers": [1.0, 0.1234, 3749.5],
        },
        "average": {"value": 1 / 3},
    }
    return {
        "recipe": recipe,
        "seed": seed,
        "deterministic": False,
        "device": "cpu",
        "settings": {
            "scale": {"name": scale, "lr": 5e-4, "rows": {"sst": 8}},
            "base": None,
            "recipe": {"rate": "1e-5 (section 5.3)"},
            "differs": "",
        },
        "versions": {
            "minbert": "0",
            "torch": "2",
            "transformers": "5",
            "python": "3",
            "hardware": "x86_64",
        },
        "seconds": 1.5,
        "processor_seconds": 1.25,
        "gpu_mb": None,
        "measured": measured,
        "curve": [{"stage": "contrast", "step": 0, "loss": 0.5}],
        "ran": [{"stage": "contrast", "steps": 60, "learning rate": 1e-5}],
        "rows": {"sst/dev": "cd34"},
        "texts": {"corpus": 3},
    }


def test_a_result_comes_back_as_it_was_stored(tmp_path):
    first, second = result(), result(seed=2)
    del second["rows"], second["texts"], second["ran"]
    second["settings"]["base"], second["gpu_mb"], second["device"] = "f916", 12.5, "cuda"
    add_results(tmp_path, [first])
    add_results(tmp_path, [second, result("li/base")])
    assert read_results(tmp_path / "hu.parquet") == [first, second]
    assert read_results(tmp_path / "li.parquet") == [result("li/base")]
    settings = table.stored_settings(tmp_path / "hu.parquet")
    assert settings == {("micro", "hu/mirror", r["seed"]): r["settings"] for r in (first, second)}


def test_an_undefined_loss_costs_no_result(tmp_path):
    """Hours of training must not end in an error about a number of the curve."""
    diverged = result() | {
        "curve": [{"step": 10, "loss": float("nan"), "dev": {"sts": float("inf")}}]
    }
    add_results(tmp_path, [diverged])
    (found,) = read_results(tmp_path / "hu.parquet")
    assert found["curve"] == [{"step": 10, "loss": None, "dev": {"sts": None}}]


def test_a_run_that_is_stored_again_replaces_itself_alone(tmp_path):
    add_results(tmp_path, [result(seed=1), result(seed=2), result(seed=1, scale="minilm")])
    add_results(tmp_path, [result(seed=1, average={"value": 7.0})])
    found = [
        (r["settings"]["scale"]["name"], r["seed"], r["measured"]["average"]["value"])
        for r in read_results(tmp_path / "hu.parquet")
    ]
    assert sorted(found) == [("micro", 1, 7.0), ("micro", 2, 1 / 3), ("minilm", 1, 1 / 3)]


@pytest.mark.parametrize("answers", ([0.12345], [2.0**24 + 1], [float("nan")], [1e300]))
def test_a_prediction_that_would_change_is_refused(tmp_path, answers):
    wrong = {
        "dataset": "d",
        "metric": "pearson",
        "value": 0.0,
        "examples": None,
        "answers": answers,
    }
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="hu/mirror, STS: expected finite"),
    ):
        add_results(tmp_path, [result(STS=wrong)])
    assert not list(tmp_path.glob("*.parquet"))


def test_damaged_and_foreign_files_are_named(tmp_path):
    add_results(tmp_path, [result()])
    file = tmp_path / "hu.parquet"
    good = file.read_bytes()
    for bad in (b"", good[: len(good) // 2], b"PAR1 nothing PAR1", b"{}"):
        file.write_bytes(bad)
        with pytest.raises(ValueError, match=r"hu\.parquet: expected a Parquet file of results"):
            read_results(file)
        with pytest.raises(ValueError, match=r"hu\.parquet"):
            add_results(tmp_path, [result(seed=2)])  # which would otherwise lose the old runs
        assert file.read_bytes() == bad
    pq.write_table(pa.table({"scale": ["micro"], "seed": [1]}), file)
    with pytest.raises(
        ValueError,
        match=r"hu\.parquet: column 2: expected 'recipe' of type string, got 'seed' of type int64$",
    ):
        read_results(file)
    good = pa.Table.from_pylist(table._rows(result()), schema=table.SCHEMA)
    names = good.column_names
    for bad, message in (
        (
            good.select([*names[:4], names[5], names[4], *names[6:]]),
            "column 5: expected 'measurement' of type string, got 'value' of type double",
        ),
        (
            good.select(names[:-1]),
            f"column {len(names)}: expected 'training_curve' of type string, got no column",
        ),
        (
            good.append_column("more", [[1] * len(good)]),
            f"column {len(names) + 1}: expected no column, got 'more' of type int64",
        ),
    ):
        pq.write_table(bad, file)
        with pytest.raises(ValueError, match=rf"hu\.parquet: {message}$"):
            read_results(file)
    rows = table._rows(result())
    rows[0]["training_curve"] = "[1"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.SCHEMA), file)
    with pytest.raises(ValueError, match=r"hu\.parquet, training_curve: expected JSON"):
        read_results(file)


def store_seeds(folder, seeds):
    for seed in seeds:
        add_results(folder, [result(seed=seed)])


def test_processes_side_by_side_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    jobs = [context.Process(target=store_seeds, args=(tmp_path, range(k, 20, 2))) for k in (0, 1)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert sorted(r["seed"] for r in read_results(tmp_path / "hu.parquet")) == list(range(20))


def store_and_stop(folder, started):
    """Stop in the middle of writing the second result."""
    add_results(folder, [result(seed=1)])

    def stop(rows, file, **options):
        Path(file).write_bytes(b"PAR1 half a file")
        started.set()
        time.sleep(60)

    table.pq.write_table = stop
    add_results(folder, [result(seed=2)])


def test_a_killed_process_leaves_the_old_file_and_no_lock(tmp_path):
    context = multiprocessing.get_context("fork")
    started = context.Event()
    job = context.Process(target=store_and_stop, args=(tmp_path, started))
    job.start()
    assert started.wait(60)
    os.kill(job.pid, signal.SIGKILL)
    job.join()
    assert [r["seed"] for r in read_results(tmp_path / "hu.parquet")] == [1]
    add_results(tmp_path, [result(seed=3)])
    assert [r["seed"] for r in read_results(tmp_path / "hu.parquet")] == [1, 3]
    assert [f.name for f in tmp_path.iterdir() if not f.name.endswith(".lock")] == ["hu.parquet"]


def test_the_repository_holds_one_file_for_each_report_and_at_most_10_mb():
    files = sorted(RECORD.glob("*.parquet"))
    assert {f.stem for f in files} == {name.partition("/")[0] for name in RECIPES}
    assert sum(f.stat().st_size for f in files) < 10e6 and not list(RECORD.rglob("*.json"))


def test_every_column_is_documented():
    text = (RECORD / "README.md").read_text(encoding="utf-8")
    assert [name for name in table.SCHEMA.names if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("file", sorted(RECORD.glob("*.parquet")), ids=lambda file: file.stem)
def test_pandas_reads_the_record(file):
    """One row for each measurement of a run; deterministic recipes are there once."""
    rows = pd.read_parquet(file)
    assert not rows.duplicated(["scale", "recipe", "seed", "measurement"]).any()
    assert all(result_file(RECORD, name) == file and name in RECIPES for name in rows.recipe)
    assert (rows.deterministic == [RECIPES[name].deterministic for name in rows.recipe]).all()
    assert (
        rows.device.isin(["cpu", "cuda"]) & (rows.device.eq("cuda") == rows.gpu_memory_mb.notna())
    ).all()
    predicted = rows[rows.predictions.notna()]
    assert (predicted.dataset.notna() & predicted.metric.notna()).all()
    runs = rows.drop_duplicates(["scale", "recipe", "seed"])
    seeds = runs[runs.deterministic].groupby(["scale", "recipe"]).seed.nunique()
    assert (seeds == 1).all()
    for name, found in rows[~rows.deterministic].groupby(["scale", "recipe"]):
        measured = {
            str(
                [
                    (row.value, None if row.predictions is None else row.predictions.tobytes())
                    for row in run.itertuples()
                ]
            )
            for _, run in found.groupby("seed")
        }
        assert found.seed.nunique() == 1 or len(measured) > 1, name  # else it is deterministic


def test_stored_values_are_the_scores_of_the_stored_predictions():
    """Shown on a data set of the package, whose labels are at hand."""
    answers = [1.0, 0.0, 3.0]
    assert score_of("sst/dev/3", "accuracy", answers, None) in (0.0, 1 / 3, 2 / 3, 1.0)
    assert score_of("sst/dev/3", "spearman", [1.0, 1.0, 1.0], None) is None
    with pytest.raises(
        ValueError, match="sst/dev/3: expected 3 predictions, one for each example, got 2"
    ):
        score_of("sst/dev/3", "accuracy", [1.0, 2.0], None)
