"""Exercise cases of chapter 25: PCGrad and GradVac."""

import torch

from minbert.course.check_runner import ALIKE, SMALL, Case, Trial, fixed, mistake, probe

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def distinct(call, times):
    """Call a random function many times; give the distinct results, each as one number, sorted."""
    seen = []
    for _ in range(times):
        result = call()
        seen.append(float((result * probe(result, 0.9)).sum()))
    seen.sort()
    scale = max(map(abs, seen)) or 1.0
    return torch.tensor(
        [x for x, before in zip(seen, [-torch.inf, *seen]) if x - before > 1e-6 * scale],
        dtype=torch.float64,
    )


def repeats(call):
    """Largest difference between two calls whose generators are alike and torch's own random
    state is not: 0 if only the generator counts."""

    def once(seed, other):
        torch.default_generator.manual_seed(100 * seed + other)
        return call(torch.Generator().manual_seed(seed))

    return torch.stack([(once(seed, 1) - once(seed, 2)).abs().max() for seed in range(8)]).max()


def asked(name, call, inputs):
    """Call a function the way a case wants: once, often, or twice with generators that are
    alike. Give what was found under this name."""
    way, times = inputs.pop("ask", "once"), inputs.pop("times", 0)
    if way == "once":
        return {name: call(None)}
    if way == "twice":
        return {name: repeats(call)}
    rng = torch.Generator().manual_seed(7)
    seen = distinct(lambda: call(rng), times)
    return {"number of different results": len(seen), name: seen}


def with_cosines(generator, cosines, lengths, width):
    """Draw gradients (T, width) with these cosines and lengths, turned at random."""
    frame, _ = torch.linalg.qr(fixed(generator, width, len(cosines)))
    return torch.tensor(lengths, dtype=torch.float64)[:, None] * (
        torch.linalg.cholesky(torch.tensor(cosines, dtype=torch.float64)) @ frame.T
    )


CONFLICT = [[1, -0.45, -0.6], [-0.45, 1, -0.3], [-0.6, -0.3, 1]]  # each against each
PATIENCE = [
    [1, -0.87, -0.83],
    [-0.87, 1, 0.45],
    [-0.83, 0.45, 1],
]  # after two cuts the first works against its own original
ALONE = [
    [1, -0.6, -0.5, -0.45],
    [-0.6, 1, 0.35, 0.35],
    [-0.5, 0.35, 1, 0.35],
    [-0.45, 0.35, 0.35, 1],
]  # one against all: six orders, six results
MIXED = [
    [1, -0.3, 0.6],
    [-0.3, 1, 0.5],
    [0.6, 0.5, 1],
]  # only two of them conflict, before and after: no order counts
ORDERS, TWICE = (
    {"ask": "all orders", "times": 102},
    {"ask": "twice"},
)  # of eight results one is missed once in 100,000


# ---- pcgrad.weights
#
# The other gradients are visited in a random order, which changes the result, and two correct
# programs may draw orders in different ways. The set of results over all orders is the same, so a
# run calls often enough to see them all. With two tasks nothing is random. Gram matrices of two
# tasks in conflict, in agreement, and opposite; one task; three tasks. In one triple a projected
# gradient conflicts with its own original, which shows j = i. Zero gradients are skipped; one of
# norm 1e-17 shows a division by nearly zero.


