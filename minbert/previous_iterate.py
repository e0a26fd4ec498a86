"""The previous iterate of a model in training: copies of its parameters, and the outputs they give.

`PreviousIterate` notices when an optimizer step has been taken, keeps the copies that chapter 24
updates, runs the copied model on a batch, and can be saved and resumed.
"""

__all__ = ["PREVIOUS", "PreviousIterate"]

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from .core.eval_mode import compiled
from .core.finite_checks import check_finite
from .core.frozen_copy import ParameterCopies, SavesCopies
from .data import TaskBatch
from .regularized import Clean, replay

PREVIOUS = ("step", "epoch", "ema", "once_per_batch")


class PreviousIterate(SavesCopies):
    """Copies of the parameters of a model in training; a subclass defines `update`.

    Raises ValueError for settings without a meaning.
    """

    def __init__(
        self,
        weight: float = 1.0,  # mu; Jiang et al.
        previous: str = "step",  # one of PREVIOUS
        lag: int = 1,  # optimizer steps, for "step"
        beta: float = 0.99,  # for "ema"; Jiang et al.
        late_beta: float = 0.999,  # from step `switch` on; Jiang et al.
        switch: int | None = None,  # Jiang et al.: a tenth of the run; None: never
        every: int | None = None,  # optimizer steps in an epoch, for "epoch"
        dtype: torch.dtype | None = None,  # of the copy's matrix products; None: as the model's
        dropout: str = "off",  # in the copy; "same": the masks of the model
    ):
        if (
            previous not in PREVIOUS
            or not isinstance(lag, int)
            or lag < 0
            or not 0 <= weight < math.inf
        ):
            raise ValueError(
                f"expected previous among {', '.join(PREVIOUS)}, a whole lag and a weight of at "
                f"least 0, got {previous!r}, {lag} and {weight}"
            )
        if not (0 <= beta < 1 and 0 <= late_beta < 1):
            raise ValueError(f"expected betas in [0, 1), got {beta} and {late_beta}")
        if (previous == "epoch") != (every is not None) or (every is not None and every < 1):
            raise ValueError(f'expected every >= 1 for "epoch" and None otherwise, got {every}')
        if dtype not in (None, torch.bfloat16) or dropout not in ("off", "same"):
            raise ValueError(
                "expected dtype None or torch.bfloat16, and dropout 'off' or 'same', "
                f"got {dtype} and {dropout!r}"
            )
        self.weight, self.previous, self.every = weight, previous, every
        self.lag = lag if previous == "step" else 0
        self.beta, self.late_beta, self.switch = beta, late_beta, switch
        self.dtype, self.dropout = dtype, dropout

    def update(self) -> None:
        """Set the previous iterate of step `self.step`; the model has the parameters before it."""
        raise NotImplementedError

    def begin(
        self,
        model: nn.Module,  # a `MultitaskBert`, or a wrapper that keeps it in `.module`
    ) -> None:
        """Update the previous iterate if the parameters have changed since the last call.

        Several batches of one step are compared with the same previous iterate, and a step that
        changes nothing does not count. A model that trains other parameters than before starts
        anew. Raises ValueError for dropout "same" and a compiled model.
        """
        model = getattr(model, "module", model)
        if self.copies is None or not self.copies.fits(model):
            if self.dropout == "same" and compiled(model):
                raise ValueError(
                    "expected a model that is not compiled for dropout 'same', got a compiled one"
                )
            self.copies, self._seen = ParameterCopies(model, self.lag + 1), None
            self.step = self._restore()
        now = self.copies.fingerprint()
        if self._seen is None or not torch.equal(now, self._seen):
            self._seen, self.step = now, self.step + 1
            self.update()

    def previous_outputs(
        self,
        task: str,
        part: TaskBatch,
        clean: Clean,  # what the model's own forward pass found
    ) -> Tensor:  # as `clean.outputs`, without a graph
        """Run the previous iterate on a batch.

        A frozen encoder is not run again, since its vectors do not depend on what is trained.
        Raises ValueError if an output is not finite.
        """
        model, frozen = self.copies.model, self.copies.model.mode == "frozen"
        device = clean.outputs.device.type
        precision = torch.autocast(device, self.dtype) if self.dtype else nullcontext()
        masks = nullcontext()
        if self.dropout == "same":
            self.copies.follow()
            masks = replay(clean.head_random_state if frozen else clean.random_state)
        with torch.no_grad(), precision, masks:
            if frozen:
                found = model.score(task, *clean.vectors)
            else:
                found = model(task, part.first, part.second)
        check_finite(found, "outputs of the previous iterate")
        return found

    def _identity(self):
        names = ("previous", "lag", "every", "beta", "late_beta", "switch")
        return {name: getattr(self, name) for name in names}
