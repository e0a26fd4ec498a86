"""How the exercises of chapter 37 are checked: which numbers a random order leaves alone, and which mistakes people make."""


import torch

from minbert.course.trials import ALIKE, SMALL, Case, Trial, fixed, mistake, probe


# How do you check a function that draws at random? Surgery on three gradients visits the others in a random order, and the order changes the result.
# Two right programs may draw their orders in different ways. But the *set* of results over all orders is the same for both. So a run asks often
# enough to see them all, and compares what it has seen.
#
# With two tasks there is nothing to draw, and the numbers are compared as they are.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def distinct(call, times):
    """Call something random many times; give the different results, each as one number, in order."""
    seen = sorted(float((x * probe(x, 0.9)).sum()) for x in (call() for _ in range(times)))
    scale = max(map(abs, seen)) or 1.0
    return torch.tensor([x for x, before in zip(seen, [-torch.inf, *seen]) if x - before > 1e-6 * scale], dtype=torch.float64)


def repeats(call):
    """Largest difference between two calls whose generators are alike and torch's own random state is not: 0 if only the generator counts."""
    def once(seed, other):
        torch.default_generator.manual_seed(100 * seed + other)
        return call(torch.Generator().manual_seed(seed))

    return torch.stack([(once(seed, 1) - once(seed, 2)).abs().max() for seed in range(8)]).max()


def asked(name, call, inputs):
    """Call a function the way a case wants: once, often, or twice with generators that are alike. Give what was found under this name."""
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
    return torch.tensor(lengths, dtype=torch.float64)[:, None] * (torch.linalg.cholesky(torch.tensor(cosines, dtype=torch.float64)) @ frame.T)


CONFLICT = [[1, -0.45, -0.6], [-0.45, 1, -0.3], [-0.6, -0.3, 1]]     # each against each
PATIENCE = [[1, -0.87, -0.83], [-0.87, 1, 0.45], [-0.83, 0.45, 1]]  # after two cuts the first works against its own original
ALONE = [[1, -0.6, -0.5, -0.45], [-0.6, 1, 0.35, 0.35], [-0.5, 0.35, 1, 0.35], [-0.45, 0.35, 0.35, 1]]   # one against all: six orders, six results
MIXED = [[1, -0.3, 0.6], [-0.3, 1, 0.5], [0.6, 0.5, 1]]             # only two of them conflict, before and after: no order counts
ORDERS, TWICE = {"ask": "all orders", "times": 102}, {"ask": "twice"}   # of eight results one is missed once in 100,000


# ---- pcgrad.weights
#
# The loop on three numbers, a Gram matrix at a time. Two tasks in conflict, in agreement, opposite; one task; three, over all orders. In one of the
# triples a gradient, after two cuts, works against its own original: that tells `j = i`. Zeros among them, in any order: they are passed over. A
# gradient of length 1e-17 tells who divides by what is nearly zero.

def _gradients(generator):
    """Gradients, and how to ask about them."""
    pair = lambda cosine, a, b: with_cosines(generator, [[1, cosine], [cosine, 1]], [a, b], 5)
    three = lambda cosines, lengths: with_cosines(generator, cosines, lengths, 7)
    conflict, g = three(CONFLICT, [1.0, 2.0, 0.6]), fixed(generator, 1, 5)
    holes = torch.zeros(5, 5, dtype=torch.float64)
    holes[[1, 3]] = pair(-0.6, 2.0, 0.7)
    return [("two in conflict", pair(-0.6, 2.0, 0.7), {}),
            ("two that agree", pair(0.4, 1.0, 3.0), {}),
            ("two in a conflict of one part in 500", pair(-0.002, 3.0, 1.0), {}),
            ("two opposite", torch.cat([g, -2.5 * g]), {}),
            ("small gradients", 1e-7 * pair(-0.5, 1.0, 2.0), {}),
            ("one task", fixed(generator, 1, 4), {}),
            ("a gradient of zeros", torch.cat([g, 0 * g]), {}),
            ("a gradient of length 1e-17", pair(-0.8, 1.5, 1e-17), {}),
            ("two in conflict among zeros: all results, over the orders", holes, {**ORDERS, "times": 20}),
            ("three, two in conflict", three(MIXED, [0.7, 1.0, 1.8]), {}),
            ("three, each against each: all results, over the orders", conflict, ORDERS),
            ("three, each against each: difference between two runs with one seed", conflict, TWICE),
            ("three, one turns against itself: all results, over the orders", three(PATIENCE, [1.5, 0.8, 1.0]), ORDERS),
            ("four, one against all: all results, over the orders", three(ALONE, [1.0, 1.3, 0.7, 0.9]), {**ORDERS, "times": 75})]


