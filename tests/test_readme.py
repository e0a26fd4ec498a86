"""What the README and docs/library.md show is what their code prints here and now."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer import BadParameter
from typer.main import get_command

from minbert.cli.commands import app, repeat_option
from minbert.course.exercises import EXERCISES

UsageError = BadParameter.__mro__[1]  # of click, or of the copy of it that typer brings
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# code, and what stands below it
SHOWN = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)
LIBRARY = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
# language and code, in the order of the pages
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", LIBRARY + README, re.S | re.M)
NUMBER = r"-?\d+\.\d\d"


@pytest.mark.parametrize("code, text", SHOWN, ids=range(len(SHOWN)))
def test_code_of_the_readme_prints_what_stands_below_it(capsys, code, text):
    exec(code, {})
    printed = capsys.readouterr().out
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", text)
    found, told = (
        [float(number) for number in re.findall(NUMBER, lines)] for lines in (printed, text)
    )
    # another processor may round the last digit the other way
    assert found == pytest.approx(told, abs=0.011)


def test_the_readme_shows_an_output():
    assert SHOWN


STAND_INS = {  # what needs a network or a reader, and what takes its place here
    "make": f'exec "$REAL_MAKE" --dry-run -C "{ROOT}" "$@"\n',
    "pip": 'test "$1" = install && { test "$2" != -e || test -f "$3/setup.py"; }\n',
    "jupyter": 'test "$1" = lab && test -f "$2" && exec python -c "from solving import solve; solve(\'.\', \'$SOLVED\'.split())"\n',
}


@pytest.fixture(scope="module")
def worked(tmp_path_factory) -> tuple[Path, list[str]]:
    """Run every block of the two pages as printed, in one shell and an empty folder; give the
    folder and what each block printed.
    """
    tools, folder = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("empty")
    for name, text in STAND_INS.items():
        (tools / name).write_text("#!/bin/sh\n" + text)
        (tools / name).chmod(0o755)
    mark = "-- end of block"
    blocks = [
        code if language == "sh" else f"python - <<'END_OF_PYTHON'\n{code}END_OF_PYTHON\n"
        for language, code in BLOCKS
    ]
    script = "set -e -o pipefail\n" + "".join(f"{block}echo '{mark}'\n" for block in blocks)
    places = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
    solved = " ".join(name for name in EXERCISES if name.startswith("attention."))
    real = subprocess.run(
        ["sh", "-c", "command -v make"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("IN_TEST", "MINBERT_DATA")
    } | {
        "PATH": os.pathsep.join(places),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests"))),
        "REAL_MAKE": real,
        "SOLVED": solved,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "agg",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        text=True,
        timeout=3600,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed = done.stdout.split(mark + "\n")
    if done.returncode:
        failed = BLOCKS[len(printed) - 1][1]
        pytest.fail(
            f"a block of the README ended with exit status {done.returncode}:\n{failed}\nIt printed:\n{printed[-1]}"
        )
    return folder, printed[:-1]


def printed_by(worked, word: str) -> str:
    """Give what the one block printed that holds a word."""
    [text] = [text for (_, code), text in zip(BLOCKS, worked[1], strict=True) if word in code]
    return text


@pytest.mark.long
def test_the_readme_runs_from_top_to_bottom_in_an_empty_folder(worked):
    folder, printed = worked
    assert len(printed) == len(BLOCKS) > 8
    text = "\n".join(code for _, code in BLOCKS)
    told = re.findall(r"--out (\S+)", text)
    assert len(told) == len(set(told)) > 8, "two commands of the README write to the same place"
    assert [name for name in told if not (folder / name).exists()] == []


@pytest.mark.long
def test_training_as_in_the_readme_begins_better_than_chance(worked):
    """An encoder that an earlier block had whitened began at 6.84; guessing one of 64 costs ln 64 =
    4.16.
    """
    losses = [
        float(line.split()[1])
        for line in printed_by(worked, "train_views(").splitlines()
        if re.fullmatch(r"\d+ \d+\.\d+", line)
    ]
    assert len(losses) == 20 and losses[0] < math.log(64) and losses[-1] < losses[0]


@pytest.mark.long
def test_the_readme_answers_and_counts_what_it_says(worked):
    assert "'label': ['negative']" in printed_by(worked, "model.answer(")
    course = printed_by(worked, "minbert course new")
    count = sum(name.startswith("attention.") for name in EXERCISES)
    assert f"Success.\n{count} checks passed" in course
    assert (worked[0] / "answers.csv").read_text().splitlines()[0] == "sentence,label,probability"


def commands() -> dict[str, str]:
    """Every line of a fenced block that begins with `minbert`, and what stands in backticks so, in
    what people read -> where it stands first.
    """
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "site" / "pages").glob("*.md")),
        *sorted((ROOT / "minbert" / "assets").glob("*/README.md")),
    ]
    texts = {
        page.name if page.parent.name == "docs" else str(page.relative_to(ROOT)): page.read_text(
            encoding="utf-8"
        )
        for page in pages
    }
    for page in sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in page.parts:
            cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
            texts[page.name] = "\n".join(
                "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
            )
    found = {}
    for name, text in texts.items():
        fenced = "\n".join(re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S))
        for line in re.findall(r"^ *(minbert .+)$", fenced, re.M) + re.findall(
            r"`(minbert [^`\n]+)`", text
        ):
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
    assert len(lines) > 30 and {"README.md", "library.md", "instructor_guide.ipynb"} <= {
        *lines.values()
    }
    wrong = {}
    for line, page in lines.items():
        try:
            parsed(line)
        except UsageError as error:
            wrong[f"{page}: {line}"] = error.format_message()
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "minbert train --task sst",
        "minbert predict model",
        "minbert encode model",
        "minbert reproduce --scale",
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(line):
    with pytest.raises(UsageError):
        parsed(line)


NAMED_FILE = re.compile(r"`([\w/]+\.(?:py|ipynb|md|toml|json|parquet))`")


@pytest.mark.parametrize(
    "page",
    [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda page: page.stem,
)
def test_the_files_that_a_page_names_are_there(page):
    """By path, or by name in some folder of the repository."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in NAMED_FILE.findall(page.read_text(encoding="utf-8")):
        assert any(file == name or file.endswith(f"/{name}") for file in tracked), name
