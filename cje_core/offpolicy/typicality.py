"""Does the logger visit what the target typically says? Target-typicality coverage (TTC) and the CLE factor.

The typical region of a target is ``T = {mean per-token surprisal under the target <= q}`` with q the 0.9 quantile of
that surprisal under the target (the paper's "Diagnostics for CLE"); ``TTC = P_logger(T)``. The quantile is taken over
the target's *own fresh draws*. The reference implementation takes it over logged responses weighted by importance:
where the logger does not visit the target, which is what TTC is to find out, that quantile rests on a handful of rows.

The one-sided region calls every fluent response typical: under a target with more entropy than the logger TTC tends to
1 while the overlap vanishes. The two-sided region ``|surprisal - mean| <= d`` does not.

The bound of the section on coverage-limited efficiency (CLE) reads ``SE >= sigma_T / sqrt(n)`` times a factor

    alpha / sqrt(beta) * sqrt(1 + chi2_T)           alpha = P_target(T), beta = P_logger(T) = TTC

with ``1 + chi2_T = E_T[W^2] / E_T[W]^2`` under the logger inside T. sigma_T is an essential infimum and cannot be
estimated, so the factor is a ratio to the on-policy floor and no standard error.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import FloatArray, IntArray, probability
from cje_core.formulas.proportions import wilson
from cje_core.inference.influence import hajek, kish_ess
from cje_core.inference.sums import sum_by

LEVEL = 0.9
# Sums of the same token scores in another order differ in their last bits; an edge that sits on one includes them all.
EDGE_MARGIN = 1e-9


class Sample(NamedTuple):
    """Mean per-token surprisals under one target, in nats: of its own draws or of the logged responses."""

    surprisal: FloatArray  # (r,)
    mass: FloatArray  # (r,) positive
    cluster: IntArray  # (r,) codes shared by the two samples


class Typicality(NamedTuple):
    """A typical region and the mass that logger and target put on it."""

    low: float  # region in mean per-token surprisal, both edges included; -inf for the one-sided one
    high: float
    alpha: float  # target mass; above the level where the surprisal has atoms
    ttc: float  # logger mass
    interval: FloatArray  # (2,)


def typicality(
    fresh: Sample, logged: Sample, *, level: float = LEVEL, two_sided: bool = False, ci_prob: float = 0.95
) -> Typicality:
    """Target-typicality coverage with an interval for both samples' noise; neither may be empty.

    The error of TTC has two sources: which responses were logged, and the quantile. For the first the Wilson interval
    counts, for the second the logger's mass below the quantiles at ``level -+ z sqrt(level (1 - level) / m)``; the two
    distances from the estimate, d1 and d2, are joined as ``sqrt(d1^2 + d2^2 - 2 rho d1 d2)`` on each side (MOVER; Zou &
    Donner 2008), rho the correlation of the two errors over shared clusters. No density is estimated, and a TTC of 0
    keeps an interval (where TTC is worth about one row or less, Wilson's own coverage falls to 0.9). The two-sided
    region, ``|surprisal - mean| <= d`` in place of ``surprisal <= q``, adds the error of its centre, the mean
    surprisal, in the same way. Sample sizes are divided by the design effect of the clusters. `level` is the region's
    target mass.

    Examples
    --------
    >>> at = np.arange(1000)
    >>> fresh = Sample(at / 1000, np.ones(1000), at)
    >>> out = typicality(fresh, Sample(at[:500] / 500 + 0.2, np.ones(500), at[:500] + 1000))
    >>> out.ttc, out.interval.round(3).tolist()
    (0.7, [0.655, 0.743])
    """
    probability(level, "level")
    probability(ci_prob)
    z = float(special.ndtri(0.5 + ci_prob / 2))
    centre = _mean(fresh.surprisal, fresh.mass) if two_sided else None
    ordered = _ordered(fresh, centre)
    low, high = _region(ordered, level, centre)
    inside, typical = _inside(logged, low, high), _inside(fresh, low, high)
    ttc = _mean(inside, logged.mass)
    alpha = _mean(typical, fresh.mass)

    n_clusters = int(max(fresh.cluster.max(), logged.cluster.max())) + 1
    error_logged = _cluster_error(inside, logged, n_clusters)
    error_fresh = _cluster_error(typical, fresh, n_clusters)
    bounds = [wilson(ttc, _effective(ttc, error_logged, logged), ci_prob)]
    spread = z * np.sqrt(level * (1 - level) / _effective(alpha, error_fresh, fresh))
    shifted = [_region(ordered, level + step, centre) for step in (-spread, spread)]
    bounds.append(np.array([_mean(_inside(logged, *edges), logged.mass) for edges in shifted]))
    both = np.sqrt((error_logged**2).sum() * (error_fresh**2).sum())
    rho = float((error_logged * error_fresh).sum() / both) if both > 0 else 0.0
    first, second = np.abs(bounds[0] - ttc), np.abs(bounds[1] - ttc)
    squared = first**2 + second**2 - 2 * rho * first * second
    if centre is not None:
        error = np.sqrt((_cluster_error(fresh.surprisal, fresh, n_clusters) ** 2).sum())
        centres = [centre + side * z * error for side in (-1, 1)]
        moved = [_region(_ordered(fresh, other), level, other) for other in centres]
        off = np.array([_mean(_inside(logged, *edges), logged.mass) for edges in moved]) - ttc
        squared += np.array([min(off.min(), 0.0), max(off.max(), 0.0)]) ** 2
    half = np.sqrt(np.maximum(squared, 0.0))
    interval = np.clip([ttc - half[0], ttc + half[1]], 0.0, 1.0)
    return Typicality(low, high, alpha, ttc, interval)


def weighted_typicality(
    logged: Sample, weight: FloatArray, *, level: float = LEVEL, two_sided: bool = False
) -> Typicality:
    """TTC without fresh draws: the target's quantile from the logged rows and their importance weights.

    The paper's reference does this. The threshold is as good as the effective sample size of the weights, and that is
    itself estimated from weights that may have missed the target altogether: there is no honest interval, so it is NaN.
    Weights (r,) of these rows are of mean one.
    """
    target = logged._replace(mass=weight)
    centre = _mean(logged.surprisal, weight) if two_sided else None
    low, high = _region(_ordered(target, centre), level, centre)
    inside = _inside(logged, low, high)
    alpha = _mean(inside, weight)
    return Typicality(low, high, alpha, _mean(inside, logged.mass), np.full(2, np.nan))


class Cle(NamedTuple):
    """The CLE factor by its parts, and where the variance of the weights comes from."""

    coverage: float  # alpha / sqrt(beta)
    shape: float  # 1 + chi2_T
    factor: float  # coverage * sqrt(shape)
    variance: FloatArray  # (2,): mean of (W - 1)^2 inside and outside T; the sum is Var(W)


def cle_factor(weight: FloatArray, surprisal: FloatArray, region: Typicality) -> Cle:
    """Factor by which the CLE bound exceeds the on-policy floor ``sigma_T / sqrt(n)``.

    Weights (n,) of the logged responses are of mean one, surprisals (n,) their means per token under the target. NaN
    where no logged response lies in T. The shape is a sample moment of heavy-tailed weights: read it as a lower bound.
    """
    inside = (surprisal >= region.low) & (surprisal <= region.high)
    squares = (weight - 1.0) ** 2
    variance = np.array([(squares * inside).mean(), (squares * ~inside).mean()])
    w = weight[inside]
    if region.ttc == 0 or not w.sum() > 0:
        return Cle(np.nan, np.nan, np.nan, variance)
    coverage = region.alpha / np.sqrt(region.ttc)
    shape = float((w**2).mean() / w.mean() ** 2)
    return Cle(float(coverage), shape, float(coverage * np.sqrt(shape)), variance)


def _ordered(target: Sample, centre: float | None) -> tuple[FloatArray, FloatArray]:
    """Surprisals, or their distances from the centre, in rising order, and the mass up to each."""
    values = target.surprisal if centre is None else np.abs(target.surprisal - centre)
    order = np.argsort(values, kind="stable")
    return values[order], np.cumsum(target.mass[order])


def _region(
    ordered: tuple[FloatArray, FloatArray], level: float, centre: float | None
) -> tuple[float, float]:
    """Region of target mass `level`: below a quantile, or around the centre (`_ordered` from it)."""
    values, mass = ordered
    # The smallest value with P(<= value) >= level; levels outside (0, 1] come from the interval and have no such value.
    at = int(np.searchsorted(mass, (level - 1e-12) * mass[-1]))
    edge = float(values[at]) if at < len(values) else np.inf
    edge = -np.inf if level <= 0 else edge
    if centre is None:
        return -np.inf, edge + EDGE_MARGIN * abs(edge)
    edge += EDGE_MARGIN * (edge + abs(centre))
    return centre - edge, centre + edge


def _mean(values: FloatArray, mass: FloatArray) -> float:
    return float((values * mass).sum() / mass.sum())  # by NumPy's own average, thrice the time


def _inside(sample: Sample, low: float, high: float) -> FloatArray:
    return ((sample.surprisal >= low) & (sample.surprisal <= high)).astype(float)


def _cluster_error(values: FloatArray, sample: Sample, n_clusters: int) -> FloatArray:
    """Each cluster's part of the error of the weighted mean; the squares sum to its variance."""
    return hajek(sample.cluster, sample.mass, values, n_clusters).error


def _effective(share: float, error: FloatArray, sample: Sample) -> float:
    """Sample size that gives a binomial share the variance its clusters show; where it is 0 or 1, their number."""
    variance = float((error**2).sum())
    if 0 < share < 1 and variance > 0:
        return float(min(share * (1 - share) / variance, len(sample.mass)))
    return kish_ess(sum_by(sample.cluster, sample.mass, len(error)))
