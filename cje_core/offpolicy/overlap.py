"""How well do the logged responses cover a target? The paper's section "Weight behavior and overlap", per policy.

Weights: effective sample size ``(sum W)^2 / sum W^2`` raw and stabilised, largest share, 99.5th percentile, tail index.
Judge space: affinity ``A_B = sum_b sqrt(p_b q_b)`` of the binned judge scores of logger and target. Response space: TTC
and the CLE factor (`cje_core.offpolicy.typicality`). A large effective sample size in judge space says nothing about
coverage in response space: both are needed.

What cannot be computed is NaN, which means unknown and never healthy.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.data.arrays import Logged, Rows
from cje_core.data.cohorts import group_codes, restrict
from cje_core.data.construct import dataset, in_order
from cje_core.inference.estimate import CI_BOUND
from cje_core.inference.influence import kish_ess
from cje_core.offpolicy.typicality import (
    LEVEL,
    Cle,
    Sample,
    Typicality,
    cle_factor,
    typicality,
    weighted_typicality,
)
from cje_core.offpolicy.weights import ess_fraction, log_ratios, mean_one, place_of, stabilise

N_BINS = 20
TAIL = (0.01, 0.05)  # share of the largest weights that the tail index sweeps
SMALLEST_TAIL = 5
LARGEST_TAIL = 10  # the widest tail must hold this many weights, or there is no tail index


def overlap(data: xr.Dataset | Calibrated, *, ci_prob: float = 0.95, level: float = LEVEL) -> xr.Dataset:
    """Overlap diagnostics of every policy with the logger.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With logged responses; else it is a `DataError`.
    ci_prob : float
        Probability of the intervals of TTC.
    level : float
        Target mass of the typical region of TTC and CLE; .9 as in the paper's text, .8 for the figures of its table.

    Returns
    -------
    xr.Dataset
        Over ``policy``; NaN means unknown.

        - ``n_usable``: judged logged responses with both log-likelihoods.
        - ``ess_fraction``, ``ess_fraction_stabilised`` (weights of `cje_core.offpolicy.weights.stabilise` for IPS),
          ``uplift``, their ratio.
        - ``max_share``: largest weight over the sum; ``q995``: 99.5th percentile of the mean-one weights.
        - ``hill``, ``hill_lower``, ``hill_upper``: tail index, median and quartiles over the grid of `hill`.
        - ``affinity`` (plug-in), ``affinity_corrected``, ``affinity_std_error`` (jackknife), ``affinity_upper`` (what
          the gate reads, `Affinity.upper`), ``hellinger`` = ``sqrt(1 - affinity_corrected)``, ``affinity_source``:
          "fresh", "weighted_logged" or "unknown".
        - ``ttc``, ``ttc_two_sided`` with ``ttc_interval``, ``ttc_two_sided_interval`` (policy, ci_bound);
          ``surprisal_threshold`` (nats per token); ``ttc_source``, as for the affinity; ``ttc_ess``: effective number
          of target draws behind the threshold. Without ``n_tokens`` TTC is unknown.
        - ``cle_alpha`` (target mass of T; its logger mass is ``ttc``), ``cle_coverage = alpha / sqrt(ttc)``,
          ``cle_shape = 1 + chi2_T``, ``cle_factor``.
        - ``weight_variance`` (policy, region): what T and the rest contribute to the variance of the weights.
    """
    given = calibrated(data)
    data, rows, logged, fitted = given.data, given.rows, given.logged, given.slice_with_logs
    reward = given.logged_reward
    surprisal = _fresh_surprisal(data)
    table: list[dict[str, Any]] = []
    for p, log_ratio in enumerate(log_ratios(logged)):
        weight = mean_one(log_ratio)
        raw, stable = ess_fraction(weight), np.nan
        if fitted.calibrator is not None:
            stable = ess_fraction(stabilise(weight, logged.z[:, 0], reward, fitted.fold).weight)
        used = np.isfinite(weight)
        some = bool(used.any())
        tail = hill(log_ratio)
        in_judge, judge_source = _judge_affinity(rows, logged, p, weight)
        table.append(
            {
                "n_usable": int(used.sum()),
                "ess_fraction": raw,
                "ess_fraction_stabilised": stable,
                "uplift": stable / raw,
                "max_share": weight[used].max() / weight[used].sum() if some else np.nan,
                "q995": np.quantile(weight[used], 0.995) if some else np.nan,
                "hill": tail.median,
                "hill_lower": tail.quartiles[0],
                "hill_upper": tail.quartiles[1],
                "affinity": in_judge.plug_in,
                "affinity_corrected": in_judge.corrected,
                "affinity_std_error": in_judge.std_error,
                "hellinger": np.sqrt(1.0 - in_judge.corrected),
                "affinity_upper": in_judge.upper,
                "affinity_source": judge_source,
                **_typicality_row(rows, logged, p, weight, surprisal, ci_prob, level),
            }
        )
    columns = {name: np.array([row[name] for row in table]) for name in table[0]}
    second = {"weight_variance": "region"}  # other pairs of numbers are the ends of an interval
    dims = {name: ("policy", second.get(name, "ci_bound"))[: column.ndim] for name, column in columns.items()}
    out = dataset(
        {name: (dims[name], column) for name, column in columns.items()},
        coords={"policy": rows.policies, "ci_bound": CI_BOUND, "region": ["inside", "outside"]},
        attrs={"ci_prob": ci_prob, "level": level, "n_bins": N_BINS, "tail": list(TAIL)},
    )
    return in_order(out, data)


def overlap_by_group(data: xr.Dataset | Calibrated, name: str, *, ci_prob: float = 0.95) -> xr.Dataset:
    """Overlap diagnostics of every policy inside each group of prompts: overlap of the whole can hide where it fails.

    Weights have mean one inside the group, and the typical region of TTC is that of the policy's fresh responses there,
    as for a value of the group alone (`cje_core.data.cohorts.restrict`); the calibrator stays that of all labels.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With logged responses.
    name : str
        Variable over ``prompt``.
    ci_prob : float

    Returns
    -------
    xr.Dataset
        As from `overlap`, with ``group`` as one more dimension. Hill is NaN in groups of fewer than 200 weights.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=60, rng=1)
    >>> data["topic"] = "prompt", ["code", "prose"] * 30
    >>> overlap_by_group(data, "topic")["n_usable"].sel(group="code").values.tolist()
    [30, 30, 30]
    """
    given = calibrated(data)
    names, code = group_codes(given.data, name)
    present = names[np.unique(code[given.rows.prompt[given.rows.evaluated | given.rows.probe]])]
    parts = [
        overlap(calibrated(restrict(given.data, {name: group}), given.calibration), ci_prob=ci_prob)
        for group in present.tolist()
    ]
    return xr.concat(parts, dim=xr.Variable("group", present))


# --- tails ---


class Hill(NamedTuple):
    """Tail index of the weights over a grid of tail sizes."""

    size: IntArray  # (grid,) tail sizes k
    alpha: FloatArray  # (grid,) alpha(k); inf where the k + 1 largest weights are equal
    median: float
    quartiles: tuple[float, float]  # over the grid


def hill(log_weight: npt.ArrayLike) -> Hill:
    """Tail index of Hill: ``1 / alpha(k) = mean of log(W_(j) / W_(k+1)) over j <= k``, k from 1% to 5% of n.

    The moment of order alpha is the first that is infinite, so a finite variance needs alpha > 2. The threshold is
    ``W_(k+1)``, which makes ``1 / alpha`` unbiased for Pareto tails; the paper prints ``W_(k)``, whose last term is
    zero and whose alpha is k / (k - 1) times too large. Logs come in and stay, so weights that underflow keep their
    order.

    Log weights (n,) are up to a constant; NaN rows do not count. Median and quartiles are NaN with fewer than 200
    weights (5% of them are fewer than ten) and where the largest weights are equal: no tail was seen, and none is
    claimed to be light.

    Examples
    --------
    >>> quantile = (np.arange(1000) + 0.5) / 1000
    >>> round(hill(-np.log1p(-quantile) / 1.5).median, 2)  # Pareto weights of tail index 1.5
    1.49
    >>> hill(np.zeros(1000)).median
    nan
    """
    values = np.asarray(log_weight, float)
    x = np.sort(values[np.isfinite(values)])[::-1]
    k = np.arange(max(int(np.ceil(TAIL[0] * len(x))), SMALLEST_TAIL), int(TAIL[1] * len(x) + 1e-9) + 1)
    if TAIL[1] * len(x) < LARGEST_TAIL:
        return Hill(k[:0], np.empty(0), np.nan, (np.nan, np.nan))
    gap = np.maximum(np.cumsum(x)[k - 1] / k - x[k], 0.0)
    gap[gap < 1e-12 * (1 + np.abs(x[k]))] = 0.0
    alpha = np.divide(1.0, gap, out=np.full(len(k), np.inf), where=gap > 0)
    low, median, high = np.quantile(gap, [0.25, 0.5, 0.75])
    quartiles = (float(1 / high), float(1 / low)) if low > 0 else (np.nan, np.nan)
    return Hill(k, alpha, float(1 / median) if median > 0 else np.nan, quartiles)


def ccdf(data: xr.Dataset | Calibrated, policy: str) -> xr.DataArray:
    """Empirical ``P(W >= w)`` of a policy's mean-one weights, for a log-log plot.

    Over ``log10_weight``, increasing; in logs, since weights of sequences span more than floats do.
    """
    given = calibrated(data)
    row = log_ratios(given.logged)[place_of(given.data, policy)]
    x = np.sort(row[np.isfinite(row)])
    if len(x):
        x = x - x[-1] - np.log(np.exp(x - x[-1]).mean())
    share = 1.0 - np.searchsorted(x, x, side="left") / max(len(x), 1)
    return xr.DataArray(share, coords={"log10_weight": x / np.log(10)}, name="ccdf")


# --- judge space ---


class Affinity(NamedTuple):
    """Bhattacharyya affinity of two binned samples."""

    plug_in: float
    corrected: float
    std_error: float

    @property
    def upper(self) -> float:
        """Corrected value plus one standard error, at most 1: what the affinity gate reads.

        Of one law drawn twice, 30 fresh against 30 to 1,000 logged scores, it falls below the gate's .85 in 0 to 1.6%
        of samples (six laws of the score, 1,000 samples each), the corrected value alone in up to 10% and the plug-in
        in up to 95%; of two laws of affinity .73, 200 against 1,000 scores, it does so in all.
        """
        return float(np.minimum(self.corrected + self.std_error, 1.0))


def affinity(
    score: FloatArray,
    logger_mass: FloatArray,
    target_mass: FloatArray,
    cluster: IntArray,
    n_bins: int = N_BINS,
) -> Affinity:
    """Affinity ``A_B = sum_b sqrt(p_b q_b)`` of two distributions of the judge score, by bins of equal width.

    Empty and thin bins bias it down: two samples of one distribution never have affinity 1. ``corrected`` takes out the
    bias by the delete-one-cluster jackknife, ``G A - (G - 1) mean_g A_(-g)``, both samples' rows of a cluster deleted
    together, and keeps within [0, 1]. Bins hide what differs within a bin, so either is an upper bound in the limit.

    Scores (r,) are those of both samples, whose range the bins span; the masses of a row are 0 in a sample that it does
    not belong to. NaN where a sample has no mass; the last two also where one cluster holds all of a sample's mass.

    Examples
    --------
    >>> score = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    >>> logger = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    >>> round(affinity(score, logger, 1 - logger, np.arange(8)).plug_in, 4)  # sqrt(.5 * .25) + sqrt(.5 * .75)
    0.9659
    """
    if not (logger_mass.sum() > 0 and target_mass.sum() > 0):
        return Affinity(np.nan, np.nan, np.nan)
    low, span = score.min(), np.ptp(score)
    # A score on the edge of a bin belongs to the bin above it, whatever its last bit says.
    place = np.floor((score - low) / span * n_bins + 1e-9) if span > 0 else np.zeros(len(score))
    bins = np.minimum(place.astype(np.intp), n_bins - 1)
    code = np.unique(cluster, return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    p = np.bincount(bins, weights=logger_mass, minlength=n_bins)
    q = np.bincount(bins, weights=target_mass, minlength=n_bins)
    plug_in = float(np.sqrt(p * q).sum() / np.sqrt(p.sum() * q.sum()))
    ends = np.cumsum(np.bincount(code))
    without = np.empty(len(ends))
    _affinity_without(bins[order], logger_mass[order], target_mass[order], ends, p, q, without)
    n = len(without)
    if n < 2 or not np.isfinite(without).all():
        return Affinity(plug_in, np.nan, np.nan)
    corrected = float(np.clip(n * plug_in - (n - 1) * without.mean(), 0.0, 1.0))
    return Affinity(plug_in, corrected, float(np.sqrt((n - 1) * without.var())))


@Kernel
def _affinity_without(bins, logger_mass, target_mass, ends, p, q, out):  # type: ignore[no-untyped-def]
    """Affinity without each cluster; rows are sorted by cluster, cluster g ends before row ``ends[g]``."""
    start = 0
    p_total, q_total = p.sum(), q.sum()
    left_p, left_q = p.copy(), q.copy()
    for g in range(len(ends)):
        p_left, q_left = p_total, q_total
        for i in range(start, ends[g]):
            left_p[bins[i]] -= logger_mass[i]
            left_q[bins[i]] -= target_mass[i]
            p_left -= logger_mass[i]
            q_left -= target_mass[i]
        total = 0.0
        for b in range(len(p)):
            total += np.sqrt(max(left_p[b], 0.0) * max(left_q[b], 0.0))
        nothing = p_left <= 1e-12 * p_total or q_left <= 1e-12 * q_total
        out[g] = np.nan if nothing else total / np.sqrt(p_left * q_left)
        for i in range(start, ends[g]):
            left_p[bins[i]] = p[bins[i]]
            left_q[bins[i]] = q[bins[i]]
        start = ends[g]


def _judge_affinity(rows: Rows, logged: Logged, policy: int, weight: FloatArray) -> tuple[Affinity, str]:
    """Affinity of logged judge scores with the policy's fresh ones, or with the weighted logged ones."""
    judged = np.flatnonzero(np.isfinite(logged.z[:, 0]))
    fresh = np.flatnonzero((rows.policy == policy) & rows.evaluated)
    if len(fresh) and len(judged):
        score = np.concatenate([logged.z[judged, 0], rows.score[fresh]])
        logger_mass = np.concatenate([np.ones(len(judged)), np.zeros(len(fresh))])
        target_mass = np.concatenate([np.zeros(len(judged)), rows.weight[fresh]])
        cluster = rows.cluster[np.concatenate([judged, rows.prompt[fresh]])]
        return affinity(score, logger_mass, target_mass, cluster), "fresh"
    used = np.flatnonzero(np.isfinite(weight))
    if len(used) == 0:
        return Affinity(np.nan, np.nan, np.nan), "unknown"
    both = affinity(logged.z[used, 0], np.ones(len(used)), weight[used], rows.cluster[used])
    return both, "weighted_logged"


