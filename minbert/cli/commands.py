"""The command line: `minbert demo`, `data`, `split`, `train`, `evaluate`, `predict`, `contrast`,
`encode`, `pretrain`, `fill-mask`, `reproduce`, `course`, `grade`.

A command reads options, calls one function of a chapter, and prints where the result lies. Heavy
imports stand inside the commands, so that `minbert --help` does not load torch. Errors become one
line each in `messages`.

Data of one's own are files NAME-train.csv, NAME-dev.csv and, for the last look, NAME-test.csv (also
.tsv, .jsonl and .parquet). Their columns say what is learned:

| columns | what is learned | head |
|---|---|---|
| `sentence` (or `text`), `label` | one of the classes of the train file | linear |
| `sentence1`, `sentence2`, `label` | the same, for a pair | both vectors and their difference |
| `sentence1`, `sentence2`, `score` | a number; values between 0 and 1, or 0 and 5, are taken as such a scale | cosine and linear |
"""

__all__ = [
    "app",
    "EMBEDDED",
    "OPEN_TASKS",
    "COURSE_TASKS",
    "SeedOption",
    "DataOption",
    "ModelOption",
    "TasksOption",
    "VECTORS",
    "DEMO_FOLDER",
    "show_version",
    "options",
    "available_tasks",
    "check_folder",
    "usual_tasks",
    "main_process",
    "processes",
    "repeat_option",
    "main",
    "warn_truncation",
    "check_one_file",
    "check_parts",
    "encode_parts",
    "encode",
    "describe",
    "data",
    "load_splits",
    "run_exists",
    "check_begin",
    "check_tasks",
    "report",
    "extensions",
    "preflight_notes",
    "summary_lines",
    "train",
    "load_trained",
    "evaluate",
    "split",
    "predict",
    "contrast",
    "demo",
    "pretrain",
    "continue_from",
    "fill_mask",
]

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .cli_errors import Commands
from .course_cli import course, grade
from .reproduction import reproduce

app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)
app.add_typer(course, name="course")
app.command()(grade)
app.command()(reproduce)

EMBEDDED = "embedded"  # the word for the model inside the package
# without and with a data folder
OPEN_TASKS, COURSE_TASKS = ("sentiment", "inference", "similarity"), ("sst", "quora", "stsb")
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=2**32 - 1, help="The course's default.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of data sets; without it, the open data embedded in the package."
    ),
]
ModelOption = Annotated[
    str, typer.Option("--model", help="Folder, hub name, 'embedded' or 'embedded-sentences'.")
]
TasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        help="One or more of: sentiment inference similarity (the open data; all three without --data), bigram_shift (word order), "
        "sst quora stsb (with --data, these) cfimdb sts sickr mrpc snli mnli qnli; or NAME, for NAME-train.csv and NAME-dev.csv of your own in --data.",
    ),
]


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"minbert {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=show_version),
    ] = False,
) -> None:
    """Build BERT by hand, fine-tune it, and encode sentences."""


def available_tasks(
    folder: Path | None,
) -> dict[str, list[str]]:  # task -> the splits that are there
    """List the data sets of a folder, one's own among them."""
    from minbert.cli.custom_tasks import own_tasks
    from minbert.data import available

    return available(folder) | {task: list(splits) for task, splits in own_tasks(folder).items()}


def check_folder(folder: Path | None) -> None:
    """Raise ValueError for a data folder that holds nothing."""
    if folder and not available_tasks(folder):
        raise ValueError(
            f"{folder}: expected a folder with files of data sets, such as ids-sst-train.csv, sts-dev.csv.gz or NAME-train.csv (NAME has letters, digits and _), found none"
        )


def usual_tasks(tasks: list[str] | None, folder: Path | None) -> tuple[str, ...]:
    """Take what was typed; else the open tasks, or with a data folder those of the course, or one's
    own where there is nothing else.
    """
    from minbert.cli.custom_tasks import own_tasks

    own = own_tasks(folder)
    return tuple(
        tasks
        or (
            own
            if own and own.keys() == available_tasks(folder).keys()
            else COURSE_TASKS
            if folder
            else OPEN_TASKS
        )
    )


def main_process() -> bool:
    """Say whether this process may print; of those that `accelerate launch` starts, one may."""
    return processes()[0] == 0


def processes() -> tuple[int, int]:  # number of this process from 0, and how many there are
    """Ask what `accelerate launch` or torchrun said; alone, this is process 0 of 1."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


_REPEATED = ("--tasks", "--penalties", "--columns")
_FILES = (".txt", ".tsv", ".csv", ".jsonl", ".parquet", ".gz")


def _is_value(option, word):
    """Tell a value of an option of several from what may stand behind the last one."""
    # a file; a model's folder
    behind = (
        option == "--columns"
        and word.lower().endswith(_FILES)
        or option == "--tasks"
        and "/" in word
    )
    return not (word.startswith("-") or behind)


def repeat_option(
    arguments: list[str],  # as typed
) -> list[str]:  # each option of several values written before each of them
    """Turn `--tasks a b` into `--tasks a --tasks b`; everything else stays."""
    result, repeated = [], None
    for word, after in zip(arguments, [*arguments[1:], "-"]):
        if word.startswith("-"):
            repeated = word if word in _REPEATED else None
            # without a value it stays, to be complained of
            result += [] if repeated and _is_value(repeated, after) else [word]
        else:
            repeated = repeated if _is_value(repeated, word) else None
            result += [repeated, word] if repeated else [word]
    return result


def main(arguments: list[str] | None = None) -> None:  # None: the words after `minbert`
    """Run the command line; an error becomes one line on standard error and an exit status
    (`minbert.cli.cli_errors`).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    app(repeat_option(words))


