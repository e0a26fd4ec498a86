"""Mutants of `minbert.exercise_cases.negatives`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.negatives import _WRONG_DOT, _WRONG_HARD, _WRONG_LOGITS, _WRONG_PRICE

MUTANTS = {}


MUTANTS["negatives.scores"] = [
    mistake(
        "return _cosines(a, b)",
        "return (wide(a) / wide(a).norm(dim=-1, keepdim=True)) @ (wide(b) / "
        "wide(b).norm(dim=-1, keepdim=True)).T",
        "A vector of zeros is divided by its length, 0. Its cosine should be 0.",
    ),
    mistake(
        "return _cosines(a, b)",
        "return (F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T)",
        "The cosine is computed in half precision when the vectors come so, and rounded under "
        "autocast; it should be widened to single.",
    ),
    mistake(
        "max(1, chunk // len(b))", "len(a)", "`chunk` is not used: the head gets all pairs at once."
    ),
    mistake(
        "max(1, chunk // len(b))",
        "chunk",
        "`chunk` counts pairs, and here it is taken for a number of rows.",
    ),
    mistake(
        "    with torch.autocast(a.device.type, enabled=False):\n        return a @ b.T if",
        '    with torch.autocast(a.device.type, enabled=score != "dot" and '
        "torch.is_autocast_enabled(a.device.type)):\n"
        "        return a @ b.T if",
        "The head is called under autocast: its products are rounded to bfloat16.",
    ),
    mistake(
        "a, b = wide(a), wide(b)\n",
        'a, b = (wide(a), wide(b)) if score == "dot" else (a, b)\n',
        "Half precision is not widened for a head.",
    ),
    mistake(
        "enabled=False",
        "enabled=torch.is_autocast_enabled(a.device.type)",
        "Under autocast the product is rounded to bfloat16.",
    ),
    mistake(
        _WRONG_DOT,
        _WRONG_DOT.replace("a @ b.T", "(a @ b.T) / a.shape[-1] ** 0.5"),
        "The dot product is divided by √D, as in attention. Here it is taken as it is.",
    ),
]


MUTANTS["negatives.duplicates"] = [
    mistake(
        "own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)",
        "own = scores == scores.diagonal()[:, None]",
        "The right answer is found by its score; another cell may have the same one.",
    ),
    mistake(
        "groups[:, None] == groups",
        "torch.nn.functional.pad(groups[1:] == groups[:-1], (0, 1)).diag().roll(1, 1)",
        "Twins are looked for among neighbours only; they can stand anywhere in the batch.",
    ),
]


MUTANTS["negatives.loss"] = [
    mistake(
        _WRONG_HARD,
        _WRONG_HARD.replace("scale * ", ""),
        "The scores of the hard negatives are not scaled, so next to the others they hardly count.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(
            "score_matrix(anchors, positives, score)",
            "(F.normalize(wide(anchors), dim=-1) @ F.normalize(wide(positives), dim=-1).T "
            'if score == "cosine" else score_matrix(anchors, positives, score))',
        ),
        "The vectors are multiplied by hand, and under autocast that product is rounded to "
        "bfloat16. `score_matrix` keeps it whole.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS
        + (
            ".fill_diagonal_(-torch.inf) if groups is not None else scale * score_matrix(anchors, "
            "positives, score)"
        ),
        "With groups the diagonal is hidden as well, and with it the right answer.",
    ),
    mistake(
        "logits = " + _WRONG_LOGITS,
        "logits = scale * score_matrix(anchors, positives, score)\n"
        "    if groups is not None:\n"
        "        logits = torch.where(hide_duplicates(logits, "
        "groups) == -torch.inf, 0.0, logits)",
        "A twin gets a score of 0, and exp 0 is 1: it still counts as a wrong answer.",
    ),
    mistake(
        _WRONG_PRICE,
        "F.cross_entropy(torch.cat([logits, *wrong], dim=0), own)",
        "The hard negatives are put below the table, as anchors. They are more choices for the "
        "same anchors, more columns.",
    ),
    mistake(
        _WRONG_HARD,
        _WRONG_HARD + ".diagonal()[:, None]",
        "Each anchor gets only its own hard negative. They are wrong for every anchor, and all "
        "of them are choices.",
    ),
    mistake(
        _WRONG_HARD,
        "hide_duplicates(" + _WRONG_HARD + ", groups)",
        "The groups hide hard negatives too. They say nothing about those.",
    ),
    mistake(
        _WRONG_HARD,
        _WRONG_HARD.replace("anchors", "positives"),
        "The hard negatives are compared with the positives; the anchor is who chooses.",
    ),
    mistake(
        "/ 2 if symmetric else loss",
        "if symmetric else loss",
        "Both directions are added; the loss is their mean.",
    ),
    mistake(
        "(loss + F.cross_entropy(logits.T, own)) / 2 if symmetric else loss",
        "F.cross_entropy(logits.T, own) if symmetric else loss",
        "Symmetric means both directions, not the other one.",
    ),
    mistake(
        "F.cross_entropy(logits.T, own)",
        "F.cross_entropy(torch.cat([logits.T, *wrong], dim=1), own)",
        "The hard negatives stand in the other direction too, where a positive looks for its "
        "anchor. They are sentences that are wrong for anchors.",
    ),
    mistake(
        _WRONG_PRICE,
        _WRONG_PRICE.replace("own)", "torch.zeros_like(own))"),
        "Every row has column 0 as its right answer. Row i belongs to column i.",
    ),
    mistake(
        "loss = " + _WRONG_PRICE,
        "table = torch.cat([logits, *wrong], dim=1)\n"
        "    others = table.masked_fill(torch.eye(*table.shape, dtype=torch.bool), "
        "-torch.inf)\n"
        "    loss "
        "= (others.logsumexp(1) - logits.diagonal()).mean()",
        "The right answer is missing in the sum below the fraction, so the loss falls below 0 "
        "without end.",
    ),
    mistake(
        _WRONG_PRICE,
        "-(torch.cat([logits, *wrong], dim=1).exp().diagonal() / torch.cat([logits, *wrong], "
        "dim=1).exp().sum(1)).log().mean()",
        "Exponentials are taken of the logits as they are; dot products of wide vectors "
        "overflow, and the loss becomes NaN.",
    ),
    mistake(
        _WRONG_PRICE,
        "-torch.cat([logits, *wrong], dim=1).softmax(1).diagonal().log().mean()",
        "The logarithm is taken of the finished softmax. Where the right answer is far below, "
        "its share is rounded to 0 and the loss becomes infinite.",
    ),
    mistake(
        _WRONG_PRICE,
        "-(torch.cat([logits, *wrong], dim=1).softmax(1).diagonal() + 1e-12).log().mean()",
        "A small number is added to the shares before the logarithm: where the right answer is "
        "far below, the loss is too small and hardly anything pulls.",
    ),
    mistake(
        "    loss = " + _WRONG_PRICE,
        "    logits = torch.where(logits.isinf(), logits, logits.clamp(-50, 50))\n    loss = "
        + _WRONG_PRICE,
        "The logits are cut off: beyond that no score counts, and nothing pulls.",
    ),
    mistake(
        _WRONG_HARD,
        _WRONG_HARD.replace("hard, score", "hard.detach(), score"),
        "The hard negatives are detached, so nothing pushes them away.",
    ),
    mistake(
        _WRONG_PRICE,
        "-" + _WRONG_PRICE,
        "The sign is wrong: minimizing this pushes the pairs apart.",
    ),
    mistake(
        _WRONG_LOGITS,
        _WRONG_LOGITS.replace(
            "score_matrix(anchors, positives, score)",
            '(score_matrix(anchors, positives, score) if score != "cosine" else '
            "score_matrix(F.normalize(wide(anchors), dim=-1), F.normalize(wide(positives), "
            'dim=-1), "dot"))',
        ),
        "A vector of zeros is divided by 1e-12, as `F.normalize` does, so its gradient is a "
        "million million times too large. `score_matrix` divides by nothing there.",
    ),
    mistake(
        _WRONG_PRICE,
        "(1 - torch.cat([logits, *wrong], dim=1).softmax(1).diagonal()).mean()",
        "The logarithm is missing: this is one minus the probability.",
    ),
    mistake(
        "score_matrix(anchors, positives, score)",
        "score_matrix(anchors, anchors, score)",
        "The anchors are compared with themselves. Their choices are the positives.",
    ),
    mistake(
        "(loss + F.cross_entropy(logits.T, own)) / 2",
        "loss + F.cross_entropy(logits.T, own) / 2",
        "Only the second direction is halved. The loss is the mean of both.",
    ),
]
