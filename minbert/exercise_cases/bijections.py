"""Exercise cases of chapter 19: ActNorm, permutations, and invertible linear layers."""

import math

import torch
from torch.autograd.functional import jacobian

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake, probe

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def gradients(total, leaves):
    """Differentiate by each leaf; what was not used has gradient 0."""
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {
        f"gradient of {name}": torch.zeros_like(leaf) if g is None else g
        for (name, leaf), g in zip(leaves.items(), found)
    }


def there(layer, x):
    """Give image and log |det|, their gradients, and how far log |det| is from that of
    autograd's derivatives."""
    before = [w.detach().clone() for w in layer.parameters()]
    image, log_det = layer(x)  # sees the input itself, so that writing into it shows
    leaf = x.clone().requires_grad_()
    again, change = layer(leaf)
    total = (again * probe(again)).sum() + (change * probe(change)).sum()
    derivatives = jacobian(lambda v: layer(v)[0].sum(0), x).transpose(
        0, 1
    )  # (B, D, D): rows do not see each other
    moved = any(not torch.equal(w, old) for w, old in zip(layer.parameters(), before))
    return {
        "image": image,
        "log |det|": log_det,
        "log |det| minus that of all derivatives": log_det
        - torch.linalg.slogdet(derivatives).logabsdet,
        "a weight has changed": moved,
        **gradients(total, {"x": leaf, **dict(layer.named_parameters())}),
    }


def back(layer, y):
    """Give what `inverse` makes of y, and its gradients."""
    x = layer.inverse(y)
    leaf = y.clone().requires_grad_()
    again = layer.inverse(leaf)
    return {
        "x": x,
        **gradients((again * probe(again)).sum(), {"y": leaf, **dict(layer.named_parameters())}),
    }


# ---- bijections.norm and bijections.unnorm
#
# A layer with weights, whose log-determinant is compared with all derivatives by autograd; and a
# layer in train mode that has to be initialized by its first batch and only by that.


def _started(norm, seed):
    norm = fill(norm, seed)
    norm.initialized.fill_(True)
    return norm


def norm_cases(generator):
    x = 3 * fixed(generator, 67, 5) + 2
    return [
        Case("four rows", {"x": x[:4]}),
        Case("one row, evaluating", {"x": x[:1], "eval": True}),
        Case("the first batches of a fresh norm", {"x": x, "fresh": True}),
        Case("vectors far away", {"x": 1000 * x[:3]}),
        Case("64 columns, all of them squeezed", {"x": fixed(generator, 2, 64), "squeeze": 5.0}),
        Case("64 columns, all of them stretched", {"x": fixed(generator, 2, 64), "squeeze": -5.0}),
    ]


def run_norm(kind, inputs):
    x = inputs["x"]
    if not inputs.get("fresh"):
        norm = _started(kind(x.shape[1]), 1).train("eval" not in inputs)
        norm.logs.data.sub_(inputs.get("squeeze", 0.0))
        return there(norm, x)
    norm = kind(x.shape[1]).double().train()
    (first, change), (second, same) = norm(x[:64]), norm(x[64:])
    return {
        "first batch": first,
        "log |det|": change,
        "second batch": second,
        "log |det| again": same,
        "started": norm.initialized,
    }


TRIALS["bijections.norm"] = Trial(
    norm_cases,
    run_norm,
    hints=(
        (
            "Each column is shifted, then stretched. How much longer does a small piece of the "
            "line get?"
        ),
        (
            "The stretch of column d is exp(s_d), its logarithm s_d, and logarithms of factors "
            "add up. It is the same number for every row."
        ),
        (
            "self._prepare(x); s = 3 * self.logs; the image is (x + self.shift) * s.exp(), log "
            "|det| is s.sum(), expanded to one number a row."
        ),
    ),
)

