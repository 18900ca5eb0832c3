"""Hierarchical transport: the shift of each probed policy's mean residual, with shrinkage across policies.

For one draw f of the calibrator, probe labels of policy p leave residuals ``r_pj = Y_pj - f(S_pj)`` (averaged within a
prompt; where clusters hold several prompts, j is a cluster with the sum of its prompts' residuals, scaled so that the
mean over clusters is the mean over prompts), and ::

    r_pj ~ Normal(delta_p, sigma_p),  delta_p ~ Normal(0, v_p),  p(sigma_p^2) ~ 1 / sigma_p^2,  tau ~ half-Cauchy(scale)
    normal       v_p = tau^2
    student      v_p = tau^2 lambda_p,     lambda_p ~ InvGamma(3/2, 3/2): delta_p is t with 3 df
    horseshoe    v_p = c^2 l^2 / (c^2 + l^2), l = tau lambda_p, lambda_p ~ half-Cauchy(1), slab c

By the paper's proposition on mean transport, delta_p is the bias of the plug-in, so ``V_p = plug-in + delta_p``,
conditioned on the oracle's scale (`cje_core.bayes.value.within`).

*flat*, the default, pools nothing: the probes correct their policy's value as own labels do, by the one-step posterior
on log odds (`cje_core.bayes.value`, df = 0), and delta_p is what that adds to the plug-in. It has no likelihood, so it
holds for binary residuals too, and no draw leaves the scale.

The posterior is *cut*: probes never inform f. With pooling, for each draw of f a short inner chain moves (delta, sigma,
lambda, tau) given that f, from where the last one stopped. In the joint posterior the probes of a policy that the
calibration does not fit would bend f towards them and hide their own shift. A normal prior lets one failing policy
inflate tau for all; the heavier tails of student and horseshoe let it go alone.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np

from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.slice_sampling import shrink_of
from cje_core.bayes.value import Correction, correction, curves_of, draw_values, mean_at, within
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray, IntArray, Rng, one_of
from cje_core.compiled import njit
from cje_core.data.arrays import Rows
from cje_core.inference.sums import sum_by

PRIORS = ("flat", "student", "normal", "horseshoe")
POOLED = PRIORS[1:]
INNER = 10  # sweeps per draw of f
SLAB = 0.5  # of the horseshoe: shifts beyond half the oracle scale are not to be had


class Shifts(NamedTuple):
    """Draws of the mean residual on the [0, 1] oracle scale; NaN for policies with fewer than 4 probed clusters."""

    delta: FloatArray  # (policies, draws)
    tau: FloatArray  # (draws,)
    n_probes: IntArray  # (policies,) probed prompts


class Probes(NamedTuple):
    """Probed rows, and the units (clusters of their prompts) whose residuals are summed."""

    row: IntArray  # (r,)
    curve: IntArray
    at: IntArray
    label: FloatArray
    share: FloatArray  # (r,) in the mean over its policy's prompts
    place: IntArray  # (r,) of its policy among those checked
    unit: IntArray  # (r,)
    unit_place: IntArray  # (units,)
    n_units: FloatArray  # (policies checked,)


def probed(rows: Rows) -> tuple[IntArray, IntArray]:
    """Probed prompts, and clusters of them, of each policy; shape (policies,) each."""
    probes = np.flatnonzero(rows.probe)
    policy, prompt = rows.policy[probes], rows.prompt[probes]

    def distinct(unit: IntArray, size: int) -> IntArray:
        return np.bincount(np.unique(policy * size + unit) // size, minlength=len(rows.policies))

    return distinct(prompt, len(rows.prompts)), distinct(rows.cluster[prompt], len(rows.cluster_names))


def probe_corrected(
    rows: Rows,
    graded: Graded,
    draws: Draws,
    *,
    prior: str = "flat",
    scale: float = 0.05,
    rng: Rng = None,
) -> tuple[FloatArray, FloatArray]:
    """Draw the values that probes correct, on the oracle scale, and the shifts delta on [0, 1], (policies, draws) each.

    Policies with fewer than 4 probed clusters have NaN. `prior` is one of `PRIORS`; `scale` is used by those that pool.
    """
    one_of(prior, "prior", PRIORS)
    rng, levels = np.random.default_rng(rng), graded.levels
    uncorrected: list[Correction | None] = [None] * len(rows.policies)
    if prior != "flat":
        plug_in = draw_values(rows, graded, draws, uncorrected, rng=rng)
        found = shifts(rows, graded, draws, prior=prior, scale=scale, rng=rng)
        return shifted(plug_in, found.delta, levels)
    plug_in = draw_values(
        rows, graded, draws, uncorrected, rng=deepcopy(rng)
    )  # with the weights of the value
    checked = np.flatnonzero(probed(rows)[1] >= MIN_LABELLED_CLUSTERS)
    corrections = list(uncorrected)
    for p in checked:
        row = np.flatnonzero(rows.probe & (rows.policy == p))
        _, prompt, number = np.unique(rows.prompt[row], return_inverse=True, return_counts=True)
        corrections[p] = correction(rows, row, 1.0 / number[prompt], 0.0)
    value = draw_values(rows, graded, draws, corrections, rng=rng)
    value[np.setdiff1d(np.arange(len(value)), checked)] = np.nan
    return value, (value - plug_in) / levels.width


def shifted(plug_in: FloatArray, delta: FloatArray, levels: Levels) -> tuple[FloatArray, FloatArray]:
    """Values ``plug_in + delta`` conditioned on the oracle's scale, and the shifts on [0, 1] that are left."""
    value = within(plug_in + levels.width * delta, (levels.low, levels.low + levels.width))
    return value, (value - plug_in) / levels.width


