"""Settings that cannot be are refused by name."""
__all__ = ["check_choices", "check_positive", "check_rates"]

import math


def check_choices(
    settings,    # anything with these attributes
    **choices,   # attribute -> what it may be
) -> None:
    """Raise ValueError for an attribute with a value that is none of its choices."""
    for name, known in choices.items():
        if getattr(settings, name) not in known:
            raise ValueError(f"expected {name} in {known}, got {getattr(settings, name)!r}")


def check_positive(
    settings,      # anything with these attributes
    *names: str,   # of attributes that are None or at least 1
) -> None:
    """Raise ValueError for an attribute below 1."""
    for name in names:
        if getattr(settings, name) is not None and getattr(settings, name) < 1:
            raise ValueError(f"expected {name} of at least 1, got {getattr(settings, name)}")


def check_rates(
    settings,      # anything with these attributes
    *names: str,   # of attributes that are None or a finite number >= 0
) -> None:
    """Raise ValueError for an attribute that is negative, NaN or infinite."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"expected a finite {name} of at least 0, got {value}")