MISTAKES["bijections.norm"] = [
    mistake(
        "(x + self.shift) * s.exp()",
        "x * s.exp() + self.shift",
        "The scale is applied before the shift. The equation is (x + c) exp(s).",
    ),
    mistake(
        "s = 3 * self.logs",
        "s = self.logs",
        "The factor 3 is missing: s is three times the parameter `logs`.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "self.logs.sum().expand(len(x))",
        "The factor 3 is missing in the log-determinant.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "-s.sum().expand(len(x))",
        "The sign of the log-determinant is wrong.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.mean().expand(len(x))",
        "The log-determinant is the mean over the dimensions. It is their sum.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.sum()",
        "The log-determinant is a single number. Return one for each row.",
    ),
    mistake(
        "(x + self.shift) * s.exp()",
        "(x + self.shift) * s",
        "The input is multiplied by s instead of exp(s).",
    ),
    mistake(
        "self._prepare(x)",
        "self.initialize(x) if self.training and len(x) > 1 else None",
        "The layer is initialized again by every batch. Only the first batch initializes it.",
    ),
]

VARIANTS["bijections.norm"] = [
    """
def forward(self, x):
    self._prepare(x)
    stretch = torch.exp(self.logs * 3)
    return x * stretch + self.shift * stretch, 3 * self.logs.sum() * x.new_ones(len(x))
""",
    """
def forward(self, x):
    self._prepare(x)
    scale = self.logs.exp() ** 3
    y = torch.stack([(row + self.shift) * scale for row in x])
    return y, torch.stack([scale.log().sum()] * x.shape[0])
""",
]


def unnorm_cases(generator):
    y = 3 * fixed(generator, 4, 5) + 2
    return [
        Case("four rows", {"y": y}),
        Case("one row, evaluating", {"y": y[:1], "eval": True}),
        Case("vectors far away", {"y": 1000 * y}),
    ]


def run_unnorm(kind, inputs):
    return back(_started(kind(inputs["y"].shape[1]), 2).train("eval" not in inputs), inputs["y"])


TRIALS["bijections.unnorm"] = Trial(
    unnorm_cases,
    run_unnorm,
    hints=(
        "Undo the last step first.",
        "The stretch by exp(s) is undone by exp(-s), then the shift by c is taken back.",
        "y * exp(-3 logs) - shift.",
    ),
)

MISTAKES["bijections.unnorm"] = [
    mistake(
        "* (-3 * self.logs).exp() - self.shift",
        "* (-3 * self.logs).exp() + self.shift",
        "The shift is added again. The inverse subtracts it.",
    ),
    mistake(
        "* (-3 * self.logs).exp() - self.shift",
        "* (3 * self.logs).exp() - self.shift",
        "The input is multiplied by the scale again. The inverse divides by it.",
    ),
    mistake(
        "(-3 * self.logs)",
        "(-self.logs)",
        "The factor 3 is missing: s is three times the parameter `logs`.",
    ),
    mistake(
        "y * (-3 * self.logs).exp() - self.shift",
        "(y - self.shift) * (-3 * self.logs).exp()",
        "The shift is undone before the scale. The last step of the forward pass is undone first.",
    ),
    mistake(
        "* (-3 * self.logs).exp() - self.shift",
        "/ (3 * self.logs) - self.shift",
        "The input is divided by s instead of exp(s).",
    ),
    mistake(
        "* (-3 * self.logs).exp() - self.shift",
        "* (-3 * self.logs).exp()",
        "The shift is not undone.",
    ),
    mistake(
        "(-3 * self.logs).exp()",
        "(-3 * self.logs).detach().exp()",
        "The scale is detached, so it gets no gradient from the inverse.",
    ),
]

VARIANTS["bijections.unnorm"] = [
    """
def inverse(self, y):
    return y / torch.exp(3 * self.logs) - self.shift
""",
    """
def inverse(self, y):
    columns = [
        column / self.logs[d].exp() ** 3 - self.shift[d] for d, column in enumerate(y.unbind(1))
    ]
    return torch.stack(columns, dim=1)
""",
]


