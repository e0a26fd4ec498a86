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
        ("LinearPlusCosine", ("u", "v", "cos(u, v)"), "linear, k", "(B,)"),
    )
    colours = {"u": "query", "v": "key"}
    for i, (name, parts, layer, shape) in enumerate(rows):
        y = 82 + 80 * i
        d.text(22, y + 6, name, "ink", SMALL, "start", 600)
        widths = [56 if len(part) == 1 else 84 for part in parts]
        x = 300 - sum(widths) / 2
        for part, width in zip(parts, widths):
            colour = colours.get(part, "weight")
            d.rect(x, y - 22, width, 44, f"{colour}-light", colour, 1.8, radius=5)
            d.text(x + width / 2, y + 6, part, "ink", SMALL, weight=600)
            x += width
        d.arrow(x + 6, y, 424, y)
        d.chip(464, y, 78, layer)
        d.text(510, y + 6, shape, "ink", SMALL, "start")
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
    d.text(160, 400, "the same encoder, two passes", "muted", SMALL)
    return d


DIAGRAMS = {
    "whole-model": whole_model,
    "two-phases": two_phases,
    "loss-and-prediction": loss_and_prediction,
    "clipped-cosine": clipped_cosine,
    "five-heads": five_heads,
    "bi-and-cross-encoder": bi_and_cross_encoder,
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
