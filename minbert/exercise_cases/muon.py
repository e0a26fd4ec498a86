"""Exercise cases of chapter 29: orthogonalization by the Newton-Schulz iteration."""

import torch

from minbert.course.check_runner import ALIKE, COLUMNS, ROWS, Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- muon.orthogonalize
#
# Wide, tall and square matrices, one row, one column, rank one, large values, zeros. Zero, one
# and three iterations instead of five. The published code adds 1e-7 to the norm, which is as
# good, so there is a tolerance. With twelve iterations a small singular value shows precision
# that was lost on the way.


def orthogonal_cases(generator):
    def m(*shape):
        return fixed(generator, *shape)

    def case(label, matrix, **more):
        return Case(label, {"matrix": matrix, **more})

    return [
        case("wider than tall", m(4, 6)),
        case("taller than wide", m(7, 3)),
        case("square", m(5, 5)),
        case("one row", m(1, 6)),
        case("one column", m(6, 1)),
        case("one direction only", m(4, 1) @ m(1, 5)),
        case("large numbers", 1e4 * m(3, 5)),
        case("small numbers", 0.1 * m(3, 5)),
        case("zeros", torch.zeros(3, 4, dtype=torch.float64)),
        case("three times", m(4, 6), times=3),
        case("once, taller than wide", m(6, 4), times=1),
        case("no time", m(3, 4), times=0),
        case(
            "one direction a million times shorter, twelve times",
            m(4, 1) @ m(1, 6) + 1e-6 * m(4, 1) @ m(1, 6),
            times=12,
        ),  # lost in single precision
        case("single precision", m(4, 6).float()),
    ]


def run_orthogonal(orthogonalize, inputs):
    return {"output": orthogonalize(**inputs)}


TRIALS["muon.orthogonalize"] = Trial(
    orthogonal_cases,
    run_orthogonal,
    rtol=1e-5,
    atol=1e-6,
    promise="as the reference",
    derive=(ALIKE, ROWS, COLUMNS),
    hints=(
        (
            "Which product of X and its transpose has the same directions and cubed stretches? "
            "And which the fifth powers?"
        ),
        (
            "X Xᵀ X has the cubes, and X Xᵀ X Xᵀ X the fifth powers. First make sure that no "
            "stretch is above 1: the root of the sum of all squares is at least the "
            "longest stretch."
        ),
        (
            "x = matrix / its norm, a norm of 0 aside. Then `times` over, with s = x @ x.T: the "
            "new x is 3.4445 x - 4.775 s @ x + 2.0315 s @ s @ x. Transposing a tall "
            "matrix before and after saves work and changes nothing."
        ),
    ),
)


_WRONG_UNIT = "x = x / x.norm().clamp_min(1e-7)"
_WRONG_STEP = "x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x"

MISTAKES["muon.orthogonalize"] = [
    mistake(
        "return x.T if tall else x",
        "U, _, V = torch.linalg.svd(matrix, full_matrices=False)\n"
        "    return U @ V if matrix.any() else matrix",
        "The singular values are made exactly 1 by a singular value decomposition. The "
        "Newton-Schulz iteration is expected, which only brings them close to 1.",
    ),
    mistake(
        _WRONG_UNIT,
        "pass",
        "The matrix is not divided by its norm, so singular values above 1 diverge.",
    ),
    mistake(
        _WRONG_UNIT,
        "x = x / x.norm(dim=1, keepdim=True).clamp_min(1e-7)",
        "Each row is divided by its own norm. The whole matrix is divided by one norm.",
    ),
    mistake(
        _WRONG_UNIT,
        "x = x / x.norm()",
        "A zero matrix is divided by 0 and becomes NaN. It should stay zero.",
    ),
    mistake(
        _WRONG_STEP,
        "x = 3.4445 * x - 4.7750 * x ** 3 + 2.0315 * x ** 5",
        "The powers are taken elementwise. The iteration needs matrix products of X and its "
        "transpose.",
    ),
    mistake(
        _WRONG_STEP,
        "x = 3.4445 * x + (2.0315 * square - 4.7750 * square @ square) @ x",
        "The coefficients of the cubic and the quintic term are swapped.",
    ),
    mistake("range(times)", "range(5)", "`times` is not used: there are always five iterations."),
    mistake(
        "return x.T if tall else x",
        "return x",
        "The result of a tall matrix is not transposed back.",
    ),
]

VARIANTS["muon.orthogonalize"] = [
    """
def orthogonalize(matrix, times=5):
    x = matrix / (matrix.norm() + 1e-7)   # as released
    for _ in range(times):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x
""",
    """
def orthogonalize(matrix, times=5):
    x = matrix / (matrix.square().sum().sqrt() + 1e-12)
    for _ in range(times):
        cube = x @ x.mT @ x
        x = 3.4445 * x - 4.775 * cube + 2.0315 * x @ x.mT @ cube
    return x
""",
    """
def orthogonalize(matrix, times=5):
    length = torch.linalg.matrix_norm(matrix)
    x = matrix / length if length > 0 else matrix.clone()
    for _ in range(times):
        inner = x.T @ x
        x = x @ (
            3.4445 * torch.eye(len(inner), dtype=x.dtype) - 4.775 * inner + 2.0315 * inner @ inner
        )
    return x
""",
    """
def orthogonalize(matrix, times=5):
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm().clamp_min(1e-7)
    for _ in range(times):
        s = s * (3.4445 - 4.775 * s**2 + 2.0315 * s**4)
    return u @ torch.diag(s) @ v
""",
]
