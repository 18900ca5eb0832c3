"""The tables that ``cje-lab analyze`` prints: policies, logs, contrasts, advice, and what the named statuses mean."""

import math

from rich.console import Group
from rich.text import Text

from cje_core import estimators
from cje_core.inference.estimate import Status
from cje_core.io.intake.names import brief
from cje_core.verdict.gates import ope_ok
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import BAYESIAN, SHIFT, VALUE
from cje_core.workflow.standing import withheld
from studies.cli.analysis.as_json import PLUG_IN, contrast_records
from studies.cli.analysis.lines.assumed import assumption_table
from studies.cli.analysis.lines.cohorts import cohort_tables
from studies.cli.analysis.lines.flow import flow_table
from studies.cli.analysis.lines.notes import notes
from studies.cli.analysis.numbers import (
    cell,
    ends,
    interval_text,
    known,
    p_value,
    percent,
    plain,
    probability,
)
from studies.cli.wide import Wide, briefly, page

FEW_PAIRS = 10
GATED = {"ok": "", "blocked": "\nblocked", "unknown": "\nnot established"}  # by the off-policy gates


def summary(analysis: Analysis) -> Group:
    """Return what stdout shows; very long names by their beginning and end."""
    short = brief(analysis.policies)
    return page(
        briefly(part, short)
        for part in (
            _policy_table(analysis),
            *_posterior_table(analysis),
            *_log_tables(analysis),
            *_contrast_table(analysis),
            *_serial_table(analysis),
            *flow_table(analysis),
            *assumption_table(analysis),
            *cohort_tables(analysis),
            *notes(analysis),
        )
    )


def _policy_table(analysis: Analysis) -> Wide:
    posteriors = () if analysis.posterior is None else BAYESIAN
    hidden = (analysis.primary, analysis.corrector, *analysis.off_policy, *posteriors)
    others = [name for name in analysis.estimates if name not in hidden]
    shown = Wide()
    shown.add_column("policy", overflow="fold", min_width=8)
    shown.add_column(f"value\n[{percent(analysis)} interval]", no_wrap=True)
    for name in others:
        shown.add_column(estimators.role(name).label.replace(" ", "\n"), overflow="fold", min_width=5)
    shown.add_column("transport\nresidual", overflow="fold", min_width=12)
    shown.add_column("level,\nrests on", overflow="fold", min_width=10)
    for policy in analysis.policies:
        level, verdict = analysis.level(policy), analysis.verdict(policy)
        residual = float(analysis.transport["residual"].sel(policy=policy))
        shown.add_row(
            Text(policy),  # Text, since a name in brackets is not markup
            _value_cell(analysis, policy),
            *[
                "-" if analysis.status(name, policy) is Status.NO_LABELS else cell(analysis, name, policy)
                for name in others
            ],
            verdict if math.isnan(residual) else f"{verdict}\n{plain(analysis, residual, sign=True)}",
            Text(level, style="bold" if level == "refused" else "").append(
                f"\n{analysis.rests_on(policy)}".rstrip(), style="not bold dim"
            ),
        )
    return shown


def _value_cell(analysis: Analysis, policy: str) -> Text:
    """The value that stands first, what it is flagged with, and beneath it what would have been borrowed."""
    name, primary = analysis.standing(policy), analysis.status(analysis.primary, policy)
    if name is None:
        return Text(primary.name.lower() if primary.failed else "no value")
    at = analysis.value.sel(policy=policy)
    value = Text(interval_text(analysis, float(at["estimate"]), at["interval"].values.tolist()), style="bold")
    status = analysis.status(name, policy)
    if status not in (Status.OK, Status.TRANSPORT_ASSUMED):
        value.append(f"\n{status.name.lower()}", style="not bold")
    if analysis.level(policy) == "assumed" and analysis.source(policy) == "borrowed":
        biased = analysis.if_biased.sel(policy=policy).isel(delta=0)
        low, high = (plain(analysis, bound) for bound in biased["interval"].values)
        margin = plain(analysis, float(biased["delta"]))
        value.append(f"\n[{low}, {high}]\nif off by {margin}", style="not bold dim")
    if analysis.source(policy) == "probes" and not primary.failed:
        borrowed = cell(analysis, analysis.primary, policy, interval=True)
        value.append(f"\n{borrowed}\nborrowed", style="not bold dim")
    return value


def _posterior_table(analysis: Analysis) -> list[Wide]:
    """What the posterior says of each policy: value, probe-corrected value, shift, and decisions."""
    if analysis.posterior is None:
        return []
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    shown = Wide()
    shown.add_column(f"posterior\n({analysis.posterior.engine})", overflow="fold", min_width=8)
    shown.add_column(f"{estimators.role(VALUE).label} mean\n[{percent(analysis)} interval]", no_wrap=True)
    shown.add_column("shift\n[interval]", no_wrap=True)
    for name in (f"P(|shift|\n< {margin})", "P(best)"):
        shown.add_column(name, no_wrap=True, justify="right")
    for policy in analysis.policies:
        stands = analysis.source(policy) != "probes" and analysis.level(policy) != "refused"
        value = Text(_flagged(analysis, VALUE, policy), style="bold" if stands else "dim")
        if not (analysis.status(SHIFT, policy).failed or withheld(analysis, SHIFT, policy)):
            corrected = f"\n{_flagged(analysis, SHIFT, policy)}\nprobe-corrected"
            value.append(corrected, style="not bold" if stands else "not dim bold")
        decision = analysis.posterior.decision.sel(policy=policy)
        shift = analysis.estimates[SHIFT].sel(policy=policy)
        bounds = ends(shift["shift_interval"])
        shown.add_row(
            Text(policy),
            value,
            interval_text(analysis, known(shift["shift"]), bounds, sign=True).replace(" [", "\n["),
            probability(known(decision["within_margin"])),
            probability(known(decision["best"])),
        )
    return [shown]


