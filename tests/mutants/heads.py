"""Mutants of `minbert.exercise_cases.heads`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.heads import (
    _WRONG_BLOCKS,
    _WRONG_COSINE,
    _WRONG_GRAD,
    _WRONG_LINEAR,
    _WRONG_PAIR,
    _WRONG_SPLIT,
)

MUTANTS = {}


MUTANTS["heads.linear"] = [
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u)).log_softmax(-1)",
        "Log-probabilities come back. Logits were promised; the loss does the rest.",
    ),
    mistake(
        _WRONG_LINEAR,
        "self.linear(F.dropout(u, 0.1, self.training))",
        "Dropout has a fixed probability. It should be the head's own.",
    ),
    mistake(
        _WRONG_LINEAR,
        "self.linear(self.drop(u.tanh()))",
        "The vectors are bent first. A linear head reads them as they are.",
    ),
    mistake(
        "return " + _WRONG_LINEAR,
        "if not self.training:\n        self.drop.p = 0.0\n    return " + _WRONG_LINEAR,
        "In eval mode dropout is switched off for good: it stays off when training goes on.",
    ),
]


MUTANTS["heads.pair"] = [
    mistake(
        "return " + _WRONG_PAIR,
        "out = "
        + _WRONG_PAIR
        + '\n    return out.clamp(0, 5) if self.goal == "similarity" else out',
        "Grades are cut to the scale. Beyond its ends they then have no gradient, and never "
        "come back.",
    ),
    mistake(
        "return " + _WRONG_PAIR,
        "out = "
        + _WRONG_PAIR
        + '\n    return out.sigmoid() if self.goal == "paraphrase_mse" else out',
        'A probability comes back for "paraphrase_mse". The head gives a logit for every goal; '
        "the loss takes the sigmoid.",
    ),
    mistake(
        _WRONG_PAIR,
        "((self.linear(self.drop(torch.cat([u, v], -1))) + "
        "self.linear(self.drop(torch.cat([v, u], -1)))) / 2)[:, 0]",
        "Both orders are averaged, so the order no longer counts.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v]).reshape(len(u), -1)))[:, 0]",
        "The batches are laid under one another and reshaped: the shape fits, and pairs are mixed.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(torch.cat([self.drop(u), v], -1))[:, 0]",
        "Dropout acts on the first sentence alone.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.stack([u, v], -1).flatten(1)))[:, 0]",
        "The numbers of u and v alternate, where v should follow u.",
    ),
    mistake(
        "return " + _WRONG_PAIR,
        "if not self.training:\n        self.drop.p = 0.0\n    return " + _WRONG_PAIR,
        "In eval mode dropout is switched off for good: it stays off when training goes on.",
    ),
    mistake(
        _WRONG_PAIR,
        "self.linear(self.drop(torch.cat([u, v], -1)).relu())[:, 0]",
        "The vectors are bent first. A linear head reads them as they are.",
    ),
]


MUTANTS["heads.difference"] = [
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, (u - v).square().sqrt()], -1)",
        "The root of a square has no slope at 0: where u and v agree the gradient is NaN.",
    ),
    mistake(
        "return out[:, 0] if self.classes == 1 else out",
        "return out[:, 0] if self.classes == 1 else out.softmax(-1)",
        "With several classes probabilities come back. Logits were promised.",
    ),
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, u.abs() - v.abs()], -1)",
        "The absolute values are subtracted; the difference comes first.",
    ),
    mistake(
        _WRONG_BLOCKS, "torch.cat([v, u, (u - v).abs()], -1)", "The second sentence comes first."
    ),
    mistake(
        "self.drop(torch.cat([u, v, (u - v).abs()], -1))",
        "torch.cat([self.drop(u), self.drop(v), (self.drop(u) - self.drop(v)).abs()], -1)",
        "Dropout comes before the difference, so equal sentences seem to differ.",
    ),
    mistake(
        "self.linear(self.drop(" + _WRONG_BLOCKS + "))",
        "self.drop(self.linear(" + _WRONG_BLOCKS + "))",
        "Dropout acts on the answer, where it should act on the vectors.",
    ),
    mistake(
        "return out[:, 0]",
        "return out[:, 0].sigmoid()",
        "With one class a probability comes back; the cost does that itself and wants the logit.",
    ),
    mistake(
        _WRONG_BLOCKS,
        "torch.cat([u, v, (u - v).relu()], -1)",
        "Negative differences are cut off at 0. It is their size that counts.",
    ),
]


MUTANTS["heads.cosine"] = [
    mistake(
        "return " + _WRONG_COSINE,
        "out = "
        + _WRONG_COSINE
        + '\n    return out.clamp(0, 5) if self.goal == "similarity" else out',
        "Grades are cut to the scale. Beyond its ends they then have no gradient, and never "
        "come back.",
    ),
    mistake(
        "return " + _WRONG_COSINE,
        "out = "
        + _WRONG_COSINE
        + '\n    return out.sigmoid() if self.goal == "paraphrase_mse" else out',
        'A probability comes back for "paraphrase_mse". The head gives a logit for every goal; '
        "the loss takes the sigmoid.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale.detach() * safe_cosine(u, v) + self.bias",
        "The scale is taken out of the graph, so it never learns.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale.abs() * safe_cosine(u, v) + self.bias",
        "The sign of the scale is lost.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * (safe_cosine(u, v) + self.bias)",
        "The shift is multiplied by the scale as well.",
    ),
    mistake(
        _WRONG_COSINE, "self.scale * safe_cosine(u, v) - self.bias", "The shift has the wrong sign."
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale.item() * safe_cosine(u, v) + self.bias.item()",
        "Scale and shift leave the graph as plain numbers, so they never learn.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.bias * safe_cosine(u, v) + self.scale",
        "Scale and bias have changed places.",
    ),
    mistake(
        _WRONG_COSINE,
        "safe_cosine(u, v) / self.scale + self.bias",
        "The cosine is divided by the scale. It is multiplied by it.",
    ),
    mistake(
        _WRONG_COSINE,
        "self.scale * (safe_cosine(u, v) + 1) / 2 + self.bias",
        "The cosine is moved to [0, 1] first. It is taken as it is.",
    ),
]


MUTANTS["heads.vectors"] = [
    mistake(
        _WRONG_SPLIT,
        "embeddings.split(len(second.input_ids) if second is not None else 1)",
        "Single sentences are split one by one.",
    ),
    mistake(
        _WRONG_SPLIT,
        "embeddings.detach().split(len(first.input_ids))",
        "The embeddings are detached, so the encoder gets no gradient.",
    ),
    mistake(
        "self.source().embed(batch)",
        "torch.cat([self.source().embed(x) for x in (first, second) if x is not None])",
        "The two columns are encoded in two calls.",
    ),
    mistake(
        _WRONG_GRAD,
        'self.mode == "frozen"',
        "Gradients are on in frozen mode and off in full mode.",
    ),
]
