"""The labelled shell shared by the estimators: per-policy results in canonical order -> an estimate in the data's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.data import Rows
from cje_core.result import Status, label_estimate, percentile, wald

FloatArray = npt.NDArray[np.float64]


class PolicyResult(NamedTuple):
    """One policy's number before it gets its labels; the defaults are a failure."""

    status: Status
    route: str
    value: float = np.nan
    influence: FloatArray | None = None  # per prompt, in the order of Rows.prompts
    std_error: float = np.nan
    df: float = np.inf
    draws: FloatArray | None = (
        None  # bootstrap draws; when given they make the interval and the standard error
    )


def assemble(
    data: xr.Dataset,
    rows: Rows,
    results: Sequence[PolicyResult],
    *,
    estimator: str,
    options: Mapping[str, Any],
    ci_prob: float,
) -> xr.Dataset:
    """Intervals, labels and order: t intervals from the standard error, or percentile intervals from draws.

    Constant labels and a single cluster give a value without a standard error: no spread was seen, so none can be
    claimed.
    """
    if not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob is {ci_prob}; it must lie strictly between 0 and 1")
    results = [_name_missing_spread(result) for result in results]
    order = [rows.policies.index(str(name)) for name in data.policy.values]
    n = len(rows.prompts)
    value = np.array([results[p].value for p in order])
    influence = np.stack(
        [np.full(n, np.nan) if (phi := results[p].influence) is None else phi for p in order]
    )
    silent = np.array([results[p].status is Status.CONSTANT_LABELS for p in order])
    std_error = np.array([results[p].std_error for p in order])
    df = np.array([results[p].df for p in order])
    interval = wald(value, std_error, df, ci_prob)
    drawn = [results[p].draws for p in order]
    sizes = [len(d) for d in drawn if d is not None]
    draws = None
    if sizes:
        draws = np.stack([np.full(sizes[0], np.nan) if d is None else d for d in drawn])
        std_error = np.array([np.nan if d is None else np.std(d, ddof=1) for d in drawn])
        interval = percentile(draws, value, ci_prob)
    std_error[silent], interval[silent], influence[silent] = np.nan, np.nan, np.nan
    out = label_estimate(
        [str(name) for name in data.policy.values],
        value,
        std_error,
        interval,
        [results[p].status for p in order],
        route=[results[p].route for p in order],
        estimator=estimator,
        options=options,
        ci_kind="percentile" if sizes else "wald",
        ci_prob=ci_prob,
        influence=influence,
        prompts=rows.prompts,
        draws=draws,
    )
    out["df"] = ("policy", df)
    return out.assign_coords(cluster=("prompt", rows.cluster_names[rows.cluster]))


def _name_missing_spread(result: PolicyResult) -> PolicyResult:
    """Give a value whose standard error is NaN the status that says why."""
    named = result.status.failed or result.status in (Status.CONSTANT_LABELS, Status.FEW_RESAMPLES)
    if np.isfinite(result.std_error) or named:
        return result
    return result._replace(status=Status.ONE_CLUSTER)