# ---- bijections.unshuffle
#
# A reversal is its own inverse, and so is a swap of two equal halves. An odd width and a random
# order are not.


def unshuffle_cases(generator):
    y, around = fixed(generator, 3, 7), torch.randperm(7, generator=generator)
    order = torch.empty_like(around).scatter_(
        0, around, around.roll(1)
    )  # one round through all columns: never its own inverse
    return [
        Case("reversed", {"y": y, "mode": "reverse"}),
        Case("halves of 3 and 4 swapped", {"y": y, "mode": "swap"}),
        Case("a random order", {"y": y, "mode": "random", "order": order}),
        Case("as many rows as columns", {"y": fixed(generator, 5, 5), "mode": "swap"}),
    ]


def run_unshuffle(kind, inputs):
    shuffle = kind(inputs["y"].shape[1], inputs["mode"])
    if "order" in inputs:
        shuffle.order.copy_(inputs["order"])
    return back(shuffle, inputs["y"])


TRIALS["bijections.unshuffle"] = Trial(
    unshuffle_cases,
    run_unshuffle,
    hints=(
        "If column 3 went to the front, where does the front go back to?",
        "You need the order that undoes the order. Sorting it tells.",
        "order.argsort() lists where each column went.",
    ),
)

MISTAKES["bijections.unshuffle"] = [
    mistake(
        "[:, self.order.argsort()]",
        "[:, self.order]",
        "The permutation is applied again. That undoes a reversal, but no other permutation.",
    ),
    mistake("[:, self.order.argsort()]", "", "The permutation is not undone."),
    mistake(
        "[:, self.order.argsort()]",
        "[:, self.order.flip(0)]",
        "The permutation is reversed. That is not its inverse.",
    ),
    mistake(
        "[:, self.order.argsort()]",
        ".flip(1)",
        "The dimensions are always reversed, whatever the permutation was.",
    ),
]

VARIANTS["bijections.unshuffle"] = [
    """
def inverse(self, y):
    x = torch.empty_like(y)
    x[:, self.order] = y
    return x
""",
    """
def inverse(self, y):
    place = {column: k for k, column in enumerate(self.order.tolist())}
    return torch.stack([y[:, place[d]] for d in range(y.shape[1])], dim=1)
""",
]


# ---- bijections.linear and bijections.solve
#
# Random weights, some negative signs, random order. `triangles` has values on its diagonal, which
# must not be used. One matrix has a negative determinant. For the inverse there is a matrix with
# singular values from 1 to 1e-7 in single precision, which only double precision can invert;
# triangles whose parts cancel; and 64 dimensions, whose determinant underflows or overflows while
# its logarithm does not.


def _mixing(kind, inputs):
    """Build a mixing matrix with known weights."""
    order = inputs["order"]
    mix = fill(kind(len(order), inputs["form"]), 3)
    with torch.no_grad():
        if inputs["form"] == "lu":
            mix.order.copy_(order), mix.sign.copy_(inputs["sign"])
            (
                mix.triangles.copy_(inputs["weight"]),
                mix.log_s.copy_(
                    inputs["weight"].diagonal() * inputs.get("steep", 0.5)
                    + inputs.get("log_s", 0.3)
                ),
            )
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
    image = (
        x
        @ (8 * weight.tril(-1) + torch.eye(5))
        @ (8 * weight.triu(1) + torch.diag(sign * math.exp(0.3)))
    )  # so large that its parts cancel on the way back
    flat = q * torch.logspace(0, -7, 5, dtype=torch.float64) @ q.roll(1, 0)
    return [
        Case("dense, determinant above 0", {**given, "form": "dense", "weight": positive}),
        Case(
            "dense, determinant below 0, evaluating",
            {**given, "form": "dense", "weight": positive.flip(0)[[1, 0, 2, 3, 4]], "eval": True},
        ),
        Case("lu", {**given, "form": "lu", "weight": weight}),
        Case(
            "lu, one row, evaluating",
            {**given, "x": x[:1], "form": "lu", "weight": weight.flip(0), "eval": True},
        ),
        Case(
            "dense, nearly flat, single precision",
            {**given, "x": x.float(), "form": "dense", "weight": flat},
        ),
        Case(
            "lu, steep, single precision",
            {**given, "x": image.float(), "form": "lu", "weight": 8 * weight, "steep": 0.0},
        ),
    ]


