"""Mutants of `minbert.exercise_cases.whitening`: their checks must reject them all."""

from minbert.course.check_runner import mistake

MUTANTS = {}


MUTANTS["whitening.spreads"] = [
    mistake(
        "1e-12 * (variance",
        "1e-10 * (variance",
        "The threshold is another one: a spread of a hundred-thousandth of the mean, which is "
        "no rounding, is lost.",
    ),
]


MUTANTS["whitening.nulltop"] = [
    mistake(
        "torch.linalg.eigh(moment)",
        "torch.linalg.eigh(moment.float())",
        "The directions are found in single precision; covariance and result are double.",
    ),
    mistake(
        "covariance if self.center else covariance + mean.outer(mean)",
        "covariance + mean.outer(mean)",
        "The directions are always those of the vectors with their mean, centred or not.",
    ),
    mistake(
        "covariance if self.center else covariance + mean.outer(mean)",
        "covariance + mean.outer(mean) if self.center else covariance",
        "`center` is read the wrong way round.",
    ),
    mistake(
        "covariance + mean.outer(mean)",
        "covariance - mean.outer(mean)",
        "μ μᵀ is subtracted from the covariance; the mean of u uᵀ is their sum.",
    ),
]


MUTANTS["whitening.whiten"] = [
    mistake(
        "values.clamp_min(self.floor * values[-1])",
        "values.clamp_min(max(self.floor * values[-1].item(), 1e-4))",
        "There is a second floor, a number of its own: small clouds stay small.",
    ),
    mistake(
        "values.clamp_min(self.floor * values[-1])",
        "values.clamp_min(self.floor)",
        "The floor is taken as it is, not as a share of the largest eigenvalue.",
    ),
    mistake(
        "values.clamp_min(self.floor * values[-1])",
        "values + self.floor * values[-1]",
        "The floor is added to every eigenvalue; only those below it should be lifted.",
    ),
    mistake(
        "values.clamp_min(self.floor * values[-1])",
        "values.clamp_min(self.floor * values.sum())",
        "The floor is a share of the sum of the eigenvalues, not of the largest.",
    ),
    mistake(
        "(directions * values.rsqrt()).flip(1)",
        "(directions.flip(1) * values.rsqrt())",
        "The directions are turned round and their spreads are not, so each is divided by that "
        "of another.",
    ),
]


MUTANTS["whitening.both"] = [
    mistake(
        "eigh(scale @ covariance @ scale)",
        "eigh(scale @ covariance @ covariance @ scale)",
        "The covariance is squared; its eigenvectors are not those of S C S.",
    ),
    mistake(
        "eigh(scale @ covariance @ scale)",
        "eigh(scale @ covariance)",
        "S C is no covariance; the scaling belongs on both sides.",
    ),
    mistake(
        ".eigenvectors.flip(1)[:, :self.k]",
        ".eigenvectors[:, -self.k:]",
        "For k = 0 the columns from -0 on are taken, and -0 is 0: that is all of them.",
    ),
    mistake("return scale - scale @ top @ top.T", "return scale", "No direction is removed."),
    mistake(
        "return scale - scale @ top @ top.T",
        "return scale - top @ top.T",
        "V Vᵀ is taken from S itself; it should be taken from the identity, and S multiplied.",
    ),
    mistake(
        ".flip(1)[:, :self.k]",
        ".flip(1)[:, 1:self.k + 1]",
        "The longest direction is skipped: the removed ones begin with the second.",
    ),
    mistake(
        "inverse_spreads(covariance, mean).diag()",
        "covariance.diagonal().rsqrt().diag()",
        "A column that never varies is divided by its spread, which is 0. `inverse_spreads` "
        "gives 0 for it.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return (scale - scale @ top @ top.T) @ scale",
        "The result is standardised once more behind the projection. S belongs in front of it "
        "only.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return scale - 2 * scale @ top @ top.T",
        "The directions are taken out twice, which turns them round; once makes them 0.",
    ),
    mistake(
        "return scale - scale @ top @ top.T",
        "return scale + scale @ top @ top.T",
        "The directions are added instead of taken away.",
    ),
    mistake(
        "    top = torch.linalg.eigh(scale @ covariance @ scale).eigenvectors.flip(1)[:, "
        ":self.k]\n"
        "    return scale - scale @ top @ top.T",
        "    top = torch.linalg.eigh(scale @ covariance @ "
        "scale).eigenvectors.flip(1)[:self.k]\n"
        "    return scale - scale @ top.T @ top",
        "The rows of the eigenvectors are taken; each *column* is one.",
    ),
    mistake(
        "eigh(scale @ covariance @ scale)",
        "eigh(scale.diag() * covariance * scale.diag())",
        "A vector multiplies the columns both times. The rows of C need their factors as well, "
        "by `s[:, None]`.",
    ),
    mistake(
        "    top = torch.linalg.eigh(scale @ covariance @ scale).eigenvectors.flip(1)[:, "
        ":self.k]\n"
        "    return scale - scale @ top @ top.T",
        "    top = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :self.k]\n"
        "    rest = torch.eye(len(mean)).to(top) - top @ top.T\n"
        "    return rest @ inverse_spreads(rest @ covariance @ rest, mean).diag()",
        "The directions of the vectors as they come are removed first, and what is left is "
        "standardised. It is the other way round.",
    ),
]
