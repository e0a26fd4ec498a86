"""Exercise cases of chapter 34: the adversarial regularization of SMART."""

import math

import torch

from minbert.course.check_runner import Case, Trial, fixed, mistake
from minbert.smart import Attack

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- smart.length
#
# The sentence of each vector is an index, in any order and shape; both norms; one vector; a
# sentence of zeros.


def length_cases(generator):
    x, rows = fixed(generator, 8, 3), torch.tensor([2, 0, 0, 1, 2, 2, 3, 0])
    x[3] = 0
    padded, own, mixed = (
        fixed(generator, 2, 4, 3),
        torch.tensor([[0] * 4, [1] * 4]),
        torch.tensor([[1, 0, 2, 1], [2, 2, 0, 1]]),
    )
    return [
        Case(f"{label}, p = {p}", {"x": y, "p": p, "rows": r})
        for p in (2, math.inf)
        for label, y, r in (
            ("tokens end to end", x, rows),
            ("padded", padded, own),
            ("a table of mixed rows", padded, mixed),
            ("one vector a sentence", x, torch.arange(8)),
            ("one sentence", x, 0 * rows),
        )
    ]


def run_length(length, inputs):
    return {"lengths": length(**inputs)}


TRIALS["smart.length"] = Trial(
    length_cases,
    run_length,
    subject="smart",
    rtol=1e-9,
    atol=1e-11,
    hints=(
        (
            "First one number for each vector, then put together what belongs to one sentence, "
            "then write the result beside each of its vectors."
        ),
        (
            '`index_add` adds up squares by sentence, `scatter_reduce(..., "amax")` takes the '
            "largest. Flatten the vectors and their `rows` first."
        ),
        (
            "own = x.square().sum(-1).flatten(); total = zeros.index_add(0, rows.flatten(), "
            "own).sqrt(); the answer is total[rows][..., None]."
        ),
    ),
)


MISTAKES["smart.length"] = [
    mistake(
        "return total[rows][..., None]",
        "return (x.abs().amax(-1) if p == math.inf else x.norm(dim=-1))[..., None]",
        "Each token has its own norm here. The norm is that of the whole sentence.",
    ),
    mistake(
        "return total[rows][..., None]",
        "whole = x.abs().max() if p == math.inf else x.norm()\n"
        "    return whole.expand(x.shape[:-1])[..., None]",
        "The norm is that of the whole batch. Each sentence has its own.",
    ),
    mistake("own).sqrt()", "own)", "The square root is missing: these are squared norms."),
    mistake(
        "own = x.square().sum(-1).flatten()",
        "own = x.norm(dim=-1).flatten()",
        "own).sqrt()",
        "own)",
        "The norms of the tokens are added. Add their squares and take the square root last.",
    ),
    mistake("if p == math.inf:", "if p == 2:", "The two norms are swapped."),
    mistake("x.abs().amax(-1)", "x.amax(-1)", "Negative values are ignored. Use absolute values."),
    mistake(
        "return total[rows][..., None]",
        "return total[rows]",
        "The last axis is missing, so the result does not broadcast against the vectors.",
    ),
    mistake(
        "index_add(0, flat, own).sqrt()",
        "index_add(0, flat, own).div(flat.bincount(minlength=len(own))).sqrt()",
        "The squares are averaged over the tokens of a sentence. They are summed.",
    ),
]

VARIANTS["smart.length"] = [
    """
def sentence_norms(x, p, rows):
    out = torch.zeros_like(x[..., :1])
    for i in rows.unique():
        mine = rows == i
        out[mine] = torch.linalg.vector_norm(x[mine], p).to(x.dtype)
    return out
""",
    """
def sentence_norms(x, p, rows):
    same = (rows.flatten()[:, None] == rows.flatten()[None]).to(x.dtype)
    if p == 2:
        total = torch.sqrt(same @ (x * x).sum(-1).flatten())
    else:
        total = (same * x.abs().max(-1).values.flatten()).max(1).values
    return total.view(rows.shape).unsqueeze(-1)
""",
]


