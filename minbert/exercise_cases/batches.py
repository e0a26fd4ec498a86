"""Exercise cases of chapter 36: duplicate clusters, collisions, batches without duplicates."""

import torch

from minbert.course.check_runner import Case, Trial, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- negatives.clusters
#
# Clusters that merge only with the last row, or through the second column; a sentence paired with
# itself; case and whitespace; ß, which `casefold` and not `lower` makes ss; punctuation that
# counts. A long chain, and random graphs.


def clusters_cases(generator):
    def draw(high, n):
        return torch.randint(high, (n,), generator=generator).tolist()

    def words(numbers):
        return [f"sentence {n}" for n in numbers]

    late = (["a", "c", "e", "x", "b", "d"], ["b", "d", "f", "y", "c", "f"])
    order = torch.randperm(60, generator=generator).tolist()
    return [
        Case("a chain that closes late", {"first": late[0], "second": late[1]}),
        Case(
            "joined by first sentences only",
            {"first": ["p", "q", "p", "r"], "second": ["1", "2", "3", "2"]},
        ),
        Case(
            "joined across the columns",
            {"first": ["m", "k", "l", "n"], "second": ["k", "l", "o", "n"]},
        ),
        Case(
            "case and blanks",
            {
                "first": ["What  is C?", "how are you", " Who am I", "where"],
                "second": ["HOW ARE YOU", "x y", "WHAT IS\tc?", "Who Am I "],
            },
        ),
        Case(
            "long runs of blanks",
            {"first": ["a   b", "x", "p \t  q"], "second": ["c", "  a b", "x"]},
        ),
        Case(
            "letters that lower case does not make equal",
            {"first": ["Straße", "street"], "second": ["road", "STRASSE"]},
        ),
        Case(
            "the last word counts",
            {
                "first": ["how do i learn c", "how do i learn go", "how do i learn"],
                "second": words([1, 2, 3]),
            },
        ),
        Case(
            "signs count",
            {"first": ["C", "C++", "no?", "5.0"], "second": ["c#", "c+", "no!", "50"]},
        ),
        Case(
            "signs, blanks and order count",
            {
                "first": [
                    "no?",
                    "no!",
                    "5.0",
                    "50",
                    "a b",
                    "ab",
                    "b a",
                    "so-so",
                    "so so",
                    "ok.",
                    "ok",
                ],
                "second": words(range(100, 111)),
            },
        ),
        Case(
            "the same pair twice, and turned round",
            {"first": ["b", "u", "v", "b"], "second": ["a", "v", "u", "a"]},
        ),
        Case(
            "a long chain, shuffled",
            {"first": words(order), "second": words([n + 1 for n in order])},
        ),
        *(
            Case(
                f"{n} random pairs of {high} sentences",
                {"first": words(draw(high, n)), "second": words(draw(high, n))},
            )
            for n, high in ((25, 40), (30, 70), (1, 2))
        ),
    ]


def run_clusters(clusters, inputs):
    found = clusters(**inputs)
    return {"clusters": found, "int64": found.dtype == torch.int64}


TRIALS["negatives.clusters"] = Trial(
    clusters_cases,
    run_clusters,
    hints=(
        (
            "A table from each sentence to another of its cluster; who points to itself speaks "
            "for all. What has to point where when a pair arrives?"
        ),
        (
            "Follow the pointers from both sentences to their speakers, and let one *speaker* "
            "point to the other. Number the speakers at the end, when all "
            "pairs are in."
        ),
        (
            "parent[speaker(a)] = speaker(b) for every pair; then, row by row, "
            "number.setdefault(speaker(a), len(number)). `setdefault(x, x)` makes a new "
            "sentence its own speaker."
        ),
    ),
)


