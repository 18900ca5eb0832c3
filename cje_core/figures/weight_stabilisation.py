"""Raw importance weights against the stabilised ones, by judge score."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes


def weight_stabilisation(weights: xr.Dataset, policy: str, *, ax: Axes | None = None) -> Axes:
    """Raw mean-one weights (dots, log scale) and stabilised weights (line) of one policy against the judge score.

    Draws a result of `cje_core.offpolicy.weight_map.weight_map`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.offpolicy.weight_map import weight_map
    >>> weight_stabilisation(weight_map(data), "clone", ax=Figure().subplots()).get_xlabel()
    'judge score S'
    """
    axes = new_axes(ax, 4.8, 3.4)
    at = weights.sel(policy=policy)
    score, log_weight, stable = (at[name].values for name in ("score", "log10_weight", "stabilised"))
    used = np.isfinite(log_weight)
    axes.axhline(0.0, color=GREY, lw=0.8, ls="--", zorder=1)
    if used.any():
        raw = score[used], log_weight[used]
        axes.plot(*raw, ".", ms=3, alpha=0.35, color=OKABE_ITO[0], label="raw", zorder=2)
    order = np.argsort(score, kind="stable")
    order = order[np.isfinite(stable[order])]
    if len(order):
        level = np.log10(np.maximum(stable[order], 1e-12))
        axes.plot(score[order], level, "-", lw=1.8, color="black", label="stabilised", zorder=3)
    axes.set(xlabel="judge score S", ylabel="log10 of the weight (mean one)")
    before, after = float(at["ess_fraction"]), float(at["ess_fraction_stabilised"])
    axes.set_title(f"{policy}: ESS/n {before:.1%} raw, {after:.0%} stabilised", loc="left", parse_math=False)
    axes.legend(frameon=False, fontsize=8)
    return axes
