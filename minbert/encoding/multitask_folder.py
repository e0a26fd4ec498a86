"""Folders of an encoder with task heads: a description with checksums, so that a folder mixed from
two saves is noticed.
"""

from pathlib import Path

from ..core.files import check_fields, quoted, read_json, write_json
from ..core.folder_checksums import check_folder, folder_checksums

DESCRIPTION = "minbert_heads.json"


def write_description(draft: Path, tasks: list[str], **settings: str) -> None:
    """Describe a folder that is complete: its tasks, settings, and the checksum of every file."""
    write_json(draft / DESCRIPTION, {"tasks": tasks, **settings, "files": folder_checksums(draft)})


def checked_description(folder: Path) -> dict:  # tasks, mode, head_input, files
    """Read the description, and raise ValueError unless the files are those it describes."""
    file = folder / DESCRIPTION
    saved = check_fields(read_json(file), file, tasks=list, mode=str, head_input=str, files=dict)
    names = {
        f"heads/{task}/model.safetensors" for task in saved["tasks"] if isinstance(task, str)
    } | {"model.safetensors"}
    if not saved["tasks"] or len(names) <= len(saved["tasks"]) or not names <= set(saved["files"]):
        raise ValueError(
            f"{file}: expected different tasks, and checksums of {', '.join(sorted(names))}, got {quoted(saved['tasks'])}"
        )
    check_folder(folder, saved["files"], file)
    return saved
