"""Reliability of the calibrated reward, and the calibration curve itself."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes


def reliability(bins: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Mean oracle label against mean out-of-fold reward per bin of the judge score, with intervals and the diagonal.

    Draws a table of `cje_core.calibration.reliability.reliability`.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.calibration import reliability as table
    >>> reliability(table.reliability(data), ax=Figure().subplots()).get_xlabel()
    'mean calibrated reward R = f(Z), out of fold'
    """
    axes = new_axes(ax, 4.2, 4.0)
    reward, oracle = bins["reward_mean"].values, bins["oracle_mean"].values
    bound = bins["interval"].transpose("bin", "ci_bound").values
    ends = [np.nanmin([reward.min(), np.nanmin(bound)]), np.nanmax([reward.max(), np.nanmax(bound)])]
    axes.plot(ends, ends, color=GREY, lw=1, ls="--", zorder=1)
    error = np.abs(bound - oracle[:, None]).T
    axes.errorbar(reward, oracle, error, fmt="none", ecolor=OKABE_ITO[0], lw=1.4, capsize=2, zorder=2)
    size = 12 + 110 * bins["n"].values / bins["n"].values.max()
    axes.scatter(reward, oracle, s=size, facecolor="white", edgecolor=OKABE_ITO[0], lw=1.4, zorder=3)
    axes.set(
        xlabel="mean calibrated reward R = f(Z), out of fold",
        ylabel=f"mean oracle label, {100 * bins.attrs['ci_prob']:g}% interval",
    )
    verb = "cover" if bins.attrs["covers_diagonal"] else "leave"
    axes.set_title(
        f"{bins.attrs['mode'].replace('_', '-')}: RMSE {bins.attrs['oof_rmse']:.3f};\n"
        f"simultaneous (Bonferroni) intervals {verb} the diagonal",
        loc="left",
    )
    return axes
