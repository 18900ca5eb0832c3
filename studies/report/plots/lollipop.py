"""Lollipop plot: each measure of each method, the mean over cells with its Monte Carlo bounds, every cell as a dot.

Morris, White and Crowther (2019), section 7. A dot is a cell: a combination of the factors' levels and one policy.
Means of values and of differences stand apart. Combinations are simulated independently and their policies are not, so
the MCSE of a mean over C dots takes the policies of a combination to move together: the root of the sum, over
combinations, of their squared summed MCSE, over C.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, new_panels, policy_rows
from studies.engine.measures import REFUSALS
from studies.report.data import measured, need, whole_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("bias", "rmse", "se_calibration", "coverage", *REFUSALS, "width")
MOST = 1e3  # a measure that spans more is drawn on a logarithmic axis


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by measure, rows by method and kind of estimand."""
    need("lollipop", ds)
    found = measured(ds, MEASURES)
    found = found[np.isfinite(found["value"])]
    policies = ds.sizes["policy"]
    names = [name for name in MEASURES if name in set(found["measure"])]
    kinds = list(dict.fromkeys(found["kind"]))
    there = set(zip(found["method"], found["kind"], strict=True))
    pairs = [(m, kind) for m in ds["method"].values.tolist() for kind in kinds if (m, kind) in there]
    methods = [m if len(kinds) == 1 else f"{m}, {kind}s" for m, kind in pairs]
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
        for row, (method, kind) in enumerate(pairs):
            mine = part[(part["method"] == method) & (part["kind"] == kind)]
            if mine.empty:
                continue
            mean = float(mine["value"].mean())
            sums = mine["mcse"].groupby(mine["cell"] // policies).sum()
            half = 1.959964 * float(np.sqrt((sums**2).sum())) / len(mine)
            ax.plot(mine["value"], np.full(len(mine), row), "o", color=GREY, ms=2.5, alpha=0.35, mew=0)
            ax.hlines(row, start, mean, color=OKABE_ITO[0], lw=1)
            top = 1.0 if name in ("coverage", *REFUSALS) else np.inf
            reach = [[half], [min(half, top - mean)]]
            ax.errorbar(mean, row, xerr=reach, fmt="o", color=OKABE_ITO[0], ms=5, capsize=3, lw=1)
        if name in target:
            ax.axvline(target[name], color="black", lw=0.8, ls="--")
        ax.set_xlabel(name)
    figure = whole_figure(panels[0])
    words = (
        "mean over cells with 95% Monte Carlo bounds; small dots: cells; coverage of the intervals printed"
    )
    figure.suptitle(words, fontsize=8)
    return figure
