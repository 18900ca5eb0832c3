"""Contrasts between policies, control of multiplicity, and the pairwise win matrix.

Estimand of a contrast: ``V_a - V_b``, or the difference of whatever else the estimate says that it estimates (attribute
``estimand``). The paper's section "Multiplicity for many-policy comparisons" asks for Wald
p-values of contrasts, BH control (BY under strong dependence), and a pairwise win matrix with marks.

The joint uncertainty of two policies is that of `cje_core.inference.pairs`. A higher value is better throughout.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import FloatArray, IntArray, one_of, probability
from cje_core.data.construct import dataset
from cje_core.inference.estimate import CI_BOUND, ESTIMAND
from cje_core.inference.pairs import pair_errors

ADJUSTMENTS = ("bh", "by", "bonferroni", "holm", "hommel", "none")
STATSMODELS = {"by": "fdr_by", "hommel": "hommel"}  # methods that statsmodels computes, and its names


# --- multiplicity ----------------------------------------------------------------------------------------------------


def adjust_p(p_value: npt.ArrayLike, method: str = "bh") -> FloatArray:
    """Adjusted p-values of one family of tests.

    Parameters
    ----------
    p_value : array, shape (k,)
        NaN marks a test that could not be made; it stays NaN and does not count.
    method : {"bh", "by", "bonferroni", "holm", "hommel", "none"}
        ``bh`` controls the false discovery rate (Benjamini and Hochberg), ``by`` does so under any dependence
        (Benjamini and Yekutieli), ``holm`` and ``bonferroni`` control the family-wise error rate, and so does
        ``hommel``, which rejects more than Holm, under independence and positive dependence.

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
    if method in STATSMODELS:
        from statsmodels.stats.multitest import multipletests

        out[tested] = multipletests(out[tested], method=STATSMODELS[method])[1]
        return out
    # `analyze` prints these three: loading statsmodels takes .7 s there, a quarter of the command, and its Holm
    # collects garbage at each call, .1 s in every replicate of a study. A test holds them to statsmodels.
    order = tested[np.argsort(out[tested], kind="stable")]
    p, rank = out[order], np.arange(1, k + 1)
    if method == "bonferroni":
        adjusted = p * k
    elif method == "holm":
        adjusted = np.maximum.accumulate(p * (k + 1 - rank))
    else:
        adjusted = np.minimum.accumulate((p * k / rank)[::-1])[::-1]
    out[order] = np.minimum(adjusted, 1.0)
    return out


# --- contrasts -------------------------------------------------------------------------------------------------------


def _labelled(
    estimate: xr.Dataset, first: IntArray, second: IntArray, prob: float, adjust: str
) -> xr.Dataset:
    pairs = pair_errors(estimate, first, second, prob)
    if "oracle_range" in estimate.attrs:  # no difference is larger than the scale
        span = float(np.ptp(estimate.attrs["oracle_range"]))
        pairs = pairs._replace(interval=np.clip(pairs.interval, -span, span))
    names = estimate.variables["policy"].values.astype(str)
    return dataset(
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
        attrs={
            "ci_prob": prob,
            "estimator": estimate.attrs["estimator"],
            "adjustment": adjust,
            "estimand": f"difference of two policies' {estimate.attrs.get('estimand', ESTIMAND)}",
        },
    )


def all_pairs(estimate: xr.Dataset) -> tuple[IntArray, IntArray]:
    """Numbers of the two policies of every pair, pairs in sorted order of name."""
    order = np.argsort(estimate.variables["policy"].values.astype(str), kind="stable")
    pairs = np.array(list(combinations(order, 2)), dtype=np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def others_and(estimate: xr.Dataset, reference: str) -> tuple[IntArray, IntArray]:
    """Numbers of every other policy, in sorted order of name, and as often that of the reference."""
    names = estimate.variables["policy"].values.astype(str)
    if reference not in names:
        raise ValueError(f"reference={reference!r}: the estimate has {', '.join(sorted(names))}")
    order = np.argsort(names, kind="stable")
    first = order[names[order] != reference]
    return first, np.full(len(first), np.flatnonzero(names == reference)[0])


def contrasts(estimate: xr.Dataset, *, ci_prob: float | None = None, adjust: str = "bh") -> xr.Dataset:
    """All pairwise differences of policy values.

    Parameters
    ----------
    estimate : xr.Dataset
        An estimate that carries ``influence`` (t intervals) or else ``draws`` (percentile intervals; the p-value is
        twice the smaller tail, with one added to both counts).
    ci_prob : float, optional
        Probability of each interval (not adjusted); default: the estimate's.
    adjust : {"bh", "by", "bonferroni", "holm", "hommel", "none"}
        Adjustment of ``p_adjusted``, see `adjust_p`.

    Returns
    -------
    xr.Dataset
        Over ``pair``, with coordinates ``first`` and ``second`` (names in sorted order): ``difference`` (first
        minus second), ``std_error``, ``df`` (the smaller of the two policies', see the module for two that borrow;
        infinite for draws), ``interval``, ``p_value``, ``p_bh`` (Benjamini-Hochberg over all pairs) and
        ``p_adjusted``. NaN where a policy has no estimate or the difference has no spread.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.estimators import direct
    >>> estimate = direct.estimate(data)
    >>> found = contrasts(estimate).isel(pair=0)
    >>> f"{found['first'].item()} - {found['second'].item()}: {found['difference'].item():.3f}"
    'base - better: -0.049'
    >>> found["interval"].values.round(3).tolist()
    [-0.156, 0.058]
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
    prob = float(estimate.attrs["ci_prob"]) if ci_prob is None else ci_prob
    return _labelled(estimate, *others_and(estimate, reference), prob, adjust)


def win_matrix(estimate: xr.Dataset, q: float = 0.05, *, adjust: str = "bh") -> xr.Dataset:
    """Who beats whom, with false discovery control over all pairs.

    Parameters
    ----------
    estimate : xr.Dataset
        With ``influence`` or ``draws``.
    q : float
        Level of the marks; the paper's section on multiplicity recommends values in [0.05, 0.2].
    adjust : {"bh", "by", "bonferroni", "holm", "hommel", "none"}

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
        coords={"policy": estimate.variables["policy"].values, "other": estimate.variables["policy"].values},
        attrs={"q": q, "adjustment": adjust, "estimator": estimate.attrs["estimator"]},
    )
