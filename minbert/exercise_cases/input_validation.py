"""Invalid input that an exercise promises to reject with a ValueError."""

import math
import warnings
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from minbert.course.check_runner import REFUSAL, Case, Trial


class Refusal(NamedTuple):
    """Wrong input that an implementation must not accept."""

    label: str  # what is wrong with it, such as "a mask that is too long"
    call: Callable[[Any], object]  # hands it to the implementation, a function or class


def refuses(
    refusal: Refusal,
    implementation,  # function or class
) -> bool:
    """Tell whether an implementation rejects invalid input with a ValueError, whatever it says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refusal.call(implementation)
    except ValueError:
        return True
    except Exception:  # noqa: BLE001 - a learner's program may raise anything
        return False
    return False


def with_refusals(
    name: str,  # of an exercise
    trial: Trial,
) -> Trial:  # the same with a case more for each refusal, below its own
    """Ask a trial's implementation for the refusals, too."""
    table = REFUSALS.get(name, ())
    if not table:
        return trial

    @wraps(trial.run)
    def run(implementation, inputs):
        if "refuse" in inputs:
            return {"refused": torch.tensor(refuses(table[inputs["refuse"]], implementation))}
        return trial.run(implementation, inputs)

    own = [Case(f"refuses {r.label}", {"refuse": i}, REFUSAL) for i, r in enumerate(table)]
    return trial._replace(run=run, cases=lambda generator: [*trial.cases(generator), *own])


# ---- Invalid input
#
# In most exercises the lines that reject invalid input are part of the stub. Where rejecting is
# part of the task, as in `training.clip`, the docstring says so. The calls are fixed, and only
# the type of the error counts. Other modules are imported inside the calls, so that a broken
# chapter does not affect the exercises of others.

REFUSALS, _R = {}, Refusal
_TWO = torch.tensor([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]])  # (2, 3), two vectors that are fine
_MASK = torch.ones(1, 4)  # one mask for two sentences: torch would use it twice

REFUSALS["attention.bias"] = (
    _R("a mask that is too long", lambda f: f(torch.ones(2, 5), torch.zeros(2, 1, 4, 3))),
    _R("one mask for two sentences", lambda f: f(_MASK, torch.zeros(2, 1, 4, 3))),
    _R("keys without the axis of heads", lambda f: f(torch.ones(2, 4), torch.zeros(2, 4, 3))),
)
REFUSALS["attention.scores"] = (
    _R(
        "queries that are wider than the keys",
        lambda f: f(torch.zeros(1, 1, 2, 4), *torch.zeros(2, 1, 1, 2, 3)),
    ),
    _R(
        "one head of keys and values for two heads of queries",
        lambda f: f(torch.zeros(1, 2, 3, 4), *torch.zeros(2, 1, 1, 3, 4)),
    ),
)


_IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
REFUSALS["sentence.mean"] = (
    _R("one mask for two sentences", lambda f: f(torch.zeros(2, 4, 3), _MASK)),
    _R("a mask of one column", lambda f: f(torch.zeros(2, 4, 3), torch.ones(2, 1))),
)


REFUSALS["training.schedule"] = (
    _R("a step of -1", lambda f: f(-1, 10)),
    _R("a run without steps", lambda f: f(0, 0)),
    _R("-1 steps of warm-up", lambda f: f(0, 10, -1)),
    _R("-1 steps of decay", lambda f: f(0, 10, 0, -1)),
)


def _labels(outputs, *settings, **labels) -> tuple[Refusal, ...]:
    """One refusal for each bad label, among good ones."""
    table = {
        "half": 0.5,
        "two": 2.0,
        "three": 3.0,
        "six": 6.0,
        "minus_one": -1.0,
        "minus_two": -2.0,
        "nan": math.nan,
    }
    words = {"nan": "NaN as a label"}
    made = [
        _R(
            words.get(name, f"a label of {table[name]:g}"),
            lambda f, bad=table[name], good=good: f(outputs, torch.tensor([good, bad]), *settings),
        )
        for name, good in labels.items()
    ]
    good = next(iter(labels.values()))
    return (
        *made,
        _R("more outputs than labels", lambda f: f(outputs, torch.tensor([good]), *settings)),
    )


