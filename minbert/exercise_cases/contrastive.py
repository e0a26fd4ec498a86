"""Exercise cases of chapter 16: margin loss, InfoNCE, and the Mirror-BERT loss."""

import torch
import torch.nn.functional as F

from minbert.course.check_runner import Case, Trial, autocast, fixed, mistake, with_gradients

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- contrastive.margin
#
# Random vectors are nearly orthogonal, so none would be within a margin of 0.5. The pairs here
# are close to opposite or close to equal, with both labels. One batch has only similar pairs, one
# only dissimilar ones. Margins of 0.5, 1 and 2 show whether the argument is used. The vectors
# have different lengths, and one is zero.


def _pairs(generator, rows, width=5):
    """Pairs from alike to opposite, of all lengths."""
    u, noise = fixed(generator, 2, rows, width)
    pull = torch.linspace(3, -1.5, rows, dtype=torch.float64)[:, None]
    size = 1 + 4 * torch.rand(2, rows, 1, generator=generator, dtype=torch.float64)
    return {"u": u * size[0], "v": (pull * u + noise) * size[1]}


def crowd(views):
    """The same directions, each in a narrow cone: their cosines differ by a thousandth, which
    bfloat16 takes for 1."""
    return {name: 20 + F.normalize(x, dim=-1) for name, x in views.items()}


def margin_cases(generator):
    pairs, labels = _pairs(generator, 8), torch.tensor([1, 0, 0, 0, 1, 1, 0, 0])
    few = _pairs(generator, 3, 2)
    zero = {name: x.clone() for name, x in _pairs(generator, 4).items()}
    zero["u"][1], zero["v"][2] = 0, 0
    alike = torch.eye(2, dtype=torch.float64)
    return [
        Case("same and different pairs, margin 0.5", {**pairs, "labels": labels}),
        Case("margin 1", {**pairs, "labels": labels.double(), "margin": 1.0}),
        Case(
            "margin 2, labels are truth values", {**pairs, "labels": labels.bool(), "margin": 2.0}
        ),
        Case(
            "labels are unsigned bytes", {**pairs, "labels": labels.to(torch.uint8), "margin": 1.0}
        ),
        Case("same pairs only", {**few, "labels": torch.ones(3)}),
        Case("different pairs only", {**few, "labels": torch.zeros(3), "margin": 1.5}),
        Case(
            "one pair",
            {
                **{name: x[:1] for name, x in pairs.items()},
                "labels": torch.tensor([0]),
                "margin": 2.0,
            },
        ),
        Case(
            "single precision",
            {**{name: x.float() for name, x in pairs.items()}, "labels": labels, "margin": 1.0},
        ),
        Case(
            "a crowd of different pairs, half precision",
            {
                **{name: x.bfloat16() for name, x in crowd(pairs).items()},
                "labels": 0 * labels,
                "margin": 1.0,
            },
        ),
        Case("two vectors are zero", {**zero, "labels": torch.tensor([1, 1, 0, 0]), "margin": 1.2}),
        Case(
            "equal vectors, whose cosine is exactly 1",
            {
                **{name: torch.cat([alike, x]) for name, x in few.items()},
                "labels": torch.tensor([1, 0, 1, 0, 0]),
            },
        ),
    ]


def run_margin(loss, inputs):
    return with_gradients(
        loss, inputs, *(("u", "v") if inputs["u"].dtype != torch.bfloat16 else ())
    )


TRIALS["contrastive.margin"] = Trial(
    margin_cases,
    run_margin,
    subject="margin",
    hints=(
        (
            "Two costs for each pair: one if it means the same, one if it does not. The label, 0 "
            "or 1, chooses."
        ),
        (
            "d = 1 - safe_cosine(u, v) is a distance: 0 for alike, 2 for opposite. A different "
            "pair pays only while d is below the margin: clamp before you square."
        ),
        (
            "y * d² + (1 - y) * (margin - d, but not below 0)², then the mean over the batch, "
            "then half of it."
        ),
    ),
)


