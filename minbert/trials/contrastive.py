"""How the two losses of chapter 25 that look at pairs and at batches are checked, and which mistakes people make."""


import torch
import torch.nn.functional as F

from minbert.course.trials import Case, Trial, autocast, fixed, mistake, with_gradients


# A contrastive loss is one number. How can one number show which of twenty mistakes was made? It cannot. Seven batches can, with their gradients.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- contrastive.margin
#
# Random vectors are nearly perpendicular, so nothing would ever come inside a margin of .5. The pairs here are drawn from close to opposite, some
# labelled same, some different. One batch has same pairs only, one has different pairs only, so a label read the wrong way round cannot hide behind
# the other. Margins of 0.5, 1 and 2 tell a margin that is used from one that is written into the code, and tell a margin of the distance from a
# margin of the cosine. The vectors are of all lengths, and one is zero.

def _pairs(generator, rows, width=5):
    """Pairs from alike to opposite, of all lengths."""
    u, noise = fixed(generator, 2, rows, width)
    pull = torch.linspace(3, -1.5, rows, dtype=torch.float64)[:, None]
    size = 1 + 4 * torch.rand(2, rows, 1, generator=generator, dtype=torch.float64)
    return {"u": u * size[0], "v": (pull * u + noise) * size[1]}


def crowd(views):
    """The same directions, each in a narrow cone: their cosines differ by a thousandth, which bfloat16 takes for 1."""
    return {name: 20 + F.normalize(x, dim=-1) for name, x in views.items()}


def margin_cases(generator):
    pairs, labels = _pairs(generator, 8), torch.tensor([1, 0, 0, 0, 1, 1, 0, 0])
    few = _pairs(generator, 3, 2)
    zero = {name: x.clone() for name, x in _pairs(generator, 4).items()}
    zero["u"][1], zero["v"][2] = 0, 0
    alike = torch.eye(2, dtype=torch.float64)
    return [Case("same and different pairs, margin 0.5", {**pairs, "labels": labels}),
            Case("margin 1", {**pairs, "labels": labels.double(), "margin": 1.0}),
            Case("margin 2, labels are truth values", {**pairs, "labels": labels.bool(), "margin": 2.0}),
            Case("labels are unsigned bytes", {**pairs, "labels": labels.to(torch.uint8), "margin": 1.0}),
            Case("same pairs only", {**few, "labels": torch.ones(3)}),
            Case("different pairs only", {**few, "labels": torch.zeros(3), "margin": 1.5}),
            Case("one pair", {**{name: x[:1] for name, x in pairs.items()}, "labels": torch.tensor([0]), "margin": 2.0}),
            Case("single precision", {**{name: x.float() for name, x in pairs.items()}, "labels": labels, "margin": 1.0}),
            Case("a crowd of different pairs, half precision", {**{name: x.bfloat16() for name, x in crowd(pairs).items()}, "labels": 0 * labels, "margin": 1.0}),
            Case("two vectors are zero", {**zero, "labels": torch.tensor([1, 1, 0, 0]), "margin": 1.2}),
            Case("equal vectors, whose cosine is exactly 1", {**{name: torch.cat([alike, x]) for name, x in few.items()}, "labels": torch.tensor([1, 0, 1, 0, 0])})]


def run_margin(loss, inputs):
    return with_gradients(loss, inputs, *(("u", "v") if inputs["u"].dtype != torch.bfloat16 else ()))


TRIALS["contrastive.margin"] = Trial(margin_cases, run_margin, subject="margin", hints=(
    "Two costs for each pair: one if it means the same, one if it does not. The label, 0 or 1, chooses.",
    "d = 1 - safe_cosine(u, v) is a distance: 0 for alike, 2 for opposite. A different pair pays only while d is below the margin: clamp before you square.",
    "y * d² + (1 - y) * (margin - d, but not below 0)², then the mean over the batch, then half of it."))


