"""What ``cje-lab analyze --by`` adds: values, overlap and reliability by cohort, as JSON, as tables, as lines below."""

from typing import Any

import xarray as xr
from rich.text import Text

from cje_core.verdict.gates import ope_ok
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.cohorts import OVERLAP
from studies.cli.analysis.numbers import ends, interval_text, known, numbers, p_value, percent, plain, some
from studies.cli.wide import Wide

MOST_ROWS = 40
NAMELESS = "(none)"
OF_LABELS = ("residual", "std_error", "p_value", "p_bh", "slope", "oof_rmse")
ONE_COHORT = (
    "one cohort: values are means over its prompts; labels of other prompts only teach the calibrator"
)


def cohort_records(analysis: Analysis) -> dict[str, Any]:
    """By variable over prompts: a record for each policy and cohort, for the labels of each, and how they add up."""
    return {name: _records(analysis, table) for name, table in analysis.cohorts.items()}


def _records(analysis: Analysis, table: xr.Dataset) -> dict[str, Any]:
    cohorts = table["cohort"].values.astype(str).tolist()
    cells = [
        _cell(table.sel(policy=policy, cohort=cohort)) for policy in analysis.policies for cohort in cohorts
    ]
    labels = []
    for cohort in cohorts:
        at = table.sel(cohort=cohort)
        labels.append(
            {
                "cohort": cohort,
                "n": int(at["label_n"]),
                **{name: known(at[f"label_{name}"]) for name in OF_LABELS},
                "interval": ends(at["label_interval"]),
                "slope_interval": ends(at["label_slope_interval"]),
                "flagged": bool(at["label_flagged"]),
            }
        )
    sums = {policy: numbers(table.sel(policy=policy), "whole", "sum") for policy in analysis.policies}
    return {"values": cells, "labels": labels, "adds_up": sums, "fdr": float(table.attrs["fdr"])}


def _cell(at: xr.Dataset) -> dict[str, Any]:
    refused = at["level"].item() == "refused"
    return {
        "policy": str(at["policy"].item()),
        "cohort": str(at["cohort"].item()),
        "value": None if refused else {"estimate": known(at["estimate"]), "interval": ends(at["interval"])},
        "level": str(at["level"].item()),
        "source": str(at["source"].item()),
        "reason": str(at["reason"].item()),
        **{name: int(at[f"n_{name}"]) for name in ("prompts", "labels", "probes")},
        "share": known(at["share"]),
        "from_whole": {
            "difference": known(at["difference"]),
            "std_error": known(at["difference_std_error"]),
            **numbers(at, "p_value", "p_bh"),
            "flagged": bool(at["flagged"]),
        },
        **numbers(at, *OVERLAP, "probe_residual", "probe_p_bh"),
    }


def cohort_tables(analysis: Analysis) -> list[Wide | Text]:
    """For each variable the values of each policy in each cohort, and the labels of each cohort."""
    shown: list[Wide | Text] = []
    for name, table in analysis.cohorts.items():
        if table["estimate"].size > MOST_ROWS:
            words = f"values of {table['estimate'].size} policies in cohorts of {name}: see --json or estimates.json"
            shown.append(Text(words))
        else:
            shown.append(_values(analysis, name, table))
        shown.append(_labels(analysis, name, table))
    return shown


def _values(analysis: Analysis, name: str, table: xr.Dataset) -> Wide:
    weighted = bool(table["ess_fraction"].notnull().any())
    shown = Wide()
    shown.add_column(f"policy,\n{name}", overflow="fold", min_width=8)
    shown.add_column("share of\nprompts", no_wrap=True, justify="right")
    shown.add_column(f"value\n[{percent(analysis)} interval]", no_wrap=True)
    shown.add_column("from the\nwhole", no_wrap=True, justify="right")
    shown.add_column("p (BH)", no_wrap=True, justify="right")
    if weighted:
        shown.add_column("ESS/n raw,\nTTC, Hill", no_wrap=True, justify="right")
    shown.add_column("level,\nown labels + probes", overflow="fold", min_width=10)
    for policy in analysis.policies:
        for cohort in table["cohort"].values.astype(str):
            at = table.sel(policy=policy, cohort=cohort)
            value, difference = known(at["estimate"]), known(at["difference"])
            p = known(at["p_bh"])
            ess, *tails = (
                "-" if (x := known(at[key])) is None else f"{x:.3g}"
                for key in ("ess_fraction", "ttc", "hill")
            )
            shown.add_row(
                Text(policy).append(f"\n{cohort or NAMELESS}", style="bold"),
                _share(known(at["share"])),
                Text(interval_text(analysis, value, at["interval"].values.tolist())),
                "-" if difference is None else plain(analysis, difference, sign=True),
                Text("-" if p is None else p_value(p), style="bold" if at["flagged"] else ""),
                *([f"{ess}\n{', '.join(tails)}"] if weighted else []),
                Text(str(at["level"].item())).append(
                    f"\n{int(at['n_labels'])} + {int(at['n_probes'])}", style="dim"
                ),
            )
    return shown


