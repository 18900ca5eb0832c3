"""Values by cohort: each policy's value in each group of prompts, beside the whole's."""

import math

import xarray as xr

from cje_core.figures.style import GREY, OKABE_ITO, Axes, new_axes, notes_beside, policy_rows

LOOK = {  # level: marker, face
    "reported": ("o", OKABE_ITO[0]),
    "assumed": ("o", "white"),
}


def cohorts(table: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Value of each policy in each cohort with its interval; the policy's value over all prompts is a grey line.

    Draws a result of `cje_core.workflow.cohorts.by_cohort`. Filled: the level is reported; hollow: it is assumed; a
    refused one has no mark. At the right the adjusted p-value of the difference from the whole, with a star where the
    table flags it.

    Examples
    --------
    >>> import cje_sim
    >>> from matplotlib.figure import Figure
    >>> from cje_core.workflow.analyze import analyze
    >>> data = cje_sim.simulate("weak_judge", n=200, oracle_fraction=0.5, rng=1)
    >>> data["topic"] = "prompt", ["code", "prose"] * 100
    >>> cohorts(analyze(data, groups=["topic"]).cohorts["topic"], ax=Figure().subplots()).get_xlabel().splitlines()[0]
    'value by topic with 95% interval; line: all prompts'
    """
    policies = table["policy"].values.astype(str).tolist()
    names = table["cohort"].values.astype(str).tolist()
    rows = [(policy, name) for policy in policies for name in names]
    axes = new_axes(ax, 6.8, 1.3 + 0.3 * len(rows))
    policy_rows(axes, [f"{policy}: {name}" for policy, name in rows])
    notes = []
    for row, (policy, name) in enumerate(rows):
        at = table.sel(policy=policy, cohort=name)
        value, p = float(at["estimate"]), float(at["p_bh"])
        notes.append("" if math.isnan(p) else f"p {p:.3f}{' *' if at['flagged'] else ''}")
        if math.isfinite(whole := float(at["whole"])):
            axes.plot([whole, whole], [row - 0.5, row + 0.5], color=GREY, lw=1.0, zorder=1)
        if math.isfinite(value):
            marker, face = LOOK[str(at["level"].item())]
            axes.plot(at["interval"].values, [row, row], color=OKABE_ITO[0], lw=2.0, zorder=2)
            axes.plot(value, row, marker, mfc=face, mec=OKABE_ITO[0], mew=1.3, ms=5.5, zorder=3)
        else:
            notes[-1] = str(at["level"].item())
    notes_beside(axes, range(len(rows)), notes, 8)
    prob = 100 * float(table.attrs["ci_prob"])
    axes.set_xlabel(
        f"value by {table.attrs['variable']} with {prob:g}% interval; line: all prompts\n"
        "p: difference from all prompts, Benjamini-Hochberg over all rows"
    )
    return axes
