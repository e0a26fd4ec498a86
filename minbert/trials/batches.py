"""How the other half of chapter 36 is checked: clusters, the chance of a clash, and a dealer who may shuffle as he likes but not cheat."""


import math

import torch

from minbert.course.trials import Case, Trial, mistake


# Two right dealers give two different deals. What do they have in common? The number of batches, the number of rows left out, that every row occurs
# once, that no batch has two of a suit, that the same seed gives the same deal. And on average over many deals, that everybody waits equally often.
# Those are compared.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- negatives.clusters
#
# Chains that close late, through the last row; through either column; a sentence paired with itself; case and blanks; ß, which is ss after `casefold`
# and not after `lower`; signs that do count. A long chain, and random graphs.

def clusters_cases(generator):
    draw = lambda high, n: torch.randint(high, (n,), generator=generator).tolist()
    words = lambda numbers: [f"sentence {n}" for n in numbers]
    late = (["a", "c", "e", "x", "b", "d"], ["b", "d", "f", "y", "c", "f"])
    order = torch.randperm(60, generator=generator).tolist()
    return [Case("a chain that closes late", {"first": late[0], "second": late[1]}),
            Case("joined by first sentences only", {"first": ["p", "q", "p", "r"], "second": ["1", "2", "3", "2"]}),
            Case("joined across the columns", {"first": ["m", "k", "l", "n"], "second": ["k", "l", "o", "n"]}),
            Case("case and blanks", {"first": ["What  is C?", "how are you", " Who am I", "where"], "second": ["HOW ARE YOU", "x y", "WHAT IS\tc?",
                "Who Am I "]}),
            Case("long runs of blanks", {"first": ["a   b", "x", "p \t  q"], "second": ["c", "  a b", "x"]}),
            Case("letters that lower case does not make equal", {"first": ["Straße", "street"], "second": ["road", "STRASSE"]}),
            Case("the last word counts", {"first": ["how do i learn c", "how do i learn go", "how do i learn"], "second": words([1, 2, 3])}),
            Case("signs count", {"first": ["C", "C++", "no?", "5.0"], "second": ["c#", "c+", "no!", "50"]}),
            Case("signs, blanks and order count", {"first": ["no?", "no!", "5.0", "50", "a b", "ab", "b a", "so-so", "so so", "ok.", "ok"],
                "second": words(range(100, 111))}),
            Case("the same pair twice, and turned round", {"first": ["b", "u", "v", "b"], "second": ["a", "v", "u", "a"]}),
            Case("a long chain, shuffled", {"first": words(order), "second": words([n + 1 for n in order])}),
            *(Case(f"{n} random pairs of {high} sentences", {"first": words(draw(high, n)), "second": words(draw(high, n))}) for n, high in ((25, 40),
                (30, 70), (1, 2)))]


def run_clusters(clusters, inputs):
    found = clusters(**inputs)
    return {"clusters": found, "int64": found.dtype == torch.int64}


TRIALS["negatives.clusters"] = Trial(clusters_cases, run_clusters, hints=(
    "A table from each sentence to another of its cluster; who points to itself speaks for all. What has to point where when a pair arrives?",
    "Follow the pointers from both sentences to their speakers, and let one *speaker* point to the other. Number the speakers at the end, when all "
    "pairs are in.",
    "parent[speaker(a)] = speaker(b) for every pair; then, row by row, number.setdefault(speaker(a), len(number)). `setdefault(x, x)` makes a new "
    "sentence its own speaker."))


