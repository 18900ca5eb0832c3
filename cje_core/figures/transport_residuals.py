"""Mean residuals on probe labels against the declared margin."""

import math

import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes, notes_beside, policy_rows

LOOK = {  # verdict: colour, marker, face
    "PASS": (OKABE_ITO[2], "o", OKABE_ITO[2]),
    "INCONCLUSIVE": (OKABE_ITO[0], "s", "white"),
    "FAIL": (OKABE_ITO[1], "X", OKABE_ITO[1]),
    "NOT_CHECKED": (GREY, "o", "white"),
}


def transport_residuals(audit: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Mean residual E[Y - f(Z)] of each policy with its interval; the margin of the equivalence test is shaded.

    Draws a result of `cje_core.transport.audit.audit`. The bar is the interval that decides, given f; the thin line
    adds the noise of the labels that taught f.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("transport_shift", n=300, oracle_fraction=0.5, n_probes=60, rng=1)
    >>> from matplotlib.figure import Figure
    >>> from cje_core.transport.audit import audit
    >>> transport_residuals(audit(data), ax=Figure().subplots()).get_xlabel().splitlines()[0]
    'mean residual of probes, Y - f(Z), with 95% interval'
    """
    policies = [str(p) for p in audit["policy"].values]
    axes = new_axes(ax, 6.2, 1.3 + 0.42 * len(policies))
    margin = float(audit.attrs["margin"])
    policy_rows(axes, policies)
    axes.axvspan(-margin, margin, color="#009E73", alpha=0.13, lw=0, zorder=1)
    axes.axvline(0.0, color=GREY, lw=0.8, zorder=1)
    notes = []
    for row, policy in enumerate(policies):
        at = audit.sel(policy=policy)
        verdict, residual = str(at["verdict"].item()), float(at["residual"])
        colour, marker, face = LOOK[verdict]
        shown = verdict.lower().replace("_", " ") if verdict != "FAIL" else "FAIL"
        notes.append(f"{shown} ({int(at['n_probes'])} probes)")
        if math.isfinite(residual):
            axes.plot(at["interval_with_fit"].values, [row, row], color=colour, lw=0.7, zorder=2)
            axes.plot(at["interval"].values, [row, row], color=colour, lw=2.2, zorder=2)
            axes.plot(residual, row, marker, mfc=face, mec=colour, mew=1.3, ms=6, zorder=3)
    notes_beside(axes, range(len(policies)), notes, 8)
    prob = 100 * float(audit.attrs["ci_prob"])
    axes.set_xlabel(
        f"mean residual of probes, Y - f(Z), with {prob:g}% interval\n"
        f"(thin: with the calibrator's own error); shaded: margin ±{margin:g}"
    )
    return axes
