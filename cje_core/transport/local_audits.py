"""Does the calibration transport everywhere? Audits of the residual inside the judge's scale and inside groups.

The mean residual (`cje_core.transport.audit`) passes errors that cancel: over the judge's scale, where `binned_audit`
tests all bins jointly, or over kinds of prompts, where `subgroup_audit` holds every group under one false discovery
rate.

Both test a zero null, which no fitted f meets exactly: f has noise, steps, and lines between few levels. So both take
the law of the residuals from a bootstrap under exact transport that refits f in each draw
(`cje_core.transport.local_bootstrap`): what they find is a departure from transport, not the error of this f. (The
verdict of `cje_core.transport.audit.audit` is against a margin, and given f.)

Each policy draws from a stream of its own name, so the same data give the same numbers in any order of their rows, and
beside any other policies.
"""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import index
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset, in_order
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND, wald
from cje_core.streams import generator
from cje_core.transport.local_bootstrap import Draws, Sample, bootstrap, cell_tests, joint_test

MIN_BIN_PROBES = 5  # a bin of the binned audit with fewer probed clusters joins its neighbour
JOINT_DRAWS, CELL_DRAWS = 999, 1999  # at least; see `_n_draws`


def binned_audit(
    data: xr.Dataset | Calibrated, *, n_bins: int = 10, ci_prob: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """Test jointly that the residual is zero in every bin of the judge's scale.

    The null, ``E[Y - f(Z) | bin] = 0`` in all q bins, is stronger than mean transport: errors of opposite sign that
    cancel over the scale fail it. Bins are quantiles of the probes' scores; a bin with fewer than 5 probed clusters
    joins its neighbour. The statistic is ``Q = (r - m)' V^+ (r - m)`` of the mean residuals r, m and V their mean and
    covariance over 999 draws or more under the null (`local_bootstrap.bootstrap`), and p the share of draws whose own Q
    is at least as large, which needs no law of Q: labels of few levels have none that is near a chi-squared or an F.

    The residuals per bin are for display only: a handful of probes each, so they carry intervals and no verdicts.

    Parameters
    ----------
    data, ci_prob
        As in `audit`.
    n_bins : int
        Most bins, at least 2.
    seed : int
        Root of the random streams.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``statistic`` (Q), ``p_value``, ``p_bh``, ``n_bins``. Over ``policy, bin``: ``residual``,
        ``std_error`` (over the draws), ``interval`` (normal, around the residual less its mean over the draws; not
        adjusted), ``n_probes``, ``score_low``, ``score_high``. ``status`` over ``policy``: ``OK``, ``TOO_FEW_BINS``
        (fewer than two), or ``NO_VARIATION`` (no draw differs, so nothing can be tested); NaN where it is not ``OK``.

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
    residual, std_error, bias, low, high = np.full((5, n_policies, n_bins), np.nan)
    n_probes = np.zeros((n_policies, n_bins), dtype=int)
    statistic, p_value = np.full((2, n_policies), np.nan)
    status = np.full(n_policies, "TOO_FEW_BINS")
    for p in range(n_policies):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        if fitted.calibrator is None or len(probes) == 0:
            continue
        code = score_bins(rows.score[probes], rows.cluster[rows.prompt[probes]], n_bins)
        q = int(code.max()) + 1
        if q < 2:
            continue
        drawn = _drawn(
            data, rows, fitted, probes, code, _n_draws(JOINT_DRAWS, n_policies), seed, "binned_audit"
        )
        statistic[p], p_value[p] = joint_test(drawn)
        status[p] = "OK" if np.isfinite(p_value[p]) else "NO_VARIATION"
        residual[p, :q], std_error[p, :q], bias[p, :q] = drawn.value, drawn.std_error, drawn.bias
        n_probes[p, :q] = np.bincount(code)
        for b in range(q):
            inside = rows.score[probes[code == b]]
            low[p, b], high[p, b] = inside.min(), inside.max()
    by_bin = ("policy", "bin")
    out = dataset(
        {
            "statistic": ("policy", statistic),
            "p_value": ("policy", p_value),
            "p_bh": ("policy", adjust_p(p_value, "bh")),
            "status": ("policy", status),
            "n_bins": ("policy", (n_probes > 0).sum(axis=1)),
            "residual": (by_bin, residual),
            "std_error": (by_bin, std_error),
            "interval": ((*by_bin, "ci_bound"), wald(residual - bias, std_error, np.inf, ci_prob)),
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
    seed: int = 0,
) -> xr.Dataset:
    """Audit the mean residual within groups of prompts, all policies and groups under one false discovery rate.

    A group's p-value is the share of 1,999 draws or more under the null (`local_bootstrap.bootstrap`) whose residual is
    as far from its mean m over the draws. The noise of a group is that of all labels around one curve: the labels of a
    small group may agree by chance, rare outcomes that none of its probes met, and their own spread would say nothing
    of the next probe. (Where groups do differ in noise, the quiet ones are tested the more conservatively, and the loud
    ones less so.)

    Parameters
    ----------
    data, ci_prob
        As in `audit`.
    group : str or array, shape (prompts,)
        A variable over ``prompt`` (``stratum``, ``cluster``), or one group name per prompt in the order of the data.
    fdr : float
        Level of the Benjamini-Hochberg procedure over all (policy, group) tests.

    seed : int
        Root of the random streams.

    Returns
    -------
    xr.Dataset
        Over ``policy, group`` (groups in order of name): ``residual``; ``std_error`` (over the draws), ``interval``
        (normal, around the residual less m; not adjusted), ``p_value`` (zero null), ``p_bh``, ``flagged`` (``p_bh <=
        fdr``); ``n_probes``. NaN, and never flagged, with fewer than 4 probed prompts, and where no draw differs.

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
    residual, std_error, bias, p_value = np.full((4, *shape), np.nan)
    n_probes = np.zeros(shape, dtype=int)
    for p in range(shape[0]):
        probes = np.flatnonzero((rows.policy == p) & rows.probe)
        of_probe = code[rows.prompt[probes]]
        n_probes[p] = np.bincount(of_probe, minlength=shape[1])
        enough = [
            count_clusters(rows, probes[of_probe == g]) >= MIN_LABELLED_CLUSTERS for g in range(shape[1])
        ]
        if fitted.calibrator is None or not any(enough):
            continue
        probed, at = np.unique(of_probe, return_inverse=True)
        drawn = _drawn(
            data, rows, fitted, probes, at, _n_draws(CELL_DRAWS, residual.size), seed, "subgroup_audit"
        )
        tested = np.asarray(enough)[probed] & (drawn.std_error > 0)
        at = probed[tested]
        residual[p, at], std_error[p, at], bias[p, at], p_value[p, at] = (
            part[tested] for part in (drawn.value, drawn.std_error, drawn.bias, cell_tests(drawn))
        )
    p_bh = adjust_p(p_value.ravel(), "bh").reshape(shape)
    cell = ("policy", "group")
    out = dataset(
        {
            "residual": (cell, residual),
            "std_error": (cell, std_error),
            "interval": ((*cell, "ci_bound"), wald(residual - bias, std_error, np.inf, ci_prob)),
            "p_value": (cell, p_value),
            "p_bh": (cell, p_bh),
            "flagged": (cell, p_bh <= fdr),
            "n_probes": (cell, n_probes),
        },
        coords={"policy": rows.policies, "group": names, "ci_bound": CI_BOUND},
        attrs={"ci_prob": ci_prob, "fdr": fdr},
    )
    return in_order(out, data)


def _n_draws(least: int, n_tests: int) -> int:
    """Draws with which the smallest p-value of `n_tests` can pass 5% after adjustment, with half of it to spare."""
    return max(least, 40 * n_tests - 1)


def _drawn(
    data: xr.Dataset,
    rows: Rows,
    fitted: OracleSlice,
    probes: IntArray,
    group: IntArray,
    n_draws: int,
    seed: int,
    name: str,
) -> Draws:
    """Mean residuals of groups of a policy's probes and their draws under the null, in units of the labels."""
    f, (low, high) = fitted.calibrator, data.attrs["oracle_range"]
    assert f is not None
    width = float(high) - float(low)
    labels, probed = (
        Sample(index(f, z), (label - low) / width, weight, rows.cluster[prompt])
        for z, label, weight, prompt in (
            (fitted.z, fitted.label, fitted.weight, fitted.prompt),
            (rows.z[probes], rows.label[probes], rows.weight[probes], rows.prompt[probes]),
        )
    )
    rng = generator(seed, name, rows.policies[rows.policy[probes[0]]])
    value, null = bootstrap(labels, probed, group, n_draws, rng)
    return Draws(width * value, width * null)


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
