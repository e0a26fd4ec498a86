"""How the exercises of chapter 18 are checked: what the cases are for, and which mistakes people make."""


import math
import warnings

import torch

from minbert.course.trials import Case, Trial, fixed, mistake


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# A measure of a cloud is one number. Three things hide in it: which pairs are counted, whether length matters, and what happens to vectors that have
# no direction. Each case pulls at one of them.
#
# ---- geometry.mean_cosine
#
# Lengths that differ by a factor of a hundred, a cone (all vectors shifted), opposite vectors, zero rows that must not be counted, one vector alone,
# single precision, and vectors of 1e-15 and 1e60, which double precision can hold.

def measure(function, inputs):
    """Call, look at the number, and listen for the warning that belongs to NaN."""
    single = any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in inputs.values())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = float(function(**inputs))
    return {"value": torch.tensor(value, dtype=torch.float32 if single else torch.float64), "NaN without a warning": torch.tensor(value != value and not caught)}


def _crowd(generator, rows):
    """A cone of many rows, the last of which points the other way: whoever stops early, or looks at a sample, misses it."""
    x = fixed(generator, rows, 2) + 2
    x[-1] *= -1
    return x


def _cloud_cases(generator):
    x = fixed(generator, 9, 4) * torch.tensor([1, 1, 5, 0.1, 1, 10, 1, 0.3, 2.0], dtype=torch.float64)[:, None]
    zeros = x.clone()
    zeros[[0, 4]] = 0
    return [Case("nine vectors of all lengths", {"x": x}), Case("a cone", {"x": fixed(generator, 7, 5) + 2}), Case("two vectors", {"x": x[:2]}),
            Case("opposite vectors", {"x": torch.cat([x[:1], -3 * x[:1]])}), Case("two zero rows", {"x": zeros}),
            Case("one vector and a zero row", {"x": zeros[[0, 1]]}), Case("one vector", {"x": x[:1]}),
            Case("single precision", {"x": x.float()}), Case("equal vectors", {"x": x[:1].expand(4, 4).clone()}), Case("very short vectors", {"x": 1e-6 * x}),
            Case("vectors of length 1e-15, which are not zero", {"x": 1e-15 * x}), Case("vectors too long for single precision", {"x": 1e60 * x})]


def mean_cosine_cases(generator):
    return [*_cloud_cases(generator), Case("1030 vectors, the last opposite", {"x": _crowd(generator, 1030)})]


TRIALS["geometry.mean_cosine"] = Trial(mean_cosine_cases, measure, atol=1e-7, hints=(
    "Only directions count, and no vector is compared with itself.",
    "Scale every row to length 1 and add the rows up. The square of the sum's length holds all N² cosines; which of them have to go?",
    "x = _without_zeros(x); total = unit rows in double precision, summed over the rows; ((total @ total - N) / (N * (N - 1))).item()."))


_WRONG_TOTAL = "total = sum(F.normalize(chunk.double(), dim=1, eps=0).sum(0) for chunk in x.split(8192))"
_WRONG_SHARE = "((total @ total - len(x)) / (len(x) * (len(x) - 1))).item()"

