"""Receiver operating characteristic of an alarm: its curve, the area under it, and that area's standard error."""

from typing import Any

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray
from studies.engine.measures.bounds import share_error


def curve(score: FloatArray, event: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """False and true positive shares of the alarms ``score > t``, t from the largest score down; ties together.

    Examples
    --------
    >>> [part.tolist() for part in curve(np.array([3.0, 2.0, 2.0, 1.0]), [True, True, False, False])]
    [[0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0]]
    """
    event = np.asarray(event, bool)
    levels = np.unique(score)[::-1]
    shares = []
    for group in (score[~event], score[event]):
        below = np.searchsorted(np.sort(group), levels, side="left")
        shares.append(np.concatenate([[0.0], 1 - below / max(len(group), 1)]))
    return shares[0], shares[1]


def _placements(score: FloatArray, event: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Share of sound results below each failure, and of failures above each sound result; a tie counts half."""
    bad, sound = score[event], score[~event]

    def below(values: FloatArray, others: FloatArray) -> FloatArray:
        ranked = np.sort(others)
        left, right = (np.searchsorted(ranked, values, side=side) for side in ("left", "right"))
        return np.asarray((left + right) / (2 * len(ranked)))

    return below(bad, sound), 1 - below(sound, bad)


def area(score: FloatArray, event: npt.ArrayLike) -> tuple[float, float]:
    """Area under the curve, P(score of a failure > score of a sound result) + P(equal) / 2, and its standard error.

    The standard error is that of DeLong, DeLong and Clarke-Pearson (1988):
    ``sqrt(var(V10) / m + var(V01) / n)`` with the placements V of m failures and n sound results.

    Returns
    -------
    value, standard error
        NaN without a failure or without a sound result; with one of either no standard error.

    Examples
    --------
    >>> area(np.array([3.0, 2.0, 2.0, 1.0]), [True, True, False, False])[0]
    0.875
    """
    event = np.asarray(event, bool)
    if event.all() or not event.any():
        return float("nan"), float("nan")
    of_bad, of_sound = _placements(score, event)
    error = float("nan")
    if min(len(of_bad), len(of_sound)) > 1:
        error = float(np.sqrt(of_bad.var(ddof=1) / len(of_bad) + of_sound.var(ddof=1) / len(of_sound)))
    return float(of_bad.mean()), error


def area_within(score: FloatArray, event: npt.ArrayLike, stratum: npt.NDArray[Any]) -> tuple[float, float]:
    """Area for pairs of one stratum: the mean of the strata's areas, weighted by their number of pairs.

    The weights are taken as known; strata with fewer than two failures or sound results are left out.
    """
    event = np.asarray(event, bool)
    parts = []
    for level in np.unique(stratum):
        at = stratum == level
        m, n = int((event & at).sum()), int((~event & at).sum())
        if min(m, n) > 1:
            parts.append((m * n, *area(score[at], event[at])))
    if not parts:
        return float("nan"), float("nan")
    weight, value, error = np.array(parts, float).T
    weight /= weight.sum()
    return float(weight @ value), float(np.sqrt((weight * error) @ (weight * error)))


def share(hit: npt.ArrayLike) -> tuple[float, float]:
    """A proportion and its Monte Carlo standard error, see `share_error`; NaN of nothing."""
    n = np.size(hit)
    if not n:
        return float("nan"), float("nan")
    p = float(np.asarray(hit, float).mean())
    return p, float(share_error(p, n))
