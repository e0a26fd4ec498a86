"""Hyperparameter sweeps: one training run for each setting, one row for each run in sweep.csv, and
a plot of the scores.

The whole table is written anew after each run and replaced in one step, so that an interruption
loses at most the run at hand, which itself resumes from its checkpoint. A diverged run is a result
as well: its row says at which step.
"""

__all__ = ["GRIDS", "grid", "read_sweep", "sweep", "sweep_curve"]

import csv
import io
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from pathlib import Path

from ..core.checkpoint import replace_file
from ..core.dropout import set_dropout
from ..core.files import quoted, read_json, write_json
from ..core.finite_checks import NotFinite
from ..core.locks import LockTimeout, file_lock
from ..core.run_dir import read_log
from ..data import Dataset
from ..datasets.formats import read_rows
from ..finetune import TrainConfig, fit
from ..heads import MultitaskBert

GRIDS = {  # where no source is given, the values are ours
    # Foley-Cox and Wendt (CS224N report), section 5.3.1
    "lr": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    # they swept it, section 5.3.2, and print no values
    "weight_decay": (0.0, 0.001, 0.01, 0.1, 1.0),
    # before the heads; steps of Dao, Mehta and Tian, section 4.3
    "dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "encoder_dropout": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
}


def grid(
    **values: Iterable,  # name -> values to try
) -> list[dict]:  # every combination, the last name fastest
    """List all settings of a sweep.

    Raises ValueError if there is nothing to try.
    """
    settings = [
        dict(zip(values, combination)) for combination in product(*map(list, values.values()))
    ]
    if not values or not settings:
        raise ValueError(f"expected at least one value for each name, got {values}")
    return settings


def read_sweep(
    file: str | Path,  # sweep.csv
    columns: Sequence[str] | None = None,  # all that there should be; None: any, "seed" among them
    # one a run; numbers, and the note as text; none if there is no file
) -> list[dict]:
    """Read the rows of a sweep.

    Raises ValueError naming file and line for other columns, and for a row that does not fit them.
    """
    file = Path(file)
    if not os.path.lexists(file):
        return []
    (first, header), *rows = read_rows(file, "comma")
    _check_header(f"{file}:{first}", header, columns)
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{file}:{line}: expected {len(header)} cells under {quoted(header)}, got {len(row)}"
            )
    return [
        {
            name: cell if name == "note" else _number(cell, f"{file}:{line}")
            for name, cell in zip(header, row)
        }
        for line, row in rows
    ]


def _check_header(where, header, columns):
    """Find the first column that is missing, comes twice, or is not known."""
    for name in columns or ["seed"]:
        if name not in header:
            raise ValueError(
                f"{where}: expected the column {name!r} in a sweep, got {quoted(header)}"
            )
    for i, name in enumerate(header):
        if name in header[:i] or columns and name not in columns:
            raise ValueError(
                f"{where}: expected the columns {quoted(columns or header[:i])}, each once, got {quoted(name)} in addition"
            )


def _number(text, where):
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise ValueError(f"{where}: expected a number, got {quoted(text)}") from None


def _write_sweep(file, rows):
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(file, lambda part: part.write_text(stream.getvalue(), encoding="utf8"))


def _check_same(folder, common):
    """Write what all runs share, or compare it with what is there."""
    file, mine = Path(folder) / "sweep.json", json.loads(json.dumps(common))
    if os.path.lexists(file):
        theirs = read_json(file)
        for name in {**mine, **theirs}:
            if mine.get(name) != theirs.get(name):
                raise ValueError(
                    f"{file}: expected a sweep with {name}={quoted(mine.get(name))}, got one with {quoted(theirs.get(name))}: "
                    "use another folder"
                )
    else:
        replace_file(file, lambda part: write_json(part, mine))


def _configure(config, setting, seed):
    """Split a setting into a run's config and its dropouts."""
    known = {field.name for field in fields(TrainConfig)}
    unknown = [
        name
        for name in setting
        if name not in known | {"dropout", "encoder_dropout"} or name == "seed"
    ]
    if unknown or (config.phases and "lr" in setting):
        raise ValueError(
            f"expected settings of TrainConfig, dropout or encoder_dropout, and no lr beside phases, got {sorted(setting)}"
        )
    kept = {name: value for name, value in setting.items() if name in known}
    return replace(config, seed=seed, **kept), (
        setting.get("dropout"),
        setting.get("encoder_dropout"),
    )


def _check_settings(settings, seeds, config):
    """Find what would fail after hours: a name, a value that is no number, a dropout of 1 or more,
    settings of different names.
    """
    for setting in settings:
        odd = {
            name: v
            for name, v in setting.items()
            if isinstance(v, bool) or not isinstance(v, (int, float))
        }
        if odd or set(setting) != set(settings[0]):
            raise ValueError(
                f"expected numbers, and the same names in each setting, got {setting} beside {settings[0]}"
            )
        shares = _configure(config, setting, seeds[0])[1]
        if wrong := [share for share in shares if share is not None and not 0 <= share < 1]:
            raise ValueError(f"expected a dropout in [0, 1), got {wrong[0]}")
    if not settings or os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError(
            f"expected at least one setting, and one process, got {len(settings)} settings "
            f"and {os.environ.get('WORLD_SIZE', '1')} processes"
        )


