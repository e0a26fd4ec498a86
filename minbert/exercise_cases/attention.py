"""Exercise cases of chapter 02: padding bias, attention function, and self-attention."""

import math

import torch

from minbert.course.check_runner import (
    Case,
    Trial,
    fill,
    fixed,
    mistake,
    probe,
    probed,
    with_gradients,
)

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def with_dtype(found, wanted):
    """Add to what was found whether the result has the dtype that it should have."""
    return found | {"dtype as promised": found["output"].dtype == wanted}


def through(module, call, inputs, *names):
    """Call something that uses a module; give its result, and the gradients of some inputs and
    of every weight."""
    plain = call(**inputs)  # sees the inputs themselves, so that writing into them shows
    leaves = {name: inputs[name].detach().clone().requires_grad_() for name in names}
    out = call(**{**inputs, **leaves})
    wanted = leaves | dict(module.named_parameters())
    found = [None] * len(wanted)
    if out.requires_grad:
        found = torch.autograd.grad(
            (out * probe(out)).sum(), list(wanted.values()), allow_unused=True
        )
    gradients = {
        f"gradient of {name}": torch.zeros_like(x) if g is None else g
        for (name, x), g in zip(wanted.items(), found)
    }
    return with_dtype({"output": plain} | gradients, next(module.parameters()).dtype)


MASKS = {  # each would hide a mistake that some other one shows
    "the first sentence full, the others with pads": [
        [1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 0, 0],
    ],
    "a real token at every end, pads before it": [
        [1, 0, 1, 1, 1],
        [1, 1, 0, 0, 1],
        [0, 1, 1, 0, 1],
    ],
    "one sentence with pads, one head": [[1, 1, 0, 1, 0]],
    "no place is real in all sentences": [[0, 1, 1, 1, 0], [1, 0, 1, 0, 1], [1, 1, 0, 1, 0]],
    "as many sentences as tokens": [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1],
        [1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 0],
    ],
}


def masked(cases, name, rows):
    """One case for each of these masks: `rows` makes the other inputs for so many sentences of
    five tokens."""
    return cases + [
        Case(label, {**rows(len(mask)), name: torch.tensor(mask)}) for label, mask in MASKS.items()
    ]


# ---- attention.bias
#
# The bias is exact, so shape, sign and values are compared directly. The mask is given as
# integers and as booleans, the keys in double and in single precision. The most costly mistakes
# are an inverted mask, a bias on the query axis, and an infinite constant.


def bias_cases(generator):
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    key = fixed(generator, 3, 2, 5, 4)
    cases = [
        Case("three sentences, two with pads", {"attention_mask": mask, "key": key}),
        Case("a mask of truth values", {"attention_mask": mask.bool(), "key": key}),
        Case("keys in single precision", {"attention_mask": mask, "key": key.float()}),
        Case("keys in half precision", {"attention_mask": mask, "key": key.bfloat16()}),
        Case(
            "one sentence, one token, one head",
            {"attention_mask": mask[:1, :1], "key": key[:1, :1, :1]},
        ),
        Case(
            "a row of padding", {"attention_mask": mask * torch.tensor([[1], [0], [1]]), "key": key}
        ),
        Case(
            "seven sentences with holes",
            {
                "attention_mask": (torch.rand(7, 9, generator=generator) < 0.7).long(),
                "key": fixed(generator, 7, 2, 9, 4),
            },
        ),
    ]
    return masked(cases, "attention_mask", lambda B: {"key": fixed(generator, B, 2, 5, 4)})


def run_bias(bias, inputs):
    made = bias(**inputs)
    return {
        "bias": made,
        "dtype as promised": made.dtype == inputs["key"].dtype,
        "finite": made.isfinite(),
    }


TRIALS["attention.bias"] = Trial(
    bias_cases,
    run_bias,
    subject="attention",
    hints=(
        (
            "Which number must be added to the score of a real token, so that nothing changes? "
            "And to that of a pad?"
        ),
        (
            "1 - mask is 1 at the pads. Mind that truth values cannot be subtracted, and that the "
            "result has the dtype of the keys."
        ),
        (
            "padding = 1 - attention_mask.to(key); multiply it by MASK_VALUE; index with [:, None, "
            "None, :], so that T is the last axis, where the keys of a score are."
        ),
    ),
)


_WRONG_BIAS = "return (padding * MASK_VALUE)[:, None, None, :]  # (B, T) -> (B, 1, 1, T)"

