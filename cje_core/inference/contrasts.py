"""Contrasts between policies, control of multiplicity, and the pairwise win matrix.

Estimand of a contrast: ``V_a - V_b``. The paper's section "Multiplicity for many-policy comparisons" asks for Wald
p-values of contrasts, BH control (BY under strong dependence), and a pairwise win matrix with marks.

Joint uncertainty comes from one place per estimate. With ``influence(policy, prompt)`` the influence of ``V_a - V_b``
at a prompt is the difference of the two policies' influence values there, so whatever they share (the prompt, the
labels that taught one calibrator) cancels as it should; two policies that borrow the same calibrator can be told
apart much better than their own intervals suggest. The degrees of freedom are the smaller of the two policies', but
of two that borrow they are those of the labels that their difference rests on (``balance``, `lent_df`). Without
influence, ``draws(policy, replicate)`` are used, a bootstrap distribution and a posterior alike. A higher value is
better throughout.

Where a policy's interval counts its binary labels (``effective_count``), the difference gets the interval that follows
from the two levels' (MOVER: Zou and Donner 2008; Newcombe 1998): with levels in [l, u] and the correlation r of their
influence values,

    lower = d - sqrt((a - l_a)^2 - 2 r (a - l_a) (u_b - b) + (u_b - b)^2),      upper likewise

and the p-value is the smallest alpha at which it leaves out 0. So labels that are all equal, which show no spread and
leave a t interval out of the question, still bound a difference (r = 0: no correlation was seen). Two independent
policies of mean .94 with 20 labels each, where half of all pairs have such a policy: it covers .997 and the t interval
.503 (.961 and .961 at mean .5, at .95 of the width), by enumeration over both binomials. Levels with room for drops
that few graded labels did not show (``unseen_by``) take part alike: 12 labels of .9 Beta(40, 1) + .1 Beta(2, 4) against
12 of Beta(20, 20) or Beta(9.4, .6), it covers .998 and .999 and the t interval .79 and .73 (4,000 replicates, 1.2 and
1.4 times as wide; .96 against .91 at 30 labels). There is no number where a policy has failed, and no p-value of a
difference that is rounding.
"""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray, one_of, probability
from cje_core.inference.estimate import (
    CI_BOUND,
    Status,
    clopper_pearson,
    cluster_se,
    cluster_sums,
    into_scale,
    percentile,
    wald,
    with_room,
)
from cje_core.inference.influence import effective_clusters, pooled_df

ROUNDING = 1e-9  # a standard error this small beside the levels and theirs is none
SMALLEST_P = -12.0  # log10 of the smallest p-value told apart from 0 where the interval is inverted
ADJUSTMENTS = ("bh", "by", "bonferroni", "holm", "none")


# --- multiplicity ----------------------------------------------------------------------------------------------------


def adjust_p(p_value: npt.ArrayLike, method: str = "bh") -> FloatArray:
    """Adjusted p-values of one family of tests.

    Parameters
    ----------
    p_value : array, shape (k,)
        NaN marks a test that could not be made; it stays NaN and does not count.
    method : {"bh", "by", "bonferroni", "holm", "none"}
        ``bh`` controls the false discovery rate (Benjamini and Hochberg), ``by`` does so under any dependence
        (Benjamini and Yekutieli), ``holm`` and ``bonferroni`` control the family-wise error rate.

    Returns
    -------
    array, shape (k,)

    Examples
    --------
    >>> adjust_p([0.01, 0.04, 0.03], "bh").round(3).tolist(), adjust_p([0.01, 0.04, 0.03], "holm").round(3).tolist()
    ([0.03, 0.04, 0.04], [0.03, 0.06, 0.06])
    """
    one_of(method, "adjust", ADJUSTMENTS)
    out = np.array(p_value, dtype=float)
    tested = np.flatnonzero(np.isfinite(out))
    k = len(tested)
    if k == 0 or method == "none":
        return out
    order = tested[np.argsort(out[tested], kind="stable")]
    p, rank = out[order], np.arange(1, k + 1)
    if method == "bonferroni":
        adjusted = p * k
    elif method == "holm":
        adjusted = np.maximum.accumulate(p * (k + 1 - rank))
    else:
        dependence = (1 / rank).sum() if method == "by" else 1.0
        adjusted = np.minimum.accumulate((p * k * dependence / rank)[::-1])[::-1]
    out[order] = np.minimum(adjusted, 1.0)
    return out


