"""Exercise cases of chapters 20 and 21: the loss and the model of BERT-CF."""

import math
import types

import torch
from torch import nn

from minbert.course.check_runner import Case, Trial, fixed, mistake
from minbert.simcse import ViewBatch
from minbert.tokens import TokenBatch

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


class _Flow(nn.Module):
    """A stand-in with the doors of a flow; its log |det| is nobody's, which tells the doors
    apart."""

    initialized = True

    def __init__(self, width):
        super().__init__()
        self.width, self.scale = (
            width,
            nn.Parameter(torch.linspace(0.5, 1.5, width, dtype=torch.float64)),
        )

    def forward(self, u):
        return torch.sinh(u * self.scale) + 0.3, (u * self.scale).sum(1)

    def nll(self, u, unit="bits"):
        z, log_det = self(u)
        nats = (z.square().sum(1) + self.width * math.log(2 * math.pi)) / 2 - log_det
        return nats / (self.width * math.log(2)) if unit == "bits" else nats


def _pulled(parts, leaves):
    """Differentiate each part of a loss by each leaf."""
    found = {}
    for name, part in parts.items():
        grads = (
            torch.autograd.grad(part, list(leaves.values()), allow_unused=True, retain_graph=True)
            if part.requires_grad
            else [None] * len(leaves)
        )
        found |= {
            f"gradient of {name} by {leaf}": torch.zeros_like(x) if g is None else g
            for (leaf, x), g in zip(leaves.items(), grads)
        }
    return found


# ---- flow.bertcf
#
# A wrong gradient does not change the loss of the first step, so gradients are compared. The flow
# is a stand-in with its own log-determinant. The views differ from the vectors whose likelihood
# is computed.


def bertcf_cases(generator):
    a, more, other = fixed(generator, 3, 5, 3)
    views = {"a": a, "b": a + 0.7 * more, "vectors": other}
    return [
        Case("the weight that nobody gave", views),
        Case("a low weight, a high temperature", {**views, "weight": 0.05, "temperature": 0.6}),
        Case(
            "weight 2, groups",
            {**views, "weight": 2.0, "temperature": 0.3, "groups": torch.tensor([4, 1, 4, 0, 1])},
        ),
        Case("weight 0", {**views, "weight": 0.0, "temperature": 0.5}),
    ]


def run_bertcf(loss, inputs):
    flow = _Flow(3)
    leaves = {name: inputs[name].clone().requires_grad_() for name in ("a", "b", "vectors")}
    plain = loss(flow, **inputs)
    return {
        **{f"part {name}": value for name, value in plain.items()},
        **_pulled(
            loss(flow, **{**inputs, **leaves}), {**leaves, "weights of the flow": flow.scale}
        ),
    }


TRIALS["flow.bertcf"] = Trial(
    bertcf_cases,
    run_bertcf,
    subject="flow",
    hints=(
        "Two parts, two names. Which of the three matrices goes where?",
        (
            "The contrast compares flow(a)[0] with flow(b)[0]; the likelihood is that of "
            "`vectors`, before any contrast."
        ),
        (
            "{'mirror': weight * mirror_loss(flow(a)[0], flow(b)[0], temperature, groups=groups), "
            "'flow': flow.nll(vectors).mean()}."
        ),
    ),
)

MISTAKES["flow.bertcf"] = [
    mistake('"mirror": weight * contrast', '"mirror": contrast', "The weight is not used."),
    mistake(
        '"mirror": weight * contrast, "flow": likelihood',
        '"mirror": contrast, "flow": weight * likelihood',
        "The weight multiplies the likelihood. It belongs to the contrastive loss.",
    ),
    mistake(
        "mirror_loss(flow(a)[0], flow(b)[0],",
        "mirror_loss(a, b,",
        "The contrastive loss compares the vectors before the flow, so the flow gets no "
        "gradient from it.",
    ),
    mistake(
        "flow.nll(vectors)",
        'flow.nll(vectors, "nats")',
        "The likelihood is in nats. Use bits per dimension, so that its size is comparable to "
        "the contrastive loss.",
    ),
    mistake(
        "flow.nll(vectors).mean()",
        "flow.nll(vectors).sum()",
        "The negative log-likelihood is summed over the batch. Use the mean.",
    ),
    mistake(
        "flow.nll(vectors).mean()",
        "-flow.nll(vectors).mean()",
        "The sign of the likelihood is wrong: `nll` is a loss already.",
    ),
    mistake(
        "flow(b)[0], temperature, groups=groups",
        "flow(b)[0], groups=groups",
        "The temperature is not passed on.",
    ),
    mistake(
        ", groups=groups)", ")", "The groups are not passed on, so duplicates count as negatives."
    ),
]