MISTAKES["attention.bias"] = [
    mistake(
        "(padding *",
        "((1 - padding) *",
        "The mask is inverted: real tokens are masked and padding is attended to.",
    ),
    mistake(
        "MASK_VALUE)",
        "-MASK_VALUE)",
        "The sign is wrong: padding gets a large positive score and receives all the attention.",
    ),
    mistake(
        "[:, None, None, :]",
        "[:, None, :, None]",
        "The mask is on the query axis. It adds the same constant to a whole row, which the "
        "softmax ignores, so padding is attended to.",
    ),
    mistake(
        "[:, None, None, :]",
        "[:, None, :]",
        "One axis is missing: (B, 1, T) broadcasts against (B, H, T, T) as if sentences were "
        "heads.",
    ),
    mistake(
        _WRONG_BIAS,
        "return torch.zeros_like(key[:, 0, :, 0]).masked_fill(padding == 1, -math.inf)[:, None, None, :]",
        "The constant is minus infinity, so the softmax of a row that contains only padding is "
        "NaN. Use MASK_VALUE.",
    ),
    mistake(
        "attention_mask.to(key)",
        "attention_mask.float()",
        "The bias does not have the dtype of the keys, so scores in another precision are "
        "converted.",
    ),
    mistake(
        _WRONG_BIAS,
        "return (1 - padding)[:, None, None, :]",
        "The mask itself is returned, so padding only scores 1 lower than a real token and is "
        "still attended to.",
    ),
    mistake(
        _WRONG_BIAS,
        "return ((~attention_mask).to(key) * MASK_VALUE)[:, None, None, :]",
        '`~` inverts the bits of an integer (~1 is -2). It means "not" only for booleans.',
    ),
]

VARIANTS["attention.bias"] = [
    """
def padding_bias(attention_mask, key):
    bias = key.new_zeros(attention_mask.shape)
    bias[attention_mask == 0] = MASK_VALUE
    return bias.unsqueeze(1).unsqueeze(2)
""",
    """
def padding_bias(attention_mask, key):
    return (
        torch.where(attention_mask.bool(), 0.0, MASK_VALUE).to(key.dtype).view(len(key), 1, 1, -1)
    )
""",
    """
def padding_bias(attention_mask, key):
    rows = [[0.0 if m else MASK_VALUE for m in row] for row in attention_mask.tolist()]
    return torch.tensor(rows, dtype=key.dtype, device=key.device)[:, None, None]
""",
]


# ---- attention.maps
#
# The attention weights before they multiply the values. Cases cover every kind of padding, large
# scores, one token and one head; the gradients of query and key are compared too. A row with one
# very large query shows whether each row is normalized by itself. NaN in the input has to stay
# NaN. A row that contains only padding has to give finite weights that sum to 1; whether the
# constant is added to the scores or replaces them is left open. The masks of `MASKS` come in
# every exercise that reads a mask: each of them makes one shortcut fail (the mask of the first
# sentence for all, a mask used as a length, a batch of one sentence, equal numbers of sentences
# and tokens).


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
    cases = [
        Case("three sentences, two with pads", {**both, "mask": mask}),
        Case("no mask", {**both, "mask": None}),
        Case(
            "40 tokens without a mask",
            {**dict(zip(both, fixed(generator, 2, 1, 2, 40, 6))), "mask": None},
        ),
        Case("NaN in one query", {"query": spoilt(q), "key": k, "mask": None}),
        Case("a mask of truth values", {**both, "mask": mask.bool()}),
        Case("one token", {name: x[:, :, :1] for name, x in both.items()} | {"mask": mask[:, :1]}),
        Case("large scores", {**both, "query": 30 * q, "mask": mask}),
        Case("pads with a thousand times the score", {**both, "key": loud, "mask": mask}),
        Case(
            "a pad with a score of 1568, heads 64 wide",
            {
                "query": torch.full((1, 2, 3, 64), 14.0, dtype=torch.float64),
                "key": torch.tensor([0.0, 0.01, 14.0], dtype=torch.float64)[:, None]
                .expand(1, 2, 3, 64)
                .clone(),
                "mask": torch.tensor([[1, 1, 0]]),
            },
        ),
        Case(
            "real tokens with scores far below zero",
            {**both, "query": 300 * q.abs(), "key": -k.abs(), "mask": mask},
        ),
        Case(
            "one loud query among quiet ones",
            {**both, "query": q * torch.tensor([1, 3000, 1, 1, 1])[:, None], "mask": None},
        ),
        Case("single precision", {name: x.float() for name, x in both.items()} | {"mask": mask}),
        Case("a row of padding", {**both, "mask": mask * torch.tensor([[1], [0], [1]])}),
    ]
    return masked(cases, "mask", lambda B: dict(zip(both, fixed(generator, 2, B, min(B, 2), 5, 6))))


def settled(found, inputs):
    """Of sentences without a real token keep only what holds for any weights: finite, shares or
    a mean of values. Say whether the dtype is kept."""
    if inputs["mask"] is not None and not (real := inputs["mask"].bool().any(1)).all():
        lost = {"finite at a row of padding": all(bool(x.isfinite().all()) for x in found.values())}
        if "value" in inputs:
            at, v = found["output"][~real], inputs["value"][~real]
            lost["between the values at a row of padding"] = (
                (at >= v.amin(-2, keepdim=True) - 1e-9) & (at <= v.amax(-2, keepdim=True) + 1e-9)
            ).all()
        else:
            lost["shares that sum to 1 at a row of padding"] = (
                found["output"][~real].sum(-1).sub(1).abs().max() < 1e-9
            )
        found = {name: x[real] for name, x in found.items()} | lost
    return with_dtype(found, inputs["query"].dtype)


def run_maps(maps, inputs):
    return settled(with_gradients(maps, inputs, "query", "key"), inputs)