MISTAKES["geometry.mean_cosine"] = [
    mistake(_WRONG_TOTAL, "total = (x - x.mean(0)).double()\n    total = (total / total.norm(dim=1, keepdim=True)).sum(0)", "The mean is taken off first. That is another number."),
    mistake(_WRONG_TOTAL, "total = x.double().sum(0)", _WRONG_SHARE, "((total @ total - x.double().square().sum()) / (len(x) * (len(x) - 1))).item()",
            "The vectors are not scaled to length 1: this is the mean dot product."),
    mistake(_WRONG_TOTAL, "total = (x.double() / (x.double().norm(dim=1, keepdim=True) + 1e-6)).sum(0)", "A small number is added to the lengths, so short vectors count less."),
    mistake(_WRONG_TOTAL, _WRONG_TOTAL.replace(", eps=0", ""), "Short vectors are divided by 1e-12 in place of their length. They are short, not zero: give `normalize` an eps of 0."),
    mistake(_WRONG_TOTAL, _WRONG_TOTAL.replace("chunk.double()", "chunk.float()"), "This is single precision throughout, which cannot hold such lengths. Double precision is wanted."),
    mistake(_WRONG_SHARE, "(total @ total / len(x) ** 2).item()", "Each vector is compared with itself too; those cosines of 1 raise the mean."),
    mistake(_WRONG_SHARE, "(total @ total / (len(x) * (len(x) - 1))).item()",
            "The cosines of the vectors with themselves are divided away but not subtracted."),
    mistake(_WRONG_SHARE, "((total @ total - len(x)) / (len(x) * (len(x) - 1) / 2)).item()",
            "The sum holds each pair twice, so it is to be divided by N(N - 1), not by half of it."),
    mistake(_WRONG_SHARE, "((total @ total - 1) / (len(x) * (len(x) - 1))).item()",
            "There are N cosines of a vector with itself, and only one of them is subtracted."),
    mistake(_WRONG_TOTAL, "total = x.double().sum(0)", "The vectors are not scaled to length 1: long ones count more, and this is no cosine."),
    mistake(_WRONG_TOTAL, "total = F.normalize(x.double(), dim=0).sum(0)", "The columns are scaled to length 1, where the rows should be."),
    mistake("x = _without_zeros(x)", "pass", _WRONG_TOTAL, "total = F.normalize(x.double(), dim=1).sum(0)",
            "Zero rows are counted as vectors; they have no direction and are to be left out."),
    mistake(_WRONG_TOTAL, "u = F.normalize(x.double(), dim=1, eps=0)", _WRONG_SHARE, "(u[1:] * u[:-1]).sum(1).mean().item()",
            "Only neighbouring rows are compared; all pairs are wanted."),
    mistake(_WRONG_TOTAL, "u = F.normalize(x.double(), dim=1, eps=0)", _WRONG_SHARE,
            "(((u @ u.T).abs().sum() - len(x)) / (len(x) * (len(x) - 1))).item()",
            "Absolute values are averaged, so opposite directions no longer cancel."),
    mistake(_WRONG_TOTAL, "u = F.normalize(x.double() - x.double().mean(0), dim=1)\n    total = u.sum(0)",
            "The mean is subtracted first. That removes the very cone that is to be measured."),
    mistake("return undefined(\"mean cosine\", f\"{len(x)} vectors\")", "return math.nan", "NaN comes back without a word. `undefined` gives it and warns."),
    mistake("return undefined(\"mean cosine\", f\"{len(x)} vectors\")", "return 0.0",
            "Fewer than two vectors have no mean cosine: the answer is NaN."),
    mistake("x = _without_zeros(x)", "x = _without_zeros(x)[:1000]", "Only the first 1,000 vectors are looked at. The mean is over all pairs."),
    mistake("return " + _WRONG_SHARE, "u = F.normalize(x.double(), dim=1, eps=0)\n    return (u @ u.T).triu(1).mean().item()",
            "Each pair counts once above the line, and all N² cells count below it. There are half of N (N - 1) pairs."),
    mistake("return " + _WRONG_SHARE, "return F.cosine_similarity(x.double(), x.double().mean(0, keepdim=True)).mean().item()",
            "Each vector is compared with the mean of all. It is to be compared with each other one."),
]

VARIANTS["geometry.mean_cosine"] = [
    '''
def mean_cosine(x):
    x = x[x.norm(dim=1) > 0].double()
    if len(x) < 2:
        return undefined("the mean cosine", "no pair")
    u = x / x.norm(dim=1, keepdim=True)
    i, j = torch.triu_indices(len(u), len(u), 1)
    return torch.einsum("nd,nd->n", u[i], u[j]).mean().item()
''',
    '''
def mean_cosine(x):
    rows = [row.double() for row in x if row.any()]
    rows = [row / row.norm() for row in rows]
    if len(rows) < 2:
        return undefined("the mean cosine", "no pair")
    before, total = 0 * rows[0], 0.0
    for row in rows:
        total, before = total + row.dot(before).item(), before + row
    return 2 * total / (len(rows) * (len(rows) - 1))
''',
]


# ---- geometry.alignment
#
# Pairs of all lengths, equal and opposite ones, one with a zero vector on either side, no pairs at all.

