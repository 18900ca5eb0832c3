"""One standard error for the whole off-policy family, its diagnostics, and the labelled shell.

The error of a `cje_core.families.off_policy.value.Value` has three parts: ``direct`` and ``ips``, with the small-sample
factor and degrees of freedom of `cje_core.inference.influence.make_part` by clusters of prompts, and that of the
labels, which also correct the value (`cje_core.families.off_policy.labels`): the plug-in alone covers .84 to .93 with
binary labels. The weights are taken as known, as in the paper.

A policy is refused (UNINFORMATIVE_JUDGE, as by `cje_core.estimators.direct`) where its value rests on the judge and
nothing else: where the labels do not show that the judge ranks them the right way
(`cje_core.calibration.informative`) and the calibrator is not taught by this policy's labels alone. Here is the one
place where the family is refused, for its members do not differ in it (`cje_core.families.off_policy.value` says why).

``inference="influence"`` combines them with t quantiles. ``inference="jackknife"`` is the paper's (algorithm
Cal-Aware-Jackknife): R^OOF along the influence path, which makes the correction of DR vanish from it since R^OOF = q
there, plus ``(K-1)/K sum_k (V^(-k) - mean)^2`` from reruns of the whole estimator without one oracle fold, and normal
quantiles; being the paper's, it is of the plug-in and refuses no judge (as the plug-in of `direct`, its counterpart
there). Given ``borrowed``, neither an estimate nor its influence values depend on ``inference``.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray, one_of
from cje_core.families.assemble import assemble
from cje_core.families.direct.fit import BORROWED
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.families.off_policy.labels import is_logger, label_error, with_judge, with_residuals
from cje_core.families.off_policy.logs import Along, Fact, Logs, Source, Value
from cje_core.families.off_policy.residual_tails import residual_facts
from cje_core.families.off_policy.stages import make_logs, with_outcome, with_reruns
from cje_core.families.off_policy.value import fresh_rows, raw_weights, used_rows
from cje_core.inference.estimate import CI_BOUND, ESTIMAND, Status, wald
from cje_core.inference.influence import Part, combine, delete_group_variance, make_part
from cje_core.inference.sums import cluster_se, cluster_sums
from cje_core.offpolicy.weights import ess_fraction

INFERENCE = ("influence", "jackknife")
MIN_ESS = 10.0  # effective logged responses below which an estimate is flagged
MIN_DF = 2.0  # below 2 a t interval has no meaning left
PolicyValue = Callable[..., Value | Status]  # of `Logs` and the number of a policy


# The parts of the docstring that every `estimate` of the family shares.
FIRST = """\
data : xr.Dataset, Calibrated or Logs
    Evaluation data with logged responses; `Logs` that the attribute ``prepare`` of an estimator returned, for whoever
    runs several on the same data.
ci_prob : float
    Probability of the interval.
rng : Generator, int or None
    Unused: there is nothing random here."""
SHARED = """\
inference : {"influence", "jackknife"}
    How the standard error comes about, see `cje_core.families.off_policy.estimate`.
borrowed : {"balanced", "plug_in"}, optional
    Correct the calibrators by the labels' held-out residuals (`cje_core.families.off_policy.labels`), or leave them as
    the paper does; other forms of `cje_core.estimators.direct` count as ``balanced``, the default. With
    ``inference="jackknife"``, which is the paper's, it is ``plug_in``.
calibration : Calibration, optional
    How the judge is calibrated, see `cje_core.calibration.calibrated`.
