"""How the exercises of chapters 14 and 15 are checked: what the cases are for, and which mistakes people make."""


import math

import torch

from minbert.course.trials import Case, Trial, fixed, halves, mistake, with_gradients


TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# A wrong loss still falls. What does it fall *to*? All checks on this page compare the cost and its gradient, since two costs may
# agree where their slopes do not.
#
# ---- losses.classes
#
# Seven rows and five classes, one row alone, two classes, logits of a thousand, a NaN, labels as floats, logits in half precision (values alone: half a
# gradient is too coarse to compare).

def spoilt(x):
    """The same with a NaN in the second row."""
    x = x.clone()
    x[1] = math.nan
    return x


def classes_cases(generator):
    logits = 2 * fixed(generator, 7, 5)
    labels = torch.randint(5, (7,), generator=generator)
    return [Case("seven rows, five classes", {"logits": logits, "labels": labels}), Case("one row", {"logits": logits[:1], "labels": labels[:1]}),
            Case("two classes", {"logits": logits[:, :2], "labels": labels % 2}),
            Case("labels as floats", {"logits": logits, "labels": labels.double()}),
            Case("labels as unsigned bytes", {"logits": logits, "labels": labels.to(torch.uint8)}),
            Case("logits of a thousand", {"logits": 1000 * logits, "labels": labels}), Case("all logits near a thousand", {"logits": 1000 + logits, "labels": labels}),
            Case("NaN in one row", {"logits": spoilt(logits), "labels": labels}),
            *halves(Case("half precision", {"logits": 8 * logits, "labels": labels}), "logits")]


def run_loss(loss, inputs):
    """Cost and gradient, and whether the cost is as wide as what it is made of; in half precision the cost alone."""
    first = next(iter(inputs))
    if inputs[first].dtype in (torch.bfloat16, torch.float16):
        return {"output": loss(**inputs).double()}
    found = with_gradients(loss, inputs, first)
    return found | {f"dtype as wide as that of the {first}": torch.promote_types(found["output"].dtype, inputs[first].dtype) == found["output"].dtype}


TRIALS["losses.classes"] = Trial(classes_cases, run_loss, hints=(
    "Which number of each row of log-probabilities is the cost? One number a row, then the mean.",
    "Never take exp of a logit and then log of the result: log_softmax and F.cross_entropy do both at once, without overflow. They want whole "
    "labels, int64.",
    "labels = check_labels(...).long(); then F.cross_entropy(wide(logits), labels), which takes the logits as they are and averages over the rows."))


_WRONG_CE = "F.cross_entropy(wide(logits), whole.long())"