TRIALS["attention.maps"] = Trial(
    maps_cases,
    run_maps,
    subject="attention",
    hints=(
        (
            "A score is a dot product of one query and one key. All of them are one matrix "
            "product. What is its shape?"
        ),
        (
            "Divide by the root of the head width, the last size of the query. `padding_bias` "
            "gives what to add before the softmax, in the right shape."
        ),
        (
            "scores = query @ key.mT / math.sqrt(query.shape[-1]); add padding_bias(mask, key) if "
            "there is a mask; softmax over the last axis, where the "
            "keys are."
        ),
    ),
)


_WRONG_MASK = "scores = scores + padding_bias(mask, key)         # + (B, 1, 1, T)"

MISTAKES["attention.maps"] = [
    mistake(
        " / math.sqrt(query.shape[-1])",
        "",
        "The scores are not divided by √K, so the softmax saturates as heads get wider.",
    ),
    mistake(
        "math.sqrt(query.shape[-1])",
        "query.shape[-1]",
        "The scores are divided by K instead of √K, so the attention weights are too uniform.",
    ),
    mistake(_WRONG_MASK, "pass", "The mask is not used: padding is attended to like real tokens."),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(mask, key).mT",
        "The mask is on the query axis. It shifts whole rows, which the softmax ignores, so "
        "padding is attended to.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(1 - mask.long(), key)",
        "The mask is inverted: only padding is attended to.",
    ),
    mistake(
        _WRONG_MASK,
        "return scores.softmax(-1) * (padding_bias(mask, key) == 0)",
        "The mask is applied after the softmax, so the attention weights of rows with padding "
        "do not sum to 1.",
    ),
    mistake(
        "scores + padding_bias(mask, key)",
        "scores.masked_fill(padding_bias(mask, key) < 0, -math.inf)",
        "Padding gets minus infinity, so the softmax of a row that contains only padding is NaN.",
    ),
    mistake(
        "softmax(dim=-1)",
        "softmax(dim=-2)",
        "The softmax runs over the queries. Each row should sum to 1, not each column.",
    ),
]

VARIANTS["attention.maps"] = [
    """
def attention_maps(query, key, mask=None):
    scores = torch.einsum("bhik,bhjk->bhij", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None] == 0, -1e9)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)
""",
    """
def attention_maps(query, key, mask=None):
    K = query.size(3)
    scaled = query / K ** 0.25
    scores = torch.matmul(scaled, (key / K ** 0.25).transpose(2, 3))
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)).view(mask.shape[0], 1, 1, -1) * -1e4
    return F.softmax(scores, -1)
""",
    """
def attention_maps(query, key, mask=None):
    sentences = []
    for b in range(len(query)):
        heads = []
        for q, k in zip(query[b], key[b]):
            rows = torch.stack(
                [torch.stack([q[i].dot(k[j]) for j in range(len(k))]) for i in range(len(q))]
            ) / math.sqrt(q.shape[1])
            if mask is not None:
                rows = rows + MASK_VALUE * (~mask[b].bool())
            heads.append(torch.log_softmax(rows, 1).exp())
        sentences.append(torch.stack(heads))
    return torch.stack(sentences)
""",
]


# ---- attention.scores
#
# The same cases with values and dropout. Dropout is replaced by a fixed pattern, so its position
# shows: on the attention weights, not on scores, values or the result. The reference calls
# `attention_maps`, so the mistakes are edits of a version that computes the weights itself.


def scores_cases(generator):
    q, k, v = fixed(generator, 3, 3, 3, 5, 6)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]])
    qkv = {"query": q, "key": k, "value": v}
    loud = k * (1 + 999 * (1 - mask))[:, None, :, None]
    cases = [
        Case("three sentences, two with pads", {**qkv, "mask": mask}),
        Case("no mask", {**qkv, "mask": None}),
        Case("NaN in one query", {**qkv, "query": spoilt(q), "mask": None}),
        Case("a mask of truth values", {**qkv, "mask": mask.bool()}),
        Case("one token", {name: x[:, :, :1] for name, x in qkv.items()} | {"mask": mask[:, :1]}),
        Case("large scores", {**qkv, "query": 30 * q, "mask": mask}),
        Case("pads with a thousand times the score", {**qkv, "key": loud, "mask": mask}),
        Case(
            "a pad with a score of 1568, heads 64 wide",
            {
                "query": torch.full((1, 2, 3, 64), 14.0, dtype=torch.float64),
                "key": torch.tensor([0.0, 0.01, 14.0], dtype=torch.float64)[:, None]
                .expand(1, 2, 3, 64)
                .clone(),
                "value": fixed(generator, 1, 2, 3, 64),
                "mask": torch.tensor([[1, 1, 0]]),
            },
        ),
        Case(
            "real tokens with scores far below zero",
            {**qkv, "query": 300 * q.abs(), "key": -k.abs(), "mask": mask},
        ),
        Case("dropout, as a fixed pattern", {**qkv, "mask": mask, "dropout_p": 0.3}),
        Case("dropout without a mask", {**qkv, "mask": None, "dropout_p": 0.4}),
        Case(
            "40 tokens without a mask",
            {**dict(zip(qkv, fixed(generator, 3, 1, 2, 40, 6))), "mask": None},
        ),
        Case(
            "one loud query among quiet ones",
            {**qkv, "query": q * torch.tensor([1, 3000, 1, 1, 1])[:, None], "mask": None},
        ),
        Case("single precision", {name: x.float() for name, x in qkv.items()} | {"mask": mask}),
        Case(
            "a row of padding",
            {**qkv, "value": v.abs() + 1, "mask": mask * torch.tensor([[1], [0], [1]])},
        ),
    ]
    return masked(cases, "mask", lambda B: dict(zip(qkv, fixed(generator, 3, B, min(B, 2), 5, 6))))