# --- response space ---


def _fresh_surprisal(data: xr.Dataset) -> FloatArray | None:
    """(policies, prompts, draws) surprisal of evaluated fresh draws in canonical order; None where none is known."""
    if "surprisal" not in data:
        return None
    order = [np.argsort(data[name].values.astype(str), kind="stable") for name in ("policy", "prompt")]
    values = np.where(data["evaluated"].values, data["surprisal"].values, np.nan)
    return np.asarray(values[np.ix_(*order)])


def _typicality_row(
    rows: Rows,
    logged: Logged,
    policy: int,
    weight: FloatArray,
    surprisal: FloatArray | None,
    ci_prob: float,
    level: float,
) -> dict[str, Any]:
    """TTC and CLE of one policy, by name."""
    used = np.flatnonzero(np.isfinite(weight) & np.isfinite(logged.n_tokens))
    per_token = -logged.logp_target[policy, used] / logged.n_tokens[used]
    sample = Sample(per_token, np.ones(len(used)), rows.cluster[used])
    fresh = None if surprisal is None else _fresh_sample(rows, surprisal[policy])
    source, draws = "unknown", np.nan
    one = two = Typicality(np.nan, np.nan, np.nan, np.nan, np.full(2, np.nan))
    cle = Cle(np.nan, np.nan, np.nan, np.full(2, np.nan))
    if len(used) and fresh is not None:
        source, draws = "fresh", kish_ess(fresh.mass)
        one, two = (
            typicality(fresh, sample, level=level, two_sided=both, ci_prob=ci_prob) for both in (False, True)
        )
    elif len(used):
        source, draws = "weighted_logged", ess_fraction(weight[used]) * len(used)
        one, two = (
            weighted_typicality(sample, weight[used], level=level, two_sided=both) for both in (False, True)
        )
    if len(used):
        cle = cle_factor(weight[used], per_token, one)
    return {
        "ttc": one.ttc,
        "ttc_interval": one.interval,
        "ttc_two_sided": two.ttc,
        "ttc_two_sided_interval": two.interval,
        "surprisal_threshold": one.high,
        "ttc_source": source,
        "ttc_ess": draws,
        "cle_alpha": one.alpha,
        "cle_coverage": cle.coverage,
        "cle_shape": cle.shape,
        "cle_factor": cle.factor,
        "weight_variance": cle.variance,
    }


def _fresh_sample(rows: Rows, surprisal: FloatArray) -> Sample | None:
    """Surprisals of a policy's own draws, each prompt of mass one; None where there is none."""
    known = np.isfinite(surprisal)
    if not known.any():
        return None
    mass = np.broadcast_to(1.0 / np.maximum(known.sum(axis=1, keepdims=True), 1), surprisal.shape)
    prompt = np.nonzero(known)[0]
    return Sample(surprisal[known], mass[known], rows.cluster[prompt])
