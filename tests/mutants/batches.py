"""Mutants of `minbert.exercise_cases.batches`: their checks must reject them all."""

from minbert.course.check_runner import mistake

MUTANTS = {}


MUTANTS["negatives.clusters"] = [
    mistake(
        "parent[speaker(a)] = speaker(b)",
        "parent[a] = speaker(b)",
        "The sentence itself is turned to another cluster, and those behind it stay: a speaker "
        "has to point to a speaker.",
    ),
    mistake(
        "    number = {}\n"
        "    return torch.tensor([number.setdefault(speaker(a), len(number)) for a, _ in "
        "rows], dtype=torch.int64)",
        "    number, found = {}, []\n"
        "    parent.clear()\n"
        "    for a, b in rows:\n"
        "        parent[speaker(a)] = speaker(b)\n"
        "        "
        "found.append(number.setdefault(speaker(a), len(number)))\n"
        "    return torch.tensor(found, dtype=torch.int64)",
        "The numbers are given out while pairs still come in. A later pair may join clusters "
        "that have a number each.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        '"".join(text.casefold().split())',
        "Blanks are taken out, so two words count as one long word.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        '" ".join(text.casefold().split()).rstrip(".?!")',
        "A sign at the end is dropped: a question and its answer become one sentence.",
    ),
    mistake(
        "text.casefold().split()",
        "sorted(text.casefold().split())",
        "The order of the words is lost.",
    ),
    mistake(
        "text.casefold().split()",
        "''.join(c if c.isalnum() else ' ' for c in text.casefold()).split()",
        "All signs are dropped, so C and C++ are the same sentence.",
    ),
    mistake(
        "    rows = [tuple(",
        "    first[:] = [text.casefold() for text in first]\n    rows = [tuple(",
        "The caller's sentences are changed. They are only to be compared in small letters.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        "text.casefold().strip()",
        "Only blanks at the ends are cut off. Several in a row count as one.",
    ),
]


MUTANTS["negatives.collision"] = [
    mistake(
        "groups.unique(return_counts=True)[1].double()",
        "(groups - groups.min()).bincount()[: len(groups.unique())].double()",
        "The numbers of the groups are taken for 0, 1, 2, ...; they may have holes.",
    ),
]


MUTANTS["negatives.clash"] = [
    mistake(
        "torch.arange(min(c, m) + 1).double()",
        "torch.arange(min(c, m) + 1)",
        "k times ln s is in single precision if k holds whole numbers: seven digits are too few "
        "for the logarithm of such a count. Make k double first.",
    ),
    mistake(
        "_log_choose(c, k) + k * math.log(s)",
        "torch.stack([torch.tensor(0.0), torch.tensor(math.log(s))]).double()",
        "Of several groups of one size only one is counted.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    rate = collision_rate(groups)\n"
        "    return 1 - (1 - rate) ** (m * (m - 1) // 2)\n"
        "    sizes, how_many = groups",
        "The twosomes of a batch are treated as independent. They are not: the count has to be "
        "exact.",
    ),
    mistake(
        "        ways = _log_product(ways, _log_choose(c, k) + k * math.log(s))",
        "        ways = _log_product(ways, torch.cat([_log_choose(c, k) + k * math.log(s), "
        "torch.full((m,), -torch.inf, "
        "dtype=torch.float64)])[1:m + 2] if c > 1 else _log_choose(c, k) + k * math.log(s))",
        "A group has to give a row each time: the possibility that it gives none is lost.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    size, clean = n / len(groups.unique()), 1.0\n"
        "    for i in range(m):\n"
        "        clean *= max(0.0, n - i * size) / (n - i)\n"
        "    return 1 - clean\n"
        "    sizes, how_many = groups",
        "All groups are taken to be of one size, their average. Where sizes differ, large "
        "groups add more clashes than small ones save.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    kinds, clean = len(groups.unique()), 1.0\n"
        "    for i in range(m):\n"
        "        clean *= max(0, kinds - i) / kinds\n"
        "    return 1 - clean\n"
        "    sizes, how_many = groups",
        "Groups are drawn, all alike and with replacement, as in the riddle of the birthdays. "
        "Rows are drawn, and without.",
    ),
    mistake(
        "groups.unique(return_counts=True)[1].unique",
        "groups.unique_consecutive(return_counts=True)[1].unique",
        "Only rows that stand side by side are put into one group. Rows of a group can stand "
        "anywhere.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    m = m - 1\n    sizes, how_many = groups",
        "The batch is one row too small.",
    ),
    mistake(
        "ways[m] - _log_choose(n, m)",
        "ways[m] - math.lgamma(n + 1) + math.lgamma(n - m + 1)",
        "Batches without a clash are counted without an order, all batches with one.",
    ),
    mistake(
        "    sizes, how_many = groups",
        "    ways = [1] + [0] * m\n"
        "    for s in groups.unique(return_counts=True)[1].tolist():\n"
        "        for k in range(1, m + 1):\n"
        "            ways[k] += s * ways[k - 1]\n"
        "    return (math.comb(n, m) - ways[m]) / math.comb(n, m)\n    sizes, how_many = groups",
        "The powers of t are filled from below, so a group is used again for the next one. Go "
        "from the highest power down.",
    ),
    mistake(
        "torch.arange(min(c, m) + 1)",
        "torch.arange(min(c, m))",
        "The highest power is missing: each of c groups may give a row.",
    ),
    mistake(
        "k * math.log(s)",
        "math.log(s)",
        "Each of the k groups has s ways to give a row, which makes s to the power k.",
    ),
    mistake(
        "sizes, how_many = groups",
        "how_many, sizes = groups",
        "The sizes of the groups and how many there are of each have changed places.",
    ),
    mistake(
        "torch.zeros(m + 1, dtype=torch.float64).log()",
        "torch.zeros(m + 1).log()",
        "The logarithms are in single precision. They are large, and their digits behind the "
        "point are what counts.",
    ),
]