def alignment_cases(generator):
    u, noise = fixed(generator, 2, 8, 5)
    v = 7 * (u + noise)
    zero_u, zero_v = u.clone(), v.clone()
    zero_u[1], zero_v[3] = 0, 0
    return [Case("eight pairs", {"u": u, "v": v}), Case("equal but for their lengths", {"u": u, "v": 4 * u}), Case("opposite", {"u": u, "v": -u}),
            Case("one pair", {"u": u[:1], "v": v[:1]}),
            Case("zero vectors", {"u": zero_u, "v": zero_v}), Case("zero on both sides", {"u": zero_u[1:2], "v": 0 * v[1:2]}),
            Case("single precision", {"u": u.float(), "v": v.float()}),
            Case("no pairs", {"u": u[:0], "v": v[:0]})]


TRIALS["geometry.alignment"] = Trial(alignment_cases, measure, atol=1e-7, hints=(
    "A squared distance of two vectors of length 1 can be read off their cosine.",
    "It is 2 - 2 cos. A pair with a zero vector has cosine 0 here, so `safe_cosine` is the tool.",
    "(2 - 2 * safe_cosine(u.double(), v.double()).mean()).item(), and NaN if there are no pairs."))


_WRONG_ALIGN = "(2 - 2 * safe_cosine(u, v).mean()).item()"

MISTAKES["geometry.alignment"] = [
    mistake(_WRONG_ALIGN, "(2 - 2 * safe_cosine(u.mean(0), v.mean(0))).item()", "The means of the two sides are compared. Each pair counts for itself."),
    mistake(_WRONG_ALIGN, "(2 - 2 * safe_cosine(u, v).square().mean()).item()", "The cosines are squared, so opposite vectors pass for equal ones."),
    mistake(_WRONG_ALIGN, "(2 - 2 * safe_cosine(u, v)[(u != 0).any(1) & (v != 0).any(1)].mean()).item()", "Pairs with a zero vector are left out. They have cosine 0."),
    mistake(_WRONG_ALIGN, "(u - v).square().sum(1).mean().item()",
            "The vectors are not scaled to length 1, so the distance grows with their lengths."),
    mistake(_WRONG_ALIGN, "(2 - 2 * safe_cosine(u, v)).clamp(min=0).sqrt().mean().item()", "The distance is not squared."),
    mistake(_WRONG_ALIGN, "safe_cosine(u, v).mean().item()", "This is a similarity; alignment is a distance, and smaller is better."),
    mistake(_WRONG_ALIGN, "(1 - safe_cosine(u, v).mean()).item()", "The squared distance is 2 - 2 cos, twice as much."),
    mistake(_WRONG_ALIGN, "(2 - 2 * safe_cosine(u, v)).sum().item()", "The distances are added up; the mean is wanted."),
    mistake(_WRONG_ALIGN, "((2 - 2 * safe_cosine(u, v).mean()) / u.shape[1]).item()",
            "The mean runs over the coordinates too; the squares of one pair are added up."),
    mistake(_WRONG_ALIGN, "(F.normalize(u, dim=1) - F.normalize(v, dim=1)).square().sum(1).mean().item()",
            "A pair with a zero vector gets distance 1 or 0 this way; with cosine 0, as everywhere in this book, it is 2."),
    mistake(_WRONG_ALIGN, "(2 - 2 * (F.normalize(u, dim=1) @ F.normalize(v, dim=1).T).mean()).item()",
            "Every u is compared with every v; only row i with row i is a positive pair."),
    mistake("return undefined(\"alignment\", \"0 pairs\")", "return math.nan", "NaN comes back without a word. `undefined` gives it and warns."),
    mistake("return undefined(\"alignment\", \"0 pairs\")", "return 0.0",
            "Without pairs there is no alignment: the answer is NaN, not the best value."),
    mistake(_WRONG_ALIGN, "((2 - 2 * safe_cosine(u, v)).sqrt().mean() ** 2).item()", "The distances are averaged before they are squared. The mean is one of squares."),
]

VARIANTS["geometry.alignment"] = [
    '''
def alignment(u, v):
    u, v = u.double(), v.double()
    lengths = u.norm(dim=1) * v.norm(dim=1)
    if not len(u):
        return undefined("alignment", "no pair")
    cosine = torch.where(lengths > 0, torch.einsum("nd,nd->n", u, v) / lengths.clamp(min=1e-300), torch.zeros_like(lengths))
    return float((2 - 2 * cosine).mean())
''',
    '''
def alignment(u, v):
    total = 0.0
    for a, b in zip(u.double(), v.double()):
        if a.any() and b.any():
            total += (a / a.norm() - b / b.norm()).pow(2).sum().item()
        else:
            total += 2.0
    return total / len(u) if len(u) else undefined("alignment", "no pair")
''',
]


