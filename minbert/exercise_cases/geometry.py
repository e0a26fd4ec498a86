"""Exercise cases of chapter 14: mean cosine, alignment, uniformity, and IsoScore."""

import math
import warnings

import torch

from minbert.course.check_runner import Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- geometry.mean_cosine
#
# Lengths that differ by a factor of a hundred, a cone (all vectors shifted), opposite vectors,
# zero vectors that must not be counted, a single vector, single precision, and vectors of length
# 1e-15 and 1e60.


def measure(function, inputs):
    """Call, look at the number, and listen for the warning that belongs to NaN."""
    single = any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in inputs.values())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = float(function(**inputs))
    return {
        "value": torch.tensor(value, dtype=torch.float32 if single else torch.float64),
        "NaN without a warning": torch.tensor(math.isnan(value) and not caught),
    }


def _crowd(generator, rows):
    """A cone of many rows, the last of which points the other way: whoever stops early, or looks
    at a sample, misses it."""
    x = fixed(generator, rows, 2) + 2
    x[-1] *= -1
    return x


def _cloud_cases(generator):
    x = (
        fixed(generator, 9, 4)
        * torch.tensor([1, 1, 5, 0.1, 1, 10, 1, 0.3, 2.0], dtype=torch.float64)[:, None]
    )
    zeros = x.clone()
    zeros[[0, 4]] = 0
    return [
        Case("nine vectors of all lengths", {"x": x}),
        Case("a cone", {"x": fixed(generator, 7, 5) + 2}),
        Case("two vectors", {"x": x[:2]}),
        Case("opposite vectors", {"x": torch.cat([x[:1], -3 * x[:1]])}),
        Case("two zero rows", {"x": zeros}),
        Case("one vector and a zero row", {"x": zeros[[0, 1]]}),
        Case("one vector", {"x": x[:1]}),
        Case("single precision", {"x": x.float()}),
        Case("equal vectors", {"x": x[:1].expand(4, 4).clone()}),
        Case("very short vectors", {"x": 1e-6 * x}),
        Case("vectors of length 1e-15, which are not zero", {"x": 1e-15 * x}),
        Case("vectors too long for single precision", {"x": 1e60 * x}),
    ]


def mean_cosine_cases(generator):
    return [
        *_cloud_cases(generator),
        Case("1030 vectors, the last opposite", {"x": _crowd(generator, 1030)}),
    ]


TRIALS["geometry.mean_cosine"] = Trial(
    mean_cosine_cases,
    measure,
    atol=1e-7,
    hints=(
        "Only directions count, and no vector is compared with itself.",
        (
            "Scale every row to length 1 and add the rows up. The square of the sum's length "
            "holds all N² cosines; which of them have to go?"
        ),
        (
            "x = _without_zeros(x); total = unit rows in double precision, summed over the rows; "
            "((total @ total - N) / (N * (N - 1))).item()."
        ),
    ),
)


_WRONG_TOTAL = (
    "total = sum(F.normalize(chunk.double(), dim=1, eps=0).sum(0) for chunk in x.split(8192))"
)
_WRONG_SHARE = "((total @ total - len(x)) / (len(x) * (len(x) - 1))).item()"

