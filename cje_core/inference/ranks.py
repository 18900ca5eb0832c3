"""Ranks of policies with their uncertainty, and ranking metrics against a known truth.

The paper's paragraph "Selection and multiplicity" warns of the winner's curse: the best of many estimates is rarely
as good, or as surely best, as it looks. So ranks come with simultaneous confidence sets (Mogstad, Romano, Shaikh and
Wilhelm, 2024, "Inference for ranks with applications to mobility across neighbourhoods and academic achievement
across countries"), and "best" is a set of policies and a probability. All of it is made of limits as they are
printed: of the differences (`cje_core.inference.pairs`) at one simultaneous level, and of the values. Labels that
showed no spread have limits, so they take part. A higher value is better throughout; rank 1 is the best.

Equal policies with 6, 12, 30 and 100 own labels each, on the same prompts or not (2, 5, 10 and 30 policies; 1,000 runs
a cell, 500 of 30 policies, Monte Carlo standard errors at most .01): some rank set is false in at most .050 of the runs
with binary labels of mean .5, .043 of .9, .031 of .95, .047 with .9 Beta(40, 1) + .1 Beta(2, 4), .056 with Beta(2, 2)
(not run: .95 and Beta(2, 2) for 30 policies). Unadjusted intervals of the
differences from the best name some policy as behind it in up to .99.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import BoolArray, FloatArray, IntArray, one_of
from cje_core.data.construct import dataset
from cje_core.formulas.covariance import correlations, covariance_root
from cje_core.inference.contrasts import adjust_p, all_pairs
from cje_core.inference.estimate import CI_BOUND, wald
from cje_core.inference.pairs import ROUNDING, cluster_influence, covariance, has_influence, pair_errors

METHODS = ("max_t", "holm")
CHUNK = 2_000_000  # numbers held at once where draws meet pairs
ENOUGH = 3.0  # effective clusters per policy compared from which their joint distribution is taken as seen


def rank_confidence_sets(
    estimate: xr.Dataset,
    ci_prob: float | None = None,
    *,
    method: str = "max_t",
    n_draws: int = 20_000,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Simultaneous confidence sets for the ranks of all policies, and the set that holds the best one.

    The rank of j is one plus the number of policies with a higher value. If the differences of all pairs are known up
    to errors that a family of intervals covers with probability ``ci_prob``, the policies that are certainly better
    than j and those that are certainly worse bound its rank: ``[1 + better, P - worse]``, for all policies at once
    (Mogstad et al., 2024). Policies of equal value share all the ranks that ties may take.

    Parameters
    ----------
    estimate : xr.Dataset
        With ``influence`` or ``draws``.
    ci_prob : float, optional
        Joint probability that every set holds its rank; default: the estimate's.
    method : {"max_t", "holm"}
        ``max_t``: intervals of all differences (`cje_core.inference.pairs`) at the one level of `simultaneous_prob`;
        of two policies this is the printed interval of their difference. ``holm``: one-sided tests of all ordered
        pairs by the p-values of their differences, valid under any dependence, and without randomness.
    n_draws : int
        Draws (from `rng`) of the joint normal distribution for ``max_t``; draws of the estimate are used as they are.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``rank`` (of the estimate; NaN for failures), ``rank_interval`` (policy, ci_bound), ``best``
        (no other policy is certainly better: with probability ``ci_prob`` this set holds every best policy), and
        ``ahead`` (policy, other): certainly better than the other, the decisions that the sets are made of. A policy
        without an interval may have any rank. Attribute ``pair_prob``: probability of each pair's interval (``max_t``).

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> sets = rank_confidence_sets(estimate)
    >>> list(sets)
    ['rank', 'rank_interval', 'best', 'ahead']
    """
    one_of(method, "method", METHODS)
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    first, second = all_pairs(estimate)
    attrs: dict[str, Any] = {"ci_prob": prob, "method": method, "estimator": estimate.attrs["estimator"]}
    if method == "max_t":
        attrs["pair_prob"] = simultaneous_prob(estimate, prob, n_draws=n_draws, rng=rng)
        certain, difference = _leave_out_zero(estimate, first, second, prob, attrs["pair_prob"])
    else:
        pairs = pair_errors(estimate, first, second, prob)
        difference, tail = pairs.difference, pairs.p_value / 2  # one-sided, in the direction seen
        certain = adjust_p(np.concatenate([tail, 1 - tail]), "holm")[: len(tail)] < 1 - prob
    above = difference > 0
    n_policies = estimate.sizes["policy"]
    ahead = np.zeros((n_policies, n_policies), dtype=bool)
    ahead[np.where(above, first, second)[certain], np.where(above, second, first)[certain]] = True
    better, worse = ahead.sum(axis=0), ahead.sum(axis=1)
    value, names = estimate.variables["estimate"].values, estimate.variables["policy"].values
    rank = np.where(np.isfinite(value), 1.0 + (value[None, :] > value[:, None]).sum(axis=1), np.nan)
    return dataset(
        {
            "rank": ("policy", rank),
            "rank_interval": (("policy", "ci_bound"), np.column_stack([1 + better, n_policies - worse])),
            "best": ("policy", better == 0),
            "ahead": (("policy", "other"), ahead),
        },
        coords={"policy": names, "other": ("other", names), "ci_bound": CI_BOUND},
        attrs=attrs,
    )


