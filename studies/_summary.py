"""The table that ``cje-lab analyze`` prints: policies, contrasts, and what the named statuses mean."""

import math
from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cje_core.result import Status
from studies._analyze import CORRECTED, LABELS, Analysis, contrast_records

FEW_PAIRS = 10


def summary(analysis: Analysis) -> Group:
    """Return what stdout shows: policies, contrasts, and what the named statuses mean."""
    parts = [_policy_table(analysis), *_contrast_table(analysis), *_notes(analysis)]
    return Group(*[part for k, part in enumerate(parts) for part in ([Text("")] * (k > 0) + [part])])


def print_summary(analysis: Analysis) -> None:
    """Print the summary on stdout, in colour on a terminal only."""
    Console(highlight=False).print(summary(analysis))


def _policy_table(analysis: Analysis) -> Table:
    others = [name for name in analysis.estimates if name not in (analysis.primary, CORRECTED)]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("policy", overflow="fold", min_width=8)
    shown.add_column(f"{analysis.primary}\n[{_percent(analysis)} interval]", no_wrap=True)
    for name in others:
        shown.add_column(LABELS.get(name, name).replace(" ", "\n"), overflow="fold", min_width=5)
    shown.add_column("transport\nresidual", overflow="fold", min_width=12)
    shown.add_column("level", no_wrap=True)
    for policy in analysis.policies:
        level, verdict = analysis.level(policy), analysis.verdict(policy)
        refused = verdict == "FAIL"
        residual = float(analysis.transport["residual"].sel(policy=policy))
        value = Text(
            cell(analysis, analysis.primary, policy, interval=True), style="dim" if refused else "bold"
        )
        status = analysis.status(analysis.primary, policy)
        if not (status is Status.OK or status.failed):
            value.append(f"\n{status.name.lower()}", style="not bold")
        if refused and CORRECTED in analysis.estimates:
            value.append(f"\n{cell(analysis, CORRECTED, policy, interval=True)}", style="not dim bold")
            value.append(f"\n{LABELS[CORRECTED]}", style="not dim")
        shown.add_row(
            Text(policy),  # Text, since a name in brackets is not markup
            value,
            *[cell(analysis, name, policy) for name in others],
            verdict if math.isnan(residual) else f"{verdict}\n{plain(analysis, residual, sign=True)}",
            "-" if status.failed else Text(level, style="bold" if refused else ""),
        )
    return shown


def _contrast_table(analysis: Analysis) -> list[Table | Text]:
    records = contrast_records(analysis)
    if not records:
        return []
    if len(records) > FEW_PAIRS:
        return [Text(f"{len(records)} pairwise differences: see --json or estimates.json")]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("difference", overflow="fold")
    shown.add_column(f"{analysis.primary} [{_percent(analysis)} interval]", no_wrap=True)
    shown.add_column("p (BH)", no_wrap=True)
    shown.add_column("level", no_wrap=True)
    for record in records:
        shown.add_row(
            Text(f"{record['first']} - {record['second']}"),
            interval_text(analysis, record["difference"], record["interval"], sign=True),
            "-" if record["p_bh"] is None else _p_value(record["p_bh"]),
            record["level"],
        )
    return [shown]


def _notes(analysis: Analysis) -> list[Text]:
    """One line per status, refusal and reason for leaving rows out."""
    meanings: dict[Status, list[str]] = {}
    for name in analysis.estimates:
        for policy in analysis.policies:
            status = analysis.status(name, policy)
            shown = name != CORRECTED or analysis.verdict(policy) == "FAIL"
            if status is not Status.OK and shown:
                meanings.setdefault(status, []).append(f"{name} {policy}")
    lines = [f"{status.name.lower()}: {status.message}" for status in sorted(meanings)]
    for policy in analysis.policies:
        if analysis.verdict(policy) == "FAIL":
            low, high = analysis.transport["interval"].sel(policy=policy).values
            within = f"[{plain(analysis, low, sign=True)}, {plain(analysis, high, sign=True)}]"
            lines.append(
                f"refused: the calibration does not transport to {policy} (residual interval {within}); "
                f"do not use its level, use its {LABELS[CORRECTED]} value"
            )
    counts = analysis.ledger.groupby("reason", sort=True).size()
    lines += [f"left out: {count} ({reason})" for reason, count in counts.items()]
    return [Text("\n".join(lines))] if lines else []


def cell(analysis: Analysis, estimator: str, policy: str, *, interval: bool = False) -> str:
    """Estimate, with its interval on demand, or the named status of a failure."""
    status = analysis.status(estimator, policy)
    at = analysis.estimates[estimator].sel(policy=policy)
    value = float(at["estimate"])
    if status.failed or math.isnan(value):
        return status.name.lower()
    return (
        interval_text(analysis, value, at["interval"].values.tolist()) if interval else plain(analysis, value)
    )


def interval_text(
    analysis: Analysis, value: float | None, bounds: Sequence[float | None], *, sign: bool = False
) -> str:
    if value is None:
        return "-"
    shown = ", ".join("-" if b is None or math.isnan(b) else plain(analysis, b, sign=sign) for b in bounds)
    return f"{plain(analysis, value, sign=sign)} [{shown}]"


def plain(analysis: Analysis, value: float, *, sign: bool = False) -> str:
    """Format with three decimals on a [0, 1] scale, fewer on a wider one."""
    low, high = analysis.data.attrs["oracle_range"]
    decimals = min(max(3 - math.floor(math.log10(high - low)), 0), 6)
    return f"{value:{'+' if sign else ''}.{decimals}f}"


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _percent(analysis: Analysis) -> str:
    return f"{100 * float(analysis.estimates[analysis.primary].attrs['ci_prob']):g}%"
