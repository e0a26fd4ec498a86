"""Grading submissions: finding them, reading them, planning what to run, and turning the results
into points.

A submission may be a folder, a zip, a notebook or anything else, and always becomes a row. All
answers of a submission are tried together first, because most answers are right; what fails, or
depends on an answer that failed, is tried alone among references, since two errors can cancel and a
failure may be the fault of another exercise. A run is stored under a fingerprint of its text, the
seed and the version of the checks, so that equal answers share one run and an interrupted batch
resumes.
"""

__all__ = [
    "LARGEST_ZIP",
    "MOST_NOTEBOOKS",
    "MOST_TOLD",
    "PASTED",
    "ALIKE_BY_CHANCE",
    "LEARNERS_SEED",
    "SEED",
    "Submission",
    "find_submissions",
    "read_submission",
    "own_work",
    "GradingPlan",
    "plan",
    "shortcuts",
    "is_pasted",
    "Result",
    "GradeReport",
    "drawn_seed",
    "grade",
]

import ast
import json
import os
import re
import secrets
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from ..core.atomic_dir import held_folder
from .answer_extraction import (
    Answer,
    Notebook,
    answer,
    borrows,
    integrated,
    read_notebook,
    single,
    unusable,
)
from .exercises import EXERCISES, Exercise, exercise
from .grading_queue import ResultStore, batch, write_whole
from .sandbox import ABSENT, Limits
from .source_tools import (
    edition,
    fingerprint,
    length,
    needed,
    parse,
    pieces,
    same_words,
    stub,
    transitive_imports,
)
from .workspace import workspace_of


@cache
def _chapters() -> dict[str, str]:
    """Map the file of each chapter with exercises, such as "02_attention", to its module: a learner
    may keep it in any folder.
    """
    return {PurePath(task.notebook).name: task.module for task in EXERCISES.values()}


def _is_notebook(path: PurePath) -> bool:
    return path.suffix.lower() == ".ipynb"


class Submission(NamedTuple):
    """What one learner handed in."""

    name: str
    notebooks: dict[str, Notebook]  # module -> its chapter
    # module, or else the file, or "" for the whole -> why it is not read
    problems: dict[str, str]


def find_submissions(
    paths: Iterable[str | Path],  # folders, zips, notebooks, or a folder of them
    # tables, pages and results of a grader, which may lie among them
    ours: Iterable[str | Path] = (),
    # name -> file or folder, or the files that a platform says are one person's
) -> dict[str, Path | tuple[Path, ...]]:
    """List submissions: each path is one, unless it is a folder of folders or of single notebooks
    by many people.

    Canvas puts everybody's files into one folder and writes before each name whose it is,
    `doejane_LATE_4321_987654_02_attention-1.ipynb`; so do Moodle without folders, `Jane
    Doe_4321_assignsubmission_file_02_attention.ipynb`, and Blackboard. All of one person are one
    submission, `doejane_4321`. Moodle, Gradescope and Brightspace make a folder for each person,
    and these are found below other folders too. Their own files are no submissions.

    Raises ValueError for a path that does not exist, if nothing is left, and if everything that is
    there looks like the work of several people.
    """
    paths, found = [*map(Path, paths)], {}
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise ValueError(
                f"expected a submission, or a folder of them, got {path}: there is nothing"
            )
    ours = {*map(os.path.abspath, ours)}

    # somebody's work is never left out
    def theirs(place):
        return os.path.abspath(place) not in ours or _holds_chapter(place)

    for one in (one for path in filter(theirs, paths) for one in _spread(path)):
        if theirs(one):
            # named twice, alone and within its folder
            found.setdefault(os.path.abspath(one), one)
    if paths and all(one in paths and one.is_dir() and not _entries(one) for one in found.values()):
        raise ValueError(
            f"expected a submission, or a folder of them, got {', '.join(map(str, paths))}: empty"
        )
    _refuse_crowds(found.values())
    return _named(_by_person(found.values()))


