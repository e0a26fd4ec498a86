"""How the exercises of chapter 03 are checked: places, segments, and the order of sum, norm and dropout."""


import torch

from minbert.course.trials import Case, Trial, fill, mistake, probed
from minbert.trials.attention import through


# Three vectors, a sum, a norm, dropout. What can go wrong in five lines?
#
# The order, mostly, and what is left out. A norm hides much: it takes away the size of the sum and its mean. So the norm here has a large ε, and a
# scale and a shift that differ from number to number. The gradients of all tables are compared: which row was looked up shows there most clearly.

TRIALS, MISTAKES, VARIANTS = {}, {}, {}


def made(Embedding, training=False):
    """A small module in double precision: 16 positions and 11 words, so that an id can pass for a place; 3 segments."""
    return fill(Embedding(11, 12, max_position_embeddings=16, type_vocab_size=3, layer_norm_eps=0.02, dropout=0.25, pad_token_id=0)).train(training)


def draw_ids(generator, *shape):
    """Random ids, the last one of the first row a pad."""
    ids = torch.randint(1, 11, shape, generator=generator)
    ids.view(-1, shape[-1])[0, -1] = 0
    return ids


# ---- embedding.positions
#
# Batches with fewer and with more sentences than tokens, since the wrong axis may have the right size. A flat list, a single token, the full length
# of the table; then positions that are given, one for each token or one row for all. With as many sentences as tokens nothing but the numbers tells
# the two axes apart.

def position_cases(generator):
    def places(*shape):
        return torch.randint(1, 16, shape, generator=generator)   # without 0, so that it shows who moves them to begin there
    return [Case("three sentences of five tokens", {"input_ids": draw_ids(generator, 3, 5), "position_ids": None}),
            Case("six sentences of two tokens", {"input_ids": draw_ids(generator, 6, 2), "position_ids": None}),
            Case("a flat list of seven tokens", {"input_ids": draw_ids(generator, 7), "position_ids": None}),
            Case("as many tokens as the table has rows", {"input_ids": draw_ids(generator, 2, 16), "position_ids": None}),
            Case("one token", {"input_ids": draw_ids(generator, 1, 1), "position_ids": None}),
            Case("as many sentences as tokens", {"input_ids": draw_ids(generator, 5, 5), "position_ids": None}),
            Case("as many positions given as sentences and tokens", {"input_ids": draw_ids(generator, 5, 5), "position_ids": places(5)}),
            Case("positions given, one for each token", {"input_ids": draw_ids(generator, 3, 5), "position_ids": places(3, 5)}),
            Case("positions given, one row for all", {"input_ids": draw_ids(generator, 3, 5), "position_ids": places(5)}),
            Case("all at position 0, which is a position like another", {"input_ids": draw_ids(generator, 3, 5), "position_ids": torch.zeros(5, dtype=torch.long)}),
            Case("positions given for a flat list", {"input_ids": draw_ids(generator, 7), "position_ids": places(7)})]


def run_positions(Embedding, inputs):
    module = made(Embedding)

    def spread(input_ids, position_ids):
        """One vector a token, whether the rows were repeated or not."""
        return module._positions(input_ids, position_ids).expand(*input_ids.shape, 12)

    return through(module, spread, inputs)


TRIALS["embedding.positions"] = Trial(position_cases, run_positions, subject="embedding", hints=(
    "What does position t of a sentence depend on? Not on its words.",
    "The table is `self.pos_embedding.weight`, one row a place. `T` is the last size of the ids; positions that are given are ids of that table.",
    "If position_ids is None return the first T rows of the weight, else call self.pos_embedding on position_ids."))


_WRONG_ROWS = "return self.pos_embedding.weight[:T]"

