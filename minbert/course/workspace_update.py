"""Updating a learner's workspace: a new release of the chapters is merged with what the learner
wrote.

Cells are matched by id, then by text, then by exercise, and between two matched cells by
similarity, because some tools renumber cells. The new chapter is the skeleton; answers are placed
by the name of their function, and own cells behind the cell they followed. Where both sides changed
the same thing, both versions are shown. Everything is computed before anything is written, and the
old notebooks are copied into a backup.
"""

__all__ = [
    "KEYS",
    "DROPPED",
    "likeness",
    "partners",
    "conflict",
    "merged_cells",
    "merged_notebook",
    "Updated",
    "update_workspace",
]

import copy
import hashlib
import shutil
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import minbert

from ..core.atomic_dir import atomic_write_dir, clear_leftovers
from .cell_merge import Definition, definition_in, is_python, merged_cell
from .learner_notebooks import Mark, directives, marks, marks_of, read_learner_notebook, written
from .source_tools import same_program
from .workspace import BASE, HIDDEN, STATE, packaged_editions, state_text, workspace_state


def _exercises(cell: Any) -> tuple[str, ...]:
    """Name the exercises of a cell."""
    if cell.cell_type != "code" or "exercise" not in cell.source:
        return ()
    try:
        return tuple(mark.name for mark in marks(cell.source))
    except ValueError:  # somebody edited the mark
        return ()


KEYS: tuple[Callable, ...] = (lambda c: c.get("id"), lambda c: (c.cell_type, c.source), _exercises)


def likeness(a: str, b: str) -> float:
    """Compare two texts: 0 have nothing in common, 1 are the same."""
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return matcher.ratio() if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= 0.6 else 0.0


def _alike(ours: list, old: list, found: dict[int, int]) -> dict[int, int]:
    """Pair what has no partner, between neighbours that have one."""
    more, start = {}, -1
    free = [j for j in range(len(old)) if j not in set(found.values())]
    for i, cell in enumerate(ours):
        if i in found:
            start = found[i]
            continue
        if str(cell.get("id")).startswith("conflict-"):  # alike by design
            continue
        end = next((found[k] for k in range(i + 1, len(ours)) if k in found), len(old))
        near = [j for j in free if start < j < end and old[j].cell_type == cell.cell_type]
        scores = {j: likeness(cell.source, old[j].source) for j in near}
        if scores and max(scores.values()) >= 0.6:
            more[i] = start = max(scores, key=scores.get)
            free.remove(start)
    return more


def partners(
    ours: list,  # cells
    old: list,  # cells they may have come from
) -> dict[int, int]:  # index in `ours` -> index in `old`, each at most once
    """Say which cell comes from which."""
    found = {}
    for key in KEYS:
        taken, places = set(found.values()), {}
        for j, cell in reversed(list(enumerate(old))):
            if j not in taken and key(cell):
                places.setdefault(key(cell), []).append(j)
        for i, cell in enumerate(ours):
            if i not in found and places.get(key(cell)):
                found[i] = places[key(cell)].pop()
    return found | _alike(ours, old, found)


def conflict(
    why: str,
    theirs: str,  # what the learner wrote
    kind: str = "code",  # "code", "markdown" or "raw"
) -> list:  # two cells
    """Show a learner's version that did not fit."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell

    name = hashlib.sha256(f"{why}\0{kind}\0{theirs}".encode()).hexdigest()[:12]
    advice = "Take from it what you need, then delete both cells."
    below = {"markdown": new_markdown_cell, "raw": new_raw_cell}.get(kind, new_code_cell)
    shown = (
        theirs
        if kind != "code"
        else "\n".join(
            f"# {line}".rstrip(" ") if not line.strip() else f"# {line}"
            for line in theirs.split("\n")
        )
    )
    return [
        new_markdown_cell(
            f"## Conflict\n\n{why} What you wrote is kept below. {advice}", id=f"conflict-{name}"
        ),
        below(shown, id=f"conflict-{name}-yours"),
    ]


def _same(a: Any, b: Any) -> bool:
    """Compare what a reader sees of two cells."""
    return a.cell_type == b.cell_type and a.source == b.source


def _updated(given: Any, mine: Any, source: str, kind: str) -> Any:
    """Put a text into a given cell; what belongs to the learner's cell stays if its text does."""
    cell = copy.deepcopy(mine if (source, kind) == (mine.source, mine.cell_type) else given)
    cell.source, cell.id = source, given.id
    return cell


def _asks_the_same(base: str, theirs: str) -> bool:
    """Tell whether two cells ask for one guess, in other words: a learner's own stands in the line
    that the words follow.
    """
    return (
        "#| predict" in base
        and directives(base) == directives(theirs)
        and same_program(base, theirs)
    )


