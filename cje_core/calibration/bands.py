"""How sure the calibrator's curve is: pointwise bands by resampling the prompts whose labels teach.

A percentile band of `n_resamples` fits, each on as many clusters of prompts as there are, drawn with replacement. It is
a guide and no guarantee. Measured for a band of 95% in the world ``well_specified`` with 200 labels (1504 replicates):
it covers E[Y | S] in 94% to 95% at the median and the upper quartile of the scores, 92% at the lower quartile, 88% at
the 5% quantile, 85% at the 95% quantile, and 85% at the first and 58% at the last label. With 1000 labels (300
replicates) the quartiles are at 95% to 96%, the 5% and 95% quantiles at 89% and 94%, and the ends no better: 84% and
38%. An isotonic fit is bent outward at its ends, where nothing beyond holds its first and last step, and each refit is
bent the same way: the truth then lies on the inner side of the band. What values rest on is not this band but
`cje_core.calibration.oracle_slice.calibration_part`, whose intervals are tested.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import Calibrator, fit, index, predict
from cje_core.calibration.isotonic import pool
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray, probability
from cje_core.data.construct import dataset
from cje_core.data.errors import DataError
from cje_core.inference.sums import sum_by

N_GRID = 101
N_RESAMPLES = 100
SEED = 1  # a band is a picture: the same data, the same picture


def resampled(
    fitted: OracleSlice,
    cluster: IntArray,
    curve: Callable[[Calibrator], FloatArray],
    *,
    n_resamples: int = N_RESAMPLES,
    ci_prob: float = 0.95,
) -> FloatArray:
    """Pointwise percentile band of what `curve` makes of a calibrator, shape (2, ...).

    Parameters
    ----------
    fitted : OracleSlice
        The labels that teach.
    cluster : array of int, shape (prompts,)
        Sampling unit of each prompt.
    curve : callable
        From a calibrator to numbers of one shape.

    Examples
    --------
    See `calibration_band`.
    """
    probability(ci_prob)
    groups, code = np.unique(cluster[fitted.prompt], return_inverse=True)
    again, size = refitter(fitted), len(groups)
    drawn = np.random.default_rng(SEED).integers(size, size=(n_resamples, size))
    found = [curve(again(np.bincount(one, minlength=size)[code])) for one in drawn]
    tails = [0.5 - ci_prob / 2, 0.5 + ci_prob / 2]
    return np.asarray(np.quantile(np.stack(found), tails, axis=0))


def refitter(fitted: OracleSlice) -> Callable[[IntArray], Calibrator]:
    """Fits of the slice's calibrator on its rows, each as many times as one says; levels are numbered once."""
    z, label, weight = fitted.z, fitted.label, fitted.weight
    if fitted.mode != "monotone":

        def on_rows(times: IntArray) -> Calibrator:
            at = np.repeat(np.arange(len(times)), times)
            mode, increasing, basis = fitted.mode, fitted.increasing, fitted.basis
            return fit(z[at], label[at], weight[at], mode=mode, increasing=increasing, basis=basis)

        return on_rows
    f = fit(z, label, weight, increasing=fitted.increasing)
    at, n_levels = np.searchsorted(f.knot, index(f, z)), len(f.knot)

    def on_levels(times: IntArray) -> Calibrator:
        w = times * weight
        total, labels = sum_by(at, w, n_levels), sum_by(at, w * label, n_levels)
        seen = np.flatnonzero(total)
        total = total[seen]
        value, block = pool(labels[seen] / total, total)
        return Calibrator(f.mode, f.knot[seen], value, total, block, f.sign)

    return on_levels


def calibration_band(
    data: xr.Dataset | Calibrated, *, n_grid: int = N_GRID, ci_prob: float = 0.95
) -> xr.Dataset:
    """The calibrator in use against the judge score, with its band and the labels that taught it.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        With labels that teach; else it is a `DataError`.
    n_grid : int
        Points of the curve, over the range of the labelled scores.
    ci_prob : float

    Returns
    -------
    xr.Dataset
        Over ``score``: ``reward``, covariates at their means, and ``interval(score, ci_bound)``, in oracle units. Over
        ``label``: ``label_score``, ``label_value``. Attribute ``mode``.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> judge = rng.random((1, 300))
    >>> label = judge + 0.05 * rng.standard_normal((1, 300))
    >>> band = calibration_band(from_arrays(judge, policies=["a"], oracle=label, oracle_range=(-1, 2)))
    >>> bool((band["interval"].sel(ci_bound="lower") <= band["reward"]).all())
    True
    """
    given = calibrated(data)
    fitted = given.slice
    if fitted.calibrator is None:
        raise DataError("no labels teach a calibrator: there is no curve to draw; label more")
    grid = np.linspace(fitted.z[:, 0].min(), fitted.z[:, 0].max(), n_grid)
    z = np.tile(fitted.weight @ fitted.z / fitted.weight.sum(), (n_grid, 1))
    z[:, 0] = grid
    reward = predict(fitted.calibrator, z)
    bound = resampled(fitted, given.rows.cluster, lambda f: predict(f, z), ci_prob=ci_prob)
    bound = np.stack([np.minimum(bound[0], reward), np.maximum(bound[1], reward)], axis=-1)
    return dataset(
        {
            "reward": ("score", reward),
            "interval": (("score", "ci_bound"), bound),
            "label_score": ("label", fitted.z[:, 0]),
            "label_value": ("label", fitted.label),
        },
        coords={"score": grid, "ci_bound": ["lower", "upper"]},
        attrs={"ci_prob": ci_prob, "mode": fitted.mode, "n_labels": len(fitted.label)},
    )