REFUSALS["losses.classes"] = _labels(_TWO, half=1.0, three=1.0, minus_one=1.0, nan=1.0)
REFUSALS["losses.paraphrase"] = _labels(_TWO[:, 0], two=1.0, minus_one=1.0, nan=1.0)
REFUSALS["losses.similarity"] = _labels(_TWO[:, 0], six=1.0, minus_one=1.0, nan=1.0)
REFUSALS["losses.signs"] = (
    _R("a label of 0.5", lambda f: f(torch.tensor([1.0, 0.5]))),
    _R("a label of 2", lambda f: f(torch.tensor([1, 2]))),
    _R("labels of both kinds, 0 and -1", lambda f: f(torch.tensor([0, -1]))),
    _R("NaN as a label", lambda f: f(torch.tensor([1.0, math.nan]))),
)
REFUSALS["losses.clipped_pairs"] = _labels(_TWO[:, 0], half=1.0, two=1.0, minus_one=0.0, nan=1.0)


def _vectors(make, pair: bool = True) -> tuple[Refusal, ...]:
    """Vectors that a head must refuse."""
    tokens = _R(
        "vectors of tokens, (B, T, D)",
        lambda kind: make(kind).eval()(*[torch.zeros(2, 5, 3)] * (1 + pair)),
    )
    return (
        (tokens, _R("two vectors and one partner", lambda kind: make(kind).eval()(_TWO, _TWO[:1])))
        if pair
        else (tokens,)
    )


REFUSALS["heads.linear"] = _vectors(lambda kind: kind(3), False)
REFUSALS["heads.pair"] = REFUSALS["heads.difference"] = _vectors(lambda kind: kind(3))
REFUSALS["heads.cosine"] = _vectors(lambda kind: kind())


REFUSALS["metrics.spearman"] = (
    _R("more predictions than labels", lambda f: f([1.0, 2.0, 3.0], [1.0, 2.0])),
    _R("NaN among the predictions", lambda f: f([1.0, math.nan, 3.0], [1.0, 2.0, 3.0])),
    _R("infinity among the labels", lambda f: f([1.0, 2.0, 3.0], [1.0, math.inf, 3.0])),
)
REFUSALS["metrics.auc"] = (
    _R("more scores than labels", lambda f: f([1.0, 2.0, 3.0], [0, 1])),
    _R("a label of 2", lambda f: f([1.0, 2.0, 3.0], [0, 1, 2])),
    _R("a label of 0.5", lambda f: f([1.0, 2.0, 3.0], [0, 1, 0.5])),
    _R("NaN among the scores", lambda f: f([1.0, math.nan, 3.0], [0, 1, 1])),
)
_NAN = torch.tensor([[1.0, 2.0], [math.nan, 1.0], [0.5, 2.0]])
_CLOUD = (
    _R("NaN in a vector", lambda f: f(_NAN)),
    _R("infinity in a vector", lambda f: f(_NAN.nan_to_num(math.inf))),
    _R("vectors of tokens, (B, T, D)", lambda f: f(torch.randn(2, 3, 4))),
)
REFUSALS["geometry.mean_cosine"] = REFUSALS["geometry.isoscore"] = _CLOUD
REFUSALS["geometry.uniformity"] = (
    *_CLOUD,
    _R("t = 0", lambda f: f(_TWO, 0.0)),
    _R("t = -1", lambda f: f(_TWO, -1.0)),
)
REFUSALS["geometry.alignment"] = (
    _R("two vectors and one partner", lambda f: f(_TWO, _TWO[:1])),
    _R("NaN on the left", lambda f: f(_NAN, torch.ones(3, 2))),
    _R("NaN on the right", lambda f: f(torch.ones(3, 2), _NAN)),
)


def _clip(value):
    def call(f):
        weight = torch.nn.Parameter(torch.ones(2))
        weight.grad = torch.tensor([1.0, value])
        f({"weight": weight}, 1.0)

    return call


def _step(loss):
    def call(f):
        model = torch.nn.Linear(1, 1, bias=False)
        f(
            model,
            [None],
            lambda model, batch: {"sst": loss(model.weight.sum())},
            torch.optim.SGD(model.parameters(), 0.1),
        )

    return call


REFUSALS["training.clip"] = (
    _R("NaN in a gradient", _clip(math.nan)),
    _R("infinity in a gradient", _clip(math.inf)),
)
REFUSALS["training.step"] = (
    _R("a loss of NaN", _step(lambda w: w * math.nan)),
    _R("a finite loss whose gradient is infinite", _step(lambda w: (w - w.detach()).sqrt())),
)


def _center(mean):
    """Take a mean out of an encoder of width 3."""

    def call(f):
        from minbert.encoder import BertConfig, BertModel

        head = torch.nn.Module()
        head.transform_dense = torch.nn.Linear(3, 3)
        f(BertModel(BertConfig(5, 3, 1, 1, 4)), head, mean)

    return call