def linear_cases(generator):
    cases = solve_cases(generator)[:4]
    odd = {**cases[2].inputs, "sign": torch.tensor([1, -1, 1, 1, 1.0])}
    wide = {
        "x": fixed(generator, 2, 64),
        "order": torch.randperm(64, generator=generator),
        "sign": 1.0 - 2 * (torch.arange(64) % 3 == 1).float(),
    }
    small = 1e-2 * fixed(generator, 64, 64)
    return [
        *cases,
        Case("lu, determinant below 0", odd),
        Case("lu, factors from small to large", {**odd, "steep": 4.0}),
        Case(
            "dense, 64 columns, all of them squeezed",
            {**wide, "form": "dense", "weight": 1e-4 * small},
        ),
        Case(
            "dense, 64 columns, all of them stretched",
            {**wide, "form": "dense", "weight": 1e8 * small},
        ),
        Case(
            "lu, 64 columns, all of them stretched",
            {**wide, "form": "lu", "weight": small, "log_s": 12.0},
        ),
    ]


def run_linear(kind, inputs):
    return there(_mixing(kind, inputs), inputs["x"])


def run_solve(kind, inputs):
    mix = _mixing(kind, inputs)
    y = inputs["x"]
    if y.dtype == torch.float64:
        return back(mix, y)
    x = mix.inverse(y)
    return {"x": x, "in the dtype of y": x.dtype == y.dtype}


TRIALS["bijections.linear"] = Trial(
    linear_cases,
    run_linear,
    subject="flow",
    hints=(
        "x is a row, so it stands left of W: x W. How much does a matrix stretch a small volume?",
        (
            "By |det W|. Dense: `torch.linalg.slogdet`. As P L U: the determinant is the product "
            "of U's diagonal, up to a sign, so its logarithm is a sum of weights."
        ),
        (
            "dense: x @ weight and slogdet(weight).logabsdet; lu: x[:, order] @ L @ U and "
            "log_s.sum(); expand both log |det| to (B,)."
        ),
    ),
)

MISTAKES["bijections.linear"] = [
    mistake(
        "return x @ self.weight,",
        "return x @ self.weight.T,",
        "The weight matrix is transposed: row vectors are multiplied from the left, x W.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.logdet(self.weight)",
        "`torch.logdet` is NaN for a negative determinant. Use `slogdet`, which gives the "
        "logarithm of its absolute value.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.linalg.det(self.weight).abs()",
        "The determinant is returned. Its logarithm is expected.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "-torch.linalg.slogdet(self.weight).logabsdet",
        "self.log_s.sum()",
        "-self.log_s.sum()",
        "The sign of the log-determinant is wrong.",
    ),
    mistake(
        "self.log_s.sum()",
        "self.log_s.mean()",
        "The log-determinant is the mean of the logarithms. It is their sum.",
    ),
    mistake(
        "x[:, self.order] @ lower @ upper",
        "x[:, self.order] @ upper @ lower",
        "The triangular factors are applied in the wrong order: W = P L U.",
    ),
    mistake(
        "x[:, self.order] @ lower @ upper", "x @ lower @ upper", "The permutation is not applied."
    ),
    mistake(
        "logabsdet.expand(len(x))",
        "logabsdet * len(x)",
        "self.log_s.sum().expand(len(x))",
        "self.log_s.sum() * len(x)",
        "The log-determinant is summed over the batch. Each row has its own.",
    ),
]

