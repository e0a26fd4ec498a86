"""What all diagrams are drawn with: one palette for light and dark pages, one font, and shapes that
are collected and written as SVG.
"""

import math

WIDTH = 640
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
BODY, SMALL = 18, 16  # font sizes
PALETTE = {  # name: (light page, dark page)
    "card": ("#fbfaf7", "#1c2129"),
    "ink": ("#1f2933", "#e8ebef"),
    "muted": ("#5b6672", "#a3adb8"),
    "line": ("#aab2bc", "#596473"),
    "cell": ("#ffffff", "#262d37"),
    "query": ("#2f6fb3", "#74b0ec"),
    "query-light": ("#d6e5f5", "#213f5f"),
    "key": ("#c25f17", "#f0a463"),
    "key-light": ("#fae2cf", "#57371d"),
    "value": ("#267f5a", "#67c99e"),
    "value-light": ("#d3eee1", "#1e4837"),
    "weight": ("#6846a8", "#b8a0f2"),
    "weight-light": ("#e6def4", "#3d3160"),
    "head1": ("#0f7f86", "#5cc9cf"),
    "head1-light": ("#cfebec", "#184649"),
    "head2": ("#b83b66", "#ee8fb0"),
    "head2-light": ("#f7dbe5", "#5a2338"),
    "head3": ("#96700a", "#e2bd54"),
    "head3-light": ("#f4e8c6", "#4d3d0e"),
}


def style():
    """Write one fill class and one stroke class per colour, for light and for dark pages."""

    def rules(which):
        lines = []
        for name, colours in PALETTE.items():
            lines.append(f".{name}{{fill:{colours[which]}}} .s-{name}{{stroke:{colours[which]}}}")
        return "\n".join(lines)

    dark = f"@media (prefers-color-scheme: dark) {{\n{rules(1)}\n}}"
    return f"<style>\ntext{{font-family:{FONT}}}\n{rules(0)}\n{dark}\n</style>"


class Drawing:
    """Collect shapes and write them as one SVG file."""

    def __init__(self, height, title, description):
        self.height = height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{title}</title><desc>{description}</desc>",
            style(),
            f'<rect class="card" width="{WIDTH}" height="{height}" rx="14"/>',
        ]

    def rect(self, x, y, w, h, fill, stroke="line", thick=1.2, radius=0, opacity=1):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
            f'class="{fill} s-{stroke}" stroke-width="{thick}" fill-opacity="{opacity:.2f}"/>'
        )

    def outline(self, x, y, w, h, stroke, thick=3, radius=3):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius}" '
            f'fill="none" class="s-{stroke}" stroke-width="{thick}"/>'
        )

    def text(self, x, y, words, colour="ink", size=BODY, anchor="middle", weight=400):
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{colour}" font-size="{size}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>'
        )

    def path(self, d, stroke="muted", thick=2.0, opacity=1.0):
        self.parts.append(
            f'<path d="{d}" fill="none" class="s-{stroke}" stroke-width="{thick:.1f}" '
            f'stroke-opacity="{opacity:.2f}"/>'
        )

    def dashed(self, d, stroke="muted", thick=2.0):
        self.parts.append(
            f'<path d="{d}" fill="none" class="s-{stroke}" stroke-width="{thick:.1f}" '
            f'stroke-dasharray="7 5"/>'
        )

    def dot(self, x, y, radius, colour):
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{colour}"/>')

    def arrow(self, x1, y1, x2, y2, colour="muted", thick=2.2):
        """Draw a straight arrow with a filled head at (x2, y2)."""
        angle = math.atan2(y2 - y1, x2 - x1)
        back_x, back_y = x2 - 10 * math.cos(angle), y2 - 10 * math.sin(angle)
        self.path(f"M{x1:g},{y1:g} L{back_x:.1f},{back_y:.1f}", colour, thick)
        side_x, side_y = 5.5 * math.sin(angle), -5.5 * math.cos(angle)
        self.parts.append(
            f'<path d="M{x2:g},{y2:g} L{back_x + side_x:.1f},{back_y + side_y:.1f} '
            f'L{back_x - side_x:.1f},{back_y - side_y:.1f} Z" class="{colour}"/>'
        )

    def head(self, x, y, size, colour, opacity=1.0):
        """Draw an arrow head that points to the right, its tip at (x, y)."""
        self.parts.append(
            f'<path d="M{x:g},{y:g} l{-14},{-size:.1f} l0,{2 * size:.1f} Z" '
            f'class="{colour}" fill-opacity="{opacity:.2f}"/>'
        )

    def label(self, x, y, name, shape, colour="ink"):
        """Write the name of a tensor and, below it, its shape."""
        self.text(x, y, name, colour, BODY, weight=600)
        self.text(x, y + 21, shape, "muted", SMALL)

    def chip(self, x, y, w, words, h=32):
        """Draw an operation: a rounded box around (x, y)."""
        self.rect(x - w / 2, y - h / 2, w, h, "cell", "muted", 1.4, radius=h / 2)
        self.text(x, y + 6, words, "ink", SMALL)

    def matrix(self, x, y, rows, columns, size, fill, stroke, shade=None):
        """Draw a grid; `shade[i][j]` in [0, 1] colours a cell with `stroke`'s colour instead."""
        for i in range(rows):
            for j in range(columns):
                self.rect(x + j * size, y + i * size, size, size, fill, stroke, 1)
                if shade:
                    self.rect(
                        x + j * size,
                        y + i * size,
                        size,
                        size,
                        stroke,
                        stroke,
                        1,
                        opacity=shade[i][j],
                    )

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def box(d, x, y, w, words, shape, fill, stroke, h=54):
    """Draw a labelled box around (x, y), with a shape or a remark in its second line."""
    d.rect(x - w / 2, y - h / 2, w, h, fill, stroke, 2, radius=8)
    if shape:
        d.text(x, y - 3, words, "ink", SMALL, weight=600)
        d.text(x, y + 17, shape, "muted", SMALL)
    else:
        d.text(x, y + 6, words, "ink", SMALL, weight=600)
