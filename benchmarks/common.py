"""What the benchmark scripts share: real sentences, and ratios of medians from interleaved runs."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from minbert.core.devices import imitates_bf16
from minbert.papers.result_store import processor

# of this processor: nobody would take one that it imitates
NATIVE_PRECISIONS = ("fp32", *["bf16"] * (not imitates_bf16(torch.device("cpu"))))


def parser(
    text: str, precisions: tuple[str, ...] = NATIVE_PRECISIONS, stores: bool = False
) -> argparse.ArgumentParser:
    """Options that every benchmark has; --store for those that write what they measured."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("--model", required=True, help="Hugging Face folder of a BERT")
    made.add_argument("--data", required=True, help="folder that holds cs224n/quora-train.csv")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--precision", nargs="+", choices=precisions, default=precisions)
    made.add_argument("--repeats", type=int, default=5, help="rounds; each runs every variant once")
    if stores:
        made.add_argument(
            "--store",
            type=Path,
            help="folder for the results as JSON, such as results/benchmarks, for the site",
        )
    return made


def question_pairs(data: str) -> list[tuple[str, str]]:
    """Pairs of Quora questions in file order; rows with an empty side are left out."""
    lines = (Path(data) / "cs224n" / "quora-train.csv").read_text(encoding="utf-8").splitlines()[1:]
    fields = (line.split("\t") for line in lines)
    return [
        (f[2].strip(), f[3].strip())
        for f in fields
        if len(f) == 5 and f[2].strip() and f[3].strip()
    ]


def mean(hidden, mask):
    """(B, T, D) -> (B, D), over real tokens."""
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def interleave(
    # name -> what to time; gets the number of the round
    variants: dict[str, Callable[[int], object]],
    repeats: int,
) -> dict[str, tuple[list[float], list[float]]]:  # name -> wall and processor seconds, one a round
    """Time every variant once in each round, in an order that rotates."""
    names, spent = list(variants), {name: ([], []) for name in variants}
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            variants[name](turn)
            spent[name][0].append(time.perf_counter() - wall)
            spent[name][1].append(time.process_time() - cpu)
    return spent


def ratios(
    spent: dict,
    base: str,
    work: int,
    # name -> work a second, ratio of wall time, of processor time
) -> dict[str, list[float]]:
    """Give the median speed of each variant, and the median over rounds of its ratio to `base`."""

    def median(name, k):
        return statistics.median(b / t for b, t in zip(spent[base][k], spent[name][k]))

    return {
        name: [work / statistics.median(times[0]), median(name, 0), median(name, 1)]
        for name, times in spent.items()
    }


def table(spent: dict, base: str, work: int, unit: str) -> None:
    """Print the median speed of each variant and its ratio to `base`."""
    print(
        f"{torch.get_num_threads()} thread(s), torch {torch.__version__}, {len(spent[base][0])} interleaved rounds"
    )
    print(f"{'':34}{unit + '/s':>14}{'ratio, wall':>14}{'ratio, cpu':>14}")
    for name, (speed, wall, cpu) in ratios(spent, base, work).items():
        print(f"{name:34}{speed:14.1f}{wall:14.2f}{cpu:14.2f}")


def shape(config) -> str:
    """Say how large an encoder is."""
    return f"{config.num_hidden_layers} layers of {config.hidden_size}"


def store(
    folder: Path,
    name: str,
    says: str,
    spent: dict,
    base: str,
    work: int,
    unit: str,
    options: str = "",
    beside: dict[str, dict[str, float]] | None = None,
) -> None:
    """Write what `table` prints as FOLDER/NAME.json. beside: further columns, column -> variant ->
    number.
    """
    # paths stay out
    command = f"python benchmarks/{name.split('-')[0]}.py --model MODEL --data DATA{options}"
    rows = {
        variant: numbers + [column[variant] for column in (beside or {}).values()]
        for variant, numbers in ratios(spent, base, work).items()
    }
    keep(
        folder,
        name,
        says,
        command,
        len(spent[base][0]),
        [f"{unit}/s", "ratio, wall", "ratio, processor", *(beside or {})],
        rows,
    )


def keep(
    folder: Path,
    name: str,
    says: str,
    command: str,
    rounds: int,
    columns: list[str],
    rows: dict,
    **more,
) -> None:
    """Write a table as FOLDER/NAME.json, with the machine."""
    run = {
        "name": says.partition(":")[0],
        "says": says,
        "command": command,
        "machine": f"{processor()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}",
        "rounds": rounds,
        "columns": columns,
        "rows": rows,
    } | more
    write(folder, name, run)


def write(folder: Path, name: str, run: dict) -> None:
    """Write FOLDER/NAME.json, for the site."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


COST = ["seconds", "times, wall", "times, processor"]


def costs(
    spent: dict,
    base: str,
    # name -> seconds, and how many times those of `base`: wall, processor
) -> dict[str, list[float]]:
    """Say how many times the time of `base` each variant takes: the median over rounds."""

    def times(name, k):
        return statistics.median(t / b for b, t in zip(spent[base][k], spent[name][k]))

    return {
        name: [statistics.median(wall), times(name, 0), times(name, 1)]
        for name, (wall, _) in spent.items()
    }


def cost(spent: dict, base: str) -> None:
    """Print `costs`."""
    print(
        f"{torch.get_num_threads()} thread(s), torch {torch.__version__}, {len(spent[base][0])} interleaved rounds"
    )
    print(f"{'':34}" + "".join(f"{column:>18}" for column in COST))
    for name, (seconds, wall, cpu) in costs(spent, base).items():
        print(f"{name:34}{seconds:18.3f}{wall:18.2f}{cpu:18.2f}")


def seconds(spent: dict) -> None:
    """Print how long each variant took, for what has no rival to be compared with."""
    print(f"{'':20}{'wall [s], median':>18}{'worst':>8}{'processor [s]':>16}")
    for name, (wall, cpu) in spent.items():
        print(
            f"{name:20}{statistics.median(wall):18.2f}{max(wall):8.2f}{statistics.median(cpu):16.2f}"
        )
