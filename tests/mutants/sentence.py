"""Mutants of `minbert.exercise_cases.sentence`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.sentence import _WRONG_NORM, _WRONG_UNIT

MUTANTS = {}


MUTANTS["sentence.mean"] = [
    mistake(
        "attention_mask.sum(1, keepdim=True)",
        "(kept != 0).any(-1).sum(1, keepdim=True)",
        "The tokens are counted by what their vectors hold; the mask says which of them are real.",
    ),
    mistake(".clamp(min=1)", " + 1", "The count is one too large."),
    mistake(
        "kept.sum(1, dtype=wide)",
        "kept.sum(1)",
        "The sum is rounded to half precision before it is divided.",
    ),
    mistake(
        "(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)",
        "kept.sum(1, dtype=wide) / count",
        "The result is wider than the input. It should go back to the input's dtype.",
    ),
    mistake(
        "kept.sum(1, dtype=wide) / count",
        "kept.sum(1, dtype=wide) / count.sqrt()",
        "The sum is divided by the root of the count. That is another pooling.",
    ),
    mistake(
        "attention_mask.sum(1, keepdim=True)",
        "attention_mask.sum()",
        "The real tokens of the whole batch are counted. Each row has a count of its own.",
    ),
    mistake(
        "attention_mask.sum(1, keepdim=True).clamp(min=1)",
        "(attention_mask.sum(1, keepdim=True) - 2).clamp(min=1)",
        "[CLS] and [SEP] are taken off the count, though they are in the sum.",
    ),
    mistake(
        "(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)",
        "kept.amax(1)",
        "The largest number of each column is taken, not the average.",
    ),
    mistake(
        "    wide = torch",
        "    if len(hidden_states) == 1:\n        return hidden_states.mean(1)\n    wide = torch",
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        "    wide = torch",
        "    if attention_mask[0].all():\n        return hidden_states.mean(1)\n    wide = torch",
        "If the first sentence is full, the mask of the others is not used.",
    ),
    mistake(
        "    wide = torch",
        "    if attention_mask[:, -1].all():\n"
        "        return hidden_states.mean(1)\n"
        "    wide = torch",
        "If the last column holds real tokens, the mask is not used.",
    ),
    mistake(
        "    wide = torch",
        "    attention_mask = torch.arange(attention_mask.shape[1]) < attention_mask.sum(1, "
        "keepdim=True)\n"
        "    wide = torch",
        "The mask is read as a length. A pad can stand between real tokens too.",
    ),
    mistake(
        "    wide = torch",
        "    attention_mask = attention_mask[:1].expand_as(attention_mask)\n    wide = torch",
        "The mask of the first sentence is used for all.",
    ),
    mistake(
        "hidden_states.masked_fill(attention_mask[..., None] == 0, 0)",
        "hidden_states.nan_to_num() * attention_mask[..., None]",
        "NaN is replaced everywhere, so one in a real token goes unnoticed.",
    ),
    mistake(
        "kept.sum(1, dtype=wide)",
        "kept.float().sum(1)",
        "Double precision is summed in single. float32 or wider means: at least float32, and no "
        "narrower than what came in.",
    ),
]


_WRONG_NONZERO = "nonzero = ~(torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) < eps)"


MUTANTS["sentence.unit"] = [
    mistake(
        _WRONG_UNIT,
        _WRONG_UNIT + ".to(half)",
        "    x = x.to(torch.promote_types(x.dtype, torch.float32))\n",
        "    half = x.dtype\n    x = x.to(torch.promote_types(x.dtype, torch.float32))\n",
        "The result goes back to half precision. float32 or wider was promised: a length of 1 "
        "has three digits in half.",
    ),
    mistake(
        _WRONG_UNIT,
        "return torch.nn.functional.normalize(x, dim=-1, eps=eps)",
        "The norm is clamped at eps, so a vector too short is not zero, and at zero the "
        "gradient is 1 / eps.",
    ),
    mistake(
        _WRONG_UNIT,
        "return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()",
        "eps is added under the root, so no result has length 1 and a zero vector still gets a "
        "gradient.",
    ),
    mistake(
        _WRONG_UNIT,
        "return scaled",
        "A vector too short becomes the harmless one that was put in its place. It should be zero.",
    ),
    mistake(
        _WRONG_NORM,
        "safe.abs().sum(-1, keepdim=True)",
        "The absolute values are added up. Length is the root of the sum of squares.",
    ),
    mistake(
        _WRONG_NORM,
        "safe.abs().amax(-1, keepdim=True)",
        "Vectors are divided by their largest number. Length is the root of the sum of squares.",
    ),
    mistake(
        "< eps)  #",
        "<= eps)  #",
        "A vector exactly as long as eps counts as zero. Only shorter ones do.",
    ),
    mistake("< eps)  #", "< 1e-8)  #", "`eps` is not used."),
    mistake(
        "< eps)  #",
        "<= 0)  #",
        "Only the exact zero counts as zero. Everything shorter than eps should.",
    ),
    mistake(
        "x.detach(), dim=-1, keepdim=True) < eps)  #",
        "x.detach(), dim=-1, keepdim=True) < eps * x.shape[-1] ** 0.5)  #",
        "eps is multiplied by the root of the width. It is compared with the length itself.",
    ),
    mistake(
        _WRONG_NONZERO,
        "nonzero = (x.detach().abs() >= eps).all(-1, keepdim=True)",
        "A vector counts as zero as soon as one of its numbers is small. Its length decides.",
    ),
    mistake(
        _WRONG_UNIT,
        "return (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)).nan_to_num(0)",
        "NaN is replaced in the result alone: the backward pass still multiplies by infinity, "
        "and short vectors are scaled.",
    ),
    mistake(
        _WRONG_UNIT,
        "n = torch.linalg.vector_norm(x, dim=-1, keepdim=True)\n"
        "    return torch.where(n >= eps, x / n.clamp(min=eps), x)",
        "A vector too short comes back as it is. It should be zero, and so should its gradient.",
    ),
    mistake(
        "x = x.to(torch.promote_types(x.dtype, torch.float32))",
        "x = x.double()",
        "The result is always float64. float32 stays float32.",
    ),
    mistake(
        "    x = x.to(torch.promote_types(x.dtype, torch.float32))\n",
        "    kind = torch.promote_types(x.dtype, torch.float32)\n",
        _WRONG_UNIT,
        "return torch.where(nonzero, scaled, 0.0).to(kind)",
        "The length is computed in half precision, and only the result is widened.",
    ),
    mistake(
        _WRONG_NONZERO,
        "nonzero = x.detach().square().sum(-1, keepdim=True) >= eps",
        "The squared length is compared with eps.",
    ),
    mistake(
        _WRONG_NONZERO,
        "nonzero = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) >= eps",
        "A vector with NaN counts as too short, since no NaN is >= eps, and becomes zeros "
        "without a gradient. NaN should stay, or nobody learns of it.",
    ),
    mistake(
        "x = x.to(torch.promote_types(x.dtype, torch.float32))",
        "x = x.float()",
        "float64 becomes float32. What is wider stays as wide as it came.",
    ),
]
