"""Exercise cases of chapters 31 and 32: divergences and adversarial perturbations."""

import math

import torch

from minbert.course.check_runner import (
    SMALL,
    Case,
    Trial,
    fill,
    fixed,
    mistake,
    probed,
    with_gradients,
)
from minbert.heads import CosineHead, LinearHead, PairLinear
from minbert.losses import ClippedCosineHead

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def made_head(kind, seed):
    """Build a head with dropout on, in double precision."""
    make = {
        "classes": lambda: LinearHead(4, 3),
        "classes of a line": lambda: LinearHead(1, 3),
        "pair": lambda: PairLinear(4, "similarity"),
        "pair on a line": lambda: PairLinear(1, "similarity"),
        "yes on a line": lambda: PairLinear(1),
        "yes": lambda: PairLinear(4),
        "cosine": lambda: CosineHead("similarity", 1.3, 0.2),
    }
    head = make[kind]().double().train() if kind == "cosine" else fill(make[kind](), seed).train()
    if kind.endswith("on a line"):
        with torch.no_grad():
            head.linear.weight.copy_(
                head.linear.weight.abs() * torch.tensor([1.0, -1.0])
            )  # so that both vectors should move apart
    return head


# ---- smoothness.kl
#
# Both kinds of gradient, on both sides. Logits in the thousands, where a probability is 0 and its
# logarithm is not; several axes before the classes; two classes; equal logits; half precision.


def kl_cases(generator):
    p, q = fixed(generator, 2, 4, 3)
    wide = fixed(generator, 2, 2, 3, 5)
    cases = [
        Case(f"four rows of three classes, {grad}", {"logits_p": p, "logits_q": q, "grad": grad})
        for grad in ("full", "detached")
    ]
    return cases + [
        Case("more axes", {"logits_p": wide[0], "logits_q": wide[1]}),
        Case("one row, no batch", {"logits_p": p[0], "logits_q": q[0]}),
        Case("large logits", {"logits_p": 3000 * p, "logits_q": 3000 * q}),
        Case("equal", {"logits_p": p, "logits_q": p.clone()}),
        Case("equal but for a constant", {"logits_p": p, "logits_q": p + 3}),
        Case("half precision", {"logits_p": p.bfloat16(), "logits_q": q.bfloat16()}),
    ]


def run_kl(symmetric_kl, inputs):
    return with_gradients(
        symmetric_kl,
        inputs,
        *(() if inputs["logits_p"].dtype == torch.bfloat16 else ("logits_p", "logits_q")),
    )


TRIALS["smoothness.kl"] = Trial(
    kl_cases,
    run_kl,
    subject="smart",
    hints=(
        "Two distributions first: how do logits become probabilities, and along which axis?",
        (
            "Take `log_softmax` once for each side; the probabilities are its exponential. "
            "Logarithms of probabilities that are 0 would be minus infinity."
        ),
        (
            '((p - q) * (log p - log q)).sum(-1), with `wide` before the softmax; for "detached" '
            "the first bracket is detached."
        ),
    ),
)


_WRONG_SUM = "return (difference * (log_p - log_q)).sum(-1)"

MISTAKES["smoothness.kl"] = [
    mistake(
        _WRONG_SUM,
        "return (log_p.exp() * (log_p - log_q)).sum(-1)",
        "This is the KL divergence in one direction only. Add the other direction.",
    ),
    mistake(
        _WRONG_SUM, _WRONG_SUM + " / 2", "The two directions are averaged. The paper adds them."
    ),
    mistake(
        _WRONG_SUM,
        "return (difference * (log_p - log_q)).mean(-1)",
        "The mean over the classes is taken. A divergence sums over them.",
    ),
    mistake(
        _WRONG_SUM,
        "return (difference * (log_p - log_q)).sum(-1).mean()",
        "The mean over the examples is taken. Return one value for each example.",
    ),
    mistake(
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).softmax(-1).log(), wide(logits_q).softmax(-1).log()",
        "The logarithm of a softmax is not stable: large logits give infinity or NaN. Use "
        "`log_softmax`.",
    ),
    mistake(
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).log_softmax(0), wide(logits_q).log_softmax(0)",
        "The softmax runs over the batch. The classes are the last axis.",
    ),
    mistake(
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = logits_p.log_softmax(-1), logits_q.log_softmax(-1)",
        "Half precision is not converted to float32, so small divergences are lost to rounding.",
    ),
    mistake(
        "        difference = difference.detach()",
        "        pass",
        '`grad` is not used: "detached" has the full gradient.',
    ),
]

VARIANTS["smoothness.kl"] = [
    """
def symmetric_kl(logits_p, logits_q, grad="full"):
    one = lambda a, b: F.kl_div(
        b.log_softmax(-1),
        (a.log_softmax(-1).detach() if grad == "detached" else a.log_softmax(-1)),
        log_target=True,
        reduction="none",
    )
    import torch.nn.functional as F

    p, q = wide(logits_p), wide(logits_q)
    if grad == "full":
        return (one(p, q) + one(q, p)).sum(-1)
    ps, qs = p.softmax(-1).detach(), q.softmax(-1).detach()
    return torch.einsum("...c,...c->...", ps - qs, p.log_softmax(-1) - q.log_softmax(-1))
""",
    """
def symmetric_kl(logits_p, logits_q, grad="full"):
    dtype = torch.promote_types(logits_p.dtype, torch.float32)
    a = logits_p.to(dtype) - logits_p.to(dtype).logsumexp(-1, keepdim=True)
    b = logits_q.to(dtype) - logits_q.to(dtype).logsumexp(-1, keepdim=True)
    weights = torch.exp(a), torch.exp(b)
    if grad == "detached":
        weights = weights[0].detach(), weights[1].detach()
    return (weights[0] * (a - b)).sum(-1) + (weights[1] * (b - a)).sum(-1)
""",
]