MISTAKES["embedding.positions"] = [
    mistake("input_ids.shape[-1]", "input_ids.shape[0]", "The number of sentences is taken for the number of tokens."),
    mistake(_WRONG_ROWS, "return self.pos_embedding(torch.arange(1, T + 1, device=input_ids.device) % longest)",
            "Positions start at 1. The first token stands at position 0."),
    mistake("weight[:T]", "weight[:T].flip(0)", "Positions count down: the first token gets the last place."),
    mistake("weight[:T]", "weight[-T:]", "The last T rows of the table are used. A sentence starts at row 0."),
    mistake("weight[:T]", "weight[:1].expand(T, -1)", "Every token stands at position 0."),
    mistake("weight[:T]", "weight[T - 1].expand(T, -1)", "Every token gets the position of the last one."),
    mistake(_WRONG_ROWS, "return self.pos_embedding(input_ids)", "The ids of the words are taken for positions."),
    mistake("return self.pos_embedding.weight", "return self.word_embedding.weight.repeat(2, 1)", "The rows come from the table of words."),
    mistake("if position_ids is not None:", "if False:", "Positions that are given are not used."),
    mistake("if position_ids is not None:", "if position_ids is not None and position_ids.any():",
            "Positions that are all 0 count as none. None is what means that nobody gave any."),
    mistake("return self.pos_embedding(position_ids)", "return self.word_embedding(position_ids % 11)",
            "Given positions are looked up in the table of words."),
    mistake("weight[:T]", "weight[:T].detach()", "The rows are detached, so positions never learn."),
    mistake("return self.pos_embedding(position_ids)", "return self.pos_embedding(position_ids).detach()",
            "Rows that are looked up for given positions are detached, so they never learn."),
    mistake("return self.pos_embedding(position_ids)", "return self.pos_embedding(position_ids - position_ids.min())",
            "Given positions are moved so that the smallest is 0. They are used as they are."),
    mistake("return self.pos_embedding(position_ids)", "return self.pos_embedding(position_ids if position_ids.ndim < 2 else position_ids[:1].expand_as(position_ids))",
            "The positions of the first sentence are used for all."),
    mistake(_WRONG_ROWS, "p = self.pos_embedding.weight[:T]\n    return p[:, None] if input_ids.shape[:-1] == (T,) else p",
            "With as many sentences as tokens, positions count sentences."),
    mistake(_WRONG_ROWS, "return self.pos_embedding(torch.arange(T).expand_as(input_ids).masked_fill(input_ids == 0, 0))",
            "Pads stand at position 0. BERT counts columns: a pad has a place like anything else."),
    mistake(_WRONG_ROWS, "if input_ids.ndim < 2:\n        return self.pos_embedding.weight[:T]\n"
            "    return self.pos_embedding(torch.arange(len(input_ids)) % longest)[:, None].expand(*input_ids.shape, -1)",
            "Positions count sentences, where they should count the tokens of each."),
    mistake(_WRONG_ROWS, "D = self.pos_embedding.embedding_dim\n    angle = torch.arange(T)[:, None] / 10000 ** (torch.arange(D) // 2 * 2 / D)\n"
            "    return torch.where(torch.arange(D) % 2 == 0, angle.sin(), angle.cos()).to(self.pos_embedding.weight)",
            "Positions are waves of sines and cosines, as in Vaswani's model. BERT learns its own table."),
    mistake(_WRONG_ROWS, "return self.pos_embedding(((input_ids != 0).long().cumsum(-1) - 1).clamp(min=0))",
            "Positions count real tokens only. BERT counts columns: a pad has a place like anything else."),
    mistake(_WRONG_ROWS, "return self.pos_embedding.weight", "The whole table comes back. A sentence gets as many rows as it has tokens."),
]

VARIANTS["embedding.positions"] = [
    '''
def _positions(self, input_ids, position_ids):
    if position_ids is None:
        position_ids = torch.arange(input_ids.size(-1), device=input_ids.device)
    return self.pos_embedding(position_ids)
''',
    '''
def _positions(self, input_ids, position_ids):
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[-1]).expand_as(input_ids)
    return self.pos_embedding.weight[position_ids]
''',
    '''
def _positions(self, input_ids, position_ids):
    rows = range(input_ids.shape[-1])
    if position_ids is None:
        return torch.stack([self.pos_embedding.weight[t] for t in rows])
    return torch.nn.functional.embedding(position_ids, self.pos_embedding.weight)
''',
]


