"""`explorers/flow`: what a control changes, which numbers are told, what is refused."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from minbert.explorers.flow import (
    DEPTH,
    EVERY,
    STEPS,
    FlowExplorer,
    back_blocks,
    banana,
    blocks_of,
    forward_blocks,
    gaussian_bits,
    rings,
)
from minbert.flow import Flow

pytestmark = pytest.mark.usefixtures("nothing_left_open")


@pytest.fixture(scope="module")
def explorer():
    return FlowExplorer()


@pytest.fixture
def trained(explorer):
    return explorer.lesson("banana").at(STEPS)


def number(pattern, told):
    return float(re.search(pattern, told)[1])


@pytest.mark.parametrize(
    "name, value",
    [
        ("data", "rings"),
        ("training", 20),
        ("direction", "back"),
        ("blocks", 3),
        ("point", (-1.0, 0.5)),
    ],
)
def test_each_control_changes_the_picture_and_back(explorer, name, value):
    before, after, again = explorer.png(), explorer.png(**{name: value}), explorer.png()
    assert before == again != after and explorer.describe() != explorer.describe(**{name: value})


def test_the_way_back_overflows_nowhere(explorer):
    """Far from the data the flow undone stretches by more than a float holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        content, picture = explorer.answer({"direction": "back"})
    assert "error" not in content and picture


def test_forward_and_back_meet_and_log_det_is_that_of_the_jacobian(trained):
    flow, x = trained.double(), banana(40, 5).double() / 2
    for count in (0, 1, 5, DEPTH):
        places, log_det = forward_blocks(flow, x, count)
        assert len(places) == count + 1
        for row, value in zip(x[:5], log_det):
            jacobian = torch.autograd.functional.jacobian(
                lambda u: _through(flow, u[None], count)[0], row
            )
            assert value.item() == pytest.approx(torch.linalg.slogdet(jacobian)[1].item(), abs=1e-6)
    places, log_det = forward_blocks(flow, x, DEPTH)
    returned, lost = back_blocks(flow, places[-1], DEPTH)
    torch.testing.assert_close(returned[-1], x, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(lost, -log_det)
    torch.testing.assert_close(places[-1], flow(x)[0].detach())
    flow.float()


def _through(flow, x, count):
    for block in blocks_of(flow)[:count]:
        for part in block:
            x, _ = part(x)
    return x


def test_the_likelihoods_are_those_of_the_flow_and_of_scipy(explorer):
    lesson, told = explorer.lesson("banana"), explorer.describe(training=200)
    with torch.no_grad():
        assert number(r"the flow needs ([\d.]+)", told) == pytest.approx(
            lesson.at(200).nll(lesson.test).mean().item(), abs=6e-4
        )
    train, test = lesson.train.double().numpy(), lesson.test.double().numpy()
    bits = -multivariate_normal(train.mean(0), np.cov(train.T, bias=True)).logpdf(test).mean() / (
        2 * math.log(2)
    )
    assert number(r"a Gaussian ([\d.]+)\.$", told) == pytest.approx(bits, abs=6e-4)
    assert gaussian_bits(lesson.train, lesson.test) == pytest.approx(bits)
    assert lesson.bits[-1] < lesson.gaussian < lesson.bits[0]  # it learned
    # and not what it is judged by
    assert not {tuple(row) for row in train} & {tuple(row) for row in test}


def test_the_star_is_told_where_the_flow_sends_it(explorer, trained):
    with torch.no_grad():
        (x, y), log_det = (
            trained(torch.tensor([[0.5, -1.0]]))[0][0].tolist(),
            trained(torch.tensor([[0.5, -1.0]]))[1].item(),
        )
    told = explorer.describe(point=(0.5, -1.0))
    assert f"comes to ({x:.2f}, {y:.2f})" in told and f"log|det| {log_det:.2f} nats" in told
    assert "comes to (0.50, -1.00), log|det| 0.00" in explorer.describe(
        point=(0.5, -1.0), blocks=0
    ).replace("-0.00", "0.00")


def test_a_flow_learns_before_ones_eyes(explorer):
    seen, whole = FlowExplorer(), explorer
    content, first = seen.answer({"data": "rings"}, rounds=0)
    assert not content["ready"] and "after 0 steps, still learning, forward" in content["text"]
    content, second = seen.answer({"data": "rings"}, rounds=2)
    assert (
        not content["ready"]
        and f"after {2 * EVERY} steps, still learning, forward" in content["text"]
        and first != second
    )
    assert number(r"the flow needs ([\d.]+)", content["text"]) == pytest.approx(
        seen.lesson("rings").bits[2], abs=6e-4
    )
    # `lesson` has done the rest
    assert seen.answer({"data": "rings", "training": EVERY}, rounds=0)[0]["ready"]
    assert (
        seen.lesson("rings").bits == whole.lesson("rings").bits
        and len(whole.lesson("rings").bits) == STEPS // EVERY + 1
    )
    assert seen.png(data="rings") == whole.png(data="rings") and "learning" not in seen.describe(
        data="rings"
    )


def test_a_look_at_the_flow_does_not_disturb_its_training(explorer):
    looked, told = FlowExplorer(), []
    for training in (0, STEPS, EVERY, 0):
        told.append(
            number(
                r"the flow needs ([\d.]+)",
                looked.answer({"training": training}, rounds=1)[0]["text"],
            )
        )
    bits = explorer.lesson("banana").bits
    assert (
        told == [pytest.approx(bits[place], abs=6e-4) for place in (0, 2, 1, 0)]
        and len({round(x, 2) for x in bits[:5]}) > 2
    )
    assert looked._lessons["banana"].bits == bits[:5]


def test_own_points_and_an_own_flow():
    points, flow = rings(200, 3), Flow(2, 2)
    own = FlowExplorer(points, flow.initialize(points))
    assert (
        own.controls["data"].bounds["choices"] == ["yours"]
        and "training" not in own.controls
        and own.depth == 2
    )
    assert own.png() != own.png(blocks=1) and len(own.answer({})[0]["places"]) == 3
    assert FlowExplorer(points).defaults["data"] == "yours"
    wide, narrow = own.figure(), own.figure(narrow=True)
    assert (
        wide.get_figwidth() > wide.get_figheight()
        and narrow.get_figheight() > narrow.get_figwidth()
    )


def test_what_is_refused(explorer):
    for points, flow in [
        (torch.zeros(50, 3), None),
        (torch.zeros(5, 2), None),
        (torch.full((50, 2), math.nan), None),
        (rings(50), Flow(2)),
        (rings(50), Flow(3)),
        (None, Flow(2)),
    ]:
        with pytest.raises(ValueError, match="expected"):
            FlowExplorer(points, flow)
    for bad in ({"blocks": DEPTH + 1}, {"point": (9, 0)}, {"data": "moons"}):
        assert "expected" in explorer.answer(bad)[0]["error"]
