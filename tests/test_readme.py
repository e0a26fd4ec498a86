"""What the README shows is what its code prints here and now: it is read before anything else is."""
import json
import re
import shlex
from pathlib import Path

import pytest
from typer import BadParameter
from typer.main import get_command

from minbert.app.cli import app, repeat_option

UsageError = BadParameter.__mro__[1]   # of click, or of the copy of it that typer brings
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
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


def commands() -> dict[str, str]:
    """Every line of a fenced block that begins with `minbert`, and what stands in backticks so, in what people read -> where it stands first."""
    pages = [ROOT / "README.md", *sorted((ROOT / "site" / "pages").glob("*.md")), *sorted((ROOT / "minbert" / "assets").glob("*/README.md"))]
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}
    for page in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in page.parts:
            cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
            texts[page.name] = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = {}
    for name, text in texts.items():
        fenced = "\n".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S))
        for line in re.findall(r"^ *(minbert .+)$", fenced, re.M) + re.findall(r"`(minbert [^`\n]+)`", text):
            found.setdefault(line, name)
    return found


def parsed(line: str) -> None:
    """Let the command line read what was typed, and run nothing."""
    words = repeat_option(shlex.split(re.split(r" [|;&>] ?", line)[0], comments=True)[1:])
    command = get_command(app)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if words and words != ["..."] and not hasattr(command, "commands"):
        command.make_context("minbert", [word for word in words if word != "..."])


def test_every_command_that_is_shown_can_be_typed():
    lines = commands()
    assert len(lines) > 40 and {"README.md", "cli.ipynb", "term.ipynb"} <= {*lines.values()}
    wrong = {}
    for line, page in lines.items():
        try:
            parsed(line)
        except UsageError as error:
            wrong[f"{page}: {line}"] = error.format_message()
    assert not wrong


@pytest.mark.parametrize("line", ["minbert train --task sst", "minbert predict model", "minbert encode model", "minbert reproduce --scale"])
def test_a_command_that_cannot_be_typed_is_noticed(line):
    with pytest.raises(UsageError):
        parsed(line)
