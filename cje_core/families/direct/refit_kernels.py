"""The calibrator of one bootstrap replicate of Direct, refitted without each fold and on all labels, in numba."""

from cje_core.calibration.isotonic import pava_into
from cje_core.compiled import Kernel

NOBODY, SEVERAL = -1, -2  # in place of the only fold that labelled a level


@Kernel
def monotone_fits(  # type: ignore[no-untyped-def]
    count,
    rows,
    core,
    of_level,
    wanted,
    wanted_first,
    needed,
    scratch,
    total,
    fitted,
    is_knot,
    has_fit,
    fold_level,
):
    """Refit the monotone calibrator without each fold, and on all labels (the last row of ``fitted``).

    The last fit is evaluated at all levels, the others only where a labelled row of their own fold needs them.

    Parameters
    ----------
    count : array, shape (G,)
        Weight of each cluster in this replicate.
    rows : DirectRows
    core : int array
        Levels of labelled rows, increasing.
    of_level : tuple of int arrays
        Teaching rows by level, and where those of each level of `core` begin, shape (core + 1,).
    wanted, wanted_first : int arrays
        Places in `core` of each fold's own labelled rows, increasing, and where those of each fold begin.
    needed : bool array, shape (folds + 1,)
    scratch : tuple of arrays
        ``of_fold``, shape (core, folds, 2), eight floats and four ints per level of `core`.
    total : array, shape (levels,)
        Label weight of each level in the last fit (filled where there are labels).
    fitted : array, shape (folds + 1, levels)
        The calibrated value (filled).
    is_knot : bool array, shape (levels,)
        Levels that hold labels (filled; false outside `core`).
    has_fit : bool array, shape (folds + 1,)
        Whether there was a label to fit on (filled).
    fold_level : array, shape (folds + 1,)
        Mean label behind each fit (filled).
    """
    n_core, n_folds = len(core), len(fitted) - 1
    order, first = of_level
    of_fold, floats, ints = scratch
    weight, label_sum, level_mean, mean, knot_weight, knot_value, block_value, block_weight = floats
    only, drawn, knot_at, block_end = ints
    # weight and label sum of each level, and the only fold that they are of: NOBODY, or SEVERAL with the sums by fold
    n_drawn = 0
    for c in range(n_core):
        only[c] = NOBODY
        if first[c + 1] - first[c] == 1:
            r = order[first[c]]
            times = count[rows.teach_cluster[r]]
            if times > 0:
                only[c] = rows.teach_fold[r]
                weight[c] = times * rows.teach_weight[r]
                label_sum[c] = weight[c] * rows.teach_label[r]
        else:
            of_fold[c] = 0.0
            for j in range(first[c], first[c + 1]):
                r = order[j]
                times = count[rows.teach_cluster[r]]
                if times > 0:
                    k = rows.teach_fold[r]
                    w = times * rows.teach_weight[r]
                    of_fold[c, k, 0] += w
                    of_fold[c, k, 1] += w * rows.teach_label[r]
                    if only[c] == NOBODY:
                        only[c] = k
                    elif only[c] != k:
                        only[c] = SEVERAL
            if only[c] >= 0:
                weight[c], label_sum[c] = of_fold[c, only[c], 0], of_fold[c, only[c], 1]
        if only[c] != NOBODY:
            if only[c] != SEVERAL:
                level_mean[c] = label_sum[c] / weight[c]
            drawn[n_drawn] = c
            n_drawn += 1
    for k in range(n_folds + 1):
        has_fit[k] = False
        if not needed[k]:
            continue
        n_knots = 0
        all_labels = all_weight = 0.0
        for d in range(n_drawn):
            c = drawn[d]
            if (
                only[c] != SEVERAL
            ):  # written in any case, and kept unless all is of fold k: no branch to guess
                inside = only[c] != k
                mean[n_knots], knot_weight[n_knots], knot_at[n_knots] = level_mean[c], weight[c], c
                all_labels += inside * label_sum[c]
                all_weight += inside * weight[c]
                n_knots += inside
                continue
            # what lies before and behind fold k: a total less the fold would leave rounding where nothing is left
            w = s = behind = behind_sum = 0.0
            for f in range(k):
                w += of_fold[c, f, 0]
                s += of_fold[c, f, 1]
            for f in range(n_folds - 1, k, -1):
                behind += of_fold[c, f, 0]
                behind_sum += of_fold[c, f, 1]
            w += behind
            s += behind_sum
            mean[n_knots], knot_weight[n_knots], knot_at[n_knots] = s / w, w, c
            all_labels += s
            all_weight += w
            n_knots += 1
        if n_knots == 0:
            continue
        pava_into(mean, knot_weight, n_knots, knot_value, block_value, block_weight, block_end)
        has_fit[k] = True
        fold_level[k] = all_labels / all_weight
        if k == n_folds:
            for c in range(n_core):
                is_knot[core[c]] = False
            for q in range(n_knots):
                is_knot[core[knot_at[q]]] = True
                total[core[knot_at[q]]] = knot_weight[q]
            spread_into(knot_at, knot_value, n_knots, core, rows.level, fitted[k])
            continue
        q = 0  # knots at or below the level
        for j in range(wanted_first[k], wanted_first[k + 1]):
            c = wanted[j]
            while q < n_knots and knot_at[q] <= c:
                q += 1
            value = knot_value[max(q - 1, 0)]
            if 0 < q < n_knots and knot_value[q] != value:
                left, right = rows.level[core[knot_at[q - 1]]], rows.level[core[knot_at[q]]]
                step = (rows.level[core[c]] - left) / (right - left)
                value += step * (knot_value[q] - value)
            fitted[k, core[c]] = value


@Kernel
def spread_into(knot_at, knot_value, n_knots, core, level, out):  # type: ignore[no-untyped-def]
    """Knot values over all levels, linear between knots and constant outside; in one block nothing is divided."""
    for i in range(core[knot_at[0]]):
        out[i] = knot_value[0]
    for q in range(n_knots - 1):
        left, right = core[knot_at[q]], core[knot_at[q + 1]]
        value, rise = knot_value[q], knot_value[q + 1] - knot_value[q]
        if rise == 0:
            for i in range(left, right):
                out[i] = value
        else:
            span = level[right] - level[left]
            for i in range(left, right):
                out[i] = value + (level[i] - level[left]) / span * rise
    for i in range(core[knot_at[n_knots - 1]], len(out)):
        out[i] = knot_value[n_knots - 1]