def _gradients(generator):
    """Gradients, and how to ask about them."""

    def pair(cosine, a, b):
        return with_cosines(generator, [[1, cosine], [cosine, 1]], [a, b], 5)

    def three(cosines, lengths):
        return with_cosines(generator, cosines, lengths, 7)

    conflict, g = three(CONFLICT, [1.0, 2.0, 0.6]), fixed(generator, 1, 5)
    holes = torch.zeros(5, 5, dtype=torch.float64)
    holes[[1, 3]] = pair(-0.6, 2.0, 0.7)
    return [
        ("two in conflict", pair(-0.6, 2.0, 0.7), {}),
        ("two that agree", pair(0.4, 1.0, 3.0), {}),
        ("two in a conflict of one part in 500", pair(-0.002, 3.0, 1.0), {}),
        ("two opposite", torch.cat([g, -2.5 * g]), {}),
        ("small gradients", 1e-7 * pair(-0.5, 1.0, 2.0), {}),
        ("one task", fixed(generator, 1, 4), {}),
        ("a gradient of zeros", torch.cat([g, 0 * g]), {}),
        ("a gradient of length 1e-17", pair(-0.8, 1.5, 1e-17), {}),
        (
            "two in conflict among zeros: all results, over the orders",
            holes,
            {**ORDERS, "times": 20},
        ),
        ("three, two in conflict", three(MIXED, [0.7, 1.0, 1.8]), {}),
        ("three, each against each: all results, over the orders", conflict, ORDERS),
        ("three, each against each: difference between two runs with one seed", conflict, TWICE),
        (
            "three, one turns against itself: all results, over the orders",
            three(PATIENCE, [1.5, 0.8, 1.0]),
            ORDERS,
        ),
        (
            "four, one against all: all results, over the orders",
            three(ALONE, [1.0, 1.3, 0.7, 0.9]),
            {**ORDERS, "times": 75},
        ),
    ]


def weights_cases(generator):
    single = Case(
        "float32, as gradients come", {"gram": torch.tensor([[4.0, -2.0], [-2.0, 4.0]])}
    )  # halves: exact in either
    return [
        *(Case(label, {"gram": g @ g.T, **ask}) for label, g, ask in _gradients(generator)),
        single,
    ]


def run_weights(project_weights, inputs):
    gram, graphs, dtypes = inputs["gram"].requires_grad_(), [], set()

    def call(rng):
        weights = project_weights(gram, rng)
        graphs.append(weights.requires_grad)
        dtypes.add(weights.dtype)
        return weights.detach()

    return {
        **asked("weights", call, inputs),
        "weights in double precision": dtypes == {torch.float64},
        "the weights have a graph": any(graphs),
    }


TRIALS["pcgrad.weights"] = Trial(
    weights_cases,
    run_weights,
    replay=True,
    subject="pcgrad",
    rtol=1e-9,
    hints=(
        (
            "Write the loop with vectors first. Then ask of each line what it does to w, the "
            "numbers in g_i = w_1 g_1 + ... + w_T g_T."
        ),
        (
            "The product of the present g_i with the original g_j is (w G)_j. Cutting along g_j "
            "changes w_j and no other weight."
        ),
        (
            "For each task i: w = e_i; for each other j in a fresh order, inner = w @ gram[j]; if "
            "inner < 0, take inner / gram[j, j] off w[j]. Add up the w."
        ),
    ),
)


MISTAKES["pcgrad.weights"] = [
    mistake(
        "inner < 0",
        "inner > 0",
        "The condition is inverted: gradients that agree are projected, and conflicts stay.",
    ),
    mistake(
        "inner < 0 and ",
        "",
        "The conflict test is missing, so gradients that agree are projected as well.",
    ),
    mistake(
        "inner = w @ gram[j]  # () of the projected g_i with the original g_j",
        "inner = gram[i, j]",
        "The inner product is that of the original gradient. After the first projection use the "
        "projected one.",
    ),
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[j] -= inner / gram[i, i]",
        "The inner product is divided by the squared norm of the projected gradient. Divide by "
        "that of the other one.",
    ),
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[j] -= inner / gram[j, j].sqrt()",
        "The inner product is divided by the norm of g_j. Divide by its square.",
    ),
    mistake(
        "w[j] -= inner / gram[j, j]",
        "w[j] += inner / gram[j, j]",
        "The sign is wrong: the conflicting component is added again.",
    ),
    mistake(
        "for i, others in _orders(len(gram), generator):",
        "for i in range(len(gram)):\n        others = [j for j in range(len(gram)) if j != i]",
        "The other tasks are visited in a fixed order. The order should be random.",
    ),
    mistake(
        "_orders(len(gram), generator)",
        "_orders(len(gram), None)",
        "`generator` is not used, so runs are not reproducible.",
    ),
]

