"""Exercise cases of chapters 14 and 16: task heads."""

from unittest.mock import patch

import torch
import torch.nn.functional as F

from minbert.course.check_runner import Case, Trial, fixed, mistake, probe, with_gradients

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def _by_value(x, p=0.5, training=True, inplace=False):
    return x * (1 + p * torch.sin(5 * x + 1)) if training else x


def _settle(head):
    """Give every weight numbers of its own, in double precision."""
    for n, weight in enumerate(head.double().parameters()):
        steps = torch.arange(weight.numel(), dtype=torch.float64).view(weight.shape)
        if weight.ndim:
            weight.data = torch.sin(2.3 * steps + n) / max(weight.shape[-1], 1) ** 0.5
    return head


def run_head(kind, inputs):
    """Outputs and gradients in the mode that the case asks for, with dropout by value."""
    head = _settle(kind(**inputs["options"])).train(inputs.get("train", False))
    vectors = {name: inputs[name] for name in ("u", "v") if name in inputs}
    with patch.object(F, "dropout", _by_value), patch.object(torch, "dropout", _by_value):
        if "earlier" in inputs:
            head.eval()(*vectors.values())
            head.train()
        seen = with_gradients(lambda **x: head(*x.values()), vectors, *vectors)
        weights = {name: w for name, w in head.named_parameters() if w.requires_grad}
        out = head(*vectors.values())
        found = (
            torch.autograd.grad((out * probe(out)).sum(), list(weights.values()), allow_unused=True)
            if weights
            else ()
        )
    return seen | {
        f"gradient of {name}": torch.zeros_like(w) if g is None else g
        for (name, w), g in zip(weights.items(), found)
    }


def _pairs(generator, **options):
    """Cases that every pair head shares."""
    u, v = fixed(generator, 2, 6, 5)
    v[2], v[3] = u[2], -3 * u[3]
    base = {"u": u, "v": v, "options": options}
    return [
        Case("six pairs, one of equal vectors", base),
        Case("training", {**base, "train": True}),
        Case("one pair", {**base, "u": u[:1], "v": v[:1]}),
        Case("one pair, training", {**base, "u": u[1:2], "v": v[1:2], "train": True}),
        Case("training, after a call in eval mode", {**base, "train": True, "earlier": True}),
        Case("long and short vectors", {**base, "u": 100 * u, "v": v / 100}),
    ]


# ---- heads.linear
#
# All heads share one run: a small head with fixed weights, in train and eval mode; compared are
# outputs and the gradients of vectors and weights. Dropout before and after concatenation is
# equivalent in distribution, so dropout is replaced by a function of each value, which commutes
# with concatenation. Cases: one sentence, two and three classes, a batch of one.


def linear_cases(generator):
    u = fixed(generator, 6, 5)
    three, two = {"width": 5, "classes": 3}, {"width": 5, "classes": 2, "dropout": 0.1}
    return [
        Case("three classes", {"u": u, "options": three}),
        Case("three classes, training", {"u": u, "options": three, "train": True}),
        Case("two classes, training", {"u": u, "options": two, "train": True}),
        Case(
            "training, after a call in eval mode",
            {"u": u, "options": three, "train": True, "earlier": True},
        ),
        Case("one sentence", {"u": u[:1], "options": two}),
    ]


TRIALS["heads.linear"] = Trial(
    linear_cases,
    run_head,
    hints=(
        "Two modules are ready in the constructor. In which order do they act?",
        (
            "Dropout acts on the vector, before the linear map; it knows by itself whether the "
            "head is training."
        ),
        "self.linear(self.drop(u)), and nothing after it.",
    ),
)


_WRONG_LINEAR = "self.linear(self.drop(u))"

MISTAKES["heads.linear"] = [
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u))[:, 0]",
        "Only the first logit is returned. There is one for each class.",
    ),
    mistake(
        _WRONG_LINEAR,
        "self.drop(self.linear(u))",
        "Dropout is applied to the logits. It belongs on the sentence vector.",
    ),
    mistake(_WRONG_LINEAR, "self.linear(u)", "There is no dropout."),
    mistake(
        _WRONG_LINEAR,
        "self.linear(F.dropout(u, self.dropout))",
        "Dropout is active in eval mode too.",
    ),
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u)).softmax(-1)",
        "A softmax is applied. The loss expects logits.",
    ),
    mistake(_WRONG_LINEAR, "self.drop(u) @ self.linear.weight.T", "The bias is missing."),
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u.detach()))",
        "The vector is detached, so the encoder gets no gradient from this task.",
    ),
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u)).squeeze(0)",
        "A batch of one example loses its batch axis.",
    ),
]

