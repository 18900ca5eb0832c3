"""The arithmetic of one bootstrap replicate of Direct, in numba.

A replicate is a vector of nonnegative weights over clusters. `monotone_fits` refits the calibrator with them, once per
fold and once in full; `policy_value` turns the fits into one policy's estimate, and `policy_variance` into its analytic
variance; `direct_replicates` runs them over many replicates. The formulas are those of `cje_core.estimators.direct`.
"""

import math

import numpy as np

from cje_core.calibration.two_stage_kernels import two_stage_fits
from cje_core.compiled import Kernel
from cje_core.families.direct.refit_kernels import monotone_fits
from cje_core.families.fluctuation import expit, fluctuate, logit_inside

PLUG_IN, LABEL_MEAN, HAJEK, HORVITZ, TMLE = 0, 1, 2, 3, 4  # what a policy's labels do to its value


@Kernel
def policy_value(  # type: ignore[no-untyped-def]
    count, rows, p, fitted, has_fit, fold_level, own_min, noise, guess, scratch, kept
):
    """Estimate of policy p in one replicate; NaN where too few of its labels were drawn.

    The prediction is ``offset + power * (f - level)``, see `cje_core.families.direct.fit`; ``fold_level`` holds the
    mean label behind each fit, and ``noise`` a standard normal for what pooled cells hide. Filled for
    `policy_variance`: ``guess``, one per evaluated row, and, if ``kept``, ``scratch``, four per own row (prediction,
    outcome, clever covariate, weight).
    """
    full = len(has_fit) - 1
    kind = rows.route[p]
    low, width = rows.low, rows.high - rows.low
    power = rows.power[p]
    first, last = rows.start[p], rows.start[p + 1]
    plug_sum = plug_weight = 0.0
    if kind != LABEL_MEAN:
        for r in range(first, last):
            about = fitted[full, rows.at[r]] - rows.centered[p] * fold_level[full]
            guess[r] = rows.offset[r] + power * about
    n_own = 0
    own_sum = own_total = own_seen = 0.0
    if kind != PLUG_IN:
        for r in range(rows.own_start[p], rows.own_start[p + 1]):
            times = count[rows.own_cluster[r]]
            if times > 0:
                own_guess = 0.0
                if kind != LABEL_MEAN:
                    k = rows.own_fold[r]
                    own_guess = rows.own_offset[r]
                    if power != 0:
                        if not has_fit[k]:
                            return np.nan
                        own_guess += power * (fitted[k, rows.own_at[r]] - rows.centered[p] * fold_level[k])
                w = times * rows.own_weight[r]
                if kept or kind == TMLE:
                    scratch[0, n_own], scratch[1, n_own] = own_guess, rows.own_label[r]
                    scratch[2, n_own], scratch[3, n_own] = rows.own_clever[r], w
                    n_own += 1
                own_sum += w * (rows.own_label[r] - own_guess)
                own_total += w
                own_seen += times
        if own_seen < own_min or own_total <= 0:
            return np.nan
    if kind == LABEL_MEAN:
        return own_sum / own_total
    if kind == TMLE:
        for i in range(n_own):
            scratch[0, i] = logit_inside((scratch[0, i] - low) / width)
            scratch[1, i] = (scratch[1, i] - low) / width
        eps = fluctuate(scratch[0], scratch[2], scratch[1], scratch[3], n_own)
        for i in range(n_own):
            scratch[0, i] = low + width * expit(scratch[0, i] + eps * scratch[2, i])
            scratch[1, i] = low + width * scratch[1, i]
        for r in range(first, last):
            offset = logit_inside((guess[r] - low) / width)
            guess[r] = low + width * expit(offset + eps * rows.clever[r])
    for r in range(first, last):
        w = count[rows.cluster[r]] * rows.weight[r]
        plug_sum += w * guess[r]
        plug_weight += w
    if plug_weight <= 0:
        return np.nan
    value = plug_sum / plug_weight
    if len(rows.inside) > 0:
        hidden = hidden_variance(count, rows, first, last, power, fitted[full])
        value += noise * math.sqrt(max(hidden, 0.0)) / plug_weight
    if kind == HAJEK:
        value += own_sum / own_total
    elif kind == HORVITZ:
        value += own_sum / plug_weight
    return value