def merged_cells(
    # cell as handed out; None if the release added it, or nobody knows
    base: Any | None,
    mine: Any | None,  # the learner's; None if it is gone
    theirs: Any,  # of the new edition
    answers: dict[str, Definition],  # target -> what the learner wrote, anywhere in the notebook
    moved: Mapping[str, str] = {},  # target as handed out -> target now
    given: Mapping[str, Definition] = {},  # target -> what was handed out
) -> list:  # the cell for the new notebook, and conflicts
    """Bring one given cell up to date."""
    both_code = theirs.cell_type == "code" and (mine is None or mine.cell_type == "code")
    if mine is not None and (_same(mine, theirs) or (base is not None and _same(base, theirs))):
        return [_updated(theirs, mine, mine.source, mine.cell_type)]
    if both_code and _exercises(theirs):
        old = base.source if base is not None and base.cell_type == "code" else None
        start = mine or copy.deepcopy(base if old is not None else theirs)
        merged = merged_cell(old, start.source, theirs.source, answers, moved, given)
        return [
            _updated(theirs, start, merged.source, "code"),
            *(c for why, what in merged.leftovers for c in conflict(why, what)),
        ]
    if mine is None or (base is not None and _same(base, mine)):
        return [theirs]
    if both_code and base is not None and _asks_the_same(base.source, theirs.source):
        return [_updated(theirs, mine, mine.source, "code")]
    return [
        theirs,
        *conflict("You and the release changed this cell.", mine.source, mine.cell_type),
    ]


def _definitions(cells: list, target: str) -> list[Definition]:
    """Find all definitions of a target that somebody wrote."""
    name = target.rpartition(".")[2]
    readable = [
        c.source
        for c in cells
        if c.cell_type == "code" and name in c.source and is_python(c.source)
    ]
    return [d for source in readable if (d := definition_in(source, target)) and d.written]


def _moved(base: list, new: list[Mark]) -> dict[str, str]:  # target as handed out -> target now
    """An exercise keeps its name when its function gets another one, or moves to another class."""
    now = {mark.name: mark.target for mark in new}
    return {
        mark.target: now[mark.name]
        for cell in base
        if _exercises(cell)
        for mark in marks(cell.source)
        if mark.name in now
    }


def _answers(mine: list, base: list, new: list[Mark]) -> dict[str, Definition]:
    """Find the last definition of each exercise that a learner wrote, under its target now; what
    was handed out is not theirs.
    """
    found, before = {}, {now: target for target, now in _moved(base, new).items()}
    for target in (mark.target for mark in new):
        # as it was handed out; and as it is, should an update have been cut short
        for name in dict.fromkeys((before.get(target, target), target)):
            given = {d.lines for d in _definitions(base, name)}
            if own := [d for d in _definitions(mine, name) if d.lines not in given]:
                found[target] = own[-1]
    return found


def _handed_out(base: list, moved: Mapping[str, str]) -> dict[str, Definition]:
    """Find what was handed out for each exercise, under its target now."""
    readable = [cell.source for cell in base if _exercises(cell) and is_python(cell.source)]
    return {
        now: d
        for source in readable
        for target, now in moved.items()
        if (d := definition_in(source, target))
    }


def _arrived(mine: list, new: list, of: dict[int, int], back: dict[int, int]) -> dict[int, int]:
    """Find new cells that the learner has already, since an update was cut short: index of mine ->
    of new.
    """
    fresh = {(c.id, c.source): i for i, c in enumerate(new) if i not in back}
    return {
        k: fresh[c.get("id"), c.source]
        for k, c in enumerate(mine)
        if k not in of and (c.get("id"), c.source) in fresh
    }


DROPPED = "The release dropped a cell that you had changed. If its exercise moved to another chapter, your answer moved along."


def _own_cells(
    mine: list, old: list, of: dict[int, int], at: dict[int, int], arrived: dict[int, int]
) -> dict[int, list]:
    """List the cells that a learner added, and changed ones that the release dropped, by the new
    cell they stand behind.
    """
    found, anchor = {}, -1
    for i, cell in enumerate(mine):
        if i in arrived:
            anchor = arrived[i]
        elif i not in of:
            found.setdefault(anchor, []).append(cell)
        elif of[i] in at:
            anchor = at[of[i]]
        elif not _same(cell, old[of[i]]):
            found.setdefault(anchor, []).extend(conflict(DROPPED, cell.source, cell.cell_type))
    return found


