"""The projection posterior: isotonic regression under random weights, with no prior on the shape.

Each draw puts exponential weights on the clusters of prompts (the Bayesian bootstrap), fits weighted isotonic
regression to the labels and averages it over the responses with the same weights. It is the nonparametric comparator of
the spline posterior and is known to cover too little at few labels: reweighting cannot move a fit off the labels seen
(and the in-sample residual of weighted isotonic regression is zero, so no in-sample correction can help).
"""

import numpy as np

from cje_core.bayes.levels import Graded
from cje_core.calibration.isotonic import pava_into
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray, Rng
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
    start = np.searchsorted(rows.policy[used], np.arange(len(rows.policies) + 1))  # rows are sorted by policy
    knot, knot_at = np.unique(graded.at[taught], return_inverse=True)
    if len(knot) == 0:
        return out.T
    below, step = _between(levels.level[knot], levels.level[graded.at[used]])
    evaluated = start, cluster[used], rows.weight[used], below, step
    labels = cluster[taught], knot_at, graded.label[taught], fitted.weight
    _projections(np.random.default_rng(rng), len(knot), len(rows.cluster_names), evaluated, labels, out)
    return levels.low + levels.width * out.T


def _between(knot: FloatArray, at: FloatArray) -> tuple[IntArray, FloatArray]:
    """Knot below each place, and the place's share of the way to the next: linear between knots, constant outside.

    Every draw weighs every label, so the knots, and what lies between which, are the same in all.
    """
    last = max(len(knot) - 2, 0)
    below = np.clip(np.searchsorted(knot, at, side="right") - 1, 0, last)
    span = knot[min(1, len(knot) - 1) :][below] - knot[below]
    step = np.divide(at - knot[below], span, out=np.zeros(len(at)), where=span > 0)
    return below, np.clip(step, 0.0, 1.0)


@Kernel
def _projections(rng, n_knots, n_clusters, evaluated, labels, out):  # type: ignore[no-untyped-def]
    start, cluster, weight, below, step = evaluated
    teach_cluster, teach_at, teach_label, teach_weight = labels
    drawn = np.empty(n_clusters)
    count, mean = np.empty(n_knots), np.empty(n_knots)
    knot_value, rise = np.empty(n_knots), np.zeros(n_knots)
    block_value, block_weight = np.empty(n_knots), np.empty(n_knots)
    block_end = np.empty(n_knots, dtype=np.int64)
    for d in range(out.shape[0]):
        for g in range(n_clusters):
            drawn[g] = rng.standard_exponential()
        count[:] = 1e-300  # a weight may be 0, with a probability of that order
        mean[:] = 0.0
        for r in range(len(teach_cluster)):
            w = drawn[teach_cluster[r]] * teach_weight[r]
            count[teach_at[r]] += w
            mean[teach_at[r]] += w * teach_label[r]
        mean /= count
        pava_into(mean, count, n_knots, knot_value, block_value, block_weight, block_end)
        for k in range(n_knots - 1):
            rise[k] = knot_value[k + 1] - knot_value[k]
        for p in range(out.shape[1]):
            value, total = 0.0, 0.0
            for r in range(start[p], start[p + 1]):
                w = drawn[cluster[r]] * weight[r]
                value += w * (knot_value[below[r]] + step[r] * rise[below[r]])
                total += w
            if total > 0.0:
                out[d, p] = value / total
