"""One recipe on the GPU of this machine, from a notebook's cell: say what is missing or what it
will cost, train in sight, set the score beside the printed one.
"""

from __future__ import annotations

__all__ = ["reproduce_here", "lacking", "Watcher"]

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ..core.devices import GpuInfo, choose_device, find_card, half_type, product_speed
from ..core.figures import curves
from ..tokens import resolve_folder
from .compare_published import beside, compared
from .cost import PIECES, SHARE, Cost, cost_of, pieces_for, shapes_of, work_of
from .recipe import RECIPES, Recipe
from .result_store import find_result, hardware, missing_data, perform, unfinished
from .results_table import result_file
from .run import Run, Work
from .scale import SCALES, Scale
from .sizes import smaller_sets

ROOM = 0.9  # of the free memory that a run may plan with: what the estimate leaves out wants some


def lacking(recipe: Recipe, scale: Scale, data: str | None) -> str:
    """Say in one sentence what keeps a recipe from running here; nothing if all is there."""
    if choose_device().type != "cuda":
        return f"No GPU here: `minbert reproduce {recipe.name} --scale {scale.name} --data FOLDER` does the same on a machine that has one."
    if missing := missing_data(recipe, scale, data):
        return f"Data are missing: {missing}."
    try:
        resolve_folder(scale.base)
    except (ValueError, OSError) as error:
        return f"Weights are missing: {error}."
    return ""


