"""Mutants of `minbert.exercise_cases.couplings`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.couplings import _WRONG_BACK, _WRONG_CAT, _WRONG_LOG, _WRONG_MOVED

MUTANTS = {}


MUTANTS["bijections.shift"] = [
    mistake(
        "b + self.net(a)",
        "b * self.net(a)",
        "b is multiplied by m(a), which can be 0 and then cannot be undone.",
    ),
    mistake(
        "x.new_zeros(len(x))",
        "x.new_ones(len(x))",
        "The determinant 1 is returned where its logarithm, 0, was asked for.",
    ),
    mistake(_WRONG_CAT, "b + self.net(a)", "The half that stays is missing from the result."),
    mistake(
        "return " + _WRONG_CAT + ", x.new_zeros(len(x))",
        "return x.new_zeros(len(x)), " + _WRONG_CAT,
        "Image and log |det| have changed places: the image comes first.",
    ),
    mistake(
        "x.new_zeros(len(x))",
        "torch.zeros_like(x)",
        "log |det| has a number for each column. One for each row was asked for.",
    ),
]


MUTANTS["bijections.affine"] = [
    mistake(
        _WRONG_LOG,
        "torch.sigmoid(r + 2).prod(1)",
        "The determinant is returned, not its logarithm.",
    ),
    mistake(
        _WRONG_LOG,
        "torch.sigmoid(r + 2).log().sum(1)",
        "The logarithm is taken of a sigmoid that has become 0: log |det| is minus infinity.",
    ),
    mistake(_WRONG_LOG, "(r + 2).sum(1)", "r + 2 is added up as if the scale were exp(r + 2)."),
    mistake(
        _WRONG_LOG,
        "F.logsigmoid(r).sum(1)",
        "The 2 is missing in log |det|, so it belongs to another map than the image.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) * torch.sigmoid(r)",
        _WRONG_LOG,
        "F.logsigmoid(r).sum(1)",
        "The 2 is missing: a fresh coupling halves the columns.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) / torch.sigmoid(r + 2)",
        "The columns are divided by the scale: stretched, where log |det| says shrunk.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) * torch.exp(r + 2)",
        _WRONG_LOG,
        "(r + 2).sum(1)",
        "The scale is an exponential and can grow without end; it should be a sigmoid.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) * torch.tanh(r + 2)",
        _WRONG_LOG,
        "torch.tanh(r + 2).abs().log().sum(1)",
        "The scale is a tanh, which can be 0 or negative; it should be a sigmoid.",
    ),
    mistake(
        "self.net(a).chunk(2, dim=1)",
        "(self.net(a)[:, ::2], self.net(a)[:, 1::2])",
        "Shift and scale are taken from every other column; the first half of m(a) is t, the "
        "second r.",
    ),
    mistake(
        "torch.cat([a, " + _WRONG_MOVED + "], dim=1)",
        "torch.cat([" + _WRONG_MOVED + ", a], dim=1)",
        "The halves come back in the other order.",
    ),
    mistake(
        _WRONG_LOG,
        "F.logsigmoid(r + 2).sum(1).detach()",
        "log |det| is detached, so the net does not feel it.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) * r.exp()",
        _WRONG_LOG,
        "r.sum(1)",
        "The scale is e to the r and can grow without end; it should be the sigmoid of r + 2.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b + t) * (torch.sigmoid(r) + 2)",
        _WRONG_LOG,
        "(torch.sigmoid(r) + 2).log().sum(1)",
        "The 2 is added to the sigmoid. It belongs inside, to r.",
    ),
    mistake(
        _WRONG_MOVED,
        "(b - t) * torch.sigmoid(r + 2)",
        "t is subtracted. On the way there it is added, before the columns shrink.",
    ),
    mistake(
        _WRONG_MOVED, "b * torch.sigmoid(r + 2)", "t is not used: b is shrunk, but not shifted."
    ),
    mistake(
        _WRONG_LOG,
        "torch.sigmoid(r + 2).sum(1).log()",
        "The logarithm is taken of the sum of the scales. Determinants multiply, so logarithms "
        "add up.",
    ),
]


MUTANTS["bijections.unaffine"] = [
    mistake(
        _WRONG_BACK,
        "b / torch.sigmoid(r + 2).clamp_min(1e-3) - t",
        "Small scales are cut off, so the way back is not that of the way there.",
    ),
    mistake(
        _WRONG_BACK,
        "b / (torch.sigmoid(r) + 2) - t",
        "The 2 is added to the sigmoid. It belongs inside, to r.",
    ),
    mistake(
        _WRONG_BACK,
        "(b - t) * torch.sigmoid(r + 2)",
        "The shift is taken back, and then the columns are shrunk once more instead of stretched.",
    ),
]
