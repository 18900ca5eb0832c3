"""Misclassification correction of a binary judge (Rogan and Gladen 1978), with an interval that inverts a test.

Estimand: V(policy) = E[Y], Y one of the two ends of ``oracle_range``. The judge is cut at a threshold. With p the share
of the policy's responses that it passes, Se and Sp its sensitivity and specificity on the labels, and Youden's
``J = Se + Sp - 1``, the share of good responses is ``(p + Sp - 1) / J``, clipped to [0, 1] (the paper's section
"Comparison to Misclassification Correction"). Se and Sp come from the policy's own labels (route ``own_labels``); with
fewer than 4 labelled prompts from those of the calibration policies (``borrowed``, TRANSPORT_ASSUMED): the confusion
matrix, not E[Y | S], is assumed to be stable.

``interval="auto"`` inverts a test of each share theta (Fieller 1954, without his normal ratio). With f = 1 - Sp,

    D(theta) = p - (1 - theta) f - theta Se

has mean 0 at the true share whatever J is; theta stays in the interval while D(theta) is no further from 0 than

    Q(theta) = u' R u,    u = (arm of p, -(1 - theta) arm of f, -theta arm of Se)

where an arm is the distance from a share to the end of its Wilson interval on the side that D asks for (MOVER: Zou and
Donner 2008) and R holds the correlations of the three, from their influence values: with own labels p holds the
labelled responses too. It is taken within [0, 1]. Counts are effective counts: clusters, draws and label probabilities
have entered, and df that fall behind a count are charged to it as in `cje_core.families.intervals`. Other arms and
intervals stand in ``docs/decisions.md``.

Differences (`cje_core.inference.pairs`) invert a test too: under one confusion matrix ``delta = (p_a - p_b) / J``, so
``D(delta) = p_a - p_b - delta (Se - f)`` has no other unknown (`cje_core.formulas.misclassification`, for any level;
the p-value is the level at which 0 is left out). Policies with labels of their own have a matrix each; their intervals
are combined by MOVER. Coverage of the difference of the two policies last named, 1,000 replicates (Monte Carlo SE at
most .007), 1,000 responses and labels under the first policy:

=============================================  ========  ========
judge, values, labels                          wald      auto
=============================================  ========  ========
Se = Sp = .98, .5 .97 .02, 40                  .53       1.00
Se = Sp = .98, .5 .97 .02, 200                 .92       .96
Se = Sp = .80, .9 .1 .98, 50                   .57       1.00
Se .85 Sp .60, .3 .7 .99, 100                  .87       .97
=============================================  ========  ========

``"wald"`` is the plain delta method on the joint influence function with a t quantile: it takes the slope at the
estimate for the slope at the truth, and believes that a class with no error seen has no error. ``"lee"`` is the
interval of "How to Correctly Report LLM-as-a-Judge Evaluations": delta method on Agresti-Coull adjusted counts with a
recentring term, normal quantile (`lee_interval`); it takes p as independent of Se and Sp. The standard error is that of
the delta method whatever the interval. Coverage of the values that are printed, and the mean width of their intervals:
4,000 replicates a row (Monte Carlo SE at most .013), 1,000 responses. The last row is the worst of 11 worlds (J .25 to
.9, prevalence .02 to .99), 20 to 200 labels, borrowed and own, 150 and 1,000 responses, where a tenth of the runs or
more print a value; with refusals counted as covered, lee's worst is .951:

=============================================  ==========  ==========  ==========
labels, judge, prevalence of labels -> target  wald        lee         auto
=============================================  ==========  ==========  ==========
60 borrowed, J .41, .3 -> .7                   .922: .64   .956: .59   .977: .57
60 borrowed, J .25, .7 -> .3                   .871: .71   .923: .69   .959: .72
60 borrowed, J .60, .5 -> .9                   .924: .32   .959: .28   .981: .27
60 borrowed, J .85, .5 -> .95                  .786: .12   .985: .12   1.000: .11
200 borrowed, J .85, .9 -> .6                  .904: .16   .964: .18   .956: .19
60 own, J .41, .7                              .990: .53   .981: .54   .954: .62
200 own, J .41, .7                             .974: .30   .989: .36   .952: .33
20 own, J .85, .95                             .648: .18   .993: .18   1.000: .24
worst of all                                   .257        .923        .946
=============================================  ==========  ==========  ==========

With own labels the correction competes with the mean of those labels, which is unbiased whatever the judge is:
``width_vs_labels`` is the width of the interval over that of `cje_core.estimators.labels_only`. Above 1 the judge costs
more than it tells (1.6 to 6.6 times in simulations with a weak or useless one); then take the labels alone.

Failure modes: the error grows like 1 / J. Where the interval of J reaches 0, or a class rests on one cluster, the
value is not identified: status ILL_CONDITIONED, the whole oracle range as interval, no standard error, no influence.
Thresholding throws the rest of the score away; a confusion matrix that moves with the policy biases every borrowed
number.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("binary_judge", n=300, oracle_fraction=0.5, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.678, 'target': 0.511}
>>> found["interval"].sel(policy="base").values.round(3).tolist()
[0.569, 0.779]
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import FloatArray, Rng, one_of, probability
from cje_core.data.arrays import Rows
from cje_core.estimators import labels_only
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.families.misclassification import (
    ACCURACY,
    Proportion,
    Verdicts,
    gather,
    judge_verdicts,
    label_weight,
    proportion,
    source_of,
)
from cje_core.formulas.covariance import correlations
from cje_core.formulas.misclassification import value_limits
from cje_core.formulas.proportions import charged, wilson
from cje_core.inference.estimate import CI_BOUND, Status, wald
from cje_core.inference.influence import Part, combine
from cje_core.inference.sums import cluster_sums

NEEDS = {"judge", "oracle"}
INTERVALS = ("auto", "wald", "lee")
KIND = {"auto": "fieller", "wald": "wald", "lee": "agresti_coull"}  # what an estimate calls them
Shares = tuple[Proportion, Proportion, Proportion]  # p, Se and Sp


class Corrected(NamedTuple):
    """The correction of one policy, in shares of good responses."""

    result: PolicyResult
    accuracy: FloatArray = np.full(3, np.nan)  # sensitivity, specificity, youden
    accuracy_interval: FloatArray = np.full((3, 2), np.nan)


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    threshold: float | None = None,
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each policy's value by misclassification correction; see the module and its package.

    Parameters
    ----------
    threshold : float, optional
        A score at or above it passes. Default: the middle of ``judge_range``.
    interval : {"auto", "wald", "lee"}
        Test inversion, delta method, or the interval of Lee et al.; the module has what each covers.

    Returns
    -------
    And ``sensitivity``, ``specificity`` and ``youden`` over ``policy`` with their intervals (``sensitivity_interval``,
    ...): Wilson, and Newcombe's combination of the two for J; ``width_vs_labels(policy)``, NaN where the policy has no
    labels of its own.
    """
    del rng
    one_of(interval, "interval", INTERVALS)
    probability(ci_prob)
    given = calibrated(data)
    data, rows, (bottom, top) = given.data, given.rows, given.scale
    verdicts = judge_verdicts(given, threshold)
    estimated = [_estimated(rows, verdicts, p, ci_prob) for p in range(len(rows.policies))]
    shares = [parts for _, parts in estimated]
    found, accuracy, bounds = zip(
        *(_with_interval(rows, *one, interval, ci_prob) for one in estimated), strict=True
    )
    results = [_rescale(result, bottom, top) for result in found]
    extra: dict[str, object] = {"width_vs_labels": ("policy", _width_vs_labels(data, rows, results, ci_prob))}
    for k, name in enumerate(ACCURACY):
        extra[name] = ("policy", np.array(accuracy)[:, k])
        extra[f"{name}_interval"] = (("policy", "ci_bound"), np.array(bounds)[:, k])
    if interval == "auto":
        extra |= _difference_parts(rows, shares, verdicts)
    options = {"threshold": verdicts.threshold, "interval": interval}
    made = Found(rows, results, options, IntervalRule(drawn=KIND[interval]), extra=extra)
    return assemble(data, made, estimator="rogan_gladen", ci_prob=ci_prob)