_WRONG_COST = "cost = y * distance.square() + (1 - y) * (margin - distance).clamp_min(0).square()"
_WRONG_DISTANCE = "distance = 1 - safe_cosine(u, v)"
MISTAKES["contrastive.margin"] = [
    mistake("y * distance.square() + (1 - y) * (margin", "(1 - y) * distance.square() + y * (margin",
            "The labels are read the wrong way round: pairs that mean the same are pushed apart."),
    mistake(_WRONG_DISTANCE, "distance = safe_cosine(u, v)", "The cosine is used as the distance, so alike counts as far."),
    mistake("(margin - distance).clamp_min(0).square()", "(margin - distance).square()",
            "Different pairs beyond the margin pay too (nothing is cut off at 0 before squaring), so they are pulled back to it."),
    mistake("(margin - distance).clamp_min(0).square()", "(margin - distance).clamp_min(0)",
            "The cost of different pairs is not squared."),
    mistake("y * distance.square()", "y * distance", "The cost of same pairs is the distance, not its square."),
    mistake(_WRONG_COST, "cost = y * distance + (1 - y) * (margin - distance).clamp_min(0)", "Neither cost is squared."),
    mistake("cost.mean() / 2", "cost.sum() / 2", "The costs are added up over the batch, not averaged: a larger batch takes larger steps."),
    mistake("cost.mean() / 2", "cost.mean()", "The factor ½ is missing."),
    mistake("(margin - distance).clamp_min(0)", "(safe_cosine(u, v) - margin).clamp_min(0)",
            "The margin is laid on the cosine, not on the distance: pairs are left alone below a cosine of m instead of 1 - m."),
    mistake("y * distance.square()", "y * (distance - margin).clamp_min(0).square()",
            "Same pairs are left alone within a margin; they should pay for any distance."),
    mistake("(margin - distance).clamp_min(0).square()", "(margin - distance.square()).clamp_min(0)",
            "The margin minus the squared distance is charged, not the square of what is missing to the margin."),
    mistake("(margin - distance).clamp_min(0).square()", "(distance - margin).clamp_min(0).square()",
            "Different pairs pay beyond the margin instead of inside it, so they are pulled together."),
    mistake(_WRONG_DISTANCE, "distance = 1 - F.cosine_similarity(u.to(torch.promote_types(u.dtype, torch.float32)), v.to(torch.promote_types(v.dtype, torch.float32)), dim=-1)",
            "A vector of zeros is divided by 1e-8 or the like: its gradient has length 10⁸, and one step with it ruins the model. It should get none."),
    mistake("safe_cosine(u, v)", "safe_cosine(u, v).to(u.dtype)", "The loss is computed in half precision when the vectors come so; it should be widened to single."),
    mistake(_WRONG_DISTANCE, "distance = 1 - F.cosine_similarity(u, v, dim=-1)",
            "Half precision is not widened, and a vector of zeros is divided by 1e-8, so that its gradient has length 10⁸."),
    mistake("(margin - distance).clamp_min(0)", "(margin - distance.detach()).clamp_min(0)", "The distance is detached in the second cost, so different pairs are never pushed apart."),
    mistake(_WRONG_DISTANCE, "distance = (u - v).norm(dim=-1)",
            "The distance is the Euclidean one between the vectors as they are, so their lengths count."),
    mistake(_WRONG_DISTANCE, "distance = (unit(u) - unit(v)).norm(dim=-1)",
            "The distance is the Euclidean one between unit vectors, the square root of 2 (1 - cos)."),
    mistake(_WRONG_DISTANCE, "distance = 1 - (u * v).sum(-1)", "The vectors are not scaled to length 1 before the dot product."),
    mistake("(margin - distance)", "(0.5 - distance)", "The margin is written into the code as 0.5 instead of taken from the argument."),
    mistake("cost.mean() / 2", "(y * cost).sum() / y.sum().clamp_min(1) / 2 + ((1 - y) * cost).sum() / (1 - y).sum().clamp_min(1) / 2",
            "Same and different pairs are averaged separately, so the mean does not run over the batch."),
    mistake(_WRONG_COST, "cost = y * distance.square() + (margin - distance).clamp_min(0).square()",
            "The second cost is charged to every pair, not only to different ones."),
    mistake("y * distance.square() + (1 - y)", "distance.square() + (1 - y)",
            "The first cost is charged to every pair, not only to same ones."),
    mistake(_WRONG_COST, _WRONG_COST.replace("y * distance.square()", "y * distance.square() / 2"), "cost.mean() / 2", "cost.mean()",
            "The factor ½ stands before the first cost only."),
    mistake(_WRONG_DISTANCE, "distance = 1 - (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1))",
            "A zero vector is divided by its length: the loss becomes NaN."),
    mistake(_WRONG_DISTANCE, "distance = (1 - safe_cosine(u, v)) / 2", "The distance is halved, so it ends at 1 where 2 was meant."),
    mistake(_WRONG_DISTANCE, "distance = (2 - 2 * safe_cosine(u, v)).abs().sqrt().square() / 2",
            "The distance goes through a root, whose slope at 0 is infinite: equal vectors get NaN for a gradient."),
    mistake(_WRONG_DISTANCE, "distance = 1 - safe_cosine(u, v).abs()", "The sign of the cosine is lost: opposite counts as alike."),
    mistake(_WRONG_DISTANCE, "distance = 1 + safe_cosine(u, v)", "The cosine is added to 1, so alike counts as far. A distance is small for what is alike."),
]

