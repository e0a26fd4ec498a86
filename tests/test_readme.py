"""What the README shows is what its code prints here and now: it is read before anything else is."""
import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)   # code, and what stands below it
NUMBER = r"-?\d+\.\d\d"


@pytest.mark.parametrize("code, text", SHOWN, ids=range(len(SHOWN)))
def test_code_of_the_readme_prints_what_stands_below_it(capsys, code, text):
    exec(code, {})
    printed = capsys.readouterr().out
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", text)
    found, told = ([float(number) for number in re.findall(NUMBER, lines)] for lines in (printed, text))
    assert found == pytest.approx(told, abs=0.011)   # another processor may round the last digit the other way


def test_the_readme_shows_an_output():
    assert SHOWN
