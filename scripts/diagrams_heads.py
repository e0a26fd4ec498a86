"""The diagrams of chapters 14 and 16: losses and task heads."""

from drawing import SMALL, Drawing, box


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
            "()",
            "largest logit",
            "(B,) classes",
        ),
        (250, "pairs", "logits (B,)", "binary cross-entropy", "()", "logit &gt; 0", "(B,) 0 or 1"),
        (328, "similarity", "scores (B,)", "squared error", "()", "clip to [0, 5]", "(B,) scores"),
        (
            406,
            "pairs, similarity",
            "cosines (B,)",
            "clipped cosine",
            "()",
            "rescale [h, 1]",
            "(B,) 0 or 1, or scores",
        ),
    )
    for y, task, outputs, loss, size, prediction, kind in rows:
        d.text(110, y - 3, task, "ink", SMALL, weight=600)
        d.text(110, y + 17, outputs, "muted", SMALL)
        box(d, 322, y, 206, loss, size, "key-light", "key")
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
    d.text((left + h) / 2, 36, "clipped: y = h, gradient 0", "muted", SMALL, weight=600)
    d.text((h + right) / 2 - 4, 36, "y = cos", "muted", SMALL, weight=600)
    d.text(left + 16, y - 58, "similar pairs", "value", SMALL, "start", 600)
    d.text(left + 16, y + 72, "dissimilar pairs", "key", SMALL, "start", 600)
    for cosine in (-0.35, 0.05, 0.4):
        d.dot(at(cosine), y - 30, 7, "value")
        d.dot(at(cosine - 0.2), y + 30, 7, "key")
    d.dot(at(0.77), y - 30, 7, "value")
    d.arrow(at(0.77) + 12, y - 30, at(0.99), y - 30, "value")
    d.dot(at(0.95), y + 30, 7, "key")
    d.arrow(at(0.95) - 12, y + 30, at(0.725), y + 30, "key")
    d.text(at(0.1), y - 58, "stuck: loss 0.3, no gradient", "value", SMALL)
    d.text(at(0.1) + 10, y + 72, "far enough apart: loss 0", "key", SMALL)
    return d


DIAGRAMS = {
    "loss-and-prediction": loss_and_prediction,
    "clipped-cosine": clipped_cosine,
}
