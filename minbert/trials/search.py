"""How the second half of chapter 32 is checked: maxima that everybody who searches rightly has to find."""


import math

import torch

from minbert.course.trials import SMALL, Case, Trial, fixed, mistake, probed
from minbert.trials.smooth import made_head


# Two searches that draw otherwise find other points. When must they find the same answer? On a line, where the ball is two points; among points
# that are given; and where a formula knows the maximum.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- smoothness.worst
#
# Given points, so nothing is drawn: one linear head, one that sees two vectors, one with a cosine. More points than rows and more rows than a chunk, so that
# an index has to survive being cut into chunks; a last chunk that is shorter than the others, and holds some of the worst.

def worst_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    (u, v), (d, e) = fixed(generator, 2, 5, 4), fixed(generator, 2, 40, 4)
    d[-2:], e[-2:] = 12 * d[-2:], 12 * e[-2:]                            # the worst of some rows are in the last chunk, a short one
    more = {"du": d, "dv": e}
    return [Case("classes", {"head": "classes", "seed": seed, "u": u, "du": d}),
            Case("classes, in small chunks", {"head": "classes", "seed": seed, "u": u, "du": d, "limit": 105}),
            Case("pairs", {"head": "pair", "seed": seed, "u": u, "v": v, **more}),
            Case("pairs, one point at a time", {"head": "pair", "seed": seed, "u": u, "v": v, **more, "limit": 1}),
            Case("pairs and a cosine, in small chunks", {"head": "cosine", "seed": seed, "u": u, "v": v, **more, "limit": 45}),
            Case("one row", {"head": "cosine", "seed": seed, "u": u[:1], "v": v[:1], **more}),
            Case("one point", {"head": "classes", "seed": seed, "u": u, "du": d[:1]}),
            Case("a distance with a direction", {"head": "pair", "seed": seed, "u": u, "v": v, **more, "aim": True})]


def run_worst(worst, inputs):
    vectors, shifts = (tuple(inputs[name] for name in names if name in inputs) for names in (("u", "v"), ("du", "dv")))
    distance = (lambda p, q: (p.softmax(-1) - q.softmax(-1)).abs().sum(-1)) if inputs["head"] == "classes" else (lambda p, q: (p - q).square())
    distance = (lambda p, q: p * (p - q)) if "aim" in inputs else distance
    more, sizes = {"limit": inputs["limit"]} if "limit" in inputs else {}, []
    measured = lambda p, q: sizes.append(p.numel()) or distance(p, q)
    found = worst(made_head(inputs["head"], inputs["seed"]).eval(), vectors, shifts, measured, **more)
    whole = len(vectors[0]) * len(shifts[0]) * (3 if inputs["head"] == "classes" else 1)
    return {f"best shift of vector {i}": d for i, d in enumerate(found)} | {"vectors": len(found), "all answers at once, above the limit": max(sizes, default=0) >= whole > inputs.get("limit", whole)}


TRIALS["smoothness.worst"] = Trial(worst_cases, run_worst, subject="smart", derive=(SMALL,), hints=(
    "For every row and every point: how far does the answer move? That is a table (B, n). What do you take of each row?",
    "`_outputs_at(head, vectors, shifts)` gives (B, n) or (B, n, C). The distance to the answer without a shift is (B, n); argmax along n.",
    "Cut the shifts into chunks, collect the (B, k) distances, torch.cat along 1, argmax(1), and give d[best] of each vector's shifts."))


