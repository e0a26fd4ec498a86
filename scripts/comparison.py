"""What the comparison scripts share: a learning-rate search, runs that can be resumed, one table."""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from minbert import __version__

SEARCH_SEED = 0  # of the learning-rate search; never reported


def run_once(
    train: Callable, name: str, seed: int, rate: float, file: Path, settings: dict
) -> None:
    """Train once and store the rows; a run that is stored is skipped."""
    if file.exists():
        return
    spent = time.process_time()
    rows = train(name, seed, rate)
    shared = {
        "method": name,
        "seed": seed,
        "learning_rate": rate,
        "settings": json.dumps(settings),
        "processor_seconds": round(time.process_time() - spent, 1),
        "minbert": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    draft = file.with_suffix(".part")
    pd.DataFrame([shared | row for row in rows]).to_parquet(draft, index=False)
    draft.replace(file)
    print(f"{file.stem}: {shared['processor_seconds']:.0f} s of processor time", flush=True)


def best_rate(
    train: Callable, name: str, rates: tuple[float, ...], out: Path, settings: dict
) -> float:
    """Choose the learning rate with the best score on dev."""
    found = {}
    for rate in rates:
        file = out / f"{name}-search-{rate:g}.parquet"
        run_once(train, name, SEARCH_SEED, rate, file, settings)
        found[rate] = pd.read_parquet(file)["best_dev"].iloc[0]
    return max(found, key=found.get)


def join(out: Path, target: Path) -> None:
    """Write all stored runs into one Parquet file."""
    table = pd.concat(
        [pd.read_parquet(file) for file in sorted(out.glob("*.parquet"))], ignore_index=True
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    columns = [c for c in ("method", "seed", "learning_rate", "task") if c in table]
    table.sort_values(columns).to_parquet(target, index=False, compression="zstd")
    print(f"{target}: {len(table)} rows of {table.groupby(columns[:3]).ngroups} runs")


def compare(
    doc: str,
    train: Callable,  # (method, seed, learning rate) -> rows
    methods: list[str],
    rates: Callable[[str], tuple[float, ...]],
    seeds: tuple[int, ...],
    settings: dict,
    out: str,
) -> None:
    """Search the learning rate of every method, then train with the seeds that are reported."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--methods", nargs="*", default=methods)
    parser.add_argument("--join", type=Path, help="write the stored runs into this file and stop")
    given = parser.parse_args()
    if given.join:
        return join(given.out, given.join)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.methods:
        rate = best_rate(train, name, rates(name), given.out, settings)
        print(f"{name}: learning rate {rate:g}", flush=True)
        for seed in seeds:
            run_once(train, name, seed, rate, given.out / f"{name}-{seed}.parquet", settings)
