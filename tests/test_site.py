"""The website: what its data files name exists, its checker finds what is dead, and a browser finds
no barrier in it.

The tests marked browser build the site, unless build/site/html is there already; MINBERT_SHOTS
names a folder for screenshots.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_browser import contact_sheet

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "build" / "site" / "html"
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "site")]
import book
import pictures
import site_chapters
import site_check
import site_explorers
import site_tables

from minbert.papers import PAPERS
from minbert.papers.headline_claims import claims_table
from minbert.significance import DIRECTIONS, VERDICTS

PAGES = [
    "index",
    "1_bert/02_attention",
    "api/attention",
    "results",
    "glossary",
    "instructors",
    "cs224n",
    "guide",
    "explorers",
    "explorers/conflict",
    "explorers/attention",
    "explorers/maskedword",
    "explorers/temperature",
    "explorers/smoothness",
    "explorers/cosine",
    "grades/index",
    "grades/bob",
    "genindex",
    "search",
]
LOOKS = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]


def test_every_function_of_ours_that_the_handout_page_names_exists():
    places = [
        place
        for file in site_tables.handout()
        for row in file["rows"]
        for place in row.get("ours", [])
    ]
    assert len(places) > 50
    for place in places:
        assert callable(site_tables.ours(place)), place


def test_the_handout_page_names_the_parts_that_one_has_to_write():
    theirs = " ".join(row["theirs"] for file in site_tables.handout() for row in file["rows"])
    for name in (
        "BertSelfAttention.attention",
        "BertLayer.add_norm",
        "BertLayer.forward",
        "BertModel.embed",
        "BertModel.encode",
        "AdamW.step",
        "BertSentimentClassifier",
        "MultitaskBERT.predict_sentiment",
        "MultitaskBERT.predict_paraphrase",
        "MultitaskBERT.predict_similarity",
    ):
        assert name in theirs


def test_glossary_terms_are_said_once_and_have_a_chapter():
    entries = site_tables.glossary()
    names = [name.lower() for entry in entries for name in (entry["term"], *entry.get("also", []))]
    assert len(names) == len(set(names)) and len(entries) > 50
    for entry in entries:
        assert site_tables.chapter(entry["chapter"]) and entry["says"].endswith(".")


def test_claims_of_two_encoders_stand_side_by_side():
    one = {
        "text": "x helps",
        "better": "a/x",
        "worse": "a/y",
        "measured": "acc",
        "printed": 0.2,
        "gain": [0.05, 0.01, 0.1],
        "seeds": 3,
        "verdict": VERDICTS[1],
        "learned": True,
        "outdated": False,
    }
    other = one | {
        "gain": [0.3, None, None],
        "seeds": 1,
        "verdict": VERDICTS[4],
        "learned": False,
        "outdated": True,
    }
    free = one | {"better": "a/f", "printed": None, "verdict": DIRECTIONS[0], "seeds": 0}
    alone, not_yet = one | {"better": "a/z"}, one | {"better": "a/v", "gain": None}
    first, second = (
        {"scale": scale, "claims": claims}
        for scale, claims in (
            ("micro", [one, alone, not_yet, free]),
            ("minilm", [not_yet, other, one | {"better": "a/w"}, free]),
        )
    )
    head, _, *rows = site_tables.two_encoders(first, second).split("\n")
    assert "| micro: ours" in head and "| minilm: ours" in head
    assert rows == [
        "| x helps (acc) | +0.200 | +0.050 [+0.010, +0.100], 3 seeds | same sign, smaller | +0.300, 1 seed | inconclusive (neither row learned) † |",
        "| x helps (acc) |  | +0.050 [+0.010, +0.100], deterministic | higher | +0.050 [+0.010, +0.100], deterministic | higher |",
    ]


def test_the_page_of_the_record_has_its_tables_and_no_place_is_left_empty():
    page = site_tables.record_page()
    assert (
        "<!--" not in page
        and claims_table() in page
        and all(f"**{name}" not in page for name in ("Hu", "Li", "Wu", "Dao", "Foley"))
    )
    assert "- **†**" in page and all(f"## {name}" in page for name in PAPERS.values())


def test_the_written_part_of_the_record_states_no_result():
    """Text does not change with the record, so that numbers and verdicts stand in the tables alone."""
    written = (
        (ROOT / "site" / "pages" / "record.md")
        .read_text(encoding="utf-8")
        .partition("## What limits the comparison")[2]
    )
    assert len(written.split()) > 200 and not re.search(
        r"<!-- gain|holds|reproduced|reversed|cannot be told", written
    )


def test_the_record_folds_its_tables_and_nothing_else():
    page = site_tables.record_page()
    made = site_tables.folded(page)
    # the three short ones stay
    assert (
        made.count("<details")
        == made.count("</details>\n")
        == len(re.findall(r"^\|---", page, re.M)) - 3
        > 10
    )
    assert re.sub(r"<details.*</summary>\n\n|\n</details>\n", "", made) == page
    for summary, table in re.findall(
        r"<summary>(\d+) .*?</summary>\n\n(.*?)\n</details>", made, re.S
    ):
        assert int(summary) == len(table.strip().split("\n")) - 2


def test_numbers_of_a_column_are_written_alike():
    assert [*map(site_tables.number, (1.186e6, 19604.4, 3306.2, 1000, 477.63, 0.99987))] == [
        "1,186,000",
        "19,604",
        "3,306",
        "1,000",
        "477.6",
        "0.9999",
    ]


def test_papers_are_cited_somewhere():
    cited = {paper for chapter in site_chapters.book() for paper in site_chapters.papers(chapter)}
    assert len(cited) == len(site_chapters.known_papers())


def test_a_picture_is_described_by_the_words_on_it():
    helpers = {}

    def describe(source):
        return site_chapters.described(source, "Two", helpers).removeprefix(
            "Figure of the section Two"
        )

    assert (
        describe('heatmap(x, None, None, write=".2f", ylabel="token", title=f"layer {k}")')
        == ": token, layer …"
    )
    assert (
        describe(
            'ax.plot(x, label="sum")\nax.set(xlabel="step")\nax.set_title("a run")\nprint("nothing")'
        )
        == ": sum, step, a run"
    )
    assert (
        describe(
            'def draw(walks):\n    return panel("first weight", "loss")\ndraw({"momentum": x})'
        )
        == ": momentum, first weight, loss"
    )
    assert (
        describe("draw(x)") == ": first weight, loss"
        and describe("%timeit f()") == describe("f()") == ""
    )
    assert describe("e = ConflictExplorer()\ne.figure()") == ": ConflictExplorer"


def test_a_fold_says_what_it_holds():
    assert (
        site_chapters.hidden("from math import pi\nassert pi > 3")
        == site_chapters.hidden("def f(x):\n    return x")
        == "imports and helpers"
    )
    assert (
        site_chapters.hidden("a = 1\nassert a == 1")
        == site_chapters.hidden("for x in y:\n    test_eq(x, 1)")
        == "checks of what is said here"
    )


def test_pictures_of_several_panels_have_room():
    body = '<p><img alt="a" src="../_images/wide.png" /><img alt="b" src="../_images/narrow.png" /><img src="other.png"></p>'
    boxed = book.with_room(body, {"wide.png": 1200, "narrow.png": 520})
    assert boxed.count("wide-picture") == 1 and re.sub("</?span[^>]*>", "", boxed) == body
    assert re.search(r'<span class="wide-picture" tabindex="0"[^>]*><img alt="a"', boxed)


def test_a_diagram_is_a_file_beside_its_page():
    chapter = site_chapters.book()[0]
    text = "\n".join(cell.source for cell in site_chapters.shown(chapter).cells)
    names = re.findall(r"\(diagrams/([\w-]+\.svg)\)", text)
    assert names and "attachment:" not in text and "data:image" not in text
    files = site_chapters.diagrams(chapter)
    assert set(files) == {f"1_bert/diagrams/{name}" for name in names}
    assert all(svg.startswith("<svg") for svg in files.values())


def test_a_chapter_bears_its_number_and_a_number_leads_to_its_chapter():
    chapter = site_chapters.book()[2]
    assert site_chapters.shown(chapter).cells[0].source.startswith(f"# 02 {chapter.title}\n")
    parts = book.with_chapters(
        "Chapter 02 and chapters 03 and 99, see chapter\n03; chapter 01.",
        "1_bert/01_tokens",
        {
            f"0{n}": f"1_bert/0{n}_{name}"
            for n, name in enumerate(("tokens", "attention", "embedding"), 1)
        },
    )
    assert [(part.astext(), part["reftarget"]) for part in parts if not isinstance(part, str)] == [
        ("Chapter 02", "/1_bert/02_attention"),
        ("chapters 03", "/1_bert/03_embedding"),
        ("chapter\n03", "/1_bert/03_embedding"),
    ]
    assert (
        "".join(part.astext() for part in parts)
        == "Chapter 02 and chapters 03 and 99, see chapter\n03; chapter 01."
    )


def test_prerequisites_come_before():
    for chapter in site_chapters.book():
        assert all(other.page < chapter.page for other in site_chapters.imported(chapter))


def test_the_checker_finds_dead_links_foreign_scripts_and_heavy_pages(tmp_path, monkeypatch):
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#gone">x</a><a href="c.html">x</a><script src="https://example.org/x.js"></script><img src="big.png">'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    (tmp_path / "big.png").write_bytes(bytes(2000))
    monkeypatch.setattr(site_check, "HEAVY", 1000)
    found = list(site_check.findings(tmp_path))
    assert len(found) == 4 and ["gone" in f for f in found].count(True) == 1
    assert (
        any("c.html is not there" in f for f in found)
        and any("example.org" in f for f in found)
        and any("bytes" in f for f in found)
    )


def test_the_animation_is_light_and_comes_to_rest():
    from PIL import Image

    file = ROOT / "nbs" / "images" / "cosines.gif"
    picture = Image.open(file)
    assert file.stat().st_size < 400_000 and picture.n_frames > 5 and 0 < picture.info["loop"] < 10
    assert "images/cosines.gif" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_explorers_of_a_missing_module_are_left_out(monkeypatch):
    monkeypatch.setattr(
        site_explorers,
        "EXPLORERS",
        [
            *site_explorers.EXPLORERS,
            site_explorers.Shown("gone", "explorers.gone.GoneExplorer", "Nothing."),
        ],
    )
    site_explorers.explorers.cache_clear()
    names = [shown.name for shown in site_explorers.explorers()]
    site_explorers.explorers.cache_clear()
    assert names == [
        "cosine",
        "anisotropy",
        "flow",
        "conflict",
        "attention",
        "maskedword",
        "temperature",
        "smoothness",
    ]
    assert all(map(site_explorers.movable, site_explorers.explorers()))


def test_explorers_are_found_in_their_chapters():
    found = {
        (page, html.partition('data-explorer="')[2].partition('"')[0])
        for page, cells in site_explorers.places().items()
        for html in cells.values()
    }
    assert found >= {
        ("3_embeddings/16_contrastive", "cosine"),
        ("3_embeddings/15_whitening", "anisotropy-15"),
        ("3_embeddings/20_bertflow", "flow"),
        ("4_robustness/25_pcgrad", "conflict"),
        ("1_bert/02_attention", "attention"),
        ("1_bert/07_pretrain", "maskedword"),
        ("3_embeddings/18_negatives", "temperature"),
        ("4_robustness/22_smoothness", "smoothness"),
        ("4_robustness/23_smart", "smoothness"),
    }


class Several(site_explorers.Explorer):
    """A control of each kind that can be drawn beforehand."""

    def _controls(self):
        from minbert.explorers.base import choice, point, slider, switch, text, words

        return [
            choice("view", "near", ["near", "far", "never"]),
            slider("fine", 0.05, 0.01, 1.0, 0.01),
            slider("even", 3, 0, 9, 1),
            switch("on"),
            text("line", "one"),
            words("hide", (1,)),
            point("at", (1.0, 1.0), low=(-1, -1), high=(3, 3), step=0.1),
        ]

    def _draw(self, **settings):
        from minbert.core.figures import panel

        ax = panel("x", "y", size=(3, 3))
        ax.text(0, 0, str(settings).replace(", ", "\n"), fontsize=7, va="bottom")
        return ax


def test_frames_are_drawn_for_each_combination_and_controls_take_only_their_values():
    grids = [
        {"view": ["near"], "fine": [0.01, 0.05, 1.0], "at": [(0, 0), (0, 2), (2, 0), (2, 2)]},
        {
            "view": ["far"],
            "even": [0, 2, 4],
            "on": [False, True],
            "line": ["one", "two"],
            "hide": [(), (1,)],
        },
    ]
    controls, rest = site_explorers.framed(Several(), lambda explorer: grids)
    made = {control.name: control for control in controls}
    assert {name: control.kind for name, control in made.items()} == {
        "view": "choice",
        "fine": "choice",
        "even": "slider",
        "on": "switch",
        "line": "choice",
        "hide": "words",
        "at": "point",
    }
    assert (
        made["view"].bounds["choices"] == ["near", "far"]
        and made["fine"].bounds["choices"] == ["0.01", "0.05", "1"]
        and made["fine"].default == "0.05"
    )
    assert (
        made["even"].bounds == {"low": 0, "high": 4, "step": 2}
        and made["even"].default in (2, 4)
        and made["hide"].bounds["one"]
    )
    assert made["at"].bounds == {"panel": 0, "low": (0, 0), "high": (2, 2), "step": 2}
    near, far = (
        [frame for frame in rest["frames"] if frame["values"]["view"] == view]
        for view in ("near", "far")
    )
    assert (len(near), len(far)) == (3 * 4, 3 * 2 * 2 * 2)
    assert {tuple(frame["idle"]) for frame in near} == {("even", "on", "line", "hide")} and {
        tuple(frame["idle"]) for frame in far
    } == {("fine", "at")}
    assert all(set(frame["values"]) == made.keys() - set(frame["idle"]) for frame in near + far)
    assert {frame["values"]["fine"] for frame in near} == {"0.01", "0.05", "1"}
    assert len({frame["source"] for frame in near}) == len(near)


def test_few_colours_leave_none_far_off():
    """A picture with many greys and a few dots of other colours: none of these turns grey."""
    import io

    import numpy as np
    from PIL import Image

    before = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    for place, colour in enumerate(
        [(232, 115, 12), (142, 91, 181), (42, 157, 111), (214, 98, 156)]
    ):
        before[40 * place : 40 * place + 3, 100:103] = colour
    Image.fromarray(before).save(file := io.BytesIO(), "PNG")
    for shrink in (site_explorers.small, pictures.palette):
        after = np.asarray(Image.open(io.BytesIO(shrink(file.getvalue()))).convert("RGB"))
        assert np.abs(after.astype(int) - before).max() < 32


def test_a_mark_means_the_same_rule_on_the_site_and_in_the_package():
    from minbert.explorers.conflict import STEPS

    shapes = {"o": "round", "s": "square", "^": "triangle", "D": "diamond"}
    inks = re.search(
        r"const INKS = {(.*?)};",
        (ROOT / "site" / "static" / "drawings.js").read_text(encoding="utf-8"),
    )[1]
    there = {
        name: (colour, form)
        for name, colour, form in re.findall(r'(\w+): \["(#\w+)", "[^"]*", "(\w+)"\]', inks)
    }
    assert there == {name: (colour, shapes[marker]) for name, (colour, _, marker) in STEPS.items()}


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built again if something that it is made of has changed since."""
    made_of = [
        file
        for folder in ("nbs", "site", "scripts", "minbert", "results")
        for file in (ROOT / folder).rglob("*")
        if "__pycache__" not in file.parts and file.is_file()
    ]
    if not (HTML / "index.html").is_file() or (HTML / "index.html").stat().st_mtime < max(
        file.stat().st_mtime for file in made_of
    ):
        subprocess.run(
            [sys.executable, ROOT / "scripts" / "build_site.py"], check=True, cwd=ROOT, timeout=3600
        )
    return HTML


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        started = p.chromium.launch(
            executable_path=os.environ["MINBERT_BROWSER"],
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        yield started
        started.close()


def axe_script() -> str:
    import axe_core_python

    return next(Path(axe_core_python.__file__).parent.rglob("axe*.js")).read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
@pytest.mark.parametrize("name", PAGES)
def test_no_barrier(site, browser, name, look):
    """axe-core finds nothing serious, nothing sticks out to the right, no request leaves the disk."""
    scheme, width = look
    page = browser.new_page(
        color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / f"{name}.html").as_uri())
    if folder := os.environ.get("MINBERT_SHOTS"):
        page.screenshot(
            path=Path(folder) / f"{name.replace('/', '-')}-{scheme}-{width}.png", full_page=False
        )
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    page.evaluate(axe_script())
    found = page.evaluate("axe.run(document, {iframes: false})")["violations"]
    page.close()
    serious = [
        (
            v["id"],
            len(v["nodes"]),
            v["nodes"][0]["html"][:200],
            v["nodes"][0].get("failureSummary", "")[:300],
        )
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert not serious
    assert wide <= 1
    assert not [url for url in asked if not url.startswith(("file:", "data:", "about:"))]


@pytest.mark.browser
def test_search_works_from_disk(site, browser):
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=whitening")
    page.wait_for_selector("#search-results li a", timeout=20000)
    assert "15_whitening" in " ".join(
        a.get_attribute("href") for a in page.query_selector_all("#search-results li a")
    )
    page.close()


def before_the_first_words(file: Path) -> list[Path]:
    """What a browser must have read before it can paint a page's title: its style sheets, and
    scripts that neither wait nor come from a module.
    """
    start = file.read_text(encoding="utf-8").partition("<h1")[0]
    tags = re.findall(r"<(?:link|script)\b[^>]*>", start)
    asked = [
        tag
        for tag in tags
        if 'rel="stylesheet"' in tag
        or tag.startswith("<script")
        and " src=" in tag
        and not re.search(r'\b(async|defer)\b|type="module"', tag)
    ]
    return [file.parent / re.search(r'(?:href|src)="([^"?#]+)', tag)[1] for tag in asked]


@pytest.mark.browser
def test_little_stands_before_the_first_words(site):
    """Bytes, for a clock says what else the machine had to do."""
    for name in (name for name in PAGES if name != "search"):  # its first words are what was found
        asked = before_the_first_words(site / f"{name}.html")
        # those carry their style in the page
        assert "site.css" in {file.name for file in asked} or name.startswith("grades/"), name
        assert sum(file.stat().st_size for file in asked) < 200_000, name


@pytest.mark.browser
def test_every_chapter_has_its_page_and_terms_lead_both_ways(site):
    for chapter in site_chapters.chapters():
        assert (site / f"{chapter.page}.html").is_file()
    glossary = (site / "glossary.html").read_text(encoding="utf-8")
    there = re.findall(r'href="((?:[1-5]_\w+|appendix)/\w+\.html)#first-', glossary)
    assert len(there) > 0.8 * len(site_tables.glossary())
    chapter = (site / "1_bert" / "02_attention.html").read_text(encoding="utf-8")
    assert "glossary.html#term-attention-map" in chapter
    icon = re.search(r'<link rel="(?:shortcut )?icon" href="([^"?]+)', chapter)[1]
    assert (site / "1_bert" / icon).is_file()


@pytest.fixture
def opened(site, browser):
    """Open a page; afterwards it had no error, and asked no host."""
    page, problems, asked = browser.new_page(viewport={"width": 1280, "height": 900}), [], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    def go(name: str):
        page.goto((site / f"{name}.html").as_uri())
        page.locator(".mb-explorer:not([data-number='0'])").first.wait_for()
        return page

    yield go
    page.close()
    assert not problems
    assert not [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))]


