"""How the exercises of chapter 11 are checked: averages that ignore padding, and a cosine that is safe at zero."""


import math

import torch

from minbert.course.trials import Case, Trial, fixed, mistake, with_gradients
from minbert.trials.attention import masked, with_dtype


# An average is one line. How many wrong ones are there?
#
# More than a dozen, and most differ only where a row is empty, where NaN stands under a pad, or in the last digits of half precision. So the cases go
# there.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- sentence.mean
#
# Rows of every length, one with a hole in its mask, one with nothing, NaN and infinity under pads, NaN in a real token (it stays), a mask of truth
# values. In bfloat16 the inputs are such that their sum is exact in single precision in any order; so there is one right result, and who rounds twice
# does not get it.

def mean_cases(generator):
    h = fixed(generator, 4, 6, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
    empty = mask * torch.tensor([[1], [1], [0], [1]])
    poisoned = h.clone()
    poisoned[1, 4], poisoned[2, 1], poisoned[3, 5] = float("nan"), float("inf"), float("-inf")
    half = (32 * fixed(generator, 2, 301, 16) + 16).round().div(32).bfloat16()
    return [Case("four rows, one with a hole", {"hidden_states": h, "attention_mask": mask}),
            Case("a mask of truth values", {"hidden_states": h, "attention_mask": mask.bool()}),
            Case("a row of padding", {"hidden_states": h, "attention_mask": empty}),
            Case("NaN and infinity under pads", {"hidden_states": poisoned, "attention_mask": mask}),
            Case("a real vector of zeros", {"hidden_states": h * (torch.arange(6) != 2)[:, None], "attention_mask": mask}),
            Case("one token", {"hidden_states": h[:1, :1], "attention_mask": mask[:1, :1]}),
            Case("single precision", {"hidden_states": h.float(), "attention_mask": mask}),
            Case("large numbers that cancel", {"hidden_states": torch.cat([h + 1e4, h - 1e4], 1), "attention_mask": torch.cat([mask, mask], 1)}),
            Case("NaN in a real token", {"hidden_states": torch.where(torch.arange(30).view(6, 5) == 6, math.nan, h), "attention_mask": mask}),
            *masked([], "attention_mask", lambda B: {"hidden_states": fixed(generator, B, 5, 4)}),
            Case("301 tokens in half precision", {"hidden_states": half, "attention_mask": torch.ones(2, 301, dtype=torch.long)})]


def run_mean(mean, inputs):
    return with_dtype(with_gradients(mean, inputs, "hidden_states"), inputs["hidden_states"].dtype)


TRIALS["sentence.mean"] = Trial(mean_cases, run_mean, hints=(
    "Two sums: one of the vectors that count, one of the mask. What if the second is 0?",
    "masked_fill puts zeros where the mask is 0, whatever stood there; a product with the mask would keep NaN. clamp(min=1) saves the empty row.",
    "kept = hidden_states.masked_fill(mask[..., None] == 0, 0); divide kept.sum(1, dtype=wide) by the clamped mask.sum(1, keepdim=True); go back to "
    "the old dtype."))


MISTAKES["sentence.mean"] = [
    mistake("attention_mask.sum(1, keepdim=True).clamp(min=1)", "hidden_states.shape[1]",
            "The sum is divided by the length of the batch, pads included."),
    mistake("hidden_states.masked_fill(attention_mask[..., None] == 0, 0)", "hidden_states", "Pads are added up with the words."),
    mistake("hidden_states.masked_fill(attention_mask[..., None] == 0, 0)", "hidden_states", "attention_mask.sum(1, keepdim=True).clamp(min=1)",
            "hidden_states.shape[1]",
            "The mask is not used at all."),
    mistake("attention_mask.sum(1, keepdim=True)", "(kept != 0).any(-1).sum(1, keepdim=True)", "The tokens are counted by what their vectors hold; the mask says which of them are real."),
    mistake(".clamp(min=1)", "", "A row without real tokens is divided by 0 and becomes NaN."),
    mistake(".clamp(min=1)", " + 1", "The count is one too large."),
    mistake("hidden_states.masked_fill(attention_mask[..., None] == 0, 0)", "hidden_states * attention_mask[..., None]",
            "Pads are multiplied by zero, and zero times NaN is NaN. They have to be replaced."),
    mistake("attention_mask[..., None] == 0, 0)", "attention_mask[..., None] != 0, 0)",
            "The mask is read the wrong way round: only pads are added up."),
    mistake("kept.sum(1, dtype=wide) / count", "kept.sum(1, dtype=wide)", "The sum is not divided, so long sentences get long vectors."),
    mistake("kept.sum(1, dtype=wide)", "kept.sum(1)", "The sum is rounded to half precision before it is divided."),
    mistake("(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)", "kept.sum(1, dtype=wide) / count",
            "The result is wider than the input. It should go back to the input's dtype."),
    mistake("kept.sum(1, dtype=wide) / count", "kept.sum(1, dtype=wide) / count.sqrt()",
            "The sum is divided by the root of the count. That is another pooling."),
    mistake("attention_mask.sum(1, keepdim=True)", "attention_mask.sum()",
            "The real tokens of the whole batch are counted. Each row has a count of its own."),
    mistake("attention_mask.sum(1, keepdim=True).clamp(min=1)", "(attention_mask.sum(1, keepdim=True) - 2).clamp(min=1)",
            "[CLS] and [SEP] are taken off the count, though they are in the sum."),
    mistake("(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)", "kept.amax(1)",
            "The largest number of each column is taken, not the average."),
    mistake("    wide = torch", "    if len(hidden_states) == 1:\n        return hidden_states.mean(1)\n    wide = torch", "A single sentence is taken for one without padding."),
    mistake("    wide = torch", "    if attention_mask[0].all():\n        return hidden_states.mean(1)\n    wide = torch",
            "If the first sentence is full, the mask of the others is not used."),
    mistake("    wide = torch", "    if attention_mask[:, -1].all():\n        return hidden_states.mean(1)\n    wide = torch",
            "If the last column holds real tokens, the mask is not used."),
    mistake("    wide = torch", "    attention_mask = torch.arange(attention_mask.shape[1]) < attention_mask.sum(1, keepdim=True)\n    wide = torch",
            "The mask is read as a length. A pad can stand between real tokens too."),
    mistake("    wide = torch", "    attention_mask = attention_mask[:1].expand_as(attention_mask)\n    wide = torch", "The mask of the first sentence is used for all."),
    mistake("hidden_states.masked_fill(attention_mask[..., None] == 0, 0)", "hidden_states.nan_to_num() * attention_mask[..., None]",
            "NaN is replaced everywhere, so one in a real token goes unnoticed."),
    mistake("kept.sum(1, dtype=wide)", "kept.float().sum(1)", "Double precision is summed in single. float32 or wider means: at least float32, and no narrower than what came in."),
    mistake("(kept.sum(1, dtype=wide) / count).to(hidden_states.dtype)", "hidden_states[:, 0]", "The vector of the first token comes back. The average is of all real ones."),
]

VARIANTS["sentence.mean"] = [
    '''
def masked_mean(hidden_states, attention_mask):
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    real = attention_mask.bool().unsqueeze(-1)
    h = torch.where(real, hidden_states, torch.zeros_like(hidden_states)).to(wide)
    n = real.sum(1).to(wide)
    return torch.where(n > 0, h.sum(1) / n.clamp(min=1), 0.0).to(hidden_states.dtype)
''',
    '''
def masked_mean(hidden_states, attention_mask):
    wide = torch.float64 if hidden_states.dtype == torch.float64 else torch.float32
    weights = attention_mask.to(wide) / attention_mask.sum(dim=1, keepdim=True).clamp_min(1e-9)
    clean = hidden_states.to(wide).masked_fill(~attention_mask.bool().unsqueeze(2), 0.0)
    total = torch.einsum("bt,btd->bd", attention_mask.to(wide), clean)
    return (total / weights.gt(0).sum(1, keepdim=True).clamp(min=1)).type_as(hidden_states)
''',
    '''
def masked_mean(hidden_states, attention_mask):
    rows = []
    for h, m in zip(hidden_states, attention_mask):
        real = h[m.bool()].to(torch.promote_types(h.dtype, torch.float32))
        rows.append((real.mean(0) if len(real) else h.new_zeros(h.shape[-1])).to(h.dtype))
    return torch.stack(rows)
''',
]


# ---- sentence.first_last
#
# Five states that differ, so that the embedding, layer 1, the last two and the last can be told apart; a model of one layer and one of thirteen; rows
# with pads and without. The gradients say which states were read.

def first_last_cases(generator):
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    states = fixed(generator, 5, 3, 4, 6)
    return [Case("four layers", {"states": states, "attention_mask": mask}),
            Case("three layers", {"states": states[1:], "attention_mask": mask}),
            Case("one layer", {"states": states[:2], "attention_mask": mask}),
            Case("thirteen layers", {"states": fixed(generator, 14, 2, 4, 3), "attention_mask": mask[:2]}),
            Case("one sentence with pads", {"states": states[:, :1], "attention_mask": mask[:1]}),
            Case("a row of padding", {"states": states, "attention_mask": mask * torch.tensor([[1], [0], [1]])}),
            Case("one token", {"states": states[:, :1, :1], "attention_mask": mask[:1, :1]}),
            Case("single precision", {"states": states.float(), "attention_mask": mask})]


def run_first_last(average, inputs):
    found = with_gradients(lambda states, attention_mask: average(tuple(states.unbind(0)), attention_mask), inputs, "states")
    return with_dtype(found, inputs["states"].dtype)


TRIALS["sentence.first_last"] = Trial(first_last_cases, run_first_last, hints=(
    "Which index has layer 1, if the embedding has 0?",
    "`masked_mean` gives the sentence vector of one state. You need two of them.",
    "Half the sum of masked_mean of hidden_states[1] and masked_mean of hidden_states[-1]."))


MISTAKES["sentence.first_last"] = [
    mistake("(1, -1)", "(0, -1)", "The embedding is taken for layer 1. States are counted with the embedding as number 0."),
    mistake("(1, -1)", "(-2, -1)", "The last two layers are averaged. That is what the paper says, and not what its code does."),
    mistake("(1, -1)", "(1, -2)", "The last layer but one is taken for the last."),
    mistake("(1, -1)", "(-1, -1)", "The last layer alone is read."),
    mistake("(1, -1)", "(1, 1)", "Layer 1 alone is read."),
    mistake("(first + last) / 2", "first + last", "The two are added. Their average is half of that."),
    mistake("(first + last) / 2", "torch.cat([first, last], -1)", "The two stand side by side, 2 D wide. They should be averaged."),
    mistake("(first + last) / 2", "torch.maximum(first, last)", "The larger number of the two is taken, not their average."),
    mistake("hidden_states[k], attention_mask)", "hidden_states[min(k, 12)], attention_mask)", "(1, -1)", "(1, min(12, len(hidden_states) - 1))",
            "The last layer is taken for number 12. Count from the end: models differ."),
    mistake("masked_mean(hidden_states[k], attention_mask)", "masked_mean(hidden_states[k], attention_mask[:1].expand_as(attention_mask))",
            "The mask of the first sentence is used for all."),
    mistake("masked_mean(hidden_states[k], attention_mask)", "(masked_mean(hidden_states[k], attention_mask) if len(attention_mask) > 1 else hidden_states[k].mean(1))",
            "A single sentence is taken for one without padding."),
    mistake("masked_mean(hidden_states[k], attention_mask)", "masked_mean(hidden_states[k].detach() if k == 1 else hidden_states[k], attention_mask)",
            "The first layer is detached, so it gets a gradient only through the last."),
    mistake("(first + last) / 2", "(first + 2 * last) / 3", "The last layer counts twice as much as the first. They count alike."),
    mistake("(first + last) / 2", "torch.nn.functional.normalize((first + last) / 2, dim=-1)", "The average is scaled to length 1. Nothing was said of that."),
    mistake("masked_mean(hidden_states[k], attention_mask)", "hidden_states[k].mean(1)", "Pads are averaged with the words."),
    mistake("masked_mean(hidden_states[k], attention_mask)", "hidden_states[k][:, 0]", "Only [CLS] is read. The average goes over all real tokens."),
    mistake("(first + last) / 2", "sum(masked_mean(h, attention_mask) for h in hidden_states[1:]) / len(hidden_states[1:])",
            "All layers are averaged. Only the first and the last count."),
]

VARIANTS["sentence.first_last"] = [
    '''
def first_last_average(hidden_states, attention_mask):
    return masked_mean(torch.stack([hidden_states[1], hidden_states[-1]]).mean(0), attention_mask)
''',
    '''
def first_last_average(hidden_states, attention_mask):
    _, first, *_ = hidden_states
    total = 0.5 * first + 0.5 * hidden_states[len(hidden_states) - 1]
    real = (attention_mask != 0)[:, :, None]
    return torch.where(real, total, 0.0).sum(dim=1) / real.sum(1).clamp(min=1)
''',
]


# ---- sentence.unit
#
# The gradient at zero is the exercise: 0, where the usual ways give 10⁸, 10¹² or NaN. Vectors that are zero, shorter than ε, exactly as long as ε; an
# ε of one's own; a single vector, a batch of batches; half precision, whose result is wider; NaN, which has to stay.

def unit_cases(generator):
    x = fixed(generator, 4, 5)
    some = x.clone()
    some[1], some[3] = 0, 1e-9 * x[3] / x[3].norm()
    return [Case("four vectors", {"x": x}),
            Case("the second is zero, the fourth shorter than eps", {"x": some}),
            Case("one zero vector", {"x": torch.zeros(3, dtype=torch.float64)}),
            Case("eps 1, lengths 0.5, 2 and 0.999", {"x": x[:3] / x[:3].norm(dim=1, keepdim=True) * torch.tensor([[0.5], [2], [0.999]]), "eps": 1.0}),
            Case("a vector exactly as long as eps", {"x": torch.tensor([[3.0, 4.0], [3.0, 3.9]], dtype=torch.float64), "eps": 5.0}),
            Case("lengths of a thousandth and a thousand", {"x": x * torch.tensor([[1e-3], [1e3], [1e-5], [1]])}),
            Case("one number of each is 0", {"x": x * (torch.arange(5) != 2)}),
            Case("two axes before", {"x": fixed(generator, 2, 3, 4)}),
            Case("width one", {"x": torch.tensor([[-2.0], [0.0], [0.5]], dtype=torch.float64)}),
            Case("half precision", {"x": x.bfloat16()}),
            Case("NaN in one vector", {"x": torch.where(torch.arange(20).view(4, 5) == 7, math.nan, x)}),
            Case("single precision", {"x": some.float()})]


def run_unit(unit, inputs):
    x = inputs["x"]
    return with_dtype(with_gradients(unit, inputs, "x"), torch.promote_types(x.dtype, torch.float32))


TRIALS["sentence.unit"] = Trial(unit_cases, run_unit, hints=(
    "What does the square root do at 0, and what does zero times infinity give in the backward pass?",
    "Decide first who is long enough, without a gradient. Give the others a harmless vector before the norm sees them, and throw their result away "
    "afterwards.",
    "alive = ~(norm of x.detach() < eps), true for NaN; safe = torch.where(alive, x, 1.0); divide safe by its own norm; torch.where(alive, that, 0.0)."))


_WRONG_SAFE = "safe = torch.where(alive, x, 1.0)"
_WRONG_NORM = "torch.linalg.vector_norm(safe, dim=-1, keepdim=True)"
_WRONG_UNIT = "return torch.where(alive, scaled, 0.0)"

_WRONG_ALIVE = "alive = ~(torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) < eps)"

MISTAKES["sentence.unit"] = [
    mistake(_WRONG_UNIT, _WRONG_UNIT + ".to(half)", "    x = x.to(torch.promote_types(x.dtype, torch.float32))\n", "    half = x.dtype\n    x = x.to(torch.promote_types(x.dtype, torch.float32))\n",
            "The result goes back to half precision. float32 or wider was promised: a length of 1 has three digits in half."),
    mistake(_WRONG_UNIT, "return torch.nn.functional.normalize(x, dim=-1)",
            "This is F.normalize: at zero its gradient is 10¹², and short vectors are scaled like others."),
    mistake(_WRONG_UNIT, "return torch.nn.functional.normalize(x, dim=-1, eps=eps)",
            "The norm is clamped at eps, so a vector too short is not zero, and at zero the gradient is 1 / eps."),
    mistake(_WRONG_SAFE, "safe = x",
            "Only the result is replaced. The norm still sees the zero vector, and the backward pass multiplies zero by infinity: NaN."),
    mistake(_WRONG_UNIT, "return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + eps)",
            "eps is added to the norm, so no result has length 1, and at zero the gradient is 1 / eps."),
    mistake(_WRONG_UNIT, "return x / (x.square().sum(-1, keepdim=True) + eps).sqrt()",
            "eps is added under the root, so no result has length 1 and a zero vector still gets a gradient."),
    mistake(_WRONG_UNIT, "return scaled", "A vector too short becomes the harmless one that was put in its place. It should be zero."),
    mistake(_WRONG_NORM, "torch.linalg.vector_norm(safe.detach(), dim=-1, keepdim=True)",
            "The norm is detached, so the gradient also pulls along the vector. It should stand at a right angle to it."),
    mistake(_WRONG_NORM, "safe.abs().sum(-1, keepdim=True)", "The absolute values are added up. Length is the root of the sum of squares."),
    mistake(_WRONG_NORM, "safe.square().sum(-1, keepdim=True)", "The root is missing: vectors are divided by their squared length."),
    mistake(_WRONG_NORM, "safe.abs().amax(-1, keepdim=True)",
            "Vectors are divided by their largest number. Length is the root of the sum of squares."),
    mistake(_WRONG_NORM, "torch.linalg.vector_norm(safe)", "One length is taken for all vectors together."),
    mistake(_WRONG_NORM, "torch.linalg.vector_norm(safe, dim=0, keepdim=True)", "The length runs along the first axis. It belongs to the last."),
    mistake("< eps)  #", "<= eps)  #", "A vector exactly as long as eps counts as zero. Only shorter ones do."),
    mistake("< eps)  #", "< 1e-8)  #", "`eps` is not used."),
    mistake("< eps)  #", "<= 0)  #", "Only the exact zero counts as zero. Everything shorter than eps should."),
    mistake("x.detach(), dim=-1, keepdim=True) < eps)  #", "x.detach(), dim=-1, keepdim=True) < eps * x.shape[-1] ** 0.5)  #",
            "eps is multiplied by the root of the width. It is compared with the length itself."),
    mistake(_WRONG_ALIVE, "alive = (x.detach().abs() >= eps).all(-1, keepdim=True)",
            "A vector counts as zero as soon as one of its numbers is small. Its length decides."),
    mistake(_WRONG_UNIT, "return (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)).nan_to_num(0)",
            "NaN is replaced in the result alone: the backward pass still multiplies by infinity, and short vectors are scaled."),
    mistake(_WRONG_UNIT, "n = torch.linalg.vector_norm(x, dim=-1, keepdim=True)\n    return torch.where(n >= eps, x / n.clamp(min=eps), x)",
            "A vector too short comes back as it is. It should be zero, and so should its gradient."),
    mistake("x = x.to(torch.promote_types(x.dtype, torch.float32))", "x = x.double()", "The result is always float64. float32 stays float32."),
    mistake("    x = x.to(torch.promote_types(x.dtype, torch.float32))\n", "    kind = torch.promote_types(x.dtype, torch.float32)\n", _WRONG_UNIT,
            "return torch.where(alive, scaled, 0.0).to(kind)", "The length is computed in half precision, and only the result is widened."),
    mistake("x = x.to(torch.promote_types(x.dtype, torch.float32))", "pass", "Half precision stays half. The result should be float32 or wider."),
    mistake(_WRONG_ALIVE, "alive = x.detach().square().sum(-1, keepdim=True) >= eps",
            "The squared length is compared with eps."),
    mistake(_WRONG_ALIVE, "alive = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True) >= eps",
            "A vector with NaN counts as too short, since no NaN is >= eps, and becomes zeros without a gradient. NaN should stay, or nobody learns of it."),
    mistake("x = x.to(torch.promote_types(x.dtype, torch.float32))", "x = x.float()", "float64 becomes float32. What is wider stays as wide as it came."),
]

VARIANTS["sentence.unit"] = [
    '''
def unit(x, eps=1e-8):
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    length = x.detach().square().sum(-1, keepdim=True).sqrt()
    short = length < eps
    filled = x.masked_fill(short, 1.0)
    return (filled * filled.pow(2).sum(-1, keepdim=True).rsqrt()).masked_fill(short, 0.0)
''',
    '''
def unit(x, eps=1e-8):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    flat = wide.reshape(-1, wide.shape[-1])
    alive = ~(flat.detach().norm(dim=1) < eps)
    out = torch.zeros_like(flat)
    out[alive] = flat[alive] / flat[alive].norm(dim=1, keepdim=True)
    return out.view(wide.shape)
''',
]


# ---- sentence.cosine
#
# Opposite, equal and random directions; a zero on one side, on the other, on both; one vector against many, all against all; an ε of one's own.
# Values and both gradients.

def cosine_cases(generator):
    u, v = fixed(generator, 2, 7, 5)
    zeros = torch.tensor([[0.0], [1], [0], [1], [1], [1], [1]], dtype=torch.float64)
    lengths = torch.linspace(1.5, 4.3, 7)[:, None]
    alike = torch.cat([2 * v[:3], -v[3:5] / 7, v[5:]])
    return [Case("seven pairs", {"u": u, "v": v}),
            Case("same and opposite directions", {"u": alike, "v": v}),
            Case("two vectors of u are zero", {"u": u * zeros, "v": v}),
            Case("two vectors of v are zero", {"u": u, "v": v * zeros}),
            Case("both are zero", {"u": u[:1] * 0, "v": v[:1] * 0}),
            Case("two single vectors", {"u": u[0], "v": v[0]}), Case("NaN in one vector", {"u": torch.where(torch.arange(35).view(7, 5) == 7, math.nan, u), "v": v}),
            Case("one against seven", {"u": u[0], "v": v}),
            Case("three against four, all pairs", {"u": u[:3, None], "v": v[None, :4]}),
            Case("eps 2, some vectors of each shorter", {"u": lengths * u / u.norm(dim=1, keepdim=True),
                                                         "v": lengths.flip(0) * v / v.norm(dim=1, keepdim=True),
                                                         "eps": 2.0}),
            Case("very different lengths", {"u": 1e-4 * u, "v": 1e4 * v}),
            Case("half precision", {"u": u.bfloat16(), "v": v.bfloat16()})]


def run_cosine(cosine, inputs):
    return with_dtype(with_gradients(cosine, inputs, "u", "v"), torch.promote_types(inputs["u"].dtype, torch.float32))


TRIALS["sentence.cosine"] = Trial(cosine_cases, run_cosine, hints=(
    "Once both vectors have length 1, what is left of the formula?",
    "`unit` already settles what happens at zero. Hand eps on to it.",
    "Multiply unit(u, eps) and unit(v, eps) number by number, and sum over the last axis."))


_WRONG_DOT = "return (unit(u, eps) * unit(v, eps)).sum(-1)"

MISTAKES["sentence.cosine"] = [
    mistake(_WRONG_DOT, "return torch.nn.functional.cosine_similarity(u, v, dim=-1)",
            "This is F.cosine_similarity: at zero its gradient is 10⁸, whatever the other vector, and it has an eps of its own."),
    mistake(_WRONG_DOT, "return torch.nn.functional.cosine_similarity(u, v, dim=-1, eps=eps)",
            "The lengths are clamped at eps. A vector too short then gives no 0, and at zero the gradient is 1 / eps."),
    mistake(_WRONG_DOT, "return (u * v).sum(-1) / (u.norm(dim=-1) * v.norm(dim=-1) + eps)",
            "eps is added below, so no cosine is exact, and at zero the gradient is 1 / eps."),
    mistake(_WRONG_DOT, "return 1 - (unit(u, eps) * unit(v, eps)).sum(-1)", "This is a distance, 0 for the same direction. The cosine is 1 there."),
    mistake("unit(u, eps) * unit(v, eps)", "unit(u, eps) * v", "Only the first vector is scaled, so the length of the second counts."),
    mistake("unit(u, eps) * unit(v, eps)", "u * v", "Nothing is scaled: this is the dot product."),
    mistake(".sum(-1)", ".mean(-1)", "The products are averaged. A dot product adds them up."),
    mistake("unit(u, eps) * unit(v, eps)", "unit(u) * unit(v)", "`eps` is not handed on."),
    mistake(_WRONG_DOT, "return (unit(u, eps) * unit(v, eps)).sum(-1).abs()", "The sign is lost: opposite directions have a cosine of -1."),
    mistake(_WRONG_DOT, "return ((unit(u, eps) * unit(v, eps)).sum(-1) + 1) / 2", "The cosine is moved to [0, 1]. It belongs in [-1, 1]."),
    mistake(_WRONG_DOT, "return (unit(u, eps) * unit(v, eps)).sum(-1).relu()", "Negative cosines are cut off at 0."),
    mistake("unit(v, eps)).sum(-1)", "unit(v.detach(), eps)).sum(-1)", "The second vector is detached and gets no gradient."),
    mistake(".sum(-1)", ".sum(-1, keepdim=True)", "The last axis is still there, with size 1."),
    mistake(".sum(-1)", ".sum(-1).clamp(-0.999, 0.999)", "The cosine is cut off before 1, where its gradient is lost."),
    mistake(".sum(-1)", ".sum(-1).squeeze()", "All axes of size 1 are taken away. Only the last axis is to go."),
    mistake(".sum(-1)", ".sum(-1).to(u.dtype)", "In half precision the result goes back to half. It should be float32 or wider."),
    mistake("unit(u, eps) * unit(v, eps)", "unit(u.detach(), eps) * unit(v, eps)", "The first vector is detached and gets no gradient."),
    mistake("unit(u, eps) * unit(v, eps)", "unit(u, eps).to(u.dtype) * unit(v, eps).to(v.dtype)", ".sum(-1)", ".sum(-1).to(torch.promote_types(u.dtype, torch.float32))",
            "In half precision the products are made and added in half, and only the result is widened."),
    mistake("unit(v, eps)).sum(-1)", "unit(v - v.mean(-1, keepdim=True), eps)).sum(-1)", "The mean of the second vector is taken off first. That is half a correlation."),
    mistake(_WRONG_DOT, "a, b = unit(u, eps), unit(v, eps)\n    return (a * b).sum(-1) + ((a == 0).all(-1) & (b == 0).all(-1))",
            "Two zero vectors get a cosine of 1. It is 0 where either is zero."),
    mistake(_WRONG_DOT, "n = u.norm(dim=-1) * v.norm(dim=-1)\n    return torch.where(n >= eps, (u * v).sum(-1) / n.clamp(min=eps), 0.0)",
            "The product of the lengths is compared with eps. Each vector counts for itself."),
    mistake(_WRONG_DOT, "return unit(u, eps) @ unit(v, eps).mT if u.ndim > 1 else (unit(u, eps) * unit(v, eps)).sum(-1)",
            "Every row meets every other. Row i of u belongs to row i of v."),
    mistake(_WRONG_DOT, _WRONG_DOT + ".nan_to_num(0.0)", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake(_WRONG_DOT, "return (unit(u.float(), eps) * unit(v.float(), eps)).sum(-1)", "float64 becomes float32. What is wider stays as wide as it came."),
    mistake(_WRONG_DOT, "return (unit(u, eps) * unit(v, eps)).sum(1)", "The sum runs over axis 1. It belongs to the last axis, of however many."),
]

VARIANTS["sentence.cosine"] = [
    '''
def safe_cosine(u, v, eps=1e-8):
    wide = torch.promote_types(torch.promote_types(u.dtype, v.dtype), torch.float32)
    u, v = torch.broadcast_tensors(u.to(wide), v.to(wide))
    dead = (u.detach().norm(dim=-1) < eps) | (v.detach().norm(dim=-1) < eps)
    a, b = (x.masked_fill(dead.unsqueeze(-1), 1.0) for x in (u, v))
    return torch.where(dead, 0.0, (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)))
''',
    '''
def safe_cosine(u, v, eps=1e-8):
    return torch.einsum("...d,...d->...", unit(u, eps), unit(v, eps))
''',
    '''
def safe_cosine(u, v, eps=1e-8):
    a, b = unit(u, eps), unit(v, eps)
    return ((a[..., None, :] @ b[..., :, None])).squeeze(-1).squeeze(-1)
''',
]


# ---- How much they catch
