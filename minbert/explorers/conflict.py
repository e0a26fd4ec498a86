"""Gradients that disagree, as arrows to drag: what sum, PCGrad, GradVac and the shortest mixture
make of them, and where each of them leads.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
import torch

from minbert.conflicts import vaccine_weights
from minbert.core.figures import EXTRA, PALETTE, heatmap, panel, panels
from minbert.explorers.base import BESIDE, Explorer, choice, point, slider, switch
from minbert.pcgrad import Surgery, project_weights

STEPS = {
    "sum": (PALETTE["baseline"], "--", "o"),
    "PCGrad": (PALETTE["ours"], "-", "s"),
    "GradVac": (EXTRA[1][0], "-.", "^"),
    "shortest": (EXTRA[0][0], ":", "D"),
}
REACH = 3.0  # of the weight plane, in each direction


def shortest_weights(
    gram: np.ndarray,  # (T, T) inner products of the gradients, T = 2 or 3
) -> np.ndarray:  # (T,) weights >= 0 that add up to 1
    """Find the shortest vector among all mixtures of the gradients: no task loses along it.

    min |sum_i w_i g_i|^2 over w >= 0, sum w = 1, by trying every face of the triangle.
    Paper: Désidéri (2012), the common descent direction of multiple-gradient descent.
    """
    tasks, best, shortest = len(gram), None, np.inf
    for size in range(1, tasks + 1):
        for face in map(list, combinations(range(tasks), size)):
            part = gram[np.ix_(face, face)]
            found = np.linalg.lstsq(
                np.block([[part, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]]),
                np.r_[np.zeros(size), 1.0],
                rcond=None,
            )[0][:-1]
            weights = np.zeros(tasks)
            weights[face] = found
            length = weights @ gram @ weights
            if (found >= -1e-9).all() and abs(found.sum() - 1) < 1e-6 and length < shortest - 1e-12:
                best, shortest = weights.clip(0), length
    return best


def _seeded():
    """Draw the orders of tasks with one seed, so that the same arrows give the same picture."""
    return torch.Generator().manual_seed(0)


RULES = {  # (T, T) inner products and GradVac's target -> (T,) how often each gradient counts
    "sum": lambda gram, target: np.ones(len(gram)),
    "PCGrad": lambda gram, target: project_weights(torch.from_numpy(gram), _seeded()).numpy(),
    "GradVac": lambda gram, target: vaccine_weights(
        torch.from_numpy(gram),
        torch.full(gram.shape, float(target), dtype=torch.float64),
        0.0,
        generator=_seeded(),
    )[0].numpy(),
    # times T, as the others are sums
    "shortest": lambda gram, target: len(gram) * shortest_weights(gram),
}


def mixtures(
    grads: np.ndarray,  # (T, P) one gradient a task
    target: float = 0.3,  # the cosine that GradVac turns each pair to, in [0, 1)
) -> dict[str, np.ndarray]:  # name of the rule -> (P,) the step
    """Mix gradients by each rule."""
    return {name: rule(grads @ grads.T, target) @ grads for name, rule in RULES.items()}


# Two valleys of one weight plane, steep across and flat along: (where the floor is lowest,
# direction of the floor, slope along, slope across).
VALLEYS = [((1.6, 0.4), 0.35, 0.15, 6.0), ((-0.4, 1.5), -0.9, 0.15, 6.0)]


def valley(place, centre, angle, along, across):  # (..., 2) -> (...), (..., 2)
    """Give the height of a long valley, and its gradient."""
    axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    y = (place - np.array(centre)) @ axes.T
    slopes = np.array([along, across])
    return 0.5 * (slopes * y * y).sum(-1), (slopes * y) @ axes


@lru_cache(64)
def descend(start, rule, target, adam, steps=60, rate=0.08):  # -> (steps + 1, 2)
    """Follow one rule down two valleys, in plain steps or with Adam's running means (betas .9 and
    .999).
    """
    place = np.array(start, dtype=float)
    m = np.zeros(2)
    v = np.zeros(2)
    path = [np.array(start, dtype=float)]
    for t in range(1, steps + 1):
        grads = np.stack([valley(place, *shape)[1] for shape in VALLEYS])
        g = RULES[rule](grads @ grads.T, target) @ grads
        if adam:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            g = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        place = (place - rate * g).clip(-2 * REACH, 2 * REACH)
        path.append(place)
    return np.array(path)


class ConflictExplorer(Explorer):
    """Drag the gradients of two or three tasks, and see the step that each rule makes of them.

    Views: the arrows; two valleys and the paths down them; with `records`, the steps of a real run.
    """

    title = "Gradients in conflict"

    def __init__(
        self,
        records: list[Surgery] = (),  # `PCGrad.records` or `GradVac.records` of a run
    ):
        self.records = list(records)

    def _controls(self):
        views = ["arrows", "two valleys"] + ["a real run"] * bool(self.records)
        handles = [((2.0, 0.4), "first"), ((-1.2, 1.4), "second"), ((0.3, -1.6), "third")]
        made = [
            choice("view", "arrows", views, help="What is drawn."),
            choice(
                "tasks",
                "two",
                ["two", "three"],
                help="How many gradients there are in the view of arrows.",
            ),
            slider(
                "target",
                0.3,
                0.0,
                0.9,
                0.05,
                label="GradVac target",
                help="The cosine to which GradVac turns each pair; at 0 it is PCGrad.",
            ),
            switch(
                "adam",
                label="Adam",
                help="In the valleys: follow each rule with Adam instead of plain steps.",
            ),
            slider(
                "step",
                0,
                0,
                max(1, len(self.records) - 1),
                1,
                help="In the view of a real run: which step of it.",
            ),
        ]
        return (
            made[: 4 + bool(self.records)]
            + [
                point(
                    name,
                    place,
                    low=(-REACH, -REACH),
                    high=(REACH, REACH),
                    step=0.1,
                    label=f"{name} gradient",
                    help="Drag the end of this gradient.",
                )
                for place, name in handles
            ]
            + [
                point(
                    "start",
                    (-2.2, -1.6),
                    low=(-REACH, -REACH),
                    high=(REACH, REACH),
                    step=0.1,
                    help="Where the paths down the valleys begin.",
                )
            ]
        )

    def _idle(self, view, tasks, **_):
        used = {
            "arrows": {"tasks", "target", "first", "second"}
            | ({"third"} if tasks == "three" else set()),
            "two valleys": {"target", "adam", "start"},
            "a real run": {"step"},
        }
        return sorted(self.controls.keys() - used[view] - {"view"})

    def _grads(self, tasks, first, second, third, **_):
        return np.array([first, second, third][: 2 if tasks == "two" else 3])

    def _draw(self, view, **settings):
        return {"arrows": self._arrows, "two valleys": self._valleys, "a real run": self._run}[
            view
        ](**settings)

    def _arrows(self, target, **settings):
        grads = self._grads(**settings)
        steps = mixtures(grads, target)
        left, right = panels(2, (10.5, 4.6))
        panel("first weight", "second weight", "gradients (grey) and the steps made of them", left)
        for name, grad in zip("123", grads):
            left.annotate(
                "",
                grad,
                (0, 0),
                arrowprops={"arrowstyle": "->", "color": "#777777", "linewidth": 2.5},
            )
            # [points], on a square: half of the handles are squares
            away = (BESIDE + 9) * grad / max(np.abs(grad).max(), 1e-9)
            left.annotate(
                f"g{name}",
                grad,
                away,
                textcoords="offset points",
                fontsize=10,
                color="#555555",
                ha="center",
                va="center",
            )
        for name, step in steps.items():
            colour, line, marker = STEPS[name]
            left.plot(
                *np.stack([np.zeros(2), step]).T,
                color=colour,
                linestyle=line,
                linewidth=2,
                marker=marker,
                markevery=[1],
                label=name,
            )
        reach = max(
            REACH,
            1.05 * np.abs(np.concatenate([grads, *([step] for step in steps.values())])).max(),
        )
        left.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", anchor="W")
        left.legend(frameon=False, fontsize=8)
        self._agreement(right, grads, steps)
        return left.figure

    def _agreement(self, ax, grads, steps):
        """Draw how far each step agrees with each task: below 0 the task gets worse."""
        panel("task", "cosine of step and gradient", "below 0 the step makes the task worse", ax)
        for place, (name, step) in enumerate(steps.items()):
            colour, line, marker = STEPS[name]
            ax.plot(
                np.arange(len(grads)) + 0.15 * (place - 1.5),
                _cosines(grads, step),
                color=colour,
                marker=marker,
                markersize=8,
                linestyle="none",
                label=name,
            )
        ax.axhline(0, color="#777777", linewidth=1)
        ax.set(ylim=(-1.05, 1.05), xlim=(-0.5, len(grads) - 0.5))
        ax.set_xticks(range(len(grads)), [f"g{i + 1}" for i in range(len(grads))])

    def _valleys(self, target, adam, start, **_):
        left, right = panels(2, (10.5, 4.6))
        grid = np.stack(
            np.meshgrid(np.linspace(-REACH, REACH, 70), np.linspace(-REACH, REACH, 70)), -1
        )
        panel("first weight", "second weight", "two valleys, one path a rule", left)
        for shape, colour in zip(VALLEYS, ("#888888", "#444444")):
            left.contour(
                grid[..., 0],
                grid[..., 1],
                valley(grid, *shape)[0],
                levels=[0.05, 0.3, 1, 3, 8],
                colors=colour,
                linewidths=0.7,
            )
        panel("step", "sum of both losses", None, right)
        for name, (colour, line, marker) in STEPS.items():
            path = descend(start, name, target, adam)
            left.plot(
                *path.T,
                color=colour,
                linestyle=line,
                marker=marker,
                markersize=3.5,
                markevery=6,
                linewidth=1.6,
                label=name,
            )
            right.plot(
                sum(valley(path, *shape)[0] for shape in VALLEYS),
                color=colour,
                linestyle=line,
                label=name,
            )
        left.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", anchor="W")
        right.set_yscale("log")
        right.legend(*left.get_legend_handles_labels(), frameon=False, fontsize=8)
        return left.figure

    def _run(self, step, **_):
        record = self.records[min(step, len(self.records) - 1)]
        left, right = panels(2, (10.5, 4.6))
        heatmap(
            _gram(record),
            record.tasks,
            record.tasks,
            left,
            "task",
            "task",
            f"step {step + 1} of {len(self.records)}: cosines of gradients",
            "",
            (-1, 1),
            ".2f",
        )
        panel("step", "cosine", "the whole run", right)
        # a record names its pairs in this order
        for pair, (colour, line) in zip(combinations(sorted(record.tasks), 2), EXTRA):
            right.plot(
                range(1, len(self.records) + 1),
                [r.cosines.get(pair, np.nan) for r in self.records],
                color=colour,
                linestyle=line,
                label=" and ".join(pair),
            )
        right.axhline(0, color="#777777", linewidth=1)
        right.axvline(step + 1, color="#777777", linewidth=1, linestyle=":")
        right.legend(frameon=False, fontsize=8)
        return left.figure

    def _describe(self, view, **settings):
        if view == "a real run":
            record = self.records[min(settings["step"], len(self.records) - 1)]
            return (
                f"Step {settings['step'] + 1}: "
                + ", ".join(
                    f"{a} and {b} {cosine:.2f}" for (a, b), cosine in record.cosines.items()
                )
                + "; lengths "
                + ", ".join(f"{t} {n:.2f}" for t, n in zip(record.tasks, record.lengths))
                + "."
            )
        if view == "two valleys":
            ends = {
                name: sum(
                    valley(
                        descend(settings["start"], name, settings["target"], settings["adam"])[-1],
                        *shape,
                    )[0]
                    for shape in VALLEYS
                )
                for name in STEPS
            }
            return (
                f"Sum of both losses after 60 {'Adam' if settings['adam'] else 'plain'} steps: "
                + ", ".join(f"{name} {loss:.3f}" for name, loss in ends.items())
                + "."
            )
        grads = self._grads(**settings)
        told = [
            f"{name} " + ", ".join(f"{cosine:.2f}" for cosine in _cosines(grads, step))
            for name, step in mixtures(grads, settings["target"]).items()
        ]
        between = ", ".join(
            f"g{i + 1} and g{j + 1} {_cosines(grads[i : i + 1], grads[j])[0]:.2f}"
            for i, j in combinations(range(len(grads)), 2)
        )
        return f"Cosines of the gradients: {between}. Of each step with each gradient: {'; '.join(told)}."


def _cosines(grads, step):
    lengths = np.linalg.norm(grads, axis=1) * np.linalg.norm(step)
    return np.divide(grads @ step, lengths, out=np.zeros(len(grads)), where=lengths > 1e-9) + 0.0


def _gram(record):
    """Write the cosines of a step as a matrix."""
    cosine = np.eye(len(record.tasks))
    for (i, a), (j, b) in combinations(enumerate(record.tasks), 2):
        cosine[i, j] = cosine[j, i] = record.cosines.get((a, b), record.cosines.get((b, a), np.nan))
    return cosine
