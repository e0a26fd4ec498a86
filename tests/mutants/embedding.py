"""Mutants of `minbert.exercise_cases.embedding`: their checks must reject them all."""

from minbert.course.trials import mistake
from minbert.exercise_cases.embedding import _WRONG_LAST, _WRONG_ROWS

MUTANTS = {}


MUTANTS["embedding.positions"] = [
    mistake(
        "weight[:T]",
        "weight[:T].flip(0)",
        "Positions count down: the first token gets the last place.",
    ),
    mistake(
        "weight[:T]",
        "weight[-T:]",
        "The last T rows of the table are used. A sentence starts at row 0.",
    ),
    mistake("weight[:T]", "weight[:1].expand(T, -1)", "Every token stands at position 0."),
    mistake(
        "weight[:T]",
        "weight[T - 1].expand(T, -1)",
        "Every token gets the position of the last one.",
    ),
    mistake(
        "return self.pos_embedding.weight",
        "return self.word_embedding.weight.repeat(2, 1)",
        "The rows come from the table of words.",
    ),
    mistake(
        "if position_ids is not None:",
        "if position_ids is not None and position_ids.any():",
        "Positions that are all 0 count as none. None is what means that nobody gave any.",
    ),
    mistake(
        "return self.pos_embedding(position_ids)",
        "return self.word_embedding(position_ids % 11)",
        "Given positions are looked up in the table of words.",
    ),
    mistake(
        "return self.pos_embedding(position_ids)",
        "return self.pos_embedding(position_ids).detach()",
        "Rows that are looked up for given positions are detached, so they never learn.",
    ),
    mistake(
        "return self.pos_embedding(position_ids)",
        "return self.pos_embedding(position_ids - position_ids.min())",
        "Given positions are moved so that the smallest is 0. They are used as they are.",
    ),
    mistake(
        "return self.pos_embedding(position_ids)",
        "return self.pos_embedding(position_ids if position_ids.ndim < 2 else "
        "position_ids[:1].expand_as(position_ids))",
        "The positions of the first sentence are used for all.",
    ),
    mistake(
        _WRONG_ROWS,
        "p = self.pos_embedding.weight[:T]\n"
        "    return p[:, None] if input_ids.shape[:-1] == (T,) else p",
        "With as many sentences as tokens, positions count sentences.",
    ),
    mistake(
        _WRONG_ROWS,
        "if input_ids.ndim < 2:\n        return self.pos_embedding.weight[:T]\n"
        "    return self.pos_embedding(torch.arange(len(input_ids)) % longest)[:, "
        "None].expand(*input_ids.shape, -1)",
        "Positions count sentences, where they should count the tokens of each.",
    ),
    mistake(
        _WRONG_ROWS,
        "return self.pos_embedding(((input_ids != 0).long().cumsum(-1) - 1).clamp(min=0))",
        "Positions count real tokens only. BERT counts columns: a pad has a place like anything "
        "else.",
    ),
]


