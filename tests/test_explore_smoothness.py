"""`explorers/smoothness`: the searches are those of chapters 22 and 23, the shares are those of the
formula, and what is said is what was found.
"""

import math
import re
from copy import deepcopy

import numpy as np
import pytest
import torch

from minbert.data import TaskBatch
from minbert.explorers.smoothness import (
    LONGEST,
    SEARCHES,
    WIDTHS,
    SmoothnessExplorer,
    _unit_points,
    attack_words,
    best_point,
    climb,
    slice_basis,
)
from minbert.heads import LinearHead, MultitaskBert, PairLinear
from minbert.regularized import output_distance, symmetric_kl
from minbert.sentence import SentenceEncoder
from minbert.smart_penalty import Attack, smart_loss, token_input
from minbert.smoothness import ball_points, linear_maximum, projected_ascent
from minbert.tokens import tokenize

pytestmark = pytest.mark.usefixtures("nothing_left_open")

MOVES = {
    "slice": {
        "head": "penalty, weight 0.1",
        "sentence": "Good transmit audio.",
        "width": 256,
        "radius": 0.5,
        "stride": 4.0,
        "draw": 5,
    },
    "words": {
        "head": "penalty, weight 0.1",
        "sentence": "Good transmit audio.",
        "steps": 3,
        "size": 0.03,
    },
}
TEXT = "Won't ever go here again."


@pytest.fixture(scope="module")
def explorer():
    return SmoothnessExplorer()


@pytest.fixture(scope="module")
def linear():
    torch.manual_seed(0)
    return LinearHead(12, 3).eval(), torch.randn(12)


def test_the_slice_stands_at_right_angles_and_begins_with_the_steepest_direction(linear):
    head, x = linear
    rows = slice_basis(head, x, x + 1)
    torch.testing.assert_close(rows @ rows.T, torch.eye(12), atol=1e-5, rtol=0)
    # the other vector lies in the slice
    assert torch.linalg.matrix_rank(torch.cat([rows[:2], torch.ones(1, 12)]), tol=1e-4) == 2
    moved = symmetric_kl(
        head(
            x
            + 1e-3
            * torch.stack(
                [rows[0], *ball_points(500, 12, generator=torch.Generator().manual_seed(3))]
            )
        ),
        head(x[None]).expand(501, 3),
    )
    assert moved[0] > 0.999 * moved.max()
    torch.testing.assert_close(
        moved[0], linear_maximum(head, (x[None],), 1e-3)[0], rtol=2e-2, atol=0
    )


def test_a_climb_is_that_of_the_chapter(linear):
    head, x = linear
    for seed in range(5):
        start = ball_points(1, 12, 0.3, generator=torch.Generator().manual_seed(seed))
        for steps in (0, 1, 4):
            (expected,) = projected_ascent(head, (x[None],), (start,), symmetric_kl, 0.3, 2, steps)
            found = climb(lambda d: head(x + d), start[0], 0.3, steps)
            torch.testing.assert_close(found.best, expected[0])
            assert (
                len(found.path) == len(found.moves) == steps + 1
                and found.path.norm(dim=1).max() < 0.3 + 1e-5
            )
            torch.testing.assert_close(
                found.moves,
                symmetric_kl(head(x + found.path), head(x[None]).expand(steps + 1, 3)).detach(),
            )


def test_the_best_point_is_the_best(linear):
    head, x = linear
    rows = slice_basis(head, x, x + 1)
    points = 0.3 * ball_points(200, 20, generator=torch.Generator().manual_seed(1))
    for width in (2, 7, 12, 20):
        place, move = best_point(head, x, rows[:width], points[:, :width])
        moves = symmetric_kl(
            head(x + points[:, : min(width, 12)] @ rows[:width]), head(x[None]).expand(200, 3)
        )
        assert move == pytest.approx(moves.max().item(), rel=1e-4) and torch.equal(
            place, points[moves.argmax(), :width]
        )


