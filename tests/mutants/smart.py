"""Mutants of `minbert.exercise_cases.smart`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.smart import (
    _WRONG_BACK,
    _WRONG_BOX,
    _WRONG_END,
    _WRONG_MOVED,
    _WRONG_SLOPE,
)

MUTANTS = {}


MUTANTS["smart.length"] = [
    mistake(
        'own, "amax")',
        'own, "sum")',
        "The largest coordinates of the vectors are added up; the largest of all is wanted.",
    ),
    mistake(
        "x.square().sum(-1).flatten()",
        "x.abs().sum(-1).flatten().square()",
        "The sizes of the coordinates are added up before squaring; it is their squares that "
        "add up.",
    ),
    mistake(
        "flat = rows.flatten()",
        "flat = rows.flatten().unique_consecutive(return_inverse=True)[1]\n"
        "    rows = flat.view(rows.shape)",
        "Only neighbours count as one sentence. The vectors of a sentence may lie apart; `rows` "
        "says who belongs together.",
    ),
]


_WRONG_SCALED = (
    "return self.size * moved / (torch.linalg.vector_norm(moved, self.p, -1, keepdim=True) + "
    "self.epsilon)"
)


MUTANTS["smart.step"] = [
    mistake(
        _WRONG_BOX,
        _WRONG_BOX.replace("epsilon", "step_size"),
        _WRONG_BACK,
        _WRONG_BACK.replace("epsilon", "step_size"),
        "The change is brought back into a ball of the step size; its radius is epsilon.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = delta + self.step_size * gradient / sentence_norms(gradient, self.p, 0 * "
        "rows).clamp(min=tiny)",
        "The gradient is divided by a norm over the whole batch, so sentences pay for each other.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = delta + self.step_size * gradient.sign()",
        "Only the signs are used. The paper divides by the norm; coordinates with a small slope "
        "move less.",
    ),
    mistake(
        _WRONG_BACK,
        "return moved * (self.epsilon / sentence_norms(moved, self.p, rows).clamp(min=tiny))",
        "Changes inside the ball are stretched to its surface; whoever is inside stays.",
    ),
    mistake(
        _WRONG_BACK,
        "return moved * (self.epsilon / moved.norm(dim=-1, keepdim=True).clamp(min=self.epsilon))",
        "Each word gets a ball of its own. In the paper's step the ball is that of the sentence.",
    ),
    mistake(
        "    if self.p == math.inf:\n        " + _WRONG_BOX + "\n",
        "",
        "For the largest coordinate the whole sentence is shrunk; the nearest point of a box is "
        "found coordinate by coordinate.",
    ),
    mistake(
        _WRONG_SCALED,
        _WRONG_SCALED.replace(
            "torch.linalg.vector_norm(moved, self.p, -1, keepdim=True)",
            "sentence_norms(moved, self.p, rows)",
        ),
        "The public step divides each word by its own norm; here it is that of the sentence.",
    ),
    mistake(
        _WRONG_SCALED,
        "return self.size * moved / torch.linalg.vector_norm(moved, self.p, -1, "
        "keepdim=True).clamp(min=self.epsilon)",
        "epsilon is a floor here. The public code adds it to the norm, which makes small "
        "changes much smaller.",
    ),
    mistake(_WRONG_SCALED, _WRONG_SCALED.replace("self.size * ", ""), "`size` is not used."),
    mistake(
        _WRONG_SCALED,
        _WRONG_SCALED.replace("moved, self.p", "gradient, self.p"),
        "It is divided by the norm of the gradient; the public step rescales the moved change.",
    ),
    mistake(
        _WRONG_SCALED,
        _WRONG_SCALED.replace("self.p", "math.inf"),
        "`p` is not used in the public step.",
    ),
    mistake(
        "sentence_norms(gradient, math.inf, rows).clamp(min=tiny)  #",
        "gradient.abs().max().clamp(min=tiny)  #",
        "All gradients are divided by the largest number of the batch, so beside a steep "
        "sentence the squares of a flat one vanish.",
    ),
    mistake(
        "    gradient = gradient / sentence_norms(gradient, math.inf, rows).clamp(min=tiny)  "
        "# squares of 1e-30 would be 0\n",
        "",
        _WRONG_MOVED,
        _WRONG_MOVED.replace(".clamp(min=tiny)", " + 1e-8)").replace(
            "gradient / sentence_norms", "gradient / (sentence_norms"
        ),
        "A constant is added to the norm, so a short gradient makes nearly no step. Its "
        "direction is what counts.",
    ),
    mistake(
        "    gradient = gradient / sentence_norms(gradient, math.inf, rows).clamp(min=tiny)  "
        "# squares of 1e-30 would be 0\n",
        "    norm = sentence_norms(gradient, self.p, rows)\n",
        _WRONG_MOVED,
        "moved = delta + torch.where(norm > 0, self.step_size * gradient / norm, 0.0)",
        "A gradient of 1e-30 counts as one of zeros: the squares in its norm vanish in single "
        "precision. Divide it by its largest coordinate first.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = delta + self.step_size * (gradient.sign() if self.p == math.inf else "
        "gradient / sentence_norms(gradient, self.p, rows).clamp(min=tiny))",
        "In the box only the signs are used. The paper divides by the largest coordinate; those "
        "with a small slope move less.",
    ),
    mistake(
        _WRONG_SCALED,
        _WRONG_SCALED.replace("self.p", "2"),
        "The public step is divided by the usual norm, whatever `p` says.",
    ),
    mistake(
        ".clamp(min=tiny)  # squares of 1e-30 would be 0",
        "",
        _WRONG_MOVED,
        _WRONG_MOVED.replace(".clamp(min=tiny)", ""),
        "A gradient of zeros is divided by 0. Where nothing slopes the change stays.",
    ),
    mistake(
        "moved = delta + self.step_size * gradient\n",
        "moved = self.step_size * gradient\n",
        "In the public step the change so far is dropped.",
    ),
]


MUTANTS["smart.loss"] = [
    mistake(
        _WRONG_END,
        _WRONG_END.replace("embeds +", "embeds.detach() +"),
        "The input is detached in the charge, so nothing below it learns.",
    ),
    mistake(
        _WRONG_END,
        _WRONG_END.replace("total(fn(embeds + delta), clean)", "total(clean, fn(embeds + delta))"),
        "The arguments of the distance are swapped: first the moved answer, then the one it is "
        "compared with.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE.replace(
            "total(fn(embeds.detach() + d), clean.detach())",
            "total(clean.detach(), fn(embeds.detach() + d))",
        ),
        "In the search the arguments of the distance are swapped, so it climbs another hill "
        "than the one that is charged.",
    ),
    mistake(
        "SmartStats(start, delta, True)",
        "SmartStats(start, 0 * delta, True)",
        "After a gradient that is not finite the stats hold zeros. They hold the change as it "
        "was before that step.",
    ),
    mistake(
        "            if _broken(gradient):\n"
        "                return wide(clean.new_zeros(())), SmartStats(start, delta, True)\n"
        "            delta = attack.move(delta, gradient, rows)",
        "            delta = attack.move(delta, gradient, rows)\n"
        "            if _broken(gradient):\n"
        "                return wide(clean.new_zeros(())), SmartStats(start, delta, True)",
        "The bad gradient is followed before it is looked at, so the change in the stats is not "
        "finite.",
    ),
    mistake(
        "    with frozen(weights):\n",
        "    weights = list(weights)\n    with frozen(weights):\n",
        "    " + _WRONG_END,
        "    with frozen(weights):\n        " + _WRONG_END,
        "The weights are frozen while the penalty is computed, too: it teaches them nothing.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE.replace(
            "total(fn(embeds.detach() + d), clean.detach())",
            "distance(fn(embeds.detach() + d), clean.detach()).sum()",
        ),
        "The search climbs the sum whatever `reduction` says; only the charge is reduced as asked.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE.replace(
            "total(fn(embeds.detach() + d), clean.detach())",
            "distance(fn(embeds.detach() + d), clean.detach()).mean()",
        ),
        "The search climbs the mean whatever `reduction` says; only the charge is reduced as "
        "asked.",
    ),
    mistake(
        "delta = attack.move(delta, gradient, rows)",
        "delta = attack.move(start, gradient, rows)",
        "Every step starts from the first noise again, so only the last one counts.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE.replace(", delta)", ", start)"),
        "The slope is taken at the first noise in every step, not where the search stands.",
    ),
    mistake(
        "range(attack.moves)",
        "range(attack.steps)",
        '"seed" takes its loss before the last step; `moves` counts the steps that come before '
        "the loss.",
    ),
    mistake(
        "range(attack.moves)",
        "range(min(1, attack.moves))",
        "There is one step, however many are asked for.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE[len("keep * ") :],
        "keep * (_noise",
        "1 * (_noise",
        "The mask is not used: padding is changed too.",
    ),
    mistake(
        _WRONG_SLOPE,
        _WRONG_SLOPE[len("keep * ") :],
        "The mask covers the noise and not the gradient, so the first step moves what may not "
        "change.",
    ),
    mistake(
        "keep * (_noise",
        "1 * (_noise",
        "The mask covers the gradient and not the noise, so what may not change keeps its noise.",
    ),
    mistake(
        "getattr(distance(outputs, aim), reduction)()",
        "distance(outputs, aim).mean()",
        "`reduction` is not used.",
    ),
    mistake(
        "    with frozen(weights):\n",
        "    for w in weights:\n        w.requires_grad_(False)\n    if True:\n",
        "The weights are frozen for the search and never thawed: nothing trains after it.",
    ),
    mistake(
        "_broken(gradient)",
        "gradient.isnan().any()",
        "Only NaN is looked for; infinity is not finite either.",
    ),
    mistake(
        "_noise(embeds, attack.noise, generator) if",
        "_noise(embeds, attack.noise, generator)[..., :1].expand_as(embeds) if",
        "One number is drawn for a whole vector: its noise has one direction only.",
    ),
    mistake(
        ".view(-1, *[1] * (embeds.ndim - 2))\n        rows = rows.expand(embeds.shape[:-1])",
        "\n        rows = torch.arange(embeds[..., 0].numel()).view(embeds.shape[:-1])",
        "Every word counts as a sentence of its own. The sentences are the first axis.",
    ),
    mistake(
        ".view(-1, *[1] * (embeds.ndim - 2))\n        rows = rows.expand(embeds.shape[:-1])",
        "\n        rows = torch.zeros(embeds.shape[:-1], dtype=torch.int64)",
        "The whole batch counts as one sentence.",
    ),
    mistake(
        "_noise(embeds, attack.noise, generator) if",
        "_noise(embeds, attack.epsilon, generator) if",
        "The noise is as large as the radius; its spread is `attack.noise`.",
    ),
    mistake(
        "if rows is None:",
        "if rows is None or mask is not None:",
        "`rows` is not used when there is a mask.",
    ),
    mistake(
        "    keep = 1 if mask",
        "    clean = fn(embeds)\n    keep = 1 if mask",
        "The clean answer is computed once more, with other dropout. It is given.",
    ),
    mistake(
        "    with frozen(weights):\n",
        "    weights = list(weights)\n"
        "    for w in weights:\n"
        "        w.requires_grad_(False)\n"
        "    if True:\n",
        "    return total(fn(embeds + delta), clean)",
        "    for w in weights:\n"
        "        w.requires_grad_(True)\n"
        "    return total(fn(embeds + delta), clean)",
        "All weights learn after the search; one may have been frozen before. (And after a skip "
        "none does.)",
    ),
    mistake(
        "SmartStats(start, delta, False)",
        "SmartStats(start, embeds + delta - embeds.detach(), False)",
        "The change in the stats carries a graph, so whoever keeps the stats keeps the whole "
        "model's activations.",
    ),
    mistake(
        "_noise(embeds, attack.noise, generator) if",
        "_noise(embeds, attack.noise, generator or torch.Generator()) if",
        "Where no generator is given a new one is made. A new one starts from the same seed at "
        "every call; None means torch's own random state.",
    ),
    mistake(
        "if _broken(gradient):\n"
        "                return wide(clean.new_zeros(())), SmartStats(start, delta, True)",
        "gradient = gradient.nan_to_num(0, 0, 0)",
        "What is not finite in the gradient is set to 0 and the rest is followed. The penalty "
        "should be left out, and the stats should say so.",
    ),
    mistake(
        "_noise(embeds, attack.noise, generator) if",
        "_noise(embeds, attack.noise, None) if",
        "The generator is not used: runs with the same seed differ.",
    ),
    mistake(
        "_noise(embeds, attack.noise, generator)",
        "_noise(embeds[: (len(embeds) + 1) // 2], attack.noise, generator).repeat(2, *[1] * "
        "(embeds.ndim - 1))[: len(embeds)]",
        "The second half of the rows gets the noise of the first. Each row has its own.",
    ),
    mistake(
        "delta = attack.move(delta, gradient, rows)",
        "delta = delta + attack.move(delta, gradient, rows)",
        "What `move` gives is added to the change so far. It is the new change already.",
    ),
    mistake(
        "    return total(fn(embeds + delta), clean)",
        "    return total(fn(delta), clean)",
        "The charge is for the change alone. It is added to the input.",
    ),
]
