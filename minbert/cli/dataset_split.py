"""`minbert split`: one table becomes NAME-train.csv, NAME-dev.csv and NAME-test.csv, and no
sentence is in two of them.
"""

from __future__ import annotations

__all__ = ["Labelled", "task_name", "read_labelled", "share_out", "write_splits", "counted"]

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from minbert.cli.custom_tasks import (
    answers_in,
    can_be_named,
    class_name,
    in_a_cell,
    own_tasks,
    taught_name,
)
from minbert.cli.table_reader import (
    ROLES,
    cut_table,
    finite_number,
    is_table,
    renamed,
    sentence_column,
    usual_columns,
    whole_table,
)
from minbert.core.atomic_dir import atomic_write_dir
from minbert.core.files import quoted
from minbert.data import SPLITS
from minbert.datasets.bigram_shift import DERIVED
from minbert.datasets.formats import OPEN, SOURCES, YEARS, Format, write_rows
from minbert.negatives import clusters


class Labelled(NamedTuple):
    """The rows of a table, by what a task wants of them."""

    texts: dict[str, list[str]]  # sentence; or sentence1 and sentence2
    answer: dict[str, list[str]]  # label, or score
    others: dict[str, list[str]]  # the columns that no training reads

    @property
    def groups(
        self,
        # a number a row, equal where rows share a sentence, directly or by a chain of rows
    ) -> list[int]:
        """Say which rows belong together: case and blanks do not count."""
        first, *second = self.texts.values()
        return clusters(first, *second or [first]).tolist()

    @property
    def classes(self) -> list[str]:  # a name a row; scores are all alike
        """Say what each file should have its share of."""
        return self.answer.get("label") or [""] * len(self.answer["score"])

    @property
    def contradicted(self) -> int:
        """Count the texts that have more than one answer."""
        answers: dict[tuple, set] = {}
        for *text, answer in zip(*self.texts.values(), *self.answer.values()):
            answers.setdefault(tuple(text), set()).add(answer)
        return sum(len(found) > 1 for found in answers.values())


def task_name(
    file: Path,
    # None: what the file is called, other signs than letters, digits and _ replaced
    name: str | None,
    folder: Path,  # where the task's files are going to lie
) -> str:
    """Name a task. Raises ValueError for a name that no task may have, or that one in the folder
    has.
    """
    name = name or re.sub(
        r"\W+", "_", re.sub(r"(?i)\.(parquet|(csv|tsv|jsonl)(\.gz)?)$", "", file.name)
    ).strip("_")
    if not can_be_named(name) or name in (*OPEN, *SOURCES, *YEARS, *DERIVED):
        raise ValueError(
            f"expected a task's name of letters, digits and _, none that the package or PyTorch has, got {quoted(name)}: --task gives another"
        )
    if there := own_tasks(folder).get(name):
        raise ValueError(
            f"expected a folder without files of {name}, got {quoted([path.name for path in there.values()])} in {folder}: rows of an old "
            "split and of a new one must not meet; delete them, or take another folder or --task"
        )
    return name


def read_labelled(
    file: Path,  # .csv, .tsv, .jsonl, each also as .gz; .parquet
    # the one of sentences, or the two; None: sentence (or text), or sentence1 and sentence2
    columns: list[str] | None,
    label: str | None,  # the column of classes
    score: str | None,  # the column of numbers, of pairs; both None: label, or score
) -> Labelled:
    """Read a table with sentences and their answers. Raises ValueError naming file, and line,
    column or option.
    """
    if not is_table(file):
        raise ValueError(
            f"{file}: expected a table (.csv, .tsv, .jsonl, .parquet), one column of which holds the answers"
        )
    names, rows = cut_table(file, bool(columns))
    texts = list(columns or usual_columns(file, names, "sentence1" in names))
    if not 1 <= len({*texts}) == len(texts) <= 2 or not {*texts} <= {*names}:
        raise ValueError(
            f"{file}: expected one column of sentences or two, among {quoted(names)}, got {quoted(texts)}: --columns says which"
        )
    role, answer = _answer_column(file, [name for name in names if name not in texts], label, score)
    if role == "score" and len(texts) == 1:
        raise ValueError(
            f"{file}: expected two columns of sentences where a score is learned, got {texts[0]!r} alone: --columns says which"
        )
    sentences = [sentence_column(file, rows, names, names.index(name)) for name in texts]
    cells = [(line, row[names.index(answer)]) for line, row in rows]
    answers = answers_in(file, cells, answer, role)  # refuses what could not be learned
    said = [
        taught_name(class_name(file, *cell, answer), answers)
        if role == "label"
        else f"{finite_number(file, *cell)!r}"
        for cell in cells
    ]
    others = {
        name: column for name, column in whole_table(file).items() if name not in (*texts, answer)
    }
    return Labelled(
        dict(zip(["sentence"] if len(texts) == 1 else ["sentence1", "sentence2"], sentences)),
        {role: said},
        renamed(others, ROLES),
    )


