"""Direct on one data set of a block, in numba: values, influence and the two sources of error of every policy.

Compiled counterparts of `cje_core.families.direct.fit`, its power tuning and the balanced and one-step forms of
borrowing, for a monotone calibrator and prompts that are their own clusters.
"""

from typing import NamedTuple

import numpy as np

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.families.blocks.curve_kernels import judge_curve
from cje_core.families.blocks.slice_kernels import (
    CELLS,
    NO_LABELS,
    TOO_FEW_LABELS,
    advance,
    between,
    block_weights,
    dot,
    knot_mass,
    leverage,
    locate,
    total,
)
from cje_core.families.direct import balance, power_tuning
from cje_core.families.direct.power_tuning import MIN_TUNED, SHRINKAGE
from cje_core.families.fluctuation import target_into

KNOTS, RANK, MIN_BEHIND, MAX_LEVERAGE = (
    balance.KNOTS,
    balance.RANK,
    balance.MIN_EFFECTIVE,
    balance.MAX_LEVERAGE,
)
FAILED, PLUG_IN, ONE_STEP, BALANCED, CORRECTED, LABEL_MEAN = 0, 1, 2, 3, 4, 5  # routes

simplex = Kernel(power_tuning.simplex_weights)


class Values(NamedTuple):
    """What the kernel fills, one row per data set and policy; errors come in two parts (responses, labels)."""

    route: IntArray  # (R, P)
    value: FloatArray  # (R, P)
    influence: FloatArray  # (R, P, n), small-sample factors included
    variance: FloatArray  # (R, P, 2)
    df: FloatArray  # (R, P, 2)
    balance: FloatArray  # (R, P, n): weights of the labels that a borrowed value takes from others, else NaN
    lam: FloatArray  # (R, P): weight of the judge in a value that own labels correct
    f_known: bool  # whether the error of the labels is left out of the influence


@Kernel
def effective(lever):  # type: ignore[no-untyped-def]
    """`cje_core.inference.influence.effective_clusters` where each prompt is a cluster."""
    squared = lever**2
    fourth = dot(squared, squared)
    return total(squared) ** 2 / fourth if fourth > 0 else 0.0


@Kernel
def mean_of_all(values, influence):  # type: ignore[no-untyped-def]
    """Mean over all responses, its influence (filled) and degrees of freedom."""
    n = len(values)
    mean, factor = total(values) / n, np.sqrt(n / (n - 1))
    for i in range(n):
        influence[i] = (values[i] - mean) * factor
    return mean, n - 1.0


@Kernel
def mean_of_own(values, weight, at, influence):  # type: ignore[no-untyped-def]
    """Weighted mean over labelled responses at prompts `at`, its influence (filled) and degrees of freedom.

    With the small-sample factor of `cje_core.inference.influence.make_part`: NaN where one label has all the weight.
    """
    share = weight / total(weight)
    mean = dot(share, values)
    behind = effective(share)
    factor = len(influence) * np.sqrt(behind / (behind - 1)) if behind >= 1 + 1e-9 else np.nan
    influence[:] = 0.0 * factor
    for j in range(len(at)):
        influence[at[j]] = factor * share[j] * (values[j] - mean)
    return mean, behind - 1 if behind >= 1 + 1e-9 else np.nan


