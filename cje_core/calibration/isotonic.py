"""Pool-adjacent-violators on weighted levels, and interpolation between knots.

All kernels take *levels*: equal scores are pooled before PAVA sees them, because LLM judges give 13-20 distinct
scores and an unpooled tie would get several fitted values.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel, loaded

FEW = 2_000  # levels that are pooled in a millisecond or two without compiled code
MANY = 5_000  # values from which a table pays
FIRST = 500  # values that tell whether they come again and again
MOST, SLOT_BITS = 1_024, 13  # distinct ones that are numbered, in a table eight times as large
MANY_KNOTS, SOME_KNOTS = 200, 10  # and knots: where compiled code must be loaded first, and where it is


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
    if n <= FEW and not loaded():  # the same bits, and an analysis of few levels needs no numba
        few, last = [0.0] * n, [0] * n
        n_blocks = pool_into.function(y.tolist(), w.tolist(), n, few, [0.0] * n, last)
        value, end = np.array(few[:n_blocks]), np.array(last[:n_blocks], dtype=np.int64)
    else:
        value, end = np.empty(n), np.empty(n, dtype=np.int64)
        n_blocks = pool_into(y, w, n, value, np.empty(n), end)
    size = end[:n_blocks].copy()
    size[1:] -= end[: n_blocks - 1]
    size[:1] += 1
    block = np.repeat(np.arange(n_blocks), size)
    return value[block], block


def interpolate(x: FloatArray, knot: FloatArray, value: FloatArray) -> FloatArray:
    """``np.interp``: linear between increasing knots, constant outside; NaN stays NaN.

    Where many values are few distinct ones (grades, a grid) these are interpolated. Many values among many knots are
    looked up in a table of equal steps first: a search through 50,000 knots is slow where the next value lies anywhere.

    Examples
    --------
    >>> interpolate(np.array([0.0, 1.5, 9.0]), np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist()
    [3.0, 3.5, 4.0]
    """
    if len(x) < MANY:
        return np.interp(x, knot, value)
    if (few := grades(x)) is not None:
        code, level = few
        return np.asarray(np.interp(level, knot, value)[code])
    if len(knot) < (SOME_KNOTS if loaded() else MANY_KNOTS):
        return np.interp(x, knot, value)
    steps = len(knot) / (knot[-1] - knot[0])
    if not np.isfinite(steps):
        return np.interp(x, knot, value)
    cell = np.minimum(((knot - knot[0]) * steps).astype(np.intp), len(knot) - 1)
    first = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=len(knot)))])
    out = np.empty(len(x))
    _look_up(np.ascontiguousarray(x), knot, value, first, steps, out)
    return out


def grades(x: FloatArray) -> tuple[IntArray, FloatArray] | None:
    """Code of each of many values that are few distinct ones, and these; None where they are not."""
    if len(x) < MANY:
        return None
    first = np.sort(x[:FIRST])
    if np.count_nonzero(first[1:] != first[:-1]) + 1 >= FIRST / 2:
        return None
    if loaded():
        code, level, slot = np.empty(len(x), np.intp), np.empty(MOST), np.full(1 << SLOT_BITS, -1, np.int16)
        if n_levels := _number(x, np.ascontiguousarray(x).view(np.uint64), code, level, slot):
            return code, level[:n_levels].copy()
    code, level = pd.factorize(x, use_na_sentinel=False, size_hint=FIRST)
    return code, level


@Kernel
def _number(x, bits, code, level, slot):  # type: ignore[no-untyped-def]
    """Number values in the order in which they appear, as `pandas.factorize` does; 0 if `level` has too little room.

    ``slot`` is a hash table, -1 where it is empty.
    """
    n_levels, last = 0, np.uint64(len(slot) - 1)
    for i in range(len(x)):
        value, key = x[i], bits[i]
        # zeros of either sign are one value, and so is all that is no number
        if value == 0.0 or value != value:
            key = np.uint64(value == 0.0)
        # by Fibonacci: the highest bits of a product with an odd number, as grades differ in few and in low ones
        at = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - SLOT_BITS)
        while True:
            k = slot[at]
            if k < 0:
                if n_levels == len(level):
                    return 0
                slot[at] = k = n_levels
                level[n_levels] = value
                n_levels += 1
            elif not (level[k] == value or (value != value and level[k] != level[k])):
                at = (at + np.uint64(1)) & last
                continue
            break
        code[i] = k
    return n_levels


@Kernel
def _look_up(x, knot, value, first, steps, out):  # type: ignore[no-untyped-def]
    """``first[c]`` counts the knots before cell c; the cell of a value rises with it, so its knot is one of the cell's.

    The formula is NumPy's, to the bit.
    """
    last = len(knot) - 1
    for i in range(len(x)):
        at = x[i]
        if at <= knot[0]:
            out[i] = value[0]
        elif at >= knot[last]:
            out[i] = value[last]
        elif at != at:
            out[i] = at
        else:
            cell = min(int((at - knot[0]) * steps), last)
            low, high = first[cell], first[cell + 1]  # knots at or below lie before one of these places
            while low < high:
                middle = (low + high) // 2
                if knot[middle] <= at:
                    low = middle + 1
                else:
                    high = middle
            left = low - 1
            if knot[left] == at:
                out[i] = value[left]
            else:
                slope = (value[low] - value[left]) / (knot[low] - knot[left])
                out[i] = slope * (at - knot[left]) + value[left]


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
