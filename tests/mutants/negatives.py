"""Mutants of `minbert.exercise_cases.negatives`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.negatives import _UNIT, _WRONG_HARD, _WRONG_LOGITS, _WRONG_PRICE

MUTANTS = {}


MUTANTS["negatives.scores"] = [
    mistake(
        _UNIT,
        "a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)",
        "A vector of zeros is divided by its length, 0. Its cosine should be 0.",
    ),
    mistake(
        "    a, b = wide(a), wide(b)\n",
        '    a, b = (wide(a), wide(b)) if score == "dot" else (a, b)\n    unit = lambda x: F.normalize(x, dim=-1)\n',
        "The cosine is computed in half precision if the vectors are.",
    ),
    mistake(
        "enabled=False",
        "enabled=torch.is_autocast_enabled(a.device.type)",
        "Under autocast the product is rounded to bfloat16.",
    ),
    mistake(
        "return a @ b.T",
        'return a @ b.T if score == "cosine" else (a @ b.T) / a.shape[-1] ** 0.5',
        "The dot product is divided by √D, as in attention.",
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
        "hard, score)], dim=1)",
        "hard, score)], dim=0)",
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
        "(loss + F.cross_entropy(logits.T, own)) / 2",
        "loss + F.cross_entropy(logits.T, own)",
        "Both directions are added; the loss is their mean.",
    ),
    mistake(
        "(loss + F.cross_entropy(logits.T, own)) / 2",
        "F.cross_entropy(logits.T, own)",
        "Symmetric means both directions, not the other one.",
    ),
    mistake(
        "F.cross_entropy(logits.T, own)",
        "F.cross_entropy(torch.cat([logits.T, candidates[:, len(logits) :]], dim=1), own)",
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
        "table = candidates\n"
        "    others = table.masked_fill(torch.eye(*table.shape, dtype=torch.bool), "
        "-torch.inf)\n"
        "    loss "
        "= (others.logsumexp(1) - logits.diagonal()).mean()",
        "The right answer is missing in the sum below the fraction, so the loss falls below 0 "
        "without end.",
    ),
    mistake(
        _WRONG_PRICE,
        "-(candidates.exp().diagonal() / candidates.exp().sum(1)).log().mean()",
        "Exponentials are taken of the logits as they are; dot products of wide vectors "
        "overflow, and the loss becomes NaN.",
    ),
    mistake(
        _WRONG_PRICE,
        "-candidates.softmax(1).diagonal().log().mean()",
        "The logarithm is taken of the finished softmax. Where the right answer is far below, "
        "its share is rounded to 0 and the loss becomes infinite.",
    ),
    mistake(
        _WRONG_PRICE,
        "-(candidates.softmax(1).diagonal() + 1e-12).log().mean()",
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
        "(1 - candidates.softmax(1).diagonal()).mean()",
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


MUTANTS["negatives.clusters"] = [
    mistake(
        "parent[root(a)] = root(b)",
        "parent[a] = root(b)",
        "The sentence itself is turned to another cluster, and those behind it stay: a root "
        "has to point to a root.",
    ),
    mistake(
        "    return torch.tensor([number[root(a)] for a, _ in rows], dtype=torch.int64)",
        "    number, found = {}, []\n"
        "    parent.clear()\n"
        "    for a, b in rows:\n"
        "        parent[root(a)] = root(b)\n"
        "        "
        "found.append(number.setdefault(root(a), len(number)))\n"
        "    return torch.tensor(found, dtype=torch.int64)",
        "The numbers are given out while pairs still come in. A later pair may join clusters "
        "that have a number each.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        '"".join(text.casefold().split())',
        "Blanks are taken out, so two words count as one long word.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        '" ".join(text.casefold().split()).rstrip(".?!")',
        "A sign at the end is dropped: a question and its answer become one sentence.",
    ),
    mistake(
        "text.casefold().split()",
        "sorted(text.casefold().split())",
        "The order of the words is lost.",
    ),
    mistake(
        "text.casefold().split()",
        "''.join(c if c.isalnum() else ' ' for c in text.casefold()).split()",
        "All signs are dropped, so C and C++ are the same sentence.",
    ),
    mistake(
        "    rows = []",
        "    first[:] = [text.casefold() for text in first]\n    rows = []",
        "The caller's sentences are changed. They are only to be compared in small letters.",
    ),
    mistake(
        '" ".join(text.casefold().split())',
        "text.casefold().strip()",
        "Only blanks at the ends are cut off. Several in a row count as one.",
    ),
]


MUTANTS["negatives.collision"] = [
    mistake(
        "groups.unique(return_counts=True)[1].double()",
        "(groups - groups.min()).bincount()[: len(groups.unique())].double()",
        "The numbers of the groups are taken for 0, 1, 2, ...; they may have holes.",
    ),
]
