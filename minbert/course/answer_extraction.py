"""Extracting a learner's answer from a notebook, with the helpers and imports that it needs,
without running the notebook.

A notebook may loop for ever or delete files, so it is read as text and the names are followed.
Commands of IPython become comments, and each cell keeps its number of lines, so that the line
numbers in error messages stay right. The last definition that is not a stub counts, because people
copy a cell and solve the copy. The answer goes into a copy of our module in the place of the
reference; other exercises keep the reference there, so that an early failure does not spoil later
ones.
"""

__all__ = [
    "LARGEST",
    "LARGEST_CODE",
    "LARGEST_CELL",
    "MOST_CELLS",
    "Notebook",
    "plain_python",
    "read_cells",
    "read_notebook",
    "Answer",
    "answer",
    "unusable",
    "borrows",
    "around",
    "single",
    "integrated",
]

import ast
import builtins
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from textwrap import indent
from typing import NamedTuple
from unicodedata import normalize

from .exercises import EXERCISES, Exercise
from .source_tools import (
    DEFINITIONS,
    Piece,
    find,
    is_stub,
    module_text,
    needed,
    parse,
    pieces,
    replace_all,
    same_program,
    source_of,
    stub,
)

LARGEST = 20 * 2**20  # bytes; the largest chapter with all its pictures has under 1
# characters, ten times the largest chapter; a parsed text takes a hundred times its size in memory
LARGEST_CODE = 400_000
LARGEST_CELL = 100_000
MOST_CELLS = 2_000  # the longest chapter has 47


class Notebook(NamedTuple):
    """The code of a notebook, as text."""

    cells: tuple[str, ...]  # that parse
    broken: tuple[tuple[str, str], ...]  # (source, error) of the others
    texts: tuple[str, ...] = ()  # of the cells that hold no code: Markdown and raw text
    left_out: tuple[str, ...] = ()  # which cells cannot be used, and why: one sentence each

    @property
    def exported(self) -> tuple[str, ...]:
        """Give the cells that make the package."""
        return tuple(cell for cell in self.cells if re.search(r"^#\|[ \t]*export", cell, re.M))

    @property
    def pieces(self) -> list[Piece]:
        """Give everything it defines at top level: what is exported last, since the last definition
        of a name counts.
        """
        own = dict.fromkeys(self.exported)
        return [
            piece
            for cell in (*(c for c in self.cells if c not in own), *own)
            for piece in pieces(cell)
        ]


# the cell magics at the top of a cell
_MAGICS = re.compile(r"(?:[ \t]*\n|%%[^\n]*(?:\n|\Z))*")
_LINE = re.compile(r"(?:\\\n|[^\n])*")  # with what a backslash adds to it
_TOKENS = re.compile(
    r"""#[^\n]*|('''|\"\"\")(?:\\.?|[^\\])*?(?:\1|\Z)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?|[()\[\]{}]|\\\n|\n""",
    re.S,
)
# Cell magics of IPython that do not run what stands below them as Python of the notebook.
_NOT_RUN_HERE = frozenset(
    "! bash cmd file html HTML javascript js latex markdown perl pypy python python2 python3 ruby script sh "
    "svg SVG sx system writefile".split()
)


def plain_python(
    source: str,  # of a cell
) -> str:  # with as many lines
    """Turn what only IPython understands into Python, with its commands as comments; what is Python
    stays as it is.
    """
    source = source.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(source) > LARGEST_CELL or _fault(source) is None:
        return source
    text = _cleaned(source)
    head = _MAGICS.match(text)[0]
    if not _NOT_RUN_HERE.isdisjoint(re.findall(r"^%%(\w+|!)", head, re.M)):
        return _comment(source)
    rest = _cleaned(text[len(head) :])
    return _comment(head) + (rest if _fault(rest) is None else _without_commands(rest))


def _cleaned(source: str) -> str:
    """Take a common indent and prompts away, as IPython does; empty lines at the top stay."""
    from IPython.core.inputtransformer2 import TransformerManager  # late: it takes half a second

    text = source.lstrip("\n")
    lines = text.splitlines(keepends=True)
    empty = next((i for i, line in enumerate(lines) if line.strip()), 0)
    for clean in TransformerManager().cleanup_transforms:
        lines = clean(lines)
    return "\n" * (len(source) - len(text) + empty) + "".join(lines)


def _comment(text: str) -> str:
    return re.sub(r"^(?=.)", "# ", text, flags=re.M)


