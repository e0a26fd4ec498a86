"""The diagrams of chapter 04, the Transformer encoder."""

from drawing import BODY, SMALL, Drawing, box


def plus(d, x, y):
    """Draw the addition of a residual connection around (x, y)."""
    d.parts.append(
        f'<circle cx="{x:g}" cy="{y:g}" r="15" class="cell s-value" stroke-width="2.4"/>'
    )
    d.path(f"M{x - 8},{y} L{x + 8},{y}", "value", 2.4)
    d.path(f"M{x},{y - 8} L{x},{y + 8}", "value", 2.4)


def skip(d, x, left, low, high):
    """Draw a residual connection: from (x, low) to the left, up, and back to the addition at (x, high)."""
    d.path(f"M{x},{low} L{left},{low} L{left},{high} L{x - 25},{high}", "value", 3)
    d.arrow(x - 40, high, x - 16, high, "value", 3)


def encoder_block():
    """Show one encoder layer: two sublayers, a residual connection and a normalization for each."""
    d = Drawing(
        690,
        "One encoder layer",
        "From bottom to top, with a dashed frame around each of the two sublayers. Hidden states (B, T, D) enter multi-head self-attention with the padding mask, then the "
        "output projection. The result is added to the input, and layer normalization follows. The feed-forward "
        "network widens each vector to 4 D, applies GELU and narrows it to D again; its result is added, too, and "
        "normalized. Hidden states of the same shape leave.",
    )
    x, w, left = 332, 296, 132
    d.text(x, 674, "hidden states (B, T, D)", "ink", SMALL, weight=600)
    for top, low in ((487, 626), (146, 322)):
        d.dashed(
            f"M{x - w / 2 - 12},{top} L{x + w / 2 + 12},{top} L{x + w / 2 + 12},{low} "
            f"L{x - w / 2 - 12},{low} Z",
            "muted",
            1.8,
        )
    d.arrow(x, 654, x, 618)
    box(d, x, 590, w, "multi-head self-attention", "mixes the tokens", "query-light", "query")
    d.text(590, 572, "mask", "ink", SMALL, weight=600)
    d.text(590, 612, "(B, T)", "muted", SMALL)
    d.arrow(612, 590, x + w / 2 + 4, 590)
    d.arrow(x, 562, x, 534)
    d.text(x + 14, 553, "(B, T, D)", "muted", SMALL, "start")
    box(d, x, 512, w, "output projection Wₒ: D → D", "", "query-light", "query", 40)
    d.arrow(x, 492, x, 464)
    d.text(x + 14, 478, "(B, T, D)", "muted", SMALL, "start")
    plus(d, x, 447)
    d.arrow(x, 431, x, 408)
    box(d, x, 386, w, "layer normalization", "", "weight-light", "weight", 40)
    d.arrow(x, 366, x, 316)
    d.text(x + 14, 353, "(B, T, D)", "muted", SMALL, "start")
    box(d, x, 294, w, "linear layer W₁: D → 4 D", "", "key-light", "key", 40)
    d.arrow(x, 274, x, 250)
    d.text(x + 14, 267, "(B, T, 4 D)", "muted", SMALL, "start")
    d.chip(x, 232, 92, "GELU")
    d.arrow(x, 216, x, 196)
    box(d, x, 174, w, "linear layer W₂: 4 D → D", "", "key-light", "key", 40)
    d.arrow(x, 154, x, 136)
    plus(d, x, 119)
    d.arrow(x, 103, x, 86)
    box(d, x, 64, w, "layer normalization", "", "weight-light", "weight", 40)
    d.arrow(x, 44, x, 14)
    d.text(x + 14, 30, "(B, T, D)", "muted", SMALL, "start")
    skip(d, x, left, 638, 447)
    skip(d, x, left, 342, 119)
    for y in (540, 226):
        d.text(left - 10, y, "residual", "value", SMALL, "end", 600)
        d.text(left - 10, y + 20, "connection", "value", SMALL, "end", 600)
    for y, words in ((212, "feed-forward"), (232, "network")):
        d.text(566, y, words, "key", SMALL, weight=600)
    d.text(566, 254, "sublayer", "muted", SMALL)
    d.text(566, 508, "attention", "query", SMALL, weight=600)
    d.text(566, 530, "sublayer", "muted", SMALL)
    return d


def norm_places():
    """Show where the normalization stands in a post-norm and in a pre-norm layer."""
    d = Drawing(
        430,
        "Post-norm and pre-norm",
        "The residual connection is a straight vertical line in both halves. On the left, post-norm: the sublayer's "
        "result is added to the line, and the line then passes through the normalization. On the right, pre-norm: the "
        "normalization stands in the branch to the sublayer, and the line passes through an addition only.",
    )
    for line, title, use in (
        (92, "post-norm", "Transformer 2017, BERT"),
        (410, "pre-norm", "GPT-2, Llama, ModernBERT"),
    ):
        branch = line + 136
        d.text(line + 68, 34, title, "ink", BODY, weight=700)
        d.text(line + 68, 56, use, "muted", SMALL)
        d.text(line, 420, "h", "ink", BODY, weight=600)
        if title == "post-norm":
            d.path(f"M{line},402 L{line},231", "value", 4)
            d.path(f"M{line},372 L{branch},372", "muted", 2.2)
            d.arrow(branch, 372, branch, 328)
            box(d, branch, 297, 150, "sublayer f", "attention or FFN", "query-light", "query", 58)
            d.path(f"M{branch},268 L{branch},216", "muted", 2.2)
            d.text(branch + 12, 248, "f(h)", "muted", SMALL, "start")
            d.arrow(branch, 216, line + 18, 216)
            plus(d, line, 216)
            d.path(f"M{line},201 L{line},78", "value", 4)
            box(d, line, 140, 152, "normalization", "", "weight-light", "weight", 40)
        else:
            d.path(f"M{line},402 L{line},195", "value", 4)
            d.path(f"M{line},384 L{branch},384", "muted", 2.2)
            d.arrow(branch, 384, branch, 356)
            box(d, branch, 335, 150, "normalization", "", "weight-light", "weight", 40)
            d.arrow(branch, 315, branch, 296)
            box(d, branch, 265, 150, "sublayer f", "attention or FFN", "query-light", "query", 58)
            d.path(f"M{branch},236 L{branch},180", "muted", 2.2)
            d.text(branch + 12, 214, "f(LN(h))", "muted", SMALL, "start")
            d.arrow(branch, 180, line + 18, 180)
            plus(d, line, 180)
            d.path(f"M{line},165 L{line},78", "value", 4)
        d.arrow(line, 84, line, 70, "value", 4)
    d.path("M322,24 L322,406", "line", 1.2)
    return d


