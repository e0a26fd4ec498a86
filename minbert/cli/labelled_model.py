"""A model with names for its outputs: classes and scales of scores, saved with the model."""

from __future__ import annotations

__all__ = [
    "OutputLabels",
    "LOW",
    "HIGH",
    "LabelledModel",
    "answer_columns",
    "with_labels",
    "write_answers",
]

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from minbert.cli.table_reader import renamed
from minbert.core.atomic_dir import atomic_write_dir
from minbert.core.files import check_fields, quoted, read_json, write_json
from minbert.core.text_windows import check_sentences
from minbert.data import Dataset
from minbert.datasets.bigram_shift import CLASSES, DERIVED
from minbert.datasets.formats import SOURCES, Format, write_rows
from minbert.encoding.multitask_folder import DESCRIPTION, write_description
from minbert.heads import MultitaskBert

LOW, HIGH = 0.0, 5.0  # grades of a similarity head
_FILE = "answers.json"


@dataclass(frozen=True)
class OutputLabels:
    """Either names of classes or the two ends of a scale. Raises ValueError for fewer than two
    names, equal ones, or a scale without length.
    """

    classes: tuple[str, ...] | None = None  # names of the classes 0, 1, ...
    scale: tuple[float, float] | None = None  # what the head calls 0, and what it calls 5

    def __post_init__(self):
        if (self.classes is None) == (self.scale is None):
            raise ValueError(f"expected classes or a scale, got {self.classes} and {self.scale}")
        if self.classes is not None and len({*self.classes}) < max(2, len(self.classes)):
            raise ValueError(f"expected two or more different classes, got {quoted(self.classes)}")
        if self.scale is not None and self.scale[0] == self.scale[1]:
            raise ValueError(
                f"expected scores that differ, got {self.scale[0]:g} in every row: nothing can be learned from them"
            )
        if self.scale is not None and not 0 < self.scale[1] - self.scale[0] < math.inf:
            raise ValueError(
                f"expected scores that differ by a finite number, got {self.scale[0]:g} to {self.scale[1]:g}"
            )

    def stretched(self, score: float) -> float:
        """Bring a score from its own scale to that of the head."""
        low, high = self.scale
        return LOW + (HIGH - LOW) * (score - low) / (high - low)

    def shrunk(self, grade: float) -> float:
        """Bring a grade of the head back to the scale of the scores."""
        low, high = self.scale
        return low + (high - low) * (grade - LOW) / (HIGH - LOW)


def _usual_answers(task: str) -> OutputLabels:  # of a task that has a home in a data folder
    """Say what the answers of a known task are called."""
    if task in DERIVED:
        return OutputLabels(CLASSES)
    form = SOURCES[task][0].form
    return OutputLabels(form.classes) if form.classes else OutputLabels(scale=(LOW, HIGH))