# ---- geometry.uniformity
#
# The same clouds, and two more questions: does the value depend on `chunk` (it must not), and does a large t turn all exponentials to 0 (then the
# logarithm is minus infinity)?

def uniformity_cases(generator):
    x = fixed(generator, 8, 3)
    far = torch.tensor([[3, 0.3], [-3, 0.6], [1, 3]], dtype=torch.float64)
    return _cloud_cases(generator) + [Case("t = 0.5", {"x": x, "t": 0.5}), Case("blocks of three rows", {"x": x, "chunk": 3}),
            Case("blocks of one row", {"x": x, "chunk": 1}), Case("520 vectors, the last opposite", {"x": _crowd(generator, 520)}),
                                      Case("so large a t that exp gives 0", {"x": far, "t": 900.0})]


TRIALS["geometry.uniformity"] = Trial(uniformity_cases, measure, rtol=1e-6, atol=1e-7, hints=(
    "Which pairs count, which distance, and in what order: exponential, mean, logarithm?",
    "Unit vectors have |u - w|² = 2 - 2 cos. torch.logsumexp adds exponentials without underflow; the logarithm of the number of pairs is "
    "subtracted from it.",
    "u = unit rows; exponent = -t * squared distances of the pairs i < j; exponent.logsumexp(0) - math.log(N (N - 1) / 2)."))


_WRONG_SUMS = "sums = [_log_sum(u[i : i + chunk], u[i:], t) for i in range(0, len(u) - 1, chunk)]"
_WRONG_LOG = "return (torch.stack(sums).logsumexp(0) - math.log(len(u) * (len(u) - 1) / 2)).item()"
_WRONG_UNIT = "u = F.normalize(x.double(), dim=1, eps=0).to(torch.promote_types(x.dtype, torch.float32))"


def _wrong_pairs(value, says, unit="F.normalize(x.double(), dim=1, eps=0)"):
    """The measure with all pairs at once: d2 holds the squared distances of pairs i < j."""
    squares = "d2 = 2 - 2 * (u @ u.T)[torch.ones(len(u), len(u)).triu(1) == 1]"
    return mistake(_WRONG_UNIT, f"u = {unit}", _WRONG_SUMS, squares, _WRONG_LOG, f"return ({value}).item()", says)


