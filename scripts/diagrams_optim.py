"""The diagrams of chapters 05 and 06: AdamW and the training loop."""

from drawing import BODY, SMALL, Drawing, box


def adamw_step():
    """Show how a gradient becomes a step of AdamW."""
    d = Drawing(
        372,
        "One step of AdamW",
        "The gradient g updates m, an average of the gradients, and v, an average of their squares. The step is the "
        "learning rate times m divided by the root of v. The step is subtracted from the parameter p, and then a small "
        "fraction of the parameter itself is subtracted.",
    )
    box(d, 72, 128, 112, "gradient", "g", "key-light", "key")
    d.text(296, 48, "average of the gradients", "muted", SMALL)
    box(d, 296, 82, 250, "m ← β₁ m + (1 − β₁) g", "", "value-light", "value", 46)
    box(d, 296, 174, 250, "v ← β₂ v + (1 − β₂) g²", "", "value-light", "value", 46)
    d.text(296, 219, "average of their squares", "muted", SMALL)
    box(d, 554, 128, 138, "step", "α m / (√v + ε)", "weight-light", "weight")
    d.arrow(128, 120, 170, 92)
    d.arrow(128, 136, 170, 164)
    d.arrow(421, 90, 484, 118)
    d.arrow(421, 166, 484, 138)
    box(d, 72, 318, 112, "parameter", "p", "query-light", "query")
    d.chip(236, 318, 170, "subtract the step")
    d.chip(428, 318, 150, "subtract η λ p")
    box(d, 574, 318, 102, "new", "parameter", "query-light", "query")
    d.arrow(128, 318, 151, 318)
    d.arrow(321, 318, 352, 318)
    d.arrow(503, 318, 522, 318)
    d.path("M554,155 L554,252 L236,252 L236,294", "weight", 2.2)
    d.arrow(236, 284, 236, 301, "weight")
    d.text(428, 290, "weight decay", "muted", SMALL)
    return d


def decoupled_decay():
    """Compare an L2 penalty inside Adam with decoupled weight decay."""
    d = Drawing(
        334,
        "L2 penalty and decoupled weight decay",
        "With an L2 penalty, lambda p is added to the gradient, and Adam divides the sum by the root of v. With "
        "decoupled weight decay, only the gradient of the loss passes through Adam, and the decay is subtracted "
        "from the parameter directly.",
    )
    d.text(24, 34, "Adam with an L2 penalty", "key", BODY, "start", 700)
    box(d, 112, 90, 176, "gradient g + λ p", "", "key-light", "key", 46)
    box(d, 330, 90, 150, "Adam: m / √v", "", "weight-light", "weight", 46)
    box(d, 542, 90, 150, "parameter p", "", "query-light", "query", 46)
    d.arrow(200, 90, 254, 90)
    d.arrow(405, 90, 466, 90)
    d.text(330, 134, "λ p is divided by √v", "muted", SMALL)
    d.path("M24,158 L616,158", "line", 1.4)
    d.text(24, 194, "AdamW: decoupled weight decay", "value", BODY, "start", 700)
    box(d, 112, 244, 176, "gradient g", "", "key-light", "key", 46)
    box(d, 330, 244, 150, "Adam: m / √v", "", "weight-light", "weight", 46)
    box(d, 542, 244, 150, "parameter p", "", "query-light", "query", 46)
    d.arrow(200, 244, 254, 244)
    d.arrow(405, 244, 466, 244)
    d.text(330, 308, "decay η λ p", "value", SMALL, weight=600)
    d.path("M388,302 L542,302 L542,280", "value", 2.2)
    d.arrow(542, 290, 542, 268, "value")
    return d


