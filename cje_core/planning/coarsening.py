"""What fewer judge levels would cost: the values again with the user's own scores coarsened (a coarsening ablation).

A score that is told in fewer levels is a garbling of the score, so it carries less about the label (the paper's
corollary on Blackwell ordering, checked here on the user's data): with the efficient estimator the variance cannot
fall. `coarsen` cuts the scores of all judged responses at their quantiles k / L and tells of each the mean score of its
bin, so the judge that loses least among those of L levels; ties stay together.

Two things are read from the table. *Width*: where it hardly grows, a rubric of so few levels would do; where ten levels
are as wide as two, the judge has nothing more to tell. *Value*: where it moves by more than its error, what is borrowed
hangs on how fine the score is. A calibration of fine scores that transports need not do so of coarse ones, since
policies differ within a bin.
"""

import inspect
from collections.abc import Sequence

import numpy as np
import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibration
from cje_core.checks import FloatArray, Rng
from cje_core.inference.sums import cluster_se
from cje_core.streams import generator

LEVELS = (2, 3, 5, 10)


def coarsen(data: xr.Dataset, n_levels: int) -> xr.Dataset:
    """Return the data with judge scores of at most `n_levels` values, logged ones by the same cuts.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.1, 0.2, 0.6, 0.9]], policies=["a"])
    >>> coarsen(data, 2)["judge"].values.ravel().round(2).tolist()
    [0.15, 0.15, 0.75, 0.75]
    """
    if n_levels < 2:
        raise ValueError(f"levels={n_levels}: a judge of fewer than 2 levels tells nothing; give 2 or more")
    score = data["judge"].values
    known = np.sort(score[np.isfinite(score)])
    # observed quantiles by whole numbers: the scores above a cut, of n sorted ones, begin at ceil(k n / L)
    first = -(-np.arange(1, n_levels) * len(known) // n_levels)
    cuts = np.unique(known[np.minimum(first, len(known) - 1)])
    code = np.searchsorted(cuts, known, side="right")
    size = np.bincount(code, minlength=len(cuts) + 1)
    mean = np.bincount(code, known, len(cuts) + 1) / np.maximum(size, 1)
    level = np.clip(mean, *data.attrs["judge_range"])

    def told(values: FloatArray) -> FloatArray:
        bins = np.searchsorted(cuts, values, side="right")
        if size[0] == 0:  # all scores are at or above the first cut
            bins = np.maximum(bins, 1)
        return np.where(np.isfinite(values), level[bins], np.nan)

    return data.assign(
        {
            name: (data[name].dims, told(data[name].values))
            for name in ("judge", "logged_judge")
            if name in data
        }
    )


def coarsening_ablation(
    data: xr.Dataset,
    levels: Sequence[int] = LEVELS,
    *,
    estimator: str = "direct",
    calibration: Calibration | None = None,
    ci_prob: float = 0.95,
    rng: Rng = 1,
) -> xr.Dataset:
    """Estimate again with judge scores of fewer levels, beside the estimate with the scores as they are.

    Parameters
    ----------
    data : xr.Dataset
    levels : sequence of int
    estimator : str
        Of `cje_core.estimators`; its options stay at their defaults.
    calibration : Calibration, optional
        For estimators that take one.
    ci_prob : float
    rng : Generator, int or None
        Root seed of the estimates (an integer), or one generator for all.

    Returns
    -------
    xr.Dataset
        Over ``levels, policy``: ``n_levels`` (distinct scores), ``estimate``, ``std_error``, ``interval``, ``width``,
        ``width_ratio`` to the full score, ``shift`` from its value with ``shift_std_error`` from the joint influence
        (NaN where there is none), ``status``. Over ``policy``: ``full_estimate``, ``full_width``, ``full_n_levels``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("well_specified", n=400, oracle_fraction=0.25, rng=1)
    >>> table = coarsening_ablation(data, [2, 10])
    >>> table["n_levels"].values.tolist()
    [2, 10]
    """
    module = estimators.load(estimator)
    known = "calibration" in inspect.signature(module.estimate).parameters
    takes = {"calibration": calibration} if known and calibration is not None else {}

    def estimate(part: xr.Dataset) -> xr.Dataset:
        source = generator(rng, "coarsening", estimator) if isinstance(rng, int) else rng
        found: xr.Dataset = module.estimate(part, ci_prob=ci_prob, rng=source, **takes)
        return found

    full = estimate(data)
    rows = []
    for n_levels in levels:
        coarse = coarsen(data, n_levels)
        found = estimate(coarse)
        width = found["interval"].diff("ci_bound").squeeze("ci_bound", drop=True)
        rows.append(
            xr.Dataset(
                {
                    **{name: found[name] for name in ("estimate", "std_error", "interval", "status")},
                    "width": width,
                    "shift": found["estimate"] - full["estimate"],
                    "shift_std_error": ("policy", _joint_error(found, full)),
                    "n_levels": _distinct(coarse),
                }
            )
        )
    out = xr.concat(rows, dim=xr.Variable("levels", np.array(levels, dtype=int))).drop_vars(
        "method", errors="ignore"
    )
    whole = full["interval"].diff("ci_bound").squeeze("ci_bound", drop=True)
    return out.assign(
        width_ratio=out["width"] / whole,
        full_estimate=full["estimate"].drop_vars("method", errors="ignore"),
        full_width=whole.drop_vars("method", errors="ignore"),
        full_n_levels=_distinct(data),
    ).assign_attrs(estimator=estimator, ci_prob=ci_prob)


def _distinct(data: xr.Dataset) -> int:
    score = data["judge"].values
    return len(np.unique(score[np.isfinite(score)]))


def _joint_error(one: xr.Dataset, other: xr.Dataset) -> FloatArray:
    """Standard error of the difference of two estimates of the same prompts, per policy."""
    if "influence" not in one or "influence" not in other:
        return np.full(one.sizes["policy"], np.nan)
    _, cluster = np.unique(one["cluster"].values.astype(str), return_inverse=True)
    moves = (one["influence"] - other["influence"]).transpose("policy", "prompt").values
    return np.array([float(cluster_se(row, cluster)) for row in moves])
