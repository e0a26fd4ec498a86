"""The diagrams of chapter 19: change of variables, one step of a flow, and a coupling layer."""

from drawing import BODY, SMALL, Drawing, box


def density(d, x0, y0, length, height, ticks, strip, colours):
    """Draw a uniform density on an axis, with a small interval shaded."""
    fill, stroke = colours
    d.rect(x0, y0 - height, length, height, fill, stroke, 2)
    left, right = strip
    d.rect(x0 + left, y0 - height, right - left, height, stroke, stroke, 1, opacity=0.55)
    d.path(f"M{x0 - 24:g},{y0:g} L{x0 + 440:g},{y0:g}", "muted", 1.8)
    for place, words in ticks:
        d.path(f"M{x0 + place:g},{y0:g} L{x0 + place:g},{y0 + 6:g}", "muted", 1.8)
        d.text(x0 + place, y0 + 24, words, "ink", SMALL)


def change_of_variables():
    """Show how the map z = u / 2 carries a uniform density on [0, 2] to one on [0, 1]."""
    d = Drawing(
        450,
        "Change of variables",
        "Above, a uniform density of height 1/2 on the interval from 0 to 2, with a small interval "
        "du shaded. Below, a uniform density of height 1 on the interval from 0 to 1. The map z = "
        "u / 2 makes the small interval half as long and the density twice as high, so that the "
        "shaded area, the probability, stays the same.",
    )
    d.text(24, 40, "u, with density p(u) = 1/2 on [0, 2]", "query", BODY, "start", 600)
    density(
        d, 60, 150, 400, 80, ((0, "0"), (200, "1"), (400, "2")),
        (220, 300), ("query-light", "query"),
    )  # fmt: skip
    d.text(600, 104, "p(u) · du", "query", SMALL, "end", 600)
    d.text(600, 126, "= 1/2 · 0.4 = 0.2", "ink", SMALL, "end")
    d.dashed("M280,182 L170,238", "muted", 1.8)
    d.dashed("M360,182 L210,238", "muted", 1.8)
    d.text(386, 214, "z = u / 2,  |dz/du| = 1/2", "ink", BODY, "start", 600)
    density(
        d, 60, 400, 200, 160, ((0, "0"), (200, "1"), (400, "2")),
        (110, 150), ("value-light", "value"),
    )  # fmt: skip
    d.text(280, 268, "z, with density p_Z(z) = 1 on [0, 1]", "value", BODY, "start", 600)
    d.text(300, 330, "p_Z(z) · dz", "value", SMALL, "start", 600)
    d.text(300, 352, "= 1 · 0.2 = 0.2", "ink", SMALL, "start")
    return d


def flow_step():
    """Show the three layers of one step, with the log-determinants added up."""
    d = Drawing(
        372,
        "One step of a flow",
        "Vectors u of shape (B, D) pass through ActNorm, an invertible linear layer and a coupling "
        "layer, and become z of shape (B, D). Each layer also returns log |det| of its Jacobian, of "
        "shape (B,). The three are added up. The inverse runs through the layers from right to left.",
    )
    layers = (
        (166, "ActNorm", "shift, scale"),
        (320, "linear layer", "mix"),
        (474, "coupling", "bend"),
    )
    box(d, 42, 96, 62, "u", "(B, D)", "query-light", "query")
    box(d, 598, 96, 62, "z", "(B, D)", "value-light", "value")
    for x, name, effect in layers:
        box(d, x, 96, 118, name, effect, "weight-light", "weight")
        d.arrow(x, 123, x, 196, "key")
        d.rect(x - 59, 198, 118, 34, "key-light", "key", 1.6, radius=8)
        d.text(x, 221, "log |det|, (B,)", "ink", SMALL)
        d.arrow(x, 232, x, 286, "key")
    for x1, x2 in ((73, 107), (225, 261), (379, 415), (533, 567)):
        d.arrow(x1, 90, x2, 90)
    d.rect(107, 288, 426, 40, "key-light", "key", 2, radius=8)
    d.text(320, 314, "sum: log |det ∂z/∂u|, (B,)", "ink", BODY, weight=600)
    d.text(320, 40, "forward: left to right", "ink", SMALL, weight=600)
    d.text(320, 356, "inverse: right to left, each layer exactly inverted", "muted", SMALL)
    return d


def half_of_coupling(d, left, words):
    """Draw one direction of an additive coupling, from the top to the bottom."""
    top, sign, (upper, lower), affine, colours = words
    a, b = left + 66, left + 216
    fill, stroke = colours
    d.text(left + 141, 34, top, "ink", BODY, weight=600)
    box(d, a, 84, 116, "a", "(B, D_a)", "query-light", "query")
    box(d, b, 84, 136, upper, "(B, D_b)", fill, stroke)
    d.arrow(a, 111, a, 292)
    d.path(f"M{a:g},190 L{a + 28:g},190", "weight", 2.2)
    d.arrow(a + 28, 190, a + 44, 190, "weight")
    box(d, a + 76, 190, 62, "m", "", "weight-light", "weight", h=44)
    d.arrow(a + 107, 190, b - 17, 190, "weight")
    d.text(a + 76, 238, "(B, D_b)", "muted", SMALL)
    d.arrow(b, 111, b, 173)
    d.rect(b - 17, 173, 34, 34, "cell", "weight", 2, radius=17)
    d.text(b, 197, sign, "ink", 20, weight=600)
    d.arrow(b, 207, b, 292)
    box(d, a, 320, 116, "a", "unchanged", "query-light", "query")
    other = ("value-light", "value") if stroke == "key" else ("key-light", "key")
    box(d, b, 320, 136, lower, "(B, D_b)", *other)
    d.text(left + 141, 384, affine, "ink", SMALL)


def coupling_layer():
    """Show an additive coupling layer beside its inverse."""
    d = Drawing(
        442,
        "A coupling layer and its inverse",
        "Left, forward: the input is split into a and b. The network m computes a shift from a, "
        "which is added to b, and a stays unchanged. Right, inverse: the same network computes the "
        "same shift from the same a, and it is subtracted. The network m itself is never inverted.",
    )
    half_of_coupling(
        d, 18,
        ("forward", "+", ("b", "b′ = b + m(a)"), "affine: b′ = (b + t) · σ(r + 2)",
         ("key-light", "key")),
    )  # fmt: skip
    half_of_coupling(
        d, 340,
        ("inverse", "−", ("b′", "b = b′ − m(a)"), "affine: b = b′ / σ(r + 2) − t",
         ("value-light", "value")),
    )  # fmt: skip
    d.path("M320,56 L320,392", "line", 1.4)
    d.text(
        320,
        422,
        "D_a = ⌊D/2⌋, D_b = D − D_a. The network m runs forwards both times.",
        "muted",
        SMALL,
    )
    return d


DIAGRAMS = {
    "change-of-variables": change_of_variables,
    "flow-step": flow_step,
    "coupling-layer": coupling_layer,
}
