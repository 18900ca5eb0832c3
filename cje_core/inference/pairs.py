"""Differences of two policy values, with the errors that their estimate knows jointly.

Joint uncertainty comes from one place per estimate. With ``influence(policy, prompt)`` the influence of ``V_a - V_b``
at a prompt is the difference of the two policies' influence values there, so whatever they share (the prompt, the
labels that taught one calibrator) cancels as it should; two policies that borrow the same calibrator can be told
apart much better than their own intervals suggest. The degrees of freedom are the smaller of the two policies', but
of two that borrow they are those of the labels that their difference rests on (``balance``, `lent_df`). Without
influence, ``draws(policy, replicate)`` are used, a bootstrap distribution and a posterior alike.

Where a policy's interval counts its binary labels (``effective_count``), the difference gets the interval that follows
from the two levels' (MOVER: Zou and Donner 2008; Newcombe 1998): with levels in [l, u] and the correlation r of their
influence values,

    lower = d - sqrt((a - l_a)^2 - 2 r (a - l_a) (u_b - b) + (u_b - b)^2),      upper likewise

and the p-value is the smallest alpha at which it leaves out 0. Of two counts m, a positive r of binary labels is less
its continuity correction ``1 / (2 m s_a s_b)``, s^2 = v (1 - v) on the unit scale (Newcombe 1998, method 10): of five
policies with 12 binary labels of mean .5 on the same prompts, some pair is then told apart at their simultaneous level
in .011 of the runs, without it in .087 (Monte Carlo standard errors .003 and .009). So labels that are all equal, which
show no spread and leave a t interval out of the question, still bound a difference (r = 0: no correlation was seen).
Two independent policies of mean .94 with 20 labels each, where half of all pairs have such a policy: it covers .997 and
the t interval .503 (.961 and .961 at mean .5, at .95 of the width), by enumeration over both binomials.

Where one of the policies has graded labels of its own (kind ``gamma``), the difference has the limits of its own error
with its skewness, and the room of both levels. There is no number where a policy has failed, and no p-value of a
difference that is rounding.

An estimate whose differences follow from something else names its rule in the attribute ``difference_rule``, a key of
`DIFFERENCE_RULES`: a function that gives the limits of its differences at any level. Interval and p-value come from it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray, probability
from cje_core.formulas.misclassification import Shares
from cje_core.formulas.misclassification import pair_limits as confusion_limits
from cje_core.inference.borrowed_limits import covered_pairs, pair_limits, parts_of
from cje_core.inference.estimate import Status, contain, percentile, wald
from cje_core.inference.influence import pooled_df
from cje_core.inference.limits import Basis, basis_of, error_skewness, value_limits
from cje_core.inference.sums import cluster_se, cluster_sums, counts_up

Limits = Callable[[FloatArray], FloatArray]  # of levels (pairs,): intervals of the differences (pairs, 2)
ROUNDING = 1e-9  # a standard error this small beside the levels and theirs is none
SMALLEST_P = -12.0  # log10 of the smallest p-value told apart from 0 where the interval is inverted


class Pairs(NamedTuple):
    """Differences ``value[first] - value[second]`` and their errors, each of shape (pairs,)."""

    difference: FloatArray
    std_error: (
        FloatArray  # NaN where unknown, or where the two never differ: no error to speak of, nor a test
    )
    df: FloatArray
    interval: FloatArray  # (pairs, 2)
    p_value: FloatArray
    probability: FloatArray  # that first is better than second


def has_influence(estimate: xr.Dataset) -> bool:
    """Whether influence values (rather than draws) carry the joint uncertainty of this estimate."""
    if "influence" in estimate and np.isfinite(_numbers(estimate, "influence", "prompt")).any():
        return True
    if "draws" in estimate:
        return False
    if "influence" in estimate:  # every policy failed: the contrasts are NaN, as the estimates are
        return True
    raise ValueError(
        "this estimate has neither influence values nor draws; contrasts need an estimator that reports one of them"
    )


def _numbers(estimate: xr.Dataset, name: str, *inside: str) -> FloatArray:
    """Values of a variable over policies, and other dimensions inside; a labelled array costs ten times as much."""
    found = estimate.variables[name]
    return np.asarray((found.transpose("policy", *inside) if inside else found).values)


def _clusters(estimate: xr.Dataset) -> IntArray | None:
    """Code of each prompt's cluster, 0..G-1; None where prompt i is cluster i."""
    names, code = np.unique(estimate.variables["cluster"].values, return_inverse=True)
    return None if counts_up(code, len(names)) else code


