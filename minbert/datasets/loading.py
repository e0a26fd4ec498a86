"""Reading datasets by name: tables, sentence files, the STS sets of 2012 to 2016, and downloads."""

__all__ = ["read_table", "read_sentences", "available", "load_dataset", "download"]

import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from ..core.atomic_dir import atomic_write_dir
from ..core.files import quoted
from .bigram_shift import CLASSES, DERIVED, swapped_pairs
from .dataset import SPLITS, Dataset
from .formats import (
    OPEN,
    SOURCES,
    YEARS,
    Format,
    Source,
    check_header_once,
    locate_columns,
    parse_label,
    read_lines,
    read_rows,
)
from .hub_datasets import HUB, outdated, published_splits, write_split
from .manual_downloads import where_to_get
from .sts_years import places, read_subset, year_files


def _check_row(
    cells: list[str], widths: tuple[int, ...], at: dict[str, int], form: Format
) -> str | None:
    """Give the split that a row names, None if its file has no such column. Raises LookupError for a blank row, else ValueError, also for a cell too many or too few."""
    if not "".join(cells).strip():
        raise LookupError("expected a row, got separators alone")
    if len(cells) not in widths:
        raise ValueError(
            f"expected {' or '.join(map(str, widths))} cells ({form.dialect}), got {len(cells)}: {quoted(cells[0], 50)}"
        )
    word = cells[at[form.split]].strip() if form.split else None
    if form.split and word not in SPLITS:
        raise ValueError(f"expected a split of {SPLITS}, got {quoted(word)}")
    return word


def _parse_row(
    cells: list[str], at: dict[str, int], form: Format
) -> tuple[list[str], int | float | None]:
    """Return texts and label of a row. Raises LookupError for a known gap, ValueError for anything else."""
    texts = [" ".join(cells[at[name]].split("\n")).strip() for name in form.text]
    label = cells[at[form.label]].strip() if form.label in at else None
    gap = LookupError if form.lenient else ValueError
    if label == "" or (label == "-" and form.lenient):
        raise gap(f"expected a label in {form.label!r}, got nothing")
    if not all(texts):
        raise gap(f"expected text in {form.text[texts.index('')]!r}, got nothing")
    return texts, None if label is None else parse_label(label, form)


def _whole_rows(
    path: Path, rows: list, widths: tuple[int, ...], at: dict[str, int], form: Format, split: str
) -> tuple[list, list]:
    """Sort rows: (texts, label, id) of the whole ones of a split, and ("file:line", reason) of known gaps."""
    whole, skipped = [], []
    for line, cells in rows:
        try:
            named = _check_row(cells, widths, at, form)
            texts, label = _parse_row(cells, at, form)
            if named in (None, split):
                whole.append((texts, label, cells[at[form.id]] if form.id in at else str(line)))
        except LookupError as gap:
            skipped.append((f"{path}:{line}", gap.args[0]))
        except ValueError as error:
            raise ValueError(f"{path}:{line}: {error}") from None
    return whole, skipped


def read_table(
    path: str | Path,  # plain or .gz
    form: Format,  # how it is cut, and what its columns mean
    kind: str = "text",  # one of KINDS
    name: str | None = None,  # None: the file name
    split: str = "train",  # one of SPLITS; only its rows are kept where the file has a column for it
) -> Dataset:  # ids are those of the file, or line numbers
    """Read a table of sentences and labels. What a lenient `form` lets pass is listed in `skipped`.

    Raises ValueError naming file and line for a column that is missing, a row of another width, an empty sentence, or a label or split that cannot
    be; and if there is no row.
    """
    path, rows = Path(path), read_rows(path, form.dialect)
    names = [cell.strip() for cell in rows.pop(0)[1]] if form.header else list(form.columns)
    at = locate_columns(path, names, form)
    check_header_once(path, rows, names)
    whole, skipped = _whole_rows(path, rows, form.widths or (len(names),), at, form, split)
    if not whole:
        raise ValueError(
            f"{path}: expected at least one row{' of ' + split if form.split else ''}, got none ({len(skipped)} skipped)"
        )
    texts, labels, ids = map(list, zip(*whole))
    first, second, third, *_ = *map(list, zip(*texts)), None, None
    return Dataset(
        name or path.name,
        split,
        kind,
        first,
        second,
        labels if form.label in at else None,
        ids,
        form.classes,
        form.scale,
        third,
        skipped=skipped,
    )


def read_sentences(
    path: str | Path,  # one sentence a line, plain or .gz
    name: str | None = None,  # None: the file name
    split: str = "train",  # one of SPLITS
) -> Dataset:  # of kind "text"; ids are line numbers
    """Read plain sentences; blank lines (ends of articles) are listed in `skipped`. Raises ValueError as `read_lines`."""
    lines = [line.strip() for line in read_lines(path)]
    ids = [str(n) for n, line in enumerate(lines, 1) if line]
    blank = [(f"{path}:{n}", "blank line") for n, line in enumerate(lines, 1) if not line]
    return Dataset(
        name or Path(path).name,
        split,
        "text",
        [line for line in lines if line],
        ids=ids,
        skipped=blank,
    )


