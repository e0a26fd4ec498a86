"""Exercise cases of chapter 03: the embedding layer."""

from types import SimpleNamespace

import torch

from minbert.course.check_runner import Case, Trial, fill, mistake, probed
from minbert.exercise_cases.attention import through

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


CONFIG = SimpleNamespace(  # 16 positions and 11 words, so that an id can pass for a position
    vocab_size=11,
    hidden_size=12,
    max_position_embeddings=16,
    type_vocab_size=3,
    layer_norm_eps=0.02,
    hidden_dropout_prob=0.25,
    pad_token_id=0,
)


def made(Embedding, training=False):
    """A small module in double precision."""
    return fill(Embedding(CONFIG)).train(training)


def draw_ids(generator, *shape):
    """Random ids, the last one of the first row a pad."""
    ids = torch.randint(1, 11, shape, generator=generator)
    ids.view(-1, shape[-1])[0, -1] = 0
    return ids


# ---- embedding.forward
#
# Train and eval mode, padding, segments and positions given or not, fewer and more sentences than
# tokens, a single token, as many tokens as positions, tokens without a batch dimension. Dropout is
# a fixed pattern, and the layer normalization has a large epsilon, a scale and a shift, so that
# the order of the steps shows. Word vectors far from 0 show a variance computed as a difference
# of two large numbers. The gradients of all tables are compared.


def embedding_cases(generator):
    def given(T, *front, training=False, segments=True, positions=False, far=False):
        shape = (*front, T)
        return {
            "input_ids": draw_ids(generator, *shape),
            "position_ids": torch.randint(16, shape, generator=generator) if positions else None,
            "token_type_ids": torch.randint(3, shape, generator=generator) if segments else None,
            "training": training,
        } | ({"far": True} if far else {})

    return [
        Case("evaluating, three sentences of five tokens", given(5, 3, segments=False)),
        Case("evaluating, with segments", given(5, 3)),
        Case("evaluating, with segments and positions", given(4, 2, positions=True)),
        Case("training, dropout as a fixed pattern", given(5, 3, training=True)),
        Case(
            "evaluating, one sentence without a batch dimension",
            given(7, segments=False, positions=True),
        ),
        Case("evaluating, six sentences of two tokens", given(2, 6, segments=False)),
        Case("evaluating, as many tokens as positions", given(16, 2, segments=False)),
        Case(
            "evaluating, all tokens at position 0",
            {**given(5, 3, segments=False), "position_ids": torch.zeros(5, dtype=torch.long)},
        ),
        Case(
            "evaluating, positions given that do not begin at 0",
            {
                **given(5, 5, segments=False),
                "position_ids": torch.randint(1, 16, (5, 5), generator=generator),
            },
        ),
        Case(
            "training, after a call in eval mode", {**given(5, 2, training=True), "earlier": True}
        ),
        Case(
            "evaluating, ids as 32-bit integers",
            {**(short := given(6, 2)), "input_ids": short["input_ids"].int()},
        ),
        Case("training, one token", given(1, 1, training=True, segments=False)),
        Case("evaluating, as many sentences as tokens", given(4, 4)),
        Case("evaluating, word embeddings far from 0", given(4, 3, far=True)),
        Case(
            "evaluating, one row of positions for all sentences",
            {**given(4, 3), "position_ids": torch.randint(16, (4,), generator=generator)},
        ),
        Case(
            "evaluating, one row of segments for all sentences",
            {**given(4, 3), "token_type_ids": torch.randint(3, (4,), generator=generator)},
        ),
    ]


def run_embedding(Embedding, inputs):
    module = made(Embedding, inputs["training"])
    if "far" in inputs:
        module.word_embedding.weight.data += 3e5
    given = {name: inputs[name] for name in ("input_ids", "position_ids", "token_type_ids")}
    with probed():
        if "earlier" in inputs:
            module.eval()(**given)
            module.train()
        return through(module, module, given)