def pair_errors(
    estimate: xr.Dataset, first: IntArray, second: IntArray, prob: float, *, tested: bool = True
) -> Pairs:
    """Differences of the policies numbered `first` minus `second`, with unadjusted intervals of probability `prob`.

    Not `tested`, they come without the p-values that cost fifty intervals, see `pair_levels`.
    """
    probability(prob)
    failed = _numbers(estimate, "status") >= Status.TOO_FEW_LABELS
    value = np.where(failed, np.nan, _numbers(estimate, "estimate"))
    difference = value[first] - value[second]
    blank = np.full(len(first), np.nan)
    if len(first) == 0:
        return Pairs(blank, blank, blank, np.full((0, 2), np.nan), blank, blank)
    if has_influence(estimate):
        influence, cluster = _numbers(estimate, "influence", "prompt"), _clusters(estimate)
        moves = [
            cluster_sums(influence[a] - influence[b], cluster) for a, b in zip(first, second, strict=True)
        ]
        apart = Apart(
            np.array([cluster_se(moved, None) for moved in moves]) * (len(moves[0]) / influence.shape[1]),
            _pair_df(estimate, first, second, moves, cluster),
            np.array([error_skewness(moved) for moved in moves]),
        )

        def correlation(a: IntArray, b: IntArray) -> FloatArray:
            joint = covariance(estimate)
            scale = np.sqrt(np.diag(joint))
            return np.asarray(joint[a, b] / (scale[a] * scale[b]))

        levels = basis_of(estimate)
        rule = DIFFERENCE_RULES.get(estimate.attrs.get("difference_rule", ""))
        if rule is not None:
            pairs = pair_levels(levels, first, second, apart, correlation, prob, tested=False)
            return _by_limits(pairs, rule(estimate, first, second), prob, tested=tested)
        found = pair_levels(levels, first, second, apart, correlation, prob, tested=tested)
        return _by_spline(estimate, found, first, second, prob, tested)
    draws = _numbers(estimate, "draws", "replicate")
    std_error, p_value, p_better = blank.copy(), blank.copy(), blank.copy()
    interval = np.full((len(first), 2), np.nan)
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        drawn = draws[a] - draws[b]
        if not (np.isfinite(drawn).all() and np.ptp(drawn) > 0):
            continue
        std_error[k] = drawn.std(ddof=1)
        interval[k] = percentile(drawn[None], difference[k : k + 1], prob)[0]
        below, above = int((drawn <= 0).sum()), int((drawn >= 0).sum())
        p_value[k] = min(1.0, 2 * (1 + min(below, above)) / (1 + len(drawn)))
        p_better[k] = (above + (len(drawn) - below)) / (2 * len(drawn))  # a tie counts one half
    df = np.where(np.isfinite(std_error), np.inf, np.nan)
    return Pairs(difference, std_error, df, interval, p_value, p_better)


def _by_spline(
    estimate: xr.Dataset, pairs: Pairs, first: IntArray, second: IntArray, prob: float, tested: bool
) -> Pairs:
    """The pairs with limits and p-values of the spline posterior where both values are made of one curve."""
    parts = parts_of(estimate)
    if parts is None:
        return pairs
    chosen = (
        covered_pairs(estimate, parts, first, second)
        & np.isfinite(pairs.difference)
        & np.isfinite(pairs.std_error)
    )
    if not chosen.any():
        return pairs
    limits, p_value = pair_limits(parts, first[chosen], second[chosen], prob, tested=tested)
    found, difference = Pairs(*(part.copy() for part in pairs)), pairs.difference[chosen]
    found.interval[chosen] = contain(limits, difference)
    found.p_value[chosen] = p_value
    found.probability[chosen] = np.where(difference > 0, 1 - p_value / 2, p_value / 2)
    return found


def _by_limits(pairs: Pairs, limits: Limits, prob: float, *, tested: bool) -> Pairs:
    """Replace intervals, p-values and probabilities of pairs by those that follow from limits at any level."""
    interval = limits(np.full(len(pairs.difference), prob))
    known, n = np.isfinite(interval).all(axis=1), len(interval)
    p_value = invert(limits, n) if tested else np.full(n, np.nan)
    rounding = np.abs(pairs.difference) <= ROUNDING  # whose sign says nothing
    p_value = np.where(known, np.where(rounding, 1.0, p_value), np.nan)
    better = np.where(pairs.difference > 0, 1 - p_value / 2, p_value / 2)
    return pairs._replace(interval=interval, p_value=p_value, probability=better)


def _by_confusion_matrix(estimate: xr.Dataset, first: IntArray, second: IntArray) -> Limits:
    """Limits of differences of `cje_core.estimators.rogan_gladen`; see `cje_core.formulas.misclassification`."""
    moves = _numbers(estimate, "proportion_influence", "proportion", "prompt")
    sums = cluster_sums(moves, _clusters(estimate)) / moves.shape[-1]
    shares = Shares(
        value=_numbers(estimate, "proportion_value", "proportion"),
        size=_numbers(estimate, "proportion_count", "proportion"),
        df=_numbers(estimate, "proportion_df", "proportion"),
        joint=np.tensordot(sums, sums, (2, 2)),
        matrix=_numbers(estimate, "confusion_matrix").astype(np.intp),
    )
    limits, (low, high) = confusion_limits(shares, first, second), estimate.attrs["oracle_range"]
    return lambda level: (high - low) * limits(level)