MISTAKES["losses.classes"] = [
    mistake(_WRONG_CE, "F.cross_entropy(logits, whole.long())", "In half precision the loss is computed in half, and two digits are left of it. Widen the logits first."),
    mistake(_WRONG_CE, "-(wide(logits).softmax(-1)[range(len(whole)), whole.long()] + 1e-12).log().mean()",
            "A small number is added to the probability, so no answer can cost more than its logarithm."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits).clamp(-50, 50), whole.long())", "The logits are cut off, so beyond the limit nothing is learned."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long(), ignore_index=0)", "Class 0 is left out. It is a class like the others."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long(), weight=1 / torch.bincount(whole.long(), minlength=logits.shape[1]).clamp(min=1).to(wide(logits)))",
            "Rare classes weigh more. All rows weigh the same."),
    mistake(_WRONG_CE, "(wide(logits).logsumexp(1).detach() - wide(logits)[range(len(whole)), whole.long()]).mean()",
            "The normaliser is detached, so the right logit is pushed up and no other down."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long()) / 0.6931471805599453", "The loss is in bits. Nats were promised."),
    mistake(_WRONG_CE, "(F.binary_cross_entropy_with_logits(wide(logits)[:, 1], whole) if logits.shape[1] == 2 else F.cross_entropy(wide(logits), whole.long()))",
            "With two classes the second logit is read alone. It is the difference of the two that counts."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits).softmax(-1), whole.long())",
            "Softmax is applied twice: cross-entropy wants the logits themselves."),
    mistake(_WRONG_CE, "F.nll_loss(wide(logits), whole.long())", "The logits are taken for log-probabilities; no softmax is applied at all."),
    mistake(_WRONG_CE, "F.nll_loss(wide(logits).softmax(-1), whole.long())", "The cost is minus the probability; its logarithm is missing."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long(), reduction=\"sum\")",
            "The costs are added up; the mean is wanted, or the step grows with the batch."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long(), reduction=\"sum\") / logits.numel()",
            "The sum is divided by B times C, where B rows have a cost each."),
    mistake(_WRONG_CE, "-(wide(logits).exp() / wide(logits).exp().sum(-1, keepdim=True)).log()[range(len(whole)), whole.long()].mean()",
            "The exponentials are taken before the logarithm, so large logits overflow."),
    mistake(_WRONG_CE, "-wide(logits).softmax(-1).log()[range(len(whole)), whole.long()].mean()",
            "The softmax is taken before its logarithm: a small share is rounded to 0, and costs infinity."),
    mistake(_WRONG_CE, "-(wide(logits).softmax(-1)[range(len(whole)), whole.long()] + 1e-9).log().mean()",
            "1e-9 is added to the probability, so no answer can cost more than its logarithm, 20.7."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits), whole.long(), label_smoothing=0.1)",
            "The labels are smoothed: that is another loss, whose best value is not 0."),
    mistake(_WRONG_CE, "-wide(logits).log_softmax(0)[range(len(whole)), whole.long()].mean()",
            "Softmax runs over the rows of the batch, where it should run over the classes."),
    mistake(_WRONG_CE, "-F.cross_entropy(wide(logits), whole.long())", "The sign is wrong: a better answer costs more."),
    mistake(_WRONG_CE, "F.cross_entropy(wide(logits).nan_to_num(0.0), whole.long())", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake(_WRONG_CE, "F.binary_cross_entropy_with_logits(wide(logits), F.one_hot(whole.long(), logits.shape[-1]).to(wide(logits).dtype))",
            "Each class is a yes or no of its own here. The classes share one softmax."),
    mistake(_WRONG_CE, "-wide(logits).softmax(-1).gather(1, whole.long()[:, None]).mean().log()", "The probabilities are averaged before the logarithm. The mean is one of logarithms."),
    mistake(_WRONG_CE, "-wide(logits).log_softmax(-1).mean()", "The labels are not used: the log-probabilities of all classes are averaged."),
    mistake(_WRONG_CE, "F.cross_entropy(logits.float(), whole.long())", "float64 becomes float32. What is wider stays as wide as it came."),
]

VARIANTS["losses.classes"] = [
    '''
def classes_loss(logits, labels):
    logits, rows = wide(logits), torch.arange(len(logits))
    return (logits.logsumexp(1) - logits[rows, labels.long()]).mean()
''',
    '''
def classes_loss(logits, labels):
    total = 0
    for row, label in zip(wide(logits), labels):
        total = total - (F.one_hot(label.long(), len(row)) * torch.log_softmax(row, 0)).sum()
    return total / len(labels)
''',
]


# ---- losses.paraphrase
#
# Labels of 0 and 1, as numbers and as truth values, and labels between; logits of ±800 and more, where the naive logarithm of a sigmoid is minus infinity;
# half precision.

def yes_cases(generator):
    z = 3 * fixed(generator, 8)
    y = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1])
    return [Case("yes and no", {"logits": z, "labels": y}), Case("one pair", {"logits": z[:1], "labels": y[1:2]}),
            Case("truth values", {"logits": z, "labels": y == 1}), Case("unsigned bytes", {"logits": z, "labels": y.to(torch.uint8)}),
            Case("labels between 0 and 1", {"logits": z, "labels": (torch.arange(8) + torch.rand(8, generator=generator, dtype=torch.float64)) / 8}),
            Case("logits of a thousand, right and wrong", {"logits": 800 * (1 + z.abs()) * torch.tensor([1, -1]).repeat(4), "labels": y}),
            Case("logits between 5 and 15", {"logits": 5 + z.abs(), "labels": y}), *halves(Case("half precision", {"logits": z, "labels": y}), "logits")]


