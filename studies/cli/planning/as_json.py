"""The JSON of ``cje-lab plan``, and what to do next: JSON values only, null for what is not known."""

import json
import math
from typing import Any

import xarray as xr

from cje_core import estimators
from cje_core.data.contract import teaching_policies
from cje_core.inference.estimate import Status
from cje_core.workflow.plan import Planned
from studies.cli.analysis.numbers import ends, known, numbers
from studies.engine.manifest import provenance


def to_json(planned: Planned) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    components, chosen, check = planned.components, planned.plan, planned.check
    calibration = planned.calibrated.calibration
    policies: dict[str, Any] = {}
    for policy in planned.policies:
        at = {"policy": policy}
        parts, value, forecast = components.sel(at), planned.value.sel(at), planned.forecast.sel(at)
        refused, if_labelled = policy in planned.refused, planned.if_labelled.sel(at)
        policies[policy] = {
            **numbers(
                parts, "sigma2_eval", "sigma2_eval_se", "sigma2_cal", "sigma2_cal_se", "calibration_share"
            ),
            "status": planned.status(policy).name.lower(),
            "level": str(planned.levels["level"].sel(at).item()),
            "refused_by": planned.refused_by(policy),
            "no_forecast": planned.silent(policy) or None,
            "pilot_std_error": known(value["std_error"]),
            "pilot_interval": ends(value["interval"]),
            "route": str(parts["route"].item()),
            "planned_route": "probe_tuned" if policy in planned.probe_labels else str(parts["route"].item()),
            "planned_probes": planned.probe_labels.get(policy),
            "planned_std_error": known(forecast["std_error"]),
            "planned_std_error_se": known(forecast["std_error_se"]),
            "probes_for_audit": known(planned.probes.get(policy, math.nan)),
            "variance_probes": known(parts["variance_probes"]),
            "needs_labels": planned.silent(policy) if refused else None,
            "std_error_of_own_labels_at_most": planned.worst_own(policy) if refused else None,
            "std_error_if_labelled": known(if_labelled["std_error"]),
            "labels_to_match_borrowing": known(if_labelled["labels_to_match"]),
        }
        if check is not None:
            seen = check.sel(at)
            policies[policy] |= {
                **numbers(seen, "simulated_std_error", "simulated_mcse", "reported_std_error"),
                "n_failed": int(seen["n_failed"]),
                "held": bool(seen["held"]) if math.isfinite(float(seen["planned_std_error"])) else None,
            }
    return {
        "pilot": {
            "prompts": components.attrs["n"],
            "labelled": components.attrs["m"],
            "balance": planned.pilot_balance._asdict(),
        },
        "plan": {
            "n": chosen.n,
            "m": chosen.m,
            "fraction": chosen.m / chosen.n,
            "cost": chosen.cost,
            "budget": planned.budget,
            "n_policies": planned.n_policies,
            "cost_per_prompt": planned.cost_per_prompt,
            "cost_per_label": planned.cost_per_label,
            "cost_per_probe": planned.cost_per_probe,
            "probes": planned.probe_labels,
            "stand_ins": planned.stand_ins,
            "balance": planned.balance._asdict(),
            "all_labelled": chosen.all_labelled,
            "extrapolates": planned.outside,
            "achievable": planned.achievable,
            "replicates": None if check is None else check.attrs["replicates"],
        },
        "policies": policies,
        "binary_judge": _binary(planned),
        "contrasts": contrast_records(planned),
        "next": next_steps(planned),
        "seconds": round(planned.seconds, 3),
        "manifest": {
            "seed": planned.seed,
            "margin": planned.margin,
            "power": planned.power,
            "direction": calibration.direction,
            "covariates": list(calibration.covariates),
            "calibrator": calibration.mode,
            "borrowed": planned.borrowed,
            "estimator": planned.estimator,
            "calibration_policy": teaching_policies(planned.data),
            "judge_range": planned.data.attrs["judge_range"],
            "oracle_range": planned.data.attrs["oracle_range"],
            "left_out": json.loads(planned.left_out.to_json(orient="records")),
            **provenance(),
        },
    }


def _binary(planned: Planned) -> dict[str, Any] | None:
    """How the labels of a binary judge are best split, by policy; None for any other judge."""
    found = planned.binary
    if found is None:
        return None
    names = [str(name) for name in found.data_vars]
    return {policy: numbers(found.sel(policy=policy), *names) for policy in planned.policies}


