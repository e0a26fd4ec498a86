"""Mutants of `minbert.exercise_cases.contrastive`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.contrastive import (
    _WRONG_DISTANCE,
    _WRONG_END,
    _WRONG_PAIR,
)

MUTANTS = {}


_WRONG_COST = "cost = y * distance.square() + (1 - y) * (margin - distance).clamp_min(0).square()"


MUTANTS["contrastive.margin"] = [
    mistake(
        "(margin - distance).clamp_min(0).square()",
        "(margin - distance).clamp_min(0)",
        "The cost of different pairs is not squared.",
    ),
    mistake(
        "y * distance.square()",
        "y * distance",
        "The cost of same pairs is the distance, not its square.",
    ),
    mistake(
        _WRONG_COST,
        "cost = y * distance + (1 - y) * (margin - distance).clamp_min(0)",
        "Neither cost is squared.",
    ),
    mistake(
        "(margin - distance).clamp_min(0)",
        "(safe_cosine(u, v) - margin).clamp_min(0)",
        "The margin is laid on the cosine, not on the distance: pairs are left alone below a "
        "cosine of m instead of 1 - m.",
    ),
    mistake(
        "y * distance.square()",
        "y * (distance - margin).clamp_min(0).square()",
        "Same pairs are left alone within a margin; they should pay for any distance.",
    ),
    mistake(
        "(margin - distance).clamp_min(0).square()",
        "(margin - distance.square()).clamp_min(0)",
        "The margin minus the squared distance is charged, not the square of what is missing to "
        "the margin.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 - F.cosine_similarity(u.to(torch.promote_types(u.dtype, "
        "torch.float32)), v.to(torch.promote_types(v.dtype, torch.float32)), dim=-1)",
        "A vector of zeros is divided by 1e-8 or the like: its gradient has length 10⁸, and one "
        "step with it ruins the model. It should get none.",
    ),
    mistake(
        "safe_cosine(u, v)",
        "safe_cosine(u, v).to(u.dtype)",
        "The loss is computed in half precision when the vectors come so; it should be widened "
        "to single.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 - F.cosine_similarity(u, v, dim=-1)",
        "Half precision is not widened, and a vector of zeros is divided by 1e-8, so that its "
        "gradient has length 10⁸.",
    ),
    mistake(
        "(margin - distance).clamp_min(0)",
        "(margin - distance.detach()).clamp_min(0)",
        "The distance is detached in the second cost, so different pairs are never pushed apart.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = (u - v).norm(dim=-1)",
        "The distance is the Euclidean one between the vectors as they are, so their lengths "
        "count.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = (unit(u) - unit(v)).norm(dim=-1)",
        "The distance is the Euclidean one between unit vectors, the square root of 2 (1 - cos).",
    ),
    mistake(
        "cost.mean() / 2",
        "(y * cost).sum() / y.sum().clamp_min(1) / 2 + ((1 - y) * cost).sum() / (1 - "
        "y).sum().clamp_min(1) / 2",
        "Same and different pairs are averaged separately, so the mean does not run over the "
        "batch.",
    ),
    mistake(
        _WRONG_COST,
        "cost = y * distance.square() + (margin - distance).clamp_min(0).square()",
        "The second cost is charged to every pair, not only to different ones.",
    ),
    mistake(
        "y * distance.square() + (1 - y)",
        "distance.square() + (1 - y)",
        "The first cost is charged to every pair, not only to same ones.",
    ),
    mistake(
        _WRONG_COST,
        _WRONG_COST.replace("y * distance.square()", "y * distance.square() / 2"),
        "cost.mean() / 2",
        "cost.mean()",
        "The factor ½ stands before the first cost only.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 - (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1))",
        "A zero vector is divided by its length: the loss becomes NaN.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = (1 - safe_cosine(u, v)) / 2",
        "The distance is halved, so it ends at 1 where 2 was meant.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = (2 - 2 * safe_cosine(u, v)).abs().sqrt().square() / 2",
        "The distance goes through a root, whose slope at 0 is infinite: equal vectors get NaN "
        "for a gradient.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 - safe_cosine(u, v).abs()",
        "The sign of the cosine is lost: opposite counts as alike.",
    ),
    mistake(
        _WRONG_DISTANCE,
        "distance = 1 + safe_cosine(u, v)",
        "The cosine is added to 1, so alike counts as far. A distance is small for what is alike.",
    ),
]


_WRONG_LABELS = "torch.arange(len(a), device=a.device)"


_WRONG_CAT = "logits = torch.cat([logits, _cosines(a, hard) / temperature], dim=1)"


MUTANTS["contrastive.infonce"] = [
    mistake(
        "(_cosines(a, b) / temperature)",
        "(_cosines(a, b) / 0.05)",
        "_cosines(a, hard) / temperature",
        "_cosines(a, hard) / 0.05",
        "The temperature is written into the code instead of taken from the argument.",
    ),
    mistake(
        "_cosines(a, hard) / temperature",
        "_cosines(a, hard)",
        "The temperature divides the partners but not the hard negatives.",
    ),
    mistake(
        _WRONG_CAT,
        "logits = torch.cat([logits, _cosines(a, hard).diagonal()[:, None] / temperature], dim=1)",
        "Each anchor sees its own hard negative only; all of them are for everybody.",
    ),
    mistake(
        "_cosines(a, hard)",
        "_cosines(b, hard)",
        "The hard negatives are compared with the partners, not with the anchors.",
    ),
    mistake(
        "_cosines(a, hard)",
        "_cosines(hard, a)",
        "The hard negatives stand in the rows and the anchors in the columns: (B, B) with the "
        "axes exchanged.",
    ),
    mistake("if hard is not None:", "if False:", "The hard negatives are not used."),
    mistake(
        _WRONG_CAT,
        "logits = torch.cat([_cosines(a, hard) / temperature, logits], dim=1)",
        "The hard negatives stand before the partners, so the labels point at them: "
        "contradictions count as right answers.",
    ),
    mistake(
        _WRONG_CAT,
        "logits = torch.cat([logits, (_cosines(a, hard) / temperature).masked_fill(_duplicates(a, "
        "groups), -torch.inf)], dim=1)",
        "Hard negatives of the same group are left out too; they always count.",
    ),
    mistake(
        "_duplicates(a, groups), -torch.inf",
        "(groups[:, None] == groups) if groups is not None else _duplicates(a, groups), -torch.inf",
        "The mask of a group covers the diagonal too, so the right answer itself is left out "
        "and the loss becomes infinite or NaN.",
    ),
    mistake(
        "_duplicates(a, groups), -torch.inf",
        "_duplicates(a, groups), 0.0",
        "Left-out logits are set to 0, which is e⁰ = 1 in the sum and not nothing.",
    ),
    mistake(
        "_duplicates(a, groups), -torch.inf",
        "_duplicates(a, groups).triu(), -torch.inf",
        "A double is left out in one direction only: of two equal rows just the first is excused.",
    ),
    mistake(
        "_duplicates(a, groups), -torch.inf",
        "~_duplicates(a, groups) & ~torch.eye(len(a), dtype=torch.bool) & (groups is not None), "
        "-torch.inf",
        "The mask of the groups is the wrong way round: only rows of the same group count as "
        "wrong answers.",
    ),
    mistake(
        _WRONG_END,
        "return F.cross_entropy(logits, torch.arange(len(a), device=a.device), reduction='sum')",
        "The loss is added up over the batch instead of averaged.",
    ),
    mistake(
        _WRONG_END,
        "right = logits.diagonal()\n"
        "    others = logits.masked_fill(F.pad(torch.eye(len(a)), (0, logits.shape[1] - "
        "len(a))).bool(), -torch.inf)\n"
        "    return (others.logsumexp(1) - right).mean()",
        "The right answer is missing from the sum below the fraction.",
    ),
    mistake(
        _WRONG_END,
        "powers = logits.exp()\n    return -(powers.diagonal() / powers.sum(1)).log().mean()",
        "Exponentials are taken of the logits as they are; at a small temperature they overflow "
        "to infinity and the loss becomes NaN.",
    ),
    mistake(
        _WRONG_END,
        "return -logits.softmax(1).diagonal().log().mean()",
        "The logarithm is taken of the finished softmax. Where the partner is far, its share is "
        "rounded to 0 and the loss becomes infinite.",
    ),
    mistake(
        _WRONG_END,
        "return -logits.softmax(1).diagonal().clamp_min(1e-30).log().mean()",
        "Small shares are lifted before the logarithm: where the partner is far, the loss is "
        "too small and nothing pulls.",
    ),
    mistake(
        _WRONG_END,
        "return -(logits.softmax(1).diagonal() + 1e-12).log().mean()",
        "A small number is added to the shares before the logarithm: where the partner is far, "
        "the loss is too small and hardly anything pulls.",
    ),
    mistake(
        _WRONG_END,
        "return ((logits - logits.max()).exp().sum(1).log() + logits.max() - "
        "logits.diagonal()).mean()",
        "The largest logit of the whole table is taken off. Each row needs its own: one that "
        "lies far below rounds to 0 as a whole.",
    ),
    mistake(
        _WRONG_END,
        "powers = (logits - logits.max()).exp()\n"
        "    return -(powers.diagonal() / powers.sum(1)).log().mean()",
        "The largest logit of the whole table is taken off, and the share of the right answer "
        "may still round to 0. Its logarithm is a difference of logits.",
    ),
    mistake(
        "_duplicates(a, groups), -torch.inf",
        "_duplicates(a, groups), -100.0",
        "Left-out logits are set to -100. At a small temperature others are far below that; "
        "-inf is below all.",
    ),
    mistake(
        _WRONG_END,
        "return -logits.softmax(1).diagonal().mean()",
        "The logarithm is missing: the mean probability is returned, not its surprise.",
    ),
    mistake(
        _WRONG_END,
        "return -F.cross_entropy(logits, torch.arange(len(a), device=a.device))",
        "The sign is wrong: partners are pushed apart.",
    ),
    mistake(
        "_cosines(a, b)",
        "(unit(a) @ unit(b).T)",
        "_cosines(a, hard)",
        "(unit(a) @ unit(hard).T)",
        "Under autocast the cosines are rounded to bfloat16, and then divided by a small "
        "temperature.",
    ),
    mistake(
        "_cosines(a, b)",
        "_cosines(a, b).to(a.dtype)",
        "_cosines(a, hard)",
        "_cosines(a, hard).to(a.dtype)",
        "The loss is computed in half precision when the vectors come so; it should be widened "
        "to single.",
    ),
    mistake(
        "_cosines(a, hard)",
        "_cosines(a, hard.detach())",
        "The hard negatives are detached, so nothing pushes them away.",
    ),
    mistake(
        "(_cosines(a, b) / temperature)",
        "(-torch.cdist(unit(a), unit(b)) / temperature)",
        "_cosines(a, hard) / temperature",
        "-torch.cdist(unit(a), unit(hard)) / temperature",
        "Distances between unit vectors stand where cosines were meant.",
    ),
    mistake(
        "_cosines(a, b) / temperature).masked",
        "_cosines(a, a) / temperature).masked",
        "The anchors are compared with themselves. `b` holds the partners.",
    ),
    mistake(
        _WRONG_LABELS,
        "torch.zeros(len(a), dtype=torch.int64)",
        "Every row has column 0 as its right answer. Row i belongs to column i.",
    ),
]


_WRONG_ENTROPY = "F.cross_entropy(logits, torch.arange(len(a), device=a.device))"


MUTANTS["contrastive.mirror"] = [
    mistake(
        "duplicates | itself, -torch.inf",
        "duplicates | itself, 0.0",
        "The diagonal and the doubles get a logit of 0, which is e⁰ = 1 in the sum and not "
        "nothing.",
    ),
    mistake(
        "_cosines(x, x).masked_fill(duplicates | itself, -torch.inf)",
        "_cosines(y, y).masked_fill(duplicates | itself, -torch.inf)",
        "The wrong answers within a view come from the view of the partners, not from that of "
        "the sentence that asks.",
    ),
    mistake(
        "torch.cat([across, within], dim=1)",
        "torch.cat([within, across], dim=1)",
        "The halves are exchanged, so the labels point at the excluded diagonal and the loss "
        "becomes infinite or NaN.",
    ),
    mistake(
        "_cosines(x, y).masked_fill(duplicates, -torch.inf)",
        "_cosines(x, y).masked_fill(duplicates | itself, -torch.inf)",
        "The diagonal is left out between the views as well, and with it the right answer.",
    ),
    mistake(
        "_cosines(x, y).masked_fill(duplicates, -torch.inf)",
        "_cosines(x, y)",
        "Doubles are excused within a view but not between the two views.",
    ),
    mistake(
        "duplicates | itself, -torch.inf",
        "itself, -torch.inf",
        "Doubles are excused between the views but not within one.",
    ),
    mistake(
        "if symmetric else [(a, b)]",
        "if True else [(a, b)]",
        "Both directions are averaged although `symmetric` is False.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "F.cross_entropy(logits, torch.arange(len(a), device=a.device), reduction='sum')",
        "The loss is added up over the batch instead of averaged.",
    ),
    mistake(
        _WRONG_PAIR,
        "logits = torch.cat([across / temperature, within], dim=1)",
        "The temperature divides the cosines between the views but not those within one.",
    ),
    mistake(
        _WRONG_PAIR,
        "own = _cosines(y, y).masked_fill(duplicates | itself, -torch.inf)\n"
        "        logits = torch.cat([across, within, own], dim=1) / temperature",
        "The cosines within the partners' view are added to the sum as well; row i of a is in "
        "none of them.",
    ),
    mistake(
        "_cosines(x, y)",
        "(unit(x) @ unit(y).T)",
        "_cosines(x, x)",
        "(unit(x) @ unit(x).T)",
        "Under autocast the cosines are rounded to bfloat16, and then divided by a small "
        "temperature.",
    ),
    mistake(
        "_cosines(x, y)",
        "_cosines(x, y).to(x.dtype)",
        "_cosines(x, x)",
        "_cosines(x, x).to(x.dtype)",
        "The loss is computed in half precision when the vectors come so; it should be widened "
        "to single.",
    ),
    mistake(
        "_cosines(x, x)",
        "_cosines(a, a)",
        "When `b` asks, the wrong answers within a view are still those of `a`.",
    ),
    mistake(
        "_cosines(x, y)",
        "_cosines(x, y.detach())",
        "The view of the partners is detached, so only the one that asks learns.",
    ),
    mistake(
        "_cosines(x, x)",
        "_cosines(x.detach(), x)",
        "One copy of the sentences' own vectors is detached, so half of the push within a view "
        "is lost.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "(logits.masked_fill(F.pad(itself, (0, len(a))), -torch.inf).logsumexp(1) - "
        "logits.diagonal()).mean()",
        "The right answer is missing from the sum below the fraction.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "-(logits.exp().diagonal() / logits.exp().sum(1)).log().mean()",
        "Exponentials are taken of the logits as they are; at a small temperature they overflow "
        "and the loss becomes NaN.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "-logits.softmax(1).diagonal().log().mean()",
        "The logarithm is taken of the finished softmax. Where the partner is far, its share is "
        "rounded to 0 and the loss becomes infinite.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "-logits.softmax(1).diagonal().clamp_min(1e-30).log().mean()",
        "Small shares are lifted before the logarithm: where the partner is far, the loss is "
        "too small and nothing pulls.",
    ),
    mistake(
        _WRONG_ENTROPY,
        "((logits - logits.max()).exp().sum(1).log() + logits.max() - logits.diagonal()).mean()",
        "The largest logit of the whole table is taken off. Each row needs its own: one that "
        "lies far below rounds to 0 as a whole.",
    ),
]
