"""Checks of settings: positive numbers, probabilities, choices and names, with an error that names
the setting.
"""

__all__ = ["check_choices", "check_names", "check_positive", "check_rates"]

import math
from numbers import Integral, Real


def check_choices(
    settings,  # anything with these attributes
    **choices,  # attribute -> what it may be
) -> None:
    """Raise ValueError for an attribute with a value that is none of its choices."""
    for name, known in choices.items():
        if getattr(settings, name) not in known:
            raise ValueError(f"expected {name} in {known}, got {getattr(settings, name)!r}")


def check_positive(
    settings,  # anything with these attributes
    # of attributes that are None or a whole number of at least 1; or a dict of such numbers
    *names: str,
) -> None:
    """Raise ValueError for an attribute that is no whole number, or below 1."""
    for name in names:
        value = getattr(settings, name)
        for part in (
            value.values() if isinstance(value, dict) else () if value is None else (value,)
        ):
            if not isinstance(part, Integral):
                raise ValueError(f"expected a whole number as {name}, got {part!r}")
            if part < 1:
                raise ValueError(f"expected {name} of at least 1, got {part}")


def check_rates(
    settings,  # anything with these attributes
    *names: str,  # of attributes that are None or a finite number >= 0
) -> None:
    """Raise ValueError for an attribute that is no number, negative, NaN or infinite."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, Real):
            raise ValueError(f"expected a number as {name}, got {value!r}")
        if value is not None and not 0 <= float(value) < math.inf:
            raise ValueError(f"expected a finite {name} of at least 0, got {value}")


def check_names(
    settings,  # anything with these attributes
    *names: str,  # of attributes that are several different texts
) -> None:
    """Raise ValueError for an attribute that is one text, holds none, or holds one twice."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, str):  # its letters are no names
            raise ValueError(f"expected a tuple as {name}, got {value!r}: ({value!r},) is one")
        if not value or len(set(value)) < len(value):
            raise ValueError(f"expected different {name}, at least one, got {value}")
