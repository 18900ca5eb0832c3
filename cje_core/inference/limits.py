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
from cje_core.inference.estimate import (
    Status,
    clopper_pearson,
    into_scale,
    logit_wald,
    percentile,
    wald,
    with_room,
)


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
    scale: tuple[float, float]
    draws: FloatArray | None = None  # (values, draws), of percentiles

    def at(self, index: IntArray | npt.NDArray[np.bool_]) -> "Basis":
        """Return the basis of some of the values, by position or mask."""
        parts = {name: getattr(self, name)[index] for name in PER_VALUE}
        return self._replace(**parts, draws=None if self.draws is None else self.draws[index])


PER_VALUE = ("value", "std_error", "df", "kind", "effective", "unseen_by")


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
    draws = names["draws"].transpose("policy", ...).values if "draws" in names else None
    return Basis(
        np.where(failed, np.nan, column("estimate", np.nan)),
        column("std_error", np.nan),
        column("df", np.inf),
        kind,
        column("effective_count", np.nan),
        column("unseen_by", np.nan),
        (float(low), float(high)),
        draws,
    )


def value_limits(basis: Basis, prob: npt.ArrayLike) -> FloatArray:
    """Two-sided limits of values, shape (..., 2), NaN where a value has none.

    Parameters
    ----------
    prob : float or array of the values' shape
        Probability between the limits; each value may have its own.

    Examples
    --------
    >>> basis = Basis(*np.array([[0.9], [0.05], [np.inf]]), np.array(["clopper_pearson"]), *np.array([[20.0], [np.nan]]),
    ...               (0.0, 1.0))
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


def _with_room(basis: Basis, prob: FloatArray) -> FloatArray:
    return with_room(_by_t(basis, prob), basis.value, basis.unseen_by, prob, basis.scale)


def _by_draws(basis: Basis, prob: FloatArray) -> FloatArray:
    """Percentiles of the draws; by t where the draws were not kept."""
    if basis.draws is None:
        return _by_t(basis, prob)
    rows = zip(basis.draws, basis.value, prob, strict=True)
    return np.array([percentile(draws[None], value, level)[0] for draws, value, level in rows])


def _none(basis: Basis, prob: FloatArray) -> FloatArray:
    return np.full((*basis.value.shape, 2), np.nan) + 0 * prob[..., None]


# kind of interval -> its limits; a new kind is one more function here
LIMITS: dict[str, Callable[[Basis, FloatArray], FloatArray]] = {
    "wald": _by_t,
    "logit": _by_logit,
    "clopper_pearson": _by_binomial_tails,
    "unseen": _with_room,
    "percentile": _by_draws,
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


def charged(count: npt.ArrayLike, df: npt.ArrayLike, ci_prob: npt.ArrayLike) -> FloatArray:
    """Count less the cost of its degrees of freedom, the squared ratio of the t quantiles; at least one."""
    n, level = np.asarray(count, float), 0.5 + np.asarray(ci_prob, float) / 2
    ratio = special.stdtrit(np.maximum(n - 1, 1e-3), level) / special.stdtrit(np.asarray(df, float), level)
    return np.asarray(np.fmax(n * np.fmin(1.0, ratio) ** 2, 1.0))
