"""The projection posterior: isotonic regression under random weights, with no prior on the shape.

Each draw puts exponential weights on the clusters of prompts (the Bayesian bootstrap), fits weighted isotonic
regression to the labels and averages it over the responses with the same weights. It is the nonparametric comparator of
the spline posterior and is known to cover too little at few labels: reweighting cannot move a fit off the labels seen
(and the in-sample residual of weighted isotonic regression is zero, so no in-sample correction can help).
"""

import numpy as np

from cje_core.bayes.levels import Graded
from cje_core.calibration.isotonic import interpolate_into, pava_into
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, Rng
from cje_core.compiled import Kernel
from cje_core.data.arrays import Rows


def projected_values(
    rows: Rows, fitted: OracleSlice, graded: Graded, *, n_draws: int = 1000, rng: Rng = None
) -> FloatArray:
    """Draws of every policy's plug-in value, shape (policies, draws), on the oracle scale; `fitted` has the labels."""
    levels = graded.levels
    used = np.flatnonzero(rows.evaluated)
    cluster = rows.cluster[rows.prompt]
    taught = np.flatnonzero(rows.teaches)
    out = np.full((n_draws, len(rows.policies)), np.nan)
    evaluated = rows.policy[used], cluster[used], graded.at[used], rows.weight[used]
    labels = cluster[taught], graded.at[taught], graded.label[taught], fitted.weight
    _projections(np.random.default_rng(rng), levels.level, len(rows.cluster_names), evaluated, labels, out)
    return levels.low + levels.width * out.T


@Kernel
def _projections(rng, level, n_clusters, evaluated, labels, out):  # type: ignore[no-untyped-def]
    policy, cluster, at, weight = evaluated
    teach_cluster, teach_at, teach_label, teach_weight = labels
    n_levels, n_policies = len(level), out.shape[1]
    drawn = np.empty(n_clusters)
    count, summed = np.empty(n_levels), np.empty(n_levels)
    is_knot = np.empty(n_levels, dtype=np.bool_)
    mean, knot_weight, knot_value = np.empty(n_levels), np.empty(n_levels), np.empty(n_levels)
    block_value, block_weight = np.empty(n_levels), np.empty(n_levels)
    block_end = np.empty(n_levels, dtype=np.int64)
    f = np.empty(n_levels)
    value, total = np.empty(n_policies), np.empty(n_policies)
    for d in range(out.shape[0]):
        for g in range(n_clusters):
            drawn[g] = rng.standard_exponential()
        count[:] = 0.0
        summed[:] = 0.0
        for r in range(len(teach_cluster)):
            w = drawn[teach_cluster[r]] * teach_weight[r]
            count[teach_at[r]] += w
            summed[teach_at[r]] += w * teach_label[r]
        n_knots = 0
        for i in range(n_levels):
            is_knot[i] = count[i] > 0.0
            if is_knot[i]:
                mean[n_knots] = summed[i] / count[i]
                knot_weight[n_knots] = count[i]
                n_knots += 1
        if n_knots == 0:
            continue
        pava_into(mean, knot_weight, n_knots, knot_value, block_value, block_weight, block_end)
        interpolate_into(is_knot, knot_value, level, n_levels, f)
        value[:] = 0.0
        total[:] = 0.0
        for r in range(len(policy)):
            w = drawn[cluster[r]] * weight[r]
            value[policy[r]] += w * f[at[r]]
            total[policy[r]] += w
        for p in range(n_policies):
            if total[p] > 0.0:
                out[d, p] = value[p] / total[p]
