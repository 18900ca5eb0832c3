"""Tables that studies share, beside those of measures: normalised errors, and what became of the runs."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.checks import FloatArray
from cje_core.inference.estimate import Status
from studies.engine.outcome import CRASHED, NOT_RUN


def normalised_errors(ds: xr.Dataset, factor: str) -> pd.DataFrame:
    """Coverage, mean and standard deviation of ``Z = (estimate - truth) / SE``, a row per level of a factor and method.

    Over policies, replicates and the levels of all other factors, where there is a Z. Well-calibrated intervals have
    mean 0 and standard deviation 1. Replicates of two cells are independent and the policies of one are not, so with
    c cells the MCSE is ``sqrt(sum_cells s^2 / R) / c``, s the standard deviation over a cell's R replicates of the
    average over policies: of the indicator, of Z, and of ``((Z - m)^2 - v) / (2 sqrt(v))`` for the root of v.

    Parameters
    ----------
    ds : xr.Dataset
        Merged results; policies are averaged.
    factor : str
    """
    others = [d for d in ds["estimate"].dims if d not in (factor, "method", "policy", "replicate")]
    axes = (factor, "method", *others, "replicate", "policy")
    error = (ds["estimate"] - ds["truth"]).transpose(*axes)
    std_error = ds["std_error"].transpose(*axes).values
    z = error.values / np.where(std_error > 0, std_error, np.nan)
    interval = ds["interval"].transpose(*axes, "ci_bound").values
    truth = (ds["estimate"] - error).transpose(*axes).values
    hit = np.where(np.isfinite(z), (interval[..., 0] <= truth) & (truth <= interval[..., 1]), np.nan)
    shape = (z.shape[0], z.shape[1], -1, *z.shape[-2:])  # cells together
    z, hit = z.reshape(shape), hit.reshape(shape)
    rows = []
    for f, level in enumerate(ds[factor].values):
        for m, method in enumerate(ds["method"].values):
            if np.isfinite(z[f, m]).any():
                found = _row(z[f, m], hit[f, m])
                rows.append({factor: level, "method": str(method), **found})
    names = [f"{name}{end}" for name in ("coverage", "mean_z", "sd_z") for end in ("", "_mcse")]
    return pd.DataFrame(rows, columns=[factor, "method", *names])


def _row(z: FloatArray, hit: FloatArray) -> dict[str, float]:
    """Numbers of one method, arrays over (cell, replicate, policy)."""
    center = float(np.nanmean(z))
    variance = float(np.nanmean((z - center) ** 2))
    spread = variance**0.5
    influence = ((z - center) ** 2 - variance) / (2 * spread) if spread > 0 else z * np.nan
    return {
        "coverage": float(np.nanmean(hit)),
        "coverage_mcse": _mcse(hit),
        "mean_z": center,
        "mean_z_mcse": _mcse(z),
        "sd_z": spread,
        "sd_z_mcse": _mcse(influence),
    }


def _mcse(values: FloatArray) -> float:
    """Monte Carlo standard error of the mean over everything, arrays over (cell, replicate, policy)."""
    there = np.isfinite(values)
    count = there.sum(axis=-1)
    sums = np.where(there, values, 0.0).sum(axis=-1)
    mean = sums / np.where(count > 0, count, np.nan)  # (cell, replicate)
    cells = [row[np.isfinite(row)] for row in mean]
    cells = [row for row in cells if len(row) > 1]
    if not cells:
        return float("nan")
    return float(sum(row.var(ddof=1) / len(row) for row in cells) ** 0.5 / len(cells))


def status_table(parts: Iterable[xr.Dataset]) -> pd.DataFrame:
    """Share of the policies' values whose status is neither OK nor TRANSPORT_ASSUMED, by world, method and status.

    Parameters
    ----------
    parts : iterable of xr.Dataset
        Results of one level of the factor ``world`` each; the share is over policies, replicates and other factors,
        and the runs of one cell and replicate are the unit of its MCSE.
    """
    columns, rows = ["world", "method", "status", "share", "share_mcse"], []
    for part in parts:
        status = part["status"].isel(world=0)
        runs = [d for d in status.dims if d not in ("method", "policy")]
        for method in part["method"].values:
            at = status.sel({"method": method}).stack(run=runs).transpose("run", "policy").values
            at = at[(at != NOT_RUN).all(axis=1)]
            for code in np.unique(at):
                if code not in (Status.OK, Status.TRANSPORT_ASSUMED):
                    name = "exception" if code == CRASHED else Status(int(code)).name.lower()
                    hit = (at == code).mean(axis=1)
                    mcse = hit.std(ddof=1) / len(hit) ** 0.5 if len(hit) > 1 else np.nan
                    rows.append((str(part["world"].item()), str(method), name, hit.mean(), mcse))
    return pd.DataFrame(rows, columns=columns)
