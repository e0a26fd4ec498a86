"""Mutants of `minbert.exercise_cases.smoothness`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.smoothness import _WRONG_BINARY, _WRONG_CHARGE, _WRONG_SUM

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
        _WRONG_BINARY,
        "inner, kept = partial(binary_kl, grad=grad), {}\n"
        "    return lambda p, q: inner(p, kept.setdefault(p.shape, q.detach().clone()))",
        "The distance keeps outputs of an earlier call, and compares new ones with them.",
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


_COUNT = 'points if search == "random" else len(fixed[0])'

MUTANTS["smoothness.sampled"] = [
    mistake(
        "        " + _WRONG_CHARGE,
        "    " + _WRONG_CHARGE,
        "The charge is computed after the head is back in train mode, with dropout.",
    ),
    mistake(
        "    with evaluating(head):\n        if search",
        "    head.eval()\n    if True:\n        if search",
        _WRONG_CHARGE,
        "loss"
        + _WRONG_CHARGE[6:].replace("distance", " = distance", 1)
        + "\n    head.train()\n    return loss",
        "All parts are put into train mode afterwards; a part may have been in eval mode before.",
    ),
    mistake(
        "radius, p, steps)", "radius, p, 10)", "`steps` is not used: the climb always has ten."
    ),
    mistake(
        _COUNT,
        _COUNT.replace("points", "1000"),
        "`points` is not used: there are always a thousand.",
    ),
    mistake(
        "    with evaluating(head):\n",
        "    head.requires_grad_(False)\n"
        "    head.requires_grad_(True)\n"
        "    with evaluating(head):\n",
        "All weights learn afterwards; one may have been frozen before.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace(".mean()", ".max()"),
        "Only the worst row is charged. The maximum is over perturbations, and the rows are averaged.",
    ),
    mistake(
        _WRONG_CHARGE,
        "return distance(head(vectors[0] + deltas[0], *vectors[1:]), head(*vectors)).mean()",
        "Only the first vector of a pair is moved; each has its own ball.",
    ),
    mistake(
        "    with evaluating(head):\n",
        "    start = [start[0] for _ in start]\n    with evaluating(head):\n",
        "Both vectors of a pair get the same points, so they never move apart.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("deltas)),", "deltas)).detach(),"),
        "The moved answer is constant in the charge, so half of the gradient is missing.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("perturbed(vectors", "perturbed(fixed"),
        "The moved vectors have no graph; both answers should have one.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*vectors)", "head(*fixed)"),
        "The vectors of the clean answer have no graph; both answers should have one.",
    ),
    mistake(
        _WRONG_CHARGE,
        "return distance(head(*vectors), head(*perturbed(vectors, deltas))).mean()",
        "The two answers have changed places. The moved one belongs in front, as in the equation.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("deltas", "[-d for d in deltas]"),
        "The perturbation that was found is subtracted; it should be added.",
    ),
    mistake(
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*perturbed(vectors, deltas))", "head(*deltas)"),
        "The head is asked about the perturbations alone; they should be added to the vectors.",
    ),
    mistake(
        "x.shape[1], radius, p",
        "x.shape[1], 0.1, p",
        "distance, radius, p, steps",
        "distance, 0.1, p, steps",
        "`radius` is not used: it is always 0.1.",
    ),
    mistake(
        "x.shape[1], radius, p",
        "x.shape[1], 1.0, p",
        "The points are drawn with radius 1, whatever was asked for.",
    ),
    mistake(
        "x.shape[1], radius, p",
        "x.shape[1], radius, 2.0",
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
        'if search == "random":',
        "if True:",
        "`search` is not used: the best of n points is taken, and nobody climbs.",
    ),
    mistake(
        _COUNT,
        "points",
        "A climb begins at n points; it needs one for each row.",
    ),
    mistake(
        _COUNT,
        "len(fixed[0])",
        "The random search has as many points as there are rows, where `points` says how many.",
    ),
    mistake(
        _COUNT,
        _COUNT.replace("len(fixed[0])", "1"),
        "All rows begin their climb at one point; each has a point of its own.",
    ),
    mistake(
        "worst_shifts(head, fixed, tuple(start), distance)",
        "tuple(d[: len(fixed[0])] for d in start)",
        "Nobody looks for the worst point: row i is charged for point i, whatever that does.",
    ),
    mistake(
        "    with evaluating(head):\n",
        "    cloud = start\n    with evaluating(head):\n",
        _WRONG_CHARGE,
        (
            'if search == "random":\n'
            "            return torch.stack([distance(head(*(x + d for x, d in zip(vectors, "
            "point))), head(*vectors)).mean() for point in zip(*cloud)]).mean()\n"
            "        "
        )
        + _WRONG_CHARGE,
        "The moves are averaged over all points. The largest of each row is charged.",
    ),
    mistake(
        "worst_shifts(head, fixed, tuple(start), distance)",
        "(lambda k: tuple(d[k].expand_as(fixed[0]) for d in start))(torch.stack([distance(head(*(x "
        "+ d for x, d in zip(fixed, point))), "
        "head(*fixed)).mean() for point in zip(*start)]).argmax())",
        "One point is the worst for the whole batch. Each row has a worst point of its own.",
    ),
    mistake(
        "    with evaluating(head):\n",
        "    clean = head(*vectors)\n    with evaluating(head):\n",
        _WRONG_CHARGE,
        _WRONG_CHARGE.replace("head(*vectors))", "clean)"),
        "The clean answer is asked for before dropout is off.",
    ),
]
