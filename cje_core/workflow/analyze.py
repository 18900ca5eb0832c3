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
from types import ModuleType
from typing import Any, Unpack

import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.label_balance import label_balance
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.data.arrays import unpacked_once
from cje_core.families.direct.fit import BORROWED
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.offpolicy.overlap import overlap
from cje_core.offpolicy.weight_map import cap_curves
from cje_core.streams import generator
from cje_core.transport import sensitivity
from cje_core.transport.agreement import agreement, refuse_mixed
from cje_core.transport.audit import audit
from cje_core.transport.margin import harmless_margin
from cje_core.verdict import gates, guide, refusal
from cje_core.verdict.headline import headline
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.given import Given, Reading, has_logs, oracle_scale, take
from cje_core.workflow.posterior import BAYESIAN, VALUE, Posterior, posterior, stricter, without

DEFAULT = ("raw_judge", "labels_only", "direct", "direct_corrected")
OFF_POLICY = ("snips", "calibrated_ips", "calibrated_dr_cpo", "stacked_dr")  # besides, with logged responses
CORRECTED = "direct_corrected"
# Gates without input here, and those about the calibrator, which say nothing of a primary estimate that uses none.
ELSEWHERE = ("drift",)
ABOUT_CALIBRATOR = ("reliability", "label_support", "identification")
# What a missing ingredient is called where the user can add it.
INGREDIENTS = {
    **dict.fromkeys(("logp_target", "logp_logger", "logged_judge"), "logged=FILE"),
    "covariate": "covariates=NAME",
}


