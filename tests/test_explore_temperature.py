"""`explorers/temperature`: the gradient is that of autograd, the repeats are those of the texts, and
what is said is what is drawn.
"""

import math
import re

import numpy as np
import pytest
import torch

from minbert.data import load_dataset
from minbert.explorers.temperature import TemperatureExplorer, deal, entailed_pairs, push
from minbert.negatives import multiple_negatives_loss

pytestmark = pytest.mark.usefixtures("nothing_left_open")

MOVES = {"temperature": 0.3, "batch": 4, "leave_out": True, "cell": [0, 1.0, 2.0]}


@pytest.fixture(scope="module")
def explorer():
    return TemperatureExplorer()


class Bag:
    """An encoder that needs no model: letters counted."""

    def encode(self, sentences):
        return torch.tensor(
            [[1.0 + text.lower().count(c) for c in "abcdefghijklmnop"] for text in sentences]
        )


@pytest.mark.parametrize("temperature", [0.01, 0.05, 1.0])
@pytest.mark.parametrize("groups", [None, torch.tensor([0, 1, 0, 2, 3, 1])])
def test_the_gradient_is_that_of_autograd(temperature, groups):
    u, v = torch.randn(
        2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).unbind()
    u, v = u.requires_grad_(), v.requires_grad_()
    loss = multiple_negatives_loss(u, v, 1 / temperature, groups)
    expected = torch.autograd.grad(loss, (u, v))
    found = push(u.detach(), v.detach(), temperature, groups)
    torch.testing.assert_close(found.losses.mean(), loss.detach())
    torch.testing.assert_close((found.anchors, found.partners), expected)
    cosines = found.cosines.clone().requires_grad_()
    logits = (
        cosines / temperature
        if groups is None
        else (cosines / temperature).masked_fill(
            (groups[:, None] == groups) & ~torch.eye(6, dtype=torch.bool), -math.inf
        )
    )
    (slope,) = torch.autograd.grad(
        torch.nn.functional.cross_entropy(logits, torch.arange(6)), cosines
    )
    torch.testing.assert_close(found.on_cosines, slope)


def test_push_by_hand():
    """Two pairs, all at right angles but the own ones; a temperature at which the own partner has
    three quarters.
    """
    eye = torch.eye(2)
    found = push(eye, eye, 1 / math.log(3))
    torch.testing.assert_close(found.shares, torch.tensor([[0.75, 0.25], [0.25, 0.75]]).double())
    torch.testing.assert_close(
        found.on_cosines, math.log(3) / 2 * torch.tensor([[-0.25, 0.25], [0.25, -0.25]]).double()
    )
    torch.testing.assert_close(
        found.anchors, math.log(3) / 8 * torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    )
    zero = push(torch.zeros(2, 2), eye, 0.1)
    assert zero.anchors.abs().max() == 0 and zero.partners.isfinite().all()


def test_the_pairs_are_the_entailed_ones_and_batches_hold_repeats(explorer):
    data = load_dataset("inference", "train")
    pairs = entailed_pairs()
    assert (
        len(pairs)
        == sum(data.classes[y] == "entailment" for y in data.labels)
        == len(explorer.first)
    )
    for batch in (1, 2, 20):
        rows = explorer.rows(batch)
        assert len(set(rows)) == 12 and rows == explorer.rows(batch) and explorer.twins(batch).any()
    assert explorer.rows(1) != explorer.rows(2)
    alone = deal(torch.arange(30), 5, 3)
    assert len(set(alone)) == 5  # without repeats: at random
    assert sorted(deal(torch.tensor([0, 1, 0, 2, 3, 4]), 3, 1)[:2]) == [0, 2]


