"""How the second half of chapter 02 is checked: heads split and merged, and the module that puts everything together."""


import torch

from minbert.course.trials import Case, Trial, fill, fixed, mistake, probed, with_gradients
from minbert.trials.attention import masked, settled, through, with_dtype


# Take twelve numbers a token and make three heads of them. There are many ways that end with the right shape. How many give the right numbers?
#
# One. So the shapes here are chosen to tell the ways apart: with one head, one token, or as many heads as tokens, wrong ones look right.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


# ---- attention.split and attention.merge
#
# A batch, a sentence without a batch axis, and a batch of batches: whoever counts axes from the left gets one of them right. Heads of width 1 and a
# single head stand at the two ends. For the split, whether the result lies in the memory of the input.

def split_cases(generator):
    return [Case("two sentences of five tokens, three heads", {"x": fixed(generator, 2, 5, 12), "heads": 3}),
            Case("one sentence without a batch axis", {"x": fixed(generator, 5, 12), "heads": 3}),
            Case("two axes before the tokens", {"x": fixed(generator, 2, 3, 5, 8), "heads": 2}),
            Case("one head", {"x": fixed(generator, 2, 5, 6), "heads": 1}),
            Case("heads of width one", {"x": fixed(generator, 2, 5, 4), "heads": 4}),
            Case("one token", {"x": fixed(generator, 1, 1, 12), "heads": 3}),
            Case("as many tokens as heads", {"x": fixed(generator, 3, 3, 12), "heads": 3}),
            Case("numbers that do not lie side by side", {"x": fixed(generator, 2, 12, 5).mT, "heads": 3}),
            Case("single precision", {"x": fixed(generator, 2, 5, 12).float(), "heads": 3})]


def run_heads(move, inputs):
    return with_dtype(with_gradients(move, inputs, "x"), inputs["x"].dtype)


def run_split(split, inputs):
    found = run_heads(split, inputs)
    return found | {"a view of the input": found["output"].untyped_storage().data_ptr() == inputs["x"].untyped_storage().data_ptr()}


TRIALS["attention.split"] = Trial(split_cases, run_split, subject="attention", hints=(
    "Each token keeps its own numbers. First cut the last axis into two, then ask which axis has to move.",
    "unflatten(-1, (heads, -1)) gives (..., T, H, K). Count axes from the right, since there may be any number on the left.",
    "unflatten the last axis into (heads, -1), then exchange the third and the second axis from the right."))


def merge_cases(generator):
    return [Case("two sentences of five tokens, three heads", {"x": fixed(generator, 2, 3, 5, 4)}),
            Case("one sentence without a batch axis", {"x": fixed(generator, 3, 5, 4)}),
            Case("two axes before the heads", {"x": fixed(generator, 2, 3, 2, 5, 4)}),
            Case("one head", {"x": fixed(generator, 2, 1, 5, 6)}),
            Case("heads of width one", {"x": fixed(generator, 2, 4, 5, 1)}),
            Case("one token", {"x": fixed(generator, 1, 3, 1, 4)}),
            Case("as many tokens as heads", {"x": fixed(generator, 3, 3, 3, 4)}),
            Case("numbers that do not lie side by side", {"x": fixed(generator, 2, 5, 3, 4).transpose(1, 2)}),
            Case("single precision", {"x": fixed(generator, 2, 3, 5, 4).float()})]


TRIALS["attention.merge"] = Trial(merge_cases, run_heads, subject="attention", hints=(
    "Undo the two steps of `split_heads` in the opposite order.",
    "First bring the heads next to their numbers, (..., T, H, K); then two axes can become one. After that the memory is no longer in order, so "
    "`view` will not do.",
    "Exchange the third and the second axis from the right, then flatten the last two."))


_WRONG_CUT = "return x.unflatten(-1, (heads, -1)).transpose(-3, -2)  # (..., T, H, K) -> (..., H, T, K)"

