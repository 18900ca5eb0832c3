"""What the judge is worth beside labels: how many labels it replaces, and below which correlation it cannot pay.

*Effective labels.* A policy with m labels of its own has the value of `cje_core.estimators.direct` with standard error
s, and the mean of its labels alone with s_0. As many labels as would bring the mean of labels alone to s are
``m (s_0 / s)^2``; what is above m the judge replaces.

*Least correlation.* m of n scored responses are labelled at random, and the mean label is adjusted by the line of label
on score: double sampling for regression (Cochran, "Sampling Techniques", 3rd ed., section 12.6). For jointly normal
score and label with correlation r the variance is, exactly up to terms of 1 / (n m),

    sigma^2 / m { (1 - r^2) (m - 2) / (m - 3) (1 - m / n) + m / n },

of which the line costs the factor (m - 2) / (m - 3). It is below sigma^2 / m, that of the labels alone, if

    (1 - r^2) (m - 2) / (m - 3) < 1,    that is    r^2 > 1 / (m - 2),

whatever n > m is: with 50 labels a judge must correlate by .15, with 10 by .36. A curve costs more than a line, so this
is a floor: a judge below it cannot pay, one above it may. That is the price of the adjustment once; where m = n nothing
is gained at any r.
"""

import math

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import FloatArray


def effective_labels(
    n_labels: npt.ArrayLike, se_labels: npt.ArrayLike, se_value: npt.ArrayLike
) -> FloatArray:
    """Labels that alone would give the standard error of the value: ``m (s_0 / s)^2``.

    Parameters
    ----------
    n_labels : array
        Labels at hand, m.
    se_labels, se_value : array
        Standard errors of the mean of labels alone, and of the value that uses the judge; one unit.

    Examples
    --------
    >>> effective_labels(100, 0.03, 0.02).round(0).item()
    225.0
    """
    with np.errstate(invalid="ignore"):  # two errors of zero tell nothing of the judge
        ratio = np.asarray(se_labels, float) / np.asarray(se_value, float)
    return np.asarray(np.asarray(n_labels, float) * ratio**2)


def least_correlation(n_labels: float) -> float:
    """Correlation of score and label below which the judge cannot pay, with that many labels; see the module.

    Parameters
    ----------
    n_labels : float
        Labels of the policy, m.

    Returns
    -------
    float
        ``1 / sqrt(m - 2)``; 1 for fewer than 4 labels.

    Examples
    --------
    >>> round(least_correlation(50), 3), round(least_correlation(1000), 3)
    (0.144, 0.032)
    """
    return 1.0 if n_labels < 4 else 1.0 / math.sqrt(n_labels - 2.0)


def adjusted_variance(correlation: float, n_labels: float, n_scores: float) -> float:
    """Variance of the adjusted mean over that of the labels alone, see the module.

    Examples
    --------
    >>> round(adjusted_variance(0.7, 100, 1000), 3)
    0.564
    """
    share, line = n_labels / n_scores, (n_labels - 2.0) / (n_labels - 3.0)
    return (1.0 - correlation**2) * line * (1.0 - share) + share


def judge_worth(
    value: xr.Dataset, labels_only: xr.Dataset, n_labels: npt.ArrayLike, n_scores: npt.ArrayLike
) -> xr.Dataset:
    """What the judge adds to each policy's own labels.

    Parameters
    ----------
    value, labels_only : xr.Dataset
        The value in use and the mean of own labels, over the same policies.
    n_labels, n_scores : array, shape (policies,)
        Own labels, and scored responses.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``n_labels``, ``effective_labels``, ``replaced`` (what is above the labels at hand, below 0
        where the judge costs), ``least_correlation``. NaN where a policy has no mean of labels to compare with, or no
        label that is not all there is.

    Examples
    --------
    >>> se = [xr.Dataset({"std_error": ("policy", [s])}, {"policy": ["a"]}) for s in (0.02, 0.03)]
    >>> judge_worth(*se, [100], [1000])["replaced"].round(0).item()
    125.0
    """
    m, n = np.asarray(n_labels, float), np.asarray(n_scores, float)
    usable = (m >= 4) & (m < n)
    found = effective_labels(m, labels_only["std_error"].values, value["std_error"].values)
    found = np.where(usable & np.isfinite(found), found, np.nan)
    least = np.array([least_correlation(one) for one in m.ravel()]).reshape(m.shape)
    return xr.Dataset(
        {
            "n_labels": ("policy", m),
            "effective_labels": ("policy", found),
            "replaced": ("policy", found - m),
            "least_correlation": ("policy", np.where(usable, least, np.nan)),
        },
        coords={"policy": value["policy"].values},
    )
