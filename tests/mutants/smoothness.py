"""Mutants of `minbert.exercise_cases.smoothness`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.smoothness import _WRONG_CHARGE, _WRONG_DRAW, _WRONG_SUM

MUTANTS = {}


MUTANTS["smoothness.kl"] = [
    mistake(
        _WRONG_SUM,
        "return (log_q.exp() * (log_q - log_p)).sum(-1)",
        "This is KL in one direction only, and the arguments are swapped.",
    ),
    mistake(
        _WRONG_SUM,
        "return (difference.abs() * (log_p - log_q)).sum(-1)",
        "The difference of the probabilities has lost its sign.",
    ),
    mistake(
        _WRONG_SUM,
        "return difference.abs().sum(-1)",
        "The logarithms are missing: this is the difference of the probabilities alone.",
    ),
    mistake(
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1)",
        "log_p, log_q = wide(logits_p).log_softmax(-1), wide(logits_q).log_softmax(-1).detach()",
        "One side is detached altogether; both have a gradient.",
    ),
    mistake(
        _WRONG_SUM, "return -" + _WRONG_SUM[7:], "The sign is wrong: a distance is never negative."
    ),
    mistake(
        "        difference = difference.detach()",
        "        log_p, log_q = log_p.detach(), log_q.detach()",
        'The wrong bracket is detached: with "detached" the logarithms keep their gradient, and '
        "the probabilities lose it.",
    ),
    mistake(
        '    if grad == "detached":\n        difference',
        "    if True:\n        difference",
        "The difference of the probabilities is detached always; the full gradient has two parts.",
    ),
    mistake(
        "        difference = difference.detach()",
        "        log_q, difference = log_q.detach(), log_p.exp() - log_q.detach().exp()",
        'One side is detached altogether. In "detached" both sides have a gradient, through '
        "their logarithms.",
    ),
    mistake(
        _WRONG_SUM,
        "middle = ((log_p.exp() + log_q.exp()) / 2).log()\n"
        "    return (log_p.exp() * (log_p - middle) + log_q.exp() * (log_q - "
        "middle)).sum(-1)",
        "This is the Jensen-Shannon divergence, each against the mean of both.",
    ),
]


MUTANTS["smoothness.distance"] = [
    mistake(
        '    return _squared_difference if goal == "similarity" else softly',
        '    inner, kept = _squared_difference if goal == "similarity" else softly, {}\n'
        "    return lambda p, q: inner(p, q if q.requires_grad else kept.setdefault(p.shape, "
        "q.detach().clone()))",
        "The distance keeps outputs of an earlier call, and measures new ones against them.",
    ),
]


MUTANTS["smoothness.steepest"] = [
    mistake(
        "amax(-1, keepdim=True)",
        "amax()",
        "All rows are divided by the largest number of the batch, so the squares of short rows "
        "vanish.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "n = gradient.norm(dim=-1, keepdim=True)\n    return torch.where(n > 0, gradient / n, 0.0)",
        "A short gradient counts as zero: the squares in its length vanish. Divide by its "
        "largest coordinate first.",
    ),
    mistake(
        "return unit(scaled).to(gradient.dtype)",
        "return torch.nn.functional.normalize(gradient, dim=-1)",
        "A short gradient is divided by 1e-12 in place of its length, so its step is shorter "
        "than 1.",
    ),
]


MUTANTS["smoothness.ball"] = [
    mistake(
        "(radius / length.clamp(min=radius))",
        "(radius ** 2 / length.square().clamp(min=radius ** 2))",
        "The vector is shrunk by the square of what is needed, so it ends inside the ball.",
    ),
]


MUTANTS["smoothness.points"] = [
    mistake(
        _WRONG_DRAW,
        _WRONG_DRAW.replace(", p, gen", ", 2, gen"),
        "Normal numbers are drawn for every p. Scaled to another norm they crowd in some "
        "directions.",
    ),
    mistake(
        _WRONG_DRAW,
        _WRONG_DRAW.replace(", p, gen", ", math.inf, gen"),
        "Numbers between -1 and 1 are drawn for every p, so the corners of the cube get too "
        "many points.",
    ),
    mistake(
        _WRONG_DRAW,
        _WRONG_DRAW + ".abs()",
        "All coordinates are positive: only one corner of the ball is visited.",
    ),
    mistake(
        "torch.rand(n, 1, generator",
        "torch.rand(n, width, generator",
        "Each coordinate is shrunk by a share of its own, which bends the ball. A point has one "
        "share.",
    ),
    mistake(
        'if where == "volume":',
        "if True:",
        "`where` is not used: the points fill the ball, when the surface is asked for.",
    ),
    mistake(
        "    " + _WRONG_DRAW,
        "    generator = generator.clone_state() if generator else None\n    " + _WRONG_DRAW,
        "The generator is copied and stays where it was, so two calls with it draw the same "
        "points.",
    ),
    mistake(
        "    " + _WRONG_DRAW,
        "    generator = generator or torch.Generator()\n    " + _WRONG_DRAW,
        "Where no generator is given a new one is made. A new one starts from the same seed at "
        "every call; None means torch's own random state.",
    ),
    mistake(
        "torch.rand(n, 1, generator=generator, ",
        "torch.rand(n, 1, ",
        "The generator is used for the directions and not for the shares of the radius.",
    ),
    mistake(
        " ** (1 / width)",
        " ** 0.5",
        "The exponent is 1/2, which is right in the plane only; it is 1/D.",
    ),
    mistake(
        "    " + _WRONG_DRAW,
        "    " + _WRONG_DRAW.replace("(n, width", "((n + 1) // 2, width") + ".repeat(2, 1)[:n]",
        "The second half of the points lies in the directions of the first. Each point has a "
        "direction of its own.",
    ),
    mistake(
        "    " + _WRONG_DRAW,
        "    "
        + _WRONG_DRAW.replace("(n, width", "((n + 1) // 2, width")
        + "\n    y = torch.cat([y, -y])[:n]",
        "The second half of the points lies opposite to the first. Each point has a direction "
        "of its own.",
    ),
    mistake(
        "torch.rand(n, 1, generator=generator, dtype=dtype, device=device)",
        "torch.rand((n + 1) // 2, 1, generator=generator, dtype=dtype, "
        "device=device).repeat_interleave(2, 0)[:n]",
        "Two neighbours share their share of the radius. Each point has its own.",
    ),
    mistake(
        'if where == "volume":', 'if where == "surface":', "Surface and volume have changed places."
    ),
    mistake("x = radius * y /", "x = radius**2 * y /", "The radius comes in twice."),
    mistake(
        "torch.linalg.vector_norm(y, p, -1, keepdim=True)",
        "y.abs().pow(p).mean(-1, keepdim=True).pow(1 / p)",
        "The powers are averaged. A norm adds them up.",
    ),
    mistake(
        "torch.linalg.vector_norm(y, p, -1, keepdim=True)",
        "y.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)",
        "For p = ∞ there are no powers to add up: the norm is the largest coordinate.",
    ),
    mistake(
        "torch.empty(n, width, dtype=dtype, device=device)",
        "torch.empty(n, width, device=device)",
        "generator=generator, dtype=dtype, device=device)",
        "generator=generator, device=device)",
        "`dtype` is not used.",
    ),
    mistake(
        _WRONG_DRAW,
        "y = torch.rand(n, width, generator=generator, dtype=dtype, device=device)",
        "The coordinates are drawn between 0 and 1: only one corner of the ball is visited, and "
        "not evenly.",
    ),
    mistake(
        " ** (1 / width)",
        " ** (1 / n)",
        "The exponent has the number of points; it is 1/D, D the width.",
    ),
    mistake(
        " ** (1 / width)",
        " ** (1 / p)",
        "The exponent is 1/p. Volume grows with the power D of the radius, whatever the norm.",
    ),
]


MUTANTS["smoothness.worst"] = [
    mistake(
        "size = max(1, limit // (clean.numel() if type(head) in _SHORTCUTS else "
        "vectors[0].numel()))",
        "size = len(shifts[0])",
        "`limit` is not used: all points are tried at once, and B n C answers may not fit into "
        "memory.",
    ),
    mistake(
        "size = max(1, limit // (clean.numel() if type(head) in _SHORTCUTS else "
        "vectors[0].numel()))",
        "size = limit",
        "A chunk holds `limit` points. It should hold `limit` numbers: each point has an answer "
        "for every row and class.",
    ),
    mistake(
        "found.append(distance(moved, clean.to(moved.dtype).expand_as(moved)))",
        "found.append(distance(moved, moved.mean(1, keepdim=True).expand_as(moved)))",
        "The moved answers are compared with their mean instead of the answer without a shift.",
    ),
    mistake(
        "tuple(d[best] for d in shifts)",
        "(shifts[0][best], *(d[torch.roll(best, 1)] for d in shifts[1:]))",
        "The second vector gets the shift of another row. Both belong to one point.",
    ),
    mistake(
        "tuple(d[best] for d in shifts)",
        "tuple(d[best.clamp(max=len(vectors[0]) - 1)] for d in shifts)",
        "The number of a point is cut to the number of rows.",
    ),
]


MUTANTS["smoothness.sampled"] = [
    mistake(
        "        " + _WRONG_CHARGE,
        "    " + _WRONG_CHARGE,
        "The charge is computed after the head is back in train mode, with dropout.",
    ),
    mistake(
        "    with _evaluating(head):\n        shifts",
        "    head.eval()\n    if True:\n        shifts",
        _WRONG_CHARGE,
        "loss"
        + _WRONG_CHARGE[6:].replace("distance", " = distance", 1)
        + "\n    head.train()\n    return loss",
        "All parts are put into train mode afterwards; a part may have been in eval mode before.",
    ),
    mistake(
        "radius, p, steps))", "radius, p, 10))", "`steps` is not used: the climb always has ten."
    ),
    mistake(
        "points if random else B",
        "1000 if random else B",
        "`points` is not used: there are always a thousand.",
    ),
    mistake(
        "    with _evaluating(head):\n",
        "    head.requires_grad_(False)\n"
        "    head.requires_grad_(True)\n"
        "    with _evaluating(head):\n",
        "All weights learn afterwards; one may have been frozen before.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(".mean()", ".max()"),
        "Only the worst row is charged. The maximum is over shifts, and the rows are averaged.",
    ),
    mistake(
        _WRONG_CHARGE,
        "return distance(head(vectors[0] + shifts[0], *vectors[1:]), head(*vectors)).mean()",
        "Only the first vector of a pair is moved; each has its own ball.",
    ),
    mistake(
        "for x in fixed)\n",
        "for x in fixed)\n    shifts = tuple(shifts[0] for _ in shifts)\n",
        "Both vectors of a pair get the same points, so they never move apart.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("zip(vectors, shifts))),", "zip(vectors, shifts))).detach(),"),
        "The moved answer is constant in the charge, so half of the gradient is missing.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("zip(vectors", "zip(fixed"),
        "The moved vectors have no graph; both answers should have one.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*vectors)", "head(*fixed)"),
        "The vectors of the clean answer have no graph; both answers should have one.",
    ),
    mistake(
        _WRONG_CHARGE,
        "return distance(head(*vectors), head(*(x + d for x, d in zip(vectors, shifts)))).mean()",
        "The two answers have changed places. The moved one belongs in front, as in the equation.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("x + d for", "x - d for"),
        "The shift that was found is taken off; it should be added.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*(x + d for x, d in zip(vectors, shifts)))", "head(*shifts)"),
        "The head is asked about the shifts alone; they belong on top of the vectors.",
    ),
    mistake(
        "D, radius, p, where",
        "D, 0.1, p, where",
        "distance, radius, p, steps",
        "distance, 0.1, p, steps",
        "`radius` is not used: it is always 0.1.",
    ),
    mistake(
        "D, radius, p, where",
        "D, 1.0, p, where",
        "The points are drawn with radius 1, whatever was asked for.",
    ),
    mistake(
        "D, radius, p, where",
        "D, radius, 2.0, where",
        "The points are drawn in the norm of order 2, whatever `p` is.",
    ),
    mistake(
        "distance, radius, p, steps",
        "distance, radius, 2.0, steps",
        "The climb is told that the norm has order 2, whatever `p` is.",
    ),
    mistake(
        "distance, radius, p, steps",
        "distance, 0.1, p, steps",
        "The climb is told that the radius is 0.1, whatever was asked for.",
    ),
    mistake(
        'search == "random"',
        "True",
        "`search` is not used: the best of n points is taken, and nobody climbs.",
    ),
    mistake(
        "points if random else B",
        "points",
        "A climb begins at n points; it needs one for each row.",
    ),
    mistake(
        "points if random else B",
        "B",
        "The random search has as many points as there are rows, where `points` says how many.",
    ),
    mistake(
        "points if random else B",
        "points if random else 1",
        "All rows begin their climb at one point; each has a point of its own.",
    ),
    mistake(
        "worst_shifts(head, fixed, shifts, distance) if random",
        "tuple(d[:B] for d in shifts) if random",
        "Nobody looks for the worst point: row i is charged for point i, whatever that does.",
    ),
    mistake(
        "    with _evaluating(head):\n",
        "    cloud = shifts\n    with _evaluating(head):\n",
        _WRONG_CHARGE,
        (
            "if random:\n"
            "            return torch.stack([distance(head(*(x + d for x, d in zip(vectors, "
            "point))), head(*vectors)).mean() for point in zip(*cloud)]).mean()\n"
            "        "
        )
        + _WRONG_CHARGE,
        "The moves are averaged over all points. The largest of each row is charged.",
    ),
    mistake(
        "worst_shifts(head, fixed, shifts, distance) if random",
        "(lambda k: tuple(d[k].expand(B, D) for d in shifts))(torch.stack([distance(head(*(x "
        "+ d for x, d in zip(fixed, point))), "
        "head(*fixed)).mean() for point in zip(*shifts)]).argmax()) if random",
        "One point is the worst for the whole batch. Each row has a worst point of its own.",
    ),
    mistake(
        "    with _evaluating(head):\n",
        "    clean = head(*vectors)\n    with _evaluating(head):\n",
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*vectors))", "clean)"),
        "The clean answer is asked for before dropout is off.",
    ),
]


MUTANTS["smoothness.maximum"] = [
    mistake(
        "torch.maximum(distance(z + reach, z), distance(z - reach, z))",
        "torch.minimum(distance(z + reach, z), distance(z - reach, z))",
        "The smaller of the two ways is taken.",
    ),
    mistake(
        "return torch.maximum(distance(z + reach, z), distance(z - reach, z))",
        "return reach.expand(len(z))",
        "This is how far the logit moves. What is asked for is the distance between the answers.",
    ),
    mistake(
        "@ A)[:, -1]",
        "@ A).sum(-1)",
        "All eigenvalues are added up: that is the mean over directions, times their number, "
        "and not the worst one.",
    ),
    mistake(
        "with _evaluating(head), torch.no_grad():",
        "with _evaluating(head):",
        "The result keeps a graph, and with it everything it was computed from.",
    ),
    mistake(
        "with _evaluating(head), torch.no_grad():",
        "head.eval()\n    with torch.no_grad():",
        "The head is left in eval mode: from here on it trains without dropout.",
    ),
    mistake("p / (p - 1)", "p", "q is p. Only for p = 2 they are equal: 1/p + 1/q = 1."),
    mistake(
        "torch.maximum(distance(z + reach, z), distance(z - reach, z))",
        "(distance(z + reach, z) + distance(z - reach, z)) / 2",
        "The two ways are averaged. The one that moves the answer more counts.",
    ),
]
