"""Exercise cases of chapter 19: additive and affine coupling layers."""

import torch
from torch import nn

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake
from minbert.exercise_cases.bijections import back, there

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- bijections.shift, bijections.affine, bijections.unaffine
#
# The network of a coupling is replaced by a small smooth one. Width 5 is split into 2 and 3;
# width 4 into equal halves, where using the wrong half gives no error; width 2 is the smallest.
# In one case r is -1000 for a dimension: its scale is 0, and the logarithm of its scale is -998
# and not minus infinity.


class _Net(nn.Module):
    """A smooth net of double precision; `inputs` and `outputs` are columns."""

    def __init__(self, inputs, outputs, low=0.0):
        super().__init__()
        fill(self.register("first", inputs, 3).register("last", 3, outputs), 5)
        self.low = torch.cat([torch.zeros(outputs - 1), torch.tensor([low])]).double()

    def register(self, name, rows, columns):
        self.register_parameter(name, nn.Parameter(torch.zeros(rows, columns)))
        return self

    def forward(self, x):
        return torch.tanh(x @ self.first) @ self.last + self.low


def _coupling(kind, inputs, key):
    layer = kind(inputs[key].shape[1], hidden=4).double()
    layer.net = _Net(
        layer.kept, layer.per_column * (layer.width - layer.kept), inputs.get("low", 0.0)
    )
    return layer.train("eval" not in inputs)


def coupling_cases(generator):
    wide, even, least = fixed(generator, 4, 5), fixed(generator, 3, 4), fixed(generator, 1, 2)
    return [
        Case("width 5", {"x": 2 * wide}),
        Case("width 4, evaluating", {"x": even, "eval": True}),
        Case("width 2, one row", {"x": least}),
    ]


def affine_cases(generator):
    x = fixed(generator, 3, 5)
    return [*coupling_cases(generator), Case("a scale of nearly 0", {"x": x, "low": -1000.0})]


def uncoupling_cases(generator):
    cases = []
    for label, inputs, _ in coupling_cases(generator):
        rest = dict(inputs)
        cases.append(Case(label, {"y": rest.pop("x"), **rest}))
    for low in (-10, -20):
        inputs = {"y": cases[0].inputs["y"], "low": low - 2.0}
        cases.append(Case(f"a scale of e^{low}", inputs))
    return cases


def run_coupling(kind, inputs):
    layer = _coupling(kind, inputs, "x")
    if "low" not in inputs:
        return there(layer, inputs["x"])
    image, log_det = layer(inputs["x"])
    return {"image": image, "log |det|": log_det}


def run_uncoupling(kind, inputs):
    return back(_coupling(kind, inputs, "y"), inputs["y"])


TRIALS["bijections.shift"] = Trial(
    coupling_cases,
    run_coupling,
    subject="flow",
    hints=(
        "Cut, move one half, put together again.",
        "b moves by self.net(a); a stays as it is, since the way back needs it.",
        (
            "cat([a, b + self.net(a)], dim=1), and a zero for every row: the derivatives form a "
            "triangle with ones on the diagonal."
        ),
    ),
)

_WRONG_HALVES = "a, b = self._halves(x)"
_WRONG_CAT = "torch.cat([a, b + self.net(a)], dim=1)"
MISTAKES["bijections.shift"] = [
    mistake(
        "self.net(a)",
        "self.net(b)",
        "The network gets the half that changes, so the step cannot be inverted. It should get "
        "the half that stays. (The report has this misprint.)",
    ),
    mistake(
        _WRONG_CAT,
        "torch.cat([b + self.net(a), a], dim=1)",
        "The halves are concatenated in the wrong order.",
    ),
    mistake(
        _WRONG_CAT,
        "torch.cat([a + self.net(a), b], dim=1)",
        "The first half is changed and the second one is not.",
    ),
    mistake("b + self.net(a)", "b - self.net(a)", "m(a) is subtracted. That is the inverse."),
    mistake(
        "b + self.net(a)",
        "b + self.net(a).detach()",
        "m(a) is detached, so the network gets no gradient.",
    ),
    mistake(
        "x.new_zeros(len(x))",
        "self.net(a).sum(1)",
        "The shifts are returned as the log-determinant. A translation has log-determinant 0.",
    ),
    mistake(
        "x.new_zeros(len(x))",
        "x.new_zeros(())",
        "The log-determinant is a single number. Return one for each row.",
    ),
    mistake(_WRONG_CAT, "torch.cat([a, self.net(a)], dim=1)", "m(a) replaces b. It is added to b."),
]

VARIANTS["bijections.shift"] = [
    """
def forward(self, x):
    y = x.clone()
    y[:, self.kept:] += self.net(x[:, :self.kept])
    return y, torch.zeros_like(x[:, 0])
""",
    """
def forward(self, x):
    a, b = x.split([self.kept, self.width - self.kept], dim=-1)
    return x + F.pad(self.net(a), (self.kept, 0)), 0 * x.sum(1)
""",
]

TRIALS["bijections.affine"] = Trial(
    affine_cases,
    run_coupling,
    subject="flow",
    hints=(
        "As the additive one, with a scale. How strongly is each column of b stretched?",
        (
            "By σ(r + 2), a number for each row and column. log |det| adds up the logarithms over "
            "the columns, row by row. `F.logsigmoid` does not overflow."
        ),
        (
            "t, r = self.net(a).chunk(2, dim=1); cat([a, (b + t) * sigmoid(r + 2)], dim=1) and "
            "logsigmoid(r + 2).sum(1)."
        ),
    ),
)

