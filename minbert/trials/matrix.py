"""How the exercises of chapter 27 that mix columns by a matrix are checked: two triangles, a determinant, a way back."""


import math

import torch

from minbert.course.trials import Case, Trial, fill, fixed, mistake, probe
from minbert.trials.bijections import back, gradients, there


# A symmetric matrix, an orthogonal one, a determinant of 1: each of them hides a mistake. What is the least regular matrix one can think of? That is
# a good case.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- bijections.triangles, bijections.linear, bijections.solve
#
# The weights are random, some signs negative, the order random. Numbers stand on the diagonal of `triangles` too, where nobody may read them. In both
# forms one matrix has a negative determinant. For the way back there is a matrix with stretches from 1 to 10⁻⁷ in single precision, which only double
# precision can undo; triangles whose parts cancel on the way back; and 64 columns, whose determinant is 0 or infinite in the machine, while its
# logarithm is a plain number.

def _mixing(kind, inputs):
    """Build a mixing matrix with known weights."""
    order = inputs["order"]
    mix = fill(kind(len(order), inputs["form"]), 3)
    with torch.no_grad():
        if inputs["form"] == "lu":
            mix.order.copy_(order), mix.sign.copy_(inputs["sign"])
            mix.triangles.copy_(inputs["weight"]), mix.log_s.copy_(inputs["weight"].diagonal() * inputs.get("steep", 0.5) + inputs.get("log_s", 0.3))
        else:
            mix.weight.copy_(inputs["weight"])
    return mix.to(inputs["x"].dtype).train("eval" not in inputs)


def solve_cases(generator):
    """Both forms, both signs of the determinant, and one matrix that is nearly flat."""
    weight, x = fixed(generator, 5, 5), fixed(generator, 4, 5)
    q = torch.linalg.qr(weight).Q
    positive = torch.cat([weight[:4], weight[4:] * torch.linalg.det(weight).sign()])
    sign = torch.tensor([1, -1, 1, 1, -1.0])
    given = {"x": x, "order": torch.tensor([3, 0, 4, 1, 2]), "sign": sign}
    image = x @ (8 * weight.tril(-1) + torch.eye(5)) @ (8 * weight.triu(1) + torch.diag(sign * math.exp(0.3)))   # so large that its parts cancel on the way back
    flat = q * torch.logspace(0, -7, 5, dtype=torch.float64) @ q.roll(1, 0)
    return [Case("dense, determinant above 0", {**given, "form": "dense", "weight": positive}),
            Case("dense, determinant below 0, evaluating", {**given, "form": "dense", "weight": positive.flip(0)[[1, 0, 2, 3, 4]], "eval": True}),
            Case("lu", {**given, "form": "lu", "weight": weight}),
            Case("lu, one row, evaluating", {**given, "x": x[:1], "form": "lu", "weight": weight.flip(0), "eval": True}),
            Case("dense, nearly flat, single precision", {**given, "x": x.float(), "form": "dense", "weight": flat}),
            Case("lu, steep, single precision", {**given, "x": image.float(), "form": "lu", "weight": 8 * weight, "steep": 0.0})]


def linear_cases(generator):
    cases = solve_cases(generator)[:4]
    odd = {**cases[2].inputs, "sign": torch.tensor([1, -1, 1, 1, 1.0])}
    wide = {"x": fixed(generator, 2, 64), "order": torch.randperm(64, generator=generator), "sign": 1.0 - 2 * (torch.arange(64) % 3 == 1).float()}
    small = 1e-2 * fixed(generator, 64, 64)
    return [*cases, Case("lu, determinant below 0", odd), Case("lu, factors from small to large", {**odd, "steep": 4.0}),
            Case("dense, 64 columns, all of them squeezed", {**wide, "form": "dense", "weight": 1e-4 * small}),
            Case("dense, 64 columns, all of them stretched", {**wide, "form": "dense", "weight": 1e8 * small}),
            Case("lu, 64 columns, all of them stretched", {**wide, "form": "lu", "weight": small, "log_s": 12.0})]


def run_triangles(kind, inputs):
    mix = _mixing(kind, inputs)
    before = mix.triangles.detach().clone()
    lower, upper = mix.lower_upper()
    total = (lower * probe(lower)).sum() + (upper * probe(upper) * 2).sum()
    return {"L": lower, "U": upper, "a weight has changed": not torch.equal(before, mix.triangles), **gradients(total, {"triangles": mix.triangles, "log_s": mix.log_s})}


