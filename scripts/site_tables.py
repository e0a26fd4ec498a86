"""Pages made of stored data: results, the glossary, and the way from CS224N's handout to this book."""

import json
import re
from importlib import import_module
from pathlib import Path

import compare_pretraining
import what_pretraining_buys
import yaml
from book import anchor
from site_chapters import ROOT, Chapter, book, link

from minbert.papers import markdown, totals
from minbert.papers.headline_claims import claims_table, measured_text, verdict_text
from minbert.papers.record import shipped_records

SITE = ROOT / "site"


def template(name: str, **parts: str) -> str:
    """Read a hand-written page and put what is made into its places, which look like <!-- name -->."""
    text = (SITE / "pages" / f"{name}.md").read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace(f"<!-- {key} -->", value)
    return text


def chapter(number: str) -> Chapter:
    """Find a chapter by its number, such as "02"."""
    return next(found for found in book() if found.name.startswith(number))


def bought(task: str) -> str:
    """Write what pretraining buys for one task, from the summaries in
    results/what-pretraining-buys.
    """
    files = ("summary.json", "larger.json")
    rows = [
        row
        for name in files
        for row in json.loads(
            (ROOT / "results" / "what-pretraining-buys" / name).read_text(encoding="utf-8")
        )
    ]
    lines = what_pretraining_buys.table([row for row in rows if row["task"] == task]).split("\n")
    # the task stands in the heading
    return "\n".join("|" + line.split("|", 2)[2] for line in lines)


def curve(folder: Path) -> None:
    """Draw what pretraining buys."""
    rows = json.loads(
        (ROOT / "results" / "what-pretraining-buys" / "summary.json").read_text(encoding="utf-8")
    )
    what_pretraining_buys.figure(rows, folder / "what-pretraining-buys.png")


