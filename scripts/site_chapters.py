"""Pages of notebooks: each cell as a reader of the site wants it, and beside the title what a
chapter costs and builds on.
"""

import ast
import base64
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nbformat
import yaml
from nbformat.v4 import new_markdown_cell
from pacing import pace
from site_map import PARTS

from minbert.core import figures
from minbert.course.learner_notebooks import directives, marks_of

ROOT = Path(__file__).resolve().parent.parent
NBS = ROOT / "nbs"
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
LABELS = {"xlabel", "ylabel", "title", "label", "suptitle"}  # of matplotlib
FORMAT = re.compile(r"[+,]?\d*,?(\.\d+)?[defg%]")  # of a number, such as ",.2f"
ROW = re.compile(r"^\| *(\d*) *\| *\[\w+\]\(\.\./nbs/([\w/]+)\.ipynb\) *\| *(.*?) *\|", re.M)


class Chapter(NamedTuple):
    """One chapter of the book, or the instructor's guide."""

    page: str  # such as "1_bert/02_attention"
    title: str  # its first heading
    question: str  # from the map of chapters
    notebook: nbformat.NotebookNode

    @property
    def name(self) -> str:
        """Such as "02 attention"."""
        return self.page.rpartition("/")[2].replace("_", " ", 1)

    @property
    def module(self) -> str:
        """What it exports, such as "attention", or nothing."""
        return next(
            (
                rest
                for cell in self.notebook.cells
                for name, rest in directives(cell.source)
                if name == "default_exp"
            ),
            "",
        )


@cache
def chapter_list() -> str:
    """Read the page that lists the chapters with their questions."""
    return (DOCS / "chapters.md").read_text(encoding="utf-8")


@cache
def index_cells() -> list[str]:
    """Read the texts of the first page."""
    return [
        cell.source
        for cell in nbformat.read(NBS / "index.ipynb", as_version=4).cells
        if cell.cell_type == "markdown"
    ]


@cache
def chapters() -> list[Chapter]:
    """Read all notebooks in the order of the map."""
    rows = ROW.findall(chapter_list())
    return [read(page, question) for _, page, question in rows]


def read(page: str, question: str) -> Chapter:
    """Read one notebook."""
    notebook = nbformat.read(NBS / f"{page}.ipynb", as_version=4)
    title = re.match(r"# (.*)", notebook.cells[0].source)[1]
    return Chapter(page, title, question, notebook)


def book() -> list[Chapter]:
    """Give the numbered chapters."""
    return [chapter for chapter in chapters() if chapter.name[0].isdigit()]


def imported(chapter: Chapter) -> list[Chapter]:
    """Find the chapters whose modules the cells of a chapter import."""
    code = "\n".join(
        re.sub(r"^\s*[%!].*", "", cell.source, flags=re.M)
        for cell in chapter.notebook.cells
        if cell.cell_type == "code" and "google.colab" not in cell.source
    )
    names = {
        node.module.removeprefix("minbert.")
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    return [other for other in book() if other.module in names - {""} and other.page < chapter.page]


@cache
def known_papers() -> list[dict]:
    """Read which papers there are: how chapters cite them, title and place."""
    return yaml.safe_load((ROOT / "site" / "papers.yml").read_text(encoding="utf-8"))


def pattern(paper: dict) -> str:
    """Find a paper as "Kingma & Ba (2015)", "Kingma and Ba, 2015" or "(Kingma and Ba 2015, section
    2)".
    """
    who, _, year = paper["cited"].rstrip(")").partition(" (")
    return paper.get("find") or rf"{re.escape(who)},? \(?{year}\b"


def papers(chapter: Chapter) -> list[str]:
    """Name the papers that a chapter cites."""
    text = "\n".join(cell.source for cell in chapter.notebook.cells).replace(" & ", " and ")
    return [
        f"{paper['cited']}, *{paper['title']}*"
        for paper in known_papers()
        if re.search(pattern(paper), text)
    ]


def link(chapter: Chapter, start: str) -> str:
    """Link to a chapter from the page `start`."""
    return f"[{chapter.name}]({posixpath.relpath(chapter.page, posixpath.dirname(start) or '.')}.ipynb)"


def glance(chapter: Chapter) -> str:
    """Write what stands below the title of a chapter: time, what comes before, papers, exercises,
    its module.
    """
    tasks = [mark for mark in marks_of(chapter.notebook) if not mark.optional]
    before, read = imported(chapter), papers(chapter)
    rows = [
        ("Question", chapter.question),
        (
            "Time",
            f"about {round(pace(NBS / f'{chapter.page}.ipynb').minutes)} minutes, reading and exercises",
        ),
        (
            "Builds on",
            ", ".join(link(other, chapter.page) for other in before) or "no other chapter",
        ),
        ("Papers", "; ".join(read)),
    ]
    if tasks:
        rows.append(("Exercises", f"{len(tasks)}, {sum(mark.points for mark in tasks)} points"))
    if chapter.module:
        rows.append(
            (
                "Exports",
                f"[minbert.{chapter.module}]({posixpath.relpath('api', posixpath.dirname(chapter.page))}/{chapter.module}.md)",
            )
        )
    lines = "\n".join(f":{name}: {text}" for name, text in rows if text)
    return f":::{{container}} glance\n\n{lines}\n:::"


def said(node: ast.expr) -> list[str]:
    """Read the words of an argument: a string, one with places to fill in, or the labels of a dict."""
    if isinstance(node, ast.Dict):
        return [word for key in node.keys if key is not None for word in said(key)]
    parts = (
        node.values
        if isinstance(node, ast.JoinedStr)
        else [node]
        if isinstance(node, ast.Constant)
        else []
    )
    return (
        ["".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)]
        if all(isinstance(getattr(part, "value", None), (str, ast.expr)) for part in parts)
        else []
    )


