"""Pages of the audits of what comes in time: batches, anchors, one label after the other."""

import math
from typing import Any

import numpy as np
import xarray as xr
from rich.text import Text

from cje_core import figures
from studies.cli.audit.told import Told, number, p_text, plain, records, table, with_interval
from studies.cli.wide import page


def of_drift(charts: xr.Dataset | None, compared: xr.Dataset | None) -> Told:
    """Page of both kinds of drift."""
    parts: list[Any] = []
    json: dict[str, Any] = {"batches": None, "anchors": None}
    found = False
    if charts is not None:
        shown = table(
            "policy", "probes", "p, both charts\n(BH)", "first batch beyond\nits own limit", "verdict"
        )
        names = charts["batch"].values
        for at in (charts.isel(stream=k) for k in range(charts.sizes["stream"])):
            over = [_first_beyond(at.sel(chart=chart), names) for chart in charts["chart"].values]
            drifted = float(at["drifted"])
            verdict = "not checked" if math.isnan(drifted) else "DRIFT" if drifted else "nothing found"
            name, count = str(at["stream"].item()), str(int(at["n_units"]))
            shown.add_row(Text(name), count, p_text(at["p_joint_bh"]), ", ".join(over), verdict)
        found |= bool((charts["drifted"] == 1).any())
        alarm, baseline = charts.attrs["false_alarm"], charts.attrs["n_baseline"]
        note = (
            f"change after the first {baseline} of {charts.sizes['batch']} batches; probability of any alarm if "
            "nothing "
            f"changes: {alarm:g}. A bias that was there from the start is no drift: that is the audit's of analyze. "
            "not "
            "checked: the baseline has fewer than 4 residuals or they are all equal, or nothing comes after it. "
            "Limits (CUSUM, EWMA) are of each policy by itself, "
            "verdicts count that all are looked at"
        )
        parts += [shown, Text(note)]
        json["batches"] = {**charts.attrs, "streams": records(charts, "stream", "chart")}
        json["batches"]["batches"] = [plain(b) for b in names.tolist()]
    if compared is not None:
        shown = table(
            "anchors",
            "n",
            "Kendall tau,\ninterval",
            "p of\nindependence",
            "mean change",
            "p (BH)",
            "verdict",
        )
        for at in (compared.isel(stream=k) for k in range(compared.sizes["stream"])):
            alarm = float(at["alarm"])
            verdict = "not checked" if math.isnan(alarm) else "DRIFT" if alarm else "nothing found"
            low, high = at["interval"].values
            tau = f"{number(at['tau'])} [{number(low)}, {number(high)}]"
            shown.add_row(
                Text(str(at["stream"].item())), str(int(at["n_anchors"])), tau, p_text(at["p_value"]),
                number(at["change"], "+.3f"), p_text(at["p_change_bh"]), verdict,
            )  # fmt: skip
        found |= bool((compared["alarm"] == 1).any())
        note = (
            f"DRIFT: the interval of tau lies below {compared.attrs['min_tau']:g}, or the mean changed; probability "
            "of any "
            f"alarm if nothing changes: {compared.attrs['false_alarm']:g}. A small p of independence is good news: the "
            "rankings still agree"
        )
        parts += [shown, Text(note)]
        json["anchors"] = {**compared.attrs, "streams": records(compared, "stream")}
    if found:
        parts.append(
            Text(
                "next: label responses that the judge scored lately and calibrate on them; old labels calibrate the "
                "old judge"
            )
        )
    draw = None if charts is None else lambda: figures.control_charts(charts)
    return Told("drift", page(parts), {"found": found, **json}, found, draw)


def _first_beyond(chart: xr.Dataset, names: Any) -> str:
    over = np.flatnonzero(chart["path"].values > float(chart["joint_limit"]))
    if not len(over):
        return "-"
    return f"{names[over[0]]:g}" if isinstance(names[over[0]], float) else str(names[over[0]])


def of_labels(audited: xr.Dataset) -> Told:
    """Page of the sequential audit."""
    shown = table(
        "policy", "verdict", "at label", "labels\nso far", "mean residual,\ninterval valid throughout"
    )
    for policy in audited["policy"].values.tolist():
        at = audited.sel(policy=policy)
        stop = int(at["stop"])
        shown.add_row(
            Text(policy), str(at["verdict"].item()), str(stop) if stop else "-", str(int(at["n_labels"])),
            with_interval(at),
        )  # fmt: skip
    margin, alpha = audited.attrs["margin"], audited.attrs["alpha"]
    lines = [
        f"PASS: the interval lies within {margin:g} of 0, FAIL: beyond; a wrong verdict of a policy has probability "
        "at most "
        f"{alpha:g}, however often it is looked at. The calibrator is taken as it is"
    ]
    open_ = audited["policy"].values[(audited["verdict"] == "INCONCLUSIVE").values].tolist()
    if open_:
        lines.append(
            f"next: probe more random responses of {', '.join(open_)} and run this again; nothing is lost by looking"
        )
    found = bool((audited["verdict"] == "FAIL").any())
    json = {
        **audited.attrs,
        "found": found,
        "policies": records(audited.drop_vars(["path", "mean"]), "policy"),
    }
    return Told(
        "sequential",
        page([shown, Text("\n".join(lines))]),
        json,
        found,
        lambda: figures.label_sequence(audited),
    )