def _leave_out_zero(
    estimate: xr.Dataset, first: IntArray, second: IntArray, prob: float, pair_prob: float
) -> tuple[BoolArray, FloatArray]:
    """Whether the interval of each difference at `pair_prob` leaves out 0, and the differences."""
    drawn = not has_influence(estimate)
    pairs = pair_errors(estimate, first, second, prob if drawn else pair_prob, tested=False)
    intervals = [pairs.interval]
    if drawn:  # a few thousand draws have no percentile so far out, and the printed interval is to agree
        intervals.append(wald(pairs.difference, pairs.std_error, pairs.df, pair_prob))
    return np.all([(at[:, 0] > 0) | (at[:, 1] < 0) for at in intervals], axis=0), pairs.difference


def simultaneous_prob(
    estimate: xr.Dataset,
    prob: float,
    *,
    n_draws: int = 20_000,
    rng: np.random.Generator | int | None = None,
) -> float:
    """Probability at which the intervals of all differences together hold with probability `prob`.

    Of k policies with an interval, that of Tukey's studentised range, ``2 Phi(q / sqrt(2)) - 1`` with q the `prob`
    quantile of the range of k independent normal variables: two policies have `prob` itself, and no joint normal
    distribution is known to need more (Tukey and Kramer's conjecture). Where the joint distribution is well known,
    errors that move together need less, and the level is that of ``max |difference| / SE`` over its draws. Influence
    values make it well known where each policy has at least `ENOUGH` effective clusters per policy compared: with
    fewer, the largest of many correlations seen is chance (ten equal policies with 6 labels each on the same prompts:
    some rank set false in .10 of the runs with it, .04 without).
    """
    if has_influence(estimate):
        known = _with_interval(estimate)
        k = len(known)
        least = _range_prob(k, prob)
        if k <= 2 or not (_effective_clusters(estimate)[known] >= ENOUGH * k).all():
            return least
        errors = _draw(covariance(estimate)[np.ix_(known, known)], n_draws, np.random.default_rng(rng))
    else:
        errors, known = _posterior_errors(estimate)
        k, least = len(known), prob
        if k <= 2:
            return prob
    a, b = np.triu_indices(k, 1)
    largest, step = np.empty(len(errors)), max(CHUNK // len(a), 1)
    joint = np.cov(errors.T) if not has_influence(estimate) else covariance(estimate)[np.ix_(known, known)]
    variance = np.diag(joint)
    spread = variance[a] + variance[b] - 2 * joint[a, b]
    apart = spread > ROUNDING * (variance[a] + variance[b])  # the others never differ
    if not apart.any():
        return least
    a, b, scale = a[apart], b[apart], np.sqrt(spread[apart])
    for start in range(0, len(errors), step):
        part = errors[start : start + step]
        largest[start : start + step] = (np.abs(part[:, a] - part[:, b]) / scale).max(axis=1)
    found = 1 - 2 * special.ndtr(-np.quantile(largest, prob))
    return float(min(found, least)) if has_influence(estimate) else float(found)


def _range_prob(k: int, prob: float) -> float:
    """Probability within ``+- q / sqrt(2)``, q the `prob` quantile of the range of k independent normal variables."""
    if k <= 2:
        return prob
    z, step = np.linspace(-9.0, 9.0, 1801, retstep=True)
    below, density = special.ndtr(z), np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    low, high = 0.0, 18.0
    for _ in range(60):  # to the last bit
        q = (low + high) / 2
        within = k * step * float((density * (below - special.ndtr(z - q)) ** (k - 1)).sum())
        low, high = (q, high) if within < prob else (low, q)
    return float(1 - 2 * special.ndtr(-q / np.sqrt(2)))


def _with_interval(estimate: xr.Dataset) -> IntArray:
    """Numbers of the policies with a value and an interval."""
    known = np.isfinite(estimate["estimate"].values)
    return np.flatnonzero(
        known & np.isfinite(estimate["interval"].transpose("policy", "ci_bound").values).all(axis=1)
    )


def _effective_clusters(estimate: xr.Dataset) -> FloatArray:
    """Kish's count of the clusters that each policy's error comes from; 0 where no spread was seen."""
    moves = np.abs(cluster_influence(estimate))
    squares = (moves**2).sum(axis=1)
    return np.asarray(
        np.divide(moves.sum(axis=1) ** 2, squares, out=np.zeros(len(moves)), where=squares > 0), float
    )


def probability_best(
    estimate: xr.Dataset, *, n_draws: int = 20_000, rng: np.random.Generator | int | None = None
) -> xr.Dataset:
    """Probability that each policy has the highest value of all that have an interval.

    Each policy is drawn from its printed limits: below its value and above it one half of a t distribution, whose
    scale is the arm of the interval on that side over the arm of a unit one. So equal labels, whose arm towards the end
    of the scale is 0 and whose other arm is not, take part as they do in every difference. The t variables share the
    smallest df of the policies (none, where labels are counted), and have the correlation of the influence values, 0
    where none was seen; symmetric limits give what the t distribution of the values says, read as a posterior under a
    flat prior. Without influence values the draws are used. Draws on which policies tie share them.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``probability`` and its Monte Carlo standard error ``mcse``; NaN where nothing is known.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> probability_best(estimate, rng=1)["probability"].round(1).to_series().to_dict()
    {'base': 0.1, 'better': 0.5, 'slightly_better': 0.3, 'worse': 0.0}
    """
    probability = np.full(estimate.sizes["policy"], np.nan)
    if has_influence(estimate):
        known = _with_interval(estimate)
        drawn = _from_limits(estimate, known, n_draws, np.random.default_rng(rng))
    else:
        errors, known = _posterior_errors(estimate)
        drawn = errors + estimate["draws"].transpose("policy", "replicate").values[known].mean(axis=1)
    if len(known):
        top = drawn == drawn.max(axis=1, keepdims=True)
        probability[known] = (top / top.sum(axis=1, keepdims=True)).mean(axis=0)
    mcse = np.sqrt(probability * (1 - probability) / len(drawn))
    return xr.Dataset(
        {"probability": ("policy", probability), "mcse": ("policy", mcse)},
        coords={"policy": estimate.variables["policy"].values},
        attrs={"estimator": estimate.attrs["estimator"]},
    )


def _from_limits(estimate: xr.Dataset, known: IntArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of the `known` values from their limits, shape (draws, k); see `probability_best`."""
    df = np.asarray(estimate["df"].values, float)[known]
    if "effective_count" in estimate:  # binomial tails hold no t quantile
        df = np.where(np.isfinite(estimate["effective_count"].values[known]), np.inf, df)
    df = np.where(np.isfinite(df), df, np.inf)
    normal = _draw(correlations(covariance(estimate)[np.ix_(known, known)]), n_draws, rng)
    smallest = df.min(initial=np.inf)
    if np.isfinite(smallest):
        normal /= np.sqrt(rng.chisquare(smallest, n_draws) / smallest)[:, None]
    value = estimate["estimate"].values[known]
    limits = estimate["interval"].transpose("policy", "ci_bound").values[known]
    down, up = np.abs(limits.T - value) / special.stdtrit(df, 0.5 + float(estimate.attrs["ci_prob"]) / 2)
    return np.asarray(value + normal * np.where(normal > 0, up, down))


def _draw(covariance_: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of normal variables of this covariance, shape (draws, k)."""
    root = covariance_root(covariance_)
    return np.asarray(rng.standard_normal((n_draws, len(root))) @ root.T)


def _posterior_errors(estimate: xr.Dataset) -> tuple[FloatArray, IntArray]:
    """Draws less their means, shape (draws, k), and the k policies that have them."""
    draws = estimate["draws"].transpose("policy", "replicate").values
    known = np.flatnonzero(np.isfinite(draws).all(axis=1))
    return np.asarray((draws[known] - draws[known].mean(axis=1, keepdims=True)).T), known


# --- against a known truth --------------------------------------------------------------------------------------------


def _orders(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Sign of the estimated and of the true difference of every pair that has a true order, shape (..., pairs)."""
    value, target = np.broadcast_arrays(np.asarray(estimate, float), np.asarray(truth, float))
    j, k = np.triu_indices(value.shape[-1], 1)
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        seen = np.nan_to_num(np.sign(value[..., j] - value[..., k]))
        true = np.nan_to_num(np.sign(target[..., j] - target[..., k]))
    return seen, true


def pairwise_accuracy(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
    """Share of policy pairs put in the right order (the paper's PairAcc): shapes (..., P) to (...).

    A pair with equal estimates, or without one of its estimates, is wrong. Pairs that are equal in truth have no
    right order and are left out; without them this is the paper's formula. NaN where no pair has a true order.

    Examples
    --------
    >>> float(pairwise_accuracy([0.1, 0.3, 0.2], [0.1, 0.2, 0.3]).round(3))
    0.667
    """
    seen, true = _orders(estimate, truth)
    return _share((seen * true > 0).sum(axis=-1), (true != 0).sum(axis=-1))


def kendall(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
    """Kendall's tau against the truth: concordant minus discordant pairs, over the pairs with a true order.

    Shapes (..., P) to (...). A pair with equal estimates, or without one of its estimates, is neither. With no ties at
    all this is the usual tau, and ``2 * pairwise_accuracy - 1``; with ties it is Somers' D of the estimate given the
    truth.

    Examples
    --------
    >>> float(kendall([0.1, 0.3, 0.2], [0.1, 0.2, 0.3]).round(3))
    0.333
    """
    seen, true = _orders(estimate, truth)
    return _share((seen * true).sum(axis=-1), (true != 0).sum(axis=-1))


def top_1(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
    """Whether the policy estimated to be best is a best one: shapes (..., P) to (...).

    Policies that tie for the best estimate share the choice; a missing estimate is never chosen, and when all are
    missing the choice failed.

    Examples
    --------
    >>> top_1([[0.1, 0.3], [0.3, 0.1], [0.2, 0.2]], [0.1, 0.2]).tolist()
    [1.0, 0.0, 0.5]
    """
    value, target = np.broadcast_arrays(np.asarray(estimate, float), np.asarray(truth, float))
    ranked, true = (np.where(np.isnan(a), -np.inf, a) for a in (value, target))
    chosen = (ranked == ranked.max(axis=-1, keepdims=True)) & ~np.isnan(value)
    best = (true == true.max(axis=-1, keepdims=True)) & ~np.isnan(target)
    return np.asarray((chosen & best).sum(axis=-1) / np.maximum(chosen.sum(axis=-1), 1))


def ranking(estimate: xr.Dataset, truth: xr.DataArray) -> xr.Dataset:
    """All ranking metrics of one estimate against a truth over ``policy``, matched by name.

    Scalars ``pairwise_accuracy``, ``top_1`` and ``kendall``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> ranking(estimate, cje_sim.truth("weak_judge"))["kendall"].item()
    1.0
    """
    value = estimate.variables["estimate"].values
    target = truth.sel(policy=estimate.variables["policy"].values).values
    metrics = (pairwise_accuracy, top_1, kendall)
    return xr.Dataset({metric.__name__: float(metric(value, target)) for metric in metrics})


def _share(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> FloatArray:
    return np.asarray(np.where(whole > 0, part / np.maximum(whole, 1), np.nan), dtype=float)