def labels(call: ast.Call, helpers: dict[str, list[str]]) -> list[str]:
    """Find what a call writes on a picture: all words given to one of our figure functions or to a
    helper, or what matplotlib takes as a label or a title.
    """
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    # an explorer
    owner = getattr(getattr(call.func, "value", None), "id", "") if name == "figure" else ""
    ours = isinstance(call.func, ast.Name) and name in {*figures.__all__, *helpers}
    named = [keyword.value for keyword in call.keywords if keyword.arg in LABELS or ours]
    given = [
        word
        for arg in [*(call.args if ours or name.removeprefix("set_") in LABELS else []), *named]
        for word in said(arg)
    ]
    return given + helpers.get(owner or name if ours or owner else "", [])


def on_pictures(tree: ast.AST, helpers: dict[str, list[str]]) -> list[str]:
    """Find the words on all pictures that some code draws, in the order of the code."""
    calls = sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.Call)),
        key=lambda call: (call.lineno, call.col_offset),
    )
    words = [
        word
        for call in calls
        for word in labels(call, helpers)
        if len(re.findall(r"\w", word)) > 2 and word not in ("log", "linear", "both")
    ]
    return [
        word
        for word in dict.fromkeys(" ".join(word.split()) for word in words)
        if not FORMAT.fullmatch(word)
    ]


def drawers(tree: ast.Module, helpers: dict[str, list[str]]) -> dict[str, list[str]]:
    """Name what else draws from now on: the functions of a cell with the words that they write, and
    its explorers.
    """
    made = {
        node.targets[0].id: [node.value.func.id]
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and getattr(getattr(node.value, "func", None), "id", "").endswith("Explorer")
    }
    return made | {
        node.name: words
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and (words := on_pictures(node, helpers))
    }