VECTORS = Path("vectors.npy")


def warn_truncation(encoder, texts: list[str]) -> list[str]:
    """Say so if a text is longer than the encoder reads; the texts stay as they are."""
    from minbert.cli.table_reader import too_long

    if note := too_long(encoder, texts):
        typer.echo(note, err=True)
    return texts


def check_one_file(files: Sequence[Path], out: Path, world: int, dtype: str | None) -> None:
    """Refuse what one array cannot be made of, or cannot be."""
    if len(files) > 1 or world > 1:
        raise ValueError(
            f"expected --part-size and --out FOLDER for several files or processes, got {len(files)} and {world}"
        )
    if dtype:
        raise ValueError(
            f"expected --dtype with --part-size, got {dtype} for one file, which has float32"
        )
    # no file to those who mean a pipe
    if out.suffix.lower() not in ("", ".npy") or out.name == "-":
        raise ValueError(f"expected --out FILE.npy, a NumPy array, got {out}")


def check_parts(files: Sequence[Path], out: Path, columns: bool) -> None:
    """Refuse what parts cannot be made of."""
    from minbert.cli.table_reader import is_table

    if out == VECTORS or out.name == "-":
        raise ValueError("expected --out FOLDER with --part-size")
    if columns or any(map(is_table, files)):
        raise ValueError("expected text with --part-size, one sentence a line, got a table")


def encode_parts(
    encoder, files, out: Path, part_size: int, dtype: str, precision: str, rank: int, world: int
) -> None:
    """Write the missing parts together with the other processes; each says which ones it wrote, the
    first one what is there.
    """
    from minbert.encoding.line_chunks import text_files
    from minbert.encoding.shards import Shards, encode_shards

    try:
        for part, sentences, seconds in encode_shards(
            encoder, text_files(files), out, part_size, dtype, precision, rank, world
        ):
            typer.echo(
                f"process {rank}: part {part}, {sentences:,} sentences, {sentences / seconds:,.0f} a second",
                err=True,
            )
    except KeyboardInterrupt:
        typer.echo(f"process {rank}: whole parts stay in {out}; the same command goes on", err=True)
        raise
    shards = Shards(out)
    if missing := len(shards.missing()):  # on a disk without locks
        typer.echo(
            f"process {rank}: {missing} of {len(shards.parts)} parts are not there: others are writing them, or the same command again does",
            err=True,
        )
    elif main_process():
        typer.echo(
            f"{len(shards):,} vectors of width {shards.settings['width']} in {len(shards.parts)} parts: {out}"
        )


@app.command()
def encode(
    model: Annotated[
        str, typer.Argument(help="Folder, hub name, 'embedded' or 'embedded-sentences'.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="One sentence a line, UTF-8, plain or .gz; or a table (.tsv, .csv: the first line names the columns; .jsonl, .parquet). With --part-size several texts, or folders of .txt and .txt.gz.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Where the vectors go; row n is line n, or row n of a table. With --part-size a folder."
        ),
    ] = VECTORS,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="Which column of a table; without it sentence, or text."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            min=3,
            help="Tokens that are read of each text, at most as many as the model has positions; without it as saved with the model.",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="Without it: as saved with the model, else mean. Another than the saved one comes without the maps behind it."
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Vectors of length 1: the products of two are their cosines. Without it: as the model's folder ends.",
        ),
    ] = None,
    bf16: Annotated[
        bool,
        typer.Option(
            "--bf16",
            help="Faster where the device multiplies bfloat16; the vectors turn a little (benchmarks/bench_encode.py prints how much).",
        ),
    ] = False,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Faster still, on a CPU with VNNI; the vectors turn more."),
    ] = False,
    part_size: Annotated[
        int | None,
        typer.Option(
            "--part-size",
            min=1,
            help="Sentences a part, such as 100000: for text larger than memory and for many processes; the same command goes on where it was stopped.",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Of the parts: float32, float16 (without it) or bfloat16; one file has float32."
        ),
    ] = None,
) -> None:
    """Encode the sentences of a file into a NumPy array of one vector a row, or with --part-size
    into a folder of parts.
    """
    from minbert.cli.table_reader import check_lines, is_table, one_column
    from minbert.datasets.formats import read_lines
    from minbert.encoding.dense_layers import maps_of, sequential
    from minbert.encoding.npy_writer import encode_file
    from minbert.encoding.sentence_transformers_folder import ends_scaled
    from minbert.sentence import SentenceEncoder, UnitLength
    from minbert.tokens import resolve_folder

    rank, world = processes()
    if bf16 and int8:
        raise ValueError("expected --bf16 or --int8, got both")
    if part_size is None:
        check_one_file(files, out, world, dtype)
    else:
        check_parts(files, out, bool(columns))
    for file in files:
        check_lines(file)
    options = {} if pooling is None else {"pooling": pooling}
    precision = "bf16" if bf16 else "int8" if int8 else "fp32"
    encoder = SentenceEncoder.from_pretrained(
        model,
        normalize=ends_scaled(resolve_folder(model)) if normalize is None else normalize,
        **options,
    )
    encoder.max_length = max_length or encoder.max_length
    # as the last step of a folder of ours
    while normalize is False and isinstance([None, *maps_of(encoder.transform)][-1], UnitLength):
        encoder.transform = sequential(maps_of(encoder.transform)[:-1])
    if part_size is None:
        read = (
            (lambda file: one_column(file, columns))
            if columns or is_table(files[0])
            else read_lines
        )
        rows, width = encode_file(
            encoder,
            files[0],
            out,
            precision,
            True,
            lambda file: warn_truncation(encoder, read(file)),
        )
        typer.echo(f"{rows} vectors of width {width}: {out}")
    else:
        encode_parts(encoder, files, out, part_size, dtype or "float16", precision, rank, world)


