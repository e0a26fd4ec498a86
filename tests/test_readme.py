"""What the README shows is what its code prints here and now: it is read before anything else is."""
import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)   # code, and what stands below it


@pytest.mark.parametrize("code, text", SHOWN, ids=range(len(SHOWN)))
def test_code_of_the_readme_prints_what_stands_below_it(capsys, code, text):
    exec(code, {})
    assert capsys.readouterr().out == text


def test_the_readme_shows_an_output():
    assert SHOWN