# ---- smart.step
#
# Sentences have one to four tokens, because norms over a batch, a sentence and a token are equal
# if there is one of each. The paper's step in both norms, inside and at the edge of the ball; a
# start outside; a zero gradient, where the perturbation stays; gradients of 1e-30. The step of
# the published code, with a norm over one token and epsilon added to it. The CS224N report's step
# is the same.


def step_cases(generator):
    rows = torch.tensor([2, 0, 0, 1, 2, 2, 0])
    delta, gradient = 0.1 * fixed(generator, 7, 3), 5 * fixed(generator, 7, 3)
    pads, none = gradient.clone(), gradient.clone()
    pads[[1, 4]], none[rows == 2] = 0, 0
    small = {"variant": "paper", "epsilon": 0.2, "step_size": 0.15}
    ways = {
        "paper, inside the box": {"variant": "paper", "epsilon": 5.0, "step_size": 0.15},
        "paper, to the edge of the box": small,
        "paper, its own constants": {"variant": "paper"},
        "paper, with a noise and a size that do not count here": {
            **small,
            "noise": 0.03,
            "size": 3.0,
        },
        "paper, inside the ball": {"variant": "paper", "epsilon": 5.0, "step_size": 0.3, "p": 2},
        "paper, to the edge of the ball": {**small, "p": 2},
        "rescale": {"variant": "rescale", "epsilon": 0.05, "step_size": 0.02},
        "rescale, p = 2, size .3": {
            "variant": "rescale",
            "epsilon": 0.05,
            "step_size": 0.02,
            "p": 2,
            "size": 0.3,
        },
        "rescale, its own constants": {"variant": "rescale"},
        "printed": {"variant": "printed", "epsilon": 0.03, "step_size": 0.1, "size": 2.0},
    }
    found = [
        Case(label, {"delta": delta, "gradient": gradient, "rows": rows, "attack": way})
        for label, way in ways.items()
    ]
    for p in (2, math.inf):
        found += [
            Case(
                f"paper, {label}, p = {p}",
                {"delta": d, "gradient": g, "rows": rows, "attack": {**small, "p": p}},
            )
            for label, d, g in (
                ("a gradient of zeros for one sentence", delta, none),
                ("pads", delta, pads),
                ("no gradient at all", delta, 0 * gradient),
                ("gradients of 1e-30", delta.float(), 1e-30 * gradient.float()),
            )
        ]
    faint = gradient.float() * torch.where(rows == 2, 1e-30, 1.0)[:, None]
    found.append(
        Case(
            "paper, one sentence with gradients of 1e-30, p = 2",
            {
                "delta": delta.float(),
                "gradient": faint,
                "rows": rows,
                "attack": {**small, "epsilon": 5.0, "p": 2},
            },
        )
    )
    return found + [
        Case(
            "paper, padded",
            {
                "delta": 0.1 * fixed(generator, 2, 4, 3),
                "gradient": fixed(generator, 2, 4, 3),
                "rows": torch.tensor([[0] * 4, [1] * 4]),
                "attack": {**small, "p": 2},
            },
        )
    ]


def run_step(make, inputs):
    return {"change": make(**inputs.pop("attack")).move(**inputs)}


TRIALS["smart.step"] = Trial(
    step_cases,
    run_step,
    subject="smart",
    hints=(
        (
            "Two algorithms under one roof. In which of them does the gradient's length count, "
            "and where does each want its epsilon?"
        ),
        (
            '"paper": the gradient is divided by its norm over the sentence, then the point is '
            "brought back: each coordinate for infinity, the whole "
            "sentence for 2. The others divide the *moved* vector by its own norm plus epsilon."
        ),
        (
            "paper: g over its largest coordinate in the sentence first, since the squares of "
            "1e-30 vanish; delta + eta * g / sentence_norms(g), then clamp, or times epsilon / "
            "max(epsilon, norm). Others: moved = delta + eta * g; size * moved / "
            "(|moved| + epsilon) along the last axis."
        ),
    ),
)