class LabelledModel(MultitaskBert):
    """A model that keeps what its answers are called; the folder is one that `MultitaskBert` reads,
    too.
    """

    own: dict[str, OutputLabels] = {}  # of the tasks that are nobody else's

    def answers(self, task: str) -> OutputLabels:
        """Say what the answers of a task are called. Raises ValueError for a task without a head,
        or without names.
        """
        self.head(task)
        if task not in (*self.own, *SOURCES, *DERIVED):
            raise ValueError(
                f"expected names of the answers of {task!r} in {_FILE} beside the model, found none: it was not trained by `minbert train`"
            )
        return self.own.get(task) or _usual_answers(task)

    def answer(
        self,
        task: str,  # a key of the model's heads
        sentences: list[str],  # N texts; a column of pandas does as well
        sentences2: list[str] | None = None,  # their partners, where the head wants pairs
        # "label" and its "probability", or "score"; one of each a row
    ) -> dict[str, list]:
        """Answer for text: see `answer_columns`. Raises ValueError for what is no list of texts."""
        columns = [
            None if column is None else check_sentences(column)
            for column in (sentences, sentences2)
        ]
        return answer_columns(self, task, Dataset("text", "test", "text", *columns))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write encoder, heads and names; the checksums hold for all of them."""
        with atomic_write_dir(folder) as draft:
            self._write(draft)
            if self.own:
                write_json(draft / _FILE, {task: asdict(names) for task, names in self.own.items()})
                (draft / DESCRIPTION).unlink()  # it describes all but itself
                write_description(
                    draft, list(self.heads), mode=self.mode, head_input=self.head_input
                )

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str | torch.device | None = None,
        # in eval mode
    ) -> LabelledModel:
        """Load what `save_pretrained` wrote, or a folder without names. Raises ValueError that
        names the file.
        """
        model = super().from_pretrained(folder, device)
        file = Path(folder) / _FILE
        if file.exists():
            model.own = {
                task: _parsed(task, values, file) for task, values in read_json(file).items()
            }
        return model


def _parsed(task, values, file):
    """Read the answers of one task."""
    where = f"{file}, {task}"
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected classes or a scale, got {quoted(values)}")
    check_fields(values, where, classes=(list, type(None)), scale=(list, type(None)))
    classes, scale = values["classes"], values["scale"]
    if (
        not all(isinstance(name, str) for name in classes or [])
        or scale is not None
        and not (len(scale) == 2 and all(type(x) in (int, float) for x in scale))
    ):
        raise ValueError(f"{where}: expected names of classes or two numbers, got {quoted(values)}")
    try:
        return OutputLabels(
            *(value if value is None else tuple(value) for value in (classes, scale))
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def answer_columns(
    model: LabelledModel,
    task: str,  # a key of the model's heads
    rows: Dataset,  # sentences, with partners where the head wants pairs
    progress: bool = False,  # a bar
) -> dict[str, list]:  # "label" and its "probability", or "score"; one of each a row
    """Let a model answer, in the words and on the scale that it was taught in."""
    names, outputs = model.answers(task), model.predict(task, rows, raw=True, progress=progress)
    if names.scale:
        return {
            "score": [names.shrunk(grade) for grade in model.heads[task].predict(outputs).tolist()]
        }
    best = _chances(outputs).max(-1)
    return {
        "label": [names.classes[i] for i in best.indices.tolist()],
        "probability": best.values.tolist(),
    }


def _chances(outputs: Tensor) -> Tensor:  # (N, C) logits, or (N,) those of a yes -> (N, C)
    """Turn what a head gives into probabilities."""
    # sigmoid(z) = softmax(0, z)
    logits = outputs if outputs.ndim == 2 else torch.stack([torch.zeros_like(outputs), outputs], -1)
    return logits.double().softmax(-1)


def _texts(rows):
    """Name the columns of sentences."""
    return (
        {"sentence": rows.sentences}
        if rows.sentences2 is None
        else {"sentence1": rows.sentences, "sentence2": rows.sentences2}
    )


def with_labels(
    model: LabelledModel,
    task: str,  # a key of the model's heads
    rows: Dataset,  # numbers of classes, or grades of the head; or without labels
) -> dict[str, list]:  # its columns as its file has them
    """Say the labels in the words, and on the scale, of whoever gave them."""
    names = model.answers(task)
    if rows.labels is None:
        return _texts(rows)
    if names.scale:
        return _texts(rows) | {"score": [f"{names.shrunk(grade):.6g}" for grade in rows.labels]}
    return _texts(rows) | {"label": [names.classes[label] for label in rows.labels]}


def write_answers(
    model: LabelledModel,
    task: str,  # a key of the model's heads
    rows: Dataset,  # sentences, with partners where the head wants pairs
    file: Path,  # .csv or .tsv; replaced if it is there, and left alone if anything fails
    # the columns that the rows came from, handed on; None: the sentences
    table: dict[str, list[str]] | None = None,
    progress: bool = False,  # a bar
) -> None:
    """Write row by row what a model answers, behind what the rows had. A column that is called as
    an answer is becomes `given_...`.

    Raises ValueError for another kind of file, a folder in its place, or other rows than the head
    wants, and OSError where nothing can be written: all of this before the model is asked.
    """
    if rows.sentences3 is not None:
        raise ValueError(f"expected one column of sentences or two, got three in {rows.name}")
    if file.suffix not in (".csv", ".tsv"):
        raise ValueError(f"expected a file called .csv or .tsv for the answers, got {file}")
    if file.is_dir():
        raise ValueError(f"{file}: expected a file or nothing, got a folder")
    with atomic_write_dir(file.parent):
        pass  # a folder that cannot be written in is told now, not when hours of answers are there
    answers = {
        name: [f"{x:.6g}" if isinstance(x, float) else x for x in column]
        for name, column in answer_columns(model, task, rows, progress).items()
    }
    columns = renamed(_texts(rows) if table is None else table, answers) | answers
    form = Format(
        tuple(columns), tuple(columns)[:1], dialect="comma" if file.suffix == ".csv" else "tab"
    )
    write_rows(file, form, [dict(zip(columns, row)) for row in zip(*columns.values())])
