"""The diagram of chapter 17: a batch of two views on its way to the loss."""

from drawing import BODY, SMALL, Drawing

FIRST = (
    ("[CLS]", "it", "rains", ".", "[SEP]", "[PAD]", "[PAD]"),
    ("[CLS]", "she", "cuts", "an", "onion", ".", "[SEP]"),
    ("[CLS]", "nobody", "knows", ".", "[SEP]", "[PAD]", "[PAD]"),
)
SECOND = (
    ("[CLS]", "it", "[MASK]", ".", "[SEP]", "[PAD]", "[PAD]"),
    ("[CLS]", "she", "[MASK]", "[MASK]", "onion", ".", "[SEP]"),
    ("[CLS]", "[MASK]", "knows", ".", "[SEP]", "[PAD]", "[PAD]"),
)


def views():
    """Show the rows of a batch of two views, the one forward pass, and the two matrices of vectors."""
    d = Drawing(
        650,
        "A batch of two views",
        "Three sentences stand in the upper half of a batch, and the same sentences in its lower half, in which a span "
        "of each may be masked. All 2B rows of T tokens pass through the encoder in one forward pass, with another "
        "dropout mask in each row. The result has the shape (2B, D). In training, a projection may follow. The upper "
        "half is the matrix a, the lower half the matrix b, both of shape (B, D). InfoNCE compares each row of a with "
        "all rows of b.",
    )
    width, height = 68, 32
    halves = (
        (24, FIRST, "query", "first views:", "B rows"),
        (142, SECOND, "value", "second views:", "B rows,"),
    )
    for top, rows, colour, words, count in halves:
        for i, row in enumerate(rows):
            for j, token in enumerate(row):
                fill, stroke = f"{colour}-light", colour
                if token == "[MASK]":
                    fill, stroke = "head2-light", "head2"
                if token == "[PAD]":
                    fill, stroke = "card", "line"
                x, y = 14 + j * width, top + i * height
                d.rect(x, y, width - 4, height - 4, fill, stroke, 1.4, radius=4)
                d.text(
                    x + width / 2 - 2, y + 20, token, "muted" if token == "[PAD]" else "ink", SMALL
                )
        d.text(500, top + 40, words, colour, SMALL, "start", 700)
        d.text(500, top + 62, count, colour, SMALL, "start", 700)
    d.text(500, 226, "perhaps masked", "value", SMALL, "start", 700)
    d.arrow(320, 246, 320, 282)
    d.text(336, 270, "token ids (2B, T)", "muted", SMALL, "start")
    d.rect(110, 284, 420, 56, "cell", "muted", 2, radius=8)
    d.text(320, 308, "encoder, one forward pass", "ink", BODY, weight=600)
    d.text(320, 330, "dropout: another mask in each row", "weight", SMALL, weight=600)
    d.arrow(320, 340, 320, 374)
    d.text(336, 363, "vectors (2B, D)", "muted", SMALL, "start")
    d.rect(150, 376, 340, 40, "card", "muted", 1.6, radius=8)
    d.text(320, 402, "projection (optional, training only)", "ink", SMALL)
    for x, name, colour in ((170, "a", "query"), (470, "b", "value")):
        d.arrow(320, 416, x, 456, colour)
        d.rect(x - 90, 458, 180, 40, f"{colour}-light", colour, 2, radius=8)
        d.text(x, 484, f"{name}: (B, D)", colour, BODY, weight=700)
    d.text(320, 458, "split into", "muted", SMALL)
    d.text(320, 478, "two halves", "muted", SMALL)
    d.arrow(200, 498, 280, 540, "query")
    d.arrow(440, 498, 360, 540, "value")
    d.chip(320, 560, 330, "InfoNCE: row i of a belongs to row i of b", 40)
    d.arrow(320, 580, 320, 606)
    d.text(320, 630, "loss: one number", "ink", SMALL, weight=600)
    return d


DIAGRAMS = {"simcse-views": views}
