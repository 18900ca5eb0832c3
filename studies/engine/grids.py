"""Averages over the cells of a grid, as a benchmark's table prints them, and how well policies are ranked.

An average is ``mean over cells of g(mean over the cell's replicates of x)``: g is the root for an RMSE, the logarithm
for a geometric mean, the identity for a share. Every replicate has an influence value on it (the delta method, as in
`studies.engine.measures`), so a difference or ratio of two methods that saw the same data is a paired one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray
from studies.engine.measures import MC_LEVEL
from studies.engine.outcome import BROKEN, NOT_RUN

LINKS = ("mean", "root", "log")
HALF = float(special.ndtri(0.5 + MC_LEVEL / 2))
RULE = "95% Monte Carlo bounds (1.96 MCSE, paired where methods saw the same data) against "


class Average(NamedTuple):
    """One number per method with its Monte Carlo error by replicate; NaN for a method without any."""

    value: FloatArray  # (M,)
    share: FloatArray  # (cells, replicates, M): the MCSE is the root of the sum of squares

    @property
    def mcse(self) -> FloatArray:
        """(M,)."""
        error = np.sqrt((self.share**2).sum(axis=(0, 1)))
        return np.where(np.isfinite(self.value), error, np.nan)

    @property
    def low(self) -> FloatArray:
        """Lower ends of the 95% Monte Carlo bounds, by the Normal law, (M,)."""
        return self.value - HALF * self.mcse

    @property
    def high(self) -> FloatArray:
        """Upper ends, (M,)."""
        return self.value + HALF * self.mcse

    def at(self, *places: int) -> "Average":
        """The methods at these places."""
        return Average(self.value[list(places)], self.share[..., list(places)])

    def said(self, place: int = 0, *, percent: bool = False) -> str:
        """One number as sentences have it, "93.9% (0.5)": its MCSE in brackets."""
        factor, digits, unit = (100.0, 1, "%") if percent else (1.0, 4, "")
        return f"{factor * self.value[place]:.{digits}f}{unit} ({factor * self.mcse[place]:.{digits}f})"

    def less(self, other: "Average") -> "Average":
        """Paired difference of two averages over the same cells and replicates."""
        return Average(self.value - other.value, self.share - other.share)

    def over(self, other: "Average") -> "Average":
        """Paired ratio."""
        ratio = self.value / other.value
        return Average(ratio, (self.share - ratio * other.share) / other.value)

    def exp(self) -> "Average":
        """The geometric mean, of an average of logarithms."""
        value = np.exp(self.value)
        return Average(value, self.share * value)


def average(rows: npt.ArrayLike, link: str = "mean", *, debias: npt.ArrayLike = 0.0) -> Average:
    """Average over the cells of ``g(mean over replicates)``.

    Parameters
    ----------
    rows : array, shape (cells, replicates, M)
        NaN does not count; a cell where a method has nothing is left out of its average.
    link : {"mean", "root", "log"}
        g. The root of a negative number, which debiasing can give, is 0 and has no error there.
    debias : array, broadcast to `rows`
        Subtracted from the replicate's number.

    Examples
    --------
    >>> found = average([[[1.0], [3.0]], [[4.0], [4.0]]])
    >>> found.value.tolist(), found.mcse.round(3).tolist()
    ([3.0], [0.5])
    """
    if link not in LINKS:
        raise ValueError(f"link={link!r}; use one of {', '.join(LINKS)}")
    x = np.asarray(rows, float) - np.asarray(debias, float)
    use = np.isfinite(x)
    n = use.sum(axis=1, keepdims=True)
    mean = np.where(use, x, 0.0).sum(axis=1, keepdims=True) / np.where(n > 0, n, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        if link == "root":
            level = np.sqrt(np.maximum(mean, 0.0))
            slope = np.where(mean > 0, 0.5 / level, 0.0)
        elif link == "log":
            level, slope = np.log(mean), 1.0 / mean
        else:
            level, slope = mean, np.ones_like(mean)
    cells = np.isfinite(level).sum(axis=(0, 1))
    share = np.where(use & np.isfinite(level), slope * (x - mean), 0.0)
    share /= np.sqrt(n * np.where(n > 1, n - 1.0, np.nan)) * np.maximum(cells, 1)
    total = np.where(np.isfinite(level), level, 0.0).sum(axis=(0, 1))
    return Average(np.where(cells > 0, total / np.maximum(cells, 1), np.nan), np.where(n > 0, share, 0.0))


def over_policies(rows: npt.ArrayLike, link: str = "mean") -> Average:
    """Average over cells of each policy, then over the policies, the last axis, each with the same weight.

    That is the rule of ``performance(pool=True)``: a policy without a number in some replicates does not take those of
    the others away.

    Examples
    --------
    >>> over_policies([[[[1.0, np.nan]], [[0.0, 1.0]]]]).value.tolist()
    [0.75]
    """
    numbers = np.asarray(rows, float)
    parts = [average(numbers[..., p], link) for p in range(numbers.shape[-1])]
    value = np.mean([part.value for part in parts], axis=0)
    return Average(value, np.mean([part.share for part in parts], axis=0))


class Ranking(NamedTuple):
    """How well estimates order policies, one number per replicate and method."""

    pairwise: FloatArray
    top1: FloatArray
    tau: FloatArray
    unordered: FloatArray  # share of the pairs that nothing orders: they are in no other number as right


def ranking(estimate: FloatArray, truth: npt.ArrayLike, bounds: FloatArray | None = None) -> Ranking:
    """Pairwise accuracy, top-1 accuracy and Kendall's tau of estimates (..., P) against true values (P,).

    Over the pairs whose true values differ (the paper's section "Experimental design", metrics): the share with
    ``(V_j - V_k)(V*_j - V*_k) > 0``, so a tie of the estimates counts as wrong; whether the largest estimate is that of
    a best policy and of no other; the mean sign of these products; the share that nothing orders. A pair without two
    estimates has the order that `bounds` (..., P, 2) give it where the intervals lie apart; without one it counts as
    wrong.

    Examples
    --------
    >>> found = ranking(np.array([0.1, 0.3, 0.2]), [0.1, 0.2, 0.3])
    >>> round(float(found.pairwise), 3), float(found.top1), round(float(found.tau), 3)
    (0.667, 0.0, 0.333)
    """
    true = np.asarray(truth, float)
    first, second = np.triu_indices(len(true), 1)
    differ = true[first] != true[second]
    first, second = first[differ], second[differ]
    above = _above(estimate, bounds)
    sign = np.sign(true[first] - true[second]) * above[..., first, second]
    best, there = true == true.max(), np.isfinite(estimate)
    # a rival without a number or an order has not the largest estimate
    beats = (above > 0) | ((above == 0) & there[..., :, None] & ~there[..., None, :])
    top = beats[..., best, :][..., ~best].all(axis=-1).any(axis=-1)
    top &= (there | (above > 0).any(axis=-1))[..., best].any(axis=-1)
    none = (sign == 0).mean(axis=-1)
    return Ranking((sign > 0).mean(axis=-1), np.asarray(top, float), sign.mean(axis=-1), none)


def _above(estimate: FloatArray, bounds: FloatArray | None) -> FloatArray:
    """Return 1 where policy j is put above policy k, -1 below, 0 where nothing orders them, shape (..., P, P)."""
    sign = np.sign(estimate[..., :, None] - estimate[..., None, :])
    if bounds is not None:
        low, high = bounds[..., 0], bounds[..., 1]
        apart = (low[..., :, None] > high[..., None, :]) * 1.0 - (high[..., :, None] < low[..., None, :])
        sign = np.where(np.isnan(sign), apart, sign)
    return np.asarray(np.nan_to_num(sign))


def rows_of(array: xr.DataArray, *last: str) -> FloatArray:
    """Values with axes (cells, replicates, *last); dimensions that are none of these are the factors."""
    factors = [d for d in array.dims if d not in ("replicate", *last)]
    values = array.transpose(*factors, "replicate", *last).values
    return np.asarray(values.reshape(-1, *values.shape[len(factors) :]), float)


def scored(ds: xr.Dataset) -> dict[str, FloatArray]:
    """Numbers per replicate, method and policy, axes (cells, replicates, methods, policies), of a study's results.

    ``error`` and ``std_error``, NaN without an estimate; ``hit``, whether the interval holds the truth, and
    ``interval_score`` (Gneiting & Raftery 2007, eq. 43), NaN without an interval; ``refused`` and ``failed``, whether a
    rule, or an exception or a sampler, left the run without an interval. A replicate that was not run is NaN in all.
    """
    last = ("method", "policy")
    estimate, error = (rows_of(ds[name], *last) for name in ("estimate", "std_error"))
    truth = rows_of(ds["truth"], "policy")[:, :, None]
    low, high = (rows_of(ds["interval"].sel(ci_bound=end, drop=True), *last) for end in ("lower", "upper"))
    status = rows_of(ds["status"], *last)
    ran, broken = status != NOT_RUN, np.isin(status, BROKEN)
    there = np.isfinite(low) & np.isfinite(high) & np.isfinite(estimate)
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    score = high - low + 2 / (1 - float(ds.attrs["ci_prob"])) * missed
    return {
        "error": np.where(ran, estimate - truth, np.nan),
        "std_error": np.where(ran & np.isfinite(estimate), error, np.nan),
        "hit": np.where(ran & there, ((low <= truth) & (truth <= high)).astype(float), np.nan),
        "refused": np.where(ran, (~there & ~broken).astype(float), np.nan),
        "failed": np.where(ran, (~there & broken).astype(float), np.nan),
        "interval_score": np.where(ran & there, score, np.nan),
    }


def ranked(ds: xr.Dataset, bounds: tuple[str, str] | None = None) -> Ranking:
    """Axes (cells, replicates, methods): `ranking` of each replicate's estimates; NaN where it was not run.

    `bounds` names the variables, over method and policy, of the intervals that order what has no estimate.
    """
    estimate = rows_of(ds["estimate"], "method", "policy")
    truth = rows_of(ds["truth"], "policy")
    ran = (rows_of(ds["status"], "method", "policy") != NOT_RUN).all(axis=-1)
    known = truth[np.isfinite(truth).all(axis=-1)]
    if not len(known) or np.ptp(known, axis=0).max() > 0:
        raise ValueError("rankings over cells need the same true values in every cell")
    ends = (
        None
        if bounds is None
        else np.stack([rows_of(ds[name], "method", "policy") for name in bounds], axis=-1)
    )
    found = ranking(estimate, known[0], ends)
    return Ranking(*(np.where(ran, part, np.nan) for part in found))
