"""How the exercises of chapter 04 are checked: add and norm, the layer, and the pooler."""


import math
from functools import partial

import torch

from minbert.encoder import BertConfig, mix_tokens
from minbert.course.trials import Case, Trial, fill, fixed, mistake, probed
from minbert.engine.packing import Packing, Padded
from minbert.trials.attention import masked, through


# A layer that adds the wrong residual still trains, only worse. Its shapes fit, its loss falls. What gives it away?
#
# Weights that all differ, a dropout whose place shows, a norm with a large ε, and an inner width that equals no other. Gradients of all weights are
# compared with the reference.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}

SIZES = dict(vocab_size=11, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20, layer_norm_eps=0.02,
             hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.35, max_position_embeddings=9)


# ---- encoder.add_norm
#
# Both uses of the method: with the first map and norm, `D` to `D`, and with the second, inner width to `D`. So a method that ignores what it was
# given and takes the first pair shows. Padded, flat, one token; training and evaluating; a map and a norm of another layer; numbers far from 0.

def add_norm_cases(generator):
    def given(first, training, *shape):
        return {"before": fixed(generator, *shape, 12), "made": fixed(generator, *shape, 12 if first else 20), "first": first, "training": training}
    return [Case("evaluating, around attention", given(True, False, 2, 5)),
            Case("training, around attention, dropout as a fixed pattern", given(True, True, 2, 5)),
            Case("evaluating, around the feed-forward net", given(False, False, 3, 4)),
            Case("training, around the feed-forward net", given(False, True, 3, 4)),
            Case("training, a flat list of tokens", given(False, True, 7)),
            Case("evaluating, one token", given(True, False, 1, 1)),
            Case("evaluating, numbers far from 0", {**(far := given(True, False, 2, 3)), "before": far["before"] + 3e5}),
            Case("training, a map and a norm of another layer", {**given(True, True, 2, 3), "foreign": True}),
            Case("training, after a call in eval mode", {**given(False, True, 2, 3), "earlier": True})]


def run_add_norm(Layer, inputs):
    layer = fill(Layer(BertConfig(**SIZES))).train(inputs["training"])
    holder = fill(Layer(BertConfig(**SIZES)), 1).train(inputs["training"]) if "foreign" in inputs else layer
    parts = (holder.attention_dense, holder.attention_layer_norm) if inputs["first"] else (holder.out_dense, holder.out_layer_norm)
    with probed():
        given = {name: inputs[name] for name in ("before", "made")}
        if "earlier" in inputs:
            layer.eval().add_norm(**given, dense=parts[0], norm=parts[1])
            layer.train()
        return through(holder, lambda before, made: layer.add_norm(before, made, *parts), given, "before", "made")


TRIALS["encoder.add_norm"] = Trial(add_norm_cases, run_add_norm, subject="layer", hints=(
    "Read the formula from the inside: first the map, last the norm.",
    "Only what the sublayer made is dropped. What went in reaches the sum whole, so that a gradient can always pass.",
    "norm of (before + self.dropout of (dense of made))."))


_WRONG_SUM = "return norm(before + self.dropout(dense(made)))"