VARIANTS["bijections.linear"] = [
    """
def forward(self, x):
    ones = x.new_ones(x.shape[0])
    if self.form == "lu":
        L, U = self.lower_upper()
        W = torch.eye(self.width, dtype=x.dtype)[:, self.order] @ (L @ U)
        return torch.einsum("bd,de->be", x, W), ones * U.diagonal().abs().log().sum()
    return torch.einsum("bd,de->be", x, self.weight), ones * torch.linalg.svdvals(
        self.weight
    ).log().sum()
""",
    """
def forward(self, x):
    if self.form == "dense":
        W = self.weight
    else:
        L, U = self.lower_upper()
        W = (L @ U)[self.order.argsort()]
    y = (W.T @ x.T).T
    return y, torch.stack([torch.slogdet(W)[1]] * len(x))
""",
]


TRIALS["bijections.solve"] = Trial(
    solve_cases,
    run_solve,
    subject="flow",
    hints=(
        "y = x P L U. Undo U first, then L, then the permutation.",
        (
            "solve_triangular wants to know which triangle it gets (`upper=`) and that the "
            "unknown stands left (`left=False`). Turn weights and y to double before, and the "
            "result back at the end."
        ),
        (
            "x = solve_triangular(U, y, upper=True, left=False); x = solve_triangular(L, x, "
            "upper=False, left=False); x[:, order.argsort()]; dense: linalg.solve(W, y, "
            "left=False)."
        ),
    ),
)

_WRONG_DENSE = "torch.linalg.solve(self.weight.double(), y, left=False)"
_WRONG_UPPER = "x = torch.linalg.solve_triangular(upper, y, upper=True, left=False)"
_WRONG_LOWER = (
    "x = torch.linalg.solve_triangular(lower, x, upper=False, left=False, unitriangular=True)"
)
MISTAKES["bijections.solve"] = [
    mistake(
        _WRONG_DENSE,
        "torch.linalg.solve(self.weight.double(), y.mT).mT",
        "W x = y is solved for column vectors. Here x is a row vector: x W = y.",
    ),
    mistake(
        _WRONG_DENSE,
        "(y @ self.weight.double())",
        "The matrix is applied again. The inverse has to solve x W = y.",
    ),
    mistake(
        _WRONG_DENSE,
        "(y @ self.weight.double().T)",
        "The transpose is used as the inverse. That is only true for orthogonal matrices.",
    ),
    mistake(
        _WRONG_UPPER,
        "x = torch.linalg.solve_triangular(lower, y, upper=False, left=False)",
        _WRONG_LOWER,
        "x = torch.linalg.solve_triangular(upper, x, upper=True, left=False)",
        "L is undone before U. The last factor is undone first.",
    ),
    mistake(
        _WRONG_UPPER,
        _WRONG_UPPER.replace("left=False", "left=False, unitriangular=True"),
        "U is treated as if it had ones on its diagonal.",
    ),
    mistake(
        "x[:, self.order.argsort()]",
        "x[:, self.order]",
        "The permutation is applied again. The inverse uses its `argsort`.",
    ),
    mistake("x[:, self.order.argsort()]", "x", "The permutation is not undone."),
    mistake(
        "y, left=False).to(dtype)",
        "y, left=False)",
        ".argsort()].to(dtype)",
        ".argsort()]",
        "The result stays in double precision. It should have the dtype of y.",
    ),
]

VARIANTS["bijections.solve"] = [
    """
def inverse(self, y):
    W = self.weight.double() if self.form == "dense" else None
    if W is None:
        lower, upper = self.lower_upper()
        W = (
            torch.eye(self.width, dtype=torch.float64)[:, self.order]
            @ lower.double()
            @ upper.double()
        )
    return torch.linalg.solve(W.T, y.double().T).T.to(y.dtype)
""",
    """
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
""",
]
