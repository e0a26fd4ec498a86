"""Diagrams of the chapter on pretraining; see diagrams.py for palette, fonts and helpers."""

from drawing import BODY, SMALL, Drawing, box

TOKEN_WIDTH, FIRST = 77, 12  # eight tokens in a row


def token_row(d, y, tokens, fills):
    """Draw eight tokens side by side; `fills` gives the colour of each."""
    for i, (token, fill) in enumerate(zip(tokens, fills)):
        light = "cell" if fill == "muted" else f"{fill}-light"
        d.rect(FIRST + i * TOKEN_WIDTH + 2, y, TOKEN_WIDTH - 4, 34, light, fill, 1.6, radius=6)
        d.text(middle(i), y + 23, token, "ink", SMALL, weight=600)


def middle(i):
    """Give the horizontal middle of the token number i."""
    return FIRST + (i + 0.5) * TOKEN_WIDTH


def masked_language_modelling():
    """Show which tokens are chosen, what replaces them, and which of them enter the loss."""
    d = Drawing(
        500,
        "Masked language modelling",
        "Three of eight tokens are chosen. One becomes [MASK], which happens to 80 percent of the chosen tokens, "
        "one becomes a random token (10 percent), one stays as it is (10 percent). All eight enter the encoder, "
        "and a head predicts the original token at the three chosen positions; all other labels are -100.",
    )
    colours = ["muted", "muted", "key", "muted", "weight", "muted", "value", "muted"]
    tokens = ["[CLS]", "she", "found", "the", "door", "and", "left", "[SEP]"]
    corrupted = ["[CLS]", "she", "[MASK]", "the", "cloud", "and", "left", "[SEP]"]
    labels = ["−100", "−100", "found", "−100", "door", "−100", "left", "−100"]
    d.text(
        320,
        28,
        "input_ids (T): 15% are chosen (here three, for illustration)",
        "ink",
        SMALL,
        weight=600,
    )
    token_row(d, 40, tokens, colours)
    treatments = (
        (2, "key", "80%: [MASK]"),
        (4, "weight", "10%: random"),
        (6, "value", "10%: same"),
    )
    for i, colour, treatment in treatments:
        d.arrow(middle(i), 78, middle(i), 128, colour)
        d.text(middle(i) + 10, 108, treatment, colour, SMALL, "start", 700)
        d.arrow(middle(i), 286, middle(i), 318, colour)
        d.arrow(middle(i), 374, middle(i), 404, colour)
    token_row(d, 132, corrupted, colours)
    for i, colour in enumerate(colours):
        d.arrow(middle(i), 170, middle(i), 208, colour)
    d.rect(14, 212, 612, 72, "query-light", "query", 2, radius=8)
    d.text(320, 242, "encoder", "ink", BODY, weight=600)
    d.text(320, 266, "hidden states (T, D)", "muted", SMALL)
    box(
        d,
        394,
        346,
        428,
        "MLM head",
        "logits (n, V) for the n chosen tokens only",
        "key-light",
        "key",
    )
    token_row(d, 408, labels, colours)
    d.text(320, 472, "labels (T): cross-entropy where they are not −100", "ink", SMALL, weight=600)
    return d


def next_sentence_input():
    """Show a pair of sentences with segments and positions, and the head on its first token."""
    d = Drawing(
        500,
        "Input and head of next-sentence prediction",
        "Two sentences stand in one row of tokens: [CLS], the first sentence, [SEP], the second sentence, [SEP]. "
        "Token, segment and position embeddings are added. The encoder follows; the pooler maps the hidden state of [CLS] "
        "to one vector, and a linear layer with two outputs decides between next and random sentence.",
    )
    tokens = ["[CLS]", "night", "fell", "[SEP]", "we", "stay", "home", "[SEP]"]
    d.text(middle(1.5), 28, "sentence A", "value", SMALL, weight=700)
    d.text(middle(5.5), 28, "sentence B", "head2", SMALL, weight=700)
    colours = ["muted", "value", "value", "muted", "head2", "head2", "head2", "muted"]
    token_row(d, 40, tokens, colours)
    d.text(320, 96, "+ segment embedding (token_type_ids)", "muted", SMALL)
    token_row(d, 106, list("00001111"), ["value"] * 4 + ["head2"] * 4)
    d.text(320, 162, "+ position embedding", "muted", SMALL)
    token_row(d, 172, list("01234567"), ["muted"] * 8)
    d.arrow(320, 210, 320, 236)
    d.rect(14, 238, 612, 72, "query-light", "query", 2, radius=8)
    d.text(320, 268, "encoder", "ink", BODY, weight=600)
    d.text(320, 292, "hidden states (T, D)", "muted", SMALL)
    d.arrow(middle(0) + 20, 312, middle(0) + 20, 342)
    d.text(middle(0) + 34, 333, "hidden state of [CLS]: (D)", "muted", SMALL, "start")
    box(d, 130, 374, 196, "pooler", "tanh(W h + b): (D)", "query-light", "query")
    d.arrow(230, 374, 268, 374)
    box(d, 364, 374, 188, "NSP head", "logits (2)", "head2-light", "head2")
    d.arrow(460, 374, 492, 374)
    d.text(498, 369, "next or", "ink", SMALL, "start", 600)
    d.text(498, 390, "random?", "ink", SMALL, "start", 600)
    d.text(320, 446, "The MLM head uses the same hidden states,", "muted", SMALL)
    d.text(320, 468, "so both losses need only one forward pass.", "muted", SMALL)
    return d


