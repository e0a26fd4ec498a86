"""Draw the diagrams of the chapters as SVG, and put them into the notebooks.

    python scripts/diagrams.py                 # redraws every diagram, in every notebook that shows it
    python scripts/diagrams.py --out FOLDER    # writes SVG files instead

A chapter shows a diagram as `![alternative text](attachment:NAME.svg)`. The drawing is stored in the
notebook itself, so that it appears wherever the notebook is opened. Every drawing is 640 units wide and uses one
palette, one font and the helpers below. On a phone 640 units become 390 pixels; text is therefore at least 16 units
high, which is 10 pixels there. Each drawing has a background of its own and a second set of colours
for dark pages. Meaning never depends on colour alone: every shape has a label.
"""

import argparse
import base64
import json
import math
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 640
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
BODY, SMALL = 18, 16  # font sizes
PALETTE = {  # name: (light page, dark page)
    "card": ("#fbfaf7", "#1c2129"),
    "ink": ("#1f2933", "#e8ebef"),
    "muted": ("#5b6672", "#a3adb8"),
    "line": ("#aab2bc", "#596473"),
    "cell": ("#ffffff", "#262d37"),
    "query": ("#2f6fb3", "#74b0ec"),
    "query-light": ("#d6e5f5", "#213f5f"),
    "key": ("#c25f17", "#f0a463"),
    "key-light": ("#fae2cf", "#57371d"),
    "value": ("#267f5a", "#67c99e"),
    "value-light": ("#d3eee1", "#1e4837"),
    "weight": ("#6846a8", "#b8a0f2"),
    "weight-light": ("#e6def4", "#3d3160"),
    "head1": ("#0f7f86", "#5cc9cf"),
    "head1-light": ("#cfebec", "#184649"),
    "head2": ("#b83b66", "#ee8fb0"),
    "head2-light": ("#f7dbe5", "#5a2338"),
    "head3": ("#96700a", "#e2bd54"),
    "head3-light": ("#f4e8c6", "#4d3d0e"),
}


def style():
    """Write one fill class and one stroke class per colour, for light and for dark pages."""

    def rules(which):
        lines = []
        for name, colours in PALETTE.items():
            lines.append(f".{name}{{fill:{colours[which]}}} .s-{name}{{stroke:{colours[which]}}}")
        return "\n".join(lines)

    dark = f"@media (prefers-color-scheme: dark) {{\n{rules(1)}\n}}"
    return f"<style>\ntext{{font-family:{FONT}}}\n{rules(0)}\n{dark}\n</style>"


