"""One run of a recipe at a scale with a seed: its data, its stages, and what it records."""

from __future__ import annotations

__all__ = [
    "EVERY",
    "LOOK",
    "SEARCH_SEED",
    "Answers",
    "Work",
    "Run",
    "labelled",
    "look_every",
    "searched_rate",
]

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from ..core.checkpoint import replace_file
from ..core.dropout import set_dropout
from ..core.files import read_json
from ..core.locks import LockTimeout, file_lock
from ..core.module_io import load_module, save_module
from ..data import Dataset, load_dataset
from ..encoding.run_fingerprint import rows_checksum
from ..flow import Flow
from ..heads import MultitaskBert
from ..sampling import seeded
from ..sentence import SentenceEncoder
from .scale import RATES, Scale, agreed

EVERY = 10  # steps between two points of a curve
LOOK = 125  # steps between two evaluations on dev, as in SimCSE's released script
SEARCH_SEED = 0  # of the learning-rate search: none of the seeds that are reported
DIVERGED = -1.0  # score of a learning rate at which training failed


def look_every(steps: int) -> int:
    """Choose the number of steps between two evaluations on dev: 125, or a quarter of a run of
    fewer than 500.
    """
    return max(1, min(LOOK, steps // 4))


@dataclass(frozen=True)
class Answers:
    """What a model said to every row of a labelled set; the labels stay where they are."""

    dataset: str  # "sst/dev", or "quora/dev/2000": a fixed draw
    metric: str  # a key of `claims.SCORES`
    values: list  # N numbers


class Work(NamedTuple):
    """What a stage computes."""

    stage: str
    steps: int
    rows: int  # sentences a step
    tokens: int  # of a sentence, about
    backward: bool  # False: the encoder is frozen
    large: bool = False  # of the paper's second size
    passes: float = 1.0  # of the encoder, over those of a plain loss: a penalty asks for more
    held: float = 1.0  # those of them that wait for the backward pass
    parts: bool = False  # a step can be taken in parts, its gradients added up


@cache
def labelled(name: str, data: str | None) -> Dataset:  # of "sst/dev" or "quora/dev/2000"
    """Read a split, or the fixed draw from it that every run gets."""
    task, split, *most = name.split("/")
    whole = load_dataset(task, split, data)
    return whole.draw(int(most[0]), seeded("rows", task, split)) if most else whole


@dataclass
class Run:
    """What a recipe works with."""

    scale: Scale
    seed: int
    data: str | None  # folder of data sets
    out: Path  # results, and below "stages" the models that recipes share
    curve: list[dict] = field(default_factory=list)  # what was logged on the way
    watch: Callable | None = None  # (stage, step, loss): who looks on while a stage is trained
    counted: list[Work] | None = None  # a list: training is counted, not done (`cost`)
    # in which a step of fine-tuning is taken, where its loss lets it: a card with little memory
    pieces: int = 1
    keep: bool = (
        False  # also the models that no other recipe begins with: a notebook's cell wants its own
    )
    kept: list[Path] = field(
        default_factory=list
    )  # folders of the models that the recipe made or began with
    texts: dict[str, int] = field(
        default_factory=dict
    )  # text without labels -> sentences that were used
    ran: list[dict] = field(default_factory=list)  # the values with which each stage ran
    examples: dict[str, str] = field(
        default_factory=dict
    )  # rows or text that were read -> checksum

    def note(self, stage: str, **values) -> None:
        """Keep the values with which a stage ran; `Recipe.settings` has those of the paper."""
        self.ran.append({"stage": stage, **values})

    def aside(self, **changes) -> Run:
        """Copy the run with an empty record: for a stage whose record is in the result already, or
        must not be in it.
        """
        empty = {"curve": [], "ran": [], "texts": {}, "examples": {}}
        return replace(self, **(empty | changes))

    def record(self) -> dict:
        """Give what a result keeps of the run beside its measurements: curve, values that ran, and
        checksums of examples.
        """
        found = {"curve": self.curve, "ran": self.ran, "examples": self.examples}
        return found | ({"texts": self.texts} if self.texts else {})

    def read_text(self, name: str, sentences: list[str]) -> list[str]:
        """Note the checksum of sentences without labels under the name of their source, and give
        them back.
        """
        self.examples[name] = hashlib.sha256("\n".join(sentences).encode()).hexdigest()[:16]
        return sentences

    def log(self, records: Iterable, stage: str) -> None:
        """Run a training to its end, and keep every tenth loss."""
        for record in records:
            if self.watch:
                self.watch(stage, record.step, record.loss)
            if record.step % EVERY == 0:
                self.curve.append(
                    {"stage": stage, "step": record.step, "loss": round(float(record.loss), 5)}
                )

    def counts(
        self, stage: str, steps: int, rows: int, tokens: int, backward: bool = True, **more
    ) -> bool:
        """Where work is only counted, note that of a stage, and say that there is nothing to do;
        `more` are further fields of `Work`.
        """
        if self.counted is not None:
            self.counted.append(Work(stage, steps, rows, tokens, backward, **more))
        return self.counted is not None

    def base(self, pooling: str = "mean", large: bool = False) -> SentenceEncoder:
        """Load the pretrained encoder afresh, and set the seed."""
        torch.manual_seed(self.seed)
        return SentenceEncoder.from_pretrained(
            self.scale.large if large else self.scale.base, pooling=pooling
        )

    def noisy(self, encoder: SentenceEncoder, dropout: float | None = None) -> SentenceEncoder:
        """Give the layers of an encoder a dropout: that of the scale, or another."""
        dropout = self.scale.view_dropout if dropout is None else dropout
        if dropout is not None:
            set_dropout(encoder, dropout)
        return encoder

    def part(self, task: str, split: str) -> str:
        """Name the rows of a split that this scale uses."""
        most = self.scale.most_train if split == "train" else self.scale.most_dev
        return (
            f"{task}/{split}"
            if most is None or most >= len(labelled(f"{task}/{split}", self.data))
            else f"{task}/{split}/{most}"
        )

    def dataset(self, task: str, split: str) -> Dataset:
        """Read these rows, under the name of their task, and note their checksum."""
        name = self.part(task, split)
        data = labelled(name, self.data)
        if name not in self.examples:
            self.examples[name] = rows_checksum(data)
        return data

    def encoder(self, name: str, make: Callable[[], SentenceEncoder]) -> SentenceEncoder:
        """Train an encoder once for all recipes that begin with it."""
        return self._stage(name, make, SentenceEncoder.from_pretrained)

    def model(self, name: str, make: Callable[[], MultitaskBert]) -> MultitaskBert:
        """Train a model with heads once for all recipes that begin with it."""
        return self._stage(name, make, MultitaskBert.from_pretrained)

    def own(self, name: str, make: Callable[[], MultitaskBert]) -> MultitaskBert:
        """Train a model with which no other recipe begins. It is kept where somebody asked for
        that.
        """
        return self.model(name, make) if self.keep else make()

    def own_flow(self, name: str, make: Callable[[], Flow]) -> Flow:
        """The same for a flow alone, whose encoder is as it was published."""
        return self._stage(name, make, load_module, save_module) if self.keep else make()

    def _stage(self, name, make, load, save=lambda made, folder: made.save_pretrained(folder)):
        folder = self.out / "stages" / f"{name.replace('/', '-')}-{self.seed}"
        note = folder / "stage.json"  # written last: a folder without it is a torso
        if self.counted is not None:
            return self._count_stage(make, note)
        if note.exists():
            self._take_record(note)
        else:
            curve, ran = len(self.curve), len(self.ran)
            made = make()
            folder.mkdir(parents=True, exist_ok=True)
            save(made, folder)
            kept = {
                "settings": agreed(self.scale),
                **self.record(),
                "curve": self.curve[curve:],
                "ran": self.ran[ran:],
            }
            replace_file(note, lambda part: part.write_text(json.dumps(kept) + "\n"))
        self.kept.append(folder)
        torch.manual_seed(self.seed)
        return load(folder)

    def _count_stage(self, make, note):
        """Count the work of a stage; one that is stored asks for none."""
        before = len(self.counted)
        made = make()
        if note.exists():
            del self.counted[before:]
        return made

    def _take_record(self, note: Path) -> None:
        """Add the record of a stored stage. Raises ValueError for one of other settings, or of a
        version that kept fewer values.
        """
        there, mine = read_json(note), agreed(self.scale)
        if there.get("settings") != mine or "ran" not in there:
            got = there.get("settings") if "ran" in there else "one without the values that ran"
            raise ValueError(
                f"{note.parent}: expected a stage with {mine}, got {got}: use another folder, or remove this one"
            )
        self.curve += there["curve"]
        self.ran += there["ran"]
        self.texts |= there.get("texts", {})
        self.examples |= there["examples"]


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Wait until no other process holds a lock on the file, and hold it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(file_lock(file, f"{file}: expected no other search"))
                break
            except LockTimeout:
                time.sleep(0.5)
        yield


def searched_rate(
    run: Run,
    stage: str,  # what is trained, such as "hu/mirror-5"
    # (Run) -> (learning rate) -> None: trains the stage, whose last note has the "dev" scores
    prepare: Callable,
    paper: float,  # learning rate in print
) -> float:
    """Choose the learning rate of a stage: at the scale of the papers theirs, elsewhere that of
    `RATES` with the best score on dev.

    The search trains with a seed that is not reported, once for all seeds; every value and its
    score go into the result, and so does the error of a rate at which training failed. Raises
    ValueError if it failed at every rate.
    """
    if run.scale.printed:
        return paper
    file = run.out / "stages" / f"search-{stage.replace('/', '-')}.json"
    if run.counted is not None:
        return RATES[0] if file.exists() else _search(run, stage, prepare)["rate"]
    with _alone(file.with_suffix(".lock")):
        if not file.exists():
            found = {"settings": agreed(run.scale), **_search(run, stage, prepare)}
            replace_file(file, lambda part: part.write_text(json.dumps(found) + "\n"))
    found = read_json(file)
    if found.pop("settings") != (mine := agreed(run.scale)):
        raise ValueError(
            f"{file}: expected a search with {mine}, got another: use another folder, or remove this file"
        )
    run.note(f"{stage}: learning-rate search", **found)
    return found["rate"]


def _search(run: Run, stage: str, prepare: Callable) -> dict:
    """Train with every rate of the grid, and keep the best score on dev of each.

    A rate at which training diverges has the score -1, the lowest correlation.
    """
    trial, scores, failed = run.aside(seed=SEARCH_SEED, kept=[]), [], {}
    train = prepare(trial)
    for rate in RATES:
        torch.manual_seed(SEARCH_SEED)
        try:
            train(rate)
            scores.append(0.0 if run.counted is not None else max(trial.ran[-1]["dev"]))
        except ValueError as error:  # NotFinite is one, and so is the Spearman correlation of NaN
            scores.append(DIVERGED)
            failed[f"{rate:g}"] = str(error)
    if len(failed) == len(RATES):
        raise ValueError(
            f"{stage}: expected a learning rate at which training succeeds, but all "
            f"{len(RATES)} failed; at {rate:g}: {failed[f'{rate:g}']}"
        )
    found = {
        "seed": SEARCH_SEED,
        "rates": list(RATES),
        "dev": scores,
        "rate": RATES[scores.index(max(scores))],
    }
    return found | ({"failed": failed} if failed else {})
