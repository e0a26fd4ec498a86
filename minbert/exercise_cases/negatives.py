"""Exercise cases of chapter 18: the multiple negatives ranking loss, clusters of duplicates."""

import warnings

import torch

from minbert.course.check_runner import Case, Trial, autocast, fixed, mistake, with_gradients

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def crowd(x):
    """Move the vectors into a narrow cone: their cosines differ by a thousandth, which bfloat16
    rounds to 1."""
    return 20 + x / x.norm(dim=1, keepdim=True)


# ---- negatives.scores
#
# No score matrix is symmetric, and the numbers of rows differ from the dimensions. Four rows by
# six, so that a transposed matrix has another shape, and four by four. A zero vector, whose cosine
# is 0. Half precision and autocast: nothing may be rounded to bfloat16.


def scores_cases(generator):
    a, b = fixed(generator, 4, 5), 3 * fixed(generator, 6, 5)
    none = a.clone()
    none[2] = 0
    small = {"a": a.float(), "b": b.float()}
    return [
        Case("cosine", {"a": a, "b": b}),
        Case("cosine, one vector of zeros", {"a": none, "b": b, "values": True}),
        Case("dot product", {"a": a, "b": b, "score": "dot"}),
        *(
            Case(f"{score}, as many anchors as candidates", {"a": a, "b": b[2:], "score": score})
            for score in ("cosine", "dot")
        ),
        Case("one anchor", {"a": a[:1], "b": b}),
        Case("cosine, half precision", {"a": a.bfloat16(), "b": b.bfloat16(), "values": True}),
        Case("dot product, half precision", {"a": a.bfloat16(), "b": b.bfloat16(), "score": "dot"}),
        *(
            Case(f"{score}, under autocast", {**small, "score": score, "autocast": True})
            for score in ("cosine", "dot")
        ),
    ]


def run_scores(score_matrix, inputs):
    autocast = inputs.pop("autocast", False)
    values = inputs.pop("values", autocast)  # the gradient at a vector of zeros is not defined
    with torch.autocast("cpu", enabled=autocast):
        return with_gradients(score_matrix, inputs, *(() if values else ("a", "b")))


TRIALS["negatives.scores"] = Trial(
    scores_cases,
    run_scores,
    subject="ranking",
    hints=(
        "The product `a @ b.T` contains the dot product of every row of `a` with every row of `b`.",
        "A cosine is the dot product of two vectors of length 1. `unit(x)` normalizes every row.",
        (
            "Convert both with `wide`, normalize both if the score is the cosine, and multiply "
            "under `torch.autocast(a.device.type, enabled=False)`."
        ),
    ),
)


_UNIT = "a, b = unit(a), unit(b)"

MISTAKES["negatives.scores"] = [
    mistake(
        'if score == "cosine":',
        "if False:",
        "The vectors are not normalized: these are dot products.",
    ),
    mistake(
        _UNIT,
        "a, b = unit(a), unit(b / b.norm(dim=0))",
        "The columns are normalized. A vector is a row.",
    ),
    mistake(_UNIT, "a = unit(a)", "Only one side is normalized."),
    mistake(
        _UNIT,
        _UNIT + "\n        return 1 - a @ b.T",
        "This is a distance. A higher score means more similar.",
    ),
    mistake(
        'if score == "cosine":',
        "if True:",
        "The vectors are normalized for the dot product as well.",
    ),
    mistake("return a @ b.T", "return b @ a.T", "The matrix is transposed: rows belong to `a`."),
    mistake(
        "a, b = wide(a), wide(b)\n",
        "a, b = a, b\n",
        "Half precision is not converted to float32, so scores keep only three digits.",
    ),
]

VARIANTS["negatives.scores"] = [
    """
def score_matrix(a, b, score="cosine"):
    if score not in ("cosine", "dot"):
        raise ValueError("expected 'cosine' or 'dot'")
    a = a.to(torch.promote_types(a.dtype, torch.float32))
    b = b.to(torch.promote_types(b.dtype, torch.float32))
    with torch.autocast(a.device.type, enabled=False):
        if score == "dot":
            return torch.einsum("nd,md->nm", a, b)
        return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
""",
    """
def score_matrix(a, b, score="cosine"):
    if score not in ("cosine", "dot"):
        raise ValueError("expected 'cosine' or 'dot'")
    a, b = wide(a), wide(b)
    if score == "cosine":
        return torch.stack([torch.stack([F.cosine_similarity(x, y, dim=0) for y in b]) for x in a])
    return (a[:, None] * b[None]).sum(-1)
""",
]


# ---- negatives.duplicates
#
# Groups of one, two and three among six rows, group ids that are no indices, all rows in one
# group, no groups. The gradient is taken behind a softmax, because minus infinity can be written
# in several ways.