class Drawing:
    """Collect shapes and write them as one SVG file."""

    def __init__(self, height, title, description):
        self.height = height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{title}</title><desc>{description}</desc>",
            style(),
            f'<rect class="card" width="{WIDTH}" height="{height}" rx="14"/>',
        ]

    def rect(self, x, y, w, h, fill, stroke="line", thick=1.2, radius=0, opacity=1):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
            f'class="{fill} s-{stroke}" stroke-width="{thick}" fill-opacity="{opacity:.2f}"/>'
        )

    def outline(self, x, y, w, h, stroke, thick=3, radius=3):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
            f'fill="none" class="s-{stroke}" stroke-width="{thick}"/>'
        )

    def text(self, x, y, words, colour="ink", size=BODY, anchor="middle", weight=400):
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>'
        )

    def path(self, d, stroke="muted", thick=2.0, opacity=1.0):
        self.parts.append(
            f'<path d="{d}" fill="none" class="s-{stroke}" stroke-width="{thick:.1f}" '
            f'stroke-opacity="{opacity:.2f}"/>'
        )

    def dashed(self, d, stroke="muted", thick=2.0):
        self.parts.append(
            f'<path d="{d}" fill="none" class="s-{stroke}" stroke-width="{thick:.1f}" '
            f'stroke-dasharray="7 5"/>'
        )

    def dot(self, x, y, radius, colour):
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{colour}"/>')

    def arrow(self, x1, y1, x2, y2, colour="muted", thick=2.2):
        """Draw a straight arrow with a filled head at (x2, y2)."""
        angle = math.atan2(y2 - y1, x2 - x1)
        back_x, back_y = x2 - 10 * math.cos(angle), y2 - 10 * math.sin(angle)
        self.path(f"M{x1:g},{y1:g} L{back_x:.1f},{back_y:.1f}", colour, thick)
        side_x, side_y = 5.5 * math.sin(angle), -5.5 * math.cos(angle)
        self.parts.append(
            f'<path d="M{x2:g},{y2:g} L{back_x + side_x:.1f},{back_y + side_y:.1f} '
            f'L{back_x - side_x:.1f},{back_y - side_y:.1f} Z" class="{colour}"/>'
        )

    def head(self, x, y, size, colour, opacity=1.0):
        """Draw an arrow head that points to the right, its tip at (x, y)."""
        self.parts.append(
            f'<path d="M{x:g},{y:g} l{-14},{-size:.1f} l0,{2 * size:.1f} Z" '
            f'class="{colour}" fill-opacity="{opacity:.2f}"/>'
        )

    def label(self, x, y, name, shape, colour="ink"):
        """Write the name of a tensor and, below it, its shape."""
        self.text(x, y, name, colour, BODY, weight=600)
        self.text(x, y + 21, shape, "muted", SMALL)

    def chip(self, x, y, w, words, h=32):
        """Draw an operation: a rounded box around (x, y)."""
        self.rect(x - w / 2, y - h / 2, w, h, "cell", "muted", 1.4, radius=h / 2)
        self.text(x, y + 6, words, "ink", SMALL)

    def matrix(self, x, y, rows, columns, size, fill, stroke, shade=None):
        """Draw a grid; `shade[i][j]` in [0, 1] colours a cell with `stroke`'s colour instead."""
        for i in range(rows):
            for j in range(columns):
                self.rect(x + j * size, y + i * size, size, size, fill, stroke, 1)
                if shade:
                    self.rect(
                        x + j * size,
                        y + i * size,
                        size,
                        size,
                        stroke,
                        stroke,
                        1,
                        opacity=shade[i][j],
                    )

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def box(d, x, y, w, words, shape, fill, stroke, h=54):
    """Draw a labelled box around (x, y), with a shape or a remark in its second line."""
    d.rect(x - w / 2, y - h / 2, w, h, fill, stroke, 2, radius=8)
    if shape:
        d.text(x, y - 3, words, "ink", SMALL, weight=600)
        d.text(x, y + 17, shape, "muted", SMALL)
    else:
        d.text(x, y + 6, words, "ink", SMALL, weight=600)


def whole_model():
    """Show BERT from the tokens to three uses of its hidden states."""
    d = Drawing(
        590,
        "The whole model",
        "Five tokens are mapped to one vector each by the embedding layer. Four encoder layers, each with "
        "self-attention and a feed-forward network, transform the vectors. Above them, three heads use the hidden "
        "states: one predicts a masked token, one averages them into a sentence embedding, one classifies.",
    )
    xs = (88, 204, 320, 436, 552)
    tokens = ("[CLS]", "tea", "is", "[MASK]", "[SEP]")
    for x, token in zip(xs, tokens):
        d.rect(x - 46, 532, 92, 34, "cell", "muted", 1.4, radius=6)
        d.text(x, 554, token, "ink", SMALL, weight=600)
        d.arrow(x, 532, x, 506)
        d.arrow(x, 452, x, 424)
        d.arrow(x, 206, x, 178)
    d.rect(32, 454, 576, 50, "value-light", "value", 2, radius=8)
    d.text(320, 476, "embedding layer", "ink", SMALL, weight=600)
    d.text(320, 496, "token + position + segment, layer normalization: (T, D)", "muted", SMALL)
    d.rect(32, 208, 576, 214, "query-light", "query", 2, radius=8)
    d.rect(52, 332, 536, 78, "cell", "query", 1.6, radius=8)
    d.text(320, 357, "multi-head self-attention", "ink", SMALL, weight=600)
    d.text(320, 380, "each token gathers information from all others", "muted", SMALL)
    d.text(320, 401, "+ residual connection, layer normalization", "muted", SMALL)
    d.rect(52, 244, 536, 78, "cell", "query", 1.6, radius=8)
    d.text(320, 269, "feed-forward network", "ink", SMALL, weight=600)
    d.text(320, 292, "transforms the vector of each token separately", "muted", SMALL)
    d.text(320, 313, "+ residual connection, layer normalization", "muted", SMALL)
    d.text(
        320,
        232,
        "one encoder layer; there are L of them, one above the other",
        "query",
        SMALL,
        weight=600,
    )
    d.text(320, 168, "hidden states: one vector per token, (T, D)", "ink", SMALL, weight=600)
    heads = (
        (120, "token prediction", "logits (T, V)", "key-light", "key", "masked token: “hot”"),
        (320, "mean pooling", "embedding (D)", "weight-light", "weight", "similar sentences"),
        (520, "classifier", "logits (C)", "head2-light", "head2", "label of a sentence"),
    )
    for x, words, shape, fill, stroke, use in heads:
        d.arrow(x, 150, x, 120)
        box(d, x, 92, 176, words, shape, fill, stroke)
        d.text(x, 44, use, "ink", SMALL)
        d.arrow(x, 64, x, 51)
    return d


