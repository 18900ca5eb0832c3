"""Intervals of proportions on effective counts."""

import numpy as np
import numpy.typing as npt
from scipy import special

from cje_core.checks import FloatArray


def wilson(share: npt.ArrayLike, n: npt.ArrayLike, ci_prob: npt.ArrayLike) -> FloatArray:
    """Compute Wilson's score interval of proportions out of any positive (effective) counts, shape (..., 2).

    Examples
    --------
    >>> wilson(0.9, 10, 0.95).round(3).tolist(), wilson(1.0, 10, 0.95).round(3).tolist()
    ([0.596, 0.982], [0.722, 1.0])
    """
    p, count = np.asarray(share, float), np.asarray(n, float)
    z2 = special.ndtri(0.5 + np.asarray(ci_prob) / 2) ** 2
    center = (p + z2 / (2 * count)) / (1 + z2 / count)
    half = np.sqrt(z2 * (p * (1 - p) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    # rounding must not part an end of [0, 1] from the proportion that lies there
    return np.stack([np.minimum(center - half, p), np.maximum(center + half, p)], axis=-1)


def charged(count: npt.ArrayLike, df: npt.ArrayLike, ci_prob: npt.ArrayLike) -> FloatArray:
    """Reduce counts by what their degrees of freedom cost, the squared ratio of the t quantiles; at least one.

    Source: Korn and Graubard (1998).
    """
    n, level = np.asarray(count, float), 0.5 + np.asarray(ci_prob) / 2
    ratio = special.stdtrit(np.maximum(n - 1, 1e-3), level) / special.stdtrit(np.asarray(df, float), level)
    return np.asarray(np.fmax(n * np.fmin(1.0, ratio) ** 2, 1.0))
