"""Whether the labelled policies agree about what a judge score is worth.

One calibrator f is taught by the labels of all calibration policies, and a policy without labels borrows what it says.
Where those policies do not share one ``E[Y | Z]`` (a higher score is better under one and worse under the other; one is
graded .3 lower at the same score) f is an average of relations that nobody has, and so is what is borrowed. A policy's
own value does not suffer: its labels correct it.

The check leaves one policy out and sets its labels against those of the other calibration policies: one side teaches
f, and the labels of the other are audited against it as `cje_core.transport.audit` audits probes,

    mean over the audited labels of  Y - f(Z),

weighted by the inverse label probabilities, over the labels whose Z lies within the range of those that teach: beyond
it f is an extension, and a policy that lives there contradicts nothing. The side with fewer labels is audited: few
labels teach f badly and, if they are binary, without a sign of it, since blocks of equal labels have no residuals. The
residual is given as that of the policy (the sign is turned where the others were audited). The interval carries the
noise of both sides (``interval_with_fit`` there), since the question is whether the relations differ and not how far
this f is off. A policy *contradicts* the others where its interval lies outside ``[-margin, margin]`` entirely. So that
errors that cancel over the scale are seen, the same is asked in up to three regions of the audited scores.

All intervals hold together: of ``1 - ci_prob`` half is spent on the means and half on the regions, each shared equally
among the policies checked (and the regions). Agreement is not shown by the absence of a contradiction: few labels
contradict nothing. In 20 worlds of two policies with one relation (a line; continuous, binary, weak, rare and discrete
judges and labels; 20, 60 and 250 labels of each and 15 beside 300; Beta scores of different means), at most 2.4% of 250
data sets each (Monte Carlo SE .010) contradict. With few labels that teach and many that are audited 40% did, of binary
ones (15 and 300, SE .024). A relation reversed is found in .34, .86 and 1.00 of data sets with 20, 50 and 250 binary
labels of each, a shift of .3 in .37, .77 and 1.00 (200 data sets each, SE up to .034).

Failure modes: a difference inside the margin, or in scores that only one of the policies has, is not seen; an
isotonic fit to few labels is biased at the ends of its scale, which only the margin forgives.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import OracleSlice, fit_slice
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset, in_order
from cje_core.inference.estimate import CI_BOUND, Status, wald
from cje_core.transport.audit import constant_bounds, mean_residual
from cje_core.transport.local_audits import score_bins
from cje_core.transport.margin import harmless_margin

REGIONS = 3  # most regions of a policy's scores, each with five labelled clusters or more
REASON = (
    "the labels that it borrows from contradict each other about what a score is worth: choose whose to borrow "
    "(calibration policy), or label this policy"
)


class Comparison(NamedTuple):
    """Labels of one policy against those of the others."""

    rows: Rows  # in which one side teaches
    fitted: OracleSlice
    audited: IntArray  # labels of the other side, within the range of those that teach
    sign: float  # -1 where the others are audited


def agreement(
    data: xr.Dataset | Calibrated, *, margin: float | None = None, ci_prob: float = 0.95
) -> xr.Dataset:
    """Check each labelled policy's labels against the calibrator of the other calibration policies; see the module.

    A labelled policy that is no calibration policy is checked too: nobody borrows from its labels, but they show
    whether the calibration that was chosen holds for it.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    margin : float, optional
        Largest harmless mean residual, in units of the oracle scale; by default 5% of the width of ``oracle_range``.
    ci_prob : float
        Probability that all intervals hold together.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``residual``, ``interval``, ``n_labels`` (of those audited), ``teaches`` (whether it is among
        several calibration policies), ``contradicts``; ``shown_residual`` and ``shown_interval``, those of the mean, or
        of the region furthest beyond the margin where only regions are. Over ``policy, region``: ``region_residual``,
        ``region_interval``, ``score_low``, ``score_high``; ``shown_region`` is -1 for the mean. NaN where fewer than
        four prompts can be compared.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> agreement(data)["contradicts"].to_series().to_dict()
    {'base': False, 'better': False, 'slightly_better': False, 'worse': False}
    """
    given = calibrated(data)
    data, rows = given.data, given.rows
    low, high = data.attrs["oracle_range"]
    scale = float(low), float(high)
    margin = harmless_margin(margin, scale)
    probability(ci_prob)
    n_policies = len(rows.policies)
    pairs = {p: _against_others(rows, p, given.calibration) for p in range(n_policies)}
    checked = {p: pair for p, pair in pairs.items() if pair is not None}
    alpha = (1 - ci_prob) / 2 / max(len(checked), 1)
    residual, shown_residual = np.full((2, n_policies), np.nan)
    interval, shown_interval = np.full((2, n_policies, 2), np.nan)
    by_region, score_low, score_high = np.full((3, n_policies, REGIONS), np.nan)
    region_interval = np.full((n_policies, REGIONS, 2), np.nan)
    n_labels, shown = np.zeros(n_policies, dtype=int), np.full(n_policies, -1)
    for p, pair in checked.items():
        n_labels[p] = len(pair.audited)
        residual[p], interval[p] = _residual(pair, pair.audited, 1 - alpha, scale)
        cluster = rows.cluster[rows.prompt[pair.audited]]
        code = score_bins(rows.score[pair.audited], cluster, REGIONS)
        members = [pair.audited[code == b] for b in range(int(code.max()) + 1)]
        for b, inside in enumerate(members if len(members) > 1 else []):
            by_region[p, b], region_interval[p, b] = _residual(pair, inside, 1 - alpha / len(members), scale)
            score_low[p, b], score_high[p, b] = rows.score[inside].min(), rows.score[inside].max()
        beyond = _beyond(region_interval[p], margin)
        if not _beyond(interval[p][None], margin)[0] > 0 and (beyond > 0).any():
            shown[p] = int(np.argmax(beyond))
        at = shown[p]
        shown_residual[p], shown_interval[p] = (
            (residual[p], interval[p]) if at < 0 else (by_region[p, at], region_interval[p, at])
        )
    teachers = np.unique(rows.policy[rows.teaches])
    teaches = np.isin(np.arange(n_policies), teachers) & (len(teachers) > 1)
    cell = ("policy", "region")
    out = dataset(
        {
            "residual": ("policy", residual),
            "interval": (("policy", "ci_bound"), interval),
            "n_labels": ("policy", n_labels),
            "teaches": ("policy", teaches),
            "contradicts": ("policy", _beyond(shown_interval, margin) > 0),
            "shown_region": ("policy", shown),
            "shown_residual": ("policy", shown_residual),
            "shown_interval": (("policy", "ci_bound"), shown_interval),
            "region_residual": (cell, by_region),
            "region_interval": ((*cell, "ci_bound"), region_interval),
            "score_low": (cell, score_low),
            "score_high": (cell, score_high),
        },
        coords={"policy": rows.policies, "region": np.arange(REGIONS), "ci_bound": CI_BOUND},
        attrs={"margin": margin, "ci_prob": ci_prob},
    )
    return in_order(out, data)


def mixed(found: xr.Dataset) -> bool:
    """Whether calibration policies contradict each other (`agreement`): what is borrowed is an average of relations."""
    return bool((found["contradicts"].values & found["teaches"].values).any())


def refuse_mixed(levels: xr.Dataset, found: xr.Dataset) -> xr.Dataset:
    """Refuse levels that borrow from labels that contradict each other, ``refused_by`` agreement.

    A caution would not do: the number has no relation behind it that any policy was seen to have. With one calibration
    policy chosen there is one, and the level is assumed again. Levels are those of `cje_core.verdict.refusal.level`;
    values that own labels or probes make stay as they are.
    """
    if not mixed(found):
        return levels
    lent = np.isin(levels["source"].values, ["borrowed", "logs"]) & (levels["level"].values == "assumed")
    said = {"level": "refused", "refused_by": "agreement", "reason": REASON}
    return levels.assign(
        {k: levels[k].astype(str).where(~lent, word).astype(str) for k, word in said.items()}
    )


def _against_others(rows: Rows, p: int, calibration: Calibration) -> Comparison | None:
    """Labels of policy p against those of the other calibration policies; None where too few can be compared."""
    mine = rows.labelled & (rows.policy == p)
    others = rows.teaches & (rows.policy != p)
    if not mine.any() or not others.any():
        return None
    fewer = count_clusters(rows, mine) <= count_clusters(rows, others)
    audited, teaches, sign = (mine, others, 1.0) if fewer else (others, mine, -1.0)
    prob = np.where(rows.labelled, rows.label_prob, 1.0)
    recast = rows._replace(teaches=teaches, weight=rows.weight / prob)
    fitted = fit_slice(
        recast,
        direction=calibration.direction,
        calibrator=calibration.mode,
        every_fold=False,
        folds=calibration.folds,
    )
    if fitted.calibrator is None or fitted.status is Status.CONSTANT_LABELS:
        return None
    within = ((rows.z >= fitted.z.min(axis=0)) & (rows.z <= fitted.z.max(axis=0))).all(axis=1)
    index = np.flatnonzero(audited & within)
    enough = count_clusters(rows, index) >= MIN_LABELLED_CLUSTERS
    return Comparison(recast, fitted, index, sign) if enough else None


def _residual(
    found: Comparison, labels: IntArray, ci_prob: float, scale: tuple[float, float]
) -> tuple[float, FloatArray]:
    """Mean residual of some audited labels and its interval, with the noise of both sides; NaN where they are few."""
    rows, fitted, _, sign = found
    mean = mean_residual(rows, fitted, labels)
    if mean is None:
        return np.nan, np.full(2, np.nan)
    if np.isnan(mean.std_error):
        parts = [mean.noise, mean.fit_noise]
        interval = constant_bounds(rows, mean.value, parts, labels, ci_prob, scale)
    else:
        interval = wald(mean.value, mean.std_error_with_fit, mean.df_with_fit, ci_prob)
    return sign * mean.value, np.sort(sign * interval)


def _beyond(interval: FloatArray, margin: float) -> FloatArray:
    """How far intervals, shape (k, 2), lie outside ``[-margin, margin]``; not above 0 where they touch it."""
    return np.nan_to_num(np.maximum(interval[:, 0] - margin, -margin - interval[:, 1]), nan=-1.0)
