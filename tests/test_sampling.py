"""Shares against the formula, rows against counting, and a sampler stopped at every step or shared
by processes.
"""

import json
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from minbert.sampling import (
    SAMPLING_STRATEGIES,
    TaskSampler,
    seeded,
    shuffled_pass,
    sort_by_length,
    task_shares,
)

COURSE = {"sst": 8544, "quora": 141498, "sts": 6040}
SMALL = {"a": 23, "b": 9, "c": 5}


def run(sampler) -> list[dict[str, list[int]]]:
    return [{task: rows.tolist() for task, rows in step.items()} for step in sampler]


def rows_of(steps, task) -> list[int]:
    return [row for step in steps for row in step.get(task, [])]


# --- shares


@pytest.mark.parametrize(
    "strategy, epoch, epochs, alpha",
    [
        ("proportional", 0, 1, 1.0),
        ("proportional", 3, 5, 1.0),
        ("sqrt", 0, 1, 0.5),
        ("sqrt", 3, 5, 0.5),
        ("uniform", 0, 1, 0.0),
        ("round_robin", 0, 1, 0.0),
        ("joint", 0, 1, 0.0),
        ("annealed", 0, 1, 1.0),
        ("annealed", 0, 2, 1.0),
        ("annealed", 1, 2, 0.2),
        ("annealed", 0, 5, 1.0),
        ("annealed", 1, 5, 0.8),
        ("annealed", 2, 5, 0.6),
        ("annealed", 3, 5, 0.4),
        ("annealed", 4, 5, 0.2),
    ],
)
@pytest.mark.parametrize(
    "sizes", [COURSE, {"x": 1, "y": 4, "z": 16}, {"one": 7}, {"p": 1, "q": 10**7}], ids=str
)
def test_shares_are_the_formula(strategy, epoch, epochs, alpha, sizes):
    total = sum(n**alpha for n in sizes.values())
    got = task_shares(sizes, strategy, epoch, epochs)
    assert list(got) == list(sizes)
    assert_close(got, {task: n**alpha / total for task, n in sizes.items()}, rtol=1e-12, atol=0)
    assert abs(sum(got.values()) - 1) < 1e-12


@pytest.mark.parametrize(
    "strategy, epoch, shares",
    [
        ("proportional", 0, (0.055, 0.907, 0.039)),
        ("sqrt", 0, (0.169, 0.689, 0.142)),
        ("annealed", 9, (0.271, 0.476, 0.253)),
        ("uniform", 0, (0.333, 0.333, 0.333)),
    ],
)
def test_shares_of_the_course(strategy, epoch, shares):
    assert tuple(round(p, 3) for p in task_shares(COURSE, strategy, epoch, 10).values()) == shares


def test_equal_sizes_have_equal_shares_under_every_law():
    for strategy in SAMPLING_STRATEGIES:
        assert_close(list(task_shares({"a": 9, "b": 9}, strategy, 1, 3).values()), [0.5, 0.5])


# --- a stream of its own for every key


def test_a_key_gives_one_stream_and_another_key_another():
    keys = [
        (11711,),
        (11711, 0),
        (11711, 1),
        (11712, 0),
        (11711, "sst", 0),
        (11711, "sst", 1),
        (11711, "sts", 0),
        (0,),
        ("0", 0),
    ]
    first = [torch.rand(4, generator=seeded(*key), dtype=torch.float64).tolist() for key in keys]
    assert first == [
        torch.rand(4, generator=seeded(*key), dtype=torch.float64).tolist() for key in keys
    ]
    assert len({tuple(x) for x in first}) == len(keys)


def test_the_stream_is_that_of_every_process_and_leaves_the_global_one_alone():
    code = "from minbert.sampling import seeded; print(seeded(11711, 'sst', 3).initial_seed())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(other) == seeded(11711, "sst", 3).initial_seed()
    state = torch.get_rng_state()
    run(TaskSampler(SMALL, 4))
    assert torch.equal(torch.get_rng_state(), state)


# --- one pass