def run_scores(attend, inputs):
    with probed():
        found = with_gradients(attend, inputs, "query", "key", "value")
        with torch.no_grad():
            found["output with gradients off"] = attend(**inputs)
        return settled(found, inputs)


TRIALS["attention.scores"] = Trial(
    scores_cases,
    run_scores,
    subject="attention",
    hints=(
        (
            "Three lines: scores, weights, weighted mean. Write the shape beside each. The check "
            "looks for one F.dropout on the whole map, (B, H, T, T)."
        ),
        (
            "The mask is (B, T) and belongs to the keys, the last axis of (B, H, T, T) scores. "
            "`padding_bias` gives it the right shape."
        ),
        (
            "scores = query @ key.mT / math.sqrt(K); add the bias; softmax over the last axis; "
            "F.dropout on the weights; times value."
        ),
    ),
)


_WRONG_LINES = (
    "weights = F.dropout(attention_maps(query, key, mask), dropout_p)  # (B, H, T, T)\n"
    "    return weights @ value                                            # (B, H, T, K)"
)


def _wrong_by_hand(
    scores="query @ key.mT / math.sqrt(query.shape[-1])",
    masked="scores + bias",
    weights="F.dropout(scores.softmax(-1), dropout_p)",
    mixed="weights @ value",
    unmasked="mask is None",
):
    """The same in five lines, any of which can be wrong."""
    lines = (
        f"bias = None if {unmasked} else padding_bias(mask, key)",
        f"scores = {scores}",
        f"scores = scores if bias is None else {masked}",
        f"weights = {weights}",
        f"return {mixed}",
    )
    return "\n    ".join(lines)


MISTAKES["attention.scores"] = [
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ key.mT"),
        "The scores are not divided by √K, so the softmax saturates as heads get wider.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ key.mT / query.shape[-1]"),
        "The scores are divided by K instead of √K, so the attention weights are too uniform.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores"),
        "The mask is not used: padding is attended to like real tokens.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + bias.mT"),
        "The mask is on the query axis. It shifts whole rows, which the softmax ignores, so "
        "padding is attended to.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores.masked_fill(bias < 0, -math.inf)"),
        "Padding gets minus infinity, so the softmax of a row that contains only padding is NaN.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            masked="scores",
            weights=(
                "F.dropout(scores.softmax(-1) if bias is None else scores.softmax(-1) * (bias "
                "== 0), "
                "dropout_p)"
            ),
        ),
        "The mask is applied after the softmax, so the attention weights of rows with padding "
        "do not sum to 1.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="F.dropout(scores.softmax(-2), dropout_p)"),
        "The softmax runs over the queries. Each row should sum to 1, not each column.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="F.dropout(scores, dropout_p).softmax(-1)"),
        "Dropout is applied to the scores. It belongs on the attention weights, after the softmax.",
    ),
]

VARIANTS["attention.scores"] = [
    """
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    scores = torch.einsum("bhik,bhjk->bhij", query, key) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None] == 0, -1e4)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = F.dropout(weights / weights.sum(-1, keepdim=True), dropout_p)
    return torch.einsum("bhij,bhjk->bhik", weights, value)
""",
    """
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    weights = nn.Dropout(dropout_p)(attention_maps(query, key, mask))
    return torch.matmul(weights, value)
""",
    """
def scaled_dot_product_attention(query, key, value, mask=None, dropout_p=0.0):
    B, H, T, K = query.shape
    scores = torch.bmm(query.reshape(B * H, T, K), key.reshape(B * H, T, K).transpose(1, 2)).div(
        math.sqrt(K)
    )
    if mask is not None:
        scores = scores.view(B, H, T, T) + padding_bias(mask, key)
    weights = torch.softmax(scores.view(B, H, T, T), dim=3)
    if dropout_p > 0:
        weights = torch.nn.functional.dropout(weights, p=dropout_p, training=True)
    return (weights.unsqueeze(-1) * value.unsqueeze(2)).sum(3)
""",
]


# ---- attention.split and attention.merge
#
# One, two and three axes before the tokens, so that counting axes from the left fails in some
# cases. Heads of size 1 and a single head are the extreme cases. `split` also has to return a
# view.


