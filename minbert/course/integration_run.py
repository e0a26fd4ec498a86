"""Integration run: a copy of the package with a learner's own functions in it is trained beside the
reference, and the scores are compared.

Training runs in double precision, because two correct programs add in different orders, and in
single precision the rounding would grow over forty steps. Each training has a process of its own,
since one process cannot import two versions of a package. Python's profiler notes which functions
were called, because equal scores say nothing about an answer that was never used.
"""

__all__ = [
    "TRAIN",
    "TOLERANCE",
    "module_with",
    "modules_with",
    "trained",
    "called_parts",
    "Assembled",
    "assemble",
]

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..core.atomic_dir import held_folder
from .answer_extraction import Notebook, answer, around
from .exercises import EXERCISES, Exercise
from .grading import LEARNERS_SEED, grade, read_submission
from .sandbox import copy_package, stubbed_package
from .source_tools import find, module_text, parse, source_of, span
from .workspace import workspace_state


def module_with(
    notebook: Notebook,  # the learner's chapter
    tasks: list[Exercise],  # of one module, that passed
) -> str:  # source of the module
    """Put the answers to some exercises into their module; all others are the reference."""
    module = tasks[0].module
    base, targets = module_text(module), {task.target for task in tasks}
    others = {
        e.target: source_of(base, e.target)
        for e in EXERCISES.values()
        if e.module == module and e.target not in targets
    }
    return around(
        notebook,
        module,
        {task.target: answer(notebook, task.target, task.given) for task in tasks},
        others,
    )


def modules_with(
    notebooks: dict[str, Notebook],  # module -> the learner's chapter
    passed: Iterable[str],  # names of exercises
) -> dict[str, str]:  # module -> source
    """Write all modules that hold an answer."""
    by_module = {}
    for name in passed:
        by_module.setdefault(EXERCISES[name].module, []).append(EXERCISES[name])
    return {module: module_with(notebooks[module], tasks) for module, tasks in by_module.items()}


TRAIN = """
import cProfile, json, sys, tempfile
from pathlib import Path

import accelerate, torch, torch._dynamo, transformers.models.bert  # now: a profile makes their import three times as long

import minbert
import minbert.training
import minbert.optim
import minbert.finetune
from minbert.data import load_dataset
from minbert.encoding.forward import only_taught_code
from minbert.heads import MultitaskBert, default_heads
from minbert.sentence import SentenceEncoder
from minbert.finetune import TrainConfig, fit, default_learning_rate

# the optimizer and the step that learners write
minbert.finetune.FusedAdamW, minbert.finetune.DeviceStep = minbert.optim.AdamW, lambda *settings: minbert.training.one_step
room, result, (steps, seed, rows) = Path(sys.argv[1]), Path(sys.argv[2]), map(int, sys.argv[3:])
assert Path(minbert.__file__).resolve().is_relative_to(room.resolve()), minbert.__file__
tasks = ("sentiment", "inference", "similarity")
train_sets, dev_sets = ({t: load_dataset(t, split) for t in tasks} for split in ("train", "dev"))
train_sets = {t: d.draw(min(16 * steps, len(d)), torch.Generator().manual_seed(seed)) for t, d in train_sets.items()}  # no more is read
dev_sets = {t: d.subset(range(min(rows, len(d)))) for t, d in dev_sets.items()}
profile = cProfile.Profile()
profile.enable()
torch.manual_seed(seed)
encoder = SentenceEncoder.from_pretrained()
model = MultitaskBert(encoder, default_heads(encoder.width, tasks)).double()
config = TrainConfig(tasks, steps=steps, batch_size=16, lr=default_learning_rate(encoder.width), seed=seed, eval_every=steps)
with tempfile.TemporaryDirectory() as folder, only_taught_code():  # else a fused kernel would take the place of answers
    log = fit(model, train_sets, dev_sets, config, folder).log
profile.disable()
package = Path(minbert.__file__).parent.resolve()
called = [(Path(e.code.co_filename).stem, e.code.co_firstlineno, e.code.co_name) for e in profile.getstats()
          if not isinstance(e.code, str) and Path(e.code.co_filename).resolve().parent == package]
losses = [line["loss"] for line in log if "loss" in line]
result.write_text(json.dumps({"metrics": [line["dev"] for line in log if "dev" in line][-1], "losses": losses, "called": called}))
"""


def _start(
    room: Path,  # folder that holds a copy of the package
    result: Path,  # file to be written
    *numbers: int,  # steps, seed, dev rows of a task
) -> subprocess.Popen:
    """Start a training with the package in a room."""
    script = room / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    path = os.pathsep.join([str(room), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_USE_CPU": "true",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(script), str(room), str(result), *map(str, numbers)],
        cwd=room,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=result.with_suffix(".log").open("wb"),
    )


def _finish(
    run: subprocess.Popen,
    result: Path,
    what: str,  # was trained, for the message
    seconds: float,
) -> dict:
    """Wait for a training. Raises ValueError that quotes its last words."""
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"expected a training with {what} to end within {seconds:.0f} seconds, it did not"
        ) from None
    if not result.is_file():
        said = (
            result.with_suffix(".log")
            .read_text(encoding="utf-8", errors="replace")
            .strip()
            .split("\n")
        )
        raise ValueError(
            f"expected a training with {what} to end well, it stopped: " + "\n".join(said[-6:])
        )
    return json.loads(result.read_text(encoding="utf-8"))


