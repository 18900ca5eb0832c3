"""Lines that call for care: what labels, probes, logs and gates hold against the values shown.

Each function gives the lines of one kind, none where there is nothing to say.
"""

import numpy as np
import xarray as xr

from cje_core.data.contract import teaching_policies
from cje_core.inference.limits import unseen_share
from cje_core.offpolicy.log_likelihoods import refuted
from cje_core.transport.agreement import mixed
from cje_core.workflow.analysis import Analysis
from studies.cli.analysis.as_json import at_level
from studies.cli.analysis.numbers import interval_text, some, together

MISSED = 0.05  # share of a policy's responses that logs miss from which on lack of coverage is named
REFUTED = 0.01  # size of the test whether ratios can be likelihood ratios


def probes_elsewhere(analysis: Analysis) -> list[str]:
    """Probes of prompts that the data have not: fresh prompts of the same kind, or a slip in the ids."""
    probed = analysis.data["probe"].any("draw").sum("prompt")
    return [
        f"caution for {policy}: {len(names)} of its {int(probed.sel(policy=policy))} probed prompts have no response "
        f"in the data ({some(names)}): right if they were drawn like the data's prompts, else correct their prompt_id"
        for policy in analysis.policies
        if (names := analysis.probes_elsewhere(policy))
    ]


def contradictions(analysis: Analysis) -> list[str]:
    """Labelled policies whose labels contradict the calibration of the others, the worst first; what to do."""
    found = analysis.agreement
    named = found["policy"].values[found["contradicts"].values].astype(str).tolist()
    if not named or not (analysis.off_policy or any(map(analysis.borrows, analysis.policies))):
        return []
    policy = max(named, key=lambda name: abs(float(found["shown_residual"].sel(policy=name))))
    at, teachers = found.sel(policy=policy), teaching_policies(analysis.data)
    others = [name for name in teachers if name != policy]
    whose = others[0] if len(others) == 1 else "the others"
    region, where = int(at["shown_region"]), ""
    if region >= 0:
        where = f" at scores {float(at['score_low'][region]):.2g} to {float(at['score_high'][region]):.2g}"
    shown = interval_text(
        analysis, float(at["shown_residual"]), at["shown_interval"].values.tolist(), sign=True
    )
    so = "what is borrowed may hold for other policies no better"
    if mixed(found):
        so = "borrowed values mix them; choose one with --calibration-policy, or label each policy"
    return [
        f"caution: labels of {policy} and {whose} disagree about what a score is worth (residual of {policy} by the "
        f"calibration of {whose} {shown}{where}): {so}"
    ]


def unseen(analysis: Analysis) -> list[str]:
    """How far values could be from what their graded labels show, where the interval does not say it."""
    lines, (low, high) = [], analysis.data.attrs["oracle_range"]
    for policy in analysis.policies:
        at = analysis.value.sel(policy=policy)
        if not np.isfinite(at.get("unseen_bound", np.nan)):
            continue
        n, bound, value = int(at["unseen_by"]), float(at["unseen_bound"]), float(at["estimate"])
        fall = ("fail", "low") if bound < value else ("do far better", "high")
        lines.append(
            f"caution for {policy}: {n} labels cannot rule out that up to {float(unseen_share(n)):.0%} of answers "
            f"{fall[0]}; the value could be as {fall[1]} as {bound:.{2 if high - low <= 10 else 1}f}"
        )
    return lines


def not_random(analysis: Analysis) -> list[str]:
    """Labels and probes whose scores differ from the rest of their policy's."""
    lines = []
    for kind in analysis.balance["kind"].values.astype(str).tolist():
        unbalanced = analysis.balance["unbalanced"].sel(kind=kind)
        named = unbalanced["policy"].values[unbalanced.values].astype(str).tolist()
        if named:
            lines.append(
                f"caution for {', '.join(named)}: the judge scores of its {kind} are not those of its other "
                "responses, so they were not drawn at random and its value is off by what that favours; draw them at "
                "random, or declare their probabilities (label_prob)"
            )
    return lines


def batches(analysis: Analysis) -> list[str]:
    """What charts of probes that came in batches say, each alarm with what to do."""
    if analysis.drift is None:
        return []
    of_gate = analysis.gates.sel(gate="drift")
    words = {"pass": "none found for", "fail": "found for", "unknown": "not checked for"}
    said = together((p, str(of_gate["state"].sel(policy=p).item())) for p in analysis.policies)
    parts = [f"{words[state]} {names}" for state, names in said.items()]
    actions = sorted({str(word) for word in of_gate["action"].values} - {""})
    n = analysis.drift.sizes["batch"]
    return [f"drift over {n} batches of probes: {', '.join(parts)}{''.join(f'; {word}' for word in actions)}"]


def dearer_than_labels(analysis: Analysis) -> list[str]:
    """Where an estimator's interval is wider than that of the policy's labels by themselves."""
    lines = []
    for name, estimate in analysis.estimates.items():
        if "width_vs_labels" not in estimate:
            continue
        ratio = {p: float(estimate["width_vs_labels"].sel(policy=p)) for p in analysis.policies}
        wider = [f"{policy} {times:.1f}" for policy, times in ratio.items() if times > 1]
        if wider:
            lines.append(
                f"{name}: the judge costs more than it tells; times as wide as labels_only: {', '.join(wider)}"
            )
    return lines