@Kernel
def corrected(slices, r, p, score, at, label, clever, choice, out):  # type: ignore[no-untyped-def]
    """Mean prediction corrected by own labels: `fit._corrected`, Hajek or TMLE (filled into ``out[r, p]``).

    ``clever`` is one over the label probability of each response.
    """
    tuned, targeted, low, width = choice
    weight = clever[at]
    n, m, full = len(score), len(at), slices.n_folds[r]
    spent, weight_of_judge = 0.0, 1.0
    moves, own_moves = np.empty(n), np.empty(n)
    h, own_h = slices.f[r, p], slices.own_f[r, p][at]
    if tuned:
        g, own_g = np.zeros((2, n)), np.zeros((2, m))
        level, _ = mean_of_own(label, weight, at, own_moves)
        target = own_moves.copy()
        n_effective = round(total(weight) ** 2 / dot(weight, weight), 9)
        weights, n_used = np.zeros(2), 0.0
        if n_effective >= MIN_TUNED:
            judge_curve(score, at, label, weight * (n_effective / total(weight)), low, width, g[0], own_g[0])
            ready = True
            for j in range(m):
                own_g[1, j] = own_h[j] - slices.center[r, slices.fold[r, at[j]]]
                ready = ready and np.isfinite(own_g[1, j])
            for i in range(n):
                g[1, i] = h[i] - slices.center[r, full]
            if not ready:
                g[1], own_g[1] = 0.0, 0.0
            design = np.empty((2, n))
            for a in range(2):
                mean_of_all(g[a], moves)
                mean_of_own(own_g[a], weight, at, own_moves)
                for i in range(n):
                    design[a, i] = own_moves[i] - moves[i]
            first, both, second = (
                dot(design[0], design[0]),
                dot(design[0], design[1]),
                dot(design[1], design[1]),
            )
            cross = dot(design[0], target), dot(design[1], target)
            rounding = 1e-9 * dot(target, target)
            few = min(SHRINKAGE / n_effective, 1.0)
            curve_alone = slices.rows[r] <= 2 * m
            u, v = simplex(first, both, second, cross[0], cross[1], rounding)
            weights[0], weights[1] = (1 - few) * u, (1 - few) * v
            n_used += (1 - few) * ((u != 0) + (v != 0))
            if curve_alone:
                u, v = simplex(first, 0.0, 0.0, cross[0], 0.0, rounding)
            else:
                u, v = simplex(0.0, 0.0, second, 0.0, cross[1], rounding)
            weights[0] += few * u
            weights[1] += few * v
            n_used += few * ((u != 0) + (v != 0))
        spent = n_used / (n_effective - 1) if n_used else 0.0
        weight_of_judge = weights[0] + weights[1]
        h = level + weights[0] * g[0] + weights[1] * g[1]
        own_h = level + weights[0] * own_g[0] + weights[1] * own_g[1]
    if targeted:
        h = h.copy()
        target_into(h, clever, own_h, weight, label, weight, low, width)
    mean, df = mean_of_all(h, moves)
    shift, own_df = mean_of_own(label - own_h, weight, at, own_moves)
    own_moves /= np.sqrt(1 - spent)
    out.lam[r, p] = weight_of_judge
    value = mean if targeted else mean + shift  # the fluctuation made the residuals average to zero
    fill(out, r, p, CORRECTED, value, moves, df, own_moves, own_df * (1 - spent))


@Kernel
def fill(out, r, p, route, value, first, first_df, second, second_df):  # type: ignore[no-untyped-def]
    """One policy's value and its two parts."""
    n = len(first)
    out.route[r, p], out.value[r, p] = route, value
    influence = out.influence[r, p]
    for i in range(n):
        influence[i] = first[i] if out.f_known else first[i] + second[i]
    out.variance[r, p, 0], out.df[r, p, 0] = dot(first, first) / n**2, first_df
    out.variance[r, p, 1], out.df[r, p, 1] = dot(second, second) / n**2, second_df


@Kernel
def plug_in(slices, r, p, score, out):  # type: ignore[no-untyped-def]
    """Mean of the borrowed calibrator, with the error of its fit: `oracle_slice.calibration_part`."""
    n, m, full = len(score), slices.rows[r], slices.n_folds[r]
    moves, label_moves, lever_of = np.empty(n), np.zeros(n), np.zeros(n)
    mean, df = mean_of_all(slices.f[r, p], moves)
    size, block_of = slices.n_knots[r, full], slices.block[r, full]
    mass = np.zeros(block_of[size - 1] + 1)
    if not out.f_known:
        knot_mass(score, slices.place[r, p], 1.0 / n, slices.knot[r, full], size, block_of, mass)
    lever = leverage(slices, r, mass)
    for j in range(m):
        lever_of[slices.prompt[r, j]] += abs(lever[j])
    behind = effective(lever_of)
    if behind == 0:
        fill(out, r, p, PLUG_IN, mean, moves, df, label_moves, np.inf)
        return
    block, residual = np.empty(m, dtype=np.int64), np.empty(m)
    held = np.zeros(block_of[size - 1] + 1)
    for j in range(m):
        block[j] = block_of[slices.at[r, j]]
        residual[j] = slices.label[r, j] - slices.f[r, slices.policy[r, j], slices.prompt[r, j]]
        held[block[j]] += 1
    pooled = np.sqrt(dot(residual, residual) / max(m - len(held), 1))
    for j in range(m):
        b = held[block[j]]
        label_moves[slices.prompt[r, j]] += (
            n * lever[j] * (residual[j] * np.sqrt(b / (b - 1)) if b > 1 else pooled)
        )
    fill(out, r, p, PLUG_IN, mean, moves, df, label_moves, max(behind - 1, 2.0))


