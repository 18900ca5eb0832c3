"""Is the calibrated reward right where it is used? Reliability, coverage badge and the calibration curve.

Estimands: per bin of the judge score, the mean oracle label beside the mean reward R = f(Z) (the paper's "Reliability
diagram"); per policy, the share of its responses outside the judge range of the labelled slice, and the slope of f at
the ends of that range (its "Coverage badge": ``OutOfRange`` and boundary flatness). Rewards of labelled rows are out
of fold, ``f^(-k)(Z)``: in sample isotonic regression is reliable by construction.

The intervals hold the noise of the labels, not that of f. They are Wilson's for binary labels (the ends of
``oracle_range``) of one row per cluster, t intervals by cluster otherwise.
"""

from hashlib import blake2b
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from cje_core.calibration.bands import resampled
from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import MODES, Calibrator, index, predict
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.calibration.oracle_slice import OracleSlice, held_out, refit
from cje_core.calibration.two_stage import MIN_ROWS, evaluate
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data import DataError
from cje_core.data.arrays import Rows
from cje_core.data.cohorts import group_codes
from cje_core.data.construct import dataset
from cje_core.formulas.proportions import wilson
from cje_core.inference.contrasts import adjust_p
from cje_core.inference.estimate import CI_BOUND, wald
from cje_core.inference.influence import hajek, make_part, mean_over
from cje_core.inference.sums import cluster_se, sum_by

N_GRID = 101
N_BAND = 60  # resamples of a band: two-stage fits take milliseconds
FLAT = 0.1  # slope, in oracle ranges per judge range, below which a boundary counts as flat


def reliability(data: xr.Dataset | Calibrated, *, n_bins: int = 10, ci_prob: float = 0.95) -> xr.Dataset:
    """Reliability table of the calibrator on the labelled slice.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    n_bins : int
        Bins of equal mass of the judge score; fewer where scores are tied, since equal scores share a bin.
    ci_prob : float
        Probability of each bin's interval.

    Returns
    -------
    xr.Dataset
        Over ``bin``: ``score_low``, ``score_high``, ``n`` (labels), ``reward_mean`` (out of fold), ``oracle_mean``,
        ``interval(bin, ci_bound)`` of the oracle mean (NaN for a bin of one cluster, unless binary). Attributes:
        ``mode``, ``ci_prob``, ``oof_rmse``, ``oof_rmse_tertile`` (lowest to highest third of the scores; NaN for one
        that ties leave empty), ``reliability_term`` (weighted mean over bins of squared oracle mean minus reward mean),
        ``covers_diagonal`` (1 if all bins' simultaneous (Bonferroni) intervals contain their reward, else 0),
        ``fingerprint`` of the calibrator. Scalar ``status`` of the slice. With fewer than 4 labelled prompts it is
        TOO_FEW_LABELS or NO_LABELS: one bin and attributes of NaN, ``n`` aside.
    """
    probability(ci_prob)
    if n_bins < 1:
        raise ValueError(f"n_bins={n_bins}: there must be at least 1")
    data, rows, fitted = calibrated(data).parts
    if fitted.calibrator is None:
        nothing: dict[str, Any] = {
            key: [np.nan] for key in ("score_low", "score_high", "reward_mean", "oracle_mean")
        }
        nothing |= {"n": [len(fitted.label)], "interval": np.full((1, 2), np.nan)}
        unsaid = dict.fromkeys(("oof_rmse", "reliability_term", "covers_diagonal"), np.nan)
        return _table(
            fitted, ci_prob, nothing, {**unsaid, "oof_rmse_tertile": [np.nan] * 3, "fingerprint": ""}
        )
    reward = held_out(fitted, fitted.z, fitted.prompt)
    share = fitted.weight / fitted.weight.sum()
    score = fitted.z[:, 0]
    code, n_codes = _bins(score, n_bins)
    mass = sum_by(code, share, n_codes)
    reward_mean = sum_by(code, share * reward, n_codes) / mass
    oracle_mean = sum_by(code, share * fitted.label, n_codes) / mass
    members = [np.flatnonzero(code == b) for b in range(n_codes)]
    low, high = data.attrs["oracle_range"]
    interval, joint = (
        np.stack([_mean_interval(rows, fitted, at, prob, (low, high)) for at in members])
        for prob in (ci_prob, 1 - (1 - ci_prob) / n_codes)
    )
    seen = np.isfinite(joint).all(axis=1)
    covers = (joint[seen, 0] <= reward_mean[seen]) & (reward_mean[seen] <= joint[seen, 1])
    loss = (fitted.label - reward) ** 2
    third = _thirds(score)
    with np.errstate(invalid="ignore"):
        tertile = np.sqrt(sum_by(third, share * loss, 3) / sum_by(third, share, 3))
    columns = {
        "score_low": [score[at].min() for at in members],
        "score_high": [score[at].max() for at in members],
        "n": [len(at) for at in members],
        "reward_mean": reward_mean,
        "oracle_mean": oracle_mean,
        "interval": interval,
    }
    said = {
        "oof_rmse": float(np.sqrt((share * loss).sum())),
        "oof_rmse_tertile": tertile.tolist(),
        "reliability_term": float((mass * (oracle_mean - reward_mean) ** 2).sum()),
        "covers_diagonal": int(covers.all()),
        "fingerprint": fingerprint(fitted.calibrator),
    }
    return _table(fitted, ci_prob, columns, said)


