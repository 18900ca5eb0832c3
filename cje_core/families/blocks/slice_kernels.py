"""The labelled slice of one data set of a block, in numba: folds, calibrators with and without each fold, rank test.

Compiled counterparts of `cje_core.calibration.folds`, `cje_core.calibration.oracle_slice` (monotone mode) and
`cje_core.inference.rank_test`. Rows are summed in the same order as there, so that ties fall the same way.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, N_FOLDS
from cje_core.calibration.isotonic import pava_into
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.inference import rank_test

MAX_LEVERAGE, SAME_WEIGHT, MIN_EFFECTIVE = (
    rank_test.MAX_LEVERAGE,
    rank_test.SAME_WEIGHT,
    rank_test.MIN_EFFECTIVE,
)
CELLS = 4  # of the table in which places are looked up, a knot
OK, TOO_FEW_LABELS, NO_LABELS, CONSTANT_LABELS, CONSTANT_JUDGE = 0, 1, 2, 3, 4  # what a slice shows by itself


class Slices(NamedTuple):
    """The labelled rows of all data sets of a block in canonical order, the calibrators that they teach, and what is
    needed of them; rows are filled as far as they go.

    Fit k leaves out fold k; the last, ``n_folds``, is on all rows.
    """

    kind: IntArray  # (R,): what a slice shows by itself
    rows: IntArray  # (R,) labelled rows m
    score: FloatArray  # (R, M)
    by_score: IntArray  # (R, M): what sorts the scores
    at: IntArray  # (R, M): number of the score among its distinct values, the knots of the fit on all labels
    label: FloatArray
    label_at: IntArray
    weight: FloatArray  # 1 / label probability
    policy: IntArray
    prompt: IntArray
    fold: IntArray  # (R, n) of every labelled prompt, -1 of the others
    n_folds: IntArray  # (R,)
    knot: FloatArray  # (R, 6, M)
    value: FloatArray  # of each fit at its knots
    total: FloatArray  # label weight at each knot
    block: IntArray  # constant block of each knot
    n_knots: IntArray  # (R, 6)
    center: FloatArray  # (R, 6): weighted mean label behind each fit
    place: IntArray  # (R, P, n): of each score among the knots of the fit on all labels, see `locate`
    f: FloatArray  # (R, P, n): the calibrator on all labels
    own_f: FloatArray  # (R, P, n): without the response's fold, where it has a label
    outside: FloatArray  # (R, P): share of scores outside the range of the labels
    rank: FloatArray  # (R, 4): Spearman's rho, t, rows and clusters
    moves: FloatArray  # (R, M): what each labelled row adds to rho, `rank_test.rank_moves`
    minority: FloatArray  # (R,): labels at the rarer of two values; inf where there are more values


@Kernel
def total(x):  # type: ignore[no-untyped-def]
    """Sum, in four strands that do not wait for each other."""
    n = len(x) // 4 * 4
    a = b = c = d = 0.0
    for i in range(0, n, 4):
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
    for i in range(n, len(x)):
        a += x[i]
    return (a + b) + (c + d)


@Kernel
def dot(x, y):  # type: ignore[no-untyped-def]
    """Sum of products, likewise."""
    n = len(x) // 4 * 4
    a = b = c = d = 0.0
    for i in range(0, n, 4):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
    for i in range(n, len(x)):
        a += x[i] * y[i]
    return (a + b) + (c + d)


@Kernel
def deal_folds(taught, by_hash):  # type: ignore[no-untyped-def]
    """Fold of each labelled prompt: dealt in the order of the hashes, `cje_core.calibration.folds.assign_folds`."""
    n_labelled = taught.sum()
    n_folds = N_FOLDS
    if n_labelled < 2 * N_FOLDS:
        n_folds = max(2, n_labelled // 2)
    fold = np.full(len(taught), -1, dtype=np.int64)
    dealt = 0
    for i in by_hash:
        if taught[i]:
            fold[i] = dealt % n_folds
            dealt += 1
    return fold, n_folds


@Kernel
def advance(x, left, knot, last):  # type: ignore[no-untyped-def]
    """The last knot at or below x, or the first, from one at or before it."""
    while left < last and knot[left + 1] <= x:
        left += 1
    return left


@Kernel
def locate(x, knot, n_knots, first, place):  # type: ignore[no-untyped-def]
    """Number of the last knot at or below each x, or of the first (filled): by a table, and in whatever order x comes.

    Cells of equal width hold a fraction of a knot each, see `cje_core.calibration.isotonic.interpolate`; ``first`` has
    room for `CELLS` a knot and one more.
    """
    low, last, n_cells = knot[0], n_knots - 1, CELLS * n_knots
    width = knot[last] - low
    steps = n_cells / width if width > 0 else 0.0
    steps = steps if np.isfinite(steps) else 0.0  # then one cell holds all knots
    first[: n_cells + 1] = 0
    for j in range(n_knots):
        first[min(int((knot[j] - low) * steps), n_cells - 1) + 1] += 1
    for c in range(n_cells):
        first[c + 1] += first[c]
    for i in range(len(x)):
        at = x[i]
        if at >= knot[last]:
            place[i] = last
        elif at <= low:
            place[i] = 0
        else:
            cell = min(int((at - low) * steps), n_cells - 1)
            before, after = first[cell], first[cell + 1]
            while before < after:
                middle = (before + after) // 2
                if knot[middle] <= at:
                    before = middle + 1
                else:
                    after = middle
            place[i] = before - 1


@Kernel
def between(x, left, knot, value, last):  # type: ignore[no-untyped-def]
    """Value at x, given the `advance` to it: linear between knots, constant outside."""
    if left == last or x <= knot[0]:
        return value[left]
    slope = (value[left + 1] - value[left]) / (knot[left + 1] - knot[left])
    return slope * (x - knot[left]) + value[left]


@Kernel
def knot_mass(x, place, each, knot, n_knots, of_knot, mass):  # type: ignore[no-untyped-def]
    """Add the weight of `each` score to what `of_knot` says each knot belongs to, `calibrator.knot_mass`.

    The scores' places are those of `locate`.
    """
    last = n_knots - 1
    for i in range(len(x)):
        left = place[i]
        if left == last or x[i] <= knot[0] or of_knot[left] == of_knot[left + 1]:
            mass[of_knot[left]] += each
        else:
            share = (x[i] - knot[left]) / (knot[left + 1] - knot[left])
            mass[of_knot[left]] += each * (1.0 - share)
            mass[of_knot[left + 1]] += each * share


@Kernel
def block_weights(block, total, n_knots):  # type: ignore[no-untyped-def]
    """Label weight of each constant block of a fit."""
    weight = np.zeros(block[n_knots - 1] + 1)
    for c in range(n_knots):
        weight[block[c]] += total[c]
    return weight


@Kernel
def leverage(slices, r, mass):  # type: ignore[no-untyped-def]
    """How far a unit of residual of each labelled row moves ``sum_b mass_b f_b``, `calibrator.label_leverage`.

    Mass of each constant block of the fit on all labels.
    """
    full, m = slices.n_folds[r], slices.rows[r]
    weight = block_weights(slices.block[r, full], slices.total[r, full], slices.n_knots[r, full])
    out = np.empty(m)
    for j in range(m):
        b = slices.block[r, full, slices.at[r, j]]
        out[j] = mass[b] / weight[b] * slices.weight[r, j]
    return out


@Kernel
def _standard_ranks(code, weight):  # type: ignore[no-untyped-def]
    """Mid-ranks of numbered values under weights of mean one, of mean zero and variance one."""
    tied = np.zeros(code.max() + 1)
    for j in range(len(code)):
        tied[code[j]] += weight[j]
    rank = (np.cumsum(tied) - tied / 2)[code]
    rank -= dot(weight, rank) / len(code)
    rank /= np.sqrt(dot(weight, rank**2) / len(code))
    return rank


@Kernel
def rank_statistic(slices, r, moves):  # type: ignore[no-untyped-def]
    """Spearman's rho, its t statistic, and rows and clusters behind it; NaN where nothing can be tested.

    Filled: ``moves``, what each row adds to rho.

    `cje_core.inference.rank_test.rank_test` up to the p-value.
    """
    m, at, label_at = slices.rows[r], slices.at[r], slices.label_at[r]
    n_clusters = (slices.fold[r] >= 0).sum()
    if slices.kind[r] in (NO_LABELS, CONSTANT_LABELS, CONSTANT_JUDGE) or n_clusters < 3:
        return np.nan, np.nan, np.nan, n_clusters
    if at[:m].max() == 0 or label_at[:m].max() == 0:
        return np.nan, np.nan, np.nan, n_clusters
    weight, prompt = slices.weight[r, :m], slices.prompt[r, :m]
    mean_weight = weight.mean()
    equal = np.ptp(weight) <= SAME_WEIGHT * mean_weight
    w = np.ones(m) if equal else weight / mean_weight
    x, y = _standard_ranks(at[:m], w), _standard_ranks(label_at[:m], w)
    rho = min(max(dot(w * x, y) / m, -1.0), 1.0)
    for j in range(m):
        moves[j] = w[j] * x[j] * (y[j] - rho * x[j])
    if equal:
        rows = float(m)
        if n_clusters < m:
            spread, terms = 0.0, np.zeros(slices.fold.shape[1])
            for j in range(m):
                term = x[j] * (y[j] - rho * x[j])
                spread += term**2
                terms[prompt[j]] += term
            apart = dot(terms, terms) * n_clusters / (n_clusters - 1)
            rows = m * spread / apart if spread > 1e-12 * m else float(n_clusters)
        return rho, rho * np.sqrt(max(rows - 2.0, 1.0) / max(1.0 - rho**2, 1e-300)), rows, n_clusters
    by_prompt = np.zeros((3, slices.fold.shape[1]))
    for j in range(m):
        alone = min(w[j] * (1 + x[j] ** 2) / m, MAX_LEVERAGE)
        free = 1 - min(w[j] / m, MAX_LEVERAGE)
        by_prompt[0, prompt[j]] += w[j] * x[j] * (y[j] - rho * x[j]) / (1 - alone)
        by_prompt[1, prompt[j]] += w[j] * x[j] * y[j] / free**2
        by_prompt[2, prompt[j]] += abs(w[j] * x[j])
    variance = max((by_prompt[0] ** 2).sum(), (by_prompt[1] ** 2).sum())
    squared = by_prompt[2] ** 2
    rows = squared.sum() ** 2 / (squared**2).sum()
    if rows < MIN_EFFECTIVE:
        return np.nan, np.nan, np.nan, n_clusters
    return rho, m * rho / np.sqrt(max(variance, 1e-300)), rows, n_clusters


@Kernel
def gather_slices(scores, labels, probs, orders, out):  # type: ignore[no-untyped-def]
    """Fill rows and folds of `Slices` for data sets (R, P, n).

    ``orders`` are the prompts and the policies in canonical order, and the prompts in that of their hashes.
    """
    canonical, sorted_policies, by_hash = orders
    for r in range(len(scores)):
        taught = np.zeros(scores.shape[2], dtype=np.bool_)
        m = 0
        for p in sorted_policies:
            for i in canonical:
                if not np.isnan(labels[r, p, i]):
                    taught[i] = True
                    out.score[r, m], out.label[r, m] = scores[r, p, i], labels[r, p, i]
                    out.weight[r, m], out.policy[r, m], out.prompt[r, m] = 1.0 / probs[r, p, i], p, i
                    m += 1
        out.rows[r] = m
        out.fold[r], out.n_folds[r] = deal_folds(taught, by_hash)
        if taught.sum() < MIN_LABELLED_CLUSTERS:
            out.kind[r] = TOO_FEW_LABELS if m else NO_LABELS


@Kernel
def number(values, rising, code):  # type: ignore[no-untyped-def]
    """Number the distinct values, which ``rising`` sorts (filled); returns the largest number."""
    last = 0
    for j in range(len(values)):
        last += j > 0 and values[rising[j]] != values[rising[j - 1]]
        code[rising[j]] = last
    return last


@Kernel
def fit_slices(scores, by_label, out):  # type: ignore[no-untyped-def]
    """Fill the rest of `Slices`, given what sorts its rows by label."""
    first = np.empty(CELLS * out.knot.shape[2] + 1, dtype=np.int64)
    for r in range(len(scores)):
        m = out.rows[r]
        if m:
            levels = number(out.score[r, :m], out.by_score[r, :m], out.at[r, :m])
            values = number(out.label[r, :m], by_label[r, :m], out.label_at[r, :m])
        if out.kind[r] == OK:
            fit_calibrators(out, r, levels + 1, out.value[r])
            predict_all(scores[r], first, out.value[r], out, r)
            out.kind[r] = CONSTANT_LABELS if values == 0 else (CONSTANT_JUDGE if levels == 0 else OK)
        out.rank[r, 0], out.rank[r, 1], out.rank[r, 2], out.rank[r, 3] = rank_statistic(
            out, r, out.moves[r, :m]
        )
        if m and values == 1:
            at = np.zeros((2, scores.shape[2]), dtype=np.bool_)
            for j in range(m):
                at[out.label_at[r, j], out.prompt[r, j]] = True
            out.minority[r] = min(at[0].sum(), at[1].sum())


@Kernel
def fit_calibrators(out, r, size, value):  # type: ignore[no-untyped-def]
    """Calibrators of data set r without each fold, and on all labels (the last), at `size` distinct scores."""
    m, n_folds, code = out.rows[r], out.n_folds[r], out.at[r]
    levels, weights, sums, mean = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    block_value, block_weight = np.empty(size), np.empty(size)
    block_end = np.empty(size, dtype=np.int64)
    weighted, fold = np.empty(m), np.empty(m, dtype=np.int64)
    for j in range(m):
        levels[code[j]] = out.score[r, j]
        weighted[j], fold[j] = out.weight[r, j] * out.label[r, j], out.fold[r, out.prompt[r, j]]
    for k in range(n_folds + 1):
        weights[:], sums[:] = 0.0, 0.0
        for j in range(m):
            left_out = fold[j] == k
            weights[code[j]] += 0.0 if left_out else out.weight[r, j]
            sums[code[j]] += 0.0 if left_out else weighted[j]
        knots = 0
        for c in range(size):
            if weights[c] > 0:
                out.knot[r, k, knots], out.total[r, k, knots] = levels[c], weights[c]
                mean[knots] = sums[c] / weights[c]
                knots += 1
        out.n_knots[r, k] = knots
        if knots:
            n_blocks = pava_into(mean, out.total[r, k], knots, value[k], block_value, block_weight, block_end)
            c = 0
            for b in range(n_blocks):
                while c <= block_end[b]:
                    out.block[r, k, c] = b
                    c += 1
            out.center[r, k] = total(sums) / total(weights)


@Kernel
def predict_all(score, first, value, out, r):  # type: ignore[no-untyped-def]
    """Predictions of data set r: of every response, and held out where it has a label; who lies outside the labels."""
    full = out.n_folds[r]
    n_policies, n = score.shape
    knot, fitted, size = out.knot[r, full], value[full], out.n_knots[r, full]
    low, high, slope = knot[0], knot[size - 1], np.zeros(size)
    for c in range(size - 1):
        slope[c] = (fitted[c + 1] - fitted[c]) / (knot[c + 1] - knot[c])
    for p in range(n_policies):
        beyond, place, f = 0, out.place[r, p], out.f[r, p]
        locate(score[p], knot, size, first, place)
        for i in range(n):
            s, c = score[p, i], place[i]
            beyond += s < low or s > high
            f[i] = slope[c] * (s - knot[c]) + fitted[c] if low < s < high else fitted[c]
        out.outside[r, p] = beyond / n
    left = np.zeros(full, dtype=np.int64)
    for j in out.by_score[r, : out.rows[r]]:
        s, i = out.score[r, j], out.prompt[r, j]
        k = out.fold[r, i]  # element by element: a view of a row would cost more than its use
        own_last, c = out.n_knots[r, k] - 1, left[k]
        if own_last < 0:
            continue
        while c < own_last and out.knot[r, k, c + 1] <= s:
            c += 1
        left[k] = c
        held_out = value[k, c]
        if c < own_last and s > out.knot[r, k, 0]:
            slope = (value[k, c + 1] - value[k, c]) / (out.knot[r, k, c + 1] - out.knot[r, k, c])
            held_out = slope * (s - out.knot[r, k, c]) + value[k, c]
        out.own_f[r, out.policy[r, j], i] = held_out