def analyze(
    path: Given,
    *,
    calibration: Calibration | None = None,
    chosen: Sequence[str] = (),
    margin: float | None = None,
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
        `OFF_POLICY` where logged responses are given.
    margin : float, optional
        Harmless mean residual of the transport audit, in units of the oracle scale (default: 5% of its width).
    borrowed : {"balanced", "one_step", "plug_in"}
        As in `cje_core.estimators.direct`.
    bayes : {"gibbs", "nutpie", "pymc"}, optional
        Sampler of the Bayesian estimators that join the others (`cje_core.workflow.posterior`); none by default.
    seed : int
        Root of the estimators' named streams.
    **reading
        ``probes``, ``logged``, ``calibration_policy``, ``judge_range``, ``oracle_range`` of `cje_core.data.files.read`.
        An xr.Dataset brings its own, see `cje_core.workflow.given.take`.

    Raises
    ------
    DataError
        With one line, before anything is written.
    """
    start = time.perf_counter()
    logs, scale = has_logs(path, reading), oracle_scale(path, reading)
    calibration = calibration or Calibration()
    names = list(dict.fromkeys(chosen or ((*DEFAULT, *OFF_POLICY) if logs else DEFAULT)))
    modules = {}
    for name in names:
        if name not in estimators.available():
            raise DataError(
                f"chosen={name!r}: no such estimator; there are {', '.join(estimators.available())}"
            )
        modules[name] = estimators.load(name)
    one_of(borrowed, "borrowed", BORROWED, DataError)
    if bayes is not None:
        from cje_core.families.posterior import ENGINES  # samplers and what they need of SciPy: .15 s

        one_of(bayes, "bayes", ENGINES, DataError)
    if calibration.covariates and calibration.mode == "monotone" and borrowed != "balanced" and bayes is None:
        raise DataError(
            f"calibrator={calibration.mode!r}: it sees the judge's score alone, and borrowed={borrowed!r} balances "
            "nothing, so the covariates would not be used; leave them out, or take another calibrator"
        )
    harmless = harmless_margin(margin, scale, DataError)
    data, left_out = take(path, calibration.covariates, **reading)
    if CORRECTED not in modules and "direct" in modules and bool(data["probe"].any()):
        # Probes are a policy's own labels: they make its value.
        modules[CORRECTED] = estimators.load(CORRECTED)
    for name, module in modules.items():
        for need in sorted(set(module.NEEDS) - set(data)):
            raise DataError(
                f"chosen={name!r}: it needs {need}; give {INGREDIENTS.get(need, 'data that has it')}"
            )
    given = calibrated(data, calibration)
    with unpacked_once(data, checked=True):
        found = _estimates(given, modules, {"borrowed": borrowed, "margin": harmless}, bayes, seed)
        believed = None
        if bayes is not None:
            believed = posterior(given, engine=bayes, margin=harmless, seed=seed)
            found |= believed.estimates
        primary = "direct" if "direct" in found else names[0]
        policies = [str(name) for name in data.policy.values]
        transport = audit(given, margin=harmless)
        verdicts = stricter(transport, believed)
        judged = transport.assign(verdict=("policy", [verdicts[name] for name in policies]))
        covered = overlap(given) if logs else None
        bins = reliability(given)
        taught = not Status(bins["status"].item()).failed
        badge = coverage_badge(given) if taught else None
        metrics = gates.collect(
            policies,
            overlap=covered,
            coverage=badge,
            reliability=bins,
            transport=judged,
            estimate=found[primary],
            cap=cap_curves(given) if logs else None,
            adjusted=True,  # the contrasts below carry Benjamini-Hochberg p-values
        )
        metrics = metrics.assign(_about_logs(policies, found, primary))
        fits = "calibration" in inspect.signature(estimators.load(primary).estimate).parameters
        silent = ELSEWHERE if fits else ELSEWHERE + ABOUT_CALIBRATOR
        evaluated = gates.evaluate(metrics, gates=[gate for gate in gates.GATES if gate.name not in silent])
        probed = found.get(CORRECTED) if primary == "direct" else None
        agreed = agreement(given, margin=harmless)
        levels = refuse_mixed(refusal.level(evaluated, found[primary], probed), agreed)
        if believed is not None:
            levels = _refused_by_posterior(levels, believed)
            refused = levels["policy"].values[levels["level"].values == "refused"].astype(str).tolist()
            believed = without(believed, refused)
        bounds = refusal.partial_identification(given)
        levels = refusal.name_outside(levels, bounds)
        value = headline(found[primary], levels, probed)
        jointly = "influence" in value
        lent = value["borrowed"].values.astype(bool).tolist()
        return Analysis(
            calibrated=given,
            left_out=left_out,
            estimates=found,
            primary=primary,
            transport=transport,
            coverage=badge,
            reliability=bins if taught else None,
            overlap=covered,
            gates=evaluated,
            levels=levels,
            value=value,
            verdicts=verdicts,
            balance=label_balance(data),
            agreement=agreed,
            bounds=bounds,
            guide=guide.recommend(
                data,
                overlap=covered,
                transport=judged,
                calibration_share=_calibration_share(value, found),
                estimate=found.get("direct"),
                probed=found.get(CORRECTED),
                contradicted=levels["policy"].values[levels["refused_by"].values == "agreement"].tolist(),
                refused=_without_level(levels),
            ),
            contrasts=contrasts(value) if jointly else None,
            if_biased=sensitivity.levels(value, harmless, borrowed=lent, oracle_range=scale),
            tipping=sensitivity.tipping_points(value, borrowed=lent) if jointly else None,
            posterior=believed,
            seed=seed,
            seconds=time.perf_counter() - start,
        )


def _estimates(
    given: Calibrated,
    modules: Mapping[str, ModuleType],
    options: Mapping[str, Any],
    bayes: str | None,
    seed: int,
) -> dict[str, xr.Dataset]:
    """Estimates by the chosen estimators, each with those of the options that it has."""
    upright = turned(given.data) if given.calibration.direction == "decreasing" else given.data
    found = {}
    for name, module in modules.items():
        if bayes is not None and name in BAYESIAN:
            continue  # these come with their posterior
        known = inspect.signature(module.estimate).parameters
        taken = {k: v for k, v in options.items() if k in known}
        data = given if "calibration" in known else upright
        found[name] = module.estimate(data, rng=generator(seed, "analyze", name), **taken)
    return found


def _without_level(levels: xr.Dataset) -> dict[str, str]:
    """Policies refused for want of identification or of an interval, and why: no estimator at hand mends that."""
    found = {}
    for policy in levels["policy"].values.astype(str).tolist():
        at = levels.sel(policy=policy)
        if {"identification", "interval"} & set(str(at["refused_by"].item()).split(", ")):
            found[policy] = str(at["reason"].item())
    return found


def _about_logs(
    policies: Sequence[str], found: Mapping[str, xr.Dataset], primary: str
) -> dict[str, xr.DataArray]:
    """Metrics that only some estimates carry, from the first that does: the primary, a doubly robust one, any."""
    robust = [one for one in found.values() if "orthogonality_interval" in one]
    carriers = {"orthogonality_gap": "orthogonality_interval", "guard_engaged": "guard_engaged"}
    out = {}
    for metric, variable in carriers.items():
        carries = next((one for one in (found[primary], *robust, *found.values()) if variable in one), None)
        if carries is not None:
            out[metric] = gates.collect(policies, estimate=carries)[metric]
    return out


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