# --- contrasts -------------------------------------------------------------------------------------------------------


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
    if "influence" in estimate and np.isfinite(estimate["influence"].values).any():
        return True
    if "draws" in estimate:
        return False
    if "influence" in estimate:  # every policy failed: the contrasts are NaN, as the estimates are
        return True
    raise ValueError(
        "this estimate has neither influence values nor draws; contrasts need an estimator that reports one of them"
    )


def pair_errors(estimate: xr.Dataset, first: IntArray, second: IntArray, prob: float) -> Pairs:
    """Differences of the policies numbered `first` minus `second`, with unadjusted intervals of probability `prob`."""
    probability(prob)
    failed = estimate["status"].values >= Status.TOO_FEW_LABELS
    value = np.where(failed, np.nan, estimate["estimate"].values)
    difference = value[first] - value[second]
    blank = np.full(len(first), np.nan)
    if len(first) == 0:
        return Pairs(blank, blank, blank, np.full((0, 2), np.nan), blank, blank)
    if has_influence(estimate):
        influence = estimate["influence"].transpose("policy", "prompt").values
        _, cluster = np.unique(estimate["cluster"].values, return_inverse=True)
        std_error = np.array(
            [cluster_se(influence[a] - influence[b], cluster) for a, b in zip(first, second, strict=True)]
        )
        absent = np.full(len(value), np.nan)
        count, unseen_by = (
            estimate[name].values if name in estimate else absent for name in ("effective_count", "unseen_by")
        )
        levels = Levels(value, estimate["std_error"].values, estimate["df"].values, count, unseen_by)

        def correlation(a: IntArray, b: IntArray) -> FloatArray:
            joint = covariance(estimate)
            scale = np.sqrt(np.diag(joint))
            return np.asarray(joint[a, b] / (scale[a] * scale[b]))

        scale = None
        if "oracle_range" in estimate.attrs:
            low, high = estimate.attrs["oracle_range"]
            scale = float(low), float(high)
        apart = Apart(std_error, _pair_df(estimate, first, second, influence, cluster))
        return pair_levels(levels, first, second, apart, correlation, scale, prob)
    draws = estimate["draws"].transpose("policy", "replicate").values
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


def _pair_df(
    estimate: xr.Dataset, first: IntArray, second: IntArray, influence: FloatArray, cluster: IntArray
) -> FloatArray:
    """Degrees of freedom of each difference: the smaller of the two policies', or those of both that borrow."""
    df: FloatArray = np.minimum(estimate["df"].values[first], estimate["df"].values[second])
    if "balance" not in estimate:
        return df
    balance = estimate["balance"].transpose("policy", "prompt").values
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        if np.isfinite(balance[[a, b]]).all() and np.isfinite(df[k]):
            df[k] = lent_df(balance[a] - balance[b], influence[a] - influence[b], cluster)
    return df


def lent_df(balance: FloatArray, influence: FloatArray, cluster: IntArray) -> float:
    """Degrees of freedom of the difference of two values that borrow from the same labels.

    The clusters with a label have those of the labels that the difference itself rests on, the `effective_clusters` of
    the difference of the two policies' weights less one and never below 2; the others, where only responses were drawn,
    their number less one; pooled by their variances (`cje_core.inference.influence.pooled_df`).

    Parameters
    ----------
    balance, influence : arrays, shape (n,)
        Of the difference, per prompt.
    cluster : int array, shape (n,)
        Codes from 0.
    """
    taught, sums = cluster_sums(np.abs(balance), cluster) > 0, cluster_sums(influence, cluster) ** 2
    labels = max(effective_clusters(balance, cluster) - 1, 2.0)
    variance = [float(sums[taught].sum()), float(sums[~taught].sum())]
    return float(pooled_df(variance, [labels, max(int((~taught).sum()) - 1, 1)]))


class Levels(NamedTuple):
    """Values of policies and what their intervals rest on, each of shape (policies,)."""

    value: FloatArray  # NaN where the policy has failed
    std_error: FloatArray
    df: FloatArray
    effective: FloatArray  # count of binary labels, NaN where none are counted
    unseen_by: FloatArray  # of graded labels that may have missed a tail


class Apart(NamedTuple):
    """Errors of differences, each of shape (pairs,)."""

    std_error: FloatArray  # from the influence values
    df: FloatArray


