"""Does the calibration transport everywhere? Audits of the residual inside the judge's scale and inside groups.

The mean residual (`cje_core.transport`) passes errors that cancel: over the judge's scale, where `binned_audit` tests
all bins jointly, or over kinds of prompts, where `subgroup_audit` holds every group under one false discovery rate.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from cje_core.calibration import OracleSlice, calibration_part, predict
from cje_core.compare import adjust_p
from cje_core.result import CI_BOUND, cluster_sums, sum_by, wald
from cje_core.rows import Rows
from cje_core.transport import fit_rows, in_order, mean_residual, two_sided
from cje_core.uncertainty import pooled_df

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

MIN_BIN_PROBES = 5  # a bin of the binned audit with fewer probed clusters joins its neighbour


def binned_audit(
    data: xr.Dataset,
    *,
    n_bins: int = 10,
    ci_prob: float = 0.95,
    direction: str = "increasing",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
) -> xr.Dataset:
    """Test jointly that the residual is zero in every bin of the judge's scale.

    The null, ``E[Y - f(Z) | bin] = 0`` in all q bins, is stronger than mean transport: errors of opposite sign that
    cancel over the scale fail it. Bins are quantiles of the probes' scores; a bin with fewer than 5 probed clusters
    joins its neighbour. The statistic is ``r' V^-1 r / q`` with V the noise of the probes plus that of the fit, which
    bins share. Five probes tell no variance, and equal labels in a bin would even give zero, so the probes' variance is
    pooled over bins, as in a lack-of-fit test, and the statistic is referred to F with q and Satterthwaite degrees of
    freedom.

    The residuals per bin are for display only: a handful of probes each, so they carry intervals and no verdicts.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    n_bins : int
        Most bins, at least 2.
    ci_prob, direction, covariates, calibrator
        As in `audit`.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``statistic``, ``df_bins``, ``df``, ``p_value``, ``p_bh``, ``n_bins``. Over ``policy, bin``:
        ``residual``, ``std_error``, ``interval`` (t, not adjusted), ``n_probes``, ``score_low``, ``score_high``. NaN
        where a policy has fewer than two bins.
    """
    if n_bins < 2:
        raise ValueError(f"n_bins is {n_bins}; a joint test needs at least 2")
    rows, fitted = fit_rows(data, ci_prob, direction, covariates, calibrator)
    n_policies = len(rows.policies)
    residual, std_error, low, high = np.full((4, n_policies, n_bins), np.nan)
    n_probes = np.zeros((n_policies, n_bins), dtype=int)
    statistic, df_bins, df, p_value = np.full((4, n_policies), np.nan)
    for p in range(n_policies):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        if fitted.calibrator is None or len(probes) == 0:
            continue
        code = score_bins(rows.score[probes], rows.cluster[rows.prompt[probes]], n_bins)
        used = int(code.max()) + 1
        if used < 2:
            continue
        members = [probes[code == b] for b in range(used)]
        value, covariance, df[p] = _joint(rows, fitted, members)
        residual[p, :used], std_error[p, :used] = value, np.sqrt(np.diag(covariance))
        statistic[p] = value @ np.linalg.pinv(covariance, hermitian=True) @ value
        df_bins[p] = np.linalg.matrix_rank(covariance, hermitian=True)
        n_probes[p, :used] = [len(rows_of) for rows_of in members]
        low[p, :used] = [rows.score[rows_of].min() for rows_of in members]
        high[p, :used] = [rows.score[rows_of].max() for rows_of in members]
        if df_bins[p] > 0:
            p_value[p] = stats.f.sf(statistic[p] / df_bins[p], df_bins[p], df[p])
    by_bin = ("policy", "bin")
    out = xr.Dataset(
        {
            "statistic": ("policy", statistic),
            "df_bins": ("policy", df_bins),
            "df": ("policy", df),
            "p_value": ("policy", p_value),
            "p_bh": ("policy", adjust_p(p_value, "bh")),
            "n_bins": ("policy", (n_probes > 0).sum(axis=1)),
            "residual": (by_bin, residual),
            "std_error": (by_bin, std_error),
            "interval": ((*by_bin, "ci_bound"), wald(residual, std_error, df[:, None], ci_prob)),
            "n_probes": (by_bin, n_probes),
            "score_low": (by_bin, low),
            "score_high": (by_bin, high),
        },
        coords={"policy": rows.policies, "bin": np.arange(n_bins), "ci_bound": CI_BOUND},
        attrs={"ci_prob": ci_prob},
    )
    return in_order(out, data)


def subgroup_audit(
    data: xr.Dataset,
    *,
    group: str | npt.ArrayLike = "stratum",
    fdr: float = 0.05,
    ci_prob: float = 0.95,
    direction: str = "increasing",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
) -> xr.Dataset:
    """Audit the mean residual within groups of prompts, all policies and groups under one false discovery rate.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    group : str or array, shape (prompts,)
        A variable over ``prompt`` (``stratum``, ``cluster``), or one group name per prompt in the order of the data.
    fdr : float
        Level of the Benjamini-Hochberg procedure over all (policy, group) tests.
    ci_prob, direction, covariates, calibrator
        As in `audit`.

    Returns
    -------
    xr.Dataset
        Over ``policy, group`` (groups in order of name): ``residual``, ``std_error``, ``df``, ``interval`` (not
        adjusted), ``p_value`` (zero null), ``p_bh``, ``flagged`` (``p_bh <= fdr``), ``n_probes``. NaN, and never
        flagged, with fewer than 4 probed prompts.
    """
    if not 0 < fdr < 1:
        raise ValueError(f"fdr is {fdr}; it must lie strictly between 0 and 1")
    rows, fitted = fit_rows(data, ci_prob, direction, covariates, calibrator)
    if isinstance(group, str):
        if group not in data or data[group].dims != ("prompt",):
            raise ValueError(
                f"group is {group!r}, which is not a variable over prompt; pass the groups as an array"
            )
        group = data[group].values
    of_prompt = np.asarray(group).astype(str)
    if of_prompt.shape != (data.sizes["prompt"],):
        raise ValueError(
            f"group has shape {of_prompt.shape}; it needs one name for each of the {data.sizes['prompt']} prompts"
        )
    names, code = np.unique(
        of_prompt[np.argsort(data.prompt.values.astype(str), kind="stable")], return_inverse=True
    )
    shape = len(rows.policies), len(names)
    residual, std_error, df = np.full((3, *shape), np.nan)
    n_probes = np.zeros(shape, dtype=int)
    for p in range(shape[0]):
        for g in range(shape[1]):
            probes = np.flatnonzero((rows.policy == p) & rows.probe & (code[rows.prompt] == g))
            n_probes[p, g] = len(probes)
            found = mean_residual(rows, fitted, probes)
            if found is not None:
                residual[p, g], std_error[p, g], df[p, g] = found.value, found.std_error, found.df
    p_value = two_sided(residual, std_error, df)
    p_bh = adjust_p(p_value.ravel(), "bh").reshape(shape)
    cell = ("policy", "group")
    out = xr.Dataset(
        {
            "residual": (cell, residual),
            "std_error": (cell, std_error),
            "df": (cell, df),
            "interval": ((*cell, "ci_bound"), wald(residual, std_error, df, ci_prob)),
            "p_value": (cell, p_value),
            "p_bh": (cell, p_bh),
            "flagged": (cell, p_bh <= fdr),
            "n_probes": (cell, n_probes),
        },
        coords={"policy": rows.policies, "group": names, "ci_bound": CI_BOUND},
        attrs={"ci_prob": ci_prob, "fdr": fdr},
    )
    return in_order(out, data)


def score_bins(score: FloatArray, cluster: IntArray, n_bins: int) -> IntArray:
    """Bin of each row by quantiles of its score; equal scores share a bin, and no bin has under 5 clusters.

    Parameters
    ----------
    score, cluster : arrays, shape (r,)
    n_bins : int

    Returns
    -------
    int array, shape (r,)
        Codes 0..q-1 in order of score, ``q <= n_bins``.

    Examples
    --------
    >>> score_bins(np.repeat([0.1, 0.2, 0.9], [6, 2, 6]), np.arange(14), 10).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    edge = np.quantile(score, np.arange(1, n_bins) / n_bins)
    code = np.searchsorted(edge, score)
    out = np.zeros(len(score), dtype=np.intp)
    bin_of, members = 0, np.zeros(len(score), dtype=bool)
    for level in np.unique(code):
        members = members | (code == level)
        out[members] = bin_of
        if len(np.unique(cluster[members])) >= MIN_BIN_PROBES:
            bin_of, members = bin_of + 1, np.zeros(len(score), dtype=bool)
    if members.any() and bin_of > 0:  # a remainder at the top joins the last full bin
        out[members] = bin_of - 1
    return out