# ---- embedding.forward
#
# Training and evaluating, with pads among the words, with segments and positions left out or given (also as one row for all sentences), padded and
# flat. Dropout is a fixed pattern. Word vectors far from 0 show a variance that is the difference of two large numbers. A row of `[PAD]` that gets a
# gradient, a norm with an ε of its own, dropout before the norm: each gives numbers of its own.

def embedding_cases(generator):
    def given(T, *front, training=False, segments=True, positions=False, far=False):
        shape = (*front, T)
        return {"input_ids": draw_ids(generator, *shape), "position_ids": torch.randint(16, shape, generator=generator) if positions else None,
                "token_type_ids": torch.randint(3, shape, generator=generator) if segments else None, "training": training} | ({"far": True} if far else {})
    return [Case("evaluating, three sentences of five tokens", given(5, 3, segments=False)),
            Case("evaluating, with segments", given(5, 3)),
            Case("evaluating, with segments and positions", given(4, 2, positions=True)),
            Case("training, dropout as a fixed pattern", given(5, 3, training=True)),
            Case("evaluating, a flat list with positions", given(7, segments=False, positions=True)),
            Case("training, after a call in eval mode", {**given(5, 2, training=True), "earlier": True}),
            Case("evaluating, ids of 32 bits", {**(short := given(6, 2)), "input_ids": short["input_ids"].int()}),
            Case("training, one token", given(1, 1, training=True, segments=False)),
            Case("evaluating, as many sentences as tokens", given(4, 4)),
            Case("evaluating, words far from 0", given(4, 3, far=True)),
            Case("evaluating, one row of positions for all", {**given(4, 3), "position_ids": torch.randint(16, (4,), generator=generator)}),
            Case("evaluating, one row of segments for all", {**given(4, 3), "token_type_ids": torch.randint(3, (4,), generator=generator)})]


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


TRIALS["embedding.forward"] = Trial(embedding_cases, run_embedding, subject="embedding", hints=(
    "Three vectors for each token are added first. What happens to the sum, and in which order?",
    "`self._positions(input_ids, position_ids)` and `self._segments(input_ids, token_type_ids)` broadcast against the words. The norm comes before "
    "dropout.",
    "x = word_embedding(input_ids) + _positions(...) + _segments(...); then embed_layer_norm, then embed_dropout."))


_WRONG_LAST = "return self.embed_dropout(self.embed_layer_norm(x))     # (B, T, D)"

