"""Exercise cases of chapter 25: margin loss, InfoNCE, the Mirror-BERT loss, and span masking."""

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
    subject="spans and mirror",
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


# ---- contrastive.lengths
#
# Two correct programs draw in different orders, so frequencies over twenty thousand draws are
# compared (a hundred thousand where four spans in ten are too long). The tolerance is 0.03, which
# is ten standard errors. Other outputs are exact: lengths in [1, cap], reproducibility from the
# generator, no use of torch's global random state, and a generator that advances from call to
# call.


def lengths_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [
        Case("BERT-CF", {"seed": seed}),
        Case("drawn again", {"seed": seed, "renormalize": True}),
        Case("short runs", {"seed": seed, "p": 0.7, "cap": 3}),
        Case("long runs", {"seed": seed, "p": 0.1, "cap": 8}),
        Case("long runs, drawn again", {"seed": seed, "p": 0.1, "cap": 8, "renormalize": True}),
        Case(
            "four in ten runs too long, drawn again",
            {"seed": seed, "p": 0.35, "cap": 2, "renormalize": True, "n": 100_000},
        ),
        Case("cap 1", {"seed": seed, "cap": 1}),
        Case("p 1", {"seed": seed, "p": 1.0, "cap": 4}),
    ]


def run_lengths(draw, inputs):
    settings = {name: value for name, value in inputs.items() if name not in ("seed", "n")}
    n = inputs.get("n", 20_000)

    def seeded(plus):
        return torch.Generator().manual_seed(inputs["seed"] + plus)

    before = torch.get_rng_state()
    many = draw(n, generator=seeded(0), **settings)
    untouched = torch.equal(before, torch.get_rng_state())
    again, other, goes_on = (
        draw(60, generator=seeded(0), **settings),
        draw(60, generator=seeded(1), **settings),
        seeded(0),
    )
    cap = settings.get("cap", 5)
    return {
        "shape": torch.tensor(many.shape),
        "int64": many.dtype == torch.int64,
        "shortest is 1 or more": many.min() >= 1,
        "longest is cap or less": many.max() <= cap,
        "shares of 0, 1, 2, ...": torch.bincount(many.long().clamp(0, cap + 2), minlength=cap + 3)
        / len(many),
        "shares in the first half": torch.bincount(
            many[: n // 2].long().clamp(0, cap + 2), minlength=cap + 3
        )
        / (n // 2),
        "share of neighbours that agree": (many[1:] == many[:-1]).double().mean(),
        "share of lengths that agree with the one half a draw later": (
            many[: n // 2] == many[n // 2 :]
        )
        .double()
        .mean(),
        "the same seed, the same lengths": torch.equal(
            again, draw(60, generator=seeded(0), **settings)
        ),
        "another seed, other lengths": not torch.equal(again, other),
        "a generator goes on": not torch.equal(
            draw(60, generator=goes_on, **settings), draw(60, generator=goes_on, **settings)
        ),
        "torch's own random state is left alone": untouched,
        "without a generator, other lengths each time": not torch.equal(
            draw(60, **settings), draw(60, **settings)
        ),
        "none asked for": torch.tensor(draw(0, **settings).shape),
    }


TRIALS["contrastive.lengths"] = Trial(
    lengths_cases,
    run_lengths,
    replay=True,
    subject="spans and mirror",
    atol=0.03,
    hints=(
        (
            "A run of length l or less has probability 1 - (1 - p)^l. Draw a number between 0 and "
            "1: which l does it belong to?"
        ),
        (
            "With u in [0, 1): the smallest l with 1 - (1 - p)^l > u. Solve for l, with "
            "logarithms. Mind p = 1."
        ),
        (
            "1 + floor(log(1 - u) / log(1 - p)), no longer than cap. For `renormalize` shrink u "
            "first, by the share of runs that fit: 1 - (1 - p)^cap."
        ),
    ),
)


MISTAKES["contrastive.lengths"] = [
    mistake(
        "math.log1p(-p)", "math.log(p)", "p and 1 - p are swapped: a span ends with probability p."
    ),
    mistake(
        "lengths = 1 + torch.floor(",
        "lengths = torch.floor(",
        "The lengths start at 0. The shortest span has length 1 (off by one).",
    ),
    mistake("return lengths.clamp(1, cap)", "return lengths", "`cap` is not used."),
    mistake(
        "return lengths.clamp(1, cap)",
        "return lengths.clamp(1, cap - 1) if cap > 1 else lengths.clamp(1, 1)",
        "Spans are limited to `cap - 1` (off by one).",
    ),
    mistake(
        "if renormalize:",
        "if False:",
        "`renormalize` is not used: spans that are too long are always shortened to `cap`.",
    ),
    mistake(
        "return lengths.clamp(1, cap)",
        "return torch.randint(1, cap + 1, (n,), generator=generator)",
        "The lengths are uniformly distributed. They should be geometrically distributed.",
    ),
    mistake(
        "torch.rand(n, generator=generator, device=device, dtype=torch.float64)",
        "torch.rand(n, dtype=torch.float64)",
        "`generator` is not used, so lengths are not reproducible.",
    ),
    mistake(
        "torch.rand(n, generator=generator, device=device, dtype=torch.float64)",
        "torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)",
        "The seed is fixed, so every call returns the same lengths.",
    ),
]

VARIANTS["contrastive.lengths"] = [
    """
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    shares = p * (1 - p) ** torch.arange(cap, dtype=torch.float64)
    if not renormalize:
        shares[-1] = (1 - p) ** (cap - 1)
    if n == 0:
        return torch.zeros(0, dtype=torch.long)
    return 1 + torch.multinomial(shares, n, replacement=True, generator=generator)
""",
    """
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    def coins(many):
        lengths = torch.ones(many, dtype=torch.long)
        going = torch.ones(many, dtype=torch.bool)
        for _ in range(cap):
            going &= torch.rand(many, generator=generator) >= p
            lengths += going
        return lengths
    lengths = coins(n)
    while renormalize and (lengths > cap).any():
        long = lengths > cap
        lengths[long] = coins(int(long.sum()))
    return lengths.clamp(max=cap)
""",
    """
def span_lengths(n, p=0.3, cap=5, renormalize=False, generator=None):
    ends = torch.tensor([1 - (1 - p) ** l for l in range(1, cap + 1)], dtype=torch.float64)
    if renormalize:
        ends = ends / ends[-1]
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    return torch.searchsorted(ends[:-1].contiguous(), u, right=True) + 1
""",
]


# ---- contrastive.spans
#
# Two thousand copies of one sentence are masked at once. Counted are violations that no draw
# allows: changes at special tokens, spans with gaps, tokens that changed into something else.
# Then frequencies: lengths of spans, starts, and how often each position is masked. One sentence
# has a separator in the middle, one has two words, one has none; a word may have the id of the
# padding or of [MASK]. With `single_mask` the sentence gets shorter, and the remaining tokens
# have to keep their order. Ten thousand copies with spans of one token show that all positions
# are equally likely.


def spans_cases(generator):
    words = 10 + torch.randperm(80, generator=generator)[:9]
    plain = {"words": words, "special": torch.tensor([1, 0, 0, 0, 0, 0, 0, 1, 1])}
    middle = {**plain, "special": torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 1]).bool()}
    cases = [
        Case("six words", plain),
        Case("a separator in the middle", middle),
        Case("one token of six", {**plain, "cap": 1, "rows": 10_000}),
        Case("runs as long as the sentence allows", {**plain, "p": 0.05, "cap": 9}),
        Case("drawn again", {**plain, "p": 0.2, "cap": 3, "renormalize": True}),
        Case("two words", {**plain, "special": torch.tensor([1, 1, 0, 1, 1, 0, 1, 1, 1])}),
        Case("one word", {**plain, "special": torch.tensor([1, 1, 0, 1, 1, 1, 1, 1, 1])}),
        Case("no words", {**plain, "special": torch.ones(9, dtype=torch.long)}),
        Case("cap 0", {**plain, "cap": 0}),
        Case("one [MASK] for a run", {**plain, "p": 0.15, "single_mask": True, "pad_id": 3}),
        Case(
            "one [MASK] for a run, every token a word",
            {**plain, "special": torch.zeros(9), "single_mask": True},
        ),
        Case(
            "one [MASK] for a run that steps over a separator",
            {**middle, "p": 0.15, "single_mask": True, "pad_id": 3},
        ),
    ]
    mixed = {
        "words": torch.stack([words, words + 100, words.flip(0) + 200, words + 300]),
        "special": torch.tensor(
            [
                [1, 0, 0, 0, 0, 0, 0, 1, 1],
                [1, 0, 1, 0, 0, 1, 0, 0, 1],
                [1, 0, 0, 1, 1, 1, 1, 1, 1],
                [1, 0, 1, 1, 1, 1, 1, 1, 1],
            ]
        ),
    }
    cases += [
        Case(
            "sentences of six, five, two words and one, in one batch",
            {**mixed, "p": 0.15, "rows": 6000},
        ),
        Case(
            "such a batch, one [MASK] for a run",
            {**mixed, "p": 0.15, "single_mask": True, "pad_id": 3, "rows": 6000},
        ),
    ]
    return [
        Case(c.label, {**c.inputs, "seed": int(torch.randint(10_000, (), generator=generator))})
        for c in cases
    ]


def run_spans(hide, inputs):
    settings = {
        name: value
        for name, value in inputs.items()
        if name not in ("words", "special", "seed", "rows")
    }
    patterns = len(inputs["words"]) if inputs["words"].ndim == 2 else 1
    ids, special = (
        inputs[name].view(patterns, -1).repeat(inputs.get("rows", 2000) // patterns, 1)
        for name in ("words", "special")
    )
    before = ids.clone(), special.clone(), torch.get_rng_state()

    def seeded():
        return torch.Generator().manual_seed(inputs["seed"])

    out = hide(ids, special, 4, generator=seeded(), **settings)
    if out.shape != ids.shape or out.is_floating_point():
        return {"shape": torch.tensor(out.shape), "whole numbers": not out.is_floating_point()}
    kept = torch.equal(ids, before[0]) and torch.equal(special, before[1])
    again = hide(ids[:99], special[:99], 4, generator=seeded(), **settings)
    facts, count = {}, _shorter if settings.get("single_mask") else _longer
    for k in range(patterns):
        found = count(out[k::patterns], ids[k], special[k].bool(), settings.get("pad_id", 0))
        facts |= {
            f"{name}, sentence {k + 1}" if patterns > 1 else name: value
            for name, value in found.items()
        }
    word, goes_on = ids[0, 1].item(), seeded()  # the same ids, but for one word
    for number, label in ((4, "[MASK]"), (settings.get("pad_id", 0), "padding")):
        twin = hide(
            torch.where(ids == word, number, ids)[:99],
            special[:99],
            4,
            generator=seeded(),
            **settings,
        )
        facts[f"a word with the number of {label} is a word"] = torch.equal(
            twin, torch.where(again == word, number, again)
        )
    facts["a generator goes on"] = not torch.equal(
        *(hide(ids[:99], special[:99], 4, generator=goes_on, **settings) for _ in range(2))
    )
    facts["share of rows that are like the next"] = (out[::2] == out[1::2]).all(1).double().mean()
    alone, other = (
        hide(ids[:99], special[:99], 4, **settings) for _ in range(2)
    )  # torch's own random state
    if "rows" in inputs and patterns == 1:
        facts["each place is hidden as often"] = (
            (out == 4).double().mean(0)[~special[0].bool()] - 1 / 6
        ).abs().max() < 0.025
    return {
        "shape": torch.tensor(out.shape),
        "int64": out.dtype == torch.int64,
        "inputs are left alone": kept,
        "a new tensor": out.data_ptr() != ids.data_ptr(),
        **facts,
        "the same seed, the same masks": torch.equal(
            again, hide(ids[:99], special[:99], 4, generator=seeded(), **settings)
        ),
        "without a generator": torch.tensor(alone.shape),
        "without a generator, other masks each time": not torch.equal(alone, other),
        "rows are hidden apart": (out != out[0]).any(),
    }


def _longer(out, words, special, pad_id):
    """Facts about masks that take one place for each token."""
    content, hidden = ~special, out == 4
    rank = content.long().cumsum(0) - 1
    first = torch.where(hidden, rank, 99).amin(1)
    length = (hidden & content).sum(1)
    last = torch.where(hidden & content, rank, -99).amax(1)
    return {
        "forbidden places that changed": (out[:, special] != words[special]).sum(),
        "other words that changed": ((out != words) & ~hidden).sum(),
        "runs with a hole": ((last - first + 1 != length) & (length > 0)).sum(),
        "shares of the lengths": torch.bincount(length, minlength=len(content) + 1) / len(out),
        "shares of the first hidden words": torch.bincount(
            first.clamp(max=len(content)), minlength=len(content) + 1
        )
        / len(out),
        "shares of copies in which each place is hidden": hidden.double().mean(0),
    }


def _shorter(out, words, special, pad_id):
    """Facts about sentences in which one mask stands for a run."""
    gone = (out == pad_id).sum(1)
    start = (out == 4).long().argmax(1)
    place = torch.arange(len(words))
    rank = (~special).long().cumsum(0) - 1
    left = (
        ~special & (rank > rank[start][:, None]) & (rank <= (rank[start] + gone)[:, None])
    )  # what the mask stands for, beside its own place
    source = left.long().argsort(dim=1, stable=True)  # where each token comes from
    real = place < len(words) - gone[:, None]
    same = (out == words[source]) | (place == start[:, None]) | ~real
    return {
        "rows with one mask": ((out == 4).sum(1) == 1).sum(),
        "pads before the end": ((out == pad_id) & real).sum(),
        "tokens out of order": (~same).sum(),
        "masks in forbidden places": special[start].sum(),
        "shares of the lengths": torch.bincount(gone + 1, minlength=len(words) + 1) / len(out),
        "shares of the places of the mask": torch.bincount(start, minlength=len(words)) / len(out),
    }


TRIALS["contrastive.spans"] = Trial(
    spans_cases,
    run_spans,
    replay=True,
    subject="spans and mirror",
    atol=0.08,
    hints=(
        (
            "Count the words of each row, draw a length for each, then a place where a run of "
            "that length can begin. Three numbers a row, no loop."
        ),
        (
            "Number the words of a row 0, 1, 2, ... with `cumsum` over the places that are "
            "allowed. A run hides the words from start to start + length - 1. Of n words it can "
            "begin in n - length + 1 places."
        ),
        (
            "length = span_lengths(B, ...) but at most count - 1; start = floor(rand(B) * (count "
            "- length + 1)); hidden = content & (rank >= start) & (rank < start + length); "
            "masked_fill. For `single_mask`, `_close_gaps(masked, gone, pad_id)` takes out all of "
            "the run but its first token."
        ),
    ),
)


_WRONG_START = "torch.rand(len(content), generator=generator, device=device, dtype=torch.float64)"
MISTAKES["contrastive.spans"] = [
    mistake(
        "content = ~special_mask.bool().cpu()",
        "content = special_mask.bool().cpu()",
        "`special_mask` is inverted: only [CLS], [SEP] and padding are masked.",
    ),
    mistake(
        "content = ~special_mask.bool().cpu()",
        "content = torch.ones_like(special_mask).bool().cpu()",
        "`special_mask` is not used: [CLS], [SEP] and padding are masked like words.",
    ),
    mistake(
        ".minimum((count - 1).clamp_min(0))",
        ".minimum(count)",
        "A span may cover the whole sentence. At least one word should stay.",
    ),
    mistake(
        "room = (count - length + 1)",
        "room = (count - length)",
        "A span never starts at the last possible position (off by one).",
    ),
    mistake(
        _WRONG_START,
        "torch.rand(1, generator=generator, dtype=torch.float64)",
        "One start is drawn for the whole batch. Each sentence needs its own.",
    ),
    mistake(
        "(rank < (start + length)[:, None])",
        "(rank <= (start + length)[:, None])",
        "Each span is one token too long (off by one).",
    ),
    mistake(
        "masked = input_ids.masked_fill(",
        "masked = input_ids.masked_fill_(",
        "`input_ids` is changed in place. Return a new tensor.",
    ),
    mistake(
        "if not single_mask:",
        "if True:",
        "`single_mask` is not used: every token of the span becomes a [MASK].",
    ),
]

VARIANTS["contrastive.spans"] = [
    """
def span_mask(
    input_ids,
    special_mask,
    mask_id,
    p=0.3,
    cap=5,
    generator=None,
    renormalize=False,
    single_mask=False,
    pad_id=0,
):
    out = input_ids.clone()
    if cap == 0:
        return out
    starts = torch.rand(len(out), generator=generator).tolist()
    lengths = span_lengths(len(out), p, cap, renormalize, generator).tolist()
    for row, special, u, length in zip(out, special_mask.tolist(), starts, lengths):
        places = [t for t, s in enumerate(special) if not s]
        if len(places) < 2:
            continue
        length = min(length, len(places) - 1)
        start = int(u * (len(places) - length + 1))
        run = places[start : start + length]
        row[run] = mask_id
        if single_mask:
            ids = [token for t, token in enumerate(row.tolist()) if t not in run[1:]]
            row[:] = torch.tensor(ids + [pad_id] * (len(row) - len(ids)))
    return out
""",
    """
def span_mask(
    input_ids,
    special_mask,
    mask_id,
    p=0.3,
    cap=5,
    generator=None,
    renormalize=False,
    single_mask=False,
    pad_id=0,
):
    if cap == 0:
        return input_ids + 0
    words = (special_mask == 0).long()
    n = words.sum(dim=1)
    length = torch.minimum(
        span_lengths(len(n), p, cap, renormalize, generator), torch.clamp(n - 1, min=0)
    )
    scores = torch.rand(len(n), words.shape[1] + 1, generator=generator)
    possible = torch.arange(words.shape[1] + 1) <= (n - length)[:, None]
    begin = torch.where(possible, scores, torch.tensor(-1.0)).argmax(dim=1)
    order = torch.cumsum(words, dim=1)
    hidden = (words == 1) & (order > begin[:, None]) & (order <= (begin + length)[:, None])
    out = torch.where(hidden, torch.tensor(mask_id), input_ids)
    if single_mask:
        rest = hidden & (order != begin[:, None] + 1)
        out = torch.stack(
            [
                torch.cat([row[~r], row.new_full((int(r.sum()),), pad_id)])
                for row, r in zip(out, rest)
            ]
        )
    return out
""",
]