MISTAKES["geometry.mean_cosine"] = [
    mistake(
        _WRONG_SHARE,
        "(total @ total / len(x) ** 2).item()",
        "The cosine of each vector with itself is included, which raises the mean.",
    ),
    mistake(
        _WRONG_SHARE,
        "((total @ total - len(x)) / (len(x) * (len(x) - 1) / 2)).item()",
        "The sum contains each pair twice. Divide by N (N - 1), not by half of it.",
    ),
    mistake(
        _WRONG_TOTAL,
        "total = x.double().sum(0)",
        "The vectors are not normalized, so long ones count more.",
    ),
    mistake(
        _WRONG_TOTAL,
        "total = F.normalize(x.double(), dim=0).sum(0)",
        "The columns are normalized instead of the rows.",
    ),
    mistake(
        "x = _without_zeros(x)",
        "pass",
        _WRONG_TOTAL,
        "total = F.normalize(x.double(), dim=1).sum(0)",
        "Zero vectors are included. They have no direction and should be left out.",
    ),
    mistake(
        _WRONG_TOTAL,
        "u = F.normalize(x.double(), dim=1, eps=0)",
        _WRONG_SHARE,
        "(u[1:] * u[:-1]).sum(1).mean().item()",
        "Only neighbouring rows are compared. Use all pairs.",
    ),
    mistake(
        _WRONG_TOTAL,
        "u = F.normalize(x.double() - x.double().mean(0), dim=1)\n    total = u.sum(0)",
        "The vectors are centered first, which removes the anisotropy that should be measured.",
    ),
    mistake(
        'return undefined("mean cosine", f"{len(x)} vectors")',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
]

VARIANTS["geometry.mean_cosine"] = [
    """
def mean_cosine(x):
    x = x[x.norm(dim=1) > 0].double()
    if len(x) < 2:
        return undefined("the mean cosine", "no pair")
    u = x / x.norm(dim=1, keepdim=True)
    i, j = torch.triu_indices(len(u), len(u), 1)
    return torch.einsum("nd,nd->n", u[i], u[j]).mean().item()
""",
    """
def mean_cosine(x):
    rows = [row.double() for row in x if row.any()]
    rows = [row / row.norm() for row in rows]
    if len(rows) < 2:
        return undefined("the mean cosine", "no pair")
    before, total = 0 * rows[0], 0.0
    for row in rows:
        total, before = total + row.dot(before).item(), before + row
    return 2 * total / (len(rows) * (len(rows) - 1))
""",
]


# ---- geometry.alignment
#
# Pairs of all lengths, equal and opposite ones, one with a zero vector on either side, no pairs
# at all.


def alignment_cases(generator):
    u, noise = fixed(generator, 2, 8, 5)
    v = 7 * (u + noise)
    zero_u, zero_v = u.clone(), v.clone()
    zero_u[1], zero_v[3] = 0, 0
    return [
        Case("eight pairs", {"u": u, "v": v}),
        Case("equal but for their lengths", {"u": u, "v": 4 * u}),
        Case("opposite", {"u": u, "v": -u}),
        Case("one pair", {"u": u[:1], "v": v[:1]}),
        Case("zero vectors", {"u": zero_u, "v": zero_v}),
        Case("zero on both sides", {"u": zero_u[1:2], "v": 0 * v[1:2]}),
        Case("single precision", {"u": u.float(), "v": v.float()}),
        Case("no pairs", {"u": u[:0], "v": v[:0]}),
    ]


TRIALS["geometry.alignment"] = Trial(
    alignment_cases,
    measure,
    atol=1e-7,
    hints=(
        "A squared distance of two vectors of length 1 can be read off their cosine.",
        (
            "It is 2 - 2 cos. A pair with a zero vector has cosine 0 here, so `safe_cosine` is "
            "the tool."
        ),
        (
            "(2 - 2 * safe_cosine(u.double(), v.double()).mean()).item(), and NaN if there are no "
            "pairs."
        ),
    ),
)


_WRONG_ALIGN = "(2 - 2 * safe_cosine(u, v).mean()).item()"

MISTAKES["geometry.alignment"] = [
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * safe_cosine(u.mean(0), v.mean(0))).item()",
        "The means of the two sides are compared. Compare pair by pair.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(u - v).square().sum(1).mean().item()",
        "The vectors are not normalized, so the distance depends on their length.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * safe_cosine(u, v)).clamp(min=0).sqrt().mean().item()",
        "The distance is not squared.",
    ),
    mistake(
        _WRONG_ALIGN,
        "safe_cosine(u, v).mean().item()",
        "This is a similarity. Alignment is a distance, and smaller is better.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(1 - safe_cosine(u, v).mean()).item()",
        "A factor of 2 is missing: the squared distance of unit vectors is 2 - 2 cos.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * safe_cosine(u, v)).sum().item()",
        "The distances are summed. Use the mean.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * (F.normalize(u, dim=1) @ F.normalize(v, dim=1).T).mean()).item()",
        "Every u is compared with every v. Only row i with row i is a positive pair.",
    ),
    mistake(
        'return undefined("alignment", "0 pairs")',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
]

VARIANTS["geometry.alignment"] = [
    """
def alignment(u, v):
    u, v = u.double(), v.double()
    lengths = u.norm(dim=1) * v.norm(dim=1)
    if not len(u):
        return undefined("alignment", "no pair")
    cosine = torch.where(
        lengths > 0,
        torch.einsum("nd,nd->n", u, v) / lengths.clamp(min=1e-300),
        torch.zeros_like(lengths),
    )
    return float((2 - 2 * cosine).mean())
""",
    """
def alignment(u, v):
    total = 0.0
    for a, b in zip(u.double(), v.double()):
        if a.any() and b.any():
            total += (a / a.norm() - b / b.norm()).pow(2).sum().item()
        else:
            total += 2.0
    return total / len(u) if len(u) else undefined("alignment", "no pair")
""",
]