# ---- smoothness.distance
#
# Every goal by its name, and heads that have one; the clipped cosine head has the goal
# "paraphrase" and outputs a cosine. The distance is called with other outputs first.


def distance_cases(generator):
    p, q = fixed(generator, 2, 5, 3)
    z, w = 2 * fixed(generator, 2, 6)
    one = {
        goal: {"goal": goal, "p": z, "q": w}
        for goal in ("paraphrase", "paraphrase_mse", "similarity")
    }
    return [
        Case("classes", {"goal": "classes", "p": p, "q": q}),
        Case("classes, detached", {"goal": "classes", "grad": "detached", "p": p, "q": q}),
        *(Case(goal, inputs) for goal, inputs in one.items()),
        Case("paraphrase, detached", {**one["paraphrase"], "grad": "detached"}),
        Case(
            "a sure yes and a sure no",
            {"goal": "paraphrase", "p": 100 * z.sign(), "q": -100 * z.sign()},
        ),
        Case("a head for classes", {"head": "classes", "p": p, "q": q}),
        Case("a head for grades", {"head": "pair", "p": z, "q": w}),
        Case("a head for yes or no", {"head": "yes", "p": z, "q": w}),
        Case("a clipped cosine", {"head": "clipped", "p": z.tanh(), "q": w.tanh()}),
        Case("several answers a row", {"goal": "paraphrase", "p": p, "q": q}),
    ]


def run_distance(output_distance, inputs):
    kind, pair = inputs.get("head"), {"p": inputs["p"], "q": inputs["q"]}
    goal = inputs.get("goal") or (
        ClippedCosineHead(4, project=4) if kind == "clipped" else made_head(kind, 0)
    )
    distance = output_distance(goal, **({"grad": inputs["grad"]} if "grad" in inputs else {}))
    distance(
        0.5 * pair["q"], pair["p"].flip(0)
    )  # what it keeps of these outputs shows in the next ones
    return with_gradients(lambda p, q: distance(p, q), pair, "p", "q")


TRIALS["smoothness.distance"] = Trial(
    distance_cases,
    run_distance,
    hints=(
        (
            "First find the goal, then return a function of two outputs. What has a head that a "
            "string has not?"
        ),
        (
            "One logit z of a yes is two classes with logits 0 and z. `_yes_or_no` and "
            "`_squared_difference` are there."
        ),
        (
            'goal = "similarity" for a ClippedCosineHead, else getattr(goal, "goal", goal); then '
            "`_squared_difference`, or `partial` of `symmetric_kl` or "
            "`_yes_or_no` with grad."
        ),
    ),
)


MISTAKES["smoothness.distance"] = [
    mistake(
        '"similarity" if isinstance(goal, ClippedCosineHead) else ',
        "",
        "A clipped cosine head outputs a cosine. It is compared on its own scale, not as a logit.",
    ),
    mistake(
        'symmetric_kl if goal == "classes" else _yes_or_no',
        "symmetric_kl",
        "A single logit is not a distribution: the softmax then compares the examples of the "
        "batch. Binary outputs have two classes with logits 0 and z.",
    ),
    mistake(
        'symmetric_kl if goal == "classes" else _yes_or_no',
        'symmetric_kl if goal == "classes" else (lambda p, q, grad: (p.sigmoid() - '
        "q.sigmoid()).square())",
        "Binary outputs are compared by squared probabilities. Use the divergence.",
    ),
    mistake(
        '_squared_difference if goal == "similarity" else softly',
        '(lambda p, q: (wide(p) - wide(q)).abs()) if goal == "similarity" else softly',
        "Similarity scores are compared by absolute differences. Use squared differences.",
    ),
    mistake(
        '_squared_difference if goal == "similarity" else softly',
        '(lambda p, q: (wide(p) - wide(q)).square().mean()) if goal == "similarity" else softly',
        "The mean over the examples is taken. Return one value for each example.",
    ),
    mistake(", grad=grad)", ', grad="full")', "`grad` is not passed on."),
    mistake(
        '_squared_difference if goal == "similarity" else softly',
        '_squared_difference if goal in ("similarity", "paraphrase_mse") else softly',
        '"paraphrase_mse" names a loss. Its outputs are logits like those of "paraphrase".',
    ),
    mistake(
        "_yes_or_no, grad",
        "(lambda p, q, grad: symmetric_kl(torch.stack([-p, p], -1), torch.stack([-q, q], -1), "
        "grad)), grad",
        "The two classes get the logits -z and z. They should be 0 and z.",
    ),
]

VARIANTS["smoothness.distance"] = [
    """
def output_distance(goal, grad="full"):
    if isinstance(goal, ClippedCosineHead):
        return _squared_difference
    name = goal if isinstance(goal, str) else goal.goal
    if name == "classes":
        return lambda p, q: symmetric_kl(p, q, grad)
    if name == "similarity":
        return lambda p, q: (p - q) ** 2
    zero = lambda z: torch.stack((z * 0, z), dim=-1)
    return lambda p, q: symmetric_kl(zero(p), zero(q), grad=grad)
""",
    """
def output_distance(goal, grad="full"):
    name = getattr(goal, "goal", goal)

    def squares(p, q):
        return torch.pow(wide(p) - wide(q), 2)

    def yes(p, q):
        a, b = wide(p).sigmoid(), wide(q).sigmoid()
        first = (a - b).detach() if grad == "detached" else a - b
        return first * (wide(p) - wide(q))  # log-odds

    table = {
        "classes": partial(symmetric_kl, grad=grad),
        "similarity": squares,
        "paraphrase": yes,
        "paraphrase_mse": yes,
    }
    return squares if type(goal) is ClippedCosineHead else table[name]
""",
]


# ---- smoothness.steepest and smoothness.ball
#
# Gradients of 1e-30, whose squares are 0 in single precision; a zero gradient; several axes;
# points inside, outside and far outside. Both norms.


