"""Datasets of the Hugging Face hub: reading them, and writing them in the layout of a data folder."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ..core.files import quoted
from .formats import SOURCES, STS_GOLD, STS_TEXT, YEARS, Format, write_rows
from .splits import course_splits, sick_splits, with_subsets

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_TEST = {"test": "test"}
# home, part, columns, split -> its name there
HUB: dict[str, tuple[str, str | None, tuple[str, ...], dict[str, str]]] = {
    "sst": ("SetFit/sst5", None, ("text", "label"), _SPLITS),
    "sst5": ("SetFit/sst5", None, ("text", "label"), _SPLITS),
    "quora": (
        "nyu-mll/glue",
        "qqp",
        ("question1", "question2", "label"),
        {"train": "train", "dev": "validation"},
    ),
    "stsb": ("mteb/stsbenchmark-sts", None, ("sentence1", "sentence2", "score"), _SPLITS),
    # in the splits of the course
    "sts": ("mteb/stsbenchmark-sts", None, ("sentence1", "sentence2", "score"), _SPLITS),
    "sickr": ("mteb/sickr-sts", None, ("sentence1", "sentence2", "score"), _TEST),
    "mrpc": ("nyu-mll/glue", "mrpc", ("sentence1", "sentence2", "label"), _SPLITS),
    "qnli": (
        "nyu-mll/glue",
        "qnli",
        ("question", "sentence", "label"),
        {"train": "train", "dev": "validation"},
    ),
    "snli": ("stanfordnlp/snli", None, ("premise", "hypothesis", "label"), _SPLITS),
    "mnli": (
        "nyu-mll/multi_nli",
        None,
        ("premise", "hypothesis", "label"),
        {"train": "train", "dev": "validation_matched"},
    ),
    "triplets": (
        "sentence-transformers/all-nli",
        "triplet",
        ("anchor", "positive", "negative"),
        {"train": "train"},
    ),
    "duplicates": (
        "sentence-transformers/quora-duplicates",
        "pair",
        ("anchor", "positive"),
        {"train": "train"},
    ),
    **{
        name: (f"mteb/{name}-sts", None, ("sentence1", "sentence2", "score"), _TEST)
        for name in YEARS
    },
}


def hub_rows(
    home: str,  # name of a dataset on the hub
    part: str | None,  # of the dataset; None: it has none
    columns: tuple[str, ...],  # those to read
    split: str,  # its name on the hub
    # None: the hub; a folder holding home/part/; a function like datasets.load_dataset
    source: str | Path | Callable | None,
) -> list[list]:  # one list a row, in the order of `columns`
    """Read one split from its home. Raises ValueError whatever goes wrong there. No code from the
    hub is run.
    """
    try:
        if callable(source):
            rows = source(home, part, split=split)
        else:
            import datasets

            where = (
                (home, part) if source is None else (str(Path(source, home, part or "").resolve()),)
            )
            rows = datasets.load_dataset(*where, split=split)
        return [[row[c] for c in columns] for row in rows]
    except Exception as error:  # the library raises a dozen kinds, from no network to no such file
        raise ValueError(
            f"{home}: expected a readable {split!r} split with columns {columns}, "
            f"got {type(error).__name__}: {error}"
        ) from error


def published_splits(
    name: str,  # a key of HUB
    source: str | Path | Callable | None,  # as in `hub_rows`
) -> Iterator[tuple[str, list[list]]]:  # split, and its rows as `write_split` takes them
    """Read all splits of a dataset; where its home has others than the publication, cut the rows as
    published.

    The course's STS files are STS-B in other splits; SICK's home has all its pairs in one; a year
    of STS has subsets. Raises ValueError as `hub_rows`, and for rows that are not the published
    ones.
    """
    home, part, columns, splits = HUB[name]
    fetched = (
        (split, hub_rows(home, part, columns, word, source)) for split, word in splits.items()
    )
    if name not in ("sts", "sickr", *YEARS):
        yield from fetched
        return
    rows = list(chain.from_iterable(_checked_pairs(home, pairs) for _, pairs in fetched))
    try:
        if name in YEARS:
            yield "test", with_subsets(name, rows)
        else:
            yield from (course_splits if name == "sts" else sick_splits)(rows).items()
    except ValueError as error:
        raise ValueError(f"{home}: {error}") from None


def _checked_pairs(home: str, pairs: list[list]) -> list[list]:
    """Raise ValueError for a row that is not two texts and a number."""
    for i, (first, second, score) in enumerate(pairs):
        if not (
            isinstance(first, str) and isinstance(second, str) and isinstance(score, (int, float))
        ):
            raise ValueError(
                f"{home}: expected two sentences and a score at row {i}, got {quoted(pairs[i], 80)}"
            )
    return pairs


def outdated(name: str, folder: Path) -> list[Path]:
    """List what an older version downloaded and would be read beside the new files: a year of STS
    without its subsets.
    """
    files = (
        [folder / YEARS[name] / f"STS.{kind}.all.txt" for kind in ("input", "gs")]
        if name in YEARS
        else []
    )
    return [file for file in files if file.is_file()]


def write_split(
    name: str,  # a key of SOURCES or YEARS
    split: str,  # "train", "dev" or "test"
    folder: Path,  # data folder
    # texts, then the label if there is one; of "sts" index and id first, of a year the subset last
    values: list[list],
) -> list[str]:  # relative paths of the files written
    """Write one split where, and as, the reader of a data folder looks for it. Raises ValueError
    for a label that the format has not, and as `write_rows`.
    """
    if name in YEARS:
        files = _year_files(name, values)
    elif name == "sts":
        files = [_course_file(split, values)]
    else:
        place = SOURCES[name][-1 if name == "sst" else 0]  # SST's test split has labels on the hub
        files = [(place.file(split), place.form, _table(f"{name}-{split}", place.form, values))]
    for path, form, rows in files:
        write_rows(folder / path, form, rows)
    return [path for path, _, _ in files]


def _year_files(name: str, values: list[list]) -> list[tuple[str, Format, list[dict]]]:
    """Give each subset of a year its two files."""
    files = []
    for subset in dict.fromkeys(v[-1] for v in values):
        rows = [v for v in values if v[-1] == subset]
        files += [
            (
                f"{YEARS[name]}/STS.input.{subset}.txt",
                STS_TEXT,
                [dict(zip(STS_TEXT.text, v)) for v in rows],
            ),
            (f"{YEARS[name]}/STS.gs.{subset}.txt", STS_GOLD, [{"score": v[2]} for v in rows]),
        ]
    return files


def _course_file(split: str, values: list[list]) -> tuple[str, Format, list[dict]]:
    """Write the columns of the course's files; its test file has no scores."""
    place = SOURCES["sts"][0]
    form = (
        place.form
        if split != "test"
        else replace(place.form, columns=place.form.columns[:-1], label=None)
    )
    return (
        place.file(split),
        form,
        [dict(zip(place.form.columns, [*v[:4], float(v[4])])) for v in values],
    )


def _table(stem: str, form: Format, values: list[list]) -> list[dict]:
    """Name the cells of each row; give it an id where the format has one."""
    texts = len(form.text)
    keys = [*form.text, *([form.label] if form.label else [])]
    table = [dict(zip(keys, [*v[:texts], *(_word(y, form) for y in v[texts:])])) for v in values]
    for i, row in enumerate(table):
        row.update({form.id: f"{stem}-{i}"} if form.id else {})
    return table


def _word(label: int | float | None, form: Format) -> int | float | str | None:
    """Write a class as its name where the format does so; -1 means that nobody could tell."""
    if not form.words:
        return label
    if label in (-1, None):
        return "-"
    if label not in range(len(form.classes)):
        raise ValueError(f"expected a label from -1 to {len(form.classes) - 1}, got {label!r}")
    return form.classes[int(label)]
