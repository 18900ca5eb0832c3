"""From influence values to standard errors, degrees of freedom and simultaneous intervals.

An estimate's error is the mean over prompts of its influence values. They come in independent-in-origin parts (which
responses were drawn, which labels were seen, which probes), each with its own small-sample factor and degrees of
freedom: with 12 labels among 5,000 prompts it is the 12 that limit what is known. The paper's counterparts are its
sections "Calibration-aware inference" and "Uncertainty: IF variance and calibration uncertainty addition".
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray, probability
from cje_core.compiled import Kernel
from cje_core.data.arrays import Rows, taken
from cje_core.inference.estimate import CI_BOUND
from cje_core.inference.limits import basis_of, value_limits
from cje_core.inference.sums import cluster_sums, sum_by

REFERENCE = 0.975  # level of the t quantile at which degrees of freedom are capped
BAND_DRAWS = 50_000  # Monte Carlo draws of the largest studentised error: its quantile is good to about 0.4%
BAND_SEED = 20250


class Part(NamedTuple):
    """One source of error: its influence values per prompt and the degrees of freedom behind them."""

    influence: FloatArray  # shape (n,), small-sample factor included
    df: float
    balance: FloatArray | None = None  # (n,): weights of labels that others lend, for the df of a difference


def cr1_factor(n_clusters: float, n_rows: float = np.inf, n_parameters: int = 1) -> float:
    """Small-sample factor of a cluster-robust variance, ``G / (G - 1) * (n - 1) / (n - k)``.

    A mean has one parameter, so only ``G / (G - 1)`` is left.

    Examples
    --------
    >>> cr1_factor(5), round(cr1_factor(5, 21, 2), 4)
    (1.25, 1.3158)
    """
    rows = 1.0 if np.isinf(n_rows) else (n_rows - 1) / (n_rows - n_parameters)
    return n_clusters / (n_clusters - 1) * rows


class WeightedMean(NamedTuple):
    """A weighted mean, and what each unit adds to its error."""

    value: float
    error: FloatArray  # (n,), sums to zero; n times it is the influence
    leverage: FloatArray  # (n,), sums to one


def hajek(unit: IntArray, weight: FloatArray, values: FloatArray, n: int) -> WeightedMean:
    """Mean ``sum w v / sum w`` (Hajek form) of rows that belong to units 0..n-1, with error ``w (v - mean) / sum w``.

    Examples
    --------
    >>> found = hajek(np.array([0, 0, 2]), np.array([1.0, 1.0, 2.0]), np.array([1.0, 3.0, 4.0]), 3)
    >>> found.value, found.error.tolist(), found.leverage.tolist()
    (3.0, [-0.5, 0.0, 0.5], [0.5, 0.0, 0.5])
    """
    share = weight / weight.sum()
    mean = float((share * values).sum())
    return WeightedMean(mean, sum_by(unit, share * (values - mean), n), sum_by(unit, share, n))


class MeanOver(NamedTuple):
    """Weighted means over the same rows, in Hajek form; what they have in common is counted once (`mean_over`)."""

    unit: IntArray  # per row: its prompt
    cluster: IntArray  # per row
    share: FloatArray  # (rows,), sums to one
    scale: FloatArray  # per row: its influence on a mean is this by ``v - mean``; NaN where one cluster has all rows
    n: int  # prompts
    n_clusters: int
    effective: float  # clusters behind a mean, see `effective_clusters`
    df: float

    def part(self, values: FloatArray) -> tuple[float, Part]:
        """``mean = sum w v / sum w`` and its sampling error, influence ``n * w_i (v_i - mean) / sum w`` per prompt."""
        influence = np.empty(self.n)
        return mean_and_moves(self, values, self.unit, influence), Part(influence, self.df)

    def by_cluster(self, values: FloatArray) -> tuple[float, FloatArray]:
        """The mean, and the influence of `part` summed by cluster."""
        moves = np.empty(self.n_clusters)
        return mean_and_moves(self, values, self.cluster, moves), moves


@Kernel
def mean_and_moves(over, values, code, moves):  # type: ignore[no-untyped-def]
    """Return the mean of values over the rows of a `MeanOver`; filled is its influence, summed by a code of rows."""
    mean = first = values[0] if len(values) else 0.0  # so that the mean of equal values is theirs to the bit
    for i in range(len(values)):
        mean += over.share[i] * (values[i] - first)
    moves[:] = 0.0 if over.df > 0 else np.nan  # all units, with rows or not
    for i in range(len(values)):
        moves[code[i]] += over.scale[i] * (values[i] - mean)
    return mean


def mean_over(
    unit: IntArray, weight: FloatArray, cluster: IntArray, count: FloatArray | None = None
) -> MeanOver:
    """Means of rows that belong to prompts ``unit`` and weigh ``weight`` >= 0; ``cluster`` is that of each prompt.

    A row may stand for ``count`` units of their own that are alike, its weight is theirs together. What each of them
    moves is then ``1 / count`` of it; the row's influence is that times ``sqrt(count)``, whose square is the sum of
    theirs, so that sums of squares and of products over rows are those over units.
    """
    n_clusters = int(cluster.max()) + 1 if len(cluster) else 0
    return weigh_rows(unit, weight, cluster, np.empty(0) if count is None else count, n_clusters)  # type: ignore[no-any-return]


@Kernel
def weigh_rows(unit, weight, cluster, count, n_clusters):  # type: ignore[no-untyped-def]
    """`mean_over`; without a ``count`` each row stands for itself."""
    n_rows, total, mass = len(weight), weight.sum(), np.zeros(n_clusters)
    of_row, share, scale = np.empty_like(unit), np.empty(n_rows), np.empty(n_rows)
    size = np.ones(n_clusters if len(count) else 0)
    for i in range(n_rows):
        share[i], of_row[i] = weight[i] / total, cluster[unit[i]]
        mass[of_row[i]] += share[i]
        scale[i] = share[i]
        if len(count):
            size[of_row[i]] = count[i]
            scale[i] /= np.sqrt(count[i])
    effective = clusters_behind(mass, size)
    factor, df = correction(effective)
    for i in range(n_rows):
        scale[i] *= len(cluster) * factor
    return MeanOver(unit, of_row, share, scale, len(cluster), n_clusters, effective, df)


@Kernel
def clusters_behind(mass, size):  # type: ignore[no-untyped-def]
    """`effective_clusters` of the leverages' sums by cluster.

    Where each of these sums is that of ``size`` equal clusters, the fourth powers are ``size (l / size)^4``.
    """
    total = fourth = 0.0
    for g in range(len(mass)):
        count = size[g] if len(size) else 1.0
        square = mass[g] ** 2 / count
        total += square
        fourth += square * square / count
    return total**2 / fourth if total != 0 else 0.0


def mean_part(rows: Rows, index: IntArray, values: FloatArray, weight: FloatArray) -> tuple[float, Part]:
    """Weighted mean of values over some rows, and its sampling error by cluster (Hajek form).

    ``mean = sum w v / sum w`` with influence ``n * w_i (v_i - mean) / sum w`` per prompt, n the number of prompts.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.data.arrays import unpack
    >>> rows = unpack(data)
    >>> index = np.flatnonzero(rows.labelled)
    >>> value, part = mean_part(rows, index, rows.label[index], rows.weight[index])
    >>> round(value, 3) == round(float(data["oracle"].mean()), 3)
    True
    """
    return mean_of_rows(rows, index, weight).part(values)


def mean_of_rows(rows: Rows, index: IntArray, weight: FloatArray) -> MeanOver:
    """Weighted means over some rows, for several values of the same ones (`mean_part`)."""
    count = taken(rows.stands_for, index) if rows.stands_for.size else None
    return mean_over(taken(rows.prompt, index), weight, rows.cluster, count)


def kish_ess(weight: FloatArray) -> float:
    """Kish's effective sample size, ``(sum w)^2 / sum w^2``.

    Examples
    --------
    >>> kish_ess(np.ones(7)), round(kish_ess(np.array([1.0, 1.0, 2.0])), 4)
    (7.0, 2.6667)
    """
    return float(weight.sum() ** 2 / (weight**2).sum())


def effective_clusters(leverage: FloatArray, cluster: IntArray) -> float:
    """How many clusters a sum ``leverage_g * noise_g`` rests on: ``(sum_g l_g^2)^2 / sum_g l_g^4``; 0 for none.

    Examples
    --------
    >>> round(effective_clusters(np.array([1.0, 1.0, 0.1]), np.array([0, 1, 2])), 2)
    2.02
    """
    return float(clusters_behind(cluster_sums(np.abs(leverage), cluster), np.empty(0)))


def make_part(influence: FloatArray, leverage: FloatArray, cluster: IntArray) -> Part:
    """Attach the small-sample factor and degrees of freedom to one source of error.

    With m = `effective_clusters` the factor is ``m / (m - 1)`` on the variance and ``df = m - 1``; with equal leverage
    this is the usual G / (G - 1) and G - 1.

    Parameters
    ----------
    influence, leverage : arrays, shape (n,)
        Per prompt; leverage is the coefficient of the cluster's noise, of any scale.
    cluster : int array, shape (n,)

    Returns
    -------
    Part
        NaN influence when fewer than two effective clusters carry it: one cluster says nothing about spread.
    """
    factor, df = correction(effective_clusters(leverage, cluster))
    return Part(influence * factor if factor > 0 else np.full(influence.shape, factor), df)


@Kernel
def correction(effective):  # type: ignore[no-untyped-def]
    """Small-sample factor of an influence, and degrees of freedom; NaN where one cluster tells nothing of a spread."""
    if effective == 0:  # this source does not act: no influence, and nothing to estimate
        return 0.0, np.inf
    if effective < 1 + 1e-9:
        return np.nan, np.nan
    return np.sqrt(effective / (effective - 1)), effective - 1


def combine(parts: Sequence[Part], cluster: IntArray) -> tuple[FloatArray, float, float]:
    """Total influence, cluster-robust standard error and degrees of freedom (`pooled_df`) of the parts.

    Returns
    -------
    influence : array, shape (n,)
    std_error, df : float

    Examples
    --------
    >>> part = Part(np.array([1.0, -1.0, 2.0, -2.0]), df=3)
    >>> influence, std_error, df = combine([part], np.arange(4))
    >>> influence.tolist(), round(std_error, 3), df
    ([1.0, -1.0, 2.0, -2.0], 0.791, 3.0)
    """
    total, std_error, _, df = combine_errors(parts, cluster)
    return total, std_error, df


def combine_errors(
    parts: Sequence[Part], cluster: IntArray
) -> tuple[FloatArray, float, tuple[float, ...], float]:
    """`combine` with the standard error of each part by itself before the degrees of freedom."""
    total, errors = add_parts(tuple(part.influence for part in parts), cluster)
    whole, *each = errors.tolist()
    return (
        total,
        whole,
        tuple(each),
        pooled_df_of_one([error**2 for error in each], [part.df for part in parts]),
    )


@Kernel
def add_parts(parts, cluster):  # type: ignore[no-untyped-def]
    """Return the sum of influences, shape (n,), and the standard errors of the sum and of each part, by cluster."""
    n, n_parts = len(cluster), len(parts)
    sums, errors = np.zeros((n_parts + 1, cluster.max() + 1)), np.zeros(n_parts + 1)
    total = np.zeros(n)
    for k in range(n_parts):
        for i in range(n):
            total[i] += parts[k][i]
            sums[k + 1, cluster[i]] += parts[k][i]
    for i in range(n):
        sums[0, cluster[i]] += total[i]
    for k in range(n_parts + 1):
        for g in range(sums.shape[1]):
            errors[k] += sums[k, g] ** 2
        errors[k] = np.sqrt(errors[k]) / n
    return total, errors


def pooled_df(variance: npt.ArrayLike, df: npt.ArrayLike) -> FloatArray:
    """Welch-Satterthwaite degrees of freedom of sums of independent variance estimates, capped.

    ``df = (sum V_c)^2 / sum (V_c^2 / df_c)`` over the last axis. By itself this can rise so fast when a second source
    of error is added that the t interval *narrows*; the cap keeps it at least as wide (at 95%) as each source alone
    makes it. Infinite where no source acts.

    Examples
    --------
    >>> pooled_df([1.0, 1.0], [10.0, 10.0]).round(6).item()
    20.0
    >>> pooled_df([1.0, 0.1], [4.0, 1000.0]).round(2).item()  # Welch alone would say 4.84 and a narrower interval
    4.56
    """
    v, nu = np.asarray(variance, float), np.asarray(df, float)
    acts, total = v > 0, v.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        welch = total**2 / np.where(acts, v**2 / nu, 0.0).sum(axis=-1)
        widest = np.where(acts, special.stdtrit(nu, REFERENCE) * np.sqrt(v / total[..., None]), 0.0).max(
            axis=-1
        )
    out = np.where(total > 0, welch, np.inf)  # endless where every source's are
    known = np.isfinite(v).all(axis=-1) & ~np.isnan(nu).any(axis=-1)
    capped = known & np.isfinite(out) & (widest > special.stdtrit(out, REFERENCE))
    if capped.any():
        out[capped] = special.stdtridf(REFERENCE, widest[capped])
    out[~known & (acts | np.isnan(v)).any(axis=-1)] = np.nan
    return out


def pooled_df_of_one(variance: Sequence[float], df: Sequence[float]) -> float:
    """`pooled_df` of one sum, the same bits in a tenth of the time: an estimate asks for it once a policy or more.

    Examples
    --------
    >>> bool(pooled_df_of_one([1.0, 0.1], [4.0, 1000.0]) == pooled_df([1.0, 0.1], [4.0, 1000.0]))
    True
    """
    sources = [(v, nu) for v, nu in zip(variance, df, strict=True) if v > 0]
    if (
        not all(map(math.isfinite, variance))
        or any(map(math.isnan, df))
        or not all(nu > 0 for _, nu in sources)
    ):
        return float(pooled_df(variance, df))
    total = sum(variance)
    squares = sum(v * v / nu for v, nu in sources)
    if not squares > 0:  # no source acts, or the variance of each is known
        return math.inf
    welch = total**2 / squares
    widest = float(max(special.stdtrit(nu, REFERENCE) * math.sqrt(v / total) for v, nu in sources))
    return float(special.stdtridf(REFERENCE, widest)) if widest > special.stdtrit(welch, REFERENCE) else welch


def delete_group_variance(left_out: FloatArray, size: npt.ArrayLike, full: npt.ArrayLike) -> FloatArray:
    """Jackknife variance from estimates that leave one group out (the paper's section "Calibration-aware jackknife").

    Groups of equal size: ``(K - 1) / K * sum_k (V^(-k) - mean)^2``. Unequal ones take the weighted formula (Busing,
    Meijer and van der Leeden 1999): with ``h_k = m / m_k`` and pseudo-values ``p_k = h_k V - (h_k - 1) V^(-k)`` it is
    ``mean_k (p_k - J)^2 / (h_k - 1)``, ``J = K V - sum_k (1 - m_k / m) V^(-k)``; both agree where sizes do.

    Parameters
    ----------
    left_out : array, shape (..., K)
    size : array, shape (K,)
        Labels (or labelled clusters) of each group.
    full : array, shape (...)
        The estimate from all groups; with equal sizes it drops out.

    Returns
    -------
    array, shape (...)

    Examples
    --------
    >>> float(delete_group_variance(np.array([1.0, 2.0, 3.0]), [4, 4, 4], 2.5).round(12))
    1.333333333333
    """
    count = np.asarray(size, float)
    whole = np.asarray(full, float)
    n_groups = len(count)
    h = count.sum() / count
    pseudo = h * whole[..., None] - (h - 1) * left_out
    center = n_groups * whole - ((1 - count / count.sum()) * left_out).sum(axis=-1)
    return np.asarray(((pseudo - center[..., None]) ** 2 / (h - 1)).mean(axis=-1))


def acceleration(influence: FloatArray, cluster: IntArray) -> float:
    """Acceleration of a BCa interval, ``sum_g u_g^3 / (6 (sum_g u_g^2)^1.5)``, u_g the influence of a cluster."""
    u = cluster_sums(influence, cluster)
    return float((u**3).sum() / (6 * (u**2).sum() ** 1.5))


def simultaneous_bands(
    estimate: xr.Dataset,
    ci_prob: float | None = None,
    *,
    rng: np.random.Generator | int | None = BAND_SEED,
) -> xr.Dataset:
    """Intervals that cover the values of all policies at once, by the largest studentised error (max-t).

    The studentised errors of the policies are jointly t: their correlation is that of the influence values summed by
    cluster, their degrees of freedom the smallest of the policies'. The critical value is the quantile of the largest
    of them, by Monte Carlo, and never below the pointwise one; policies that share a calibrator are highly correlated,
    so the price is less than Bonferroni's.

    Parameters
    ----------
    estimate : xr.Dataset
        An estimate that carries ``influence``.
    ci_prob : float, optional
        Joint probability; default: the estimate's.
    rng : Generator, int or None
        Of the Monte Carlo; by default the same for every estimate, so that bands of the same numbers are the same.

    Returns
    -------
    xr.Dataset
        ``estimate``, ``std_error``, ``interval`` over ``policy``; attributes ``critical_value``, ``df``, ``ci_prob``.
        Policies without a standard error have NaN bounds and do not count.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> bands = simultaneous_bands(estimate)
    >>> wider = bands["interval"].diff("ci_bound") > estimate["interval"].diff("ci_bound")
    >>> bool(wider.all())
    True
    """
    rng = np.random.default_rng(rng)
    if "influence" not in estimate:
        raise ValueError("this estimate has no influence values; bands need an estimator that reports them")
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    probability(prob)
    value, std_error = estimate["estimate"].values, estimate["std_error"].values
    usable = np.flatnonzero((std_error > 0) & np.isfinite(estimate["influence"].values).all(axis=1))
    critical, df = np.nan, np.nan
    if len(usable):
        _, cluster = np.unique(estimate["cluster"].values, return_inverse=True)
        sums = cluster_sums(estimate["influence"].values[usable], cluster)
        scaled = sums / np.sqrt((sums**2).sum(axis=1, keepdims=True))
        variance, direction = np.linalg.eigh(scaled @ scaled.T)
        df = float(estimate["df"].values[usable].min())
        normal = rng.standard_normal((BAND_DRAWS, len(usable))) * np.sqrt(np.clip(variance, 0, None))
        largest = np.abs(normal @ direction.T).max(axis=1)
        if np.isfinite(df):
            largest /= np.sqrt(rng.chisquare(df, BAND_DRAWS) / df)
        critical = max(float(np.quantile(largest, prob)), float(special.stdtrit(df, 0.5 + prob / 2)))
    interval = np.full((len(value), 2), np.nan)
    if len(usable):
        level = 1 - 2 * special.stdtr(
            df, -critical
        )  # at which each interval is as far as all together need it
        interval[usable] = value_limits(basis_of(estimate).at(usable), level)
    return xr.Dataset(
        {
            "estimate": ("policy", value),
            "std_error": ("policy", std_error),
            "interval": (("policy", "ci_bound"), interval),
        },
        coords={"policy": estimate["policy"].values, "ci_bound": CI_BOUND},
        attrs={"critical_value": critical, "df": df, "ci_prob": prob, "ci_kind": "simultaneous"},
    )
