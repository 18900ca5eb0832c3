"""The tables that ``cje-lab plan`` prints: the design, what it means for each policy and difference, the next steps."""

from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from cje_core.inference.estimate import Status
from cje_core.planning.probes import Shares
from cje_core.workflow.plan import Planned
from studies.cli.analysis.lines.notes import left_out_lines
from studies.cli.planning.as_json import binary_lines, contrast_records, next_steps
from studies.cli.wide import Wide, page

ROUNDING = 1e-20  # a variance below it is what floats leave of none


def summary(planned: Planned) -> Group:
    """Return what stdout shows."""
    return page([_heading(planned), _policy_table(planned), *_contrast_table(planned), _notes(planned)])


def _heading(planned: Planned) -> Text:
    chosen, pilot = planned.plan, planned.components.attrs
    count = "1 policy" if planned.n_policies == 1 else f"{planned.n_policies} policies"
    return Text(
        f"pilot: {pilot['n']} prompts, {pilot['m']} labelled\n"
        f"plan:  n = {chosen.n} prompts for {count}, m = {chosen.m} labelled "
        f"({chosen.m / chosen.n:.0%}){_bought(planned)}; cost {chosen.cost:g} of {planned.budget:g}"
    )


def _bought(planned: Planned) -> str:
    """Number of the probes that the plan buys."""
    return f", {sum(planned.probe_labels.values())} probes" if planned.probe_labels else ""


def _table(*columns: str) -> Wide:
    shown = Wide()
    for k, column in enumerate(columns):
        shown.add_column(column, overflow="fold", no_wrap=k > 0)
    return shown


def _policy_table(planned: Planned) -> Wide:
    shown = _table(
        "policy",
        "sigma2 eval\n(SE)",
        "sigma2 cal\n(SE)",
        "SE of the\npilot",
        "planned SE\n(its SE)",
        "simulated SE\n(MCSE)",
    )
    for policy in planned.policies:
        at = {"policy": policy}
        c, f = planned.planned_components.sel(at), planned.forecast.sel(at)
        now = f"{float(planned.value['std_error'].sel(at)):.3g}".replace("nan", "-")
        if planned.silent(policy):
            shown.add_row(Text(policy), _word(planned, policy), "-", now, "-", "-")
            continue
        seen = "-"
        if planned.check is not None:
            s = planned.check.sel(at)
            seen = _pair(s["simulated_std_error"], s["simulated_mcse"]) + (
                "" if bool(s["held"]) else " missed"
            )
        shown.add_row(
            Text(policy),
            _pair(c["sigma2_eval"], c["sigma2_eval_se"]),
            "probes"
            if policy in planned.probe_labels or planned.route(policy) == "probe_tuned"
            else _pair(c["sigma2_cal"], c["sigma2_cal_se"]),
            now,
            _pair(f["std_error"], f["std_error_se"]),
            seen,
        )
    return shown


def _word(planned: Planned, policy: str) -> str:
    """Why a policy has no number, in a word: the failed estimate, what refuses its level, or labels without spread."""
    by = [name for name in planned.refused_by(policy) if name not in ("estimate", "interval")]
    if by:
        return f"refused by {', '.join(by)}"
    status = planned.status(policy)
    return "no spread" if status in (Status.OK, Status.TRANSPORT_ASSUMED) else status.name.lower()


def _contrast_table(planned: Planned) -> list[Wide]:
    records = contrast_records(planned)
    if not records or planned.check is None:
        return []
    power = planned.check.attrs["power"]
    shown = _table("difference", f"detectable at\npower {power:g}", "simulated power\n(MCSE)")
    for record in records:
        first, second = record["first"], record["second"]
        name = f"{first} - {second}" if first != second else f"{first}, two independent studies"
        if record["planned_mde"] is None:
            refused = first in planned.refused or second in planned.refused
            unknown = planned.silent(first) or planned.silent(second)
            shown.add_row(
                Text(name), "refused" if refused else "-" if unknown else "nothing on the scale", "-"
            )
            continue
        missed = "" if record["held"] else " missed"
        shown.add_row(
            Text(name),
            f"{record['planned_mde']:.3g}",
            f"{record['simulated_power']:.2f} ({record['power_mcse']:.2f}){missed}",
        )
    return [shown]


def _notes(planned: Planned) -> Text:
    def share(balance: Shares) -> str:
        probes = ""
        if balance.probe_share:
            probes = f", probes {balance.probe_share:.0%} and {balance.probe_spend_share:.0%}"
        unmoved = f", but nothing here moves {', '.join(planned.unmoved)}" if planned.unmoved else ""
        return (
            f"labels make {balance.calibration_share:.0%} of the variance and {balance.spend_share:.0%} of the "
            f"spend{probes}: {balance.advice}{unmoved}"
        )

    lines = [f"pilot's spend: {share(planned.pilot_balance)}", f"plan's spend: {share(planned.balance)}"]
    if planned.labelled_entirely:
        lines.append(
            f"labels' part of the variance: what falls with their number. analyze counts none for "
            f"{', '.join(planned.labelled_entirely)}: every response is labelled, so no calibration is in the value"
        )
    if planned.check is None:
        lines.append("check: not simulated, the plan is too large; nothing confirms it")
    else:
        verdict = "bears the plan out" if planned.achievable else "does NOT bear the plan out (missed)"
        if len(planned.policies) > 1 and not np.isfinite(planned.check["planned_mde"].values).any():
            verdict += ", which finds no difference between policies"
        lines.append(
            f"check: {planned.check.attrs['replicates']} simulated studies; the simulation {verdict}"
        )
        lines += [
            f"check: {int(failed)} of the simulated studies refuse {policy}"
            for policy in planned.policies
            if (failed := planned.check["n_failed"].sel(policy=policy)) > 0 and not planned.silent(policy)
        ]
    lines += [f"extrapolates: {phrase}" for phrase in planned.outside]
    lines += binary_lines(planned)
    lines += left_out_lines(planned.left_out)
    return Text("\n".join(lines + [f"next: {step}" for step in next_steps(planned)]))


def _pair(value: Any, error: Any) -> str:
    if abs(float(value)) < ROUNDING:
        return "0"
    return f"{float(value):.3g} ({float(error):.1g})"