VARIANTS["contrastive.margin"] = [
    '''
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
''',
    '''
def contrastive_loss(u, v, labels, margin=0.5):
    d = 1 - safe_cosine(u.float() if u.dtype.itemsize < 4 else u, v.float() if v.dtype.itemsize < 4 else v)
    return 0.5 * torch.where(labels.bool(), d.pow(2), F.relu(margin - d).pow(2)).mean()
''',
    '''
def contrastive_loss(u, v, labels, margin=0.5):
    d = 1 - torch.einsum("bd,bd->b", unit(u), unit(v))
    same = labels == 1
    missing = torch.max(margin - d, torch.zeros_like(d))
    return (d[same].square().sum() + missing[~same].square().sum()) / len(d) / 2
''',
]


# ---- contrastive.infonce
#
# Partners are alike but not too much, so that every softmax is undecided and each wrong answer counts. The number of rows, the width and the number
# of groups all differ. Hard negatives come with and without groups, because a group excuses partners and not hard negatives. The vectors have all
# lengths. At a temperature of .001 a logit can be 1000, and an exponential taken by itself overflows; in two more cases the partners are the farthest
# of all, and the share of the right answer rounds to 0 although its logarithm is a plain number.

def _views(generator, rows, width, noise=0.8):
    """Two views and a contradiction of each sentence, of all lengths."""
    a, more, other = fixed(generator, 3, rows, width)
    size = 1 + 3 * torch.rand(3, rows, 1, generator=generator, dtype=torch.float64)
    return {"a": a * size[0], "b": (a + noise * more) * size[1], "hard": (0.7 * a + other) * size[2]}


def strangers(generator):
    """Three anchors whose partners are farther than others: one opposite, one in a row without anything near."""
    turn = torch.linalg.qr(fixed(generator, 3, 3))[0]
    a, b = torch.tensor([[[1, 0, 0], [0, -1, 0], [0, 0.2, 1]], [[-1, 0.1, 0], [1, 0.2, 0], [0, 0.3, -1]]], dtype=torch.float64) + 0.01 * fixed(generator, 2, 3, 3)
    size = 1 + 3 * torch.rand(2, 3, 1, generator=generator, dtype=torch.float64)
    return {"a": a @ turn * size[0], "b": b @ turn * size[1]}