def _labels(analysis: Analysis, name: str, table: xr.Dataset) -> Wide:
    shown = Wide()
    shown.add_column(f"labels that\nteach, {name}", overflow="fold", min_width=8)
    shown.add_column("labels", no_wrap=True, justify="right")
    shown.add_column(f"residual\n[{percent(analysis)} interval]", no_wrap=True)
    shown.add_column("p (BH)", no_wrap=True, justify="right")
    shown.add_column("slope\n[interval]", no_wrap=True)
    shown.add_column("error\n(RMSE)", no_wrap=True, justify="right")
    for cohort in table["cohort"].values.astype(str):
        at = table.sel(cohort=cohort)
        p, slope, rmse = (known(at[f"label_{key}"]) for key in ("p_bh", "slope", "oof_rmse"))
        bounds = ", ".join("-" if b is None else f"{b:.2f}" for b in ends(at["label_slope_interval"]))
        residual = interval_text(
            analysis, known(at["label_residual"]), at["label_interval"].values.tolist(), sign=True
        )
        shown.add_row(
            Text(cohort or NAMELESS),
            str(int(at["label_n"])),
            residual,
            Text("-" if p is None else p_value(p), style="bold" if at["label_flagged"] else ""),
            "-" if slope is None else f"{slope:.2f} [{bounds}]",
            "-" if rmse is None else plain(analysis, rmse),
        )
    return shown


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def cohort_lines(analysis: Analysis) -> list[str]:
    """What one cohort is, what differs between cohorts, how they add up, and what subgroup calibration does."""
    lines, restricted = [], analysis.data.attrs.get("cohort")
    if restricted is not None:
        lines.append(f"{restricted}: {ONE_COHORT}")
    groups = analysis.calibrated.calibration.groups
    if groups is not None:
        lines.append(
            f"subgroup calibration by {groups}: direct shifts the calibrator in each group, shrunk to the pooled one; "
            "other estimators take the pooled one"
        )
    for name, table in analysis.cohorts.items():
        fdr = f"{float(table.attrs['fdr']):.0%}"
        apart = [
            f"{policy} in {cohort}"
            for policy in analysis.policies
            for cohort in table["cohort"].values.astype(str)
            if bool(table["flagged"].sel(policy=policy, cohort=cohort))
        ]
        said = (
            f"differ from the whole at a false discovery rate of {fdr}: {some(apart)}"
            if apart
            else (f"none differs from the whole at a false discovery rate of {fdr}")
        )
        lines.append(f"by {name}: {said}")
        off = table["cohort"].values[table["label_flagged"].values].astype(str).tolist()
        if off:
            mend = (
                ""
                if groups == name
                else f"; --subgroup {name} calibrates each group, shrunk to the pooled one"
            )
            lines.append(f"by {name}: the calibrator is off in {some(off)} (mean residual, {fdr}){mend}")
        probed = [
            f"{policy} in {cohort}"
            for policy in analysis.policies
            for cohort in table["cohort"].values.astype(str)
            if float(table["probe_p_bh"].sel(policy=policy, cohort=cohort)) <= table.attrs["fdr"]
        ]
        if probed:
            lines.append(f"by {name}: the calibration does not transport to {some(probed)} (probes, {fdr})")
        lines += _adds_up(analysis, name, table)
    return lines


def _adds_up(analysis: Analysis, name: str, table: xr.Dataset) -> list[str]:
    sums = []
    for policy in analysis.policies:
        whole, added = (known(table[key].sel(policy=policy)) for key in ("whole", "sum"))
        if whole is not None and added is not None:
            sums.append(f"{policy} {plain(analysis, added)} ({plain(analysis, whole)})")
    if not sums:
        return []
    return [f"by {name}: by their shares of prompts the cohorts add up to (the whole): {some(sums)}"]


def overlap_help(analysis: Analysis) -> list[str]:
    """What can be said from logs all the same where the overlap gates block the value."""
    lines, blocked = [], []
    if analysis.overlap is not None:
        used = analysis.overlap["n_usable"].sel(policy=analysis.policies).values > 0
        state = ope_ok(analysis.gates)["state"].sel(policy=analysis.policies).values.astype(str)
        blocked = [
            p
            for p, off, there in zip(analysis.policies, state == "blocked", used, strict=True)
            if off & there
        ]
    named = [
        name for name, found in analysis.estimates.items() if str(found.attrs["estimand"]).startswith("not V")
    ]
    for name in named:
        lines.append(
            f"{name}: the mean over the responses that a policy shares with the logger, not the policy's value"
        )
    if blocked and not named:
        lines.append(
            f"overlap fails for {some(blocked)}: --estimator overlap_weights gives the mean over responses that the "
            "policy shares with the logger (not its value); --cohort NAME=VALUE restricts to prompts where it holds"
        )
    return lines
