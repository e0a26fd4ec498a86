"""`minbert reproduce`: list the recipes, run them, and set what came out beside what was printed."""
from __future__ import annotations

__all__ = ["reproduce", "listing", "cards", "run_recipes"]

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer


def _price(recipe, scale, data: str | None) -> str:
    """Minutes and memory of one seed on a GPU, or what keeps them from being worked out."""
    from minbert.reproduce.cost import cost_of, shapes_of, work_of

    try:
        minutes, memory = cost_of(work_of(recipe, scale, data), *shapes_of(scale))
    except ValueError as error:
        return f"  cost unknown: {error}"
    return f"  {minutes:,.0f} GPU minutes, {memory:.0f} GB a seed"


def listing(recipes: list, out: Path, scale, data: str | None = None, cost: bool = False) -> str:
    """One line a recipe: its name, how many seeds are stored, where its figures stand, and on request what it costs."""
    from minbert.reproduce import result_file

    lines = []
    for recipe in recipes:
        done = sum(result_file(out, recipe, seed).exists() for seed in recipe.seeds(scale))
        places = ", ".join(dict.fromkeys(f"{c.table} {c.row}" for c in recipe.cells)) or "no published row"
        lines.append(f"{recipe.name:36} {done} of {len(recipe.seeds(scale))}  {places}{_price(recipe, scale, data) if cost else ''}")
    return "\n".join(lines)


FEW = 3   # recipes that are named: each is shown whole


def cards(recipes: list, out: Path, scale, data: str | None = None) -> str:
    """Show a few recipes whole: the line of the list with its cost, then settings, differences and figures."""
    from minbert.reproduce.card import card

    return "\n\n".join(f"{listing([recipe], out, scale, data, True)}\n{card(recipe, scale)}" for recipe in recipes)


def _one(name: str, scale, seed: int, data: str | None, out: Path, threads: int) -> str:
    """Run one recipe in a process of its own."""
    import torch

    from minbert.reproduce import RECIPES, Run, perform

    torch.set_num_threads(threads)
    result = perform(RECIPES[name], Run(scale, seed, data, out))
    return f"{name}, seed {seed}: {result['processor_seconds']:,.0f} s of processor"


def _next(todo: list, busy: set) -> tuple | None:
    """Find a job that shares no stage with a running one: recipes of a paper do, where the seed is the same."""
    return next(((recipe, seed) for recipe, seed in todo if (recipe.paper, seed) not in busy), None)


def run_recipes(recipes: list, scale, data: str | None, out: Path, jobs: int = 1, threads: int = 1) -> Iterator[tuple[str, str]]:
    """Run what is unfinished; yield ("done" or "failed", one line) as it happens. A failure stops nothing else.

    Recipes whose data are missing are reported before the first one starts, and not started.
    """
    from minbert.reproduce import missing_data, unfinished

    todo, running, tried = unfinished(recipes, scale, out), {}, {}
    missing = {name: missing_data(recipe, scale, data, tried) for name, recipe in {recipe.name: recipe for recipe, _ in todo}.items()}
    yield from (("failed", line) for line in missing.values() if line)
    todo = [(recipe, seed) for recipe, seed in todo if not missing[recipe.name]]
    while todo or running:
        while len(running) < jobs and (job := _next(todo, {(recipe.paper, seed) for recipe, seed in running.values()})):
            todo.remove(job)
            running[_started(job[0].name, scale, job[1], data, out, threads)] = job
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield _outcome(future, *running.pop(future))


def _started(*job) -> Future:
    """Start a job in a process of its own: who is killed takes no other with it. A GPU's cannot be forked."""
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    future = pool.submit(_one, *job)
    pool.shutdown(wait=False)   # once the job is done
    return future


def _outcome(future: Future, recipe, seed: int) -> tuple[str, str]:
    try:
        return "done", future.result()
    except Exception as error:
        return "failed", f"{recipe.name}, seed {seed}: {type(error).__name__}: {error}"


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Recipes, such as hu/mirror or 'li/*'; none: all. The word report: what came out beside what was printed.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the recipes and run nothing; of one to three that are named, show all settings with their sources, figures and cost.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="With --list: minutes and memory on a GPU, from the number of steps; takes seconds a recipe.")] = False,
    scale: Annotated[str, typer.Option(help="micro (a desk, the embedded model), minilm (the same, a published encoder), small, or paper.")] = "micro",
    data: Annotated[Path | None, typer.Option("--data", help="Folder of data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Where results and shared stages are kept.")] = Path("reproduced"),
    seeds: Annotated[int | None, typer.Option(min=1, help="How many; without it, those of the scale.")] = None,
    base: Annotated[str | None, typer.Option(help="Another encoder in the place of the scale's: folder or hub name.")] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Processes at once.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Of each process.")] = 1,
    store: Annotated[Path | None, typer.Option(help="With report: also write it here as JSON.")] = None,
) -> None:
    """Run published rows as recipes; what is stored is not run again."""
    from minbert.engine.files import write_json
    from minbert.reproduce import SCALES, as_json, chosen, make_report, markdown

    if scale not in SCALES:
        raise ValueError(f"expected a scale among {', '.join(SCALES)}, got {scale!r}")
    size = SCALES[scale]
    size = replace(size, base=base or size.base, seeds=tuple(range(1, seeds + 1)) if seeds else size.seeds)
    folder = out / scale
    if names == ["report"]:
        if not any(folder.glob("*-*.json")):   # a report of nothing, stored, would replace one of something
            raise ValueError(f"{folder}: expected results that `minbert reproduce --scale {scale} --out {out}` stored, found none")
        record = as_json(make_report(folder, data and str(data)), scale)
        typer.echo(markdown(record))
        if store:
            write_json(store, record)
        return
    recipes = chosen(names or [], scale)
    if show and names and len(recipes) <= FEW:
        typer.echo(cards(recipes, folder, size, data and str(data)))
        return
    if show:
        typer.echo(listing(recipes, folder, size, data and str(data), cost))
        return
    failed = stored = 0
    for state, line in run_recipes(recipes, size, data and str(data), folder, jobs, threads):
        failed, stored = failed + (state == "failed"), stored + (state == "done")
        typer.echo(line, err=state == "failed")
    if failed:
        typer.echo(f"{failed} of the recipes failed" + (f"; the others are stored in {folder}" if stored else ""), err=True)
        raise typer.Exit(1)
