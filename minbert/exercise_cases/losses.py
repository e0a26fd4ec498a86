"""Exercise cases of chapter 10: losses for classification, pairs and similarity."""

import math

import torch

from minbert.course.check_runner import Case, Trial, fixed, halves, mistake, with_gradients

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- losses.classes
#
# All exercises of this module compare the loss and its gradient. Seven rows and five classes, one
# row, two classes, logits of a thousand, NaN, labels as floats, half precision (values only,
# because half-precision gradients are too coarse).


def spoilt(x):
    """The same with a NaN in the second row."""
    x = x.clone()
    x[1] = math.nan
    return x


def classes_cases(generator):
    logits = 2 * fixed(generator, 7, 5)
    labels = torch.randint(5, (7,), generator=generator)
    return [
        Case("seven rows, five classes", {"logits": logits, "labels": labels}),
        Case("one row", {"logits": logits[:1], "labels": labels[:1]}),
        Case("two classes", {"logits": logits[:, :2], "labels": labels % 2}),
        Case("labels as floats", {"logits": logits, "labels": labels.double()}),
        Case("labels as unsigned bytes", {"logits": logits, "labels": labels.to(torch.uint8)}),
        Case("logits of a thousand", {"logits": 1000 * logits, "labels": labels}),
        Case("all logits near a thousand", {"logits": 1000 + logits, "labels": labels}),
        Case("NaN in one row", {"logits": spoilt(logits), "labels": labels}),
        *halves(Case("half precision", {"logits": 8 * logits, "labels": labels}), "logits"),
    ]


def run_loss(loss, inputs):
    """Loss and gradient, and whether the cost is as wide as what it is made of; in half
    precision the cost alone."""
    first = next(iter(inputs))
    if inputs[first].dtype in (torch.bfloat16, torch.float16):
        return {"output": loss(**inputs).double()}
    found = with_gradients(loss, inputs, first)
    return found | {
        f"dtype as wide as that of the {first}": torch.promote_types(
            found["output"].dtype, inputs[first].dtype
        )
        == found["output"].dtype
    }


TRIALS["losses.classes"] = Trial(
    classes_cases,
    run_loss,
    hints=(
        (
            "Which log-probability of each example is its negative loss? Select one per example, then "
            "take the mean."
        ),
        (
            "Never take exp of a logit and then log of the result: log_softmax and "
            "F.cross_entropy do both at once, without overflow. They expect int64 labels."
        ),
        (
            "F.cross_entropy(wide(logits), labels.long()) expects logits and averages over the "
            "examples."
        ),
    ),
)


_WRONG_CE = "F.cross_entropy(wide(logits), labels.long())"

MISTAKES["losses.classes"] = [
    mistake(
        _WRONG_CE,
        "F.cross_entropy(logits, labels.long())",
        "In half precision the loss is computed in half precision and keeps about two digits. "
        "Convert the logits to float32 first.",
    ),
    mistake(
        _WRONG_CE,
        "F.cross_entropy(wide(logits).softmax(-1), labels.long())",
        "A softmax is applied before the cross-entropy, which expects logits.",
    ),
    mistake(
        _WRONG_CE,
        "F.nll_loss(wide(logits), labels.long())",
        "The logits are used as log-probabilities: the log-softmax is missing.",
    ),
    mistake(
        _WRONG_CE,
        "F.nll_loss(wide(logits).softmax(-1), labels.long())",
        "The loss is the negative probability. The logarithm is missing.",
    ),
    mistake(
        _WRONG_CE,
        'F.cross_entropy(wide(logits), labels.long(), reduction="sum")',
        "The losses are summed. Use the mean, so that the step size does not depend on the "
        "batch size.",
    ),
    mistake(
        _WRONG_CE,
        "-(wide(logits).exp() / wide(logits).exp().sum(-1, "
        "keepdim=True)).log()[range(len(labels)), labels.long()].mean()",
        "The softmax is computed with `exp` directly, so large logits overflow. Use "
        "`cross_entropy` or `log_softmax`.",
    ),
    mistake(
        _WRONG_CE,
        "-wide(logits).log_softmax(0)[range(len(labels)), labels.long()].mean()",
        "The softmax runs over the batch. It should run over the classes.",
    ),
    mistake(
        _WRONG_CE,
        "-F.cross_entropy(wide(logits), labels.long())",
        "The sign is wrong: better predictions get a higher loss.",
    ),
]