def norm_axes():
    """Show which components layer normalization and batch normalization normalize together."""
    d = Drawing(
        338,
        "The axes of two normalizations",
        "A table with one row for each token of two sentences and one column for each of the D components. Layer "
        "normalization computes mean and variance of one row, that is, of one token. Batch normalization computes "
        "them of one column, that is, of one component over all tokens of the batch.",
    )
    x, y, size, columns = 128, 76, 34, 8
    d.text(x + columns * size / 2, 34, "D components", "ink", SMALL, weight=600)
    d.path(f"M{x},60 L{x},50 L{x + columns * size},50 L{x + columns * size},60", "muted", 1.6)
    for sentence, top in ((1, y), (2, y + 3 * size + 14)):
        d.matrix(x, top, 3, columns, size, "cell", "line")
        d.text(x - 14, top + 48, f"sentence {sentence}", "ink", SMALL, "end", 600)
        d.text(x - 14, top + 68, "T = 3 tokens", "muted", SMALL, "end")
    row, column = y + size, x + 5 * size
    d.rect(x, row, columns * size, size, "weight-light", "weight", 3, radius=3, opacity=0.75)
    d.rect(column, y - 4, size, 6 * size + 22, "key-light", "key", 3, radius=3, opacity=0.6)
    right = x + columns * size + 14
    d.text(right, row + 8, "layer normalization:", "weight", SMALL, "start", 600)
    d.text(right, row + 28, "one token", "muted", SMALL, "start")
    d.text(right, y + 5 * size, "hidden states", "ink", SMALL, "start", 600)
    d.text(right, y + 5 * size + 20, "(B, T, D) with B = 2", "muted", SMALL, "start")
    d.text(
        column + size / 2,
        330,
        "batch normalization: one component of all tokens",
        "key",
        SMALL,
        weight=600,
    )
    return d


def model_shapes():
    """Show BertModel with the shape of every tensor that enters or leaves it."""
    d = Drawing(
        520,
        "BertModel with shapes",
        "input_ids and token_type_ids, both (B, T), enter the embedding, which sums three tables and applies layer "
        "normalization and dropout. Its output is hidden_states[0] of shape (B, T, D). L encoder layers "
        "follow; the attention mask (B, T) enters each of them, and the output of layer k is hidden_states[k]. The "
        "last one is last_hidden_state (B, T, D). The vector of the first token passes through a linear layer and "
        "tanh and becomes pooler_output (B, D).",
    )
    x, w, right = 232, 216, 402
    d.text(x, 502, "input_ids, token_type_ids (B, T)", "ink", SMALL, weight=600)
    d.arrow(x, 482, x, 460)
    box(d, x, 432, 248, "embedding", "three tables, LN, dropout", "value-light", "value")
    d.arrow(x, 404, x, 370)
    levels = ((346, "layer 1"), (276, "layer 2"), (186, "layer L"))
    for y, words in levels:
        box(d, x, y, w, words, "", "query-light", "query", 44)
        d.arrow(92, y, x - w / 2 - 4, y)
    d.arrow(x, 324, x, 300)
    d.text(x, 240, "⋮", "muted", 20)
    d.arrow(x, 224, x, 210)
    d.arrow(x, 164, x, 132)
    d.text(46, 262, "mask", "ink", SMALL, weight=600)
    d.text(46, 283, "(B, T)", "muted", SMALL)
    d.path("M92,186 L92,346", "muted", 2)
    d.path("M72,270 L92,270", "muted", 2)
    stages = ((388, "hidden_states[0]"), (312, "hidden_states[1]"), (148, "hidden_states[L]"))
    for y, words in stages:
        d.path(f"M{x},{y} L{right - 8},{y}", "line", 1.6)
        d.text(right, y + 6, words, "ink", SMALL, "start", 600)
        d.text(right + 156, y + 6, "(B, T, D)", "muted", SMALL, "start")
    d.text(x, 120, "last_hidden_state", "ink", SMALL, weight=600)
    d.text(x, 98, "(B, T, D)", "muted", SMALL)
    d.arrow(318, 110, 368, 96)
    d.rect(372, 62, 256, 54, "head2-light", "head2", 2, radius=8)
    d.text(500, 85, "pooler", "ink", SMALL, weight=600)
    d.text(500, 106, "first token, linear layer, tanh", "muted", SMALL)
    d.arrow(500, 62, 500, 34)
    d.text(500, 24, "pooler_output (B, D)", "ink", SMALL, weight=600)
    return d


DIAGRAMS = {
    "encoder-block": encoder_block,
    "post-norm-pre-norm": norm_places,
    "layer-norm-axes": norm_axes,
    "model-shapes": model_shapes,
}
