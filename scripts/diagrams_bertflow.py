"""The diagrams of chapter 20: BERT-flow as a pipeline, and a flow with three levels."""

from drawing import BODY, SMALL, Drawing, box


def pipeline():
    """Show encoder, flow and Gaussian, the log-determinants of the layers, and the inverse."""
    d = Drawing(
        440,
        "BERT-flow",
        "A sentence passes through a frozen BERT encoder and becomes u of shape (B, D). Three "
        "layers, ActNorm, a permutation and a coupling, transform it to z of shape (B, D), which "
        "should follow a standard Gaussian; the group of layers is repeated depth times. ActNorm "
        "has the log-determinant sum of s, the permutation 0 and the coupling 0; their sum has "
        "the shape (B,). The loss combines z and this sum. The inverse leads from samples of the "
        "Gaussian back to vectors.",
    )
    y = 112
    box(d, 76, y, 112, "BERT", "frozen", "cell", "muted")
    d.text(76, 48, "B sentences", "ink", SMALL)
    d.arrow(76, 56, 76, 82)
    d.arrow(132, y, 186, y)
    d.text(160, 78, "u", "query", BODY, weight=600)
    d.text(160, 97, "(B, D)", "muted", SMALL)
    d.rect(190, 50, 318, 112, "weight-light", "weight", 1.6, 12, 0.45)
    for x, words, change in (
        (244, "ActNorm", "Σ s"),
        (347, "permute", "0"),
        (450, "couple", "0"),
    ):
        d.rect(x - 46, y - 22, 92, 44, "cell", "weight", 1.8, 8)
        d.text(x, y + 6, words, "ink", SMALL, weight=600)
        d.arrow(x, y + 24, x, 224, "key", 2)
        d.text(x + 10, 190, change, "key", SMALL, "start", weight=600)
    d.arrow(291, y, 300, y)
    d.arrow(394, y, 403, y)
    d.text(349, 74, "one step, repeated depth times", "weight", SMALL, weight=600)
    d.arrow(508, y, 564, y)
    d.text(536, 78, "z", "value", BODY, weight=600)
    d.text(536, 97, "(B, D)", "muted", SMALL)
    d.rect(566, y - 30, 70, 60, "value-light", "value", 1.8, 8)
    d.text(601, y + 6, "N(0, I)", "ink", SMALL)
    d.rect(190, 226, 318, 44, "key-light", "key", 1.8, 8)
    d.text(349, 254, "sum: log |det|, (B,)", "ink", BODY, weight=600)
    d.path("M601,144 L601,318", "value", 2.2)
    d.arrow(601, 318, 512, 318, "value")
    d.arrow(349, 272, 349, 292, "key")
    d.rect(190, 294, 318, 48, "cell", "ink", 1.8, 8)
    d.text(349, 324, "−log p(u) = −log N(z) − log |det|", "ink", SMALL, weight=600)
    d.path("M601,318 L601,398", "value", 2.2)
    d.path("M601,398 L160,398", "value", 2.2)
    d.arrow(160, 398, 160, 122, "value")
    d.text(349, 388, "inverse: samples z become vectors u", "value", SMALL)
    d.text(20, 424, "Only the parameters of the flow are trained.", "muted", SMALL, "start")
    return d


LEVELS = (
    # top of the row, width in pixels, dimensions, dimensions that are finished here
    (58, 512, 768, 384),
    (168, 256, 384, 192),
    (278, 128, 192, 0),
)


def levels():
    """Show which dimensions each of three levels transforms, and which are finished."""
    d = Drawing(
        486,
        "A flow with three levels",
        "Three rows for D = 768. Level 1 transforms all 768 dimensions in three steps. Its last "
        "384 dimensions are finished and go to z directly. Level 2 transforms the other 384 "
        "dimensions in three steps and finishes 192. Level 3 transforms the last 192 dimensions. "
        "The latent vector z is the concatenation of 192, 192 and 384 finished dimensions.",
    )
    left = 24
    d.text(left, 38, "u: (B, 768)", "query", BODY, "start", weight=600)
    for number, (top, width, dimensions, done) in enumerate(LEVELS, 1):
        d.rect(left, top, width, 52, "weight-light", "weight", 1.8, 8)
        words = f"level {number}: {dimensions} dimensions" if number < 3 else "level 3: 192"
        d.text(left + width / 2, top + 23, words, "ink", SMALL, weight=600)
        d.text(left + width / 2, top + 43, "3 steps", "muted", SMALL)
        if done:
            half = width / 2
            d.arrow(left + half / 2, top + 54, left + half / 2, top + 108, "weight")
            d.text(
                left + half / 2 + 10,
                top + 86,
                f"{dimensions - done} continue",
                "weight",
                SMALL,
                "start",
            )
            x = left + half + half / 2
            d.arrow(x, top + 54, x, 396, "value")
            d.text(x + 10, top + 86, f"{done} finished", "value", SMALL, "start")
    d.arrow(left + 64, 332, left + 64, 396, "value")
    for x, width, dimensions in ((left, 128, 192), (left + 128, 128, 192), (left + 256, 256, 384)):
        d.rect(x, 398, width, 40, "value-light", "value", 1.8, 4)
        d.text(x + width / 2, 424, str(dimensions), "ink", BODY, weight=600)
    d.text(left, 464, "z: (B, 768), should follow N(0, I)", "value", BODY, "start", weight=600)
    return d


DIAGRAMS = {"bertflow-pipeline": pipeline, "bertflow-levels": levels}
