"""Chapter 22: the distance between predictions, penalties beside a loss, and adversarial
perturbations of the input of a head.
"""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from smart_pytorch import sym_kl_loss
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toys import batch_of, dice, run, small_bert

from minbert.bregman import BregmanProximal
from minbert.core.device_step import losses_on_device
from minbert.data import TaskBatch
from minbert.encoder import BertModel
from minbert.heads import (
    ConcatDiff,
    CosineHead,
    LinearHead,
    LinearPlusCosine,
    MultitaskBert,
    PairLinear,
    multitask_loss,
)
from minbert.losses import GOALS, ClippedCosineHead
from minbert.optim import AdamW
from minbert.pcgrad import PCGrad
from minbert.random_search import ball_points, outputs_at, worst_shifts
from minbert.regularized import (
    Clean,
    clean_pass,
    output_distance,
    random_state,
    regularized_loss,
    replay,
    symmetric_kl,
)
from minbert.sentence import SentenceEncoder
from minbert.smart_penalty import SmartPenalty
from minbert.smoothness import (
    SmoothnessPenalty,
    into_ball,
    linear_maximum,
    sampled_smoothness,
    steepest,
)
from minbert.training import compute_losses, steps, sum_losses

INF = math.inf
D = 12
TASKS = ("sst", "stsb", "quora")
HEADS = {
    "linear": lambda: LinearHead(D, 3),
    "pair": lambda: PairLinear(D),
    "pair grade": lambda: PairLinear(D, "similarity"),
    "cosine": lambda: CosineHead(),
    "cosine mse": lambda: CosineHead("paraphrase_mse"),
    "line and cosine": lambda: LinearPlusCosine(D, "similarity"),
    "concat": lambda: ConcatDiff(D),
    "concat classes": lambda: ConcatDiff(D, 3, "classes"),
    "clipped": lambda: ClippedCosineHead(D, threshold=0.0, project=7),
    "clipped negatives": lambda: ClippedCosineHead(
        D, "similarity", clip_positives=False, project=7
    ),
}


def make_head(name, dtype=torch.float64):
    torch.manual_seed(1)
    return HEADS[name]().to(dtype)


def make_vectors(head, rows=5, dtype=torch.float64, seed=2):
    return tuple(
        torch.randn(1 + head.pair, rows, D, generator=dice(seed), dtype=torch.float64).to(dtype)
    )


def make_model(dropout=0.1, pooling="mean", heads=None):
    torch.manual_seed(0)
    heads = heads or {
        "sst": LinearHead(16, 5),
        "stsb": LinearPlusCosine(16, "similarity"),
        "quora": CosineHead(),
    }
    return MultitaskBert(
        SentenceEncoder(BertModel(small_bert(dropout)), None, pooling), heads
    ).train()


# --- the distance between two answers


@pytest.mark.parametrize("shape", [(1, 2), (7, 5), (3, 4, 6), (5,)])
def test_symmetric_kl_is_both_divergences_with_gradients(shape):
    p, q = 3 * torch.randn(2, *shape, generator=dice(), dtype=torch.float64).requires_grad_()

    def one_way(a, b):
        return F.kl_div(
            b.log_softmax(-1), a.log_softmax(-1), log_target=True, reduction="none"
        ).sum(-1)

    expected = one_way(p, q) + one_way(q, p)
    found = symmetric_kl(p, q)
    assert found.shape == shape[:-1]
    assert_close(found, expected)
    assert_close(
        torch.autograd.grad(found.sum(), (p, q)), torch.autograd.grad(expected.sum(), (p, q))
    )
    assert torch.autograd.gradcheck(symmetric_kl, (p, q))


def test_detached_is_the_package():
    p, q = torch.randn(2, 6, 4, generator=dice(), dtype=torch.float64).requires_grad_()
    ours, theirs = symmetric_kl(p, q, "detached").sum(), sym_kl_loss(p, q)
    assert_close(ours, theirs)
    assert_close(torch.autograd.grad(ours, (p, q)), torch.autograd.grad(theirs, (p, q)))
    assert_close(symmetric_kl(p, q, "detached"), symmetric_kl(p, q))