def split_cases(generator):
    return [
        Case(
            "two sentences of five tokens, three heads",
            {"x": fixed(generator, 2, 5, 12), "heads": 3},
        ),
        Case("one sentence without a batch axis", {"x": fixed(generator, 5, 12), "heads": 3}),
        Case("two axes before the tokens", {"x": fixed(generator, 2, 3, 5, 8), "heads": 2}),
        Case("one head", {"x": fixed(generator, 2, 5, 6), "heads": 1}),
        Case("heads of width one", {"x": fixed(generator, 2, 5, 4), "heads": 4}),
        Case("one token", {"x": fixed(generator, 1, 1, 12), "heads": 3}),
        Case("as many tokens as heads", {"x": fixed(generator, 3, 3, 12), "heads": 3}),
        Case(
            "numbers that do not lie side by side", {"x": fixed(generator, 2, 12, 5).mT, "heads": 3}
        ),
        Case("single precision", {"x": fixed(generator, 2, 5, 12).float(), "heads": 3}),
    ]


def run_heads(move, inputs):
    return with_dtype(with_gradients(move, inputs, "x"), inputs["x"].dtype)


def run_split(split, inputs):
    found = run_heads(split, inputs)
    return found | {
        "a view of the input": found["output"].untyped_storage().data_ptr()
        == inputs["x"].untyped_storage().data_ptr()
    }


TRIALS["attention.split"] = Trial(
    split_cases,
    run_split,
    subject="attention",
    hints=(
        (
            "Each token keeps its own numbers. First cut the last axis into two, then ask which "
            "axis has to move."
        ),
        (
            "unflatten(-1, (heads, -1)) gives (..., T, H, K). Count axes from the right, since "
            "there may be any number on the left."
        ),
        (
            "unflatten the last axis into (heads, -1), then exchange the third and the second "
            "axis from the right."
        ),
    ),
)


def merge_cases(generator):
    return [
        Case("two sentences of five tokens, three heads", {"x": fixed(generator, 2, 3, 5, 4)}),
        Case("one sentence without a batch axis", {"x": fixed(generator, 3, 5, 4)}),
        Case("two axes before the heads", {"x": fixed(generator, 2, 3, 2, 5, 4)}),
        Case("one head", {"x": fixed(generator, 2, 1, 5, 6)}),
        Case("heads of width one", {"x": fixed(generator, 2, 4, 5, 1)}),
        Case("one token", {"x": fixed(generator, 1, 3, 1, 4)}),
        Case("as many tokens as heads", {"x": fixed(generator, 3, 3, 3, 4)}),
        Case(
            "numbers that do not lie side by side",
            {"x": fixed(generator, 2, 5, 3, 4).transpose(1, 2)},
        ),
        Case("single precision", {"x": fixed(generator, 2, 3, 5, 4).float()}),
    ]


TRIALS["attention.merge"] = Trial(
    merge_cases,
    run_heads,
    subject="attention",
    hints=(
        "Undo the two steps of `split_heads` in the opposite order.",
        (
            "First bring the heads next to their numbers, (..., T, H, K); then two axes can "
            "become one. After that the memory is no longer in order, so "
            "`view` will not do."
        ),
        "Exchange the third and the second axis from the right, then flatten the last two.",
    ),
)


_WRONG_CUT = (
    "x = x.unflatten(-1, (heads, -1))  # (..., T, D) -> (..., T, H, K)\n"
    "    return x.transpose(-3, -2)        # (..., T, H, K) -> (..., H, T, K)"
)

MISTAKES["attention.split"] = [
    mistake(
        _WRONG_CUT,
        "return x.reshape(*x.shape[:-2], heads, x.shape[-2], -1)",
        "The tensor is reshaped to (H, T, K) directly. The shape is right, but each head gets "
        "values from other tokens.",
    ),
    mistake(
        ".transpose(-3, -2)",
        "",
        "The transpose is missing: the result is (T, H, K), so attention would run over the heads.",
    ),
    mistake(
        _WRONG_CUT,
        "return x.unflatten(-1, (-1, heads)).movedim(-1, -3)",
        "Each head gets every H-th dimension. It should get K adjacent dimensions.",
    ),
    mistake(
        "(heads, -1)",
        "(-1, heads)",
        "Number and size of the heads are swapped: there are K heads of size H.",
    ),
    mistake(
        "transpose(-3, -2)",
        "transpose(1, 2)",
        "The axes are counted from the left, which only works with exactly one axis before the "
        "tokens. Count from the right.",
    ),
    mistake(
        "transpose(-3, -2)",
        "transpose(-3, -2).contiguous()",
        "The tensor is copied by `contiguous()`. A view is enough and costs nothing.",
    ),
    mistake(
        "transpose(-3, -2)",
        "movedim(-2, 0)",
        "The head axis is the very first axis, before the batch. It belongs directly before the "
        "tokens.",
    ),
    mistake(
        "transpose(-3, -2)",
        "transpose(-3, -2).mT",
        "Head size and tokens are swapped: the result is (H, K, T).",
    ),
]

VARIANTS["attention.split"] = [
    """
def split_heads(x, heads):
    K = x.shape[-1] // heads
    return x.unfold(-1, K, K).transpose(-3, -2)
""",
    """
def split_heads(x, heads):
    *front, T, D = x.shape
    return x.reshape(*front, T, heads, D // heads).swapaxes(-2, -3)
""",
    """
def split_heads(x, heads):
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).movedim(-2, -3)
""",
]

