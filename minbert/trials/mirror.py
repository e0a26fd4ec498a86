"""How the loss of chapter 25 in which both views answer is checked, and which mistakes people make."""


import torch

from minbert.course.trials import Case, Trial, autocast, fixed, mistake, with_gradients
from minbert.trials.contrastive import crowd, strangers


# InfoNCE with twice as many wrong answers: what can go wrong twice?

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- contrastive.mirror
#
# As for InfoNCE: undecided softmaxes, lengths of all kinds, groups, a small temperature, partners that are far apart. Sides are asked alone and
# together. Two rows are the fewest with a wrong answer.

def mirror_cases(generator):
    a, more = fixed(generator, 2, 6, 4)
    size = 1 + 3 * torch.rand(2, 6, 1, generator=generator, dtype=torch.float64)
    views = {"a": a * size[0], "b": (a + 0.8 * more) * size[1]}
    near = {"a": a * size[0], "b": a + 0.05 * more}
    groups = torch.tensor([3, 1, 3, 0, 1, 3])
    far = {**strangers(generator), "temperature": 0.001}
    return [Case("six sentences", {**views, "temperature": 0.5}),
            Case("both sides ask", {**views, "temperature": 0.3, "symmetric": True}),
            Case("the temperature that nobody gave", views),
            Case("groups", {**views, "temperature": 0.4, "groups": groups}),
            Case("groups, both sides ask", {**views, "temperature": 0.6, "symmetric": True, "groups": groups}),
            Case("two sentences", {**{name: x[:2] for name, x in views.items()}, "temperature": 0.5}),
            Case("single precision", {**{name: x.float() for name, x in views.items()}, "temperature": 0.5}),
            Case("a crowd, half precision, temperature 0.01", {**{name: x.bfloat16() for name, x in crowd(near).items()}, "temperature": 0.01, "symmetric": True}),
            autocast(Case("a crowd, temperature 0.001", {**crowd(near), "temperature": 0.001}), *near),
            Case("temperature 0.001", {**near, "temperature": 0.001, "symmetric": True}),
            Case("partners far apart, temperature 0.001", far),
            Case("partners far apart, groups, both sides ask", {**far, "temperature": 0.0015, "symmetric": True, "groups": torch.tensor([0, 0, 1])})]


def run_mirror(loss, inputs):
    values = inputs["a"].dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")   # a gradient would be rounded on its way back
    return with_gradients(loss, inputs, *(() if values else ("a", "b")))


TRIALS["contrastive.mirror"] = Trial(mirror_cases, run_mirror, subject="spans and mirror", hints=(
    "The same classification as in InfoNCE with B more columns. Which of them is no wrong answer?",
    "Cosines of a with b and of a with a, side by side, (B, 2B). In the second half the diagonal gets -inf: nobody competes with oneself.",
    "cat([cosines(a, b), cosines(a, a) without diagonal], dim=1) / temperature, F.cross_entropy with 0 ... B - 1; then the same with a and b exchanged, and the mean."))


