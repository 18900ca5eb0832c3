"""The labelled shell shared by the estimators: per-policy results in canonical order -> an estimate in the data's."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from xarray.indexes import PandasIndex

from cje_core.checks import BoolArray, FloatArray, one_of, probability
from cje_core.data.arrays import Rows
from cje_core.data.contract import KEPT, Same, index_of, policy_names
from cje_core.families.intervals import INTERVALS, NOTHING, Evidence, bounds, evidence_of
from cje_core.inference.estimate import Status, into_scale, label_estimate, percentile
from cje_core.inference.limits import error_skewness
from cje_core.inference.sources import SOURCES
from cje_core.inference.sums import cluster_sums


class PolicyResult(NamedTuple):
    """One policy's number before it gets its labels; the defaults are a failure."""

    status: Status
    route: str
    source: str = "none"  # what the value rests on, see `cje_core.inference.sources`
    value: float = np.nan
    influence: FloatArray | None = None  # per prompt, in the order of Rows.prompts
    std_error: float = np.nan
    df: float = np.inf
    draws: FloatArray | None = None  # replicates; when given they make the interval and the standard error
    bounds: FloatArray | None = None  # (2,): an interval made in another way than by t or percentiles
    se_evaluation: float = np.nan  # standard error from the responses drawn, with f known
    se_calibration: float = np.nan  # standard error from the finite number of labels
    balance: FloatArray | None = None  # per prompt: weights of the labels that others lend, see `Part`
    kind: str = (
        ""  # of `bounds` where these are this policy's alone and the others have intervals by the rule
    )


class IntervalRule(NamedTuple):
    """How values get their intervals.

    ``kind`` is one of "auto", "wald", "logit", "clopper_pearson" (`cje_core.families.intervals`); all but ``wald`` keep
    the interval inside the declared oracle range, and intervals from draws are cut to it.
    """

    kind: str = "wald"
    # (rows,) whose labels correct or make their own policy's value: their counts are ``effective_count`` where they are
    # binary and the interval rests on them; graded ones leave room, see `cje_core.families.intervals`
    behind: BoolArray | None = None
    drawn: str = "percentile"  # what to call an interval from draws or `PolicyResult.bounds`


WALD = IntervalRule()


