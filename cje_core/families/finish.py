"""From what an estimator found on the rows of data sets to intervals: the one way for labelled data and for blocks.

An estimator finds a `PolicyResult` for each policy of a data set (`Found`); here the results of one or many data sets
of one shape get statuses, intervals and the basis of limits at any other level.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.checks import BoolArray, FloatArray, one_of, probability
from cje_core.data.arrays import Rows
from cje_core.families.intervals import INTERVALS, NOTHING, Evidence, bounds, evidence_of
from cje_core.formulas.borrowed import Borrowed
from cje_core.inference.estimate import Status, into_scale, percentile
from cje_core.inference.limits import Basis, error_skewness
from cje_core.inference.sources import SOURCES
from cje_core.inference.sums import cluster_sums

# statuses that explain a missing standard error by themselves, beside the failures
SILENT = (
    Status.CONSTANT_LABELS,
    Status.FEW_RESAMPLES,
    Status.FEW_LABELS_POSTERIOR,
    Status.POOR_OVERLAP,  # one response has all the weight
    Status.ILL_CONDITIONED,  # a ratio whose denominator may be 0
)


class PolicyResult(NamedTuple):
    """One policy's number before it gets its labels; the defaults are a failure."""

    status: Status
    route: str
    source: str = "none"  # what the value rests on, see `cje_core.inference.sources`
    value: float = np.nan
    influence: FloatArray | None = None  # per prompt, in the order of Rows.prompts
    std_error: float = np.nan
    df: float = np.inf
    draws: FloatArray | None = None  # replicates; when given they make the interval and the standard error
    bounds: FloatArray | None = None  # (2,): an interval made in another way than by t or percentiles
    se_evaluation: float = np.nan  # standard error from the responses drawn, with f known
    se_calibration: float = np.nan  # standard error from the finite number of labels
    balance: FloatArray | None = None  # per prompt: weights of the labels that others lend, see `Part`
    kind: str = (
        ""  # of `bounds` where these are this policy's alone and the others have intervals by the rule
    )


class IntervalRule(NamedTuple):
    """How values get their intervals.

    ``kind`` is one of "auto", "wald", "logit", "clopper_pearson" (`cje_core.families.intervals`); all but ``wald`` keep
    the interval inside the declared oracle range, and intervals from draws are cut to it.
    """

    kind: str = "wald"
    # (rows,) whose labels correct or make their own policy's value: their counts are ``effective_count`` where they are
    # binary and the interval rests on them; graded ones leave room, see `cje_core.families.intervals`
    behind: BoolArray | None = None
    drawn: str = "percentile"  # what to call an interval from draws or `PolicyResult.bounds`


WALD = IntervalRule()


class Found(NamedTuple):
    """What an estimator found on the rows of one data set."""

    rows: Rows
    results: Sequence[PolicyResult]  # in the order of the rows' policies
    options: Mapping[str, Any]  # as the estimate records them
    rule: IntervalRule = WALD
    decomposed: bool = False  # whether the two parts of the standard errors are told
    extra: Mapping[str, Any] = {}  # more that the estimate tells, see `cje_core.families.assemble.assemble`
    splines: Borrowed | None = None  # where values are borrowed by the spline posterior


class Finished(NamedTuple):
    """Numbers of R data sets and P policies, arrays (R, P) with the policies in the order of their rows."""

    value: FloatArray
    std_error: FloatArray
    df: FloatArray
    interval: FloatArray  # (R, P, 2)
    kind: npt.NDArray[np.str_]  # of the interval, "none" where there is none
    status: npt.NDArray[np.int8]
    influence: FloatArray  # (R, P, n)
    balance: FloatArray | None  # (R, P, n)
    basis: Basis  # of limits at other levels, by the intervals' kinds
    unseen: FloatArray  # `cje_core.inference.limits.unseen_bound`
    evaluation: FloatArray  # parts of the standard error
    calibration: FloatArray


