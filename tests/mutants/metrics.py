"""Mutants of `minbert.exercise_cases.metrics`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.metrics import (
    _WRONG_AUC,
    _WRONG_CENTER,
    _WRONG_MEAN,
    _WRONG_R,
    _WRONG_RHO,
)

MUTANTS = {}


_WRONG_SCALE = (
    "x, y = x / np.abs(x).max(), y / np.abs(y).max()  # squares can neither overflow nor vanish"
)


MUTANTS["metrics.pearson"] = [
    mistake(
        _WRONG_R,
        "np.clip(x @ y / math.sqrt((x @ x) * (y @ y)), 0.0, 1.0)",
        "Negative correlations are cut off at 0.",
    ),
    mistake(
        _WRONG_CENTER,
        "x, y = x - x.mean(), y - y.mean()\n    return float(np.clip(x @ y / (x @ x), -1, 1))",
        "This is the slope of y over x. A correlation is divided by both spreads.",
    ),
    mistake(_WRONG_R, f"round({_WRONG_R}, 6)", "The result is rounded."),
    mistake(_WRONG_CENTER, "x = x - x.mean()", "The mean of one side only is subtracted."),
    mistake(
        _WRONG_SCALE,
        "",
        "Squares of tiny numbers vanish and those of huge ones overflow; divide each side by "
        "its largest deviation first.",
    ),
    mistake(
        "math.sqrt((x @ x) * (y @ y))",
        "((x @ x) * (y @ y) / len(x))",
        "The product is divided by both variances. Their roots belong there, the spreads.",
    ),
]


MUTANTS["metrics.ranks"] = [
    mistake(
        'as_vector(values, "values")',
        'as_vector(values, "values").round(8)',
        "Numbers that are close are taken for equal. Only equal ones share a rank.",
    ),
    mistake(
        'as_vector(values, "values")',
        'as_vector(values, "values").astype(np.float32)',
        "The numbers are rounded to single precision, or compared with a tolerance: different "
        "ones become equal.",
    ),
    mistake(
        _WRONG_MEAN,
        "np.sort((last - (counts - 1) / 2)[group])",
        "The ranks come in rising order. Each belongs to the place of its number.",
    ),
    mistake(
        'as_vector(values, "values")',
        'np.abs(as_vector(values, "values"))',
        "The sizes of the numbers are ranked. -4 is smaller than 1.",
    ),
    mistake(
        _WRONG_MEAN,
        "(last - counts / 2)[group]",
        "All ranks are half a rank too low: the mean of k ranks that end at r is r - (k - 1)/2.",
    ),
    mistake(
        "    last =",
        "    values.sort() if isinstance(values, list) else None\n    last =",
        "The caller's list is sorted. `sorted(values)` makes a new one.",
    ),
]


MUTANTS["metrics.spearman"] = [
    mistake(
        _WRONG_RHO,
        "float((np.sign(x[:, None] - x) * np.sign(y[:, None] - y)).sum() / (len(x) * (len(x) "
        "- 1)))",
        "This is Kendall's correlation, of pairs in order.",
    ),
    mistake(
        _WRONG_RHO,
        "correlation(average_ranks(x), average_ranks(y.round()))",
        "The labels are rounded, and different ones become equal.",
    ),
    mistake(
        "reason = _no_correlation(x, y)",
        'reason = _no_correlation(x, y) or "too few" * (len(x) < 3)',
        "Two items are refused. They have an order too.",
    ),
    mistake(_WRONG_RHO, "-" + _WRONG_RHO, "The sign is wrong: the same order gives -1."),
    mistake(
        _WRONG_RHO,
        "abs(" + _WRONG_RHO + ")",
        "The sign is lost: a reversed order counts like the right one.",
    ),
    mistake(
        "    reason =",
        "    labels.sort() if isinstance(labels, list) else None\n    reason =",
        "The caller's list of labels is sorted. `sorted(labels)` makes a new one.",
    ),
]


MUTANTS["metrics.auc"] = [
    mistake(
        _WRONG_AUC,
        "max(a := " + _WRONG_AUC + ", 1 - a)",
        "The larger of the two directions is taken. A score that is worse than chance is below "
        "one half.",
    ),
    mistake(
        _WRONG_AUC,
        "((x > 0) == y).mean()",
        "This is the accuracy at threshold 0. AUC needs no threshold.",
    ),
    mistake(
        _WRONG_AUC,
        'np.cumsum(y[np.argsort(-x, kind="stable")]) @ (1 - y[np.argsort(-x, kind="stable")]) '
        "/ (P * Q)",
        "Of equal scores the one that stands first in the file wins. A tie counts one half.",
    ),
    mistake(
        _WRONG_AUC,
        "(average_ranks(x)[y == 1].sum() - P * (P - 1) / 2) / (P * Q)",
        "Each positive counts itself as a win: 1 + 2 + ... + P is P(P + 1)/2.",
    ),
    mistake(
        "average_ranks(x)",
        "average_ranks(1 / (1 + np.exp(-x)))",
        "The scores go through a sigmoid first, which makes large ones equal. Only their order "
        "counts.",
    ),
    mistake(
        "average_ranks(x)",
        "average_ranks(x.astype(np.float32))",
        "The scores are rounded to single precision, and different ones become equal.",
    ),
    mistake(
        _WRONG_AUC,
        "2 * (" + _WRONG_AUC + ") - 1",
        "This is twice the chance, less 1. The chance itself was asked for: one half for a "
        "score that knows nothing.",
    ),
    mistake(
        "- P * (P + 1) / 2",
        "- Q * (Q + 1) / 2",
        "The ranks of P positives are added up, and what N negatives would have at least is "
        "taken off.",
    ),
]