_WRONG_MOVED = (
    "moved = delta + self.step_size * gradient / sentence_norms(gradient, self.p, "
    "rows).clamp(min=tiny)"
)
_WRONG_BACK = (
    "return moved * (self.epsilon / sentence_norms(moved, self.p, rows).clamp(min=self.epsilon))"
)
_WRONG_BOX = "return moved.clamp(-self.epsilon, self.epsilon)"

MISTAKES["smart.step"] = [
    mistake(
        _WRONG_MOVED,
        _WRONG_MOVED.replace("+", "-"),
        "moved = delta + self.step_size * gradient\n",
        "moved = delta - self.step_size * gradient\n",
        "The step goes downhill. The search maximizes the distance.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = self.step_size * gradient / sentence_norms(gradient, self.p, "
        "rows).clamp(min=tiny)",
        "The current perturbation is dropped, so several steps are no better than one.",
    ),
    mistake(
        _WRONG_MOVED,
        _WRONG_MOVED.replace("step_size", "epsilon"),
        "The step has length epsilon. Use the step size.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = delta + self.step_size * gradient / sentence_norms(gradient, self.p, "
        "torch.arange(rows.numel(), "
        "device=rows.device).view(rows.shape)).clamp(min=tiny)",
        "The gradient is divided by a norm for each token. Use the norm of the sentence.",
    ),
    mistake(
        _WRONG_MOVED,
        "moved = delta + self.step_size * gradient",
        "The gradient is not divided by its norm.",
    ),
    mistake(
        _WRONG_BACK,
        "return moved",
        "In the Euclidean norm the perturbation is not projected back onto the ball.",
    ),
    mistake(
        "    if self.p == math.inf:\n        " + _WRONG_BOX + "\n",
        "    if self.p == math.inf:\n        return moved\n",
        "In the maximum norm the perturbation is not clipped to the ball.",
    ),
    mistake(
        "moved = delta + self.step_size * gradient / sentence",
        "moved = delta + gradient / sentence",
        "The step size is not used.",
    ),
]

VARIANTS["smart.step"] = [
    """
def move(self, delta, gradient, rows):
    if self.variant == "paper":
        out = torch.empty_like(delta)
        for i in rows.unique().tolist():
            mine = rows == i
            g, d = gradient[mine].double(), delta[mine].double()
            size = g.abs().max() if self.p == math.inf else g.square().sum().sqrt()
            d = d + self.step_size * g / size if size > 0 else d
            if self.p == math.inf:
                d = d.clip(-self.epsilon, self.epsilon)
            elif d.norm() > self.epsilon:
                d = d * self.epsilon / d.norm()
            out[mine] = d.to(out.dtype)
        return out
    new = delta + gradient * self.step_size
    norm = (
        new.abs().amax(-1, keepdim=True)
        if self.p == math.inf
        else new.pow(2).sum(-1, keepdim=True).sqrt()
    )
    return new * (self.size / (norm + self.epsilon))
""",
    """
def move(self, delta, gradient, rows):
    if self.variant in ("rescale", "printed"):
        new = torch.add(delta, gradient, alpha=self.step_size)
        return torch.div(new * self.size, new.norm(p=self.p, dim=-1).unsqueeze(-1) + self.epsilon)
    top = sentence_norms(gradient, math.inf, rows)
    safe = gradient / torch.where(top > 0, top, 1.0)  # the largest coordinate of each sentence is 1
    own = sentence_norms(safe, self.p, rows)
    new = delta + self.step_size * safe / torch.where(own > 0, own, 1.0)
    if self.p == math.inf:
        return torch.clamp(new, -self.epsilon, self.epsilon)
    far = sentence_norms(new, 2, rows)
    return torch.where(far > self.epsilon, new / far.clamp(min=1e-30) * self.epsilon, new)
""",
]


# ---- smart.loss
#
# The search is compared step by step: the initial noise is given, and the perturbation is
# returned with the loss. A small network with weights. Zero to three steps in every variant, a
# mask, sentences by index and by position, a distance that is not symmetric, given and drawn
# noise, a gradient that is not finite. Compared are the loss, its gradients, the noise and the
# perturbation, whether weights are frozen afterwards, and whether the search left gradients in
# them.


