"""Exercise cases of chapter 12: Pearson's and Spearman's correlation, ranks, and AUC."""

import math
import warnings

import torch

from minbert.course.check_runner import CHANGED, Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- metrics.pearson
#
# A large offset, which cancels; numbers whose squares overflow or underflow; two items; a perfect
# line, where rounding would exceed 1.


def _number(value, like=torch.float64):
    return torch.tensor(
        float(value), dtype=torch.float32 if like == torch.float32 else torch.float64
    )


def run_metric(metric, inputs):
    """Call with arrays, tensors or lists as the case says, and listen for the warning that
    belongs to NaN."""
    convert = {"list": lambda x: x.tolist(), "tensor": lambda x: x, "array": lambda x: x.numpy()}[
        inputs.get("as", "array")
    ]
    given = {name: convert(inputs[name]) for name in ("x", "y") if name in inputs}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = metric(*given.values())
    changed = {
        CHANGED.format(name): torch.tensor(True)
        for name, x in given.items()
        if isinstance(x, list) and x != inputs[name].tolist()
    }
    if "y" not in inputs:
        return {"ranks": torch.as_tensor(value, dtype=torch.float64), **changed}
    return {
        "value": _number(value),
        "beyond 1": torch.tensor(abs(float(value)) > 1),
        "NaN without a warning": torch.tensor(math.isnan(value) and not caught),
        **changed,
    }


def pearson_cases(generator):
    x, noise = fixed(generator, 2, 11)
    y = x + noise
    squares = torch.arange(11, dtype=torch.float64) ** 2 / 7
    line = torch.arange(10, dtype=torch.float64) / 3 + torch.rand(
        1, generator=generator, dtype=torch.float64
    )
    return [
        Case("eleven points", {"x": x, "y": y}),
        Case("opposite directions", {"x": x, "y": 0.3 * noise - 2 * x}),
        Case("far from 0", {"x": x + 1000, "y": y - 500}),
        Case("two points", {"x": x[:2], "y": y[:2]}),
        Case("a straight line", {"x": line, "y": 0.1 * line + 7}),
        Case("a falling line", {"x": line, "y": -3 * line}),
        Case("a line whose rounding goes up", {"x": squares, "y": 3.3 * squares + 1}),
        Case("three points, the same", {"x": squares[:3], "y": 0.1 * squares[:3] + 1}),
        Case("tiny and huge numbers", {"x": 1e-200 * x, "y": 1e200 * y}),
        Case("unlike scales", {"x": 1e-3 * x, "y": 40 * y}),
    ]


TRIALS["metrics.pearson"] = Trial(
    pearson_cases,
    run_metric,
    rtol=1e-9,
    atol=1e-12,
    forbidden=("scipy.stats.pearsonr", "np.corrcoef", "numpy.corrcoef", "torch.corrcoef"),
    hints=(
        "Which three sums does the formula have, and what is subtracted before?",
        (
            "Dividing a side by any number leaves r alone. So divide each by its largest "
            "deviation first: then no square is too large or too small."
        ),
        (
            "x, y = x - x.mean(), y - y.mean(); divide each by np.abs(...).max(); then x @ y / "
            "sqrt((x @ x) * (y @ y)), clipped to [-1, 1]."
        ),
    ),
)


_WRONG_CENTER = "x, y = x - x.mean(), y - y.mean()"
_WRONG_R = "np.clip(x @ y / math.sqrt((x @ x) * (y @ y)), -1.0, 1.0)"

MISTAKES["metrics.pearson"] = [
    mistake(_WRONG_CENTER, "", "The means are not subtracted: this is the cosine similarity."),
    mistake(
        _WRONG_R,
        "np.clip(x @ y / ((x @ x) * (y @ y)), -1.0, 1.0)",
        "The square root in the denominator is missing.",
    ),
    mistake(
        _WRONG_R, "x @ y / len(x)", "This is the covariance. Divide by both standard deviations."
    ),
    mistake(
        _WRONG_R,
        "np.clip(x @ y / math.sqrt((x @ x) * (y @ y)) * (len(x) - 1) / len(x), -1.0, 1.0)",
        "The covariance is divided by N and the variances by N - 1, so even a perfect "
        "correlation is below 1.",
    ),
    mistake(
        _WRONG_R,
        "np.clip(x @ y / (x @ x), -1.0, 1.0)",
        "This is the slope of the regression line. Divide by both standard deviations.",
    ),
    mistake(
        _WRONG_R,
        "np.clip((x @ y) ** 2 / ((x @ x) * (y @ y)), -1.0, 1.0)",
        "The squared correlation is returned, without its sign.",
    ),
    mistake(
        _WRONG_R,
        "np.clip(abs(x @ y) / math.sqrt((x @ x) * (y @ y)), -1.0, 1.0)",
        "The absolute value is returned, so negative correlations look positive.",
    ),
    mistake(
        _WRONG_R,
        "x @ y / math.sqrt((x @ x) * (y @ y))",
        "Rounding errors can give values above 1. Clip the result to [-1, 1].",
    ),
]

