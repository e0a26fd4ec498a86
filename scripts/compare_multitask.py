"""Compare ways to train one encoder on three tasks under equal conditions.

    python scripts/compare_multitask.py --out results/comparisons/multitask

Every method is trained with the same data, as many batches of each task and the same grid of
learning rates; a contrastive stage comes on top. The rate is chosen on dev with a seed of its own,
then five other seeds are trained. During a run dev is scored every 54 steps and the best model is
kept; test is predicted with that model once. A run that is stored is skipped, so that the script
can be stopped and started again.

Each run is one Parquet file with one row for each task: method, seed, learning rate, settings,
dev curve, test predictions, seconds of processor time, versions. `--join FILE` writes all of them
into one file.
"""

import math
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from comparison import compare  # noqa: E402

from minbert.batches import pair_batches  # noqa: E402
from minbert.bregman import BregmanProximal  # noqa: E402
from minbert.contrastive import contrastive_loss  # noqa: E402
from minbert.data import load_dataset  # noqa: E402
from minbert.evaluate import metric_of  # noqa: E402
from minbert.finetune import Phase, TrainConfig, fit  # noqa: E402
from minbert.heads import MultitaskBert, default_heads, multitask_loss  # noqa: E402
from minbert.negatives import multiple_negatives_loss  # noqa: E402
from minbert.pcgrad import PCGrad  # noqa: E402
from minbert.regularized import regularized_loss  # noqa: E402
from minbert.sentence import SentenceEncoder  # noqa: E402
from minbert.simcse import ViewModel, train_views, view_batches, view_loss  # noqa: E402
from minbert.smart_penalty import SmartPenalty  # noqa: E402
from minbert.training import sum_losses  # noqa: E402

TASKS = ("sentiment", "inference", "similarity")
# a squared error has gradients ten times as large as a cross-entropy
WEIGHTS = {"similarity": 0.1}
# searched on dev for every method; the heads learn ten times as fast
RATES = (2e-4, 4e-4, 8e-4)
SEEDS = (1, 2, 3, 4, 5)
STEPS, EPOCHS = 432, 2  # optimizer steps, and passes over each train set in them
# steps between two evaluations on dev, and its examples for each task
EVERY, DEV_ROWS = 54, 500
PRETRAIN_STEPS, PRETRAIN_ROWS, PRETRAIN_RATE = 108, 32, 2e-4


@dataclass(frozen=True)
class Method:
    """What distinguishes a method from plain joint training."""

    text: str  # one line for tables
    loss: object = None  # () -> loss_fn of `fit`
    backward: object = None  # (model, seed) -> backward of `fit`
    pretrain: object = None  # (encoder, seed) -> None: trains the encoder first
    sequential: bool = False  # one task after the other
    without: str | None = None  # task that is left out


def entailed_pairs(labels: tuple[str, ...]):
    """Give the inference pairs with one of the labels, and whether each is entailed."""
    data = load_dataset("inference", "train")
    wanted = [data.classes.index(name) for name in labels]
    data = data.subset(i for i, label in enumerate(data.labels) if label in wanted)
    return data, [int(data.classes[label] == "entailment") for label in data.labels]


def train_pairs(encoder, loss, batches) -> None:
    for _ in train_views(ViewModel(encoder), batches, loss, PRETRAIN_STEPS, PRETRAIN_RATE):
        pass


def ranking(encoder, seed: int) -> None:
    """Multiple negatives ranking on premises and what they entail (Foley-Cox and Wendt, 5.3.4)."""
    data, _ = entailed_pairs(("entailment",))
    batches = pair_batches(
        [data.sentences, data.sentences2], encoder.tokenizer, batch_size=PRETRAIN_ROWS, seed=seed
    )
    train_pairs(encoder, view_loss(multiple_negatives_loss), batches)


def margin(encoder, seed: int) -> None:
    """Margin loss on entailed and contradicting pairs (Wu and Zhao, 3.2.2)."""
    data, same = entailed_pairs(("entailment", "contradiction"))
    batches = view_batches(
        [data.sentences, data.sentences2],
        encoder.tokenizer,
        PRETRAIN_ROWS,
        labels=same,
        pool=50,
        seed=seed,
    )
    train_pairs(
        encoder, lambda model, batch: contrastive_loss(*model(batch), batch.labels), batches
    )


