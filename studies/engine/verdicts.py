"""What simulated numbers say about a limit, three-valued, and how a sentence shows them."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

N_MCSE = 3.0  # Monte Carlo standard errors that a family of a dozen numbers needs to be told from a limit


def said(value: float, mcse: float) -> str:
    """A simulated number and its MCSE in brackets, to two digits of the latter.

    Examples
    --------
    >>> said(0.9512, 0.0154), said(-0.13977, 0.00091), said(0.5, float("nan"))
    ('.951 (.015)', '-.13977 (.00091)', '.5')
    """
    if not math.isfinite(value):
        return "not available"
    if not (math.isfinite(mcse) and mcse > 0):
        return plain(value)
    digits = min(max(1 - math.floor(math.log10(mcse)), 0), 8)
    return f"{plain(value, f'.{digits}f')} ({plain(mcse, f'.{digits}f')})"


def plain(value: float, form: str = ".3g") -> str:
    """A number without the nought before its point.

    Examples
    --------
    >>> plain(-0.25), plain(10.5), plain(0.12345, ".2f")
    ('-.25', '10.5', '.12')
    """
    number = format(value, form)
    return number.replace("0.", ".", 1) if number.lstrip("-").startswith("0.") else number


def below(value: npt.ArrayLike, mcse: npt.ArrayLike, limit: npt.ArrayLike) -> bool | None:
    """Whether all numbers are at most their limits: False where one is above by `N_MCSE`, None where one may be.

    Examples
    --------
    >>> below([0.1, 0.2], 0.01, 0.3), below([0.1, 0.2], 0.01, 0.15), below([0.1, 0.2], 0.01, 0.21)
    (True, False, None)
    """
    numbers, error, most = np.broadcast_arrays(*(np.asarray(x, float) for x in (value, mcse, limit)))
    room = N_MCSE * error
    known = np.isfinite(numbers) & np.isfinite(room)
    if (numbers - room > most)[known].any():
        return False
    return True if known.size and (known & (numbers + room <= most)).all() else None


def every(parts: Iterable[bool | None]) -> bool | None:
    """All of several three-valued statements.

    Examples
    --------
    >>> every([True, None]), every([None, False]), every([])
    (None, False, None)
    """
    found = list(parts)
    if False in found:
        return False
    return True if found and None not in found else None


def opposite(statement: bool | None) -> bool | None:
    """Whether a three-valued statement is false."""
    return None if statement is None else not statement


def lowest(numbers: "pd.Series[Any]") -> Any:
    """Where the smallest of several numbers stands, as an index."""
    return numbers.idxmin()


def highest(numbers: "pd.Series[Any]") -> Any:
    """Where the largest of several numbers stands, as an index."""
    return numbers.idxmax()