def _flagged(analysis: Analysis, estimator: str, policy: str) -> str:
    """Estimate with interval, and beneath it the named status of what is not plainly estimated."""
    status = analysis.status(estimator, policy)
    shown = cell(analysis, estimator, policy, interval=True)
    said = status is Status.TRANSPORT_ASSUMED and estimator in analysis.off_policy  # once, below
    plainly = status is Status.OK or said or status.failed or withheld(analysis, estimator, policy)
    return shown if plainly else f"{shown}\n{status.name.lower()}"


def _log_tables(analysis: Analysis) -> list[Wide]:
    """What the logged responses say: overlap with its gates, and the estimators that weight them."""
    if analysis.overlap is None:
        return []
    overlap = Wide()
    overlap.add_column("logged\nresponses", overflow="fold", min_width=8)
    for name in ("ESS/n\nraw", "ESS/n\nstabilised", "largest\nshare", "tail\nindex", "affinity\nA_B", "TTC"):
        overlap.add_column(name, no_wrap=True, justify="right")
    overlap.add_column("off-policy\ngates", overflow="fold", min_width=20)
    passed = ope_ok(analysis.gates)
    shown = ("ess_fraction", "ess_fraction_stabilised", "max_share", "hill", "affinity_corrected", "ttc")
    for policy in analysis.policies:
        at = analysis.overlap.sel(policy=policy)
        usable = int(at["n_usable"]) > 0
        state = str(passed["state"].sel(policy=policy).item()) if usable else "no log-probabilities"
        if usable and state != "ok":
            state += f": {passed['reason'].sel(policy=policy).item()}"
        cells = [f"{float(at[name]):.3g}" if math.isfinite(float(at[name])) else "unknown" for name in shown]
        overlap.add_row(Text(policy), *(cells if usable else ["-"] * len(shown)), Text(state))
    if not analysis.off_policy:
        return [overlap]
    values = Wide()
    values.add_column(f"off-policy\n[{percent(analysis)} interval]", overflow="fold", min_width=8)
    for name in analysis.off_policy:
        values.add_column(name.replace("_", "\n", 1), no_wrap=True)
    for policy in analysis.policies:
        cells = [_flagged(analysis, name, policy).replace(" [", "\n[") for name in analysis.off_policy]
        state = GATED[str(passed["state"].sel(policy=policy).item())]
        style = "dim" if state else ""
        values.add_row(Text(policy + state), *[Text(c, style=style) for c in cells])
    return [overlap, values]


def _serial_table(analysis: Analysis) -> list[Wide | Text]:
    """Errors of the values where prompts depend on their neighbours in time, beside the default ones."""
    if analysis.serial is None:
        return []
    shown = Wide()
    shown.add_column("in blocks\nof time", overflow="fold", min_width=8)
    for name in ("standard\nerror", "in blocks", f"{percent(analysis)} interval\nin blocks", "mean\nblock"):
        shown.add_column(name, no_wrap=True)
    for policy in analysis.policies:
        at = analysis.serial.sel(policy=policy)
        if math.isnan(float(at["std_error_serial"])):
            continue
        low, high = (plain(analysis, float(end)) for end in at["interval_serial"].values)
        errors = [plain(analysis, float(at[name])) for name in ("std_error", "std_error_serial")]
        shown.add_row(Text(policy), *errors, f"[{low}, {high}]", f"{float(at['mean_block']):.1f}")
    order = Text(f"stationary bootstrap, prompts in order of {analysis.serial.attrs['order']}")
    return [shown, order]


def _contrast_table(analysis: Analysis) -> list[Wide | Text]:
    records = contrast_records(analysis)
    if not records:
        return []
    notes = [Text(f"caution: {PLUG_IN}")] if any(record["caution"] for record in records) else []
    if len(records) > FEW_PAIRS:
        return [Text(f"{len(records)} pairwise differences: see --json or estimates.json"), *notes]
    shown = Wide()
    shown.add_column("difference", overflow="fold")
    shown.add_column(f"value [{percent(analysis)} interval]", no_wrap=True)
    shown.add_column("p (BH)", no_wrap=True)
    assumed = any(record["level"] == "assumed" for record in records)
    if assumed:
        shown.add_column("undecided if\ntransport is\noff by", no_wrap=True, justify="right")
    shown.add_column("level", no_wrap=True)
    for record in records:
        earned = record["level"] == "reported" and record["p_bh"] is not None
        flips = "-" if record["flips_at"] is None else plain(analysis, record["flips_at"])
        shown.add_row(
            Text(f"{record['first']} - {record['second']}"),
            "none: the same"
            if record["same"]
            else interval_text(analysis, record["difference"], record["interval"], sign=True),
            p_value(record["p_bh"]) if earned else "-",
            *[flips] * assumed,
            record["level"],
        )
    return [shown, *notes]