# Names of files, with the owner, which time it was handed in (`number`), and what it was called:
# Canvas and Moodle, Blackboard, Brightspace.
_FILE_NAMES = [
    re.compile(pattern)
    for pattern in (
        r"(?P<who>[^_]+)(?:_LATE)?_(?P<person>\d{2,}|\d(?=_a))_(?:(?P<number>\d{4,})|assignsubmission_(?:file|onlinetext))_(?P<what>.+?)(?:-\d+)?(?P<kind>\.[^.]+)",
        r".+_(?P<who>[^_]+)(?P<person>)_attempt_(?P<number>\d{4}(?:-\d\d){5})(?:_(?P<what>.+?))?(?P<kind>\.[^.]+)",
        r"(?P<person>\d+-\d+) - (?P<who>.+?) - (?P<number>\w+ \d+, \d{4} \d+ [AP]M) - (?P<what>.+)(?P<kind>\.[^.]+)",
    )
]
# Names of folders, with the owner: Moodle, Gradescope, Brightspace, Blackboard.
_FOLDER_NAMES = [
    re.compile(pattern)
    for pattern in (
        r"(?P<who>[^_]+)_(?P<person>\d+)_assignsubmission_(?:file|onlinetext)_?",
        r"(?P<who>submission)_(?P<person>\d{4,})",
        r"(?P<person>\d+-\d+) - (?P<who>.+?) - .*\d{4}.*",
        r".+_(?P<who>[^_]+)(?P<person>)_attempt_\d{4}(?:-\d\d){5}",
    )
]
# what they, or systems, put beside submissions
_OF_PLATFORMS = {"submission_metadata.yml", "index.html", "__MACOSX", "Thumbs.db", "desktop.ini"}


def _theirs(name: str) -> re.Match | None:
    """Read a file's name as a platform writes it."""
    return next(filter(None, (pattern.fullmatch(name) for pattern in _FILE_NAMES)), None)


def _owner(name: str, folder: bool) -> str | None:
    """Say whose a file or folder is, as `who` or `who_number`, if a platform has named it."""
    patterns = _FOLDER_NAMES if folder else _FILE_NAMES
    found = next(filter(None, (pattern.fullmatch(name) for pattern in patterns)), None)
    return "_".join(filter(None, (found["who"], found["person"]))) if found else None


def _owner_on_path(path: PurePath) -> str | None:
    """Say whose a notebook is by its own name, or by the folders in which it lies."""
    return _owner(path.name, False) or next(
        filter(None, (_owner(part, True) for part in path.parts[:-1])), None
    )


def _by_person(places: Iterable[Path]) -> list[tuple[str, list[Path]]]:
    """Put files whose names say that they are one person's together: (name of the submission, its
    files).
    """
    people: dict[tuple, list[Path]] = {}
    for place in places:
        mine = None if place.is_dir() or place.is_symlink() else _owner(place.name, False)
        people.setdefault((place.parent, mine) if mine else (place,), []).append(place)
    return [
        (key[1] if len(key) == 2 else os.path.basename(os.path.abspath(key[0])), files)
        for key, files in people.items()
    ]


def _named(submissions: list[tuple[str, list[Path]]]) -> dict[str, Path | tuple[Path, ...]]:
    """Give each submission a name of its own: where two have one, their paths tell them apart."""
    names = [name for name, _ in submissions]
    return {
        name if names.count(name) == 1 else str(files[0]): files[0]
        if len(files) == 1
        else tuple(files)
        for name, files in submissions
    }


def _entries(folder: Path) -> list[Path]:
    _, inner, files = next(os.walk(folder), (folder, [], []))  # what may not be listed is empty
    return sorted(folder / name for name in (*inner, *files) if not name.startswith("."))


def _handed_in(folder: Path) -> list[Path]:
    """List what lies in a folder, without the files that a platform adds; where it has named
    anything, these are all files without an owner but notebooks and zips.
    """
    entries = [p for p in _entries(folder) if p.name not in _OF_PLATFORMS]
    if not any(_owner(p.name, p.is_dir()) for p in entries):
        return entries
    return [
        p
        for p in entries
        if p.is_dir() or p.is_symlink() or _is_notebook(p) or _is_zip(p) or _owner(p.name, False)
    ]


def _spread(path: Path, levels: int = 3) -> list[Path]:
    """List the submissions in a folder, also those of people whom a platform has put into a folder
    below it.
    """
    people = _people(path) if path.is_dir() else []
    found = [
        (one, levels and one.is_dir() and not one.is_symlink() and _of_platform(one, levels))
        for one in people
    ]
    return [
        inner for one, below in found for inner in (_spread(one, levels - 1) if below else [one])
    ] or [path]


def _of_platform(folder: Path, levels: int) -> bool:
    """Tell whether a platform has named files or folders of several people in a folder, or below
    it.
    """
    entries = _entries(folder)
    owners = {owner for p in entries if (owner := _owner(p.name, p.is_dir()))}
    if len(owners) > 1 or owners and "submission_metadata.yml" in {p.name for p in entries}:
        return True
    below = [p for p in entries if p.is_dir() and not p.is_symlink() and not _is_part(p)]
    return bool(levels) and len(below) == 1 and _of_platform(below[0], levels - 1)