def two_phases():
    """Show pretraining on plain text and fine-tuning on a few labelled examples."""
    d = Drawing(
        330,
        "Pretraining and fine-tuning",
        "On the left, an encoder with a token prediction head is pretrained on plain text in which tokens are masked. "
        "Its weights are copied to the right, where the same encoder is fine-tuned with a new head on labelled examples.",
    )
    d.text(160, 36, "1. pretraining", "key", BODY, weight=700)
    d.text(480, 36, "2. fine-tuning", "head2", BODY, weight=700)
    d.path("M320,20 L320,136", "line", 1.4)
    d.path("M320,190 L320,310", "line", 1.4)
    for x, head, fill, stroke in (
        (160, "token prediction", "key-light", "key"),
        (480, "new head", "head2-light", "head2"),
    ):
        box(d, x, 84, 190, head, "", fill, stroke, 42)
        box(d, x, 168, 190, "encoder", "", "query-light", "query", 62)
        d.arrow(x, 136, x, 107)
        d.arrow(x, 232, x, 201)
    d.arrow(257, 168, 383, 168, "query", 3)
    d.text(320, 156, "weights", "query", SMALL, weight=600)
    d.text(160, 256, "plain text, tokens masked", "ink", SMALL, weight=600)
    d.text(160, 278, "millions of sentences,", "muted", SMALL)
    d.text(160, 298, "no labels needed", "muted", SMALL)
    d.text(480, 256, "labelled sentences or pairs", "ink", SMALL, weight=600)
    d.text(480, 278, "a few thousand examples", "muted", SMALL)
    d.text(480, 298, "for each task", "muted", SMALL)
    return d


def token_row(d, xs, y, w, tokens, fills, h=32):
    """Draw one box of width `w` for each token, centred at `xs`; `fills` gives (fill, stroke)."""
    for x, token, (fill, stroke) in zip(xs, tokens, fills):
        d.rect(x - w / 2, y, w, h, fill, stroke, 1.4, radius=5)
        d.text(x, y + h / 2 + 6, token, "ink", SMALL)


PLAIN, SPECIAL, PADDED = ("cell", "muted"), ("weight-light", "weight"), ("card", "line")