VARIANTS["pcgrad.weights"] = [
    """
def project_weights(gram, generator=None):
    G = gram.detach().double().cpu()
    T = G.shape[0]
    W = torch.eye(T, dtype=torch.float64)
    for i, others in ((i, [j for j in range(T) if j != i]) for i in range(T)):
        for k in torch.randperm(T - 1, generator=generator).tolist():
            j = others[k]
            overlap = torch.dot(W[i], G[:, j])
            if overlap < 0 and G[j, j] > 1e-30:
                W[i, j] = W[i, j] - overlap / G[j, j]
    return W.sum(dim=0)
""",
    """
def project_weights(gram, generator=None):
    G, counts = gram.detach().to("cpu", torch.float64), [1.0] * len(gram)
    for i in range(len(G)):
        row = G[i].clone()  # products of the present g_i with all originals
        for j in torch.rand(len(G), generator=generator).argsort().tolist():
            if j != i and row[j] < 0 and G[j, j] > 1e-30:
                share = float(row[j] / G[j, j])
                counts[j] -= share
                row = row - share * G[j]
    return torch.tensor(counts, dtype=torch.float64)
""",
]


# ---- pcgrad.project
#
# The same gradients as vectors, also in single precision and with the mean instead of the sum.
# The input may not change.


def project_cases(generator):
    two, three = (
        with_cosines(generator, c, n, 6)
        for c, n in (([[1, -0.7], [-0.7, 1]], [1.0, 0.4]), (MIXED, [1.0, 0.5, 2.0]))
    )
    return [Case(label, {"grads": g, **ask}) for label, g, ask in _gradients(generator)] + [
        Case("two, single precision", {"grads": two.float()}),
        Case(
            "two, nearly opposite, half precision",
            {
                "grads": (
                    300 * with_cosines(generator, [[1, -0.995], [-0.995, 1]], [1.0, 1.2], 6)
                ).half()
            },
        ),
        Case(
            "two, nearly opposite, bfloat16",
            {
                "grads": with_cosines(
                    generator, [[1, -0.995], [-0.995, 1]], [1.0, 1.2], 6
                ).bfloat16()
            },
        ),
        Case("the mean of two", {"grads": two, "reduction": "mean"}),
        Case("the mean of three", {"grads": three, "reduction": "mean"}),
    ]


def _off(step, grads):
    """Distance from the right step for two gradients in conflict, beside its length."""
    a, b = grads.detach().double()
    right = a + b - (a @ b) * (b / (b @ b) + a / (a @ a))
    return ((step.double() - right).norm() / right.norm()).nan_to_num(torch.inf)


def run_project(project_conflicting, inputs):
    reduction, grads, graphs = inputs.get("reduction", "sum"), inputs["grads"].requires_grad_(), []

    def call(rng):
        step = project_conflicting(grads, rng, reduction)
        graphs.append(step.requires_grad)
        return step.detach()

    found = asked("step", call, inputs)
    if grads.dtype in (torch.float16, torch.bfloat16):
        step = found["step"]
        return {
            "in the dtype of the gradients": step.dtype == grads.dtype,
            "the step has a graph": any(graphs),
            "distance to the right step, beside its length, is below .02": _off(step, grads) < 0.02,
        }
    return {
        **found,
        "the step has a graph": any(graphs),
        **(
            {}
            if len(inputs["grads"]) > 2
            else {"in the dtype of the gradients": found["step"].dtype == inputs["grads"].dtype}
        ),
    }


TRIALS["pcgrad.project"] = Trial(
    project_cases,
    run_project,
    subject="pcgrad",
    derive=(ALIKE, SMALL),
    hints=(
        (
            "Two loops. The outer copies one gradient, the inner lets it meet each of the others "
            "and cuts where they conflict. Which version of the other "
            "does it meet?"
        ),
        (
            "The part of g_i along g_j is (g_i . g_j / |g_j|²) g_j. Take it out only if the "
            "product is negative, and always use the original g_j."
        ),
        (
            "gram = grads @ grads.T; weights = project_weights(gram, generator); the step is "
            "weights @ grads. For the mean, divide by T."
        ),
    ),
)


_WRONG_TAIL = """gram = gram_matrix([grads])  # (T, T), float32 or wider
    weights = project_weights(gram, generator)  # (T,)
    if reduction == "mean":
        weights = weights / len(grads)
    return (weights.to(gram) @ grads.to(gram.dtype)).to(grads.dtype)"""


