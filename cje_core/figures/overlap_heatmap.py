"""Where logger and target put their responses on the judge's scale, and how large the weights are there."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, figure_of, grid_behind, new_panels


def overlap_heatmap(
    weights: xr.Dataset, policy: str, *, affinity: float | None = None, axes: tuple[Axes, Axes] | None = None
) -> tuple[Axes, Axes]:
    """Two panels over the judge score: density under logger and target, and the mean log weight of each bin.

    Draws a result of `cje_core.offpolicy.weight_map.weight_map`; the judge-space affinity A_B stands in the title.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.offpolicy.weight_map import weight_map
    >>> [panel.get_xlabel() for panel in overlap_heatmap(weight_map(data), "clone", axes=Figure().subplots(1, 2))]
    ['', 'judge score S (bins hold their lower end)']
    """
    if axes is None:
        upper, lower = new_panels(2, 1, (5.6, 3.6), sharex=True, height_ratios=(3, 2))
    else:
        upper, lower = axes
    at = weights.sel(policy=policy)
    middle = weights["bin"].values
    half = (middle[1] - middle[0]) / 2 if len(middle) > 1 else 0.5
    density = np.vstack([weights["density_logged"].values, at["density_target"].values])
    at_bins = (middle[0] - half, middle[-1] + half, 1.5, -0.5)
    image = upper.imshow(density, "Blues", vmin=0.0, aspect="auto", extent=at_bins, interpolation="nearest")
    upper.set_yticks([0, 1], ["logger", "target"])
    upper.axhline(0.5, color="white", lw=2)
    upper.tick_params(axis="y", length=0)
    level = at["log10_weight_mean"].values
    known = np.isfinite(level)
    lower.axhline(0.0, color=GREY, lw=0.8, ls="--")
    lower.plot(middle[known], level[known], "s-", ms=3.5, lw=1.2, color=OKABE_ITO[1], mec="white", mew=0.5)
    lower.set(ylabel="mean log10 W", xlabel="judge score S (bins hold their lower end)")
    grid_behind(lower, "y")
    named = "" if affinity is None else f": affinity A_B = {affinity:.3f}"
    upper.set_title(f"{policy}{named}", loc="left", parse_math=False)
    figure_of(upper).colorbar(image, ax=[upper, lower], label="share of responses", shrink=0.85)
    return upper, lower
