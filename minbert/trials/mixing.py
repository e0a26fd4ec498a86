"""How the exercises of chapter 12 are checked: what the cases are for, and which mistakes people make."""


import torch

from minbert.course.trials import Case, Trial, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# How do you check a shuffle? Not by its order: two right programs draw in different ways. By what every shuffle has in common: what
# occurs, how often, and that nothing but the generator decides.
#
# ---- mixing.shares
#
# All six laws on the same sizes, which differ by a factor of a thousand. The annealed law at its first, middle and last epoch, and in a run of one.

def shares_cases(generator):
    small, large = torch.randint(3, 90, (2,), generator=generator).tolist()
    sizes = {"sts": small, "quora": 1000 * large, "sst": 50 + small}
    plain = [Case(law, {"sizes": sizes, "law": law, "epoch": 1, "epochs": 3}) for law in ("proportional", "sqrt", "equal", "round_robin", "joint")]
    late = [Case(f"annealed, epoch {e} of 5", {"sizes": sizes, "law": "annealed", "epoch": e, "epochs": 5}) for e in (0, 1, 2, 4)]
    return [*plain, *late, *(Case(f"annealed, epoch {e} of {n}", {"sizes": sizes, "law": "annealed", "epoch": e, "epochs": n}) for e, n in ((2, 4), (5, 12))), Case("annealed, one epoch", {"sizes": sizes, "law": "annealed"}), Case("proportional in a late epoch", {"sizes": sizes, "epoch": 3, "epochs": 5}), Case("one task", {"sizes": {"sst": small}})]


def run_shares(shares, inputs):
    before = dict(inputs["sizes"])
    found = shares(**inputs)
    return {"the sizes are as they were": inputs["sizes"] == before, "the tasks are in the order of the sizes": list(found) == list(before)} | {f"share of {task}": torch.as_tensor(found[task], dtype=torch.float64) for task in before}


TRIALS["mixing.shares"] = Trial(shares_cases, run_shares, hints=(
    "Every law is the same formula with another power. Which power makes large tasks count by their size, which makes size not matter?",
    "alpha is 1, 1/2 or 0; for \"annealed\" it walks from 1 to 0.2 in epochs - 1 equal steps. Then raise the sizes to alpha and divide by their sum.",
    "annealed: 1 - 0.8 * epoch / (epochs - 1), and 1 if there is one epoch. powers = {task: n**alpha ...}; each divided by sum(powers.values())."))


_WRONG_ANNEALED = "1 - 0.8 * epoch / (epochs - 1)"

