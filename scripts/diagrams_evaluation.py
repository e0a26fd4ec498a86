"""The diagram of chapter 12: from predictions to the interval of a difference."""

from drawing import BODY, SMALL, Drawing, box


def evaluation_interval():
    """Show two tables of predictions, the scores of their rows, the differences and the interval."""
    d = Drawing(
        566,
        "From predictions to an interval",
        "Two methods, A and B, each have a table of predictions with S rows, one for each seed, and N columns, one "
        "for each example. A metric compares each row with the labels and gives one score. The difference of the "
        "two mean scores has an interval. It contains the sampling error, because other columns could "
        "have been drawn, and the variance across seeds, because other rows could have been trained.",
    )
    left, size, columns, rows = 78, 26, 8, 3
    width = columns * size
    centre = left + width / 2
    d.text(centre, 30, "N examples", "ink", BODY, weight=700)
    d.path(f"M{left},42 L{left + width},42", "value", 3)
    d.text(left - 10, 72, "labels", "muted", SMALL, "end")
    d.matrix(left, 54, 1, columns, size, "cell", "muted")
    d.text(left + width + 16, 72, "(N,)", "muted", SMALL, "start")
    tables = ((122, "method A", "query", "query-light"), (262, "method B", "key", "key-light"))
    for top, name, stroke, fill in tables:
        d.text(centre, top - 12, f"predictions of {name}, (S, N)", stroke, SMALL, weight=600)
        d.matrix(left, top, rows, columns, size, fill, stroke)
        d.path(f"M{left - 12},{top} L{left - 12},{top + rows * size}", "head2", 3)
        d.text(left - 20, top + rows * size / 2 - 4, "S", "head2", SMALL, "end", weight=700)
        d.text(left - 20, top + rows * size / 2 + 15, "seeds", "head2", SMALL, "end")
        middle = top + rows * size / 2
        d.arrow(left + width + 8, middle, 336, middle)
        d.chip(372, middle, 72, "metric")
        d.arrow(408, middle, 440, middle)
        for i in range(rows):
            d.rect(446, top + i * size, 54, size, fill, stroke)
        d.text(473, top - 12, "scores (S,)", stroke, SMALL, weight=600)
    d.path("M504,161 L576,161 L576,202", "muted")
    d.path("M504,301 L576,301 L576,262", "muted")
    d.text(576, 226, "A − B", "ink", BODY, weight=700)
    d.text(576, 249, "of the means", "muted", SMALL)
    d.path("M616,238 L628,238 L628,502 L590,502", "muted")
    d.arrow(604, 502, 574, 502)
    box(d, 150, 398, 236, "sampling error SE", "other columns (examples)", "value-light", "value")
    box(d, 424, 398, 236, "variance s² / S", "other rows (seeds)", "head2-light", "head2")
    d.arrow(150, 427, 150, 458, "value")
    d.arrow(424, 427, 424, 458, "head2")
    d.rect(72, 460, 500, 84, "cell", "ink", 2, radius=8)
    d.text(322, 488, "interval of the mean difference", "ink", BODY, weight=700)
    d.path("M178,518 L474,518", "muted", 1.4)
    d.path("M250,518 L410,518", "ink", 4)
    d.dot(330, 518, 7, "ink")
    d.path("M178,510 L178,526", "ink", 2)
    d.text(158, 524, "0", "ink", SMALL, "end")
    return d


DIAGRAMS = {"evaluation-interval": evaluation_interval}