def moved(page, label: str, action) -> str:
    """Do something to a control, wait for another picture; give the words below it."""
    named = (
        page.locator(".mb-explorer")
        .get_by_label(label, exact=True)
        .or_(page.locator(".mb-words").get_by_role("button", name=label, exact=True))
    )
    knob = named.first
    box = knob.locator("xpath=ancestor::*[contains(concat(' ', @class, ' '), ' mb-explorer ')]")
    image, words = box.locator(".mb-stage img").element_handle(), box.locator(".mb-text")
    before = image.get_attribute("src")
    action(knob)
    page.wait_for_function("([image, before]) => image.src !== before", arg=[image, before])
    page.wait_for_timeout(100)  # several moves in a row
    return words.inner_text()


@pytest.mark.browser
def test_cosines_and_clouds_move_without_a_kernel(opened):
    page = opened("explorers/cosine")
    # Spearman after training
    assert "0.863" in page.evaluate(
        "decodeURIComponent(document.querySelector('.mb-explorer[aria-label=\"Cosines by grade\"] img').src)"
    )
    assert "before, whitened" in moved(
        page, "at the left", lambda knob: knob.select_option("before, whitened")
    )
    assert "three bands" in moved(
        page, "two more sentences", lambda knob: knob.select_option("none")
    )
    assert "edges 2.25 and 4" in moved(
        page, "band edges, low", lambda knob: knob.press("ArrowRight")
    )
    moved(page, "smoothing", lambda knob: knob.fill("0"))
    page.locator(".mb-explorer").first.locator(".mb-stage img").click(position={"x": 300, "y": 250})
    page.locator(".mb-text", has_text="The ringed pair, grade").wait_for()
    page = opened("explorers/anisotropy")
    assert "before, plain, top 5 removed: Spearman 0.719" in moved(
        page, "remove top k", lambda knob: knob.fill("5")
    )
    assert "before, whitened, top 5 removed" in moved(
        page, "state", lambda knob: knob.select_option("whitened")
    )
    for label, value in (("azimuth [°]", "40"), ("elevation [°]", "-30")):
        moved(page, label, lambda knob: knob.fill(value))
    moved(page, "colours show", lambda knob: knob.select_option("grade"))
    assert "after, whitened, top 5 removed" in moved(
        page, "encoder", lambda knob: knob.select_option("after")
    )