def _read_year(name: str, folder: Path) -> Dataset:
    """Read all subsets of a year, in alphabetical order."""
    files = year_files(name, folder)
    if not files:
        raise ValueError(
            f"{name}: expected files {folder / YEARS[name] / 'STS.input.*.txt'}, got none"
        )
    subsets = [read_subset(path) for path in files]
    pairs = [pair for found, _ in subsets for pair in found]
    skipped = [gap for _, gaps in subsets for gap in gaps]
    if not pairs:
        raise ValueError(f"{files[0].parent}: expected at least one pair with a score, got none")
    first, second, scores, ids, names = map(list, zip(*pairs))
    return Dataset(
        name, "test", "similarity", first, second, scores, ids, None, (0, 5), None, names, skipped
    )


def _homes(folder: str | Path | None) -> list[Path]:
    """List the folders that are looked through: the one that was named, or the package's two."""
    assets = Path(str(resources.files("minbert") / "assets"))
    return [Path(folder)] if folder else [assets / "sample", assets]


def _candidates(name: str, split: str, homes: list[Path]) -> list[tuple[Source, Path]]:
    """List where a split may lie, in the order in which the places are tried."""
    files = [(source, source.file(split)) for source in SOURCES.get(name, []) if source.file(split)]
    return [
        (source, place) for home in homes for source, file in files for place in places(home, file)
    ]


def available(
    folder: str | Path | None = None,  # None: the package
) -> dict[str, list[str]]:  # dataset -> the splits whose files are there
    """List the datasets of a folder without reading them."""
    homes = _homes(folder)
    found = {
        name: [
            s
            for s in SPLITS
            if any(os.path.lexists(place) for _, place in _candidates(name, s, homes))
        ]
        for name in SOURCES
    }
    found |= {name: ["test"] for name in YEARS if year_files(name, homes[0])}
    found |= {name: list(SPLITS) for name in DERIVED if found["sentences"]}
    return {name: splits for name, splits in found.items() if splits}


def _read_first(name: str, split: str, candidates: list[tuple[Source, Path]]) -> Dataset:
    """Read the first file that is there. Raises ValueError with the list of places if none is."""
    for source, place in candidates:
        # what is there and no file is an error, not a reason to try the next place
        if os.path.lexists(place):
            return read_table(place, source.form, source.kind, name, split)
    tried = ", ".join(dict.fromkeys(str(place) for _, place in candidates if place.suffix != ".gz"))
    raise ValueError(f"{name} {split}: expected one of these files (or .gz), got none: {tried}")


def _bigram_shift(split: str, folder: str | Path | None) -> Dataset:
    """Construct the task from the sentences of the folder or package: an original, then its copy with two words swapped."""
    source = load_dataset("sentences", "train", folder)
    pairs = swapped_pairs(source.sentences, split)
    if not pairs:
        raise ValueError(
            f"bigram_shift {split}: expected sentences with words to swap, got none among {len(source)}"
        )
    texts = [text for pair in pairs for text in (pair.original, pair.swapped)]
    ids = [source.ids[pair.line] + end for pair in pairs for end in ("", "-swapped")]
    return Dataset(
        "bigram_shift",
        split,
        "sentiment",
        texts,
        labels=[0, 1] * len(pairs),
        ids=ids,
        classes=CLASSES,
    )


def load_dataset(
    name: str,  # a key of SOURCES or YEARS, bigram-shift, or a sentence file inside the folder
    split: str = "train",  # one of SPLITS
    # None: the package, which has those of OPEN, and a sample of sst, quora, stsb
    folder: str | Path | None = None,
) -> Dataset:
    """Read one split of a dataset. Those of OPEN are read from the package where the folder has none.

    Raises ValueError for an unknown name or split, and lists the paths it tried if there is no file.
    """
    homes = _homes(folder) + (_homes(None) if name in OPEN and folder else [])
    if split not in SPLITS:
        raise ValueError(f"expected a split of {SPLITS}, got {split!r}")
    if name.replace("-", "_") in DERIVED:
        return _bigram_shift(split, folder)
    if name in YEARS and split == "test":
        return _read_year(name, homes[0])
    if name not in SOURCES and os.path.isfile(homes[0] / name):
        return read_sentences(homes[0] / name, name, split)
    if name not in (*SOURCES, *YEARS):
        raise ValueError(
            f"expected a dataset of {[*SOURCES, *YEARS, *DERIVED]} or a file in {homes[0]}, got {name!r}"
        )
    if not (candidates := _candidates(name, split, homes)):
        raise ValueError(f"{name}: there is no {split} split")
    return _read_first(name, split, candidates)


def download(
    name: str,  # a key of HUB
    folder: str | Path,  # data folder, made if missing
    # None: the hub; a folder with the hub's names; or a loading function
    source: str | Path | Callable | None = None,
) -> list[Path]:  # the files written; existing ones are replaced
    """Fetch every split of a dataset in its published splits and subsets, check that it can be read, and put it in place at once.

    Raises ValueError for an unknown name, no network, or rows that `load_dataset` would refuse. Then nothing is written.
    """
    if name not in HUB:
        raise ValueError(
            f"expected one of {list(HUB)}, got {name!r}"
            + (f": {hint}" if (hint := where_to_get(name)) else "")
        )
    with atomic_write_dir(folder) as draft:
        paths = []
        for split, rows in published_splits(name, source):
            paths += write_split(name, split, draft, rows)
            load_dataset(name, split, draft)
    for file in outdated(name, Path(folder)):
        file.unlink()
    return [Path(folder) / path for path in paths]
