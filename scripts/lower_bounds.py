"""Print the oldest releases that settings.ini allows, one line for each package, for `pip install --constraint`.

python scripts/lower_bounds.py > lower.txt
pip install --constraint lower.txt --editable ".[notebooks,test]"
python -m pytest $(python scripts/lower_bounds.py --tests)     # the tests that call these libraries most
"""

import re
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = (
    "requirements",
    "train_requirements",
    "notebooks_requirements",
)  # what the package and the chapters import

TESTS = """tokens attention embedding encoder optim muon sentence data devices products integers training smoothness pcgrad losses metrics
significance baselines figures results_table checkpoint saving extras""".split()


def lower_bounds() -> list[str]:
    """Turn each `name>=version` of settings.ini into `name==version`; leave out what has no lower bound."""
    settings = ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    words = " ".join(settings["DEFAULT"][name] for name in LISTS).split()
    found = [re.match(r"([\w-]+)>=([\w.]+)", word) for word in words]
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    print(
        "\n".join(f"tests/test_{name}.py" for name in TESTS)
        if "--tests" in sys.argv
        else "\n".join(lower_bounds())
    )
