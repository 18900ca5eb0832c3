"""``index.html`` of ``cje-lab analyze --out``: one offline page that answers first.

Everything on it comes from the analysis and its JSON, in which ids of prompts are hidden; figures are those of the
files, inline. The template is ``analysis.html.j2`` of `studies.report`.
"""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from cje_core import estimators
from cje_core.inference.raters import Rated, agreement
from cje_core.io.intake.names import CAUTION, brief, shortened
from cje_core.planning.judge_worth import judge_worth
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import SHIFT, VALUE
from cje_core.workflow.reading.row_flow import COUNTS
from cje_core.workflow.standing import shown_estimates
from studies.cli.analysis.lines.cautions import ratio_calibration
from studies.cli.analysis.numbers import interval_text, p_value, percent, plain
from studies.cli.analysis.panels import file_name
from studies.cli.analysis.told import answer, chances, methods, next_steps
from studies.report.parts import inline, rendered

MOST_PAIRS = 45  # differences beyond which the table is folded away
MOST_IN_MATRIX = 12
MOST_BYTES = 400_000  # of a figure that stands in the page; a larger one is a file beside it
MOST_IN_ALL = 1_400_000  # of all of them
ENOUGH = 10  # labels of a policy whose agreement stands in a row of its own
WORDS = {"kappa": "kappa", "ac1": "AC1", "alpha": "alpha", "pearson": "correlation"}


def isolated(text: str, names: Sequence[str]) -> str:
    """A sentence whose names that are read from the right leave the order of what stands around them as it is.

    Examples
    --------
    >>> isolated("base .3 to .4", ["base"]), isolated("\u05d0 .3 to .4", ["\u05d0"]) == "\u2068\u05d0\u2069 .3 to .4"
    ('base .3 to .4', True)
    """
    for name in names:
        if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in name):
            text = text.replace(name, f"\u2068{name}\u2069")
    return text


def page(analysis: Analysis, told: Mapping[str, Any], files: Mapping[str, bytes], broken: list[str]) -> bytes:
    """The page, from the analysis, its JSON, the figures by file name, and lines on what could not be drawn."""
    whole = _figures(analysis, files)
    short = brief(analysis.policies)
    content: dict[str, Any] = {
        "heading": analysis.shown().heading,
        "interval": f"{percent(analysis)} interval",
        "answer": [isolated(line, analysis.policies) for line in answer(analysis, told)],
        "board": leaderboard(analysis),
        "differences": differences(analysis, told),
        "folded": len(told["contrasts"]) > MOST_PAIRS,
        "transport": transport(analysis),
        "logs": logs(told),
        "ratios": [isolated(line, analysis.policies) for line in ratio_calibration(analysis)],
        "posterior": beside(analysis, told),
        "worth": worth(analysis),
        "agreed": agreed(analysis),
        "measures": list(WORDS.values()),
        "serial": serial(analysis),
        "flow": row_flow(analysis, told),
        "assumptions": told["assumptions"],
        "next_steps": next_steps(told),
        "methods": methods(analysis, told),
        "broken": broken,
    }
    html = rendered(
        "analysis.html.j2",
        **_briefly(content, short),
        short=short,
        figures=whole,
        files=sorted(files),
        manifest=json.dumps(told["manifest"], indent=1, ensure_ascii=False),
    )
    return html.encode("utf-8")


def _briefly(content: Any, short: Mapping[str, str]) -> Any:
    """Content of the page with short names in place of very long ones, which stand whole below the methods."""
    if not short:
        return content
    if isinstance(content, str):
        return shortened(content, short)
    if isinstance(content, dict):
        return {_briefly(key, short): _briefly(value, short) for key, value in content.items()}
    return (
        type(content)(_briefly(one, short) for one in content)
        if isinstance(content, list | tuple)
        else content
    )


def leaderboard(analysis: Analysis) -> list[dict[str, Any]]:
    """Policies by value, those without one last, with the ends of their interval as shares of the scale."""
    low, high = (float(end) for end in analysis.data.attrs["oracle_range"])
    value = analysis.value["estimate"].to_series()
    rows = []
    for policy in sorted(analysis.policies, key=lambda name: (math.isnan(value[name]), -value[name], name)):
        at, by = analysis.value.sel(policy=policy), analysis.standing(policy)
        ends = [float(end) for end in at["interval"].values]
        bar = [100 * (end - low) / (high - low) for end in (*ends, float(at["estimate"]))]
        rows.append(
            {
                "policy": policy,
                "value": plain(analysis, float(at["estimate"])) if by else "no value",
                "interval": f"{plain(analysis, ends[0])} to {plain(analysis, ends[1])}"
                if by and math.isfinite(sum(ends))
                else "",
                "bar": bar if by and all(map(math.isfinite, bar)) else None,
                "level": analysis.level(policy),
                "rests_on": analysis.rests_on(policy) or analysis.of_level("reason", policy),
            }
        )
    return rows