def run_linear(kind, inputs):
    return there(_mixing(kind, inputs), inputs["x"])


def run_solve(kind, inputs):
    mix = _mixing(kind, inputs)
    y = inputs["x"]
    if y.dtype == torch.float64:
        return back(mix, y)
    x = mix.inverse(y)
    return {"x": x, "in the dtype of y": x.dtype == y.dtype}


TRIALS["bijections.triangles"] = Trial(lambda g: [c for c in linear_cases(g) if c.inputs["form"] == "lu"], run_triangles, subject="flow", hints=(
    "Two triangles share one square of weights. Which one owns the diagonal?", "Neither: L has ones there, U has sign * exp(log_s). `tril(-1)` and `triu(1)` leave the diagonal out.",
    "triangles.tril(-1) + eye, and triangles.triu(1) + diag(sign * log_s.exp())."))

MISTAKES["bijections.triangles"] = [
    mistake("self.triangles.tril(-1)", "self.triangles.tril()", "L takes the diagonal of `triangles` on top of its ones."),
    mistake("self.triangles.tril(-1) + torch.ones_like(self.log_s).diag()", "self.triangles.tril()", "L has the diagonal of `triangles` where its ones should stand."),
    mistake("self.triangles.triu(1)", "self.triangles.triu()", "U takes the diagonal of `triangles` on top of its own."),
    mistake("self.sign * self.log_s.exp()", "self.sign * self.log_s", "log_s is used as it is; its exponential belongs on the diagonal of U."),
    mistake("self.sign * self.log_s.exp()", "self.log_s.exp()", "The signs are not used, so every factor on the diagonal is positive."),
    mistake("self.sign * self.log_s.exp()", "(self.sign * self.log_s).exp()", "The sign is applied before the exponential: it turns s over instead of changing its sign."),
    mistake(" + torch.ones_like(self.log_s).diag()", "", "L has no ones on its diagonal, so W is singular."),
    mistake("self.log_s.exp()", "self.log_s.detach().exp()", "log_s is detached, so the factors on the diagonal never learn."),
    mistake("return lower, ", "return lower.T, ", "L is transposed: its numbers stand above the diagonal."),
    mistake("lower = self.triangles.tril(-1)", "lower = self.triangles.triu(1).T", "L mirrors the numbers of U instead of having its own."),
    mistake("return lower, self.triangles.triu(1) + torch.diag(self.sign * self.log_s.exp())", "return self.triangles.triu(1) + torch.diag(self.sign * self.log_s.exp()), lower",
            "L and U have changed places: L comes first."),
    mistake("torch.diag(self.sign * self.log_s.exp())", "self.sign * self.log_s.exp()", "The factors of U are added to whole columns. They stand on the diagonal alone."),
]

VARIANTS["bijections.triangles"] = [
    '''
def lower_upper(self):
    below = torch.ones_like(self.triangles).tril(-1).bool()
    zero = torch.zeros_like(self.triangles)
    lower = torch.where(below, self.triangles, zero)
    upper = torch.where(below.T, self.triangles, zero)
    return lower.diagonal_scatter(torch.ones_like(self.log_s)), upper.diagonal_scatter(self.sign * torch.exp(self.log_s))
''',
    '''
def lower_upper(self):
    D = self.width
    one = torch.eye(D, dtype=self.triangles.dtype)
    lower = torch.stack([torch.cat([self.triangles[i, :i], one[i, i:]]) for i in range(D)])
    s = self.sign * self.log_s.exp()
    upper = torch.stack([torch.cat([0 * one[i, :i], s[i : i + 1], self.triangles[i, i + 1:]]) for i in range(D)])
    return lower, upper
''',
]


TRIALS["bijections.linear"] = Trial(linear_cases, run_linear, subject="flow", hints=(
    "x is a row, so it stands left of W: x W. How much does a matrix stretch a small volume?",
    "By |det W|. Dense: `torch.linalg.slogdet`. As P L U: the determinant is the product of U's diagonal, up to a sign, so its logarithm is a sum of weights.",
    "dense: x @ weight and slogdet(weight).logabsdet; lu: x[:, order] @ L @ U and log_s.sum(); expand both log |det| to (B,)."))