VARIANTS["flow.bertcf"] = [
    """
def bertcf_loss(flow, a, b, vectors, weight=0.3, temperature=0.04, groups=None):
    both, _ = flow(torch.cat([a, b]))
    first, second = both.split(len(a))
    return dict(
        flow=flow.nll(vectors, "bits").sum() / len(vectors),
        mirror=mirror_loss(first, second, temperature=temperature, symmetric=False, groups=groups)
        * weight,
    )
""",
    """
def bertcf_loss(flow, a, b, vectors, weight=0.3, temperature=0.04, groups=None):
    parts = {"mirror": vectors.new_zeros(()), "flow": torch.mean(flow.nll(vectors))}
    if weight > 0:
        za, _ = flow(a)
        zb, _ = flow(b)
        parts["mirror"] = parts["mirror"] + weight * mirror_loss(za, zb, temperature, False, groups)
    return parts
""",
    """
def bertcf_loss(flow, a, b, vectors, weight=0.3, temperature=0.04, groups=None):
    import math
    z, log_det = flow(vectors)
    nats = 0.5 * (z ** 2).sum(1) + 0.5 * flow.width * math.log(2 * math.pi) - log_det
    contrast = mirror_loss(flow(a)[0], flow(b)[0], temperature, groups=groups)
    return {"mirror": contrast * weight, "flow": nats.mean() / (flow.width * math.log(2))}
""",
]


# ---- bertcf.forward
#
# A stand-in for the encoder counts its calls, and its output shows whether it is in train mode.
# Frozen and not frozen, with gradients enabled and disabled by the caller. The weights of a
# frozen encoder require gradients in one case; the forward pass must not record a graph.


class _Encoder(nn.Module):
    """Means of a table's rows, plus 1 in train mode; counts its calls."""

    transform, width = None, 4

    def __init__(self):
        super().__init__()
        self.table, self.calls = (
            nn.Parameter(torch.cos(torch.arange(200.0, dtype=torch.float64)).view(50, 4)),
            [],
        )

    def embed(self, tokens):
        self.calls.append(len(tokens.input_ids))
        mask = tokens.attention_mask[..., None].double()
        return (self.table[tokens.input_ids] * mask).sum(1) / mask.sum(1) + self.training


def joint_cases(generator):
    ids = torch.randint(50, (9, 4), generator=generator)
    mask = (torch.arange(4) < torch.randint(1, 5, (9, 1), generator=generator)).long()
    return [
        Case("frozen", {"ids": ids[:6], "mask": mask[:6], "rows": 3, "frozen": True}),
        Case("not frozen", {"ids": ids[:6], "mask": mask[:6], "rows": 3, "frozen": False}),
        Case(
            "not frozen, nobody asks for gradients",
            {"ids": ids[:6], "mask": mask[:6], "rows": 3, "frozen": False, "silent": True},
        ),
        Case(
            "frozen, and so are the weights",
            {"ids": ids[:6], "mask": mask[:6], "rows": 3, "frozen": True, "still": True},
        ),
        Case(
            "frozen, eval mode",
            {"ids": ids[:6], "mask": mask[:6], "rows": 3, "frozen": True, "eval": True},
        ),
        Case("frozen, three views", {"ids": ids, "mask": mask, "rows": 3, "frozen": True}),
    ]