def _people(folder: Path) -> list[Path]:
    """List the submissions in a folder; none if it is one person's: a workspace, or a folder of
    chapters, whatever else lies in it.
    """
    entries = _handed_in(folder)
    own = [p for p in entries if _is_part(p)]
    if {"settings.ini", "nbs"} <= {p.name for p in own}:
        return []
    beside = any(p.name != "settings.ini" for p in own)  # then other notebooks are notes
    others = (
        p
        for p in entries
        if p not in own
        and not p.is_symlink()
        and (p.is_dir() or _is_zip(p) or not beside)
        and _holds_chapter(p)
    )
    if own and len([*islice(others, 2)]) == 2:  # one of many left theirs in between
        return [p for p in entries if p.is_dir() or p.is_symlink() or _is_notebook(p) or _is_zip(p)]
    typed = {p for p in map(_typed_beside, entries) if p and not _holds_chapter(p)}
    return [] if own else [p for p in entries if p not in typed]


def _typed_beside(place: Path) -> Path | None:
    """Name Moodle's second folder of a person: beside the files, what was typed."""
    return (
        place.with_name(
            place.name.replace("_assignsubmission_file", "_assignsubmission_onlinetext")
        )
        if "_assignsubmission_file" in place.name
        else None
    )


def _is_part(path: Path) -> bool:
    """Tell whether a file or folder looks like a part of one person's work."""
    chapter = _is_notebook(path) and path.stem.lower() in _chapters()
    return (
        chapter
        or path.name == "settings.ini"
        or (path.name in _parts() and any(map(_is_notebook, path.rglob("*"))))
    )


@cache
def _parts() -> frozenset[str]:
    """Name the folders of a workspace that hold chapters."""
    return frozenset({"nbs", *(PurePath(task.notebook).parts[0] for task in EXERCISES.values())})


def _holds_chapter(path: Path) -> bool:
    read = read_submission("", path)
    return not {*read.notebooks, *read.problems}.isdisjoint(_chapters().values())


def _siblings(notebooks: Iterable[PurePath]) -> list[str]:
    """Name folders side by side that hold the same chapter; those of a workspace, such as `nbs`,
    are one person's.
    """
    paths = [p for p in notebooks if p.stem.lower() in _chapters()]
    depth = (
        len(PurePath(os.path.commonpath([p.parent for p in paths])).parts)
        if len({p.parts[0] for p in paths}) == 1
        else 0
    )
    holders: dict[str, set[str]] = {}
    for p in paths:
        if len(p.parts) > depth + 1 and (top := p.parts[depth]) not in _parts():
            holders.setdefault(p.stem.lower(), set()).add(top)
    return sorted(max(holders.values(), key=len, default=()))


def _notebooks_in(place: Path) -> list[PurePath]:
    """List the notebooks of a folder or a zip without reading them; none for what cannot be opened."""
    if place.is_symlink():
        return []
    if place.is_dir():
        return [file.relative_to(place) for files in _notebook_files(place)[0] for file in files]
    try:
        with zipfile.ZipFile(place) as packed:
            return [PurePath(one.filename) for one in _packed_notebooks(packed)]
    except Exception:  # whatever a stranger's file can provoke
        return []


def _refuse_crowds(places: Iterable[Path]) -> None:
    """Raise ValueError if every folder and zip looks like the work of several people."""
    places = [place for place in places if place.is_dir() or _is_zip(place)]
    crowds = {}
    for place in places:
        notebooks = _notebooks_in(place)
        if any(map(_owner_on_path, notebooks)) or len(found := _siblings(notebooks)) < 2:
            return
        crowds[place] = found
    for place, (one, other, *_) in crowds.items():
        what = f"grade {place} by itself" if place.is_dir() else "unpack it, and grade the folder"
        raise ValueError(
            f"expected one person's work, got {place} with the same chapter in {one} and {other}: if these are people, {what}; if these are copies, keep one"
        )


def _crowd(notebooks: Iterable[PurePath], most: int = 2) -> str:
    """Say that notebooks belong to several people, if a platform has named these, or if one chapter
    lies in more folders than anybody has copies.
    """
    notebooks = list(notebooks)
    owners, folders = {_owner_on_path(path) for path in notebooks} - {None}, _siblings(notebooks)
    if len(owners) > 1:
        return f"files of {len(owners)} people"
    return (
        f"the same chapter in {len(folders)} folders, such as {folders[0]} and {folders[1]}"
        if len(folders) > most
        else ""
    )


