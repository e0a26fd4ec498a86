"""Tasks of the user: NAME-train.csv and NAME-dev.csv in a data folder, with classes or scores, and
a head for each.
"""

from __future__ import annotations

__all__ = [
    "own_tasks",
    "misnamed",
    "answers_of",
    "answers_in",
    "class_name",
    "taught_name",
    "in_a_cell",
    "can_be_named",
    "load_own",
    "build_heads",
]

import re
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from minbert.cli.labelled_model import HIGH, LOW, OutputLabels
from minbert.cli.table_reader import (
    check_gaps,
    cut_table,
    finite_number,
    is_number,
    sentence_column,
    text_columns,
)
from minbert.core.files import quoted
from minbert.data import SPLITS, Dataset
from minbert.datasets.bigram_shift import DERIVED
from minbert.datasets.formats import OPEN, SOURCES, YEARS
from minbert.heads import ConcatDiff, LinearHead, LinearPlusCosine, default_heads
from minbert.losses import Head

_NAME = re.compile(r"[^\W\d]\w*")
_FILE = re.compile(rf"({_NAME.pattern})-(train|dev|test)\.(?:parquet|(?:csv|tsv|jsonl)(?:\.gz)?)")
_NUMERAL = re.compile(r"([+-]?[0-9]{1,9})(?:\.0+)?")
_WANTED = "expected columns sentence (or text) and label, or sentence1, sentence2 and label (a class) or score (a number)"


def can_be_named(task: str) -> bool:
    """Tell whether a file and a head can bear this name: PyTorch has some of its own, such as
    items.
    """
    return (
        bool(_NAME.fullmatch(task)) and task.isidentifier() and not hasattr(nn.ModuleDict(), task)
    )


def own_tasks(
    folder: Path | None,  # data folder; None: the package, which has none
) -> dict[str, dict[str, Path]]:  # task -> split -> its file
    """Find the files of tasks that have no home of their own. Raises ValueError for two files of
    one split, or a name of the open data.
    """
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()) if folder and folder.is_dir() else ():
        match = _FILE.fullmatch(path.name)
        # else the package's rows would be taken for these
        if match and match[1] in (*OPEN, *DERIVED):
            raise ValueError(
                f"{path}: expected another name than {match[1]}, which the package's own rows have: my_{path.name} would do"
            )
        if not match or match[1] in (*SOURCES, *YEARS):
            continue
        splits = found.setdefault(match[1], {})
        if match[2] in splits:
            raise ValueError(
                f"{path}: expected one file of {match[1]} {match[2]}, got {splits[match[2]].name} beside it"
            )
        splits[match[2]] = path
    return {
        task: {split: splits[split] for split in SPLITS if split in splits}
        for task, splits in found.items()
    }


def misnamed(
    folder: Path | None,  # data folder
    task: str,  # NAME in NAME-train.csv
) -> dict[Path, str]:  # file -> the name under which it would be read
    """Find files that look as if a task were meant: `tickets_train.csv`, `Tickets-dev.CSV`,
    `tickets-validation.csv`.
    """
    close = re.compile(
        rf"{re.escape(task)}[\W_]*(train|dev|val|test)[a-z]*\.(parquet|(?:csv|tsv|jsonl)(?:\.gz)?)",
        re.IGNORECASE,
    )
    # files of others have names of their own
    own = task not in (*SOURCES, *YEARS, *DERIVED) and folder and folder.is_dir()
    matches = {path: close.fullmatch(path.name) for path in sorted(folder.iterdir())} if own else {}
    wanted = {
        path: f"{task}-{match[1].lower().replace('val', 'dev')}.{match[2].lower()}"
        for path, match in matches.items()
        if match
    }
    return {path: name for path, name in wanted.items() if name != path.name}


def answers_of(
    folder: Path,  # data folder
    task: str,  # NAME in NAME-train.csv
    # names of classes, numbers in their order; or the ends of the scale: 0 and 1, 0 and 5, else the
    # lowest and highest
) -> OutputLabels:
    """Read from the train file what the answers of a task are. Raises ValueError naming the file."""
    file = own_tasks(folder).get(task, {}).get("train")
    if file is None:
        raise ValueError(
            f"{folder}: expected {task}-train.csv (or .tsv, .jsonl, .parquet), from which the answers of {task} are known, found none"
        )
    names, rows = cut_table(file)
    _, answer = _roles(file, names)
    if answer is None:
        raise ValueError(f"{file}: {_WANTED}, got {quoted(names)}")
    return answers_in(
        file, [(line, row[names.index(answer)]) for line, row in rows], answer, answer
    )


def answers_in(
    file: Path,  # for messages
    cells: list[tuple],  # (line, what stands there) of every row
    column: str,  # what it is called
    role: str,  # label or score
) -> OutputLabels:
    """Read from the rows to learn from what the answers are. Raises ValueError naming the file, and
    the line where one is to blame.
    """
    found = (
        {"scale": _scale(file, cells)}
        if role == "score"
        else {"classes": _classes(file, cells, column)}
    )
    try:
        return OutputLabels(**found)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _scale(file, cells):
    """Choose the ends of a scale."""
    scores = [finite_number(file, line, cell) for line, cell in cells]
    low, high = min(scores), max(scores)
    usual = next((end for end in (1.0, HIGH) if low >= LOW and high <= end), None)
    return (low, high) if usual is None or low == high else (LOW, usual)


