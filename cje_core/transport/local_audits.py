"""Does the calibration transport everywhere? Audits of the residual inside the judge's scale and inside groups.

The mean residual (`cje_core.transport.audit`) passes errors that cancel: over the judge's scale, where `binned_audit`
tests all bins jointly, or over kinds of prompts, where `subgroup_audit` holds every group under one false discovery
rate.

Both test a zero null, which no fitted f meets exactly, so both count the noise of the fit: what they find is a
departure from transport, not the error of this f. (The verdict of `cje_core.transport.audit.audit` is against a
margin, and given f.)
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset, in_order
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND, wald
from cje_core.inference.influence import combine, pooled_df_of_one
from cje_core.inference.sums import cluster_se, cluster_sums, counts_up, sum_by
from cje_core.transport.audit import Residual, mean_residual, two_sided

ROUNDING = 1e-12  # of the width of the scale: smaller deviations of residuals from their mean are none
MIN_BIN_PROBES = 5  # a bin of the binned audit with fewer probed clusters joins its neighbour


def binned_audit(data: xr.Dataset | Calibrated, *, n_bins: int = 10, ci_prob: float = 0.95) -> xr.Dataset:
    """Test jointly that the residual is zero in every bin of the judge's scale.

    The null, ``E[Y - f(Z) | bin] = 0`` in all q bins, is stronger than mean transport: errors of opposite sign that
    cancel over the scale fail it. Bins are quantiles of the probes' scores; a bin with fewer than 5 probed clusters
    joins its neighbour. The statistic is ``Q = r' A r`` with ``A = V^-1``, V the noise of the probes plus that of the
    fit, which bins share. Five probes tell no variance, and equal labels in a bin would even give zero, so in V the
    probes' variance is pooled over bins, as in a lack-of-fit test. Labels may vary more in some bins than in others
    (binary ones do), so the law of Q is that of Brunner, Dette and Munk's ANOVA-type statistic: with S the covariance
    that leaves each bin its own variance, ``Q / tr(AS)`` is referred to F with ``tr(AS)^2 / tr(ASAS)`` and ``tr(AS)^2 /
    sum_c tr(AS_c)^2 / df_c`` degrees of freedom, c the bins and the fit, each squared variance estimate divided by the
    ``1 + 2 / df`` by which it exceeds the square. With equal bins and variances this is the F test of lack of fit.

    Where labels are nearly sure, the few that differ set both the residual of a bin and its estimated variance, and a
    bin that met none looks sure of itself. But of labels at the two ends of the scale the null says how much they vary,
    ``(high - f)(f - low)`` each. So where the bins' own variances, each over its sum of squared cluster shares, add up
    to less than those of the null (squared shares times this), the null's take their place. Rejected is then what is
    far by both, which keeps the level: by enumeration at most 6.25% at 5% with f known, 1 to 4 bins of 40 to 200 labels
    of rates .02 to .98 (by the estimates alone up to 15%; claims ``binned-anova-type``, ``binned-null-variance``).
    Labels of more than two values have no such floor; a rare value among few of them can have the same effect.

    (In 1,000 samples of binary labels that are nearly sure at both ends of the scale and a coin toss in the middle, 60
    probes and 1,000 labels, it rejects a true null in 2.9% at 5% and in .2% at 1%, where that F test did in 8.1% and
    3.4%. Where the labels jump inside the scale, the f of few labels rounds the jump off, and more is found.)

    The residuals per bin are for display only: a handful of probes each, so they carry intervals and no verdicts.

    Parameters
    ----------
    data, ci_prob
        As in `audit`.
    n_bins : int
        Most bins, at least 2.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``statistic`` (Q), ``f_value`` (Q over its mean), ``df_bins``, ``df``, ``p_value``, ``p_bh``,
        ``n_bins``. Over ``policy, bin``: ``residual``, ``std_error``, ``interval`` (t, not adjusted), ``n_probes``,
        ``score_low``, ``score_high``. ``status`` over ``policy``: ``OK``, ``TOO_FEW_BINS`` (fewer than two), or
        ``NO_VARIATION`` (neither residuals nor fit vary, so nothing can be tested); NaN where it is not ``OK``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> found = binned_audit(data, n_bins=4)
    >>> (found["p_value"] < 0.05).to_series().to_dict()
    {'base': False, 'same': False, 'lower': True, 'flatter': True, 'compensating': False}
    """
    if n_bins < 2:
        raise ValueError(f"n_bins={n_bins}: a joint test needs at least 2")
    probability(ci_prob)
    data, rows, fitted = calibrated(data).parts
    n_policies = len(rows.policies)
    residual, std_error, low, high = np.full((4, n_policies, n_bins), np.nan)
    n_probes = np.zeros((n_policies, n_bins), dtype=int)
    statistic, f_value, df_bins, df, p_value = np.full((5, n_policies), np.nan)
    status = np.full(n_policies, "TOO_FEW_BINS")
    ends = (float(data.attrs["oracle_range"][0]), float(data.attrs["oracle_range"][1]))
    for p in range(n_policies):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        if fitted.calibrator is None or len(probes) == 0:
            continue
        code = score_bins(rows.score[probes], rows.cluster[rows.prompt[probes]], n_bins)
        members = [probes[code == b] for b in range(int(code.max()) + 1)]
        if len(members) < 2:
            continue
        joint = _joint(rows, fitted, members, ends)
        statistic[p], f_value[p], df_bins[p], df[p] = _anova_type(joint)
        status[p] = "OK" if df_bins[p] > 0 else "NO_VARIATION"
        for b, inside in enumerate(members):
            residual[p, b], std_error[p, b] = joint.value[b], np.sqrt(joint.pooled[b, b])
            low[p, b], high[p, b] = rows.score[inside].min(), rows.score[inside].max()
            n_probes[p, b] = len(inside)
        if df_bins[p] > 0:
            p_value[p] = special.fdtrc(df_bins[p], df[p], f_value[p])
    by_bin = ("policy", "bin")
    out = dataset(
        {
            "statistic": ("policy", statistic),
            "f_value": ("policy", f_value),
            "df_bins": ("policy", df_bins),
            "df": ("policy", df),
            "p_value": ("policy", p_value),
            "p_bh": ("policy", adjust_p(p_value, "bh")),
            "status": ("policy", status),
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
    data: xr.Dataset | Calibrated,
    *,
    group: str | npt.ArrayLike = "stratum",
    fdr: float = 0.05,
    ci_prob: float = 0.95,
) -> xr.Dataset:
    """Audit the mean residual within groups of prompts, all policies and groups under one false discovery rate.

    The labels of a small group may agree by chance: rare outcomes that none of its probes met, beside labels that are
    all but alike. Its own spread then says nothing of what the next probe would be, and t is large although no group
    differs. So the probes' noise of a group is at least that of the policy's residuals around the means of their
    groups, one variance pooled over its groups as in `binned_audit`, times the group's sum of squared cluster shares.
    (In 300 samples of equal groups whose labels are .9 give or take .005 but .2 once in seventeen, a group's own noise
    alone flags one in 14% with 75 probes a group and in 80% with 10; the pooled one in 3% at most. Where groups do
    differ in noise, the quiet ones are tested the more conservatively.)

    Parameters
    ----------
    data, ci_prob
        As in `audit`.
    group : str or array, shape (prompts,)
        A variable over ``prompt`` (``stratum``, ``cluster``), or one group name per prompt in the order of the data.
    fdr : float
        Level of the Benjamini-Hochberg procedure over all (policy, group) tests.

    Returns
    -------
    xr.Dataset
        Over ``policy, group`` (groups in order of name): ``residual``; with the fit's noise ``std_error``, ``df``,
        ``interval`` (not adjusted), ``p_value`` (zero null), ``p_bh``, ``flagged`` (``p_bh <= fdr``); ``n_probes``.
        NaN, and never flagged, with fewer than 4 probed prompts, and where all probes of a policy have one label.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> data["topic"] = "prompt", ["code", "prose", "maths"] * 100
    >>> found = subgroup_audit(data, group="topic")
    >>> found["group"].values.tolist()
    ['code', 'maths', 'prose']
    """
    probability(fdr, "fdr")
    probability(ci_prob)
    data, rows, fitted = calibrated(data).parts
    if isinstance(group, str):
        if group not in data or data[group].dims != ("prompt",):
            raise ValueError(f"group={group!r}: not a variable over prompt; pass the groups as an array")
        group = data[group].values
    of_prompt = np.asarray(group).astype(str)
    if of_prompt.shape != (data.sizes["prompt"],):
        raise ValueError(
            f"group has shape {of_prompt.shape}; it needs one name for each of the {data.sizes['prompt']} prompts"
        )
    order = np.argsort(data.prompt.values.astype(str), kind="stable")
    names, code = np.unique(of_prompt[order], return_inverse=True)
    shape = len(rows.policies), len(names)
    residual, std_error, df = np.full((3, *shape), np.nan)
    n_probes = np.zeros(shape, dtype=int)
    for p in range(shape[0]):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        members = [probes[code[rows.prompt[probes]] == g] for g in range(shape[1])]
        n_probes[p] = [len(inside) for inside in members]
        variance = _variance_within(rows, fitted, members)
        for g, inside in enumerate(members):
            found = mean_residual(rows, fitted, inside)
            if found is None or np.ptp(rows.label[probes]) == 0:
                continue
            residual[p, g] = found.value
            std_error[p, g], df[p, g] = _with_noise_of_all(rows, found, inside, variance)
    p_value = two_sided(residual, std_error, df)
    p_bh = adjust_p(p_value.ravel(), "bh").reshape(shape)
    cell = ("policy", "group")
    out = dataset(
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


def _variance_within(rows: Rows, fitted: OracleSlice, members: list[IntArray]) -> float:
    """Variance of a probed cluster's residual around the mean of its group, pooled over groups; NaN without any.

    ``sum_g m_g S_g / H_g / sum_g (m_g - 1)``, m clusters, S their squared noise and H their squared shares in the mean
    of the group: the noise of m clusters is (m - 1) / m of its variance.
    """
    f, squares, free = fitted.calibrator, 0.0, 0
    if f is None:
        return np.nan
    for probes in members:
        if len(probes) == 0:
            continue
        left = rows.label[probes] - predict(f, rows.z[probes])
        share, cluster = rows.weight[probes] / rows.weight[probes].sum(), rows.cluster[rows.prompt[probes]]
        _, code = np.unique(cluster, return_inverse=True)
        noise, mass = np.bincount(code, share * (left - (share * left).sum())), np.bincount(code, share)
        squares += float(len(mass) * (noise**2).sum() / (mass**2).sum())
        free += len(mass) - 1
    return squares / free if free else np.nan


def _with_noise_of_all(rows: Rows, found: Residual, probes: IntArray, variance: float) -> tuple[float, float]:
    """Standard error with the fit's noise, and its df, where the probes' is at least that of ``variance`` per cluster.

    The probes' influence is scaled, so that what it shares with the fit stays; where there is none to scale, the
    variances add up.
    """
    share = sum_by(rows.cluster[rows.prompt[probes]], rows.weight[probes], len(rows.cluster_names))
    least = float(np.sqrt(variance * (share**2).sum()) / share.sum())
    own = float(cluster_se(found.noise.influence, rows.cluster))
    if own >= least:
        _, std_error, df = combine([found.noise, found.fit_noise], rows.cluster)
    elif own > 1e-6 * least:
        louder = found.noise._replace(influence=found.noise.influence * (least / own))
        _, std_error, df = combine([louder, found.fit_noise], rows.cluster)
    else:
        of_fit = float(cluster_se(found.fit_noise.influence, rows.cluster))
        std_error = float(np.hypot(least, of_fit))
        df = pooled_df_of_one([least**2, of_fit**2], [found.noise.df, found.fit_noise.df])
    return std_error, df


def score_bins(score: FloatArray, cluster: IntArray, n_bins: int) -> IntArray:
    """Bin of each of r rows by quantiles of its score, codes 0..q-1 in order of score, q at most `n_bins`.

    Equal scores share a bin, and no bin has under 5 clusters.

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