def test_symmetric_kl_stays_finite_and_wide():
    p, q = torch.tensor([[200.0, -200.0]]), torch.tensor([[-200.0, 200.0]])
    assert_close(symmetric_kl(p, q), torch.tensor([800.0]))
    half = torch.randn(4, 3, generator=dice()).bfloat16()
    found = symmetric_kl(half, half.flip(0))
    assert found.dtype == torch.float32
    assert_close(found, symmetric_kl(half.float(), half.float().flip(0)))
    p = torch.randn(3, 4, requires_grad=True, generator=dice())
    (slope,) = torch.autograd.grad(symmetric_kl(p, p.detach()).sum(), p)
    assert_close(slope, torch.zeros(3, 4), rtol=0, atol=1e-7)


def test_bad_logits_are_refused():
    with pytest.raises(ValueError, match=r"one shape .* \(2, 3\) and \(2, 4\)"):
        symmetric_kl(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="one shape"):
        symmetric_kl(torch.zeros(2, 3), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="'full' or 'detached', got 'half'"):
        symmetric_kl(torch.zeros(2, 3), torch.zeros(2, 3), "half")


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("grad", ["full", "detached"])
def test_distance_fits_the_goal(goal, grad):
    shape = (6, 3) if goal == "classes" else (6,)
    p, q = torch.randn(2, *shape, generator=dice(), dtype=torch.float64).requires_grad_()
    found = output_distance(goal, grad)(p, q)
    if goal == "classes":
        expected = symmetric_kl(p, q, grad)
    elif goal == "similarity":
        expected = (p - q) ** 2
    else:
        gap = p.sigmoid() - q.sigmoid()
        expected = (gap.detach() if grad == "detached" else gap) * (p - q)
    assert found.shape == (6,)
    assert_close(found, expected)
    assert_close(
        torch.autograd.grad(found.sum(), (p, q)), torch.autograd.grad(expected.sum(), (p, q))
    )


@pytest.mark.parametrize("name", HEADS)
def test_a_head_tells_its_distance_and_a_cut_cosine_is_no_logit(name):
    head = make_head(name)
    p, q = torch.randn(
        2, 6, *((3,) if head.goal == "classes" else ()), generator=dice(), dtype=torch.float64
    )
    expected = (p - q) ** 2 if "clipped" in name else output_distance(head.goal)(p, q)
    assert_close(output_distance(head)(p, q), expected)


def test_bad_goal_and_shapes_are_refused():
    with pytest.raises(ValueError, match="goal among classes"):
        output_distance("rank")
    for goal in ("similarity", "paraphrase"):
        with pytest.raises(ValueError, match="one shape"):
            output_distance(goal)(torch.zeros(3), torch.zeros(3, 1))


# --- the clean pass


@pytest.mark.parametrize("pooling", ["mean", "mean_padded", "cls"])
def test_replay_repeats_the_dropout_and_leaves_no_trace(pooling):
    model, batch = make_model(pooling=pooling), batch_of(TASKS)
    for task, part in batch.items():
        torch.manual_seed(5)
        clean = clean_pass(model, task, part)
        after = torch.get_rng_state()
        assert len(clean.vectors) == 1 + (task != "sst")
        with replay(clean.random_state):
            again = clean_pass(model, task, part)
            torch.rand(7)
        with replay(clean.head_random_state):
            assert torch.equal(model.score(task, *clean.vectors), clean.outputs)
        assert torch.equal(torch.get_rng_state(), after)
        assert torch.equal(again.outputs, clean.outputs)
        assert not torch.equal(clean_pass(model, task, part).vectors[0], clean.vectors[0])


def test_replay_restores_the_dice_after_an_error():
    state = random_state(torch.device("cpu"))
    torch.rand(3)
    now = torch.get_rng_state()
    with pytest.raises(KeyError), replay(state):
        raise KeyError
    assert torch.equal(torch.get_rng_state(), now)
    assert set(state) == {"cpu"}


def test_clean_pass_checks_task_and_pair():
    model, batch = make_model(), batch_of(TASKS)
    with pytest.raises(ValueError, match="one sentence for task"):
        clean_pass(model, "sst", batch["stsb"])
    with pytest.raises(ValueError, match="two sentences for task"):
        clean_pass(model, "stsb", batch["sst"])


