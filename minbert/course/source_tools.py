"""Tools for source text: find a function by its qualified name, replace its body, make a stub,
collect what it needs, run the result.

Functions are found by name, because cells of a notebook are copied, split and moved, and lose their
ids. Of two definitions with one name the last counts, as in Python. `needed` follows global names
as Python's own `symtable` reports them.
"""

__all__ = [
    "DEFINITIONS",
    "GIVEN",
    "FIND",
    "PACKAGE",
    "parse",
    "find",
    "span",
    "source_of",
    "replace",
    "replace_all",
    "edited",
    "guards",
    "stub",
    "guarded",
    "planted",
    "same_program",
    "same_words",
    "length",
    "is_stub",
    "file_of",
    "module_text",
    "transitive_imports",
    "fingerprint",
    "edition",
    "load",
    "resolve",
    "program",
    "Piece",
    "pieces",
    "needed",
]

import ast
import builtins
import hashlib
import re
import symtable
import textwrap
import types
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import resolve_name
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import minbert

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=1024)
def parse(text: str) -> ast.Module:
    """Parse a text, once: a grader looks at the same cell for every exercise. Nobody may change the
    tree.
    """
    return ast.parse(text)


def find(
    tree: ast.AST,  # a parsed module or class
    name: str,  # "function", "Class" or "Class.method"
) -> ast.stmt | None:
    """Find a definition by its qualified name; of several, the last, as Python does."""
    first, _, rest = name.partition(".")
    found = [node for node in tree.body if isinstance(node, DEFINITIONS) and node.name == first]
    if not rest:
        return found[-1] if found else None
    inner = [find(node, rest) for node in found if isinstance(node, ast.ClassDef)]
    return next((node for node in reversed(inner) if node), None)


def span(node: ast.stmt) -> tuple[int, int]:  # (first, last), lines counted from 1
    """Say which lines a definition takes, decorators included."""
    return min(
        [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    ), node.end_lineno


def source_of(
    text: str,  # a module
    name: str,  # of a definition in it
) -> str:  # its lines, moved to the left margin
    """Cut out a definition. Raises ValueError if there is none of that name."""
    node = find(parse(text), name)
    if node is None:
        raise ValueError(f"expected a definition of {name}, found none")
    first, last = span(node)
    return _at_the_left("\n".join(text.split("\n")[first - 1 : last])) + "\n"


def _at_the_left(definition: str) -> str:
    """Take the margin of the first line off all lines that have it; a comment or a text may stand
    further left.
    """
    lines = definition.strip("\n").split("\n")
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return "\n".join(line.removeprefix(margin) for line in lines)


def replace(
    text: str,  # a module
    name: str,  # of a definition in it
    definition: str,  # what to put there, at any margin
) -> str:  # the module with the other definition
    """Put another definition in the place of one. Raises ValueError if there is none of that name."""
    return replace_all(text, {name: definition})


def replace_all(
    text: str,  # a module
    definitions: dict[str, str],  # qualified name -> what to put there; none inside another
) -> str:
    """Put several definitions in the places of others. Raises ValueError for a name that is not
    there.
    """
    tree, lines, places = parse(text), text.split("\n"), []
    for name, definition in definitions.items():
        if (node := find(tree, name)) is None:
            raise ValueError(f"expected a definition of {name}, found none")
        places.append((*span(node), definition))
    # from below, so that line numbers above stay true
    for first, last, definition in sorted(places, reverse=True):
        margin = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
        lines[first - 1 : last] = textwrap.indent(_at_the_left(definition), margin).split("\n")
    return "\n".join(lines)


def edited(
    text: str,  # a definition
    changes: Iterable[tuple[str, str]],  # (old, new), one after the other
) -> str:
    """Apply textual edits, each to exactly one place. Raises ValueError if the place is not there
    or not alone.
    """
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"expected {old!r} once in the text, found it {text.count(old)} times")
        text = text.replace(old, new)
    return text


_CHECKS = re.compile(r"_?check|as_vectors$")  # our helpers that refuse wrong input are called so
GIVEN = "    # given: refuses wrong input"


def _refuses(node: ast.stmt) -> bool:
    """Tell whether a statement does nothing but raise ValueError for wrong input."""
    if isinstance(node, ast.If):
        return all(map(_refuses, [*node.body, *node.orelse]))
    if isinstance(node, ast.Raise):
        return "ValueError(" in ast.unparse(node)
    call = (
        node.value.func
        if isinstance(node, (ast.Expr, ast.Assign)) and isinstance(node.value, ast.Call)
        else None
    )
    return bool(_CHECKS.match(getattr(call, "attr", None) or getattr(call, "id", "")))


def _body(definition: str) -> list[ast.stmt]:
    """Give the statements of a function, without its docstring."""
    node = parse(definition).body[0]
    return node.body[ast.get_docstring(node) is not None :]


