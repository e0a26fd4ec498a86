"""How the exercises of chapters 31 and 32 are checked: distances with their gradients, points on balls by their averages, and searches where there is only one right answer."""


import math

import torch

from minbert.heads import CosineHead, LinearHead, PairLinear
from minbert.hinge import HingeCosine
from minbert.course.trials import Case, Trial, fill, fixed, mistake, with_gradients


# A search at random finds another worst point every time. How can its answer be compared? In one dimension a ball is two points, +r and -r.
# Sixty-four draws hit both, so everybody who searches rightly finds the same maximum, whatever he draws.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def made_head(kind, seed):
    """Build a head with dropout on, in double precision."""
    make = {"classes": lambda: LinearHead(4, 3), "classes of a line": lambda: LinearHead(1, 3), "pair": lambda: PairLinear(4, "similarity"),
            "pair on a line": lambda: PairLinear(1, "similarity"), "yes on a line": lambda: PairLinear(1), "yes": lambda: PairLinear(4),
            "cosine": lambda: CosineHead("similarity", 1.3, 0.2)}
    head = make[kind]().double().train() if kind == "cosine" else fill(make[kind](), seed).train()
    if kind.endswith("on a line"):
        with torch.no_grad():
            head.linear.weight.copy_(head.linear.weight.abs() * torch.tensor([1.0, -1.0]))   # so that both vectors should move apart
    return head


# ---- smoothness.kl
#
# Both kinds of gradient, on both sides. Logits in the thousands, where a probability is 0 and its logarithm is not; several axes before the classes;
# two classes; equal logits; half precision, where a difference of probabilities loses its digits.

def kl_cases(generator):
    p, q = fixed(generator, 2, 4, 3)
    wide = fixed(generator, 2, 2, 3, 5)
    cases = [Case(f"four rows of three classes, {grad}", {"logits_p": p, "logits_q": q, "grad": grad}) for grad in ("full", "detached")]
    return cases + [Case("more axes", {"logits_p": wide[0], "logits_q": wide[1]}),
                    Case("one row, no batch", {"logits_p": p[0], "logits_q": q[0]}),
                    Case("large logits", {"logits_p": 3000 * p, "logits_q": 3000 * q}),
                    Case("equal", {"logits_p": p, "logits_q": p.clone()}),
                    Case("equal but for a constant", {"logits_p": p, "logits_q": p + 3}),
                    Case("half precision", {"logits_p": p.bfloat16(), "logits_q": q.bfloat16()})]


def run_kl(symmetric_kl, inputs):
    return with_gradients(symmetric_kl, inputs, *(() if inputs["logits_p"].dtype == torch.bfloat16 else ("logits_p", "logits_q")))


TRIALS["smoothness.kl"] = Trial(kl_cases, run_kl, subject="smart", hints=(
    "Two distributions first: how do logits become probabilities, and along which axis?",
    "Take `log_softmax` once for each side; the probabilities are its exponential. Logarithms of probabilities that are 0 would be minus infinity.",
    "((p - q) * (log p - log q)).sum(-1), with `wide` before the softmax; for \"detached\" the first bracket is detached."))


_WRONG_SUM = "return (difference * (log_p - log_q)).sum(-1)"

