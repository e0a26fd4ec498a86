"""Mutants of `minbert.exercise_cases.losses`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.losses import (
    _WRONG_BCE,
    _WRONG_CE,
    _WRONG_MSE,
    _WRONG_PAIRS,
    _WRONG_SIGNS,
    _WRONG_SIMILARITY,
)

MUTANTS = {}


MUTANTS["losses.classes"] = [
    mistake(
        _WRONG_CE,
        "-(wide(logits).softmax(-1)[range(len(labels)), labels.long()] + 1e-12).log().mean()",
        "A small number is added to the probability, so no answer can cost more than its "
        "logarithm.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits).clamp(-50, 50), labels.long())",
        "The logits are cut off, so beyond the limit nothing is learned.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), labels.long(), ignore_index=0)",
        "Class 0 is left out. It is a class like the others.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), labels.long(), weight=1 / torch.bincount(labels.long(), "
        "minlength=logits.shape[1]).clamp(min=1).to(wide(logits)))",
        "Rare classes weigh more. All rows weigh the same.",
    ),
    mistake(
        _WRONG_CE,
        "(wide(logits).logsumexp(1).detach() - wide(logits)[range(len(labels)), "
        "labels.long()]).mean()",
        "The normaliser is detached, so the right logit is pushed up and no other down.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), labels.long()) / 0.6931471805599453",
        "The loss is in bits. Nats were promised.",
    ),
    mistake(
        _WRONG_CE,
        "(F.binary_cross_entropy_with_logits(wide(logits)[:, 1], labels) if logits.shape[1] == "
        "2 else F.cross_entropy(wide(logits), labels.long()))",
        "With two classes the second logit is read alone. It is the difference of the two that "
        "counts.",
    ),
    mistake(
        _WRONG_CE,
        'F.cross_entropy(wide(logits), labels.long(), reduction="sum") / logits.numel()',
        "The sum is divided by B times C, where B rows have a cost each.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).softmax(-1).log()[range(len(labels)), labels.long()].mean()",
        "The softmax is taken before its logarithm: a small share is rounded to 0, and costs "
        "infinity.",
    ),
    mistake(
        _WRONG_CE,
        "-(wide(logits).softmax(-1)[range(len(labels)), labels.long()] + 1e-9).log().mean()",
        "1e-9 is added to the probability, so no answer can cost more than its logarithm, 20.7.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits), labels.long(), label_smoothing=0.1)",
        "The labels are smoothed: that is another loss, whose best value is not 0.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits).nan_to_num(0.0), labels.long())",
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        _WRONG_CE,
        "F.binary_cross_entropy_with_logits(wide(logits), F.one_hot(labels.long(), "
        "logits.shape[-1]).to(wide(logits).dtype))",
        "Each class is a yes or no of its own here. The classes share one softmax.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).softmax(-1).gather(1, labels.long()[:, None]).mean().log()",
        "The probabilities are averaged before the logarithm. The mean is one of logarithms.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).log_softmax(-1).mean()",
        "The labels are not used: the log-probabilities of all classes are averaged.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(logits.float(), labels.long())",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]


MUTANTS["losses.paraphrase"] = [
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy(wide(logits).sigmoid(), labels)",
        "The logarithm is taken of a sigmoid, which is exactly 0 or 1 for large logits, or the "
        "logits are cut off at 100.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), (labels > 0).to(labels))",
        "Labels between 0 and 1 are taken for 1.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), (labels == 1).to(labels))",
        "Labels between 0 and 1 are taken for 0.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits).clamp(-30, 30), labels)",
        "The logits are cut off, so beyond the limit nothing is learned.",
    ),
    mistake(
        _WRONG_BCE,
        "(F.softplus(wide(logits), threshold=5) - labels * wide(logits)).mean()",
        "log(1 + e^z) is taken for z too early: at z = 5 the third digit is wrong.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), labels, weight=torch.where(labels > 0.5, 0.5 "
        "/ (labels > 0.5).sum(), 0.5 / (labels <= 0.5).sum()) * len(labels))",
        "Yes and no weigh the same however many there are. All rows weigh the same.",
    ),
    mistake(
        _WRONG_BCE,
        "-(labels * logits.sigmoid().log() + (1 - labels) * (1 - logits.sigmoid()).log()).mean()",
        "The sigmoid is taken before the logarithm, so a sure mistake costs infinity and its "
        "gradient is NaN; and in half precision it is computed in half.",
    ),
    mistake(
        _WRONG_BCE,
        "(torch.log1p(wide(logits).exp()) - labels * wide(logits)).mean()",
        "e^z is taken as it is: from z = 710 on it is infinite, and so is the cost.",
    ),
    mistake(
        _WRONG_BCE,
        "-(labels * F.logsigmoid(wide(logits))).mean()",
        "Only the yeses are charged. Saying yes to everything would be free.",
    ),
    mistake(
        _WRONG_BCE,
        "F.softplus(wide(logits) * (1 - 2 * labels)).mean()",
        "The label is made a sign, which is right for 0 and 1 alone; a label between them "
        "should count in part for both.",
    ),
    mistake(
        _WRONG_BCE,
        "-(labels * F.logsigmoid(wide(logits)) + (1 - labels) * (1 - F.logsigmoid(wide(logits)))).mean()",
        "A no is charged with 1 - log s. It is the logarithm of 1 - s.",
    ),
    mistake(
        _WRONG_BCE,
        "F.cross_entropy(wide(logits), labels)",
        "A softmax runs over the batch, so pairs compete with one another. Each logit has a "
        "sigmoid of its own.",
    ),
    mistake(
        _WRONG_BCE, _WRONG_BCE + " / 0.6931471805599453", "The loss is in bits. Nats were promised."
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(logits.float(), labels.float())",
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


MUTANTS["losses.signs"] = [
    mistake(
        _WRONG_SIGNS,
        "return 2 * y - y.max() if (y >= 0).all() else y",
        "The largest label is subtracted, where 1 should be: a batch of zeros alone stays 0.",
    ),
]


MUTANTS["losses.clipped_pairs"] = [
    mistake(
        "    cosines = wide(cosines)\n",
        "",
        "In half precision the loss is computed in half precision and keeps about two digits.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, clipped - threshold).square().mean()",
        "The losses are squared.",
    ),
    mistake(
        "clipped = cosines.clamp(min=threshold)",
        "clipped = cosines + (cosines.clamp(min=threshold) - cosines).detach()",
        "The gradient passes the clipping as if there were none. Below the threshold it is 0.",
    ),
    mistake(
        "clipped = cosines.clamp(min=threshold)",
        "threshold = 0.7\n    clipped = cosines.clamp(min=threshold)",
        "`threshold` is not used: it is always 0.7.",
    ),
    mistake(
        _WRONG_SIMILARITY,
        "clipped if clip_positives else cosines.clamp(min=0)",
        "Without clip_positives the positives are clipped at 0. They are not clipped at all.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, (1 - similarity).relu(), clipped - threshold).mean()",
        "The loss of positives is clipped at 0, where its gradient is lost: at cosine 1 it is "
        "still -1.",
    ),
    mistake(
        _WRONG_PAIRS,
        "sum(x.sum() / max(1, len(x)) for x in ((1 - similarity)[positive], (clipped - "
        "threshold)[~positive]))",
        "Positives and negatives are averaged separately and added. All pairs have one mean.",
    ),
    mistake(
        _WRONG_SIMILARITY,
        "clipped",
        "Positives are always clipped, so those below the threshold never get a gradient.",
    ),
    mistake(
        _WRONG_SIMILARITY,
        "cosines if clip_positives else clipped",
        "The two variants are swapped.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, similarity - threshold).mean()",
        "Without clip_positives the negatives are not clipped either, so they are pushed below "
        "the threshold.",
    ),
    mistake(
        _WRONG_PAIRS,
        "(1 - similarity)[positive].sum() / len(cosines) + (clipped - "
        "threshold)[~positive].mean().nan_to_num()",
        "The negatives are averaged among themselves; there is one mean, over all pairs.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, (1 - similarity) / (1 - threshold), (clipped - threshold) / (1 - "
        "threshold)).mean()",
        "The losses are rescaled to [0, 1]; the report leaves them as they are.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - threshold - similarity, clipped - threshold).mean()",
        "The threshold is subtracted for positives as well. Their loss is the distance to 1.",
    ),
    mistake(
        "cosines = wide(cosines)\n",
        "cosines = cosines.float()\n",
        "float64 becomes float32. A wider type should stay as it is.",
    ),
]
