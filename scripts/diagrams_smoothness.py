"""The diagrams of chapter 22: the penalty of SAIR, and projected gradient ascent in two balls."""

from drawing import BODY, SMALL, Drawing, box


def penalty():
    """Show the clean pass, the perturbed pass, the distances, their maximum and the loss."""
    d = Drawing(
        404,
        "The penalty of SAIR with shared perturbations",
        "The sentence embeddings of a batch pass through the head twice, once clean and once with "
        "n perturbations that all examples share. The distance between both outputs is computed "
        "for each example and perturbation. The maximum over the perturbations and the mean over "
        "the batch give the penalty R. Training minimizes the loss L plus lambda times R.",
    )
    clean, moved, low = 84, 200, 332
    d.text(20, 38, "clean pass", "query", SMALL, "start", 600)
    d.text(160, 160, "perturbed pass", "key", SMALL, "start", 600)
    box(d, 90, clean, 140, "embeddings u", "(B, D)", "cell", "muted")
    box(d, 268, clean, 110, "head f", "W, b", "query-light", "query")
    box(d, 410, clean, 104, "f(u)", "(B, C)", "query-light", "query")
    box(d, 562, clean, 124, "loss L", "with labels", "value-light", "value")
    box(d, 268, moved, 110, "head f", "same W, b", "key-light", "key")
    box(d, 410, moved, 104, "f(u + δ)", "(B, n, C)", "key-light", "key")
    box(d, 562, moved, 124, "distance d", "(B, n)", "weight-light", "weight")
    box(d, 96, low, 156, "perturbations δ", "(n, D), norm ε", "weight-light", "weight")
    box(d, 400, low, 160, "maximum over n", "(B,)", "weight-light", "weight")
    box(d, 562, low, 106, "penalty R", "mean, ()", "weight-light", "weight")
    d.dot(90, moved, 17, "muted")
    d.text(90, moved + 7, "+", "card", 22, weight=700)
    d.arrow(160, clean, 212, clean)
    d.arrow(323, clean, 357, clean)
    d.arrow(462, clean, 499, clean)
    d.arrow(90, clean + 27, 90, moved - 18)
    d.arrow(90, low - 27, 90, moved + 18)
    d.arrow(108, moved, 212, moved)
    d.text(160, moved + 26, "(B, n, D)", "muted", SMALL)
    d.arrow(323, moved, 357, moved)
    d.arrow(462, moved, 499, moved)
    d.arrow(440, clean + 28, 520, moved - 29, "query")
    d.path(f"M562,{moved + 27} L562,266 L400,266", "weight", 2.4)
    d.arrow(400, 264, 400, low - 28, "weight", 2.4)
    d.arrow(480, low, 508, low, "weight", 2.4)
    d.text(
        20,
        388,
        "Training minimizes L + λ R; the search does not change the head.",
        "muted",
        SMALL,
        "start",
    )
    return d


def ball():
    """Show one step of projected gradient ascent in a round ball and in a box."""
    d = Drawing(
        404,
        "Projected gradient ascent in an l2 ball and in an l-infinity ball",
        "Left, a disc of radius 0.1 around the embedding u. A step along the gradient leaves the "
        "disc, and the projection shortens the perturbation until it lies on the circle. Right, "
        "a box with coordinates up to 0.1. A step along the signs of the gradient leaves the box, "
        "and the projection clamps each coordinate, which gives the corner.",
    )
    unit = 1150

    def panel(x0, name, shape, stepped, projected, words):
        y0 = 200

        def at(a, b):
            return x0 + unit * a, y0 - unit * b

        d.text(x0, 38, name, "ink", BODY, weight=600)
        if shape == "disc":
            d.parts.append(
                f'<circle cx="{x0}" cy="{y0}" r="{0.1 * unit:g}" class="query-light s-query" '
                'stroke-width="2.4" fill-opacity="0.55"/>'
            )
        else:
            d.rect(
                *at(-0.1, 0.1), 0.2 * unit, 0.2 * unit, "query-light", "query", 2.4, opacity=0.55
            )
        d.path(f"M{x0},{y0} L{x0},{y0 + 0.1 * unit:g}", "query", 1.4)
        d.text(x0 + 8, y0 + 58, "ε = 0.1", "query", SMALL, "start", 600)
        d.dot(x0, y0, 4, "ink")
        d.text(x0 - 10, y0 + 5, "u", "ink", BODY, "end", 600)
        start, end, inside = at(0.05, 0), at(*stepped), at(*projected)
        d.arrow(start[0], start[1], end[0] - 2, end[1] + 7, "key", 3)
        d.dashed(f"M{end[0]:g},{end[1]:g} L{inside[0]:g},{inside[1]:g}", "weight", 2.6)
        for (px, py), colour in ((start, "muted"), (end, "key"), (inside, "weight")):
            d.dot(px, py, 7, colour)
        d.text(start[0] + 2, start[1] + 24, "1", "muted", BODY, weight=700)
        d.text(end[0] + 13, end[1] - 3, "2", "key", BODY, "start", 700)
        above = 2 if shape == "disc" else -14
        d.text(inside[0] - 14, inside[1] + above, "3", "weight", BODY, "end", 700)
        d.text(x0, 350, words, "muted", SMALL)

    panel(160, "ℓ₂ ball: round", "disc", (0.0885, 0.0923), (0.0692, 0.0722), "norm at most 0.1")
    panel(430, "ℓ∞ ball: a box", "box", (0.15, 0.1), (0.1, 0.1), "each coordinate at most 0.1")
    legend = (("1", "start", "muted"), ("2", "gradient step", "key"), ("3", "projection", "weight"))
    for i, (number, words, colour) in enumerate(legend):
        x = 60 + 190 * i
        d.dot(x, 382, 12, colour)
        d.text(x, 388, number, "card", SMALL, weight=700)
        d.text(x + 20, 388, words, "ink", SMALL, "start", 600)
    return d


DIAGRAMS = {"sair-penalty": penalty, "adversarial-ball": ball}