def _wrong_loop(
    says,
    begin="",
    order="torch.randperm(len(grads), generator=generator).tolist()",
    start="grads[i].clone()",
    meets="j != i",
    other="grads[j]",
    floor="other @ other > 1e-30",
    test="g @ other < 0",
    cut="g = g - g @ other / (other @ other) * other",
    keep="",
    share='len(grads) if reduction == "mean" else 1',
    more="g",
):
    """The paper's loop, with one of its parts replaced."""
    return mistake(
        _WRONG_TAIL,
        f"""{begin or "total = torch.zeros_like(grads[0])"}
    for i in range(len(grads)):
        g = {start}
        for j in {order}:
            other = {other}
            if {meets} and {floor} and {test}:
                {cut}{keep}
        total = total + {more}
    return total / ({share})""",
        says,
    )


MISTAKES["pcgrad.project"] = [
    _wrong_loop(
        "The condition is inverted: gradients that agree are projected, and conflicts stay.",
        test="g @ other > 0",
    ),
    _wrong_loop(
        "The conflict test is missing, so gradients that agree are projected as well.", test="True"
    ),
    _wrong_loop(
        "The conflict test uses the original gradient. After the first projection use the "
        "projected one.",
        test="grads[i] @ other < 0",
    ),
    _wrong_loop(
        "The inner product is divided by the norm of g_j. Divide by its square.",
        cut="g = g - g @ other / other.norm() * other",
    ),
    _wrong_loop(
        "The sign is wrong: the conflicting component is added again.",
        cut="g = g + g @ other / (other @ other) * other",
    ),
    _wrong_loop(
        "The projections use gradients that have been projected already. Use the originals.",
        begin="total, left = torch.zeros_like(grads[0]), [x.clone() for x in grads]",
        other="left[j]",
        keep="\n                left[i] = g",
    ),
    _wrong_loop(
        "The input gradients are changed in place, so later tasks and the caller get the "
        "projected ones.",
        start="grads[i]",
        cut="g -= g @ other / (other @ other) * other",
    ),
    _wrong_loop(
        "The other tasks are visited in a fixed order. The order should be random.",
        order="range(len(grads))",
    ),
]

VARIANTS["pcgrad.project"] = [
    """
def project_conflicting(grads, generator=None, reduction="sum"):
    cut = []
    dtype, grads = grads.dtype, grads.detach().to(torch.promote_types(grads.dtype, torch.float32))
    for i, own in enumerate(grads):
        g = own.clone()
        for j in torch.randperm(len(grads), generator=generator).tolist():
            if j != i:
                square = (grads[j] * grads[j]).sum()
                if square > 1e-30:
                    g = g - torch.clamp((g * grads[j]).sum() / square, max=0) * grads[j]
        cut.append(g)
    return (torch.stack(cut).sum(0) if reduction == "sum" else torch.stack(cut).mean(0)).to(dtype)
""",
    """
def project_conflicting(grads, generator=None, reduction="sum"):
    dtype, grads = grads.dtype, grads.detach().double()
    T, total = len(grads), torch.zeros_like(grads[0])
    for i in reversed(
        range(T)
    ):  # the tasks in another order, the permutations drawn in another way
        g = grads[i]
        for j in torch.rand(T, generator=generator).argsort():
            length = torch.linalg.vector_norm(grads[j])
            if int(j) != i and length > 1e-15:
                direction = grads[j] / length
                overlap = torch.dot(g, direction)
                if overlap.item() < 0:
                    g = g - overlap * direction
        total += g
    return (total / T if reduction == "mean" else total).to(dtype)
""",
]


# ---- pcgrad.vaccine
#
# A wrong formula gives the right result at f = r, so the cases avoid it. Two tasks at several
# targets: below and above the cosine, not symmetric, negative. Parallel and opposite gradients,
# zeros. Both update rules. Three tasks over all orders.


