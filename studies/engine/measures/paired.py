"""Methods against each other on the same data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.checks import BoolArray
from studies.engine.measures.bounds import flat_error
from studies.engine.measures.performance import known, lay_out, one_measure, only, pooled_parts
from studies.engine.measures.replicates import REGISTRY, Part, Replicates
from studies.engine.measures.tables import that_ran

PAIRED = ("bias", "coverage", "width", "mse")


def paired_table(
    ds: xr.Dataset,
    reference: str,
    measures: Sequence[str] = PAIRED,
    *,
    ratios: Sequence[str] = (),
    common: bool = False,
) -> pd.DataFrame:
    """Each method against a reference on the same replicates: one row per cell, method and kind of estimand.

    A row is an average over the policies that its column ``policy`` names; values and differences stay apart.

    A replicate's share of the error of a difference is the difference of its shares, so the correlation of two methods
    on the same data is kept: the MCSE is that of a paired comparison. A difference of proportions of which no replicate
    has any, although the two methods do not give the same intervals, has the error of an exact bound
    (`studies.engine.measures.bounds.flat_error`), not 0.

    Parameters
    ----------
    ds : xr.Dataset
        Merged results.
    reference : str
        Method that the others are compared with.
    measures, ratios : sequences of str
        Measures shown as differences, ``<measure>``, and as ratios to the reference's, ``<measure>_ratio``.
    common : bool
        Compare over the replicates in which both methods gave an estimate, so that a method does not look better for
        having refused the hard ones. By default each method's failures count as its measures have them.

    Returns
    -------
    pd.DataFrame
        Factors, ``method``, ``policy``, and columns with their ``_mcse``; NaN where one of the two has no number.

    Examples
    --------
    >>> from studies.engine.measures.toy import four_replicates
    >>> results = four_replicates()
    >>> both = xr.concat([results, results.assign_coords(method=["again"])], "method", data_vars="minimal")
    >>> paired_table(both, "direct", ("coverage",))["method"].tolist()
    ['again']
    """
    parts = [
        _paired_part(part, reference, measures, ratios, common).assign(policy=label)
        for label, part in pooled_parts(ds)
    ]
    frame = pd.concat(parts, ignore_index=True)
    names = [str(name) for name in frame.columns]
    keys = names[: names.index("method") + 1]
    return frame[[*keys, "policy", *(c for c in frame.columns if c not in keys and c != "policy")]]


def _paired_part(
    ds: xr.Dataset, reference: str, measures: Sequence[str], ratios: Sequence[str], common: bool
) -> pd.DataFrame:
    """Rows of one kind of estimand."""
    found, dims = lay_out(ds)
    place = [str(m) for m in ds["method"].values].index(reference)
    mine, other = found, _of_one(found, place)
    if common:
        both = found.ok & other.ok
        mine, other = only(found, both), only(other, both)
    same = _same(mine, other)
    bias = one_measure(mine, "bias", pool=True).value[..., 0]
    # without an estimate there is nothing to compare
    silent = np.isnan(bias) | np.isnan(bias[..., place, None])
    columns = {}
    for name in known((*measures, *ratios)):
        (value, share, n), theirs = (_averaged(part, name) for part in (mine, other))
        value = np.where(silent, np.nan, value)
        if name in measures:
            apart = share - theirs.share
            mcse = np.sqrt((apart**2).sum(axis=0))
            flat = (REGISTRY[name].kind == "proportion") & ~apart.any(axis=0) & ~same
            columns[name] = value - theirs.value, np.where(flat, flat_error(n), mcse)
        if name in ratios:
            ratio = value / np.where(theirs.value > 0, theirs.value, np.nan)
            apart = (share - ratio * theirs.share) * ratio / np.where(value != 0, value, np.nan)
            columns[f"{name}_ratio"] = ratio, np.sqrt((apart**2).sum(axis=0))
    data: dict[str, Any] = {"ran": (dims[:-1], found.ran.sum(axis=0)[..., 0])}
    for name, (value, mcse) in columns.items():
        data |= {
            name: (dims[:-1], value),
            f"{name}_mcse": (dims[:-1], np.where(np.isnan(value), np.nan, mcse)),
        }
    frame = that_ran(xr.Dataset(data, coords={d: ds[d].values for d in dims[:-1]}), dims[:-1])
    return frame[frame["method"] != reference].reset_index(drop=True)


def _averaged(r: Replicates, name: str) -> Part:
    """One measure averaged over policies, without their axis."""
    return Part(*(part[..., 0] for part in one_measure(r, name, pool=True)))


def _of_one(r: Replicates, place: int) -> Replicates:
    """The results of one method in the place of every other's."""
    shape = r.estimate.shape

    def spread_out(array: Any) -> Any:
        # copied: sums over another layout of the same numbers differ in the last digit
        return np.array(np.broadcast_to(array[..., place, None, :], shape))

    interval = np.array(np.broadcast_to(r.interval[..., place, None, :, :], r.interval.shape))
    status = np.broadcast_to(r.status, shape)
    return Replicates(
        spread_out(r.estimate),
        spread_out(r.std_error),
        interval,
        spread_out(r.truth),
        spread_out(r.null),
        spread_out(r.ran),
        r.ci_prob,
        spread_out(status),
    )


def _same(one: Replicates, two: Replicates) -> BoolArray:
    """Whether two methods give the same intervals in every replicate, by cell and method."""
    apart = (one.interval != two.interval) & ~(np.isnan(one.interval) & np.isnan(two.interval))
    return np.asarray(~(apart.any(axis=-1) & one.ran).any(axis=(0, -1)))
