"""From draws of the calibrator to draws of the policies' values.

*One-step corrected* (Yiu, Fong, Holmes and Rousseau, "Semiparametric posterior corrections"), for a policy with
labels L of its own, at draw d, with Bayesian-bootstrap weights w on the clusters of prompts::

    V = sum_i w_i f(S_i) + rbar + c_m ( sum_L v_i r_i / sum_L v_i - rbar ),    r_i = Y_i - f(S_i),  v_i = w_i / e_i

f, w and r belong to the same draw in both terms: independent draws would break their cancellation. rbar is the mean
residual with all w equal, and c_m >= 1 widens the second term for few labels as a t quantile does,
``c_m = sqrt((m + 1) / nu) t_{.975, nu} / 1.96`` with nu = m - 1 - df and df the parameters that f spends on the slice;
m counts clusters, by Kish's formula where the v are unequal.

*Plug-in*, for a policy that borrows its calibrator: ``V = sum_i w_i f(S_i)``, which assumes transport.

The weights are shared by all policies of a prompt, so a difference of two policies keeps their covariance, and a
difference of two borrowed ones loses most of the calibrator's error.
"""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from scipy import stats

from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Graded, Levels
from cje_core.data import Rows
from cje_core.result import sum_by

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

MIN_NU = 3.0


class Values(NamedTuple):
    """Posterior draws of the values on the oracle scale; a policy without responses has NaN."""

    draws: FloatArray  # (policies, draws)
    corrected: npt.NDArray[np.bool_]  # (policies,) whether own labels corrected the value


def spent(levels: Levels, draws: Draws) -> float:
    """Parameters that f spends on the slice: ``sum_k n_k Var(f_k) / E[noise variance at level k]``."""
    if levels.binary:
        mean = draws.f.mean(axis=0)
        noise = np.maximum(mean * (1.0 - mean), 1e-6)
    else:
        noise = np.full(len(levels.n), float((draws.sigma**2).mean()))
    return float((levels.n * draws.f.var(axis=0) / noise).sum())


def inflation(n_labels: float, df: float) -> float:
    """Factor c_m on the residual term, at least 1.

    Examples
    --------
    >>> round(inflation(50, 3.0), 3), round(inflation(5000, 3.0), 3)
    (1.081, 1.001)
    """
    nu = max(n_labels - 1.0 - df, MIN_NU)
    return float(max(np.sqrt((n_labels + 1.0) / nu) * stats.t.ppf(0.975, nu) / stats.norm.ppf(0.975), 1.0))


def values(
    rows: Rows,
    graded: Graded,
    draws: Draws,
    *,
    corrected: npt.NDArray[np.bool_],
    inflate: bool = True,
    rng: np.random.Generator | int | None = None,
) -> Values:
    """Draw the policies' values.

    Parameters
    ----------
    rows : Rows
    graded : Graded
        Of the same rows.
    draws : Draws
        Of f at ``graded.levels``.
    corrected : boolean array, shape (P,)
        Policies whose own labels correct the value.
    inflate : bool
        Whether to apply c_m.
    rng : Generator, int or None

    Returns
    -------
    Values
    """
    rng = np.random.default_rng(rng)
    levels = graded.levels
    n_policies = len(rows.policies)
    cluster = rows.cluster[rows.prompt]
    used = np.flatnonzero(rows.evaluated)
    own = np.flatnonzero(rows.evaluated & rows.labelled & corrected[rows.policy])
    factor = np.ones(n_policies)
    if inflate:
        df = spent(levels, draws)
        for p in np.flatnonzero(corrected):
            mine = own[rows.policy[own] == p]
            v = sum_by(cluster[mine], rows.weight[mine] / rows.label_prob[mine], len(rows.cluster_names))
            factor[p] = inflation(float(v.sum() ** 2 / (v**2).sum()), df)
    out = np.empty((len(draws.f), n_policies))
    _value_draws(
        rng, draws.f, len(rows.cluster_names),
        rows.policy[used], cluster[used], graded.at[used], rows.weight[used],
        rows.policy[own], cluster[own], graded.at[own], graded.label[own], rows.weight[own] / rows.label_prob[own],
        factor, out,
    )  # fmt: skip
    return Values(levels.low + levels.width * out.T, corrected)


@numba.njit(cache=True)
def _value_draws(  # type: ignore[no-untyped-def]
    rng,
    f,
    n_clusters,
    policy,
    cluster,
    at,
    weight,
    own_policy,
    own_cluster,
    own_at,
    own_label,
    own_weight,
    factor,
    out,
):
    n_policies, n_levels = len(factor), f.shape[1]
    mass = np.empty((n_policies, n_levels))
    total = np.empty(n_policies)
    drawn = np.empty(n_clusters)
    shift, spread = np.empty(n_policies), np.empty(n_policies)
    plain, plain_total = np.empty(n_policies), np.empty(n_policies)
    for d in range(f.shape[0]):
        for g in range(n_clusters):
            drawn[g] = rng.standard_exponential()
        mass[:] = 0.0
        total[:] = 0.0
        for r in range(len(policy)):
            w = drawn[cluster[r]] * weight[r]
            mass[policy[r], at[r]] += w
            total[policy[r]] += w
        shift[:] = 0.0
        spread[:] = 0.0
        plain[:] = 0.0
        plain_total[:] = 0.0
        for r in range(len(own_policy)):
            p = own_policy[r]
            residual = own_label[r] - f[d, own_at[r]]
            w = drawn[own_cluster[r]] * own_weight[r]
            shift[p] += w * residual
            spread[p] += w
            plain[p] += own_weight[r] * residual
            plain_total[p] += own_weight[r]
        for p in range(n_policies):
            value = np.nan
            if total[p] > 0.0:
                value = 0.0
                for k in range(n_levels):
                    value += mass[p, k] * f[d, k]
                value /= total[p]
            if spread[p] > 0.0:
                center = plain[p] / plain_total[p]
                value += center + factor[p] * (shift[p] / spread[p] - center)
            out[d, p] = value
