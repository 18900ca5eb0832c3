"""Standard errors of the values that stand where prompts came in time and depend on each other.

The default standard error takes prompts (or clusters) as independent. Here each value's influence is put in order of
time and its error found by the stationary bootstrap (`cje_core.inference.serial.stationary_bootstrap_se`, the
paper's "Dependence-robust SEs"), all policies in the same order; clusters, where the data have them, are the units and
stand where their first prompt does. The values do not change, and degrees of freedom and the oracle scale limit the
interval as before; the default error stays the one behind verdicts and differences.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.data import DataError
from cje_core.inference.estimate import CI_BOUND, into_scale, wald
from cje_core.inference.serial import stationary_bootstrap_se
from cje_core.inference.sums import sum_by
from cje_core.io.fields import Source
from cje_core.io.tables import beside
from cje_core.workflow.analysis import Analysis


def prompt_times(
    path: Source,
    prompts: npt.NDArray[np.str_],
    field: str | None = None,
    *,
    probes: Source | None = None,
) -> npt.NDArray[np.intp]:
    """Place in time of each prompt, 0 for the first: by a field of its rows, or by the order of the rows.

    Parameters
    ----------
    path, probes : path or DataFrame
        As in `cje_core.io.files.read`.
    prompts : array of str, shape (n,)
    field : str, optional
        Numbers, or text that sorts; a prompt stands where its first response does. Default: the order of the rows.

    Raises
    ------
    DataError
        Where a prompt has no row with the field.
    """
    tables = [beside(path, field or "prompt_id", required=field is not None)]
    if probes is not None and not np.isin(prompts, tables[0]["prompt_id"].to_numpy(dtype=str)).all():
        tables.append(beside(probes, field or "prompt_id", suffixes=("_probe", "_responses")))
    table = pd.concat(tables, ignore_index=True)
    if field is None:
        first = {name: k for k, name in enumerate(dict.fromkeys(table["prompt_id"]))}
    else:
        if len({type(v) for v in table[field]}) > 1:
            raise DataError(
                f"field {field!r} is text in one file and a number in another; write it alike in both"
            )
        first = table.groupby("prompt_id")[field].agg(lambda values: min(values)).to_dict()
    for name in prompts.tolist():
        if name not in first:
            raise DataError(f"prompt {name!r} has no {field or 'row'} in any row; add it")
    _, place = np.unique(np.array([first[name] for name in prompts.tolist()]), return_inverse=True)
    return place


def serial_errors(value: xr.Dataset, place: npt.ArrayLike, *, mean_block: float | None = None) -> xr.Dataset:
    """Standard errors of values whose prompts depend on their neighbours in time.

    Parameters
    ----------
    value : xr.Dataset
        An estimate with ``influence`` over ``policy, prompt``.
    place : array, shape (prompts,)
        What puts the prompts of `value` in order; equal ones keep the order of the prompts.
    mean_block : float, optional
        Mean length of a block, in prompts (or clusters), at least 1; by default the one around which the standard
        error varies least (minimum volatility).

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``std_error`` (the default), ``std_error_serial``, ``mean_block``, ``interval_serial``; NaN for
        a value without influence. Attribute ``units``: how many there are in time.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> walk = np.convolve(rng.normal(size=2019), np.ones(20) / 20, "valid")  # neighbours share their noise
    >>> value = xr.Dataset(
    ...     {"estimate": ("policy", [walk.mean()]), "std_error": ("policy", [walk.std() / 2000**0.5]),
    ...      "df": ("policy", [1999.0]), "influence": (("policy", "prompt"), [walk - walk.mean()])},
    ...     {"policy": ["a"], "prompt": np.arange(2000), "cluster": ("prompt", np.arange(2000))}, {"ci_prob": 0.95})
    >>> found = serial_errors(value, np.arange(2000))
    >>> bool(found.std_error_serial[0] > 3 * found.std_error[0])
    True
    """
    when = np.asarray(place)
    if when.shape != (value.sizes["prompt"],):
        raise ValueError(
            f"place has shape {when.shape}; it needs one entry for each of the {value.sizes['prompt']} prompts"
        )
    order = np.argsort(when, kind="stable")
    _, first, code = np.unique(value["cluster"].values[order], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[code]  # clusters in order of their first prompt
    n_units = len(first)
    if mean_block is not None and not 1 <= mean_block <= n_units:
        raise DataError(
            f"block={mean_block:g}: it must lie between 1 and the {n_units} prompts or clusters in time"
        )
    error, block = np.full((2, value.sizes["policy"]), np.nan)
    for p, influence in enumerate(value["influence"].values):
        if not np.isfinite(influence).all():
            continue
        sums = sum_by(rank, influence[order], n_units) * (n_units / len(order))
        found = stationary_bootstrap_se(sums, mean_block=mean_block)
        error[p], block[p] = found.std_error, found.mean_block
    estimate = value["estimate"].values
    interval = wald(estimate, error, value["df"].values, float(value.attrs["ci_prob"]))
    if "oracle_range" in value.attrs:
        interval = into_scale(interval, estimate, tuple(value.attrs["oracle_range"]))
    return xr.Dataset(
        {
            "std_error": ("policy", value["std_error"].values),
            "std_error_serial": ("policy", error),
            "mean_block": ("policy", block),
            "interval_serial": (("policy", "ci_bound"), interval),
        },
        coords={"policy": value["policy"].values, "ci_bound": CI_BOUND},
        attrs={"units": n_units, "ci_prob": float(value.attrs["ci_prob"])},
    )


def with_serial_errors(
    analysis: Analysis,
    path: Source,
    *,
    field: str | None = None,
    block: str | float = "auto",
    probes: Source | None = None,
) -> Analysis:
    """The analysis with the standard errors of its values under serial dependence.

    Parameters
    ----------
    analysis : Analysis
    path, probes, field
        As in `prompt_times`.
    block : float or "auto"
        As ``mean_block`` of `serial_errors`; ``auto`` sweeps.

    Raises
    ------
    DataError
        For a block that is no length, a prompt without a place in time, or values without influence (posteriors).

    Examples
    --------
    >>> import cje_sim
    >>> from cje_core.workflow.analyze import analyze
    >>> rows = cje_sim.simulate("well_specified", n=200, oracle_fraction=0.5, rng=1)
    >>> table = rows[["judge", "oracle"]].to_dataframe().reset_index().rename(
    ...     columns={"prompt": "prompt_id", "judge": "judge_score", "oracle": "oracle_label"})
    >>> found = with_serial_errors(analyze(table), table)
    >>> type(found).__name__
    'Analysis'
    """
    try:
        length = None if block == "auto" else float(block)
    except ValueError:
        raise DataError(f"block={block!r}: give a mean length of at least 1, or auto") from None
    if "influence" not in analysis.value:
        raise DataError(
            f"block={block!r}: {analysis.primary} has no influence values to put in blocks; leave it out"
        )
    place = prompt_times(path, analysis.value["prompt"].values.astype(str), field, probes=probes)
    found = serial_errors(analysis.value, place, mean_block=length)
    found.attrs["order"] = field or "the rows"
    return replace(analysis, serial=found)
