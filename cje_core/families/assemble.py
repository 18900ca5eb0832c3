"""The labelled shell shared by the estimators: what was found on the rows of a data set -> an estimate in its order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from xarray.indexes import PandasIndex

from cje_core.data.arrays import Rows
from cje_core.data.contract import index_of, policy_names
from cje_core.families.finish import Found, finish, name_missing_spread
from cje_core.inference.borrowed_limits import parts_variables
from cje_core.inference.estimate import label_estimate


def assemble(data: xr.Dataset, found: Found, *, estimator: str, ci_prob: float) -> xr.Dataset:
    """Intervals (`cje_core.families.finish`), labels and order of what an estimator found on a data set's rows.

    The kind of interval that each policy got is ``interval_kind``; the attribute ``ci_kind`` is theirs if they agree,
    else ``mixed``. `Found.extra` holds more variables, as ``(dims, values)``, policies first and in the order of the
    rows; one that has its dimension's name is a coordinate, and what is no such pair is an attribute.
    `Found.decomposed` adds ``std_error_evaluation``, ``std_error_calibration`` and ``calibration_share``.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> from cje_core.data.arrays import unpack
    >>> from cje_core.families.finish import PolicyResult
    >>> from cje_core.inference.estimate import Status
    >>> data = from_arrays([[0.2, 0.8]], policies=["base"])
    >>> nothing = PolicyResult(Status.TOO_FEW_LABELS, "mean_label", "none")
    >>> made = assemble(data, Found(unpack(data), [nothing], {}), estimator="mine", ci_prob=0.95)
    >>> Status(int(made["status"][0])).name
    'TOO_FEW_LABELS'
    """
    rows, rule = found.rows, found.rule
    names = [str(name) for name in policy_names(data)]
    order = np.array([rows.policies.index(name) for name in names], dtype=np.intp)
    results = [found.results[p] for p in order]
    scale = (float(data.attrs["oracle_range"][0]), float(data.attrs["oracle_range"][1]))
    made = finish([found], ci_prob, scale)
    kind, basis = made.kind[0, order], made.basis
    drawn = [one.draws for one in results]
    size = next((len(values) for values in drawn if values is not None), 0)
    nothing = np.full(size, np.nan)

    more: dict[str, Any] = {
        "df": ("policy", made.df[0, order]),
        "interval_kind": ("policy", kind),
        "effective_count": ("policy", basis.effective[0, order]),
        "unseen_by": ("policy", basis.unseen_by[0, order]),
        "unseen_weight": ("policy", basis.unseen_weight[0, order]),
        "skewness": ("policy", basis.skewness[0, order]),
        "unseen_bound": ("policy", made.unseen[0, order]),
    }
    extra = {**found.extra, **({} if found.splines is None else parts_variables(found.splines))}
    said = {name: value for name, value in extra.items() if not isinstance(value, tuple)}
    for name, (dims, values) in ((k, v) for k, v in extra.items() if k not in said):
        by_policy = (dims if isinstance(dims, str) else next(iter(dims), "")) == "policy"
        more[name] = dims, np.asarray(values)[order] if by_policy else values
    if found.decomposed:
        evaluation, calibration = made.evaluation[0, order], made.calibration[0, order]
        total = evaluation**2 + calibration**2
        share = np.divide(calibration**2, total, out=np.full(len(order), np.nan), where=total > 0)
        more["std_error_evaluation"] = ("policy", evaluation)
        more["std_error_calibration"] = ("policy", calibration)
        more["calibration_share"] = ("policy", share)
    coords, indexes = _named(data, rows, names)
    given = size or any(one.bounds is not None and not one.kind for one in results)
    in_order = bool(
        (order == np.arange(len(order))).all()
    )  # then a million influence values stay where they are
    return label_estimate(
        names,
        {
            "estimate": made.value[0, order],
            "std_error": made.std_error[0, order],
            "interval": made.interval[0, order],
            "status": [one.status for one in map(name_missing_spread, results)],
            "route": [one.route for one in results],
            "source": [one.source for one in results],
            "influence": made.influence[0] if in_order else made.influence[0, order],
            "balance": None if made.balance is None else made.balance[0, order],
            "draws": np.stack([nothing if one is None else one for one in drawn]) if size else None,
            **more,
        },
        estimator=estimator,
        options=found.options,
        ci_kind=rule.drawn if given else _common(kind, rule.kind),
        ci_prob=ci_prob,
        coords={**coords, "cluster": ("prompt", _clusters(rows))},
        indexes=indexes,
        attrs={"oracle_range": list(scale), **said},
    )


def _named(
    data: xr.Dataset, rows: Rows, policies: Sequence[str]
) -> tuple[dict[str, Any], dict[str, xr.Index]]:
    """Coordinates of policies and prompts, and their indexes where the data's own serve.

    A million names would be indexed for longer than estimated.
    """
    coords, indexes = dict[str, Any](), dict[str, xr.Index]()
    for dim, names, order in (("policy", policies, None), ("prompt", rows.prompts, rows.prompt_order)):
        held = data.variables[dim]
        made = index_of(data, dim)
        if made is None or held.dtype.kind != "U" or len(held) != len(names):
            coords[dim] = names
            continue
        coords[dim], indexes[dim] = held, made
        if order is not None:
            indexes[dim] = PandasIndex(made.to_pandas_index().take(order), dim, held.dtype)
            coords[dim] = indexes[dim].create_variables()[dim]
            coords[dim].attrs, coords[dim].encoding = held.attrs, held.encoding
    return coords, indexes


def _clusters(rows: Rows) -> npt.NDArray[np.str_]:
    """Name of each prompt's cluster."""
    alone = rows.cluster_names is rows.prompts  # `cje_core.data.arrays.unpack` without declared clusters
    return rows.prompts if alone else rows.cluster_names[rows.cluster]


def _common(kind: npt.NDArray[np.str_], asked: str) -> str:
    """The kind that all intervals are of, ``mixed``, or what was asked for where there is none."""
    seen = sorted(set(kind) - {"none"})
    return "mixed" if len(seen) > 1 else str(seen[0]) if seen else asked
