"""Folders of an encoder with task heads: a description with checksums, so that a folder mixed from two saves is noticed."""
from pathlib import Path

from .files import check_fields, check_regular, inside, quoted, read_json, write_json
from .tensorfiles import check_file, file_checksum

DESCRIPTION = "minbert_heads.json"


def write_description(draft: Path, tasks: list[str], **settings: str) -> None:
    """Describe a folder that is complete: its tasks, settings, and the checksum of every file."""
    files = {f.relative_to(draft).as_posix(): file_checksum(f) for f in sorted(draft.rglob("*")) if f.is_file()}
    write_json(draft / DESCRIPTION, {"tasks": tasks, **settings, "files": files})


def checked_description(folder: Path) -> dict:   # tasks, mode, head_input, files
    """Read the description, and raise ValueError unless the files are those it describes."""
    file = folder / DESCRIPTION
    saved = check_fields(read_json(file), file, tasks=list, mode=str, head_input=str, files=dict)
    names = {f"heads/{task}/model.safetensors" for task in saved["tasks"] if isinstance(task, str)} | {"model.safetensors"}
    if not saved["tasks"] or len(names) <= len(saved["tasks"]) or not names <= set(saved["files"]):
        raise ValueError(f"{file}: expected different tasks, and checksums of {', '.join(sorted(names))}, got {quoted(saved['tasks'])}")
    for name, checksum in saved["files"].items():
        path = inside(folder, name, file)
        check_file(path) if path.suffix == ".safetensors" else check_regular(path, 2**27)  # bytes; before reading without end
        if file_checksum(path) != checksum:
            raise ValueError(f"expected {path} as it was saved, got another: cut short, or mixed from two saves")
    return saved
