"""Where the transformer of a model lies: in the folder itself, or in a folder below it."""

from pathlib import Path

from .files import inside, read_json_if_there


def model_folder(folder: str | Path) -> Path:  # holds config.json, the weights and the tokenizer
    """Find the transformer of a folder. sentence-transformers before 2.0 kept it in 0_Transformer,
    as modules.json says.

    Raises ValueError naming modules.json if it is no list, or leads out of the folder.
    """
    file = Path(folder) / "modules.json"
    for step in read_json_if_there(file, list):
        named = step if isinstance(step, dict) else {}
        if str(named.get("type")).rpartition(".")[-1] == "Transformer" and named.get("path"):
            return inside(folder, named["path"], file)
    return Path(folder)