@Kernel
def quantile_of_type_2(ordered, level):  # type: ignore[no-untyped-def]
    """NumPy's ``averaged_inverted_cdf``."""
    at = len(ordered) * level - 1
    low = int(np.floor(at))
    first = ordered[max(low, 0)]
    after = ordered[min(max(low + 1, 0), len(ordered) - 1)]
    return after - (after - first) * 0.5 if at == low else after


@Kernel
def spline_terms(x, knot):  # type: ignore[no-untyped-def]
    """`balance.evaluate` for a scaled judge score."""
    out = np.ones((len(x), 3 if len(knot) else 2))
    for i in range(len(x)):
        out[i, 1] = x[i]
        if len(knot):
            c0, c1, c2 = (
                max(x[i] - knot[0], 0.0) ** 3,
                max(x[i] - knot[1], 0.0) ** 3,
                max(x[i] - knot[2], 0.0) ** 3,
            )
            out[i, 2] = (c0 - c2) / (knot[2] - knot[0]) - (c1 - c2) / (knot[2] - knot[1])
    return out


@Kernel
def density_ratio(slices, r, score, residual, label_moves):  # type: ignore[no-untyped-def]
    """`fit._slice_residual`: shift, degrees of freedom, and influence (filled)."""
    m, n = len(residual), len(score)
    ratio, place = np.zeros(m), np.empty(n, dtype=np.int32)
    first = np.empty(CELLS * slices.knot.shape[2] + 1, dtype=np.int64)
    for k in range(slices.n_folds[r]):
        size = slices.n_knots[r, k]
        if size == 0:
            continue
        knot, block = slices.knot[r, k], slices.block[r, k]
        of_block = np.zeros(block[size - 1] + 1)
        locate(score, knot, size, first, place)
        knot_mass(score, place, 1.0 / n, knot, size, block, of_block)
        of_block /= block_weights(block, slices.total[r, k], size)
        of_knot = of_block[block[:size]]
        left = 0
        for j in slices.by_score[r, :m]:
            if slices.fold[r, slices.prompt[r, j]] == k:
                left = advance(slices.score[r, j], left, knot, size - 1)
                ratio[j] = between(slices.score[r, j], left, knot, of_knot, size - 1)
    weights = ratio * slices.weight[r, :m]
    if not weights.any():
        return 0.0, np.nan
    weights = weights / total(weights)
    shift = dot(weights, residual)
    behind = max(effective(weights), 3.0)
    factor = np.sqrt(behind / (behind - 1))
    for j in range(m):
        label_moves[slices.prompt[r, j]] = n * weights[j] * (residual[j] - shift) * factor
    return shift, behind - 1