MISTAKES["attention.split"] = [
    mistake(_WRONG_CUT, "return x.reshape(*x.shape[:-2], heads, x.shape[-2], -1)",
            "The tensor is reshaped to (H, T, K) at once. The shape fits, and each head gets numbers of other tokens."),
    mistake(".transpose(-3, -2)", "", "The heads stand behind the tokens, (T, H, K). Attention would then run over the heads."),
    mistake(_WRONG_CUT, "return x.unflatten(-1, (-1, heads)).movedim(-1, -3)",
            "Each head gets every H-th number. It should get K neighbours."),
    mistake("(heads, -1)", "(-1, heads)", "Number and width of the heads have changed places: K heads of width H."),
    mistake("transpose(-3, -2)", "transpose(1, 2)",
            "The axes are counted from the left, which fits only where exactly one axis stands before the tokens."),
    mistake("transpose(-3, -2)", "transpose(-3, -2).contiguous()", "The numbers are copied. A view is enough, and costs nothing; leave `contiguous` to whoever needs it."),
    mistake("transpose(-3, -2)", "movedim(-2, 0)", "The heads stand in front of everything, also of the sentences."),
    mistake("transpose(-3, -2)", "transpose(-3, -2).mT", "Width and tokens have changed places, (H, K, T)."),
    mistake(_WRONG_CUT, "return torch.stack([x] * heads, -3)", "Every head gets the whole vector. It should get its own K numbers."),
    mistake("transpose(-3, -2)", "transpose(-3, -2).flip(-3)", "The heads come in reverse: the first K numbers belong to the first."),
    mistake("transpose(-3, -2)", "transpose(-3, -2).flatten(0, -3)", "Sentences and heads have become one axis. The axes before the tokens stay as they are."),
    mistake(_WRONG_CUT, "return x.unflatten(-1, (-1, 4)).transpose(-3, -2)", "The heads are always 4 numbers wide. `heads` says into how many pieces to cut."),
    mistake(_WRONG_CUT, "y = x.unflatten(-1, (heads, -1))\n    return y if y.shape[-3] == heads else y.transpose(-3, -2)",
            "Where there are as many tokens as heads, the two are not exchanged."),
    mistake(_WRONG_CUT, "return torch.stack(x.chunk(heads, dim=-1), dim=-3)", "The pieces are copied into new memory. A view of the input was promised."),
]

VARIANTS["attention.split"] = [
    '''
def split_heads(x, heads):
    K = x.shape[-1] // heads
    return x.unfold(-1, K, K).transpose(-3, -2)
''',
    '''
def split_heads(x, heads):
    *front, T, D = x.shape
    return x.reshape(*front, T, heads, D // heads).swapaxes(-2, -3)
''',
    '''
def split_heads(x, heads):
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).movedim(-2, -3)
''',
]

MISTAKES["attention.merge"] = [
    mistake("return x.transpose(-3, -2).flatten(-2)", "return x.reshape(*x.shape[:-3], x.shape[-2], -1)",
            "The tensor is reshaped to (T, D) at once. The shape fits, and each token gets numbers of others."),
    mistake("transpose(-3, -2).flatten(-2)", "transpose(1, 2).flatten(2)",
            "The axes are counted from the left, which fits only where exactly one axis stands before the heads."),
    mistake("transpose(-3, -2)", "movedim(-3, -1)", "The numbers of the heads alternate. All of one head come first, then all of the next."),
    mistake("transpose(-3, -2).flatten(-2)", "flatten(-3, -2)",
            "The heads are laid under one another, (H T, K). They belong side by side, token by token."),
    mistake("transpose(-3, -2).flatten(-2)", "mean(-3)", "The heads are averaged. They should stand side by side."),
    mistake("transpose(-3, -2).flatten(-2)", "sum(-3)", "The heads are added up. They should stand side by side."),
    mistake(".flatten(-2)", "", "Heads and widths are still two axes."),
    mistake("x.transpose(-3, -2)", "x.flip(-3).transpose(-3, -2)", "The heads come in reverse: the first one belongs on the left."),
    mistake("transpose(-3, -2).flatten(-2)", "amax(-3)", "The largest number of all heads is taken. They should stand side by side."),
    mistake("x.transpose(-3, -2)", "(x if x.shape[-3] == x.shape[-2] else x.transpose(-3, -2))",
            "Where there are as many tokens as heads, the two are not exchanged."),
]

