"""Exercise cases of chapter 04: add and norm, the encoder layer, the pooler."""

import math

import torch

from minbert.course.check_runner import Case, Trial, fill, fixed, mistake, probed
from minbert.encoder import BertConfig
from minbert.exercise_cases.attention import masked, through

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


SIZES = {
    "vocab_size": 11,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "layer_norm_eps": 0.02,
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.35,
    "max_position_embeddings": 9,
}


# ---- encoder.add_norm
#
# Both uses of the method: with the normalization of the first half, and with that of the second.
# Batches and lists of tokens, one token; train and eval mode; values far from 0.


def add_norm_cases(generator):
    def given(first, training, *shape):
        return {
            "residual": fixed(generator, *shape, 12),
            "update": fixed(generator, *shape, 12),
            "first": first,
            "training": training,
        }

    return [
        Case("evaluating, around attention", given(True, False, 2, 5)),
        Case("training, around attention, dropout as a fixed pattern", given(True, True, 2, 5)),
        Case("evaluating, around the feed-forward net", given(False, False, 3, 4)),
        Case("training, around the feed-forward net", given(False, True, 3, 4)),
        Case("training, a flat list of tokens", given(False, True, 7)),
        Case("evaluating, one token", given(True, False, 1, 1)),
        Case(
            "evaluating, numbers far from 0",
            {**(far := given(True, False, 2, 3)), "residual": far["residual"] + 3e5},
        ),
        Case(
            "training, the normalization of another layer",
            {**given(True, True, 2, 3), "foreign": True},
        ),
        Case("training, after a call in eval mode", {**given(False, True, 2, 3), "earlier": True}),
    ]


def run_add_norm(Layer, inputs):
    layer = fill(Layer(BertConfig(**SIZES))).train(inputs["training"])
    holder = (
        fill(Layer(BertConfig(**SIZES)), 1).train(inputs["training"])
        if "foreign" in inputs
        else layer
    )
    norm = holder.attention_layer_norm if inputs["first"] else holder.out_layer_norm
    with probed():
        given = {name: inputs[name] for name in ("residual", "update")}
        if "earlier" in inputs:
            layer.eval().add_norm(**given, norm=norm)
            layer.train()
        return through(
            holder,
            lambda residual, update: layer.add_norm(residual, update, norm),
            given,
            "residual",
            "update",
        )


TRIALS["encoder.add_norm"] = Trial(
    add_norm_cases,
    run_add_norm,
    subject="layer",
    hints=(
        "Read the formula from the inside: first dropout, last the normalization.",
        (
            "Dropout is applied to the update only. The residual enters the sum unchanged, so that "
            "a gradient can always pass."
        ),
        "norm of (residual + self.dropout of update).",
    ),
)


_WRONG_SUM = "return norm(residual + self.dropout(update))"

MISTAKES["encoder.add_norm"] = [
    mistake("self.dropout(update)", "update", "There is no dropout."),
    mistake(
        _WRONG_SUM,
        "return norm(self.dropout(residual + update))",
        "Dropout is applied to the sum, so it also hits the residual connection. It belongs on "
        "the output of the sublayer.",
    ),
    mistake(
        _WRONG_SUM,
        "return self.dropout(norm(residual + update))",
        "Dropout is applied after the layer normalization. It belongs on the output of the "
        "sublayer.",
    ),
    mistake(
        "self.dropout(update)",
        "F.dropout(update, self.dropout.p)",
        "Dropout is active in eval mode too.",
    ),
    mistake(
        "residual + self", "self", "The residual connection is missing: the input is not added."
    ),
    mistake(
        "norm(residual + self.dropout(update))",
        "residual + self.dropout(update)",
        "The layer normalization is missing.",
    ),
    mistake(
        _WRONG_SUM,
        "return residual + norm(self.dropout(update))",
        "The layer normalization comes before the addition. BERT normalizes the sum (post-norm).",
    ),
    mistake(
        "norm(residual +",
        "norm(residual.detach() +",
        "The input is detached, so no gradient flows through the residual connection.",
    ),
]

VARIANTS["encoder.add_norm"] = [
    """
def add_norm(self, residual, update, norm):
    total = F.dropout(update, self.dropout.p, self.training) + residual
    return F.layer_norm(total, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
""",
    """
def add_norm(self, residual, update, norm):
    x = torch.add(self.dropout(update), residual)
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - mean) / (variance + norm.eps) ** 0.5 * norm.weight + norm.bias
""",
]