MISTAKES["attention.merge"] = [
    mistake(
        "return x.transpose(-3, -2).flatten(-2)",
        "return x.reshape(*x.shape[:-3], x.shape[-2], -1)",
        "The tensor is reshaped to (T, D) directly. The shape is right, but each token gets "
        "values from other tokens.",
    ),
    mistake(
        "transpose(-3, -2).flatten(-2)",
        "transpose(1, 2).flatten(2)",
        "The axes are counted from the left, which only works with exactly one axis before the "
        "heads. Count from the right.",
    ),
    mistake(
        "transpose(-3, -2)",
        "movedim(-3, -1)",
        "The dimensions of the heads are interleaved. All dimensions of one head come first, "
        "then those of the next.",
    ),
    mistake(
        "transpose(-3, -2).flatten(-2)",
        "flatten(-3, -2)",
        "The heads are concatenated along the token axis, giving (H T, K). They belong side by "
        "side, token by token.",
    ),
    mistake(
        "transpose(-3, -2).flatten(-2)",
        "mean(-3)",
        "The heads are averaged. They should be concatenated.",
    ),
    mistake(
        "transpose(-3, -2).flatten(-2)",
        "sum(-3)",
        "The heads are summed. They should be concatenated.",
    ),
    mistake(".flatten(-2)", "", "Heads and head size are still two separate axes."),
]

VARIANTS["attention.merge"] = [
    """
def merge_heads(x):
    return torch.cat(x.unbind(-3), dim=-1)
""",
    """
def merge_heads(x):
    x = x.swapaxes(-2, -3).contiguous()
    return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])
""",
    """
def merge_heads(x):
    rows = [
        torch.cat([x[..., h, t, :] for h in range(x.shape[-3])], -1) for t in range(x.shape[-2])
    ]
    return torch.stack(rows, -2)
""",
]


# ---- attention.project
#
# Three linear layers with different weights, applied to a batch, to a list of tokens and to a
# single vector. The gradients of all weights are compared.


def project_cases(generator):
    return [
        Case("two sentences of five tokens", {"hidden_states": fixed(generator, 2, 5, 12)}),
        Case(
            "a flat list of seven tokens, evaluating",
            {"hidden_states": fixed(generator, 7, 12), "eval": True},
        ),
        Case("one vector", {"hidden_states": fixed(generator, 12)}),
        Case("two axes before the tokens", {"hidden_states": fixed(generator, 3, 2, 4, 12)}),
    ]


def run_project(Attention, inputs):
    module = fill(Attention(12, 3, dropout=0.25)).train("eval" not in inputs)

    def stacked(hidden_states):
        query, key, value = module.project(hidden_states)
        return torch.stack([query, key, value])

    with probed():
        return through(module, stacked, {"hidden_states": inputs["hidden_states"]}, "hidden_states")


TRIALS["attention.project"] = Trial(
    project_cases,
    run_project,
    subject="attention",
    hints=(
        "`self.query(hidden_states)` is a whole linear map, bias included. You need three.",
        ("Apply the three layers to the same hidden states, and mind the order of the results."),
        ("Return self.query(h), self.key(h), self.value(h), where h are the hidden states."),
    ),
)


_WRONG_THREE = (
    "return self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)"
)


MISTAKES["attention.project"] = [
    mistake(
        _WRONG_THREE,
        "return self.key(hidden_states), self.query(hidden_states), self.value(hidden_states)",
        "Query and key are swapped.",
    ),
    mistake(
        "self.value(hidden_states)",
        "self.key(hidden_states)",
        "The values are computed with the key projection.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(F.linear(hidden_states, part.weight) for part in parts)",
        "The biases are missing.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(hidden_states @ part.weight + part.bias for part in parts)",
        "The weight matrix is transposed: a linear layer computes x Wᵀ + b.",
    ),
    mistake(
        _WRONG_THREE,
        "q = self.query(hidden_states)\n    return q, self.key(q), self.value(q)",
        "Key and value are computed from the query. All three are computed from the hidden states.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(F.dropout(m(hidden_states), self.dropout, self.training) for m in parts)",
        "Dropout is applied to the projections. It belongs on the attention weights, later.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(split_heads(m(hidden_states), self.heads) for m in parts)",
        "The heads are split here already. `attend` does that.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    scale = (hidden_states.shape[-1] / self.heads) ** 0.25\n"
        "    return tuple(m(hidden_states) / scale for m in parts)",
        "The projections are scaled here already. The division by √K comes later, in the "
        "attention function.",
    ),
]

VARIANTS["attention.project"] = [
    """
def project(self, hidden_states):
    parts = (self.query, self.key, self.value)
    weight = torch.cat([part.weight for part in parts])
    bias = torch.cat([part.bias for part in parts])
    return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)
""",
    """
def project(self, hidden_states):
    parts = []
    for part in (self.query, self.key, self.value):
        parts.append(torch.einsum("...d,ed->...e", hidden_states, part.weight) + part.bias)
    return tuple(parts)
""",
    """
def project(self, hidden_states):
    return [hidden_states @ m.weight.T + m.bias for m in (self.query, self.key, self.value)]
""",
]


