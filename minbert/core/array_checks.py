"""Checks of arrays: conversion to one-dimensional float tensors without NaN, and whole numbers
where classes are expected.
"""

import math
import warnings

import numpy as np
from torch import Tensor

__all__ = ["as_vector", "as_vectors", "as_classes", "undefined"]


def as_vector(
    values,  # (N,) numbers: list, array or tensor, on any device
    name: str,  # what to call them in an error
) -> np.ndarray:  # (N,) float64
    """Turn numbers into a float64 vector; ValueError for what is no number, another shape, NaN or
    infinity.
    """
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected numbers as {name}, got: {error}") from None
    if vector.ndim != 1:
        raise ValueError(f"expected {name} of shape (N,), got {vector.shape}")
    if not np.isfinite(vector).all():
        bad = np.flatnonzero(~np.isfinite(vector))
        raise ValueError(
            f"expected finite {name}, got {vector[bad[0]]} at position {bad[0]}"
            f" ({len(bad)} of {len(vector)})"
        )
    return vector


def as_vectors(
    predictions,  # (N,) numbers
    labels,  # (N,) numbers
) -> tuple[np.ndarray, np.ndarray]:  # (N,) float64 each
    """Turn both sides of a metric into vectors; ValueError if their lengths differ."""
    x, y = as_vector(predictions, "predictions"), as_vector(labels, "labels")
    if len(x) != len(y):
        raise ValueError(f"expected one prediction per label, got {len(x)} and {len(y)}")
    return x, y


def as_classes(
    values,  # (N,) whole numbers of any type
    name: str,  # what to call them in an error
) -> np.ndarray:  # (N,) int64
    """Turn class numbers into int64; ValueError for a number that is not whole."""
    vector = as_vector(values, name)
    if (vector != vector.round()).any():
        wrong = vector[vector != vector.round()][0]
        raise ValueError(f"expected whole numbers in {name}, got {wrong}")
    return vector.astype(np.int64)


def undefined(
    metric: str,  # what has no value here
    why: str,  # what is said in the warning
) -> float:  # NaN
    """Warn that a metric has no value, and return NaN."""
    warnings.warn(f"{metric} is undefined: {why}", RuntimeWarning, stacklevel=3)
    return math.nan