def _without_commands(source: str) -> str:
    """Comment out commands where a statement may begin: not inside brackets or texts."""
    parts, place, depth, fresh = [], 0, 0, True
    while place < len(source):
        line = _LINE.match(source, place)[0] if fresh else ""
        if _is_command(line):
            margin = line[: len(line) - len(line.lstrip())]
            parts.append(margin + "pass  # " + line.lstrip().replace("\n", "\n# "))
            place, fresh = place + len(line), False
            continue
        token = _TOKENS.search(source, place)
        stop, mark = (token.end(), token[0]) if token else (len(source), "")
        parts.append(source[place:stop])
        depth = max(0, depth + (mark in tuple("([{")) - (mark in tuple(")]}")))
        place, fresh = stop, mark == "\n" and not depth
    return "".join(parts)


def _is_command(line: str) -> bool:
    """Tell IPython's lines from Python: %magic, !shell, name?, the first two behind an equals sign,
    and calls without brackets by `,`, `;` or `/`.
    """
    text = line.strip()
    name, _, value = text.partition("=")
    plain = not set(name) & set("#'\"(")  # print(f"{x=!r}") is none
    asks = text.endswith("?") and not set(text) & set("#'\"")
    return (
        text.startswith(("%", "!", "?", ",", ";", "/"))
        or asks
        or (plain and value.lstrip().startswith(("%", "!")))
    )


@lru_cache(maxsize=65536)
def _fault(source: str) -> str | None:
    """Say why a cell is no Python. Most cells of a class are the same."""
    if len(source) > LARGEST_CELL:
        return f"expected at most {LARGEST_CELL} characters, got {len(source)}"
    try:
        # parses, and looks for what parses and yet cannot be: def f(a, a), or a global argument
        pieces(source)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}{_place(error, source)}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _place(error: SyntaxError, source: str) -> str:
    """Name a line of a cell and write it down; nothing where lines are not counted from the first
    of the cell.
    """
    if error.filename != "<unknown>" or not error.lineno:
        return ""
    line = source.split("\n")[error.lineno - 1 : error.lineno]
    return f", line {error.lineno} of it: {''.join(line).strip()[:60]}"


def read_cells(
    sources: Iterable[str],  # of the code cells
    texts: Iterable[str] = (),  # of the other cells
    left_out: Iterable[str] = (),  # which cells are damaged, and how
    numbers: Iterable[int] = (),  # of the code cells in their notebook, counted from 1
) -> Notebook:
    """Sort cells into those that parse and those that do not."""
    cells = [(source, _fault(source)) for source in map(plain_python, sources)]
    fine, broken = [s for s, fault in cells if not fault], [cell for cell in cells if cell[1]]
    unread = [
        f"cell {number} cannot be used: {fault}"
        for number, (_, fault) in zip(numbers, cells)
        if fault
    ]
    return Notebook(tuple(fine), tuple(broken), tuple(texts), (*left_out, *unread))


def _source(cell) -> str:
    """Give the text of a cell. Raises ValueError if the cell has none."""
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        raise ValueError("is no cell: it has no cell_type")
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        raise ValueError("has no source")
    return "".join(lines)


def _cells_of(text: str, name: str) -> list:
    """Give the cells of a notebook's file. Raises ValueError, with the reason, for what is no
    notebook of format 4.
    """
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{name}: expected a notebook, got something else: {type(error).__name__}: {error}"[
                :300
            ]
        ) from error
    version = read.get("nbformat", 4) if isinstance(read, dict) else 4
    if isinstance(read, dict) and (
        "worksheets" in read or isinstance(version, int) and version < 4
    ):
        old = version if version != 4 else 3
        raise ValueError(
            f"{name}: expected a notebook of nbformat 4, got nbformat {old}: open it in Jupyter, save it, and hand it in again"
        )
    if not isinstance(read, dict) or not isinstance(read.get("cells"), list):
        raise ValueError(
            f"{name}: expected a notebook, got something else: JSON without a list of cells"
        )
    return read["cells"]