def run_joint(kind, inputs):
    encoder = _Encoder()
    model = kind(encoder, _Flow(4), inputs["frozen"]).train("eval" not in inputs)
    encoder.requires_grad_("still" not in inputs)
    batch = ViewBatch(TokenBatch(inputs["ids"], inputs["mask"]), torch.arange(inputs["rows"]))
    with torch.set_grad_enabled("silent" not in inputs):
        views = model(batch)
        after = torch.is_grad_enabled()
    learner = torch.ones(
        4, dtype=torch.float64, requires_grad=True
    )  # stands behind the views, as a flow does
    sum((k + 1) * (view * learner).sum() for k, view in enumerate(views)).backward()
    return {
        "gradient behind the views": learner.grad,
        "number of views": len(views),
        **{f"view {k + 1}": view for k, view in enumerate(views)},
        "views with a graph": torch.tensor([view.requires_grad for view in views]),
        "rows of each call of the encoder": torch.tensor(encoder.calls),
        "in train mode afterwards": encoder.training,
        "weights that ask for a gradient": encoder.table.requires_grad,
        "gradients as the caller had them": after == ("silent" not in inputs),
    }


TRIALS["bertcf.forward"] = Trial(
    joint_cases,
    run_joint,
    rtol=1e-9,
    atol=1e-10,
    derive=(),
    hints=(
        "Encode, cut. And switch gradients off around it, if the encoder is frozen.",
        (
            "torch.set_grad_enabled(x) switches them on as well as off. What if the caller had "
            "switched them off?"
        ),
        (
            "with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen): "
            "self.encoder.embed(batch.tokens).chunk(batch.views)."
        ),
    ),
)

MISTAKES["bertcf.forward"] = [
    mistake(
        "torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen)",
        "torch.no_grad()",
        "Gradients are always disabled, so an encoder that is not frozen learns nothing.",
    ),
    mistake(
        "torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen)",
        "torch.set_grad_enabled(not self.frozen)",
        "Gradients are enabled although the caller has disabled them.",
    ),
    mistake(
        "torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen)",
        "torch.set_grad_enabled(torch.is_grad_enabled())",
        "A frozen encoder still records a computation graph.",
    ),
    mistake(
        "torch.is_grad_enabled() and not self.frozen",
        "torch.is_grad_enabled() and self.frozen",
        "The condition is inverted: the frozen encoder gets gradients and the other one does not.",
    ),
    mistake(
        "return self.encoder.embed",
        "self.encoder.train(not self.frozen)\n        return self.encoder.embed",
        "A frozen encoder is put into eval mode. Its dropout should stay active, because it "
        "makes the two views different.",
    ),
    mistake(
        ".chunk(batch.views)",
        ".split(batch.views)",
        "The rows are split into chunks of V rows. Split them into V chunks.",
    ),
    mistake(
        "return self.encoder.embed(batch.tokens).chunk(batch.views)",
        "vectors = self.encoder.embed(batch.tokens)\n"
        "        return tuple(vectors[k::batch.views] for k in range(batch.views))",
        "The rows are split as if the views of a sentence were adjacent. The batch contains all "
        "first views, then all second views.",
    ),
    mistake(
        "self.encoder.embed(batch.tokens).chunk(batch.views)",
        "self.encoder.embed(batch.tokens)",
        "The rows are not split into views.",
    ),
]

VARIANTS["bertcf.forward"] = [
    """
def forward(self, batch):
    if self.frozen:
        with torch.no_grad():
            vectors = self.encoder.embed(batch.tokens)
    else:
        vectors = self.encoder.embed(batch.tokens)
    return vectors.split(len(batch.groups))
""",
    """
def forward(self, batch):
    vectors = self.encoder.embed(batch.tokens)
    if self.frozen:
        vectors = vectors.detach()
    return tuple(vectors.view(batch.views, -1, vectors.shape[-1]))
""",
]


# ---- bertcf.loss
#
# The model is a stand-in that returns two views. Compared are both parts of the loss and their
# gradients with respect to each view: that of the likelihood must be zero. The loss has been
# called with another batch before.


