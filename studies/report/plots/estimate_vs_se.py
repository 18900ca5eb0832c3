"""Error of each estimate against its standard error: outside the lines the interval misses on the Normal scale.

Morris, White and Crowther (2019), figure 3. A method whose standard errors follow its errors fans out with the lines;
points far outside at small standard errors are the runs that are wrong and do not know it.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy import stats

from cje_core.figures.style import GREY, OKABE_ITO, new_panels
from studies.report.data import need, replicates, whole_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 4000  # points of a panel; of more every k-th is drawn


def draw(ds: xr.Dataset) -> "Figure":
    """Panels by method, all cells and estimands."""
    need("estimate_vs_se", ds, "std_error")
    error = replicates(ds, "estimate") - replicates(ds, "truth")
    se = replicates(ds, "std_error")
    known = np.isfinite(error) & np.isfinite(se)
    methods = [(k, m) for k, m in enumerate(ds["method"].values.tolist()) if known[:, :, k].any()]
    columns = min(len(methods), 4)
    rows = -(-len(methods) // columns)
    panels = new_panels(rows, columns, (2.6 * columns + 0.5, 2.5 * rows + 0.5), squeeze=False)
    level = float(ds.attrs["ci_prob"])
    z = float(stats.norm.ppf(0.5 + level / 2))
    for ax, (k, method) in zip(panels.ravel(), methods, strict=False):
        use = known[:, :, k]
        x, y = se[:, :, k][use], error[:, :, k][use]
        step = -(-x.size // MOST)
        outside = np.abs(y) > z * x
        for mine, colour, mark in ((~outside, OKABE_ITO[0], "."), (outside, OKABE_ITO[1], "x")):
            ax.plot(
                x[::step][mine[::step]],
                y[::step][mine[::step]],
                mark,
                ms=3,
                color=colour,
                alpha=0.5,
                rasterized=True,
            )
        ends = np.geomspace(x[x > 0].min(), x.max(), 50) if (x > 0).any() else np.array([0.0, 1.0])
        for sign in (-1, 1):
            ax.plot(ends, sign * z * ends, color=GREY, ls="--", lw=1)
        ax.axhline(0, color="black", lw=0.6)
        if (x > 0).all() and x.max() > 20 * x.min():
            ax.set_xscale("log")
        if np.abs(y).max() > 50 * np.median(np.abs(y)):
            ax.set_yscale("symlog", linthresh=float(max(np.median(np.abs(y)), 1e-12)))
        ax.set_title(f"{method}: {outside.mean():.1%} outside", fontsize=8)
    for ax in panels.ravel()[len(methods) :]:
        ax.set_axis_off()
    for ax in panels[:, 0]:
        ax.set_ylabel("estimate - truth")
    for ax in panels.ravel()[max(len(methods) - columns, 0) : len(methods)]:
        ax.set_xlabel("standard error")
    figure = whole_figure(panels[0, 0])
    figure.suptitle(f"dashed: {z:.2f} standard errors ({level:g} Normal)", fontsize=8)
    return figure
