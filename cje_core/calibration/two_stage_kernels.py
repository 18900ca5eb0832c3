"""Compiled loops of the two-stage calibrator: splines, ridge, second stage, bootstrap replicates.

A ridge fit needs only moments ``sum_i w_i a_i a_i'`` of rows ``a = (1, x, y)``, so leaving a fold out is a subtraction.
See `cje_core.calibration.two_stage` for what is computed and why.
"""

import numpy as np

from cje_core.calibration.isotonic import ends_of_blocks, pava_into, predict_at
from cje_core.compiled import Kernel

ORDER = 4  # of a cubic spline: basis functions that are not zero at a point
PENALTIES = np.logspace(2, -6, 25)  # relative to columns of unit variance; strongest first, so it wins ties
TIE = 1e-10  # values of the index closer than this share of its range are rounding apart


@Kernel
def locate_into(knots, start, x, first, value):  # type: ignore[no-untyped-def]
    """Nonzero B-splines at each point by the Cox-de Boor recursion."""
    left, right = np.empty(4), np.empty(4)
    for c in range(x.shape[1]):
        begin, n_basis = start[c], start[c + 1] - start[c] - 4
        low, high = knots[begin], knots[start[c + 1] - 1]
        for i in range(x.shape[0]):
            v = min(max(x[i, c], low), high)
            span = 3
            while span < n_basis - 1 and knots[begin + span + 1] <= v:
                span += 1
            value[i, c, 0] = 1.0
            for degree in range(1, 4):
                left[degree] = v - knots[begin + span + 1 - degree]
                right[degree] = knots[begin + span + degree] - v
                saved = 0.0
                for k in range(degree):
                    ratio = value[i, c, k] / (right[k + 1] + left[degree - k])
                    value[i, c, k] = saved + right[k + 1] * ratio
                    saved = left[degree - k] * ratio
                value[i, c, degree] = saved
            first[i, c] = begin - 4 * c + span - 3


@Kernel
def rounded(g, quantum):  # type: ignore[no-untyped-def]
    """Nearest multiple of the quantum, if it is positive."""
    return np.floor(g / quantum + 0.5) * quantum if quantum > 0 else g


@Kernel
def index_at(first, value, coef, intercept):  # type: ignore[no-untyped-def]
    """Index of one point, summed in one fixed order: equal rows of Z get equal bits whatever the batch."""
    g = intercept
    for c in range(len(first)):
        at = first[c]
        for d in range(4):
            g += value[c, d] * coef[at + d]
    return g


@Kernel
def index_into(first, value, coef, intercept, quantum, out):  # type: ignore[no-untyped-def]
    """Rounded index of each point."""
    for i in range(first.shape[0]):
        out[i] = rounded(index_at(first[i], value[i], coef, intercept), quantum)


@Kernel
def coef_into(beta, scale, start, coef):  # type: ignore[no-untyped-def]
    """Coefficients of the B-splines from those of the scaled cumulated ones; the first of each column is zero."""
    j = at = 0
    for c in range(len(start) - 1):
        running = 0.0
        coef[at] = 0.0
        at += 1
        for _ in range(start[c + 1] - start[c] - ORDER - 1):
            running += beta[j] / scale[j]
            coef[at] = running
            j += 1
            at += 1


@Kernel
def fit_into(moments, n_rows, n_monotone, beta):  # type: ignore[no-untyped-def]
    """Ridge fit from the moments of `cje_core.calibration.two_stage.augmented` rows, the penalty by cross-validation.

    Fills the coefficients; returns intercept, penalty and effective degrees of freedom.
    """
    p = len(beta)
    total = moments[0, 0]
    gram, cross = np.empty((p, p)), np.empty(p)
    spread = moments[p + 1, p + 1] / total - (moments[0, p + 1] / total) ** 2
    for i in range(p):
        cross[i] = moments[i + 1, p + 1] / total - moments[0, i + 1] * moments[0, p + 1] / total**2
        for j in range(p):
            gram[i, j] = moments[i + 1, j + 1] / total - moments[0, i + 1] * moments[0, j + 1] / total**2
    beta[:] = 0.0
    penalty, edf = PENALTIES[0], 1.0
    if p > 0:
        root, vector = np.linalg.eigh(gram)
        along = np.zeros(p)
        for j in range(p):
            root[j] = max(root[j], 0.0)
            for i in range(p):
                along[j] += vector[i, j] * cross[i]
        penalty, edf = choose_penalty(root, along, spread, n_rows)
        for j in range(p):
            step = along[j] / (root[j] + penalty)
            for i in range(p):
                beta[i] += vector[i, j] * step
        if n_monotone > 0:
            make_monotone(gram, cross, penalty, n_monotone, beta)
    intercept = moments[0, p + 1] / total
    for j in range(p):
        intercept -= beta[j] * moments[0, j + 1] / total
    return intercept, penalty, edf


