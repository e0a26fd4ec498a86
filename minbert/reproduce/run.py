"""One recipe at one scale with one seed: what it may use, and where its stages and its result are kept."""
from __future__ import annotations

__all__ = ["EVERY", "Answers", "Work", "Run", "labelled"]

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from ..attention import set_dropout
from ..data import Dataset, load_dataset
from ..engine.checkpoint import replace_file
from ..engine.files import read_json
from ..engine.saving import load_module, save_module
from ..flow import Flow
from ..heads import MultitaskBert
from ..mixing import seeded
from ..sentence import SentenceEncoder
from .scale import Scale, agreed


EVERY = 10   # steps between two points of a curve


@dataclass(frozen=True)
class Answers:
    """What a model said to every row of a labelled set; the labels stay where they are."""

    dataset: str           # "sst/dev", or "quora/dev/2000": a fixed draw
    metric: str            # a key of `claims.SCORES`
    values: list           # N numbers


class Work(NamedTuple):
    """What a stage computes."""

    stage: str
    steps: int
    rows: int        # sentences a step
    tokens: int      # of a sentence, about
    backward: bool   # False: the encoder is frozen
    large: bool = False    # of the paper's second size
    passes: float = 1.0    # of the encoder, over those of a plain loss: a penalty asks for more
    held: float = 1.0      # those of them that wait for the backward pass
    parts: bool = False    # a step can be taken in parts, its gradients added up


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
    data: str | None       # folder of data sets
    out: Path              # results, and below "stages" the models that recipes share
    curve: list[dict] = field(default_factory=list)   # what was logged on the way
    watch: Callable | None = None    # (stage, step, loss): who looks on while a stage is trained
    counted: list[Work] | None = None   # a list: training is counted, not done (`cost`)
    pieces: int = 1                  # in which a step of fine-tuning is taken, where its loss lets it: a card with little memory
    keep: bool = False               # also the models that no other recipe begins with: a notebook's cell wants its own
    kept: list[Path] = field(default_factory=list)        # folders of the models that the recipe made or began with
    texts: dict[str, int] = field(default_factory=dict)   # text without labels -> sentences that were used

    def log(self, records: Iterable, stage: str) -> None:
        """Run a training to its end, and keep every tenth loss."""
        for record in records:
            if self.watch:
                self.watch(stage, record.step, record.loss)
            if record.step % EVERY == 0:
                self.curve.append({"stage": stage, "step": record.step, "loss": round(float(record.loss), 5)})

    def counts(self, stage: str, steps: int, rows: int, tokens: int, backward: bool = True, **more) -> bool:
        """Where work is only counted, note that of a stage, and say that there is nothing to do; `more` are further fields of `Work`."""
        if self.counted is not None:
            self.counted.append(Work(stage, steps, rows, tokens, backward, **more))
        return self.counted is not None

    def base(self, pooling: str = "mean", large: bool = False) -> SentenceEncoder:
        """Load the pretrained encoder afresh, and set the seed."""
        torch.manual_seed(self.seed)
        return SentenceEncoder.from_pretrained(self.scale.large if large else self.scale.base, pooling=pooling)

    def noisy(self, encoder: SentenceEncoder, dropout: float | None = None) -> SentenceEncoder:
        """Give an encoder the dropout of contrastive training: that of the scale, or another."""
        dropout = self.scale.view_dropout if dropout is None else dropout
        if dropout is not None:
            set_dropout(encoder, dropout)
        return encoder

    def part(self, task: str, split: str) -> str:
        """Name the rows of a split that this scale uses."""
        most = self.scale.most_train if split == "train" else self.scale.most_dev
        return f"{task}/{split}" if most is None or most >= len(labelled(f"{task}/{split}", self.data)) else f"{task}/{split}/{most}"

    def dataset(self, task: str, split: str) -> Dataset:
        """Read these rows, under the name of their task."""
        return labelled(self.part(task, split), self.data)

    def encoder(self, name: str, make: Callable[[], SentenceEncoder]) -> SentenceEncoder:
        """Train an encoder once for all recipes that begin with it."""
        return self._stage(name, make, SentenceEncoder.from_pretrained)

    def model(self, name: str, make: Callable[[], MultitaskBert]) -> MultitaskBert:
        """Train a model with heads once for all recipes that begin with it."""
        return self._stage(name, make, MultitaskBert.from_pretrained)

    def own(self, name: str, make: Callable[[], MultitaskBert]) -> MultitaskBert:
        """Train a model with which no other recipe begins. It is kept where somebody asked for that."""
        return self.model(name, make) if self.keep else make()

    def own_flow(self, name: str, make: Callable[[], Flow]) -> Flow:
        """The same for a flow alone, whose encoder is as it was published."""
        return self._stage(name, make, load_module, save_module) if self.keep else make()

    def _stage(self, name, make, load, save=lambda made, folder: made.save_pretrained(folder)):
        folder = self.out / "stages" / f"{name.replace('/', '-')}-{self.seed}"
        note = folder / "stage.json"   # written last: a folder without it is a torso
        if self.counted is not None:
            return make()
        mine = agreed(self.scale)
        if not note.exists():
            before = len(self.curve)
            made = make()
            folder.mkdir(parents=True, exist_ok=True)
            save(made, folder)
            replace_file(note, lambda part: part.write_text(json.dumps({"settings": mine, "curve": self.curve[before:], "texts": self.texts}) + "\n"))
        elif (there := read_json(note)).get("settings") != mine:
            raise ValueError(f"{folder}: expected a stage with {mine}, got {there.get('settings')}: use another folder, or remove this one")
        else:
            self.curve += there["curve"]
            self.texts |= there.get("texts", {})
        self.kept.append(folder)
        torch.manual_seed(self.seed)
        return load(folder)