def weights_cases(generator):
    single = Case("float32, as gradients come", {"gram": torch.tensor([[4.0, -2.0], [-2.0, 4.0]])})   # halves: exact in either
    return [*(Case(label, {"gram": g @ g.T, **ask}) for label, g, ask in _gradients(generator)), single]


def run_weights(project_weights, inputs):
    gram, graphs, dtypes = inputs["gram"].requires_grad_(), [], set()

    def call(rng):
        weights = project_weights(gram, rng)
        graphs.append(weights.requires_grad)
        dtypes.add(weights.dtype)
        return weights.detach()

    return {**asked("weights", call, inputs), "weights in double precision": dtypes == {torch.float64}, "the weights have a graph": any(graphs)}


TRIALS["pcgrad.weights"] = Trial(weights_cases, run_weights, replay=True, subject="pcgrad", rtol=1e-9, hints=(
    "Write the loop with vectors first. Then ask of each line what it does to w, the numbers in g_i = w_1 g_1 + ... + w_T g_T.",
    "The product of the present g_i with the original g_j is (w G)_j. Cutting along g_j changes w_j and no other weight.",
    "For each task i: w = e_i; for each other j in a fresh order, inner = w @ gram[j]; if inner < 0, take inner / gram[j, j] off w[j]. Add up the w."))


