"""Several text files, each whole, or none of them."""
import os
from pathlib import Path

__all__ = ["write_all"]


def write_all(
    texts: dict[Path, str],   # file -> what it shall hold
) -> None:
    """Write drafts beside the files and rename them at the end; a failure leaves everything as it was."""
    drafts = {file.with_name(f".{file.name}.{os.getpid()}"): file for file in texts}
    try:
        for draft, file in drafts.items():
            draft.write_text(texts[file], encoding="utf-8", newline="\n")
        for draft, file in drafts.items():
            os.replace(draft, file)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