def describe(
    dataset,  # minbert.data.Dataset
) -> str:
    """Summarise a split in one line: rows, labels, rows left out."""
    labels = "no labels"
    if dataset.labels is not None and dataset.classes:
        counts = [dataset.labels.count(c) for c in range(len(dataset.classes))]
        each = " / ".join(f"{name} {count:,}" for name, count in zip(dataset.classes, counts))
        labels = (
            each
            if len(counts) <= 6
            else f"{len(counts)} classes of {min(counts):,} to {max(counts):,} rows"
        )
    elif dataset.labels is not None:
        labels = f"scores {min(dataset.labels):g} to {max(dataset.labels):g}"
    left_out = f", {len(dataset.skipped)} rows left out" if dataset.skipped else ""
    return f"{dataset.name:12s} {dataset.split:6s} {len(dataset):7,d} rows, {labels}{left_out}"


@app.command()
def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; none: all that the folder or the package holds."),
    ] = None,
    folder: DataOption = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch them from their public homes first.")
    ] = False,
    rows: Annotated[bool, typer.Option("--rows", help="List the rows that were left out.")] = False,
) -> None:
    """Show what the package or a data folder holds, or download data sets into it."""
    from minbert.cli.custom_tasks import load_own, own_tasks
    from minbert.data import download as fetch
    from minbert.data import load_dataset
    from minbert.datasets.bigram_shift import DERIVED
    from minbert.datasets.formats import OPEN
    from minbert.datasets.hub_datasets import HUB
    from minbert.datasets.manual_downloads import ELSEWHERE, not_as_published

    if download and not (folder and names):
        raise ValueError(
            f"expected names and --data FOLDER with --download; names: {', '.join(HUB)}; minbert does not download {', '.join(ELSEWHERE)}"
        )
    for name in names if download else ():
        fetch(name, folder)
        typer.echo(f"downloaded {name} into {folder}")
    there, own = available_tasks(folder), own_tasks(folder)
    if not names:
        check_folder(folder)
    if missing := [name for name in names or () if name not in there]:
        raise ValueError(
            f"expected files of {', '.join(missing)} in {folder or 'the embedded data'}, "
            f"found those of {', '.join(there) or 'no data set'}"
        )
    failed = False
    for name, split in [(task, part) for task in names or there for part in there[task]]:
        try:
            dataset = (load_own if name in own else load_dataset)(name, split, folder)
        except ValueError as error:  # the others are shown all the same
            typer.echo(f"{name} {split}: {error}", err=True)
            failed = True
            continue
        typer.echo(
            describe(dataset)
            + ("" if folder or name in (*OPEN, *DERIVED) else ", written by a grammar")
        )
        for where, reason in dataset.skipped if rows else []:
            typer.echo(f"           {where}: {reason}")
    for line in (line for name in ELSEWHERE if folder for line in not_as_published(name, folder)):
        typer.echo(f"note: {line}", err=True)
    if failed:
        raise typer.Exit(1)


def load_splits(
    tasks: Sequence[str],  # data sets, or tasks of one's own
    split: str,  # train, dev or test
    folder: Path | None,  # data folder; None: the package
    known: Mapping = {},  # task -> Answers that a model was taught
) -> dict:  # task -> Dataset
    """Load one split of every task, and say on standard error what was left out. Raises ValueError
    as `load_dataset` and `load_own` do.
    """
    from minbert.cli.custom_tasks import load_own, own_tasks
    from minbert.data import available, load_dataset
    from minbert.datasets.bigram_shift import DERIVED
    from minbert.datasets.formats import OPEN

    if homeless := [task for task in tasks if task in known and not folder]:
        raise ValueError(f"expected --data FOLDER with {homeless[0]}-{split}.csv, got none")
    own = own_tasks(folder).keys() | known.keys()
    datasets = {
        task: load_own(task, split, folder, known.get(task))
        if task in own
        else load_dataset(task, split, folder)
        for task in tasks
    }
    for task in tasks if main_process() else ():  # both are easily taken for one's own rows
        if folder and task in (*OPEN, *DERIVED) and task not in available(folder):
            typer.echo(
                f"note: {folder} has no {task}; its {split} rows are those of the package", err=True
            )
        if not folder and task not in (*OPEN, *DERIVED):
            typer.echo(
                f"note: without --data, the {split} rows of {task} are a sample written by a grammar",
                err=True,
            )
    for dataset in datasets.values():
        for where, reason in dataset.skipped if main_process() else ():
            typer.echo(f"left out: {where}: {reason}", err=True)
    return datasets


def run_exists(folder: Path) -> bool:
    """Tell whether a run is there, finished or cut off before its first model."""
    from minbert.core.checkpoint import CHECKPOINT

    return any((folder / name).exists() for name in ("model", CHECKPOINT))


def check_begin(
    folder: Path,  # the run's folder
    resume: bool,  # go on
    overwrite: bool,  # begin anew
) -> None:
    """Say if there is nothing to resume. Raises ValueError, with the flag that helps, where a run
    or a model would be lost unasked.
    """
    from minbert.core.checkpoint import CHECKPOINT

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"expected a folder for the run, got the file {folder}")
    if resume and overwrite:
        raise ValueError(
            "expected --resume, which goes on, or --overwrite, which starts anew, got both"
        )
    if run_exists(folder) and not (resume or overwrite):
        raise ValueError(
            f"expected an empty folder, got a run in {folder}: --resume goes on, --overwrite starts anew"
        )
    if resume and not (folder / CHECKPOINT).exists():
        if run_exists(folder):
            raise ValueError(
                f"expected {CHECKPOINT} in {folder} to go on from, got a model without one: --overwrite starts anew and replaces it"
            )
        if main_process():
            typer.echo(f"note: no checkpoint in {folder}: a new run begins", err=True)


