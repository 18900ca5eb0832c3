"""One standard error for the whole off-policy family, its diagnostics, and the labelled shell.

The error of a `cje_core.families.off_policy.Value` has three parts: ``direct`` and ``ips``, with the small-sample
factor and degrees of freedom of `cje_core.inference.influence.make_part` by clusters of prompts, and ``calibration``,
the joint infinitesimal-jackknife term of the labels. The weights are taken as known, as in the paper.

A policy is refused (UNINFORMATIVE_JUDGE, as by `cje_core.estimators.direct`) where its value rests on the judge and
nothing else: where the labels do not show that the judge ranks them the right way
(`cje_core.calibration.informative`) and the calibrator is not taught by this policy's labels alone. Here is the one
place where the family is refused, for its eight members do not differ in it (`cje_core.families.off_policy` says why).

``inference="influence"`` combines them with t quantiles. ``inference="jackknife"`` is the paper's (algorithm
Cal-Aware-Jackknife): R^OOF along the influence path, which makes the correction of DR vanish from it since R^OOF = q
there, plus ``(K-1)/K sum_k (V^(-k) - mean)^2`` from reruns of the whole estimator without one oracle fold, and normal
quantiles; being the paper's, it refuses no judge (as the plug-in of `direct`, its counterpart there). Where there is
an estimate, neither it nor its influence values depend on ``inference``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.calibration.informative import informative, taught_alone
from cje_core.calibration.oracle_slice import calibration_part
from cje_core.families.assemble import PolicyResult, assemble
from cje_core.families.off_policy import (
    Logs,
    Source,
    Term,
    Value,
    fresh_rows,
    raw_weights,
    unpack_logs,
    used_rows,
    without_fold,
)
from cje_core.inference.estimate import Status, cluster_se, cluster_sums, wald
from cje_core.inference.influence import Part, combine, delete_group_variance, make_part
from cje_core.offpolicy.weights import ess_fraction

FloatArray = npt.NDArray[np.float64]

INFERENCE = ("influence", "jackknife")
MIN_ESS = 10.0  # effective logged responses below which an estimate is flagged
MIN_DF = 2.0  # below 2 a t interval has no meaning left
PolicyValue = Callable[[Logs, int], Value | Status]


class Shared(NamedTuple):
    """The options that every estimator of the family has."""

    ci_prob: float
    inference: str
    covariates: Sequence[str]
    calibrator: str
    direction: str
    interval: str = "auto"


def calibration_error(logs: Logs, terms: Sequence[Term]) -> Part:
    """Error of the sum of the terms that comes from learning their calibrators, jointly per labelled prompt.

    Terms of one slice are one functional, so that what cancels does.
    """
    by_slice: dict[int, list[Term]] = {}
    for term in terms:
        by_slice.setdefault(id(term.taught), []).append(term)
    parts = [
        calibration_part(
            logs.rows,
            same[0].taught,
            np.concatenate([t.z for t in same]),
            np.concatenate([t.weight for t in same]),
        )
        for same in by_slice.values()
    ]
    influence, _, df = combine(parts, logs.rows.cluster)
    return Part(influence, df)


def source_part(logs: Logs, source: Source) -> Part:
    """Small-sample factor and degrees of freedom of one sampling source."""
    part = make_part(source.influence, source.leverage, logs.rows.cluster)
    return part._replace(df=max(part.df, MIN_DF)) if np.isfinite(part.df) else part


def error_parts(logs: Logs, value: Value) -> list[Part]:
    """The parts ``direct``, ``ips`` and ``calibration`` of a value's error."""
    sampling = [source_part(logs, value.direct), source_part(logs, value.ips)]
    return [*sampling, calibration_error(logs, value.terms)]


def variance(logs: Logs, influence: FloatArray) -> float:
    """Cluster-robust variance of an estimate with these influence values."""
    return float(cluster_se(influence, logs.rows.cluster)) ** 2


def jackknife(values: Sequence[float]) -> float:
    """Delete-one-fold variance ``(K-1)/K sum_k (V^(-k) - mean)^2`` (the paper's algorithm Cal-Aware-Jackknife).

    Examples
    --------
    >>> round(jackknife([1.0, 2.0, 3.0]), 6)
    1.333333
    """
    v = np.asarray(values, float)
    return float(delete_group_variance(v, np.ones(len(v)), v.mean()))


