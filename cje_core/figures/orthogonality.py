"""Is the correction of a doubly robust estimate noise or news? Orthogonality score and DM-IPS split."""

import numpy as np
import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, legend_above, policy_panels


def orthogonality(estimate: xr.Dataset, *, axes: tuple[Axes, Axes] | None = None) -> tuple[Axes, Axes]:
    """Left: score with interval, zero drawn; right: direct and importance-weighted parts with intervals.

    Draws a doubly robust estimate, with ``orthogonality``, ``direct_part`` and ``ips_part`` and their intervals.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.estimators import dr_cpo
    >>> panels = orthogonality(dr_cpo.estimate(data), axes=Figure().subplots(1, 2))
    >>> [panel.get_xlabel().splitlines()[0] for panel in panels]
    ['mean of W (Y - q)', 'parts of the estimate, which they add up to']
    """
    missing = {"orthogonality", "direct_part", "ips_part"} - set(estimate.data_vars)
    if missing:
        raise ValueError(f"the estimate lacks {', '.join(sorted(missing))}; use a doubly robust estimator")
    policies = [str(p) for p in estimate["policy"].values]
    left, right = policy_panels(axes, policies, 1.4)
    rows = np.arange(len(policies))
    for panel in (left, right):
        panel.axvline(0.0, color=GREY, lw=1, zorder=1)
    series = (
        (left, "orthogonality", "orthogonality score", 0.0, OKABE_ITO[0], "o"),
        (right, "direct_part", "direct part", -0.14, OKABE_ITO[2], "s"),
        (right, "ips_part", "importance-weighted part", 0.14, OKABE_ITO[1], "^"),
    )
    for panel, name, label, shift, colour, marker in series:
        value = estimate[name].values.astype(float)
        bound = estimate[f"{name}_interval"].transpose("policy", "ci_bound").values
        panel.hlines(rows + shift, bound[:, 0], bound[:, 1], color=colour, lw=1.6, zorder=2)
        panel.plot(value, rows + shift, marker, color=colour, ms=5, label=label, zorder=3)
    for row in rows[~np.isfinite(estimate["orthogonality"].values)]:
        edge = left.get_yaxis_transform()
        left.text(0.02, row, "unknown", va="center", fontsize=8, color=GREY, transform=edge)
    for row, r in enumerate(estimate["part_correlation"].values):
        if np.isfinite(r):
            edge = right.get_yaxis_transform()
            right.text(1.0, row, f"r = {r:+.2f}", va="center", fontsize=8, transform=edge)
    left.set_xlabel("mean of W (Y - q)\n(its interval should cover 0)")
    right.set_xlabel("parts of the estimate, which they add up to\n(oracle scale)")
    legend_above(left, right, ncols=3)
    return left, right
