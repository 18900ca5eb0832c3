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
OK, TOO_FEW_LABELS, NO_LABELS, CONSTANT_LABELS, CONSTANT_JUDGE = 0, 1, 2, 3, 4  # what a slice shows by itself


class Slice(NamedTuple):
    """The labelled rows of a data set in canonical order, and the calibrators that they teach.

    Fit k leaves out fold k; the last is on all rows. Of its ``n_knots[k]`` knots only the head of each row is filled.
    """

    kind: int
    score: FloatArray  # (m,)
    at: IntArray  # (m,): number of the score among its distinct values, the knots of the fit on all labels
    label: FloatArray
    label_at: IntArray  # (m,)
    weight: FloatArray  # 1 / label probability
    prompt: IntArray
    fold: IntArray  # (n,) of every labelled prompt, -1 of the others
    n_folds: int
    knot: FloatArray  # (folds + 1, m)
    value: FloatArray
    total: FloatArray  # label weight at each knot
    block: IntArray  # constant block of each knot
    n_knots: IntArray  # (folds + 1,)
    center: FloatArray  # (folds + 1,): weighted mean label behind each fit


class Slices(NamedTuple):
    """The slices of all data sets of a block, and what is needed of them; rows are filled as far as they go."""

    kind: IntArray  # (R,)
    rows: IntArray  # (R,) labelled rows m
    score: FloatArray  # (R, M)
    at: IntArray
    label: FloatArray
    label_at: IntArray
    weight: FloatArray
    prompt: IntArray
    fold: IntArray  # (R, n)
    n_folds: IntArray  # (R,)
    knot: FloatArray  # (R, 6, M)
    value: FloatArray
    total: FloatArray
    block: IntArray
    n_knots: IntArray  # (R, 6)
    center: FloatArray
    f: FloatArray  # (R, P, n): the calibrator on all labels
    own_f: FloatArray  # (R, P, n): without the response's fold, where it has a label
    outside: FloatArray  # (R, P): share of scores outside the range of the labels
    rank: FloatArray  # (R, 4): Spearman's rho, t, rows and clusters
    moves: FloatArray  # (R, M): what each labelled row adds to rho, `rank_test.rank_moves`
    minority: FloatArray  # (R,): labels at the rarer of two values; inf where there are more values


@Kernel
def slice_of(slices, r):  # type: ignore[no-untyped-def]
    """The slice of data set r."""
    m, fits = slices.rows[r], slices.n_folds[r] + 1
    return Slice(
        slices.kind[r],
        slices.score[r, :m],
        slices.at[r, :m],
        slices.label[r, :m],
        slices.label_at[r, :m],
        slices.weight[r, :m],
        slices.prompt[r, :m],
        slices.fold[r],
        slices.n_folds[r],
        slices.knot[r, :fits],
        slices.value[r, :fits],
        slices.total[r, :fits],
        slices.block[r, :fits],
        slices.n_knots[r, :fits],
        slices.center[r, :fits],
    )


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
def segment(x, knot, n_knots):  # type: ignore[no-untyped-def]
    """The last knot at or below x, of which there must be one."""
    low, high = 0, n_knots
    while high - low > 1:
        middle = (low + high) // 2
        if knot[middle] <= x:
            low = middle
        else:
            high = middle
    return low


@Kernel
def predict(x, knot, value, n_knots):  # type: ignore[no-untyped-def]
    """Value at x: linear between knots, constant outside."""
    if x <= knot[0]:
        return value[0]
    if x >= knot[n_knots - 1]:
        return value[n_knots - 1]
    j = segment(x, knot, n_knots)
    slope = (value[j + 1] - value[j]) / (knot[j + 1] - knot[j])
    return slope * (x - knot[j]) + value[j]