MISTAKES["negatives.clusters"] = [
    mistake("parent[speaker(a)] = speaker(b)", "parent[a] = speaker(b)",
        "The sentence itself is turned to another cluster, and those behind it stay: a speaker has to point to a speaker."),
    mistake("    number = {}\n    return torch.tensor([number.setdefault(speaker(a), len(number)) for a, _ in rows], dtype=torch.int64)",
        "    number, found = {}, []\n    parent.clear()\n    for a, b in rows:\n        parent[speaker(a)] = speaker(b)\n        "
        "found.append(number.setdefault(speaker(a), len(number)))\n    return torch.tensor(found, dtype=torch.int64)",
        "The numbers are given out while pairs still come in. A later pair may join clusters that have a number each."),
    mistake("for a, b in rows:\n        parent[speaker(a)] = speaker(b)",
        "columns = [(1, a) for a, _ in rows], [(2, b) for _, b in rows]\n    rows = list(zip(*columns))\n    for a, b in rows:\n        "
        "parent[speaker(a)] = speaker(b)",
        "The columns are kept apart: a sentence that stands left in one pair and right in another counts as two."),
    mistake("    for a, b in rows:\n        parent[speaker(a)] = speaker(b)\n", "",
        "Only equal first sentences are joined. The second ones join clusters as well."),
    mistake("number.setdefault(speaker(a), len(number)) for a, _ in rows", "sorted(map(speaker, parent)).index(speaker(a)) for a, _ in rows",
        "The numbers are places in another list. They should count the clusters in the order in which they appear."),
    mistake("\" \".join(text.casefold().split())", "\"\".join(text.casefold().split())", "Blanks are taken out, so two words count as one long word."),
    mistake("\" \".join(text.casefold().split())", "\" \".join(text.casefold().split()).rstrip(\".?!\")", "A sign at the end is dropped: a question and its answer become one sentence."),
    mistake("len(number)) for", "len(number) + 1) for", "The numbers begin at 1; they should begin at 0."),
    mistake("text.casefold().split()", "sorted(text.casefold().split())", "The order of the words is lost."),
    mistake("text.casefold().split()", "text.lower().split()", "lower() leaves ß as it is, and \"STRASSE\" is another word then. casefold() makes both \"strasse\"."),
    mistake("text.casefold().split()", "text.split()", "Upper and lower case are told apart."),
    mistake("\" \".join(text.casefold().split())", "text.casefold()",
        "Blanks are told apart: two in a row, or one at the end, make another sentence."),
    mistake("text.casefold().split()", "''.join(c if c.isalnum() else ' ' for c in text.casefold()).split()",
        "All signs are dropped, so C and C++ are the same sentence."),
    mistake("    for a, b in rows:\n        parent[speaker(a)] = speaker(b)\n",
        "    seen = {}\n    for i, (a, b) in enumerate(rows):\n        first_row = min(seen.get(a, i), seen.get(b, i))\n        seen[a], seen[b] "
        "= min(seen.get(a, i), first_row), min(seen.get(b, i), first_row)\n    speaker = seen.get\n",
        "Each row looks only at the rows before it that share a sentence. Chains that close later are not followed back."),
    mistake("    rows = [tuple(", "    first[:] = [text.casefold() for text in first]\n    rows = [tuple(", "The caller's sentences are changed. They are only to be compared in small letters."),
    mistake("\" \".join(text.casefold().split())", "text.casefold().strip()", "Only blanks at the ends are cut off. Several in a row count as one."),
]

VARIANTS["negatives.clusters"] = [
    '''
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
''', '''
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
''',
]


# ---- negatives.collision and negatives.clash
#
# Groups whose numbers are negative or have holes. All rows alike, all different, two rows. For the clash also the birthdays, a batch as large as the
# file, three thousand rows with a batch of 64, and twenty thousand with one of 128, where a plain product of counts overflows.

def _groups(generator):
    draw = lambda high, n: torch.randint(high, (n,), generator=generator)
    return {"groups of three, two and one": torch.tensor([4, -1, 4, 9, 4, 9]), "all different": torch.randperm(7, generator=generator),
        "all alike": torch.full((4,), 3),
            "two rows": torch.tensor([1, 1]), "random": draw(9, 20) * 5 - 10, "many": draw(2000, 3000)}


def collision_cases(generator):
    return [Case(label, {"groups": g}) for label, g in _groups(generator).items()]


def run_collision(collision_rate, inputs):
    return {"probability": torch.tensor(float(collision_rate(inputs["groups"])), dtype=torch.float64)}


