"""Exercise cases of chapter 13: sampling strategies for several tasks."""

import torch

from minbert.course.check_runner import Case, Trial, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- sampling.shares
#
# All six sampling strategies on sizes that differ by a factor of a thousand. Annealed sampling at
# its first, middle and last epoch, and in a run of one epoch.


def shares_cases(generator):
    small, large = torch.randint(3, 90, (2,), generator=generator).tolist()
    sizes = {"sts": small, "quora": 1000 * large, "sst": 50 + small}
    plain = [
        Case(strategy, {"sizes": sizes, "strategy": strategy, "epoch": 1, "epochs": 3})
        for strategy in ("proportional", "sqrt", "uniform", "round_robin", "joint")
    ]
    late = [
        Case(
            f"annealed, epoch {e} of 5",
            {"sizes": sizes, "strategy": "annealed", "epoch": e, "epochs": 5},
        )
        for e in (0, 1, 2, 4)
    ]
    return [
        *plain,
        *late,
        *(
            Case(
                f"annealed, epoch {e} of {n}",
                {"sizes": sizes, "strategy": "annealed", "epoch": e, "epochs": n},
            )
            for e, n in ((2, 4), (5, 12))
        ),
        Case("annealed, one epoch", {"sizes": sizes, "strategy": "annealed"}),
        Case("proportional in a late epoch", {"sizes": sizes, "epoch": 3, "epochs": 5}),
        Case("one task", {"sizes": {"sst": small}}),
    ]


def run_shares(shares, inputs):
    before = dict(inputs["sizes"])
    found = shares(**inputs)
    return {
        "the sizes are as they were": inputs["sizes"] == before,
        "the tasks are in the order of the sizes": list(found) == list(before),
    } | {f"share of {task}": torch.as_tensor(found[task], dtype=torch.float64) for task in before}


TRIALS["sampling.shares"] = Trial(
    shares_cases,
    run_shares,
    hints=(
        (
            "Every strategy is the same formula with another exponent. With which exponent is the "
            "probability proportional to the size, and with which is it the same for all tasks?"
        ),
        (
            'alpha is 1, 1/2 or 0; for "annealed" it falls from 1 to 0.2 in epochs - 1 equal '
            "steps. Then raise the sizes to alpha and divide by their sum."
        ),
        (
            "annealed: 1 - 0.8 * epoch / max(epochs - 1, 1). powers = "
            "{task: n**alpha ...}; each divided by sum(powers.values())."
        ),
    ),
)


_WRONG_ANNEALED = "1 - 0.8 * epoch / max(epochs - 1, 1)"

MISTAKES["sampling.shares"] = [
    mistake(
        _WRONG_ANNEALED,
        "1 - 0.8 * epoch / epochs",
        "The annealed exponent never reaches 0.2: it is divided by `epochs` instead of `epochs "
        "- 1`.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "1 - 0.8 * (epoch - 1) / max(epochs - 1, 1)",
        "Epochs count from 0 here. The formula of the paper counts from 1, so the exponent is "
        "one epoch late.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "0.2 + 0.8 * epoch / max(epochs - 1, 1)",
        "The annealed exponent changes in the wrong direction, from 0.2 to 1.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "1 - 0.8 * epoch / (epochs - 1) if epochs > 1 else 0.2",
        "With a single epoch the exponent stays at 1.",
    ),
    mistake(
        "alpha = ALPHA[strategy]",
        'alpha = 2.0 if strategy == "sqrt" else ALPHA[strategy]',
        "The sizes are squared instead of taking their square root, so the largest task dominates.",
    ),
    mistake(
        "total = sum(powers.values())",
        "total = sum(sizes.values())",
        "The powers are divided by the sum of the sizes, so only the proportional probabilities "
        "sum to 1.",
    ),
    mistake(
        "alpha = ALPHA[strategy]",
        'alpha = 1.0 if strategy == "joint" else ALPHA[strategy]',
        "Joint training gets probabilities in proportion to size. All tasks take part in each "
        "of its steps.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "1.0",
        "`epoch` is not used: annealed sampling stays proportional.",
    ),
]