def read_notebook(
    file: Path,
) -> Notebook:
    """Read a notebook without running it; a damaged cell is left out. Raises ValueError, with the
    reason, for what is no notebook.
    """
    if file.is_symlink() or not file.is_file():
        raise ValueError(
            f"{file.name}: expected a file, got {'a symbolic link' if file.is_symlink() else 'none'}"
        )
    if (size := file.stat().st_size) > LARGEST:
        raise ValueError(f"{file.name}: expected at most {LARGEST >> 20} MB, got {size >> 20}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(
            f"{file.name}: expected a notebook, got something else: {type(error).__name__}: {error}"[
                :300
            ]
        ) from error
    cells, code, texts, damaged = _cells_of(text, file.name), {}, [], []
    for number, cell in enumerate(cells, 1):
        try:
            source = _source(cell)
        except ValueError as error:
            damaged.append(f"cell {number} {error}")
            continue
        if (kind := cell["cell_type"]) == "code":
            code[number] = source
            continue
        texts.append(source)
        if kind not in ("markdown", "raw"):
            damaged.append(f"cell {number} is not read as code: its type is {kind[:20]!r}")
    if damaged and not code and not texts:
        raise ValueError(
            f"{file.name}: expected a notebook, got {len(cells)} cells of which none can be read: {damaged[0]}"
        )
    if len(code) > MOST_CELLS:
        raise ValueError(
            f"{file.name}: expected at most {MOST_CELLS} cells of code, got {len(code)}"
        )
    if (size := sum(map(len, code.values()))) > LARGEST_CODE:
        raise ValueError(
            f"{file.name}: expected at most {LARGEST_CODE} characters of code, got {size}"
        )
    return read_cells(code.values(), texts, damaged, code)


class Answer(NamedTuple):
    """What a notebook says to one exercise."""

    status: str  # "written", "stub", "missing" or "broken"
    definition: str = ""  # source of the target
    holder: str = ""  # for a method: source of its class
    reason: str = ""


@lru_cache(maxsize=65536)
def _heads(cell: str) -> frozenset[str]:
    """Name what a cell defines at top level, spelled as Python does: other forms of a letter are
    that letter.
    """
    return frozenset(node.name for node in parse(cell).body if isinstance(node, DEFINITIONS))


@lru_cache(maxsize=65536)
def _assigned(cell: str) -> frozenset[str]:
    """Name what a cell puts in place at top level by `=`, "name" or "Class.name", or by a decorator
    such as fastcore's `@patch`.
    """
    places = set()
    for node in parse(cell).body:
        if isinstance(node, ast.Assign):
            places |= {
                ast.unparse(target)
                for target in node.targets
                if isinstance(target, (ast.Name, ast.Attribute))
            }
        elif isinstance(node, ast.FunctionDef):
            places |= {f"{name}.{node.name}" for name in _patched(node)}
    return frozenset(places)


def _patched(node: ast.FunctionDef) -> set[str]:
    """Name the classes into which decorators put a function: `@patch` reads the annotation of its
    first argument, `@patch_to` names them itself.
    """
    places = [
        arg
        for d in node.decorator_list
        if isinstance(d, ast.Call) and ast.unparse(d.func).endswith("patch_to")
        for arg in (*d.args, *(k.value for k in d.keywords))
    ]
    if node.decorator_list and node.args.args and (annotation := node.args.args[0].annotation):
        places.append(annotation)
    return {name.id for place in places for name in ast.walk(place) if isinstance(name, ast.Name)}


@lru_cache(maxsize=65536)
def _inside(cell: str) -> frozenset[str]:
    """Name what a cell defines inside another statement, such as `if` or `try`: Python may come by
    there, a reader of the text cannot know.
    """
    blocks = (
        node
        for node in parse(cell).body
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While))
    )
    return frozenset(
        node.name for block in blocks for node in ast.walk(block) if isinstance(node, DEFINITIONS)
    )


def answer(
    notebook: Notebook,
    target: str,  # "function" or "Class.method"
    given: str = "",  # the wrong program that was handed out, if a mistake is to be found
) -> Answer:
    """Find the last definition of a target that is neither a stub nor what was handed out; exported
    ones go first.
    """
    head, _, method = target.partition(".")
    found = [cell for cell in notebook.cells if head in _heads(cell) and find(parse(cell), target)]

    def unchanged(text):
        return is_stub(text) or given and same_program(text, given)

    written = [cell for cell in found if not unchanged(source_of(cell, target))]
    if not written:
        own = method or head
        for source, error in notebook.broken:
            if (
                re.search(
                    rf"^[ \t]*(def|class)[ \t]+{own if found else head}\b",
                    text := normalize("NFKC", source),
                    re.M,
                )
                and head in text
            ):
                return Answer("broken", reason=f"its cell is not Python: {error}")
        if where := _not_read(notebook, own):
            return Answer("stub" if found else "missing", reason=f"`def {own}` stands {where}")
        if any(target in _assigned(cell) for cell in notebook.cells):
            return Answer(
                "stub" if found else "missing",
                reason=f"assigned, not defined: write `def {own}`"
                + f" in `class {head}`" * bool(method),
            )
        if any(head in _inside(cell) for cell in notebook.cells):
            return Answer(
                "stub" if found else "missing",
                reason=f"`{head}` is defined inside another statement, such as `if`: write it at the left edge",
            )
    if not found:
        return Answer("missing", reason=f"no definition of {target}")
    exported = dict.fromkeys(notebook.exported)
    cell = ([c for c in written if c in exported] or written or found)[-1]
    holder = source_of(cell, head) if method else ""
    return Answer(
        "written" if written else "stub",
        source_of(cell, target),
        holder,
        "" if written else "not written yet",
    )


