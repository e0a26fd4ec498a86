"""The diagrams of chapter 02, attention."""

import math

from drawing import BODY, SMALL, WIDTH, Drawing


def one_query():
    """Show the attention weights of the query *bank* in two sentences (layer 2, head 1)."""
    river = [
        ("[CLS]", 0.14),
        ("we", 0.00),
        ("sat", 0.00),
        ("on", 0.00),
        ("the", 0.00),
        ("bank", 0.01),
        ("of", 0.02),
        ("the", 0.09),
        ("river", 0.61),
        (".", 0.08),
        ("[SEP]", 0.04),
    ]
    rates = [
        ("[CLS]", 0.07),
        ("the", 0.00),
        ("bank", 0.01),
        ("raised", 0.21),
        ("its", 0.54),
        ("rates", 0.10),
        (".", 0.03),
        ("[SEP]", 0.04),
    ]
    d = Drawing(
        426,
        "One query, two sentences",
        "Lines from the query bank to every token of its sentence. In the first sentence "
        "the thickest line leads to river (weight 0.61), in the second to its (0.54) and "
        "raised (0.21).",
    )
    for left, tokens in ((22, river), (336, rates)):
        step, top = 31, 62 + 31 * (11 - len(tokens)) / 2
        middle = top + step * (len(tokens) - 1) / 2
        d.text(left + 42, 34, "query", "query", SMALL, weight=600)
        d.text(left + 160, 34, "keys", "key", SMALL, "start", 600)
        d.text(left + 276, 34, "weight", "weight", SMALL, "end", 600)
        for i, (_, weight) in enumerate(tokens):
            y = top + step * i
            d.path(
                f"M{left + 84},{middle:g} C{left + 122},{middle:g} {left + 108},{y:g} "
                f"{left + 140},{y:g}",
                "weight",
                1 + 18 * weight,
                0.30 + 0.6 * weight,
            )
            d.head(left + 154, y, 4 + 14 * weight, "weight", 0.45 + 0.5 * weight)
        d.rect(left, middle - 19, 84, 38, "query-light", "query", 2, radius=8)
        d.text(left + 42, middle + 6, "bank", "ink", 20, weight=600)
        for i, (token, weight) in enumerate(tokens):
            y, bold = top + step * i, 700 if weight > 0.15 else 400
            d.text(
                left + 160, y + 6, token, "ink" if weight >= 0.05 else "muted", BODY, "start", bold
            )
            d.text(
                left + 276,
                y + 6,
                f"{weight:.2f}",
                "weight" if weight >= 0.05 else "muted",
                SMALL,
                "end",
                bold,
            )
    d.path("M318,24 L318,402", "line", 1.2)
    return d


def query_key_value():
    """Show three linear layers that compute query, key and value from the same hidden states."""
    d = Drawing(
        452,
        "Query, key and value",
        "The hidden states (T, D) pass through three linear layers in parallel. They give the "
        "queries, the keys and the values, each (T, K). The row of bank is outlined in every matrix.",
    )
    size, left, layer, right = 24, 80, 322, 484
    words, outlined = ["the", "bank", "raised", "rates"], 1
    high = 4 * size
    middle = 216
    top = middle - high / 2
    for i, word in enumerate(words):
        bold = 700 if i == outlined else 400
        d.text(left - 8, top + size * i + 18, word, "ink", SMALL, "end", bold)
    d.matrix(left, top, 4, 3, size, "weight-light", "muted")
    d.outline(left - 1, top + size * outlined - 1, 3 * size + 2, size + 2, "ink", 3.4)
    d.label(left + 36, top - 40, "hidden states", "(T, D)")
    roles = (
        ("query", "Q", "what a token looks for"),
        ("key", "K", "how it can be found"),
        ("value", "V", "what it passes on"),
    )
    for n, (role, letter, meaning) in enumerate(roles):
        y = middle + (n - 1) * 138
        d.arrow(left + 3 * size + 8, middle + (n - 1) * 16, layer - 74, y)
        d.rect(layer - 70, y - 25, 140, 50, f"{role}-light", role, 2, radius=8)
        d.text(layer, y - 3, "linear layer", "ink", SMALL, weight=600)
        for x, name in ((layer - 20, "W"), (layer + 20, "b")):
            d.text(x, y + 17, f"{name}<tspan dy='4'>{letter}</tspan>", "ink", SMALL)
        d.arrow(layer + 74, y, right - 8, y)
        d.matrix(right, y - high / 2, 4, 3, size, f"{role}-light", role)
        d.outline(right - 1, y - high / 2 + size - 1, 3 * size + 2, size + 2, role, 3.4)
        d.text(right + 80, y - 6, role, role, SMALL, "start", 600)
        d.text(right + 80, y + 15, "(T, K)", "muted", SMALL, "start")
        d.text(layer, y + 46, meaning, "muted", SMALL)
    d.text(
        20,
        436,
        "The outlined row belongs to “bank”. With one head, K = D.",
        "muted",
        SMALL,
        "start",
    )
    return d


