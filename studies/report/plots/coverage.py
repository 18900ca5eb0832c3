"""Coverage of every cell with exact bounds, beside the shares of its runs that were refused or failed.

A cell is a combination of the factors' levels and one policy or difference; nothing is averaged. Points are coverages
of the intervals printed, with exact (Clopper-Pearson) 95% Monte Carlo bounds; the band holds a simulated coverage with
probability 95% if the true one is nominal: the central binomial quantiles at the intervals printed. A hollow mark is
the share refused an interval by rule, a cross the share that failed.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy import stats

from cje_core.figures.style import GREY, looks, new_panels, policy_rows
from studies.engine.measures import REFUSALS
from studies.report.data import cell_names, cells_are, measured, need, whole_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 36  # rows that can be read; of more cells the worst are shown


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by method, rows by cell."""
    need("coverage", ds, "interval")
    every = measured(ds, ["coverage", *REFUSALS])
    found = every[(every["measure"] == "coverage") & np.isfinite(every["value"])]
    level = float(ds.attrs["ci_prob"])
    worst = (found["value"] - level).abs().groupby(found["cell"]).sum().sort_values(ascending=False)
    cells = sorted(worst.index[:MOST])
    names = cell_names(ds)
    methods = [m for m in ds["method"].values.tolist() if m in set(found["method"])]
    longest = max(len(names[cell]) for cell in cells)
    size = (1.7 * len(methods) + 0.075 * longest + 0.6, 1.4 + 0.19 * len(cells))
    panels = new_panels(1, len(methods), size, sharey=True, squeeze=False)[0]
    style = looks(ds["method"].values.tolist())
    for ax, method in zip(panels, methods, strict=True):
        policy_rows(ax, [names[cell] for cell in cells])
        ax.tick_params(axis="y", labelsize=7)
        mine = found[(found["method"] == method) & found["cell"].isin(cells)]
        y = np.array([cells.index(cell) for cell in mine["cell"]])
        beside = {
            name: every[(every["measure"] == name) & (every["method"] == method) & every["cell"].isin(cells)]
            for name in REFUSALS
        }
        silent = sum(part.set_index("cell")["value"] for part in beside.values())
        printed = np.rint(mine["replicates"] * (1 - silent.reindex(mine["cell"]).to_numpy()))
        low, high = (stats.binom.ppf(q, printed, level) / printed for q in (0.025, 0.975))
        ax.barh(y, high - low, left=low, height=0.9, color=GREY, alpha=0.25)
        ax.axvline(level, color=GREY, ls="--", lw=1)
        reach = np.abs(mine[["lower", "upper"]].to_numpy() - mine[["value"]].to_numpy()).T
        ax.errorbar(mine["value"], y, xerr=reach, fmt=style[method]["marker"], color=style[method]["color"],
                    ms=3.5, lw=1)  # fmt: skip
        for (name, part), mark in zip(beside.items(), ("o", "x"), strict=True):
            some = part[part["value"] > 0]
            at = [cells.index(cell) for cell in some["cell"]]
            ax.plot(some["value"], at, mark, ms=3.5, mfc="none", color="black", lw=0, label=name)
        ax.set(xlabel="coverage", xlim=(-0.02, 1.02))
        ax.set_title(method, fontsize=8)
    panels[0].set_ylabel(cells_are(ds), fontsize=8)
    figure = whole_figure(panels[0])
    left_out = len(worst) - len(cells)
    more = f"; the {len(cells)} cells furthest from it, of {len(worst)}" if left_out else ""
    words = (
        "coverage of the intervals printed; bars: exact 95% bounds; band: 95% of simulated coverages if it is "
        f"{level:g};\n"
        f"hollow: share of runs refused; cross: failed{more}"
    )
    figure.suptitle(words, fontsize=8)
    return figure
