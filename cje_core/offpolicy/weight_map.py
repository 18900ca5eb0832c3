"""Where in judge space the weights lie: raw and stabilised weights of every logged response, and binned densities.

The data behind two panels of the paper, "Weight Stabilization Visualization" and the S-overlap heatmap.
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import FloatArray, IntArray
from cje_core.inference.sums import sum_by
from cje_core.offpolicy.weights import Stabilised, ess_fraction, guard_curve, log_ratios, mean_one, stabilise

N_BINS = 20
ROUNDING = 1e-9  # of the width of the scale


def weight_map(data: xr.Dataset | Calibrated, *, n_bins: int = N_BINS) -> xr.Dataset:
    """Weights of the logged responses against their judge scores.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With logged responses.
    n_bins : int
        Equal bins of the declared judge range.

    Returns
    -------
    xr.Dataset
        - ``score(prompt)``: judge score of the logged response.
        - ``log10_weight(policy, prompt)``: raw mean-one weight, decimal logarithm;
          ``stabilised(policy, prompt)``: weight of `cje_core.offpolicy.weights.stabilise`
          with Delta = R. NaN where a response is not usable.
        - ``ess_fraction``, ``ess_fraction_stabilised`` (policy).
        - ``density_logged(bin)``, ``density_target(policy, bin)``: shares of logged and fresh responses, with
          coordinate ``bin`` the middle of a bin; ``log10_weight_mean(policy, bin)``: mean raw log weight there.
    """
    given = calibrated(data)
    data, rows, logged, fitted = given.data, given.rows, given.logged, given.slice_with_logs
    score = logged.z[:, 0]
    judged = np.isfinite(logged.z).all(axis=1)
    low, high = map(float, data.attrs["judge_range"])
    edges = np.linspace(low, high, n_bins + 1)
    at_logged = bin_of(np.where(np.isfinite(score), score, low), low, high, n_bins)
    log_weight, stable = np.full((2, len(rows.policies), len(score)), np.nan)
    target, level = np.full((2, len(rows.policies), n_bins), np.nan)
    reward = given.logged_reward
    for p, ratio in enumerate(log_ratios(logged)):
        weight = mean_one(ratio)
        used = np.isfinite(weight)
        if used.any():
            # straight from the ratio: weights of 1e-130 have a logarithm though they round to nothing
            top = ratio[used].max()
            log_weight[p] = (ratio - top) / np.log(10) + np.log10(weight[used].max())
            level[p] = _mean_by_bin(at_logged[used], n_bins, log_weight[p][used])
            if fitted.calibrator is not None:
                stable[p] = stabilise(weight, score, reward, fitted.fold).weight
        fresh = rows.evaluated & (rows.policy == p)
        if fresh.any():
            target[p] = _shares(bin_of(rows.score[fresh], low, high, n_bins), n_bins, rows.weight[fresh])
    order = [rows.policies.index(str(name)) for name in data.policy.values]
    return xr.Dataset(
        {
            "score": ("prompt", score),
            "log10_weight": (("policy", "prompt"), log_weight[order]),
            "stabilised": (("policy", "prompt"), stable[order]),
            "ess_fraction": ("policy", [ess_fraction(10.0 ** log_weight[p]) for p in order]),
            "ess_fraction_stabilised": ("policy", [ess_fraction(stable[p]) for p in order]),
            "density_logged": ("bin", _shares(at_logged[judged], n_bins, np.ones(judged.sum()))),
            "density_target": (("policy", "bin"), target[order]),
            "log10_weight_mean": (("policy", "bin"), level[order]),
        },
        coords={"policy": data.policy.values, "prompt": rows.prompts, "bin": (edges[:-1] + edges[1:]) / 2},
    )


def cap_curves(data: xr.Dataset | Calibrated) -> dict[str, xr.Dataset]:
    """How calibrated IPS moves with its variance cap, for every policy with usable logged responses.

    `cje_core.offpolicy.weights.guard_curve` with Delta = R, and over ``fold`` its `guard_by_fold`; empty where there is
    no calibrator.
    """
    given = calibrated(data)
    logged, fitted, reward = given.logged, given.slice_with_logs, given.logged_reward
    if fitted.calibrator is None or not np.isfinite(reward).any():
        return {}
    fold, n_folds = fitted.fold, int(fitted.fold.max()) + 1
    out = {}
    for policy, ratio in zip(given.rows.policies, log_ratios(logged), strict=True):
        weight = mean_one(ratio)
        if np.isfinite(weight).any():
            stable = stabilise(weight, logged.z[:, 0], reward, fold)
            engaged = guard_by_fold(stable, fold, n_folds)
            out[policy] = guard_curve(stable, reward).assign(guard_by_fold=("fold", engaged))
    return out


def guard_by_fold(stabilised: Stabilised, fold: IntArray, n_folds: int) -> FloatArray:
    """Whether the guard would act on each fold alone, shape (n_folds,): 1, 0, or NaN for a fold without weights.

    The guard acts once, on the variance of the whole stack. The weights of fold k come from the maps that were fitted
    without it, and it is capped if the variance of its own part of the stack exceeds the cap. A guard that acts on few
    folds answers to a few maps or responses; one that acts on most of them, to the lack of overlap (the paper's gate
    asks for more than half).

    Examples
    --------
    >>> score, fold = np.arange(6) / 6, np.array([0, 1, 0, 1, 0, 1])
    >>> out = stabilise([0.2, 0.6, 1.0, 1.0, 1.4, 1.8], score, score, fold, rho=0.1)
    >>> guard_by_fold(out._replace(stack=score * 2.4), fold, 3).tolist()
    [1.0, 1.0, nan]
    """
    w, k = stabilised.stack, fold
    used = np.isfinite(w)
    size = np.bincount(k[used], minlength=n_folds).astype(float)
    with np.errstate(invalid="ignore"):
        mean = sum_by(k[used], w[used], n_folds) / size
        spread = sum_by(k[used], (w[used] - mean[k[used]]) ** 2, n_folds) / size
    return np.where(size > 0, (spread > stabilised.limit).astype(float), np.nan)


def bin_of(score: FloatArray, low: float, high: float, n_bins: int) -> IntArray:
    """Which of `n_bins` equal bins of [low, high] holds each score; one on an edge is in the bin above, the top in it.

    Scores are decimals, and edges computed from them miss them by a rounding: .85 of 20 bins has the place 16.999...

    Examples
    --------
    >>> bin_of(np.array([0.0, 0.849, 0.85, 1.0]), 0.0, 1.0, 20).tolist()
    [0, 16, 17, 19]
    """
    place = (score - low) / (high - low) * n_bins
    nearest = np.rint(place)
    at = np.where(np.abs(place - nearest) < ROUNDING * n_bins, nearest, np.floor(place))
    return np.clip(at, 0, n_bins - 1).astype(np.intp)


def _shares(at: IntArray, n_bins: int, weight: FloatArray) -> FloatArray:
    counts = sum_by(at, weight, n_bins)
    return np.asarray(counts / counts.sum()) if counts.sum() > 0 else np.full(n_bins, np.nan)


def _mean_by_bin(at: IntArray, n_bins: int, values: FloatArray) -> FloatArray:
    counts = np.bincount(at, minlength=n_bins)
    mean = np.divide(sum_by(at, values, n_bins), counts, out=np.full(n_bins, np.nan), where=counts > 0)
    return np.asarray(mean)