MISTAKES["smoothness.kl"] = [
    mistake(_WRONG_SUM, "return (log_p.exp() * (log_p - log_q)).sum(-1)", "This is KL in one direction only; the other one is missing."),
    mistake(_WRONG_SUM, "return (log_q.exp() * (log_q - log_p)).sum(-1)", "This is KL in one direction only, and the arguments are swapped."),
    mistake(_WRONG_SUM, _WRONG_SUM + " / 2", "The two directions are averaged. The paper adds them up."),
    mistake(_WRONG_SUM, "return (difference * (log_p - log_q)).mean(-1)", "The classes are averaged; a divergence sums over them."),
    mistake(_WRONG_SUM, "return (difference * (log_p - log_q)).sum(-1).mean()",
        "The rows are averaged here. Each row has its own distance; the caller takes the mean."),
    mistake(_WRONG_SUM, "return (difference.abs() * (log_p - log_q)).sum(-1)", "The difference of the probabilities has lost its sign."),
    mistake(_WRONG_SUM, "return difference.abs().sum(-1)", "The logarithms are missing: this is the difference of the probabilities alone."),
    mistake("log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1).detach()",
        "One side is detached altogether; both have a gradient."),
    mistake(_WRONG_SUM, "return -" + _WRONG_SUM[7:], "The sign is wrong: a distance is never negative."),
    mistake("log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).softmax(-1).log(), wide(logits_q).softmax(-1).log()",
        "The logarithm is taken of a probability that may be 0, so large logits give infinity or NaN."),
    mistake("log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).log_softmax(0), wide(logits_q).log_softmax(0)",
        "The softmax runs over the batch. The classes are the last axis."),
    mistake("log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = logits_p.log_softmax(-1), logits_q.log_softmax(-1)",
        "Half precision is not widened, and a small distance is lost in rounding."),
    mistake("        difference = difference.detach()", "        log_p, log_q = log_p.detach(), log_q.detach()",
        "The wrong bracket is detached: with \"detached\" the logarithms keep their gradient, and the probabilities lose it."),
    mistake("        difference = difference.detach()", "        pass", "`grad` is not used: \"detached\" has the full gradient."),
    mistake("    if grad == \"detached\":\n        difference", "    if True:\n        difference",
        "The difference of the probabilities is detached always; the full gradient has two parts."),
    mistake("        difference = difference.detach()", "        log_q, difference = log_q.detach(), log_p.exp() - log_q.detach().exp()",
        "One side is detached altogether. In \"detached\" both sides have a gradient, through their logarithms."),
    mistake(_WRONG_SUM, "middle = ((log_p.exp() + log_q.exp()) / 2).log()\n    return (log_p.exp() * (log_p - middle) + log_q.exp() * (log_q - "
        "middle)).sum(-1)", "This is the Jensen-Shannon divergence, each against the mean of both."),
]

VARIANTS["smoothness.kl"] = [
    '''
def symmetric_kl(logits_p, logits_q, grad="full"):
    one = lambda a, b: F.kl_div(b.log_softmax(-1), (a.log_softmax(-1).detach() if grad == "detached" else a.log_softmax(-1)), log_target=True, reduction="none")
    import torch.nn.functional as F
    p, q = wide(logits_p), wide(logits_q)
    if grad == "full":
        return (one(p, q) + one(q, p)).sum(-1)
    ps, qs = p.softmax(-1).detach(), q.softmax(-1).detach()
    return torch.einsum("...c,...c->...", ps - qs, p.log_softmax(-1) - q.log_softmax(-1))
''', '''
def symmetric_kl(logits_p, logits_q, grad="full"):
    dtype = torch.promote_types(logits_p.dtype, torch.float32)
    a = logits_p.to(dtype) - logits_p.to(dtype).logsumexp(-1, keepdim=True)
    b = logits_q.to(dtype) - logits_q.to(dtype).logsumexp(-1, keepdim=True)
    weights = torch.exp(a), torch.exp(b)
    if grad == "detached":
        weights = weights[0].detach(), weights[1].detach()
    return (weights[0] * (a - b)).sum(-1) + (weights[1] * (b - a)).sum(-1)
''',
]


# ---- smoothness.distance
#
# Every goal by its name, and heads that carry one; the hinge head says "paraphrase" and still has a cosine for an output. A run calls the distance
# that comes back, first with other outputs.

def distance_cases(generator):
    p, q = fixed(generator, 2, 5, 3)
    z, w = 2 * fixed(generator, 2, 6)
    one = {goal: {"goal": goal, "p": z, "q": w} for goal in ("paraphrase", "paraphrase_mse", "similarity")}
    return [Case("classes", {"goal": "classes", "p": p, "q": q}), Case("classes, detached", {"goal": "classes", "grad": "detached", "p": p, "q": q}),
            *(Case(goal, inputs) for goal, inputs in one.items()), Case("paraphrase, detached", {**one["paraphrase"], "grad": "detached"}),
            Case("a sure yes and a sure no", {"goal": "paraphrase", "p": 100 * z.sign(), "q": -100 * z.sign()}),
            Case("a head for classes", {"head": "classes", "p": p, "q": q}), Case("a head for grades", {"head": "pair", "p": z, "q": w}),
            Case("a head for yes or no", {"head": "yes", "p": z, "q": w}), Case("a hinge head", {"head": "hinge", "p": z.tanh(), "q": w.tanh()}),
            Case("several answers a row", {"goal": "paraphrase", "p": p, "q": q})]