MISTAKES["encoder.add_norm"] = [
    mistake("self.dropout(dense(made))", "dense(made)", "There is no dropout."),
    mistake(_WRONG_SUM, "return norm(self.dropout(before + dense(made)))",
            "Dropout falls on the sum, or on both its parts. What went in should reach the sum whole."),
    mistake("self.dropout(dense(made))", "dense(self.dropout(made))", "Dropout comes before the map. It belongs behind it."),
    mistake(_WRONG_SUM, "return self.dropout(norm(before + dense(made)))", "Dropout comes after the norm. It belongs on what is added."),
    mistake("self.dropout(dense(made))", "F.dropout(dense(made), self.dropout.p)", "Dropout is on while evaluating too."),
    mistake("before + self", "self", "What went in is not added."),
    mistake("norm(before + self.dropout(dense(made)))", "before + self.dropout(dense(made))", "The sum is not normalised."),
    mistake(_WRONG_SUM, "return before + norm(self.dropout(dense(made)))", "The norm comes before the sum. BERT normalises the sum."),
    mistake(_WRONG_SUM, "return norm(norm(before) + self.dropout(dense(made)))", "What went in is normalised before the sum as well."),
    mistake("norm(before", "self.attention_layer_norm(before", "The norm is always that of attention. Use the one that is given."),
    mistake("norm(before + self.dropout(dense(made)))", "F.layer_norm(before + self.dropout(dense(made)), before.shape[-1:])",
            "The norm has no scale, no shift and torch's ε. The module that is given has its own."),
    mistake("norm(before + self", "norm(before - self", "What the sublayer made is subtracted."),
    mistake("norm(before +", "norm(before.detach() +", "What went in is detached, so no gradient passes around the sublayer."),
    mistake("dense(made)))", "F.linear(made, dense.weight)))", "The bias of the map is left out."),
    mistake("dense(made)", "dense(made.detach())", "What the sublayer made is detached, so the sublayer never learns."),
    mistake("dense(made)", "(self.attention_dense if made.shape == before.shape else dense)(made)", "The map is looked up in the layer. Use the one that is given."),
    mistake("self.dropout(dense(made))", "F.dropout(dense(made), 0.1, self.training)", "Dropout has a fixed probability. It should be the layer's own."),
    mistake("self.dropout(dense(made))", "F.dropout(dense(made), self.self_attention.dropout, self.training)",
            "Dropout has the probability of the attention maps. The layer has its own, `self.dropout`."),
    mistake(_WRONG_SUM, "return norm((before + self.dropout(dense(made))) / 2)", "The two are averaged. They are added."),
    mistake(_WRONG_SUM, "return norm(before + self.dropout(dense(made))) * norm.weight", "The scale of the norm is used twice."),
    mistake(_WRONG_SUM, "x = before + self.dropout(dense(made))\n    m, s = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)\n"
            "    return (x - m) / (s - m * m + norm.eps).sqrt() * norm.weight + norm.bias",
            "The variance is the mean of the squares less the square of the mean. Far from 0 both are large and their difference is rounding."),
    mistake(_WRONG_SUM, "x = before + self.dropout(dense(made))\n"
            "    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias",
            "The variance is divided by D - 1. A norm divides by D."),
    mistake(_WRONG_SUM, "x = before + self.dropout(dense(made))\n"
            "    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + norm.eps) * norm.weight + norm.bias",
            "ε is added to the standard deviation. It belongs under the root, to the variance."),
    mistake(_WRONG_SUM, "return norm(self.dropout(dense(made)) + (before if before.shape == made.shape else 0))",
            "What went in is added only where it is as wide as what was made. It is always as wide as the result of the map."),
    mistake(_WRONG_SUM, "if not self.training:\n        self.dropout.p = 0.0\n    " + _WRONG_SUM, "In eval mode dropout is switched off for good: it stays off when training goes on."),
]

VARIANTS["encoder.add_norm"] = [
    '''
def add_norm(self, before, made, dense, norm):
    total = F.dropout(made @ dense.weight.T + dense.bias, self.dropout.p, self.training) + before
    return F.layer_norm(total, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
''',
    '''
def add_norm(self, before, made, dense, norm):
    x = torch.add(self.dropout(dense(made)), before)
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / (variance + norm.eps) ** 0.5 * norm.weight + norm.bias
''',
]


# ---- encoder.layer
#
# The other exercises are the reference here, so it is the wiring that counts: which residual, which norm, which map, where the GELU. Padded with all
# the masks of chapter 02 and without one, packed, in single precision. Only real tokens are compared. A tanh in place of the exact GELU differs in
# the fourth digit, and is seen.

