"""An analysis in sentences: the answer first, what it rests on, what to do next, and a methods paragraph to paste."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cje_core.workflow.analysis import Analysis
from studies.cli.analysis.lines.cautions import judged_by_itself, online_checks, unseen
from studies.cli.analysis.numbers import percent, plain, probability

NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.]*[A-Za-z_])")
MEANING = {
    "reported": "labels or probes of the policy's own are in the value",
    "assumed": "nothing here has shown that the judge's scores mean the same for it",
    "refused": "no number holds",
}


def answer(analysis: Analysis, told: Mapping[str, Any]) -> list[str]:
    """Who leads, and what of the values is reported, assumed or refused, and why."""
    lines = [_leader(analysis, told["best"])] if told["best"] else _alone(analysis)
    for level in ("reported", "assumed"):
        names = [p for p in analysis.policies if analysis.level(p) == level]
        if names:
            lines.append(f"{level.capitalize()}: {', '.join(names)}; {MEANING[level]}.")
    if any(told["policies"][p]["if_biased"] for p in analysis.policies):
        margin = plain(analysis, float(analysis.transport.attrs["margin"]))
        biased = ", ".join(_if_biased(analysis, told, margin))
        if biased:
            lines.append(f"If transport is off by up to {margin}: {biased}.")
    lines += [
        f"{line[0].upper()}{line[1:]}."
        for part in (unseen, judged_by_itself, online_checks)
        for line in part(analysis)
    ]
    refused = [policy for policy in analysis.policies if analysis.level(policy) == "refused"]
    reasons = _by_reason((policy, analysis.of_level("reason", policy).rstrip(".")) for policy in refused)
    return lines + [f"Refused: {', '.join(names)}; {reason}." for names, reason in reasons]


def _alone(analysis: Analysis) -> list[str]:
    known = [p for p in analysis.policies if analysis.standing(p)]
    if len(known) != 1:
        return ["No two policies have a value, so there is nobody to compare."] if not known else []
    at = analysis.value.sel(policy=known[0])
    low, high = (plain(analysis, float(end)) for end in at["interval"].values)
    value = plain(analysis, float(at["estimate"]))
    return [f"{known[0]} is worth {value}, {percent(analysis)} interval {low} to {high}."]


def _leader(analysis: Analysis, best: Mapping[str, Any]) -> str:
    name, behind = best["policy"], best["behind"]
    others = [p for p in best["compared"] if p != name and p not in behind]
    lent = ", if what is assumed holds" * any(analysis.level(p) == "assumed" for p in (name, *behind))
    absent = f" Not compared: {', '.join(best['left_out'])}." if best["left_out"] else ""
    if best["decided"]:
        flips = best["flips_at"]
        bound = f", while transport is off by less than {plain(analysis, flips)}" if flips else lent
        return f"{name} is best: ahead of {', '.join(behind)} by intervals that together leave out 0{bound}.{absent}"
    one = len(behind) == 1
    far = f" {', '.join(behind)} {'is' if one else 'are'} behind{lent}." if behind else ""
    return f"{name} has the largest value, but is not told apart from {', '.join(others)}.{far}{absent}"


def _if_biased(analysis: Analysis, told: Mapping[str, Any], margin: str) -> list[str]:
    lines = []
    for policy in analysis.policies:
        if told["policies"][policy]["if_biased"] and analysis.standing(policy):
            low, high = analysis.if_biased["interval"].sel(policy=policy).isel(delta=0).values
            lines.append(f"{policy} {plain(analysis, float(low))} to {plain(analysis, float(high))}")
    return lines


def next_steps(told: Mapping[str, Any]) -> list[tuple[list[str], str]]:
    """What to do, one line per reason, with the policies it is about; numbers that differ stand as their range."""
    steps: list[tuple[str, str]] = []
    for policy, at in told["policies"].items():
        advised = at["recommended"]
        use = f"use {advised['estimator']}: " if advised["estimator"] else ""
        steps += [(policy, use + advised["reason"]), (policy, advised["caution"])]
        if at["label_next"]:
            wanted = sum(region["labels"] for region in at["label_next"]["regions"])
            steps.append((policy, f"label {wanted} of its responses, at random in each region of scores"))
    return _by_reason(steps)


def _by_reason(said_of: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Policies and what is said of them, texts that differ in numbers alone as one; see `_ranged`."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for policy, text in said_of:
        if text:
            by_reason.setdefault(NUMBER.sub("#", text), []).append((policy, text))
    return [([name for name, _ in said], _ranged([text for _, text in said])) for said in by_reason.values()]


def _ranged(texts: Sequence[str]) -> str:
    """Texts that differ in numbers alone as one, with the smallest and the largest of each number.

    Examples
    --------
    >>> _ranged(["3% of the variance in 2 parts", "11% of the variance in 2 parts"])
    '3 to 11% of the variance in 2 parts'
    """
    columns = zip(*(NUMBER.findall(text) for text in texts), strict=True)
    ends = [(min(found, key=float), max(found, key=float)) for found in columns]
    shown = iter(low if float(low) == float(high) else f"{low} to {high}" for low, high in ends)
    return NUMBER.sub(lambda _: next(shown), texts[0])


def methods(analysis: Analysis, told: Mapping[str, Any]) -> list[str]:
    """A methods section; everything in it is of the analysis or of what it recorded."""
    manifest, counts = told["manifest"], told["manifest"]["counts"]
    responses, labels, probes = (
        sum(one[name] for one in counts.values()) for name in ("responses", "labels", "probes")
    )
    low, high = (f"{end:g}" for end in analysis.data.attrs["oracle_range"])
    covariates = manifest["covariates"]
    seen = f"the judge's score and {', '.join(covariates)}" if covariates else "the judge's score"
    with_probes = f", and {probes} more as probes, which never teach the calibrator" if probes else ""
    teachers = ", ".join(manifest["calibration_policy"])
    used: dict[str, list[str]] = {}
    for policy, at in told["policies"].items():
        if at["value"] is not None and at["value"]["estimate"] is not None:
            used.setdefault(at["value"]["from"], []).append(policy)
    whose = "; ".join(f"{name} of {', '.join(policies)}" for name, policies in used.items()) or "none"
    taught = f"a {manifest['calibrator']} calibrator taught by {teachers}" if teachers else "no calibrator"
    parts = [
        f"We estimated the value E[Y] of {len(counts)} policies from {responses} judged responses, {labels} of them "
        f"with an oracle label on the scale {low} to {high}{with_probes}.",
        f"Values, with {percent(analysis)} intervals, are those of the estimators: {whose} (cje-lab "
        f"{manifest['versions']['cje-lab']}; {seen}, {taught}).",
        "Levels that no label supports are refused."
        + f" Transport was audited on the probes against a margin of {manifest['margin']:g}." * bool(probes)
        + " p-values are adjusted by Benjamini and Hochberg over all pairs." * bool(told["contrasts"]),
    ]
    if analysis.posterior is not None:
        parts.append(
            f"Posteriors are of monotone splines in the score, sampled by {analysis.posterior.engine}; P(best) is "
            "over the policies with a value."
        )
    parts.append(f"Seed {manifest['seed']}. The method is that of the paper Causal Judge Evaluation.")
    return parts


def chances(told: Mapping[str, Any], policy: str) -> tuple[str, str]:
    """P(|shift| < margin) and P(best) of the posterior, as text."""
    found = told["policies"][policy]["posterior"] or {}
    return probability(found.get("p_shift_within_margin")), probability(found.get("p_best"))