VARIANTS["heads.linear"] = [
    "def forward(self, u):\n    return self.drop(u) @ self.linear.weight.T + self.linear.bias\n",
    (
        "def forward(self, u):\n    dropped = F.dropout(u, p=self.drop.p, training=self.training)\n"
        "    return torch.stack([F.linear(row, self.linear.weight, self.linear.bias) for row in "
        "dropped])\n"
    ),
]


# ---- heads.pair
#
# The order of the vectors shows because all weights differ; a batch of one must keep its axis.


def _of_goals(generator, **options):
    """Long vectors, so that answers lie far off the scale, for heads whose numbers are no logits
    of a yes or are read as something else."""
    return [
        _pairs(generator, **options, goal=goal)[-1]._replace(label=f"the goal {goal}")
        for goal in ("similarity", "paraphrase_mse")
    ]


def pair_cases(generator):
    return _pairs(generator, width=5, dropout=0.3) + _of_goals(generator, width=5, dropout=0.3)


TRIALS["heads.pair"] = Trial(
    pair_cases,
    run_head,
    hints=(
        "The linear map wants 2D numbers a pair and gives one. What is the shape of what it gives?",
        (
            "torch.cat over the last axis, u first. The result of the linear map is (B, 1); take "
            "its only column."
        ),
        (
            "self.linear(self.drop(torch.cat([u, v], -1))), then the column [:, 0] of it. "
            "squeeze() would take the axis of a batch of one as well."
        ),
    ),
)


_WRONG_PAIR = "self.linear(self.drop(torch.cat([u, v], -1)))[:, 0]"

MISTAKES["heads.pair"] = [
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v.detach()], -1)))[:, 0]",
        "The second vector is detached and gets no gradient.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([v, u], -1)))[:, 0]",
        "The two vectors are concatenated in the wrong order.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v], -1))).squeeze()",
        "`squeeze()` removes every axis of size 1, so a batch of one pair loses its batch axis.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v], -1)))",
        "The last axis is kept: (B, 1) against labels (B,) would broadcast to (B, B).",
    ),
    mistake(
        _WRONG_PAIR,
        "self.drop(self.linear(torch.cat([u, v], -1)))[:, 0]",
        "Dropout is applied to the output. It belongs on the vectors.",
    ),
    mistake(_WRONG_PAIR, "self.linear(torch.cat([u, v], -1))[:, 0]", "There is no dropout."),
    mistake(
        _WRONG_PAIR,
        "self.linear(F.dropout(torch.cat([u, v], -1), self.dropout))[:, 0]",
        "Dropout is active in eval mode too.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v], -1)))[:, 0].sigmoid()",
        "A sigmoid is applied. The loss expects logits.",
    ),
]

VARIANTS["heads.pair"] = [
    """
def forward(self, u, v):
    first, second = self.linear.weight[0].chunk(2)
    return self.drop(u) @ first + self.drop(v) @ second + self.linear.bias
""",
    """
def forward(self, u, v):
    both = torch.hstack((u, v))
    return (
        torch.einsum("bd,cd->b", F.dropout(both, self.dropout, self.training), self.linear.weight)
        + self.linear.bias[0]
    )
""",
]


# ---- heads.difference
#
# One class and three. Some pairs are equal: there the square root of a square would have a NaN
# gradient.


def difference_cases(generator):
    many = [
        case._replace(label=f"{case.label}; three classes")
        for case in _pairs(generator, width=5, classes=3, goal="classes", dropout=0.3)
    ]
    return _pairs(generator, width=5, dropout=0.3) + many


