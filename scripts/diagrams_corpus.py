"""The diagram of chapter 28: from text files to batches."""

from drawing import SMALL, Drawing


def corpus_to_batches():
    """Show files, sentences of ids, sequences and batches."""
    d = Drawing(
        330,
        "From text files to batches",
        "Text files with one sentence a line become sentences of token ids. Sentences become sequences that begin "
        "with [CLS] and end with [SEP]. The sequences are shuffled and sorted within windows. A batch ends where "
        "its number of tokens reaches the budget.",
    )
    titles = ((82, "text files"), (240, "sentences"), (400, "sequences"), (558, "batches"))
    for x, words in titles:
        d.text(x, 36, words, "ink", SMALL, weight=700)
    for left, right, words in ((126, 180, "tokenize"), (284, 340, "pack"), (446, 498, "sort, cut")):
        d.arrow(left, 62, right, 62)
        d.text((left + right) / 2, 88, words, "muted", SMALL)
    for y in (112, 144, 176, 208):
        d.rect(44, y, 76, 14, "cell", "muted", 1.2, radius=3)
    d.text(82, 250, "one sentence", "muted", SMALL)
    d.text(82, 270, "a line", "muted", SMALL)
    lengths = (56, 90, 36, 70)
    for y, width in zip((112, 144, 176, 208), lengths):
        d.rect(196, y, width, 14, "value-light", "value", 1.4, radius=3)
    d.text(240, 250, "token ids", "muted", SMALL)
    for y, width in zip((112, 144, 192), (56, 90, 106)):
        d.rect(352, y, width, 14, "value-light", "value", 1.4, radius=3)
        d.rect(340, y, 12, 14, "query-light", "query", 1.4)
        d.rect(352 + width, y, 12, 14, "key-light", "key", 1.4)
    d.text(400, 250, "with [CLS], [SEP]", "muted", SMALL)
    d.text(400, 270, "at most 512 tokens", "muted", SMALL)
    for top, widths in ((108, (44, 48, 52)), (186, (96, 100))):
        d.outline(500, top, 116, 20 * len(widths) + 8, "weight", 2, 6)
        for i, width in enumerate(widths):
            d.rect(508, top + 6 + 20 * i, width, 14, "weight-light", "weight", 1.2, radius=3)
    d.text(558, 250, "tokens ≥ budget,", "muted", SMALL)
    d.text(558, 270, "similar lengths", "muted", SMALL)
    d.text(
        320, 308, "shuffled in every epoch, from the seed and the epoch's number", "muted", SMALL
    )
    return d


DIAGRAMS = {"corpus-to-batches": corpus_to_batches}