def run_distance(output_distance, inputs):
    kind, pair = inputs.get("head"), {"p": inputs["p"], "q": inputs["q"]}
    goal = inputs.get("goal") or (HingeCosine(4, project=4) if kind == "hinge" else made_head(kind, 0))
    distance = output_distance(goal, **({"grad": inputs["grad"]} if "grad" in inputs else {}))
    distance(0.5 * pair["q"], pair["p"].flip(0))   # what it keeps of these outputs shows in the next ones
    return with_gradients(lambda p, q: distance(p, q), pair, "p", "q")


TRIALS["smoothness.distance"] = Trial(distance_cases, run_distance, hints=(
    "First find the goal, then return a function of two outputs. What has a head that a string has not?",
    "One logit z of a yes is two classes with logits 0 and z. `_yes_or_no` and `_squared_difference` are there.",
    "goal = \"similarity\" for a HingeCosine, else getattr(goal, \"goal\", goal); then `_squared_difference`, or `partial` of `symmetric_kl` or "
    "`_yes_or_no` with grad."))


MISTAKES["smoothness.distance"] = [
    mistake("\"similarity\" if isinstance(goal, HingeCosine) else ", "",
        "A hinge head puts out a cosine. Taken for a logit of a yes, it is measured on the wrong scale."),
    mistake("symmetric_kl if goal == \"classes\" else _yes_or_no", "symmetric_kl",
        "One logit is no distribution: softmax over the batch compares the rows with each other. A yes has two classes, 0 and z."),
    mistake("symmetric_kl if goal == \"classes\" else _yes_or_no",
        "symmetric_kl if goal == \"classes\" else (lambda p, q, grad: (p.sigmoid() - q.sigmoid()).square())",
        "A yes or no is measured by squared probabilities instead of the divergence."),
    mistake("_squared_difference if goal == \"similarity\" else softly",
        "(lambda p, q: (wide(p) - wide(q)).abs()) if goal == \"similarity\" else softly",
        "Grades differ by the square here, not by the size of the difference."),
    mistake("_squared_difference if goal == \"similarity\" else softly",
        "(lambda p, q: (wide(p) - wide(q)).square().mean()) if goal == \"similarity\" else softly",
        "The mean is taken too early: a distance is one number a row."),
    mistake(", grad=grad)", ", grad=\"full\")", "`grad` is not handed on."),
    mistake("_squared_difference if goal == \"similarity\" else softly",
        "_squared_difference if goal in (\"similarity\", \"paraphrase_mse\") else softly",
        "\"paraphrase_mse\" names a loss; its outputs are logits of a yes like those of \"paraphrase\"."),
    mistake("_yes_or_no, grad", "(lambda p, q, grad: symmetric_kl(torch.stack([-p, p], -1), torch.stack([-q, q], -1), grad)), grad",
        "The two classes get -z and z. A logit z belongs to 0 and z: now it counts double."),
    mistake("    return _squared_difference if goal == \"similarity\" else softly", "    inner, kept = _squared_difference if goal == \"similarity\" else softly, {}\n"
        "    return lambda p, q: inner(p, q if q.requires_grad else kept.setdefault(p.shape, q.detach().clone()))",
        "The distance keeps outputs of an earlier call, and measures new ones against them."),
]

VARIANTS["smoothness.distance"] = [
    '''
def output_distance(goal, grad="full"):
    if isinstance(goal, HingeCosine):
        return _squared_difference
    name = goal if isinstance(goal, str) else goal.goal
    if name == "classes":
        return lambda p, q: symmetric_kl(p, q, grad)
    if name == "similarity":
        return lambda p, q: (p - q) ** 2
    zero = lambda z: torch.stack((z * 0, z), dim=-1)
    return lambda p, q: symmetric_kl(zero(p), zero(q), grad=grad)
''', '''
def output_distance(goal, grad="full"):
    name = getattr(goal, "goal", goal)
    def squares(p, q):
        return torch.pow(wide(p) - wide(q), 2)
    def yes(p, q):
        a, b = wide(p).sigmoid(), wide(q).sigmoid()
        first = (a - b).detach() if grad == "detached" else a - b
        return first * (wide(p) - wide(q))              # log-odds
    table = {"classes": partial(symmetric_kl, grad=grad), "similarity": squares, "paraphrase": yes, "paraphrase_mse": yes}
    return squares if type(goal) is HingeCosine else table[name]
''',
]


