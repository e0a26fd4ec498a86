"""Draw nbs/images/cosines.gif: the cosines of graded pairs while the weights go from the pretrained
model to the one trained by contrast.

python scripts/build_animation.py     # half a minute; only needed when a model, the pairs or the
drawing change

Each frame is a model of its own, with weights on the straight line between the two models of the
package; it reads the pairs, and its cosines are drawn.
"""

import io
from pathlib import Path

import torch
from PIL import Image

from minbert.core.figures import panel
from minbert.data import load_dataset
from minbert.explorers.figures import draw_cosine_bands
from minbert.sentence import SentenceEncoder, safe_cosine

PICTURE = Path(__file__).resolve().parent.parent / "nbs" / "images" / "cosines.gif"
STEPS = 12  # from one model to the other
HOLD, MOVE = 2600, 280  # [ms] that an end is shown, and a frame between
COLOURS = 32
LIMITS = (-0.25, 1.0)  # of the cosines


def walk(steps: int = STEPS):
    """Give for each step how far it is, and the cosines of the pairs of `similarity` dev under the
    model there.
    """
    start = SentenceEncoder.from_pretrained(device="cpu")
    end = SentenceEncoder.from_pretrained("embedded-sentences", device="cpu")
    pairs, first, last = (
        load_dataset("similarity", "dev"),
        *(
            {name: value.clone() for name, value in e.model.state_dict().items()}
            for e in (start, end)
        ),
    )
    for step in range(steps + 1):
        share = step / steps
        start.model.load_state_dict(
            {
                name: torch.lerp(value, last[name], share) if value.is_floating_point() else value
                for name, value in first.items()
            }
        )
        u, v = start.encode(pairs.sentences + pairs.sentences2).split(len(pairs))
        yield share, safe_cosine(u, v).numpy(), pairs.labels


def frame(share: float, cosines, grades) -> Image.Image:
    """Draw one model."""
    name = {0: "pretrained", 1: "trained by contrast"}.get(share, f"{share:.0%} of the way")
    ax = panel("cosine", "share of the band", size=(6.4, 4.4))
    draw_cosine_bands(cosines, grades, smoothing=0.03, title=name, ax=ax, limits=LIMITS)
    file = io.BytesIO()
    ax.figure.savefig(file, dpi=100)
    return Image.open(file).convert("RGB")


def main() -> None:
    frames = [frame(*found) for found in walk()]
    colours = frames[-1].quantize(COLOURS, dither=Image.Dither.NONE)
    drawn = [image.quantize(palette=colours, dither=Image.Dither.NONE) for image in frames]
    times = [HOLD] + [MOVE] * (len(drawn) - 2) + [HOLD]
    drawn[0].save(
        PICTURE, save_all=True, append_images=drawn[1:], duration=times, loop=3, optimize=True
    )
    print(
        f"{PICTURE.name}: {len(drawn)} frames of {drawn[0].width} x {drawn[0].height}, {PICTURE.stat().st_size / 1000:.0f} kB"
    )


if __name__ == "__main__":
    main()
