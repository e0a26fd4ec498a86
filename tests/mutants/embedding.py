"""Mutants of `minbert.exercise_cases.embedding`: their checks must reject them all."""

from minbert.course.check_runner import mistake
from minbert.exercise_cases.embedding import _ADD_POSITIONS, _ADD_SEGMENT, _WRONG_LAST

MUTANTS = {}

_RANGE = "torch.arange(input_ids.shape[-1], device=input_ids.device)"
_LOOKED_UP = "self.pos_embedding(position_ids)"


MUTANTS["embedding.forward"] = [
    mistake(
        _LOOKED_UP,
        _LOOKED_UP + ".flip(0)",
        "Positions are reversed where they have no batch dimension.",
    ),
    mistake(_RANGE, _RANGE + ".flip(0)", "Positions count down: the first token gets T - 1."),
    mistake(
        _RANGE,
        _RANGE + " + (self.pos_embedding.num_embeddings - input_ids.shape[-1])",
        "The last T rows of the table are used. A sentence starts at row 0.",
    ),
    mistake(
        _RANGE, "torch.zeros(input_ids.shape[-1], dtype=torch.long)", "Every token has position 0."
    ),
    mistake(
        _RANGE,
        "torch.arange(input_ids.shape[0])",
        "The batch size is used as the number of tokens.",
    ),
    mistake(
        _RANGE,
        "torch.full(input_ids.shape[-1:], input_ids.shape[-1] - 1)",
        "Every token gets the position of the last one.",
    ),
    mistake(
        _LOOKED_UP,
        "self.word_embedding(position_ids % 11)",
        "The rows come from the word table.",
    ),
    mistake(_LOOKED_UP, "self.pos_embedding(input_ids)", "The token ids are used as positions."),
    mistake(
        "if position_ids is None:",
        "if position_ids is None or not position_ids.any():",
        "Positions that are all 0 are treated as missing.",
    ),
    mistake(
        _LOOKED_UP,
        _LOOKED_UP + ".detach()",
        "The position embeddings are detached, so they never learn.",
    ),
    mistake(
        _LOOKED_UP,
        "self.pos_embedding(position_ids - position_ids.min())",
        "Given positions are moved so that the smallest is 0. They are used as they are.",
    ),
    mistake(
        _LOOKED_UP,
        "self.pos_embedding(position_ids if position_ids.ndim < 2 else "
        "position_ids[:1].expand_as(position_ids))",
        "The positions of the first sentence are used for all.",
    ),
    mistake(
        _LOOKED_UP,
        "(self.pos_embedding(position_ids)[:, None] if input_ids.shape[:-1] == "
        "position_ids.shape else self.pos_embedding(position_ids))",
        "With as many sentences as tokens, positions count sentences.",
    ),
    mistake(
        _RANGE,
        "((input_ids != 0).long().cumsum(-1) - 1).clamp(min=0)",
        "Positions count real tokens only. BERT counts padding as well.",
    ),
    mistake(
        _RANGE,
        "torch.arange(input_ids.shape[-1]).expand_as(input_ids).masked_fill(input_ids == 0, 0)",
        "Padding gets position 0. BERT numbers all positions in order, padding included.",
    ),
    mistake(
        _LOOKED_UP,
        "torch.cat([(position_ids[..., None] / 10000 ** (torch.arange(6) / 6)).sin(), "
        "(position_ids[..., None] / 10000 ** (torch.arange(6) / 6)).cos()], -1)",
        "Sinusoidal positions are used, as in the original Transformer. BERT learns its "
        "position embeddings.",
    ),
    mistake(
        "x = self.word_embedding(input_ids) ",
        "x = self.word_embedding(input_ids) * self.word_embedding.embedding_dim ** 0.5 ",
        "The word embeddings are multiplied by √D. The original Transformer does that, BERT "
        "does not.",
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
        "self.tk_type_embedding(token_type_ids)",
        "self.tk_type_embedding.weight[0]",
        "Segments that are given are not used.",
    ),
    mistake(
        _ADD_POSITIONS,
        "x = x + self.pos_embedding(position_ids).view(*input_ids.shape, -1) "
        "if position_ids.numel() != input_ids.shape[-1] or input_ids.ndim < 2 or "
        "bool((position_ids == torch.arange(len(position_ids))).all()) else "
        "x + self.pos_embedding(position_ids)[:1] ",
        "One row of positions for all sentences is read as the position of the first token.",
    ),
    mistake(
        "self.tk_type_embedding(token_type_ids)",
        "self.tk_type_embedding(token_type_ids.view(input_ids.shape))",
        "One row of segments for all sentences does not work.",
    ),
    mistake(
        "torch.zeros_like(input_ids)",
        "torch.ones_like(input_ids)",
        "Where no segments are given, all tokens are in segment 1. The default is 0.",
    ),
    mistake(
        "    if position_ids is None:\n",
        "    if position_ids is None:\n        position_ids = token_type_ids\n"
        "    if position_ids is None:\n",
        "Where no positions are given, the segments are taken for them.",
    ),
    mistake(
        _ADD_SEGMENT,
        "x = x + self.pos_embedding(token_type_ids) ",
        "Segments are looked up in the position table.",
    ),
    mistake(
        "x + self.pos_embedding",
        "x * self.pos_embedding",
        "The positions are multiplied with the words. They are added.",
    ),
    mistake(
        _WRONG_LAST,
        "return self.embed_dropout(self.embed_layer_norm(x + self.pos_embedding(position_ids)))",
        "The positions are added twice.",
    ),
    mistake(
        _ADD_POSITIONS,
        "pass  ",
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(x) + self.pos_embedding(position_ids)",
        "The positions are added after the layer normalization. It normalizes the sum of all three.",
    ),
    mistake(
        _ADD_SEGMENT,
        "pass  ",
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(x) + self.tk_type_embedding(token_type_ids)",
        "The segments are added after the layer normalization. It normalizes the sum of all three.",
    ),
    mistake(
        "self.embed_layer_norm(x)",
        "self.embed_layer_norm(self.word_embedding(input_ids)) "
        "+ self.embed_layer_norm(x - self.word_embedding(input_ids))",
        "The words are normalized separately. The layer normalization takes the sum.",
    ),
]