TRIALS["negatives.collision"] = Trial(collision_cases, run_collision, hints=(
    "Count ordered twosomes of different rows: all of them, and those within a group.",
    "`groups.unique(return_counts=True)` gives the sizes, whatever the numbers are.",
    "size * (size - 1) summed over the groups, divided by N (N - 1)."))


def clash_cases(generator):
    sizes = {"groups of three, two and one": (1, 2, 3, 4, 6), "all different": (3, 7), "all alike": (1, 2), "two rows": (2,), "random": (2, 4, 7, 12),
        "many": (2, 64)}
    found = [Case(f"{label}, a batch of {m}", {"groups": g, "batch_size": m}) for label, g in _groups(generator).items() for m in sizes[label]]
    return found + [Case("birthdays of 23", {"groups": torch.arange(365).repeat(20), "batch_size": 23}), Case("20,000 rows, a batch of 128", {"groups": torch.arange(1000).repeat(20), "batch_size": 128})]


def run_clash(clash_probability, inputs):
    return {"probability": torch.tensor(float(clash_probability(**inputs)), dtype=torch.float64)}


TRIALS["negatives.clash"] = Trial(clash_cases, run_clash, hints=(
    "Count the batches without a clash. What does one group contribute, if at most one of its s rows may be chosen?",
    "Multiply the polynomials 1 + s t, one a group, up to degree m; groups of one size together are (1 + s t)^c. More rows than groups: there must "
    "be a clash.",
    "With logarithms: `ways = _log_product(ways, _log_choose(c, k) + k * math.log(s))` for k = 0.0 ... min(c, m) in double precision, starting from the polynomial 1; at "
    "the end compare ways[m] with _log_choose(N, m)."))


_WRONG_RATE = "((size * (size - 1)).sum() / (len(groups) * (len(groups) - 1)))"

MISTAKES["negatives.collision"] = [
    mistake(_WRONG_RATE, "(size / len(groups)).square().sum()", "The squared shares are added up: that lets a row meet itself."),
    mistake(_WRONG_RATE, "((size * size).sum() / (len(groups) * (len(groups) - 1)))", "A row is paired with itself above the line."),
    mistake("return " + _WRONG_RATE, "return (groups[1:] == groups[:-1]).double().mean()", "Only neighbours are compared; any two rows may meet."),
    mistake(_WRONG_RATE, "((size * (size - 1)).sum() / len(groups) ** 2)",
        "A row is paired with itself below the line: that is drawing with replacement."),
    mistake(_WRONG_RATE, "((size * (size - 1) / 2).sum() / (len(groups) * (len(groups) - 1)))",
        "Twosomes above the line have no order, those below have: the result is half of what it should be."),
    mistake(_WRONG_RATE, "(size[size > 1].sum() / len(groups))",
        "This is the share of rows that have a twin at all, not the chance that two rows are twins."),
    mistake(_WRONG_RATE, "((size * (size - 1)).sum() / (len(size) * max(1, len(size) - 1)))",
        "It is divided by twosomes of groups. Rows are drawn, not groups."),
    mistake(_WRONG_RATE, "(1 - (size * (size - 1)).sum() / (len(groups) * (len(groups) - 1)))", "This is the probability that they do not collide."),
    mistake("groups.unique(return_counts=True)[1].double()", "(groups - groups.min()).bincount()[: len(groups.unique())].double()",
        "The numbers of the groups are taken for 0, 1, 2, ...; they may have holes."),
]

VARIANTS["negatives.collision"] = [
    '''
def collision_rate(groups):
    same = groups[:, None] == groups[None, :]
    n = len(groups)
    return (same.sum().item() - n) / (n * (n - 1))
''', '''
def collision_rate(groups):
    counts = {}
    for g in groups.tolist():
        counts[g] = counts.get(g, 0) + 1
    return sum(math.comb(s, 2) for s in counts.values()) / math.comb(len(groups), 2)
''',
]

