"""The judge's logistic curve: what a few labels of one policy say of E[Y | S] where an isotonic fit is still noisy.

With y the label on the declared oracle scale [low, high], mapped to [0, 1], and x the judge score in the declared
direction, about its mean and in standard deviations over the evaluated rows,

    E[y | x] = expit(a + b x),      b >= 0

maximises the sum of ``w (y log p + (1 - y) log(1 - p))`` (a quasi-likelihood: labels between the ends of the scale are
not binary) less ``b^2 / (2 PRIOR^2)``, the usual weak normal prior of a standardised slope, without which a few
pass/fail labels that the score separates would have no maximum. Weights sum to Kish's number of labelled clusters.

The curve is taken about its value at the mean score, ``p(a + b x) - p(a)``: a prediction's level cancels in the value
that it makes (`cje_core.families.direct.power_tuning`). Far from the ends of the scale it is a line; near them it bends
as labels must that cannot go beyond. It is drawn from one labelled score to the next (and to the least and the largest
score) in straight pieces, as calibrators are, so that data pooled between labelled scores give the same value. For an
own label the piece passes by its score, unless another cluster has it: what pieces miss between scores is corrected.

For an own label, a and b come from one Newton step away from its cluster: the fit's gradient and curvature without it.
That is the refit up to the square of what one cluster moves: a label's pull on its own prediction is of order 1 / m^2.

Examples
--------
>>> x = np.linspace(-1, 1, 8)
>>> found = fit_curve(x, special.expit(1.0 + 0.5 * x), np.full(8, 1e6))
>>> round(found.intercept, 4), round(found.slope, 4)
(1.0, 0.5)
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.calibration.isotonic import interpolate
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows, taken
from cje_core.inference.sums import gapless, sum_by

PRIOR = 2.5  # standard deviation of the log odds per standard deviation of the score
CONVERGED, MAX_STEPS = 1e-8, 100  # change of a log odds after which Newton's steps end, and their number
AT_END = (
    1e-12  # of the scale: no mean label is nearer to an end but by rounding, and no curve has a slope there
)
SPREAD = 1e-9  # share of the information on the slope that tells one; less is rounding


class Curve(NamedTuple):
    """A fitted curve, its weighted residuals, and the terms (3, m) that add up to its curvature."""

    intercept: float
    slope: float
    residual: FloatArray  # (m,) w (y - p)
    terms: FloatArray  # (3, m) w p (1 - p) times 1, x and x^2


def judge_curve(
    rows: Rows,
    index: IntArray,
    own: IntArray,
    weight: FloatArray,
    increasing: bool,
    scale: tuple[float, float],
    few: tuple[IntArray, FloatArray] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Curve of the own labels about its value at the mean score; see the module.

    Parameters
    ----------
    weight : array
        Of the own labels, summing to Kish's number of labelled clusters.
    few : tuple of arrays, optional
        `cje_core.calibration.isotonic.grades` of the scores of `index`.

    Returns
    -------
    evaluated, own : arrays
        For an own label the curve leaves its whole cluster out. Zero where no slope in the declared direction is seen.
    """
    score, (low, high) = taken(rows.score, index), scale
    row_weight = taken(rows.weight, index)
    total = row_weight.sum()
    center = float(score @ row_weight) / total
    level = score if few is None else few[1]
    moved = score - center
    spread = np.sqrt(np.square(moved, out=moved) @ row_weight / total) if np.ptp(level) > 0 else np.inf
    unit = (1.0 if increasing else -1.0) / spread
    x = (level - center) * unit
    own_x, y = (rows.score[own] - center) * unit, (rows.label[own] - low) / (high - low)
    if not 0 < (weight * y).sum() < weight.sum():  # all labels at one end of the scale
        return np.zeros(len(index)), np.zeros(len(own))
    knot, at = np.unique(np.concatenate([own_x, [x.min(), x.max()]]), return_inverse=True)
    fit = fit_curve(own_x, y, weight, (knot, at[:-2]))
    code, n_clusters = gapless(rows.cluster[rows.prompt[own]])
    intercept, slope = without_each(fit, own_x, code, n_clusters)
    if code is not None:
        intercept, slope = intercept[code], slope[code]
    value = (high - low) * about_mean(knot, fit.intercept, max(fit.slope, 0.0))
    left, right = _neighbours(at[:-2], code, len(knot))
    share = (own_x - knot[left]) / np.where(right > left, knot[right] - knot[left], 1.0)
    first, second = (about_mean(knot[side], intercept, slope) for side in (left, right))
    own_curve = (high - low) * (first + share * (second - first))
    curve = interpolate(x, knot, value)
    return curve if few is None else curve[few[0]], own_curve


