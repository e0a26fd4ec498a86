"""Write what names the repository's address, from the one setting that holds it: `address` in
settings.ini, empty until published.

These are the first cell of each chapter, and in nbs/index.ipynb the links and the lines that
install. `--check` only compares.
"""

import json
import re
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"https://[\w.-]+(?:/[\w.-]+){2,}")  # https://HOST/OWNER/NAME

SENTENCES = {  # address known? -> what a first cell says whose installation failed
    False: "This chapter needs minbert. In Colab, put the wheel minbert-*.whl among the files of this notebook and run this cell again: "
    "`make wheel` in a clone builds it. Elsewhere, pip install that wheel, or run `make lab` in a clone.",
    True: "This chapter needs minbert, and installing it from {address} failed: pip says why above. "
    "Elsewhere than in Colab, run `make lab` in a clone.",
}

INSTALL = {  # address known? -> how the README tells to install
    False: """
Other ways to install minbert, as long as the repository has no public address:

- `pip install .` in a clone installs the package alone.
- `make wheel` in a clone writes `dist/{wheel}`, a single file that `pip install` accepts on any machine. Instructors hand it to their class.
- **Colab**: upload a chapter of `nbs/` and, beside it, the wheel (the folder icon on the left); or keep both in a shared drive, mount it and `%cd` to
  the folder. The first cell of the chapter installs the wheel, or says that it is missing.""",
    True: """
Other ways to install it: `pip install "minbert @ git+{address}"` installs the package alone, `make wheel` in a clone writes
`dist/{wheel}`, one file that `pip install` takes on any machine, and in Colab a chapter's first cell does it.""",
}
MARK = "<!-- from settings.ini by scripts/address.py -->"


def settings() -> tuple[str, str]:  # address, version
    """Read the two settings. Raises ValueError for an address that nothing could be cloned from."""
    found = ConfigParser(delimiters=["="])
    found.read(ROOT / "settings.ini", encoding="utf-8")
    address = found["DEFAULT"]["address"].strip().removesuffix("/").removesuffix(".git")
    if address and not ADDRESS.fullmatch(address):
        raise ValueError(
            f"settings.ini: expected an address such as https://HOST/OWNER/NAME, or none, got {address!r}"
        )
    return address, found["DEFAULT"]["version"]


def first_cell(address: str, extra: str) -> str:
    """Write the cell that installs minbert in Colab and stops with a sentence where that failed."""
    source = f'"git+{address}"' if address else "minbert-*.whl"
    imports = [] if address else ["from pathlib import Path"]
    # else pip's errors would frame our sentence
    there = "" if address else " and any(Path().glob('minbert-*.whl'))"
    return "\n".join(
        [
            "#| hide",
            "#| eval: false",
            *imports,
            f"if 'google.colab' in str(get_ipython()){there}:",
            f"    %pip install -q {source}{extra}",
            "try:",
            "    import minbert",
            "except ModuleNotFoundError:",
            f"    raise SystemExit({json.dumps(SENTENCES[bool(address)].format(address=address))})",
        ]
    )


def colab(address: str, notebook: str) -> str:
    """Link a chapter to Colab, which opens notebooks of GitHub and of nobody else."""
    host, _, path = address.removeprefix("https://").partition("/")
    return (
        f"[Colab](https://colab.research.google.com/github/{path}/blob/main/nbs/{notebook})"
        if host == "github.com"
        else ""
    )


def table_row(line: str, address: str) -> str:
    """Give a row of the table of chapters its fourth column, where there is an address to link to."""
    kept = re.match(r"\|(?:[^|]*\|){3}", line)[0]
    if not colab(address, ""):
        return kept
    chapters = re.findall(r"\]\(([\w/]+\.ipynb)\)", kept)
    last = (
        "---|"
        if set(kept) <= set("|-")
        else " run it |"
        if "chapter |" in kept
        else f" {colab(address, chapters[0])} |"
        if len(chapters) == 1
        else " |"
    )
    return kept + last


def index_cell(source: str, address: str, version: str) -> str:
    """Write one markdown cell of the index again; the same text where it names no address."""
    wheel = f"minbert-{version}-py3-none-any.whl"
    if source.startswith(MARK):
        return MARK + "\n" + INSTALL[bool(address)].format(address=address, wheel=wheel)
    line = (
        f'pip install "minbert[dev] @ git+{address}"'
        if address
        else f'pip install "{wheel}[dev]"   # what `make wheel` put into dist/, or your instructor gave you'
    )
    source = re.sub(r'^pip install ".*\[dev\].*".*$', line, source, flags=re.M)
    if not source.startswith("## Chapters"):
        return source
    return "\n".join(
        table_row(line, address) if line.startswith("|") else line for line in source.split("\n")
    )


def written(file: Path, address: str, version: str) -> str:
    """Make the text of a notebook with the address in its places."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "'google.colab'" in source:
            extra = re.search(r'%pip install -q (?:"[^"]*"|\S+)(.*)', source)[1]
            source = first_cell(address, extra)
        elif cell["cell_type"] == "markdown" and file.stem == "index":
            source = index_cell(source, address, version)
        cell["source"] = source.splitlines(keepends=True)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    address, version = settings()
    stale = []
    for file in sorted(
        path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
    ):
        text = written(file, address, version)
        if file.read_text(encoding="utf-8") != text:
            stale.append(file.relative_to(ROOT / "nbs").as_posix())
            if "--check" not in sys.argv:
                file.write_text(text, encoding="utf-8")
    if "--check" not in sys.argv:
        return 0
    for name in stale:
        print(
            f"nbs/{name} does not name the address of settings.ini as it should: run `make export`"
        )
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