@Kernel
def hidden_variance(count, rows, first, last, power, fitted):  # type: ignore[no-untyped-def]
    """Variance of the sum of predictions over the draws of pooled cells, given how often each cell was drawn.

    The prediction is ``offset + power * f`` and f a line inside a cell, so its variance there follows from the moments
    of the cell's rows (`DirectRows.inside`) and the slope of the line.
    """
    hidden = 0.0
    for r in range(first, last):
        times, i = count[rows.cluster[r]], rows.at[r]
        if times > 0 and rows.inside[r, 0] > 0:
            slope = 0.0
            if 0 < i < len(fitted) - 1 and fitted[i + 1] != fitted[i - 1]:
                slope = power * (fitted[i + 1] - fitted[i - 1]) / (rows.level[i + 1] - rows.level[i - 1])
            variance = rows.inside[r, 2] + slope * (2 * rows.inside[r, 1] + slope * rows.inside[r, 0])
            # counts: each draw adds its own; exponential weights: a Dirichlet share of the cell's weight
            spread = times * times * rows.inside[r, 3] if rows.inside[r, 3] > 0 else times
            hidden += spread * variance
    return hidden


@Kernel
def knot_blocks(fitted, total, is_knot, knots):  # type: ignore[no-untyped-def]
    """Nearest knots around each level, and block and block weight of the knots, of one isotonic fit (filled)."""
    knot_left, knot_right, block, block_weight = knots
    n_levels = len(fitted)
    n_blocks, last = 0, -1
    for i in range(n_levels):
        if is_knot[i]:
            if last < 0 or fitted[i] > fitted[last]:
                block_weight[n_blocks] = 0.0
                n_blocks += 1
            block[i] = n_blocks - 1
            block_weight[n_blocks - 1] += total[i]
            last = i
        knot_left[i] = last
    following = -1
    for j in range(n_levels):
        i = n_levels - 1 - j
        if is_knot[i]:
            following = i
        knot_right[i] = following if following >= 0 else knot_left[i]
        if knot_left[i] < 0:
            knot_left[i] = knot_right[i]


@Kernel
def policy_variance(count, rows, p, fitted, guess, scratch, knots, mass):  # type: ignore[no-untyped-def]
    """Analytic variance of `policy_value`, right after it: evaluation + own residuals, or + the calibrator's fit.

    Each row counts as a sampling unit of its own and no small-sample factor is used: a studentised bootstrap divides
    by the same formula in the data and in every replicate, so what matters is that it moves with the sample.
    """
    knot_left, knot_right, block, block_weight = knots
    full = len(fitted) - 1
    kind = rows.route[p]
    plug_sum = plug_weight = spread = 0.0
    if kind != PLUG_IN:
        n_own, own_sum, own_total = 0, 0.0, 0.0
        for r in range(rows.own_start[p], rows.own_start[p + 1]):
            if count[rows.own_cluster[r]] > 0:
                own_sum += scratch[3, n_own] * (scratch[1, n_own] - scratch[0, n_own])
                own_total += scratch[3, n_own]
                n_own += 1
        n_own = 0
        for r in range(rows.own_start[p], rows.own_start[p + 1]):
            times = count[rows.own_cluster[r]]
            if times > 0:
                left = scratch[1, n_own] - scratch[0, n_own] - own_sum / own_total
                spread += times * (rows.own_weight[r] * left / own_total) ** 2
                n_own += 1
    if kind == LABEL_MEAN:
        return spread
    for r in range(rows.start[p], rows.start[p + 1]):
        w = count[rows.cluster[r]] * rows.weight[r]
        plug_sum += w * guess[r]
        plug_weight += w
    for r in range(rows.start[p], rows.start[p + 1]):
        left = rows.weight[r] * (guess[r] - plug_sum / plug_weight) / plug_weight
        spread += count[rows.cluster[r]] * left * left
    if kind != PLUG_IN:
        return spread
    # infinitesimal jackknife of the isotonic fit: the mass that the policy puts on each block, over the block's weight
    mass[:] = 0.0
    for r in range(rows.start[p], rows.start[p + 1]):
        at = rows.at[r]
        w = count[rows.cluster[r]] * rows.weight[r] / plug_weight
        share = 1.0
        if knot_right[at] > knot_left[at]:
            span = rows.level[knot_right[at]] - rows.level[knot_left[at]]
            share = (rows.level[at] - rows.level[knot_left[at]]) / span
        mass[block[knot_right[at]]] += w * share
        mass[block[knot_left[at]]] += w * (1.0 - share)
    for r in range(len(rows.teach_cluster)):
        times = count[rows.teach_cluster[r]]
        if times > 0:
            b = block[rows.teach_at[r]]
            left_over = rows.teach_label[r] - fitted[full, rows.teach_at[r]]
            spread += times * (rows.teach_weight[r] * left_over * mass[b] / block_weight[b]) ** 2
    return spread


