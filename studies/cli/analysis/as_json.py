"""The JSON of ``cje-lab analyze``: JSON values only, null for NaN and for what was not computed."""

import json
import math
from typing import Any

import numpy as np
import xarray as xr

from cje_core.inference.contrasts import ROUNDING
from cje_core.inference.estimate import Status
from cje_core.verdict import gates
from cje_core.verdict.headline import weaker
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.analyze import CORRECTED
from cje_core.workflow.posterior import BAYESIAN, SHIFT, VALUE, posterior_verdict
from cje_core.workflow.standing import best, compared_by_posterior, shown_estimates
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

ABOUT_BORROWING = ("transport", "identification", "label_support")  # gates of a value that borrows
# What `cje_core.estimators.direct` says of differences between policies that borrow their calibration.
PLUG_IN = (
    "borrowed plug-in: with a weak judge or binary labels the 95% interval of such a difference covers 80-88%; "
    "--borrowed balanced, the default, holds"
)


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the object that ``--json`` prints: JSON values only, null for NaN and for what was not computed."""
    transport, shown = analysis.transport, shown_estimates(analysis)
    policies = {}
    for policy in analysis.policies:
        at = {"policy": policy}
        policies[policy] = {
            "estimates": {
                name: {
                    "estimate": _number(estimate["estimate"].sel(at)),
                    "std_error": _number(estimate["std_error"].sel(at)),
                    "interval": [_number(bound) for bound in estimate["interval"].sel(at).values],
                    "status": Status(estimate["status"].sel(at).item()).name.lower(),
                }
                for name, estimate in shown.items()
            },
            "value": _value(analysis, policy),
            "level": analysis.level(policy),
            "source": analysis.source(policy),
            "refused_by": analysis.refused_by(policy),
            "flags": flags(analysis, policy),
            "if_biased": _if_biased(analysis, policy),
            "transport": {
                "verdict": analysis.verdict(policy),
                "residual": _number(transport["residual"].sel(at)),
                "interval": [_number(bound) for bound in transport["interval"].sel(at).values],
                "interval_with_fit": [
                    _number(bound) for bound in transport["interval_with_fit"].sel(at).values
                ],
                "probes_to_pass": _number(transport["probes_to_pass"].sel(at)),
                "verdict_of_audit": str(transport["verdict"].sel(at).item()),
                "verdict_of_posterior": posterior_verdict(analysis.posterior, policy),
            },
            "probes_of_unknown_prompts": analysis.probes_elsewhere(policy),
            "posterior": _posterior(analysis, policy),
            "overlap": _overlap(analysis, policy),
            "gates": {
                str(gate): str(analysis.gates["state"].sel(policy=policy, gate=gate).item())
                for gate in analysis.gates["gate"].values
            },
            "gate_warnings": gate_warnings(analysis, policy),
            "bounds": [_number(bound) for bound in analysis.bounds["interval"].sel(at).values]
            if analysis.bounds_hold(policy)
            else None,
            "recommended": {
                name: str(analysis.guide[name].sel(at).item())
                for name in ("estimator", "reason", "alternative", "caution")
            },
        }
    return {
        "policies": policies,
        "contrasts": contrast_records(analysis),
        "best": _best(analysis),
        "agreement": [
            _agreement(analysis, policy) for policy in analysis.policies if _compared(analysis, policy)
        ],
        "seconds": round(analysis.seconds, 3),
        "manifest": {
            "seed": analysis.seed,
            "primary": analysis.primary,
            "estimators": {
                name: {
                    **json.loads(e.attrs["options"]),
                    "ci_kind": e.attrs["ci_kind"],
                    "ci_prob": e.attrs["ci_prob"],
                }
                for name, e in analysis.estimates.items()
            },
            "margin": float(transport.attrs["margin"]),
            "calibrator": None if analysis.reliability is None else analysis.reliability.attrs["mode"],
            "judge": _judge(analysis),
            "bayes_engine": None if analysis.posterior is None else analysis.posterior.engine,
            "covariates": list(analysis.calibrated.calibration.covariates),
            "direction": analysis.calibrated.calibration.direction,
            "calibration_policy": analysis.data.attrs["calibration_policy"],
            "judge_range": analysis.data.attrs["judge_range"],
            "oracle_range": analysis.data.attrs["oracle_range"],
            "counts": {policy: _counts(analysis, policy) for policy in analysis.policies},
            "left_out": json.loads(analysis.left_out.to_json(orient="records")),
            **provenance(),
        },
    }


def _value(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """What stands first for a policy; None where its level is refused."""
    name = analysis.standing(policy)
    if name is None:
        return None
    at = analysis.value.sel(policy=policy)
    return {
        "estimate": _number(at["estimate"]),
        "interval": [_number(bound) for bound in at["interval"].values],
        "from": name,
    }


def _judge(analysis: Analysis) -> dict[str, float | None] | None:
    """Return the test that decides whether anything may be borrowed; None where nothing was to be."""
    attrs = analysis.estimates[analysis.primary].attrs
    if "judge_p_value" not in attrs:
        return None
    return {"spearman": _number(attrs["judge_spearman"]), "p_value": _number(attrs["judge_p_value"])}


def _if_biased(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Interval of an assumed level if transport is off by up to the margin; None for any other."""
    if analysis.level(policy) != "assumed" or analysis.source(policy) != "borrowed":
        return None
    found = analysis.if_biased["interval"].sel(policy=policy).isel(delta=0)
    return {
        "by": float(analysis.if_biased["delta"].values[0]),
        "interval": [_number(bound) for bound in found.values],
    }


