"""How the first exercises of chapter 02 are checked: what the cases are for, and which mistakes people make."""


import math

import torch

from minbert.course.trials import Case, Trial, fixed, mistake, probe, probed, with_gradients


# Attention with a swapped axis still has the right shape, still sums to 1, still trains. Which inputs show that something is wrong?
#
# Those in which nothing agrees with anything else: three heads of width 4, two sentences of five tokens, a mask that differs from row to row.
# Everything is drawn in double precision, and gradients are compared along with values. One case has a single token, one a single head, one scores so
# large that the softmax has no slope left, one pads that shout, one real tokens that whisper, one a single query that shouts down the others. One
# runs in single precision, to see that the result keeps the kind of its input.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# For a method there are weights as well. `through` calls it, and pulls the result back to inputs and weights alike. The chapters that follow use it
# too.

def with_dtype(found, wanted):
    """Add to what was found whether the result has the dtype that it should have."""
    return found | {"dtype as promised": found["output"].dtype == wanted}


def through(module, call, inputs, *names):
    """Call something that uses a module; give its result, and the gradients of some inputs and of every weight."""
    plain = call(**inputs)   # sees the inputs themselves, so that writing into them shows
    leaves = {name: inputs[name].detach().clone().requires_grad_() for name in names}
    out = call(**{**inputs, **leaves})
    wanted = leaves | dict(module.named_parameters())
    found = [None] * len(wanted)
    if out.requires_grad:
        found = torch.autograd.grad((out * probe(out)).sum(), list(wanted.values()), allow_unused=True)
    gradients = {f"gradient of {name}": torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), found)}
    return with_dtype({"output": plain} | gradients, next(module.parameters()).dtype)


MASKS = {  # each would hide a mistake that some other one shows
    "the first sentence full, the others with pads": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]],
    "a real token at every end, pads before it": [[1, 0, 1, 1, 1], [1, 1, 0, 0, 1], [0, 1, 1, 0, 1]],
    "one sentence with pads, one head": [[1, 1, 0, 1, 0]],
    "no place is real in all sentences": [[0, 1, 1, 1, 0], [1, 0, 1, 0, 1], [1, 1, 0, 1, 0]],
    "as many sentences as tokens": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
}


def masked(cases, name, rows):
    """One case for each of these masks: `rows` makes the other inputs for so many sentences of five tokens."""
    return cases + [Case(label, {**rows(len(mask)), name: torch.tensor(mask)}) for label, mask in MASKS.items()]


# ---- attention.bias
#
# The bias is exact, so it is compared as it stands: shape, sign, size. The mask comes as whole numbers and as truth values, the keys in double and in
# single precision. A mask that is read the wrong way round, a bias for those who ask instead of those who are read, and an infinite constant are the
# mistakes that cost most later.

def bias_cases(generator):
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    key = fixed(generator, 3, 2, 5, 4)
    cases = [Case("three sentences, two with pads", {"attention_mask": mask, "key": key}),
             Case("a mask of truth values", {"attention_mask": mask.bool(), "key": key}),
             Case("keys in single precision", {"attention_mask": mask, "key": key.float()}),
             Case("keys in half precision", {"attention_mask": mask, "key": key.bfloat16()}),
             Case("one sentence, one token, one head", {"attention_mask": mask[:1, :1], "key": key[:1, :1, :1]}),
             Case("a row of padding", {"attention_mask": mask * torch.tensor([[1], [0], [1]]), "key": key}),
             Case("seven sentences with holes", {"attention_mask": (torch.rand(7, 9, generator=generator) < 0.7).long(), "key": fixed(generator, 7, 2, 9, 4)})]
    return masked(cases, "attention_mask", lambda B: {"key": fixed(generator, B, 2, 5, 4)})


def run_bias(bias, inputs):
    made = bias(**inputs)
    return {"bias": made, "dtype as promised": made.dtype == inputs["key"].dtype, "finite": made.isfinite()}


