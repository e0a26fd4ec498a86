"""Finding the files of a model: in the package, in a folder, on the hub, or in a subfolder."""

from importlib.resources import files
from pathlib import Path

from ..core.files import inside, read_json_if_there

# files of a model that are fetched from the hub
WANTED_FILES = ["*.json", "vocab.txt", "0_*/vocab.txt", "*.safetensors", "1_Pooling/*"]
# name of an embedded model -> its folder among the assets of the package
PACKAGED = {None: "model", "embedded": "model", "embedded-sentences": "sentences"}


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


def embedded_folder(
    name: str
    | Path
    | None = None,  # None or "embedded": pretrained; "embedded-sentences": fine-tuned
) -> Path:  # an existing folder
    """Find a model that the package contains. Raises ValueError if this package does not."""
    # "None" is no folder
    folder = Path(str(files("minbert"))) / "assets" / str(PACKAGED.get(name and str(name)))
    if not folder.is_dir():
        raise ValueError(
            f"expected the embedded model {name!s} in {folder}, got no such folder: another name, or a package built without it"
        )
    return folder


def resolve_folder(
    # a folder, "embedded", "embedded-sentences", a name on the Hugging Face hub, or None
    name_or_folder: str | Path | None = None,
) -> Path:  # an existing folder; None gives the embedded model
    """Find the folder of a model, downloading it if it is a name on the hub.

    Old models without safetensors come with pytorch_model.bin instead. Nothing else is fetched.
    Raises ValueError, with the name, if there is no such folder and the hub cannot give it, or if
    this package lacks the embedded model that was asked for.
    """
    if name_or_folder is None or str(name_or_folder) in PACKAGED:
        return embedded_folder(name_or_folder)
    if str(name_or_folder) and Path(name_or_folder).is_dir():  # Path("") is the current folder
        return Path(name_or_folder)
    from huggingface_hub import snapshot_download

    name, fast = str(name_or_folder), {"etag_timeout": 5}  # seconds without an answer
    try:
        folder = Path(snapshot_download(name, allow_patterns=WANTED_FILES, **fast))
        # 0_: sentence-transformers before 2.0
        if not any((*folder.glob("*.safetensors"), *folder.glob("0_*/*.safetensors"))):
            old = ["pytorch_model.bin", "0_*/pytorch_model.bin"]
            snapshot_download(name, allow_patterns=old, **fast)
    except Exception as error:  # each release of the hub library has exceptions of its own
        raise ValueError(
            f"expected a folder or the name of a public model, got {name!r}: no such "
            f"folder, and the hub gave nothing ({type(error).__name__})"
        ) from error
    return folder