# ---- smoothness.steepest and smoothness.ball
#
# The direction of a step, and the way back. Gradients of 1e-30, whose squares are 0 in single precision; a gradient of zeros; several axes; points
# inside, outside and far outside. Both norms.

def steepest_cases(generator):
    g = fixed(generator, 3, 5)
    holes = g.clone()
    holes[1], holes[0, 2] = 0, 0
    more = fixed(generator, 2, 3, 4)
    return [Case(f"{label}, p = {p}", {"gradient": x, "p": p}) for p in (2, math.inf)
            for label, x in (("three rows", g), ("rows of very different size", g * torch.tensor([[1.0], [1e-9], [1e-20]], dtype=torch.float64)), ("zeros", holes), ("more axes", more), ("one vector", g[0]),
                             ("gradients of 1e-30", 1e-30 * g.float()), ("one row of 1e-30 beside one of 1", g.float() * torch.tensor([[1.0], [1e-30], [1.0]])), ("large", 1e9 * g))]


def run_steepest(steepest, inputs):
    direction = steepest(**inputs)
    return {"direction": direction, "dtype as it was": direction.dtype == inputs["gradient"].dtype}


TRIALS["smoothness.steepest"] = Trial(steepest_cases, run_steepest, subject="smart", hints=(
    "Among all steps of norm 1, which raises g . d most? Draw a circle, then a square.",
    "For p = 2 the step points along g. For infinity each coordinate goes as far as it may, on its own side. 0 stays 0.",
    "Signs for infinity. For 2: divide by the largest coordinate of each vector first (with a floor of `tiny`), so that the squares do not vanish; "
    "then `unit`."))

MISTAKES["smoothness.steepest"] = [
    mistake("return gradient.sign()", "return gradient / gradient.abs().amax(-1, keepdim=True)",
        "For the largest coordinate all coordinates go to the limit, not only the largest."),
    mistake("return unit(scaled).to(gradient.dtype)", "return gradient.sign() / gradient.shape[-1] ** 0.5",
        "This is a corner of the cube, scaled. In the usual norm the steepest step goes along the gradient."),
    mistake("return unit(scaled).to(gradient.dtype)", "return gradient / torch.linalg.vector_norm(gradient, keepdim=True)",
        "The norm is over the whole batch; every vector has a step of its own."),
    mistake("amax(-1, keepdim=True)", "amax()", "All rows are divided by the largest number of the batch, so the squares of short rows vanish."),
    mistake("return unit(scaled).to(gradient.dtype)", "return unit(gradient).to(gradient.dtype)",
        "A short gradient counts as zero: its squares vanish, though its direction is known."),
    mistake("return unit(scaled).to(gradient.dtype)", "n = gradient.norm(dim=-1, keepdim=True)\n    return torch.where(n > 0, gradient / n, 0.0)",
        "A short gradient counts as zero: the squares in its length vanish. Divide by its largest coordinate first."),
    mistake("return unit(scaled).to(gradient.dtype)", "return gradient / gradient.norm(dim=-1, keepdim=True)",
        "A gradient of zeros is divided by its length, 0."),
    mistake("return unit(scaled).to(gradient.dtype)", "return gradient / (gradient.norm(dim=-1, keepdim=True) + 1e-3)",
        "A constant below the line makes steps of short gradients shorter than 1."),
    mistake("return unit(scaled).to(gradient.dtype)", "return -unit(scaled).to(gradient.dtype)", "return gradient.sign()", "return -gradient.sign()",
        "This is the way down. The search climbs."),
    mistake("if p == math.inf:", "if p == 2:", "The two norms are swapped."),
    mistake("return unit(scaled).to(gradient.dtype)", "return torch.nn.functional.normalize(gradient, dim=-1)",
        "A short gradient is divided by 1e-12 in place of its length, so its step is shorter than 1."),
]

VARIANTS["smoothness.steepest"] = [
    '''
def steepest(gradient, p):
    if p == math.inf:
        return torch.where(gradient > 0, 1.0, torch.where(gradient < 0, -1.0, 0.0)).to(gradient.dtype)
    big = gradient.to(torch.float64)
    length = big.square().sum(-1, keepdim=True).sqrt()
    return torch.where(length > 0, big / torch.where(length > 0, length, 1.0), 0.0).to(gradient.dtype)
''', '''
def steepest(gradient, p):
    if math.isinf(p):
        return torch.sign(gradient)
    top = gradient.abs().max(dim=-1, keepdim=True).values
    safe = gradient / (top + (top == 0))
    return torch.nn.functional.normalize(safe, dim=-1)
''',
]


