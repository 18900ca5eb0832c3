"""Smallest detectable difference over sample size and label share, with iso-cost lines."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.figures.style import OKABE_ITO, Axes, new_axes

MOVES = 1.1  # ratio of the ends below which contours would all carry one number


def mde_contours(
    surface: xr.Dataset, *, optimum: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Contours of the minimum detectable effect (solid) and of cost (dashed); the planned (n, fraction) is a star.

    Draws a result of `cje_core.planning.forecast.mde_surface`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.planning.components import variance_components
    >>> from cje_core.planning.forecast import mde_surface
    >>> pilot = variance_components(data).sel(policy="better")
    >>> surface = mde_surface(pilot, [200, 400, 800], [0.1, 0.2, 0.4], cost_judge=0.01, cost_oracle=1)
    >>> mde_contours(surface, ax=Figure().subplots()).get_xlabel()
    'prompts n (log scale)'
    """
    axes = new_axes(ax, 5.6, 4.2)
    axes.set(
        xscale="log", yscale="log"
    )  # first: labels cut their room out of the lines as they are then drawn
    n, fraction = surface["n"].values.astype(float), surface["fraction"].values.astype(float)
    mde = surface["mde"].transpose("fraction", "n").values
    found = mde[np.isfinite(mde)]
    if len(found) and found.max() < MOVES * found.min():
        low, high = (f"{end:.3g}" for end in (found.min(), found.max()))
        size = low if low == high else f"{low} to {high}"
        axes.text(
            0.5, 0.06, f"{size} at every design shown: neither\nprompts nor labels move it much",
            transform=axes.transAxes, ha="center", fontsize=8, bbox={"fc": "white", "ec": "none", "alpha": 0.8},
        )  # fmt: skip
    elif len(found):  # else no design here detects anything on the scale
        levels = np.unique([float(f"{level:.3g}") for level in np.geomspace(found.min(), found.max(), 9)])
        axes.contourf(n, fraction, mde, levels=levels, cmap="Blues_r", alpha=0.35, extend="both")
        lines = axes.contour(n, fraction, mde, levels=levels, colors="black", linewidths=0.9)
        axes.clabel(lines, fmt="%.3g", fontsize=7)
    cost = surface["cost"].transpose("fraction", "n").values
    steps = np.geomspace(np.nanmin(cost), np.nanmax(cost), 6)[1:-1]
    grid = n, fraction, cost
    costs = axes.contour(*grid, levels=steps, colors=OKABE_ITO[1], linewidths=1.1, linestyles="--")
    axes.clabel(costs, fmt=lambda cost: f"cost {float(f'{cost:.3g}'):,.10g}", fontsize=7)
    if optimum is not None:
        axes.plot(*optimum, "*", ms=14, mfc="white", mec="black", zorder=4)
    axes.set(xticks=_ticks(n), yticks=_ticks(fraction))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set(xlabel="prompts n (log scale)", ylabel="labelled share m / n (log scale)")
    power = 100 * float(surface.attrs["power"])
    star = "" if optimum is None else "; star: the plan"
    axes.set_title(
        f"Minimum detectable difference at {power:g}% power;\ndashed: equal cost{star}", loc="left"
    )
    return axes


def _ticks(values: npt.NDArray[np.float64]) -> list[float]:
    """1, 2 and 5 times the powers of ten within the range."""
    powers = 10.0 ** np.arange(np.floor(np.log10(values.min())), np.ceil(np.log10(values.max())) + 1)
    ticks = np.outer(powers, [1, 2, 5]).ravel()
    return [float(t) for t in ticks if values.min() <= t <= values.max()]