def sweep(
    data: xr.Dataset, thresholds: Sequence[float], *, ci_prob: float = 0.95, interval: str = "auto"
) -> xr.Dataset:
    """The correction at several thresholds, to see how much rests on the choice.

    Picking the narrowest interval of a sweep is a selection: its nominal level no longer holds.

    Over ``threshold, policy`` it has the variables of `estimate` but the influence, and ``width`` of the interval.
    """
    cuts = [float(t) for t in thresholds]
    if not cuts:
        raise ValueError("thresholds is empty; give at least one")
    each = [
        estimate(data, ci_prob=ci_prob, threshold=t, interval=interval).drop_dims(
            ["prompt", "proportion"], errors="ignore"
        )
        for t in cuts
    ]
    out = xr.concat(each, dim=xr.Variable("threshold", np.array(cuts)), combine_attrs="drop_conflicts")
    out["width"] = out["interval"].sel(ci_bound=CI_BOUND[1]) - out["interval"].sel(ci_bound=CI_BOUND[0])
    return out


def lee_interval(
    passed: float,
    sensitivity: float,
    specificity: float,
    *,
    n: float,
    n_good: float,
    n_bad: float,
    ci_prob: float = 0.95,
) -> tuple[float, float]:
    """Interval of the share of good responses, clipped to [0, 1] (Lee et al., section on confidence intervals).

    Counts of the two error rates gain one success and one failure each, the count of p gains z^2 of which half are
    successes; the delta-method interval is recentred by ``2 z^2 (theta Se (1 - Se) / n_good - (1 - theta) Sp (1 - Sp) /
    n_bad)``, all on adjusted figures. `n`, `n_good` and `n_bad` observations stand behind the three observed shares.

    Examples
    --------
    >>> [round(v, 4) for v in lee_interval(0.5, 0.9, 0.9, n=10000, n_good=5000, n_bad=5000)]
    [0.4857, 0.5143]
    """
    z = float(special.ndtri(0.5 + ci_prob / 2))
    p = (n * passed + z**2 / 2) / (n + z**2)
    se, sp = (n_good * sensitivity + 1) / (n_good + 2), (n_bad * specificity + 1) / (n_bad + 2)
    youden = se + sp - 1
    if youden == 0:
        return 0.0, 1.0
    theta = (p + sp - 1) / youden
    noise_good, noise_bad = se * (1 - se) / (n_good + 2), sp * (1 - sp) / (n_bad + 2)
    center = theta + 2 * z**2 * (theta * noise_good - (1 - theta) * noise_bad)
    variance = p * (1 - p) / (n + z**2) + (1 - theta) ** 2 * noise_bad + theta**2 * noise_good
    half = z * np.sqrt(variance) / abs(youden)
    return float(np.clip(center - half, 0.0, 1.0)), float(np.clip(center + half, 0.0, 1.0))