# by the attribute ``difference_rule`` of an estimate whose differences need more than two levels and a covariance
DIFFERENCE_RULES: dict[str, Callable[[xr.Dataset, IntArray, IntArray], Limits]] = {
    "confusion_matrix": _by_confusion_matrix
}


def invert(limits: Limits, n: int) -> FloatArray:
    """Smallest alpha at which each of n intervals leaves out 0, by bisection; at least ``10**SMALLEST_P``."""
    holds, leaves = np.full(n, SMALLEST_P), np.zeros(n)  # log10 of alphas around the p-value
    for _ in range(40):
        middle = (holds + leaves) / 2
        bound = limits(1 - 10**middle)
        out = (bound[:, 0] > 0) | (bound[:, 1] < 0)
        holds, leaves = np.where(out, holds, middle), np.where(out, middle, leaves)
    return np.asarray(np.minimum(10**leaves, 1.0))


def _pair_df(
    estimate: xr.Dataset,
    first: IntArray,
    second: IntArray,
    moves: list[FloatArray],
    cluster: IntArray | None,
) -> FloatArray:
    """Degrees of freedom of each difference: the smaller of the two policies', or those of both that borrow."""
    each = _numbers(estimate, "df")
    df: FloatArray = np.minimum(each[first], each[second])
    if "balance" not in estimate:
        return df
    balance = _numbers(estimate, "balance", "prompt")
    behind = estimate.attrs.get("n_clusters")  # where prompts of the estimate stand for several
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        if np.isfinite(balance[[a, b]]).all() and np.isfinite(df[k]):
            weights = cluster_sums(np.abs(balance[a] - balance[b]), cluster)
            df[k] = lent_df(weights, moves[k], behind)
    return df


def lent_df(balance: FloatArray, influence: FloatArray, n_clusters: int | None = None) -> FloatArray:
    """Degrees of freedom of differences of two values that borrow from the same labels.

    The clusters with a label have those of the labels that the difference itself rests on, the `effective_clusters` of
    the difference of the two policies' weights less one and never below 2; the others, where only responses were drawn,
    their number less one; pooled by their variances (`cje_core.inference.influence.pooled_df`).

    Parameters
    ----------
    balance, influence : arrays, shape (..., clusters)
        Of the differences, sums by cluster: of absolute weights, and of influence.
    n_clusters : int, optional
        How many there are, where some of these stand for several without a label.

    Returns
    -------
    array, shape (...)
    """
    taught, squares, variance = balance > 0, balance**2, influence**2
    fourths = (squares**2).sum(axis=-1)
    effective = np.divide(squares.sum(axis=-1) ** 2, fourths, out=np.zeros(fourths.shape), where=fourths > 0)
    free = (balance.shape[-1] if n_clusters is None else n_clusters) - taught.sum(axis=-1)
    labels, others = np.maximum(effective - 1, 2.0), np.maximum(free - 1, 1)
    parts = [np.where(taught, variance, 0.0).sum(axis=-1), np.where(taught, 0.0, variance).sum(axis=-1)]
    return pooled_df(np.stack(parts, axis=-1), np.stack([labels, others], axis=-1))


class Apart(NamedTuple):
    """Errors of differences, each of shape (pairs,)."""

    std_error: FloatArray  # from the influence values
    df: FloatArray
    skewness: FloatArray  # of the errors


def pair_levels(
    levels: Basis,
    first: IntArray,
    second: IntArray,
    apart: Apart,
    correlation: Callable[[IntArray, IntArray], FloatArray],
    prob: float,
    *,
    tested: bool = True,
) -> Pairs:
    """Differences of levels whose influence values carry the joint uncertainty.

    Parameters
    ----------
    correlation : function of two arrays of policies
        Of their influence values; asked for where labels are counted.
    tested : bool
        False leaves out the p-value where labels are counted, which costs fifty intervals.
    """
    value, df = levels.value, apart.df
    size = np.fmax(np.abs(value), levels.std_error)
    rounding = ROUNDING * np.fmax(size[first], size[second])
    std_error = np.where(apart.std_error <= rounding, np.nan, apart.std_error)
    difference = value[first] - value[second]
    pairs = Pairs(
        difference,
        std_error,
        df,
        wald(difference, std_error, df, prob),
        2 * special.stdtr(df, -np.abs(difference) / std_error),
        special.stdtr(df, difference / std_error),
    )
    counted, graded = np.isfinite(levels.effective), levels.kind == "gamma"
    known = np.asarray(np.isfinite(value_limits(levels, prob)).all(axis=-1))
    known = known[first] & known[second]
    exact = known & (counted[first] | counted[second])
    skewed = known & (graded[first] | graded[second]) & ~exact & np.isfinite(std_error)
    found = Pairs(*(part.copy() for part in pairs))
    for chosen, limits in ((exact, _by_levels), (skewed, _by_error)):
        if not chosen.any():
            continue
        a, b = first[chosen], second[chosen]
        of = Pairs(*(part[chosen] for part in pairs))
        interval = limits(levels, of, a, b, apart.skewness[chosen], correlation)
        found.interval[chosen] = interval(np.full(len(a), prob))
        # its sign says nothing
        alike = np.abs(of.difference) <= ROUNDING * (levels.scale[1] - levels.scale[0])
        p_value = np.where(alike, 1.0, invert(interval, len(a))) if tested else np.full(len(a), np.nan)
        found.p_value[chosen] = p_value
        found.probability[chosen] = np.where(of.difference > 0, 1 - p_value / 2, p_value / 2)
    found.df[exact] = np.minimum(levels.df[first], levels.df[second])[exact]
    return found