def _with_ids(
    cells: list,  # of a new notebook
    given: list,  # those of them whose ids must stay
) -> list:
    """Give each other cell an id that nobody has, if its own is missing or taken; it follows from
    the text.
    """
    taken, keep = {cell.id for cell in given}, {id(cell) for cell in given}
    for cell in (c for c in cells if id(c) not in keep):
        name, count = cell.get("id"), 0
        while not name or name in taken:
            name, count = (
                hashlib.sha256(f"{count}{cell.source}".encode()).hexdigest()[:8],
                count + 1,
            )
        cell["id"] = name
        taken.add(name)
    return cells


def merged_notebook(
    base: Any | None,  # NotebookNode as handed out; None if nobody knows
    mine: Any,  # NotebookNode, the learner's
    theirs: Any,  # NotebookNode, the new edition
    # target -> what the learner wrote for it in another chapter
    elsewhere: Mapping[str, Definition] = MappingProxyType({}),
) -> Any:  # NotebookNode; none of the given ones is changed
    """Put what a learner wrote into a new edition."""
    old, ours, new = ([] if n is None else copy.deepcopy(n.cells) for n in (base, mine, theirs))
    known = base is not None
    # index of mine -> of base
    of = partners(ours, old if known else new)
    back = partners(new, old) if known else {i: i for i in range(len(new))}  # of new -> of base
    arrived = _arrived(ours, new, of, back)
    forth = {j: i for i, j in back.items()}  # of base -> of new
    holder = {forth[j]: ours[k] for k, j in of.items() if j in forth} | {
        i: ours[k] for k, i in arrived.items()
    }
    moved = _moved(old, marks_of(theirs))
    answers, handed_out = elsewhere | _answers(ours, old, marks_of(theirs)), _handed_out(old, moved)
    own = _own_cells(ours, old if known else new, of, forth, arrived)
    cells, given, shown = own.get(-1, []), [], {(c.get("id"), c.source) for c in ours}
    for i, cell in enumerate(new):
        j = back.get(i)
        first, *others = merged_cells(
            old[j] if known and j is not None else None,
            holder.get(i),
            cell,
            answers,
            moved,
            handed_out,
        )
        given.append(first)
        cells += [first, *(c for c in others if (c.id, c.source) not in shown), *own.get(i, [])]
    made = copy.deepcopy(mine)
    made.cells, made.nbformat_minor = _with_ids(cells, given), max(5, mine.nbformat_minor)
    for key, value in theirs.metadata.items():
        made.metadata.setdefault(key, value)
    return made


def _chapters(base: Path) -> set[str]:
    """Name the notebooks handed out, such as "1_bert/02_attention.ipynb"."""
    return {file.relative_to(base).as_posix() for file in base.rglob("*.ipynb")}


def _untouched(mine: Path, handed_out: Path) -> bool:
    """Tell whether a learner has written nothing into a notebook: outputs do not count."""
    try:
        texts = [
            [(c.cell_type, c.source) for c in read_learner_notebook(file).cells]
            for file in (mine, handed_out)
        ]
    except (ValueError, OSError):
        return False
    return texts[0] == texts[1]


class Updated(NamedTuple):
    """What an update did."""

    before: str  # release of the chapters
    after: str
    changed: tuple[str, ...] = ()  # notebooks written
    conflicts: tuple[str, ...] = ()  # "1_bert/02_attention.ipynb (1 new)"
    left: tuple[str, ...] = ()  # notebooks left alone, and why
    # folder with the notebooks as they were; None if no text changed and none is gone
    backup: Path | None = None
    # notebooks taken away: no chapters any more, and nothing was written in them
    gone: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.changed or self.gone:
            head = (
                f"{len(self.changed)} notebooks updated from minbert {self.before} to {self.after}"
            )
        else:
            head = f"Nothing to change{' in the others' if self.left else ''}: the chapters are those of minbert {self.after}."
        head += f"; as they were: {self.backup}" if self.backup else ""
        lines = {
            "look for the heading Conflict in": self.conflicts,
            "taken away:": self.gone,
            "left alone:": self.left,
        }
        return "\n".join(
            [head, *(f"{words} {one}" for words, those in lines.items() for one in those)]
        )


def _homes(base: Path) -> dict[str, str]:  # exercise -> file
    """Say in which notebook each exercise was handed out."""
    return {
        exercise: name
        for name in _chapters(base)
        if (notebook := _readable(base / name))
        for cell in notebook.cells
        for exercise in _exercises(cell)
    }


def _from_elsewhere(
    nbs: Path, base: Path, name: str, edition: str, homes: dict[str, str]
) -> dict[str, Definition]:
    """Find answers to exercises of an edition that were handed out in another chapter."""
    import nbformat

    wanted = {}  # file -> marks
    for mark in marks_of(nbformat.reads(edition, as_version=4)):
        if homes.get(mark.name, name) != name:
            wanted.setdefault(homes[mark.name], []).append(mark)
    found = {}
    for file, new in wanted.items():
        mine, old = _readable(nbs / file), _readable(base / file)
        found |= _answers(mine.cells if mine else [], old.cells if old else [], new)
    return found


