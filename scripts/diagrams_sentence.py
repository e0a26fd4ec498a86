"""The diagrams of chapter 08: sentence embeddings, pooling, and the shared mean vector."""

from drawing import BODY, SMALL, Drawing


def sentence_encoder():
    """Show two sentences on their way from text to one cosine similarity."""
    d = Drawing(
        560,
        "A sentence encoder",
        "Two sentences are tokenized to five tokens each, two of them padding in the second sentence. BERT computes "
        "one vector for each token. Pooling averages the vectors of the real tokens, which gives one vector u and one "
        "vector v. Their cosine similarity is a single number.",
    )
    lanes = (
        (168, "Tea is hot", ("[CLS]", "tea", "is", "hot", "[SEP]"), 5, "u", "query"),
        (472, "Hello", ("[CLS]", "hello", "[SEP]", "[PAD]", "[PAD]"), 3, "v", "key"),
    )
    for x, sentence, tokens, real, name, colour in lanes:
        d.rect(x - 75, 18, 150, 36, f"{colour}-light", colour, 2, radius=8)
        d.text(x, 42, sentence, "ink", BODY, weight=600)
        d.arrow(x, 54, x, 76)
        d.path(f"M{x - 143:g},88 V80 H{x + 143:g} V88", "muted", 1.4)
        for i, token in enumerate(tokens):
            left = x - 145 + 58 * i
            padding = i >= real
            fill, stroke = ("card", "line") if padding else ("cell", "muted")
            d.rect(left + 2, 90, 54, 32, fill, stroke, 1.4, radius=5)
            d.text(left + 29, 112, token, "muted" if padding else "ink", SMALL)
            d.arrow(left + 29, 122, left + 29, 162)
            d.arrow(left + 29, 204, left + 29, 236)
            for k in range(4):
                shade = ("card", "line") if padding else (f"{colour}-light", colour)
                d.rect(left + 18, 238 + 18 * k, 22, 18, *shade, 1.2)
            if not padding:
                d.path(f"M{left + 29:g},312 L{x},352", "weight", 2)
        d.chip(x, 366, 232, "mean over real tokens")
        d.arrow(x, 382, x, 408, "weight")
        for k in range(4):
            d.rect(x - 13, 410 + 18 * k, 26, 18, "weight-light", "weight", 1.6)
        d.text(x, 502, f"{name}: (D)", "weight", SMALL, weight=600)
    d.text(320, 68, "tokenizer", "muted", SMALL)
    d.rect(18, 164, 604, 40, "value-light", "value", 2, radius=8)
    words = "BERT: input_ids, attention_mask (B, T) → hidden states (B, T, D)"
    d.text(320, 190, words, "ink", SMALL, weight=600)
    d.chip(320, 446, 164, "cosine similarity")
    d.arrow(184, 446, 236, 446, "weight")
    d.arrow(456, 446, 404, 446, "weight")
    d.arrow(320, 462, 320, 506)
    d.text(320, 530, "one number in [−1, 1]", "ink", SMALL, weight=600)
    return d


def pooling_methods():
    """Show which hidden states six pooling methods use."""
    d = Drawing(
        460,
        "Pooling methods",
        "Six grids with a row for each hidden state, from the embedding layer 0 to the last layer L, and a column for "
        "each token. cls uses the first token of layer L. mean and max use all real tokens of layer L. last2avg uses "
        "those of layers L minus 1 and L, first_last_avg those of layers 1 and L, emb_last_avg those of layers 0 and "
        "L. None uses the padding in the last column.",
    )
    rows = ("L", "L−1", "1", "0")
    size = 24
    grids = (
        (68, 52, "cls", {"L": (0,)}, "first token"),
        (270, 52, "mean", {"L": range(5)}, "mean of 5 vectors"),
        (472, 52, "max", {"L": range(5)}, "max of 5 vectors"),
        (68, 250, "last2avg", {"L": range(5), "L−1": range(5)}, "mean of 10 vectors"),
        (270, 250, "first_last_avg", {"L": range(5), "1": range(5)}, "mean of 10 vectors"),
        (472, 250, "emb_last_avg", {"L": range(5), "0": range(5)}, "mean of 10 vectors"),
    )
    for x, y, name, used, words in grids:
        d.text(x + 3 * size, y - 12, name, "ink", SMALL, weight=700)
        for i, row in enumerate(rows):
            top = y + i * size + (8 if i > 1 else 0)
            d.text(x - 8, top + 19, row, "muted", SMALL, "end")
            for column in range(6):
                if column in used.get(row, ()):
                    shade = ("key", "card") if name == "max" else ("weight", "card")
                else:
                    shade = ("card", "line") if column == 5 else ("cell", "muted")
                d.rect(x + column * size, top, size, size, *shade, 1.1)
        d.text(x + 3 * size, y + 4 * size + 30, words, "muted", SMALL)
    d.text(320, 424, "columns: [CLS], three words, [SEP], padding", "ink", SMALL)
    d.text(320, 446, "rows: hidden state 0 (embedding layer) to L (last layer)", "ink", SMALL)
    return d


def shared_mean():
    """Show four vectors in a narrow cone, and the same vectors after subtracting their mean."""
    d = Drawing(
        300,
        "Subtracting the mean",
        "On the left, four vectors (5, 1), (5, −1), (3, 1) and (3, −1) point in nearly the same direction, because "
        "they share the mean c = (4, 0). On the right the mean has been subtracted: the four vectors point in four "
        "directions, and the first two are orthogonal.",
    )
    unit, y = 58, 164
    left, right = 30, 500
    d.text(185, 34, "with the mean c = (4, 0)", "ink", SMALL, weight=700)
    d.text(500, 34, "mean subtracted", "ink", SMALL, weight=700)
    vectors = ((3, 1, "muted"), (3, -1, "muted"), (5, 1, "query"), (5, -1, "key"))
    d.arrow(left, y, left + 4 * unit, y, "value", 3)
    d.text(left + 4 * unit + 10, y + 6, "c", "value", BODY, "start", 700)
    for a, b, colour in vectors:
        d.arrow(left, y, left + a * unit, y - b * unit, colour, 2.4)
        d.arrow(right, y, right + (a - 4) * unit, y - b * unit, colour, 2.4)
    d.text(left + 5 * unit - 4, y - unit - 12, "u = (5, 1)", "query", SMALL, "end", 600)
    d.text(left + 5 * unit - 4, y + unit + 26, "v = (5, −1)", "key", SMALL, "end", 600)
    d.text(right + unit, y - unit - 12, "(1, 1)", "query", SMALL, weight=600)
    d.text(right + unit, y + unit + 26, "(1, −1)", "key", SMALL, weight=600)
    d.text(185, 284, "cos(u, v) = 24 / 26 = 0.92", "ink", SMALL)
    d.text(500, 284, "cos = 0", "ink", SMALL)
    d.dot(left, y, 4, "ink")
    d.dot(right, y, 4, "ink")
    return d


DIAGRAMS = {
    "sentence-encoder": sentence_encoder,
    "pooling-methods": pooling_methods,
    "shared-mean": shared_mean,
}
