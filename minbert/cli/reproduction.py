"""`minbert reproduce`: list the recipes, run them, and compare the results with the published ones."""

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
    from minbert.papers.cost import cost_of, shapes_of, work_of

    try:
        minutes, memory = cost_of(work_of(recipe, scale, data), *shapes_of(scale))
    except ValueError as error:
        return f"  cost unknown: {error}"
    return f"  {minutes:,.0f} GPU minutes, {memory:.0f} GB a seed"


def listing(recipes: list, out: Path, scale, data: str | None = None, cost: bool = False) -> str:
    """Give each recipe a line: name, stored seeds, where its figures are printed, and its cost."""
    from minbert.papers.record import recorded_seeds
    from minbert.papers.results_table import result_file, stored_settings

    files = {result_file(out, recipe.name) for recipe in recipes}
    here = {key for file in files for key in stored_settings(file)}
    record, lines = recorded_seeds(scale.name), []
    for recipe in recipes:
        seeds = recipe.seeds(scale)
        done = sum((scale.name, recipe.name, seed) in here for seed in seeds)
        kept = f"{record.get(recipe.name, 0)} in the record"
        places = ", ".join(dict.fromkeys(f"{c.table} {c.row}" for c in recipe.cells))
        price = _price(recipe, scale, data) if cost else ""
        lines.append(
            f"{recipe.name:36} {done} of {len(seeds)} here, {kept}  "
            f"{places or 'no published row'}{price}"
        )
    return "\n".join(lines)


FEW = 3  # recipes that are named: each is shown whole


def cards(recipes: list, out: Path, scale, data: str | None = None) -> str:
    """Show a few recipes whole: the line of the list with its cost, then settings, differences and
    figures.
    """
    from minbert.papers.recipe_card import card

    return "\n\n".join(
        f"{listing([recipe], out, scale, data, True)}\n{card(recipe, scale)}" for recipe in recipes
    )


def _one(name: str, scale, seed: int, data: str | None, out: Path, threads: int) -> str:
    """Run one recipe in a process of its own."""
    import torch

    from minbert.papers import RECIPES, Run, perform

    torch.set_num_threads(threads)
    result = perform(RECIPES[name], Run(scale, seed, data, out))
    return f"{name}, seed {seed}: {result['processor_seconds']:,.0f} s of processor"


def _next(todo: list, busy: set) -> tuple | None:
    """Find a job that shares no stage with a running one: recipes of a paper do, where the seed is
    the same.
    """
    return next(((recipe, seed) for recipe, seed in todo if (recipe.paper, seed) not in busy), None)


def run_recipes(
    recipes: list, scale, data: str | None, out: Path, jobs: int = 1, threads: int = 1
) -> Iterator[tuple[str, str]]:
    """Run what is unfinished; yield ("done" or "failed", one line) as it happens. A failure stops
    nothing else.

    Recipes whose data are missing are reported before the first one starts, and not started.
    """
    from minbert.papers import missing_data, unfinished

    todo, running, tried = unfinished(recipes, scale, out), {}, {}
    missing = {
        name: missing_data(recipe, scale, data, tried)
        for name, recipe in {recipe.name: recipe for recipe, _ in todo}.items()
    }
    yield from (("failed", line) for line in missing.values() if line)
    todo = [(recipe, seed) for recipe, seed in todo if not missing[recipe.name]]
    while todo or running:
        while len(running) < jobs and (
            job := _next(todo, {(recipe.paper, seed) for recipe, seed in running.values()})
        ):
            todo.remove(job)
            running[_started(job[0].name, scale, job[1], data, out, threads)] = job
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield _outcome(future, *running.pop(future))


def _started(*job) -> Future:
    """Start a job in a process of its own: who is killed takes no other with it. A GPU's cannot be
    forked.
    """
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    future = pool.submit(_one, *job)
    pool.shutdown(wait=False)  # once the job is done
    return future


def _outcome(future: Future, recipe, seed: int) -> tuple[str, str]:
    try:
        return "done", future.result()
    except Exception as error:
        return "failed", f"{recipe.name}, seed {seed}: {type(error).__name__}: {error}"


