"""Setting the dropout probability of all modules of a model."""

from torch import nn

__all__ = ["set_dropout"]


def set_dropout(
    module: nn.Module,  # changed in place
    probability: float,  # in [0, 1)
) -> None:
    """Set the probability of every dropout inside a module: of its nn.Dropout layers, and of modules
    such as self-attention that keep the probability as a number called `dropout`.

    Raises ValueError for a probability outside [0, 1).
    """
    if not 0 <= probability < 1:
        raise ValueError(f"expected a dropout in [0, 1), got {probability}")
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = probability
        elif isinstance(getattr(part, "dropout", None), (int, float)):
            setattr(part, "dropout", probability)  # noqa: B010 (mypy expects a module there)
