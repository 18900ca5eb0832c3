"""The labelled shell shared by the estimators: per-policy results in canonical order -> an estimate in the data's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.result import Status, into_scale, label_estimate, logit_wald, percentile, wald
from cje_core.rows import Rows

FloatArray = npt.NDArray[np.float64]

INTERVALS = ("wald", "logit")


class PolicyResult(NamedTuple):
    """One policy's number before it gets its labels; the defaults are a failure."""

    status: Status
    route: str
    value: float = np.nan
    influence: FloatArray | None = None  # per prompt, in the order of Rows.prompts
    std_error: float = np.nan
    df: float = np.inf
    draws: FloatArray | None = None  # replicates; when given they make the interval and the standard error
    bounds: FloatArray | None = (
        None  # (2,): an interval made from the draws in another way than by percentiles
    )
    se_evaluation: float = np.nan  # standard error from the responses drawn, with f known
    se_calibration: float = np.nan  # standard error from the finite number of labels


def assemble(
    data: xr.Dataset,
    rows: Rows,
    results: Sequence[PolicyResult],
    *,
    estimator: str,
    options: Mapping[str, Any],
    ci_prob: float,
    interval_scale: str = "wald",
    draws_kind: str = "percentile",
    decomposed: bool = False,
    extra: Mapping[str, Any] | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Intervals, labels and order: t intervals from the standard error, or intervals from draws.

    Constant labels and a single cluster give a value without a standard error: no spread was seen, so none can be
    claimed.

    Parameters
    ----------
    interval_scale : {"wald", "logit"}
        ``logit`` keeps the interval inside the declared oracle range (`cje_core.result.logit_wald`; intervals from
        draws are cut to it).
    draws_kind : str
        What to call the interval where there are draws (attribute ``ci_kind``).
    decomposed : bool
        Add ``std_error_evaluation``, ``std_error_calibration`` and ``calibration_share``.
    extra : mapping, optional
        More variables, as ``(dims, values)``, policies in the order of `data`.
    coords : mapping, optional
        More coordinates.
    """
    if interval_scale not in INTERVALS:
        raise ValueError(f"interval is {interval_scale!r}; use one of {', '.join(INTERVALS)}")
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
    scale = (float(data.attrs["oracle_range"][0]), float(data.attrs["oracle_range"][1]))
    logit = interval_scale == "logit"
    interval = (
        logit_wald(value, std_error, df, ci_prob, scale) if logit else wald(value, std_error, df, ci_prob)
    )
    drawn = [results[p].draws for p in order]
    sizes = [len(d) for d in drawn if d is not None]
    draws = None
    if sizes:
        draws = np.stack([np.full(sizes[0], np.nan) if d is None else d for d in drawn])
        std_error = np.array([np.nan if d is None else np.std(d, ddof=1) for d in drawn])
        interval = percentile(draws, value, ci_prob)
        for row, p in enumerate(order):
            if (bounds := results[p].bounds) is not None:
                interval[row] = bounds
        if logit:
            interval = into_scale(interval, value, scale)
    std_error[silent], interval[silent], influence[silent] = np.nan, np.nan, np.nan
    more: dict[str, Any] = {"df": ("policy", df)} | dict(extra or {})
    if decomposed:
        evaluation, calibration = (
            np.where(silent, np.nan, [getattr(results[p], name) for p in order])
            for name in ("se_evaluation", "se_calibration")
        )
        total = evaluation**2 + calibration**2
        share = np.divide(calibration**2, total, out=np.full(len(order), np.nan), where=total > 0)
        more["std_error_evaluation"] = ("policy", evaluation)
        more["std_error_calibration"] = ("policy", calibration)
        more["calibration_share"] = ("policy", share)
    return label_estimate(
        [str(name) for name in data.policy.values],
        value,
        std_error,
        interval,
        [results[p].status for p in order],
        route=[results[p].route for p in order],
        estimator=estimator,
        options=options,
        ci_kind=draws_kind if sizes else interval_scale,
        ci_prob=ci_prob,
        influence=influence,
        prompts=rows.prompts,
        draws=draws,
        extra=more,
        coords={"cluster": ("prompt", rows.cluster_names[rows.cluster]), **(coords or {})},
    )


def _name_missing_spread(result: PolicyResult) -> PolicyResult:
    """Give a value whose standard error is NaN the status that says why."""
    silent = (
        Status.CONSTANT_LABELS,
        Status.FEW_RESAMPLES,
        Status.FEW_LABELS_POSTERIOR,
        Status.POOR_OVERLAP,  # one response has all the weight
    )
    named = result.status.failed or result.status in silent
    if np.isfinite(result.std_error) or named:
        return result
    return result._replace(status=Status.ONE_CLUSTER)
