"""Three-way merging of notebook cells: as handed out, as the learner changed them, and as a new
release has them.

A function has a head (decorators, signature, docstring), which the release may change, and a body,
which is the learner's. What cannot be merged is returned as a leftover with a reason, so that
nothing a learner wrote is lost.
"""

__all__ = [
    "merged_lines",
    "Definition",
    "signature_of",
    "definition_in",
    "merged_definition",
    "Merged",
    "is_python",
    "merged_cell",
]

import ast
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from .learner_notebooks import marks
from .source_tools import find, is_stub, parse, span


def _changes(base: Sequence[str], other: Sequence[str]) -> list[tuple[int, int, tuple[str, ...]]]:
    """List what another text puts in the place of which lines of the base."""
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [
        (i1, i2, tuple(other[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def merged_lines(
    base: Sequence[str],  # lines that both started from
    mine: Sequence[str],  # a learner's
    theirs: Sequence[str],  # of the new edition
    # with the changes of both; None if they changed the same lines in different ways
) -> list[str] | None:
    """Merge two changes of a text. Where both insert, theirs comes first."""
    todo = sorted(
        {(i1, i2, new): None for i1, i2, new in [*_changes(base, theirs), *_changes(base, mine)]},
        key=lambda c: c[:2],
    )
    merged, at = [], 0
    for start, end, new in todo:
        if start < at:
            return None
        merged += [*base[at:start], *new]
        at = end
    return merged + list(base[at:])


class Definition(NamedTuple):
    """A function or method in somebody's cell."""

    # decorators, signature and docstring, as they stand there; empty for a definition on one line
    head: tuple[str, ...]
    body: tuple[str, ...]  # the rest
    signature: str  # names, kinds and defaults of the arguments, and the decorators
    written: bool  # not a stub

    @property
    def lines(self) -> tuple[str, ...]:
        return self.head + self.body


def _first_line(node: ast.stmt, lines: list[str]) -> int:
    """Say with which line a body begins, counted from 0: behind the docstring, with the comments
    above the first statement.
    """
    if ast.get_docstring(node, clean=False) is not None:
        return node.body[0].end_lineno
    start = span(node.body[0])[0] - 1
    while lines[start - 1].strip().startswith("#") or not lines[start - 1].strip():
        start -= 1
    return start


def signature_of(node: ast.stmt) -> str:
    """Say what a caller has to know: annotations and comments are left out."""
    if isinstance(node, ast.ClassDef):
        return node.name
    a = node.args
    names = [[arg.arg for arg in group] for group in (a.posonlyargs, a.args, a.kwonlyargs)]
    defaults = [ast.unparse(d) if d else None for d in [*a.defaults, *a.kw_defaults]]
    return repr(
        (
            type(node).__name__,
            names,
            a.vararg and a.vararg.arg,
            a.kwarg and a.kwarg.arg,
            defaults,
            [ast.unparse(d) for d in node.decorator_list],
        )
    )


def definition_in(
    source: str,  # of a cell that is Python
    target: str,  # "function" or "Class.method"
) -> Definition | None:
    """Take a definition apart; of several with the same name, the last."""
    node = find(parse(source), target)
    if node is None:
        return None
    lines, (first, last) = source.split("\n"), span(node)
    plain = not isinstance(node, ast.ClassDef)
    start = _first_line(node, lines) if plain else first - 1
    alone = (
        not lines[span(node.body[0])[0] - 1][: node.body[0].col_offset].strip() and start <= last
    )
    cut = max(start, first - 1) if plain and alone else first - 1
    return Definition(
        tuple(lines[first - 1 : cut]),
        tuple(lines[cut:last]),
        signature_of(node),
        not (plain and is_stub(ast.unparse(node))),
    )


def merged_definition(
    base: Definition | None,  # as handed out; None if nobody knows
    mine: Definition,  # a learner's
    theirs: Definition,  # of the new edition
) -> tuple[str, ...] | None:  # lines; None if a person has to decide
    """Put my body under their head."""
    if mine.lines == theirs.lines or (base and mine.lines == base.lines):
        return theirs.lines
    if base and theirs.lines == base.lines:
        return mine.lines
    if mine.signature != theirs.signature and not (base and base.signature == theirs.signature):
        return None
    if not mine.head or not theirs.head:
        return mine.lines if mine.signature == theirs.signature else None
    head = merged_lines(base.head if base else theirs.head, mine.head, theirs.head)
    if head is None or (not base and mine.head != theirs.head):
        return None
    return (*head, *mine.body)


class Merged(NamedTuple):
    """A cell, and what did not fit into it."""

    source: str
    leftovers: tuple[tuple[str, str], ...] = ()  # (why, what the learner wrote)


def _place(target: str) -> str:
    return f"\0{target}"  # no line of Python looks like this


def _taken_apart(
    source: str | None, now: Mapping[str, str]
) -> tuple[list[str], dict[str, Definition]]:
    """Cut definitions out of a cell, each under the name it has now; the lines that are left say
    where each was.
    """
    if source is None:
        return [], {}
    tree, lines = parse(source), source.split("\n")
    spans = {target: span(node) for target in now if (node := find(tree, target))}
    for target, (first, last) in sorted(spans.items(), key=lambda item: -item[1][0]):
        lines[first - 1 : last] = [_place(now[target])]
    return lines, {now[target]: definition_in(source, target) for target in spans}


def _given(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith("\0")]


def is_python(source: str) -> bool:
    """Tell whether a cell can be read as Python; IPython's own commands cannot."""
    try:
        parse(source)
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return False
    return True


def merged_cell(
    base: str | None,  # as handed out; None if nobody knows
    mine: str,  # a learner's
    theirs: str,  # with marks
    answers: dict[str, Definition],  # target -> what I last wrote, here or in another cell
    # target as handed out -> target now, of what has another name or stands in another cell now
    moved: Mapping[str, str] = {},
    given: Mapping[str, Definition] = {},  # target -> what was handed out, in another cell
) -> Merged:
    """Put my answers and my additions into a cell of the new edition."""
    targets = [mark.target for mark in marks(theirs)]
    if not all(map(is_python, (mine, theirs, base or ""))):
        return Merged(
            theirs, (("Your cell could not be read as Python, and the release changed it.", mine),)
        )
    stay = {target: target for target in targets}
    (old, were), (lines, here), (new, now) = (
        _taken_apart(source, names)
        for source, names in ((base, {**stay, **moved}), (mine, {**stay, **moved}), (theirs, stay))
    )
    were = {**given, **were}
    frame, leftovers = merged_lines(old, lines, new) if base is not None else None, []
    if frame is None or any(frame.count(_place(target)) != 1 for target in targets):
        frame = new
        if _given(lines) not in (_given(old), _given(new)):
            leftovers.append(("You and the release changed the same lines of this cell.", mine))
    for target in targets:
        chosen = answers.get(target) or here.get(target) or now[target]
        if (
            target in here
            and here[target].written
            and here[target].lines not in (chosen.lines, were.get(target, now[target]).lines)
        ):
            leftovers.append(
                (
                    f"Another version of `{target}`, from an earlier cell.",
                    "\n".join(here[target].lines),
                )
            )
        put = merged_definition(were.get(target), chosen, now[target])
        if put is None:
            leftovers.append(
                (
                    f"The release changed the signature or the docstring of `{target}`, and yours does not fit any more.",
                    "\n".join(chosen.lines),
                )
            )
        at = frame.index(_place(target))
        frame[at : at + 1] = put or now[target].lines
    source = "\n".join(frame)
    if not is_python(source):
        return Merged(
            theirs, (("The release changed this cell, and yours does not fit into it.", mine),)
        )
    return Merged(source, tuple(leftovers))
