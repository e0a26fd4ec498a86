"""The Parquet files of results: one file for each report, one row for each measurement of a run.

results/recipes/README.md documents every column. Each file can be read with `pandas.read_parquet`.
"""

from __future__ import annotations

__all__ = ["SCHEMA", "result_file", "read_results", "add_results", "stored_settings"]

import json
import math
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import numpy as np

from ..core.checkpoint import replace_file
from ..core.extras import needs
from ..core.files import check_regular, parse_json

with needs("train"):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from filelock import FileLock

DIGITS = 4  # decimal places of a stored prediction
VERSIONS = ("minbert", "torch", "transformers", "python")
KEY = ("scale", "recipe", "seed")  # of one run
SCHEMA = pa.schema(
    [
        ("scale", pa.string()),
        ("recipe", pa.string()),
        ("seed", pa.int32()),
        ("deterministic", pa.bool_()),
        ("measurement", pa.string()),
        ("value", pa.float64()),
        ("metric", pa.string()),
        ("dataset", pa.string()),
        ("examples_sha256", pa.string()),
        ("predictions", pa.list_(pa.float32())),
        ("paper_settings", pa.string()),
        ("effective_settings", pa.string()),
        ("differs", pa.string()),
        ("base_model", pa.string()),
        ("device", pa.string()),
        ("hardware", pa.string()),
        *((f"{name}_version", pa.string()) for name in VERSIONS),
        ("seconds", pa.float64()),
        ("processor_seconds", pa.float64()),
        ("gpu_memory_mb", pa.float64()),
        ("data_sha256", pa.string()),
        ("texts", pa.string()),
        ("training_curve", pa.string()),
    ]
)


def result_file(out: str | Path, recipe: str) -> Path:
    """Give the file that holds the results of a recipe, which is that of its report."""
    return Path(out) / f"{recipe.partition('/')[0]}.parquet"


def _difference(found: pa.Schema) -> str:
    """Name the first column in which a file differs from a file of results."""
    for place, (mine, other) in enumerate(zip_longest(SCHEMA, found), 1):
        if mine is None or other is None or mine != other:
            return f"column {place}: expected {_column(mine)}, got {_column(other)}"
    return "expected the columns of a file of results, got others"


def _column(field: pa.Field | None) -> str:
    if field is None:
        return "no column"
    return f"{field.name!r} of type {field.type}{'' if field.nullable else ' not null'}"


