"""The diagrams of chapters 31 and 26: comparisons under equal conditions."""

from drawing import SMALL, Drawing, box


def controlled_comparison():
    """Show how learning rates, seeds and data sets are used in a controlled comparison."""
    d = Drawing(
        448,
        "A controlled comparison",
        "Each of seven methods is trained with three learning rates and seed 0, and the development set selects one "
        "rate. Then it is trained with seeds 1 to 5; the development set selects the best checkpoint, the test set is "
        "predicted once. Differences from joint training are paired by seed and example.",
    )
    box(d, 320, 44, 400, "one pretrained encoder, one method", "7 methods", "cell", "muted")
    d.arrow(320, 72, 320, 100)
    box(d, 320, 130, 400, "3 learning rates, seed 0", "3 runs", "query-light", "query")
    d.arrow(320, 158, 320, 200)
    d.text(332, 185, "select the rate", "muted", SMALL, "start")
    box(d, 320, 230, 400, "selected rate, seeds 1 to 5", "5 runs", "query-light", "query")
    d.arrow(320, 258, 320, 300)
    d.text(332, 285, "select the best checkpoint", "muted", SMALL, "start")
    box(
        d,
        320,
        330,
        400,
        "predictions for the test set, once",
        "5 seeds × N examples",
        "value-light",
        "value",
    )
    d.arrow(320, 358, 320, 386)
    box(
        d,
        320,
        414,
        560,
        "difference from joint training, 95% interval",
        "paired by seed and example",
        "weight-light",
        "weight",
    )
    d.rect(22, 176, 82, 128, "key-light", "key", 2, radius=8)
    d.text(63, 246, "dev set", "ink", SMALL, weight=600)
    d.arrow(104, 192, 312, 182, "key")
    d.arrow(104, 288, 312, 282, "key")
    d.rect(552, 303, 76, 54, "key-light", "key", 2, radius=8)
    d.text(590, 335, "test set", "ink", SMALL, weight=600)
    d.arrow(552, 330, 524, 330, "key")
    return d


DIAGRAMS = {"controlled-comparison": controlled_comparison}
