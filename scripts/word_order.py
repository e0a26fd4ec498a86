"""Does a model notice that two adjacent words were swapped? Six models on bigram-shift.

    python scripts/word_order.py            # train what is not stored yet; resumes interrupted runs
    python scripts/word_order.py --table    # write the stored results as Markdown, and print them

The models are two bags, of words and of bigrams, and linear heads on the embedded encoder and on a
randomly initialized one, each frozen and fine-tuned. A learning rate (for the bag of bigrams a
penalty) is chosen on dev with seed 0; the search is stored, too. Then each encoder is trained with
seeds 1 to 5, and each bag once, because it uses no random numbers. Training keeps the parameters
that are best on dev, and these are evaluated on test once. results/word-order/results.json contains
the settings, the dev accuracy at each evaluation, the prediction for each test example, and the
processor time of each run; README.md beside it has the table, and a summary goes into the package.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from minbert.baselines import BagOfWords
from minbert.core.checkpoint import replace_file
from minbert.core.files import read_json
from minbert.data import Dataset, load_dataset
from minbert.encoder import BertModel
from minbert.encoding.run_fingerprint import rows_checksum
from minbert.finetune import TrainConfig, fit
from minbert.heads import LinearHead, MultitaskBert
from minbert.metrics import accuracy
from minbert.optim import AdamW
from minbert.sentence import SentenceEncoder
from minbert.significance import Scored, draw_scores, interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "word-order" / "results.json"
TASK = "bigram_shift"  # the name of the head, which has to be an identifier
SEARCH_SEED, SEEDS = 0, (1, 2, 3, 4, 5)
BATCH = 32
STEPS, SEARCH_STEPS = 415, 104  # of fine-tuning: one epoch, and a quarter of it
PROBE_EPOCHS = 20  # of a linear layer on frozen vectors
CANDIDATES = {  # row -> learning rates, or inverse penalties, to choose from
    "bag of words": (1.0,),
    "bag of bigrams": (0.1, 1.0, 10.0),
    "embedded, frozen": (1e-3, 1e-2),
    "embedded, fine-tuned": (3e-4, 1e-3),
    "random, frozen": (1e-3, 1e-2),
    "random, fine-tuned": (3e-4, 1e-3),
}
SUMMARY = ROOT / "minbert" / "assets" / "results" / "word-order.json"  # what chapter 13 shows
LENGTHS = (1, 7, 10, 15, 1000)  # words, the bounds of four groups of sentences
SEEDLESS = ("bag of words", "bag of bigrams")  # logistic regression draws nothing at random


@lru_cache(maxsize=1)
def splits() -> dict[str, Dataset]:
    """Load the task, once."""
    return {split: load_dataset("bigram-shift", split) for split in ("train", "dev", "test")}


def encoder_of(row: str, seed: int) -> SentenceEncoder:
    """Load the embedded encoder; draw its weights at random for the rows of a random one."""
    encoder = SentenceEncoder.from_pretrained()
    if row.startswith("random"):
        torch.manual_seed(seed)
        encoder.model = BertModel(encoder.model.config)
    return encoder.eval()


# ---- one function for each kind of row; it returns the curve on dev and the predictions for test

Outcome = tuple[list, np.ndarray]


def bag_of_words(row: str, value: float, seed: int, search: bool, folder: Path) -> Outcome:
    """Fit the baseline of chapter 12."""
    data = splits()
    model = BagOfWords().fit(data["train"])
    dev = accuracy(model.predict(data["dev"]), data["dev"].labels)
    return [[0, dev]], model.predict(data["test"])


def bag_of_bigrams(row: str, value: float, seed: int, search: bool, folder: Path) -> Outcome:
    """Fit a logistic regression on which words and which pairs of adjacent words occur."""
    data = splits()
    counts = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+", binary=True)
    train = counts.fit_transform(data["train"].sentences)
    model = LogisticRegression(C=value, max_iter=3000).fit(train, data["train"].labels)
    found = {s: model.predict(counts.transform(data[s].sentences)) for s in ("dev", "test")}
    return [[0, accuracy(found["dev"], data["dev"].labels)]], found["test"]


@lru_cache(maxsize=2)
def frozen_vectors(row: str, seed: int) -> dict[str, torch.Tensor]:
    """Encode every sentence once: without training the vectors are the same in each epoch."""
    encoder = encoder_of(row, seed)
    return {split: encoder.encode(data.sentences) for split, data in splits().items()}


def probe(row: str, value: float, seed: int, search: bool, folder: Path) -> Outcome:
    """Train a linear layer on the vectors of a frozen encoder."""
    vectors = frozen_vectors(row, seed if row.startswith("random") else 0)
    labels = {split: torch.tensor(data.labels) for split, data in splits().items()}
    torch.manual_seed(seed)
    head = LinearHead(vectors["train"].shape[1], 2, dropout=0.0)
    optimizer = AdamW(head.parameters(), lr=value)
    curve, best = [], None
    for epoch in range(PROBE_EPOCHS):
        for rows in torch.randperm(len(labels["train"])).split(BATCH):
            optimizer.zero_grad()
            head.loss(head(vectors["train"][rows]), labels["train"][rows]).backward()
            optimizer.step()
        with torch.no_grad():
            dev, test = (head(vectors[split]).argmax(1).numpy() for split in ("dev", "test"))
        curve.append([epoch + 1, accuracy(dev, splits()["dev"].labels)])
        if best is None or curve[-1][1] > best[0]:
            best = curve[-1][1], test
    return curve, best[1]


def fine_tuned(row: str, value: float, seed: int, search: bool, folder: Path) -> Outcome:
    """Train all weights with `fit`, the head ten times as fast as the encoder."""
    data, encoder = splits(), encoder_of(row, seed)
    torch.manual_seed(seed)
    model = MultitaskBert(encoder, {TASK: LinearHead(encoder.width, 2, dropout=0.0)})
    steps = SEARCH_STEPS if search else STEPS
    config = TrainConfig(
        (TASK,),
        steps=steps,
        batch_size=BATCH,
        lr=value,
        head_lr=10 * value,
        eval_every=104,
        seed=seed,
    )
    result = fit(model, {TASK: data["train"]}, {TASK: data["dev"]}, config, folder, resume=True)
    curve = [[line["step"] + 1, line["dev"][TASK]] for line in result.log if "dev" in line]
    best = MultitaskBert.from_pretrained(folder / "model")
    return curve, best.predict(TASK, data["test"]).numpy()


def method_of(row: str) -> Callable:
    """Find the function that trains a row."""
    if row.startswith("bag"):
        return bag_of_words if row == "bag of words" else bag_of_bigrams
    return probe if row.endswith("frozen") else fine_tuned


# ---- the runs and their file


def checksums() -> dict[str, str]:
    """Identify the examples that the results belong to."""
    return {split: rows_checksum(data) for split, data in splits().items()}


def load_results(file: Path) -> dict:
    """Read what is stored. Raises ValueError if it belongs to other examples."""
    fresh = {"examples": checksums(), "runs": []}
    stored = read_json(file) if file.exists() else fresh
    if stored["examples"] != fresh["examples"]:
        raise ValueError(
            f"{file}: expected results on the examples {fresh['examples']}, "
            f"got {stored['examples']}"
        )
    return stored


def save_results(file: Path, results: dict) -> None:
    """Replace the file at once, one run a line."""
    runs = ",\n".join(json.dumps(run, allow_nan=False) for run in results["runs"])
    text = f'{{"examples": {json.dumps(results["examples"])},\n"runs": [\n{runs}\n]}}\n'
    replace_file(file, lambda part: part.write_text(text, encoding="utf-8"))


def find(results: dict, row: str, **wanted) -> list[dict]:
    """Select the stored runs of a row."""
    wanted |= {"row": row}

    def fits(run):
        return all(run[name] == value for name, value in wanted.items())

    return list(filter(fits, results["runs"]))


def chosen_value(results: dict, row: str) -> float:
    """Take the candidate with the best score on dev, the first of equal ones."""
    runs = find(results, row, search=True)
    return max(runs, key=lambda run: run["dev_accuracy"])["value"] if runs else CANDIDATES[row][0]


def train_once(row: str, value: float, seed: int, search: bool, work: Path) -> dict:
    """Train and describe one run."""
    torch.set_num_threads(1)
    start = time.process_time()
    folder = work / f"{row}-{seed}-{value:g}-{search}".replace(", ", "-").replace(" ", "-")
    resumed = folder.exists()  # then the time of the interrupted process is unknown
    curve, test = method_of(row)(row, value, seed, search, folder)
    shutil.rmtree(folder, ignore_errors=True)
    best = max(curve, key=lambda point: point[1])
    run = {
        "row": row,
        "seed": seed,
        "search": search,
        "value": value,
        "dev_curve": curve,
        "best": best[0],
        "dev_accuracy": best[1],
        "processor_seconds": None if resumed else round(time.process_time() - start, 1),
    }
    if not search:
        run["test_accuracy"] = accuracy(test, splits()["test"].labels)
        run["predictions"] = "".join(str(int(x)) for x in test)
    return run


def wanted_runs(rows: list[str]) -> list[tuple[str, int, bool]]:
    """List the runs, (row, seed, search), one row after the other."""
    runs = []
    for row in rows:
        seeds = SEEDS[:1] if row in SEEDLESS else SEEDS
        runs += [(row, SEARCH_SEED, True)] if len(CANDIDATES[row]) > 1 else []
        runs += [(row, seed, False) for seed in seeds]
    return runs


def run_all(file: Path, work: Path, rows: list[str]) -> None:
    """Do what is not stored yet, and store each run as soon as it ends."""
    for row, seed, search in wanted_runs(rows):
        results = load_results(file)
        values = CANDIDATES[row] if search else (chosen_value(results, row),)
        for value in values:
            if find(results, row, seed=seed, search=search, value=value):
                continue
            results["runs"].append(train_once(row, value, seed, search, work))
            save_results(file, results)
            run = results["runs"][-1]
            print(f"{row}, seed {seed}, value {value:g}: dev {run['dev_accuracy']:.3f}", flush=True)


# ---- the table


def score(
    predictions: list[str],  # one a seed: a digit for each example
    labels: list[int],  # (N,)
    deterministic: bool = False,  # True for a row of SEEDLESS
) -> Scored:
    """Compute accuracies, on the test set and on bootstrap samples of its sentences (chapter 27).

    A sample contains both forms of a sentence or neither, because their predictions are dependent.
    """
    correct = np.array([list(map(int, text)) for text in predictions]) == np.array(labels)
    pairs = correct.reshape(len(correct), -1, 2).sum(2)  # (S, N / 2)
    forms = np.full(pairs.shape[1], 2)  # of each sentence

    def accuracy_of_pairs(correct, forms):
        return correct.sum() / forms.sum()

    return draw_scores(pairs, forms, accuracy_of_pairs, deterministic=deterministic)


REPORT = """# Word order