def _arms(basis: Basis, level: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How far the limits of values reach below and above them."""
    limits = value_limits(basis, level)
    return basis.value - limits[:, 0], limits[:, 1] - basis.value


def _by_levels(
    levels: Basis,
    pairs: Pairs,
    first: IntArray,
    second: IntArray,
    skewness: FloatArray,
    correlated: Callable[[IntArray, IntArray], FloatArray],
) -> Limits:
    """Limits of differences from those of the two levels, of which one counts its binary labels (MOVER)."""
    del skewness
    (low, high), count = levels.scale, levels.effective
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.nan_to_num(correlated(first, second))
        share = np.clip((levels.value - low) / (high - low), 0.0, 1.0)
        spread = np.sqrt(share * (1 - share))
        # Newcombe's continuity correction: with a dozen pairs most of a correlation seen may be chance
        chance = 1 / (2 * np.minimum(count[first], count[second]) * spread[first] * spread[second])
    both = np.isfinite(count[first]) & np.isfinite(count[second]) & (correlation > 0)
    correlation = np.where(both, np.maximum(correlation - chance, 0.0), correlation)

    def interval(level: FloatArray) -> FloatArray:
        (down_a, up_a), (down_b, up_b) = (_arms(levels.at(policy), level) for policy in (first, second))
        down, up = (
            np.sqrt(np.maximum(x**2 + y**2 - 2 * correlation * x * y, 0.0))
            for x, y in ((down_a, up_b), (up_a, down_b))
        )
        return np.stack([pairs.difference - down, pairs.difference + up], axis=-1)

    return interval


def _by_error(
    levels: Basis,
    pairs: Pairs,
    first: IntArray,
    second: IntArray,
    skewness: FloatArray,
    correlated: Callable[[IntArray, IntArray], FloatArray],
) -> Limits:
    """Limits of differences from their own error and its skewness, with the room that graded levels leave."""
    del correlated
    absent = np.full(len(first), np.nan)
    kind = np.full(len(first), "gamma")
    error = Basis(
        pairs.difference,
        pairs.std_error,
        pairs.df,
        kind,
        absent,
        absent,
        0 * skewness,
        skewness,
        (-np.inf, np.inf),
    )
    room = levels._replace(
        std_error=0 * levels.value, skewness=0 * levels.value, kind=np.full(len(levels.value), "gamma")
    )

    def interval(level: FloatArray) -> FloatArray:
        down, up = _arms(error, level)
        (down_a, up_a), (down_b, up_b) = (_arms(room.at(policy), level) for policy in (first, second))
        down, up = np.sqrt(down**2 + down_a**2 + up_b**2), np.sqrt(up**2 + up_a**2 + down_b**2)
        return np.stack([pairs.difference - down, pairs.difference + up], axis=-1)

    return interval


def cluster_influence(estimate: xr.Dataset) -> FloatArray:
    """Influence of each cluster on each value, shape (P, clusters), scaled so that the error is their sum."""
    influence = _numbers(estimate, "influence", "prompt")
    return np.asarray(cluster_sums(influence, _clusters(estimate)) / influence.shape[1])


def covariance(estimate: xr.Dataset) -> FloatArray:
    """Joint covariance matrix of the policies' values, shape (P, P); NaN for a policy without a standard error."""
    if has_influence(estimate):
        influence = _numbers(estimate, "influence", "prompt")
        sums = cluster_sums(influence, _clusters(estimate)) / influence.shape[1]
        return np.asarray(sums @ sums.T)
    draws = _numbers(estimate, "draws", "replicate")
    centred = draws - draws.mean(axis=1, keepdims=True)
    return np.asarray(centred @ centred.T / (draws.shape[1] - 1))
