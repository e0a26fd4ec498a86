"""Write the pictures of notebooks with a palette: a third of the size, for the learner's edition
carries them.

    python scripts/pictures.py                          # all notebooks in nbs/
    python scripts/pictures.py nbs/1_bert/01_tokens.ipynb
"""

import base64
import io
import json
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
COLOURS = 128


def palette(picture: bytes) -> bytes:  # PNG -> PNG
    """Choose colours so that none of the picture is far from one of them; one that has a palette
    stays as it is.
    """
    image = Image.open(io.BytesIO(picture))
    if image.mode == "P":
        return picture
    image = image.convert("RGBA")
    made = io.BytesIO()
    Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB").quantize(
        COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    ).save(made, "PNG", optimize=True)
    return made.getvalue()


def shrink(file: Path) -> bool:  # whether it changed
    """Shrink all pictures of a notebook."""
    before = file.read_text(encoding="utf-8")
    notebook = json.loads(before)
    for data in (
        output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", [])
    ):
        if "image/png" in data:
            text = data["image/png"]
            made = base64.b64encode(palette(base64.b64decode("".join(text)))).decode()
            data["image/png"] = [made] if isinstance(text, list) else made
    after = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
    file.write_text(after, encoding="utf-8")
    return after != before


if __name__ == "__main__":
    for file in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "nbs").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in file.parts and shrink(file):
            print(file)
