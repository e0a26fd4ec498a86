"""Write README.md (and the pictures it shows) from nbs/index.ipynb; `--check` only compares.

Markdown cells are copied, code cells become fenced blocks with their text output, and a PNG output
is stored in nbs/images/, with the words of `#| fig-alt: …` for those who do not see it. `#| echo:
false` leaves out the source, `#| hide` all but the picture. Links are relative to nbs/ in the
notebook, and to the root in the README.
"""

import base64
import posixpath
import re
import sys
from pathlib import Path

import nbformat
from stored import how_to_restore, was_run

ROOT = Path(__file__).resolve().parent.parent


def text_of(output) -> str:
    if output.output_type == "stream":
        return output.text
    return output.get("data", {}).get("text/plain", "")


def picture_of(output) -> bytes | None:
    png = output.get("data", {}).get("image/png")
    return base64.b64decode(png) if png else None


def from_root(markdown: str) -> str:
    """Turn links that start at nbs/ into links that start at the root."""
    return re.sub(
        r"\]\((?!https?://|#)([^)]+)\)",
        lambda m: f"]({posixpath.normpath('nbs/' + m[1])})",
        markdown,
    )


def code_cell(cell, pictures: dict[str, bytes]) -> str:
    hidden, silent = (cell.source.startswith(flag) for flag in ("#| hide", "#| echo: false"))
    source = re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M).strip()
    alt = "".join(re.findall(r"^#\| fig-alt: (.*)", cell.source, re.M))
    parts = [] if hidden or silent or not source else [f"```python\n{source}\n```"]
    for output in cell.get("outputs", []):
        if png := picture_of(output):
            name = f"nbs/images/index-{len(pictures) + 1}.png"
            pictures[name] = png
            parts.append(f"![{alt}]({name})")
        elif not hidden and (text := text_of(output).rstrip()):
            parts.append("```text\n" + text + "\n```")
    return "\n\n".join(parts)


def build() -> dict[str, bytes]:
    notebook = nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4)
    pictures: dict[str, bytes] = {}
    parts = [
        from_root(c.source) if c.cell_type == "markdown" else code_cell(c, pictures)
        for c in notebook.cells
    ]
    note = "<!-- Made from nbs/index.ipynb by scripts/build_readme.py: edit the notebook. -->\n\n"
    text = note + "\n\n".join(p for p in parts if p) + "\n"
    return {"README.md": text.encode()} | pictures


def main() -> int:
    index = ROOT / "nbs" / "index.ipynb"
    if was_run(index):
        print(how_to_restore([index], ROOT))
        return 1
    stale = 0
    for name, content in build().items():
        path = ROOT / name
        if path.is_file() and path.read_bytes() == content:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{name} does not match nbs/index.ipynb: run `make export`")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    return stale if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