def described(source: str, section: str, helpers: dict[str, list[str]] | None = None) -> str:
    """Say in words what a cell's figure shows: the words on it, as far as the source has them, and
    the section it stands in.

    `helpers` holds what earlier cells defined for drawing, and gets what this one does.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # magic of IPython
        return f"Figure of the section {section}"
    helpers = {} if helpers is None else helpers
    helpers |= drawers(tree, helpers)
    words = on_pictures(
        ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef)], []),
        helpers,
    )
    return f"Figure of the section {section}" + (f": {', '.join(words)}" if words else "")


def hidden(source: str) -> str:
    """Say what a folded cell holds."""
    checks = re.search(r"^\s*(assert|test_\w+\()", source, re.M) and not re.search(
        r"^(import|from) ", source, re.M
    )
    return "checks of what is said here" if checks else "imports and helpers"


def code_cell(
    cell,
    section: str,
    helpers: dict[str, list[str]],
    # the cell, or None where it is not for readers
):
    """Turn nbdev's directives into what myst-nb knows: folded cells, and classes for the style
    sheet.
    """
    marks = directives(cell.source)
    alternative = re.search(r"^#\|\s*fig-alt:\s*(.+)", cell.source, re.M)
    names, source = (
        [name for name, _ in marks],
        re.sub(r"^#\|.*\n?", "", cell.source, flags=re.M).strip("\n"),
    )
    if not source.strip() or "google.colab" in source:
        return None
    cell.source, tags, told = source, [], {}
    if "hide" in names:
        tags = ["hide-cell"]
        told = {
            f"code_prompt_{verb.lower()}": f"{verb} the {hidden(source)}"
            for verb in ("Show", "Hide")
        }
    if "hide_input" in names:
        tags = ["hide-input"]
        told = {"code_prompt_show": "Show the code", "code_prompt_hide": "Hide the code"}
    if "exercise" in names:
        task = dict(marks)["exercise"].split()[0]
        tags = ["hide-input"]
        told = {
            "code_prompt_show": f"Show an answer to {task}",
            "code_prompt_hide": f"Hide the answer to {task}",
        }
    if {"export", "exporti"} & {*names}:
        tags.append("exported")
    words = described(source, section, helpers)
    cell.metadata = {
        "tags": tags,
        "mystnb": told | {"image": {"alt": alternative[1] if alternative else words}},
    }
    return cell


def framed(output) -> None:
    """Put an output that is a whole HTML page into a frame of its own."""
    page = output.get("data", {}).get("text/html", "")
    if page.startswith("<!doctype"):
        inside = page.replace("&", "&amp;").replace('"', "&quot;")
        output.data = {
            "text/html": f'<iframe class="whole-page" title="A page that this cell wrote" srcdoc="{inside}"></iframe>'
        }


def page_of(target: str, start: str) -> str:
    """Turn a link between files of the repository into one between pages; what is no page keeps
    only its name.
    """
    place = posixpath.normpath(posixpath.join("nbs", posixpath.dirname(start), target))
    if place == "nbs/index.ipynb":
        place = "nbs/guide.ipynb"
    elif place.startswith("docs/"):
        place = "nbs/" + place
    elif place.endswith(".md") and (ROOT / place).is_file():
        place = "nbs/" + about(place)
    return posixpath.relpath(place, posixpath.join("nbs", posixpath.dirname(start)))


def about(place: str) -> str:
    """Name the page made of a text of the repository, such as minbert/assets/model/README.md."""
    return "about/" + place.replace("/", "-").lower()


def relinked(source: str, start: str) -> str:
    """Rewrite the links of a text; anchors are in lower case on the site."""

    def one(found: re.Match) -> str:
        target, anchor = found[1], (found[2] or "").lower()
        return f"]({page_of(target, start) if target else ''}{anchor})"

    return LINK.sub(one, source)


def with_diagrams(source: str, cell: nbformat.NotebookNode) -> str:
    """Let a text show its attached diagrams as files, because Sphinx knows no attachments."""
    cell.pop("attachments", None)
    return source.replace("(attachment:", "(diagrams/")


def diagrams(chapter: Chapter) -> dict[str, str]:  # path below the sources -> SVG
    """Take the attached diagrams out of a chapter."""
    folder, found = posixpath.dirname(chapter.page), {}
    for cell in chapter.notebook.cells:
        for name, kinds in cell.get("attachments", {}).items():
            text = base64.b64decode(kinds["image/svg+xml"]).decode("utf-8")
            found[posixpath.join(folder, "diagrams", name)] = text
    return found


def shown(chapter: Chapter, places: dict[str, str] | None = None) -> nbformat.NotebookNode:
    """Make the notebook that the site shows; `places` holds HTML for cells, by id, that have no
    output.
    """
    kept, section, helpers = [], chapter.title, {}
    for cell in nbformat.from_dict(chapter.notebook).cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^#+ (.*)", cell.source, re.M) or [section])[-1]
            cell.source = with_diagrams(relinked(cell.source, chapter.page), cell)
        elif (cell := code_cell(cell, section, helpers)) is not None:
            for output in cell.outputs:
                framed(output)
            if found := (places or {}).get(cell.get("id")):
                cell.outputs = [nbformat.v4.new_output("display_data", data={"text/html": found})]
        if cell is not None:
            kept.append(cell)
    if chapter.name[0].isdigit():  # the number, by which other chapters name it
        kept[0].source = kept[0].source.replace("# ", f"# {chapter.name[:2]} ", 1)
        kept.insert(1, new_markdown_cell(glance(chapter)))
    return nbformat.v4.new_notebook(cells=kept, metadata=chapter.notebook.metadata)


def part_page(part: str) -> str:
    """Write the page of a part: its chapters, their questions, their minutes."""
    here = [chapter for chapter in chapters() if chapter.page.startswith(part + "/")]
    rows = [
        f"| {link(chapter, part + '/index')} | {chapter.question} | {pace(NBS / f'{chapter.page}.ipynb').minutes:.0f} |"
        for chapter in here
    ]
    listed = "\n".join(chapter.page.rpartition("/")[2] for chapter in here)
    table = "\n".join(["| chapter | question | minutes |", "|---|---|---|", *rows])
    return f"# {part_title(part)}\n\n{part_says(part)}\n\n{table}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def part_title(part: str) -> str:
    """Name a part as the map does."""
    return PARTS[part]


def part_says(part: str) -> str:
    """Say what a part does, in the words of the map of chapters."""
    word = part_title(part).partition(". ")[0]
    found = re.search(rf"\| \*\*{word}(?:\. [^*]*)?\*\*: (.*?) *\|", chapter_list())
    return found[1][0].upper() + found[1][1:] + "."


def notebook_pages(
    places: dict[str, dict[str, str]],
    # path below the sources -> text
) -> dict[str, str]:
    """Write all notebooks and the pages of their parts; `places` holds HTML for cells, by page and
    id.
    """
    pages = {
        f"{chapter.page}.ipynb": nbformat.writes(shown(chapter, places.get(chapter.page)))
        for chapter in chapters()
    }
    for chapter in chapters():
        pages |= diagrams(chapter)
    return pages | {f"{part}/index.md": part_page(part) for part in PARTS}


def about_pages() -> dict[str, str]:
    """Copy the texts of the repository that notebooks link to."""
    places = {
        posixpath.normpath(posixpath.join("nbs", posixpath.dirname(page), target))
        for page, text in texts()
        for target, _ in LINK.findall(text)
        if target.endswith(".md")
    }
    places = {place for place in places if not place.startswith("docs/")}
    return {
        about(place): "---\norphan: true\n---\n\n"
        + plain_links((ROOT / place).read_text(encoding="utf-8"))
        for place in sorted(places)
    }


def docs_pages() -> dict[str, str]:  # path below the sources -> text
    """Copy the pages of docs/."""
    return {
        f"docs/{file.name}": from_docs(file.read_text(encoding="utf-8"))
        for file in sorted(DOCS.glob("*.md"))
    }


def from_docs(text: str) -> str:
    """Rewrite the links of a page of docs/."""
    return relinked(from_nbs(text), "docs/page")


def from_nbs(text: str) -> str:
    """Rewrite the links of a page of docs/ as if docs/ were a folder of nbs/, as it is on the site."""
    text = text.replace("](../README.md", "](../index.ipynb").replace(
        "](../minbert/", "](../../minbert/"
    )
    return text.replace("](../nbs/", "](../")


def plain_links(text: str) -> str:
    """Keep the words of links that lead to files, and leave out front matter."""
    words = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
    return re.sub(r"\A---\n.*?\n---\n", "", words, flags=re.S)


def texts() -> list[tuple[str, str]]:
    """Give every text of every notebook with the page that it stands on."""
    found = [("index", text) for text in index_cells()]
    found += [
        ("docs/page", from_nbs(file.read_text(encoding="utf-8")))
        for file in sorted(DOCS.glob("*.md"))
    ]
    return found + [
        (chapter.page, cell.source)
        for chapter in chapters()
        for cell in chapter.notebook.cells
        if cell.cell_type == "markdown"
    ]
