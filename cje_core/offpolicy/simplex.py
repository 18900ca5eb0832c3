"""Quadratic programmes over the simplex, solved exactly: how candidates and estimators are stacked."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray

MOST_COLUMNS = 12  # every support is visited: 4,095 of them


def simplex_qp(sigma: npt.ArrayLike) -> FloatArray:
    """Exact minimiser of ``beta' sigma beta`` over the simplex.

    Every support is visited: the minimum over its affine hull solves a linear system, and the best of those that
    are nonnegative is the minimum. Of several minimisers the one of least norm is taken, so equal columns get equal
    weights and the answer does not depend on their order.

    `sigma` (C, C) is symmetric and positive semidefinite, C at most 12; the weights (C,) are nonnegative with sum one.

    Examples
    --------
    >>> simplex_qp([[1.0, 0.0], [0.0, 3.0]]).round(6).tolist()
    [0.75, 0.25]
    >>> simplex_qp([[1.0, 2.0], [2.0, 5.0]]).tolist()  # more of the second only adds variance
    [1.0, 0.0]
    """
    s = np.asarray(sigma, float)
    n = len(s)
    if s.shape != (n, n) or not 0 < n <= MOST_COLUMNS or not np.isfinite(s).all():
        raise ValueError(f"sigma must be finite, square and of size 1..{MOST_COLUMNS}, got shape {s.shape}")
    scale = np.trace(s) / n
    if not scale > 0:
        return np.full(n, 1.0 / n)
    s = (s + s.T) / (2 * scale)
    entry: list[list[float]] = (
        s.tolist()
    )  # a study solves thousands of these: Python's numbers have less overhead
    found: list[tuple[float, float, list[float]]] = []
    for size in range(1, n + 1):
        for support in combinations(range(n), size):
            solution = _least_on(entry, support)
            if min(solution) >= -1e-12:
                kept = [max(share, 0.0) for share in solution]
                total = sum(kept)
                beta = [0.0] * n
                for i, share in zip(support, kept, strict=True):
                    beta[i] = share / total
                value = sum(beta[i] * entry[i][j] * beta[j] for i in support for j in support)
                found.append((value, sum(share * share for share in beta), beta))
    least = min(value for value, _, _ in found)
    return np.array(min((norm, beta) for value, norm, beta in found if value <= least + 1e-13)[1])


def _least_on(s: list[list[float]], support: tuple[int, ...]) -> Sequence[float]:
    """Minimiser of ``beta' s beta`` over the affine hull of a support, of least norm where there are several.

    Up to three columns it is written out, with one weight eliminated.
    """
    size = len(support)
    if size == 1:
        return (1.0,)
    if size == 2:
        i, j = support
        bend = s[i][i] + s[j][j] - 2 * s[i][j]
        share = (s[j][j] - s[i][j]) / bend if bend > 1e-15 * (s[i][i] + s[j][j]) else 0.5
        return (share, 1 - share)
    if size == 3:
        i, j, k = support
        a, d = s[j][j] - 2 * s[i][j] + s[i][i], s[k][k] - 2 * s[i][k] + s[i][i]
        b, p, q = s[j][k] - s[i][j] - s[i][k] + s[i][i], s[i][i] - s[i][j], s[i][i] - s[i][k]
        determinant = a * d - b * b
        if determinant > 1e-12 * a * d:
            t, u = (p * d - q * b) / determinant, (q * a - p * b) / determinant
            return (1 - t - u, t, u)
    kkt = np.ones((size + 1, size + 1))
    kkt[:size, :size] = [[s[i][j] for j in support] for i in support]
    kkt[size, size] = 0.0
    right = np.zeros(size + 1)
    right[size] = 1.0
    solution: list[float] = np.linalg.lstsq(kkt, right, rcond=None)[0][:size].tolist()
    return solution
