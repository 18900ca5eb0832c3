"""Subgroup calibration with partial pooling: a shift of the calibrator in each group of prompts.

``f_g(Z) = f(Z) + b_g``: one calibrator for all, and in group g the mean residual of its labels, shrunk to theirs
together. With rbar_g the mean residual of the m_g labels of group g, rbar that of all, s^2 the variance within groups:

    b_g = B_g (rbar_g - rbar)        B_g = tau^2 / (tau^2 + s^2 / m_g)

tau^2 is the moment estimate of the variance between groups (DerSimonian and Laird 1986), 0 where they differ by no more
than chance would have them. Residuals are held out, and so are the shifts that correct: the label of fold k meets
``b_g^(-k)``, made without its fold. So a corrected value

    V = mean (h + b_g) + mean_own (Y - h^(-k) - b_g^(-k))

is unbiased whatever b is, the error of b enters to second order, and its influence function is that of `direct` with
``h + b`` in place of h: it holds the residuals of the groups. Shrinkage is for the prediction alone. No interval rests
on it, since an interval that did would hold on average over groups and not for the one group that is far off.

What is borrowed takes b from the slice's residuals in the same way. The value of *one* group, where all evaluated
responses lie in one (`cje_core.data.cohorts.restrict`), borrows the residuals of the slice's labels of that group and
of no other (`cje_core.families.direct.balance.make_lesson`), unshrunk; with fewer than 4 labelled prompts there, or
none where its scores lie, it is refused (LOW_SUPPORT).
"""

from typing import NamedTuple

import numpy as np

from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.inference.sums import gapless, sum_by

FEWEST = 20  # labels below which groups are not looked at


class Residuals(NamedTuple):
    """Held-out residuals of labels, and where they belong."""

    value: FloatArray  # (m,)
    weight: FloatArray  # (m,)
    cluster: IntArray  # (m,)
    group: IntArray  # (m,)


def shifts(
    rows: Rows, fold: IntArray, group: IntArray, prompt: IntArray, residual: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shift of each prompt's group, (prompts,), and that of each label made without the labels of its fold, (m,).

    ``fold`` and ``group`` are over prompts; ``prompt``, held-out ``residual`` and ``weight`` are those of the labels.
    """
    n_groups = int(group.max()) + 1
    found = Residuals(residual, weight, rows.cluster[prompt], group[prompt])
    of_fold, held_out = fold[prompt], np.zeros(len(prompt))
    for k in np.unique(of_fold):
        held = of_fold == k
        outside = Residuals(*(part[~held] for part in found))
        held_out[held] = pooled_shift(outside, n_groups)[found.group[held]]
    return pooled_shift(found, n_groups)[group], held_out


def pooled_shift(found: Residuals, n_groups: int) -> FloatArray:
    """Shrunken mean residual of each group less that of all, (n_groups,); 0 where nothing tells groups apart.

    Labels of one cluster count as one: its weighted mean, in the group of its first label.

    Examples
    --------
    >>> value, at = np.tile([0.0, 2.0, -2.0, 0.0], 10), np.arange(40)
    >>> pooled_shift(Residuals(value, np.ones(40), at, at % 4 // 2), 3).round(3).tolist()
    [0.974, -0.974, 0.0]
    """
    none = np.zeros(n_groups)
    unit, n_units = gapless(found.cluster)
    if n_units < FEWEST:
        return none
    size = sum_by(unit, found.weight, n_units)
    value = sum_by(unit, found.weight * found.value, n_units) / size
    group = found.group if unit is None else found.group[np.unique(unit, return_index=True)[1]]
    mass, squares = sum_by(group, size, n_groups), sum_by(group, size**2, n_groups)
    seen = mass > 0
    effective = np.divide(mass**2, squares, out=np.zeros(n_groups), where=seen)
    mean = np.divide(sum_by(group, size * value, n_groups), mass, out=np.zeros(n_groups), where=seen)
    n_seen = int(seen.sum())
    free = float(effective[seen].sum()) - n_seen
    if n_seen < 2 or free < 1:
        return none
    within = float((size * (value - mean[group]) ** 2).sum() / size.mean()) / (n_units - n_seen)
    if not within > 0:
        return none
    precision = effective / within
    center = float(precision @ mean / precision.sum())
    excess = float(precision @ (mean - center) ** 2) - (n_seen - 1)
    spread = float(precision.sum() - (precision**2).sum() / precision.sum())
    between = max(excess / spread, 0.0)
    # tau^2 / (tau^2 + s^2 / m_g), and 0 where the group has no label
    shrink = between * precision / (between * precision + 1.0)
    return np.where(seen, shrink * (mean - center), 0.0)