MUTANTS["embedding.forward"] = [
    mistake(
        "(input_ids, token_type_ids)", "(input_ids, None)", "Segments that are given are not used."
    ),
    mistake(
        "x = self.word_embedding(input_ids) ",
        "x = self.embed_dropout(self.word_embedding(input_ids)) ",
        _WRONG_LAST,
        "return self.embed_layer_norm(x)",
        "Dropout falls on the word vectors alone.",
    ),
    mistake(
        "x = self.word_embedding(input_ids) ",
        "x = self.embed_layer_norm(self.word_embedding(input_ids)) ",
        _WRONG_LAST,
        "return self.embed_dropout(x)",
        "Only the word vectors are normalised. The norm comes after the sum.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(x / 3)",
        "The three vectors are averaged. They are added.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "nn.functional.layer_norm(x, x.shape[-1:], self.embed_layer_norm.weight, "
        "self.embed_layer_norm.bias)",
        "The norm has torch's ε of 1e-5. The module's norm has its own.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "nn.functional.layer_norm(x, x.shape[-1:], eps=self.embed_layer_norm.eps)",
        "The norm has no scale and no shift, so both never learn.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(self.embed_layer_norm(x))",
        "The sum is normalised twice.",
    ),
    mistake(
        _WRONG_LAST,
        "return self.embed_dropout(self.embed_layer_norm(x)) * (input_ids != 0)[..., None]",
        "Pads are set to zero. They are embedded like anything else; the mask keeps them out "
        "later.",
    ),
    mistake(
        "self.word_embedding(input_ids)",
        "self.word_embedding.weight[input_ids]",
        "The row of [PAD] gets a gradient. The module's own look-up keeps it away.",
    ),
    mistake(
        "self._positions(input_ids, position_ids)",
        "(self._positions(input_ids, None) if position_ids is None else "
        "self.pos_embedding(position_ids).view(*input_ids.shape, -1))",
        "One row of positions for all sentences does not work: it is taken for one of the shape "
        "of the ids.",
    ),
    mistake(
        "self._segments(input_ids, token_type_ids)",
        "(self._segments(input_ids, None) if token_type_ids is None else "
        "self.tk_type_embedding(token_type_ids).view(*input_ids.shape, -1))",
        "One row of segments for all sentences does not work: it is taken for one of the shape "
        "of the ids.",
    ),
    mistake(
        "(input_ids, token_type_ids)",
        "(input_ids, torch.ones_like(input_ids) if token_type_ids is None else token_type_ids)",
        "Where no segments are given, all tokens are in segment 1. The default is 0.",
    ),
    mistake(
        "x = x + self._segments",
        "x = x if token_type_ids is None else x + self._segments",
        "Segments are added only where some are given. Segment 0 is a vector too, not zero.",
    ),
    mistake(
        "(input_ids, position_ids)",
        "(input_ids, token_type_ids if position_ids is None else position_ids)",
        "Where no positions are given, the segments are taken for them.",
    ),
    mistake(
        "(input_ids, position_ids) ",
        "(input_ids, "
        "torch.arange(input_ids.shape[-1]).expand_as(input_ids).masked_fill(input_ids == 0, "
        "0) if position_ids is None else position_ids) ",
        "Pads stand at position 0. BERT counts columns: a pad has a place like anything else.",
    ),
    mistake(
        "x = x + self._positions(input_ids, position_ids) ",
        "p = self._positions(input_ids, position_ids)\n"
        "    x = x + (p[:, None] if p.ndim == 2 and input_ids.shape == (len(p), len(p)) else p) ",
        "With as many sentences as tokens, positions count sentences.",
    ),
    mistake(
        _WRONG_LAST,
        "return nn.functional.dropout(self.embed_layer_norm(x), 0.1, self.training)",
        "Dropout has a fixed probability. It should be the module's own.",
    ),
    mistake(
        _WRONG_LAST,
        "y = self.embed_layer_norm(x)\n"
        "    return y * self.embed_dropout(torch.ones_like(y[..., :1]))",
        "Whole tokens are dropped. Each number is dropped by itself.",
    ),
    mistake(
        _WRONG_LAST,
        "y = (x - x.mean()) / (x.var(unbiased=False) + self.embed_layer_norm.eps).sqrt()\n"
        "    return self.embed_dropout(y * self.embed_layer_norm.weight + "
        "self.embed_layer_norm.bias)",
        "One mean and one variance are taken of the whole batch. Each token has its own.",
    ),
    mistake(
        _WRONG_LAST,
        "m, s = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)\n"
        "    y = (x - m) / (s - m * m + self.embed_layer_norm.eps).sqrt()\n"
        "    return self.embed_dropout(y * self.embed_layer_norm.weight + "
        "self.embed_layer_norm.bias)",
        "The variance is the mean of the squares less the square of the mean. Far from 0 both "
        "are large and their difference is rounding.",
    ),
    mistake(
        _WRONG_LAST,
        "y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + "
        "self.embed_layer_norm.eps).sqrt()\n"
        "    return self.embed_dropout(y * self.embed_layer_norm.weight + "
        "self.embed_layer_norm.bias)",
        "The variance is divided by D - 1. A norm divides by D.",
    ),
    mistake(
        _WRONG_LAST,
        "y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + "
        "self.embed_layer_norm.eps)\n"
        "    return self.embed_dropout(y * self.embed_layer_norm.weight + "
        "self.embed_layer_norm.bias)",
        "ε is added to the standard deviation. It belongs under the root, to the variance.",
    ),
    mistake(
        "x + self._positions",
        "x * self._positions",
        "The positions are multiplied with the words. They are added.",
    ),
    mistake(
        "(x))     # (B, T, D)",
        "(x + self._positions(input_ids, position_ids)))     # (B, T, D)",
        "The positions are added twice.",
    ),
    mistake(
        _WRONG_LAST,
        "return self.embed_dropout((x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) "
        "+ self.embed_layer_norm.eps)"
        " * self.embed_layer_norm.weight + self.embed_layer_norm.bias)",
        "The norm by hand adds ε to the standard deviation, or divides by D - 1. BERT's divides "
        "by √(variance + ε), the variance over D.",
    ),
    mistake(
        _WRONG_LAST,
        "if not self.training:\n        self.embed_dropout.p = 0.0\n    " + _WRONG_LAST,
        "In eval mode dropout is switched off for good: it stays off when training goes on.",
    ),
    mistake(
        "    x = self.word_embedding(",
        "    if input_ids.dtype != torch.int64:\n"
        '        raise ValueError("expected int64")\n'
        "    x = self.word_embedding(",
        "Ids of 32 bits are refused. They were promised a place.",
    ),
    mistake(
        "    x = x + self._segments(input_ids, token_type_ids)       # + (D,)\n",
        "",
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(x) + self._segments(input_ids, token_type_ids)",
        "The segments are added behind the norm. It normalises the sum of all three.",
    ),
    mistake(
        "    x = x + self._positions(input_ids, position_ids)        # + (T, D)\n",
        "",
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(x) + self._positions(input_ids, position_ids)",
        "The positions are added behind the norm. It normalises the sum of all three.",
    ),
    mistake(
        "self._positions(input_ids, position_ids)",
        "self._positions(input_ids, token_type_ids)",
        "self._segments(input_ids, token_type_ids)",
        "self._segments(input_ids, position_ids)",
        "Positions and segments have changed places.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(self.word_embedding(input_ids)) + "
        "self.embed_layer_norm(self._positions(input_ids, position_ids)) "
        "+ self.embed_layer_norm(self._segments(input_ids, token_type_ids))",
        "Each of the three is normalised by itself. The norm takes their sum.",
    ),
]