def vaccine_cases(generator):
    def pair(cosine, a=2.0, b=0.7):
        return with_cosines(generator, [[1, cosine], [cosine, 1]], [a, b], 5)

    def wanted(a, b):
        return torch.tensor([[0, a], [b, 0]], dtype=torch.float64)

    g = fixed(generator, 1, 5)
    two = {
        "first call: targets of 0": (pair(-0.4), wanted(0, 0)),
        "below its target": (pair(0.1), wanted(0.6, 0.3)),
        "above its target": (pair(0.8), wanted(0.2, -0.1)),
        "one above, one below": (pair(0.3), wanted(0.7, -0.5)),
        "negative targets": (pair(-0.7), wanted(-0.2, -0.4)),
        "parallel": (torch.cat([g, 3 * g]), wanted(0.4, 0.2)),
        "opposite": (torch.cat([g, -3 * g]), wanted(0.0, 0.3)),
        "a gradient of zeros": (torch.cat([g, 0 * g]), wanted(0.4, 0.2)),
    }
    rules = {
        "": {},
        ", beta .3": {"beta": 0.3},
        ", violations": {"beta": 0.3, "update": "violations"},
    }
    cases = [
        Case(label + rule, {"gram": g @ g.T, "targets": r, **more})
        for label, (g, r) in two.items()
        for rule, more in rules.items()
        if rule or label == "below its target"
    ]
    g, r = (
        with_cosines(generator, CONFLICT, [1.0, 0.5, 2.0], 6),
        0.2 + 0.3 * torch.rand(3, 3, generator=generator, dtype=torch.float64),
    )
    four = with_cosines(generator, ALONE, [1.0, 1.3, 0.7, 0.9], 7)
    holes = torch.zeros(5, 5, dtype=torch.float64)
    holes[[1, 3]] = pair(0.1)
    cases.append(
        Case(
            "two among zeros: all results, over the orders",
            {
                "gram": holes @ holes.T,
                "targets": torch.full((5, 5), 0.6, dtype=torch.float64),
                "beta": 0.3,
                **ORDERS,
                "times": 20,
            },
        )
    )

    def near(f):
        return torch.tensor(
            [[1.0, f], [f, 1.0]], dtype=torch.float64
        )  # rounding has carried the cosine beyond 1

    cases += [
        Case(
            "cosine and targets a little above 1",
            {"gram": near(1 + 1e-9), "targets": near(1 + 1e-12)},
        ),
        Case("a cosine a little below -1", {"gram": near(-1 - 1e-9), "targets": wanted(0.0, 0.3)}),
        Case("a target of 1", {"gram": near(0.5), "targets": wanted(1.0, 0.2)}),
        Case(
            "two that cancel, and a third: all results, over the orders",
            {
                "gram": torch.tensor(
                    [[1, -1, 0.3], [-1, 1, -0.3], [0.3, -0.3, 1]], dtype=torch.float64
                ),
                "targets": torch.zeros(3, 3, dtype=torch.float64),
                **ORDERS,
            },
        ),
    ]
    return cases + [
        Case(
            "three: all results, over the orders",
            {"gram": g @ g.T, "targets": r, "beta": 0.2, **ORDERS},
        ),
        Case(
            "three: difference between two runs with one seed",
            {"gram": g @ g.T, "targets": r, "beta": 0.2, **TWICE},
        ),
        Case(
            "four, one against all: all results, over the orders",
            {
                "gram": four @ four.T,
                "targets": torch.zeros(4, 4, dtype=torch.float64),
                "beta": 0.0,
                **ORDERS,
                "times": 75,
            },
        ),
    ]


def run_vaccine(vaccine_weights, inputs):
    dtypes, graphs = set(), []
    inputs["gram"].requires_grad_()

    def call(rng):
        weights, targets = vaccine_weights(
            **{name: x for name, x in inputs.items() if name not in ("ask", "times")}, generator=rng
        )
        dtypes.add(targets.dtype)
        graphs.append(weights.requires_grad or targets.requires_grad)
        return torch.cat([weights, targets[~torch.eye(len(targets), dtype=torch.bool)]]).detach()

    return {
        **asked("weights, then targets without the diagonal", call, inputs),
        "targets in double precision": dtypes == {torch.float64},
        "the results have a graph": any(graphs),
    }