VARIANTS["sampling.shares"] = [
    """
def task_shares(sizes, strategy="proportional", epoch=0, epochs=1):
    alpha = {"proportional": 1, "sqrt": 0.5, "uniform": 0, "round_robin": 0, "joint": 0}.get(strategy)
    if alpha is None:
        alpha = 1 - 0.8 * epoch / max(epochs - 1, 1)
    logs = alpha * torch.tensor(list(sizes.values()), dtype=torch.float64).log()
    return dict(zip(sizes, logs.softmax(0).tolist()))
""",
    """
def task_shares(sizes, strategy="proportional", epoch=0, epochs=1):
    if strategy in ("uniform", "round_robin", "joint"):
        return {task: 1 / len(sizes) for task in sizes}
    power = 1.0
    if strategy == "sqrt":
        power = 0.5
    elif strategy == "annealed" and epochs > 1:
        power = 0.2 + 0.8 * (epochs - 1 - epoch) / (epochs - 1)
    total = 0
    for n in sizes.values():
        total += n**power
    return {task: n**power / total for task, n in sizes.items()}
""",
]


# ---- sampling.pass
#
# Nothing here depends on the order of the draws. Compared are counts (how many different
# examples, how often each), whether each round is a permutation of the same examples, and whether
# every round has its own order. Sixty generators show that the kept examples are drawn at random.


def pass_cases(generator):
    seed = torch.randint(10**6, (), generator=generator).item()
    rows = [
        ("all examples once", 20, 1.0, 20, 20),
        ("half of the examples, until there are enough", 24, 0.5, 40, 12),
        ("fewer than one round", 30, 0.9, 11, 27),
        ("repeated to a longer task", 15, 1.0, 50, 15),
        ("a fraction that does not divide", 22, 0.53, 40, 12),
        ("one example of many", 8, 0.12, 3, 1),
        ("a fraction that is rounded down", 23, 0.4, 30, 9),
        ("less than half an example", 4, 0.1, 3, 1),
        ("half an example, which `round` rounds to even", 5, 0.5, 4, 2),
    ]
    return [
        Case(label, {"n": n, "fraction": f, "length": length, "kept": kept, "seed": seed})
        for label, n, f, length, kept in rows
    ]


def followers(
    first,
    second,
    # two orders of the same rows -> [share of the neighbours in one that are neighbours in the
    # other]
):
    after = dict(zip(second.tolist(), second.roll(-1).tolist()))
    return sum(after.get(a) == b for a, b in zip(first.tolist(), first.tolist()[1:])) / max(
        1, len(first) - 1
    )