def steepest_cases(generator):
    g = fixed(generator, 3, 5)
    holes = g.clone()
    holes[1], holes[0, 2] = 0, 0
    more = fixed(generator, 2, 3, 4)
    return [
        Case(f"{label}, p = {p}", {"gradient": x, "p": p})
        for p in (2, math.inf)
        for label, x in (
            ("three rows", g),
            (
                "rows of very different size",
                g * torch.tensor([[1.0], [1e-9], [1e-20]], dtype=torch.float64),
            ),
            ("zeros", holes),
            ("more axes", more),
            ("one vector", g[0]),
            ("gradients of 1e-30", 1e-30 * g.float()),
            ("one row of 1e-30 beside one of 1", g.float() * torch.tensor([[1.0], [1e-30], [1.0]])),
            ("large", 1e9 * g),
        )
    ]


def run_steepest(steepest, inputs):
    direction = steepest(**inputs)
    return {"direction": direction, "dtype as it was": direction.dtype == inputs["gradient"].dtype}


TRIALS["smoothness.steepest"] = Trial(
    steepest_cases,
    run_steepest,
    subject="smart",
    hints=(
        "Among all steps of norm 1, which raises g . d most? Draw a circle, then a square.",
        (
            "For p = 2 the step points along g. For infinity each coordinate goes as far as it "
            "may, on its own side. 0 stays 0."
        ),
        (
            "Signs for infinity. For 2: divide by the largest coordinate of each vector first "
            "(with a floor of `tiny`), so that the squares do not vanish; "
            "then `unit`."
        ),
    ),
)

MISTAKES["smoothness.steepest"] = [
    mistake(
        "return gradient.sign()",
        "return gradient / gradient.abs().amax(-1, keepdim=True)",
        "In the maximum norm every dimension moves by the full step: use the sign of the gradient.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return gradient.sign() / gradient.shape[-1] ** 0.5",
        "In the Euclidean norm the step is along the gradient, not along its sign.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return gradient / torch.linalg.vector_norm(gradient, keepdim=True)",
        "The norm is computed over the whole batch. Each vector has its own.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return unit(gradient).to(gradient.dtype)",
        "Very small gradients count as zero because their squares underflow. Divide by the "
        "largest entry first.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return gradient / gradient.norm(dim=-1, keepdim=True)",
        "A zero gradient is divided by its norm, 0.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return gradient / (gradient.norm(dim=-1, keepdim=True) + 1e-3)",
        "A constant is added to the norm, so the step for a small gradient is shorter than 1.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return -unit(scaled).to(gradient.dtype)",
        "return gradient.sign()",
        "return -gradient.sign()",
        "The sign is wrong: this step goes downhill. The search maximizes.",
    ),
    mistake("if p == math.inf:", "if p == 2:", "The two norms are swapped."),
]

VARIANTS["smoothness.steepest"] = [
    """
def steepest(gradient, p):
    if p == math.inf:
        return torch.where(gradient > 0, 1.0, torch.where(gradient < 0, -1.0, 0.0)).to(
            gradient.dtype
        )
    big = gradient.to(torch.float64)
    length = big.square().sum(-1, keepdim=True).sqrt()
    return torch.where(length > 0, big / torch.where(length > 0, length, 1.0), 0.0).to(
        gradient.dtype
    )
""",
    """
def steepest(gradient, p):
    if math.isinf(p):
        return torch.sign(gradient)
    top = gradient.abs().max(dim=-1, keepdim=True).values
    safe = gradient / (top + (top == 0))
    return torch.nn.functional.normalize(safe, dim=-1)
""",
]


def ball_cases(generator):
    d = fixed(generator, 4, 3)
    d = d / d.norm(dim=1, keepdim=True) * torch.tensor([[0.05], [0.2], [0.9], [50.0]])
    d[1, 1] = 0
    return [
        Case(f"{label}, p = {p}", {"shifts": x, "radius": r, "p": p})
        for p in (2, math.inf)
        for label, x, r in (
            ("inside, outside, far outside", d, 0.3),
            ("a large ball", d, 100.0),
            ("more axes", fixed(generator, 2, 3, 4), 1.2),
            ("one vector", d[3], 0.7),
            ("zeros", 0 * d, 0.3),
        )
    ]


def run_ball(into_ball, inputs):
    shifts = into_ball(**inputs)
    return {"shifts": shifts, "dtype as it was": shifts.dtype == inputs["shifts"].dtype}


TRIALS["smoothness.ball"] = Trial(
    ball_cases,
    run_ball,
    subject="smart",
    hints=(
        "Who is inside stays. Where is the nearest point of a circle, of a square?",
        (
            "In the usual norm the whole vector shrinks; for the largest coordinate each "
            "coordinate is cut by itself."
        ),
        (
            "For 2: shifts * (radius / length), with the length raised to `radius` at least, so "
            "that nobody is stretched. For infinity: clamp."
        ),
    ),
)

MISTAKES["smoothness.ball"] = [
    mistake(
        "length.clamp(min=radius)",
        "length.clamp(min=1e-12)",
        "Points inside the ball are moved to its surface. They should stay.",
    ),
    mistake(
        "shifts.clamp(-radius, radius)",
        "shifts * (radius / shifts.abs().amax(-1, keepdim=True).clamp(min=radius))",
        "In the maximum norm the whole vector is scaled. The nearest point is found by clipping "
        "each dimension.",
    ),
    mistake(
        "return shifts * (radius / length.clamp(min=radius))",
        "return shifts.clamp(-radius, radius)",
        "In the Euclidean norm the dimensions are clipped one by one, which projects onto a cube.",
    ),
    mistake(
        "torch.linalg.vector_norm(shifts, dim=-1, keepdim=True)",
        "torch.linalg.vector_norm(shifts)",
        "The norm is computed over all perturbations together. Each one has its own ball.",
    ),
    mistake(
        "torch.linalg.vector_norm(shifts, dim=-1, keepdim=True)",
        "torch.linalg.vector_norm(shifts, dim=0, keepdim=True)",
        "The norm runs over the batch. It runs over the dimensions.",
    ),
    mistake(
        "(radius / length.clamp(min=radius))",
        "(length <= radius)",
        "Points outside are moved to the center. The nearest point is on the surface.",
    ),
    mistake(
        "shifts.clamp(-radius, radius)",
        "shifts.clamp_(-radius, radius)",
        "return shifts * (radius",
        "return shifts.mul_(radius",
        "The input is changed in place. Return a new tensor.",
    ),
    mistake(
        "shifts.clamp(-radius, radius)",
        "shifts.clamp(max=radius)",
        "Only large positive values are clipped. Clip at -radius too.",
    ),
]

