"""Exercise cases of chapters 10 and 11: task heads."""

import types
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn

from minbert.course.check_runner import Case, Trial, fixed, mistake, probe, with_gradients
from minbert.tokens import TokenBatch

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


# ---- heads.vectors
#
# A small model whose encoder is a table of word vectors; it records the batches that it receives
# and whether gradients are switched on. `source` returns another encoder than `self.encoder`, as it
# does for an encoder with a transform. First sentences are shorter or longer than second ones, and
# the padding id is not 0.


class _TableEncoder(nn.Module):
    """Embed a sentence by the mean of its rows in a table; record each call."""

    transform, device = None, torch.device("cpu")

    def __init__(self, table, pad_id):
        super().__init__()
        self.table = nn.Parameter(table)
        self.model = types.SimpleNamespace(config=types.SimpleNamespace(pad_token_id=pad_id))
        self.calls = []

    def embed(self, batch):
        self.calls.append((batch.input_ids, batch.attention_mask, torch.is_grad_enabled()))
        mask = batch.attention_mask[..., None].double()
        return (self.table[batch.input_ids] * mask).sum(1) / mask.sum(1)


def vectors_cases(generator):
    ids = torch.randint(1, 12, (6, 5), generator=generator)
    lengths = torch.randint(1, 4, (6, 1), generator=generator)
    mask = (torch.arange(5) < lengths).long()
    table = fixed(generator, 12, 4)
    one = {"ids": ids[:4], "mask": mask[:4], "table": table}
    short = {**one, "ids": ids[:3, :3], "mask": mask[:3, :3]}
    pair = {**short, "ids2": ids[3:], "mask2": mask[3:]}
    long_first = {**one, "ids": ids[:3], "mask": mask[:3], "ids2": ids[3:, :3]}
    long_first["mask2"] = mask[3:, :3]
    return [
        Case("single sentences", one),
        Case("pairs, the second sentences are longer", pair),
        Case("pairs, the first sentences are longer", long_first),
        Case("one pair", {**pair, **{k: pair[k][:1] for k in ("ids", "mask", "ids2", "mask2")}}),
        Case("pairs, frozen encoder", {**pair, "mode": "frozen"}),
        Case("single sentences, frozen encoder", {**one, "mode": "frozen"}),
        Case("pairs, gradients switched off by the caller", {**pair, "grad": False}),
    ]


def run_vectors(kind, inputs):
    encoder = _TableEncoder(inputs["table"], pad_id=9)
    model = kind(encoder, {"task": kind.head_class("paraphrase")}, inputs.get("mode", "full"))
    source = _TableEncoder(2 * inputs["table"], pad_id=9)
    model.source = lambda: source
    first = TokenBatch(inputs["ids"], inputs["mask"])
    second = TokenBatch(inputs["ids2"], inputs["mask2"]) if "ids2" in inputs else None
    with torch.set_grad_enabled(inputs.get("grad", True)):
        found = model.vectors(first, second)
    calls = source.calls + encoder.calls
    gradient = torch.zeros_like(source.table)
    if found[0].requires_grad:
        loss = sum((k + 1) * x.sin().sum() for k, x in enumerate(found))
        (gradient,) = torch.autograd.grad(loss, source.table)
    return {
        "number of results": len(found),
        **{f"embeddings of column {k + 1}": x for k, x in enumerate(found)},
        "number of calls of the encoder": len(calls),
        "token ids that the encoder received": calls[0][0],
        "attention mask that the encoder received": calls[0][1],
        "gradients are on in the encoder": calls[0][2],
        "gradient of the encoder": gradient,
    }


TRIALS["heads.vectors"] = Trial(
    vectors_cases,
    run_vectors,
    derive=(),
    hints=(
        "How many batches does the encoder receive, and how many tensors are returned?",
        (
            'Gradients are on in the encoder if they are on outside and the mode is "full": '
            "torch.set_grad_enabled takes such a boolean. The first len(first.input_ids) rows "
            "belong to the first sentences."
        ),
        (
            "x = self.source().embed(batch) for the joined batch, inside the context; then "
            "x.split(len(first.input_ids)), which gives one tensor without second sentences."
        ),
    ),
)


_WRONG_JOIN = "join_batches(first, second, self.encoder.model.config.pad_token_id)"
_WRONG_GRAD = 'torch.is_grad_enabled() and self.mode == "full"'
_WRONG_SPLIT = "embeddings.split(len(first.input_ids))"

MISTAKES["heads.vectors"] = [
    mistake(
        _WRONG_JOIN,
        "join_batches(second, first, self.encoder.model.config.pad_token_id)",
        "The second sentences come first in the batch, so the two columns are exchanged.",
    ),
    mistake(
        _WRONG_JOIN,
        "join_batches(first, second)",
        "The padding id is 0 for every encoder. Use the one of its configuration.",
    ),
    mistake(
        _WRONG_GRAD,
        "torch.is_grad_enabled()",
        "Gradients are also on in frozen mode.",
    ),
    mistake(
        _WRONG_GRAD,
        'self.mode == "full"',
        "Gradients are switched on although the caller has switched them off.",
    ),
    mistake(
        _WRONG_SPLIT,
        "embeddings.chunk(2)",
        "A batch of single sentences is split into two halves, too.",
    ),
    mistake(
        _WRONG_SPLIT,
        "(embeddings,)",
        "The embeddings of both columns are returned as one tensor. Split them.",
    ),
    mistake(
        _WRONG_SPLIT,
        "(embeddings[::2], embeddings[1::2]) if second is not None else (embeddings,)",
        "The rows are split as if the two sentences of a pair were adjacent. The batch contains "
        "all first sentences, then all second sentences.",
    ),
    mistake(
        "self.source().embed(batch)",
        "self.encoder.embed(batch)",
        "The transform of the encoder is not handled: call `self.source()`.",
    ),
]

VARIANTS["heads.vectors"] = [
    """
def vectors(self, first, second=None):
    B = len(first.input_ids)
    pad_id = self.encoder.model.config.pad_token_id
    batch = first if second is None else join_batches(first, second, pad_id)
    if self.mode == "frozen":
        with torch.no_grad():
            x = self.source().embed(batch)
    else:
        x = self.source().embed(batch)
    return (x,) if second is None else (x[:B], x[B:])
""",
    """
def vectors(self, first, second=None):
    joined = first
    if second is not None:
        pad_id = self.encoder.model.config.pad_token_id
        joined = join_batches(second=second, first=first, pad_id=pad_id)
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(before and self.mode != "frozen")
    try:
        x = self.source().embed(joined)
    finally:
        torch.set_grad_enabled(before)
    return tuple(torch.split(x, first.input_ids.shape[0]))
""",
]
