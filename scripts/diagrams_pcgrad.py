"""The diagrams of chapter 25: the projection of conflicting gradients, and PCGrad in a model."""

from drawing import BODY, SMALL, Drawing, box

SHORT, LONG = (1.0, 0.2), (-3.0, 1.0)  # the two gradients of the chapter
UNIT = 62  # pixels per 1


def cut(g, other):
    """Project g onto the normal plane of the other gradient."""
    share = (g[0] * other[0] + g[1] * other[1]) / (other[0] ** 2 + other[1] ** 2)
    return g[0] - share * other[0], g[1] - share * other[1]


def plus(a, b):
    return a[0] + b[0], a[1] + b[1]


def projection():
    """Show the sum of two conflicting gradients, and the sum of their projections."""
    d = Drawing(
        316,
        "The plain sum and PCGrad for two conflicting gradients",
        "Left: the gradient of task 1 is short and points to the right, that of task 2 is long and "
        "points to the left. Their sum points into the shaded half plane, in which the loss of "
        "task 1 increases. Right: each gradient is projected onto the normal plane of the other. "
        "The sum of the projections points upwards, outside both shaded half planes.",
    )
    short_cut, long_cut = cut(SHORT, LONG), cut(LONG, SHORT)
    panels = (
        (214, "plain sum", plus(SHORT, LONG), "key"),
        (548, "PCGrad", plus(short_cut, long_cut), "value"),
    )
    base = 198
    for x0, title, total, colour in panels:

        def at(v, x0=x0):
            return x0 + UNIT * v[0], base - UNIT * v[1]

        # the half plane in which a step along the vector increases the loss of task 1
        up, down = at((-0.42, 2.1)), at((0.17, -0.85))
        left = x0 - 196
        d.parts.append(
            f'<path d="M{up[0]:.0f},{up[1]:.0f} L{down[0]:.0f},{down[1]:.0f} L{left},{down[1]:.0f} '
            f'L{left},{up[1]:.0f} Z" class="key-light" fill-opacity="0.55"/>'
        )
        d.text(x0 - 80, 34, title, "ink", BODY, weight=600)
        d.text(left + 8, base + 40, "loss of task 1 rises", "key", SMALL, "start")
        for v, name, shade, dx, dy in (
            (SHORT, "g₁", "query", 12, 20),
            (LONG, "g₂", "weight", 0, -12),
        ):
            x, y = at(v)
            d.arrow(x0, base, x, y, shade, 3)
            d.text(x + dx, y + dy, name, shade, BODY, weight=700)
        x, y = at(total)
        if title == "plain sum":
            d.arrow(x0, base, x, y, colour, 4)
            d.text(x - 6, y - 12, "g₁ + g₂", colour, BODY, weight=700)
        else:
            for v, start, shade in ((short_cut, SHORT, "query"), (long_cut, LONG, "weight")):
                (x1, y1), (x2, y2) = at(start), at(v)
                d.dashed(f"M{x1:.0f},{y1:.0f} L{x2:.0f},{y2:.0f}", shade, 1.8)
                d.arrow(x0, base, x2, y2, shade, 3)
            x1, y1 = at(short_cut)
            d.text(x1 + 10, y1 + 2, "g₁′", "query", BODY, "start", 700)
            x2, y2 = at(long_cut)
            d.text(x2 - 6, y2 - 10, "g₂′", "weight", BODY, "end", 700)
            d.arrow(x0, base, x, y, colour, 4)
            d.text(x + 12, y + 4, "g₁′ + g₂′", colour, BODY, "start", 700)
        d.dot(x0, base, 5, "ink")
    d.text(214 - 80, 280, "inner product with g₁: −1.76", "muted", SMALL)
    d.text(548 - 80, 280, "inner product with g₁: 0.26", "muted", SMALL)
    d.text(214 - 80, 301, "with g₂: 7.20", "muted", SMALL)
    d.text(548 - 80, 301, "with g₂: 2.46", "muted", SMALL)
    return d


def flow():
    """Show how the losses become one gradient: one backward pass a task, and a small matrix."""
    d = Drawing(
        316,
        "PCGrad in a model",
        "T losses are differentiated by T backward passes, which gives gradients of shape T by P. "
        "Their inner products form the Gram matrix of shape T by T. The projections turn it into T "
        "weights. The weighted sum of the gradients has shape P and is written to grad, from which "
        "AdamW makes its step.",
    )
    top, bottom = 76, 214
    box(d, 92, top, 132, "T losses", "one per task", "cell", "muted")
    box(d, 306, top, 158, "gradients g", "(T, P)", "query-light", "query")
    box(d, 306, bottom, 176, "Gram matrix g gᵀ", "(T, T)", "weight-light", "weight")
    box(d, 524, bottom, 132, "weights w", "(T,)", "weight-light", "weight")
    box(d, 524, top, 132, "w g", "(P,)", "value-light", "value")
    d.arrow(158, top, 224, top)
    d.text(188, top - 40, "T backward passes", "muted", SMALL)
    d.arrow(306, top + 28, 306, bottom - 30)
    d.text(318, 148, "inner products", "muted", SMALL, "start")
    d.arrow(395, bottom, 455, bottom)
    d.text(420, bottom + 50, "projections", "muted", SMALL)
    d.arrow(524, bottom - 30, 524, top + 30)
    d.text(536, 148, "sum", "muted", SMALL, "start")
    d.arrow(386, top, 455, top)
    d.arrow(590, top, 622, top, "value")
    d.text(600, top - 40, ".grad", "value", SMALL, weight=600)
    d.text(20, 300, "P: millions of shared parameters, T: a few tasks", "muted", SMALL, "start")
    return d


DIAGRAMS = {"pcgrad-projection": projection, "pcgrad-flow": flow}