VARIANTS["smoothness.ball"] = [
    """
def into_ball(shifts, radius, p):
    if math.isinf(p):
        return torch.minimum(torch.maximum(shifts, torch.tensor(-radius)), torch.tensor(radius)).to(
            shifts.dtype
        )
    norm = shifts.norm(p=2, dim=-1, keepdim=True)
    return torch.where(norm > radius, shifts / norm.clamp(min=1e-30) * radius, shifts)
""",
    """
def into_ball(shifts, radius, p):
    if p == 2:
        return shifts * torch.clamp(
            radius / shifts.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-300), max=1
        )
    return shifts.sign() * shifts.abs().clamp(max=radius)
""",
]


# ---- smoothness.points
#
# Twenty thousand points. Exact facts: the norm of each point on a surface, shapes, dtypes,
# reproducibility. Averages: absolute values, squares, the largest value, the mean, the radius.
# The tolerance of 0.02 is at least five standard errors; averages that vary more are divided by
# three or five.


def points_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    return [
        Case(
            f"{where}, p = {p:g}, width {width}",
            {"width": width, "p": p, "where": where, "radius": radius, "seed": seed},
        )
        for where, p, width, radius in (
            ("surface", 2.0, 3, 0.1),
            ("surface", 1.0, 3, 2.0),
            ("surface", math.inf, 4, 0.5),
            ("surface", 3.0, 2, 1.0),
            ("surface", 1.5, 2, 3.0),
            ("volume", 2.0, 3, 0.1),
            ("volume", 1.0, 2, 5.0),
            ("volume", math.inf, 2, 1.0),
            ("volume", 2.0, 1, 4.0),
        )
    ]