MISTAKES["smoothness.worst"] = [
    mistake("size = max(1, limit // (clean.numel() if type(head) in _SHORTCUTS else vectors[0].numel()))", "size = len(shifts[0])",
        "`limit` is not used: all points are tried at once, and B n C answers may not fit into memory."),
    mistake("size = max(1, limit // (clean.numel() if type(head) in _SHORTCUTS else vectors[0].numel()))", "size = limit",
        "A chunk holds `limit` points. It should hold `limit` numbers: each point has an answer for every row and class."),
    mistake("torch.cat(found, 1).argmax(1)", "torch.cat(found, 1).argmin(1)",
        "The smallest move is taken. The worst point is the one with the largest."),
    mistake("torch.cat(found, 1).argmax(1)", "torch.cat(found, 1).sum(0).argmax().expand(len(vectors[0]))",
        "One point is taken for all rows. Each row has its own worst."),
    mistake("torch.cat(found, 1).argmax(1)", "found[-1].argmax(1)", "Only the last chunk is looked at."),
    mistake("*(d.split(size) for d in shifts)", "*(d[: max(size, len(d) // size * size)].split(size) for d in shifts)",
        "The last chunk is lost when it is shorter than the others."),
    mistake("torch.cat(found, 1).argmax(1)",
        "torch.stack([f.argmax(1) for f in found])[torch.stack([f.amax(1) for f in found]).argmax(0), torch.arange(len(vectors[0]))]",
        "The place within a chunk is taken for the place among all points."),
    mistake("found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "gap = moved - clean\n        found.append(gap.sum(-1) if gap.ndim == 3 else gap)",
        "Differences with their sign are compared: a large move downwards counts as small. The distance is what counts."),
    mistake("found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "found.append(distance(moved, moved.mean(1, keepdim=True).expand_as(moved)))",
        "The moved answers are compared with their mean instead of the answer without a shift."),
    mistake("found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "found.append(sum(d.norm(dim=-1) for d in part).expand(len(vectors[0]), -1))",
        "The longest shift is taken, not the one that moves the answer most."),
    mistake("tuple(d[best] for d in shifts)", "(shifts[0][best], *(d[torch.roll(best, 1)] for d in shifts[1:]))",
        "The second vector gets the shift of another row. Both belong to one point."),
    mistake("tuple(d[best] for d in shifts)", "tuple(d[best.clamp(max=len(vectors[0]) - 1)] for d in shifts)",
        "The number of a point is cut to the number of rows."),
    mistake("return tuple(d[best] for d in shifts)", "return tuple(x + d[best] for x, d in zip(vectors, shifts))", "The moved vectors come back. The shifts alone were asked for."),
]

VARIANTS["smoothness.worst"] = [
    '''
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
''', '''
@torch.no_grad()
def worst_shifts(head, vectors, shifts, distance, limit=2**18):
    rows = []
    for i in range(len(vectors[0])):
        n = len(shifts[0])
        still = [x[i].expand(n, -1) for x in vectors]
        far = distance(head(*(x + d for x, d in zip(still, shifts))), head(*still))
        rows.append(int(torch.argmax(far)))
    return tuple(torch.stack([d[k] for k in rows]) for d in shifts)
''',
]


# ---- smoothness.sampled
#
# A head that gives back what it gets shows which points are tried. On a line the random search has one answer; on a box the climb of a linear head
# ends in a corner. The heads come in train mode with dropout on, and one part of it off: both passes are without dropout, and afterwards everything
# is as before. The gradients of vectors and weights are compared. One weight does not learn, and does not learn afterwards.

def sampled_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    line, wide = fixed(generator, 2, 5, 1), fixed(generator, 2, 5, 4)
    case = lambda label, head, x, **way: Case(label, {"head": head, "seed": seed, "u": x[0], **({} if "classes" in head else {"v": x[1]}), **way})
    found = [case(f"{head}, at random", head, line, radius=0.3, points=64) for head in ("classes of a line", "pair on a line", "yes on a line")]
    return found + [case("in another norm", "pair on a line", line, radius=0.2, points=64, p=math.inf),
                    case("climbing in a box", "pair", wide, radius=0.1, p=math.inf, search="pgd", steps=3),
                    case("climbing in a ball", "pair", wide, radius=0.4, search="pgd"),
                    case("a distance of one's own", "classes of a line", line, radius=0.5, points=64, own=True),
                    case("climbing, by a distance that knows the way", "pair", wide, radius=0.1, p=math.inf, search="pgd", steps=3, aim=True),
                    Case("as many steps as asked for", {"u": wide[0], "radius": 0.3, "search": "pgd"}),
                    *(Case(f"{where} of another norm", {"u": wide[0], "p": 1.5, "radius": 0.3, "points": 50, "where": where}) for where in ("surface", "volume")),
                    case("the default radius", "pair on a line", line)]


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

    sampled_smoothness(Mirror(), (u,), **inputs, distance=distance, generator=torch.Generator().manual_seed(5))
    size = torch.linalg.vector_norm(torch.cat(moves), inputs["p"], -1) / inputs["radius"]
    size = size[size > 0]
    return {"as many answers as points and rows": len(size) >= inputs["points"] * len(u), "no more of them than that": len(size) < 2 * (inputs["points"] + 1) * len(u),
        "largest norm / radius is about 1": (0.95 < size.max() < 1.0001).item(),
            "smallest norm / radius is about 1": size.min().item() > 0.95}


