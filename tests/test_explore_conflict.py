"""`explorers/conflict`: the steps drawn are those of the chapters, and what is said of them is so."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from minbert.explorers.conflict import (
    RULES,
    STEPS,
    VALLEYS,
    ConflictExplorer,
    descend,
    mixtures,
    shortest_weights,
    valley,
)
from minbert.pcgrad import Surgery, project_conflicting

pytestmark = pytest.mark.usefixtures("nothing_left_open")

RECORDS = [
    Surgery(
        ("a", "b", "c"),
        (1.0, 2.0, 0.5),
        {("a", "b"): 0.1 - 0.02 * i, ("a", "c"): 0.3, ("b", "c"): -0.2},
        (1.0, 1.0, 1.0),
    )
    for i in range(9)
]
MOVES = {
    "arrows": {"tasks": "three", "target": 0.8, "first": (1.0, -1.0), "second": (-2.0, 2.0)},
    "two valleys": {"target": 0.8, "adam": True, "start": (2.5, -1.0)},
    "a real run": {"step": 4},
}


@pytest.mark.parametrize("view", MOVES)
def test_every_control_that_counts_changes_the_picture_and_the_others_do_not(view):
    explorer = ConflictExplorer(RECORDS)
    start = explorer.png(view=view)
    assert set(explorer.answer({"view": view})[0]["idle"]) == explorer.controls.keys() - MOVES[
        view
    ].keys() - {"view"} | ({"third"} if view == "arrows" else set())
    for name, value in MOVES[view].items():
        assert explorer.png(view=view, **{name: value}) != start, name
    assert explorer.png(view=view) == start
    for name in set(explorer.answer({"view": view})[0]["idle"]):
        other = {
            "tasks": "three",
            "target": 0.8,
            "first": (1.0, -1.0),
            "second": (-2.0, 2.0),
            "third": (1.0, 1.0),
            "adam": True,
            "start": (2.5, -1.0),
            "step": 4,
        }[name]
        assert explorer.png(view=view, **{name: other}) == start, name


def test_the_steps_are_those_of_the_chapters():
    rng = np.random.default_rng(0)
    for tasks in (2, 3):
        grads = rng.normal(size=(tasks, 2))
        made = mixtures(grads, 0.0)
        np.testing.assert_allclose(made["sum"], grads.sum(0))
        expected = project_conflicting(torch.from_numpy(grads), torch.Generator().manual_seed(0))
        np.testing.assert_allclose(made["PCGrad"], expected)
        np.testing.assert_allclose(made["GradVac"], made["PCGrad"], atol=1e-9)  # at target 0
    two = mixtures(np.array([[1.0, 0.0], [-0.6, 0.8]]), 0.5)["GradVac"]
    assert two @ [1, 0] > 0 < two @ [-0.6, 0.8]


def test_of_two_tasks_pcgrad_harms_neither_and_gradvac_may_harm_the_longer_one():
    """As chapter 25 says of a second gradient that is long and nearly opposite."""
    steps = mixtures(np.array([[1.0, 0.0], [-3.0, 0.3]]), 0.3)
    signs = {
        name: [float(np.sign(grad @ step)) for grad in ([1.0, 0.0], [-3.0, 0.3])]
        for name, step in steps.items()
    }
    assert signs == {"sum": [-1, 1], "PCGrad": [1, 1], "GradVac": [1, -1], "shortest": [1, 1]}


def test_the_shortest_mixture_is_the_shortest():
    rng = np.random.default_rng(1)
    for tasks in (2, 3):
        for _ in range(20):
            grads = rng.normal(size=(tasks, 4))
            weights = shortest_weights(grads @ grads.T)
            assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
            step = weights @ grads
            others = rng.dirichlet(np.ones(tasks), 3000) @ grads
            assert np.linalg.norm(step) <= np.linalg.norm(others, axis=1).min() + 1e-9
            assert (grads @ step >= step @ step - 1e-9).all()  # no task loses along it


def test_a_valley_has_the_gradient_of_torch_and_a_path_goes_down():
    place = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    for centre, angle, along, across in VALLEYS:
        turn = torch.tensor([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        height = (
            0.5
            * (torch.tensor([along, across]) * (turn @ (place - torch.tensor(centre))) ** 2).sum()
        )
        (slope,) = torch.autograd.grad(height, place)
        found = valley(place.detach().numpy(), centre, angle, along, across)
        np.testing.assert_allclose(found[0], height.item())
        np.testing.assert_allclose(found[1], slope)
    for rule in RULES:
        path = descend((-2.2, -1.6), rule, 0.3, False)
        losses = sum(valley(path, *shape)[0] for shape in VALLEYS)
        assert len(path) == 61 and losses[-1] < losses[0]


def test_what_is_said_is_what_is_drawn():
    explorer = ConflictExplorer(RECORDS)
    told = explorer.describe(first=(2.0, 0.0), second=(-1.0, 1.0))
    assert "g1 and g2 -0.71" in told and "sum 0.71, 0.00" in told and "PCGrad 0.45, 0.32" in told
    marks = [
        [line.get_marker() for line in axes.get_legend().legend_handles]
        for axes in (explorer.figure().axes[0], explorer.figure(view="two valleys").axes[1])
    ]
    assert marks == 2 * [[marker for _, _, marker in STEPS.values()]]
    assert "a and b 0.02" in explorer.describe(
        view="a real run", step=4
    ) and "lengths a 1.00" in explorer.describe(view="a real run", step=4)
    for bad, message in [
        ({"view": "hills"}, "among arrows"),
        ({"first": (9, 0)}, "between"),
        ({"step": 9}, r"step in \[0, 8\]"),
        ({"tasks": "four"}, "among two, three"),
    ]:
        with pytest.raises(ValueError, match=message):
            explorer.figure(**bad)
    assert "step" not in ConflictExplorer().controls and ConflictExplorer().controls["view"].bounds[
        "choices"
    ] == ["arrows", "two valleys"]


def test_a_real_run_shows_a_line_for_each_pair_whatever_the_order_of_the_tasks():
    records = [
        Surgery(
            ("c", "a", "b"),
            (1.0, 1.0, 1.0),
            {("a", "b"): 0.1 * i, ("a", "c"): 0.3, ("b", "c"): -0.2},
            (1.0, 1.0, 1.0),
        )
        for i in range(4)
    ]
    figure = ConflictExplorer(records).figure(view="a real run", step=2)
    lines = {
        line.get_label(): line.get_ydata()
        for ax in figure.axes
        for line in ax.lines
        if " and " in line.get_label()
    }
    # steps count from 1, as in the title
    assert [
        list(line.get_xdata())
        for line in figure.axes[1].lines
        if line.get_label() == "a and b" or line.get_linestyle() == ":"
    ] == [[1, 2, 3, 4], [3, 3]]
    assert sorted(lines) == ["a and b", "a and c", "b and c"] and all(
        np.isfinite(y).all() for y in lines.values()
    )
    plt.close("all")