class _Joint(NamedTuple):
    """Mean residuals of the bins and their errors."""

    value: FloatArray  # (q,)
    pooled: FloatArray  # (q, q) covariance, one variance of the probes for all bins
    own: FloatArray  # (q,) variance of each bin's probes by itself, or under the null; see `binned_audit`
    own_df: FloatArray  # (q,)
    fit: FloatArray  # (q, q) covariance of the fit
    fit_df: float


def _joint(rows: Rows, fitted: OracleSlice, members: list[IntArray], ends: tuple[float, float]) -> _Joint:
    """Mean residuals of disjoint bins of probes and their covariance.

    Influence values per cluster and bin; in ``pooled`` those of the probes are scaled so that each bin's variance is
    one pooled residual variance times its sum of squared cluster shares, while correlations, between bins and with the
    fit, stay as they are. Labels at the two ``ends`` of the scale vary, in sum over bins, by at least what the null
    says of rows that are independent.
    """
    low, high = ends
    together, start = np.concatenate(members), np.cumsum([0, *map(len, members)])
    label = rows.label[together]
    binary = bool(((label == low) | (label == high)).all())
    f = fitted.calibrator
    assert f is not None
    guesses = predict(f, rows.z[together])
    n_clusters, q = len(rows.cluster_names), len(members)
    of_prompt = None if counts_up(rows.cluster, n_clusters) else rows.cluster
    value, squared_share, squared_noise, probed, least, fit_df = np.zeros((6, q))
    noise, fit_noise = np.empty((2, q, n_clusters))
    for b, probes in enumerate(members):
        share = rows.weight[probes] / rows.weight[probes].sum()
        guess = guesses[start[b] : start[b + 1]]
        left = rows.label[probes] - guess
        value[b] = share @ left
        if binary:
            least[b] = share**2 @ ((high - guess) * (guess - low)).clip(0)
        cluster = rows.cluster[rows.prompt[probes]]
        moves = left - value[b]
        moves[np.abs(moves) < ROUNDING * (high - low)] = 0.0
        noise[b] = sum_by(cluster, share * moves, n_clusters)
        squared_noise[b] = (noise[b] ** 2).sum()
        mass = sum_by(cluster, share, n_clusters)
        squared_share[b], probed[b] = (mass**2).sum(), np.count_nonzero(mass)
        part = calibration_part(rows, fitted, rows.z[probes], -share)
        fit_noise[b], fit_df[b] = cluster_sums(part.influence, of_prompt) / len(rows.prompts), part.df
    free = (probed - 1).sum()
    # the squared noise of a bin of m clusters is (m - 1) / m of its variance
    own = squared_noise * probed / (probed - 1)
    if (own / squared_share).sum() < (least / squared_share).sum():
        own = least
    pooled = ((probed - 1) * own / squared_share).sum() / free
    silent = squared_noise == 0
    stretch = np.sqrt(np.divide(pooled * squared_share, squared_noise, out=np.zeros(q), where=~silent))
    total = noise * stretch[:, None] + fit_noise
    covariance = total @ total.T + np.diag(np.where(silent, pooled * squared_share, 0.0))
    of_fit = (fit_noise**2).sum(axis=1)
    learned = np.isfinite(fit_df) & (of_fit > 0)
    df_fit = float(np.average(fit_df[learned], weights=of_fit[learned])) if learned.any() else np.inf
    return _Joint(value, covariance, own, probed - 1, fit_noise @ fit_noise.T, df_fit)


def _anova_type(joint: _Joint) -> tuple[float, float, float, float]:
    """Q, Q over its mean, and the degrees of freedom of its F law; see `binned_audit`."""
    a = np.linalg.pinv(joint.pooled, hermitian=True)
    statistic = float(joint.value @ a @ joint.value)
    product = a @ (joint.fit + np.diag(joint.own))
    mean = float(np.trace(product))
    if not mean > 0:
        return np.nan, np.nan, 0.0, np.nan
    of_bin, of_fit = np.diag(a) * joint.own, float(np.trace(a @ joint.fit))
    squares = float(np.trace(product @ product)) - float((2 * of_bin**2 / (joint.own_df + 2)).sum())
    rank = float(np.linalg.matrix_rank(joint.pooled, hermitian=True))
    df_bins = float(np.clip(mean**2 / squares, 1.0, rank)) if squares > 0 else rank
    spread = float((of_bin**2 / (joint.own_df + 2)).sum()) + of_fit**2 / joint.fit_df
    return statistic, statistic / mean, df_bins, mean**2 / spread