def ball_cases(generator):
    d = fixed(generator, 4, 3)
    d = d / d.norm(dim=1, keepdim=True) * torch.tensor([[0.05], [0.2], [0.9], [50.0]])
    d[1, 1] = 0
    return [Case(f"{label}, p = {p}", {"shifts": x, "radius": r, "p": p}) for p in (2, math.inf)
            for label, x, r in (("inside, outside, far outside", d, 0.3), ("a large ball", d, 100.0), ("more axes", fixed(generator, 2, 3, 4), 1.2),
                ("one vector", d[3], 0.7), ("zeros", 0 * d, 0.3))]


def run_ball(into_ball, inputs):
    shifts = into_ball(**inputs)
    return {"shifts": shifts, "dtype as it was": shifts.dtype == inputs["shifts"].dtype}


TRIALS["smoothness.ball"] = Trial(ball_cases, run_ball, subject="smart", hints=(
    "Who is inside stays. Where is the nearest point of a circle, of a square?",
    "In the usual norm the whole vector shrinks; for the largest coordinate each coordinate is cut by itself.",
    "For 2: shifts * (radius / length), with the length raised to `radius` at least, so that nobody is stretched. For infinity: clamp."))

MISTAKES["smoothness.ball"] = [
    mistake("length.clamp(min=radius)", "length.clamp(min=1e-12)", "Points inside are stretched to the surface. They are in the ball, so they stay."),
    mistake("shifts.clamp(-radius, radius)", "shifts * (radius / shifts.abs().amax(-1, keepdim=True).clamp(min=radius))",
        "For the largest coordinate the whole vector is shrunk. The nearest point is found coordinate by coordinate."),
    mistake("return shifts * (radius / length.clamp(min=radius))", "return shifts.clamp(-radius, radius)",
        "In the usual norm coordinates are cut one by one: that is a cube, and its corners lie outside the ball."),
    mistake("torch.linalg.vector_norm(shifts, dim=-1, keepdim=True)", "torch.linalg.vector_norm(shifts)",
        "The length is that of all shifts together; every shift has its own ball."),
    mistake("torch.linalg.vector_norm(shifts, dim=-1, keepdim=True)", "torch.linalg.vector_norm(shifts, dim=0, keepdim=True)",
        "The length is taken along the batch, not along a vector."),
    mistake("(radius / length.clamp(min=radius))", "(radius ** 2 / length.square().clamp(min=radius ** 2))",
        "The vector is shrunk by the square of what is needed, so it ends inside the ball."),
    mistake("(radius / length.clamp(min=radius))", "(length <= radius)",
        "Points outside are sent to the centre; the nearest point is at the surface."),
    mistake("shifts.clamp(-radius, radius)", "shifts.clamp_(-radius, radius)", "return shifts * (radius", "return shifts.mul_(radius", "The shifts that came in are overwritten."),
    mistake("shifts.clamp(-radius, radius)", "shifts.clamp(max=radius)",
        "Only large positive coordinates are cut; the ball has a negative side too."),
]

VARIANTS["smoothness.ball"] = [
    '''
def into_ball(shifts, radius, p):
    if math.isinf(p):
        return torch.minimum(torch.maximum(shifts, torch.tensor(-radius)), torch.tensor(radius)).to(shifts.dtype)
    norm = shifts.norm(p=2, dim=-1, keepdim=True)
    return torch.where(norm > radius, shifts / norm.clamp(min=1e-30) * radius, shifts)
''', '''
def into_ball(shifts, radius, p):
    if p == 2:
        return shifts * torch.clamp(radius / shifts.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-300), max=1)
    return shifts.sign() * shifts.abs().clamp(max=radius)
''',
]


# The other four exercises of the chapter, points on a ball and the searches, are in the next notebook.
#
# ---- How strong are they?

# ---- Next
#
# - Take the large logits out of the cases of `smoothness.kl`. Which mistake passes?
# - Which mistake of `smoothness.steepest` would pass if all gradients had length 1?