REFUSALS["center.move"] = (
    _R("a mean of two numbers for a width of three", _center(torch.ones(2))),
    _R("a mean of one number", _center(torch.ones(1))),
    _R("a row of numbers, (1, D)", _center(torch.ones(1, 3))),
    _R("NaN in the mean", _center(_TWO[0] * math.nan)),
    _R("infinity in the mean", _center(_TWO[0] * math.inf)),
)
_SPECIAL = torch.zeros(2, 3).bool()
REFUSALS["pretrain.mask"] = (
    _R("one special mask for two sentences", lambda f: f(_IDS, _SPECIAL[:1], 9, 20)),
)
_SAME = torch.tensor([1.0, 0.0])
REFUSALS["contrastive.margin"] = (
    *(
        _R(
            "NaN as a label" if math.isnan(bad) else f"a label of {bad:g}",
            lambda f, bad=bad: f(_TWO, _TWO.flip(0), torch.tensor([1.0, bad])),
        )
        for bad in (0.5, 2.0, -1.0, math.nan)
    ),
    _R("two vectors and one partner", lambda f: f(_TWO, _TWO[:1], _SAME)),
    _R("a margin of 0", lambda f: f(_TWO, _TWO.flip(0), _SAME, 0.0)),
    _R("a margin of 2.5", lambda f: f(_TWO, _TWO.flip(0), _SAME, 2.5)),
    _R("two pairs and one label", lambda f: f(_TWO, _TWO.flip(0), _SAME[:1])),
)
_VIEWS = (
    _R("two vectors and one partner", lambda f: f(_TWO, _TWO[:1])),
    _R("a temperature of 0", lambda f: f(_TWO, _TWO.flip(0), 0.0)),
    _R("a temperature of -1", lambda f: f(_TWO, _TWO.flip(0), -1.0)),
    _R("one group for two rows", lambda f: f(_TWO, _TWO.flip(0), groups=torch.tensor([1]))),
    _R(
        "a column of groups, (B, 1)",
        lambda f: f(_TWO, _TWO.flip(0), groups=torch.tensor([[1], [2]])),
    ),
)
REFUSALS["contrastive.infonce"] = (
    *_VIEWS,
    _R("three hard negatives for two rows", lambda f: f(_TWO, _TWO.flip(0), hard=torch.ones(3, 3))),
)
REFUSALS["contrastive.mirror"] = _VIEWS


def _started(part):
    """A flow or norm as if it had seen data."""
    for name, buffer in part.named_buffers():
        if name.endswith("initialized"):
            buffer.fill_(True)
    return part.eval()


def _flow(kind):
    """A flow of width 3 that has not been initialized."""
    return kind(3, depth=1)


_FOUR = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
_FRESH = "a fresh one, before `initialize`"
REFUSALS["bijections.norm"] = (
    _R(_FRESH, lambda kind: kind(3).eval()(_TWO)),
    _R("vectors of another width", lambda kind: _started(kind(3))(_TWO[:, :1])),
)
REFUSALS["bijections.unnorm"] = (
    _R(_FRESH, lambda kind: kind(3).eval().inverse(_TWO)),
    _R("vectors of another width", lambda kind: _started(kind(3)).inverse(_TWO[:, :1])),
)
REFUSALS["bijections.unshuffle"] = (
    _R("vectors of another width", lambda kind: kind(3).inverse(_FOUR)),
)
REFUSALS["bijections.linear"] = REFUSALS["bijections.shift"] = REFUSALS["bijections.affine"] = (
    _R("vectors of another width", lambda kind: kind(3)(_FOUR)),
)
REFUSALS["bijections.solve"] = REFUSALS["bijections.unaffine"] = (
    _R("vectors of another width", lambda kind: kind(3).inverse(_FOUR)),
)
REFUSALS["flow.sample"] = (
    _R(_FRESH, lambda kind: _flow(kind).eval().sample(2)),
    _R("-1 vectors", lambda kind: _started(_flow(kind)).sample(-1)),
    _R("a temperature of -1", lambda kind: _started(_flow(kind)).sample(2, temperature=-1.0)),
    _R("NaN as a temperature", lambda kind: _started(_flow(kind)).sample(2, temperature=math.nan)),
)
REFUSALS["flow.nll"] = (
    _R(_FRESH, lambda kind: _flow(kind).eval().nll(_TWO)),
    _R("an unknown unit", lambda kind: _started(_flow(kind)).nll(_TWO, "bit")),
    _R("vectors of another width", lambda kind: _started(_flow(kind)).nll(_FOUR)),
    _R("NaN in a vector", lambda kind: _started(_flow(kind)).nll(_TWO * math.nan)),
)