def text_to_ids():
    """Show the steps from a text to input_ids and attention_mask."""
    d = Drawing(
        572,
        "From text to ids",
        "The text “Watering the café!” is normalized and split into four words. Greedy matching splits "
        "the words into seven tokens. [CLS] and [SEP] are added, one [PAD] token fills the row, and each "
        "token is looked up in the vocabulary. The attention mask is 1 for nine tokens and 0 for the padding.",
    )
    words = ["watering", "the", "cafe", "!"]
    pieces = ["water", "##ing", "the", "ca", "##f", "##e", "!"]
    tokens = ["[CLS]", *pieces, "[SEP]", "[PAD]"]
    ids = [2, 1230, 358, 341, 3908, 222, 211, 5, 3, 0]
    xs = [320 + 60 * (i - 4.5) for i in range(10)]
    d.rect(200, 20, 240, 38, "query-light", "query", 2, radius=8)
    d.text(320, 45, "Watering the café!", "ink", BODY, weight=600)
    steps = (
        (90, "normalize, split at spaces and punctuation"),
        (192, "greedy longest match (WordPiece)"),
        (294, "add [CLS] and [SEP], pad to length T"),
        (396, "look up in the vocabulary"),
    )
    for y, step in steps:
        d.arrow(320, y - 30, 320, y + 32)
        d.chip(320, y, 370, step)
    spans = ((1.5, 2), (3, 1), (5, 3), (7, 1))  # column of the middle, columns
    for word, (middle, columns) in zip(words, spans):
        x, w = 320 + 60 * (middle - 4.5), 60 * columns - 6
        d.rect(x - w / 2, 124, w, 32, "cell", "muted", 1.4, radius=5)
        d.text(x, 146, word, "ink", SMALL)
    token_row(d, xs[1:8], 226, 54, pieces, [PLAIN] * 7)
    fills = [SPECIAL, *[PLAIN] * 7, SPECIAL, PADDED]
    token_row(d, xs, 328, 54, tokens, fills)
    token_row(d, xs, 430, 54, ids, fills)
    token_row(d, xs, 504, 54, [1] * 9 + [0], [PLAIN] * 9 + [PADDED])
    d.text(
        xs[0] - 27,
        482,
        "input_ids (B, T), here B = 1 and T = 10",
        "muted",
        SMALL,
        "start",
    )
    d.text(
        xs[0] - 27,
        556,
        "attention_mask (B, T): 1 = real token, 0 = padding",
        "muted",
        SMALL,
        "start",
    )
    return d


def greedy_match():
    """Show how the longest matching token is taken from the left, three times."""
    d = Drawing(
        484,
        "Greedy longest match",
        "For the word “unaffable” the candidates shrink from the right until “un” is found in the vocabulary. "
        "The search continues after these letters with “##aff”, and then with “##able”.",
    )
    left, w = 22, 48
    d.text(left, 32, "vocabulary: a, ab, un, ##aff, ##able, ##bc", "muted", SMALL, "start")
    for i, letter in enumerate("unaffable"):
        d.rect(left + i * w, 46, w, 34, "cell", "muted", 1.4)
        d.text(left + (i + 0.5) * w, 69, letter, "ink", BODY, weight=600)
    rows = (
        (98, 0, 9, "unaffable", ""),
        (132, 0, 8, "unaffabl", ""),
        (192, 0, 3, "una", ""),
        (226, 0, 2, "un", "query"),
        (272, 2, 9, "##affable", ""),
        (330, 2, 6, "##affa", ""),
        (364, 2, 5, "##aff", "value"),
        (410, 5, 9, "##able", "key"),
    )
    for y, start, end, words, colour in rows:
        x, width = left + start * w, (end - start) * w
        fill, stroke = (colour + "-light", colour) if colour else ("card", "line")
        d.rect(x + 2, y, width - 4, 28, fill, stroke, 2 if colour else 1.2, radius=5)
        d.text(x + width / 2, y + 20, words, "ink" if colour else "muted", SMALL)
        remark = "found" if colour else "not found"
        d.text(left + 9 * w + 12, y + 20, remark, colour or "muted", SMALL, "start")
    for x, y in ((120, 180), (238, 320)):
        d.text(x, y, "⋮", "muted", BODY)
    d.text(left, 466, "result: un ##aff ##able", "ink", BODY, "start", weight=600)
    return d


