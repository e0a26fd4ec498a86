"""The headline claims of the five papers, and the table that says which of them replicate."""

from __future__ import annotations

__all__ = [
    "HEADLINE_CLAIMS",
    "HeadlineClaim",
    "claims_table",
    "measured_text",
    "verdict_counts",
    "verdict_text",
]

from collections import Counter
from typing import NamedTuple

from ..significance import VERDICTS
from .finetune_stages import KEYS
from .record import shipped_records
from .sts_suite import DEV


class HeadlineClaim(NamedTuple):
    """A claim that a paper is known for, as one comparison of the record."""

    paper: str  # a key of AUTHORS
    text: str
    better: str  # name of a recipe
    worse: str
    measured: str
    note: str = ""  # what the table says instead of a printed difference


SST, QUORA, STS = (KEYS[task] for task in ("sst", "quora", "sts"))
OUTDATED = "†"  # marks a verdict
AUTHORS = {
    "hu": "Hu",
    "wu-zhao": "Wu and Zhao",
    "li": "Li et al.",
    "dao-mehta-tian": "Dao et al.",
    "foley-cox-wendt": "Foley-Cox and Wendt",
    "control": "control, in no paper",
}
HU, WU, DAO, FOLEY = "hu", "wu-zhao", "dao-mehta-tian", "foley-cox-wendt"
HEADLINE_CLAIMS = (
    HeadlineClaim(
        HU, "Mirror-BERT training raises unsupervised STS", "hu/mirror", "hu/minbert", DEV
    ),
    HeadlineClaim(
        HU, "BERT-CF is above Mirror-BERT, unsupervised STS", "hu/bert-cf", "hu/mirror", DEV
    ),
    HeadlineClaim(
        HU, "Two stages are above joint training, unsupervised STS", "hu/bert-cf", "hu/joint", DEV
    ),
    HeadlineClaim(
        HU,
        "BERT-CF is above BERT after fine-tuning, SST",
        "hu/bert-cf",
        "hu/minbert",
        "SST-5 dev acc",
    ),
    HeadlineClaim(
        HU,
        "BERT-CF is above BERT after fine-tuning, Quora",
        "hu/bert-cf",
        "hu/minbert",
        "QQP dev acc",
    ),
    HeadlineClaim(
        HU, "BERT-CF is above BERT after fine-tuning, STS", "hu/bert-cf", "hu/minbert", STS
    ),
    HeadlineClaim(
        "li",
        "The flow on target text is above the mean of two layers, mean of seven STS sets",
        "li/base-flow-target",
        "li/base-last2avg",
        "average",
    ),
    HeadlineClaim(
        "li",
        "The flow weakens the correlation with the edit distance",
        "li/edits-flow-target",
        "li/edits-bert",
        "vs edit distance",
    ),
    HeadlineClaim(
        "li",
        "The flow is above SN and NATSV (k = 6), STS-B",
        "li/base-mean-flow-target",
        "li/base-sn-natsv-6-target",
        "STS-B",
    ),
    HeadlineClaim(
        "li",
        "The flow is above NATSV (k = 10), STS-B",
        "li/base-mean-flow-target",
        "li/base-natsv-10-target",
        "STS-B",
    ),
    HeadlineClaim(WU, "SMART improves fine-tuning, SST", "wu-zhao/sst-smart", "wu-zhao/sst", SST),
    HeadlineClaim(
        WU, "SMART improves fine-tuning, Quora", "wu-zhao/quora-smart", "wu-zhao/quora", QUORA
    ),
    HeadlineClaim(WU, "SMART improves fine-tuning, STS", "wu-zhao/sts-smart", "wu-zhao/sts", STS),
    HeadlineClaim(
        WU,
        "Contrastive training on Quora is above fine-tuning on Quora, STS",
        "wu-zhao/contrast",
        "wu-zhao/quora",
        STS,
    ),
    HeadlineClaim(
        WU,
        "Contrastive training before the three tasks raises their mean",
        "wu-zhao/contrast-all",
        "wu-zhao/all",
        "average",
    ),
    HeadlineClaim(
        DAO,
        "Multitask training is above sequential training, SST",
        "dao-mehta-tian/multitask",
        "dao-mehta-tian/sequential",
        SST,
    ),
    HeadlineClaim(
        DAO,
        "Multitask training is above sequential training, mean of the tasks",
        "dao-mehta-tian/multitask",
        "dao-mehta-tian/sequential",
        "overall",
    ),
    HeadlineClaim(
        DAO,
        "Concatenation is above the cosine, Quora",
        "dao-mehta-tian/quora-concatenation",
        "dao-mehta-tian/quora-cosine",
        QUORA,
    ),
    HeadlineClaim(
        DAO,
        "The cosine is above concatenation, STS",
        "dao-mehta-tian/sts-cosine",
        "dao-mehta-tian/sts-concatenation",
        STS,
    ),
    HeadlineClaim(
        DAO,
        "Supervised contrastive training is above the frozen baseline, SST",
        "dao-mehta-tian/dropout-0.8",
        "dao-mehta-tian/leaderboard",
        SST,
    ),
    HeadlineClaim(
        FOLEY,
        "Multiple-negatives ranking raises STS",
        "foley-cox-wendt/final",
        "foley-cox-wendt/plain",
        STS,
        '"large boosts"',
    ),
    HeadlineClaim(
        FOLEY,
        "SAIR makes no difference, SST",
        "foley-cox-wendt/sair-10-1000-0.0001",
        "foley-cox-wendt/plain",
        SST,
    ),
    HeadlineClaim(
        FOLEY,
        "BPPO with a copy for each batch brings no gain, SST",
        "foley-cox-wendt/bppo-once",
        "foley-cox-wendt/plain",
        SST,
    ),
    HeadlineClaim(
        FOLEY,
        "The final model is above the baseline, STS",
        "foley-cox-wendt/final",
        "foley-cox-wendt/baseline",
        STS,
    ),
    HeadlineClaim(
        "control",
        "The flow is above whitening with the same text, STS-B",
        "li/base-flow-target",
        "control/whiten-target",
        "STS-B",
        "not compared",
    ),
    HeadlineClaim(
        "control",
        "PCGrad is above the plain sum of losses, mean of the tasks",
        "dao-mehta-tian/multitask",
        "control/joint-sum",
        "overall",
        "not compared",
    ),
)


