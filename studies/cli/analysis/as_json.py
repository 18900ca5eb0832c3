"""The JSON of ``cje-lab analyze``: JSON values only, null for NaN and for what was not computed."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.data.contract import teaching_policies
from cje_core.inference.estimate import Status
from cje_core.inference.pairs import ROUNDING
from cje_core.verdict import gates
from cje_core.verdict.headline import weaker
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import BAYESIAN, SHIFT, VALUE, posterior_verdict
from cje_core.workflow.reading.row_flow import COUNTS
from cje_core.workflow.standing import best, compared_by_posterior, shown_estimates
from studies.cli.analysis.lines.assumed import assumption_records
from studies.cli.analysis.lines.cohorts import cohort_records
from studies.cli.analysis.lines.support import label_next, order_records, support
from studies.cli.analysis.numbers import ends, known, numbers
from studies.engine.manifest import provenance

OVERLAP = (
    "ess_fraction",
    "ess_fraction_stabilised",
    "max_share",
    "ttc",
    "hill",
    "affinity",
    "affinity_corrected",
    "affinity_upper",
    "cle_factor",
)

LOG_RATIOS = ("mean", "sd", "equal_share", "mean_ratio", "mean_ratio_std_error")
RATIOS = ("p_value", "p_adjusted", "p_short", "n_prompts", "overlap_ess", "uncovered")
ABOUT_BORROWING = ("transport", "identification", "label_support")  # gates of a value that borrows
# What `cje_core.estimators.direct` says of differences between policies that borrow their calibration.
PLUG_IN = (
    "borrowed plug-in: with a weak judge or binary labels the 95% interval of such a difference covers 80-88%; "
    "--borrowed balanced, or the default spline, holds"
)


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    shown, posterior, reliability = shown_estimates(analysis), analysis.posterior, analysis.reliability
    compared = analysis.agreement["shown_residual"].notnull()
    judge = analysis.estimates[analysis.primary].attrs
    return {
        "policies": {policy: _policy(analysis, shown, policy) for policy in analysis.policies},
        "contrasts": contrast_records(analysis),
        "order": order_records(analysis),
        "assumptions": assumption_records(analysis),
        "best": _best(analysis),
        "agreement": [
            _agreement(analysis, policy) for policy in analysis.policies if compared.sel(policy=policy)
        ],
        "cohorts": cohort_records(analysis),
        "row_flow": _row_flow(analysis),
        "seconds": round(analysis.seconds, 3),
        "manifest": {
            "seed": analysis.seed,
            "primary": analysis.primary,
            "estimators": {
                name: {
                    **json.loads(e.attrs["options"]),
                    "ci_kind": e.attrs["ci_kind"],
                    "ci_prob": e.attrs["ci_prob"],
                    "estimand": e.attrs["estimand"],
                }
                for name, e in analysis.estimates.items()
            },
            "margin": float(analysis.transport.attrs["margin"]),
            "gates": {
                str(gate): _threshold(analysis.gates.sel(gate=gate)) for gate in analysis.gates["gate"].values
            },
            "calibrator": None if reliability is None else reliability.attrs["mode"],
            # the test that decides whether anything may be borrowed
            "judge": {name: known(judge[f"judge_{name}"]) for name in ("spearman", "p_value", "widening")}
            if "judge_p_value" in judge
            else None,
            "bayes_engine": None if posterior is None else posterior.engine,
            "covariates": list(analysis.calibrated.calibration.covariates),
            "direction": analysis.calibrated.calibration.direction,
            "subgroup": analysis.calibrated.calibration.groups,
            "cohort": analysis.data.attrs.get("cohort"),
            "calibration_policy": teaching_policies(analysis.data),
            "judge_model": analysis.data.attrs.get("judge_model"),
            "judge_range": analysis.data.attrs["judge_range"],
            "oracle_range": analysis.data.attrs["oracle_range"],
            "counts": {policy: _counts(analysis, policy) for policy in analysis.policies},
            "left_out": json.loads(analysis.left_out.to_json(orient="records")),
            **provenance(),
        },
    }


def _policy(analysis: Analysis, shown: Mapping[str, xr.Dataset], policy: str) -> dict[str, Any]:
    estimates = {name: estimate.sel(policy=policy) for name, estimate in shown.items()}
    transport, guide = analysis.transport.sel(policy=policy), analysis.guide.sel(policy=policy)
    states = analysis.gates["state"].sel(policy=policy)
    return {
        "estimates": {
            name: {
                **numbers(at, "estimate", "std_error"),
                "interval": ends(at["interval"]),
                "status": Status(at["status"].item()).name.lower(),
            }
            for name, at in estimates.items()
        },
        "value": _value(analysis, policy),
        "level": analysis.level(policy),
        "source": analysis.source(policy),
        "refused_by": analysis.refused_by(policy),
        "unseen_bound": known(analysis.value["unseen_bound"].sel(policy=policy))
        if "unseen_bound" in analysis.value
        else None,
        "flags": flags(analysis, policy),
        "judged_by_itself": policy in analysis.own_judge if "judge_model" in analysis.data.attrs else None,
        "if_biased": _if_biased(analysis, policy),
        "transport": {
            "verdict": analysis.verdict(policy),
            "residual": known(transport["residual"]),
            "interval": ends(transport["interval"]),
            "interval_with_fit": ends(transport["interval_with_fit"]),
            "probes_to_pass": known(transport["probes_to_pass"]),
            "verdict_of_audit": str(transport["verdict"].item()),
            "verdict_of_posterior": posterior_verdict(analysis.posterior, policy),
        },
        "probes_of_unknown_prompts": analysis.probes_elsewhere(policy),
        "posterior": _posterior(analysis, policy),
        "rank": _rank(analysis, policy),
        "serial": _serial(analysis, policy),
        "log_ratios": None
        if analysis.log_ratios is None
        else numbers(analysis.log_ratios.sel(policy=policy), *LOG_RATIOS),
        "ratio_calibration": _ratio_calibration(analysis, policy),
        "overlap": None
        if analysis.overlap is None
        else numbers(analysis.overlap.sel(policy=policy), *OVERLAP),
        "online_check": str(guide["online_check"].item()) or None,
        "gates": dict(zip(states["gate"].values.tolist(), states.values.tolist(), strict=True)),
        "gate_values": {
            gate: known(value)
            for gate, value in analysis.gates["value"].sel(policy=policy).to_series().items()
        },
        "gate_warnings": gate_warnings(analysis, policy),
        "bounds": ends(analysis.bounds["interval"].sel(policy=policy))
        if analysis.bounds_hold(policy)
        else None,
        "support": support(analysis, policy),
        "drift": _drift(analysis, policy),
        "label_next": label_next(analysis, policy),
        "recommended": {
            name: str(guide[name].item()) for name in ("estimator", "reason", "alternative", "caution")
        },
    }


def _ratio_calibration(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Return the audit of a policy's log ratios with its test functions; None without logged responses."""
    if analysis.ratio_calibration is None:
        return None
    at = analysis.ratio_calibration.sel(policy=policy)
    functions = {
        str(name): numbers(one, "logged", "fresh", "std_error")
        for name in at["function"].values
        if bool((one := at.sel(function=name))["logged"].notnull())
    }
    words = {name: str(at[name].item()) for name in ("verdict", "method", "worst")}
    return {**words, **numbers(at, *RATIOS), "functions": functions}