def infonce_cases(generator):
    views = _views(generator, 6, 4)
    plain = {name: views[name] for name in "ab"}
    groups = torch.tensor([3, 1, 3, 0, 1, 3])
    near, far = _views(generator, 5, 3, 0.1), {**strangers(generator), "temperature": 0.001}
    return [Case("six sentences", {**plain, "temperature": 0.5}),
            Case("the temperature that nobody gave", plain),
            Case("hard negatives", {**views, "temperature": 0.4}),
            Case("groups", {**plain, "temperature": 0.3, "groups": groups}),
            Case("groups and hard negatives", {**views, "temperature": 0.7, "groups": groups}),
            Case("all of one group", {**views, "temperature": 0.5, "groups": torch.zeros(6, dtype=torch.long)}),
            Case("one sentence with a hard negative", {**{name: x[:1] for name, x in views.items()}, "temperature": 0.5}),
            Case("single precision", {**{name: x.float() for name, x in views.items()}, "temperature": 0.5}),
            Case("a crowd, half precision, temperature 0.01", {**{name: x.bfloat16() for name, x in crowd(near).items()}, "temperature": 0.01}),
            autocast(Case("a crowd, hard negatives, temperature 0.001", {**crowd(near), "temperature": 0.001}), *near),
            Case("all of one group, no hard negatives", {**plain, "temperature": 0.5, "groups": torch.ones(6, dtype=torch.long)}),
            Case("temperature 0.001", {**near, "temperature": 0.001}),
            Case("partners far apart, temperature 0.001", far),
            Case("partners far apart, groups, temperature 0.0015", {**far, "temperature": 0.0015, "groups": torch.tensor([0, 0, 1])})]


def run_infonce(loss, inputs):
    values = inputs["a"].dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")   # a gradient would be rounded on its way back
    names = () if values else ("a", "b", "hard")
    return with_gradients(loss, inputs, *(name for name in names if name in inputs))


TRIALS["contrastive.infonce"] = Trial(infonce_cases, run_infonce, subject="infonce", hints=(
    "It is a classification: row i chooses among columns, and the right one is column i. What are the logits?",
    "Cosines over temperature, (B, B). Other rows of the same group get a logit of -inf. Hard negatives are B more columns.",
    "logits = cat([masked cosines(a, b), cosines(a, hard)], dim=1) / temperature, then F.cross_entropy with the labels 0, 1, ..., B - 1."))


