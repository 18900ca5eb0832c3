"""What an analysis finds out about its estimates: audits, gates, levels, and what to do where a level is refused.

The steps of `cje_core.workflow.analyze.conclude`, in their order; each takes what the ones before it found.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.data import DataError
from cje_core.inference.estimate import ESTIMAND, Status
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.ratio_calibration import ratio_calibration
from cje_core.offpolicy.weight_map import cap_curves
from cje_core.transport.agreement import agreement, refuse_mixed
from cje_core.transport.audit import audit
from cje_core.verdict import gates, guide, refusal
from cje_core.verdict.assumptions import Contract, assumptions
from cje_core.verdict.labelling import next_labels
from cje_core.verdict.thresholds import GATES, Gate, from_mde
from cje_core.workflow.posterior import VALUE, Posterior, stricter, without
from cje_core.workflow.reading.prepare import Asked

ORDERED = 0.975  # two intervals of it that lie apart order a pair with error 5% at most
# Gates without input here, and those about the calibrator, which say nothing of a primary estimate that uses none.
ELSEWHERE = ("drift",)
ABOUT_CALIBRATOR = ("reliability", "label_support", "identification")


class Audits(NamedTuple):
    """What was measured of the data and their calibrator."""

    policies: list[str]
    transport: xr.Dataset
    verdicts: Mapping[str, str]  # on transport: the audit's, or the posterior's where that is stricter
    agreement: xr.Dataset
    overlap: xr.Dataset | None  # with logged responses
    ratios: xr.Dataset | None  # with them: whether their log ratios are right
    caps: Mapping[str, xr.Dataset] | None  # with them: what caps on their weights would do
    reliability: xr.Dataset
    taught: bool  # whether there is a calibrator
    badge: xr.Dataset | None

    @property
    def judged(self) -> xr.Dataset:
        """The transport audit with the verdicts that count."""
        return self.transport.assign(verdict=("policy", [self.verdicts[name] for name in self.policies]))


def audits(given: Calibrated, margin: float, believed: Posterior | None) -> Audits:
    """Audit data and calibrator."""
    logs = "logp_target" in given.data
    transport, bins = audit(given, margin=margin), reliability(given)
    taught = not Status(bins["status"].item()).failed
    return Audits(
        policies=[str(name) for name in given.data.policy.values],
        transport=transport,
        verdicts=stricter(transport, believed),
        agreement=agreement(given, margin=margin),
        overlap=overlap(given) if logs else None,
        ratios=ratio_calibration(given) if logs else None,
        caps=cap_curves(given) if logs else None,
        reliability=bins,
        taught=taught,
        badge=coverage_badge(given) if taught else None,
    )


class Gated(NamedTuple):
    """Gates, and the thresholds behind them."""

    evaluated: xr.Dataset
    table: Sequence[Gate]


def evaluate_gates(
    found: Mapping[str, xr.Dataset], primary: str, audited: Audits, target_mde: float | None
) -> Gated:
    """The paper's gates of the primary estimate, with its thresholds or those of a target difference."""
    metrics = gates.collect(
        audited.policies,
        overlap=audited.overlap,
        coverage=audited.badge,
        reliability=audited.reliability,
        transport=audited.judged,
        estimate=found[primary],
        cap=audited.caps,
        adjusted=True,  # contrasts of an analysis carry Benjamini-Hochberg p-values
    )
    metrics = metrics.assign(_about_logs(audited.policies, found, primary, audited.caps))
    silent = ELSEWHERE if _contract(primary).calibrates else ELSEWHERE + ABOUT_CALIBRATOR
    table = GATES if target_mde is None else _for_target(target_mde, audited.overlap, audited.reliability)
    return Gated(gates.evaluate(metrics, gates=[gate for gate in table if gate.name not in silent]), table)


class Verdict(NamedTuple):
    """What may be said of each value."""

    levels: xr.Dataset
    bounds: xr.Dataset  # of values of which nothing else can be said
    posterior: Posterior | None  # without those that are refused