def shifts(
    rows: Rows,
    graded: Graded,
    draws: Draws,
    *,
    prior: str = "student",
    scale: float = 0.05,
    inner: int = INNER,
    rng: Rng = None,
) -> Shifts:
    """Draw every probed policy's mean residual from the cut posterior; draw d belongs to draw d of f.

    `prior` is one of `POOLED`, `scale` that of the half-Cauchy on tau, on the [0, 1] oracle scale; a draw of f gets
    `inner` sweeps.
    """
    one_of(prior, "prior", POOLED)
    if not scale > 0:
        raise ValueError(f"scale={scale}: it must be positive")
    probes, n_policies, n_draws = np.flatnonzero(rows.probe), len(rows.policies), len(draws.f)
    delta, tau = np.full((n_policies, n_draws), np.nan), np.full(n_draws, np.nan)
    policy, prompt = rows.policy[probes], rows.prompt[probes]
    n_probes, n_units = probed(rows)
    _, answer = np.unique(policy * len(rows.prompts) + prompt, return_inverse=True)
    units, unit = np.unique(policy * len(rows.cluster_names) + rows.cluster[prompt], return_inverse=True)
    unit_policy = (units // len(rows.cluster_names)).astype(np.intp)
    checked = np.flatnonzero(n_units >= MIN_LABELLED_CLUSTERS)
    if len(checked) == 0:
        return Shifts(delta, tau, n_probes)
    share = 1.0 / np.bincount(answer)[answer]  # of its prompt, over several draws
    average = sum_by(policy, share * graded.label[probes], n_policies)[checked] / n_probes[checked]
    # random numbers go by the data, not by the names
    checked = checked[np.lexsort((average, n_units[checked]))]
    place = np.full(n_policies, -1)
    place[checked] = np.arange(len(checked))
    row = np.flatnonzero(place[policy] >= 0)
    kept = place[unit_policy] >= 0
    c = curves_of(rows, graded, draws)
    index, own = probes[row], policy[row]
    seen = Probes(
        index, c.curve[own], graded.at[index], graded.label[index], share[row] / n_probes[own], place[own],
        (np.cumsum(kept) - 1)[unit[row]], place[unit_policy[kept]], n_units[checked].astype(float),
    )  # fmt: skip
    found = np.empty((n_draws, len(checked)))
    _cut_chain(np.random.default_rng(rng), c, seen, POOLED.index(prior), scale, SLAB, inner, found, tau)
    delta[checked] = found.T
    return Shifts(delta, tau, n_probes)


@njit
def _variance(kind, log_tau, log_lambda, slab):  # type: ignore[no-untyped-def]
    if kind == 0:  # student
        return np.exp(2.0 * log_tau + log_lambda)
    if kind == 1:  # normal
        return np.exp(2.0 * log_tau)
    local = np.exp(2.0 * (log_tau + log_lambda))
    return slab * slab * local / (slab * slab + local)


@njit
def _log_normal(x, variance):  # type: ignore[no-untyped-def]
    return -0.5 * np.log(variance) - 0.5 * x * x / variance


@njit
def _log_lambda_density(u, delta, log_tau, kind, slab):  # type: ignore[no-untyped-def]
    out = _log_normal(delta, _variance(kind, log_tau, u, slab))
    if kind == 0:  # inverse gamma (3/2, 3/2) of lambda = exp(u), Jacobian included
        return out - 1.5 * u - 1.5 * np.exp(-u)
    return out + u - np.log1p(np.exp(2.0 * u))


@njit
def _log_tau_density(u, delta, log_lambda, kind, scale, slab):  # type: ignore[no-untyped-def]
    out = u - np.log1p(np.exp(2.0 * u) / (scale * scale))
    for p in range(len(delta)):
        out += _log_normal(delta[p], _variance(kind, u, log_lambda[p], slab))
    return out


# bounds of the logarithms of tau and lambda: a local scale must reach a far-off policy
LOW, HIGH = -14.0, 14.0
_shrink_lambda, _shrink_tau = shrink_of(_log_lambda_density), shrink_of(_log_tau_density)


@njit
def _cut_chain(rng, c, probes, kind, scale, slab, inner, delta, tau):  # type: ignore[no-untyped-def]
    n, n_units = probes.n_units, len(probes.unit_place)
    residual, expected = np.empty(n_units), np.zeros(n_units)
    for r in range(
        len(probes.row)
    ):  # share of a unit in its policy's mean: 1 / n unless clusters differ in size
        expected[probes.unit[r]] += probes.share[r]
    mean, square = np.empty(len(n)), np.empty(len(n))
    shift, log_lambda = np.zeros(len(n)), np.zeros(len(n))
    log_tau = np.log(scale)
    for d in range(len(c.f)):
        residual[:] = 0.0
        mean[:] = 0.0
        square[:] = 0.0
        for r in range(len(probes.row)):
            expects = mean_at(c, d, probes.curve[r], probes.at[r], probes.row[r])
            found = probes.share[r] * (probes.label[r] - expects)
            residual[probes.unit[r]] += found
            mean[probes.place[r]] += found
        for j in range(n_units):
            p = probes.unit_place[j]
            square[p] += (n[p] * (residual[j] - expected[j] * mean[p])) ** 2
        for _ in range(inner):
            for p in range(len(n)):
                around = square[p] + n[p] * (mean[p] - shift[p]) ** 2
                variance = max(around, 1e-12) / (2.0 * rng.standard_gamma(0.5 * n[p]))
                prior = 1.0 / _variance(kind, log_tau, log_lambda[p], slab)
                precision = n[p] / variance + prior
                shift[p] = n[p] * mean[p] / variance / precision + rng.standard_normal() / np.sqrt(precision)
                if kind != 1:
                    terms = shift[p], log_tau, kind, slab
                    height = _log_lambda_density(log_lambda[p], *terms) - rng.standard_exponential()
                    log_lambda[p] = _shrink_lambda(rng, log_lambda[p], LOW, HIGH, height, terms)
            others = shift, log_lambda, kind, scale, slab
            height = _log_tau_density(log_tau, *others) - rng.standard_exponential()
            log_tau = _shrink_tau(rng, log_tau, LOW, HIGH, height, others)
        delta[d] = shift
        tau[d] = np.exp(log_tau)