@pytest.mark.parametrize(
    "n, fraction, length, kept",
    [
        (10, 1.0, 10, 10),
        (10, 1.0, 25, 10),
        (10, 0.5, 5, 5),
        (10, 0.5, 10, 5),
        (10, 0.3, 1, 3),
        (7, 0.5, 9, 4),
        (1, 0.1, 3, 1),
        (100, 0.001, 4, 1),
        (10, 1.0, 3, 10),
        (5, 0.9, 12, 4),
    ],
)
def test_a_pass_repeats_its_rows_evenly(n, fraction, length, kept):
    rows = shuffled_pass(n, fraction, length, seeded("pass"))
    assert rows.shape == (length,) and rows.dtype == torch.int64
    counts = Counter(rows.tolist())
    assert set(counts) <= set(range(n)) and len(counts) == min(kept, length)
    assert set(counts.values()) <= {length // kept, -(-length // kept)}
    # every round before the last is a shuffle of all kept rows
    for start in range(0, length, kept):
        assert len(set(rows[start : start + kept].tolist())) == min(kept, length - start)


def test_a_pass_is_shuffled_in_every_round():
    rows = shuffled_pass(50, 1.0, 150, seeded("pass"))
    rounds = [rows[i : i + 50].tolist() for i in (0, 50, 100)]
    assert (
        all(sorted(r) == list(range(50)) for r in rounds) and len({tuple(r) for r in rounds}) == 3
    )
    assert list(range(50)) not in rounds


def test_every_row_is_kept_equally_often():
    kept = Counter(
        row for k in range(2000) for row in shuffled_pass(20, 0.25, 5, seeded("fair", k)).tolist()
    )
    expected = 2000 * 5 / 20  # each row in a quarter of the passes; standard deviation 19
    assert set(kept) == set(range(20)) and all(
        abs(count - expected) < 5 * 19.4 for count in kept.values()
    )


# --- which task


@pytest.mark.parametrize("strategy", ["proportional", "sqrt", "uniform"])
@pytest.mark.parametrize("seed", [11711, 7])
def test_frequencies_follow_the_shares(strategy, seed):
    n = 20000
    counts = Counter(
        task for step in TaskSampler(COURSE, 1, strategy, steps=n, seed=seed) for task in step
    )
    chi = sum((counts[t] - n * p) ** 2 / (n * p) for t, p in task_shares(COURSE, strategy).items())
    assert chi < 20  # 2 degrees of freedom: one draw in 20,000 exceeds it, and the draw is seeded


def test_annealed_frequencies_follow_the_shares_of_their_epoch():
    n, sampler = 8000, TaskSampler(COURSE, 1, "annealed", epochs=4, steps=8000)
    tasks = [task for step in sampler for task in step]
    assert len(tasks) == len(sampler) == 4 * n
    for epoch in range(4):
        counts = Counter(tasks[epoch * n : (epoch + 1) * n])
        shares = task_shares(COURSE, "annealed", epoch, 4)
        assert sum((counts[t] - n * p) ** 2 / (n * p) for t, p in shares.items()) < 20


def test_shares_are_those_of_the_lengths_after_resampling():
    n = 8000
    counts = Counter(
        t
        for step in TaskSampler({"a": 900, "b": 100}, 1, steps=n, fractions={"a": 1 / 9})
        for t in step
    )
    # 100 rows each, so one half; without the fraction nine tenths
    assert abs(counts["a"] / n - 0.5) < 0.03
    counts = Counter(
        t for step in TaskSampler({"a": 900, "b": 100}, 1, steps=n, resample="up") for t in step
    )
    assert abs(counts["a"] / n - 0.5) < 0.03


def test_draws_differ_between_epochs_and_seeds():
    tasks = [list(step)[0] for step in TaskSampler(SMALL, 1, "uniform", epochs=2, steps=60)]
    assert tasks[:60] != tasks[60:]
    assert tasks != [
        list(step)[0] for step in TaskSampler(SMALL, 1, "uniform", epochs=2, steps=60, seed=1)
    ]
    assert tasks == [list(step)[0] for step in TaskSampler(SMALL, 1, "uniform", epochs=2, steps=60)]


def test_round_robin_goes_round_in_order_even_across_epochs():
    tasks = [list(step) for step in TaskSampler(SMALL, 4, "round_robin", epochs=2)]
    assert tasks == [["a"], ["b"], ["c"]] * 12  # 6 batches of a, so 18 steps an epoch
    tasks = [list(step)[0] for step in TaskSampler(SMALL, 4, "round_robin", epochs=3, steps=4)]
    # an epoch of four steps ends inside a round
    assert tasks == list("abcabcabcabc")
    # the order given, not the alphabet
    assert [list(s)[0] for s in TaskSampler({"z": 2, "a": 2}, 2, "round_robin")] == ["z", "a"]


def test_joint_has_every_task_in_every_step():
    steps = run(TaskSampler(SMALL, {"a": 4, "b": 2, "c": 3}, "joint"))
    assert len(steps) == 6 and all(list(step) == ["a", "b", "c"] for step in steps)
    assert sorted(rows_of(steps, "a")) == list(range(23))
    # by hand: b has 9 rows in batches of 2, so five batches and one of the second pass; c has 5 in
    # batches of 3
    assert [len(step["b"]) for step in steps] == [2, 2, 2, 2, 1, 2] and [
        len(step["c"]) for step in steps
    ] == [3, 2] * 3


# --- how many steps


@pytest.mark.parametrize(
    "strategy, kwargs, steps",
    [
        ("proportional", {}, 6 + 3 + 2),
        ("sqrt", {}, 11),
        ("uniform", {}, 11),
        ("annealed", {}, 11),
        ("joint", {}, 6),
        ("round_robin", {}, 18),
        ("uniform", dict(resample="up"), 18),
        ("uniform", dict(resample="truncate"), 6),
        ("uniform", dict(fractions={"a": 0.5}), 3 + 3 + 2),
        ("joint", dict(fractions={"a": 0.2}), 3),
        ("joint", dict(resample="truncate"), 2),
        ("round_robin", dict(resample="truncate"), 6),
        ("uniform", dict(fractions={"a": 0.2}, resample="up"), 9),
        ("joint", dict(steps=7), 7),
    ],
)
@pytest.mark.parametrize("epochs", [1, 3])
def test_length_of_an_epoch(strategy, kwargs, steps, epochs):
    sampler = TaskSampler(SMALL, 4, strategy, epochs=epochs, **kwargs)
    assert sampler.steps_per_epoch == steps and len(sampler) == epochs * steps == len(run(sampler))
    assert run(sampler) == []  # it is used up; a new run needs a new sampler


# --- which rows


@pytest.mark.parametrize("strategy", SAMPLING_STRATEGIES)
@pytest.mark.parametrize("batch", [1, 4, 50, 64])
def test_one_task_is_plain_training_bit_for_bit_under_every_law(strategy, batch):
    steps = run(TaskSampler({"sst": 50}, batch, strategy, epochs=3))
    assert steps == run(TaskSampler({"sst": 50}, batch, epochs=3))
    assert len(steps) == 3 * -(-50 // batch)
    per = len(steps) // 3
    orders = [rows_of(steps[per * e : per * (e + 1)], "sst") for e in range(3)]
    # an epoch is every row exactly once
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3  # in a new order each time
    assert all(len(step["sst"]) == batch for step in steps[: per - 1])


@pytest.mark.parametrize("strategy", SAMPLING_STRATEGIES)
def test_no_row_returns_before_every_other_was_seen(strategy):
    steps = run(TaskSampler(SMALL, {"a": 4, "b": 2, "c": 3}, strategy, epochs=4))
    for task, n in SMALL.items():
        rows = rows_of(steps, task)
        assert len(rows) > n
        for start in range(0, len(rows), n):
            assert len(set(rows[start : start + n])) == len(rows[start : start + n])


@pytest.mark.parametrize("strategy", SAMPLING_STRATEGIES)
def test_a_new_task_leaves_the_rows_of_the_others_as_they_were(strategy):
    alone = rows_of(run(TaskSampler({"sst": 50}, 8, epochs=9)), "sst")
    mixed = rows_of(run(TaskSampler({"sts": 20, "sst": 50}, 8, strategy, epochs=3)), "sst")
    assert len(mixed) > 50 and mixed == alone[: len(mixed)]


def test_rows_depend_on_the_seed():
    orders = {
        tuple(rows_of(run(TaskSampler({"sst": 50}, 8, seed=seed)), "sst")) for seed in (0, 1, 11711)
    }
    assert len(orders) == 3


def test_the_same_number_of_rows_in_two_tasks_gives_two_orders():
    steps = run(TaskSampler({"a": 40, "b": 40}, 40, "joint"))
    assert steps[0]["a"] != steps[0]["b"]


@pytest.mark.parametrize(
    "resample, fractions, lengths, kept",
    [
        (None, None, (23, 9, 5), (23, 9, 5)),
        ("up", None, (23, 23, 23), (23, 9, 5)),
        ("truncate", None, (5, 5, 5), (23, 9, 5)),
        (None, {"a": 0.5}, (12, 9, 5), (12, 9, 5)),
        (None, {"a": 0.1, "c": 0.2}, (2, 9, 1), (2, 9, 1)),
        ("up", {"a": 0.2}, (9, 9, 9), (5, 9, 5)),
        ("truncate", {"a": 0.1}, (2, 2, 2), (2, 9, 5)),
        (None, {"a": 0.001}, (1, 9, 5), (1, 9, 5)),
    ],
)
def test_resampling_counts(resample, fractions, lengths, kept):
    sampler = TaskSampler(SMALL, 4, "round_robin", epochs=3, resample=resample, fractions=fractions)
    assert tuple(sampler.lengths.values()) == lengths
    steps, seen = run(sampler), {}
    for task, length, k in zip(SMALL, lengths, kept):
        rows = rows_of(steps, task)
        assert len(rows) >= length
        whole = [rows[i : i + length] for i in range(0, len(rows) - length + 1, length)]
        for one in whole:
            counts = Counter(one)
            assert len(counts) == min(k, length) and set(counts.values()) <= {
                length // k,
                -(-length // k),
            }
        seen[task] = [frozenset(one) for one in whole]
    # the rows of a fraction are drawn again each pass
    if fractions == {"a": 0.5} or resample == "truncate":
        assert len(set(seen["a"])) > 1


# --- stopped and continued


@pytest.mark.parametrize("strategy", SAMPLING_STRATEGIES)
@pytest.mark.parametrize("resample", [None, "up"])
def test_a_state_continues_the_same_steps_from_anywhere(strategy, resample):
    options = dict(
        sizes=SMALL,
        batch_sizes={"a": 4, "b": 2, "c": 3},
        strategy=strategy,
        epochs=2,
        fractions={"a": 0.6},
        resample=resample,
    )
    whole = run(TaskSampler(**options))
    for stop in range(len(whole) + 1):
        first = TaskSampler(**options)
        for _, _ in zip(range(stop), first):
            pass
        text = json.dumps(first.state_dict())
        second = TaskSampler(**options)
        second.load_state_dict(json.loads(text))
        assert run(second) == whole[stop:]
        assert json.dumps(first.state_dict()) == text  # a state is a copy


def test_a_used_sampler_can_be_set_back():
    sampler = TaskSampler(SMALL, 4, "sqrt", epochs=2)
    start, whole = sampler.state_dict(), run(sampler)
    for _ in range(2):
        sampler.load_state_dict(start)
        assert run(sampler) == whole


def test_a_state_survives_a_change_of_the_number_of_processes():
    first = TaskSampler(SMALL, 6, "joint", epochs=2, rank=1, world=2)
    for _, _ in zip(range(3), first):
        pass
    second = TaskSampler(SMALL, 6, "joint", epochs=2)
    second.load_state_dict(first.state_dict())
    assert run(second) == run(TaskSampler(SMALL, 6, "joint", epochs=2))[3:]


@pytest.mark.parametrize(
    "change",
    [
        dict(sizes={"a": 24, "b": 9, "c": 5}),
        dict(sizes={"a": 23, "b": 9}),
        dict(sizes={"c": 5, "b": 9, "a": 23}),
        dict(batch_sizes=5),
        dict(strategy="sqrt"),
        dict(epochs=3),
        dict(steps=4),
        dict(seed=1),
        dict(resample="up"),
        dict(fractions={"a": 0.5}),
        dict(length_bucket=2),
    ],
    ids=str,
)
def test_the_state_of_another_sampler_is_refused(change):
    state = TaskSampler(SMALL, 4, "uniform").state_dict()
    other = TaskSampler(**{"sizes": SMALL, "batch_sizes": 4, "strategy": "uniform", **change})
    with pytest.raises(ValueError, match="state of another sampler; .*expected .*, got"):
        other.load_state_dict(json.loads(json.dumps(state)))
    assert (other.epoch, other.step) == (0, 0)


# --- rows of one length


def counted(sampler):
    """A sampler that knows how long its rows are."""
    sampler.token_counts = {
        task: torch.randint(2, 60, (n,), generator=seeded("counts", task))
        for task, n in sampler.sizes.items()
    }
    return sampler


@pytest.mark.parametrize(
    "n, batch, length_bucket",
    [(100, 8, 4), (96, 8, 4), (7, 8, 4), (33, 4, 1), (64, 1, 5), (50, 7, 100)],
)
def test_stretches_keep_rows_and_batches_hold_neighbours_of_one_stretch(n, batch, length_bucket):
    counts = torch.randint(2, 60, (2 * n,), generator=seeded("counts"))
    pack = torch.randperm(2 * n, generator=seeded("pack"))[:n]
    rows = sort_by_length(pack, counts, batch, length_bucket, seeded("order"))
    assert sorted(rows.tolist()) == sorted(pack.tolist())
    expected = []
    for start in range(0, n, length_bucket * batch):
        stretch = sorted(
            pack[start : start + length_bucket * batch].tolist(), key=lambda row: int(counts[row])
        )
        expected += [stretch[i : i + batch] for i in range(0, len(stretch), batch)]
    dealt = [part.tolist() for part in rows.split(batch)]
    assert sorted(map(tuple, dealt)) == sorted(map(tuple, expected))
    assert len(dealt[-1]) == (n % batch or batch)


def test_batches_of_stretches_come_in_chance_order():
    counts = torch.arange(640)
    rows = sort_by_length(
        torch.randperm(640, generator=seeded("pack")), counts, 8, 10, seeded("order")
    )
    means = [part.float().mean().item() for part in rows.split(8)]
    ranks = torch.tensor(means).argsort().argsort().double()
    # four deviations of no order
    assert (
        abs(torch.corrcoef(torch.stack([ranks, torch.arange(80.0, dtype=torch.float64)]))[0, 1])
        < 4 / 80**0.5
    )
    assert not torch.equal(
        rows,
        sort_by_length(
            torch.randperm(640, generator=seeded("pack")), counts, 8, 10, seeded("another order")
        ),
    )


@pytest.mark.parametrize("strategy", SAMPLING_STRATEGIES)
def test_a_sampler_of_alike_rows_deals_all_and_goes_on_where_it_stopped(strategy):
    def make():
        return counted(
            TaskSampler(SMALL, {"a": 4, "b": 2, "c": 3}, strategy, epochs=2, length_bucket=3)
        )

    whole, plain = (
        run(make()),
        run(TaskSampler(SMALL, {"a": 4, "b": 2, "c": 3}, strategy, epochs=2)),
    )
    assert [{task: len(rows) for task, rows in step.items()} for step in whole] == [
        {task: len(rows) for task, rows in step.items()} for step in plain
    ]
    for task, n in SMALL.items():
        rows = rows_of(whole, task)
        for start in range(0, len(rows) - n + 1, n):
            assert sorted(rows[start : start + n]) == list(range(n))
    for stop in (1, 4, len(whole) - 1):
        first, second = make(), make()
        for _, _ in zip(range(stop), first):
            pass
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert run(second) == whole[stop:]


def test_alike_rows_need_lengths():
    with pytest.raises(
        ValueError,
        match=r"token_counts of \['a', 'b', 'c'\] for length_bucket=2, got those of \[\]",
    ):
        next(iter(TaskSampler(SMALL, 4, length_bucket=2)))
    with pytest.raises(ValueError, match="length_bucket of at least 1"):
        TaskSampler(SMALL, 4, length_bucket=0)


# --- many processes


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("strategy", ["joint", "sqrt", "round_robin"])
def test_the_processes_share_each_batch_and_the_weights_give_its_mean(world, strategy):
    options = dict(sizes=SMALL, batch_sizes={"a": 7, "b": 4, "c": 3}, strategy=strategy, epochs=2)
    values = {
        task: torch.randn(n, generator=seeded("values", task), dtype=torch.float64)
        for task, n in SMALL.items()
    }
    samplers = [TaskSampler(rank=rank, world=world, **options) for rank in range(world)]
    sizes = set()
    for whole, *parts in zip(TaskSampler(**options), *samplers, strict=True):
        # the same tasks at the same step
        assert all(list(part) == list(whole) for part in parts)
        for task, rows in whole.items():
            weights = [s.weights[task] for s in samplers]
            real = [part[task] for part, w in zip(parts, weights) if w > 0]
            assert sorted(torch.cat(real).tolist()) == sorted(rows.tolist())
            assert all(len(part[task]) for part in parts)  # nobody waits
            lengths = [len(r) for r in real]
            assert max(lengths) - min(lengths) <= 1
            assert_close(sum(weights), float(world))
            mean = (
                sum(w * values[task][part[task]].mean() for w, part in zip(weights, parts)) / world
            )
            assert_close(mean, values[task][rows].mean())
            sizes.add(len(rows))
        # only of the tasks in this step
        assert all(list(s.weights) == list(whole) for s in samplers)
    assert len(sizes) > 2 or strategy != "joint"


def test_weights_by_hand():
    """One batch of seven for three processes: three rows, two, two, so 3·3/7, 3·2/7, 3·2/7. One
    row: 3, 0, 0.
    """
    samplers = [TaskSampler({"a": 8}, 7, rank=rank, world=3) for rank in range(3)]
    whole, rest = run(TaskSampler({"a": 8}, 7))
    steps = [iter(s) for s in samplers]
    assert [next(s)["a"].tolist() for s in steps] == [whole["a"][r::3] for r in range(3)]
    assert_close([s.weights["a"] for s in samplers], [9 / 7, 6 / 7, 6 / 7])
    assert [next(s)["a"].tolist() for s in steps] == [rest["a"]] * 3
    assert [s.weights["a"] for s in samplers] == [3.0, 0.0, 0.0]


def test_one_process_has_weight_one():
    sampler = TaskSampler(SMALL, 4, "joint")
    for step in sampler:
        assert sampler.weights == dict.fromkeys(step, 1.0)


# --- refused


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(strategy="fair"), "expected a strategy of .*'proportional'.*, got 'fair'"),
        (dict(sizes={}), "at least one task"),
        (dict(sizes={"a": 0}), "one row in each"),
        (dict(batch_sizes=0), r"at least 1, got \{'a': 0\}"),
        (dict(batch_sizes={"b": 4}), r"at least 1, got \{'a': 0\}"),
        (dict(batch_sizes={"a": -1}), "at least 1"),
        (dict(epochs=0), "at least 1, got .*, 0"),
        (dict(steps=0), "steps"),
        (dict(steps=-3, strategy="joint"), "steps"),
        (dict(fractions={"quora": 0.5}), r"of \['a'\], got \{'quora': 0.5\}"),
        (dict(fractions={"a": 0}), r"\(0, 1\]"),
        (dict(fractions={"a": 1.5}), r"\(0, 1\]"),
        (dict(fractions={"a": float("nan")}), r"\(0, 1\]"),
        (dict(resample="down"), 'None, "up" or "truncate", got \'down\''),
        (dict(rank=2, world=2), "rank < world, got 2 and 2"),
        (dict(length_bucket=0), "epochs and length_bucket"),
        (dict(rank=-1), "rank < world"),
        (dict(world=0), "rank < world"),
    ],
    ids=str,
)
def test_the_sampler_refuses(kwargs, message):
    with pytest.raises(ValueError, match=message):
        TaskSampler(**{"sizes": {"a": 5}, **kwargs})