interval : {"auto", "wald", "logit", "clopper_pearson"}
    ``auto``: the t interval (``wald``), or binomial tails at the count that has this standard error where an end of
    the oracle range is near; see `cje_core.families.intervals`."""
COUNTED = """\
Estimate contract, with ``n_logged_used(policy)``, ``ess_fraction_raw(policy)`` (of the raw weights),
``std_error_evaluation(policy)`` and ``std_error_calibration(policy)``, the standard errors from sampling and from
labels alone, ``calibration_share(policy)`` of the variance, ``label_correction(policy)``, the part of the estimate that
corrects the calibrators (0 for a plug-in), with ``inference="jackknife"`` ``jackknife(policy, fold)``,
the values without each oracle fold"""
DECOMPOSED = """\
and the variables of
`cje_core.families.off_policy.estimate.decomposition`: ``direct_part``, ``ips_part``, ``orthogonality``, each with
``_std_error`` and ``_interval``, and ``part_correlation``; and of `cje_core.families.off_policy.residual_tails`:
``residual_nan``, ``residual_df``"""


class Method(NamedTuple):
    """What an estimator makes of its own options: its value of a policy, and the options as they are recorded."""

    policy_value: PolicyValue
    options: Mapping[str, Any] = {}
    stages: Callable[[Logs], Logs] = lambda logs: logs  # adds the stages of `Logs` that `policy_value` reads
    estimand: str = ESTIMAND
    own_overlap: bool = False  # whether overlap is that of the weights in use, and not of the raw ones
    knows_borrowed: bool = (
        False  # whether `policy_value` takes ``borrowed``: the stack weighs what the labels add
    )
    refuse: Callable[[Logs, int], Status | None] = lambda logs, p: None  # not of the paper's plug-in


class ErrorParts(NamedTuple):
    """The labels' correction of a value and the parts of its error, with the sources that two of them are of."""

    correction: float
    parts: list[Part]  # ``direct``, ``ips``, labels
    direct: Source
    ips: Source


class Estimated(NamedTuple):
    """One policy's value, or why it has none, its result, and what its standard error consists of."""

    value: Value | Status
    result: PolicyResult
    facts: dict[str, Fact]
    error: ErrorParts | None  # None without a value


def source_part(logs: Logs, source: Source) -> Part:
    """Small-sample factor and degrees of freedom of one sampling source."""
    part = make_part(source.influence, source.leverage, logs.rows.cluster)
    return part._replace(df=max(part.df, MIN_DF)) if np.isfinite(part.df) else part


def error_parts(logs: Logs, p: int, value: Value, borrowed: str) -> ErrorParts:
    """Return the labels' correction of policy p's value, and the parts ``direct``, ``ips`` and labels of its error."""
    direct, ips = value.sources()
    labels = label_error(logs, p, value.terms(), borrowed)
    parts = [source_part(logs, direct), source_part(logs, ips), labels.part]
    return ErrorParts(labels.correction, parts, direct, ips)


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


def prepared(logs: Logs, method: Method, inference: str = "influence", borrowed: str = "balanced") -> Logs:
    """Logs with all stages that the method reads; those that are there already are kept."""
    if logs.fitted.calibrator is None:
        return logs
    logs = method.stages(logs)
    if inference == "jackknife":  # the influence path of its plug-in is of R^OOF
        return with_reruns(with_outcome(logs), method.stages)
    logs = with_judge(logs)
    return with_residuals(logs) if borrowed == "balanced" else logs


class Estimate(Protocol):
    """An estimator of the family, as `estimator` makes it."""

    method: Callable[..., Method]  # of its own options
    prepare: Callable[..., Logs]  # the data with all that the estimator reads; takes the same arguments

    def __call__(self, data: xr.Dataset | Calibrated | Logs, **options: Any) -> xr.Dataset:
        """Estimate every policy's value."""