def rerun_logs(logs: Logs) -> list[Logs]:
    """`Logs` without one oracle fold each; none where fewer than three folds hold labels.

    With two, a rerun would have one fold left and no held-out calibrator for it.
    """
    folds = np.unique(logs.fitted.fold[logs.fitted.prompt])
    return [without_fold(logs, int(k)) for k in folds] if len(folds) > 2 else []


def run(
    data: xr.Dataset,
    policy_value: PolicyValue,
    shared: Shared,
    *,
    estimator: str,
    options: Mapping[str, Any],
    fresh: bool,
    axes: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> xr.Dataset:
    """Estimate every policy of `data` by `policy_value` and label the result.

    Parameters
    ----------
    policy_value : callable (logs, p) -> Value or Status
    options : mapping
        The estimator's own; recorded beside the shared ones.
    fresh : bool
        Whether the estimator needs fresh draws of the policy; if so the result carries its decomposition.
    axes : mapping, optional
        Dimension and labels of each fact that is an array, by its name.

    Returns
    -------
    xr.Dataset
        Estimate contract, with ``n_logged_used(policy)``, ``ess_fraction_raw(policy)``, ``calibration_share(policy)``
        (share of the variance), the estimator's facts and, where `fresh`, those of `decomposition`.
    """
    ci_prob, inference, covariates, calibrator, direction, interval = shared
    if inference not in INFERENCE:
        raise ValueError(f"inference is {inference!r}; use one of {', '.join(INFERENCE)}")
    logs = unpack_logs(data, direction=direction, calibrator=calibrator, covariates=covariates)
    barred = unfounded(logs) if inference == "influence" else np.zeros(len(logs.rows.policies), dtype=bool)
    again = rerun_logs(logs) if inference == "jackknife" and logs.fitted.calibrator is not None else []
    results, facts = [], []
    for p in range(len(logs.rows.policies)):
        used = used_rows(logs, p)
        found = (
            _refusal(logs, p, fresh) or (barred[p] and Status.UNINFORMATIVE_JUDGE) or policy_value(logs, p)
        )
        if isinstance(found, Status):
            results.append(PolicyResult(found, "none"))
            facts.append({"n_logged_used": len(used)})
            continue
        result, share = _with_error(logs, p, found, policy_value, again, inference)
        results.append(result)
        raw = ess_fraction(raw_weights(logs, p))
        parts = decomposition(logs, found, ci_prob) if fresh else {}
        common: dict[str, Any] = {
            "n_logged_used": len(used),
            "ess_fraction_raw": raw,
            "calibration_share": share,
        }
        facts.append({**common, **found.facts, **parts})
    recorded = {**shared._asdict(), "covariates": list(covariates), **options}
    del recorded["ci_prob"]  # an attribute of its own
    out = assemble(
        data,
        logs.rows,
        results,
        estimator=estimator,
        options=recorded,
        ci_prob=ci_prob,
        interval_scale=interval,
    )
    order = [logs.rows.policies.index(str(name)) for name in data.policy.values]
    return _attach(out, [facts[p] for p in order], axes or {})


def _refusal(logs: Logs, p: int, fresh: bool) -> Status | None:
    """Why policy p gets no number, if so."""
    if logs.fitted.calibrator is None:
        return logs.fitted.status
    if len(used_rows(logs, p)) == 0:
        return Status.NO_LOG_PROBS
    return Status.NO_RESPONSES if fresh and len(fresh_rows(logs, p)) == 0 else None


def unfounded(logs: Logs) -> npt.NDArray[np.bool_]:
    """Policies whose value rests on the judge and nothing else, while no label shows that it tells good from bad.

    Spared is the policy whose own labels are all that taught f: fresh ones, or, where the logs taught, the logger's.
    """
    every = np.ones(len(logs.rows.policies), dtype=bool)
    if logs.fitted.calibrator is None or informative(logs.rows, logs.fitted).informative:
        return ~every
    own = taught_alone(logs.rows, logs.fitted)
    if not logs.rows.teaches.any():
        own = own | np.array([_is_logger(logs, p) for p in range(len(every))])
    return ~own


def _is_logger(logs: Logs, p: int) -> bool:
    """Whether the responses that policy p weights are its own: every ratio is one."""
    used = used_rows(logs, p)
    return len(used) > 0 and bool((logs.log_ratio[p, used] == 0).all())


def _with_error(
    logs: Logs, p: int, value: Value, policy_value: PolicyValue, again: Sequence[Logs], inference: str
) -> tuple[PolicyResult, float]:
    """The value with its standard error, and the calibration's share of the variance."""
    parts = error_parts(logs, value)
    influence, std_error, df = combine(parts, logs.rows.cluster)
    status = _status(logs, p)
    sampling = variance(logs, parts[0].influence + parts[1].influence)
    calibration = variance(logs, parts[2].influence)
    if inference == "jackknife":
        rerun = [policy_value(other, p) for other in again]
        complete = bool(rerun) and all(isinstance(v, Value) for v in rerun)
        sampling = variance(logs, value.path)
        calibration = jackknife([v.value for v in rerun if isinstance(v, Value)]) if complete else np.nan
        std_error, df = float(np.sqrt(sampling + calibration)), np.inf
        status = status if complete else Status.FEW_RESAMPLES
    total = sampling + calibration
    share = calibration / total if total > 0 else np.nan
    return PolicyResult(status, value.route, value.value, influence, std_error, df), share


def _status(logs: Logs, p: int) -> Status:
    """What to say of a value: the slice's flag, else poor overlap, else that the calibration is borrowed.

    Overlap is that of the raw weights: stabilised or capped ones still rest on the same handful of responses. The
    labels of logged responses are the logger's own, and so of any policy that is the logger.
    """
    rows, used = logs.rows, used_rows(logs, p)
    if logs.fitted.status is not Status.OK:
        return logs.fitted.status
    if ess_fraction(raw_weights(logs, p)) * len(used) < MIN_ESS:
        return Status.POOR_OVERLAP
    own = rows.prompt[rows.teaches & (rows.policy == p)]
    if _is_logger(logs, p):
        own = np.union1d(own, np.flatnonzero(np.isfinite(logs.logged.label)))
    borrowed = len(np.unique(rows.cluster[own])) < MIN_LABELLED_CLUSTERS
    return Status.TRANSPORT_ASSUMED if borrowed else Status.OK


def decomposition(logs: Logs, value: Value, ci_prob: float) -> dict[str, Any]:
    """DM-IPS decomposition and orthogonality score of a doubly robust value (the paper's section on both).

    ``direct_part`` + ``ips_part`` is the estimate; their errors are of sampling only. ``part_correlation`` is that
    of their contributions per cluster. The score ``orthogonality = sum W (Y - q) / sum W`` uses the labels of logged
    responses: with the paper's R^OOF it would be identically zero, since q is that same held-out calibrator. Its
    interval covers 0 if q is right, on average, on the logged responses where the weights lie. Each of the three
    comes with ``_std_error`` and ``_interval``.
    """
    sources = {"direct_part": value.direct, "ips_part": value.ips}
    if value.orthogonality is not None:
        sources["orthogonality"] = value.orthogonality
    facts: dict[str, Any] = {}
    for name, source in sources.items():
        part = source_part(logs, source)
        std_error = float(np.sqrt(variance(logs, part.influence)))
        facts[name], facts[f"{name}_std_error"] = source.value, std_error
        facts[f"{name}_interval"] = wald(source.value, std_error, part.df, ci_prob)
    both = cluster_sums(np.stack([value.direct.influence, value.ips.influence]), logs.rows.cluster)
    size = np.sqrt((both**2).sum(axis=1))
    facts["part_correlation"] = float(both[0] @ both[1] / size.prod()) if size.all() else np.nan
    return facts


def _attach(
    out: xr.Dataset, facts: Sequence[Mapping[str, Any]], axes: Mapping[str, tuple[str, Sequence[str]]]
) -> xr.Dataset:
    """Facts per policy as variables; a policy without one has NaN. One merge for all: each costs milliseconds."""
    variables: dict[str, tuple[list[str], FloatArray]] = {}
    coords: dict[str, list[str]] = {}
    for name in sorted({name for fact in facts for name in fact}):
        missing = np.full(np.shape(next(fact[name] for fact in facts if name in fact)), np.nan)
        values = np.array([fact.get(name, missing) for fact in facts], dtype=float)
        dims = ["policy"]
        if name in axes:
            dim, labels = axes[name]
            dims.append(dim)
            coords[dim] = list(labels)
        elif values.ndim == 2:
            dims.append("ci_bound")
        variables[name] = (dims, values)
    return out.assign(variables).assign_coords(coords)