TRIALS["losses.paraphrase"] = Trial(yes_cases, run_loss, hints=(
    "Two terms a pair: one counts for a yes, the other for a no. Which sign does the logit have in each?",
    "log of sigmoid overflows for logits far below 0. F.logsigmoid does not, nor does anything that ends in with_logits.",
    "y = check_labels(logits, labels, 0, 1); then F.binary_cross_entropy_with_logits(wide(logits), y)."))


_WRONG_BCE = "F.binary_cross_entropy_with_logits(wide(logits), y)"

MISTAKES["losses.paraphrase"] = [
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(logits, y.to(logits))", "In half precision the loss is computed in half, and two digits are left of it. Widen the logits first."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy(wide(logits).sigmoid(), y)", "The logarithm is taken of a sigmoid, which is exactly 0 or 1 for large logits, or the logits are cut off at 100."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), (y > 0).to(y))", "Labels between 0 and 1 are taken for 1."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), (y == 1).to(y))", "Labels between 0 and 1 are taken for 0."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits).clamp(-30, 30), y)", "The logits are cut off, so beyond the limit nothing is learned."),
    mistake(_WRONG_BCE, "(F.softplus(wide(logits), threshold=5) - y * wide(logits)).mean()",
            "log(1 + e^z) is taken for z too early: at z = 5 the third digit is wrong."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), y, weight=torch.where(y > 0.5, 0.5 / (y > 0.5).sum(), 0.5 / (y <= 0.5).sum()) * len(y))",
            "Yes and no weigh the same however many there are. All rows weigh the same."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), 1 - y)", "The labels are inverted: a yes is charged as a no."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits).sigmoid(), y)",
            "Sigmoid is applied twice: the loss takes the logit itself."),
    mistake(_WRONG_BCE, "F.mse_loss(wide(logits).sigmoid(), y)", "This is the squared cost, which gives up on pairs that are surely wrong."),
    mistake(_WRONG_BCE, "-(y * wide(logits).sigmoid().log() + (1 - y) * (1 - wide(logits).sigmoid()).log()).mean()",
            "The sigmoid is taken before the logarithm, so a sure mistake costs infinity and its gradient is NaN."),
    mistake(_WRONG_BCE, "-(y * logits.sigmoid().log() + (1 - y) * (1 - logits.sigmoid()).log()).mean()",
            "The sigmoid is taken before the logarithm, so a sure mistake costs infinity and its gradient is NaN; and in half precision it is computed in half."),
    mistake(_WRONG_BCE, "(torch.log1p(wide(logits).exp()) - y * wide(logits)).mean()", "e^z is taken as it is: from z = 710 on it is infinite, and so is the cost."),
    mistake(_WRONG_BCE, "-(y * F.logsigmoid(wide(logits))).mean()", "Only the yeses are charged. Saying yes to everything would be free."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), y, reduction=\"sum\")", "The costs are added up; the mean is wanted."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(wide(logits), y.round())",
            "Labels between 0 and 1 are rounded; they count in part for a yes, in part for a no."),
    mistake(_WRONG_BCE, "F.softplus(wide(logits) * (1 - 2 * y)).mean()",
            "The label is made a sign, which is right for 0 and 1 alone; a label between them should count in part for both."),
    mistake(_WRONG_BCE, "-(y * F.logsigmoid(wide(logits)) + (1 - y) * (1 - F.logsigmoid(wide(logits)))).mean()", "A no is charged with 1 - log s. It is the logarithm of 1 - s."),
    mistake(_WRONG_BCE, "-(y * F.logsigmoid(wide(logits)) + (1 - y) * F.logsigmoid(wide(logits))).mean()", "A no is charged like a yes: the sign of its logit has to turn."),
    mistake(_WRONG_BCE, "F.cross_entropy(wide(logits), y)", "A softmax runs over the batch, so pairs compete with one another. Each logit has a sigmoid of its own."),
    mistake(_WRONG_BCE, _WRONG_BCE + " / 0.6931471805599453", "The loss is in bits. Nats were promised."),
    mistake(_WRONG_BCE, "F.binary_cross_entropy_with_logits(logits.float(), y.float())", "float64 becomes float32. What is wider stays as wide as it came."),
]

