"""Exact values against what was simulated: on the diagonal theory and Monte Carlo agree.

What the study stored as ``theory_<name>`` is held against the variable ``<name>`` of its replicates (mean), and
``theory_std_error``, ``theory_se_<method>`` or ``theory_log_se_<method>`` against the empirical standard error. Bars
are 95% Monte Carlo bounds.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, looks, new_panels
from studies.engine.study import StudyError
from studies.report.data import STANDARD, factors, measured, need, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(ds: xr.Dataset) -> "Figure":
    """A panel for the standard errors and one for each other exact value that was simulated too."""
    need("theory", ds)
    panels = {"standard error": _errors(ds)} | {name: _means(ds, name) for name in _both(ds)}
    panels = {name: rows for name, rows in panels.items() if not rows.empty}
    if not panels:
        raise StudyError(
            "plot theory: these results have no exact value (theory_*) beside one that was simulated"
        )
    axes = new_panels(1, len(panels), (3.9 * len(panels) + 0.4, 3.7), squeeze=False)[0]
    style = looks(ds["method"].values.tolist())
    for ax, (name, rows) in zip(axes, panels.items(), strict=True):
        _one(ax, name, rows, style)
    return whole_figure(axes[0])


def _both(ds: xr.Dataset) -> list[str]:
    """Names that theory and replicates share."""
    names = [str(v) for v in ds.data_vars if v not in STANDARD and f"theory_{v}" in ds]
    return [name for name in names if "replicate" in ds[name].dims]


def _means(ds: xr.Dataset, name: str) -> pd.DataFrame:
    """Mean over replicates, its MCSE and the exact value."""
    drawn = ds[name]
    n = drawn.count("replicate")
    parts = {
        "value": drawn.mean("replicate"),
        "mcse": drawn.std("replicate", ddof=1) / np.sqrt(n),
        "exact": ds[f"theory_{name}"],
    }
    frame = xr.Dataset(parts).to_dataframe().reset_index()
    frame["method"] = frame.get("method", "")
    return frame.dropna(subset=["value", "exact"])


def _errors(ds: xr.Dataset) -> pd.DataFrame:
    """Empirical standard error of each method with an exact one."""
    found = measured(ds, ["empirical_se"])
    rows = []
    for method in dict.fromkeys(found["method"]):
        for name, change in (
            (f"theory_se_{method}", np.asarray),
            (f"theory_log_se_{method}", np.exp),
            ("theory_std_error", np.asarray),
        ):
            if name in ds and set(ds[name].dims) <= set(factors(ds)):
                with np.errstate(over="ignore"):
                    exact = change(
                        ds[name]
                        .broadcast_like(ds["estimate"].isel(replicate=0, method=0, policy=0))
                        .transpose(*factors(ds))
                        .values
                    ).ravel()
                mine = found[found["method"] == method]
                rows.append(mine.assign(exact=exact[mine["cell"].to_numpy() // ds.sizes["policy"]]))
                break
    frame = pd.concat(rows) if rows else pd.DataFrame(columns=["value", "exact"])
    return frame[np.isfinite(frame["exact"].astype(float)) & (frame["exact"] > 0)] if len(frame) else frame


def _one(ax: "Axes", name: str, rows: pd.DataFrame, style: dict[str, dict[str, str]]) -> None:
    positive = bool((rows["exact"] > 0).all() and (rows["value"] > 0).all())
    wide = positive and rows["exact"].max() > 30 * rows["exact"].min()
    for method, mine in rows.groupby("method", sort=False):
        look = style.get(str(method), {"color": OKABE_ITO[0], "marker": "o"})
        ax.errorbar(mine["exact"], mine["value"], 1.959964 * mine["mcse"], fmt=look["marker"], color=look["color"],
                    ms=4, lw=0.8, alpha=0.8, label=str(method) or None)  # fmt: skip
    if wide:
        ax.set(xscale="log", yscale="log")
    ends = [rows["exact"].min(), rows["exact"].max()]
    ax.plot(ends, ends, color=GREY, ls="--", lw=1, zorder=0)
    ax.set(xlabel=f"{name}, exact", ylabel=f"{name}, simulated")
    if rows["method"].nunique() > 1:
        ax.legend(fontsize=7, frameon=False)