def pretraining_to_finetuning():
    """Show which parts of the pretrained model are kept for fine-tuning."""
    d = Drawing(
        426,
        "From pretraining to fine-tuning",
        "On the left, encoder and pooler are pretrained with two heads, one for masked tokens and one for sentence pairs. "
        "Both heads are discarded. On the right, the same encoder and pooler continue with a new head for a labelled task.",
    )
    d.text(149, 36, "pretraining", "key", BODY, weight=700)
    d.text(480, 36, "fine-tuning", "head3", BODY, weight=700)
    d.path("M320,20 L320,178", "line", 1.4)
    d.path("M320,316 L320,408", "line", 1.4)
    box(d, 84, 84, 132, "MLM head", "(n, V)", "key-light", "key")
    box(d, 222, 84, 116, "NSP head", "(B, 2)", "head2-light", "head2")
    box(d, 480, 84, 200, "new head", "(B, C)", "head3-light", "head3")
    d.arrow(84, 248, 84, 113)
    d.arrow(222, 168, 222, 113)
    d.arrow(480, 168, 480, 113)
    d.arrow(222, 248, 222, 223)
    d.arrow(480, 248, 480, 223)
    box(d, 222, 195, 116, "pooler", "(B, D)", "query-light", "query")
    box(d, 480, 195, 200, "pooler", "(B, D)", "query-light", "query")
    box(d, 149, 278, 262, "encoder", "hidden states (B, T, D)", "query-light", "query", 60)
    box(d, 480, 278, 200, "encoder", "(B, T, D)", "query-light", "query", 60)
    d.arrow(282, 195, 378, 195, "query", 3)
    d.arrow(282, 278, 378, 278, "query", 3)
    d.text(329, 242, "weights", "query", SMALL, weight=600)
    d.arrow(149, 344, 149, 310)
    d.arrow(480, 344, 480, 310)
    d.text(149, 364, "pairs of sentences", "ink", SMALL, weight=600)
    d.text(149, 386, "some tokens masked,", "muted", SMALL)
    d.text(149, 406, "no human labels", "muted", SMALL)
    d.text(480, 364, "labelled sentences", "ink", SMALL, weight=600)
    d.text(480, 386, "nothing is masked", "muted", SMALL)
    return d


def copy_or_context():
    """Show why a visible token can be copied, whereas a masked token needs its context."""
    d = Drawing(
        400,
        "Copy or context",
        "On the left nothing is masked: the residual connections carry the token door through the encoder, so that "
        "copying it is a perfect prediction. On the right the token is masked: [MASK] carries no information about "
        "door, so the prediction must use the other tokens through self-attention.",
    )
    d.path("M320,24 L320,376", "line", 1.4)
    panels = ((10, "nothing masked", "door", "key"), (330, "masked", "[MASK]", "value"))
    for left, title, second, colour in panels:
        xs = [left + 36 + 76 * i for i in range(4)]
        d.text(left + 150, 38, title, colour, BODY, weight=700)
        d.rect(left + 2, 130, 297, 150, "query-light", "query", 2, radius=8)
        d.text(left + 16, 154, "encoder", "query", SMALL, "start", 700)
        for x, token in zip(xs, ("the", second, "was", "open")):
            d.rect(x - 36.5, 320, 73, 34, "cell", "muted", 1.6, radius=6)
            d.text(x, 343, token, "ink", SMALL, weight=600)
        d.rect(xs[1] - 35, 58, 70, 34, f"{colour}-light", colour, 1.6, radius=6)
        d.text(xs[1], 81, "door", "ink", SMALL, weight=600)
        d.text(xs[1] + 44, 81, "prediction", "muted", SMALL, "start")
    copied = 10 + 36 + 76
    d.arrow(copied, 318, copied, 96, "key", 3)
    d.text(copied + 14, 178, "residual", "key", SMALL, "start", 600)
    d.text(copied + 14, 200, "connections", "key", SMALL, "start", 600)
    d.text(copied + 14, 222, "carry the token", "key", SMALL, "start")
    hidden = 330 + 36 + 76
    for i, side in ((0, -1), (2, 1), (3, 1)):  # context from both sides
        x = 330 + 36 + 76 * i
        d.path(f"M{x},318 C{x},250 {hidden + 10 * side},285 {hidden + 3 * side},232", "value", 2.4)
    d.path(f"M{hidden},318 L{hidden},232", "line", 2.0)
    d.arrow(hidden, 232, hidden, 96, "value", 3)
    d.text(hidden + 16, 178, "self-attention", "value", SMALL, "start", 600)
    d.text(hidden + 16, 200, "to both sides", "value", SMALL, "start")
    d.text(160, 380, "copying is a perfect solution", "ink", SMALL, weight=600)
    d.text(480, 380, "copying is impossible", "ink", SMALL, weight=600)
    return d


DIAGRAMS = {
    "copy-or-context": copy_or_context,
    "masked-language-modelling": masked_language_modelling,
    "next-sentence-input": next_sentence_input,
    "pretraining-to-finetuning": pretraining_to_finetuning,
}