def pair_levels(
    levels: Levels,
    first: IntArray,
    second: IntArray,
    apart: Apart,
    correlation: Callable[[IntArray, IntArray], FloatArray],
    scale: tuple[float, float] | None,
    prob: float,
    *,
    tested: bool = True,
) -> Pairs:
    """Differences of levels whose influence values carry the joint uncertainty.

    Parameters
    ----------
    correlation : function of two arrays of policies
        Of their influence values; asked for where labels are counted.
    scale : pair of float
        Declared range of the oracle.
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
    return _count_labels(levels, pairs, first, second, correlation, scale, prob, tested)


def _count_labels(
    levels: Levels,
    pairs: Pairs,
    first: IntArray,
    second: IntArray,
    correlated: Callable[[IntArray, IntArray], FloatArray],
    scale: tuple[float, float] | None,
    prob: float,
    tested: bool,
) -> Pairs:
    """The pairs with the interval of MOVER where a level counts its binary labels or has room for unseen drops."""
    value, std_error, df, count, unseen_by = levels
    counted, roomy = np.isfinite(count), np.isfinite(unseen_by)
    own = counted | roomy
    known = np.isfinite(value) & (counted | np.isfinite(std_error))
    chosen = (own[first] | own[second]) & known[first] & known[second]
    if not chosen.any():
        return pairs
    assert scale is not None  # an interval that counts labels knows their scale
    low, high = scale
    a, b = first[chosen], second[chosen]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.nan_to_num(correlated(a, b))

    def arms(policy: IntArray, level: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far the interval of a level reaches below and above its value."""
        at = value[policy]
        tails = clopper_pearson((at - low) / (high - low), count[policy], level)
        plain = wald(at, std_error[policy], df[policy], level)
        interval = np.select(
            [counted[policy, None], roomy[policy, None]],
            [
                into_scale(low + (high - low) * tails, at, (low, high)),
                with_room(plain, at, unseen_by[policy], level, (low, high)),
            ],
            plain,
        )
        return at - interval[:, 0], interval[:, 1] - at

    def interval(level: FloatArray) -> FloatArray:
        (down_a, up_a), (down_b, up_b) = arms(a, level), arms(b, level)
        difference = value[a] - value[b]
        down, up = (
            np.sqrt(np.maximum(x**2 + y**2 - 2 * correlation * x * y, 0.0))
            for x, y in ((down_a, up_b), (up_a, down_b))
        )
        return np.stack([difference - down, difference + up], axis=-1)

    holds, leaves = np.full(len(a), SMALLEST_P), np.zeros(len(a))  # log10 of alphas around the p-value
    for _ in range(40 * tested):
        middle = (holds + leaves) / 2
        bound = interval(1 - 10**middle)
        out = (bound[:, 0] > 0) | (bound[:, 1] < 0)
        holds, leaves = np.where(out, holds, middle), np.where(out, middle, leaves)
    rounding = np.abs(value[a] - value[b]) <= ROUNDING * (high - low)  # whose sign says nothing
    p_value = np.where(rounding, 1.0, np.minimum(10**leaves, 1.0)) if tested else np.full(len(a), np.nan)
    found = Pairs(*(part.copy() for part in pairs))
    found.interval[chosen], found.p_value[chosen] = interval(np.full(len(a), prob)), p_value
    found.probability[chosen] = np.where(value[a] > value[b], 1 - p_value / 2, p_value / 2)
    found.df[chosen] = np.minimum(df[a], df[b])
    return found


def _labelled(
    estimate: xr.Dataset, first: IntArray, second: IntArray, prob: float, adjust: str
) -> xr.Dataset:
    pairs = pair_errors(estimate, first, second, prob)
    if "oracle_range" in estimate.attrs:  # no difference is larger than the scale
        span = float(np.ptp(estimate.attrs["oracle_range"]))
        pairs = pairs._replace(interval=np.clip(pairs.interval, -span, span))
    names = estimate.policy.values.astype(str)
    return xr.Dataset(
        {
            "difference": ("pair", pairs.difference),
            "std_error": ("pair", pairs.std_error),
            "df": ("pair", pairs.df),
            "interval": (("pair", "ci_bound"), pairs.interval),
            "p_value": ("pair", pairs.p_value),
            "p_bh": ("pair", adjust_p(pairs.p_value, "bh")),
            "p_adjusted": ("pair", adjust_p(pairs.p_value, adjust)),
        },
        coords={"first": ("pair", names[first]), "second": ("pair", names[second]), "ci_bound": CI_BOUND},
        attrs={"ci_prob": prob, "estimator": estimate.attrs["estimator"], "adjustment": adjust},
    )


