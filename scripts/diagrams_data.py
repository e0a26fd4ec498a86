"""The diagrams of chapters 13 and 18: datasets, and the measurement of sentence embeddings."""

from drawing import SMALL, Drawing, box


def data_to_batches():
    """Show how a file becomes a dataset, lists of token ids, and the tensors of a batch."""
    d = Drawing(
        400,
        "From a file to a batch",
        "A file of N lines is read and checked, which gives a dataset of columns: N first sentences, N second sentences "
        "and N labels. Each column is tokenized once into N lists of ids. A sampler chooses B rows, which are padded "
        "into first (B, T1), second (B, T2) and labels (B).",
    )
    box(d, 92, 96, 144, "file", "N lines", "cell", "muted")
    d.arrow(166, 96, 228, 96)
    d.text(197, 78, "read,", "muted", SMALL)
    d.text(197, 122, "check", "muted", SMALL)
    columns = (
        (46, "sentences", "N strings", "query"),
        (112, "sentences2", "N strings", "key"),
        (178, "labels", "N numbers", "value"),
    )
    for y, words, shape, colour in columns:
        box(d, 320, y, 160, words, shape, f"{colour}-light", colour)
    d.outline(230, 10, 180, 204, "muted", 1.6, 10)
    d.text(222, 206, "Dataset", "ink", SMALL, "end", 700)
    for y, colour in ((46, "query"), (112, "key")):
        d.arrow(412, y, 466, y, colour)
        box(d, 548, y, 156, "token ids", "N lists of int", f"{colour}-light", colour)
    d.text(440, 85, "tokenize", "muted", SMALL)
    box(d, 92, 330, 144, "sampler", "rows (B)", "cell", "muted")
    d.arrow(166, 330, 236, 330)
    d.arrow(548, 141, 548, 258)
    d.text(540, 244, "select rows, pad", "muted", SMALL, "end")
    d.arrow(320, 207, 320, 258, "value")
    d.rect(238, 262, 386, 122, "cell", "muted", 1.6, radius=8)
    d.text(431, 288, "TaskBatch", "ink", SMALL, weight=700)
    for x, words, shape, colour in (
        (304, "first", "(B, T₁)", "query"),
        (431, "second", "(B, T₂)", "key"),
        (558, "labels", "(B)", "value"),
    ):
        box(d, x, 338, 112, words, shape, f"{colour}-light", colour)
    return d


DIAGRAMS = {
    "data-to-batches": data_to_batches,
}