def _noise_within(left: FloatArray, weight: FloatArray, group: IntArray) -> float:
    """Standard deviation of residuals around the mean of their group, of all groups together."""
    total = np.maximum(np.bincount(group, weight), 1e-300)
    around = left - (np.bincount(group, weight * left) / total)[group]
    return float(np.sqrt(np.average(around**2, weights=weight)))


def reliability_by_group(
    data: xr.Dataset | Calibrated, group: str, *, fdr: float = 0.05, ci_prob: float = 0.95
) -> xr.Dataset:
    """Is the calibrated reward right in every group of prompts? One false discovery rate over all groups.

    Estimand: ``E[Y - f(Z) | group]`` of the policies that taught f, zero where f means the same in every group. Rewards
    are out of fold. The t test by cluster counts the noise of the group's labels; that of f, which these labels helped
    to teach, would make it smaller, so the test is the more conservative the larger the group's share is.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    group : str
        Variable over ``prompt``, for instance ``cohort``.
    fdr : float
        Level of the Benjamini-Hochberg procedure over the groups.
    ci_prob : float
        Probability of each interval, not adjusted.

    Returns
    -------
    xr.Dataset
        Over ``group``, in order of name: ``n_labels``; ``residual`` (label less reward, oracle units), ``std_error``,
        ``interval``, ``p_value``, ``p_bh``, ``flagged`` (``p_bh <= fdr``); ``slope`` of the label in the reward (1
        where rewards are reliable; noise in f makes it smaller) with ``slope_interval``; ``oof_rmse``. NaN, and never
        flagged, with fewer than 4 labelled prompts, and without a calibrator.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> data["topic"] = "prompt", ["code", "prose", "maths"] * 100
    >>> reliability_by_group(data, "topic")["group"].values.tolist()
    ['code', 'maths', 'prose']
    """
    probability(ci_prob)
    probability(fdr, "fdr")
    data, rows, fitted = calibrated(data).parts
    names, code = group_codes(data, group)
    residual, std_error, df, slope, slope_error, rmse = np.full((6, len(names)), np.nan)
    of_label = code[fitted.prompt]
    taught = fitted.calibrator is not None
    reward = held_out(fitted, fitted.z, fitted.prompt) if taught else np.full(len(of_label), np.nan)
    noise_of_all = _noise_within(fitted.label - reward, fitted.weight, of_label) if taught else np.nan
    for g in range(len(names) if taught else 0):
        at = np.flatnonzero(of_label == g)
        if len(np.unique(rows.cluster[fitted.prompt[at]])) < MIN_LABELLED_CLUSTERS:
            continue
        means = mean_over(fitted.prompt[at], fitted.weight[at], rows.cluster)
        left = fitted.label[at] - reward[at]
        residual[g], part = means.part(left)
        shares = sum_by(rows.cluster[fitted.prompt[at]], means.share, len(rows.cluster_names))
        alike = noise_of_all * np.sqrt(
            (shares**2).sum()
        )  # labels of a group that are all alike show no noise
        std_error[g] = max(float(cluster_se(part.influence, rows.cluster)), float(alike))
        df[g] = part.df
        rmse[g] = np.sqrt((means.share * left**2).sum())
        from_mean = reward[at] - (means.share * reward[at]).sum()
        spread = float((means.share * from_mean**2).sum())
        if spread > (1e-9 * np.ptp(data.attrs["oracle_range"])) ** 2:
            slope[g] = (means.share * from_mean * fitted.label[at]).sum() / spread
            noise = fitted.label[at] - (means.share * fitted.label[at]).sum() - slope[g] * from_mean
            moves = sum_by(
                rows.cluster[fitted.prompt[at]], means.share * from_mean * noise, len(rows.cluster_names)
            )
            m = df[g] + 1  # effective clusters; a line has two parameters
            slope_error[g] = np.sqrt((moves**2).sum() * m / max(m - 2, 1.0)) / spread
    spread_seen = std_error > 0
    ratio = np.divide(np.abs(residual), std_error, out=np.full(len(names), np.nan), where=spread_seen)
    p_value = 2 * special.stdtr(df, -ratio)
    p_bh = adjust_p(p_value, "bh")
    by_end = ("group", "ci_bound")
    return dataset(
        {
            "n_labels": ("group", np.bincount(of_label, minlength=len(names))),
            "residual": ("group", residual),
            "std_error": ("group", std_error),
            "interval": (by_end, wald(residual, std_error, df, ci_prob)),
            "p_value": ("group", p_value),
            "p_bh": ("group", p_bh),
            "flagged": ("group", p_bh <= fdr),
            "slope": ("group", slope),
            "slope_interval": (by_end, wald(slope, slope_error, np.maximum(df - 1, 1), ci_prob)),
            "oof_rmse": ("group", rmse),
        },
        coords={"group": names, "ci_bound": CI_BOUND},
        attrs={"ci_prob": float(ci_prob), "fdr": fdr, "variable": group},
    )