def all_pairs(estimate: xr.Dataset) -> tuple[IntArray, IntArray]:
    """Numbers of the two policies of every pair, pairs in sorted order of name."""
    order = np.argsort(estimate.policy.values.astype(str), kind="stable")
    pairs = np.array(list(combinations(order, 2)), dtype=np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def contrasts(estimate: xr.Dataset, *, ci_prob: float | None = None, adjust: str = "bh") -> xr.Dataset:
    """All pairwise differences of policy values.

    Parameters
    ----------
    estimate : xr.Dataset
        An estimate that carries ``influence`` (t intervals) or else ``draws`` (percentile intervals; the p-value is
        twice the smaller tail, with one added to both counts).
    ci_prob : float, optional
        Probability of each interval (not adjusted); default: the estimate's.
    adjust : {"bh", "by", "bonferroni", "holm", "none"}
        Adjustment of ``p_adjusted``, see `adjust_p`.

    Returns
    -------
    xr.Dataset
        Over ``pair``, with coordinates ``first`` and ``second`` (names in sorted order): ``difference`` (first
        minus second), ``std_error``, ``df`` (the smaller of the two policies', see the module for two that borrow;
        infinite for draws), ``interval``, ``p_value``, ``p_bh`` (Benjamini-Hochberg over all pairs) and
        ``p_adjusted``. NaN where a policy has no estimate or the difference has no spread.
    """
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    return _labelled(estimate, *all_pairs(estimate), prob, adjust)


def against(
    estimate: xr.Dataset, reference: str, *, ci_prob: float | None = None, adjust: str = "bh"
) -> xr.Dataset:
    """Differences of every other policy to one, the family that a choice against an incumbent needs.

    Parameters
    ----------
    estimate, ci_prob, adjust
        As in `contrasts`; the family adjusted for is the P - 1 contrasts.
    reference : str
        The policy that is subtracted.

    Returns
    -------
    xr.Dataset
        As from `contrasts`; ``second`` is the reference everywhere.
    """
    names = estimate.policy.values.astype(str)
    if reference not in names:
        raise ValueError(f"reference={reference!r}: the estimate has {', '.join(sorted(names))}")
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    order = np.argsort(names, kind="stable")
    first = order[names[order] != reference]
    second = np.full(len(first), np.flatnonzero(names == reference)[0])
    return _labelled(estimate, first, second, prob, adjust)


def win_matrix(estimate: xr.Dataset, q: float = 0.05, *, adjust: str = "bh") -> xr.Dataset:
    """Who beats whom, with false discovery control over all pairs.

    Parameters
    ----------
    estimate : xr.Dataset
        With ``influence`` or ``draws``.
    q : float
        Level of the marks; the paper's section on multiplicity recommends values in [0.05, 0.2].
    adjust : {"bh", "by", "bonferroni", "holm", "none"}

    Returns
    -------
    xr.Dataset
        Over ``(policy, other)``: ``difference`` (row minus column), ``p_adjusted``, ``significant`` (p_adjusted below
        q), ``wins`` (significant and the row is better) and ``probability`` that the row is better: the t
        distribution of the contrast (normal when its df are infinite) read as a posterior under a flat prior, or the
        share of draws. Diagonal: difference 0, no marks, NaN elsewhere.
    """
    probability(q, "q")
    first, second = all_pairs(estimate)
    pairs = pair_errors(estimate, first, second, 0.95)
    n_policies = estimate.sizes["policy"]
    difference, p_value, p_better = (np.full((n_policies, n_policies), np.nan) for _ in range(3))
    difference[first, second], difference[second, first] = pairs.difference, -pairs.difference
    p_value[first, second] = p_value[second, first] = adjust_p(pairs.p_value, adjust)
    p_better[first, second], p_better[second, first] = pairs.probability, 1 - pairs.probability
    np.fill_diagonal(difference, 0.0)
    significant = p_value < q
    dims = ("policy", "other")
    return xr.Dataset(
        {
            "difference": (dims, difference),
            "p_adjusted": (dims, p_value),
            "significant": (dims, significant),
            "wins": (dims, significant & (difference > 0)),
            "probability": (dims, p_better),
        },
        coords={"policy": estimate.policy.values, "other": estimate.policy.values},
        attrs={"q": q, "adjustment": adjust, "estimator": estimate.attrs["estimator"]},
    )


def covariance(estimate: xr.Dataset) -> FloatArray:
    """Joint covariance matrix of the policies' values, shape (P, P); NaN for a policy without a standard error."""
    if has_influence(estimate):
        _, cluster = np.unique(estimate["cluster"].values, return_inverse=True)
        influence = estimate["influence"].transpose("policy", "prompt").values
        sums = cluster_sums(influence, cluster) / influence.shape[1]
        return np.asarray(sums @ sums.T)
    draws = estimate["draws"].transpose("policy", "replicate").values
    centred = draws - draws.mean(axis=1, keepdims=True)
    return np.asarray(centred @ centred.T / (draws.shape[1] - 1))