def test_repeats_are_marked_where_a_sentence_is_repeated(explorer):
    rows, twins = explorer.rows(2), explorer.twins(2)
    for i in range(12):
        for j in range(12):
            same = i != j and (
                explorer.second[rows[i]].lower() == explorer.second[rows[j]].lower()
                or explorer.first[rows[i]].lower() == explorer.first[rows[j]].lower()
            )
            assert not same or twins[i, j]
            if twins[i, j]:
                assert i != j and explorer.groups[rows[i]] == explorer.groups[rows[j]]
    assert (explorer.push(2, 0.05, True).shares[twins] == 0).all() and (
        explorer.push(2, 0.05, False).shares[twins] > 0
    ).all()
    assert explorer.push(2, 0.05, True).losses.mean() < explorer.push(2, 0.05, False).losses.mean()


@pytest.mark.parametrize("name", MOVES)
def test_each_control_changes_the_picture_and_back(explorer, name):
    before, after, again = explorer.png(), explorer.png(**{name: MOVES[name]}), explorer.png()
    assert before == again != after and explorer.describe() != explorer.describe(
        **{name: MOVES[name]}
    )
    if name != "cell":
        assert explorer.png(view="all temperatures") != explorer.png(
            view="all temperatures", **{name: MOVES[name]}
        )


def test_what_is_said_is_what_was_computed(explorer):
    found = explorer.push(2, 0.2, False)
    told = explorer.describe(temperature=0.2, cell=[1, 0.2, 2.4])
    assert f"loss {found.losses.mean():.3f} nats (chance {math.log(12):.3f})" in told
    assert (
        f"cosine {found.cosines[2, 0]:.2f}, share {found.shares[2, 0]:.3f}, gradient {found.shares[2, 0] / 0.2:+.2f}"
        in told
        and "(a repeat)" in told
    )
    wrong, twins = found.shares - torch.diag(found.shares.diagonal()), explorer.twins(2)
    assert f"{(wrong * twins).sum() / wrong.sum():.0%} goes to repeats" in told
    spots = explorer.answer({"temperature": 0.2})[0]["spots"]
    assert len(spots) == 2 * 144 and [
        0,
        0 - 0.5,
        0.5,
        1.5,
        2.5,
        f"3 with 1: cosine {found.cosines[2, 0]:.2f}",
    ] == list(spots[24])
    assert "0% goes to repeats" in explorer.describe(leave_out=True)
    # a bar
    assert "own partner" in explorer.describe(
        cell=[2, 3.0, 5.0]
    ) and "Caption 6 " in explorer.describe(cell=[2, 3.0, 5.0])
    assert "Caption 12 " in explorer.describe(cell=[0, 99.0, 99.0])


def test_what_is_drawn_is_what_was_computed(explorer):
    left, middle, right, *_ = explorer.figure(temperature=0.1).axes
    found, twins = explorer.push(2, 0.1, False), explorer.twins(2)
    np.testing.assert_allclose(left.images[0].get_array(), found.cosines)
    np.testing.assert_allclose(middle.images[0].get_array(), found.shares)
    strangers, repeats = ([bar.get_width() for bar in bars] for bars in right.containers)
    np.testing.assert_allclose(repeats, (found.shares * twins).sum(1) / 0.1)
    np.testing.assert_allclose(np.add(strangers, repeats), (1 - found.shares.diagonal()) / 0.1)
    lengths = (
        torch.stack([explorer._encoder.encode([explorer.first[i]])[0] for i in explorer.rows(2)])
        .double()
        .norm(dim=1)
    )
    np.testing.assert_allclose(
        right.collections[0].get_offsets()[:, 0], 12 * found.anchors.norm(dim=1) * lengths
    )
    crosses = {
        tuple(map(int, place))
        for collection in left.collections
        for place in collection.get_offsets()
    } - {(i, i) for i in range(12)}
    assert crosses == {(j, i) for i, j in twins.nonzero().tolist()}


def test_rows_are_named_by_their_captions_and_hold_every_mark(explorer):
    # where vectors turn faster than cosines pull
    right = explorer.figure(temperature=0.01, batch=2).axes[2]
    assert [text.get_text() for text in right.texts] == [
        explorer.first[i][:46] for i in explorer.rows(2)
    ]
    assert right.collections[0].get_offsets()[:, 0].max() < right.get_xlim()[1]