def layer_cases(generator):
    h = fixed(generator, 3, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

    def given(h, mask, training=False, packed=False):
        return {"hidden_states": h, "attention_mask": mask, "training": training, "packed": packed}
    cases = [Case("evaluating, three sentences, two with pads", given(h, mask)),
             Case("training, dropout as a fixed pattern", given(h, mask, training=True)),
             Case("no mask", given(h, None)),
             Case("packed, training", given(h, mask, training=True, packed=True)),
             Case("packed, evaluating", given(h[:2], mask[:2], packed=True)),
             Case("single precision", given(h.float(), mask))]
    return masked(cases, "attention_mask", lambda B: given(fixed(generator, B, 5, 12), None))


def run_layer(Layer, inputs):
    h, mask = inputs["hidden_states"], inputs["attention_mask"]
    layer = fill(Layer(BertConfig(**SIZES))).to(h.dtype).train(inputs["training"])

    def real_tokens(hidden_states):
        layout = Packing(mask) if inputs["packed"] else Padded(mask)
        out = layer(layout.pack(hidden_states), partial(mix_tokens, layout=layout))
        return out if mask is None or inputs["packed"] else out[mask.bool()]

    with probed():
        return through(layer, real_tokens, {"hidden_states": h}, "hidden_states")


TRIALS["encoder.layer"] = Trial(layer_cases, run_layer, subject="layer", hints=(
    "Two sublayers, each with an `add_norm` around it. What goes into the second?",
    "`mix(self.self_attention, hidden_states)` is attention. The feed-forward net widens h₁ with `interm_dense` and bends it with F.gelu; "
    "the narrowing is the map that `add_norm` gets.",
    "h = self.add_norm(hidden_states, mixed, self.attention_dense, self.attention_layer_norm); then the same with h, F.gelu(self.interm_dense(h)), "
    "and the other map and norm."))


_WRONG_OUT = "return self.add_norm(h, inner, self.out_dense, self.out_layer_norm)"
_WRONG_FIRST = "h = self.add_norm(hidden_states, mixed, self.attention_dense, self.attention_layer_norm)"

MISTAKES["encoder.layer"] = [
    mistake("(hidden_states, mixed, self.attention_dense,", "(hidden_states, self.attention_dense(mixed), self.attention_dense,",
            "The last map of attention is applied twice: `add_norm` applies the one that it is given."),
    mistake("F.gelu(self.interm_dense(h))", "F.relu(self.interm_dense(h))", "The feed-forward net bends with a ReLU. BERT has the GELU."),
    mistake("F.gelu(self.interm_dense(h))", 'F.gelu(self.interm_dense(h), approximate="tanh")',
            "The GELU is the approximation by tanh. BERT's is exact."),
    mistake("F.gelu(self.interm_dense(h))", "self.interm_dense(h)", "The feed-forward net does not bend, so its two maps are no more than one."),
    mistake("F.gelu(self.interm_dense(h))", "F.gelu(self.interm_dense(hidden_states))",
            "The feed-forward net reads what came into the layer. It should read what attention made of it."),
    mistake("self.add_norm(h, inner", "self.add_norm(hidden_states, inner",
            "The second residual is what came into the layer. It should be what came out of the first half."),
    mistake("F.gelu(self.interm_dense(h))", "F.gelu(self.interm_dense(mixed))",
            "The feed-forward net reads what attention gave, before it was added and normalised."),
    mistake("self.out_layer_norm)", "self.attention_layer_norm)", "Both halves use the norm of the first."),
    mistake("self.attention_layer_norm)", "self.out_layer_norm)", "Both halves use the norm of the second."),
    mistake(_WRONG_FIRST, _WRONG_FIRST.replace("attention_layer", "out_layer"), _WRONG_OUT, _WRONG_OUT.replace("out_layer", "attention_layer"),
            "The two norms have changed places."),
    mistake("mix(self.self_attention, hidden_states)", "self.self_attention(hidden_states)",
            "`mix` is not used: pads are read like words, and in a flat list of tokens there is no telling where a sentence ends."),
    mistake("mix(self.self_attention, hidden_states)", "self.self_attention.project(hidden_states)[2]",
            "Nothing is mixed: each token keeps its own value."),
    mistake("mix(self.self_attention, hidden_states)", "mix(self.self_attention, mix(self.self_attention, hidden_states))",
            "Words are mixed twice."),
    mistake("mix(self.self_attention, hidden_states)", "mix(self.self_attention, hidden_states) + hidden_states",
            "What came in is added before the output map as well. Each half has one sum."),
    mistake("mix(self.self_attention, hidden_states)", "self.dropout(mix(self.self_attention, hidden_states))",
            "Dropout falls on what attention gave, before its output map as well."),
    mistake("mix(self.self_attention, hidden_states)", "mix(self.self_attention, self.dropout(hidden_states))",
            "Dropout falls on what attention reads. It belongs behind the output map."),
    mistake("    mixed = mix(self.self_attention, hidden_states)", "    with torch.no_grad():\n        mixed = mix(self.self_attention, hidden_states)",
            "Nothing is recorded during attention, so its maps never learn."),
    mistake("F.gelu(self.interm_dense(h))", "F.silu(self.interm_dense(h))", "The feed-forward net bends with SiLU. BERT has the GELU."),
    mistake("F.gelu(self.interm_dense(h))", "(w := self.interm_dense(h)) * torch.sigmoid(1.702 * w)",
            "The GELU is the approximation by a sigmoid. BERT's is exact."),
    mistake(_WRONG_OUT, "return hidden_states + self.add_norm(h, inner, self.out_dense, self.out_layer_norm)",
            "What came into the layer is added once more at the end. Two sums are enough."),
    mistake(_WRONG_FIRST, "h = self.add_norm(mixed, hidden_states, self.attention_dense, self.attention_layer_norm)",
            "The two parts of the first sum have changed places: what came in goes through the map, what attention made is added."),
    mistake(_WRONG_FIRST, "h = self.attention_layer_norm(hidden_states + self.dropout(mixed))", "The output map of attention, W_o, is left out."),
    mistake(_WRONG_OUT, "return h", "There is no feed-forward net."),
    mistake(_WRONG_FIRST, "h = self.attention_layer_norm(hidden_states + self.attention_dense(mixed))", "There is no dropout behind attention."),
    mistake(_WRONG_OUT, "return self.out_layer_norm(h + self.out_dense(inner))", "There is no dropout behind the feed-forward net."),
    mistake("F.gelu(self.interm_dense(h))", "self.dropout(F.gelu(self.interm_dense(h)))",
            "Dropout falls on the inner numbers too. It belongs behind the second map."),
    mistake(_WRONG_FIRST, "h = self.attention_layer_norm(self.dropout(self.attention_dense(mixed)))",
            "What came in is not added to what attention made."),
    mistake(_WRONG_OUT, "return self.out_layer_norm(self.dropout(self.out_dense(inner)))",
            "The result of the first half is not added to what the feed-forward net made."),
    mistake("mix(self.self_attention, hidden_states)", "mix(self.self_attention, self.attention_layer_norm(hidden_states))", _WRONG_FIRST,
            "h = hidden_states + self.dropout(self.attention_dense(mixed))",
            "F.gelu(self.interm_dense(h))", "F.gelu(self.interm_dense(self.out_layer_norm(h)))", _WRONG_OUT,
            "return h + self.dropout(self.out_dense(inner))",
            "Each half is normalised at its beginning. BERT normalises each sum, at the end."),
    mistake(_WRONG_OUT, "return self.out_layer_norm(h + self.dropout(F.gelu(self.out_dense(self.interm_dense(h)))))",
            "The GELU comes after the second map. It belongs between the two."),
    mistake(_WRONG_FIRST, _WRONG_FIRST.replace("self.add_norm", "hidden_states + self.add_norm"), "What came into the layer is added once more behind the first half. `add_norm` has added it."),
    mistake(_WRONG_OUT, _WRONG_OUT.replace("self.add_norm", "h + self.add_norm"), "The result of the first half is added once more at the end. `add_norm` has added it."),
]

VARIANTS["encoder.layer"] = [
    '''
def forward(self, hidden_states, mix=SelfAttention.__call__):
    mixed = mix(self.self_attention, hidden_states)
    h = self.attention_layer_norm(self.dropout(self.attention_dense(mixed)) + hidden_states)
    bent = F.gelu(self.interm_dense(h))
    return self.out_layer_norm(h + self.dropout(self.out_dense(bent)))
''',
    '''
def forward(self, hidden_states, mix=SelfAttention.forward):
    x = hidden_states
    x = self.add_norm(before=x, made=mix(self.self_attention, x), dense=self.attention_dense, norm=self.attention_layer_norm)
    wide = x @ self.interm_dense.weight.T + self.interm_dense.bias
    return self.add_norm(x, wide * 0.5 * (1 + torch.erf(wide * 2 ** -0.5)), self.out_dense, norm=self.out_layer_norm)
''',
]


# ---- encoder.pooler
#
# Sentences of several tokens in which the first is nothing special, a batch of one, a sentence of one, as many sentences as tokens; numbers whose
# exponentials are none, and a NaN. One model is in eval mode.

def pooler_cases(generator):
    broken = fixed(generator, 3, 2, 12)
    broken[1, 0, 4] = math.nan
    return [Case("three sentences of five tokens", {"last_hidden_state": fixed(generator, 3, 5, 12)}),
            Case("one sentence, evaluating", {"last_hidden_state": fixed(generator, 1, 4, 12), "eval": True}),
            Case("one token", {"last_hidden_state": fixed(generator, 2, 1, 12)}),
            Case("as many sentences as tokens", {"last_hidden_state": fixed(generator, 4, 4, 12)}),
            Case("large numbers", {"last_hidden_state": 5 * fixed(generator, 2, 3, 12)}),
            Case("numbers of thousands", {"last_hidden_state": 5000 * fixed(generator, 2, 3, 12)}),
            Case("NaN in the first token of one sentence", {"last_hidden_state": broken})]


def run_pooler(Model, inputs):
    model = fill(Model(BertConfig(**SIZES))).train("eval" not in inputs)
    return through(model.pooler_dense, model.pooler, {"last_hidden_state": inputs["last_hidden_state"]}, "last_hidden_state")


TRIALS["encoder.pooler"] = Trial(pooler_cases, run_pooler, hints=(
    "One vector a sentence: which token stands for it?",
    "last_hidden_state[:, 0] is (B, D), the vectors of [CLS]. Then one linear map, then tanh.",
    "torch.tanh of self.pooler_dense of the vectors in column 0."))


_WRONG_POOL = "torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))"

MISTAKES["encoder.pooler"] = [
    mistake("[:, 0]", "[:, -1]", "The last token is read. [CLS] is the first."),
    mistake("[:, 0]", ".mean(1)", "The tokens are averaged. The pooler reads [CLS] alone."),
    mistake("[:, 0]", ".amax(1)", "The largest number of each column is taken. The pooler reads [CLS] alone."),
    mistake("[:, 0]", "[0]", "The tokens of the first sentence are read, in place of the first token of each."),
    mistake("[:, 0]", "", "Every token is pooled. There should be one vector a sentence."),
    mistake("torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))", "self.pooler_dense(last_hidden_state[:, 0])", "The tanh is left out."),
    mistake("torch.tanh(", "torch.sigmoid(", "A sigmoid stands where tanh should: it gives nothing below 0."),
    mistake("torch.tanh(", "F.gelu(", "A GELU stands where tanh should."),
    mistake("torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))", "self.pooler_dense(torch.tanh(last_hidden_state[:, 0]))",
            "The tanh comes before the map."),
    mistake("self.pooler_dense(last_hidden_state[:, 0])", "last_hidden_state[:, 0]", "The map is left out."),
    mistake("[:, 0]", "[:, :1]", "The axis of the tokens is still there, with size 1."),
    mistake("[:, 0]", "[:, 0].detach()", "The vectors of [CLS] are detached, so nothing below the pooler learns."),
    mistake("torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))", "torch.tanh(self.pooler_dense(last_hidden_state[:, 0])).squeeze()",
            "All axes of size 1 are taken away, so a single sentence loses its own."),
    mistake("self.pooler_dense(last_hidden_state[:, 0])", "F.linear(last_hidden_state[:, 0], self.pooler_dense.weight)", "The bias of the map is left out."),
    mistake("torch.tanh(", "F.hardtanh(", "The numbers are cut off at -1 and 1. tanh bends them gently."),
    mistake("torch.tanh(", "F.softsign(", "A softsign stands where tanh should."),
    mistake("torch.tanh(", "torch.tanh(torch.tanh(", "[:, 0]))", "[:, 0])))", "The tanh is applied twice."),
    mistake("[:, 0]", "[slice(None) if last_hidden_state.shape[0] != last_hidden_state.shape[1] else 0, 0 if last_hidden_state.shape[0] != last_hidden_state.shape[1] else slice(None)]",
            "With as many sentences as tokens, the tokens of the first sentence are read."),
    mistake(_WRONG_POOL, _WRONG_POOL + ".nan_to_num(0.0)", "NaN is replaced by a number. It has to go on, so that somebody learns of it."),
    mistake("return " + _WRONG_POOL, "z = self.pooler_dense(last_hidden_state[:, 0])\n    return (z.exp() - (-z).exp()) / (z.exp() + (-z).exp())",
            "The tanh is made of exponentials, which overflow for large numbers."),
    mistake("return " + _WRONG_POOL, "if self.training or not hasattr(self, \"kept\"):\n        self.kept = self.pooler_dense.weight.clone()\n"
            "    return torch.tanh(F.linear(last_hidden_state[:, 0], self.kept, self.pooler_dense.bias))", "In eval mode the weight is kept from the first call. Weights may change in any mode."),
]

VARIANTS["encoder.pooler"] = [
    '''
def pooler(self, last_hidden_state):
    first = last_hidden_state.select(1, 0)
    return (first @ self.pooler_dense.weight.T + self.pooler_dense.bias).tanh()
''',
    '''
def pooler(self, last_hidden_state):
    everything = F.tanh(self.pooler_dense(last_hidden_state))
    return everything[:, 0, :]
''',
    '''
def pooler(self, last_hidden_state):
    return torch.stack([torch.tanh(self.pooler_dense(sentence[0])) for sentence in last_hidden_state])
''',
]


# ---- How much they catch