MISTAKES["mixing.shares"] = [
    mistake(_WRONG_ANNEALED, "1 - 0.8 * epoch / epochs",
            "The annealed power never arrives: after the last epoch it would be 0.2, and the last epoch itself has more."),
    mistake(_WRONG_ANNEALED, "1 - 0.8 * (epoch - 1) / (epochs - 1)",
            "Epochs count from 0 here, and the printed formula counts from 1: the power is one epoch late."),
    mistake(_WRONG_ANNEALED, "1 - epoch / (epochs - 1)", "The annealed power ends at 0, where it should end at 0.2: the factor 0.8 is missing."),
    mistake(_WRONG_ANNEALED, "0.2 + 0.8 * epoch / (epochs - 1)", "The annealed power walks the wrong way, from 0.2 to 1."),
    mistake("if epochs > 1 else 1.0", "if epochs > 1 else 0.2", "A run of one epoch starts at power 1 and never gets further."),
    mistake("\"sqrt\": 0.5", "\"sqrt\": 2.0", "The sizes are squared, where their roots are wanted: the largest task takes nearly everything."),
    mistake("x / sum(powers.values())", "x", "The shares are not divided by their sum, so they are no probabilities."),
    mistake("x / sum(powers.values())", "x / sum(sizes.values())", "The powers are divided by the sum of the sizes; for any law but the proportional they do not add up to 1."),
    mistake(".get(law, 0.0)", ".get(law, 1.0)", "The laws that treat all tasks alike give every task its size."),
    mistake(_WRONG_ANNEALED, "max(0.5, 1 - 0.8 * epoch / (epochs - 1))", "The annealed power stops at 0.5. It goes on to 0.2."),
    mistake("n**alpha for task, n in sizes.items()", "n**alpha for task, n in zip(sizes, sorted(sizes.values()))", "The sizes are sorted, so tasks get the shares of others."),
    mistake("\"sqrt\": 0.5", "\"sqrt\": 0.5, \"joint\": 1.0", "Joint training is given shares by size. All tasks take part in each step there."),
    mistake("x / sum(powers.values())", "round(x / sum(powers.values()), 4)", "The shares are rounded, so they do not quite sum to 1."),
    mistake("for task, x in powers.items()", "for task, x in sorted(powers.items())", "The tasks come back in another order. Whoever reads the shares alone, by place, gives them to other tasks."),
    mistake("{\"proportional\": 1.0,", "{\"proportional\": annealed,", "The proportional law is annealed too. Only \"annealed\" reads the epoch."),
    mistake("\"annealed\": annealed}", "\"annealed\": 1.0}", "`epoch` is not used: the annealed law stays proportional."),
    mistake("n**alpha for", "alpha * n for", "The sizes are multiplied by alpha, where they should be raised to it; the factor cancels."),
    mistake("    powers = {task: n**alpha for task, n in sizes.items()}\n", "    total = sum(sizes.values())\n", "x / sum(powers.values()) for task, x in powers.items()", "(n / total) ** alpha for task, n in sizes.items()",
            "The powers are not divided by their own sum, so the shares do not add up to 1."),
    mistake(_WRONG_ANNEALED, "1 - 0.8 * (epoch + 1) / epochs", "The annealed power has gone a step before the first epoch. It begins at 1."),
]

VARIANTS["mixing.shares"] = [
    '''
def task_shares(sizes, law="proportional", epoch=0, epochs=1):
    alpha = {"proportional": 1, "sqrt": 0.5, "equal": 0, "round_robin": 0, "joint": 0}.get(law)
    if alpha is None:
        alpha = 1 - 0.8 * epoch / max(epochs - 1, 1)
    logs = alpha * torch.tensor(list(sizes.values()), dtype=torch.float64).log()
    return dict(zip(sizes, logs.softmax(0).tolist()))
''',
    '''
def task_shares(sizes, law="proportional", epoch=0, epochs=1):
    if law in ("equal", "round_robin", "joint"):
        return {task: 1 / len(sizes) for task in sizes}
    power = 1.0
    if law == "sqrt":
        power = 0.5
    elif law == "annealed" and epochs > 1:
        power = 0.2 + 0.8 * (epochs - 1 - epoch) / (epochs - 1)
    total = 0
    for n in sizes.values():
        total += n**power
    return {task: n**power / total for task, n in sizes.items()}
''',
]


# ---- mixing.pass
#
# Nothing here depends on the order of the draws. Compared are counts (how many different rows, how often each), whether each round is an order of the
# same rows, and whether every round has an order of its own. Sixty generators show that the kept rows are drawn by chance.

def pass_cases(generator):
    seed = torch.randint(10**6, (), generator=generator).item()
    rows = [("all rows once", 20, 1.0, 20, 20), ("half of the rows, until there are enough", 24, 0.5, 40, 12), ("fewer than one round", 30, 0.9, 11, 27),
            ("repeated to a longer task", 15, 1.0, 50, 15), ("a fraction that does not divide", 22, 0.53, 40, 12), ("one row of many", 8, 0.12, 3, 1),
            ("a fraction that is rounded down", 23, 0.4, 30, 9), ("less than half a row", 4, 0.1, 3, 1), ("half a row, which `round` rounds to even", 5, 0.5, 4, 2)]
    return [Case(label, {"n": n, "fraction": f, "length": length, "kept": kept, "seed": seed}) for label, n, f, length, kept in rows]


