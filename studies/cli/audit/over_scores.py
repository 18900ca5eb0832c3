"""Pages of the audits of residuals inside the judge's scale and inside groups."""

import math

import numpy as np
import xarray as xr
from rich.text import Text

from cje_core import figures
from studies.cli.audit.told import Told, number, p_text, records, table, with_interval
from studies.cli.wide import page


def of_bins(binned: xr.Dataset, level: float) -> Told:
    """Page of the binned audit."""
    shown = table(
        "policy", "bins", "joint p", "p (BH)", "verdict", "largest residual,\ninterval", "at scores"
    )
    flagged = (binned["p_bh"] <= level).values
    for policy, loud in zip(binned["policy"].values.tolist(), flagged, strict=True):
        at = binned.sel(policy=policy)
        if str(at["status"].item()) != "OK":
            shown.add_row(Text(policy), "-", "-", "-", "not checked", "-", "-")
            continue
        worst = at.isel(bin=int(np.nanargmax(np.abs(at["residual"].values))))
        scores = f"{number(worst['score_low'], '.3g')} to {number(worst['score_high'], '.3g')}"
        verdict = "FOUND" if loud else "nothing found"
        shown.add_row(
            Text(policy), str(int(at["n_bins"])), p_text(at["p_value"]), p_text(at["p_bh"]), verdict,
            with_interval(worst), scores,
        )  # fmt: skip
    lines = [
        f"joint test of every policy's bins, false discovery rate {level:g}; not checked: fewer than two bins of 5 "
        "probed prompts, or no labels that vary. Residuals of single bins are for looking, not for testing"
    ]
    found = bool(flagged.any())
    if found:
        lines.append(
            "next: label responses where the residual is largest, or give the calibrator a covariate that tells "
            "these apart"
        )
    json = {
        "level": level,
        "found": found,
        "policies": [
            record | {"found": bool(loud)}
            for record, loud in zip(records(binned, "policy", "bin"), flagged, strict=True)
        ],
    }
    return Told(
        "binned", page([shown, Text("\n".join(lines))]), json, found, lambda: figures.residual_bins(binned)
    )


def of_levels(ablation: xr.Dataset) -> Told:
    """Page of the coarsening ablation: width and value of every policy by the number of judge levels."""
    shown = table(
        "policy", "judge\nlevels", "value", "moved by\n(standard error)", "width", "width over\nfull"
    )
    for policy in ablation["policy"].values.tolist():
        for row in range(ablation.sizes["levels"]):
            at = ablation.isel(levels=row).sel(policy=policy)
            moved = f"{number(at['shift'], '+.3f')} ({number(at['shift_std_error'])})"
            shown.add_row(
                Text(policy), str(int(at["n_levels"])), number(at["estimate"]), moved, number(at["width"]),
                number(at["width_ratio"], ".2f"),
            )  # fmt: skip
        at = ablation.sel(policy=policy)
        shown.add_row(
            Text(policy),
            f"all {int(at['full_n_levels'])}",
            number(at["full_estimate"]),
            "",
            number(at["full_width"]),
            "",
        )
    lines = [
        f"{ablation.attrs['estimator']} with the judge's scores cut at quantiles. A width that hardly grows says that "
        "so few levels would do; a value that moves by more than two standard errors hangs on how fine the score is"
    ]
    json = {
        "estimator": ablation.attrs["estimator"],
        "policies": records(ablation.transpose("policy", ...), "policy", "levels"),
    }
    return Told("coarsening", page([shown, Text("\n".join(lines))]), json, found=False)


def of_groups(grouped: xr.Dataset, field: str) -> Told:
    """Page of the subgroup audit."""
    shown = table("policy", field, "probes", "residual,\ninterval", "p (BH)", "verdict")
    silent = 0
    for policy in grouped["policy"].values.tolist():
        for name in grouped["group"].values.tolist():
            at = grouped.sel(policy=policy, group=name)
            if math.isnan(float(at["p_value"])):
                silent += int(at["n_probes"]) > 0
                continue
            verdict = "FOUND" if bool(at["flagged"]) else "nothing found"
            shown.add_row(
                Text(policy), Text(name), str(int(at["n_probes"])), with_interval(at), p_text(at["p_bh"]), verdict
            )  # fmt: skip
    fdr = grouped.attrs["fdr"]
    lines = [f"mean residual with the calibrator's own error; false discovery rate {fdr:g} over all rows"]
    if silent:
        lines.append(
            f"not checked: {silent} groups with fewer than 4 probed prompts, or without labels that vary"
        )
    found = bool(grouped["flagged"].any())
    if found:
        lines.append(
            f"next: make {field} a covariate, or calibrate the groups apart; where it is found, levels of the group "
            "are off by its residual"
        )
    json = {"fdr": fdr, "group": field, "found": found, "policies": records(grouped, "policy", "group")}
    return Told("subgroup", page([shown, Text("\n".join(lines))]), json, found)