def duplicates_cases(generator):
    S = 2 * fixed(generator, 6, 6)
    groups = {
        "groups of three, two and one": [7, -2, 7, 4, -2, 7],
        "neighbours": [0, 0, 1, 2, 3, 3],
        "all different": [5, 4, 3, 2, 1, 0],
        "all in one group": [3] * 6,
    }
    return [
        Case(label, {"scores": S, "groups": torch.tensor(g)}) for label, g in groups.items()
    ] + [
        Case(
            "equal scores",
            {"scores": S.sign(), "groups": torch.tensor(groups["groups of three, two and one"])},
        ),
        Case("no groups", {"scores": S, "groups": None}),
        Case(
            "twenty rows", {"scores": 2 * fixed(generator, 20, 20), "groups": torch.arange(20) % 7}
        ),
        Case("one row", {"scores": S[:1, :1], "groups": torch.tensor([2])}),
        Case(
            "single precision", {"scores": S.float(), "groups": torch.tensor(groups["neighbours"])}
        ),
    ]


def run_duplicates(hide_duplicates, inputs):
    shares = with_gradients(
        lambda scores, groups: hide_duplicates(scores, groups).softmax(1), inputs, "scores"
    )
    scores = hide_duplicates(**inputs)
    return {
        "hidden cells": scores.isneginf(),
        "scores, 0 where hidden": scores.masked_fill(scores.isneginf(), 0),
        "gradient behind a softmax": shares["gradient of scores"],
    }


TRIALS["negatives.duplicates"] = Trial(
    duplicates_cases,
    run_duplicates,
    subject="ranking",
    hints=(
        (
            "Which cells are false negatives? Those whose row and column belong to one group, "
            "except the cell of the positive itself."
        ),
        (
            "`groups[:, None] == groups` is true where row and column share a group. The diagonal "
            "holds the positives and has to stay."
        ),
        (
            "same = (groups[:, None] == groups) & ~torch.eye(m, dtype=bool); then `masked_fill` "
            "with -torch.inf, which makes a new tensor."
        ),
    ),
)


MISTAKES["negatives.duplicates"] = [
    mistake("same & ~own", "same", "The diagonal is masked as well, and with it the positive."),
    mistake(
        "same & ~own",
        "~same",
        "The mask is inverted: other sentences are masked and duplicates stay.",
    ),
    mistake(
        "same & ~own",
        "same.triu(1)",
        "Only cells above the diagonal are masked. Duplicates have to be masked on both sides.",
    ),
    mistake(
        "same & ~own",
        "(same & ~own).any(0)",
        "A duplicate is masked for every anchor. Mask it only for the anchors of its own group.",
    ),
    mistake(
        "-torch.inf",
        "0.0",
        "The score of a duplicate is set to 0, and exp(0) is 1, so it still counts. Use minus "
        "infinity.",
    ),
    mistake(
        "scores.masked_fill(",
        "scores.masked_fill_(",
        "The scores are changed in place. Return a new tensor.",
    ),
    mistake(
        "if groups is None:\n        return scores",
        "if groups is None:\n"
        "        return scores.masked_fill(torch.ones_like(scores).tril(-1).bool(), "
        "-torch.inf)",
        "Without groups there are no known duplicates, so nothing should be masked.",
    ),
    mistake(
        "same & ~own, -torch.inf",
        "same & ~own, -1e9",
        "Duplicates get a large negative number. Use minus infinity.",
    ),
]

VARIANTS["negatives.duplicates"] = [
    """
def hide_duplicates(scores, groups=None):
    if groups is None:
        return scores
    bias = torch.zeros_like(scores)
    bias[torch.eq(groups.unsqueeze(1), groups.unsqueeze(0))] = float("-inf")
    bias.fill_diagonal_(0)
    return scores + bias
""",
    """
def hide_duplicates(scores, groups=None):
    hidden = scores.clone()
    for i in range(len(scores)):
        for j in range(len(scores)):
            if groups is not None and i != j and groups[i] == groups[j]:
                hidden[i, j] = -math.inf
    return hidden
""",
    """
def hide_duplicates(scores, groups=None):
    numbers = torch.arange(len(scores)) if groups is None else groups
    strangers = (numbers[:, None] - numbers[None, :]) != 0
    return torch.where(strangers | torch.eye(len(scores), dtype=torch.bool), scores, -torch.inf)
""",
]


# ---- negatives.loss
#
# Every option alone and in combination: scale, groups, dot product, both directions, hard negatives. Vectors of all lengths; a zero vector; one pair, alone and with
# a hard negative; one group, where the loss is 0. Autocast, where a product by hand is rounded to
# bfloat16.