VARIANTS["metrics.pearson"] = [
    """
def correlation(x, y):
    total = 0.0
    units = []
    for side in (x, y):
        side = side - np.mean(side)
        side = side / np.max(np.abs(side))
        units.append(side / np.linalg.norm(side))
    for a, b in zip(*units):
        total += a * b
    return max(-1.0, min(1.0, total))
""",
    """
def correlation(x, y):
    x, y = x / np.abs(x - x.mean()).max(), y / np.abs(y - y.mean()).max()
    return min(1.0, max(-1.0, np.corrcoef(x, y)[0, 1]))
""",
]


# ---- metrics.ranks
#
# Ties of two, of three, of all; negative numbers; numbers that differ in the twelfth digit and
# are no ties; lists and tensors as well as arrays.


def ranks_cases(generator):
    ties = torch.randint(-4, 4, (30,), generator=generator).double()
    close = torch.tensor([1.0, 1.0 + 1e-12, 1.0, 1.0 - 1e-12, -3.0], dtype=torch.float64)
    return [
        Case("by hand: 3, 1, 3, 5", {"x": torch.tensor([3.0, 1.0, 3.0, 5.0], dtype=torch.float64)}),
        Case("no ties", {"x": fixed(generator, 13)}),
        Case("many ties", {"x": ties}),
        Case("all equal", {"x": torch.full((5,), 2.5, dtype=torch.float64)}),
        Case("one number", {"x": ties[:1]}),
        Case("close but not equal", {"x": close}),
        Case("equal in their first seven digits", {"x": 1 + 2e-8 * ties.sign()}),
        Case("a list", {"x": ties[:9], "as": "list"}),
        Case("a tensor of whole numbers", {"x": ties[:12].long(), "as": "tensor"}),
        Case("falling", {"x": -torch.arange(6, dtype=torch.float64)}),
    ]


TRIALS["metrics.ranks"] = Trial(
    ranks_cases,
    run_metric,
    forbidden=("scipy.stats.rankdata",),
    hints=(
        (
            "A group of equal numbers occupies some ranks in a row. What is the mean of a row of "
            "whole numbers?"
        ),
        (
            "np.unique(values, return_inverse=True, return_counts=True) gives each number's "
            "group, and the size of each group. Sizes added up give the "
            "last rank of each group."
        ),
        (
            "last = counts.cumsum(); the mean rank of a group is last - (counts - 1) / 2; index "
            "it with the inverse."
        ),
    ),
)


_WRONG_MEAN = "(last - (counts - 1) / 2)[group]"

MISTAKES["metrics.ranks"] = [
    mistake(
        _WRONG_MEAN,
        "(last - (counts - 1) // 2)[group].astype(float)",
        "The average rank of tied values is truncated to an integer.",
    ),
    mistake(
        _WRONG_MEAN,
        "last[group].astype(float)",
        "Tied values get the highest rank of their group. They share the average rank.",
    ),
    mistake(
        _WRONG_MEAN,
        "(last - (counts - 1))[group].astype(float)",
        "Tied values get the lowest rank of their group. They share the average rank.",
    ),
    mistake(
        _WRONG_MEAN,
        "(group + 1).astype(float)",
        "These are dense ranks: after a tie the next rank should skip the ones that were used up.",
    ),
    mistake(
        _WRONG_MEAN,
        "(last - (counts - 1) / 2)[group] - 1",
        "The ranks start at 0. The smallest value has rank 1.",
    ),
    mistake(
        _WRONG_MEAN,
        "len(group) + 1 - (last - (counts - 1) / 2)[group]",
        "The ranks are reversed: the smallest value has rank 1.",
    ),
    mistake(
        _WRONG_MEAN,
        'np.argsort(np.argsort(as_vector(values, "values"), kind="stable")) + 1.0',
        "Ties are broken by position. Tied values share their average rank.",
    ),
    mistake(
        _WRONG_MEAN,
        'np.argsort(as_vector(values, "values"), kind="stable") + 1.0',
        "`argsort` returns the indices that sort the values, not the rank of each value.",
    ),
]