def claims_table(
    records: dict[str, dict] | None = None,  # column -> record; None: those of the package
) -> str:
    """Write one line for each headline claim: printed difference, ours with interval, verdict."""
    records = shipped_records() if records is None else records
    names = " | ".join(f"{name}: ours [95 % interval], seeds | verdict" for name in records)
    found = {
        name: {(c["better"], c["worse"], c["measured"]): c for c in record["claims"]}
        for name, record in records.items()
    }
    lines = [f"| paper | claim | printed | {names} |", "|---|---|---|" + "---|---|" * len(records)]
    lines += [_line(headline, found) for headline in HEADLINE_CLAIMS]
    if any(OUTDATED in line for line in lines):
        lines += ["", f"{OUTDATED} A recipe of this comparison has been changed since it ran."]
    return "\n".join(lines)


def verdict_counts(
    scale: str,  # name of a record of the package
) -> str:
    """Count the verdicts of the headline claims with a printed difference, one line for each paper."""
    found = {
        (c["better"], c["worse"], c["measured"]): c for c in shipped_records()[scale]["claims"]
    }
    lines = [f"{'':21}" + "".join(f"  {name}" for name in VERDICTS)]
    for paper, author in AUTHORS.items():
        claims = [
            found.get(tuple(c[2:5])) for c in HEADLINE_CLAIMS if c.paper == paper and not c.note
        ]
        counts = Counter(c["verdict"] for c in claims if c and c["printed"] is not None)
        if counts:
            cells = "".join(f"  {counts[name]:{len(name)}}" for name in VERDICTS)
            lines.append(f"{author:21}{cells}")
    return "\n".join(lines)


def _line(headline: HeadlineClaim, found: dict[str, dict]) -> str:
    """Write a claim and what each record says about it."""
    paper = AUTHORS[headline.paper]
    results = [record.get(tuple(headline[2:5])) for record in found.values()]
    printed = next((r["printed"] for r in results if r and r["printed"] is not None), None)
    shown = headline.note if printed is None else f"{printed:+.3f}"
    cells = " | ".join(f"{measured_text(r)} | {verdict_text(r)}" for r in results)
    return f"| {paper} | {headline.text} | {shown} | {cells} |"


def verdict_text(result: dict | None) -> str:
    """Write the verdict of a claim of a record, marked if one of its recipes has been changed."""
    if result is None:
        return "not run"
    learned = "" if result["learned"] else " (neither row learned)"
    return result["verdict"] + learned + (f" {OUTDATED}" if result["outdated"] else "")


def measured_text(result: dict | None) -> str:
    """Write a difference with its interval and seeds; nothing if it was not measured."""
    if not result or not result["gain"] or result["gain"][0] is None:
        return ""
    value, low, high = result["gain"]
    span = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    seeds = result["seeds"]
    return f"{value:+.3f}{span}, " + (
        f"{seeds} seed{'s' * (seeds > 1)}" if seeds else "deterministic"
    )