def estimator(*, fresh: bool) -> Callable[[Callable[..., Method]], Estimate]:
    """Make an estimator's `estimate` of a function of its own options that returns its `Method`.

    The result has the options that the whole family shares, in `help` and to `inspect` too, the name of the module that
    it stands in, as ``method`` the function that was given, and as ``prepare`` a function of the same arguments that
    returns the data as `Logs` with all that `estimate` reads: of these logs it computes nothing again. The function's
    docstring holds a summary, where there are options of its own a section "Parameters" of these, and last, where it
    adds variables to the family's, a section "Returns" that names them.

    Parameters
    ----------
    fresh : bool
        Whether the estimator needs fresh draws of the policy; if so the result carries its `decomposition`.
    """

    def decorate(own: Callable[..., Method]) -> Estimate:
        name = own.__module__.rpartition(".")[2]

        def estimate(
            data: xr.Dataset | Calibrated | Logs,
            *,
            ci_prob: float = 0.95,
            rng: np.random.Generator | int | None = None,
            inference: str = "influence",
            borrowed: str | None = None,
            calibration: Calibration | None = None,
            interval: str = "auto",
            **options: Any,
        ) -> xr.Dataset:
            del rng
            return run(
                logs_of(data, calibration),
                own(**options),
                estimator=name,
                fresh=fresh,
                ci_prob=ci_prob,
                inference=inference,
                borrowed=correction_of(borrowed, inference),
                interval=interval,
            )

        def prepare(
            data: xr.Dataset | Calibrated | Logs,
            *,
            inference: str = "influence",
            borrowed: str | None = None,
            calibration: Calibration | None = None,
            ci_prob: float = 0.95,
            rng: np.random.Generator | int | None = None,
            interval: str = "auto",
            **options: Any,
        ) -> Logs:
            del ci_prob, rng, interval
            correction = correction_of(borrowed, inference)
            return prepared(logs_of(data, calibration), own(**options), inference, correction)

        shown = inspect.signature(estimate)
        first, shared = list(shown.parameters.values())[:3], list(shown.parameters.values())[3:-1]
        mine = inspect.signature(own).parameters.values()
        estimate.__signature__ = shown.replace(parameters=[*first, *mine, *shared])  # type: ignore[attr-defined]
        estimate.__module__, estimate.__qualname__ = own.__module__, own.__qualname__
        estimate.__doc__ = _described(inspect.getdoc(own) or "", fresh)
        estimate.method, estimate.prepare = own, prepare  # type: ignore[attr-defined]
        return cast("Estimate", estimate)

    return decorate


def _described(doc: str, fresh: bool) -> str:
    """Docstring of an `estimate`, with its own summary, parameters and returned variables in their places."""
    doc, _, returned = doc.partition("Returns\n-------\n")
    summary, _, described = doc.partition("Parameters\n----------\n")
    found = f"{COUNTED}, {DECOMPOSED}." if fresh else f"{COUNTED}."
    found = "\n".join(f"    {line}" for line in [*found.splitlines(), *returned.strip().splitlines()])
    parameters = "\n".join(filter(None, (FIRST, described.strip(), SHARED)))
    return f"{summary.strip()}\n\nParameters\n----------\n{parameters}\n\nReturns\n-------\nxr.Dataset\n{found}\n"


def logs_of(data: xr.Dataset | Calibrated | Logs, calibration: Calibration | None = None) -> Logs:
    """`Logs` of evaluation data, or the logs themselves; another calibration than their own is a `ValueError`."""
    if isinstance(data, Logs):
        calibrated(data.given, calibration)
        return data
    return make_logs(calibrated(data, calibration))


def correction_of(borrowed: str | None, inference: str) -> str:
    """The labels' correction that these options ask for, "balanced" or "plug_in"."""
    one_of(inference, "inference", INFERENCE)
    borrowed = borrowed or ("balanced" if inference == "influence" else "plug_in")
    one_of(borrowed, "borrowed", BORROWED)
    if borrowed == "plug_in":
        return borrowed
    if inference == "jackknife":
        raise ValueError("borrowed='balanced': it has no jackknife; use inference='influence'")
    return "balanced"  # the one correction of weighted means, whatever form Direct is asked for