TRIALS["attention.bias"] = Trial(bias_cases, run_bias, subject="attention", hints=(
    "Which number must be added to the score of a real token, so that nothing changes? And to that of a pad?",
    "1 - mask is 1 at the pads. Mind that truth values cannot be subtracted, and that the result has the dtype of the keys.",
    "real = attention_mask.to(key); multiply (1 - real) by MASK_VALUE; index with [:, None, None, :], so that T stands last, where the keys of a "
    "score are."))


_WRONG_BIAS = "return ((1 - real) * MASK_VALUE)[:, None, None, :]  # (B, T) -> (B, 1, 1, T)"

MISTAKES["attention.bias"] = [
    mistake("(1 - real) *", "real *", "The mask is read the wrong way round: real tokens are silenced, and pads are heard."),
    mistake("MASK_VALUE)", "-MASK_VALUE)", "The sign is wrong: pads get a large positive number and take all the attention."),
    mistake("[:, None, None, :]", "[:, None, :, None]",
            "The tokens stand on the axis of the queries. So whole rows are shifted, which a softmax does not notice, and pads are read."),
    mistake("[:, None, None, :]", "[:, None, :]", "One axis is missing. (B, 1, T) against (B, H, T, T) puts sentences where heads are."),
    mistake(_WRONG_BIAS, "return torch.zeros_like(real).masked_fill(real == 0, -math.inf)[:, None, None, :]",
            "The constant is infinite, so a row of nothing but padding becomes NaN."),
    mistake("MASK_VALUE)", "torch.finfo(key.dtype).min)", "The constant is the lowest float. Added to a negative score it can overflow to -inf."),
    mistake("attention_mask.to(key)", "attention_mask.float()",
            "The bias does not have the dtype of the keys, so scores in another precision change theirs."),
    mistake(_WRONG_BIAS, "return real[:, None, None, :]", "The mask itself is returned. A pad then scores one less than a word, and is still read."),
    mistake("    real = attention_mask.to(key)", "    real = attention_mask[:1].expand_as(attention_mask).to(key)", "The mask of the first sentence is used for all."),
    mistake("    real = attention_mask.to(key)", "    real = (torch.arange(key.shape[-2]) < attention_mask.sum(1, keepdim=True)).to(key)",
            "The mask is read as a length. A pad can stand between real tokens too."),
    mistake(_WRONG_BIAS, "return ((~attention_mask).to(key) * MASK_VALUE)[:, None, None, :]",
            "`~` turns every bit of a whole number: ~1 is -2. It means \"not\" for truth values only."),
    mistake("    real = attention_mask.to(key)", "    real = attention_mask.to(key) if len(attention_mask) > 1 else torch.ones_like(attention_mask).to(key)",
            "A single sentence is taken for one without padding."),
    mistake("    real = attention_mask.to(key)", "    real = attention_mask.to(key) if not attention_mask[0].all() else torch.ones_like(attention_mask).to(key)",
            "If the first sentence is full, the others are taken for full as well."),
    mistake("    real = attention_mask.to(key)", "    real = attention_mask.to(key) if not attention_mask[:, -1].all() else torch.ones_like(attention_mask).to(key)",
            "If the last column holds real tokens, all others are taken for real as well."),
    mistake("* MASK_VALUE)", "* -1e9)", "The constant is another than MASK_VALUE."),
    mistake("[:, None, None, :]", "[:, None, None, :].expand(key.shape[0], key.shape[1], key.shape[2], key.shape[2])",
            "The bias is spread to (B, H, T, T). (B, 1, 1, T) broadcasts by itself, and costs nothing."),
    mistake(_WRONG_BIAS, "return (1 - real[:, None, :, None] * real[:, None, None, :]) * MASK_VALUE",
            "The rows of the pads are closed as well. The bias says which tokens are read; it is the same for whoever reads."),
    mistake(_WRONG_BIAS, "return (real == 0)[:, None, None, :]", "Truth values come back. A number is to be added to the scores: 0 or MASK_VALUE."),
]

