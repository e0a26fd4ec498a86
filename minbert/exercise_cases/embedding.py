"""Exercise cases of chapter 03: position embeddings and the embedding layer."""

import torch

from minbert.course.trials import Case, Trial, fill, mistake, probed
from minbert.exercise_cases.attention import through

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def made(Embedding, training=False):
    """A small module in double precision: 16 positions and 11 words, so that an id can pass for
    a place; 3 segments."""
    return fill(
        Embedding(
            11,
            12,
            max_position_embeddings=16,
            type_vocab_size=3,
            layer_norm_eps=0.02,
            dropout=0.25,
            pad_token_id=0,
        )
    ).train(training)


def draw_ids(generator, *shape):
    """Random ids, the last one of the first row a pad."""
    ids = torch.randint(1, 11, shape, generator=generator)
    ids.view(-1, shape[-1])[0, -1] = 0
    return ids


# ---- embedding.positions
#
# Batches with fewer and with more sentences than tokens, and with as many; packed tokens, a
# single token, the full length of the table; given positions, one for each token or one row for
# all sentences.


def position_cases(generator):
    def places(*shape):
        return torch.randint(
            1, 16, shape, generator=generator
        )  # without 0, so that it shows who moves them to begin there

    return [
        Case(
            "three sentences of five tokens",
            {"input_ids": draw_ids(generator, 3, 5), "position_ids": None},
        ),
        Case(
            "six sentences of two tokens",
            {"input_ids": draw_ids(generator, 6, 2), "position_ids": None},
        ),
        Case(
            "a flat list of seven tokens",
            {"input_ids": draw_ids(generator, 7), "position_ids": None},
        ),
        Case(
            "as many tokens as the table has rows",
            {"input_ids": draw_ids(generator, 2, 16), "position_ids": None},
        ),
        Case("one token", {"input_ids": draw_ids(generator, 1, 1), "position_ids": None}),
        Case(
            "as many sentences as tokens",
            {"input_ids": draw_ids(generator, 5, 5), "position_ids": None},
        ),
        Case(
            "as many positions given as sentences and tokens",
            {"input_ids": draw_ids(generator, 5, 5), "position_ids": places(5)},
        ),
        Case(
            "positions given, one for each token",
            {"input_ids": draw_ids(generator, 3, 5), "position_ids": places(3, 5)},
        ),
        Case(
            "positions given, one row for all",
            {"input_ids": draw_ids(generator, 3, 5), "position_ids": places(5)},
        ),
        Case(
            "all at position 0, which is a position like another",
            {
                "input_ids": draw_ids(generator, 3, 5),
                "position_ids": torch.zeros(5, dtype=torch.long),
            },
        ),
        Case(
            "positions given for a flat list",
            {"input_ids": draw_ids(generator, 7), "position_ids": places(7)},
        ),
    ]


def run_positions(Embedding, inputs):
    module = made(Embedding)

    def spread(input_ids, position_ids):
        """One vector a token, whether the rows were repeated or not."""
        return module._positions(input_ids, position_ids).expand(*input_ids.shape, 12)

    return through(module, spread, inputs)


TRIALS["embedding.positions"] = Trial(
    position_cases,
    run_positions,
    subject="embedding",
    hints=(
        "What does position t of a sentence depend on? Not on its words.",
        (
            "The table is `self.pos_embedding.weight`, one row a place. `T` is the last size of "
            "the ids; positions that are given are ids of that table."
        ),
        (
            "If position_ids is None return the first T rows of the weight, else call "
            "self.pos_embedding on position_ids."
        ),
    ),
)


_WRONG_ROWS = "return self.pos_embedding.weight[:T]"

MISTAKES["embedding.positions"] = [
    mistake(
        "input_ids.shape[-1]",
        "input_ids.shape[0]",
        "The batch size is used as the number of tokens.",
    ),
    mistake(
        _WRONG_ROWS,
        "return self.pos_embedding(torch.arange(1, T + 1, device=input_ids.device) % longest)",
        "Positions start at 1. The first token has position 0 (off by one).",
    ),
    mistake(
        _WRONG_ROWS, "return self.pos_embedding(input_ids)", "The token ids are used as positions."
    ),
    mistake("if position_ids is not None:", "if False:", "`position_ids` is not used."),
    mistake(
        "weight[:T]",
        "weight[:T].detach()",
        "The position embeddings are detached, so they never learn.",
    ),
    mistake(
        _WRONG_ROWS,
        "return self.pos_embedding(torch.arange(T).expand_as(input_ids).masked_fill(input_ids "
        "== 0, 0))",
        "Padding gets position 0. BERT numbers all positions in order, padding included.",
    ),
    mistake(
        _WRONG_ROWS,
        "D = self.pos_embedding.embedding_dim\n"
        "    angle = torch.arange(T)[:, None] / 10000 ** (torch.arange(D) // 2 * 2 / D)\n"
        "    return torch.where(torch.arange(D) % 2 == 0, angle.sin(), "
        "angle.cos()).to(self.pos_embedding.weight)",
        "Sinusoidal positions are used, as in the original Transformer. BERT learns its "
        "position embeddings.",
    ),
    mistake(
        _WRONG_ROWS,
        "return self.pos_embedding.weight",
        "The whole table is returned. A sentence gets as many rows as it has tokens.",
    ),
]

