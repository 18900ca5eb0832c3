"""Slow, obvious second implementation of the two-stage calibrator: SciPy's B-splines and explicit loops."""

import math
from fractions import Fraction

import numpy as np
from scipy.interpolate import BSpline
from scipy.optimize import isotonic_regression, lsq_linear


def knots(column):
    """Distinct observed quantiles: 8 from 32 rows on, else a fourth of the rows."""
    ranked = sorted(column)
    number = min(8, max(len(ranked) // 4, 2))
    ranks = [math.ceil(Fraction(i * len(ranked), number - 1)) for i in range(number)]
    return sorted({ranked[max(rank - 1, 0)] for rank in ranks})


def design(slice_z, new_z):
    """Cumulated cubic B-splines of each column that varies, divided by their standard deviation on the slice."""

    def raw(z):
        columns = []
        for c in range(slice_z.shape[1]):
            at = knots(slice_z[:, c])
            if len(at) < 2:
                continue
            full = [at[0]] * 3 + at + [at[-1]] * 3
            x = np.clip(z[:, c], at[0], at[-1])
            splines = BSpline.design_matrix(x, np.array(full), 3).toarray()
            columns += [splines[:, j:].sum(axis=1) for j in range(1, splines.shape[1])]
        return np.array(columns).T.reshape(len(z), -1)

    spread = raw(slice_z).std(axis=0)
    spread[spread < 1e-9] = 1
    return raw(new_z) / spread


def ridge(x, y, w, penalty, n_nonnegative=0):
    """Intercept and coefficients that minimise ``mean w (y - a - x b)^2 + penalty |b|^2``, by stacked least squares."""
    w = w / w.sum()
    p = x.shape[1]
    rows = np.vstack(
        [
            np.sqrt(w)[:, None] * np.column_stack([np.ones(len(x)), x]),
            np.sqrt(penalty) * np.eye(p + 1)[1:],
        ]
    )
    target = np.concatenate([np.sqrt(w) * y, np.zeros(p)])
    if n_nonnegative == 0:
        solution = np.linalg.lstsq(rows, target, rcond=None)[0]
    else:
        low = np.full(p + 1, -np.inf)
        low[1 : n_nonnegative + 1] = 0
        solution = lsq_linear(rows, target, (low, np.full(p + 1, np.inf)), method="bvls", tol=1e-14).x
    return solution[0], solution[1:]


def gcv(x, y, w, n_rows):
    """Penalty on the grid with the smallest generalised cross-validation score, the trace taken of the hat matrix."""
    scores = {}
    share = w / w.sum()
    full = np.column_stack([np.ones(len(x)), x])
    for penalty in np.logspace(2, -6, 25):
        keep = penalty * np.eye(full.shape[1])
        keep[0, 0] = 0
        hat = full @ np.linalg.solve(full.T @ (share[:, None] * full) + keep, full.T * share)
        edf = np.trace(hat)
        if edf < n_rows:
            scores[penalty] = (share * (y - hat @ y) ** 2).sum() / (1 - edf / n_rows) ** 2
    return min(scores, key=scores.get)


def mid_ranks(g, w):
    """Weighted mid-rank of each distinct value of g: weight below plus half the weight at it."""
    levels = sorted(set(g))
    below, out = 0.0, []
    for level in levels:
        at = w[g == level].sum()
        out.append((below + at / 2) / w.sum())
        below += at
    return np.array(levels), np.array(out)


def two_stage(slice_z, label, weight, new_z, *, train=None, increasing=True, monotone=False, n_rows=None):
    """Predictions of the paper's two-stage calibrator, the ECDF spelled out; also index of the new rows and penalty.

    ``train`` selects the rows that fit (the basis is that of the whole slice).
    """
    slice_z, new_z = slice_z.copy(), new_z.copy()
    if not increasing:
        slice_z[:, 0] *= -1
        new_z[:, 0] *= -1
    train = np.ones(len(label), bool) if train is None else train
    x, new_x = design(slice_z, slice_z)[train], design(slice_z, new_z)
    y, w = label[train], weight[train]
    penalty = gcv(x, y, w, len(y) if n_rows is None else n_rows)
    n_judge = 0 if len(knots(slice_z[:, 0])) < 2 else len(knots(slice_z[:, 0])) + 1
    intercept, beta = ridge(x, y, w, penalty, n_judge if monotone else 0)
    tie = 10
    g, new_g = np.round(intercept + x @ beta, tie), np.round(intercept + new_x @ beta, tie)
    level, rank = mid_ranks(g, w)
    u = np.interp(g, level, rank)
    total = np.array([w[u == r].sum() for r in rank])
    mean = np.array([(w * y)[u == r].sum() for r in rank]) / total
    value = isotonic_regression(mean, weights=total).x
    return np.interp(np.interp(new_g, level, rank), rank, value), new_g, penalty


def functional_influence(slice_z, label, weight, new_z, new_weight):
    """Influence of each label on ``sum new_weight f(new_z)`` through the index, row by row and axis by axis."""
    x, new_x = design(slice_z, slice_z), design(slice_z, new_z)
    _, _, penalty = two_stage(slice_z, label, weight, new_z)
    intercept, beta = ridge(x, label, weight, penalty)
    share = weight / weight.sum()
    centred = x - (share[:, None] * x).sum(axis=0)
    bread = np.linalg.inv((centred * share[:, None]).T @ centred + penalty * np.eye(x.shape[1]))
    moves = []
    for i in range(len(label)):
        leverage = share[i] * (1 + centred[i] @ bread @ centred[i])
        left_out = (label[i] - intercept - x[i] @ beta) / (1 - leverage)
        moves.append(bread @ centred[i] * share[i] * left_out)
    moves = np.array(moves)

    def functional(coefficients):
        g, new_g = np.round(x @ coefficients, 10), np.round(new_x @ coefficients, 10)
        level = np.unique(g)
        total = np.array([weight[g == v].sum() for v in level])
        mean = np.array([(weight * label)[g == v].sum() for v in level]) / total
        return (new_weight * np.interp(new_g, level, isotonic_regression(mean, weights=total).x)).sum()

    variance, axes = np.linalg.eigh(sum(np.outer(b, b) for b in moves))
    out = np.zeros(len(label))
    for v, axis in zip(variance, axes.T, strict=True):
        if v > 1e-12 * variance.max():
            step = math.sqrt(v) * axis
            slope = (functional(beta + step) - functional(beta - step)) / (2 * math.sqrt(v))
            out += np.array([slope * (b @ axis) for b in moves])
    return out
