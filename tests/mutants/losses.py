"""Mutants of `minbert.exercise_cases.losses`: their checks must reject them all."""

from minbert.course.trials import mistake
from minbert.exercise_cases.losses import (
    _WRONG_BCE,
    _WRONG_CE,
    _WRONG_MSE,
    _WRONG_PRICE,
    _WRONG_RISING,
    _WRONG_SIGNS,
    _WRONG_TARGET,
)

MUTANTS = {}


MUTANTS["losses.classes"] = [
    mistake(
        _WRONG_CE,
        "-(wide(logits).softmax(-1)[range(len(whole)), whole.long()] + 1e-12).log().mean()",
        "A small number is added to the probability, so no answer can cost more than its "
        "logarithm.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits).clamp(-50, 50), whole.long())",
        "The logits are cut off, so beyond the limit nothing is learned.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), whole.long(), ignore_index=0)",
        "Class 0 is left out. It is a class like the others.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), whole.long(), weight=1 / torch.bincount(whole.long(), "
        "minlength=logits.shape[1]).clamp(min=1).to(wide(logits)))",
        "Rare classes weigh more. All rows weigh the same.",
    ),
    mistake(
        _WRONG_CE,
        "(wide(logits).logsumexp(1).detach() - wide(logits)[range(len(whole)), "
        "whole.long()]).mean()",
        "The normaliser is detached, so the right logit is pushed up and no other down.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), whole.long()) / 0.6931471805599453",
        "The loss is in bits. Nats were promised.",
    ),
    mistake(
        _WRONG_CE,
        "(F.binary_cross_entropy_with_logits(wide(logits)[:, 1], whole) if logits.shape[1] == "
        "2 else F.cross_entropy(wide(logits), whole.long()))",
        "With two classes the second logit is read alone. It is the difference of the two that "
        "counts.",
    ),
    mistake(
        _WRONG_CE,
        'F.cross_entropy(wide(logits), whole.long(), reduction="sum") / logits.numel()',
        "The sum is divided by B times C, where B rows have a cost each.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).softmax(-1).log()[range(len(whole)), whole.long()].mean()",
        "The softmax is taken before its logarithm: a small share is rounded to 0, and costs "
        "infinity.",
    ),
    mistake(
        _WRONG_CE,
        "-(wide(logits).softmax(-1)[range(len(whole)), whole.long()] + 1e-9).log().mean()",
        "1e-9 is added to the probability, so no answer can cost more than its logarithm, 20.7.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), whole.long(), label_smoothing=0.1)",
        "The labels are smoothed: that is another loss, whose best value is not 0.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits).nan_to_num(0.0), whole.long())",
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        _WRONG_CE,
        "F.binary_cross_entropy_with_logits(wide(logits), F.one_hot(whole.long(), "
        "logits.shape[-1]).to(wide(logits).dtype))",
        "Each class is a yes or no of its own here. The classes share one softmax.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).softmax(-1).gather(1, whole.long()[:, None]).mean().log()",
        "The probabilities are averaged before the logarithm. The mean is one of logarithms.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).log_softmax(-1).mean()",
        "The labels are not used: the log-probabilities of all classes are averaged.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(logits.float(), whole.long())",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]


MUTANTS["losses.paraphrase"] = [
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy(wide(logits).sigmoid(), y)",
        "The logarithm is taken of a sigmoid, which is exactly 0 or 1 for large logits, or the "
        "logits are cut off at 100.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), (y > 0).to(y))",
        "Labels between 0 and 1 are taken for 1.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), (y == 1).to(y))",
        "Labels between 0 and 1 are taken for 0.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits).clamp(-30, 30), y)",
        "The logits are cut off, so beyond the limit nothing is learned.",
    ),
    mistake(
        _WRONG_BCE,
        "(F.softplus(wide(logits), threshold=5) - y * wide(logits)).mean()",
        "log(1 + e^z) is taken for z too early: at z = 5 the third digit is wrong.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), y, weight=torch.where(y > 0.5, 0.5 "
        "/ (y > 0.5).sum(), 0.5 / (y <= 0.5).sum()) * len(y))",
        "Yes and no weigh the same however many there are. All rows weigh the same.",
    ),
    mistake(
        _WRONG_BCE,
        "-(y * logits.sigmoid().log() + (1 - y) * (1 - logits.sigmoid()).log()).mean()",
        "The sigmoid is taken before the logarithm, so a sure mistake costs infinity and its "
        "gradient is NaN; and in half precision it is computed in half.",
    ),
    mistake(
        _WRONG_BCE,
        "(torch.log1p(wide(logits).exp()) - y * wide(logits)).mean()",
        "e^z is taken as it is: from z = 710 on it is infinite, and so is the cost.",
    ),
    mistake(
        _WRONG_BCE,
        "-(y * F.logsigmoid(wide(logits))).mean()",
        "Only the yeses are charged. Saying yes to everything would be free.",
    ),
    mistake(
        _WRONG_BCE,
        "F.softplus(wide(logits) * (1 - 2 * y)).mean()",
        "The label is made a sign, which is right for 0 and 1 alone; a label between them "
        "should count in part for both.",
    ),
    mistake(
        _WRONG_BCE,
        "-(y * F.logsigmoid(wide(logits)) + (1 - y) * (1 - F.logsigmoid(wide(logits)))).mean()",
        "A no is charged with 1 - log s. It is the logarithm of 1 - s.",
    ),
    mistake(
        _WRONG_BCE,
        "F.cross_entropy(wide(logits), y)",
        "A softmax runs over the batch, so pairs compete with one another. Each logit has a "
        "sigmoid of its own.",
    ),
    mistake(
        _WRONG_BCE, _WRONG_BCE + " / 0.6931471805599453", "The loss is in bits. Nats were promised."
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(logits.float(), y.float())",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]


MUTANTS["losses.similarity"] = [
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels) / 25",
        "The distance is measured on a scale from 0 to 1. Squared grades were promised.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels.round())",
        "The grades are rounded. 2.4 is a grade too.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels.floor())",
        "The grades are cut to whole numbers. 2.4 is a grade too.",
    ),
    mistake(
        _WRONG_MSE,
        "(d := wide(scores) - labels).var(unbiased=False) + d.mean().detach() ** 2",
        "The mean distance is detached, so a constant error is never unlearned.",
    ),
    mistake(
        _WRONG_MSE,
        "0.5 * F.mse_loss(wide(scores), labels)",
        "There is a factor of one half that the equation does not have.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores).nan_to_num(0.0), labels)",
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels).sqrt() ** 2",
        "The cost goes through a root, whose slope at 0 is infinite: where every score is right "
        "the gradient is NaN.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(scores.float(), labels.float())",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]


