"""Contrasts between policies from the joint influence function."""

from itertools import combinations

import numpy as np
import xarray as xr
from scipy import stats

from cje_core.result import CI_BOUND, cluster_se, wald


def contrasts(estimate: xr.Dataset, *, ci_prob: float | None = None) -> xr.Dataset:
    """All pairwise differences of policy values.

    The influence of ``V_a - V_b`` at a prompt is the difference of the two policies' influence values there, so
    whatever they share (the prompt, the labels that taught one calibrator) cancels as it should; two policies that
    borrow the same calibrator can be told apart much better than their own intervals suggest.

    Parameters
    ----------
    estimate : xr.Dataset
        An estimate that carries ``influence``.
    ci_prob : float, optional
        Probability of each interval (not adjusted); default: the estimate's.

    Returns
    -------
    xr.Dataset
        Over ``pair``, with coordinates ``first`` and ``second`` (names in sorted order): ``difference`` (first minus
        second), ``std_error``, ``df`` (the smaller of the two policies'), ``interval``, ``p_value`` and ``p_bh``
        (Benjamini-Hochberg over all pairs). NaN where a policy has no estimate or the difference has no spread.
    """
    if "influence" not in estimate:
        raise ValueError(
            "this estimate has no influence values; contrasts need an estimator that reports them"
        )
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    pairs = list(combinations(sorted(map(str, estimate.policy.values)), 2))
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    a, b = estimate.sel(policy=first), estimate.sel(policy=second)
    _, cluster = np.unique(estimate["cluster"].values, return_inverse=True)
    difference = a["estimate"].values - b["estimate"].values
    std_error = np.full(len(pairs), np.nan)
    if pairs:
        std_error = cluster_se(a["influence"].values - b["influence"].values, cluster)
        std_error[std_error == 0] = (
            np.nan
        )  # two values that never differ: there is no error to speak of, nor a test
    df = np.minimum(a["df"].values, b["df"].values)
    p_value = np.full(len(pairs), np.nan)
    spread = np.isfinite(std_error)
    p_value[spread] = 2 * stats.t.sf(np.abs(difference[spread]) / std_error[spread], df[spread])
    p_bh = np.full(len(pairs), np.nan)
    if spread.any():
        p_bh[spread] = stats.false_discovery_control(p_value[spread])
    return xr.Dataset(
        {
            "difference": ("pair", difference),
            "std_error": ("pair", std_error),
            "df": ("pair", df),
            "interval": (("pair", "ci_bound"), wald(difference, std_error, df, prob)),
            "p_value": ("pair", p_value),
            "p_bh": ("pair", p_bh),
        },
        coords={"first": ("pair", first), "second": ("pair", second), "ci_bound": CI_BOUND},
        attrs={"ci_prob": prob, "estimator": estimate.attrs["estimator"], "adjustment": "fdr_bh"},
    )