def merges():
    """Show three merges of a toy corpus of three words."""
    d = Drawing(
        404,
        "Learning a vocabulary by merging",
        "Three words, rain (6 times), train (4 times) and tin (5 times), begin as single characters. First ##i and "
        "##n are merged, which are adjacent 15 times, then ##a and ##in (10 times), then r and ##ain (6 times).",
    )
    w, lefts = 46, (28, 226, 474)
    for left, word, count in zip(lefts, ("rain", "train", "tin"), (6, 4, 5)):
        d.text(left + len(word) * w / 2, 32, f"{word}, {count} times", "ink", SMALL, weight=600)
    stages = (
        (
            46,
            ("r", "##a", "##i", "##n"),
            ("t", "##r", "##a", "##i", "##n"),
            ("t", "##i", "##n"),
            "",
        ),
        (142, ("r", "##a", "##in"), ("t", "##r", "##a", "##in"), ("t", "##in"), "##in"),
        (238, ("r", "##ain"), ("t", "##r", "##ain"), ("t", "##in"), "##ain"),
        (334, ("rain",), ("t", "##r", "##ain"), ("t", "##in"), "rain"),
    )
    for y, *splits, new in stages:
        for left, tokens in zip(lefts, splits):
            x = left
            for token in tokens:
                width = w * len(token.removeprefix("##"))
                fill, stroke = ("key-light", "key") if token == new else PLAIN
                d.rect(x + 2, y, width - 4, 34, fill, stroke, 1.6, radius=5)
                d.text(x + width / 2, y + 23, token, "ink", SMALL)
                x += width
    labels = (
        (112, "merge ##i and ##n, adjacent 6 + 4 + 5 = 15 times"),
        (208, "merge ##a and ##in, adjacent 6 + 4 = 10 times"),
        (304, "merge r and ##ain, adjacent 6 times"),
    )
    for y, words in labels:
        d.arrow(50, y - 28, 50, y + 26, "key")
        d.text(68, y + 5, words, "key", SMALL, "start", weight=600)
    return d


def padded_batch():
    """Show three sentences as a matrix of ids, with the attention mask."""
    d = Drawing(
        408,
        "A padded batch",
        "Three sentences of six, seven and four tokens are filled up with [PAD] to the length of the longest. The "
        "matrix input_ids has the id 0 at the padding, and the matrix attention_mask has a 0 there and a 1 elsewhere.",
    )
    rows = (
        (["[CLS]", "it", "rain", "##s", ".", "[SEP]"], [2, 405, 3139, 207, 18, 3]),
        (["[CLS]", "tea", "is", "hot", "today", ".", "[SEP]"], [2, 5991, 377, 2217, 1628, 18, 3]),
        (["[CLS]", "no", "!", "[SEP]"], [2, 654, 5, 3]),
    )
    T, w = 7, 84
    xs = [320 + w * (i - 3) for i in range(T)]
    d.text(26, 34, "tokens: B = 3 sentences, T = 7", "ink", SMALL, "start", weight=600)
    d.text(26, 216, "input_ids (B, T)", "ink", SMALL, "start", weight=600)
    d.text(374, 216, "attention_mask (B, T)", "ink", SMALL, "start", weight=600)
    for b, (tokens, ids) in enumerate(rows):
        real, missing = len(tokens), T - len(tokens)
        fills = [SPECIAL, *[PLAIN] * (real - 2), SPECIAL, *[PADDED] * missing]
        token_row(d, xs, 48 + 40 * b, w - 6, tokens + ["[PAD]"] * missing, fills)
        for t in range(T):
            fill, stroke = PLAIN if t < real else PADDED
            for left, small, value in (
                (26, 46, (ids + [0] * missing)[t]),
                (374, 34, int(t < real)),
            ):
                d.rect(left + small * t, 230 + 40 * b, small, 40, fill, stroke, 1.2)
                d.text(
                    left + small * (t + 0.5),
                    256 + 40 * b,
                    value,
                    "ink" if t < real else "muted",
                    SMALL,
                )
    d.arrow(187, 172, 187, 198)
    d.arrow(493, 172, 493, 198)
    d.text(
        26,
        384,
        "Padding is on the right, so each token keeps its position.",
        "muted",
        SMALL,
        "start",
    )
    return d


