"""Sentences that results decide: numbers as they show them, three-valued statements, and what several studies say.

A sentence asks and answers, says how refused and failed runs count (`refusals`), names every cell that it leaves out,
with the reason and the number that stands there (`LeftOut`), and shows the worst cell that it is about.

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
from studies.engine.measures import MC_LEVEL, REFUSALS, clopper_pearson
from studies.engine.study import Finding

N_MCSE = 3.0  # Monte Carlo standard errors that a family of a dozen numbers needs to be told from a limit
MOST_NAMED = 6  # empty cells that a sentence names; of more it says how many
NOMINAL, WITHIN = 0.95, 0.05  # the paper's tables call less than 90% under-coverage
RULE = (
    "yes: every cell's lower bound is at least 90%; no: a cell's upper bound is below; one-sided exact 95% Monte Carlo "
    "bounds for all cells at once (Bonferroni), over the intervals printed"
)
ANSWER = {True: "Yes", False: "No", None: "Not settled"}


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
    >>> points(0.939, 0.0052), points(0.939, 0.0052, "%"), points(0.0, 0.361)
    ('93.9 (0.5)', '93.9% (0.5)', '0 (36)')
    >>> points(0.5, float("nan")), points(float("nan"), 0.1)
    ('50.0', 'not available')
    """
    if not math.isfinite(value):
        return "not available"
    if not math.isfinite(mcse):
        return f"{100 * value:.1f}{unit}"
    digits = 1
    if mcse > 0:
        digits = min(max(-math.floor(math.log10(100 * mcse)), 0 if mcse >= 0.0995 else 1), 3)
    return f"{100 * value:.{digits}f}{unit} ({100 * mcse:.{digits}f})"


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


class LeftOut(NamedTuple):
    """Cells that a sentence is not about.

    Parameters
    ----------
    what : str
        Their names: "world shift".
    why : str
        What is so there, by construction: "the calibration does not transport".
    rows : pd.DataFrame
        The same columns as of the cells that the sentence is about.
    """

    what: str
    why: str
    rows: pd.DataFrame

    def said(self, measure: str = "coverage", verb: str = "covers") -> str:
        """Return the sentence that names the cells, with the range of the measure there; nothing if there are none.

        Examples
        --------
        >>> LeftOut("shift", "nothing transports", pd.DataFrame({"coverage": [0.0], "coverage_mcse": [0.01]})).said()
        'Left out: shift, where nothing transports (covers 0.0 (1.0)%).'
        """
        if not len(self.rows):
            return ""
        known = self.rows[self.rows[measure].notna()].sort_values(measure, kind="stable")
        ends = dict.fromkeys(
            points(float(known.iloc[k][measure]), float(known.iloc[k][f"{measure}_mcse"]))
            for k in (0, -1)[: len(known)]
        )
        shown = f"{verb} {' to '.join(ends)}%" if ends else "no interval printed"
        return f"Left out: {self.what}, where {self.why} ({shown})."


def together(*parts: str) -> str:
    """Return sentences as one text, without those that are empty."""
    return " ".join(part for part in parts if part)


def refusals(rows: pd.DataFrame, cell: Sequence[str], *, what: str = "Refused runs are not counted") -> str:
    """Return the sentence that says how many runs were refused or failed, where most, and which cells are empty.

    Examples
    --------
    >>> rows = pd.DataFrame({"n": [10, 20], "refused": [0.5, 0.0], "refused_mcse": [0.1, 0.01]})
    >>> refusals(rows, ["n"])
    'Refused runs are not counted: at most 50 (10)% (n=10).'
    >>> refusals(rows[1:], ["n"])
    'No run was refused.'
    """
    if not set(REFUSALS) & set(rows.columns):
        return ""
    most = {}
    for name in REFUSALS:
        if name in rows and (rows[name] > 0).any():
            worst = rows.loc[highest(rows[name])]
            share = points(float(worst[name]), float(worst[f"{name}_mcse"]))
            most[name] = f"{share}% ({where(worst, cell)})" if cell else f"{share}%"
    text = f"{what}: at most {most['refused']}." if "refused" in most else "No run was refused."
    if "failed" in most:
        text += f" Failed runs are not counted either: at most {most['failed']}."
    empty = rows[rows[[name for name in REFUSALS if name in rows]].sum(axis=1) > 1 - 1e-12]
    if len(empty):
        named = "; ".join(where(row, cell) for _, row in empty.iterrows()) if len(empty) <= MOST_NAMED else ""
        text += f" No interval at all in {len(empty)} of {len(rows)} cells{f': {named}' if named else ''}."
    return text


class Kept(NamedTuple):
    """Whether a proportion stays at a level in all cells; the lowest and highest number, and where the lowest is."""

    holds: bool | None
    at: str
    spread: str


