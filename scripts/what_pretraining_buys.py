"""What did pretraining buy? Encoders after more and more tokens, on tasks with true labels, beside
a bag of words.

    python scripts/what_pretraining_buys.py 2=RUN/step-500 10=RUN/step-2500 1000=RUN/model --out FOLDER [--data DATA] [--tasks sst quora] [--jobs 14]
    python scripts/what_pretraining_buys.py --out FOLDER --table [--figure FILE.png]

Each encoder is MILLION_TOKENS=FOLDER; 0, untrained, is added: the sizes of the last, fresh weights
from every seed. Each is fine-tuned on one task at a time, probed while frozen, and asked for the
cosine of graded pairs, raw and whitened. All learn from train and answer dev. One of two rates (for
probes one of three penalties) is chosen for each encoder and task on a fifth of TRAIN, held out and
given back afterwards, because untrained weights may want another rate than pretrained ones; dev
chooses nothing. Leaves FOLDER/ENCODER-MEASURE-TASK.json with the answer to every row of dev from
every seed; what is there is not done again. Intervals are those of chapter 27, over rows and seeds
together.
"""

import argparse
import copy
import json
import math
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from minbert.baselines import BagOfWords
from minbert.core.checkpoint import replace_file
from minbert.core.device_step import DeviceStep
from minbert.core.files import read_json, write_json
from minbert.core.fused_adamw import FusedAdamW
from minbert.core.safetensors_io import file_checksum
from minbert.data import Dataset, load_dataset, task_batches
from minbert.encoder import BertModel
from minbert.evaluate import METRICS
from minbert.heads import MultitaskBert, default_heads, multitask_loss
from minbert.metrics import spearman
from minbert.optim import parameter_groups
from minbert.sampling import TaskSampler, seeded
from minbert.sentence import SentenceEncoder, safe_cosine
from minbert.significance import Scored, draw_scores, interval
from minbert.sts import gold_labels
from minbert.tokens import resolve_folder
from minbert.training import steps, warmup_decay
from minbert.whitening import Whiten

SEED = 11711
OPEN_TASKS, LARGE_TASKS = ("inference", "sentiment", "similarity"), ("quora", "sst", "stsb")
RATES = (3e-4, 1e-3)  # of fine-tuning, for each encoder to choose from
# of a probe's squared weights, which stand before columns of deviation 1
PENALTIES = (1e2, 1e3, 1e4)
EPOCHS, BATCH, MOST_STEPS = 3, 32, 800
MOST_DEV = 5000  # rows; only Quora has more
MEASURES = {
    "words": "bag of words",
    "tuned": "fine-tuned",
    "probe": "frozen probe",
    "cosine": "cosine",
    "whitened": "whitened cosine",
}


@dataclass(frozen=True)
class Job:
    """One encoder, one measure, one task, all seeds."""

    encoder: str  # million tokens; "0": untrained; "" for the bag of words
    folder: str  # of the model; of the sizes alone, for untrained
    measure: str  # "words", "tuned", "probe" or "cosine", which gives "whitened", too
    task: str
    data: str | None  # folder of the larger sets
    rows: int | None  # most rows of a split, for a trial
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.encoder or 'bag'}-{self.measure}-{self.task}"

    @property
    def settings(self) -> dict:
        """What a stored result must agree with; of an untrained encoder the sizes."""
        file = resolve_folder(self.folder or None) / (
            "config.json" if self.encoder == "0" else "model.safetensors"
        )
        model = file_checksum(file) if self.encoder else None
        return {
            "model": model,
            "rows": self.rows,
            "seeds": list(self.seeds),
            "rates": list(RATES),
            "penalties": list(PENALTIES),
            "epochs": EPOCHS,
            "batch": BATCH,
            "most steps": MOST_STEPS,
            "most dev": MOST_DEV,
        }


def split(job: Job, part: str, name: str | None = None) -> Dataset:
    """Read a split; of a large one a fixed draw, the same for every encoder."""
    data = load_dataset(name or job.task, part, job.data)
    most = {"train": MOST_STEPS * BATCH, "dev": MOST_DEV}[part]
    return data.draw(min(most, job.rows or most), seeded(SEED, "rows", data.name, part))


@lru_cache(maxsize=1)
def stored(folder: str) -> SentenceEncoder:
    """Load an encoder, once for all rates, penalties and seeds. Nobody may change it."""
    return SentenceEncoder.from_pretrained(folder or None, pooling="mean")


