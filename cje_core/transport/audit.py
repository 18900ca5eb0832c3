"""Does the calibration transport? Audits of the residual on probe labels.

By the paper's proposition "Mean transport equivalence", ``V(policy) - E[f(Z)] = E[Y - f(Z)]`` under that policy, so
the mean residual on probes, labels that never taught f, is the bias of the plug-in. Not rejecting zero is no
evidence of transport (fifty probes reject little), so the verdict is an equivalence test against a declared margin,
and the zero-null p-value of the paper stands beside it.

Both are decided *given f*: the question is whether the levels that this calibrator gives are off, and its own error is
part of how far off they are. Only the probes' noise is left, which more probes shrink. An interval that adds the noise
of the fit decides nothing: no number of probes shrinks that part, so few labels, or covariates that make f noisy, would
leave a clear residual undecided (study ``transport_audit``).

A policy that fails rarely looks sure of itself as long as no probe shows a failure: of 30 probes of a policy whose
answers are 7% zeros, 11% show none, and their t interval lies within a margin of .05 of zero. So PASS asks for an
interval with room for outcomes at the ends of the scale that the probes did not show (`audit_size.UNSEEN_WEIGHT`); FAIL
does not, since unseen outcomes can only be further evidence against a policy, or too rare to take it back inside.

The mean is all that `audit` sees: errors that cancel over the judge's scale or over kinds of prompts pass it (the
paper's "Scope of the mean transport test"). `cje_core.transport.local_audits` looks inside. How many probes it takes,
and how to buy them one by one until the audit decides, is in `cje_core.transport.audit_size`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset, in_order
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND, wald
from cje_core.inference.influence import Part, combine, mean_part
from cje_core.inference.limits import Basis, value_limits
from cje_core.inference.sums import cluster_se
from cje_core.transport.audit_size import UNSEEN_WEIGHT, probes_to_pass
from cje_core.transport.margin import harmless_margin

NUMBERS = (
    "residual", "std_error", "df", "std_error_with_fit", "df_with_fit", "residual_sd", "fit_std_error", "fit_df",
    "probes_to_pass",
)  # fmt: skip


class Residual(NamedTuple):
    """Mean residual of a set of probes with its two sources of error."""

    value: float
    noise: Part  # which probes, and their labels
    fit_noise: Part  # which labels taught f
    std_error: float  # of the noise alone, f given
    df: float
    std_error_with_fit: float
    df_with_fit: float


def audit(data: xr.Dataset | Calibrated, *, margin: float | None = None, ci_prob: float = 0.95) -> xr.Dataset:
    """Audit mean transport of the calibrator to every policy with probes.

    The residual ``mean_probes(Y - f(Z))`` gets a t interval given f, from the noise of the probes by cluster, with one
    degree of freedom less than probed clusters. FAIL if it lies outside ``[-margin, margin]`` entirely; PASS if the
    same interval with room for unseen outcomes, each arm ``sqrt(arm^2 + (u d)^2)``, lies within, u the upper quantile
    of Beta(1/2, n) for n probed clusters and d the distance of the mean label to that end of the scale; else
    INCONCLUSIVE. ``interval`` is the one that the verdict rests on: with room, but for FAIL. P(FAIL) is at most
    ``(1 - ci_prob) / 2`` while the residual of this f is within the margin, and P(PASS) at most that while it is
    beyond. A verdict is about one policy, so its interval is not adjusted for the other policies audited; the zero-null
    p-value, which the paper reads jointly, comes with its Bonferroni, Holm and Benjamini-Hochberg adjustments.

    ``interval_with_fit`` is the t interval of the joint influence function: the probes' noise plus that of the fit (the
    labelled rows, with the leverage that the probes' scores give them). It informs: it is about the residual of the
    calibrator that endless labels of the same slice would teach.

    Probe labels that never vary show no spread. Where all lie at one end of the oracle scale the interval is the exact
    bound on their mean (`constant_bounds`); else there is none, and the verdict is NOT_CHECKED.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    margin : float, optional
        Largest mean residual that is harmless, in units of the oracle scale; by default 5% of the width of
        ``oracle_range``.
    ci_prob : float
        Probability of each policy's interval.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``residual``; given f ``std_error``, ``df``, ``interval``, ``p_value`` (zero null),
        ``p_bonferroni``, ``p_holm``, ``p_bh``, ``verdict``; with the fit's noise ``std_error_with_fit``,
        ``df_with_fit``, ``interval_with_fit``; ``n_probes``, their ``mean_label``; what `audit_size.audit_power` asks,
        ``residual_sd``, ``fit_std_error``, ``fit_df``; and ``probes_to_pass``, the probed clusters with which an audit
        of this spread passes in 80% of samples if this f is right on average
        (`audit_size.probes_to_pass`). Fewer than 4 probed prompts: NOT_CHECKED.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> audit(data)["verdict"].to_series().head(3).to_dict()
    {'base': 'NOT_CHECKED', 'same': 'INCONCLUSIVE', 'lower': 'FAIL'}
    """
    data, rows, fitted = calibrated(data).parts
    low, high = data.attrs["oracle_range"]
    margin = harmless_margin(margin, (low, high))
    probability(ci_prob)
    n_policies = len(rows.policies)
    table = {name: np.full(n_policies, np.nan) for name in NUMBERS}
    exact, exact_with_fit = np.full((2, n_policies, 2), np.nan)
    mean_label, n_clusters = np.full((2, n_policies), np.nan)
    for p in range(n_policies):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        found = mean_residual(rows, fitted, probes)
        if found is None:
            continue
        parts = [found.noise, found.fit_noise]
        noise, fit_noise = (cluster_se(part.influence, rows.cluster) for part in parts)
        n_clusters[p] = count_clusters(rows, probes)
        mean_label[p] = np.average(rows.label[probes], weights=rows.weight[probes])
        sd = float(noise) * np.sqrt(n_clusters[p])
        needed = np.nan  # probes that are all equal show no spread to plan with
        if np.isnan(found.std_error):
            exact[p] = constant_bounds(rows, found.value, parts[:1], probes, ci_prob, (low, high))
            exact_with_fit[p] = constant_bounds(rows, found.value, parts, probes, ci_prob, (low, high))
        else:
            reach = (mean_label[p] - low, high - mean_label[p])
            needed = probes_to_pass(sd, margin=margin, ci_prob=ci_prob, reach=reach)
        errors = (found.std_error, found.df, found.std_error_with_fit, found.df_with_fit)
        numbers = (found.value, *errors, sd, fit_noise, found.fit_noise.df, needed)
        for name, number in zip(NUMBERS, numbers, strict=True):
            table[name][p] = number
    residual, std_error, df, error_with_fit, df_with_fit = (table[name] for name in NUMBERS[:5])
    missing = np.isnan(std_error)[:, None]

    def limits(error: FloatArray, free: FloatArray, equal: FloatArray) -> FloatArray:
        """Interval of the residuals that decides, `equal` where all labels of the probes are."""
        plain = wald(residual, error, free, ci_prob)
        failed = (verdicts(plain, margin) == "FAIL")[:, None]
        room = _with_room(residual, error, free, mean_label, n_clusters, ci_prob, (low, high))
        return np.where(missing, equal, np.where(failed, plain, room))

    interval = limits(std_error, df, exact)
    with_fit = limits(error_with_fit, df_with_fit, exact_with_fit)
    p_value = two_sided(residual, std_error, df)
    adjusted = {f"p_{how}": ("policy", adjust_p(p_value, how)) for how in ("bonferroni", "holm", "bh")}
    out = dataset(
        {
            **{name: ("policy", column) for name, column in table.items()},
            "interval": (("policy", "ci_bound"), interval),
            "interval_with_fit": (("policy", "ci_bound"), with_fit),
            "p_value": ("policy", p_value),
            **adjusted,
            "mean_label": ("policy", mean_label),
            "n_probes": ("policy", np.bincount(rows.policy[rows.probe], minlength=n_policies)),
            "verdict": ("policy", verdicts(interval, margin)),
        },
        coords={"policy": rows.policies, "ci_bound": CI_BOUND},
        attrs={"margin": margin, "ci_prob": ci_prob},
    )
    return in_order(out, data)


def _with_room(
    residual: FloatArray,
    std_error: FloatArray,
    df: FloatArray,
    mean_label: FloatArray,
    n_clusters: FloatArray,
    ci_prob: float,
    scale: tuple[float, float],
) -> FloatArray:
    """Return t intervals of mean residuals with room for outcomes that the probes did not show, shape (policies, 2).

    Unseen outcomes move the mean label, so these are limits of that mean with the residual's error, moved to it.
    """
    blank = np.full(residual.shape, np.nan)
    weight = np.full(residual.shape, UNSEEN_WEIGHT)
    kind = np.where(std_error > 0, "gamma", "none")  # without skewness: by t
    basis = Basis(mean_label, std_error, df, kind, blank, n_clusters, weight, 0 * weight, scale)
    return value_limits(basis, ci_prob) + (residual - mean_label)[:, None]


def verdicts(interval: FloatArray, margin: float) -> npt.NDArray[np.str_]:
    """Verdict of each interval of a mean residual, shape (k, 2), against the margin; see `audit`.

    Examples
    --------
    >>> verdicts(np.array([[-0.01, 0.04], [0.06, 0.2], [-0.1, 0.02], [np.nan, np.nan]]), 0.05).tolist()
    ['PASS', 'FAIL', 'INCONCLUSIVE', 'NOT_CHECKED']
    """
    low, high = interval.T
    return np.select(
        [
            ~np.isfinite(interval).all(axis=1),
            (low >= -margin) & (high <= margin),
            (low > margin) | (high < -margin),
        ],
        ["NOT_CHECKED", "PASS", "FAIL"],
        default="INCONCLUSIVE",
    )


def residuals(data: xr.Dataset | Calibrated) -> xr.Dataset:
    """Residual of every probe, for inspection, for plots and for `audit_size.sequential_audit`.

    Over ``row`` (sorted by policy, prompt, draw): ``residual`` (NaN where no calibrator could be fitted), with
    coordinates ``policy``, ``prompt``, ``cluster`` and ``score``.
    """
    data, rows, fitted = calibrated(data).parts
    probes = np.flatnonzero(rows.probe)
    values = np.full(len(probes), np.nan)
    if fitted.calibrator is not None and len(probes):
        values = rows.label[probes] - predict(fitted.calibrator, rows.z[probes])
    prompt = rows.prompt[probes]
    return dataset(
        {"residual": ("row", values)},
        coords={
            "policy": ("row", np.array(rows.policies, dtype=str)[rows.policy[probes]]),
            "prompt": ("row", rows.prompts[prompt]),
            "cluster": ("row", rows.cluster_names[rows.cluster[prompt]]),
            "score": ("row", rows.score[probes]),
        },
    )


def mean_residual(rows: Rows, fitted: OracleSlice, probes: IntArray) -> Residual | None:
    """Mean residual of some probes; None where too few prompts are probed or nothing could be fitted."""
    n_clusters = count_clusters(rows, probes)
    if n_clusters < MIN_LABELLED_CLUSTERS or fitted.calibrator is None:
        return None
    weight = rows.weight[probes]
    left = rows.label[probes] - predict(fitted.calibrator, rows.z[probes])
    value, noise = mean_part(rows, probes, left, weight)
    fit_noise = calibration_part(rows, fitted, rows.z[probes], -weight / weight.sum())
    errors = [*combine([noise], rows.cluster)[1:], *combine([noise, fit_noise], rows.cluster)[1:]]
    if np.ptp(rows.label[probes]) == 0:  # what is left is the spread of f over the probes, or nothing
        errors = [np.nan] * 4
    return Residual(value, noise, fit_noise, *errors)


def constant_bounds(
    rows: Rows,
    value: float,
    parts: Sequence[Part],
    probes: IntArray,
    ci_prob: float,
    scale: tuple[float, float],
) -> FloatArray:
    """Interval of the mean residual where all m probed clusters have one label, an end of the scale; else NaN.

    If E[Y] lies d widths from that end, then P(Y is not at it) >= d, so all m are with probability at most (1 - d)^m:
    d <= 1 - alpha^(1/m). Half of alpha goes to this bound and half to the t interval of what is left, the spread of f
    over the probes and, if it is among the parts, the noise of the fit.
    """
    low, high = scale
    label = rows.label[probes[0]]
    if label not in (low, high):
        return np.full(2, np.nan)
    alpha = (1.0 - ci_prob) / 2.0
    reach = (high - low) * (1.0 - alpha ** (1.0 / count_clusters(rows, probes)))
    _, std_error, df = combine(parts, rows.cluster)
    bounds = wald(value, std_error, df, 1.0 - alpha)
    return np.asarray(bounds + (np.array([-reach, 0.0]) if label == high else np.array([0.0, reach])))


def two_sided(residual: FloatArray, std_error: FloatArray, df: FloatArray) -> FloatArray:
    """Two-sided p-value of the t statistic; NaN where there is no spread."""
    spread = std_error > 0
    ratio = np.divide(np.abs(residual), std_error, out=np.full(residual.shape, np.nan), where=spread)
    return np.asarray(2 * special.stdtr(df, -ratio))