def read_submission(
    name: str,  # under which it is listed
    path: Path | tuple[Path, ...],  # several: files of one person
) -> Submission:
    """Read all chapters that hold exercises, by the name of the file or by the module it exports,
    at the first depth that has any.

    A zip is read like the folder that was packed, and so is a folder that holds no chapter, but one
    zip. What cannot be read is said in `problems`.
    """
    if isinstance(path, tuple):
        return _read_several(name, path)
    if _is_zip(path) and not path.is_symlink():
        return _read_zip(name, path)
    if path.is_symlink() or not (path.is_dir() or _is_notebook(path)):
        kind = (
            "a symbolic link" if path.is_symlink() else f"a file {path.suffix or 'without ending'}"
        )
        return Submission(name, {}, {"": f"expected a folder, a notebook or a zip, got {kind}"})
    depths, links = _notebook_files(path) if path.is_dir() else ([[path]], [])
    if path.is_dir() and (
        crowd := _crowd(file.relative_to(path) for files in depths for file in files)
    ):
        return Submission(name, {}, {"": f"{crowd}: grade the folder in which these lie"})
    shown = {
        file: file.relative_to(path).as_posix() if file != path else path.name
        for files in depths
        for file in files
    }
    read = 0
    unread = {}
    for i, files in enumerate(depths):
        notebooks, problems = _read_all(files, shown)
        if notebooks or not set(problems).isdisjoint(_chapters().values()):
            below = [
                shown[f] for deeper in depths[i + 1 :] for f in deeper if _stem(f) in _chapters()
            ]
            return Submission(
                name,
                notebooks,
                problems
                | (
                    {
                        below[
                            0
                        ]: f"{below[0]}: deeper than other chapters, not read; {len(below)} of these"
                    }
                    if below
                    else {}
                ),
            )
        read, unread = read + len(files) - len(problems), unread | problems
    zips = [p for p in _entries(path) if _is_zip(p)]
    if len(zips) == 1:
        return read_submission(name, zips[0])
    if not read and (unread or links):  # nothing else was handed in
        return Submission(
            name,
            {},
            {
                "": "; ".join(unread.values())
                or f"{links[0]}: expected a file of this submission, got a symbolic link"
            },
        )
    saw = [*shown.values()] or [p.name for p in _entries(path)]
    return Submission(
        name,
        {},
        unread
        | {
            ".": f"no chapter found; saw: {', '.join(saw[:5]) or 'nothing'}{', ...' if saw[5:] else ''}"
        },
    )


def _read_several(name: str, files: tuple[Path, ...]) -> Submission:
    """Read the notebooks of one person, then what their zips have beside."""
    notebooks, problems = _read_all([*filter(_is_notebook, files)], {f: f.name for f in files})
    for file in filter(_is_zip, sorted(files, key=_age)):
        inner = _read_zip(name, file)
        copies = {
            module: "another copy of this chapter, not read"
            for module in inner.notebooks
            if module in notebooks
        }
        problems |= {
            f"{file.name} {where}".strip(): f"{file.name}: {why}"
            for where, why in (inner.problems | copies).items()
        }
        notebooks = inner.notebooks | notebooks
    if not notebooks and not problems:
        problems = {"": f"expected a notebook or a zip, got {', '.join(f.name for f in files[:5])}"}
    return Submission(name, notebooks, problems)


def _age(file: Path) -> int:
    """Let a platform's newest file, the one with the highest number or date, come first."""
    theirs = _theirs(file.name)
    number = theirs["number"] or "0" if theirs else "0"
    if number[:1].isalpha():  # a date, such as Oct 1, 2026 1015 AM
        try:
            return -int(f"{datetime.strptime(number, '%b %d, %Y %I%M %p'):%Y%m%d%H%M}")
        except ValueError:
            return 0
    return -int(number.replace("-", ""))


def _stem(file: Path) -> str:
    """Give the name under which a learner handed a notebook in."""
    theirs = _theirs(file.name)
    stem = (theirs["what"] if theirs else file.stem) or ""
    return stem.lower() if stem.lower() in _chapters() else stem


# bytes, packed and unpacked; the chapters of a workspace have a tenth of it at most
LARGEST_ZIP = 100 * 2**20
# in a zip; a million empty ones fit into its bytes, and reading them takes minutes
MOST_NOTEBOOKS = 2_000


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file()


def _read_zip(name: str, file: Path) -> Submission:
    with held_folder(tempfile.gettempdir(), "minbert-zip-") as folder:
        try:
            _unpack(file, folder)
        except Exception as error:
            # damaged, locked, packed in another way, or built to provoke: it must not stop the
            # batch
            return Submission(
                name,
                {},
                {
                    "": f"{file.name}: expected a zip of notebooks, got {type(error).__name__}: {error}"[
                        :300
                    ]
                },
            )
        return read_submission(name, folder)