TRIALS["heads.difference"] = Trial(
    difference_cases,
    run_head,
    hints=(
        "Three blocks of width D, in the order in which the weights expect them.",
        (
            "The blocks are u, v and (u - v).abs(); dropout acts on all 3D numbers at once. How "
            "many axes has the result for one class, for three?"
        ),
        (
            "out = self.linear(self.drop(torch.cat([u, v, (u - v).abs()], -1))); give its only "
            "column if self.classes is 1."
        ),
    ),
)


_WRONG_BLOCKS = "torch.cat([u, v, (u - v).abs()], -1)"

MISTAKES["heads.difference"] = [
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, u - v], -1)",
        "The absolute value is missing. A plain difference is linear in u and v, so a linear "
        "layer gains nothing from it.",
    ),
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, (u - v).square()], -1)",
        "The differences are squared. Use their absolute values.",
    ),
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, u * v], -1)",
        "The third block is the product of the vectors. Use their absolute difference.",
    ),
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([(u - v).abs(), u, v], -1)",
        "The blocks are in the wrong order. The paper concatenates u, v, |u - v|.",
    ),
    mistake(
        "self.drop(torch.cat([u, v, (u - v).abs()], -1))", _WRONG_BLOCKS, "There is no dropout."
    ),
    mistake(
        "return out[:, 0] if self.classes == 1 else out",
        "return out.squeeze()",
        "`squeeze()` removes every axis of size 1, so a batch of one pair loses its batch axis.",
    ),
    mistake(
        "return out[:, 0] if self.classes == 1 else out",
        "return out[:, 0]",
        "Only the first logit is returned although there are several classes.",
    ),
    mistake(
        "return out[:, 0] if self.classes == 1 else out",
        "return out",
        "With one class the last axis is kept. The output should be (B,).",
    ),
]

VARIANTS["heads.difference"] = [
    """
def forward(self, u, v):
    first, second, third = self.linear.weight.chunk(3, dim=1)
    distance = torch.maximum(u, v) - torch.minimum(u, v)
    out = (
        self.drop(u) @ first.T
        + self.drop(v) @ second.T
        + self.drop(distance) @ third.T
        + self.linear.bias
    )
    return out.squeeze(-1) if self.classes == 1 else out
""",
    """
def forward(self, u, v):
    x = torch.hstack([u, v, torch.abs(v - u)])
    out = F.linear(F.dropout(x, self.dropout, self.training), self.linear.weight, self.linear.bias)
    return out.flatten() if self.classes == 1 else out
""",
]


# ---- heads.cosine
#
# Scale and bias other than 1 and 0, a zero vector (cosine 0 and gradient 0), vectors of very
# different length, scale and bias that are frozen.


def _with_zeros(cases):
    made = {**cases[0].inputs, "u": cases[0].inputs["u"].clone(), "v": cases[0].inputs["v"].clone()}
    made["u"][0], made["v"][1] = 0, 0
    return [*cases, Case("two zero vectors", made)]


def cosine_cases(generator):
    scale, bias = (1 + torch.rand(2, generator=generator)).tolist()
    fixed_numbers = {"scale": scale, "bias": -bias, "trainable": False}
    negative = [
        case._replace(label="a negative scale")
        for case in _pairs(generator, scale=-scale, bias=bias)[:1]
    ]
    return (
        _with_zeros(_pairs(generator, scale=3 * scale, bias=bias))
        + _pairs(generator, **fixed_numbers)[:1]
        + negative
        + _of_goals(generator, scale=3 * scale, bias=bias)
    )


TRIALS["heads.cosine"] = Trial(
    cosine_cases,
    run_head,
    hints=(
        "A straight line through the cosine: what is its slope, what its height at 0?",
        (
            "self.scale and self.bias are parameters: use them as they are, so that the gradient "
            "reaches them."
        ),
        "self.scale times safe_cosine(u, v), plus self.bias.",
    ),
)


_WRONG_COSINE = "self.scale * safe_cosine(u, v) + self.bias"