def _joint(rows: Rows, fitted: OracleSlice, members: list[IntArray]) -> tuple[FloatArray, FloatArray, float]:
    """Mean residuals of disjoint bins of probes, their covariance and its degrees of freedom.

    Influence values per cluster and bin, those of the probes scaled so that each bin's variance is one pooled residual
    variance times its sum of squared cluster shares; correlations, between bins and with the fit, stay as they are. The
    degrees of freedom are those of `pooled_df` on the traces of the probes' and the fit's covariance.
    """
    f = fitted.calibrator
    assert f is not None
    n_clusters, q = len(rows.cluster_names), len(members)
    value, squared_share, squared_noise, probed, fit_df = np.empty((5, q))
    noise, fit_noise = np.empty((2, q, n_clusters))
    for b, probes in enumerate(members):
        share = rows.weight[probes] / rows.weight[probes].sum()
        left = rows.label[probes] - predict(f, rows.z[probes])
        value[b] = share @ left
        cluster = rows.cluster[rows.prompt[probes]]
        noise[b] = sum_by(cluster, share * (left - value[b]), n_clusters)
        squared_noise[b] = (noise[b] ** 2).sum()
        squared_share[b] = (sum_by(cluster, share, n_clusters) ** 2).sum()
        probed[b] = len(np.unique(cluster))
        part = calibration_part(rows, fitted, rows.z[probes], -share)
        fit_noise[b], fit_df[b] = cluster_sums(part.influence, rows.cluster) / len(rows.prompts), part.df
    free = (probed - 1).sum()
    # the squared noise of a bin of m clusters is (m - 1) / m of its variance
    pooled = (probed * squared_noise / squared_share).sum() / free
    silent = squared_noise == 0
    scale = np.sqrt(np.divide(pooled * squared_share, squared_noise, out=np.zeros(q), where=~silent))
    total = noise * scale[:, None] + fit_noise
    covariance = total @ total.T + np.diag(np.where(silent, pooled * squared_share, 0.0))
    of_fit = (fit_noise**2).sum(axis=1)
    learned = np.isfinite(fit_df) & (of_fit > 0)
    df_fit = np.average(fit_df[learned], weights=of_fit[learned]) if learned.any() else np.inf
    return value, covariance, pooled_df([(pooled * squared_share).sum(), of_fit.sum()], [free, df_fit])