def followers(first, second):   # two orders of the same rows -> [share of the neighbours in one that are neighbours in the other]
    after = dict(zip(second.tolist(), second.roll(-1).tolist()))
    return sum(after.get(a) == b for a, b in zip(first.tolist(), first.tolist()[1:])) / max(1, len(first) - 1)


def run_pass(draw, inputs):
    n, length, kept = inputs["n"], inputs["length"], inputs["kept"]
    deal = lambda seed: draw(n, inputs["fraction"], length, torch.Generator().manual_seed(seed))
    before = torch.random.get_rng_state()
    rows, again = deal(inputs["seed"]), deal(inputs["seed"])
    global_dice = not torch.equal(before, torch.random.get_rng_state())
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < n:
        return {"rows that do not exist": torch.tensor(True)}
    counts = torch.bincount(rows, minlength=n)
    rounds = [r for r in rows.split(kept) if len(r) == kept]
    seeds = range(inputs["seed"], inputs["seed"] + (60 if kept > 1 else 16 * n))
    dealt = [deal(seed) for seed in seeds]
    many = torch.stack([torch.bincount(d, minlength=n) for d in dealt])
    places = {next(iter((d[kept : 2 * kept] == d[0]).nonzero().flatten().tolist()), -1) for d in dealt} if kept > 5 and length >= 2 * kept else {}
    return {"number of rows dealt": torch.tensor(len(rows)), "whole numbers of 64 bits": rows.dtype == torch.int64,
            "how often each row occurs": counts.sort().values,
            "each full round is an order of the same rows": torch.tensor(all(torch.equal(r.sort().values, rounds[0].sort().values) for r in rounds)),
            "another round has another order": torch.tensor(kept > 5 and len({tuple(r.tolist()) for r in rounds}) == len(rounds) > 1),
            "a round is the one before, turned": torch.tensor(kept > 5 and length >= 2 * kept and sum(followers(*d.split(kept)[:2]) for d in dealt) > len(dealt) / 2),
            "the kept rows are neighbours": torch.tensor(5 < kept < n and sum(bool((d[:kept].sort().values.diff() > 1).sum() < 2) for d in dealt) > len(dealt) / 2),
            "the last round, cut short, begins like the first": torch.tensor(length > kept and length % kept > 3 and all(torch.equal(d[length // kept * kept :], d[: length % kept]) for d in dealt)),
            "the second round follows from the first": torch.tensor(len(places) in (1, 2)),
            "the rows come in rising order": torch.tensor(kept > 5 and bool((rows[:kept].diff() > 0).all())),
            "rows that nobody ever got, with many generators": (many.sum(0) == 0).sum(),
            "equal generators give equal rows": torch.tensor(torch.equal(rows, again)),
            "torch's global random state was used": torch.tensor(global_dice)}


TRIALS["mixing.pass"] = Trial(pass_cases, run_pass, replay=True, hints=(
    "First decide which rows take part. Everything after that only ever orders these.",
    "torch.randperm(n, generator=generator) shuffles all rows; the front of it is a fair choice and the first round at once.",
    "Collect kept[torch.randperm(len(kept), generator=generator)] until there are enough rows, join them with torch.cat, and cut at length."))


_WRONG_KEPT = "torch.randperm(n, generator=generator)[: max(1, round(fraction * n))]"
_WRONG_NEXT = "rounds.append(kept[torch.randperm(len(kept), generator=generator)])"

MISTAKES["mixing.pass"] = [
    mistake(_WRONG_KEPT, "torch.arange(n)[: max(1, round(fraction * n))][torch.randperm(max(1, round(fraction * n)), generator=generator)]",
            "The kept rows are always the first ones of the file; the others are never seen."),
    mistake(_WRONG_KEPT, "torch.randperm(n, generator=generator)[: max(1, round(fraction * n))].sort().values",
            "The first round comes in the order of the file: the kept rows are not shuffled."),
    mistake(_WRONG_KEPT, "torch.randint(n, (max(1, round(fraction * n)),), generator=generator)", "The rows are drawn with replacement: some twice, others not at all."),
    mistake("max(1, round(fraction * n))", "max(1, int(fraction * n))", "The number of kept rows is cut off, where it should be rounded."),
    mistake(_WRONG_NEXT, "rounds.append(kept)", "Every round repeats the order of the first."),
    mistake(_WRONG_NEXT, "rounds.append(kept.flip(0) if len(rounds) % 2 else kept)", "The order is turned round, where a new one should be drawn."),
    mistake(_WRONG_NEXT, "rounds.append(rounds[1] if len(rounds) > 1 else kept[torch.randperm(len(kept), generator=generator)])",
            "A second order is drawn, and every round after it repeats that one."),
    mistake(_WRONG_NEXT, "rounds.append(rounds[-1].roll(int(torch.randint(1, len(kept) + 1, (), generator=generator))))",
            "Each round is the one before, begun at another place: who follows whom never changes."),
    mistake(_WRONG_KEPT, "((torch.arange(max(1, round(fraction * n))) + torch.randint(n, (), generator=generator)) % n)[torch.randperm(max(1, round(fraction * n)), generator=generator)]",
            "The kept rows are neighbours in the file, from a random place on; rows far apart are never kept together."),
    mistake(_WRONG_NEXT, "rounds.append(torch.randperm(n, generator=generator))", "The later rounds deal all rows, not only the kept ones."),
    mistake(_WRONG_NEXT, "rounds.append(kept[torch.randint(len(kept), (len(kept),), generator=generator)])", "The later rounds are drawn with replacement: rows come back before all were seen."),
    mistake("torch.cat(rounds)[:length]", "torch.cat(rounds)", "The last round is dealt to its end: more rows come back than were asked for."),
    mistake("while len(kept) * len(rounds) < length:\n        " + _WRONG_NEXT, "pass", "There is one round only, so a long pass gets too few rows."),
    mistake("torch.randperm(n, generator=generator)", "torch.randperm(n)", "torch's global random state decides which rows are kept, so equal generators give different rows."),
    mistake("    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        " + _WRONG_NEXT + "\n    return torch.cat(rounds)[:length]", "    return kept[torch.randint(len(kept), (length,), generator=generator)]",
            "All rows are drawn from the kept ones with replacement: some come back before all were seen."),
    mistake("    kept = " + _WRONG_KEPT + "\n    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        " + _WRONG_NEXT + "\n    return torch.cat(rounds)[:length]",
            "    return torch.randint(n, (length,), generator=generator)", "The rows are drawn from the whole file with replacement, and `fraction` is not used."),
    mistake(_WRONG_NEXT, "rounds.append(torch.randperm(n, generator=generator)[:len(kept)])", "Every round keeps other rows. The fraction is chosen once for the whole pass."),
    mistake("    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        " + _WRONG_NEXT + "\n    return torch.cat(rounds)[:length]",
            "    many = kept.repeat(-(-length // len(kept)))\n    return many[torch.randperm(len(many), generator=generator)][:length]",
            "All rounds are shuffled together, so a row can come back before the others were seen."),
]

VARIANTS["mixing.pass"] = [
    '''
def draw_pass(n, fraction, length, generator):
    size = max(1, round(fraction * n))
    kept = torch.rand(n, generator=generator).topk(size).indices
    order = torch.rand(-(-length // size), size, generator=generator).argsort(1)
    return kept[order].flatten()[:length]
''',
    '''
def draw_pass(n, fraction, length, generator):
    rows = torch.randperm(n, generator=generator).tolist()[: max(1, int(round(fraction * n)))]
    dealt, pack = [], []
    while len(dealt) < length:
        if not pack:
            pack = [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]
        dealt.append(pack.pop())
    return torch.tensor(dealt)
''',
]


# ---- How strong are they?