def scaled_dot_product():
    """Show scores as the product of queries and keys, and the output as weights times values."""
    d = Drawing(
        424,
        "Scaled dot-product attention",
        "The query matrix (T, K) times the transposed key matrix (K, T) gives the dot products "
        "(T, T). Divided by the root of K they are the scores. Mask bias and softmax turn these into "
        "weights (T, T), which multiply the value matrix (T, K) and give the output (T, K).",
    )
    size, top = 26, 208
    q, s, p, o = 68, 164, 394, 516  # left edges
    words, row = ["the", "bank", "raised", "rates"], 1
    for i, word in enumerate(words):
        d.text(
            q - 8,
            top + size * i + 19,
            word,
            "ink" if i == row else "muted",
            SMALL,
            "end",
            700 if i == row else 400,
        )
    weights = [
        [0.55, 0.25, 0.10, 0.10],
        [0.12, 0.06, 0.30, 0.52],
        [0.05, 0.45, 0.15, 0.35],
        [0.05, 0.30, 0.55, 0.10],
    ]
    d.matrix(q, top, 4, 3, size, "query-light", "query")
    d.matrix(s, top - 3 * size - 14, 3, 4, size, "key-light", "key")
    d.matrix(s, top, 4, 4, size, "cell", "weight")
    d.matrix(p, top, 4, 4, size, "cell", "weight", weights)
    d.matrix(o, top - 4 * size - 14, 4, 3, size, "value-light", "value")
    d.matrix(o, top, 4, 3, size, "value-light", "value")
    for left, columns, colour in (
        (q, 3, "query"),
        (s, 4, "weight"),
        (p, 4, "weight"),
        (o, 3, "value"),
    ):
        d.outline(left - 1, top + size * row - 1, columns * size + 2, size + 2, colour, 3.4)
    under = top + 4 * size + 26
    d.label(q + 39, under, "query", "(T, K)", "query")
    d.label(s + 52, under, "dot products", "(T, T)", "weight")
    d.label(p + 52, under, "weights P", "(T, T)", "weight")
    d.label(o + 39, under, "output O", "(T, K)", "value")
    d.label(s + 52, 68, "keyᵀ", "(K, T)", "key")
    d.label(o + 39, 42, "value", "(T, K)", "value")
    for i, words in enumerate(
        ("S = query · keyᵀ / √K", "P = softmax(S + mask bias)", "O = P · value")
    ):
        d.text(280, 68 + 27 * i, words, "ink", SMALL, "start")
    d.arrow(272, 228, 299, 179)
    for y, width, words in ((160, 88, "÷ √K"), (247, 110, "+ mask bias"), (297, 88, "softmax")):
        d.chip(331, y, width, words)
    d.text(331, 208, "scores S", "weight", SMALL, weight=600)
    d.arrow(331, 177, 331, 194)
    d.arrow(331, 213, 331, 230)
    d.arrow(331, 264, 331, 280)
    d.arrow(376, 297, p - 4, 297)
    d.text(
        20,
        402,
        "The outlined row belongs to the query “bank”.",
        "muted",
        SMALL,
        "start",
    )
    return d


