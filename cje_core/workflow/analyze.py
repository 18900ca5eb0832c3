"""What ``cje-lab analyze`` does: user files -> estimates, transport audit, overlap, gates, advice, contrasts.

Its JSON is in `studies.cli.analysis.as_json`, the tables in `studies.cli.analysis.tables` with
`studies.cli.analysis.notes` below them, the figures in `studies.cli.analysis.forest` and
`studies.cli.analysis.panels`, what ``--out`` gets in `studies.cli.analysis.save`.

Statistical failure is data: a policy without an estimate stays in the table, the JSON and the plot with its named
status. Nothing printed depends on the order of rows, policies or files; each estimator draws from its own named
stream, so its numbers do not depend on which others ran.
"""

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, Calibration
from cje_core.calibration.label_balance import label_balance
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.data import DataError
from cje_core.data.arrays import unpacked_once
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import ESTIMAND, Status
from cje_core.offpolicy.log_likelihoods import clones
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.weight_map import cap_curves
from cje_core.streams import generator
from cje_core.transport import sensitivity
from cje_core.transport.agreement import agreement, refuse_mixed
from cje_core.transport.audit import audit
from cje_core.verdict import gates, guide, refusal
from cje_core.verdict.assumptions import Contract, assumptions
from cje_core.verdict.headline import headline
from cje_core.verdict.labelling import next_labels
from cje_core.verdict.thresholds import GATES, Gate, from_mde
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.cohorts import by_cohort
from cje_core.workflow.posterior import BAYESIAN, VALUE, Posterior, posterior, stricter, without
from cje_core.workflow.reading.given import Given, Reading
from cje_core.workflow.reading.prepare import CORRECTED, Asked, Ready, prepare
from cje_core.workflow.standing import ranks

ORDERED = 0.975  # two intervals of it that lie apart order a pair with error 5% at most
# Gates without input here, and those about the calibrator, which say nothing of a primary estimate that uses none.
ELSEWHERE = ("drift",)
ABOUT_CALIBRATOR = ("reliability", "label_support", "identification")


def analyze(
    path: Given,
    *,
    calibration: Calibration | None = None,
    chosen: Sequence[str] = (),
    margin: float | None = None,
    target_mde: float | None = None,
    borrowed: str = "balanced",
    bayes: str | None = None,
    seed: int = 1,
    **reading: Unpack[Reading],
) -> Analysis:
    """Read, estimate, audit, gate, compare.

    Parameters
    ----------
    path : str, Path, DataFrame or xr.Dataset
        As in `cje_core.data.files.read`, or evaluation data already.
    calibration : Calibration, optional
        Covariates (which are read too), calibrator and direction, see `cje_core.calibration.calibrated`. Estimators
        that fit no calibrator are given the judge's scale turned round where it is decreasing (`turned`).
    chosen : sequence of str
        Estimators; the primary one is ``direct`` if it is among them, else the first. Default: `DEFAULT`, and
        `OFF_POLICY` where logged responses are given (`cje_core.workflow.reading.prepare`).
    margin : float, optional
        Harmless mean residual of the transport audit, in units of the oracle scale (default: 5% of its width).
    target_mde : float, optional
        Smallest difference of two policies that logged responses must let be found, oracle units: the thresholds of the
        overlap gates are then `cje_core.verdict.thresholds.from_mde` (default: the paper's).
    borrowed : {"balanced", "one_step", "plug_in"}
        As in `cje_core.estimators.direct`.
    bayes : {"gibbs", "nutpie", "pymc"}, optional
        Sampler of the Bayesian estimators that join the others (`cje_core.workflow.posterior`); none by default.
    seed : int
        Root of the estimators' named streams.
    **reading
        ``probes``, ``logged``, ``calibration_policy``, ``judge_range``, ``oracle_range`` of `cje_core.data.files.read`;
        an xr.Dataset brings its own, see `cje_core.workflow.reading.given.take`. ``cohort``, a mapping: only the
        prompts with these values, see `cje_core.data.cohorts.restrict`. ``groups``: variables over prompts by which
        values are told too, see `cje_core.workflow.cohorts.by_cohort`. ``shared_prompts``: only prompts that all
        policies answered enter the means. ``salt``: of a redacted cache in ``logged``. ``large``: whether a Parquet
        file is read in bounded memory, to the same numbers, see `cje_core.workflow.reading.given.taken`; ``calibrated``
        of the result then holds pooled data.

    Raises
    ------
    DataError
        With one line, before anything is written.
    """
    start = time.perf_counter()
    with prepare(
        path,
        calibration=calibration,
        chosen=chosen,
        margin=margin,
        target_mde=target_mde,
        borrowed=borrowed,
        bayes=bayes,
        seed=seed,
        **reading,
    ) as ready:
        return conclude(ready, start=start)