def fieller_interval(
    passed: float,
    sensitivity: float,
    specificity: float,
    *,
    n: float,
    n_good: float,
    n_bad: float,
    correlation: FloatArray | None = None,
    ci_prob: float = 0.95,
) -> tuple[float, float]:
    """Shares of good responses that a test on Wilson arms does not reject; see the module.

    An end of [0, 1] that is not rejected is the end of the interval, also where the shares not rejected do not hang
    together. Where the observed p lies outside of what Se and Sp allow, the nearest p that they allow is tested, so
    that the interval of a clipped value does not shrink to a point. `correlation` (3, 3) is that of the errors of p,
    1 - Sp and Se (default: independent); other parameters as in `lee_interval`.

    Examples
    --------
    >>> [round(v, 4) for v in fieller_interval(0.5, 0.9, 0.9, n=10000, n_good=5000, n_bad=5000)]
    [0.4857, 0.5143]
    """
    observed = np.array([passed, 1 - specificity, sensitivity])
    bounds = wilson(observed, [n, n_bad, n_good], ci_prob)
    joint = np.eye(3) if correlation is None else correlation
    lower, upper = value_limits(observed, observed - bounds[:, 0], bounds[:, 1] - observed, joint)
    return float(lower), float(upper)


def _estimated(rows: Rows, verdicts: Verdicts, p: int, ci_prob: float) -> tuple[Corrected, Shares | None]:
    """Everything but the interval of a policy's value, and p, Se and Sp; None where these give no interval."""
    found = gather(rows, verdicts, p)
    if isinstance(found, Status):
        return Corrected(PolicyResult(found, "none")), None
    weight = label_weight(rows)
    share = proportion(rows, found.evaluated, verdicts.passed, rows.weight)
    se = proportion(rows, found.good, verdicts.passed, weight)
    sp = proportion(rows, found.bad, ~verdicts.passed, weight)
    youden = se.value + sp.value - 1
    se_bounds, sp_bounds = (wilson(q.value, q.n, ci_prob) for q in (se, sp))
    youden_bounds = youden + np.array([-1, 1]) * np.hypot(se.value - se_bounds, sp.value - sp_bounds)
    accuracy = np.array([se.value, sp.value, youden]), np.stack([se_bounds, sp_bounds, youden_bounds])
    route, source = found.route, source_of(found.route)
    # A judge that knows nothing at all leaves 0 / 0: the middle of what is possible stands for "anything".
    raw = (share.value + sp.value - 1) / youden if youden else 0.5
    value = float(np.clip(raw, 0.0, 1.0))
    seen_twice = np.isfinite(se.part.df) and np.isfinite(sp.part.df)
    if not seen_twice or youden_bounds[0] <= 0 <= youden_bounds[1]:
        # linearising a ratio whose denominator may be 0 says nothing: no influence, no standard error
        anything = np.array([0.0, 1.0])
        result = PolicyResult(Status.ILL_CONDITIONED, route, source, value, bounds=anything)
        return Corrected(result, *accuracy), None
    slopes = ((share, 1 / youden), (sp, (1 - raw) / youden), (se, -raw / youden))
    parts = [Part(slope * q.part.influence, q.part.df) for q, slope in slopes]
    status = Status.INVERTED_JUDGE if youden < 0 else found.status
    result = PolicyResult(status, route, source, value, *combine(parts, rows.cluster))
    return Corrected(result, *accuracy), (share, se, sp)