_WRONG_DISTANCE = "distance = 1 - safe_cosine(u, v)"
MISTAKES["contrastive.margin"] = [
    mistake(
        "y * distance.square() + (1 - y) * (margin",
        "(1 - y) * distance.square() + y * (margin",
        "The labels are inverted: similar pairs are pushed apart.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = safe_cosine(u, v)",
        "The cosine similarity is used as a distance. The distance is 1 minus the similarity.",
    ),
    mistake(
        "(margin - distance).clamp_min(0).square()",
        "(margin - distance).square()",
        "The clamp at 0 is missing before the square, so dissimilar pairs beyond the margin are "
        "pulled back.",
    ),
    mistake("cost.mean() / 2", "cost.sum() / 2", "The losses are summed. Use the mean."),
    mistake("cost.mean() / 2", "cost.mean()", "The factor ½ is missing."),
    mistake(
        "(margin - distance).clamp_min(0).square()",
        "(distance - margin).clamp_min(0).square()",
        "The sign of the margin term is wrong: dissimilar pairs are pulled together.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 - (u * v).sum(-1)",
        "The vectors are not normalized: this is the dot product. Use the cosine.",
    ),
    mistake(
        "(margin - distance)", "(0.5 - distance)", "The margin is always 0.5. Use the argument."
    ),
]

VARIANTS["contrastive.margin"] = [
    """
def contrastive_loss(u, v, labels, margin=0.5):
    total = 0 * u.sum()
    for a, b, label in zip(u, v, labels):
        a, b = a.double(), b.double()
        d = 1 - torch.dot(a, b) / (a.norm() * b.norm()) if a.any() and b.any() else 1.0
        if label:
            total = total + d ** 2
        elif d < margin:
            total = total + (margin - d) ** 2
    return total / (2 * len(u))
""",
    """
def contrastive_loss(u, v, labels, margin=0.5):
    d = 1 - safe_cosine(
        u.float() if u.dtype.itemsize < 4 else u, v.float() if v.dtype.itemsize < 4 else v
    )
    return 0.5 * torch.where(labels.bool(), d.pow(2), F.relu(margin - d).pow(2)).mean()
""",
    """
def contrastive_loss(u, v, labels, margin=0.5):
    d = 1 - torch.einsum("bd,bd->b", unit(u), unit(v))
    same = labels == 1
    missing = torch.max(margin - d, torch.zeros_like(d))
    return (d[same].square().sum() + missing[~same].square().sum()) / len(d) / 2
""",
]


# ---- contrastive.infonce
#
# Positives are only moderately similar, so that every negative counts. Numbers of rows,
# dimensions and groups all differ. Hard negatives come with and without groups, because groups
# exclude duplicates and not hard negatives. At a temperature of 0.001 a logit can be 1000, where
# exponentials overflow; in two cases the positives are the least similar, so that their
# probability rounds to 0 although its logarithm is finite.


def _views(generator, rows, width, noise=0.8):
    """Two views and a contradiction of each sentence, of all lengths."""
    a, more, other = fixed(generator, 3, rows, width)
    size = 1 + 3 * torch.rand(3, rows, 1, generator=generator, dtype=torch.float64)
    return {
        "a": a * size[0],
        "b": (a + noise * more) * size[1],
        "hard": (0.7 * a + other) * size[2],
    }


def strangers(generator):
    """Three anchors whose partners are farther than others: one opposite, one in a row without
    anything near."""
    turn = torch.linalg.qr(fixed(generator, 3, 3))[0]
    a, b = torch.tensor(
        [[[1, 0, 0], [0, -1, 0], [0, 0.2, 1]], [[-1, 0.1, 0], [1, 0.2, 0], [0, 0.3, -1]]],
        dtype=torch.float64,
    ) + 0.01 * fixed(generator, 2, 3, 3)
    size = 1 + 3 * torch.rand(2, 3, 1, generator=generator, dtype=torch.float64)
    return {"a": a @ turn * size[0], "b": b @ turn * size[1]}