def test_the_share_falls_with_the_width_as_the_formula_says(explorer):
    shares = [explorer.share("plain", TEXT, 0.05, width)[0] for width in WIDTHS]
    assert (
        shares[0] > 0.99 and all(a >= b for a, b in zip(shares, shares[1:])) and shares[-1] < 0.03
    )
    head, x = explorer.heads["plain"], explorer.vector(TEXT)
    slope = (head.linear.weight[1] - head.linear.weight[0]).detach()
    # two classes: only one direction counts, so the largest coordinate along it does
    for width in (16, 128, 768):
        place = explorer.share("plain", TEXT, 0.05, width)[1]
        worst = explorer.worst("plain", TEXT, 0.05).moves.max().item()
        moved = symmetric_kl(
            head(x[None] + place[0] * explorer.basis("plain", TEXT)[:1]), head(x[None])
        ).item()
        assert explorer.share("plain", TEXT, 0.05, width)[0] == pytest.approx(
            moved / worst, rel=1e-2
        )
        assert (
            0.3 * math.sqrt(2 * math.log(1000) / width)
            < place[0].abs() / 0.05
            < 1.3 * math.sqrt(2 * math.log(1000) / width)
        )
    assert (explorer.basis("plain", TEXT)[0] @ slope / slope.norm()).abs().item() == pytest.approx(
        1, abs=1e-3
    )


def test_the_worst_step_is_the_worst(explorer):
    for name, head in explorer.heads.items():
        x, worst = explorer.vector(TEXT), explorer.worst(name, TEXT, 0.25).moves.max().item()
        slope = (head.linear.weight[1] - head.linear.weight[0]).detach()
        ends = torch.stack([slope, -slope]) / slope.norm() * 0.25
        assert worst == pytest.approx(
            symmetric_kl(head(x + ends), head(x[None]).expand(2, 2)).max().item(), rel=1e-3
        )
    assert (
        explorer.worst("penalty, weight 0.1", TEXT, 0.25).moves.max()
        < 0.6 * explorer.worst("plain", TEXT, 0.25).moves.max()
    )


def test_the_words_are_those_of_smart(explorer):
    model, size = explorer._models["plain"], 0.01
    found = attack_words(model, "task", TEXT, 2, size)
    batch = tokenize(model.encoder.tokenizer, [TEXT])
    opened, T = token_input(model, TaskBatch("task", batch)), batch.input_ids.shape[1]
    fn, embeds = lambda e: model.score("task", *opened.encode(e)), opened.embeds.detach()
    start = size * torch.randn(embeds.shape, generator=torch.Generator().manual_seed(0))
    loss, stats = smart_loss(
        embeds,
        fn,
        fn(embeds).detach(),
        output_distance("classes"),
        Attack("paper", 2, epsilon=size),
        start=start,
        rows=opened.rows,
    )
    column = SEARCHES.index("paper, ∞")
    assert found.together[column] == pytest.approx(loss.item(), rel=1e-3)
    delta = torch.zeros_like(embeds)
    delta[3] = stats.delta[3]
    alone = symmetric_kl(fn(embeds + delta), fn(embeds)).item()
    assert found.alone[3, column] == pytest.approx(alone, rel=1e-2, abs=1e-6)
    assert found.lengths.shape == found.alone.shape == (T, 4) and found.lengths.mean(
        0
    ) == pytest.approx([1.0] * 4, rel=1e-4)
    # a corner of the box, nearly, has every word's size
    assert (
        abs(found.lengths[:, 0] - 1).max() < 1e-5 and abs(found.lengths[:, column] - 1).max() < 0.05
    )
    # and a ball has not
    assert found.lengths[:, 3].max() > 1.5
    assert found.together[2] > 100 * found.together[0] > 0 and found.together[3] > found.together[2]
    # chapter 23: public code makes noise longer
    assert found.cosines[1] > 0.999 > 0.5 > found.cosines[2]
    assert len(attack_words(model, "task", "word " * 50, 1, size).tokens) == LONGEST
    first = attack_words(model, "task", TEXT, 1, size)
    assert torch.equal(
        attack_words(model, "task", TEXT, 2, size, first).deltas, found.deltas
    ) and not torch.equal(first.deltas, found.deltas)
    with pytest.raises(ValueError, match="at least the 2 steps"):
        attack_words(model, "task", TEXT, 1, size, found)
    assert all(p.requires_grad for p in model.parameters()) and all(
        p.grad is None for p in model.parameters()
    )


