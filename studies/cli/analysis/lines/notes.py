"""The lines below the tables of ``cje-lab analyze``: what the words mean here, why, and what to do next."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from rich.text import Text

from cje_core import estimators
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.inference.estimate import Status
from cje_core.io.intake.names import CAUTION
from cje_core.transport.agreement import mixed
from cje_core.verdict import guide
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import SHIFT, posterior_verdict
from cje_core.workflow.standing import best, compared_by_posterior, withheld
from studies.cli.analysis.as_json import at_level, unused_probes
from studies.cli.analysis.lines import cautions
from studies.cli.analysis.lines.assumed import assumption_lines
from studies.cli.analysis.lines.cohorts import cohort_lines, overlap_help
from studies.cli.analysis.lines.flow import flow_lines
from studies.cli.analysis.lines.support import support_lines
from studies.cli.analysis.numbers import known, percent, plain, probability, some, together

MOST_RANKED = 10  # policies on one line


def notes(analysis: Analysis) -> list[Text]:
    """What the words mean here, why levels are refused, what the arms disagree on, and what was left out."""
    lines = _levels(analysis) + _refusals(analysis) + support_lines(analysis)
    lines += _unused_probes(analysis) + _disagreements(analysis)
    meanings: set[Status] = set()
    lent: dict[str, None] = {}  # estimators with logs that borrow, in their order
    for name in analysis.estimates:
        for policy in analysis.policies:
            status = analysis.status(name, policy)
            shown = name not in (analysis.corrector, SHIFT) or analysis.source(policy) == "probes"
            shown |= status in (Status.NOT_CONVERGED, Status.FEW_LABELS_POSTERIOR)
            # said by a dash, or by the level
            said = (name, status) == (estimators.alone("oracle"), Status.NO_LABELS)
            if name == analysis.primary:
                of_level = status.failed and status.message in at_level(analysis, policy, "reason")
                said |= of_level or status is Status.TRANSPORT_ASSUMED
            if status is Status.OK or said or not shown or withheld(analysis, name, policy):
                continue
            if status is Status.TRANSPORT_ASSUMED and name in analysis.off_policy:
                lent.setdefault(name)
            else:
                meanings.add(status)
    lines += [f"{status.name.lower()}: {status.message}" for status in sorted(meanings)]
    if lent:
        lines.append(f"{', '.join(lent)}: {Status.TRANSPORT_ASSUMED.message}")
    lines += _unseen_covariates(analysis)
    if analysis.posterior is not None:
        seen = " and ".join(["the judge's score", *analysis.calibrated.calibration.covariates])
        lines.append(f"posterior: monotone splines in {seen}; --calibrator does not apply to it")
    judge = estimators.alone("judge")
    if analysis.primary == judge:
        lines.append(f"{judge}: the judge is taken at its word; nothing corrects or audits its bias")
    elif judge in analysis.estimates:
        lines.append(f"{estimators.role(judge).label}: what the judge says by itself, for comparison only")
    for part in (
        cautions.contradictions,
        cautions.probes_elsewhere,
        cautions.not_random,
        cautions.unseen,
        assumption_lines,
        cautions.batches,
        cautions.dearer_than_labels,
        cautions.barely_passed,
        cautions.of_gates,
        cohort_lines,
        overlap_help,
        _best,
        _ranks,
        cautions.judged_by_itself,
        cautions.online_checks,
        cautions.log_ratios,
        cautions.ratio_calibration,
        _advice,
    ):
        lines += part(analysis)
    lines += flow_lines(analysis) + left_out_lines(analysis.left_out)
    return [Text("\n".join(lines))] if lines else []


def _unseen_covariates(analysis: Analysis) -> list[str]:
    """Where the covariates count, if the calibrator in use does not see them."""
    names, fitted = analysis.calibrated.calibration.covariates, analysis.reliability
    if not names or fitted is None or fitted.attrs["mode"] != "monotone":
        return []
    options = json.loads(analysis.estimates[analysis.primary].attrs["options"])
    balanced = options.get("borrowed") in ("spline", "balanced")
    places = ["what is borrowed is balanced on them"] * balanced
    places += ["the posterior sees them"] * (analysis.posterior is not None)
    words = " and ".join(places) or "they are not used"
    return [f"covariates ({', '.join(names)}): the calibrator in use sees the judge's score alone; {words}"]


def left_out_lines(left_out: pd.DataFrame) -> list[str]:
    """Rows that were not usable, by file, policy and reason: which they are, and what of them is wrong."""
    lines = []
    for (file, reason, policy), entries in left_out.groupby(["file", "reason", "policy"], sort=True):
        rows = entries["row"].dropna().astype(int).tolist()
        where = f", row {rows[0]}" if len(rows) == 1 else f", {len(rows)} rows ({some(rows)})" if rows else ""
        whose = f" (policy {policy})" if policy else ""
        if (words := str(reason)).startswith(CAUTION):  # the file was read all the same
            lines.append(f"{CAUTION}{file}: {words.removeprefix(CAUTION)}")
        else:
            lines.append(f"left out: {file}{where}: {reason}{whose}")
    return lines


def _levels(analysis: Analysis) -> list[str]:
    """One line for each word of the last column that occurs."""
    found = [(analysis.level(policy), analysis.source(policy)) for policy in analysis.policies]
    assumed = {
        "borrowed": "borrowed from other policies' labels: true if the judge's scores mean the same for this policy, "
        "which nothing here has shown",
        "judge": "the judge at its word: true if its scores are the oracle's, which nothing here has shown",
        "logs": "logged responses of another policy, weighted: true if the logs cover this policy and the judge's "
        "scores mean the same for it",
    }
    words = {
        "reported": ["labels or probes of the policy's own are in the value"],
        "assumed": [meaning for source, meaning in assumed.items() if ("assumed", source) in found],
        "refused": ["no number can be given that holds; the line below says what to do"],
    }
    if analysis.contrasts is not None:
        words["assumed"].append("p-values are for differences of reported values")
    seen = {level for level, _ in found}
    return [f"{word}: {meaning}" for word, meanings in words.items() if word in seen for meaning in meanings]


def _refusals(analysis: Analysis) -> list[str]:
    """Why levels are refused and what to do, and what transport says of values that do not need it."""
    lines, reasons = [], []
    for policy in analysis.policies:
        low, high = analysis.transport["interval"].sel(policy=policy).values
        within = f"residual {plain(analysis, low, sign=True)} to {plain(analysis, high, sign=True)}"
        if "transport" in analysis.refused_by(policy):
            lines.append(
                f"refused: {policy}: the calibration does not transport to it ({within}): label or probe "
                f"{guide.ENOUGH} of its responses"
            )
        elif analysis.level(policy) == "refused":
            reasons.append((policy, f"{at_level(analysis, policy, 'reason')}{_bounds(analysis, policy)}"))
        elif analysis.verdict(policy) == "FAIL":
            lines.append(
                f"not refused: {policy}: the calibration does not transport to it ({within}), and its value does not "
                "rely on that"
            )
    refused = [f"refused: {names}: {why}" for why, names in together(reasons).items()]
    return refused + lines + _undecided(analysis)


def _unused_probes(analysis: Analysis) -> list[str]:
    """Probes that make no value, and why: a user who bought them must not think that they did."""
    lines = []
    for policy in analysis.policies:
        if not unused_probes(analysis, policy):
            continue
        n_probes = int(analysis.guide["n_probes"].sel(policy=policy))
        status = analysis.status(analysis.corrector, policy)
        why = f"a value takes {MIN_LABELLED_CLUSTERS}" if n_probes < MIN_LABELLED_CLUSTERS else status.message
        if status is Status.CONSTANT_LABELS:
            at = analysis.data.sel(policy=policy)
            label = plain(analysis, float(at["oracle"].where(at["probe"]).max()))
            why = f"their labels are all {label}, which shows no spread, so neither value nor audit has an interval"
        lines.append(
            f"not used: probes of {policy} (prompts: {n_probes}): {why}; probe more of its responses"
        )
    return lines


def _barred(analysis: Analysis, policy: str) -> bool:
    """Whether nothing is borrowed for a policy whatever an audit said: no audit serves it."""
    status = analysis.status(analysis.primary, policy)
    contradicted = mixed(analysis.agreement) and analysis.source(policy) != "own"
    return contradicted or status in (Status.UNINFORMATIVE_JUDGE, Status.LOW_SUPPORT)


def _undecided(analysis: Analysis) -> list[str]:
    """How many probes an audit that has not decided would take."""
    words = []
    for policy in analysis.policies:
        audit = analysis.transport.sel(policy=policy)
        number = float(audit["probes_to_pass"])
        if audit["verdict"] == "INCONCLUSIVE" and math.isfinite(number) and not _barred(analysis, policy):
            words.append(f"{policy} {number:.0f}")
    if not words:
        return []
    margin = plain(analysis, float(analysis.transport.attrs["margin"]))
    return [
        f"undecided: transport within {margin}: an audit that may pass takes about so many probes: {', '.join(words)}"
    ]


def _bounds(analysis: Analysis, policy: str) -> str:
    """What can be said of a refused level all the same, where the calibration holds inside the labelled range."""
    if not analysis.bounds_hold(policy):
        return ""
    low, high = analysis.bounds["interval"].sel(policy=policy).values
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
            share = probability(known(analysis.posterior.decision["within_margin"].sel(policy=policy)))
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


def _best(analysis: Analysis) -> list[str]:
    """Which policies are compared, which of them is best, and which are left out and why."""
    found, lines = best(analysis), []
    if found is not None:
        others = [policy for policy in found.compared if policy != found.policy]
        words = f"best: {found.policy}: ahead of {some(others)} by intervals that together leave out 0"
        if not found.decided:
            still = [policy for policy in found.compared if policy not in found.behind]
            words = f"best: not decided among {some(still)}: {found.policy} has the largest value"
            if found.behind:
                lent = any(analysis.level(policy) == "assumed" for policy in (found.policy, *found.behind))
                words += f"; behind it{', if what is assumed holds' * lent}: {some(found.behind)}"
        elif math.isfinite(found.flips_at):
            words += f", while transport is off by less than {plain(analysis, found.flips_at)}"
        elif any(analysis.level(policy) == "assumed" for policy in found.compared):
            words += ", if what is assumed holds"
        lines.append(words + _absent(dict.fromkeys(found.left_out, "level refused")))
    compared, left_out = compared_by_posterior(analysis)
    if left_out:
        lines.append(f"P(best): among {some(compared)}{_absent(left_out)}")
    return lines


def _ranks(analysis: Analysis) -> list[str]:
    """Which ranks each value may have, all at once, and how likely it is the best of them."""
    found = analysis.ranks
    if found is None:
        return []
    if found.sizes["policy"] > MOST_RANKED:
        return [f"ranks of {found.sizes['policy']} policies: see the JSON"]
    words = []
    for policy in found["policy"].values[np.argsort(found["rank"].values, kind="stable")].astype(str):
        at = found.sel(policy=policy)
        low, high = at["rank_interval"].values.astype(int)
        words.append(
            f"{policy} {low if low == high else f'{low} to {high}'} ({probability(known(at['p_best']))})"
        )
    lent = any(analysis.level(policy) == "assumed" for policy in found["policy"].values.astype(str))
    return [
        f"ranks that hold all together with {percent(analysis)}, and P(best)"
        f"{', if what is assumed holds' * lent}: {', '.join(words)}"
    ]


def _absent(left_out: Mapping[str, str]) -> str:
    """The policies that are not compared, and why."""
    named = [f"{policy} ({why})" for policy, why in left_out.items()]
    return f"; not compared: {some(named)}" if named else ""


def _advice(analysis: Analysis) -> list[str]:
    """Which estimator the paper's guide would choose, one line per reason, and what it warns of."""
    said = []
    for policy in analysis.policies:
        at = {name: word.item() for name, word in analysis.guide.sel(policy=policy).items()}
        words = "" if at["estimator"] == "none" else f"use {at['estimator']}: "
        words += at["reason"]
        for also in ("alternative", "caution"):
            words += f". {also.capitalize()}: {at[also]}" if at[also] else ""
        said.append((policy, words))
    return [f"guide for {names}: {words}" for words, names in together(said).items()]
