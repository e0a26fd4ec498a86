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
import sys
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


sys.modules.setdefault("diagrams", sys.modules[__name__])  # the files below import the helpers
import diagrams_pretraining  # noqa: E402

DIAGRAMS = {
    "whole-model": whole_model,
    "two-phases": two_phases,
    **diagrams_pretraining.DIAGRAMS,
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