def _not_read(notebook: Notebook, name: str) -> str:
    """Say where a function is defined that no cell of code defines: in Markdown, or below a magic
    that runs no Python here; else nothing.
    """
    begins = rf"[ \t]*(?:def|class)[ \t]+{re.escape(name)}\b"
    for text in notebook.texts:
        # what a chapter shows stands between such fences
        if re.search("^" + begins, text, re.M) and "```" not in text:
            return "in a cell that is no code, such as Markdown: turn it into a cell of code"
    for cell in notebook.cells:
        if cell.lstrip().startswith("# %%") and re.search("^# " + begins, cell, re.M):
            return (
                f"below `{cell.lstrip()[2:].split()[0]}`, which does not define it in the notebook"
            )
    return ""


_DEFINES = re.compile(
    r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.M
)


def unusable(
    notebook: Notebook,
    module: str,  # such as "attention"
    found: Answer,  # with status "written"
) -> list[str]:  # one sentence for each name
    """Say which names of an answer are defined only in a cell that cannot be used."""
    given = set(dir(builtins)).union(*(p.names for p in pieces(module_text(module))))
    uses = {u for p in pieces(found.holder or found.definition) for u in p.uses}
    helpers = needed(uses, notebook.pieces)
    missing = uses.union(*(p.uses for p in helpers)) - given.union(*(p.names for p in helpers))
    said = {
        name: error
        for source, error in notebook.broken
        for pair in _DEFINES.findall(source)
        for name in pair
        if name in missing
    }
    return [
        f"`{name}` is defined in a cell that cannot be used: {error}"
        for name, error in sorted(said.items())
    ]


def borrows(
    notebook: Notebook,
    name: str,  # of an exercise
) -> bool:
    """Tell whether a line `... = borrow(name)` stands in a notebook."""
    calls = (
        n
        for cell in notebook.cells
        if "borrow" in cell
        for n in ast.walk(parse(cell))
        if isinstance(n, ast.Call) and n.args
    )
    return any(
        getattr(c.func, "attr", getattr(c.func, "id", "")) == "borrow"
        and getattr(c.args[0], "value", None) == name
        for c in calls
    )


def _bases(model: str, name: str) -> list[str]:
    """Name the classes of a module on which one of its classes stands directly."""
    return [
        base.id
        for base in find(parse(model), name).bases
        if isinstance(base, ast.Name) and find(parse(model), base.id)
    ]


def _on_our_bases(holder: str, model: str) -> str:
    """Let a learner's class stand on the model class's bases, if it starts as they do: an older
    edition had it all in one class.
    """
    mine = parse(holder).body[0]
    missing = [
        base
        for base in _bases(model, mine.name)
        if base not in {ast.unparse(b) for b in mine.bases}
    ]
    if not missing or find(parse(holder), f"{mine.name}.__init__"):
        return holder
    head = ", ".join([*missing, *map(ast.unparse, (*mine.bases, *mine.keywords))])
    return re.sub(
        rf"^class {mine.name}\b[^:]*:", f"class {mine.name}({head}):", holder, count=1, flags=re.M
    )


def _complete(holder: str, model: str, methods: dict[str, str]) -> str:
    """Give a learner's class the methods listed, and those of the model class, and of its bases,
    that it lacks.
    """
    holder = _on_our_bases(holder, model)
    mine = parse(holder).body[0]
    name, todo, stands = mine.name, [mine.name], {ast.unparse(base) for base in mine.bases}
    while todo:
        model_name = todo.pop(0)
        todo += [base for base in _bases(model, model_name) if base not in stands]
        for node in find(parse(model), model_name).body:
            title = getattr(node, "name", None)
            if (
                isinstance(node, (ast.FunctionDef, ast.ClassDef))
                and title not in methods
                and not find(parse(holder), f"{name}.{title}")
            ):
                methods = methods | {title: source_of(model, f"{model_name}.{title}")}
    there = {title: d for title, d in methods.items() if find(parse(holder), f"{name}.{title}")}
    new = [indent(d.strip("\n"), "    ") for title, d in methods.items() if title not in there]
    return (
        "\n\n".join(
            [
                replace_all(holder, {f"{name}.{title}": d for title, d in there.items()}).rstrip(
                    "\n"
                ),
                *new,
            ]
        )
        + "\n"
    )