def _steps(sampled_smoothness, u, inputs):
    """Say whether more steps of an ascent look at more answers."""
    def asked(steps):
        seen = []
        distance = lambda p, q: seen.append(p) or (p - q).square().sum(-1)
        sampled_smoothness(Mirror(), (u,), **inputs, steps=steps, distance=distance, generator=torch.Generator().manual_seed(5))
        starts.append((seen[0] - u).detach().round(decimals=9))
        return len(seen)

    starts = []
    return {"more steps look at more answers": asked(0) < asked(3) < asked(9), "each row starts at a point of its own": len(starts[0].unique(dim=0)) == len(u)}


def run_sampled(sampled_smoothness, inputs):
    if "head" not in inputs:
        return _seen(sampled_smoothness, inputs)
    head, vectors = made_head(inputs.pop("head"), inputs.pop("seed")), [inputs.pop(name) for name in ("u", "v") if name in inputs]
    own = inputs.pop("own", False)
    if own:
        inputs["distance"] = lambda p, q: (p - q).abs().sum(-1)
        head.linear.bias.requires_grad_(False)                         # a weight that does not learn, and should not begin to
    if inputs.pop("aim", False):
        inputs["distance"] = lambda p, q: (p - q) * q
    head.drop.eval()
    head.linear.train()
    with probed():
        leaves = tuple(x.clone().requires_grad_() for x in vectors)
        loss = sampled_smoothness(head, leaves, **inputs, generator=torch.Generator().manual_seed(5))
        modes = [part.training for part in head.modules()]
        head.drop.train()
        again = sampled_smoothness(head, leaves, **inputs, generator=torch.Generator().manual_seed(6))
    learned = [w for w in head.parameters() if w.requires_grad]
    slopes = torch.autograd.grad(again, [*leaves, *learned], allow_unused=True, materialize_grads=True) if again.requires_grad else []
    return {"penalty": loss, "penalty, another seed": again, "parts in train mode afterwards": modes, "weights that learn": [w.requires_grad for w in head.parameters()]} | {f"gradient {i}": g for i,
        g in enumerate(slopes)}


TRIALS["smoothness.sampled"] = Trial(sampled_cases, run_sampled, subject="smart", derive=(), hints=(
    "Three parts: points to begin with, a search without gradient, and the charge with gradient for what was found. Which of them need dropout off?",
    "`ball_points` for each vector (n points for \"random\", B for \"pgd\"), then `worst_shifts` or `_ascend` on the vectors without graph, inside "
    "`_evaluating(head)`.",
    "return distance(head(*(x + d ...)), head(*vectors)).mean() inside `_evaluating`, with the vectors that have the graph."))


_WRONG_CHARGE = "return distance(head(*(x + d for x, d in zip(vectors, shifts))), head(*vectors)).mean()"