def _read(file: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a file of results. Raises ValueError naming the file if it is no such file."""
    check_regular(file)
    try:
        found = pq.read_schema(file)
        if found.remove_metadata() != SCHEMA:
            raise ValueError(f"{file}: {_difference(found)}")
        return pq.read_table(file, columns=columns)
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0][:200]
        raise ValueError(f"{file}: expected a Parquet file of results, got: {message}") from None


def stored_settings(file: Path) -> dict[tuple[str, str, int], dict]:
    """Read the settings of every run in a file: (scale, recipe, seed) -> settings."""
    if not file.exists():
        return {}
    columns = [*KEY, "paper_settings", "effective_settings", "differs", "base_model"]
    return {
        tuple(row[name] for name in KEY): _settings(row, file)
        for row in _read(file, columns).to_pylist()
    }


def read_results(file: Path) -> list[dict]:
    """Read every run in a file, in the order in which the runs were stored.

    Raises ValueError naming the file if it cannot be read or a column holds something else.
    """
    runs: dict[tuple, dict] = {}
    for row in _read(file).to_pylist():
        key = tuple(row[name] for name in KEY)
        if key not in runs:
            runs[key] = _run(row, file)
        runs[key]["measured"][row["measurement"]] = _measured(row)
    return list(runs.values())


def add_results(out: str | Path, results: Iterable[dict]) -> None:
    """Add runs to the files of a folder; a run that is there with the same key is replaced.

    Each file is replaced as a whole while its lock is held. Therefore processes that store results
    side by side lose none, and a process that is killed leaves the old file.
    """
    by_file: dict[Path, list[dict]] = {}
    for result in results:
        by_file.setdefault(result_file(out, result["recipe"]), []).append(result)
    Path(out).mkdir(parents=True, exist_ok=True)
    for file, group in by_file.items():
        rows = [row for result in group for row in _rows(result)]
        with FileLock(file.with_name(f".{file.name}.lock")):
            _replace(file, rows)


def _replace(file: Path, rows: list[dict]) -> None:
    """Write the file anew: the new rows, and the old runs that they do not replace."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    if file.exists():
        old, new = _read(file), {tuple(row[name] for name in KEY) for row in rows}
        keys = zip(*(old.column(name).to_pylist() for name in KEY))
        table = pa.concat_tables([old.filter(pa.array([key not in new for key in keys])), table])
    replace_file(file, lambda part: _write(table, part))


def _write(table: pa.Table, file: Path) -> None:
    """Compress well: texts repeat from row to row, and so do ranks and classes."""
    text = [field.name for field in SCHEMA if field.type == pa.string()]
    pq.write_table(
        table.combine_chunks(),
        file,
        compression="zstd",
        compression_level=15,
        use_dictionary=[*text, "predictions.list.element"],
        dictionary_pagesize_limit=2**24,
    )


def _json(value) -> str:
    """Write JSON, which has no NaN: a loss or a dev score that is undefined is null there."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value):
    """Put None in the place of every number that is NaN or infinite."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(result: dict) -> list[dict]:
    """Turn a run into rows of the table, one for each measurement."""
    settings, versions = result["settings"], result["versions"]
    ran = {"ran": result["ran"]} if "ran" in result else {}
    common = {name: result[name] for name in (*KEY[1:], "seconds", "processor_seconds")} | {
        "scale": settings["scale"]["name"],
        "deterministic": result["deterministic"],
        "paper_settings": _json(settings["recipe"]),
        "differs": settings["differs"],
        "effective_settings": _json(settings["scale"] | ran),
        "base_model": settings["base"],
        "device": result["device"],
        "hardware": versions["hardware"],
        **{f"{name}_version": versions[name] for name in VERSIONS},
        "gpu_memory_mb": result["gpu_mb"],
        "training_curve": _json(result["curve"]),
        **{
            column: _json(result[name]) if name in result else None
            for column, name in (("data_sha256", "rows"), ("texts", "texts"))
        },
    }
    return [
        common | _measurement(result["recipe"], key, taken)
        for key, taken in result["measured"].items()
    ]


def _measurement(recipe: str, key: str, taken: dict) -> dict:
    """Turn a measurement into its columns. Raises ValueError if a prediction would lose a digit."""
    if "answers" in taken:
        exact = np.asarray(taken["answers"], float)
        if not np.array_equal(_decimals(exact.astype(np.float32)), exact):
            raise ValueError(
                f"{recipe}, {key}: expected finite predictions of {DIGITS} decimal "
                f"places that fit into float32"
            )
    return {
        "measurement": key,
        "value": taken["value"],
        "metric": taken.get("metric"),
        "dataset": taken.get("dataset"),
        "examples_sha256": taken.get("examples"),
        "predictions": taken.get("answers"),
    }


def _decimals(values) -> np.ndarray:
    """Undo the rounding to float32: stored predictions have at most four decimal places."""
    return np.round(np.asarray(values, np.float64), DIGITS)


def _measured(row: dict) -> dict:
    """Turn columns back into a measurement."""
    if row["predictions"] is None:
        return {"value": row["value"]}
    return {
        "dataset": row["dataset"],
        "metric": row["metric"],
        "value": row["value"],
        "examples": row["examples_sha256"],
        "answers": _decimals(row["predictions"]).tolist(),
    }


def _settings(row: dict, file: Path) -> dict:
    scale = parse_json(row["effective_settings"], f"{file}, effective_settings")
    scale.pop("ran", None)
    recipe = parse_json(row["paper_settings"], f"{file}, paper_settings")
    base, differs = row["base_model"], row["differs"]
    return {"scale": scale, "base": base, "recipe": recipe, "differs": differs}


def _ran(row: dict, file: Path) -> dict:
    """Read the values with which each stage ran, where the run noted them."""
    effective = parse_json(row["effective_settings"], f"{file}, effective_settings")
    return {name: effective[name] for name in ("ran",) if name in effective}


def _run(row: dict, file: Path) -> dict:
    """Turn the columns that all rows of a run share back into a result without measurements."""
    versions = {name: row[f"{name}_version"] for name in VERSIONS} | {"hardware": row["hardware"]}
    known = {
        name: parse_json(row[column], f"{file}, {column}")
        for column, name in (("data_sha256", "rows"), ("texts", "texts"))
        if row[column]
    }
    curve = parse_json(row["training_curve"], f"{file}, training_curve", list)
    return (
        {
            "recipe": row["recipe"],
            "seed": row["seed"],
            "deterministic": row["deterministic"],
            "settings": _settings(row, file),
            "versions": versions,
            "device": row["device"],
            "seconds": row["seconds"],
            "processor_seconds": row["processor_seconds"],
            "gpu_mb": row["gpu_memory_mb"],
            "measured": {},
            "curve": curve,
        }
        | known
        | _ran(row, file)
    )
