"""Does the calibration transport? Audits of the residual on probe labels.

By the paper's proposition "Mean transport equivalence", ``V(policy) - E[f(Z)] = E[Y - f(Z)]`` under that policy, so
the mean residual on probes, labels that never taught f, is the bias of the plug-in. Not rejecting zero is no
evidence of transport (fifty probes reject little), so the verdict is an equivalence test against a declared margin,
and the zero-null p-value of the paper stands beside it.

The mean is all that `audit` sees: errors that cancel over the judge's scale or over kinds of prompts pass it (the
paper's "Scope of the mean transport test"). `cje_core.local_transport` looks inside. How many probes it takes, and how
to buy them one by one until the audit decides, is in `cje_core.audit_planning`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from cje_core.calibration import OracleSlice, calibration_part, fit_slice, mean_part, predict
from cje_core.compare import adjust_p
from cje_core.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.result import CI_BOUND, wald
from cje_core.rows import Rows, unpack
from cje_core.uncertainty import Part, combine, influence_se

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

MARGIN = 0.05  # harmless mean residual where none is declared, as a share of the oracle scale's width


class Residual(NamedTuple):
    """Mean residual of a set of probes with its two sources of error."""

    value: float
    noise: Part  # which probes, and their labels
    fit_noise: Part  # which labels taught f
    std_error: float
    df: float


def audit(
    data: xr.Dataset,
    *,
    margin: float | None = None,
    ci_prob: float = 0.95,
    direction: str = "increasing",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
) -> xr.Dataset:
    """Audit mean transport of the calibrator to every policy with probes.

    The residual ``mean_probes(Y - f(Z))`` gets a t interval from the joint influence function: noise of the probes plus
    noise of the fit (the labelled rows, with the leverage that the probes' scores give them), clustered by prompt. That
    interval decides: PASS if it lies within ``[-margin, margin]``, FAIL if it lies outside entirely, else INCONCLUSIVE.
    A verdict is about one policy, so its interval is not adjusted for the other policies audited; the zero-null
    p-value, which the paper reads jointly, comes with its Bonferroni, Holm and Benjamini-Hochberg adjustments.

    Probe labels that never vary show no spread. Where all lie at one end of the oracle scale the interval is the exact
    bound on their mean (`_constant_bounds`); else there is none, and the verdict is NOT_CHECKED.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    margin : float, optional
        Largest mean residual that is harmless, in units of the oracle scale; by default 5% of the width of
        ``oracle_range``.
    ci_prob : float
        Probability of each policy's interval.
    direction : {"increasing", "decreasing"}
        Direction of the calibrator.
    covariates : sequence of str
        Covariates the calibrator sees besides the judge score.
    calibrator : str
        As in `cje_core.calibration.fit_slice`.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``residual``, ``std_error``, ``df``, ``interval``, ``p_value`` (zero null), ``p_bonferroni``,
        ``p_holm``, ``p_bh``, ``n_probes``, ``verdict``, and what `audit_planning.audit_power` asks for:
        ``residual_sd``, ``fit_std_error``, ``fit_df``. Fewer than 4 probed prompts: NOT_CHECKED.
    """
    low, high = data.attrs["oracle_range"]
    margin = MARGIN * (high - low) if margin is None else margin
    if not margin > 0:
        raise ValueError(f"margin is {margin}; it must be positive (units of the oracle scale)")
    rows, fitted = fit_rows(data, ci_prob, direction, covariates, calibrator)
    n_policies = len(rows.policies)
    residual, std_error, df, sd, fit_error, fit_df = np.full((6, n_policies), np.nan)
    exact = np.full((n_policies, 2), np.nan)
    n_probes = np.bincount(rows.policy[rows.probe], minlength=n_policies)
    for p in range(n_policies):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        found = mean_residual(rows, fitted, probes)
        if found is None:
            continue
        residual[p], std_error[p], df[p] = found.value, found.std_error, found.df
        if np.isnan(found.std_error):
            exact[p] = _constant_bounds(rows, found, probes, ci_prob, (low, high))
        fit_error[p], fit_df[p] = influence_se(found.fit_noise.influence, rows.cluster), found.fit_noise.df
        n_clusters = count_clusters(rows, probes)
        sd[p] = influence_se(found.noise.influence, rows.cluster) * np.sqrt(n_clusters)
    interval = np.where(np.isnan(std_error)[:, None], exact, wald(residual, std_error, df, ci_prob))
    p_value = two_sided(residual, std_error, df)
    inside = (interval[:, 0] >= -margin) & (interval[:, 1] <= margin)
    outside = (interval[:, 0] > margin) | (interval[:, 1] < -margin)
    verdict = np.select(
        [~np.isfinite(interval).all(axis=1), inside, outside],
        ["NOT_CHECKED", "PASS", "FAIL"],
        default="INCONCLUSIVE",
    )
    out = xr.Dataset(
        {
            "residual": ("policy", residual),
            "std_error": ("policy", std_error),
            "df": ("policy", df),
            "interval": (("policy", "ci_bound"), interval),
            "p_value": ("policy", p_value),
            "p_bonferroni": ("policy", adjust_p(p_value, "bonferroni")),
            "p_holm": ("policy", adjust_p(p_value, "holm")),
            "p_bh": ("policy", adjust_p(p_value, "bh")),
            "n_probes": ("policy", n_probes),
            "residual_sd": ("policy", sd),
            "fit_std_error": ("policy", fit_error),
            "fit_df": ("policy", fit_df),
            "verdict": ("policy", verdict),
        },
        coords={"policy": rows.policies, "ci_bound": CI_BOUND},
        attrs={"margin": margin, "ci_prob": ci_prob},
    )
    return in_order(out, data)


def residuals(
    data: xr.Dataset,
    *,
    direction: str = "increasing",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
) -> xr.Dataset:
    """Residual of every probe, for inspection, for plots and for `audit_planning.sequential_audit`.

    Returns
    -------
    xr.Dataset
        Over ``row`` (sorted by policy, prompt, draw): ``residual`` (NaN where no calibrator could be fitted), with
        coordinates ``policy``, ``prompt``, ``cluster`` and ``score``.
    """
    rows, fitted = fit_rows(data, 0.95, direction, covariates, calibrator)
    probes = np.flatnonzero(rows.probe)
    values = np.full(len(probes), np.nan)
    if fitted.calibrator is not None and len(probes):
        values = rows.label[probes] - predict(fitted.calibrator, rows.z[probes])
    prompt = rows.prompt[probes]
    return xr.Dataset(
        {"residual": ("row", values)},
        coords={
            "policy": ("row", np.array(rows.policies, dtype=str)[rows.policy[probes]]),
            "prompt": ("row", rows.prompts[prompt]),
            "cluster": ("row", rows.cluster_names[rows.cluster[prompt]]),
            "score": ("row", rows.score[probes]),
        },
    )


def in_order(out: xr.Dataset, data: xr.Dataset) -> xr.Dataset:
    """Policies as the data have them; selecting costs milliseconds that a study need not pay for sorted data."""
    same = np.array_equal(out.policy.values, data.policy.values)
    return out if same else out.sel(policy=data.policy.values)


def fit_rows(
    data: xr.Dataset, ci_prob: float, direction: str, covariates: Sequence[str], calibrator: str
) -> tuple[Rows, OracleSlice]:
    """Rows of the data and the calibrator that their labels teach; stops at a `ci_prob` outside (0, 1)."""
    if not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob is {ci_prob}; it must lie strictly between 0 and 1")
    rows = unpack(data, covariates)
    return rows, fit_slice(rows, direction=direction, calibrator=calibrator)


def mean_residual(rows: Rows, fitted: OracleSlice, probes: IntArray) -> Residual | None:
    """Mean residual of some probes; None where too few prompts are probed or nothing could be fitted."""
    n_clusters = count_clusters(rows, probes)
    if n_clusters < MIN_LABELLED_CLUSTERS or fitted.calibrator is None:
        return None
    weight = rows.weight[probes]
    left = rows.label[probes] - predict(fitted.calibrator, rows.z[probes])
    value, noise = mean_part(rows, probes, left, weight)
    fit_noise = calibration_part(rows, fitted, rows.z[probes], -weight / weight.sum())
    _, std_error, df = combine([noise, fit_noise], rows.cluster)
    if np.ptp(rows.label[probes]) == 0:  # what is left is the spread of f over the probes, or nothing
        std_error, df = np.nan, np.nan
    return Residual(value, noise, fit_noise, std_error, df)


def _constant_bounds(
    rows: Rows, found: Residual, probes: IntArray, ci_prob: float, scale: tuple[float, float]
) -> FloatArray:
    """Interval of the mean residual where all m probed clusters have one label, an end of the scale; else NaN.

    If E[Y] lies d widths from that end, then P(Y is not at it) >= d, so all m are with probability at most (1 - d)^m:
    d <= 1 - alpha^(1/m). Half of alpha goes to this bound and half to the fit's t interval.
    """
    low, high = scale
    label = rows.label[probes[0]]
    if label not in (low, high):
        return np.full(2, np.nan)
    alpha = (1.0 - ci_prob) / 2.0
    m = count_clusters(rows, probes)
    reach = (high - low) * (1.0 - alpha ** (1.0 / m))
    bounds = wald(
        found.value, influence_se(found.fit_noise.influence, rows.cluster), found.fit_noise.df, 1.0 - alpha
    )
    return np.asarray(bounds + (np.array([-reach, 0.0]) if label == high else np.array([0.0, reach])))


def two_sided(residual: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Two-sided p-value of the t statistic; NaN where there is no spread."""
    spread = std_error > 0
    ratio = np.divide(np.abs(residual), std_error, out=np.full(residual.shape, np.nan), where=spread)
    return np.asarray(2 * stats.t.sf(ratio, df))