VARIANTS["losses.classes"] = [
    """
def classes_loss(logits, labels):
    logits, rows = wide(logits), torch.arange(len(logits))
    return (logits.logsumexp(1) - logits[rows, labels.long()]).mean()
""",
    """
def classes_loss(logits, labels):
    total = 0
    for row, label in zip(wide(logits), labels):
        total = total - (F.one_hot(label.long(), len(row)) * torch.log_softmax(row, 0)).sum()
    return total / len(labels)
""",
]


# ---- losses.paraphrase
#
# Labels of 0 and 1, as numbers and as booleans, and labels between; logits of ±800 and more,
# where the direct logarithm of a sigmoid is minus infinity; half precision.


def yes_cases(generator):
    z = 3 * fixed(generator, 8)
    y = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1])
    return [
        Case("yes and no", {"logits": z, "labels": y}),
        Case("one pair", {"logits": z[:1], "labels": y[1:2]}),
        Case("truth values", {"logits": z, "labels": y == 1}),
        Case("unsigned bytes", {"logits": z, "labels": y.to(torch.uint8)}),
        Case(
            "labels between 0 and 1",
            {
                "logits": z,
                "labels": (
                    torch.arange(8) + torch.rand(8, generator=generator, dtype=torch.float64)
                )
                / 8,
            },
        ),
        Case(
            "logits of a thousand, right and wrong",
            {"logits": 800 * (1 + z.abs()) * torch.tensor([1, -1]).repeat(4), "labels": y},
        ),
        Case("logits between 5 and 15", {"logits": 5 + z.abs(), "labels": y}),
        *halves(Case("half precision", {"logits": z, "labels": y}), "logits"),
    ]


TRIALS["losses.paraphrase"] = Trial(
    yes_cases,
    run_loss,
    hints=(
        (
            "There are two terms, one for label 1 and one for label 0. Which sign does the logit "
            "have in each?"
        ),
        (
            "log of sigmoid overflows for logits far below 0. F.logsigmoid does not, nor does "
            "anything that ends in with_logits."
        ),
        (
            "F.binary_cross_entropy_with_logits(wide(logits), labels), where check_labels has "
            "converted the labels to floats."
        ),
    ),
)


_WRONG_BCE = "F.binary_cross_entropy_with_logits(wide(logits), labels)"

MISTAKES["losses.paraphrase"] = [
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(logits, labels.to(logits))",
        "In half precision the loss is computed in half precision and keeps about two digits. "
        "Convert the logits to float32 first.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), 1 - labels)",
        "The labels are inverted.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits).sigmoid(), labels)",
        "The sigmoid is applied twice: the loss function expects logits.",
    ),
    mistake(
        _WRONG_BCE,
        "F.mse_loss(wide(logits).sigmoid(), labels)",
        "This is the squared error of the probability, whose gradient vanishes for confident "
        "wrong predictions. Use the cross-entropy.",
    ),
    mistake(
        _WRONG_BCE,
        "-(labels * wide(logits).sigmoid().log() + (1 - labels) * (1 - wide(logits).sigmoid()).log()).mean()",
        "The logarithm of a sigmoid is not stable: confident wrong predictions give an infinite "
        "loss and NaN gradients. Use logits.",
    ),
    mistake(
        _WRONG_BCE,
        'F.binary_cross_entropy_with_logits(wide(logits), labels, reduction="sum")',
        "The losses are summed. Use the mean.",
    ),
    mistake(
        _WRONG_BCE,
        "F.binary_cross_entropy_with_logits(wide(logits), labels.round())",
        "Labels between 0 and 1 are rounded. They are soft labels and weight both classes.",
    ),
    mistake(
        _WRONG_BCE,
        "-(labels * F.logsigmoid(wide(logits)) + (1 - labels) * F.logsigmoid(wide(logits))).mean()",
        "The negative class gets the loss of the positive class. The sign of its logit has to "
        "change.",
    ),
]

