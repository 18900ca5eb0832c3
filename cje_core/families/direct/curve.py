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
>>> x, y = np.linspace(-1, 1, 8), 1 / (1 + np.exp(-1.0 - 0.5 * np.linspace(-1, 1, 8)))
>>> intercept, slope = fit_curve(x, y, np.full(8, 1e6), np.empty(8), np.empty((3, 8)))
>>> round(intercept, 4), round(slope, 4)
(1.0, 0.5)
"""

import numpy as np

from cje_core.calibration.isotonic import interpolate_into, locate
from cje_core.compiled import Kernel
from cje_core.families.fluctuation import expit

PRIOR = 2.5  # standard deviation of the log odds per standard deviation of the score
PRECISION = 1 / PRIOR**2
CONVERGED, MAX_STEPS = 1e-8, 100  # change of a log odds after which Newton's steps end, and their number
SPREAD = 1e-9  # share of the information on the slope that tells one; less is rounding


@Kernel
def judge_curve(  # type: ignore[no-untyped-def]
    score, share, own_score, label, weight, cluster, n_clusters, sign, low, width, curve, own_curve
):
    """Curve of the own labels about its value at the mean score (filled); see the module.

    Parameters
    ----------
    score, share : arrays, shape (r,)
        Of the evaluated rows; shares sum to one.
    own_score, label, weight : arrays, shape (m,)
        Of the own labels; the weights sum to Kish's number of labelled clusters.
    cluster : int array, shape (m,)
        Cluster of each label, 0..n_clusters-1.
    sign : float
        -1 where a lower score is better.
    low, width : float
        The oracle's scale.
    curve : array, shape (r,)
    own_curve : array, shape (m,)
        For each label the curve without its whole cluster. Zero where no slope in the declared direction is seen.
    """
    m, center, square, least, most = len(own_score), 0.0, 0.0, np.inf, -np.inf
    for i in range(len(score)):
        center += share[i] * score[i]
        least, most = min(least, score[i]), max(most, score[i])
    for i in range(len(score)):
        square += share[i] * (score[i] - center) ** 2
    unit = sign / np.sqrt(square) if most > least else 0.0
    x, y, good, total = np.empty(m), np.empty(m), 0.0, 0.0
    for j in range(m):
        x[j], y[j] = (own_score[j] - center) * unit, (label[j] - low) / width
        good += weight[j] * y[j]
        total += weight[j]
    if not 0 < good < total:  # all labels at one end of the scale
        curve[:], own_curve[:] = 0.0, 0.0
        return
    residual, terms = np.empty(m), np.empty((3, m))
    a, b = fit_curve(x, y, weight, residual, terms)
    scaled, knot = np.empty(len(score)), np.empty(m + 2)
    for i in range(len(score)):
        scaled[i] = (score[i] - center) * unit
    knot[:m], knot[m], knot[m + 1] = x, (least - center) * unit, (most - center) * unit
    n_knots = keep_distinct(knot)
    value = np.empty(n_knots)
    for k in range(n_knots):
        value[k] = width * (expit(a + max(b, 0.0) * knot[k]) - expit(a))
    interpolate_into(scaled, knot, value, n_knots, curve)
    place = np.empty(m, dtype=np.int32)
    locate(x, knot, n_knots, place)
    behind = clusters_at(place, cluster, n_clusters, n_knots)
    own_a, own_b = np.empty(n_clusters), np.empty(n_clusters)
    without_each(x, residual, terms, cluster, a, b, own_a, own_b)
    for j in range(m):
        a, b = own_a[cluster[j]], own_b[cluster[j]]
        left = right = place[j]
        if behind[left] == 1 and 0 < left < n_knots - 1:
            left, right = left - 1, right + 1
        first, second = expit(a + b * knot[left]) - expit(a), expit(a + b * knot[right]) - expit(a)
        part = (x[j] - knot[left]) / (knot[right] - knot[left]) if right > left else 0.0
        own_curve[j] = width * (first + part * (second - first))


@Kernel
def fit_curve(x, y, weight, residual, terms):  # type: ignore[no-untyped-def]
    """Return intercept and slope, by Newton's steps from the mean label.

    None changes a log odds by more than 1. With steps that short the curvature changes by less than e on the way, so
    each one gains, from anywhere. Filled: the residuals ``w (y - p)``, shape (m,), and the terms that add up to the
    curvature, ``w p (1 - p)`` times 1, x and x^2, shape (3, m).
    """
    good = total = 0.0
    for j in range(len(x)):
        good += weight[j] * y[j]
        total += weight[j]
    a, b, done = np.log(good / (total - good)), 0.0, False
    for step in range(MAX_STEPS + 1):
        g0, g1, h00, h01, h11 = 0.0, -PRECISION * b, 0.0, 0.0, PRECISION
        for j in range(len(x)):
            p = expit(a + b * x[j])
            v = weight[j] * p * (1.0 - p)
            residual[j] = weight[j] * (y[j] - p)
            terms[0, j], terms[1, j], terms[2, j] = v, v * x[j], v * x[j] * x[j]
            g0 += residual[j]
            g1 += residual[j] * x[j]
            h00 += terms[0, j]
            h01 += terms[1, j]
            h11 += terms[2, j]
        if done or step == MAX_STEPS:
            break
        determinant = h00 * h11 - h01 * h01
        da, db = (h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant
        change = 0.0
        for j in range(len(x)):
            change = max(change, abs(da + db * x[j]))
        a += da / max(change, 1.0)
        b += db / max(change, 1.0)
        done = change < CONVERGED
    return a, b


@Kernel
def without_each(x, residual, terms, cluster, a, b, own_a, own_b):  # type: ignore[no-untyped-def]
    """Intercept and slope (>= 0) one Newton step away from each cluster (filled); a slope of 0 where none is told."""
    sums = np.zeros((5, len(own_a)))
    for j in range(len(x)):
        c = cluster[j]
        for t in range(3):
            sums[t, c] += terms[t, j]
        sums[3, c] += residual[j]
        sums[4, c] += residual[j] * x[j]
    h00 = h01 = h11 = 0.0
    for c in range(len(own_a)):
        h00 += sums[0, c]
        h01 += sums[1, c]
        h11 += sums[2, c]
    enough = SPREAD * (h11 - h01**2 / h00)
    for c in range(len(own_a)):
        k00, k01, k11 = h00 - sums[0, c], h01 - sums[1, c], h11 - sums[2, c]
        own_a[c], own_b[c] = a, 0.0
        if k00 > 0 and k00 * k11 - k01**2 > enough * k00:
            k11 += PRECISION
            determinant = k00 * k11 - k01**2
            own_a[c] = a - (k11 * sums[3, c] - k01 * sums[4, c]) / determinant
            own_b[c] = max(b - (k00 * sums[4, c] - k01 * sums[3, c]) / determinant, 0.0)


@Kernel
def keep_distinct(values):  # type: ignore[no-untyped-def]
    """Sort values and gather the distinct ones at the front; returns their number."""
    values.sort()
    size = 1
    for i in range(1, len(values)):
        if values[i] != values[size - 1]:
            values[size] = values[i]
            size += 1
    return size


@Kernel
def clusters_at(place, cluster, n_clusters, n_knots):  # type: ignore[no-untyped-def]
    """Number of clusters with a label at each knot."""
    number, last = np.zeros(n_knots), np.full(n_clusters, -1)
    for j in np.argsort(place):
        if last[cluster[j]] != place[j]:
            number[place[j]] += 1
            last[cluster[j]] = place[j]
    return number
