"""The diagrams of chapter 16: the margin, the matrix of similarities, and Mirror-BERT's negatives."""

from drawing import BODY, SMALL, Drawing


def margin():
    """Show which pairs the margin loss moves, and which it leaves alone."""
    d = Drawing(
        400,
        "The margin loss",
        "An anchor lies in the middle of a circle whose radius is the margin m. A similar sentence is pulled towards "
        "the anchor. A dissimilar sentence inside the circle is pushed outwards. A dissimilar sentence outside the "
        "circle receives no gradient.",
    )
    x, y, radius = 250, 200, 130
    d.parts.append(
        f'<circle cx="{x}" cy="{y}" r="{radius}" class="query-light s-query" stroke-width="2" '
        f'stroke-dasharray="7 5"/>'
    )
    d.dot(x, y, 9, "ink")
    d.text(x + 8, y + 32, "anchor u", "ink", SMALL, "start", 600)
    d.dashed(f"M{x},{y} L{x - 92},{y + 92}", "query", 1.6)
    d.text(x - 66, y + 52, "m", "query", BODY, "end", 700)
    d.dot(x - 76, y - 46, 9, "value")
    d.arrow(x - 66, y - 40, x - 22, y - 14, "value", 3)
    d.text(x - 70, y - 66, "similar", "value", SMALL, weight=700)
    d.dot(x + 54, y - 34, 9, "key")
    d.arrow(x + 64, y - 40, x + 104, y - 65, "key", 3)
    d.text(x + 66, y - 5, "dissimilar", "key", SMALL, weight=700)
    d.dot(x + 210, y + 84, 9, "key")
    d.text(x + 210, y + 118, "dissimilar", "key", SMALL, weight=700)
    lines = (
        (60, "similar, d = 1 − cos(u, v):", "value", "½ d², pulled together"),
        (140, "dissimilar, d &lt; m:", "key", "½ (m − d)², pushed apart"),
        (236, "dissimilar, d ≥ m:", "muted", "0, and no gradient"),
    )
    for top, words, colour, cost in lines:
        d.text(618, top, words, colour, SMALL, "end", 700)
        d.text(618, top + 22, cost, "ink", SMALL, "end")
    d.text(x, 384, "inside the circle: d &lt; m, cosine above 1 − m", "query", SMALL, weight=600)
    return d


def matrix():
    """Show two views, the matrix of cosines, the positives on its diagonal, and hard negatives."""
    d = Drawing(
        610,
        "InfoNCE with in-batch negatives",
        "A batch of B sentences passes twice through BERT with two dropout masks, which gives the matrices a and b of "
        "shape (B, D). The cosines of all rows, divided by the temperature, form a matrix of shape (B, B). Its "
        "diagonal holds the positives, and all other entries are negatives. Hard negatives add B more columns. Each "
        "row is a classification whose correct class is its own index.",
    )
    d.rect(225, 18, 190, 38, "cell", "muted", 2, radius=8)
    d.text(320, 43, "B sentences", "ink", SMALL, weight=600)
    for centre, number, name, colour in ((150, 1, "a", "query"), (490, 2, "b", "value")):
        d.arrow(320, 56, centre, 86)
        d.rect(centre - 120, 88, 240, 40, f"{colour}-light", colour, 2, radius=8)
        d.text(centre, 114, f"BERT, dropout mask {number}", "ink", SMALL, weight=600)
        d.arrow(centre, 128, centre, 156, colour)
        d.text(centre, 178, f"{name}: (B, D)", colour, SMALL, weight=700)
    d.chip(320, 172, 170, "cosine / τ", 36)
    d.arrow(196, 172, 233, 172, "query")
    d.arrow(444, 172, 407, 172, "value")
    d.arrow(320, 190, 320, 222)
    size, top = 46, 286
    blocks = ((92, "b", "value", "(B, B): a with b"), (312, "h", "head2", "(B, B): a with hard"))
    for left, name, colour, words in blocks:
        d.text(left + 2 * size, top - 42, words, colour, SMALL, weight=700)
        for j in range(4):
            d.text(left + (j + 0.5) * size, top - 12, f"{name}{j + 1}", colour, SMALL)
            for i in range(4):
                positive = name == "b" and i == j
                fill, stroke = ("value-light", "value") if positive else ("key-light", "key")
                d.rect(left + j * size, top + i * size, size, size, fill, stroke, 1.2)
                sign = "+" if positive else "−"
                middle = left + (j + 0.5) * size
                d.text(middle, top + (i + 0.5) * size + 7, sign, "ink", BODY, weight=700)
    for i in range(4):
        d.text(78, top + (i + 0.5) * size + 6, f"a{i + 1}", "query", SMALL, "end")
    d.outline(88, top + size - 3, 412, size + 6, "weight", 3.5, 6)
    d.arrow(502, top + 1.5 * size, 532, top + 1.5 * size, "weight", 3)
    d.text(540, top + 1.5 * size - 6, "softmax,", "weight", SMALL, "start", 700)
    d.text(540, top + 1.5 * size + 16, "class 2", "weight", SMALL, "start", 700)
    d.text(92, 500, "+ positive: the other view of the same sentence", "value", SMALL, "start", 700)
    d.text(92, 526, "− negative: every other sentence of the batch", "key", SMALL, "start", 700)
    words = "h1 … h4: contradictions, from a third pass (optional)"
    d.text(92, 552, words, "head2", SMALL, "start", 700)
    words = "loss: cross-entropy of the B rows; the class of row i is i"
    d.text(92, 586, words, "ink", SMALL, "start", 600)
    return d