MUTANTS["hinge.labels"] = [
    mistake(
        _WRONG_SIGNS,
        "return 2 * y - y.max() if (y >= 0).all() else y",
        "The largest label is subtracted, where 1 should be: a batch of zeros alone stays 0.",
    ),
]


MUTANTS["hinge.paraphrase"] = [
    mistake(
        "    scores = wide(scores)\n",
        "",
        "In half precision the loss is computed in half, and two digits are left of it. Widen "
        "the scores first.",
    ),
    mistake(
        _WRONG_PRICE,
        "torch.where(positive, 1 - rising[hinge], cut - floor).square().mean()",
        "The distances are squared.",
    ),
    mistake(
        "cut = scores.clamp(min=floor)",
        "cut = scores + (scores.clamp(min=floor) - scores).detach()",
        "The gradient passes the cut as if there were none. Below the floor it is 0.",
    ),
    mistake(
        "cut = scores.clamp(min=floor)",
        "floor = 0.7\n    cut = scores.clamp(min=floor)",
        "`floor` is not used: it is always 0.7.",
    ),
    mistake(
        _WRONG_RISING,
        '{"paper": cut, "open_positive": scores.clamp(min=0)}',
        "With the open hinge positives are cut at 0. They are not cut at all.",
    ),
    mistake(
        _WRONG_PRICE,
        "torch.where(positive, (1 - rising[hinge]).relu(), cut - floor).mean()",
        "What positives pay is cut off at 0, where its gradient is lost: at cosine 1 it is "
        "still -1.",
    ),
    mistake(
        _WRONG_PRICE,
        "sum(x.sum() / max(1, len(x)) for x in ((1 - rising[hinge])[positive], (cut - "
        "floor)[~positive]))",
        "Positives and negatives are averaged apart and added. All pairs have one mean.",
    ),
    mistake(
        _WRONG_RISING,
        '{"paper": cut, "open_positive": cut}',
        "The open hinge cuts the positives too: those below the floor stay dead.",
    ),
    mistake(
        _WRONG_RISING, '{"paper": scores, "open_positive": cut}', "The two hinges are exchanged."
    ),
    mistake(
        _WRONG_PRICE,
        "torch.where(positive, 1 - rising[hinge], rising[hinge] - floor).mean()",
        "The open hinge opens the negatives too, so they are pushed below the floor.",
    ),
    mistake(
        _WRONG_PRICE,
        "(1 - rising[hinge])[positive].sum() / len(scores) + (cut - "
        "floor)[~positive].mean().nan_to_num()",
        "The negatives are averaged among themselves; there is one mean, over all pairs.",
    ),
    mistake(
        _WRONG_PRICE,
        "torch.where(positive, (1 - rising[hinge]) / (1 - floor), (cut - floor) / (1 - "
        "floor)).mean()",
        "The costs are stretched to [0, 1]; the report leaves them as they are.",
    ),
    mistake(
        _WRONG_PRICE,
        "torch.where(positive, 1 - floor - rising[hinge], cut - floor).mean()",
        "The floor is taken off what positives pay as well. They pay what is missing to 1.",
    ),
    mistake(
        "scores = wide(scores)\n",
        "scores = scores.float()\n",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]


MUTANTS["hinge.grades"] = [
    mistake(
        "    scores = wide(scores)\n",
        "",
        "F.mse_loss(y, target)",
        "F.mse_loss(y, target.to(y))",
        "In half precision the loss is computed in half, and two digits are left of it. Widen "
        "the scores first.",
    ),
    mistake(
        "cut = scores.clamp(min=floor)",
        "cut = scores + (scores.clamp(min=floor) - scores).detach()",
        "The gradient passes the cut as if there were none. Below the floor it is 0.",
    ),
    mistake(
        "target > floor, scores, cut",
        "labels > floor, scores, cut",
        "The open hinge compares the grade itself with the floor. The target has to lie above it.",
    ),
    mistake(
        "target > floor, scores, cut",
        "labels > 2.5, scores, cut",
        "With the open hinge the upper half of the grades is left uncut. It is all that lie "
        "above the floor.",
    ),
    mistake(
        "cut = scores.clamp(min=floor)",
        "cut = floor + (1 - floor) * scores.clamp(min=floor)",
        "The scores are stretched as well. Only the grades are moved onto [h, 1].",
    ),
    mistake(
        "    scores = wide(scores)\n",
        "    scores, floor = wide(scores), abs(floor)\n",
        "The sign of the floor is lost.",
    ),
    mistake(
        _WRONG_TARGET,
        "floor + labels / 5",
        "The target of grade 5 lies above 1: what is between floor and 1 has length 1 - h.",
    ),
    mistake(
        "torch.where(target > floor, scores, cut)",
        "torch.where(scores > floor, scores, cut)",
        "The open hinge asks the score where it should ask the target, and opens nothing.",
    ),
    mistake(
        "F.mse_loss(y, target)",
        "25 * F.mse_loss((y - floor) / (1 - floor), (target - floor) / (1 - floor))",
        "The cost is measured on the scale of the grades; the report measures it on [h, 1].",
    ),
    mistake(
        "F.mse_loss(y, target)",
        "F.mse_loss(y, target).sqrt() ** 2",
        "The cost goes through a root, whose slope at 0 is infinite: where every cosine is "
        "right the gradient is NaN.",
    ),
    mistake(
        _WRONG_TARGET,
        "(labels / 5).clamp(min=floor)",
        "Grades below the floor are cut to it. All of them are moved onto [h, 1].",
    ),
    mistake(
        _WRONG_TARGET,
        "(1 - floor) * labels / 5",
        "target > floor, scores",
        "labels > 0, scores",
        "The floor is not added to the target: the grade 0 belongs on h.",
    ),
    mistake(
        _WRONG_TARGET,
        "floor + (1 - floor) * (labels - 1) / 4",
        "The grades are taken to begin at 1. They begin at 0.",
    ),
]
