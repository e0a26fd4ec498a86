"""Predict, then run: a reader's guess beside what came out."""

import math
from numbers import Real


def guessed(
    # a number, a text, a truth value or a list; None: the reader has not guessed
    guess: object,
    actual: object,  # what the program found, of the same kind
    within: float = 0.0,  # how far a number may be off and still be right
) -> None:
    """Print a guess beside what came out. No guess and a wrong one cost nothing: the next cell runs
    as well.
    """
    shown = f"{actual:.3g}" if isinstance(actual, float) else str(actual)
    if guess is None or guess is Ellipsis:
        print(f"no guess yet; it is {shown}")
    else:
        said = f"{guess:.3g}" if isinstance(guess, float) else str(guess)
        print(
            f"you guessed {said}, it is {shown}: {'right' if fits(guess, actual, within) else 'surprised?'}"
        )


def fits(guess: object, actual: object, within: float) -> bool:
    """Tell whether a guess is right: numbers within a distance, lists and arrays item by item, the
    case of letters aside; a lone item is a list of one.
    """
    guess = guess.tolist() if hasattr(guess, "tolist") else guess
    if isinstance(actual, (list, tuple)):
        guess = guess if isinstance(guess, (list, tuple)) else [guess]
        return len(guess) == len(actual) and all(fits(a, b, within) for a, b in zip(guess, actual))
    if isinstance(guess, Real) and isinstance(actual, Real):
        return abs(guess - actual) <= within or math.isclose(guess, actual)
    return str(guess).strip().casefold() == str(actual).strip().casefold()