# ---- encoder.layer
#
# The other exercises are the reference here, so only the connections matter: which residual,
# which normalization, which linear layer, and the activation function. All the masks of chapter
# 02, single precision. Only real tokens are compared. The tanh approximation of
# GELU differs in the fourth digit, which is enough.


def layer_cases(generator):
    h = fixed(generator, 3, 5, 12)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

    def given(h, mask, training=False):
        return {"hidden_states": h, "attention_mask": mask, "training": training}

    cases = [
        Case("evaluating, three sentences, two with pads", given(h, mask)),
        Case("training, dropout as a fixed pattern", given(h, mask, training=True)),
        Case("no mask", given(h, None)),
        Case("no mask, training", given(h[:2], None, training=True)),
        Case("single precision", given(h.float(), mask)),
    ]
    return masked(cases, "attention_mask", lambda B: given(fixed(generator, B, 5, 12), None))


def run_layer(Layer, inputs):
    h, mask = inputs["hidden_states"], inputs["attention_mask"]
    layer = fill(Layer(BertConfig(**SIZES))).to(h.dtype).train(inputs["training"])

    def real_tokens(hidden_states):
        out = layer(hidden_states, mask)
        return out if mask is None else out[mask.bool()]

    with probed():
        return through(layer, real_tokens, {"hidden_states": h}, "hidden_states")


TRIALS["encoder.layer"] = Trial(
    layer_cases,
    run_layer,
    subject="layer",
    hints=(
        "Two sublayers, each with an `add_norm` around it. What goes into the second?",
        (
            "`self.self_attention(hidden_states, attention_mask)` is attention. The feed-forward "
            "network widens h₁ with `interm_dense`, applies F.gelu, and narrows it with `out_dense`."
        ),
        (
            "h1 = self.add_norm(hidden_states, self.attention_dense(attended), "
            "self.attention_layer_norm); then the same with h1, self.out_dense(inner) and the "
            "other normalization, where inner = F.gelu(self.interm_dense(h1))."
        ),
    ),
)


_WRONG_OUT = "return self.add_norm(h1, self.out_dense(inner), self.out_layer_norm)"
_WRONG_FIRST = (
    "h1 = self.add_norm(hidden_states, self.attention_dense(attended), self.attention_layer_norm)"
)

MISTAKES["encoder.layer"] = [
    mistake(
        "(hidden_states, self.attention_dense(attended),",
        "(hidden_states, attended,",
        "The output projection of attention, W_o, is missing.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "F.relu(self.interm_dense(h1))",
        "The feed-forward network uses ReLU. BERT uses GELU.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "self.interm_dense(h1)",
        "The activation function is missing, so the two linear layers of the feed-forward "
        "network amount to one.",
    ),
    mistake(
        "F.gelu(self.interm_dense(h1))",
        "F.gelu(self.interm_dense(hidden_states))",
        "The feed-forward network gets the input of the layer. It should get the output of the "
        "attention half.",
    ),
    mistake(
        "self.add_norm(h1, self.out_dense(inner)",
        "self.add_norm(hidden_states, self.out_dense(inner)",
        "The second residual connection adds the input of the layer. It should add the output "
        "of the attention half.",
    ),
    mistake(
        _WRONG_FIRST,
        _WRONG_FIRST.replace("attention_layer", "out_layer"),
        _WRONG_OUT,
        _WRONG_OUT.replace("out_layer", "attention_layer"),
        "The two layer normalizations are swapped.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention(hidden_states)",
        "The mask is not passed on: padding is attended to like real tokens.",
    ),
    mistake(
        "self.self_attention(hidden_states, attention_mask)",
        "self.self_attention(self.attention_layer_norm(hidden_states), attention_mask)",
        _WRONG_FIRST,
        "h1 = hidden_states + self.dropout(self.attention_dense(attended))",
        "F.gelu(self.interm_dense(h1))",
        "F.gelu(self.interm_dense(self.out_layer_norm(h1)))",
        _WRONG_OUT,
        "return h1 + self.dropout(self.out_dense(inner))",
        "Each half normalizes its input (pre-norm). BERT normalizes each sum (post-norm).",
    ),
]

