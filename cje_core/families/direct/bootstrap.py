"""Cluster bootstrap of Direct: the calibrator is refitted in every replicate.

Estimand: the sampling distribution of the estimates of all policies, jointly (the paper's algorithm Bootstrap-Direct
in the section on uncertainty). A replicate is a vector of weights over clusters: multinomial counts (the paper's) or
independent exponential weights (the Bayesian bootstrap, which never loses a label and so rejects nothing).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from cje_core.calibration.two_stage import SplineRows
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.families.direct.bootstrap_kernels import direct_replicates


class DirectRows(NamedTuple):
    """What the bootstrap of Direct needs, as flat arrays; ``cluster`` indexes the sampling units 0..G-1.

    Rows of one policy are adjacent: those of policy p are ``start[p]:start[p + 1]``.
    """

    level: (
        FloatArray  # sorted distinct scores (times the calibrator's sign); two-stage: codes of the rows of Z
    )
    spline: SplineRows  # first stage of a two-stage calibrator; empty for the monotone one
    route: IntArray  # per policy: PLUG_IN, LABEL_MEAN, HAJEK, HORVITZ or TMLE of the kernels
    power: FloatArray  # per policy: factor of the calibrated prediction, 1 unless tuned
    centered: (
        IntArray  # per policy: 1 if the prediction is taken about the mean label of its fit (tuned), else 0
    )
    low: float  # declared oracle range
    high: float
    n_clusters: int
    # evaluated rows
    start: IntArray
    cluster: IntArray
    at: IntArray  # index into level
    weight: FloatArray
    offset: FloatArray  # what the prediction holds besides the calibrator (tuned), else 0
    clever: FloatArray  # clever covariate 1 / e
    # rows that teach the calibrator
    teach_cluster: IntArray
    teach_at: IntArray
    teach_label: FloatArray
    teach_weight: FloatArray
    teach_fold: IntArray
    # labelled rows of the policies themselves (residual correction, label means)
    own_start: IntArray
    own_cluster: IntArray
    own_at: IntArray
    own_label: FloatArray
    own_weight: FloatArray  # row weight / e
    own_clever: FloatArray
    own_offset: FloatArray
    own_fold: IntArray


class Replicates(NamedTuple):
    """Bootstrap replicates of all policies."""

    draws: FloatArray  # (P, B); NaN where B replicates could not be had
    std_error: FloatArray  # (P, B) analytic standard error of each; (P, 0) unless studentised
    n_rejected: int


def bootstrap_direct(
    rows: DirectRows,
    n_boot: int,
    rng: np.random.Generator,
    *,
    weights: str = "multinomial",
    studentised: bool = False,
    max_attempts: int = 20,
) -> Replicates:
    """Cluster bootstrap with calibrator refit (the paper's algorithm Bootstrap-Direct), all policies jointly.

    Each replicate reweights the G clusters, refits the calibrator on the labels drawn (fold ids stay with
    their clusters, so out-of-fold stays out-of-fold) and recomputes every policy's value. A multinomial replicate
    needs at least ``n_min = min(30, half the labels)`` teaching labels, and as many own labels of each corrected
    policy; the paper's fixed 30 never ends with fewer than 30 labels. Rejected replicates are redrawn and counted,
    because rejecting conditions on the easy samples.

    Parameters
    ----------
    n_boot : int
        Replicates B.
    weights : {"multinomial", "exponential"}
    studentised : bool
        Also return each replicate's analytic standard error.
    max_attempts : int
        Give up after ``max_attempts * B`` resamples; the draws not filled by then are NaN.
    """
    n_policies = len(rows.route)
    draws = np.full((n_policies, n_boot), np.nan)
    std_error = np.full((n_policies, n_boot if studentised else 0), np.nan)
    positive = weights == "exponential"
    teach_min = 0 if positive else min(30, len(rows.teach_label) // 2)
    own_min = np.minimum(30, np.diff(rows.own_start) // 2) * (not positive)
    size, cell_of = _cells(rows)
    pooled = _pool(rows, cell_of) if len(size) < rows.n_clusters else rows
    done = rejected = 0
    for counts in _cluster_weights(size, rows.n_clusters, n_boot * max_attempts, n_boot, rng, positive):
        values, variances, valid = replicate_values(
            pooled, counts, teach_min=teach_min, own_min=own_min, variance=studentised
        )
        usable = np.flatnonzero(valid)[: n_boot - done]
        draws[:, done : done + len(usable)] = values[usable].T
        if studentised:
            std_error[:, done : done + len(usable)] = np.sqrt(variances[usable].T)
        last = len(counts) if done + len(usable) < n_boot else int(usable[-1]) + 1
        rejected += int((~valid[:last]).sum())
        done += len(usable)
        if done == n_boot:
            break
    return Replicates(draws, std_error, rejected)


def replicate_values(
    rows: DirectRows,
    counts: FloatArray,
    *,
    teach_min: float = 0.0,
    own_min: npt.ArrayLike = 0.0,
    variance: bool = False,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Values and, if asked for, analytic variances of all policies under given cluster weights (replicates, G).

    Weights of one give the estimate itself.
    """
    n_policies = len(rows.route)
    values = np.full((len(counts), n_policies), np.nan)
    variances = np.full((len(counts) if variance else 0, n_policies), np.nan)
    valid = np.empty(len(counts), dtype=np.bool_)
    minimum = np.broadcast_to(np.asarray(own_min, float), n_policies).copy()
    n_folds = int(max(rows.teach_fold.max(initial=0), rows.own_fold.max(initial=0))) + 1
    direct_replicates(counts, rows, n_folds, float(teach_min), minimum, values, variances, valid)
    return values, variances, valid


def _cells(rows: DirectRows) -> tuple[IntArray, IntArray]:
    """Pool clusters that look the same, so that cost follows the number of distinct clusters, not their number.

    A multinomial draw over pooled cells has the distribution of resampling clusters one by one (and a gamma weight
    that of adding exponential ones). Clusters without a label and with one evaluated response per policy are pooled by
    their pattern of score levels; all others stay alone. Pooling is dropped where it would not pay.

    Returns
    -------
    size : int array, shape (C,)
        Clusters in each cell.
    cell_of : int array, shape (G,)
    """
    alone = np.ones(rows.n_clusters, dtype=np.intp), np.arange(rows.n_clusters)
    n_policies = len(rows.route)
    policy = np.repeat(np.arange(n_policies), np.diff(rows.start))
    key = rows.cluster * n_policies + policy
    if len(np.unique(key)) < len(key) or not (rows.weight == 1).all() or np.ptp(rows.clever) > 0:
        return alone  # (an offset is a function of policy and level)
    pattern = np.full((rows.n_clusters, n_policies), -1, dtype=np.int32)
    pattern[rows.cluster, policy] = rows.at
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


def _pool(rows: DirectRows, cell_of: IntArray) -> DirectRows:
    """Cells for clusters, keeping the rows of the first cluster of each cell: they stand for the whole cell."""
    first = np.full(int(cell_of.max()) + 1, len(cell_of), dtype=np.intp)
    np.minimum.at(first, cell_of, np.arange(len(cell_of)))
    keep = first[cell_of[rows.cluster]] == rows.cluster
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    return rows._replace(
        start=kept_before[rows.start].astype(np.intp),
        cluster=cell_of[rows.cluster[keep]],
        at=rows.at[keep],
        weight=rows.weight[keep],
        offset=rows.offset[keep],
        clever=rows.clever[keep],
        teach_cluster=cell_of[rows.teach_cluster],
        own_cluster=cell_of[rows.own_cluster],
    )


def _cluster_weights(
    size: IntArray, n_clusters: int, n_total: int, n_first: int, rng: np.random.Generator, positive: bool
) -> Iterator[FloatArray]:
    """Resampling weights of cells, in chunks of shape (chunk, C) that stay small whatever n and B are."""
    pooled = len(size) < n_clusters
    chunk = int(np.clip(2_000_000 // (len(size) if pooled else n_clusters), 1, n_first))
    for start in range(0, n_total, chunk):
        rounds = min(chunk, n_total - start)
        if positive:
            yield rng.standard_gamma(size.astype(float), size=(rounds, len(size)))
        elif pooled:
            yield rng.multinomial(n_clusters, size / n_clusters, size=rounds).astype(float)
        else:
            drawn = rng.integers(0, n_clusters, size=(rounds, n_clusters), dtype=np.int32)
            counts = np.zeros((rounds, n_clusters))
            _count_into(drawn, counts)
            yield counts


@numba.njit(cache=True)
def _count_into(drawn, counts):  # type: ignore[no-untyped-def]
    for b in range(drawn.shape[0]):
        for i in range(drawn.shape[1]):
            counts[b, drawn[b, i]] += 1.0