def infonce_cases(generator):
    views = _views(generator, 6, 4)
    plain = {name: views[name] for name in "ab"}
    groups = torch.tensor([3, 1, 3, 0, 1, 3])
    near, far = _views(generator, 5, 3, 0.1), {**strangers(generator), "temperature": 0.001}
    return [
        Case("six sentences", {**plain, "temperature": 0.5}),
        Case("default temperature", plain),
        Case("hard negatives", {**views, "temperature": 0.4}),
        Case("groups", {**plain, "temperature": 0.3, "groups": groups}),
        Case("groups and hard negatives", {**views, "temperature": 0.7, "groups": groups}),
        Case(
            "all of one group",
            {**views, "temperature": 0.5, "groups": torch.zeros(6, dtype=torch.long)},
        ),
        Case(
            "one sentence with a hard negative",
            {**{name: x[:1] for name, x in views.items()}, "temperature": 0.5},
        ),
        Case(
            "single precision",
            {**{name: x.float() for name, x in views.items()}, "temperature": 0.5},
        ),
        Case(
            "a crowd, half precision, temperature 0.01",
            {**{name: x.bfloat16() for name, x in crowd(near).items()}, "temperature": 0.01},
        ),
        autocast(
            Case(
                "a crowd, hard negatives, temperature 0.001", {**crowd(near), "temperature": 0.001}
            ),
            *near,
        ),
        Case(
            "all of one group, no hard negatives",
            {**plain, "temperature": 0.5, "groups": torch.ones(6, dtype=torch.long)},
        ),
        Case("temperature 0.001", {**near, "temperature": 0.001}),
        Case("positives far apart, temperature 0.001", far),
        Case(
            "positives far apart, groups, temperature 0.0015",
            {**far, "temperature": 0.0015, "groups": torch.tensor([0, 0, 1])},
        ),
    ]


def run_infonce(loss, inputs):
    values = inputs["a"].dtype == torch.bfloat16 or torch.is_autocast_enabled(
        "cpu"
    )  # a gradient would be rounded on its way back
    names = () if values else ("a", "b", "hard")
    return with_gradients(loss, inputs, *(name for name in names if name in inputs))


TRIALS["contrastive.infonce"] = Trial(
    infonce_cases,
    run_infonce,
    subject="infonce",
    hints=(
        (
            "It is a classification: row i chooses among columns, and the right one is column i. "
            "What are the logits?"
        ),
        (
            "Cosines over temperature, (B, B). Other rows of the same group get a logit of -inf. "
            "Hard negatives are B more columns."
        ),
        (
            "logits = cat([masked cosines(a, b), cosines(a, hard)], dim=1) / temperature, then "
            "F.cross_entropy with the labels 0, 1, ..., B - 1."
        ),
    ),
)


_WRONG_END = "return F.cross_entropy(logits, torch.arange(len(a), device=a.device))"
_WRONG_LOGITS = (
    "logits = (_cosines(a, b) / temperature).masked_fill(_duplicates(a, groups), -torch.inf)"
)
MISTAKES["contrastive.infonce"] = [
    mistake(
        "(_cosines(a, b) / temperature)",
        "(_cosines(a, b) * temperature)",
        "_cosines(a, hard) / temperature",
        "_cosines(a, hard) * temperature",
        "The cosines are multiplied by the temperature. Divide by it.",
    ),
    mistake(
        "(_cosines(a, b) / temperature)",
        "_cosines(a, b)",
        "_cosines(a, hard) / temperature",
        "_cosines(a, hard)",
        "The temperature is not used.",
    ),
    mistake(
        "(_cosines(a, b) / temperature)",
        "(a @ b.T / temperature)",
        "_cosines(a, hard)",
        "(a @ hard.T)",
        "The vectors are not normalized: these are dot products. Use cosines.",
    ),
    mistake(
        ".masked_fill(_duplicates(a, groups), -torch.inf)",
        "",
        "`groups` is not used, so duplicates in the batch count as negatives.",
    ),
    mistake(
        "_cosines(a, b) / temperature",
        "_cosines(b, a) / temperature",
        "The softmax runs over the wrong axis: each row of b selects among the rows of a.",
    ),
    mistake(
        _WRONG_END,
        "both = F.cross_entropy(logits, torch.arange(len(a))) + F.cross_entropy(logits[:, "
        ":len(a)].T, torch.arange(len(a)))\n"
        "    return both / 2",
        "Both directions are averaged. Only the rows of a are anchors here.",
    ),
    mistake(
        _WRONG_END,
        "return F.cross_entropy(logits.softmax(1), torch.arange(len(a), device=a.device))",
        "A softmax is applied before the cross-entropy, which expects logits.",
    ),
    mistake(
        "(_cosines(a, b) / temperature)",
        "(_cosines(a, b.detach()) / temperature)",
        "The second view is detached, so it gets no gradient.",
    ),
]

