"""The arithmetic that PPI and PPI++ share: label mean plus lambda times the gap in judge scores.

``theta = sum_L v (Y - lambda S) + lambda sum_U u S``, v and u the normalised weights of the labelled and the
unlabelled responses. Any lambda that does not look at the labels it corrects is unbiased; 1 is PPI, 0 the label mean.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, assign_folds, count_clusters
from cje_core.checks import BoolArray, FloatArray, IntArray, one_of
from cje_core.data.arrays import Rows, taken
from cje_core.families.finish import PolicyResult
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, combine, mean_part

QUANTILES = ("t", "z")


def oracle_units(given: Calibrated) -> FloatArray:
    """Judge score of each row, mapped affinely from ``judge_range`` to ``oracle_range``."""
    (low, high), (bottom, top) = given.judge_range, given.scale
    return np.asarray(bottom + (given.rows.score - low) / (high - low) * (top - bottom))


def powered_means(
    given: Calibrated, lam: str | float, *, quantile: str
) -> tuple[list[PolicyResult], list[float]]:
    """`powered_mean` of every policy, and the lambda of each."""
    one_of(quantile, "quantile", QUANTILES)
    rows, score = given.rows, oracle_units(given)
    pairs = [powered_mean(rows, p, score, lam, quantile=quantile) for p in range(len(rows.policies))]
    return [result for result, _ in pairs], [used for _, used in pairs]


class Sets(NamedTuple):
    """The two samples of one policy, by place among its responses, with normalised weights that sum to one."""

    route: str
    labelled: IntArray
    label_share: FloatArray
    unlabelled: IntArray
    score_share: FloatArray


def powered_mean(
    rows: Rows, p: int, score: FloatArray, lam: str | float, *, quantile: str
) -> tuple[PolicyResult, float]:
    """Prediction-powered mean of policy p, and the lambda it used.

    Parameters
    ----------
    score : array, shape (rows,)
        Judge scores in oracle units.
    lam : {"tuned", "cross_fitted"} or float
    quantile : {"t", "z"}
        ``z``: the variances of ppi-python, divided by counts, and a normal interval.
    """
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    own = index[rows.labelled[index]]
    if len(index) == 0:
        return PolicyResult(Status.NO_RESPONSES, "none"), np.nan
    if count_clusters(rows, own) < MIN_LABELLED_CLUSTERS:
        return PolicyResult(Status.TOO_FEW_LABELS if len(own) else Status.NO_LABELS, "none"), np.nan
    label, mine = rows.label[own], taken(score, index)
    status = Status.CONSTANT_LABELS if (label == label[0]).all() else Status.OK
    if len(own) == len(index):
        value, part = mean_part(rows, own, label, rows.weight[own])
        parts = [_as_peer(part) if quantile == "z" else part]
        return PolicyResult(status, "label_mean", "own", value, *combine(parts, rows.cluster)), 0.0
    if status is Status.OK and (mine == mine[0]).all():
        status = Status.CONSTANT_JUDGE
    sets = _sets(rows, index, own)
    used, spent = _lambdas(rows, own, sets, mine, lam)
    lam_mean = float((sets.label_share * used).sum())
    center, scores = mean_part(rows, index[sets.unlabelled], mine[sets.unlabelled], sets.score_share)
    left = label - used * (mine[sets.labelled] - center)
    value, rectifier = mean_part(rows, own, left, sets.label_share)
    scores = Part(lam_mean * scores.influence, scores.df)
    if quantile == "z":
        parts = [_as_peer(scores), _as_peer(rectifier)]
    else:
        parts = [scores, _spend(rectifier) if spent else rectifier]
    return PolicyResult(status, sets.route, "own", value, *combine(parts, rows.cluster)), lam_mean


def _sets(rows: Rows, index: IntArray, own: IntArray) -> Sets:
    """Labelled against unlabelled responses where both are random samples; against all responses where they are not.

    With unequal ``label_prob`` the unlabelled responses are no random sample (a response with probability one is never
    among them), so the score mean runs over all responses; likewise where too few are unlabelled to show a spread.
    """
    has_label, prob = taken(rows.labelled, index), rows.label_prob[own]
    rest = np.flatnonzero(~has_label)
    separate = (prob == prob[0]).all() and count_clusters(rows, index[rest]) >= MIN_LABELLED_CLUSTERS
    other = rest if separate else np.arange(len(index))
    v, u = rows.weight[own] / prob, rows.weight[index[other]]
    route = "unlabelled" if separate else "all_rows"
    return Sets(route, np.flatnonzero(has_label), v / v.sum(), other, u / u.sum())


def _lambdas(
    rows: Rows, own: IntArray, sets: Sets, score: FloatArray, lam: str | float
) -> tuple[FloatArray, bool]:
    """Lambda of each labelled row, and whether it was learned from that row itself; ``score`` is of all responses.

    The variance of theta is least at ``lambda = Cov(sum_L v Y, D) / -Var(D)`` with D the gap in mean scores between the
    two sets. Over separate sets the variance of S is pooled, as PPI++ does: for equal weights this is
    ``Cov_L(Y, S) / (Var(S) (1 + n / N))``. Correlation inside clusters is ignored, which costs width, not level.
    """
    if not isinstance(lam, str):
        return np.full(len(own), float(lam)), False
    share, apart = np.zeros(len(score)), score - score.mean()
    share[sets.labelled] = sets.label_share
    share[sets.unlabelled] -= sets.score_share
    if sets.route == "unlabelled":
        spread = float(apart @ apart) / (len(score) - 1) * float(share @ share)
    else:
        spread = float((share * apart) @ (share * apart))
    if not spread > 0:
        return np.zeros(len(own)), False
    slope_weight, own_score = sets.label_share * share[sets.labelled], score[sets.labelled]

    def tuned(train: BoolArray | slice) -> float:
        w = sets.label_share[train] / sets.label_share[train].sum()
        y, s = rows.label[own[train]], own_score[train]
        products = slope_weight[train] * (y - w @ y) * (s - w @ s)
        scale = (sets.label_share**2).sum() / (sets.label_share[train] ** 2).sum()
        return min(max(float(scale * products.sum() / spread), 0.0), 1.0)

    if lam == "tuned":
        return np.full(len(own), tuned(slice(None))), True
    has_label = np.zeros(len(rows.cluster_names), dtype=bool)
    has_label[rows.cluster[rows.prompt[own]]] = True
    fold = assign_folds(rows.cluster_names, has_label, asked=False, given=rows.fold)
    fold = fold[rows.cluster[rows.prompt[own]]]
    by_fold = {int(k): tuned(fold != k) for k in np.unique(fold)}
    return np.array([by_fold[int(k)] for k in fold]), False


def _as_peer(part: Part) -> Part:
    """Without the factor m / (m - 1), and normal."""
    return Part(part.influence * np.sqrt(part.df / (part.df + 1)), np.inf)


def _spend(part: Part) -> Part:
    """One degree of freedom for a lambda fitted to its own residuals; below three clusters, half of what is left."""
    df = max(part.df - 1, part.df / 2)
    return Part(part.influence * np.sqrt(part.df / df), df)