# --- the loss


@pytest.mark.parametrize("mode", ["full", "frozen"])
@pytest.mark.parametrize("weights", [None, {"sst": 0.5, "quora": 0.0}])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_without_penalties_it_is_the_multitask_loss(mode, weights, weight):
    model, batch = make_model(), batch_of(TASKS, weight)
    model.set_mode(mode)
    ours = run(model, regularized_loss(weights=weights), batch)
    theirs = run(model, partial(multitask_loss, weights=weights), batch)
    assert list(ours[0]) == list(theirs[0]) and set(ours[1]) == set(theirs[1])
    for mine, other in zip(ours, theirs):
        for name in mine:
            assert torch.equal(mine[name], other[name]), name


def test_the_weights_of_task_and_batch_scale_loss_and_penalties_together():
    model, batch = make_model().double().eval(), batch_of(TASKS, 0.5)
    weights = {"sst": 0.1, "quora": 20.0}
    seen = []

    def penalty(m, task, part, clean):
        seen.append((m is model, task, part is batch[task], isinstance(clean, Clean)))
        return 3 * clean.outputs.square().mean()

    def expected_losses(m, b):
        losses = {}
        for task, part in b.items():
            outputs = m(task, part.first, part.second)
            loss = m.heads[task].loss(outputs, part.labels) + 3 * outputs.square().mean() + 2
            losses[task] = 0.5 * weights.get(task, 1.0) * loss
        return losses

    loss_fn = regularized_loss(penalty, lambda *_: torch.tensor(2.0), weights=weights)
    ours, grads = run(model, loss_fn, batch)
    theirs, expected = run(model, expected_losses, batch)
    for task, part in batch.items():
        outputs = model(task, part.first, part.second)
        assert_close(ours[task], theirs[task])
        assert_close(loss_fn.last[task][1], 3 * outputs.square().mean())
        assert_close(loss_fn.last[task][0], model.heads[task].loss(outputs, part.labels))
        assert not loss_fn.last[task][1].requires_grad
    assert seen == [(True, task, True, True) for task in batch]
    loss_fn(model, {"quora": batch["quora"]})
    assert set(loss_fn.last) == {"quora"}  # nothing of an earlier call
    for name in grads:
        assert_close(grads[name], expected[name])


def proximal_away_from_its_start():
    """Let the previous iterate differ from the model: at the first step the penalty would be zero."""
    penalty, started = BregmanProximal(3.0), []

    class Moved:
        def begin(self, model):
            if not started:
                penalty.begin(model)
                started.append(model)
                with torch.no_grad():
                    for index, weight in enumerate(model.parameters()):
                        noise = torch.randn(
                            weight.shape, generator=dice(index), dtype=torch.float64
                        )
                        weight += 0.01 * noise.to(weight.dtype)
            penalty.begin(model)

        def __call__(self, *args):
            return penalty(*args)

    return Moved()


PENALTIES = {
    "smoothness": lambda: SmoothnessPenalty(10.0, radius=0.5, points=4),
    "SMART on tokens": lambda: SmartPenalty(5.0, "tokens", epsilon=0.1),
    "SMART on vectors": lambda: SmartPenalty(5.0, "vectors", epsilon=0.1),
    "SMART, labels as target": lambda: SmartPenalty(5.0, "vectors", epsilon=0.1, target="labels"),
    "Bregman proximal point": proximal_away_from_its_start,
}


def task_gradients(penalty, weight, backward_of):
    """Gradient of one step with the given weight of every task, from the same model and random
    state.
    """
    model, batch = make_model().double(), batch_of(TASKS, 0.5)
    model.train()
    loss_fn = regularized_loss(penalty(), weights={task: weight for task in TASKS})
    torch.manual_seed(3)
    losses = loss_fn(model, batch)
    shares = {task: loss_fn.last[task][1] / loss_fn.last[task][0] for task in TASKS}
    backward_of(model)(losses)
    return {
        name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None
    }, shares