MISTAKES["negatives.clash"] = [
    mistake("return -math.expm1(", "return math.exp(", "This is the probability of a batch without a clash."),
    mistake(" + k * math.log(s))", ")", "A group of s rows counts as one choice; there are s ways to take one of its rows."),
    mistake("torch.arange(min(c, m) + 1).double()", "torch.arange(min(c, m) + 1)",
        "k times ln s is in single precision if k holds whole numbers: seven digits are too few for the logarithm of such a count. Make k double first."),
    mistake("_log_choose(c, k) + k * math.log(s)", "torch.stack([torch.tensor(0.0), torch.tensor(math.log(s))]).double()",
        "Of several groups of one size only one is counted."),
    mistake("min(0.0, (ways[m] - _log_choose(n, m)).item())",
        "min(0.0, (ways[m] + math.lgamma(m + 1) - m * math.log(n)).item())", "The batches are counted as if rows were drawn with replacement."),
    mistake("    sizes, how_many = groups",
        "    rate = collision_rate(groups)\n    return 1 - math.exp(-rate * m * (m - 1) / 2)\n    sizes, how_many = groups",
        "This is the birthday formula, an approximation. The count has to be exact."),
    mistake("    sizes, how_many = groups",
        "    rate = collision_rate(groups)\n    return 1 - (1 - rate) ** (m * (m - 1) // 2)\n    sizes, how_many = groups",
        "The twosomes of a batch are treated as independent. They are not: the count has to be exact."),
    mistake("        ways = _log_product(ways, _log_choose(c, k) + k * math.log(s))",
        "        ways = _log_product(ways, torch.cat([_log_choose(c, k) + k * math.log(s), torch.full((m,), -torch.inf, "
        "dtype=torch.float64)])[1:m + 2] if c > 1 else _log_choose(c, k) + k * math.log(s))",
        "A group has to give a row each time: the possibility that it gives none is lost."),
    mistake("    if int(how_many.sum()) < m:\n        return 1.0\n", "    if int(how_many.sum()) <= m:\n        return 1.0\n",
        "With as many groups as rows in the batch a clash is not certain: each group can give one."),
    mistake("    sizes, how_many = groups",
        "    ways, total = torch.zeros(m + 1, dtype=torch.float64), torch.ones((), dtype=torch.float64)\n    ways[0] = 1\n"
        "    for s in groups.unique(return_counts=True)[1]:\n        ways[1:] = ways[1:] + s * ways[:-1]\n"
        "    for k in range(m):\n        total = total * (n - k) / (k + 1)\n    return (1 - ways[m] / total).item()\n    sizes, how_many = groups",
        "For a large file the counts overflow. Use logarithms, or whole numbers, which do not."),
    mistake("    sizes, how_many = groups", "    return min(1.0, collision_rate(groups) * m * (m - 1) / 2)\n    sizes, how_many = groups",
            "This is how many twosomes of a batch clash on average. That is more than the probability of a clash, since a batch may hold several."),
    mistake("    sizes, how_many = groups", "    size, clean = n / len(groups.unique()), 1.0\n    for i in range(m):\n        clean *= max(0.0, n - i * size) / (n - i)\n    return 1 - clean\n    sizes, how_many = groups",
            "All groups are taken to be of one size, their average. Where sizes differ, large groups add more clashes than small ones save."),
    mistake("    sizes, how_many = groups", "    kinds, clean = len(groups.unique()), 1.0\n    for i in range(m):\n        clean *= max(0, kinds - i) / kinds\n    return 1 - clean\n    sizes, how_many = groups",
            "Groups are drawn, all alike and with replacement, as in the riddle of the birthdays. Rows are drawn, and without."),
    mistake("    sizes, how_many = groups", "    return collision_rate(groups)\n    sizes, how_many = groups", "This is the probability that two rows clash. A batch holds `batch_size` of them."),
    mistake("groups.unique(return_counts=True)[1].unique", "groups.unique_consecutive(return_counts=True)[1].unique", "Only rows that stand side by side are put into one group. Rows of a group can stand anywhere."),
    mistake("    sizes, how_many = groups", "    m = m - 1\n    sizes, how_many = groups", "The batch is one row too small."),
    mistake("ways[m] - _log_choose(n, m)", "ways[m] - math.lgamma(n + 1) + math.lgamma(n - m + 1)", "Batches without a clash are counted without an order, all batches with one."),
    mistake("    sizes, how_many = groups", "    ways = [1] + [0] * m\n    for s in groups.unique(return_counts=True)[1].tolist():\n        for k in range(1, m + 1):\n            ways[k] += s * ways[k - 1]\n"
            "    return (math.comb(n, m) - ways[m]) / math.comb(n, m)\n    sizes, how_many = groups", "The powers of t are filled from below, so a group is used again for the next one. Go from the highest power down."),
    mistake("torch.arange(min(c, m) + 1)", "torch.arange(min(c, m))", "The highest power is missing: each of c groups may give a row."),
    mistake("k * math.log(s)", "math.log(s)", "Each of the k groups has s ways to give a row, which makes s to the power k."),
    mistake("sizes, how_many = groups", "how_many, sizes = groups", "The sizes of the groups and how many there are of each have changed places."),
    mistake("torch.zeros(m + 1, dtype=torch.float64).log()", "torch.zeros(m + 1).log()", "The logarithms are in single precision. They are large, and their digits behind the point are what counts."),
]