def _with_interval(
    rows: Rows, found: Corrected, shares: Shares | None, kind: str, ci_prob: float
) -> Corrected:
    """What `_estimated` found, with its interval."""
    if shares is None:
        return found
    bounds = np.array(_interval(rows, found.result, shares, kind, ci_prob))
    return found._replace(result=found.result._replace(bounds=bounds))


def _interval(
    rows: Rows, result: PolicyResult, shares: Shares, kind: str, ci_prob: float
) -> tuple[float, float]:
    share, se, sp = shares
    if kind == "wald":
        raw = (share.value + sp.value - 1) / (se.value + sp.value - 1)
        lower, upper = np.clip(wald(raw, result.std_error, result.df, ci_prob), 0.0, 1.0)
        return float(lower), float(upper)
    if kind == "lee":
        counts = {"n": share.n, "n_good": se.n, "n_bad": sp.n}
        return lee_interval(share.value, se.value, sp.value, ci_prob=ci_prob, **counts)
    n, n_good, n_bad = (float(charged(q.n, q.part.df, ci_prob)) for q in shares)
    influence = np.stack([share.part.influence, -sp.part.influence, se.part.influence])
    sums = cluster_sums(influence, rows.cluster)
    return fieller_interval(
        share.value, se.value, sp.value, n=n, n_good=n_good, n_bad=n_bad, ci_prob=ci_prob,
        correlation=correlations(sums @ sums.T),
    )  # fmt: skip


def _difference_parts(rows: Rows, shares: Sequence[Shares | None], verdicts: Verdicts) -> dict[str, object]:
    """Variables from which differences at any level follow, and the name of their rule."""
    numbers = np.full((len(shares), 3, 3), np.nan)  # value, count and df of each share
    influence = np.full((len(shares), 3, len(rows.prompts)), np.nan)
    matrix, seen = np.full(len(shares), -1), list[bytes]()
    for p, parts in enumerate(shares):
        if parts is None:
            continue
        share, se, sp = parts
        value = share.value, 1 - sp.value, se.value
        numbers[p] = value, (share.n, sp.n, se.n), (share.part.df, sp.part.df, se.part.df)
        influence[p] = share.part.influence, -sp.part.influence, se.part.influence
        labels = gather(rows, verdicts, p)
        assert not isinstance(labels, Status)  # or there would be no shares
        rests_on = labels.labels.tobytes()
        matrix[p] = seen.index(rests_on) if rests_on in seen else len(seen)
        seen += [rests_on] * (rests_on not in seen)
    return {
        "difference_rule": "confusion_matrix",
        "proportion": (("proportion",), ["pass_rate", "false_pass_rate", "sensitivity"]),
        **{
            f"proportion_{name}": (("policy", "proportion"), numbers[:, k])
            for k, name in enumerate(("value", "count", "df"))
        },
        "proportion_influence": (("policy", "proportion", "prompt"), influence),
        "confusion_matrix": ("policy", matrix),
    }


def _width_vs_labels(
    data: xr.Dataset, rows: Rows, results: Sequence[PolicyResult], ci_prob: float
) -> FloatArray:
    """Width of each interval over that of the mean of the policy's own labels."""
    alone = labels_only.estimate(data, ci_prob=ci_prob).sel(policy=rows.policies)
    width = np.diff(alone["interval"].values, axis=1)[:, 0]
    own = np.array([result.route == "own_labels" for result in results])
    mine = np.array([np.nan if result.bounds is None else np.diff(result.bounds)[0] for result in results])
    return mine / np.where(own, width, np.nan)


def _rescale(result: PolicyResult, bottom: float, top: float) -> PolicyResult:
    """From shares of good responses to oracle units; the interval holds the value, and there is none without spread."""
    width = top - bottom
    influence = None if result.influence is None else width * result.influence
    value, bounds = bottom + width * result.value, np.full(2, np.nan)
    known = np.isfinite(result.std_error) or result.status is Status.ILL_CONDITIONED
    if result.bounds is not None and known:
        lower, upper = bottom + width * result.bounds
        bounds = np.array([np.fmin(lower, value), np.fmax(upper, value)])
    return result._replace(
        value=value, bounds=bounds, influence=influence, std_error=width * result.std_error
    )
