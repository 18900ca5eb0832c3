"""Sentences that results decide: numbers as they show them, three-valued statements, and what several studies say.

Two rules decide. `below` holds numbers, about normal, against limits by their Monte Carlo standard errors; `kept` holds
proportions, which end at one, against a level by exact bounds over all cells at once. Either answers yes, no, or that
these replicates cannot tell.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from cje_core.checks import FloatArray
from studies.engine.measures import MC_LEVEL, clopper_pearson
from studies.engine.study import Finding

N_MCSE = 3.0  # Monte Carlo standard errors that a family of a dozen numbers needs to be told from a limit
NOMINAL, WITHIN = 0.95, 0.05  # the paper's tables call less than 90% under-coverage
RULE = (
    "keeps: every cell's lower bound is at least 90%; does not: a cell's upper bound is below; one-sided exact 95% "
    "Monte Carlo bounds for all cells at once (Bonferroni)"
)


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


def points(value: float, mcse: float, unit: str = "") -> str:
    """A proportion and its MCSE in percentage points.

    Examples
    --------
    >>> points(0.939, 0.0052), points(0.939, 0.0052, "%")
    ('93.9 (0.5)', '93.9% (0.5)')
    """
    return f"{100 * value:.1f}{unit} ({100 * mcse:.1f})"


def where(row: "pd.Series[Any] | Mapping[str, Any]", cell: Sequence[str]) -> str:
    """A row's cell in words; a whole number, which a row of numbers alone holds as a float, without its nought.

    Examples
    --------
    >>> where(pd.Series({"n": 2, "oracle_fraction": 0.05}), ["n", "oracle_fraction"])
    'n=2, oracle_fraction=0.05'
    >>> where(pd.Series({"world": "weak", "oracle_fraction": 0.05, "n": 250}), ["world", "n", "oracle_fraction"])
    'world=weak, n=250, oracle_fraction=0.05'
    >>> where(pd.Series({"n": 2, "coverage": 0.93}), ["n"])
    'n=2'
    """
    return ", ".join(f"{name}={_level(row[name])}" for name in cell)


def _level(level: Any) -> str:
    whole = isinstance(level, float) and level.is_integer() and abs(level) < 2**53
    return str(int(level) if whole else level)


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


class Kept(NamedTuple):
    """Whether a proportion stays at a level in all cells, and the two cells at the ends, in words."""

    holds: bool | None
    worst: str
    lowest: float
    spread: str


def bounds(rows: pd.DataFrame, measure: str, replicates: int, cells: int = 1) -> FloatArray:
    """One-sided bounds (rows, 2) of proportions that hold in all `cells` at once with probability 95%.

    Exact (Clopper-Pearson) at level ``1 - .05 / cells``. A mean over the policies of a replicate counts as the number
    of trials that has its MCSE, ``p (1 - p) / MCSE^2``, and never as fewer than the replicates (of a coverage among
    the runs that answered: than those; where there is a column ``<measure>_trials``: than that).
    """
    value, mcse = rows[measure].to_numpy(float), rows[f"{measure}_mcse"].to_numpy(float)
    trials = np.divide(value * (1 - value), mcse**2, out=np.zeros(len(rows)), where=mcse > 0)
    ran: Any = replicates * (1 - rows["refused"]) if measure.endswith("_answered") else replicates
    ran = rows.get(f"{measure}_trials", ran)
    trials = np.maximum(trials, np.asarray(ran, float))
    return clopper_pearson(value * trials, trials, prob=1 - 2 * (1 - MC_LEVEL) / max(cells, 1))


def kept(
    rows: pd.DataFrame,
    cell: Sequence[str],
    replicates: int,
    *,
    measure: str = "coverage",
    least: float = NOMINAL - WITHIN,
) -> Kept:
    """Whether `measure` of one method, a row per cell, is at least `least` in every cell.

    True where every lower bound of `bounds` is, False where an upper one is not, else None.
    """
    rows = rows[rows[measure].notna()]
    if not len(rows):
        return Kept(None, "", np.nan, "")
    low, high = bounds(rows, measure, replicates, len(rows)).T
    holds = False if (high < least).any() else True if (low >= least).all() else None
    ordered = rows.sort_values(measure, kind="stable")
    first, last = (ordered.iloc[k] for k in (0, -1))
    ends = [points(float(row[measure]), float(row[f"{measure}_mcse"])) for row in (first, last)]
    spread = ends[0] if len(rows) == 1 else " to ".join(ends)
    return Kept(holds, f"{ends[0]}, {where(first, cell)}", float(first[measure]), spread)


def keeps_level(
    who: str, rows: pd.DataFrame, cell: Sequence[str], replicates: int, *, measure: str = "coverage"
) -> Finding:
    """Return the sentence on whether intervals keep 95% within 5 points.

    Parameters
    ----------
    who : str
        Subject of the sentence, in the singular.
    rows : pd.DataFrame
        `measure` and its MCSE of one method, a row per cell.
    cell : sequence of str
        Columns that name the worst cell.
    replicates : int
    measure : str
    """
    found = kept(rows, cell, replicates, measure=measure)
    if not found.worst:
        return Finding(f"{who} has no coverage to judge: it never gave an interval.", RULE, None)
    if found.holds is None:
        sentence = f"Whether {who} keeps 95% within 5 points, {replicates} replicates cannot tell: "
        return Finding(f"{sentence}worst cell {found.worst}.", RULE, None)
    if found.holds:
        return Finding(f"{who} keeps 95% within 5 points: worst cell {found.worst}.", RULE, True)
    return Finding(f"{who} does not keep 95%: {found.spread}; worst cell {found.worst}.", RULE, False)


def alike_within(what: str, rows: pd.DataFrame, cell: Sequence[str], name: str) -> list[Finding]:
    """Return the sentence on whether paired differences are within `WITHIN` of zero in every cell.

    Parameters
    ----------
    what : str
        The claim: "a covers as often as b".
    rows : pd.DataFrame
        Differences `name` and their MCSE, a row per cell, as of `studies.engine.measures.paired_table`.
    cell : sequence of str
    name : str
    """
    rows = rows[rows[name].notna() & rows[f"{name}_mcse"].notna()]
    if not len(rows):
        return []
    half = -special.ndtri((1 - MC_LEVEL) / 2 / len(rows)) * rows[f"{name}_mcse"]
    near = (rows[name].abs() + half).max() <= WITHIN
    far = (rows[name].abs() - half).max() > WITHIN
    holds = True if near else False if far else None
    most = rows.iloc[int(rows[name].abs().to_numpy(float).argmax())]
    word = {True: "", False: ", which does not hold", None: ", which these replicates cannot tell"}[holds]
    sentence = (
        f"{what} within {100 * WITHIN:.0f} points{word}: largest difference "
        f"{points(float(most[name]), float(most[f'{name}_mcse']))} points, {where(most, cell)}."
    )
    rule = "every cell's 95% Monte Carlo bounds (normal, Bonferroni) within 5 points; None: some reach beyond"
    return [Finding(sentence, rule, holds)]