def _halves_and_neighbours(x):
    """Pairs of points that a program might make from one draw: half of them apart, and side by
    side."""
    return {
        "half of all apart": (x[: len(x) // 2], x[len(x) // 2 :]),
        "side by side": (x[::2], x[1::2]),
    }


def run_points(ball_points, inputs):
    seed, r, p = inputs.pop("seed"), inputs["radius"], inputs["p"]

    def seeded():
        return torch.Generator().manual_seed(seed)

    x = ball_points(20000, **inputs, generator=seeded(), dtype=torch.float64) / r
    few = ball_points(3, **inputs, generator=seeded())
    torch.default_generator.manual_seed(2)
    goes_on = seeded()
    norm, again = torch.linalg.vector_norm(x, p, -1), ball_points(3, **inputs, generator=seeded())
    pairs = _halves_and_neighbours(x)
    exact = (
        {"every norm is the radius": (norm - 1).abs().max() < 1e-6}
        if inputs["where"] == "surface"
        else {"no norm is above the radius": norm.max() < 1 + 1e-6}
    )
    if inputs["where"] == "volume":
        for name, pair in pairs.items():
            norms = torch.stack([torch.linalg.vector_norm(y, p, -1) for y in pair])
            label = f"a tenth of the correlation of two norms, {name}"
            exact[label] = torch.corrcoef(norms)[0, 1] / 10
    exact |= {
        f"a third of the mean product of two points, {name}": (a * b).sum(1).mean() / 3
        for name, (a, b) in pairs.items()
    }
    return exact | {
        "shape of 3 points": torch.tensor(few.shape),
        "dtypes as asked for": few.dtype == torch.float32 and x.dtype == torch.float64,
        "the same seed gives the same points": torch.equal(few, again),
        "a generator goes on": not torch.equal(
            *(ball_points(3, **inputs, generator=goes_on) for _ in range(2))
        ),
        "without a generator, other points each time": not torch.equal(
            *(ball_points(3, **inputs) for _ in range(2))
        ),
        "mean norm / radius": norm.mean(),
        "a third of the mean coordinate / radius": x.mean(0) / 3,
        "mean size of a coordinate": x.abs().mean(0),
        "mean square of a coordinate": x.square().mean(0),
        "mean fourth power": x.pow(4).mean(0),
        "a fifth of the mean product of two signs": (x[:, 0] * x[:, -1]).sign().mean() / 5,
        "a third of the mean product of two points": (x[1:] * x[:-1]).sum(1).mean() / 3,
    }


TRIALS["smoothness.points"] = Trial(
    points_cases,
    run_points,
    replay=True,
    atol=0.02,
    hints=(
        (
            "Draw with density exp(-|y|^p) in each coordinate, then bring each point to the norm "
            "it should have. In a ball, how much of the volume lies "
            "within half of the radius?"
        ),
        (
            "`_bell` draws. The p-norm is `torch.linalg.vector_norm(y, p, -1, keepdim=True)`. The "
            "share of the volume within s is s^D, so s = U^(1/D)."
        ),
        (
            'x = radius * y / |y|_p; for "volume" times torch.rand(n, 1) ** (1 / width), '
            "everything from `generator`, in `dtype`."
        ),
    ),
)


_WRONG_DRAW = "y = _bell(torch.empty(n, width, dtype=dtype, device=device), p, generator)"

MISTAKES["smoothness.points"] = [
    mistake(
        "torch.linalg.vector_norm(y, p, -1, keepdim=True)",
        "torch.linalg.vector_norm(y, 2, -1, keepdim=True)",
        "The points are divided by their Euclidean norm whatever p is.",
    ),
    mistake(
        "torch.linalg.vector_norm(y, p, -1, keepdim=True)",
        "torch.linalg.vector_norm(y, p, 0, keepdim=True)",
        "The norm runs over the points. It runs over the dimensions.",
    ),
    mistake("x = radius * y /", "x = y /", "The radius is not used."),
    mistake(
        " ** (1 / width)",
        "",
        "The radii are uniformly distributed, so too many points are near the center. Volume "
        "grows with a power of the radius.",
    ),
    mistake(" ** (1 / width)", " ** width", "The exponent is D. It should be 1/D."),
    mistake(
        "torch.rand(n, 1, generator",
        "torch.rand(1, 1, generator",
        "All points share one random radius. Each point needs its own.",
    ),
    mistake(
        'if where == "volume":', "if False:", "`where` is not used: all points are on the surface."
    ),
    mistake(
        _WRONG_DRAW,
        _WRONG_DRAW.replace("generator)", "None)"),
        "`generator` is not used, so points are not reproducible.",
    ),
]

VARIANTS["smoothness.points"] = [
    """
def ball_points(
    n, width, radius=1.0, p=2.0, where="surface", generator=None, device="cpu", dtype=torch.float32
):
    shape = (n, width)
    if p == math.inf:
        y = 2 * torch.rand(shape, generator=generator, dtype=dtype) - 1
    elif p == 1:
        y = (
            torch.empty(shape, dtype=dtype).exponential_(generator=generator)
            * (torch.rand(shape, generator=generator) - 0.5).sign()
        )
    else:
        y = _bell(torch.empty(shape, dtype=dtype), p, generator)
    y = y / y.norm(p=p, dim=1)[:, None]
    if where == "volume":
        y = (
            y
            * torch.exp(torch.log(1 - torch.rand(n, generator=generator, dtype=dtype)) / width)[
                :, None
            ]
        )
    return y * radius
""",
    """
def ball_points(
    n, width, radius=1.0, p=2.0, where="surface", generator=None, device="cpu", dtype=torch.float32
):
    share = (
        torch.rand(n, 1, generator=generator, dtype=dtype) ** (1.0 / width)
        if where == "volume"
        else 1.0
    )
    x = _bell(torch.zeros(n, width, dtype=dtype), p, generator)
    size = (
        x.abs().amax(1, keepdim=True)
        if p == math.inf
        else x.abs().pow(p).sum(1, keepdim=True).pow(1 / p)
    )
    return x.div_(size).mul_(radius * share)
""",
]


# ---- smoothness.worst
#
# The points are given, so nothing is random: one linear head, one with two vectors, one with a
# cosine. More points than rows and more rows than a chunk; a last chunk that is shorter than the
# others and contains some of the worst points.


def worst_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    (u, v), (d, e) = fixed(generator, 2, 5, 4), fixed(generator, 2, 40, 4)
    d[-2:], e[-2:] = (
        12 * d[-2:],
        12 * e[-2:],
    )  # the worst of some rows are in the last chunk, a short one
    more = {"du": d, "dv": e}
    return [
        Case("classes", {"head": "classes", "seed": seed, "u": u, "du": d}),
        Case(
            "classes, in small chunks",
            {"head": "classes", "seed": seed, "u": u, "du": d, "limit": 105},
        ),
        Case("pairs", {"head": "pair", "seed": seed, "u": u, "v": v, **more}),
        Case(
            "pairs, one point at a time",
            {"head": "pair", "seed": seed, "u": u, "v": v, **more, "limit": 1},
        ),
        Case(
            "pairs and a cosine, in small chunks",
            {"head": "cosine", "seed": seed, "u": u, "v": v, **more, "limit": 45},
        ),
        Case("one row", {"head": "cosine", "seed": seed, "u": u[:1], "v": v[:1], **more}),
        Case("one point", {"head": "classes", "seed": seed, "u": u, "du": d[:1]}),
        Case(
            "a distance with a direction",
            {"head": "pair", "seed": seed, "u": u, "v": v, **more, "aim": True},
        ),
    ]


def run_worst(worst, inputs):
    vectors = tuple(inputs[name] for name in ("u", "v") if name in inputs)
    shifts = tuple(inputs[name] for name in ("du", "dv") if name in inputs)
    distance = (
        (lambda p, q: (p.softmax(-1) - q.softmax(-1)).abs().sum(-1))
        if inputs["head"] == "classes"
        else (lambda p, q: (p - q).square())
    )
    distance = (lambda p, q: p * (p - q)) if "aim" in inputs else distance
    more, sizes = {"limit": inputs["limit"]} if "limit" in inputs else {}, []

    def measured(p, q):
        return sizes.append(p.numel()) or distance(p, q)

    found = worst(
        made_head(inputs["head"], inputs["seed"]).eval(), vectors, shifts, measured, **more
    )
    whole = len(vectors[0]) * len(shifts[0]) * (3 if inputs["head"] == "classes" else 1)
    return {f"best shift of vector {i}": d for i, d in enumerate(found)} | {
        "vectors": len(found),
        "all answers at once, above the limit": max(sizes, default=0)
        >= whole
        > inputs.get("limit", whole),
    }


TRIALS["smoothness.worst"] = Trial(
    worst_cases,
    run_worst,
    subject="smart",
    derive=(SMALL,),
    hints=(
        (
            "For every row and every point: how far does the answer move? That is a table (B, n). "
            "What do you take of each row?"
        ),
        (
            "`_outputs_at(head, vectors, shifts)` gives (B, n) or (B, n, C). The distance to the "
            "answer without a shift is (B, n); argmax along n."
        ),
        (
            "Cut the shifts into chunks, collect the (B, k) distances, torch.cat along 1, "
            "argmax(1), and give d[best] of each vector's shifts."
        ),
    ),
)


MISTAKES["smoothness.worst"] = [
    mistake(
        "torch.cat(found, 1).argmax(1)",
        "torch.cat(found, 1).argmin(1)",
        "The smallest change is selected. The worst point has the largest.",
    ),
    mistake(
        "torch.cat(found, 1).argmax(1)",
        "torch.cat(found, 1).sum(0).argmax().expand(len(vectors[0]))",
        "One point is selected for all examples. Each example has its own worst point.",
    ),
    mistake(
        "torch.cat(found, 1).argmax(1)", "found[-1].argmax(1)", "Only the last chunk is considered."
    ),
    mistake(
        "*(d.split(size) for d in shifts)",
        "*(d[: max(size, len(d) // size * size)].split(size) for d in shifts)",
        "The last chunk is dropped when it is incomplete.",
    ),
    mistake(
        "torch.cat(found, 1).argmax(1)",
        "torch.stack([f.argmax(1) for f in found])[torch.stack([f.amax(1) for f in "
        "found]).argmax(0), torch.arange(len(vectors[0]))]",
        "The index within a chunk is used as the index among all points.",
    ),
    mistake(
        "found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "gap = moved - clean\n        found.append(gap.sum(-1) if gap.ndim == 3 else gap)",
        "Signed differences are compared, so a large decrease counts as small. Use the distance.",
    ),
    mistake(
        "found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "found.append(sum(d.norm(dim=-1) for d in part).expand(len(vectors[0]), -1))",
        "The longest perturbation is selected. Select the one that changes the output most.",
    ),
    mistake(
        "return tuple(d[best] for d in shifts)",
        "return tuple(x + d[best] for x, d in zip(vectors, shifts))",
        "The perturbed vectors are returned. Return the perturbations.",
    ),
]

VARIANTS["smoothness.worst"] = [
    """
def worst_shifts(head, vectors, shifts, distance, limit=2**18):
    with torch.no_grad():
        clean, best, height = head(*vectors), None, None
        for point in zip(*shifts):
            value = distance(head(*(x + d for x, d in zip(vectors, point))), clean)
            moved = [d.expand_as(x) for d, x in zip(point, vectors)]
            if best is None:
                best, height = moved, value
            else:
                higher = value > height
                best = [torch.where(higher[:, None], new, old) for new, old in zip(moved, best)]
                height = torch.where(higher, value, height)
    return tuple(best)
""",
    """
@torch.no_grad()
def worst_shifts(head, vectors, shifts, distance, limit=2**18):
    rows = []
    for i in range(len(vectors[0])):
        n = len(shifts[0])
        still = [x[i].expand(n, -1) for x in vectors]
        far = distance(head(*(x + d for x, d in zip(still, shifts))), head(*still))
        rows.append(int(torch.argmax(far)))
    return tuple(torch.stack([d[k] for k in rows]) for d in shifts)
""",
]


# ---- smoothness.sampled
#
# Two correct random searches find different points. They agree in one dimension, where a ball has
# two ends and 64 points hit both; projected gradient ascent on a linear head ends in a corner of
# the cube. The heads are in train mode with dropout, and one part is in eval mode: both passes
# are without dropout, and afterwards all modes are as before. The gradients of vectors and
# weights are compared. One weight is frozen and stays so.


def sampled_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    line, wide = fixed(generator, 2, 5, 1), fixed(generator, 2, 5, 4)

    def case(label, head, x, **way):
        return Case(
            label,
            {
                "head": head,
                "seed": seed,
                "u": x[0],
                **({} if "classes" in head else {"v": x[1]}),
                **way,
            },
        )

    found = [
        case(f"{head}, at random", head, line, radius=0.3, points=64)
        for head in ("classes of a line", "pair on a line", "yes on a line")
    ]
    return found + [
        case("in another norm", "pair on a line", line, radius=0.2, points=64, p=math.inf),
        case("climbing in a box", "pair", wide, radius=0.1, p=math.inf, search="pgd", steps=3),
        case("climbing in a ball", "pair", wide, radius=0.4, search="pgd"),
        case("a distance of one's own", "classes of a line", line, radius=0.5, points=64, own=True),
        case(
            "climbing, by a distance that knows the way",
            "pair",
            wide,
            radius=0.1,
            p=math.inf,
            search="pgd",
            steps=3,
            aim=True,
        ),
        Case("as many steps as asked for", {"u": wide[0], "radius": 0.3, "search": "pgd"}),
        *(
            Case(
                f"{where} of another norm",
                {"u": wide[0], "p": 1.5, "radius": 0.3, "points": 50, "where": where},
            )
            for where in ("surface", "volume")
        ),
        case("the default radius", "pair on a line", line),
    ]


class Mirror(torch.nn.Module):
    """A head that gives back what it gets, so that shifts can be seen."""

    def forward(self, u):
        return u


def _seen(sampled_smoothness, inputs):
    """What the distance is asked about: how many moved answers, and how far they moved."""
    moves, u = [], inputs.pop("u")
    if "search" in inputs:
        return _steps(sampled_smoothness, u, inputs)

    def distance(p, q):
        moves.append((p - q).detach().flatten(0, -2))
        return (p - q).square().sum(-1)

    sampled_smoothness(
        Mirror(), (u,), **inputs, distance=distance, generator=torch.Generator().manual_seed(5)
    )
    size = torch.linalg.vector_norm(torch.cat(moves), inputs["p"], -1) / inputs["radius"]
    size = size[size > 0]
    return {
        "as many answers as points and rows": len(size) >= inputs["points"] * len(u),
        "no more of them than that": len(size) < 2 * (inputs["points"] + 1) * len(u),
        "largest norm / radius is about 1": (0.95 < size.max() < 1.0001).item(),
        "smallest norm / radius is about 1": size.min().item() > 0.95,
    }


def _steps(sampled_smoothness, u, inputs):
    """Say whether more steps of an ascent look at more answers."""

    def asked(steps):
        seen = []

        def distance(p, q):
            return seen.append(p) or (p - q).square().sum(-1)

        sampled_smoothness(
            Mirror(),
            (u,),
            **inputs,
            steps=steps,
            distance=distance,
            generator=torch.Generator().manual_seed(5),
        )
        starts.append((seen[0] - u).detach().round(decimals=9))
        return len(seen)

    starts = []
    return {
        "more steps look at more answers": asked(0) < asked(3) < asked(9),
        "each row starts at a point of its own": len(starts[0].unique(dim=0)) == len(u),
    }


def run_sampled(sampled_smoothness, inputs):
    if "head" not in inputs:
        return _seen(sampled_smoothness, inputs)
    head, vectors = (
        made_head(inputs.pop("head"), inputs.pop("seed")),
        [inputs.pop(name) for name in ("u", "v") if name in inputs],
    )
    own = inputs.pop("own", False)
    if own:
        inputs["distance"] = lambda p, q: (p - q).abs().sum(-1)
        head.linear.bias.requires_grad_(
            False
        )  # a weight that does not learn, and should not begin to
    if inputs.pop("aim", False):
        inputs["distance"] = lambda p, q: (p - q) * q
    head.drop.eval()
    head.linear.train()
    with probed():
        leaves = tuple(x.clone().requires_grad_() for x in vectors)
        loss = sampled_smoothness(
            head, leaves, **inputs, generator=torch.Generator().manual_seed(5)
        )
        modes = [part.training for part in head.modules()]
        head.drop.train()
        again = sampled_smoothness(
            head, leaves, **inputs, generator=torch.Generator().manual_seed(6)
        )
    learned = [w for w in head.parameters() if w.requires_grad]
    slopes = (
        torch.autograd.grad(again, [*leaves, *learned], allow_unused=True, materialize_grads=True)
        if again.requires_grad
        else []
    )
    return {
        "penalty": loss,
        "penalty, another seed": again,
        "parts in train mode afterwards": modes,
        "weights that learn": [w.requires_grad for w in head.parameters()],
    } | {f"gradient {i}": g for i, g in enumerate(slopes)}


TRIALS["smoothness.sampled"] = Trial(
    sampled_cases,
    run_sampled,
    subject="smart",
    derive=(),
    hints=(
        (
            "Three parts: points to begin with, a search without gradient, and the charge with "
            "gradient for what was found. Which of them need dropout off?"
        ),
        (
            '`ball_points` for each vector (n points for "random", B for "pgd"), then '
            "`worst_shifts` or `_ascend` on the vectors without graph, inside "
            "`_evaluating(head)`."
        ),
        (
            "return distance(head(*(x + d ...)), head(*vectors)).mean() inside `_evaluating`, "
            "with the vectors that have the graph."
        ),
    ),
)


_WRONG_CHARGE = (
    "return distance(head(*(x + d for x, d in zip(vectors, shifts))), head(*vectors)).mean()"
)

MISTAKES["smoothness.sampled"] = [
    mistake(
        "    with _evaluating(head):\n",
        "    if True:\n",
        "Dropout is active, so its noise is measured as well. Run the head in eval mode.",
    ),
    mistake(
        "    with _evaluating(head):\n",
        "    head.eval()\n    if True:\n",
        "The head stays in eval mode afterwards, so training goes on without dropout.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*vectors))", "head(*vectors).detach())"),
        "The clean output is detached in the penalty, so half of the gradient is missing.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("zip(vectors", "zip(fixed").replace("head(*vectors)", "head(*fixed)"),
        "The penalty is computed from detached vectors, so the encoder gets no gradient.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(".mean()", ".sum()"),
        "The penalty is summed over the examples. Use the mean.",
    ),
    mistake(
        "distance or output_distance(head)", "output_distance(head)", "`distance` is not used."
    ),
    mistake(
        "_ascend(head, fixed, shifts, distance, radius, p, steps))",
        "shifts)",
        '"pgd" only uses its starting points. The projected gradient ascent is missing.',
    ),
    mistake(
        _WRONG_CHARGE,
        "with torch.no_grad():\n"
        "            return distance(head(*(x + d for x, d in zip(vectors, shifts))), "
        "head(*vectors)).mean()",
        "The penalty has no gradient.",
    ),
]

VARIANTS["smoothness.sampled"] = [
    """
def sampled_smoothness(
    head,
    vectors,
    radius=0.1,
    points=1000,
    p=2.0,
    where="surface",
    search="random",
    steps=10,
    generator=None,
    distance=None,
):
    distance = output_distance(head) if distance is None else distance
    rows, width = vectors[0].shape
    modes = {part: part.training for part in head.modules()}
    for part in modes:
        part.training = False
    try:
        still = [x.detach() for x in vectors]
        start = tuple(
            ball_points(
                rows if search == "pgd" else points,
                width,
                radius,
                p,
                where,
                generator,
                dtype=x.dtype,
            )
            for x in still
        )
        if search == "pgd":
            worst = _ascend(head, tuple(still), start, distance, radius, p, steps)
        else:
            worst = worst_shifts(head, tuple(still), start, distance)
        moved = [x + d for x, d in zip(vectors, worst)]
        each = distance(head(*moved), head(*vectors))
    finally:
        for part, mode in modes.items():
            part.training = mode
    return each.sum() / rows
""",
    """
def sampled_smoothness(
    head,
    vectors,
    radius=0.1,
    points=1000,
    p=2.0,
    where="surface",
    search="random",
    steps=10,
    generator=None,
    distance=None,
):
    far = distance or output_distance(head)
    with _evaluating(head):
        clean = head(*vectors)
        if search == "pgd":
            begin = tuple(
                ball_points(len(x), x.shape[1], radius, p, where, generator, dtype=x.dtype)
                for x in vectors
            )
            shifts = _ascend(head, tuple(x.detach() for x in vectors), begin, far, radius, p, steps)
            return torch.mean(far(head(*map(torch.add, vectors, shifts)), clean))
        best = None
        clouds = [
            ball_points(points, x.shape[1], radius, p, where, generator, dtype=x.dtype)
            for x in vectors
        ]
        for point in zip(*clouds):
            value = far(head(*(x + d for x, d in zip(vectors, point))), clean)
            best = value if best is None else torch.where(value > best, value, best)
        return best.mean()
""",
]


# ---- smoothness.maximum
#
# One output in four norms, where the maximum is a dual norm, for similarity scores and for
# paraphrases; classes, where it is an eigenvalue. Dropout is active before, and one part is in
# eval mode; both are unchanged afterwards.


def maximum_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    u, v = fixed(generator, 2, 3, 4)
    u, v = 3 * torch.cat([u, -u]), 3 * torch.cat([v, -v])  # a sure yes, a sure no
    found = [
        Case(
            f"{head}, p = {p:g}",
            {"head": head, "seed": seed, "u": u, "v": v, "radius": 0.2, "p": p},
        )
        for head in ("pair", "yes")
        for p in (1.0, 1.5, 2.0, math.inf)
    ]
    return (
        found
        + [
            Case(f"classes, radius {r}", {"head": "classes", "seed": seed, "u": u, "radius": r})
            for r in (0.1, 3.0)
        ]
        + [
            Case(
                "classes, sure of themselves",
                {"head": "classes", "seed": seed, "u": 4 * u, "radius": 0.1},
            )
        ]
    )


def run_maximum(linear_maximum, inputs):
    head, vectors = (
        made_head(inputs.pop("head"), inputs.pop("seed")),
        tuple(inputs.pop(name) for name in ("u", "v") if name in inputs),
    )
    head.linear.eval()
    with probed():
        found = linear_maximum(head, tuple(x.requires_grad_() for x in vectors), **inputs)
    return {
        "largest move": found,
        "parts in train mode afterwards": [part.training for part in head.modules()],
        "has a graph": found.requires_grad,
    }


TRIALS["smoothness.maximum"] = Trial(
    maximum_cases,
    run_maximum,
    hints=(
        (
            "One output: how far can w . d get with |d|_p = r? And is the answer further from "
            "home when it goes up, or down?"
        ),
        (
            "The largest w . d is r times the dual norm of w, 1/p + 1/q = 1, added for the two "
            "vectors. For classes, W^T (diag p - p p^T) W is a matrix for "
            "each row."
        ),
        (
            "One output: reach = radius * (|w_1|_q + |w_2|_q), then the larger of distance(z + "
            "reach, z) and distance(z - reach, z). Classes: radius² times "
            "`torch.linalg.eigvalsh(...)[:, -1]`."
        ),
    ),
)


MISTAKES["smoothness.maximum"] = [
    mistake(
        "vector_norm(w, q)",
        "vector_norm(w, p)",
        "The norm of the weights is the p-norm. Use the dual norm q with 1/p + 1/q = 1.",
    ),
    mistake(
        "sum(torch.linalg.vector_norm(w, q) for w in W[0].chunk(2))",
        "torch.linalg.vector_norm(W[0], q)",
        "Both vectors share one ball. Each has its own, so the two terms are added.",
    ),
    mistake(
        "torch.maximum(distance(z + reach, z), distance(z - reach, z))",
        "distance(z + reach, z)",
        "Only an increase of the logit is considered. A decrease can change the output more.",
    ),
    mistake(
        "return radius ** 2 *",
        "return radius *",
        "The distance grows with the square of the radius.",
    ),
    mistake(
        "@ A)[:, -1]",
        "@ A)[:, 0]",
        "The smallest eigenvalue is used. Eigenvalues come in ascending order.",
    ),
    mistake(
        "- root.square()[:, :, None] * root[:, None]",
        "",
        "The term p pᵀ is missing: adding a constant to all logits does not change the "
        "probabilities.",
    ),
    mistake(
        "with _evaluating(head), torch.no_grad():",
        "with torch.no_grad():",
        "Dropout is active. Run the head in eval mode.",
    ),
    mistake(
        "W @ W.T",
        "W @ W.T / 2",
        "The factor ½ is counted once too often: each of the two divergences has a factor ½, "
        "and they are added.",
    ),
]

VARIANTS["smoothness.maximum"] = [
    """
def linear_maximum(head, vectors, radius, p=2.0):
    with _evaluating(head), torch.no_grad():
        z, W = head(*vectors), head.linear.weight
        if isinstance(head, LinearHead):
            P = z.softmax(-1)
            middle = torch.diag_embed(P) - torch.einsum("bi,bj->bij", P, P)
            return (
                radius
                * radius
                * torch.linalg.eigvalsh(torch.einsum("ci,bcd,dj->bij", W, middle, W)).amax(-1)
            )
        first, second = W[0, : W.shape[1] // 2], W[0, W.shape[1] // 2 :]
        if p == 1:
            dual = lambda w: w.abs().max()
        elif p == math.inf:
            dual = lambda w: w.abs().sum()
        else:
            dual = lambda w: w.abs().pow(p / (p - 1)).sum() ** ((p - 1) / p)
        far = radius * (dual(first) + dual(second))
        ways = torch.stack([output_distance(head)(z + side * far, z) for side in (1, -1)])
        return ways.max(0).values
""",
    """
def linear_maximum(head, vectors, radius, p=2.0):
    with torch.no_grad():
        W, c = head.linear.weight, head.linear.bias
        z = torch.cat(vectors, -1) @ W.T + c  # dropout is not called at all
        if head.goal == "classes":
            return torch.stack(
                [
                    radius**2 * torch.linalg.matrix_norm(W.T @ (q.diag() - q[:, None] * q) @ W, 2)
                    for q in z.softmax(-1)
                ]
            )
        q = 1.0 if p == math.inf else math.inf if p == 1 else 1 / (1 - 1 / p)
        reach = radius * sum(w.norm(q) for w in W[0].chunk(2))
        distance = output_distance(head.goal)
        return torch.max(distance(z[:, 0] + reach, z[:, 0]), distance(z[:, 0] - reach, z[:, 0]))
""",
]