VARIANTS["losses.paraphrase"] = [
    """
def paraphrase_loss(logits, labels):
    z, y = wide(logits), labels.to(wide(logits).dtype)
    return (z.clamp(min=0) - z * y + torch.log1p(torch.exp(-z.abs()))).mean()
""",
    """
def paraphrase_loss(logits, labels):
    z = wide(logits)
    both = torch.stack([F.logsigmoid(-z), F.logsigmoid(z)])
    y = labels.to(z.dtype)
    return -torch.einsum("cb,cb->", both, torch.stack([1 - y, y])) / len(y)
""",
]


# ---- losses.similarity
#
# Scores inside and outside of the scale, integer labels, one pair, half precision.


def grade_cases(generator):
    scores, grades = (
        2 + 3 * fixed(generator, 6),
        5 * torch.rand(6, generator=generator, dtype=torch.float64),
    )
    wild = {
        "scores": torch.cat([scores, torch.tensor([-2.0, 8.0])]),
        "labels": torch.cat([grades, grades[:2]]),
    }
    return [
        Case("scores inside and outside of the scale", wild),
        Case("every score right", {"scores": grades, "labels": grades}),
        Case("NaN for one pair", {"scores": spoilt(scores), "labels": grades}),
        Case("one pair", {"scores": scores[:1], "labels": grades[:1]}),
        Case("whole grades", {"scores": scores, "labels": grades.round().long()}),
        Case(
            "grades as unsigned bytes", {"scores": scores, "labels": grades.round().to(torch.uint8)}
        ),
        *halves(Case("half precision", {"scores": 100 * scores, "labels": grades}), "scores"),
    ]


TRIALS["losses.similarity"] = Trial(
    grade_cases,
    run_loss,
    hints=(
        "One squared difference per pair, then the mean. Nothing is clipped or rescaled.",
        "Compare the gradient for an error of 4 with that of the formula, which grows with the error.",
        "F.mse_loss(wide(scores), labels).",
    ),
)


_WRONG_MSE = "F.mse_loss(wide(scores), labels)"

MISTAKES["losses.similarity"] = [
    mistake(
        _WRONG_MSE,
        "F.mse_loss(scores, labels.to(scores))",
        "In half precision the loss is computed in half precision and keeps about two digits. "
        "Convert the scores to float32 first.",
    ),
    mistake(
        _WRONG_MSE,
        "F.huber_loss(wide(scores), labels)",
        "This is the Huber loss, which is linear for large errors. The squared error is expected.",
    ),
    mistake(
        _WRONG_MSE,
        "F.l1_loss(wide(scores), labels)",
        "This is the absolute error. The squared error is expected.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels).sqrt()",
        "The square root of the mean is returned. The mean squared error is expected.",
    ),
    mistake(
        _WRONG_MSE,
        'F.mse_loss(wide(scores), labels, reduction="sum")',
        "The squared errors are summed. Use their mean.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores).clamp(0, 5), labels)",
        "The scores are clipped to [0, 5], so scores outside get no gradient.",
    ),
    mistake(
        _WRONG_MSE,
        "F.mse_loss(wide(scores), labels / 5)",
        "The labels are scaled to [0, 1]. Scores and labels both range from 0 to 5.",
    ),
    mistake(
        _WRONG_MSE,
        "(wide(scores)[:, None] - labels).square().mean()",
        "(B, 1) against (B,) broadcasts to (B, B), so every score is compared with every label.",
    ),
]