def _classes(file, cells, column):
    """Collect the names of classes; most of them must come again."""
    names = {class_name(file, line, cell, column) for line, cell in cells}
    if all(map(_NUMERAL.fullmatch, names)):
        # 1.0 and 1 are one class; where others are called 1.1, they are none
        names = {*map(_whole, names)}
    if len(names) > max(2, len(cells) // 2):
        why = (
            "numbers to learn are called score, of a pair"
            if all(map(is_number, names))
            else "a class is learned from several rows"
        )
        raise ValueError(
            f"{file}: expected labels that come again, got {len(names):,} different ones in {len(cells):,} rows: {why}"
        )
    numbers = all(map(_NUMERAL.fullmatch, names))
    # the name, too: 01 and 1 are two classes, and a set has another order in every process
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


def _whole(name):
    """Write 1.0 as 1."""
    return _NUMERAL.sub(r"\1", name) if _NUMERAL.fullmatch(name) else name


def class_name(file: Path, line: int, cell, column: str = "label") -> str:
    """Take a cell as the name of a class. Raises ValueError naming file, line and column for none."""
    # pandas has floats where a cell is empty
    whole = isinstance(cell, (int, bool)) or isinstance(cell, float) and cell.is_integer()
    name = cell.strip() if isinstance(cell, str) else str(cell) if whole else ""
    if not name:
        raise ValueError(
            f"{file}:{line}: expected the name of a class in column {column!r}, got {quoted(cell)}"
        )
    return name


def taught_name(name: str, answers: OutputLabels) -> str:
    """Call a class as training calls it: where names are whole numbers, 1.0 is 1."""
    return name if name in answers.classes else _whole(name)


def in_a_cell(name: str) -> str:
    """Keep the name of a class from ending its cell of a Markdown table, or its row."""
    return " ".join(name.split()).replace("|", "\\|")


def _roles(file, names):
    """Find the columns of text and of the answer, None where a table has none."""
    texts = text_columns(names, "sentence1" in names)
    answers = [name for name in ("label", "score") if name in names]
    if not {*texts} <= {*names} or len(answers) > 1 or answers == ["score"] and len(texts) == 1:
        raise ValueError(f"{file}: {_WANTED}, got {quoted(names)}")
    return texts, answers[0] if answers else None


def load_own(
    task: str,  # NAME in NAME-train.csv
    split: str,  # train, dev or test; a test file may lack its answers
    folder: Path,  # data folder
    answers: OutputLabels | None = None,  # None: those of the train file
    # kind "sentiment" (one sentence, a class), "nli" (two, a class) or "similarity" (two, a grade
    # from 0 to 5)
) -> Dataset:
    """Read one split. Raises ValueError naming file and line for a label that the train file does
    not have, scores that are all alike, a row of empty cells in a dev or test file, and what
    `owntext` refuses.
    """
    file = own_tasks(folder).get(task, {}).get(split)
    if file is None:
        raise ValueError(
            f"{folder}: expected {task}-{split}.csv (or .tsv, .jsonl, .parquet), found none"
        )
    answers = answers or answers_of(folder, task)
    if split != "train":
        check_gaps(file)  # `evaluate --predictions` writes a row for each of these
    names, rows = cut_table(file)
    texts, answer = _roles(file, names)
    if answer != ("label" if answers.classes else "score") and (answer or split != "test"):
        raise ValueError(
            f"{file}: expected a column {'label' if answers.classes else 'score'!r}, as the train file has, got {quoted(names)}"
        )
    if answer and answers.scale:
        # no correlation with scores all alike
        answers_in(file, [(line, row[names.index(answer)]) for line, row in rows], answer, answer)
    first, second = [sentence_column(file, rows, names, names.index(name)) for name in texts] + [
        None
    ] * (2 - len(texts))
    labels = answer and [
        _label(file, line, row[names.index(answer)], answers) for line, row in rows
    ]
    kind = "similarity" if answers.scale else "nli" if second else "sentiment"
    return Dataset(
        task,
        split,
        kind,
        first,
        second,
        labels,
        [str(line) for line, _ in rows],
        answers.classes,
        (LOW, HIGH) if answers.scale else None,
    )


def _label(file, line, cell, answers):
    """Turn an answer into the number that a head learns."""
    if answers.scale:
        return answers.stretched(finite_number(file, line, cell))
    name = taught_name(class_name(file, line, cell), answers)
    if name not in answers.classes:
        raise ValueError(
            f"{file}:{line}: expected a label of the train file, {quoted(answers.classes)}, got {quoted(name)}"
        )
    return answers.classes.index(name)


def build_heads(
    width: int,  # of the sentence vectors
    train_sets: Mapping[str, Dataset],  # task -> train split
) -> dict[str, Head]:  # task -> new head
    """Give each task its usual head (chapter 11), and one of one's own that of its kind."""
    own = {
        "sentiment": lambda data: LinearHead(width, len(data.classes)),
        "nli": lambda data: ConcatDiff(width, len(data.classes), "classes"),
        "similarity": lambda data: LinearPlusCosine(width, "similarity"),
    }
    return {
        task: default_heads(width, (task,))[task] if task in SOURCES else own[data.kind](data)
        for task, data in train_sets.items()
    }
