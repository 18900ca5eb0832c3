"""Where logger and target put their responses on the judge's scale, and how large the weights are there."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, figure_of, new_axes


def overlap_heatmap(
    weights: xr.Dataset, policy: str, *, affinity: float | None = None, ax: Axes | None = None
) -> Axes:
    """Density of S under logger and target (two rows), with the mean log weight of each bin drawn over them.

    Draws a result of `cje_core.offpolicy.weight_map.weight_map`; the judge-space affinity A_B stands in the title.
    """
    axes = new_axes(ax, 5.6, 2.9)
    at = weights.sel(policy=policy)
    middle = weights["bin"].values
    half = (middle[1] - middle[0]) / 2 if len(middle) > 1 else 0.5
    density = np.vstack([weights["density_logged"].values, at["density_target"].values])
    at_bins = (middle[0] - half, middle[-1] + half, 1.5, -0.5)
    image = axes.imshow(density, "Blues", vmin=0.0, aspect="auto", extent=at_bins, interpolation="nearest")
    axes.set_yticks([0, 1], ["logger", "target"])
    axes.axhline(0.5, color="white", lw=2)
    axes.tick_params(axis="y", length=0)
    over = axes.twinx()
    level = at["log10_weight_mean"].values
    known = np.isfinite(level)
    over.plot(middle[known], level[known], "s-", ms=3.5, lw=1.2, color=OKABE_ITO[1], mec="white", mew=0.5)
    over.axhline(0.0, color=GREY, lw=0.8, ls="--")
    over.set_ylabel("mean log10 W (squares)")
    over.spines[["top"]].set_visible(False)
    axes.set_xlabel("judge score S")
    named = "" if affinity is None else f": affinity A_B = {affinity:.3f}"
    axes.set_title(f"{policy}{named}", loc="left", parse_math=False)
    figure_of(axes).colorbar(image, ax=[axes, over], label="share of responses", shrink=0.85, pad=0.14)
    return axes
