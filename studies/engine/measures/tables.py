"""Measures as tables: what studies and the report show, each number beside its Monte Carlo standard error."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

import pandas as pd
import xarray as xr

from studies.engine.measures.performance import performance
from studies.engine.study import StudyError

REFUSALS = ("refused", "failed")  # shares that stand beside every coverage
Columns = Mapping[str, xr.DataArray]
EMPTY: Columns = MappingProxyType({})


def long_table(measured: xr.Dataset) -> pd.DataFrame:
    """Performance as rows ``<factors>, method[, policy], measure, value, mcse, lower, upper``, for CSV.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> from studies.engine.measures import performance
    >>> long_table(performance(results, measures=["coverage"]))[["measure", "value"]].values.tolist()
    [['coverage', 0.75]]
    """
    dims = [*(d for d in measured["value"].dims if d != "measure"), "measure"]
    parts = measured[["value", "mcse"]].assign(
        lower=measured["bound"].sel(ci_bound="lower", drop=True),
        upper=measured["bound"].sel(ci_bound="upper", drop=True),
    )
    frame = parts.to_dataframe(dim_order=dims).reset_index()
    ran = measured["replicates"].to_dataframe().reset_index()
    return frame.merge(ran[ran["replicates"] > 0]).reset_index(drop=True)


def that_ran(columns: xr.Dataset, dims: Sequence[Hashable]) -> pd.DataFrame:
    """Rows of a table where the column ``ran`` is positive."""
    frame = columns.to_dataframe(dim_order=list(dims))
    return frame[frame.pop("ran") > 0].reset_index()


def with_refusals(measures: Sequence[str]) -> list[str]:
    """Return the measures with `REFUSALS` after the first coverage, where they are not asked for anyway.

    Examples
    --------
    >>> with_refusals(["bias", "coverage", "width"])
    ['bias', 'coverage', 'refused', 'failed', 'width']
    """
    names = list(dict.fromkeys(measures))
    at = [k for k, name in enumerate(names) if name.startswith("coverage")]
    if not at:
        return names
    head, tail = names[: at[0] + 1], names[at[0] + 1 :]
    return [*(n for n in head if n not in REFUSALS), *REFUSALS, *(n for n in tail if n not in REFUSALS)]


def summary_table(ds: xr.Dataset, measures: Sequence[str], *, pool: bool = True) -> pd.DataFrame:
    """One row per cell, method and policy: ``<measure>`` and ``<measure>_mcse`` columns.

    With `pool` a row is the average over the policies that its column ``policy`` names; values and differences stay
    apart (`studies.engine.measures.performance.pooled_parts`). Coverage never stands alone: ``refused`` and ``failed``
    follow it, the shares of runs that printed no interval. The report prints a pair of columns as "value (MCSE)".

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> summary_table(results, ["bias"])[["n", "method", "bias", "bias_mcse"]].round(3).values.tolist()
    [[100, 'direct', 0.05, 0.065]]
    """
    names = with_refusals(measures)
    measured = performance(ds, measures=names, pool=pool)
    columns = {"ran": measured["replicates"]}
    for name in names:
        one = measured.sel(measure=name, drop=True)
        columns |= {name: one["value"], f"{name}_mcse": one["mcse"]}
    return that_ran(xr.Dataset(columns), measured["replicates"].dims)


def cell_table(
    ds: xr.Dataset, methods: Iterable[str], measure: str, before: Columns = EMPTY, after: Columns = EMPTY
) -> pd.DataFrame:
    """One row per cell that was run: `measure` of each method and its MCSE, between columns of a study's own.

    It is for results of one policy: others raise, since a row would not say what it averages.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> cell_table(results, ["direct"], "coverage")[["n", "direct_coverage"]].values.tolist()
    [[100.0, 0.75]]
    """
    if ds.sizes["policy"] != 1:
        raise StudyError(
            f"a cell table is of one policy; these results have {', '.join(ds['policy'].values)}"
        )
    measured = performance(ds, measures=[measure]).sel(measure=measure, drop=True).isel(policy=0, drop=True)
    columns = dict(before)
    for method in methods:
        one = measured.sel({"method": method}, drop=True)
        columns |= {f"{method}_{measure}": one["value"], f"{method}_{measure}_mcse": one["mcse"]}
    factors = [d for d in measured["replicates"].dims if d != "method"]
    return that_ran(xr.Dataset({**columns, **after, "ran": measured["replicates"].max("method")}), factors)


def by_estimand(
    parts: Iterable[tuple[str, xr.Dataset]], measure: Callable[[xr.Dataset], pd.DataFrame]
) -> pd.DataFrame:
    """One table of several (estimand, part of the results), told apart by its second column ``estimand``.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> table = by_estimand([("all", results)], lambda part: summary_table(part, ["coverage"]))
    >>> table[["n", "estimand"]].values.tolist()
    [[100, 'all']]
    """
    frames = []
    for estimand, part in parts:
        frames.append(measure(part))
        frames[-1].insert(1, "estimand", estimand)
    return pd.concat(frames, ignore_index=True)


def side_by_side(
    measures: pd.DataFrame,
    cell: Sequence[str],
    name: str,
    methods: Sequence[str],
    *,
    first: Sequence[str] = (),
) -> pd.DataFrame:
    """One row per cell (its columns `cell`), one pair of columns per method: the measure `name` and its MCSE.

    The policies that a row averages are named after the cell. Beside the coverage of a method stand the shares of runs
    that were refused or failed, ``<method>_refused`` and ``<method>_failed``, wherever a run of any cell was.

    Parameters
    ----------
    measures : pd.DataFrame
        As from `summary_table`: a row per cell and method.
    cell : sequence of str
        Columns that tell the cells apart.
    name : str
    methods : sequence of str
        Columns are in this order; those that `measures` lacks are left out.
    first : sequence of str
        Methods that come before: a page or a terminal has room for few.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> table = side_by_side(summary_table(results, ["coverage"]), ["n"], "coverage", ["direct"])
    >>> table.columns.tolist()
    ['n', 'policy', 'direct', 'direct_mcse']
    """
    keys = [*cell, *(["policy"] if "policy" in measures and "policy" not in cell else [])]
    beside = [one for one in REFUSALS if name.startswith("coverage") and one in measures]
    shown = [f"{one}{end}" for one in (name, *beside) for end in ("", "_mcse")]
    wide = measures.pivot(index=keys, columns="method", values=shown)
    order = measures[keys].drop_duplicates().set_index(keys).index  # a pivot sorts
    wide = wide.reindex(order)
    ordered = [*first, *(m for m in methods if m not in first)]
    columns: dict[str, pd.Series[float]] = {}
    for method in (m for m in ordered if (name, m) in wide):
        for one in (name, *(b for b in beside if (wide[b, method] > 0).any())):
            head = method if one == name else f"{method}_{one}"
            columns |= {f"{head}{end}": wide[f"{one}{end}", method] for end in ("", "_mcse")}
    frame = pd.DataFrame(columns).reset_index()
    frame.attrs["measure"] = name
    return frame