def loss_cases(generator):
    a, p, h = fixed(generator, 3, 5, 4) * (
        0.3 + 3 * torch.rand(3, 5, 1, generator=generator, dtype=torch.float64)
    )
    p = a / a.norm(dim=1, keepdim=True) + 0.3 * p
    none, groups = a.clone(), torch.tensor([3, 0, 3, 8, 0])
    none[1] = 0
    wide, q = fixed(generator, 2, 6, 768)
    q = torch.cat(
        [wide[:3] + 0.2 * q[:3], -wide[3:4], q[4:]]
    )  # three easy pairs, one with opposite vectors, two at random
    wide[5] = 1e-3 * wide[5]
    ways = {
        "as it is": {},
        "scale 3": {"scale": 3.0},
        "groups": {"groups": groups},
        "all in one group": {"groups": torch.zeros(5)},
        "dot": {"score": "dot", "scale": 1.0},
        "symmetric": {"symmetric": True, "scale": 4.0},
        "hard": {"hard": h, "scale": 5.0},
        "hard, dot": {"hard": h, "scale": 0.3, "score": "dot"},
        "hard, dot, symmetric, groups": {
            "hard": h,
            "scale": 0.7,
            "score": "dot",
            "symmetric": True,
            "groups": groups,
        },
        "hard, groups": {"hard": h, "scale": 2.0, "groups": groups},
    }
    cases = [Case(label, {"anchors": a, "positives": p, **way}) for label, way in ways.items()]
    return cases + [
        Case("a vector of zeros", {"anchors": none, "positives": p, "values": True}),
        Case("a vector of zeros, its gradient", {"anchors": none, "positives": p, "steep": True}),
        Case("one pair", {"anchors": a[:1], "positives": p[:1]}),
        Case("dot, 768 columns", {"anchors": wide, "positives": q, "score": "dot", "scale": 1.0}),
        Case(
            "dot, 768 columns, both directions, groups",
            {
                "anchors": wide,
                "positives": q,
                "score": "dot",
                "scale": 3.0,
                "symmetric": True,
                "groups": torch.tensor([0, 1, 1, 2, 3, 0]),
            },
        ),
        Case(
            "half precision",
            {
                "anchors": a.bfloat16(),
                "positives": p.bfloat16(),
                "hard": h.bfloat16(),
                "symmetric": True,
                "values": True,
            },
        ),
        autocast(
            Case(
                "a crowd, hard, scale 1000",
                {
                    "anchors": crowd(a),
                    "positives": crowd(p),
                    "hard": crowd(h),
                    "scale": 1000.0,
                    "values": True,
                },
            ),
            "anchors",
            "positives",
            "hard",
        ),
        Case("one pair, hard", {"anchors": a[:1], "positives": p[:1], "hard": h[:1], "scale": 2.0}),
        Case("single precision", {"anchors": a.float(), "positives": p.float(), "groups": groups}),
    ]


def run_loss(loss, inputs):
    steep = inputs.pop("steep", False)
    names = (
        ()
        if inputs.pop("values", False)
        else ("anchors", "positives", *(["hard"] if "hard" in inputs else []))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one pair
        found = with_gradients(loss, inputs, *names)
    if steep:  # the gradient of a vector of zeros is not defined, but must be finite
        return {
            "loss": found["output"],
            "gradients are finite and below 1000": all(
                bool((g.abs() < 1000).all()) for name, g in found.items() if name != "output"
            ),
        }
    return {"loss": found.pop("output")} | found


TRIALS["negatives.loss"] = Trial(
    loss_cases,
    run_loss,
    subject="ranking",
    hints=(
        (
            "It is a classification: each row of the score matrix belongs to an anchor, and the "
            "index of the row is the class. Which columns do hard negatives add?"
        ),
        (
            "Multiply `score_matrix` by the scale, apply `hide_duplicates`, append the scores of "
            "the hard negatives as columns, and use the cross-entropy with labels 0 to B - 1."
        ),
        (
            "logits = hide_duplicates(scale * score_matrix(anchors, positives, score), groups); "
            "torch.cat with scale * score_matrix(anchors, hard, score) "
            "along dim 1; for the other direction logits.T, without `hard`."
        ),
    ),
)


_WRONG_LOGITS = "hide_duplicates(scale * score_matrix(anchors, positives, score), groups)"
_WRONG_PRICE = "F.cross_entropy(candidates, own)"
_WRONG_HARD = "scale * score_matrix(anchors, hard, score)"

MISTAKES["negatives.loss"] = [
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace("scale *", "1 / scale *"),
        _WRONG_HARD,
        "1 / " + _WRONG_HARD,
        "The scores are divided by the scale. The scale is one over the temperature, so multiply.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace("scale * ", ""),
        _WRONG_HARD,
        _WRONG_HARD.replace("scale * ", ""),
        "The scale is not used.",
    ),
    mistake(
        _WRONG_PRICE,
        "F.cross_entropy(torch.cat([logits.T, candidates[:, len(logits) :]], dim=1), own)",
        "The softmax runs over the wrong axis: the positives select among the anchors.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(
            "positives, score", 'positives, "dot" if score == "cosine" else score'
        ),
        _WRONG_HARD,
        _WRONG_HARD.replace("hard, score", 'hard, "dot" if score == "cosine" else score'),
        "The vectors are not normalized: these are dot products.",
    ),
    mistake(
        _WRONG_PRICE,
        _WRONG_PRICE.replace("own)", 'own, reduction="sum")'),
        "The losses are summed. Use the mean.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(", groups)", ", None)"),
        "The groups are not used, so duplicates count as negatives.",
    ),
    mistake("if hard is not None:", "if False:", "The hard negatives are not used."),
    mistake("if symmetric:", "if False:", "`symmetric` is not used."),
]

