"""How the exercises of chapter 27 in which one half of the columns moves the other are checked."""


import torch
from torch import nn

from minbert.course.trials import Case, Trial, fill, fixed, mistake
from minbert.trials.bijections import back, there


# A half as wide as the other, a net that gives zeros, a scale of 1: each of them hides a mistake. What is the least symmetric input one can think of?
# That is a good case.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- bijections.shift, bijections.unshift, bijections.affine, bijections.unaffine
#
# The net inside a coupling is replaced by a small smooth one without norms, so that nothing has to be started. Width 5 is cut into 2 and 3; width 4
# into equal halves, where looking at the wrong one gives no error. Width 2 is the least. In one case r is −1000 for a column: its scale is 0, and the
# logarithm of its scale is −998 and not −∞.

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
    layer.net = _Net(layer.kept, layer.per_column * (layer.width - layer.kept), inputs.get("low", 0.0))
    return layer.train("eval" not in inputs)


def coupling_cases(generator):
    wide, even, least = fixed(generator, 4, 5), fixed(generator, 3, 4), fixed(generator, 1, 2)
    return [Case("width 5", {"x": 2 * wide}), Case("width 4, evaluating", {"x": even, "eval": True}), Case("width 2, one row", {"x": least})]


def affine_cases(generator):
    x = fixed(generator, 3, 5)
    return [*coupling_cases(generator), Case("a scale of nearly 0", {"x": x, "low": -1000.0})]


def uncoupling_cases(generator):
    cases = [Case(c.label, {"y" if name == "x" else name: value for name, value in c.inputs.items()}) for c in coupling_cases(generator)]
    return [*cases, *(Case(f"a scale of e^{low}", {"y": cases[0].inputs["y"], "low": low - 2.0}) for low in (-10, -20))]


def run_coupling(kind, inputs):
    layer = _coupling(kind, inputs, "x")
    if "low" not in inputs:
        return there(layer, inputs["x"])
    image, log_det = layer(inputs["x"])
    return {"image": image, "log |det|": log_det}


def run_uncoupling(kind, inputs):
    return back(_coupling(kind, inputs, "y"), inputs["y"])


TRIALS["bijections.shift"] = Trial(coupling_cases, run_coupling, subject="flow", hints=(
    "Cut, move one half, put together again.", "b moves by self.net(a); a stays as it is, since the way back needs it.",
    "cat([a, b + self.net(a)], dim=1), and a zero for every row: the derivatives form a triangle with ones on the diagonal."))

_WRONG_HALVES = "a, b = self._halves(x)"
_WRONG_CAT = "torch.cat([a, b + self.net(a)], dim=1)"
MISTAKES["bijections.shift"] = [
    mistake("self.net(a)", "self.net(b)", "The half that moves is asked how far: m(b) cannot be computed again afterwards. This is the misprint in the report."),
    mistake(_WRONG_CAT, "torch.cat([b + self.net(a), a], dim=1)", "The halves come back in the other order."),
    mistake(_WRONG_CAT, "torch.cat([a + self.net(a), b], dim=1)", "The first half moves by a function of itself, and the second not at all."),
    mistake("b + self.net(a)", "b - self.net(a)", "m(a) is subtracted: that is the way back."),
    mistake("b + self.net(a)", "b * self.net(a)", "b is multiplied by m(a), which can be 0 and then cannot be undone."),
    mistake("b + self.net(a)", "b + self.net(a).detach()", "m(a) is detached, so the net learns nothing."),
    mistake("x.new_zeros(len(x))", "self.net(a).sum(1)", "The shifts are returned as log |det|; a shift stretches nothing."),
    mistake("x.new_zeros(len(x))", "x.new_ones(len(x))", "The determinant 1 is returned where its logarithm, 0, was asked for."),
    mistake("x.new_zeros(len(x))", "x.new_zeros(())", "log |det| comes as a single number; one for every row was asked for."),
    mistake(_WRONG_CAT, "b + self.net(a)", "The half that stays is missing from the result."),
    mistake(_WRONG_CAT, "torch.cat([a, self.net(a)], dim=1)", "m(a) stands in the place of b. It is added to it."),
    mistake("return " + _WRONG_CAT + ", x.new_zeros(len(x))", "return x.new_zeros(len(x)), " + _WRONG_CAT, "Image and log |det| have changed places: the image comes first."),
    mistake("x.new_zeros(len(x))", "torch.zeros_like(x)", "log |det| has a number for each column. One for each row was asked for."),
]

VARIANTS["bijections.shift"] = [
    '''
def forward(self, x):
    y = x.clone()
    y[:, self.kept:] += self.net(x[:, :self.kept])
    return y, torch.zeros_like(x[:, 0])
''',
    '''
def forward(self, x):
    a, b = x.split([self.kept, self.width - self.kept], dim=-1)
    return x + F.pad(self.net(a), (self.kept, 0)), 0 * x.sum(1)
''',
]

