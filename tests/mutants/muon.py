"""Mutants of `minbert.exercise_cases.muon`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.muon import _WRONG_STEP, _WRONG_UNIT

MUTANTS = {}


MUTANTS["muon.orthogonalize"] = [
    mistake(
        "x = matrix.T if tall else matrix ",
        "x = (matrix.T if tall else matrix).float() ",
        "return x.T if tall else x",
        "return (x.T if tall else x).to(matrix.dtype)",
        "The products are made in single precision, whatever came in: faint directions drown in "
        "its rounding.",
    ),
    mistake(
        _WRONG_UNIT,
        "x = x / torch.linalg.matrix_norm(x, 2).clamp_min(1e-7)",
        "The matrix is divided by its longest stretch. That has to be found by taking it apart; "
        "divide by the root of the sum of all squares.",
    ),
    mistake(
        _WRONG_UNIT,
        "x = x / x.abs().max().clamp_min(1e-7)",
        "The matrix is divided by its largest number. Its stretches can still be above 1.",
    ),
    mistake(
        _WRONG_UNIT,
        "x = x / x.square().sum().clamp_min(1e-7)",
        "The matrix is divided by the square of its length: the root is missing.",
    ),
    mistake(
        _WRONG_STEP,
        "x = 3.4445 * x + (4.7750 * square + 2.0315 * square @ square) @ x",
        "The cube is added, where it has to be subtracted.",
    ),
    mistake(
        _WRONG_STEP,
        "x = 3.4445 * x + (-4.7750 * square + 2.0315 * square) @ x",
        "The last term has cubes as well; the fifth power needs X Xᵀ twice.",
    ),
    mistake(
        _WRONG_STEP,
        "x = 3.4445 * x + (-4.7750 * square + 2.0315 * square ** 2) @ x",
        "X Xᵀ is squared number by number, where it has to be multiplied with itself.",
    ),
    mistake(
        _WRONG_STEP,
        "x = x + (-4.7750 * square + 2.0315 * square @ square) @ x",
        "The first factor, 3.4445, is missing: small stretches do not grow.",
    ),
    mistake(
        _WRONG_STEP,
        _WRONG_STEP + "\n        x = x / x.norm().clamp_min(1e-7)",
        "The matrix is scaled again each time. Once, before the first, is enough.",
    ),
    mistake("range(times)", "range(times + 1)", "The polynomial is applied once too often."),
    mistake(
        "return x.T if tall else x",
        "x = x * max(1.0, len(matrix) / matrix.shape[1]) ** 0.5\n    return x.T if tall else x",
        "The result is stretched by √(A / B). That belongs to the rate of torch's Muon, and "
        "comes later.",
    ),
]