def joint_loss_cases(generator):
    a, more = fixed(generator, 2, 5, 3)
    views = {"a": a, "b": a + 0.7 * more, "groups": torch.tensor([4, 1, 4, 0, 1])}
    return [
        Case("the weight that nobody gave", views),
        Case(
            "weight 2, temperature 0.5", {**views, "settings": {"weight": 2.0, "temperature": 0.5}}
        ),
        Case(
            "all sentences differ",
            {**views, "groups": torch.arange(5), "settings": {"temperature": 0.2}},
        ),
        Case("weight 0", {**views, "settings": {"weight": 0.0}}),
    ]


def run_joint_loss(make, inputs):
    flow, calls, leaves = (
        _Flow(3),
        [],
        {name: inputs[name].clone().requires_grad_() for name in ("a", "b")},
    )

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = flow

        def forward(self, batch):
            calls.append(batch)
            return tuple(1.0 * x if batch is now else 0.5 * x.flip(0) for x in leaves.values())

    earlier, now = (
        types.SimpleNamespace(views=2, groups=groups, tokens=None, labels=None)
        for groups in (inputs["groups"].flip(0), inputs["groups"])
    )
    model, loss = Model(), make(**inputs.get("settings", {}))
    loss(model, earlier)
    parts = loss(model, now)
    return {
        **{f"part {name}": value for name, value in parts.items()},
        "times the model was asked": len(calls),
        "in train mode afterwards": [m.training for m in model.modules()],
        **_pulled(parts, {**leaves, "weights of the flow": flow.scale}),
    }


TRIALS["bertcf.loss"] = Trial(
    joint_loss_cases,
    run_joint_loss,
    hints=(
        (
            "Write a function of a model and a batch inside the function. What does `bertcf_loss` "
            "need?"
        ),
        (
            "Flow, both views, and the vectors whose likelihood counts: the first view, cut off "
            "from the encoder."
        ),
        (
            "a, b = model(batch); return bertcf_loss(model.flow, a, b, a.detach(), weight, "
            "temperature, batch.groups)."
        ),
    ),
)

MISTAKES["bertcf.loss"] = [
    mistake(
        "a.detach(), weight",
        "a, weight",
        "The likelihood reaches the encoder, which would minimize it by collapsing its vectors "
        "to a point. Detach the vectors.",
    ),
    mistake(
        "model.flow, a, b, a.detach()",
        "model.flow, a.detach(), b.detach(), a.detach()",
        "The views are detached in the contrastive loss too, so the encoder gets no gradient at "
        "all.",
    ),
    mistake(
        "a.detach(), weight",
        "b.detach(), weight",
        "The likelihood is computed for the second view. Use the first.",
    ),
    mistake(
        "a, b, a.detach()",
        "b, a, a.detach()",
        "The views are swapped: the rows of the first are the anchors.",
    ),
    mistake(
        "weight, temperature, batch.groups)",
        "weight, temperature)",
        "The groups are not passed on, so duplicates count as negatives.",
    ),
    mistake(
        "weight, temperature, batch.groups)",
        "weight, groups=batch.groups)",
        "The temperature is not passed on.",
    ),
    mistake(
        "weight, temperature, batch.groups)",
        "temperature=temperature, groups=batch.groups)",
        "The weight is not passed on.",
    ),
    mistake(
        "weight, temperature, batch.groups)",
        "temperature, weight, batch.groups)",
        "Weight and temperature are swapped.",
    ),
]

VARIANTS["bertcf.loss"] = [
    """
def joint_loss(weight=0.3, temperature=0.04):
    def of_batch(model, batch):
        first, second = model(batch)
        return bertcf_loss(
            flow=model.flow,
            a=first,
            b=second,
            vectors=first.clone().detach(),
            weight=weight,
            temperature=temperature,
            groups=batch.groups,
        )

    return of_batch
""",
    """
def joint_loss(weight=0.3, temperature=0.04):
    def of_batch(model, batch):
        a, b = model(batch)
        if weight < 0:
            raise ValueError("a negative weight")
        with torch.no_grad():
            still = a * 1
        parts = bertcf_loss(model.flow, a, b, still, 1.0, temperature, batch.groups)
        return {"mirror": weight * parts["mirror"], "flow": parts["flow"]}
    return lambda model, batch: of_batch(model, batch)
""",
]