MISTAKES["embedding.forward"] = [
    mistake("x = x + self._positions(input_ids, position_ids) ", "pass  ",
            "The positions are not added, so a shuffled sentence looks like the original."),
    mistake("x = x + self._segments(input_ids, token_type_ids) ", "pass  ", "The segments are not added. Segment 0 is a vector too, not zero."),
    mistake("(input_ids, position_ids)", "(input_ids, None)", "Positions that are given are not used."),
    mistake("(input_ids, token_type_ids)", "(input_ids, None)", "Segments that are given are not used."),
    mistake(_WRONG_LAST, "return self.embed_layer_norm(x)", "There is no dropout."),
    mistake(_WRONG_LAST, "return self.embed_layer_norm(self.embed_dropout(x))", "Dropout comes before the norm. The norm then makes up for it."),
    mistake(_WRONG_LAST, "return nn.functional.dropout(self.embed_layer_norm(x), self.embed_dropout.p)", "Dropout is on while evaluating too."),
    mistake(_WRONG_LAST, "return self.embed_dropout(x)", "The sum is not normalised."),
    mistake("x = self.word_embedding(input_ids) ", "x = self.embed_dropout(self.word_embedding(input_ids)) ", _WRONG_LAST,
            "return self.embed_layer_norm(x)",
            "Dropout falls on the word vectors alone."),
    mistake("x = self.word_embedding(input_ids) ", "x = self.embed_layer_norm(self.word_embedding(input_ids)) ", _WRONG_LAST,
            "return self.embed_dropout(x)",
            "Only the word vectors are normalised. The norm comes after the sum."),
    mistake("x = self.word_embedding(input_ids) ", "x = self.word_embedding(input_ids) * self.word_embedding.embedding_dim ** 0.5 ",
            "The word vectors are multiplied by √D. Vaswani's model does that, BERT does not."),
    mistake("self.embed_layer_norm(x)", "self.embed_layer_norm(x / 3)", "The three vectors are averaged. They are added."),
    mistake("self.embed_layer_norm(x)", "nn.functional.layer_norm(x, x.shape[-1:], self.embed_layer_norm.weight, self.embed_layer_norm.bias)",
            "The norm has torch's ε of 1e-5. The module's norm has its own."),
    mistake("self.embed_layer_norm(x)", "nn.functional.layer_norm(x, x.shape[-1:], eps=self.embed_layer_norm.eps)",
            "The norm has no scale and no shift, so both never learn."),
    mistake("self.embed_layer_norm(x)", "self.embed_layer_norm(self.embed_layer_norm(x))", "The sum is normalised twice."),
    mistake(_WRONG_LAST, "return self.embed_dropout(self.embed_layer_norm(x)) * (input_ids != 0)[..., None]",
            "Pads are set to zero. They are embedded like anything else; the mask keeps them out later."),
    mistake("self.word_embedding(input_ids)", "self.word_embedding.weight[input_ids]",
            "The row of [PAD] gets a gradient. The module's own look-up keeps it away."),
    mistake("self._positions(input_ids, position_ids)",
            "(self._positions(input_ids, None) if position_ids is None else self.pos_embedding(position_ids).view(*input_ids.shape, -1))",
            "One row of positions for all sentences does not work: it is taken for one of the shape of the ids."),
    mistake("self._segments(input_ids, token_type_ids)", "(self._segments(input_ids, None) if token_type_ids is None else "
            "self.tk_type_embedding(token_type_ids).view(*input_ids.shape, -1))",
            "One row of segments for all sentences does not work: it is taken for one of the shape of the ids."),
    mistake("(input_ids, token_type_ids)", "(input_ids, torch.ones_like(input_ids) if token_type_ids is None else token_type_ids)",
            "Where no segments are given, all tokens are in segment 1. The default is 0."),
    mistake("x = x + self._segments", "x = x if token_type_ids is None else x + self._segments",
            "Segments are added only where some are given. Segment 0 is a vector too, not zero."),
    mistake("(input_ids, position_ids)", "(input_ids, token_type_ids if position_ids is None else position_ids)",
            "Where no positions are given, the segments are taken for them."),
    mistake("(input_ids, position_ids) ", "(input_ids, torch.arange(input_ids.shape[-1]).expand_as(input_ids).masked_fill(input_ids == 0, 0) if position_ids is None else position_ids) ",
            "Pads stand at position 0. BERT counts columns: a pad has a place like anything else."),
    mistake("x = x + self._positions(input_ids, position_ids) ", "p = self._positions(input_ids, position_ids)\n"
            "    x = x + (p[:, None] if p.ndim == 2 and input_ids.shape == (len(p), len(p)) else p) ",
            "With as many sentences as tokens, positions count sentences."),
    mistake(_WRONG_LAST, "return nn.functional.dropout(self.embed_layer_norm(x), 0.1, self.training)",
            "Dropout has a fixed probability. It should be the module's own."),
    mistake(_WRONG_LAST, "y = self.embed_layer_norm(x)\n    return y * self.embed_dropout(torch.ones_like(y[..., :1]))",
            "Whole tokens are dropped. Each number is dropped by itself."),
    mistake(_WRONG_LAST, "y = (x - x.mean()) / (x.var(unbiased=False) + self.embed_layer_norm.eps).sqrt()\n"
            "    return self.embed_dropout(y * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
            "One mean and one variance are taken of the whole batch. Each token has its own."),
    mistake(_WRONG_LAST, "m, s = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)\n    y = (x - m) / (s - m * m + self.embed_layer_norm.eps).sqrt()\n"
            "    return self.embed_dropout(y * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
            "The variance is the mean of the squares less the square of the mean. Far from 0 both are large and their difference is rounding."),
    mistake(_WRONG_LAST, "y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.embed_layer_norm.eps).sqrt()\n"
            "    return self.embed_dropout(y * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
            "The variance is divided by D - 1. A norm divides by D."),
    mistake(_WRONG_LAST, "y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + self.embed_layer_norm.eps)\n"
            "    return self.embed_dropout(y * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
            "ε is added to the standard deviation. It belongs under the root, to the variance."),
    mistake("x + self._positions", "x * self._positions", "The positions are multiplied with the words. They are added."),
    mistake("(x))     # (B, T, D)", "(x + self._positions(input_ids, position_ids)))     # (B, T, D)", "The positions are added twice."),
    mistake(_WRONG_LAST, "return self.embed_dropout((x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.embed_layer_norm.eps)"
            " * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
            "The norm by hand adds ε to the standard deviation, or divides by D - 1. BERT's divides by √(variance + ε), the variance over D."),
    mistake(_WRONG_LAST, "if not self.training:\n        self.embed_dropout.p = 0.0\n    " + _WRONG_LAST, "In eval mode dropout is switched off for good: it stays off when training goes on."),
    mistake("    x = self.word_embedding(", "    if input_ids.dtype != torch.int64:\n        raise ValueError(\"expected int64\")\n    x = self.word_embedding(",
            "Ids of 32 bits are refused. They were promised a place."),
    mistake("    x = x + self._segments(input_ids, token_type_ids)       # + (D,)\n", "", "self.embed_layer_norm(x)", "self.embed_layer_norm(x) + self._segments(input_ids, token_type_ids)",
            "The segments are added behind the norm. It normalises the sum of all three."),
    mistake("    x = x + self._positions(input_ids, position_ids)        # + (T, D)\n", "", "self.embed_layer_norm(x)", "self.embed_layer_norm(x) + self._positions(input_ids, position_ids)",
            "The positions are added behind the norm. It normalises the sum of all three."),
    mistake("self._positions(input_ids, position_ids)", "self._positions(input_ids, token_type_ids)", "self._segments(input_ids, token_type_ids)", "self._segments(input_ids, position_ids)",
            "Positions and segments have changed places."),
    mistake("self.embed_layer_norm(x)", "self.embed_layer_norm(self.word_embedding(input_ids)) + self.embed_layer_norm(self._positions(input_ids, position_ids)) "
            "+ self.embed_layer_norm(self._segments(input_ids, token_type_ids))", "Each of the three is normalised by itself. The norm takes their sum."),
]

VARIANTS["embedding.forward"] = [
    '''
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    parts = [self._segments(input_ids, token_type_ids), self._positions(input_ids, position_ids), self.word_embedding(input_ids)]
    return self.embed_dropout(self.embed_layer_norm(torch.stack(torch.broadcast_tensors(*parts)).sum(0)))
''',
    '''
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    x = self._positions(input_ids, position_ids) + self.word_embedding(input_ids)
    x = self._segments(input_ids, token_type_ids) + x
    norm = self.embed_layer_norm
    centred = x - x.mean(-1, keepdim=True)
    y = norm.weight * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps) + norm.bias
    return nn.functional.dropout(y, self.embed_dropout.p, self.training)
''',
    '''
def forward(self, input_ids, position_ids=None, token_type_ids=None):
    x = nn.functional.embedding(input_ids, self.word_embedding.weight, padding_idx=self.word_embedding.padding_idx)
    x = x + self._positions(input_ids, position_ids) + self._segments(input_ids, token_type_ids)
    norm = self.embed_layer_norm
    return self.embed_dropout(nn.functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps))
''',
]


# ---- How much they catch