@Kernel
def direct_replicates(  # type: ignore[no-untyped-def]
    counts, noise, rows, n_folds, teach_min, own_min, values, variances, valid
):
    """One row of ``values`` per row of ``counts``; ``variances`` too unless it is empty. See `bootstrap_direct`."""
    n_levels, n_policies = len(rows.level), len(rows.route)
    two_stage = len(rows.spline.taught) > 0
    total = np.zeros((n_folds + 1 if two_stage else 1, n_levels))
    summed = np.zeros_like(total)
    fitted = np.empty((n_folds + 1, n_levels))
    is_knot = np.zeros(n_levels, dtype=np.bool_)
    labelled = np.zeros(n_levels, dtype=np.bool_)
    labelled[rows.teach_at] = True
    labelled[rows.own_at] = True
    core = np.flatnonzero(labelled)
    n_core = len(core)
    place_of = np.cumsum(labelled) - 1  # of a level in core
    order = np.argsort(rows.teach_at, kind="mergesort")
    of_level = order, np.searchsorted(rows.teach_at[order], np.append(core, n_levels))
    asked = np.zeros((n_folds, n_core), dtype=np.bool_)
    floats, ints = np.empty((8, n_core)), np.empty((4, n_core), dtype=np.int64)
    work = (
        np.empty((n_core, n_folds, 2)),
        (floats[0], floats[1], floats[2], floats[3], floats[4], floats[5], floats[6], floats[7]),
        (ints[0], ints[1], ints[2], ints[3]),
    )
    has_fit = np.empty(n_folds + 1, dtype=np.bool_)
    needed = np.zeros(n_folds + 1, dtype=np.bool_)
    for p in range(n_policies):
        if rows.route[p] != LABEL_MEAN:
            needed[n_folds] = True
        if rows.route[p] >= HAJEK:
            for r in range(rows.own_start[p], rows.own_start[p + 1]):
                needed[rows.own_fold[r]] = True
                asked[rows.own_fold[r], place_of[rows.own_at[r]]] = True
    wanted, wanted_first = np.empty(len(rows.own_at), dtype=np.int64), np.zeros(n_folds + 1, dtype=np.int64)
    for k in range(n_folds):
        places = np.flatnonzero(asked[k])
        wanted_first[k + 1] = wanted_first[k] + len(places)
        wanted[wanted_first[k] : wanted_first[k + 1]] = places
    fold_level = np.zeros(n_folds + 1)
    guess = np.empty(len(rows.at))
    scratch = np.empty((4, len(rows.own_at)))
    place, mass = np.empty((3, n_levels), dtype=np.int64), np.empty(n_levels)
    knots = place[0], place[1], place[2], np.empty(n_levels)
    kept = len(variances) > 0
    for b in range(counts.shape[0]):
        count = counts[b]
        seen = 0.0
        for r in range(len(rows.teach_cluster)):
            seen += count[rows.teach_cluster[r]]
        valid[b] = seen >= teach_min
        if not valid[b]:
            continue
        if two_stage:
            two_stage_fits(count, rows, needed, total, summed, fitted, has_fit)
            for k in range(n_folds + 1):
                if has_fit[k]:
                    label_sum = label_weight = 0.0
                    for i in core:
                        label_sum += summed[k, i]
                        label_weight += total[k, i]
                    fold_level[k] = label_sum / label_weight
        else:
            monotone_fits(
                count,
                rows,
                core,
                of_level,
                wanted,
                wanted_first,
                needed,
                work,
                total[0],
                fitted,
                is_knot,
                has_fit,
                fold_level,
            )
        valid[b] = has_fit[n_folds] or not needed[n_folds]
        if len(variances) > 0 and has_fit[n_folds]:
            knot_blocks(fitted[n_folds], total[0], is_knot, knots)
        for p in range(n_policies):
            if not valid[b]:
                break
            value = policy_value(
                count, rows, p, fitted, has_fit, fold_level, own_min[p], noise[b, p], guess, scratch, kept
            )
            values[b, p] = value
            valid[b] = not np.isnan(value)
            if valid[b] and len(variances) > 0:
                variances[b, p] = policy_variance(count, rows, p, fitted, guess, scratch, knots, mass)
                valid[b] = variances[b, p] > 0