VARIANTS["metrics.ranks"] = [
    """
def average_ranks(values):
    x = as_vector(values, "values")
    return (x[:, None] > x).sum(1) + ((x[:, None] == x).sum(1) + 1) / 2
""",
    """
def average_ranks(values):
    x = np.array([float(v) for v in values])
    order = np.sort(x)
    return 0.5 * (np.searchsorted(order, x, "left") + 1 + np.searchsorted(order, x, "right"))
""",
]


# ---- metrics.spearman
#
# A monotonic curve, which has a perfect rank correlation; ties on both sides, where the formula
# with squared differences fails; constants and single items, where the value is undefined.


def spearman_cases(generator):
    x, noise = fixed(generator, 2, 15)
    ties = torch.randint(0, 4, (2, 15), generator=generator).double()
    return [
        Case("without ties", {"x": x, "y": x + noise}),
        Case("a bent curve", {"x": x, "y": (3 * x).exp()}),
        Case("falling", {"x": x, "y": -(x**3)}),
        Case("ties on both sides", {"x": ties[0], "y": ties[1]}),
        Case("ties on one side", {"x": x, "y": ties[1]}),
        Case("lists", {"x": x[:6], "y": noise[:6], "as": "list"}),
        Case("constant predictions", {"x": ties[0] * 0 + 3, "y": x}),
        Case("constant labels", {"x": x, "y": ties[0] * 0}),
        Case("one item", {"x": x[:1], "y": x[:1]}),
        Case("two items", {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([5.0, 3.0])}),
    ]


TRIALS["metrics.spearman"] = Trial(
    spearman_cases,
    run_metric,
    forbidden=("scipy.stats.spearmanr", "scipy.stats.rankdata"),
    hints=(
        "Only the order counts. What stands in the place of each number?",
        (
            "Both sides are replaced by their ranks, and the ranks are correlated linearly. A "
            "side that does not vary has no order: the answer is NaN."
        ),
        (
            "reason = _no_correlation(x, y); if there is one, return "
            'undefined("Spearman", reason); else correlation(average_ranks(x), '
            "average_ranks(y))."
        ),
    ),
)


_WRONG_RHO = "correlation(average_ranks(x), average_ranks(y))"

