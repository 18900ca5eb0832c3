"""The monotone calibration posterior by Gibbs sampling, in numba: what the PyMC model samples, a hundred times cheaper.

Model (with `cje_core.bayes.splines` and labels and judge mapped to [0, 1])::

    w ~ Dirichlet(concentration, ..., concentration)            J + 2 weights
    f_k = w_0 + sum_j w_j I_j(level_k)                          nondecreasing, in [0, 1]
    Y_i ~ Normal(f_k(i), sigma), sigma ~ HalfNormal(scale)      or Y_i ~ Bernoulli(f_k(i)) for binary labels

The normal likelihood is a working one: it makes f a (quasi-)posterior of the regression E[Y | S] whatever the shape
of the noise, as least squares does. A beta likelihood is not: labels have mass at 0 and 1, and E[Y | S] under it is
inconsistent.

A sweep moves weight between pairs: with t = w_i + w_j fixed, w_i has a truncated normal conditional (normal
likelihood; drawn exactly) or a log-concave one (Bernoulli; drawn by slice sampling, exact as well). A Dirichlet with
concentration other than 1 enters as a Metropolis step. sigma is drawn by slice sampling on its logarithm.
"""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from cje_core.bayes.levels import Levels
from cje_core.bayes.splines import N_SPLINES, isplines

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

RUN = 16  # probabilities per product: 1e-19 each would not underflow
WARMUP, THIN = 300, 4  # sweeps; at these R-hat of every level is below 1.01 (tested)


class Prior(NamedTuple):
    """Prior of the calibration model."""

    concentration: float = 1.0  # of each weight; 1 is uniform on the simplex
    scale: float = 0.3  # of sigma, on the [0, 1] oracle scale
    n_splines: int = N_SPLINES


class Draws(NamedTuple):
    """Posterior draws of the calibrator, on [0, 1] scales."""

    f: FloatArray  # (draws, K): f at each level
    weight: FloatArray  # (draws, J + 2)
    sigma: FloatArray  # (draws,); NaN for binary labels
    diagnostics: dict[str, float]  # of the sampler that made them; empty for Gibbs
    beta: FloatArray | None = None  # (draws, C): covariate effect in log odds (`models.two_stage`)
    own: FloatArray | None = None  # (draws, policies, K): each policy's own f (`policy_models.hierarchical`)


def design(level: FloatArray, n_splines: int) -> FloatArray:
    """Columns 1, I_1 .. I_J, 0: ``f = design @ w``, shape (K, J + 2)."""
    basis = isplines(level, n_splines)
    return np.column_stack([np.ones(len(level)), basis, np.zeros(len(level))])


def sample(
    levels: Levels,
    *,
    n_draws: int = 1000,
    n_warmup: int = WARMUP,
    thin: int = THIN,
    prior: Prior | None = None,
    rng: np.random.Generator | int | None = None,
) -> Draws:
    """Draw from the posterior of the calibrator.

    Parameters
    ----------
    levels : Levels
    n_draws : int
        Draws kept.
    n_warmup : int
        Sweeps left out at the start.
    thin : int
        Sweeps per draw kept.
    prior : Prior, optional
    rng : Generator, int or None

    Returns
    -------
    Draws

    Examples
    --------
    >>> seen = Levels(np.array([0.2, 0.8]), np.array([20.0, 20.0]), np.array([4.0, 16.0]), 20.0, True, 0.0, 1.0)
    >>> sample(seen, n_draws=2000, rng=0).f.mean(axis=0).round(1).tolist()
    [0.2, 0.8]
    """
    rng = np.random.default_rng(rng)
    prior = prior or Prior()
    if min(n_draws, thin) < 1 or n_warmup < 0:
        raise ValueError("n_draws and thin must be at least 1, n_warmup at least 0")
    if not (prior.concentration > 0 and prior.scale > 0):
        raise ValueError(f"{prior}: concentration and scale must be positive")
    x = design(levels.level, prior.n_splines)
    weight = np.empty((n_draws, x.shape[1]))
    sigma = np.full(n_draws, np.nan)
    if levels.binary:
        terms, count, end = _binary_terms(x, levels)
        _binary_chain(terms, count, end, prior.concentration, n_warmup, thin, rng, weight)
    else:
        gram = (x * levels.n[:, None]).T @ x
        _normal_chain(
            gram, x.T @ levels.total, levels.squares, levels.n.sum(), prior.concentration, prior.scale, n_warmup, thin,
            rng, weight, sigma,
        )  # fmt: skip
    f = np.einsum("dj,kj->dk", weight, x)  # not by BLAS, whose threads would spin for a product this small
    return Draws(f, weight, sigma, {})


