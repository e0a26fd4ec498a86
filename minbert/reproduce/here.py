"""One recipe on the GPU of this machine, from a notebook's cell: say what is missing or what it will cost, train in sight, set the score beside the printed one."""
from __future__ import annotations

__all__ = ["reproduce_here", "lacking", "Watcher"]

import sys
from pathlib import Path

import torch

from ..claims import SCORES
from ..engine.devices import choose_device, half_type
from ..engine.figures import curves
from ..tokens import resolve_folder
from .cost import SHAPES, SPEED, cost_of, work_of
from .published import published
from .recipe import RECIPES, Recipe
from .report import _gold, _printed
from .run import Run, labelled
from .scale import SCALES, Scale
from .store import hardware, missing_data, perform


def lacking(recipe: Recipe, scale: Scale, data: str | None) -> str:
    """Say in one sentence what keeps a recipe from running here; nothing if all is there."""
    if choose_device().type != "cuda":
        return f"No GPU here: `minbert reproduce {recipe.name} --scale {scale.name} --data FOLDER` does the same on a machine that has one."
    if missing := missing_data(recipe, data):
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

        self.bar, self.every, self.held, self.points, self.place = tqdm(total=total, unit="step"), every, [], [], None

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
        if in_notebook():   # a terminal has the bar alone
            self._show()

    def _show(self):
        from IPython.display import display
        from matplotlib import pyplot

        steps = [self.every * (k + 1) for k in range(len(self.points))]
        figure = curves({"ours: training": (steps, self.points)}, "step", f"loss, mean of {self.every} steps").figure
        if self.place is None:
            self.place = display(figure, display_id=True)
        elif hasattr(self.place, "update"):
            self.place.update(figure)
        pyplot.close(figure)


def beside(recipe: Recipe, result: dict, data: str | None) -> str:
    """Write each score beside what was printed, and the interval that the printed one has from its rows."""
    lines = [f"{'':34}{'here':>8}{'printed':>9}   expected from the rows alone"]
    for cell in recipe.cells:
        taken = result["measured"].get(cell.measured)
        if taken is None:
            continue
        value = taken["value"] if "value" in taken else SCORES[taken["metric"]](
            torch.tensor(taken["answers"]).double().numpy(), _gold(labelled(taken["dataset"], data), taken["metric"]))
        printed = _printed(published()[recipe.paper, *cell[:3]].value, cell.measured)
        span = "" if printed.low != printed.low else f"{printed.low:.3f} to {printed.high:.3f}"
        lines.append(f"{cell.table + ' ' + cell.metric:34}{value:8.3f}{printed.value:9.3f}   {span}")
    return "\n".join(lines)


def reproduce_here(
    name: str,                     # of a recipe, such as "hu/mirror"
    data: str | None = None,       # folder of data sets; None: what the package has
    out: str | Path = "reproduced",
    scale: str | Scale = "paper",
    seed: int = 1,
) -> dict | None:                  # the stored result; None if something is missing, which is said
    """Run a recipe on this machine's GPU: costs first, then a bar and a curve, then the score beside the printed one.

    The result lies in out/SCALE, where `minbert reproduce report` finds it; trained models lie in out/SCALE/stages.
    """
    recipe, size = RECIPES[name], SCALES[scale] if isinstance(scale, str) else scale
    if reason := lacking(recipe, size, data):
        print(reason)
        return None
    try:
        works = work_of(recipe, size, data)
    except ValueError as error:   # text that a stage reads, or a row that an example wants
        print(f"Data are missing: {error}.")
        return None
    cost = cost_of(works, SHAPES.get(size.base, SHAPES["bert-base-uncased"]))
    held = {torch.bfloat16: "bfloat16", torch.float16: "float16, losses scaled"}.get(half_type(torch.device("cuda"), size.precision), "float32")
    print(f"{name} on {hardware()} in {held}: about {cost.minutes:.0f} minutes at {SPEED:.0e} operations a second, {cost.memory:.1f} GB")
    print("\n".join(f"   {key}: {value}" for key, value in recipe.settings.items()))
    watcher = Watcher(sum(w.steps for w in works if w.steps > 1))
    result = perform(recipe, Run(size, seed, data, Path(out) / size.name, watch=watcher))
    watcher.bar.close()
    print(beside(recipe, result, data))
    return result
