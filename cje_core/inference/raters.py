"""Agreement of the judge with the oracle on responses that both have scored: kappa, AC1, alpha, correlation.

Both scales are mapped to [0, 1]; good is at or above the middle of the declared scale::

    kappa   (p_o - p_e) / (1 - p_e),  p_e = p_a p_b + (1 - p_a)(1 - p_b)      Cohen (1960): agreement on good and bad
    AC1     (p_o - p_e) / (1 - p_e),  p_e = 2 q (1 - q), q = (p_a + p_b) / 2  Gwet (2008): stable where one is rare
    alpha   1 - D_o / D_e, squared distances, D_e over all pairs of the 2m values     Krippendorff (1970)
    pearson                                                                   linear correlation

p_o is the share on which the two agree. Intervals: delete one cluster of prompts at a time (jackknife), t on the scale
of Fisher's z, so that they stay in (-1, 1). High agreement is not needed for a value: calibration maps scores to
labels; what it needs is correlation.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray, probability
from cje_core.inference.estimate import CI_BOUND

MEASURES = ("kappa", "ac1", "alpha", "pearson")
MIN_CLUSTERS = 4


class Rated(NamedTuple):
    """Responses with both a score and a label."""

    judge: FloatArray  # (m,) on [0, 1], 1 best
    label: FloatArray  # (m,) on [0, 1]
    cluster: IntArray  # (m,) sampling unit
    weight: FloatArray  # (m,) 1 / label_prob


def agreement(rated: Rated, *, ci_prob: float = 0.95) -> xr.Dataset:
    """Agreement of judge and oracle with intervals; see the module.

    Parameters
    ----------
    rated : Rated
    ci_prob : float

    Returns
    -------
    xr.Dataset
        Over ``measure``: ``value`` and ``interval(measure, ci_bound)``, NaN where it is not defined (no spread) or
        fewer than 4 clusters tell its spread; attributes ``n_labels``, ``n_clusters``, ``ci_prob``.

    Examples
    --------
    >>> label = np.array([0.0, 1.0] * 20)
    >>> found = agreement(Rated(label, label, np.arange(40), np.ones(40)))
    >>> found["value"].values.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    probability(ci_prob)
    judge, label, weight = rated.judge, rated.label, rated.weight
    good_j, good_l = (judge >= 0.5).astype(float), (label >= 0.5).astype(float)
    moments = np.stack(
        [
            np.ones(len(judge)),
            good_j,
            good_l,
            good_j * good_l,
            judge,
            label,
            judge**2,
            label**2,
            judge * label,
        ]
    )
    _, code = np.unique(rated.cluster, return_inverse=True)
    n_groups = int(code.max()) + 1 if len(code) else 0
    by_group = np.stack([np.bincount(code, weight * one, minlength=n_groups) for one in moments], axis=-1)
    rows = np.bincount(code, minlength=n_groups).astype(float)
    total, n = by_group.sum(axis=0), rows.sum()
    value = _measures(total[None], np.array([n]))[0]
    interval = np.full((len(MEASURES), 2), np.nan)
    if n_groups >= MIN_CLUSTERS:
        left_out = _measures(total - by_group, n - rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.arctanh(left_out)
            spread = np.sqrt((n_groups - 1) / n_groups * ((z - z.mean(axis=0)) ** 2).sum(axis=0))
            half = special.stdtrit(n_groups - 1, 0.5 + ci_prob / 2) * spread
            interval = np.tanh(np.arctanh(value)[:, None] + half[:, None] * np.array([-1.0, 1.0]))
    return xr.Dataset(
        {"value": ("measure", value), "interval": (("measure", "ci_bound"), interval)},
        coords={"measure": list(MEASURES), "ci_bound": CI_BOUND},
        attrs={"n_labels": int(n), "n_clusters": n_groups, "ci_prob": ci_prob},
    )


def _measures(sums: FloatArray, n: FloatArray) -> FloatArray:
    """The four measures (sets, 4) of weighted sums (sets, 9) over n rows each."""
    with np.errstate(divide="ignore", invalid="ignore"):
        pa, pb, both, a, b, aa, bb, ab = (sums[:, 1:] / sums[:, :1]).T
        agree = 1 - pa - pb + 2 * both
        by_chance = pa * pb + (1 - pa) * (1 - pb)
        rate = (pa + pb) / 2
        evenly = 2 * rate * (1 - rate)
        apart = aa + bb - 2 * ab
        pooled = (aa + bb) / 2 - ((a + b) / 2) ** 2
        expected = 2 * pooled * 2 * n / (2 * n - 1)
        spread = np.sqrt(np.clip(aa - a**2, 0, None) * np.clip(bb - b**2, 0, None))
        found = np.stack(
            [
                (agree - by_chance) / (1 - by_chance),
                (agree - evenly) / (1 - evenly),
                1 - apart / expected,
                np.clip((ab - a * b) / np.where(spread > 1e-12, spread, np.nan), -1.0, 1.0),
            ],
            axis=-1,
        )
    return np.where(np.isfinite(found), found, np.nan)
