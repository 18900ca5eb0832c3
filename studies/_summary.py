"""The tables that ``cje-lab analyze`` prints: policies, logs, contrasts, advice, and what the named statuses mean."""

import math
from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cje_core import guide
from cje_core.gates import ope_ok
from cje_core.result import Status
from studies._analyze import CORRECTED, Analysis, posterior_verdict
from studies._analyze_bayes import BAYESIAN, SHIFT, VALUE
from studies._analyze_json import PLUG_IN, at_level, contrast_records

FEW_PAIRS = 10
LABELS = {"labels_only": "labels only", "raw_judge": "raw judge", CORRECTED: "probe-corrected"}
LABELS |= {VALUE: "posterior", SHIFT: "probe-corrected posterior"}


def summary(analysis: Analysis) -> Group:
    """Return what stdout shows: policies, logs, contrasts, advice, and what the named statuses mean."""
    parts = [
        _policy_table(analysis),
        *_posterior_table(analysis),
        *_log_tables(analysis),
        *_contrast_table(analysis),
        *_notes(analysis),
    ]
    return Group(*[part for k, part in enumerate(parts) for part in ([Text("")] * (k > 0) + [part])])


def print_summary(analysis: Analysis) -> None:
    """Print the summary on stdout, in colour on a terminal only."""
    Console(highlight=False).print(summary(analysis))


def _policy_table(analysis: Analysis) -> Table:
    hidden = (analysis.primary, CORRECTED, *analysis.off_policy)
    if analysis.posterior is not None:
        hidden = (*hidden, *BAYESIAN)
    others = [name for name in analysis.estimates if name not in hidden]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("policy", overflow="fold", min_width=8)
    shown.add_column(f"value\n[{_percent(analysis)} interval]", no_wrap=True)
    for name in others:
        shown.add_column(LABELS.get(name, name).replace(" ", "\n"), overflow="fold", min_width=5)
    shown.add_column("transport\nresidual", overflow="fold", min_width=12)
    shown.add_column("level,\nrests on", overflow="fold", min_width=10)
    for policy in analysis.policies:
        level, verdict = analysis.level(policy), analysis.verdict(policy)
        residual = float(analysis.transport["residual"].sel(policy=policy))
        shown.add_row(
            Text(policy),  # Text, since a name in brackets is not markup
            _value_cell(analysis, policy),
            *[_other_cell(analysis, name, policy) for name in others],
            verdict if math.isnan(residual) else f"{verdict}\n{plain(analysis, residual, sign=True)}",
            Text(level, style="bold" if level == "refused" else "").append(
                _rests_on(analysis, policy), style="not bold dim"
            ),
        )
    return shown


def _other_cell(analysis: Analysis, name: str, policy: str) -> str:
    """The number of a control method; a dash where the policy has no labels for it."""
    return "-" if analysis.status(name, policy) is Status.NO_LABELS else cell(analysis, name, policy)


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
    if analysis.level(policy) == "assumed":
        margin = plain(analysis, float(analysis.if_biased["delta"].values[0]))
        ends = [
            plain(analysis, bound)
            for bound in analysis.if_biased["interval"].sel(policy=policy).isel(delta=0).values
        ]
        value.append(f"\n[{ends[0]}, {ends[1]}]\nif off by {margin}", style="not bold dim")
    if analysis.source(policy) == "probes" and not primary.failed:
        borrowed = cell(analysis, analysis.primary, policy, interval=True)
        value.append(f"\n{borrowed}\nborrowed", style="not bold dim")
    return value


def _rests_on(analysis: Analysis, policy: str) -> str:
    """Whose labels the value is made of."""
    teachers = [str(name) for name in analysis.data.attrs["calibration_policy"]]
    borrowed = f"labels of {teachers[0]}" if len(teachers) == 1 else "labels of others"
    words = {"own": "\nown labels", "probes": "\nits probes", "borrowed": f"\n{borrowed}", "none": ""}
    return words[analysis.source(policy)]


def _posterior_table(analysis: Analysis) -> list[Table]:
    """What the posterior says of each policy: value, probe-corrected value, shift, and decisions."""
    if analysis.posterior is None:
        return []
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column(f"posterior\n({analysis.posterior.engine})", overflow="fold", min_width=8)
    shown.add_column(f"{LABELS[VALUE]} mean\n[{_percent(analysis)} interval]", no_wrap=True)
    shown.add_column("shift\n[interval]", no_wrap=True)
    for name in (f"P(|shift|\n< {margin})", "P(best)"):
        shown.add_column(name, no_wrap=True, justify="right")
    for policy in analysis.policies:
        stands = analysis.source(policy) != "probes" and analysis.level(policy) != "refused"
        value = Text(_flagged(analysis, VALUE, policy), style="bold" if stands else "dim")
        if analysis.level(policy) == "refused" and not analysis.status(VALUE, policy).failed:
            value.append("\nlevel refused")
        if not analysis.status(SHIFT, policy).failed:
            corrected = f"\n{_flagged(analysis, SHIFT, policy)}\n{LABELS[CORRECTED]}"
            value.append(corrected, style="not bold" if stands else "not dim bold")
        decision = analysis.posterior.decision.sel(policy=policy)
        shift = analysis.estimates[SHIFT].sel(policy=policy)
        bounds = [_known(bound) for bound in shift["shift_interval"].values]
        shown.add_row(
            Text(policy),
            value,
            interval_text(analysis, _known(shift["shift"]), bounds, sign=True).replace(" [", "\n["),
            _probability(_known(decision["within_margin"])),
            _probability(_known(decision["best"])),
        )
    return [shown]