@pytest.mark.parametrize("backward_of", [lambda model: sum_losses, PCGrad], ids=["sum", "PCGrad"])
@pytest.mark.parametrize("weight", [0.1, 20.0])
@pytest.mark.parametrize("name", PENALTIES)
def test_a_task_weight_scales_the_gradient_of_loss_and_penalty(name, weight, backward_of):
    plain, shares = task_gradients(PENALTIES[name], 1.0, backward_of)
    scaled, _ = task_gradients(PENALTIES[name], weight, backward_of)
    # far above the rounding of float64: a missing factor would show
    assert min(shares.values()) > 1e-6
    assert set(plain) == set(scaled)
    for parameter in plain:
        assert_close(scaled[parameter], weight * plain[parameter], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PENALTIES)
def test_pcgrad_projects_gradients_of_weighted_loss_and_penalty(name):
    weights = {"sst": 0.1, "stsb": 3.0, "quora": 1.0}
    norms = {}
    for given in (weights, {}):
        model, batch = make_model().double(), batch_of(TASKS)
        surgery = PCGrad(model)
        torch.manual_seed(3)
        surgery(regularized_loss(PENALTIES[name](), weights=given)(model, batch))
        norms[bool(given)] = dict(zip(surgery.records[0].tasks, surgery.records[0].lengths))
    for task, weight in weights.items():
        assert norms[True][task] == pytest.approx(weight * norms[False][task], rel=1e-9)


def test_begin_is_called_once_a_step_and_a_wrapper_is_opened():
    model, batch = make_model(), batch_of(TASKS)

    class Counted:
        calls = []

        def begin(self, m):
            self.calls.append(m)

        def __call__(self, m, task, part, clean):
            assert m is model
            return clean.outputs.sum() * 0

    wrapper = nn.Module()
    wrapper.module = model
    loss_fn = regularized_loss(Counted())
    loss_fn(wrapper, batch)
    loss_fn(model, batch)
    assert Counted.calls == [model, model]


def test_bad_losses_are_refused():
    model, batch = make_model(), batch_of(TASKS)
    nan = regularized_loss(SmoothnessPenalty(points=3), lambda *_: torch.tensor(math.nan))
    with pytest.raises(ValueError, match="in function of sst"):
        nan(model, batch)
    with pytest.raises(ValueError, match="task among"):
        regularized_loss(weights={"nli": 1.0})(model, batch)
    with pytest.raises(ValueError, match="labels for task 'sst'"):
        regularized_loss()(model, {"sst": TaskBatch("sst", batch["sst"].first)})
    with torch.no_grad():
        model.heads["sst"].linear.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="loss of sst"):
        regularized_loss()(model, batch)


def test_states_of_penalties_are_collected_and_given_back():
    first = regularized_loss(lambda *_: torch.tensor(0.0), SmoothnessPenalty(points=3, seed=1))
    model, batch = make_model(), batch_of(TASKS)
    first(model, batch)
    state = copy.deepcopy(first.state_dict())
    assert set(state) == {"1"}
    second = regularized_loss(lambda *_: torch.tensor(0.0), SmoothnessPenalty(points=3, seed=2))
    second.load_state_dict(state)
    torch.manual_seed(1)
    a = first(model, batch)
    torch.manual_seed(1)
    b = second(model, batch)
    assert all(torch.equal(a[task], b[task]) for task in a)
    for wrong in ({}, {"0": {}}, {"0": {}, "1": {}}):
        with pytest.raises(ValueError, match="state of penalties"):
            second.load_state_dict(wrong)


# --- points on a ball


@pytest.mark.parametrize("p", [1, 1.5, 2, 3.7, INF])
@pytest.mark.parametrize("width", [1, 2, 9])
def test_points_lie_on_or_in_the_ball(p, width):
    x = ball_points(4000, width, 0.3, p, "surface", dice(), dtype=torch.float64)
    assert_close(torch.linalg.vector_norm(x, p, -1), torch.full((4000,), 0.3, dtype=torch.float64))
    y = ball_points(4000, width, 0.3, p, "volume", dice(), dtype=torch.float64)
    share = (torch.linalg.vector_norm(y, p, -1) / 0.3) ** width  # of the volume: flat on [0, 1]
    assert share.max() <= 1 + 1e-9
    assert abs(share.mean() - 1 / 2) < 0.02 and abs(share.square().mean() - 1 / 3) < 0.02
    for points in (x, y):
        assert points.mean(0).abs().max() < 0.02
        assert abs((points > 0).double().mean() - 0.5) < 0.02