VARIANTS["losses.paraphrase"] = [
    '''
def paraphrase_loss(logits, labels):
    z, y = wide(logits), labels.to(wide(logits).dtype)
    return (z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))).mean()
''',
    '''
def paraphrase_loss(logits, labels):
    z = wide(logits)
    both = torch.stack([F.logsigmoid(-z), F.logsigmoid(z)])
    y = labels.to(z.dtype)
    return -torch.einsum("cb,cb->", both, torch.stack([1 - y, y])) / len(y)
''',
]


# ---- losses.similarity
#
# Scores inside and outside of the scale, whole grades, one pair, half precision.

def grade_cases(generator):
    scores, grades = 2 + 3 * fixed(generator, 6), 5 * torch.rand(6, generator=generator, dtype=torch.float64)
    wild = {"scores": torch.cat([scores, torch.tensor([-2.0, 8.0])]), "labels": torch.cat([grades, grades[:2]])}
    return [Case("scores inside and outside of the scale", wild),
            Case("every score right", {"scores": grades, "labels": grades}), Case("NaN for one pair", {"scores": spoilt(scores), "labels": grades}),
            Case("one pair", {"scores": scores[:1], "labels": grades[:1]}), Case("whole grades", {"scores": scores, "labels": grades.round().long()}),
            Case("grades as unsigned bytes", {"scores": scores, "labels": grades.round().to(torch.uint8)}),
            *halves(Case("half precision", {"scores": 100 * scores, "labels": grades}), "scores")]


TRIALS["losses.similarity"] = Trial(grade_cases, run_loss, hints=(
    "One squared distance a pair, then the mean. Nothing is cut or rescaled.",
    "The scores are widened; check_labels has made floats of the labels.",
    "F.mse_loss(wide(scores), labels)."))


_WRONG_MSE = "F.mse_loss(wide(scores), labels)"

MISTAKES["losses.similarity"] = [
    mistake(_WRONG_MSE, "F.mse_loss(scores, labels.to(scores))", "In half precision the loss is computed in half, and two digits are left of it. Widen the scores first."),
    mistake(_WRONG_MSE, "F.huber_loss(wide(scores), labels)", "Large distances are charged in proportion, not squared."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels) / 25", "The distance is measured on a scale from 0 to 1. Squared grades were promised."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels.round())", "The grades are rounded. 2.4 is a grade too."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels.floor())", "The grades are cut to whole numbers. 2.4 is a grade too."),
    mistake(_WRONG_MSE, "(d := wide(scores) - labels).var(unbiased=False) + d.mean().detach() ** 2",
            "The mean distance is detached, so a constant error is never unlearned."),
    mistake(_WRONG_MSE, "F.l1_loss(wide(scores), labels)", "The distance is not squared."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels).sqrt()",
            "The root of the mean comes back; the cost is the mean itself."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels, reduction=\"sum\")",
            "The squares are added up; the mean is wanted."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores).clamp(0, 5), labels)",
            "The scores are cut to the scale first. A score outside of it then gets no gradient and never comes back."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels / 5)",
            "The labels are moved to [0, 1]; scores and labels share the scale 0 to 5."),
    mistake(_WRONG_MSE, "0.5 * F.mse_loss(wide(scores), labels)",
            "There is a factor of one half that the equation does not have."),
    mistake(_WRONG_MSE, "(wide(scores)[:, None] - labels).square().mean()",
            "Every score is compared with every label: (B, 1) against (B,) gives (B, B)."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores).nan_to_num(0.0), labels)", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake(_WRONG_MSE, "F.mse_loss(wide(scores), labels).sqrt() ** 2", "The cost goes through a root, whose slope at 0 is infinite: where every score is right the gradient is NaN."),
    mistake(_WRONG_MSE, "F.mse_loss(scores.float(), labels.float())", "float64 becomes float32. What is wider stays as wide as it came."),
]