def smart_cases(generator):
    net = {"W": 0.7 * fixed(generator, 3, 4), "V": fixed(generator, 4, 2)}
    sentences, tokens = fixed(generator, 5, 3), fixed(generator, 2, 4, 3)
    one = {**net, "embeds": sentences, "start": 0.1 * fixed(generator, 5, 3)}
    many = {
        **net,
        "embeds": tokens,
        "start": 0.1 * fixed(generator, 2, 4, 3),
        "mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]),
    }
    paper = {"variant": "paper", "epsilon": 0.2, "step_size": 0.15}
    ways = {
        "one step": {**paper},
        "three steps": {**paper, "steps": 3},
        "three steps, p = 2": {**paper, "steps": 3, "p": 2},
        "no step": {**paper, "steps": 0},
        "rescale, two steps": {"variant": "rescale", "epsilon": 0.05, "step_size": 0.5, "steps": 2},
        "printed, three steps": {
            "variant": "printed",
            "epsilon": 0.05,
            "step_size": 0.5,
            "steps": 3,
        },
        "printed, one step: only noise": {"variant": "printed", "epsilon": 0.05, "step_size": 0.5},
    }
    cases = [Case(f"sentences, {label}", {**one, "attack": way}) for label, way in ways.items()]
    cases += [
        Case(f"tokens with a mask, {label}", {**many, "attack": ways[label]})
        for label in ("one step", "three steps, p = 2")
    ]
    return cases + [
        Case(
            "tokens without a mask, summed",
            {**many, "mask": None, "reduction": "sum", "attack": ways["three steps"]},
        ),
        Case(
            "rescale, two steps, summed",
            {**one, "reduction": "sum", "attack": ways["rescale, two steps"]},
        ),
        Case("a distance with a direction", {**one, "aim": True, "attack": ways["three steps"]}),
        Case(
            "rows by number, and a mask",
            {
                **many,
                "rows": torch.tensor([[1, 0, 1, 1], [0, 2, 0, 0]]),
                "attack": ways["three steps, p = 2"],
            },
        ),
        Case(
            "a clean answer of another pass",
            {**one, "elsewhere": 0.2, "attack": ways["three steps"]},
        ),
        Case("a weight that does not learn", {**one, "still": True, "attack": ways["one step"]}),
        Case(
            "rows by number",
            {**one, "rows": torch.tensor([1, 0, 1, 1, 2]), "attack": ways["three steps, p = 2"]},
        ),
        Case(
            "a gradient that is not finite",
            {**one, "steep": True, "start": 0 * one["start"], "attack": ways["one step"]},
        ),
        Case(
            "a gradient with one row that is not finite",
            {
                **one,
                "steep": True,
                "start": one["start"] * torch.tensor([1, 0, 1, 1, 1])[:, None],
                "attack": ways["one step"],
            },
        ),
        Case(
            "a gradient with infinities and no NaN",
            {
                **one,
                "steep": "edge",
                "aim": True,
                "start": 0 * one["start"],
                "attack": ways["one step"],
            },
        ),
        Case(
            "drawn noise",
            {
                **net,
                "embeds": fixed(generator, 40, 3),
                "attack": {**paper, "noise": 0.05, "steps": 0},
            },
        ),
        Case(
            "drawn noise, masked",
            {
                **net,
                "embeds": tokens,
                "mask": many["mask"],
                "attack": {**paper, "noise": 0.05, "steps": 0},
            },
        ),
    ]