VARIANTS["embedding.positions"] = [
    """
def _positions(self, input_ids, position_ids):
    if position_ids is None:
        position_ids = torch.arange(input_ids.size(-1), device=input_ids.device)
    return self.pos_embedding(position_ids)
""",
    """
def _positions(self, input_ids, position_ids):
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[-1]).expand_as(input_ids)
    return self.pos_embedding.weight[position_ids]
""",
    """
def _positions(self, input_ids, position_ids):
    rows = range(input_ids.shape[-1])
    if position_ids is None:
        return torch.stack([self.pos_embedding.weight[t] for t in rows])
    return torch.nn.functional.embedding(position_ids, self.pos_embedding.weight)
""",
]


# ---- embedding.forward
#
# Train and eval mode, padding, segments and positions given or not, padded and packed. Dropout is
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
        Case("evaluating, a flat list with positions", given(7, segments=False, positions=True)),
        Case(
            "training, after a call in eval mode", {**given(5, 2, training=True), "earlier": True}
        ),
        Case(
            "evaluating, ids of 32 bits",
            {**(short := given(6, 2)), "input_ids": short["input_ids"].int()},
        ),
        Case("training, one token", given(1, 1, training=True, segments=False)),
        Case("evaluating, as many sentences as tokens", given(4, 4)),
        Case("evaluating, words far from 0", given(4, 3, far=True)),
        Case(
            "evaluating, one row of positions for all",
            {**given(4, 3), "position_ids": torch.randint(16, (4,), generator=generator)},
        ),
        Case(
            "evaluating, one row of segments for all",
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
            "Three vectors for each token are added first. What happens to the sum, and in which "
            "order?"
        ),
        (
            "`self._positions(input_ids, position_ids)` and `self._segments(input_ids, "
            "token_type_ids)` broadcast against the words. The norm comes before "
            "dropout."
        ),
        (
            "x = word_embedding(input_ids) + _positions(...) + _segments(...); then "
            "embed_layer_norm, then embed_dropout."
        ),
    ),
)


_WRONG_LAST = "return self.embed_dropout(self.embed_layer_norm(x))     # (B, T, D)"

MISTAKES["embedding.forward"] = [
    mistake(
        "x = x + self._positions(input_ids, position_ids) ",
        "pass  ",
        "The position embeddings are not added, so the order of the tokens has no effect.",
    ),
    mistake(
        "x = x + self._segments(input_ids, token_type_ids) ",
        "pass  ",
        "The segment embeddings are not added. Segment 0 has a learned vector too, which is not "
        "zero.",
    ),
    mistake("(input_ids, position_ids)", "(input_ids, None)", "`position_ids` is not used."),
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
    mistake(
        "x = self.word_embedding(input_ids) ",
        "x = self.word_embedding(input_ids) * self.word_embedding.embedding_dim ** 0.5 ",
        "The word embeddings are multiplied by √D. The original Transformer does that, BERT "
        "does not.",
    ),
]

VARIANTS["embedding.forward"] = [
    """
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    parts = [
        self._segments(input_ids, token_type_ids),
        self._positions(input_ids, position_ids),
        self.word_embedding(input_ids),
    ]
    return self.embed_dropout(
        self.embed_layer_norm(torch.stack(torch.broadcast_tensors(*parts)).sum(0))
    )
""",
    """
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    x = self._positions(input_ids, position_ids) + self.word_embedding(input_ids)
    x = self._segments(input_ids, token_type_ids) + x
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
    x = x + self._positions(input_ids, position_ids) + self._segments(input_ids, token_type_ids)
    norm = self.embed_layer_norm
    return self.embed_dropout(
        nn.functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    )
""",
]