VARIANTS["losses.similarity"] = [
    '''
def similarity_loss(scores, labels):
    gap = wide(scores) - labels.to(wide(scores).dtype)
    return gap @ gap / len(gap)
''',
    '''
def similarity_loss(scores, labels):
    return sum((s - y) ** 2 for s, y in zip(wide(scores), labels)) / len(labels)
''',
]


# ---- hinge.labels
#
# Both alphabets in several types, and batches that hold one kind only.

def sign_cases(generator):
    bits = torch.randint(2, (9,), generator=generator)
    bits[:2] = torch.tensor([0, 1])
    rows = {"0 and 1": bits, "-1 and 1": 2 * bits - 1, "truth values": bits == 1, "0.0 and 1.0": bits.double(), "-1.0 and 1.0": 2.0 * bits - 1, "single precision": bits.float(),
            "unsigned bytes": bits.to(torch.uint8), "signed bytes, -1 and 1": (2 * bits - 1).to(torch.int8),
            "all 0": bits[:1], "all 1": bits[1:2], "all -1": bits[:1] - 1}
    return [Case(label, {"labels": x}) for label, x in rows.items()]


TRIALS["hinge.labels"] = Trial(sign_cases, lambda sign, inputs: {"signs": (signs := sign(**inputs)), "float32 as promised": signs.dtype == torch.float32}, hints=(
    "What does a label of 0 become, what a label of -1?",
    "2 y - 1 is right for 0 and 1. What does it make of -1?",
    "y = labels.float(); if all of them are 0 or 1 give 2 * y - 1, else give y."))


_WRONG_SIGNS = "return torch.where(y == 0, -1.0, y)"

MISTAKES["hinge.labels"] = [
    mistake("y = labels.float()", "y = labels.double()", "The signs are float64. float32 was promised."),
    mistake(_WRONG_SIGNS, _WRONG_SIGNS + ".to(labels.dtype)", "The signs keep the dtype of the labels. float32 was promised."),
    mistake(_WRONG_SIGNS, _WRONG_SIGNS + " if (y >= 0).any() else 2 * y - 1", "A batch of -1 alone is not recognised as signs."),
    mistake(_WRONG_SIGNS, "return 2 * y - 1", "Labels of -1 become -3: only 0 and 1 are to be moved."),
    mistake("y = labels.float()", "y = labels", _WRONG_SIGNS, "return (2 * y - 1 if y.min() == 0 else y).float()",
            "The signs are computed in the dtype of the labels. In unsigned bytes 0 - 1 is 255: convert first."),
    mistake(_WRONG_SIGNS, "return y", "Labels of 0 stay 0 (0 is also its own sign), and the loss treats them neither as yes nor as no."),
    mistake(_WRONG_SIGNS, "return -torch.where(y == 0, -1.0, y)", "Yes and no are exchanged."),
    mistake(_WRONG_SIGNS, _WRONG_SIGNS + ".long()", "Whole numbers come back; the loss wants floats."),
    mistake(_WRONG_SIGNS, "return 2 * y - y.max() if (y >= 0).all() else y",
            "The largest label is subtracted, where 1 should be: a batch of zeros alone stays 0."),
]

VARIANTS["hinge.labels"] = [
    '''
def signed_labels(labels):
    return torch.where(labels.float() > 0, 1.0, -1.0)
''',
    '''
def signed_labels(labels):
    return torch.tensor([1.0 if y > 0.5 else -1.0 for y in labels.tolist()])
''',
]


# ---- hinge.paraphrase
#
# Cosines on both sides of the floor, of both signs, with both kinds of labels; both hinges; other floors, a negative one too; a batch without
# positives. No cosine lies exactly on the floor: there the slope is a matter of taste.