def _table(fitted: OracleSlice, ci_prob: float, columns: dict[str, Any], said: dict[str, Any]) -> xr.Dataset:
    """Columns over bins, with what is said of them together."""
    dims = {name: ("bin", "ci_bound") if name == "interval" else ("bin",) for name in columns}
    return xr.Dataset(
        {name: (dims[name], column) for name, column in columns.items()} | {"status": np.int8(fitted.status)},
        coords={"bin": np.arange(len(columns["n"])), "ci_bound": CI_BOUND},
        attrs={"mode": fitted.mode, "ci_prob": float(ci_prob), **said},
    )


def _bins(score: FloatArray, n_bins: int) -> tuple[IntArray, int]:
    """Bin of each score: upper edges at the quantiles, equal ones once, so that ties stay together."""
    edge = np.unique(np.quantile(score, np.arange(1, n_bins + 1) / n_bins, method="inverted_cdf"))
    return np.searchsorted(edge, score), len(edge)


def _thirds(score: FloatArray) -> IntArray:
    """Third of each score by its mid-rank: ties stay together, and a third may be empty."""
    _, code, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - count / 2) / len(score)
    return np.asarray(np.minimum((rank * 3).astype(np.intp), 2)[code])


def _mean_interval(
    rows: Rows, fitted: OracleSlice, at: IntArray, ci_prob: float, scale: tuple[float, float]
) -> FloatArray:
    """Interval of the mean oracle label of some rows of the slice, shape (2,); binary labels are the scale's ends."""
    label, weight, cluster = fitted.label[at], fitted.weight[at], rows.cluster[fitted.prompt[at]]
    alone = len(np.unique(cluster)) == len(cluster)
    if np.isin(label, scale).all() and alone and np.ptp(weight) == 0:
        low, high = scale
        return np.asarray(low + (high - low) * wilson((label == high).mean(), len(label), ci_prob))
    n = len(rows.prompts)
    mean, error, leverage = hajek(fitted.prompt[at], weight, label, n)
    part = make_part(n * error, leverage, rows.cluster)
    return np.asarray(wald(mean, cluster_se(part.influence, rows.cluster), part.df, ci_prob))


def fingerprint(calibrator: Calibrator) -> str:
    """Hash of a calibrator's mode, knots and levels (to 9 digits): equal where two fits are the same function."""
    text = [calibrator.mode, f"{calibrator.sign:g}"]
    text += [f"{v:.8e}" for v in np.concatenate([calibrator.knot, calibrator.value]) + 0.0]
    return blake2b(" ".join(text).encode(), digest_size=8).hexdigest()