def run(
    logs: Logs,
    method: Method,
    *,
    estimator: str,
    fresh: bool,
    ci_prob: float,
    inference: str,
    borrowed: str,
    interval: str,
) -> xr.Dataset:
    """Estimate every policy of the data by `method` and label the result; options as in `estimator`."""
    calibration, results, facts = logs.given.calibration, [], []
    for p, one in enumerate(policy_results(logs, method, fresh, inference, borrowed)):
        counted: dict[str, Fact] = {"n_logged_used": len(used_rows(logs, p))}
        results.append(one.result._replace(route="none" if one.error is None else estimator))
        if isinstance(one.value, Status) or one.error is None:
            facts.append(counted)
            continue
        counted["ess_fraction_raw"] = ess_fraction(raw_weights(logs, p))
        parts: dict[str, Fact] = {}
        if fresh:
            parts = decomposition(logs, one.value, one.error, ci_prob)
            parts |= residual_facts(logs, p, one.error.ips)
        facts.append({**counted, **one.facts, **one.value.facts, **parts})
    options = {
        "inference": inference,
        "borrowed": borrowed,
        "covariates": list(calibration.covariates),
        "calibrator": calibration.mode,
        "direction": calibration.direction,
        "interval": interval,
        **calibration.recorded,
        **method.options,
    }
    extra = _columns(facts) | {"estimand": method.estimand}
    made = Found(logs.rows, results, options, IntervalRule(interval), extra=extra)
    return assemble(logs.given.data, made, estimator=estimator, ci_prob=ci_prob)


def policy_results(
    logs: Logs, method: Method, fresh: bool, inference: str = "influence", borrowed: str = "balanced"
) -> Iterator[Estimated]:
    """Estimate each policy."""
    logs = prepared(logs, method, inference, borrowed)
    n_policies = len(logs.rows.policies)
    barred = np.zeros(n_policies, dtype=bool)
    if inference == "influence" and logs.judge is not None and not logs.judge.test.informative:
        barred = logs.judge.decides
    if method.knows_borrowed:
        method = method._replace(policy_value=partial(method.policy_value, borrowed=borrowed))
    for p in range(n_policies):
        value = (
            refusal(logs, p, fresh)
            or (barred[p] and Status.UNINFORMATIVE_JUDGE)
            or (borrowed != "plug_in" and method.refuse(logs, p))
            or method.policy_value(logs, p)
        )
        if isinstance(value, Status):
            yield Estimated(value, PolicyResult(value, "none"), {}, None)
        else:
            yield _with_error(logs, p, value, method, inference, borrowed)


def refusal(logs: Logs, p: int, fresh: bool) -> Status | None:
    """Why policy p gets no number, if so."""
    if logs.fitted.calibrator is None:
        return logs.fitted.status
    if len(used_rows(logs, p)) == 0:
        return Status.NO_LOG_PROBS
    return Status.NO_RESPONSES if fresh and len(fresh_rows(logs, p)) == 0 else None


def _with_error(logs: Logs, p: int, value: Value, method: Method, inference: str, borrowed: str) -> Estimated:
    """The value with its standard error, and what that consists of."""
    error = error_parts(logs, p, value, borrowed)
    facts: dict[str, Fact] = {"label_correction": error.correction}
    influence, std_error, df = combine(error.parts, logs.rows.cluster)
    overlap = value.facts["ess_fraction"] if method.own_overlap else ess_fraction(raw_weights(logs, p))
    assert isinstance(overlap, float)
    status = _status(logs, p, overlap)
    sampling = variance(logs, error.parts[0].influence + error.parts[1].influence)
    calibration = variance(logs, error.parts[2].influence)
    if inference == "jackknife":
        reruns = logs.reruns or ()
        rerun = [method.policy_value(other, p) for other in reruns]
        complete = bool(rerun) and all(isinstance(v, Value) for v in rerun)
        sampling = variance(logs, error.direct.influence + value.held_out_influence())
        left_out = [v.value for v in rerun if isinstance(v, Value)]
        calibration = jackknife(left_out) if complete else np.nan
        if complete:
            folds = [str(other.left_out) for other in reruns]
            facts["jackknife"] = Along("fold", folds, np.array(left_out))
        std_error, df = float(np.sqrt(sampling + calibration)), np.inf
        status = status if complete else Status.FEW_RESAMPLES
    total = sampling + calibration
    facts["calibration_share"] = calibration / total if total > 0 else np.nan
    facts["std_error_evaluation"] = float(np.sqrt(sampling))
    facts["std_error_calibration"] = float(np.sqrt(calibration))
    result = PolicyResult(status, "none", "logs", value.value + error.correction, influence, std_error, df)
    return Estimated(value, result, facts, error)