def log() -> str:
    """Write ten lines of the log of the long run."""
    lines = [
        json.loads(line)
        for line in (ROOT / "results" / "pretraining" / "log.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ]
    rows = [
        f"| {r['step']:,} | {r['loss']:.3f} | {r['heldout_loss']:.3f} | {r['accuracy']:.1%} |"
        for r in lines
    ]
    return "\n".join(
        [
            "| step | training loss [nats] | held-out loss [nats] | held-out words guessed |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def number(value: float) -> str:
    """Write a number with four digits, or all of its whole part."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def benchmark(file: Path) -> str:
    """Write one stored benchmark: what was run where, and its table."""
    run = json.loads(file.read_text(encoding="utf-8"))
    columns = run["columns"]
    head = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    rows = [
        f"| {name} | " + " | ".join(map(number, values)) + " |"
        for name, values in run["rows"].items()
    ]
    return (
        f"### {run['name']}\n\n{run['says']}\n\n`{run['command']}`, {run['machine']}, median of {run['rounds']} rounds.\n\n"
        + "\n".join(head + rows)
        + "\n"
    )


def benchmarks() -> str:
    """Write all stored benchmarks."""
    return (
        "\n".join(
            benchmark(file) for file in sorted((ROOT / "results" / "benchmarks").glob("*.json"))
        )
        or "No run is stored yet.\n"
    )


def results_page() -> str:
    """Write the page of results."""
    return template(
        "results",
        **{task: bought(task) for task in ("sentiment", "inference", "similarity", "sst", "stsb")},
        recipes=compare_pretraining.table(ROOT / "results" / "pretraining" / "recipes"),
        log=log(),
        benchmarks=benchmarks(),
    )


def asked_twice(first: dict, second: dict) -> list[tuple[dict, dict]]:
    """Pair the claims that were measured with both encoders."""

    def key(c):
        return (c["better"], c["worse"], c["measured"])

    there = {key(c): c for c in first["claims"] if c["gain"]}
    return [(there[key(c)], c) for c in second["claims"] if c["gain"] and key(c) in there]


def two_encoders(first: dict, second: dict) -> str:
    """Write every claim that was measured at two scales, with both results."""
    names = " | ".join(
        f"{record['scale']}: ours [95 % interval], seeds | verdict" for record in (first, second)
    )
    lines = [f"| claim and measurement | printed | {names} |", "|---|---|---|---|---|---|"]
    for one, other in asked_twice(first, second):
        printed = "" if one["printed"] is None else f"{one['printed']:+.3f}"
        results = " | ".join(f"{measured_text(c)} | {verdict_text(c)}" for c in (one, other))
        lines.append(f"| {one['text']} ({one['measured']}) | {printed} | {results} |")
    return "\n".join(lines)


def record_page() -> str:
    """Write which claims replicate, then every printed figure beside ours, from the record."""
    records = shipped_records()
    micro, minilm = records["micro"], records["minilm"]
    return template(
        "record",
        tables=markdown(micro),
        headline=claims_table(records),
        stronger=two_encoders(micro, minilm),
        verdicts="\n".join(totals(micro)),
    )


FOLDED = {  # first column of a table -> what its fold is called
    "table": "figures, printed and measured",
    "claim": "claims and their verdicts",
    "claim without a printed difference": "claims without a printed difference",
    "claim and measurement": "claims with two encoders",
}


def folded(page: str) -> str:
    """Fold the long tables of the record; a click opens one, and so do a search and printing."""

    def fold(found: re.Match) -> str:
        summary = f"{found[0].count(chr(10)) - 2} {FOLDED[found[1]]}"
        return f'<details class="folded"><summary>{summary}</summary>\n\n{found[0]}\n</details>\n'

    return re.sub(rf"^\| ({'|'.join(FOLDED)}) \|.*\n(?:\|.*\n)+", fold, page, flags=re.M)


def glossary() -> list[dict]:
    """Read the terms."""
    return yaml.safe_load((SITE / "glossary.yml").read_text(encoding="utf-8"))


def first_use(entry: dict) -> str:
    """Link to the place where a chapter first uses a term; the site's extension knows the places."""
    home = chapter(entry["chapter"])
    return f"{{ref}}`{home.name} <{home.page}:{anchor(entry['term'])}>`"


def glossary_page() -> str:
    """Write the glossary, each term with its way to the chapter."""
    entries = sorted(glossary(), key=lambda entry: entry["term"].lower())
    lines = "\n".join(
        f"{entry['term']}\n  {entry['says']} Chapter {first_use(entry)}.\n" for entry in entries
    )
    return template("glossary", terms=f"```{{glossary}}\n{lines}```")


def ours(place: str) -> object:
    """Find what "attention.SelfAttention.forward" names. Raises AttributeError or ImportError where
    there is nothing.
    """
    parts = place.split(".")
    size = 2 if parts[0] in ("core", "datasets", "encoding", "course", "cli") else 1
    found = import_module("minbert." + ".".join(parts[:size]))
    for part in parts[size:]:
        found = getattr(found, part)
    return found


def handout() -> list[dict]:
    """Read which function of CS224N's project is which of ours."""
    return yaml.safe_load((SITE / "cs224n.yml").read_text(encoding="utf-8"))


def handout_row(row: dict) -> str:
    """Write one line: theirs, ours, the chapter, and what differs."""
    places = ", ".join(f"{{py:obj}}`{place} <minbert.{place}>`" for place in row.get("ours", []))
    home = link(chapter(row["chapter"]), "cs224n") if row.get("chapter") else ""
    return f"| `{row['theirs']}` | {places or 'not needed'} | {home} | {row.get('note', '')} |"


def handout_page() -> str:
    """Write the page for those who come from CS224N's handout, file by file."""
    parts = [
        f"### {file['file']}\n\n{file['says']}\n\n| there | here | chapter | what differs |\n|---|---|---|---|\n"
        + "\n".join(map(handout_row, file["rows"]))
        for file in handout()
    ]
    return template("cs224n", files="\n\n".join(parts))
