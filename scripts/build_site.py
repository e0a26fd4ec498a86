"""Build the website: assemble its pages from notebooks, package, stored results and site/, let
Sphinx write them, and check them.

    python scripts/build_site.py [FOLDER]     # build/site; its html/ is the site

Nothing is downloaded and no notebook is run; one made-up class is graded, for the instructors'
page.
"""

import shutil
import subprocess
import sys
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "site"))

import nbformat
from site_api import api_pages
from site_chapters import (
    Chapter,
    about_pages,
    chapters,
    docs_pages,
    notebook_pages,
    part_says,
    part_title,
    shown,
)
from site_check import main as check
from site_class import instructors_page
from site_explorers import explorer_pages, gallery, places, write_explorers
from site_map import FLOW, PARTS
from site_tables import (
    curve,
    folded,
    glossary_page,
    handout_page,
    record_page,
    results_page,
    template,
)


def flow() -> str:
    """Draw what flows from text to loss, with the chapter that makes each step."""
    pages = {
        chapter.page.partition("_")[2].partition("_")[2]: chapter.page
        for chapter in chapters()
        if chapter.name[0].isdigit()
    }

    def step(name):
        return f'<a href="{pages[name]}.html">{escape(name)}</a>' if name in pages else escape(name)

    return "".join(
        f"<li><b>{escape(thing)}</b>"
        + (f'<span class="made">{step(name)}</span>' if name else "")
        + "</li>"
        for thing, name in FLOW
    )


def band(part: str) -> str:
    """Draw one part: its name, and a box for each chapter."""
    boxes = "".join(
        f'<li><a href="{c.page}.html" title="{escape(c.question)}">{escape(c.name)}</a></li>'
        for c in chapters()
        if c.page.startswith(part + "/")
    )
    return f'<section class="band"><h2><a href="{part}/index.html">{escape(part_title(part))}</a></h2><p>{escape(part_says(part))}</p><ol>{boxes}</ol></section>'


def map_picture() -> str:
    """Draw the map of chapters so that it fits every screen, and every box leads to its chapter."""
    return f'```{{raw}} html\n<div class="map"><ol class="flow" aria-label="What flows">{flow()}</ol>{"".join(map(band, PARTS))}</div>\n```'


def index_page() -> str:
    """Write the first page."""

    def entries(names):
        return "\n".join(f"{name}/index" for name in names)

    return template("index", map=map_picture(), parts=entries(PARTS))


def guide_page() -> str:
    """Make the page for those who run it from the map of chapters, which is the README, too."""
    notebook = nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = cell.source.replace("#| echo: false", "#| hide").replace("#| slow\n", "")
    made = shown(Chapter("index", "Getting started", "", notebook))
    made.cells[0].source = "# Getting started"
    for cell in made.cells:
        if "hide-cell" in cell.metadata.get("tags", []):
            cell.metadata = cell.metadata | {"tags": ["remove-input"]}
    return nbformat.writes(made)


def pages(folder: Path) -> dict[str, str]:  # path below the sources -> text
    """Write every page."""
    hand = {
        "index.md": index_page(),
        "guide.ipynb": guide_page(),
        "explorers.md": template(
            "explorers",
            table=gallery(),
            pages="\n".join(page.removesuffix(".md") for page in explorer_pages()),
        ),
        "results.md": results_page(),
        "record.md": folded(record_page()),
        "glossary.md": glossary_page(),
        "cs224n.md": handout_page(),
        "instructors.md": instructors_page(folder / "class"),
    }
    return (
        hand
        | notebook_pages(places())
        | explorer_pages()
        | about_pages()
        | docs_pages()
        | api_pages()
    )


def assemble(folder: Path) -> None:
    """Put all sources below `folder`/source."""
    for name, text in pages(folder).items():
        (place := folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    curve(folder / "source")
    shutil.copytree(
        ROOT / "nbs" / "images",
        folder / "source" / "images",
        ignore=shutil.ignore_patterns("*.svg", "index-*"),
    )


def build(folder: Path) -> int:  # exit status
    """Let Sphinx write the site; a warning is an error."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-j",
        "auto",
        "-c",
        ROOT / "site",
        folder / "source",
        folder / "html",
    ]
    status = subprocess.run(command).returncode
    write_explorers(folder / "html")
    shutil.copytree(folder / "class" / "grades", folder / "html" / "grades", dirs_exist_ok=True)
    return status


def main(place: str = "build/site") -> int:
    folder, start = (ROOT / place).resolve(), time.time()
    # what is made here, and nothing else that lies in the folder
    for part in ("source", "html", "class"):
        shutil.rmtree(folder / part, ignore_errors=True)
    assemble(folder)
    middle = time.time()
    status = build(folder) or check(folder / "html")
    print(
        f"{middle - start:.0f} s to assemble, {time.time() - middle:.0f} s to write and check: {folder / 'html' / 'index.html'}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