def check_tasks(
    tasks: Sequence[str],  # as typed, or the usual ones
    folder: Path | None,  # data folder; None: the package
) -> Sequence[str]:  # the same tasks
    """Raise ValueError for a name that no head can have, or, with the flag that helps, if the
    folder holds train and dev files of some tasks, or of others, only.
    """
    from minbert.cli.custom_tasks import can_be_named, misnamed
    from minbert.datasets.bigram_shift import DERIVED
    from minbert.datasets.formats import OPEN

    if odd := [task for task in tasks if not can_be_named(task)]:
        raise ValueError(
            f"expected names of tasks with blanks between them, of letters, digits and _, and none that PyTorch takes, got {odd[0]!r}"
        )
    there = [
        name for name, splits in available_tasks(folder).items() if {"train", "dev"} <= set(splits)
    ]
    asked = [task for task in tasks if task not in (*OPEN, *DERIVED)]  # the package has them
    meant = {
        file: name
        for task in asked
        if task not in there
        for file, name in misnamed(folder, task).items()
    }
    if meant:
        file, name = next(iter(meant.items()))
        raise ValueError(f"{file}: expected it to be called {name}, if it is meant")
    if asked:
        check_folder(folder)
    missing, found = (
        " ".join(task for task in asked if (task in there) == known) for known in (False, True)
    )
    if missing and there:
        raise ValueError(
            f"expected train and dev files of {missing} in {folder or 'the embedded data'}, found only those of "
            f"{', '.join(there)}"
            + ("" if folder else "; --data names a folder with files of your own")
            + (f": --tasks {found} trains on what is there" if found else "")
        )
    return tasks


def report(
    folder: Path,  # a run's folder; gets dev.md
    dev_sets: dict,  # task -> Dataset
) -> str:  # Markdown
    """Evaluate the best model of a run, and keep the table beside it."""
    from minbert.cli.class_report import with_names
    from minbert.cli.labelled_model import LabelledModel
    from minbert.evaluate import evaluate_tasks, results_table

    whole = LabelledModel.from_pretrained(folder / "model")
    table = results_table(with_names(evaluate_tasks(whole, dev_sets), dev_sets, whole))
    (folder / "dev.md").write_text(table + "\n", encoding="utf8")
    return table


def extensions(
    model,  # MultitaskBert
    surgery: str | None,  # pcgrad, gradvac, or None
    penalties: list[str],  # smart, proximal
    seed: int,  # of their draws
) -> dict:  # arguments of minbert.finetune.fit
    """Build what part 4 adds to a run: smoothness as in chapter 26, the rest with its defaults.
    Raises ValueError for another name.
    """
    from minbert.bregman import BregmanProximal
    from minbert.conflicts import GradVac
    from minbert.core.devices import new_accelerator
    from minbert.pcgrad import PCGrad
    from minbert.regularized import regularized_loss
    from minbert.smart_penalty import SmartPenalty

    kinds = {"pcgrad": PCGrad, "gradvac": GradVac}
    known = {
        "smart": lambda: SmartPenalty(epsilon=0.002, seed=seed),
        "proximal": lambda: BregmanProximal(previous="ema"),
    }
    if surgery not in (None, *kinds) or not set(penalties) <= set(known):
        raise ValueError(
            f"expected surgery {' or '.join(kinds)} and penalties among {', '.join(known)}, got {surgery} and {list(penalties)}"
        )
    accelerator = new_accelerator()
    extras = (
        {
            "backward": kinds[surgery](model, seed=seed, accelerator=accelerator),
            "accelerator": accelerator,
        }
        if surgery
        else {}
    )
    return extras | (
        {"loss_fn": regularized_loss(*(known[name]() for name in penalties))} if penalties else {}
    )


def preflight_notes(
    whole,  # LabelledModel, before its training
    train_sets: dict,  # task -> Dataset
    dev_sets: dict,  # task -> Dataset
    config,  # TrainConfig
) -> Iterator[str]:
    """Say before a run what its figures will not: dev rows that are learned from, scores on two
    scales, an epoch of few steps, text that is cut.
    """
    from minbert.cli.dev_report import scale_notes, seen_in_training
    from minbert.cli.table_reader import too_long
    from minbert.datasets.label_checks import sentences_of

    for task in whole.own:
        if seen := seen_in_training(train_sets[task], dev_sets[task]):
            yield f"note: {seen:,} of {len(dev_sets[task]):,} dev rows of {task} are in its train file, too: what they say of new text is too good"
        if len(dev_sets[task]) < 20:
            yield f"note: task {task} has {len(dev_sets[task])} dev row(s) only: a figure from so few says little, and its interval is not to be trusted"
    yield from scale_notes(train_sets, dev_sets, whole.own)
    rows, size = max(map(len, train_sets.values())), config.batch_size
    if config.steps is None and rows <= 4 * size:
        yield f"note: {rows} rows in batches of {size} are {-(-rows // size)} optimizer step(s) an epoch; --epochs or a smaller --batch-size gives more"
    for data in train_sets.values():
        if note := too_long(whole.encoder, sentences_of(data)):
            yield note


