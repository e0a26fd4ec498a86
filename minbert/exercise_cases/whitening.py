"""Exercise cases of chapter 15: standardization, nulling top components, and whitening."""

import torch

from minbert.course.check_runner import SMALL, Case, Trial, fixed, mistake

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def cloud(generator, rows=40, width=6):
    """Give mean and covariance of correlated columns of unequal spreads, far from the origin;
    spectra without near ties."""
    turn = torch.linalg.qr(fixed(generator, width, width)).Q
    x = fixed(generator, rows, width)
    x = (
        torch.linalg.qr(x - x.mean(0)).Q
        * rows**0.5
        * 2.0 ** torch.arange(width, 0, -1)
        @ turn.T
        * torch.linspace(0.5, 1.5, width, dtype=torch.float64)
    )
    mean = 3 * fixed(generator, width)
    return {"covariance": x.T @ x / rows, "mean": mean}


# ---- whitening.spreads
#
# Variances from 0.01 to 10⁴; a constant dimension; one whose variance is rounding error beside
# its mean; one whose variance is as small but real, because its mean is 0.


def spreads_cases(generator):
    given = cloud(generator)
    C, m = given["covariance"].clone(), given["mean"].clone()
    C[1], C[:, 1], m[1] = 0, 0, 5
    C[3], C[:, 3] = C[3] * 1e-8, C[:, 3] * 1e-8
    still = {"covariance": C, "mean": m}
    tiny = C.clone()
    tiny[1, 1], tiny[3, 3], far = 1e-14, 1e-8, m.clone()
    tiny[4, 4], tiny[5, 5], far[1], far[3], far[4], far[5] = 1e-8, 0.01, 0, 1000, 1e5, 1000
    near, edge = C.clone(), 1000 * torch.ones(6, dtype=torch.float64)
    near.diagonal().copy_(torch.tensor([3e-6, 3e-7, 1e-5, 1e-7, 1.0, 2e-6]))  # 10⁻¹² mean² is 10⁻⁶
    return [
        Case("six columns", given),
        Case("a column never varies", still),
        Case("small, and small beside the mean", {"covariance": tiny, "mean": far}),
        Case("on both sides of 10⁻¹²", {"covariance": near, "mean": edge}),
        Case(
            "nothing varies",
            {
                "covariance": torch.zeros(3, 3, dtype=torch.float64),
                "mean": torch.arange(3).double(),
            },
        ),
    ]


TRIALS["whitening.spreads"] = Trial(
    spreads_cases,
    lambda f, inputs: {"1 / sigma": f(**inputs)},
    rtol=1e-9,
    derive=(SMALL,),
    hints=(
        "Where in a covariance matrix are the variances?",
        (
            "On the diagonal. Which of them are more than rounding? Compare with 1e-12 (variance "
            "+ mean²)."
        ),
        "torch.where(varies, 1 / sqrt(variance), 0).",
    ),
)

MISTAKES["whitening.spreads"] = [
    mistake(
        ".rsqrt(), 0.0)",
        ".reciprocal(), 0.0)",
        "The square root is missing: the result is one over the variance instead of one over "
        "the standard deviation.",
    ),
    mistake(
        ".rsqrt(), 0.0)",
        ".sqrt(), 0.0)",
        "The standard deviation is returned. One over it is expected.",
    ),
    mistake(
        "return torch.where(varies, variance.rsqrt(), 0.0)",
        "return variance.rsqrt()",
        "A constant dimension is divided by 0 and becomes infinite. It should get 0.",
    ),
    mistake(
        "rsqrt(), 0.0)", "rsqrt(), 1.0)", "A constant dimension gets the factor 1. It should get 0."
    ),
    mistake(
        "variance > 1e-12 * (variance + mean.square())",
        "variance > 0",
        "Rounding errors count as variance. Compare the variance with a threshold relative to "
        "the squared mean.",
    ),
    mistake(
        "variance > 1e-12 * (variance + mean.square())",
        "variance > 1e-12",
        "The threshold is absolute, so a small but real variance is lost. It should be relative.",
    ),
    mistake(
        "mean.square()",
        "mean.abs()",
        "The threshold is relative to |mean|. Use the squared mean, which has the unit of a "
        "variance.",
    ),
    mistake(
        "variance = covariance.diagonal()",
        "variance = covariance.sum(1).abs()",
        "A whole row of the covariance matrix is summed. The variances are on its diagonal.",
    ),
]