def multi_head():
    """Show query, key and value split into heads, attention in each, and the merge."""
    d = Drawing(
        444,
        "Multi-head attention",
        "Query, key and value, each (T, D), are split by columns into three heads (T, K). Each "
        "head attends with its own weights (T, T). The three outputs (T, K) are merged side by "
        "side into a matrix (T, D).",
    )
    size, heads = 18, ["head1", "head2", "head3"]
    patterns = [
        [
            [0.8, 0.1, 0.05, 0.05],
            [0.85, 0.1, 0, 0.05],
            [0.05, 0.85, 0.05, 0.05],
            [0, 0.05, 0.9, 0.05],
        ],
        [
            [0.1, 0.75, 0.1, 0.05],
            [0.05, 0.05, 0.85, 0.05],
            [0.05, 0.05, 0.1, 0.8],
            [0.2, 0.1, 0.1, 0.6],
        ],
        [
            [0.3, 0.25, 0.2, 0.25],
            [0.25, 0.25, 0.25, 0.25],
            [0.2, 0.3, 0.25, 0.25],
            [0.25, 0.2, 0.25, 0.3],
        ],
    ]
    high, gap, middle = 4 * size, 34, 232
    left, parts, maps, out, right = 22, 190, 356, 462, 548
    tops = [middle + (h - 1) * (high + gap) - high / 2 for h in range(3)]
    for n, role in enumerate(("query", "key", "value")):  # (T, D) each, D = 6
        for h, name in enumerate(heads):
            d.matrix(left + 2 * 14 * h, tops[n] + 8, 4, 2, 14, f"{name}-light", name)
        d.outline(left - 1, tops[n] + 7, 6 * 14 + 2, 4 * 14 + 2, role, 3)
        d.text(left + 42, tops[n] - 1, role, role, SMALL, weight=600)
        for h in range(3):
            y = tops[h] + high / 2
            d.path(f"M{left + 90},{tops[n] + 36:g} L{parts - 20},{y:g}", "line", 1.4)
    for h, name in enumerate(heads):
        y = tops[h] + high / 2
        d.arrow(parts - 20, y, parts - 5, y)
        for n, role in enumerate(("query", "key", "value")):
            x = parts + n * 42
            d.matrix(x, tops[h] + 8, 4, 2, 14, f"{name}-light", name)
            d.outline(x - 1, tops[h] + 7, 30, 58, role, 3)
        d.matrix(maps, tops[h], 4, 4, size, "cell", name, patterns[h])
        d.matrix(out, tops[h] + 8, 4, 2, 14, f"{name}-light", name)
        d.matrix(right + 2 * 12 * h, middle - 28, 4, 2, 12, f"{name}-light", name)
        d.arrow(parts + 119, y, maps - 5, y)
        d.arrow(maps + high + 4, y, out - 5, y)
        d.arrow(out + 33, y, right - 6, middle + (h - 1) * 14)
        d.text(maps + high / 2, tops[h] - 9, f"head {h + 1}", name, SMALL, weight=600)
    under = tops[2] + high + 22
    d.text(left + 42, under, "(T, D) each", "muted", SMALL)
    d.text(parts + 57, under, "(T, K) each", "muted", SMALL)
    d.text(maps + 36, under, "(T, T)", "muted", SMALL)
    d.text(out + 14, under, "(T, K)", "muted", SMALL)
    d.label(right + 38, middle + 52, "output", "(T, D)")
    d.text(left, 36, "split_heads", "ink", BODY, "start", 600)
    d.text(left, 57, "(T, D) → (H, T, K)", "muted", SMALL, "start")
    d.text(622, 36, "merge_heads", "ink", BODY, "end", 600)
    d.text(622, 57, "(H, T, K) → (T, D)", "muted", SMALL, "end")
    d.text(
        left,
        426,
        "Here T = 4 tokens, D = 6 dimensions, H = 3 heads and K = D / H = 2.",
        "muted",
        SMALL,
        "start",
    )
    return d


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def padding_mask():
    """Show the mask bias that is added to the columns of padding, and the weights that follow."""
    words = ["we", "sat", "down", "[PAD]", "[PAD]"]
    real = 3
    scores = [
        [1.2, 0.4, -0.3, 0.9, 0.6],
        [0.1, 0.8, 1.5, 0.7, 1.0],
        [-0.5, 1.1, 0.6, 1.3, 0.8],
        [0.2, 0.3, 0.1, 0.5, 0.3],
        [0.5, -0.1, 0.4, 0.4, 0.9],
    ]
    d = Drawing(
        420,
        "A padding mask on the scores",
        "The mask bias is 0 above the columns of real tokens and minus 10,000 above the columns "
        "of padding. After the softmax the columns of padding are zero in every row. The "
        "rows of padding are computed but ignored.",
    )
    cell_w, cell_h, top = 50, 38, 152
    left, right = 58, 378
    for x in (left, right):
        for j, word in enumerate(words):
            d.text(x + cell_w * (j + 0.5), top - 12, word, "key" if j < real else "muted", SMALL)
    for i, word in enumerate(words):
        d.text(
            left - 8, top + cell_h * i + 25, word, "query" if i < real else "muted", SMALL, "end"
        )
    for j in range(5):  # the bias, above the names of the keys
        pad = j >= real
        d.rect(left + cell_w * j, 78, cell_w, 34, "key-light" if pad else "cell", "key")
        d.text(
            left + cell_w * (j + 0.5),
            101,
            "−10⁴" if pad else "0",
            "ink",
            SMALL,
            weight=700 if pad else 400,
        )
    d.text(left - 8, 92, "mask", "key", SMALL, "end", 600)
    d.text(left - 8, 109, "bias", "key", SMALL, "end", 600)
    for i in range(5):
        weights = softmax(scores[i][:real]) + [0, 0]
        for j in range(5):
            y, pad_row, pad = top + cell_h * i, i >= real, j >= real
            d.rect(
                left + cell_w * j, y, cell_w, cell_h, "key-light" if pad else "cell", "weight", 1
            )
            d.text(
                left + cell_w * (j + 0.5),
                y + 25,
                f"{scores[i][j]:.1f}".replace("-", "−"),
                "muted" if pad or pad_row else "ink",
                SMALL,
            )
            d.rect(right + cell_w * j, y, cell_w, cell_h, "cell", "weight", 1)
            d.rect(
                right + cell_w * j,
                y,
                cell_w,
                cell_h,
                "weight",
                "weight",
                1,
                opacity=0.55 * weights[j] * (0.35 if pad_row else 1),
            )
            d.text(
                right + cell_w * (j + 0.5),
                y + 25,
                f"{weights[j]:.2f}" if weights[j] else "0",
                "muted" if pad or pad_row else "ink",
                SMALL,
            )
    d.arrow(left + 5 * cell_w + 6, top + 95, right - 7, top + 95)
    d.text((left + 5 * cell_w + right) / 2, top + 82, "softmax", "muted", SMALL)
    d.label(left + 120, 34, "scores and mask bias", "one mask bias for all rows", "ink")
    d.label(right + 120, 34, "attention weights", "every row sums to 1", "weight")
    d.outline(right + cell_w * real, top, 2 * cell_w, 5 * cell_h, "key", 3)
    d.text(
        right + cell_w * 5,
        top + 5 * cell_h + 24,
        "no attention to padding",
        "key",
        SMALL,
        "end",
        600,
    )
    d.text(left, top + 5 * cell_h + 24, "rows of [PAD] are computed", "muted", SMALL, "start")
    d.text(
        left, top + 5 * cell_h + 45, "like any other, and ignored later", "muted", SMALL, "start"
    )
    return d


