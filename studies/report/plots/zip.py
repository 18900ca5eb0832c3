"""Zip plot: the intervals of each method in its worst cell, in the order of their z, misses in another colour.

Morris, White and Crowther (2019), figure 4. Where coverage is right the colours change at the nominal level; the
band is the exact 95% Monte Carlo interval of the coverage, with the intervals printed as trials.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, new_panels
from studies.engine.measures import REFUSALS
from studies.report.data import FloatArray, cell_names, measured, need, replicates, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by method: the cell, one policy of one combination of levels, with the lowest coverage."""
    need("zip", ds, "interval")
    every = measured(ds, ["coverage", *REFUSALS])
    found = every[(every["measure"] == "coverage") & np.isfinite(every["value"])]
    silent = every[every["measure"] != "coverage"].set_index(["method", "cell", "measure"])["value"]
    methods = [m for m in ds["method"].values.tolist() if m in set(found["method"])]
    columns = min(len(methods), 4)
    rows = -(-len(methods) // columns)
    panels = new_panels(rows, columns, (2.6 * columns + 0.6, 3.0 * rows + 0.5), squeeze=False, sharey=True)
    parts = {name: replicates(ds, name) for name in ("estimate", "interval", "truth", "status")}
    names, level = cell_names(ds), float(ds.attrs["ci_prob"])
    for ax, method in zip(panels.ravel(), methods, strict=False):
        worst = found.loc[found.loc[found["method"] == method, "value"].idxmin()]
        where = ds["method"].values.tolist().index(method)
        setting, policy = divmod(int(worst["cell"]), ds.sizes["policy"])
        chosen = {name: part[setting, :, where, policy] for name, part in parts.items()}
        _one(ax, **chosen)
        ax.axhspan(worst["lower"], worst["upper"], color=GREY, alpha=0.25, lw=0)
        ax.axhline(level, color=GREY, ls="--", lw=1)
        shares = [f"{one} {silent[method, worst['cell'], one]:.3f}" for one in REFUSALS]
        words = [method, names[worst["cell"]], f"coverage {worst['value']:.3f}", ", ".join(shares)]
        ax.set_title("\n".join(words), fontsize=8)
    for ax in panels.ravel()[len(methods) :]:
        ax.set_axis_off()
    for ax in panels[:, 0]:
        ax.set(ylabel="centile of |z|", ylim=(0, 1))
    for ax in panels.ravel()[max(len(methods) - columns, 0) : len(methods)]:
        ax.set_xlabel("interval - truth")
    figure = whole_figure(panels[0, 0])
    handles = [_line(OKABE_ITO[0]), _line(OKABE_ITO[1]), _line(GREY, "--")]
    words = ["covers", "misses", f"nominal {level:g}; band: exact 95% Monte Carlo bounds"]
    figure.legend(handles, words, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _one(
    ax: "Axes", estimate: FloatArray, interval: FloatArray, truth: FloatArray, status: FloatArray
) -> None:
    """Intervals of one method and cell, arrays (replicate[, bound]); the title has the shares without one."""
    known = np.isfinite(status) & np.isfinite(interval).all(axis=-1) & np.isfinite(estimate)
    low, high = (interval[..., k][known] - truth[known] for k in (0, 1))
    half = np.maximum(high - low, 1e-300) / 2
    order = np.argsort(np.abs(estimate[known] - truth[known]) / half, kind="stable")
    centile = (np.arange(order.size) + 0.5) / max(order.size, 1)
    hit = (low <= 0) & (high >= 0)
    for covers, colour in ((True, OKABE_ITO[0]), (False, OKABE_ITO[1])):
        mine = hit[order] == covers
        ax.hlines(centile[mine], low[order][mine], high[order][mine], color=colour, lw=0.6, rasterized=True)
    ax.axvline(0, color="black", lw=0.8)


def _line(colour: str, style: str = "-") -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, ls=style)