_WRONG_END = "return F.cross_entropy(logits, torch.arange(len(a), device=a.device))"
_WRONG_LABELS = "torch.arange(len(a), device=a.device)"
_WRONG_CAT = "logits = torch.cat([logits, _cosines(a, hard) / temperature], dim=1)"
_WRONG_LOGITS = "logits = (_cosines(a, b) / temperature).masked_fill(_twins(a, groups), -torch.inf)"
MISTAKES["contrastive.infonce"] = [
    mistake("(_cosines(a, b) / temperature)", "(_cosines(a, b) * temperature)", "_cosines(a, hard) / temperature", "_cosines(a, hard) * temperature",
            "The cosines are multiplied by the temperature instead of divided: the softmax gets even, not sharp."),
    mistake("(_cosines(a, b) / temperature)", "_cosines(a, b)", "_cosines(a, hard) / temperature", "_cosines(a, hard)", "The temperature is not used."),
    mistake("(_cosines(a, b) / temperature)", "(_cosines(a, b) / 0.05)", "_cosines(a, hard) / temperature", "_cosines(a, hard) / 0.05",
            "The temperature is written into the code instead of taken from the argument."),
    mistake("(_cosines(a, b) / temperature)", "(a @ b.T / temperature)", "_cosines(a, hard)", "(a @ hard.T)",
            "Dot products stand where cosines were meant: long vectors shout."),
    mistake("_cosines(a, hard) / temperature", "_cosines(a, hard)", "The temperature divides the partners but not the hard negatives."),
    mistake(_WRONG_CAT, "logits = torch.cat([logits, _cosines(a, hard).diagonal()[:, None] / temperature], dim=1)",
            "Each anchor sees its own hard negative only; all of them are for everybody."),
    mistake("_cosines(a, hard)", "_cosines(b, hard)", "The hard negatives are compared with the partners, not with the anchors."),
    mistake("_cosines(a, hard)", "_cosines(hard, a)", "The hard negatives stand in the rows and the anchors in the columns: (B, B) with the axes exchanged."),
    mistake("if hard is not None:", "if False:", "The hard negatives are not used."),
    mistake(_WRONG_CAT, "logits = torch.cat([_cosines(a, hard) / temperature, logits], dim=1)",
            "The hard negatives stand before the partners, so the labels point at them: contradictions count as right answers."),
    mistake(_WRONG_CAT, "logits = torch.cat([logits, (_cosines(a, hard) / temperature).masked_fill(_twins(a, groups), -torch.inf)], dim=1)",
            "Hard negatives of the same group are left out too; they always count."),
    mistake(".masked_fill(_twins(a, groups), -torch.inf)", "", "The groups are not used: a sentence that stands in the batch twice is punished for finding its double."),
    mistake("_twins(a, groups), -torch.inf", "(groups[:, None] == groups) if groups is not None else _twins(a, groups), -torch.inf",
            "The mask of a group covers the diagonal too, so the right answer itself is left out and the loss becomes infinite or NaN."),
    mistake("_twins(a, groups), -torch.inf", "_twins(a, groups), 0.0",
            "Left-out logits are set to 0, which is e⁰ = 1 in the sum and not nothing."),
    mistake("_twins(a, groups), -torch.inf", "_twins(a, groups).triu(), -torch.inf", "A double is left out in one direction only: of two equal rows just the first is excused."),
    mistake("_twins(a, groups), -torch.inf", "~_twins(a, groups) & ~torch.eye(len(a), dtype=torch.bool) & (groups is not None), -torch.inf",
            "The mask of the groups is the wrong way round: only rows of the same group count as wrong answers."),
    mistake(_WRONG_END, "return F.cross_entropy(logits, torch.arange(len(a), device=a.device), reduction='sum')",
            "The loss is added up over the batch instead of averaged."),
    mistake("_cosines(a, b) / temperature", "_cosines(b, a) / temperature", "The softmax runs over the wrong axis: each row of b chooses among the rows of a."),
    mistake(_WRONG_END, "both = F.cross_entropy(logits, torch.arange(len(a))) + F.cross_entropy(logits[:, :len(a)].T, torch.arange(len(a)))\n    return both / 2",
            "The loss is asked from both sides and averaged; only the rows of a ask here."),
    mistake(_WRONG_END, "right = logits.diagonal()\n    others = logits.masked_fill(F.pad(torch.eye(len(a)), (0, logits.shape[1] - len(a))).bool(), -torch.inf)\n"
                        "    return (others.logsumexp(1) - right).mean()",
            "The right answer is missing from the sum below the fraction."),
    mistake(_WRONG_END, "powers = logits.exp()\n    return -(powers.diagonal() / powers.sum(1)).log().mean()",
            "Exponentials are taken of the logits as they are; at a small temperature they overflow to infinity and the loss becomes NaN."),
    mistake(_WRONG_END, "return -logits.softmax(1).diagonal().log().mean()",
            "The logarithm is taken of the finished softmax. Where the partner is far, its share is rounded to 0 and the loss becomes infinite."),
    mistake(_WRONG_END, "return -logits.softmax(1).diagonal().clamp_min(1e-30).log().mean()",
            "Small shares are lifted before the logarithm: where the partner is far, the loss is too small and nothing pulls."),
    mistake(_WRONG_END, "return -(logits.softmax(1).diagonal() + 1e-12).log().mean()",
            "A small number is added to the shares before the logarithm: where the partner is far, the loss is too small and hardly anything pulls."),
    mistake(_WRONG_END, "return ((logits - logits.max()).exp().sum(1).log() + logits.max() - logits.diagonal()).mean()",
            "The largest logit of the whole table is taken off. Each row needs its own: one that lies far below rounds to 0 as a whole."),
    mistake(_WRONG_END, "powers = (logits - logits.max()).exp()\n    return -(powers.diagonal() / powers.sum(1)).log().mean()",
            "The largest logit of the whole table is taken off, and the share of the right answer may still round to 0. Its logarithm is a difference of logits."),
    mistake("_twins(a, groups), -torch.inf", "_twins(a, groups), -100.0", "Left-out logits are set to -100. At a small temperature others are far below that; -inf is below all."),
    mistake(_WRONG_END, "return -logits.softmax(1).diagonal().mean()", "The logarithm is missing: the mean probability is returned, not its surprise."),
    mistake(_WRONG_END, "return -F.cross_entropy(logits, torch.arange(len(a), device=a.device))", "The sign is wrong: partners are pushed apart."),
    mistake(_WRONG_END, "return F.cross_entropy(logits.softmax(1), torch.arange(len(a), device=a.device))",
            "A softmax is taken before the cross-entropy, which takes one itself."),
    mistake("(_cosines(a, b) / temperature)", "(_cosines(a, b.detach()) / temperature)",
            "The second view is detached, so only the first one learns."),
    mistake("_cosines(a, b)", "(unit(a) @ unit(b).T)", "_cosines(a, hard)", "(unit(a) @ unit(hard).T)", "Under autocast the cosines are rounded to bfloat16, and then divided by a small temperature."),
    mistake("_cosines(a, b)", "_cosines(a, b).to(a.dtype)", "_cosines(a, hard)", "_cosines(a, hard).to(a.dtype)",
            "The loss is computed in half precision when the vectors come so; it should be widened to single."),
    mistake("_cosines(a, hard)", "_cosines(a, hard.detach())", "The hard negatives are detached, so nothing pushes them away."),
    mistake("(_cosines(a, b) / temperature)", "(-torch.cdist(unit(a), unit(b)) / temperature)", "_cosines(a, hard) / temperature", "-torch.cdist(unit(a), unit(hard)) / temperature",
            "Distances between unit vectors stand where cosines were meant."),
    mistake("_cosines(a, b) / temperature).masked", "_cosines(a, a) / temperature).masked", "The anchors are compared with themselves. `b` holds the partners."),
    mistake(_WRONG_LABELS, "torch.zeros(len(a), dtype=torch.int64)", "Every row has column 0 as its right answer. Row i belongs to column i."),
]