MISTAKES["metrics.spearman"] = [
    mistake(
        _WRONG_RHO,
        "correlation(x, y)",
        "This is Pearson's correlation of the values. Spearman's is the correlation of their "
        "ranks.",
    ),
    mistake(
        _WRONG_RHO,
        "correlation(average_ranks(x), y)",
        "Only the predictions are ranked. Rank both sides.",
    ),
    mistake(
        _WRONG_RHO,
        "correlation(x, average_ranks(y))",
        "Only the labels are ranked. Rank both sides.",
    ),
    mistake(
        _WRONG_RHO,
        "correlation(x.argsort().argsort() * 1.0, y.argsort().argsort() * 1.0)",
        "Ties are broken by position. Tied values share their average rank.",
    ),
    mistake(
        _WRONG_RHO,
        "correlation(x.argsort() * 1.0, y.argsort() * 1.0)",
        "`argsort` returns the indices that sort the values, not the rank of each value.",
    ),
    mistake(
        _WRONG_RHO,
        "1 - 6 * ((average_ranks(x) - average_ranks(y)) ** 2).sum() / (len(x) * (len(x) ** 2 - 1))",
        "The formula with squared rank differences is only valid without ties.",
    ),
    mistake(
        'return undefined("Spearman", reason)',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
    mistake(
        'return undefined("Spearman", reason)',
        "return 0.0",
        "A constant input has no correlation: the result should be NaN. A 0 would enter "
        "averages unnoticed.",
    ),
]

VARIANTS["metrics.spearman"] = [
    """
def spearman(predictions, labels):
    ranks = []
    for side in as_vectors(predictions, labels):
        ranks.append(np.array([(side < a).sum() + (side == a).sum() / 2 for a in side]))
        if len(side) < 2 or len(set(side)) == 1:
            return undefined("Spearman's coefficient", "one side has no order")
    a, b = (r - r.mean() for r in ranks)
    return float(np.clip((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), -1, 1))
""",
    """
def spearman(predictions, labels):
    sides = [average_ranks(side) for side in (predictions, labels)]
    if len(sides[0]) < 2 or min(np.ptp(side) for side in sides) == 0:
        warnings.warn("no order to compare", RuntimeWarning)
        return math.nan
    return pearson(*sides)
""",
]


# ---- metrics.auc
#
# Ties within a class and across classes, scores that a sigmoid or single precision would make
# equal, one score for all, a perfect and a reversed order, few positives among many, boolean
# labels, a single class.


def auc_cases(generator):
    y = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    x = fixed(generator, 12) + 0.7 * y
    ties = torch.randint(0, 4, (12,), generator=generator).double()
    return [
        Case("no ties", {"x": x, "y": y}),
        Case("many ties", {"x": ties, "y": y}),
        Case("one score for all", {"x": 0 * x, "y": y}),
        Case("perfect", {"x": y + 0.01 * x, "y": y}),
        Case("reversed", {"x": 0.01 * x - y, "y": y}),
        Case("truth values", {"x": ties, "y": y == 1}),
        Case("lists", {"x": ties, "y": y, "as": "list"}),
        Case("scores above 40", {"x": 40 + x.abs(), "y": y}),
        Case("equal in their first ten digits", {"x": 1 + 1e-12 * x, "y": y}),
        Case("negative scores", {"x": ties - 9, "y": y}),
        Case("positives alone", {"x": x[:3], "y": torch.ones(3)}),
        Case("negatives alone", {"x": x[:3], "y": torch.zeros(3)}),
    ]


TRIALS["metrics.auc"] = Trial(
    auc_cases,
    run_metric,
    forbidden=("sklearn.metrics.roc_auc_score", "scipy.stats.mannwhitneyu"),
    hints=(
        (
            "The rank of a positive counts what lies below it: negatives, which are wins, and "
            "other positives, which are not."
        ),
        (
            "Add up average_ranks(x) of the positives, subtract 1 + 2 + ... + P, and divide by "
            "the number of pairs."
        ),
        (
            "(average_ranks(x)[y == 1].sum() - P * (P + 1) / 2) / (P * Q), with P = (y == "
            "1).sum() and Q = (y == 0).sum(); NaN if P or Q is 0."
        ),
    ),
)


_WRONG_AUC = "(average_ranks(x)[y == 1].sum() - P * (P + 1) / 2) / (P * Q)"

MISTAKES["metrics.auc"] = [
    mistake(
        _WRONG_AUC,
        "average_ranks(x)[y == 1].sum() / (P * Q)",
        "The ranks also count the positives below each positive. Subtract P (P + 1) / 2.",
    ),
    mistake(
        _WRONG_AUC,
        "(average_ranks(x)[y == 1].sum() - P * (P + 1) / 2) / (P * (P + Q))",
        "The number of pairs of a positive and a negative is P Q, not P (P + Q).",
    ),
    mistake(
        _WRONG_AUC,
        "(average_ranks(x)[y == 0].sum() - Q * (Q + 1) / 2) / (P * Q)",
        "The negatives are counted: this is 1 - AUC.",
    ),
    mistake(
        _WRONG_AUC,
        "(x[y == 1][:, None] > x[y == 0]).mean()",
        "Ties count as lost. They count one half.",
    ),
    mistake(
        _WRONG_AUC,
        "(x[y == 1][:, None] >= x[y == 0]).mean()",
        "Ties count as won. They count one half.",
    ),
    mistake(
        _WRONG_AUC,
        "((x > 0.5) == y).mean()",
        "This is the accuracy at threshold 0.5. AUC has no threshold.",
    ),
    mistake(
        'return undefined("AUC", f"{P} positives and {Q} negatives")',
        "return math.nan",
        "NaN is returned without a warning. Use `undefined`, which returns NaN and warns.",
    ),
    mistake(
        'return undefined("AUC", f"{P} positives and {Q} negatives")',
        "return 0.5",
        "With a single class there is no pair to compare: the result should be NaN, not 0.5.",
    ),
]

VARIANTS["metrics.auc"] = [
    """
def auc(scores, labels):
    x, y = as_vectors(scores, labels)
    positive, negative = x[y == 1], x[y == 0]
    if not len(positive) or not len(negative):
        return undefined("AUC", "one class only")
    return float((np.sign(positive[:, None] - negative) / 2 + 0.5).mean())
""",
    """
def auc(scores, labels):
    wins = pairs = 0
    for s, y in zip(scores, labels):
        for other, z in zip(scores, labels):
            if y == 1 and z == 0:
                pairs += 1
                wins += float(s > other) + float(s == other) / 2
    return wins / pairs if pairs else undefined("AUC", "no pairs")
""",
]