def hinge_cases(generator):
    scores = torch.tensor([0.95, 0.8, 0.75, 0.4, 0.1, -0.3, 0.9, 0.55, -0.8, 1.0, 1.0]) + 0.02 * torch.rand(11, generator=generator, dtype=torch.float64)
    scores[-2:] = 1.0
    labels = torch.tensor([1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1])
    both = {"scores": scores, "labels": labels}
    return [Case("as printed", both), Case("labels of -1 and 1", {**both, "labels": 2 * labels - 1}),
            Case("open for positives", {**both, "hinge": "open_positive"}),
            Case("floor 0.3, as printed", {**both, "floor": 0.3}), Case("floor 0.3, open", {**both, "floor": 0.3, "hinge": "open_positive"}),
            Case("a floor below 0", {**both, "floor": -0.5}),
            Case("negatives alone", {"scores": scores[:3], "labels": torch.zeros(3), "hinge": "open_positive"}),
            Case("one dead positive", {"scores": scores[3:4], "labels": labels[3:4]}), *halves(Case("half precision", both), "scores")]


TRIALS["hinge.paraphrase"] = Trial(hinge_cases, run_loss, hints=(
    "Two costs, one for each kind of pair. Which of them uses the cut cosine: with the paper's hinge, with the open one?",
    "cut = scores.clamp(min=floor). Negatives always pay cut - floor. Only what the positives pay depends on `hinge`.",
    "torch.where(positive, 1 - rising, cut - floor).mean(), where rising is cut for \"paper\" and the scores themselves for \"open_positive\"; "
    "positive = signed_labels(labels) > 0."))


_WRONG_PRICE = "torch.where(positive, 1 - rising[hinge], cut - floor).mean()"
_WRONG_RISING = "{\"paper\": cut, \"open_positive\": scores}"

MISTAKES["hinge.paraphrase"] = [
    mistake("    scores = wide(scores)\n", "", "In half precision the loss is computed in half, and two digits are left of it. Widen the scores first."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], cut - floor).square().mean()", "The distances are squared."),
    mistake("cut = scores.clamp(min=floor)", "cut = scores + (scores.clamp(min=floor) - scores).detach()",
            "The gradient passes the cut as if there were none. Below the floor it is 0."),
    mistake("cut = scores.clamp(min=floor)", "floor = 0.7\n    cut = scores.clamp(min=floor)", "`floor` is not used: it is always 0.7."),
    mistake(_WRONG_RISING, "{\"paper\": cut, \"open_positive\": scores.clamp(min=0)}", "With the open hinge positives are cut at 0. They are not cut at all."),
    mistake(_WRONG_PRICE, "torch.where(positive, (1 - rising[hinge]).relu(), cut - floor).mean()",
            "What positives pay is cut off at 0, where its gradient is lost: at cosine 1 it is still -1."),
    mistake(_WRONG_PRICE, "sum(x.sum() / max(1, len(x)) for x in ((1 - rising[hinge])[positive], (cut - floor)[~positive]))",
            "Positives and negatives are averaged apart and added. All pairs have one mean."),
    mistake(_WRONG_RISING, "{\"paper\": cut, \"open_positive\": cut}", "The open hinge cuts the positives too: those below the floor stay dead."),
    mistake(_WRONG_RISING, "{\"paper\": scores, \"open_positive\": scores}",
            "As printed, the positives are cut as well, and those below the floor get no gradient. Here they are always open."),
    mistake(_WRONG_RISING, "{\"paper\": scores, \"open_positive\": cut}", "The two hinges are exchanged."),
    mistake("signed_labels(labels).to(scores.device) > 0", "signed_labels(labels).to(scores.device) < 0",
            "The labels are inverted: paraphrases are pushed apart."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], scores - floor).mean()",
            "The negatives are not cut: those below the floor earn money and are pushed further."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], cut).mean()",
            "Negatives pay their whole cosine; they should pay what is above the floor."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], rising[hinge] - floor).mean()",
            "The open hinge opens the negatives too, so they are pushed below the floor."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], cut - floor).sum()", "The costs are added up; the mean is wanted."),
    mistake(_WRONG_PRICE, "(1 - rising[hinge])[positive].sum() / len(scores) + (cut - floor)[~positive].mean().nan_to_num()",
            "The negatives are averaged among themselves; there is one mean, over all pairs."),
    mistake("scores.clamp(min=floor)", "scores.clamp(min=0.7)", "The floor is always 0.7, whatever was asked for."),
    mistake(_WRONG_PRICE, "torch.where(positive, (1 - rising[hinge]) / (1 - floor), (cut - floor) / (1 - floor)).mean()",
            "The costs are stretched to [0, 1]; the report leaves them as they are."),
    mistake("positive = signed_labels(labels).to(scores.device) > 0",
            "positive = signed_labels(labels).to(scores.device) * 0 + labels.to(scores.device) != 0",
            "Labels of -1 count as positive: turn 0/1 and -1/+1 into one alphabet first."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - rising[hinge], floor - cut).mean()", "The sign of what negatives pay is wrong: they are pulled together."),
    mistake(_WRONG_PRICE, "torch.where(positive, 1 - floor - rising[hinge], cut - floor).mean()", "The floor is taken off what positives pay as well. They pay what is missing to 1."),
    mistake("scores = wide(scores)\n", "scores = scores.float()\n", "float64 becomes float32. What is wider stays as wide as it came."),
]

