"""Do a policy's labels look drawn at random? Its labelled judge scores against the rest of its scores.

Labels and probes of a policy's own make its value unbiased if they are a random sample of its responses (or if their
known probabilities are declared as ``label_prob``). Scores are the one thing known of labelled and unlabelled responses
alike, so a difference between the two shows that the sample was not random; no difference shows nothing of what the
judge does not see (Kolmogorov and Smirnov's two-sample test, on mean scores per prompt, exact where samples are small).
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset, in_order

LARGEST_EXACT = 2_000  # prompts with a label, or without, up to which the p-value is computed here
LARGEST_BY_SCIPY = 10_000  # beyond it scipy's p-value is Smirnov's formula
LEVEL = 0.001  # every policy of every analysis is tested, and most labels are random


def label_balance(data: xr.Dataset | Calibrated) -> xr.Dataset:
    """Test each policy's labels and probes; see the module.

    Returns
    -------
    xr.Dataset
        Over ``policy`` and ``kind`` (labels, probes): ``p_value`` and ``unbalanced`` (p below `LEVEL`). NaN where fewer
        than 4 prompts are on either side, or where declared probabilities differ.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> score = np.linspace(0, 1, 100)
    >>> top = from_arrays([score], policies=["a"], oracle=[np.where(score > 0.6, 1.0, np.nan)])
    >>> label_balance(top).unbalanced.sel(kind="labels").values.tolist()
    [True]
    """
    given = calibrated(data)
    rows = given.rows
    kinds = {"labels": rows.labelled & rows.evaluated, "probes": rows.probe}
    each = [rows.policy == p for p in range(len(rows.policies))]
    p_value = np.array([[_p_value(rows, mine, chosen) for chosen in kinds.values()] for mine in each])
    out = dataset(
        {"p_value": (("policy", "kind"), p_value), "unbalanced": (("policy", "kind"), p_value < LEVEL)},
        coords={"policy": rows.policies, "kind": list(kinds)},
    )
    return in_order(out, given.data)


def _p_value(rows: Rows, mine: np.ndarray, chosen: np.ndarray) -> float:
    """P-value for one policy and one kind of label, on mean scores of prompts with and without one."""
    own = mine & chosen
    if not own.any() or np.ptp(rows.label_prob[own]) > 0:
        return np.nan
    index = np.flatnonzero(mine & (rows.evaluated | chosen))
    prompt, at = np.unique(rows.prompt[index], return_inverse=True)
    mean = np.bincount(at, weights=rows.score[index]) / np.bincount(at)
    has = np.isin(prompt, rows.prompt[own])
    count = rows.stands_for[index[~has[at]]] if rows.stands_for.size else None
    if min(has.sum(), (~has).sum() if count is None else count.sum()) < MIN_LABELLED_CLUSTERS:
        return np.nan
    return kolmogorov_smirnov(mean[has], mean[~has], count)


def kolmogorov_smirnov(first: FloatArray, second: FloatArray, count: FloatArray | None = None) -> float:
    """Two-sided p-value ``P(D >= d)`` of Kolmogorov and Smirnov's statistic of two samples, (m,) and (n,).

    A merged sample is a lattice path from (0, 0) to (m, n), all equally likely. The chance that a path through (i, j)
    has met ``|i / m - j / n| >= d`` by then is 1 at such a point and elsewhere
    ``A(i, j) = i / (i + j) A(i - 1, j) + j / (i + j) A(i, j - 1)``; the p-value is A(m, n) (Viehmann 2021,
    arXiv:2102.08037). Sums of positive terms: no cancellation. Ties make it
    conservative, as scipy's is. Beyond `LARGEST_EXACT` by scipy.

    Each value of the second sample may stand for ``count`` of them, as long as these are whole between neighbours of
    the first: then D is that of all of them.

    Examples
    --------
    >>> kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([3.0, 4.0]))  # 2 of the 6 orders
    0.3333333333333333
    """
    if count is not None:
        order = np.argsort(second, kind="stable")
        first, second, below = np.sort(first), second[order], np.rint(np.cumsum(count[order]))
        if max(len(first), below[-1]) > LARGEST_BY_SCIPY:
            return _of_many(first, second, below)
        second = np.repeat(second, np.diff(below, prepend=0.0).astype(int))
    first, second = sorted((np.sort(first), np.sort(second)), key=len)
    m, n = len(first), len(second)
    if n > LARGEST_EXACT:
        from scipy import stats  # which loads slowly, and for small samples would cost more than the test

        return float(stats.ks_2samp(first, second).pvalue)
    both = np.concatenate([first, second])
    below = n * np.searchsorted(first, both, "right") - m * np.searchsorted(second, both, "right")
    least = np.abs(below).max()  # m n d, in whole numbers
    if least == 0:
        return 1.0
    met = np.zeros(m + 2)  # A(i - 1, k - i + 1), for one k after the other; the first is of no weight
    every = np.arange(m + 1.0)
    height = every * (m + n)
    for k in range(1, m + n + 1):
        low, high = max(0, k - n), min(m, k) + 1
        i = every[low:high]
        now = (i * met[low:high] + (k - i) * met[low + 1 : high + 1]) / k
        now[np.abs(height[low:high] - k * m) >= least] = 1.0  # i n - (k - i) m, in whole numbers
        met[low + 1 : high + 1] = now
    return float(met[m + 1])


def _of_many(first: FloatArray, second: FloatArray, below: FloatArray) -> float:
    """P-value for sorted samples, of the second as distinct values and how many are not above each of them."""
    from scipy import stats

    m, n = float(len(first)), float(below[-1])
    both = np.concatenate([first, second])
    share = np.concatenate([[0.0], below])[np.searchsorted(second, both, "right")] / n
    distance = np.abs(np.searchsorted(first, both, "right") / m - share).max()
    return float(stats.kstwo.sf(distance, np.round(m * n / (m + n))))
