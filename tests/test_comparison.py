"""The comparison scripts search a learning rate for each method, train every seed once, and join the runs."""

import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import comparison  # noqa: E402

BEST = {"plain": 0.1, "other": 0.2}  # learning rate that suits a method
RATES = (0.1, 0.2, 0.3)


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Run the script with a training that only notes what it was asked; give a function that runs it."""
    runs = []

    def train(name, seed, rate):
        runs.append((name, seed, rate))
        return [{"task": task, "best_dev": 1 - abs(rate - BEST[name])} for task in ("a", "b")]

    def script(*words):
        monkeypatch.setattr(sys, "argv", ["compare", "--out", str(tmp_path / "runs"), *words])
        comparison.compare("Doc.", train, list(BEST), lambda name: RATES, (1, 2), {"steps": 3}, "x")
        done = runs.copy()
        runs.clear()
        return done

    return script


def test_each_method_is_searched_with_seed_0_and_trained_at_its_best_rate(trained):
    runs = trained()
    assert len(runs) == 2 * (3 + 2)
    for name, rate in BEST.items():
        assert [run for run in runs if run[0] == name and run[1] == 0] == [
            (name, 0, r) for r in RATES
        ]
        assert [run for run in runs if run[0] == name and run[1]] == [
            (name, 1, rate),
            (name, 2, rate),
        ]


def test_a_stored_run_is_not_repeated(trained, tmp_path):
    trained()
    assert trained() == []
    (tmp_path / "runs" / "plain-2.parquet").unlink()
    assert trained() == [("plain", 2, 0.1)]


def test_one_file_holds_all_runs(trained, tmp_path):
    trained("--methods", "plain")
    trained("--join", str(tmp_path / "all" / "runs.parquet"))
    table = pd.read_parquet(tmp_path / "all" / "runs.parquet")
    assert len(table) == 2 * 5 and set(table.method) == {"plain"}
    assert (table.settings == '{"steps": 3}').all() and set(table.task) == {"a", "b"}


def test_an_interrupted_run_leaves_no_file(tmp_path):
    def train(name, seed, rate):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        comparison.run_once(train, "plain", 1, 0.1, tmp_path / "plain-1.parquet", {})
    assert list(tmp_path.iterdir()) == []