VARIANTS["contrastive.infonce"] = [
    '''
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
''',
    '''
def simcse_loss(a, b, temperature=0.05, hard=None, groups=None):
    wide = torch.promote_types(a.dtype, torch.float32)
    others = (b if hard is None else torch.cat([b, hard])).to(wide)
    a = a.to(wide)
    with torch.autocast("cpu", enabled=False):
        scores = torch.einsum("id,jd->ij", F.normalize(a, dim=-1), F.normalize(others, dim=-1)) / temperature
    if groups is not None:
        same = groups.unsqueeze(1).eq(groups.unsqueeze(0)).fill_diagonal_(False)
        scores[:, :len(b)] = scores[:, :len(b)].masked_fill(same, -1e9)
    return -scores.log_softmax(dim=1).diagonal().mean()
''',
    '''
def simcse_loss(a, b, temperature=0.05, hard=None, groups=None):
    B = len(a)
    a, b = (x.float() if x.dtype == torch.bfloat16 else x for x in (a, b))
    hard = hard.float() if hard is not None and hard.dtype == torch.bfloat16 else hard
    cos = F.cosine_similarity(a[:, None], b[None], dim=-1) / temperature
    keep = torch.ones(B, B, dtype=torch.bool) if groups is None else (groups[:, None] != groups[None]) | torch.eye(B, dtype=torch.bool)
    if hard is not None:
        cos = torch.hstack([cos, F.cosine_similarity(a[:, None], hard[None], dim=-1) / temperature])
        keep = torch.hstack([keep, torch.ones(B, B, dtype=torch.bool)])
    top = cos.detach().amax(1, keepdim=True)
    weights = (cos - top).exp() * keep
    return (weights.sum(1).log() + top[:, 0] - cos.diagonal()).mean()
''',
]