# ---- geometry.uniformity
#
# The same vectors. The value must not depend on `chunk`, and with a large t the exponentials
# underflow, so that a direct logarithm gives minus infinity.


def uniformity_cases(generator):
    x = fixed(generator, 8, 3)
    far = torch.tensor([[3, 0.3], [-3, 0.6], [1, 3]], dtype=torch.float64)
    return _cloud_cases(generator) + [
        Case("t = 0.5", {"x": x, "t": 0.5}),
        Case("blocks of three rows", {"x": x, "chunk": 3}),
        Case("blocks of one row", {"x": x, "chunk": 1}),
        Case("520 vectors, the last opposite", {"x": _crowd(generator, 520)}),
        Case("so large a t that exp gives 0", {"x": far, "t": 900.0}),
    ]


TRIALS["geometry.uniformity"] = Trial(
    uniformity_cases,
    measure,
    rtol=1e-6,
    atol=1e-7,
    hints=(
        "Which pairs count, which distance, and in what order: exponential, mean, logarithm?",
        (
            "Unit vectors have |u - w|² = 2 - 2 cos. torch.logsumexp adds exponentials without "
            "underflow; the logarithm of the number of pairs is "
            "subtracted from it."
        ),
        (
            "u = unit rows; exponent = -t * squared distances of the pairs i < j; "
            "exponent.logsumexp(0) - math.log(N (N - 1) / 2)."
        ),
    ),
)


_WRONG_SUMS = "sums = [_log_sum(u[i : i + chunk], u[i:], t) for i in range(0, len(u) - 1, chunk)]"
_WRONG_LOG = "return (torch.stack(sums).logsumexp(0) - math.log(len(u) * (len(u) - 1) / 2)).item()"
_WRONG_UNIT = (
    "u = F.normalize(x.double(), dim=1, eps=0).to(torch.promote_types(x.dtype, torch.float32))"
)


def _wrong_pairs(value, says, unit="F.normalize(x.double(), dim=1, eps=0)"):
    """The measure with all pairs at once: d2 holds the squared distances of pairs i < j."""
    squares = "d2 = 2 - 2 * (u @ u.T)[torch.ones(len(u), len(u)).triu(1) == 1]"
    return mistake(
        _WRONG_UNIT,
        f"u = {unit}",
        _WRONG_SUMS,
        squares,
        _WRONG_LOG,
        f"return ({value}).item()",
        says,
    )


