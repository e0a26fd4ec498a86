"""Mutants of `minbert.exercise_cases.geometry`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.geometry import (
    _WRONG_ALIGN,
    _WRONG_GRAM,
    _WRONG_LOG,
    _WRONG_PR,
    _WRONG_SHARE,
    _WRONG_SUMS,
    _WRONG_TOTAL,
    _WRONG_UNIT,
    _wrong_pairs,
)

MUTANTS = {}


MUTANTS["geometry.mean_cosine"] = [
    mistake(
        _WRONG_TOTAL,
        "total = (x - x.mean(0)).double()\n"
        "    total = (total / total.norm(dim=1, keepdim=True)).sum(0)",
        "The mean is taken off first. That is another number.",
    ),
    mistake(
        _WRONG_TOTAL,
        "total = x.double().sum(0)",
        _WRONG_SHARE,
        "((total @ total - x.double().square().sum()) / (len(x) * (len(x) - 1))).item()",
        "The vectors are not scaled to length 1: this is the mean dot product.",
    ),
    mistake(
        _WRONG_TOTAL,
        "total = (x.double() / (x.double().norm(dim=1, keepdim=True) + 1e-6)).sum(0)",
        "A small number is added to the lengths, so short vectors count less.",
    ),
    mistake(
        _WRONG_TOTAL,
        _WRONG_TOTAL.replace(", eps=0", ""),
        "Short vectors are divided by 1e-12 in place of their length. They are short, not zero: "
        "give `normalize` an eps of 0.",
    ),
    mistake(
        _WRONG_TOTAL,
        _WRONG_TOTAL.replace("chunk.double()", "chunk.float()"),
        "This is single precision throughout, which cannot hold such lengths. Double precision "
        "is wanted.",
    ),
    mistake(
        _WRONG_SHARE,
        "(total @ total / (len(x) * (len(x) - 1))).item()",
        "The cosines of the vectors with themselves are divided away but not subtracted.",
    ),
    mistake(
        _WRONG_SHARE,
        "((total @ total - 1) / (len(x) * (len(x) - 1))).item()",
        "There are N cosines of a vector with itself, and only one of them is subtracted.",
    ),
    mistake(
        _WRONG_TOTAL,
        "u = F.normalize(x.double(), dim=1, eps=0)",
        _WRONG_SHARE,
        "(((u @ u.T).abs().sum() - len(x)) / (len(x) * (len(x) - 1))).item()",
        "Absolute values are averaged, so opposite directions no longer cancel.",
    ),
    mistake(
        'return undefined("mean cosine", f"{len(x)} vectors")',
        "return 0.0",
        "Fewer than two vectors have no mean cosine: the answer is NaN.",
    ),
    mistake(
        "x = _without_zeros(x)",
        "x = _without_zeros(x)[:1000]",
        "Only the first 1,000 vectors are looked at. The mean is over all pairs.",
    ),
    mistake(
        "return " + _WRONG_SHARE,
        "u = F.normalize(x.double(), dim=1, eps=0)\n    return (u @ u.T).triu(1).mean().item()",
        "Each pair counts once above the line, and all N² cells count below it. There are half "
        "of N (N - 1) pairs.",
    ),
    mistake(
        "return " + _WRONG_SHARE,
        "return F.cosine_similarity(x.double(), x.double().mean(0, keepdim=True)).mean().item()",
        "Each vector is compared with the mean of all. It is to be compared with each other one.",
    ),
]


MUTANTS["geometry.alignment"] = [
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * safe_cosine(u, v).square().mean()).item()",
        "The cosines are squared, so opposite vectors pass for equal ones.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(2 - 2 * safe_cosine(u, v)[(u != 0).any(1) & (v != 0).any(1)].mean()).item()",
        "Pairs with a zero vector are left out. They have cosine 0.",
    ),
    mistake(
        _WRONG_ALIGN,
        "((2 - 2 * safe_cosine(u, v).mean()) / u.shape[1]).item()",
        "The mean runs over the coordinates too; the squares of one pair are added up.",
    ),
    mistake(
        _WRONG_ALIGN,
        "(F.normalize(u, dim=1) - F.normalize(v, dim=1)).square().sum(1).mean().item()",
        "A pair with a zero vector gets distance 1 or 0 this way; with cosine 0, as everywhere "
        "in this book, it is 2.",
    ),
    mistake(
        'return undefined("alignment", "0 pairs")',
        "return 0.0",
        "Without pairs there is no alignment: the answer is NaN, not the best value.",
    ),
    mistake(
        _WRONG_ALIGN,
        "((2 - 2 * safe_cosine(u, v)).sqrt().mean() ** 2).item()",
        "The distances are averaged before they are squared. The mean is one of squares.",
    ),
]


MUTANTS["geometry.uniformity"] = [
    mistake(
        "range(0, len(u) - 1, chunk)",
        "range(0, max(1, len(u) // chunk * chunk), chunk)",
        "The last block, which is not full, is lost.",
    ),
    mistake(
        _WRONG_LOG,
        "return (torch.stack(sums).logsumexp(0) - math.log(len(u) * (len(u) - 1))).item()",
        "Each pair is counted twice below, and once above.",
    ),
    mistake("x = _without_zeros(x)", "pass", "Zero rows are kept. They have no direction."),
    _wrong_pairs(
        "(-t * d2).exp().mean().log()",
        "The exponentials vanish for a large t, and the logarithm of 0 is minus infinity; "
        "logsumexp does not let that happen.",
    ),
    _wrong_pairs(
        "((-t * d2).logsumexp(0) - math.log(len(d2))).exp()", "The logarithm is missing at the end."
    ),
    _wrong_pairs(
        "(-t * d2 / 2).logsumexp(0) - math.log(len(d2))",
        "The squared distance is 2 - 2 cos; this is half of it.",
    ),
    _wrong_pairs(
        "(-2 * d2).logsumexp(0) - math.log(len(d2))", "t is always 2, whatever was asked for."
    ),
    mistake(
        _WRONG_UNIT,
        "u = F.normalize(x.double(), dim=1).to(torch.promote_types(x.dtype, torch.float32))",
        "Vectors of length 1e-15 are divided by 1e-12, not by their length: give `normalize` an "
        "eps of 0.",
    ),
    _wrong_pairs(
        "(-t * d2).logsumexp(0) - math.log(len(u) ** 2 / 2)",
        "The sum is divided by N² / 2; there are N (N - 1) / 2 pairs.",
    ),
    mistake(
        "x = _without_zeros(x)",
        "pass",
        _WRONG_UNIT,
        "u = F.normalize(x.double(), dim=1)",
        "Zero rows are counted; they have no direction and are to be left out.",
    ),
    mistake(
        _WRONG_SUMS,
        "sums = [_log_sum(u[i : i + chunk], u[i : i + chunk], t) for i in range(0, len(u) - "
        "1, chunk)]",
        "Pairs whose rows lie in different blocks are left out, so the value depends on `chunk`.",
    ),
    mistake(
        'return undefined("uniformity", f"{len(x)} vectors")',
        "return 0.0",
        "Fewer than two vectors have no uniformity: the answer is NaN.",
    ),
    mistake(
        "    " + _WRONG_SUMS,
        "    u = u[:512]\n    " + _WRONG_SUMS,
        "Only the first 512 vectors are looked at. All pairs count, block by block.",
    ),
    _wrong_pairs(
        "((-t * d2).exp().sum() / len(u) ** 2).log()",
        "The sum over the pairs is divided by N². There are half of N (N - 1) pairs.",
    ),
]


MUTANTS["geometry.isoscore"] = [
    mistake(
        _WRONG_GRAM,
        "covariance = x.double().T @ x.double() / len(x) - torch.outer(x.double().mean(0), "
        "x.double().mean(0))",
        "The covariance is the mean of the squares less the square of the mean. Far from 0 both "
        "are large and their difference is rounding.",
    ),
    mistake(
        _WRONG_GRAM,
        "covariance = torch.corrcoef(x.double().T).view(x.shape[1], -1)",
        "These are correlations: every axis is scaled to the same spread first.",
    ),
    mistake(
        _WRONG_PR,
        "p = torch.linalg.eigvalsh(covariance).clamp(min=1e-300) / covariance.trace()\n"
        "    ratio = (-(p * p.log()).sum()).exp()",
        "This is the exponential of an entropy. PR is a ratio of sums.",
    ),
    mistake(
        "(ratio - 1) / (D - 1)",
        "(ratio - 1) / (max(2, int(torch.linalg.matrix_rank(covariance))) - 1)",
        "The rank is taken for D: axes that nobody uses count as well.",
    ),
    mistake(
        _WRONG_PR,
        "ratio = covariance.trace() / covariance.square().sum().sqrt()",
        "The fraction is not squared.",
    ),
    mistake(
        "(ratio - 1) / (D - 1)",
        "(ratio - 1) / D",
        "A round cloud stays below 1: PR runs from 1 to D, a distance of D - 1.",
    ),
    mistake(
        "(ratio - 1) / (D - 1)",
        "(D - ratio) / (D - 1)",
        "Turned round: 1 should be the ball and 0 the line.",
    ),
]