# ---- attention.attend
#
# Train and eval mode, with dropout as a fixed pattern. Three heads of size 4, so that number and
# size cannot be confused. Padding with very large scores, and a row that contains only padding,
# show a mask constant that is too weak or too strong.


def attend_cases(generator):
    q, k, v = fixed(generator, 3, 2, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    qkv = {"query": q, "key": k, "value": v}
    cases = [
        Case(
            "evaluating, two sentences, the first with two pads",
            {**qkv, "mask": mask, "training": False},
        ),
        Case("training, dropout as a fixed pattern", {**qkv, "mask": mask, "training": True}),
        Case("training, no mask", {**qkv, "mask": None, "training": True}),
        Case(
            "training, after a call in eval mode",
            {**qkv, "mask": mask, "training": True, "earlier": True},
        ),
        Case(
            "evaluating, one token",
            {name: x[:1, :1] for name, x in qkv.items()} | {"mask": None, "training": False},
        ),
        Case(
            "evaluating, pads with a thousand times the score",
            {**qkv, "key": k * (1 + 999 * (1 - mask))[..., None], "mask": mask, "training": False},
        ),
        Case(
            "evaluating, a row of padding",
            {
                **qkv,
                "value": v.abs() + 1,
                "mask": mask * torch.tensor([[1], [0]]),
                "training": False,
            },
        ),
    ]
    return masked(
        cases, "mask", lambda B: dict(zip(qkv, fixed(generator, 3, B, 5, 12))) | {"training": False}
    )


def run_attend(Attention, inputs):
    module = fill(Attention(12, 3, dropout=0.25)).train(inputs["training"])
    given = {name: inputs[name] for name in ("query", "key", "value", "mask")}
    with probed():
        if "earlier" in inputs:
            module.eval().attend(**given)
            module.train()
        return settled(with_gradients(module.attend, given, "query", "key", "value"), given)


TRIALS["attention.attend"] = Trial(
    attend_cases,
    run_attend,
    subject="attention",
    hints=(
        (
            "Three exercises in a row: split, attend, merge. Only dropout needs a decision. The "
            "check looks for one F.dropout on the whole map, (B, H, T, T)."
        ),
        (
            "`self.training` says whether the module is training. `scaled_dot_product_attention` "
            "takes the mask and the dropout."
        ),
        (
            "Split query, key and value into self.heads; call scaled_dot_product_attention with "
            "the mask and with self.dropout if self.training, else 0; "
            "merge what comes back."
        ),
    ),
)


_WRONG_CALL = "scaled_dot_product_attention(query, key, value, mask, dropout_p)"
_WRONG_SPLIT = "query = split_heads(query, self.heads)             # (B, T, D) -> (B, H, T, K)"
_WRONG_MERGE = "return merge_heads(output)                         # (B, H, T, K) -> (B, T, D)"


def _wrong_split(cut):
    """Replacements that split query, key and value in another way; `cut` says how, of x."""
    return tuple(
        text
        for old, name in (
            (_WRONG_SPLIT, "query"),
            ("key = split_heads(key, self.heads)", "key"),
            ("value = split_heads(value, self.heads)", "value"),
        )
        for text in (old, f"{name} = " + cut.replace("x", name))
    )


MISTAKES["attention.attend"] = [
    mistake(
        "self.dropout if self.training else 0.0",
        "self.dropout",
        "Dropout is active in eval mode too.",
    ),
    mistake(
        "self.dropout if self.training else 0.0", "0.0", "There is no dropout in training mode."
    ),
    mistake(
        "self.dropout if self.training else 0.0",
        "0.1 if self.training else 0.0",
        "The dropout probability is hard-coded. Use the module's own.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, None, dropout_p)",
        "The mask is not passed on: padding is attended to like real tokens.",
    ),
    mistake(
        *_wrong_split("split_heads(x, x.shape[-1] // self.heads)"),
        "Number and size of the heads are swapped.",
    ),
    mistake(
        *_wrong_split("x.reshape(x.shape[0], self.heads, x.shape[1], -1)"),
        "The heads are made by a reshape alone. The shape is right, but each head gets values "
        "from other tokens.",
    ),
    mistake(
        _WRONG_MERGE,
        "return output.reshape(len(output), output.shape[2], -1)",
        "The heads are merged by a reshape alone. The shape is right, but each token gets "
        "values from other tokens.",
    ),
    mistake(
        _WRONG_CALL,
        "scaled_dot_product_attention(query, key, value, mask)",
        _WRONG_MERGE,
        "return F.dropout(merge_heads(output), dropout_p)",
        "Dropout is applied to the result. It belongs on the attention weights.",
    ),
]

VARIANTS["attention.attend"] = [
    """
def attend(self, query, key, value, mask=None):
    B, T, D = query.shape
    q, k, v = (
        x.view(B, T, self.heads, D // self.heads).permute(0, 2, 1, 3) for x in (query, key, value)
    )
    maps = F.dropout(attention_maps(q, k, mask), self.dropout, self.training)
    return (maps @ v).permute(0, 2, 1, 3).reshape(B, T, D)
""",
    """
def attend(self, query, key, value, mask=None):
    mixed = []
    for q, k, v in zip(
        query.chunk(self.heads, -1), key.chunk(self.heads, -1), value.chunk(self.heads, -1)
    ):
        scores = torch.einsum("bik,bjk->bij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + MASK_VALUE * (mask == 0)[:, None]
        mixed.append((scores.softmax(-1), v))
    maps = torch.nn.functional.dropout(
        torch.stack([m for m, _ in mixed], 1), p=self.dropout, training=self.training
    )
    return torch.cat([maps[:, h] @ v for h, (_, v) in enumerate(mixed)], -1)
""",
]


# ---- attention.forward
#
# The whole module in double and in single precision, in train and eval mode. The output at
# padding has no meaning, so only real tokens are compared, and only their gradients flow back.


def forward_cases(generator):
    h = fixed(generator, 2, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    cases = [
        Case(
            "evaluating, two sentences, the first with two pads",
            {"hidden_states": h, "attention_mask": mask, "training": False},
        ),
        Case(
            "training, dropout as a fixed pattern",
            {"hidden_states": h, "attention_mask": mask, "training": True},
        ),
        Case("no mask", {"hidden_states": h, "attention_mask": None, "training": False}),
        Case(
            "one sentence, one token",
            {"hidden_states": h[:1, :1], "attention_mask": mask[:1, :1].bool(), "training": False},
        ),
        Case(
            "single precision",
            {"hidden_states": h.float(), "attention_mask": mask, "training": False},
        ),
        Case(
            "evaluating, pads a thousand times as large",
            {
                "hidden_states": h * (1 + 999 * (1 - mask))[..., None],
                "attention_mask": mask,
                "training": False,
            },
        ),
        Case(
            "evaluating, a row of padding",
            {
                "hidden_states": h,
                "attention_mask": mask * torch.tensor([[1], [0]]),
                "training": False,
            },
        ),
    ]
    return masked(
        cases,
        "attention_mask",
        lambda B: {"hidden_states": fixed(generator, B, 5, 12), "training": False},
    )


def run_forward(Attention, inputs):
    h, mask = inputs["hidden_states"], inputs["attention_mask"]
    module = fill(Attention(12, 3, dropout=0.25)).to(h.dtype).train(inputs["training"])

    def real_tokens(hidden_states):
        out = module(hidden_states, mask)
        return out if mask is None else out[mask.bool()]

    with probed():
        return through(module, real_tokens, {"hidden_states": h}, "hidden_states")


TRIALS["attention.forward"] = Trial(
    forward_cases,
    run_forward,
    subject="attention",
    hints=(
        "Both halves are written. Call one on the result of the other.",
        (
            "`project` returns query, key and value in the order in which `attend` takes them. Do "
            "not forget who else is in the batch."
        ),
        "One line: self.attend of the three that self.project gives, and the attention mask.",
    ),
)


_WRONG_ALL = "return self.attend(query, key, value, attention_mask)"
_WRONG_PROJECT = "query, key, value = self.project(hidden_states)"


MISTAKES["attention.forward"] = [
    mistake(
        ", attention_mask)",
        ")",
        "The mask is not passed on: padding is attended to like real tokens.",
    ),
    mistake(
        _WRONG_ALL,
        "return self.attend(hidden_states, hidden_states, hidden_states, attention_mask)",
        "The projections are missing: query, key and value are the hidden states themselves.",
    ),
    mistake(
        _WRONG_ALL,
        "return self.attend(key, query, value, attention_mask)",
        "Query and key are swapped.",
    ),
    mistake(
        _WRONG_ALL,
        "return self.attend(query, value, key, attention_mask)",
        "Key and value are swapped.",
    ),
    mistake(
        _WRONG_PROJECT,
        "h = hidden_states if attention_mask is None else hidden_states * attention_mask[..., "
        "None]\n"
        "    query, key, value = self.project(h)",
        ", attention_mask)",
        ")",
        "The hidden states of padding are set to 0 instead of being masked. A zero vector is "
        "attended to like any other.",
    ),
    mistake(
        "return self.attend",
        "return hidden_states + self.attend",
        "The input is added to the output. The residual connection belongs to the encoder "
        "layer, after the output projection.",
    ),
    mistake(
        _WRONG_ALL,
        "return self.value(self.attend(query, key, value, attention_mask))",
        "The value projection is applied once more to the result. The output projection belongs "
        "to the encoder layer.",
    ),
    mistake(
        ", attention_mask)",
        ", None if attention_mask is None else 1 - attention_mask.long())",
        "The mask is inverted: only padding is attended to.",
    ),
]

VARIANTS["attention.forward"] = [
    """
def forward(self, hidden_states, attention_mask=None):
    query, key, value = (
        self.query(hidden_states),
        self.key(hidden_states),
        self.value(hidden_states),
    )
    return self.attend(query=query, key=key, value=value, mask=attention_mask)
""",
    """
def forward(self, hidden_states, attention_mask=None):
    q, k, v = (split_heads(x, self.heads) for x in self.project(hidden_states))
    maps = nn.Dropout(self.dropout).train(self.training)(attention_maps(q, k, attention_mask))
    mixed = merge_heads(maps @ v)
    return mixed if attention_mask is None else mixed * attention_mask[..., None]
""",
]
