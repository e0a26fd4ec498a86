"""Exercise cases of chapter 22: divergences and adversarial perturbations."""

import math

import torch

from minbert.course.check_runner import (
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
            "First find the name of the goal, then return a function of two outputs. Which "
            "attribute has a head that a string does not have?"
        ),
        (
            "A binary logit z stands for two classes with the logits 0 and z. `binary_kl` and "
            "`squared_difference` are there."
        ),
        (
            'The name is getattr(goal, "goal", goal). Return `squared_difference` for "similarity" '
            "and for a ClippedCosineHead, otherwise `partial` of `symmetric_kl` or `binary_kl` "
            "with grad."
        ),
    ),
)


_WRONG_BINARY = "return partial(binary_kl, grad=grad)"

MISTAKES["smoothness.distance"] = [
    mistake(
        " or isinstance(goal, ClippedCosineHead)",
        "",
        "A clipped cosine head outputs a cosine. It is compared on its own scale, not as a logit.",
    ),
    mistake(
        _WRONG_BINARY,
        "return partial(symmetric_kl, grad=grad)",
        "A single logit is not a distribution: the softmax then compares the examples of the "
        "batch. Binary outputs have two classes with logits 0 and z.",
    ),
    mistake(
        _WRONG_BINARY,
        "return lambda p, q: (p.sigmoid() - q.sigmoid()).square()",
        "Binary outputs are compared by squared probabilities. Use the divergence.",
    ),
    mistake(
        "return squared_difference",
        "return lambda p, q: (wide(p) - wide(q)).abs()",
        "Similarity scores are compared by absolute differences. Use squared differences.",
    ),
    mistake(
        "return squared_difference",
        "return lambda p, q: (wide(p) - wide(q)).square().mean()",
        "The mean over the examples is taken. Return one value for each example.",
    ),
    mistake(
        "partial(symmetric_kl, grad=grad)",
        "symmetric_kl",
        "partial(binary_kl, grad=grad)",
        "binary_kl",
        "`grad` is not passed on.",
    ),
    mistake(
        'name == "similarity" or',
        'name in ("similarity", "paraphrase_mse") or',
        '"paraphrase_mse" names a loss. Its outputs are logits like those of "paraphrase".',
    ),
    mistake(
        _WRONG_BINARY,
        "return lambda p, q: symmetric_kl(torch.stack([-p, p], -1), torch.stack([-q, q], -1), grad)",
        "The two classes get the logits -z and z. They should be 0 and z.",
    ),
]

VARIANTS["smoothness.distance"] = [
    """
def output_distance(goal, grad="full"):
    if isinstance(goal, ClippedCosineHead):
        return squared_difference
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
        Case(f"{label}, p = {p}", {"delta": x, "radius": r, "p": p})
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
    delta = into_ball(**inputs)
    return {"projected": delta, "dtype as it was": delta.dtype == inputs["delta"].dtype}


TRIALS["smoothness.ball"] = Trial(
    ball_cases,
    run_ball,
    subject="smart",
    hints=(
        "A point inside stays. Where is the nearest point of a circle, of a square?",
        (
            "In the l2 norm the whole vector is rescaled; in the infinity norm each coordinate is "
            "clamped separately."
        ),
        (
            "For 2: delta * (radius / length), with the length clamped to at least `radius`, so "
            "that no vector becomes longer. For infinity: clamp each coordinate."
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
        "delta.clamp(-radius, radius)",
        "delta * (radius / delta.abs().amax(-1, keepdim=True).clamp(min=radius))",
        "In the maximum norm the whole vector is scaled. The nearest point is found by clipping "
        "each dimension.",
    ),
    mistake(
        "return delta * (radius / length.clamp(min=radius))",
        "return delta.clamp(-radius, radius)",
        "In the Euclidean norm the dimensions are clipped one by one, which projects onto a cube.",
    ),
    mistake(
        "torch.linalg.vector_norm(delta, dim=-1, keepdim=True)",
        "torch.linalg.vector_norm(delta)",
        "The norm is computed over all perturbations together. Each one has its own ball.",
    ),
    mistake(
        "torch.linalg.vector_norm(delta, dim=-1, keepdim=True)",
        "torch.linalg.vector_norm(delta, dim=0, keepdim=True)",
        "The norm runs over the batch. It runs over the dimensions.",
    ),
    mistake(
        "(radius / length.clamp(min=radius))",
        "(length <= radius)",
        "Points outside are moved to the center. The nearest point is on the surface.",
    ),
    mistake(
        "delta.clamp(-radius, radius)",
        "delta.clamp_(-radius, radius)",
        "return delta * (radius",
        "return delta.mul_(radius",
        "The input is changed in place. Return a new tensor.",
    ),
    mistake(
        "delta.clamp(-radius, radius)",
        "delta.clamp(max=radius)",
        "Only large positive values are clipped. Clip at -radius too.",
    ),
]

VARIANTS["smoothness.ball"] = [
    """
def into_ball(delta, radius, p):
    if math.isinf(p):
        return torch.minimum(torch.maximum(delta, torch.tensor(-radius)), torch.tensor(radius)).to(
            delta.dtype
        )
    norm = delta.norm(p=2, dim=-1, keepdim=True)
    return torch.where(norm > radius, delta / norm.clamp(min=1e-30) * radius, delta)
""",
    """
def into_ball(delta, radius, p):
    if p == 2:
        return delta * torch.clamp(
            radius / delta.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-300), max=1
        )
    return delta.sign() * delta.abs().clamp(max=radius)
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
            "There are three parts: starting points, a search without graph, and the penalty with "
            "a graph for the perturbations that were found. Which of them need dropout off?"
        ),
        (
            '`ball_points` for each array (n points for "random", B for "pgd"), then '
            "`worst_shifts` or `projected_ascent` on the embeddings without graph, inside "
            "`evaluating(head)`."
        ),
        (
            "return distance(head(*perturbed(vectors, deltas)), head(*vectors)).mean() inside "
            "`evaluating`, with the embeddings that have the graph."
        ),
    ),
)


_WRONG_CHARGE = "return distance(head(*perturbed(vectors, deltas)), head(*vectors)).mean()"

MISTAKES["smoothness.sampled"] = [
    mistake(
        "    with evaluating(head):\n",
        "    if True:\n",
        "Dropout is active, so its noise is measured as well. Run the head in eval mode.",
    ),
    mistake(
        "    with evaluating(head):\n",
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
        _WRONG_CHARGE.replace("vectors", "fixed"),
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
        "projected_ascent(head, fixed, tuple(start), distance, radius, p, steps)",
        "tuple(start)",
        '"pgd" only uses its starting points. The projected gradient ascent is missing.',
    ),
    mistake(
        _WRONG_CHARGE,
        "with torch.no_grad():\n"
        "            return distance(head(*perturbed(vectors, deltas)), head(*vectors)).mean()",
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
            worst = projected_ascent(head, tuple(still), start, distance, radius, p, steps)
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
    with evaluating(head):
        clean = head(*vectors)
        if search == "pgd":
            begin = tuple(
                ball_points(len(x), x.shape[1], radius, p, where, generator, dtype=x.dtype)
                for x in vectors
            )
            shifts = projected_ascent(head, tuple(x.detach() for x in vectors), begin, far, radius, p, steps)
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