def _packed_notebooks(packed: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    return [
        one
        for one in packed.infolist()
        if _is_notebook(PurePath(one.filename)) and not one.filename.startswith("__MACOSX/")
    ]


def _unpack(file: Path, folder: Path) -> None:
    """Write the notebooks of a zip into a folder, and nothing else; `extract` keeps every path
    inside, and makes no links.
    """
    # the list of what is in it may need ten times as much memory
    if (size := file.stat().st_size) > LARGEST_ZIP:
        raise ValueError(
            f"{size >> 20} MB; at most {LARGEST_ZIP >> 20} are read: hand in `nbs` alone"
        )
    with zipfile.ZipFile(file) as packed:
        notebooks = _packed_notebooks(packed)
        if (size := sum(one.file_size for one in notebooks)) > LARGEST_ZIP:
            raise ValueError(f"notebooks of {size >> 20} MB; at most {LARGEST_ZIP >> 20} are read")
        if len(notebooks) > MOST_NOTEBOOKS:
            raise ValueError(
                f"{len(notebooks)} notebooks; at most {MOST_NOTEBOOKS} are read: hand in `nbs` alone"
            )
        if crowd := _crowd(PurePath(one.filename) for one in notebooks):
            raise ValueError(f"{crowd}: unpack it, and grade the folder")
        zips = [
            one.filename
            for one in packed.infolist()
            if one.filename.lower().endswith(".zip") and not one.filename.startswith("__MACOSX/")
        ]
        if zips and not notebooks:
            raise ValueError(
                f"a zip in a zip, {', '.join(zips[:3])}{', ...' if zips[3:] else ''}: unpack {file.name}, and hand in or grade what is in it"
            )
        for one in notebooks:
            packed.extract(one, folder)


MOST_TOLD = 20  # cells of a notebook that cannot be used


def _read_all(
    files: list[Path], shown: dict[Path, str]
) -> tuple[dict[str, Notebook], dict[str, str]]:
    """Read notebooks of one depth: (module -> notebook, problems). A file with a chapter's name
    goes before its copies, one in `nbs` before others, a platform's newest before older ones.
    """
    modules, notebooks, problems = _chapters(), {}, {}
    for file in sorted(
        files, key=lambda f: (_stem(f) not in modules, "nbs" not in f.parts, _age(f), f)
    )[:200]:
        try:
            notebook = read_notebook(file)
        except (ValueError, OSError) as error:
            problems[modules.get(_stem(file), shown[file])] = str(error)
            continue
        module = modules.get(_stem(file)) or _exported(notebook)
        if module in notebooks:
            problems[shown[file]] = f"{shown[file]}: another copy of this chapter, not read"
        elif module in modules.values():
            notebooks[module] = notebook
            problems |= {
                line: line
                for line in (f"{shown[file]}: {why}" for why in notebook.left_out[:MOST_TOLD])
            }
    return notebooks, problems


def own_work(
    # a workspace or a folder in one, a folder of chapters, or a notebook
    place: str | Path,
) -> tuple[Path, list[str]]:  # what to grade, and the names of its exercises
    """Find a learner's work. Raises ValueError if nothing there holds an exercise."""
    place = Path(place).resolve()
    if place.is_dir():
        try:
            return workspace_of(place), list(EXERCISES)
        except ValueError:
            # chapters without a workspace around them
            if any(map(_is_part, place.iterdir())):
                return place, list(EXERCISES)
            raise
    ((name, path),) = find_submissions([place]).items()
    found = read_submission(name, path)
    names = [
        name
        for name, task in EXERCISES.items()
        if task.module in {*found.notebooks, *found.problems}
    ]
    if not names:
        raise ValueError(
            f"expected a notebook with exercises, got {place}: {found.problems.get('', 'it has none')}"
        )
    return place, names


_LEVELS, _FOLDERS = 7, 500  # how far down, and of how many folders of one level


def _notebook_files(path: Path) -> tuple[list[list[Path]], list[str]]:
    """Give the notebooks of a folder by depth, and its links to folders, which nobody follows.
    `nbs` and the parts of the book add no depth.
    """
    found, links, level = {}, [], [path]
    for _ in range(_LEVELS):
        below = []
        for folder in level[:_FOLDERS]:
            entries = _entries(folder)
            folders = {p for p in entries if p.is_dir()}
            depth = sum(
                name != "nbs" and not re.match("[1-9]_|appendix$", name)
                for name in folder.relative_to(path).parts
            )
            found.setdefault(depth, []).extend(
                p for p in entries if p not in folders and _is_notebook(p)
            )
            links += [p.name for p in entries if p in folders and p.is_symlink()]
            below += [p for p in entries if p in folders and not p.is_symlink()]
        level = below
    return [found[depth] for depth in sorted(found)], links


def _exported(notebook: Notebook) -> str | None:
    """Name the module of a notebook by its directive, or else by the first exercise in it."""
    sources = (*notebook.cells, *notebook.texts, *(source for source, _ in notebook.broken))
    lines = [
        line.split() for source in sources for line in source.split("\n") if line.startswith("#|")
    ]
    # the first of each kind
    named = {words[1]: words[2] for words in reversed(lines) if len(words) > 2}
    task = EXERCISES.get(named.get("exercise", ""))
    return named.get("default_exp") or (task.module if task else None)


class GradingPlan(NamedTuple):
    """What one submission says to one exercise."""

    status: str  # "written", "borrowed", "not attempted" or "broken"
    reason: str = ""
    text: str = ""  # of the module, if written
    flags: tuple[str, ...] = ()
    note: str = ""  # which helpers stand in cells that cannot be used


def plan(
    submission: Submission,
    task: Exercise,
) -> GradingPlan:
    """Take an answer out of a submission."""
    notebook = submission.notebooks.get(task.module)
    if notebook is None:
        # of a chapter, or of all that was handed in
        why = submission.problems.get(task.module) or submission.problems.get("")
        return (
            GradingPlan("broken", why)
            if why
            else GradingPlan("not attempted", f"no chapter {task.notebook}")
        )
    try:
        found = answer(notebook, task.target, task.given)
        if found.status in ("stub", "missing") and borrows(notebook, task.name):
            return GradingPlan("borrowed", "the reference was borrowed: no points")
        if found.status != "written":
            return GradingPlan(
                "broken" if found.status == "broken" else "not attempted", found.reason
            )
        note = "\n".join(unusable(notebook, task.module, found))
        return GradingPlan(
            "written", "", single(notebook, task, found), shortcuts(notebook, task, found), note
        )
    except Exception as error:  # whatever a stranger's text can provoke: it must not stop the batch
        return GradingPlan("broken", f"cannot be taken out: {type(error).__name__}: {error}")


def _dotted(text: str, aliases: dict[str, str]) -> set[str]:
    """All dotted names of a text, with imports resolved."""
    found = set()
    for node in ast.walk(parse(text)):
        parts, inner = [], node
        # what is longer names nothing of ours, and its beginning comes by itself
        while isinstance(inner, ast.Attribute) and len(parts) < 9:
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            found.add(".".join([aliases.get(inner.id, inner.id), *reversed(parts)]))
    return found


def shortcuts(notebook: Notebook, task: Exercise, found: Answer) -> tuple[str, ...]:
    """List the library calls an answer uses that the exercise is about, and whether it is the
    reference's text. They are flagged, not punished.
    """
    text = found.holder or found.definition
    extra = [p.text for p in needed({u for p in pieces(text) for u in p.uses}, notebook.pieces)]
    aliases = {}
    for node in (n for t in [*extra, text] for n in ast.walk(parse(t))):
        if isinstance(node, ast.Import):
            aliases |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom):
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    used = set().union(
        *(
            _dotted(t, aliases)
            for t in [text, *(t for t in extra if t.lstrip().startswith(("def ", "class ", "@")))]
        )
    )
    taboo = (*task.trial.forbidden, f"minbert.{task.module}.{task.target.partition('.')[0]}")
    called = sorted(
        name for name in taboo if any(u == name or u.endswith("." + name) for u in used)
    )
    suspicious = sorted(
        name for name in _SUSPICIOUS if any(u == name or u.startswith(name + ".") for u in used)
    )
    changed = sorted(
        f"{name} = ..., which changes a library"
        for t in [text, *extra]
        for name in _changed_libraries(t, aliases)
    )
    return (
        *called,
        *suspicious,
        *dict.fromkeys(changed),
        *[PASTED] * is_pasted(task, found.definition),
    )


