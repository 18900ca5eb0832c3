"""Types of arrays and of a source of randomness, and checks of options that many functions take: each said once.

A message about an option says ``name=value: mend``, so that the command line can write it as ``--name value: mend``;
one about a datum says where it stands: ``file, row n: field is value; mend``.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]
Rng = np.random.Generator | int | None  # what `numpy.random.default_rng` makes a generator of


def one_of(value: object, name: str, choices: Iterable[str], error: type[ValueError] = ValueError) -> None:
    """Raise `error` unless the option called `name` is one of its choices.

    Examples
    --------
    >>> one_of("tukey", "adjust", ("bh", "by"))
    Traceback (most recent call last):
    ValueError: adjust='tukey': use one of bh, by
    """
    if value not in (known := tuple(choices)):
        raise error(f"{name}={value!r}: use one of {', '.join(known)}")


def probability(value: float, name: str = "ci_prob", error: type[ValueError] = ValueError) -> None:
    """Raise `error` unless the option called `name` lies strictly between 0 and 1.

    Examples
    --------
    >>> probability(95)
    Traceback (most recent call last):
    ValueError: ci_prob=95: it must lie strictly between 0 and 1
    """
    if not 0 < value < 1:
        raise error(f"{name}={value}: it must lie strictly between 0 and 1")
