"""Run recipes and store what they measure; what is stored is not run again, and other settings are
refused.
"""

from __future__ import annotations

__all__ = [
    "settings_of",
    "hardware",
    "processor",
    "missing_data",
    "perform",
    "unfinished",
    "find_result",
    "is_current",
    "stored",
    "versions",
]

import math
import platform
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from .. import __version__
from ..core.devices import choose_device
from ..data import load_dataset
from ..datasets.hub_datasets import HUB
from ..datasets.manual_downloads import ELSEWHERE, not_as_published, where_to_get
from ..encoding.run_fingerprint import rows_checksum
from .published import PAPERS
from .recipe import Recipe
from .results_table import DIGITS, add_results, read_results, result_file, stored_settings
from .run import Answers, Run, labelled
from .scale import SCALES, Scale, agreed
from .scoring import score_of


def hardware() -> str:
    """Name the card, or the processor, as far as the system tells, and the threads in use."""
    return (
        torch.cuda.get_device_name()
        if choose_device().type == "cuda"
        else f"{processor()}, {torch.get_num_threads()} thread(s)"
    )


def processor() -> str:
    """Name the processor, as far as the system tells, and the instructions that torch takes there:
    with other ones a step may take many times as long.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def versions() -> dict[str, str]:
    """List what computed a result."""
    return {
        "minbert": __version__,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "python": platform.python_version(),
        "hardware": hardware(),
    }


def settings_of(scale: Scale, recipe: Recipe) -> dict:
    """What two results must agree in to stand in one table: scale, base model, and the words of the
    recipe.
    """
    return agreed(scale) | {"recipe": recipe.settings, "differs": recipe.differs}


def missing_data(
    recipe: Recipe, scale: Scale, data: str | None, tried: dict[str, str] | None = None
) -> str:
    """Say in one line which of its files a recipe lacks; nothing if all are there. The rows in the
    package stand in at micro alone: no paper was measured on them.

    `tried` notes what was found, so that several recipes read each data set once.
    """
    if data is None and scale.name != "micro":
        return f"{recipe.name}: expected a folder of data sets at scale {scale.name} (--data, or MINBERT_DATA for a notebook), got none; {_fetched(recipe)}"
    tried = {} if tried is None else tried
    for need in recipe.needs:
        if need not in tried:
            tried[need] = _unreadable(need, data)
        if tried[need]:
            return f"{recipe.name}: {tried[need]}; {_fetched(recipe)}"
    elsewhere = [task for task in tasks_of(recipe) if task in ELSEWHERE and scale.name == "paper"]
    return next(
        (f"{recipe.name}: {wrong}" for task in elsewhere for wrong in not_as_published(task, data)),
        "",
    )


def _unreadable(need: str, data: str | None) -> str:
    """Say why a split cannot be read; nothing if it can."""
    try:
        load_dataset(*need.split("/"), data)
    except ValueError as error:
        return str(error)
    return ""


def tasks_of(recipe: Recipe) -> list[str]:
    """Name the data sets that a recipe needs."""
    return list(dict.fromkeys(need.split("/")[0] for need in recipe.needs))


def _fetched(recipe: Recipe) -> str:
    """Say how to get what a recipe needs."""
    open_sets = [task for task in tasks_of(recipe) if task in HUB]
    fetched = (
        f"`minbert data {' '.join(open_sets)} --data FOLDER --download` fetches what is open"
        if open_sets
        else "minbert can download none of them"
    )
    return "; ".join(
        [fetched, *(where_to_get(task) for task in tasks_of(recipe) if task in ELSEWHERE)]
    )


def perform(recipe: Recipe, run: Run) -> dict:
    """Run a recipe, and add its result to the file of its report once it is complete.

    Raises ValueError in one line if data are missing, or a measurement is not a finite number.
    """
    if missing := missing_data(recipe, run.scale, run.data):
        raise ValueError(missing)
    torch.manual_seed(run.seed)
    start, spent = time.perf_counter(), time.process_time()
    measured = recipe.make(run)
    device = choose_device().type
    memory = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    ran = {"ran": run.ran} if run.ran else {}
    rows = {need: rows_checksum(labelled(need, run.data)) for need in recipe.needs}
    result = (
        {
            "recipe": recipe.name,
            "seed": run.seed,
            "deterministic": recipe.deterministic,
            "settings": settings_of(run.scale, recipe),
            "versions": versions(),
            "device": device,
            "seconds": round(time.perf_counter() - start, 1),
            "processor_seconds": round(time.process_time() - spent, 1),
            "gpu_mb": memory,
            "rows": rows | run.examples,
            "measured": {
                key: _plain(f"{recipe.name}, seed {run.seed}, {key}", value, run.data)
                for key, value in measured.items()
            },
            "curve": run.curve,
        }
        | ran
        | ({"texts": run.texts} if run.texts else {})
    )
    add_results(run.out, [result])
    return result


def _plain(name: str, value, data: str | None) -> dict:
    """Turn a measurement into plain values, its score and the checksum of its examples included."""
    numbers = value.values if isinstance(value, Answers) else [value]
    if not all(math.isfinite(x) for x in numbers):
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    if not isinstance(value, Answers):
        return {"value": float(value)}
    answers = [round(float(x), DIGITS) for x in value.values]
    return {
        "dataset": value.dataset,
        "metric": value.metric,
        "value": score_of(value.dataset, value.metric, answers, data),
        "examples": rows_checksum(labelled(value.dataset, data)),
        "answers": answers,
    }


def unfinished(recipes: list[Recipe], scale: Scale, out: Path) -> list[tuple[Recipe, int]]:
    """List recipe and seed of what is not stored, seed by seed.

    Raises ValueError naming the file of a result with other settings.
    """
    files = {result_file(out, recipe.name) for recipe in recipes}
    known = {file: stored_settings(file) for file in files}
    todo = []
    for seed in scale.seeds:
        for recipe in (r for r in recipes if seed in r.seeds(scale)):
            file = result_file(out, recipe.name)
            there = known[file].get((scale.name, recipe.name, seed))
            if there is None:
                todo.append((recipe, seed))
            else:
                _compare_settings(f"{file}: {recipe.name}, seed {seed}", there, scale, recipe)
    return todo


def _compare_settings(where: str, there: dict, scale: Scale, recipe: Recipe) -> None:
    """Raise ValueError if a stored result has other settings than a run would have now."""
    mine = settings_of(scale, recipe)
    other = next((name for name in mine if there.get(name) != mine[name]), None)
    if other:
        raise ValueError(
            f"{where}: expected a result with {other} {mine[other]}, got "
            f"{there.get(other)}: use another folder"
        )


def is_current(result: dict, recipe: Recipe) -> bool:
    """Tell whether a result was made with the settings that its recipe and its scale have now."""
    there, sizes = result["settings"], {}
    if there["scale"]["name"] in SCALES:
        sizes = asdict(SCALES[there["scale"]["name"]])
    same_sizes = all(sizes.get(name) == value for name, value in there["scale"].items())
    return there["recipe"] == recipe.settings and there["differs"] == recipe.differs and same_sizes


def find_result(out: Path, recipe: str, seed: int, scale: str) -> dict | None:
    """Read the result of one run; None if it is not stored."""
    return next((r for r in stored(out, scale).get(recipe, []) if r["seed"] == seed), None)


def stored(
    out: Path,
    scale: str | None = None,  # name of a scale; None: of every scale
) -> dict[str, list[dict]]:  # recipe -> its results, in the order of their seeds
    """Read every result in the folder."""
    found: dict[str, list[dict]] = {}
    for paper in (*PAPERS, "control"):
        if (file := result_file(out, paper)).exists():
            for result in read_results(file):
                if scale in (None, result["settings"]["scale"]["name"]):
                    found.setdefault(result["recipe"], []).append(result)
    return {name: sorted(results, key=lambda r: r["seed"]) for name, results in found.items()}