@pytest.mark.browser
def test_the_clouds_of_a_chapter_have_the_numbers_that_it_prints(opened):
    (chapter,) = (chapter for chapter in site_chapters.book() if chapter.name == "15 whitening")
    (printed,) = (
        output.text
        for cell in chapter.notebook.cells
        for output in cell.get("outputs", ())
        if "untrained, whitened: Spearman" in output.get("text", "")
    )
    page = opened("3_embeddings/15_whitening")
    assert moved(page, "state", lambda knob: knob.select_option("whitened")).split(
        "\n"
    ) == printed.strip().split("\n")


@pytest.mark.browser
def test_gradients_on_the_page_are_those_of_the_package(opened):
    """The page computes what the Python explorer says, to the last printed digit."""
    from minbert.explorers.conflict import ConflictExplorer

    page, explorer = opened("4_robustness/25_pcgrad"), ConflictExplorer()
    moved(page, "second gradient", lambda knob: [knob.press("ArrowDown") for _ in range(5)])
    assert "three" not in moved(page, "tasks", lambda knob: knob.select_option("three"))
    settings = [
        {},
        {"first": (2.0, 0.4), "second": (-1.6, 0.9)},
        {"tasks": "three", "target": 0.8},
        {"tasks": "three", "third": (-2.9, 0.1), "first": (0.2, 2.2), "target": 0.0},
        {"first": (1.0, 1.0), "second": (-1.0, -1.0)},
        {"tasks": "three", "first": (0.0, 0.0)},
        {"view": "two valleys"},
        {"view": "two valleys", "adam": True, "target": 0.6},
        {"view": "two valleys", "start": (2.5, -1.0), "target": 0.0},
    ]
    for chosen in settings:
        there = page.evaluate(
            "values => minbertTold.conflict.draw({...minbertTold.conflict.values, ...values}, false)",
            chosen,
        )
        content, _ = explorer.answer(chosen)
        assert there["text"].replace("-0.00", "0.00") == content["text"].replace("-0.00", "0.00")
        assert sorted(there["idle"]) == content["idle"]


