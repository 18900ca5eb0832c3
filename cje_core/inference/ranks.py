"""Ranks of policies with their uncertainty, and ranking metrics against a known truth.

The paper's paragraph "Selection and multiplicity" warns of the winner's curse: the best of many estimates is rarely
as good, or as surely best, as it looks. So ranks come with simultaneous confidence sets (Mogstad, Romano, Shaikh and
Wilhelm, 2024, "Inference for ranks with applications to mobility across neighbourhoods and academic achievement
across countries"), and "best" is a set of policies and a probability. All of it uses the joint error of the policies
(`cje_core.inference.contrasts`). A higher value is better throughout; rank 1 is the best.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import special

from cje_core.checks import FloatArray, IntArray, one_of
from cje_core.data.construct import dataset
from cje_core.inference.contrasts import adjust_p, all_pairs
from cje_core.inference.estimate import CI_BOUND
from cje_core.inference.pairs import covariance, has_influence, pair_errors

METHODS = ("max_t", "holm")
CHUNK = 2_000_000  # numbers held at once where draws meet pairs


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
        ``max_t``: simultaneous intervals from the joint distribution of all differences, so correlation is used; each
        pair's critical value is the t quantile (its own df) at the level that the joint normal distribution asks for.
        ``holm``: one-sided tests of all ordered pairs, valid under any dependence, and without randomness.
    n_draws : int
        Draws (from `rng`) of the joint normal distribution for ``max_t``; draws of the estimate are used as they are.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``rank`` (of the estimate; NaN for failures), ``rank_interval`` (policy, ci_bound), ``best``
        (no other policy is certainly better: with probability ``ci_prob`` this set holds every best policy). A policy
        without a standard error may have any rank.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> sets = rank_confidence_sets(estimate)
    >>> list(sets)
    ['rank', 'rank_interval', 'best']
    """
    one_of(method, "method", METHODS)
    rng = np.random.default_rng(rng)
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    first, second = all_pairs(estimate)
    pairs = pair_errors(estimate, first, second, prob)
    if method == "max_t":
        level = _simultaneous_level(estimate, first, second, pairs.std_error, prob, n_draws, rng)
        certain = 2 * special.stdtr(pairs.df, -np.abs(pairs.difference) / pairs.std_error) < level
    else:
        tail = pairs.p_value / 2  # one-sided, in the direction seen; the other direction has the rest
        certain = adjust_p(np.concatenate([tail, 1 - tail]), "holm")[: len(tail)] < 1 - prob
    ahead = pairs.difference > 0
    n_policies = estimate.sizes["policy"]
    winner, loser = np.where(ahead, first, second)[certain], np.where(ahead, second, first)[certain]
    better = np.bincount(loser, minlength=n_policies)
    worse = np.bincount(winner, minlength=n_policies)
    value = estimate.variables["estimate"].values
    rank = np.where(np.isfinite(value), 1.0 + (value[None, :] > value[:, None]).sum(axis=1), np.nan)
    return dataset(
        {
            "rank": ("policy", rank),
            "rank_interval": (("policy", "ci_bound"), np.column_stack([1 + better, n_policies - worse])),
            "best": ("policy", better == 0),
        },
        coords={"policy": estimate.variables["policy"].values, "ci_bound": CI_BOUND},
        attrs={"ci_prob": prob, "method": method, "estimator": estimate.attrs["estimator"]},
    )


def _simultaneous_level(
    estimate: xr.Dataset,
    first: IntArray,
    second: IntArray,
    std_error: FloatArray,
    prob: float,
    n_draws: int,
    rng: np.random.Generator,
) -> float:
    """Two-sided level per pair at which all intervals together hold with probability `prob`."""
    errors, known = _joint_errors(estimate, n_draws, rng)
    use = np.isfinite(std_error) & np.isin(first, known) & np.isin(second, known)
    if not use.any():
        return 1 - prob
    a, b, scale = np.searchsorted(known, first[use]), np.searchsorted(known, second[use]), std_error[use]
    largest = np.empty(len(errors))
    step = max(CHUNK // len(scale), 1)
    for start in range(0, len(errors), step):
        part = errors[start : start + step]
        largest[start : start + step] = (np.abs(part[:, a] - part[:, b]) / scale).max(axis=1)
    return float(2 * special.ndtr(-np.quantile(largest, prob)))


def probability_best(
    estimate: xr.Dataset, *, n_draws: int = 20_000, rng: np.random.Generator | int | None = None
) -> xr.Dataset:
    """Probability that each policy has the highest value of all that have an estimate with an error.

    From `n_draws` of the joint normal distribution of the values (t with the smallest df of the policies, read as a
    posterior under a flat prior) or, without influence values, from the draws. Draws on which policies tie share them.

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
    rng = np.random.default_rng(rng)
    errors, known = _joint_errors(estimate, n_draws, rng)
    probability = np.full(estimate.sizes["policy"], np.nan)
    if len(known):
        if has_influence(estimate):
            df = float(estimate["df"].values[known].min())
            scale = rng.chisquare(df, len(errors)) / df if np.isfinite(df) else np.ones(len(errors))
            drawn = estimate["estimate"].values[known] + errors / np.sqrt(scale)[:, None]
        else:
            drawn = errors + estimate["draws"].transpose("policy", "replicate").values[known].mean(axis=1)
        top = drawn == drawn.max(axis=1, keepdims=True)
        probability[known] = (top / top.sum(axis=1, keepdims=True)).mean(axis=0)
    mcse = np.sqrt(probability * (1 - probability) / len(errors))
    return xr.Dataset(
        {"probability": ("policy", probability), "mcse": ("policy", mcse)},
        coords={"policy": estimate.variables["policy"].values},
        attrs={"estimator": estimate.attrs["estimator"]},
    )


def _joint_errors(
    estimate: xr.Dataset, n_draws: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Draws of the joint estimation error, shape (draws, k), and the k policies that have one."""
    if has_influence(estimate):
        sigma = covariance(estimate)
        known = np.flatnonzero(np.isfinite(np.diag(sigma)))
        eigenvalue, vector = np.linalg.eigh(sigma[np.ix_(known, known)])
        root = vector * np.sqrt(np.maximum(eigenvalue, 0.0))
        return np.asarray(rng.standard_normal((n_draws, len(known))) @ root.T), known
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