def summary_lines(
    result,  # FitResult
    whole,  # LabelledModel, which was trained
    train_sets: dict,  # task -> Dataset
    dev_sets: dict,  # task -> Dataset
    surgery=None,  # PCGrad or GradVac of the run
) -> Iterator[str]:
    """Say after a run what came of it: conflicts, scores on dev, and beside those of labels of
    one's own the bag of words.
    """
    from minbert.cli.dev_report import against_words
    from minbert.cli.labelled_model import LabelledModel
    from minbert.conflicts import conflict_summary

    for pair, found in conflict_summary(surgery.records).items() if surgery else ():
        yield f"{' and '.join(pair)}: gradients in conflict in {found.share:.0%} of {found.steps} steps"
    yield report(result.folder, dev_sets)
    for task in whole.own:
        yield against_words(
            LabelledModel.from_pretrained(result.folder / "model"),
            task,
            train_sets[task],
            dev_sets[task],
        )
    yield f"best dev mean {result.best:.3f} after step {result.best_step + 1}; model: {result.folder / 'model'}"


@app.command()
def train(
    tasks: TasksOption = None,
    folder: DataOption = None,
    model: ModelOption = EMBEDDED,
    out: Annotated[
        Path, typer.Option(help="The run's folder: model, log, checkpoint, dev.md.")
    ] = Path("runs/train"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the folder's checkpoint, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in the folder.")
    ] = False,
    schedule: Annotated[
        str,
        typer.Option(
            help="sequential, joint, round_robin, proportional, sqrt, uniform or annealed."
        ),
    ] = "joint",
    epochs: Annotated[int, typer.Option(help="Passes; joint: over the longest task.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps instead of epochs.")] = None,
    batch_size: Annotated[int, typer.Option(help="Rows of a task in a step (BERT-CF: 32).")] = 32,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Without it: 5e-4 up to width 256, 1e-4 up to 384, else the course's 1e-5; frozen 1e-3."
        ),
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Train the heads alone.")] = False,
    pooling: Annotated[
        str | None,
        typer.Option(help="Sentence vector. Without it: as saved with the model, else mean."),
    ] = None,
    quora_fraction: Annotated[float, typer.Option(help="Share of Quora in each pass.")] = 1.0,
    eval_every: Annotated[
        int | None, typer.Option(help="Steps; without it, after each epoch.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(help="Steps; without it, at each evaluation.")
    ] = None,
    surgery: Annotated[
        str | None,
        typer.Option(help="pcgrad or gradvac: what to do where tasks conflict, in joint steps."),
    ] = None,
    penalties: Annotated[
        list[str],
        typer.Option(
            "--penalties", help="smart, proximal; for what they do see chapters 23 and 24."
        ),
    ] = (),
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Matrix products in bfloat16, where the device has them.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="torch.compile each layer; GPU only.")
    ] = False,
    seed: SeedOption = 11711,
) -> None:
    """Fine-tune one encoder on several tasks and keep the best model on dev."""
    import torch

    from minbert.cli.custom_tasks import answers_of, build_heads, own_tasks
    from minbert.cli.labelled_model import LabelledModel
    from minbert.core.devices import leave_process_group
    from minbert.finetune import TrainConfig, default_learning_rate, fit
    from minbert.sentence import SentenceEncoder

    check_begin(out, resume, overwrite)
    tasks = check_tasks(usual_tasks(tasks, folder), folder)
    train_sets, dev_sets = (load_splits(tasks, split, folder) for split in ("train", "dev"))
    torch.manual_seed(seed)
    encoder = SentenceEncoder.from_pretrained(model, pooling)
    mode = "frozen" if frozen else "full"
    whole = LabelledModel(encoder, build_heads(encoder.width, train_sets), mode)
    whole.own = {task: answers_of(folder, task) for task in tasks if task in own_tasks(folder)}
    config = TrainConfig(
        tasks,
        schedule,
        epochs,
        steps,
        batch_size,
        mode=mode,
        lr=lr
        if lr is not None or frozen
        else default_learning_rate(encoder.model.config.hidden_size),
        precision="bf16" if bf16 else "fp32",
        compile=compile,
        seed=seed,
        eval_every=eval_every,
        save_every=save_every,
        quora_fraction=quora_fraction,
    )
    for note in preflight_notes(whole, train_sets, dev_sets, config) if main_process() else ():
        typer.echo(note, err=True)
    extras = extensions(whole, surgery, penalties, seed)
    result = fit(whole, train_sets, dev_sets, config, out, resume, progress=True, **extras)
    leave_process_group()
    for line in (
        summary_lines(result, whole, train_sets, dev_sets, extras.get("backward"))
        if main_process()
        else ()
    ):
        typer.echo(line)


def load_trained(
    folder: str | Path,  # as `fit` leaves it in model/
    hint: str = "",  # for somebody with another model
):  # -> NamedBert
    """Load what train wrote. Raises ValueError for any other folder."""
    from minbert.cli.labelled_model import LabelledModel
    from minbert.encoding.multitask_folder import DESCRIPTION

    if not (Path(folder) / DESCRIPTION).exists():
        inside = (Path(folder) / "model" / DESCRIPTION).exists()
        raise ValueError(
            f"expected a model folder written by train, got {str(folder)!r}{': its folder model is one' if inside else hint}"
        )
    return LabelledModel.from_pretrained(folder)