@Kernel
def knot_mass(x, weight, knot, n_knots, of_knot, mass):  # type: ignore[no-untyped-def]
    """Add weights at scores x, rising, to what `of_knot` says each knot belongs to, `oracle_slice.knot_mass`."""
    left, last = 0, n_knots - 1
    for i in range(len(x)):
        while left < last and knot[left + 1] <= x[i]:
            left += 1
        if left == last or x[i] <= knot[0] or of_knot[left] == of_knot[left + 1]:
            mass[of_knot[left]] += weight[i]
        else:
            share = (x[i] - knot[left]) / (knot[left + 1] - knot[left])
            mass[of_knot[left]] += weight[i] * (1.0 - share)
            mass[of_knot[left + 1]] += weight[i] * share


@Kernel
def block_weights(block, total, n_knots):  # type: ignore[no-untyped-def]
    """Label weight of each constant block of a fit."""
    weight = np.zeros(block[n_knots - 1] + 1)
    for c in range(n_knots):
        weight[block[c]] += total[c]
    return weight


@Kernel
def leverage(found, mass):  # type: ignore[no-untyped-def]
    """How far a unit of residual of each labelled row moves ``sum_b mass_b f_b``, `oracle_slice.label_leverage`.

    Mass of each constant block of the fit on all labels.
    """
    full = found.n_folds
    size = found.n_knots[full]
    weight = block_weights(found.block[full], found.total[full], size)
    out = np.empty(len(found.score))
    for j in range(len(out)):
        b = found.block[full, found.at[j]]
        out[j] = mass[b] / weight[b] * found.weight[j]
    return out


@Kernel
def _standard_ranks(code, weight):  # type: ignore[no-untyped-def]
    """Mid-ranks of numbered values under weights of mean one, of mean zero and variance one."""
    tied = np.zeros(code.max() + 1)
    for j in range(len(code)):
        tied[code[j]] += weight[j]
    rank = (np.cumsum(tied) - tied / 2)[code]
    rank = rank - (weight * rank).mean()
    return rank / np.sqrt((weight * rank**2).mean())


@Kernel
def rank_statistic(found, moves):  # type: ignore[no-untyped-def]
    """Spearman's rho, its t statistic, and rows and clusters behind it; NaN where nothing can be tested.

    Filled: ``moves``, what each row adds to rho.

    `cje_core.inference.rank_test.rank_test` up to the p-value.
    """
    m = len(found.score)
    n_clusters = (found.fold >= 0).sum()
    if found.kind in (NO_LABELS, CONSTANT_LABELS, CONSTANT_JUDGE) or n_clusters < 3:
        return np.nan, np.nan, np.nan, n_clusters
    if found.at.max() == 0 or found.label_at.max() == 0:
        return np.nan, np.nan, np.nan, n_clusters
    mean_weight = found.weight.mean()
    equal = np.ptp(found.weight) <= SAME_WEIGHT * mean_weight
    w = np.ones(m) if equal else found.weight / mean_weight
    x, y = _standard_ranks(found.at, w), _standard_ranks(found.label_at, w)
    rho = min(max((w * x * y).mean(), -1.0), 1.0)
    moves[:] = w * x * (y - rho * x)
    by_prompt = np.zeros((3, len(found.fold)))
    if equal:
        rows = float(m)
        if n_clusters < m:
            spread = 0.0
            for j in range(m):
                term = x[j] * (y[j] - rho * x[j])
                spread += term**2
                by_prompt[0, found.prompt[j]] += term
            between = (by_prompt[0] ** 2).sum() * n_clusters / (n_clusters - 1)
            rows = m * spread / between if spread > 1e-12 * m else float(n_clusters)
        return rho, rho * np.sqrt(max(rows - 2.0, 1.0) / max(1.0 - rho**2, 1e-300)), rows, n_clusters
    for j in range(m):
        alone = min(w[j] * (1 + x[j] ** 2) / m, MAX_LEVERAGE)
        free = 1 - min(w[j] / m, MAX_LEVERAGE)
        by_prompt[0, found.prompt[j]] += w[j] * x[j] * (y[j] - rho * x[j]) / (1 - alone)
        by_prompt[1, found.prompt[j]] += w[j] * x[j] * y[j] / free**2
        by_prompt[2, found.prompt[j]] += abs(w[j] * x[j])
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
                    out.weight[r, m], out.prompt[r, m] = 1.0 / probs[r, p, i], i
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
def fit_slices(scores, labels, by_score, by_label, order, out):  # type: ignore[no-untyped-def]
    """Fill the rest of `Slices`, given what sorts its rows by score and by label, and all scores."""
    for r in range(len(scores)):
        m = out.rows[r]
        if m:
            levels = number(out.score[r, :m], by_score[r, :m], out.at[r, :m])
            values = number(out.label[r, :m], by_label[r, :m], out.label_at[r, :m])
        if out.kind[r] == OK:
            fit_calibrators(out, r, by_score[r, :m])
            predict_all(scores[r], labels[r], order[r], out, r)
            out.kind[r] = CONSTANT_LABELS if values == 0 else (CONSTANT_JUDGE if levels == 0 else OK)
        found = slice_of(out, r)
        out.rank[r, 0], out.rank[r, 1], out.rank[r, 2], out.rank[r, 3] = rank_statistic(
            found, out.moves[r, :m]
        )
        if m and values == 1:
            at = np.zeros((2, scores.shape[2]), dtype=np.bool_)
            for j in range(m):
                at[found.label_at[j], found.prompt[j]] = True
            out.minority[r] = min(at[0].sum(), at[1].sum())