VARIANTS["negatives.clash"] = [
    '''
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
''', '''
def clash_probability(groups, batch_size):
    N, m = len(groups), batch_size
    sizes = groups.unique(return_counts=True)[1].tolist()
    clean = torch.zeros(m + 1, dtype=torch.float64)                    # P(none) of k rows, taking the groups one by one
    clean[0] = 1.0
    k = torch.arange(1, m + 1, dtype=torch.float64)
    for done, s in enumerate(sizes):                                   # coefficient / binom(N, k) stays below 1
        clean[1:] = clean[1:] + s * clean[:-1] * k / (N - k + 1)
    return float(1 - clean[m])
''',
]


# ---- negatives.deal
#
# Suits that come out even, in every deal (who takes the first cards that fit runs out of partners in some), one suit with more cards than there are
# batches, batches of one row, more cards than fit. A hundred deals give averages: how often each row is left out, in which batch it is. A tolerance
# of a quarter is five times the spread of an honest dealer, and a tenth of a second buys no finer one. If only the first batch is drawn, every group
# stays in batches that follow one another, round the end; shuffled ones do that once in 40,000.

def deal_cases(generator):
    shuffled = lambda groups: torch.tensor(groups)[torch.randperm(len(groups), generator=generator)]
    return [Case("comes out even", {"groups": shuffled([0, 0, 0, 1, 1, 2]), "batch_size": 2}),
            Case("batches of one", {"groups": shuffled([5, 5, 5, -2]), "batch_size": 1}),
            Case("one group is too large", {"groups": shuffled([7] * 9 + [1, 1, 2, 3, 4, 5]), "batch_size": 3}),
            Case("fewer batches than rows / batch size, twice over", {"groups": shuffled([0] * 8 + [1] * 3 + [2]), "batch_size": 2}),
            Case("all different", {"groups": torch.arange(10) * 3, "batch_size": 4}),
            Case("one batch", {"groups": shuffled([0, 1, 1, 2, 2]), "batch_size": 3}),
            Case("many", {"groups": torch.randint(60, (150,), generator=generator), "batch_size": 16}),
            Case("one group is too large, on average over 100 deals", {"groups": shuffled([6] * 6 + [0, 1, 2, 2, 3]), "batch_size": 2, "deals": 100}),
            Case("all different, on average over 100 deals", {"groups": torch.arange(7), "batch_size": 2, "deals": 100}),
            Case("one group in every batch, on average over 100 deals", {"groups": shuffled([0, 0, 1, 1, 1, 2]), "batch_size": 2, "deals": 100})]


