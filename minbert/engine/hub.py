"""Public homes of datasets on the Hugging Face hub: read their rows, write them in the layout of a data folder."""
from collections.abc import Callable
from pathlib import Path

from .formats import SOURCES, STS_GOLD, STS_TEXT, YEARS, Format, write_rows

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_TEST = {"test": "test"}
HUB: dict[str, tuple[str, str | None, tuple[str, ...], dict[str, str]]] = {  # home, part, columns, split -> its name there
    "sst": ("SetFit/sst5", None, ("text", "label"), _SPLITS),
    "quora": ("nyu-mll/glue", "qqp", ("question1", "question2", "label"), {"train": "train", "dev": "validation"}),
    "stsb": ("mteb/stsbenchmark-sts", None, ("sentence1", "sentence2", "score"), _SPLITS),
    "sickr": ("mteb/sickr-sts", None, ("sentence1", "sentence2", "score"), _TEST),
    "mrpc": ("nyu-mll/glue", "mrpc", ("sentence1", "sentence2", "label"), _SPLITS),
    "qnli": ("nyu-mll/glue", "qnli", ("question", "sentence", "label"), {"train": "train", "dev": "validation"}),
    "snli": ("stanfordnlp/snli", None, ("premise", "hypothesis", "label"), _SPLITS),
    "mnli": ("nyu-mll/multi_nli", None, ("premise", "hypothesis", "label"), {"train": "train", "dev": "validation_matched"}),
    "triplets": ("sentence-transformers/all-nli", "triplet", ("anchor", "positive", "negative"), {"train": "train"}),
    "duplicates": ("sentence-transformers/quora-duplicates", "pair", ("anchor", "positive"), {"train": "train"}),
    **{name: (f"mteb/{name}-sts", None, ("sentence1", "sentence2", "score"), _TEST) for name in YEARS},
}


def hub_rows(
    home: str,                             # name of a dataset on the hub
    part: str | None,                      # of the dataset; None: it has none
    columns: tuple[str, ...],              # those to read
    split: str,                            # its name on the hub
    source: str | Path | Callable | None,  # None: the hub; a folder holding home/part/; a function like datasets.load_dataset
) -> list[list]:                           # one list a row, in the order of `columns`
    """Read one split from its home. Raises ValueError whatever goes wrong there. No code from the hub is run."""
    try:
        if callable(source):
            rows = source(home, part, split=split)
        else:
            import datasets
            where = (home, part) if source is None else (str(Path(source, home, part or "").resolve()),)
            rows = datasets.load_dataset(*where, split=split)
        return [[row[c] for c in columns] for row in rows]
    except Exception as error:  # the library raises a dozen kinds, from no network to no such file
        raise ValueError(f"{home}: expected a readable {split!r} split with columns {columns}, "
                         f"got {type(error).__name__}: {error}") from error


def write_split(
    name: str,            # a key of SOURCES or YEARS
    split: str,           # "train", "dev" or "test"
    folder: Path,         # data folder
    values: list[list],   # texts, then the label if there is one
) -> list[str]:           # relative paths of the files written
    """Write one split where, and as, the reader of a data folder looks for it. Raises ValueError for a label that the format has not, and as `write_rows`."""
    if name in YEARS:
        files = [(f"{YEARS[name]}/STS.input.all.txt", STS_TEXT, [dict(zip(STS_TEXT.text, v)) for v in values]),
                 (f"{YEARS[name]}/STS.gs.all.txt", STS_GOLD, [{"score": v[-1]} for v in values])]
    else:
        place = SOURCES[name][-1 if name == "sst" else 0]  # SST's test split has labels on the hub
        files = [(place.file(split), place.form, _table(f"{name}-{split}", place.form, values))]
    for path, form, rows in files:
        write_rows(folder / path, form, rows)
    return [path for path, _, _ in files]


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