@app.command()
def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder written by train; with --sts any encoder: folder, hub name, 'embedded' or 'embedded-sentences'."
        ),
    ],
    folder: DataOption = None,
    split: Annotated[
        str | None, typer.Option(help="dev or test; without it dev, and test with --sts.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Write the course's files into this folder; for labels of your own, tables as predict writes them."
        ),
    ] = None,
    sts: Annotated[
        bool, typer.Option("--sts", help="Similarity sets by cosine instead, without any head.")
    ] = False,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            help="Which of the model's tasks; with --sts which of sts12 to sts16, stsb, sickr, and without it those in the folder, or the open captions.",
        ),
    ] = None,
    classes: Annotated[
        bool,
        typer.Option(
            "--classes",
            help="Also precision, recall and F1 of each class, and what it is most often taken for.",
        ),
    ] = False,
    aggregate: Annotated[str, typer.Option(help="all (SBERT), mean or wmean (BERT-flow).")] = "all",
) -> None:
    """Print the scores of a trained model beside its baselines, or write its predictions."""
    from minbert.cli.class_report import class_tables, with_names
    from minbert.cli.labelled_model import with_labels, write_answers
    from minbert.data import SPLITS
    from minbert.evaluate import Predicted, evaluate_tasks, results_table, write_predictions
    from minbert.sentence import SentenceEncoder
    from minbert.sts import sts_table

    if split not in (None, *SPLITS):
        raise ValueError(f"expected --split {' or '.join(SPLITS)}, got {split}")
    if sts and (predictions or classes):
        raise ValueError(
            "expected --predictions and --classes without --sts: cosines have no file format, and no classes"
        )
    if sts:
        typer.echo(
            sts_table(
                SentenceEncoder.from_pretrained(model), folder, tasks, split or "test", aggregate
            )
        )
        return
    if predictions and predictions.exists() and not predictions.is_dir():
        raise ValueError(f"expected a folder for --predictions, got the file {predictions}")
    whole = load_trained(model, "; --sts scores any encoder")
    datasets = load_splits(
        [task for task in tasks or whole.heads if whole.head(task)],
        split := split or "dev",
        folder,
        whole.own,
    )
    labelled = {task: d for task, d in datasets.items() if d.labels is not None}
    if not labelled and (classes or not predictions):
        raise ValueError(
            f"{split}: expected labels, or --predictions FOLDER alone for a split without any"
        )
    predicted = Predicted(whole, datasets)  # once, for the files and for the table
    if predictions:
        # the course's files have no names of classes, and one scale
        own = [task for task in datasets if task in whole.own]
        written = write_predictions(
            predicted,
            {task: data for task, data in datasets.items() if task not in own},
            predictions,
        )
        for task in own:
            written.append(file := predictions / f"{task}-{split}-output.csv")
            write_answers(
                whole, task, datasets[task], file, with_labels(whole, task, datasets[task])
            )
        for path in written:
            typer.echo(f"written: {path}")
    if labelled:
        typer.echo(results_table(with_names(evaluate_tasks(predicted, labelled), labelled, whole)))
    for table in class_tables(predicted, labelled, whole) if classes else ():
        typer.echo(f"\n{table}")


@app.command()
def split(
    text: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A table of sentences and their labels (.tsv, .csv: the first line names the columns; .jsonl, .parquet). Text also packed as .gz.",
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help="The column of sentences, or the two of pairs; without it sentence (or text), or sentence1 and sentence2.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The column of classes; without it label.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="The column of numbers, for pairs; without it score.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="A name for the task; without it, that of FILE.")
    ] = None,
    dev: Annotated[float, typer.Option(help="Share of the rows to choose by.")] = 0.1,
    test: Annotated[
        float,
        typer.Option(min=0, help="Share of the rows for the last look; 0 writes no test file."),
    ] = 0.1,
    out: Annotated[Path, typer.Option(help="The data folder; may hold other tasks.")] = Path(
        "data"
    ),
    seed: SeedOption = 11711,
) -> None:
    """Cut one table of your own into the train, dev and test files of a task; rows that share a
    sentence stay together.
    """
    from minbert.cli.dataset_split import counted, read_labelled, share_out, task_name, write_splits

    rows = read_labelled(text, columns, label, score)
    name = task_name(text, task, out)
    places = share_out(
        rows.groups, rows.classes, {"dev": dev} | ({"test": test} if test else {}), seed
    )
    files = write_splits(rows, places, out, name)
    if rows.contradicted:
        typer.echo(f"note: texts with more than one answer: {rows.contradicted:,}", err=True)
    typer.echo(counted(rows, places))
    typer.echo(
        f"written: {', '.join(map(str, files))}\nnext: {shlex.join(['minbert', 'train', '--data', str(out), '--tasks', name])}"
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder written by train or demo.")],
    text: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Sentences, one a line (.txt; blank lines get no row), or a table (.tsv, .csv: the first line names the columns; .jsonl, .parquet). Text also packed as .gz.",
        ),
    ],
    task: Annotated[
        str | None, typer.Option(help="Which of the model's tasks; without it, its only one.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help="Which columns hold the sentences; without it sentence (or text), or sentence1 and sentence2.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="A table, .csv or .tsv: what FILE has, and behind it the answers.")
    ] = Path("predictions.csv"),
) -> None:
    """Answer for sentences without labels: a class and its probability, or a score."""
    from minbert.cli.labelled_model import write_answers
    from minbert.cli.table_reader import is_table, read_named, whole_table
    from minbert.datasets.label_checks import sentences_of

    whole = load_trained(model)
    if task is None and len(whole.heads) > 1:
        raise ValueError(f"expected --task, one of {', '.join(whole.heads)}")
    pair = whole.head(task := task or next(iter(whole.heads))).pair
    rows = read_named(text, columns, pair)
    if out.exists() and out.samefile(text):
        raise ValueError(
            f"expected another file for the answers than {text}, from which they come: --out names one"
        )
    warn_truncation(whole.encoder, sentences_of(rows))
    write_answers(
        whole, task, rows, out, whole_table(text) if is_table(text) else None, progress=True
    )
    typer.echo(f"{len(rows):,} rows, answered as {task}: {out}")


