"""From a study's results to measures with MCSE and bounds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.checks import BoolArray, FloatArray
from studies.engine.measures.bounds import Z, clopper_pearson, flat_error
from studies.engine.measures.replicates import REGISTRY, Part, Replicates
from studies.engine.outcome import NOT_RUN
from studies.engine.study import StudyError


def estimand_kind(policy: str) -> str:
    """Return "difference" for a contrast, which `Study.columns` names "first - second", and "value" for a policy.

    Examples
    --------
    >>> estimand_kind("base"), estimand_kind("high - low")
    ('value', 'difference')
    """
    return "difference" if " - " in policy else "value"


def pooled_parts(ds: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Return the results of each kind of estimand with the name that a row over its policies bears.

    Values and differences are never averaged into one number, and an average names the policies that it is over.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> [name for name, _ in pooled_parts(four_replicates())]
    ['a']
    """
    kinds: dict[str, list[int]] = {}
    names = [str(p) for p in ds["policy"].values]
    for place, name in enumerate(names):
        kinds.setdefault(estimand_kind(name), []).append(place)
    parts = []
    for places in kinds.values():
        mine = [names[k] for k in places]
        parts.append((mine[0] if len(mine) == 1 else f"mean of {', '.join(mine)}", ds.isel(policy=places)))
    return parts


class Laid(NamedTuple):
    """Results as arrays, and the names of their axes after the replicate."""

    replicates: Replicates
    dims: list[str]


def lay_out(ds: xr.Dataset, null: float | xr.DataArray = 0.0) -> Laid:
    """Results as arrays over ``replicate, <factors>, method, policy``."""
    head = [str(d) for d in ds["estimate"].dims if d not in ("replicate", "method", "policy")]
    axes = ["replicate", *head, "method", "policy"]
    estimate = ds["estimate"].transpose(*axes)

    def spread_out(part: xr.DataArray) -> FloatArray:  # by place: all share the indexes of `ds`
        known = part.transpose(*(axis for axis in axes if axis in part.dims)).values
        places = [size if axis in part.dims else 1 for axis, size in zip(axes, estimate.shape, strict=True)]
        return np.array(np.broadcast_to(np.asarray(known.reshape(places), float), estimate.shape))

    status = ds["status"].transpose(*axes).values
    found = Replicates(
        np.ascontiguousarray(estimate.values),
        spread_out(ds["std_error"]),
        np.ascontiguousarray(ds["interval"].transpose(*axes, "ci_bound").values),
        spread_out(ds["truth"]),
        spread_out(null.reindex_like(estimate) if isinstance(null, xr.DataArray) else xr.DataArray(null)),
        status != NOT_RUN,
        float(ds.attrs["ci_prob"]),
        status,
    )
    return Laid(found, [*head, "method", "policy"])


def compute(
    estimate: FloatArray,
    std_error: FloatArray,
    interval: FloatArray,
    truth: FloatArray,
    ran: BoolArray,
    ci_prob: float,
) -> dict[str, Part]:
    """Every measure of arrays with the replicate first (``interval``: shape (R, ..., 2)), the null at 0.

    Examples
    --------
    >>> estimate = np.array([0.4, 0.6, 0.5, 0.7])
    >>> interval = np.stack([estimate - 0.15, estimate + 0.15], axis=-1)
    >>> ones = np.ones(4)
    >>> parts = compute(estimate, 0.1 * ones, interval, 0.5 * ones, ones.astype(bool), 0.95)
    >>> "coverage" in parts
    True
    """
    found = Replicates(estimate, std_error, interval, truth, np.zeros_like(truth), ran, ci_prob)
    with np.errstate(invalid="ignore"):
        return {name: one.of(found) for name, one in REGISTRY.items()}


def known(measures: Iterable[str]) -> list[str]:
    """The measures asked for, each once; one that there is not raises one clear line."""
    names = list(dict.fromkeys(measures))
    for name in names:
        if name not in REGISTRY:
            raise StudyError(f"no measure named {name!r}; there are: {', '.join(REGISTRY)}")
    return names


def one_measure(r: Replicates, name: str, pool: bool) -> Part:
    """One measure; averaged over the policies, the last axis, if `pool`."""
    with np.errstate(invalid="ignore"):
        value, share, n = REGISTRY[name].of(r)
    if pool:
        value, share, n = (part.mean(axis=-1, keepdims=True) for part in (value, share, n))
    return Part(value, share, n)