VARIANTS["whitening.spreads"] = [
    """
def inverse_spreads(covariance, mean):
    out = torch.zeros_like(mean)
    for d in range(len(mean)):
        if covariance[d, d] > 1e-12 * (covariance[d, d] + mean[d] ** 2):
            out[d] = 1 / covariance[d, d] ** 0.5
    return out
""",
    """
def inverse_spreads(covariance, mean):
    v = torch.einsum("dd->d", covariance)
    still = v <= 1e-12 * (v + mean ** 2)
    return (1 / v.masked_fill(still, 1.0).sqrt()).masked_fill(still, 0.0)
""",
]


# ---- whitening.nulltop
#
# An eigenvector may have either sign, so projections are compared. The spectrum halves from
# component to component, so there is no tie. One, three, no and all components are removed. The
# mean is long and orthogonal to the first component, so centering matters.


def nulltop_cases(generator):
    given = cloud(generator)
    return [
        Case("one direction", {**given, "k": 1}),
        Case("three directions", {**given, "k": 3}),
        Case("one, not centred", {**given, "k": 1, "center": False}),
        Case("two, not centred", {**given, "k": 2, "center": False}),
        Case("none", {**given, "k": 0}),
        Case("all", {**given, "k": 6}),
    ]


def run_nulltop(kind, inputs):
    C, mean = inputs["covariance"], inputs["mean"]
    settings = {"center": inputs["center"]} if "center" in inputs else {}
    return {"matrix": kind(len(mean), inputs["k"], **settings).solve(C, mean)}


TRIALS["whitening.nulltop"] = Trial(
    nulltop_cases,
    run_nulltop,
    rtol=1e-9,
    atol=1e-11,
    hints=(
        (
            "Which directions are long? Those of the large eigenvalues. `torch.linalg.eigh` sorts "
            "them from small to large."
        ),
        (
            "The last k columns of the eigenvectors are V. V Vᵀ keeps what lies along them; you "
            "want the rest."
        ),
        (
            "eye - V @ V.T, with V from eigh of the covariance, or of covariance + "
            "mean.outer(mean) if `center` is False."
        ),
    ),
)

_WRONG_TOP = ".eigenvectors.flip(1)[:, :self.k]"
MISTAKES["whitening.nulltop"] = [
    mistake(
        _WRONG_TOP,
        ".eigenvectors[:, :self.k]",
        "The last principal components are removed: `eigh` sorts eigenvalues in ascending order.",
    ),
    mistake(
        _WRONG_TOP, ".eigenvectors[:, -self.k:]", "For k = 0 the slice `[-0:]` selects all columns."
    ),
    mistake(
        "torch.eye(self.width).to(top) - top @ top.T",
        "top @ top.T",
        "This projects onto the top components. They should be removed: I - V Vᵀ.",
    ),
    mistake(
        "torch.eye(self.width).to(top) - top @ top.T",
        "torch.eye(self.width).to(top) - (top.T @ top).sum()",
        "Vᵀ V is used instead of V Vᵀ. It is the k by k identity.",
    ),
    mistake(
        _WRONG_TOP,
        ".eigenvectors.flip(1)[:self.k].T",
        "Eigenvectors are taken from the rows. They are the columns.",
    ),
    mistake(
        "covariance if self.center else covariance + mean.outer(mean)",
        "covariance",
        "`center` is not used: without centering, the uncentered second moment takes the place "
        "of the covariance.",
    ),
    mistake(
        "torch.eye(self.width).to(top) - top @ top.T",
        "torch.eye(self.width).to(top) - 2 * top @ top.T",
        "I - 2 V Vᵀ reflects the vectors. I - V Vᵀ removes the components.",
    ),
    mistake(
        _WRONG_TOP,
        ".eigenvectors.flip(1)[:, self.k - 1 : self.k]",
        "Only the k-th component is removed. Remove the first k.",
    ),
]