MISTAKES["geometry.uniformity"] = [
    _wrong_pairs(
        "(t * d2).logsumexp(0) - math.log(len(d2))",
        "The sign of the exponent is wrong, so distant pairs count most.",
    ),
    _wrong_pairs(
        "(-t * d2).logsumexp(0)", "The exponentials are summed. Use the logarithm of their mean."
    ),
    _wrong_pairs(
        "(-t * d2).mean()",
        "The mean of the exponents is returned. The logarithm of a mean is not the mean of the "
        "logarithms.",
    ),
    _wrong_pairs(
        "math.log(len(d2)) - (-t * d2).logsumexp(0)",
        "The sign is wrong: uniformity is never positive, and lower is more uniform.",
    ),
    _wrong_pairs(
        "(-t * d2.clamp(min=0).sqrt()).logsumexp(0) - math.log(len(d2))",
        "The distance is not squared.",
    ),
    _wrong_pairs(
        "(-t * torch.cdist(u, u).square()).flatten().logsumexp(0) - 2 * math.log(len(u))",
        "Each vector is also compared with itself, which adds terms of exp(0) to the mean.",
    ),
    _wrong_pairs(
        "(-t * torch.pdist(u).square()).logsumexp(0) - math.log(len(d2))",
        "The vectors are not normalized.",
        "x.double()",
    ),
    mistake(
        'return undefined("uniformity", f"{len(x)} vectors")',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
]

VARIANTS["geometry.uniformity"] = [
    """
def uniformity(x, t=2.0, chunk=512):
    x = x[x.any(1)].double()
    if len(x) < 2:
        return undefined("uniformity", "no pair")
    d = torch.pdist(x / x.norm(dim=1, keepdim=True))
    return (torch.logsumexp(-t * d**2, 0) - torch.tensor(float(len(d))).double().log()).item()
""",
    """
def uniformity(x, t=2.0, chunk=512):
    u = [row.double() / row.double().norm() for row in x if row.any()]
    exponents = [-t * (a - b).pow(2).sum().item() for i, a in enumerate(u) for b in u[i + 1 :]]
    if not exponents:
        warnings.warn("no pair, so no uniformity", RuntimeWarning)
        return math.nan
    peak = max(exponents)
    return peak + math.log(sum(math.exp(e - peak) for e in exponents) / len(exponents))
""",
]


# ---- geometry.isoscore
#
# Clouds that are long in directions that are not axes; a shift of a thousand; a line; an
# isotropic cloud; two dimensions; one dimension and equal rows, where the score is undefined.


def isoscore_cases(generator):
    lengths = torch.tensor([5.0, 2.0, 1.0, 0.3], dtype=torch.float64)
    turn = torch.linalg.qr(fixed(generator, 4, 4))[0]
    x = fixed(generator, 12, 4) * lengths @ turn
    corners = torch.cat([torch.eye(4, dtype=torch.float64), -torch.eye(4, dtype=torch.float64)])
    return [
        Case("an ellipsoid, turned", {"x": x}),
        Case("moved away from 0", {"x": x + 1e7}),
        Case("a disc in four dimensions", {"x": x[:, :2] @ turn[:2]}),
        Case("round", {"x": 3 * corners}),
        Case("a line", {"x": fixed(generator, 7, 1) * turn[:1] + 1}),
        Case("two coordinates", {"x": x[:, :2]}),
        Case("two points", {"x": x[:2]}),
        Case("single precision", {"x": x.float()}),
        Case("spreads of 1e-8", {"x": 1e-8 * x}),
        Case("one coordinate", {"x": x[:, :1]}),
        Case("equal rows", {"x": torch.ones(5, 3, dtype=torch.float64)}),
    ]


TRIALS["geometry.isoscore"] = Trial(
    isoscore_cases,
    measure,
    atol=1e-7,
    hints=(
        "How many directions does the cloud use: 1 for a line, D for a ball? That number is PR.",
        (
            "The sum of eigenvalues of a symmetric matrix is its trace, and the sum of their "
            "squares is the sum of the squares of all its entries."
        ),
        (
            "C = gram(x); PR = C.trace() ** 2 / C.square().sum(); ((PR - 1) / (D - 1)).item(), "
            "NaN for D < 2 or a trace of 0."
        ),
    ),
)


_WRONG_GRAM = "covariance = gram(x)"
_WRONG_PR = (
    "ratio = covariance.trace() ** 2 / covariance.square().sum()  # sums of eigenvalues need "
    "no eigenvalues"
)

MISTAKES["geometry.isoscore"] = [
    mistake(
        _WRONG_GRAM,
        "covariance = gram(x, center=False)",
        "The vectors are not centered, so a cloud far from the origin looks like a line.",
    ),
    mistake(
        _WRONG_PR,
        "ratio = covariance.trace() ** 2 / covariance.diagonal().square().sum()",
        "Only the variances of the dimensions are used, without the covariances between them.",
    ),
    mistake(
        _WRONG_PR,
        "values = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()\n"
        "    ratio = values.sum() ** 2 / values.square().sum()",
        "The square roots of the eigenvalues are used. Use the eigenvalues, which are variances.",
    ),
    mistake(
        _WRONG_PR,
        "ratio = covariance.square().sum() / covariance.trace() ** 2",
        "The fraction is upside down, so an isotropic cloud gets the lowest value.",
    ),
    mistake(
        "(ratio - 1) / (D - 1)",
        "ratio / D",
        "The value is not rescaled: a line should give 0, not 1/D.",
    ),
    mistake(
        'return undefined("IsoScore", f"width {D}" if D < 2 else "rows that are all alike")',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
    mistake(
        "(ratio - 1) / (D - 1)",
        "ratio",
        "The participation ratio itself is returned. It should be rescaled to [0, 1].",
    ),
    mistake(
        _WRONG_GRAM,
        "covariance = gram(x.T)",
        "Rows and columns are swapped: D is the number of dimensions, not of vectors.",
    ),
]

VARIANTS["geometry.isoscore"] = [
    """
def isoscore(x):
    x = x.double() - x.double().mean(0)
    D = x.shape[1]
    values = torch.linalg.svdvals(x) ** 2
    if D < 2 or values.sum() <= 0:
        return undefined("IsoScore", "no axes to compare")
    shares = values / values.sum()
    return ((1 / shares.square().sum() - 1) / (D - 1)).item()
""",
    """
def isoscore(x):
    if x.shape[1] < 2 or (x == x[0]).all():
        return undefined("IsoScore", "no axes to compare")
    values = torch.linalg.eigvalsh(torch.cov(x.double().T))
    return float((values.sum().square() / values.square().sum() - 1) / (len(values) - 1))
""",
]