def permutation():
    """Show that permuting the input tokens permutes the outputs and changes nothing else."""
    d = Drawing(
        312,
        "Self-attention is permutation-equivariant",
        "The tokens the dog bit the man pass through self-attention. If dog and man are "
        "swapped in the input, their outputs are swapped too, and no output changes.",
    )
    colours = {"the": "line", "dog": "head1", "bit": "head3", "man": "head2"}
    cell, left, right = 54, 18, 352

    def row(x, y, words, dash):
        for j, word in enumerate(words):
            name = colours[word]
            d.rect(
                x + cell * j + 2,
                y,
                cell - 4,
                44,
                "cell" if name == "line" else f"{name}-light",
                name,
                1.8,
                radius=7,
            )
            d.text(x + cell * (j + 0.5), y + 28, word + dash, "ink", BODY, weight=600)

    first, second = ["the", "dog", "bit", "the", "man"], ["the", "man", "bit", "the", "dog"]
    for y, words in ((58, first), (210, second)):
        row(left, y, words, "")
        row(right, y, words, "′")
        d.arrow(left + 5 * cell + 6, y + 22, right - 6, y + 22)
    d.text(left + 2.5 * cell, 36, "input vectors", "muted", SMALL)
    d.text(right + 2.5 * cell, 36, "outputs", "muted", SMALL)
    d.text((left + 5 * cell + right) / 2, 36, "attention", "muted", SMALL)
    for x in (left, right):
        for a, b in ((1, 4), (4, 1)):
            above, below = x + cell * (a + 0.5), x + cell * (b + 0.5)
            curve = f"M{above},108 C{above},150 {below},162 {below},204"
            d.path(curve, "head1" if a == 1 else "head2", 2.4)
    d.text(
        WIDTH / 2,
        290,
        "Swapping two inputs swaps their outputs: no output changes its value.",
        "muted",
        SMALL,
    )
    return d