def _neighbours(at: IntArray, code: IntArray | None, n_knots: int) -> tuple[IntArray, IntArray]:
    """Knots between which a curve without a label's cluster runs straight: its own, if another label has that too."""
    if code is not None:  # one label of each cluster at each knot counts
        n_clusters = int(code.max()) + 1
        clusters = np.bincount(np.unique(at * n_clusters + code) // n_clusters, minlength=n_knots)
    else:
        clusters = np.bincount(at, minlength=n_knots)
    alone = (clusters[at] == 1) & (at > 0) & (at < n_knots - 1)
    return at - alone, at + alone


def about_mean(x: FloatArray, intercept: FloatArray | float, slope: FloatArray | float) -> FloatArray:
    """The curve less its value at the mean score, on the unit scale."""
    return np.asarray(special.expit(intercept + slope * x) - special.expit(intercept))


def fit_curve(
    x: FloatArray, y: FloatArray, weight: FloatArray, levels: tuple[FloatArray, IntArray] | None = None
) -> Curve:
    """Newton's steps from the mean label, none of which changes a log odds by more than 1.

    With steps that short the curvature changes by less than e on the way, so each one gains, from anywhere. ``levels``
    are the values that `x` takes (and perhaps others), and the place of each label among them.
    """
    weighed, each = weight * y, (x, weight)
    mean = weighed.sum() / weight.sum()
    if levels is not None:  # the steps need sums at each score alone
        (x, code), n_levels = levels, len(levels[0])
        weighed, weight = (sum_by(code, values, n_levels) for values in (weighed, weight))
    a, b, prior, ends = float(special.logit(mean)), 0.0, 1 / PRIOR**2, (float(x.min()), float(x.max()))
    for _ in range(MAX_STEPS):
        residual, terms = _at(x, weighed, weight, a, b)
        h00, h01, h11 = terms.sum(axis=1).tolist()
        h11 += prior
        g0, g1 = float(residual.sum()), float((residual * x).sum()) - prior * b
        determinant = h00 * h11 - h01 * h01
        da, db = (h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant
        change = max(abs(da + db * end) for end in ends)  # a line is furthest from 0 at an end
        step = 1 / max(change, 1.0)
        a, b = a + step * da, b + step * db
        if change < CONVERGED:
            break
    return Curve(float(a), float(b), *_at(each[0], each[1] * y, each[1], a, b))


def _at(
    x: FloatArray, weighed: FloatArray, weight: FloatArray, a: float, b: float
) -> tuple[FloatArray, FloatArray]:
    """Residuals and terms of the curvature; ``weighed`` is weight times label."""
    p = special.expit(a + b * x)
    terms, expected = np.empty((3, len(x))), weight * p
    np.multiply(expected, 1 - p, out=terms[0])
    for power in (1, 2):
        np.multiply(terms[power - 1], x, out=terms[power])
    return weighed - expected, terms


def without_each(
    fit: Curve, x: FloatArray, code: IntArray | None, n_clusters: int
) -> tuple[FloatArray, FloatArray]:
    """Intercept and slope (>= 0) one Newton step away from each cluster; ``code`` None: each label is one."""
    whole, terms, g0, g1 = fit.terms.sum(axis=1), fit.terms, fit.residual, fit.residual * x
    if code is not None:
        terms = np.stack([sum_by(code, row, n_clusters) for row in terms])
        g0, g1 = (sum_by(code, row, n_clusters) for row in (g0, g1))  # without the cluster: their negative
    k00, k01, k11 = whole[:, None] - terms
    told = (k00 > 0) & (k00 * k11 - k01**2 > SPREAD * k00 * (whole[2] - whole[1] ** 2 / whole[0]))
    k11 = k11 + 1 / PRIOR**2
    determinant = np.where(told, k00 * k11 - k01**2, 1.0)
    slope = fit.slope - (k00 * g1 - k01 * g0) / determinant
    return fit.intercept - (k11 * g0 - k01 * g1) / determinant, np.where(told, np.maximum(slope, 0.0), 0.0)
