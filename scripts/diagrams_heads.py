"""The diagrams of chapters 10 and 11: losses and task heads."""

from drawing import BODY, SMALL, Drawing, box


def loss_and_prediction():
    """Show a head with its three kinds of output: each has a loss for training and a prediction."""
    d = Drawing(
        450,
        "Loss and prediction",
        "A head maps sentence embeddings of shape (B, D) to outputs. In training, a loss compares the outputs with "
        "labels, and its gradient flows back. In use, the outputs are converted to predictions: the class with the "
        "largest logit, label 1 for a positive logit, or a clipped similarity score.",
    )
    box(d, 110, 46, 180, "embeddings", "(B, D)", "query-light", "query")
    d.arrow(202, 46, 252, 46)
    d.chip(298, 46, 88, "head")
    d.arrow(344, 46, 394, 46)
    box(d, 500, 46, 208, "outputs", "(B, C) or (B,)", "cell", "muted")
    d.arrow(534, 74, 534, 104, "value")
    d.arrow(424, 74, 366, 104, "key")
    d.dashed("M298,104 L298,74", "key")
    d.arrow(298, 76, 298, 64, "key")
    d.text(288, 92, "gradient", "key", SMALL, "end")
    d.text(110, 124, "task and outputs", "muted", SMALL, weight=700)
    d.text(322, 124, "loss, in training", "key", SMALL, weight=700)
    d.text(534, 124, "prediction, in use", "value", SMALL, weight=700)
    rows = (
        (
            172,
            "classification",
            "logits (B, C)",
            "cross-entropy",
            "−log q",
            "largest logit",
            "(B,) classes",
        ),
        (
            250,
            "pairs",
            "logits (B,)",
            "binary cross-entropy",
            "−log q",
            "logit &gt; 0",
            "(B,) 0 or 1",
        ),
        (
            328,
            "similarity",
            "scores (B,)",
            "squared error",
            "(s − y)²",
            "clip to [0, 5]",
            "(B,) scores",
        ),
        (
            406,
            "pairs, similarity",
            "cosines (B,)",
            "clipped cosine",
            "1 − c or c − h",
            "rescale [h, 1]",
            "(B,) 0 or 1, or scores",
        ),
    )
    for y, task, outputs, loss, formula, prediction, kind in rows:
        d.text(110, y - 3, task, "ink", SMALL, weight=600)
        d.text(110, y + 17, outputs, "muted", SMALL)
        box(d, 322, y, 206, loss, formula, "key-light", "key")
        box(d, 534, y, 188, prediction, kind, "value-light", "value")
    return d


def clipped_cosine():
    """Show on which cosines a clipped cosine loss acts, for similar and for dissimilar pairs."""
    d = Drawing(
        300,
        "Clipped cosine",
        "A number line of cosines from minus one to one with the threshold h = 0.7. Above the threshold, similar pairs "
        "are pulled towards 1 and dissimilar pairs are pushed towards the threshold. Below it, neither kind of pair "
        "receives a gradient, which is intended for the dissimilar pairs only.",
    )
    left, right, y = 50, 590, 150

    def at(cosine):
        return left + (cosine + 1) / 2 * (right - left)

    h = at(0.7)
    d.rect(left, y - 92, h - left, 184, "cell", "line", 1, radius=6)
    d.path(f"M{left},{y} L{right},{y}", "muted", 2)
    for cosine, words in ((-1, "−1"), (0, "0"), (0.7, "h = 0.7"), (1, "1")):
        d.path(f"M{at(cosine):g},{y - 6} L{at(cosine):g},{y + 6}", "muted", 2)
        d.text(at(cosine), 272, words, "ink", SMALL, weight=600 if cosine == 0.7 else 400)
    d.text(320, 294, "cosine similarity", "muted", SMALL)
    d.dashed(f"M{h:g},44 L{h:g},252", "ink")
    d.text((left + h) / 2, 36, "clipped: c = h, gradient 0", "muted", SMALL, weight=600)
    d.text((h + right) / 2 - 4, 36, "c = cos", "muted", SMALL, weight=600)
    d.text(left + 16, y - 58, "similar pairs", "value", SMALL, "start", 600)
    d.text(left + 16, y + 72, "dissimilar pairs", "weight", SMALL, "start", 600)
    for cosine in (-0.35, 0.05, 0.4):
        d.dot(at(cosine), y - 30, 7, "value")
        d.dot(at(cosine - 0.2), y + 30, 7, "weight")
    d.dot(at(0.77), y - 30, 7, "value")
    d.arrow(at(0.77) + 12, y - 30, at(0.99), y - 30, "value")
    d.dot(at(0.95), y + 30, 7, "weight")
    d.arrow(at(0.95) - 12, y + 30, at(0.725), y + 30, "weight")
    d.text(at(0.1), y - 58, "stuck: loss 0.3, no gradient", "value", SMALL)
    d.text(at(0.1) + 10, y + 72, "far enough apart: loss 0", "weight", SMALL)
    return d