def performance(
    ds: xr.Dataset,
    *,
    measures: Sequence[str] | None = None,
    pool: bool = False,
    null: float | xr.DataArray = 0.0,
    unit: str | None = None,
) -> xr.Dataset:
    """Measures of a study's results, see `studies.engine.measures.REGISTRY`.

    Parameters
    ----------
    ds : xr.Dataset
        Merged results, see `studies.engine.blocks.merge`.
    measures : sequence of str, optional
        All by default.
    pool : bool
        Average each measure over the policies of one kind of estimand: values and differences stay apart, and the
        labels of ``policy`` name what was averaged ("mean of base, high"), see `pooled_parts`.
    null : float or DataArray
        What ``power``, ``type_s`` and ``type_m`` test.
    unit : str, optional
        Variable over ``replicate`` that tells the independent units apart, where the replicate is not one (several
        replicates on one drawn population). The MCSE is then that of the delete-one-unit jackknife,
        ``sqrt((G - 1) / G sum_g (v_(g) - mean)^2)``, and a unit is one trial of the bounds.

    Returns
    -------
    xr.Dataset
        ``value`` and ``mcse`` over ``measure, <factors>, method, policy``; ``bound`` with ``ci_bound``: 95%
        Monte Carlo bounds, exact (Clopper-Pearson) for proportions, value +- 1.96 MCSE for the rest; ``trials``, the
        replicates that the measure rests on; ``replicates`` run. The MCSE of a proportion that did not vary is
        `studies.engine.measures.bounds.flat_error`, not 0. Bounds of a pooled coverage take the policies of a replicate
        as one trial, which is conservative.

    Raises
    ------
    StudyError
        If there is no such measure or unit.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> found = performance(results, measures=["bias", "coverage"]).squeeze()
    >>> found["value"].round(3).to_series().to_dict(), found["mcse"].round(3).to_series().to_dict()
    ({'bias': 0.05, 'coverage': 0.75}, {'bias': 0.065, 'coverage': 0.25})
    """
    names = known(measures if measures is not None else REGISTRY)
    if pool:
        parts = [_measured(part, names, null, unit, name) for name, part in pooled_parts(ds)]
        return parts[0] if len(parts) == 1 else xr.concat(parts, "policy", data_vars="minimal")
    return _measured(ds, names, null, unit, None)


def _measured(
    ds: xr.Dataset, names: Sequence[str], null: float | xr.DataArray, unit: str | None, label: str | None
) -> xr.Dataset:
    """Measures of every policy, or their averages over all policies under the name `label`."""
    pool = label is not None
    found, dims = lay_out(ds, null)
    units = _units(ds, unit)
    ran = found.ran.sum(axis=0).astype(float)
    runs = ran[..., :1] if pool else ran
    rows = []
    for name in names:
        part = one_measure(found, name, pool)
        if units is None:
            mcse = np.sqrt((part.share**2).sum(axis=0))
            trials = part.n
        else:
            mcse = _jackknife(found, units, name, pool)
            groups = np.sum([found.ran[units == one].any(axis=0) for one in np.unique(units)], axis=0)
            groups = groups[..., :1] if pool else groups
            trials = part.n * np.divide(groups, runs, out=np.zeros_like(runs), where=runs > 0)
        rows.append((part.value, *_bounded(part, mcse, trials, REGISTRY[name].kind), trials))
    value, mcse, bound, trials = (np.stack([row[k] for row in rows]) for k in range(4))
    return xr.Dataset(
        {
            "value": (["measure", *dims], value),
            "mcse": (["measure", *dims], mcse),
            "bound": (["measure", *dims, "ci_bound"], bound),
            "trials": (["measure", *dims], trials),
            "replicates": (dims, runs),
        },
        coords={
            **{d: ds[d].values for d in dims},
            **({"policy": [label]} if pool else {}),
            "measure": names,
            "ci_bound": ["lower", "upper"],
        },
    )


def _bounded(part: Part, mcse: FloatArray, trials: FloatArray, kind: str) -> tuple[FloatArray, FloatArray]:
    """MCSE and bounds of one measure."""
    value = part.value
    mcse = np.where(np.isnan(value), np.nan, mcse)
    if kind == "mean":
        return mcse, np.stack([value - Z * mcse, value + Z * mcse], axis=-1)
    scale = np.where(part.n > 0, part.n, np.nan) if kind == "count" else np.ones_like(trials)
    share = value / scale
    mcse = np.where((share <= 0) | (share >= 1), flat_error(trials) * scale, mcse)
    return mcse, clopper_pearson(share * trials, trials) * scale[..., None]


def _units(ds: xr.Dataset, unit: str | None) -> FloatArray | None:
    if unit is None:
        return None
    if unit not in ds.variables or ds[unit].dims != ("replicate",):
        raise StudyError(f"unit {unit!r}: it must be a variable of the results over replicate alone")
    return np.asarray(ds[unit].values)


def _jackknife(r: Replicates, units: FloatArray, name: str, pool: bool) -> FloatArray:
    """Delete-one-unit jackknife standard error of a measure."""
    rest = [only(r, (units != one).reshape(-1, *(1,) * (r.ran.ndim - 1)) & r.ran) for one in np.unique(units)]
    values = np.stack([one_measure(part, name, pool).value for part in rest])
    return np.asarray(np.sqrt((len(rest) - 1) * values.var(axis=0)))


def only(r: Replicates, ran: BoolArray) -> Replicates:
    """The same results as if only the replicates `ran` had been run."""
    return replace(r, ran=ran)
