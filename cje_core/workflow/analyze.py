"""What ``cje-lab analyze`` does: user files -> estimates, transport audit, overlap, gates, advice, contrasts.

Its JSON is in `studies.cli.analysis.as_json`, the tables in `studies.cli.analysis.tables` with
`studies.cli.analysis.lines.notes` below them, the figures in `studies.cli.analysis.forest` and
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
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.label_balance import label_balance
from cje_core.families.off_policy.logs import Logs
from cje_core.inference.contrasts import contrasts
from cje_core.offpolicy.log_likelihoods import clones
from cje_core.streams import generator
from cje_core.transport import sensitivity
from cje_core.verdict.headline import headline
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.cohorts import by_cohort
from cje_core.workflow.judging import (
    Audits,
    Gated,
    Verdict,
    advice,
    assumed,
    audits,
    corrected,
    evaluate_gates,
    levels_of,
    primary_of,
    support,
)
from cje_core.workflow.posterior import BAYESIAN, posterior
from cje_core.workflow.reading.given import Given, Reading
from cje_core.workflow.reading.prepare import Asked, Ready, prepare
from cje_core.workflow.standing import ranks


def analyze(
    path: Given,
    *,
    calibration: Calibration | None = None,
    chosen: Sequence[str] = (),
    margin: float | None = None,
    target_mde: float | None = None,
    borrowed: str = "spline",
    bayes: str | bool | None = None,
    seed: int = 1,
    judge_model: str | None = None,
    **reading: Unpack[Reading],
) -> Analysis:
    """Read, estimate, audit, gate, compare.

    Parameters
    ----------
    path : str, Path, DataFrame or xr.Dataset
        As in `cje_core.io.files.read`, or evaluation data already.
    calibration : Calibration, optional
        Covariates (which are read too), calibrator and direction, see `cje_core.calibration.calibrated`. Estimators
        that fit no calibrator are given the judge's scale turned round where it is decreasing (`turned`).
    chosen : sequence of str
        Estimators; the primary one is ``direct`` if it is among them, else the first. Default: those that
        `cje_core.estimators.offered` lists, with ``logs`` where logged responses are given.
    margin : float, optional
        Harmless mean residual of the transport audit, in units of the oracle scale (default: 5% of its width).
    target_mde : float, optional
        Smallest difference of two policies that logged responses must let be found, oracle units: the thresholds of the
        overlap gates are then `cje_core.verdict.thresholds.from_mde` (default: the paper's).
    borrowed : {"spline", "balanced", "one_step", "plug_in"}
        As in `cje_core.estimators.direct`.
    bayes : bool or {"gibbs", "nutpie", "pymc"}, optional
        Sampler of the Bayesian estimators that join the others (`cje_core.workflow.posterior`), True for ``gibbs``;
        none by default.
    seed : int
        Root of the estimators' named streams.
    judge_model : str, optional
        The judge's model: a policy of this name is warned of (`cje_core.verdict.self_preference`). Default: the
        attribute ``judge_model`` of evaluation data.
    **reading
        ``probes``, ``logged``, ``calibration_policy``, ``judge_range``, ``oracle_range`` of `cje_core.io.files.read`;
        an xr.Dataset brings its own, see `cje_core.workflow.reading.given.take`. ``cohort``, a mapping: only the
        prompts with these values, see `cje_core.data.cohorts.restrict`. ``groups``: variables over prompts by which
        values are told too, see `cje_core.workflow.cohorts.by_cohort`. ``shared_prompts``: only prompts that all
        policies answered enter the means. ``salt``: of a redacted cache in ``logged``. ``large``: whether a Parquet
        file is read in bounded memory, to the same numbers, see `cje_core.workflow.reading.given.taken`; ``calibrated``
        of the result then holds pooled data. ``dask``: address of a Dask scheduler on whose workers it is so read.

    Raises
    ------
    DataError
        With one line, before anything is written.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> result = analyze(data)
    >>> result.levels["level"].to_series().to_dict()
    {'base': 'reported', 'better': 'reported', 'slightly_better': 'reported', 'worse': 'reported'}
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
        judge_model=judge_model,
        **reading,
    ) as ready:
        return conclude(ready, start=start)


def conclude(ready: Ready, found: dict[str, xr.Dataset] | None = None, *, start: float) -> Analysis:
    """Audit, gate and compare: what stands of the estimates, which are made here unless they are given.

    ``start`` is when the work began, by `time.perf_counter`.
    """
    given, asked = ready.given, ready.asked
    logs = with_stages(given, asked) if found is None else None
    found = dict(ready.joined(estimates(given, asked, logs)) if found is None else found)
    believed = None
    if asked.bayes is not None:
        believed = posterior(given, engine=asked.bayes, margin=asked.margin, seed=asked.seed)
        found |= believed.estimates
    primary = primary_of(found, asked.names)

    def at_level(names: Sequence[str], ci_prob: float) -> Mapping[str, xr.Dataset]:
        return ready.joined(estimates(given, asked._replace(names=list(names)), logs, ci_prob=ci_prob))

    audited = audits(given, asked.margin, believed)
    passed = evaluate_gates(found, primary, audited, asked.target_mde)
    verdict = levels_of(given, found, primary, audited, passed.evaluated, believed)
    order, labels = support(given, found, primary, verdict.levels, asked, at_level)
    whole = _analysis(ready, found, primary, audited, passed, verdict, order, labels, start)
    return whole if not asked.groups else _with_cohorts(whole, asked, start)