def _status(logs: Logs, p: int, overlap: float) -> Status:
    """What to say of a value: the slice's flag, else poor overlap, else that the calibration is borrowed.

    Overlap (effective sample size over n) is that of the raw weights: stabilised or capped ones still rest on the same
    handful of responses. Only an estimator of another mean than V has that of its own weights. The labels of logged
    responses are the logger's own, and so of any policy that is the logger.
    """
    rows, used = logs.rows, used_rows(logs, p)
    if logs.fitted.status is not Status.OK:
        return logs.fitted.status
    if overlap * len(used) < MIN_ESS:
        return Status.POOR_OVERLAP
    own = rows.prompt[rows.teaches & (rows.policy == p)]
    if is_logger(logs, p) and not rows.teaches.any():  # else they taught nothing
        own = np.union1d(own, np.flatnonzero(np.isfinite(logs.logged.label)))
    borrowed = np.count_nonzero(np.bincount(rows.cluster[own])) < MIN_LABELLED_CLUSTERS
    return Status.TRANSPORT_ASSUMED if borrowed else Status.OK


def decomposition(logs: Logs, value: Value, error: ErrorParts, ci_prob: float) -> dict[str, Fact]:
    """DM-IPS decomposition and orthogonality score of a doubly robust value (the paper's section on both).

    ``direct_part`` + ``ips_part`` is the estimate before ``label_correction``; their errors are of sampling only.
    ``part_correlation`` is that
    of their contributions per cluster. The score ``orthogonality = sum W (Y - q) / sum W`` uses the labels of logged
    responses: with the paper's R^OOF it would be identically zero, since q is that same held-out calibrator. Its
    interval covers 0 if q is right, on average, on the logged responses where the weights lie. Each of the three
    comes with ``_std_error`` and ``_interval``.
    """
    named = {"direct_part": (error.direct, error.parts[0]), "ips_part": (error.ips, error.parts[1])}
    score = value.orthogonality()
    if score is not None:
        named["orthogonality"] = score, source_part(logs, score)
    facts: dict[str, Fact] = {}
    for name, (source, part) in named.items():
        std_error = float(np.sqrt(variance(logs, part.influence)))
        facts[name], facts[f"{name}_std_error"] = source.value, std_error
        bounds = wald(source.value, std_error, part.df, ci_prob)
        facts[f"{name}_interval"] = Along("ci_bound", CI_BOUND, bounds)
    both = cluster_sums(np.stack([error.direct.influence, error.ips.influence]), logs.rows.cluster)
    size = np.sqrt((both**2).sum(axis=1))
    facts["part_correlation"] = float(both[0] @ both[1] / size.prod()) if size.all() else np.nan
    return facts


def _columns(facts: Sequence[Mapping[str, Fact]]) -> dict[str, tuple[Any, ...]]:
    """Facts of all policies as variables, and the labels of their dimensions; a policy without one has NaN."""
    variables: dict[str, tuple[Any, ...]] = {}
    for name in sorted({name for fact in facts for name in fact}):
        first = next(fact[name] for fact in facts if name in fact)
        dims: tuple[str, ...] = ("policy",)
        shape: tuple[int, ...] = (len(facts),)
        if isinstance(first, Along):
            dims, shape = ("policy", first.dim), (len(facts), len(first.labels))
            if first.dim != "ci_bound":  # every estimate has that
                variables[first.dim] = first.dim, list(first.labels)
        values = np.full(shape, np.nan)
        for row, fact in enumerate(facts):
            if name in fact:
                at = fact[name]
                values[row] = at.values if isinstance(at, Along) else at
        variables[name] = (dims, values)
    return variables