def encoder_of(job: Job, seed: int) -> SentenceEncoder:
    """Copy the encoder, or keep only its sizes and draw its weights; the tokenizer is shared."""
    encoder = copy.deepcopy(
        stored(job.folder), {id(stored(job.folder).tokenizer): stored(job.folder).tokenizer}
    )
    if job.encoder == "0":
        torch.manual_seed(seed)
        encoder.model = BertModel(encoder.model.config).to(encoder.device)
    return encoder.eval()


def fine_tuned(job: Job, seed: int) -> Callable:
    """Give a function of (rate, train, dev) -> answers to dev: one task, its usual head, all
    weights move.
    """

    def answers(rate, train, dev):
        encoder = encoder_of(job, seed)
        torch.manual_seed(seed)
        model = (
            MultitaskBert(encoder, default_heads(encoder.width, (job.task,)))
            .to(encoder.device)
            .train()
        )
        total = min(MOST_STEPS, EPOCHS * math.ceil(len(train) / BATCH))
        sampler = TaskSampler({job.task: len(train)}, BATCH, epochs=1, steps=total, seed=seed)
        precision = "bf16" if encoder.device.type == "cuda" else "fp32"
        for _ in steps(
            model,
            task_batches({job.task: train}, encoder.tokenizer, sampler, 128),
            multitask_loss,
            FusedAdamW(parameter_groups(model, weight_decay=0.01), lr=rate),
            schedule=lambda step: warmup_decay(step, total, max(1, total // 10)),
            max_grad_norm=1.0,
            take_step=DeviceStep(precision=precision),
        ):
            pass
        return model.predict(job.task, dev).double().numpy()

    return answers


def columns(encoder: SentenceEncoder, data: Dataset) -> np.ndarray:
    """(N, D) frozen vectors; of pairs (N, 4 D): u, v, |u - v|, u v."""
    u = encoder.encode(data.sentences).numpy()
    if data.sentences2 is None:
        return u
    v = encoder.encode(data.sentences2).numpy()
    return np.concatenate([u, v, abs(u - v), u * v], 1)


def probe(job: Job, seed: int) -> Callable:
    """Give a function of (penalty, train, dev) -> answers to dev: a linear model of frozen vectors."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    encoder = encoder_of(job, seed)

    def answers(penalty, train, dev):
        linear = (
            LogisticRegression(C=1 / penalty, max_iter=300)
            if train.classes
            else Ridge(alpha=penalty)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 300 iterations are enough for three digits
            return (
                make_pipeline(StandardScaler(), linear)
                .fit(columns(encoder, train), train.labels)
                .predict(columns(encoder, dev))
            )

    return answers


def choose(candidates: tuple, answers: Callable, train: Dataset) -> float:
    """Take the candidate that does best on a fifth of the training set after learning from the
    rest.
    """
    order = torch.randperm(len(train), generator=seeded(SEED, "choose", train.name)).tolist()
    cut = len(train) // 5
    rest, held = train.subset(order[cut:]), train.subset(order[:cut])
    metric = METRICS[train.kind][1]
    scores = [metric(answers(candidate, rest, held), gold_labels(held)) for candidate in candidates]
    return candidates[int(np.argmax(np.nan_to_num(scores, nan=-1)))]


def learned(job: Job) -> dict:
    """Choose the rate or penalty with the first seed, then learn from the whole training set, once
    a seed.
    """
    make, candidates = (fine_tuned, RATES) if job.measure == "tuned" else (probe, PENALTIES)
    train, dev = split(job, "train"), split(job, "dev")
    chosen = choose(candidates, make(job, job.seeds[0]), train)
    # a probe of given weights draws nothing
    seeds = job.seeds if job.measure == "tuned" or job.encoder == "0" else job.seeds[:1]
    return {
        "chosen": chosen,
        "answers": {job.measure: [make(job, seed)(chosen, train, dev) for seed in seeds]},
    }


def cosines(job: Job) -> dict:
    """Cosines of graded pairs, raw and whitened by sentences of no evaluation set."""
    dev, corpus = split(job, "dev"), split(job, "train", "sentences")
    found = {"cosine": [], "whitened": []}
    for seed in job.seeds if job.encoder == "0" else job.seeds[:1]:
        encoder = encoder_of(job, seed)
        u, v = encoder.encode(dev.sentences), encoder.encode(dev.sentences2)
        whiten = Whiten(encoder.width).fit(encoder.encode(corpus.sentences))
        found["cosine"].append(safe_cosine(u, v).double().numpy())
        found["whitened"].append(safe_cosine(whiten(u), whiten(v)).double().numpy())
    return {"answers": found}


def bag(job: Job) -> dict:
    """The line to beat: words without order, without pretraining."""
    return {
        "answers": {"words": [BagOfWords().fit(split(job, "train")).predict(split(job, "dev"))]}
    }


def work(job: Job, out: Path) -> str:
    """Do a job and put its file in place when it is whole; return a line about it."""
    torch.set_num_threads(1)
    result = {"words": bag, "cosine": cosines}.get(job.measure, learned)(job)
    dev = split(job, "dev")
    result["answers"] = {
        name: [[round(float(x), 5) for x in seed] for seed in seeds]
        for name, seeds in result["answers"].items()
    }
    whole = {
        "encoder": job.encoder,
        "task": job.task,
        "kind": dev.kind,
        "settings": job.settings,
        **result,
        "gold": gold_labels(dev),
    }
    replace_file(out / f"{job.name}.json", lambda part: write_compact(part, whole))
    return f"{job.name}: " + ", ".join(
        f"{n} {np.mean([metric_of(n, dev.kind)[1](x, whole['gold']) for x in a]):.3f}"
        for n, a in result["answers"].items()
    )


def write_compact(file: Path, values: dict) -> None:
    """One line of JSON: thousands of answers, not for reading."""
    file.write_text(json.dumps(values, allow_nan=False) + "\n")


def metric_of(measure: str, kind: str) -> tuple[str, Callable]:
    """The course's metric of what was learned; ranks for a cosine."""
    return ("Spearman", spearman) if measure in ("cosine", "whitened") else METRICS[kind]


def jobs_of(
    encoders: dict[str, str],
    data: str | None,
    rows: int | None,
    seeds: tuple[int, ...],
    chosen: tuple[str, ...] = (),
) -> list[Job]:
    """All that has to be done, the longest first; of the chosen tasks alone, if any are."""
    tasks = {task: None for task in OPEN_TASKS} | (
        {task: data for task in LARGE_TASKS} if data else {}
    )
    tasks = {task: home for task, home in tasks.items() if not chosen or task in chosen}
    known = {"0": list(encoders.values())[-1], **encoders}
    learn = [
        Job(name, folder, measure, task, home, rows, seeds)
        for measure in ("tuned", "probe")
        for task, home in sorted(tasks.items())
        for name, folder in known.items()
    ]
    graded = [
        Job(name, folder, "cosine", task, home, rows, seeds)
        for task, home in tasks.items()
        if task in ("similarity", "stsb")
        for name, folder in known.items()
    ]
    return [
        *learn,
        *graded,
        *(Job("", "", "words", task, home, rows, seeds) for task, home in tasks.items()),
    ]


def unfinished(jobs: list[Job], out: Path) -> list[Job]:
    """Leave out what is stored. Raises ValueError for a result of another model, other rows or
    other seeds.
    """
    todo = []
    for job in jobs:
        file = out / f"{job.name}.json"
        if not file.exists():
            todo.append(job)
        elif (stored := read_json(file)["settings"]) != job.settings:
            raise ValueError(
                f"{file}: expected a result of {job.settings}, got one of {stored}: use another folder"
            )
    return todo


# ---- the answers as numbers


def score(
    answers: list,
    gold: list,
    metric: Callable,
    resamples: int,
    deterministic: bool = False,
    # answers (S, N), gold (N,)
) -> Scored:
    """Score every seed on bootstrap samples; constant predictions have no correlation, NaN, and
    stop nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return draw_scores(answers, gold, metric, resamples, deterministic=deterministic)


def _deterministic(measure: str, encoder: str) -> bool:
    """Tell whether another seed would give the same predictions: only fine-tuning and untrained
    weights have one.
    """
    return measure == "words" or (measure != "tuned" and encoder != "0")


def summary(
    folder: str | Path,  # of results
    resamples: int = 2000,  # of the bootstrap
) -> list[dict]:  # one row a task, measure and encoder: value, interval, differences
    """Score everything that is stored, each with its difference to the untrained encoder and to the
    bag of words.
    """
    found, rows = {}, []
    for file in sorted(Path(folder).glob("*-*-*.json")):
        stored = read_json(file)
        for measure, answers in stored["answers"].items():
            found[stored["task"], measure, stored["encoder"]] = stored, answers
    scored = {}
    for (task, measure, encoder), (stored, answers) in found.items():
        name, metric = metric_of(measure, stored["kind"])
        scored[task, measure, encoder] = (
            name,
            score(answers, stored["gold"], metric, resamples, _deterministic(measure, encoder)),
        )
        # cosines are held against ranks of the bag
        if measure == "words" and stored["kind"] == "similarity":
            scored[task, "words by rank", ""] = (
                "Spearman",
                score(answers, stored["gold"], spearman, resamples, True),
            )
    for (task, measure, encoder), (name, scores) in scored.items():
        row = {
            "task": task,
            "measure": measure,
            "tokens": float(encoder) if encoder else None,
            "metric": name,
            "seeds": scores.draws.shape[1],
            "chosen": found.get((task, measure, encoder), ({},))[0].get("chosen"),
            "value": scores.value,
            "interval": list(interval(scores)[1:3]),
        }
        words = scored.get((task, "words by rank" if name == "Spearman" else "words", ""))
        for label, rival in (("untrained", scored.get((task, measure, "0"))), ("words", words)):
            if encoder and rival is not None and not (label == "untrained" and encoder == "0"):
                row[f"over {label}"] = list(interval(scores, rival[1])[:3])
        rows.append(row)
    order = [*MEASURES, "words by rank"]
    return sorted(
        rows,
        key=lambda r: (
            [*OPEN_TASKS, *LARGE_TASKS].index(r["task"]),
            order.index(r["measure"]),
            r["tokens"] or 0,
        ),
    )


def table(rows: list[dict]) -> str:
    """The summary as Markdown."""
    lines = [
        "| task | measure | million tokens | metric | score | 95 % interval | over untrained | over bag of words |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def gap(found):
        return "" if found is None else f"{found[0]:+.3f} ({found[1]:+.3f} to {found[2]:+.3f})"

    for r in rows:
        tokens = "" if r["tokens"] is None else f"{r['tokens']:,g}"
        lines.append(
            f"| {r['task']} | {MEASURES.get(r['measure'], 'bag of words')} | {tokens} | {r['metric']} | {r['value']:.3f} | "
            f"{r['interval'][0]:.3f} to {r['interval'][1]:.3f} | {gap(r.get('over untrained'))} | {gap(r.get('over words'))} |"
        )
    return "\n".join(lines)


def figure(rows: list[dict], file: str | Path) -> None:
    """Three panels, one an open task: score over tokens, with 0 on the axis, and intervals as
    bands.
    """
    from minbert.core.figures import curves, panels, styles

    labels = {
        "tuned": "ours: fine-tuned",
        "probe": "frozen probe",
        "words": "baseline: bag of words",
    }
    axes = panels(3)
    for ax, task in zip(axes, ("sentiment", "inference", "similarity")):
        here = {m: [r for r in rows if r["task"] == task and r["measure"] == m] for m in labels}
        line = {
            labels[m]: (
                here[m][0]["value"]
                if m == "words"
                else ([r["tokens"] for r in here[m]], [r["value"] for r in here[m]])
            )
            for m in labels
            if here[m]
        }
        curves(
            line, "pretraining [million tokens]", f"{here['words'][0]['metric']} on dev", ax, task
        )
        for m, style in zip(labels, styles(labels.values())):
            low, high = zip(*(r["interval"] for r in here[m]))
            if m == "words":
                ax.axhspan(low[0], high[0], color=style["color"], alpha=0.12, linewidth=0)
            else:
                ax.fill_between(
                    [r["tokens"] for r in here[m]],
                    low,
                    high,
                    color=style["color"],
                    alpha=0.2,
                    linewidth=0,
                )
        ticks = sorted({r["tokens"] for r in here["tuned"]})
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
    axes[0].figure.savefig(file, dpi=150, bbox_inches="tight")


def encoder_argument(text: str) -> tuple[str, str]:
    """Read MILLION_TOKENS=FOLDER; an empty folder is the embedded model."""
    tokens, equals, folder = text.partition("=")
    try:
        if not equals or not 0 < float(tokens) < math.inf:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected MILLION_TOKENS=FOLDER with more than 0 tokens, got {text!r}"
        ) from None
    return f"{float(tokens):g}", folder


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "encoders", nargs="*", type=encoder_argument, metavar="MILLION_TOKENS=FOLDER"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", help="folder with sst, quora and stsb")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[],
        choices=[*OPEN_TASKS, *LARGE_TASKS],
        help="only these; the large ones need --data",
    )
    parser.add_argument("--seed", type=int, nargs="+", default=[SEED, SEED + 1, SEED + 2])
    parser.add_argument("--rows", type=int, help="most rows of a split, for a trial")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes; more than one on a GPU or many cores"
    )
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args(arguments)
    if args.encoders:
        args.out.mkdir(parents=True, exist_ok=True)
        jobs = unfinished(
            jobs_of(dict(args.encoders), args.data, args.rows, tuple(args.seed), tuple(args.tasks)),
            args.out,
        )
        # a process each: a GPU's cannot be forked
        with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
            for future in as_completed([pool.submit(work, job, args.out) for job in jobs]):
                print(future.result(), flush=True)
    if args.table or args.figure:
        rows = summary(args.out)
        write_json(args.out / "summary.json", rows)
        print(table(rows))
        if args.figure:
            figure(rows, args.figure)


if __name__ == "__main__":
    main()
