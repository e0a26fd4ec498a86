"""The diagrams of chapters 01 and 03: tokenization and input embeddings."""

from drawing import BODY, SMALL, Drawing


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
    "text-to-ids": text_to_ids,
    "greedy-match": greedy_match,
    "wordpiece-merges": merges,
    "padded-batch": padded_batch,
    "embedding-sum": embedding_sum,
    "embedding-example": embedding_example,
}
