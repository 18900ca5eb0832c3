"""Nested loop plot: one measure of every method over all cells in a row, the levels of the factors as steps beneath.

A cell is a combination of the factors' levels and one policy, which is the last step; nothing is averaged.

Ruecker and Schwarzer (2014), "Presenting simulation results in a nested loop plot". The measure is coverage of
the intervals printed where there are intervals, with the shares refused (hollow) and failed (cross) below it, and RMSE
where there are none.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, looks, new_panels
from studies.engine.measures import REFUSALS
from studies.report.data import axes_of, measured, need, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(ds: xr.Dataset) -> "Figure":
    """Steps with bars of 95% Monte Carlo bounds; the first factor changes slowest."""
    need("nested_loop", ds)
    covered = "interval" in ds and bool(np.isfinite(ds["interval"]).any())
    name = "coverage" if covered else "rmse"
    every = measured(ds, [name, *(REFUSALS if covered else ())])
    found = every[every["measure"] == name]
    cells = sorted(set(every["cell"]))
    own = [f for f in axes_of(ds) if ds.sizes[f] > 1]
    height = 3.4 + covered * 1.0 + 0.42 * len(own)
    panels = new_panels(
        3 if covered else 2, 1, (max(6.0, min(0.16 * len(cells) + 2.5, 14)), height), sharex=True,
        height_ratios=(3.2, *([1.0] if covered else []), max(0.42 * len(own), 0.1)),
    )  # fmt: skip
    top, below = panels[0], panels[-1]
    at = {cell: k for k, cell in enumerate(cells)}
    for place, (method, look) in enumerate(looks(ds["method"].values.tolist()).items()):
        rows = found[found["method"] == method]
        if rows.empty:
            continue
        value = np.full(len(cells) + 1, np.nan)
        where = rows["cell"].map(at).to_numpy()
        value[where] = rows["value"]
        value[-1] = value[-2]
        top.step(np.arange(len(cells) + 1), value, where="post", color=look["color"], lw=1.1)
        reach = np.abs(rows[["lower", "upper"]].to_numpy() - rows[["value"]].to_numpy()).T
        beside = 0.5 + 0.7 * ((place + 0.5) / ds.sizes["method"] - 0.5)  # marks of methods side by side
        style = {"fmt": look["marker"], "color": look["color"], "ms": 3, "lw": 0.8}
        top.errorbar(where + beside, rows["value"], reach, label=method, **style)
        for one, mark in zip(REFUSALS if covered else (), ("o", "x"), strict=False):
            silent = every[(every["measure"] == one) & (every["method"] == method) & (every["value"] > 0)]
            at_silent = silent["cell"].map(at).to_numpy() + beside
            panels[1].plot(at_silent, silent["value"], mark, mfc="none", color=look["color"], ms=4)
    if covered:
        top.axhline(float(ds.attrs["ci_prob"]), color=GREY, ls="--", lw=1)
        panels[1].set(ylabel="refused (o)\nfailed (x)", ylim=(-0.04, 1.04))
    top.set(ylabel=name, xlim=(0, len(cells)))
    if name == "rmse":
        top.set_yscale("log")
    _steps(below, ds, cells, own)
    figure = whole_figure(top)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def _steps(ax: "Axes", ds: xr.Dataset, cells: list[int], own: list[str]) -> None:
    """The level of each factor in each cell, as a step line of its own."""
    every = axes_of(ds)
    numbers = np.array(np.unravel_index(cells, [ds.sizes[f] for f in every])) if every else np.empty((0, 0))
    for row, factor in enumerate(own):
        level = numbers[every.index(factor)] / (ds.sizes[factor] - 1)
        y = -row - 0.92 + 0.42 * level
        ax.step(np.arange(len(cells) + 1), [*y, y[-1]], where="post", color="black", lw=0.9)
        text = f"{factor}: {', '.join(map(str, ds[factor].values.tolist()))}"
        ax.text(0, -row, text, fontsize=7, va="top")
    ax.set(ylim=(-len(own) - 0.1, 0.15), xlabel="cells, the last factor fastest")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