def run_pass(draw, inputs):
    n, length, kept = inputs["n"], inputs["length"], inputs["kept"]

    def deal(seed):
        return draw(n, inputs["fraction"], length, torch.Generator().manual_seed(seed))

    before = torch.random.get_rng_state()
    rows, again = deal(inputs["seed"]), deal(inputs["seed"])
    global_dice = not torch.equal(before, torch.random.get_rng_state())
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n:
        return {"indices that do not exist": torch.tensor(True)}
    counts = torch.bincount(rows, minlength=n)
    rounds = [r for r in rows.split(kept) if len(r) == kept]
    seeds = range(inputs["seed"], inputs["seed"] + (60 if kept > 1 else 16 * n))
    dealt = [deal(seed) for seed in seeds]
    many = torch.stack([torch.bincount(d, minlength=n) for d in dealt])
    places = (
        {next(iter((d[kept : 2 * kept] == d[0]).nonzero().flatten().tolist()), -1) for d in dealt}
        if kept > 5 and length >= 2 * kept
        else {}
    )
    return {
        "number of examples": torch.tensor(len(rows)),
        "64-bit integers": rows.dtype == torch.int64,
        "how often each example occurs": counts.sort().values,
        "each full round is an order of the same examples": torch.tensor(
            all(torch.equal(r.sort().values, rounds[0].sort().values) for r in rounds)
        ),
        "another round has another order": torch.tensor(
            kept > 5 and len({tuple(r.tolist()) for r in rounds}) == len(rounds) > 1
        ),
        "a round is the previous one, rotated": torch.tensor(
            kept > 5
            and length >= 2 * kept
            and sum(followers(*d.split(kept)[:2]) for d in dealt) > len(dealt) / 2
        ),
        "the kept examples are neighbours": torch.tensor(
            5 < kept < n
            and sum(bool((d[:kept].sort().values.diff() > 1).sum() < 2) for d in dealt)
            > len(dealt) / 2
        ),
        "the last round, cut short, begins like the first": torch.tensor(
            length > kept
            and length % kept > 3
            and all(torch.equal(d[length // kept * kept :], d[: length % kept]) for d in dealt)
        ),
        "the second round follows from the first": torch.tensor(len(places) in (1, 2)),
        "the examples come in rising order": torch.tensor(
            kept > 5 and bool((rows[:kept].diff() > 0).all())
        ),
        "examples that never occur, with many generators": (many.sum(0) == 0).sum(),
        "equal generators give equal examples": torch.tensor(torch.equal(rows, again)),
        "torch's global random state was used": torch.tensor(global_dice),
    }


TRIALS["sampling.pass"] = Trial(
    pass_cases,
    run_pass,
    replay=True,
    hints=(
        "First decide which examples take part. Everything after that only orders these.",
        (
            "torch.randperm(n, generator=generator) shuffles all examples; its beginning is a random "
            "choice and the first round at once."
        ),
        (
            "Collect kept[torch.randperm(len(kept), generator=generator)] until there are enough "
            "examples, join them with torch.cat, and cut at length."
        ),
    ),
)


_WRONG_KEPT = "torch.randperm(n, generator=generator)[: max(1, round(fraction * n))]"
_WRONG_NEXT = "rounds.append(kept[torch.randperm(len(kept), generator=generator)])"

MISTAKES["sampling.pass"] = [
    mistake(
        _WRONG_KEPT,
        "torch.arange(n)[: max(1, round(fraction * n))][torch.randperm(max(1, round(fraction "
        "* n)), generator=generator)]",
        "The kept examples are always the first ones of the file. They should be drawn at random.",
    ),
    mistake(
        _WRONG_KEPT,
        "torch.randint(n, (max(1, round(fraction * n)),), generator=generator)",
        "The examples are sampled with replacement: some occur twice, others never.",
    ),
    mistake(
        "max(1, round(fraction * n))",
        "max(1, int(fraction * n))",
        "The number of kept examples is truncated. It should be rounded.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(kept)",
        "Every round repeats the order of the first. Shuffle each round anew.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(torch.randperm(n, generator=generator))",
        "The later rounds use all examples instead of the kept ones.",
    ),
    mistake(
        "torch.cat(rounds)[:length]",
        "torch.cat(rounds)",
        "The last round is not truncated, so too many examples are returned.",
    ),
    mistake(
        "while len(kept) * len(rounds) < length:\n        " + _WRONG_NEXT,
        "pass",
        "There is only one round, so a long epoch has too few examples.",
    ),
    mistake(
        "torch.randperm(n, generator=generator)",
        "torch.randperm(n)",
        "`generator` is not used for the choice of the kept examples, so it is not reproducible.",
    ),
]

VARIANTS["sampling.pass"] = [
    """
def shuffled_pass(n, fraction, length, generator):
    size = max(1, round(fraction * n))
    kept = torch.rand(n, generator=generator).topk(size).indices
    order = torch.rand(-(-length // size), size, generator=generator).argsort(1)
    return kept[order].flatten()[:length]
""",
    """
def shuffled_pass(n, fraction, length, generator):
    rows = torch.randperm(n, generator=generator).tolist()[: max(1, int(round(fraction * n)))]
    dealt, pack = [], []
    while len(dealt) < length:
        if not pack:
            pack = [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]
        dealt.append(pack.pop())
    return torch.tensor(dealt)
""",
]