def guards(
    definition: str,  # a function or method, at the left margin
) -> list[str]:  # one text a statement, with its indentation
    """Cut out the first statements of a body as far as they refuse wrong input, and the assignments
    that these need.
    """
    kept, asked, lines = [], set(), definition.split("\n")
    lead = takewhile(lambda n: _refuses(n) or isinstance(n, ast.Assign), _body(definition))
    for node in reversed(list(lead)):
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        if _refuses(node) or asked & {n.id for n in names if isinstance(n.ctx, ast.Store)}:
            asked |= {n.id for n in names}
            kept.append(
                "\n".join(line.rstrip() for line in lines[node.lineno - 1 : node.end_lineno])
            )
    return kept[::-1]


def stub(
    definition: str,  # a function or method, at the left margin
    message: str,  # what it should raise
    # the same signature, docstring and guards, and then only `raise NotImplementedError`
) -> str:
    """Take the body out of a function and leave what a caller needs to know. Nobody has to write
    what only refuses wrong input.
    """
    node, lines = parse(definition).body[0], definition.split("\n")
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        kept = lines[: first.end_lineno]
    else:
        # def f(): return 1
        kept = [
            *lines[: first.lineno - 1],
            lines[first.lineno - 1].encode()[: first.col_offset].decode(),
        ]
        while not kept[-1].split("#")[0].strip():  # comments above the body may give it away
            kept.pop()
    given = [GIVEN, *found] if (found := guards(definition)) else []
    return (
        "\n".join(
            [
                *(line.rstrip() for line in kept),
                *given,
                f"    raise NotImplementedError({message!r})",
            ]
        )
        + "\n"
    )


def guarded(
    definition: str,  # of a function or method whose body stands on lines of its own
    reference: str,  # another definition, with guards
) -> str:
    """Put the guards of one definition on top of the body of another, as a learner would who keeps
    what is given.
    """
    lines, place = definition.split("\n"), _body(definition)[0].lineno - 1
    return "\n".join([*lines[:place], *guards(reference), *lines[place:]])


FIND = "    # this runs, and one thing in it is wrong: find it"


def planted(
    definition: str,  # of the reference
    changes: Iterable[tuple[str, str]],  # that make a mistake, as for `edited`
) -> str:
    """Make a mistake in a function, and say below its docstring that there is one."""
    wrong = edited(definition, changes)
    lines, place = wrong.split("\n"), _body(wrong)[0].lineno - 1
    return "\n".join([*lines[:place], FIND, *lines[place:]])


def same_program(a: str, b: str) -> bool:  # two definitions at the left margin
    """Compare what two texts do: comments, blanks and the way to break lines do not count."""
    return ast.dump(parse(a)) == ast.dump(parse(b))


def same_words(a: str, b: str) -> bool:  # two definitions at the left margin
    """Tell whether two bodies are one text: docstrings and comments do not count, names do."""
    return [*map(ast.dump, _body(a))] == [*map(ast.dump, _body(b))]


def length(definition: str) -> int:
    """Count the statements of a function below its docstring, at any depth."""
    return sum(isinstance(n, ast.stmt) for node in _body(definition) for n in ast.walk(node))


def is_stub(
    definition: str,  # a function or method, at the left margin
) -> bool:
    """Tell whether a body does nothing yet: below its guards it only raises NotImplementedError; or
    it passes, or is `...`.
    """
    body = [
        n
        for n in _body(definition)
        if not (
            isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) or isinstance(n, ast.Pass)
        )
    ]
    if not body:
        return True
    raises = isinstance(body[-1], ast.Raise) and "NotImplementedError" in ast.unparse(body[-1])
    return raises and all(_refuses(n) or isinstance(n, ast.Assign) for n in body[:-1])


PACKAGE = Path(minbert.__file__).parent


def file_of(
    module: str,  # such as "attention" or "core.files"
    package: Path | None = None,  # None: the installed one
) -> Path:
    """Say where the source of one of our modules is, if there is one of that name."""
    return (package or PACKAGE).joinpath(*module.split(".")).with_suffix(".py")


def module_text(
    module: str,  # such as "attention"
    package: Path | None = None,  # None: the installed one
) -> str:
    """Read the source of one of our modules. Raises ValueError if there is none of that name."""
    file = file_of(module, package)
    if not file.is_file():
        raise ValueError(f"expected a module of minbert, got {module!r}: there is no {file.name}")
    return file.read_text(encoding="utf-8")


@lru_cache(maxsize=256)
def transitive_imports(module: str) -> frozenset[str]:
    """Name the modules of ours that a module needs, itself and those at any distance included."""
    found, todo = set(), [module]
    while todo:
        found.add(name := todo.pop())
        for node in (
            n for n in ast.walk(parse(module_text(name))) if isinstance(n, ast.ImportFrom)
        ):
            whole = resolve_name(
                "." * node.level + (node.module or ""), f"minbert.{name}".rpartition(".")[0]
            )
            names = [f"{whole}.{alias.name}" for alias in node.names] + [whole]
            ours = [n.removeprefix("minbert.") for n in names if n.startswith("minbert.")]
            todo += [n for n in ours if n not in found and file_of(n).is_file()]
    return frozenset(found)


