"""What the papers printed: one figure a line, with the place where it stands."""

from __future__ import annotations

__all__ = ["PAPERS", "Published", "published"]

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

PAPERS = {
    "hu": "Hu, BERT-CF: contrastive flows (CS224N report)",
    "wu-zhao": "Wu and Zhao, contrastive pretraining and SMART (CS224N report)",
    "li": "Li et al. (2020), BERT-flow",
    "dao-mehta-tian": "Dao, Mehta and Tian, SimCSE and PCGrad (CS224N report)",
    "foley-cox-wendt": "Foley-Cox and Wendt, multiple negatives, SAIR and BPPO (CS224N report)",
}


class Published(NamedTuple):
    """One printed figure. Correlations, accuracies and areas are fractions, also where the paper
    prints them times 100.
    """

    paper: str  # a key of PAPERS
    table: str  # "T2": table 2; "S5.3.5": section 5.3.5
    row: str
    metric: str
    value: float


@cache
# (paper, table, row, metric) -> figure, in the order of the papers
def published() -> dict[tuple[str, str, str, str], Published]:
    """Read the figures that come with the package."""
    text = (resources.files("minbert") / "assets" / "published.csv").read_text(encoding="utf-8")
    rows = [Published(*row[:4], float(row[4])) for row in list(csv.reader(text.splitlines()))[1:]]
    return {row[:4]: row for row in rows}