def run_deal(deal, inputs):
    seeded, groups, m = lambda seed: torch.Generator().manual_seed(seed), inputs["groups"], inputs["batch_size"]
    if "deals" in inputs:
        one = seeded(0)
        return _averages(lambda: deal(groups, m, one), inputs["deals"], len(groups))
    torch.default_generator.manual_seed(1)
    batches, left = deal(groups, m, seeded(3))
    torch.default_generator.manual_seed(2)
    again, _ = deal(groups, m, seeded(3))
    goes_on, many = seeded(3), len(groups) > 100                         # of a few rows two deals may agree by chance
    repeated = sum(len(row) - len(row.unique()) for row in groups[batches])
    return {"shape of the batches": torch.tensor(batches.shape), "every group stands in batches that follow one another": many and _in_a_row(groups, batches), "batches in each of six deals": torch.tensor([len(deal(groups, m,
        seeded(seed))[0]) for seed in range(6)]), "rows left out": len(left), "all rows, sorted": torch.cat([batches.flatten(), left]).sort().values,
            "rows of a group that is in the batch already": repeated, "the same with the same seed": torch.equal(batches, again),
                "int64": batches.dtype == torch.int64, "a generator goes on": not many or not torch.equal(*(deal(groups, m, goes_on)[0] for _ in range(2))),
                "without a generator, another deal each time": not many or not torch.equal(*(deal(groups, m)[0] for _ in range(2)))}


def _in_a_row(groups, batches):
    where, n = {}, len(batches)
    for number, rows in enumerate(batches):
        for group in groups[rows].tolist():
            where.setdefault(group, []).append(number)
    large = [places for places in where.values() if 3 <= len(places) <= n - 2]
    close = [sum((b - a) % n == 1 for a, b in zip(places, places[1:] + places[:1])) >= len(places) - 1 for places in large]   # round the end
    return len(close) > 0 and all(close)


def _averages(deal, times, rows):
    waits, place, between, meets = *torch.zeros(3, rows, dtype=torch.float64), torch.zeros(rows, rows, dtype=torch.float64)
    for _ in range(times):
        batches, left = deal()
        waits[left] += 1
        for number, batch in enumerate(batches):
            place[batch] += number / (len(batches) - 1)
            meets[batch[:, None], batch] += 1
            between[batch] += 0 < number < len(batches) - 1
    return {"how often each row is left out": waits / times, "where it stands, from 0 first to 1 last batch": place / (times - waits),
        "how often two rows meet": meets / times, "a row that is hardly ever between the first and the last batch": between.min() < 0.06 * times}


TRIALS["negatives.deal"] = Trial(deal_cases, run_deal, replay=True, atol=0.25, hints=(
    "Sort the deck by suit and deal it round the table. When does nobody get two of a suit? As long as no suit has more cards than there are players.",
    "Number the rows of each group from 0 (`rank` of `_by_group`). With n batches, rows of rank n and more cannot be dealt; that may leave too few "
    "for n batches, so ask again with a smaller n.",
    "Start with n = N // m; while it changes: n = (rank < n).sum() // m. Take the first n * m rows of rank below n; batch j gets rows j, j + n, j + "
    "2n, ...; put the batches in random order."))


