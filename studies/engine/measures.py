"""Performance measures of a simulation study, each with its Monte Carlo standard error (MCSE).

Measures are those of Morris, White and Crowther (2019), Table 6, and the interval score of Gneiting and
Raftery (2007), eq. 43. Each is a smooth function of means over replicates, so each has an influence value per
replicate; ``MCSE = sqrt(sum_r c_r^2)``, with ``c_r`` the replicate's influence value over sqrt(n (n - 1)).
That equals Morris et al.'s formulas for bias, MSE, model SE and width, and theirs with n - 1 for n for
coverage. For the empirical SE and the SE calibration it keeps the fourth moment and the correlation that
their formulas take from the Normal distribution. The replicate is the unit: averaging a measure over policies
averages influence values, so the correlation between the policies of one replicate is kept.

===================  ========================================================================================
measure              with e = estimate - truth, over the replicates that gave an estimate
===================  ========================================================================================
bias                 mean e
empirical_se         sd of e (n - 1)
rmse                 sqrt(mean e^2)
model_se             sqrt(mean SE^2)
se_calibration       model_se / empirical_se, over the replicates with an SE; 1 is right, < 1 too confident
coverage             share of *all* replicates run whose interval holds the truth: a failure is a miss
coverage_bias_free   the same for truth + bias, the coverage that is left when bias is taken out
miss_left            share of all replicates whose interval lies above the truth; a failure is on neither side
miss_right           share of all replicates whose interval lies below the truth
width                mean width of the intervals
interval_score       mean of width + 2 / alpha * distance by which the truth is missed; smaller is better
coverage_answered    coverage among the replicates that gave an estimate: what holds for those who read a number
refused              share of all replicates without an estimate: a status (or an exception) in a number's place
n_failed             replicates run without an estimate
===================  ========================================================================================

A method without any interval has NaN for the interval measures, unless it failed in every replicate.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy import stats

from cje_core.checks import BoolArray, FloatArray
from studies.engine.outcome import NOT_RUN

MEASURES = (
    "bias",
    "empirical_se",
    "rmse",
    "model_se",
    "se_calibration",
    "coverage",
    "coverage_bias_free",
    "miss_left",
    "miss_right",
    "width",
    "interval_score",
    "coverage_answered",
    "refused",
    "n_failed",
)
PROPORTIONS = (
    "coverage",
    "coverage_bias_free",
    "coverage_answered",
    "miss_left",
    "miss_right",
    "refused",
    "n_failed",
)
Columns = Mapping[str, xr.DataArray]
EMPTY: Columns = MappingProxyType({})
MC_LEVEL = 0.95  # of the Monte Carlo bounds


def clopper_pearson(hits: npt.ArrayLike, n: npt.ArrayLike, prob: float = MC_LEVEL) -> FloatArray:
    """Exact bounds of a proportion, shape (..., 2); they have width also at 0 and n hits.

    `hits` need not be whole: a mean of correlated indicators times n gives conservative bounds.

    Examples
    --------
    >>> clopper_pearson(0, 50).round(4).tolist()
    [0.0, 0.0711]
    """
    k, total = np.broadcast_arrays(np.asarray(hits, float), np.asarray(n, float))
    tail = (1 - prob) / 2
    low = np.where(k > 0, stats.beta.ppf(tail, np.maximum(k, 1e-12), total - k + 1), 0.0)
    high = np.where(k < total, stats.beta.ppf(1 - tail, k + 1, np.maximum(total - k, 1e-12)), 1.0)
    bounds = np.stack([low, high], axis=-1)
    bounds[~(total > 0) | np.isnan(k)] = np.nan
    return bounds


def _mean(values: FloatArray, use: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean over axis 0 of the entries in use, and each entry's share of its error (0 where not in use).

    The sum of the squared shares is the usual estimate sd^2 / n of the mean's variance.
    """
    n = use.sum(axis=0)
    total = np.where(use, values, 0.0).sum(axis=0)
    mean = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
    scale = np.sqrt(n * np.where(n > 1, n - 1.0, np.nan))
    return mean, np.where(use, values - mean, 0.0) / scale