@pytest.mark.browser
def test_drawn_frames_follow_the_controls(opened):
    page = opened("3_embeddings/20_bertflow")
    assert "rings, flow after 600 steps" in moved(
        page, "data", lambda knob: knob.select_option("rings")
    )
    assert "after 0 steps" in moved(page, "training [steps]", lambda knob: knob.fill("0"))
    assert "4 of 8 blocks" in moved(page, "blocks", lambda knob: knob.fill("4"))


MOVES = [  # page, [(label, what to do, what the words then say)]
    (
        "1_bert/02_attention",
        [
            ("query", "ArrowRight", "The query (2.0, 1.0) gives"),
            ("factor of the scores", "0", "bank 0.33"),
            ("money", None, "money 0.00 (hidden)"),
            ("mask: log10 of −constant", "0", "Scores"),
            ("river", None, "river 0.24 (hidden)"),
            ("river", None, "The query (2.0, 1.0) gives"),
            ("view", "a sentence", "Layer 1, head 1"),
            ("layer", "3", "Layer 3, head 1"),
            ("head", "2", "Layer 3, head 2"),
            ("rose", None, "Hidden: rose."),
        ],
    ),
    # The place that is hidden stays hidden in another sentence. (With none hidden, all sentences
    # share a picture.)
    (
        "1_bert/07_pretrain",
        [
            ("river", None, "Hidden: “river”"),
            ("sea", None, "Hidden: “sea”"),
            ("sea", None, "No word is hidden"),
            ("river", None, "Hidden: “river”"),
            ("sentence", "She opened the door and walked in.", "Hidden: “opened”"),
            ("door", None, "Hidden: “door”"),
        ],
    ),
    (
        "3_embeddings/18_negatives",
        [
            ("temperature", "0.01", "Temperature 0.01, 12 pairs"),
            ("leave repeats out", " ", "left out:"),
            ("batch", "1", "Temperature 0.01, 12 pairs"),
            ("view", "all temperatures", "12 pairs"),
        ],
    ),
    (
        "4_robustness/22_smoothness",
        [
            ("width", "768", "In 768 dimensions"),
            ("radius", "0.5", "The worst step of length 0.5"),
            ("head", "penalty, weight 0.1", "head penalty, weight 0.1"),
            ("view", "words", "K = 1"),
            ("steps K", "3", "K = 3"),
        ],
    ),
    (
        "4_robustness/23_smart",
        [("view", "words", "K = 1"), ("head", "penalty, weight 0.1", "K = 1")],
    ),
    ("explorers/attention", [("view", "a sentence", "Layer 1, head 1")]),
]