@pytest.mark.parametrize("view", MOVES)
def test_every_control_that_counts_changes_the_picture_and_the_others_do_not(explorer, view):
    start, idle = explorer.png(view=view), set(explorer.answer({"view": view})[0]["idle"])
    assert idle == explorer.controls.keys() - MOVES[view].keys() - {"view"}
    for name, value in MOVES[view].items():
        assert explorer.png(view=view, **{name: value}) != start and explorer.describe(
            view=view, **{name: value}
        ) != explorer.describe(view=view), name
    for name in idle:
        assert (
            explorer.png(view=view, **{name: (MOVES["slice"] | MOVES["words"])[name]}) == start
        ), name
    assert explorer.png(view=view) == start


def test_what_is_said_is_what_was_found(explorer):
    told = explorer.describe(width=64, draw=3)
    share = explorer.share("plain", TEXT, 0.25, 64, 3)[0]
    worst = explorer.worst("plain", TEXT, 0.25)
    assert float(re.search(r"random points finds ([\d.]+)%", told)[1]) == pytest.approx(
        100 * share, abs=0.06
    )
    assert f"moves the answer by {worst.moves.max():.3g} nats" in told
    climbed = explorer.figure(width=64, draw=3).axes[1].lines[-2]  # the last one is the width
    assert (
        climbed.get_marker() == "*" and f"a climb of 10 steps {climbed.get_ydata()[0]:.1f}%" in told
    )
    with torch.no_grad():
        before, after = (
            explorer.heads["plain"](
                torch.stack(
                    [
                        explorer.vector(TEXT),
                        explorer.vector(TEXT) + worst.best @ explorer.basis("plain", TEXT),
                    ]
                )
            )
            .softmax(1)[:, 0]
            .tolist()
        )
    assert f"negative with {before:.2f}" in told and f"leaves {after:.2f}" in told
    found = explorer.words("plain", TEXT, 1, 0.01)
    assert f"paper, ∞ {found.together[2]:.2g}" in explorer.describe(view="words")
    spots = explorer.answer({"view": "words"})[0]["spots"]
    assert len(spots) == 8 * len(found.tokens) and spots[0][5].startswith("[CLS], noise: size 1")


def test_what_is_drawn_is_what_was_found(explorer):
    left, middle, right, *_ = explorer.figure(view="words").axes
    found = explorer.words("plain", TEXT, 1, 0.01)
    np.testing.assert_allclose(left.images[0].get_array(), found.lengths)
    np.testing.assert_allclose(middle.images[0].get_array(), found.alone)
    np.testing.assert_allclose([bar.get_height() for bar in right.patches], found.together)
    left, right = explorer.figure(width=64).axes
    shares = [100 * explorer.share("plain", TEXT, 0.25, width)[0] for width in WIDTHS]
    np.testing.assert_allclose(right.lines[0].get_xydata(), np.stack([WIDTHS, shares], 1))
    lines = {line.get_label(): line.get_xydata() for line in left.lines}
    assert (
        len(lines["1,000 random points"]) == 1000
        and np.linalg.norm(lines["1,000 random points"], axis=1).max() < 0.25 + 1e-6
    )
    np.testing.assert_allclose(
        lines["the best of them"][0], explorer.share("plain", TEXT, 0.25, 64)[1][:2]
    )
    middle_answer = left.images[0].get_array()[29:31, 29:31]
    # the sentence stands in its own region
    assert (
        middle_answer == explorer.heads["plain"](explorer.vector(TEXT)[None]).argmax().item()
    ).all()


def test_every_control_has_a_name_and_words(explorer):
    assert all(control.label and control.help for control in explorer.controls.values())
    assert len(str(explorer.spec)) + len(str(explorer.defaults)) < 10_000  # what a notebook keeps


class Bag:
    """An encoder that needs no model: letters counted."""

    def encode(self, sentences):
        return torch.tensor(
            [[text.lower().count(c) / 3 for c in "abcdefghijklmnop"] for text in sentences]
        )


