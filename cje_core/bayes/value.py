"""From draws of the calibrator to draws of the policies' values.

*One-step corrected* (Yiu, Fong, Holmes and Rousseau, "Semiparametric posterior corrections"), for a policy with m
labels L of its own, at draw d, with Bayesian-bootstrap weights w on the clusters of prompts::

    logit V = logit F + e_1 + c_m (e_w - e_1)                F   = sum_i w_i f(S_i) / sum_i w_i
    e_w = logit T_w - logit L_w                              L_w = sum_L v_i w_i f(S_i) / sum_L v_i w_i
    T_w = (sum_L v_i w_i Y_i + vbar L_w) / (sum_L v_i w_i + vbar)

on the unit scale, with v_i = 1 / e_i and vbar = sum_L v_i / m. To first order that is
``F + sum v w (Y - f) / sum v w``, the mean residual put on the plug-in; on log odds no draw leaves the scale of the
oracle, and draws near an end are as
skewed as the labels are. f, w and residuals belong to the same draw in all terms: independent draws would break their
cancellation. One pseudo-label at the model's own mean (a Dirichlet process prior of precision 1) keeps equal labels
from being taken for certain. e_1 has all w equal, and c_m >= 1 widens what w does for few labels as a t quantile does,
``c_m = (m + 1) / m sqrt((m + 1) / nu) t_{.975, nu} / 1.96`` with nu = m - 1 - df, df the parameters that f spends on
the slice, and the first factor for what the pseudo-label takes; m counts clusters, by Kish's formula where the v are
unequal. Binary labels of mean .5 to .98 and a judge that knows nothing, 13 to 100 labels that are not all equal: by
enumeration over the binomial the 95% interval covers .94 or more, and is as wide as that of the sum.

*One-step from the slice*, for a policy that borrows its calibrator: the same formula, L the labels that teach and
``v_i = w_i omega_i / e_i`` with omega the policy's responses over the labels in the bin of S_i (`balance`). It assumes
transport, E[Y | S] of the slice, and nothing else: what the prior did to f is undone where there are labels. omega = 1
is the policy that has labels of its own.

*Plug-in*: ``V = sum_i w_i f(S_i)``, which also believes in f.

f(S_i) stands for the draw's mean of Y at row i. Under covariates it is f e^h / (1 - f + f e^h) at (S_i, X_i), and under
partial pooling every policy has an f of its own.

The weights are shared by all policies of a prompt, so a difference of two policies keeps their covariance, and a
difference of two borrowed ones loses most of the calibrator's error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Graded
from cje_core.calibration.folds import count_clusters
from cje_core.checks import BoolArray, FloatArray, IntArray, Rng
from cje_core.compiled import njit
from cje_core.data.arrays import Rows
from cje_core.inference.influence import kish_ess
from cje_core.inference.sums import sum_by

MIN_NU = 3.0
TINY = 1e-12  # odds are finite
MIN_BINS, MAX_BINS, LABELS_PER_BIN = 3, 10, 12  # of `balance`


class Curves(NamedTuple):
    """Draws of the mean of Y in the shape that the kernels take; ``mean_at`` reads it."""

    f: FloatArray  # (draws, F, K): one curve for all, or one per policy
    curve: IntArray  # (P,) which curve is a policy's
    beta: FloatArray  # (draws, C); C is 0 without covariates
    columns: FloatArray  # (rows, C)


class Weighted(NamedTuple):
    """Rows of every policy, those of policy p being ``start[p]:start[p + 1]``, and what each weighs."""

    start: IntArray  # (P + 1,)
    row: IntArray  # (r,)
    curve: IntArray  # which its policy has
    cluster: IntArray
    at: IntArray  # judge level
    weight: FloatArray


def curves_of(rows: Rows, graded: Graded, draws: Draws) -> Curves:
    """Lay out draws of any of the calibration models for the kernels."""
    n_draws, n_policies = len(draws.f), len(rows.policies)
    if draws.own is None:
        f, curve = draws.f[:, None, :], np.zeros(n_policies, dtype=np.intp)
    else:
        f, curve = draws.own, np.arange(n_policies)
    if draws.beta is None:
        return Curves(f, curve, np.zeros((n_draws, 0)), np.zeros((len(rows.policy), 0)))
    assert graded.columns is not None
    return Curves(f, curve, draws.beta, graded.columns)


@njit
def mean_at(c, d, curve, at, row):  # type: ignore[no-untyped-def]
    """Mean of Y at one row in draw d of some `Curves`: the odds of f times exp(columns @ beta)."""
    f = c.f[d, curve, at]
    if c.beta.shape[1] == 0:
        return f
    effect = 0.0
    for k in range(c.beta.shape[1]):
        effect += c.columns[row, k] * c.beta[d, k]
    if f <= 0.0 or f >= 1.0:
        return f
    if effect > 0.0:  # exp of either sign may overflow for a response far from the labelled ones
        return f / (f + (1.0 - f) * np.exp(-effect))
    odds = np.exp(effect)
    return f * odds / (1.0 - f + f * odds)


def spent(rows: Rows, graded: Graded, draws: Draws, taught: BoolArray) -> float:
    """Parameters that f spends on the labels of the rows `taught`: ``sum_i Var(f(S_i)) / E[noise variance at i]``."""
    index = np.flatnonzero(taught)
    c = curves_of(rows, graded, draws)
    mean, variance = _moments(c, c.curve[rows.policy[index]], graded.at[index], index)
    if graded.levels.binary:
        noise = np.maximum(mean * (1.0 - mean), 1e-6)
    else:
        noise = np.full(len(index), float((draws.sigma**2).mean()))
    return graded.share * float((variance / noise).sum())


@njit
def _moments(c, curve, at, row):  # type: ignore[no-untyped-def]
    f, by_level = c.f, c.beta.shape[1] == 0  # a field of a tuple costs more, in the inner loop, than the sum
    mean, variance, n_draws = np.zeros(len(row)), np.zeros(len(row)), len(f)
    for d in range(n_draws):  # outside: the values of a draw lie beside each other
        for i in range(len(row)):
            mean[i] += f[d, curve[i], at[i]] if by_level else mean_at(c, d, curve[i], at[i], row[i])
    mean /= n_draws
    for d in range(n_draws):
        for i in range(len(row)):
            value = f[d, curve[i], at[i]] if by_level else mean_at(c, d, curve[i], at[i], row[i])
            variance[i] += (value - mean[i]) ** 2
    return mean, variance / n_draws


def inflation(n_labels: float, df: float) -> float:
    """Factor c_m on the residual term, at least 1.

    Examples
    --------
    >>> round(inflation(50, 3.0), 3), round(inflation(5000, 3.0), 3)
    (1.103, 1.001)
    """
    nu = max(n_labels - 1.0 - df, MIN_NU)
    as_t = np.sqrt((n_labels + 1.0) / nu) * special.stdtrit(nu, 0.975) / special.ndtri(0.975)
    return float(max(as_t, 1.0) * (n_labels + 1.0) / n_labels)


def balance(rows: Rows, position: FloatArray, policy: int) -> FloatArray:
    """Weights omega (m,) of the teaching labels, in their order: a policy's responses over the labels, bin by bin.

    `position` (r,) is what is binned, of every row: the judge's level, or under covariates the posterior mean of E[Y |
    S, X]. Bins are cut at quantiles of the labelled positions, so each holds labels: max(3, min(10, m // 12)) of them
    for m labelled clusters, fewer where positions tie.
    """
    taught = np.flatnonzero(rows.teaches)
    mine = np.flatnonzero(rows.evaluated & (rows.policy == policy))
    n_bins = max(MIN_BINS, min(MAX_BINS, count_clusters(rows, taught) // LABELS_PER_BIN))
    at = position[taught]
    edge = np.unique(np.quantile(at, np.arange(1, n_bins) / n_bins, method="inverted_cdf"))
    edge = edge[edge > at.min()]
    label_bin, own_bin = (np.searchsorted(edge, position[which], side="right") for which in (taught, mine))
    size = len(edge) + 1
    labels = sum_by(label_bin, rows.weight[taught] / rows.label_prob[taught], size)
    return np.asarray((sum_by(own_bin, rows.weight[mine], size) / labels)[label_bin])


class Correction(NamedTuple):
    """Labels that correct one policy's value."""

    row: IntArray  # (labels,)
    weight: FloatArray  # (labels,) v
    size: float  # m, effective clusters
    factor: float  # c_m


def correction(rows: Rows, row: IntArray, weight: FloatArray, df: float) -> Correction:
    """Make the correction by labels of the rows `row`, on which f spends `df` parameters."""
    cluster = rows.cluster[rows.prompt[row]]
    count = kish_ess(sum_by(cluster, weight, len(rows.cluster_names)))
    return Correction(row, weight, count, inflation(count, df))


def values(
    rows: Rows, graded: Graded, draws: Draws, *, corrected: BoolArray, one_step: bool = True, rng: Rng = None
) -> FloatArray:
    """Draw the policies' values, (P, draws) on the oracle scale; a policy without responses has NaN.

    Draw d takes the same weights of the prompts whatever is corrected by what, so values of two calls that start from
    one state of `rng` are joint.

    Parameters
    ----------
    draws : Draws
        Of any of the calibration models.
    corrected : boolean array, shape (P,)
        Policies whose own labels correct the value.
    one_step : bool
        Whether the labels that teach correct that of the others; else it is the plug-in.
    """
    c = curves_of(rows, graded, draws)
    taught = np.flatnonzero(rows.teaches)
    position = graded.levels.level[graded.at]
    if one_step and draws.beta is not None:
        position = _moments(c, c.curve[rows.policy], graded.at, np.arange(len(rows.policy)))[0]
    pooled = spent(rows, graded, draws, rows.teaches) if draws.own is None else np.nan
    corrections: list[Correction | None] = []
    for p in range(len(rows.policies)):
        mine = np.zeros(0, dtype=np.intp)
        if corrected[p]:
            mine = np.flatnonzero(rows.evaluated & rows.labelled & (rows.policy == p))
        elif one_step and (rows.evaluated & (rows.policy == p)).any():
            mine = taught
        if len(mine) == 0:
            corrections.append(None)
            continue
        v = rows.weight[mine] / rows.label_prob[mine]
        if not corrected[p]:
            v = v * balance(rows, position, p)
        fitted = rows.teaches & (rows.policy == p) if corrected[p] else rows.teaches
        df = pooled if draws.own is None else spent(rows, graded, draws, fitted)
        corrections.append(correction(rows, mine, v, df))
    return draw_values(rows, graded, draws, corrections, rng=rng)


def draw_values(
    rows: Rows, graded: Graded, draws: Draws, corrections: Sequence[Correction | None], *, rng: Rng = None
) -> FloatArray:
    """Draw the policies' values, each with its correction or as a plug-in; see `values`."""
    levels, n_policies = graded.levels, len(rows.policies)
    cluster, used, c = (
        rows.cluster[rows.prompt],
        np.flatnonzero(rows.evaluated),
        curves_of(rows, graded, draws),
    )
    nothing = Correction(np.zeros(0, dtype=np.intp), np.zeros(0), 1.0, 1.0)
    each = [nothing if one is None else one for one in corrections]

    def weighted(index: IntArray, start: IntArray, weight: FloatArray) -> Weighted:
        return Weighted(start, index, c.curve[rows.policy[index]], cluster[index], graded.at[index], weight)

    start = np.searchsorted(rows.policy[used], np.arange(n_policies + 1))  # rows are sorted by policy
    own = np.concatenate([one.row for one in each])
    ends = np.cumsum([0, *(len(one.row) for one in each)])
    corrects = weighted(own, ends, np.concatenate([one.weight for one in each]))
    count, factor = (np.array([getattr(one, name) for one in each]) for name in ("size", "factor"))
    out = np.empty((len(c.f), n_policies))
    _value_draws(
        np.random.default_rng(rng), c, len(rows.cluster_names), weighted(used, start, rows.weight[used]),
        corrects, graded.label[own], count, factor, out,
    )  # fmt: skip
    return levels.low + levels.width * out.T


def within(draws: FloatArray, scale: tuple[float, float]) -> FloatArray:
    """Condition each policy's draws (P, n) on the declared scale, by ranks.

    The k-th smallest of n draws becomes the quantile at (k - 1/2) / n of those inside, so what policies have in common
    stays. Draws of a policy that are all inside are left as they are; where none is, the nearest end is all there is.
    """
    out = np.clip(draws, *scale)
    outside = (out != draws) & np.isfinite(draws)
    for p in np.flatnonzero(outside.any(axis=1) & ~outside.all(axis=1)):
        rank = np.argsort(np.argsort(draws[p], kind="stable"), kind="stable")
        out[p] = np.quantile(draws[p][~outside[p]], (rank + 0.5) / len(rank))
    return out


@njit
def _log_odds(share):  # type: ignore[no-untyped-def]
    inside = min(max(share, TINY), 1.0 - TINY)
    return np.log(inside / (1.0 - inside))


@njit
def _correcting_odds(weight, label, fitted, count):  # type: ignore[no-untyped-def]
    """Log odds of the labels over those of f, from weighted sums over them, with one of `count` labels put at f."""
    mean, pseudo = fitted / weight, 1.0 / count
    return _log_odds((label / weight + pseudo * mean) / (1.0 + pseudo)) - _log_odds(mean)


@njit
def _value_draws(rng, c, n_clusters, used, own, label, count, factor, out):  # type: ignore[no-untyped-def]
    n_policies = len(factor)
    by_level = c.beta.shape[1] == 0  # f depends on the level alone
    # fields of a tuple cost more, in the inner loops, than what is done with them
    f, curve = c.f, c.curve
    used_cluster, used_at, used_weight = used.cluster, used.at, used.weight
    own_cluster, own_at, own_weight, own_curve = own.cluster, own.at, own.weight, own.curve
    drawn = np.empty(n_clusters)
    for d in range(len(f)):
        for g in range(n_clusters):
            drawn[g] = rng.standard_exponential()
        for p in range(n_policies):
            total, value = 0.0, 0.0
            if by_level:
                mine = f[d, curve[p]]
                for r in range(used.start[p], used.start[p + 1]):
                    w = drawn[used_cluster[r]] * used_weight[r]
                    total += w
                    value += w * mine[used_at[r]]
            else:
                for r in range(used.start[p], used.start[p + 1]):
                    w = drawn[used_cluster[r]] * used_weight[r]
                    total += w
                    value += w * mean_at(c, d, used.curve[r], used_at[r], used.row[r])
            spread, labelled, expected = 0.0, 0.0, 0.0  # weighted sums over the labels
            plain, plain_labelled, plain_expected = 0.0, 0.0, 0.0
            for r in range(own.start[p], own.start[p + 1]):
                if by_level:
                    fitted = f[d, own_curve[r], own_at[r]]
                else:
                    fitted = mean_at(c, d, own_curve[r], own_at[r], own.row[r])
                plain += own_weight[r]
                plain_labelled += own_weight[r] * label[r]
                plain_expected += own_weight[r] * fitted
                w = drawn[own_cluster[r]] * own_weight[r]
                spread += w
                labelled += w * label[r]
                expected += w * fitted
            value = value / total if total > 0.0 else np.nan
            if spread > 0.0 and total > 0.0:
                center = _correcting_odds(plain, plain_labelled, plain_expected, count[p])
                moved = _correcting_odds(spread, labelled, expected, spread / plain * count[p])
                odds = _log_odds(value) + center + factor[p] * (moved - center)
                value = 1.0 / (1.0 + np.exp(-odds))
            out[d, p] = value
