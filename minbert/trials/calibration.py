"""How the exercises of chapter 24 are checked: matrices from a covariance, up to a sign that nobody can choose."""


import torch

from minbert.course.trials import SMALL, Case, Trial, fixed, mistake


# An eigenvector may point either way. Two right answers can differ in the sign of a column. What should a check compare? What the sign does not
# change: projections, lengths, and the covariance that comes out.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def cloud(generator, rows=40, width=6):
    """Give mean and covariance of correlated columns of unequal spreads, far from the origin; spectra without near ties."""
    turn = torch.linalg.qr(fixed(generator, width, width)).Q
    x = fixed(generator, rows, width)
    x = torch.linalg.qr(x - x.mean(0)).Q * rows**0.5 * 2.0 ** torch.arange(width, 0, -1) @ turn.T * torch.linspace(0.5, 1.5, width, dtype=torch.float64)
    mean = 3 * fixed(generator, width)
    return {"covariance": x.T @ x / rows, "mean": mean}


# ---- calibration.spreads
#
# Variances from .01 to 10⁴; a column that never varies; one whose variance is rounding beside its mean; one whose variance is as small, but real, as
# its mean is 0.

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
    near.diagonal().copy_(torch.tensor([3e-6, 3e-7, 1e-5, 1e-7, 1.0, 2e-6]))      # 10⁻¹² mean² is 10⁻⁶
    return [Case("six columns", given), Case("a column never varies", still), Case("small, and small beside the mean", {"covariance": tiny, "mean": far}),
            Case("on both sides of 10⁻¹²", {"covariance": near, "mean": edge}),
            Case("nothing varies", {"covariance": torch.zeros(3, 3, dtype=torch.float64), "mean": torch.arange(3).double()})]


TRIALS["calibration.spreads"] = Trial(spreads_cases, lambda f, inputs: {"1 / sigma": f(**inputs)}, rtol=1e-9, derive=(SMALL,), hints=(
    "Where in a covariance matrix are the variances?", "On the diagonal. Which of them are more than rounding? Compare with 1e-12 (variance + mean²).",
    "torch.where(varies, 1 / sqrt(variance), 0)."))

MISTAKES["calibration.spreads"] = [
    mistake(".rsqrt(), 0.0)", ".reciprocal(), 0.0)", "The column is divided by its variance, not by its standard deviation."),
    mistake(".rsqrt(), 0.0)", ".sqrt(), 0.0)", "The standard deviation is returned; one over it was asked for."),
    mistake("return torch.where(real, variance.where(real, torch.ones_like(variance)).rsqrt(), 0.0)", "return variance.rsqrt()",
            "A column that does not vary is divided by 0: it becomes infinite instead of 0."),
    mistake("rsqrt(), 0.0)", "rsqrt(), 1.0)", "A column that does not vary gets the factor 1; it should become 0."),
    mistake("variance > 1e-12 * (variance + mean.square())", "variance > 0", "What is rounding beside a large mean counts as a spread."),
    mistake("variance > 1e-12 * (variance + mean.square())", "variance > 1e-12", "The threshold does not grow with the mean, and a small real spread is lost."),
    mistake("1e-12 * (variance", "1e-10 * (variance", "The threshold is another one: a spread of a hundred-thousandth of the mean, which is no rounding, is lost."),
    mistake("mean.square()", "mean.abs()", "The threshold compares with |mean| instead of its square, which has the unit of a variance."),
    mistake("variance = covariance.diagonal()", "variance = covariance.sum(1).abs()", "A whole row of the covariance is added up; the variance stands on the diagonal alone."),
]

VARIANTS["calibration.spreads"] = [
    '''
def inverse_spreads(covariance, mean):
    out = torch.zeros_like(mean)
    for d in range(len(mean)):
        if covariance[d, d] > 1e-12 * (covariance[d, d] + mean[d] ** 2):
            out[d] = 1 / covariance[d, d] ** 0.5
    return out
''',
    '''
def inverse_spreads(covariance, mean):
    v = torch.einsum("dd->d", covariance)
    still = v <= 1e-12 * (v + mean ** 2)
    return (1 / v.masked_fill(still, 1.0).sqrt()).masked_fill(still, 0.0)
''',
]


# ---- calibration.nulltop
#
# The spectrum halves from direction to direction, so there is no tie. Removed are one, three, none and all. The mean is long and points across the
# longest direction: with and without centring different directions go.

def nulltop_cases(generator):
    given = cloud(generator)
    return [Case("one direction", {**given, "k": 1}), Case("three directions", {**given, "k": 3}),
            Case("one, not centred", {**given, "k": 1, "center": False}), Case("two, not centred", {**given, "k": 2, "center": False}),
            Case("none", {**given, "k": 0}), Case("all", {**given, "k": 6})]


