"""Effective sample size before and after stabilisation, the largest weight's share, and the tail index."""

from typing import Any

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, legend_above, policy_panels
from cje_core.verdict.thresholds import BY_NAME

ESS, HILL = BY_NAME["ess"], BY_NAME["hill"]


def ess_tails(
    overlap: xr.Dataset, *, least: float = ESS.good, axes: tuple[Axes, Axes] | None = None
) -> tuple[Axes, Axes]:
    """Two panels, one row per policy: ESS/n as bars with the largest share as a dot; the Hill band.

    Draws a result of `cje_core.offpolicy.overlap.overlap`; `least` is the gate's threshold of ESS/n.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.offpolicy.overlap import overlap
    >>> [panel.get_xlabel().splitlines()[0] for panel in ess_tails(overlap(data), axes=Figure().subplots(1, 2))]
    ['fraction (dashed: gate at 0.30)', 'tail index (dashed: 2, finite variance;']
    """
    policies = [str(p) for p in overlap["policy"].values]
    left, right = policy_panels(axes, policies, 1.5, width_ratios=(3, 2))
    rows = np.arange(len(policies))
    looks: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("ess_fraction", -0.17, {"color": OKABE_ITO[0], "label": "ESS/n, raw"}),
        (
            "ess_fraction_stabilised",
            0.17,
            {"facecolor": "white", "edgecolor": OKABE_ITO[0], "hatch": "///", "label": "ESS/n, stabilised"},
        ),
    )
    for name, shift, look in looks:
        values = overlap[name].values.astype(float)
        known = np.isfinite(values)
        left.barh(rows[known] + shift, values[known], height=0.3, zorder=2, **look)
    share = overlap["max_share"].values.astype(float)
    edged: dict[str, Any] = {"mec": "black", "mew": 0.6}
    left.plot(share, rows, "D", color=OKABE_ITO[1], ms=5, label="largest share", zorder=4, **edged)
    left.axvline(least, color="black", lw=1, ls="--", zorder=3)
    left.set(xlim=(0, max(1.0, 1.05 * least)), xlabel=f"fraction (dashed: gate at {least:.2f})")
    for row, known in enumerate(np.isfinite(overlap["ess_fraction"].values)):
        if not known:
            left.text(0.01, row, "unknown: no log-probabilities", va="center", fontsize=8, color=GREY)
    hill = overlap["hill"].values.astype(float)
    lower, upper = (overlap[f"hill_{end}"].values for end in ("lower", "upper"))
    right.hlines(rows, lower, upper, color=OKABE_ITO[2], lw=5, alpha=0.5, label="quartiles over k", zorder=2)
    right.plot(hill, rows, "o", color=OKABE_ITO[2], label="Hill index, median", zorder=3, **edged)
    for gate, style in ((HILL.critical, ":"), (HILL.good, "--")):
        right.axvline(gate, color="black", lw=1, ls=style, zorder=1)
    right.set(
        xlabel=f"tail index (dashed: {HILL.good:g}, finite variance;\ndotted: {HILL.critical:g}, finite mean)"
    )
    right.set_xlim(left=0)
    legend_above(left, right, ncols=5)
    return left, right
