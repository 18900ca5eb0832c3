"""Limits of a value at any level: the one rule that intervals, differences, ranks and decisions are made of.

`value_limits` returns the two limits that leave out ``1 - prob`` together, for each kind of interval. A kind is one
function in `LIMITS`; which kind a value gets is chosen where the value is made (`cje_core.families.intervals.bounds`)
and travels in the estimate as ``interval_kind``, so that `basis_of` finds it again.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray
from cje_core.formulas.proportions import charged
from cje_core.inference.estimate import (
    Status,
    clopper_pearson,
    into_scale,
    logit_wald,
    wald,
)

EVENTS = 30  # rare outcomes from which on the arm away from them is trusted to be the shorter one
RULED_OUT = 0.95  # how surely a share of outcomes is ruled out that no label showed
FARTHER = 1.5  # arms of an interval from which on unseen outcomes are worth a word


class Basis(NamedTuple):
    """Values and what their limits rest on, arrays of one shape."""

    value: FloatArray  # NaN where the estimate has failed
    std_error: FloatArray
    df: FloatArray
    kind: npt.NDArray[np.str_]  # a key of `LIMITS`; any other has limits by t
    effective: (
        FloatArray  # count of the own binary labels behind binomial limits, NaN where they match std_error
    )
    unseen_by: FloatArray  # graded labels that may have missed a tail
    unseen_weight: FloatArray  # of an outcome that none of them showed, see `cje_core.formulas.room`
    skewness: FloatArray  # of the error, see `error_skewness`
    scale: tuple[float, float]

    def at(self, index: IntArray | npt.NDArray[np.bool_]) -> "Basis":
        """Return the basis of some of the values, by position or mask."""
        parts = {name: getattr(self, name)[index] for name in PER_VALUE}
        return self._replace(**parts)


PER_VALUE = ("value", "std_error", "df", "kind", "effective", "unseen_by", "unseen_weight", "skewness")


def basis_of(estimate: xr.Dataset) -> Basis:
    """Return what the limits of an estimate's values rest on, over its policies in their order.

    Variables that the estimate lacks count as absent: no ``df`` is a normal limit, no ``interval_kind`` a limit by t.
    """
    names = estimate.variables
    n = estimate.sizes["policy"]
    failed = names["status"].values >= Status.TOO_FEW_LABELS

    def column(name: str, absent: float) -> FloatArray:
        return np.asarray(names[name].values, float) if name in names else np.full(n, absent)

    kind = names["interval_kind"].values.astype(str) if "interval_kind" in names else np.full(n, "wald")
    low, high = estimate.attrs.get("oracle_range", (-np.inf, np.inf))
    return Basis(
        np.where(failed, np.nan, column("estimate", np.nan)),
        column("std_error", np.nan),
        column("df", np.inf),
        kind,
        column("effective_count", np.nan),
        column("unseen_by", np.nan),
        column("unseen_weight", 0.0),
        column("skewness", 0.0),
        (float(low), float(high)),
    )


def value_limits(basis: Basis, prob: npt.ArrayLike) -> FloatArray:
    """Two-sided limits of values, shape (..., 2), NaN where a value has none.

    Parameters
    ----------
    prob : float or array of the values' shape
        Probability between the limits; each value may have its own.

    Examples
    --------
    >>> basis = Basis(*np.array([[0.9], [0.05], [np.inf]]), np.array(["clopper_pearson"]),
    ...               *np.array([[20.0], [np.nan], [0.0], [0.0]]), (0.0, 1.0))
    >>> value_limits(basis, 0.95).round(3).tolist()
    [[0.683, 0.988]]
    """
    shape = basis.value.shape
    level = np.broadcast_to(np.asarray(prob, float), shape)
    out = np.full((*shape, 2), np.nan)
    for name in np.unique(basis.kind).tolist():
        at = basis.kind == name
        limits = LIMITS.get(name, _by_t)
        out[at] = limits(basis.at(at), level[at])
    return out


def _by_t(basis: Basis, prob: FloatArray) -> FloatArray:
    return wald(basis.value, basis.std_error, basis.df, prob)


def _by_logit(basis: Basis, prob: FloatArray) -> FloatArray:
    return logit_wald(basis.value, basis.std_error, basis.df, prob, basis.scale)


def _by_binomial_tails(basis: Basis, prob: FloatArray) -> FloatArray:
    low, high = basis.scale
    count = np.where(np.isfinite(basis.effective), basis.effective, matched_count(basis, prob))
    tails = low + (high - low) * clopper_pearson((basis.value - low) / (high - low), count, prob)
    return into_scale(tails, basis.value, basis.scale)


def _by_gamma(basis: Basis, prob: FloatArray) -> FloatArray:
    """Limits of a skewed error with room for unseen outcomes; see `cje_core.families.intervals`."""
    center, tail = basis.value[:, None], (1 - prob) / 2
    low, high = basis.scale
    arms = _gamma_arms(basis, tail)
    room = basis.unseen_weight > 0  # a tail of NaN where prob is
    if room.any():
        n, weight = basis.unseen_by[room], basis.unseen_weight[room]
        share = special.betainccinv(weight, n, tail[room])
        inside = np.clip(basis.value[room], low, high)
        arms[room] = np.hypot(arms[room], share[:, None] * np.stack([inside - low, high - inside], axis=-1))
    return into_scale(center + np.array([-1.0, 1.0]) * arms, basis.value, basis.scale)


def _gamma_arms(basis: Basis, tail: FloatArray) -> FloatArray:
    """Reach below and above the value, (n, 2)."""
    t, z = special.stdtrit(basis.df, 1 - tail), -special.ndtri(tail)
    size = np.maximum(np.abs(basis.skewness), 1e-3)  # below that, gamma and normal differ by a thousandth
    k = 1 / size**2
    long = (special.gammainccinv(k + 1, tail) - k) * size * t / z
    short = (k - special.gammaincinv(k, tail)) * size * t / z
    short = t + (short - t) * np.minimum(k / EVENTS, 1.0)
    sides = np.where((basis.skewness < 0)[:, None], np.stack([long, short], -1), np.stack([short, long], -1))
    return np.asarray(basis.std_error[:, None] * sides)


def _none(basis: Basis, prob: FloatArray) -> FloatArray:
    return np.full((*basis.value.shape, 2), np.nan) + 0 * prob[..., None]


# kind of interval -> its limits; a new kind is one more function here
LIMITS: dict[str, Callable[[Basis, FloatArray], FloatArray]] = {
    "wald": _by_t,
    "logit": _by_logit,
    "clopper_pearson": _by_binomial_tails,
    "gamma": _by_gamma,
    "none": _none,
}


def matched_count(basis: Basis, prob: npt.ArrayLike) -> FloatArray:
    """Count at which a binomial share has the value's standard error, charged for its degrees of freedom.

    ``c = 1 + s (1 - s) / SE^2`` on the unit scale, at a share s half way between the value and the middle of what the
    scale leaves of the t interval: at an end itself no spread is possible, and a value may lie there, or beyond, by
    chance.
    """
    low, high = basis.scale
    ends = np.clip(wald(basis.value, basis.std_error, basis.df, prob), low, high)
    share = (np.clip(basis.value, low, high) / 2 + ends.mean(axis=-1) / 2 - low) / (high - low)
    with np.errstate(divide="ignore", invalid="ignore"):
        count = 1 + share * (1 - share) * ((high - low) / basis.std_error) ** 2
        return charged(count, basis.df, prob)


def error_skewness(influence: FloatArray, number: npt.ArrayLike = 1.0) -> FloatArray:
    """Skewness of the error of means with influence values (sums by cluster), ``sum phi^3 / (sum phi^2)^1.5``.

    Between -1 and 1, 0 where nothing moves; the error of k rare outcomes of equal size has ``k^-1/2``.

    Parameters
    ----------
    influence : array, shape (..., n)
    number : array, optional
        How many equal values each one stands for; it is then their root sum of squares, ``sqrt(number)`` times one.

    Examples
    --------
    >>> error_skewness(np.array([[-3.0, 1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]])).round(3).tolist()
    [-0.577, 0.0]
    >>> error_skewness(np.array([[-3.0, 3**0.5]]), np.array([1, 3])).round(3).tolist()
    [-0.577]
    """
    square = influence**2
    total = square.sum(axis=-1) ** 1.5
    third = np.vecdot(square, influence / np.sqrt(number))
    return np.asarray(np.divide(third, total, out=np.zeros(total.shape), where=total > 0))


def unseen_bound(basis: Basis, limits: FloatArray) -> FloatArray:
    """How far values could be from what graded labels show, if outcomes that none of them showed are at the far end.

    With none among n labels their share is below ``u = 1 - .05^(1 / n)`` with 95%, so a value could be as low as ``v -
    u (v - low)`` (as high as ``v + u (high - v)`` in the lower half of the scale). NaN where that lies within 1.5 arms
    of the interval: the interval has said it then.

    Examples
    --------
    >>> basis = Basis(*np.array([[0.9], [0.002], [29.0]]), np.array(["gamma"]), *np.array([[np.nan], [30], [0], [0]]),
    ...               (0.0, 1.0))
    >>> unseen_bound(basis, value_limits(basis, 0.95)).round(3).tolist()
    [0.814]
    """
    low, high = basis.scale
    end = np.where(basis.value >= (low + high) / 2, low, high)
    arm = np.where(end == low, basis.value - limits[..., 0], limits[..., 1] - basis.value)
    reach = unseen_share(basis.unseen_by) * (end - basis.value)
    return np.where(np.abs(reach) > FARTHER * arm, basis.value + reach, np.nan)


def unseen_share(n: npt.ArrayLike) -> FloatArray:
    """Share of outcomes that n labels without one rule out with 95%."""
    return np.asarray(1 - (1 - RULED_OUT) ** (1 / np.asarray(n, float)))