def in_notebook() -> bool:
    """Tell whether there is a page to draw on."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


class Watcher:
    """A bar and a curve while a recipe trains. Losses stay on the device until a point is drawn."""

    def __init__(self, total: int, every: int = 25):
        from tqdm.auto import tqdm

        self.bar, self.every, self.held, self.points, self.place = (
            tqdm(total=total, unit="step"),
            every,
            [],
            [],
            None,
        )

    def __call__(self, stage: str, step: int, loss) -> None:
        """Note a step; draw when there are enough."""
        self.held.append(torch.as_tensor(loss))
        self.bar.update()
        if len(self.held) >= self.every:
            self.draw(stage)

    def draw(self, stage: str) -> None:
        """Add the mean of the held losses to the curve."""
        mean = float(torch.stack(self.held).float().mean())
        self.held = []
        self.points.append(mean)
        self.bar.set_postfix_str(f"{stage}: loss {mean:.3f}")
        if in_notebook():  # a terminal has the bar alone
            self._show()

    def _show(self):
        from IPython.display import display
        from matplotlib import pyplot

        steps = [self.every * (k + 1) for k in range(len(self.points))]
        figure = curves(
            {"ours: training": (steps, self.points)}, "step", f"loss, mean of {self.every} steps"
        ).figure
        if self.place is None:
            self.place = display(figure, display_id=True)
        elif hasattr(self.place, "update"):
            self.place.update(figure)
        pyplot.close(figure)


def told(recipe: Recipe, result: dict, run: Run) -> str:
    """Say all that came out, and where it lies."""
    texts = [
        f"text used: {name}, {count:,} sentences" for name, count in result.get("texts", {}).items()
    ]
    stages = run.out / "stages"
    # a result that was stored before
    models = [f"model: {folder}" for folder in dict.fromkeys(run.kept)] or [
        f"models: {stages}"
    ] * stages.is_dir()
    parts = [
        beside(recipe, result),
        compared(recipe, result, run.out),
        *texts,
        *models,
        f"result: {result_file(run.out, recipe.name)}",
    ]
    return "\n".join(filter(None, parts))


class Plan(NamedTuple):
    """How a run goes on the card at hand."""

    works: list[Work]
    texts: dict[str, int]
    card: GpuInfo | None
    speed: float  # operations a second
    pieces: int | None  # of a step of fine-tuning; None: it does not fit
    cost: Cost


def planned(recipe: Recipe, run: Run) -> Plan:
    """Count the work, ask the card, and take steps in as few pieces as fit. Raises ValueError in
    one line for missing data or weights.
    """
    texts, device = {}, choose_device()
    works = work_of(recipe, run.scale, run.data, texts, run)
    if any(w.large for w in works):
        resolve_folder(run.scale.large)
    card = find_card(device)
    speed = SHARE * product_speed(device, run.scale.precision)
    shapes = shapes_of(run.scale)
    pieces = pieces_for(works, shapes, ROOM * card.free) if card else 1
    return Plan(
        works, texts, card, speed, pieces, cost_of(works, *shapes, speed, pieces or PIECES[-1])
    )


def too_large(recipe: Recipe, plan: Plan) -> str:
    """Say that a run does not fit, and what would."""
    need, card = plan.cost.memory, plan.card
    return (
        f"{recipe.name} does not fit: it takes about {need:.1f} GB with steps in {PIECES[-1]} pieces, and {card.name} has {card.free:.1f} of {card.memory:.1f} GB free. "
        f'End what else holds its memory, take a card with {math.ceil(need / ROOM)} GB, or a smaller encoder: scale="small".'
    )


def price(recipe: Recipe, plan: Plan, precision: str) -> str:
    """Say before a run starts what it takes, and with which settings it runs."""
    held = {torch.bfloat16: "bfloat16", torch.float16: "float16, losses scaled"}.get(
        half_type(choose_device(), precision), "float32"
    )
    room = f" of {plan.card.free:.1f} GB free" if plan.card else ""
    pieces = f", steps of fine-tuning in {plan.pieces} pieces" if plan.pieces > 1 else ""
    return "\n".join(
        [
            f"{recipe.name} on {hardware()} in {held}: about {plan.cost.minutes:.0f} minutes at {plan.speed:.1e} operations a second, {SHARE:.0%} of what was measured just now; "
            f"{plan.cost.memory:.1f} GB{room}{pieces}",
            *(f"   {key}: {value}" for key, value in recipe.settings.items()),
            *(f"   text: {name}, {count:,} sentences" for name, count in plan.texts.items()),
        ]
    )


def run_in_sight(recipe: Recipe, run: Run) -> dict | None:
    """Say what a run costs, train with a bar, and show what came out; None if something is missing
    or does not fit, which is said.
    """
    try:
        plan = planned(recipe, run)
    except (ValueError, OSError) as error:
        # text that a stage reads, a row that an example wants, weights
        print(f"Something is missing: {error}.")
        return None
    if plan.pieces is None:
        print(too_large(recipe, plan))
        return None
    print(price(recipe, plan, run.scale.precision))
    for line in smaller_sets([recipe], run.scale, run.data):
        print(f"   note: {line}")
    run = replace(
        run, pieces=plan.pieces, watch=Watcher(sum(w.steps for w in plan.works if w.steps > 1))
    )
    result = perform(recipe, run)
    run.watch.bar.close()
    print(told(recipe, result, run))
    return result


def reproduce_here(
    name: str,  # of a recipe, such as "hu/mirror"
    data: str | None = None,  # folder of data sets; None: what the package has, at micro alone
    out: str | Path = "reproduced",  # where results and stages are kept
    scale: str | Scale = "paper",  # a key of `SCALES`, or sizes of your own
    seed: int = 1,  # of the run
) -> dict | None:  # the stored result; None if something is missing, which is said
    """Run a recipe on this machine's GPU: costs first, then a bar and a curve, then every score
    beside what was printed. What is stored is shown, not made again.

    The result lies in out/SCALE, where `minbert reproduce report` finds it; the models in
    out/SCALE/stages, and a run that was cut off goes on from those that are whole. Raises
    ValueError naming the file of a stored result with other settings.
    """
    recipe, size = RECIPES[name], SCALES[scale] if isinstance(scale, str) else scale
    run = Run(size, seed, data, Path(out) / size.name, keep=True)
    if not missing_data(recipe, size, data) and not unfinished(
        [recipe], replace(size, seeds=(seed,)), run.out
    ):
        result = find_result(run.out, name, run.seed, size.name)
        print(
            f"{name}, seed {seed}, is stored already: {result['seconds'] / 60:.0f} minutes on {result['versions']['hardware']}.\n{told(recipe, result, run)}"
        )
        return result
    if reason := lacking(recipe, size, data):
        print(reason)
        return None
    return run_in_sight(recipe, run)