def penalized(make):
    """Add a penalty to the loss of every task; the weight of a task scales both."""
    return lambda: regularized_loss(make(), weights=WEIGHTS)


def pooled_smart():
    return SmartPenalty(5.0, "vectors", "rescale")  # Wu and Zhao, 3.2.3


def previous_iterates():
    return BregmanProximal(1.0, "ema", switch=STEPS // 10)  # Jiang et al., section 3.2


METHODS = {
    "joint": Method("all tasks in each step"),
    "sequential": Method("one task after the other", sequential=True),
    "pcgrad": Method("joint with PCGrad", backward=lambda model, seed: PCGrad(model, seed=seed)),
    "ranking": Method("multiple negatives ranking first", pretrain=ranking),
    "margin": Method("margin loss first", pretrain=margin),
    "smart": Method("SMART on sentence embeddings, λ = 5", penalized(pooled_smart)),
    "bregman": Method("Bregman proximal point, μ = 1", penalized(previous_iterates)),
    "no-sentiment": Method("without sentiment", without="sentiment"),
    "no-inference": Method("without inference", without="inference"),
    "no-similarity": Method("without similarity", without="similarity"),
}


def phases_of(method: Method, tasks: tuple[str, ...], rate: float) -> tuple[Phase, ...]:
    """Spell out the schedule: as many batches of each task in every method."""
    if method.sequential:
        return tuple(Phase((task,), steps=STEPS, lr=rate, head_lr=10 * rate) for task in tasks)
    return (Phase(tasks, steps=STEPS, lr=rate, head_lr=10 * rate),)


def train(name: str, seed: int, rate: float, folder: Path):
    """Train once; give the best model on dev and the dev curve."""
    method = METHODS[name]
    tasks = tuple(task for task in TASKS if task != method.without)
    train_sets = {task: load_dataset(task, "train") for task in tasks}
    dev_sets = {task: load_dataset(task, "dev") for task in tasks}
    dev_sets = {
        task: data.subset(range(min(DEV_ROWS, len(data)))) for task, data in dev_sets.items()
    }
    torch.manual_seed(seed)
    encoder = SentenceEncoder.from_pretrained()
    if method.pretrain:
        method.pretrain(encoder, seed)
        torch.manual_seed(seed)
    model = MultitaskBert(encoder, default_heads(encoder.width, tasks))
    batch = {task: math.ceil(EPOCHS * len(data) / STEPS) for task, data in train_sets.items()}
    config = TrainConfig(
        tasks,
        phases=phases_of(method, tasks, rate),
        batch_size=batch,
        precision="bf16",
        seed=seed,
        eval_every=EVERY,
    )
    weights = {task: weight for task, weight in WEIGHTS.items() if task in tasks}
    loss_fn = method.loss() if method.loss else partial(multitask_loss, weights=weights)
    backward = method.backward(model, seed) if method.backward else sum_losses
    result = fit(model, train_sets, dev_sets, config, folder, loss_fn=loss_fn, backward=backward)
    curve = [(line["step"] + 1, line["dev"]) for line in result.log if "dev" in line]
    return MultitaskBert.from_pretrained(result.folder / "model"), curve, result


def score(task: str, split: str, predictions) -> float:
    data = load_dataset(task, split)
    return metric_of(data)[1](predictions, data.labels)


def train_and_predict(name: str, seed: int, rate: float) -> list[dict]:
    """Train, and predict test once; give one row for each task."""
    with tempfile.TemporaryDirectory() as folder:
        model, curve, result = train(name, seed, rate, Path(folder) / "run")
    rows = []
    for task in model.heads:
        found = model.predict(task, load_dataset(task, "test")).tolist()
        predictions = [round(x, 4) for x in found]
        rows.append(
            {
                "task": task,
                "test": score(task, "test", predictions),
                "predictions": predictions,
                "dev": [scores[task] for _, scores in curve],
                "dev_steps": [step for step, _ in curve],
                "best_step": result.best_step + 1,
                "best_dev": result.best,
            }
        )
    return rows


if __name__ == "__main__":
    compare(
        __doc__,
        train_and_predict,
        list(METHODS),
        lambda name: RATES,
        SEEDS,
        {"steps": STEPS, "weights": WEIGHTS, "precision": "bf16"},
        "results/comparisons/multitask",
    )