def test_every_control_has_a_name_and_words(explorer):
    for control in explorer.controls.values():
        assert control.label and (control.help or control.kind == "pick")
    assert len(str(explorer.spec)) + len(str(explorer.defaults)) < 10_000  # what a notebook keeps


def test_own_encoder_pairs_and_groups():
    pairs = [
        (f"{name} sings a song", f"{name} makes music")
        for name in ("Ann", "Bob", "Cid", "Dee", "Eve")
    ]
    own = TemperatureExplorer(Bag(), pairs, size=4)
    assert (
        not own.twins(1).any()
        and "repeat a sentence" not in own.describe()
        and own.png() != own.png(temperature=1.0)
    )
    graded = TemperatureExplorer(Bag(), pairs, size=4, groups=[7, 7, 1, 2, 3])
    assert graded.rows(1)[:2] == [0, 1] and graded.twins(1)[0, 1] and not graded.twins(1)[0, 2]
    assert len(TemperatureExplorer(Bag(), load_dataset("stsb", "dev")).first) == len(
        load_dataset("stsb", "dev")
    )
    wide, narrow = own.figure(), own.figure(narrow=True)
    assert (
        wide.get_figwidth() > wide.get_figheight()
        and narrow.get_figheight() > narrow.get_figwidth()
    )
    dollars = TemperatureExplorer(
        Bag(), [(f"{name} paid $5_{{ and $6^", name) for name, _ in pairs], size=4
    )
    assert "error" not in dollars.answer({})[0] and not any(
        text.get_parse_math() for text in dollars.figure().axes[2].texts
    )
    u = torch.stack([Bag().encode([a])[0] for a, _ in (pairs[i] for i in own.rows(2))])
    v = torch.stack([Bag().encode([b])[0] for _, b in (pairs[i] for i in own.rows(2))])
    assert (
        re.search(r"loss ([\d.]+)", own.describe())[1]
        == f"{multiple_negatives_loss(u.double(), v.double(), 20.0).item():.3f}"
    )


def test_a_click_counts_where_there_are_cells(explorer):
    assert explorer.answer({})[0]["idle"] == [] and explorer.answer({"view": "all temperatures"})[
        0
    ]["idle"] == ["cell"]


def test_the_strip_of_colours_has_the_colours_of_the_cells(explorer):
    """The value that stands beside a place of the strip is the value whose colour the strip has
    there.
    """
    for ax, (low, high) in zip(explorer.figure().axes, ((-1, 1), (0, 1))):
        cells, strip = ax.images
        assert (
            strip.get_clim() == cells.get_clim() == (low, high)
            and strip.cmap is cells.cmap
            and strip.origin == "lower"
        )
        np.testing.assert_allclose(strip.get_array()[:, 0], np.linspace(low, high, 100), atol=1e-9)
        numbers = {text.get_text(): text.get_position()[1] for text in ax.texts}
        assert len(numbers) == 3 and all(
            low + (high - low) * at == pytest.approx(float(name)) for name, at in numbers.items()
        )
        assert ax.get_xlim() == (-0.5, 11.5) and ax.get_ylim() == (11.5, -0.5)


def test_what_is_refused(explorer):
    pairs = [("a", "b")] * 6
    for arguments in (
        {"pairs": pairs[:2]},
        {"pairs": []},
        {"pairs": pairs, "size": 2},
        {"pairs": pairs, "size": 6, "groups": [0]},
        {"pairs": load_dataset("sentiment", "dev")},
    ):
        with pytest.raises(ValueError, match="expected"):
            TemperatureExplorer(Bag(), **arguments)
    for bad in ({"temperature": 0.0}, {"batch": 21}, {"view": "hills"}, {"leave_out": 1}):
        assert "expected" in explorer.answer(bad)[0]["error"]
