"""Sums by code: of prompts by cluster, of rows by prompt, and the standard errors that they make."""

import numpy as np

from cje_core.checks import FloatArray, IntArray


def sum_by(code: IntArray | None, values: FloatArray, n: int) -> FloatArray:
    """Sum of values by code, shape (n,), in memory of its own; without codes value i is sum i."""
    if code is None:
        return np.array(values, dtype=float)
    return np.asarray(np.bincount(code, weights=values, minlength=n), dtype=float)


def counts_up(code: IntArray, n: int) -> bool:
    """Whether codes are 0..n-1 in order, so that sums by them are the values: a million cost as much to sum as to draw.

    Examples
    --------
    >>> counts_up(np.arange(3), 3), counts_up(np.array([0, 2, 1]), 3), counts_up(np.arange(3), 4)
    (True, False, False)
    """
    return len(code) == n and (
        n == 0 or bool(code[0] == 0 and code[-1] == n - 1 and (code[1:] > code[:-1]).all())
    )


def gapless(code: IntArray) -> tuple[IntArray | None, int]:
    """Codes 0..G-1 in the order of some integers, and G; None for the codes where each row has its own, in order.

    Examples
    --------
    >>> gapless(np.array([7, 2, 7])), gapless(np.array([2, 7, 9]))
    ((array([1, 0, 1]), 2), (None, 3))
    """
    if (code[1:] > code[:-1]).all():
        return None, len(code)
    known, dense = np.unique(code, return_inverse=True)
    return dense, len(known)


def cluster_sums(influence: FloatArray, cluster: IntArray | None) -> FloatArray:
    """Sum influence of shape (..., n) within clusters 0..G-1, giving shape (..., G); None: prompt i is cluster i."""
    n_clusters = influence.shape[-1]
    if cluster is not None:
        n_clusters = int(cluster.max()) + 1 if len(cluster) else 0
        cluster = None if counts_up(cluster, n_clusters) else cluster
    if influence.ndim == 1:
        return sum_by(cluster, influence, n_clusters)
    flat = influence.reshape(-1, influence.shape[-1])
    sums = [sum_by(cluster, row, n_clusters) for row in flat]
    return np.stack(sums).reshape(*influence.shape[:-1], n_clusters)


def cluster_se(influence: FloatArray, cluster: IntArray | None) -> FloatArray:
    """Cluster-robust standard error of an estimate with the given influence values, shape (..., n).

    ``SE^2 = sum_g (sum_{i in g} phi_i)^2 / n^2`` (the paper's appendix on influence functions and variance, summed by
    cluster). Small-sample factors such as G / (G - 1) belong to the influence values, see
    `cje_core.inference.influence`.
    """
    sums = influence if cluster is None else cluster_sums(influence, cluster)
    return np.asarray(np.sqrt(np.vecdot(sums, sums)) / influence.shape[-1])
