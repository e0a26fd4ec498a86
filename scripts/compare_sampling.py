"""Compare orders of the tasks for fine-tuning one encoder on three tasks, beside each task alone.

    python scripts/compare_sampling.py            # train what is not stored yet
    python scripts/compare_sampling.py --join     # write the table that chapter 13 shows

Every run of all tasks has 180 steps of 16 examples, as in chapter 13. A task alone is trained for 60
steps, and the sequential run trains one task after the other for 60 steps each, with the very
batches of the round-robin run. All runs start from the same encoder and use the training loop of
the chapter: one optimizer, one warm-up and decay, one learning rate, which was searched for none of
them. The model of the last step is evaluated on the dev examples of the chapter; no model is
selected.

Each run is one Parquet file with one row for each task: order, seed, steps, passes and dev score.
"""

import argparse
import os
from collections import Counter
from itertools import chain
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd  # noqa: E402
import torch  # noqa: E402

from minbert.data import load_dataset, task_batches  # noqa: E402
from minbert.evaluate import evaluate_tasks  # noqa: E402
from minbert.heads import MultitaskBert, default_heads, multitask_loss  # noqa: E402
from minbert.optim import AdamW  # noqa: E402
from minbert.sampling import TaskSampler  # noqa: E402
from minbert.sentence import SentenceEncoder  # noqa: E402
from minbert.training import clip_gradients, warmup_decay  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "minbert" / "assets" / "results" / "sampling.parquet"
TASKS = ("sentiment", "inference", "similarity")
ORDERS = ("sequential", "round_robin", "proportional")
SEEDS = (1, 2, 3)
STEPS, BATCH_SIZE, RATE = 60, 16, 5e-4  # STEPS of each task
DEV_EXAMPLES = 300


def batches_of(train_sets: dict, tokenizer, order: str, seed: int):
    """Yield the batches of a run, each a dict from task to TaskBatch."""
    if order == "sequential":
        parts = []
        for task, data in train_sets.items():
            parts.append(batches_of({task: data}, tokenizer, "alone", seed))
        return chain(*parts)
    sizes = {task: len(data) for task, data in train_sets.items()}
    strategy = "proportional" if order == "alone" else order
    sampler = TaskSampler(sizes, BATCH_SIZE, strategy, steps=STEPS * len(sizes), seed=seed)
    return task_batches(train_sets, tokenizer, sampler)


def train(tasks: tuple[str, ...], order: str, seed: int) -> list[dict]:
    """Train once; give one row for each task."""
    train_sets = {task: load_dataset(task, "train") for task in tasks}
    dev_sets = {}
    for task in tasks:
        chosen = torch.Generator().manual_seed(0)
        dev_sets[task] = load_dataset(task, "dev").draw(DEV_EXAMPLES, chosen)
    encoder = SentenceEncoder.from_pretrained(device="cpu")
    torch.manual_seed(seed)
    model = MultitaskBert(encoder, default_heads(encoder.width, tasks))
    optimizer = AdamW(model.parameters(), lr=RATE)
    total, used = STEPS * len(tasks), Counter()
    for step, batch in enumerate(batches_of(train_sets, encoder.tokenizer, order, seed)):
        used.update(list(batch))  # the task of the step
        optimizer.param_groups[0]["lr"] = RATE * warmup_decay(step, total, total // 10)
        model.train()
        losses = multitask_loss(model, batch)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        clip_gradients(dict(model.named_parameters()), 1.0)
        optimizer.step()
    scores = evaluate_tasks(model, dev_sets, resamples=0)
    rows = []
    for task, data in train_sets.items():
        passes = used[task] * BATCH_SIZE / len(data)
        row = {"task": task, "steps": used[task], "passes": passes, "dev": scores[task].value}
        rows.append(row)
    return rows


def run(out: Path) -> None:
    """Train every order and every task alone; a run that is stored is skipped."""
    out.mkdir(parents=True, exist_ok=True)
    runs = {order: (TASKS, order) for order in ORDERS}
    runs |= {f"alone-{task}": ((task,), "alone") for task in TASKS}
    for seed in SEEDS:
        for name, (tasks, order) in runs.items():
            file = out / f"{name}-{seed}.parquet"
            if file.exists():
                continue
            shared = {"order": order, "seed": seed, "torch": torch.__version__}
            rows = [shared | row for row in train(tasks, order, seed)]
            pd.DataFrame(rows).to_parquet(file, index=False)
            print(name, seed, {row["task"]: round(row["dev"], 3) for row in rows}, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "comparisons" / "sampling")
    parser.add_argument("--join", action="store_true", help="write the stored runs into one file")
    given = parser.parse_args()
    if given.join:
        files = sorted(given.out.glob("*.parquet"))
        table = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
        table.to_parquet(SUMMARY, index=False, compression="zstd")
        print(f"{SUMMARY.name}: {len(table)} rows of {len(files)} runs")
    else:
        run(given.out)