def show_report(folder: Path, scale: str, data: str | None, store: Path | None) -> None:
    """Print the report on the results in a folder; where it has none, the record in the package."""
    from minbert.core.files import write_json
    from minbert.papers import markdown, totals

    record = _own_record(folder, scale, data)
    if record is None and store:  # a copy of the record would pass for a report on other results
        raise ValueError(
            f"{folder}: expected results that `minbert reproduce --scale {scale}` "
            f"stored, found none to write to {store}"
        )
    shown = record or _shipped_record(folder, scale)
    typer.echo("\n".join(["## Verdicts for each report", "", *totals(shown), "", markdown(shown)]))
    if store:
        write_json(store, record)


def show_claims(folder: Path, scale: str, data: str | None) -> None:
    """Print which headline claims replicate: the record in the package, and results of one's own."""
    from minbert.papers.headline_claims import claims_table
    from minbert.papers.record import shipped_records

    records = shipped_records()
    if own := _own_record(folder, scale, data):
        records = {f"{scale}, {folder}": own} | records
    typer.echo(claims_table(records))


def _own_record(folder: Path, scale: str, data: str | None) -> dict | None:
    """Report on the results of a scale in a folder; None if there are none."""
    from minbert.papers import as_json, make_report, stored

    return as_json(make_report(folder, data, scale), scale) if stored(folder, scale) else None


def _shipped_record(folder: Path, scale: str) -> dict:
    """Read the record of a scale, and say so. Raises ValueError for a scale without one."""
    from minbert.papers.record import shipped_records

    records = shipped_records()
    if scale not in records:
        raise ValueError(
            f"{folder}: expected results that `minbert reproduce --scale {scale}` "
            f"stored, found none; the record has {' and '.join(records)}"
        )
    typer.echo(f"{folder} holds no results: this is the record that comes with minbert.", err=True)
    return records[scale]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipes, such as hu/mirror or 'li/*'; none: all. The word report: every result beside the published one. The word claims: which published claims replicate."
        ),
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--list",
            help="List the recipes and run nothing; of one to three that are named, show all settings with their sources, figures and cost.",
        ),
    ] = False,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="With --list: minutes and memory on a GPU, from the number of steps; takes seconds a recipe.",
        ),
    ] = False,
    scale: Annotated[
        str,
        typer.Option(
            help="micro (a desk, the embedded model), minilm (the same, a published encoder), small, or paper."
        ),
    ] = "micro",
    data: Annotated[Path | None, typer.Option("--data", help="Folder of data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Where results and shared stages are kept.")] = Path(
        "reproduced"
    ),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many; without it, those of the scale.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Another encoder in the place of the scale's: folder or hub name."),
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Processes at once.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Of each process.")] = 1,
    store: Annotated[
        Path | None, typer.Option(help="With report: also write it here as JSON.")
    ] = None,
) -> None:
    """Run published rows as recipes; what is stored is not run again."""
    from minbert.papers import SCALES, chosen
    from minbert.papers.sizes import smaller_sets

    if scale not in SCALES:
        raise ValueError(f"expected a scale among {', '.join(SCALES)}, got {scale!r}")
    size = SCALES[scale]
    size = replace(
        size, base=base or size.base, seeds=tuple(range(1, seeds + 1)) if seeds else size.seeds
    )
    folder = out / scale
    if names == ["report"]:
        show_report(folder, scale, data and str(data), store)
        return
    if names == ["claims"]:
        show_claims(folder, scale, data and str(data))
        return
    recipes = chosen(names or [], scale)
    if show and names and len(recipes) <= FEW:
        typer.echo(cards(recipes, folder, size, data and str(data)))
        return
    if show:
        typer.echo(listing(recipes, folder, size, data and str(data), cost))
        return
    for line in smaller_sets(recipes, size, data and str(data)):
        typer.echo(f"note: {line}", err=True)
    failed = stored = 0
    for state, line in run_recipes(recipes, size, data and str(data), folder, jobs, threads):
        failed, stored = failed + (state == "failed"), stored + (state == "done")
        typer.echo(line, err=state == "failed")
    if failed:
        typer.echo(
            f"{failed} of the recipes failed"
            + (f"; the others are stored in {folder}" if stored else ""),
            err=True,
        )
        raise typer.Exit(1)