MISTAKES["heads.cosine"] = [
    mistake(_WRONG_COSINE, "self.scale * safe_cosine(u, v)", "The bias is missing."),
    mistake(_WRONG_COSINE, "safe_cosine(u, v) + self.bias", "The scale is missing."),
    mistake(
        _WRONG_COSINE,
        "safe_cosine(u, v)",
        "Scale and bias are missing: a cosine alone is a logit between -1 and 1, which is never "
        "confident.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * (1 - safe_cosine(u, v)) + self.bias",
        "This is the cosine distance. The similarity of equal sentences is the highest.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * (u * v).sum(-1) + self.bias",
        "This is the dot product, which depends on the length of the vectors. Use the cosine.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * F.cosine_similarity(u, v) + self.bias",
        "The gradient of this cosine at a zero vector is 10⁸. Use `safe_cosine`.",
    ),
    mistake(
        _WRONG_COSINE,
        "(self.scale * safe_cosine(u, v) + self.bias).sigmoid()",
        "A sigmoid is applied. The loss expects logits.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * safe_cosine(u, v).clamp(min=0) + self.bias",
        "Negative cosines are clipped, so dissimilar pairs get no gradient.",
    ),
]

VARIANTS["heads.cosine"] = [
    """
def forward(self, u, v):
    return torch.addcmul(self.bias, self.scale, safe_cosine(v, u))
""",
    """
def forward(self, u, v):
    dots = torch.einsum("bd,bd->b", u, v)
    squares = u.square().sum(-1) * v.square().sum(-1)
    real = squares > 0
    cosine = torch.where(real, dots / torch.where(real, squares, 1.0).sqrt(), 0.0 * dots.detach())
    return cosine * self.scale + self.bias
""",
]


# ---- heads.sum
#
# Both goals, so that the weight of the cosine is 1 in one case and 5 in another; a given weight;
# a learned weight, whose gradient is compared; train mode, where the cosine must not depend on
# dropout; zero vectors.


def sum_cases(generator):
    def relabel(cases, what):
        return [case._replace(label=f"{case.label}; {what}") for case in cases]

    plain, graded = (
        _pairs(generator, width=5, dropout=0.3),
        _pairs(generator, width=5, goal="similarity", dropout=0.3),
    )
    weights = relabel(
        _pairs(generator, width=5, cosine_weight=0.7)[1:2], "another weight"
    ) + relabel(_pairs(generator, width=5, learned=True)[:2], "a learned weight")
    return _with_zeros(plain) + relabel(graded[:3], "grades") + weights


TRIALS["heads.sum"] = Trial(
    sum_cases,
    run_head,
    hints=(
        "Two numbers a pair, added. Write the shape of each behind its line.",
        (
            "The straight part is that of `heads.pair`, (B,). The cosine is taken of the vectors "
            "as they came, before any dropout."
        ),
        (
            "straight = self.linear(self.drop(torch.cat([u, v], -1)))[:, 0]; add "
            "self.cosine_weight times safe_cosine(u, v)."
        ),
    ),
)


_WRONG_SUM = "straight + self.cosine_weight * safe_cosine(u, v)"

MISTAKES["heads.sum"] = [
    mistake(_WRONG_SUM, "straight + safe_cosine(u, v)", "The weight of the cosine is missing."),
    mistake(_WRONG_SUM, "straight", "The cosine is missing."),
    mistake(
        "[:, 0]",
        "",
        "(B, 1) plus (B,) broadcasts to (B, B), so the linear output of every pair is added to "
        "the cosine of every other.",
    ),
    mistake(
        _WRONG_SUM,
        "straight + self.drop(self.cosine_weight * safe_cosine(u, v))",
        "Dropout is applied to the cosine too. It belongs only on the input of the linear layer.",
    ),
    mistake("self.drop(torch.cat([u, v], -1))", "torch.cat([u, v], -1)", "There is no dropout."),
    mistake(
        _WRONG_SUM,
        "straight + self.cosine_weight * (1 - safe_cosine(u, v))",
        "The cosine distance is added. Use the similarity.",
    ),
    mistake(
        _WRONG_SUM,
        "straight + self.cosine_weight * (u * v).sum(-1)",
        "The dot product is added. Use the cosine.",
    ),
    mistake(
        "torch.cat([u, v], -1)",
        "torch.cat([v, u], -1)",
        "The two vectors are concatenated in the wrong order.",
    ),
]

