"""The diagrams of chapter 23: the objective of SMART, and projected gradient ascent in a box."""

from drawing import BODY, SMALL, Drawing, box


def clipped(c, low, high):
    """Return the two ends of the line 3 a + 4 b = c inside the square [low, high]^2."""
    ends = []
    for a in (low, high):
        b = (c - 3 * a) / 4
        if low <= b <= high:
            ends.append((a, b))
    for b in (low, high):
        a = (c - 4 * b) / 3
        if low < a < high:
            ends.append((a, b))
    return sorted(ends)[:1] + sorted(ends)[-1:]


def ball():
    """Show two gradient steps inside the box of radius 0.1, and the projection of the second."""
    d = Drawing(
        404,
        "Projected gradient ascent in a box",
        "A square of radius 0.1 around the input. The search starts near the centre, makes a "
        "gradient step to a point inside the square, makes a second step that leaves it, and is "
        "projected back to the upper right corner, where the distance is largest.",
    )
    unit, x0, y0 = 1150, 156, 226  # pixels per 1, the unperturbed input

    def at(a, b):
        return x0 + unit * a, y0 - unit * b

    for c, words in ((-0.35, "0.12"), (0.0, "0"), (0.35, "0.12"), (0.7, "0.49"), (1.05, "1.10")):
        (a1, b1), (a2, b2) = clipped(c, -0.118, 0.165)
        (x1, y1), (x2, y2) = at(a1, b1), at(a2, b2)
        d.path(f"M{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f}", "line", 1.3)
        d.text(x2 + 6, y2 + 5, words, "muted", SMALL, "start")
    left, top = at(-0.1, 0.1)
    d.rect(left, top, 0.2 * unit, 0.2 * unit, "query-light", "query", 2.4, opacity=0.55)
    d.text(left + 6, top + 0.2 * unit - 9, "box, radius ε = 0.1", "query", SMALL, "start", 600)
    points = [at(0.02, -0.01), at(0.08, 0.07), at(0.14, 0.15), at(0.1, 0.1)]
    d.arrow(*points[0], points[1][0] - 5, points[1][1] + 7, "key", 3)
    d.arrow(*points[1], points[2][0] - 5, points[2][1] + 7, "key", 3)
    x3, y3, x4, y4 = *points[2], *points[3]
    d.dashed(f"M{x3:g},{y3 + 7:g} L{x4 + 8:g},{y4 - 2:g}", "weight", 2.6)
    d.dot(x0, y0, 4, "ink")
    d.text(x0 - 9, y0 - 3, "x", "ink", BODY, "end", 600)
    for (x, y), colour in zip(points, ("muted", "key", "key", "weight")):
        d.dot(x, y, 7, colour)
    d.text(points[0][0] + 13, points[0][1] + 8, "1", "muted", BODY, "start", 700)
    d.text(points[1][0] - 13, points[1][1] + 4, "2", "key", BODY, "end", 700)
    d.text(points[2][0] - 13, points[2][1] + 4, "3", "key", BODY, "end", 700)
    d.text(points[3][0] - 2, points[3][1] - 14, "4", "weight", BODY, "end", 700)
    legend = (
        ("1", "start from noise", "δ = (0.02, −0.01)", "muted"),
        ("2", "gradient step", "δ = (0.08, 0.07)", "key"),
        ("3", "step leaves the box", "δ = (0.14, 0.15)", "key"),
        ("4", "project: clamp", "δ = (0.1, 0.1)", "weight"),
    )
    for i, (number, words, value, colour) in enumerate(legend):
        y = 62 + 62 * i
        d.dot(408, y - 6, 14, colour)
        d.text(408, y, number, "card", BODY, weight=700)
        d.text(432, y, words, "ink", SMALL, "start", 600)
        d.text(432, y + 21, value, "muted", SMALL, "start")
    d.path("M394,292 L422,292", "line", 2)
    d.text(432, 297, "equal distance", "ink", SMALL, "start", 600)
    d.text(432, 318, "(3 δ₁ + 4 δ₂)²", "muted", SMALL, "start")
    d.text(
        20,
        392,
        "Largest distance in the box: (0.3 + 0.4)² = 0.49, at point 4.",
        "muted",
        SMALL,
        "start",
    )
    return d


def objective():
    """Show the clean pass, the perturbed pass, the divergence and the training objective."""
    d = Drawing(
        436,
        "The training objective of SMART",
        "The word vectors pass through the model twice, once clean and once with a perturbation "
        "delta. The clean logits and the labels give the loss L. The divergence between both "
        "logits is the penalty R. A search with K gradient steps finds delta while the parameters "
        "are fixed. Training minimizes L plus lambda times R.",
    )

    clean, moved, search = 78, 196, 312
    d.text(20, 34, "clean pass", "query", SMALL, "start", 600)
    d.text(150, 158, "perturbed pass", "key", SMALL, "start", 600)
    box(d, 84, clean, 142, "word vectors x", "(B, T, D)", "cell", "muted")
    box(d, 250, clean, 142, "BERT + head f", "parameters θ", "query-light", "query")
    box(d, 402, clean, 104, "f(x)", "(B, C)", "query-light", "query")
    box(d, 562, clean, 124, "loss L", "with labels", "value-light", "value")
    box(d, 250, moved, 142, "BERT + head f", "the same θ", "key-light", "key")
    box(d, 402, moved, 104, "f(x + δ)", "(B, C)", "key-light", "key")
    box(d, 562, moved, 124, "divergence", "penalty R", "weight-light", "weight")
    box(d, 84, search, 142, "δ, within ± ε", "(B, T, D)", "weight-light", "weight")
    d.dot(82, moved, 17, "muted")
    d.text(82, moved + 7, "+", "card", 22, weight=700)
    d.arrow(156, clean, 178, clean)
    d.arrow(322, clean, 349, clean)
    d.arrow(454, clean, 496, clean)
    d.arrow(82, clean + 27, 82, moved - 20)
    d.arrow(82, search - 27, 82, moved + 20)
    d.arrow(101, moved, 178, moved)
    d.arrow(322, moved, 349, moved)
    d.arrow(454, moved, 496, moved)
    d.arrow(440, clean + 28, 516, moved - 30, "query")
    d.dashed(f"M530,{moved + 27} L530,{search} L168,{search}", "weight", 2.6)
    d.arrow(176, search, 157, search, "weight", 2.6)
    d.text(342, search - 12, "search: K gradient steps on δ,", "weight", SMALL, weight=600)
    d.text(342, search + 24, "each followed by a clamp; θ is fixed", "muted", SMALL)
    d.path(f"M624,{clean} L632,{clean} L632,386 L622,386", "value", 2.4)
    d.arrow(628, 386, 618, 386, "value", 2.4)
    d.arrow(584, moved + 27, 584, 362, "weight", 2.4)
    d.rect(420, 362, 196, 50, "cell", "ink", 2, radius=8)
    d.text(518, 394, "minimize L + λ R", "ink", BODY, weight=600)
    d.text(20, 396, "Training changes θ, and its gradient", "muted", SMALL, "start")
    d.text(20, 417, "flows through both passes.", "muted", SMALL, "start")
    return d


DIAGRAMS = {"smart-objective": objective, "smart-ball": ball}