def sweep(
    build: Callable[[], MultitaskBert],  # makes a fresh model; the seed is set before
    train_sets: dict[str, Dataset],  # task -> train split
    dev_sets: dict[str, Dataset],  # task -> dev split
    # of `grid`; names of TrainConfig's fields, "dropout", "encoder_dropout"
    settings: Sequence[dict],
    config: TrainConfig | None = None,  # what the settings leave alone
    seeds: Sequence[int] = (11711,),  # each setting once a seed
    # where sweep.csv lives; rows that are there are not run again
    folder: str | Path = "sweep",
    progress: bool = False,  # draw a bar for each run
    about: dict | None = None,  # what else makes two sweeps different: the model, the data
    # the row of each run, those found in the file too, in order
) -> Iterator[dict]:
    """Train once for each setting and seed, and write one row a run; a run that was cut off goes
    on.

    The scores are those of the best model on dev, as `fit` chooses it; "trained" counts steps,
    "seconds" those since the last restart. Models are not kept. Raises ValueError for a bad
    setting, a task called as another column, a folder that holds another sweep, or several
    processes.
    """
    folder, config, settings = Path(folder), config or TrainConfig(), list(settings)
    _check_settings(settings, seeds, config)
    names = sorted(settings[0])
    columns = [*settings[0], "seed", *dev_sets, "mean", "trained", "seconds", "note"]
    if twice := [task for task in dev_sets if columns.count(task) > 1]:
        raise ValueError(
            f"expected tasks whose names are no other column of the table, got {twice[0]!r}: rename its files"
        )
    common = {
        f"{kind} rows": {task: len(d) for task, d in sets.items()}
        for kind, sets in (("train", train_sets), ("dev", dev_sets))
    }
    _check_same(
        folder,
        {
            **(about or {}),
            "settings": names,
            **common,
            **{k: v for k, v in asdict(config).items() if k not in (*names, "seed")},
        },
    )

    def read():
        return read_sweep(folder / "sweep.csv", columns)

    for setting, seed in product(settings, seeds):
        key = {**setting, "seed": seed}
        place = folder / "runs" / "-".join(f"{name}={value}" for name, value in key.items())

        def find(rows):
            return next(
                (row for row in rows if all(row[name] == value for name, value in key.items())),
                None,
            )

        row = find(read())
        if row is None:
            row = {
                **key,
                **_run_one(build, train_sets, dev_sets, config, setting, seed, place, progress),
            }
            _add_row(folder, read, row)
        shutil.rmtree(place, ignore_errors=True)
        yield row


def _add_row(folder, read, row):
    """Add a row to the table as it is now; whoever writes there at this moment is waited for."""
    while True:
        try:
            with file_lock(
                folder / ".lock", f"{folder}: expected nobody else who writes the table"
            ):
                return _write_sweep(folder / "sweep.csv", [*read(), row])
        except LockTimeout:
            time.sleep(0.05)


def _run_one(build, train_sets, dev_sets, config, setting, seed, place, progress):
    """Train one model, and give its scores; NaN and a note if it diverged."""
    import torch

    config, dropouts = _configure(config, setting, seed)
    torch.manual_seed(seed)
    model, start = build(), time.perf_counter()
    for part, share in zip((model.heads, model.encoder), dropouts):
        if share is not None:
            set_dropout(part, share)
    try:
        result = fit(model, train_sets, dev_sets, config, place, resume=True, progress=progress)
        note = ""
        log = result.log
        best = next(line for line in log if "dev" in line and line["step"] == result.best_step)
    except NotFinite as error:
        log = read_log(place)
        note = str(error)
        best = {"dev": dict.fromkeys(dev_sets, math.nan), "mean": math.nan}
    trained = sum("loss" in line for line in log)
    return {
        **best["dev"],
        "mean": best["mean"],
        "trained": trained,
        "seconds": round(time.perf_counter() - start, 1),
        "note": note,
    }


def sweep_curve(
    rows: Sequence[dict],  # of `sweep` or `read_sweep`
    name: str,  # the setting on the horizontal axis
    tasks: Sequence[str],  # columns to draw
    ax=None,  # Axes or None
):  # Axes
    """Draw the dev score of each task against one setting: mean over seeds, band from lowest to
    highest.

    Raises ValueError for a column that the rows do not have.
    """
    import numpy as np

    from minbert.core.figures import curves

    odd = next((row for row in rows if not {name, *tasks} <= set(row)), None)
    if not rows or odd:
        raise ValueError(f"expected rows with {[name, *tasks]}, got {list(odd) if odd else 'none'}")
    values = sorted({row[name] for row in rows})
    scores = {
        task: [[row[task] for row in rows if row[name] == value] for value in values]
        for task in tasks
    }
    drawn = len(ax.get_lines()) if ax is not None else 0
    ax = curves(
        {task: (values, [np.mean(s) for s in columns]) for task, columns in scores.items()},
        name,
        "score on dev",
        ax=ax,
    )
    for line, columns in zip(ax.get_lines()[drawn:], scores.values()):
        line.set_marker("o")
        ax.fill_between(
            values,
            [np.min(s) for s in columns],
            [np.max(s) for s in columns],
            color=line.get_color(),
            alpha=0.15,
            linewidth=0,
        )
    if values[0] > 0 and values[-1] / values[0] >= 50:
        ax.set_xscale("log")
    return ax