def _analysis(
    ready: Ready,
    found: Mapping[str, xr.Dataset],
    primary: str,
    audited: Audits,
    passed: Gated,
    verdict: Verdict,
    order: xr.Dataset | None,
    labels: xr.Dataset | None,
    start: float,
) -> Analysis:
    """All of it, with the values that stand and what they say of each other."""
    given, asked = ready.given, ready.asked
    low, high = given.data.attrs["oracle_range"]
    value = headline(found[primary], verdict.levels, corrected(found, primary))
    jointly = "influence" in value
    lent = value["borrowed"].values.astype(bool).tolist()
    return Analysis(
        calibrated=given,
        left_out=ready.left_out,
        estimates=found,
        primary=primary,
        transport=audited.transport,
        coverage=audited.badge,
        reliability=audited.reliability if audited.taught else None,
        overlap=audited.overlap,
        gates=passed.evaluated,
        assumptions=assumed(given, found, audited, passed.evaluated),
        levels=verdict.levels,
        value=value,
        verdicts=audited.verdicts,
        balance=label_balance(given),
        agreement=audited.agreement,
        bounds=verdict.bounds,
        order=order,
        next_labels=labels,
        guide=advice(given, found, audited, verdict.levels, value, passed.table),
        contrasts=contrasts(value) if jointly else None,
        if_biased=sensitivity.levels(
            value, asked.margin, borrowed=lent, oracle_range=(float(low), float(high))
        ),
        tipping=sensitivity.tipping_points(value, borrowed=lent) if jointly else None,
        posterior=verdict.posterior,
        ranks=ranks(value, generator(asked.seed, "analyze", "ranks")),
        log_ratios=None if audited.overlap is None else clones(given, audited.policies),
        ratio_calibration=audited.ratios,
        seed=asked.seed,
        seconds=time.perf_counter() - start,
        cohorts={},
    )


def _with_cohorts(whole: Analysis, asked: Asked, start: float) -> Analysis:
    """The analysis with values by the cohorts that were asked for."""
    again = partial(
        analyze,
        calibration=whole.calibrated.calibration,
        chosen=[name for name in asked.names if name == whole.primary or name not in whole.off_policy],
        margin=asked.margin,
        borrowed=asked.borrowed,
        seed=asked.seed,
    )
    tables = {name: by_cohort(whole, name, again) for name in asked.groups}
    return replace(whole, cohorts=tables, seconds=time.perf_counter() - start)


def with_stages(given: Calibrated | Logs, asked: Asked) -> Logs | None:
    """Logs with all that the chosen off-policy estimators read, each stage computed once; None where none is chosen."""
    logs = given if isinstance(given, Logs) else None
    for name in asked.names:
        prepare = getattr(estimators.load(name).estimate, "prepare", None)
        if prepare is not None:
            logs = prepare(logs or given, borrowed=asked.borrowed)
    return logs


def estimates(
    given: Calibrated, asked: Asked, logs: Logs | None = None, **more: Any
) -> dict[str, xr.Dataset]:
    """Estimates by the chosen estimators, each with those of the options that it has; `more` are options too.

    ``logs`` are those of the data, from `with_stages`, for the estimators that weight logged responses.
    """
    options = {"borrowed": asked.borrowed, "margin": asked.margin, **more}
    decreasing = given.calibration.direction == "decreasing"
    upright = calibrated(turned(given.data)) if decreasing else given
    found = {}
    for name in asked.names:
        if asked.bayes is not None and name in BAYESIAN:
            continue  # these come with their posterior
        module = estimators.load(name)
        known = inspect.signature(module.estimate).parameters
        taken = {k: v for k, v in options.items() if k in known}
        data: Calibrated | Logs | xr.Dataset = given if "calibration" in known else upright
        if logs is not None and hasattr(module.estimate, "prepare"):
            data = logs
        found[name] = module.estimate(data, rng=generator(asked.seed, "analyze", name), **taken)
    return found


def turned(data: xr.Dataset) -> xr.Dataset:
    """Evaluation data whose judge scores, logged ones too, are mirrored in the middle of their scale."""
    low, high = data.attrs["judge_range"]
    scores = [name for name in ("judge", "logged_judge") if name in data]
    return data.assign({name: (low + high - data[name]).clip(low, high) for name in scores})