def run_smart(smart_loss, inputs):
    W, V = (torch.nn.Parameter(inputs.pop(name)) for name in ("W", "V"))
    embeds, attack, steep, aim = (
        inputs["embeds"].clone().requires_grad_(),
        Attack(**inputs.pop("attack")),
        inputs.pop("steep", False),
        inputs.pop("aim", False),
    )
    elsewhere, still = inputs.pop("elsewhere", 0.0), inputs.pop("still", False)
    V.requires_grad_(not still)

    def answer(x):
        out = torch.tanh(x @ W) @ V
        out = out.sum(1) if x.ndim == 3 else out
        moved = (x - embeds.detach())[:, :2]  # an infinite slope at home
        return out + (moved if steep == "edge" else moved.abs()).sqrt() if steep else out

    distance = (
        (lambda p, q: (p * (p - q)).sum(-1)) if aim else (lambda p, q: (p - q).square().sum(-1))
    )

    def call(**more):
        return smart_loss(
            **{
                **inputs,
                "embeds": embeds,
                "fn": answer,
                "clean": answer(embeds) + elsewhere,
                "distance": distance,
                "attack": attack,
                "weights": iter([W, V]),
                **more,
            }
        )

    if "start" not in inputs:
        return _drawn(
            lambda seed: call(
                generator=None if seed is None else torch.Generator().manual_seed(seed)
            )[1],
            inputs.get("mask"),
            attack.noise,
        )
    loss, stats = call()
    found = {
        "loss": loss,
        "change": stats.delta,
        "first noise": stats.start,
        "skipped": stats.skipped,
        "weights that learn afterwards": [W.requires_grad, V.requires_grad],
        "the change has a graph": stats.start.requires_grad or stats.delta.requires_grad,
        "the search left gradients": any(w.grad is not None for w in (W, V, embeds)),
    }
    if loss.requires_grad:
        found |= dict(
            zip(
                ("gradient of embeds", "gradient of W", "gradient of V"),
                torch.autograd.grad(
                    loss, (embeds, W, *([] if still else [V])), materialize_grads=True
                ),
            )
        )
    return found | {"has a gradient": loss.requires_grad}


def _drawn(search, mask, spread):
    noises = torch.stack([search(seed).start for seed in range(12)]) / spread
    moving = torch.ones(noises.shape[1:-1], dtype=torch.bool) if mask is None else mask.bool()

    def near(x, y):
        return bool(abs(x - y) < 0.25)

    return {
        "mean noise is near 0": near(noises[:, moving].mean(), 0),
        "spread of the noise is near sigma": near(noises[:, moving].std(), 1),
        "noise where nothing may change": noises[:, ~moving].abs().sum(),
        "without a generator, other noise each time": not torch.equal(
            search(None).start, search(None).start
        ),
        "the same seed, the same noise": torch.equal(search(3).start, search(3).start),
        "another seed, other noise": not torch.equal(noises[0], noises[1]),
        "noise that comes twice": len(rows := noises[0][moving].abs()) - len(rows.unique(dim=0)),
        "other noise for another number of a vector": not torch.equal(
            noises[..., 0], noises[..., 1]
        ),
    }


TRIALS["smart.loss"] = Trial(
    smart_cases,
    run_smart,
    subject="smart",
    hints=(
        (
            "A search without graph, then a charge with graph. What is constant in the first and "
            "not in the second?"
        ),
        (
            "Noise (masked) is the first change. In each step: the slope of the distance at the "
            "present change, masked, with the clean answer and the input "
            "detached; then `attack.move`. `attack.moves` says how often."
        ),
        (
            "delta = start = keep * noise; with frozen(weights): for _ in range(attack.moves): "
            "gradient = keep * _slope(...); not finite: return 0 and the "
            "stats; delta = attack.move(delta, gradient, rows). Last: total(fn(embeds + delta), "
            "clean)."
        ),
    ),
)


_WRONG_SLOPE = "keep * _slope(lambda d: total(fn(embeds.detach() + d), clean.detach()), delta)"
_WRONG_END = "return total(fn(embeds + delta), clean), SmartStats(start, delta, False)"

