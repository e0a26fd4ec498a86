"""Mutants of `minbert.exercise_cases.sampling`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.sampling import _WRONG_ANNEALED, _WRONG_KEPT, _WRONG_NEXT

MUTANTS = {}


MUTANTS["sampling.shares"] = [
    mistake(
        _WRONG_ANNEALED,
        "1 - epoch / max(epochs - 1, 1)",
        "The annealed power ends at 0, where it should end at 0.2: the factor 0.8 is missing.",
    ),
    mistake(
        "power / total for",
        "power for",
        "The weights are not divided by their sum, so they are not probabilities.",
    ),
    mistake(
        "alpha = ALPHA[strategy]",
        "alpha = ALPHA[strategy] or 1.0",
        "The strategies that treat all tasks alike give every task its size.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "max(0.5, 1 - 0.8 * epoch / max(epochs - 1, 1))",
        "The annealed power stops at 0.5. It goes on to 0.2.",
    ),
    mistake(
        "n**alpha for task, n in sizes.items()",
        "n**alpha for task, n in zip(sizes, sorted(sizes.values()))",
        "The sizes are sorted, so tasks get the shares of others.",
    ),
    mistake(
        "power / total for",
        "round(power / total, 4) for",
        "The shares are rounded, so they do not quite sum to 1.",
    ),
    mistake(
        "for task, power in powers.items()",
        "for task, power in sorted(powers.items())",
        "The tasks come back in another order. Whoever reads the shares alone, by place, gives "
        "them to other tasks.",
    ),
    mistake(
        'if strategy == "annealed":',
        'if strategy in ("annealed", "proportional"):',
        'Proportional sampling is annealed too. Only "annealed" uses the epoch.',
    ),
    mistake(
        "n**alpha for",
        "alpha * n for",
        "The sizes are multiplied by alpha, where they should be raised to it; the factor cancels.",
    ),
    mistake(
        "total = sum(powers.values())",
        "total = sum(sizes.values())",
        "power / total for task, power in powers.items()",
        "(n / total) ** alpha for task, n in sizes.items()",
        "The powers are not divided by their own sum, so the shares do not add up to 1.",
    ),
    mistake(
        _WRONG_ANNEALED,
        "1 - 0.8 * (epoch + 1) / epochs",
        "The annealed power has gone a step before the first epoch. It begins at 1.",
    ),
]


MUTANTS["sampling.pass"] = [
    mistake(
        _WRONG_KEPT,
        "torch.randperm(n, generator=generator)[: max(1, round(fraction * n))].sort().values",
        "The first round comes in the order of the file: the kept rows are not shuffled.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(kept.flip(0) if len(rounds) % 2 else kept)",
        "The order is turned round, where a new one should be drawn.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(rounds[1] if len(rounds) > 1 else kept[torch.randperm(len(kept), "
        "generator=generator)])",
        "A second order is drawn, and every round after it repeats that one.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(rounds[-1].roll(int(torch.randint(1, len(kept) + 1, (), "
        "generator=generator))))",
        "Each round is the one before, begun at another place: who follows whom never changes.",
    ),
    mistake(
        _WRONG_KEPT,
        "((torch.arange(max(1, round(fraction * n))) + torch.randint(n, (), "
        "generator=generator)) % n)[torch.randperm(max(1, round(fraction * n)), "
        "generator=generator)]",
        "The kept rows are neighbours in the file, from a random place on; rows far apart are "
        "never kept together.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(kept[torch.randint(len(kept), (len(kept),), generator=generator)])",
        "The later rounds are drawn with replacement: rows come back before all were seen.",
    ),
    mistake(
        "    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        "
        + _WRONG_NEXT
        + "\n    return torch.cat(rounds)[:length]",
        "    return kept[torch.randint(len(kept), (length,), generator=generator)]",
        "All rows are drawn from the kept ones with replacement: some come back before all were "
        "seen.",
    ),
    mistake(
        "    kept = "
        + _WRONG_KEPT
        + "\n    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        "
        + _WRONG_NEXT
        + "\n    return torch.cat(rounds)[:length]",
        "    return torch.randint(n, (length,), generator=generator)",
        "The rows are drawn from the whole file with replacement, and `fraction` is not used.",
    ),
    mistake(
        _WRONG_NEXT,
        "rounds.append(torch.randperm(n, generator=generator)[:len(kept)])",
        "Every round keeps other rows. The fraction is chosen once for the whole pass.",
    ),
    mistake(
        "    rounds = [kept]\n    while len(kept) * len(rounds) < length:\n        "
        + _WRONG_NEXT
        + "\n    return torch.cat(rounds)[:length]",
        "    many = kept.repeat(-(-length // len(kept)))\n"
        "    return many[torch.randperm(len(many), generator=generator)][:length]",
        "All rounds are shuffled together, so a row can come back before the others were seen.",
    ),
]