def binary_lines(planned: Planned) -> list[str]:
    """What the split of a binary judge's labels would save, where it saves anything to speak of."""
    found, lines = planned.binary, []
    for policy in planned.policies if found is not None else ():
        assert found is not None
        at = found.sel(policy=policy)
        if math.isnan(float(at["std_error_random"])):
            continue
        counts = {name: int(at[name]) for name in ("m_pass", "m_fail", "m_good", "m_bad")}
        lines.append(
            f"binary judge: rogan_gladen of {policy}, standard error {float(at['std_error_random']):.3g} with labels "
            "drawn at "
            f"random; {float(at['std_error_verdict']):.3g} with {counts['m_pass']} of responses that the judge "
            "passed and "
            f"{counts['m_fail']} that it failed (give their label_prob); {float(at['std_error_class']):.3g} with "
            f"{counts['m_good']} good and {counts['m_bad']} bad ones, where a pool of labels is at hand"
        )
    return lines


def contrast_records(planned: Planned) -> list[dict[str, Any]]:
    """Planned and simulated power of each difference to the reference."""
    alone = planned.n_policies == 1 and len(planned.policies) > 1  # a plan for one of them has no difference
    if planned.check is None or alone:
        return []
    pairs = [planned.check.isel(pair=k) for k in range(planned.check.sizes["pair"])]
    return [
        {
            "first": str(pair["first"].item()),
            "second": str(pair["second"].item()),
            **numbers(pair, "planned_mde", "simulated_power", "power_mcse"),
            **_held(planned, pair),
        }
        for pair in pairs
    ]


def _held(planned: Planned, pair: xr.Dataset) -> dict[str, Any]:
    """Whether the simulation bears out the power of one difference, or why there is none."""
    if bool(pair["beyond_scale"]):
        return {"held": None, "reason": nothing_detectable(planned)}
    if math.isnan(float(pair["planned_mde"])):
        named = (str(pair[end].item()) for end in ("first", "second"))
        lacking = [policy for policy in named if planned.silent(policy)]
        return {"held": None, "reason": f"no forecast for {', '.join(lacking)}"}
    return {"held": bool(pair["power_held"])}


def nothing_detectable(planned: Planned) -> str:
    """Why a difference has no detectable size."""
    width = planned.components.attrs["scale_width"]
    return (
        f"at this budget no difference that the oracle scale allows (its width is {width:g}) would be found with power "
        f"{planned.power:g}"
    )