def _stand_in(width: int = 3):
    from minbert.exercise_cases.bertcf import _Flow

    return _Flow(width)


def _joint(views: int, **settings):
    class Model:
        flow = _stand_in().float()

        def __call__(self, batch):
            return tuple(_TWO + k for k in range(views))

    return lambda f: f(**settings)(Model(), SimpleNamespace(views=views, groups=torch.arange(2)))


_OTHER = _TWO.flip(0)
REFUSALS["flow.bertcf"] = (
    _R("a weight of -1", lambda f: f(_stand_in(), _TWO, _OTHER, _TWO, weight=-1.0)),
    _R("NaN as a weight", lambda f: f(_stand_in(), _TWO, _OTHER, _TWO, weight=math.nan)),
    _R("a temperature of 0", lambda f: f(_stand_in(), _TWO, _OTHER, _TWO, temperature=0.0)),
    _R(
        "one group for two rows",
        lambda f: f(_stand_in(), _TWO, _OTHER, _TWO, groups=torch.tensor([1])),
    ),
)
REFUSALS["bertcf.loss"] = (
    _R("a batch of three views", _joint(3)),
    _R("a weight of -1", _joint(2, weight=-1.0)),
)


def _head(name: str, *settings):
    from minbert import heads

    return getattr(heads, name)(*settings)


REFUSALS["smoothness.kl"] = (
    _R("two rows and one", lambda f: f(_TWO, _TWO[:1])),
    _R("an unknown gradient", lambda f: f(_TWO, _OTHER, "half")),
    _R("numbers without an axis of classes", lambda f: f(_TWO[0, 0], _TWO[0, 1])),
)
REFUSALS["smoothness.distance"] = (
    _R("an unknown goal", lambda f: f("sentiment")),
    _R("a head of an unknown goal", lambda f: f(SimpleNamespace(goal="sentiment"))),
)
REFUSALS["smoothness.sampled"] = (
    _R("an unknown search", lambda f: f(_head("PairLinear", 3), (_TWO, _OTHER), search="grid")),
    _R("no point", lambda f: f(_head("PairLinear", 3), (_TWO, _OTHER), points=0)),
    _R(
        "an ascent of -1 steps",
        lambda f: f(_head("PairLinear", 3), (_TWO, _OTHER), search="pgd", steps=-1),
    ),
    _R(
        "an ascent with p = 1",
        lambda f: f(_head("PairLinear", 3), (_TWO, _OTHER), p=1.0, search="pgd"),
    ),
)


REFUSALS["negatives.scores"] = (_R("an unknown score", lambda f: f(_TWO, _OTHER, "euclid")),)
REFUSALS["negatives.duplicates"] = (
    _R("one group for two rows", lambda f: f(torch.eye(2), torch.tensor([1]))),
    _R("a column of groups, (m, 1)", lambda f: f(torch.eye(2), torch.tensor([[1], [2]]))),
)
REFUSALS["negatives.loss"] = (
    _R("two anchors and one positive", lambda f: f(_TWO, _TWO[:1])),
    _R("no rows", lambda f: f(_TWO[:0], _TWO[:0])),
    _R("NaN in an anchor", lambda f: f(_TWO * math.nan, _OTHER)),
    _R("infinity in a positive", lambda f: f(_TWO, _OTHER * math.inf)),
    _R("a scale of 0", lambda f: f(_TWO, _OTHER, 0.0)),
    _R("a scale of -1", lambda f: f(_TWO, _OTHER, -1.0)),
    _R("one group for two rows", lambda f: f(_TWO, _OTHER, groups=torch.tensor([1]))),
    _R("three hard negatives for two rows", lambda f: f(_TWO, _OTHER, hard=torch.ones(3, 3))),
)
REFUSALS["negatives.clusters"] = (
    _R("more first sentences than second", lambda f: f(["a", "b"], ["a"])),
)
REFUSALS["negatives.collision"] = (
    _R("one row", lambda f: f(torch.tensor([1]))),
    _R("groups of two axes", lambda f: f(torch.tensor([[1, 2], [1, 3]]))),
)
REFUSALS["pcgrad.project"] = (
    _R("one gradient alone, (P,)", lambda f: f(_TWO[0])),
    _R("no gradient", lambda f: f(_TWO[:0])),
    _R("whole numbers", lambda f: f(torch.tensor([[1, 2], [-1, 0]]))),
    _R("an unknown reduction", lambda f: f(_TWO, reduction="max")),
    _R("NaN in a gradient", lambda f: f(_TWO * math.nan)),
    _R("infinity in a gradient", lambda f: f(_TWO * math.inf)),
)