MISTAKES["negatives.clusters"] = [
    mistake(
        "for a, b in rows:\n        parent[speaker(a)] = speaker(b)",
        "columns = [(1, a) for a, _ in rows], [(2, b) for _, b in rows]\n"
        "    rows = list(zip(*columns))\n"
        "    for a, b in rows:\n"
        "        "
        "parent[speaker(a)] = speaker(b)",
        "The columns are treated separately: a sentence that is first in one pair and second in "
        "another counts as two.",
    ),
    mistake(
        "    for a, b in rows:\n        parent[speaker(a)] = speaker(b)\n",
        "",
        "Only equal first sentences are merged. Equal second sentences merge clusters as well.",
    ),
    mistake(
        "number.setdefault(speaker(a), len(number)) for a, _ in rows",
        "sorted(map(speaker, parent)).index(speaker(a)) for a, _ in rows",
        "The cluster ids are positions in another list. They should be numbered 0, 1, 2, ... in "
        "order of appearance.",
    ),
    mistake(
        "len(number)) for", "len(number) + 1) for", "The cluster ids start at 1. They start at 0."
    ),
    mistake(
        "text.casefold().split()",
        "text.lower().split()",
        '`lower()` leaves ß unchanged, so "STRASSE" does not match. `casefold()` makes both '
        '"strasse".',
    ),
    mistake("text.casefold().split()", "text.split()", "Upper and lower case are distinguished."),
    mistake(
        '" ".join(text.casefold().split())',
        "text.casefold()",
        "Whitespace is compared exactly. Repeated and trailing spaces should not matter.",
    ),
    mistake(
        "    for a, b in rows:\n        parent[speaker(a)] = speaker(b)\n",
        "    seen = {}\n"
        "    for i, (a, b) in enumerate(rows):\n"
        "        first_row = min(seen.get(a, i), seen.get(b, i))\n"
        "        seen[a], seen[b] "
        "= min(seen.get(a, i), first_row), min(seen.get(b, i), first_row)\n"
        "    speaker = seen.get\n",
        "Clusters are not merged transitively: each row is compared only with earlier rows that "
        "share a sentence.",
    ),
]

VARIANTS["negatives.clusters"] = [
    """
def clusters(first, second):
    tidy = lambda text: " ".join(text.split()).casefold()
    first, second = [tidy(x) for x in first], [tidy(x) for x in second]
    groups = []                                                        # sets of sentences
    for a, b in zip(first, second):
        touched = [g for g in groups if a in g or b in g]
        groups = [g for g in groups if g not in touched] + [set().union({a, b}, *touched)]
    names = [next(i for i, g in enumerate(groups) if a in g) for a in first]
    order = list(dict.fromkeys(names))
    return torch.tensor([order.index(n) for n in names])
""",
    """
def clusters(first, second):
    key = lambda text: tuple(text.casefold().split())
    neighbours = {}
    for a, b in zip(map(key, first), map(key, second)):
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    label, count = {}, 0
    for a in map(key, first):                                          # walk from each new sentence
        if a not in label:
            todo = [a]
            while todo:
                x = todo.pop()
                if x not in label:
                    label[x] = count
                    todo.extend(neighbours[x])
            count += 1
    return torch.as_tensor([label[key(a)] for a in first], dtype=torch.long)
""",
]


# ---- negatives.collision and negatives.clash
#
# Group ids that are negative or not consecutive; all rows equal, all different, two rows. The
# probability of a collision in a batch also has the birthday problem, a batch as large as the
# file, and files so large that a product of counts overflows.


def _groups(generator):
    def draw(high, n):
        return torch.randint(high, (n,), generator=generator)

    return {
        "groups of three, two and one": torch.tensor([4, -1, 4, 9, 4, 9]),
        "all different": torch.randperm(7, generator=generator),
        "all alike": torch.full((4,), 3),
        "two rows": torch.tensor([1, 1]),
        "random": draw(9, 20) * 5 - 10,
        "many": draw(2000, 3000),
    }


def collision_cases(generator):
    return [Case(label, {"groups": g}) for label, g in _groups(generator).items()]


def run_collision(collision_rate, inputs):
    return {
        "probability": torch.tensor(float(collision_rate(inputs["groups"])), dtype=torch.float64)
    }


TRIALS["negatives.collision"] = Trial(
    collision_cases,
    run_collision,
    hints=(
        "Count ordered twosomes of different rows: all of them, and those within a group.",
        "`groups.unique(return_counts=True)` gives the sizes, whatever the numbers are.",
        "size * (size - 1) summed over the groups, divided by N (N - 1).",
    ),
)


