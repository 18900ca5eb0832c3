"""How much of an estimate's variance comes from having learned the calibrator on few labels."""

from typing import Any

import numpy as np
import xarray as xr

from cje_core.figures.style import OKABE_ITO, Axes, legend_above, new_axes, policy_rows
from cje_core.verdict.guide import SHARE_HIGH, SHARE_LOW


def uncertainty_share(estimate: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Share of Var_cal in Var_total per policy (the paper's "uncertainty ring"), of an estimate with
    ``calibration_share``.

    As bars: lengths compare, angles do not. A mean label holds no calibration, whatever its labels cost: it says so.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> from matplotlib.figure import Figure
    >>> uncertainty_share(estimate, ax=Figure().subplots()).get_xlabel().splitlines()[0]
    'share of the variance'
    """
    if "calibration_share" not in estimate:
        raise ValueError("this estimate has no calibration_share; use the direct estimator")
    policies = [str(p) for p in estimate["policy"].values]
    axes = new_axes(ax, 6.2, 1.3 + 0.36 * len(policies))
    policy_rows(axes, policies)
    share = estimate["calibration_share"].values.astype(float)
    at, known = np.arange(len(policies)), np.isfinite(share)
    rows, part = at[known], share[known]
    axes.barh(rows, part, height=0.55, color=OKABE_ITO[0], label="calibration", zorder=2)
    hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": OKABE_ITO[0], "hatch": "///", "lw": 0.8}
    axes.barh(rows, 1 - part, left=part, height=0.55, label="evaluation", zorder=2, **hatched)
    for row in at.tolist():
        whole = ", all labelled" if str(estimate["route"].values[row]) == "label_mean" else ""
        place, words = (1.01, f"{share[row]:.0%}{whole}") if known[row] else (0.01, "unknown")
        axes.text(place, row, words, va="center", fontsize=8)
    for threshold in (SHARE_LOW, SHARE_HIGH):
        axes.axvline(threshold, color="black", lw=1, ls="--", zorder=3)
    advice = f"left of {SHARE_LOW:.0%}: buy prompts, right of {SHARE_HIGH:.0%}: buy labels"
    axes.set(xlim=(0, 1), xlabel=f"share of the variance\n{advice}")
    legend_above(axes, ncols=2)
    return axes