MUTANTS["negatives.deal"] = [
    mistake(
        "    while n != former:                                      # falls to the largest n "
        "that fits\n"
        "        n, former =",
        "    if n != former:\n        n, former =",
        "The number of batches is corrected once. With fewer batches still more rows may not "
        "fit, so ask until it stays.",
    ),
    mistake(
        "former = len(groups) // max(1, batch_size), None",
        "former = int((rank == 0).sum()) // max(1, batch_size), None",
        "Each group gives only one row to the whole epoch. It can give one to every batch.",
    ),
    mistake(
        "order, rank = _by_group(groups, generator)",
        "order = groups.argsort(stable=True)\n"
        "    size = groups.unique(return_counts=True)[1]\n"
        "    rank = torch.arange(len(order)) - (size.cumsum(0) "
        "- size).repeat_interleave(size)",
        "Nothing but the order of the batches is left to chance: the same rows meet, and the "
        "same are left out, in every epoch.",
    ),
    mistake(
        "order, rank = _by_group(groups, generator)",
        "order, rank = _by_group(groups, generator)\n"
        "    sort = groups[order].argsort(stable=True)\n"
        "    order, rank = order[sort], rank[sort]",
        "The groups lie in the order of their numbers, so the same ones meet, and the last are "
        "left out, every time.",
    ),
    mistake(
        "    order, rank = _by_group",
        "    generator = generator.clone_state() if generator else None\n"
        "    order, rank = _by_group",
        "The generator is copied and stays where it was, so two epochs get the same batches.",
    ),
    mistake(
        "    order, rank = _by_group",
        "    generator = generator or torch.Generator()\n    order, rank = _by_group",
        "Where no generator is given a new one is made. A new one starts from the same seed at "
        "every call; None means torch's own random state.",
    ),
    mistake(
        "    kept = order",
        "    n = max(1, n - 1)\n    kept = order",
        "There is one batch fewer than possible.",
    ),
    mistake(
        "    batches = batches[torch.randperm(n, generator=generator, "
        "device=drawing_device(generator)).cpu()]\n",
        "",
        "The batches come in the order in which the deck is dealt, so a row that is alone in "
        "its group is in some of them more often than in others.",
    ),
    mistake(
        "batches[torch.randperm(n, generator=generator, device=drawing_device(generator)).cpu()]",
        "batches.roll(int(torch.randint(n, (), generator=generator)), 0)",
        "Only the first batch is drawn; the others follow as they were dealt, so the rows of a "
        "group stand in batches next to each other.",
    ),
]