@app.command()
def contrast(
    text: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Sentences, one a line (.txt); or pairs that mean the same, or triplets with a wrong one (.tsv, .csv: the first line names the columns; .jsonl, .parquet). Text also packed as .gz.",
        ),
    ],
    model: Annotated[
        str, typer.Option(help="Folder, hub name, 'embedded' or 'embedded-sentences'.")
    ] = "embedded-sentences",
    out: Annotated[
        Path, typer.Option(help="The run's folder: model, log, checkpoint, dev.md.")
    ] = Path("runs/contrast"),
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="Which columns of a table, in this order; without it, all."),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            help="A table of pairs and their grades (sentence1, sentence2, score; or three columns in this order), measured before and after."
        ),
    ] = None,
    heldout: Annotated[
        int,
        typer.Option(
            min=0,
            help="Pairs kept out and measured, at most; this costs at most a tenth of the rows.",
        ),
    ] = 1000,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the text.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps instead of epochs.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=2, help="Rows a step; each is a wrong answer of the others.")
    ] = 64,
    pooling: Annotated[
        str | None,
        typer.Option(help="Sentence vector. Without it: as saved with the model, else mean."),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            min=3,
            help="Tokens that are read of each text; without it as saved with the model.",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Without it: 3e-4 up to width 256, 1e-4 up to 384, else SimCSE's 3e-5."),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            help="Without it: as the model's config says; for single sentences, whose views differ by nothing else, at least .01."
        ),
    ] = None,
    whiten: Annotated[
        bool,
        typer.Option(
            "--whiten",
            help="Whiten the vectors afterwards, by those of this text (chapter 15); wants some thousands of sentences.",
        ),
    ] = False,
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Matrix products in bfloat16, where the device has them.")
    ] = False,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between two checkpoints.")] = 200,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the folder's checkpoint, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run in the folder.")
    ] = False,
    seed: SeedOption = 11711,
) -> None:
    """Train sentence vectors on text of your own, without grades, and say what it brought."""
    from minbert.cli.contrast import (
        ContrastConfig,
        check_rows,
        prepared,
        train_on_text,
        usual_contrast_rate,
    )
    from minbert.cli.retrieval_eval import compare_on, cosines, learned_from
    from minbert.cli.table_reader import read_graded, read_text
    from minbert.core.devices import leave_process_group
    from minbert.core.safetensors_io import tensor_checksum
    from minbert.encoding.pooling_spec import pooling_name
    from minbert.encoding.sentence_transformers_folder import ends_scaled
    from minbert.sentence import SentenceEncoder
    from minbert.tokens import resolve_folder

    check_begin(out, resume, overwrite)
    whole, graded = read_text(text, columns), read_graded(dev) if dev else None
    rows, comparison = compare_on(whole, graded, heldout, seed)
    check_rows(rows, batch_size)  # before a model is loaded, perhaps from the hub
    # whitened vectors have lengths of their own
    scaled = not whiten and ends_scaled(resolve_folder(model))
    encoder = prepared(
        SentenceEncoder.from_pretrained(model, pooling, normalize=scaled), rows, dropout
    )
    encoder.max_length = max_length or encoder.max_length
    for column in (rows.sentences, rows.sentences2, rows.sentences3) if main_process() else ():
        warn_truncation(encoder, column or [])
    config = ContrastConfig(
        steps or epochs * max(1, len(rows) // batch_size),
        usual_contrast_rate(encoder.model.config.hidden_size) if lr is None else lr,
        batch_size,
        precision="bf16" if bf16 else "fp32",
        save_every=save_every,
        whiten=whiten,
        seed=seed,
    )
    if main_process():
        if graded and (met := learned_from(graded, rows)):
            typer.echo(
                f"note: {met:,} of {len(graded):,} pairs of {dev} are learned from: what they say of new text is too good",
                err=True,
            )
        if whiten and (texts := len(rows) * (1 + bool(rows.sentences2))) < encoder.width:
            typer.echo(
                f"note: --whiten learns {encoder.width} directions from {texts:,} sentences: vectors of other text may become worse",
                err=True,
            )
        typer.echo(
            f"{rows.name}: {len(rows):,} of {len(whole):,} rows to learn from, {config.steps:,} steps",
            err=True,
        )
        comparison.add("before", cosines(encoder))
    begun_with = {
        "weights to begin with": tensor_checksum(encoder.cpu().state_dict()),
        "pooling": pooling_name(encoder.pooling),
        "max_length": encoder.max_length,
    }
    train_on_text(encoder, rows, config, out, resume, True, begun_with)
    leave_process_group()
    if main_process():
        comparison.add("after", cosines(encoder))
        why = (
            "single sentences have no partners"
            if rows.sentences2 is None
            else f"{len(whole):,} rows, --heldout {heldout}: no two pairs to hold out"
        )
        told = (
            comparison.table()
            if comparison
            else f"nothing was measured: {why}; --dev takes pairs with grades"
        )
        (out / "dev.md").write_text(told + "\n", encoding="utf8")
        typer.echo(f"{told}\nmodel: {out / 'model'}")


DEMO_FOLDER = Path("runs/demo")  # the only one that the demo replaces without being asked


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where model, table and figure go.")] = DEMO_FOLDER,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run in another folder.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="Passes over the open data.")] = 1,
    seed: SeedOption = 11711,
) -> None:
    """Fine-tune the embedded model on the embedded open data and print a table; no network, no GPU."""
    import matplotlib

    from minbert.cli.demo import demo_figure, demo_table, pair_cosines, tune_and_compare, word_order

    if out != DEMO_FOLDER and run_exists(out) and not overwrite:
        raise ValueError(f"expected an empty folder, got a run in {out}: --overwrite starts anew")
    train_sets, dev_sets = (load_splits(OPEN_TASKS, split, None) for split in ("train", "dev"))
    models, rows = tune_and_compare(train_sets, dev_sets, out, epochs, seed)
    # on its own: the other results do not depend on it
    order = [{"bigram_shift": word_order(split)} for split in ("train", "dev")]
    rows |= tune_and_compare(*order, out / "word-order", epochs, seed)[1]
    table = demo_table(rows)
    (out / "table.txt").write_text(table + "\n", encoding="utf8")
    matplotlib.use("agg")
    pairs = dev_sets["similarity"]
    demo_figure(
        {name: pair_cosines(model, pairs) for name, model in zip(("before", "after"), models)},
        pairs,
        out / "cosines.png",
    )
    typer.echo(
        f"\n{table}\n\nmodel:  {out / 'model'}, and of word order {out / 'word-order' / 'model'}\ntable:  {out / 'table.txt'}\nfigure: {out / 'cosines.png'}"
    )