def _root(mean: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Square root of a mean, and the shares of its error by the delta method."""
    root = np.sqrt(mean)
    slope = np.divide(0.5, root, out=np.full(root.shape, np.nan), where=root > 0)
    return root, share * slope


def compute(
    estimate: FloatArray,
    std_error: FloatArray,
    interval: FloatArray,
    truth: FloatArray,
    ran: BoolArray,
    ci_prob: float,
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Value and per-replicate error shares of every measure.

    Parameters
    ----------
    estimate, std_error, truth, ran : arrays, shape (R, ...)
        Replicate first; `ran` marks the replicates that were run.
    interval : array, shape (R, ..., 2)
    ci_prob : float
        Nominal probability, for the interval score.

    Returns
    -------
    dict of (value (...), shares (R, ...))
        The MCSE is the root of the sum of squared shares.
    """
    ok = ran & np.isfinite(estimate)
    error = np.where(ok, estimate - truth, 0.0)
    lower, upper = interval[..., 0], interval[..., 1]
    with_interval = ok & np.isfinite(lower) & np.isfinite(upper)
    # no interval in any replicate that has an estimate: the method offers none, which is not a miss
    offers = with_interval.any(axis=0) | ~ok.any(axis=0)
    judged = ran & offers
    out = {"bias": _mean(error, ok)}
    bias = out["bias"][0]

    def spread(use: BoolArray) -> tuple[FloatArray, FloatArray]:
        n = use.sum(axis=0)
        center = _mean(error, use)[0]
        mean, share = _mean((error - center) ** 2, use)
        factor = np.divide(n, n - 1, out=np.full(n.shape, np.nan), where=n > 1)
        return _root(mean * factor, share * factor)

    out["empirical_se"] = spread(ok)
    out["rmse"] = _root(*_mean(error**2, ok))
    with_se = ok & np.isfinite(std_error)
    out["model_se"] = _root(*_mean(np.where(with_se, std_error, 0.0) ** 2, with_se))
    model, empirical = out["model_se"], spread(with_se)
    size = np.where(empirical[0] > 0, empirical[0], np.nan)
    ratio = model[0] / size
    scale = np.where(model[0] > 0, model[0], np.nan)
    out["se_calibration"] = ratio, ratio * (model[1] / scale - empirical[1] / size)
    center = np.where(np.isfinite(truth), truth, np.inf)  # no truth: never covered
    for name, target in (("coverage", center), ("coverage_bias_free", center + np.nan_to_num(bias))):
        hit = with_interval & (lower <= target) & (target <= upper)
        out[name] = _mean(hit.astype(float), judged)
    for name, miss in (("miss_left", lower > truth), ("miss_right", upper < truth)):
        out[name] = _mean((with_interval & miss).astype(float), judged)
    width = np.where(with_interval, upper - lower, 0.0)
    missed = np.maximum(lower - truth, 0) + np.maximum(truth - upper, 0)
    out["width"] = _mean(width, with_interval)
    score = np.where(with_interval, width + 2 / (1 - ci_prob) * np.nan_to_num(missed), 0.0)
    out["interval_score"] = _mean(score, with_interval)
    hit = with_interval & (lower <= center) & (center <= upper)
    out["coverage_answered"] = _mean(hit.astype(float), ok & offers)
    n = ran.sum(axis=0)
    failed, share = _mean((ran & ~ok).astype(float), ran)
    out["refused"] = failed, share
    out["n_failed"] = failed * n, share * n
    return out


class _Found(NamedTuple):
    """Measures of a study: value (..., method, policy), shares (replicate, ...), and which replicates were run."""

    measures: dict[str, tuple[FloatArray, FloatArray]]
    ran: BoolArray
    dims: list[str]


def _find(ds: xr.Dataset) -> _Found:
    head = [str(d) for d in ds["estimate"].dims if d not in ("replicate", "method", "policy")]
    axes = ["replicate", *head, "method", "policy"]
    estimate = ds["estimate"].transpose(*axes)

    def spread_out(name: str) -> FloatArray:
        return np.asarray(ds[name].broadcast_like(estimate).transpose(*axes).values, float)

    ran = ds["status"].transpose(*axes).values != NOT_RUN
    measures = compute(
        estimate.values,
        spread_out("std_error"),
        ds["interval"].transpose(*axes, "ci_bound").values,
        spread_out("truth"),
        ran,
        float(ds.attrs["ci_prob"]),
    )
    return _Found(measures, ran, [*head, "method", "policy"])


def performance(ds: xr.Dataset, *, pool: bool = False) -> xr.Dataset:
    """All measures of a study's results.

    Parameters
    ----------
    ds : xr.Dataset
        Merged results, see `studies.engine.blocks.merge`.
    pool : bool
        Average each measure over policies (``n_failed``: sum them).

    Returns
    -------
    xr.Dataset
        ``value`` and ``mcse`` over ``measure, <factors>, method[, policy]``; ``bound`` with ``ci_bound``: 95%
        Monte Carlo bounds, exact (Clopper-Pearson) for proportions, value +- 1.96 MCSE for the rest;
        ``replicates`` run. Bounds of a pooled coverage take the policies of a replicate as one trial,
        which is conservative.
    """
    found, ran, dims = _find(ds)
    n = ran.sum(axis=0).astype(float)
    rows = {}
    for name, (value, share) in found.items():
        level, weight = value, share
        if pool:
            factor = value.shape[-1] if name == "n_failed" else 1
            level, weight = factor * value.mean(axis=-1), factor * share.mean(axis=-1)
        runs = n[..., 0] if pool else n
        mcse = np.sqrt((weight**2).sum(axis=0))
        mcse[np.isnan(level)] = np.nan
        half = stats.norm.ppf(0.5 + MC_LEVEL / 2) * mcse
        bound = np.stack([level - half, level + half], axis=-1)
        if name in PROPORTIONS:
            trials = runs * (ds.sizes["policy"] if pool and name == "n_failed" else 1)
            if name == "coverage_answered":
                refused = found["refused"][0]
                trials = trials * (1 - (refused.mean(axis=-1) if pool else refused))
            bound = clopper_pearson(level if name == "n_failed" else level * trials, trials)
            bound = bound * trials[..., None] if name == "n_failed" else bound
        rows[name] = (level, mcse, bound)
    if pool:
        dims = dims[:-1]
    coords = {d: ds[d].values for d in dims}
    stacked = [np.stack([rows[name][k] for name in MEASURES]) for k in range(3)]
    return xr.Dataset(
        {
            "value": (["measure", *dims], stacked[0]),
            "mcse": (["measure", *dims], stacked[1]),
            "bound": (["measure", *dims, "ci_bound"], stacked[2]),
            "replicates": (dims, n[..., 0] if pool else n),
        },
        coords={**coords, "measure": list(MEASURES), "ci_bound": ["lower", "upper"]},
    )


def long_table(measured: xr.Dataset) -> pd.DataFrame:
    """Performance as rows ``<factors>, method[, policy], measure, value, mcse, lower, upper``, for CSV."""
    dims = [*(d for d in measured["value"].dims if d != "measure"), "measure"]
    parts = measured[["value", "mcse"]].assign(
        lower=measured["bound"].sel(ci_bound="lower", drop=True),
        upper=measured["bound"].sel(ci_bound="upper", drop=True),
    )
    frame = parts.to_dataframe(dim_order=dims).reset_index()
    ran = measured["replicates"].to_dataframe().reset_index()
    return frame.merge(ran[ran["replicates"] > 0]).reset_index(drop=True)


def _that_ran(columns: xr.Dataset, dims: Sequence[Hashable]) -> pd.DataFrame:
    """Rows of a table where the column ``ran`` is positive."""
    frame = columns.to_dataframe(dim_order=list(dims))
    return frame[frame.pop("ran") > 0].reset_index()


def summary_table(ds: xr.Dataset, measures: Sequence[str], *, pool: bool = True) -> pd.DataFrame:
    """One row per cell and method (and policy, unless pooled): ``<measure>`` and ``<measure>_mcse`` columns.

    The reader's tables and the report print such a pair of columns as "value (MCSE)".
    """
    measured = performance(ds, pool=pool)
    columns = {"ran": measured["replicates"]}
    for name in measures:
        one = measured.sel(measure=name, drop=True)
        columns |= {name: one["value"], f"{name}_mcse": one["mcse"]}
    return _that_ran(xr.Dataset(columns), measured["replicates"].dims)


def cell_table(
    ds: xr.Dataset, methods: Iterable[str], measure: str, before: Columns = EMPTY, after: Columns = EMPTY
) -> pd.DataFrame:
    """One row per cell that was run: `measure` of each method and its MCSE, between columns of a study's own."""
    measured = performance(ds, pool=True).sel(measure=measure, drop=True)
    columns = dict(before)
    for method in methods:
        one = measured.sel({"method": method}, drop=True)
        columns |= {f"{method}_{measure}": one["value"], f"{method}_{measure}_mcse": one["mcse"]}
    factors = [d for d in measured["replicates"].dims if d != "method"]
    return _that_ran(xr.Dataset({**columns, **after, "ran": measured["replicates"].max("method")}), factors)


def paired_table(
    ds: xr.Dataset, reference: str, measures: Sequence[str], *, ratios: Sequence[str] = ()
) -> pd.DataFrame:
    """Each method against a reference on the same replicates: one row per cell and method, averages over policies.

    A replicate's share of the error of a difference is the difference of its shares, so the correlation of two methods
    on the same data is kept: the MCSE is that of a paired comparison.

    Parameters
    ----------
    ds : xr.Dataset
        Merged results.
    reference : str
        Method that the others are compared with.
    measures, ratios : sequences of str
        Measures shown as differences, ``<measure>``, and as ratios to the reference's, ``<measure>_ratio``.

    Returns
    -------
    pd.DataFrame
        Factors, ``method``, and columns with their ``_mcse``; NaN where one of the two has no number.
    """
    found, ran, dims = _find(ds)
    place = [str(m) for m in ds["method"].values].index(reference)
    silent = np.isnan(found["bias"][0].mean(axis=-1))  # without an estimate there is nothing to compare
    columns = {}
    for name in dict.fromkeys((*measures, *ratios)):
        value, share = (part.mean(axis=-1) for part in found[name])
        value = np.where(silent, np.nan, value)
        other, other_share = value[..., place, None], share[..., place, None]
        if name in measures:
            columns[name] = value - other, share - other_share
        if name in ratios:
            ratio = value / np.where(other > 0, other, np.nan)
            columns[f"{name}_ratio"] = ratio, (share - ratio * other_share) * ratio / value
    data: dict[str, Any] = {"ran": (dims[:-1], ran.sum(axis=0)[..., 0])}
    for name, (value, share) in columns.items():
        mcse = np.where(np.isnan(value), np.nan, np.sqrt((share**2).sum(axis=0)))
        data |= {name: (dims[:-1], value), f"{name}_mcse": (dims[:-1], mcse)}
    frame = _that_ran(xr.Dataset(data, coords={d: ds[d].values for d in dims[:-1]}), dims[:-1])
    return frame[frame["method"] != reference].reset_index(drop=True)


def by_estimand(
    parts: Iterable[tuple[str, xr.Dataset]], measure: Callable[[xr.Dataset], pd.DataFrame]
) -> pd.DataFrame:
    """One table of several (estimand, part of the results), told apart by its second column ``estimand``."""
    frames = []
    for estimand, part in parts:
        frames.append(measure(part))
        frames[-1].insert(1, "estimand", estimand)
    return pd.concat(frames, ignore_index=True)


def side_by_side(
    measures: pd.DataFrame, cell: Sequence[str], name: str, methods: Sequence[str]
) -> pd.DataFrame:
    """One row per cell (its columns `cell`), one pair of columns per method: the measure `name` and its MCSE.

    Parameters
    ----------
    measures : pd.DataFrame
        As from `summary_table`: a row per cell and method.
    cell : sequence of str
        Columns that tell the cells apart.
    name : str
    methods : sequence of str
        Columns are in this order; those that `measures` lacks are left out.
    """
    keys = list(cell)
    wide = measures.pivot(index=keys, columns="method", values=[name, f"{name}_mcse"])
    order = measures[keys].drop_duplicates().set_index(keys).index  # a pivot sorts
    wide = wide.reindex(order)
    return pd.DataFrame(
        {f"{m}{end}": wide[f"{name}{end}", m] for m in methods if (name, m) in wide for end in ("", "_mcse")}
    ).reset_index()