MISTAKES["geometry.uniformity"] = [
    mistake("range(0, len(u) - 1, chunk)", "range(0, max(1, len(u) // chunk * chunk), chunk)", "The last block, which is not full, is lost."),
    mistake(_WRONG_LOG, "return (torch.stack(sums).logsumexp(0) - math.log(len(u) * (len(u) - 1))).item()", "Each pair is counted twice below, and once above."),
    mistake("x = _without_zeros(x)", "pass", "Zero rows are kept. They have no direction."),
    _wrong_pairs("(-t * d2).exp().mean().log()",
            "The exponentials vanish for a large t, and the logarithm of 0 is minus infinity; logsumexp does not let that happen."),
    _wrong_pairs("(t * d2).logsumexp(0) - math.log(len(d2))", "The sign of the exponent is wrong: far pairs count most."),
    _wrong_pairs("(-t * d2).logsumexp(0)", "The exponentials are added up; the logarithm of their mean is wanted."),
    _wrong_pairs("(-t * d2).mean()", "The mean is taken of the exponents. The logarithm of a mean is not the mean of logarithms."),
    _wrong_pairs("((-t * d2).logsumexp(0) - math.log(len(d2))).exp()", "The logarithm is missing at the end."),
    _wrong_pairs("math.log(len(d2)) - (-t * d2).logsumexp(0)", "The sign is wrong: a more uniform cloud has a smaller value, and none is above 0."),
    _wrong_pairs("(-t * d2.clamp(min=0).sqrt()).logsumexp(0) - math.log(len(d2))", "The distance is not squared."),
    _wrong_pairs("(-t * d2 / 2).logsumexp(0) - math.log(len(d2))", "The squared distance is 2 - 2 cos; this is half of it."),
    _wrong_pairs("(-2 * d2).logsumexp(0) - math.log(len(d2))", "t is always 2, whatever was asked for."),
    _wrong_pairs("(-t * torch.cdist(u, u).square()).flatten().logsumexp(0) - 2 * math.log(len(u))",
            "Each vector is compared with itself too, which puts exponentials of 0 into the mean."),
    _wrong_pairs("(-t * torch.pdist(u).square()).logsumexp(0) - math.log(len(d2))", "The vectors are not scaled to length 1.", "x.double()"),
    mistake(_WRONG_UNIT, "u = F.normalize(x.double(), dim=1).to(torch.promote_types(x.dtype, torch.float32))",
            "Vectors of length 1e-15 are divided by 1e-12, not by their length: give `normalize` an eps of 0."),
    _wrong_pairs("(-t * d2).logsumexp(0) - math.log(len(u) ** 2 / 2)", "The sum is divided by N² / 2; there are N (N - 1) / 2 pairs."),
    mistake("x = _without_zeros(x)", "pass", _WRONG_UNIT, "u = F.normalize(x.double(), dim=1)",
            "Zero rows are counted; they have no direction and are to be left out."),
    mistake(_WRONG_SUMS, "sums = [_log_sum(u[i : i + chunk], u[i : i + chunk], t) for i in range(0, len(u) - 1, chunk)]",
            "Pairs whose rows lie in different blocks are left out, so the value depends on `chunk`."),
    mistake("return undefined(\"uniformity\", f\"{len(x)} vectors\")", "return math.nan", "NaN comes back without a word. `undefined` gives it and warns."),
    mistake("return undefined(\"uniformity\", f\"{len(x)} vectors\")", "return 0.0", "Fewer than two vectors have no uniformity: the answer is NaN."),
    mistake("    " + _WRONG_SUMS, "    u = u[:512]\n    " + _WRONG_SUMS, "Only the first 512 vectors are looked at. All pairs count, block by block."),
    _wrong_pairs("((-t * d2).exp().sum() / len(u) ** 2).log()", "The sum over the pairs is divided by N². There are half of N (N - 1) pairs."),
]

VARIANTS["geometry.uniformity"] = [
    '''
def uniformity(x, t=2.0, chunk=512):
    x = x[x.any(1)].double()
    if len(x) < 2:
        return undefined("uniformity", "no pair")
    d = torch.pdist(x / x.norm(dim=1, keepdim=True))
    return (torch.logsumexp(-t * d**2, 0) - torch.tensor(float(len(d))).double().log()).item()
''',
    '''
def uniformity(x, t=2.0, chunk=512):
    u = [row.double() / row.double().norm() for row in x if row.any()]
    exponents = [-t * (a - b).pow(2).sum().item() for i, a in enumerate(u) for b in u[i + 1 :]]
    if not exponents:
        warnings.warn("no pair, so no uniformity", RuntimeWarning)
        return math.nan
    peak = max(exponents)
    return peak + math.log(sum(math.exp(e - peak) for e in exponents) / len(exponents))
''',
]


# ---- geometry.isoscore
#
# Clouds that are long in some directions, turned so that the directions are no axes; a shift of a thousand; a line; the round cloud; two coordinates;
# one, and equal rows, which have no answer.

def isoscore_cases(generator):
    lengths = torch.tensor([5.0, 2.0, 1.0, 0.3], dtype=torch.float64)
    turn = torch.linalg.qr(fixed(generator, 4, 4))[0]
    x = fixed(generator, 12, 4) * lengths @ turn
    corners = torch.cat([torch.eye(4, dtype=torch.float64), -torch.eye(4, dtype=torch.float64)])
    return [Case("an ellipsoid, turned", {"x": x}), Case("moved away from 0", {"x": x + 1e7}), Case("a disc in four dimensions", {"x": x[:, :2] @ turn[:2]}), Case("round", {"x": 3 * corners}),
            Case("a line", {"x": fixed(generator, 7, 1) * turn[:1] + 1}),
            Case("two coordinates", {"x": x[:, :2]}), Case("two points", {"x": x[:2]}), Case("single precision", {"x": x.float()}),
            Case("spreads of 1e-8", {"x": 1e-8 * x}), Case("one coordinate", {"x": x[:, :1]}), Case("equal rows", {"x": torch.ones(5, 3, dtype=torch.float64)})]