def clash_cases(generator):
    sizes = {
        "groups of three, two and one": (1, 2, 3, 4, 6),
        "all different": (3, 7),
        "all alike": (1, 2),
        "two rows": (2,),
        "random": (2, 4, 7, 12),
        "many": (2, 64),
    }
    found = [
        Case(f"{label}, a batch of {m}", {"groups": g, "batch_size": m})
        for label, g in _groups(generator).items()
        for m in sizes[label]
    ]
    return found + [
        Case("birthdays of 23", {"groups": torch.arange(365).repeat(20), "batch_size": 23}),
        Case(
            "20,000 rows, a batch of 128",
            {"groups": torch.arange(1000).repeat(20), "batch_size": 128},
        ),
    ]


def run_clash(clash_probability, inputs):
    return {"probability": torch.tensor(float(clash_probability(**inputs)), dtype=torch.float64)}


TRIALS["negatives.clash"] = Trial(
    clash_cases,
    run_clash,
    hints=(
        (
            "Count the batches without a clash. What does one group contribute, if at most one of "
            "its s rows may be chosen?"
        ),
        (
            "Multiply the polynomials 1 + s t, one a group, up to degree m; groups of one size "
            "together are (1 + s t)^c. More rows than groups: there must "
            "be a clash."
        ),
        (
            "With logarithms: `ways = _log_product(ways, _log_choose(c, k) + k * math.log(s))` "
            "for k = 0.0 ... min(c, m) in double precision, starting from the polynomial 1; at "
            "the end compare ways[m] with _log_choose(N, m)."
        ),
    ),
)


_WRONG_RATE = "((size * (size - 1)).sum() / (len(groups) * (len(groups) - 1)))"

MISTAKES["negatives.collision"] = [
    mistake(
        _WRONG_RATE,
        "(size / len(groups)).square().sum()",
        "The squared frequencies are summed, which is sampling with replacement.",
    ),
    mistake(
        _WRONG_RATE,
        "((size * size).sum() / (len(groups) * (len(groups) - 1)))",
        "A row is paired with itself in the numerator. Use n (n - 1) for each group.",
    ),
    mistake(
        "return " + _WRONG_RATE,
        "return (groups[1:] == groups[:-1]).double().mean()",
        "Only neighbouring rows are compared. Use all pairs.",
    ),
    mistake(
        _WRONG_RATE,
        "((size * (size - 1)).sum() / len(groups) ** 2)",
        "A row is paired with itself in the denominator, which is sampling with replacement.",
    ),
    mistake(
        _WRONG_RATE,
        "((size * (size - 1) / 2).sum() / (len(groups) * (len(groups) - 1)))",
        "Unordered pairs are divided by ordered pairs, so the result is half as large as it "
        "should be.",
    ),
    mistake(
        _WRONG_RATE,
        "(size[size > 1].sum() / len(groups))",
        "This is the fraction of rows that have a duplicate. The probability that two rows are "
        "duplicates is expected.",
    ),
    mistake(
        _WRONG_RATE,
        "((size * (size - 1)).sum() / (len(size) * max(1, len(size) - 1)))",
        "The number of pairs of groups is used. Rows are sampled, not groups.",
    ),
    mistake(
        _WRONG_RATE,
        "(1 - (size * (size - 1)).sum() / (len(groups) * (len(groups) - 1)))",
        "This is the probability of no collision.",
    ),
]

VARIANTS["negatives.collision"] = [
    """
def collision_rate(groups):
    same = groups[:, None] == groups[None, :]
    n = len(groups)
    return (same.sum().item() - n) / (n * (n - 1))
""",
    """
def collision_rate(groups):
    counts = {}
    for g in groups.tolist():
        counts[g] = counts.get(g, 0) + 1
    return sum(math.comb(s, 2) for s in counts.values()) / math.comb(len(groups), 2)
""",
]