MISTAKES["bijections.linear"] = [
    mistake("return x @ self.weight,", "return x @ self.weight.T,", "The dense matrix is transposed: rows of x stand left of W."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.linalg.slogdet(self.weight).sign", "The sign of the determinant is returned, not the logarithm of its size."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.logdet(self.weight)", "`torch.logdet` is NaN where the determinant is negative. A stretch is its absolute value, which `slogdet` gives."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.linalg.det(self.weight).log()", "The logarithm of a negative determinant is NaN; its absolute value was meant."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.linalg.det(self.weight).abs().log()",
            "The determinant is computed before its logarithm: of many columns it is 0 or infinite in the machine. `slogdet` adds logarithms up."),
    mistake("self.log_s.sum()", "self.log_s.exp().prod().log()",
            "The factors are multiplied before the logarithm: of many columns the product is 0 or infinite in the machine. Logarithms add up."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.linalg.slogdet(self.weight.detach()).logabsdet", "self.log_s.sum()", "self.log_s.detach().sum()",
            "log |det| is detached, so the weights do not feel it."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "torch.linalg.det(self.weight).abs()", "The determinant is returned, not its logarithm."),
    mistake("torch.linalg.slogdet(self.weight).logabsdet", "-torch.linalg.slogdet(self.weight).logabsdet", "self.log_s.sum()", "-self.log_s.sum()", "The sign of log |det| is wrong: stretching counts as shrinking."),
    mistake("self.log_s.sum()", "upper.diagonal().prod().log()", "The logarithm of a negative determinant is NaN; the signs have no part in log |det|."),
    mistake("self.log_s.sum()", "self.log_s.exp().sum()", "The scales are added up, not their logarithms."),
    mistake("self.log_s.sum()", "self.log_s.mean()", "log |det| is the mean of the logarithms, not their sum."),
    mistake("self.log_s.sum()", "(self.sign * self.log_s).sum()", "A negative sign turns the logarithm over; the stretch does not care for the sign."),
    mistake("x[:, self.order] @ lower @ upper", "x[:, self.order] @ upper @ lower", "The triangles are applied in the wrong order: W is P L U."),
    mistake("x[:, self.order] @ lower @ upper", "x @ lower @ upper", "The permutation is not applied."),
    mistake("x[:, self.order] @ lower @ upper", "(x @ lower @ upper)[:, self.order]", "The permutation comes last; in x P L U it comes first."),
    mistake("x[:, self.order] @ lower @ upper", "x[:, self.order.argsort()] @ lower @ upper", "The permutation is applied backwards."),
    mistake("logabsdet.expand(len(x))", "logabsdet * len(x)", "self.log_s.sum().expand(len(x))", "self.log_s.sum() * len(x)", "log |det| is added up over the batch; each row has its own."),
    mistake("logabsdet.expand(len(x))", "logabsdet.expand(len(x)) * self.width", "self.log_s.sum().expand(len(x))", "self.log_s.sum().expand(len(x)) * self.width",
            "log |det| is multiplied by the width, as if the matrix were applied once for each column."),
    mistake("self.log_s.sum().expand", "torch.zeros_like(self.log_s).sum().expand", "log |det| of the lu form is 0, as if its diagonal held ones."),
    mistake("        return x @ self.weight, torch.linalg.slogdet(self.weight).logabsdet", "        if self.training or not hasattr(self, \"kept\"):\n"
            "            self.kept = torch.linalg.slogdet(self.weight).logabsdet\n        return x @ self.weight, self.kept", "In eval mode log |det| is kept from the first call. Weights may change in any mode."),
]

VARIANTS["bijections.linear"] = [
    '''
def forward(self, x):
    ones = x.new_ones(x.shape[0])
    if self.form == "lu":
        L, U = self.lower_upper()
        W = torch.eye(self.width, dtype=x.dtype)[:, self.order] @ (L @ U)
        return torch.einsum("bd,de->be", x, W), ones * U.diagonal().abs().log().sum()
    return torch.einsum("bd,de->be", x, self.weight), ones * torch.linalg.svdvals(self.weight).log().sum()
''',
    '''
def forward(self, x):
    if self.form == "dense":
        W = self.weight
    else:
        L, U = self.lower_upper()
        W = (L @ U)[self.order.argsort()]
    y = (W.T @ x.T).T
    return y, torch.stack([torch.slogdet(W)[1]] * len(x))
''',
]