VARIANTS["hinge.paraphrase"] = [
    '''
def hinge_paraphrase_loss(scores, labels, floor=0.7, hinge="paper"):
    scores, y = wide(scores), signed_labels(labels)
    above = F.relu(scores - floor)
    pull = 1 - scores if hinge == "open_positive" else 1 - floor - above
    return ((1 + y) / 2 * pull + (1 - y) / 2 * above).mean()
''',
    '''
def hinge_paraphrase_loss(scores, labels, floor=0.7, hinge="paper"):
    costs = []
    for c, label in zip(wide(scores), signed_labels(labels).tolist()):
        y = torch.maximum(c, torch.full_like(c, floor))
        costs.append((1 - (c if hinge == "open_positive" else y)) if label > 0 else y - floor)
    return torch.stack(costs).sum() / len(costs)
''',
]


# ---- hinge.grades
#
# Grades 0 and 5 among others, cosines on both sides of the floor, two floors, both hinges. With the open hinge also grades that are smaller than
# the floor, whose targets lie above it, and a floor below 0, where grade 0 is larger than the floor and its target is not.

def stretched_cases(generator):
    scores = torch.tensor([0.9, 0.5, -0.4, -0.6, 0.2, -0.1, 0.7]) + 0.02 * torch.rand(7, generator=generator, dtype=torch.float64)
    grades = torch.tensor([5.0, 2.4, 3.1, 0.0, 0.0, 1.2, 4.0], dtype=torch.float64)
    both = {"scores": scores, "labels": grades}
    return [Case("as printed, floor 0", both), Case("open, floor 0", {**both, "hinge": "open_positive"}), Case("floor 0.3", {**both, "floor": 0.3}),
            Case("floor 0.3, open", {**both, "floor": 0.3, "hinge": "open_positive"}), Case("a floor below 0", {**both, "floor": -0.5}),
            Case("grades below the floor, open", {**both, "labels": grades / 20, "floor": 0.3, "hinge": "open_positive"}),
            Case("a floor below 0, open", {**both, "floor": -0.5, "hinge": "open_positive"}),
            Case("whole grades", {**both, "labels": grades.long()}), Case("one pair", {"scores": scores[:1], "labels": grades[1:2]}),
            Case("every cosine right", {"scores": grades / 5, "labels": grades}),
            *halves(Case("half precision", both), "scores")]


TRIALS["hinge.grades"] = Trial(stretched_cases, run_loss, hints=(
    "Where on [h, 1] do the grades 0 and 5 go? The cost compares there, not on the scale of the grades.",
    "target = floor + (1 - floor) * grade / 5. The open hinge leaves the cosine uncut only where that target lies above the floor.",
    "cut = scores.clamp(min=floor); y = cut for \"paper\", torch.where(target > floor, scores, cut) for \"open_positive\"; F.mse_loss(y, target)."))


_WRONG_TARGET = "floor + (1 - floor) * labels / 5"