def mirror():
    """Show a masked second view, and the two blocks of similarities of Mirror-BERT."""
    d = Drawing(
        480,
        "Mirror-BERT",
        "The first view a is the sentence itself, the second view b hides a span of tokens. The cosines of a with b and "
        "of a with a form two blocks of shape (B, B). The diagonal of the first block holds the positives. The diagonal "
        "of the second block is left out, because a vector is not compared with itself.",
    )
    rows = (
        (26, "query", "a", ("the", "old", "man", "plays", "a", "slow", "song")),
        (86, "value", "b", ("the", "old", "man", "[MASK]", "[MASK]", "slow", "song")),
    )
    for top, colour, name, tokens in rows:
        for i, token in enumerate(tokens):
            hidden = token == "[MASK]"
            fill, stroke = ("head2-light", "head2") if hidden else ("cell", "muted")
            d.rect(16 + 68 * i, top, 64, 36, fill, stroke, 1.4, radius=5)
            d.text(48 + 68 * i, top + 24, token, "ink", SMALL)
        d.arrow(494, top + 18, 530, top + 18, colour)
        d.text(580, top + 24, f"{name}: (B, D)", colour, SMALL, weight=700)
    size, top = 46, 218
    for left, name, colour, words in (
        (110, "b", "value", "(B, B): a with b"),
        (330, "a", "query", "(B, B): a with a"),
    ):
        d.text(left + 2 * size, top - 42, words, colour, SMALL, weight=700)
        for j in range(4):
            d.text(left + (j + 0.5) * size, top - 12, f"{name}{j + 1}", colour, SMALL)
            for i in range(4):
                same = i == j
                fill, stroke, sign = "key-light", "key", "−"
                if same and name == "b":
                    fill, stroke, sign = "value-light", "value", "+"
                if same and name == "a":
                    fill, stroke, sign = "card", "line", ""
                d.rect(left + j * size, top + i * size, size, size, fill, stroke, 1.2)
                middle = left + (j + 0.5) * size
                d.text(middle, top + (i + 0.5) * size + 7, sign, "ink", BODY, weight=700)
    for i in range(4):
        d.text(96, top + (i + 0.5) * size + 6, f"a{i + 1}", "query", SMALL, "end")
    d.text(320, 434, "one positive and 2B − 2 negatives in each row;", "ink", SMALL, weight=600)
    d.text(320, 458, "the empty diagonal is left out", "muted", SMALL)
    return d


DIAGRAMS = {
    "contrastive-margin": margin,
    "contrastive-matrix": matrix,
    "contrastive-mirror": mirror,
}