def five_heads():
    """Show what each of five heads computes from one or two sentence embeddings."""
    d = Drawing(
        440,
        "Five heads",
        "LinearHead: a linear layer on u gives C logits. PairLinear: a linear layer on the concatenation of u and v. "
        "ConcatDiff: a linear layer on u, v and the absolute difference. CosineHead: a scaled and shifted cosine. "
        "LinearPlusCosine: a linear layer on u and v plus a multiple of the cosine.",
    )
    d.text(104, 32, "head", "muted", SMALL, weight=700)
    d.text(320, 32, "input of the layer", "muted", SMALL, weight=700)
    d.text(548, 32, "output", "muted", SMALL, weight=700)
    rows = (
        ("LinearHead", ("u",), "linear", "(B, C)"),
        ("PairLinear", ("u", "v"), "linear", "(B,)"),
        ("ConcatDiff", ("u", "v", "|u − v|"), "linear", "(B,) or (B, C)"),
        ("CosineHead", ("cos(u, v)",), "s · + c", "(B,)"),
        ("LinearPlusCosine", ("u", "v"), "linear", "(B,)"),
    )
    colours = {"u": "query", "v": "key"}
    for i, (name, parts, layer, shape) in enumerate(rows):
        y = 82 + 80 * i
        last = name == "LinearPlusCosine"
        d.text(22, y + 6, name, "ink", SMALL, "start", 600)
        widths = [56 if len(part) == 1 else 84 for part in parts]
        x = (244 if last else 300) - sum(widths) / 2
        for part, width in zip(parts, widths):
            colour = colours.get(part, "weight")
            d.rect(x, y - 22, width, 44, f"{colour}-light", colour, 1.8, radius=5)
            d.text(x + width / 2, y + 6, part, "ink", SMALL, weight=600)
            x += width
        d.arrow(x + 6, y, 322 if last else 424, y)
        d.chip(358 if last else 464, y, 70 if last else 78, layer)
        if last:
            d.text(402, y + 6, "+", "ink", BODY)
            d.rect(412, y - 22, 98, 44, "weight-light", "weight", 1.8, radius=5)
            d.text(461, y + 6, "k cos(u, v)", "ink", SMALL, weight=600)
        d.text(516, y + 6, shape, "ink", SMALL, "start")
    return d