def finish(found: Sequence[Found], ci_prob: float, scale: tuple[float, float]) -> Finished:
    """Statuses and intervals of what was found on data sets with the same policies and number of prompts.

    Constant labels and a single cluster give a value without a standard error: no spread was seen, so none can be
    claimed. Labels that are all at one end of the scale bound their mean even so, see `cje_core.families.intervals`.
    """
    rule, n = found[0].rule, len(found[0].rows.prompts)
    one_of(rule.kind, "interval", INTERVALS)
    probability(ci_prob)
    results = [[_checked(result) for result in one.results] for one in found]
    shape = len(results), len(results[0])
    numbers = [
        (one.value, one.std_error, one.df, one.se_evaluation, one.se_calibration, one.status)
        for row in results
        for one in row
    ]
    value, std_error, df, evaluation, calibration, status = (
        np.array(numbers, dtype=float).reshape(*shape, 6).transpose(2, 0, 1).copy()
    )
    if rule.kind != "wald":  # E[Y] lies in the range: its nearest point is never further from it
        value = np.clip(value, *scale)
    influence = _stacked([one.influence for row in results for one in row], n).reshape(*shape, n)
    lent = [one.balance for row in results for one in row]
    balance = None if all(one is None for one in lent) else _stacked(lent, n).reshape(*shape, n)
    silent = status == Status.CONSTANT_LABELS
    if silent.any():
        std_error[silent] = evaluation[silent] = calibration[silent] = np.nan
        influence = np.where(silent[..., None], np.nan, influence)
    evidence, graded = _evidence(found, shape, scale)
    chosen = bounds(
        value,
        std_error,
        df,
        skewness=np.stack([_skewness(one.rows, x) for one, x in zip(found, influence, strict=True)])
        if graded
        else 0.0,
        evidence=evidence,
        kind=rule.kind,
        ci_prob=ci_prob,
        scale=scale,
    )
    out = Finished(
        value, std_error, df, chosen.interval, chosen.basis.kind.astype("U24"), status.astype(np.int8), influence,
        balance, chosen.basis, chosen.unseen, evaluation, calibration,
    )  # fmt: skip
    for r, row in enumerate(results):
        _put_given(out, r, row, rule, ci_prob, scale)
    out.kind[~np.isfinite(out.interval).all(axis=-1)] = "none"
    counted, roomy = out.kind == "clopper_pearson", out.kind == "gamma"
    basis = chosen.basis._replace(
        kind=out.kind,
        effective=np.where(counted, chosen.basis.effective, np.nan),
        unseen_by=np.where(roomy, chosen.basis.unseen_by, np.nan),
        unseen_weight=np.where(roomy, chosen.basis.unseen_weight, np.nan),
        skewness=np.where(roomy, chosen.basis.skewness, np.nan),
    )
    return out._replace(basis=basis, unseen=np.where(roomy, chosen.unseen, np.nan))


def _evidence(
    found: Sequence[Found], shape: tuple[int, int], scale: tuple[float, float]
) -> tuple[Evidence, bool]:
    """The own labels behind each value, arrays (R, P), and whether any of them are graded."""
    if found[0].rule.behind is None:
        return NOTHING, False
    each = [
        evidence_of(one.rows, p, one.rule.behind, scale)  # type: ignore[arg-type]
        for one in found
        for p in range(shape[1])
    ]
    evidence = Evidence(*(np.array(part).reshape(shape) for part in zip(*each, strict=True)))
    return evidence, any(e.there and not e.binary for e in each)


def _put_given(
    out: Finished,
    r: int,
    results: Sequence[PolicyResult],
    rule: IntervalRule,
    ci_prob: float,
    scale: tuple[float, float],
) -> None:
    """Put the intervals that draws, or the estimator itself, make in place of those of data set r."""
    value, silent = out.value[r], out.status[r] == Status.CONSTANT_LABELS
    given = [one.bounds if not one.kind else None for one in results]
    sizes = [len(one.draws) for one in results if one.draws is not None]
    if sizes:
        by_rule = out.interval[r].copy()
        out.std_error[r] = [np.nan if one.draws is None else np.std(one.draws, ddof=1) for one in results]
        out.interval[r] = percentile(_stacked([one.draws for one in results], sizes[0]), value, ci_prob)
        for p, limits in enumerate(given):
            if limits is not None:
                out.interval[r, p] = limits
        if rule.kind != "wald":
            out.interval[r] = into_scale(out.interval[r], value, scale)
        out.std_error[r, silent], out.interval[r, silent] = np.nan, by_rule[silent]
        out.kind[r, ~silent] = rule.drawn
    elif any(limits is not None for limits in given):
        out.interval[r], out.kind[r] = _stacked(given, 2), rule.drawn
    for p, one in enumerate(results):
        if one.kind and one.bounds is not None:
            out.interval[r, p], out.kind[r, p] = into_scale(one.bounds, value[p], scale), one.kind


def _skewness(rows: Rows, influence: FloatArray) -> FloatArray:
    """Skewness of the errors of the policies, of influence values by prompt."""
    if not rows.stands_for.size:
        return error_skewness(cluster_sums(influence, rows.cluster))
    number = np.ones(influence.shape)  # then each prompt is a cluster
    number[rows.policy, rows.prompt] = rows.stands_for
    return error_skewness(influence, number)


def _stacked(arrays: Sequence[FloatArray | None], size: int) -> FloatArray:
    """One row per array, shape (n, size), a view of the only one; NaN where there is none."""
    if len(arrays) == 1 and arrays[0] is not None:
        return arrays[0][None]
    return np.stack([np.full(size, np.nan) if one is None else one for one in arrays])


def _checked(result: PolicyResult) -> PolicyResult:
    """Raise unless a value says what it rests on, and give one without a standard error the status that says why."""
    if result.source not in SOURCES or (np.isfinite(result.value) and result.source == "none"):
        raise ValueError(
            f"the value by route {result.route!r} has source {result.source!r}; say what it rests on, by one of "
            f"{', '.join(SOURCES[:-1])}"
        )
    return name_missing_spread(result)


def name_missing_spread(result: PolicyResult) -> PolicyResult:
    """Give a value whose standard error is NaN the status that says why."""
    named = result.status.failed or result.status in SILENT
    if np.isfinite(result.std_error) or named:
        return result
    return result._replace(status=Status.ONE_CLUSTER)
