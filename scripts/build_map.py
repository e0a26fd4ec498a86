"""Draw nbs/images/map.svg from the chapters in nbs/: what flows, and which chapter changes what;
`--check` only compares.

Every part is a band of its chapters in reading order; those that change the shape of what they are
given stand in the line above, too.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "nbs" / "images" / "map.svg"
FLOW = [
    ("text", "tokens"),
    ("ids (B, T)", "embedding"),
    ("vectors (B, T, D)", "encoder"),
    ("states (B, T, D)", "sentence"),
    ("vector (B, D)", "heads"),
    # what there is, and the chapter that makes the next of it
    ("logits (B, C)", "losses"),
    ("loss ()", ""),
]
PARTS = {
    "1_bert": ("1  BERT", "a sentence becomes vectors"),
    "2_tasks": ("2  Tasks", "a vector becomes a score"),
    "3_vectors": ("3  Vectors", "what a cosine sees"),
    "4_training": ("4  Training", "steadier and harder lessons"),
    "5_results": ("5  Results", "all of it together"),
}
INK, PALE, BAND, LINE = "#1f2933", "#f5f7fa", "#dfe9f5", "#52606d"
WIDTH, LEFT, BOX, GAP, HIGH, LINES = 972, 190, 120, 8, 34, 6


def text(x: float, y: float, words: str, size: int = 14, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {more}>{escape(words)}</text>'


def box(x: float, y: float, words: str, fill: str) -> list[str]:
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{HIGH - 6}" rx="5" fill="{fill}" stroke="{LINE}"/>',
        text(x + BOX / 2, y + 19, words, 13, 'text-anchor="middle"'),
    ]


def flow(y: float) -> list[str]:
    """Draw what flows, from left to right, with the chapter over each arrow."""
    step, found = (WIDTH - 20) / len(FLOW), []
    for i, (thing, chapter) in enumerate(FLOW):
        x = 10 + i * step
        found.append(
            text(x + step / 2, y + 34, thing, 13, 'text-anchor="middle" font-weight="bold"')
        )
        if chapter:
            found += [
                f'<path d="M{x + step - 38:g} {y + 14:g}h62" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>',
                text(x + step - 8, y + 7, chapter, 13, 'text-anchor="middle" font-style="italic"'),
            ]
    return found


def band(
    y: float,
    part: str,
    chapters: list[str],
    # its drawing, and where the next one begins
) -> tuple[list[str], float]:
    """Draw a part: its name, and its chapters in lines of LINES."""
    rows = -(-len(chapters) // LINES)
    name, says = PARTS[part]
    found = [
        f'<rect x="6" y="{y:g}" width="{WIDTH - 12}" height="{rows * HIGH + 14}" rx="8" fill="{BAND}"/>',
        text(18, y + 24, name, 17, 'font-weight="bold"'),
        text(18, y + 42, says, 11),
    ]
    for i, chapter in enumerate(chapters):
        found += box(LEFT + (i % LINES) * (BOX + GAP), y + 10 + i // LINES * HIGH, chapter, "white")
    return found, y + rows * HIGH + 24


def picture() -> str:
    """Write the whole map."""
    drawn, y = flow(14), 66.0
    for part in PARTS:
        chapters = [
            file.stem.replace("_", " ", 1)
            for file in sorted((ROOT / "nbs" / part).glob("[0-9]*.ipynb"))
        ]
        more, y = band(y, part, chapters)
        drawn += more
    label = "Map of the book: text becomes ids, ids become vectors, vectors become one vector a sentence, then logits, then a loss; below, the chapters of the five parts."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:g}" role="img" aria-label="{label}" font-family="system-ui, sans-serif" fill="{INK}">'
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{y:g}" fill="{PALE}"/>'
    )
    return "\n".join([head, *drawn, "</svg>"]) + "\n"


def main() -> int:
    new = picture()
    if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == new:
        return 0
    if "--check" in sys.argv:
        print("nbs/images/map.svg does not show the chapters of nbs/: run `make export`")
        return 1
    PICTURE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