@pytest.mark.parametrize("p", [1, 1.5, 3, INF])
def test_volume_is_flat_in_the_ball(p):
    """Against rejection from the cube around it: shares of a smaller ball of another norm."""
    cube = 2 * torch.rand(200_000, 2, generator=dice(3), dtype=torch.float64) - 1
    inside = cube[torch.linalg.vector_norm(cube, p, -1) <= 1]
    ours = ball_points(40_000, 2, 1.0, p, "volume", dice(), dtype=torch.float64)
    for test in (
        lambda x: x.norm(dim=-1) < 0.6,
        lambda x: x.abs().amin(-1) < 0.1,
        lambda x: x[:, 0] > 0.5,
    ):
        assert abs(test(ours).double().mean() - test(inside).double().mean()) < 0.012


def test_points_obey_dtype_and_generator():
    assert ball_points(2, 3, dtype=torch.float64).dtype == torch.float64
    assert torch.equal(ball_points(4, 3, generator=dice(1)), ball_points(4, 3, generator=dice(1)))
    assert not torch.equal(
        ball_points(4, 3, generator=dice(1)), ball_points(4, 3, generator=dice(2))
    )
    before = torch.get_rng_state()
    ball_points(4, 3, p=1.5, where="volume", generator=dice())
    assert torch.equal(before, torch.get_rng_state())
    for kw in (
        {"p": 0.9},
        {"radius": 0.0},
        {"radius": -1},
        {"radius": INF},
        {"where": "corner"},
        {"p": math.nan},
        {"radius": math.nan},
    ):
        with pytest.raises(ValueError, match="expected p >= 1, radius > 0"):
            ball_points(2, 3, **kw)


# --- the search


@pytest.mark.parametrize("name", HEADS)
def test_shortcut_is_the_head_at_every_point(name):
    head = make_head(name).eval()
    vectors = make_vectors(head)
    shifts = tuple(
        ball_points(6, D, 0.7, generator=dice(i), dtype=torch.float64) for i in range(len(vectors))
    )
    found = outputs_at(head, vectors, shifts)
    rows = [
        torch.stack(
            [
                head(*(x[i : i + 1] + d[j : j + 1] for x, d in zip(vectors, shifts)))[0]
                for j in range(6)
            ]
        )
        for i in range(5)
    ]
    assert_close(found, torch.stack(rows))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("limit", [1, 40, 2**18])
def test_best_point_of_each_row_in_chunks(name, limit):
    head = make_head(name).eval()
    vectors, distance = make_vectors(head), output_distance(head)
    shifts = tuple(
        ball_points(9, D, 0.7, generator=dice(i), dtype=torch.float64) for i in range(len(vectors))
    )
    found = worst_shifts(head, vectors, shifts, distance, limit)
    moved = torch.stack(
        [
            distance(head(*(x + d[j] for x, d in zip(vectors, shifts))), head(*vectors))
            for j in range(9)
        ]
    )
    best = moved.argmax(0)
    for mine, d in zip(found, shifts):
        assert torch.equal(mine, d[best])


class Largest(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numbers = max(
            [self.numbers, *(x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor))]
        )
        return out


