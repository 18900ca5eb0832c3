"""Pool-adjacent-violators on weighted levels, and interpolation between knots.

All kernels take *levels*: equal scores are pooled before PAVA sees them, because LLM judges give 13-20 distinct
scores and an unpooled tie would get several fitted values.
"""

import numpy as np
import numpy.typing as npt

from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel

CELLS = 4  # of the table in which knots are looked up, a knot


@Kernel
def pool_into(mean, weight, n, block_value, block_weight, block_end):  # type: ignore[no-untyped-def]
    """Blocks of the weighted isotonic regression of ``mean[:n]``, and how many there are.

    Block j covers levels ``block_end[j-1]+1 .. block_end[j]``.
    """
    if n == 0:
        return 0
    n_blocks = 0
    value, total = (
        mean[0],
        weight[0],
    )  # of the last block, which waits outside the arrays: most levels join it
    for i in range(1, n):
        if not value >= mean[i]:
            block_value[n_blocks], block_weight[n_blocks], block_end[n_blocks] = value, total, i - 1
            n_blocks += 1
            value, total = mean[i], weight[i]
            continue
        both = total + weight[i]
        value = (value * total + mean[i] * weight[i]) / both
        total = both
        while n_blocks > 0 and block_value[n_blocks - 1] >= value:
            n_blocks -= 1
            both = block_weight[n_blocks] + total
            value = (block_value[n_blocks] * block_weight[n_blocks] + value * total) / both
            total = both
    block_value[n_blocks], block_weight[n_blocks], block_end[n_blocks] = value, total, n - 1
    return n_blocks + 1


@Kernel
def pava_into(mean, weight, n, fitted, block_value, block_weight, block_end):  # type: ignore[no-untyped-def]
    """Weighted isotonic regression of ``mean[:n]`` into ``fitted[:n]``; the last three are as in `pool_into`."""
    n_blocks = pool_into(mean, weight, n, block_value, block_weight, block_end)
    start = 0
    for j in range(n_blocks):
        for i in range(start, block_end[j] + 1):
            fitted[i] = block_value[j]
        start = block_end[j] + 1
    return n_blocks


@Kernel
def ends_of_blocks(knot, fitted, n):  # type: ignore[no-untyped-def]
    """Drop, in place, the knots inside constant blocks, which no prediction needs; returns how many are left."""
    kept = 0
    for i in range(n):
        if 0 < i < n - 1 and fitted[i] == fitted[kept - 1] and fitted[i] == fitted[i + 1]:
            continue
        knot[kept], fitted[kept] = knot[i], fitted[i]
        kept += 1
    return kept