# What no exercise needs: the grader's own modules, other frames and objects, the process, and
# modules that run answers.
_SUSPICIOUS = (
    "__main__",
    "_ctypes",
    "_imp",
    "_posixsubprocess",
    "builtins",
    "cffi",
    "ctypes",
    "gc.get_objects",
    "gc.get_referrers",
    "importlib",
    "inspect.currentframe",
    "inspect.stack",
    "inspect.trace",
    "minbert.course",
    "minbert.exercise_cases",
    "multiprocessing",
    "os._exit",
    "os.abort",
    "os.fork",
    "os.kill",
    "os.symlink",
    "os.system",
    "resource",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "sys._getframe",
    "sys.addaudithook",
    "sys.modules",
    "sys.settrace",
    "torch.from_file",
)


def _changed_libraries(text: str, aliases: dict[str, str]) -> set[str]:
    """Name the attributes of torch, safetensors or ours that a text writes to."""
    targets = [
        t
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Assign)
        for t in node.targets
        if isinstance(t, ast.Attribute)
    ]
    names = {max(_dotted(ast.unparse(t), aliases), key=len, default="") for t in targets}
    return {
        name
        for name in names
        if name.startswith(("torch.", "safetensors.", "minbert."))
        and not name.startswith("torch.backends.")
    }


