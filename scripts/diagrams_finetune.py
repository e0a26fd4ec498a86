"""The diagrams of chapter 13: one encoder for several tasks, passes over two tasks, and a run in
phases.
"""

from drawing import BODY, SMALL, Drawing


def multitask():
    """Show a sampler that chooses task and examples, one shared encoder, and a head for each task."""
    d = Drawing(
        600,
        "Multitask fine-tuning",
        "Three datasets of different size. A sampler chooses a task and a batch of its examples. Their sentences pass "
        "through the shared encoder to the head of the task, whose loss gives gradients to this head and to the encoder.",
    )
    d.text(320, 34, "each step: a task (with the strategy joint: all) and a batch", "muted", SMALL)
    tasks = (
        (110, "sentiment", "2,372", "head1", "linear", "(B, 2)", "cross-entropy"),
        (320, "inference", "6,884", "head2", "linear on u, v, |u − v|", "(B, 3)", "cross-entropy"),
        (530, "similarity", "1,000", "head3", "linear + cosine", "(B,)", "squared error"),
    )
    heights = {"sentiment": 26, "inference": 76, "similarity": 11}  # in proportion to the sizes
    for x, name, size, colour, *_ in tasks:
        h = heights[name]
        d.rect(x - 60, 128 - h, 120, h, f"{colour}-light", colour, 2, radius=4)
        d.text(x, 150, name, colour, SMALL, weight=600)
        d.text(x, 171, f"{size} examples", "muted", SMALL)
        d.arrow(x, 180, 320 + (x - 320) * 0.45, 208, "muted")
    d.rect(150, 210, 340, 58, "weight-light", "weight", 2, radius=8)
    d.text(320, 234, "sampler", "ink", BODY, weight=700)
    d.text(320, 256, "which task? which of its examples?", "muted", SMALL)
    d.arrow(290, 268, 290, 300)
    d.arrow(350, 268, 350, 300)
    d.text(276, 290, "sentence 1 (B, T1)", "muted", SMALL, "end")
    d.text(364, 290, "in pairs: sentence 2 (B, T2)", "muted", SMALL, "start")
    d.rect(150, 302, 340, 62, "query-light", "query", 2, radius=8)
    d.text(320, 328, "shared encoder and pooling", "ink", BODY, weight=700)
    d.text(320, 351, "updated in every step", "muted", SMALL)
    for x, name, _, colour, layer, shape, loss in tasks:
        d.arrow(320 + (x - 320) * 0.45, 364, x, 412, "muted")
        d.rect(x - 98, 414, 196, 76, f"{colour}-light", colour, 2, radius=8)
        d.text(x, 438, f"{name} head", "ink", SMALL, weight=600)
        d.text(x, 459, layer, "muted", SMALL)
        d.text(x, 480, shape, "muted", SMALL)
        d.arrow(x, 490, x, 520, "muted")
        d.text(x, 542, loss, "ink", SMALL, weight=600)
    d.text(330, 395, "u, v (B, D)", "muted", SMALL, "start")
    d.text(320, 578, "a head is updated only in the steps of its own task", "muted", SMALL)
    return d


def passes():
    """Show the batches of two tasks in the six steps of a round-robin epoch."""
    d = Drawing(
        318,
        "Passes over two tasks",
        "Six steps of a round-robin epoch. The task long has ten examples, so that its three batches are one pass. The "
        "task short has four examples, so that each of its batches is a whole pass, in a new order.",
    )
    left, width = 104, 86
    d.text(left - 12, 44, "step", "muted", SMALL, "end")
    for k in range(6):
        d.text(left + k * width + width / 2, 44, str(k + 1), "muted", SMALL)
    d.text(left - 12, 106, "long", "head1", SMALL, "end", 600)
    d.text(left - 12, 206, "short", "head2", SMALL, "end", 600)
    long, short = ("9 3 7 2", "0 4 5 6", "1 8"), ("3 0 1 2", "1 2 0 3", "2 3 1 0")
    for k in range(3):
        for x, y, words, colour in (
            (left + 2 * k * width, 80, long[k], "head1"),
            (left + (2 * k + 1) * width, 180, short[k], "head2"),
        ):
            w = 46 if words == "1 8" else 78
            d.rect(x + 4, y, w, 40, f"{colour}-light", colour, 2, radius=6)
            d.text(x + 4 + w / 2, y + 26, words, "ink", SMALL, weight=600)
    d.path(f"M{left + 4},132 h{4 * width + 46}", "head1", 3)
    d.text(left + 4 + 2 * width + 23, 152, "pass 1: each of 10 examples once", "head1", SMALL)
    for k in range(3):
        x = left + (2 * k + 1) * width
        d.path(f"M{x + 4:g},232 h78", "head2", 3)
        d.text(x + 43, 252, f"pass {k + 1}", "head2", SMALL)
    for k in (1, 2):
        x = left + (2 * k + 1) * width - 8
        d.dashed(f"M{x:g},170 V262", "muted", 2)
        d.text(x, 284, "shuffle", "muted", SMALL)
    d.text(320, 308, "numbers in a block: indices of the examples of the batch", "muted", SMALL)
    return d


def phases():
    """Show a sequential run with three phases beside a run with one phase."""
    d = Drawing(
        330,
        "Phases of a run",
        "A sequential run has three phases, one for each task, each with a new optimizer and its own rise and fall of "
        "the learning rate. A round-robin run has one phase in which the tasks alternate.",
    )
    left, width = 40, 560
    d.text(
        left, 34, "sequential: three phases, each with a new optimizer", "ink", SMALL, "start", 600
    )
    d.text(left, 196, "round robin: one phase, the tasks alternate", "ink", SMALL, "start", 600)
    names = (("sentiment", "head1"), ("inference", "head2"), ("similarity", "head3"))
    third = width / 3
    for i, (name, colour) in enumerate(names):
        x = left + i * third
        d.path(f"M{x:g},104 L{x + third * 0.1:g},52 L{x + third:g},104", "weight", 2.4)
        d.rect(x, 108, third - 4, 30, f"{colour}-light", colour, 1.6, radius=4)
        d.text(x + third / 2, 129, name, "ink", SMALL, weight=600)
        d.text(x + third / 2, 158, "60 steps", "muted", SMALL)
    d.text(left + width - 4, 62, "learning rate", "weight", SMALL, "end")
    d.path(f"M{left},264 L{left + width * 0.1:g},212 L{left + width:g},264", "weight", 2.4)
    step = width / 180
    for i, (_, colour) in enumerate(names):
        places = [left + (k + 0.5) * step for k in range(i, 180, 3)]
        d.path(" ".join(f"M{x:g},268 L{x:g},298" for x in places), colour, 2)
    d.text(
        left,
        322,
        "180 steps: sentiment, inference, similarity, sentiment, …",
        "muted",
        SMALL,
        "start",
    )
    return d


DIAGRAMS = {"multitask-sampler": multitask, "sampler-passes": passes, "phases": phases}