def _own_definitions(base: str, own: dict[str, Answer], others: dict[str, str]) -> dict[str, str]:
    """Top-level name -> the learner's function or class, classes with the methods that others
    provide.
    """
    new = {}
    for head in dict.fromkeys(t.partition(".")[0] for t in own):
        mine = {t: a for t, a in own.items() if t.partition(".")[0] == head}
        if head in mine:
            new[head] = mine[head].definition
            continue
        methods = {t.partition(".")[2]: a.definition for t, a in mine.items()}
        methods |= {t.partition(".")[2]: d for t, d in others.items() if t.startswith(head + ".")}
        new[head] = _complete(list(mine.values())[-1].holder, base, methods)
    return new


def _headlines(base: str, known: list[Piece], uses: set[str]) -> list[str]:
    """Write what must stand on top: how annotations are read; and imports of *, if a name is left
    that nothing else defines.
    """
    future = [p for p in known if p.text.startswith("from __future__") and "annotations" in p.names]
    rest = uses - set(dir(builtins)).union(*(p.names for p in [*known, *pieces(base)]))
    stars = [
        f"try:\n{indent(p.text, '    ')}\nexcept Exception:   # of what is not used, maybe\n    pass"
        for p in known
        if "*" in p.names and rest
    ]
    return ["from __future__ import annotations"] * bool(future) + stars


def _under(headlines: list[str], text: str) -> str:
    """Put lines on top of a module, below its own docstring."""
    if not headlines:
        return text
    lines, first = text.split("\n"), parse(text).body[0]
    place = (
        first.end_lineno
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        else 0
    )
    return "\n".join([*lines[:place], *headlines, *lines[place:]])


def around(
    notebook: Notebook,
    module: str,
    own: dict[str, Answer],  # target -> the learner's answer to use
    # target -> definition to use in their place: the reference, or a stub
    others: dict[str, str],
) -> str:  # source of the module
    """Write a module of ours with a learner's answers in it."""
    base = module_text(module)
    ours = _heads(base)
    known = [
        p
        for p in notebook.pieces
        if not (p.text.startswith(("def ", "@")) and min(p.names) in ours and is_stub(p.text))
    ]
    new = _own_definitions(base, own, others)
    changed = {
        t: d
        for t, d in others.items()
        if t.partition(".")[0] not in new and d != source_of(base, t)
    }
    given = {p.text for p in pieces(base)}
    heads = {t.partition(".")[0] for t in {*own, *others}}
    uses, extra = {u for d in new.values() for p in pieces(d) for u in p.uses}, []
    wanted = needed(uses, known, without=heads)
    for piece in wanted:
        name = min(piece.names)
        if piece.text in given or piece.text.startswith("from __future__"):
            continue
        if piece.text.startswith(("def ", "class ", "@")) and name in ours:
            changed[name] = piece.text
        else:
            extra.append(piece.text)
    first = min(new, key=lambda h: find(parse(base), h).lineno)
    new[first] = "\n".join([*extra, "", new[first]])
    return _under(
        _headlines(base, known, uses.union(*(p.uses for p in wanted))),
        replace_all(base, changed | new),
    )


def single(
    notebook: Notebook,
    task: Exercise,
    found: Answer,  # with status "written"
) -> str:  # source of the module
    """Put one answer among references."""
    base = module_text(task.module)
    others = [
        e.target for e in EXERCISES.values() if e.module == task.module and e.name != task.name
    ]
    return around(
        notebook, task.module, {task.target: found}, {t: source_of(base, t) for t in others}
    )


def integrated(
    notebook: Notebook,
    module: str,
    without: Iterable[str] = (),  # targets to leave out, such as one that never ends
) -> str:  # source of the module
    """Put all answers of a chapter together; what is not written is a stub."""
    base = module_text(module)
    tasks = [e for e in EXERCISES.values() if e.module == module]
    found = {e.target: answer(notebook, e.target, e.given) for e in tasks}
    own = {t: a for t, a in found.items() if a.status == "written" and t not in without}
    stubs = {
        e.target: stub(source_of(base, e.target), f"exercise {e.name}")
        for e in tasks
        if e.target not in own
    }
    return around(notebook, module, own, stubs) if own else replace_all(base, stubs)