_WRONG_WITHIN = "within = _cosines(x, x).masked_fill(twins | oneself, -torch.inf)"
_WRONG_PAIR = "logits = torch.cat([across, within], dim=1) / temperature"
_WRONG_ENTROPY = "F.cross_entropy(logits, torch.arange(len(a), device=a.device))"
_WRONG_COSINES = ("_cosines(x, y).masked", "_cosines(x, x).masked")
MISTAKES["contrastive.mirror"] = [
    mistake(_WRONG_PAIR, "logits = across / temperature", "The sentences' own vectors are missing from the wrong answers: this is SimCSE's loss."),
    mistake("twins | oneself, -torch.inf", "twins, -torch.inf",
            "Each sentence competes with itself: the diagonal of the cosines of a with a, 1 everywhere, is still in the sum."),
    mistake("twins | oneself, -torch.inf", "twins | oneself, 0.0", "The diagonal and the doubles get a logit of 0, which is e⁰ = 1 in the sum and not nothing."),
    mistake("_cosines(x, x).masked_fill(twins | oneself, -torch.inf)", "_cosines(y, y).masked_fill(twins | oneself, -torch.inf)",
            "The wrong answers within a view come from the view of the partners, not from that of the sentence that asks."),
    mistake("torch.cat([across, within], dim=1)", "torch.cat([within, across], dim=1)",
            "The halves are exchanged, so the labels point at the excluded diagonal and the loss becomes infinite or NaN."),
    mistake("_cosines(x, y).masked_fill(twins, -torch.inf)", "_cosines(x, y).masked_fill(twins | oneself, -torch.inf)",
            "The diagonal is left out between the views as well, and with it the right answer."),
    mistake("_cosines(x, y).masked_fill(twins, -torch.inf)", "_cosines(x, y)",
            "Doubles are excused within a view but not between the two views."),
    mistake("twins | oneself, -torch.inf", "oneself, -torch.inf", "Doubles are excused between the views but not within one."),
    mistake("_twins(a, groups)", "_twins(a, None)", "The groups are not used: doubles are punished for being alike."),
    mistake("if symmetric else [(a, b)]", "if True else [(a, b)]", "Both sides ask, whether `symmetric` says so or not."),
    mistake("if symmetric else [(a, b)]", "if False else [(a, b)]", "`symmetric` is not used: only one side asks."),
    mistake("torch.stack(sides).mean()", "torch.stack(sides).sum()", "The two sides are added up, not averaged: the loss is twice as large when both ask."),
    mistake(_WRONG_ENTROPY, "F.cross_entropy(logits, torch.arange(len(a), device=a.device), reduction='sum')",
            "The loss is added up over the batch instead of averaged."),
    mistake(_WRONG_PAIR, "logits = torch.cat([across / temperature, within], dim=1)", "The temperature divides the cosines between the views but not those within one."),
    mistake(_WRONG_PAIR, "logits = torch.cat([across, within], dim=1) * temperature", "The cosines are multiplied by the temperature instead of divided."),
    mistake(_WRONG_PAIR, "logits = torch.cat([across, within], dim=1)", "The temperature is not used."),
    mistake("_cosines(x, y)", "(x @ y.T)", "_cosines(x, x)", "(x @ x.T)", "Dot products stand where cosines were meant: long vectors shout."),
    mistake(_WRONG_PAIR, "own = _cosines(y, y).masked_fill(twins | oneself, -torch.inf)\n        logits = torch.cat([across, within, own], dim=1) / temperature",
            "The cosines within the partners' view are added to the sum as well; row i of a is in none of them."),
    mistake("_cosines(x, y)", "(unit(x) @ unit(y).T)", "_cosines(x, x)", "(unit(x) @ unit(x).T)", "Under autocast the cosines are rounded to bfloat16, and then divided by a small temperature."),
    mistake("_cosines(x, y)", "_cosines(x, y).to(x.dtype)", "_cosines(x, x)", "_cosines(x, x).to(x.dtype)",
            "The loss is computed in half precision when the vectors come so; it should be widened to single."),
    mistake("_cosines(x, x)", "_cosines(a, a)", "When `b` asks, the wrong answers within a view are still those of `a`."),
    mistake("_cosines(x, y)", "_cosines(x, y.detach())", "The view of the partners is detached, so only the one that asks learns."),
    mistake("_cosines(x, x)", "_cosines(x.detach(), x)", "One copy of the sentences' own vectors is detached, so half of the push within a view is lost."),
    mistake(_WRONG_ENTROPY, "(logits.masked_fill(F.pad(oneself, (0, len(a))), -torch.inf).logsumexp(1) - logits.diagonal()).mean()",
            "The right answer is missing from the sum below the fraction."),
    mistake(_WRONG_ENTROPY, "-(logits.exp().diagonal() / logits.exp().sum(1)).log().mean()",
            "Exponentials are taken of the logits as they are; at a small temperature they overflow and the loss becomes NaN."),
    mistake(_WRONG_ENTROPY, "-logits.softmax(1).diagonal().log().mean()",
            "The logarithm is taken of the finished softmax. Where the partner is far, its share is rounded to 0 and the loss becomes infinite."),
    mistake(_WRONG_ENTROPY, "-logits.softmax(1).diagonal().clamp_min(1e-30).log().mean()",
            "Small shares are lifted before the logarithm: where the partner is far, the loss is too small and nothing pulls."),
    mistake(_WRONG_ENTROPY, "((logits - logits.max()).exp().sum(1).log() + logits.max() - logits.diagonal()).mean()",
            "The largest logit of the whole table is taken off. Each row needs its own: one that lies far below rounds to 0 as a whole."),
]

VARIANTS["contrastive.mirror"] = [
    '''
def mirror_loss(a, b, temperature=0.04, symmetric=False, groups=None):
    B = len(a)
    everything = F.normalize(torch.cat([a, b]).to(torch.promote_types(a.dtype, torch.float32)), dim=1)
    with torch.autocast("cpu", enabled=False):
        scores = everything @ everything.T / temperature
    who = torch.arange(B) if groups is None else groups
    same = torch.cat([who, who])[:, None] == torch.cat([who, who])[None]
    partner = torch.arange(2 * B).roll(B)
    keep = ~same
    keep[torch.arange(2 * B), partner] = True
    losses = scores.masked_fill(~keep, float("-inf")).logsumexp(1) - scores[torch.arange(2 * B), partner]
    return losses.mean() if symmetric else losses[:B].mean()
''',
    '''
def mirror_loss(a, b, temperature=0.04, symmetric=False, groups=None):
    if symmetric:
        return 0.5 * mirror_loss(a, b, temperature, groups=groups) + 0.5 * mirror_loss(b, a, temperature, groups=groups)
    losses = []
    a, b = a.double(), b.double()
    for i in range(len(a)):
        others = [j for j in range(len(a)) if j != i and (groups is None or groups[i] != groups[j])]
        vectors = torch.stack([b[i], *[b[j] for j in others], *[a[j] for j in others]])
        losses.append(-(F.cosine_similarity(a[i : i + 1], vectors) / temperature).log_softmax(0)[0])
    return sum(losses) / len(losses)
''',
]


# ---- How strong?