@Kernel
def fit_calibrators(out, r, rising):  # type: ignore[no-untyped-def]
    """Calibrators of data set r without each fold, and on all labels (the last)."""
    m, n_folds = out.rows[r], out.n_folds[r]
    code = out.at[r, :m]
    size = code[rising[m - 1]] + 1
    levels = np.empty(size)
    for j in range(m):
        levels[code[j]] = out.score[r, j]
    weights, sums, mean = np.empty(size), np.empty(size), np.empty(size)
    block_value, block_weight = np.empty(size), np.empty(size)
    block_end = np.empty(size, dtype=np.int64)
    for k in range(n_folds + 1):
        weights[:], sums[:] = 0.0, 0.0
        for j in range(m):
            if k == n_folds or out.fold[r, out.prompt[r, j]] != k:
                weights[code[j]] += out.weight[r, j]
                sums[code[j]] += out.weight[r, j] * out.label[r, j]
        knots = 0
        for c in range(size):
            if weights[c] > 0:
                out.knot[r, k, knots], out.total[r, k, knots] = levels[c], weights[c]
                mean[knots] = sums[c] / weights[c]
                knots += 1
        out.n_knots[r, k] = knots
        if knots:
            n_blocks = pava_into(
                mean, out.total[r, k], knots, out.value[r, k], block_value, block_weight, block_end
            )
            c = 0
            for b in range(n_blocks):
                while c <= block_end[b]:
                    out.block[r, k, c] = b
                    c += 1
            out.center[r, k] = sums.sum() / weights.sum()


@Kernel
def predict_all(score, label, order, out, r):  # type: ignore[no-untyped-def]
    """Predictions of data set r: of every response, and held out where it has a label; who lies outside the labels."""
    full = out.n_folds[r]
    n_policies, n = score.shape
    knot, value, last = out.knot[r, full], out.value[r, full], out.n_knots[r, full] - 1
    for p in range(n_policies):
        left, beyond = 0, 0
        for i in order[p]:
            s = score[p, i]
            while left < last and knot[left + 1] <= s:
                left += 1
            beyond += s < knot[0] or s > knot[last]
            if left == last or s <= knot[0]:
                out.f[r, p, i] = value[left]
            else:
                slope = (value[left + 1] - value[left]) / (knot[left + 1] - knot[left])
                out.f[r, p, i] = slope * (s - knot[left]) + value[left]
            k = out.fold[r, i]
            if not np.isnan(label[p, i]) and out.n_knots[r, k]:
                out.own_f[r, p, i] = predict(s, out.knot[r, k], out.value[r, k], out.n_knots[r, k])
        out.outside[r, p] = beyond / n
