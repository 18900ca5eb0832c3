"""Judge-to-oracle calibrators: R = f(S).

The monotone calibrator is isotonic regression of the oracle label on the judge score (the paper's monotone-only
mode). Its knots are the distinct labelled scores, between knots it is linear and outside it is constant, at fit and
at prediction alike; so the slice mean is preserved exactly: ``sum_L w f(S) = sum_L w Y``.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from cje_core.data import Rows
from cje_core.folds import MIN_LABELLED_CLUSTERS, assign_folds
from cje_core.isotonic import isotonic
from cje_core.result import Status, sum_by
from cje_core.uncertainty import Part, effective_clusters, make_part

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


class Calibrator(NamedTuple):
    """A monotone calibrator; ``sign`` is -1 for a decreasing one (knots are then negated scores)."""

    knot: FloatArray  # distinct labelled scores times sign, increasing
    value: FloatArray  # fitted label at each knot
    weight: FloatArray  # label weight at each knot
    block: IntArray  # constant block of each knot
    sign: float


def fit_monotone(
    score: FloatArray, label: FloatArray, weight: FloatArray | None = None, *, increasing: bool = True
) -> Calibrator:
    """Isotonic calibrator of ``E[Y | S]`` on the labelled slice.

    Parameters
    ----------
    score, label : arrays, shape (m,)
        Judge scores and oracle labels, ``m >= 1``.
    weight : array, shape (m,), optional
        Positive row weights (inverse label probabilities).
    increasing : bool
        Direction of the fit.

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> f = fit_monotone(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0.0, 1.0, 0.0, 1.0]))
    >>> predict(f, np.array([0.0, 0.3, 0.5, 2.0])).round(6).tolist()
    [0.0, 0.25, 0.5, 1.0]
    """
    if len(score) == 0:
        raise ValueError("a calibrator needs at least one labelled row")
    w = np.ones(len(score)) if weight is None else np.asarray(weight, float)
    sign = 1.0 if increasing else -1.0
    knot, code = np.unique(sign * np.asarray(score, float), return_inverse=True)
    total = sum_by(code, w, len(knot))
    value, block = isotonic(sum_by(code, w * label, len(knot)) / total, total)
    return Calibrator(knot, value, total, block, sign)


def predict(calibrator: Calibrator, score: FloatArray) -> FloatArray:
    """Calibrated reward of each score: linear between knots, constant outside them."""
    return np.interp(calibrator.sign * np.asarray(score, float), calibrator.knot, calibrator.value)


def knot_mass(calibrator: Calibrator, score: FloatArray, weight: FloatArray) -> FloatArray:
    """Weight that a set of rows puts on each knot: ``sum_i weight_i f(score_i) = sum_k mass_k value_k``.

    Parameters
    ----------
    score, weight : arrays, shape (n,)

    Returns
    -------
    array, shape (K,)
    """
    s = np.clip(calibrator.sign * np.asarray(score, float), calibrator.knot[0], calibrator.knot[-1])
    right = np.clip(np.searchsorted(calibrator.knot, s), 0, len(calibrator.knot) - 1)
    left = np.maximum(right - 1, 0)
    span = calibrator.knot[right] - calibrator.knot[left]
    share = np.divide(s - calibrator.knot[left], span, out=np.ones(len(s)), where=span > 0)
    n_knots = len(calibrator.knot)
    return sum_by(right, weight * share, n_knots) + sum_by(left, weight * (1 - share), n_knots)


def label_leverage(
    calibrator: Calibrator, mass: FloatArray, score: FloatArray, weight: FloatArray
) -> FloatArray:
    """How far one unit of residual in each labelled row moves ``sum_k mass_k f_k``.

    The infinitesimal jackknife of isotonic regression: inside a block the fit is a weighted mean, so labelled row i
    of block b moves the functional by ``mass(b) * w_i / weight(b)`` times its residual ``Y_i - f_b``. Moves of the
    block boundaries are of second order.

    Parameters
    ----------
    mass : array, shape (K,)
        From `knot_mass`.
    score, weight : arrays, shape (m,)
        The labelled rows the calibrator was fitted on.

    Returns
    -------
    array, shape (m,)
    """
    n_blocks = int(calibrator.block[-1]) + 1
    per_block = sum_by(calibrator.block, mass, n_blocks) / sum_by(
        calibrator.block, calibrator.weight, n_blocks
    )
    knot = np.searchsorted(calibrator.knot, calibrator.sign * np.asarray(score, float))
    return np.asarray(per_block[calibrator.block[knot]] * weight)


def out_of_fold(
    score: FloatArray,
    label: FloatArray,
    weight: FloatArray,
    fold: IntArray,
    new_score: FloatArray,
    new_fold: IntArray,
    *,
    increasing: bool = True,
) -> FloatArray:
    """Predictions for new rows by the calibrator that never saw their fold, ``f^(-k)(S)``.

    Parameters
    ----------
    score, label, weight, fold : arrays, shape (m,)
        Labelled rows that teach.
    new_score, new_fold : arrays, shape (r,)
        Rows to predict.

    Returns
    -------
    array, shape (r,)
        NaN where every label lies in the row's own fold, so nothing is left to fit on.
    """
    out = np.full(len(new_score), np.nan)
    for k in np.unique(new_fold):
        train = fold != k
        if train.any():
            rows = new_fold == k
            fitted = fit_monotone(score[train], label[train], weight[train], increasing=increasing)
            out[rows] = predict(fitted, new_score[rows])
    return out


def judge_oracle_correlation(score: FloatArray, label: FloatArray) -> float:
    """Spearman correlation of score and label on the labelled slice; NaN if either is constant."""
    if np.ptp(score) == 0 or np.ptp(label) == 0:
        return float("nan")
    return float(stats.spearmanr(score, label).statistic)


class OracleSlice(NamedTuple):
    """The labelled slice that teaches, its calibrator and everything fitted once per data set."""

    status: Status  # OK, a flag (inverted or constant judge, constant labels) or a failure
    calibrator: Calibrator | None  # None exactly when the status is a failure
    teach: IntArray  # rows that taught
    weight: FloatArray  # their weights, 1 / label_prob
    fold: IntArray  # fold of every prompt
    increasing: bool


def fit_slice(rows: Rows, *, direction: str = "increasing") -> OracleSlice:
    """Fit the calibrator on the labels that teach and say what is wrong with them, if anything.

    Parameters
    ----------
    rows : Rows
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.
    """
    if direction not in ("increasing", "decreasing"):
        raise ValueError(f"direction is {direction!r}; use 'increasing' or 'decreasing'")
    increasing = direction == "increasing"
    teach = np.flatnonzero(rows.teaches)
    cluster = rows.cluster[rows.prompt]
    labelled_clusters = np.unique(cluster[teach])
    taught = np.zeros(len(rows.cluster_names), dtype=bool)
    taught[labelled_clusters] = True
    fold = assign_folds(rows.cluster_names, taught)[rows.cluster]
    weight = 1.0 / rows.label_prob[teach]
    if len(labelled_clusters) < MIN_LABELLED_CLUSTERS:
        status = Status.TOO_FEW_LABELS if len(teach) else Status.NO_LABELS
        return OracleSlice(status, None, teach, weight, fold, increasing)
    score, label = rows.score[teach], rows.label[teach]
    status = Status.OK
    if np.ptp(label) == 0:
        status = Status.CONSTANT_LABELS
    elif np.ptp(score) == 0:
        status = Status.CONSTANT_JUDGE
    elif judge_oracle_correlation(score, label) * (1 if increasing else -1) < 0:
        status = Status.INVERTED_JUDGE
    calibrator = fit_monotone(score, label, weight, increasing=increasing)
    return OracleSlice(status, calibrator, teach, weight, fold, increasing)


def calibration_part(rows: Rows, fitted: OracleSlice, mass: FloatArray) -> Part:
    """Error of ``sum_k mass_k f(knot_k)`` that comes from having learned f on a finite slice.

    The influence of labelled row i of block b is its leverage (`label_leverage`) times its residual ``Y_i - f_b``,
    scaled by ``sqrt(n_b / (n_b - 1))`` so that each block's noise is estimated without bias; a row alone in its
    block has residual zero by construction and takes the pooled residual standard deviation instead. The degrees of
    freedom are the `effective_clusters` of labels behind the functional, less one, and not their count: a policy
    that lives where the slice has nine labels rests on nine labels. (Tried and worse: raw residuals with one factor
    m / (m - blocks) under-cover; out-of-fold residuals over-cover, and inflate without bound at the ends of the
    judge's scale.)
    """
    f = fitted.calibrator
    assert f is not None
    n = len(rows.prompts)
    score, label = rows.score[fitted.teach], rows.label[fitted.teach]
    leverage = label_leverage(f, mass, score, fitted.weight)
    residual = label - predict(f, score)
    block = f.block[np.searchsorted(f.knot, f.sign * score)]
    size = np.bincount(block)[block]
    pooled = np.sqrt((residual**2).sum() / max(len(label) - len(np.unique(block)), 1))
    residual = np.where(size > 1, residual * np.sqrt(size / np.maximum(size - 1, 1)), pooled)
    prompt = rows.prompt[fitted.teach]
    effective = effective_clusters(sum_by(prompt, np.abs(leverage), n), rows.cluster)
    if effective == 0:
        return Part(np.zeros(n), np.inf)
    df = max(effective - 1, 2.0)  # below 2 a t interval has no meaning left
    return Part(n * sum_by(prompt, leverage * residual, n), df)


def mean_part(rows: Rows, index: IntArray, values: FloatArray, weight: FloatArray) -> tuple[float, Part]:
    """Weighted mean of values over some rows, and its sampling error by cluster (Hajek form).

    ``mean = sum w v / sum w`` with influence ``n * w_i (v_i - mean) / sum w`` per prompt, n the number of prompts.
    """
    n = len(rows.prompts)
    share = weight / weight.sum()
    mean = float((share * values).sum())
    prompt = rows.prompt[index]
    influence = n * sum_by(prompt, share * (values - mean), n)
    return mean, make_part(influence, sum_by(prompt, share, n), rows.cluster)
