"""Lollipop plot: each measure of each method, the mean over cells with its Monte Carlo bounds, every cell as a dot.

Morris, White and Crowther (2019), section 7. Cells are simulated independently, so the MCSE of a mean over C cells is
the root of the sum of their squared MCSE over C.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, new_panels, policy_rows
from studies.report.data import measured, need, whole_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("bias", "rmse", "se_calibration", "coverage", "width")
MOST = 1e3  # a measure that spans more is drawn on a logarithmic axis


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by measure, rows by method, averages over estimands."""
    need("lollipop", ds)
    found = measured(ds, MEASURES)
    names = [name for name in MEASURES if name in set(found["measure"])]
    methods = [m for m in ds["method"].values.tolist() if m in set(found["method"])]
    size = (2.1 * len(names) + 1.6, 1.2 + 0.38 * len(methods))
    panels = new_panels(1, len(names), size, sharey=True, squeeze=False)[0]
    target = {"bias": 0.0, "se_calibration": 1.0, "coverage": float(ds.attrs["ci_prob"])}
    for ax, name in zip(panels, names, strict=True):
        policy_rows(ax, methods)
        start = target.get(name, 0.0)
        part = found[found["measure"] == name]
        if name in ("rmse", "width") and part["value"].max() > MOST * max(part["value"].min(), 1e-300):
            ax.set_xscale("log")
            start = part["value"][part["value"] > 0].min()
        for row, method in enumerate(methods):
            mine = part[part["method"] == method]
            if mine.empty:
                continue
            mean = float(mine["value"].mean())
            half = 1.959964 * float(np.sqrt((mine["mcse"] ** 2).sum())) / len(mine)
            ax.plot(mine["value"], np.full(len(mine), row), "o", color=GREY, ms=2.5, alpha=0.35, mew=0)
            ax.hlines(row, start, mean, color=OKABE_ITO[0], lw=1)
            top = 1.0 if name == "coverage" else np.inf
            reach = [[half], [min(half, top - mean)]]
            ax.errorbar(mean, row, xerr=reach, fmt="o", color=OKABE_ITO[0], ms=5, capsize=3, lw=1)
        if name in target:
            ax.axvline(target[name], color="black", lw=0.8, ls="--")
        ax.set_xlabel(name)
    figure = whole_figure(panels[0])
    figure.suptitle("mean over cells with 95% Monte Carlo bounds; small dots: cells", fontsize=8)
    return figure