def assemble(
    data: xr.Dataset,
    rows: Rows,
    results: Sequence[PolicyResult],
    *,
    estimator: str,
    options: Mapping[str, Any],
    ci_prob: float,
    rule: IntervalRule = WALD,
    decomposed: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Intervals, labels and order: t intervals from the standard error, or intervals from draws.

    Constant labels and a single cluster give a value without a standard error: no spread was seen, so none can be
    claimed. Labels that are all at one end of the scale bound their mean even so, see `cje_core.families.intervals`.
    The kind of interval that each policy got is ``interval_kind``; the attribute ``ci_kind`` is theirs if they agree,
    else ``mixed``.

    Parameters
    ----------
    decomposed : bool
        Add ``std_error_evaluation``, ``std_error_calibration`` and ``calibration_share``.
    extra : mapping, optional
        More variables, as ``(dims, values)``, policies first and in the order of `rows`. One that has its dimension's
        name is a coordinate; what is no such pair is an attribute.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> from cje_core.data.arrays import unpack
    >>> from cje_core.inference.estimate import Status
    >>> data = from_arrays([[0.2, 0.8]], policies=["base"])
    >>> nothing = PolicyResult(Status.TOO_FEW_LABELS, "mean_label", "none")
    >>> found = assemble(data, unpack(data), [nothing], estimator="mine", options={}, ci_prob=0.95)
    >>> Status(int(found["status"][0])).name
    'TOO_FEW_LABELS'
    """
    one_of(rule.kind, "interval", INTERVALS)
    probability(ci_prob)
    for result in results:
        _check_source(result)
    results = [name_missing_spread(result) for result in results]
    names = [str(name) for name in policy_names(data)]
    order = [rows.policies.index(name) for name in names]
    numbers = [
        (one.value, one.std_error, one.df, one.se_evaluation, one.se_calibration)
        for one in (results[p] for p in order)
    ]
    value, std_error, df, evaluation, calibration = np.array(numbers, dtype=float).reshape(-1, 5).T.copy()
    influence = _stacked([results[p].influence for p in order], len(rows.prompts))
    lent = [results[p].balance for p in order]
    balance = None if all(one is None for one in lent) else _stacked(lent, len(rows.prompts))
    silent = np.array([results[p].status is Status.CONSTANT_LABELS for p in order])
    scale = (float(data.attrs["oracle_range"][0]), float(data.attrs["oracle_range"][1]))
    if rule.kind != "wald":  # E[Y] lies in the range: its nearest point is never further from it
        value = np.clip(value, *scale)
    if silent.any():
        std_error[silent] = evaluation[silent] = calibration[silent] = np.nan
        influence = np.where(silent[:, None], np.nan, influence)
    evidence = [NOTHING if rule.behind is None else evidence_of(rows, p, rule.behind, scale) for p in order]
    graded = any(e.there and not e.binary for e in evidence)  # others do not ask for the skewness
    chosen = bounds(
        value,
        std_error,
        df,
        skewness=_skewness(rows, order, influence) if graded else 0.0,
        evidence=Evidence(*map(np.array, zip(*evidence, strict=True))) if evidence else NOTHING,
        kind=rule.kind,
        ci_prob=ci_prob,
        scale=scale,
    )
    interval, kind = chosen.interval, chosen.basis.kind.copy()
    for row, p in enumerate(order):
        if results[p].kind and (limits := results[p].bounds) is not None:
            interval[row], kind[row] = into_scale(limits, value[row], scale), results[p].kind
    made = [None if results[p].kind else results[p].bounds for p in order]
    given = any(bound is not None for bound in made)
    drawn = [results[p].draws for p in order]
    sizes = [len(d) for d in drawn if d is not None]
    draws = None
    if sizes:
        draws = _stacked(drawn, sizes[0])
        std_error = np.array([np.nan if d is None else np.std(d, ddof=1) for d in drawn])
        bootstrapped = percentile(draws, value, ci_prob)
        for row, bound in enumerate(made):
            if bound is not None:
                bootstrapped[row] = bound
        if rule.kind != "wald":
            bootstrapped = into_scale(bootstrapped, value, scale)
        std_error[silent], bootstrapped[silent] = np.nan, interval[silent]
        interval, kind = bootstrapped, np.where(silent, kind, rule.drawn)
    elif given:
        interval, kind = _stacked(made, 2), np.full(len(order), rule.drawn)
    kind = np.where(np.isfinite(interval).all(axis=1), kind, "none")
    graded_kind = kind == "gamma"
    more: dict[str, Any] = {
        "df": ("policy", df),
        "interval_kind": ("policy", kind),
        "effective_count": ("policy", np.where(kind == "clopper_pearson", chosen.basis.effective, np.nan)),
        **{
            name: ("policy", np.where(graded_kind, part, np.nan))
            for name, part in (
                ("unseen_by", chosen.basis.unseen_by),
                ("unseen_weight", chosen.basis.unseen_weight),
                ("skewness", chosen.basis.skewness),
                ("unseen_bound", chosen.unseen),
            )
        },
    }
    said = {name: value for name, value in (extra or {}).items() if not isinstance(value, tuple)}
    for name, (dims, values) in ((k, v) for k, v in (extra or {}).items() if k not in said):
        by_policy = (dims if isinstance(dims, str) else next(iter(dims), "")) == "policy"
        more[name] = dims, np.asarray(values)[order] if by_policy else values
    if decomposed:
        total = evaluation**2 + calibration**2
        share = np.divide(calibration**2, total, out=np.full(len(order), np.nan), where=total > 0)
        more["std_error_evaluation"] = ("policy", evaluation)
        more["std_error_calibration"] = ("policy", calibration)
        more["calibration_share"] = ("policy", share)
    coords, indexes = _named(data, rows, names)
    return label_estimate(
        names,
        {
            "estimate": value,
            "std_error": std_error,
            "interval": interval,
            "status": [results[p].status for p in order],
            "route": [results[p].route for p in order],
            "source": [results[p].source for p in order],
            "influence": influence,
            "balance": balance,
            "draws": draws,
            **more,
        },
        estimator=estimator,
        options=options,
        ci_kind=rule.drawn if sizes or given else _common(kind, rule.kind),
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
            index, variable = _reordered(Same(made.to_pandas_index()), Same(order), dim, held.dtype)
            coords[dim], indexes[dim] = variable.copy(deep=False), index
            coords[dim].attrs, coords[dim].encoding = held.attrs, held.encoding
    return coords, indexes


def _reordered(index: Same, order: Same, dim: str, dtype: np.dtype[Any]) -> tuple[xr.Index, xr.Variable]:
    """Index and variable in another order, which are kept where `cje_core.data.arrays.unpack` keeps the order."""
    return (_kept if len(order.held) <= KEPT else _reorder)(index, order, dim, dtype)


def _reorder(index: Same, order: Same, dim: str, dtype: np.dtype[Any]) -> tuple[xr.Index, xr.Variable]:
    found = PandasIndex(index.held.take(order.held), dim, dtype)
    return found, found.create_variables()[dim]


_kept = lru_cache(maxsize=4)(_reorder)  # prompts and policies of two data sets


def _clusters(rows: Rows) -> npt.NDArray[np.str_]:
    """Name of each prompt's cluster."""
    alone = rows.cluster_names is rows.prompts  # `cje_core.data.arrays.unpack` without declared clusters
    return rows.prompts if alone else rows.cluster_names[rows.cluster]


def _skewness(rows: Rows, order: Sequence[int], influence: FloatArray) -> FloatArray:
    """Skewness of the errors of the policies in their order, of influence values by prompt."""
    if not rows.stands_for.size:
        return error_skewness(cluster_sums(influence, rows.cluster))
    number = np.ones(influence.shape)  # then each prompt is a cluster
    number[np.argsort(order)[rows.policy], rows.prompt] = rows.stands_for
    return error_skewness(influence, number)


def _stacked(arrays: Sequence[FloatArray | None], size: int) -> FloatArray:
    """One row per array, shape (n, size), a view of the only one; NaN where there is none."""
    if len(arrays) == 1 and arrays[0] is not None:
        return arrays[0][None]
    return np.stack([np.full(size, np.nan) if one is None else one for one in arrays])


def _common(kind: npt.NDArray[np.str_], asked: str) -> str:
    """The kind that all intervals are of, ``mixed``, or what was asked for where there is none."""
    seen = sorted(set(kind) - {"none"})
    return "mixed" if len(seen) > 1 else str(seen[0]) if seen else asked


def _check_source(result: PolicyResult) -> None:
    """Raise unless a value says what it rests on."""
    if result.source not in SOURCES or (np.isfinite(result.value) and result.source == "none"):
        raise ValueError(
            f"the value by route {result.route!r} has source {result.source!r}; say what it rests on, by one of "
            f"{', '.join(SOURCES[:-1])}"
        )


def name_missing_spread(result: PolicyResult) -> PolicyResult:
    """Give a value whose standard error is NaN the status that says why."""
    silent = (
        Status.CONSTANT_LABELS,
        Status.FEW_RESAMPLES,
        Status.FEW_LABELS_POSTERIOR,
        Status.POOR_OVERLAP,  # one response has all the weight
        Status.ILL_CONDITIONED,  # a ratio whose denominator may be 0
    )
    named = result.status.failed or result.status in silent
    if np.isfinite(result.std_error) or named:
        return result
    return result._replace(status=Status.ONE_CLUSTER)