def _rank(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Rank of a value that stands among those that do; None for any other."""
    if analysis.ranks is None or policy not in analysis.ranks["policy"].values:
        return None
    at = analysis.ranks.sel(policy=policy)
    low, high = at["rank_interval"].values.tolist()
    return {
        "estimate": int(at["rank"]),
        "interval": [int(low), int(high)],
        "may_be_best": bool(at["best"]),
        **numbers(at, "p_best", "p_best_mcse"),
    }


def _serial(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Error of a value that stands, in blocks of time; None where it was not asked for."""
    if analysis.serial is None:
        return None
    at = analysis.serial.sel(policy=policy)
    found = numbers(at, "std_error", "std_error_serial", "mean_block")
    return {**found, "interval": ends(at["interval_serial"]), "order": analysis.serial.attrs["order"]}


def _drift(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Charts of a policy's probes over batches; None without batches, or without its probes."""
    if analysis.drift is None or policy not in analysis.drift["stream"].values:
        return None
    at = analysis.drift.sel(stream=policy)
    return {
        **numbers(at, "p_joint_bh", "drifted"),
        "batches": at.sizes["batch"],
        "probes": int(at["n_units"]),
    }


def _threshold(gate: xr.Dataset) -> dict[str, Any]:
    """One gate's two levels, which side of them is good, and where they come from."""
    return {
        **numbers(gate, "good", "critical"),
        "at_least": bool(gate["least"]),
        "source": str(gate["source"].item()),
    }


def _value(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """What stands first for a policy; None where its level is refused."""
    name, at = analysis.standing(policy), analysis.value.sel(policy=policy)
    if name is None:
        return None
    return {"estimate": known(at["estimate"]), "interval": ends(at["interval"]), "from": name}


def _if_biased(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Interval of an assumed level if transport is off by up to the margin; None for any other."""
    if analysis.level(policy) != "assumed" or analysis.source(policy) != "borrowed":
        return None
    found = analysis.if_biased.sel(policy=policy).isel(delta=0)
    return {"by": float(found["delta"]), "interval": ends(found["interval"])}


def _agreement(analysis: Analysis, policy: str) -> dict[str, Any]:
    """A policy's labels against the calibration of the other labelled policies: on average, or where it is worst."""
    at = analysis.agreement.sel(policy=policy)
    region = int(at["shown_region"])
    scores = None if region < 0 else [known(at[side][region]) for side in ("score_low", "score_high")]
    return {
        "policy": policy,
        "contradicts": bool(at["contradicts"]),
        "residual": known(at["shown_residual"]),
        "interval": ends(at["shown_interval"]),
        "scores": scores,
        "labels": int(at["n_labels"]),
    }


def _row_flow(analysis: Analysis) -> dict[str, dict[str, Any]]:
    """Rows of each policy from reading on, and its value if the ungraded ones were worth least, and most."""
    flow = analysis.row_flow
    return {
        policy: {
            **{name: int(at[name]) for name in COUNTS},
            **numbers(at, "ungraded_share", "worst", "best"),
            "bounds": ends(at["bounds"]),
            **numbers(at, "calibrated"),
            "calibrated_interval": ends(at["calibrated_interval"]),
            "ungraded_labels": int(at["ungraded_labels"]),
        }
        for policy in flow["policy"].values.astype(str)
        for at in [flow.sel(policy=policy)]
    }


def _best(analysis: Analysis) -> dict[str, Any] | None:
    """The best policy, of which, and how far that holds; with what P(best) is about."""
    found = best(analysis)
    if found is None:
        return None
    compared, left_out = compared_by_posterior(analysis)
    return {
        "policy": found.policy,
        "decided": found.decided,
        "flips_at": known(found.flips_at),
        "compared": found.compared,
        "behind": found.behind,
        "left_out": dict(found.left_out),
        "p_best": {"compared": compared, "left_out": left_out} if compared else None,
    }


def at_level(analysis: Analysis, policy: str, variable: str) -> Any:
    """One field of the refusal table."""
    return analysis.levels[variable].sel(policy=policy).item()


def unused_probes(analysis: Analysis, policy: str) -> bool:
    """Whether a policy has probes that make no value: too few, or without spread."""
    probed = int(analysis.guide["n_probes"].sel(policy=policy)) > 0
    return probed and bool(analysis.corrector) and analysis.source(policy) not in ("own", "probes")


def flags(analysis: Analysis, policy: str) -> list[str]:
    """Name what a reader must know before using the number of one policy."""
    standing = analysis.standing(policy)
    status = analysis.status(standing or analysis.primary, policy)
    named = [] if status is Status.OK else [status.name.lower()]
    if analysis.agreement["contradicts"].any() and analysis.borrows(policy):
        named.append("labels_disagree")
    if unused_probes(analysis, policy):
        named.append("probes_not_used")
    unbalanced = analysis.balance["unbalanced"].sel(policy=policy)
    named += [f"{kind}_not_random" for kind in unbalanced["kind"].values[unbalanced.values].astype(str)]
    if analysis.source(policy) in ("own", "probes"):
        about: tuple[str, ...] = ABOUT_BORROWING  # and here nothing is borrowed
    else:
        about, verdict = ("transport",), analysis.verdict(policy)
        if not status.failed and verdict != "PASS":
            named.append(f"transport_{verdict.lower()}")
    weighted = ("off_policy", "dr") if analysis.primary in analysis.off_policy else ()
    gated = gates.flags(analysis.gates, policy, applies_to=("level", "comparison", *weighted))
    return named + [flag for flag in gated if flag.rsplit("_", 1)[0] not in about]


def gate_warnings(analysis: Analysis, policy: str) -> dict[str, dict[str, Any]]:
    """Value, threshold and mend of each gate that warned or failed, where it is about the value that stands."""
    state = analysis.gates["state"].sel(policy=policy)
    beside = ABOUT_BORROWING if analysis.source(policy) in ("own", "probes") else ()
    return {
        gate: {**numbers(of, "value", "good"), "action": str(of["action"].item())}
        for gate, said in zip(state["gate"].values.tolist(), state.values, strict=True)
        if said in ("warn", "fail") and gate not in beside
        for of in [analysis.gates.sel(policy=policy, gate=gate)]
    }


def _posterior(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Shift and decision; the corrected value stands among the estimates."""
    if analysis.posterior is None:
        return None
    decision = analysis.posterior.decision.sel(policy=policy)
    value, corrected = analysis.estimates[VALUE], analysis.estimates[SHIFT].sel(policy=policy)
    return {
        "value_from": str(decision["source"].item()),
        "p_best": known(decision["best"]),
        "p_best_mcse": known(decision["best_mcse"]),
        "expected_loss": known(decision["expected_loss"]),
        "p_flat_judge": known(value["flat_judge"]) if "flat_judge" in value else None,
        "shift": known(corrected["shift"]),
        "shift_interval": ends(corrected["shift_interval"]),
        "p_shift_within_margin": known(decision["within_margin"]),
        "status": {name: analysis.status(name, policy).name.lower() for name in BAYESIAN},
    }


def contrast_records(analysis: Analysis) -> list[dict[str, Any]]:
    """Pairwise differences of the values that stand first; no number where the level of one of the two is refused."""
    if analysis.contrasts is None:
        return []
    assert analysis.tipping is not None
    records = []
    for k, tipping in enumerate(analysis.tipping["tipping"].values.tolist()):
        pair = analysis.contrasts.isel(pair=k)
        first, second = str(pair["first"].item()), str(pair["second"].item())
        routes = analysis.value["route"].sel(policy=[first, second]).values
        same = _same(analysis, pair)
        stands = same or bool(np.isfinite(pair["interval"]).all())
        level = weaker(analysis.level(first), analysis.level(second)) if stands else "refused"
        records.append(
            {
                "first": first,
                "second": second,
                "difference": known(pair["difference"]) if stands else None,
                "same": same,
                "std_error": known(pair["std_error"]),
                "interval": ends(pair["interval"]),
                **numbers(pair, "p_value", "p_bh"),
                "level": level,
                # by how much transport may be off before a decided difference is undecided
                "flips_at": tipping if level == "assumed" and 0 < tipping < math.inf else None,
                "caution": PLUG_IN if "plug_in" in routes else None,
            }
        )
    return records


def _same(analysis: Analysis, pair: xr.Dataset) -> bool:
    """Whether two values that stand differ by rounding alone: then there is no difference, and no interval of one."""
    low, high = analysis.data.attrs["oracle_range"]
    rounding = abs(float(pair["difference"])) <= ROUNDING * (high - low)
    return bool(rounding and np.isnan(pair["std_error"]) and np.isnan(pair["interval"]).all())


def _counts(analysis: Analysis, policy: str) -> dict[str, int]:
    at = analysis.data.sel(policy=policy)
    kinds = {"responses": "evaluated", "labels": "labelled", "probes": "probe"}
    stands_for = at.get("stands_for", 1)
    return {name: round(float((at[variable] * stands_for).sum())) for name, variable in kinds.items()}
