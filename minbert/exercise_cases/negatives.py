"""Exercise cases of chapter 35: the multiple negatives ranking loss."""

import warnings

import torch

from minbert.course.check_runner import Case, Trial, autocast, fixed, mistake, with_gradients

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def lopsided(u, v):
    """Score pairs (N, D), (N, D) -> (N,), and not the same from either side."""
    return 0.5 * (u * v).sum(-1) + u[:, 0] - 2 * v[:, 1] + torch.tanh(u[:, 2] * v[:, 0])


def crowd(x):
    """The same directions in a narrow cone: their cosines differ by a thousandth, which bfloat16
    takes for 1."""
    return 20 + x / x.norm(dim=1, keepdim=True)


# ---- negatives.scores
#
# None of the score matrices is symmetric, and the numbers of rows differ from the dimensions.
# Four rows by six, so that a transposed matrix has another shape, and four by four. A zero
# vector, whose cosine is 0. A head that is not symmetric and records how many pairs it gets at
# once. Half precision and autocast: nothing may be rounded to bfloat16.


def scores_cases(generator):
    a, b = fixed(generator, 4, 5), 3 * fixed(generator, 6, 5)
    none = a.clone()
    none[2] = 0
    small = {"a": a.float(), "b": b.float()}
    return [
        Case("cosine", {"a": a, "b": b}),
        Case("cosine, one vector of zeros", {"a": none, "b": b, "values": True}),
        Case("dot", {"a": a, "b": b, "score": "dot"}),
        *(
            Case(f"{score}, as many rows as partners", {"a": a, "b": b[2:], "score": score})
            for score in ("cosine", "dot", "head")
        ),
        Case("a head", {"a": a, "b": b, "score": "head"}),
        Case("a head, at most 13 pairs at a time", {"a": a, "b": b, "score": "head", "chunk": 13}),
        Case(
            "a head, five rows by four, at most 8 pairs at a time",
            {"a": torch.cat([a, a[:1] + 1]), "b": b[:4], "score": "head", "chunk": 8},
        ),
        Case(
            "a head, fewer pairs at a time than partners",
            {"a": a, "b": b, "score": "head", "chunk": 2},
        ),
        Case("cosine, half precision", {"a": a.bfloat16(), "b": b.bfloat16(), "values": True}),
        Case("a head, one partner", {"a": a, "b": b[:1], "score": "head", "chunk": 2}),
        Case("one row", {"a": a[:1], "b": b}),
        Case("dot, half precision", {"a": a.bfloat16(), "b": b.bfloat16(), "score": "dot"}),
        *(
            Case(f"{score}, under autocast", {**small, "score": score, "autocast": True})
            for score in ("cosine", "dot", "head")
        ),
        Case(
            "a head, half precision",
            {"a": a.bfloat16(), "b": b.bfloat16(), "score": "head", "values": True},
        ),
    ]


def run_scores(score_matrix, inputs):
    most, score, autocast = [0], inputs.pop("score", "cosine"), inputs.pop("autocast", False)
    values = inputs.pop("values", autocast)  # the gradient at a vector of zeros is anybody's

    def head(u, v):
        most[0] = max(most[0], len(u))
        return lopsided(u, v) + (
            (u @ torch.linspace(-1, 1, u.shape[1] ** 2, dtype=u.dtype).view(u.shape[1], -1)) * v
        ).sum(-1)

    inputs["score"] = head if score == "head" else score
    with torch.autocast("cpu", enabled=autocast):
        found = with_gradients(score_matrix, inputs, *(() if values else ("a", "b")))
    return found | {
        "pairs at a time are few enough": torch.tensor(
            most[0] <= max(inputs.get("chunk", 4096), len(inputs["b"]))
        )
    }


TRIALS["negatives.scores"] = Trial(
    scores_cases,
    run_scores,
    subject="ranking",
    hints=(
        "Three ways, three branches. Which shape has the result, and who belongs to its rows?",
        (
            "`_cosines` and `_head_scores` are there; `wide` widens half precision, and "
            "`torch.autocast(device, enabled=False)` keeps products from being "
            "rounded."
        ),
        (
            "cosine: _cosines(a, b). Else widen both; dot: a @ b.T; a head: _head_scores(score, "
            "a, b, rows) with max(1, chunk // len(b)) rows at a time."
        ),
    ),
)


_WRONG_DOT = 'a @ b.T if score == "dot" else _head_scores(score, a, b, max(1, chunk // len(b)))'