def differences(analysis: Analysis, told: Mapping[str, Any]) -> list[list[str]]:
    """Pairs: difference, interval, adjusted p-value where it is earned, level, and what would flip it."""
    rows = []
    for one in told["contrasts"]:
        earned = one["level"] == "reported" and one["p_bh"] is not None
        flips = "" if one["flips_at"] is None else plain(analysis, one["flips_at"])
        number = interval_text(analysis, one["difference"], one["interval"], sign=True)
        p = p_value(one["p_bh"]) if earned else "-"
        number = "none: the same" if one["same"] else number
        rows.append([one["first"], one["second"], number, p, one["level"], flips])
    return rows


def transport(analysis: Analysis) -> list[list[str]]:
    """Verdict of the audit for each policy, with its residual and number of probes."""
    rows = []
    for policy in analysis.policies:
        at, verdict = analysis.transport.sel(policy=policy), analysis.verdict(policy)
        residual = float(at["residual"])
        bounds = [float(end) for end in at["interval"].values]
        shown = "" if math.isnan(residual) else interval_text(analysis, residual, bounds, sign=True)
        rows.append([policy, verdict.lower().replace("_", " "), shown, str(int(at["n_probes"]))])
    return rows


def logs(told: Mapping[str, Any]) -> list[list[str]]:
    """Overlap of each policy with the logger; empty without logged responses."""
    names = ("ess_fraction", "ess_fraction_stabilised", "max_share", "hill", "affinity_corrected", "ttc")
    rows = []
    for policy, at in told["policies"].items():
        if at["overlap"] is not None:
            found = [at["overlap"][name] for name in names]
            rows.append([policy, *("unknown" if one is None else f"{one:.3g}" for one in found)])
    return rows


def beside(analysis: Analysis, told: Mapping[str, Any]) -> list[list[str]]:
    """Posterior beside the value of each policy, on the same labels; empty without ``--bayes``."""
    if analysis.posterior is None:
        return []
    shown, rows = shown_estimates(analysis), []
    for policy in analysis.policies:
        name = SHIFT if analysis.source(policy) == "probes" else VALUE
        at, ours = shown[name].sel(policy=policy), analysis.value.sel(policy=policy)
        texts, widths = [], []
        for one in (ours, at):
            ends = [float(end) for end in one["interval"].values]
            estimate = float(one["estimate"])
            widths.append(ends[1] - ends[0])
            known = math.isfinite(estimate)
            texts.append(interval_text(analysis, estimate, ends) if known else "no value")
        ratio = widths[1] / widths[0] if widths[0] > 0 else math.nan
        within, best = chances(told, policy)
        rows.append([policy, *texts, f"{ratio:.2f}" if math.isfinite(ratio) else "-", within, best])
    return rows


def worth(analysis: Analysis) -> list[dict[str, Any]]:
    """Labels that the judge replaces, for policies with labels of their own; see `cje_core.planning.judge_worth`."""
    alone = analysis.estimates.get(estimators.alone("oracle"))
    if alone is None:
        return []
    own = (analysis.data["labelled"] & analysis.data["evaluated"]).sum(["prompt", "draw"])
    n = analysis.data["evaluated"].sum(["prompt", "draw"])
    order = {"policy": alone["policy"]}
    found = judge_worth(analysis.value.sel(order), alone, own.sel(order).values, n.sel(order).values)
    rows = []
    for policy in analysis.policies:
        at = found.sel(policy=policy)
        if analysis.source(policy) == "own" and math.isfinite(float(at["effective_labels"])):
            more = float(at["replaced"])
            rows.append(
                {
                    "policy": policy,
                    "labels": int(at["n_labels"]),
                    "effective": f"{float(at['effective_labels']):.0f}",
                    "replaced": f"{more:+.0f}",
                    "least": f"{float(at['least_correlation']):.2f}",
                }
            )
    return rows