MISTAKES["negatives.deal"] = [
    mistake("kept[:n * batch_size].view(batch_size, n).T", "kept[:n * batch_size].view(n, batch_size)",
        "The deck is cut into stacks instead of dealt round, so neighbours, which are of one group, stay together."),
    mistake("order, rank = _by_group(groups, generator)",
        "order, rank = _by_group(groups, generator)\n    shuffle = torch.randperm(len(order), generator=generator)\n    order, rank = "
        "order[shuffle], rank[shuffle]",
        "The deck is shuffled after it was sorted. Rows of one group have to lie together before they are dealt."),
    mistake("    while n != former:                                      # falls to the largest n that fits\n        n, former = int((rank < "
        "n).sum()) // max(1, batch_size), n\n", "",
        "The number of batches is rows divided by batch size. A group with more rows than batches does not fit in."),
    mistake("    while n != former:                                      # falls to the largest n that fits\n        n, former =",
        "    if n != former:\n        n, former =",
        "The number of batches is corrected once. With fewer batches still more rows may not fit, so ask until it stays."),
    mistake("former = len(groups) // max(1, batch_size), None", "former = int((rank == 0).sum()) // max(1, batch_size), None",
        "Each group gives only one row to the whole epoch. It can give one to every batch."),
    mistake("torch.cat([order[rank >= n], kept[n * batch_size:]])", "kept[n * batch_size:]",
        "Rows of groups that are too large are lost: they are in no batch and not among those left out."),
    mistake("torch.cat([order[rank >= n], kept[n * batch_size:]])", "order[rank >= n]",
        "The rows at the end of the deck, too few for a round, are lost."),
    mistake("order, rank = _by_group(groups, generator)",
        "order = groups.argsort(stable=True)\n    size = groups.unique(return_counts=True)[1]\n    rank = torch.arange(len(order)) - (size.cumsum(0) "
        "- size).repeat_interleave(size)",
        "Nothing but the order of the batches is left to chance: the same rows meet, and the same are left out, in every epoch."),
    mistake("order, rank = _by_group(groups, generator)",
        "order, rank = _by_group(groups, generator)\n    sort = groups[order].argsort(stable=True)\n    order, rank = order[sort], rank[sort]",
        "The groups lie in the order of their numbers, so the same ones meet, and the last are left out, every time."),
    mistake("    order, rank = _by_group", "    generator = generator.clone_state() if generator else None\n    order, rank = _by_group",
        "The generator is copied and stays where it was, so two epochs get the same batches."),
    mistake("    order, rank = _by_group", "    generator = generator or torch.Generator()\n    order, rank = _by_group",
        "Where no generator is given a new one is made. A new one starts from the same seed at every call; None means torch's own random state."),
    mistake("    kept = order", "    n = max(1, n - 1)\n    kept = order", "There is one batch fewer than possible."),
    mistake("_by_group(groups, generator)", "_by_group(groups, None)", "The generator is not used: a resumed run gets other batches."),
    mistake("return batches, torch.cat", "return batches.T, torch.cat", "Rows and columns of the result are swapped: a row should be a batch."),
    mistake("return batches, torch.cat", "return groups[batches], torch.cat",
        "The batches hold the numbers of the groups. They should hold the numbers of the rows."),
    mistake("    batches = batches[torch.randperm(n, generator=generator, device=drawing_device(generator)).cpu()]\n", "",
        "The batches come in the order in which the deck is dealt, so a row that is alone in its group is in some of them more often than in others."),
    mistake("batches[torch.randperm(n, generator=generator, device=drawing_device(generator)).cpu()]", "batches.roll(int(torch.randint(n, (), generator=generator)), 0)",
            "Only the first batch is drawn; the others follow as they were dealt, so the rows of a group stand in batches next to each other."),
]

VARIANTS["negatives.deal"] = [
    '''
def no_duplicate_batches(groups, batch_size, generator=None):
    N, m = len(groups), batch_size
    sizes = groups.unique(return_counts=True)[1]
    n = max(k for k in range(N // m + 1) if int(sizes.clamp(max=k).sum()) >= k * m)
    members = {}
    for row in torch.randperm(N, generator=generator).tolist():
        members.setdefault(int(groups[row]), []).append(row)
    names = list(members)
    deck = [row for i in torch.randperm(len(names), generator=generator).tolist() for row in members[names[i]][:n]]
    waiting = [row for rows in members.values() for row in rows[n:]] + deck[n * m:]
    seats = torch.randperm(n, generator=generator).tolist()
    batches = torch.empty(n, m, dtype=torch.int64)
    for place, row in enumerate(deck[: n * m]):
        batches[seats[place % n], place // n] = row
    return batches, torch.tensor(waiting, dtype=torch.int64)
''', '''
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
''',
]


# ---- How strong are they?

# ---- Next
#
# - A dealer deals honestly, but always begins with the same suit. Which average tells?
# - Replace a hundred deals by ten. How often is an honest dealer accused?