def _compared(analysis: Analysis, policy: str) -> bool:
    return bool(np.isfinite(analysis.agreement["shown_residual"].sel(policy=policy)))


def _agreement(analysis: Analysis, policy: str) -> dict[str, Any]:
    """A policy's labels against the calibration of the other labelled policies: on average, or where it is worst."""
    at = analysis.agreement.sel(policy=policy)
    region = int(at["shown_region"])
    scores = None if region < 0 else [_number(at[side][region]) for side in ("score_low", "score_high")]
    return {
        "policy": policy,
        "contradicts": bool(at["contradicts"]),
        "residual": _number(at["shown_residual"]),
        "interval": [_number(bound) for bound in at["shown_interval"].values],
        "scores": scores,
        "labels": int(at["n_labels"]),
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
        "flips_at": _number(found.flips_at),
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
    return probed and CORRECTED in analysis.estimates and analysis.source(policy) not in ("own", "probes")


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
    exposed = ("level", "comparison") + (
        ("off_policy", "dr") if analysis.primary in analysis.off_policy else ()
    )
    gated = gates.flags(analysis.gates, policy, applies_to=exposed)
    return named + [flag for flag in gated if flag.rsplit("_", 1)[0] not in about]


def gate_warnings(analysis: Analysis, policy: str) -> dict[str, dict[str, Any]]:
    """Value, threshold and mend of each gate that warned or failed, where it is about the value that stands."""
    at = analysis.gates.sel(policy=policy)
    beside = ABOUT_BORROWING if analysis.source(policy) in ("own", "probes") else ()
    return {
        str(gate): {
            "value": _number(at["value"].sel(gate=gate)),
            "good": _number(at["good"].sel(gate=gate)),
            "action": str(at["action"].sel(gate=gate).item()),
        }
        for gate in at["gate"].values
        if at["state"].sel(gate=gate).item() in ("warn", "fail") and gate not in beside
    }


def _posterior(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Shift and decision; the corrected value stands among the estimates."""
    if analysis.posterior is None:
        return None
    decision = analysis.posterior.decision.sel(policy=policy)
    value, corrected = analysis.estimates[VALUE], analysis.estimates[SHIFT].sel(policy=policy)
    return {
        "value_from": str(decision["source"].item()),
        "p_best": _number(decision["best"]),
        "p_best_mcse": _number(decision["best_mcse"]),
        "expected_loss": _number(decision["expected_loss"]),
        "p_flat_judge": _number(value["flat_judge"]) if "flat_judge" in value else None,
        "shift": _number(corrected["shift"]),
        "shift_interval": [_number(bound) for bound in corrected["shift_interval"].values],
        "p_shift_within_margin": _number(decision["within_margin"]),
        "status": {name: analysis.status(name, policy).name.lower() for name in BAYESIAN},
    }


def _overlap(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    if analysis.overlap is None:
        return None
    return {name: _number(analysis.overlap[name].sel(policy=policy)) for name in OVERLAP}


def contrast_records(analysis: Analysis) -> list[dict[str, Any]]:
    """Pairwise differences of the values that stand first; no number where the level of one of the two is refused."""
    if analysis.contrasts is None:
        return []
    records = []
    for k in range(analysis.contrasts.sizes["pair"]):
        pair = analysis.contrasts.isel(pair=k)
        first, second = str(pair["first"].item()), str(pair["second"].item())
        routes = analysis.value["route"].sel(policy=[first, second]).values
        records.append(
            {
                "first": first,
                "second": second,
                "difference": _number(pair["difference"])
                if np.isfinite(pair["interval"]).all() or _same(analysis, pair)
                else None,
                "same": _same(analysis, pair),
                "std_error": _number(pair["std_error"]),
                "interval": [_number(bound) for bound in pair["interval"].values],
                "p_value": _number(pair["p_value"]),
                "p_bh": _number(pair["p_bh"]),
                "level": (level := _pair_level(analysis, k)),
                "flips_at": _flips_at(analysis, k) if level == "assumed" else None,
                "caution": PLUG_IN if "plug_in" in routes else None,
            }
        )
    return records


def _same(analysis: Analysis, pair: xr.Dataset) -> bool:
    """Whether two values that stand differ by rounding alone: then there is no difference, and no interval of one."""
    low, high = analysis.data.attrs["oracle_range"]
    rounding = abs(float(pair["difference"])) <= ROUNDING * (high - low)
    return bool(rounding and np.isnan(pair["std_error"]) and np.isnan(pair["interval"]).all())


def _pair_level(analysis: Analysis, pair: int) -> str:
    """The weaker word of two values, and refused where their difference has no interval."""
    assert analysis.contrasts is not None
    at = analysis.contrasts.isel(pair=pair)
    if not np.isfinite(at["interval"].values).all() and not _same(analysis, at):
        return "refused"
    return weaker(analysis.level(str(at["first"].item())), analysis.level(str(at["second"].item())))


def _flips_at(analysis: Analysis, pair: int) -> float | None:
    """By how much transport may be off before a decided difference is undecided; None where it is not decided."""
    assert analysis.tipping is not None
    tipping = float(analysis.tipping["tipping"].isel(pair=pair))
    return tipping if 0 < tipping < math.inf else None


def _counts(analysis: Analysis, policy: str) -> dict[str, int]:
    at = analysis.data.sel(policy=policy)
    kinds = {"responses": "evaluated", "labels": "labelled", "probes": "probe"}
    return {name: int(at[variable].sum()) for name, variable in kinds.items()}


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
