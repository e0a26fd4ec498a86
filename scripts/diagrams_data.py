"""The diagrams of chapters 09 and 14: datasets, and the measurement of sentence embeddings."""

from drawing import BODY, SMALL, Drawing, box


def data_to_batches():
    """Show how a file becomes a dataset, lists of token ids, and the tensors of a batch."""
    d = Drawing(
        464,
        "From a file to a batch",
        "A file of N lines is read and checked, which gives a dataset of columns: N first sentences, N second sentences "
        "and N labels. Each column of sentences is tokenized once into N lists of ids. A sampler chooses B rows, which are "
        "selected from the labels and from both columns of token ids, and padded into labels (B), first (B, T1) and second "
        "(B, T2).",
    )
    box(d, 62, 112, 92, "file", "N lines", "cell", "muted")
    d.arrow(110, 112, 176, 112)
    d.text(142, 94, "read,", "muted", SMALL)
    d.text(142, 138, "check", "muted", SMALL)
    columns = (
        (62, "sentences", "N strings", "query"),
        (128, "sentences2", "N strings", "key"),
        (194, "labels", "N numbers", "value"),
    )
    for y, words, shape, colour in columns:
        box(d, 260, y, 144, words, shape, f"{colour}-light", colour)
    d.outline(178, 26, 164, 204, "muted", 1.6, 10)
    d.text(260, 18, "Dataset", "ink", SMALL, weight=700)
    for y, colour in ((62, "query"), (128, "key")):
        d.arrow(344, y, 458, y, colour)
        box(d, 542, y, 144, "token ids", "N lists of int", f"{colour}-light", colour)
    d.outline(460, 26, 164, 138, "muted", 1.6, 10)
    d.text(400, 100, "tokenize", "muted", SMALL)
    d.arrow(260, 223, 260, 258, "value")
    d.arrow(542, 166, 542, 258)
    d.rect(196, 260, 428, 40, "cell", "muted", 1.6, radius=8)
    d.text(410, 285, "select the rows, pad their token ids", "ink", SMALL)
    box(d, 62, 280, 92, "sampler", "rows (B)", "cell", "muted")
    d.arrow(110, 280, 194, 280)
    d.arrow(410, 300, 410, 328)
    d.rect(196, 330, 428, 122, "cell", "muted", 1.6, radius=8)
    d.text(410, 356, "TaskBatch", "ink", SMALL, weight=700)
    for x, words, shape, colour in (
        (270, "labels", "(B)", "value"),
        (410, "first", "(B, T₁)", "query"),
        (550, "second", "(B, T₂)", "key"),
    ):
        box(d, x, 408, 124, words, shape, f"{colour}-light", colour)
    return d


