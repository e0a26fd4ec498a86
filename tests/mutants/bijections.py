"""Mutants of `minbert.exercise_cases.bijections`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.bijections import _WRONG_LOWER, _WRONG_UPPER

MUTANTS = {}


_WRONG_IMAGE = "return (x + self.shift) * s.exp(), s.sum().expand(len(x))"


MUTANTS["bijections.norm"] = [
    mistake(
        "s.sum().expand(len(x))",
        "s.exp().prod().expand(len(x))",
        "The determinant is returned, not its logarithm.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.exp().prod().log().expand(len(x))",
        "The scales are multiplied before the logarithm: of many columns the product is 0 or "
        "infinite in the machine. Logarithms add up.",
    ),
    mistake(
        "* s.exp(), s.sum()",
        "* s.detach().exp(), s.sum()",
        "The scale is detached in the image, so it feels only log |det|.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.exp().sum().expand(len(x))",
        "The scales are added up, not their logarithms.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.sum().expand(len(x)) * len(x)",
        "log |det| is multiplied by the number of rows; each row has its own.",
    ),
    mistake(
        "(x + self.shift)", "(x - self.shift)", "c is subtracted, but it is minus the mean already."
    ),
    mistake(
        "(x + self.shift) * s.exp()",
        "(x + self.shift) / s.exp()",
        "The columns are divided by exp(s): that is the way back.",
    ),
    mistake(
        "self._prepare(x)",
        "check_rows(x, self.width)",
        "A fresh norm does not start from its first batch in train mode.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.sum().detach().expand(len(x))",
        "log |det| is detached, so the scales do not feel it.",
    ),
    mistake(
        "    s = 3 * self.logs",
        '    if self.training or not hasattr(self, "kept"):\n'
        "        self.kept = 3 * self.logs\n"
        "    s = self.kept",
        "In eval mode the scale is kept from the first call. Weights may change in any mode.",
    ),
    mistake(
        _WRONG_IMAGE,
        "return s.sum().expand(len(x)), (x + self.shift) * s.exp()",
        "Image and log |det| have changed places: the image comes first.",
    ),
    mistake(
        "(x + self.shift) * s.exp()",
        "(x - x.mean(0)) / x.std(0, correction=0)",
        "The batch's own mean and spread are used, as in batch norm. c and s are weights.",
    ),
    mistake(
        "s.sum().expand(len(x))",
        "s.expand(len(x), -1)",
        "log |det| has a number for each column. They add up to one for each row.",
    ),
]


MUTANTS["bijections.unnorm"] = [
    mistake(
        "    return y * (-3 * self.logs)",
        '    if self.training or not hasattr(self, "kept"):\n'
        "        self.kept = -3 * self.logs\n"
        "    return y * self.kept",
        "In eval mode the scale is kept from the first call. Weights may change in any mode.",
    ),
]


MUTANTS["bijections.unshuffle"] = [
    mistake(
        "[:, self.order.argsort()]",
        "[:, self.order.argsort(descending=True)]",
        "The places are sorted from last to first.",
    ),
]


MUTANTS["bijections.linear"] = [
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.linalg.slogdet(self.weight).sign",
        "The sign of the determinant is returned, not the logarithm of its size.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.linalg.det(self.weight).log()",
        "The logarithm of a negative determinant is NaN; its absolute value was meant.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.linalg.det(self.weight).abs().log()",
        "The determinant is computed before its logarithm: of many columns it is 0 or infinite "
        "in the machine. `slogdet` adds logarithms up.",
    ),
    mistake(
        "self.log_s.sum()",
        "self.log_s.exp().prod().log()",
        "The factors are multiplied before the logarithm: of many columns the product is 0 or "
        "infinite in the machine. Logarithms add up.",
    ),
    mistake(
        "torch.linalg.slogdet(self.weight).logabsdet",
        "torch.linalg.slogdet(self.weight.detach()).logabsdet",
        "self.log_s.sum()",
        "self.log_s.detach().sum()",
        "log |det| is detached, so the weights do not feel it.",
    ),
    mistake(
        "self.log_s.sum()",
        "upper.diagonal().prod().log()",
        "The logarithm of a negative determinant is NaN; the signs have no part in log |det|.",
    ),
    mistake(
        "self.log_s.sum()",
        "self.log_s.exp().sum()",
        "The scales are added up, not their logarithms.",
    ),
    mistake(
        "self.log_s.sum()",
        "(self.sign * self.log_s).sum()",
        "A negative sign turns the logarithm over; the stretch does not care for the sign.",
    ),
    mistake(
        "x[:, self.order] @ lower @ upper",
        "(x @ lower @ upper)[:, self.order]",
        "The permutation comes last; in x P L U it comes first.",
    ),
    mistake(
        "x[:, self.order] @ lower @ upper",
        "x[:, self.order.argsort()] @ lower @ upper",
        "The permutation is applied backwards.",
    ),
    mistake(
        "logabsdet.expand(len(x))",
        "logabsdet.expand(len(x)) * self.width",
        "self.log_s.sum().expand(len(x))",
        "self.log_s.sum().expand(len(x)) * self.width",
        "log |det| is multiplied by the width, as if the matrix were applied once for each column.",
    ),
    mistake(
        "self.log_s.sum().expand",
        "torch.zeros_like(self.log_s).sum().expand",
        "log |det| of the lu form is 0, as if its diagonal held ones.",
    ),
    mistake(
        "        return x @ self.weight, torch.linalg.slogdet(self.weight).logabsdet",
        '        if self.training or not hasattr(self, "kept"):\n'
        "            self.kept = torch.linalg.slogdet(self.weight).logabsdet\n"
        "        return x @ self.weight, self.kept",
        "In eval mode log |det| is kept from the first call. Weights may change in any mode.",
    ),
]


MUTANTS["bijections.solve"] = [
    mistake(_WRONG_UPPER, "x = y", "U is not undone."),
    mistake(_WRONG_LOWER, "x = x", "L is not undone."),
    mistake(
        "y, dtype = y.double(), y.dtype",
        "dtype = y.dtype",
        "self.weight.double()",
        "self.weight",
        "(triangle.double() for triangle in self.lower_upper())",
        "self.lower_upper()",
        "The equations are solved in the precision of y; a nearly flat matrix needs double.",
    ),
    mistake(
        "(triangle.double() for triangle in self.lower_upper())",
        "self.lower_upper()\n    y = y.to(upper.dtype)",
        "The triangles are solved in their own precision; steep ones need double.",
    ),
    mistake(
        "self.weight.double()",
        "self.weight.detach().double()",
        "(triangle.double() for",
        "(triangle.detach().double() for",
        "The weights are detached, so a loss behind the inverse never reaches them.",
    ),
    mistake(
        "        return torch.linalg.solve(self.weight.double(),",
        '        if self.training or not hasattr(self, "kept"):\n'
        "            self.kept = self.weight.double().clone()\n"
        "        return torch.linalg.solve(self.kept,",
        "In eval mode the matrix is kept from the first call. Weights may change in any mode.",
    ),
]
