"""Every published table as a recipe: what was printed, what we did instead, what came out, and what of it can be told."""
from importlib import import_module

from .published import PAPERS, published
from .recipe import CLAIMS, NOT_RUN, RECIPES, chosen
from .report import as_json, make_report, markdown
from .run import Answers, Run
from .scale import SCALES, Scale
from .store import missing_data, perform, result_file, stored, unfinished

__all__ = ["PAPERS", "published", "CLAIMS", "NOT_RUN", "RECIPES", "chosen", "as_json", "make_report", "markdown", "Answers", "Run", "SCALES", "Scale",
           "missing_data", "perform", "result_file", "stored", "unfinished"]

MODULES = ("hu", "li", "controls", "course", "wu_zhao", "dao", "foley")   # one a paper, and the controls; each registers its recipes
for _module in MODULES:
    import_module(f".{_module}", __name__)