_WRONG_MOVED = "(b + t) * torch.sigmoid(r + 2)"
_WRONG_LOG = "F.logsigmoid(r + 2).sum(1)"
MISTAKES["bijections.affine"] = [
    mistake(
        _WRONG_LOG,
        "-F.logsigmoid(r + 2).sum(1)",
        "The sign of the log-determinant is wrong, so training is rewarded for shrinking the "
        "vectors.",
    ),
    mistake(
        _WRONG_LOG,
        "F.logsigmoid(r + 2).mean(1)",
        "The log-determinant is the mean over the dimensions. It is their sum.",
    ),
    mistake(
        _WRONG_LOG,
        "F.logsigmoid(r + 2).sum().expand(len(x))",
        "The log-determinant is summed over the batch. Each row has its own.",
    ),
    mistake(
        _WRONG_LOG, "torch.sigmoid(r + 2).sum(1)", "The scales are summed. Sum their logarithms."
    ),
    mistake(
        _WRONG_LOG,
        "x.new_zeros(len(x))",
        "The log-determinant is 0. That is only true for an additive coupling.",
    ),
    mistake(
        _WRONG_MOVED,
        "b * torch.sigmoid(r + 2) + t",
        "The scale is applied before the shift. The equation is (b + t) times the scale.",
    ),
    mistake(
        "t, r = self.net(a)",
        "r, t = self.net(a)",
        "Shift and scale are swapped: the first half of m(a) is t.",
    ),
    mistake(
        "self.net(a)",
        "self.net(b)",
        "The network gets the half that changes, so the step cannot be inverted.",
    ),
]

VARIANTS["bijections.affine"] = [
    """
def forward(self, x):
    a, b = self._halves(x)
    m = self.net(a)
    n = b.shape[1]
    shift, raw = m[:, :n], m[:, n:]
    log_scale = -F.softplus(-raw - 2)
    return torch.cat([a, (b + shift) * log_scale.exp()], dim=-1), torch.einsum("bd->b", log_scale)
""",
    """
def forward(self, x):
    y = x.clone()
    t, r = torch.tensor_split(self.net(x[:, :self.kept]), 2, dim=1)
    scale = 1 / (1 + torch.exp(-(r + 2)))
    y[:, self.kept:] = x[:, self.kept:] * scale + t * scale
    log_det = x.new_zeros(len(x))
    for d in range(r.shape[1]):
        log_det = log_det + nn.LogSigmoid()(r[:, d] + 2)
    return y, log_det
""",
]

TRIALS["bijections.unaffine"] = Trial(
    uncoupling_cases,
    run_uncoupling,
    subject="flow",
    hints=(
        "Undo the last step first.",
        "The scale was the last step. y_a is x_a, so t and r can be computed again.",
        "cat([a, b / sigmoid(r + 2) - t], dim=1).",
    ),
)

_WRONG_BACK = "b / torch.sigmoid(r + 2) - t"
MISTAKES["bijections.unaffine"] = [
    mistake(
        _WRONG_BACK,
        "(b - t) / torch.sigmoid(r + 2)",
        "The shift is undone before the scale. The last step of the forward pass is undone first.",
    ),
    mistake(
        _WRONG_BACK,
        "b / torch.sigmoid(r + 2) + t",
        "The shift is added again. The inverse subtracts it.",
    ),
    mistake(
        _WRONG_BACK,
        "b * torch.sigmoid(r + 2) - t",
        "The input is multiplied by the scale again. The inverse divides by it.",
    ),
    mistake(_WRONG_BACK, "b / torch.sigmoid(r) - t", "The 2 is missing in the sigmoid."),
    mistake(
        _WRONG_BACK,
        "b / torch.exp(r + 2) - t",
        "The scale is treated as an exponential. It is a sigmoid.",
    ),
    mistake(
        "t, r = self.net(a)",
        "r, t = self.net(a)",
        "Shift and scale are swapped: the first half of m(a) is t.",
    ),
    mistake(
        "self.net(a)",
        "self.net(b)",
        "The network gets the half that was changed. It should get the half that stayed.",
    ),
    mistake(
        "torch.cat([a, " + _WRONG_BACK + "], dim=1)",
        "torch.cat([" + _WRONG_BACK + ", a], dim=1)",
        "The halves are concatenated in the wrong order.",
    ),
]

VARIANTS["bijections.unaffine"] = [
    """
def inverse(self, y):
    a, b = self._halves(y)
    m = self.net(a)
    t, r = m[:, :b.shape[1]], m[:, b.shape[1]:]
    return torch.cat([a, b * (1 + torch.exp(-r - 2)) - t], dim=1)
""",
    """
def inverse(self, y):
    a, b = y[:, : self.kept], y[:, self.kept :]
    t, r = self.net(a).chunk(2, dim=-1)
    x = [a] + [
        ((b[:, d] / torch.exp(F.logsigmoid(r[:, d] + 2))) - t[:, d]).unsqueeze(1)
        for d in range(b.shape[1])
    ]
    return torch.cat(x, dim=1)
""",
]