def run_nulltop(kind, inputs):
    C, mean = inputs["covariance"], inputs["mean"]
    settings = {"center": inputs["center"]} if "center" in inputs else {}
    return {"matrix": kind(len(mean), inputs["k"], **settings).solve(C, mean)}


TRIALS["calibration.nulltop"] = Trial(nulltop_cases, run_nulltop, rtol=1e-9, atol=1e-11, hints=(
    "Which directions are long? Those of the large eigenvalues. `torch.linalg.eigh` sorts them from small to large.",
    "The last k columns of the eigenvectors are V. V Vᵀ keeps what lies along them; you want the rest.",
    "eye - V @ V.T, with V from eigh of the covariance, or of covariance + mean.outer(mean) if `center` is False."))

_WRONG_TOP = ".eigenvectors.flip(1)[:, :self.k]"
MISTAKES["calibration.nulltop"] = [
    mistake(_WRONG_TOP, ".eigenvectors[:, :self.k]", "The *shortest* directions are removed: `eigh` sorts from small to large."),
    mistake(_WRONG_TOP, ".eigenvectors[:, -self.k:]", "For k = 0 the columns from -0 on are taken, and -0 is 0: that is all of them."),
    mistake("torch.linalg.eigh(raw)", "torch.linalg.eigh(raw.float())", "The directions are found in single precision; covariance and result are double."),
    mistake("torch.eye(self.width).to(top) - top @ top.T", "top @ top.T", "What should go is all that is left: the projection on V, not on everything else."),
    mistake("torch.eye(self.width).to(top) - top @ top.T", "torch.eye(self.width).to(top) - (top.T @ top).sum()", "Vᵀ V stands where V Vᵀ was meant; it is the k by k identity and knows no direction."),
    mistake(_WRONG_TOP, ".eigenvectors.flip(1)[:self.k].T", "The eigenvectors are taken from the rows; they are the columns."),
    mistake("covariance if self.center else covariance + mean.outer(mean)", "covariance", "`center` is not used: the mean of u uᵀ never takes the place of the covariance."),
    mistake("covariance if self.center else covariance + mean.outer(mean)", "covariance + mean.outer(mean)", "The directions are always those of the vectors with their mean, centred or not."),
    mistake("covariance if self.center else covariance + mean.outer(mean)", "covariance + mean.outer(mean) if self.center else covariance", "`center` is read the wrong way round."),
    mistake("covariance + mean.outer(mean)", "covariance - mean.outer(mean)", "μ μᵀ is subtracted from the covariance; the mean of u uᵀ is their sum."),
    mistake("torch.eye(self.width).to(top) - top @ top.T", "torch.eye(self.width).to(top) - 2 * top @ top.T", "The directions are turned round (I - 2 V Vᵀ), not removed."),
    mistake(_WRONG_TOP, ".eigenvectors.flip(1)[:, self.k - 1 : self.k]", "Only the k-th direction is removed, not the first k."),
]

VARIANTS["calibration.nulltop"] = [
    '''
def solve(self, covariance, mean):
    target = covariance if self.center else covariance + mean[:, None] * mean[None, :]
    V = torch.linalg.svd(target).U
    return V[:, self.k:] @ V[:, self.k:].T
''',
    '''
def solve(self, covariance, mean):
    if not self.center:
        covariance = covariance + torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(covariance)
    out = torch.eye(len(mean), dtype=covariance.dtype)
    for index in values.argsort(descending=True)[: self.k]:
        v = vectors[:, index]
        out = out - torch.outer(v, v)
    return out
''',
]


# ---- calibration.whiten
#
# Compared are M Mᵀ, which has no sign left, the covariance MᵀCM that comes out, in which a column's sign would change two zeros only, and the lengths
# of the columns, which tell their order. One covariance is singular, so that the floor decides; one floor is so high that it decides for most.

def whiten_cases(generator):
    given = cloud(generator)
    flat = cloud(generator, rows=40, width=5)
    v = torch.nn.functional.normalize(fixed(generator, 5), dim=0)
    project = torch.eye(5, dtype=torch.float64) - v.outer(v)
    return [Case("all directions", given), Case("three of six", {**given, "k": 3}), Case("a high floor", {**given, "floor": 0.1}),
            Case("one direction is empty", {**flat, "covariance": project @ flat["covariance"] @ project, "floor": 1e-3}),
            Case("one of six, high floor", {**given, "k": 1, "floor": 0.5}),
            Case("variances of a millionth", {**given, "covariance": 1e-6 * given["covariance"], "mean": 1e-3 * given["mean"]})]


