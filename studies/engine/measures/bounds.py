"""Exact Monte Carlo bounds of proportions, and the error that is printed where a proportion did not vary."""

import numpy as np
import numpy.typing as npt
from scipy import special

from cje_core.checks import FloatArray

MC_LEVEL = 0.95  # of the Monte Carlo bounds
Z = float(special.ndtri(0.5 + MC_LEVEL / 2))


def clopper_pearson(hits: npt.ArrayLike, n: npt.ArrayLike, prob: float = MC_LEVEL) -> FloatArray:
    """Exact bounds of a proportion, shape (..., 2); they have width also at 0 and n hits.

    `hits` need not be whole: a mean of correlated indicators times n gives conservative bounds.

    Examples
    --------
    >>> clopper_pearson(0, 50).round(4).tolist()
    [0.0, 0.0711]
    """
    from statsmodels.stats.proportion import proportion_confint  # loads SciPy's distributions, .7 s

    k, total = np.broadcast_arrays(np.asarray(hits, float), np.asarray(n, float))
    k = np.clip(k, 0, total)  # a mean of ones times n may exceed n by rounding
    known, bounds = (total > 0) & ~np.isnan(k), np.full((*k.shape, 2), np.nan)
    if known.any():
        bounds[known] = np.stack(proportion_confint(k[known], total[known], 1 - prob, "beta"), axis=-1)
    return bounds


def flat_error(n: npt.ArrayLike) -> FloatArray:
    """Error of a proportion that n of n, or 0 of n, replicates gave: ``(1 - .025^(1/n)) / 1.96``.

    There ``sqrt(p (1 - p) / (n - 1))`` is 0, which would claim that 30 replicates know a coverage of 1 exactly. This
    error is the distance to the far end of the exact (Clopper-Pearson) 95% bounds on the scale of a standard error, so
    that value -+ 1.96 errors means in these cells what it means in the others. It is about 1.88 / n.

    Examples
    --------
    >>> flat_error([30, 1000]).round(4).tolist()
    [0.059, 0.0019]
    """
    total = np.asarray(n, float)
    known = np.where(total > 0, total, np.nan)
    return np.asarray(-np.expm1(np.log((1 - MC_LEVEL) / 2) / known) / Z)


def share_error(share: npt.ArrayLike, n: npt.ArrayLike) -> FloatArray:
    """MCSE ``sqrt(p (1 - p) / (n - 1))`` of a share of n replicates; `flat_error` where it is 0 or 1.

    Examples
    --------
    >>> share_error([0.95, 1.0], 400).round(4).tolist()
    [0.0109, 0.0047]
    """
    p, total = np.broadcast_arrays(np.asarray(share, float), np.asarray(n, float))
    usual = np.sqrt(p * (1 - p) / np.where(total > 1, total - 1, np.nan))
    return np.where((p <= 0) | (p >= 1), flat_error(total), usual)
