"""Every published table as a recipe: what was printed, what we did instead, what came out, and what
of it can be told.
"""

from importlib import import_module

from .published import PAPERS, published
from .recipe import CLAIMS, NOT_RUN, RECIPES, chosen
from .report import as_json, make_report, markdown, totals
from .result_store import find_result, missing_data, perform, stored, unfinished
from .results_table import add_results, read_results, result_file
from .run import Answers, Run
from .scale import SCALES, Scale

__all__ = [
    "PAPERS",
    "published",
    "CLAIMS",
    "NOT_RUN",
    "RECIPES",
    "chosen",
    "as_json",
    "make_report",
    "markdown",
    "totals",
    "Answers",
    "Run",
    "SCALES",
    "Scale",
    "add_results",
    "read_results",
    "result_file",
    "find_result",
    "missing_data",
    "perform",
    "stored",
    "unfinished",
]

# one a paper, and the controls; each registers its recipes
MODULES = (
    "hu",
    "li",
    "baselines",
    "course",
    "wu_zhao",
    "dao",
    "foley",
    "headline_claims",
)  # looks up what these registered
for _module in MODULES:
    import_module(f".{_module}", __name__)