TRIALS["bijections.solve"] = Trial(solve_cases, run_solve, subject="flow", hints=(
    "y = x P L U. Undo U first, then L, then the permutation.",
    "solve_triangular wants to know which triangle it gets (`upper=`) and that the unknown stands left (`left=False`). Turn weights and y to double before, and the result back at the end.",
    "x = solve_triangular(U, y, upper=True, left=False); x = solve_triangular(L, x, upper=False, left=False); x[:, order.argsort()]; dense: linalg.solve(W, y, left=False)."))

_WRONG_DENSE = "torch.linalg.solve(self.weight.double(), y, left=False)"
_WRONG_UPPER = "x = torch.linalg.solve_triangular(upper, y, upper=True, left=False)"
_WRONG_LOWER = "x = torch.linalg.solve_triangular(lower, x, upper=False, left=False, unitriangular=True)"
MISTAKES["bijections.solve"] = [
    mistake(_WRONG_DENSE, "torch.linalg.solve(self.weight.double(), y.mT).mT", "W x = y is solved for columns; here x is a row, and stands left of W."),
    mistake(_WRONG_DENSE, "(y @ self.weight.double())", "The dense matrix is applied once more instead of undone."),
    mistake(_WRONG_DENSE, "(y @ self.weight.double().T)", "The transposed matrix stands for the inverse; that holds for rotations only, and W has been trained."),
    mistake(_WRONG_UPPER, "x = torch.linalg.solve_triangular(lower, y, upper=False, left=False)", _WRONG_LOWER, "x = torch.linalg.solve_triangular(upper, x, upper=True, left=False)",
            "L is undone before U; the last step has to go first."),
    mistake(_WRONG_UPPER, _WRONG_UPPER.replace("left=False", "left=False, unitriangular=True"), "U is solved as if it had ones on its diagonal."),
    mistake(_WRONG_UPPER, "x = y", "U is not undone."),
    mistake(_WRONG_LOWER, "x = x", "L is not undone."),
    mistake("x[:, self.order.argsort()]", "x[:, self.order]", "The permutation is applied once more instead of undone."),
    mistake("x[:, self.order.argsort()]", "x", "The permutation is not undone."),
    mistake("y, dtype = y.double(), y.dtype", "dtype = y.dtype", "self.weight.double()", "self.weight", "(triangle.double() for triangle in self.lower_upper())", "self.lower_upper()",
            "The equations are solved in the precision of y; a nearly flat matrix needs double."),
    mistake("(triangle.double() for triangle in self.lower_upper())", "self.lower_upper()\n    y = y.to(upper.dtype)",
            "The triangles are solved in their own precision; steep ones need double."),
    mistake("self.weight.double()", "self.weight.detach().double()", "(triangle.double() for", "(triangle.detach().double() for", "The weights are detached, so a loss behind the inverse never reaches them."),
    mistake("y, left=False).to(dtype)", "y, left=False)", ".argsort()].to(dtype)", ".argsort()]", "The result stays in double precision; it should come in the dtype of y."),
    mistake("        return torch.linalg.solve(self.weight.double(),", "        if self.training or not hasattr(self, \"kept\"):\n"
            "            self.kept = self.weight.double().clone()\n        return torch.linalg.solve(self.kept,", "In eval mode the matrix is kept from the first call. Weights may change in any mode."),
]

VARIANTS["bijections.solve"] = [
    '''
def inverse(self, y):
    W = self.weight.double()  if self.form == "dense" else None
    if W is None:
        lower, upper = self.lower_upper()
        W = torch.eye(self.width, dtype=torch.float64)[:, self.order] @ lower.double() @ upper.double()
    return torch.linalg.solve(W.T, y.double().T).T.to(y.dtype)
''',
    '''
def inverse(self, y):
    if self.form == "dense":
        return (y.double() @ torch.linalg.inv(self.weight.double())).type_as(y)
    lower, upper = [m.double() for m in self.lower_upper()]
    rest = list(y.double().unbind(1))
    for d in range(self.width):
        rest[d] = (rest[d] - sum(rest[i] * upper[i, d] for i in range(d))) / upper[d, d]
    for d in reversed(range(self.width)):
        rest[d] = rest[d] - sum(rest[i] * lower[i, d] for i in range(d + 1, self.width))
    x = torch.stack(rest, dim=1)
    out = torch.zeros_like(x).index_copy(1, self.order, x)
    return out.type_as(y)
''',
]


# ---- How strong?