MISTAKES["pcgrad.weights"] = [
    mistake("inner < 0", "inner > 0", "The sign of the test is turned: agreement is cut away, and the conflict stays."),
    mistake("w[j] -= inner / gram[j, j]", "w[j] -= inner / gram[j, j]\n                break", "Only the first conflict of each task is cut; the loop ends there."),
    mistake("            if inner < 0 and gram[j, j] > _FLOOR:", "            if gram[j, j] <= _FLOOR:\n                break\n            if inner < 0:",
        "The loop ends at a gradient of zeros; it should pass over it and go on with the others."),
    mistake("gram.detach().cpu().double()", "gram.detach().cpu()", "w = torch.zeros_like(total)", "w = torch.zeros_like(total, dtype=gram.dtype)", "    return total", "    return total.to(gram)",
        "The weights are in the dtype of `gram`. They are asked for in double precision: cut after cut the rounding adds up."),
    mistake("gram.detach().cpu()", "gram.cpu()", "The weights carry a graph. They are plain numbers: nobody differentiates the surgery."),
    mistake("_orders(len(gram), generator)", "_orders(len(gram), generator.clone_state() if generator else None)", "The generator is copied and stays where it was, so every step has the same orders."),
    mistake("inner < 0 and ", "", "There is no test for conflict, so agreement is removed as well."),
    mistake("inner = w @ gram[j]  # () of the present g_i with the original g_j", "inner = gram[i, j]",
        "The overlap is that of the original gradients; after the first cut g_i is another vector."),
    mistake("w[j] -= inner / gram[j, j]", "w[j] -= inner / gram[i, i]",
        "The overlap is divided by the squared length of the gradient that is cut, not of the one it is cut along."),
    mistake("w[j] -= inner / gram[j, j]", "w[j] -= inner / gram[j, j].sqrt()",
        "The overlap is divided by the length of g_j; a projection divides by the square of it."),
    mistake("w[j] -= inner / gram[j, j]", "w[j] += inner / gram[j, j]", "The part in conflict is added once more instead of being taken out."),
    mistake("w[j] -= inner / gram[j, j]", "w[i] -= inner / gram[j, j]",
        "The cut changes the weight of g_i itself. What is subtracted is a piece of g_j."),
    mistake("    return total", "    return total / len(gram)", "The rows are averaged; they are to be added up."),
    mistake("for i, others in _orders(len(gram), generator):",
        "for i in range(len(gram)):\n        others = torch.randperm(len(gram), generator=generator).tolist()",
        "A gradient meets itself as well (j = i). After two cuts it can work against its own original, and is cut along it."),
    mistake("for i, others in _orders(len(gram), generator):", "for i in range(len(gram)):\n        others = [j for j in range(len(gram)) if j != i]",
        "The others are visited in the same order every time, so the first task always has the first cut."),
    mistake("for i, others in _orders(len(gram), generator):",
        "order = torch.randperm(len(gram), generator=generator).tolist()\n    for i in range(len(gram)):\n        others = [j for j in order if "
        "j != i]",
        "One order is drawn for the whole call. Each task should draw its own."),
    mistake("for i, others in _orders(len(gram), generator):",
        "for i in range(len(gram)):\n        others = [j for j in range(len(gram)) if j != i]\n        k = int(torch.randint(len(others), (), generator=generator)) if others else 0\n        "
        "others = others[k:] + others[:k]",
        "Only the start is drawn; the others follow in a fixed circle. With four tasks that is half of the orders."),
    mistake("_orders(len(gram), generator)", "_orders(len(gram), None)", "The generator is not used: runs with the same seed differ."),
    mistake(" and gram[j, j] > _FLOOR", "",
        "A gradient that is nearly zero is not passed over, so its direction, mere rounding, is cut out of the others."),
    mistake("w = torch.zeros_like(total)\n        w[i] = 1.0", "w = total.clone()\n        w[i] += 1.0",
        "A task goes on from the weights of the tasks before it, where it should begin with its own gradient alone."),
    mistake("for i, others in _orders(len(gram), generator):\n        w =",
        "mixtures = torch.eye(len(gram), dtype=torch.float64)\n    for i, others in _orders(len(gram), generator):\n        w =",
        "w[i] = 1.0\n        for", "w[i] = 1.0\n        mixtures[i] = w\n        for",
        "inner = w @ gram[j]", "inner = w @ gram @ mixtures[j]", "gram[j, j] > _FLOOR:", "(mixtures[j] @ gram @ mixtures[j]) > _FLOOR:",
        "w[j] -= inner / gram[j, j]\n", "w -= inner / (mixtures[j] @ gram @ mixtures[j]) * mixtures[j]\n                mixtures[i] = w\n",
        "The cuts run along gradients that have been cut already. They should run along the originals."),
    mistake("if inner < 0 and", "if gram[i, j] < 0 and", "The test asks the original gradients, but after the first cut g_i is another vector."),
    mistake("w[j] -= inner / gram[j, j]", "w[j] -= inner / (gram[i, i] * gram[j, j]).sqrt()", "The cosine is taken for the share of g_j: the overlap is divided by both lengths."),
    mistake("total += w", "total = w", "Only the weights of the last task come back. Those of all are added up."),
]

VARIANTS["pcgrad.weights"] = [
    '''
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
''', '''
def project_weights(gram, generator=None):
    G, counts = gram.detach().to("cpu", torch.float64), [1.0] * len(gram)
    for i in range(len(G)):
        row = G[i].clone()                           # products of the present g_i with all originals
        for j in torch.rand(len(G), generator=generator).argsort().tolist():
            if j != i and row[j] < 0 and G[j, j] > 1e-30:
                share = float(row[j] / G[j, j])
                counts[j] -= share
                row = row - share * G[j]
    return torch.tensor(counts, dtype=torch.float64)
''',
]


# ---- pcgrad.project
#
# The same gradients, as vectors. Also in single precision, and with the mean in place of the sum. The inputs may not be touched.

def project_cases(generator):
    two, three = (with_cosines(generator, c, n, 6) for c, n in (([[1, -0.7], [-0.7, 1]], [1.0, 0.4]), (MIXED, [1.0, 0.5, 2.0])))
    return [Case(label, {"grads": g, **ask}) for label, g, ask in _gradients(generator)] + [
        Case("two, single precision", {"grads": two.float()}), Case("two, nearly opposite, half precision", {"grads": (300 * with_cosines(generator, [[1, -0.995], [-0.995, 1]], [1.0, 1.2], 6)).half()}),
        Case("two, nearly opposite, bfloat16", {"grads": with_cosines(generator, [[1, -0.995], [-0.995, 1]], [1.0, 1.2], 6).bfloat16()}), Case("the mean of two", {"grads": two, "reduction": "mean"}),
        Case("the mean of three", {"grads": three, "reduction": "mean"})]


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
        return {"in the dtype of the gradients": step.dtype == grads.dtype, "the step has a graph": any(graphs), "distance to the right step, beside its length, is below .02": _off(step, grads) < 0.02}
    return {**found, "the step has a graph": any(graphs), **({} if len(inputs["grads"]) > 2 else {"in the dtype of the gradients": found["step"].dtype == inputs["grads"].dtype})}