@Kernel
def choose_penalty(root, along, spread, n_rows):  # type: ignore[no-untyped-def]
    """Minimise ``(residual variance) / (1 - edf / n)^2`` over the grid of penalties."""
    best, chosen, chosen_edf = np.inf, PENALTIES[0], 1.0
    for penalty in PENALTIES:
        rss, edf = spread, 1.0
        for j in range(len(root)):
            ridged = root[j] + penalty
            rss -= along[j] ** 2 * (root[j] + 2 * penalty) / ridged**2
            edf += root[j] / ridged
        if edf < n_rows:
            score = max(rss, 0.0) / (1 - edf / n_rows) ** 2
            if score < best:
                best, chosen, chosen_edf = score, penalty, edf
    return chosen, chosen_edf


@Kernel
def make_monotone(gram, cross, penalty, n_monotone, beta):  # type: ignore[no-untyped-def]
    """Ridge solution with the first coefficients nonnegative, by Lawson and Hanson's active sets (exact)."""
    p = len(beta)
    active = np.arange(p) < n_monotone  # held at zero
    beta[:] = 0.0
    solve_free(gram, cross, penalty, active, beta)
    target = np.zeros(p)
    for _ in range(10 * n_monotone):
        steepest, entering = 1e-11 * np.abs(cross).max(), -1
        for j in range(n_monotone):
            if active[j]:
                slope = cross[j]
                for i in range(p):
                    slope -= gram[j, i] * beta[i]
                if slope > steepest:
                    steepest, entering = slope, j
        if entering < 0:
            return
        active[entering] = False
        while True:
            solve_free(gram, cross, penalty, active, target)
            share = 1.0
            for j in range(n_monotone):
                if not active[j] and target[j] <= 0:
                    share = min(share, beta[j] / (beta[j] - target[j]) if beta[j] > 0 else 0.0)
            for j in range(p):
                beta[j] += share * (target[j] - beta[j])
            if share == 1.0:
                break
            for j in range(n_monotone):
                if not active[j] and target[j] <= 0 and beta[j] <= 1e-14 * np.abs(beta).max():
                    active[j] = True
                    beta[j] = 0.0


@Kernel
def solve_free(gram, cross, penalty, active, out):  # type: ignore[no-untyped-def]
    """Ridge solution within the coefficients that are not active; the active ones are zero."""
    free = np.flatnonzero(~active)
    out[:] = 0.0
    if len(free) == 0:
        return
    matrix, right = np.empty((len(free), len(free))), np.empty(len(free))
    for i in range(len(free)):
        right[i] = cross[free[i]]
        for j in range(len(free)):
            matrix[i, j] = gram[free[i], free[j]]
        matrix[i, i] += penalty
    solved = np.linalg.solve(matrix, right)
    for i in range(len(free)):
        out[free[i]] = solved[i]


@Kernel
def pool_ties(order, g, label, weight, quantum, knot, mean, total):  # type: ignore[no-untyped-def]
    """Fill the distinct rounded indices of rows in their order, with mean label and weight; returns their number.

    Rows of weight 0 and rows whose index is infinite are no rows.
    """
    n = 0
    for r in order:
        if g[r] == np.inf:
            break
        if weight[r] > 0:
            at = rounded(g[r], quantum)
            if n == 0 or at > knot[n - 1]:
                knot[n], mean[n], total[n] = at, 0.0, 0.0
                n += 1
            total[n - 1] += weight[r]
            mean[n - 1] += weight[r] * label[r]
    for k in range(n):
        mean[k] /= total[k]
    return n


@Kernel
def second_stage_into(g, label, weight, knot, fitted, scratch, block_end):  # type: ignore[no-untyped-def]
    """Isotonic regression on the index, ties pooled; rows of weight 0 are no rows.

    Returns the number of knots and the quantum that the index was rounded to.
    """
    mean, total, block_value, block_weight = scratch[0], scratch[1], scratch[2], scratch[3]
    order = np.argsort(g)
    low, high = np.inf, -np.inf
    for i in range(len(g)):
        if weight[i] > 0:
            low, high = min(low, g[i]), max(high, g[i])
    quantum = TIE * (high - low)
    n_knots = pool_ties(order, g, label, weight, quantum, knot, mean, total)
    pava_into(mean, total, n_knots, fitted, block_value, block_weight, block_end)
    return n_knots, quantum


@Kernel
def add_moments(row, weight, moments):  # type: ignore[no-untyped-def]
    """Add a weighted outer product of one row."""
    for i in range(len(row)):
        w = weight * row[i]
        for j in range(len(row)):
            moments[i, j] += w * row[j]


@Kernel
def indices_into(coef, first, value, quantum, g):  # type: ignore[no-untyped-def]
    """Index of each row by each set of coefficients, without intercept, and the quantum that it is rounded to."""
    for b in range(len(coef)):
        low, high = np.inf, -np.inf
        for i in range(len(first)):
            g[b, i] = index_at(first[i], value[i], coef[b], 0.0)
            low, high = min(low, g[b, i]), max(high, g[b, i])
        quantum[b] = TIE * (high - low)


