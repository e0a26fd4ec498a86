"""Mutants of `minbert.exercise_cases.attention`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.attention import (
    _WRONG_ALL,
    _WRONG_BIAS,
    _WRONG_CALL,
    _WRONG_CUT,
    _WRONG_LINES,
    _WRONG_MASK,
    _WRONG_THREE,
    _wrong_by_hand,
    _wrong_split,
)

MUTANTS = {}


MUTANTS["attention.bias"] = [
    mistake(
        "MASK_VALUE)",
        "torch.finfo(key.dtype).min)",
        "The constant is the lowest float. Added to a negative score it can overflow to -inf.",
    ),
    mistake(
        "    padding = 1 - attention_mask.to(key)",
        "    padding = 1 - attention_mask[:1].expand_as(attention_mask).to(key)",
        "The mask of the first sentence is used for all.",
    ),
    mistake(
        "    padding = 1 - attention_mask.to(key)",
        "    padding = 1 - (torch.arange(key.shape[-2]) < attention_mask.sum(1, keepdim=True)).to(key)",
        "The mask is read as a length. A pad can stand between real tokens too.",
    ),
    mistake(
        "    padding = 1 - attention_mask.to(key)",
        "    padding = 1 - attention_mask.to(key) if len(attention_mask) > 1 else "
        "torch.zeros_like(attention_mask).to(key)",
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        "    padding = 1 - attention_mask.to(key)",
        "    padding = 1 - attention_mask.to(key) if not attention_mask[0].all() else "
        "torch.zeros_like(attention_mask).to(key)",
        "If the first sentence is full, the others are taken for full as well.",
    ),
    mistake(
        "    padding = 1 - attention_mask.to(key)",
        "    padding = 1 - attention_mask.to(key) if not attention_mask[:, -1].all() else "
        "torch.zeros_like(attention_mask).to(key)",
        "If the last column holds real tokens, all others are taken for real as well.",
    ),
    mistake("* MASK_VALUE)", "* -1e9)", "The constant is another than MASK_VALUE."),
    mistake(
        "[:, None, None, :]",
        "[:, None, None, :].expand(key.shape[0], key.shape[1], key.shape[2], key.shape[2])",
        "The bias is spread to (B, H, T, T). (B, 1, 1, T) broadcasts by itself, and costs nothing.",
    ),
    mistake(
        _WRONG_BIAS,
        "real = 1 - padding\n"
        "    return (1 - real[:, None, :, None] * real[:, None, None, :]) * MASK_VALUE",
        "The rows of the pads are closed as well. The bias says which tokens are read; it is "
        "the same for whoever reads.",
    ),
    mistake(
        _WRONG_BIAS,
        "return (padding == 1)[:, None, None, :]",
        "Truth values come back. A number is to be added to the scores: 0 or MASK_VALUE.",
    ),
]


_WRONG_MAP = "return scores.softmax(dim=-1)"


MUTANTS["attention.maps"] = [
    mistake(
        "query.shape[-1])",
        "query.shape[-2])",
        "The scores are divided by the root of the number of tokens. It is the width of a head "
        "that makes dot products grow.",
    ),
    mistake(
        "query.shape[-1])",
        "query.shape[-1] * query.shape[1])",
        "The scores are divided by the root of the whole width D. Each head is only K wide.",
    ),
    mistake(
        "scores + padding_bias(mask, key)",
        "scores * (padding_bias(mask, key) == 0)",
        "Pads get the score 0. That is no silence: e to the power 0 is 1.",
    ),
    mistake(
        "query @ key.mT / math.sqrt(query.shape[-1])",
        "(query @ key.mT + (0 if mask is None else padding_bias(mask, key))) / "
        "math.sqrt(query.shape[-1])",
        _WRONG_MASK,
        "pass",
        "The bias is divided by √K along with the scores, so in wide heads a pad with a high "
        "score is still read. It is added after the division.",
    ),
    mistake(
        _WRONG_MASK,
        "weights = scores.softmax(-1) * (padding_bias(mask, key) == 0)\n"
        "        return weights / weights.sum(-1, keepdim=True)",
        "The mask is applied after the softmax, and the rows are divided by what is left. Where "
        "a pad has taken all, nothing is left: 0 / 0.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(mask, key) / 500",
        "Pads are lowered by too little: one with a high score is still read.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(mask, key)[:1]",
        "The mask of the first sentence is used for all.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True), key)",
        "The mask is read as a length. A pad can stand between real tokens too.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "padding_bias(mask.bool().any(0, keepdim=True).expand_as(mask), key)",
        "A column counts as padding only if it is padding in all sentences. Each sentence has "
        "its own mask.",
    ),
    mistake(
        "if mask is not None:",
        "if mask is not None and len(mask) > 1:",
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        "if mask is not None:",
        "if mask is not None and not mask[0].all():",
        "If the first sentence is full, the mask of the others is not used.",
    ),
    mistake(
        "if mask is not None:",
        "if mask is not None and not mask[:, -1].all():",
        "If the last column holds real tokens, the mask is not used.",
    ),
    mistake(
        "softmax(dim=-1)",
        "softmax(dim=1)",
        "The softmax runs over the heads, which then compete with one another.",
    ),
    mistake(
        "query @ key.mT",
        "key @ query.mT",
        "Query and key have changed places: row i says what others ask of token i.",
    ),
    mistake(
        _WRONG_MAP,
        "return scores",
        "The scores are returned as they are. They become weights by a softmax.",
    ),
    mistake(
        _WRONG_MAP,
        "return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), "
        "-1e9).softmax(-1)",
        "No token reads what comes after it. BERT reads in both directions.",
    ),
    mistake(
        _WRONG_MAP,
        "p = scores.softmax(-1)\n    return p if mask is None else p * mask[:, None, :, None]",
        "The rows of the pads are set to 0. Each row sums to 1, also where nobody will look.",
    ),
    mistake(
        _WRONG_MAP,
        "e = scores.exp()\n    return e / e.sum(-1, keepdim=True)",
        "The powers are taken of the scores as they are: e to the power 1000 is infinite.",
    ),
    mistake(
        _WRONG_MAP,
        "return scores.clamp(-50, 50).softmax(-1)",
        "The scores are cut off at a limit, so tokens beyond it look alike.",
    ),
    mistake(
        _WRONG_MAP,
        "return scores.sigmoid()",
        "Each score is squeezed by itself, so the weights of a row do not sum to 1.",
    ),
    mistake(
        _WRONG_MAP,
        "e = (scores - scores.amax((-2, -1), keepdim=True)).exp()\n"
        "    return e / e.sum(-1, keepdim=True)",
        "One maximum is subtracted from a whole map. Beside a loud row all powers of a quiet "
        "one vanish, and 0 / 0 is NaN; each row needs its own.",
    ),
    mistake(
        "key.mT",
        "key.reshape(*key.shape[:2], key.shape[3], key.shape[2])",
        "The key is reshaped, not transposed: the shape fits, and numbers of different tokens "
        "get mixed.",
    ),
    mistake(
        _WRONG_MAP,
        _WRONG_MAP + ".nan_to_num(0.0)",
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        "/ math.sqrt(query.shape[-1])",
        "* math.sqrt(query.shape[-1])",
        "The scores are multiplied by √K. They are divided by it.",
    ),
    mistake(
        "padding_bias(mask, key)",
        "(1 - mask[:, None, :, None].to(key) * mask[:, None, None].to(key)) * MASK_VALUE",
        "The rows of the pads are closed as well. The mask says which tokens are read; a pad "
        "reads like any other.",
    ),
    mistake(
        "scores + padding_bias(mask, key)",
        "scores - padding_bias(mask, key)",
        "The bias is subtracted. It is negative already, so now only pads are read.",
    ),
    mistake(
        "scores + padding_bias(mask, key)",
        "scores * padding_bias(mask, key)",
        "The scores are multiplied by the bias, which is 0 at real tokens. It is added.",
    ),
    mistake(
        _WRONG_MAP,
        "return scores.log_softmax(dim=-1)",
        "Logarithms of the weights come back. The weights themselves were promised.",
    ),
]


MUTANTS["attention.scores"] = [
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ key.mT / math.sqrt(query.shape[-2])"),
        "The scores are divided by the root of the number of tokens. It is the width of a head "
        "that makes dot products grow.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ key.mT / math.sqrt(query.shape[1] * query.shape[-1])"),
        "The scores are divided by the root of the whole width D. Each head is only K wide.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + MASK_VALUE - bias"),
        "The mask is read the wrong way round: only pads are read.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + (bias == 0)"),
        "The mask is added as 0 and 1. A pad then scores one less than a word, and is still read.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores * (bias == 0)"),
        "Pads get the score 0. That is no silence: e to the power 0 is 1.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + bias / 500"),
        "Pads are lowered by too little: one with a high score is still read.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + bias[:1]"),
        "The mask of the first sentence is used for all.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            masked="scores + padding_bias("
            "torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True), key)"
        ),
        "The mask is read as a length. A pad can stand between real tokens too.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores + bias.amax(0, keepdim=True)"),
        "A column counts as padding only if it is padding in all sentences. Each sentence has "
        "its own mask.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(unmasked="mask is None or len(mask) == 1"),
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(unmasked="mask is None or mask[0].all()"),
        "If the first sentence is full, the mask of the others is not used.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(unmasked="mask is None or mask[:, -1].all()"),
        "If the last column holds real tokens, the mask is not used.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            weights=(
                "F.dropout(scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), "
                "-1e9).softmax(-1), dropout_p)"
            )
        ),
        "No token reads what comes after it. BERT reads in both directions.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            weights="F.dropout((e := scores.exp()) / e.sum(-1, keepdim=True), dropout_p)"
        ),
        "The powers are taken of the scores as they are: e to the power 1000 is infinite.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand() + " * (1 if mask is None else mask[:, None, :, None])",
        "The results of the pads are set to 0. Each row is a mean of values, also where nobody "
        "will look.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand() + " * (1 if mask is None else mask.bool().any(1)[:, None, None, None])",
        "A row of nothing but padding gives 0. About what no mask would give was asked for.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="F.dropout(scores.softmax(1), dropout_p)"),
        "The softmax runs over the heads, which then compete with one another.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="F.dropout(scores, dropout_p)"),
        "There is no softmax: values are mixed by raw scores, which are no weights.",
    ),
    mistake(_WRONG_LINES, _wrong_by_hand(weights="scores.softmax(-1)"), "`dropout_p` is not used."),
    mistake(
        "mask), dropout_p)",
        "mask), dropout_p if torch.is_grad_enabled() else 0.0)",
        "Where gradients are off nothing is dropped. Whether to drop is the caller's to say, by "
        "`dropout_p`.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="scores.softmax(-1)", mixed="F.dropout(weights @ value, dropout_p)"),
        "Dropout falls on the result. It belongs on the map, before the values are mixed.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="scores.softmax(-1)", mixed="weights @ F.dropout(value, dropout_p)"),
        "Dropout falls on the values. It belongs on the map.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(mixed="weights / weights.sum(-1, keepdim=True) @ value"),
        "The weights are made to sum to 1 again after dropout, which undoes part of it.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("key @ query.mT / math.sqrt(query.shape[-1])"),
        "Query and key have changed places: row i says what others ask of token i.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(mixed="weights.mT @ value"),
        "The map is transposed before it meets the values: each token gathers by how much it is "
        "read.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            weights=(
                "F.dropout((e := (scores - scores.amax((-2, -1), keepdim=True)).exp()) / e.sum(-1, "
                "keepdim=True), dropout_p)"
            )
        ),
        "One maximum is subtracted from a whole map. Beside a loud row all powers of a quiet "
        "one vanish, and 0 / 0 is NaN; each row needs its own.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(mixed="weights @ key"),
        "The keys are mixed instead of the values.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(mixed="(weights @ value).nan_to_num(0.0)"),
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ key.mT * math.sqrt(query.shape[-1])"),
        "The scores are multiplied by √K. They are divided by it.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            "query @ key.mT",
            masked="scores + bias",
            weights="F.dropout((scores / math.sqrt(query.shape[-1])).softmax(-1), dropout_p)",
        ),
        "The bias is divided by √K along with the scores, so in wide heads a pad with a high "
        "score is still read. It is added after the division.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(
            masked=(
                "scores + (1 - mask[:, None, :, None].to(key) * mask[:, None, None].to(key)) * "
                "MASK_VALUE"
            )
        ),
        "The rows of the pads are closed as well. The mask says which tokens are read; a pad "
        "reads like any other.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(masked="scores - bias"),
        "The bias is subtracted. It is negative already, so now only pads are read.",
    ),
    mistake(
        _WRONG_LINES,
        "closed = None if mask is None else (mask == 0)[:, None, None]\n"
        "    return F.scaled_dot_product_attention(query, key, value, closed, dropout_p)",
        "The fused call gets truth values the wrong way round: there True means that a token is "
        "read.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand("query @ value.mT / math.sqrt(query.shape[-1])", mixed="weights @ key"),
        "Key and value have changed places.",
    ),
    mistake(
        _WRONG_LINES,
        _wrong_by_hand(weights="F.dropout(scores.softmax(-1), 1 - dropout_p)"),
        "`dropout_p` is taken for the share that stays. It is the share that is dropped.",
    ),
]


MUTANTS["attention.split"] = [
    mistake(
        _WRONG_CUT,
        "return torch.stack([x] * heads, -3)",
        "Every head gets the whole vector. It should get its own K numbers.",
    ),
    mistake(
        "transpose(-3, -2)",
        "transpose(-3, -2).flip(-3)",
        "The heads come in reverse: the first K numbers belong to the first.",
    ),
    mistake(
        "transpose(-3, -2)",
        "transpose(-3, -2).flatten(0, -3)",
        "Sentences and heads have become one axis. The axes before the tokens stay as they are.",
    ),
    mistake(
        _WRONG_CUT,
        "return x.unflatten(-1, (-1, 4)).transpose(-3, -2)",
        "The heads are always 4 numbers wide. `heads` says into how many pieces to cut.",
    ),
    mistake(
        _WRONG_CUT,
        "y = x.unflatten(-1, (heads, -1))\n"
        "    return y if y.shape[-3] == heads else y.transpose(-3, -2)",
        "Where there are as many tokens as heads, the two are not exchanged.",
    ),
    mistake(
        _WRONG_CUT,
        "return torch.stack(x.chunk(heads, dim=-1), dim=-3)",
        "The pieces are copied into new memory. A view of the input was promised.",
    ),
]


MUTANTS["attention.merge"] = [
    mistake(
        "x.transpose(-3, -2)",
        "x.flip(-3).transpose(-3, -2)",
        "The heads come in reverse: the first one belongs on the left.",
    ),
    mistake(
        "transpose(-3, -2).flatten(-2)",
        "amax(-3)",
        "The largest number of all heads is taken. They should stand side by side.",
    ),
    mistake(
        "x.transpose(-3, -2)",
        "(x if x.shape[-3] == x.shape[-2] else x.transpose(-3, -2))",
        "Where there are as many tokens as heads, the two are not exchanged.",
    ),
]


MUTANTS["attention.project"] = [
    mistake(
        _WRONG_THREE,
        "query = self.query(hidden_states)\n    return query, query, query",
        "All three are made by one layer, that of the queries.",
    ),
    mistake(
        _WRONG_THREE,
        "x = torch.stack([m(hidden_states) for m in (self.query, self.key, self.value)], -1)\n"
        "    return x.flatten(-2).chunk(3, dim=-1)",
        "Query, key and value take every third number. Each should get D neighbours.",
    ),
    mistake(
        _WRONG_THREE,
        "parts, bias = (self.query, self.key, self.value), self.query.bias\n"
        "    return tuple(F.linear(hidden_states, part.weight, bias) for part in parts)",
        "All three get the bias of the query.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(part(hidden_states).relu() for part in parts)",
        "An activation function is applied. These layers are linear, and a query needs its "
        "negative numbers.",
    ),
    mistake(
        _WRONG_THREE,
        "return self.query(hidden_states), self.value(hidden_states), self.key(hidden_states)",
        "Key and value have changed places.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(F.linear(hidden_states, m.weight.detach(), m.bias.detach()) for m in parts)",
        "The weights are detached, so they never learn.",
    ),
    mistake(
        _WRONG_THREE,
        "parts = (self.query, self.key, self.value)\n"
        "    return tuple(part(hidden_states) + part.bias for part in parts)",
        "The biases are added twice.",
    ),
    mistake(
        _WRONG_THREE,
        'if self.training or not hasattr(self, "kept"):\n'
        "        parts = (self.query, self.key, self.value)\n"
        "        self.kept = [part.weight.clone() for part in parts]\n"
        "    biases = (self.query.bias, self.key.bias, self.value.bias)\n"
        "    return tuple(F.linear(hidden_states, w, b) for w, b in zip(self.kept, biases))",
        "In eval mode the weights are kept from the first call. Weights may change in any mode.",
    ),
    mistake(
        _WRONG_THREE,
        "return self.value(hidden_states), self.key(hidden_states), self.query(hidden_states)",
        "Query and value have changed places.",
    ),
]


def _wrong_own(pad, mask="mask", dropout="dropout_p"):
    """Attention by hand, with a constant of its own added at the pads."""
    bias = f"(0.0 if {mask} is None else torch.where({mask}.bool(), 0.0, {pad})[:, None, None])"
    scores = "query @ key.mT / math.sqrt(query.shape[-1])"
    return f"F.dropout(({scores} + {bias}).softmax(-1), {dropout}) @ value"


_WRONG_WEAK = "Pads are lowered by too little: one with a high score is still read."


_WRONG_INFINITE = "Pads get minus infinity, so a row of nothing but padding becomes NaN."


MUTANTS["attention.attend"] = [
    mistake(
        "self.dropout if self.training else 0.0",
        "0.0 if self.training else self.dropout",
        "Dropout is on while evaluating and off while training.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, mask if len(query) > 1 else None, dropout_p)",
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, None if mask is None or mask[0].all() else mask, dropout_p)",
        "If the first sentence is full, the mask of the others is not used.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, None if mask is None or mask[:, -1].all() else mask, dropout_p)",
        "If the last column holds real tokens, the mask is not used.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, None if self.training else mask, dropout_p)",
        "The mask is not passed on while training.",
    ),
    mistake(
        "(query, key, value, mask",
        "(query, key, value.flip(1), mask",
        "The heads of the values come in reverse.",
    ),
    mistake(
        "return merge_heads(output)",
        "return merge_heads(query + output)",
        "The query is added to the result. That happens in the layer, after one more map.",
    ),
    mistake(
        "(query, key, value, mask", "(key, query, value, mask", "Query and key have changed places."
    ),
    mistake(
        "(query, key, value, mask",
        "(query, key, key, mask",
        "The keys are mixed instead of the values.",
    ),
    mistake(
        *_wrong_split("split_heads(x, 1)"),
        "There is a single head as wide as the whole vector.",
    ),
    mistake(
        "merge_heads(output)",
        "F.dropout(merge_heads(output), dropout_p)",
        "Dropout falls on the result as well as on the map. The layer will do it again.",
    ),
    mistake("merge_heads(output)", "output", "The heads are not merged."),
    mistake(_WRONG_CALL, _wrong_own("-30.0"), _WRONG_WEAK),
    mistake(_WRONG_CALL, _wrong_own("-math.inf"), _WRONG_INFINITE),
    mistake(
        "    dropout_p = self.dropout if",
        "    if not self.training:\n        self.dropout = 0.0\n    dropout_p = self.dropout if",
        "In eval mode dropout is switched off for good: it stays off when training goes on.",
    ),
    mistake(
        "(query, key, value, mask", "(query, value, key, mask", "Key and value have changed places."
    ),
    mistake(
        "(query, key, value, mask",
        "(value, key, query, mask",
        "Query and value have changed places.",
    ),
    mistake(
        "value, mask, dropout_p)",
        "value, None if mask is None else 1 - mask.long(), dropout_p)",
        "The mask is read the wrong way round: only pads are read.",
    ),
]


_WRONG_HEADS = "query, key, value = (split_heads(x, self.heads) for x in (query, key, value))\n    "


def _wrong_all_by_hand(pad):
    return (
        _WRONG_HEADS
        + f"return merge_heads({_wrong_own(pad, 'attention_mask', 'self.dropout, self.training')})"
    )


MUTANTS["attention.forward"] = [
    mistake(
        ", attention_mask)",
        ", attention_mask if len(hidden_states) > 1 else None)",
        "A single sentence is taken for one without padding.",
    ),
    mistake(
        ", attention_mask)",
        ", None if attention_mask is None or attention_mask[0].all() else attention_mask)",
        "If the first sentence is full, the mask of the others is not used.",
    ),
    mistake(
        ", attention_mask)",
        ", None if attention_mask is None or attention_mask[:, -1].all() else attention_mask)",
        "If the last column holds real tokens, the mask is not used.",
    ),
    mistake(
        _WRONG_ALL,
        "with torch.set_grad_enabled(self.training):\n"
        "        return self.attend(*self.project(hidden_states), attention_mask)",
        "While evaluating nothing is recorded, so nobody can ask for a gradient. Whoever calls "
        "decides that.",
    ),
    mistake(
        _WRONG_ALL,
        "return self.attend(query, key, hidden_states, attention_mask)",
        "The values are the hidden states themselves, without their map.",
    ),
    mistake(
        ", attention_mask)",
        ", None if attention_mask is None else attention_mask[:1].expand_as(attention_mask))",
        "The mask of the first sentence is used for all.",
    ),
    mistake(_WRONG_ALL, _wrong_all_by_hand("-30.0"), _WRONG_WEAK),
    mistake(_WRONG_ALL, _wrong_all_by_hand("-math.inf"), _WRONG_INFINITE),
    mistake(
        _WRONG_ALL,
        "return self.attend(value, key, query, attention_mask)",
        "Query and value have changed places.",
    ),
]