VARIANTS["encoder.layer"] = [
    """
def forward(self, hidden_states, attention_mask=None):
    attended = self.self_attention(hidden_states, attention_mask)
    h = self.attention_layer_norm(self.dropout(self.attention_dense(attended)) + hidden_states)
    inner = F.gelu(self.interm_dense(h))
    return self.out_layer_norm(h + self.dropout(self.out_dense(inner)))
""",
    """
def forward(self, hidden_states, attention_mask=None):
    x = hidden_states
    x = self.add_norm(
        residual=x,
        update=self.attention_dense(self.self_attention(x, attention_mask=attention_mask)),
        norm=self.attention_layer_norm,
    )
    wide = x @ self.interm_dense.weight.T + self.interm_dense.bias
    wide = wide * 0.5 * (1 + torch.erf(wide * 2**-0.5))
    return self.add_norm(x, self.out_dense(wide), norm=self.out_layer_norm)
""",
]


# ---- encoder.pooler
#
# Sentences of several tokens, a batch of one, a sentence of one token, as many sentences as
# tokens; values whose exponentials overflow, and NaN.


def pooler_cases(generator):
    broken = fixed(generator, 3, 2, 12)
    broken[1, 0, 4] = math.nan
    return [
        Case("three sentences of five tokens", {"last_hidden_state": fixed(generator, 3, 5, 12)}),
        Case(
            "one sentence, evaluating",
            {"last_hidden_state": fixed(generator, 1, 4, 12), "eval": True},
        ),
        Case("one token", {"last_hidden_state": fixed(generator, 2, 1, 12)}),
        Case("as many sentences as tokens", {"last_hidden_state": fixed(generator, 4, 4, 12)}),
        Case("large numbers", {"last_hidden_state": 5 * fixed(generator, 2, 3, 12)}),
        Case("numbers of thousands", {"last_hidden_state": 5000 * fixed(generator, 2, 3, 12)}),
        Case("NaN in the first token of one sentence", {"last_hidden_state": broken}),
    ]


def run_pooler(Model, inputs):
    model = fill(Model(BertConfig(**SIZES))).train("eval" not in inputs)
    return through(
        model.pooler_dense,
        model.pooler,
        {"last_hidden_state": inputs["last_hidden_state"]},
        "last_hidden_state",
    )


TRIALS["encoder.pooler"] = Trial(
    pooler_cases,
    run_pooler,
    hints=(
        "One vector a sentence: which token stands for it?",
        "last_hidden_state[:, 0] is (B, D), the vectors of [CLS]. Then one linear map, then tanh.",
        "torch.tanh of self.pooler_dense of the vectors in column 0.",
    ),
)


MISTAKES["encoder.pooler"] = [
    mistake("[:, 0]", "[:, -1]", "The last token is used. [CLS] is the first."),
    mistake("[:, 0]", ".mean(1)", "The tokens are averaged. The pooler uses [CLS] alone."),
    mistake(
        "[:, 0]",
        "[0]",
        "The tokens of the first sentence are used instead of the first token of each sentence.",
    ),
    mistake(
        "torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))",
        "self.pooler_dense(last_hidden_state[:, 0])",
        "The tanh is missing.",
    ),
    mistake("torch.tanh(", "torch.sigmoid(", "A sigmoid is used instead of tanh."),
    mistake(
        "torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))",
        "self.pooler_dense(torch.tanh(last_hidden_state[:, 0]))",
        "The tanh comes before the linear layer. It comes after.",
    ),
    mistake("[:, 0]", "[:, :1]", "The token axis is still there, with size 1."),
    mistake(
        "torch.tanh(self.pooler_dense(last_hidden_state[:, 0]))",
        "torch.tanh(self.pooler_dense(last_hidden_state[:, 0])).squeeze()",
        "`squeeze()` removes every axis of size 1, so a batch of one sentence loses its batch "
        "axis.",
    ),
]

VARIANTS["encoder.pooler"] = [
    """
def pooler(self, last_hidden_state):
    first = last_hidden_state.select(1, 0)
    return (first @ self.pooler_dense.weight.T + self.pooler_dense.bias).tanh()
""",
    """
def pooler(self, last_hidden_state):
    everything = F.tanh(self.pooler_dense(last_hidden_state))
    return everything[:, 0, :]
""",
    """
def pooler(self, last_hidden_state):
    return torch.stack(
        [torch.tanh(self.pooler_dense(sentence[0])) for sentence in last_hidden_state]
    )
""",
]