TRIALS["geometry.isoscore"] = Trial(isoscore_cases, measure, atol=1e-7, hints=(
    "How many directions does the cloud use: 1 for a line, D for a ball? That number is PR.",
    "The sum of eigenvalues of a symmetric matrix is its trace, and the sum of their squares is the sum of the squares of all its entries.",
    "C = gram(x); PR = C.trace() ** 2 / C.square().sum(); ((PR - 1) / (D - 1)).item(), NaN for D < 2 or a trace of 0."))


_WRONG_GRAM = "covariance = gram(x)"
_WRONG_PR = "ratio = covariance.trace() ** 2 / covariance.square().sum()  # sums of eigenvalues need no eigenvalues"

MISTAKES["geometry.isoscore"] = [
    mistake(_WRONG_GRAM, "covariance = x.double().T @ x.double() / len(x) - torch.outer(x.double().mean(0), x.double().mean(0))",
            "The covariance is the mean of the squares less the square of the mean. Far from 0 both are large and their difference is rounding."),
    mistake(_WRONG_GRAM, "covariance = torch.corrcoef(x.double().T).view(x.shape[1], -1)", "These are correlations: every axis is scaled to the same spread first."),
    mistake(_WRONG_PR, "p = torch.linalg.eigvalsh(covariance).clamp(min=1e-300) / covariance.trace()\n    ratio = (-(p * p.log()).sum()).exp()",
            "This is the exponential of an entropy. PR is a ratio of sums."),
    mistake("(ratio - 1) / (D - 1)", "(ratio - 1) / (max(2, int(torch.linalg.matrix_rank(covariance))) - 1)", "The rank is taken for D: axes that nobody uses count as well."),
    mistake(_WRONG_GRAM, "covariance = gram(x, center=False)", "The mean is not subtracted: a cloud far from 0 looks like a line towards it."),
    mistake(_WRONG_PR, "ratio = covariance.trace() ** 2 / covariance.diagonal().square().sum()",
            "Only the variances along the axes are looked at; a cloud that is long across them seems round."),
    mistake(_WRONG_PR, "values = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()\n    ratio = values.sum() ** 2 / values.square().sum()",
            "The roots of the eigenvalues are used, spreads in the place of variances."),
    mistake(_WRONG_PR, "ratio = covariance.square().sum() / covariance.trace() ** 2", "The fraction is upside down: a ball gets the lowest value."),
    mistake(_WRONG_PR, "ratio = covariance.trace() / covariance.square().sum().sqrt()", "The fraction is not squared."),
    mistake("(ratio - 1) / (D - 1)", "ratio / D", "The value is not moved to [0, 1]: a line should give 0, not 1/D."),
    mistake("(ratio - 1) / (D - 1)", "(ratio - 1) / D", "A round cloud stays below 1: PR runs from 1 to D, a distance of D - 1."),
    mistake("return undefined(\"IsoScore\", f\"width {D}\" if D < 2 else \"rows that are all alike\")", "return math.nan", "NaN comes back without a word. `undefined` gives it and warns."),
    mistake("(ratio - 1) / (D - 1)", "(D - ratio) / (D - 1)", "Turned round: 1 should be the ball and 0 the line."),
    mistake("(ratio - 1) / (D - 1)", "ratio", "The number of directions itself comes back; it is to be moved to [0, 1]."),
    mistake(_WRONG_GRAM, "covariance = gram(x.T)", "The roles of rows and columns are exchanged: D is taken from the number of vectors."),
]

VARIANTS["geometry.isoscore"] = [
    '''
def isoscore(x):
    x = x.double() - x.double().mean(0)
    D = x.shape[1]
    values = torch.linalg.svdvals(x) ** 2
    if D < 2 or values.sum() <= 0:
        return undefined("IsoScore", "no axes to compare")
    shares = values / values.sum()
    return ((1 / shares.square().sum() - 1) / (D - 1)).item()
''',
    '''
def isoscore(x):
    if x.shape[1] < 2 or (x == x[0]).all():
        return undefined("IsoScore", "no axes to compare")
    values = torch.linalg.eigvalsh(torch.cov(x.double().T))
    return float((values.sum().square() / values.square().sum() - 1) / (len(values) - 1))
''',
]


# ---- How strong are they?