MISTAKES["smoothness.sampled"] = [
    mistake("    with _evaluating(head):\n", "    if True:\n", "Dropout is on, and moves the answer more than the shift does."),
    mistake("        " + _WRONG_CHARGE, "    " + _WRONG_CHARGE, "The charge is computed after the head is back in train mode, with dropout."),
    mistake("    with _evaluating(head):\n", "    head.eval()\n    if True:\n",
        "The head is left in eval mode: from here on it trains without dropout."),
    mistake("    with _evaluating(head):\n        shifts", "    head.eval()\n    if True:\n        shifts", _WRONG_CHARGE,
        "loss" + _WRONG_CHARGE[6:].replace("distance", " = distance", 1) + "\n    head.train()\n    return loss",
        "All parts are put into train mode afterwards; a part may have been in eval mode before."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("head(*vectors))", "head(*vectors).detach())"),
        "The clean answer is constant in the charge, so half of the gradient is missing."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("zip(vectors", "zip(fixed").replace("head(*vectors)", "head(*fixed)"),
        "The charge is computed on vectors without graph: the encoder learns nothing from it."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace(".mean()", ".sum()"), "The rows are added up; the penalty is their mean."),
    mistake("radius, p, steps))", "radius, p, 10))", "`steps` is not used: the climb always has ten."),
    mistake("points if random else B", "1000 if random else B", "`points` is not used: there are always a thousand."),
    mistake("    with _evaluating(head):\n", "    head.requires_grad_(False)\n    head.requires_grad_(True)\n    with _evaluating(head):\n",
        "All weights learn afterwards; one may have been frozen before."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace(".mean()", ".max()"),
        "Only the worst row is charged. The maximum is over shifts, and the rows are averaged."),
    mistake(_WRONG_CHARGE, "return distance(head(vectors[0] + shifts[0], *vectors[1:]), head(*vectors)).mean()",
        "Only the first vector of a pair is moved; each has its own ball."),
    mistake("for x in fixed)\n", "for x in fixed)\n    shifts = tuple(shifts[0] for _ in shifts)\n",
        "Both vectors of a pair get the same points, so they never move apart."),
    mistake("distance or output_distance(head)", "output_distance(head)", "`distance` is not used."),
    mistake("_ascend(head, fixed, shifts, distance, radius, p, steps))", "shifts)", "\"pgd\" only takes the points it begins with; nobody climbs."),
    mistake(_WRONG_CHARGE, "with torch.no_grad():\n            return distance(head(*(x + d for x, d in zip(vectors, shifts))), "
        "head(*vectors)).mean()", "The charge has no gradient, so it is a number that teaches nothing."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("zip(vectors, shifts))),", "zip(vectors, shifts))).detach(),"), "The moved answer is constant in the charge, so half of the gradient is missing."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("zip(vectors", "zip(fixed"), "The moved vectors have no graph; both answers should have one."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("head(*vectors)", "head(*fixed)"), "The vectors of the clean answer have no graph; both answers should have one."),
    mistake(_WRONG_CHARGE, "return distance(head(*vectors), head(*(x + d for x, d in zip(vectors, shifts)))).mean()", "The two answers have changed places. The moved one belongs in front, as in the equation."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("x + d for", "x - d for"), "The shift that was found is taken off; it should be added."),
    mistake(_WRONG_CHARGE, _WRONG_CHARGE.replace("head(*(x + d for x, d in zip(vectors, shifts)))", "head(*shifts)"), "The head is asked about the shifts alone; they belong on top of the vectors."),
    mistake("D, radius, p, where", "D, 0.1, p, where", "distance, radius, p, steps", "distance, 0.1, p, steps", "`radius` is not used: it is always 0.1."),
    mistake("D, radius, p, where", "D, 1.0, p, where", "The points are drawn with radius 1, whatever was asked for."),
    mistake("D, radius, p, where", "D, radius, 2.0, where", "The points are drawn in the norm of order 2, whatever `p` is."),
    mistake("distance, radius, p, steps", "distance, radius, 2.0, steps", "The climb is told that the norm has order 2, whatever `p` is."),
    mistake("distance, radius, p, steps", "distance, 0.1, p, steps", "The climb is told that the radius is 0.1, whatever was asked for."),
    mistake("search == \"random\"", "True", "`search` is not used: the best of n points is taken, and nobody climbs."),
    mistake("points if random else B", "points", "A climb begins at n points; it needs one for each row."),
    mistake("points if random else B", "B", "The random search has as many points as there are rows, where `points` says how many."),
    mistake("points if random else B", "points if random else 1", "All rows begin their climb at one point; each has a point of its own."),
    mistake("worst_shifts(head, fixed, shifts, distance) if random", "tuple(d[:B] for d in shifts) if random", "Nobody looks for the worst point: row i is charged for point i, whatever that does."),
    mistake("    with _evaluating(head):\n", "    cloud = shifts\n    with _evaluating(head):\n", _WRONG_CHARGE,
            "if random:\n            return torch.stack([distance(head(*(x + d for x, d in zip(vectors, point))), head(*vectors)).mean() for point in zip(*cloud)]).mean()\n        " + _WRONG_CHARGE,
            "The moves are averaged over all points. The largest of each row is charged."),
    mistake("worst_shifts(head, fixed, shifts, distance) if random", "(lambda k: tuple(d[k].expand(B, D) for d in shifts))(torch.stack([distance(head(*(x + d for x, d in zip(fixed, point))), "
            "head(*fixed)).mean() for point in zip(*shifts)]).argmax()) if random", "One point is the worst for the whole batch. Each row has a worst point of its own."),
    mistake("    with _evaluating(head):\n", "    clean = head(*vectors)\n    with _evaluating(head):\n", _WRONG_CHARGE, _WRONG_CHARGE.replace("head(*vectors))", "clean)"),
            "The clean answer is asked for before dropout is off."),
]