@pytest.mark.parametrize(
    "head",
    [
        LinearHead(128, 3),
        PairLinear(128),
        CosineHead(),
        LinearPlusCosine(128),
        ConcatDiff(128),
        ClippedCosineHead(128, project=100),
    ],
    ids=lambda head: type(head).__name__,
)
@pytest.mark.parametrize("search", ["random", "pgd"])
def test_no_tensor_is_larger_than_the_points(head, search):
    vectors = tuple(torch.randn(1 + head.pair, 20, 128).requires_grad_())
    with Largest() as peak:
        sampled_smoothness(head, vectors, points=3000, search=search).backward()
    if type(head) is ConcatDiff:  # bends in between: copies, in chunks
        assert peak.numbers <= 3 * 2**18 < 20 * 3000 * 128
    elif search == "pgd":
        assert peak.numbers < 20 * 128 * 10
    else:
        assert peak.numbers == 3000 * 128  # 20 times less than all copies


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("search", ["random", "pgd"])
def test_value_and_gradients_are_those_of_the_best_point(name, search):
    """Shifts are found without a graph; value and gradients are those of the distance at these
    shifts.
    """
    head = make_head(name).train()  # its dropout must not be felt
    vectors = tuple(x.requires_grad_() for x in make_vectors(head))
    found = sampled_smoothness(head, vectors, 0.3, 8, search=search, steps=0, generator=dice(7))
    head.eval()
    draw = dice(7)
    n = 8 if search == "random" else 5
    shifts = [ball_points(n, D, 0.3, generator=draw, dtype=torch.float64) for _ in vectors]
    distance, clean = output_distance(head), head(*vectors)
    if search == "random":
        moved = torch.stack(
            [distance(head(*(x + d[j] for x, d in zip(vectors, shifts))), clean) for j in range(n)]
        )
        shifts = [d[moved.argmax(0)] for d in shifts]
    expected = distance(head(*(x + d for x, d in zip(vectors, shifts))), clean).mean()
    inputs = [*vectors, *head.parameters()]
    assert_close(found, expected)
    assert found > 0
    grads = [torch.autograd.grad(loss, inputs, allow_unused=True) for loss in (found, expected)]
    for mine, other in zip(*grads):
        assert (mine is None) == (other is None)
        if mine is not None:
            assert_close(mine, other)


@pytest.mark.parametrize("name", HEADS)
def test_more_points_and_larger_balls_find_more(name):
    head = make_head(name)
    vectors = make_vectors(head)

    def find(radius, n, **kw):
        return sampled_smoothness(head, vectors, radius, n, generator=dice(1), **kw).item()

    if head.pair:  # draws for the second vector begin where those for the first end
        few, many = find(0.1, 10), find(0.1, 10_000)
    else:
        # multiples of 16 numbers: the first draws are the same
        few, many = find(0.1, 20), find(0.1, 40)
    assert 0 < few <= many
    assert find(0.01, 100) < find(0.1, 100)
    assert find(0.1, 1, search="pgd") >= 0.99 * many


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("p", [2, INF])
def test_climbing_never_ends_below_its_start_and_stays_in_the_ball(name, p):
    head = make_head(name)
    vectors = make_vectors(head)
    found = [
        sampled_smoothness(
            head, vectors, 0.5, 1, p, search="pgd", steps=k, generator=dice(4)
        ).item()
        for k in (0, 1, 4, 12)
    ]
    assert found == sorted(found) and found[-1] > found[0]
    calls = []
    distance = output_distance(head)
    inner = head.forward
    head.forward = lambda *x: (
        calls.append(
            [torch.linalg.vector_norm(a - b, p, -1).max().item() for a, b in zip(x, vectors)]
        )
        or inner(*x)
    )
    sampled_smoothness(head, vectors, 0.5, 1, p, search="pgd", distance=distance)
    assert max(max(c) for c in calls) <= 0.5 + 1e-9
    assert len(calls) == 14  # clean, 11 on the way, the last, clean


