"""The diagrams of chapter 15: whitening in three steps, and three corrections of one form."""

from math import sqrt

from drawing import BODY, SMALL, Drawing, box

POINTS = ((9, 5), (7, 7), (1, 1), (3, -1))  # the example by hand; their mean is (5, 3)
COLOURS = ("query", "key", "value", "weight")


def plane(d, x0, y0, unit, low, high, points, words, shape, mean=None):
    """Draw coordinate axes with the origin at (x0, y0), four points, and a caption below."""
    left, right = x0 + unit * low[0], x0 + unit * high[0]
    bottom, top = y0 - unit * low[1], y0 - unit * high[1]
    d.path(f"M{left:g},{y0:g} L{right:g},{y0:g}", "line", 1.6)
    d.path(f"M{x0:g},{bottom:g} L{x0:g},{top:g}", "line", 1.6)
    if mean:
        x, y = x0 + unit * mean[0], y0 - unit * mean[1]
        d.path(f"M{x - 6:g},{y - 6:g} L{x + 6:g},{y + 6:g}", "ink", 2.4)
        d.path(f"M{x - 6:g},{y + 6:g} L{x + 6:g},{y - 6:g}", "ink", 2.4)
    for (a, b), colour in zip(points, COLOURS):
        d.dot(x0 + unit * a, y0 - unit * b, 7.5, colour)
    a, b = points[0]
    label = f"({a:.3g}, {b:.3g})"
    d.text(x0 + unit * a, y0 - unit * b - 14, label, COLOURS[0], SMALL, weight=600)
    middle = (left + right) / 2
    d.text(middle, bottom + 30, words, "ink", SMALL, weight=600)
    d.text(middle, bottom + 52, shape, "muted", SMALL)


def whitening_steps():
    """Show four points as encoded, centered, rotated and rescaled."""
    d = Drawing(
        640,
        "Whitening in three steps",
        "Four panels with the same four points. As encoded, they lie around the mean (5, 3). After "
        "subtracting the mean they lie around the origin, along a diagonal. After the rotation to "
        "the eigenvectors they are stretched along the first axis, with standard deviations 4.24 "
        "and 1.41. After division by the standard deviations they are the corners of a square.",
    )
    centered = [(a - 5, b - 3) for a, b in POINTS]
    rotated = [((a + b) / sqrt(2), (a - b) / sqrt(2)) for a, b in centered]
    rescaled = [(a / sqrt(18), b / sqrt(2)) for a, b in rotated]
    plane(
        d, 62, 196, 22, (-1.4, -1.6), (10, 7.6), POINTS,
        "as encoded: u", "mean μ = (5, 3), marked ×", (5, 3),
    )  # fmt: skip
    plane(
        d, 490, 130, 20, (-5.6, -4.9), (5.6, 4.9), centered,
        "centered: u − μ", "variances 10 and 10, covariance 8",
    )  # fmt: skip
    plane(
        d, 156, 452, 20, (-5.6, -4.2), (5.6, 4.2), rotated,
        "rotated: (u − μ) V", "variances 18 and 2, covariance 0",
    )  # fmt: skip
    plane(
        d, 490, 452, 58, (-1.7, -1.45), (1.7, 1.45), rescaled,
        "rescaled: (u − μ) V Λ^(−1/2)", "variances 1 and 1, covariance 0",
    )  # fmt: skip
    d.arrow(304, 120, 356, 120, "muted", 2.6)
    d.text(330, 106, "− μ", "ink", BODY, weight=600)
    d.arrow(368, 306, 316, 352, "muted", 2.6)
    d.text(364, 346, "V", "ink", BODY, "start", weight=600)
    d.arrow(290, 452, 366, 452, "muted", 2.6)
    d.text(328, 438, "Λ^(−1/2)", "ink", SMALL, weight=600)
    d.text(20, 622, "All shapes are (N, D), here (4, 2).", "muted", SMALL, "start")
    return d


def grid(d, x, y, cells, stroke, size=15):
    """Draw a small matrix whose cells are shaded by values between 0 and 1."""
    d.matrix(x, y, len(cells), len(cells[0]), size, "cell", stroke, cells)


def three_corrections():
    """Show the affine map that all corrections share, and the three matrices."""
    d = Drawing(
        432,
        "Three corrections of one form",
        "An embedding u of shape (N, D) minus the mean mu of shape (D) is multiplied by a matrix M "
        "of shape (D, K) and becomes z of shape (N, K). For standardization M is the diagonal "
        "matrix S. For nulling it is I minus V V transposed. For whitening it is V times Lambda "
        "to the power minus one half, whose first k columns may be kept.",
    )
    y = 58
    box(d, 84, y, 128, "u", "(N, D)", "query-light", "query")
    box(d, 250, y, 112, "− μ", "(D)", "cell", "muted")
    box(d, 410, y, 112, "· M", "(D, K)", "weight-light", "weight")
    box(d, 562, y, 116, "z", "(N, K)", "value-light", "value")
    d.arrow(148, y, 192, y)
    d.arrow(306, y, 352, y)
    d.arrow(466, y, 502, y)
    d.dashed("M410,86 L410,122", "weight", 2.2)
    d.dashed("M104,122 L536,122", "weight", 2.2)
    titles = (
        ("standardization", "M = S", "(D, D)", "rescales dimensions"),
        ("nulling k components", "M = I − Vₖ Vₖᵀ", "(D, D)", "projects, rank D − k"),
        ("whitening", "M = V Λ^(−1/2)", "(D, K)", "new basis, rescaled"),
    )
    diagonal = [[(0.9, 0.45, 0.7, 0.3)[i] if i == j else 0 for j in range(4)] for i in range(4)]
    projection = [
        [0.7, 0.25, 0.2, 0.1],
        [0.25, 0.6, 0.3, 0.15],
        [0.2, 0.3, 0.65, 0.2],
        [0.1, 0.15, 0.2, 0.8],
    ]
    columns = [
        [0.2, 0.45, 0.6],
        [0.1, 0.3, 0.75],
        [0.25, 0.2, 0.5],
        [0.15, 0.4, 0.55],
    ]
    for x, (name, formula, shape, effect), cells in zip(
        (104, 320, 536), titles, (diagonal, projection, columns)
    ):
        d.arrow(x, 122, x, 148, "weight", 2.2)
        d.text(x, 174, name, "ink", SMALL, weight=600)
        grid(d, x - 12.5 * len(cells[0]), 194, cells, "weight", 25)
        d.text(x, 326, formula, "weight", BODY, weight=600)
        d.text(x, 350, shape, "muted", SMALL)
        d.text(x, 376, effect, "ink", SMALL)
    d.text(
        320,
        412,
        "μ, S, V and Λ are estimated once, on unlabelled sentences.",
        "muted",
        SMALL,
    )
    return d


DIAGRAMS = {"whitening-steps": whitening_steps, "three-corrections": three_corrections}