def pulled(value: str | None):
    """Give the action that sets a control, whatever its kind."""

    def action(knob):
        kind = knob.evaluate("knob => knob.type || knob.localName")
        if value is None or kind == "checkbox":
            knob.click()
        elif kind == "select-one":
            knob.select_option(value)
        elif kind == "range":
            knob.fill(value)
        else:
            knob.press(value)

    return action


@pytest.mark.browser
@pytest.mark.parametrize("name, moves", MOVES, ids=[name for name, _ in MOVES])
def test_stored_pictures_follow_every_control(opened, name, moves):
    page = opened(name)
    for label, value, says in moves:
        assert says in moved(page, label, pulled(value)), label


@pytest.mark.browser
def test_controls_go_to_what_the_stored_picture_shows(opened):
    page = opened("1_bert/02_attention")
    knob = page.get_by_label("query", exact=True)
    knob.scroll_into_view_if_needed()
    box = knob.bounding_box()
    page.mouse.move(box["x"] + 13, box["y"] + 13)
    page.mouse.down()
    page.mouse.move(box["x"] + 93, box["y"] - 67, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "/^Scores.*The query .[023]/.test(document.querySelector('.mb-text').textContent)"
    )
    at = [part.split()[-1] for part in knob.get_attribute("aria-valuetext").split(",")]
    assert all(float(part).is_integer() for part in at)
    assert (
        f"The query ({float(at[0]):.1f}, {float(at[1]):.1f}) gives"
        in page.locator(".mb-text").inner_text()
    )