def fingerprint(*parts) -> str:
    """Name a run by everything its result depends on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def edition() -> str:
    """Name the version of our package: references, trials and all."""
    return fingerprint(*(f.read_bytes() for f in sorted(PACKAGE.rglob("[a-z]*.py"))))


def load(
    text: str,  # source of a module
    module: str,  # such as "attention"; names it in messages and settles relative imports
) -> types.ModuleType:
    """Run a text as a module that nobody else can import."""
    made = types.ModuleType(f"minbert.{module}")
    made.__package__, made.__file__ = made.__name__.rpartition(".")[0], str(file_of(module))
    exec(compile(text, f"<{module}>", "exec"), made.__dict__)
    return made


def resolve(
    holder,  # a module
    target: str,  # "function" or "Class.method"
):  # the function, or the class that holds the method
    """Give what a check receives: the function itself, or for a method its class."""
    return getattr(holder, target.partition(".")[0])


def program(
    module: str,  # such as "attention"
    target: str,  # "function" or "Class.method"
    definition: str,  # the target's other source
):  # the function, or the class that holds the method
    """Build a module of ours around another definition of one target."""
    return resolve(load(replace(module_text(module), target, definition), module), target)


class Piece(NamedTuple):
    """One statement at the top level of a notebook or module."""

    names: frozenset[str]  # what it defines
    uses: frozenset[str]  # the global names it refers to, at any depth
    text: str  # its lines
    # of the names, those that it only changes or may not define: earlier pieces count too
    partly: frozenset[str] = frozenset()


_HOLDERS = (ast.If, ast.Try, ast.With, ast.For)  # not While: the endless ones stay behind
_CHANGES = {"add", "append", "extend", "insert", "setdefault", "update"}


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement defines where it stands."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {
            n.id
            for t in targets
            for n in ast.walk(t)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    return set()


def _changed(node: ast.AST) -> set[str]:
    """Names that a statement changes, or defines only if it gets there; the variable of a loop is
    none.
    """
    if isinstance(node, (*_HOLDERS, ast.ExceptHandler)):
        inner = [
            n
            for part in ("body", "handlers", "orelse", "finalbody")
            for n in getattr(node, part, ())
        ]
        given = {
            n.id
            for item in getattr(node, "items", ())
            for n in ast.walk(item.optional_vars or item)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        return given.union(*(_bound(n) | _changed(n) for n in inner))
    if isinstance(node, ast.Expr):  # table.append(3)
        call = node.value.func if isinstance(node.value, ast.Call) else None
        return (
            {call.value.id}
            if isinstance(call, ast.Attribute)
            and call.attr in _CHANGES
            and isinstance(call.value, ast.Name)
            else set()
        )
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AugAssign)
        else []
    )
    roots = {
        t.value if isinstance(t, ast.Subscript) else t
        for t in targets
        if isinstance(t, ast.Subscript) or isinstance(node, ast.AugAssign)
    }
    return {root.id for root in roots if isinstance(root, ast.Name)}  # table["x"] = 3, total += 3


def _globals_of(table: symtable.SymbolTable, top: bool = True) -> set[str]:
    """Names that a piece of code looks up outside of itself; arguments and local variables are
    none.
    """
    own = {
        s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())
    }
    return own.union(*(_globals_of(child, False) for child in table.get_children()))


@lru_cache(maxsize=16384)
def pieces(
    text: str,  # a module
) -> list[Piece]:  # statements that define or change a name; anything else is left out
    """Split a module into what it defines. Raises SyntaxError for text that is not Python."""
    lines, found, body = text.split("\n"), [], parse(text).body
    taken = Counter(line for node in body for line in set(span(node)))
    for node in body:
        first, last = span(node)
        alone = taken[first] == taken[last] == 1  # and not a = 1; b = 2
        own = "\n".join(lines[first - 1 : last]) if alone else ast.unparse(node)
        # of all: a text that compiles nowhere is no Python
        table = symtable.symtable(textwrap.dedent(own), "piece", "exec")
        if names := _bound(node) | (partly := _changed(node)):
            found.append(
                Piece(frozenset(names), frozenset(_globals_of(table)), own, frozenset(partly))
            )
    return found


def needed(
    start: Iterable[str],  # names to begin with
    known: list[Piece],  # of a notebook, in order
    without: Iterable[str] = (),  # names that somebody else will provide
) -> list[Piece]:  # in the order of the notebook
    """Follow names to the pieces that define them, and those to theirs."""
    places = _places(known)
    done, todo, wanted = set(without) | set(dir(builtins)), list(start), set()
    while todo:  # each name once, each piece once
        if (name := todo.pop()) in done:
            continue
        done.add(name)
        new = [i for i in places.get(name, ()) if i not in wanted]
        wanted.update(new)
        todo.extend(use for i in new for use in known[i].uses)
    return [known[i] for i in sorted(wanted)]


def _places(known: list[Piece]) -> dict[str, list[int]]:
    """Give for each name the last piece that defines it, and those that change it afterwards."""
    places, imported = {}, set()
    for i, piece in enumerate(known):
        imports = "import " in piece.text  # np.append(a, 3) changes no np
        for name in piece.names:
            if name not in piece.partly:
                places[name] = [i]
                imported.discard(name)
            elif name not in imported:
                places.setdefault(name, []).append(i)
            if imports:
                imported.add(name)
    return places