MISTAKES["negatives.clash"] = [
    mistake(
        "return -math.expm1(",
        "return math.exp(",
        "This is the probability that there is no collision.",
    ),
    mistake(
        " + k * math.log(s))",
        ")",
        "A group of s rows counts as one choice. There are s ways to choose one of its rows.",
    ),
    mistake(
        "min(0.0, (ways[m] - _log_choose(n, m)).item())",
        "min(0.0, (ways[m] + math.lgamma(m + 1) - m * math.log(n)).item())",
        "Rows are counted as if sampled with replacement.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    rate = collision_rate(groups)\n"
        "    return 1 - math.exp(-rate * m * (m - 1) / 2)\n"
        "    sizes, how_many = groups",
        "This is the approximation of the birthday problem. The exact probability is expected.",
    ),
    mistake(
        "    if int(how_many.sum()) < m:\n        return 1.0\n",
        "    if int(how_many.sum()) <= m:\n        return 1.0\n",
        "With as many groups as rows in a batch, a collision is not yet certain (off by one).",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    ways, total = torch.zeros(m + 1, dtype=torch.float64), torch.ones((), "
        "dtype=torch.float64)\n"
        "    ways[0] = 1\n"
        "    for s in groups.unique(return_counts=True)[1]:\n"
        "        ways[1:] = ways[1:] + s * ways[:-1]\n"
        "    for k in range(m):\n"
        "        total = total * (n - k) / (k + 1)\n"
        "    return (1 - ways[m] / total).item()\n"
        "    sizes, how_many = groups",
        "The counts overflow for a large file. Use logarithms or Python integers.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    return min(1.0, collision_rate(groups) * m * (m - 1) / 2)\n"
        "    sizes, how_many = groups",
        "This is the expected number of colliding pairs. It is larger than the probability of a "
        "collision.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    return collision_rate(groups)\n    sizes, how_many = groups",
        "This is the probability that two rows collide. A batch has `batch_size` rows.",
    ),
]

VARIANTS["negatives.clash"] = [
    """
def clash_probability(groups, batch_size):
    counts = {}
    for g in groups.tolist():
        counts[g] = counts.get(g, 0) + 1
    ways = [1] + [0] * batch_size                                      # whole numbers, exact
    for s in counts.values():
        for k in range(batch_size, 0, -1):
            ways[k] += s * ways[k - 1]
    total = math.comb(len(groups), batch_size)
    return (total - ways[batch_size]) / total
""",
    """
def clash_probability(groups, batch_size):
    N, m = len(groups), batch_size
    sizes = groups.unique(return_counts=True)[1].tolist()
    clean = torch.zeros(
        m + 1, dtype=torch.float64
    )  # P(none) of k rows, taking the groups one by one
    clean[0] = 1.0
    k = torch.arange(1, m + 1, dtype=torch.float64)
    for done, s in enumerate(sizes):  # coefficient / binom(N, k) stays below 1
        clean[1:] = clean[1:] + s * clean[:-1] * k / (N - k + 1)
    return float(1 - clean[m])
""",
]


# ---- negatives.deal
#
# Two correct programs give different batches. Compared are what all of them share: the number of
# batches and of rows left out, that each row occurs once, no duplicates in a batch,
# reproducibility, and averages over a hundred calls: how often each row is left out, and in which
# batch it is. The tolerance of a quarter is five times the standard error. If only the first
# batch is drawn at random, the rows of a group are always in consecutive batches, which happens
# by chance once in 40,000.


def deal_cases(generator):
    def shuffled(groups):
        return torch.tensor(groups)[torch.randperm(len(groups), generator=generator)]

    return [
        Case("comes out even", {"groups": shuffled([0, 0, 0, 1, 1, 2]), "batch_size": 2}),
        Case("batches of one", {"groups": shuffled([5, 5, 5, -2]), "batch_size": 1}),
        Case(
            "one group is too large",
            {"groups": shuffled([7] * 9 + [1, 1, 2, 3, 4, 5]), "batch_size": 3},
        ),
        Case(
            "fewer batches than rows / batch size, twice over",
            {"groups": shuffled([0] * 8 + [1] * 3 + [2]), "batch_size": 2},
        ),
        Case("all different", {"groups": torch.arange(10) * 3, "batch_size": 4}),
        Case("one batch", {"groups": shuffled([0, 1, 1, 2, 2]), "batch_size": 3}),
        Case("many", {"groups": torch.randint(60, (150,), generator=generator), "batch_size": 16}),
        Case(
            "one group is too large, on average over 100 deals",
            {"groups": shuffled([6] * 6 + [0, 1, 2, 2, 3]), "batch_size": 2, "deals": 100},
        ),
        Case(
            "all different, on average over 100 deals",
            {"groups": torch.arange(7), "batch_size": 2, "deals": 100},
        ),
        Case(
            "one group in every batch, on average over 100 deals",
            {"groups": shuffled([0, 0, 1, 1, 1, 2]), "batch_size": 2, "deals": 100},
        ),
    ]


def run_deal(deal, inputs):
    seeded, groups, m = (
        lambda seed: torch.Generator().manual_seed(seed),
        inputs["groups"],
        inputs["batch_size"],
    )
    if "deals" in inputs:
        one = seeded(0)
        return _averages(lambda: deal(groups, m, one), inputs["deals"], len(groups))
    torch.default_generator.manual_seed(1)
    batches, left = deal(groups, m, seeded(3))
    torch.default_generator.manual_seed(2)
    again, _ = deal(groups, m, seeded(3))
    goes_on, many = seeded(3), len(groups) > 100  # of a few rows two deals may agree by chance
    repeated = sum(len(row) - len(row.unique()) for row in groups[batches])
    return {
        "shape of the batches": torch.tensor(batches.shape),
        "every group stands in batches that follow one another": many
        and _in_a_row(groups, batches),
        "batches in each of six deals": torch.tensor(
            [len(deal(groups, m, seeded(seed))[0]) for seed in range(6)]
        ),
        "rows left out": len(left),
        "all rows, sorted": torch.cat([batches.flatten(), left]).sort().values,
        "rows of a group that is in the batch already": repeated,
        "the same with the same seed": torch.equal(batches, again),
        "int64": batches.dtype == torch.int64,
        "a generator goes on": not many
        or not torch.equal(*(deal(groups, m, goes_on)[0] for _ in range(2))),
        "without a generator, another deal each time": not many
        or not torch.equal(*(deal(groups, m)[0] for _ in range(2))),
    }


def _in_a_row(groups, batches):
    where, n = {}, len(batches)
    for number, rows in enumerate(batches):
        for group in groups[rows].tolist():
            where.setdefault(group, []).append(number)
    large = [places for places in where.values() if 3 <= len(places) <= n - 2]
    for places in large:
        steps = zip(places, places[1:] + places[:1])  # the first batch follows the last
        if sum((b - a) % n == 1 for a, b in steps) < len(places) - 1:
            return False
    return len(large) > 0


def _averages(deal, times, rows):
    waits, place, between, meets = (
        *torch.zeros(3, rows, dtype=torch.float64),
        torch.zeros(rows, rows, dtype=torch.float64),
    )
    for _ in range(times):
        batches, left = deal()
        waits[left] += 1
        for number, batch in enumerate(batches):
            place[batch] += number / (len(batches) - 1)
            meets[batch[:, None], batch] += 1
            between[batch] += 0 < number < len(batches) - 1
    return {
        "how often each row is left out": waits / times,
        "where it stands, from 0 first to 1 last batch": place / (times - waits),
        "how often two rows meet": meets / times,
        "a row that is hardly ever between the first and the last batch": between.min()
        < 0.06 * times,
    }


TRIALS["negatives.deal"] = Trial(
    deal_cases,
    run_deal,
    replay=True,
    atol=0.25,
    hints=(
        (
            "Sort the deck by suit and deal it round the table. When does nobody get two of a "
            "suit? As long as no suit has more cards than there are players."
        ),
        (
            "Number the rows of each group from 0 (`rank` of `_by_group`). With n batches, rows "
            "of rank n and more cannot be dealt; that may leave too few "
            "for n batches, so ask again with a smaller n."
        ),
        (
            "Start with n = N // m; while it changes: n = (rank < n).sum() // m. Take the first n "
            "* m rows of rank below n; batch j gets rows j, j + n, j + "
            "2n, ...; put the batches in random order."
        ),
    ),
)


MISTAKES["negatives.deal"] = [
    mistake(
        "kept[:n * batch_size].view(batch_size, n).T",
        "kept[:n * batch_size].view(n, batch_size)",
        "The sorted rows are cut into consecutive batches, so duplicates stay together. Deal "
        "them out one by one.",
    ),
    mistake(
        "order, rank = _by_group(groups, generator)",
        "order, rank = _by_group(groups, generator)\n"
        "    shuffle = torch.randperm(len(order), generator=generator)\n"
        "    order, rank = "
        "order[shuffle], rank[shuffle]",
        "The rows are shuffled after sorting. Rows of one group have to be adjacent before they "
        "are dealt out.",
    ),
    mistake(
        "    while n != former:                                      # falls to the largest n "
        "that fits\n"
        "        n, former = int((rank < "
        "n).sum()) // max(1, batch_size), n\n",
        "",
        "The number of batches is rows divided by batch size. A group with more rows than "
        "batches does not fit.",
    ),
    mistake(
        "torch.cat([order[rank >= n], kept[n * batch_size:]])",
        "kept[n * batch_size:]",
        "Rows of groups that are too large are lost: they are in no batch and not in the rest.",
    ),
    mistake(
        "torch.cat([order[rank >= n], kept[n * batch_size:]])",
        "order[rank >= n]",
        "The last rows, too few for another round, are lost.",
    ),
    mistake(
        "_by_group(groups, generator)",
        "_by_group(groups, None)",
        "`generator` is not used, so batches are not reproducible.",
    ),
    mistake(
        "return batches, torch.cat",
        "return batches.T, torch.cat",
        "Rows and columns of the result are swapped: each row is a batch.",
    ),
    mistake(
        "return batches, torch.cat",
        "return groups[batches], torch.cat",
        "The batches contain group ids. They should contain row indices.",
    ),
]

VARIANTS["negatives.deal"] = [
    """
def no_duplicate_batches(groups, batch_size, generator=None):
    N, m = len(groups), batch_size
    sizes = groups.unique(return_counts=True)[1]
    n = max(k for k in range(N // m + 1) if int(sizes.clamp(max=k).sum()) >= k * m)
    members = {}
    for row in torch.randperm(N, generator=generator).tolist():
        members.setdefault(int(groups[row]), []).append(row)
    names = list(members)
    deck = [
        row
        for i in torch.randperm(len(names), generator=generator).tolist()
        for row in members[names[i]][:n]
    ]
    waiting = [row for rows in members.values() for row in rows[n:]] + deck[n * m :]
    seats = torch.randperm(n, generator=generator).tolist()
    batches = torch.empty(n, m, dtype=torch.int64)
    for place, row in enumerate(deck[: n * m]):
        batches[seats[place % n], place // n] = row
    return batches, torch.tensor(waiting, dtype=torch.int64)
""",
    """
def no_duplicate_batches(groups, batch_size, generator=None):
    names, which = groups.unique(return_inverse=True)
    noise = torch.rand(len(groups), generator=generator)
    key = torch.rand(len(names), generator=generator)[which] * 1e6
    order = (key.double() + noise.double()).argsort()                    # by group, then at random
    seen, rank = {}, []
    for row in order.tolist():
        rank.append(seen.setdefault(int(which[row]), 0))
        seen[int(which[row])] += 1
    rank = torch.tensor(rank)
    n = len(groups) // batch_size
    while int((rank < n).sum()) < n * batch_size:
        n -= 1
    use = order[rank < n][: n * batch_size]
    out = use.reshape(batch_size, n).t()[torch.rand(n, generator=generator).argsort()].contiguous()
    gone = torch.ones(len(groups), dtype=torch.bool)
    gone[use] = False
    return out, gone.nonzero()[:, 0]
""",
]
