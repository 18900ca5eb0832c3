"""Delete-one-fold jackknife of Direct on a block: `cje_core.families.direct.fit` with ``inference="jackknife"``.

The values without a fold are those of the calibrator that never saw it, which the slices hold: nothing is fitted again.
"""

import numpy as np

from cje_core.checks import FloatArray
from cje_core.compiled import Kernel
from cje_core.data.block import Block
from cje_core.families.blocks.direct_kernels import CORRECTED, PLUG_IN, Values
from cje_core.families.blocks.estimates import standard_error
from cje_core.families.blocks.slice_kernels import CELLS, Slices, between, dot, locate, total
from cje_core.inference.influence import delete_group_variance, pooled_df


def fold_errors(block: Block, slices: Slices, found: Values) -> tuple[FloatArray, FloatArray]:
    """Standard errors and degrees of freedom, (R, P), of values that are a plug-in or corrected by own labels.

    What the folds measure takes the place of the error of a borrowed fit, and stands beside that of own residuals.

    Parameters
    ----------
    found : Values
        Of predictions that are not tuned.
    """
    n_sets, n_policies = block.score.shape[:2]
    left_out = np.full((n_sets, n_policies, slices.value.shape[1] - 1), np.nan)
    without_each_fold(block.score, block.label, block.label_prob, slices, found.route, left_out)
    fold_variance = np.full((n_sets, n_policies), np.nan)
    for r, n_folds in enumerate(slices.n_folds):
        size = np.bincount(slices.fold[r, slices.fold[r] >= 0], minlength=1)
        if len(size) == n_folds and size.all():
            fold_variance[r] = delete_group_variance(left_out[r, :, :n_folds], size, found.value[r])
    borrowed = found.route == PLUG_IN
    given_f = np.where(borrowed, np.sqrt(found.variance[..., 0]), standard_error(found.influence))
    df = np.where(borrowed, found.df[..., 0], pooled_df(found.variance, found.df))
    behind = np.broadcast_to(slices.n_folds[:, None] - 1.0, df.shape)
    std_error = np.hypot(given_f, np.sqrt(fold_variance))
    both = pooled_df(np.stack([given_f**2, fold_variance], -1), np.stack([df, behind], -1))
    rests_on_f = borrowed | (found.route == CORRECTED)
    return np.where(rests_on_f, std_error, given_f), np.where(rests_on_f, both, df)


@Kernel
def without_each_fold(scores, labels, probs, slices, route, left_out):  # type: ignore[no-untyped-def]
    """Value of every policy by the calibrator without each fold, (R, P, K) (filled), also where labels correct it."""
    n = scores.shape[2]
    f, place = np.empty(n), np.empty(n, dtype=np.int32)
    first = np.empty(CELLS * slices.knot.shape[2] + 1, dtype=np.int64)
    for r in range(len(scores)):
        for p in range(scores.shape[1]):
            if route[r, p] != PLUG_IN and route[r, p] != CORRECTED:
                continue
            at = np.flatnonzero(~np.isnan(labels[r, p]))
            label, weight = labels[r, p][at], 1.0 / probs[r, p][at]
            share = weight / total(weight)
            for k in range(slices.n_folds[r]):
                last = slices.n_knots[r, k] - 1
                if last < 0:
                    continue
                knot, value = slices.knot[r, k], slices.value[r, k]
                locate(scores[r, p], knot, last + 1, first, place)
                for i in range(n):
                    f[i] = between(scores[r, p, i], place[i], knot, value, last)
                left_out[r, p, k] = total(f) / n
                if route[r, p] == CORRECTED:
                    left_out[r, p, k] += dot(share, label - f[at])
