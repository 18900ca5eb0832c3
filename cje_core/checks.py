"""Array types, and checks of options that many functions take: each said once."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]


def one_of(value: object, name: str, choices: Iterable[str], error: type[ValueError] = ValueError) -> None:
    """Raise `error` unless the option called `name` is one of its choices.

    Examples
    --------
    >>> one_of("tukey", "adjust", ("bh", "by"))
    Traceback (most recent call last):
    ValueError: adjust is 'tukey'; use one of bh, by
    """
    if value not in (known := tuple(choices)):
        raise error(f"{name} is {value!r}; use one of {', '.join(known)}")


def probability(value: float, name: str = "ci_prob") -> None:
    """Raise `ValueError` unless the option called `name` lies strictly between 0 and 1.

    Examples
    --------
    >>> probability(95)
    Traceback (most recent call last):
    ValueError: ci_prob is 95; it must lie strictly between 0 and 1
    """
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}; it must lie strictly between 0 and 1")