TRIALS["pcgrad.vaccine"] = Trial(
    vaccine_cases,
    run_vaccine,
    subject="pcgrad",
    hints=(
        (
            "It is the loop of `project_weights` with another test and another piece of g_j. What "
            "are |g_i| and the cosine f, in terms of w and G?"
        ),
        (
            "|g_i|² is w G w, g_i . g_j is (w G)_j, both for the present g_i. The new w_j follows "
            "from the equation; the target moves by the f that was "
            "measured before the turn."
        ),
        (
            "w[j] += |g_i| (r √(1-f²) - f √(1-r²)) / (|g_j| √(1-r²)) if f < r; then targets[i, j] "
            "= (1 - beta) r + beta f, on a copy of the targets."
        ),
    ),
)


MISTAKES["pcgrad.vaccine"] = [
    mistake(
        "if f < r:\n",
        "if f > r:\n",
        "The condition is inverted: gradients that agree more than the target are changed.",
    ),
    mistake(
        "if f < r:\n",
        "if f < 0:\n",
        "Only negative cosines are changed, as in PCGrad. GradVac compares with the target cosine.",
    ),
    mistake(
        "square_i = (w @ gram @ w).item()",
        "square_i = gram[i, i].item()",
        "|g_i| is the norm of the original gradient. Use the current one.",
    ),
    mistake(
        "math.sqrt(square_i / square_j) *",
        "1 / math.sqrt(square_j) *",
        "|g_i| is missing, so the added component has the wrong length.",
    ),
    mistake(
        "(r * sin_f - f * sin_r) / sin_r",
        "(r * sin_r - f * sin_f) / sin_r",
        "The two square roots are swapped: √(1 - f²) belongs to the target r.",
    ),
    mistake(
        "(1 - beta) * r + beta * f",
        "beta * r + (1 - beta) * f",
        "beta and 1 - beta are swapped, so the target jumps to the newest cosine.",
    ),
    mistake(
        'if f < r or update == "all":',
        "if f < r:",
        "`update` is not used: only targets that were missed are updated.",
    ),
    mistake("targets.clone()", "targets", "`targets` is changed in place. Return a new tensor."),
]

VARIANTS["pcgrad.vaccine"] = [
    """
def vaccine_weights(gram, targets, beta=0.01, update="all", generator=None):
    G, R, T = gram.detach().cpu().double(), targets.clone(), len(gram)
    W = torch.eye(T, dtype=torch.float64)
    for i in range(T):
        for j in torch.randperm(T, generator=generator).tolist():
            if j == i:
                continue
            a, b = torch.sqrt(torch.clamp(W[i] @ G @ W[i], min=0)), G[j, j].clamp(min=0).sqrt()
            if a <= 1e-15 or b <= 1e-15:
                continue
            cosine, wanted = (W[i] @ G[:, j]) / a / b, R[i, j].clone()
            missed = bool(cosine < wanted)
            if missed:
                tangent = (1 - wanted**2).clamp(min=1e-12).sqrt()
                W[i, j] += a / b * (wanted * (1 - cosine**2).clamp(min=0).sqrt() / tangent - cosine)
            if missed or update == "all":
                R[i, j] = wanted + beta * (cosine - wanted)
    return W.sum(0), R
""",
    """
def vaccine_weights(gram, targets, beta=0.01, update="all", generator=None):
    G = gram.detach().double()
    new, total = torch.clone(targets), torch.zeros(len(G), dtype=torch.float64)
    for i in range(len(G)):
        mix = torch.zeros(len(G), dtype=torch.float64)
        mix[i] = 1
        for j in (k for k in torch.rand(len(G), generator=generator).argsort().tolist() if k != i):
            own, other = float(mix @ (G @ mix)), float(G[j, j])
            if own > 1e-30 and other > 1e-30:
                f, r = float(G[j] @ mix) / own ** 0.5 / other ** 0.5, float(targets[i, j])
                if f < r:                            # sin(a - b), from angles
                    a, b = math.acos(max(-1.0, min(1.0, f))), max(math.acos(r), 1e-6)
                    mix[j] += (own / other) ** 0.5 * math.sin(a - b) / math.sin(b)
                    new[i, j] = r - beta * (r - f)
                elif update == "all":
                    new[i, j] = r - beta * (r - f)
        total = total + mix
    return total, new
""",
]