def shared_encoder():
    """Show one encoder with three task heads, and where the gradients of each mode end."""
    d = Drawing(
        400,
        "Shared encoder",
        "Sentences of shape (B, T) enter one encoder with pooling, which gives embeddings of shape (B, D). "
        "Three heads read them: LinearHead for sentiment, ConcatDiff for inference, and LinearPlusCosine for "
        "similarity; the last two receive u and v. In full mode, gradients reach the heads and the encoder. In "
        "frozen mode they end at the heads.",
    )
    d.text(78, 34, "sentences", "muted", SMALL, weight=700)
    d.text(300, 34, "one encoder", "muted", SMALL, weight=700)
    d.text(530, 34, "one head per task", "muted", SMALL, weight=700)
    rows = (
        (88, "sentiment", "(B, T)", "u", "LinearHead", "(B, 2) logits"),
        (176, "inference", "2 × (B, T)", "u, v", "ConcatDiff", "(B, 3) logits"),
        (264, "similarity", "2 × (B, T)", "u, v", "LinearPlusCosine", "(B,) scores"),
    )
    d.rect(222, 60, 156, 232, "query-light", "query", 2, radius=8)
    d.text(300, 172, "encoder", "ink", SMALL, weight=600)
    d.text(300, 194, "and pooling", "muted", SMALL)
    for y, task, size, vectors, head, outputs in rows:
        box(d, 78, y, 130, task, size, "cell", "muted")
        d.arrow(146, y, 218, y)
        d.arrow(380, y, 444, y)
        d.text(411, y - 10, vectors, "ink", SMALL, weight=600)
        d.text(411, y + 22, "(B, D)", "muted", SMALL)
        box(d, 532, y, 172, head, outputs, "weight-light", "weight")
    for y, words, end in ((332, "full", 240), (372, "frozen", 460)):
        d.text(20, y + 6, words, "ink", SMALL, "start", 600)
        d.text(84, y + 6, "gradients", "muted", SMALL, "start")
        d.arrow(618, y, end, y, "key")
    d.dashed("M446,304 L446,388", "muted")
    return d


def bi_and_cross_encoder():
    """Show a bi-encoder and a cross-encoder side by side."""
    d = Drawing(
        420,
        "Bi-encoder and cross-encoder",
        "Left: in a bi-encoder, sentences a and b pass separately through the same encoder and pooling; a head compares "
        "the two embeddings. Right: in a cross-encoder, both sentences form one sequence with segment ids 0 and 1, and a "
        "linear layer reads the vector of CLS.",
    )
    d.text(160, 34, "bi-encoder", "query", BODY, weight=700)
    d.text(480, 34, "cross-encoder", "head2", BODY, weight=700)
    d.path("M320,18 L320,402", "line", 1.4)
    box(d, 160, 78, 190, "head", "compares u and v", "weight-light", "weight", 50)
    for x, sentence, vector, fill, stroke in (
        (86, "sentence a", "u", "query-light", "query"),
        (234, "sentence b", "v", "key-light", "key"),
    ):
        d.arrow(x, 156, 160 + (x - 160) / 2, 106)
        box(d, x, 182, 126, f"vector {vector}", "(D)", fill, stroke, 50)
        d.arrow(x, 240, x, 210)
        box(d, x, 276, 126, "encoder", "and pooling", "query-light", "query", 66)
        d.arrow(x, 342, x, 312)
        d.rect(x - 63, 344, 126, 34, "cell", "muted", 1.4, radius=6)
        d.text(x, 366, sentence, "ink", SMALL, weight=600)
    d.path("M149,276 L171,276", "query", 2)
    box(d, 480, 78, 190, "linear layer", "on the vector of [CLS]", "weight-light", "weight", 50)
    d.arrow(372, 156, 440, 106)
    box(d, 480, 182, 272, "hidden states", "(T, D), one per token", "head2-light", "head2", 50)
    d.arrow(480, 240, 480, 210)
    box(d, 480, 276, 272, "encoder", "attention across both", "query-light", "query", 66)
    d.arrow(480, 342, 480, 312)
    d.rect(344, 344, 272, 34, "cell", "muted", 1.4, radius=6)
    d.text(480, 366, "[CLS] a [SEP] b [SEP]", "ink", SMALL, weight=600)
    d.text(480, 400, "segment ids 0 0 0 1 1", "muted", SMALL)
    d.text(160, 400, "the same encoder for both", "muted", SMALL)
    return d


DIAGRAMS = {
    "loss-and-prediction": loss_and_prediction,
    "clipped-cosine": clipped_cosine,
    "five-heads": five_heads,
    "shared-encoder": shared_encoder,
    "bi-and-cross-encoder": bi_and_cross_encoder,
}