def training_loop():
    """Show one step of training, what is repeated for each batch, and what a checkpoint contains."""
    d = Drawing(
        560,
        "The training loop",
        "From top to bottom: a batch is read, the losses of all tasks are computed and checked, and the backward pass "
        "adds their gradients. This is repeated for each batch of a step. Then the gradients are checked and clipped, the "
        "optimizer takes its step with the learning rate of the schedule, and a record is yielded. A checkpoint contains "
        "the parameters, the optimizer state, the number of the step, the random state and the position in the data.",
    )
    d.rect(66, 20, 300, 272, "value-light", "value", 1.6, radius=10, opacity=0.55)
    d.text(224, 280, "for each batch", "value", SMALL, "start", 600)
    rows = (
        (56, "batch", "examples (B, …)", "cell", "muted"),
        (142, "losses", "task → (), must be finite", "key-light", "key"),
        (228, "backward pass", "gradients, summed up", "key-light", "key"),
        (336, "clipping", "finite, norm at most c", "weight-light", "weight"),
        (422, "optimizer step", "learning rate of the schedule", "query-light", "query"),
        (508, "record", "step, loss, learning rate, norm", "cell", "muted"),
    )
    for y, words, remark, fill, stroke in rows:
        box(d, 211, y, 256, words, remark, fill, stroke, 56)
    for above, below in zip(rows, rows[1:]):
        d.arrow(211, above[0] + 28, 211, below[0] - 29)
    d.path("M83,508 L36,508 L36,56 L60,56", "muted", 2.2)
    d.arrow(60, 56, 82, 56)
    d.text(8, 553, "next step", "muted", SMALL, "start")
    d.rect(424, 20, 196, 516, "query-light", "query", 1.6, radius=10, opacity=0.45)
    d.text(522, 50, "checkpoint", "query", BODY, weight=700)
    saved = (
        (56, 100, "position", "in the data"),
        (142, 172, "random state", "for dropout"),
        (410, 372, "optimizer state", "m, v, t"),
        (430, 442, "parameters", ""),
        (508, 508, "step number", ""),
    )
    for source, y, words, remark in saved:
        box(d, 522, y, 164, words, remark, "cell", "query", 54 if remark else 40)
        d.dashed(f"M340,{source} L426,{y}", "query", 1.8)
        d.arrow(424, y, 439, y, "query", 1.8)
    return d


def muon():
    """Show one step of Muon, with the singular values before and after orthogonalization."""
    d = Drawing(
        300,
        "One step of Muon",
        "The gradient G updates the momentum M. Its singular values, drawn as bars, fall steeply. "
        "Orthogonalization makes them nearly equal. The result times the learning rate is subtracted "
        "from the weight W.",
    )
    box(d, 74, 92, 116, "gradient", "G (A, B)", "key-light", "key")
    box(d, 244, 92, 148, "momentum", "M = U S Vᵀ", "value-light", "value")
    box(d, 456, 92, 180, "orthogonalized", "≈ U Vᵀ (A, B)", "weight-light", "weight")
    d.arrow(133, 92, 167, 92)
    d.arrow(319, 92, 363, 92)
    d.text(244, 42, "average", "muted", SMALL)
    d.text(456, 42, "Newton–Schulz iteration", "muted", SMALL)
    for x, values, colour in (
        (190, (1, 0.32, 0.2, 0.14, 0.1, 0.07), "value"),
        (402, (1, 0.94, 1.05, 0.9, 0.97, 0.8), "weight"),
    ):
        for i, value in enumerate(values):
            d.rect(x + 18 * i, 200 - 50 * value, 12, 50 * value, f"{colour}-light", colour, 1.2)
    d.text(244, 224, "singular values", "muted", SMALL)
    d.text(456, 224, "singular values", "muted", SMALL)
    box(d, 136, 264, 240, "W ← W − η · step", "", "query-light", "query", 44)
    d.path("M546,92 L592,92 L592,264 L270,264", "weight", 2.2)
    d.arrow(280, 264, 258, 264, "weight")
    d.text(420, 286, "times the learning rate η", "muted", SMALL)
    return d


DIAGRAMS = {
    "muon": muon,
    "adamw-step": adamw_step,
    "decoupled-decay": decoupled_decay,
    "training-loop": training_loop,
}