def conclude(ready: Ready, found: dict[str, xr.Dataset] | None = None, *, start: float) -> Analysis:
    """Audit, gate and compare: what stands of the estimates, which are made here unless they are given.

    ``start`` is when the work began, by `time.perf_counter`.
    """
    given, asked = ready.given, ready.asked
    data, names, harmless, bayes, seed = given.data, asked.names, asked.margin, asked.bayes, asked.seed
    logs, (low, high) = "logp_target" in data, data.attrs["oracle_range"]
    scale = float(low), float(high)
    with unpacked_once(data, checked=True):
        found = dict(ready.joined(estimates(given, asked)) if found is None else found)
        believed = None
        if bayes is not None:
            believed = posterior(given, engine=bayes, margin=harmless, seed=seed)
            found |= believed.estimates
        primary = _primary(found, names)
        policies = [str(name) for name in data.policy.values]
        transport = audit(given, margin=harmless)
        verdicts = stricter(transport, believed)
        judged = transport.assign(verdict=("policy", [verdicts[name] for name in policies]))
        covered = overlap(given) if logs else None
        bins = reliability(given)
        taught = not Status(bins["status"].item()).failed
        badge = coverage_badge(given) if taught else None
        caps = cap_curves(given) if logs else None
        metrics = gates.collect(
            policies,
            overlap=covered,
            coverage=badge,
            reliability=bins,
            transport=judged,
            estimate=found[primary],
            cap=caps,
            adjusted=True,  # the contrasts below carry Benjamini-Hochberg p-values
        )
        metrics = metrics.assign(_about_logs(policies, found, primary, caps))
        silent = ELSEWHERE if _contract(primary).calibrates else ELSEWHERE + ABOUT_CALIBRATOR
        table = GATES if asked.target_mde is None else _for_target(asked.target_mde, covered, bins)
        evaluated = gates.evaluate(metrics, gates=[gate for gate in table if gate.name not in silent])
        probed = found.get(CORRECTED) if primary == "direct" else None
        agreed = agreement(given, margin=harmless)
        levels = refuse_mixed(refusal.level(evaluated, found[primary], probed), agreed)
        if believed is not None:
            levels = _refused_by_posterior(levels, believed)
            refused = levels["policy"].values[levels["level"].values == "refused"].astype(str).tolist()
            believed = without(believed, refused)
        bounds = refusal.partial_identification(given)
        levels = refusal.name_outside(levels, bounds)
        order, labels = None, None
        if any(refusal.wants_support(levels.sel(policy=p), found[primary].sel(policy=p)) for p in policies):
            labels = next_labels(given, margin=harmless)
            joint = [name for name in names if name in (primary, CORRECTED)]
            wider = ready.joined(estimates(given, asked._replace(names=joint), ci_prob=ORDERED))
            if primary in wider:
                order = _order(given, wider[primary], levels, wider.get(CORRECTED))
        value = headline(found[primary], levels, probed)
        jointly = "influence" in value
        lent = value["borrowed"].values.astype(bool).tolist()
        whole = Analysis(
            calibrated=given,
            left_out=ready.left_out,
            estimates=found,
            primary=primary,
            transport=transport,
            coverage=badge,
            reliability=bins if taught else None,
            overlap=covered,
            gates=evaluated,
            assumptions=assumptions(
                given,
                found,
                {name: _contract(name) for name in found},
                transport=judged,
                gates=evaluated,
                agreement=agreed,
                overlap=covered,
                coverage=badge,
            ),
            levels=levels,
            value=value,
            verdicts=verdicts,
            balance=label_balance(data),
            agreement=agreed,
            bounds=bounds,
            order=order,
            next_labels=labels,
            guide=guide.recommend(
                data,
                overlap=covered,
                transport=judged,
                calibration_share=_calibration_share(value, found),
                estimate=found.get("direct"),
                probed=found.get(CORRECTED),
                contradicted=levels["policy"].values[levels["refused_by"].values == "agreement"].tolist(),
                refused=_without_level(levels),
                thresholds=table,
            ),
            contrasts=contrasts(value) if jointly else None,
            if_biased=sensitivity.levels(value, harmless, borrowed=lent, oracle_range=scale),
            tipping=sensitivity.tipping_points(value, borrowed=lent) if jointly else None,
            posterior=believed,
            ranks=ranks(value, generator(seed, "analyze", "ranks")),
            log_ratios=clones(data, policies) if logs else None,
            seed=seed,
            seconds=time.perf_counter() - start,
            cohorts={},
        )
    if not asked.groups:
        return whole
    fresh = [name for name in names if name == primary or name not in whole.off_policy]
    again = partial(
        analyze,
        calibration=given.calibration,
        chosen=fresh,
        margin=harmless,
        borrowed=asked.borrowed,
        seed=seed,
    )
    tables = {name: by_cohort(whole, name, again) for name in asked.groups}
    return replace(whole, cohorts=tables, seconds=time.perf_counter() - start)


