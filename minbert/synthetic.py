"""Training sets whose labels come from a program: made by a grammar, read from a table, or mixed with
labels by people. Every example is marked with its source, so that no evaluation uses it.
"""

__all__ = ["grammar_dataset", "read_labelled", "mix_datasets"]

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from minbert.data import Dataset, read_table
from minbert.datasets.formats import Format, read_rows
from minbert.datasets.grammar_data import TASKS, Draws, draw_rows, sentiment_sentence


def _for_or_against(draws):
    """Draw a sentence that is not neutral: 1 if it is positive, 0 if it is negative."""
    text, opinion = sentiment_sentence(draws)
    while opinion == 0:
        text, opinion = sentiment_sentence(draws)
    return text, int(opinion > 0)


def _texts(data):
    """List every sentence of a set."""
    return [text for column in (data.sentences, data.sentences2) for text in column or ()]


def _dataset(like, texts, labels, ids, source):
    """Build a training set of the same kind as `like`, with one source for all examples."""
    first, second = (texts + [None])[:2]
    return Dataset(
        like.name,
        "train",
        like.kind,
        first,
        second,
        labels,
        ids,
        like.classes,
        like.scale,
        sources=[source] * len(first),
    )


_STEMS = {
    "sentiment": "ids-sst",
    "paraphrase": "quora",
    "similarity": "sts",
}  # kind -> what the grammar calls it


def grammar_dataset(
    like: Dataset,  # whose task to imitate: sentiment in 2 or 5 classes, paraphrase, or similarity from 0 to 5
    rows: int,  # how many to make
    seed: int = 1,  # of the grammar's draws
    exclude: Iterable[Dataset] = (),  # sets that must share no sentence with the new one: dev, test
) -> (
    Dataset
):  # split "train", every row marked "grammar of minbert.datasets.grammar_data, seed ..."
    """Make labelled rows with the grammar of `minbert.datasets.grammar_data`; sentiment is balanced over its classes.

    With 2 classes the neutral sentences are left out, and how strong an opinion is does not count.
    Raises ValueError for a task that the grammar does not know, or less than one row.
    """
    classes = (2, 5) if like.kind == "sentiment" else (2,)
    if like.kind not in _STEMS or (like.classes and len(like.classes) not in classes) or rows < 1:
        raise ValueError(
            f"expected sentiment in 2 or 5 classes, paraphrase or similarity, and at least 1 row, "
            f"got {like.kind} in {len(like.classes or ())} classes and {rows}"
        )
    draw, _, balanced = TASKS[_STEMS[like.kind]]
    if like.kind == "sentiment" and len(like.classes) == 2:
        draw, balanced = _for_or_against, 2
    taken = {text for data in exclude for text in _texts(data)}
    columns = [list(column) for column in zip(*draw_rows(draw, Draws(seed), rows, taken, balanced))]
    return _dataset(
        like,
        columns[:-1],
        columns[-1],
        [f"grammar-{seed}-{i}" for i in range(rows)],
        f"grammar of minbert.datasets.grammar_data, seed {seed}",
    )


def _form(path, like, text, label):
    """Say how the table at `path` is cut, from its header, its ending and the task."""
    dialect = "tab" if ".tsv" in Path(str(path).lower()).suffixes else "comma"
    names = tuple(name.strip() for name in read_rows(path, dialect)[0][1])
    if not {*text, label} <= {*names}:
        raise ValueError(f"{path}:1: expected columns {[*text, label]}, got {list(names)}")
    return Format(names, text, label, dialect=dialect, classes=like.classes, scale=like.scale)


def _plain(text):
    """Remove what a copy may change: case and blanks."""
    return " ".join(text.casefold().split())


def _found(data, exclude):
    """For each row, whether one of its sentences occurs in an excluded set."""
    taken = {_plain(text) for other in exclude for text in _texts(other)}
    rows = zip(*filter(None, (data.sentences, data.sentences2)))
    return [any(_plain(text) in taken for text in row) for row in rows]


def read_labelled(
    path: str | Path,  # .csv (commas) or .tsv (tabs), with CSV quoting and a header; also .gz
    like: Dataset,  # whose task the labels are for: gives kind, classes, scale, one or two sentences
    source: str,  # who made the labels: model, date, prompt
    text: tuple[str, ...]
    | None = None,  # columns; None: "sentence", or "sentence1" and "sentence2"
    label: str = "label",  # column
    exclude: Iterable[
        Dataset
    ] = (),  # sets that must share no sentence with the new one, whatever case and blanks: dev, test
) -> Dataset:  # split "train", every row marked with `source`; rows left out are in `skipped`
    """Read examples that a program has labelled.

    Raises ValueError for an empty source or another number of text columns, and naming file and line for a missing column,
    an empty sentence, or a label that the task does not have.
    """
    pair = like.sentences2 is not None
    text = text or (("sentence1", "sentence2") if pair else ("sentence",))
    if not source.strip() or len(text) != 1 + pair:
        raise ValueError(
            f"expected a source and {1 + pair} text columns, got {source!r} and {text}"
        )
    data = read_table(path, _form(path, like, text, label), like.kind, like.name)
    found = _found(data, exclude)
    kept = data.subset(i for i, out in enumerate(found) if not out)
    skipped = data.skipped + [
        (f"{path}:{line}", "occurs in an excluded set") for line, out in zip(data.ids, found) if out
    ]
    made = _dataset(
        like,
        [kept.sentences, kept.sentences2][: 1 + pair],
        kept.labels,
        [f"{Path(path).name}:{line}" for line in kept.ids],
        source,
    )
    return replace(made, skipped=skipped)


def mix_datasets(
    first: Dataset,  # its name is kept
    *others: Dataset,  # of the same kind, classes and scale
) -> Dataset:  # all rows, those of `first` first; `sources` still says who labelled which
    """Concatenate training sets of one task.

    Raises ValueError if they are not of one task, one is no training set, or one has no labels.
    """
    parts = (first, *others)
    for other in parts:
        if _task_of(other) != _task_of(first) or other.labels is None or other.split != "train":
            raise ValueError(
                f"expected labelled training sets of one task, got {first.name} {first.split} ({first.kind}) "
                f"and {other.name} {other.split} ({other.kind})"
            )
    columns = {"sentences3": None, "subsets": None}
    for name in ("sentences", "sentences2", "labels", "ids", "skipped"):
        if getattr(first, name) is not None:
            columns[name] = [x for part in parts for x in getattr(part, name)]
    columns["sources"] = [x for part in parts for x in part.sources or [None] * len(part)]
    return replace(first, **columns)


def _task_of(data):
    return data.kind, data.classes, data.scale, data.sentences2 is None, data.labels is None