def isotonic(mean: npt.ArrayLike, weight: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    """Weighted least-squares nondecreasing fit of level means.

    Solves ``min sum_k w_k (f_k - mean_k)^2`` subject to ``f_1 <= ... <= f_K`` (the projection onto the monotone cone
    of the paper's section on projection operators). The weighted mean is preserved exactly.

    Parameters
    ----------
    mean, weight : arrays, shape (K,)
        Label means and positive total weights of the K distinct scores, in increasing order of score.

    Returns
    -------
    fitted, block : arrays, shape (K,)
        Fitted value of each level, and the index of the constant block that it belongs to.

    Examples
    --------
    >>> fitted, block = isotonic([0.0, 0.9, 0.3], [1.0, 1.0, 2.0])
    >>> fitted.tolist(), block.tolist()
    ([0.0, 0.5, 0.5], [0, 1, 1])
    """
    y, w = np.asarray(mean, float), np.asarray(weight, float)
    if y.shape != w.shape or y.ndim != 1:
        raise ValueError(
            f"mean and weight must be 1-d and of equal length, got shapes {y.shape} and {w.shape}"
        )
    if not (w > 0).all():
        raise ValueError("weights of levels must be positive; drop levels without labels")
    return pool(y, w)


def pool(y: FloatArray, w: FloatArray) -> tuple[FloatArray, IntArray]:
    """`isotonic` of arrays that are known to be good.

    Examples
    --------
    >>> pool(np.array([0.6, 0.4]), np.ones(2))[0].tolist()
    [0.5, 0.5]
    """
    n = len(y)
    value, end = np.empty(n), np.empty(n, dtype=np.int64)
    n_blocks = pool_into(y, w, n, value, np.empty(n), end)
    size = end[:n_blocks].copy()
    size[1:] -= end[: n_blocks - 1]
    size[:1] += 1
    block = np.repeat(np.arange(n_blocks), size)
    return value[block], block


def interpolate(x: FloatArray, knot: FloatArray, value: FloatArray) -> FloatArray:
    """``np.interp``: linear between increasing knots, constant outside; NaN stays NaN.

    Examples
    --------
    >>> interpolate(np.array([0.0, 1.5, 9.0]), np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist()
    [3.0, 3.5, 4.0]
    """
    out = np.empty(len(x))
    interpolate_into(x, knot, value, len(knot), out)
    return out


@Kernel
def interpolate_into(x, knot, value, n_knots, out):  # type: ignore[no-untyped-def]
    """`interpolate` between the first knots; each value is looked up by `locate`."""
    place = np.empty(len(x), dtype=np.int32)
    locate(x, knot, n_knots, place)
    for i in range(len(x)):
        out[i] = between(x[i], place[i], knot, value, n_knots - 1)


@Kernel
def locate(x, knot, n_knots, place):  # type: ignore[no-untyped-def]
    """Number of the last knot at or below each x, or of the first (filled), in whatever order x comes.

    By a table of cells of equal width, which hold a fraction of a knot each: a search through 50,000 knots is slow
    where the next value lies anywhere.
    """
    low, last, n_cells = knot[0], n_knots - 1, CELLS * n_knots
    first = np.zeros(n_cells + 1, dtype=np.int64)
    width = knot[last] - low
    steps = n_cells / width if width > 0 else 0.0
    steps = steps if np.isfinite(steps) else 0.0  # then one cell holds all knots
    for j in range(n_knots):
        first[min(int((knot[j] - low) * steps), n_cells - 1) + 1] += 1
    for c in range(n_cells):
        first[c + 1] += first[c]
    for i in range(len(x)):
        at = x[i]
        if at >= knot[last]:
            place[i] = last
        elif not at > low:
            place[i] = 0
        else:
            cell = min(int((at - low) * steps), n_cells - 1)
            before, after = first[cell], first[cell + 1]
            while before < after:
                middle = (before + after) // 2
                if knot[middle] <= at:
                    before = middle + 1
                else:
                    after = middle
            place[i] = before - 1


@Kernel
def between(x, left, knot, value, last):  # type: ignore[no-untyped-def]
    """Value at x, whose place `locate` found: linear between knots, constant outside; NumPy's formula."""
    if x != x:
        return x
    if left == last or x <= knot[0]:
        return value[left]
    slope = (value[left + 1] - value[left]) / (knot[left + 1] - knot[left])
    return slope * (x - knot[left]) + value[left]


@Kernel
def predict_at(x, knot, value, n_knots):  # type: ignore[no-untyped-def]
    """`interpolate` one x between the first knots, its place found by halving."""
    low, high = 0, n_knots
    while high - low > 1:
        middle = (low + high) // 2
        if knot[middle] <= x:
            low = middle
        else:
            high = middle
    return between(x, low, knot, value, n_knots - 1)


def iso_mean_one(weight: npt.ArrayLike, score: npt.ArrayLike, increasing: bool = True) -> FloatArray:
    """Closest weights that are monotone in the score and have mean one, shape (n,).

    The paper's ``IsoMeanOne_S`` (section on projection operators): the minimiser of ``sum_i (u_i - w_i)^2`` over u
    nondecreasing in S (nonincreasing, if not `increasing`) with ``mean(u) = 1``. A monotone vector stays monotone when
    a constant is added, so the constraint only shifts the isotonic fit: ``u = iso(w) + 1 - mean(w)``, by nothing where
    w has mean one. The variance never rises and, for mean-one w, neither does the mean of any convex function of the
    weights (majorisation): the effective sample size never falls. Equal scores get equal weights; NaN stays where a row
    has none.

    Examples
    --------
    >>> iso_mean_one([1.6, 0.4, 1.0, np.nan], [0.1, 0.5, 0.9, 0.9]).tolist()
    [1.0, 1.0, 1.0, nan]
    """
    w, s = np.asarray(weight, float), np.asarray(score, float)
    out = np.full(len(w), np.nan)
    used = np.isfinite(w)
    if used.any():
        level, code = np.unique(s[used] if increasing else -s[used], return_inverse=True)
        size = np.bincount(code, minlength=len(level)).astype(float)
        fitted, _ = isotonic(np.bincount(code, weights=w[used], minlength=len(level)) / size, size)
        out[used] = fitted[code] + (1.0 - w[used].mean())
    return out