def trained(
    texts: dict[str, str],  # module -> source; everything else is the reference
    steps: int,  # of each training
    seed: int,  # of both
    rows: int = 10**6,  # of each task's dev sentences, at most
    seconds: float = 1800.0,  # limit of a training
    # what the same training gave with the references, if it is known
    reference: dict | None = None,
) -> tuple[dict, dict]:  # with the texts and without: metrics, losses, called functions
    """Train twice at the same time: with some modules written anew, and with the references. Raises
    ValueError for a training that stops or takes too long.
    """
    with held_folder(tempfile.gettempdir(), "minbert-assemble-") as folder:
        base = copy_package(Path(folder) / "base").parent
        rooms = [stubbed_package(base, Path(folder) / "mine", texts), base]
        names = ["your parts", "the references"][: 2 if reference is None else 1]
        results = [Path(folder) / f"{name}.json" for name in names]
        runs = [_start(room, result, steps, seed, rows) for room, result in zip(rooms, results)]
        try:
            found = [
                _finish(run, result, name, seconds)
                for run, result, name in zip(runs, results, names)
            ]
        finally:
            for run in runs:
                run.kill()
                run.wait()
    return found[0], reference or found[1]


def called_parts(
    texts: dict[str, str],  # module -> source
    passed: Iterable[str],  # names of exercises
    called: list,  # (module, first line, name) of functions that were called
) -> tuple[str, ...]:  # names of exercises
    """Tell which answers a training used."""
    used = []
    for task in (EXERCISES[name] for name in passed):
        first, last = span(find(parse(texts[task.module]), task.target))
        if any(module == task.module and first <= line <= last for module, line, _ in called):
            used.append(task.name)
    return tuple(used)


TOLERANCE = 1e-4


class Assembled(NamedTuple):
    """A model of a learner's parts, beside that of the references."""

    # exercises whose answers are in the model's package
    parts: tuple[str, ...]
    used: tuple[str, ...]  # those of them that the training called
    left: dict[str, str]  # exercise -> why the reference stands there
    # task -> score with the learner's parts, with the references
    metrics: dict[str, tuple[float, float]]
    losses: tuple[float, float]  # of the last step
    steps: int

    @property
    def difference(self) -> float:
        """Give the largest difference of a score; a score that only one of the two has is
        infinitely far away.
        """
        apart = [
            0.0 if mine == ours or (math.isnan(mine) and math.isnan(ours)) else abs(mine - ours)
            for mine, ours in self.metrics.values()
        ]
        return max(math.inf if math.isnan(d) else d for d in apart)

    @property
    def agrees(self) -> bool:
        """Tell whether no score differs by more than rounding."""
        return self.difference < TOLERANCE

    def __str__(self) -> str:
        rows = [
            f"{name:<12}{mine:>16.6f}{ours:>16.6f}{abs(mine - ours):>14.1e}"
            for name, (mine, ours) in [*self.metrics.items(), ("last loss", self.losses)]
        ]
        own = [
            f"  {name:<28}{'called' if name in self.used else 'in its place, not called by this training'}"
            for name in self.parts
        ]
        rest = [f"  {name:<28}{why}" for name, why in self.left.items()]
        verdict = (
            f"Your model is the reference's: the largest difference of a score is {self.difference:.1e}, below {TOLERANCE:.0e}."
            if self.agrees
            else f"Your model is another: the largest difference of a score is {self.difference:.1e}, expected below {TOLERANCE:.0e}. "
            "Either a part does something else than its check has seen, or it draws its random numbers in another order."
        )
        return "\n".join(
            [
                f"{len(self.parts)} of {len(self.parts) + len(self.left)} parts are yours:",
                *own,
                *(["the reference stands for:", *rest] if rest else []),
                "",
                f"{self.steps} steps{'':<{max(1, 6 - len(str(self.steps)))}}{'your parts':>16}{'references':>16}{'difference':>14}",
                *rows,
                "",
                verdict,
            ]
        )


def assemble(
    folder: str | Path,  # of a workspace
    # of each of the two trainings; about a minute on two cores
    steps: int = 40,
    seed: int = 11711,  # the course's default
    passed: Iterable[str] | None = None,  # names of exercises; None: the checks decide
    rows: int = 10**6,  # of each task's dev sentences, at most
) -> Assembled:
    """Train a model of everything a learner wrote that passes its check, and the reference's beside
    it.

    Nothing in the workspace is changed. Raises ValueError if the folder is no workspace, nothing
    passes, or the training stops.
    """
    folder = Path(folder).absolute()
    workspace_state(folder)
    if steps < 1:
        raise ValueError(f"expected at least 1 step, got {steps}")
    left = {}
    if passed is None:
        results = grade([folder], seed=LEARNERS_SEED, allow_weak=True)[0][0].results
        left = {
            name: result.status for name, result in results.items() if result.status != "passed"
        }
        passed = [name for name in results if name not in left]
    passed = tuple(passed)
    if not passed:
        raise ValueError(
            "expected an exercise that passes its check, found none: `minbert course status` tells more"
        )
    left = left or {name: "not asked for" for name in EXERCISES if name not in passed}
    texts = modules_with(read_submission(folder.name, folder).notebooks, passed)
    mine, reference = trained(texts, steps, seed, rows)
    metrics = {task: (mine["metrics"][task], score) for task, score in reference["metrics"].items()}
    return Assembled(
        passed,
        called_parts(texts, passed, mine["called"]),
        left,
        metrics,
        (mine["losses"][-1], reference["losses"][-1]),
        steps,
    )
