"""The diagram of chapter 30: moving the mean of the hidden states into the biases that read them."""

from drawing import SMALL, Drawing, box


def centering():
    """Show three biases before and after centering."""
    d = Drawing(
        396,
        "Centering",
        "Before, the encoder ends in the bias b, and pooler and head read the hidden states h with W h plus their "
        "bias. After, the last bias of the encoder is b minus c, the hidden states are h minus c, and the biases "
        "of pooler and head have increased by W c, so that the outputs are the same.",
    )
    rows = (
        (112, "before", "last bias: b", "h", "W₁ h + b₁", "W₂ h + b₂", "muted"),
        (
            294,
            "after",
            "last bias: b − c",
            "h − c",
            "W₁(h − c) + (b₁ + W₁c)",
            "W₂(h − c) + (b₂ + W₂c)",
            "key",
        ),
    )
    for y, when, bias, states, pooler, head, colour in rows:
        d.text(24, y - 66, when, colour, SMALL, "start", 700)
        box(d, 98, y, 148, "encoder", bias, "query-light", "query", 66)
        d.text(218, y - 12, states, "ink", SMALL, weight=600)
        d.text(218, y + 24, "(B, T, D)", "muted", SMALL)
        d.arrow(172, y, 264, y)
        d.path(f"M264,{y} L280,{y} M280,{y - 40} L280,{y + 40}", "muted", 2.2)
        for shift, words in ((-40, pooler), (40, head)):
            d.arrow(280, y + shift, 308, y + shift)
            d.rect(310, y + shift - 24, 212, 48, "value-light", "value", 1.8, radius=7)
            d.text(416, y + shift + 6, words, "ink", SMALL)
            d.arrow(522, y + shift, 556, y + shift)
        d.text(598, y - 34, "output", "ink", SMALL)
        d.text(598, y + 46, "output", "ink", SMALL)
    d.text(416, 30, "pooler", "muted", SMALL)
    d.text(416, 195, "MLM head", "muted", SMALL)
    d.text(598, 284, "(same)", "value", SMALL, weight=600)
    d.text(598, 364, "(same)", "value", SMALL, weight=600)
    d.path("M24,206 L616,206", "line", 1.2)
    return d


DIAGRAMS = {"centering": centering}
