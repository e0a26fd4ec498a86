"""Grade reports: a CSV table for the instructor, an HTML page for each learner, and results.json
for Gradescope.

Whatever a learner wrote is escaped, and names of submissions become safe and unique file names.
Matrices of a failing case are drawn as SVG in one common scale, inside the page, so that a page is
one file and opens without a network.
"""

__all__ = [
    "INTEGRATED",
    "printable",
    "required",
    "points_told",
    "csv_table",
    "matrix_svg",
    "page",
    "safe_name",
    "scores",
    "record",
    "index",
    "write_pages",
    "refuse_to_replace",
    "readable",
    "gradescope",
    "write_gradescope",
]

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from .. import __version__
from ..core.checkpoint import check_place
from .exercises import EXERCISES
from .feedback import NAMED
from .grading import GradeReport, Result
from .grading_queue import write_whole
from .sandbox import Limits


def printable(name: str) -> str:
    """Spell out what a terminal or a browser would obey and not print: escapes, line breaks,
    letters that turn the line around.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _breakable(name: str) -> str:
    """Write a name that may be broken behind an underscore, where a platform joins words."""
    return html.escape(printable(name)).replace("_", "_<wbr>")


def _plain(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    text = printable(text)[:400]
    return "'" + text if text[:1] in "=+-@" and text else text


def _line(text: str) -> str:
    """Several lines as one."""
    return _plain(" ".join(text.split()))


def required(report: GradeReport) -> tuple[int, int]:  # points, and how many there are
    """Count what is not optional."""
    asked = [name for name in report.results if not EXERCISES[name].optional]
    return sum(report.results[name].points for name in asked), sum(
        EXERCISES[name].points for name in asked
    )


def points_told(report: GradeReport) -> str:
    """Write the points; where some exercises are optional, those without them as well."""
    total, (got, most) = sum(EXERCISES[name].points for name in report.results), required(report)
    return f"{report.points} of {total} points" + (
        f" ({got} of {most} without the optional exercises)" if most < total else ""
    )


def csv_table(reports: list[GradeReport]) -> str:
    """Write one row a submission: sums, then points, status and reason of every exercise that was
    graded.
    """
    names = [name for name in EXERCISES if any(name in r.results for r in reports)]
    head = [
        "submission",
        "points",
        "of",
        "required",
        "of required",
        "integrated",
        "passed",
        "flags",
        "problems",
    ]
    for name in names:
        head += [name, f"{name} status", f"{name} reason"]
    lines, total = io.StringIO(), sum(EXERCISES[name].points for name in names)
    out = csv.writer(lines, lineterminator="\n")
    out.writerow(head)
    for r in reports:
        flags = sorted(
            {f"{name}: {flag}" for name, result in r.results.items() for flag in result.flags}
        )
        row = [
            _plain(r.name),
            r.points,
            total,
            *required(r),
            r.integrated,
            sum(x.status == "passed" for x in r.results.values()),
            _line("; ".join(flags)),
            _line("; ".join(r.problems)),
        ]
        for name in names:
            result = r.results[name]
            row += [
                result.points,
                result.status,
                "" if result.status == "passed" else _line(result.reason),
            ]
        out.writerow(row)
    return lines.getvalue()


_STYLE = """:root{color-scheme:light dark;--line:#ddd;--soft:#f6f6f6;--dim:#555;--good:#226622;--bad:#aa2222;--link:#0b57d0;--page:#fff;--ink:#111}
@media(prefers-color-scheme:dark){:root{--line:#444;--soft:#262626;--dim:#aaa;--good:#7fc97f;--bad:#ff8a80;--link:#8ab4f8;--page:#161616;--ink:#eee}}
body{background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}a{color:var(--link)}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid var(--line);padding:.4rem .6rem;text-align:left;vertical-align:top}
pre{white-space:pre-wrap;background:var(--soft);padding:.6rem;margin:.3rem 0;font-size:13px}.passed{color:var(--good)}.failed,.broken{color:var(--bad)}
.maps{display:flex;gap:2rem;flex-wrap:wrap}figure{margin:.5rem 0;max-width:100%}svg{max-width:100%;height:auto}figcaption,small,.dim{font-size:13px;color:var(--dim)}
.sum td{font-weight:600}.results td:not(:last-child),.results th{white-space:nowrap}
@media(max-width:40rem){.results tr:first-child{display:none}.results tr{display:block;border-bottom:1px solid var(--line);padding:.5rem 0}
.results td{border:0;padding:0 .8rem 0 0;display:inline-block}.results td:first-child{font-weight:600}.results td:last-child{display:block;padding:0}}"""

INTEGRATED = "Integrated: the points that are left when nothing but the learner's own code runs, with no reference in the place of what is missing or wrong. The grade is the other number."


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(printable(title))}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _shade(value: float, low: float, high: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "#000000"
    share = min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))
    return "#" + "".join(
        f"{round(a + (b - a) * share):02x}" for a, b in zip((247, 251, 255), (8, 48, 107))
    )


def matrix_svg(
    rows: list[list[float]],  # of the matrix
    low: float,  # of the scale
    high: float,  # of the scale
    title: str,  # above it
    side: int = 22,  # pixels
) -> str:
    """Draw a matrix as coloured squares, with its numbers in tooltips; NaN and infinity are black."""
    squares = [
        f'<rect x="{j * side}" y="{i * side}" width="{side}" height="{side}" fill="{_shade(v, low, high)}" stroke="#fff">'
        f"<title>{v:.4g}</title></rect>"
        for i, row in enumerate(rows)
        for j, v in enumerate(row)
    ]
    width, height = side * max(map(len, rows), default=0), side * len(rows)
    return (
        f'<figure><svg role="img" aria-label="{html.escape(title)}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(squares)}</svg>'
        f"<figcaption>{html.escape(title)}</figcaption></figure>"
    )


def _picture(p: dict) -> str:
    numbers = [
        v for m in (p["expected"], p["got"]) for row in m for v in row if abs(v) < float("inf")
    ]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    scale = f"from {low:.3g} (pale) to {high:.3g} (dark)"
    return (
        '<div class="maps">'
        + matrix_svg(p["expected"], low, high, f"{p['output']}: expected")
        + matrix_svg(p["got"], low, high, f"{p['output']}: got")
        + f"</div><small>Case: {html.escape(p['case'])}; {scale}; black is no number.</small>"
    )


def _row(name: str, r: Result) -> str:
    told = "" if r.status == "passed" else f"<pre>{html.escape(r.reason)}</pre>"
    flags = "".join(f"<div>uses {html.escape(flag)}</div>" for flag in r.flags)
    return (
        f'<tr><td>{html.escape(name)}</td><td class="{r.status.split()[0]}">{r.status}</td><td>{r.points} of {EXERCISES[name].points}{", optional" * EXERCISES[name].optional}</td>'
        f"<td>{told}{_picture(r.picture) if r.picture else ''}{flags}</td></tr>"
    )


def page(report: GradeReport, level: str = "") -> str:
    """Write a learner's page: points, and for each exercise what was found."""
    problems = "".join(f"<p class=broken>{html.escape(p)}</p>" for p in report.problems)
    rows = "".join(_row(name, r) for name, r in report.results.items())
    return _document(
        report.name,
        f"<h1>{_breakable(report.name)}</h1><p><b>{points_told(report)}</b>; integrated {report.integrated}.</p><p class=dim>{INTEGRATED}</p>{problems}"
        f'<table class="results"><tr><th>exercise</th><th>status</th><th>points</th><th>what was found</th></tr>{rows}</table><p><small>{html.escape(level)}</small></p>',
    )


def safe_name(name: str) -> str:
    """Turn a submission's name into a file name; different names stay different, and none is the
    list's.
    """
    # bytes: of 255 that a disk allows, three make one Chinese letter
    plain = re.sub(r"[^\w.-]+", "_", name).lstrip(".").encode()[:80].decode(errors="ignore")
    if plain == name and name.casefold() != "index" and not re.search(r"-[0-9a-f]{8}\Z", name):
        return plain
    import hashlib

    return f"{plain or 'submission'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _graded(reports: list[GradeReport]) -> dict[str, list[str]]:
    """Name the exercises that were graded, by chapter."""
    chapters = {}
    for name, task in EXERCISES.items():
        if any(name in r.results for r in reports):
            chapters.setdefault(task.notebook, []).append(name)
    return chapters


def _flags(report: GradeReport) -> list[str]:
    return sorted(
        {f"{name} uses {flag}" for name, result in report.results.items() for flag in result.flags}
    )


def _problems(
    report: GradeReport,
    # notebooks that could not be read, cells that could not be used
) -> tuple[int, int]:
    cells = sum(bool(re.search(r": cell \d+ ", problem)) for problem in report.problems)
    return len(report.problems) - cells, cells


def scores(reports: list[GradeReport]) -> str:
    """One line a submission, and the sum."""
    total = sum(EXERCISES[name].points for names in _graded(reports).values() for name in names)
    wide = max([len(_plain(r.name)) for r in reports], default=0)
    lines = [
        f"{_plain(r.name):<{wide}}  {points_told(r)}, integrated {r.integrated}"
        + (f", {len(_flags(r))} flagged" if _flags(r) else "")
        + "".join(
            f", {n} {what}"
            for n, what in zip(_problems(r), ("notebooks not read", "cells not used"))
            if n
        )
        for r in reports
    ]
    return readable(
        "\n".join(lines)
        + f"\n{len(reports)} submissions: {sum(r.points for r in reports)} of {total * len(reports)} points"
    )


def record(seed: int, level: str, limits: Limits) -> str:
    """Say how a batch was graded, so that it can be done again: one line each."""
    return "\n".join(
        [
            f"seed: {seed}",
            f"minbert: {__version__}",
            f"date: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
            f"held by: {level}",
            f"limits of an answer: {limits.cpu} seconds of processor, {limits.wall:g} seconds, {limits.memory >> 20} MB of memory",
        ]
    )


def _mistakes(reports: list[GradeReport]) -> list[tuple[tuple[str, str], int]]:
    """Count how many learners made each known mistake: ((exercise, sentence), learners), the most
    frequent first.
    """
    found = (
        (name, line.removeprefix(NAMED))
        for r in reports
        for name, x in r.results.items()
        for line in x.reason.split("\n")
        if line.startswith(NAMED)
    )
    return Counter(found).most_common()


def _chapter_number(notebook: str) -> str:
    """Give the number of a chapter such as "1_bert/02_attention": 02."""
    return notebook.rpartition("/")[2].partition("_")[0]


_WIDE = """body{max-width:78rem}.wide{overflow-x:auto}.wide table{font-size:12px;font-variant-numeric:tabular-nums}.wide td,.wide th{padding:.3rem .1rem;text-align:right;white-space:nowrap}.wide th{font-size:11px}
.wide td:first-child,.wide th:first-child{text-align:left;white-space:normal;min-width:8rem}
@media(max-width:79rem){.wide table,.wide tbody{display:block}.wide tr{display:block;border-bottom:1px solid var(--line);padding:.5rem 0}.wide tr:first-child{display:none}
.wide td{border:0;display:inline-block;padding:.1rem .9rem .1rem 0;text-align:left}.wide td:first-child{display:block;font-size:15px}.wide td:empty{display:none}.wide td::before{color:var(--dim);font-weight:400}"""


def _labelled(columns: list[str]) -> str:
    """Write the style of the wide table: on a narrow screen a row is a block, and each number
    stands behind the name of its column.
    """
    names = "".join(
        f'.wide td:nth-child({i})::before{{content:"{html.escape(name)} "}}'
        for i, name in enumerate(columns, 2)
    )
    return f"<style>{_WIDE}{names}}}</style>"


def index(reports: list[GradeReport], told: str = "") -> str:
    """Write the list of all submissions: points of each chapter, sums, flags; how many passed each
    exercise; which mistakes were made; and how it was graded.
    """
    chapters = _graded(reports)
    most = [sum(EXERCISES[name].points for name in names) for names in chapters.values()]

    def row(first: str, numbers: list, kind: str = "") -> str:
        return f"<tr{kind}><td>{first}</td>" + "".join(f"<td>{n}</td>" for n in numbers) + "</tr>"

    points = {
        r.name: [sum(r.results[name].points for name in names) for names in chapters.values()]
        for r in reports
    }
    columns = ["points", "required", "integrated", "flags", *map(_chapter_number, chapters)]
    head = row("submission", columns).replace("td>", "th>")
    lines = [
        row(
            f'<a href="{safe_name(r.name)}.html">{_breakable(r.name)}</a>',
            [r.points, required(r)[0], r.integrated, len(_flags(r)) or "", *points[r.name]],
        )
        for r in reports
    ]

    def mean(numbers):
        return f"{sum(numbers) / len(reports):.1f}" if reports else ""

    sums = [
        row(
            "mean",
            [
                mean([r.points for r in reports]),
                mean([required(r)[0] for r in reports]),
                mean([r.integrated for r in reports]),
                "",
                *(mean(column) for column in zip(*points.values())),
            ],
            " class=sum",
        ),
        row(
            "of",
            [sum(most), required(reports[0])[1] if reports else "", sum(most), "", *most],
            " class=sum",
        ),
    ]
    flags = "".join(
        f"<li>{html.escape(printable(r.name))}: {html.escape('; '.join(_flags(r)))}</li>"
        for r in reports
        if _flags(r)
    )
    found = Counter(name for r in reports for name, x in r.results.items() if x.status == "passed")
    easy = "".join(
        f"<h3>{html.escape(chapter)}</h3><table>"
        + "".join(row(html.escape(name), [f"{found[name]} of {len(reports)}"]) for name in names)
        + "</table>"
        for chapter, names in chapters.items()
    )
    made = "".join(
        row(f"{html.escape(name)}: {html.escape(printable(says))}", [n])
        for (name, says), n in _mistakes(reports)
    )
    return _document(
        "Grades",
        f"{_labelled(columns)}<h1>Grades</h1><p class=dim>{html.escape(told).replace(chr(10), '<br>')}</p><p class=dim>{INTEGRATED} Required: without the exercises that are optional. Columns with numbers are chapters.</p>"
        f'<div class="wide"><table>{head}{"".join(lines + sums)}</table></div>'
        + (
            f"<h2>Flagged, not punished</h2><p class=dim>Answers that call what the exercise is about, are the reference word for word, or tried something that no exercise needs.</p><ul>{flags}</ul>"
            if flags
            else ""
        )
        + f"<h2>Who passed what</h2>{easy}"
        + (f"<h2>Known mistakes, and how many made them</h2><table>{made}</table>" if made else ""),
    )


def write_pages(
    reports: list[GradeReport],
    folder: Path,
    level: str = "",  # how strangers' code was held
    told: str = "",  # how the batch was graded, for the list; without it, the level
) -> Path:  # the list
    """Write a page for each submission and a list of them."""
    for r in reports:
        write_whole(folder / f"{safe_name(r.name)}.html", page(r, level))
    write_whole(folder / "index.html", index(reports, told or level))
    return folder / "index.html"


def refuse_to_replace(
    names: Iterable[str],  # of the submissions of a batch
    table: Path,
    pages: Path | None,  # folder
) -> None:
    """Raise ValueError if a table or a list of pages that is there holds submissions that a batch
    lacks, or if the table's place is none.
    """
    names = list(names)
    check_place(table)
    if table.exists():
        with table.open(encoding="utf-8", errors="replace", newline="") as stream:
            rows = [
                row.get("submission") or "a line without a name" for row in csv.DictReader(stream)
            ]
        _refuse(table, "--csv", [name for name in rows if name not in {*map(_plain, names)}])
    if pages and (pages / "index.html").exists():
        ours = {"index", *map(safe_name, names)}
        _refuse(
            pages,
            "--html",
            [file.stem for file in sorted(pages.glob("*.html")) if file.stem not in ours],
        )


def _refuse(place: Path, option: str, others: list[str]) -> None:
    if others:
        raise ValueError(
            f"expected a new {option} or one of these submissions, got {place} with {len(others)} others, such as {others[0]}: choose another {option}, or remove {place}"
        )


def readable(text: str) -> str:
    """Spell out what no UTF-8 can hold: half a character, which JSON would pass on."""
    return text.encode("utf-8", "backslashreplace").decode()


def gradescope(report: GradeReport) -> dict:
    """Give a submission's results in Gradescope's form."""
    tests = [
        {
            "name": name,
            "score": r.points,
            "max_score": EXERCISES[name].points,
            "status": "passed" if r.status == "passed" else "failed",
            "output": "" if r.status == "passed" else readable(r.reason),
            "visibility": "visible",
        }
        for name, r in report.results.items()
    ]
    told = f"{report.integrated} points integrated. {INTEGRATED}" + "".join(
        f"\n{p}" for p in report.problems
    )
    return {"score": report.points, "output": readable(told), "tests": tests}


def write_gradescope(reports: list[GradeReport], folder: Path) -> None:
    """Write folder/<submission>/results.json; for one submission alone, folder/results.json."""
    for r in reports:
        place = folder if len(reports) == 1 else folder / safe_name(r.name)
        write_whole(place / "results.json", json.dumps(gradescope(r), indent=1) + "\n")