def _flagged(analysis: Analysis, estimator: str, policy: str) -> str:
    """Estimate with interval, and beneath it the named status of what is not plainly estimated."""
    status = analysis.status(estimator, policy)
    shown = cell(analysis, estimator, policy, interval=True)
    return shown if status is Status.OK or status.failed else f"{shown}\n{status.name.lower()}"


def _known(value: object) -> float | None:
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else None


def _probability(p: float | None) -> str:
    """Three decimals; a share of draws that is 0 or 1 says no more than that."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else ">0.999" if p > 0.999 else f"{p:.3f}"


def _log_tables(analysis: Analysis) -> list[Table]:
    """What the logged responses say: overlap with its gates, and the estimators that weight them."""
    if analysis.overlap is None:
        return []
    overlap = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    overlap.add_column("logged\nresponses", overflow="fold", min_width=8)
    for name in ("ESS/n\nraw", "ESS/n\nstabilised", "largest\nshare", "tail\nindex", "affinity\nA_B", "TTC"):
        overlap.add_column(name, no_wrap=True, justify="right")
    overlap.add_column("off-policy\ngates", overflow="fold", min_width=10)
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
    values = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    values.add_column(f"off-policy\n[{_percent(analysis)} interval]", overflow="fold", min_width=8)
    for name in analysis.off_policy:
        values.add_column(name.replace("_", "\n", 1), no_wrap=True)
    for policy in analysis.policies:
        cells = [
            cell(analysis, name, policy, interval=True).replace(" [", "\n[") for name in analysis.off_policy
        ]
        state = {"ok": "", "blocked": "\nblocked", "unknown": "\nnot established"}[
            str(passed["state"].sel(policy=policy).item())
        ]
        style = "dim" if state else ""
        values.add_row(Text(policy + state), *[Text(c, style=style) for c in cells])
    return [overlap, values]


def _contrast_table(analysis: Analysis) -> list[Table | Text]:
    records = contrast_records(analysis)
    if not records:
        return []
    notes = [Text(f"caution: {PLUG_IN}")] if any(record["caution"] for record in records) else []
    if len(records) > FEW_PAIRS:
        return [Text(f"{len(records)} pairwise differences: see --json or estimates.json"), *notes]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    shown.add_column("difference", overflow="fold")
    shown.add_column(f"value [{_percent(analysis)} interval]", no_wrap=True)
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
            interval_text(analysis, record["difference"], record["interval"], sign=True),
            _p_value(record["p_bh"]) if earned else "-",
            *[flips] * assumed,
            record["level"],
        )
    return [shown, *notes]


def _notes(analysis: Analysis) -> list[Text]:
    """What the words mean here, why levels are refused, what the arms disagree on, and what was left out."""
    lines = _levels(analysis) + _refusals(analysis) + _disagreements(analysis)
    meanings: dict[Status, list[str]] = {}
    for name in analysis.estimates:
        for policy in analysis.policies:
            status = analysis.status(name, policy)
            shown = name not in (CORRECTED, SHIFT) or analysis.source(policy) == "probes"
            shown |= status in (Status.NOT_CONVERGED, Status.FEW_LABELS_POSTERIOR)
            # said by the level, or by a dash
            said = (name, status) == ("labels_only", Status.NO_LABELS)
            said |= (name, status) == (analysis.primary, Status.TRANSPORT_ASSUMED)
            said |= (
                name == analysis.primary
                and status.failed
                and status.message in at_level(analysis, policy, "reason")
            )
            if status is not Status.OK and shown and not said:
                meanings.setdefault(status, []).append(f"{name} {policy}")
    lines += [f"{status.name.lower()}: {status.message}" for status in sorted(meanings)]
    if analysis.posterior is not None:
        seen = " and ".join(["the judge's score", *analysis.options["covariates"]])
        lines.append(f"posterior: monotone splines in {seen}; --calibrator does not apply to it")
    if "raw_judge" in analysis.estimates and analysis.primary != "raw_judge":
        lines.append("raw judge: what the judge says by itself, for comparison only")
    if analysis.primary == "raw_judge":
        lines.append("raw_judge: the judge is taken at its word; nothing corrects or audits its bias")
    lines += _cautions(analysis)
    lines += _advice(analysis)
    counts = analysis.ledger.groupby("reason", sort=True).size()
    lines += [f"left out: {count} ({reason})" for reason, count in counts.items()]
    return [Text("\n".join(lines))] if lines else []


def _levels(analysis: Analysis) -> list[str]:
    """One line for each word of the last column that occurs."""
    found = {analysis.level(policy) for policy in analysis.policies}
    words = {
        "reported": "labels or probes of the policy's own are in the value",
        "assumed": "borrowed from other policies' labels: true if the judge's scores mean the same for this policy, "
        "which nothing here has shown",
        "refused": "no number can be given that holds; the line below says what to do",
    }
    return [f"{word}: {meaning}" for word, meaning in words.items() if word in found]


def _refusals(analysis: Analysis) -> list[str]:
    """Why levels are refused and what to do, and what transport says of values that do not need it."""
    lines = []
    reasons: dict[str, list[str]] = {}
    for policy in analysis.policies:
        low, high = analysis.transport["interval"].sel(policy=policy).values
        within = f"residual {plain(analysis, low, sign=True)} to {plain(analysis, high, sign=True)}"
        if "transport" in analysis.refused_by(policy):
            lines.append(
                f"refused: {policy}: the calibration does not transport to it ({within}): label or probe "
                f"{guide.ENOUGH} of its responses"
            )
        elif analysis.level(policy) == "refused":
            why = f"{at_level(analysis, policy, 'reason')}{_bounds(analysis, policy)}"
            reasons.setdefault(why, []).append(policy)
        elif analysis.verdict(policy) == "FAIL":
            lines.append(
                f"not refused: {policy}: the calibration does not transport to it ({within}), and its value does not "
                "rely on that"
            )
    return (
        [f"refused: {', '.join(names)}: {why}" for why, names in reasons.items()]
        + lines
        + _undecided(analysis)
    )


def _undecided(analysis: Analysis) -> list[str]:
    """How many probes an audit that has not decided would take."""
    needed = {
        policy: float(analysis.transport["probes_to_pass"].sel(policy=policy))
        for policy in analysis.policies
        if analysis.verdict(policy) == "INCONCLUSIVE"
    }
    words = [f"{policy} {number:.0f}" for policy, number in needed.items() if math.isfinite(number)]
    if not words:
        return []
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    return [
        f"undecided: transport within {margin}: an audit that may pass takes about so many probes: {', '.join(words)}"
    ]


def _bounds(analysis: Analysis, policy: str) -> str:
    """What can be said of a refused level all the same, where the calibration holds inside the labelled range."""
    if analysis.refused_by(policy) not in (["identification"], ["estimate"]):
        return ""
    if analysis.status(analysis.primary, policy) not in (Status.TRANSPORT_ASSUMED, Status.LOW_SUPPORT):
        return ""
    low, high = analysis.bounds["interval"].sel(policy=policy).values
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return (
        f"; if the judge means the same where labels are, its value lies between {plain(analysis, low)} and "
        f"{plain(analysis, high)}"
    )


def _disagreements(analysis: Analysis) -> list[str]:
    """Where the posterior and the frequentist arm do not say the same; the stricter of the two stands."""
    if analysis.posterior is None:
        return []
    lines = []
    for policy in analysis.policies:
        audit = str(analysis.transport["verdict"].sel(policy=policy).item())
        belief = posterior_verdict(analysis.posterior, policy)
        if audit != belief and "NOT_CHECKED" not in (audit, belief):
            share = _probability(_known(analysis.posterior.decision["within_margin"].sel(policy=policy)))
            lines.append(
                f"disagree: transport to {policy}: the audit says {audit}, the posterior {belief} (P of a harmless "
                f"shift {share}); the stricter stands"
            )
        source = str(analysis.posterior.decision["source"].sel(policy=policy).item())
        ours, theirs = analysis.value.sel(policy=policy), analysis.estimates[source].sel(policy=policy)
        (a, b), (c, d) = ours["interval"].values, theirs["interval"].values
        if b < c or d < a:
            lines.append(
                f"disagree: the value of {policy} and its posterior ({plain(analysis, float(theirs['estimate']))}) lie "
                "outside each other's intervals: trust neither before more labels"
            )
    return lines


def _cautions(analysis: Analysis) -> list[str]:
    """What the gates hold against each assumed level, and what to do; policies with the same words together."""
    said: dict[str, list[str]] = {}
    for policy in analysis.policies:
        words = at_level(analysis, policy, "caveat")
        if words and analysis.level(policy) == "assumed":
            said.setdefault(words, []).append(policy)
    return [f"caution for {', '.join(names)}: {words}" for words, names in said.items()]


def _advice(analysis: Analysis) -> list[str]:
    """Which estimator the paper's guide would choose, one line per reason, and what it warns of."""
    said: dict[str, list[str]] = {}
    for policy in analysis.policies:
        at = analysis.guide.sel(policy=policy)
        words = "" if at["estimator"].item() == "none" else f"use {at['estimator'].item()}: "
        words += str(at["reason"].item())
        if at["alternative"].item():
            words += f". Alternative: {at['alternative'].item()}"
        if at["caution"].item():
            words += f". Caution: {at['caution'].item()}"
        said.setdefault(words, []).append(policy)
    return [f"guide for {', '.join(names)}: {words}" for words, names in said.items()]


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
