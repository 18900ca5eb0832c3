"""From influence values to standard errors and degrees of freedom, and the cluster bootstrap of Direct.

An estimate's error is the mean over prompts of its influence values. They come in independent-in-origin parts (which
responses were drawn, which labels were seen, which probes), each with its own small-sample factor and degrees of
freedom: with 12 labels among 5,000 prompts it is the 12 that limit what is known.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from cje_core.isotonic import interpolate_into, pava_into
from cje_core.result import cluster_sums

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


class Part(NamedTuple):
    """One source of error: its influence values per prompt and the degrees of freedom behind them."""

    influence: FloatArray  # shape (n,), small-sample factor included
    df: float


def effective_clusters(leverage: FloatArray, cluster: IntArray) -> float:
    """How many clusters a sum ``leverage_g * noise_g`` rests on: ``(sum_g l_g^2)^2 / sum_g l_g^4``; 0 for none.

    Examples
    --------
    >>> round(effective_clusters(np.array([1.0, 1.0, 0.1]), np.array([0, 1, 2])), 2)
    2.02
    """
    squared = cluster_sums(np.abs(leverage), cluster) ** 2
    return float(squared.sum() ** 2 / (squared**2).sum()) if squared.any() else 0.0


def make_part(influence: FloatArray, leverage: FloatArray, cluster: IntArray) -> Part:
    """Attach the small-sample factor and degrees of freedom to one source of error.

    With m = `effective_clusters` the factor is ``m / (m - 1)`` on the variance and ``df = m - 1``; with equal leverage
    this is the usual G / (G - 1) and G - 1.

    Parameters
    ----------
    influence, leverage : arrays, shape (n,)
        Per prompt; leverage is the coefficient of the cluster's noise, of any scale.
    cluster : int array, shape (n,)

    Returns
    -------
    Part
        NaN influence when fewer than two effective clusters carry it: one cluster says nothing about spread.
    """
    effective = effective_clusters(leverage, cluster)
    if effective == 0:  # this source does not act: no influence, and nothing to estimate
        return Part(np.zeros_like(influence), np.inf)
    if effective < 1 + 1e-9:
        return Part(np.full_like(influence, np.nan), np.nan)
    return Part(influence * np.sqrt(effective / (effective - 1)), effective - 1)


def combine(parts: Sequence[Part], cluster: IntArray) -> tuple[FloatArray, float, float]:
    """Total influence, cluster-robust standard error and Welch-Satterthwaite degrees of freedom of the parts.

    ``df = (sum V_c)^2 / sum (V_c^2 / df_c)`` with V_c the variance of part c.

    Returns
    -------
    influence : array, shape (n,)
    std_error, df : float
    """
    total = np.sum([part.influence for part in parts], axis=0)
    n = len(total)
    variance = np.array([(cluster_sums(part.influence, cluster) ** 2).sum() / n**2 for part in parts])
    df = np.array([part.df for part in parts])
    std_error = float(np.sqrt((cluster_sums(total, cluster) ** 2).sum()) / n)
    spread = float((variance**2 / df).sum())
    return total, std_error, float(variance.sum() ** 2 / spread) if spread > 0 else np.inf


# --- cluster bootstrap of Direct -------------------------------------------------------------------------------------

PLUG_IN, AUGMENTED, LABEL_MEAN = 0, 1, 2


class DirectRows(NamedTuple):
    """What the bootstrap of Direct needs, as flat arrays; ``cluster`` indexes the sampling units 0..G-1."""

    level: FloatArray  # sorted distinct scores (times the calibrator's sign)
    route: IntArray  # per policy: PLUG_IN, AUGMENTED or LABEL_MEAN
    n_clusters: int
    # evaluated rows
    policy: IntArray
    cluster: IntArray
    at: IntArray  # index into level
    weight: FloatArray
    # rows that teach the calibrator
    teach_cluster: IntArray
    teach_at: IntArray
    teach_label: FloatArray
    teach_weight: FloatArray
    teach_fold: IntArray
    # labelled rows of the policies themselves (residual correction, label means)
    own_policy: IntArray
    own_cluster: IntArray
    own_at: IntArray
    own_label: FloatArray
    own_weight: FloatArray
    own_fold: IntArray


def bootstrap_direct(
    rows: DirectRows, n_boot: int, rng: np.random.Generator, *, max_attempts: int = 20
) -> tuple[FloatArray, int]:
    """Cluster bootstrap with calibrator refit (the paper's algorithm Bootstrap-Direct), all policies jointly.

    Each replicate draws G clusters with replacement, refits the calibrator on the labels drawn (fold ids stay with
    their clusters, so out-of-fold stays out-of-fold) and recomputes every policy's value. A replicate needs at least
    ``n_min = min(30, half the labels)`` teaching labels, and as many own labels of each corrected policy; the
    paper's fixed 30 never ends with fewer than 30 labels. Rejected replicates are redrawn and counted, because
    rejecting conditions on the easy samples.

    Parameters
    ----------
    rows : DirectRows
    n_boot : int
        Replicates B.
    rng : numpy Generator
    max_attempts : int
        Give up after ``max_attempts * B`` resamples; the draws not filled by then are NaN.

    Returns
    -------
    draws : array, shape (P, B)
    n_rejected : int
    """
    n_policies = len(rows.route)
    draws = np.full((n_policies, n_boot), np.nan)
    teach_min = min(30, len(rows.teach_label) // 2)
    own_min = np.minimum(30, np.bincount(rows.own_policy, minlength=n_policies) // 2)
    cells, cell_of = _cells(rows)
    moved = rows._replace(
        cluster=cell_of[rows.cluster],
        teach_cluster=cell_of[rows.teach_cluster],
        own_cluster=cell_of[rows.own_cluster],
    )
    keep = (
        _first_of_cell(moved.cluster, rows.cluster, cell_of) if len(cells) < rows.n_clusters else slice(None)
    )
    evaluated = (moved.policy[keep], moved.cluster[keep], moved.at[keep], moved.weight[keep])
    n_folds = int(max(rows.teach_fold.max(initial=0), rows.own_fold.max(initial=0))) + 1
    done = rejected = 0
    for counts in _cluster_counts(cells, rows.n_clusters, n_boot * max_attempts, n_boot, rng):
        values = np.empty((len(counts), n_policies))
        valid = np.empty(len(counts), dtype=np.bool_)
        _direct_replicates(
            counts, rows.level, rows.route, *evaluated,
            moved.teach_cluster, rows.teach_at, rows.teach_label, rows.teach_weight, rows.teach_fold,
            rows.own_policy, moved.own_cluster, rows.own_at, rows.own_label, rows.own_weight, rows.own_fold,
            n_folds, teach_min, own_min, values, valid,
        )  # fmt: skip
        usable = np.flatnonzero(valid)[: n_boot - done]
        draws[:, done : done + len(usable)] = values[usable].T
        last = len(counts) if done + len(usable) < n_boot else int(usable[-1]) + 1
        rejected += int((~valid[:last]).sum())
        done += len(usable)
        if done == n_boot:
            break
    return draws, rejected


def _cells(rows: DirectRows) -> tuple[IntArray, IntArray]:
    """Pool clusters that look the same, so that cost follows the number of distinct clusters, not their number.

    A multinomial draw over pooled cells has the distribution of resampling clusters one by one. Clusters without a
    label and with one evaluated response per policy are pooled by their pattern of score levels; all others stay
    alone. Pooling is dropped where it would not pay.

    Returns
    -------
    size : int array, shape (C,)
        Clusters in each cell.
    cell_of : int array, shape (G,)
    """
    alone = np.ones(rows.n_clusters, dtype=np.intp), np.arange(rows.n_clusters)
    n_policies = len(rows.route)
    key = rows.cluster * n_policies + rows.policy
    if len(np.unique(key)) < len(key) or not (rows.weight == 1).all():
        return alone
    pattern = np.full((rows.n_clusters, n_policies), -1, dtype=np.int32)
    pattern[rows.cluster, rows.policy] = rows.at
    labelled = np.zeros(rows.n_clusters, dtype=bool)
    labelled[rows.teach_cluster] = labelled[rows.own_cluster] = True
    free = np.flatnonzero(~labelled)
    patterns, code = np.unique(pattern[free], axis=0, return_inverse=True)
    n_labelled = rows.n_clusters - len(free)
    if (n_labelled + len(patterns)) * 30 > rows.n_clusters:  # a binomial draw costs about 30 bounded integers
        return alone
    cell_of = np.empty(rows.n_clusters, dtype=np.intp)
    cell_of[labelled] = np.arange(n_labelled)
    cell_of[free] = n_labelled + code.ravel()
    return np.bincount(cell_of).astype(np.intp), cell_of


def _first_of_cell(cell: IntArray, cluster: IntArray, cell_of: IntArray) -> npt.NDArray[np.bool_]:
    """Rows of the first cluster of each cell: they stand for the whole cell."""
    first = np.full(int(cell_of.max()) + 1, len(cell_of), dtype=np.intp)
    np.minimum.at(first, cell_of, np.arange(len(cell_of)))
    return np.asarray(first[cell] == cluster)


def _cluster_counts(
    size: IntArray, n_clusters: int, n_total: int, n_first: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.int64]]:
    """Resampling counts of cells, in chunks of shape (chunk, C) that stay small whatever n and B are."""
    pooled = len(size) < n_clusters
    chunk = int(np.clip(2_000_000 // (len(size) if pooled else n_clusters), 1, n_first))
    for start in range(0, n_total, chunk):
        rounds = min(chunk, n_total - start)
        if pooled:
            yield rng.multinomial(n_clusters, size / n_clusters, size=rounds)
        else:
            drawn = rng.integers(0, n_clusters, size=(rounds, n_clusters), dtype=np.int32)
            counts = np.zeros((rounds, n_clusters), dtype=np.int64)
            _count_into(drawn, counts)
            yield counts


@numba.njit(cache=True)
def _count_into(drawn, counts):  # type: ignore[no-untyped-def]
    for b in range(drawn.shape[0]):
        for i in range(drawn.shape[1]):
            counts[b, drawn[b, i]] += 1


@numba.njit(cache=True)
def _direct_replicates(  # type: ignore[no-untyped-def]
    counts, level, route, policy, cluster, at, weight,
    teach_cluster, teach_at, teach_label, teach_weight, teach_fold,
    own_policy, own_cluster, own_at, own_label, own_weight, own_fold,
    n_folds, teach_min, own_min, values, valid,
):  # fmt: skip
    """One row of ``values`` per row of ``counts``; see `bootstrap_direct`. Fit ``n_folds`` is the full fit."""
    n_levels, n_policies = len(level), len(route)
    total = np.empty((n_folds + 1, n_levels))
    summed = np.empty((n_folds + 1, n_levels))
    fitted = np.empty((n_folds + 1, n_levels))
    is_knot = np.empty(n_levels, dtype=np.bool_)
    mean, knot_weight, knot_value = np.empty(n_levels), np.empty(n_levels), np.empty(n_levels)
    block_value, block_weight = np.empty(n_levels), np.empty(n_levels)
    block_end = np.empty(n_levels, dtype=np.int64)
    has_fit = np.empty(n_folds + 1, dtype=np.bool_)
    needed = np.zeros(n_folds + 1, dtype=np.bool_)
    needed[n_folds] = True
    for r in range(len(own_policy)):
        if route[own_policy[r]] == 1:
            needed[own_fold[r]] = True
    plug_sum, plug_weight = np.empty(n_policies), np.empty(n_policies)
    own_sum, own_total = np.empty(n_policies), np.empty(n_policies)
    own_seen = np.empty(n_policies, dtype=np.int64)
    for b in range(counts.shape[0]):
        count = counts[b]
        total[:] = 0.0
        summed[:] = 0.0
        seen = 0
        for r in range(len(teach_cluster)):
            times = count[teach_cluster[r]]
            if times > 0:
                seen += times
                w = times * teach_weight[r]
                for k in range(n_folds + 1):
                    if k != teach_fold[r]:
                        total[k, teach_at[r]] += w
                        summed[k, teach_at[r]] += w * teach_label[r]
        valid[b] = seen >= teach_min
        for k in range(n_folds + 1):
            has_fit[k] = False
            if not (valid[b] and needed[k]):
                continue
            n_knots = 0
            for i in range(n_levels):
                is_knot[i] = total[k, i] > 0
                if is_knot[i]:
                    mean[n_knots] = summed[k, i] / total[k, i]
                    knot_weight[n_knots] = total[k, i]
                    n_knots += 1
            if n_knots > 0:
                pava_into(mean, knot_weight, n_knots, knot_value, block_value, block_weight, block_end)
                interpolate_into(is_knot, knot_value, level, n_levels, fitted[k])
                has_fit[k] = True
        valid[b] = valid[b] and has_fit[n_folds]
        if not valid[b]:
            continue
        plug_sum[:] = 0.0
        plug_weight[:] = 0.0
        for r in range(len(policy)):
            times = count[cluster[r]]
            if times > 0:
                w = times * weight[r]
                plug_sum[policy[r]] += w * fitted[n_folds, at[r]]
                plug_weight[policy[r]] += w
        own_sum[:] = 0.0
        own_total[:] = 0.0
        own_seen[:] = 0
        for r in range(len(own_policy)):
            times = count[own_cluster[r]]
            p = own_policy[r]
            if times > 0 and route[p] != 0:
                w = times * own_weight[r]
                guess = 0.0
                if route[p] == 1:
                    if not has_fit[own_fold[r]]:
                        valid[b] = False
                        break
                    guess = fitted[own_fold[r], own_at[r]]
                own_sum[p] += w * (own_label[r] - guess)
                own_total[p] += w
                own_seen[p] += times
        for p in range(n_policies):
            value = 0.0
            if route[p] != 2:
                if plug_weight[p] <= 0:
                    valid[b] = False
                    break
                value = plug_sum[p] / plug_weight[p]
            if route[p] != 0:
                if own_seen[p] < own_min[p] or own_total[p] <= 0:
                    valid[b] = False
                    break
                value += own_sum[p] / own_total[p]
            values[b, p] = value