VARIANTS["attention.bias"] = [
    '''
def padding_bias(attention_mask, key):
    bias = key.new_zeros(attention_mask.shape)
    bias[attention_mask == 0] = MASK_VALUE
    return bias.unsqueeze(1).unsqueeze(2)
''',
    '''
def padding_bias(attention_mask, key):
    return torch.where(attention_mask.bool(), 0.0, MASK_VALUE).to(key.dtype).view(len(key), 1, 1, -1)
''',
    '''
def padding_bias(attention_mask, key):
    rows = [[0.0 if m else MASK_VALUE for m in row] for row in attention_mask.tolist()]
    return torch.tensor(rows, dtype=key.dtype, device=key.device)[:, None, None]
''',
]


# ---- attention.maps
#
# The map before it meets the values. All cases of padding, large scores, one token and one head are here, and gradients of query and key. A map
# masked after the softmax has rows that no longer sum to 1; one normalised over the wrong axis has columns that do; a missing root shows in every
# case and most in the large one. Beside one loud query the quiet rows show whether each row is normalised by itself. A NaN has to stay one.
#
# Of a row of padding two things are asked: finite numbers, and shares that sum to 1. Whether the constant is added or put in place of the score is a
# matter of taste.
#
# The masks of `MASKS` come in every exercise that reads one. In each of them one short cut fails that the others forgive: the mask of the first
# sentence for all, a full sentence or a full last column taken for a batch without padding, a length in place of the mask, a single sentence,
# sentences and tokens exchanged.

def spoilt(query):
    """The same with a NaN in one query of one head."""
    query = query.clone()
    query[1, 0, 2, 3] = math.nan
    return query


def maps_cases(generator):
    q, k = fixed(generator, 2, 3, 3, 5, 6)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    both = {"query": q, "key": k}
    loud = k * (1 + 999 * (1 - mask))[:, None, :, None]
    cases = [Case("three sentences, two with pads", {**both, "mask": mask}),
             Case("no mask", {**both, "mask": None}), Case("40 tokens without a mask", {**dict(zip(both, fixed(generator, 2, 1, 2, 40, 6))), "mask": None}), Case("NaN in one query", {"query": spoilt(q), "key": k, "mask": None}),
             Case("a mask of truth values", {**both, "mask": mask.bool()}),
             Case("one token", {name: x[:, :, :1] for name, x in both.items()} | {"mask": mask[:, :1]}),
             Case("large scores", {**both, "query": 30 * q, "mask": mask}),
             Case("pads with a thousand times the score", {**both, "key": loud, "mask": mask}),
             Case("a pad with a score of 1568, heads 64 wide", {"query": torch.full((1, 2, 3, 64), 14.0, dtype=torch.float64),
                  "key": torch.tensor([0.0, 0.01, 14.0], dtype=torch.float64)[:, None].expand(1, 2, 3, 64).clone(), "mask": torch.tensor([[1, 1, 0]])}),
             Case("real tokens with scores far below zero", {**both, "query": 300 * q.abs(), "key": -k.abs(), "mask": mask}),
             Case("one loud query among quiet ones", {**both, "query": q * torch.tensor([1, 3000, 1, 1, 1])[:, None], "mask": None}),
             Case("single precision", {name: x.float() for name, x in both.items()} | {"mask": mask}),
             Case("a row of padding", {**both, "mask": mask * torch.tensor([[1], [0], [1]])})]
    return masked(cases, "mask", lambda B: dict(zip(both, fixed(generator, 2, B, min(B, 2), 5, 6))))


def settled(found, inputs):
    """Of sentences without a real token keep only what holds for any weights: finite, shares or a mean of values. Say whether the dtype is kept."""
    if inputs["mask"] is not None and not (real := inputs["mask"].bool().any(1)).all():
        lost = {"finite at a row of padding": all(bool(x.isfinite().all()) for x in found.values())}
        if "value" in inputs:
            at, v = found["output"][~real], inputs["value"][~real]
            lost["between the values at a row of padding"] = ((at >= v.amin(-2, keepdim=True) - 1e-9) & (at <= v.amax(-2, keepdim=True) + 1e-9)).all()
        else:
            lost["shares that sum to 1 at a row of padding"] = found["output"][~real].sum(-1).sub(1).abs().max() < 1e-9
        found = {name: x[real] for name, x in found.items()} | lost
    return with_dtype(found, inputs["query"].dtype)


