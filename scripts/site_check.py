"""Look through a built site: every link leads somewhere, nothing comes from another host, no page
is too heavy.

    python scripts/site_check.py build/site/html
"""

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HEAVY = 3_000_000  # bytes of a page with everything that it loads
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


class Page(HTMLParser):
    """What one page links to, loads, and can be linked at."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        for name in ("href", "src"):
            if found.get(name):
                known = (tag, name) in LOADED and found.get("rel") not in (
                    "index",
                    "search",
                    "next",
                    "prev",
                    "canonical",
                )
                (self.loads if known else self.links).append(found[name])


@cache
def page(file: Path) -> Page:
    """Read a page once."""
    return Page(file.read_text(encoding="utf-8"))


def target(link: str, start: Path) -> Path | None:  # None: another host, or no file at all
    """Find the file that a link on a page means."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    return (start.parent / unquote(parts.path)).resolve() if parts.path else start


def dead(start: Path) -> Iterator[str]:
    """Name the links of a page that lead nowhere."""
    for link in [*page(start).links, *page(start).loads]:
        there, anchor = target(link, start), unquote(urlsplit(link).fragment)
        if there is None:
            continue
        if not there.is_file():
            yield f"{start.name}: {link} is not there"
        elif anchor and there.suffix == ".html" and anchor not in page(there).anchors:
            yield f"{start.name}: {link} has no such place"


def foreign(start: Path) -> Iterator[str]:
    """Name what a page would load from another host."""
    for link in page(start).loads:
        if urlsplit(link).netloc:
            yield f"{start.name}: loads {link}"


def weight(start: Path) -> int:  # bytes
    """Add up a page and everything that it loads."""
    files = {start, *(target(link, start) for link in page(start).loads)} - {None}
    return sum(file.stat().st_size for file in files if file.is_file())


def findings(folder: Path) -> Iterator[str]:
    """Go through all pages."""
    for file in sorted(folder.resolve().rglob("*.html")):
        yield from dead(file)
        yield from foreign(file)
        if weight(file) > HEAVY:
            yield f"{file.name}: {weight(file):,} bytes, more than {HEAVY:,}"


def summary(folder: Path) -> str:
    """Say how large the site is."""
    files = sorted(folder.resolve().rglob("*.html"))
    heaviest = max(files, key=weight)
    links = sum(len(page(file).links) + len(page(file).loads) for file in files)
    return f"{len(files)} pages, {links:,} links; the heaviest is {heaviest.relative_to(folder.resolve())} with {weight(heaviest) / 1e6:.2f} MB"


def main(folder: str) -> int:
    found = list(findings(Path(folder)))
    print(*found, summary(Path(folder)), sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