VARIANTS["attention.merge"] = [
    '''
def merge_heads(x):
    return torch.cat(x.unbind(-3), dim=-1)
''',
    '''
def merge_heads(x):
    x = x.swapaxes(-2, -3).contiguous()
    return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])
''',
    '''
def merge_heads(x):
    rows = [torch.cat([x[..., h, t, :] for h in range(x.shape[-3])], -1) for t in range(x.shape[-2])]
    return torch.stack(rows, -2)
''',
]


# ---- attention.project
#
# Three linear maps of 12 numbers with weights that differ, applied to a batch, to a flat list of tokens and to a single vector. The gradients of all
# weights are compared: a bias left out, a weight turned over, or a map used twice shows there.

def project_cases(generator):
    return [Case("two sentences of five tokens", {"hidden_states": fixed(generator, 2, 5, 12)}),
            Case("a flat list of seven tokens, evaluating", {"hidden_states": fixed(generator, 7, 12), "eval": True}),
            Case("one vector", {"hidden_states": fixed(generator, 12)}),
            Case("two axes before the tokens", {"hidden_states": fixed(generator, 3, 2, 4, 12)})]


def run_project(Attention, inputs):
    module = fill(Attention(12, 3, dropout=0.25)).train("eval" not in inputs)

    def stacked(hidden_states):
        query, key, value = module.project(hidden_states)
        return torch.stack([query, key, value])

    with probed():
        return through(module, stacked, {"hidden_states": inputs["hidden_states"]}, "hidden_states")


TRIALS["attention.project"] = Trial(project_cases, run_project, subject="attention", hints=(
    "`self.query(hidden_states)` is a whole linear map, bias included. You need three.",
    "One product or three: both are right. If you lay the weights on top of each other, do the same with the biases.",
    "Return (self.query(h), self.key(h), self.value(h)), or cut F.linear(h, all weights, all biases) into three along the last axis."))


MISTAKES["attention.project"] = [
    mistake("(self.query, self.key, self.value)", "(self.key, self.query, self.value)", "Query and key have changed places."),
    mistake("(self.query, self.key, self.value)", "(self.query, self.key, self.key)", "The values are made by the map of the keys."),
    mistake("(self.query, self.key, self.value)", "(self.query, self.query, self.query)", "All three are made by one map, that of the queries."),
    mistake("F.linear(hidden_states, weight, bias)", "F.linear(hidden_states, weight)", "The biases are left out."),
    mistake("part.weight for", "part.weight.T for", "The weights are turned over: a linear map multiplies by the transpose of its weight."),
    mistake(".chunk(3, dim=-1)", ".unflatten(-1, (-1, 3)).unbind(-1)", "Query, key and value take every third number. Each should get D neighbours."),
    mistake("part.bias for part in parts", "self.query.bias for part in parts", "All three get the bias of the query."),
    mistake("weight, bias).chunk(3, dim=-1)", "weight, bias).relu().chunk(3, dim=-1)",
            "The results are bent. These maps are linear, and a query needs its negative numbers."),
    mistake("return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)",
            "q = self.query(hidden_states)\n    return q, self.key(q), self.value(q)",
            "Key and value are made from the query. All three are made from the hidden states."),
    mistake("(self.query, self.key, self.value)", "(self.query, self.value, self.key)", "Key and value have changed places."),
    mistake("return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)",
            "return tuple(F.dropout(m(hidden_states), self.dropout, self.training) for m in parts)",
            "Dropout falls on the results. It belongs on the map, later."),
    mistake("return F.linear(hidden_states, weight, bias).chunk(3, dim=-1)", "return tuple(split_heads(m(hidden_states), self.heads) for m in parts)",
            "The heads are cut here already. `attend` does that."),
    mistake("F.linear(hidden_states, weight, bias)", "F.linear(hidden_states, weight.detach(), bias.detach())", "The weights are detached, so they never learn."),
    mistake("F.linear(hidden_states, weight, bias)", "(F.linear(hidden_states, weight, bias) + bias)", "The biases are added twice."),
    mistake("weight, bias).chunk(3, dim=-1)", "weight, bias).div((weight.shape[1] / self.heads) ** 0.25).chunk(3, dim=-1)",
            "The results are scaled here already. Attention divides by √K later."),
    mistake("    weight = torch.cat([part.weight for part in parts])", "    if self.training or not hasattr(self, \"kept\"):\n"
            "        self.kept = torch.cat([part.weight for part in parts])\n    weight = self.kept", "In eval mode the weights are kept from the first call. Weights may change in any mode."),
    mistake("parts = (self.query, self.key, self.value)", "parts = (self.value, self.key, self.query)", "Query and value have changed places."),
]