VARIANTS["smoothness.sampled"] = [
    '''
def sampled_smoothness(head, vectors, radius=0.1, points=1000, p=2.0, where="surface", search="random", steps=10, generator=None, distance=None):
    distance = output_distance(head) if distance is None else distance
    rows, width = vectors[0].shape
    modes = {part: part.training for part in head.modules()}
    for part in modes:
        part.training = False
    try:
        still = [x.detach() for x in vectors]
        start = tuple(ball_points(rows if search == "pgd" else points, width, radius, p, where, generator, dtype=x.dtype) for x in still)
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
''', '''
def sampled_smoothness(head, vectors, radius=0.1, points=1000, p=2.0, where="surface", search="random", steps=10, generator=None, distance=None):
    far = distance or output_distance(head)
    with _evaluating(head):
        clean = head(*vectors)
        if search == "pgd":
            begin = tuple(ball_points(len(x), x.shape[1], radius, p, where, generator, dtype=x.dtype) for x in vectors)
            shifts = _ascend(head, tuple(x.detach() for x in vectors), begin, far, radius, p, steps)
            return torch.mean(far(head(*map(torch.add, vectors, shifts)), clean))
        best = None
        clouds = [ball_points(points, x.shape[1], radius, p, where, generator, dtype=x.dtype) for x in vectors]
        for point in zip(*clouds):
            value = far(head(*(x + d for x, d in zip(vectors, point))), clean)
            best = value if best is None else torch.where(value > best, value, best)
        return best.mean()
''',
]


# ---- smoothness.maximum
#
# One output in four norms, where the answer is a dual norm, for grades and for a yes; classes, where it is an eigenvalue. Dropout is on when the head
# comes, and one part of it is in eval mode; both are so afterwards.

def maximum_cases(generator):
    seed = int(torch.randint(1000, (), generator=generator))
    u, v = fixed(generator, 2, 3, 4)
    u, v = 3 * torch.cat([u, -u]), 3 * torch.cat([v, -v])                # a sure yes, a sure no
    found = [Case(f"{head}, p = {p:g}", {"head": head, "seed": seed, "u": u, "v": v, "radius": 0.2, "p": p}) for head in ("pair",
        "yes") for p in (1.0, 1.5, 2.0, math.inf)]
    return found + [Case(f"classes, radius {r}", {"head": "classes", "seed": seed, "u": u, "radius": r}) for r in (0.1, 3.0)] + [
        Case("classes, sure of themselves", {"head": "classes", "seed": seed, "u": 4 * u, "radius": 0.1})]


def run_maximum(linear_maximum, inputs):
    head, vectors = made_head(inputs.pop("head"), inputs.pop("seed")), tuple(inputs.pop(name) for name in ("u", "v") if name in inputs)
    head.linear.eval()
    with probed():
        found = linear_maximum(head, tuple(x.requires_grad_() for x in vectors), **inputs)
    return {"largest move": found, "parts in train mode afterwards": [part.training for part in head.modules()], "has a graph": found.requires_grad}


TRIALS["smoothness.maximum"] = Trial(maximum_cases, run_maximum, hints=(
    "One output: how far can w . d get with |d|_p = r? And is the answer further from home when it goes up, or down?",
    "The largest w . d is r times the dual norm of w, 1/p + 1/q = 1, added for the two vectors. For classes, W^T (diag p - p p^T) W is a matrix for "
    "each row.",
    "One output: reach = radius * (|w_1|_q + |w_2|_q), then the larger of distance(z + reach, z) and distance(z - reach, z). Classes: radius² times "
    "`torch.linalg.eigvalsh(...)[:, -1]`."))