@app.command()
def pretrain(
    corpus: Annotated[
        Path,
        typer.Argument(
            help="Folder of .txt or .txt.gz, or one such file: a sentence a line; files under heldout/ are only measured."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; an interrupted run goes on.")] = Path(
        "runs/pretrain"
    ),
    folder: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Data folder for the STS-B line of the card; without it, not measured."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps; without it, as in PretrainConfig.", min=1)
    ] = None,
    tokens_per_step: Annotated[
        int | None,
        typer.Option(
            help="Real tokens in a step; without it, as in PretrainConfig. A GPU likes 65536.",
            min=1,
        ),
    ] = None,
    about: Annotated[str, typer.Option(help="A sentence about the text, for the card.")] = "",
    license: Annotated[
        str | None, typer.Option(help="Of the model, for the card, such as cc-by-sa-3.0.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Of the text, for the card, such as en or de.")
    ] = None,
    bf16: Annotated[
        bool, typer.Option(help="Matrix products in bfloat16, where the device has them.")
    ] = True,
    model: Annotated[
        str | None,
        typer.Option(
            help="'embedded', a folder, or a name on the Hugging Face hub: this model reads on, four times over the text without --steps. Without it: random weights."
        ),
    ] = None,
    keep: Annotated[
        list[float] | None,
        typer.Option(
            help="Million tokens after which a copy of the model stays in step-N/; may be repeated."
        ),
    ] = None,
) -> None:
    """Pretrain a small BERT from random weights, or let a model read on in text of your own, and
    write model, log and card.
    """
    from minbert.cli.model_card import tokens_seen, write_card
    from minbert.cli.pretraining import PretrainConfig
    from minbert.cli.pretraining import pretrain as run
    from minbert.core.run_dir import read_log
    from minbert.corpus import corpus_files, heldout_sentences
    from minbert.corpus_cache import CORPUS
    from minbert.data import load_dataset
    from minbert.sts import sts_by_pooling

    sizes = {
        name: n for name, n in dict(total_steps=steps, tokens_per_step=tokens_per_step).items() if n
    }
    sizes |= {"precision": "bf16" if bf16 else "fp32"}
    if not corpus.exists() and (out / CORPUS).exists():
        typer.echo(
            f"note: {corpus} is not there: the run in {out} goes on with the text that it keeps, and nothing is measured on sentences held out",
            err=True,
        )
    elif not (out / CORPUS).exists():
        corpus_files(corpus)  # refuses what holds no text before a folder is made
    config, origin, start = (
        (PretrainConfig(**sizes), "random weights", None)
        if model is None
        else continue_from(model, corpus, out, sizes)
    )
    for row in run(
        corpus,
        out,
        config,
        heldout_sentences(corpus),
        [round(m * 1e6 / config.tokens_per_step) for m in keep or ()],
        start,
    ):
        typer.echo("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
    poolings = sts_by_pooling(out / "model", load_dataset("stsb", "dev", folder)) if folder else {}
    write_card(
        out / "model",
        config,
        read_log(out),
        tokens_seen(out, config),
        about or f"Text: {corpus.name}.",
        poolings,
        license,
        origin,
        language,
    )
    typer.echo(f"model: {out / 'model'}")


def continue_from(
    model: str,  # as typed
    corpus: Path,  # text to read
    out: Path,  # the run's folder
    settings: dict,  # of FurtherConfig
    # the run's config, words about its beginning for the card, the model that begins
) -> tuple:
    """Make a run ready that begins with a model, and say what it guesses before."""
    from minbert.cli.continue_pretraining import plan
    from minbert.corpus import heldout_sentences
    from minbert.pretrain import masked_accuracy
    from minbert.tokens import load_tokenizer

    config, start, head_from = plan(corpus, out, model, **settings)
    origin = f"`{Path(model).name}`" + (
        "" if head_from == "its own" else f" (its head is {head_from})"
    )
    typer.echo(f"{config.total_steps:,} steps from {origin}")
    if heldout := heldout_sentences(corpus):
        right, loss = masked_accuracy(start["bert"], start["head"], heldout, load_tokenizer(model))
        origin += f", which guessed {right:.1%} of the held-out words before ({loss:.2f} nats),"
        typer.echo(f"step 0  accuracy {right:.4g}  heldout_loss {loss:.4g}")
    else:
        typer.echo(
            "note: nothing tells what it brings: sentences in a folder heldout/ beside the text would be measured",
            err=True,
        )
    return config, origin, start


@app.command("fill-mask")
def fill_mask(
    model: Annotated[
        str,
        typer.Argument(
            help="A folder that pretrain wrote (its model/ or a step-N/), or 'embedded'."
        ),
    ],
    out: Annotated[Path, typer.Option(help="A new or empty folder.")] = Path("fill-mask"),
) -> None:
    """Write a pretrained model and its masked-token head for transformers' fill-mask."""
    from minbert.cli.export_fill_mask import write_fill_mask

    write_fill_mask(model, out)
    typer.echo(f'written: {out}; in Python: transformers.pipeline("fill-mask", "{out}")')