def _answer_column(file, names, label, score):
    """Find what is learned: its role, and the column that has it."""
    if label and score:
        raise ValueError(
            f"expected --label for a class or --score for a number, got both: {label} and {score}"
        )
    asked = (
        {"label": label}
        if label
        else {"score": score}
        if score
        else {name: name for name in ("label", "score") if name in names}
    )
    if len(asked) != 1 or not {*asked.values()} <= {*names}:
        raise ValueError(
            f"{file}: expected a column of classes (--label) or one of numbers (--score) among {quoted(names)}, got {quoted([*asked.values()]) if asked else 'neither'}"
        )
    return next(iter(asked.items()))


def share_out(
    groups: Sequence[int],  # (N,), rows of one number stay together
    classes: Sequence[str],  # (N,), of each a like share
    # split -> its part of the rows, between 0 and 1; what is left is train
    shares: Mapping[str, float],
    seed: int,
) -> list[str]:  # (N,), the split of each row
    """Draw the rows that are held out; of each class the larger groups are learned from, and every
    class is learned from.

    Raises ValueError for shares that leave nothing to learn from, or where a split would be empty.
    """
    if not all(0 < share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise ValueError(
            f"expected shares above 0 that leave something to learn from, got {quoted(dict(shares))}"
        )
    size, kind = Counter(groups), dict(zip(groups, classes))
    draw = torch.rand(max(groups) + 1, generator=torch.Generator().manual_seed(seed)).tolist()
    order = sorted(kind, key=lambda group: (kind[group], -size[group], draw[group]))
    place, owed = {}, dict.fromkeys(shares, 0.0)
    for group in order:
        owed = {split: rows + shares[split] * size[group] for split, rows in owed.items()}
        most = max(owed, key=owed.get)
        held = owed[most] >= size[group] / 2
        place[group] = most if held else "train"
        if held:
            owed[most] -= size[group]
    known = {name for group, name in zip(groups, classes) if place[group] == "train"}
    # a class that was held out whole
    place |= {group: "train" for group, name in zip(groups, classes) if name not in known}
    if empty := {*shares} - {*place.values()}:
        most = max(size.values())
        why = (
            f" of which {most:,} hang together by sentences they share"
            if most > 1
            else ": too few for these shares, as every class is learned from"
        )
        raise ValueError(
            f"expected rows to hold out for {' and '.join(sorted(empty))}, got {len(groups):,} rows{why}"
        )
    return [place[group] for group in groups]


def write_splits(
    rows: Labelled,
    places: Sequence[str],  # a split a row
    folder: Path,  # made if missing
    task: str,
) -> list[Path]:  # train, dev, test: those that there are
    """Write the files of a task, all of them or none, each in the order of the table. Raises
    ValueError for a train file that could not be learned from, or scores of a file that are all
    alike.
    """
    table = rows.texts | rows.answer | rows.others
    ((role, answers),) = rows.answer.items()
    for split in SPLITS if role == "score" else ("train",):
        if cells := [
            (n, cell) for n, (cell, place) in enumerate(zip(answers, places)) if place == split
        ]:
            answers_in(folder / f"{task}-{split}.csv", cells, role, role)
    form = Format(tuple(table), tuple(rows.texts), dialect="comma")
    files = {split: f"{task}-{split}.csv" for split in SPLITS if split in places}
    with atomic_write_dir(folder) as draft:
        for split, name in files.items():
            write_rows(
                draft / name,
                form,
                [
                    dict(zip(table, cells))
                    for place, *cells in zip(places, *table.values())
                    if place == split
                ],
            )
    return [folder / name for name in files.values()]


def counted(
    rows: Labelled,
    places: Sequence[str],  # a split a row
    most: int = 20,  # classes that get a line, the frequent ones
) -> str:  # Markdown
    """Say how many rows each file has, of each class."""
    splits, whole = [split for split in SPLITS if split in places], Counter(rows.classes)
    found = Counter(zip(rows.classes, places))
    named = [name for name, _ in whole.most_common(most)] if "label" in rows.answer else []
    lines = {name: [found[name, split] for split in splits] for name in named}
    if rest := len(whole) - len(named) if named else 0:
        lines[f"{rest:,} more"] = [
            sum(found[name, split] for name in whole.keys() - {*named}) for split in splits
        ]
    lines["all rows"] = [sum(place == split for place in places) for split in splits]
    cells = [
        [next(iter(rows.answer)), *splits],
        ["---"] * (1 + len(splits)),
        *([in_a_cell(name), *(f"{n:,}" for n in row)] for name, row in lines.items()),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