PASTED, ALIKE_BY_CHANCE = "the text of the reference", 5  # statements


def is_pasted(task: Exercise, definition: str) -> bool:
    """Tell whether an answer is the reference word for word. A short one may be so by chance, and
    where a mistake is to be found, all are.
    """
    ours = task.definition
    written = length(ours) - length(stub(ours, "")) + 1  # without what the stub gives
    return not task.planted and written > ALIKE_BY_CHANCE and same_words(definition, ours)


class Result(NamedTuple):
    """What one answer was worth."""

    status: str  # "passed", "failed", "borrowed", "not attempted" or "broken"
    points: int = 0
    reason: str = ""  # the diagnosis
    flags: tuple[str, ...] = ()
    # {"case", "output", "expected", "got"}: matrices of numbers around the worst place
    picture: dict | None = None


class GradeReport(NamedTuple):
    """What one submission was worth."""

    name: str
    results: dict[str, Result]  # by exercise
    integrated: int  # points when everything is the learner's own
    problems: tuple[str, ...]  # notebooks that could not be read

    @property
    def points(self) -> int:
        return sum(r.points for r in self.results.values())


LEARNERS_SEED = 11711  # what `check` uses: never drawn, since its cases can be learnt by heart
SEED = "seed"  # file in the folder of a batch, until its table is written


def drawn_seed(
    work: str | Path | None = None,  # folder of a batch
) -> int:  # below 2**31
    """Draw a seed that no learner could know; a batch that was interrupted goes on with the one it
    has.
    """
    file = Path(work, SEED) if work else None
    if file and file.is_file() and (text := file.read_text(encoding="utf-8")).isdecimal():
        return int(text)
    seed = next(s for s in iter(lambda: secrets.randbelow(2**31), None) if s != LEARNERS_SEED)
    if file:
        write_whole(file, f"{seed}")
    return seed