VARIANTS["whitening.nulltop"] = [
    """
def solve(self, covariance, mean):
    target = covariance if self.center else covariance + mean[:, None] * mean[None, :]
    V = torch.linalg.svd(target).U
    return V[:, self.k:] @ V[:, self.k:].T
""",
    """
def solve(self, covariance, mean):
    if not self.center:
        covariance = covariance + torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(covariance)
    out = torch.eye(len(mean), dtype=covariance.dtype)
    for index in values.argsort(descending=True)[: self.k]:
        v = vectors[:, index]
        out = out - torch.outer(v, v)
    return out
""",
]


# ---- whitening.whiten
#
# Compared are M Mᵀ, which does not depend on signs, the covariance MᵀCM of the result, and the
# lengths of the columns, which show their order. One covariance is singular, so that the floor
# applies; one floor is so high that it applies to most components.


def whiten_cases(generator):
    given = cloud(generator)
    flat = cloud(generator, rows=40, width=5)
    v = torch.nn.functional.normalize(fixed(generator, 5), dim=0)
    project = torch.eye(5, dtype=torch.float64) - v.outer(v)
    return [
        Case("all directions", given),
        Case("three of six", {**given, "k": 3}),
        Case("a high floor", {**given, "floor": 0.1}),
        Case(
            "one direction is empty",
            {**flat, "covariance": project @ flat["covariance"] @ project, "floor": 1e-3},
        ),
        Case("one of six, high floor", {**given, "k": 1, "floor": 0.5}),
        Case(
            "variances of a millionth",
            {**given, "covariance": 1e-6 * given["covariance"], "mean": 1e-3 * given["mean"]},
        ),
    ]


def run_whiten(kind, inputs):
    C, mean = inputs["covariance"], inputs["mean"]
    M = kind(len(mean), inputs.get("k"), inputs.get("floor", 1e-6)).solve(C, mean)
    return {
        "shape": torch.tensor(M.shape),
        "lengths of the columns": M.norm(dim=0),
        "M M^T": M @ M.T,
        "spreads that come out": (M.T @ C @ M).diagonal(),
        "columns that are not perpendicular to each other": (
            torch.triu(M.T @ M, 1).abs() > 1e-6
        ).sum(),
    }


TRIALS["whitening.whiten"] = Trial(
    whiten_cases,
    run_whiten,
    atol=1e-7,
    hints=(
        (
            "Turn to the eigenvectors; each of them then has its eigenvalue as variance. What "
            "factor makes that 1?"
        ),
        (
            "One over the root of the eigenvalue, on the *columns* of V. First lift small "
            "eigenvalues to floor times the largest."
        ),
        (
            "values, V = torch.linalg.eigh(covariance); clamp the values; V * values.rsqrt(), "
            "columns from last to first, `out_features` of them."
        ),
    ),
)

MISTAKES["whitening.whiten"] = [
    mistake(
        "values.rsqrt()",
        "values.reciprocal()",
        "The components are divided by their variance. Divide by the standard deviation.",
    ),
    mistake(
        "values.rsqrt()",
        "values.sqrt()",
        "The components are multiplied by their standard deviation. Divide by it.",
    ),
    mistake(
        "(directions * values.rsqrt())",
        "(directions * values.rsqrt()[:, None])",
        "The rows of V are scaled. The eigenvectors are its columns.",
    ),
    mistake(
        "(directions * values.rsqrt())",
        "(directions.T * values.rsqrt())",
        "V is transposed. The eigenvectors are its columns, and row vectors are multiplied from "
        "the left.",
    ),
    mistake(
        ".flip(1)[:, :self.out_features]",
        "[:, :self.out_features]",
        "The components come in ascending order of variance: `eigh` sorts eigenvalues in "
        "ascending order.",
    ),
    mistake(
        "values.clamp_min(self.floor * values[-1])",
        "values.abs()",
        "`floor` is not used, so components with almost no variance are amplified.",
    ),
    mistake(
        "(directions * values.rsqrt()).flip(1)[:, :self.out_features]",
        "(directions * values.rsqrt()) @ directions.T[:, :self.out_features]",
        "The vectors are rotated back after scaling (ZCA whitening). PCA whitening keeps the "
        "coordinates of the eigenvectors.",
    ),
    mistake(
        "[:, :self.out_features]", "", "All components are kept. Keep the first `out_features`."
    ),
]