@Kernel
def second_stages(order, g, label, weight, quantum, knot, value, n_knots):  # type: ignore[no-untyped-def]
    """Isotonic regressions on sorted indices, ties pooled; rows whose index is infinite are no rows.

    Of each fit only the ends of its constant blocks are kept.
    """
    size = order.shape[1]
    mean, total, scratch = np.empty(size), np.empty(size), np.empty((2, size))
    block_end = np.empty(size, dtype=np.int64)
    for f in range(len(order)):
        n = pool_ties(order[f], g[f], label, weight, quantum[f], knot[f], mean, total)
        pava_into(mean, total, n, value[f], scratch[0], scratch[1], block_end)
        n_knots[f] = ends_of_blocks(knot[f], value[f], n)


@Kernel
def moved_sums_into(first, value, weight, coef, quantum, knot, fitted, n_knots, out):  # type: ignore[no-untyped-def]
    """``sum_i weight_i f(z_i)`` for each f; rows that come in order of about the same index are found in few steps."""
    for b in range(len(coef)):
        n, at, total = n_knots[b], 0, 0.0
        for i in range(len(weight)):
            g = rounded(index_at(first[i], value[i], coef[b], 0.0), quantum[b])
            while at < n - 1 and knot[b, at + 1] <= g:
                at += 1
            while at > 0 and knot[b, at] > g:
                at -= 1
            level = fitted[b, at]
            if at < n - 1 and g > knot[b, at]:
                share = (g - knot[b, at]) / (knot[b, at + 1] - knot[b, at])
                level += share * (fitted[b, at + 1] - level)
            total += weight[i] * level
        out[b] = total


@Kernel
def two_stage_fits(count, rows, needed, total, summed, fitted, has_fit):  # type: ignore[no-untyped-def]
    """Refit both stages without each fold, and on all labels (the last row of ``fitted``), in a bootstrap replicate.

    The levels are the distinct rows of Z. The last fit is evaluated at all of them, the others where the own rows of
    their fold need it. ``count`` (G,) is the weight of each cluster of ``rows`` (DirectRows) in this replicate: the
    number of rows in cross-validation is a sum of these. ``needed`` is (folds + 1,). Filled: ``total, summed, fitted``
    (folds + 1, levels), label weight, weighted label sum and calibrated value of each level, and ``has_fit`` (folds +
    1,), whether there was a label to fit on.
    """
    spline = rows.spline
    m, n_fits = len(rows.teach_label), len(needed)
    last, width = n_fits - 1, spline.taught.shape[1]
    coef, beta = np.empty(spline.start[-1] - ORDER * (len(spline.start) - 1)), np.empty(len(spline.scale))
    moments, seen = np.zeros((n_fits, width, width)), np.zeros(n_fits)
    weight, kept, g = np.empty(m), np.empty(m), np.empty(m)
    knot, level, scratch = np.empty(m), np.empty(m), np.empty((4, m))
    block_end = np.empty(m, dtype=np.int64)
    total[:] = 0.0
    summed[:] = 0.0
    for i in range(m):
        times, fold = count[rows.teach_cluster[i]], rows.teach_fold[i]
        weight[i] = times * rows.teach_weight[i]
        if times > 0:
            seen[fold] += times
            add_moments(spline.taught[i], weight[i], moments[fold])
            for k in range(n_fits):
                if k != fold:
                    total[k, rows.teach_at[i]] += weight[i]
                    summed[k, rows.teach_at[i]] += weight[i] * rows.teach_label[i]
    for k in range(last):
        for i in range(width):
            for j in range(width):
                moments[last, i, j] += moments[k, i, j]
        seen[last] += seen[k]
    for k in range(n_fits):
        has_fit[k] = False
        n_rows = seen[last] - (seen[k] if k < last else 0.0)
        if not needed[k] or n_rows <= 0:
            continue
        left = moments[last] if k == last else moments[last] - moments[k]
        fit_into(left, n_rows, spline.n_monotone, beta)
        coef_into(beta, spline.scale, spline.start, coef)
        for i in range(m):
            kept[i] = 0.0 if rows.teach_fold[i] == k else weight[i]
            at = rows.teach_at[i]
            g[i] = index_at(spline.first[at], spline.value[at], coef, 0.0)
        n_knots, quantum = second_stage_into(g, rows.teach_label, kept, knot, level, scratch, block_end)
        if n_knots == 0:
            continue
        has_fit[k] = True
        if k == last:
            for at in range(len(spline.first)):
                place = rounded(index_at(spline.first[at], spline.value[at], coef, 0.0), quantum)
                fitted[k, at] = predict_at(place, knot, level, n_knots)
        else:
            for r in range(len(rows.own_at)):
                if rows.own_fold[r] == k:
                    at = rows.own_at[r]
                    place = rounded(index_at(spline.first[at], spline.value[at], coef, 0.0), quantum)
                    fitted[k, at] = predict_at(place, knot, level, n_knots)
