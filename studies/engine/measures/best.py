"""Calibration of P(best), the stated probability that a policy has the highest value, against which policy is best.

Results hold ``p_best`` over policies (differences have none), NaN where nothing is stated. The outcome of a policy is 1
where it is the best, a share where several are, else 0.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.checks import FloatArray
from studies.engine.measures.bounds import share_error

NAMED = 0.95  # P(best) above which a policy is named the best
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
TIE = 1e-9  # values this near to the highest are equal to it
LAST = ("replicate", "method", "policy")

Kind = Callable[[str], str]  # group of a world


def of_values(ds: xr.Dataset) -> xr.Dataset:
    """Return the results of the policies' values, without the differences."""
    return ds.sel(policy=[p for p in ds["policy"].values if " - " not in str(p)])


def stated(cell: xr.Dataset) -> tuple[FloatArray, FloatArray]:
    """Return P(best) and its outcome in one cell, shape (replicate, method, policy)."""
    one = of_values(cell)
    p = one["p_best"].transpose(*LAST)
    truth = one["truth"].broadcast_like(p).transpose(*LAST).values
    top = truth >= truth.max(axis=-1, keepdims=True) - TIE
    # none is where a method was not run, which states no P(best) either
    return p.values, top / np.maximum(top.sum(axis=-1, keepdims=True), 1)


def best_by_cell(ds: xr.Dataset, reference: str, without: Sequence[str] = ()) -> pd.DataFrame:
    """Return, by cell and method, how P(best) did in the ``runs`` that state it.

    ``named``: share of runs in which a policy has more than `NAMED`, their number ``names``; ``right``: share of these
    in which it is the best; ``brier``: mean of ``sum_p (P_p - outcome_p)^2``, 0 at best and 2 at worst;
    ``brier_apart``: the same less that of the method `reference`, over the runs in which ``both`` state it.
    """
    rows, methods = [], [str(m) for m in ds["method"].values]
    for levels, part in _cells(ds):
        p, outcome = stated(part)
        score = ((p - outcome) ** 2).sum(axis=-1)  # NaN where nothing is stated
        most, at = np.nan_to_num(p).max(axis=-1), np.nan_to_num(p).argmax(axis=-1)[..., None]
        hit = np.take_along_axis(outcome, at, axis=-1)[..., 0]
        for m, name in enumerate(methods):
            runs = np.isfinite(score[:, m])
            if name in without or not runs.any():
                continue
            sure = runs & (most[:, m] > NAMED)
            apart = score[:, m] - score[:, methods.index(reference)]
            shares = _shares(int(runs.sum()), int(sure.sum()), float(hit[sure, m].sum()))
            brier = with_error("brier", *mean_and_error(score[runs, m]))
            both = apart[np.isfinite(apart)]
            rows.append(
                {**levels, "method": name, **shares, **brier, "both": len(both)}
                | with_error("brier_apart", *mean_and_error(both))
            )
    return pd.DataFrame(rows)


def best_by_kind(cells: pd.DataFrame, kind: Kind) -> pd.DataFrame:
    """Pool the rows of `best_by_cell` over the worlds of a kind; every run counts the same."""
    rows = []
    for (group, name), mine in cells.groupby([cells["world"].map(kind), "method"], sort=False):
        right = float((mine["right"] * mine["names"]).sum())
        shares = _shares(int(mine["runs"].sum()), int(mine["names"].sum()), right)
        brier = with_error("brier", *_pooled(mine, "brier", "runs"))
        apart = with_error("brier_apart", *_pooled(mine, "brier_apart", "both"))
        rows.append({"labels of target": group, "method": name, **shares, **brier, **apart})
    return pd.DataFrame(rows)


def reliability(ds: xr.Dataset, methods: Sequence[str], kind: Kind) -> pd.DataFrame:
    """Return, by kind of world and method, how often the policies are best whose P(best) lies in a bin.

    The policies of a replicate are one cluster in the MCSE of the share.
    """
    pieces: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
    for levels, part in _cells(ds):
        pieces.setdefault(kind(levels["world"]), []).append(stated(part))
    rows, names = [], [str(m) for m in ds["method"].values]
    for group, found in pieces.items():
        for name in methods:
            p, outcome = (np.concatenate([one[k][:, names.index(name)] for one in found]) for k in (0, 1))
            for low, high in itertools.pairwise(BINS):
                inside = (p > low) & (p <= high) if low > 0 else (p >= low) & (p <= high)
                n = int(inside.sum())
                if n:
                    share = float(outcome[inside].mean())
                    error = np.sqrt((np.where(inside, outcome - share, 0.0).sum(axis=-1) ** 2).sum()) / n
                    bin_ = {
                        "P(best)": f"{low:g} to {high:g}",
                        "policies": n,
                        "mean P(best)": float(p[inside].mean()),
                    }
                    rows.append(
                        {"labels of target": group, "method": name, **bin_}
                        | with_error("share best", share, error if error > 0 else share_error(share, n))
                    )
    return pd.DataFrame(rows)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Return a mean and its standard error.

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return float(values.mean()) if n else np.nan, error


def _cells(ds: xr.Dataset) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
    factors = [str(d) for d in ds["p_best"].dims if d not in LAST]
    for levels in itertools.product(*(ds[f].values.tolist() for f in factors)):
        cell = dict(zip(factors, levels, strict=True))
        yield cell, ds.sel(cell)


def _shares(runs: int, names: int, right: float) -> dict[str, float]:
    rate = right / names if names else np.nan
    return {
        "runs": runs,
        **with_error("named", names / runs, share_error(names / runs, runs)),
        "names": names,
        **with_error("right", rate, share_error(rate, names) if names > 1 else np.nan),
    }


def with_error(name: str, value: Any, error: Any) -> dict[str, float]:
    """Return the two columns of a number and its MCSE."""
    return {name: float(value), f"{name}_mcse": float(error)}


def _pooled(rows: pd.DataFrame, name: str, size: str) -> tuple[float, float]:
    """Return the mean over the runs of several cells, which have data of their own, and its error."""
    rows = rows[rows[size] > 0]
    if not len(rows):
        return np.nan, np.nan
    share = (rows[size] / rows[size].sum()).to_numpy(float)
    error = np.sqrt((share**2 * rows[f"{name}_mcse"].to_numpy(float) ** 2).sum())
    return float(share @ rows[name].to_numpy(float)), float(error)