def _one(
    nbs: Path,  # the learner's notebooks
    base: Path,  # those handed out
    name: str,  # of a file
    edition: str,  # its new text
    homes: dict[str, str],  # exercise -> file in which it was handed out
) -> str | None:  # the learner's new text; None if it stays as it is
    """Work out one notebook. Raises ValueError if the learner's cannot be read or merged."""
    import nbformat

    mine, handed_out = nbs / name, base / name
    elsewhere = _from_elsewhere(nbs, base, name, edition, homes)
    if not mine.exists():
        theirs = nbformat.reads(edition, as_version=4)
        empty = nbformat.v4.new_notebook(metadata=theirs.metadata)
        return written(merged_notebook(None, empty, theirs, elsewhere)) if elsewhere else edition
    if handed_out.is_file() and handed_out.read_text(encoding="utf-8") == edition:
        return None
    ours, theirs = read_learner_notebook(mine), nbformat.reads(edition, as_version=4)
    old = _readable(handed_out)
    merged = merged_notebook(old, ours, theirs, elsewhere)
    if merged.cells == ours.cells:
        return None
    try:
        nbformat.validate(merged)
    except nbformat.ValidationError as error:
        raise ValueError(
            f"expected cells that are valid in {name}, got {str(error).splitlines()[0]}"
        ) from error
    same = old is not None and [(c.cell_type, c.source) for c in old.cells] == [
        (c.cell_type, c.source) for c in ours.cells
    ]
    return edition if same and merged.cells == theirs.cells else written(merged)


def _readable(file: Path) -> Any | None:
    """Read a base; a damaged one is as good as none."""
    try:
        return read_learner_notebook(file)
    except (ValueError, OSError):
        return None


def _conflicts(before: str, after: str, name: str) -> tuple[str, ...]:
    """Count new conflicts in a notebook."""
    count = after.count('"id": "conflict-') // 2 - before.count('"id": "conflict-') // 2
    return (f"{name} ({count} new)",) if count > 0 else ()


def _backup(folder: Path, names: list[str]) -> Path:
    """Copy notebooks to the next free folder of backups."""
    backups = folder / HIDDEN / "backups"
    last = max((int(f.name) for f in backups.glob("*") if f.name.isdigit()), default=0)
    target = backups / f"{last + 1:04d}"
    with atomic_write_dir(target) as draft:
        for name in names:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / "nbs" / name, draft / name)
    return target


def update_workspace(
    folder: str | Path,  # of a workspace
    # part and file name -> text of the new edition; None: of the installed minbert
    editions: dict[str, str] | None = None,
) -> Updated:
    """Bring the chapters of a workspace up to the installed release, and lose nothing a learner
    wrote.

    A chapter that is gone is taken away if nothing was written in it, and left alone otherwise.
    Notebooks that cannot be read are left alone and named. Raises ValueError if the folder is no workspace.
    """
    folder, state = Path(folder), workspace_state(folder)
    editions, nbs, base = editions or packaged_editions(), folder / "nbs", folder / BASE
    for place in (folder, nbs, base, *(folder / HIDDEN / "backups").glob("*")):
        clear_leftovers(place)
    new, left, homes = {}, [], _homes(base)
    for name, edition in editions.items():
        try:
            new[name] = _one(nbs, base, name, edition, homes)
        except ValueError as error:
            left.append(str(error))
    texts = {name: text for name, text in new.items() if text is not None}
    there = {
        name: (nbs / name).read_text(encoding="utf-8") for name in texts if (nbs / name).exists()
    }
    dropped = sorted(_chapters(base) - set(editions))
    gone = [name for name in dropped if _untouched(nbs / name, base / name)]
    left += [
        f"{name}, which is no chapter any more"
        for name in dropped
        if (nbs / name).exists() and name not in gone
    ]
    backup = _backup(folder, sorted([*there, *gone])) if texts or gone else None
    _write(nbs, texts)
    _write(base, {name: editions[name] for name in new})
    for file in [*(nbs / name for name in gone), *(base / name for name in dropped)]:
        file.unlink()
    _write(folder, {STATE: state_text(state["package"])})
    found = tuple(
        c for name, text in texts.items() for c in _conflicts(there.get(name, ""), text, name)
    )
    return Updated(
        state["minbert"],
        minbert.__version__,
        tuple(texts),
        found,
        tuple(left),
        backup,
        tuple(gone),
    )


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write files whose text is another, all or none."""
    todo = {
        name: text
        for name, text in texts.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    }
    if todo:
        with atomic_write_dir(folder) as draft:
            for name, text in todo.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_bytes(text.encode())