def embedding_sum():
    """Show the input embedding as three summed rows, followed by layer normalization."""
    d = Drawing(
        476,
        "The embedding layer",
        "For each of nine tokens, a row of the word table, a row of the position table and a row of the segment table "
        "are added. The sum passes through layer normalization and dropout, which gives one vector for each token.",
    )
    tokens = ["[CLS]", "is", "it", "hot", "?", "[SEP]", "yes", ".", "[SEP]"]
    ids = [2, 377, 405, 2217, 35, 3, 5525, 18, 3]
    xs = [320 + 66 * (i - 4) for i in range(9)]
    special = [SPECIAL if token[0] == "[" else PLAIN for token in tokens]
    token_row(d, xs, 18, 60, tokens, special)
    rows = (
        (94, "word embeddings, by token id: one of V rows", ids, "query"),
        (170, "position embeddings, by position: one of P rows", list(range(9)), "key"),
        (246, "segment embeddings, by text: one of 2 rows", [0] * 6 + [1] * 3, "value"),
    )
    left = xs[0] - 30
    for y, words, indices, colour in rows:
        d.text(left, y - 8, words, colour, SMALL, "start", weight=600)
        token_row(d, xs, y, 60, indices, [(colour + "-light", colour)] * 9)
    for y in (147, 223):
        d.text(xs[-1] + 18, y + 16, "+", "ink", 22, weight=600)
    d.arrow(320, 280, 320, 306)
    d.text(334, 300, "sum (T, D)", "muted", SMALL, "start")
    d.chip(320, 324, 250, "layer normalization")
    d.arrow(320, 341, 320, 358)
    d.chip(320, 375, 250, "dropout, in training")
    d.arrow(320, 392, 320, 414)
    token_row(d, xs, 416, 60, [f"y{i}" for i in range(9)], [SPECIAL] * 9)
    d.text(
        left,
        467,
        "one vector of size D for each token: (T, D), in a batch (B, T, D)",
        "muted",
        SMALL,
        "start",
    )
    return d


def embedding_example():
    """Work out the embedding of one token with four dimensions."""
    d = Drawing(
        374,
        "A worked example of the embedding layer",
        "The rows (1, 0, 2, 1), (0, 1, 1, 1) and (0, 0, 0, 1) are added to (1, 1, 3, 3). After subtracting the mean 2 and "
        "dividing by the standard deviation 1 the result is (-1, -1, 1, 1). Scale 2 and shift 10 give (8, 8, 12, 12).",
    )
    rows = (
        (20, "word 1", (1, 0, 2, 1), "query"),
        (66, "+ position 0", (0, 1, 1, 1), "key"),
        (112, "+ segment 0", (0, 0, 0, 1), "value"),
        (172, "= sum", (1, 1, 3, 3), ""),
        (238, "normalized", ("−1", "−1", 1, 1), ""),
        (304, "output", (8, 8, 12, 12), "weight"),
    )
    for y, words, values, colour in rows:
        d.text(150, y + 24, words, colour or "ink", SMALL, "end", weight=600)
        for i, value in enumerate(values):
            fill, stroke = (colour + "-light", colour) if colour else PLAIN
            d.rect(166 + 56 * i, y, 56, 36, fill, stroke, 1.4)
            d.text(194 + 56 * i, y + 24, value, "ink", SMALL)
    d.path("M166,160 L390,160", "muted", 2)
    for y, words in (
        (172, "mean 2, variance 1"),
        (238, "(sum − 2) / 1"),
        (304, "scale 2, shift 10"),
    ):
        d.text(408, y + 24, words, "muted", SMALL, "start")
    for y in (210, 276):
        d.arrow(278, y, 278, y + 26)
    d.text(408, 90, "V = 2, D = 4", "muted", SMALL, "start")
    return d


DIAGRAMS = {
    "whole-model": whole_model,
    "two-phases": two_phases,
    "text-to-ids": text_to_ids,
    "greedy-match": greedy_match,
    "wordpiece-merges": merges,
    "padded-batch": padded_batch,
    "embedding-sum": embedding_sum,
    "embedding-example": embedding_example,
}
SHOWN = re.compile(r"\(attachment:([\w-]+)\.svg\)")


def attach(notebook: dict) -> bool:
    """Store the diagrams that the Markdown cells of a notebook show; tell whether anything changed."""
    before = json.dumps(notebook, sort_keys=True)
    for cell in notebook["cells"]:
        names = SHOWN.findall("".join(cell["source"])) if cell["cell_type"] == "markdown" else []
        cell.pop("attachments", None)
        if names:
            cell["attachments"] = {
                f"{name}.svg": {"image/svg+xml": encoded(name)} for name in names
            }
    return json.dumps(notebook, sort_keys=True) != before


def encoded(name: str) -> str:
    return base64.b64encode(DIAGRAMS[name]().svg().encode("utf-8")).decode("ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, draw in DIAGRAMS.items():
            (given.out / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
        return
    for file in sorted((ROOT / "nbs").rglob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        if attach(notebook):
            text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
            file.write_text(text + "\n", encoding="utf-8")
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