def levels_of(
    given: Calibrated,
    found: Mapping[str, xr.Dataset],
    primary: str,
    audited: Audits,
    evaluated: xr.Dataset,
    believed: Posterior | None,
) -> Verdict:
    """Reported, assumed or refused: by gates, by policies that disagree, by the posterior."""
    levels = refusal.level(evaluated, found[primary], corrected(found, primary))
    levels = refuse_mixed(levels, audited.agreement)
    if believed is not None:
        levels = _refused_by_posterior(levels, believed)
        refused = levels["policy"].values[levels["level"].values == "refused"].astype(str).tolist()
        believed = without(believed, refused)
    bounds = refusal.partial_identification(given)
    return Verdict(refusal.name_outside(levels, bounds), bounds, believed)


def support(
    given: Calibrated,
    found: Mapping[str, xr.Dataset],
    primary: str,
    levels: xr.Dataset,
    asked: Asked,
    at_level: Callable[[Sequence[str], float], Mapping[str, xr.Dataset]],
) -> tuple[xr.Dataset | None, xr.Dataset | None]:
    """Order of the policies, and what to label next, where a level is refused for want of support; else None, None.

    ``at_level`` estimates again, by named estimators with intervals of a probability.
    """
    by, status = levels[["refused_by"]], found[primary][["status"]]
    if not any(
        refusal.wants_support(by.sel(policy=p), status.sel(policy=p)) for p in levels["policy"].values
    ):
        return None, None
    labels = next_labels(given, margin=asked.margin)
    corrector = estimators.corrector(primary)
    wider = at_level([name for name in asked.names if name in (primary, corrector)], ORDERED)
    order = _order(given, wider[primary], levels, wider.get(corrector)) if primary in wider else None
    return order, labels


def assumed(
    given: Calibrated, found: Mapping[str, xr.Dataset], audited: Audits, evaluated: xr.Dataset
) -> xr.Dataset:
    """The assumptions ledger of all estimates."""
    return assumptions(
        given,
        found,
        {name: _contract(name) for name in found},
        transport=audited.judged,
        gates=evaluated,
        agreement=audited.agreement,
        overlap=audited.overlap,
        coverage=audited.badge,
    )


def advice(
    given: Calibrated,
    found: Mapping[str, xr.Dataset],
    audited: Audits,
    levels: xr.Dataset,
    value: xr.Dataset,
    table: Sequence[Gate],
) -> xr.Dataset:
    """Which estimator to use for each policy, and what to do next."""
    direct = next(iter(estimators.roles()))
    return guide.recommend(
        given,
        overlap=audited.overlap,
        transport=audited.judged,
        calibration_share=_calibration_share(value, found),
        estimate=found.get(direct),
        probed=found.get(estimators.corrector(direct)),
        contradicted=levels["policy"].values[levels["refused_by"].values == "agreement"].tolist(),
        refused=_without_level(levels),
        thresholds=table,
    )


def corrected(found: Mapping[str, xr.Dataset], primary: str) -> xr.Dataset | None:
    """The estimate whose values stand where probes correct the primary one."""
    return found.get(estimators.corrector(primary))


def primary_of(found: Mapping[str, xr.Dataset], names: Sequence[str]) -> str:
    """The estimator behind the values: the first by place, else the first named that estimates values at all."""
    if (first := next(iter(estimators.roles()))) in found:
        return first
    of_value = [name for name in names if found[name].attrs["estimand"] == ESTIMAND]
    if not of_value:
        what = found[names[0]].attrs["estimand"]
        raise DataError(
            f"chosen={names[0]!r}: it estimates another mean ({what}); choose an estimator of values beside it"
        )
    return of_value[0]


def _contract(name: str) -> Contract:
    """What an estimator's module says of what it needs."""
    calibrates = "calibration" in inspect.signature(estimators.load(name).estimate).parameters
    return Contract(estimators.weights_logs(name), calibrates)


