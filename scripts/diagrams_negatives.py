"""The diagram of chapter 18: a batch of pairs, its score matrix, and two false negatives."""

from drawing import BODY, SMALL, Drawing, box

ANCHORS = (
    "People are dancing in a park.",
    "A dog runs along the beach.",
    "A crowd waits outside a shop.",
    "A chef cuts onions.",
)


def batch():
    """Show how the positives of a batch serve as negatives of the other anchors."""
    d = Drawing(
        584,
        "In-batch negatives",
        "Captions and the sentences that they entail pass through the same encoder and become "
        "anchors and positives, both of shape B by D. Their score matrix S of shape B by B has the "
        "positives on its diagonal. All other cells are negatives, but the cells of captions 1 and "
        "3 are false negatives, because both captions entail the sentence People are outside. A "
        "softmax of each row and a cross-entropy with the labels 0 to B minus 1 give the loss.",
    )
    for y, words, name, fill in (
        (52, "B captions", "anchors", "query"),
        (124, "B sentences", "positives", "value"),
    ):
        box(d, 82, y, 128, words, "", "cell", "muted", 40)
        d.arrow(148, y, 184, y)
        box(d, 404, y, 128, name, "(B, D)", f"{fill}-light", fill)
        d.arrow(302, y, 338, y)
        d.arrow(470, y, 505, 84 if y < 84 else 92)
    d.rect(186, 28, 114, 120, "cell", "muted", 2, radius=8)
    d.text(243, 84, "encoder", "ink", SMALL, weight=600)
    d.text(243, 105, "shared", "muted", SMALL)
    box(d, 566, 88, 116, "scores S", "(B, B)", "weight-light", "weight")

    x0, y0, size = 318, 216, 52
    for j in range(4):
        d.text(x0 + size * j + size / 2, y0 - 12, f"p{'₁₂₃₄'[j]}", "value", BODY, weight=600)
    d.text(x0 + 4 * size + 48, y0 - 12, "label", "muted", SMALL)
    for i, words in enumerate(ANCHORS):
        middle = y0 + size * i + size / 2 + 6
        d.text(20, middle, f"a{'₁₂₃₄'[i]}", "query", BODY, "start", 600)
        d.text(50, middle, words, "ink", SMALL, "start")
        d.text(x0 + 4 * size + 48, middle, str(i), "ink", BODY)
        for j in range(4):
            kind = ("−", "key-light", "key", "key")
            if i == j:
                kind = ("+", "value", "value", "card")
            elif {i, j} == {0, 2}:
                kind = ("?", "weight-light", "weight", "weight")
            sign, fill, stroke, colour = kind
            d.rect(
                x0 + size * j + 2,
                y0 + size * i + 2,
                size - 4,
                size - 4,
                fill,
                stroke,
                1.6,
                radius=5,
            )
            d.text(x0 + size * j + size / 2, middle + 1, sign, colour, 22, weight=700)
    d.path("M566,115 L566,166 L422,166", "weight", 2.2)
    d.arrow(422, 166, 422, 212, "weight")
    bottom = y0 + 4 * size
    d.text(20, bottom + 34, "p₁ and p₃  People are outside.", "ink", SMALL, "start")
    d.text(20, bottom + 58, "p₂  An animal is running.", "ink", SMALL, "start")
    d.text(20, bottom + 82, "p₄  A cook prepares food.", "ink", SMALL, "start")
    for k, (sign, words, colour) in enumerate(
        (
            ("+", "positive", "value"),
            ("−", "in-batch negative", "key"),
            ("?", "false negative: p₁ = p₃", "weight"),
        )
    ):
        d.text(x0 + 12, bottom + 34 + 24 * k, sign, colour, BODY, weight=700)
        d.text(x0 + 30, bottom + 34 + 24 * k, words, colour, SMALL, "start", 600)
    d.text(
        20,
        bottom + 120,
        "Each row is a classification: softmax over the row, then",
        "muted",
        SMALL,
        "start",
    )
    d.text(
        20,
        bottom + 142,
        "cross-entropy with its label; the loss is the mean over rows.",
        "muted",
        SMALL,
        "start",
    )
    return d


DIAGRAMS = {"negatives-batch": batch}