TRIALS["embedding.forward"] = Trial(
    embedding_cases,
    run_embedding,
    subject="embedding",
    hints=(
        (
            "Three vectors are added for each token first. What happens to the sum, and in which "
            "order?"
        ),
        (
            "The positions are torch.arange(T) unless they are given, and they need no batch "
            "dimension, because they are broadcast. Segment 0 has a row of its table, too."
        ),
        (
            "x = word_embedding(input_ids) + pos_embedding(position_ids) + "
            "tk_type_embedding(token_type_ids); then embed_layer_norm, then embed_dropout."
        ),
    ),
)


_WRONG_LAST = "return self.embed_dropout(self.embed_layer_norm(x))"
_ADD_POSITIONS = "x = x + self.pos_embedding(position_ids) "
_ADD_SEGMENT = "x = x + self.tk_type_embedding(token_type_ids) "
_NO_SEGMENTS = "token_type_ids = torch.zeros_like(input_ids) "

MISTAKES["embedding.forward"] = [
    mistake(
        _ADD_POSITIONS,
        "pass  ",
        "The position embeddings are not added, so the order of the tokens has no effect.",
    ),
    mistake(
        _NO_SEGMENTS,
        "pass  ",
        _ADD_SEGMENT,
        "x = x if token_type_ids is None else x + self.tk_type_embedding(token_type_ids) ",
        "No segment embedding is added if `token_type_ids` is missing. Segment 0 has a learned "
        "vector too, which is not zero.",
    ),
    mistake("if position_ids is None:", "if True:", "`position_ids` is not used."),
    mistake(
        "torch.arange(input_ids.shape[-1], device=input_ids.device)",
        "torch.arange(1, input_ids.shape[-1] + 1) % self.pos_embedding.num_embeddings",
        "Positions start at 1. The first token has position 0 (off by one).",
    ),
    mistake(_WRONG_LAST, "return self.embed_layer_norm(x)", "There is no dropout."),
    mistake(
        _WRONG_LAST,
        "return self.embed_layer_norm(self.embed_dropout(x))",
        "Dropout is applied before the layer normalization. It comes after.",
    ),
    mistake(
        _WRONG_LAST,
        "return nn.functional.dropout(self.embed_layer_norm(x), self.embed_dropout.p)",
        "Dropout is active in eval mode too.",
    ),
    mistake(_WRONG_LAST, "return self.embed_dropout(x)", "The layer normalization is missing."),
]

VARIANTS["embedding.forward"] = [
    """
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    if position_ids is None:
        position_ids = torch.arange(input_ids.size(-1)).expand_as(input_ids)
    if token_type_ids is None:
        token_type_ids = torch.zeros_like(input_ids)
    parts = [
        self.tk_type_embedding(token_type_ids),
        self.pos_embedding(position_ids),
        self.word_embedding(input_ids),
    ]
    return self.embed_dropout(
        self.embed_layer_norm(torch.stack(torch.broadcast_tensors(*parts)).sum(0))
    )
""",
    """
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    x = self.word_embedding(input_ids)
    if position_ids is None:
        x = self.pos_embedding.weight[: input_ids.shape[-1]] + x
    else:
        x = self.pos_embedding.weight[position_ids] + x
    segments = torch.zeros((), dtype=torch.long) if token_type_ids is None else token_type_ids
    x = self.tk_type_embedding(segments) + x
    norm = self.embed_layer_norm
    centred = x - x.mean(-1, keepdim=True)
    y = (
        norm.weight * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps)
        + norm.bias
    )
    return nn.functional.dropout(y, self.embed_dropout.p, self.training)
""",
    """
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    x = nn.functional.embedding(
        input_ids, self.word_embedding.weight, padding_idx=self.word_embedding.padding_idx
    )
    rows = range(input_ids.shape[-1])
    if position_ids is None:
        x = x + torch.stack([self.pos_embedding.weight[t] for t in rows])
    else:
        x = x + nn.functional.embedding(position_ids, self.pos_embedding.weight)
    if token_type_ids is None:
        token_type_ids = input_ids * 0
    x = x + nn.functional.embedding(token_type_ids, self.tk_type_embedding.weight)
    norm = self.embed_layer_norm
    return self.embed_dropout(
        nn.functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    )
""",
]