@numba.njit(cache=True)
def truncated_normal(rng, low, high):  # type: ignore[no-untyped-def]
    """Standard normal restricted to [low, high], by the rejection schemes of Robert (1995)."""
    if low > 0 or high < 0:
        flip = high < 0
        a, b = (-high, -low) if flip else (low, high)
        if (b - a) * (a + b) < 2.0:  # nearly flat: uniform proposals
            while True:
                x = a + (b - a) * rng.random()
                if 2.0 * np.log1p(-rng.random()) <= a * a - x * x:
                    break
        else:
            rate = 0.5 * (a + np.sqrt(a * a + 4.0))
            while True:
                x = a - np.log1p(-rng.random()) / rate
                if x <= b and 2.0 * np.log1p(-rng.random()) <= -((x - rate) ** 2):
                    break
        return -x if flip else x
    if high - low < 2.5:
        while True:
            x = low + (high - low) * rng.random()
            if 2.0 * np.log1p(-rng.random()) <= -x * x:
                return x
    while True:
        x = rng.standard_normal()
        if low <= x <= high:
            return x


@numba.njit(cache=True)
def partner(rng, i, size):  # type: ignore[no-untyped-def]
    """Another of `size` weights than the i-th, at random."""
    j = int(rng.random() * (size - 1))
    return j + 1 if j >= i else j


@numba.njit(cache=True)
def _normal_chain(gram, cross, squares, m, concentration, scale, n_warmup, thin, rng, weight, sigma):  # type: ignore[no-untyped-def]
    size = len(cross)
    w = np.full(size, 1.0 / size)
    slope = gram @ w - cross  # half the gradient of the residual sum of squares
    log_sigma = np.log(0.5 * scale)
    for sweep in range(n_warmup + thin * len(weight)):
        variance = np.exp(2.0 * log_sigma)
        for i in range(size):
            j = partner(rng, i, size)
            both = w[i] + w[j]
            curve = gram[i, i] + gram[j, j] - 2.0 * gram[i, j]
            steep = slope[i] - slope[j]
            if curve > 1e-12 * (1.0 + gram[i, i] + gram[j, j]):
                sd = np.sqrt(variance / curve)
                center = w[i] - steep / curve
                new = center + sd * truncated_normal(rng, -center / sd, (both - center) / sd)
            else:  # the data do not tell the two apart
                new = both * rng.random()
            new = min(max(new, 0.0), both)
            if concentration != 1.0:
                if new <= 0.0 or new >= both:
                    continue
                old_log = np.log(w[i]) + np.log(w[j])
                new_log = np.log(new) + np.log(both - new)
                if np.log1p(-rng.random()) > (concentration - 1.0) * (new_log - old_log):
                    continue
            step = new - w[i]
            w[i] = new
            w[j] = both - new
            for k in range(size):
                slope[k] += step * (gram[k, i] - gram[k, j])
        if sweep % 50 == 0:  # rounding does not pile up
            w /= w.sum()
            slope = gram @ w - cross
        rest = max(squares - 2.0 * (cross @ w) + w @ (gram @ w), 1e-12)
        log_sigma = draw_log_sigma(rng, log_sigma, m, rest, scale)
        if sweep >= n_warmup and (sweep - n_warmup) % thin == thin - 1:
            d = (sweep - n_warmup) // thin
            weight[d] = w
            sigma[d] = np.exp(log_sigma)


