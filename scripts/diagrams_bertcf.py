"""The diagram of chapter 21: the stages of BERT-CF, and which loss trains what."""

from drawing import SMALL, Drawing, box

ENCODER, FLOW, LOSS = 178, 338, 522  # horizontal centres of the columns
HALF = 30  # half the height of a box


def frame(d, y, title):
    """Write the title of a row, and draw its two views and its encoder at height y."""
    d.text(24, y - 92, title, "ink", SMALL, "start", 700)
    d.text(52, y - 2, "x, x′", "ink", SMALL, weight=600)
    d.text(52, y + 20, "(B, T)", "muted", SMALL)
    d.arrow(84, y, ENCODER - 58, y)


def encoder(d, y, frozen):
    """Draw the encoder, grey where it is frozen."""
    fill, stroke = ("cell", "muted") if frozen else ("query-light", "query")
    box(d, ENCODER, y, 112, "encoder f", "frozen" if frozen else "trained", fill, stroke, 2 * HALF)


def gradient(d, y, level, start, ends, colour):
    """Draw a dashed gradient from a loss back to the boxes at `ends`, above (level < 0) or below."""
    side = -1 if level < 0 else 1
    d.dashed(f"M{start:g},{y + level:g} L{ends[-1]:g},{y + level:g}", colour)
    for x in ends:
        d.arrow(x, y + level, x, y + side * (HALF + 3), colour)


def with_flow(d, y, frozen):
    """Draw a row with encoder, flow and both losses."""
    encoder(d, y, frozen)
    d.arrow(ENCODER + 58, y, FLOW - 48, y)
    d.text((ENCODER + FLOW + 10) / 2, y + 22, "(B, D)", "muted", SMALL)
    box(d, FLOW, y, 92, "flow F", "trained", "value-light", "value", 2 * HALF)
    for dy, words, fill, stroke in (
        (-34, "0.3 · contrastive loss", "key-light", "key"),
        (34, "− log-likelihood", "weight-light", "weight"),
    ):
        d.arrow(FLOW + 48, y + dy / 4, LOSS - 98, y + 0.8 * dy)
        d.rect(LOSS - 96, y + dy - 22, 192, 44, fill, stroke, 1.8, radius=7)
        d.text(LOSS, y + dy + 6, words, "ink", SMALL)
    d.path(f"M{LOSS - 80},{y - 56} L{LOSS - 80},{y - 70}", "key", 2)
    d.path(f"M{LOSS - 80},{y + 56} L{LOSS - 80},{y + 70}", "weight", 2)


def bertcf_stages():
    """Show stage 1, stage 2 and joint training: the forward pass, and the gradient of each loss."""
    d = Drawing(
        640,
        "The stages of BERT-CF, and which loss trains what",
        "Stage 1: two views of B sentences are encoded, and the gradient of the contrastive loss "
        "reaches the encoder. Stage 2: the encoder is frozen; a flow follows it, and the gradients of "
        "0.3 times the contrastive loss and of the negative log-likelihood both reach the flow only. "
        "Joint training: the gradient of the contrastive loss reaches the flow and the encoder, that of "
        "the likelihood reaches the flow and is stopped before the encoder.",
    )
    y = 112
    frame(d, y, "Stage 1: Mirror-BERT")
    encoder(d, y, frozen=False)
    d.arrow(ENCODER + 58, y, LOSS - 98, y)
    d.text(FLOW - 8, y + 24, "f(x), f(x′)  (B, D)", "muted", SMALL)
    d.rect(LOSS - 96, y - 22, 192, 44, "key-light", "key", 1.8, radius=7)
    d.text(LOSS, y + 6, "contrastive loss", "ink", SMALL)
    d.path(f"M{LOSS - 80},{y - 22} L{LOSS - 80},{y - 60}", "key", 2)
    gradient(d, y, -60, LOSS - 80, (ENCODER,), "key")
    d.path("M24,172 L616,172", "line", 1.2)

    y = 284
    frame(d, y, "Stage 2: flow with contrastive regularization")
    with_flow(d, y, frozen=True)
    gradient(d, y, -70, LOSS - 80, (FLOW,), "key")
    gradient(d, y, 70, LOSS - 80, (FLOW,), "weight")
    d.text(ENCODER, y + 58, "dropout active", "muted", SMALL)
    d.path("M24,374 L616,374", "line", 1.2)

    y = 486
    frame(d, y, "Variant: joint training, without stage 1")
    with_flow(d, y, frozen=False)
    gradient(d, y, -70, LOSS - 80, (FLOW, ENCODER), "key")
    gradient(d, y, 70, LOSS - 80, (FLOW,), "weight")
    d.dashed(f"M{FLOW},{y + 70} L{ENCODER + 84},{y + 70}", "weight")
    d.path(f"M{ENCODER + 82},{y + 56} L{ENCODER + 82},{y + 84}", "weight", 5)
    d.text(ENCODER + 68, y + 76, "stopped: detach", "weight", SMALL, "end", 600)
    d.path("M24,586 L616,586", "line", 1.2)

    d.arrow(28, 614, 64, 614)
    d.text(72, 620, "forward pass", "muted", SMALL, "start")
    d.dashed("M190,614 L226,614", "key")
    d.text(234, 620, "contrastive gradient", "key", SMALL, "start")
    d.dashed("M420,614 L456,614", "weight")
    d.text(464, 620, "likelihood gradient", "weight", SMALL, "start")
    return d


DIAGRAMS = {"bertcf-stages": bertcf_stages}
