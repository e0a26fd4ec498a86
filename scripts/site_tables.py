"""Pages made of stored data: results, the glossary, and the way from CS224N's handout to this book."""
import json
import re
from importlib import import_module
from pathlib import Path

import compare_pretraining
import what_pretraining_buys
import yaml
from book import anchor
from minbert.reproduce import markdown, totals
from minbert.reproduce.headline_claims import claims_table
from site_chapters import ROOT, Chapter, book, link

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
    """Write what pretraining buys for one task, from the summaries in results/what-pretraining-buys."""
    files = ("summary.json", "larger.json")
    rows = [row for name in files for row in json.loads((ROOT / "results" / "what-pretraining-buys" / name).read_text(encoding="utf-8"))]
    lines = what_pretraining_buys.table([row for row in rows if row["task"] == task]).split("\n")
    return "\n".join("|" + line.split("|", 2)[2] for line in lines)   # the task stands in the heading


def curve(folder: Path) -> None:
    """Draw what pretraining buys."""
    rows = json.loads((ROOT / "results" / "what-pretraining-buys" / "summary.json").read_text(encoding="utf-8"))
    what_pretraining_buys.figure(rows, folder / "what-pretraining-buys.png")


def log() -> str:
    """Write ten lines of the log of the long run."""
    lines = [json.loads(line) for line in (ROOT / "results" / "pretraining" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [f"| {r['step']:,} | {r['loss']:.3f} | {r['heldout_loss']:.3f} | {r['accuracy']:.1%} |" for r in lines]
    return "\n".join(["| step | training loss [nats] | held-out loss [nats] | held-out words guessed |", "|---|---|---|---|", *rows])


def number(value: float) -> str:
    """Write a number with four digits, or all of its whole part."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def benchmark(file: Path) -> str:
    """Write one stored benchmark: what was run where, and its table."""
    run = json.loads(file.read_text(encoding="utf-8"))
    columns = run["columns"]
    head = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    rows = [f"| {name} | " + " | ".join(map(number, values)) + " |" for name, values in run["rows"].items()]
    return f"### {run['name']}\n\n{run['says']}\n\n`{run['command']}`, {run['machine']}, median of {run['rounds']} rounds.\n\n" + "\n".join(head + rows) + "\n"


def benchmarks() -> str:
    """Write all stored benchmarks."""
    return "\n".join(benchmark(file) for file in sorted((ROOT / "results" / "benchmarks").glob("*.json"))) or "No run is stored yet.\n"


def results_page() -> str:
    """Write the page of results."""
    return template("results", **{task: bought(task) for task in ("sentiment", "inference", "similarity", "sst", "stsb")},
                    recipes=compare_pretraining.table(ROOT / "results" / "pretraining" / "recipes"), log=log(), benchmarks=benchmarks())


def stored_record(scale: str) -> dict:
    """Read what `minbert reproduce report --store` wrote of a scale."""
    return json.loads((ROOT / "minbert" / "assets" / "results" / f"recipes-{scale}.json").read_text(encoding="utf-8"))


def spread(found: dict) -> str:
    """Write the gain of a claim, with its interval where it has one."""
    value, low, high = found["gain"]
    return f"{value:+.3f}" + ("" if low is None else f" [{low:+.3f}, {high:+.3f}]")


def printed_gain(found: dict) -> str:
    """Write the gain in print, or nothing."""
    return "" if found["printed"] is None else f"{found['printed']:+.3f}"


def seeds_of(found: dict) -> str:
    """Say with how many seeds a claim was tested."""
    number = found["seeds"]
    return f"{number} seed{'s' * (number > 1)}" if number else "deterministic"


def gain(better: str, worse: str, measured: str, record: dict) -> str:
    """Write what a record says of a claim: gain, interval, printed gain, seeds and verdict.

    Raises ValueError for a claim that has not been run.
    """
    found = next((c for c in record["claims"] if (c["better"], c["worse"], c["measured"])
                  == (better, worse, measured) and c["verdict"] != "not run"), None)
    if found is None:
        raise ValueError(f"site/pages/record.md: expected a claim of the record whose rows have "
                         f"run, got {better} over {worse} in {measured}")
    if not found["gain"]:
        return found["verdict"]
    printed = printed_gain(found)
    printed = f", printed {printed}" if printed else ""
    return f"{spread(found)}{printed}, {seeds_of(found)}: {found['verdict']}"


def asked_twice(first: dict, second: dict) -> list[tuple[dict, dict]]:
    """Pair the sentences that two encoders were asked."""
    key = lambda c: (c["better"], c["worse"], c["measured"])
    there = {key(c): c for c in first["claims"] if c["gain"]}
    return [(there[key(c)], c) for c in second["claims"] if c["gain"] and key(c) in there]


def two_encoders(first: dict, second: dict) -> str:
    """Set what a sentence came to on one encoder beside what it came to on another."""
    said = lambda c: f"{spread(c)}, {seeds_of(c)}: {c['verdict']}{'' if c['learned'] else ', neither row learned'}"
    rows = [f"| {one['text']} ({one['measured']}) | {printed_gain(one)} | {said(one)} | {said(other)} |" for one, other in asked_twice(first, second)]
    return "\n".join(["| sentence and measurement | printed gain | small encoder | MiniLM |", "|---|---|---|---|", *rows])


def record_page() -> str:
    """Write which claims replicate, then every printed figure beside ours, from the record."""
    records = {scale: stored_record(scale) for scale in ("micro", "minilm")}
    micro, minilm = records["micro"], records["minilm"]
    parted = [(one, other) for one, other in asked_twice(micro, minilm)
              if one["verdict"] != other["verdict"]]
    larger = sum(other["gain"][0] > one["gain"][0] for one, other in parted)
    page = template("record", tables=markdown(micro), larger=f"{larger} of {len(parted)}",
                    headline=claims_table(records), stronger=two_encoders(micro, minilm),
                    verdicts="\n".join(totals(micro)))
    found = re.compile(r"<!-- gain (\S+) over (\S+) in ([^@]+?)(?: @ (\S+))? -->")
    return found.sub(lambda m: gain(*m.groups()[:3], records[m[4] or "micro"]), page)


FOLDED = {   # first column of a table -> what its fold is called
    "table": "figures, printed and measured", "claim": "claims and their verdicts",
    "claim without a printed difference": "claims without a printed difference",
    "sentence and measurement": "claims on two encoders"}


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
    lines = "\n".join(f"{entry['term']}\n  {entry['says']} Chapter {first_use(entry)}.\n" for entry in entries)
    return template("glossary", terms=f"```{{glossary}}\n{lines}```")


def ours(place: str) -> object:
    """Find what "attention.SelfAttention.forward" names. Raises AttributeError or ImportError where there is nothing."""
    parts = place.split(".")
    size = 2 if parts[0] in ("engine", "course", "app") else 1
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
    parts = [f"### {file['file']}\n\n{file['says']}\n\n| there | here | chapter | what differs |\n|---|---|---|---|\n" + "\n".join(map(handout_row, file["rows"]))
             for file in handout()]
    return template("cs224n", files="\n\n".join(parts))