def _order(
    given: Calibrated, estimate: xr.Dataset, levels: xr.Dataset, probed: xr.Dataset | None
) -> xr.Dataset:
    """`cje_core.verdict.refusal.rank_only`, and ``monotone(pair)``, whether it takes that E[Y | S] is monotone.

    Pairs that bounds without it leave open are ordered by those with it: the calibrator takes it to be so too.
    """
    free, monotone = (
        refusal.rank_only(
            estimate,
            levels,
            bounds=refusal.partial_identification(given, ci_prob=ORDERED, monotone=also),
            corrected=probed,
        )
        for also in (False, True)
    )
    taken = (free["order"] == "not ordered") & (monotone["order"] != "not ordered")
    both = {name: monotone[name].where(taken, free[name]) for name in ("interval", "order")}
    return free.assign(both).assign(monotone=taken)


def _without_level(levels: xr.Dataset) -> dict[str, str]:
    """Policies refused for want of identification or of an interval, and why: no estimator at hand mends that."""
    found = {}
    for policy in levels["policy"].values.astype(str).tolist():
        at = levels.sel(policy=policy)
        if {"identification", "interval"} & set(str(at["refused_by"].item()).split(", ")):
            found[policy] = str(at["reason"].item())
    return found


def _about_logs(
    policies: Sequence[str],
    found: Mapping[str, xr.Dataset],
    primary: str,
    caps: Mapping[str, xr.Dataset] | None,
) -> dict[str, xr.DataArray]:
    """Metrics that only some estimates carry, from the first that does: the primary, a doubly robust one, any."""
    robust = [one for one in found.values() if "orthogonality_interval" in one]
    carriers = {"orthogonality_gap": "orthogonality_interval"}
    carriers |= {name: name for name in ("guard_engaged", "residual_nan", "residual_df")}
    out = {}
    for metric, variable in carriers.items():
        carries = next((one for one in (found[primary], *robust, *found.values()) if variable in one), None)
        if carries is not None:
            out[metric] = gates.collect(policies, estimate=carries, cap=caps)[metric]
    return out


def _for_target(target_mde: float, covered: xr.Dataset | None, bins: xr.Dataset) -> Sequence[Gate]:
    """Gates whose overlap thresholds let a difference of `target_mde` be found, or why there can be none.

    By the fewest logged responses that any policy can use, and the noise of labels around the held-out calibrator.
    """
    if covered is None:
        raise DataError(f"target_mde={target_mde:g}: it sets what the logs must cover; give logged=FILE")
    usable = covered["n_usable"].values
    sigma = float(bins.attrs["oof_rmse"])
    if not (usable > 0).any() or not sigma > 0:
        raise DataError(
            f"target_mde={target_mde:g}: thresholds need logged responses with log-likelihoods, and labels that vary "
            "around the calibrator"
        )
    return from_mde(target_mde, n=float(usable[usable > 0].min()), sigma=sigma)


def _refused_by_posterior(levels: xr.Dataset, believed: Posterior) -> xr.Dataset:
    """Levels with a borrowed one refused where the posterior refuses to borrow: the stricter of two arms stands."""
    columns = {name: levels[name].values.astype(object) for name in ("level", "refused_by", "reason")}
    for k, policy in enumerate(levels["policy"].values.astype(str).tolist()):
        status = Status(believed.estimates[VALUE]["status"].sel(policy=policy).item())
        borrowed = levels["source"].sel(policy=policy).item() == "borrowed"
        if borrowed and columns["level"][k] == "assumed" and status.failed:
            columns["level"][k], columns["refused_by"][k] = "refused", "posterior"
            columns["reason"][k] = f"posterior: {status.message}"
    return levels.assign({name: ("policy", column.astype(str)) for name, column in columns.items()})


def _calibration_share(value: xr.Dataset, found: Mapping[str, xr.Dataset]) -> dict[str, float]:
    """Share of the variance of each value that stands that comes from labels; policies without one are left out."""
    taken = {str(policy): str(name) for policy, name in value["taken_from"].to_series().items()}
    return {
        policy: float(found[name]["calibration_share"].sel(policy=policy))
        for policy, name in taken.items()
        if name and "calibration_share" in found[name]
    }