@numba.njit(cache=True)
def _sigma_log_density(u, m, rest, scale):  # type: ignore[no-untyped-def]
    """Log density of u = log sigma; the Jacobian is the 1 in 1 - m."""
    return (1.0 - m) * u - 0.5 * rest * np.exp(-2.0 * u) - 0.5 * np.exp(2.0 * u) / (scale * scale)


@numba.njit(cache=True)
def draw_log_sigma(rng, u, m, rest, scale):  # type: ignore[no-untyped-def]
    """Slice sampling with stepping out (Neal, 2003); the width follows the posterior's, about 1 / sqrt(2m)."""
    height = _sigma_log_density(u, m, rest, scale) + np.log1p(-rng.random())
    width = 2.0 / np.sqrt(m + 1.0)
    low = u - width * rng.random()
    high = low + width
    while _sigma_log_density(low, m, rest, scale) > height:
        low -= width
    while _sigma_log_density(high, m, rest, scale) > height:
        high += width
    while True:
        new = low + (high - low) * rng.random()
        if _sigma_log_density(new, m, rest, scale) >= height:
            return new
        if new < u:
            low = new
        else:
            high = new


def _binary_terms(x: FloatArray, levels: Levels) -> tuple[FloatArray, FloatArray, IntArray]:
    """Bernoulli likelihood as ``sum_t count_t log(w @ design[:, t])``, equal counts in runs of at most `RUN`.

    A hit at level k has probability f_k, a miss 1 - f_k, and both are convex combinations of the weights. Terms with
    the same count share one logarithm, that of their product; a run is short enough for the product not to underflow.

    Returns
    -------
    design : array, shape (J + 2, T)
    count : array, shape (runs,)
    end : int array, shape (runs,)
        First term after each run.
    """
    probability = np.vstack([x, 1.0 - x])
    times = np.concatenate([levels.total, levels.n - levels.total])
    order = np.argsort(times, kind="stable")
    order = order[times[order] > 0]
    change = np.flatnonzero(np.diff(times[order])) + 1
    count, end = [], []
    for start, stop in zip([0, *change], [*change, len(order)], strict=True):
        for first in range(start, stop, RUN):
            count.append(times[order[first]])
            end.append(min(first + RUN, stop))
    return np.ascontiguousarray(probability[order].T), np.array(count), np.array(end, dtype=np.intp)


@numba.njit(cache=True)
def _binary_log_density(q, step, rise, count, end):  # type: ignore[no-untyped-def]
    out, t = 0.0, 0
    for g in range(len(end)):
        product = 1.0
        while t < end[g]:
            p = q[t] + step * rise[t]
            if p <= 0.0:
                return -np.inf
            product *= p
            t += 1
        out += count[g] * np.log(product)
    return out


@numba.njit(cache=True)
def _binary_chain(terms, count, end, concentration, n_warmup, thin, rng, weight):  # type: ignore[no-untyped-def]
    size = len(terms)
    w = np.full(size, 1.0 / size)
    q = w @ terms
    now = _binary_log_density(q, 0.0, q, count, end)
    for sweep in range(n_warmup + thin * len(weight)):
        for i in range(size):
            j = partner(rng, i, size)
            both = w[i] + w[j]
            if both <= 0.0:
                continue
            rise = terms[i] - terms[j]
            height = now + np.log1p(-rng.random())
            if concentration != 1.0:
                height += (concentration - 1.0) * (np.log(w[i]) + np.log(w[j]))
            low, high = 0.0, both
            while True:
                new = low + (high - low) * rng.random()
                found = _binary_log_density(q, new - w[i], rise, count, end)
                level = found
                if concentration != 1.0:
                    level += (concentration - 1.0) * (np.log(new) + np.log(both - new))
                if level >= height or high - low < 1e-14:
                    break
                if new < w[i]:
                    low = new
                else:
                    high = new
            q += (new - w[i]) * rise
            now = found
            w[i] = new
            w[j] = both - new
        if sweep % 50 == 0:
            w /= w.sum()
            q = w @ terms
            now = _binary_log_density(q, 0.0, q, count, end)
        if sweep >= n_warmup and (sweep - n_warmup) % thin == thin - 1:
            weight[(sweep - n_warmup) // thin] = w
