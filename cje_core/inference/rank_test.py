"""One-sided test of a rank correlation, for labels that may come in clusters."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from cje_core.inference.estimate import sum_by

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


class RankTest(NamedTuple):
    """Spearman's correlation and the p-value of "it is not positive"."""

    spearman: float  # NaN where either side is constant
    p_value: float  # one-sided; 1 where there is nothing to rank
    df: float

    def against(self, level: float = 0.05) -> bool:
        """Whether the two-sided interval of probability ``1 - level`` lies below zero: ranked the wrong way."""
        return self.spearman < 0 and self.p_value > 1 - level / 2


def rank_test(score: FloatArray, label: FloatArray, cluster: IntArray) -> RankTest:
    """Test whether a score ranks the labels the right way.

    With mid-ranks and m independent rows, ``t = rho sqrt((m - 2) / (1 - rho^2))`` is close to Student's with m - 2
    degrees of freedom where score and label are independent. For rows in G clusters m becomes ``m / d`` with the design
    effect ``d = G / (G - 1) sum_g (sum_{i in g} u_i)^2 / sum_i u_i^2`` of the terms ``u_i = x_i (y_i - rho x_i)`` of
    the correlation, x and y the standardised ranks, and the degrees of freedom are at most G - 2. The p-value is kept
    ``1 / G!`` away from 0 and from 1, which is as far as any order of G clusters can go.

    Parameters
    ----------
    score, label : arrays, shape (m,)
        `score` rises with the quality that is claimed (turn a decreasing judge round first).
    cluster : int array, shape (m,)

    Returns
    -------
    RankTest

    Examples
    --------
    >>> found = rank_test(np.arange(8.0), np.array([1.0, 0, 2, 3, 5, 4, 7, 6]), np.arange(8))
    >>> round(found.spearman, 3), round(found.p_value, 4)
    (0.929, 0.0004)
    >>> rank_test(np.ones(8), np.arange(8.0), np.arange(8)).p_value
    1.0
    """
    _, code = np.unique(cluster, return_inverse=True)
    n_clusters = int(code.max()) + 1 if len(code) else 0
    if n_clusters < 3 or np.ptp(score) == 0 or np.ptp(label) == 0:
        return RankTest(np.nan, 1.0, 0.0)
    x, y = (stats.rankdata(values) for values in (score, label))
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    rho = float(np.clip((x * y).mean(), -1.0, 1.0))
    rows = float(len(x))
    if n_clusters < len(x):
        terms = x * (y - rho * x)
        spread = float((terms**2).sum())
        between = float((sum_by(code, terms, n_clusters) ** 2).sum()) * n_clusters / (n_clusters - 1)
        rows = len(x) * spread / between if spread > 1e-12 * len(x) else float(n_clusters)
    t = rho * math.sqrt(max(rows - 2.0, 1.0) / max(1.0 - rho**2, 1e-300))
    df = max(min(rows, n_clusters) - 2.0, 1.0)
    p_value = float(special.stdtr(df, -t))
    least = 1.0 / math.factorial(min(n_clusters, 170))
    return RankTest(rho, min(max(p_value, least), 1.0 - least), df)