def coverage_badge(data: xr.Dataset | Calibrated) -> xr.Dataset:
    """How far each policy's responses lie within the range that the labelled slice teaches about.

    Parameters
    ----------
    data : xr.Dataset or Calibrated

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``out_of_range`` (share of the evaluated prompts' mass with a judge score outside the slice's
        range; NaN without responses), ``out_low``, ``out_high`` (its two sides), ``labels_near`` (labels whose score
        lies between the 10th and 90th percentile of the policy's own scores), and the same for every policy:
        ``slope_low``, ``slope_high``, slopes of f over the lowest and highest decile of the slice's scores (covariates
        at their slice means; where a decile is a single level, to the next level), in oracle ranges per judge
        range, and ``flat_low``, ``flat_high``, true where its size is below `FLAT`. Scalars: ``score_low`` and
        ``score_high``, the slice's range, and its ``status``. With fewer than 4 labelled prompts that is
        TOO_FEW_LABELS or NO_LABELS, and all but ``labels_near`` are NaN.
    """
    data, rows, fitted = calibrated(data).parts
    f, score = fitted.calibrator, np.sort(fitted.z[:, 0])
    low, high = (np.nan, np.nan) if f is None else (score[0], score[-1])
    outside = np.full((2, len(rows.policies)), np.nan)
    near = np.zeros(len(rows.policies), dtype=np.intp)
    for p in range(len(rows.policies)):
        at = np.flatnonzero((rows.policy == p) & rows.evaluated)
        if len(at):
            share, own = rows.weight[at] / rows.weight[at].sum(), rows.score[at]
            if f is not None:
                outside[:, p] = (share * (own < low)).sum(), (share * (own > high)).sum()
            ranked = np.argsort(own, kind="stable")
            inner = own[ranked][np.searchsorted(np.cumsum(share[ranked]), [0.1 - 1e-9, 0.9 - 1e-9])]
            near[p] = ((score >= inner[0]) & (score <= inner[1])).sum()
    judge, oracle = np.ptp(data.attrs["judge_range"]), np.ptp(data.attrs["oracle_range"])
    slope = [np.nan, np.nan] if f is None else _end_slopes(fitted, f, score, float(judge), float(oracle))
    columns = {"out_of_range": outside.sum(axis=0), "labels_near": near}
    for k, side in enumerate(("low", "high")):
        columns[f"out_{side}"] = outside[k]
        columns[f"slope_{side}"] = np.full(len(near), slope[k])
        columns[f"flat_{side}"] = np.full(len(near), np.nan if f is None else abs(slope[k]) < FLAT)
    order = [rows.policies.index(str(name)) for name in data.policy.values]
    return xr.Dataset(
        {name: ("policy", column[order]) for name, column in columns.items()}
        | {"score_low": low, "score_high": high, "status": np.int8(fitted.status)},
        coords={"policy": data.policy.values},
        attrs={
            "mode": fitted.mode,
            "n_labels": len(score),
            "fingerprint": "" if f is None else fingerprint(f),
        },
    )


def _end_slopes(
    fitted: OracleSlice, f: Calibrator, score: FloatArray, judge: float, oracle: float
) -> list[float]:
    """Slopes of f over the lowest and the highest decile of the sorted scores, in oracle ranges per judge range."""
    level = np.unique(score)
    decile = np.quantile(score, [0.1, 0.9], method="inverted_cdf")
    slope = []
    for end, neighbour, inner_edge in zip(level[[0, -1]], (level[1:2], level[-2:-1]), decile, strict=True):
        other = np.array([inner_edge]) if inner_edge != end else neighbour
        rise = predict(f, _at_score(fitted, np.concatenate([[end], other])))
        slope.append(float(np.diff(rise)[0] / (other[0] - end) * judge / oracle) if len(other) else 0.0)
    return slope


def _at_score(fitted: OracleSlice, score: FloatArray) -> FloatArray:
    """Rows of Z with given judge scores and the slice's mean covariates."""
    z = np.tile(fitted.weight @ fitted.z / fitted.weight.sum(), (len(score), 1))
    z[:, 0] = score
    return z