VARIANTS["attention.project"] = [
    '''
def project(self, hidden_states):
    return self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
''',
    '''
def project(self, hidden_states):
    parts = []
    for part in (self.query, self.key, self.value):
        parts.append(torch.einsum("...d,ed->...e", hidden_states, part.weight) + part.bias)
    return tuple(parts)
''',
    '''
def project(self, hidden_states):
    return [hidden_states @ m.weight.T + m.bias for m in (self.query, self.key, self.value)]
''',
]


# ---- attention.attend
#
# While training and while evaluating, with a dropout that shows its place. Three heads of width 4, so that number and width cannot be confused. Pads
# that shout, and a row of nothing but padding, which must give finite numbers, show a mask of one's own that is too weak or too strong. The
# other exercises are the reference here, so only the plumbing counts.

def attend_cases(generator):
    q, k, v = fixed(generator, 3, 2, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    qkv = {"query": q, "key": k, "value": v}
    cases = [Case("evaluating, two sentences, the first with two pads", {**qkv, "mask": mask, "training": False}),
             Case("training, dropout as a fixed pattern", {**qkv, "mask": mask, "training": True}),
             Case("training, no mask", {**qkv, "mask": None, "training": True}),
             Case("training, after a call in eval mode", {**qkv, "mask": mask, "training": True, "earlier": True}),
             Case("evaluating, one token", {name: x[:1, :1] for name, x in qkv.items()} | {"mask": None, "training": False}),
             Case("evaluating, pads with a thousand times the score", {**qkv, "key": k * (1 + 999 * (1 - mask))[..., None], "mask": mask, "training": False}),
             Case("evaluating, a row of padding", {**qkv, "value": v.abs() + 1, "mask": mask * torch.tensor([[1], [0]]), "training": False})]
    return masked(cases, "mask", lambda B: dict(zip(qkv, fixed(generator, 3, B, 5, 12))) | {"training": False})


def run_attend(Attention, inputs):
    module = fill(Attention(12, 3, dropout=0.25)).train(inputs["training"])
    given = {name: inputs[name] for name in ("query", "key", "value", "mask")}
    with probed():
        if "earlier" in inputs:
            module.eval().attend(**given)
            module.train()
        return settled(with_gradients(module.attend, given, "query", "key", "value"), given)


TRIALS["attention.attend"] = Trial(attend_cases, run_attend, subject="attention", hints=(
    "Three exercises in a row: split, attend, merge. Only dropout needs a decision. The check looks for one F.dropout on the whole map, (B, H, T, T).",
    "`self.training` says whether the module is training. `scaled_dot_product_attention` takes the mask and the dropout.",
    "Split query, key and value into self.heads; call scaled_dot_product_attention with the mask and with self.dropout if self.training, else 0; "
    "merge what comes back."))


_WRONG_CALL = "scaled_dot_product_attention(q, k, v, mask, dropout_p)"


def _wrong_own(pad, mask="mask", dropout="dropout_p"):
    """Attention by hand, with a constant of its own added at the pads."""
    bias = f"(0.0 if {mask} is None else torch.where({mask}.bool(), 0.0, {pad})[:, None, None])"
    return f"F.dropout((q @ k.mT / math.sqrt(q.shape[-1]) + {bias}).softmax(-1), {dropout}) @ v"


_WRONG_WEAK = "Pads are lowered by too little: one with a high score is still read."
_WRONG_INFINITE = "Pads get minus infinity, so a row of nothing but padding becomes NaN."

MISTAKES["attention.attend"] = [
    mistake("self.dropout if self.training else 0.0", "self.dropout", "Dropout is on while evaluating too."),
    mistake("self.dropout if self.training else 0.0", "0.0", "There is no dropout while training."),
    mistake("self.dropout if self.training else 0.0", "0.0 if self.training else self.dropout",
            "Dropout is on while evaluating and off while training."),
    mistake("self.dropout if self.training else 0.0", "0.1 if self.training else 0.0",
            "Dropout has a fixed probability. It should be the module's own."),
    mistake("v, mask, dropout_p)", "v, None, dropout_p)", "The mask is not passed on: pads are read like words."),
    mistake("split_heads(x, self.heads)", "split_heads(x, x.shape[-1] // self.heads)", "Number and width of the heads have changed places."),
    mistake("split_heads(x, self.heads)", "x.reshape(x.shape[0], self.heads, x.shape[1], -1)",
            "The heads are made by a reshape alone. The shape fits, and each head gets numbers of other tokens."),
    mistake("v, mask, dropout_p)", "v, mask if len(query) > 1 else None, dropout_p)", "A single sentence is taken for one without padding."),
    mistake("v, mask, dropout_p)", "v, None if mask is None or mask[0].all() else mask, dropout_p)", "If the first sentence is full, the mask of the others is not used."),
    mistake("v, mask, dropout_p)", "v, None if mask is None or mask[:, -1].all() else mask, dropout_p)", "If the last column holds real tokens, the mask is not used."),
    mistake("v, mask, dropout_p)", "v, None if self.training else mask, dropout_p)", "The mask is not passed on while training."),
    mistake("(q, k, v, mask", "(q, k, v.flip(1), mask", "The heads of the values come in reverse."),
    mistake("return merge_heads(", "return query + merge_heads(", "The query is added to the result. That happens in the layer, after one more map."),
    mistake("(q, k, v, mask", "(k, q, v, mask", "Query and key have changed places."),
    mistake("(q, k, v, mask", "(q, k, k, mask", "The keys are mixed instead of the values."),
    mistake("merge_heads(" + _WRONG_CALL + ")", _WRONG_CALL + ".reshape(query.shape)",
            "The heads are merged by a reshape alone. The shape fits, and each token gets numbers of others."),
    mistake("split_heads(x, self.heads)", "split_heads(x, 1)", "There is a single head as wide as the whole vector."),
    mistake("merge_heads(" + _WRONG_CALL + ")", "F.dropout(merge_heads(scaled_dot_product_attention(q, k, v, mask)), dropout_p)",
            "Dropout falls on the result. It belongs on the map."),
    mistake("merge_heads(" + _WRONG_CALL + ")", "F.dropout(merge_heads(" + _WRONG_CALL + "), dropout_p)",
            "Dropout falls on the result as well as on the map. The layer will do it again."),
    mistake("merge_heads(" + _WRONG_CALL + ")", _WRONG_CALL, "The heads are not merged."),
    mistake(_WRONG_CALL, _wrong_own("-30.0"), _WRONG_WEAK),
    mistake(_WRONG_CALL, _wrong_own("-math.inf"), _WRONG_INFINITE),
    mistake("    dropout_p = self.dropout if", "    if not self.training:\n        self.dropout = 0.0\n    dropout_p = self.dropout if", "In eval mode dropout is switched off for good: it stays off when training goes on."),
    mistake("(q, k, v, mask", "(q, v, k, mask", "Key and value have changed places."),
    mistake("(q, k, v, mask", "(v, k, q, mask", "Query and value have changed places."),
    mistake("v, mask, dropout_p)", "v, None if mask is None else 1 - mask.long(), dropout_p)", "The mask is read the wrong way round: only pads are read."),
]

VARIANTS["attention.attend"] = [
    '''
def attend(self, query, key, value, mask=None):
    B, T, D = query.shape
    q, k, v = (x.view(B, T, self.heads, D // self.heads).permute(0, 2, 1, 3) for x in (query, key, value))
    maps = F.dropout(attention_maps(q, k, mask), self.dropout, self.training)
    return (maps @ v).permute(0, 2, 1, 3).reshape(B, T, D)
''',
    '''
def attend(self, query, key, value, mask=None):
    mixed = []
    for q, k, v in zip(query.chunk(self.heads, -1), key.chunk(self.heads, -1), value.chunk(self.heads, -1)):
        scores = torch.einsum("bik,bjk->bij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + MASK_VALUE * (mask == 0)[:, None]
        mixed.append((scores.softmax(-1), v))
    maps = torch.nn.functional.dropout(torch.stack([m for m, _ in mixed], 1), p=self.dropout, training=self.training)
    return torch.cat([maps[:, h] @ v for h, (_, v) in enumerate(mixed)], -1)
''',
]


# ---- attention.forward
#
# The whole module against itself, in double and in single precision, training and evaluating. What comes out at a pad has no meaning, so only real
# tokens are compared, and only they send gradients back. Pads that shout must not be heard, and a row of padding must not spoil the gradients of the
# weights.

def forward_cases(generator):
    h = fixed(generator, 2, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    cases = [Case("evaluating, two sentences, the first with two pads", {"hidden_states": h, "attention_mask": mask, "training": False}),
             Case("training, dropout as a fixed pattern", {"hidden_states": h, "attention_mask": mask, "training": True}),
             Case("no mask", {"hidden_states": h, "attention_mask": None, "training": False}),
             Case("one sentence, one token", {"hidden_states": h[:1, :1], "attention_mask": mask[:1, :1].bool(), "training": False}),
             Case("single precision", {"hidden_states": h.float(), "attention_mask": mask, "training": False}),
             Case("evaluating, pads a thousand times as large",
                  {"hidden_states": h * (1 + 999 * (1 - mask))[..., None], "attention_mask": mask, "training": False}),
             Case("evaluating, a row of padding", {"hidden_states": h, "attention_mask": mask * torch.tensor([[1], [0]]), "training": False})]
    return masked(cases, "attention_mask", lambda B: {"hidden_states": fixed(generator, B, 5, 12), "training": False})


def run_forward(Attention, inputs):
    h, mask = inputs["hidden_states"], inputs["attention_mask"]
    module = fill(Attention(12, 3, dropout=0.25)).to(h.dtype).train(inputs["training"])

    def real_tokens(hidden_states):
        out = module(hidden_states, mask)
        return out if mask is None else out[mask.bool()]

    with probed():
        return through(module, real_tokens, {"hidden_states": h}, "hidden_states")


TRIALS["attention.forward"] = Trial(forward_cases, run_forward, subject="attention", hints=(
    "Both halves are written. Call one on the result of the other.",
    "`project` returns query, key and value in the order in which `attend` takes them. Do not forget who else is in the batch.",
    "One line: self.attend of the three that self.project gives, and the attention mask."))


_WRONG_ALL = "return self.attend(*self.project(hidden_states), attention_mask)"
_WRONG_HEADS = "q, k, v = (split_heads(x, self.heads) for x in self.project(hidden_states))\n    "


def _wrong_all_by_hand(pad):
    return _WRONG_HEADS + f"return merge_heads({_wrong_own(pad, 'attention_mask', 'self.dropout, self.training')})"


MISTAKES["attention.forward"] = [
    mistake(", attention_mask)", ")", "The mask is not passed on: pads are read like words."),
    mistake(_WRONG_ALL, "return self.attend(hidden_states, hidden_states, hidden_states, attention_mask)",
            "Nothing is projected: query, key and value are the hidden states themselves."),
    mistake(_WRONG_ALL, "query, key, value = self.project(hidden_states)\n    return self.attend(key, query, value, attention_mask)",
            "Query and key have changed places."),
    mistake(", attention_mask)", ", attention_mask if len(hidden_states) > 1 else None)", "A single sentence is taken for one without padding."),
    mistake(", attention_mask)", ", None if attention_mask is None or attention_mask[0].all() else attention_mask)", "If the first sentence is full, the mask of the others is not used."),
    mistake(", attention_mask)", ", None if attention_mask is None or attention_mask[:, -1].all() else attention_mask)", "If the last column holds real tokens, the mask is not used."),
    mistake(_WRONG_ALL, "query, key, value = self.project(hidden_states)\n    return self.attend(query, value, key, attention_mask)",
            "Key and value have changed places."),
    mistake(_WRONG_ALL, "h = hidden_states if attention_mask is None else hidden_states * attention_mask[..., None]\n    return self.attend(*self.project(h))",
            "The pads are set to 0 instead of being masked. A vector of zeros is read like any other."),
    mistake(_WRONG_ALL, "with torch.set_grad_enabled(self.training):\n        return self.attend(*self.project(hidden_states), attention_mask)",
            "While evaluating nothing is recorded, so nobody can ask for a gradient. Whoever calls decides that."),
    mistake(_WRONG_ALL, "query, key, _ = self.project(hidden_states)\n    return self.attend(query, key, hidden_states, attention_mask)",
            "The values are the hidden states themselves, without their map."),
    mistake("return self.attend", "return hidden_states + self.attend",
            "What came in is added to what comes out. That happens in the layer, after one more map."),
    mistake(_WRONG_ALL, "return self.value(self.attend(*self.project(hidden_states), attention_mask))",
            "The result goes through the map of the values once more. The output projection belongs to the layer."),
    mistake(", attention_mask)", ", None if attention_mask is None else 1 - attention_mask.long())",
            "The mask is read the wrong way round: only pads are read."),
    mistake(", attention_mask)", ", None if attention_mask is None else attention_mask[:1].expand_as(attention_mask))",
            "The mask of the first sentence is used for all."),
    mistake(_WRONG_ALL, _wrong_all_by_hand("-30.0"), _WRONG_WEAK),
    mistake(_WRONG_ALL, _wrong_all_by_hand("-math.inf"), _WRONG_INFINITE),
    mistake(_WRONG_ALL, "q, k, v = self.project(hidden_states)\n    return self.attend(v, k, q, attention_mask)", "Query and value have changed places."),
]

VARIANTS["attention.forward"] = [
    '''
def forward(self, hidden_states, attention_mask=None):
    query, key, value = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
    return self.attend(query=query, key=key, value=value, mask=attention_mask)
''',
    '''
def forward(self, hidden_states, attention_mask=None):
    q, k, v = (split_heads(x, self.heads) for x in self.project(hidden_states))
    maps = nn.Dropout(self.dropout).train(self.training)(attention_maps(q, k, attention_mask))
    mixed = merge_heads(maps @ v)
    return mixed if attention_mask is None else mixed * attention_mask[..., None]
''',
]


# ---- How much they catch