@Kernel
def borrowed(slices, r, scores, own, form, widening, out):  # type: ignore[no-untyped-def]
    """Values of the policies without `own` labels, corrected by the slice's residuals.

    `balance.balanced_residual`, or `fit._slice_residual`; each prompt has one labelled row at most. Errors along
    the moves of the judge's test are larger by `widening`.
    """
    m, n, full = slices.rows[r], scores.shape[1], slices.n_folds[r]
    score, prompt, selected = slices.score[r, :m], slices.prompt[r, :m], slices.moves[r, :m]
    share = slices.weight[r, :m] / total(slices.weight[r, :m])
    residual = np.empty(m)
    for j in range(m):
        residual[j] = slices.label[r, j] - slices.own_f[r, slices.policy[r, j], prompt[j]]
    center, spread = score.mean(), score.std()
    spread = spread if spread > 0 else 1.0
    scaled = (score - center) / spread
    ordered = scaled[slices.by_score[r, :m]]
    knot = np.array(
        [
            quantile_of_type_2(ordered, KNOTS[0]),
            quantile_of_type_2(ordered, KNOTS[1]),
            quantile_of_type_2(ordered, KNOTS[2]),
        ]
    )
    if knot[0] == knot[1] or knot[1] == knot[2]:
        knot = np.empty(0)
    terms = spline_terms(scaled, knot)
    width = terms.shape[1]
    size = np.empty(width)
    design = np.empty((m, width))
    for c in range(width):
        size[c] = np.sqrt((share * terms[:, c] ** 2).sum())
        size[c] = size[c] if size[c] > 0 else 1.0
        for j in range(m):
            design[j, c] = np.sqrt(share[j]) * terms[j, c] / size[c]
    _, singular, axis = np.linalg.svd(design, full_matrices=False)
    rank = (singular > RANK * singular[0]).sum()
    turn = np.empty((width, rank))
    for c in range(width):
        for d in range(rank):
            turn[c, d] = axis[d, c] / singular[d] / size[c]
    row = terms @ turn
    fitted = row @ (row.T @ (share * residual))
    noise = np.empty(m)
    for j in range(m):
        alone = share[j] * (row[j] ** 2).sum()
        rest = residual[j] - fitted[j]
        left = np.sqrt(1 - min(alone, MAX_LEVERAGE))
        noise[j] = rest + alone * rest / (left + left**2)
    moves, label_moves = np.empty(n), np.empty(n)
    n_knots, block = slices.n_knots[r, full], slices.block[r, full]
    mass = np.empty(block[n_knots - 1] + 1)
    for p in range(len(scores)):
        if own[p]:
            continue
        mean, df = mean_of_all(slices.f[r, p], moves)
        label_moves[:] = 0.0
        if form == ONE_STEP:
            shift, second_df = density_ratio(slices, r, scores[p], residual, label_moves)
        else:
            of_policy = spline_terms((scores[p] - center) / spread, knot)
            goal = np.empty(width)
            for c in range(width):
                goal[c] = of_policy[:, c].mean()
            weights = share * (row @ (goal @ turn))
            mass[:] = 0.0
            knot_mass(scores[p], slices.place[r, p], 1.0 / n, slices.knot[r, full], n_knots, block, mass)
            for j in range(m):  # its scores are knots
                mass[block[slices.at[r, j]]] -= weights[j]
            coefficient = weights + leverage(slices, r, mass)
            behind = effective(coefficient)
            shift, second_df = dot(weights, residual), np.nan
            if behind >= MIN_BEHIND:
                second_df = max(effective(weights) - 1, 2.0)
                error = coefficient * noise
                norm = dot(selected, selected)
                if widening > 1 and norm > 0:
                    error += (widening - 1) * dot(error, selected) / norm * selected
                out.balance[r, p] = 0.0
                for j in range(m):
                    label_moves[prompt[j]] = n * error[j]
                    out.balance[r, p, prompt[j]] = weights[j]
        fill(out, r, p, form, mean + shift, moves, df, label_moves, second_df)


@Kernel
def own_values(scores, labels, probs, slices, choice, out):  # type: ignore[no-untyped-def]
    """Fill `Values` of policies whose own labels correct, for data sets (R, P, n) with `Slices`.

    ``choice`` says whether the prediction is tuned, whether it is targeted (TMLE), and on which scale: low, width.
    """
    n_policies, n = scores.shape[1], scores.shape[2]
    nothing, moves = np.zeros(n), np.empty(n)
    for r in range(len(scores)):
        failed = slices.kind[r] == TOO_FEW_LABELS or slices.kind[r] == NO_LABELS
        for p in range(n_policies):
            at = np.flatnonzero(~np.isnan(labels[r, p]))
            if len(at) < MIN_LABELLED_CLUSTERS:
                continue
            label = labels[r, p][at]
            if len(at) == n:
                value, df = mean_of_all(label, moves)
                fill(out, r, p, LABEL_MEAN, value, moves, df, nothing, np.inf)
            elif not failed:
                corrected(slices, r, p, scores[r, p], at, label, 1.0 / probs[r, p], choice, out)


@Kernel
def lent_values(scores, slices, own, widening, form, out):  # type: ignore[no-untyped-def]
    """Fill `Values` of the others, given whose ``own`` labels correct, (R, P)."""
    for r in range(len(scores)):
        if slices.kind[r] == TOO_FEW_LABELS or slices.kind[r] == NO_LABELS or own[r].all():
            continue
        if form == PLUG_IN:
            for p in np.flatnonzero(~own[r]):
                plug_in(slices, r, p, scores[r, p], out)
        else:
            borrowed(slices, r, scores[r], own[r], form, widening[r], out)
