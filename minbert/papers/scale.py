"""Scales of a recipe: the encoder, sizes, numbers of steps and learning rates of each."""

from __future__ import annotations

__all__ = ["Scale", "SCALES", "RATES", "agreed"]

from dataclasses import asdict, dataclass, field, replace

from ..core.safetensors_io import file_checksum
from ..tokens import resolve_folder


@dataclass(frozen=True)
class Scale:
    """Sizes and rates that a scale sets; a recipe sets the rest. Where a paper names a value,
    "paper" has it.
    """

    name: str
    base: str | None  # encoder that the paper calls BERT-base; None: the embedded one
    large: str | None  # BERT-large; None: there is no second size
    seeds: tuple[int, ...]
    view_batch: int  # sentences a step of contrastive training
    view_steps: int
    view_lr: (
        float  # of contrastive training at the scale of the papers; the others search in `RATES`
    )
    view_dropout: (
        float | None
    )  # of the layers under the contrast of Dao, Mehta and Tian; None: the model's own
    flow_batch: int
    flow_steps: int | None  # None: as many epochs as the recipe says
    flow_lr: float | None  # None: as the recipe says
    rows: dict[str, int] = field(default_factory=dict)  # rows of a task in a joint step
    tune_steps: int = 0  # of joint fine-tuning
    batch: int = 32  # rows of a step of one task
    task_steps: int | None = None  # steps on one task; None: the paper's epochs
    lr: float = 1e-5  # of the whole model
    head_lr: float = 1e-3  # of heads on a frozen encoder
    head_steps: int | None = None
    most_train: int | None = None  # rows of a train set, a fixed draw
    most_dev: int | None = None  # rows of a dev or test set
    most_text: int = 1_000_000  # sentences without labels
    precision: str = "fp32"

    @property
    def printed(self) -> bool:
        """Tell whether the papers' own batch sizes, steps and learning rates are used."""
        return self.task_steps is None


RATES = (
    3e-6,
    1e-5,
    3e-5,
    1e-4,
    3e-4,
    1e-3,
)  # grid of the learning-rate search, the same for all methods that are compared
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_HU = {"sst": 32, "quora": 96, "sts": 32}  # Hu, section 5.3
_MICRO = Scale(
    "micro",
    None,
    None,
    (1, 2, 3),
    64,
    60,
    5e-5,
    0.01,
    64,
    300,
    1e-3,
    {"sst": 8, "quora": 24, "sts": 8},
    240,
    16,
    300,
    5e-4,
    1e-2,
    150,
    12_800,
    2_000,
    20_000,
    "bf16",
)
SCALES = {
    scale.name: scale
    for scale in (
        _MICRO,
        replace(
            _MICRO,
            name="minilm",
            base="sentence-transformers/all-MiniLM-L6-v2",
            view_dropout=0.1,
            lr=1e-4,
        ),  # a finished encoder: BERT's dropout, a fifth of the rate
        Scale(
            "small",
            "nreimers/MiniLM-L6-H384-uncased",
            None,
            (1, 2, 3),
            64,
            1_000,
            1e-4,
            0.1,
            64,
            2_000,
            1e-3,
            _HU,
            2_000,
            32,
            1_000,
            1e-4,
            1e-3,
            1_000,
            None,
            None,
            200_000,
            "bf16",
        ),
        Scale(
            "paper",
            "bert-base-uncased",
            "bert-large-uncased",
            (1, 2, 3, 4, 5),
            16,
            10_000,
            1e-4,
            0.1,
            16,
            10_000,
            None,
            _HU,
            5_000,
            32,
            None,
            1e-5,
            1e-3,
            None,
            precision="bf16",
        ),
    )
}


def agreed(scale: Scale) -> dict:
    """What two results, or a stage and a result, must agree in to stand in one table: the scale
    without its seeds, and the weights of the base model.

    Where these lie does not matter: a folder in the place of the scale's own name is told by its
    weights alone.
    """
    named = replace(scale, base=SCALES.get(scale.name, scale).base)
    return {
        "scale": {k: v for k, v in asdict(named).items() if k != "seeds"},
        "base": weights_checksum(scale.base),
    }


def weights_checksum(name: str | None) -> str | None:
    """Compute the checksum of the weights of a model; of a name of the hub that is not on this
    machine yet, give the name.

    Raises ValueError for a folder without a file of weights: a path does not tell one model from
    another.
    """
    try:
        folder = resolve_folder(name)
    except ValueError:
        return name
    for file in WEIGHTS:
        if (folder / file).is_file():
            return file_checksum(folder / file)
    raise ValueError(f"{folder}: expected {' or '.join(WEIGHTS)}, got neither")