def four_measures():
    """Show mean cosine, alignment, uniformity and IsoScore on a few points of the plane."""
    d = Drawing(
        560,
        "Four geometric measures",
        "Mean cosine: three arrows, one to the east and two to the north, have the cosines 0, 0 and 1, with the mean 1/3. "
        "Alignment: two positive pairs on the unit circle have squared distances 2 and 0, with the mean 1. Uniformity: "
        "all three pairs have squared distances 2, 2 and 0, and the logarithm of the mean of exp(-2 d) is -1.06. "
        "IsoScore: a cross of four points with the variances 9/2 and 8 has the IsoScore 0.855.",
    )
    d.path("M320,16 L320,544", "line", 1.4)
    d.path("M16,280 L624,280", "line", 1.4)

    # mean cosine
    x, y = 70, 200
    d.text(160, 36, "mean cosine", "ink", BODY, weight=700)
    d.arrow(x, y, x + 120, y, "query", 3)
    d.arrow(x, y, x, y - 130, "key", 3)
    d.arrow(x, y, x, y - 34, "value", 3)
    d.text(x + 126, y + 6, "(2, 0)", "query", SMALL, "start", 600)
    d.text(x + 12, y - 116, "(0, 5)", "key", SMALL, "start", 600)
    d.text(x + 12, y - 24, "(0, 1)", "value", SMALL, "start", 600)
    d.path(f"M{x + 26},{y} A26,26 0 0 0 {x},{y - 26}", "muted", 1.6)
    d.text(160, 250, "cosines 0, 0, 1: mean 1/3", "muted", SMALL)

    # alignment
    x, y, r = 400, 200, 130
    d.text(480, 36, "alignment", "ink", BODY, weight=700)
    d.path(f"M{x + r},{y} A{r},{r} 0 0 0 {x},{y - r}", "line", 1.6)
    d.path(f"M{x + r},{y} L{x},{y - r}", "weight", 3)
    d.dot(x + r, y, 7, "query")
    d.dot(x, y - r, 7, "key")
    d.outline(x - 12, y - r - 12, 24, 24, "value", 2.4, 12)
    d.text(x + 52, y - 52, "d² = 2", "weight", SMALL, "end", 700)
    d.text(x - 18, y - r + 6, "d² = 0", "weight", SMALL, "end", 700)
    d.text(480, 250, "squared distances 2, 0: mean 1", "muted", SMALL)

    # uniformity
    x, y = 80, 480
    d.text(160, 316, "uniformity", "ink", BODY, weight=700)
    d.path(f"M{x + r},{y} A{r},{r} 0 0 0 {x},{y - r}", "line", 1.6)
    d.path(f"M{x + r - 3},{y - 6} L{x + 6},{y - r - 1}", "weight", 2.4)
    d.path(f"M{x + r - 6},{y + 2} L{x - 2},{y - r + 6}", "weight", 2.4)
    d.dot(x + r, y, 7, "query")
    d.dot(x, y - r, 7, "key")
    d.outline(x - 12, y - r - 12, 24, 24, "value", 2.4, 12)
    d.text(x + 50, y - 46, "d² = 2, 2", "weight", SMALL, "end", 700)
    d.text(x - 18, y - r + 6, "d² = 0", "weight", SMALL, "end", 700)
    d.text(160, 530, "log mean of e⁻⁴, e⁻⁴, 1 = −1.06", "muted", SMALL)

    # IsoScore
    x, y = 480, 420
    d.text(480, 316, "IsoScore", "ink", BODY, weight=700)
    d.path(f"M{x - 100},{y} L{x + 100},{y}", "line", 1.6)
    d.path(f"M{x},{y - 84} L{x},{y + 84}", "line", 1.6)
    for dx, dy, words, ax, ay in (
        (54, 0, "(3, 0)", 14, -12),
        (-54, 0, "", 0, 0),
        (0, -72, "(0, 4)", 14, 8),
        (0, 72, "", 0, 0),
    ):
        d.dot(x + dx, y + dy, 7, "query" if dy == 0 else "key")
        if words:
            colour = "query" if dy == 0 else "key"
            d.text(x + dx + ax, y + dy + ay, words, colour, SMALL, "start", 600)
    d.text(480, 530, "variances 9/2 and 8, IsoScore 0.855", "muted", SMALL)
    return d


def sts_protocol():
    """Show how an encoder is evaluated on semantic textual similarity."""
    d = Drawing(
        336,
        "The STS protocol",
        "N pairs with similarity scores. Their U distinct sentences are encoded once by a frozen encoder into (U, D). Each "
        "pair looks up two rows, (N, D) each, and their cosines (N) are compared with the scores (N) by Spearman's rank "
        "correlation, a single number.",
    )
    box(d, 100, 62, 160, "pairs", "N pairs", "cell", "muted")
    d.arrow(182, 62, 232, 62)
    box(d, 320, 62, 172, "distinct sentences", "U strings", "query-light", "query")
    d.arrow(408, 62, 456, 62)
    box(d, 540, 62, 164, "frozen encoder", "no training", "weight-light", "weight")
    d.arrow(540, 91, 540, 138)
    box(d, 540, 168, 164, "embeddings", "(U, D)", "query-light", "query")
    d.arrow(456, 168, 404, 168)
    box(d, 320, 168, 164, "two rows a pair", "2 × (N, D)", "query-light", "query")
    d.arrow(320, 197, 320, 244)
    d.text(332, 226, "cosine", "muted", SMALL, "start")
    box(d, 320, 274, 164, "cosines", "(N)", "key-light", "key")
    d.arrow(404, 274, 456, 274)
    d.arrow(100, 91, 100, 244, "value")
    box(d, 100, 274, 160, "similarity scores", "(N), 0 to 5", "value-light", "value")
    d.path("M100,303 L100,318 L540,318 L540,314", "value")
    d.arrow(540, 318, 540, 303, "value")
    box(d, 540, 274, 164, "Spearman ρ", "()", "cell", "ink")
    return d


DIAGRAMS = {
    "data-to-batches": data_to_batches,
    "four-measures": four_measures,
    "sts-protocol": sts_protocol,
}
