"""Commands of the course: `minbert course new`, `update`, `status`, `assemble` and `strength`, and
`minbert grade`.

`status` uses the seed of `check`, so that both try the same cases. Imports stand inside the
commands, so that `minbert --help` stays quick.
"""

__all__ = ["course", "new", "update", "status", "assemble", "strength", "grade"]

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

course = typer.Typer(
    no_args_is_help=True, help="A learner's workspace, and the strength of the checks."
)


@course.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Made here; must be empty or not exist.")],
    package: Annotated[
        str | None, typer.Option(help="Name of your package; without it, made from the folder's.")
    ] = None,
) -> None:
    """Write a workspace: chapters with exercises, and a package of your own."""
    from minbert.course.workspace import new_workspace

    new_workspace(folder, package)
    typer.echo(
        f"made: {folder}\nnext: cd {shlex.quote(str(folder))}; pip install -e .; jupyter lab nbs/1_bert/01_tokens.ipynb"
    )


@course.command()
def update(
    folder: Annotated[Path, typer.Argument(help="Your workspace.")] = Path("."),
) -> None:
    """Bring the chapters of a newer release into a workspace; nothing you wrote is lost."""
    from minbert.course.workspace import workspace_of
    from minbert.course.workspace_update import update_workspace

    typer.echo(str(update_workspace(workspace_of(folder))))


@course.command()
def status(
    folder: Annotated[Path, typer.Argument(help="Your workspace, or one notebook of it.")] = Path(
        "."
    ),
    chapter: Annotated[
        str | None, typer.Option(help="Only chapters whose name holds this.")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Checks at once.")] = 2,
) -> None:
    """Print a row for each exercise: passed, failed and why, or not attempted."""
    from minbert.course.exercises import EXERCISES, in_chapter
    from minbert.course.grading import LEARNERS_SEED, own_work
    from minbert.course.grading import grade as run
    from minbert.course.reports import points_told, readable

    place, asked = own_work(folder)
    if not (only := [name for name in in_chapter(chapter) if name in asked]):
        raise ValueError(
            f"expected exercises{f' of chapter {chapter}' if chapter else ''} in {folder}, found none"
        )
    # one's own code, which has run on this machine before
    reports, _ = run(
        [place], jobs=jobs, progress=True, only=only, seed=LEARNERS_SEED, allow_weak=True
    )
    report = reports[0]
    for name, result in report.results.items():
        typer.echo(f"{name:<28}{result.status:<15}{result.points} of {EXERCISES[name].points}")
        if result.status in ("failed", "broken"):
            typer.echo("    " + readable(result.reason).replace("\n", "\n    "))
    for problem in report.problems:
        typer.echo(f"not read: {readable(problem)}", err=True)
    typer.echo(points_told(report))


@course.command()
def assemble(
    folder: Annotated[Path, typer.Argument(help="Your workspace.")] = Path("."),
    steps: Annotated[int, typer.Option(help="Optimizer steps of each of the two runs.")] = 40,
    seed: Annotated[int, typer.Option(help="The course's default.")] = 11711,
) -> None:
    """Put your passing pieces into the model, train it on the embedded data, and compare with the
    reference.
    """
    from minbert.course.integration_run import assemble as run
    from minbert.course.workspace import workspace_of

    typer.echo(str(run(workspace_of(folder), steps=steps, seed=seed)))


@course.command()
def strength(
    names: Annotated[list[str] | None, typer.Argument(help="Exercises; without it, all.")] = None,
    seeds: Annotated[list[int], typer.Option("--seeds", help="Of the cases.")] = (11711, 1, 2),
) -> None:
    """Try every known mistake and every variant on every check, print the table; exit 1 if a check
    is too weak.
    """
    from minbert.course.exercises import EXERCISES, exercise, shortfalls, strength_table
    from minbert.course.exercises import strength as measure

    rows = [measure(exercise(name), seeds) for name in names or EXERCISES]
    typer.echo(strength_table(rows))
    for row in rows:
        for trouble in row.trouble:
            typer.echo(f"{row.name}: {trouble}", err=True)
    if owed := shortfalls(rows):
        typer.echo("too weak: " + "; ".join(owed), err=True)
        raise typer.Exit(1)


def grade(
    submissions: Annotated[
        list[Path], typer.Argument(help="Folders, zips, notebooks, or a folder of them.")
    ],
    csv: Annotated[Path, typer.Option(help="The table: one row a submission.")] = Path(
        "grades.csv"
    ),
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Sandboxes at once.")] = 2,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the cases; without it, drawn anew. An interrupted batch keeps its own."
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Folder for a page a learner.")] = None,
    gradescope: Annotated[
        Path | None, typer.Option(help="Folder for Gradescope's results.json.")
    ] = None,
    chapter: Annotated[
        str | None, typer.Option(help="Only chapters whose name holds this, such as 02_attention.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Results so far, for starting again; without it, beside the table."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Limit of one answer, of the processor; who only waits has four times as long.",
        ),
    ] = 8.0,
    memory: Annotated[
        int, typer.Option(min=64, help="Limit of one answer, MB beyond torch.")
    ] = 768,
    allow_weak: Annotated[
        bool,
        typer.Option(
            "--allow-weak",
            help="Grade also where bubblewrap is missing: answers can then read and change what you can.",
        ),
    ] = False,
) -> None:
    """Grade submissions without running a notebook; an interrupted batch goes on where it stopped."""
    from minbert.course.exercises import in_chapter
    from minbert.course.grading import LEARNERS_SEED, SEED, drawn_seed, find_submissions
    from minbert.course.grading import grade as run
    from minbert.course.reports import (
        csv_table,
        record,
        refuse_to_replace,
        scores,
        write_gradescope,
        write_pages,
        write_whole,
    )
    from minbert.course.sandbox import Limits

    if seed == LEARNERS_SEED:
        raise ValueError(
            f"expected another seed than {seed}, with which learners practise, or none"
        )
    work = work or csv.with_name(csv.name + ".work")
    ours = [
        place for place in (csv, csv.with_name(csv.name + ".txt"), work, html, gradescope) if place
    ]
    refuse_to_replace(find_submissions(submissions, ours), csv, html)
    for option, place in {"--html": html, "--gradescope": gradescope, "--work": work}.items():
        # said now, not when a night of grading is over
        if place and place.exists() and not place.is_dir():
            raise ValueError(f"expected a folder for {option}, got the file {place}")
    limits = Limits(wall=4 * seconds, cpu=math.ceil(seconds), memory=memory * 2**20)
    seed = drawn_seed(work) if seed is None else seed
    reports, level = run(
        submissions,
        work,
        jobs,
        seed,
        limits,
        progress=True,
        only=in_chapter(chapter),
        ours=ours,
        allow_weak=allow_weak,
    )
    told = record(seed, level, limits)
    write_whole(csv, csv_table(reports))
    write_whole(csv.with_name(csv.name + ".txt"), told + "\n")
    typer.echo(f"{scores(reports)}\ntable: {csv}\nseed: {seed}\nheld by: {level}")
    if html:
        typer.echo(f"pages: {write_pages(reports, html, level, told)}")
    if gradescope:
        write_gradescope(reports, gradescope)
        typer.echo(f"Gradescope: {gradescope}")
    (work / SEED).unlink(missing_ok=True)  # the next batch draws another