def test_two_heads_are_trained_and_nobodys_draws_are_disturbed(explorer):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    new = SmoothnessExplorer()
    assert torch.equal(torch.rand(3), expected)
    assert (
        [*new.heads] == ["plain", "penalty, weight 0.1"] == new.controls["head"].bounds["choices"]
    )
    assert "penalty" in new.describe(head="penalty, weight 0.1")
    for name, head in new.heads.items():
        torch.testing.assert_close(head.linear.weight, explorer.heads[name].linear.weight)
    assert not torch.allclose(
        new.heads["plain"].linear.weight, new.heads["penalty, weight 0.1"].linear.weight, atol=0.01
    )


def test_own_encoder_and_heads():
    torch.manual_seed(1)
    head = LinearHead(16, 3)
    before = deepcopy(head.state_dict())
    own = SmoothnessExplorer(Bag(), head, classes=("good", "bad", "so so"), sentence="An apple.")
    assert (
        own.controls["view"].bounds["choices"] == ["slice"]
        and "steps" not in own.controls
        and own.controls["head"].bounds["choices"] == ["yours"]
    )
    assert head.training and all(torch.equal(before[k], v) for k, v in head.state_dict().items())
    # three classes: two directions count, and the slice need not hold both
    share, place = own.share("yours", "An apple.", 0.5, 10)
    f = own.heads["yours"]
    x = own.vector("An apple.")
    rows = own.basis("yours", "An apple.")
    points = 0.5 * _unit_points(10, 2)
    moves = symmetric_kl(f(x + points @ rows[:10]), f(x[None]).expand(1000, 3)).detach()
    assert torch.equal(place, points[moves.argmax()]) and share == pytest.approx(
        (moves.max() / own.worst("yours", "An apple.", 0.5).moves.max()).item(), rel=1e-3
    )
    assert own.png() != own.png(width=700) and re.search(
        "yours: (good|bad|so so) with", own.describe(width=700)
    )
    wide, narrow = own.figure(), own.figure(narrow=True)
    assert (
        wide.get_figwidth() > wide.get_figheight()
        and narrow.get_figheight() > narrow.get_figwidth()
    )


def test_the_encoder_that_comes_in_stays_as_it_is():
    encoder = SentenceEncoder.from_pretrained(device="cpu").requires_grad_(False)
    own = SmoothnessExplorer(encoder, LinearHead(256, 2), ("no", "yes"))
    own.answer({"view": "words"})
    assert not any(p.requires_grad for p in encoder.parameters()) and isinstance(
        own._models["yours"], MultitaskBert
    )


def test_what_is_refused(explorer):
    for heads, classes in (
        (PairLinear(16), None),
        (LinearHead(9, 2), None),
        (torch.nn.Linear(16, 2), None),
        (LinearHead(16, 2), ("one",)),
    ):
        with pytest.raises(ValueError, match="expected"):
            SmoothnessExplorer(Bag(), heads, classes)
    for bad in (
        {"width": 1},
        {"width": 769},
        {"sentence": "  "},
        {"view": "words", "sentence": ""},
        {"head": "none"},
        {"radius": 0.0},
    ):
        assert "expected" in explorer.answer(bad)[0]["error"], bad


def test_a_search_of_many_steps_is_shown_step_by_step():
    seen, told = SmoothnessExplorer(), []
    for rounds in (0, 1, 1, 1):
        content, _ = seen.answer({"view": "words", "steps": 3, "size": 0.02}, rounds=rounds)
        told.append((re.search(r"K = (.*): the answer", content["text"])[1], content["ready"]))
    assert told == [
        ("1 of 3, still searching", False),
        ("2 of 3, still searching", False),
        ("3", True),
        ("3", True),
    ]
    assert (
        seen.answer({"view": "words", "steps": 0, "size": 0.03}, rounds=0)[0]["ready"]
        and seen.answer({"steps": 3}, rounds=0)[0]["ready"]
    )
    again = SmoothnessExplorer()
    assert seen.describe(view="words", steps=3, size=0.02) == again.describe(
        view="words", steps=3, size=0.02
    )