VARIANTS["whitening.whiten"] = [
    """
def solve(self, covariance, mean):
    V, values, _ = torch.linalg.svd(covariance)
    values = torch.maximum(values, self.floor * values.max())
    M = V @ torch.diag(values ** -0.5)
    return M[:, : self.out_features]
""",
    """
def solve(self, covariance, mean):
    values, V = torch.linalg.eigh(covariance)
    order = values.argsort(descending=True)[: self.out_features]
    low = self.floor * values.max()
    columns = [-V[:, i] / max(values[i], low) ** 0.5 for i in order]
    return torch.stack(columns, dim=1)
""",
]


# ---- whitening.both
#
# Dimensions of very different variance, so that the principal components before and after
# standardization differ. One dimension is constant.


def both_cases(generator):
    given = cloud(generator)
    stretch = torch.tensor([20, 1, 0.1, 5, 1, 0.5], dtype=torch.float64)
    uneven = {"covariance": given["covariance"] * stretch.outer(stretch), "mean": given["mean"]}
    C = uneven["covariance"].clone()
    C[2], C[:, 2] = 0, 0
    return [
        Case("one direction", {**uneven, "k": 1}),
        Case("three directions", {**uneven, "k": 3}),
        Case("none", {**uneven, "k": 0}),
        Case("a column never varies", {"covariance": C, "mean": given["mean"], "k": 2}),
    ]


def run_both(kind, inputs):
    M = kind(len(inputs["mean"]), inputs["k"]).solve(inputs["covariance"], inputs["mean"])
    return {"matrix": M, "covariance that comes out": M.T @ inputs["covariance"] @ M}


TRIALS["whitening.both"] = Trial(
    both_cases,
    run_both,
    rtol=1e-9,
    hints=(
        "What is the covariance of vectors that have been multiplied by S?",
        (
            "S C S. Take the longest directions of that. The row vector u meets S first, then the "
            "projection."
        ),
        (
            "S = inverse_spreads(...).diag(); V from eigh(S @ C @ S), last k columns; S @ (eye - "
            "V @ V.T)."
        ),
    ),
)

MISTAKES["whitening.both"] = [
    mistake(
        "eigh(scale @ covariance @ scale)",
        "eigh(covariance)",
        "The components are those of the original vectors. Use the standardized ones.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return scale - top @ top.T @ scale",
        "The projection comes before the standardization. It comes after.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return torch.eye(len(mean)).to(top) - top @ top.T",
        "Standardization is used only to find the components. It belongs in the result too.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return scale @ top @ top.T",
        "This projects onto the top components. They should be removed.",
    ),
    mistake(
        ".eigenvectors.flip(1)[:, :self.k]",
        ".eigenvectors[:, :self.k]",
        "The last principal components are removed: `eigh` sorts eigenvalues in ascending order.",
    ),
    mistake(
        ".flip(1)[:, :self.k]",
        ".flip(1)[:, :self.k + 1]",
        "One component too many is removed (off by one).",
    ),
    mistake(
        "inverse_spreads(covariance, mean).diag()",
        "(1 / inverse_spreads(covariance, mean)).diag()",
        "The vectors are multiplied by the standard deviations. Divide by them.",
    ),
    mistake(
        "inverse_spreads(covariance, mean).diag()",
        "inverse_spreads(covariance, mean).square().diag()",
        "The vectors are divided by their variances. Divide by the standard deviations.",
    ),
]

VARIANTS["whitening.both"] = [
    """
def solve(self, covariance, mean):
    s = inverse_spreads(covariance, mean)
    correlation = covariance * s[:, None] * s[None, :]
    values, V = torch.linalg.eigh(correlation)
    rest = V[:, : len(s) - self.k]
    return s[:, None] * (rest @ rest.T)
""",
    """
def solve(self, covariance, mean):
    S = torch.diag(inverse_spreads(covariance, mean))
    null = NullTop(self.width, self.k)
    return S @ null.solve(S @ covariance @ S, mean)
""",
]