VARIANTS["losses.similarity"] = [
    """
def similarity_loss(scores, labels):
    gap = wide(scores) - labels.to(wide(scores).dtype)
    return gap @ gap / len(gap)
""",
    """
def similarity_loss(scores, labels):
    return sum((s - y) ** 2 for s, y in zip(wide(scores), labels)) / len(labels)
""",
]


# ---- losses.signs
#
# Both conventions in several dtypes, and batches that contain one label only.


def sign_cases(generator):
    bits = torch.randint(2, (9,), generator=generator)
    bits[:2] = torch.tensor([0, 1])
    rows = {
        "0 and 1": bits,
        "-1 and 1": 2 * bits - 1,
        "truth values": bits == 1,
        "0.0 and 1.0": bits.double(),
        "-1.0 and 1.0": 2.0 * bits - 1,
        "single precision": bits.float(),
        "unsigned bytes": bits.to(torch.uint8),
        "signed bytes, -1 and 1": (2 * bits - 1).to(torch.int8),
        "all 0": bits[:1],
        "all 1": bits[1:2],
        "all -1": bits[:1] - 1,
    }
    return [Case(label, {"labels": x}) for label, x in rows.items()]


TRIALS["losses.signs"] = Trial(
    sign_cases,
    lambda sign, inputs: {
        "signs": (signs := sign(**inputs)),
        "float32 as promised": signs.dtype == torch.float32,
    },
    hints=(
        "What does a label of 0 become, and what does a label of -1 become?",
        "2 y - 1 is correct for labels of 0 and 1. What is it for -1?",
        "Replace only the zeros: torch.where(y == 0, -1.0, y) with y = labels.float().",
    ),
)


_WRONG_SIGNS = "return torch.where(y == 0, -1.0, y)"

MISTAKES["losses.signs"] = [
    mistake(
        "y = labels.float()", "y = labels.double()", "The result is float64. float32 is expected."
    ),
    mistake(
        _WRONG_SIGNS,
        _WRONG_SIGNS + ".to(labels.dtype)",
        "The result keeps the dtype of the labels. float32 is expected.",
    ),
    mistake(
        _WRONG_SIGNS,
        _WRONG_SIGNS + " if (y >= 0).any() else 2 * y - 1",
        "A batch that contains only -1 is not recognized as labels of -1 and 1.",
    ),
    mistake(_WRONG_SIGNS, "return 2 * y - 1", "Labels of -1 become -3. Only 0 has to be replaced."),
    mistake(
        "y = labels.float()",
        "y = labels",
        _WRONG_SIGNS,
        "return (2 * y - 1 if y.min() == 0 else y).float()",
        "The arithmetic is done in the dtype of the labels, where 0 - 1 can be 255 (uint8). "
        "Convert to float first.",
    ),
    mistake(
        _WRONG_SIGNS,
        "return y",
        "Labels of 0 stay 0, so those pairs count neither as positive nor as negative.",
    ),
    mistake(
        _WRONG_SIGNS,
        "return -torch.where(y == 0, -1.0, y)",
        "Positive and negative labels are swapped.",
    ),
    mistake(
        _WRONG_SIGNS, _WRONG_SIGNS + ".long()", "Integers are returned. The loss needs float32."
    ),
]

VARIANTS["losses.signs"] = [
    """
def signed_labels(labels):
    return torch.where(labels.float() > 0, 1.0, -1.0)
""",
    """
def signed_labels(labels):
    return torch.tensor([1.0 if y > 0.5 else -1.0 for y in labels.tolist()])
""",
]


# ---- losses.clipped_pairs
#
# Cosines on both sides of the threshold and of both signs, with both conventions of labels; both
# variants; other thresholds, including a negative one; a batch without positives. No cosine is
# exactly at the threshold, where the gradient is ambiguous.