def _primary(found: Mapping[str, xr.Dataset], names: Sequence[str]) -> str:
    """The estimator behind the values: ``direct``, else the first that estimates values at all."""
    if "direct" in found:
        return "direct"
    of_value = [name for name in names if found[name].attrs["estimand"] == ESTIMAND]
    if not of_value:
        what = found[names[0]].attrs["estimand"]
        raise DataError(
            f"chosen={names[0]!r}: it estimates another mean ({what}); choose an estimator of values beside it"
        )
    return of_value[0]


def estimates(given: Calibrated, asked: Asked, **more: Any) -> dict[str, xr.Dataset]:
    """Estimates by the chosen estimators, each with those of the options that it has; `more` are options too."""
    options = {"borrowed": asked.borrowed, "margin": asked.margin, **more}
    upright = turned(given.data) if given.calibration.direction == "decreasing" else given.data
    found = {}
    for name in asked.names:
        if asked.bayes is not None and name in BAYESIAN:
            continue  # these come with their posterior
        module = estimators.load(name)
        known = inspect.signature(module.estimate).parameters
        taken = {k: v for k, v in options.items() if k in known}
        data = given if "calibration" in known else upright
        found[name] = module.estimate(data, rng=generator(asked.seed, "analyze", name), **taken)
    return found


def _contract(name: str) -> Contract:
    """What an estimator's module says of what it needs."""
    module = estimators.load(name)
    calibrates = "calibration" in inspect.signature(module.estimate).parameters
    return Contract("logp_target" in module.NEEDS, calibrates)


def _order(
    given: Calibrated, estimate: xr.Dataset, levels: xr.Dataset, corrected: xr.Dataset | None
) -> xr.Dataset:
    """`cje_core.verdict.refusal.rank_only`, and ``monotone(pair)``, whether it takes that E[Y | S] is monotone.

    Pairs that bounds without it leave open are ordered by those with it: the calibrator takes it to be so too.
    """
    free, monotone = (
        refusal.rank_only(
            estimate,
            levels,
            bounds=refusal.partial_identification(given, ci_prob=ORDERED, monotone=also),
            corrected=corrected,
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


def turned(data: xr.Dataset) -> xr.Dataset:
    """Evaluation data whose judge scores, logged ones too, are mirrored in the middle of their scale."""
    low, high = data.attrs["judge_range"]
    scores = [name for name in ("judge", "logged_judge") if name in data]
    return data.assign({name: (low + high - data[name]).clip(low, high) for name in scores})


def _calibration_share(value: xr.Dataset, found: Mapping[str, xr.Dataset]) -> dict[str, float]:
    """Share of the variance of each value that stands that comes from labels; policies without one are left out."""
    taken = {str(policy): str(name) for policy, name in value["taken_from"].to_series().items()}
    return {
        policy: float(found[name]["calibration_share"].sel(policy=policy))
        for policy, name in taken.items()
        if name and "calibration_share" in found[name]
    }
