"""A copy of the weights of a model at its best score so far."""

from __future__ import annotations

__all__ = ["Best"]

import copy
import math


class Best:
    """The weights with the highest score so far."""

    def __init__(self, model, score):
        self.model, self.score, self.value, self.weights = model, score, -math.inf, None

    def measure(self, step):
        """Score the model, and copy its weights if it was never better. Raises ValueError for a
        score that is NaN.
        """
        value = self.score()
        if math.isnan(value):
            raise ValueError(f"expected a score after step {step}, got {value}")
        if value > self.value:
            self.value, self.weights = value, copy.deepcopy(self.model.state_dict())
        return value

    def restore(self):
        """Give the model its best weights back, if it was ever measured."""
        if self.weights is not None:
            self.model.load_state_dict(self.weights)