def clipped_cases(generator):
    cosines = torch.tensor(
        [0.95, 0.8, 0.75, 0.4, 0.1, -0.3, 0.9, 0.55, -0.8, 1.0, 1.0]
    ) + 0.02 * torch.rand(11, generator=generator, dtype=torch.float64)
    cosines[-2:] = 1.0
    labels = torch.tensor([1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1])
    both = {"cosines": cosines, "labels": labels}
    return [
        Case("clipped positives", both),
        Case("labels of -1 and 1", {**both, "labels": 2 * labels - 1}),
        Case("unclipped positives", {**both, "clip_positives": False}),
        Case("threshold 0.3", {**both, "threshold": 0.3}),
        Case(
            "threshold 0.3, unclipped positives",
            {**both, "threshold": 0.3, "clip_positives": False},
        ),
        Case("a threshold below 0", {**both, "threshold": -0.5}),
        Case(
            "only negatives",
            {"cosines": cosines[:3], "labels": torch.zeros(3), "clip_positives": False},
        ),
        Case("one positive without a gradient", {"cosines": cosines[3:4], "labels": labels[3:4]}),
        *halves(Case("half precision", both), "cosines"),
    ]


TRIALS["losses.clipped_pairs"] = Trial(
    clipped_cases,
    run_loss,
    hints=(
        (
            "There are two losses, one for positive and one for negative pairs. Which of the two "
            "changes with `clip_positives`?"
        ),
        (
            "clipped = cosines.clamp(min=threshold). The loss of a negative pair is always "
            "clipped - threshold."
        ),
        (
            "torch.where(positive, 1 - similarity, clipped - threshold).mean(), where similarity "
            "is clipped if clip_positives, else the cosines themselves, and "
            "positive = signed_labels(labels) > 0."
        ),
    ),
)


_WRONG_PAIRS = "torch.where(positive, 1 - similarity, clipped - threshold).mean()"
_WRONG_SIMILARITY = "clipped if clip_positives else cosines"

MISTAKES["losses.clipped_pairs"] = [
    mistake(
        _WRONG_SIMILARITY,
        "cosines",
        "Positive pairs are never clipped. With clip_positives they should be.",
    ),
    mistake(
        "signed_labels(labels).to(cosines.device) > 0",
        "signed_labels(labels).to(cosines.device) < 0",
        "The labels are inverted: paraphrases are pushed apart.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, cosines - threshold).mean()",
        "Negative pairs are not clipped, so those below the threshold get a negative loss and "
        "are pushed further apart.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, clipped).mean()",
        "The threshold is not subtracted for negative pairs. Their loss is the part of the "
        "cosine above it.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, clipped - threshold).sum()",
        "The losses are summed. Use the mean.",
    ),
    mistake(
        "cosines.clamp(min=threshold)",
        "cosines.clamp(min=0.7)",
        "The threshold is always 0.7. Use the argument.",
    ),
    mistake(
        "positive = signed_labels(labels).to(cosines.device) > 0",
        "positive = labels.to(cosines.device) != 0",
        "Labels of -1 count as positive. Convert 0/1 and -1/+1 to one convention first.",
    ),
    mistake(
        _WRONG_PAIRS,
        "torch.where(positive, 1 - similarity, threshold - clipped).mean()",
        "The sign of the loss of negative pairs is wrong: they are pulled together.",
    ),
]

VARIANTS["losses.clipped_pairs"] = [
    """
def clipped_paraphrase_loss(cosines, labels, threshold=0.7, clip_positives=True):
    cosines, y = wide(cosines), signed_labels(labels)
    above = F.relu(cosines - threshold)
    pull = 1 - threshold - above if clip_positives else 1 - cosines
    return ((1 + y) / 2 * pull + (1 - y) / 2 * above).mean()
""",
    """
def clipped_paraphrase_loss(cosines, labels, threshold=0.7, clip_positives=True):
    losses = []
    for c, label in zip(wide(cosines), signed_labels(labels).tolist()):
        y = torch.maximum(c, torch.full_like(c, threshold))
        losses.append((1 - (y if clip_positives else c)) if label > 0 else y - threshold)
    return torch.stack(losses).sum() / len(losses)
""",
]