TRIALS["pcgrad.project"] = Trial(project_cases, run_project, subject="pcgrad", derive=(ALIKE, SMALL), hints=(
    "Two loops. The outer copies one gradient, the inner lets it meet each of the others and cuts where they conflict. Which version of the other "
    "does it meet?",
    "The part of g_i along g_j is (g_i . g_j / |g_j|²) g_j. Take it out only if the product is negative, and always use the original g_j.",
    "gram = grads @ grads.T; weights = project_weights(gram, generator); the step is weights @ grads. For the mean, divide by T."))


_WRONG_TAIL = '''gram = _gram([grads])
    _check_lengths(gram, range(len(grads)))
    weights = project_weights(gram, generator) / (len(grads) if reduction == "mean" else 1)
    return (weights.to(gram) @ grads.to(gram.dtype)).to(grads.dtype)'''


def _wrong_loop(says, begin="", order="torch.randperm(len(grads), generator=generator).tolist()", start="grads[i].clone()", meets="j != i",
    other="grads[j]",
                floor="other @ other > 1e-30", test="g @ other < 0", cut="g = g - g @ other / (other @ other) * other", keep="",
                    share='len(grads) if reduction == "mean" else 1', more="g"):
    """The paper's loop, with one of its parts replaced."""
    return mistake(_WRONG_TAIL, f'''{begin or "total = torch.zeros_like(grads[0])"}
    for i in range(len(grads)):
        g = {start}
        for j in {order}:
            other = {other}
            if {meets} and {floor} and {test}:
                {cut}{keep}
        total = total + {more}
    return total / ({share})''', says)