TRIALS["bijections.unshift"] = Trial(uncoupling_cases, run_uncoupling, subject="flow", hints=(
    "Which half of y do you know to be unchanged?", "y_a is x_a, so m can be computed again.", "cat([a, b - self.net(a)], dim=1)."))

MISTAKES["bijections.unshift"] = [
    mistake("b - self.net(a)", "b + self.net(a)", "m(a) is added again instead of taken back."),
    mistake("self.net(a)", "self.net(b)", "m is computed from the half that has moved."),
    mistake("torch.cat([a, b - self.net(a)], dim=1)", "torch.cat([b - self.net(a), a], dim=1)", "The halves come back in the other order."),
    mistake("torch.cat([a, b - self.net(a)], dim=1)", "torch.cat([a - self.net(a), b], dim=1)", "The first half is moved; it was the second that had moved."),
    mistake("b - self.net(a)", "b - self.net(a).detach()", "m(a) is detached, so a loss behind the inverse never reaches the net."),
    mistake("b - self.net(a)", "b", "Nothing is undone."),
]

VARIANTS["bijections.unshift"] = [
    '''
def inverse(self, y):
    x = y.clone()
    x[:, self.kept:] -= self.net(y[:, :self.kept])
    return x
''',
    '''
def inverse(self, y):
    a, b = y.tensor_split([self.kept], dim=1)
    return torch.hstack((a, torch.sub(b, self.net(a))))
''',
]


TRIALS["bijections.affine"] = Trial(affine_cases, run_coupling, subject="flow", hints=(
    "As the additive one, with a scale. How strongly is each column of b stretched?",
    "By σ(r + 2), a number for each row and column. log |det| adds up the logarithms over the columns, row by row. `F.logsigmoid` does not overflow.",
    "t, r = self.net(a).chunk(2, dim=1); cat([a, (b + t) * sigmoid(r + 2)], dim=1) and logsigmoid(r + 2).sum(1)."))

_WRONG_MOVED = "(b + t) * torch.sigmoid(r + 2)"
_WRONG_LOG = "F.logsigmoid(r + 2).sum(1)"
MISTAKES["bijections.affine"] = [
    mistake(_WRONG_LOG, "-F.logsigmoid(r + 2).sum(1)", "The sign of log |det| is wrong: shrinking counts as stretching, and training pays for making the cloud small."),
    mistake(_WRONG_LOG, "F.logsigmoid(r + 2).mean(1)", "log |det| is the mean over the columns, not the sum."),
    mistake(_WRONG_LOG, "F.logsigmoid(r + 2).sum().expand(len(x))", "log |det| is added up over the whole batch; each row has its own."),
    mistake(_WRONG_LOG, "torch.sigmoid(r + 2).sum(1)", "The scales are added up, not their logarithms."),
    mistake(_WRONG_LOG, "torch.sigmoid(r + 2).prod(1)", "The determinant is returned, not its logarithm."),
    mistake(_WRONG_LOG, "torch.sigmoid(r + 2).log().sum(1)", "The logarithm is taken of a sigmoid that has become 0: log |det| is minus infinity."),
    mistake(_WRONG_LOG, "(r + 2).sum(1)", "r + 2 is added up as if the scale were exp(r + 2)."),
    mistake(_WRONG_LOG, "F.logsigmoid(r).sum(1)", "The 2 is missing in log |det|, so it belongs to another map than the image."),
    mistake(_WRONG_LOG, "x.new_zeros(len(x))", "log |det| is 0, as in the additive coupling; here the columns are scaled."),
    mistake(_WRONG_MOVED, "b * torch.sigmoid(r + 2) + t", "The scale comes before the shift; t belongs inside the bracket."),
    mistake(_WRONG_MOVED, "(b + t) * torch.sigmoid(r)", _WRONG_LOG, "F.logsigmoid(r).sum(1)", "The 2 is missing: a fresh coupling halves the columns."),
    mistake(_WRONG_MOVED, "(b + t) / torch.sigmoid(r + 2)", "The columns are divided by the scale: stretched, where log |det| says shrunk."),
    mistake(_WRONG_MOVED, "(b + t) * torch.exp(r + 2)", _WRONG_LOG, "(r + 2).sum(1)", "The scale is an exponential and can grow without end; it should be a sigmoid."),
    mistake(_WRONG_MOVED, "(b + t) * torch.tanh(r + 2)", _WRONG_LOG, "torch.tanh(r + 2).abs().log().sum(1)", "The scale is a tanh, which can be 0 or negative; it should be a sigmoid."),
    mistake("t, r = self.net(a)", "r, t = self.net(a)", "Shift and scale are exchanged: the first half of m(a) is t."),
    mistake("self.net(a).chunk(2, dim=1)", "(self.net(a)[:, ::2], self.net(a)[:, 1::2])", "Shift and scale are taken from every other column; the first half of m(a) is t, the second r."),
    mistake("self.net(a)", "self.net(b)", "The half that moves is asked how far: that cannot be undone."),
    mistake("torch.cat([a, " + _WRONG_MOVED + "], dim=1)", "torch.cat([" + _WRONG_MOVED + ", a], dim=1)", "The halves come back in the other order."),
    mistake(_WRONG_LOG, "F.logsigmoid(r + 2).sum(1).detach()", "log |det| is detached, so the net does not feel it."),
    mistake(_WRONG_MOVED, "(b + t) * r.exp()", _WRONG_LOG, "r.sum(1)", "The scale is e to the r and can grow without end; it should be the sigmoid of r + 2."),
    mistake(_WRONG_MOVED, "(b + t) * (torch.sigmoid(r) + 2)", _WRONG_LOG, "(torch.sigmoid(r) + 2).log().sum(1)", "The 2 is added to the sigmoid. It belongs inside, to r."),
    mistake(_WRONG_MOVED, "(b - t) * torch.sigmoid(r + 2)", "t is subtracted. On the way there it is added, before the columns shrink."),
    mistake(_WRONG_MOVED, "b * torch.sigmoid(r + 2)", "t is not used: b is shrunk, but not shifted."),
    mistake(_WRONG_LOG, "torch.sigmoid(r + 2).sum(1).log()", "The logarithm is taken of the sum of the scales. Determinants multiply, so logarithms add up."),
]

