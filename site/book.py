"""What the site adds to Sphinx: formulas as MathML, terms that lead to the glossary, numbers that
lead to chapters, and boxes that a keyboard can scroll.
"""

import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from PIL import Image
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

CHAPTER = re.compile(r"[1-5]_|appendix/")
WIDE = 700  # [pixels] of a picture: at the width of a phone its words would be smaller than half
CLOSED = (
    nodes.literal,
    nodes.literal_block,
    nodes.reference,
    nodes.title,
    nodes.math,
    nodes.term,
    nodes.raw,
    addnodes.pending_xref,
    nodes.field_list,
)


def visit_math(translator, node: nodes.math) -> None:
    """Write a formula in a line; no script is needed to show it."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(translator, node: nodes.math_block) -> None:
    """Write a formula on its own, in a box that scrolls where the screen is narrow."""
    formula = convert(node.astext(), display="block")
    translator.body.append(
        f'<div class="formula" tabindex="0" role="group" aria-label="formula">{formula}</div>'
    )
    raise nodes.SkipNode


def anchor(term: str) -> str:
    """Name the place where a chapter first uses a term."""
    return "first-" + re.sub(r"\W+", "-", term.lower())


def pattern_of(words: list[str]) -> str:
    """Find a term by any of its names, in singular or plural; spaces may be line breaks."""
    return "|".join(
        r"\s+".join(map(re.escape, name.split())) + "(?:s|es)?"
        for name in sorted(words, key=len, reverse=True)
    )


def linked(term: str, words: str, docname: str) -> nodes.inline:
    """Make the words of a text a link to their entry in the glossary."""
    reference = addnodes.pending_xref(
        "",
        nodes.inline(words, words, classes=["glossed"]),
        refdomain="std",
        reftype="term",
        reftarget=term,
        refdoc=docname,
        refexplicit=True,
        refwarn=True,
    )
    return nodes.inline("", "", reference, ids=[anchor(term)])


def is_open(text: nodes.Text) -> bool:
    """Tell whether a text is prose: not code, not a title, no link already."""
    above, prose = text.parent, False
    while above is not None:
        if isinstance(above, CLOSED):
            return False
        prose, above = prose or isinstance(above, nodes.paragraph), above.parent
    return prose


def pieces(
    words: str, docname: str, names: dict[str, list[str]], left: set[str]
) -> list[nodes.Node]:
    """Cut a text at the terms that were not linked yet, and link them."""
    order, parts, done = list(names), [], 0
    any_term = (
        r"(?<![\w-])(?:"
        + "|".join(f"({pattern_of(names[term])})" for term in order)
        + r")(?![\w-])"
    )
    for found in re.finditer(any_term, words, re.I):
        term = order[found.lastindex - 1]
        if term in left:
            left.discard(term)
            parts += [nodes.Text(words[done : found.start()]), linked(term, found[0], docname)]
            done = found.end()
    return [*parts, nodes.Text(words[done:])]


def link_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Link the first use of each term in a chapter to the glossary, and note the place for the way
    back.
    """
    docname, names = app.env.docname, app.config.glossary_names
    if not CHAPTER.match(docname) or docname.endswith("/index"):
        return
    left, places = set(names), app.env.get_domain("std").anonlabels
    for text in [t for t in doctree.findall(nodes.Text) if is_open(t)]:
        text.parent.replace(text, pieces(str(text), docname, names, left))
    for term in set(names) - left:
        places[f"{docname}:{anchor(term)}"] = docname, anchor(term)


def with_chapters(words: str, docname: str, numbered: dict[str, str]) -> list[nodes.Node]:
    """Cut a text at "chapter 15" and "chapters 20 and 21", and link each number that is a chapter
    of its own page; `numbered` holds the pages.
    """
    parts, done = [], 0
    for named in re.finditer(
        r"\bchapters?\s+\d\d\b(?:(?:,|,? and| or| to)\s+\d\d\b)*", words, re.I
    ):
        for found in re.finditer(r"(?:chapters?\s+)?(\d\d)", named[0], re.I):
            if (page := numbered.get(found[1], docname)) != docname:
                start, end = (named.start() + place for place in found.span())
                reference = addnodes.pending_xref(
                    "",
                    nodes.inline(found[0], found[0]),
                    refdomain="std",
                    reftype="doc",
                    reftarget=f"/{page}",
                    refdoc=docname,
                    refexplicit=True,
                    refwarn=True,
                )
                parts, done = [*parts, nodes.Text(words[done:start]), reference], end
    return [*parts, nodes.Text(words[done:])]


def link_chapters(app: Sphinx, doctree: nodes.document) -> None:
    """Link the numbers of chapters on pages made of notebooks."""
    if Path(app.env.doc2path(app.env.docname)).suffix != ".ipynb":
        return
    numbered = {
        found[1]: page
        for page in app.env.found_docs
        if (found := re.match(r"(?:[1-5]_\w+|appendix)/(\d\d)_", page))
    }
    for text in [t for t in doctree.findall(nodes.Text) if is_open(t)]:
        text.parent.replace(text, with_chapters(str(text), app.env.docname, numbered))


def chapter_instead(
    app: Sphinx, env, node: addnodes.pending_xref, inner: nodes.Element
) -> nodes.reference | None:
    """Lead from the glossary to the top of a chapter that explains a term without its name."""
    docname, _, rest = node["reftarget"].partition(":first-")
    return (
        make_refnode(app.builder, node["refdoc"], docname, "", inner)
        if rest and docname in env.found_docs
        else None
    )


def with_room(body: str, widths: dict[str, int]) -> str:
    """Put pictures of several panels into boxes that scroll on a phone; `widths` [pixels] holds
    those of the files, by name.
    """

    def one(found: re.Match) -> str:
        wide = widths.get(found[1].rpartition("/")[2], 0) > WIDE
        return (
            f'<span class="wide-picture" tabindex="0" role="group" aria-label="figure">{found[0]}</span>'
            if wide
            else found[0]
        )

    return re.sub(r'<img [^>]*src="([^"]*_images/[^"]*)"[^>]*>', one, body)


def widths_of(app: Sphinx) -> dict[str, int]:  # name of a file among the site's pictures -> pixels
    """Measure the pictures of all pages up to the present one, each once: Sphinx finds them page by
    page.
    """
    known = app.__dict__.setdefault("picture_widths", {})
    for source, name in app.builder.images.items():
        if name not in known and name.endswith((".png", ".webp", ".gif")):
            known[name] = Image.open(Path(app.srcdir) / source).width
    return known


def reachable_by_keyboard(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Let the keyboard scroll what may be wider than the screen."""
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(
            'role="heading"', 'role="heading" aria-level="2"'
        )
    if "body" in context:
        body = with_room(context["body"].replace("<pre>", '<pre tabindex="0">'), widths_of(app))
        context["body"] = re.sub(
            r'(<div class="table-wrapper[^"]*")>',
            r'\1 tabindex="0" role="group" aria-label="table">',
            body,
        )


def setup(app: Sphinx) -> dict:
    """Tell Sphinx."""
    app.add_config_value("glossary_names", {}, "env")
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("doctree-read", link_terms)
    app.connect("doctree-read", link_chapters)
    app.connect("missing-reference", chapter_instead)
    app.connect("html-page-context", reachable_by_keyboard, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
