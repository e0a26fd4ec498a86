"""A result is a small JSON file; what is there is not done again, and what was done otherwise is refused."""
from __future__ import annotations

__all__ = ["result_file", "settings_of", "hardware", "processor", "missing_data", "perform", "unfinished", "stored", "versions"]

import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import torch

from .. import __version__
from ..data import load_dataset
from ..engine.checkpoint import replace_file
from ..engine.devices import choose_device
from ..engine.files import read_json
from ..engine.hub import HUB
from ..engine.identity import rows_checksum
from .recipe import Recipe
from .run import Answers, Run, labelled
from .scale import Scale, agreed

DIGITS = 4   # of an answer


def hardware() -> str:
    """Name the card, or the processor, as far as the system tells, and the threads in use."""
    return torch.cuda.get_device_name() if choose_device().type == "cuda" else f"{processor()}, {torch.get_num_threads()} thread(s)"


def processor() -> str:
    """Name the processor, as far as the system tells, and the instructions that torch takes there: with other ones a step may take many times as long."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def versions() -> dict[str, str]:
    """List what computed a result."""
    return {"minbert": __version__, "torch": torch.__version__, "transformers": version("transformers"), "python": platform.python_version(), "hardware": hardware()}


def settings_of(scale: Scale, recipe: Recipe) -> dict:
    """What two results must agree in to stand in one table: scale, base model, and the words of the recipe."""
    return agreed(scale) | {"recipe": recipe.settings, "differs": recipe.differs}


def result_file(out: Path, recipe: Recipe, seed: int) -> Path:
    """Say where a result lies."""
    return out / f"{recipe.name.replace('/', '-')}-{seed}.json"


def missing_data(recipe: Recipe, scale: Scale, data: str | None, tried: dict[str, str] | None = None) -> str:
    """Say in one line which of its files a recipe lacks; nothing if all are there. The rows in the package stand in at micro alone: no paper was measured on them.

    `tried` notes what was found, so that several recipes read each data set once.
    """
    if data is None and scale.name != "micro":
        return f"{recipe.name}: expected a folder of data sets at scale {scale.name} (--data, or MINBERT_DATA for a notebook), got none; {_fetched(recipe)}"
    tried = {} if tried is None else tried
    for need in recipe.needs:
        if need not in tried:
            tried[need] = _unreadable(need, data)
        if tried[need]:
            return f"{recipe.name}: {tried[need]}"
    return ""


def _unreadable(need: str, data: str | None) -> str:
    """Say why a split cannot be read; nothing if it can."""
    try:
        load_dataset(*need.split("/"), data)
    except ValueError as error:
        return str(error)
    return ""


def _fetched(recipe: Recipe) -> str:
    """Say how to get what a recipe needs."""
    open_sets = [task for task in dict.fromkeys(need.split("/")[0] for need in recipe.needs) if task in HUB]
    return f"`minbert data {' '.join(open_sets)} --data FOLDER --download` fetches what is open" if open_sets else "minbert can download none of them"


def perform(recipe: Recipe, run: Run) -> dict:
    """Run a recipe and put its file in place when it is whole. Raises ValueError in one line if data are missing."""
    if missing := missing_data(recipe, run.scale, run.data):
        raise ValueError(missing)
    run.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(run.seed)
    start, spent = time.perf_counter(), time.process_time()
    measured = recipe.make(run)
    memory = torch.cuda.max_memory_allocated() / 2**20 if choose_device().type == "cuda" else None
    result = {"recipe": recipe.name, "seed": run.seed, "settings": settings_of(run.scale, recipe), "versions": versions(),
              "seconds": round(time.perf_counter() - start, 1), "processor_seconds": round(time.process_time() - spent, 1), "gpu_mb": memory,
              "rows": {need: rows_checksum(labelled(need, run.data)) for need in recipe.needs},
              "measured": {key: _plain(value) for key, value in measured.items()}, "curve": run.curve} | ({"texts": run.texts} if run.texts else {})
    replace_file(result_file(run.out, recipe, run.seed), lambda part: part.write_text(json.dumps(result, allow_nan=False) + "\n"))
    return result


def _plain(value):
    if isinstance(value, Answers):
        return {"dataset": value.dataset, "metric": value.metric, "answers": [round(float(x), DIGITS) for x in value.values]}
    return {"value": float(value)}


def unfinished(recipes: list[Recipe], scale: Scale, out: Path) -> list[tuple[Recipe, int]]:
    """List recipe and seed of what is not stored, seed by seed. Raises ValueError naming the file of a result with other settings."""
    todo = []
    for seed in scale.seeds:
        for recipe in (r for r in recipes if seed in r.seeds(scale)):
            file = result_file(out, recipe, seed)
            if not file.exists():
                todo.append((recipe, seed))
            elif (there := read_json(file)["settings"]) != (mine := settings_of(scale, recipe)):
                other = next(k for k in mine if there.get(k) != mine[k])
                raise ValueError(f"{file}: expected a result with {other} {mine[other]}, got {there.get(other)}: use another folder, or remove the file")
    return todo


def stored(out: Path) -> dict[str, list[dict]]:  # recipe -> its results, in the order of their seeds
    """Read every result of a folder."""
    found: dict[str, list[dict]] = {}
    for file in sorted(out.glob("*-*.json")):
        result = read_json(file)
        found.setdefault(result["recipe"], []).append(result)
    return {name: sorted(results, key=lambda r: r["seed"]) for name, results in found.items()}