VARIANTS["bijections.affine"] = [
    '''
def forward(self, x):
    a, b = self._halves(x)
    m = self.net(a)
    n = b.shape[1]
    shift, raw = m[:, :n], m[:, n:]
    log_scale = -F.softplus(-raw - 2)
    return torch.cat([a, (b + shift) * log_scale.exp()], dim=-1), torch.einsum("bd->b", log_scale)
''',
    '''
def forward(self, x):
    y = x.clone()
    t, r = torch.tensor_split(self.net(x[:, :self.kept]), 2, dim=1)
    scale = 1 / (1 + torch.exp(-(r + 2)))
    y[:, self.kept:] = x[:, self.kept:] * scale + t * scale
    log_det = x.new_zeros(len(x))
    for d in range(r.shape[1]):
        log_det = log_det + nn.LogSigmoid()(r[:, d] + 2)
    return y, log_det
''',
]

TRIALS["bijections.unaffine"] = Trial(uncoupling_cases, run_uncoupling, subject="flow", hints=(
    "Undo the last step first.", "The scale was the last step. y_a is x_a, so t and r can be computed again.", "cat([a, b / sigmoid(r + 2) - t], dim=1)."))

_WRONG_BACK = "b / torch.sigmoid(r + 2) - t"
MISTAKES["bijections.unaffine"] = [
    mistake(_WRONG_BACK, "(b - t) / torch.sigmoid(r + 2)", "The shift is undone before the scale; the last step has to go first."),
    mistake(_WRONG_BACK, "b / torch.sigmoid(r + 2) + t", "The shift is added again instead of taken back."),
    mistake(_WRONG_BACK, "b * torch.sigmoid(r + 2) - t", "The columns are shrunk once more instead of stretched."),
    mistake(_WRONG_BACK, "b / torch.sigmoid(r) - t", "The 2 is missing."),
    mistake(_WRONG_BACK, "b / torch.sigmoid(r + 2).clamp_min(1e-3) - t", "Small scales are cut off, so the way back is not that of the way there."),
    mistake(_WRONG_BACK, "b / torch.exp(r + 2) - t", "The scale is undone as if it were an exponential."),
    mistake("t, r = self.net(a)", "r, t = self.net(a)", "Shift and scale are exchanged."),
    mistake("self.net(a)", "self.net(b)", "m is computed from the half that has moved."),
    mistake("torch.cat([a, " + _WRONG_BACK + "], dim=1)", "torch.cat([" + _WRONG_BACK + ", a], dim=1)", "The halves come back in the other order."),
    mistake(_WRONG_BACK, "b / (torch.sigmoid(r) + 2) - t", "The 2 is added to the sigmoid. It belongs inside, to r."),
    mistake(_WRONG_BACK, "(b - t) * torch.sigmoid(r + 2)", "The shift is taken back, and then the columns are shrunk once more instead of stretched."),
]

VARIANTS["bijections.unaffine"] = [
    '''
def inverse(self, y):
    a, b = self._halves(y)
    m = self.net(a)
    t, r = m[:, :b.shape[1]], m[:, b.shape[1]:]
    return torch.cat([a, b * (1 + torch.exp(-r - 2)) - t], dim=1)
''',
    '''
def inverse(self, y):
    a, b = y[:, :self.kept], y[:, self.kept:]
    t, r = self.net(a).chunk(2, dim=-1)
    x = [a] + [((b[:, d] / torch.exp(F.logsigmoid(r[:, d] + 2))) - t[:, d]).unsqueeze(1) for d in range(b.shape[1])]
    return torch.cat(x, dim=1)
''',
]


# ---- How strong?