VARIANTS["heads.sum"] = [
    """
def forward(self, u, v):
    weights = self.linear.weight.view(2, -1)
    straight = (self.drop(u) * weights[0] + self.drop(v) * weights[1]).sum(-1) + self.linear.bias
    return torch.add(straight, self.cosine_weight * safe_cosine(v, u))
""",
    """
def forward(self, u, v):
    parts = [
        self.cosine_weight * safe_cosine(u, v)[:, None],
        self.linear(F.dropout(torch.hstack([u, v]), self.dropout, self.training)),
    ]
    return torch.cat(parts, 1).sum(1)
""",
]


# ---- losses.clipped_head
#
# Both variants, several thresholds, a zero vector, projections to fewer and to more dimensions.


def clipped_cases(generator):
    def relabel(cases, what):
        return [case._replace(label=f"{case.label}; {what}") for case in cases]

    kinds = {
        "default threshold": {},
        "unclipped positives": {"clip_positives": False, "project": 7},
        "threshold 0.2": {"threshold": 0.2, "project": 7},
        "similarity": {"goal": "similarity"},
        "a threshold below 0": {"threshold": -0.3},
    }
    made = []
    for what, options in kinds.items():
        cases = _with_zeros(_pairs(generator, **({"width": 5, "project": 3} | options)))
        made += relabel(
            [cases[0], cases[2], *cases[4:]]
            + (cases[1:2] if what in ("threshold 0.2", "a threshold below 0") else []),
            what,
        )
    return made


TRIALS["losses.clipped_head"] = Trial(
    clipped_cases,
    run_head,
    hints=(
        "There are three steps: project, compare, clip. The last one depends on clip_positives.",
        (
            "Both vectors go through the same self.linear before the cosine, which is clipped from "
            "below at self.threshold."
        ),
        (
            "cosines = safe_cosine(self.linear(u), self.linear(v)); then "
            "cosines.clamp(min=self.threshold) if self.clip_positives, else the cosines."
        ),
    ),
)


_WRONG_PROJECTED = "safe_cosine(self.linear(u), self.linear(v))"
_WRONG_CLIPPED = "cosines.clamp(min=self.threshold) if self.clip_positives else cosines"

MISTAKES["losses.clipped_head"] = [
    mistake(
        _WRONG_PROJECTED,
        "safe_cosine(u, v)",
        "The projection is missing, so its weights never learn.",
    ),
    mistake(
        _WRONG_PROJECTED,
        "(self.linear(u) * self.linear(v)).sum(-1)",
        "This is the dot product of the projections. Use the cosine, which does not depend on "
        "their length.",
    ),
    mistake(
        _WRONG_CLIPPED,
        "cosines.clamp(min=self.threshold)",
        "Without clip_positives the cosine is clipped here as well. The loss clips it, depending on the "
        "label.",
    ),
    mistake(
        _WRONG_CLIPPED,
        "cosines",
        "Nothing is clipped. With clip_positives the output is never below the threshold.",
    ),
    mistake(
        _WRONG_CLIPPED,
        "cosines.clamp(max=self.threshold) if self.clip_positives else cosines",
        "The output is clipped from above. It should be clipped from below.",
    ),
    mistake(
        _WRONG_CLIPPED,
        "cosines if self.clip_positives else cosines.clamp(min=self.threshold)",
        "The two variants are swapped.",
    ),
    mistake(
        _WRONG_CLIPPED,
        "cosines.clamp(min=0.7) if self.clip_positives else cosines",
        "The threshold is always 0.7. Use the one of the head.",
    ),
    mistake(
        _WRONG_PROJECTED,
        "F.cosine_similarity(self.linear(u), self.linear(v))",
        "The gradient of this cosine at a zero vector is 10⁸. Use `safe_cosine`.",
    ),
]

VARIANTS["losses.clipped_head"] = [
    """
def forward(self, u, v):
    a, b = self.linear(torch.cat([u, v])).chunk(2)
    cosine = safe_cosine(a, b)
    if not self.clip_positives:
        return cosine
    return self.threshold + F.relu(cosine - self.threshold)
""",
    """
def forward(self, u, v):
    cosine = safe_cosine(u @ self.linear.weight.T, v @ self.linear.weight.T)
    if not self.clip_positives:
        return cosine
    return torch.where(
        cosine > self.threshold, cosine, torch.full_like(cosine, self.threshold)
    )
""",
]