VARIANTS["contrastive.infonce"] = [
    """
def simcse_loss(a, b, temperature=0.05, hard=None, groups=None):
    a, b, hard = (None if x is None else x.double() for x in (a, b, hard))
    total = 0.0
    for i in range(len(a)):
        logits = []
        for j in range(len(b)):
            if i == j or groups is None or groups[i] != groups[j]:
                logits.append(torch.dot(a[i], b[j]) / a[i].norm() / b[j].norm() / temperature)
        for h in ([] if hard is None else hard):
            logits.append(torch.dot(a[i], h) / a[i].norm() / h.norm() / temperature)
        right = torch.dot(a[i], b[i]) / a[i].norm() / b[i].norm() / temperature
        total = total + torch.logsumexp(torch.stack(logits), 0) - right
    return total / len(a)
""",
    """
def simcse_loss(a, b, temperature=0.05, hard=None, groups=None):
    wide = torch.promote_types(a.dtype, torch.float32)
    others = (b if hard is None else torch.cat([b, hard])).to(wide)
    a = a.to(wide)
    with torch.autocast("cpu", enabled=False):
        scores = (
            torch.einsum("id,jd->ij", F.normalize(a, dim=-1), F.normalize(others, dim=-1))
            / temperature
        )
    if groups is not None:
        same = groups.unsqueeze(1).eq(groups.unsqueeze(0)).fill_diagonal_(False)
        scores[:, : len(b)] = scores[:, : len(b)].masked_fill(same, -1e9)
    return -scores.log_softmax(dim=1).diagonal().mean()
""",
    """
def simcse_loss(a, b, temperature=0.05, hard=None, groups=None):
    B = len(a)
    a, b = (x.float() if x.dtype == torch.bfloat16 else x for x in (a, b))
    hard = hard.float() if hard is not None and hard.dtype == torch.bfloat16 else hard
    cos = F.cosine_similarity(a[:, None], b[None], dim=-1) / temperature
    keep = (
        torch.ones(B, B, dtype=torch.bool)
        if groups is None
        else (groups[:, None] != groups[None]) | torch.eye(B, dtype=torch.bool)
    )
    if hard is not None:
        cos = torch.hstack([cos, F.cosine_similarity(a[:, None], hard[None], dim=-1) / temperature])
        keep = torch.hstack([keep, torch.ones(B, B, dtype=torch.bool)])
    top = cos.detach().amax(1, keepdim=True)
    weights = (cos - top).exp() * keep
    return (weights.sum(1).log() + top[:, 0] - cos.diagonal()).mean()
""",
]


# ---- contrastive.mirror
#
# As for InfoNCE: moderate similarities, different lengths, groups, a small temperature, positives
# that are far apart; one direction and both. Two rows are the fewest with a negative.


def mirror_cases(generator):
    a, more = fixed(generator, 2, 6, 4)
    size = 1 + 3 * torch.rand(2, 6, 1, generator=generator, dtype=torch.float64)
    views = {"a": a * size[0], "b": (a + 0.8 * more) * size[1]}
    near = {"a": a * size[0], "b": a + 0.05 * more}
    groups = torch.tensor([3, 1, 3, 0, 1, 3])
    far = {**strangers(generator), "temperature": 0.001}
    return [
        Case("six sentences", {**views, "temperature": 0.5}),
        Case("symmetric", {**views, "temperature": 0.3, "symmetric": True}),
        Case("default temperature", views),
        Case("groups", {**views, "temperature": 0.4, "groups": groups}),
        Case(
            "groups, symmetric",
            {**views, "temperature": 0.6, "symmetric": True, "groups": groups},
        ),
        Case("two sentences", {**{name: x[:2] for name, x in views.items()}, "temperature": 0.5}),
        Case(
            "single precision",
            {**{name: x.float() for name, x in views.items()}, "temperature": 0.5},
        ),
        Case(
            "a crowd, half precision, temperature 0.01",
            {
                **{name: x.bfloat16() for name, x in crowd(near).items()},
                "temperature": 0.01,
                "symmetric": True,
            },
        ),
        autocast(Case("a crowd, temperature 0.001", {**crowd(near), "temperature": 0.001}), *near),
        Case("temperature 0.001", {**near, "temperature": 0.001, "symmetric": True}),
        Case("positives far apart, temperature 0.001", far),
        Case(
            "positives far apart, groups, symmetric",
            {**far, "temperature": 0.0015, "symmetric": True, "groups": torch.tensor([0, 0, 1])},
        ),
    ]


