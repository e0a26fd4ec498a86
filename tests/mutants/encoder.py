"""Mutants of `minbert.exercise_cases.encoder`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.encoder import _WRONG_FIRST, _WRONG_OUT, _WRONG_SUM

MUTANTS = {}


MUTANTS["encoder.add_norm"] = [
    mistake(
        _WRONG_SUM,
        "return norm(norm(residual) + self.dropout(update))",
        "What went in is normalised before the sum as well.",
    ),
    mistake(
        "norm(residual",
        "self.attention_layer_norm(residual",
        "The norm is always that of attention. Use the one that is given.",
    ),
    mistake(
        "norm(residual + self.dropout(update))",
        "F.layer_norm(residual + self.dropout(update), residual.shape[-1:])",
        "The norm has no scale, no shift and torch's ε. The module that is given has its own.",
    ),
    mistake(
        "norm(residual + self",
        "norm(residual - self",
        "The update is subtracted.",
    ),
    mistake(
        "self.dropout(update)",
        "self.dropout(update.detach())",
        "What the sublayer made is detached, so the sublayer never learns.",
    ),
    mistake(
        "self.dropout(update)",
        "self.dropout(self.attention_dense(update))",
        "The output projection is applied once more. The update contains it.",
    ),
    mistake(
        "self.dropout(update)",
        "F.dropout(update, 0.1, self.training)",
        "Dropout has a fixed probability. It should be the layer's own.",
    ),
    mistake(
        "self.dropout(update)",
        "F.dropout(update, self.self_attention.dropout, self.training)",
        "Dropout has the probability of the attention maps. The layer has its own, `self.dropout`.",
    ),
    mistake(
        _WRONG_SUM,
        "return norm((residual + self.dropout(update)) / 2)",
        "The two are averaged. They are added.",
    ),
    mistake(
        _WRONG_SUM,
        "return norm(residual + self.dropout(update)) * norm.weight",
        "The scale of the norm is used twice.",
    ),
    mistake(
        _WRONG_SUM,
        "x = residual + self.dropout(update)\n"
        "    m, s = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)\n"
        "    return (x - m) / (s - m * m + norm.eps).sqrt() * norm.weight + norm.bias",
        "The variance is the mean of the squares less the square of the mean. Far from 0 both "
        "are large and their difference is rounding.",
    ),
    mistake(
        _WRONG_SUM,
        "x = residual + self.dropout(update)\n"
        "    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + "
        "norm.eps).sqrt() * norm.weight + norm.bias",
        "The variance is divided by D - 1. A norm divides by D.",
    ),
    mistake(
        _WRONG_SUM,
        "x = residual + self.dropout(update)\n"
        "    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) "
        "+ norm.eps) * norm.weight + norm.bias",
        "ε is added to the standard deviation. It belongs under the root, to the variance.",
    ),
    mistake(
        _WRONG_SUM,
        "if not self.training:\n        self.dropout.p = 0.0\n    " + _WRONG_SUM,
        "In eval mode dropout is switched off for good: it stays off when training goes on.",
    ),
]


MUTANTS["encoder.layer"] = [
    mistake(
        "F.gelu(self.interm_dense(h1))",
        'F.gelu(self.interm_dense(h1), approximate="tanh")',
        "The GELU is the approximation by tanh. BERT's is exact.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "F.gelu(self.interm_dense(attended))",
        "The feed-forward net reads what attention gave, before it was added and normalised.",
    ),
    mistake(
        "self.out_layer_norm)",
        "self.attention_layer_norm)",
        "Both halves use the norm of the first.",
    ),
    mistake(
        "self.attention_layer_norm)",
        "self.out_layer_norm)",
        "Both halves use the norm of the second.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention.project(hidden_states)[2]",
        "There is no attention: each token keeps its own value.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention(self.self_attention(hidden_states, attention_mask), attention_mask)",
        "Attention is applied twice.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention(hidden_states, attention_mask) + hidden_states",
        "What came in is added before the output map as well. Each half has one sum.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.dropout(self.self_attention(hidden_states, attention_mask))",
        "Dropout falls on what attention gave, before its output map as well.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention(self.dropout(hidden_states), attention_mask)",
        "Dropout falls on what attention reads. It belongs behind the output map.",
    ),
    mistake(
        "    attended = self.self_attention(hidden_states, attention_mask)",
        "    with torch.no_grad():\n        attended = self.self_attention(hidden_states, attention_mask)",
        "Nothing is recorded during attention, so its maps never learn.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "F.silu(self.interm_dense(h1))",
        "The feed-forward net bends with SiLU. BERT has the GELU.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "(w := self.interm_dense(h1)) * torch.sigmoid(1.702 * w)",
        "The GELU is the approximation by a sigmoid. BERT's is exact.",
    ),
    mistake(
        _WRONG_OUT,
        "return hidden_states + self.add_norm(h1, self.out_dense(inner), self.out_layer_norm)",
        "What came into the layer is added once more at the end. Two sums are enough.",
    ),
    mistake(
        _WRONG_FIRST,
        "h1 = self.add_norm(attended, self.attention_dense(hidden_states), self.attention_layer_norm)",
        "The two parts of the first sum have changed places: what came in goes through the map, "
        "what attention made is added.",
    ),
    mistake(
        _WRONG_FIRST,
        "h1 = self.attention_layer_norm(hidden_states + self.attention_dense(self.dropout(attended)))",
        "Dropout comes before the output projection of attention. It belongs behind it.",
    ),
    mistake(_WRONG_OUT, "return h1", "There is no feed-forward net."),
    mistake(
        _WRONG_FIRST,
        "h1 = self.attention_layer_norm(hidden_states + self.attention_dense(attended))",
        "There is no dropout behind attention.",
    ),
    mistake(
        _WRONG_OUT,
        "return self.out_layer_norm(h1 + self.out_dense(inner))",
        "There is no dropout behind the feed-forward net.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "self.dropout(F.gelu(self.interm_dense(h1)))",
        "Dropout falls on the inner numbers too. It belongs behind the second map.",
    ),
    mistake(
        _WRONG_FIRST,
        "h1 = self.attention_layer_norm(self.dropout(self.attention_dense(attended)))",
        "What came in is not added to what attention made.",
    ),
    mistake(
        _WRONG_OUT,
        "return self.out_layer_norm(self.dropout(self.out_dense(inner)))",
        "The result of the first half is not added to what the feed-forward net made.",
    ),
    mistake(
        _WRONG_OUT,
        "return self.out_layer_norm(h1 + "
        "self.dropout(F.gelu(self.out_dense(self.interm_dense(h1)))))",
        "The GELU comes after the second map. It belongs between the two.",
    ),
    mistake(
        _WRONG_FIRST,
        _WRONG_FIRST.replace("self.add_norm", "hidden_states + self.add_norm"),
        "What came into the layer is added once more behind the first half. `add_norm` has "
        "added it.",
    ),
    mistake(
        _WRONG_OUT,
        _WRONG_OUT.replace("self.add_norm", "h1 + self.add_norm"),
        "The result of the first half is added once more at the end. `add_norm` has added it.",
    ),
]


_WRONG_POOL = "torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))"


MUTANTS["encoder.pooler"] = [
    mistake(
        "[:, 0]",
        ".amax(1)",
        "The largest number of each column is taken. The pooler reads [CLS] alone.",
    ),
    mistake("[:, 0]", "", "Every token is pooled. There should be one vector a sentence."),
    mistake("torch.tanh(", "F.gelu(", "A GELU stands where tanh should."),
    mistake(
        "self.pooler_dense(last_hidden_state[:, 0])",
        "last_hidden_state[:, 0]",
        "The map is left out.",
    ),
    mistake(
        "[:, 0]",
        "[:, 0].detach()",
        "The vectors of [CLS] are detached, so nothing below the pooler learns.",
    ),
    mistake(
        "self.pooler_dense(last_hidden_state[:, 0])",
        "F.linear(last_hidden_state[:, 0], self.pooler_dense.weight)",
        "The bias of the map is left out.",
    ),
    mistake(
        "torch.tanh(", "F.hardtanh(", "The numbers are cut off at -1 and 1. tanh bends them gently."
    ),
    mistake("torch.tanh(", "F.softsign(", "A softsign stands where tanh should."),
    mistake(
        "torch.tanh(",
        "torch.tanh(torch.tanh(",
        "[:, 0]))",
        "[:, 0])))",
        "The tanh is applied twice.",
    ),
    mistake(
        "[:, 0]",
        "[slice(None) if last_hidden_state.shape[0] != last_hidden_state.shape[1] else 0, 0 "
        "if last_hidden_state.shape[0] != last_hidden_state.shape[1] else slice(None)]",
        "With as many sentences as tokens, the tokens of the first sentence are read.",
    ),
    mistake(
        _WRONG_POOL,
        _WRONG_POOL + ".nan_to_num(0.0)",
        "NaN is replaced by a number. It has to go on, so that somebody learns of it.",
    ),
    mistake(
        "return " + _WRONG_POOL,
        "z = self.pooler_dense(last_hidden_state[:, 0])\n"
        "    return (z.exp() - (-z).exp()) / (z.exp() + (-z).exp())",
        "The tanh is made of exponentials, which overflow for large numbers.",
    ),
    mistake(
        "return " + _WRONG_POOL,
        'if self.training or not hasattr(self, "kept"):\n'
        "        self.kept = self.pooler_dense.weight.clone()\n"
        "    return torch.tanh(F.linear(last_hidden_state[:, 0], self.kept, "
        "self.pooler_dense.bias))",
        "In eval mode the weight is kept from the first call. Weights may change in any mode.",
    ),
]