def bounds(rows: pd.DataFrame, measure: str, replicates: int, cells: int = 1) -> FloatArray:
    """One-sided bounds (rows, 2) of proportions that hold in all `cells` at once with probability 95%.

    Exact (Clopper-Pearson) at level ``1 - .05 / cells``. A mean over the policies of a replicate counts as the number
    of trials that has its MCSE, ``p (1 - p) / MCSE^2``, and never as fewer than the replicates (of a coverage: than
    those that printed an interval; where there is a column ``<measure>_trials``: than that).
    """
    value, mcse = rows[measure].to_numpy(float), rows[f"{measure}_mcse"].to_numpy(float)
    trials = np.divide(value * (1 - value), mcse**2, out=np.zeros(len(rows)), where=mcse > 0)
    ran: Any = replicates
    if measure == "coverage":
        ran = replicates * (1 - sum(rows.get(name, 0.0) for name in REFUSALS))
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
        return Kept(None, "", "")
    low, high = bounds(rows, measure, replicates, len(rows)).T
    holds = False if (high < least).any() else True if (low >= least).all() else None
    ordered = rows.sort_values(measure, kind="stable")
    first, last = (ordered.iloc[k] for k in (0, -1))
    ends = [points(float(row[measure]), float(row[f"{measure}_mcse"])) for row in (first, last)]
    spread = " to ".join(dict.fromkeys(ends))
    return Kept(holds, where(first, cell), spread)


def keeps_level(
    who: str,
    rows: pd.DataFrame,
    cell: Sequence[str],
    replicates: int,
    *,
    left_out: Iterable[LeftOut] = (),
    silent: str = "Refused runs are not counted",
) -> Finding:
    """Return the sentences on whether printed intervals keep 95% within 5 points, and on all that is not counted.

    Parameters
    ----------
    who : str
        Subject of the sentence, in the singular.
    rows : pd.DataFrame
        ``coverage``, ``refused`` and ``failed`` with their MCSE of one method, a row per cell.
    cell : sequence of str
        Columns that name the worst cell.
    replicates : int
    left_out : iterable of LeftOut
        Cells that the question is not about; each is named, with its reason and its coverage.
    silent : str
        What is said of runs without an interval.
    """
    found = kept(rows, cell, replicates)
    question = f"Does {who} keep 95% within 5 points?"
    beside = together(refusals(rows, cell, what=silent), *(one.said() for one in left_out))
    if not found.spread:
        return Finding(together(f"{question} There is no coverage to judge.", beside), RULE, None)
    number = f"its {int(rows['coverage'].notna().sum())} cells cover {found.spread}%"
    if found.holds is None:
        number = f"{replicates} replicates cannot tell; {number}"
    answer = f"{question} {ANSWER[found.holds]}: {number}, least at {found.at}."
    return Finding(together(answer, beside), RULE, found.holds)


def alike_within(
    what: str, rows: pd.DataFrame, cell: Sequence[str], name: str, left_out: Iterable[LeftOut] = ()
) -> list[Finding]:
    """Return the sentence on whether paired differences are within `WITHIN` of zero in every cell.

    Parameters
    ----------
    what : str
        The question: "Does a cover as often as b".
    rows : pd.DataFrame
        Differences `name` and their MCSE, a row per cell, as of `studies.engine.measures.paired_table`.
    cell : sequence of str
    name : str
    left_out : iterable of LeftOut
    """
    silent = int((rows[name].isna() | rows[f"{name}_mcse"].isna()).sum())
    rows = rows[rows[name].notna() & rows[f"{name}_mcse"].notna()]
    if not len(rows):
        return []
    half = -special.ndtri((1 - MC_LEVEL) / 2 / len(rows)) * rows[f"{name}_mcse"]
    near = (rows[name].abs() + half).max() <= WITHIN
    far = (rows[name].abs() - half).max() > WITHIN
    holds = True if near else False if far else None
    most = rows.iloc[int(rows[name].abs().to_numpy(float).argmax())]
    answer = {**ANSWER, None: "These replicates cannot tell"}[holds]
    sentence = together(
        f"{what}, within {100 * WITHIN:.0f} points? {answer}: largest difference of {len(rows)} cells "
        f"{points(float(most[name]), float(most[f'{name}_mcse']))} points, {where(most, cell)}.",
        f"Cells in which one of the two has no number, {silent}, are left out." if silent else "",
        *(one.said(name, "difference") for one in left_out),
    )
    rule = "every cell's 95% Monte Carlo bounds (normal, Bonferroni) within 5 points; None: some reach beyond"
    return [Finding(sentence, rule, holds)]