@pytest.mark.browser
@pytest.mark.parametrize("name", [shown.name for shown in site_explorers.EXPLORERS])
def test_a_contact_sheet_of_each_explorer(site, browser, tmp_path, name):
    """One picture with three widths, light and dark, to look at; nothing is wider than the page."""
    shots = []
    for scheme in ("light", "dark"):
        for width in (1280, 800, 390):
            # so high that nothing lies over it
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 2400})
            page.goto((site / "explorers" / f"{name}.html").as_uri())
            box = page.locator(".mb-explorer:not([data-number='0'])").first
            box.locator("input, select").first.focus()  # its explanation opens
            page.wait_for_timeout(200)
            shots.append(box.screenshot())
            assert box.evaluate("box => box.scrollWidth <= box.clientWidth + 1")
            page.close()
    contact_sheet(shots, 3, Path(os.environ.get("MINBERT_SHOTS") or tmp_path) / f"sheet-{name}.png")


@pytest.mark.browser
def test_stored_pictures_are_light(site):
    for shown in site_explorers.explorers():
        assert (site / "explorers" / f"{shown.name}.js").stat().st_size < 1_200_000, shown.name


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", ["explorers/smoothness", "explorers/anisotropy", "explorers/attention"]
)
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_an_explanation_covers_no_control(opened, name, width):
    page = opened(name)
    page.set_viewport_size({"width": width, "height": 900})
    rows = page.locator(".mb-row:not(.mb-idle)")
    controls = "[...document.querySelectorAll('.mb-row:not(.mb-idle)')].map(row => row.getBoundingClientRect().bottom)"
    for place in range(rows.count()):
        rows.nth(place).locator("input, select, button").first.focus()
        box = rows.nth(place).locator(".mb-help").bounding_box()
        assert box and box["y"] >= max(page.evaluate(controls)) - 1
        assert box["y"] + box["height"] <= page.locator(".mb-stage").bounding_box()["y"]