MISTAKES["pcgrad.project"] = [
    _wrong_loop("The sign of the test is turned: agreement is cut away, and the conflict stays.", test="g @ other > 0"),
    _wrong_loop("There is no test for conflict, so agreement is removed as well.", test="True"),
    _wrong_loop("The test asks the original gradients, but after the first cut g_i is another vector, which may conflict where the original did not.",
        test="grads[i] @ other < 0"),
    _wrong_loop("All overlaps are measured on the original g_i and taken out together. Each cut should see what the one before has left.",
                test="grads[i] @ other < 0", cut="g = g - grads[i] @ other / (other @ other) * other"),
    _wrong_loop("The overlap is divided by the length of g_j; a projection divides by the square of it.",
        cut="g = g - g @ other / other.norm() * other"),
    _wrong_loop("The overlap is divided by the squared length of the gradient that is cut, not of the one it is cut along.",
        cut="g = g - g @ other / (g @ g) * other"),
    _wrong_loop("The cosine is taken for the share of g_j: the overlap is divided by both lengths.",
        cut="g = g - g @ other / (other.norm() * g.norm()) * other"),
    _wrong_loop("The overlap is not divided by anything, so the cut has the right direction and the wrong length.", cut="g = g - g @ other * other"),
    _wrong_loop("The part in conflict is added once more instead of being taken out.", cut="g = g + g @ other / (other @ other) * other"),
    _wrong_loop("The cut runs along g_i itself: it shortens the gradient and leaves its direction.", cut="g = g - g @ other / (other @ other) * g"),
    _wrong_loop("The cuts run along gradients that have been cut already. They should run along the originals.",
                begin="total, left = torch.zeros_like(grads[0]), [x.clone() for x in grads]", other="left[j]", keep="\n                left[i] = g"),
    _wrong_loop("The gradients that came in are changed in place, so later tasks meet what is left of them, and so does the caller.",
                start="grads[i]", cut="g -= g @ other / (other @ other) * other"),
    _wrong_loop("A gradient meets itself as well (j = i). After two cuts it can work against its own original, and is cut along it.", meets="True"),
    _wrong_loop("Only one of two gradients in conflict gives in. Each has to give up its part.", meets="j < i"),
    _wrong_loop("The others are visited in the same order every time, so the first task always has the first cut.", order="range(len(grads))"),
    _wrong_loop("One order is drawn for the whole call. Each task should draw its own.",
                begin="total, order = torch.zeros_like(grads[0]), torch.randperm(len(grads), generator=generator).tolist()", order="order"),
    mistake("gram = _gram([grads])", "gram = (grads @ grads.T)",
        "The inner products are computed in half precision: squares overflow, and what nearly cancels is lost in rounding. They should be widened to single."),
    mistake("grads = grads.detach()", "pass", "The step carries a graph. It is a gradient: nobody differentiates it."),
    mistake(".to(grads.dtype)", ".float()", "The step comes in single precision; it should have the dtype of the gradients."),
    mistake("project_weights(gram, generator)", "project_weights(gram, generator.clone_state() if generator else None)",
        "The generator is copied and stays where it was, so every step has the same orders."),
    _wrong_loop("The generator is not used: runs with the same seed differ.", order="torch.randperm(len(grads)).tolist()"),
    _wrong_loop("Only the first conflict of each task is cut; the loop ends there.", keep="\n                break"),
    _wrong_loop("The result is always a mean; the sum is the default.", share="len(grads)"),
    _wrong_loop("`reduction` is not used: the mean is asked for and the sum comes back.", share="1"),
    _wrong_loop("A constant in the denominator, there against zeros, swallows the cut when gradients are small.",
        cut="g = g - g @ other / (other @ other + 1e-8) * other"),
    _wrong_loop("A gradient that is nearly zero is not passed over, so its direction, mere rounding, is cut out of the others.", floor="True"),
    _wrong_loop("The loop runs in the precision of the gradients. In half precision squares overflow, so the gradients should be widened to single first."),
    _wrong_loop("`reduction` \"mean\" divides by the number of weights; a mean over tasks divides by T.", share='grads.shape[1] if reduction == "mean" else 1'),
    _wrong_loop("The last task is in no order, so nobody meets it.", order="torch.randperm(len(grads) - 1, generator=generator).tolist()"),
    _wrong_loop("A gradient of zeros is divided by its length, 0: that is NaN.", floor="True", test="True", cut="g = g - (g @ other / (other @ other)).clamp(max=0) * other"),
    _wrong_loop("Each gradient is brought back to the length it had. What is cut off stays off.", more="g * grads[i].norm() / g.norm()"),
    _wrong_loop("A gradient in conflict is dropped as a whole. Only its part against the other goes.", cut="g = torch.zeros_like(g)"),
    _wrong_loop("Only the gradient of the last task comes back; all are added up.", more="g - total"),
    _wrong_loop("The orders come from Python's `random`, which `generator` knows nothing of.", order='__import__("random").sample(range(len(grads)), len(grads))'),
    _wrong_loop("The order goes by the size of the conflict. It is drawn.", order="(grads @ grads[i]).argsort().tolist()"),
    mistake(".to(grads.dtype)", ".double()", "The step comes in double precision; it should have the dtype of the gradients."),
    mistake("    gram = _gram([grads])\n    _check_lengths(gram, range(len(grads)))\n    weights = project_weights(gram, generator) / (len(grads) if reduction == \"mean\" else 1)\n    return (weights.to(gram) @ grads.to(gram.dtype)).to(grads.dtype)",
            "    total = grads.sum(0)\n    for g in grads:\n        if total @ g < 0:\n            total = total - total @ g / (g @ g) * g\n    return total / (len(grads) if reduction == \"mean\" else 1)",
            "The sum is cut along each gradient. Each gradient gives in before it is added."),
]

VARIANTS["pcgrad.project"] = [
    '''
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
''', '''
def project_conflicting(grads, generator=None, reduction="sum"):
    dtype, grads = grads.dtype, grads.detach().double()
    T, total = len(grads), torch.zeros_like(grads[0])
    for i in reversed(range(T)):                     # the tasks in another order, the permutations drawn in another way
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
''',
]


# ---- How strong are they?

# ---- Next
#
# - Ask 12 times instead of 120. How often does the check refuse a right program?
# - Which mistakes pass if all gradients have length 1?