def next_steps(planned: Planned) -> list[str]:
    """What to do now, one sentence each."""
    chosen = planned.plan
    taught = [p for p in planned.policies if bool(planned.data["labelled"].sel(policy=p).any())]
    under = "every policy" if planned.own else ", ".join(taught)
    judged = planned.data["evaluated"].any("draw").sum("prompt")
    prompts = planned.components.attrs["n"]
    partly = [f"{p} on {n}" for p in planned.policies if 0 < (n := int(judged.sel(policy=p))) < prompts]
    who = "the policies, each in its share of the pilot" if partly else "every policy"
    bought = ", ".join(f"{policy} {count}" for policy, count in planned.probe_labels.items())
    probing = f", probe a random part of the others' responses ({bought})" if bought else ""
    steps = [
        f"judge {chosen.n} prompts under {who}, label the responses of {under} to a random {chosen.m} of them"
        f"{probing}, then cje-lab analyze{' with --probes' if bought else ''}",
        *_reasons(planned, taught),
    ]
    if estimators.weights_logs(planned.estimator):
        steps.insert(
            0,
            f"log one response of the logger to each of the {chosen.n} prompts, judge it, and score it under every "
            "policy "
            "by teacher forcing (the budget counts the judge)",
        )
    if any(planned.status(policy) is Status.INVERTED_JUDGE for policy in planned.policies):
        steps.insert(
            0,
            "the judge ranks against the oracle: if a lower score means a better response, plan again with direction "
            "decreasing, before anything is bought",
        )
    if partly:
        steps.append(
            f"of its {prompts} prompts the pilot judged {', '.join(partly)}: cost and forecasts keep such shares, so "
            "more of them cost more and leave smaller errors"
        )
    steps += [
        f"no forecast for {policy}: {why}{_own_labels(planned, policy)}"
        for policy in planned.policies
        if (why := planned.silent(policy))
    ]
    lent = [p for p in planned.borrowing if planned.route(p) == "plug_in"]
    if lent:
        steps.append(
            f"expect intervals of {', '.join(lent)} up to half as wide again: the plan is of the plug-in, and analyze "
            "balances the labels that they borrow"
        )
    enough = planned.if_labelled["labels_to_match"]
    own = [
        f"{p} {float(enough.sel(policy=p)):.0f}" for p in planned.borrowing if float(enough.sel(policy=p)) > 0
    ]
    if own and not lent:
        steps.append(
            f"labels or probes of their own that do as well as borrowing, and assume no transport: {', '.join(own)}"
        )
    if planned.unmoved:
        steps.append(
            f"the values of {', '.join(planned.unmoved)} rest on their own probes, of which the plan buys none: more "
            "of these, not of the labels, shorten their intervals"
        )
    hopeless = [policy for policy, n in planned.probes.items() if math.isnan(n)]
    verdict = planned.transport["verdict"]
    failed = [policy for policy in planned.probes if verdict.sel(policy=policy).item() == "FAIL"]
    audited = {p: n for p, n in planned.probes.items() if not math.isnan(n) and p not in failed}
    if audited:
        shown = (
            f"{p} {n:.0f}"
            + (f" (the plan buys {planned.probe_labels[p]})" if p in planned.probe_labels else "")
            for p, n in audited.items()
        )
        top = "" if planned.probe_labels else ", on top of the budget"
        steps.append(
            f"probe labels for an audit within {planned.margin:g} at power 0.8{top}: {', '.join(shown)}"
        )
    if failed:
        steps.append(
            f"the calibration does not transport to {', '.join(failed)} (the pilot's audit fails): more probes "
            "serve the value, not an audit"
        )
    if hopeless:
        steps.append(
            f"the pilot does not say how many probes an audit of {', '.join(hopeless)} takes: probe a few of its "
            "responses, or label that policy itself"
        )
    if planned.check is not None and bool(planned.check["beyond_scale"].any()):
        steps.append(f"{nothing_detectable(planned)}: raise the budget, or report levels only")
    if planned.achievable is False:
        steps.append("count on the simulated numbers, not on the planned ones")
    if planned.outside:
        steps.append(
            "the plan leaves the pilot's range: run part of it, then plan again with that as the pilot"
        )
    return steps


def _reasons(planned: Planned, sources: list[str]) -> list[str]:
    """Sentences that say why the plan buys probes, or why a policy borrows all the same."""
    named, source = planned.probe_labels, ", ".join(sources)
    probed = [policy for policy in named if planned.route(policy) == "probe_tuned"]
    refused = [policy for policy in named if planned.route(policy) == "none"]
    reasons = []
    if probed:
        reasons.append(
            f"why probes: the values of {', '.join(probed)} rest on their own probes. Labels of {source} do not move "
            "them, so the plan buys probes"
        )
    if planned.stand_ins:
        who = ", ".join(planned.stand_ins)
        reasons.append(
            f"why probes: {who} could borrow, and be off by up to {planned.margin:g} without any label of {source} "
            "showing it. For this money probes leave a smaller error. The pilot has no probe of "
            f"{who}: forecast and simulation assume labels like those of {source} at like scores"
        )
    if refused:
        reasons.append(
            f"why probes: {', '.join(refused)} may not borrow, so only labels of its own give a value. "
            "Without any no error is forecast or simulated; the probes are shared out as if its labels varied like "
            "those at hand"
        )
    borrowing = planned.borrowing
    if borrowing and planned.estimator == "direct":
        reasons.append(
            f"{', '.join(borrowing)}: borrowed, as labels of {source} serve every policy. The planned errors assume "
            f"exact transport; a bias within {planned.margin:g} comes on top and falls with probes alone"
        )
    return reasons


def _own_labels(planned: Planned, policy: str) -> str:
    """Standard error that labels of its own leave a policy without a forecast, at worst."""
    if policy not in planned.refused:
        return ""
    if policy in planned.probe_labels:
        return (
            f" (the plan's {planned.probe_labels[policy]} probes of it give a standard error of at most "
            f"{planned.worst_own(policy):.2g}, whatever they say)"
        )
    where = "" if planned.own else ", on top of the budget,"
    return (
        f" ({planned.plan.m} labels or probes of its own{where} give a standard error of at most "
        f"{planned.worst_own(policy):.2g}, whatever they say)"
    )