def barely_passed(analysis: Analysis) -> list[str]:
    """Why what is borrowed is so wide where the judge only just passes the test of whether it may be believed."""
    judge = analysis.estimates[analysis.primary].attrs
    times = judge.get("judge_widening", 1.0)
    borrowed = any(
        analysis.level(p) == "assumed" and analysis.source(p) == "borrowed" for p in analysis.policies
    )
    if not borrowed or times < 1.05:
        return []
    return [
        f"the judge only just passes its test (p {judge['judge_p_value']:.3f}): for having passed, what is borrowed is "
        f"taken to be up to {times:.1f} times as uncertain; more labels settle it"
    ]


def of_gates(analysis: Analysis) -> list[str]:
    """What the gates hold against each assumed level, and what to do; policies with the same words together."""
    assumed = [policy for policy in analysis.policies if analysis.level(policy) == "assumed"]
    said = together((policy, at_level(analysis, policy, "caveat")) for policy in assumed)
    return [f"caution for {names}: {words}" for words, names in said.items() if words]


def judged_by_itself(analysis: Analysis) -> list[str]:
    """Policies that are the judge's own model, and what their audit says of it."""
    said = {
        "PASS": "its transport audit passed, so its calibration stands",
        "FAIL": "its transport audit failed",
        "INCONCLUSIVE": "its transport audit is undecided: probe more of its responses",
    }
    judge = analysis.data.attrs.get("judge_model")
    return [
        f"caution for {policy}: the judge ({judge}) is the same model and may prefer its own answers; "
        + said.get(analysis.verdict(policy), "probe 50 of its responses before its calibration is believed")
        for policy in analysis.own_judge
    ]


def online_checks(analysis: Analysis) -> list[str]:
    """Policies whose weighted logs decide nothing before an online check, with the reason."""
    why = analysis.guide["online_check"].to_series().to_dict()
    return [
        f"online check for {policy}: {reason}. Before acting on its weighted logs, let {policy} answer a small random "
        "share of live prompts"
        for policy, reason in why.items()
        if reason
    ]


def log_ratios(analysis: Analysis) -> list[str]:
    """Log ratios that no two policies have, and policies that look like the logger."""
    found = analysis.log_ratios
    if found is None:
        return []
    lines = []
    for policy, large in zip(
        found["policy"].values.astype(str), refuted(found["mean_ratio"], REFUTED), strict=True
    ):
        at = found.sel(policy=policy)
        if large:
            lines.append(
                f"caution for {policy}: its likelihood ratios to the logger have mean {float(at['mean_ratio']):.3g}, "
                "and "
                f"{1 / REFUTED:g} or more has probability at most {REFUTED:g}: they are of another text, template or "
                "model; cje-lab audit likelihoods checks the calls"
            )
        same = float(at["equal_share"])
        if same == 1:
            lines.append(
                f"logs: {policy} has the logger's own log-likelihoods: it is the logger, or its column a copy"
            )
        elif same > 0.5:
            lines.append(
                f"logs: {policy} has the logger's log-likelihood on {same:.0%} of its responses: if it is the "
                "logger, the "
                f"others (standard deviation {float(at['sd']):.2g} nats over all) are errors of teacher forcing"
            )
    return lines


def ratio_calibration(analysis: Analysis) -> list[str]:
    """One sentence for each verdict on the log ratios: an error, lack of coverage, either, or nothing found."""
    found = analysis.ratio_calibration
    if found is None:
        return []
    said = []
    for policy in analysis.policies:
        words = _of_ratios(found.sel(policy=policy))
        if words:
            said.append((policy, words))
    return [f"log ratios of {names}: {words}" for words, names in together(said).items()]


def _of_ratios(at: xr.Dataset) -> str:
    """Sentence on one policy's log ratios; empty where they were not checked."""
    verdict, two_sided = str(at["verdict"].item()), str(at["method"].item()) == "two_sided"
    missing = float(at["uncovered"])
    if verdict == "wrong":
        one = at.sel(function=str(at["worst"].item()))
        what = str(at["worst"].item())
        return (
            f"wrong. Weighted logs and fresh responses differ in the test function {what} "
            f"({float(one['logged']):.3g} against {float(one['fresh']):.3g}, standard error "
            f"{float(one['std_error']):.2g}), and lack of coverage cannot explain it. Check the log-likelihoods"
        )
    if verdict == "consistent" and two_sided:
        if missing >= MISSED:
            return (
                f"no error found, but the logs miss {missing:.0%} of its responses. Lack of coverage is the problem; "
                "better log-likelihoods would not help"
            )
        return "no error found; the weighted logs agree with its fresh responses wherever the logger goes"
    if verdict == "consistent":
        return "no error found from the logs alone; log_ratio in the fresh responses would make the check two-sided"
    if verdict == "undecided" and np.isfinite(float(at["overlap_ess"])):
        return (
            "cannot be checked: by these ratios next to none of its responses is like one of the logger's, so the "
            "logs lack coverage or the ratios are far off"
        )
    if verdict == "undecided":
        return (
            "too small, or the logs lack coverage: the weighted logs fall short of its fresh responses. Give the fresh "
            "responses their log_ratio to tell which"
        )
    return ""