MISTAKES["negatives.scores"] = [
    mistake(
        "return _cosines(a, b)",
        "return wide(a) @ wide(b).T",
        "The vectors are not normalized: these are dot products.",
    ),
    mistake(
        "return _cosines(a, b)",
        "return _cosines(a, b / b.norm(dim=0))",
        "The columns are normalized. A vector is a row.",
    ),
    mistake(
        "return _cosines(a, b)",
        "return F.normalize(wide(a), dim=-1) @ wide(b).T",
        "Only one side is normalized.",
    ),
    mistake(
        "return _cosines(a, b)",
        "return 1 - _cosines(a, b)",
        "This is a distance. A higher score means more similar.",
    ),
    mistake(
        _WRONG_DOT,
        _WRONG_DOT.replace("(score, a, b,", "(lambda u, v: score(v, u), a, b,"),
        "The head gets anchor and candidate in the wrong order.",
    ),
    mistake(
        _WRONG_DOT,
        'a @ b.T if score == "dot" else score(a.repeat(len(b), 1), '
        "b.repeat_interleave(len(a), 0)).view(len(a), len(b))",
        "The pairs are listed column by column but read row by row, so the scores of a head are "
        "in the wrong cells.",
    ),
    mistake(
        _WRONG_DOT,
        'a @ b.T if score == "dot" else torch.cat([_head_scores(score, a[: len(a) // max(1, '
        "chunk // len(b)) * max(1, chunk // len(b))], b, max(1, chunk // len(b))), "
        "a.new_zeros(len(a) % max(1, chunk // len(b)), len(b))])",
        "The rows of the last, incomplete chunk are not scored.",
    ),
    mistake(
        "a, b = wide(a), wide(b)\n",
        "a, b = a, b\n",
        "Half precision is not converted to float32, so scores keep only three digits.",
    ),
]

VARIANTS["negatives.scores"] = [
    """
def score_matrix(a, b, score="cosine", chunk=4096):
    a, b = (
        a.to(torch.promote_types(a.dtype, torch.float32)),
        b.to(torch.promote_types(b.dtype, torch.float32)),
    )
    with torch.autocast(a.device.type, enabled=False):
        if score == "dot":
            return torch.einsum("nd,md->nm", a, b)
        if score == "cosine":
            return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        return torch.cat([_head_scores(score, row, b, 1) for row in a[:, None]])
""",
    """
def score_matrix(a, b, score="cosine", chunk=4096):
    a, b = wide(a), wide(b)
    if score == "cosine":
        return torch.stack([torch.stack([F.cosine_similarity(x, y, dim=0) for y in b]) for x in a])
    if score == "dot":
        return (a[:, None] * b[None]).sum(-1)
    with torch.autocast(a.device.type, enabled=False):
        columns = [
            torch.cat([score(part, y.expand(len(part), -1)) for part in a.split(chunk)]) for y in b
        ]
    if columns[0].shape != (len(a),):
        raise ValueError("expected one number a pair")
    return torch.stack(columns, dim=1)
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
            "Which cells are wrongly called wrong? Those whose row and column belong to one "
            "group, but for one cell in each row."
        ),
        (
            "`groups[:, None] == groups` is true where row and column share a group. The diagonal "
            "is the right answer and has to stay."
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
# Every option alone and in combination: scale, groups, dot product, a head that is not symmetric,
# both directions, hard negatives. Vectors of all lengths; a zero vector; one pair, alone and with
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
    )  # three sure answers, one surely wrong, two that nobody knows
    wide[5] = 1e-3 * wide[5]
    ways = {
        "as it is": {},
        "scale 3": {"scale": 3.0},
        "groups": {"groups": groups},
        "all in one group": {"groups": torch.zeros(5)},
        "dot": {"score": "dot", "scale": 1.0},
        "a head": {"score": "head", "scale": 0.5},
        "symmetric": {"symmetric": True, "scale": 4.0},
        "hard": {"hard": h, "scale": 5.0},
        "hard, dot": {"hard": h, "scale": 0.3, "score": "dot"},
        "hard, a head, symmetric, groups": {
            "hard": h,
            "scale": 0.7,
            "score": "head",
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
    score = inputs.pop("score", "cosine")
    steep = inputs.pop("steep", False)
    names = (
        ()
        if inputs.pop("values", False)
        else ("anchors", "positives", *(["hard"] if "hard" in inputs else []))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one pair
        found = with_gradients(
            lambda **kw: loss(**kw, score=lopsided if score == "head" else score), inputs, *names
        )
    if steep:  # what a vector of zeros gets is anybody's, if it is a number of this world
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
            "It is classification: each row of the table is an anchor, and its own column is the "
            "class. Which columns does the table have with hard "
            "negatives?"
        ),
        (
            "scale times `score_matrix`, then `hide_duplicates`, then the hard negatives as more "
            "columns; cross entropy with the labels 0 to m - 1."
        ),
        (
            "logits = hide_duplicates(scale * score_matrix(anchors, positives, score), groups); "
            "torch.cat with scale * score_matrix(anchors, hard, score) "
            "along dim 1; for the other direction logits.T, without `hard`."
        ),
    ),
)


_WRONG_LOGITS = "hide_duplicates(scale * score_matrix(anchors, positives, score), groups)"
_WRONG_PRICE = "F.cross_entropy(torch.cat([logits, *wrong], dim=1), own)"
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
        "F.cross_entropy(torch.cat([logits.T, *wrong], dim=1), own)",
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
    mistake(
        "[] if hard is None else [" + _WRONG_HARD + "]", "[]", "The hard negatives are not used."
    ),
    mistake(
        "(loss + F.cross_entropy(logits.T, own)) / 2 if symmetric else loss",
        "loss",
        "`symmetric` is not used.",
    ),
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