def run_maps(maps, inputs):
    return settled(with_gradients(maps, inputs, "query", "key"), inputs)


TRIALS["attention.maps"] = Trial(maps_cases, run_maps, subject="attention", hints=(
    "A score is a dot product of one query and one key. All of them are one matrix product. What is its shape?",
    "Divide by the root of the head width, the last size of the query. `padding_bias` gives what to add before the softmax, in the right shape.",
    "scores = query @ key.mT / math.sqrt(query.shape[-1]); add padding_bias(mask, key) if there is a mask; softmax over the last axis, where the "
    "keys are."))


_WRONG_MASK = "scores = scores + padding_bias(mask, key)  # the same for all heads and all rows"
_WRONG_MAP = "return scores.softmax(dim=-1)"

MISTAKES["attention.maps"] = [
    mistake(" / math.sqrt(query.shape[-1])", "", "The scores are not divided by √K, so the softmax saturates as heads get wider."),
    mistake("math.sqrt(query.shape[-1])", "query.shape[-1]", "The scores are divided by K instead of √K, so the shares become too even."),
    mistake("query.shape[-1])", "query.shape[-2])",
            "The scores are divided by the root of the number of tokens. It is the width of a head that makes dot products grow."),
    mistake("query.shape[-1])", "query.shape[-1] * query.shape[1])",
            "The scores are divided by the root of the whole width D. Each head is only K wide."),
    mistake(_WRONG_MASK, "pass", "The mask is not used: pads are read like words."),
    mistake("padding_bias(mask, key)", "padding_bias(mask, key).mT",
            "The mask lies on the axis of the queries, so whole rows are shifted, which a softmax does not notice, and pads are read."),
    mistake("padding_bias(mask, key)", "padding_bias(1 - mask.long(), key)", "The mask is read the wrong way round: only pads are read."),
    mistake(_WRONG_MASK, "return scores.softmax(-1) * (padding_bias(mask, key) == 0)",
            "The mask is applied after the softmax, so rows with pads no longer sum to 1."),
    mistake("scores + padding_bias(mask, key)", "scores * (padding_bias(mask, key) == 0)",
            "Pads get the score 0. That is no silence: e to the power 0 is 1."),
    mistake("query @ key.mT / math.sqrt(query.shape[-1])", "(query @ key.mT + (0 if mask is None else padding_bias(mask, key))) / math.sqrt(query.shape[-1])", _WRONG_MASK, "pass",
            "The bias is divided by √K along with the scores, so in wide heads a pad with a high score is still read. It is added after the division."),
    mistake(_WRONG_MASK, "shares = scores.softmax(-1) * (padding_bias(mask, key) == 0)\n        return shares / shares.sum(-1, keepdim=True)",
            "The mask is applied after the softmax, and the rows are divided by what is left. Where a pad has taken all, nothing is left: 0 / 0."),
    mistake("padding_bias(mask, key)", "padding_bias(mask, key) / 500", "Pads are lowered by too little: one with a high score is still read."),
    mistake("padding_bias(mask, key)", "padding_bias(mask, key)[:1]", "The mask of the first sentence is used for all."),
    mistake("padding_bias(mask, key)", "padding_bias(torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True), key)",
            "The mask is read as a length. A pad can stand between real tokens too."),
    mistake("padding_bias(mask, key)", "padding_bias(mask.bool().any(0, keepdim=True).expand_as(mask), key)",
            "A column counts as padding only if it is padding in all sentences. Each sentence has its own mask."),
    mistake("if mask is not None:", "if mask is not None and len(mask) > 1:", "A single sentence is taken for one without padding."),
    mistake("if mask is not None:", "if mask is not None and not mask[0].all():", "If the first sentence is full, the mask of the others is not used."),
    mistake("if mask is not None:", "if mask is not None and not mask[:, -1].all():", "If the last column holds real tokens, the mask is not used."),
    mistake("scores + padding_bias(mask, key)", "scores.masked_fill(padding_bias(mask, key) < 0, -math.inf)",
            "Pads get minus infinity, so a row of nothing but padding becomes NaN."),
    mistake("softmax(dim=-1)", "softmax(dim=-2)", "The softmax runs over the tokens that ask. Columns sum to 1 where rows should."),
    mistake("softmax(dim=-1)", "softmax(dim=1)", "The softmax runs over the heads, which then compete with one another."),
    mistake("query @ key.mT", "key @ query.mT", "Query and key have changed places: row i says what others ask of token i."),
    mistake(_WRONG_MAP, "return scores", "The scores are returned as they are. They become shares by a softmax."),
    mistake(_WRONG_MAP, "return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -1e9).softmax(-1)",
            "No token reads what comes after it. BERT reads in both directions."),
    mistake(_WRONG_MAP, "p = scores.softmax(-1)\n    return p if mask is None else p * mask[:, None, :, None]",
            "The rows of the pads are set to 0. Each row sums to 1, also where nobody will look."),
    mistake(_WRONG_MAP, "e = scores.exp()\n    return e / e.sum(-1, keepdim=True)", "The powers are taken of the scores as they are: e to the power 1000 is infinite."),
    mistake(_WRONG_MAP, "return scores.clamp(-50, 50).softmax(-1)", "The scores are cut off at a limit, so tokens beyond it look alike."),
    mistake(_WRONG_MAP, "return scores.sigmoid()", "Each score is squeezed by itself, so the shares of a row do not sum to 1."),
    mistake(_WRONG_MAP, "e = (scores - scores.amax((-2, -1), keepdim=True)).exp()\n    return e / e.sum(-1, keepdim=True)",
            "One maximum is subtracted from a whole map. Beside a loud row all powers of a quiet one vanish, and 0 / 0 is NaN; each row needs its own."),
    mistake("key.mT", "key.reshape(*key.shape[:2], key.shape[3], key.shape[2])",
            "The key is reshaped, not transposed: the shape fits, and numbers of different tokens get mixed."),
    mistake(_WRONG_MAP, _WRONG_MAP + ".nan_to_num(0.0)", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake("/ math.sqrt(query.shape[-1])", "* math.sqrt(query.shape[-1])", "The scores are multiplied by √K. They are divided by it."),
    mistake("padding_bias(mask, key)", "(1 - mask[:, None, :, None].to(key) * mask[:, None, None].to(key)) * MASK_VALUE",
            "The rows of the pads are closed as well. The mask says which tokens are read; a pad reads like any other."),
    mistake("scores + padding_bias(mask, key)", "scores - padding_bias(mask, key)", "The bias is subtracted. It is negative already, so now only pads are read."),
    mistake("scores + padding_bias(mask, key)", "scores * padding_bias(mask, key)", "The scores are multiplied by the bias, which is 0 at real tokens. It is added."),
    mistake(_WRONG_MAP, "return scores.log_softmax(dim=-1)", "Logarithms of the shares come back. The shares themselves were promised."),
]

VARIANTS["attention.maps"] = [
    '''
def attention_maps(query, key, mask=None):
    scores = torch.einsum("bhik,bhjk->bhij", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None] == 0, -1e9)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)
''',
    '''
def attention_maps(query, key, mask=None):
    K = query.size(3)
    scaled = query / K ** 0.25
    scores = torch.matmul(scaled, (key / K ** 0.25).transpose(2, 3))
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)).view(mask.shape[0], 1, 1, -1) * -1e4
    return F.softmax(scores, -1)
''',
    '''
def attention_maps(query, key, mask=None):
    sentences = []
    for b in range(len(query)):
        heads = []
        for q, k in zip(query[b], key[b]):
            rows = torch.stack([torch.stack([q[i].dot(k[j]) for j in range(len(k))]) for i in range(len(q))]) / math.sqrt(q.shape[1])
            if mask is not None:
                rows = rows + MASK_VALUE * (~mask[b].bool())
            heads.append(torch.log_softmax(rows, 1).exp())
        sentences.append(torch.stack(heads))
    return torch.stack(sentences)
''',
]


# ---- attention.scores
#
# The same cases with values to mix, and dropout. Dropout is a fixed pattern here, so the place where it is applied shows: on the map, not on scores,
# values or the result, and with nothing evened out afterwards. Gradients of the value are compared too; a pad must get none. The reference is one
# fused call, so the mistakes are made in a version by hand.

def scores_cases(generator):
    q, k, v = fixed(generator, 3, 3, 3, 5, 6)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    qkv = {"query": q, "key": k, "value": v}
    loud = k * (1 + 999 * (1 - mask))[:, None, :, None]
    cases = [Case("three sentences, two with pads", {**qkv, "mask": mask}),
             Case("no mask", {**qkv, "mask": None}), Case("NaN in one query", {**qkv, "query": spoilt(q), "mask": None}),
             Case("a mask of truth values", {**qkv, "mask": mask.bool()}),
             Case("one token", {name: x[:, :, :1] for name, x in qkv.items()} | {"mask": mask[:, :1]}),
             Case("large scores", {**qkv, "query": 30 * q, "mask": mask}),
             Case("pads with a thousand times the score", {**qkv, "key": loud, "mask": mask}),
             Case("a pad with a score of 1568, heads 64 wide", {"query": torch.full((1, 2, 3, 64), 14.0, dtype=torch.float64),
                  "key": torch.tensor([0.0, 0.01, 14.0], dtype=torch.float64)[:, None].expand(1, 2, 3, 64).clone(), "value": fixed(generator, 1, 2, 3, 64), "mask": torch.tensor([[1, 1, 0]])}),
             Case("real tokens with scores far below zero", {**qkv, "query": 300 * q.abs(), "key": -k.abs(), "mask": mask}),
             Case("dropout, as a fixed pattern", {**qkv, "mask": mask, "dropout_p": 0.3}),
             Case("dropout without a mask", {**qkv, "mask": None, "dropout_p": 0.4}),
             Case("40 tokens without a mask", {**dict(zip(qkv, fixed(generator, 3, 1, 2, 40, 6))), "mask": None}),
             Case("values wider than the keys", {**qkv, "value": fixed(generator, 3, 3, 5, 9), "mask": mask}),
             Case("one loud query among quiet ones", {**qkv, "query": q * torch.tensor([1, 3000, 1, 1, 1])[:, None], "mask": None}),
             Case("single precision", {name: x.float() for name, x in qkv.items()} | {"mask": mask}),
             Case("a row of padding", {**qkv, "value": v.abs() + 1, "mask": mask * torch.tensor([[1], [0], [1]])})]
    return masked(cases, "mask", lambda B: dict(zip(qkv, fixed(generator, 3, B, min(B, 2), 5, 6))))


def run_scores(attend, inputs):
    with probed():
        found = with_gradients(attend, inputs, "query", "key", "value")
        with torch.no_grad():
            found["output with gradients off"] = attend(**inputs)
        return settled(found, inputs)


TRIALS["attention.scores"] = Trial(scores_cases, run_scores, subject="attention", hints=(
    "Three lines: scores, shares, mixture. Write the shape behind each. The check looks for one F.dropout on the whole map, (B, H, T, T).",
    "The mask is (B, T) and belongs to the keys, the last axis of (B, H, T, T) scores. `padding_bias` gives it the right shape.",
    "scores = query @ key.mT / math.sqrt(K); add the bias; softmax over the last axis; F.dropout on the shares; times value."))


_WRONG_FUSED = "return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout_p)"


def _wrong_by_hand(scores="query @ key.mT / math.sqrt(query.shape[-1])", masked="scores + bias", shares="F.dropout(scores.softmax(-1), dropout_p)",
                   mixed="shares @ value"):
    """The same in four lines, any of which can be wrong."""
    return f"scores = {scores}\n    scores = scores if bias is None else {masked}\n    shares = {shares}\n    return {mixed}"


MISTAKES["attention.scores"] = [
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT"), "The scores are not divided by √K, so the softmax saturates as heads get wider."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT / query.shape[-1]"),
            "The scores are divided by K instead of √K (the fused call divides by itself), so the shares become too even."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT / math.sqrt(query.shape[-2])"),
            "The scores are divided by the root of the number of tokens. It is the width of a head that makes dot products grow."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT / math.sqrt(query.shape[1] * query.shape[-1])"),
            "The scores are divided by the root of the whole width D. Each head is only K wide."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores"), "The mask is not used: pads are read like words."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + bias.mT"),
            "The mask lies on the axis of the queries, so whole rows are shifted, which a softmax does not notice, and pads are read."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + MASK_VALUE - bias"), "The mask is read the wrong way round: only pads are read."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + (bias == 0)"),
            "The mask is added as 0 and 1. A pad then scores one less than a word, and is still read."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores * (bias == 0)"), "Pads get the score 0. That is no silence: e to the power 0 is 1."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + bias / 500"), "Pads are lowered by too little: one with a high score is still read."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + bias[:1]"), "The mask of the first sentence is used for all."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + padding_bias(torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True), key)"),
            "The mask is read as a length. A pad can stand between real tokens too."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + bias.amax(0, keepdim=True)"),
            "A column counts as padding only if it is padding in all sentences. Each sentence has its own mask."),
    mistake("if mask is None else", "if mask is None or len(mask) == 1 else", "A single sentence is taken for one without padding."),
    mistake("if mask is None else", "if mask is None or mask[0].all() else", "If the first sentence is full, the mask of the others is not used."),
    mistake("if mask is None else", "if mask is None or mask[:, -1].all() else", "If the last column holds real tokens, the mask is not used."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -1e9).softmax(-1), dropout_p)"),
            "No token reads what comes after it. BERT reads in both directions."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout((e := scores.exp()) / e.sum(-1, keepdim=True), dropout_p)"),
            "The powers are taken of the scores as they are: e to the power 1000 is infinite."),
    mistake(_WRONG_FUSED, _wrong_by_hand() + " * (1 if mask is None else mask[:, None, :, None])",
            "The results of the pads are set to 0. Each row is a mean of values, also where nobody will look."),
    mistake(_WRONG_FUSED, _wrong_by_hand() + " * (1 if mask is None else mask.bool().any(1)[:, None, None, None])",
            "A row of nothing but padding gives 0. About what no mask would give was asked for."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores.masked_fill(bias < 0, -math.inf)"),
            "Pads get minus infinity, so a row of nothing but padding becomes NaN."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores",
                                         shares="F.dropout(scores.softmax(-1) if bias is None else scores.softmax(-1) * (bias == 0), dropout_p)"),
            "The mask is applied after the softmax, so rows with pads no longer sum to 1."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores.softmax(-2), dropout_p)"),
            "The softmax runs over the tokens that ask. Columns sum to 1 where rows should."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores.softmax(1), dropout_p)"),
            "The softmax runs over the heads, which then compete with one another."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores, dropout_p)"),
            "There is no softmax: values are mixed by raw scores, which are no shares."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="scores.softmax(-1)"), "`dropout_p` is not used."),
    mistake("dropout_p=dropout_p)", "dropout_p=dropout_p if torch.is_grad_enabled() else 0.0)",
            "Where gradients are off nothing is dropped. Whether to drop is the caller's to say, by `dropout_p`."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores, dropout_p).softmax(-1)"),
            "Dropout falls on the scores. A score of 0 is no share of 0; it belongs on the map, after the softmax."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="scores.softmax(-1)", mixed="F.dropout(shares @ value, dropout_p)"),
            "Dropout falls on the result. It belongs on the map, before the values are mixed."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="scores.softmax(-1)", mixed="shares @ F.dropout(value, dropout_p)"),
            "Dropout falls on the values. It belongs on the map."),
    mistake(_WRONG_FUSED, _wrong_by_hand(mixed="shares / shares.sum(-1, keepdim=True) @ value"),
            "The shares are made to sum to 1 again after dropout, which undoes part of it."),
    mistake(_WRONG_FUSED, _wrong_by_hand("key @ query.mT / math.sqrt(query.shape[-1])"),
            "Query and key have changed places: row i says what others ask of token i."),
    mistake(_WRONG_FUSED, _wrong_by_hand(mixed="shares.mT @ value"),
            "The map is transposed before it meets the values: each token gathers by how much it is read."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout((e := (scores - scores.amax((-2, -1), keepdim=True)).exp()) / e.sum(-1, keepdim=True), dropout_p)"),
            "One maximum is subtracted from a whole map. Beside a loud row all powers of a quiet one vanish, and 0 / 0 is NaN; each row needs its own."),
    mistake(_WRONG_FUSED, _wrong_by_hand(mixed="shares @ key"), "The keys are mixed instead of the values."),
    mistake(_WRONG_FUSED, _WRONG_FUSED + ".nan_to_num(0.0)", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT * math.sqrt(query.shape[-1])"), "The scores are multiplied by √K. They are divided by it."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ key.mT", masked="scores + bias", shares="F.dropout((scores / math.sqrt(query.shape[-1])).softmax(-1), dropout_p)"),
            "The bias is divided by √K along with the scores, so in wide heads a pad with a high score is still read. It is added after the division."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores + (1 - mask[:, None, :, None].to(key) * mask[:, None, None].to(key)) * MASK_VALUE"),
            "The rows of the pads are closed as well. The mask says which tokens are read; a pad reads like any other."),
    mistake(_WRONG_FUSED, _wrong_by_hand(masked="scores - bias"), "The bias is subtracted. It is negative already, so now only pads are read."),
    mistake("attn_mask=bias", "attn_mask=None if mask is None else (mask == 0)[:, None, None]",
            "The fused call gets truth values the wrong way round: there True means that a token is read."),
    mistake(_WRONG_FUSED, _wrong_by_hand("query @ value.mT / math.sqrt(query.shape[-1])", mixed="shares @ key"), "Key and value have changed places."),
    mistake(_WRONG_FUSED, _wrong_by_hand(shares="F.dropout(scores.softmax(-1), 1 - dropout_p)"), "`dropout_p` is taken for the share that stays. It is the share that is dropped."),
]

VARIANTS["attention.scores"] = [
    '''
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    scores = torch.einsum("bhik,bhjk->bhij", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None] == 0, -1e4)
    shares = torch.exp(scores - scores.amax(-1, keepdim=True))
    shares = F.dropout(shares / shares.sum(-1, keepdim=True), dropout_p)
    return torch.einsum("bhij,bhjk->bhik", shares, value)
''',
    '''
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    shares = nn.Dropout(dropout_p)(attention_maps(query, key, mask))
    return torch.matmul(shares, value)
''',
    '''
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    B, H, T, K = query.shape
    scores = torch.bmm(query.reshape(B * H, T, K), key.reshape(B * H, T, K).transpose(1, 2)).div(math.sqrt(K))
    if mask is not None:
        scores = scores.view(B, H, T, T) + padding_bias(mask, key)
    shares = torch.softmax(scores.view(B, H, T, T), dim=3)
    if dropout_p > 0:
        shares = torch.nn.functional.dropout(shares, p=dropout_p, training=True)
    return (shares.unsqueeze(-1) * value.unsqueeze(2)).sum(3)
''',
]


# ---- How much they catch