def agreed(analysis: Analysis) -> list[dict[str, Any]]:
    """Agreement of judge and oracle over all labels, and of each policy with enough of them."""
    data = analysis.data
    # by position: pooled data hold every labelled row too
    has = np.argwhere(np.isfinite(data["oracle"].values) & np.isfinite(data["judge"].values))
    if not len(has):
        return []
    at = tuple(has.T)
    judge, label = (_unit(data[name].values[at], data.attrs[f"{name}_range"]) for name in ("judge", "oracle"))
    if analysis.calibrated.calibration.direction == "decreasing":
        judge = 1.0 - judge
    cluster = has[:, 1]
    if "cluster" in data:
        cluster = np.unique(data["cluster"].values.astype(str), return_inverse=True)[1][cluster]
    weight = np.ones(len(has))
    if "label_prob" in data:
        known = data["label_prob"].values[at]
        weight = np.where(np.isfinite(known) & (known > 0), 1.0 / np.where(known > 0, known, 1.0), 1.0)
    policies = data["policy"].values.astype(str)
    groups = {"all labels": np.ones(len(has), dtype=bool)}
    groups |= {name: has[:, 0] == p for p, name in enumerate(policies) if (has[:, 0] == p).sum() >= ENOUGH}
    if len(groups) == 2:
        groups.pop("all labels")
    rows = []
    for name, which in groups.items():
        found = agreement(Rated(judge[which], label[which], cluster[which], weight[which]))
        cells = [_measured(found.sel(measure=name)) for name in WORDS]
        rows.append({"policy": name, "labels": int(which.sum()), "cells": cells})
    return rows


def _unit(values: Any, scale: Any) -> Any:
    return (values - float(scale[0])) / (float(scale[1]) - float(scale[0]))


def _measured(found: xr.Dataset) -> str:
    value, (low, high) = float(found["value"]), found["interval"].values.tolist()
    if not math.isfinite(value):
        return "not defined"
    return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if math.isfinite(low + high) else "")


def serial(analysis: Analysis) -> list[list[str]]:
    """Standard errors in blocks of time of each policy, where they were asked for."""
    table, found = analysis.serial, []
    if table is None:
        return []
    for policy in analysis.policies:
        at = table.sel(policy=policy)
        if not math.isnan(float(at["std_error_serial"])):
            errors = [plain(analysis, float(at[name])) for name in ("std_error", "std_error_serial")]
            low, high = (plain(analysis, float(end)) for end in at["interval_serial"].values)
            found.append([policy, *errors, f"{low} to {high}"])
    return found


def row_flow(analysis: Analysis, told: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of each policy from reading on, what the ungraded may hide, and why some were left out."""
    flow = told["row_flow"]
    head = ["policy", *(name.replace("_", " ") for name in COUNTS)]
    rows = [[policy, *(one[name] for name in COUNTS)] for policy, one in flow.items()]
    if any(one["ungraded_share"] for one in flow.values()):
        head.append("value if the ungraded are worth least, most")
        for row, one in zip(rows, flow.values(), strict=True):
            ends = [one["worst"], one["best"]]
            row.append("-" if None in ends else " to ".join(plain(analysis, end) for end in ends))
    if any(one["calibrated"] is not None for one in flow.values()):
        head.append("with the ungraded as their labels have them")
        for row, one in zip(rows, flow.values(), strict=True):
            row.append(interval_text(analysis, one["calibrated"], one["calibrated_interval"] or ()))
    cautions = analysis.left_out["reason"].astype(str).str.startswith(CAUTION)
    reasons = [
        (str(reason), str(policy), len(entries))
        for (reason, policy), entries in analysis.left_out[~cautions].groupby(["reason", "policy"], sort=True)
    ]
    said = sorted(set(analysis.left_out.loc[cautions, "reason"].astype(str)))
    return {"head": head, "rows": rows, "left_out": reasons, "cautions": said}


def _figures(analysis: Analysis, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Figures as the page shows them, by what they are of; those too large stand beside it as files."""
    room = MOST_IN_ALL

    def one(name: str) -> dict[str, str] | None:
        nonlocal room
        svg = files.get(f"{name}.svg")
        if svg is None:
            return None
        fits = len(svg) <= min(MOST_BYTES, room)
        room -= len(svg) * fits
        return {"svg": inline(svg.decode("utf-8"), name) if fits else "", "name": name}

    single = (
        "calibration", "reliability", "transport_residuals", "ess_tails", "uncertainty_share", "calibration_curve",
        "covariate_effects", "sensitivity_levels", "sensitivity_differences", "drift",
    )  # fmt: skip
    found: dict[str, Any] = {"forest": one("forest")}
    found |= {name: one(name) for name in single}
    found["win_matrix"] = one("win_matrix") if len(analysis.policies) <= MOST_IN_MATRIX else None
    named = [file_name(policy) for policy in analysis.policies]
    found["overlap"] = [shown for name in named if (shown := one(f"overlap_{name}"))]
    found["cohorts"] = [shown for name in analysis.cohorts if (shown := one(f"cohorts_{file_name(name)}"))]
    return found