def grade(
    submissions: Iterable[str | Path],  # folders, notebooks, or folders of them
    work: str | Path | None = None,  # folder for results so far; None: nothing is kept
    jobs: int = 2,  # sandboxes at once
    seed: int | None = None,  # of the cases; None: drawn anew
    limits: Limits = Limits(),  # of one answer
    progress: bool = False,  # draw a bar
    only: Iterable[str] | None = None,  # names of exercises; None: all
    ours: Iterable[str | Path] = (),  # as in `find_submissions`; `work` is one of them
    allow_weak: bool = False,  # grade where no isolation is available, too
    # one report a submission, in order; and how strangers' code was held
) -> tuple[list[GradeReport], str]:
    """Grade submissions. Nothing a learner wrote runs in this process, and nothing they can do
    stops the batch.

    Raises ValueError for a path that does not exist, and OSError where answers cannot be isolated,
    unless `allow_weak`.
    """
    drawn, seed = seed is None, drawn_seed(work) if seed is None else seed
    paths = find_submissions(submissions, [*ours, *([work] if work else [])])
    everyone = {name: read_submission(name, path) for name, path in paths.items()}
    tasks = [exercise(name) for name in (EXERCISES if only is None else only)]
    plans = {name: {task.name: plan(s, task) for task in tasks} for name, s in everyone.items()}
    settings = (edition(), seed, asdict(limits))
    places = [
        place
        for found in paths.values()
        for place in (found if isinstance(found, tuple) else [found])
    ]
    hidden = [
        p.resolve() if p.is_dir() else p.resolve().parent for p in places if not p.is_symlink()
    ]
    hidden += [p.resolve() for p in map(_typed_beside, places) if p and p.is_dir()] + (
        [Path(work)] if work else []
    )
    with batch(
        Path(work) / "results.jsonl" if work else None,
        _outermost(hidden),
        limits=limits,
        jobs=jobs,
        seed=seed,
        weak=allow_weak,
    ) as on:
        done = on.ledger.rows

        def run(what: str, function, todo: dict, count: int) -> None:
            with _bar(count, what, progress) as tick:
                function(todo, tick)

        whole = {n: _together(everyone[n], plans[n], settings) for n in plans}
        todo = {key: job for key, job in whole.values() if key and key not in done}
        run("whole submissions", on.together, todo, len(todo))
        keys = {
            n: {
                e: fingerprint(*settings, e, plans[n][e].text)
                for e in _doubtful(plans[n], whole[n][0], on.ledger)
            }
            for n in plans
        }
        alone = {
            t.name: {
                keys[n][t.name]: plans[n][t.name].text
                for n in plans
                if keys[n].get(t.name, "") not in {"", *done}
            }
            for t in tasks
        }
        run("answers alone", on.alone, alone, sum(map(len, alone.values())))
        # once more without those that ended the whole process
        for n, (key, _) in whole.items():
            if key and not done[key]["ended"]:
                gone = {e for e, k in keys[n].items() if not done[k]["ended"]}
                whole[n] = _together(
                    everyone[n],
                    {e: p for e, p in plans[n].items() if e not in gone},
                    settings,
                    gone,
                )
        todo = {key: job for key, job in whole.values() if key and key not in done}
        run("whole submissions again", on.together, todo, len(todo))
        reports = [_report(everyone[n], plans[n], keys[n], whole[n][0], on.ledger) for n in plans]
    if drawn and work:
        Path(work, SEED).unlink(missing_ok=True)  # the next batch draws its own
    return reports, on.level


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Leave out folders inside others of the list."""
    folders = sorted(set(folders))
    return [f for f in folders if not any(o in f.parents for o in folders)]


@contextmanager
def _bar(total: int, what: str, progress: bool):
    from tqdm import tqdm

    with tqdm(total=total, desc=what, disable=not progress or not total) as bar:
        yield bar.update


def _together(
    submission: Submission, plans: dict[str, GradingPlan], settings: tuple, gone: Iterable[str] = ()
):
    """(fingerprint, (module -> text, names)) of everything a learner wrote; (None, None) if that is
    nothing.
    """
    names = [e for e, p in plans.items() if p.status == "written"]
    if not names:
        return None, None
    texts, without = {}, {EXERCISES[e].target for e in gone}
    for module in dict.fromkeys(e.module for e in EXERCISES.values()):
        try:
            texts[module] = integrated(
                submission.notebooks.get(module, Notebook((), ())), module, without
            )
        except Exception:  # as above
            texts[module] = integrated(Notebook((), ()), module, without)
    return fingerprint(*settings, names, json.dumps(texts)), (texts, names)


def _doubtful(plans: dict[str, GradingPlan], whole: str | None, ledger: ResultStore) -> list[str]:
    """Name the answers to be tried alone: what failed together, and what leans on a module with a
    failure (two errors may cancel).
    """
    written = [e for e, p in plans.items() if p.status == "written"]
    # which of them it was shows when each is alone
    if whole and ledger.rows[whole].get("attempts"):
        return written
    passed = set(ledger.rows[whole]["passed"]) if written else set()
    bad = {EXERCISES[e].module for e in written if e not in passed}
    return [
        e
        for e in written
        if e not in passed
        or bad
        & (
            transitive_imports(EXERCISES[e].module)
            | transitive_imports(EXERCISES[e].trial.run.__module__.removeprefix("minbert."))
        )
    ]


def _report(
    submission: Submission,
    plans: dict[str, GradingPlan],
    keys: dict[str, str],
    whole: str | None,
    ledger: ResultStore,
) -> GradeReport:
    results = {}
    for name, p in plans.items():
        row = (
            ledger.rows[keys[name]]
            if name in keys
            else {"passed": True, "reason": f"{name}: passed", "picture": None}
        )
        if p.status != "written":
            results[name] = Result(p.status, 0, p.reason)
        else:
            points = EXERCISES[name].points if row["passed"] else 0
            reason = row["reason"] if row["passed"] or not p.note else f"{row['reason']}\n{p.note}"
            flags = (
                *p.flags,
                *(f"{event}, which no exercise needs" for event in row.get("attempts", ())),
                *[f"minbert's own {name}"] * (ABSENT.format(name) in row["reason"]),
            )
            results[name] = Result(
                "passed" if row["passed"] else "failed", points, reason, flags, row["picture"]
            )
    together = sum(results[name].points for name in ledger.rows[whole]["passed"]) if whole else 0
    return GradeReport(submission.name, results, together, tuple(submission.problems.values()))