@pytest.mark.browser
def test_stored_pictures_grow_where_there_is_room(opened):
    """Wider than they were drawn, but not higher than the screen; on a phone no wider than the
    page.
    """
    page = opened("explorers/smoothness")
    image = page.locator(".mb-stage img").first
    page.wait_for_function("document.querySelector('.mb-stored img').naturalWidth > 0")
    drawn, box = image.evaluate("image => image.naturalWidth"), image.bounding_box()
    assert 1.2 * drawn < box["width"] <= 600 and box["height"] <= 900
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_timeout(200)
    assert image.bounding_box()["width"] <= 390


@pytest.mark.browser
def test_groups_of_the_cloud_have_shapes_of_their_own(opened):
    """Without colours, the dots of the three groups are drawn differently, and the legend shows
    them so.
    """
    page = opened("explorers/anisotropy")
    source = page.evaluate("decodeURIComponent(document.querySelector('.mb-stage img').src)")
    shapes = set()
    for colour in ("#2a9d6f", "#8e5bb5", "#49b3c9"):
        drawn = [
            re.sub(r"[-\d.]+", "", mark)
            for mark in re.findall(
                rf'<path [^>]*stroke="{colour}"[^>]* d="M[-\d.]+ [-\d.]+([^M"]*)', source
            )
        ]
        assert len(drawn) == 3 and len({*drawn}) == 1, drawn  # flat, as a body, in the legend
        shapes.add(drawn[0])
    assert len(shapes) == 3, shapes