MISTAKES["smoothness.maximum"] = [
    mistake("vector_norm(w, q)", "vector_norm(w, p)", "The norm of the weights is the one of the ball. It should be the dual norm, 1/p + 1/q = 1."),
    mistake("sum(torch.linalg.vector_norm(w, q) for w in W[0].chunk(2))", "torch.linalg.vector_norm(W[0], q)",
        "Both vectors share one ball here. Each has its own, so the reaches add up."),
    mistake("torch.maximum(distance(z + reach, z), distance(z - reach, z))", "distance(z + reach, z)",
        "Only the way up is tried. For a yes the way down can be longer."),
    mistake("torch.maximum(distance(z + reach, z), distance(z - reach, z))", "torch.minimum(distance(z + reach, z), distance(z - reach, z))",
        "The smaller of the two ways is taken."),
    mistake("return torch.maximum(distance(z + reach, z), distance(z - reach, z))", "return reach.expand(len(z))",
        "This is how far the logit moves. What is asked for is the distance between the answers."),
    mistake("return radius ** 2 *", "return radius *", "The distance grows with the square of the radius."),
    mistake("@ A)[:, -1]", "@ A)[:, 0]", "The smallest eigenvalue is taken; they come in ascending order."),
    mistake("@ A)[:, -1]", "@ A).sum(-1)",
        "All eigenvalues are added up: that is the mean over directions, times their number, and not the worst one."),
    mistake("- root.square()[:, :, None] * root[:, None]", "", "The term p p^T is missing: a shift of all logits together moves no answer."),
    mistake("with _evaluating(head), torch.no_grad():", "with _evaluating(head):", "The result keeps a graph, and with it everything it was computed from."),
    mistake("with _evaluating(head), torch.no_grad():", "head.eval()\n    with torch.no_grad():", "The head is left in eval mode: from here on it trains without dropout."),
    mistake("with _evaluating(head), torch.no_grad():", "with torch.no_grad():", "Dropout is on when the answers are computed."),
    mistake("p / (p - 1)", "p", "q is p. Only for p = 2 they are equal: 1/p + 1/q = 1."),
    mistake("W @ W.T", "W @ W.T / 2", "The quadratic form has no ½: two divergences are added, and each has one half."),
    mistake("torch.maximum(distance(z + reach, z), distance(z - reach, z))", "(distance(z + reach, z) + distance(z - reach, z)) / 2", "The two ways are averaged. The one that moves the answer more counts."),
]

VARIANTS["smoothness.maximum"] = [
    '''
def linear_maximum(head, vectors, radius, p=2.0):
    with _evaluating(head), torch.no_grad():
        z, W = head(*vectors), head.linear.weight
        if isinstance(head, LinearHead):
            P = z.softmax(-1)
            middle = torch.diag_embed(P) - torch.einsum("bi,bj->bij", P, P)
            return radius * radius * torch.linalg.eigvalsh(torch.einsum("ci,bcd,dj->bij", W, middle, W)).amax(-1)
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
''', '''
def linear_maximum(head, vectors, radius, p=2.0):
    with torch.no_grad():
        W, c = head.linear.weight, head.linear.bias
        z = torch.cat(vectors, -1) @ W.T + c                    # dropout is not called at all
        if head.goal == "classes":
            return torch.stack([radius ** 2 * torch.linalg.matrix_norm(W.T @ (q.diag() - q[:, None] * q) @ W, 2) for q in z.softmax(-1)])
        q = 1.0 if p == math.inf else math.inf if p == 1 else 1 / (1 - 1 / p)
        reach = radius * sum(w.norm(q) for w in W[0].chunk(2))
        distance = output_distance(head.goal)
        return torch.max(distance(z[:, 0] + reach, z[:, 0]), distance(z[:, 0] - reach, z[:, 0]))
''',
]


# ---- How strong are they?

# ---- Next
#
# - Let the random search have 8 points on the line. How often is it refused?