def _effects(
    fitted: OracleSlice, slice_mean: FloatArray, calibrator: Calibrator, n_grid: int = N_GRID
) -> FloatArray:
    """First stage of a calibrator along each covariate, the others at their means, less its mean over the slice."""
    first_stage, found = calibrator.first_stage, []
    assert first_stage is not None
    for c in range(1, fitted.z.shape[1]):
        z = np.tile(slice_mean, (n_grid, 1))
        z[:, c] = np.linspace(fitted.z[:, c].min(), fitted.z[:, c].max(), n_grid)
        own = np.tile(slice_mean, (len(fitted.z), 1))
        own[:, c] = fitted.z[:, c]
        found.append(evaluate(first_stage, z) - np.average(evaluate(first_stage, own), weights=fitted.weight))
    return np.reshape(found, (fitted.z.shape[1] - 1, n_grid))


def _around(bound: FloatArray, value: FloatArray) -> FloatArray:
    """A band (2, n) as (n, 2) that holds the curve."""
    return np.stack([np.minimum(bound[0], value), np.maximum(bound[1], value)], axis=-1)


def calibration_curve(data: xr.Dataset | Calibrated, *, n_grid: int = N_GRID) -> xr.Dataset:
    """The paper's two figures of the calibrator: monotone against two-stage, and the effect of each covariate.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With at least 20 labels; else it is a `DataError`.
    n_grid : int
        Points per curve.

    Returns
    -------
    xr.Dataset
        Over ``score`` (a grid over the slice's range): rewards ``monotone``, ``two_stage``, ``two_stage_monotone``
        with covariates at their slice means. Over ``(feature, point)``: ``covariate_value`` and ``partial_effect``, the
        first stage at the mean judge score, in label units less its mean over the slice. Over ``point``: ``index``
        and ``reward``, the second stage. ``two_stage_interval``, ``partial_effect_interval`` and ``reward_interval``
        are pointwise 95% bands by resampled prompts (`cje_core.calibration.bands`). Over ``label``: ``label_score``,
        ``label_value``, the slice itself.
    """
    given = calibrated(data)
    covariates, fitted = given.calibration.covariates, given.slice_as("two_stage")
    if fitted.mode != "two_stage" or fitted.calibrator is None or fitted.calibrator.first_stage is None:
        raise DataError(f"{len(fitted.label)} labels; the two-stage calibrator needs {MIN_ROWS}")
    two_stage, first_stage = fitted.calibrator, fitted.calibrator.first_stage
    grid = np.linspace(fitted.z[:, 0].min(), fitted.z[:, 0].max(), n_grid)
    at_grid = _at_score(fitted, grid)
    slice_mean = _at_score(fitted, fitted.weight @ fitted.z[:, :1] / fitted.weight.sum())
    values = [np.linspace(column.min(), column.max(), n_grid) for column in fitted.z.T[1:]]
    effects = _effects(fitted, slice_mean, two_stage, n_grid)
    span = index(two_stage, fitted.z)
    at_index = np.linspace(span.min(), span.max(), n_grid)
    everything = np.ones(len(fitted.label), dtype=bool)
    fits = {mode: refit(fitted._replace(mode=mode), everything, None) for mode in MODES}
    shape = (len(covariates), n_grid)
    cluster, steps = given.rows.cluster, np.interp(at_index, two_stage.knot, two_stage.value)

    def drawn(f: Calibrator) -> FloatArray:
        effect = _effects(fitted, slice_mean, f, n_grid)
        return np.vstack([predict(f, at_grid), np.interp(at_index, f.knot, f.value), effect])

    bound = resampled(fitted, cluster, drawn, n_resamples=N_BAND)
    return xr.Dataset(
        {
            **{mode: ("score", predict(f, at_grid)) for mode, f in fits.items()},
            "covariate_value": (("feature", "point"), np.reshape(values, shape)),
            "partial_effect": (("feature", "point"), np.reshape(effects, shape)),
            "index": ("point", at_index),
            "partial_effect_interval": (("feature", "point", "ci_bound"), np.moveaxis(bound[:, 2:], 0, -1)),
            "reward": ("point", steps),
            "reward_interval": (("point", "ci_bound"), _around(bound[:, 1], steps)),
            "two_stage_interval": (("score", "ci_bound"), _around(bound[:, 0], predict(two_stage, at_grid))),
            "label_score": ("label", fitted.z[:, 0]),
            "label_value": ("label", fitted.label),
        },
        coords={
            "score": grid,
            "feature": list(covariates),
            "point": np.arange(n_grid),
            "ci_bound": ["lower", "upper"],
        },
        attrs={
            "ci_prob": 0.95,
            "direction": given.calibration.direction,
            "penalty": first_stage.penalty,
            "edf": first_stage.edf,
        },
    )