Test accuracy on the bigram-shift task (chapters 09 and 12), which has {train:,} training examples,
{dev:,} validation examples (dev) and {test:,} test examples. The table gives the mean over the
listed seeds and its 95% confidence interval over examples and seeds, computed as in chapter 27. A
bootstrap sample contains both forms of a sentence or neither, because their predictions are
dependent. The two bags use no random numbers; therefore each was trained once, and their intervals
are over examples alone.

Learning rates and penalties were chosen on dev with seed {search}, which is not used for the
results. Fine-tuning takes one epoch of {steps} steps with four evaluations on dev, and keeps the
parameters of the best one. The embedded model may have seen some of the original sentences in
pretraining, because both corpora contain text from Wikipedia and Tatoeba. `results.json` contains
every prediction, and `python scripts/word_order.py` trains the models that are missing in it. The
sentences are encoded once for all seeds of the frozen embedded encoder, but for each seed of the
frozen random one, which therefore has the longer processor time.

{table}
"""


def write_report(results: dict, file: Path) -> str:
    """Write the table and what it was made from; return the table."""
    rows = table(results, splits()["test"].labels)
    sizes = {split: len(data) for split, data in splits().items()}
    text = REPORT.format(table=rows, steps=STEPS, search=SEARCH_SEED, **sizes)
    replace_file(file, lambda part: part.write_text(text, encoding="utf-8"))
    return rows


def summary(results: dict, data: Dataset) -> list[dict]:
    """Summarize the stored results: accuracy with its interval, by label and by length."""
    labels = np.array(data.labels)
    words = np.array([len(sentence.split()) for sentence in data.sentences])
    rows = []
    for row in CANDIDATES:
        runs = find(results, row, search=False)
        predictions = [run["predictions"] for run in runs]
        found = interval(score(predictions, data.labels, row in SEEDLESS))
        correct = np.array([list(map(int, text)) for text in predictions]) == labels
        by_length = []
        for low, high in zip(LENGTHS, LENGTHS[1:]):
            chosen = (words >= low) & (words < high)
            share = round(float(correct[:, chosen].mean()), 4)
            by_length.append({"from": low, "to": high - 1, "examples": int(chosen.sum())})
            by_length[-1]["accuracy"] = share
        rows.append(
            {
                "model": row,
                "seeds": found.seeds,
                "accuracy": round(found.value, 4),
                "interval": [round(found.low, 4), round(found.high, 4)],
                "original": round(float(correct[:, labels == 0].mean()), 4),
                "swapped": round(float(correct[:, labels == 1].mean()), 4),
                "by length": by_length,
            }
        )
    return rows


def mean_seconds(runs: list[dict]) -> str:
    """Average the processor times of the runs that were not resumed."""
    times = [run["processor_seconds"] for run in runs if run["processor_seconds"] is not None]
    return f"{np.mean(times):.0f}" if times else "unknown"


def table(results: dict, labels: list[int]) -> str:
    """Lay out the stored results as Markdown."""
    lines = [
        "| model | learning rate or 1 / penalty | seeds | test accuracy | 95% interval | "
        "processor time of a run [s] |",
        "|---|---|---|---|---|---|",
    ]
    for row in CANDIDATES:
        if runs := find(results, row, search=False):
            deterministic = row in SEEDLESS
            found = interval(score([run["predictions"] for run in runs], labels, deterministic))
            seeds = "none" if deterministic else ", ".join(str(run["seed"]) for run in runs)
            seconds = mean_seconds(runs)
            lines.append(
                f"| {row} | {runs[0]['value']:g} | {seeds} | {found.value:.3f} | "
                f"{found.low:.3f} to {found.high:.3f} | {seconds} |"
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--table", action="store_true", help="print what is stored")
    parser.add_argument("--rows", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "runs" / "word-order",
        help="folder of runs that are not finished",
    )
    args = parser.parse_args(arguments)
    if not args.table:
        os.nice(19)
        run_all(args.results, args.work, args.rows)
    results = load_results(args.results)
    print(write_report(results, args.results.with_name("README.md")))
    if args.results == RESULTS:
        text = json.dumps(summary(results, splits()["test"]), indent=1) + "\n"
        replace_file(SUMMARY, lambda part: part.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