MISTAKES["smart.loss"] = [
    mistake(
        _WRONG_END,
        _WRONG_END.replace("clean)", "clean.detach())"),
        "The clean output is detached in the penalty, so only the perturbed output gets a "
        "gradient.",
    ),
    mistake(
        "delta = attack.move(delta, gradient, rows)",
        "delta = attack.move(delta, -gradient, rows)",
        "The sign is wrong: the search minimizes the distance.",
    ),
    mistake(
        "delta = attack.move(delta, gradient, rows)",
        "attack.move(delta, gradient, rows)",
        "The perturbation is never updated: the result of the step is dropped.",
    ),
    mistake(
        _WRONG_END,
        _WRONG_END.replace("fn(embeds + delta)", "fn(embeds + start)"),
        "The penalty is computed for the initial noise. Use the perturbation found by the search.",
    ),
    mistake(
        "            gradient = " + _WRONG_SLOPE,
        "            d = delta.detach().requires_grad_()\n"
        "            total(fn(embeds.detach() + d), clean.detach()).backward()\n"
        "            "
        "gradient = keep * d.grad",
        "    with frozen(weights):\n",
        "    if True:\n",
        "The search calls `backward`, which adds its gradients to those of the parameters. Use "
        "`torch.autograd.grad`.",
    ),
    mistake(
        "            if _broken(gradient):\n"
        "                return wide(clean.new_zeros(())), SmartStats(start, delta, True)\n",
        "",
        "A gradient that is not finite is used, so the loss becomes NaN.",
    ),
    mistake(
        "(_noise(embeds, attack.noise, generator) if start is None else start)",
        "torch.zeros_like(embeds)",
        "The search starts from the clean input, where the gradient of the distance is 0. Start "
        "from random noise.",
    ),
    mistake(
        "    " + _WRONG_END,
        "    with torch.no_grad():\n        " + _WRONG_END,
        "The penalty is computed without a graph, so it has no gradient.",
    ),
]

VARIANTS["smart.loss"] = [
    """
def smart_loss(
    embeds,
    fn,
    clean,
    distance,
    attack=Attack(),
    rows=None,
    mask=None,
    weights=(),
    reduction="mean",
    generator=None,
    start=None,
):
    if rows is None:
        rows = torch.arange(embeds.shape[0])[(...,) + (None,) * (embeds.ndim - 2)].expand(
            embeds.shape[:-1]
        )
    free = torch.ones(embeds.shape[:-1]) if mask is None else mask
    free = free.to(embeds.dtype).unsqueeze(-1)
    if start is None:
        start = attack.noise * torch.randn(embeds.shape, generator=generator, dtype=embeds.dtype)
    start = start * free
    home, aim, delta = embeds.detach(), clean.detach(), start.detach()
    for _ in range(attack.moves):
        delta = delta.clone().requires_grad_(True)
        value = distance(fn(home + delta), aim)
        value = value.mean() if reduction == "mean" else value.sum()
        (g,) = torch.autograd.grad(value, [delta])
        g = g * free
        if not torch.isfinite(g).all():
            return torch.zeros((), dtype=clean.dtype), SmartStats(start, delta.detach(), True)
        delta = attack.move(delta.detach(), g, rows)
    moved = distance(fn(embeds + delta), clean)
    return moved.mean() if reduction == "mean" else moved.sum(), SmartStats(start, delta, False)
""",
    """
def smart_loss(
    embeds,
    fn,
    clean,
    distance,
    attack=Attack(),
    rows=None,
    mask=None,
    weights=(),
    reduction="mean",
    generator=None,
    start=None,
):
    reduce = {"mean": torch.mean, "sum": torch.sum}[reduction]
    keep = torch.ones_like(embeds[..., :1]) if mask is None else mask.unsqueeze(-1).to(embeds)
    if rows is None:
        rows = (torch.cumsum(torch.ones(embeds.shape[:-1]), 0) - 1).long()
    noise = _noise(embeds, attack.noise, generator) if start is None else start
    noise = delta = noise * keep
    bad = False
    with frozen(weights):
        step = 0
        while step < attack.moves and not bad:
            slope = (
                _slope(
                    lambda d: reduce(distance(fn(embeds.detach() + keep * d), clean.detach())),
                    delta,
                )
                * keep
            )
            bad = not bool(slope.isfinite().all())
            if not bad:
                delta = attack.move(delta, slope, rows) * keep
            step += 1
    if bad:
        return torch.zeros_like(clean).sum().detach(), SmartStats(noise, delta, True)
    return reduce(distance(fn(embeds + delta), clean)), SmartStats(noise, delta, False)
""",
]