VARIANTS["negatives.loss"] = [
    """
def multiple_negatives_loss(
    anchors, positives, scale=20.0, groups=None, *, score="cosine", symmetric=False, hard=None
):
    S = scale * score_matrix(anchors, positives, score)
    if groups is not None:
        twins = torch.eq(groups[:, None], groups[None, :]).fill_diagonal_(False)
        S = S.masked_fill(twins, float("-inf"))
    columns = S if hard is None else torch.hstack([S, scale * score_matrix(anchors, hard, score)])
    forth = torch.logsumexp(columns, dim=1) - torch.diagonal(S)
    if not symmetric:
        return forth.mean()
    back = torch.logsumexp(S, dim=0) - torch.diagonal(S)
    return 0.5 * (forth.mean() + back.mean())
""",
    """
def multiple_negatives_loss(
    anchors, positives, scale=20.0, groups=None, *, score="cosine", symmetric=False, hard=None
):
    m = len(anchors)
    choices = positives if hard is None else torch.cat([positives, hard])
    table = score_matrix(anchors, choices, score) * scale
    total = 0.0
    for i in range(m):
        rivals = [
            j
            for j in range(len(choices))
            if j == i or j >= m or groups is None or groups[i] != groups[j]
        ]
        total = total - table[i, rivals].log_softmax(0)[rivals.index(i)] / m
    if symmetric:
        total = total / 2
        for j in range(m):
            rivals = [i for i in range(m) if i == j or groups is None or groups[i] != groups[j]]
            total = total - table[rivals, j].log_softmax(0)[rivals.index(j)] / m / 2
    return total
""",
]


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
            "`parent` maps each sentence to another one of its cluster, and a root to itself. "
            "What has to change when a pair arrives?"
        ),
        (
            "Follow the parents of both sentences to their roots, and make one *root* the parent "
            "of the other. Number the roots at the end, when all pairs have been read."
        ),
        (
            "parent[root(a)] = root(b) for every pair; then, row by row, "
            "number.setdefault(root(a), len(number))."
        ),
    ),
)


MISTAKES["negatives.clusters"] = [
    mistake(
        "for a, b in rows:\n        parent[root(a)] = root(b)",
        "columns = [(1, a) for a, _ in rows], [(2, b) for _, b in rows]\n"
        "    rows = list(zip(*columns))\n"
        "    for a, b in rows:\n"
        "        "
        "parent[root(a)] = root(b)",
        "The columns are treated separately: a sentence that is first in one pair and second in "
        "another counts as two.",
    ),
    mistake(
        "    for a, b in rows:\n        parent[root(a)] = root(b)\n",
        "",
        "Only equal first sentences are merged. Equal second sentences merge clusters as well.",
    ),
    mistake(
        "number[root(a)] for a, _ in rows",
        "sorted(map(root, parent)).index(root(a)) for a, _ in rows",
        "The cluster ids are positions in another list. They should be numbered 0, 1, 2, ... in "
        "order of appearance.",
    ),
    mistake("len(number))", "len(number) + 1)", "The cluster ids start at 1. They start at 0."),
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
        "    for a, b in rows:\n        parent[root(a)] = root(b)\n",
        "    seen = {}\n"
        "    for i, (a, b) in enumerate(rows):\n"
        "        first_row = min(seen.get(a, i), seen.get(b, i))\n"
        "        seen[a], seen[b] "
        "= min(seen.get(a, i), first_row), min(seen.get(b, i), first_row)\n"
        "    root = seen.get\n",
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


# ---- negatives.collision
#
# Group ids that are negative or not consecutive; all rows equal, all different, two rows.


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
        "Count ordered pairs of different rows: all of them, and those within a group.",
        "`groups.unique(return_counts=True)` gives the sizes, whatever the numbers are.",
        "size * (size - 1) summed over the groups, divided by N (N - 1).",
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