def test_steepest_and_into_ball():
    g = torch.randn(50, D, generator=dice(), dtype=torch.float64)
    for p in (2, INF):
        step = steepest(g, p)
        assert_close(torch.linalg.vector_norm(step, p, -1), torch.ones(50, dtype=torch.float64))
        others = ball_points(500, D, 1.0, p, generator=dice(1), dtype=torch.float64)
        assert ((g * step).sum(-1, keepdim=True) >= g @ others.T).all()
        near = into_ball(g, 0.8, p)
        assert (torch.linalg.vector_norm(near, p, -1) <= 0.8 + 1e-9).all()
        inside = 0.8 * ball_points(500, D, 1.0, p, "volume", dice(2), dtype=torch.float64)
        assert ((g - near).norm(dim=-1)[:, None] <= torch.cdist(g, inside)).all()
        assert torch.equal(into_ball(0.1 * step, 0.8, p), 0.1 * step)
        assert (steepest(torch.zeros(2, 3), p) == 0).all() and (
            into_ball(torch.zeros(2, 3), 0.5, p) == 0
        ).all()
    assert_close(steepest(torch.tensor([3e-38, 4e-38]), 2), torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize(
    "kw, message",
    [
        ({"search": "grid"}, "got 'grid'"),
        ({"points": 0}, "got 'random', p 2.0, 0"),
        ({"steps": -1}, "and -1"),
        ({"search": "pgd", "p": 3}, "pgd' with p of 2 or infinity"),
        ({"p": 0.5}, "p >= 1"),
        ({"radius": 0.0}, "radius > 0"),
    ],
)
def test_bad_searches_are_refused(kw, message):
    head = make_head("linear")
    with pytest.raises(ValueError, match=message):
        sampled_smoothness(head, make_vectors(head), **kw)


# --- exact maxima


@pytest.mark.parametrize("p", [1, 1.3, 2, 3, INF])
@pytest.mark.parametrize("goal", ["similarity", "paraphrase", "paraphrase_mse"])
def test_exact_maximum_of_a_pair(p, goal):
    torch.manual_seed(0)
    head = PairLinear(2, goal).double()
    vectors = tuple(torch.randn(2, 3, 2, dtype=torch.float64))
    exact = linear_maximum(head, vectors, 0.4, p)
    assert exact.shape == (3,) and not exact.requires_grad
    tried = sampled_smoothness(head, vectors, 0.4, 200_000, p, generator=dice())
    assert 0.99 * exact.mean() < tried <= exact.mean() * (1 + 1e-9)
    if p in (2, INF):  # a climb ends on one of two sides; where they differ, chance says on which
        reach = 0.4 * sum(
            torch.linalg.vector_norm(w, {2: 2, INF: 1}[p]) for w in head.linear.weight[0].chunk(2)
        )
        z, distance = head.eval()(*vectors), output_distance(goal)
        sides = torch.stack([distance(z + reach, z), distance(z - reach, z)])
        climbed = torch.stack(
            [
                sampled_smoothness(
                    head,
                    tuple(x[i : i + 1] for x in vectors),
                    0.4,
                    p=p,
                    search="pgd",
                    steps=20,
                    generator=dice(i),
                )
                for i in range(3)
            ]
        )
        assert_close(sides.amax(0), exact)
        assert_close(
            (climbed / sides - 1).abs().amin(0), torch.zeros_like(exact), rtol=0, atol=1e-9
        )


def test_exact_maximum_of_classes_to_second_order():
    torch.manual_seed(0)
    head = LinearHead(D, 4).double()
    vectors = make_vectors(head)
    for radius in (1e-3, 1e-2):
        exact = linear_maximum(head, vectors, radius)
        assert not exact.requires_grad  # it says "without graph", and the head's weights have one
        climbed = torch.stack(
            [
                sampled_smoothness(
                    head, (x[None],), radius, search="pgd", steps=200, generator=dice(1)
                )
                for x in vectors[0]
            ]
        )
        assert_close(climbed, exact, rtol=3 * radius, atol=0)
    W, z = head.linear.weight, head.eval()(vectors[0])
    for row, found in zip(z.softmax(-1), linear_maximum(head, vectors, 0.3)):
        matrix = W.T @ (row.diag() - row[:, None] * row) @ W
        assert_close(found, 0.09 * torch.linalg.eigvalsh(matrix)[-1])


def test_exact_maximum_only_where_it_is_known():
    for name, p in (
        ("cosine", 2),
        ("concat", 2),
        ("line and cosine", 2),
        ("linear", INF),
        ("pair", 0.5),
        ("pair", math.nan),
    ):
        head = make_head(name)
        with pytest.raises(ValueError, match="PairLinear and p >= 1, or LinearHead and p = 2"):
            linear_maximum(head, make_vectors(head), 0.1, p)


def test_random_search_in_768_dimensions_finds_little():
    """The share of a head's reach that one point finds is Beta(1/2, 767/2); the best of n is its
    largest order statistic.
    """
    points = ball_points(5000, 768, generator=dice())
    heads = ball_points(300, 768, generator=dice(1))
    grid = np.linspace(0, 0.1, 10_001)
    for n, share in ((100, 0.0100), (1000, 0.0154), (5000, 0.0193)):
        beyond = 1 - stats.beta(1 / 2, 767 / 2).cdf(grid) ** n
        mean = np.trapezoid(beyond, grid)
        deviation = math.sqrt(2 * np.trapezoid(grid * beyond, grid) - mean**2)
        found = (points[:n] @ heads.T).square().amax(0).mean().item()
        # 300 heads: its standard error
        assert abs(mean - share) < 5e-5 and abs(found - mean) < 4.5 * deviation / math.sqrt(300)


# --- the penalty


@pytest.mark.parametrize("search", ["random", "pgd"])
@pytest.mark.parametrize("mode", ["full", "frozen"])
def test_penalty_in_training(search, mode):
    model, batch = make_model(), batch_of(TASKS, 0.5)
    model.set_mode(mode)
    charge = SmoothnessPenalty(3.0, 0.5, 20, search=search, seed=4)
    torch.manual_seed(8)
    clean = clean_pass(model, "stsb", batch["stsb"])
    before = torch.get_rng_state()
    found = charge(model, "stsb", batch["stsb"], clean)
    assert torch.equal(torch.get_rng_state(), before)
    again = 3 * sampled_smoothness(
        model.heads["stsb"], clean.vectors, 0.5, 20, search=search, generator=dice(4)
    )
    assert_close(found, again)
    assert model.heads["stsb"].training
    loss_fn = regularized_loss(charge)
    _, grads = run(model, loss_fn, batch)
    assert any(name.startswith("encoder.") for name in grads) == (mode == "full")
    assert all(found[1] > 0 for found in loss_fn.last.values())


@pytest.mark.parametrize(
    "kw, message",
    [
        ({"weight": math.nan}, "weight of at least 0, got nan"),
        ({"weight": -1.0}, "weight"),
        ({"weight": INF}, "weight"),
        ({"radius": math.nan}, "radius > 0"),
        ({"radius": 0.0}, "radius > 0"),
        ({"points": 0}, "points >= 1"),
        ({"steps": -1}, "steps >= 0"),
        ({"p": 0.5}, "p >= 1"),
        ({"where": "corner"}, "where"),
        ({"search": "grid"}, "search"),
        ({"search": "pgd", "p": 3.0}, "p of 2"),
    ],
)
def test_bad_penalties_are_refused_at_once(kw, message):
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        SmoothnessPenalty(**kw)
    SmoothnessPenalty(), SmoothnessPenalty(0.0, p=1.5, where="volume"), SmoothnessPenalty(p=INF)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_clean_pass_must_know_all_its_dice():
    with pytest.raises(TypeError, match="head_random_state"):
        Clean((torch.zeros(1, 2),), torch.zeros(1), {})


def test_penalty_settings_are_passed_on():
    model, batch = make_model(dropout=0.0), batch_of(TASKS)
    clean = clean_pass(model, "sst", batch["sst"])
    kw = {"radius": 0.2, "points": 7, "p": 3.0, "where": "volume", "search": "random", "steps": 2}
    found = SmoothnessPenalty(2.0, seed=9, **kw)(model, "sst", batch["sst"], clean)
    assert_close(
        found, 2 * sampled_smoothness(model.heads["sst"], clean.vectors, generator=dice(9), **kw)
    )


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("search", ["random", "pgd"])
def test_penalty_under_bf16_is_reduced_in_float32(search):
    model, batch = make_model().eval(), batch_of(TASKS)
    short = losses_on_device(
        model, batch, regularized_loss(SmoothnessPenalty(1.0, 0.5, 50, search=search)), "bf16"
    )
    full = compute_losses(
        model, batch, regularized_loss(SmoothnessPenalty(1.0, 0.5, 50, search=search))
    )
    for task in batch:
        assert short[task].dtype == torch.float32
        assert_close(short[task], full[task], rtol=0.05, atol=0.05)


def test_training_with_the_penalty_flattens_the_head():
    model, batch = make_model(dropout=0.0), batch_of(TASKS)
    loss_fn = regularized_loss(SmoothnessPenalty(30.0, 0.5, search="pgd"))
    optimizer = AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in steps(model, [batch] * 15, loss_fn, optimizer):
        found.append(loss_fn.last["stsb"][1].item())
    assert found[-1] < 0.2 * found[0]