def run_whiten(kind, inputs):
    C, mean = inputs["covariance"], inputs["mean"]
    M = kind(len(mean), inputs.get("k"), inputs.get("floor", 1e-6)).solve(C, mean)
    return {"shape": torch.tensor(M.shape), "lengths of the columns": M.norm(dim=0), "M M^T": M @ M.T, "spreads that come out": (M.T @ C @ M).diagonal(),
            "columns that are not perpendicular to each other": (torch.triu(M.T @ M, 1).abs() > 1e-6).sum()}


TRIALS["calibration.whiten"] = Trial(whiten_cases, run_whiten, atol=1e-7, hints=(
    "Turn to the eigenvectors; each of them then has its eigenvalue as variance. What factor makes that 1?",
    "One over the root of the eigenvalue, on the *columns* of V. First lift small eigenvalues to floor times the largest.",
    "values, V = torch.linalg.eigh(covariance); clamp the values; V * values.rsqrt(), columns from last to first, `out_features` of them."))

MISTAKES["calibration.whiten"] = [
    mistake("values.rsqrt()", "values.reciprocal()", "The directions are divided by the variance, not by the standard deviation."),
    mistake("values.rsqrt()", "values.sqrt()", "The directions are multiplied by their spread instead of divided: loud ones get louder."),
    mistake("(directions * values.rsqrt())", "(directions * values.rsqrt()[:, None])", "The rows of V are scaled; the directions are its columns."),
    mistake("(directions * values.rsqrt())", "(directions.T * values.rsqrt())", "V is transposed: the eigenvectors are its columns, and vectors are multiplied from the left."),
    mistake(".flip(1)[:, :self.out_features]", "[:, :self.out_features]", "The *shortest* directions come first and are kept: `eigh` sorts from small to large."),
    mistake("values.clamp_min(self.floor * values[-1])", "values.clamp_min(max(self.floor * values[-1].item(), 1e-4))", "There is a second floor, a number of its own: small clouds stay small."),
    mistake("values.clamp_min(self.floor * values[-1])", "values.clamp_min(self.floor)", "The floor is taken as it is, not as a share of the largest eigenvalue."),
    mistake("values.clamp_min(self.floor * values[-1])", "values.abs()", "The floor is not used: an empty direction is blown up, noise and all."),
    mistake("values.clamp_min(self.floor * values[-1])", "values + self.floor * values[-1]", "The floor is added to every eigenvalue; only those below it should be lifted."),
    mistake("values.clamp_min(self.floor * values[-1])", "values.clamp_min(self.floor * values.sum())", "The floor is a share of the sum of the eigenvalues, not of the largest."),
    mistake("(directions * values.rsqrt()).flip(1)[:, :self.out_features]", "(directions * values.rsqrt()) @ directions.T[:, :self.out_features]",
            "The vectors are turned back after scaling (ZCA); here they stay in the eigenvectors' coordinates, longest first."),
    mistake("[:, :self.out_features]", "", "All directions are kept; `out_features` says how many."),
    mistake("(directions * values.rsqrt()).flip(1)", "(directions.flip(1) * values.rsqrt())", "The directions are turned round and their spreads are not, so each is divided by that of another."),
]

VARIANTS["calibration.whiten"] = [
    '''
def solve(self, covariance, mean):
    V, values, _ = torch.linalg.svd(covariance)
    values = torch.maximum(values, self.floor * values.max())
    M = V @ torch.diag(values ** -0.5)
    return M[:, : self.out_features]
''',
    '''
def solve(self, covariance, mean):
    values, V = torch.linalg.eigh(covariance)
    order = values.argsort(descending=True)[: self.out_features]
    low = self.floor * values.max()
    columns = [-V[:, i] / max(values[i], low) ** 0.5 for i in order]
    return torch.stack(columns, dim=1)
''',
]


# ---- calibration.both
#
# Columns of very unequal spreads, so that the longest directions before and after standardising are not the same. One column does not vary.

def both_cases(generator):
    given = cloud(generator)
    stretch = torch.tensor([20, 1, 0.1, 5, 1, 0.5], dtype=torch.float64)
    uneven = {"covariance": given["covariance"] * stretch.outer(stretch), "mean": given["mean"]}
    C = uneven["covariance"].clone()
    C[2], C[:, 2] = 0, 0
    return [Case("one direction", {**uneven, "k": 1}), Case("three directions", {**uneven, "k": 3}), Case("none", {**uneven, "k": 0}),
            Case("a column never varies", {"covariance": C, "mean": given["mean"], "k": 2})]


def run_both(kind, inputs):
    M = kind(len(inputs["mean"]), inputs["k"]).solve(inputs["covariance"], inputs["mean"])
    return {"matrix": M, "covariance that comes out": M.T @ inputs["covariance"] @ M}