@pytest.mark.browser
@pytest.mark.parametrize("name", [shown.name for shown in site_explorers.EXPLORERS])
def test_without_scripts_an_explorer_is_a_still_picture(site, browser, name):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "explorers" / f"{name}.html").as_uri())
    picture = page.locator("article noscript img").bounding_box()
    assert (
        picture["width"] > 300
        and picture["height"] > 100
        and not page.locator(".movable").is_visible()
    )
    context.close()


@pytest.mark.browser
def test_paper_shows_long_lines_and_what_is_folded(site, browser):
    page = browser.new_page(viewport={"width": 700, "height": 900})
    page.emulate_media(media="print")
    page.goto((site / "1_bert" / "02_attention.html").as_uri())
    lines = page.locator("div.highlight pre")
    assert lines.count() > 20 and all(
        line.evaluate("line => line.clientHeight > 0 && line.scrollWidth <= line.clientWidth + 1")
        for line in lines.all()
    )
    page.close()


@pytest.mark.browser
def test_three_panels_can_be_read_on_a_phone(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((site / "2_finetuning" / "14_similarity.html").as_uri())
    box = page.locator(".wide-picture").first
    assert box.locator("img").bounding_box()["width"] > 700
    assert box.evaluate("box => box.scrollWidth > box.clientWidth && box.clientWidth < 390")
    page.emulate_media(media="print")
    assert box.locator("img").bounding_box()["width"] < 390
    page.close()


@pytest.mark.browser
def test_what_flows_and_the_table_of_explorers_fit_a_desk(site, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto((site / "index.html").as_uri())
    assert (
        len({round(step.bounding_box()["y"]) for step in page.locator(".map .flow li").all()}) == 1
    )
    page.goto((site / "explorers.html").as_uri())
    assert page.locator(".table-wrapper").first.evaluate(
        "box => box.scrollWidth <= box.clientWidth"
    )
    page.close()


@pytest.mark.browser
def test_the_record_is_short_on_a_phone(site, browser):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((site / "record.html").as_uri())
    assert page.evaluate("document.documentElement.scrollHeight") < 20_000
    page.locator("details.folded summary").first.click()
    assert page.locator("details.folded table").first.is_visible()
    page.close()


@pytest.mark.browser
def test_every_explorer_has_its_page_and_a_line_in_the_table(site):
    table = (site / "explorers.html").read_text(encoding="utf-8")
    for shown in site_explorers.explorers():
        assert f"minbert.{shown.place}" in table
        assert not site_explorers.movable(shown) or f'href="explorers/{shown.name}.html"' in table
    assert 'href="explorers.html"' in (site / "index.html").read_text(encoding="utf-8")