def run_mirror(loss, inputs):
    values = inputs["a"].dtype == torch.bfloat16 or torch.is_autocast_enabled(
        "cpu"
    )  # a gradient would be rounded on its way back
    return with_gradients(loss, inputs, *(() if values else ("a", "b")))


TRIALS["contrastive.mirror"] = Trial(
    mirror_cases,
    run_mirror,
    subject="mirror",
    hints=(
        (
            "The same classification as in InfoNCE with B more columns. Which of them is no "
            "negative?"
        ),
        (
            "Cosines of a with b and of a with a, side by side, (B, 2B). In the second half the "
            "diagonal gets -inf: no vector is compared with itself."
        ),
        (
            "cat([cosines(a, b), cosines(a, a) without diagonal], dim=1) / temperature, "
            "F.cross_entropy with 0 ... B - 1; then the same with a and b exchanged, and the "
            "mean."
        ),
    ),
)


_WRONG_WITHIN = "within = _cosines(x, x).masked_fill(duplicates | itself, -torch.inf)"
_WRONG_PAIR = "logits = torch.cat([across, within], dim=1) / temperature"
_WRONG_COSINES = ("_cosines(x, y).masked", "_cosines(x, x).masked")
MISTAKES["contrastive.mirror"] = [
    mistake(
        _WRONG_PAIR,
        "logits = across / temperature",
        "The cosines within a view are missing from the negatives: this is the SimCSE loss.",
    ),
    mistake(
        "duplicates | itself, -torch.inf",
        "duplicates, -torch.inf",
        "The diagonal of the cosines within a view is not masked, so each sentence is its own "
        "negative.",
    ),
    mistake(
        "_duplicates(a, groups)",
        "_duplicates(a, None)",
        "`groups` is not used, so duplicates count as negatives.",
    ),
    mistake(
        "if symmetric else [(a, b)]",
        "if False else [(a, b)]",
        "`symmetric` is not used: the loss is computed in one direction only.",
    ),
    mistake(
        "torch.stack(losses).mean()",
        "torch.stack(losses).sum()",
        "The two directions are summed. Use their mean.",
    ),
    mistake(
        _WRONG_PAIR,
        "logits = torch.cat([across, within], dim=1) * temperature",
        "The cosines are multiplied by the temperature. Divide by it.",
    ),
    mistake(
        _WRONG_PAIR, "logits = torch.cat([across, within], dim=1)", "The temperature is not used."
    ),
    mistake(
        "_cosines(x, y)",
        "(x @ y.T)",
        "_cosines(x, x)",
        "(x @ x.T)",
        "The vectors are not normalized: these are dot products. Use cosines.",
    ),
]

VARIANTS["contrastive.mirror"] = [
    """
def mirror_loss(a, b, temperature=0.04, symmetric=False, groups=None):
    B = len(a)
    everything = F.normalize(
        torch.cat([a, b]).to(torch.promote_types(a.dtype, torch.float32)), dim=1
    )
    with torch.autocast("cpu", enabled=False):
        scores = everything @ everything.T / temperature
    who = torch.arange(B) if groups is None else groups
    same = torch.cat([who, who])[:, None] == torch.cat([who, who])[None]
    partner = torch.arange(2 * B).roll(B)
    keep = ~same
    keep[torch.arange(2 * B), partner] = True
    losses = (
        scores.masked_fill(~keep, float("-inf")).logsumexp(1) - scores[torch.arange(2 * B), partner]
    )
    return losses.mean() if symmetric else losses[:B].mean()
""",
    """
def mirror_loss(a, b, temperature=0.04, symmetric=False, groups=None):
    if symmetric:
        return 0.5 * mirror_loss(a, b, temperature, groups=groups) + 0.5 * mirror_loss(
            b, a, temperature, groups=groups
        )
    losses = []
    a, b = a.double(), b.double()
    for i in range(len(a)):
        others = [j for j in range(len(a)) if j != i and (groups is None or groups[i] != groups[j])]
        vectors = torch.stack([b[i], *[b[j] for j in others], *[a[j] for j in others]])
        losses.append(-(F.cosine_similarity(a[i : i + 1], vectors) / temperature).log_softmax(0)[0])
    return sum(losses) / len(losses)
""",
]
