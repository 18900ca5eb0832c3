"""The judge's logistic curve on one data set of a block, in numba: `cje_core.families.direct.curve`."""

import numpy as np

from cje_core.compiled import Kernel
from cje_core.families.blocks.slice_kernels import CELLS, between, locate
from cje_core.families.direct import curve as slow

PRECISION, CONVERGED, MAX_STEPS, SPREAD = 1 / slow.PRIOR**2, slow.CONVERGED, slow.MAX_STEPS, slow.SPREAD


@Kernel
def expit(z):  # type: ignore[no-untyped-def]
    """Logistic function."""
    return 1.0 / (1.0 + np.exp(-z))


@Kernel
def fit_curve(x, y, weight, residual, terms):  # type: ignore[no-untyped-def]
    """`curve.fit_curve`: intercept and slope; residuals and the terms of the curvature are filled."""
    mean = (weight * y).sum() / weight.sum()
    a, b, done = np.log(mean / (1.0 - mean)), 0.0, False
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
        change = np.abs(da + db * x).max()
        a += da / max(change, 1.0)
        b += db / max(change, 1.0)
        done = change < CONVERGED
    return a, b


@Kernel
def distinct(values):  # type: ignore[no-untyped-def]
    """Sort values and gather the distinct ones at the front; returns their number."""
    values.sort()
    size = 1
    for i in range(1, len(values)):
        if values[i] != values[size - 1]:
            values[size] = values[i]
            size += 1
    return size


@Kernel
def judge_curve(score, at, label, weight, low, width, curve, own_curve):  # type: ignore[no-untyped-def]
    """`curve.judge_curve` of an increasing judge (filled), with weights that sum to Kish's number."""
    m = len(at)
    center = score.mean()
    spread = np.sqrt(((score - center) ** 2).mean()) if score.max() > score.min() else np.inf
    x, y = (score[at] - center) / spread, (label - low) / width
    if not 0 < (weight * y).sum() < weight.sum():
        curve[:], own_curve[:] = 0.0, 0.0
        return
    residual, terms = np.empty(m), np.empty((3, m))
    a, b = fit_curve(x, y, weight, residual, terms)
    knot = np.empty(m + 2)
    for j in range(m):
        knot[j] = x[j]
    knot[m], knot[m + 1] = (score.min() - center) / spread, (score.max() - center) / spread
    size = distinct(knot)
    value = width * (expit(a + max(b, 0.0) * knot) - expit(a))
    cells = np.empty(CELLS * size + 1, dtype=np.int64)
    place, label_place = np.empty(len(score), dtype=np.int32), np.empty(m, dtype=np.int32)
    scaled = (score - center) / spread
    locate(scaled, knot, size, cells, place)
    for i in range(len(score)):
        curve[i] = between(scaled[i], place[i], knot, value, size - 1)
    locate(x, knot, size, cells, label_place)
    number = np.zeros(size)  # of labels at a knot; the first and the last are always there
    number[0] = number[-1] = 1
    for j in range(m):
        number[label_place[j]] += 1
    h00, h01, h11 = terms[0].sum(), terms[1].sum(), terms[2].sum()
    enough = SPREAD * (h11 - h01**2 / h00)
    for j in range(m):
        k00, k01, k11 = h00 - terms[0, j], h01 - terms[1, j], h11 - terms[2, j]
        own_curve[j] = 0.0
        right = label_place[j]
        left = right
        if number[right] == 1:
            left, right = right - 1, right + 1
        if k00 > 0 and k00 * k11 - k01**2 > enough * k00:
            k11 += PRECISION
            g0, g1 = -residual[j], -residual[j] * x[j]
            determinant = k00 * k11 - k01**2
            own_a, own_b = (
                a + (k11 * g0 - k01 * g1) / determinant,
                b + (k00 * g1 - k01 * g0) / determinant,
            )
            own_b = max(own_b, 0.0)
            first = expit(own_a + own_b * knot[left]) - expit(own_a)
            second = expit(own_a + own_b * knot[right]) - expit(own_a)
            share = (x[j] - knot[left]) / (knot[right] - knot[left]) if right > left else 0.0
            own_curve[j] = width * (first + share * (second - first))
