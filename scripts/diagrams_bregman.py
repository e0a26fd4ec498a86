"""The diagram of chapter 24: one training step with a proximal penalty."""

from drawing import BODY, SMALL, Drawing, box


def objective():
    """Show the model, its previous iterate, the divergence of both outputs, and the objective."""
    d = Drawing(
        372,
        "One training step with a proximal penalty",
        "A batch of shape (B, T) passes through the model with parameters theta and through the "
        "previous iterate. The outputs of the model and the labels give the loss F. The "
        "divergence between both outputs is the penalty D. Training minimizes F plus mu times D. "
        "Gradients flow to the model only. After each step the previous iterate is updated from "
        "theta: a copy, or an exponential moving average.",
    )
    top, low = 82, 222
    d.text(164, 36, "model in training: receives gradients", "query", SMALL, "start", 600)
    d.text(20, 282, "previous iterate: no gradients", "key", SMALL, "start", 600)
    box(d, 68, 152, 96, "batch x", "(B, T)", "cell", "muted")
    box(d, 246, top, 164, "BERT + head", "parameters θ", "query-light", "query")
    box(d, 246, low, 164, "BERT + head", "parameters θₜ", "key-light", "key")
    box(d, 418, top, 96, "f(x; θ)", "(B, C)", "query-light", "query")
    box(d, 418, low, 96, "f(x; θₜ)", "(B, C)", "key-light", "key")
    box(d, 564, top, 122, "loss F", "with labels", "value-light", "value")
    box(d, 564, low, 122, "divergence", "penalty D", "weight-light", "weight")
    d.arrow(94, 124, 162, top + 10)
    d.arrow(94, 180, 162, low - 10)
    for y in (top, low):
        d.arrow(328, y, 369, y)
        d.arrow(466, y, 502, y)
    d.arrow(440, top + 28, 520, low - 28, "query")
    d.dashed(f"M246,{top + 28} L246,{low - 40}", "key", 2.6)
    d.arrow(246, low - 42, 246, low - 28, "key", 2.6)
    d.text(258, 146, "store θ (lag, epoch)", "key", SMALL, "start", 600)
    d.text(258, 167, "or average θ (EMA)", "key", SMALL, "start", 600)
    d.path(f"M625,{top} L632,{top} L632,328 L606,328", "value", 2.4)
    d.arrow(616, 328, 602, 328, "value", 2.4)
    d.arrow(540, low + 28, 540, 303, "weight", 2.4)
    d.rect(404, 303, 196, 50, "cell", "ink", 2, radius=8)
    d.text(502, 334, "minimize F + μ D", "ink", BODY, weight=600)
    d.text(20, 326, "If both models are equal, D and", "muted", SMALL, "start")
    d.text(20, 348, "its gradient are zero.", "muted", SMALL, "start")
    return d


DIAGRAMS = {"bregman-objective": objective}