TRIALS["calibration.both"] = Trial(both_cases, run_both, rtol=1e-9, hints=(
    "What is the covariance of vectors that have been multiplied by S?",
    "S C S. Take the longest directions of that. The row vector u meets S first, then the projection.",
    "S = inverse_spreads(...).diag(); V from eigh(S @ C @ S), last k columns; S @ (eye - V @ V.T)."))

MISTAKES["calibration.both"] = [
    mistake("eigh(scale @ covariance @ scale)", "eigh(covariance)", "The directions are those of the vectors as they come, not of the standardised ones."),
    mistake("eigh(scale @ covariance @ scale)", "eigh(scale @ covariance @ covariance @ scale)", "The covariance is squared; its eigenvectors are not those of S C S."),
    mistake("eigh(scale @ covariance @ scale)", "eigh(scale @ covariance)", "S C is no covariance; the scaling belongs on both sides."),
    mistake(".eigenvectors.flip(1)[:, :self.k]", ".eigenvectors[:, -self.k:]", "For k = 0 the columns from -0 on are taken, and -0 is 0: that is all of them."),
    mistake("return scale - scale @ top @ top.T", "return scale - top @ top.T @ scale", "The projection comes before the standardising; u meets S first."),
    mistake("return scale - scale @ top @ top.T", "return torch.eye(len(mean)).to(top) - top @ top.T", "The vectors are not standardised in the result, only in the search for directions."),
    mistake("return scale - scale @ top @ top.T", "return scale @ top @ top.T", "What should go is all that is left."),
    mistake("return scale - scale @ top @ top.T", "return scale", "No direction is removed."),
    mistake(".eigenvectors.flip(1)[:, :self.k]", ".eigenvectors[:, :self.k]", "The *shortest* directions are removed: `eigh` sorts from small to large."),
    mistake("return scale - scale @ top @ top.T", "return scale - top @ top.T", "V Vᵀ is taken from S itself; it should be taken from the identity, and S multiplied."),
    mistake(".flip(1)[:, :self.k]", ".flip(1)[:, :self.k + 1]", "One direction too many is removed."),
    mistake(".flip(1)[:, :self.k]", ".flip(1)[:, 1:self.k + 1]", "The longest direction is skipped: the removed ones begin with the second."),
    mistake("inverse_spreads(covariance, mean).diag()", "(1 / inverse_spreads(covariance, mean)).diag()", "S multiplies by the spreads; it should divide by them."),
    mistake("inverse_spreads(covariance, mean).diag()", "inverse_spreads(covariance, mean).square().diag()", "Columns are divided by their variance; it should be the root of it."),
    mistake("inverse_spreads(covariance, mean).diag()", "covariance.diagonal().rsqrt().diag()", "A column that never varies is divided by its spread, which is 0. `inverse_spreads` gives 0 for it."),
    mistake("return scale - scale @ top @ top.T", "return (scale - scale @ top @ top.T) @ scale", "The result is standardised once more behind the projection. S belongs in front of it only."),
    mistake("return scale - scale @ top @ top.T", "return scale - 2 * scale @ top @ top.T", "The directions are taken out twice, which turns them round; once makes them 0."),
    mistake("return scale - scale @ top @ top.T", "return scale + scale @ top @ top.T", "The directions are added instead of taken away."),
    mistake("    top = torch.linalg.eigh(scale @ covariance @ scale).eigenvectors.flip(1)[:, :self.k]\n    return scale - scale @ top @ top.T",
            "    top = torch.linalg.eigh(scale @ covariance @ scale).eigenvectors.flip(1)[:self.k]\n    return scale - scale @ top.T @ top", "The rows of the eigenvectors are taken; each *column* is one."),
    mistake("eigh(scale @ covariance @ scale)", "eigh(scale.diag() * covariance * scale.diag())", "A vector multiplies the columns both times. The rows of C need their factors as well, by `s[:, None]`."),
    mistake("    top = torch.linalg.eigh(scale @ covariance @ scale).eigenvectors.flip(1)[:, :self.k]\n    return scale - scale @ top @ top.T",
            "    top = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :self.k]\n    rest = torch.eye(len(mean)).to(top) - top @ top.T\n    return rest @ inverse_spreads(rest @ covariance @ rest, mean).diag()",
            "The directions of the vectors as they come are removed first, and what is left is standardised. It is the other way round."),
]

VARIANTS["calibration.both"] = [
    '''
def solve(self, covariance, mean):
    s = inverse_spreads(covariance, mean)
    correlation = covariance * s[:, None] * s[None, :]
    values, V = torch.linalg.eigh(correlation)
    rest = V[:, : len(s) - self.k]
    return s[:, None] * (rest @ rest.T)
''',
    '''
def solve(self, covariance, mean):
    S = torch.diag(inverse_spreads(covariance, mean))
    null = NullTop(self.width, self.k)
    return S @ null.solve(S @ covariance @ S, mean)
''',
]


# ---- How strong?