MISTAKES["hinge.grades"] = [
    mistake("    scores = wide(scores)\n", "", "F.mse_loss(y, target)", "F.mse_loss(y, target.to(y))", "In half precision the loss is computed in half, and two digits are left of it. Widen the scores first."),
    mistake("cut = scores.clamp(min=floor)", "cut = scores + (scores.clamp(min=floor) - scores).detach()",
            "The gradient passes the cut as if there were none. Below the floor it is 0."),
    mistake("target > floor, scores, cut", "labels > floor, scores, cut", "The open hinge compares the grade itself with the floor. The target has to lie above it."),
    mistake("target > floor, scores, cut", "labels > 2.5, scores, cut", "With the open hinge the upper half of the grades is left uncut. It is all that lie above the floor."),
    mistake(_WRONG_TARGET, "floor + (1 - floor) * (labels // 5)", "The grades are divided as whole numbers, so all below 5 are 0."),
    mistake("cut = scores.clamp(min=floor)", "cut = floor + (1 - floor) * scores.clamp(min=floor)", "The scores are stretched as well. Only the grades are moved onto [h, 1]."),
    mistake("    scores = wide(scores)\n", "    scores, floor = wide(scores), abs(floor)\n", "The sign of the floor is lost."),
    mistake(_WRONG_TARGET, "labels / 5", "The grades are moved to [0, 1]; with a floor they belong on [h, 1]."),
    mistake(_WRONG_TARGET, "floor + labels / 5",
            "The target of grade 5 lies above 1: what is between floor and 1 has length 1 - h."),
    mistake(_WRONG_TARGET, "floor + (1 - floor) * labels", "The grade is not divided by 5."),
    mistake("torch.where(target > floor, scores, cut)", "scores",
            "The open hinge opens every pair. Those of grade 0 should stay cut: different is different enough."),
    mistake("torch.where(target > floor, scores, cut)", "torch.where(scores > floor, scores, cut)",
            "The open hinge asks the score where it should ask the target, and opens nothing."),
    mistake("cut if hinge == \"paper\" else", "scores if hinge == \"paper\" else", "As printed, all cosines are cut at the floor; here none is."),
    mistake("F.mse_loss(y, target)", "F.mse_loss(y, target, reduction=\"sum\")", "The squares are added up; the mean is wanted."),
    mistake("F.mse_loss(y, target)", "25 * F.mse_loss((y - floor) / (1 - floor), (target - floor) / (1 - floor))",
            "The cost is measured on the scale of the grades; the report measures it on [h, 1]."),
    mistake("F.mse_loss(y, target)", "F.l1_loss(y, target)", "The distance is not squared."),
    mistake("F.mse_loss(y, target)", "F.mse_loss(y, target).sqrt() ** 2", "The cost goes through a root, whose slope at 0 is infinite: where every cosine is right the gradient is NaN."),
    mistake(_WRONG_TARGET, "(labels / 5).clamp(min=floor)", "Grades below the floor are cut to it. All of them are moved onto [h, 1]."),
    mistake(_WRONG_TARGET, "(1 - floor) * labels / 5", "The floor is not added: the grade 0 belongs on h."),
    mistake(_WRONG_TARGET, "(1 - floor) * labels / 5", "target > floor, scores", "labels > 0, scores", "The floor is not added to the target: the grade 0 belongs on h."),
    mistake(_WRONG_TARGET, "floor + (1 - floor) * (labels - 1) / 4", "The grades are taken to begin at 1. They begin at 0."),
]

VARIANTS["hinge.grades"] = [
    '''
def hinge_similarity_loss(scores, labels, floor=0.0, hinge="paper"):
    scores = wide(scores)
    height = labels.to(scores.dtype) / 5
    target = torch.lerp(torch.full_like(scores, floor), torch.ones_like(scores), height)
    closed = (hinge == "paper") | (height == 0)
    y = torch.where(closed & (scores < floor), torch.full_like(scores, floor), scores)
    return (y - target).pow(2).mean()
''',
    '''
def hinge_similarity_loss(scores, labels, floor=0.0, hinge="paper"):
    total = 0.0
    for c, label in zip(wide(scores), labels.tolist()):
        t = floor + (1 - floor) * label / 5
        y = c if hinge == "open_positive" and label > 0 else floor + F.relu(c - floor)
        total = total + (y - t) ** 2
    return total / len(scores)
''',
]


# ---- How strong are they?
